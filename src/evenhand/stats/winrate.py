"""Win rates with intervals, and the difference of two win rates on the same pairs.

A value is what one pair came to for side 1, both its orders pooled: 1 won, 0 lost, 1/2 tie, or the expected share
p(1) + p(tie)/2. Pairs that share an instruction form a cluster.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from evenhand.stats.clusters import Groups, gather, signed_interval, signed_interval_over

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


def mean_rate(values: ArrayLike, clusters: ArrayLike | None = None, *, level: float = 0.95) -> Rate:
    """The mean of values between 0 and 1 with its interval, clusters taken into account.

    The interval is explained at `evenhand.stats.clusters.signed_interval`.

    >>> rate = mean_rate([1, 1, 0.5, 0, 1, 1], ["a", "b", "c", "d", "e", "e"])
    >>> rate.value, rate.n, rate.clusters
    (0.75, 6, 5)
    >>> mean_rate([1, 1, 0], ["a", "b", "c"]) == mean_rate([0, 1, 1], ["c", "b", "a"])
    True
    """
    y = np.asarray(values, dtype=np.float64)
    if not len(y):
        return Rate(None, None, None, 0, level)
    groups = gather(2 * y - 1, clusters)
    return mean_rate_over(lambda: [groups], level=level)


def mean_rate_over(parts: Callable[[], Iterable[Groups]], *, level: float = 0.95) -> Rate:
    """The same of clusters that come in parts, of which there is at least one with a value.

    Values are gathered as what was won and lost: 2 * value - 1.

    >>> mean_rate_over(lambda: [gather([1, -1]), gather([1, 1])]).value
    0.75
    """
    found = signed_interval_over(parts, level)
    shape = found.shape
    spread = (1 - found.mean**2) / found.variance if found.variance > 0 else None
    return Rate(
        (1 + found.mean) / 2,
        (1 + found.low) / 2,
        (1 + found.high) / 2,
        shape.n,
        level,
        METHOD,
        shape.clusters,
        spread,
    )


def missing_bounds(rate: Rate, missing: int) -> tuple[float, float] | None:
    """What the win rate would be if all missing verdicts went against side 1, and if all went for it.

    Manski (1989), "Anatomy of the selection problem", calls these the worst-case bounds.

    >>> missing_bounds(win_rate(3, 0, 1), 1)
    (0.6, 0.8)
    """
    if rate.value is None:
        return (0.0, 1.0) if missing else None
    total = rate.n + missing
    won = rate.value * rate.n
    return won / total, (won + missing) / total


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
    first: ArrayLike, second: ArrayLike, clusters: ArrayLike | None = None, *, level: float = 0.95
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
    found = signed_interval(a - b, clusters, level)
    means = (float(np.sort(a).mean()), float(np.sort(b).mean()))
    return Difference(found.mean, found.low, found.high, *means, found.shape.n, found.shape.clusters, level)
