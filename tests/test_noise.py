"""Noise and position bias taken apart: against plain loops, and against simulated truth."""

from __future__ import annotations

from itertools import combinations, product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from evenhand.core.stats.noise import split_changes

answers = st.lists(st.lists(st.sampled_from([-1, 0, 1, 2]), min_size=4, max_size=4), min_size=1, max_size=12)


def naive(rows: list[list[int]], sides_only: bool) -> tuple[float, float] | None:
    """Mean over pairs of the share of twos of answers that differ: of one order, and of different orders."""

    def differ(a: int, b: int) -> bool:
        return a != b and not (sides_only and 2 in (a, b))

    noise, changes = [], []
    for row in rows:
        forward, swapped = [a for a in row[:2] if a != -1], [a for a in row[2:] if a != -1]
        within = [[differ(a, b) for a, b in combinations(order, 2)] for order in (forward, swapped)]
        across = [differ(a, b) for a, b in product(forward, swapped)]
        if any(within) and across:
            noise.append(float(np.mean([np.mean(some) for some in within if some])))
            changes.append(float(np.mean(across)))
    return (float(np.mean(noise)), float(np.mean(changes))) if noise else None


@settings(max_examples=150, deadline=None)
@given(answers, st.booleans())
def test_the_shares_are_those_of_plain_loops(rows: list[list[int]], sides_only: bool) -> None:
    table = np.array(rows)
    found = split_changes(table[:, :2], table[:, 2:], range(len(rows)), sides_only=sides_only)
    expected = naive(rows, sides_only)
    if expected is None:
        assert (found.noise.value, found.changes.value, found.position.value) == (None, None, None)
        return
    assert found.noise.value == pytest.approx(expected[0])
    assert found.changes.value == pytest.approx(expected[1])
    assert found.position.value == pytest.approx(expected[1] - expected[0])


def test_a_judge_without_noise_changes_with_the_order_alone() -> None:
    found = split_changes([[0, 0]] * 20 + [[1, 1]] * 20, [[0, 0]] * 30 + [[1, 1]] * 10, range(40))
    assert (found.noise.value, found.changes.value, found.position.value) == (0.0, 0.25, 0.25)
    assert found.noise_share.value == 0.0


def test_more_repetitions_are_used() -> None:
    three = split_changes([[0, 0, 1]], [[1, 1, 1]], ["x"])
    assert three.noise.value == pytest.approx((2 / 3 + 0) / 2)
    assert three.changes.value == pytest.approx(2 / 3)


def test_answers_without_repetitions_are_refused() -> None:
    with pytest.raises(ValueError, match="a column for each repetition"):
        split_changes([0, 1], [0, 1], range(2))


def test_clusters_widen_the_interval() -> None:
    rng = np.random.default_rng(0)
    one = rng.integers(0, 2, (30, 4)).repeat(5, axis=0)
    alone, together = (
        split_changes(one[:, :2], one[:, 2:], clusters).noise for clusters in (range(150), np.arange(150) // 5)
    )
    assert alone.value == together.value
    assert alone.low is not None
    assert together.low is not None
    assert together.low < alone.low


@pytest.mark.parametrize("order", [0.0, 2.0])
def test_simulated_noise_and_bias_are_found(order: float) -> None:
    """Opinions in log-odds, moved by the order; benchmarks/coverage_card.py has more."""
    held, values = np.zeros(2), np.zeros(2)
    opinion = np.random.default_rng(9).normal(0, 2, 200_000)
    first, second = (1 / (1 + np.exp(-(opinion + sign * order))) for sign in (1, -1))
    noise = float(np.mean(first * (1 - first) + second * (1 - second)))
    position = float(np.mean(first * (1 - second) + second * (1 - first))) - noise
    for seed in range(120):
        rng = np.random.default_rng([3, seed])
        opinion = rng.normal(0, 2, 100)
        said = [
            (rng.random((100, 2)) > 1 / (1 + np.exp(-(opinion + sign * order)))[:, None]).astype(int)
            for sign in (1, -1)
        ]
        found = split_changes(said[0], said[1], range(100))
        for place, (estimate, truth) in enumerate(((found.noise, noise), (found.position, position))):
            assert estimate.value is not None
            assert estimate.low is not None
            assert estimate.high is not None
            held[place] += estimate.low <= truth <= estimate.high
            values[place] += estimate.value / 120
    assert values == pytest.approx([noise, position], abs=0.015)
    assert (held >= 0.9 * 120).all()
