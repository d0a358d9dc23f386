"""Calibrations, each stored with its judge and dimension."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from typing import Any

from evenhand.store.book import Book


class CalibrationBook(Book):
    """The calibrations of one store: `store.calibrations`; each is kept as plain facts.

    >>> from evenhand.store import Store
    >>> with Store(":memory:") as store:
    ...     store.calibrations.of(1)
    {}
    """

    def keep(self, judge: int, dimension: str, fields: Mapping[str, Any]) -> None:
        """Keep a calibration in the place of an earlier one."""
        with self._writing():
            self._db.execute(
                "INSERT OR REPLACE INTO calibrations VALUES (?, ?, ?, ?)",
                (judge, dimension, json.dumps(dict(fields)), time.time()),
            )

    def of(self, judge: int) -> dict[str, dict[str, Any]]:
        """The calibrations of a judge, by dimension."""
        rows = self._db.execute(
            "SELECT dimension, model FROM calibrations WHERE judge = ? ORDER BY dimension", (judge,)
        )
        return {dimension: json.loads(model) for dimension, model in rows}

    def forget(self, judge: int, dimension: str | None = None) -> int:
        """Forget a judge's calibrations, on one dimension or on all; how many that were."""
        with self._writing():
            gone = self._db.execute(
                "DELETE FROM calibrations WHERE judge = ? AND (? IS NULL OR dimension = ?)",
                (judge, dimension, dimension),
            )
        return gone.rowcount
