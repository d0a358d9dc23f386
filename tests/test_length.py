"""The win rate at equal length: against scipy and a jackknife, its mirror, its refusals, its coverage."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import optimize

from evenhand.core.stats.clusters import Weighting, shape_of, t_quantile
from evenhand.core.stats.length import FEWEST, LengthControlled, arrange, length_controlled


def drawn(seed: int, n: int = 200, effect: float = 1.0, clusters: int | None = None) -> tuple[np.ndarray, ...]:
    rng = np.random.default_rng(seed)
    longer = rng.normal(60, 150, n).round()
    odds = 0.3 + effect * np.tanh(longer / np.hypot(60, 150))
    values = np.where(rng.random(n) < 0.2, 0.5, rng.random(n) < 1 / (1 + np.exp(-odds)))
    return values.astype(float), longer, rng.integers(0, clusters, n) if clusters else np.arange(n)


def ends(found: LengthControlled) -> tuple[float, float, float]:
    assert found.value is not None
    assert found.low is not None
    assert found.high is not None
    return found.value, found.low, found.high


@pytest.mark.parametrize("kind", ["verdicts", "shares", "far apart"])
@pytest.mark.parametrize("weighting", ["pairs", "instructions"])
def test_rows_are_in_the_order_of_a_plain_sort(kind: str, weighting: Weighting) -> None:
    """By one number where all three columns are steps, and by the columns themselves where they are not."""
    values, longer, clusters = drawn(4, n=500, clusters=90)
    if kind == "shares":
        values = np.random.default_rng(4).random(500)
    if kind == "far apart":
        longer = longer * 2.0**52
    rows = arrange(values, longer, clusters, weighting)
    weights = 1 / np.bincount(clusters)[clusters] if weighting == "instructions" else np.ones(500)
    plain = sorted(zip(longer.tolist(), values.tolist(), weights.tolist(), strict=True))
    assert list(zip(rows.d.tolist(), rows.y.tolist(), rows.w.tolist(), strict=True)) == plain


def test_the_fit_is_the_one_of_greatest_penalised_likelihood() -> None:
    """Firth's fit maximises the likelihood times the root of the information's determinant."""
    values, longer, _ = drawn(1)
    x = np.column_stack([np.ones(200), np.tanh(longer / np.sqrt(np.mean(longer**2)))])

    def loss(b: np.ndarray) -> float:
        odds = x @ b
        mean = 1 / (1 + np.exp(-odds))
        information = (x * (mean * (1 - mean))[:, None]).T @ x
        return float(np.sum(np.log1p(np.exp(odds)) - values * odds) - np.linalg.slogdet(information)[1] / 2)

    best = optimize.minimize(loss, [0.0, 0.0], method="Nelder-Mead", options={"xatol": 1e-10, "fatol": 1e-12}).x
    found = length_controlled(values, longer)
    assert found.value == pytest.approx(1 / (1 + np.exp(-best[0])), abs=1e-6)
    assert found.effect == pytest.approx(np.tanh(1) * best[1], abs=1e-6)


@pytest.mark.parametrize("clusters", [None, 120])
def test_the_error_is_that_of_a_jackknife_which_fits_everything_again(clusters: int | None) -> None:
    values, longer, cluster = drawn(2, n=400, clusters=clusters)
    names = np.unique(cluster)
    again = []
    for name in names:
        rest = cluster != name
        value = length_controlled(values[rest], longer[rest], cluster[rest]).value
        assert value is not None
        again.append(float(np.log(value / (1 - value))))
    jackknife = np.sqrt((len(names) - 1) / len(names) * np.sum((np.array(again) - np.mean(again)) ** 2))
    _, low, high = ends(length_controlled(values, longer, cluster))
    width = np.log(high / (1 - high)) - np.log(low / (1 - low))
    t = t_quantile(shape_of(np.bincount(cluster)).freedom - 1)
    assert width == pytest.approx(2 * t * jackknife, rel=0.05)


def test_swapping_the_sides_mirrors_it() -> None:
    values, longer, cluster = drawn(3, clusters=60)
    found, back = length_controlled(values, longer, cluster), length_controlled(1 - values, -longer, cluster)
    value, low, high = ends(found)
    assert ends(back) == pytest.approx((1 - value, 1 - high, 1 - low), abs=1e-12)
    assert back.effect == pytest.approx(found.effect, abs=1e-12)
    assert back.typical == found.typical


def test_order_and_twins_do_not_matter() -> None:
    values, longer, cluster = drawn(4, clusters=60)
    found = length_controlled(values, longer, cluster)
    order = np.random.default_rng(0).permutation(len(values))
    assert length_controlled(values[order], longer[order], cluster[order]) == found
    twins = length_controlled(*(np.tile(column, 2) for column in (values, longer, cluster)))
    assert ends(twins) == pytest.approx(ends(found), abs=1e-9)


def test_length_that_decides_everything_still_has_a_finite_fit() -> None:
    found = length_controlled([0] * 30 + [1] * 30, list(range(-30, 0)) + list(range(1, 31)))
    value, low, high = ends(found)
    assert low < 0.5 < high
    assert value == pytest.approx(0.5, abs=0.05)
    assert found.effect_low is not None
    assert found.effect_low > 0


@pytest.mark.parametrize("seed", range(20))
def test_the_fit_always_comes_to_rest_at_the_best(seed: int) -> None:
    """Rare wins, lengths far apart, clusters of very different size: what made plain Newton steps wander."""
    rng = np.random.default_rng(seed)
    n = int(rng.integers(60, 400))
    longer = np.where(rng.random(n) < 0.1, rng.normal(50, 30, n), rng.normal(-3000, 1500, n)).round()
    values = np.where(rng.random(n) < 0.04, 1.0, rng.random(n) * 1e-6)
    cluster = np.minimum(np.arange(n), rng.integers(45, n))
    found = length_controlled(values, longer, cluster)
    if not found.reason:
        value, low, high = ends(found)
        assert 0 <= low <= value <= high <= 1
        for effect in (found.effect, found.effect_low, found.effect_high):
            assert effect is not None
            assert np.isfinite(effect)
    assert "rest" not in found.reason


def test_it_takes_out_what_length_alone_decides() -> None:
    rng = np.random.default_rng(5)
    longer = rng.normal(100, 80, 600)
    values = (rng.random(600) < 1 / (1 + np.exp(-longer / 60))).astype(float)
    assert values.mean() > 0.7
    _, low, high = ends(length_controlled(values, longer))
    assert low < 0.5 < high


@pytest.mark.parametrize(
    ("values", "longer", "reason"),
    [
        ([], [], f"fewer than {FEWEST}"),
        ([1, 0] * 19, list(range(38)), f"fewer than {FEWEST}"),
        ([1] * 40, list(range(40)), "all verdicts are the same"),
        ([1, 0] * 20, [7] * 40, "by the same"),
        ([1, 0] * 20, [0] * 40, "by nothing"),
        ([1, 0] * 20, list(range(1, 41)), "side 1 is longer in all pairs"),
        ([1, 0] * 20, [-d for d in range(1, 41)], "side 1 is shorter in all pairs"),
        ([1, 0] * 20, [-5, -1, *range(1, 39)], "longer in 95% of the pairs"),
        ([1, 0] * 100, [*range(-8, 0), *range(1, 193)], "longer in 96% of the pairs"),
    ],
)
def test_it_says_why_there_is_none(values: list[float], longer: list[float], reason: str) -> None:
    found = length_controlled(values, longer)
    assert (found.value, found.low, found.effect) == (None, None, None)
    assert reason in found.reason


def test_the_interval_covers_the_truth() -> None:
    rng = np.random.default_rng(6)
    held = 0
    for _ in range(400):
        longer = rng.normal(80, 200, 150)
        odds = 0.5 + np.tanh(longer / np.hypot(80, 200))
        found = length_controlled((rng.random(150) < 1 / (1 + np.exp(-odds))).astype(float), longer)
        _, low, high = ends(found)
        held += low <= 1 / (1 + np.exp(-0.5)) <= high
    assert 0.925 <= held / 400 <= 0.985


def test_where_each_instruction_weighs_the_same_more_of_the_same_changes_nothing() -> None:
    """Every pair as often as one likes, on its own instruction: the fit is that of the single pairs."""
    rng = np.random.default_rng(3)
    longer = rng.normal(50, 200, 120)
    won = (rng.random(120) < 1 / (1 + np.exp(-longer / 200))).astype(float)
    many = np.repeat(np.arange(120), rng.integers(1, 9, 120))
    single = length_controlled(won, longer)
    again = length_controlled(won[many], longer[many], many, weighting="instructions")
    assert (again.n, again.clusters) == (len(many), 120)
    for name in ("value", "low", "high", "effect", "effect_low", "effect_high", "typical"):
        assert getattr(again, name) == pytest.approx(getattr(single, name), rel=1e-9), name
    plain = length_controlled(won[many], longer[many], many)
    assert plain.value != pytest.approx(single.value, rel=1e-3)


def test_one_instruction_with_many_pairs_does_not_widen_the_rate_at_equal_length() -> None:
    rng = np.random.default_rng(4)
    longer = rng.normal(0, 200, 133)
    won = (rng.random(133) < 0.5).astype(float)
    won[100:] = 1.0
    clusters = [*range(100), *[0] * 33]
    alone = length_controlled(won[:100], longer[:100], clusters[:100])
    together = length_controlled(won, longer, clusters, weighting="instructions")
    by_pair = length_controlled(won, longer, clusters)
    widths = [(found.high or 1) - (found.low or 0) for found in (alone, together, by_pair)]
    assert widths[1] < 1.1 * widths[0]
    assert widths[2] > 2 * widths[0]
