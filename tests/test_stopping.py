"""What may be said after a run that stopped when it had seen enough."""

from __future__ import annotations

import random

import pytest

from evenhand.core.stats.sequence import ConfidenceSequence
from evenhand.core.stats.stopping import Stopped, anytime_interval


def test_it_is_the_sequence_of_cluster_means() -> None:
    found = anytime_interval([1.0, 0.0, 0.5, float("nan"), None], ["a", "a", "b", "c", "c"])
    sequence = ConfidenceSequence()
    sequence.add(0.5)
    sequence.add(0.5)
    sequence.add(None)
    assert found.bounds == sequence.bounds
    assert (found.pairs, found.invalid) == (5, 2)


def test_half_known_clusters_are_bounded_by_what_they_may_have_been() -> None:
    bounds = anytime_interval([1.0, None] * 10, [number // 2 for number in range(20)]).bounds
    assert (bounds.value, bounds.least, bounds.most) == (1.0, 0.5, 1.0)


def test_clusters_that_are_torn_apart_are_refused() -> None:
    with pytest.raises(ValueError, match="follow each other"):
        anytime_interval([1.0, 1.0, 1.0], ["a", "b", "a"])


def test_nothing_seen_says_nothing() -> None:
    found = anytime_interval([])
    assert (found.bounds.value, found.middle, found.bounds.low, found.bounds.high) == (None, None, 0.0, 1.0)


def stopped(rate: float, dice: random.Random, most: int = 150) -> Stopped:
    """A run that ends when one half is excluded."""
    values: list[float] = []
    sequence = ConfidenceSequence()
    while len(values) < most and sequence.bounds.low <= 0.5 <= sequence.bounds.high:
        values.append(float(dice.random() < rate))
        sequence.add(values[-1])
    return anytime_interval(values)


@pytest.mark.parametrize("rate", [0.5, 0.6, 0.7])
def test_it_holds_under_optional_stopping_and_the_share_leans_as_told(rate: float) -> None:
    """benchmarks/sequence.py has more repetitions."""
    dice = random.Random(5)
    found = [stopped(rate, dice) for _ in range(120)]
    held = sum(one.bounds.low <= rate <= one.bounds.high for one in found)
    assert held >= 0.95 * 120 - 4
    lean = sum((one.bounds.value or 0.0) - rate for one in found) / 120
    middle = sum((one.middle or 0.0) - rate for one in found) / 120
    assert abs(middle) < 0.03
    if rate > 0.5:
        assert 0.01 < lean < 0.09
        assert abs(middle) < lean
        assert "leans away" in found[0].word
