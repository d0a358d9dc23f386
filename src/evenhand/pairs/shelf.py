"""Many outputs by their key: the texts in a temporary file, a hash and a place in memory."""

from __future__ import annotations

import hashlib
import tempfile
import weakref
from collections.abc import Iterator

import orjson

from evenhand.files import Table
from evenhand.files.writing import dump
from evenhand.pairs.outputs import Output, Placed


class Shelf:
    """One model's outputs. A row takes about 130 bytes of memory, however long its texts are.

    >>> from pathlib import Path
    >>> shelf, table = Shelf(), Table(Path("a.jsonl"), "a.jsonl", ".jsonl")
    >>> shelf.put(key_of("Hi"), Placed(Output("Hi", "Hello"), table, 1)) is None
    True
    >>> shelf.get(key_of("Hi")).output.text, len(shelf)
    ('Hello', 1)
    """

    def __init__(self) -> None:
        self._file = tempfile.TemporaryFile(prefix="evenhand-")  # noqa: SIM115 - it lives as long as the shelf
        weakref.finalize(self, self._file.close)
        self._places: dict[bytes, int] = {}
        self._tables: list[Table] = []
        self._end = 0

    def __len__(self) -> int:
        return len(self._places)

    def __contains__(self, key: bytes) -> bool:
        return key in self._places

    def __iter__(self) -> Iterator[bytes]:
        return iter(self._places)

    def put(self, key: bytes, placed: Placed) -> Placed | None:
        """Keep an output; if the key is taken, nothing is kept and the one that has it comes back."""
        if key in self._places:
            return self.get(key)
        output = placed.output
        row = [output.instruction, output.text, output.model, output.id, output.about, self._number(placed.table)]
        line = dump([*row, placed.where]) + b"\n"
        self._file.seek(self._end)
        self._file.write(line)
        self._places[key], self._end = self._end, self._end + len(line)
        return None

    def get(self, key: bytes) -> Placed:
        """The output under a key."""
        self._file.seek(self._places[key])
        instruction, text, model, name, about, table, where = orjson.loads(self._file.readline())
        return Placed(Output(instruction, text, model, name, about), self._tables[table], where)

    def close(self) -> None:
        """Remove the temporary file."""
        self._file.close()

    def _number(self, table: Table) -> int:
        if not self._tables or self._tables[-1] != table:
            self._tables.append(table)
        return len(self._tables) - 1


def key_of(text: str) -> bytes:
    """Sixteen bytes that stand for a text.

    >>> key_of("a") == key_of("a"), key_of("a") == key_of("b")
    (True, False)
    """
    return hashlib.blake2b(text.encode(errors="surrogatepass"), digest_size=16).digest()
