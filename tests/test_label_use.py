"""How pairs came to be labelled: kept with each label at every door, and used by every estimate."""

from __future__ import annotations

import io
import json
import sqlite3
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from command import evenhand
from evenhand import Judge, Pair, ScriptedEngine, Store
from evenhand.core.errors import StoreError
from evenhand.core.pair import Side
from evenhand.core.stats import agreement, calibration
from evenhand.core.stats.clustered import Estimate
from evenhand.core.votes import Design, Drawn
from evenhand.results.card import card_of
from evenhand.results.evidence import Evidence, gather
from evenhand.results.human import human_rate
from evenhand.results.label_use import label_use
from evenhand.results.people import People, import_labels
from evenhand.results.plain import plain
from evenhand.store import HumanLabel
from evenhand.store.schema import MIGRATIONS
from evenhand.views.report.contents import compile_report
from evenhand.views.report.page import write_page
from evenhand.views.web.agreeing import judge_cards

OURS = Drawn("random", 0.1, among=1000)
CHOSEN = Drawn("suggested")


# -- the one function --------------------------------------------------------------------------------------


def test_what_was_chosen_because_it_is_informative_is_left_out_and_said() -> None:
    drawn = {row: [OURS] if row < 42 else [CHOSEN] for row in range(80)}
    weights, use = label_use(np.arange(1000), drawn)
    assert weights.tolist() == [1.0] * 42 + [0.0] * 958
    assert (use.labelled, use.used, use.left_out, use.weighted, use.assumed) == (80, 42, 38, False, False)
    assert use.designs == {"random": 42, "suggested": 38, "imported": 0, "unknown": 0}
    assert use.notes == (
        "38 of 80 labelled pairs were chosen because they were informative;"
        " the estimates use the 42 drawn at random.",
    )


@pytest.mark.parametrize("design", ["imported", "unknown"])
def test_labels_of_unknown_origin_are_taken_for_a_random_sample_and_that_is_said(design: Any) -> None:
    weights, use = label_use(np.arange(10), {0: [Drawn(design)], 3: [Drawn(design)], 5: [CHOSEN]})
    assert np.flatnonzero(weights).tolist() == [0, 3]
    assert use.assumed
    assert use.notes[0].endswith("the estimates use the 2 others.")
    assert use.notes[1] == "How 2 labelled pairs were chosen is not known; they are taken for a random sample."


def test_a_pair_that_chance_took_counts_however_else_it_was_chosen() -> None:
    weights, use = label_use(np.arange(5), {2: [CHOSEN, OURS]})
    assert weights.tolist() == [0, 0, 1, 0, 0]
    assert use.designs["random"] == 1


def test_where_every_pair_has_a_label_there_is_nothing_to_choose() -> None:
    weights, use = label_use(np.arange(3), {0: [CHOSEN], 1: [OURS], 2: [Drawn("imported")]})
    assert weights.tolist() == [1, 1, 1]
    assert (use.used, use.notes) == (3, ())


def test_nothing_but_suggested_pairs_leaves_no_estimate() -> None:
    weights, use = label_use(np.arange(9), {0: [CHOSEN], 1: [CHOSEN]})
    assert not weights.any()
    assert "none was drawn at random" in use.notes[0]
    assert label_use(np.arange(0), {})[1].labelled == 0


def test_known_chances_are_weighted_by_one_over_them() -> None:
    drawn = {0: [Drawn("suggested", 0.5)], 1: [Drawn("suggested", 0.1)], 2: [CHOSEN]}
    weights, use = label_use(np.arange(9), drawn)
    assert weights[1] / weights[0] == pytest.approx(5)
    assert (use.weighted, use.left_out) == (True, 1)
    # Beside a random sample they weigh as much together as so many labels of equal weight.
    both, _ = label_use(np.arange(9), {**drawn, 3: [OURS]})
    assert both[3] == pytest.approx(1.0)
    assert both[0] + both[1] == pytest.approx((2 + 10) ** 2 / (2**2 + 10**2))


def test_pairs_that_came_later_weigh_what_they_are() -> None:
    """100 pairs, half of them drawn; then 900 more, and a draw of 45 from what is left."""
    first, later = Drawn("random", 0.5, among=100), Drawn("random", 0.047, among=1000)
    numbers = np.arange(1, 1001)
    drawn = {row: [first] for row in range(50)} | {row: [later] for row in (50, 51, *range(200, 243))}
    weights, use = label_use(numbers, drawn)
    assert use.weighted
    assert weights[:100].sum() / weights.sum() == pytest.approx(0.1)
    assert weights[0] == pytest.approx(weights[50])
    none, alone = label_use(numbers, {row: [first] for row in range(50)})
    assert none[100:].sum() == 0
    assert alone.after_draw == 900
    assert alone.notes == ("900 pairs came after the last draw; the labels do not speak for them.",)


# -- weights in the statistics -----------------------------------------------------------------------------


def test_a_weight_of_two_is_a_row_twice() -> None:
    rng = np.random.default_rng(1)
    weights = rng.integers(1, 4, 60)
    said, true, counts = rng.integers(0, 3, 60), rng.integers(0, 3, 60), rng.integers(0, 3, (60, 3))
    p, odds = rng.dirichlet([1, 1, 1], 60), rng.normal(size=60)
    twice, groups = np.repeat(np.arange(60), weights), np.arange(60)
    scores = agreement.score_sides(said, true)
    for weighted, repeated in (
        (
            agreement.decided(scores, true, groups, weights=weights),
            agreement.decided(scores[twice], true[twice], twice),
        ),
        (
            agreement.cohen_kappa(said, true, groups, weights=weights),
            agreement.cohen_kappa(said[twice], true[twice], twice),
        ),
        (
            agreement.against_others(counts, said, groups, weights=weights).gap,
            agreement.against_others(counts[twice], said[twice], twice).gap,
        ),
        (calibration.brier(p, true, groups, weights=weights), calibration.brier(p[twice], true[twice], twice)),
    ):
        assert weighted.value == pytest.approx(repeated.value)
        assert weighted.n < repeated.n
    length = np.zeros(60)
    one = calibration.fit(p, 3 * odds, length, np.where(odds > 0, 0, 1), groups, weights=weights)
    other = calibration.fit_davidson(3 * odds[twice][:, None], np.where(odds[twice] > 0, 0, 1))
    assert one.n == 60
    assert one.slope > 0
    assert other[0] > 0


def test_the_weighted_fit_is_that_of_repeated_rows() -> None:
    rng = np.random.default_rng(2)
    weights = rng.integers(1, 4, 80).astype(float)
    x = rng.normal(size=(80, 1))
    true = (rng.random(80) > 1 / (1 + np.exp(-x[:, 0]))).astype(np.int64)
    twice = np.repeat(np.arange(80), weights.astype(int))
    one, other = calibration.fit_davidson(x, true, weights), calibration.fit_davidson(x[twice], true[twice])
    assert one == pytest.approx(other, abs=0.02)  # the prior on the slope is in units of the feature's spread
    assert one != pytest.approx(calibration.fit_davidson(x, true), abs=0.02)


# -- a database --------------------------------------------------------------------------------------------


def hesitant(prompt: Any) -> dict[str, float]:
    """Torn on each fifth pair, where it is wrong; sure and right on the others."""
    text = prompt.turns[-1].text
    good_first = text.rindex("good") < text.rindex("bad")
    p = 0.9 if "easy" in text else 0.48
    p = p if good_first else 1 - p
    return {"A": p * 0.98, "B": (1 - p) * 0.98, "tie": 0.02}


def pairs(count: int = 100, start: int = 0) -> list[Pair]:
    kinds = ["hard" if i % 5 == 0 else "easy" for i in range(start, start + count)]
    texts = [("good", "bad") if i % 2 else ("bad", "good") for i in range(start, start + count)]
    return [
        Pair(f"{kind} {i}", *outputs, f"p{i}")
        for i, kind, outputs in zip(range(start, start + count), kinds, texts, strict=True)
    ]


PAIRS = pairs()
TRUTH: dict[str, Side] = {pair.key: "1" if pair.output_1 == "good" else "2" for pair in PAIRS}


@pytest.fixture
def judged(db: Path) -> Path:
    with Judge(ScriptedEngine(hesitant), "overall", db=db) as judge:
        list(judge.judge(PAIRS))
    return db


def evidence(store: Store) -> Evidence:
    [row] = store.judges()
    return gather(store, row, People(store))["overall"]


def label_all(store: Store, name: str) -> None:
    while (task := store.annotation.next(name)) is not None:
        first = "1" if task.order == "forward" else "2"
        store.annotation.save(name, task.place, "overall", "A" if TRUTH[task.pair] == first else "B")


def informative(store: Store, count: int) -> list[str]:
    return [pair.key for pair in PAIRS if pair.instruction.startswith("hard")][:count]


def test_the_page_draws_by_chance_and_says_with_what_probability(judged: Path) -> None:
    with Store(judged) as store:
        store.annotation.invite("ann", dimensions=["overall"], seed=3)
        store.annotation.assign("ann", count=25, shared=5)
        label_all(store, "ann")
        kept = list(store.labels.all())
        assert {label.design for label in kept} == {"random"}
        assert {round(label.probability or 0, 3) for label in kept} == {0.05, round(20 / 95, 3)}
        assert {label.among for label in kept} == {100}
        use = evidence(store).use
    assert (use.used, use.weighted, use.notes) == (25, False, ())


def test_the_most_informative_first_still_leaves_one_in_five_to_chance(judged: Path) -> None:
    with Store(judged) as store:
        store.annotation.invite("ann", dimensions=["overall"], seed=3)
        store.annotation.assign("ann", count=20, shared=0, first=informative(store, 20))
        designs = store._db.execute("SELECT design FROM tasks ORDER BY place").fetchall()
        assert [place for place, (design,) in enumerate(designs, 1) if design == "random"] == [5, 10, 15, 20]
        label_all(store, "ann")
        found = evidence(store)
    assert (found.use.designs["random"], found.use.designs["suggested"]) == (4, 16)
    assert len(found.labelled) == 4


def test_what_is_drawn_later_may_hit_a_suggested_pair_which_then_counts_as_drawn(judged: Path) -> None:
    """Chance draws from all pairs, not only from those that were left: else they would be too easy."""
    with Store(judged) as store:
        store.annotation.invite("ann", dimensions=["overall"], seed=3)
        store.annotation.assign("ann", count=20, shared=0, first=informative(store, 20))
        label_all(store, "ann")
        before = {x.pair for x in store.labels.all() if x.design == "random"}
        assert store.annotation.assign("ann", count=60, shared=0) == 60
        label_all(store, "ann")
        drawn = {x.pair for x in store.labels.all() if x.design == "random"}
        assert before < drawn
        hard = [key for key in drawn if key in informative(store, 20)]
    assert len(drawn) > 64, "pairs of the list that was there are taken by chance too"
    assert 0.1 < len(hard) / len(drawn) < 0.3


def test_what_others_share_came_about_as_theirs_did(judged: Path) -> None:
    with Store(judged) as store:
        for seed, name in enumerate(("ann", "ben")):
            store.annotation.invite(name, dimensions=["overall"], seed=seed)
            first = informative(store, 10) if name == "ann" else ()
            store.annotation.assign(name, count=10, shared=10, first=first)
        rows = store._db.execute("SELECT annotator, pair, design FROM tasks").fetchall()
    ann, ben = ({pair: design for who, pair, design in rows if who == name} for name in ("ann", "ben"))
    assert ann == ben
    assert sorted(ann.values()) == ["random"] * 2 + ["suggested"] * 8


def test_what_suggest_has_written_is_known_when_it_comes_back(judged: Path, tmp_path: Path) -> None:
    out = tmp_path / "label.jsonl"
    fields = json.loads(evenhand("suggest", "--db", judged, "-n", "30", "--out", out, "--json").stdout)
    assert [pair["design"] for pair in fields["pairs"]].count("random") == 6
    assert fields["pairs"][-1]["probability"] == pytest.approx(0.06)
    rows = [json.loads(line) for line in out.read_text().splitlines()]
    assert "suggested" not in out.read_text(), "whoever labels is not told"
    out.write_text("".join(json.dumps({**row, "label": "1"}) + "\n" for row in rows))
    said = json.loads(evenhand("labels", "import", out, "--db", judged, "--json").stdout)["files"][0]
    assert said["designs"] == {"random": 6, "suggested": 24, "imported": 0, "unknown": 0}
    card = evenhand("card", "--db", judged).stdout
    assert "24 of 30 labelled pairs were chosen because they were informative" in " ".join(card.split())
    human = json.loads(evenhand("results", "--db", judged, "--human", "--json").stdout)["human"]["overall"]
    assert (human["labelled"], human["label_use"]["left_out"]) == (6, 24)
    # Suggesting again draws from all pairs once more: what it hits among the suggested counts as drawn now.
    again = json.loads(evenhand("suggest", "--db", judged, "-n", "40", "--random", "1", "--json").stdout)
    assert {pair["design"] for pair in again["pairs"]} == {"random"}
    evenhand("suggest", "--db", judged, "-n", "40", "--random", "1", "--out", out)
    with Store(judged) as store:
        drawn = sum(label.design == "random" for label in store.labels.all())
    assert drawn > 6


def test_an_import_may_say_how_pairs_were_chosen(judged: Path, tmp_path: Path) -> None:
    file = tmp_path / "labels.jsonl"
    file.write_text("".join(json.dumps({"id": f"p{i}", "label": "1"}) + "\n" for i in range(12)))
    evenhand("labels", "import", file, "--db", judged)
    assert "How 12 labelled pairs were chosen is not known" in " ".join(
        evenhand("card", "--db", judged).stdout.split()
    )
    evenhand("labels", "import", file, "--db", judged, "--design", "random")
    with Store(judged) as store:
        assert evidence(store).use.notes == ()
    evenhand("labels", "import", file, "--db", judged)
    with Store(judged) as store:
        assert {label.design for label in store.labels.all()} == {"random"}, "what is known is not forgotten"
    assert "one of random" in evenhand("labels", "import", file, "--db", judged, "--design", "luck", code=2).stderr


def test_a_file_may_give_the_chances_itself(judged: Path, tmp_path: Path) -> None:
    file = tmp_path / "labels.csv"
    rows = [f"p{i},{TRUTH[PAIRS[i].key]},suggested,{0.5 if i % 5 == 0 else 0.1}" for i in range(60)]
    file.write_text("\n".join(["id,label,label_design,label_probability", *rows]))
    with Store(judged) as store:
        import_labels(store, file)
        found = evidence(store)
        right = card_of(found).readings["pooled"].decided
        assert found.use.weighted
        rate = human_rate(found)
        assert rate.label_use.used == 60
        low, high = rate.ci or (0.0, 0.0)
        needed = [human_rate(found, width=(high - low) * share).wanted for share in (1.001, 0.999)]
        assert [each.more != 0 for each in needed if each] == [False, True], "it has about that width now"
    hard, easy = 12 * 2, 48 * 10
    assert right.value == pytest.approx(easy / (hard + easy))
    for bad in ("0", "1.5", "often"):
        file.write_text(f"id,label,label_probability\np1,1,{bad}")
        assert "label_probability" in evenhand("labels", "import", file, "--db", judged, code=2).stderr
    file.write_text("id,label,label_design\np1,1,luck")
    assert "label_design" in evenhand("labels", "import", file, "--db", judged, code=2).stderr


def test_calibrate_uses_the_same_labels(judged: Path) -> None:
    with Store(judged) as store:
        labels = [
            HumanLabel(pair.key, "overall", "ann", TRUTH[pair.key], design="suggested" if i < 30 else "imported")
            for i, pair in enumerate(PAIRS[:95])
        ]
        store.labels.add(labels)
    [fitted] = json.loads(evenhand("calibrate", "--db", judged, "--json").stdout)["calibrations"]
    assert fitted["n"] == 65
    assert fitted["label_use"]["designs"] == {"random": 0, "suggested": 30, "imported": 65, "unknown": 0}
    assert "30 of 95 labelled pairs" in " ".join(evenhand("calibrate", "--db", judged).stdout.split())
    with Store(judged) as store:
        store.labels.add(HumanLabel(x.pair, x.dimension, x.annotator, x.side, design="suggested") for x in labels)
    refused = " ".join(evenhand("calibrate", "--db", judged, code=2).stderr.split())
    assert "0 labelled pairs" in refused
    assert "95 of 95 labelled pairs were chosen because they were informative" in refused


def test_old_labels_are_of_unknown_design(tmp_path: Path) -> None:
    path = tmp_path / "old.db"
    path.write_bytes((Path(__file__).parent / "fixtures" / "version_7.db").read_bytes())
    with Store(path) as store:
        kept = list(store.labels.all())
    assert kept
    assert {(label.design, label.probability, label.among) for label in kept} == {("unknown", None, None)}
    with closing(sqlite3.connect(path)) as base:
        assert base.execute("PRAGMA user_version").fetchone() == (len(MIGRATIONS),)
        assert base.execute("SELECT count(*) FROM suggestions").fetchone() == (0,)


def test_labels_in_the_pairs_file_are_imported(db: Path) -> None:
    given = [Pair(p.instruction, p.output_1, p.output_2, p.id, labels={"overall": "1"}) for p in PAIRS[:10]]
    with Judge(ScriptedEngine(hesitant), "overall", db=db) as judge:
        list(judge.judge([*given, *PAIRS[10:]]))
        assert evidence(judge.store).use.designs["imported"] == 10


def test_every_view_rests_on_the_same_labels(judged: Path) -> None:
    with Store(judged) as store:
        counts: dict[Design, int] = {"random": 12, "suggested": 9, "unknown": 3}
        designs = [design for design, count in counts.items() for _ in range(count)]
        store.labels.add(
            HumanLabel(pair.key, "overall", "ann", TRUTH[pair.key], design=design)
            for pair, design in zip(PAIRS, designs, strict=False)
        )
        [row] = store.judges()
        [web] = judge_cards(store, row, People(store)).cards
        report = compile_report(store, [row])
        page = io.StringIO()
        write_page(report, store, page)
    use = report.judges[0].people["overall"].label_use
    assert (web.label_use, use.used, use.left_out) == (use, 15, 9)
    card = json.loads(evenhand("card", "--db", judged, "--json").stdout)["judges"][0]["dimensions"]["overall"]
    human = json.loads(evenhand("results", "--db", judged, "--human", "--json").stdout)["human"]["overall"]
    assert card["label_use"] == human["label_use"] == plain(use)
    given = [evenhand("card", "--db", judged).stdout, evenhand("results", "--db", judged, "--human").stdout]
    for text in (*given, page.getvalue()):
        for note in use.notes:
            assert note in " ".join(text.split())


def test_a_database_that_cannot_be_written_to_is_read(judged: Path, tmp_path: Path, monkeypatch: Any) -> None:
    def refuse(*_: object) -> None:
        raise StoreError("the file cannot be written to")

    monkeypatch.setattr("evenhand.store.labels.LabelBook.suggest", refuse)
    done = evenhand("suggest", "--db", judged, "--out", tmp_path / "todo.csv")
    assert "--design suggested" in " ".join(done.stderr.split())
    assert (tmp_path / "todo.csv").read_text().startswith("id,")


# -- whether it holds --------------------------------------------------------------------------------------


def right_of(store: Store, labels: list[HumanLabel]) -> Estimate:
    """The judge's accuracy by some labels, which are forgotten again."""
    store.labels.add(labels)
    found = card_of(evidence(store)).readings["pooled"].decided
    for label in labels:
        store.labels.remove(label.pair, label.annotator)
    return found


def test_the_interval_holds_where_the_informative_come_first(judged: Path) -> None:
    """A small part of benchmarks/coverage_labels.py; the judge is right on 80% of all pairs."""
    found: dict[str, list[Estimate]] = {"as drawn": [], "plain": []}
    with Store(judged) as store:
        for seed in range(40):
            store.annotation.invite(f"{seed}", dimensions=["overall"], seed=seed)
            store.annotation.assign(f"{seed}", count=30, shared=0, first=informative(store, 20))
            done = store._db.execute("SELECT pair, design, among FROM tasks").fetchall()
            labels = [
                HumanLabel(key, "overall", "ann", TRUTH[key], design=how, among=last) for key, how, last in done
            ]
            found["as drawn"].append(right_of(store, labels))
            found["plain"].append(right_of(store, [replace(label, design="unknown") for label in labels]))
            store._db.execute("DELETE FROM tasks")
    held = {name: sum((x.low or 0) <= 0.8 <= (x.high or 0) for x in every) for name, every in found.items()}
    shown = {name: np.mean([x.value or 0 for x in every]) for name, every in found.items()}
    assert held["as drawn"] >= 36
    assert shown["as drawn"] == pytest.approx(0.8, abs=0.06)
    assert held["plain"] == 0
    assert shown["plain"] < 0.4
