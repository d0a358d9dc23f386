"""Both orders less one: nothing where they say the same, and the naive difference elsewhere."""

from __future__ import annotations

import numpy as np
import pytest

from evenhand.core.stats.agreement import compare, score_sides
from evenhand.core.stats.pooling import lean_of, pooling_gain


def test_identical_orders_gain_nothing() -> None:
    """A judge that mostly says tie and leans rightly: a lean less a label would show a gain out of nothing."""
    rng = np.random.default_rng(0)
    truth = rng.integers(0, 2, 200)
    lean = np.where(rng.random(200) < 0.9, truth, 1 - truth)
    p = np.where((lean == 0)[:, None], [0.4, 0.1, 0.5], [0.1, 0.4, 0.5])
    labels = np.full(200, 2)
    found = pooling_gain(labels, labels, truth, range(200), p_both=p, p_one=p)
    assert found.lean is not None
    assert found.expected is not None
    assert (found.hard.value, found.lean.value, found.expected.value) == (0.0, 0.0, 0.0)
    unlike = compare(score_sides(lean_of(p), truth), score_sides(labels, truth), range(200))
    assert unlike.value is not None
    assert unlike.value > 0.3


def test_each_is_the_difference_of_its_own_kind() -> None:
    truth = [0, 1, 2, 0]
    p_both = np.array([[0.6, 0.3, 0.1], [0.5, 0.4, 0.1], [1, 0, 0], [0.2, 0.2, 0.6]])
    p_one = np.array([[0.2, 0.7, 0.1], [0.1, 0.8, 0.1], [1, 0, 0], [0.3, 0.1, 0.6]])
    found = pooling_gain([0, 0, 0, 2], [1, 1, 0, 2], truth, range(4), p_both=p_both, p_one=p_one)
    assert found.hard.n == 3, "a pair on which people see a tie is not decided"
    assert found.hard.value == pytest.approx((1 - 1 + 0) / 3)
    assert found.lean is not None
    assert found.lean.value == pytest.approx((1 - 1 - 0.5) / 3)
    assert found.expected is not None
    assert found.expected.value == pytest.approx((0.4 - 0.4 - 0.1) / 3)


def test_pairs_without_a_verdict_in_one_order_are_left_out() -> None:
    one = np.array([[float("nan")] * 3, [0.0, 1.0, 0.0]])
    found = pooling_gain([0, 0], [-1, 1], [0, 0], range(2), p_both=[[1, 0, 0]] * 2, p_one=one)
    assert (found.hard.n, found.hard.value) == (1, 1.0)
    assert found.lean is not None
    assert found.lean.n == 1
