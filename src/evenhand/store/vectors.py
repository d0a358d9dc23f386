"""Vectors of responses in SQLite, beside the verdicts or in a file of their own.

`evenhand.engines.heads.vectors` says what they are. A vector is found by its content, so that a response is read
once, whatever pairs, runs and judges it stands in. All of them can be dropped: they are only there to save time.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from evenhand.core.errors import StoreError
from evenhand.store.book import Book, Writing

if TYPE_CHECKING:  # with numpy, which takes a third of a second
    from evenhand.engines.heads.vectors import Vector

SCHEMA = """
CREATE TABLE IF NOT EXISTS vectors (
  reader TEXT NOT NULL, key TEXT NOT NULL, vector BLOB NOT NULL, tokens INTEGER NOT NULL DEFAULT 0,
  PRIMARY KEY (reader, key)
) WITHOUT ROWID"""
_MANY = 500  # keys in one query: SQLite takes 999 at least


@dataclass(frozen=True, slots=True)
class VectorCount:
    """What is kept of one reader: a model, a place in it, and the words around the response."""

    reader: str
    vectors: int
    tokens: int  # that it took to compute them
    bytes: int


class ReaderVectors:
    """The vectors of one reader."""

    def __init__(self, db: sqlite3.Connection, writing: Writing, reader: str) -> None:
        self._db, self._writing, self.reader = db, writing, reader

    def get(self, keys: Sequence[str]) -> dict[str, Vector]:
        """Those of the keys that are there."""
        found: dict[str, Vector] = {}
        for begin in range(0, len(keys), _MANY):
            some = keys[begin : begin + _MANY]
            marks = ",".join("?" * len(some))
            rows = self._db.execute(
                f"SELECT key, vector FROM vectors WHERE reader = ? AND key IN ({marks})", (self.reader, *some)
            )
            found |= {key: _vector(blob) for key, blob in rows}
        return found

    def put(self, vectors: Mapping[str, Vector], *, tokens: Mapping[str, int] | None = None) -> None:
        """Keep vectors in one transaction; one that is there already stays."""
        taken = tokens or {}
        rows = [(self.reader, key, v.astype("<f2").tobytes(), taken.get(key, 0)) for key, v in vectors.items()]
        with self._writing():
            self._db.executemany("INSERT OR IGNORE INTO vectors VALUES (?, ?, ?, ?)", rows)

    @property
    def tokens(self) -> int:
        """How many tokens the vectors of this reader took in all."""
        query = "SELECT coalesce(sum(tokens), 0) FROM vectors WHERE reader = ?"
        return int(self._db.execute(query, (self.reader,)).fetchone()[0])

    def __len__(self) -> int:
        query = "SELECT count(*) FROM vectors WHERE reader = ?"
        return int(self._db.execute(query, (self.reader,)).fetchone()[0])


class VectorBook(Book):
    """All vectors of one store: `store.vectors`.

    >>> from evenhand.engines.heads.vectors import to_vector
    >>> from evenhand.store import Store
    >>> with Store(":memory:") as store:
    ...     store.vectors.of("reader 1").put({"k": to_vector([1, 2])}, tokens={"k": 7})
    ...     store.vectors.counts(), store.vectors.drop()
    ([VectorCount(reader='reader 1', vectors=1, tokens=7, bytes=4)], 1)
    """

    def of(self, reader: str) -> ReaderVectors:
        """Those of one reader."""
        return ReaderVectors(self._db, self._writing, reader)

    def counts(self) -> list[VectorCount]:
        """What there is, by reader."""
        rows = self._db.execute(
            "SELECT reader, count(*), sum(tokens), sum(length(vector)) FROM vectors GROUP BY reader ORDER BY reader"
        )
        return [VectorCount(*row) for row in rows]

    def all(self, reader: str) -> Iterator[tuple[str, Vector]]:
        """Every vector of a reader with the hash of its content."""
        rows = self._db.execute("SELECT key, vector FROM vectors WHERE reader = ? ORDER BY key", (reader,))
        return ((key, _vector(blob)) for key, blob in rows)

    def drop(self) -> int:
        """Forget all of them, and say how many there were."""
        with self._writing():
            return self._db.execute("DELETE FROM vectors").rowcount


class FileVectors(ReaderVectors):
    """Vectors in a SQLite file of their own, which may hold those of several readers; processes may share it.

    >>> from evenhand.engines.heads.vectors import to_vector
    >>> book = FileVectors(":memory:", "reader 1")
    >>> book.put({"k": to_vector([1, 2])}, tokens={"k": 7})
    >>> book.get(["k"])["k"].tolist(), book.tokens
    ([1.0, 2.0], 7)
    """

    def __init__(self, path: Path | str, reader: str) -> None:
        try:
            db = sqlite3.connect(path, timeout=60.0, isolation_level=None)
            db.execute("PRAGMA journal_mode=WAL")
            db.execute(SCHEMA)
        except sqlite3.Error as fault:
            hint = "name another file with --vectors"
            raise StoreError(f"{path} cannot hold states: {fault}", hint=hint) from None
        super().__init__(db, self._transaction, reader)

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        self._db.execute("BEGIN IMMEDIATE")
        try:
            yield
        except BaseException:
            self._db.execute("ROLLBACK")
            raise
        self._db.execute("COMMIT")

    def close(self) -> None:
        """Close the file."""
        self._db.close()


def _vector(blob: bytes) -> Vector:
    import numpy as np

    return np.frombuffer(blob, dtype="<f2").astype(np.float16)
