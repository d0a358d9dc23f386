"""Win rates: against exact and naive references, the properties that were promised, and their coverage."""

from __future__ import annotations

import math
from collections.abc import Iterator
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from evenhand.core.stats.clusters import gather
from evenhand.core.stats.winrate import (
    Difference,
    Rate,
    mean_rate,
    mean_rates_over,
    paired_difference,
    weighted_rate,
    win_rate,
)

counts = st.integers(min_value=0, max_value=400)
verdicts = st.sampled_from([0.0, 0.5, 1.0])
shares = st.floats(0, 1).map(lambda x: round(x, 6))
clustered = st.lists(st.tuples(st.one_of(verdicts, shares), st.integers(0, 6)), min_size=1, max_size=30)


def bounds(rate: Rate) -> tuple[float, float]:
    assert rate.low is not None
    assert rate.high is not None
    return rate.low, rate.high


def split(rows: list[tuple[float, int]]) -> tuple[list[float], list[int]]:
    return [value for value, _ in rows], [cluster for _, cluster in rows]


# -- against references ------------------------------------------------------------------------------------------


def tail(n: int, wins: int, p: float) -> float:
    """The probability of at least so many wins."""
    return math.fsum(math.comb(n, k) * p**k * (1 - p) ** (n - k) for k in range(wins, n + 1))


def clopper_pearson(n: int, wins: int, level: float) -> tuple[float, float]:
    """By bisection on binomial sums, without any special function."""

    def solve(count: int, wanted: float) -> float:
        low, high = 0.0, 1.0
        for _ in range(80):
            middle = (low + high) / 2
            low, high = (middle, high) if tail(n, count, middle) < wanted else (low, middle)
        return (low + high) / 2

    outside = (1 - level) / 2
    low = solve(wins, outside) if wins else 0.0
    return low, solve(wins + 1, 1 - outside) if wins < n else 1.0


@pytest.mark.parametrize("level", [0.8, 0.95, 0.99])
@pytest.mark.parametrize(("wins", "losses"), [(8, 2), (1, 0), (0, 7), (5, 5), (30, 11), (99, 1), (60, 0)])
def test_without_ties_and_clusters_it_is_the_exact_interval(wins: int, losses: int, level: float) -> None:
    expected = clopper_pearson(wins + losses, wins, level)
    assert bounds(win_rate(wins, 0, losses, level=level)) == pytest.approx(expected, abs=1e-9)


@pytest.mark.parametrize(
    ("wins", "n", "low", "high"),
    [
        # Newcombe (1998), "Two-sided confidence intervals for the single proportion", table I, method 5.
        (81, 263, 0.2527, 0.3676),
        (15, 148, 0.0578, 0.1617),
        (0, 20, 0.0000, 0.1684),
        (1, 29, 0.0009, 0.1776),
    ],
)
def test_published_values(wins: int, n: int, low: float, high: float) -> None:
    assert bounds(win_rate(wins, 0, n - wins)) == pytest.approx((low, high), abs=5e-5)


@given(counts, counts, counts)
def test_the_value_is_that_of_fractions(wins: int, ties: int, losses: int) -> None:
    rate = win_rate(wins, ties, losses)
    if rate.n:
        assert rate.value == pytest.approx(float((Fraction(wins) + Fraction(ties, 2)) / rate.n), abs=1e-15)
    else:
        assert rate.value is None


def naive_interval(values: list[float], clusters: list[int]) -> tuple[float, float]:
    """The same method again in plain loops, from the formulas of docs/statistics.md."""
    from scipy import stats

    members: dict[int, list[float]] = {}
    for value, cluster in zip(values, clusters, strict=True):
        members.setdefault(cluster, []).append(2 * value - 1)
    groups, n = list(members.values()), len(values)
    kish = n**2 / sum(len(g) ** 2 for g in groups)
    freedom = (sum((len(g) / n) ** 2 for g in groups)) ** 2 / sum((len(g) / n) ** 4 for g in groups) - 1

    def part(sign: int) -> list[list[float]]:
        return [[max(sign * d, 0.0) for d in g] for g in groups]

    def covariance(a: list[list[float]], b: list[list[float]]) -> float:
        mean_a, mean_b = (sum(map(sum, x)) / n for x in (a, b))
        if len(groups) == 1:
            return 0.0
        return (1 - 1 / kish) * sum(
            (sum(p) - mean_a * len(p)) * (sum(q) - mean_b * len(q)) / n**2 / (1 - len(p) / n)
            for p, q in zip(a, b, strict=True)
        )

    def one(a: list[list[float]]) -> tuple[float, float, float, float]:
        mean, variance = sum(map(sum, a)) / n, covariance(a, a)
        unseen, largest = 1 - 0.025 ** (1 / kish), max(sum(g) / len(g) for g in a)
        most = mean * (1 - mean) / kish
        ratio = 1.0 if len(groups) == 1 else variance / most if most else 0.0
        if most <= 0 or ratio < 1e-12:
            return mean, mean * (1 - unseen), mean * (1 - unseen) + unseen, variance
        t, z = stats.t.ppf(0.975, max(freedom, 1)), stats.norm.ppf(0.975)
        inflation = (t / z) ** 2 * kish / max(kish - 1, 0.5)
        loss = 1 + (1 - (min(ratio, 1) * kish / len(groups)) ** 2) * (inflation - 1)
        trials = max(1.0, kish / ratio / loss)
        x = mean * trials
        low = stats.beta.ppf(0.025, x, trials - x + 1)
        high = stats.beta.ppf(0.975, x + 1, trials - x) if mean < 1 else 1.0
        return mean, min(low, 1 - unseen, mean), max(high, largest * unseen, mean), variance

    plus, minus = part(1), part(-1)
    p, p_low, p_high, p_var = one(plus)
    q, q_low, q_high, q_var = one(minus)
    half = 0.5
    s, r = (kish * p + half) / (kish + 1), (kish * q + half) / (kish + 1)
    joint = kish * (kish * covariance(plus, minus) + p * q) / (kish + 1) - s * r
    spread_p = (kish * (kish * p_var + p * p) + half) / (kish + 1) - s * s
    spread_q = (kish * (kish * q_var + q * q) + half) / (kish + 1) - r * r
    rho = max(-1.0, min(1.0, joint / math.sqrt(spread_p * spread_q)))

    def mover(a: float, b: float) -> float:
        return math.sqrt(max(0.0, a * a + b * b - 2 * rho * a * b))

    low, high = p - q - mover(p - p_low, q_high - q), p - q + mover(p_high - p, q - q_low)
    return (1 + max(low, -1.0)) / 2, (1 + min(high, 1.0)) / 2


@settings(deadline=None, max_examples=200)
@given(clustered)
def test_the_interval_is_that_of_the_naive_reference(rows: list[tuple[float, int]]) -> None:
    rate = mean_rate(*split(rows))
    assert bounds(rate) == pytest.approx(naive_interval(*split(rows)), abs=1e-6)


# -- properties --------------------------------------------------------------------------------------------------


@given(clustered)
def test_the_interval_holds_the_value_and_stays_within_0_and_1(rows: list[tuple[float, int]]) -> None:
    rate = mean_rate(*split(rows))
    low, high = bounds(rate)
    assert rate.value is not None
    assert 0 <= low <= rate.value <= high <= 1
    assert low < high
    assert (rate.n, rate.clusters) == (len(rows), len({cluster for _, cluster in rows}))


@given(clustered)
def test_swapping_the_sides_mirrors_everything(rows: list[tuple[float, int]]) -> None:
    rate, back = mean_rate(*split(rows)), mean_rate(*split([(1 - value, cluster) for value, cluster in rows]))
    assert rate.value is not None
    assert back.value == pytest.approx(1 - rate.value, abs=1e-15)
    low, high = bounds(rate)
    assert bounds(back) == pytest.approx((1 - high, 1 - low), abs=1e-15)
    assert back.effective == (None if rate.effective is None else pytest.approx(rate.effective, rel=1e-12))


@given(clustered)
def test_a_twin_in_its_own_cluster_changes_nothing(rows: list[tuple[float, int]]) -> None:
    rate, twins = mean_rate(*split(rows)), mean_rate(*split(rows * 2))
    assert (twins.value, bounds(twins), twins.effective) == (rate.value, bounds(rate), rate.effective)


@given(clustered)
def test_three_of_each_change_nothing_either(rows: list[tuple[float, int]]) -> None:
    assert bounds(mean_rate(*split(rows * 3))) == pytest.approx(bounds(mean_rate(*split(rows))), abs=1e-9)


@given(clustered.flatmap(lambda rows: st.tuples(st.just(rows), st.permutations(rows))))
def test_the_order_of_rows_and_the_names_of_clusters_do_not_matter(
    both: tuple[list[tuple[float, int]], list[tuple[float, int]]],
) -> None:
    rows, shuffled = both
    renamed = [(value, f"instruction {9 - cluster}") for value, cluster in shuffled]
    assert mean_rate([value for value, _ in renamed], [name for _, name in renamed]) == mean_rate(*split(rows))


@given(st.lists(verdicts, min_size=2, max_size=40))
def test_pairs_of_one_instruction_tell_less_than_pairs_of_many(values: list[float]) -> None:
    apart, together = mean_rate(values), mean_rate(values, [0] * len(values))
    assert together.value == apart.value
    assert np.ptp(bounds(together)) >= np.ptp(bounds(apart)) - 1e-12


def test_no_data_says_none() -> None:
    assert win_rate(0, 0, 0) == Rate(None, None, None, 0)
    assert mean_rate([]).value is None


def test_one_pair_is_wide_and_not_certain() -> None:
    low, high = bounds(win_rate(1, 0, 0))
    assert low == pytest.approx(0.025)
    assert high == 1


def test_only_ties_are_a_half_and_bound_what_went_unseen() -> None:
    rate = win_rate(0, 9, 0)
    unseen = 1 - 0.025 ** (1 / 9)
    assert rate.value == 0.5
    assert bounds(rate) == pytest.approx((0.5 - unseen / 2, 0.5 + unseen / 2))


def test_few_clusters_are_called_small() -> None:
    assert mean_rate([1, 0] * 50, list(range(10)) * 10).small
    assert not mean_rate([1, 0] * 50).small
    assert not win_rate(0, 0, 0).small


# -- coverage ----------------------------------------------------------------------------------------------------


def outcomes(n: int, win: float, tie: float, loss: float) -> Iterator[tuple[int, int, float]]:
    """Every outcome of n pairs with its probability: the coverage is summed and not simulated."""
    for wins in range(n + 1):
        for ties in range(n - wins + 1 if tie else 1):
            ways = math.comb(n, wins) * math.comb(n - wins, ties)
            yield wins, ties, ways * win**wins * tie**ties * loss ** (n - wins - ties)


@pytest.mark.parametrize("tie", [0.0, 0.3, 0.9])
@pytest.mark.parametrize("rate", [0.5, 0.6, 0.9, 0.97])
@pytest.mark.parametrize("n", [5, 10, 30])
def test_the_interval_covers_the_truth_for_every_n(n: int, rate: float, tie: float) -> None:
    win, loss = rate - tie / 2, 1 - rate - tie / 2
    if loss < 0:
        tie, win, loss = 2 * (1 - rate), 2 * rate - 1, 0.0
    kept = 0.0
    for wins, ties, chance in outcomes(n, win, tie, loss):
        low, high = bounds(win_rate(wins, ties, n - wins - ties))
        kept += chance * (low - 1e-12 <= rate <= high + 1e-12)
    assert kept >= 0.95
    assert kept <= 1 + 1e-9


def test_the_interval_covers_the_truth_in_clusters() -> None:
    """40 instructions with 3 pairs each, which mostly agree; taken for independent they cover far less."""
    rng = np.random.default_rng(4)
    cluster, held, naive = np.repeat(np.arange(40), 3), 0, 0
    for _ in range(400):
        common, own = rng.random(40)[cluster], rng.random(120)
        values = (np.where(rng.random(120) < 0.9, common, own) < 0.7).astype(float)
        for clusters in (cluster, None):
            low, high = bounds(mean_rate(values, clusters))
            inside = low <= 0.7 <= high
            held, naive = (held + inside, naive) if clusters is not None else (held, naive + inside)
    assert 0.93 <= held / 400 <= 0.985  # 95% less three standard errors of 400 draws
    assert naive / 400 < 0.85


# -- two readings of the same pairs ------------------------------------------------------------------------------

doubles = st.lists(st.tuples(verdicts, verdicts, st.integers(0, 5)), min_size=1, max_size=25)


@given(doubles)
def test_a_paired_difference_is_antisymmetric(rows: list[tuple[float, float, int]]) -> None:
    first, second, clusters = (list(column) for column in zip(*rows, strict=True))
    one, other = paired_difference(first, second, clusters), paired_difference(second, first, clusters)
    assert one.value is not None
    assert other.value == -one.value
    assert one.value == pytest.approx(np.mean(first) - np.mean(second), abs=1e-9)
    assert one.low is not None
    assert one.high is not None
    assert (other.low, other.high) == (-one.high, -one.low)
    assert -1 <= one.low <= one.value <= one.high <= 1


@given(doubles)
def test_twins_do_not_change_a_paired_difference(rows: list[tuple[float, float, int]]) -> None:
    first, second, clusters = (list(column) for column in zip(*rows, strict=True))
    once = paired_difference(first, second, clusters)
    twice = paired_difference(first * 2, second * 2, clusters * 2)
    assert (twice.value, twice.low, twice.high) == (once.value, once.low, once.high)


def test_the_same_run_twice_differs_by_nothing() -> None:
    found = paired_difference([1, 0, 0.5] * 20, [1, 0, 0.5] * 20)
    assert (found.value, found.decided) == (0, False)
    assert found.low == pytest.approx(-(1 - 0.025 ** (1 / 60)))


def test_pairing_is_narrower_than_two_intervals() -> None:
    rng = np.random.default_rng(2)
    first = (rng.random(200) < 0.6).astype(float)
    second = np.where(rng.random(200) < 0.1, 1 - first, first)
    found, alone = paired_difference(first, second), mean_rate(first)
    assert found.low is not None
    assert found.high is not None
    assert found.high - found.low < 1.2 * np.ptp(bounds(alone))


def test_no_pairs_in_common_say_none() -> None:
    assert paired_difference([], []) == Difference(None, None, None, None, None, 0)


# -- each instruction the same -----------------------------------------------------------------------------------


def test_more_pairs_on_one_instruction_do_not_make_the_interval_wider() -> None:
    """67 single pairs, then 33 more on one instruction: by pairs the answer hangs on that one."""
    values, clusters = [0.0, 1.0] * 33 + [1.0], list(range(67))
    before = mean_rate(values, clusters, weighting="instructions")
    more = [*values, *[1.0] * 33], [*clusters, *[99] * 33]
    after, by_pairs = mean_rate(*more, weighting="instructions"), mean_rate(*more)
    assert np.ptp(bounds(after)) <= np.ptp(bounds(before)) + 1e-12
    assert np.ptp(bounds(by_pairs)) > 0.9
    assert (after.n, after.clusters, after.weighting) == (100, 68, "instructions")


@given(clustered)
def test_an_instruction_weighs_as_the_mean_of_its_pairs(rows: list[tuple[float, int]]) -> None:
    values, clusters = split(rows)
    means = [np.mean([v for v, c in rows if c == name]) for name in sorted(set(clusters))]
    rate = mean_rate(values, clusters, weighting="instructions")
    assert rate.value == pytest.approx(np.mean(means), abs=1e-8)
    low, high = bounds(rate)
    assert rate.value is not None
    assert 0 <= low <= rate.value <= high <= 1


@given(clustered)
def test_by_instruction_swapping_the_sides_mirrors_everything_too(rows: list[tuple[float, int]]) -> None:
    values, clusters = split(rows)
    low, high = bounds(mean_rate(values, clusters, weighting="instructions"))
    back = mean_rate([1 - v for v in values], clusters, weighting="instructions")
    assert bounds(back) == pytest.approx((1 - high, 1 - low), abs=1e-15)


@given(st.lists(verdicts, min_size=1, max_size=30))
def test_single_pairs_weigh_the_same_either_way(values: list[float]) -> None:
    assert bounds(mean_rate(values, weighting="instructions")) == bounds(mean_rate(values))


@given(clustered)
def test_parts_give_what_the_whole_gives(rows: list[tuple[float, int]]) -> None:
    whole = mean_rate(*split(rows), weighting="instructions")
    halves = [[row for row in rows if row[1] % 2 == odd] for odd in (0, 1)]
    groups = [gather([2 * v - 1 for v, _ in half], [c for _, c in half], "instructions") for half in halves]
    found = mean_rates_over(lambda: groups, weighting="instructions")(0.95)
    assert found.n == whole.n
    assert bounds(found) == pytest.approx(bounds(whole), abs=1e-12)


@given(clustered)
def test_weights_of_one_over_the_size_are_the_same_as_instructions(rows: list[tuple[float, int]]) -> None:
    values, clusters = split(rows)
    rate = mean_rate(values, clusters, weighting="instructions")
    by_weight = weighted_rate(values, [1 / clusters.count(c) for c in clusters], clusters)
    assert bounds(by_weight) == pytest.approx(bounds(rate), abs=1e-6)
    plain = weighted_rate(values, [3.0] * len(values), clusters)
    assert bounds(plain) == pytest.approx(bounds(mean_rate(values, clusters)), abs=1e-6)


def test_differences_by_instruction() -> None:
    found = paired_difference([1, 1, 1, 0], [0, 1, 1, 0], [0, 1, 1, 1], weighting="instructions")
    assert found.value == 0.5
    assert (found.first, found.second) == pytest.approx((5 / 6, 1 / 3))
    assert (found.n, found.clusters) == (4, 2)


def test_both_weightings_hold_their_own_truth_where_large_instructions_differ() -> None:
    """Instructions with eight pairs are won in 30%, those with one in 70%: the two rates differ."""
    rng = np.random.default_rng(5)
    held = {"pairs": 0, "instructions": 0}
    for _ in range(300):
        sizes = np.where(rng.random(80) < 0.25, 8, 1)
        cluster = np.repeat(np.arange(80), sizes)
        u = np.where(rng.random(len(cluster)) < 0.7, rng.random(80)[cluster], rng.random(len(cluster)))
        values = (u < np.where(sizes == 8, 0.3, 0.7)[cluster]).astype(float)
        for weighting, truth in (("pairs", (2 * 0.3 + 0.75 * 0.7) / 2.75), ("instructions", 0.6)):
            low, high = bounds(mean_rate(values, cluster, weighting=weighting))  # type: ignore[arg-type]
            held[weighting] += low <= truth <= high
    assert min(held.values()) >= 276


@pytest.mark.parametrize("value", [math.nan, None, math.inf])
def test_what_is_no_number_is_refused_and_never_counted(value: float | None) -> None:
    values = np.array([1.0, value], dtype=np.float64)
    with pytest.raises(ValueError, match="no number"):
        mean_rate(values)
    with pytest.raises(ValueError, match="no number"):
        paired_difference([1.0, 1.0], values)
