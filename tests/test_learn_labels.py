"""Which labels evenhand learn takes: votes in files count as in a database, each text once, and quarrels show."""

from __future__ import annotations

import json
from collections.abc import Sequence
from itertools import islice
from pathlib import Path
from typing import Any

import pytest

from command import evenhand
from evenhand import Judge, ScriptedEngine, read_pairs
from evenhand.core.protocol import Prompt

Row = dict[str, Any]


def states(prompt: Prompt) -> Sequence[float]:
    """A model that sees whether a response names a colour."""
    text = prompt.turns[-1].text
    return (1.0 if "colour" in text else -1.0, *(float(ord(letter) % 7) for letter in text[15:22]))


@pytest.fixture
def engine(monkeypatch: pytest.MonkeyPatch) -> ScriptedEngine:
    engine = ScriptedEngine(lambda _: {"A": 0.6, "B": 0.3, "tie": 0.1}, name="script", states=states)
    monkeypatch.setattr("evenhand.views.cli.learn.open_judge", lambda *_: engine)
    return engine


def rows(count: int) -> list[Row]:
    """Pairs in which the response that names a colour is better, without labels."""
    found = []
    for n in range(count):
        sides = (f"{n} is a colour.", f"{n} qq") if n % 2 else (f"{n} qq", f"{n} is a colour.")
        found.append({"id": str(n), "instruction": f"Task {n}", "output_1": sides[0], "output_2": sides[1]})
    return found


def write(path: Path, given: Sequence[Row]) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in given), "utf-8")
    return path


def labelled(count: int) -> list[Row]:
    return [{**row, "label": "1" if n % 2 else "2"} for n, row in enumerate(rows(count))]


def voted(count: int) -> list[Row]:
    sides = {True: ["A", "A", "tie"], False: {"ann": "B", "ben": "B"}}
    return [{**row, "human": sides[bool(n % 2)]} for n, row in enumerate(rows(count))]


def learn(*words: str | Path, code: int = 0) -> Any:
    done = evenhand("learn", *words, "--json", code=code)
    return json.loads(done.stdout)["learned"]["overall"] if not code else done.stderr.replace("\n", " ")


@pytest.mark.usefixtures("engine")
def test_votes_in_a_file_are_labels_as_they_are_in_a_database(tmp_path: Path) -> None:
    by_label = learn(write(tmp_path / "labels.jsonl", labelled(24)), "--out", tmp_path / "one.json")
    by_votes = learn(write(tmp_path / "votes.jsonl", voted(24)), "--out", tmp_path / "two.json")
    assert by_votes == by_label
    assert by_votes["decided"] == 24


def differ(count: int) -> list[Row]:
    """Two people who agree by chance: every second pair has a majority."""
    said = [("A", "A"), ("A", "B"), ("B", "B"), ("B", "A")]
    return [
        {**row, "human": dict(zip(("ann", "ben"), said[n % 4], strict=True))} for n, row in enumerate(rows(count))
    ]


@pytest.mark.usefixtures("engine")
def test_people_who_agree_by_chance_are_told_from_a_file_and_from_a_database(tmp_path: Path) -> None:
    pairs = write(tmp_path / "pairs.jsonl", differ(80))
    db = tmp_path / "e.db"
    with Judge(ScriptedEngine(lambda _: "A"), "overall", db=db) as judge:
        list(judge.judge(read_pairs(pairs)))
    for given in (("--db", db), (pairs,)):
        assert "people do not agree (kappa 0.00)" in learn(*given, "--out", tmp_path / "h.json", code=2)


@pytest.mark.usefixtures("engine")
def test_a_pair_that_is_in_a_file_and_in_the_database_counts_once(tmp_path: Path) -> None:
    pairs, db, out = write(tmp_path / "pairs.jsonl", labelled(24)), tmp_path / "e.db", tmp_path / "h.json"
    with Judge(ScriptedEngine(lambda _: "A"), "overall", db=db) as judge:
        list(judge.judge(islice(read_pairs(pairs), 12)))
    found = learn(pairs, "--db", db, "--out", out)
    assert found["labels"] == 24
    assert found["judges"][0]["n"] == 12
    said = evenhand("learn", pairs, "--db", db, "--out", out).stderr.replace("\n", " ")
    assert "12 pairs left out, whose labels are counted already" in said
    few = write(tmp_path / "few.jsonl", labelled(12))
    again = write(tmp_path / "again.jsonl", labelled(12))
    assert "12 decided labels are too few" in learn(few, again, "--out", out, code=2)


def test_where_the_head_cannot_be_written_nothing_is_read(engine: ScriptedEngine, tmp_path: Path) -> None:
    pairs = write(tmp_path / "pairs.jsonl", labelled(24))
    assert "there is no folder" in learn(pairs, "--out", tmp_path / "no" / "h.json", code=2)
    assert "general is the name of the head that ships" in learn(pairs, "--out", tmp_path / "general.json", code=2)
    assert engine.read == 0


@pytest.mark.usefixtures("engine")
def test_a_file_that_cannot_hold_states_is_said_in_a_sentence(tmp_path: Path) -> None:
    pairs = write(tmp_path / "pairs.jsonl", labelled(24))
    for place in (pairs, tmp_path / "no" / "states"):
        said = evenhand("learn", pairs, "--out", tmp_path / "h.json", "--vectors", place, code=1).stderr
        assert "cannot hold states" in said


def test_votes_that_cannot_be_read_are_counted(engine: ScriptedEngine, tmp_path: Path) -> None:
    odd = [{**row, "human": 7} for row in rows(30)[28:]]
    pairs = write(tmp_path / "pairs.jsonl", [*labelled(28), *odd])
    done = evenhand("learn", pairs, "--out", tmp_path / "h.json")
    assert "2 pairs with votes that cannot be read" in done.stderr.replace("\n", " ")
    assert engine.read == 56
