"""Pairs in random order, without holding them: for runs that may stop before the end of a file.

The order is decided by the seed and the texts alone. Where a row stands in the file does not matter, and rows that
are added later leave the order of the others as it was. Pairs that share an instruction stay together, so that an
instruction can be counted as soon as its last pair is judged.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterable, Iterator, Sequence

from evenhand.core.outcome import cluster_number, leading
from evenhand.core.pair import Pair

# How many pairs to hold at once; each time so many have been taken, the file is read again for the next.
_FIRST, _MOST = 500, 10_000


class Shuffle:
    """The pairs that `read` gives, in random order; `read` is called again and again and gives the same each time.

    In memory are sixteen bytes a row and at most 10,000 pairs.

    >>> pairs = [Pair("Hi", "x", "y"), Pair("Bye", "x", "y"), Pair("Hi", "x", "z")]
    >>> shuffled = Shuffle(lambda: pairs, seed=1)
    >>> [pair.instruction for pair in shuffled], shuffled.pairs, shuffled.instructions
    (['Bye', 'Hi', 'Hi'], 3, 2)
    """

    def __init__(self, read: Callable[[], Iterable[Pair]], *, seed: int = 0) -> None:
        self._read = read
        self._order, self.instructions = _order(read(), seed)

    @property
    def pairs(self) -> int:
        """How many there are."""
        return len(self._order)

    def __iter__(self) -> Iterator[Pair]:
        begin, size = 0, _FIRST
        while begin < len(self._order):
            yield from self._collect(self._order[begin : begin + size])
            begin, size = begin + size, min(2 * size, _MOST)

    def _collect(self, rows: Sequence[int]) -> list[Pair]:
        """These rows of the file, in this order."""
        place = {row: number for number, row in enumerate(rows)}
        found: list[tuple[int, Pair]] = []
        for row, pair in enumerate(self._read()):
            if row in place:
                found.append((place[row], pair))
                if len(found) == len(place):
                    break
        return [pair for _, pair in sorted(found, key=lambda item: item[0])]


def place_of(pair: Pair, seed: int) -> tuple[int, int]:
    """Where a pair stands in the random order: a number for its instruction, then one for the pair.

    >>> place_of(Pair("Hi", "x", "y"), 0)[0] == place_of(Pair("Hi", "x", "z"), 0)[0]
    True
    """
    return mixed(cluster_number(pair.instruction), seed), mixed(leading(pair.key), seed)


def mixed(number: int, seed: int) -> int:
    """A number mixed with a seed, as good as drawn at random.

    The finaliser of SplitMix64: Steele, Lea & Flood (2014), "Fast splittable pseudorandom number generators".

    >>> mixed(1, 0) == mixed(1, 0), mixed(1, 0) == mixed(1, 1)
    (True, False)
    """
    z = (number ^ ((seed + 1) * _GAMMA)) & _WHOLE
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9 & _WHOLE
    z = (z ^ (z >> 27)) * 0x94D049BB133111EB & _WHOLE
    return z ^ (z >> 31)


_GAMMA, _WHOLE = 0x9E3779B97F4A7C15, (1 << 64) - 1


def _order(pairs: Iterable[Pair], seed: int) -> tuple[Sequence[int], int]:
    """The numbers of the rows in random order, and how many instructions there are."""
    import numpy as np  # here, because most commands need no order

    instructions, each = array("Q"), array("Q")
    for pair in pairs:
        first, second = place_of(pair, seed)
        instructions.append(first)
        each.append(second)
    clusters = np.frombuffer(instructions, dtype=np.uint64)
    rows = np.lexsort((np.frombuffer(each, dtype=np.uint64), clusters)).astype(np.uint32)
    return array("I", rows.tobytes()), len(np.unique(clusters))
