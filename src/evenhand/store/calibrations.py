"""Calibrations, each beside the judge and the dimension that it belongs to."""

from __future__ import annotations

import json
import sqlite3
import time
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from typing import Any


class CalibrationBook:
    """The calibrations of one store: `store.calibrations`; each is kept as plain facts.

    >>> from evenhand.store import Store
    >>> with Store(":memory:") as store:
    ...     store.calibrations.of(1)
    {}
    """

    def __init__(self, db: sqlite3.Connection, writing: Callable[[], AbstractContextManager[None]]) -> None:
        self._db, self._writing = db, writing

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
