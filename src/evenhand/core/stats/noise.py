"""Noise beside bias: how often a judge changes its answer with nothing changed, and how much of it is the order.

A judge that is asked twice, in another order, may change its answer because of the order, or because it would have
changed it anyway. If it is asked twice in each order, the two can be separated. For one pair let f and s be the
probabilities of its answers in the forward and in the swapped order. Two answers differ

    with nothing changed       1 - (f·f + s·s) / 2
    with the order changed     1 - f·s

and the second is larger by |f - s|² / 2, which is 0 exactly where the order changes nothing. So what goes beyond
noise is position bias (this is the energy distance of Székely and Rizzo 2013, "Energy statistics: a class of
statistics based on distances", J. Statistical Planning and Inference 143, 1249-1272, with distance 1 between
different answers). Both shares have unbiased estimates: pairs of answers of the same order, and pairs of answers of
different orders.

Verdicts are codes of sides, as in `agreement`: 0 for side 1, 1 for side 2, 2 for a tie, -1 for none.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from evenhand.core.stats.agreement import MISSING, TIE, Codes
from evenhand.core.stats.clustered import Array, Estimate, Extremes, estimate, mean, ratio, sums_by_cluster


@dataclass(frozen=True, slots=True)
class Noise:
    """Changes of a judge's answers, taken apart; all on the pairs that were asked twice in some order and in both.

    `position` is `changes` less `noise`. `noise_share` is the part of the changes that noise alone would make.
    """

    noise: Estimate
    changes: Estimate
    position: Estimate
    noise_share: Estimate


def split_changes(
    forward: ArrayLike,
    swapped: ArrayLike,
    clusters: ArrayLike,
    *,
    sides_only: bool = False,
    level: float = 0.95,
) -> Noise:
    """Changes with the order, taken apart into noise and position bias.

    `forward` and `swapped` have a row for each pair and a column for each repetition (two or more). With
    `sides_only` a change is one from side 1 to side 2 or back (a flip), and a tie changes nothing.

    >>> found = split_changes([[0, 0], [0, 1]], [[1, 1], [0, 1]], ["a", "b"])
    >>> found.noise.value, found.changes.value, found.position.value, round(found.noise_share.value, 2)
    (0.5, 0.75, 0.25, 0.67)
    """
    one, two = _table(forward), _table(swapped)
    inside, times_inside = _apart(one, one, sides_only, same=True)
    also, times_also = _apart(two, two, sides_only, same=True)
    across, times_across = _apart(one, two, sides_only, same=False)
    keep = (times_inside + times_also > 0) & (times_across > 0)
    # Each order weighs the same where both were repeated, or the difference would not be the order's alone.
    orders = np.maximum((times_inside > 0).astype(np.float64) + (times_also > 0), 1.0)
    noise = (inside / np.maximum(times_inside, 1) + also / np.maximum(times_also, 1)) / orders
    changes = across / np.maximum(times_across, 1)
    return _noise(noise[keep], changes[keep], np.asarray(clusters)[keep], level)


def _noise(noise: Array, changes: Array, clusters: Array, level: float) -> Noise:
    sums = sums_by_cluster(np.column_stack([noise, changes]), clusters)
    share = estimate(
        sums, ratio, n=len(noise), bounds=(0.0, np.inf), extremes=Extremes((1, 1), (0, 1), 0.5), level=level
    )
    return Noise(
        mean(noise, clusters, level=level),
        mean(changes, clusters, level=level),
        mean(changes - noise, clusters, bounds=(-1.0, 1.0), level=level, adjust=1.0),
        share,
    )


def _apart(one: Codes, two: Codes, sides_only: bool, *, same: bool) -> tuple[Array, Array]:
    """By pair: how many pairings of answers differ, and of how many; with `same`, none pairs an answer with
    itself.
    """
    first, second = one[:, :, None], two[:, None, :]
    there = (first != MISSING) & (second != MISSING)
    if same:
        there = there & ~np.eye(one.shape[1], dtype=bool)
    differ = there & (first != second)
    if sides_only:
        differ &= (first != TIE) & (second != TIE)
    return differ.sum(axis=(1, 2)).astype(np.float64), there.sum(axis=(1, 2)).astype(np.float64)


def _table(values: ArrayLike) -> Codes:
    table = np.asarray(values, dtype=np.int64)
    if table.ndim != 2:
        raise ValueError("answers have a row for each pair and a column for each repetition")
    return table
