"""Agreement, biases and their intervals: against plain references, and by what must not matter."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import combinations, permutations
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from evenhand.core.stats import agreement, bias, calibration
from evenhand.core.stats.agreement import MISSING, TIE
from evenhand.core.stats.clustered import Estimate, Extremes, difference, estimate, mean, ratio, sums_by_cluster

CODE = st.sampled_from([0, 1, 2])
CODE_OR_NONE = st.sampled_from([0, 1, 2, MISSING])
SWAP = np.array([1, 0, 2, -1])  # code -> code with the sides exchanged; -1 finds the last


@st.composite
def tables(draw: st.DrawFn) -> dict[str, Any]:
    """Pairs in clusters, with verdicts in both orders, probabilities, lengths and votes."""
    n = draw(st.integers(2, 25))

    def column(code: st.SearchStrategy[Any]) -> Any:
        return np.array(draw(st.lists(code, min_size=n, max_size=n)))

    weights = np.array(
        draw(st.lists(st.tuples(*[st.integers(1, 20)] * 3), min_size=n, max_size=n)), dtype=np.float64
    )
    return {
        "clusters": column(st.integers(0, 6)),
        "forward": column(CODE_OR_NONE),
        "swapped": column(CODE_OR_NONE),
        "truth": column(CODE_OR_NONE),
        "length_1": column(st.integers(0, 9)),
        "length_2": column(st.integers(0, 9)),
        "p": weights / weights.sum(axis=1, keepdims=True),
        "counts": np.array(draw(st.lists(st.tuples(*[st.integers(0, 4)] * 3), min_size=n, max_size=n))),
        "mass": np.array(draw(st.lists(st.sampled_from([0.1, 0.5, 0.9, 1.0]), min_size=n, max_size=n))),
    }


def longer(t: dict[str, Any]) -> Any:
    return bias.longer_side(t["length_1"], t["length_2"])


# Every statistic of the card, and what becomes of it when the sides of all pairs are exchanged.
STATISTICS: dict[str, Callable[[dict[str, Any]], Estimate]] = {
    "three_way": lambda t: agreement.three_way(t["forward"], t["truth"], t["clusters"]),
    "decided": lambda t: agreement.decided(
        agreement.score_sides(t["forward"], t["truth"]), t["truth"], t["clusters"]
    ),
    "kappa": lambda t: agreement.cohen_kappa(t["forward"], t["truth"], t["clusters"]),
    "alpha": lambda t: agreement.krippendorff_alpha(t["counts"], t["clusters"]),
    "votes": lambda t: agreement.vote_agreement(t["counts"], t["clusters"]),
    "person": lambda t: agreement.against_others(t["counts"], t["forward"], t["clusters"]).person,
    "judge": lambda t: agreement.against_others(t["counts"], t["forward"], t["clusters"]).judge,
    "gap": lambda t: agreement.against_others(t["counts"], t["forward"], t["clusters"], decided_only=True).gap,
    "flips": lambda t: bias.flip_rate(t["forward"], t["swapped"], t["clusters"]),
    "changes": lambda t: bias.change_rate(t["forward"], t["swapped"], t["clusters"]),
    "position": lambda t: bias.position_bias(t["forward"], t["swapped"], t["clusters"]),
    "longer": lambda t: bias.longer_rate(t["forward"], longer(t), t["clusters"]),
    "length_bias": lambda t: bias.length_bias(t["forward"], t["truth"], longer(t), t["clusters"]),
    "mass": lambda t: bias.label_mass(t["mass"], t["clusters"]),
    "brier": lambda t: calibration.brier(t["p"], t["truth"], t["clusters"]),
    "brier_binary": lambda t: calibration.brier_binary(t["p"], t["truth"], t["clusters"]),
    "over": lambda t: calibration.reliability(t["p"], t["truth"], t["clusters"]).over,
}


def turned(t: dict[str, Any]) -> dict[str, Any]:
    """The same pairs with their sides exchanged: what was judged forward is now the swapped order."""
    return {
        **t,
        "forward": SWAP[t["swapped"]],
        "swapped": SWAP[t["forward"]],
        "truth": SWAP[t["truth"]],
        "length_1": t["length_2"],
        "length_2": t["length_1"],
        "p": t["p"][:, [1, 0, 2]],
        "counts": t["counts"][:, [1, 0, 2]],
    }


def only_forward(t: dict[str, Any]) -> dict[str, Any]:
    """Pairs whose two orders said the same, so that exchanging the sides changes nobody's word."""
    return {**t, "swapped": t["forward"]}


def ends(found: Estimate) -> list[float]:
    return [np.nan if x is None else x for x in (found.value, found.low, found.high)]


# Each table is put to every statistic: drawing one takes longer than any of them.
many_tables = settings(max_examples=50, deadline=None)


@many_tables
@given(t=tables())
def test_exchanging_the_sides_changes_nothing_that_speaks_of_the_judge(t: dict[str, Any]) -> None:
    for name, statistic in STATISTICS.items():
        table = t if name in ("flips", "changes", "position") else only_forward(t)
        one, other = ends(statistic(turned(table))), ends(statistic(table))
        np.testing.assert_allclose(one, other, rtol=0, atol=1e-12, err_msg=name)


@many_tables
@given(t=tables(), seed=st.integers(0, 99))
def test_neither_the_order_of_rows_nor_the_names_of_clusters_matter(t: dict[str, Any], seed: int) -> None:
    order = np.random.default_rng(seed).permutation(len(t["clusters"]))
    other = {key: column[order] for key, column in t.items()}
    other["clusters"] = np.array([f"cluster {seed - number}" for number in other["clusters"]])
    for name, statistic in STATISTICS.items():
        assert repr(ends(statistic(other))) == repr(ends(statistic(t))), f"{name}, to the last bit"


@many_tables
@given(t=tables())
def test_twins_in_their_own_cluster_change_neither_estimate_nor_interval(t: dict[str, Any]) -> None:
    twins = {key: np.concatenate([column, column]) for key, column in t.items()}
    for name, statistic in STATISTICS.items():
        if name != "alpha":
            once, twice = ends(statistic(t)), ends(statistic(twins))
            np.testing.assert_allclose(twice, once, rtol=0, atol=1e-10, err_msg=name)


def test_twins_move_alpha_by_no_more_than_its_own_small_sample_term() -> None:
    counts = np.array([[3, 0, 0], [0, 3, 0], [2, 1, 0], [0, 1, 2]] * 5)
    once = agreement.krippendorff_alpha(counts, range(20))
    twice = agreement.krippendorff_alpha(np.vstack([counts, counts]), [*range(20), *range(20)])
    assert once.value is not None
    assert twice.value is not None
    votes = counts.sum()
    assert (1 - twice.value) / (1 - once.value) == pytest.approx(
        (2 * votes - 1) / (2 * votes) * votes / (votes - 1)
    )


RANGES = {"brier": (0, 2)} | dict.fromkeys(("kappa", "alpha", "gap", "position", "length_bias", "over"), (-1, 1))


@many_tables
@given(t=tables())
def test_the_interval_holds_the_value_and_keeps_within_the_range(t: dict[str, Any]) -> None:
    for name, statistic in STATISTICS.items():
        found = statistic(t)
        if found.low is None or found.high is None:
            assert found.clusters < 2 or found.value is None or name == "alpha", name
            continue
        assert found.value is not None, name
        least, most = RANGES.get(name, (0, 1))
        assert least <= found.low <= found.value <= found.high <= most, name


# -- plain references ---------------------------------------------------------------------------------------


def plain_kappa(one: Sequence[int], other: Sequence[int]) -> float:
    n = len(one)
    same = sum(a == b for a, b in zip(one, other, strict=True)) / n
    chance = sum(list(one).count(c) / n * (list(other).count(c) / n) for c in range(3))
    return (same - chance) / (1 - chance)


def plain_alpha(votes: Sequence[Sequence[int]]) -> float:
    """By the definition: mean disagreement of two votes on one pair, against that of any two votes at all."""
    several = [v for v in votes if len(v) > 1]
    every = [vote for v in several for vote in v]
    apart = sum(
        (a != b) / (len(v) - 1) for v in several for i, a in enumerate(v) for j, b in enumerate(v) if i != j
    )
    pairs = list(permutations(every, 2))
    return 1 - (apart / len(every)) / (sum(a != b for a, b in pairs) / len(pairs))


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(CODE, CODE), min_size=2, max_size=40))
def test_kappa_is_cohens(rows: list[tuple[int, int]]) -> None:
    one, other = zip(*rows, strict=True)
    found = agreement.cohen_kappa(one, other, range(len(rows))).value
    if len({*one, *other}) == 1:
        assert found is None
    else:
        assert found == pytest.approx(plain_kappa(one, other))


@settings(max_examples=60, deadline=None)
@given(st.lists(st.lists(CODE, min_size=1, max_size=5), min_size=2, max_size=12))
def test_alpha_is_krippendorffs(votes: list[list[int]]) -> None:
    counts = [[v.count(c) for c in range(3)] for v in votes]
    found = agreement.krippendorff_alpha(counts, range(len(votes))).value
    if len({vote for v in votes if len(v) > 1 for vote in v}) < 2:
        assert found is None
    else:
        assert found == pytest.approx(plain_alpha(votes))


def test_alpha_of_the_example_in_krippendorffs_paper() -> None:
    """Section C of "Computing Krippendorff's alpha-reliability" (2011), with its five values cut to three."""
    votes = [[0, 0], [1, 1], [1, 1, 1], [2, 2, 2], [0, 1], [2, 2], [0, 0, 0], [1, 2]]
    counts = [[v.count(c) for c in range(3)] for v in votes]
    assert agreement.krippendorff_alpha(counts, range(8)).value == pytest.approx(plain_alpha(votes))


@settings(max_examples=60, deadline=None)
@given(t=tables())
def test_brier_is_the_mean_squared_distance(t: dict[str, Any]) -> None:
    every = [
        sum((p[c] - (true == c)) ** 2 for c in range(3))
        for p, true in zip(t["p"], t["truth"], strict=True)
        if true != MISSING
    ]
    found = calibration.brier(t["p"], t["truth"], t["clusters"]).value
    assert found == (pytest.approx(sum(every) / len(every)) if every else None)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.lists(CODE, min_size=0, max_size=5), min_size=1, max_size=8), st.booleans())
def test_one_person_against_the_majority_of_the_others(votes: list[list[int]], decided_only: bool) -> None:
    right = weight = 0.0
    for v in votes:
        for place, vote in enumerate(v):
            others = v[:place] + v[place + 1 :]
            best = next((c for c in range(3) if 2 * others.count(c) > len(others)), None)
            if best is None or (decided_only and best == TIE):
                continue
            right += (0.5 if decided_only and vote == TIE else float(vote == best)) / len(v)
            weight += 1 / len(v)
    counts = [[v.count(c) for c in range(3)] for v in votes]
    found = agreement.against_others(counts, [MISSING] * len(votes), range(len(votes)), decided_only=decided_only)
    assert found.person.value == (pytest.approx(right / weight) if weight else None)
    assert found.judge.value is None


def test_pairwise_kappas_are_those_of_the_pairs_of_people() -> None:
    rng = np.random.default_rng(1)
    votes = rng.integers(-1, 3, size=(60, 3))
    mean_kappa, kappas = agreement.pairwise_kappas(votes, range(60), ["ann", "ben", "cleo"])
    for (a, one), (b, other) in combinations(enumerate(["ann", "ben", "cleo"]), 2):
        both = (votes[:, a] >= 0) & (votes[:, b] >= 0)
        assert kappas[one, other].value == pytest.approx(plain_kappa(votes[both, a], votes[both, b]))
        assert kappas[one, other].n == both.sum()
    assert mean_kappa is not None
    assert mean_kappa.value == pytest.approx(np.mean([k.value for k in kappas.values() if k.value is not None]))


@pytest.mark.parametrize("unlabelled", [0, 30, 3000])
def test_pairs_that_nobody_labelled_are_not_in_the_mean_kappa(unlabelled: int) -> None:
    """A database of thousands of pairs, of which people labelled sixty."""
    rng = np.random.default_rng(4)
    ann = rng.integers(0, 3, 60)
    ben = np.where(rng.random(60) < 0.7, ann, rng.integers(0, 3, 60))
    clusters = np.concatenate([np.arange(60) % 20, np.arange(unlabelled) % 25])
    votes = np.vstack([np.column_stack([ann, ben]), np.full((unlabelled, 2), MISSING)])
    mean_kappa, kappas = agreement.pairwise_kappas(votes, clusters, ["ann", "ben"])
    two = kappas["ann", "ben"]
    assert mean_kappa is not None
    assert (mean_kappa.n, mean_kappa.clusters) == (60, 20)
    found, same = ((each.value, each.low, each.high) for each in (mean_kappa, two))
    assert found == pytest.approx(same), "of two people the mean is theirs"


def test_people_who_take_turns_get_no_wider_an_interval_than_they_need() -> None:
    """Each pair has two of three people; the mean's interval is not as wide as those of the three kappas."""
    rng = np.random.default_rng(5)
    truth = rng.integers(0, 2, 300)
    votes = np.where(rng.random((300, 3)) < 0.85, truth[:, None], 1 - truth[:, None])
    votes[np.arange(300), np.arange(300) % 3] = MISSING
    mean_kappa, kappas = agreement.pairwise_kappas(votes, range(300), ["ann", "ben", "cat"])

    def width(each: Any) -> float:
        return float(each.high - each.low)

    assert width(mean_kappa) < min(width(each) for each in kappas.values())


def test_a_crowd_has_no_kappa_and_two_strangers_have_none() -> None:
    names = [str(number) for number in range(agreement.MAX_PEOPLE + 1)]
    assert agreement.pairwise_kappas(np.zeros((50, len(names))), range(50), names) == (None, {})
    apart = np.array([[0, MISSING], [MISSING, 0]] * 20)
    assert agreement.pairwise_kappas(apart, range(40), ["ann", "ben"]) == (None, {})


# -- intervals ----------------------------------------------------------------------------------------------


def test_for_shares_without_clusters_the_interval_is_agresti_and_coulls() -> None:
    from scipy.stats import t

    n, right = 40, 31
    found = mean([1.0] * right + [0.0] * (n - right), range(n))
    q = t.ppf(0.975, n - 1)
    more = n + q**2
    centre = (right + q**2 / 2) / more
    half = q * np.sqrt(centre * (1 - centre) / (more - 1))
    assert found.low == pytest.approx(centre - half)
    assert found.high == pytest.approx(centre + half)


def test_one_cluster_has_a_value_and_no_interval_and_none_has_neither() -> None:
    assert mean([1.0, 0.0], ["a", "a"]) == Estimate(0.5, None, None, 2, 1)
    assert mean([], []).value is None
    assert difference([], [], []).clusters == 0


def test_all_right_is_not_certain() -> None:
    few, many = mean([1.0] * 5, range(5)), mean([1.0] * 500, range(500))
    assert few.low is not None
    assert many.low is not None
    assert few.low < 0.6
    assert 0.98 < many.low < 1


def test_judges_that_never_differ_are_not_known_to_be_alike() -> None:
    found = difference([1.0] * 20, [1.0] * 20, range(20))
    assert found.value == 0
    assert found.low is not None
    assert -0.2 < found.low < -0.05


def test_a_wider_level_is_wider() -> None:
    values = np.random.default_rng(0).random(50) < 0.7
    low, high = (mean(values, range(50), level=level) for level in (0.9, 0.99))
    assert low.low is not None
    assert high.low is not None
    assert high.low < low.low


def test_a_statistic_that_is_lost_without_one_cluster_has_no_interval() -> None:
    sums = sums_by_cluster([[1.0, 1.0], [0.0, 0.0]], [0, 1])
    assert estimate(sums, ratio, n=2).low is None
    assert estimate(sums, ratio, n=2, extremes=Extremes((1, 1), (0, 1))).low is not None


@pytest.mark.parametrize("share", [0.5, 0.7, 0.9])
@pytest.mark.parametrize("clusters", [20, 60])
def test_the_interval_covers_the_truth_with_clusters(share: float, clusters: int) -> None:
    """A small simulation; benchmarks/coverage_card.py is the large one."""
    rng, hits, times = np.random.default_rng(7), 0, 300
    for _ in range(times):
        sizes = rng.integers(1, 6, clusters)
        which = np.repeat(np.arange(clusters), sizes)
        chance = np.repeat(rng.beta(share * 2, (1 - share) * 2, clusters), sizes)
        found = mean(rng.random(len(which)) < chance, which)
        hits += found.low is not None and found.high is not None and found.low <= share <= found.high
    assert hits / times > 0.92


def test_two_who_always_said_one_thing_do_not_take_the_mean_kappa_away() -> None:
    """Ann and Ben agree on all of their pairs, and say nothing but 1; Cat makes a kappa with each of them."""
    rng = np.random.default_rng(0)
    cat = rng.integers(0, 2, 40)
    dan = np.where(rng.random(40) < 0.8, cat, 1 - cat)
    nobody = np.full(40, -1)
    votes = np.vstack(
        [np.column_stack([np.zeros((40, 2)), nobody, nobody]), np.column_stack([nobody, nobody, cat, dan])]
    )
    found, each = agreement.pairwise_kappas(votes, range(80), ["ann", "ben", "cat", "dan"])
    assert each["ann", "ben"].value is None
    assert found is not None
    assert found.value == pytest.approx(each["cat", "dan"].value)
    assert found.low is not None
    alone, _ = agreement.pairwise_kappas(np.zeros((40, 2)), range(40), ["ann", "ben"])
    assert alone is None


def test_both_orders_less_one_is_nothing_where_they_say_the_same() -> None:
    rng = np.random.default_rng(0)
    truth, labels = rng.integers(0, 3, 200), rng.integers(0, 3, 200)
    for said in (labels, np.full(200, 2)):
        scores = agreement.score_sides(said, truth)
        assert agreement.compare(scores, scores, range(200)).value == 0.0


def test_a_pair_without_a_verdict_in_one_order_is_left_out() -> None:
    both, one = (agreement.score_sides(said, [0, 0]) for said in ([0, 0], [-1, 1]))
    found = agreement.compare(both, one, range(2))
    assert (found.n, found.value) == (1, 1.0)
