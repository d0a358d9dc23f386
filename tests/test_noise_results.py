"""Noise beside bias in the product: a judge that is asked again, and what every view says of it."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest

from command import evenhand
from evenhand import Judge, Pair, ScriptedEngine, Store
from evenhand.engines.repeated import Repeated
from evenhand.results.noise import noise_of, repetitions_of
from evenhand.results.run import judge_summary
from evenhand.views.report.contents import compile_report
from evenhand.views.web.overview import overview

PAIRS = [Pair(f"Task {i}", "one", "two", f"p{i}", labels={"overall": "1"}) for i in range(60)]
NOISE = 0.2  # how often an answer is drawn by lot


class Fickle:
    """Side 1 mostly; the first place on each third pair; and now and then whatever the dice say."""

    def __init__(self, seed: int, noise: float = NOISE) -> None:
        self._dice, self._noise = random.Random(seed), noise

    def __call__(self, prompt: Any) -> str:
        text = prompt.turns[-1].text
        if self._dice.random() < self._noise:
            return self._dice.choice("AB")
        leans = int(text.split("Task ")[-1].split()[0]) % 3 == 0
        return "A" if leans or text.rindex("one") < text.rindex("two") else "B"


def ask(db: Path, number: int, *, noise: float = NOISE, pairs: list[Pair] = PAIRS, **more: Any) -> None:
    engine: Any = ScriptedEngine(Fickle(number, noise))
    with Judge(Repeated(engine, number) if number > 1 else engine, "overall", db=db, **more) as judge:
        list(judge.judge(pairs))


def test_a_second_asking_tells_noise_from_position_bias(db: Path) -> None:
    ask(db, 1)
    with Store(db) as store:
        [row] = store.judges()
        assert noise_of(store, row) == {}, "once is not a measurement, whatever the engine"
        assert judge_summary(store, row).plain()["noise"] is None
    ask(db, 2)
    with Store(db) as store:
        first, second = store.judges()
        assert first.fingerprint != second.fingerprint
        found, other = noise_of(store, first)["overall"], noise_of(store, second)["overall"]
    assert found == other
    assert (found.repetitions, found.pairs) == (2, 60)
    said = answers(db)
    changed = [[a != b for a, b in zip(*orders, strict=True)] for orders in zip(*said, strict=True)]
    assert found.noise.value == pytest.approx(sum(map(sum, changed)) / 120)
    # Answers are other ones with 2 · .2 · .8 / 2 + .2² / 2 = .18; a third of the pairs turns with the order.
    assert found.noise.value == pytest.approx(0.18, abs=0.09)
    assert found.position.value == pytest.approx(0.64 / 3, abs=0.1)
    assert found.position.low is not None
    assert found.position.low > 0


def answers(db: Path) -> list[list[list[str]]]:
    """By asking and order: what was said of each pair, in sides."""
    with Store(db) as store:
        every = [[j["overall"] for j in store.judgments(row)] for row in store.judges()]
    return [[[str(o.side_in(order)) for o in outcomes] for order in ("forward", "swapped")] for outcomes in every]


def test_a_judge_without_noise_has_been_shown_to_have_none(db: Path) -> None:
    for number in (1, 2, 3):
        ask(db, number, noise=0.0)
    with Store(db) as store:
        found = noise_of(store, store.judges()[0])["overall"]
    assert (found.repetitions, found.noise.value) == (3, 0.0)
    assert found.noise.high is not None
    assert 0 < found.noise.high < 0.1
    assert found.position.value == found.changes.value == pytest.approx(1 / 3)


def test_other_judges_are_no_repetitions(db: Path) -> None:
    ask(db, 1)
    with Judge(ScriptedEngine(lambda prompt: "A"), "chained", db=db) as judge:
        list(judge.judge(PAIRS[:3]))
    with Judge(ScriptedEngine(Fickle(1), name="another"), "overall", db=db) as judge:
        list(judge.judge(PAIRS[:3]))
    with Store(db) as store:
        rows = store.judges()
        assert [len(repetitions_of(row, rows)) for row in rows] == [1, 1, 1]


def test_one_order_tells_nothing_of_the_order(db: Path) -> None:
    for number in (1, 2):
        ask(db, number, orders="forward")
    with Store(db) as store:
        assert noise_of(store, store.judges()[0]) == {}


def test_every_view_says_the_same(db: Path) -> None:
    ask(db, 1)
    assert "Noise: not measured" in evenhand("card", "--db", db).stdout
    assert "nothing changed" not in evenhand("results", "--db", db).stdout
    ask(db, 2)
    with Store(db) as store:
        row = store.judges()[0]
        text = noise_of(store, row)["overall"].text
        assert overview(store)[-1].noise["overall"].text == text
        assert compile_report(store, [row]).judges[0].noise["overall"].text == text
    assert text.startswith("changes its own answer in ")
    assert text in " ".join(evenhand("results", "--db", db).stdout.split())
    card = " ".join(evenhand("card", "--db", db).stdout.split())
    assert text in card
    assert "Noise: not measured" not in card
    fields = json.loads(evenhand("results", "--db", db, "--json").stdout)
    cards = json.loads(evenhand("card", "--db", db, "--json").stdout)["judges"]
    noise = fields["judges"][0]["noise"]["overall"]
    assert noise == cards[0]["dimensions"]["overall"]["noise"]
    assert set(noise) == {"repetitions", "pairs", "noise", "changes", "position", "noise_share"}
