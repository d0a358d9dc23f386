"""Agreement: of a judge with people, and of people among themselves.

Verdicts are codes: 0 for side 1, 1 for side 2, 2 for a tie, -1 for none. A row is a pair; rows of one cluster share
an instruction. Rows in which a code that is needed is missing are left out, and `n` says how many were used.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from evenhand.core.stats.clustered import (
    Array,
    Estimate,
    Extremes,
    Weights,
    difference,
    estimate,
    mean,
    picked,
    ratio,
    sums_by_cluster,
    weighted_freedom,
)

Codes = NDArray[np.int64]
MISSING = -1
TIE = 2
CATEGORIES = 3
_CELLS = CATEGORIES**2
# Cohen's kappa of two people means little on fewer pairs than this.
MIN_SHARED = 10
# A crowd has too many pairs of people to go through one by one; alpha speaks for it.
MAX_PEOPLE = 12


def three_way(
    verdicts: ArrayLike,
    truth: ArrayLike,
    clusters: ArrayLike,
    *,
    missing_is_wrong: bool = False,
    level: float = 0.95,
    weights: Weights = None,
) -> Estimate:
    """The share of pairs on which a verdict is the truth, all three answers counting as different.

    Pairs without a verdict are left out, or with `missing_is_wrong` count as not agreed on. `weights`, here and
    below, are one over the chance of each pair to be labelled.

    >>> three_way([0, 1, 2, 2], [0, 1, 0, 2], range(4)).value
    0.75
    """
    said, true = _codes(verdicts), _codes(truth)
    keep = (true != MISSING) & ((said != MISSING) | missing_is_wrong)
    return mean(said == true, clusters, level=level, weights=weights, rows=keep)


def decided(
    scores: ArrayLike, truth: ArrayLike, clusters: ArrayLike, *, level: float = 0.95, weights: Weights = None
) -> Estimate:
    """Accuracy on the pairs whose truth is a side, from scores of `score_sides`.

    >>> decided(score_sides([0, 0, 2, 1], [0, 1, 0, 2]), [0, 1, 0, 2], range(4)).value
    0.5
    """
    values = np.asarray(scores, dtype=np.float64)
    return mean(values, clusters, level=level, weights=weights, rows=is_decided(truth) & ~np.isnan(values))


def score_sides(verdicts: ArrayLike, truth: ArrayLike) -> Array:
    """1 for the right side, 0 for the wrong one, one half for a tie; NaN where there is nothing to score.

    >>> score_sides([0, 1, 2, 0], [0, 0, 0, 2])
    array([1. , 0. , 0.5, nan])
    """
    said, true = _codes(verdicts), _codes(truth)
    scores = np.where(said == TIE, 0.5, (said == true).astype(np.float64))
    return np.where(is_decided(true) & (said != MISSING), scores, np.nan)


def is_decided(truth: ArrayLike) -> NDArray[np.bool_]:
    """Where people chose a side.

    >>> is_decided([0, 2, -1])
    array([ True, False, False])
    """
    true = _codes(truth)
    return np.asarray((true == 0) | (true == 1))


def cohen_kappa(
    one: ArrayLike, other: ArrayLike, clusters: ArrayLike, *, level: float = 0.95, weights: Weights = None
) -> Estimate:
    """Agreement of two beyond what their habits alone would give; None where one answer is all that was ever said.

    Cohen (1960), "A coefficient of agreement for nominal scales", Educational and Psychological Measurement 20,
    37-46.

    >>> round(cohen_kappa([0] * 25 + [1] * 25, [0] * 20 + [1] * 20 + [0] * 10, range(50)).value, 3)
    0.4
    """
    first, second = _codes(one), _codes(other)
    keep = (first != MISSING) & (second != MISSING)
    cells = np.column_stack([_cells(first[keep], second[keep]), np.ones(int(keep.sum()))])
    drawn = picked(weights, keep)
    sums = sums_by_cluster(cells if drawn is None else cells * drawn[:, None], np.asarray(clusters)[keep])
    margins = _margins(sums)
    return estimate(
        *(sums, _kappa),
        n=int(keep.sum()),
        bounds=(-1.0, 1.0),
        extremes=_kappa_extremes(margins),
        level=level,
        freedom=None if drawn is None else weighted_freedom(sums[:, -1]),
    )


@dataclass(frozen=True, slots=True)
class Raters:
    """What the people's votes say of themselves; None where too few pairs carry two votes."""

    pairs: int  # with at least two votes
    agreement: Estimate  # the share of pairs of votes that are the same
    alpha: Estimate  # Krippendorff's, nominal
    kappa: Estimate | None  # the mean of Cohen's over pairs of people
    kappas: Mapping[tuple[str, str], Estimate]
    three_way: Estimate  # one person against the majority of the others
    decided: Estimate


def people(
    counts: ArrayLike,
    clusters: ArrayLike,
    votes: ArrayLike | None = None,
    names: Sequence[str] = (),
    *,
    level: float = 0.95,
) -> Raters:
    """How far people agree, from how many of them gave each answer: one row of three counts for each pair.

    `votes` are the same by person, one column for each of `names`; without them there is no kappa of two people.

    >>> found = people([[3, 0, 0], [2, 1, 0], [0, 0, 3]], ["a", "b", "c"])
    >>> round(found.agreement.value, 3), round(found.three_way.value, 3)
    (0.778, 0.857)
    """
    table, _, groups = _several(counts, clusters)
    nobody = np.full(len(table), MISSING)
    kappa, kappas = (None, {}) if votes is None else pairwise_kappas(votes, clusters, names, level=level)
    return Raters(
        len(table),
        vote_agreement(table, groups, level=level),
        krippendorff_alpha(table, groups, level=level),
        kappa,
        kappas,
        against_others(table, nobody, groups, level=level).person,
        against_others(table, nobody, groups, decided_only=True, level=level).person,
    )


def vote_agreement(counts: ArrayLike, clusters: ArrayLike, *, level: float = 0.95) -> Estimate:
    """The mean over pairs of the share of pairs of votes that are the same.

    >>> vote_agreement([[2, 0, 0], [1, 1, 0]], ["a", "b"]).value
    0.5
    """
    votes, total, groups = _several(counts, clusters)
    same = (votes * (votes - 1)).sum(axis=1) / (total * (total - 1))
    return mean(same, groups, level=level)


def krippendorff_alpha(counts: ArrayLike, clusters: ArrayLike, *, level: float = 0.95) -> Estimate:
    """Agreement beyond chance among any number of people, who need not all have voted on every pair.

    Krippendorff (2011), "Computing Krippendorff's alpha-reliability", for nominal data: 1 - D_o / D_e.

    >>> round(krippendorff_alpha([[2, 0, 0]] * 5 + [[0, 2, 0]] * 3 + [[1, 1, 0]] * 2, range(10)).value, 3)
    0.604
    """
    votes, total, groups = _several(counts, clusters)
    apart = (total**2 - (votes**2).sum(axis=1)) / (total - 1)
    sums = sums_by_cluster(np.column_stack([apart, votes, np.ones(len(votes))]), groups)
    shares = votes.sum(axis=0) / max(votes.sum(), 1.0)
    size = float(total.mean()) if len(total) else 0.0
    agree, split = (0.0, *(shares * size), 1.0), (size, *([size / CATEGORIES] * CATEGORIES), 1.0)
    return estimate(
        sums, _alpha, n=len(votes), bounds=(-1.0, 1.0), extremes=Extremes(agree, split, 1.0), level=level
    )


@dataclass(frozen=True, slots=True)
class Ceiling:
    """One person against the majority of the others, and a judge against the same majorities."""

    person: Estimate
    judge: Estimate
    gap: Estimate  # judge less person


def against_others(
    counts: ArrayLike,
    verdicts: ArrayLike,
    clusters: ArrayLike,
    *,
    decided_only: bool = False,
    level: float = 0.95,
    weights: Weights = None,
) -> Ceiling:
    """What one person scores against the strict majority of the others, and what a judge scores against the same.

    Each vote of a pair is left out in turn; the votes of a pair weigh one together. With `decided_only` majorities
    for a tie are passed over and a tie scores one half.

    >>> found = against_others([[2, 1, 0], [3, 0, 0]], [0, 0], ["a", "b"])
    >>> found.person.value, found.judge.value
    (0.75, 1.0)
    """
    votes = np.asarray(counts, dtype=np.float64).reshape(-1, CATEGORIES)
    said, groups = _codes(verdicts), np.asarray(clusters)
    parts = [_left_out(votes, said, category, decided_only) for category in range(CATEGORIES)]
    rows = np.vstack(parts)
    where = np.tile(np.arange(len(votes)), CATEGORIES)
    if weights is not None:
        rows = rows * np.asarray(weights, dtype=np.float64)[where][:, None]
    scored = rows[:, 2] > 0
    sums = sums_by_cluster(rows[scored][:, [0, 2]], groups[where[scored]])
    both = scored & (said[where] != MISSING)
    table = sums_by_cluster(np.column_stack([rows[both], rows[both][:, 1] - rows[both][:, 0]]), groups[where[both]])

    def share(of: Array, used: NDArray[np.bool_], least: float = 0.0) -> Estimate:
        free = None if weights is None else weighted_freedom(of[:, -1])
        ends, n = Extremes((1, 1), (least, 1)), len(set(where[used]))
        return estimate(of, ratio, n=n, bounds=(least, 1.0), extremes=ends, level=level, freedom=free)

    # As many made-up clusters as for a share: where people hardly err, the gap is one, the judge's errors.
    return Ceiling(share(sums, scored), share(table[:, [1, 2]], both), share(table[:, [3, 2]], both, -1.0))


def pairwise_kappas(
    votes: ArrayLike, clusters: ArrayLike, names: Sequence[str], *, level: float = 0.95
) -> tuple[Estimate | None, dict[tuple[str, str], Estimate]]:
    """Cohen's kappa of every two people, and their mean; votes are codes, one row a pair, one column a person.

    Two people who both always said the same one thing have no kappa, and are not in the mean. None for a crowd, and
    where no two people share enough pairs.

    >>> mean_kappa, kappas = pairwise_kappas([[0, 0], [1, 1]] * 10, range(20), ["ann", "ben"])
    >>> mean_kappa.value, kappas["ann", "ben"].n
    (1.0, 20)
    """
    table, groups = _codes(votes).reshape(-1, max(len(names), 1)), np.asarray(clusters)
    if not 2 <= len(names) <= MAX_PEOPLE:
        return None, {}
    shared = {
        (a, b): int(((table[:, a] != MISSING) & (table[:, b] != MISSING)).sum())
        for a, b in combinations(range(len(names)), 2)
    }
    used = [pair for pair, count in shared.items() if count >= MIN_SHARED]
    if not used:
        return None, {}
    each = {(names[a], names[b]): cohen_kappa(table[:, a], table[:, b], groups, level=level) for a, b in used}
    used = [(a, b) for a, b in used if each[names[a], names[b]].value is not None]
    if not used:
        return None, each
    # Pairs that no two of them share say nothing, and are not to weigh in the made-up clusters either.
    kept = np.any([(table[:, a] != MISSING) & (table[:, b] != MISSING) for a, b in used], axis=0)
    cells = [_cells(table[kept, a], table[kept, b]) for a, b in used]
    rows = int(kept.sum())
    sums = sums_by_cluster(np.column_stack([*cells, np.ones(rows)]), groups[kept])
    ends = _kappa_extremes(_margins(sum(cells[1:], cells[0])))
    parts = [float(cell.sum()) / rows for cell in cells]  # made-up clusters have as many of each
    good, bad = ((*(part * value for part in parts for value in end[:-1]), 1.0) for end in (ends.good, ends.bad))
    found = estimate(sums, _mean_kappa, n=rows, bounds=(-1.0, 1.0), extremes=Extremes(good, bad, 1.0), level=level)
    return found, each


def compare(
    one: ArrayLike, other: ArrayLike, clusters: ArrayLike, *, level: float = 0.95, weights: Weights = None
) -> Estimate:
    """How much higher the first scores than the second, on the pairs that both have a score for.

    >>> compare([1, 1, float("nan")], [0, 1, 1], ["a", "b", "c"]).value
    0.5
    """
    first, second = np.asarray(one, dtype=np.float64), np.asarray(other, dtype=np.float64)
    both = ~np.isnan(first) & ~np.isnan(second)
    return difference(first, second, clusters, level=level, weights=weights, rows=both)


def _codes(values: ArrayLike) -> Codes:
    return np.asarray(values, dtype=np.int64).reshape(-1) if np.ndim(values) < 2 else np.asarray(values, np.int64)


def _several(counts: ArrayLike, clusters: ArrayLike) -> tuple[Array, Array, Array]:
    """The rows with two votes or more: the votes, how many they are, and the clusters."""
    votes = np.asarray(counts, dtype=np.float64).reshape(-1, CATEGORIES)
    total = votes.sum(axis=1)
    return votes[total >= 2], total[total >= 2], np.asarray(clusters)[total >= 2]


def _cells(one: Codes, other: Codes) -> Array:
    """Which of the nine cells of the table of agreement each row falls into; none, where a code is missing."""
    place = np.where((one == MISSING) | (other == MISSING), -1, one * CATEGORIES + other)
    return np.asarray(place[:, None] == np.arange(_CELLS), dtype=np.float64)


def _kappa(sums: Array) -> Array:
    """Of the nine cells; what stands behind them is passed over."""
    cells = sums[..., :_CELLS].reshape(*sums.shape[:-1], CATEGORIES, CATEGORIES)
    total = cells.sum(axis=(-2, -1))
    with np.errstate(divide="ignore", invalid="ignore"):
        same = np.trace(cells, axis1=-2, axis2=-1) / total
        chance = (cells.sum(axis=-1) * cells.sum(axis=-2)).sum(axis=-1) / total**2
        return np.asarray((same - chance) / (1 - chance))


def _mean_kappa(sums: Array) -> Array:
    tables = sums[..., :-1].reshape(*sums.shape[:-1], -1, _CELLS)
    return np.asarray(_kappa(tables).mean(axis=-1))


def _margins(sums: Array) -> Array:
    """How often each answer was given, the two taken together."""
    cells = sums[:, :_CELLS].sum(axis=0).reshape(CATEGORIES, CATEGORIES)
    both = cells.sum(axis=0) + cells.sum(axis=1)
    return np.asarray(both / max(both.sum(), 1.0))


def _kappa_extremes(margins: Array) -> Extremes:
    """Made-up clusters for kappa: all agreed as often as each answer is given, or all apart, evenly."""
    apart = (1 - np.eye(CATEGORIES)) / (CATEGORIES * (CATEGORIES - 1))
    return Extremes((*np.diag(margins).ravel(), 1.0), (*apart.ravel(), 1.0), 1.0)


def _alpha(sums: Array) -> Array:
    apart, votes = sums[..., 0], sums[..., 1:-1]
    total = votes.sum(axis=-1)
    with np.errstate(divide="ignore", invalid="ignore"):
        expected = (total**2 - (votes**2).sum(axis=-1)) / (total - 1)
        return np.asarray(1 - apart / expected)


def _left_out(votes: Array, said: Codes, category: int, decided_only: bool) -> Array:
    """For one vote of a category left out of each pair: person's score, judge's score, weight."""
    others = votes.copy()
    others[:, category] -= 1
    left = others.sum(axis=1)
    best = others.argmax(axis=1)
    strict = (votes[:, category] > 0) & (left > 0) & (2 * others.max(axis=1) > left)
    if decided_only:
        strict &= best != TIE
    person = _score(np.full(len(votes), category), best, decided_only)
    judge = _score(said, best, decided_only)
    weight = np.where(strict, votes[:, category] / np.maximum(votes.sum(axis=1), 1), 0.0)
    return np.column_stack([person * weight, judge * weight, weight])


def _score(said: Codes, true: Codes, decided_only: bool) -> Array:
    same = (said == true).astype(np.float64)
    return np.where(said == TIE, 0.5, same) if decided_only else same
