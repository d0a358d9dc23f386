"""Repeats, weighting, many questions, AlpacaEval's length control: the commands over a database and shards."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from command import evenhand
from evenhand import Judge, Pair, ScriptedEngine
from evenhand.core.errors import InputError
from evenhand.core.judge import Conversation, Judgment
from evenhand.core.protocol import Order, Prompt
from evenhand.core.stats.alpaca import alpaca_length_controlled
from evenhand.core.stats.multiple import holm
from evenhand.core.verdict import Verdict
from evenhand.results.counting import Counting, first_of_each, weighting_from
from evenhand.results.summary import Counter
from evenhand.store import Store
from evenhand.store.shards.copying import copy_store

SINGLES, MORE, REPEATS = 67, 33, 12


def make_pairs() -> list[Pair]:
    """Single pairs of which every second is won, many won pairs on one instruction, and some of all these again."""
    rng = random.Random(1)
    tasks = [(f"Task {n}", n % 2 == 0) for n in range(SINGLES)] + [("Task 0", True)] * MORE
    texts = []
    for n, (task, won) in enumerate(tasks):
        one, two = (f"{word} {n} {'so ' * rng.randint(0, 20)}" for word in ("good", "poor"))
        texts.append((task, one, two) if won else (task, two, one))
    texts += rng.sample(texts, REPEATS)
    kinds = [("plain", "odd", "long")[n % 3] for n in range(len(texts))]
    return [Pair(*text, f"p{n}", "new", "old", metadata={"kind": kinds[n]}) for n, text in enumerate(texts)]


def answer_by_word(prompt: Prompt) -> dict[str, float]:
    """The better response, wherever it stands."""
    text = prompt.turns[-1].text
    shown = text[text.rindex("Response A") :]
    a = 0.8 if shown.find("good") < shown.find("poor") else 0.1
    return {"A": a, "B": 0.9 - a, "tie": 0.1}


@pytest.fixture(scope="module")
def db(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("counting") / "evenhand.db"
    with Judge(ScriptedEngine(answer_by_word), "overall", db=path) as judge:
        list(judge.judge(make_pairs()))
    return path


@pytest.fixture(scope="module")
def shards(db: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    pytest.importorskip("pyarrow")
    folder = tmp_path_factory.mktemp("counting-shards") / "shards"
    with Store(db, read_only=True) as store:
        copy_store(store, store.judges()[0], folder)
    return folder


def fields_of(command: str, db: Path, *words: str | Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(evenhand(command, "--db", db, "--json", *words).stdout)
    return found


def test_repeats_are_left_out_of_results_rank_and_gate(db: Path) -> None:
    results, rank = fields_of("results", db), fields_of("rank", db)
    assert (results["pairs"], results["repeats"]) == (SINGLES + MORE, REPEATS)
    assert results["dimensions"]["overall"]["n"] == rank["n"] == SINGLES + MORE
    assert rank["repeats"] == REPEATS
    gate = json.loads(evenhand("gate", "--db", db, "--json", code=3).stdout)
    assert (gate["pairs"], gate["repeats"], gate["counted"]) == (SINGLES + MORE, REPEATS, SINGLES + MORE)
    assert gate["got_worse"] == results["dimensions"]["overall"]["wins_1"]
    for command in ("results", "rank"):
        kept = fields_of(command, db, "--keep-repeats")
        assert kept["repeats"] == 0
        assert (kept["n"] if command == "rank" else kept["pairs"]) == SINGLES + MORE + REPEATS


def test_every_view_says_what_was_left_out_and_what_weighs_the_same(db: Path) -> None:
    for command, code in (("results", 0), ("rank", 0), ("gate", 3)):
        shown = " ".join(evenhand(command, "--db", db, code=code).stdout.split())
        assert f"{REPEATS} exact repeats left out" in shown, command
        assert "each instruction weighs the same" in shown, command
    assert "each pair weighs the same" in evenhand("rank", "--db", db, "--weigh", "pairs").stdout


def test_results_gate_and_rank_weigh_alike(db: Path) -> None:
    results, gate = fields_of("results", db), json.loads(evenhand("gate", "--db", db, "--json", code=3).stdout)
    found = results["dimensions"]["overall"]
    assert results["dimensions"]["overall"]["weighting"] == gate["weighting"] == "instructions"
    assert gate["win_rate_2"] == pytest.approx(1 - found["win_rate_1"])
    rank = fields_of("rank", db)
    [strength] = [model["strength"] for model in rank["models"] if model["model"] == "new"]
    assert rank["weighting"] == "instructions"
    assert 1 / (1 + np.exp(-2 * strength)) == pytest.approx(found["win_rate_1"], abs=1e-6)
    assert results["answer"]["win_rate"] == found["win_rate_1"]


def test_more_pairs_on_one_instruction_do_not_widen_the_interval(db: Path) -> None:
    found = fields_of("results", db)["dimensions"]["overall"]
    assert found["ci"] == pytest.approx([0.38, 0.62], abs=0.02)
    wide = fields_of("results", db, "--weigh", "pairs")["dimensions"]["overall"]
    assert wide["ci"] == found["by_pair"]["ci"] == pytest.approx([0.0, 1.0], abs=0.1)
    assert wide["by_instruction"]["ci"] == found["ci"]


@pytest.mark.parametrize("words", [(), ("--weigh", "pairs"), ("--keep-repeats",), ("--by", "kind")])
@pytest.mark.parametrize("command", ["results", "rank"])
def test_shards_say_the_same(db: Path, shards: Path, command: str, words: tuple[str, ...]) -> None:
    if command == "rank" and "--by" in words:
        return
    here, there = fields_of(command, db, *words), fields_of(command, shards, *words)
    for fields in (here, there):
        for each in (fields, *fields["judges"]):
            each.pop("seconds", None), each.pop("tokens", None)
    assert there == here


def test_a_live_run_says_the_same_as_its_database(tmp_path: Path) -> None:
    db, counter = tmp_path / "live.db", Counter(["overall"])
    with Judge(ScriptedEngine(answer_by_word), "overall", db=db) as judge:
        for judgment in judge.judge(make_pairs()):
            counter.add(judgment)
    live, kept = counter.summary(), fields_of("results", db)
    assert (live.pairs, live.repeats) == (kept["pairs"], kept["repeats"])
    assert live.dimensions["overall"].win_rate_1 == kept["dimensions"]["overall"]["win_rate_1"]


def test_groups_are_corrected_over_all_of_them(db: Path) -> None:
    groups = fields_of("results", db, "--by", "kind")["by"]["groups"]
    p = [group["dimensions"]["overall"]["p"] for group in groups]
    assert [g["dimensions"]["overall"]["p_holm"] for g in groups] == pytest.approx(holm(p).tolist())
    shown = evenhand("results", "--db", db, "--by", "kind").stdout
    assert "3 tests at once: corrected for their number (Holm), none stands out." in " ".join(shown.split())


def test_alpacas_length_control_is_its_formula_on_the_rows_that_count(db: Path) -> None:
    found = fields_of("results", db, "--alpaca-length-control")["alpaca_length_controlled"]["overall"]
    with Store(db, read_only=True) as store:
        once = {judgment.pair.key: judgment for judgment in store.judgments(store.judges()[0])}.values()
    shares = [judgment["overall"].p or {} for judgment in once]
    longer = [len(judgment.pair.output_1) - len(judgment.pair.output_2) for judgment in once]
    naive = alpaca_length_controlled(
        [p["1"] + p["tie"] / 2 for p in shares], longer, [judgment.pair.instruction for judgment in once]
    )
    assert (found["n"], found["method"]) == (SINGLES + MORE, naive.method)
    for name in ("value", "low", "high", "length", "spread"):
        assert found[name] == pytest.approx(getattr(naive, name), rel=1e-9), name


def test_without_overlap_in_length_there_is_a_warning_and_no_number(tmp_path: Path) -> None:
    db = tmp_path / "long.db"
    words = [("good", "poor") if n % 3 else ("poor", "good") for n in range(60)]
    pairs = [Pair(f"Task {n}", f"{one} {'so ' * (50 + n)}", two, f"p{n}") for n, (one, two) in enumerate(words)]
    with Judge(ScriptedEngine(answer_by_word), "overall", db=db) as judge:
        list(judge.judge(pairs))
    found = fields_of("results", db, "--alpaca-length-control")["alpaca_length_controlled"]["overall"]
    assert (found["value"], found["low"]) == (None, None)
    assert "longer in all pairs" in found["reason"]
    shown = " ".join(evenhand("results", "--db", db, "--alpaca-length-control").stdout.split())
    assert "no length-controlled rate, because of this: side 1 is longer in all pairs" in shown


def test_a_weighting_that_there_is_not(db: Path) -> None:
    assert "--weigh words" in evenhand("results", "--db", db, "--weigh", "words", code=2).stderr
    with pytest.raises(InputError, match="--weigh"):
        weighting_from("words")


def test_a_valid_row_goes_before_an_invalid_one_and_then_the_first() -> None:
    rng = np.random.default_rng(0)
    identity, number = rng.integers(0, 20, 200), rng.permutation(200)
    invalid = rng.random(200) < 0.5
    kept = first_of_each(identity, number, invalid)
    for which in np.unique(identity):
        rows = np.flatnonzero(identity == which)
        [row] = rows[kept[rows]]
        assert row == min(rows, key=lambda r: (invalid[r], number[r]))


def test_counting_by_default_is_by_instruction_without_repeats() -> None:
    assert Counting() == Counting("instructions", keep_repeats=False)


def test_a_long_pair_that_is_there_several_times_is_one_long_pair() -> None:
    said: dict[Order, Conversation] = {"forward": Conversation({"overall": Verdict("overall", "A")})}
    texts = ["x" * 50, "x" * 50, "x" * 50, "y", "z", "w"]
    for counting, expected in ((Counting(), (4, 1)), (Counting(keep_repeats=True), (6, 3))):
        counter = Counter(["overall"], counting, measured=20)
        for number, text in enumerate(texts):
            counter.add(Judgment.of(Pair("Hi", text, "other", id=str(number)), said))
        found = counter.summary()
        assert (found.pairs, found.too_long) == expected
