"""Values that belong together: sums by cluster, and the interval of a share that stands on them.

Two pairs with the same instruction say less than two with different ones. A cluster counts as one draw; how much
its pairs repeat each other is measured and not assumed. Sums are made in whole numbers, so that no digit depends
on the order of the rows or on which side is called 1.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations_with_replacement
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
# A value is kept to 2^-32: finer than any verdict means, and 2^31 of them still add up without an error.
UNIT = 2**32
# What weighs the same in a mean: each pair, or each instruction, however many pairs it has.
Weighting = Literal["pairs", "instructions"]


@dataclass(frozen=True, slots=True)
class Shape:
    """How values fall into clusters.

    `kish` is the number of clusters of equal size that would weigh as much (Kish 1965, "Survey Sampling");
    `freedom` are the degrees of freedom of a variance over them (Satterthwaite 1946, "An approximate distribution
    of estimates of variance components"). Where all clusters have one size they are the number of clusters, and
    one less.
    """

    n: int
    clusters: int
    kish: float
    freedom: float


@dataclass(frozen=True, slots=True)
class Moments:
    """A mean of values between 0 and 1 over clusters, its variance, and the largest mean of a cluster."""

    mean: float
    variance: float
    largest: float
    shape: Shape


@dataclass(frozen=True, slots=True)
class Signed:
    """A mean of `pairs` values between -1 and 1 with its interval; `variance` is that of the mean."""

    mean: float
    low: float
    high: float
    variance: float
    shape: Shape
    pairs: int


@dataclass(frozen=True, slots=True)
class Groups:
    """Some clusters with all their values: what each has won and lost, in units of 2^-32, and what it weighs.

    `sizes` is how many values a cluster weighs: as many as it has, or one. `pairs` is how many there are in all.
    """

    won: Ints
    lost: Ints
    sizes: Ints
    pairs: int | None = None

    @property
    def count(self) -> int:
        """How many values there are."""
        return int(self.sizes.sum()) if self.pairs is None else self.pairs


@dataclass(frozen=True, slots=True)
class _Spread:
    """Columns of sums over clusters: sum, mean and the largest mean of a cluster of each, and all covariances."""

    shape: Shape
    totals: list[int]
    means: list[float]
    largest: list[float]
    covariance: list[list[float]]


# Clusters in parts, each with columns of sums and the sizes; read twice.
_Parts = Callable[[], Iterable[tuple[Sequence[Ints], Ints]]]


def fixed_point(values: ArrayLike) -> Ints:
    """Values in units of 2^-32, as whole numbers; ValueError if one is not a finite number."""
    numbers = np.asarray(values, dtype=np.float64)
    if not np.isfinite(numbers).all():
        raise ValueError("a value is no number: what is invalid is left out, or counted elsewhere")
    return np.rint(numbers * UNIT).astype(np.int64)


def _sums(fixed: Ints, place: Ints) -> Ints:
    sums = np.zeros(int(place.max(initial=-1)) + 1, dtype=np.int64)
    np.add.at(sums, place, fixed)
    return sums


def places(clusters: ArrayLike) -> Ints:
    """Clusters of any kind as numbers 0, 1, 2 ...

    >>> places(["b", "a", "b"]).tolist()
    [1, 0, 1]
    """
    names = np.asarray(clusters)
    if names.dtype.kind in "iu" and len(names) and (names[1:] >= names[:-1]).all():  # sorted: no need to sort again
        return np.concatenate([[0], np.cumsum(names[1:] != names[:-1])]).astype(np.int64)
    _, place = np.unique(names, return_inverse=True)
    return place.reshape(-1).astype(np.int64)


def shape_of(sizes: Ints, counts: Ints | None = None) -> Shape:
    """What the sizes of the clusters come to; with `counts`, there are so many of each size.

    >>> shape = shape_of(np.array([2, 2, 2]))
    >>> shape.n, shape.clusters, shape.kish, round(shape.freedom, 9)
    (6, 3, 3.0, 2.0)
    >>> shape_of(np.array([2]), np.array([3])).clusters
    3
    """
    many = np.ones_like(sizes) if counts is None else counts
    n = int((many * sizes).sum())
    return _shape(n, int(many.sum()), int((many * sizes**2).sum()), ordered_sum(many * (sizes / n) ** 4))


def _shape(n: int, clusters: int, squares: int, fourth: float) -> Shape:
    """The shape by sums over clusters: of the squares of their sizes, and of the fourth powers of their shares."""
    return Shape(n, clusters, n * n / squares, (squares / n / n) ** 2 / fourth - 1)


def _spread(parts: _Parts) -> _Spread:
    """Means of columns over clusters, and their covariances.

    Each cluster is divided by 1 - its share of the values: the CR2 correction of Bell & McCaffrey (2002), "Bias
    reduction in standard errors for linear regression with multi-stage samples". All is scaled by 1 - 1/kish, so
    that clusters of one yes-or-no value give mean (1 - mean) / n, the variance of as many trials.
    """
    n = clusters = squares = 0
    totals: list[int] = []
    largest: list[float] = []
    for columns, sizes in parts():
        if not len(sizes):
            continue
        n, clusters, squares = n + int(sizes.sum()), clusters + len(sizes), squares + int((sizes**2).sum())
        totals = [a + int(sums.sum()) for a, sums in zip(totals or [0] * len(columns), columns, strict=True)]
        here = [float((sums / sizes).max()) / UNIT for sums in columns]
        largest = [max(a, b) for a, b in zip(largest or here, here, strict=True)]
    means = [total / (n * UNIT) for total in totals]
    fourth: list[float] = []
    each = range(len(means))
    products: list[list[list[float]]] = [[[] for _ in each] for _ in each]
    for columns, sizes in parts():
        fourth.append(ordered_sum((sizes / n) ** 4))
        # What each cluster adds to each mean.
        adds = [(sums / UNIT - mean * sizes) / n for sums, mean in zip(columns, means, strict=True)]
        for i, j in combinations_with_replacement(each, 2):
            products[i][j].append(ordered_sum(adds[i] * adds[j] / (1 - sizes / n)) if clusters > 1 else 0.0)
    shape = _shape(n, clusters, squares, math.fsum(fourth))
    scale = 1 - 1 / shape.kish
    covariance = [[math.fsum(products[min(i, j)][max(i, j)]) * scale for j in each] for i in each]
    return _Spread(shape, totals, means, largest, covariance)


def gather(values: ArrayLike, clusters: ArrayLike | None = None, weighting: Weighting = "pairs") -> Groups:
    """The clusters of values between -1 (lost) and 1 (won).

    Each pair weighs the same, or each instruction: then a cluster is one value, the mean of its pairs.

    >>> found = gather([1, -0.5, 1], ["a", "b", "b"])
    >>> (found.won / UNIT).tolist(), (found.lost / UNIT).tolist(), found.sizes.tolist()
    ([1.0, 1.0], [0.0, 0.5], [1, 2])
    >>> found = gather([1, -0.5, 1], ["a", "b", "b"], "instructions")
    >>> (found.won / UNIT).tolist(), found.sizes.tolist(), found.pairs
    ([1.0, 0.5], [1, 1], 3)
    """
    fixed = fixed_point(values)
    place = np.arange(len(fixed)) if clusters is None else places(clusters)
    won, lost, sizes = _sums(np.maximum(fixed, 0), place), _sums(np.maximum(-fixed, 0), place), np.bincount(place)
    found = Groups(won, lost, sizes, len(fixed))
    return evened(found) if weighting == "instructions" else found


def evened(groups: Groups) -> Groups:
    """Clusters in which each pair weighs the same, as clusters of which each weighs the same.

    >>> found = evened(gather([1, -0.5, 1], ["a", "b", "b"]))
    >>> (found.won / UNIT).tolist(), found.sizes.tolist(), found.pairs
    ([1.0, 0.5], [1, 1], 3)
    """
    won, lost, sizes = groups.won, groups.lost, groups.sizes
    if (sizes == 1).all():
        return groups
    return Groups(_halves(won, sizes), _halves(lost, sizes), np.ones_like(sizes), groups.count)


def _halves(sums: Ints, sizes: Ints) -> Ints:
    """Means in whole units, rounded; a half goes up, which is the same for what was won and what was lost."""
    return np.asarray((2 * sums + sizes) // (2 * sizes), dtype=np.int64)


def signed_interval(
    values: ArrayLike,
    clusters: ArrayLike | None = None,
    level: float = 0.95,
    weighting: Weighting = "pairs",
) -> Signed:
    """The mean of values between -1 (lost) and 1 (won) with its interval, as `signed_intervals_over` makes it.

    >>> found = signed_interval([1] * 8 + [-1] * 2)
    >>> round(found.mean, 4), round((1 + found.low) / 2, 4), round((1 + found.high) / 2, 4)
    (0.6, 0.4439, 0.9748)
    """
    groups = gather(values, clusters, weighting)
    return signed_intervals_over(lambda: [groups])(level)


def signed_intervals_over(parts: Callable[[], Iterable[Groups]]) -> Callable[[float], Signed]:
    """The mean and its interval at any level, of clusters that come in parts.

    No more than a part is in memory at once, and they are gone through once, whatever levels are asked for.

    What was won and what was lost are two shares, each with an interval of its own (`share_interval`), and the
    mean is their difference. The two intervals are put together by MOVER: Zou & Donner (2008), "Construction of
    confidence limits about effect measures: a general approach", Statistics in Medicine 27, 1693-1702, after
    Newcombe (1998), with the correlation measured over clusters. Without ties, won and lost are one thing seen
    from two sides, and the interval is that of the one share. With nearly all ties, wins and losses are counted
    like the rare events they are.

    >>> at = signed_intervals_over(lambda: [gather([1] * 8 + [-1] * 2)])
    >>> at(0.95) == signed_interval([1] * 8 + [-1] * 2), at(0.99).low < at(0.9).low
    (True, True)
    >>> halves = [gather([1] * 8), gather([-1] * 2)]
    >>> signed_intervals_over(lambda: halves)(0.95).mean == at(0.95).mean
    True
    """
    pairs = 0

    def columns() -> Iterator[tuple[Sequence[Ints], Ints]]:
        nonlocal pairs
        pairs = 0
        for groups in parts():
            pairs += groups.count
            yield (groups.won, groups.lost), groups.sizes

    found = _spread(columns)
    plus, minus = (Moments(found.means[i], found.covariance[i][i], found.largest[i], found.shape) for i in range(2))
    together = found.covariance[0][1]
    mean = (found.totals[0] - found.totals[1]) / (found.shape.n * UNIT)
    return lambda level: joined(plus, minus, together, level, mean, pairs)


def joined(plus: Moments, minus: Moments, together: float, level: float, mean: float, pairs: int) -> Signed:
    """The difference of what was won and what was lost with its interval; `together` is their covariance."""
    down, up = reaches(plus, minus, together, level, share_interval)
    variance = max(0.0, plus.variance + minus.variance - 2 * together)
    return Signed(mean, max(-1.0, mean - down), min(1.0, mean + up), variance, plus.shape, pairs)


def reaches(
    plus: Moments,
    minus: Moments,
    together: float,
    level: float,
    interval: Callable[[Moments, float], tuple[float, float]],
    scale: float = 1.0,
) -> tuple[float, float]:
    """How far below and above plus.mean - scale * minus.mean the interval reaches, by MOVER."""
    rho = _correlation(plus, minus, together)
    (low_1, high_1), (low_2, high_2) = interval(plus, level), interval(minus, level)
    return (
        mover(plus.mean - low_1, scale * (high_2 - minus.mean), rho),
        mover(scale * (minus.mean - low_2), high_1 - plus.mean, rho),
    )


def mover(a: float, b: float, rho: float) -> float:
    """The reach of a difference from the reaches of its two terms, which are correlated by rho.

    >>> mover(3.0, 4.0, 0.0), mover(3.0, 4.0, 1.0)
    (5.0, 1.0)
    """
    return math.sqrt(max(0.0, a * a + b * b - 2 * rho * a * b))


def _correlation(plus: Moments, minus: Moments, covariance: float) -> float:
    """The correlation of what was won and lost, with half a cluster of each added, so that none is ever absent."""
    k = plus.shape.kish

    def raw(value: float, pseudo: float) -> float:
        return (k * value + pseudo) / (k + 1)

    one, two = raw(plus.mean, 0.5), raw(minus.mean, 0.5)
    both = raw(k * covariance + plus.mean * minus.mean, 0.0) - one * two
    spread_1 = raw(k * plus.variance + plus.mean**2, 0.5) - one**2
    spread_2 = raw(k * minus.variance + minus.mean**2, 0.5) - two**2
    return max(-1.0, min(1.0, both / math.sqrt(spread_1 * spread_2)))


def ordered_sum(terms: Floats) -> float:
    """A sum that is the same in its last digit however the terms are ordered."""
    return float(np.sort(terms, axis=None).sum())


def share_interval(m: Moments, level: float = 0.95) -> tuple[float, float]:
    """The interval of a mean of values between 0 and 1.

    It is Clopper & Pearson's (1934) for the effective number of trials of Korn & Graubard (1998), "Confidence
    intervals for proportions with small expected number of positive counts estimated from survey data", Survey
    Methodology 24, 193-201: as many independent yes-or-no trials as would have the variance that was measured,
    fewer by (t/z)^2 because it was measured. Three things are our own; docs/statistics.md says what they are for:

    - A cluster that is all 0 or all 1 is a trial itself, and the variance of trials needs no measuring. So the
      loss by (t/z)^2 is taken only as far as clusters are not such trials of equal size.
    - Values that are all the same have no variance. Then it is bounded how many clusters could have been different
      and gone unseen: a share q with (1 - q)^kish = (1 - level) / 2.
    - Neither end claims more than that bound would: clusters that differ are not better evidence than clusters
      that all agree.

    >>> low, high = share_interval(Moments(0.8, 0.016, 1.0, shape_of(np.ones(10, dtype=int))))
    >>> round(low, 4), round(high, 4)
    (0.4439, 0.9748)
    """
    from scipy.special import betaincinv

    tail = (1 - level) / 2
    unseen = 1 - tail ** (1 / m.shape.kish)
    trials = effective_trials(m, level)
    if trials is None:
        return m.mean * (1 - unseen), m.mean * (1 - unseen) + unseen
    x = m.mean * trials
    low = float(betaincinv(x, trials - x + 1, tail)) if m.mean > 0 else 0.0
    high = float(betaincinv(x + 1, trials - x, 1 - tail)) if m.mean < 1 else 1.0
    return min(low, 1 - unseen, m.mean), max(high, m.largest * unseen, m.mean)


def effective_trials(m: Moments, level: float = 0.95) -> float | None:
    """The number of independent yes-or-no trials that would say as much; None where values do not vary.

    >>> round(effective_trials(Moments(0.5, 0.0625, 1.0, shape_of(np.ones(4, dtype=int)))), 6)
    4.0
    """
    shape = m.shape
    most = m.mean * (1 - m.mean) / shape.kish
    part = 1.0 if shape.clusters == 1 else m.variance / most if most > 0 else 0.0
    if most <= 0 or part < 1e-12:
        return None
    inflation = (t_quantile(shape.freedom, level) / z_quantile(level)) ** 2 * shape.kish / max(shape.kish - 1, 0.5)
    loss = 1 + (1 - (min(part, 1.0) * shape.kish / shape.clusters) ** 2) * (inflation - 1)
    return max(1.0, shape.kish / (part * loss))


def t_quantile(freedom: float, level: float = 0.95) -> float:
    """Student's t that a share `level` of draws does not exceed in size; at least one degree of freedom is assumed.

    >>> round(t_quantile(9), 3)
    2.262
    """
    from scipy.special import stdtrit  # a fifth of the time that importing scipy.stats takes

    return float(stdtrit(max(freedom, 1.0), (1 + level) / 2))


def z_quantile(level: float = 0.95) -> float:
    """The same of the normal distribution.

    >>> round(z_quantile(), 3)
    1.96
    """
    from statistics import NormalDist

    return NormalDist().inv_cdf((1 + level) / 2)
