"""Making outputs: asked once, kept, gone on with after any stop, and written in the order of the instructions."""

from __future__ import annotations

import asyncio
import json
import signal
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.request import urlopen

import pytest
from aiohttp import web

import warm
from command import evenhand
from evenhand.core.engine import Answer, Engine, Sampling, Writer, Writing
from evenhand.core.errors import EngineError, InputError, PairError, SpecError
from evenhand.core.protocol import Prompt
from evenhand.engines.catalog import ModelFile
from evenhand.engines.endpoint import EndpointEngine, EndpointSettings
from evenhand.engines.llama import LlamaEngine
from evenhand.engines.scripted import ScriptedEngine
from evenhand.io.files import find_tables, read_rows, write_rows
from evenhand.io.pairs import join_outputs
from evenhand.running.generation import (
    Instruction,
    Task,
    are_conversations,
    check_instructions,
    generate,
    output_columns,
    output_rows,
    read_instructions,
)
from evenhand.store import Store
from misbehaving_server import Behaviour, Server, refuses, says

ASKS = [Instruction(f"q{n}", {"id": n}) for n in range(5)]


def echo(prompt: Prompt) -> str:
    return f"said: {prompt.turns[-1].text}"


def task(script: Any = echo, system: str = "", **sampling: Any) -> Task:
    return Task(Writing(ScriptedEngine(script, concurrency=3), Sampling(**sampling)), system)


# -- asking ------------------------------------------------------------------------------------------------


def test_rows_stand_in_the_order_of_the_instructions_with_their_settings() -> None:
    mine = task(system="Be brief.", seed=7)
    with Store(":memory:") as store:
        asyncio.run(generate(mine, ASKS, store))
        rows = list(output_rows(mine, ASKS, store))
    assert [(row["id"], row["output"]) for row in rows] == [(n, f"said: q{n}") for n in range(5)]
    assert rows[0]["generator"] == "script"
    assert rows[0]["settings"] == {
        "engine": "scripted",
        "model": "script",
        "temperature": "0.7",
        "top_p": "1",
        "max_tokens": "1024",
        "seed": "7",
        "system": "Be brief.",
    }


def test_nothing_is_asked_twice_and_every_setting_makes_another_output() -> None:
    with Store(":memory:") as store:
        assert asyncio.run(generate(task(), ASKS, store)).asked == 5
        again = asyncio.run(generate(task(), [*ASKS, Instruction("more")], store))
        assert (again.asked, again.kept) == (1, 5)
        for other in (task(system="x"), task(temperature=0.0), task(seed=1), task(max_tokens=9), task(top_p=0.5)):
            assert asyncio.run(generate(other, ASKS, store)).asked == 5


def test_a_failure_is_a_row_and_is_tried_again() -> None:
    broken = {"q1", "q3"}

    def script(prompt: Prompt) -> str:
        if prompt.turns[-1].text in broken:
            raise EngineError("too many words", reason="too_long")
        return "well"

    mine = task(script)
    with Store(":memory:") as store:
        first = asyncio.run(generate(mine, ASKS, store))
        assert (first.asked, first.failed) == (3, 2)
        rows = list(output_rows(mine, ASKS, store))
        assert [row["output"] for row in rows] == ["well", None, "well", None, "well"]
        assert rows[1]["error"] == "too_long: too many words"
        broken.clear()
        second = asyncio.run(generate(mine, ASKS, store))
        assert (second.asked, second.kept, second.failed) == (2, 3, 0)
        assert all("error" not in row for row in output_rows(mine, ASKS, store))


def test_what_no_other_prompt_would_escape_stops_the_run() -> None:
    def script(prompt: Prompt) -> str:
        raise EngineError("no such key", reason="wrong_key", fatal=True)

    with Store(":memory:") as store, pytest.raises(EngineError, match="no such key"):
        asyncio.run(generate(task(script), ASKS, store))


def test_an_instruction_is_never_trusted_and_the_systems_words_are() -> None:
    prompt = task(system="Be brief.").prompt(Instruction("<|im_end|>"))
    assert [(turn.role, turn.spans[0].trusted) for turn in prompt.turns] == [("system", True), ("user", False)]
    assert [turn.role for turn in task().prompt(Instruction("q")).turns] == ["user"]


def test_an_engine_that_cannot_write_says_so() -> None:
    class Mute(Engine):
        identity = {"model": "mute"}  # noqa: RUF012 - a property elsewhere

        async def answer(self, prompt: Prompt) -> Answer:
            return Answer("A")

    with pytest.raises(SpecError, match="mute can judge, but writes no free text"):
        Writing(Mute(), Sampling())


# -- instructions ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("a.txt", "q0\n\n  q1  \n"),
        ("a.jsonl", '{"instruction": "q0", "output": "old", "topic": 1}\n{"instruction": "q1"}\n'),
        ("a.jsonl", '{"question_id": 1, "turns": ["q0", "r"]}\n{"question_id": 2, "turns": [{"content": "q1"}]}\n'),
        ("a.json", '[{"uid": "x", "prompt": "q0"}, {"prompt": "q1"}]'),
        ("a.csv", "instruction\nq0\nq1\n"),
    ],
)
def test_instructions_are_read_in_many_forms(tmp_path: Path, name: str, content: str) -> None:
    (tmp_path / name).write_text(content)
    questions = list(read_instructions(tmp_path / name))
    assert [question.instruction for question in questions] == ["q0", "q1"]
    assert all("output" not in question.about for question in questions)


@pytest.mark.parametrize(
    ("name", "content", "fault"),
    [
        ("a.txt", b"fine\ncaf\xe9\n", r"a\.txt:2: not UTF-8 at byte 3"),
        ("a.jsonl", b'{"text": "q"}\n', r"a\.jsonl:1: no field 'instruction' \(expected rows"),
        ("a.jsonl", b'{"instruction": null}\n', r"a\.jsonl:1: field 'instruction' is no text"),
        ("a.jsonl", b'{"instruction": ""}\n', r"a\.jsonl:1: field 'instruction' is empty"),
        ("a.jsonl", b'{"turns": []}\n', r"a\.jsonl:1: field 'turns' holds no turns"),
        ("a.txt", b"\n", r"no instructions in this file"),
    ],
)
def test_faults_have_their_place(tmp_path: Path, name: str, content: bytes, fault: str) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(PairError, match=fault):
        check_instructions(tmp_path / name)


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    for name in ("a.txt", "a.jsonl"):
        with pytest.raises(InputError, match="no file of instructions at"):
            check_instructions(tmp_path / name)


# -- endpoints ---------------------------------------------------------------------------------------------


def written_by(behave: Behaviour, prompt: Prompt, **settings: Any) -> tuple[Answer, Server]:
    async def ask() -> tuple[Answer, Server]:
        async with Server(behave) as server:
            engine = EndpointEngine(EndpointSettings(server.url, "m", **settings))
            try:
                return await engine.write(prompt, Sampling(0.3, 0.9, 50, 4)), server
            finally:
                await engine.close()

    return asyncio.run(ask())


def test_an_endpoint_writes_with_these_settings() -> None:
    answer, server = written_by(
        says("<think>hm</think>Well."), task(system="Be brief.").prompt(Instruction("Hi <|im_end|>"))
    )
    assert (answer.text, answer.finish, answer.usage.generated) == ("Well.", "stop", 2)
    assert answer.notes == ("control_tokens_broken",)
    [body] = server.bodies
    assert {name: body[name] for name in ("temperature", "top_p", "max_tokens", "seed")} == {
        "temperature": 0.3,
        "top_p": 0.9,
        "max_tokens": 50,
        "seed": 4,
    }
    assert not {"logprobs", "stop", "n"} & body.keys()
    assert [message["role"] for message in body["messages"]] == ["system", "user"]


def test_a_setting_that_a_server_refuses_is_left_out() -> None:
    answer, server = written_by(refuses("seed", says("Well.")), task().prompt(Instruction("Hi")))
    assert answer.text == "Well."
    assert ["seed" in body for body in server.bodies] == [True, False]


def test_an_answer_that_was_cut_off_says_so() -> None:
    answer, _ = written_by(says("Well, once", finish="length"), task().prompt(Instruction("Hi")))
    assert (answer.text, answer.finish) == ("Well, once", "length")


# -- the command -------------------------------------------------------------------------------------------


@pytest.fixture
def server(loop: Any) -> Iterator[Server]:
    async def behave(request: web.Request, body: dict[str, Any]) -> web.StreamResponse:
        await asyncio.sleep(0.1)
        system = [m["content"] for m in body["messages"] if m["role"] == "system"]
        return await says(f"{' '.join(system)} {body['messages'][-1]['content']}!".strip())(request, body)

    server = Server(behave)
    loop.run(server.__aenter__())
    yield server
    loop.run(server.__aexit__())


def test_two_prompts_are_compared_in_three_commands(tmp_path: Path, server: Server) -> None:
    (tmp_path / "ask.txt").write_text("q0\nq1\nq2\n")
    (tmp_path / "brief.txt").write_text("Be brief.\n")
    spec, db = f"{server.url}#m", tmp_path / "e.db"
    common = [str(tmp_path / "ask.txt"), "--model", spec, "--db", str(db), "--json"]
    plain = evenhand("generate", *common, "--out", tmp_path / "plain.jsonl")
    evenhand("generate", *common, "--out", tmp_path / "brief.json", "--system", tmp_path / "brief.txt")
    fields = json.loads(plain.stdout)
    assert (fields["rows"], fields["asked"], fields["kept"], fields["failed"]) == (3, 3, 0, 0)
    assert json.loads(evenhand("generate", *common, "--out", tmp_path / "again.jsonl").stdout)["kept"] == 3
    assert (tmp_path / "again.jsonl").read_text() == (tmp_path / "plain.jsonl").read_text()
    joined = join_outputs(tmp_path / "brief.json", tmp_path / "plain.jsonl")
    assert [(pair.model_1, pair.output_1, pair.output_2) for pair in joined] == [
        ("brief", f"Be brief. q{n}!", f"q{n}!") for n in range(3)
    ]
    assert len(server.bodies) == 6


def test_a_budget_stops_and_the_next_run_goes_on(tmp_path: Path, server: Server) -> None:
    (tmp_path / "ask.txt").write_text("".join(f"q{n}\n" for n in range(6)))
    words = [
        "generate",
        str(tmp_path / "ask.txt"),
        "-m",
        f"{server.url}#m",
        "-o",
        str(tmp_path / "o.jsonl"),
        "--json",
    ]
    words += ["--db", str(tmp_path / "e.db")]
    fields = json.loads(evenhand(*words, "--max-requests", "2", "--concurrency", "1", code=3).stdout)
    assert (fields["asked"], fields["stopped"]) == (2, "the budget of 2 requests is used up")
    rows = [json.loads(line) for line in (tmp_path / "o.jsonl").read_text().splitlines()]
    assert [row.get("error") for row in rows] == [None, None, *["not asked"] * 4]
    assert json.loads(evenhand(*words).stdout)["kept"] == 2


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["a.txt", "-m", "http://127.0.0.1:9/v1#m", "-o", "o.csv"], "outputs are not written as CSV"),
        (
            ["nowhere.txt", "-m", "http://127.0.0.1:9/v1#m", "-o", "o.jsonl"],
            "no file of instructions at nowhere.txt",
        ),
    ],
)
def test_what_cannot_be_generated_is_refused(words: list[str], said: str) -> None:
    assert said in evenhand("generate", *words, code=2).stderr


@pytest.mark.parametrize("stop", [signal.SIGKILL, signal.SIGINT], ids=["kill", "Ctrl-C"])
def test_a_run_that_was_stopped_goes_on(tmp_path: Path, server: Server, stop: signal.Signals) -> None:
    (tmp_path / "ask.txt").write_text("".join(f"q{n}\n" for n in range(30)))
    words = ["generate", str(tmp_path / "ask.txt"), "-m", f"{server.url}#m", "-o", str(tmp_path / "o.jsonl")]
    words += ["--db", str(tmp_path / "e.db"), "--concurrency", "2", "--json"]
    process = warm.start(*words)
    deadline = time.monotonic() + 60
    while len(server.bodies) < 8 and time.monotonic() < deadline:
        time.sleep(0.02)
    process.send_signal(stop)
    process.communicate(timeout=60)
    assert process.returncode == (130 if stop == signal.SIGINT else -signal.SIGKILL)
    assert not (tmp_path / "o.jsonl").exists()
    with suppress(HTTPError):  # there is no such page, but it comes after what came before
        urlopen(server.url, timeout=60)
    before = len(server.bodies)
    assert 8 <= before < 30
    fields = json.loads(evenhand(*words).stdout)
    assert fields["rows"] == 30
    assert before - 2 <= fields["kept"] <= before  # no more than two were under way
    assert len(server.bodies) == before + fields["asked"]
    rows = [json.loads(line) for line in (tmp_path / "o.jsonl").read_text().splitlines()]
    assert [row["output"] for row in rows] == [f"q{n}!" for n in range(30)]


# -- a real model ------------------------------------------------------------------------------------------


@pytest.mark.engine
def test_the_embedded_model_writes(engine: LlamaEngine, loop: Any) -> None:
    assert isinstance(engine, Writer)
    prompt = task(system="You are helpful.").prompt(Instruction("Say hello. <|im_end|>"))
    greedy = [loop.run(engine.write(prompt, Sampling(temperature=0, max_tokens=12))) for _ in range(2)]
    assert greedy[0].text == greedy[1].text != ""
    assert greedy[0].usage.generated <= 12
    cut = loop.run(engine.write(prompt, Sampling(temperature=0, max_tokens=2)))
    assert (cut.finish, greedy[0].text.startswith(cut.text)) == ("length", True)
    drawn = {loop.run(engine.write(prompt, Sampling(2.0, max_tokens=8, seed=seed))).text for seed in range(4)}
    assert len(drawn) > 1


@pytest.mark.engine
def test_generate_with_the_small_model(tmp_path: Path, smollm: ModelFile) -> None:
    (tmp_path / "ask.txt").write_text("Say hello.\nName a colour.\n")
    words = ["generate", str(tmp_path / "ask.txt"), "-m", "smollm2-135m", "-o", str(tmp_path / "o.jsonl"), "--json"]
    words += ["--db", str(tmp_path / "e.db"), "--max-tokens", "8", "--threads", "1"]
    fields = json.loads(evenhand(*words).stdout)
    assert (fields["asked"], fields["settings"]["sha256"]) == (2, smollm.sha256)
    assert all(json.loads(line)["output"] for line in (tmp_path / "o.jsonl").read_text().splitlines())
    assert json.loads(evenhand(*words).stdout)["kept"] == 2


# -- conversations -----------------------------------------------------------------------------------------


def test_all_turns_are_answered_each_with_the_answers_before_it(tmp_path: Path) -> None:
    (tmp_path / "q.jsonl").write_text(json.dumps({"question_id": 81, "turns": ["Hi", "And you?", "Bye"]}) + "\n")

    def count(prompt: Prompt) -> str:
        return f"{len(prompt.turns)}: {prompt.turns[-1].text}"

    questions = list(read_instructions(tmp_path / "q.jsonl"))
    with Store(":memory:") as store:
        progress = asyncio.run(generate(task(count), questions, store))
        again = asyncio.run(generate(task(count), questions, store))
        [row] = output_rows(task(count), questions, store, conversations=are_conversations(questions))
    assert (progress.asked, again.asked, again.kept) == (1, 0, 1)
    assert [turn["content"] for turn in row["messages"]] == [
        "Hi",
        "1: Hi",
        "And you?",
        "3: And you?",
        "Bye",
        "5: Bye",
    ]
    assert row["question_id"] == 81


def test_a_turn_that_fails_ends_its_conversation_and_is_tried_again(tmp_path: Path) -> None:
    broken = {"two"}

    def fails(prompt: Prompt) -> str:
        if prompt.turns[-1].text in broken:
            raise EngineError("no", reason="timeout")
        return "yes"

    question = Instruction("one", more=("two", "three"))
    with Store(":memory:") as store:
        assert asyncio.run(generate(task(fails), [question], store)).failed == 1
        [row] = output_rows(task(fails), [question], store, conversations=True)
        assert [turn["content"] for turn in row["messages"]] == ["one", "yes", "two", None]
        assert "timeout" in row["error"]
        broken.clear()
        assert asyncio.run(generate(task(fails), [question], store)).asked == 1
        [row] = output_rows(task(fails), [question], store, conversations=True)
        assert [turn["content"] for turn in row["messages"]][-1] == "yes"


@pytest.mark.parametrize("suffix", [".jsonl", ".parquet"])
def test_conversations_that_were_written_can_be_judged(tmp_path: Path, suffix: str) -> None:
    questions = [Instruction("Hi", more=("Bye",), system="Be kind."), Instruction("Name a prime number.")]
    for name in ("new", "old"):
        mine = task(lambda prompt, name=name: f"{name} {prompt.turns[-1].text}")
        with Store(":memory:") as store:
            asyncio.run(generate(mine, questions, store))
            rows = output_rows(mine, questions, store, name, conversations=True)
            write_rows(tmp_path / f"{name}{suffix}", rows, output_columns(conversations=True))
    first, second = join_outputs(tmp_path / f"new{suffix}", tmp_path / f"old{suffix}")
    assert (first.instruction, first.output_1) == ("[System]\nBe kind.\n\n[User]\nHi", "new Hi")
    assert second.texts == ("Name a prime number.", "new Name a prime number.", "old Name a prime number.")


def test_parquet_keeps_every_field_of_a_row(tmp_path: Path) -> None:
    about = {"id": "a", "topic": "sums", "level": 2, "hard": True, "share": 0.5, "tags": ["x"], "number": 2**60 + 1}
    questions = [Instruction("1 + 1?", about), Instruction("2 + 2?", {"id": "b", "share": 1, "reference": "4"})]
    with Store(":memory:") as store:
        asyncio.run(generate(task(), questions, store))
        write_rows(
            tmp_path / "a.parquet",
            output_rows(task(), questions, store),
            output_columns(questions=questions),
        )
    [(_, first), (_, second)] = read_rows(find_tables(tmp_path / "a.parquet")[0])
    assert isinstance(first, dict)
    assert isinstance(second, dict)
    assert {name: first[name] for name in about} == {**about, "tags": '["x"]'}
    assert (second["topic"], second["share"], second["reference"]) == (None, 1, "4")


@pytest.mark.parametrize("name", ["a.CSV", "a.csv.gz"])
def test_outputs_are_not_written_as_csv(tmp_path: Path, name: str) -> None:
    (tmp_path / "q.txt").write_text("Hi\n")
    words = ("generate", tmp_path / "q.txt", "--model", "nonsense", "--out")
    assert "not written as CSV" in evenhand(*words, tmp_path / name, code=2).stderr
    assert "CSV" not in evenhand(*words, tmp_path / "a.csv.jsonl", code=2).stderr


def test_a_system_message_of_a_row_stands_behind_that_of_the_task() -> None:
    [first, user] = task(system="Be brief.").prompt(Instruction("Hi", system="Be kind.")).turns
    assert (first.role, first.text, user.text) == ("system", "Be brief.\n\nBe kind.", "Hi")
    assert task().key(Instruction("Hi")) != task().key(Instruction("Hi", system="Be kind."))
