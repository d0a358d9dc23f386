"""Which pairs a report shows: a few of each kind, and more by the seed. Numbers, no texts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np
from numpy.typing import NDArray

from evenhand.core.columns import MISSING, ONE, TIE, TWO, Block
from evenhand.core.pair import Side
from evenhand.core.shuffle import mixed
from evenhand.results.pair_outcome import SIDE_OF_CODE, PairOutcome, pair_outcome

ExampleKind = Literal["inconsistent", "invalid", "against_people", "near_tie", "clear"]
KINDS: tuple[ExampleKind, ...] = get_args(ExampleKind)


@dataclass(frozen=True, slots=True)
class ExamplePair:
    """A pair of one kind: its number, its outcome, and what most people said of it."""

    number: int
    outcome: PairOutcome
    known: Side | None


class LowestRanks:
    """The numbers with the lowest ranks of a stream, each number once; between equal ranks the smaller number.

    >>> lowest = LowestRanks(2)
    >>> lowest.add(np.array([0.3, 0.1]), np.array([7, 8]))
    >>> lowest.add(np.array([0.2, 0.1]), np.array([9, 8]))
    >>> lowest.numbers
    [8, 9]
    """

    def __init__(self, size: int) -> None:
        self._size = size
        self._ranks: NDArray[np.float64] = np.empty(0)
        self._numbers: NDArray[np.int64] = np.empty(0, dtype=np.int64)

    def add(self, ranks: NDArray[np.float64], numbers: NDArray[np.int64]) -> None:
        """Take some numbers with their ranks."""
        ranks, numbers = np.concatenate([self._ranks, ranks]), np.concatenate([self._numbers, numbers])
        numbers, first = np.unique(numbers, return_index=True)
        order = np.lexsort((numbers, ranks[first]))[: self._size]
        self._ranks, self._numbers = ranks[first][order], numbers[order]

    @property
    def numbers(self) -> list[int]:
        """The numbers, lowest rank first."""
        return [int(number) for number in self._numbers]


def chance(seed: int, keys: NDArray[np.uint64]) -> NDArray[np.float64]:
    """A number between 0 and 1 for each pair that depends on the seed and its texts alone.

    >>> keys = np.array([1, 2], dtype=np.uint64)
    >>> chance(0, keys).tolist() == chance(0, keys).tolist() != chance(1, keys).tolist()
    True
    """
    return np.array([mixed(key, seed) for key in keys.tolist()], dtype=np.float64) / 2**64


class Examples:
    """A few pairs of each kind, of one judge on one dimension, out of blocks.

    Near ties and clear wins are the nearest and the clearest there are; of the other kinds the seed draws.
    `without` are the numbers of pairs that are none, such as exact repeats of others.
    """

    def __init__(self, dimension: str, each: int, seed: int, without: Sequence[int] = ()) -> None:
        self.dimension, self._seed, self._without = dimension, seed, without
        self._kinds = {kind: LowestRanks(each) for kind in KINDS}
        self._kept: dict[int, ExamplePair] = {}
        self._counts = dict.fromkeys(KINDS, 0)

    @property
    def counts(self) -> Mapping[ExampleKind, int]:
        """How many pairs are of each kind."""
        return self._counts

    def add_block(self, block: Block) -> None:
        """Take the pairs of a block."""
        if self.dimension not in block.outcomes:
            return
        if len(self._without):
            block = block.take(~np.isin(block.number, self._without))
        found, known = block.outcomes[self.dimension], block.known(self.dimension)
        for kind, (rows, ranks) in self._ranks(block).items():
            self._counts[kind] += len(rows)
            self._kinds[kind].add(ranks, block.number[rows])
        wanted = {number for lowest in self._kinds.values() for number in lowest.numbers}
        for row in np.flatnonzero(np.isin(block.number, sorted(wanted))).tolist():
            number = int(block.number[row])
            outcome = pair_outcome(self.dimension, found, row)
            self._kept[number] = ExamplePair(number, outcome, SIDE_OF_CODE[int(known[row])])
        self._kept = {number: pair for number, pair in self._kept.items() if number in wanted}

    def _ranks(self, block: Block) -> Mapping[ExampleKind, tuple[NDArray[np.int64], NDArray[np.float64]]]:
        """The rows of each kind, with what decides between them."""
        found, known = block.outcomes[self.dimension], block.known(self.dimension)
        drawn, valid = chance(self._seed, block.key), found.valid
        p, decided = found.p, valid & (found.side != TIE)
        of_side = np.where(found.side == ONE, p[:, ONE], p[:, TWO])
        rows: dict[ExampleKind, tuple[NDArray[np.bool_], NDArray[np.float64]]] = {
            "inconsistent": (found.inconsistent, drawn),
            "invalid": (~valid, drawn),
            "against_people": (valid & (known != MISSING) & (known != found.side), drawn),
            "near_tie": (valid, np.abs(p[:, ONE] - p[:, TWO])),
            "clear": (decided, 1 - of_side),
        }
        return {kind: (np.flatnonzero(mask), ranks[mask]) for kind, (mask, ranks) in rows.items()}

    def found(self) -> Mapping[ExampleKind, tuple[ExamplePair, ...]]:
        """The examples of each kind."""
        return {kind: tuple(self._kept[n] for n in lowest.numbers) for kind, lowest in self._kinds.items()}
