"""What people said of the pairs, in the same words as the judge: 1, 2 or tie, by dimension and annotator."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, fields, replace
from operator import attrgetter
from typing import cast

from evenhand.core.pair import Pair, Side
from evenhand.core.protocol import Order
from evenhand.core.votes import Design, Drawn, Role
from evenhand.store.attacked import ATTACKED
from evenhand.store.book import Book
from evenhand.store.rows import PAIR_COLUMNS, stored_pair
from evenhand.store.schema import clearly


@dataclass(frozen=True, slots=True)
class HumanLabel:
    """One person's verdict on one dimension of one pair; a side of None is a pair that was passed over."""

    pair: str  # Pair.key, so that a label belongs to the texts, whatever file they came in
    dimension: str
    annotator: str
    side: Side | None
    order: Order | None = None  # how the pair was shown, where that is known
    note: str = ""
    seconds: float | None = None  # that the person took
    source: str = ""  # the file it was imported from, or the page
    created: float = 0.0
    design: Design = "unknown"  # how the pair came to be labelled
    probability: float | None = None  # with which it was drawn, where that is known
    among: int | None = None  # the number of the newest pair that could have been drawn
    role: Role = "annotator"  # an adjudicator's word is the label of the pair, and no vote

    @property
    def drawn(self) -> Drawn:
        """How the pair came to be labelled; ValueError where the chance can be none."""
        if self.probability is not None and not 0 < self.probability <= 1:
            raise ValueError(f"no pair is drawn with probability {self.probability}")
        return Drawn(self.design, self.probability, self.among)


_FIELDS = tuple(field.name for field in fields(HumanLabel))
_COLUMNS = ", ".join(f'"{name}"' for name in _FIELDS)
_values = attrgetter(*_FIELDS)


@dataclass(frozen=True, slots=True)
class LabelRow:
    """How often one person said what on one dimension, and where that stands."""

    annotator: str
    dimension: str
    where: str  # "pairs", or "labels" for the table of imported and collected ones
    wins_1: int
    wins_2: int
    ties: int
    passed: int
    role: Role = "annotator"


class LabelBook(Book):
    """The labels of one store: `store.labels`.

    >>> from evenhand.store import Store
    >>> with Store(":memory:") as store:
    ...     store.labels.add([HumanLabel("key", "overall", "ann", "1"), HumanLabel("key", "overall", "ann", "2")])
    ...     [label.side for label in store.labels.all()]
    2
    ['2']
    """

    def add(self, labels: Iterable[HumanLabel]) -> int:
        """Keep labels, durable when this returns; a person's later word replaces the earlier."""
        rows = [_values(label if label.created else replace(label, created=time.time())) for label in labels]
        with self._writing():
            marks = ", ".join("?" * len(_FIELDS))
            self._db.executemany(f"INSERT OR REPLACE INTO labels ({_COLUMNS}) VALUES ({marks})", rows)
            self._outcomes.relabel(row[0] for row in rows)
        return len(rows)

    def remove(self, pair: str, annotator: str, dimension: str | None = None) -> int:
        """Forget what a person said of a pair, on one dimension or on all; how many labels that were."""
        with self._writing():
            gone = self._db.execute(
                "DELETE FROM labels WHERE pair = ? AND annotator = ? AND (? IS NULL OR dimension = ?)",
                (pair, annotator, dimension, dimension),
            )
            self._outcomes.relabel([pair])
        return gone.rowcount

    def all(self, *, dimension: str | None = None, annotator: str | None = None) -> Iterator[HumanLabel]:
        """Every label, by pair, dimension and annotator; or only those of one dimension or one person."""
        with clearly(self.path):
            rows = self._db.execute(
                f"SELECT {_COLUMNS} FROM labels"
                " WHERE (? IS NULL OR dimension = ?) AND (? IS NULL OR annotator = ?)",
                (dimension, dimension, annotator, annotator),
            )
            for pair, name, who, side, order, *rest in rows:
                yield HumanLabel(pair, name, who, cast("Side | None", side), cast("Order | None", order), *rest)

    def of(self, pair: str) -> list[HumanLabel]:
        """What everybody said of one pair."""
        rows = self._db.execute(f"SELECT {_COLUMNS} FROM labels WHERE pair = ?", (pair,))
        return [HumanLabel(*row) for row in rows]

    def suggest(self, pairs: Iterable[tuple[str, Drawn]], dimension: str) -> None:
        """Remember how pairs were chosen that are now given to people, for the labels that will come of them.

        What was drawn at random once stays so. Labels on a pair that was suggested before and is drawn now count as
        drawn: chance has taken it all the same.
        """
        rows = [(key, dimension, x.design, x.probability, x.among, time.time()) for key, x in pairs]
        drawn = [(x[2], x[3], x[4], x[0], dimension) for x in rows if x[2] == "random"]
        with self._writing():
            self._db.executemany(
                "INSERT INTO suggestions VALUES (?, ?, ?, ?, ?, ?) ON CONFLICT (pair, dimension) DO UPDATE SET"
                " design = excluded.design, probability = excluded.probability, among = excluded.among"
                " WHERE design <> 'random'",
                rows,
            )
            self._db.executemany(
                "UPDATE labels SET design = ?, probability = ?, among = ? WHERE pair = ? AND dimension = ?"
                " AND design = 'suggested'",
                drawn,
            )

    def suggested(self, pair: str, dimension: str) -> Drawn | None:
        """How a pair was chosen that was given to people to label; None where nobody has suggested it."""
        row = self._db.execute(
            "SELECT design, probability, among FROM suggestions WHERE pair = ? AND dimension = ?", (pair, dimension)
        ).fetchone()
        return None if row is None else Drawn(*row)

    def any(self) -> bool:
        """Whether there is a label at all."""
        return self._db.execute("SELECT 1 FROM labels LIMIT 1").fetchone() is not None

    def counts(self) -> list[LabelRow]:
        """How many labels each person gave on each dimension."""
        rows = self._rows(
            "SELECT annotator, dimension, 'labels', sum(side IS '1'), sum(side IS '2'), sum(side IS 'tie'),"
            " sum(side IS NULL), role FROM labels GROUP BY annotator, dimension, role"
            " ORDER BY annotator, dimension, role"
        )
        return [LabelRow(*row) for row in rows]

    def has_pair(self, key: str) -> bool:
        """Whether the database holds a pair of these texts, each on this side."""
        return self._db.execute("SELECT 1 FROM pairs WHERE key = ? LIMIT 1", (key,)).fetchone() is not None

    def keys_named(self, name: str) -> list[str]:
        """The keys of the pairs with this id; several, where files used it for different texts."""
        rows = self._db.execute("SELECT DISTINCT key FROM pairs WHERE name = ? ORDER BY key", (name,))
        return [key for (key,) in rows]

    def pairs(self) -> Iterator[Pair]:
        """Every pair of the database, judged or not; their files may carry votes. Attacked pairs are left out."""
        query = f"SELECT {PAIR_COLUMNS} FROM pairs WHERE id NOT IN ({ATTACKED}) ORDER BY id"
        with clearly(self.path):
            yield from map(stored_pair, self._db.execute(query))

    def annotators(self) -> dict[str, int]:
        """Who has labelled, and how many pairs."""
        return dict(
            self._db.execute("SELECT annotator, count(DISTINCT pair) FROM labels GROUP BY annotator ORDER BY 1")
        )
