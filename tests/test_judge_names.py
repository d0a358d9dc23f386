"""One way to say which judge is meant, in every command."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path

import pytest

from command import evenhand, evenhand_any
from evenhand import Judge, Jury, Pair, ScriptedEngine
from evenhand.core.protocol import Prompt
from evenhand.results.judges import choose_judges, judges_named, title_of
from evenhand.store import JudgeRow, Store


@pytest.fixture(scope="module")
def db(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("names") / "evenhand.db"
    pairs = [Pair(f"Task {n}", "x", "y", f"p{n}", "new", "old") for n in range(6)]
    for model in ("tinier", "large"):
        for protocol in ("overall", "four"):
            with Judge(ScriptedEngine(lambda _: "A,A,A,A", name=model), protocol, db=path) as judge:
                list(judge.judge(pairs))
    return path


@pytest.fixture(scope="module")
def rows(db: Path) -> list[JudgeRow]:
    with Store(db) as store:
        return store.judges()


def test_a_judge_has_four_names(rows: list[JudgeRow]) -> None:
    for row in rows:
        for word in (f"{row.model}/{row.protocol}", row.fingerprint, row.fingerprint[:12]):
            assert judges_named(rows, word) == [row]
        assert row in judges_named(rows, row.model)
        assert row in judges_named(rows, row.protocol)
        assert judges_named(rows, row.model, row.protocol) == [row]
    assert judges_named(rows) == rows
    assert judges_named(rows, "nobody") == []


def test_a_short_beginning_names_nobody(rows: list[JudgeRow]) -> None:
    assert judges_named(rows, rows[0].fingerprint[:3]) == []


def test_a_dimension_may_follow(rows: list[JudgeRow]) -> None:
    assert [(row.model, name) for row, name in choose_judges(rows, "tinier/four:format")] == [("tinier", "format")]


@pytest.mark.parametrize("command", ["results", "rank", "report", "card", "gate", "suggest"])
def test_every_command_takes_the_same_names(command: str, db: Path, rows: list[JudgeRow], tmp_path: Path) -> None:
    row = next(row for row in rows if (row.model, row.protocol) == ("large", "four"))
    more = ("--out", tmp_path / "report.html") if command == "report" else ()
    for word in ("large/four", row.fingerprint[:8]):
        name = (word,) if command == "card" else ("--judge", word)
        found = evenhand_any(command, *name, "--db", db, "--json", *more)
        text = json.dumps(json.loads(found.stdout))
        assert "large" in text, found.stderr
        assert "tinier" not in text


def returned(said: str, _: Prompt) -> str:
    return said


@pytest.fixture(scope="module")
def twins(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two juries of the same judges, which only the rule tells apart."""
    path = tmp_path_factory.mktemp("names") / "twins.db"
    pairs = [Pair(f"Task {n}", "x", "y", f"p{n}", "new", "old") for n in range(6)]
    three = [ScriptedEngine(partial(returned, said), name=said) for said in ("A", "B", "tie")]
    with Jury(three, "overall", db=path) as jury:
        list(jury.judge(pairs))
    assert evenhand("jury", "--pool", "majority", "--db", path).returncode == 0
    return path


@pytest.mark.parametrize("command", ["results", "rank", "card", "report"])
def test_two_judges_of_one_name_are_told_apart(command: str, twins: Path, tmp_path: Path) -> None:
    out = tmp_path / "report.md"
    given = (
        ["--judge", "jury"] if command in ("results", "rank") else ["jury"] if command == "card" else ["--out", out]
    )
    found = evenhand(command, *given, "--db", twins)
    shown = out.read_text() if command == "report" else found.stdout
    with Store(twins) as store:
        alike = [row for row in store.judges() if row.model.startswith("jury of ")]
    assert len(alike) == 2
    for row in alike:
        assert title_of(row, alike) == f"jury of A, B, tie under overall ({row.fingerprint[:8]})"
        assert title_of(row, [row]) == "jury of A, B, tie under overall"
        assert f"({row.fingerprint[:8]})" in shown
