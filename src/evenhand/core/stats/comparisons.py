"""Comparisons of models in numbers: names become places, outcomes become weights, and all is summed by cluster."""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]

_WEIGHTS: Mapping[str | None, int] = {"1": 0, "2": 1, "tie": 2, None: 3}
_TABLE = np.array([[1, 0, 0], [0, 1, 0], [0, 0, 1], [math.nan] * 3], dtype=np.float64)


@dataclass(frozen=True, slots=True)
class ComparisonRows:
    """Sums within cluster and pair of models: (one, two) stands once in a cluster, one < two; clusters in order."""

    one: Ints
    two: Ints
    cluster: Ints
    wins_1: Floats
    wins_2: Floats
    ties: Floats

    def of(self, chosen: Bools) -> ComparisonRows:
        """Some of the rows."""
        return ComparisonRows(*(getattr(self, name)[chosen] for name in self.__slots__))

    def within(self, members: Ints, size: int) -> ComparisonRows:
        """The rows between members, with the members' places for numbers."""
        place = np.full(size, -1)
        place[members] = np.arange(len(members))
        one, two = place[self.one], place[self.two]
        kept = self.of((one >= 0) & (two >= 0))
        return ComparisonRows(place[kept.one], place[kept.two], kept.cluster, kept.wins_1, kept.wins_2, kept.ties)

    def with_half_wins(self, chosen: Bools) -> ComparisonRows:
        """The same with each tie of some rows as half a win of both."""
        half = np.where(chosen, self.ties / 2, 0.0)
        return ComparisonRows(
            self.one, self.two, self.cluster, self.wins_1 + half, self.wins_2 + half, self.ties - 2 * half
        )

    def with_equal_clusters(self) -> ComparisonRows:
        """The same with every cluster weighing the same, however many comparisons it has; all together as before.

        >>> rows = gather(["a", "a", "a"], ["b", "b", "b"], ["1", "1", "2"], ["x", "x", "y"]).rows
        >>> rows.with_equal_clusters().met.tolist()
        [1.5, 1.5]
        """
        _, home = np.unique(self.cluster, return_inverse=True)
        size = np.bincount(home, self.met)
        part = (size.mean() / size)[home]
        return ComparisonRows(
            self.one, self.two, self.cluster, self.wins_1 * part, self.wins_2 * part, self.ties * part
        )

    @property
    def met(self) -> Floats:
        """How many comparisons each row stands for."""
        return self.wins_1 + self.wins_2 + self.ties


@dataclass(frozen=True, slots=True)
class Comparisons:
    """All comparisons of some models, in the order of their names.

    `counts` and `invalid` count comparisons by pair of models; `clusters` says in how many clusters a model stands.
    """

    models: tuple[str, ...]
    rows: ComparisonRows
    counts: Ints
    invalid: Ints
    clusters: Ints
    all_clusters: int

    @property
    def size(self) -> int:
        """How many models there are."""
        return len(self.models)


def gather(
    model_1: Sequence[str],
    model_2: Sequence[str],
    outcomes: Sequence[str | None] | Sequence[Sequence[float]] | Floats,
    clusters: Sequence[Hashable] | None = None,
) -> Comparisons:
    """Bring comparisons into numbers; their order, and which side a model stood on, leave no trace in a single bit.

    >>> data = gather(["b", "a", "a"], ["a", "b", "b"], ["1", "2", None], ["x", "x", "y"])
    >>> data.models, data.rows.wins_2.tolist(), data.counts[0].tolist(), data.invalid[0].tolist()
    (('a', 'b'), [2.0], [0, 2], [0, 1])
    """
    models, one, two = _numbered(model_1, model_2)
    home = np.arange(len(one)) if clusters is None else _cluster_numbers(clusters)
    return _gathered(models, one, two, read_outcomes(outcomes), home)


def gather_numbers(
    models: Sequence[str],
    one: Sequence[int] | Ints,
    two: Sequence[int] | Ints,
    weights: Floats,
    clusters: Sequence[int] | Ints,
) -> Comparisons:
    """The same from numbers: `one` and `two` are places in `models`, clusters any numbers.

    >>> data = gather_numbers(["b", "a"], [0, 1], [1, 0], np.array([[1, 0, 0], [0, 1, 0]]), [7, 7])
    >>> data.models, data.rows.wins_2.tolist()
    (('a', 'b'), [2.0])
    """
    order = sorted(range(len(models)), key=lambda number: models[number])
    place = _places(order)
    _, home = np.unique(np.asarray(clusters), return_inverse=True)
    names = tuple(models[number] for number in order)
    return _gathered(names, place[np.asarray(one)], place[np.asarray(two)], read_outcomes(weights), home)


def _gathered(models: tuple[str, ...], one: Ints, two: Ints, weights: Floats, home: Ints) -> Comparisons:
    if not len(one) == len(two) == len(weights) == len(home):
        raise ValueError(f"{len(one)}, {len(two)} models, {len(weights)} outcomes and {len(home)} clusters")
    if (one == two).any():
        raise ValueError(f"{models[one[one == two][0]]!r} is compared with itself")
    valid, size = ~np.isnan(weights[:, 0]), len(models)
    rows = _summed(one[valid], two[valid], weights[valid], home[valid], size)
    return Comparisons(
        models,
        rows,
        _count(one[valid], two[valid], size),
        _count(one[~valid], two[~valid], size),
        clusters_met(rows, size),
        int((np.diff(rows.cluster, prepend=-1) > 0).sum()),
    )


def _numbered(model_1: Iterable[str], model_2: Iterable[str]) -> tuple[tuple[str, ...], Ints, Ints]:
    numbers: dict[str, int] = {}
    one = [numbers.setdefault(name, len(numbers)) for name in model_1]
    two = [numbers.setdefault(name, len(numbers)) for name in model_2]
    names = sorted(numbers)
    place = _places([numbers[name] for name in names])
    return tuple(names), place[np.array(one, dtype=np.int64)], place[np.array(two, dtype=np.int64)]


def _cluster_numbers(clusters: Iterable[Hashable]) -> Ints:
    numbers: dict[Hashable, int] = {}
    found = [numbers.setdefault(name, len(numbers)) for name in clusters]
    order = sorted(numbers, key=lambda name: (type(name).__name__, name if isinstance(name, str) else repr(name)))
    return _places([numbers[name] for name in order])[np.array(found, dtype=np.int64)]


def _places(order: list[int]) -> Ints:
    """Where each number stands in an order."""
    place = np.empty(len(order), dtype=np.int64)
    place[order] = np.arange(len(order))
    return place


def read_outcomes(outcomes: Sequence[str | None] | Sequence[Sequence[float]] | Floats) -> Floats:
    """Weights of 1, 2 and tie; NaN where an outcome is None. Any other word is an error, never half a win.

    >>> read_outcomes(["1", "tie"]).tolist()
    [[1.0, 0.0, 0.0], [0.0, 0.0, 1.0]]
    """
    if not len(outcomes):
        return np.zeros((0, 3))
    if isinstance(outcomes, np.ndarray) or not all(o is None or isinstance(o, str) for o in outcomes):
        return _checked(np.asarray(outcomes, dtype=np.float64))
    try:
        return _TABLE[np.fromiter((_WEIGHTS[word] for word in outcomes), np.int64, len(outcomes))]  # type: ignore[index]
    except KeyError as fault:
        raise ValueError(f"outcome {fault} is none of '1', '2', 'tie', None") from None


def _checked(weights: Floats) -> Floats:
    if weights.ndim != 2 or weights.shape[1] != 3:
        raise ValueError("an outcome is a word or three weights: of 1, of 2, of a tie")
    missing = np.asarray(np.isnan(weights).any(axis=1))
    known = weights[~missing]
    if (known < 0).any() or not np.allclose(known.sum(axis=1), 1):
        raise ValueError("the weights of an outcome are not negative and sum to one")
    return np.asarray(np.where(missing[:, None], np.nan, weights))


def _summed(one: Ints, two: Ints, weights: Floats, home: Ints, size: int) -> ComparisonRows:
    turned = one > two
    low, high = np.where(turned, two, one), np.where(turned, one, two)
    first = np.where(turned, weights[:, 1], weights[:, 0])
    second = np.where(turned, weights[:, 0], weights[:, 1])
    tie = weights[:, 2]
    key = (home * size + low) * size + high
    if np.any(first % 1 != 0) or np.any(tie % 1 != 0):  # sums of fractions depend on their order in the last bits
        order = np.lexsort((tie, second, first, key))
        key, first, second, tie = key[order], first[order], second[order], tie[order]
    keys, inverse = np.unique(key, return_inverse=True)
    sums = [_sum(inverse, value, len(keys)) for value in (first, second, tie)]
    return ComparisonRows(keys // size % size, keys % size, keys // size // size, *sums)


def _sum(places: Ints, weights: Floats, count: int) -> Floats:
    return np.asarray(np.bincount(places, weights, count), dtype=np.float64)


def _count(one: Ints, two: Ints, size: int) -> Ints:
    counts = np.bincount(one * size + two, minlength=size * size).reshape(size, size)
    return np.asarray(counts + counts.T)


def clusters_met(rows: ComparisonRows, size: int) -> Ints:
    """In how many clusters each model stands."""
    ends = np.sort(np.concatenate([rows.cluster * size + rows.one, rows.cluster * size + rows.two]))
    fresh = np.diff(ends, prepend=-1) > 0
    return np.bincount(ends[fresh] % max(size, 1), minlength=size)


def matrices(rows: ComparisonRows, size: int) -> tuple[Floats, Floats]:
    """Wins by ordered pair of models, and ties, over all clusters."""
    down, up = rows.one * size + rows.two, rows.two * size + rows.one
    wins = _sum(down, rows.wins_1, size * size) + _sum(up, rows.wins_2, size * size)
    ties = _sum(down, rows.ties, size * size) + _sum(up, rows.ties, size * size)
    return wins.reshape(size, size), ties.reshape(size, size)
