"""Biases: a leaning to a place, to the longer output, and verdicts that turn with the order.

Verdicts are codes of sides, as in `agreement`: 0 for side 1, 1 for side 2, 2 for a tie, -1 for none.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from evenhand.core.stats.agreement import MISSING, TIE, Codes, compare, score_sides
from evenhand.core.stats.clustered import Array, Estimate, Weights, mean

# Scores that are seldom at the ends of their range need few made-up clusters; see `stats/clustered.py`.
LIGHT = 0.5


def flip_rate(forward: ArrayLike, swapped: ArrayLike, clusters: ArrayLike, *, level: float = 0.95) -> Estimate:
    """The share of pairs in which one order chose side 1 and the other side 2.

    >>> flip_rate([0, 0, 2, 1], [1, 0, 0, 1], range(4)).value
    0.25
    """
    one, two, keep = _both(forward, swapped)
    flipped = (one != two) & (one != TIE) & (two != TIE)
    return mean(flipped, clusters, level=level, rows=keep)


def change_rate(forward: ArrayLike, swapped: ArrayLike, clusters: ArrayLike, *, level: float = 0.95) -> Estimate:
    """The share of pairs in which the two orders did not say the same, ties included.

    >>> change_rate([0, 0, 2, 1], [1, 0, 0, 1], range(4)).value
    0.5
    """
    one, two, keep = _both(forward, swapped)
    return mean(one != two, clusters, level=level, rows=keep)


def position_bias(forward: ArrayLike, swapped: ArrayLike, clusters: ArrayLike, *, level: float = 0.95) -> Estimate:
    """How often the response shown first was chosen, less how often the second was: -1 to 1, 0 is no leaning.

    Each response stands first once, so the better one adds as much as it takes away.

    >>> position_bias([0, 0, 0, 2], [1, 0, 2, 2], range(4)).value
    0.375
    """
    one, two, keep = _both(forward, swapped)
    first = (one == 0).astype(np.float64) + (two == 1)
    second = (one == 1).astype(np.float64) + (two == 0)
    bias = (first - second) / 2
    return mean(bias, clusters, bounds=(-1.0, 1.0), level=level, adjust=1.0, rows=keep)


def longer_side(length_1: ArrayLike, length_2: ArrayLike) -> Codes:
    """The side of the longer output; a tie where both are equally long.

    >>> longer_side([3, 1, 2], [1, 3, 2])
    array([0, 1, 2])
    """
    one, two = np.asarray(length_1), np.asarray(length_2)
    return np.where(one == two, TIE, (two > one).astype(np.int64))


def longer_rate(
    verdicts: ArrayLike, longer: ArrayLike, clusters: ArrayLike, *, level: float = 0.95, weights: Weights = None
) -> Estimate:
    """How often the longer output is chosen, a tie counting one half; pairs of equal length are left out.

    >>> longer_rate([0, 1, 2], [0, 0, 1], range(3)).value
    0.5
    """
    chosen = score_sides(verdicts, longer)
    return mean(chosen, clusters, level=level, weights=weights, rows=~np.isnan(chosen))


def length_bias(
    verdicts: ArrayLike,
    truth: ArrayLike,
    longer: ArrayLike,
    clusters: ArrayLike,
    *,
    level: float = 0.95,
    weights: Weights = None,
) -> Estimate:
    """How much more often the judge chooses the longer output than people do, on the same pairs: -1 to 1.

    People may have good reasons to prefer the longer output; only what goes beyond theirs is the judge's leaning.

    >>> length_bias([0, 0, 1], [0, 1, 1], [0, 0, 1], range(3)).value
    0.333...
    """
    judge, people = score_sides(verdicts, longer), score_sides(truth, longer)
    return compare(judge, people, clusters, level=level, weights=weights)


def label_mass(mass: ArrayLike, clusters: ArrayLike, *, level: float = 0.95) -> Estimate:
    """The mean probability that fell on any label at all; rows without one are left out.

    >>> label_mass([1.0, 0.5, float("nan")], range(3)).value
    0.75
    """
    values: Array = np.asarray(mass, dtype=np.float64)
    return mean(values, clusters, level=level, adjust=LIGHT, rows=~np.isnan(values))


def _both(forward: ArrayLike, swapped: ArrayLike) -> tuple[Codes, Codes, Codes]:
    one, two = (np.asarray(side, dtype=np.int64).reshape(-1) for side in (forward, swapped))
    return one, two, np.flatnonzero((one != MISSING) & (two != MISSING))
