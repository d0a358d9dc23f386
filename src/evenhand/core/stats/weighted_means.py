"""Means over clusters of values that do not all weigh the same.

Two things make weights: how pairs came to be labelled (one over the probability, so that those that were likely to
be asked about do not speak for the others) and what is wanted (each pair the same, or each instruction the same).
The mean is Hájek's (1971), "Comment on a paper by D. Basu": the weighted sum over the sum of the weights. Its
variance is that over clusters, after Binder (1983), "On the variances of asymptotically normal estimators from
complex surveys", International Statistical Review 51, 279-292, with the corrections of `clusters.py`.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from evenhand.core.stats.clusters import Floats, Ints, Moments, Shape, Signed, Weighting, joined, ordered_sum


def target_weights(place: Ints, weighting: Weighting = "pairs") -> Floats:
    """What each pair weighs where each pair is to count the same, or each instruction.

    >>> target_weights(np.array([0, 1, 1]), "instructions").tolist()
    [1.0, 0.5, 0.5]
    """
    if weighting == "pairs":
        return np.ones(len(place))
    return np.asarray(1.0 / np.bincount(place)[place], dtype=np.float64)


@dataclass(frozen=True, slots=True)
class Weighed:
    """Clusters with weights: the share of the weight that each has, and their shape."""

    place: Ints
    weights: Floats  # of the rows, adding up to one
    shares: Floats  # of the clusters
    shape: Shape

    def mean(self, values: Floats) -> float:
        """The weighted mean."""
        return ordered_sum(self.weights * values)

    def adds(self, values: Floats, mean: float) -> Floats:
        """What each cluster adds to the error of the mean."""
        return cluster_sums(self.weights * (values - mean), self.place, len(self.shares))

    def covariance(self, one: Floats, other: Floats) -> float:
        """Of two means, from what clusters add to each: CR2, scaled as in `clusters.py`."""
        if self.shape.clusters < 2:
            return 0.0
        free = np.where(self.shares < 1, 1 - self.shares, 1.0)
        return ordered_sum(one * other / free) * (1 - 1 / self.shape.kish)

    def moments(self, values: Floats) -> Moments:
        """The mean, its variance over clusters and the largest mean of a cluster."""
        mean = self.mean(values)
        adds = self.adds(values, mean)
        there = self.shares > 0
        sums = cluster_sums(self.weights * values, self.place, len(self.shares))
        largest = float((sums[there] / self.shares[there]).max())
        return Moments(mean, self.covariance(adds, adds), largest, self.shape)


def weigh(place: Ints, weights: ArrayLike, count: int | None = None) -> Weighed:
    """Rows in clusters with their weights, of which at least one is above 0.

    >>> found = weigh(np.array([0, 1, 2]), [1.0, 1.0, 2.0])
    >>> found.mean(np.array([0.0, 0.0, 1.0])), round(found.shape.kish, 3)
    (0.5, 2.667)
    """
    w = np.asarray(weights, dtype=np.float64)
    w = w / ordered_sum(w)
    shares = cluster_sums(w, place, count)
    squares = ordered_sum(shares**2)
    shape = Shape(int((w > 0).sum()), int((shares > 0).sum()), 1 / squares, squares**2 / ordered_sum(shares**4) - 1)
    return Weighed(place, w, shares, shape)


def cluster_sums(values: Floats, place: Ints, count: int | None = None) -> Floats:
    """Sums by cluster that are the same in the last digit however the rows are ordered.

    >>> cluster_sums(np.array([1.0, 2.0, 3.0]), np.array([1, 0, 1])).tolist()
    [2.0, 4.0]
    """
    order = np.lexsort((values, place))
    return np.bincount(place[order], values[order], minlength=count or 0).astype(np.float64)


def signed_mean(values: Floats, weighed: Weighed, level: float = 0.95) -> Signed:
    """The weighted mean of values between -1 (lost) and 1 (won), with the interval of `clusters.py`.

    >>> found = signed_mean(np.array([1.0, -1.0, 1.0]), weigh(np.arange(3), [1.0, 1.0, 2.0]))
    >>> found.mean, found.low < 0 < found.high
    (0.5, True)
    """
    won, lost = np.maximum(values, 0.0), np.maximum(-values, 0.0)
    plus, minus = weighed.moments(won), weighed.moments(lost)
    together = weighed.covariance(weighed.adds(won, plus.mean), weighed.adds(lost, minus.mean))
    return joined(plus, minus, together, level, plus.mean - minus.mean, weighed.shape.n)
