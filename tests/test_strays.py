"""A server that sends one response too many: no prompt is given the answer to another."""

from __future__ import annotations

import asyncio
import itertools
import random

import pytest

from evenhand import Pair, Protocol
from evenhand.core.errors import EngineError
from evenhand.core.judge import Setup
from evenhand.engines.endpoint import EndpointEngine, EndpointSettings
from evenhand.running.runner import Run
from evenhand.store import Store
from shifting_server import ShiftingServer, right

PAIRS = [Pair(f"Task {n}", f"x{n}", f"y{n}") for n in range(60)]


async def judged(server: ShiftingServer, notices: list[str]) -> list[tuple[int, str | None]]:
    """Each pair's number with what was stored of it, for both orders."""
    engine = EndpointEngine(EndpointSettings(server.url, "m", concurrency=8, timeout=5), on_notice=notices.append)
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

    found, server = asyncio.run(run())
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
    found, server = asyncio.run(run())
    assert all(label == right(number) for number, label in found)
    assert not [text for text in notices if "was not asked for" in text]
    assert server.connections < 60


def test_what_is_under_way_on_a_used_connection_is_asked_again() -> None:
    """The stray arrives on one connection that rests while the other, which has been used before, waits."""

    async def run() -> tuple[EngineError, str]:
        stray = itertools.chain([False, True], itertools.repeat(False))
        async with ShiftingServer(stray, delay=0.25, seconds=0.1) as server:
            engine = EndpointEngine(EndpointSettings(server.url, "m", timeout=5))
            prompts = [Protocol.load("overall").prompt(pair, "forward") for pair in PAIRS[:3]]
            await asyncio.gather(*(engine.answer(prompt) for prompt in prompts[:2]))
            await asyncio.sleep(0.2)
            with pytest.raises(EngineError, match="another's answer") as caught:
                await engine.answer(prompts[2])
            again = await engine.answer(prompts[2])
            await engine.close()
            assert server.connections == 3
            return caught.value, again.text

    error, again = asyncio.run(run())
    assert (error.reason, error.retryable, error.fatal) == ("connection", True, False)
    assert again == right(2)
