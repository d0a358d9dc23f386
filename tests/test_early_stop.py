"""A run that stopped when it had seen enough is known as one: the interval that holds is shown."""

from __future__ import annotations

import json
from pathlib import Path

from command import evenhand
from evenhand import Judge, Pair, ScriptedEngine
from evenhand.core.protocol import Prompt
from evenhand.core.shuffle import Shuffle
from evenhand.results.decision import Decider, decision_of

PAIRS = [Pair(f"Task {n}", f"good {n}", f"poor {n}", id=f"p{n}") for n in range(200)]


def find_good(prompt: Prompt) -> str:
    shown = prompt.turns[-1].text
    return "A" if shown.rfind("good") < shown.rfind("poor") else "B"


def run_until_decided(db: Path) -> Decider:
    decider = Decider("overall", enough=lambda rate: rate.against(0.5) is not None)
    engine = ScriptedEngine(
        lambda prompt: "A" if prompt.turns[-1].text.rfind("good") < prompt.turns[-1].text.rfind("poor") else "B"
    )
    with Judge(engine, "overall", db=db) as judge:
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


def test_a_run_over_all_pairs_is_not_one(tmp_path: Path) -> None:
    db = tmp_path / "evenhand.db"
    with Judge(ScriptedEngine(lambda _: "A"), "overall", db=db) as judge:
        list(judge.judge(PAIRS[:5]))
    assert "stopped_early" not in json.loads(evenhand("results", "--db", db, "--json").stdout)
