"""Gates that were gone through, for the next one to be compared with."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from dataclasses import dataclass

from evenhand.store.book import Book


@dataclass(frozen=True, slots=True)
class GateRecord:
    """What the candidate scored on each instruction, by the instruction's number; when, and whether it passed."""

    scores: Mapping[int, float]
    candidate: str
    passed: bool
    created: float = 0.0


class GateBook(Book):
    """The gates of one store: `store.gates`.

    >>> from evenhand.store import Store
    >>> with Store(":memory:") as store:
    ...     store.gates.last(1, "overall") is None
    True
    """

    def keep(self, judge: int, dimension: str, record: GateRecord) -> None:
        """Keep a gate beside the judge that it went by."""
        scores = json.dumps({str(number): score for number, score in record.scores.items()})
        with self._writing():
            self._db.execute(
                "INSERT INTO gates (judge, dimension, candidate, passed, scores, created)"
                " VALUES (?, ?, ?, ?, ?, ?)",
                (judge, dimension, record.candidate, record.passed, scores, record.created or time.time()),
            )

    def last(self, judge: int, dimension: str, *, passed: bool = False) -> GateRecord | None:
        """The last gate by this judge on this dimension, or the last of those that passed."""
        row = self._db.execute(
            "SELECT scores, candidate, passed, created FROM gates WHERE judge = ? AND dimension = ?"
            " AND passed >= ? ORDER BY id DESC LIMIT 1",
            (judge, dimension, passed),
        ).fetchone()
        if row is None:
            return None
        scores = {int(number): float(score) for number, score in json.loads(row[0]).items()}
        return GateRecord(scores, row[1], bool(row[2]), row[3])
