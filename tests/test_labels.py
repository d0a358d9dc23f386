"""What people said: kept in their own names, by the texts of the pair."""

from __future__ import annotations

from pathlib import Path

from evenhand.store import HumanLabel, Store


def test_a_label_outlives_the_process_and_keeps_all_that_was_said(tmp_path: Path) -> None:
    said = HumanLabel("key", "format", "ann", "tie", "swapped", "both fine", 3.5, "page", 100.0)
    with Store(tmp_path / "a.db") as store:
        store.labels.add([said])
    with Store(tmp_path / "a.db") as store:
        assert list(store.labels.all()) == [said] == store.labels.of("key")


def test_a_later_word_replaces_the_earlier_of_the_same_person_only() -> None:
    with Store(":memory:") as store:
        store.labels.add([HumanLabel("key", "overall", name, "1") for name in ("ann", "ben")])
        store.labels.add([HumanLabel("key", "overall", "ann", None)])
        assert {label.annotator: label.side for label in store.labels.all()} == {"ann": None, "ben": "1"}


def test_labels_are_found_by_dimension_and_person_and_taken_back() -> None:
    with Store(":memory:") as store:
        store.labels.add(
            [HumanLabel("k", name, who, "2") for name in ("format", "overall") for who in ("ann", "ben")]
        )
        assert [label.annotator for label in store.labels.all(dimension="format")] == ["ann", "ben"]
        assert [label.dimension for label in store.labels.all(annotator="ben")] == ["format", "overall"]
        assert store.labels.remove("k", "ann", "format") == 1
        assert store.labels.remove("k", "ben") == 2
        assert store.labels.annotators() == {"ann": 1}
