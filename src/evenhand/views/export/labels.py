"""What people said, as a table that `evenhand labels import` reads back."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from datetime import UTC, datetime

from evenhand.core.pair import Pair
from evenhand.core.votes import own_votes
from evenhand.io.files import Row
from evenhand.store import HumanLabel, Store

LABELS = {
    "key": "text",
    "id": "text",
    "dimension": "text",
    "annotator": "text",
    "label": "text",
    "label_role": "text",
    "order": "text",
    "note": "text",
    "seconds": "number",
    "source": "text",
    "created": "text",
    "label_design": "text",
    "label_probability": "number",
}
_IN_THE_PAIRS = "pairs"  # the source of a vote that stands in the pairs' own file


def exported_labels(store: Store) -> Iterator[Row]:
    """Every label of a database, one row each, with the texts that it speaks of.

    First what was collected or imported, then the votes in the pairs' own files that nothing has replaced. A label
    on texts that the database does not have is there, too, with its key alone.

    >>> from evenhand.store import Store
    >>> with Store(":memory:") as store:
    ...     _ = store.add_pairs([Pair("Hi", "x", "y", id="p1", labels={"overall": "1"})])
    ...     [(row["id"], row["annotator"], row["label"]) for row in exported_labels(store)]
    [('p1', 'file', '1')]
    """
    there: set[tuple[str, str, str]] = set()
    pair: Pair | None = None
    for label in store.labels.all():
        if pair is None or pair.key != label.pair:
            pair = _pair_of(store, label.pair)
        there.add((label.pair, label.dimension, label.annotator))
        yield _row(label, pair)
    for pair in store.labels.pairs():
        with suppress(ValueError):  # a field of votes that holds something else
            for vote in own_votes(pair):
                if (pair.key, vote.dimension, vote.annotator) not in there:
                    there.add((pair.key, vote.dimension, vote.annotator))
                    said = (pair.key, vote.dimension, vote.annotator, vote.side, vote.order)
                    yield _row(HumanLabel(*said, source=_IN_THE_PAIRS, design="imported"), pair)


def _pair_of(store: Store, key: str) -> Pair | None:
    number = store.pages.number(key)
    return None if number is None else store.pages.pair(number)


def _row(label: HumanLabel, pair: Pair | None) -> Row:
    when = datetime.fromtimestamp(label.created, UTC).isoformat(timespec="seconds") if label.created else None
    return {
        "key": label.pair,
        "id": pair.id if pair else None,
        "dimension": label.dimension,
        "annotator": label.annotator,
        "label": label.side,
        "label_role": label.role,
        "order": label.order,
        "note": label.note,
        "seconds": label.seconds,
        "source": label.source,
        "created": when,
        "label_design": label.design,
        "label_probability": label.probability,
        "instruction": pair.instruction if pair else None,
        "output_1": pair.output_1 if pair else None,
        "output_2": pair.output_2 if pair else None,
    }
