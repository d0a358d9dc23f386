"""What the parts of a database share: one connection, one way to write, and queries that fail in a sentence."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any, NamedTuple

from evenhand.store.outcomes import OutcomeTable
from evenhand.store.schema import clearly

Writing = Callable[[], AbstractContextManager[None]]


class SharedTables(NamedTuple):
    """A connection, what opens a transaction on it, the name of its file, and the outcomes in it."""

    db: sqlite3.Connection
    writing: Writing
    path: str
    outcomes: OutcomeTable


class Queries:
    """Queries on a connection; what is wrong with its file is said clearly."""

    path: str
    _db: sqlite3.Connection

    def _rows(self, query: str, *values: Any) -> list[Any]:
        """All rows that a query finds."""
        with clearly(self.path):
            return self._db.execute(query, values).fetchall()

    def _row(self, query: str, *values: Any) -> Any:
        """The first row that a query finds; None where there is none."""
        with clearly(self.path):
            return self._db.execute(query, values).fetchone()


class Book(Queries):
    """A part of a store, with tables of its own."""

    def __init__(self, shared: SharedTables) -> None:
        self._db, self._writing, self.path, self._outcomes = shared
