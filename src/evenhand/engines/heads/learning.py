"""Learning a head from labels, and saying honestly how good it is.

    refuse        what cannot work, with the reason
    held_out      nested cross-validation by cluster: the penalty is chosen inside each fold
    curve         the same with fewer labels, and what more of them may bring
    learn         all of it, and the weights fitted to all labels

Every figure is of pairs whose instruction took no part in the fit that judged them.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from evenhand.core.errors import InputError
from evenhand.core.stats.clustered import Estimate, mean
from evenhand.engines.heads.fitting import (
    COMPONENTS,
    Array,
    Components,
    HeadFit,
    Ints,
    Labels,
    choose_penalty,
    fit,
    folds,
    tie_model,
)
from evenhand.engines.heads.head import Weights

MIN_LABELS = 20  # decided ones
MIN_CLUSTERS = 10
MIN_KAPPA = 0.1  # people who agree no better than that give nothing to learn
# Folds that are held out in turn, and those inside each. With few labels, those that a fold takes away are missed:
# the figure would be that of a worse head than the one that comes out.
OUTER, FEW, OUTER_OF_FEW, INNER = 8, 200, 20, 3
STATES = "states"  # the part of a gap that comes from the states
_SIZES = (25, 50, 100, 200, 400, 800)
_REPEATS = 3


class CannotLearnError(InputError):
    """These labels cannot make a judge; the message says why."""


@dataclass(frozen=True)
class HeldOut:
    """What a head says of pairs that it was not fitted to."""

    gaps: Array
    probabilities: Array  # of side 1, side 2, tie; the two numbers behind them were fitted to other folds
    accuracy: Estimate  # on decided pairs
    three_way: Estimate
    penalties: tuple[float, ...]  # that the folds chose


@dataclass(frozen=True)
class Point:
    """How good a head is that learned from so many labels."""

    labels: int
    accuracy: float


@dataclass(frozen=True)
class Learned:
    """The weights of one dimension, and what is known of them."""

    weights: Weights
    held_out: HeldOut
    curve: tuple[Point, ...]
    labels: int
    decided: int
    clusters: int
    parts: Mapping[str, float]  # how far each part moves the gap, as a standard deviation over the labelled pairs

    def gain(self, more: int) -> float | None:
        """What so many more labels may add to the accuracy, by the curve; None where it has too few points."""
        return forecast(self.curve, self.labels, self.labels + more)


def refuse(labels: Labels, votes: Sequence[Sequence[int]] = ()) -> None:
    """Raise CannotLearnError where nothing can be learned; `votes` are the codes that people gave, pair by pair."""
    decided = labels.truth[labels.truth != 0.5]
    if len(labels) and (len(set(labels.truth.tolist())) == 1):
        word = {1.0: "side 1", 0.0: "side 2", 0.5: "tie"}[float(labels.truth[0])]
        raise CannotLearnError(
            f"every label says {word}: there is nothing to tell apart", hint="label pairs of both kinds"
        )
    if len(decided) < MIN_LABELS:
        raise CannotLearnError(
            f"{len(decided)} decided labels are too few to learn from",
            hint=f"{MIN_LABELS} are the least, 100 are a good start",
        )
    clusters = len(np.unique(labels.clusters))
    if clusters < MIN_CLUSTERS:
        raise CannotLearnError(
            f"the labels are on {clusters} instructions only, and what is learned could not be checked on others",
            hint=f"label pairs of at least {MIN_CLUSTERS} instructions",
        )
    kappa = fleiss_kappa(votes)
    if kappa is not None and kappa < MIN_KAPPA:
        raise CannotLearnError(
            f"people do not agree (kappa {kappa:.2f}): there is no majority to learn from",
            hint="look at the pairs on which they differ, and at what they were asked",
        )


def fleiss_kappa(votes: Sequence[Sequence[int]]) -> float | None:
    """Agreement beyond chance among any number of votes a pair: Fleiss (1971), Psychological Bulletin 76, 378-382.

    Pairs with one vote say nothing. None with fewer than 20 pairs, or where all votes are the same.

    >>> round(fleiss_kappa([[0, 0], [1, 1]] * 10), 2), fleiss_kappa([[0, 1]])
    (1.0, None)
    """
    several = [list(each) for each in votes if len(each) > 1]
    if len(several) < MIN_LABELS:
        return None
    counts = np.array([[each.count(code) for code in (0, 1, 2)] for each in several], dtype=float)
    n = counts.sum(axis=1)
    agree = float((((counts**2).sum(axis=1) - n) / (n * (n - 1))).mean())
    chance = float(((counts.sum(axis=0) / n.sum()) ** 2).sum())
    return None if chance >= 1.0 else (agree - chance) / (1 - chance)


def held_out(
    table: Array,
    labels: Labels,
    *,
    unit: float = 1.0,
    outer: int | None = None,
) -> HeldOut:
    """Nested cross-validation by cluster."""
    count = outer or (OUTER_OF_FEW if len(labels) <= FEW else OUTER)
    fold = folds(labels.clusters, min(count, len(np.unique(labels.clusters))))
    gaps, chosen = np.zeros(len(labels)), []
    for k in np.unique(fold):
        train, test = labels.take(fold != k), labels.take(fold == k)
        penalty = choose_penalty(table, train, count=INNER, unit=unit)
        gaps[fold == k] = fit(table, train, penalty, unit=unit).gaps(table, test)
        chosen.append(penalty)
    return judged(gaps, labels, fold, tuple(chosen))


def judged(gaps: Array, labels: Labels, fold: Ints, chosen: tuple[float, ...] = ()) -> HeldOut:
    """Probabilities for held-out gaps, their two numbers fitted to the other folds, and how good they are."""
    p = np.zeros((len(labels), 3))
    for k in np.unique(fold):
        other = fold != k
        slope, tie = tie_model(gaps[other], labels.truth[other], labels.weight[other])
        p[~other] = davidson_rows(gaps[~other], slope, tie)
    return HeldOut(gaps, p, accuracy(gaps, labels), three_way(p, labels), chosen)


def davidson_rows(gaps: Array, slope: float, tie: float) -> Array:
    """Probabilities of side 1, side 2 and a tie, a row for each gap."""
    half = np.clip(slope * gaps / 2, -350, 350)
    parts = np.column_stack([np.exp(half), np.exp(-half), np.full_like(half, tie)])
    return np.asarray(parts / parts.sum(axis=1, keepdims=True))


def accuracy(gaps: Array, labels: Labels) -> Estimate:
    """On decided pairs; a gap of exactly 0 is half right."""
    decided = labels.truth != 0.5
    right = 0.5 * (1 + np.sign(gaps[decided]) * np.sign(labels.truth[decided] - 0.5))
    return mean(right, labels.clusters[decided])


def three_way(p: Array, labels: Labels) -> Estimate:
    """On all pairs, ties as a third class."""
    truth = np.select([labels.truth == 1.0, labels.truth == 0.0], [0, 1], 2)
    return mean((p.argmax(axis=1) == truth).astype(float), labels.clusters)


def curve(table: Array, labels: Labels, *, unit: float = 1.0, penalty: float) -> tuple[Point, ...]:
    """Held-out accuracy with fewer labels: parts of the training folds, drawn by whole clusters."""
    fold = folds(labels.clusters, min(5, len(np.unique(labels.clusters))))
    full = int(len(labels) * 0.8)
    points = []
    for size in [n for n in _SIZES if n < full] + [full]:
        scores = []
        for repeat in range(_REPEATS if size < full else 1):
            gaps = np.zeros(len(labels))
            for k in np.unique(fold):
                train = labels.take(_some(labels, np.flatnonzero(fold != k), size, repeat))
                gaps[fold == k] = fit(table, train, penalty, unit=unit).gaps(table, labels.take(fold == k))
            scores.append(accuracy(gaps, labels).value or 0.0)
        points.append(Point(size, float(np.mean(scores))))
    return tuple(points)


def _some(labels: Labels, rows: Ints, size: int, seed: int) -> Ints:
    """About so many of the rows: whole clusters, in an order drawn by the seed."""
    names = np.unique(labels.clusters[rows])
    rank = dict(zip(names.tolist(), np.random.default_rng(seed).permutation(len(names)).tolist(), strict=True))
    order = np.argsort([rank[c] for c in labels.clusters[rows].tolist()], kind="stable")
    return rows[order][:size]


def forecast(points: Sequence[Point], now: int, then: int) -> float | None:
    """The gain in accuracy from `now` to `then` labels, if the error falls as a line in one over their root.

    >>> points = [Point(n, 0.8 - 1 / n**0.5) for n in (25, 50, 100)]
    >>> round(forecast(points, 100, 400), 3)
    0.05
    """
    if len(points) < 3:
        return None
    x = np.array([1 / math.sqrt(point.labels) for point in points])
    y = np.array([point.accuracy for point in points])
    slope = float(np.polyfit(x, y, 1)[0])
    return max(0.0, slope * (1 / math.sqrt(then) - 1 / math.sqrt(now)))


def learn(
    states: Array,
    labels: Labels,
    *,
    votes: Sequence[Sequence[int]] = (),
    with_curve: bool = True,
) -> Learned:
    """Fit one dimension to all labels, with what held-out pairs say of it.

    Components are of all states that are there: they use no label.
    """
    refuse(labels, votes)
    axes = Components.of(np.asarray(states, dtype=float), COMPONENTS)
    table = axes.project(np.asarray(states, dtype=float))
    found = held_out(table, labels, unit=axes.unit)
    penalty = choose_penalty(table, labels, unit=axes.unit)
    whole = fit(table, labels, penalty, unit=axes.unit)
    slope, tie = tie_model(found.gaps, labels.truth, labels.weight)
    features = dict(zip(labels.names, whole.features.tolist(), strict=True))
    weights = Weights(axes.unfold(whole.state), features, slope, tie, axes.axes.shape[1], penalty)
    points = curve(table, labels, unit=axes.unit, penalty=penalty) if with_curve else ()
    decided = int((labels.truth != 0.5).sum())
    clusters = len(np.unique(labels.clusters))
    return Learned(weights, found, points, len(labels), decided, clusters, _parts(table, labels, whole))


def _parts(table: Array, labels: Labels, found: HeadFit) -> dict[str, float]:
    """The spread of what the states and each feature add to the gap."""
    states = (table[labels.first] - table[labels.second]) @ found.state
    added = labels.features * found.features
    return {STATES: float(states.std()), **dict(zip(labels.names, added.std(axis=0).tolist(), strict=True))}
