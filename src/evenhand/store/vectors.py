"""Vectors of responses in a small SQLite file of their own: `evenhand.engines.heads.vectors` says what they are."""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from evenhand.engines.heads.vectors import Vector

_SCHEMA = """
CREATE TABLE IF NOT EXISTS vectors (
  reader TEXT NOT NULL, key TEXT NOT NULL, vector BLOB NOT NULL, tokens INTEGER NOT NULL DEFAULT 0,
  PRIMARY KEY (reader, key)
) WITHOUT ROWID"""
_MANY = 500  # keys in one query: SQLite takes 999 at least


class FileVectors:
    """Vectors in a SQLite file, which may hold those of several readers; processes may share it.

    >>> from evenhand.engines.heads.vectors import to_vector
    >>> book = FileVectors(":memory:", "reader 1")
    >>> book.put({"k": to_vector([1, 2])}, tokens={"k": 7})
    >>> book.get(["k"])["k"].tolist(), book.tokens
    ([1.0, 2.0], 7)
    """

    def __init__(self, path: Path | str, reader: str) -> None:
        self.reader = reader
        self._db = sqlite3.connect(path, timeout=60.0, isolation_level=None)
        self._db.execute("PRAGMA journal_mode=WAL")
        self._db.execute(_SCHEMA)

    def get(self, keys: Sequence[str]) -> dict[str, Vector]:
        """Those of the keys that are there."""
        found: dict[str, Vector] = {}
        for begin in range(0, len(keys), _MANY):
            some = keys[begin : begin + _MANY]
            marks = ",".join("?" * len(some))
            rows = self._db.execute(
                f"SELECT key, vector FROM vectors WHERE reader = ? AND key IN ({marks})", (self.reader, *some)
            )
            found |= {key: np.frombuffer(blob, dtype="<f2").astype(np.float16) for key, blob in rows}
        return found

    def put(self, vectors: Mapping[str, Vector], *, tokens: Mapping[str, int] | None = None) -> None:
        """Keep vectors in one transaction; one that is there already stays."""
        taken = tokens or {}
        rows = [(self.reader, key, v.astype("<f2").tobytes(), taken.get(key, 0)) for key, v in vectors.items()]
        self._db.execute("BEGIN IMMEDIATE")
        try:
            self._db.executemany("INSERT OR IGNORE INTO vectors VALUES (?, ?, ?, ?)", rows)
            self._db.execute("COMMIT")
        except BaseException:
            self._db.execute("ROLLBACK")
            raise

    @property
    def tokens(self) -> int:
        """How many tokens the vectors of this reader took in all."""
        query = "SELECT coalesce(sum(tokens), 0) FROM vectors WHERE reader = ?"
        return int(self._db.execute(query, (self.reader,)).fetchone()[0])

    def __len__(self) -> int:
        query = "SELECT count(*) FROM vectors WHERE reader = ?"
        return int(self._db.execute(query, (self.reader,)).fetchone()[0])

    def close(self) -> None:
        """Close the file."""
        self._db.close()
