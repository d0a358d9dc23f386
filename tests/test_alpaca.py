"""AlpacaEval's length-controlled win rate: the formula against a naive fit, extra rows, refusals, coverage."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import optimize

from evenhand.core.stats.alpaca import GAMED_WEIGHT, PUBLISHED, AlpacaLength, Gamed, alpaca_length_controlled


def drawn(seed: int, n: int = 300) -> tuple[np.ndarray, ...]:
    rng = np.random.default_rng(seed)
    longer, hard = rng.normal(100, 300, n).round(), rng.normal(0, 1, n)
    odds = 0.4 + 1.5 * np.tanh(longer / 300) + 0.7 * hard
    return np.clip(1 / (1 + np.exp(-odds)) + rng.normal(0, 0.2, n), 0, 1), longer, hard


def ends(found: AlpacaLength) -> tuple[float, float, float]:
    assert found.value is not None
    assert found.low is not None
    assert found.high is not None
    return found.value, found.low, found.high


def naive(y: np.ndarray, d: np.ndarray, hard: np.ndarray, gamed: tuple[np.ndarray, ...] | None) -> float:
    """The same by a general optimiser, from the formula."""
    from scipy.special import expit

    def loss(b: np.ndarray, y: np.ndarray, d: np.ndarray, hard: np.ndarray, ours: float) -> float:
        odds = b[0] * ours + b[1] * np.tanh(d / np.std(d, ddof=1)) + b[2] * hard
        return float(np.sum(np.logaddexp(0, odds) - y * odds))

    def total(b: np.ndarray) -> float:
        extra = 0.0 if gamed is None else GAMED_WEIGHT / 2 * loss(b, gamed[0], gamed[1], gamed[2], 0.0)
        return loss(b, y, d, hard, 1.0) + extra + 1e-3 / 2 * float(np.sum(b**2))

    b = optimize.minimize(total, np.zeros(3), method="BFGS", options={"gtol": 1e-8}).x
    return float(expit(b[0] + b[2] * hard).mean())


@pytest.mark.parametrize("with_gamed", [False, True])
def test_it_is_the_formula(with_gamed: bool) -> None:
    y, d, hard = drawn(1)
    rows = drawn(2, 600) if with_gamed else None
    found = alpaca_length_controlled(
        y, d, difficulty=hard, gamed=Gamed(rows[0], rows[1], rows[2]) if rows else None
    )
    assert found.value == pytest.approx(naive(y, d, hard, rows), abs=1e-6)
    assert found.spread == pytest.approx(np.std(d, ddof=1))


def test_the_sides_mirror_and_order_does_not_matter() -> None:
    y, d, hard = drawn(3)
    value, low, high = ends(alpaca_length_controlled(y, d, difficulty=hard))
    back = ends(alpaca_length_controlled(1 - y, -d, difficulty=-hard))
    assert back == pytest.approx((1 - value, 1 - high, 1 - low), abs=1e-9)
    order = np.random.default_rng(0).permutation(len(y))
    assert ends(alpaca_length_controlled(y[order], d[order], difficulty=hard[order])) == pytest.approx(
        (value, low, high), abs=1e-12
    )


def test_a_side_that_is_always_longer_has_no_number_of_its_own() -> None:
    y, d, _ = drawn(4)
    found = alpaca_length_controlled(y, np.abs(d) + 1)
    assert (found.value, found.low) == (None, None)
    assert "side 1 is longer in all pairs" in found.reason
    assert alpaca_length_controlled(y, np.abs(d) + 1, prior=PUBLISHED).value is not None


def test_length_that_decides_every_verdict_has_a_finite_fit() -> None:
    d = np.r_[np.arange(-60, 0), np.arange(1, 61)].astype(float)
    value, low, high = ends(alpaca_length_controlled((d > 0).astype(float), d))
    assert value == pytest.approx(0.5, abs=0.01)
    assert 0 <= low < 0.5 < high <= 1


@pytest.mark.parametrize(
    ("values", "longer", "reason"),
    [([1, 0] * 19, list(range(38)), "fewer than 40"), ([1] * 40, list(range(40)), "all verdicts are the same")],
)
def test_it_says_why_there_is_none(values: list[float], longer: list[float], reason: str) -> None:
    assert reason in alpaca_length_controlled(values, longer).reason


def test_the_interval_covers_the_truth() -> None:
    rng = np.random.default_rng(6)
    held = 0
    for _ in range(300):
        longer, hard = rng.normal(80, 200, 200), rng.normal(0, 1, 200)
        odds = 0.5 + np.tanh(longer / 200) + 0.8 * hard
        won = (rng.random(200) < 1 / (1 + np.exp(-odds))).astype(float)
        _, low, high = ends(alpaca_length_controlled(won, longer, difficulty=hard))
        held += low <= 0.599 <= high  # the mean of logistic(0.5 + 0.8 g) over g
    assert held >= 276
