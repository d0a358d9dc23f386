"""Where people differ a third person decides: that is the label of the pair, and never a vote."""

from __future__ import annotations

import csv
import json
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest

from command import evenhand
from evenhand.core.errors import InputError
from evenhand.core.pair import Pair, Side
from evenhand.core.stats.agreement import MISSING
from evenhand.results.disagreement import disagreements
from evenhand.results.evidence import gather, people_with_each_other
from evenhand.results.human import human_rate
from evenhand.results.people import People
from evenhand.store import HumanLabel, Store
from evenhand.store.opening import APPLICATION_ID
from evenhand.store.schema import MIGRATIONS
from web_server import fill

ANN: tuple[Side, ...] = ("1", "1", "2", "tie", "1", "2", "1", "2", "1", "1", "2", "1")
BEN: tuple[Side, ...] = ("1", "2", "2", "1", "1", "2", "2", "2", "1", "1", "2", "1")
SPLIT = [number for number, (a, b) in enumerate(zip(ANN, BEN, strict=True)) if a != b]
PAIRS = [Pair(f"Task {n}", f"one {n}", f"two {n}", id=f"p{n}") for n in range(len(ANN))]


@pytest.fixture
def store(db: Path) -> Iterator[Store]:
    """Twelve judged pairs, labelled by two people who differ on three."""
    fill(db, PAIRS)
    with Store(db) as store:
        store.labels.add(
            HumanLabel(pair.key, "overall", who, side, design="random")
            for who, said in (("ann", ANN), ("ben", BEN))
            for pair, side in zip(PAIRS, said, strict=True)
        )
        yield store


def decide(store: Store, name: str = "cleo", letters: str = "AAA") -> list[str]:
    """Let an adjudicator decide what is open; the keys of the pairs, as they came."""
    if store.annotation.annotator(name) is None:
        store.annotation.invite(name, dimensions=(), seed=3, role="adjudicator")
    open_now = disagreements(store).open
    store.annotation.assign_disagreements(name, [(one.pair, one.dimensions) for one in open_now])
    keys = []
    for letter in letters:
        task = store.annotation.next(name)
        assert task is not None
        store.annotation.save(name, task.place, "overall", letter)  # type: ignore[arg-type]
        keys.append(task.pair)
    return keys


def final_of(store: Store, pair: Pair) -> Side | None:
    return People(store).label(pair, "overall")


# -- the queue ----------------------------------------------------------------------------------------------------


def test_the_queue_is_what_people_differ_on(store: Store) -> None:
    found = disagreements(store)
    assert {one.pair for one in found.open} == {PAIRS[number].key for number in SPLIT}
    assert (found.contested, found.decided) == (len(SPLIT), 0)


def test_pairs_without_a_majority_come_first(store: Store) -> None:
    store.labels.add([HumanLabel(PAIRS[SPLIT[0]].key, "overall", "dan", "1")])
    found = disagreements(store)
    assert [one.contested for one in found.open] == [True, True, False]
    assert found.open[-1].pair == PAIRS[SPLIT[0]].key


def test_what_is_decided_leaves_the_queue_and_new_ones_come_in(store: Store) -> None:
    assert set(decide(store)) == {PAIRS[number].key for number in SPLIT}
    assert (disagreements(store).open, disagreements(store).decided) == ((), 3)
    store.labels.add([HumanLabel(PAIRS[0].key, "overall", "dan", "2")])
    assert decide(store, letters="B") == [PAIRS[0].key]


def test_two_adjudicators_share_the_work(store: Store) -> None:
    decide(store, "cleo", "A")
    store.annotation.invite("dora", dimensions=(), seed=1, role="adjudicator")
    found = [(one.pair, one.dimensions) for one in disagreements(store).open]
    assert store.annotation.assign_disagreements("dora", found) == 0, "cleo has them on her list"
    store.annotation.remove("cleo")
    assert store.annotation.assign_disagreements("dora", found) == 2


def test_only_the_dimensions_that_differ_are_asked(store: Store) -> None:
    key, said = PAIRS[SPLIT[0]].key, HumanLabel
    store.labels.add([said(key, "format", "ann", "1"), said(key, "format", "ben", "2")])
    store.labels.add([said(key, "precision", "ann", "1"), said(key, "precision", "ben", "1")])
    decide(store, letters="")
    asked = {task.pair: task.asked for place in (1, 2, 3) if (task := store.annotation.task("cleo", place))}
    assert asked == {
        PAIRS[number].key: ("format", "overall") if number == SPLIT[0] else ("overall",) for number in SPLIT
    }


def test_a_later_difference_on_a_decided_pair_is_asked_by_itself(store: Store) -> None:
    decide(store)
    key = PAIRS[SPLIT[0]].key
    store.labels.add([HumanLabel(key, "format", "ann", "1"), HumanLabel(key, "format", "ben", "2")])
    decide(store, letters="")
    task = store.annotation.next("cleo")
    assert task is not None
    assert (task.pair, task.asked, set(task.said)) == (key, ("overall", "format"), {"overall"})
    store.annotation.save("cleo", task.place, "format", "tie")
    assert store.annotation.next("cleo") is None


def test_a_pair_that_was_passed_over_is_not_put_again(store: Store) -> None:
    decide(store, letters="AA")
    task = store.annotation.next("cleo")
    assert task is not None
    store.annotation.skip("cleo", task.place, "cannot tell")
    decide(store, letters="")
    assert store.annotation.next("cleo") is None
    assert [one.pair for one in disagreements(store).open] == [task.pair], "nobody has decided it"


# -- what a decision is, and what it is not ------------------------------------------------------------------------


def test_a_decision_is_the_label_wherever_one_is_asked_for(store: Store) -> None:
    before = {pair.id: final_of(store, pair) for pair in PAIRS}
    assert [before[f"p{number}"] for number in SPLIT] == [None, None, None]
    keys = decide(store, letters="ABA")
    orders = {label.pair: label for label in store.labels.all(annotator="cleo")}
    for pair in PAIRS:
        expected = orders[pair.key].side if pair.key in keys else before[pair.id]
        assert final_of(store, pair) == expected
        known = [side for (side,) in store._db.execute(
            "SELECT side FROM known k JOIN pairs p ON p.id = k.pair WHERE p.key = ? AND dimension = 'overall'",
            (pair.key,),
        )]  # fmt: skip
        assert known == [expected], "the lists of the page have the same"
    assert {label.role for label in orders.values()} == {"adjudicator"}


def test_a_decision_is_in_no_figure_of_agreement_between_people(store: Store) -> None:
    among = people_with_each_other(store.labels.pairs(), People(store))["overall"]
    [judge] = store.judges()
    evidence = gather(store, judge, People(store))["overall"]
    decide(store)
    after = gather(store, judge, People(store))["overall"]
    assert people_with_each_other(store.labels.pairs(), People(store))["overall"] == among
    assert after.names == evidence.names == ["ann", "ben"]
    np.testing.assert_array_equal(after.counts, evidence.counts)
    np.testing.assert_array_equal(after.votes, evidence.votes)
    assert (evidence.contested, after.contested) == (3, 0)
    assert (evidence.truth == MISSING).sum() == 3
    assert not (after.truth == MISSING).any()


def test_the_human_rate_takes_the_decision_for_the_label(store: Store) -> None:
    [judge] = store.judges()
    decide(store)
    score = {"1": 1.0, "2": 0.0, "tie": 0.5}
    naive = [score[final_of(store, pair) or "tie"] for pair in PAIRS]
    found = human_rate(gather(store, judge, People(store))["overall"])
    assert found.labels_alone.win_rate_1 == pytest.approx(sum(naive) / len(naive))


def test_a_decision_without_votes_does_not_speak_for_other_pairs(db: Path, store: Store) -> None:
    """A pair that was chosen because people differed is no random draw, whatever became of their votes."""
    decide(store)
    for who in ("ann", "ben"):
        for pair in PAIRS:
            store.labels.remove(pair.key, who)
    [judge] = store.judges()
    found = gather(store, judge, People(store))["overall"]
    assert (found.use.labelled, found.use.used) == (3, 0)


def test_undo_takes_a_decision_back(store: Store) -> None:
    keys = decide(store)
    store.annotation.undo("cleo")
    [left] = disagreements(store).open
    assert left.pair == keys[-1]
    assert final_of(store, next(pair for pair in PAIRS if pair.key == left.pair)) is None


def test_somebody_who_has_labelled_cannot_be_the_adjudicator_under_that_name(store: Store) -> None:
    with pytest.raises(InputError, match="there are labels of ann already"):
        store.annotation.invite("ann", dimensions=(), role="adjudicator")


# -- names ---------------------------------------------------------------------------------------------------------


def test_a_new_name_is_the_name_of_everything_said(store: Store) -> None:
    secret = store.annotation.invite("eva", dimensions=["overall"], seed=1)
    store.annotation.assign("eva", count=3, shared=0)
    task = store.annotation.next("eva")
    assert task is not None
    store.annotation.save("eva", task.place, "overall", "A")
    store.annotation.rename("eva", "fay")
    who = store.annotation.who(secret)
    assert who is not None
    assert (who.name, who.tasks, who.done) == ("fay", 3, 1)
    assert [label.pair for label in store.labels.all(annotator="fay")] == [task.pair]
    assert not list(store.labels.all(annotator="eva"))
    for taken in ("fay", "ann"):
        with pytest.raises(InputError, match="already"):
            store.annotation.rename("fay", taken)
    with pytest.raises(InputError, match="no annotator is called nobody"):
        store.annotation.rename("nobody", "gus")


@pytest.mark.parametrize("labels", [True, False])
def test_whoever_is_removed_has_no_link_and_keeps_their_labels_unless_told(store: Store, labels: bool) -> None:
    secret = store.annotation.invite("eva", dimensions=["overall"], seed=1)
    store.annotation.assign("eva", count=3, shared=0)
    task = store.annotation.next("eva")
    assert task is not None
    store.annotation.save("eva", task.place, "overall", "tie")
    assert store.annotation.remove("eva", labels=labels) == (1 if labels else 0)
    assert store.annotation.who(secret) is None
    assert store.annotation.next("eva") is None
    assert len(list(store.labels.all(annotator="eva"))) == (0 if labels else 1)


# -- files ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["labels.jsonl", "labels.csv"])
@pytest.mark.parametrize("texts", [True, False])
def test_labels_come_back_from_a_file_as_they_were(
    store: Store, db: Path, tmp_path: Path, name: str, texts: bool
) -> None:
    decide(store)
    store.labels.add([HumanLabel(PAIRS[0].key, "overall", "gil", None, note="=SUM(1)", seconds=2.5)])
    file, other = tmp_path / name, tmp_path / "other.db"
    done = evenhand("labels", "export", file, "--db", db, *(["--texts"] if texts else []))
    assert "28 labels" in done.stdout
    evenhand("labels", "import", file, "--db", other)
    kept = [
        {(x.pair, x.dimension, x.annotator, x.side, x.role, x.order, x.note, x.seconds, x.design) for x in some}
        for some in (Store(path).labels.all() for path in (db, other))
    ]
    assert len(kept[0]) == 28
    assert kept[0] == kept[1]


def test_votes_of_the_pairs_own_file_are_exported_once(db: Path, tmp_path: Path) -> None:
    pair = Pair("Hi", "x", "y", id="p1", metadata={"human": {"ann": "A", "ben": "B"}})
    with Store(db) as store:
        store.add_pairs([pair])
        store.labels.add([HumanLabel(pair.key, "overall", "ann", "2")])
    file = tmp_path / "labels.jsonl"
    evenhand("labels", "export", file, "--db", db)
    rows = [json.loads(line) for line in file.read_text().splitlines()]
    assert [(row["id"], row["annotator"], row["label"]) for row in rows] == [("p1", "ann", "2"), ("p1", "ben", "2")]


def test_a_file_for_a_spreadsheet_runs_no_formula(store: Store, db: Path, tmp_path: Path) -> None:
    store.labels.add([HumanLabel(PAIRS[0].key, "overall", "=cmd()", "1", note="@evil")])
    file = tmp_path / "labels.csv"
    evenhand("labels", "export", file, "--db", db)
    with file.open(newline="") as lines:
        [row] = [row for row in csv.DictReader(lines) if "cmd" in row["annotator"]]
    assert (row["annotator"], row["note"]) == ("'=cmd()", "'@evil")


def test_a_role_that_nobody_has_is_refused(tmp_path: Path, db: Path) -> None:
    file = tmp_path / "labels.jsonl"
    row = {"instruction": "x", "output_1": "a", "output_2": "b", "label": "A", "label_role": "king"}
    file.write_text(json.dumps(row) + "\n")
    said = evenhand("labels", "import", file, "--db", db, code=2).stderr
    assert "label_role" in said
    assert "adjudicator" in said


def test_the_card_and_the_list_of_labels_name_the_adjudicator(store: Store, db: Path) -> None:
    decide(store)
    assert "labels, adjudicator" in evenhand("labels", "--db", db).stdout
    said = evenhand("card", "--db", db).stdout
    assert "decided by an adjudicator: 3 pairs; not counted as a vote." in " ".join(said.split())


# -- older files ---------------------------------------------------------------------------------------------------


def test_labels_of_an_older_file_are_votes(db: Path) -> None:
    """A file from before there were adjudicators: everybody in it labels, and is asked for all their dimensions."""
    pair = PAIRS[0]
    before = next(number for number, steps in enumerate(MIGRATIONS) if any("ADD COLUMN asked" in x for x in steps))
    with closing(sqlite3.connect(db)) as base:
        for step in (step for steps in MIGRATIONS[:before] for step in steps):
            base.execute(step)
        base.execute(f"PRAGMA user_version = {before}")
        base.execute(f"PRAGMA application_id = {APPLICATION_ID}")
        base.execute(
            "INSERT INTO pairs (name, key, instruction, output_1, output_2, model_1, model_2, labels, metadata)"
            " VALUES (?, ?, ?, ?, ?, '', '', '{}', '{}')",
            (pair.id, pair.key, *pair.texts),
        )
        base.execute("""INSERT INTO annotators VALUES ('ann', 'x', 1, '["format", "overall"]', '', '{}', 0)""")
        base.execute(
            "INSERT INTO tasks (annotator, place, pair, 'order', shared) VALUES ('ann', 1, ?, 'forward', 0)",
            (pair.key,),
        )
        base.execute(
            "INSERT INTO labels (pair, dimension, annotator, side, note, source, created)"
            " VALUES (?, 'overall', 'ben', '2', '', '', 0)",
            (pair.key,),
        )
        base.commit()
    with Store(db) as store:
        assert [label.role for label in store.labels.all()] == ["annotator"]
        assert [who.decides for who in store.annotation.annotators()] == [False]
        task = store.annotation.next("ann")
        assert task is not None
        assert task.asked == ("format", "overall")
        assert final_of(store, pair) == "2"
