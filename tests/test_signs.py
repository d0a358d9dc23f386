"""The sign test against a naive one, and how often it is wrong where there is nothing to find."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from evenhand.core.stats.signs import sign_test
from evenhand.core.stats.winrate import paired_difference

SHIFTS = st.lists(st.tuples(st.integers(0, 8), st.sampled_from([-1.0, -0.25, 0.0, 0.25, 0.5])), max_size=30)


def naive(rows: list[tuple[int, float]]) -> tuple[int, int, float | None]:
    sums: dict[int, float] = {}
    for cluster, value in rows:
        sums[cluster] = sums.get(cluster, 0.0) + value
    up, down = sum(x > 0 for x in sums.values()), sum(x < 0 for x in sums.values())
    n = up + down
    tail = sum(math.comb(n, k) for k in range(min(up, down) + 1)) / 2**n
    return up, down, min(1.0, 2 * tail) if sums else None


@given(SHIFTS)
def test_it_is_the_naive_one(rows: list[tuple[int, float]]) -> None:
    found = sign_test([value for _, value in rows], [cluster for cluster, _ in rows])
    up, down, p = naive(rows)
    assert (found.up, found.down) == (up, down)
    assert found.p == (p if p is None else pytest.approx(p))


@pytest.mark.parametrize("n", [12, 22, 60])
def test_where_both_ways_are_as_likely_it_keeps_its_level(n: int) -> None:
    """Steps to either side are as likely and of other sizes, so that the mean is not zero."""
    rng = np.random.default_rng(n)
    draws = np.where(rng.random((2000, n)) < 0.5, rng.uniform(0, 0.9, (2000, n)), rng.uniform(-0.1, 0, (2000, n)))
    assert np.mean([(sign_test(row).p or 1.0) <= 0.05 for row in draws]) <= 0.06


def test_what_it_finds_need_not_be_so_of_the_mean() -> None:
    """Nine of ten shifts are small and up, one is large and down, and the mean is zero: only the interval knows."""
    rng = np.random.default_rng(4)
    draws = np.where(rng.random((300, 12)) < 0.9, 0.1, -0.9)
    assert np.mean([(sign_test(row).p or 1.0) <= 0.05 for row in draws]) > 0.8
    assert np.mean([paired_difference(row, np.zeros(12)).decided for row in draws]) <= 0.06
