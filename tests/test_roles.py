"""Baseline and candidate mean the same in every command, whichever side they were shown on."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from command import evenhand
from evenhand.core.judge import Judgment
from evenhand.core.pair import Pair
from evenhand.core.protocol import Prompt
from evenhand.engines.scripted import ScriptedEngine
from evenhand.io.pairs import join_outputs
from evenhand.store import Store
from evenhand.views.api import Judge

GOOD, BAD = "a fine answer", "rubbish"


def prefers_fine(prompt: Prompt) -> dict[str, float]:
    """A judge that knows the good response wherever it stands."""
    text = "".join(turn.text for turn in prompt.turns)
    first = text.rfind(GOOD) < text.rfind(BAD)
    return {"A": 0.9, "B": 0.08, "tie": 0.02} if first else {"A": 0.08, "B": 0.9, "tie": 0.02}


@pytest.fixture
def outputs(tmp_path: Path) -> tuple[Path, Path]:
    """A candidate that is better than its baseline."""
    for name, text in (("new", GOOD), ("old", BAD)):
        rows = [json.dumps({"instruction": f"Question {n}?", "output": text}) for n in range(60)]
        (tmp_path / f"{name}.jsonl").write_text("\n".join(rows) + "\n")
    return tmp_path / "new.jsonl", tmp_path / "old.jsonl"


def judge_into(db: Path, pairs: list[Pair]) -> list[Judgment]:
    with Judge(ScriptedEngine(prefers_fine), "overall", db=db) as judge:
        return list(judge.judge(pairs))


def test_a_better_candidate_that_was_judged_on_side_1_passes_the_gate(outputs: tuple[Path, Path], db: Path) -> None:
    judge_into(db, list(join_outputs(*outputs)))
    found = json.loads(evenhand("gate", "--db", db, "--json").stdout)
    assert found["decision"] == "not_worse"
    assert found["sides"] == {"1": "old", "2": "new"}
    assert found["win_rate_2"] == 1.0


def test_a_worse_candidate_fails_on_either_side(outputs: tuple[Path, Path], db: Path) -> None:
    new, old = outputs
    judge_into(db, list(join_outputs(old, new)))
    assert "old is worse than new" in evenhand("gate", "--db", db, code=1).stdout
    judge_into(db, list(join_outputs(old, new, candidate_side="2")))  # the same roles, on the other sides
    found = json.loads(evenhand("gate", "--db", db, "--json", code=1).stdout)
    assert (found["pairs"], found["win_rate_2"]) == (120, 0.0)
    fields = json.loads(evenhand("results", "--db", db, "--json").stdout)
    assert fields["roles"] == {"1": "candidate", "2": "baseline"}
    assert fields["sides"] == {"1": "old", "2": "new"}
    assert fields["dimensions"]["overall"]["wins_2"] == 120


def test_results_name_the_roles(outputs: tuple[Path, Path], db: Path) -> None:
    judge_into(db, list(join_outputs(*outputs)))
    assert "candidate: new; baseline: old" in evenhand("results", "--db", db).stdout


def test_a_file_without_roles_does_not_take_them_away(outputs: tuple[Path, Path], db: Path) -> None:
    pairs = list(join_outputs(*outputs))
    judge_into(db, pairs)
    judge_into(db, [Pair(p.instruction, p.output_1, p.output_2, p.id, p.model_1, p.model_2) for p in pairs])
    with Store(db) as store:
        assert store.matches(store.judges()[0]) == [("new", "old", "1")]


def test_a_gate_takes_two_models_and_one_candidate(db: Path, tmp_path: Path) -> None:
    three = [
        Pair(f"Q{n}?", GOOD, BAD, model_1=a, model_2=b)
        for n, (a, b) in enumerate([("a", "b"), ("a", "c"), ("b", "c")])
    ]
    judge_into(db, three)
    refused = evenhand("gate", "--db", db, code=2).stderr
    assert "compares 3 models" in refused
    assert "--candidate NEW --baseline OLD" in refused
    other = tmp_path / "other.db"
    judge_into(
        other, [Pair(f"{a}?", GOOD, BAD, model_1=a, model_2=b, candidate="1") for a, b in [("a", "b"), ("b", "a")]]
    )
    assert "the candidate is not the same model" in evenhand("gate", "--db", other, code=2).stderr


def test_several_candidates_are_ranked_and_not_taken_for_one(db: Path) -> None:
    judge_into(
        db, [Pair(f"Q{n}{a}?", GOOD, BAD, model_1=a, model_2="old", candidate="1") for n in range(9) for a in "ab"]
    )
    found = json.loads(evenhand("results", "--db", db, "--json").stdout)
    assert found["answer"]["kind"] == "several"
    assert evenhand("results", "--db", db).stdout.lstrip().startswith("the sides are not always the same models")


def test_one_candidate_against_several_models_keeps_its_name(db: Path) -> None:
    judge_into(
        db, [Pair(f"Q{n}{a}?", BAD, GOOD, model_1=a, model_2="new", candidate="2") for n in range(9) for a in "ab"]
    )
    found = json.loads(evenhand("results", "--db", db, "--json").stdout)
    assert (found["answer"]["kind"], found["sides"]) == ("better", {"1": "1", "2": "new"})
    assert found["answer"]["sentence"].startswith("new (candidate) is better")


def test_in_an_a_a_gate_the_candidate_is_called_the_candidate(outputs: tuple[Path, Path]) -> None:
    [first, *_] = join_outputs(outputs[1], outputs[1], candidate_side="2")
    assert (first.model_1, first.model_2) == ("old (baseline)", "old (candidate)")


def test_a_turned_judgment_is_that_of_the_turned_pair() -> None:
    pair = Pair("Q?", GOOD, BAD, id="q")
    with Judge(ScriptedEngine(prefers_fine), "chained") as judge:
        straight, other = judge.judge([pair]), judge.judge([pair.turned()])
        turned, expected = next(straight).turned(), next(other)
    assert {name: (f.side, f.p) for name, f in turned.outcomes.items()} == {
        name: (f.side, f.p) for name, f in expected.outcomes.items()
    }
    assert turned.turned().outcomes["overall"].side == "1"


def test_an_old_database_has_no_roles_and_is_counted_as_before(outputs: tuple[Path, Path], db: Path) -> None:
    judge_into(db, list(join_outputs(*outputs)))
    with closing(sqlite3.connect(db)) as base, base:
        base.execute("UPDATE pairs SET candidate = ''")
        base.execute("INSERT INTO dirty SELECT id FROM pairs")
    assert "old is worse than new" in evenhand("gate", "--db", db, code=1).stdout
