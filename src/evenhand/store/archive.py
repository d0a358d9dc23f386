"""What a report asks of the database: how verdicts came about, and single pairs by their names."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from evenhand.store.schema import clearly


@dataclass(frozen=True, slots=True)
class RunGroup:
    """All runs of one judge with the same settings; times are seconds since 1970, in universal time."""

    settings: Mapping[str, Any]
    runs: int
    started: float  # the first of them
    ended: float | None  # the last of them; None where none has come to its end
    asked: int
    computed: int
    reused: int
    generated: int


class Archive:
    """The report's view of one store: `store.archive`.

    >>> from evenhand.store import Store
    >>> with Store(":memory:") as store:
    ...     store.archive.runs(1), store.archive.pairs_heard([1]), store.archive.number("x", "key")
    ([], 0, None)
    """

    def __init__(self, db: sqlite3.Connection, path: str) -> None:
        self._db, self._path = db, path

    def runs(self, judge: int) -> list[RunGroup]:
        """The runs of a judge, those with the same settings together, the earliest first."""
        with clearly(self._path):
            rows = self._db.execute(
                "SELECT settings, count(*), min(started), max(ended), coalesce(sum(asked), 0),"
                " coalesce(sum(computed), 0), coalesce(sum(reused), 0), coalesce(sum(generated), 0) FROM runs"
                " WHERE judge = ? GROUP BY settings ORDER BY min(started), settings",
                (judge,),
            ).fetchall()
        return [RunGroup(json.loads(settings), *rest) for settings, *rest in rows]

    def pairs_heard(self, judges: Sequence[int]) -> int:
        """How many pairs at least one of these judges has heard."""
        marks = ", ".join("?" * len(judges))
        with clearly(self._path):
            (count,) = self._db.execute(
                "SELECT count(*) FROM pairs p WHERE EXISTS (SELECT 1 FROM docket d WHERE d.pair = p.id"
                f" AND d.judge IN ({marks}))",
                tuple(judges),
            ).fetchone()
        return int(count)

    def number(self, name: str, key: str) -> int | None:
        """The number of the pair with this id and these texts."""
        row = self._db.execute("SELECT id FROM pairs WHERE name = ? AND key = ?", (name, key)).fetchone()
        return None if row is None else int(row[0])
