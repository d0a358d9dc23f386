"""A run that stopped when it had seen enough is known as one: the interval that holds is shown."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

from command import evenhand
from evenhand import Judge, Pair, ScriptedEngine
from evenhand.core.protocol import Prompt
from evenhand.core.shuffle import Shuffle
from evenhand.results.answer import answer_of
from evenhand.results.decision import Decider, decision_of
from evenhand.results.summary import Counter, EarlyStop

PAIRS = [Pair(f"Task {n}", f"good {n}", f"poor {n}", id=f"p{n}") for n in range(200)]


def find_good(prompt: Prompt) -> str:
    shown = prompt.turns[-1].text
    return "A" if shown.rfind("good") < shown.rfind("poor") else "B"


def run_until_decided(db: Path) -> Decider:
    decider = Decider("overall", enough=lambda rate: rate.against(0.5) is not None)
    with Judge(ScriptedEngine(find_good), "overall", db=db) as judge:
        drawn = decider.watch(Shuffle(lambda: iter(PAIRS), seed=0))
        with judge.run(drawn, line=decider) as judgments:
            for judgment in judgments:
                if decider(judgment):
                    judgments.stop()
    return decider


def test_results_know_that_a_run_stopped_early(tmp_path: Path) -> None:
    db = tmp_path / "evenhand.db"
    decider = run_until_decided(db)
    assert decider.met
    fields = json.loads(evenhand("results", "--db", db, "--json").stdout)
    asked = fields["pairs"]
    assert asked < len(PAIRS)
    assert fields["dimensions"]["overall"]["invalid"] == 0, "what was not asked is not invalid"
    early = fields["stopped_early"]
    assert (early["dimension"], early["pairs"]) == ("overall", asked)
    fixed = fields["dimensions"]["overall"]["ci"]
    assert early["interval"][0] < fixed[0], "it is wider than the interval for a number of pairs fixed before"
    decision = decision_of(decider.standing, asked, len(PAIRS))
    assert early["interval"][0] >= decision.interval[0] - 1e-12
    shown = evenhand("results", "--db", db).stdout
    assert "at every moment" in shown
    assert "leans away" in shown


def test_the_headline_has_the_interval_that_holds(tmp_path: Path) -> None:
    db, page = tmp_path / "evenhand.db", tmp_path / "report.md"
    run_until_decided(db)
    fields = json.loads(evenhand("results", "--db", db, "--json").stdout)
    low = fields["stopped_early"]["interval"][0]
    assert fields["answer"]["ci"] == fields["stopped_early"]["interval"]
    held = f"({100 * low:.0f} to 100%, at every moment)"
    assert held in fields["answer"]["sentence"]
    evenhand("report", "--db", db, "--out", page)
    assert held in page.read_text(encoding="utf-8")
    assert "are too narrow after such a stop" in page.read_text(encoding="utf-8").replace("\\", "")


def test_an_early_stop_on_another_dimension_leaves_a_word_in_the_headline() -> None:
    counter = Counter(["overall"])
    with Judge(ScriptedEngine(find_good), "overall") as judge:
        for judgment in judge.judge(PAIRS[:20]):
            counter.add(judgment)
    early = EarlyStop("correctness", 0.9, (0.6, 1.0), 0.95, "", 20, "")
    said = answer_of(replace(counter.summary(), stopped_early=early))
    assert "(83 to 100%, too narrow: it stopped early)" in said.sentence


def test_what_comes_after_the_decision_counts_for_the_interval_and_not_for_the_decision() -> None:
    decider = Decider("overall", enough=lambda rate: rate.against(0.5) is not None)
    for _ in range(40):
        decider.count([1.0])
    assert decider.standing.pairs == 8
    assert decider.early_stop.pairs == 40
    assert decider.early_stop.interval[0] > 0.8 > decider.standing.rate.low


def test_a_run_over_all_pairs_is_not_one(tmp_path: Path) -> None:
    db = tmp_path / "evenhand.db"
    with Judge(ScriptedEngine(lambda _: "A"), "overall", db=db) as judge:
        list(judge.judge(PAIRS[:5]))
    assert "stopped_early" not in json.loads(evenhand("results", "--db", db, "--json").stdout)
