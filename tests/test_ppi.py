"""Prediction-powered win rates: against the formulas of the paper, their promises, and their coverage."""

from __future__ import annotations

import numpy as np
import pytest

from evenhand.core.stats.ppi import FEWEST, Powered, labels_needed, powered_rate


def drawn(seed: int, n: int = 600, labelled: int = 120, right: float = 0.85) -> tuple[np.ndarray, ...]:
    rng = np.random.default_rng(seed)
    truth = (rng.random(n) < 0.6).astype(float)
    verdicts = np.where(rng.random(n) < right, truth, 1 - truth) * 0.8 + rng.random(n) * 0.2
    labels = np.where(rng.permutation(n) < labelled, truth, np.nan)
    return labels, verdicts, rng.integers(0, n // 2, n)


def ends(found: Powered) -> tuple[float, float, float]:
    assert found.value is not None
    assert found.low is not None
    assert found.high is not None
    return found.value, found.low, found.high


def test_lambda_and_value_are_those_of_the_paper() -> None:
    """PPI++ (arXiv:2311.01453), example 6.1 for means: lambda = cov(Y, f) / ((1 + n/N) var(f)) of the others.

    Here the judge's mean is that over all pairs and not over the others, which makes lambda (1 + n/N) times as
    large and leaves the estimate what it was.
    """
    labels, verdicts, _ = drawn(1)
    known = ~np.isnan(labels)
    n, rest = known.sum(), (~known).sum()
    y, f, g = labels[known], verdicts[known], verdicts[~known]
    covariance, variance = np.cov(y, f, bias=True)[0, 1], (f.var() / n + g.var() / rest) / (1 / n + 1 / rest)
    tuning = covariance / ((1 + n / rest) * variance)
    found = powered_rate(labels, verdicts)
    assert found.tuning == pytest.approx(tuning * (1 + n / rest), abs=0.005)
    assert found.value == pytest.approx(y.mean() + tuning * (g.mean() - f.mean()), abs=2e-4)
    spread = np.sqrt((y - tuning * f).var() / n + tuning**2 * g.var() / rest)
    _, low, high = ends(found)
    assert high - low == pytest.approx(2 * 1.96 * spread, rel=0.08)  # the interval keeps within 0 and 1


def test_a_judge_that_knows_nothing_is_left_out() -> None:
    labels, _, _ = drawn(2)
    noise = np.random.default_rng(0).random(len(labels))
    found = powered_rate(labels, noise)
    assert found.tuning == pytest.approx(0, abs=0.15)
    assert found.value == pytest.approx(found.labels.value, abs=0.01)
    constant = powered_rate(labels, np.full(len(labels), 0.5))
    assert constant.tuning == 0
    assert constant.value == pytest.approx(constant.labels.value)


def test_a_judge_that_contradicts_people_is_left_out_too() -> None:
    labels, verdicts, _ = drawn(3)
    assert powered_rate(labels, 1 - verdicts).tuning == 0


def test_a_good_judge_makes_the_interval_narrower() -> None:
    poor, good = (powered_rate(*drawn(4, right=right)[:2]).narrower for right in (0.6, 0.95))
    assert poor is not None
    assert good is not None
    assert good > 0.3 > poor


def test_a_bias_of_the_judge_moves_nothing() -> None:
    labels, verdicts, _ = drawn(5, right=0.75)
    found, tilted = powered_rate(labels, verdicts), powered_rate(labels, verdicts * 0.8 + 0.2)
    assert tilted.tuning is not None
    assert tilted.tuning < 1  # else it would be cut off, and the two not the same
    assert tilted.value == pytest.approx(found.value, abs=1e-9)
    assert ends(tilted) == pytest.approx(ends(found), abs=0.01)
    assert tilted.judge.value == pytest.approx(0.2 + 0.8 * np.mean(verdicts), abs=1e-6)


def test_swapping_the_sides_mirrors_it() -> None:
    labels, verdicts, cluster = drawn(6)
    value, low, high = ends(powered_rate(labels, verdicts, cluster))
    back = powered_rate(1 - labels, 1 - verdicts, cluster)
    assert ends(back) == pytest.approx((1 - value, 1 - high, 1 - low), abs=1e-9)


def test_order_and_twins_do_not_matter() -> None:
    labels, verdicts, cluster = drawn(7)
    found = powered_rate(labels, verdicts, cluster)
    order = np.random.default_rng(0).permutation(len(labels))
    assert powered_rate(labels[order], verdicts[order], cluster[order]) == found
    twins = powered_rate(*(np.tile(column, 2) for column in (labels, verdicts, cluster)))
    assert ends(twins) == pytest.approx(ends(found), abs=1e-9)


@pytest.mark.parametrize(
    ("labels", "reason"),
    [
        (np.full(50, np.nan), "no pair has a label"),
        (np.ones(50), "every pair has a label"),
        (np.where(np.arange(50) < FEWEST - 1, 1.0, np.nan), f"fewer than {FEWEST}"),
    ],
)
def test_it_says_why_the_judge_adds_nothing(labels: np.ndarray, reason: str) -> None:
    found = powered_rate(labels, np.linspace(0, 1, 50))
    assert reason in found.reason
    assert (found.value, found.low) == (found.labels.value, found.labels.low)
    assert labels_needed(labels, np.linspace(0, 1, 50), width=0.1) is None


def test_a_judge_that_would_widen_the_interval_is_left_out() -> None:
    """51 of 60 pairs have a label, and the judge says the same on all but two of them: it has little to add."""
    truth = (np.arange(60) * 7 % 12 < 7).astype(float)
    verdicts = np.where(np.isin(np.arange(60), [3, 30]), 1 - truth, truth)
    found = powered_rate(np.where(np.arange(60) < 51, truth, np.nan), verdicts)
    assert (found.value, found.low, found.high) == (found.labels.value, found.labels.low, found.labels.high)
    assert "would widen the interval by" in found.reason
    assert (found.narrower, found.tuning) == (None, None)
    needed = labels_needed(np.where(np.arange(60) < 51, truth, np.nan), verdicts, width=0.01)
    assert needed is not None
    assert found.low is not None
    assert found.high is not None
    assert needed.width_with_all < found.high - found.low, "more labels are not worse"


@pytest.mark.parametrize(("n", "pairs", "right"), [(12, 15, 0.8), (50, 60, 0.98), (30, 150, 0.6), (100, 120, 0.98)])
def test_to_choose_the_narrower_interval_costs_little(n: int, pairs: int, right: float) -> None:
    rng = np.random.default_rng([n, pairs])
    held = 0
    for _ in range(300):
        truth = rng.random(pairs) < 0.6
        verdicts = np.where(rng.random(pairs) < right, truth, ~truth)
        found = powered_rate(np.where(np.arange(pairs) < n, truth, np.nan), verdicts)
        assert found.narrower is None or found.narrower >= 0
        _, low, high = ends(found)
        held += low <= 0.6 <= high
    assert held >= 276


def test_the_number_of_labels_gives_the_width() -> None:
    rng = np.random.default_rng(8)
    truth = (rng.random(4000) < 0.6).astype(float)
    verdicts = np.where(rng.random(4000) < 0.85, truth, 1 - truth)
    order = rng.permutation(4000)
    needed = labels_needed(np.where(order < 300, truth, np.nan), verdicts, width=0.08)
    assert needed is not None
    assert needed.labelled is not None
    assert needed.more == needed.labelled - 300
    _, low, high = ends(powered_rate(np.where(order < needed.labelled, truth, np.nan), verdicts))
    assert high - low == pytest.approx(0.08, rel=0.1)


def test_a_width_that_all_labels_do_not_give() -> None:
    labels, verdicts, _ = drawn(9)
    needed = labels_needed(labels, verdicts, width=0.01)
    assert needed is not None
    assert (needed.labelled, needed.more) == (None, None)
    assert needed.width_with_all > 0.01


def test_a_width_that_is_reached_already() -> None:
    labels, verdicts, _ = drawn(10)
    needed = labels_needed(labels, verdicts, width=0.9)
    assert needed is not None
    assert (needed.labelled, needed.more) == (120, 0)


def test_the_interval_covers_the_truth_of_a_biased_judge() -> None:
    rng = np.random.default_rng(11)
    held = by_judge = 0
    for _ in range(400):
        truth = rng.random(300) < 0.6
        verdicts = np.where(rng.random(300) < 0.8, truth, ~truth) | (rng.random(300) < 0.3)
        found = powered_rate(np.where(rng.permutation(300) < 60, truth, np.nan), verdicts)
        _, low, high = ends(found)
        held += low <= 0.6 <= high
        assert found.judge.low is not None
        by_judge += found.judge.low <= 0.6
    assert 0.925 <= held / 400 <= 0.99
    assert by_judge / 400 < 0.5


# -- few labels, rare errors ------------------------------------------------------------------------------------


@pytest.mark.parametrize("n", [10, 20, 50, 100])
@pytest.mark.parametrize("soft", [False, True])
def test_rare_errors_on_one_side_are_not_taken_for_none(n: int, soft: bool) -> None:
    """A judge that turns one loss in eight into a win; a normal interval holds in 41% of draws with 10 labels."""
    rng = np.random.default_rng([n, soft])
    held = 0
    for _ in range(200):
        truth = rng.random(1000) < 0.6
        said = truth | (rng.random(1000) < 0.125)
        verdicts = np.where(said, 0.9, 0.1) + rng.uniform(-0.1, 0.1, 1000) if soft else said
        _, low, high = ends(powered_rate(np.where(np.arange(1000) < n, truth, np.nan), verdicts))
        held += low <= 0.6 <= high
    assert held >= 186


def test_ties_and_clusters_are_covered() -> None:
    rng = np.random.default_rng(12)
    cluster, held = np.repeat(np.arange(200), 5), 0
    for _ in range(200):
        u = np.where(rng.random(1000) < 0.7, rng.random(200)[cluster], rng.random(1000))
        truth = np.where(u < 0.45, 1.0, np.where(u < 0.75, 0.5, 0.0))
        verdicts = np.where(rng.random(1000) < 0.9, truth, 1 - truth)
        _, low, high = ends(powered_rate(np.where(rng.permutation(1000) < 40, truth, np.nan), verdicts, cluster))
        held += low <= 0.6 <= high
    assert held >= 186


def test_no_error_seen_is_no_error_bound() -> None:
    """20 labels and a judge that is always right: the interval is what 20 trials without an error leave open."""
    truth = np.arange(4000) % 2.0
    found = powered_rate(np.where(np.arange(4000) < 20, truth, np.nan), truth)
    unseen = 1 - 0.025 ** (1 / 20)
    _, low, high = ends(found)
    assert found.tuning == pytest.approx(1)
    assert (low, high) == pytest.approx((0.5 - unseen, 0.5 + unseen), abs=0.01)


# -- labels that were not drawn alike ---------------------------------------------------------------------------


def unequal(rng: np.random.Generator, n: int) -> tuple[np.ndarray, ...]:
    """Easy and hard pairs; hard ones go to side 2, confuse the judge and are labelled ten times as often."""
    hard = rng.random(n) < 0.3
    truth = (rng.random(n) < np.where(hard, 0.3, 0.7)).astype(float)
    verdicts = np.where(rng.random(n) < np.where(hard, 0.5, 0.95), truth, 1 - truth)
    chance = np.where(hard, 0.3, 0.03)
    return np.where(rng.random(n) < chance, truth, np.nan), verdicts, chance


def test_weights_make_up_for_how_labels_were_drawn() -> None:
    rng = np.random.default_rng(13)
    weighted = naive = 0
    for _ in range(200):
        labels, verdicts, chance = unequal(rng, 1000)
        _, low, high = ends(powered_rate(labels, verdicts, weights=1 / chance))
        weighted += low <= 0.58 <= high
        _, low, high = ends(powered_rate(labels, verdicts))
        naive += low <= 0.58 <= high
    assert weighted >= 186
    assert naive < 150


def test_equal_weights_are_no_weights() -> None:
    labels, verdicts, cluster = drawn(14)
    found, same = (powered_rate(labels, verdicts, cluster, weights=w) for w in (None, np.full(600, 7.0)))
    assert ends(same) == pytest.approx(ends(found), abs=1e-9)
    assert ends(same)[1:] == pytest.approx(ends(found)[1:], abs=1e-9)


def test_a_label_without_weight_is_as_if_it_were_not_there() -> None:
    labels, verdicts, cluster = drawn(15)
    weights = np.where(np.arange(600) < 300, 1.0, np.where(np.arange(600) < 450, 0.0, np.nan))
    found = powered_rate(labels, verdicts, cluster, weights=weights)
    other = powered_rate(np.where(np.arange(600) < 300, labels, np.nan), verdicts, cluster)
    assert ends(found) == pytest.approx(ends(other), abs=1e-12)
    assert found.labelled == other.labelled


def test_each_instruction_may_weigh_the_same() -> None:
    """One instruction has half of the pairs, and is lost; the mean of instructions hardly moves."""
    rng = np.random.default_rng(16)
    cluster = np.where(np.arange(800) < 400, 0, np.arange(800))
    truth = np.where(cluster == 0, 0.0, rng.random(800) < 0.7)
    verdicts = np.where(rng.random(800) < 0.9, truth, 1 - truth)
    labels = np.where(rng.permutation(800) < 200, truth, np.nan)
    by_pair, by_one = (powered_rate(labels, verdicts, cluster, weighting=w) for w in ("pairs", "instructions"))
    assert ends(by_pair)[0] == pytest.approx(0.35, abs=0.05)
    _, low, high = ends(by_one)
    assert low < 0.7 < high
    assert high - low < 0.25
    assert by_one.judge.weighting == by_one.weighting == "instructions"
