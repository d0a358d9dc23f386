"""Many outputs by their key, in a temporary file."""

from __future__ import annotations

import hashlib
import sqlite3
import weakref
from collections.abc import Iterator

import orjson

from evenhand.io.files import Table
from evenhand.io.files.writing import dump
from evenhand.io.pairs.outputs import Output, Placed

_CACHE_KILOBYTES = 2_000


class TemporaryTable:
    """One model's outputs, in the order in which they were put there. Memory does not grow with their number.

    >>> from pathlib import Path
    >>> kept, table = TemporaryTable(), Table(Path("a.jsonl"), "a.jsonl", ".jsonl")
    >>> kept.put(key_of("Hi"), Placed(Output("Hi", "Hello"), table, 1)) is None
    True
    >>> kept.get(key_of("Hi")).output.text, len(kept)
    ('Hello', 1)
    """

    def __init__(self) -> None:
        self._db = _temporary()
        weakref.finalize(self, self._db.close)
        self._db.execute(
            "CREATE TABLE outputs (place INTEGER PRIMARY KEY, key BLOB NOT NULL UNIQUE, row BLOB NOT NULL)"
        )
        self._tables: list[Table] = []
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def __contains__(self, key: bytes) -> bool:
        return self._db.execute("SELECT 1 FROM outputs WHERE key = ?", (key,)).fetchone() is not None

    def __iter__(self) -> Iterator[bytes]:
        return (key for (key,) in self._db.execute("SELECT key FROM outputs ORDER BY place"))

    def put(self, key: bytes, placed: Placed) -> Placed | None:
        """Keep an output; if the key is taken, nothing is kept and the one that has it comes back."""
        output = placed.output
        row = [output.instruction, output.text, output.model, output.id, output.about, self._number(placed.table)]
        kept = self._db.execute(
            "INSERT OR IGNORE INTO outputs (key, row) VALUES (?, ?)", (key, dump([*row, placed.where]))
        )
        if kept.rowcount == 0:
            return self.get(key)
        self._count += 1
        return None

    def get(self, key: bytes) -> Placed:
        """The output under a key."""
        found = self.find(key)
        if found is None:
            raise KeyError(key)
        return found

    def find(self, key: bytes) -> Placed | None:
        """The output under a key, if there is one."""
        row = self._db.execute("SELECT row FROM outputs WHERE key = ?", (key,)).fetchone()
        return None if row is None else self._placed(row[0])

    def items(self) -> Iterator[tuple[bytes, Placed]]:
        """Every key with its output."""
        for key, row in self._db.execute("SELECT key, row FROM outputs ORDER BY place"):
            yield key, self._placed(row)

    def close(self) -> None:
        """Remove the temporary file."""
        self._db.close()

    def _placed(self, row: bytes) -> Placed:
        instruction, text, model, name, about, table, where = orjson.loads(row)
        return Placed(Output(instruction, text, model, name, about), self._tables[table], where)

    def _number(self, table: Table) -> int:
        if not self._tables or self._tables[-1] != table:
            self._tables.append(table)
        return len(self._tables) - 1


class Seen:
    """Numbers that have come up, in a temporary file: memory does not grow with them.

    >>> seen = Seen()
    >>> seen.add(7), seen.add(7), seen.add(8)
    (True, False, True)
    """

    def __init__(self) -> None:
        self._db: sqlite3.Connection | None = None

    def add(self, number: int) -> bool:
        """Whether a number of eight bytes is new."""
        if self._db is None:
            self._db = _temporary()
            weakref.finalize(self, self._db.close)
            self._db.execute("CREATE TABLE seen (number INTEGER PRIMARY KEY)")
            self._db.execute("BEGIN")  # and never ended: nothing has to be kept
        signed = number - 2**63  # SQLite's integers have a sign
        return self._db.execute("INSERT OR IGNORE INTO seen VALUES (?)", (signed,)).rowcount == 1


def _temporary() -> sqlite3.Connection:
    """A database without a name is a temporary file that goes with the connection, so nothing has to be safe."""
    db = sqlite3.connect("", isolation_level=None, check_same_thread=False)
    for pragma in ("journal_mode = OFF", "synchronous = OFF", f"cache_size = -{_CACHE_KILOBYTES}"):
        db.execute(f"PRAGMA {pragma}")
    return db


def key_of(text: str) -> bytes:
    """Sixteen bytes that stand for a text.

    >>> key_of("a") == key_of("a"), key_of("a") == key_of("b")
    (True, False)
    """
    return hashlib.blake2b(text.encode(errors="surrogatepass"), digest_size=16).digest()
