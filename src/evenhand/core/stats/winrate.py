"""Win rates with intervals, and the difference of two win rates on the same pairs.

A value is what one pair came to for side 1, both its orders pooled: 1 won, 0 lost, 1/2 tie, or the expected share
p(1) + p(tie)/2. Pairs that share an instruction form a cluster. In a mean each pair may weigh the same, or each
instruction, however many pairs it has: with the first, an instruction with a third of all pairs is a third of the
answer, and the interval knows that it rests on few instructions; with the second, more pairs on one instruction
never make the interval wider than that instruction's own share allows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from evenhand.core.stats.clusters import (
    Groups,
    Signed,
    Weighting,
    gather,
    places,
    signed_interval,
    signed_intervals_over,
)
from evenhand.core.stats.multiple import p_of
from evenhand.core.stats.weighted_means import signed_mean, target_weights, weigh

METHOD = "Clopper-Pearson by effective trials, MOVER"
# Below so many clusters an interval says little, and the tables say that.
SMALL = 30


@dataclass(frozen=True, slots=True)
class Rate:
    """A share between 0 and 1 with its interval, and how it came about; None where there is no data."""

    value: float | None
    low: float | None
    high: float | None
    n: int
    level: float = 0.95
    method: str = METHOD
    clusters: int = 0
    effective: float | None = None  # independent yes-or-no trials with the same variance; None where there is none
    weighting: Weighting = "pairs"  # what weighs the same in the mean

    @property
    def small(self) -> bool:
        """Whether there are so few clusters that one more pair may change the picture."""
        return 0 < self.clusters < SMALL


def win_rate(wins: int, ties: int, losses: int, *, level: float = 0.95) -> Rate:
    """The share of pairs won, a tie counting one half, where no two pairs share an instruction.

    >>> rate = win_rate(8, 0, 2)
    >>> rate.value, round(rate.low, 4), round(rate.high, 4), rate.n
    (0.8, 0.4439, 0.9748, 10)
    >>> win_rate(0, 0, 0).value is None
    True
    """
    values = np.repeat([1.0, 0.5, 0.0], [int(wins), int(ties), int(losses)])
    return mean_rate(values, level=level)


def mean_rate(
    values: ArrayLike,
    clusters: ArrayLike | None = None,
    *,
    level: float = 0.95,
    weighting: Weighting = "pairs",
) -> Rate:
    """The mean of values between 0 and 1 with its interval, clusters taken into account.

    The interval is explained at `evenhand.core.stats.clusters.signed_intervals_over`.

    >>> rate = mean_rate([1, 1, 0.5, 0, 1, 1], ["a", "b", "c", "d", "e", "e"])
    >>> rate.value, rate.n, rate.clusters
    (0.75, 6, 5)
    >>> mean_rate([1, 1, 0], ["a", "b", "c"]) == mean_rate([0, 1, 1], ["c", "b", "a"])
    True
    >>> mean_rate([1, 0, 0, 0], ["a", "b", "b", "b"], weighting="instructions").value
    0.5
    """
    y = np.asarray(values, dtype=np.float64)
    if not len(y):
        return Rate(None, None, None, 0, level, weighting=weighting)
    groups = gather(2 * y - 1, clusters, weighting)
    return mean_rates_over(lambda: [groups], weighting=weighting)(level)


def mean_rates_over(
    parts: Callable[[], Iterable[Groups]], *, weighting: Weighting = "pairs"
) -> Callable[[float], Rate]:
    """The same at any level, of clusters that come in parts, of which there is at least one with a value.

    Values are gathered as what was won and lost, 2 * value - 1, with the weighting given here. They are read once.

    >>> at = mean_rates_over(lambda: [gather([1, -1, 1])])
    >>> at(0.99).low < at(0.95).low < at(0.95).value
    True
    """
    found = signed_intervals_over(parts)
    return lambda level: _rate(found(level), level, weighting)


def weighted_rate(
    values: ArrayLike,
    weights: ArrayLike,
    clusters: ArrayLike | None = None,
    *,
    level: float = 0.95,
    weighting: Weighting = "pairs",
) -> Rate:
    """The mean of values that were drawn with unequal chances; `weights` are one over those chances.

    Values with a weight of 0 or nan are left out. `core/stats/weighted_means.py` says how it is made; n is the
    number of values that were used.

    >>> weighted_rate([1, 1, 0], [1, 1, 2]).value
    0.5
    >>> weighted_rate([1, 0], [0, float("nan")]).value is None
    True
    """
    y, w = np.asarray(values, dtype=np.float64), np.asarray(weights, dtype=np.float64)
    place = np.arange(len(y)) if clusters is None else places(clusters)
    keep = w > 0
    if not keep.any():
        return Rate(None, None, None, 0, level, weighting=weighting)
    w = w * target_weights(place, weighting)
    return _rate(signed_mean(2 * y[keep] - 1, weigh(place[keep], w[keep]), level), level, weighting)


def _rate(found: Signed, level: float, weighting: Weighting) -> Rate:
    spread = (1 - found.mean**2) / found.variance if found.variance > 0 else None
    return Rate(
        (1 + found.mean) / 2,
        (1 + found.low) / 2,
        (1 + found.high) / 2,
        found.pairs,
        level,
        METHOD,
        found.shape.clusters,
        spread,
        weighting,
    )


@dataclass(frozen=True, slots=True)
class Difference:
    """How far one mean lies above another on the same pairs, between -1 and 1; None where there are no pairs."""

    value: float | None
    low: float | None
    high: float | None
    first: float | None
    second: float | None
    n: int
    clusters: int = 0
    level: float = 0.95
    method: str = f"paired; {METHOD}"

    @property
    def decided(self) -> bool:
        """Whether the interval leaves out zero."""
        return self.low is not None and self.high is not None and not self.low <= 0 <= self.high


def paired_difference(
    first: ArrayLike,
    second: ArrayLike,
    clusters: ArrayLike | None = None,
    *,
    level: float = 0.95,
    weighting: Weighting = "pairs",
) -> Difference:
    """The mean of first - second, pair by pair: two judges, two protocols, two dimensions.

    Where the two say the same a difference is 0, as a tie is in a win rate; the interval is the same one.

    >>> difference = paired_difference([1, 1, 0.5, 1], [1, 0, 0.5, 0.5])
    >>> difference.value, difference.n
    (0.375, 4)
    """
    a, b = np.asarray(first, dtype=np.float64), np.asarray(second, dtype=np.float64)
    if not len(a):
        return Difference(None, None, None, None, None, 0, level=level)
    found = signed_interval(a - b, clusters, level, weighting)
    w = target_weights(np.arange(len(a)) if clusters is None else places(clusters), weighting)
    one, two = (float(np.sort(w * x).sum() / np.sort(w).sum()) for x in (a, b))
    return Difference(found.mean, found.low, found.high, one, two, found.pairs, found.shape.clusters, level)


def difference_p(
    first: ArrayLike, second: ArrayLike, clusters: ArrayLike | None = None, *, weighting: Weighting = "pairs"
) -> float | None:
    """The p-value of no difference, pair by pair: the level at which the interval comes to leave out zero.

    >>> difference_p([1] * 12, [0] * 12) < 0.001, difference_p([1, 0], [0, 1]), difference_p([], [])
    (True, 1.0, None)
    """
    values = np.asarray(first, dtype=np.float64) - np.asarray(second, dtype=np.float64)
    if not len(values):
        return None
    groups = gather(values, clusters, weighting)
    found = signed_intervals_over(lambda: [groups])
    return p_of(lambda level: ((at := found(level)).low, at.high))
