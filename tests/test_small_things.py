"""One pair is not "1 pairs", thousands have separators, and pictures say how many and by whom."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from command import evenhand
from evenhand.core.pair import Pair
from evenhand.core.stats.calibration import Bin, Reliability
from evenhand.core.stats.clustered import Estimate
from evenhand.core.stats.sequence import Bounds
from evenhand.engines.scripted import ScriptedEngine
from evenhand.io.pairs import join_outputs
from evenhand.results.decision import RunningRate
from evenhand.results.gate import Gate, GateResult
from evenhand.views.api import Judge
from evenhand.views.charts import reliability


@pytest.mark.parametrize(("words", "code"), [(("results",), 0), (("gate",), 4), (("card",), 0), (("suggest",), 0)])
def test_one_pair_is_one_pair(tmp_path: Path, words: tuple[str, ...], code: int) -> None:
    db = tmp_path / "one.db"
    with Judge(ScriptedEngine(lambda prompt: "A"), "overall", db=db) as judge:
        judge.compare(Pair("Name a prime.", "7", "8", id="p", model_1="old", model_2="new"))
    shown = evenhand(*words, "--db", db, code=code).stdout
    assert "1 pair" in shown or "1 of 1" in shown
    for wrong in ("1 pairs", "1 instructions", "1 answers", "1 models"):
        assert f" {wrong}" not in f" {shown}"


def test_a_gate_counts_in_thousands() -> None:
    standing = RunningRate("overall", Bounds(0.4, 0.38, 0.42, 1), pairs=704151, invalid=0)
    result = GateResult(Gate(), standing, ("old", "new"), 1_704_152, 704151)
    given = result.details()
    assert given["pairs"].startswith("704,151 of 1,704,152 judged; 704,151 counted, on 1 instruction;")
    assert given["saved"] == "1,000,001 pairs did not have to be judged"


def test_a_picture_names_its_judges(tmp_path: Path) -> None:
    db = tmp_path / "two.db"
    for name in ("ann", "ben"):
        with Judge(ScriptedEngine(lambda prompt: "A", name=name), "overall", db=db) as judge:
            judge.compare(Pair("Name a prime.", "7", "8", id="p"))
    evenhand("results", "--db", db, "--plot", tmp_path / "both.svg")
    evenhand("results", "--db", db, "--judge", "ben", "--plot", tmp_path / "one.svg")
    both, one = ((tmp_path / name).read_text("utf-8") for name in ("both.svg", "one.svg"))
    assert "ann under overall" in both
    assert "ben under overall" in both
    assert "ben under overall" in one  # of two judges, which?


def test_a_file_against_itself_has_a_candidate_and_a_baseline(tmp_path: Path) -> None:
    """Of two sides with one name, neither is called by the other's role."""
    file = tmp_path / "old.jsonl"
    file.write_text(json.dumps({"instruction": "Name a prime.", "output": "7"}) + "\n")
    [pair] = join_outputs(file, file, candidate_side="2")
    assert pair.candidate == "2"
    assert (pair.model_1, pair.model_2) == ("old (baseline)", "old (candidate)")


def test_a_picture_of_one_pair_counts_one_pair() -> None:
    known = Estimate(0.5, 0.3, 0.7, 1, 1)
    unknown = Estimate(None, None, None, 0, 0)
    drawn = reliability(Reliability((Bin(0.5, 0.7, 0.6, known),), unknown, None, None))
    assert "right 50%, 1 pair<" in drawn
