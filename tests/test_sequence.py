"""The confidence sequence, beside an exact one that multiplies polynomials of fractions."""

from __future__ import annotations

import random
from collections.abc import Sequence
from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from evenhand.core.stats.sequence import Bounds, ConfidenceSequence

verdicts = st.lists(st.sampled_from([0.0, 0.5, 1.0]), max_size=14)
values = st.lists(st.floats(0, 1), max_size=30)


def bounds_of(observations: Sequence[float | None], level: float = 0.95) -> Bounds:
    sequence = ConfidenceSequence(level)
    for value in observations:
        sequence.add(value)
    return sequence.bounds


# -- the naive reference -----------------------------------------------------------------------------------


def exact_capital(observations: Sequence[float], m: Fraction) -> Fraction:
    """The integral over c from 0 to 1 of the product of 1 + c (x/m - 1), by its coefficients."""
    product = [Fraction(1)]
    for x in observations:
        gain = Fraction(x) / m - 1
        product = [a + gain * b for a, b in zip([*product, Fraction(0)], [Fraction(0), *product], strict=True)]
    return sum((a / (power + 1) for power, a in enumerate(product)), Fraction(0))


def exact_low(observations: Sequence[float], level: float = 0.95) -> float:
    """The largest mean that was ever ruled out, to one in 2^17."""
    enough = 2 / (1 - Fraction(level))
    low = Fraction(0)
    for count in range(1, len(observations) + 1):
        bad, good = low, Fraction(1)
        while good - bad > Fraction(1, 2**17):
            middle = (bad + good) / 2
            ruled_out = exact_capital(observations[:count], middle) >= enough
            bad, good = (middle, good) if ruled_out else (bad, middle)
        low = bad
    return float(low)


@settings(max_examples=40, deadline=None)
@given(verdicts, st.sampled_from([0.8, 0.95]))
def test_the_ends_are_those_of_the_exact_game(observations: list[float], level: float) -> None:
    bounds = bounds_of(observations, level)
    assert bounds.low == pytest.approx(exact_low(observations, level), abs=2e-5)
    assert 1 - bounds.high == pytest.approx(exact_low([1 - x for x in observations], level), abs=2e-5)


# -- properties --------------------------------------------------------------------------------------------


@given(verdicts)
def test_changing_the_sides_mirrors_the_interval_exactly(observations: list[float]) -> None:
    bounds, mirrored = bounds_of(observations), bounds_of([1 - x for x in observations])
    assert (1 - mirrored.low, mirrored.high) == (bounds.high, 1 - bounds.low)


@settings(deadline=None)
@given(values)
def test_it_only_grows_narrower(observations: list[float]) -> None:
    sequence = ConfidenceSequence()
    before = sequence.bounds
    for value in observations:
        sequence.add(value)
        now = sequence.bounds
        assert before.low <= now.low
        assert now.high <= before.high
        before = now


@settings(deadline=None)
@given(st.lists(st.sampled_from([0.0, 0.5, 1.0, None]), max_size=30), st.randoms())
def test_it_holds_whichever_way_the_invalid_fell(observations: list[float | None], dice: random.Random) -> None:
    filled = [dice.choice([0.0, 0.5, 1.0]) if x is None else x for x in observations]
    bounds, worst, best = (
        bounds_of(observations),
        bounds_of([0.0 if x is None else x for x in observations]),
        bounds_of([1.0 if x is None else x for x in observations]),
    )
    assert (bounds.low, bounds.high) == (worst.low, best.high)
    if filled:
        assert bounds.least is not None
        assert bounds.most is not None
        assert bounds.least <= sum(filled) / len(filled) <= bounds.most


@given(values)
def test_rounding_only_widens(observations: list[float]) -> None:
    """Values between the steps are counted at the step that is worse for the bound."""
    down, up = (bounds_of([min(1.0, int(x * 1000 + add) / 1000) for x in observations]) for add in (0, 1))
    bounds = bounds_of(observations)
    assert bounds.low <= up.low
    assert bounds.high >= down.high


def test_nothing_observed_says_nothing() -> None:
    assert bounds_of([]) == Bounds(None, 0.0, 1.0, 0)
    unknown = bounds_of([None, None])
    assert (unknown.value, unknown.low, unknown.high, unknown.least, unknown.most) == (None, 0.0, 1.0, 0.0, 1.0)


@pytest.mark.parametrize("wrong", [-0.1, 1.1, float("nan")])
def test_what_is_no_share_is_refused(wrong: float) -> None:
    with pytest.raises(ValueError, match="does not hold"):
        ConfidenceSequence().add(wrong)
    with pytest.raises(ValueError, match="level"):
        ConfidenceSequence(level=wrong)


def test_a_long_run_takes_no_more_room_and_goes_on_narrowing() -> None:
    dice, sequence = random.Random(3), ConfidenceSequence()
    for _ in range(20_000):
        sequence.add(float(dice.random() < 0.3))
    assert sequence.bounds.high - sequence.bounds.low < 0.03
    assert sequence.bounds.low < 0.3 < sequence.bounds.high


# -- what it is for ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(("rate", "ties"), [(0.5, 0.0), (0.9, 0.2), (0.05, 0.0), (1.0, 0.0)])
def test_it_holds_at_every_look_at_once(rate: float, ties: float) -> None:
    """A few hundred repetitions; benchmarks/sequence.py has thousands. A fixed-n interval fails this by far."""
    dice, truth, held = random.Random(11), ties / 2 + (1 - ties) * rate, 0
    for _ in range(200):
        draws = (0.5 if dice.random() < ties else float(dice.random() < rate) for _ in range(60))
        bounds = bounds_of(list(draws))  # nested, so that the last one holds only if all before it did
        held += bounds.low <= truth <= bounds.high
    assert held >= 0.95 * 200
