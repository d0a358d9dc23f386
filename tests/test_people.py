"""Votes of people: where they stand, how files of them are read, and what they come to."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import pytest

from evenhand import Judge, Pair, ScriptedEngine, Store
from evenhand.core.errors import InputError, PairError
from evenhand.core.pair import Side
from evenhand.core.votes import label_of, majority, own_votes, votes_on
from evenhand.io.pairs import pair_from
from evenhand.results.people import People, import_labels, label_rows, read_votes
from evenhand.store import HumanLabel
from test_cli import evenhand, fields_of

DATA = Path(__file__).resolve().parents[2] / "shared" / "data"
needs_data = pytest.mark.skipif(not DATA.is_dir(), reason="no shared data folder beside the checkout")

TEXTS = {"instruction": "Name a colour.", "output_1": "Red.", "output_2": "Seven."}


def write(file: Path, rows: list[dict[str, Any]]) -> Path:
    if file.suffix == ".jsonl":
        file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    else:
        with file.open("w", newline="") as out:
            table = csv.DictWriter(out, list(rows[0]))
            table.writeheader()
            table.writerows(rows)
    return file


def store_with(db: Path, *pairs: Pair) -> Store:
    """A database in which these pairs have been judged."""
    with Judge(ScriptedEngine(lambda _: "A"), "overall", db=db) as judge:
        list(judge.judge(pairs))
    return Store(db)


# -- a row ------------------------------------------------------------------------------------------------


def test_votes_of_several_people_are_read_off_a_pair() -> None:
    row = {**TEXTS, "human": ["A", "B", "tie", None], "source": "panda", "dims": {"format": {"human": ["B"]}}}
    said = [(vote.dimension, vote.annotator, vote.side) for vote in own_votes(pair_from(row))]
    assert said == [
        ("overall", "panda 1", "1"),
        ("overall", "panda 2", "2"),
        ("overall", "panda 3", "tie"),
        ("overall", "panda 4", None),
        ("format", "panda 1", "2"),
    ]


def test_how_a_pair_was_shown_is_kept() -> None:
    row = {**TEXTS, "human": ["A", "A"], "shown": ["1 shown first", "2 shown first"]}
    assert [vote.order for vote in own_votes(pair_from(row))] == ["forward", "swapped"]


def test_a_label_without_votes_is_the_files_own_voice() -> None:
    row = {**TEXTS, "labels": {"overall": "1", "format": "tie"}, "human": ["B", "B", "A"]}
    said = {(vote.dimension, vote.annotator): vote.side for vote in own_votes(pair_from(row))}
    assert said[("format", "file")] == "tie"
    assert ("overall", "file") not in said, "the label of overall is what its votes come to"


def test_a_dimension_may_have_a_label_and_no_votes() -> None:
    row = {**TEXTS, "dims": {"format": {"label": "A"}, "precision": {"label": None}, "overall": {"ann": "B"}}}
    said = {(vote.dimension, vote.annotator): vote.side for vote in own_votes(pair_from(row))}
    assert said == {("format", "file"): "1", ("overall", "ann"): "2"}


@pytest.mark.parametrize("value", ["yes", 3, [["A"]], {"ann": {"label": "A"}}, ["maybe"], '["A"'])
def test_a_field_that_holds_something_else_is_counted_not_guessed_at(value: Any) -> None:
    pair = pair_from({**TEXTS, "human": value, "label": "A"})
    with pytest.raises(ValueError, match=r"vote|label|Expecting"):
        own_votes(pair)
    with Store(":memory:") as store:
        people = People(store)
        assert people.votes(pair) == {}
        assert people.unreadable == 1


@pytest.mark.parametrize(
    ("row", "expected"),
    [
        ({"id": "p", "annotator": "ann", "label": "A"}, [("overall", "ann", "1")]),
        ({"id": "p", "worker": 7, "dimension": "format", "side": "2"}, [("format", "7", "2")]),
        ({"id": "p", "label": "tie"}, [("overall", "me", "tie")]),
        ({"id": "p", "annotator": "ann", "label": ""}, [("overall", "ann", None)]),
        ({"id": "p", "rater": "ann", "labels": {"format": "B"}}, [("format", "ann", "2")]),
        (
            {"id": "p", "human": '["A", "tie"]'},
            [("overall", "annotator 1", "1"), ("overall", "annotator 2", "tie")],
        ),
        ({"id": "p", "human": {"ann": "A"}}, [("overall", "ann", "1")]),
        ({"id": "p", "human": "", "label": "A"}, [("overall", "me", "1")]),
    ],
)
def test_every_form_of_row_is_read(row: dict[str, Any], expected: list[tuple[str, str, str]]) -> None:
    assert [(v.dimension, v.annotator, v.side) for v in read_votes(row, "me")] == expected


@pytest.mark.parametrize(
    ("row", "fault"),
    [
        ({"annotator": "ann", "label": "A"}, "names no pair"),
        ({"id": "p", "annotator": "ann"}, "no votes in this row"),
        ({"id": "p", "label": "maybe"}, "none of 1, 2, A, B, tie"),
        ({"id": "p", "dims": ["A"]}, "not an object"),
        ({"id": "p", "label": ["A"]}, "of type list"),
        ({"id": "p", "label": "A", "seconds": "soon"}, "could not convert"),
    ],
)
def test_a_row_that_cannot_be_read_says_why(row: dict[str, Any], fault: str) -> None:
    with pytest.raises(ValueError, match=fault):
        read_votes(row)


# -- what votes come to -------------------------------------------------------------------------------------


def test_a_majority_is_more_than_half() -> None:
    assert majority(["1", "1", "2", "tie"]) is None
    assert majority(["1", "1", "2"]) == "1"
    assert majority(["tie", "tie", "2"]) == "tie"


def test_the_combined_dimension_is_held_against_the_overall_label() -> None:
    votes: dict[str, dict[str, Side]] = {"overall": {"ann": "2"}, "format": {"ann": "1"}}
    assert label_of(votes, "combined") == "2"
    assert votes_on(votes, "format") == {"ann": "1"}
    assert label_of(votes, "precision") is None
    votes["combined"] = {"ann": "1"}
    assert label_of(votes, "combined") == "1"


def test_both_places_count_and_the_table_has_the_last_word(db: Path) -> None:
    pair = pair_from({**TEXTS, "human": {"ann": "A", "ben": "A"}})
    with store_with(db, pair) as store:
        store.labels.add(
            [HumanLabel(pair.key, "overall", "ben", "2"), HumanLabel(pair.key, "overall", "cleo", "2")]
        )
        people = People(store)
        assert people.votes(pair) == {"overall": {"ann": "1", "ben": "2", "cleo": "2"}}
        assert people.label(pair, "overall") == "2"


def test_dimensions_can_be_given_the_judges_names() -> None:
    pair = pair_from({**TEXTS, "dims": {"correctness_topical": ["A"]}})
    with Store(":memory:") as store:
        assert People(store, rename={"correctness_topical": "correctness"}).label(pair, "correctness") == "1"


# -- import ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("suffix", [".jsonl", ".csv"])
def test_labels_by_id_find_their_pairs(tmp_path: Path, db: Path, suffix: str) -> None:
    rows = [
        {"id": "one", "annotator": "ann", "dimension": "overall", "label": "A"},
        {"id": "one", "annotator": "ben", "dimension": "format", "label": "tie"},
        {"id": "gone", "annotator": "ann", "dimension": "overall", "label": "B"},
        {"id": "twice", "annotator": "ann", "dimension": "overall", "label": "B"},
    ]
    pair = pair_from({**TEXTS, "id": "one"})
    with store_with(db, pair, Pair("Hi", "x", "y", id="twice"), Pair("Hi", "x", "z", id="twice")) as store:
        done = import_labels(store, write(tmp_path / f"labels{suffix}", rows))
        assert (done.labels, done.unknown_ids, done.ambiguous_ids) == (2, ["gone"], ["twice"])
        assert {(x.annotator, x.dimension): x.side for x in store.labels.of(pair.key)} == {
            ("ann", "overall"): "1",
            ("ben", "format"): "tie",
        }


def test_labels_with_texts_need_no_pair_in_the_store(tmp_path: Path) -> None:
    file = write(tmp_path / "labels.jsonl", [{**TEXTS, "annotator": "ann", "label": "B", "seconds": 2.5}])
    with Store(":memory:") as store:
        assert import_labels(store, file).labels == 1
        [label] = store.labels.of(pair_from(TEXTS).key)
    assert (label.side, label.seconds, label.source) == ("2", 2.5, str(file))


def test_importing_twice_replaces_and_says_so(tmp_path: Path) -> None:
    file = write(tmp_path / "labels.jsonl", [{**TEXTS, "annotator": "ann", "label": "B"}])
    with Store(":memory:") as store:
        assert import_labels(store, file).replaced == 0
        assert import_labels(store, file).replaced == 1
        assert len(list(store.labels.all())) == 1


def test_nothing_is_kept_of_a_file_with_a_fault(tmp_path: Path) -> None:
    file = write(tmp_path / "labels.jsonl", [{**TEXTS, "label": "B"}, {**TEXTS, "label": "perhaps"}])
    with Store(":memory:") as store:
        with pytest.raises(PairError, match=r"labels\.jsonl:2: label 'perhaps'"):
            import_labels(store, file)
        assert not store.labels.any()
        done = import_labels(store, file, skip_bad=True)
        assert (done.labels, len(done.bad)) == (1, 1)


def test_who_has_labelled_is_listed_for_both_places(db: Path) -> None:
    pair = pair_from({**TEXTS, "human": {"ann": "A"}})
    with store_with(db, pair, pair_from({**TEXTS, "id": "odd", "human": 5})) as store:
        store.labels.add([HumanLabel(pair.key, "format", "ben", None)])
        rows, unreadable = label_rows(store)
    assert unreadable == 1
    assert [(r.annotator, r.dimension, r.where, r.wins_1, r.passed) for r in rows] == [
        ("ann", "overall", "pairs", 1, 0),
        ("ben", "format", "labels", 0, 1),
    ]


# -- the command line -------------------------------------------------------------------------------------------


def test_the_command_imports_lists_and_names_what_it_cannot_place(tmp_path: Path, db: Path) -> None:
    store_with(db, pair_from({**TEXTS, "id": "one"})).close()
    hostile = "\x1b[31m[bold]ann"
    rows = [
        {"id": "one", "annotator": hostile, "dimension": "style", "label": "A"},
        {"id": "[red]gone", "annotator": "ann", "dimension": "", "label": "B"},
    ]
    file = write(tmp_path / "labels.csv", rows)
    done = evenhand("labels", "import", file, "--db", db, "--rename", "style=format", code=3)
    assert "1 label of 1 pair by 1 person on format" in done.stdout
    assert "[red]gone" in done.stdout
    listed = evenhand("labels", "--db", db).stdout
    assert "␛[31m[bold]ann" in listed
    [entry] = fields_of(evenhand("labels", "--db", db, "--json"))["labels"]
    assert entry == {
        "annotator": hostile,
        "dimension": "format",
        "where": "labels",
        "wins_1": 1,
        "wins_2": 0,
        "ties": 0,
        "passed": 0,
        "role": "annotator",
    }


def test_the_command_refuses_what_it_cannot_use(tmp_path: Path, db: Path) -> None:
    assert "no database" in evenhand("labels", "--db", db, code=2).stderr
    assert "no file" in evenhand("labels", "import", tmp_path / "none.jsonl", "--db", db, code=2).stderr
    file = write(tmp_path / "labels.jsonl", [{**TEXTS, "label": "B"}])
    assert "THEIRS=OURS" in evenhand("labels", "import", file, "--db", db, "--rename", "x", code=2).stderr
    assert not db.exists()
    Store(db).close()
    assert "no labels of people" in evenhand("labels", "--db", db).stdout


# -- the data at hand -------------------------------------------------------------------------------------------


@pytest.mark.shared
@needs_data
@pytest.mark.parametrize(
    ("name", "labels", "people"), [("pandalm", 2997, 3), ("llmbar", 419, 1), ("crowdrag25-dev", 11_130, 10)]
)
def test_the_published_files_are_read(name: str, labels: int, people: int) -> None:
    with Store(":memory:") as store:
        done = import_labels(store, DATA / f"{name}.jsonl")
    assert (done.labels, len(done.annotators), done.unknown) == (labels, people, 0)


@pytest.mark.shared
@needs_data
def test_the_majority_is_the_label_that_the_files_give() -> None:
    with Store(":memory:") as store:
        people = People(store)
        for name in ("pandalm", "llmbar", "crowdrag25-dev"):
            for line in (DATA / f"{name}.jsonl").read_text("utf-8").splitlines():
                pair = pair_from(json.loads(line))
                assert people.label(pair, "overall") == pair.labels.get("overall"), pair.id


def test_rename_wants_two_names(tmp_path: Path) -> None:
    from evenhand.views.cli.options import renames_from

    with pytest.raises(InputError):
        renames_from(["=x"])
