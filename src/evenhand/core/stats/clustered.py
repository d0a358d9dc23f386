"""Estimates with intervals of any statistic of sums, where rows that belong together are one cluster.

A win rate has a narrower interval of its own, in `clusters.py`; this one serves whatever is a function of sums
over rows: kappas, correlations, differences, biases. Taking a cluster's sums away gives what the statistic would
be without that cluster. The spread of those values is the delete-one-cluster jackknife's variance: Efron & Stein
(1981), "The jackknife estimate of variance", Annals of Statistics 9, 586-596; for clusters MacKinnon, Nielsen &
Webb (2023), "Cluster-robust inference: a guide to empirical practice", Journal of Econometrics 232, 272-299.

A statistic at the end of its range has no spread, but that does not make it certain. So the interval is taken
around the data with a few made-up clusters of mean size, some as good and as many as bad as can be: for shares
this is Agresti & Coull (1998), "Approximate is better than 'exact'", The American Statistician 52, 119-126, and
for differences of paired shares Bonett & Price (2012), "Adjusted Wald confidence interval for a difference of
binomial proportions based on paired data", Journal of Educational and Behavioral Statistics 37, 479-488. The value
itself stays the data's own.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from evenhand.core.stats.clusters import Floats, ordered_sum, places, t_quantile

Array = Floats
Weights = ArrayLike | None  # of rows, None where all weigh the same
Statistic = Callable[[Array], Array]
METHOD = "delete-one-cluster jackknife, t"
_ADJUSTED = "delete-one-cluster jackknife, t, adjusted"


@dataclass(frozen=True, slots=True)
class Estimate:
    """A number with its interval, and how it came about; None where it has no meaning."""

    value: float | None
    low: float | None
    high: float | None
    n: int
    clusters: int
    level: float = 0.95
    method: str = METHOD


@dataclass(frozen=True, slots=True)
class Extremes:
    """What one row adds to the sums at either end of a statistic's range, and how many such clusters to make up.

    `clusters` is the number at each end; None is half the square of the interval's quantile, 1.9 at 95%.
    """

    good: Sequence[float]
    bad: Sequence[float]
    clusters: float | None = None


def sums_by_cluster(columns: ArrayLike, clusters: ArrayLike) -> Array:
    """One row of sums for each cluster; neither the order of rows nor the names of clusters matter.

    >>> sums_by_cluster([[1, 1], [0, 1], [1, 1]], ["x", "y", "x"])
    array([[0., 1.],
           [2., 2.]])
    """
    table = np.asarray(columns, dtype=np.float64)
    groups = places(clusters)
    count = int(groups.max()) + 1 if groups.size else 0
    sums = np.zeros((count, table.shape[1] if table.ndim == 2 else 0))
    for column in range(sums.shape[1]):
        # Sorted first: the sum of floating-point numbers depends on their order in its last digits.
        order = np.lexsort((table[:, column], groups))
        sums[:, column] = np.bincount(groups[order], weights=table[order, column], minlength=count)
    return sums[np.lexsort(sums.T[::-1])] if count else sums


def estimate(
    sums: Array,
    statistic: Statistic,
    *,
    n: int,
    bounds: tuple[float, float] = (-np.inf, np.inf),
    extremes: Extremes | None = None,
    level: float = 0.95,
    freedom: float | None = None,
) -> Estimate:
    """A statistic of sums with its interval; None for both ends where there is one cluster.

    `statistic` takes sums along the last axis: (..., columns) -> (...). `freedom` are the degrees of freedom of
    the spread, one less than there are clusters unless something else is given.

    >>> share = lambda sums: sums[..., 0] / sums[..., 1]
    >>> found = estimate(np.array([[1.0, 1.0]] * 8 + [[0.0, 1.0]] * 2), share, n=10, bounds=(0, 1))
    >>> round(found.value, 2), round(found.low, 2), round(found.high, 2)
    (0.8, 0.5, 1.0)
    """
    count = len(sums)
    value = _value(sums, statistic) if count else None
    if value is None or count < 2:
        return Estimate(value, None, None, n, count, level)
    quantile = t_quantile(count - 1 if freedom is None else min(freedom, count - 1), level)
    weights = np.ones(count)
    if extremes is not None:
        made_up = quantile**2 / 2 if extremes.clusters is None else extremes.clusters
        size = _total(sums[:, -1:])[0] / count
        sums = np.vstack([sums, np.array([extremes.good, extremes.bad], dtype=np.float64) * size])
        weights = np.append(weights, [made_up, made_up])
    centre, error = _jackknife(sums, weights, statistic)
    if centre is None or error is None:
        return Estimate(value, None, None, n, count, level)
    low, high = (float(np.clip(centre + sign * quantile * error, *bounds)) for sign in (-1, 1))
    method = METHOD if extremes is None else _ADJUSTED
    return Estimate(value, min(low, value), max(high, value), n, count, level, method)


def mean(
    values: ArrayLike,
    clusters: ArrayLike,
    *,
    bounds: tuple[float, float] = (0.0, 1.0),
    level: float = 0.95,
    adjust: float | None = None,
    weights: Weights = None,
    rows: ArrayLike | None = None,
) -> Estimate:
    """The mean over rows of values that keep within bounds; over some of the `rows`, where these are named.

    `weights` are one over the probability with which a row was drawn; the mean is then Hájek's, and rows with a
    weight of 0 or nan are left out.

    >>> mean([1, 1, 1, 1], ["a", "b", "c", "d"]).low < 0.7
    True
    >>> mean([1, 1, 0, 1], ["a", "b", "c", "d"], weights=[1, 1, 2, 0]).value
    0.5
    """
    column, groups = np.asarray(values, dtype=np.float64).reshape(-1), np.asarray(clusters)
    drawn = np.ones(len(column)) if weights is None else np.asarray(weights, dtype=np.float64).reshape(-1)
    if rows is not None:
        column, groups, drawn = (each[np.asarray(rows)] for each in (column, groups, drawn))
    keep = drawn > 0
    column, groups, drawn = column[keep], groups[keep], drawn[keep]
    sums = sums_by_cluster(np.column_stack([column * drawn, drawn]), groups)
    low, high = bounds
    return estimate(
        sums,
        ratio,
        n=len(column),
        bounds=bounds,
        extremes=Extremes((high, 1.0), (low, 1.0), adjust),
        level=level,
        freedom=None if weights is None else weighted_freedom(sums[:, -1]),
    )


def picked(weights: Weights, keep: ArrayLike) -> Array | None:
    """The weights of some of the rows, where there are weights.

    >>> picked(None, [True]) is None, picked([1.0, 2.0], [False, True])
    (True, array([2.]))
    """
    return None if weights is None else np.asarray(weights, dtype=np.float64).reshape(-1)[np.asarray(keep)]


def weighted_freedom(sizes: Array) -> float:
    """Satterthwaite's degrees of freedom, of a variance over clusters of unequal weight.

    >>> weighted_freedom(np.array([1.0, 1.0, 1.0]))
    2.0
    """
    squares = ordered_sum(sizes**2)
    return squares**2 / ordered_sum(sizes**4) - 1 if squares > 0 else 0.0


def difference(
    one: ArrayLike,
    other: ArrayLike,
    clusters: ArrayLike,
    *,
    level: float = 0.95,
    weights: Weights = None,
    rows: ArrayLike | None = None,
) -> Estimate:
    """The mean difference of two scores between 0 and 1 of the same rows.

    >>> found = difference([1, 1, 0, 1], [1, 0, 0, 1], ["a", "b", "c", "d"])
    >>> found.value, found.low < 0 < found.high
    (0.25, True)
    """
    gap = np.asarray(one, dtype=np.float64) - np.asarray(other, dtype=np.float64)
    return mean(gap, clusters, bounds=(-1.0, 1.0), level=level, adjust=1.0, weights=weights, rows=rows)


def ratio(sums: Array) -> Array:
    """The first sum over the last.

    >>> float(ratio(np.array([1.0, 4.0])))
    0.25
    """
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.asarray(sums[..., 0] / sums[..., -1], dtype=np.float64)


def _value(sums: Array, statistic: Statistic) -> float | None:
    value = float(statistic(_total(sums)))
    return value if np.isfinite(value) else None


def _total(sums: Array) -> Array:
    """Each column sorted before it is summed, so that columns that exchange their places keep every bit."""
    return np.asarray(np.sort(sums, axis=0).sum(axis=0))


def _jackknife(sums: Array, weights: Array, statistic: Statistic) -> tuple[float | None, float | None]:
    """The statistic, and its standard error by leaving out one cluster after the other."""
    total = _total(sums * weights[:, None])
    without = statistic(total - sums)
    centre = float(statistic(total))
    count = float(weights.sum())
    if not np.isfinite(centre) or not np.isfinite(without).all():
        return None, None
    spread = ordered_sum(weights * (without - centre) ** 2)
    return centre, float(np.sqrt(spread * (count - 1) / count))
