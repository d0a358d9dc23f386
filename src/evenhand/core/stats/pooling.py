"""What a second order buys: the judge's score with both orders less that with one, like with like.

A label scores one half where it is a tie; a lean, the side with the larger probability, never is one. So a lean of
both orders beside a label of one gains wherever the label was a tie, without the second order having said anything
new. A label is compared with a label here, a lean with a lean and a probability with a probability: where both
orders said the same, each of the three is 0.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from evenhand.core.stats.agreement import MISSING, TIE, Codes, compare, is_decided, score_sides
from evenhand.core.stats.clustered import Array, Estimate


@dataclass(frozen=True, slots=True)
class Gain:
    """Both orders less one order, on decided pairs; None where probabilities are not known."""

    hard: Estimate  # labels: right 1, tie one half, wrong 0
    lean: Estimate | None  # the side with the larger probability
    expected: Estimate | None  # p(right side) + p(tie) / 2


def pooling_gain(
    both: ArrayLike,
    one: ArrayLike,
    truth: ArrayLike,
    clusters: ArrayLike,
    *,
    p_both: ArrayLike | None = None,
    p_one: ArrayLike | None = None,
    level: float = 0.95,
    weights: ArrayLike | None = None,
) -> Gain:
    """How much higher both orders score than one, by labels (codes as in `agreement`) and by probabilities.

    `p_both` and `p_one` are rows of three in sides: p(1), p(2), p(tie), nan where there is none.

    >>> found = pooling_gain([0, 0, 1], [0, 2, 1], [0, 0, 0], range(3))
    >>> round(found.hard.value, 3), found.lean
    (0.167, None)
    """
    hard = compare(score_sides(both, truth), score_sides(one, truth), clusters, level=level, weights=weights)
    if p_both is None or p_one is None:
        return Gain(hard, None, None)
    two, single = (np.asarray(p, dtype=np.float64).reshape(-1, 3) for p in (p_both, p_one))
    lean_2, lean_1 = (score_sides(lean_of(p), truth) for p in (two, single))
    share_2, share_1 = (_expected(p, truth) for p in (two, single))
    return Gain(
        hard,
        compare(lean_2, lean_1, clusters, level=level, weights=weights),
        compare(share_2, share_1, clusters, level=level, weights=weights),
    )


def lean_of(p: ArrayLike) -> Codes:
    """The side with the larger probability; a tie where both are the same, none where there is no probability.

    >>> lean_of([[0.3, 0.2, 0.5], [0.2, 0.2, 0.6], [float("nan")] * 3]).tolist()
    [0, 2, -1]
    """
    table = np.asarray(p, dtype=np.float64).reshape(-1, 3)
    gap = table[:, 0] - table[:, 1]
    return np.where(np.isnan(gap), MISSING, np.where(gap == 0, TIE, (gap < 0).astype(np.int64)))


def _expected(p: Array, truth: ArrayLike) -> Array:
    true = np.asarray(truth, dtype=np.int64).reshape(-1)
    right = np.where(true == 0, p[:, 0], p[:, 1]) + p[:, 2] / 2
    return np.where(is_decided(true), right, np.nan)
