"""A server that sends one response too many: no prompt is given the answer to another."""

from __future__ import annotations

import asyncio
import itertools
import json
import random
from collections.abc import Mapping
from contextlib import suppress
from types import SimpleNamespace
from typing import Any

import pytest

import patient
from evenhand import Pair, Protocol
from evenhand.core.engine import Answer, Engine, Sampling, Writing
from evenhand.core.errors import EngineError
from evenhand.core.judge import Setup
from evenhand.core.markup import Span
from evenhand.core.protocol import Prompt
from evenhand.engines import open_engine
from evenhand.engines.endpoint import EndpointEngine, EndpointSettings
from evenhand.engines.provenance import ConnectionRecord, ServerRecord, note, noting
from evenhand.engines.vllm_states import VllmEngine
from evenhand.running.generation import Instruction, Task, generate
from evenhand.running.runner import Run
from evenhand.running.settling import Settling
from evenhand.store import Store
from shifting_server import End, ShiftingServer, right

PAIRS = [Pair(f"Task {n}", f"x{n}", f"y{n}") for n in range(60)]


async def judged(server: ShiftingServer, notices: list[str]) -> list[tuple[int, str | None]]:
    """Each pair's number with what was stored of it, for both orders."""
    engine = EndpointEngine(EndpointSettings(server.url, "m", concurrency=8, timeout=60), on_notice=notices.append)
    found: list[tuple[int, str | None]] = []
    with Store(":memory:") as store:
        async for judgment in Run(Setup(engine, Protocol.load("overall")), PAIRS, store):
            number = int(judgment.pair.instruction.split()[1])
            found += [(number, verdict.label) for verdict in judgment["overall"].orders.values()]
    await engine.close()
    return found


@pytest.mark.parametrize("delay", [None, 0.0, 0.001, 0.01, 0.05], ids=lambda delay: f"after {delay}")
def test_no_pair_gets_the_answer_of_another(delay: float | None) -> None:
    rng, notices = random.Random(1), list[str]()

    async def run() -> tuple[list[tuple[int, str | None]], ShiftingServer]:
        strays = (rng.random() < 0.1 for _ in itertools.count())
        async with ShiftingServer(strays, delay=delay) as server:
            return await judged(server, notices), server

    found, server = patient.run(run())
    assert len(found) == 120
    assert [(number, label) for number, label in found if label != right(number)] == []
    [notice] = [text for text in notices if "was not asked for" in text]
    assert "a connection of its own" in notice
    assert server.connections > 100


def test_a_server_without_strays_has_its_connections_used_again() -> None:
    async def run() -> tuple[list[tuple[int, str | None]], ShiftingServer]:
        async with ShiftingServer(itertools.repeat(False), delay=None, seconds=0.03) as server:
            return await judged(server, notices), server

    notices: list[str] = []
    found, server = patient.run(run())
    assert all(label == right(number) for number, label in found)
    assert not [text for text in notices if "was not asked for" in text]
    assert server.connections < 60


def test_what_is_under_way_on_a_used_connection_is_asked_again() -> None:
    """The stray arrives on one connection that rests while the other, which has been used before, waits."""

    async def run() -> tuple[EngineError, str]:
        stray = itertools.chain([False, True], itertools.repeat(False))
        async with ShiftingServer(stray, delay=0.25, seconds=0.1) as server:
            engine = EndpointEngine(EndpointSettings(server.url, "m", timeout=60))
            prompts = [Protocol.load("overall").prompt(pair, "forward") for pair in PAIRS[:3]]
            await asyncio.gather(*(engine.answer(prompt) for prompt in prompts[:2]))
            await asyncio.sleep(0.2)
            with pytest.raises(EngineError, match="another's answer") as caught:
                await engine.answer(prompts[2])
            again = await engine.answer(prompts[2])
            await engine.close()
            assert server.connections == 3
            return caught.value, again.text

    error, again = patient.run(run())
    assert (error.reason, error.retryable, error.fatal) == ("connection", True, False)
    assert again == right(2)


@pytest.mark.parametrize("end", [None, "announced", "silent"])
def test_a_stray_that_is_taken_for_the_next_answer_is_taken_back(end: End | None) -> None:
    """It comes when the connection has rested and the next request is under way on it.

    With an answer each tenth of a second, the first connection has its second request after two of them. Where the
    connection ends with the stray, the right answer never comes.
    """

    async def run() -> tuple[list[tuple[int, str | None]], list[tuple[int, str | None]]]:
        stray = itertools.chain([True], itertools.repeat(False))
        async with ShiftingServer(stray, delay=0.15, seconds=0.1, end=end) as server:
            engine = EndpointEngine(EndpointSettings(server.url, "m", concurrency=1, timeout=60))
            with Store(":memory:") as store:
                setup = Setup(engine, Protocol.load("overall"))
                out = [judgment async for judgment in Run(setup, PAIRS[:6], store)]
                kept = list(store.judgments(store.judges()[0]))
            await engine.close()
        return labels(out), labels(kept)

    out, kept = patient.run(run())
    assert len(out) == len(kept) == 12
    assert [(number, label) for number, label in out if label != right(number)] == []
    assert sorted(kept) == sorted(out)


def test_no_instruction_gets_the_output_of_another() -> None:
    """An output is kept as it comes, and nothing of it shows whose it is: each has a connection of its own."""

    async def run() -> list[str | None]:
        stray = itertools.chain([True], itertools.repeat(False))
        async with ShiftingServer(stray, delay=0.15, seconds=0.1) as server:
            engine = EndpointEngine(EndpointSettings(server.url, "m", concurrency=1, timeout=60))
            task, asked = Task(Writing(engine, Sampling())), [Instruction(f"Task {n}") for n in numbers]
            with Store(":memory:") as store:
                await generate(task, asked, store)
                kept = [store.outputs.get(task.key(each)) for each in asked]
            await engine.close()
        return [written.text if written else None for written in kept]

    numbers = (0, 1, 3, 5, 6, 8)  # the first connection is used again for the third
    assert patient.run(run()) == [right(number) for number in numbers]


@pytest.mark.parametrize("end", ["announced", "silent"])
@pytest.mark.parametrize("uses", [1, 2, 10])
def test_a_server_that_ends_its_connections_costs_few_requests(end: End, uses: int) -> None:
    """An answer with which a used connection ends is asked for again; then connections are used less often."""

    async def run() -> tuple[list[tuple[int, str | None]], ShiftingServer]:
        strays = itertools.repeat(False)
        async with ShiftingServer(strays, delay=None, seconds=0.02, end=end, uses=uses) as server:
            return await judged(server, []), server

    found, server = patient.run(run())
    assert sorted(found) == sorted((number, right(number)) for number in [*range(60), *range(60)])
    extra = 0 if uses == 1 else 2 * 2 * 8  # both orders of those that were under way when this was learnt
    assert 120 <= server.requests <= 120 + extra


def test_a_connection_that_ends_when_nobody_uses_it_costs_nothing() -> None:
    async def run() -> tuple[list[str], ShiftingServer]:
        async with ShiftingServer(itertools.repeat(False), delay=None, idle=1.5) as server:
            engine = EndpointEngine(EndpointSettings(server.url, "m", concurrency=1, timeout=60))
            prompts = [Protocol.load("overall").prompt(pair, "forward") for pair in PAIRS[:4]]
            found = []
            with noting() as records:
                for prompt, pause in zip(prompts, (0.2, 2.0, 0.2, 2.0), strict=True):
                    found.append((await engine.answer(prompt)).text)
                    await asyncio.sleep(pause)
            await engine.close()
        assert [record.ended for record in records] == [False, False]
        return found, server

    found, server = patient.run(run())
    assert found == [right(n) for n in range(4)]
    assert (server.requests, server.connections) == (4, 2)


def labels(judgments: list[Any]) -> list[tuple[int, str | None]]:
    return [
        (int(judgment.pair.instruction.split()[1]), verdict.label)
        for judgment in judgments
        for verdict in judgment["overall"].orders.values()
    ]


class Shifts(Engine):
    """Answers wrongly over a used connection until it is found out, as an endpoint would; then rightly."""

    def __init__(self, wrong: int) -> None:
        self.record = ConnectionRecord(ServerRecord(), rest=0.05)
        self.wrong, self.asked = wrong, 0
        self.concurrency = 4

    @property
    def identity(self) -> Mapping[str, str]:
        return {"model": "shifts"}

    async def answer(self, prompt: Prompt) -> Answer:
        await asyncio.sleep(0.001)
        task = int(prompt.turns[-1].text.split("Task ")[1].split()[0])
        self.asked += 1
        if self.record.server.distrusted:
            return Answer(right(task))
        note(self.record)
        self.record.server.distrusted = self.record.shifted = self.asked >= self.wrong
        return Answer(right(task + 1))


@pytest.mark.parametrize("wrong", [1, 7, 40])
def test_what_may_be_shifted_is_neither_handed_out_nor_kept(wrong: int) -> None:
    """All answers up to the moment when the server is found out are asked again in the same run."""

    async def run() -> tuple[list[Any], list[Any], int]:
        engine = Shifts(wrong)
        with Store(":memory:") as store:
            found = Run(Setup(engine, Protocol.load("overall")), PAIRS[:20], store)
            out = [judgment async for judgment in found]
            return out, list(store.judgments(store.judges()[0])), engine.asked

    out, kept, asked = patient.run(run())
    for judgments in (out, kept):
        assert sorted(number for number, _ in labels(judgments)) == sorted([*range(20), *range(20)])
        assert all(label == right(number) for number, label in labels(judgments))
    assert 40 < asked <= 80 + 4


def test_a_judgment_waits_until_it_is_sure() -> None:
    good, bad = ConnectionRecord(ServerRecord(), rest=0.02), ConnectionRecord(ServerRecord(), rest=0.02)
    late = ConnectionRecord(ServerRecord(), rest=0.0)
    out, back = list[Any](), list[Any]()

    async def run() -> None:
        settling = Settling(out.append, lambda job, again: back.append((job, again)))
        at_once, sure, doubtful, gone = (SimpleNamespace(name=name) for name in ("a", "b", "c", "d"))
        settling.add(at_once, at_once, [])  # type: ignore[arg-type]
        assert out == [at_once]
        settling.add(gone, gone, [late])  # type: ignore[arg-type]
        settling.add(sure, sure, [good, good])  # type: ignore[arg-type]
        settling.add(doubtful, doubtful, [good, bad])  # type: ignore[arg-type]
        assert out == [at_once]
        bad.server.distrusted = True
        await asyncio.sleep(0.01)
        late.shifted = late.server.distrusted = True  # too late: it was handed out
        await settling.wait()
        assert out == [at_once, gone, sure]
        assert back == [(doubtful, True), (gone, False)]

    patient.run(run())


async def _remembered_wrongly(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """vLLM with a token for each character. An answer takes 0.1 s; that to "<x_0>" comes again 0.2 s later."""
    with suppress(asyncio.IncompleteReadError, ConnectionError):
        while True:
            head = (await reader.readuntil(b"\r\n\r\n")).lower()
            sent = json.loads(await reader.readexactly(int(head.split(b"content-length: ")[1].split(b"\r\n")[0])))
            text = sent["prompt"] if "prompt" in sent else "".join(map(chr, sent["input"]))
            ids = [ord(c) for c in text]
            reply = (
                {"tokens": ids, "token_strs": list(text)} if "prompt" in sent else {"data": [{"embedding": ids}]}
            )
            body = json.dumps(reply).encode()
            response = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%b" % (len(body), body)
            await asyncio.sleep(0.1)
            writer.write(response)
            if text == "<x_0>":
                asyncio.get_running_loop().call_later(0.2, writer.write, response)
    writer.close()


@pytest.mark.parametrize("what", ["tokens", "states"])
def test_what_is_remembered_is_never_the_answer_to_another_prompt(what: str) -> None:
    """Tokens and states are kept for later prompts, which take no connection for them: none could be taken back."""

    async def run() -> list[str]:
        server = await asyncio.start_server(_remembered_wrongly, "127.0.0.1", 0)
        url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1"
        engine = open_engine(f"vllm@{url}#m", endpoint=EndpointSettings(mode="completions", timeout=60))
        assert isinstance(engine, VllmEngine)
        prompts = [Prompt((), raw=(Span(f"<x_{n}>", True),)) for n in range(3)]
        if what == "states":  # so that only they take time
            for prompt in prompts:
                await engine._tokens(prompt)
        found = []
        for prompt in prompts:
            await asyncio.sleep(0.15)  # longer than a connection rests
            with suppress(EngineError):
                ids = await engine._tokens(prompt) if what == "tokens" else (await engine.state(prompt)).vector
                found.append("".join(chr(int(number)) for number in ids))
        await engine.close()
        server.close()
        await asyncio.sleep(0.05)
        return found

    assert patient.run(run()) == ["<x_0>", "<x_1>", "<x_2>"]
