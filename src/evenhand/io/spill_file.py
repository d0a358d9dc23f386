"""Rows of numbers by key, as many as there are: those that memory should not hold are in a temporary file.

Statistics that know of clusters need all rows of a cluster at once, but not all clusters. Rows come in any order
and come out in parts, and no key is in two of them.
"""

from __future__ import annotations

import tempfile
import weakref
from array import array
from collections.abc import Iterator, Mapping
from io import BufferedRandom
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:  # numpy takes a third of a second, which commands without statistics should not pay
    import numpy as np
    from numpy.typing import NDArray

# So many rows are held in memory, and about as many are in a part.
HELD = 65_536
# Rows in the file are ordered by the first byte of their key, so there are at most so many parts.
_MOST_PARTS = 256

Part = Mapping[str, Any]  # an array for each column, Python's own or numpy's


class SpillFile:
    """Columns of numbers, the first of which is the key: eight bytes, as `short_hash` makes them.

    >>> spill = SpillFile(key="Q", value="d")
    >>> spill.append(7, 0.5)
    >>> spill.append(8, 1.0)
    >>> len(spill), [list(part["value"]) for part in spill.parts()]
    (2, [[0.5, 1.0]])
    """

    def __init__(self, **columns: str) -> None:
        self._codes = columns
        self._held: dict[str, array[Any]] = {name: array(code) for name, code in columns.items()}
        self._first = next(iter(self._held.values()))
        self._puts = [column.append for column in self._held.values()]
        self._file: BufferedRandom | None = None
        self._row_size = sum(column.itemsize for column in self._held.values())
        self._begins: list[NDArray[np.int64]] = []  # of each spill, the row at which each first byte begins

    def __len__(self) -> int:
        return len(self._first) + (int(self._begins[-1][-1]) if self._begins else 0)

    def append(self, *row: float) -> None:
        """Put one row behind the others."""
        for put, value in zip(self._puts, row, strict=True):
            put(value)
        if len(self._first) >= HELD:
            self._spill()

    def extend(self, **columns: NDArray[Any]) -> None:
        """Put many rows behind the others."""
        import numpy as np

        for name, code in self._codes.items():
            values = np.ascontiguousarray(columns[name], dtype=np.dtype(code))
            self._held[name].frombytes(values.view(np.uint8).data)
        if len(self._first) >= HELD:
            self._spill()

    def parts(self) -> Iterator[Part]:
        """All rows in parts that share no key, in any order within a part; each call reads them again."""
        if self._file is None:
            yield self._held
            return
        if self._first:
            self._spill()
        parts = 1
        while parts < _MOST_PARTS and parts * HELD < len(self):
            parts *= 2
        step = _MOST_PARTS // parts
        for first in range(0, _MOST_PARTS, step):
            yield self._read(first, first + step)

    def all(self) -> Part:
        """All rows at once, where there is memory for them."""
        import numpy as np

        parts = list(self.parts())
        return {name: np.concatenate([part[name] for part in parts]) for name in self._codes}

    def _spill(self) -> None:
        """Bring what memory holds into the file, ordered by the first byte of the key, column after column."""
        import numpy as np

        if self._file is None:
            self._file = temporary_file(self)
        before = int(self._begins[-1][-1]) if self._begins else 0
        begin = (np.frombuffer(self._first, dtype=np.uint64) >> np.uint64(56)).astype(np.uint8)
        order = np.argsort(begin, kind="stable")
        counts = np.bincount(begin, minlength=_MOST_PARTS)
        self._file.seek(0, 2)
        for name, column in self._held.items():
            self._file.write(np.frombuffer(column, dtype=self._codes[name])[order].data)
            del column[:]
        self._begins.append(before + np.concatenate([[0], np.cumsum(counts)]))

    def _read(self, first: int, end: int) -> Part:
        """The rows whose keys begin with these bytes."""
        import numpy as np

        assert self._file is not None
        counts = [int(begins[end] - begins[first]) for begins in self._begins]
        found = {name: np.empty(sum(counts), dtype=code) for name, code in self._codes.items()}
        done = 0
        for begins, count in zip(self._begins, counts, strict=True):
            place = int(begins[0]) * self._row_size
            for column in found.values():
                self._file.seek(place + int(begins[first] - begins[0]) * column.itemsize)
                if self._file.readinto(column[done : done + count].data) != count * column.itemsize:
                    raise OSError("a temporary file is shorter than what was written to it")
                place += int(begins[-1] - begins[0]) * column.itemsize
            done += count
        return found


class PartFile:
    """Parts of rows, each as it was given; those that memory should not hold are in a temporary file.

    >>> import numpy as np
    >>> kept = PartFile(held=2)
    >>> kept.add({"side": np.array([1, 2])})
    >>> kept.add({"side": np.array([3])})
    >>> [part["side"].tolist() for part in kept.parts()]
    [[1, 2], [3]]
    """

    def __init__(self, held: int) -> None:
        self._held, self._parts = held, list[Part]()
        self._file: BufferedRandom | None = None
        self._written: list[dict[str, tuple[int, int, str]]] = []  # of each part, where its columns are, and what

    def add(self, part: Part) -> None:
        """Put a part of numpy's arrays behind the others."""
        import numpy as np

        rows = len(next(iter(part.values())))
        if not self._written and rows <= self._held:
            self._parts.append(part)
            self._held -= rows
            return
        if self._file is None:
            self._file = temporary_file(self)
        self._file.seek(0, 2)
        where = {}
        for name, column in part.items():
            where[name] = (self._file.tell(), column.nbytes, column.dtype.str)
            self._file.write(np.ascontiguousarray(column).data)
        self._written.append(where)

    def parts(self) -> Iterator[Part]:
        """All parts in their order; each call reads them again."""
        yield from self._parts
        for where in self._written:
            yield {name: self._read(*column) for name, column in where.items()}

    def _read(self, place: int, size: int, dtype: str) -> NDArray[Any]:
        import numpy as np

        assert self._file is not None
        self._file.seek(place)
        return np.frombuffer(self._file.read(size), dtype=dtype)


def temporary_file(owner: object) -> BufferedRandom:
    """A file without a name, which is gone when its owner is."""
    file = tempfile.TemporaryFile(prefix="evenhand-")  # noqa: SIM115 - it lives as long as its owner
    weakref.finalize(owner, file.close)
    return file
