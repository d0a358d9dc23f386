"""Vectors of responses, kept by content: in memory, or in a small file of their own.

A vector is kept in half precision, which is far finer than the difference between two builds of llama.cpp. A book
of vectors belongs to one *reader*: a model by its hash, a place in it and the words around the response.
"""

from __future__ import annotations

import hashlib
import sqlite3
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Protocol

import numpy as np
import numpy.typing as npt

Vector = npt.NDArray[np.float16]

_SCHEMA = """
CREATE TABLE IF NOT EXISTS vectors (
  reader TEXT NOT NULL, key TEXT NOT NULL, vector BLOB NOT NULL, tokens INTEGER NOT NULL DEFAULT 0,
  PRIMARY KEY (reader, key)
) WITHOUT ROWID"""
_MANY = 500  # keys in one query: SQLite takes 999 at least


def content_key(instruction: str, response: str) -> str:
    r"""The name of a response by its content: sha256 of instruction, NUL and response.

    >>> content_key("Say hi.", "Hi.")[:20]
    'b5dc00f38e2dcbf53ff2'
    """
    return hashlib.sha256(f"{instruction}\0{response}".encode("utf-8", "surrogatepass")).hexdigest()


def to_vector(values: Iterable[float]) -> Vector:
    """Half precision; a value beyond its range is the largest there is, instead of infinite.

    >>> float(to_vector([1e9])[0])
    65504.0
    """
    wide = np.fromiter(values, dtype=np.float64)
    return np.clip(wide, -65504.0, 65504.0).astype(np.float16)


class Vectors(Protocol):
    """Where vectors are kept."""

    def get(self, keys: Sequence[str]) -> dict[str, Vector]:
        """Those of the keys that are there."""

    def put(self, vectors: Mapping[str, Vector], *, tokens: Mapping[str, int] | None = None) -> None:
        """Keep vectors, and how many tokens each took; one that is there already stays."""

    def __len__(self) -> int: ...


class MemoryVectors:
    """Vectors of this process.

    >>> book = MemoryVectors()
    >>> book.put({"k": to_vector([1, 2])})
    >>> book.get(["k", "other"])["k"].tolist(), len(book)
    ([1.0, 2.0], 1)
    """

    def __init__(self) -> None:
        self._kept: dict[str, Vector] = {}

    def get(self, keys: Sequence[str]) -> dict[str, Vector]:
        """Those of the keys that are there."""
        return {key: self._kept[key] for key in keys if key in self._kept}

    def put(self, vectors: Mapping[str, Vector], *, tokens: Mapping[str, int] | None = None) -> None:
        """Keep vectors; one that is there already stays."""
        for key, vector in vectors.items():
            self._kept.setdefault(key, vector)

    def __len__(self) -> int:
        return len(self._kept)


class FileVectors:
    """Vectors in a SQLite file, which may hold those of several readers; processes may share it.

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
