"""Two readings of the same pairs: two judges, two protocols, two dimensions."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from evenhand.core.columns import Block
from evenhand.core.stats.clusters import Weighting
from evenhand.core.stats.winrate import Difference, difference_p, paired_difference
from evenhand.results.counting import DEFAULT, Counting
from evenhand.results.summary import Span, span


@dataclass(frozen=True)
class PairValues:
    """The values of one dimension for every pair with a verdict, with the pair and the cluster of each."""

    keys: NDArray[np.uint64]
    clusters: NDArray[np.uint64]
    hard: NDArray[np.float64]
    expected: NDArray[np.float64]
    turned: NDArray[np.bool_]  # whose sides were exchanged, so that the values are those of the other side


@dataclass(frozen=True, slots=True)
class PairedRates:
    """Two win rates on the same pairs by probabilities, and their difference."""

    win_rate_1: float | None
    win_rate_1_other: float | None
    difference: float | None
    ci: Span | None
    decided: bool


@dataclass(frozen=True, slots=True)
class Comparison:
    """The paired difference of two readings, by verdicts and by their probabilities."""

    dimension: str
    against: str
    n: int
    clusters: int
    win_rate_1: float | None
    win_rate_1_other: float | None
    difference: float | None
    ci: Span | None
    decided: bool
    expected: PairedRates
    ci_method: str
    ci_level: float
    weighting: Weighting  # what weighs the same in rates and difference
    p: float | None  # of no difference, by verdicts
    p_holm: float | None = None  # corrected for the other comparisons that are shown with it
    fingerprint: str | None = None  # of the other judge
    db: str | None = None  # where the other is kept, if elsewhere


def values_of(blocks: Iterable[Block]) -> dict[str, PairValues]:
    """The values of each dimension."""
    parts: dict[str, list[PairValues]] = {}
    for block in blocks:
        for name, found in block.outcomes.items():
            rows = np.flatnonzero(found.valid)
            parts.setdefault(name, []).append(
                PairValues(
                    *(block.key[rows], block.cluster[rows], found.value[rows], found.expected[rows]),
                    np.full(len(rows), block.is_turned),
                )
            )
    return {name: _joined(some) for name, some in parts.items()}


def _joined(parts: list[PairValues]) -> PairValues:
    names = ("keys", "clusters", "hard", "expected", "turned")
    return PairValues(*(np.concatenate([getattr(part, name) for part in parts]) for name in names))


def _of_side_1(values: NDArray[np.float64], exchanged: NDArray[np.bool_]) -> NDArray[np.float64]:
    return np.where(exchanged, 1 - values, values)


def compare(
    first: PairValues,
    second: PairValues,
    dimension: str,
    against: str,
    *,
    counting: Counting = DEFAULT,
    fingerprint: str | None = None,
    db: str | None = None,
) -> Comparison:
    """The paired difference over the pairs that both have; pairs are the same where their texts are.

    So a pair that stands twice counts once. Both readings are of the side that is side 1 in the first.
    """
    _, here, there = np.intersect1d(first.keys, second.keys, return_indices=True)
    clusters = first.clusters[here]
    exchanged = first.turned[here] != second.turned[there]
    values = {
        reading: (getattr(first, reading)[here], _of_side_1(getattr(second, reading)[there], exchanged))
        for reading in ("hard", "expected")
    }
    weighting = counting.weighting
    hard, expected = (paired_difference(*pair, clusters, weighting=weighting) for pair in values.values())
    p = difference_p(*values["hard"], clusters, weighting=weighting)
    return Comparison(
        *(dimension, against, hard.n, hard.clusters, hard.first, hard.second, hard.value),
        *(span(hard.low, hard.high), hard.decided, _rates(expected), hard.method, hard.level, weighting, p),
        fingerprint=fingerprint,
        db=db,
    )


def _rates(found: Difference) -> PairedRates:
    return PairedRates(found.first, found.second, found.value, span(found.low, found.high), found.decided)
