"""Wilson's interval: against the equation that defines it, published values, its mirror and its coverage."""

from __future__ import annotations

import math
from statistics import NormalDist

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evenhand.stats.winrate import Rate, win_rate

counts = st.integers(min_value=0, max_value=10_000)


def score(share: float, p: float, n: float) -> float:
    """How many standard errors of p the observed share lies above p."""
    return (share - p) / math.sqrt(p * (1 - p) / n)


def solve_score(share: float, n: float, wanted: float) -> float:
    """Find by bisection the p at which the score is `wanted`; the score falls as p grows."""
    low, high = 1e-15, 1 - 1e-15
    for _ in range(200):
        middle = (low + high) / 2
        low, high = (middle, high) if score(share, middle, n) > wanted else (low, middle)
    return (low + high) / 2


def bounds(rate: Rate) -> tuple[float, float]:
    assert rate.low is not None
    assert rate.high is not None
    return rate.low, rate.high


@pytest.mark.parametrize("level", [0.8, 0.95, 0.99])
@pytest.mark.parametrize(("wins", "ties", "losses"), [(8, 0, 2), (1, 0, 0), (0, 0, 7), (30, 11, 9), (499, 2, 1)])
def test_bounds_solve_the_score_equation(wins: int, ties: int, losses: int, level: float) -> None:
    n = wins + ties + losses
    share = (wins + ties / 2) / n
    z = NormalDist().inv_cdf((1 + level) / 2)
    low, high = bounds(win_rate(wins, ties, losses, level=level))
    assert low == pytest.approx(solve_score(share, n, z) if share > 0 else 0.0, abs=1e-9)
    assert high == pytest.approx(solve_score(share, n, -z) if share < 1 else 1.0, abs=1e-9)


@pytest.mark.parametrize(
    ("wins", "n", "low", "high"),
    [
        # Newcombe (1998), "Two-sided confidence intervals for the single proportion", table I, method 3.
        (81, 263, 0.2553, 0.3662),
        (15, 148, 0.0624, 0.1605),
        (0, 20, 0.0000, 0.1611),
        (1, 29, 0.0061, 0.1718),
    ],
)
def test_published_values(wins: int, n: int, low: float, high: float) -> None:
    assert bounds(win_rate(wins, 0, n - wins)) == pytest.approx((low, high), abs=5e-5)


@given(counts, counts, counts)
def test_swapping_the_sides_mirrors_the_interval(wins: int, ties: int, losses: int) -> None:
    rate, mirrored = win_rate(wins, ties, losses), win_rate(losses, ties, wins)
    if rate.value is None:
        assert mirrored.value is None
        return
    assert mirrored.value == pytest.approx(1 - rate.value, abs=1e-12)
    low, high = bounds(rate)
    assert bounds(mirrored) == pytest.approx((1 - high, 1 - low), abs=1e-12)


@given(counts, counts, counts)
def test_the_interval_holds_the_share_and_stays_within_0_and_1(wins: int, ties: int, losses: int) -> None:
    rate = win_rate(wins, ties, losses)
    assert rate.n == wins + ties + losses
    if rate.value is not None:
        low, high = bounds(rate)
        assert 0 <= low <= rate.value <= high <= 1
        assert low < high


def test_no_data_says_none() -> None:
    assert win_rate(0, 0, 0) == Rate(None, None, None, 0)


def test_one_pair_is_wide_and_not_certain() -> None:
    low, high = bounds(win_rate(1, 0, 0))
    assert low < 0.25
    assert high == 1


def test_only_ties_are_a_half() -> None:
    assert win_rate(0, 9, 0).value == 0.5


def coverage(n: int, p: float, ties: float) -> float:
    """How often the interval holds the true rate, summed over every outcome of n pairs instead of simulated."""
    win, loss = p * (1 - ties), (1 - p) * (1 - ties)
    truth = win + ties / 2
    held = 0.0
    for wins in range(n + 1):
        for tied in range(n - wins + 1 if ties else 1):
            low, high = bounds(win_rate(wins, tied, n - wins - tied))
            if low <= truth <= high:
                ways = math.comb(n, wins) * math.comb(n - wins, tied)
                held += ways * win**wins * ties**tied * loss ** (n - wins - tied)
    return held


@pytest.mark.parametrize("ties", [0.0, 0.3])
@pytest.mark.parametrize("p", [0.5, 0.9])
@pytest.mark.parametrize("n", [10, 50])
def test_the_interval_covers_the_truth(n: int, p: float, ties: float) -> None:
    # Ten pairs have few outcomes, so the coverage sways about the nominal 95%; .9298 at p = .9 is the lowest here.
    assert coverage(n, p, ties) >= 0.9298
    assert coverage(n, p, ties) <= 0.9999
