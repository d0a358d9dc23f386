"""The gate and --until-decided, by the real entry point, with a judge behind real HTTP on this machine."""

from __future__ import annotations

import asyncio
import json
import random
import subprocess
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from hypothesis import given, settings
from hypothesis import strategies as st

import warm
from conftest import LoopThread
from evenhand import Judge, Pair, ScriptedEngine
from evenhand.core.columns import blocks_of
from evenhand.core.engine import Answer
from evenhand.core.errors import InputError
from evenhand.core.judge import Judgment
from evenhand.core.protocol import Prompt
from evenhand.core.shuffle import Shuffle
from evenhand.core.stats.sequence import Bounds
from evenhand.engines.catalog import ModelFile
from evenhand.io.pairs import pair_from
from evenhand.results.decision import Decider, RunningRate, replay
from evenhand.results.gate import HOPELESS, Gate, GateResult
from misbehaving_server import Behaviour, Body, Server, fails, says
from test_cli import SHORT, evenhand, fields_of

PASSED, WORSE, WRONG, UNDECIDED, NOT_JUDGED = 0, 1, 2, 3, 4


async def prefers_good(request: web.Request, body: Body) -> web.StreamResponse:
    """Says which response is GOOD, where one is; two EVEN ones are a tie, and MUDDLE cannot be read."""
    text = body["messages"][-1]["content"]
    if "MUDDLE" in text:
        return await says("Who knows.")(request, body)
    if "GOOD" not in text:
        return await says("tie")(request, body)
    return await says("A" if text.index("GOOD") < text.index("POOR") else "B")(request, body)


@pytest.fixture
def serve(loop: LoopThread) -> Iterator[Callable[[Behaviour], Server]]:
    servers: list[Server] = []

    def start(behave: Behaviour) -> Server:
        servers.append(Server(behave))
        return loop.run(servers[-1].__aenter__())

    yield start
    for server in servers:
        loop.run(server.__aexit__())


def rows_of(one: int = 0, two: int = 0, ties: int = 0, broken: int = 0, **more: str) -> list[dict[str, str]]:
    """So many pairs that model 1 wins, model 2 wins, neither, or that cannot be judged."""
    kinds = [("GOOD", "POOR")] * one + [("POOR", "GOOD")] * two
    kinds += [("EVEN", "EVEN ")] * ties + [("MUDDLE", "")] * broken
    random.Random(1).shuffle(kinds)
    return [
        {"id": f"p{i}", "instruction": f"Question {i}", "output_1": a, "output_2": b, **more}
        for i, (a, b) in enumerate(kinds)
    ]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "short.txt").write_text(SHORT)
    return tmp_path


def run_gate(
    folder: Path, server: Server | str, rows: Sequence[dict[str, str]], code: int, *more: str | Path, **env: str
) -> subprocess.CompletedProcess[str]:
    file = folder / "pairs.jsonl"
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    url = server if isinstance(server, str) else server.url
    where: list[Any] = ["--judge", f"{url}#judge", "--protocol", folder / "short.txt", "--db", folder / "gate.db"]
    return evenhand("gate", file, *where, *more, code=code, **env)


# -- exit codes --------------------------------------------------------------------------------------------


def test_a_better_model_passes_and_pairs_are_saved(folder: Path, serve: Callable[[Behaviour], Server]) -> None:
    server = serve(prefers_good)
    rows = rows_of(one=10, two=190, model_1="old", model_2="new")
    said = run_gate(folder, server, rows, PASSED, "--concurrency", "2").stdout
    assert "new is not worse than old by more than 5 points" in said
    assert "pairs did not have to be judged" in said
    fields = fields_of(run_gate(folder, server, rows, PASSED, "--concurrency", "2", "--json"))
    assert (fields["decision"], fields["exit_code"]) == ("not_worse", 0)
    assert fields["judged"] + fields["saved"] == fields["pairs"] == 200
    assert fields["saved"] > 150
    assert len(server.bodies) == 2 * fields["judged"]
    assert fields["interval"][0] > fields["bar"] == 0.45


def test_a_worse_model_fails(folder: Path, serve: Callable[[Behaviour], Server]) -> None:
    done = run_gate(folder, serve(prefers_good), rows_of(one=60, two=5), WORSE)
    assert "model 2 is worse than model 1 by more than 5 points" in done.stdout


def test_equal_models_are_undecided_with_few_pairs_and_pass_with_a_wide_margin(
    folder: Path, serve: Callable[[Behaviour], Server]
) -> None:
    server, rows = serve(prefers_good), rows_of(one=20, two=20)
    fields = fields_of(run_gate(folder, server, rows, UNDECIDED, "--json"))
    assert (fields["decision"], fields["judged"], fields["saved"]) == ("undecided", 40, 0)
    assert fields["win_rate_2"] == 0.5
    [word, _, said] = run_gate(folder, server, rows, UNDECIDED).stdout.splitlines()[0].partition(": ")
    assert word == "UNDECIDED"
    assert "to decide it: more pairs, or a larger margin" in run_gate(folder, server, rows, UNDECIDED).stdout
    assert said == "the verdicts do not yet show whether model 2 is worse than model 1 by more than 5 points"
    run_gate(folder, server, rows, PASSED, "--margin", "0.3")


def test_ties_pass(folder: Path, serve: Callable[[Behaviour], Server]) -> None:
    """Two models that are nearly always tied are as good as each other: the sequence closes in on one half."""
    rows = rows_of(one=10, two=10, ties=130)
    fields = fields_of(run_gate(folder, serve(prefers_good), rows, PASSED, "--json"))
    assert 0.45 < fields["win_rate_2"] < 0.55


def test_a_judge_that_takes_the_first_passes_nobody(folder: Path, serve: Callable[[Behaviour], Server]) -> None:
    """Its orders contradict each other, so every pair is a tie and two models are as good as each other."""
    server, rows, why = serve(says("A")), rows_of(two=150), "the judge chose whatever stood first in 100% of pairs"
    report = folder / "report.md"
    done = run_gate(folder, server, rows, NOT_JUDGED, "--markdown", report)
    assert "NOT JUDGED: this judge cannot be trusted, so it is not known whether" in done.stdout
    assert f"do not trust this: {why}" in done.stdout
    assert "to decide it: another judge, or another protocol" in done.stdout
    assert f"| do not trust this | {why} |" in report.read_text()
    fields = fields_of(run_gate(folder, server, rows, NOT_JUDGED, "--json"))
    assert fields["distrust"] == why
    enough = f"{fields['counted']} pairs would have been enough to pass model 2, if the judge could be trusted"
    assert fields["stopped"] == enough
    assert f"ended: {enough}\n" in done.stdout
    stored = evenhand("gate", "--db", folder / "gate.db", code=NOT_JUDGED)
    assert f"do not trust this: {why}" in stored.stdout
    good = run_gate(folder, serve(prefers_good), rows_of(two=60), PASSED, "--json")
    assert fields_of(good)["distrust"] == ""


def test_a_judge_that_ties_whatever_it_is_shown_passes_nobody(
    folder: Path, serve: Callable[[Behaviour], Server]
) -> None:
    done = run_gate(folder, serve(says("tie")), rows_of(one=1, ties=70), NOT_JUDGED)
    assert "do not trust this: the judge called all" in done.stdout
    assert "pairs a tie, so it may not see any difference" in done.stdout


def test_outputs_that_are_the_same_may_all_be_tied(folder: Path, serve: Callable[[Behaviour], Server]) -> None:
    rows = [{**row, "output_2": row["output_1"]} for row in rows_of(ties=70)]
    assert run_gate(folder, serve(says("tie")), rows, PASSED).stdout.startswith("PASS")


def test_by_such_a_judge_a_gate_is_not_undecided_and_asks_for_another(
    folder: Path, serve: Callable[[Behaviour], Server]
) -> None:
    """Where CI lets undecided pass, a judge that takes the first would pass every model."""
    said = run_gate(folder, serve(says("A")), rows_of(two=20), NOT_JUDGED).stdout
    assert said.startswith("NOT JUDGED: this judge cannot be trusted")
    assert "would have been enough" not in said
    assert "do not trust this: the judge chose whatever stood first" in said
    assert "to decide it: another judge, or another protocol" in said
    assert "more pairs" not in said


@pytest.mark.parametrize("budget", [("--max-pairs", "3"), ("--max-requests", "7")])
def test_a_small_budget_leaves_it_undecided(
    folder: Path, serve: Callable[[Behaviour], Server], budget: tuple[str, str]
) -> None:
    server = serve(prefers_good)
    one = ("--concurrency", "1", "--json")
    fields = fields_of(run_gate(folder, server, rows_of(two=30), UNDECIDED, *budget, *one))
    assert fields["judged"] == 3
    assert "budget" in fields["stopped"]
    assert run_gate(folder, server, rows_of(two=30), PASSED).stdout  # what was judged is not lost
    assert max(Counter(json.dumps(body["messages"]) for body in server.bodies).values()) == 1


def test_a_budget_of_money(folder: Path, serve: Callable[[Behaviour], Server]) -> None:
    server = serve(prefers_good)
    table = {"currency": "USD", "date": "2026-01-01", "per": 1, "models": {}}
    table["models"] = {f"{server.url}#judge": {"input": 1, "output": 1}}
    prices = folder / "prices.json"
    prices.write_text(json.dumps(table))
    money = ("--max-cost", "3000", "--prices", prices)
    fields = fields_of(run_gate(folder, server, rows_of(two=30), UNDECIDED, "-p", "overall", *money, "--json"))
    assert fields["cost"] > 0
    assert "budget of 3000" in fields["stopped"]
    assert "no price" in run_gate(folder, server, rows_of(two=3), WRONG, "--max-cost", "5").stderr


def test_invalid_verdicts_are_undecided_unless_it_holds_either_way(
    folder: Path, serve: Callable[[Behaviour], Server]
) -> None:
    server = serve(prefers_good)
    fields = fields_of(run_gate(folder, server, rows_of(two=60, broken=3), PASSED, "--json"))
    assert fields["decision"] == "not_worse"
    done = run_gate(folder, server, rows_of(two=60, broken=60), UNDECIDED, "--json", "--seed", "1")
    fields = fields_of(done)
    assert (fields["win_rate_2"], fields["invalid"]) == (1.0, 60)
    assert fields["invalid_bounds"] == [0.5, 1.0]


# -- the judge fails, not the model ------------------------------------------------------------------------


def test_a_judge_that_refuses_is_not_a_worse_model(folder: Path, serve: Callable[[Behaviour], Server]) -> None:
    done = run_gate(folder, serve(fails(401, "wrong key")), rows_of(two=5), NOT_JUDGED, "--json")
    fields = fields_of(done)
    assert (fields["decision"], fields["exit_code"]) == ("not_judged", NOT_JUDGED)
    assert "does not accept the key" in fields["failure"]


def test_models_have_their_names_where_nothing_was_judged(
    folder: Path, serve: Callable[[Behaviour], Server]
) -> None:
    rows = [{**row, "model_1": "old", "model_2": "new"} for row in rows_of(two=5)]
    done = run_gate(folder, serve(fails(401, "wrong key")), rows, NOT_JUDGED)
    assert "NOT JUDGED: the judging failed, so it is not known whether new is worse than old" in done.stdout


def test_a_judge_that_never_makes_sense_is_given_up_on(folder: Path, serve: Callable[[Behaviour], Server]) -> None:
    server = serve(says("I would rather talk of the weather."))
    fields = fields_of(run_gate(folder, server, rows_of(two=100), NOT_JUDGED, "--concurrency", "1", "--json"))
    assert (fields["decision"], fields["invalid"]) == ("not_judged", HOPELESS)
    assert fields["judged"] < 100
    assert fields["stopped"] == (
        f"none of the first {HOPELESS} pairs has a valid verdict (unreadable);"
        " for example: “I would rather talk of the weather.”"
    )
    assert fields["beyond"] == fields["judged"] - HOPELESS
    said = run_gate(folder, server, rows_of(two=100), NOT_JUDGED).stdout
    assert f"ended: {fields['stopped']}\n" in said


def test_a_few_pairs_without_a_verdict_say_so(folder: Path, serve: Callable[[Behaviour], Server]) -> None:
    fields = fields_of(run_gate(folder, serve(prefers_good), rows_of(broken=3), NOT_JUDGED, "--json"))
    assert fields["stopped"] == "no pair has a valid verdict (unreadable); for example: “Who knows.”"
    again = fields_of(evenhand("gate", "--db", folder / "gate.db", "--json", code=NOT_JUDGED))
    assert again["stopped"] == fields["stopped"]


def test_a_judge_that_cannot_be_read_is_quoted(folder: Path, serve: Callable[[Behaviour], Server]) -> None:
    file = folder / "pairs.jsonl"
    file.write_text(json.dumps(rows_of(two=1)[0]))
    server = serve(says("Response A\nis \x1b[31mbetter."))
    where: list[str | Path] = ["--protocol", folder / "short.txt", "--db", folder / "judge.db"]
    said = "unreadable, for example: “Response A is ␛[31mbetter.”"
    assert said in evenhand("judge", file, "--judge", f"{server.url}#judge", *where, code=3).stdout
    assert said in evenhand("results", *where[2:]).stdout


def test_a_failure_is_quoted(folder: Path, serve: Callable[[Behaviour], Server]) -> None:
    file = folder / "pairs.jsonl"
    file.write_text(json.dumps(rows_of(two=1)[0]))
    server = serve(fails(400, "this text is blocked", code="content_filter"))
    where: list[str | Path] = ["--protocol", folder / "short.txt", "--db", folder / "judge.db"]
    said = evenhand("judge", file, "--judge", f"{server.url}#judge", *where, code=3).stdout
    assert "content_filter, for example: “the endpoint will not judge this text: this text is blocked" in said


def test_no_model_and_a_broken_database_are_not_a_worse_model(folder: Path, tmp_path: Path) -> None:
    empty = {"EVENHAND_CACHE": str(tmp_path / "empty"), "PIP_NO_INDEX": "1"}
    pairs = folder / "pairs.jsonl"
    pairs.write_text(json.dumps(rows_of(two=1)[0]) + "\n")
    said = evenhand("gate", pairs, "--db", folder / "a.db", code=NOT_JUDGED, **empty)
    assert "NOT JUDGED: the judging failed, so it is not known whether model 2 is worse than model 1" in said.stdout
    (folder / "bad.db").write_bytes(b"no database at all" * 100)
    report = folder / "report.md"
    evenhand("gate", "--db", folder / "bad.db", "--markdown", report, code=NOT_JUDGED)
    assert "NOT JUDGED: the judging failed" in report.read_text()


def test_output_that_cannot_be_written_does_not_change_the_decision(
    folder: Path, serve: Callable[[Behaviour], Server]
) -> None:
    server, rows = serve(prefers_good), rows_of(two=40)
    done = run_gate(folder, server, rows, PASSED, "--markdown", folder / "no" / "such" / "folder.md")
    assert "the decision is unchanged" in done.stderr
    words: list[Any] = ["gate", folder / "pairs.jsonl", "--judge", f"{server.url}#judge"]
    words += ["--protocol", folder / "short.txt", "--db", folder / "gate.db"]
    with Path("/dev/full").open("w") as full:
        assert warm.run(*words, stdout=full).returncode == PASSED


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["gate", "none.jsonl"], "no file of pairs"),
        (["gate", "--db", "none.db"], "no database"),
        (["gate", "pairs.jsonl", "--margin", "0.5"], "--margin"),
        (["gate", "pairs.jsonl", "--margin", "-0.1"], "--margin"),
        (["gate", "pairs.jsonl", "--level", "95"], "--level"),
        (["gate", "pairs.jsonl", "--on", "charm"], "--on charm"),
        (["gate", "pairs.jsonl", "--protocol", "four", "--on", "combine"], "combined"),
        (["gate", "bad.jsonl"], "bad.jsonl:1"),
        (["judge", "pairs.jsonl", "--on", "overall"], "--until-decided"),
    ],
)
def test_wrong_use(folder: Path, words: list[str], said: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder)
    (folder / "pairs.jsonl").write_text(json.dumps(rows_of(two=1)[0]) + "\n")
    (folder / "bad.jsonl").write_text("{}\n")
    assert said in evenhand(*words, code=WRONG).stderr


# -- what is written ---------------------------------------------------------------------------------------


def test_markdown_for_a_pull_request(folder: Path, serve: Callable[[Behaviour], Server]) -> None:
    server = serve(prefers_good)
    rows = rows_of(two=40, model_1="a|b", model_2="<img src=x>\n# @you")
    report, step = folder / "report.md", folder / "step.md"
    for _ in range(2):
        run_gate(folder, server, rows, PASSED, "--markdown", report)
        run_gate(folder, server, rows, PASSED, "--markdown", step, GITHUB_STEP_SUMMARY=str(step))
    text = report.read_text()
    assert text.startswith("### PASS: &#60;img src=x&#62; &#35;&#8203; &#64;&#8203;you is not worse than a&#124;b")
    assert "| has to be at least | 45% |" in text
    assert step.read_text() == 2 * text  # GitHub's is added to, any other is written anew


# -- verdicts that are there already -----------------------------------------------------------------------


def test_stored_verdicts_come_to_the_same(folder: Path, serve: Callable[[Behaviour], Server]) -> None:
    rows = rows_of(one=12, two=60, ties=8)
    asked = fields_of(run_gate(folder, serve(prefers_good), rows, PASSED, "--json", "--concurrency", "1"))
    stored = fields_of(evenhand("gate", "--db", folder / "gate.db", "--json"))
    same = ("decision", "win_rate_2", "interval", "counted", "instructions", "invalid", "dimension")
    assert {name: stored[name] for name in same} == {name: asked[name] for name in same}
    assert stored["saved"] == 0
    assert "of several judges" not in evenhand("gate", "--db", folder / "gate.db").stderr
    with Judge(ScriptedEngine(lambda _: "tie", name="other"), "overall", db=folder / "gate.db") as judge:
        list(judge.judge([Pair("Question", "x", "y")]))
    said = " ".join(evenhand("gate", "--db", folder / "gate.db", code=UNDECIDED).stderr.split())
    assert "counted: other under overall, the newest of several judges; --judge names another" in said
    assert "no verdicts of that kind" in evenhand("gate", "--db", folder / "gate.db", "-j", "x", code=WRONG).stderr


def test_one_order_is_half_a_hearing(folder: Path) -> None:
    pairs = [Pair(f"Question {i}", "x", "y") for i in range(40)]
    with Judge(ScriptedEngine(lambda _: "B"), "overall", db=folder / "half.db", orders="forward") as judge:
        list(judge.judge(pairs))
    fields = fields_of(evenhand("gate", "--db", folder / "half.db", "--json", code=NOT_JUDGED))
    assert (fields["invalid"], fields["beyond"]) == (HOPELESS, 40 - HOPELESS)
    assert fields["stopped"] == f"none of the first {HOPELESS} pairs has a valid verdict in both orders"


def test_a_budget_for_stored_verdicts_leaves_pairs_that_do_not_count(
    folder: Path, serve: Callable[[Behaviour], Server]
) -> None:
    run_gate(folder, serve(prefers_good), rows_of(one=20, two=20), UNDECIDED)
    said = evenhand("gate", "--db", folder / "gate.db", "--max-pairs", "39", code=UNDECIDED).stdout
    assert "pairs: 40 of 40 judged; 39 counted" in said
    assert "not counted: 1 pair, which comes later in the random order\n" in said
    assert "ended: the budget of 39 pairs is used up\n" in said
    whole = evenhand("gate", "--db", folder / "gate.db", "--max-pairs", "40", code=UNDECIDED).stdout
    assert not [word for word in ("not counted", "ended", "beyond") if word in whole]


# -- judge --until-decided ---------------------------------------------------------------------------------


def test_judging_stops_when_it_is_decided_and_goes_on_without_the_flag(
    folder: Path, serve: Callable[[Behaviour], Server]
) -> None:
    server, file = serve(prefers_good), folder / "pairs.jsonl"
    file.write_text("".join(json.dumps(row) + "\n" for row in rows_of(one=110, two=10)))
    words: list[Any] = ["judge", file, "--judge", f"{server.url}#judge", "--protocol", folder / "short.txt"]
    words += ["--db", folder / "a.db", "--concurrency", "2"]
    said = evenhand(*words, "--until-decided").stdout
    assert "decided on overall: 1 is better" in said
    fields = fields_of(evenhand(*words, "--until-decided", "--json"))
    decided = fields["until_decided"]
    assert decided["better"] == "1"
    assert decided["saved"] == 120 - fields["pairs"] > 80
    assert decided["interval"][0] > 0.5
    assert fields["answer"]["ci"] == fields["stopped_early"]["interval"], "not that of a fixed number of pairs"
    few = fields_of(evenhand(*words, "--until-decided", "--limit", "100", "--json"))
    assert few["until_decided"]["saved"] == 100 - few["pairs"], "beyond the limit nothing would have been asked"
    rest = fields_of(evenhand(*words, "--json"))
    assert (rest["pairs"], rest["asked"]) == (120, 2 * (120 - fields["pairs"]))
    assert "until_decided" not in rest


def test_judging_to_the_end_without_a_decision(folder: Path, serve: Callable[[Behaviour], Server]) -> None:
    server, file = serve(prefers_good), folder / "pairs.jsonl"
    file.write_text("".join(json.dumps(row) + "\n" for row in rows_of(one=10, two=10)))
    words: list[Any] = ["judge", file, "--judge", f"{server.url}#judge", "--protocol", folder / "short.txt"]
    said = evenhand(*words, "--db", folder / "a.db", "--until-decided").stdout
    assert "not decided" in said


@pytest.mark.engine
def test_a_real_model_goes_through_the_gate(folder: Path, smollm: ModelFile) -> None:
    """The small model is no judge, and passes nobody. What it says is kept all the same."""
    file = folder / "pairs.jsonl"
    file.write_text("".join(json.dumps(row) + "\n" for row in rows_of(one=2, two=2)))
    words: list[Any] = [
        "--judge",
        smollm.path,
        "--protocol",
        folder / "short.txt",
        "--threads",
        "1",
        "--db",
        folder / "a.db",
    ]
    fields = fields_of(evenhand("gate", file, *words, "--json", code=NOT_JUDGED))
    assert (fields["decision"], fields["judged"], fields["asked"]) == ("not_judged", 4, 8)
    assert fields["distrust"]
    again = fields_of(evenhand("gate", file, *words, "--json", code=NOT_JUDGED))
    assert (again["asked"], again["interval"]) == (0, fields["interval"])


# -- the parts ---------------------------------------------------------------------------------------------


def judged(pairs: Sequence[Pair], sides: Callable[[Pair], str]) -> list[Judgment]:
    """Judgments by a judge that hears both orders alike."""

    def script(prompt: Any) -> str:
        text = prompt.turns[-1].text
        pair = next(p for p in pairs if f"<{p.id}>" in text)
        side = sides(pair)
        first = text.index(pair.output_1) < text.index(pair.output_2)
        return "tie" if side == "tie" else "nothing" if side == "?" else "A" if (side == "1") == first else "B"

    with Judge(ScriptedEngine(script), "overall") as judge:
        return list(judge.judge(pairs))


def cases(sizes: Sequence[int], sides: Sequence[str]) -> tuple[list[Pair], dict[str, str]]:
    pairs, said, turn = [], {}, 0
    for cluster, size in enumerate(sizes):
        for _ in range(size):
            name = f"p{turn}"
            pairs.append(Pair(f"Question {cluster}", f"<{name}> one", f"<{name}> two", id=name))
            said[name] = sides[turn % len(sides)]
            turn += 1
    return pairs, said


def standing_of(pairs: Sequence[Pair], judgments: Sequence[Judgment]) -> RunningRate:
    decider = Decider("overall")
    list(decider.watch(pairs))
    for judgment in judgments:
        decider.add(judgment)
    return decider.standing


@settings(deadline=None)
@given(st.randoms())
def test_the_order_in_which_judgments_come_does_not_matter(dice: random.Random) -> None:
    pairs, said = cases([2, 1, 3, 1], ["1", "2", "tie", "?", "1", "1", "2"])
    judgments = _judge_once(pairs, said)
    mixed = list(judgments)
    dice.shuffle(mixed)
    assert standing_of(pairs, mixed) == standing_of(pairs, judgments)
    assert standing_of(pairs, judgments).instructions == 4


_JUDGED: list[Judgment] = []


def _judge_once(pairs: Sequence[Pair], said: dict[str, str]) -> list[Judgment]:
    if not _JUDGED:
        _JUDGED.extend(judged(pairs, lambda p: said[p.id]))
    return _JUDGED


def test_nothing_counts_before_what_was_drawn_before_it() -> None:
    pairs, said = cases([1, 1, 1], ["1"])
    judgments = judged(pairs, lambda p: said[p.id])
    decider = Decider("overall")
    list(decider.watch(pairs))
    for judgment, expected in zip(reversed(judgments), (0, 0, 3), strict=True):
        decider.add(judgment)
        assert decider.standing.instructions == expected


def test_nothing_counts_behind_what_was_enough_even_if_one_answer_lets_in_many() -> None:
    pairs, said = cases([1] * 6, ["1"])
    judgments = judged(pairs, lambda p: said[p.id])
    for mixed in (judgments, judgments[::-1], [*judgments[1:], judgments[0]]):
        decider = Decider("overall", enough=lambda standing: standing.instructions >= 3)
        list(decider.watch(pairs))
        assert [decider(judgment) for judgment in mixed][-1]
        assert decider.standing.instructions == 3


def test_an_instruction_counts_once_whatever_the_number_of_its_pairs() -> None:
    """Twins in the cluster change nothing."""
    pairs, said = cases([1] * 12, ["1", "1", "2", "tie"])
    others = [Pair(p.instruction, f"<{p.id}'> one", f"<{p.id}'> two", id=f"{p.id}'") for p in pairs]
    twins = [pair for both in zip(pairs, others, strict=True) for pair in both]
    alone = standing_of(pairs, judged(pairs, lambda p: said[p.id]))
    double = standing_of(twins, judged(twins, lambda p: said[p.id.rstrip("'")]))
    assert alone.rate == double.rate
    assert (alone.pairs, double.pairs) == (12, 24)


def test_a_replay_in_any_order_of_rows_is_the_same() -> None:
    pairs, said = cases([2, 1, 3, 1, 1], ["1", "2", "tie", "?"])
    judgments = judged(pairs, lambda p: said[p.id])
    found = []
    for rows in (judgments, judgments[::-1]):
        decider = Decider("overall")
        replay(blocks_of(rows), decider, seed=3)
        found.append(decider.standing)
    assert found[0] == found[1]
    assert (found[0].pairs, found[0].instructions) == (8, 5)


def test_a_margin_is_a_share_below_one_half() -> None:
    with pytest.raises(InputError):
        Gate(0.5)
    result = GateResult(Gate(0.0), RunningRate("overall", Bounds(None, 0, 1, 0), 0, 0), ("1", "2"), 5, 0)
    assert (result.outcome, result.value, result.saved) == ("undecided", None, 0)


@pytest.mark.parametrize(("beyond", "said"), [(1, "1 pair, which does not"), (2, "2 pairs, which do not")])
def test_pairs_beyond_the_decision_agree_in_number(beyond: int, said: str) -> None:
    standing = RunningRate("overall", Bounds(0.3, 0.2, 0.4, 40), 40, 0)
    result = GateResult(Gate(), standing, ("1", "2"), 100, 40 + beyond)
    assert result.details()["beyond the decision"] == f"{said} count"


def test_outputs_of_two_models_are_joined_and_the_candidate_is_on_trial(
    folder: Path, serve: Callable[[Behaviour], Server]
) -> None:
    for name, word in (("old", "POOR"), ("new", "GOOD")):
        rows = [{"instruction": f"Question {i}", "output": word} for i in range(30)]
        (folder / f"{name}.json").write_text(json.dumps(rows))
    words: list[Any] = ["gate", "--candidate", f"new={folder / 'new.json'}", "--protocol", folder / "short.txt"]
    words += ["--judge", f"{serve(prefers_good).url}#judge", "--db", folder / "gate.db"]
    fields = fields_of(evenhand(*words, "--baseline", f"old={folder / 'old.json'}", "--json"))
    assert (fields["decision"], fields["sides"]) == ("not_worse", {"1": "old", "2": "new"})
    said = evenhand(*words, code=WRONG).stderr
    assert "--candidate NEW --baseline OLD must be given together" in said


# -- no further than needed ---------------------------------------------------------------------------------


def test_a_gate_that_has_decided_asks_nobody_when_it_is_repeated(
    folder: Path, serve: Callable[[Behaviour], Server]
) -> None:
    server, rows = serve(prefers_good), rows_of(one=10, two=190)
    first = fields_of(run_gate(folder, server, rows, PASSED, "--concurrency", "8", "--json"))
    asked = len(server.bodies)
    assert first["asked"] == asked == 2 * first["judged"]
    assert first["judged"] == first["counted"] + first["beyond"]
    assert 0 <= first["beyond"] <= 8
    for more in (("--concurrency", "8"), ("--concurrency", "1"), ()):
        again = fields_of(run_gate(folder, server, rows, PASSED, *more, "--json"))
        assert again["asked"] == 0
        same = ("decision", "win_rate_2", "interval", "counted", "instructions", "judged", "beyond", "saved")
        assert {name: again[name] for name in same} == {name: first[name] for name in same}
    assert len(server.bodies) == asked
    if first["beyond"]:
        assert "beyond the decision" in run_gate(folder, server, rows, PASSED).stdout


def slow_on(word: str, seconds: float) -> Behaviour:
    """A judge that ponders one question for long and answers the others at once."""

    async def behave(request: web.Request, body: Body) -> web.StreamResponse:
        if word in body["messages"][-1]["content"]:
            await asyncio.sleep(seconds)
        return await prefers_good(request, body)

    return behave


@pytest.mark.parametrize("command", ["gate", "judge"])
def test_a_slow_answer_does_not_let_the_others_run_far_ahead(
    folder: Path, serve: Callable[[Behaviour], Server], command: str
) -> None:
    """The first of the draw holds up the count; nothing is asked that lies further ahead than are asked at once."""
    rows = rows_of(two=150)
    first = next(iter(Shuffle(lambda: map(pair_from, rows), seed=0)))
    server, file = serve(slow_on(f"{first.instruction}\n", 0.7)), folder / "pairs.jsonl"
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    words: list[Any] = [command, file, "--judge", f"{server.url}#judge", "--protocol", folder / "short.txt"]
    words += ["--db", folder / "a.db", "--concurrency", "4", "--json"]
    words += ["--until-decided"] if command == "judge" else []
    fields = fields_of(evenhand(*words))
    decided = fields.get("until_decided", fields)
    assert decided["counted"] < 30
    assert 0 <= decided["beyond"] <= 4
    assert len(server.bodies) == 2 * (decided["counted"] + decided["beyond"])
    asked = len(server.bodies)
    again = fields_of(evenhand(*words))
    assert (again["asked"], len(server.bodies)) == (0, asked)
    assert again.get("until_decided", again)["counted"] == decided["counted"]


def test_a_pair_that_another_process_holds_at_the_head_of_the_line_is_waited_for(tmp_path: Path) -> None:
    """Two runs over the same pairs at once: each waits for what the other has claimed, and both come to an end."""
    questions = [Pair(f"Question {i}", "GOOD", "POOR", id=f"p{i}") for i in range(60)]

    class Slow(ScriptedEngine):
        async def answer(self, prompt: Prompt) -> Answer:
            await asyncio.sleep(0.002)
            return await super().answer(prompt)

    def go(name: str, found: dict[str, tuple[int, int]]) -> None:
        decider = Decider("overall")
        engine = Slow(lambda _: "A", concurrency=3)
        with Judge(engine, "overall", db=tmp_path / "a.db") as judge:
            with judge.run(decider.watch(questions), line=decider) as judgments:
                for judgment in judgments:
                    decider.add(judgment)
            found[name] = (decider.standing.pairs, judgments.totals.asked)

    found: dict[str, tuple[int, int]] = {}
    threads = [threading.Thread(target=go, args=(name, found)) for name in ("one", "two")]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=60)
    assert not any(thread.is_alive() for thread in threads)
    assert [pairs for pairs, _ in found.values()] == [60, 60]
    assert sum(asked for _, asked in found.values()) == 120
