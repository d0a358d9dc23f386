"""Which pairs to label next: the score, the choice beside a naive one, and the command with its files."""

from __future__ import annotations

import csv
import json
from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from evenhand import Judge, Pair, ScriptedEngine, Store
from evenhand.core.judge import Judgment
from evenhand.core.pair import Side
from evenhand.core.verdict import Label, Verdict, pool
from evenhand.results.suggestions import Suggestion, WorthParts, _ChosenPairs, short_name, suggest, weigh
from evenhand.store import HumanLabel
from test_cli import evenhand, fields_of


def verdict(label: Label, p: Mapping[Label, float] | None = None) -> Verdict:
    return Verdict("overall", label, p, invalid=None)


# -- the score ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("forward", "swapped", "others", "expected"),
    [
        ("A", "B", [], WorthParts(0.0, 0.0, None)),  # 1 both times
        ("A", "A", [], WorthParts(1.0, 1.0, None)),  # the first place both times
        ("A", "tie", [], WorthParts(1.0, 0.5, None)),
        ("tie", "tie", ["tie", "tie"], WorthParts(0.0, 0.0, 0.0)),
        ("A", "B", ["2", "tie", "1", "1"], WorthParts(0.0, 0.0, 0.5)),
    ],
)
def test_hard_verdicts_are_weighed(
    forward: Label, swapped: Label, others: list[Side], expected: WorthParts
) -> None:
    outcome = pool("overall", {"forward": verdict(forward), "swapped": verdict(swapped)})
    assert weigh(outcome, others) == expected


def test_doubt_is_the_distance_between_the_two_likeliest() -> None:
    sure = weigh(pool("overall", {"forward": verdict("tie", {"A": 0.01, "B": 0.01, "tie": 0.98})}))
    torn = weigh(pool("overall", {"forward": verdict("A", {"A": 0.45, "B": 0.1, "tie": 0.45})}))
    assert sure.uncertainty == pytest.approx(0.03)
    assert torn.uncertainty == pytest.approx(1.0)
    assert (sure.flip, sure.dispute) == (None, None)  # one order can flip nothing


def test_the_score_is_the_mean_of_what_is_known() -> None:
    assert WorthParts(0.2, 1.0, 0.6).score == pytest.approx(0.6)
    assert WorthParts(None, None, None).score == 0.0


# -- the choice --------------------------------------------------------------------------------------------


def naive(offers: list[tuple[Pair, WorthParts]], number: int) -> list[Suggestion]:
    """All at once: places by instruction, then the most worth first."""
    groups: dict[str, list[tuple[Pair, WorthParts]]] = defaultdict(list)
    for pair, parts in offers:
        groups[pair.instruction].append((pair, parts))
    found = []
    for group in groups.values():
        ordered = sorted(group, key=lambda item: (-item[1].score, short_name(item[0])))
        found += [Suggestion(pair, parts, place) for place, (pair, parts) in enumerate(ordered, 1)]
    return sorted(found, key=lambda s: (-s.worth, s.place, short_name(s.pair)))[:number]


@settings(deadline=None, max_examples=200)
@given(
    st.lists(st.tuples(st.integers(0, 5), st.sampled_from([0.0, 0.25, 0.5, 0.6, 1.0])), max_size=40),
    st.integers(1, 12),
    st.randoms(),
)
def test_the_choice_is_the_naive_one_in_any_order(drawn: list[tuple[int, float]], number: int, dice: Any) -> None:
    offers = [
        (Pair(f"Question {group}", f"{i}", "y"), WorthParts(score, None, None))
        for i, (group, score) in enumerate(drawn)
    ]
    expected = naive(offers, number)
    dice.shuffle(offers)
    chosen = _ChosenPairs(number)
    for pair, parts in offers:
        chosen.offer(pair, parts)
        assert sum(map(len, chosen._by_instruction.values())) <= number
    assert list(chosen.best()) == expected


def test_many_instructions_come_before_many_pairs_of_one() -> None:
    chosen = _ChosenPairs(3)
    for i in range(10):
        chosen.offer(Pair("The same", f"{i}", "y"), WorthParts(1.0, None, None))
    for i in range(2):
        chosen.offer(Pair(f"Another {i}", "x", "y"), WorthParts(0.7, None, None))
    assert [s.pair.instruction for s in chosen.best()][1:] != ["The same", "The same"]
    assert {s.pair.instruction for s in chosen.best()} == {"The same", "Another 0", "Another 1"}


# -- a database --------------------------------------------------------------------------------------------


def wavering(prompt: Any) -> dict[str, float] | str:
    """Sure of some, torn on others, leaning on the rest."""
    text = prompt.turns[-1].text
    if "silent" in text:
        return "Hm."
    if "torn" in text:
        return {"A": 0.34, "B": 0.33, "tie": 0.33}
    return {"A": 0.02, "B": 0.03, "tie": 0.95}


PAIRS = [
    *(Pair(f"sure {i}", "=cmd()", "y", id=f"sure{i}") for i in range(6)),
    *(Pair(f"torn {i}", "=cmd()", "-y", id=f"torn{i}") for i in range(4)),
    Pair("silent", "x", "y", id="silent"),
    Pair("torn but known", "x", "y", id="known", labels={"overall": "1"}),
]


@pytest.fixture
def judged(db: Path) -> Path:
    with Judge(ScriptedEngine(wavering), "overall", db=db) as judge:
        list(judge.judge(PAIRS))
    return db


def test_what_wavers_comes_first_and_what_is_known_is_left_out(judged: Path) -> None:
    fields = fields_of(evenhand("suggest", "--db", judged, "--number", "4", "--json"))
    assert {pair["id"] for pair in fields["pairs"]} == {"torn0", "torn1", "torn2", "torn3"}
    assert (fields["considered"], fields["labelled"], fields["invalid"]) == (10, 1, 1)
    assert fields["pairs"][0]["dispute"] is None
    with Store(judged) as store:
        store.labels.add([HumanLabel(PAIRS[6].key, "overall", "ann", "1")])
    fields = fields_of(evenhand("suggest", "--db", judged, "--number", "4", "--json"))
    assert "torn0" not in {pair["id"] for pair in fields["pairs"]}
    assert fields["labelled"] == 2


def test_other_judges_are_asked_for_their_view(judged: Path) -> None:
    def script(prompt: Any) -> str:
        text = prompt.turns[-1].text
        if "sure 3" not in text:
            return "tie"
        return "A" if text.rindex("=cmd()") < text.rindex("Response B") else "B"

    with Judge(ScriptedEngine(script, name="other"), "holistic", db=judged) as judge:
        list(judge.judge(PAIRS[:6]))
    fields = fields_of(evenhand("suggest", "--db", judged, "--judge", "script", "--json"))
    disputes = {pair["id"]: pair["dispute"] for pair in fields["pairs"]}
    assert fields["other_judges"] == 1
    assert disputes["sure3"] == 1.0
    assert disputes["sure2"] == 0.0
    assert disputes["torn1"] is None  # the other has not judged it


def test_the_table_shows_the_parts_and_steers_no_terminal(db: Path) -> None:
    with Judge(ScriptedEngine(wavering), "overall", db=db) as judge:
        list(judge.judge([Pair("torn \x1b[31m[red]", "x", "y", id="[bold]")]))
    said = evenhand("suggest", "--db", db).stdout
    assert "\x1b[31m" not in said
    assert "[bold]" in said
    assert "[red]" in said
    assert all(name in said for name in ("worth", "uncertainty", "flip", "dispute"))


def test_the_jsonl_file_comes_back_with_labels(judged: Path, tmp_path: Path) -> None:
    out = tmp_path / "todo.jsonl"
    said = evenhand("suggest", "--db", judged, "--number", "2", "--out", out).stdout
    assert f"evenhand labels import {out} --db {judged}" in " ".join(said.split())
    rows = [json.loads(line) for line in out.read_text().splitlines()]
    assert {*rows[0]} == {"id", "instruction", "output_1", "output_2", "dimension", "label"}
    assert len(rows) == 2
    out.write_text("".join(json.dumps({**row, "label": "2"}) + "\n" for row in rows))
    evenhand("labels", "import", out, "--db", judged, "--annotator", "ann")
    fields = fields_of(evenhand("suggest", "--db", judged, "--json"))
    assert fields["labelled"] == 3
    assert not {row["id"] for row in rows} & {pair["id"] for pair in fields["pairs"]}


def test_the_csv_file_holds_no_formula_and_comes_back_by_its_ids(judged: Path, tmp_path: Path) -> None:
    out = tmp_path / "todo.csv"
    evenhand("suggest", "--db", judged, "--number", "4", "--out", out)
    with out.open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert {row["text_1"] for row in rows} == {"'=cmd()"}
    assert {row["text_2"] for row in rows} == {"'-y"}
    with out.open("w", newline="") as file:
        table = csv.DictWriter(file, list(rows[0]))
        table.writeheader()
        table.writerows({**row, "label": "tie"} for row in rows)
    evenhand("labels", "import", out, "--db", judged)
    fields = fields_of(evenhand("suggest", "--db", judged, "--json"))
    assert (fields["labelled"], fields["considered"]) == (5, 6)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--db", "none.db"], "no database"),
        (["--on", "charm"], "--on charm"),
        (["--judge", "nobody"], "no verdicts of that kind"),
        (["--out", "a.txt"], ".jsonl or .csv"),
        (["--number", "0"], "--number"),
    ],
)
def test_wrong_use(judged: Path, words: list[str], said: str) -> None:
    assert said in evenhand("suggest", "--db", judged, *words, code=2).stderr


def test_nothing_left_to_label(db: Path) -> None:
    with Judge(ScriptedEngine(wavering), "overall", db=db) as judge:
        list(judge.judge(PAIRS[-2:]))
    assert "no pair is left to label" in evenhand("suggest", "--db", db, "--random", "0").stdout


@pytest.mark.parametrize(("number", "by_chance"), [(2, 0), (3, 1), (4, 1), (5, 1), (7, 1), (8, 2)])
def test_one_in_five_is_drawn_by_chance_to_the_nearest(number: int, by_chance: int) -> None:
    with Judge(ScriptedEngine(wavering), "overall") as judge:
        judged = list(judge.judge(PAIRS))
    found = suggest(judged, lambda pair: False, number=number, random_share=0.2)
    assert len(found.pairs) == number
    assert sum(one.drawn.design == "random" for one in found.pairs) == by_chance


def test_a_page_may_ask_for_all_pairs_in_their_order() -> None:
    """The function alone, as a view uses it: judgments in, suggestions out."""
    with Judge(ScriptedEngine(wavering), "overall") as judge:
        judged: list[Judgment] = list(judge.judge(PAIRS))
    found = suggest(judged, lambda pair: bool(pair.labels), number=100)
    assert len(found.pairs) == 10
    assert [s.pair.id[:4] for s in found.pairs] == ["torn"] * 4 + ["sure"] * 6
    assert suggest(judged[::-1], lambda pair: bool(pair.labels), number=100) == found
