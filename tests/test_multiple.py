"""Many questions at once: p-values out of intervals, Holm's correction, and what it promises."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from evenhand.core.stats import ranking
from evenhand.core.stats.multiple import correct_together, holm, p_of
from evenhand.core.stats.winrate import mean_rate


def test_rankings_use_the_same_correction() -> None:
    assert vars(ranking)["holm"] is holm


@given(st.lists(st.floats(0, 1), min_size=1, max_size=12))
def test_a_step_at_a_time_gives_the_same(p: list[float]) -> None:
    """The naive procedure: the smallest times their number, the next times one less, never below an earlier one."""
    naive, before = {}, 0.0
    for rank, place in enumerate(sorted(range(len(p)), key=lambda i: p[i])):
        before = max(before, min(1.0, p[place] * (len(p) - rank)))
        naive[place] = before
    assert holm(p).tolist() == pytest.approx([naive[i] for i in range(len(p))])


@pytest.mark.parametrize(("wins", "n"), [(15, 20), (9, 10), (60, 100)])
def test_the_p_value_of_an_interval_is_that_of_the_exact_test(wins: int, n: int) -> None:
    """Clopper and Pearson's interval leaves out one half as soon as twice the smaller tail is below 1 - level."""
    from scipy import stats

    def at(level: float) -> tuple[float | None, float | None]:
        found = mean_rate([1.0] * wins + [0.0] * (n - wins), level=level)
        return found.low, found.high

    assert p_of(at, 0.5) == pytest.approx(2 * stats.binom.sf(wins - 1, n, 0.5), rel=1e-3)


def test_no_interval_has_no_p_value_and_counts_for_nothing() -> None:
    assert p_of(lambda _: (None, None)) is None
    found = correct_together([None, 0.03, None])
    assert (found.corrected, found.decided, found.questions) == ((None, 0.03, None), (False, True, False), 1)
    assert correct_together([]).questions == 0


def test_an_interval_that_always_holds_the_null_has_p_one() -> None:
    assert p_of(lambda _: (-1.0, 1.0)) == pytest.approx(1)
    assert p_of(lambda _: (0.5, 1.0)) == pytest.approx(0, abs=1e-8)


def test_of_ten_dimensions_that_are_all_even_hardly_one_set_shows_anything() -> None:
    rng = np.random.default_rng(0)
    plain = corrected = 0
    for _ in range(60):
        columns = rng.integers(0, 2, (10, 60)).astype(float)
        ends = [mean_rate(column) for column in columns]
        plain += any(not (r.low or 0) <= 0.5 <= (r.high or 1) for r in ends)
        p = [p_of(partial(_ends, column), 0.5) for column in columns]
        corrected += any(correct_together(p).decided)
    assert plain > 6
    assert corrected <= 8  # 5% of 60 and three standard errors


def _ends(values: np.ndarray, level: float) -> tuple[float | None, float | None]:
    found = mean_rate(values, level=level)
    return found.low, found.high
