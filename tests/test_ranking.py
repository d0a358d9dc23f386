"""Rankings: against a naive reference, against choix, and by the properties that a fair ranking has."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import choix
import evalica
import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from scipy.optimize import linprog, minimize

from evenhand.core.stats import davidson
from evenhand.core.stats.comparisons import Comparisons, gather, matrices, read_outcomes
from evenhand.core.stats.graph import finite_parts, firm_parts
from evenhand.core.stats.groups import letters, rank_ranges
from evenhand.core.stats.jackknife import covariance
from evenhand.core.stats.multiple import holm
from evenhand.core.stats.parts import split
from evenhand.core.stats.ranking import Ranking, rank, rank_models
from evenhand.core.stats.separated_models import decided_wins, equal_p

Match = tuple[str, str, str | None, int]
OTHER = {"1": "2", "2": "1", "tie": "tie", None: None}


def ranked(matches: Sequence[Match], **more: Any) -> Ranking:
    one, two, outcomes, clusters = zip(*matches, strict=True)
    return rank_models(one, two, outcomes, clusters, **more)


def gathered(matches: Sequence[Match]) -> Comparisons:
    one, two, outcomes, clusters = zip(*matches, strict=True)
    return gather(one, two, outcomes, clusters)


def simulated(models: int, clusters: int, pairs: int, *, seed: int = 0, ties: float = 0.5) -> list[Match]:
    """Bouts of models a, b, c ... that differ by 0.4 each, with an effect of each cluster."""
    rng = random.Random(seed)
    names = [chr(ord("a") + number) for number in range(models)]
    matches: list[Match] = []
    for cluster in range(clusters):
        level = {name: -0.4 * number + rng.gauss(0, 0.6) for number, name in enumerate(names)}
        for _ in range(pairs):
            one, two = rng.sample(names, 2)
            lead = level[one] - level[two]
            weights = [math.exp(lead / 2), math.exp(-lead / 2), ties]
            matches.append((one, two, rng.choices(["1", "2", "tie"], weights)[0], cluster))
    return matches


@st.composite
def small_matches(
    draw: st.DrawFn, models: str = "abcd", outcomes: Sequence[str | None] = ("1", "2", "tie")
) -> list[Match]:
    """A handful of matches among a handful of models."""
    names = st.lists(st.sampled_from(models), min_size=2, max_size=2, unique=True)
    match = st.tuples(names, st.sampled_from(list(outcomes)), st.integers(0, 5))
    return [
        (pair[0], pair[1], outcome, cluster)
        for pair, outcome, cluster in draw(st.lists(match, min_size=1, max_size=24))
    ]


# -- the naive reference: the likelihood climbed one coordinate at a time, in plain Python -----------


def chances(lead: float, log_tie: float) -> tuple[float, float, float]:
    weights = math.exp(lead / 2), math.exp(-lead / 2), math.exp(log_tie)
    return tuple(weight / sum(weights) for weight in weights)  # type: ignore[return-value]


def naive_slope(matches: Sequence[Match], strength: dict[str, float], log_tie: float, of: str | None) -> float:
    """The derivative of the log-likelihood by one strength, or by the log of the tie parameter (None)."""
    total = 0.0
    for one, two, outcome, _ in matches:
        win, loss, tie = chances(strength[one] - strength[two], log_tie)
        if of is None:
            total += (outcome == "tie") - tie
        elif of in (one, two):
            sign = 1 if of == one else -1
            total += sign * (((outcome == "1") - (outcome == "2")) - (win - loss)) / 2
    return total


def naive_fit(matches: Sequence[Match]) -> tuple[dict[str, float], float]:
    strength = {name: 0.0 for match in matches for name in match[:2]}
    has_ties = any(match[2] == "tie" for match in matches)
    log_tie = 0.0 if has_ties else -math.inf
    coordinates: list[str | None] = [*sorted(strength), *([None] if has_ties else [])]
    for _ in range(3000):
        moved = 0.0
        for of in coordinates:
            before = log_tie if of is None else strength[of]
            low, high = before - 3, before + 3
            for _ in range(45):
                middle = (low + high) / 2
                trial = {**strength, of: middle} if of is not None else strength
                uphill = naive_slope(matches, trial, middle if of is None else log_tie, of) > 0
                low, high = (middle, high) if uphill else (low, middle)
            if of is None:
                log_tie = low
            else:
                strength[of] = low
            moved = max(moved, abs(low - before))
        if moved < 1e-9:
            break
    mean = sum(strength.values()) / len(strength)
    return {name: value - mean for name, value in strength.items()}, math.exp(log_tie)


CONNECTED: list[Match] = [("a", "b", "1", 0), ("b", "c", "1", 0), ("c", "a", "1", 1)]


@settings(max_examples=8, deadline=None)
@given(small_matches("abc"))
def test_strengths_are_those_of_the_naive_reference(matches: list[Match]) -> None:
    matches = [*matches, *CONNECTED]  # a cycle of wins: the maximum is finite
    expected, tie = naive_fit(matches)
    found = ranked(matches)
    for contrast in found.contrasts:
        difference = expected[contrast.model_1] - expected[contrast.model_2]
        assert contrast.difference == pytest.approx(difference, abs=1e-6)
    assert (found.tie_parameter or 0.0) == pytest.approx(tie, rel=1e-5)


@settings(max_examples=100, deadline=None)
@given(small_matches("abcde"))
def test_the_slope_is_zero_at_the_maximum(matches: list[Match]) -> None:
    matches = [*matches, *CONNECTED, ("d", "a", "1", 2), ("a", "d", "1", 2), ("e", "a", "1", 2), ("a", "e", "1", 2)]
    wins, ties = matrices(gathered(matches).rows, 5)
    fit = davidson.fit(wins, ties)
    strength = dict(zip("abcde", fit.strengths.tolist(), strict=True))
    log_tie = -math.inf if fit.log_tie is None else fit.log_tie
    for of in [*"abcde", *([None] if fit.log_tie is not None else [])]:
        assert naive_slope(matches, strength, log_tie, of) == pytest.approx(0, abs=1e-7)


@settings(max_examples=50, deadline=None)
@given(small_matches("abcd", ["1", "2"]))
def test_without_ties_choix_finds_the_same(matches: list[Match]) -> None:
    matches = [*matches, *CONNECTED, ("d", "a", "1", 2), ("a", "d", "1", 2)]
    data = [
        ("abcd".index(one), "abcd".index(two))
        for one, two, *_ in (b if b[2] == "1" else (b[1], b[0]) for b in matches)
    ]
    expected = choix.opt_pairwise(4, data, alpha=0, method="BFGS", tol=1e-10)
    for contrast in ranked(matches).contrasts:
        difference = expected["abcd".index(contrast.model_1)] - expected["abcd".index(contrast.model_2)]
        assert contrast.difference == pytest.approx(difference, abs=1e-4)


def test_choix_finds_the_same_in_many_matches_of_many_models() -> None:
    matches = simulated(12, 300, 5, ties=0.0)
    names = "abcdefghijkl"
    data = [
        (names.index(one), names.index(two)) if won == "1" else (names.index(two), names.index(one))
        for one, two, won, _ in matches
    ]
    expected = choix.ilsr_pairwise(12, data, alpha=0)
    found = {standing.model: standing.strength for standing in ranked(matches).standings}
    assert [found[name] for name in names] == pytest.approx((expected - expected.mean()).tolist(), abs=1e-6)


@settings(max_examples=40, deadline=None)
@given(small_matches("abcd"))
def test_with_ties_evalica_finds_the_same(matches: list[Match]) -> None:
    """Newman (2023) writes Davidson's tie parameter as 2v.

    evalica stops when the strengths stand still, wherever v is by then (equal models: at once), so v is told to it;
    that v then stays where it is says that it is the right one.
    """
    matches = [*matches, *CONNECTED, ("d", "a", "1", 2), ("a", "d", "1", 2), ("b", "d", "tie", 3)]
    one, two, outcomes, _ = zip(*matches, strict=True)
    words = {"1": evalica.Winner.X, "2": evalica.Winner.Y, "tie": evalica.Winner.Draw}
    found = ranked(matches)
    assert found.tie_parameter is not None
    winners = [words[str(outcome)] for outcome in outcomes]
    other = evalica.newman(one, two, winners, v_init=found.tie_parameter / 2, tolerance=1e-13, limit=200_000)
    for contrast in found.contrasts:
        expected = math.log(other.scores[contrast.model_1] / other.scores[contrast.model_2])
        assert contrast.difference == pytest.approx(expected, abs=1e-6)
    assert found.tie_parameter == pytest.approx(2 * other.v, abs=1e-6)


def test_two_models_have_the_strengths_of_the_textbook() -> None:
    """Davidson's estimates for two models: exp(d) = wins / losses and v = ties / sqrt(wins losses)."""
    outcomes = ["1"] * 9 + ["2"] * 4 + ["tie"] * 3
    matches: list[Match] = [("a", "b", outcome, cluster) for cluster, outcome in enumerate(outcomes)]
    found = ranked(matches)
    first, second = found.standings
    assert first.strength is not None
    assert second.strength is not None
    assert first.strength - second.strength == pytest.approx(math.log(9 / 4))
    assert found.tie_parameter == pytest.approx(3 / math.sqrt(9 * 4))


# -- where there is no finite maximum ------------------------------------------------------------------


def has_finite_maximum(wins: np.ndarray, ties: np.ndarray) -> bool:
    """Whether no direction exists in which no outcome loses likelihood, by linear programming."""
    size = len(wins)
    rows = []
    for i in range(size):
        for j in range(size):
            step = np.zeros(size + 1)
            step[i], step[j] = -1.0, 1.0
            if wins[i, j]:  # x_i >= x_j, x_i - x_j >= 2 e
                rows += [step, step + 2 * np.eye(size + 1)[size]]
            if ties[i, j]:  # 2 e >= x_j - x_i, and the other way round by symmetry
                rows.append(step - 2 * np.eye(size + 1)[size])
    if not rows:
        return size == 1
    system = np.array(rows)
    fixed = (0.0, 0.0)
    bounds = [fixed, *[(-1.0, 1.0)] * (size - 1), (-1.0, 1.0) if ties.any() else fixed]
    found = linprog(system.sum(axis=0), A_ub=system, b_ub=np.zeros(len(rows)), bounds=bounds)
    links = (wins + ties + (wins + ties).T > 0).astype(int)
    linked = (np.linalg.matrix_power(links + np.eye(size, dtype=int), size) > 0).all()
    return bool(linked and found.fun > -1e-9)


@settings(max_examples=200, deadline=None)
@given(small_matches("abcd"))
def test_one_part_is_found_exactly_where_the_maximum_is_finite(matches: list[Match]) -> None:
    data = gathered(matches)
    wins, ties = matrices(data.rows, data.size)
    assert (finite_parts(wins, ties).max() == 0) == has_finite_maximum(wins, ties)


@settings(max_examples=100, deadline=None)
@given(small_matches("abcdef"))
def test_every_part_has_a_finite_maximum(matches: list[Match]) -> None:
    data = gathered(matches)
    wins, ties = matrices(data.rows, data.size)
    labels = finite_parts(wins, ties)
    for part in range(labels.max() + 1):
        inside = np.ix_(labels == part, labels == part)
        assert has_finite_maximum(wins[inside], ties[inside])


@settings(max_examples=150, deadline=None)
@given(small_matches("abcdef", ["1", "2", "tie", None]))
def test_no_number_is_silly(matches: list[Match]) -> None:
    """Whatever the comparisons: numbers are finite and of a size that data of this size can show, or None."""
    assume(any(outcome for _, _, outcome, _ in matches))
    found = ranked(matches)
    for s in found.standings:
        for number in (s.strength, s.low, s.high, s.error):
            assert number is None or abs(number) < 300
        if s.strength is not None and s.low is not None and s.high is not None:
            assert s.low <= s.strength <= s.high
        assert 1 <= s.best_rank <= s.worst_rank <= len(found.standings)
    assert sorted(name for part in found.parts for name in part) == sorted(found.models)


def test_a_model_that_won_everything_has_firths_strength_and_a_lower_end_below_the_exact_one() -> None:
    matches = simulated(4, 60, 3)
    matches += [("best", "a", "1", cluster) for cluster in range(8)]
    found = ranked(matches)
    best = found.standings[0]
    assert (best.model, best.place, best.error) == ("best", "above", None)
    a = next(s.strength for s in found.standings if s.model == "a")
    assert a is not None
    assert best.strength == pytest.approx(a + math.log(8.5 / 0.5), abs=1e-4)
    # Eight wins in eight clusters come with a chance of 2.5% if each has the chance 0.025 ** (1/8). Firth's
    # likelihood has fallen by log 40 a little further down; not knowing a's own strength makes it lower still.
    exact = a + math.log(0.025 ** (1 / 8) / (1 - 0.025 ** (1 / 8)))
    assert best.low is not None
    assert best.high is not None
    assert best.strength is not None
    assert best.low < exact
    fallen = penalised(best.strength - a, 8) - penalised(best.low - a, 8)
    assert math.log(40) < fallen < math.log(40) + 1
    # Firth's likelihood of odds x is 8.5 log p + 0.5 log(1 - p); at the upper end it has fallen by log 40.
    assert penalised(best.strength - a, 8) - penalised(best.high - a, 8) == pytest.approx(math.log(40), abs=1e-2)
    assert "best: never lost" in found.warnings[0]
    assert found.parts == (("best",), ("a", "b", "c", "d"))


def test_models_that_lost_to_each_other_alone_are_not_said_to_have_never_lost() -> None:
    matches = simulated(4, 60, 3)
    matches += [(one, two, "1", n) for one, two in (("top", "next"), ("next", "a")) for n in range(8)]
    assert ranked(matches).warnings[0].startswith("top, next: never lost except to each other: ")


def penalised(lead: float, wins: int) -> float:
    chance = 1 / (1 + math.exp(-lead))
    return (wins + 0.5) * math.log(chance) - 0.5 * math.log1p(math.exp(lead))


def test_a_model_that_lost_everything_is_the_mirror_of_one_that_won_everything() -> None:
    matches = simulated(4, 60, 3) + [("worst", "a", "2", cluster) for cluster in range(8)]
    worst = ranked(matches).standings[-1]
    assert (worst.model, worst.place) == ("worst", "below")
    mirrored = [(one, two, OTHER[outcome], cluster) for one, two, outcome, cluster in matches]
    best = ranked(mirrored).standings[0]
    for mine, other in ((worst.strength, best.strength), (worst.low, best.high), (worst.high, best.low)):
        assert mine is not None
        assert other == pytest.approx(-mine, abs=1e-3)


def test_many_wins_in_one_cluster_are_one_piece_of_luck() -> None:
    many = simulated(4, 60, 3) + [("best", "a", "1", 7)] * 50
    once = [*simulated(4, 60, 3), ("best", "a", "1", 7)]
    assert ranked(many).standings[0].low == pytest.approx(ranked(once).standings[0].low, abs=1e-3)
    assert ranked(many).standings[0].strength == pytest.approx(ranked(once).standings[0].strength, abs=1e-3)


@pytest.mark.parametrize(("wins", "apart"), [(1, False), (4, False), (20, True)])
def test_two_models_of_which_one_always_won(wins: int, apart: bool) -> None:
    found = ranked([("a", "b", "1", cluster) for cluster in range(wins)])
    lead = math.log((wins + 0.5) / 0.5)
    assert [s.strength for s in found.standings] == pytest.approx([lead / 2, -lead / 2], abs=1e-4)
    assert found.contrasts[0].p == pytest.approx(min(1, 2 * 0.5**wins))
    assert found.contrasts[0].difference == pytest.approx(lead, abs=1e-4)
    assert [s.group for s in found.standings] == (["a", "b"] if apart else ["a", "a"])
    assert "all strengths are guesses" in found.warnings[0]


@pytest.mark.parametrize(("other", "p"), [(0, 2 / 2**6), (100, 2 / 2**12)])
def test_two_games_of_a_model_in_one_cluster_weigh_half_each(other: int, p: float) -> None:
    """As docs/ranking.md says: b's games with c halve its games with a, unless they are on other instructions."""
    found = ranked([match for n in range(12) for match in (("a", "b", "1", n), ("b", "c", "1", n + other))])
    assert found.models == ("a", "b", "c")
    assert found.contrasts[0].p == pytest.approx(p)


def test_models_above_and_below_that_never_met_are_told_apart_through_the_others() -> None:
    matches = simulated(3, 80, 3)
    matches += [("best", name, "1", c) for c in range(40) for name in "abc"]
    matches += [("worst", name, "2", c) for c in range(40) for name in "abc"]
    found = ranked(matches)
    assert (found.models[0], found.models[-1]) == ("best", "worst")
    assert not set(found.standings[0].group) & set(found.standings[-1].group)
    assert (found.standings[0].worst_rank, found.standings[-1].best_rank) == (1, 5)


def test_wins_and_ties_without_a_loss_have_a_strength_too() -> None:
    """With ties, no finite strength fits 8 wins, 2 ties and no loss; decided comparisons say who is ahead."""
    found = ranked([("a", "b", "1" if cluster < 8 else "tie", cluster) for cluster in range(10)])
    first = found.standings[0]
    assert (first.model, first.place) in {("a", "linked"), ("a", "above")}
    assert first.strength == pytest.approx(math.log(8.5 / 0.5) / 2, abs=1e-4)
    assert found.contrasts[0].p == pytest.approx(2 * 0.5**8)


def naive_equal_p(matches: Sequence[Match], one: str, two: str) -> float:
    """2 exp(-D) by a climb of both likelihoods, strengths kept within 12 of zero."""
    games = [(a, b) if won == "1" else (b, a) for a, b, won, _ in matches if won != "tie"]

    def best(as_one: bool) -> float:
        name = {x: one if as_one and x == two else x for game in games for x in game}
        names = sorted(set(name.values()))
        won = np.array([names.index(name[a]) for a, _ in games])
        lost = np.array([names.index(name[b]) for _, b in games])
        found = minimize(
            lambda s: np.logaddexp(0, s[lost] - s[won]).sum(), np.zeros(len(names)), bounds=[(-12, 12)] * len(names)
        )
        return float(-found.fun)

    return min(1.0, 2 * math.exp(best(True) - best(False)))


@settings(max_examples=25, deadline=None)
@given(small_matches("abcd"))
def test_the_test_of_separated_models_is_that_of_two_plain_fits(matches: list[Match]) -> None:
    matches = [(one, two, outcome, number) for number, (one, two, outcome, _) in enumerate(matches)]
    data = gathered(matches)
    one, two = np.triu_indices(data.size, 1)
    found = equal_p(decided_wins(data.rows, np.zeros(data.size, dtype=np.int64)), one, two)
    for i, j, p in zip(one, two, found, strict=True):
        played = {name for a, b, won, _ in matches if won != "tie" for name in (a, b)}
        if {data.models[i], data.models[j]} <= played:
            assert p == pytest.approx(naive_equal_p(matches, data.models[i], data.models[j]), rel=0.02)


def test_with_little_time_the_smallest_p_values_are_worked_out() -> None:
    data = gathered([(one, two, o, n) for n, (one, two, o, _) in enumerate(simulated(6, 60, 1, ties=0.0))])
    one, two = np.triu_indices(6, 1)
    wins = decided_wins(data.rows, np.zeros(6, dtype=np.int64))
    every, some = equal_p(wins, one, two), equal_p(wins, one, two, most=6 * 6**3)
    assert (some < 1).sum() <= 6
    assert some.min() == pytest.approx(every.min())
    assert (np.isclose(some, every) | (some == 1)).all()


@pytest.mark.parametrize(("models", "games"), [(10, 30), (8, 0)])
def test_equal_models_are_seldom_told_apart(models: int, games: int) -> None:
    """Two designs in which 19% and 11% of rankings told equal models apart; benchmarks/coverage_ranking.py."""
    wrong, separated = 0, 0
    for seed in range(60):
        rng = np.random.default_rng([8, seed])
        one, two = np.triu_indices(models, 1)
        if games:
            one = rng.integers(0, models, games)
            two = (one + rng.integers(1, models, games)) % models
        names = [str(model) for model in range(models)]
        outcomes = rng.choice(["1", "2"], len(one)).tolist()
        found = rank_models([names[i] for i in one], [names[i] for i in two], outcomes)
        wrong += min(contrast.p_holm for contrast in found.contrasts) <= 0.05
        for standing in found.standings:
            if standing.place in ("above", "below"):
                separated += 1
                assert standing.low is not None
                assert standing.high is not None
    assert separated > 3
    assert wrong <= 7  # more comes in 1% of cases if the share is 5%


# -- Chatbot Arena's scale ------------------------------------------------------------------------------------


def test_the_arena_scale_is_bradley_and_terry_with_half_wins() -> None:
    matches = simulated(6, 200, 3, ties=1.5)
    one, two, outcomes, _ = zip(*matches, strict=True)
    words = {"1": evalica.Winner.X, "2": evalica.Winner.Y, "tie": evalica.Winner.Draw}
    other = evalica.bradley_terry(
        one, two, [words[o] for o in outcomes], tie_weight=0.5, tolerance=1e-13, limit=10_000
    )
    found = ranked(matches, scale="arena")
    expected = {name: 400 * math.log10(score) for name, score in other.scores.items()}
    middle = sum(expected.values()) / 6
    for standing in found.standings:
        assert standing.strength == pytest.approx(1000 + expected[standing.model] - middle, abs=1e-4)
    assert (found.tie_parameter, found.scale) == (None, "arena")
    assert "half wins" in found.method
    elo = ranked(matches, scale="elo")
    assert {s.model: s.ties for s in found.standings} == {s.model: s.ties for s in elo.standings}
    assert found.rates == elo.rates
    spread, wide = (r.standings[0].strength - r.standings[-1].strength for r in (found, elo))  # type: ignore[operator]
    assert spread < 0.8 * wide


def test_parts_that_never_met_are_named() -> None:
    other = [
        (one.upper(), two.upper(), outcome, cluster) for one, two, outcome, cluster in simulated(2, 30, 2, seed=1)
    ]
    found = ranked(simulated(3, 30, 3) + other)
    assert [set(part) for part in found.parts] == [{"a", "b", "c"}, {"A", "B"}]
    assert [s.place for s in found.standings] == ["linked"] * 3 + ["beside"] * 2
    assert any(warning.startswith(("A, B: not linked", "B, A: not linked")) for warning in found.warnings)
    lone = found.standings[-1]
    assert (lone.strength, lone.low, lone.high, lone.best_rank, lone.worst_rank) == (None, None, None, 1, 5)


def test_only_ties_rank_nobody() -> None:
    found = ranked([("a", "b", "tie", 0), ("b", "c", "tie", 1)])
    assert [(s.strength, s.group) for s in found.standings] == [(None, "a")] * 3
    assert {s.place for s in found.standings} == {"beside"}  # none of them is the main one
    assert found.warnings == ("every comparison is a tie: nothing puts one model above another",)


def test_only_ties_rank_nobody_on_the_arena_scale_either() -> None:
    found = ranked([("a", "b", "tie", n) for n in range(20)], scale="arena")
    assert [(s.strength, s.low, s.high, s.error) for s in found.standings] == [(None,) * 4] * 2
    assert found.rates[0][1] == 0.5
    assert found.warnings == ("every comparison is a tie: nothing puts one model above another",)


def test_ties_alone_put_nobody_before_a_model_that_won_everything() -> None:
    matches = [("x", "y", "tie", n) for n in range(12)]
    matches += [match for n in range(12) for match in (("top", "mid", "1", n), ("mid", "low", "1", n))]
    for scale in ("log-odds", "elo", "arena"):
        found = ranked(matches, scale=scale)
        assert found.models == ("top", "mid", "low", "x", "y"), scale
        assert [s.strength is None for s in found.standings] == [False] * 3 + [True] * 2
    joined = ranked([*matches, ("x", "low", "tie", 50)], scale="arena")  # through low, ties are half wins here, too
    assert [s.strength for s in joined.standings if s.model in ("x", "y")] == pytest.approx([1000, 1000])


def test_models_that_are_not_linked_are_not_held_against_a_main_model_that_there_is_not() -> None:
    found = ranked([("a", "b", "tie", n) for n in range(5)] + [("c", "d", "1", n) for n in range(9)])
    assert not any("main" in warning for warning in found.warnings)
    places = {s.model: s.place for s in found.standings}
    assert places == {"c": "linked", "d": "below", "a": "beside", "b": "beside"}
    assert "a, b: not linked with the others by wins and losses: cannot be ranked among them" in found.warnings


def test_invalid_outcomes_are_counted_and_nothing_else() -> None:
    matches = simulated(3, 40, 3)
    with_invalid = ranked([*matches, ("a", "b", None, 0), ("a", "c", None, 50)])
    clean = ranked(matches)
    assert (with_invalid.n, with_invalid.invalid) == (clean.n, 2)
    assert {s.model: s.invalid for s in with_invalid.standings} == {"a": 2, "b": 1, "c": 1}
    assert [replace(s, invalid=0) for s in with_invalid.standings] == list(clean.standings)


@pytest.mark.parametrize(
    ("outcomes", "fault"),
    [
        (["win"], "none of '1', '2', 'tie'"),
        (["both_bad"], "none of"),
        (np.array([[0.5, 0.5, 0.5]]), "sum to one"),
        (np.array([[1.5, -0.5, 0.0]]), "not negative"),
        (np.array([[0.5, 0.5]]), "three weights"),
        ([], "0 outcomes"),
    ],
)
def test_unknown_outcomes_are_refused(outcomes: Any, fault: str) -> None:
    with pytest.raises(ValueError, match=fault):
        rank_models(["a"], ["b"], outcomes)


def test_wrong_use_is_said() -> None:
    with pytest.raises(ValueError, match="compared with itself"):
        rank_models(["a"], ["a"], ["1"])
    with pytest.raises(ValueError, match="no valid comparisons"):
        rank_models(["a"], ["b"], [None])
    with pytest.raises(ValueError, match="no model 'x'"):
        ranked(simulated(3, 20, 2), anchor="x")
    with pytest.raises(ValueError, match="cannot anchor"):
        ranked([*simulated(3, 20, 2), ("x", "a", "1", 0)], anchor="x")


# -- properties ----------------------------------------------------------------------------------------


@settings(max_examples=60, deadline=None)
@given(small_matches("abcde", ["1", "2", "tie", None]), st.randoms(use_true_random=False))
def test_sides_and_rows_may_change_places(matches: list[Match], rng: random.Random) -> None:
    """To the last bit: a fair ranking cannot know on which side a model stood, or in which row."""
    assume(any(outcome for _, _, outcome, _ in matches))
    turned = [
        (two, one, OTHER[outcome], cluster) if rng.random() < 0.5 else (one, two, outcome, cluster)
        for one, two, outcome, cluster in matches
    ]
    rng.shuffle(turned)
    assert ranked(turned) == ranked(matches)


@settings(max_examples=40, deadline=None)
@given(small_matches("abcd"))
def test_outcomes_turned_round_turn_the_ranking_round(matches: list[Match]) -> None:
    matches = [*matches, *CONNECTED, ("d", "a", "1", 2), ("a", "d", "1", 3)]
    found = {s.model: s for s in ranked(matches).standings}
    back = {s.model: s for s in ranked([(one, two, OTHER[o], c) for one, two, o, c in matches]).standings}
    for model, s in found.items():
        mirror = back[model]
        assert (mirror.best_rank, mirror.worst_rank) == (5 - s.worst_rank, 5 - s.best_rank)
        for here, there in ((s.strength, mirror.strength), (s.low, mirror.high), (s.high, mirror.low)):
            assert there == (None if here is None else pytest.approx(-here, abs=1e-8))


@settings(max_examples=60, deadline=None)
@given(small_matches("abcd"))
def test_a_twin_in_its_own_cluster_changes_neither_estimate_nor_interval(matches: list[Match]) -> None:
    once, twice = ranked(matches), ranked([*matches, *matches])
    for a, b in zip(once.standings, twice.standings, strict=True):
        for here, there in ((a.strength, b.strength), (a.low, b.low), (a.high, b.high), (a.error, b.error)):
            assert there == (None if here is None else pytest.approx(here, abs=1e-4))
        assert (a.model, a.group, a.best_rank, a.worst_rank) == (b.model, b.group, b.best_rank, b.worst_rank)


def test_weights_may_come_in_any_order_to_the_last_bit() -> None:
    rng = np.random.default_rng(3)
    weights = rng.dirichlet([1, 1, 1], 200)
    one, two = rng.integers(0, 4, 200), rng.integers(1, 4, 200)
    names = np.array(list("abcd"))
    clusters = rng.integers(0, 30, 200)
    first, second = names[one], names[(one + two) % 4]
    found = rank_models(first.tolist(), second.tolist(), weights, clusters.tolist())
    order = rng.permutation(200)
    again = rank_models(first[order].tolist(), second[order].tolist(), weights[order], clusters[order].tolist())
    assert again == found
    turned = rank_models(second.tolist(), first.tolist(), weights[:, [1, 0, 2]], clusters.tolist())
    assert turned == found


def test_certain_weights_are_the_same_as_verdicts() -> None:
    matches = simulated(4, 40, 4)
    one, two, outcomes, clusters = zip(*matches, strict=True)
    assert rank_models(one, two, read_outcomes(outcomes), clusters) == ranked(matches)


def test_elo_is_the_same_ranking_on_another_scale() -> None:
    plain, elo = ranked(simulated(4, 60, 4)), ranked(simulated(4, 60, 4), scale="elo", anchor="b")
    zero = next(s.strength for s in plain.standings if s.model == "b")
    assert zero is not None
    for a, b in zip(plain.standings, elo.standings, strict=True):
        assert a.strength is not None
        assert (a.model, a.group) == (b.model, b.group)
        assert b.strength == pytest.approx(1000 + 400 / math.log(10) * (a.strength - zero))
    anchor = next(s for s in elo.standings if s.model == "b")
    assert anchor.strength == pytest.approx(1000)
    assert anchor.low is anchor.high is None


def test_an_anchored_interval_is_that_of_the_difference() -> None:
    matches = simulated(4, 60, 4)
    anchored = {s.model: s for s in ranked(matches, anchor="b").standings}
    for contrast in ranked(matches).contrasts:
        if contrast.model_2 == "b":
            s = anchored[contrast.model_1]
            assert [s.low, s.high] == pytest.approx([contrast.low, contrast.high])


def test_the_record_of_each_model_is_that_of_naive_counting() -> None:
    matches = simulated(4, 30, 4)
    found = ranked(matches)
    for i, s in enumerate(found.standings):
        mine = [(o if one == s.model else OTHER[o]) for one, two, o, _ in matches if s.model in (one, two)]
        assert (s.n, s.wins, s.losses, s.ties) == (len(mine), mine.count("1"), mine.count("2"), mine.count("tie"))
        assert s.clusters == len({cluster for one, two, _, cluster in matches if s.model in (one, two)})
        for j, other in enumerate(found.models):
            met = [
                (o if one == s.model else OTHER[o]) for one, two, o, _ in matches if {s.model, other} == {one, two}
            ]
            assert found.counts[i][j] == len(met)
            rate = (met.count("1") + met.count("tie") / 2) / len(met) if met else None
            assert found.rates[i][j] == (None if rate is None else pytest.approx(rate))


# -- intervals -----------------------------------------------------------------------------------------


def naive_covariance(data: Comparisons) -> np.ndarray:
    """One cluster left out at a time, one Newton step each, with plain matrices over all parameters."""
    size = data.size
    fit = davidson.fit(*matrices(data.rows, size))
    total = np.linalg.inv(davidson.slopes(*matrices(data.rows, size), fit.strengths, fit.log_tie)[1])
    moves = []
    for cluster in np.unique(data.rows.cluster):
        rest = matrices(data.rows.of(data.rows.cluster != cluster), size)
        gradient, information = davidson.slopes(*rest, fit.strengths, fit.log_tie)
        if fit.log_tie is not None and not rest[1].any():
            gradient[-1] = -_expected_ties(rest[0] + rest[0].T, fit)
        moves.append(np.linalg.pinv(information, rcond=1e-10) @ gradient)
    found = np.array(moves)
    assert np.isfinite(total).all()
    return np.asarray(found.T @ found * (len(moves) - 1) / len(moves))[:size, :size]


def _expected_ties(met: np.ndarray, fit: davidson.DavidsonFit) -> float:
    odds = davidson.expect(fit.strengths[:, None] - fit.strengths[None, :], fit.log_tie)
    return float(np.triu(met * odds.tie).sum())


@pytest.mark.parametrize(
    ("models", "clusters", "pairs", "ties"),
    [
        (4, 60, 1, 0.5),
        (4, 60, 3, 0.0),
        (5, 80, 4, 0.5),
        (4, 12, 30, 0.5),
        (6, 5, 40, 0.0),
        (3, 3, 50, 0.8),
        (8, 300, 12, 0.5),
    ],
)
def test_the_covariance_is_that_of_plain_matrices(models: int, clusters: int, pairs: int, ties: float) -> None:
    """Small clusters, large ones, and few that hold much of the information each."""
    data = gathered(simulated(models, clusters, pairs, ties=ties))
    parts = split(data)
    assert len(parts.each) == 1
    expected = naive_covariance(data)
    centre = np.eye(models) - 1 / models
    assert parts.first.covariance == pytest.approx(centre @ expected @ centre.T, rel=1e-6, abs=1e-10)


def test_one_newton_step_is_near_a_whole_refit() -> None:
    matches = simulated(4, 40, 6)
    data = gathered(matches)
    full = split(data).first
    moves = []
    for cluster in range(40):
        rest = split(gathered([match for match in matches if match[3] != cluster])).first
        moves.append(rest.strengths - full.strengths)
    refits = np.array(moves)
    errors = np.sqrt(np.diag(refits.T @ refits * 39 / 40))
    assert np.sqrt(np.diag(full.covariance)) == pytest.approx(errors, rel=0.02)


def test_the_errors_are_those_of_a_bootstrap_over_clusters() -> None:
    matches = simulated(4, 150, 6)
    rng = np.random.default_rng(5)
    by_cluster = [[match for match in matches if match[3] == cluster] for cluster in range(150)]
    drawn = []
    for _ in range(300):
        sample = [match for cluster in rng.integers(0, 150, 150) for match in by_cluster[cluster]]
        one, two, outcomes, _ = zip(*sample, strict=True)
        drawn.append(davidson.fit(*matrices(gather(one, two, outcomes).rows, 4)).strengths)
    bootstrap = np.array(drawn).std(axis=0, ddof=1)
    errors = np.sqrt(np.diag(split(gathered(matches)).first.covariance))
    assert errors == pytest.approx(bootstrap, rel=0.15)


def test_clusters_matter() -> None:
    """The same matches, each ten times in its cluster: ten times the pairs, and no more certainty."""
    matches = simulated(3, 50, 2)
    tenfold = [match for match in matches for _ in range(10)]
    clustered = ranked(tenfold).standings[0].error
    alone = ranked([(one, two, o, i) for i, (one, two, o, _) in enumerate(tenfold)]).standings[0].error
    assert clustered is not None
    assert alone is not None
    assert clustered == pytest.approx(ranked(matches).standings[0].error)
    assert clustered > 2 * alone


def test_a_model_linked_by_one_cluster_has_no_interval() -> None:
    matches = [*simulated(3, 40, 3), ("x", "a", "1", 7), ("x", "a", "2", 7), ("x", "b", "2", 7)]
    found = ranked(matches)
    x = next(s for s in found.standings if s.model == "x")
    assert x.strength is not None
    assert (x.low, x.high, x.error) == (None, None, None)
    assert (x.best_rank, x.worst_rank) == (1, 4)
    assert any("x: linked with the others by one instruction" in warning for warning in found.warnings)
    others = [s for s in found.standings if s.model != "x"]
    assert all(s.low is not None and s.high is not None for s in others)


def test_the_others_do_not_feel_a_model_that_hangs_on_one_cluster() -> None:
    """A model with two matches in one cluster tells nothing of the others: their intervals stay as they are."""
    matches = simulated(3, 40, 3)
    without = {s.model: s for s in ranked(matches).standings}
    for s in ranked([*matches, ("x", "a", "1", 7), ("x", "a", "2", 7)]).standings:
        if s.model != "x":
            assert s.strength == pytest.approx(without[s.model].strength, abs=0.02)
            assert s.error == pytest.approx(without[s.model].error, rel=0.05)


@settings(max_examples=100, deadline=None)
@given(small_matches("abcde"))
def test_firm_parts_are_those_of_leaving_out_each_cluster(matches: list[Match]) -> None:
    rows = gathered(matches).rows
    size = gathered(matches).size
    firm, bridges = firm_parts(rows.one, rows.two, rows.cluster, size)

    def linked(without: int | None) -> np.ndarray:
        links = np.eye(size, dtype=int)
        for i, j, c in zip(rows.one, rows.two, rows.cluster, strict=True):
            if c != without:
                links[i, j] = links[j, i] = 1
        return np.linalg.matrix_power(links, size) > 0

    every = [linked(int(cluster)) for cluster in np.unique(rows.cluster)]
    expected = np.logical_and.reduce([linked(None), *every])
    assert ((firm[:, None] == firm[None, :]) == expected).all()
    assert set(bridges.tolist()) == {
        int(c) for c, there in zip(np.unique(rows.cluster), every, strict=True) if (there != linked(None)).any()
    }


def test_intervals_hold_the_truth() -> None:
    """The benchmark measures 2,000 repetitions of several designs; this is a look at one."""
    held = given = 0
    for seed in range(150):
        lead = next(c for c in ranked(simulated(2, 60, 2, seed=seed, ties=0.0)).contrasts)
        sign = 1 if lead.model_1 == "a" else -1
        assert lead.low is not None
        assert lead.high is not None
        truth = sign * 0.3460  # 0.4 seen through an effect of 0.6 on each side
        held += lead.low <= truth <= lead.high
        given += 1
    assert held / given >= 0.9


def test_covariance_of_a_part_is_not_touched_by_another_part() -> None:
    matches = simulated(3, 40, 3)
    other = [(one.upper(), two.upper(), o, c) for one, two, o, c in simulated(2, 20, 2, seed=9)]
    alone, both = split(gathered(matches)).first, split(gathered(matches + other)).first
    assert both.covariance == pytest.approx(alone.covariance)


def test_the_covariance_needs_no_particular_numbers_of_clusters() -> None:
    data = gathered(simulated(3, 40, 3))
    fit = davidson.fit(*matrices(data.rows, 3))
    shifted = replace(data.rows, cluster=data.rows.cluster * 7 + 3)
    nothing = np.zeros(0, dtype=np.int64)
    assert covariance(shifted, fit, nothing) == pytest.approx(covariance(data.rows, fit, nothing))


# -- groups --------------------------------------------------------------------------------------------


@given(st.lists(st.floats(0, 1), min_size=1, max_size=12))
def test_holm_is_the_procedure_of_the_paper(p: list[float]) -> None:
    corrected = holm(np.array(p))
    for level in (0.01, 0.05, 0.2):
        rejected: set[int] = set()
        for step, index in enumerate(sorted(range(len(p)), key=lambda i: p[i])):
            if p[index] * (len(p) - step) > level:
                break
            rejected.add(index)
        assert {i for i in range(len(p)) if corrected[i] <= level} == rejected


@given(st.integers(1, 9).flatmap(lambda size: st.lists(st.booleans(), min_size=size * size, max_size=size * size)))
def test_models_share_a_letter_exactly_if_they_are_not_apart(cells: list[bool]) -> None:
    size = math.isqrt(len(cells))
    apart = np.triu(np.array(cells).reshape(size, size), 1)
    marks = letters(apart)
    assert marks[0].startswith("a")
    for i in range(size):
        assert len(set(marks[i])) == len(marks[i]) > 0
        for j in range(i + 1, size):
            assert bool(set(marks[i]) & set(marks[j])) == (not apart[i, j])


def test_more_groups_than_letters_have_numbers() -> None:
    marks = letters(~np.eye(60, dtype=bool))
    assert (marks[0], marks[25], marks[26], marks[52]) == ("a", "z", "A", "(53)")
    assert len(set(marks)) == 60


def test_rank_ranges_count_those_above_and_below() -> None:
    assert rank_ranges(np.triu(np.ones((3, 3), dtype=bool), 1)) == ([1, 2, 3], [1, 2, 3])
    assert rank_ranges(np.zeros((3, 3), dtype=bool)) == ([1, 1, 1], [3, 3, 3])


def test_clear_differences_are_told_and_none_are_not() -> None:
    far: list[Match] = [("a", "b", "1" if i % 10 else "2", i) for i in range(200)]
    found = ranked(far)
    assert [s.group for s in found.standings] == ["a", "b"]
    same: list[Match] = [("a", "b", "1" if i % 2 else "2", i) for i in range(200)]
    assert [s.group for s in ranked(same).standings] == ["a", "a"]


def test_the_result_says_how_it_came_about() -> None:
    found = rank(gathered(simulated(3, 40, 3)))
    assert "Davidson" in found.method
    assert (found.n, found.clusters, found.level, found.scale) == (120, 40, 0.95, "log-odds")
    assert found.steps > 1
