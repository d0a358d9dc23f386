"""Rows of numbers by key, as many as there are: those that memory should not hold are in a temporary file.

Statistics that know of clusters need all rows of a cluster at once, but not all clusters. Rows come in any order
and come out in parts, and no key is in two of them.
"""

from __future__ import annotations

import tempfile
import weakref
from array import array
from collections.abc import Iterator, Mapping
from typing import IO, TYPE_CHECKING, Any

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
        self._file: IO[bytes] | None = None
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
            self._held[name].frombytes(values.tobytes())
        if len(self._first) >= HELD:
            self._spill()

    def parts(self) -> Iterator[Part]:
        """All rows in parts that share no key, in no certain order within a part; each call reads them anew."""
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
        """All rows at once, for whoever has the memory."""
        import numpy as np

        parts = list(self.parts())
        return {name: np.concatenate([part[name] for part in parts]) for name in self._codes}

    def _dtype(self) -> np.dtype[Any]:
        import numpy as np

        return np.dtype([(name, np.dtype(code)) for name, code in self._codes.items()])

    def _spill(self) -> None:
        """Bring what memory holds into the file, ordered by the first byte of the key."""
        import numpy as np

        if self._file is None:
            self._file = tempfile.TemporaryFile(prefix="evenhand-")  # noqa: SIM115 - it lives as long as the spill
            weakref.finalize(self, self._file.close)
        before = int(self._begins[-1][-1]) if self._begins else 0
        rows = np.empty(len(self._first), dtype=self._dtype())
        for name, column in self._held.items():
            rows[name] = column
        begin = (np.array(self._first, dtype=np.uint64) >> np.uint64(56)).astype(np.intp)
        order = np.argsort(begin, kind="stable")
        counts = np.bincount(begin, minlength=_MOST_PARTS)
        self._file.seek(0, 2)
        self._file.write(rows[order].tobytes())
        self._begins.append(before + np.concatenate([[0], np.cumsum(counts)]))
        for column in self._held.values():
            del column[:]

    def _read(self, first: int, end: int) -> Part:
        """The rows whose keys begin with these bytes."""
        import numpy as np

        assert self._file is not None
        dtype, pieces = self._dtype(), []
        for begins in self._begins:
            self._file.seek(int(begins[first]) * dtype.itemsize)
            piece = self._file.read(int(begins[end] - begins[first]) * dtype.itemsize)
            pieces.append(np.frombuffer(piece, dtype=dtype))
        rows = np.concatenate(pieces)
        return {name: np.ascontiguousarray(rows[name]) for name in self._codes}
