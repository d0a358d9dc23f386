"""Calibration: how far probabilities mean what they say, and a small model that corrects them.

Probabilities are rows of three, for side 1, side 2 and a tie; truth is a code, as in `agreement`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from evenhand.core.stats.agreement import CATEGORIES, MISSING, Codes, is_decided
from evenhand.core.stats.bias import LIGHT
from evenhand.core.stats.clustered import Array, Estimate, Weights, estimate, mean, picked, ratio, sums_by_cluster
from evenhand.core.stats.clusters import places

TINY = 1e-9
# Bins of the confidence in the favoured side, which lies between one half and one.
BINS = 5
# The fewest labels to fit a model of up to three numbers to; with fewer it would fit noise. Ten instructions put
# two into each fold: docs/calibration.md has what that costs.
MIN_LABELS = 50
MIN_CLUSTERS = 10
MIN_DECIDED = 30
FOLDS = 5
_STEEPEST = 1e6  # no fit comes near it
# How wide the slope's prior is, in its own unit: verdicts that never err must not make it infinite.
_PRIOR = 3.0
# A judge whose odds would look as good as this by chance more often has no signal.
_NO_SIGNAL = 0.05
_STEPS = 100


def brier(
    p: ArrayLike, truth: ArrayLike, clusters: ArrayLike, *, level: float = 0.95, weights: Weights = None
) -> Estimate:
    """The three-way Brier score, 0 to 2, lower is better; thirds all over score 0.667.

    Brier (1950), "Verification of forecasts expressed in terms of probability", Monthly Weather Review 78, 1-3.

    >>> brier([[1, 0, 0], [0.5, 0.5, 0]], [0, 0], ["a", "b"]).value
    0.25
    """
    table, true = _rows(p, truth)
    keep = ~np.isnan(table[:, 0]) & (true != MISSING)
    scores = brier_scores(table[keep], true[keep])
    drawn = picked(weights, keep)
    return mean(scores, np.asarray(clusters)[keep], bounds=(0.0, 2.0), level=level, adjust=LIGHT, weights=drawn)


def brier_binary(
    p: ArrayLike, truth: ArrayLike, clusters: ArrayLike, *, level: float = 0.95, weights: Weights = None
) -> Estimate:
    """The Brier score of p(1) / (p(1) + p(2)) on decided pairs, 0 to 1, lower is better; a coin scores 0.25.

    >>> brier_binary([[0.4, 0.4, 0.2]], [1], ["a"]).value
    0.25
    """
    table, true = _rows(p, truth)
    keep = ~np.isnan(table[:, 0]) & is_decided(true)
    gap = side_share(table) - (true == 0)
    return mean(gap**2, clusters, level=level, adjust=LIGHT, weights=weights, rows=keep)


def brier_scores(p: ArrayLike, truth: ArrayLike) -> Array:
    """Each row's three-way Brier score.

    >>> brier_scores([[0.5, 0.5, 0]], [2])
    array([1.5])
    """
    table, true = _rows(p, truth)
    return np.asarray(((table - np.eye(CATEGORIES)[true]) ** 2).sum(axis=1))


def log_losses(p: ArrayLike, truth: ArrayLike) -> Array:
    """Each row's surprise at the truth, in nats; a probability of nothing counts as a billionth.

    >>> log_losses([[0.5, 0.5, 0]], [0]).round(3)
    array([0.693])
    """
    table, true = _rows(p, truth)
    return np.asarray(-np.log(np.maximum(table[np.arange(len(true)), true], TINY)))


def side_share(p: ArrayLike) -> Array:
    """The probability of side 1 where a tie is no answer.

    >>> side_share([[0.4, 0.2, 0.4], [0, 0, 1]]).round(3)
    array([0.667, 0.5  ])
    """
    table = np.maximum(np.asarray(p, dtype=np.float64).reshape(-1, CATEGORIES), TINY)
    return np.asarray(table[:, 0] / (table[:, 0] + table[:, 1]))


# -- the reliability curve --------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Bin:
    """Pairs on which the judge was about equally sure, and how often it was right on them."""

    low: float
    high: float
    confidence: float | None
    right: Estimate


@dataclass(frozen=True, slots=True)
class Reliability:
    """How sure the judge is of the side that it favours, against how often that side is right; decided pairs.

    `over` is mean confidence less accuracy: above 0 is too sure. `ece` is the expected calibration error (Naeini,
    Cooper & Hauskrecht 2015, "Obtaining well calibrated probabilities using Bayesian binning"). It is above 0 for
    a perfect judge too: `ece_of_chance` is what a judge as sure as this one and perfectly calibrated would show on
    as many pairs, which agree within an instruction as far as these do (`alike`, the correlation of being right).
    Only what goes beyond it is the judge's. With labels that weigh differently both are None.
    """

    bins: tuple[Bin, ...]
    over: Estimate
    ece: float | None
    ece_of_chance: float | None
    alike: float | None = None


def reliability(
    p: ArrayLike, truth: ArrayLike, clusters: ArrayLike, *, level: float = 0.95, weights: Weights = None
) -> Reliability:
    """The reliability curve of the favoured side, in bins of equal width between one half and one.

    >>> found = reliability([[0.9, 0.1, 0]] * 4, [0, 0, 0, 1], range(4))
    >>> [(b.low, b.right.n, b.right.value) for b in found.bins if b.right.n]
    [(0.9, 4, 0.75)]
    >>> round(found.over.value, 2), round(found.ece, 2)
    (0.15, 0.15)
    """
    table, true = _rows(p, truth)
    keep = ~np.isnan(table[:, 0]) & is_decided(true)
    share, groups = side_share(table[keep]), np.asarray(clusters)[keep]
    sure = np.maximum(share, 1 - share)
    right = np.where(share == 0.5, 0.5, ((share > 0.5) == (true[keep] == 0)).astype(np.float64))
    place = np.minimum(((sure - 0.5) * 2 * BINS).astype(np.int64), BINS - 1)
    drawn = picked(weights, keep)
    bins = tuple(_bin(number, place == number, sure, right, groups, level, drawn) for number in range(BINS))
    over = mean(sure - right, groups, bounds=(-1.0, 1.0), level=level, adjust=LIGHT, weights=drawn)
    if drawn is not None:  # what chance alone would show is not known for labels of unequal weight
        return Reliability(bins, over, None, None)
    return Reliability(bins, over, *_ece(place, sure, right, places(groups)))


def _bin(
    number: int,
    inside: NDArray[np.bool_],
    sure: Array,
    right: Array,
    groups: Array,
    level: float,
    weights: Array | None,
) -> Bin:
    edges = [0.5 + step / (2 * BINS) for step in (number, number + 1)]
    confidence = float(np.sort(sure[inside]).mean()) if inside.any() else None
    found = mean(right[inside], groups[inside], level=level, weights=picked(weights, inside))
    return Bin(round(edges[0], 3), round(edges[1], 3), confidence, found)


def _ece(place: Codes, sure: Array, right: Array, groups: Codes) -> tuple[float | None, float | None, float | None]:
    if not len(sure):
        return None, None, None
    gap = np.abs(np.bincount(place, sure - right, minlength=BINS))
    # Pairs of one instruction that are in one bin: their errors add up, as far as they are alike.
    cell = np.unique(np.column_stack([place, groups]), axis=0, return_inverse=True)[1].reshape(-1)
    bins = np.zeros(int(cell.max()) + 1, dtype=np.int64)
    bins[cell] = place
    alike = _alike(place, right, cell)
    spread = np.sqrt(sure * (1 - sure))
    together = np.bincount(cell, spread) ** 2 - np.bincount(cell, spread**2)
    variance = np.bincount(place, spread**2, minlength=BINS) + alike * np.bincount(bins, together, minlength=BINS)
    # The mean of |Z| is sqrt(2 / pi) for a standard normal Z, and each bin's sum of errors is about normal.
    chance = np.sqrt(np.maximum(variance, 0.0) * 2 / np.pi)
    return float(gap.sum() / len(sure)), float(chance.sum() / len(sure)), alike


def _alike(place: Codes, right: Array, cell: Codes) -> float:
    """The correlation of being right within an instruction and a bin, by moments over all two in one cell; >= 0.

    Ridout, Demétrio & Firth (1999), "Estimating intraclass correlation for binary data", Biometrics 55, 137-148.
    How often the judge is right in a bin is measured by the same pairs, which takes from what each cell is off it;
    CR2 of Bell & McCaffrey (2002) gives it back.
    """
    count, sizes = np.bincount(place, minlength=BINS), np.bincount(cell)
    off = right - (np.bincount(place, right, minlength=BINS) / np.maximum(count, 1))[place]
    share = (sizes[cell] / count[place]).clip(0, 0.9)
    off = off / np.sqrt(1 - share)
    sums, squares = np.bincount(cell, off), np.bincount(cell, off**2)
    twos, each = float((sizes * (sizes - 1)).sum()), float(squares.sum()) / len(off)
    if not twos or each <= TINY:
        return 0.0
    return float(np.clip((sums**2 - squares).sum() / twos / each, 0.0, 1.0))


# -- the model --------------------------------------------------------------------------------------------


class Inputs(NamedTuple):
    """What the model sees of each pair: all of it changes its sign when the sides are exchanged."""

    log_odds: Array
    log_length: Array  # of the lengths' ratio
    weight: Array  # of the label; 1 on average


@dataclass(frozen=True, slots=True)
class Scores:
    """How good probabilities are, each a mean over labelled pairs."""

    log_loss: float
    brier: float
    three_way: float
    decided: float | None


@dataclass(frozen=True, slots=True)
class Calibration:
    """From a judge's log-odds to how often people choose each side, or neither.

    With x the judge's log-odds of side 1 over side 2 and l the log of the lengths' ratio:

        p(1) : p(2) : p(tie)  =  exp(s / 2) : exp(-s / 2) : exp(tie),      s = slope x + length l

    Ties as in Davidson (1970), "On extending the Bradley-Terry model to accommodate ties in paired comparison
    experiments", JASA 65, 317-328. There is no leaning to a side in it, so exchanging the sides of a pair exchanges
    its probabilities. `before` and `after` are scores on pairs that the model had not seen.

    The slope is never below 0: a judge whose odds go against people's choice here is taken for one whose odds say
    nothing; it is not read upside down. Where there is no signal, slope and length are 0, and each pair has the
    same probabilities: ties as often as labels have them, and the rest by halves.

    >>> Calibration(slope=2.0, tie=-1.0, length=0.0, n=100, clusters=60).apply([0.0], [0.0]).round(3)
    array([[0.422, 0.422, 0.155]])
    """

    slope: float
    tie: float
    length: float
    n: int
    clusters: int
    folds: int = FOLDS
    seed: int = 0
    method: str = "Davidson model, penalised maximum likelihood, cross-validated by instruction"
    before: Scores | None = None
    after: Scores | None = None
    gain: Estimate | None = None  # log-loss before less after
    length_gain: float | None = None  # how much the length term lowers the log-loss of unseen pairs
    labels: tuple[int, int, int] = (0, 0, 0)  # how many for side 1, side 2 and a tie
    signal: bool = True  # whether the judge's odds have been shown to say something of people's choice
    signal_p: float | None = None  # how often odds that say nothing would look as good as these

    def apply(self, log_odds: ArrayLike, log_length: ArrayLike) -> Array:
        """Calibrated probabilities, one row of three for each pair."""
        inputs = _inputs(log_odds, log_length)
        return probabilities(_features(inputs, True), np.array([self.slope, self.length, self.tie]))

    def plain(self) -> dict[str, Any]:
        """The calibration as plain data."""
        return {**asdict(self), "labels": list(self.labels)}

    @classmethod
    def of(cls, fields: Mapping[str, Any]) -> Calibration:
        """A calibration out of its fields; ValueError where no outcome can be brought into line by them.

        >>> one = Calibration(slope=2.0, tie=-1.0, length=0.0, n=100, clusters=60, labels=(40, 50, 10))
        >>> Calibration.of(one.plain()) == one
        True
        >>> Calibration.of({**one.plain(), "slope": -2.0}).signal
        False
        """
        parts = dict(fields)
        for name in ("before", "after"):
            parts[name] = Scores(**parts[name]) if parts.get(name) else None
        parts["gain"] = Estimate(**parts["gain"]) if parts.get("gain") else None
        if not all(abs(parts[name]) < _STEEPEST for name in ("slope", "tie", "length")):
            raise ValueError("a calibration's numbers are out of range")
        if parts["slope"] < 0:  # kept by a version that fitted any slope
            parts |= {"slope": 0.0, "length": 0.0, "signal": False}
        return cls(**{**parts, "labels": tuple(parts["labels"])})


class TooFewLabels(ValueError):
    """There are too few labels to fit a model that could be trusted."""


def fit(
    p: ArrayLike,
    log_odds: ArrayLike,
    log_length: ArrayLike,
    truth: ArrayLike,
    clusters: ArrayLike,
    *,
    seed: int = 0,
    level: float = 0.95,
    weights: Weights = None,
) -> Calibration:
    """Fit the model to labelled pairs; raises TooFewLabels with the reason where it cannot be trusted.

    `p` is what the judge says as it is, for the scores before. The slope is kept where it is above 0 with 95%
    confidence (one-sided, over clusters); otherwise the judge has no signal, and all that is fitted is how often
    people see a tie. The length term is kept where it lowers the log-loss of unseen pairs by more than one
    standard error. Scores after are of pairs in folds that the model, these two choices included, was not fitted
    to; pairs of one cluster are in one fold. With `weights` for the labels all of it is
    weighted: the pseudo-likelihood of Binder (1983), "On the variances of asymptotically normal estimators from
    complex surveys", International Statistical Review 51, 279-292.
    """
    true = _codes(truth)
    inputs = _inputs(log_odds, log_length, weights)
    groups = places(clusters)
    refuse_few(true, groups)
    folds = _folds(groups, inputs, true, seed)
    raw = np.asarray(p, dtype=np.float64).reshape(-1, CATEGORIES)
    unseen = np.empty_like(raw)
    for fold in range(FOLDS):
        out = folds == fold
        inner = _choose(_pick(inputs, ~out), true[~out], groups[~out], seed)
        unseen[out] = probabilities(_features(_pick(inputs, out), True), inner.weights)
    chosen = _choose(inputs, true, groups, seed)
    slope, length, tie = chosen.weights
    counts = np.bincount(true, minlength=CATEGORIES)
    return Calibration(
        *(float(slope), float(tie), float(length), len(true), len(np.unique(groups)), FOLDS, seed),
        before=scores(raw, true, inputs.weight),
        after=scores(unseen, true, inputs.weight),
        gain=_gain(raw, unseen, true, groups, level, inputs.weight),
        length_gain=chosen.length_gain,
        labels=(int(counts[0]), int(counts[1]), int(counts[2])),
        signal=chosen.signal,
        signal_p=chosen.p,
    )


def _inputs(log_odds: ArrayLike, log_length: ArrayLike, weights: Weights = None) -> Inputs:
    odds, length = (np.asarray(x, dtype=np.float64).reshape(-1) for x in (log_odds, log_length))
    weight = np.ones(len(odds)) if weights is None else np.asarray(weights, dtype=np.float64).reshape(-1)
    return Inputs(odds, length, weight if weights is None else weight / weight.mean())


def scores(p: ArrayLike, truth: ArrayLike, weights: Weights = None) -> Scores:
    """How good probabilities are; two that are equally likely are a tie, and one half where only sides count.

    >>> scores([[0.6, 0.3, 0.1], [0.2, 0.3, 0.5]], [0, 1])
    Scores(log_loss=0.857..., brier=0.52, three_way=0.5, decided=1.0)
    """
    table, true = _rows(p, truth)
    best = table.max(axis=1, keepdims=True)
    alone = (table >= best - TINY).sum(axis=1) == 1
    said = np.where(alone, table.argmax(axis=1), CATEGORIES - 1)
    sided = is_decided(true)
    lean = np.sign(table[:, 0] - table[:, 1])[sided] * np.where(true[sided] == 0, 1, -1)
    weight = np.ones(len(true)) if weights is None else np.asarray(weights, dtype=np.float64)
    return Scores(
        float(np.average(log_losses(table, true), weights=weight)),
        round(float(np.average(brier_scores(table, true), weights=weight)), 12),
        float(np.average(said == true, weights=weight)),
        float(np.average((lean + 1) / 2, weights=weight[sided])) if sided.any() else None,
    )


def refuse_few(true: Codes, groups: Codes) -> None:
    """Raise TooFewLabels where there are too few to fit a model to."""
    clusters, sided = len(np.unique(groups)), int(is_decided(true).sum())
    for found, least, what in (
        (len(true), MIN_LABELS, "labelled pairs"),
        (clusters, MIN_CLUSTERS, "different instructions with labels"),
        (sided, MIN_DECIDED, "labels for a side rather than a tie"),
    ):
        if found < least:
            raise TooFewLabels(f"{found} {what}, and it takes at least {least}")


def _gain(raw: Array, unseen: Array, true: Codes, groups: Codes, level: float, weight: Array) -> Estimate:
    gap = log_losses(raw, true) - log_losses(unseen, true)
    sums = sums_by_cluster(np.column_stack([gap * weight, weight]), groups)
    return estimate(sums, ratio, n=len(gap), level=level)


class _Chosen(NamedTuple):
    """The weights of slope, length and tie, and why they are these."""

    weights: Array
    signal: bool
    p: float
    length_gain: float | None


def _choose(inputs: Inputs, true: Codes, groups: Codes, seed: int) -> _Chosen:
    """The model with a slope or without, and with the length term or without."""
    p = _signal(inputs, true, groups)
    if p > _NO_SIGNAL:
        tie = fit_davidson(np.empty((len(true), 0)), true, inputs.weight)[-1]
        return _Chosen(np.array([0.0, 0.0, tie]), False, p, None)
    helps = _length_gain(inputs, true, groups, seed)
    weights = _fit_rising(inputs, true, helps > 0)
    return _Chosen(weights, True, p, helps)


def _signal(inputs: Inputs, true: Codes, groups: Codes) -> float:
    """How often odds that say nothing would have a slope as far above 0 as this one: one-sided.

    The score test, over clusters: what each adds to the slope of the likelihood where the judge says nothing. White
    (1982), "Maximum likelihood estimation of misspecified models", Econometrica 50, 1-25; with t for the quantile.
    """
    from scipy.special import stdtr

    side = np.where(true == 0, 0.5, np.where(true == 1, -0.5, 0.0))
    adds = np.bincount(groups, side * inputs.log_odds * inputs.weight)
    total, spread = float(adds.sum()), float(np.sqrt((adds**2).sum()))
    many = len(np.unique(groups))
    return 1.0 if spread <= TINY else float(stdtr(many - 1, -total / spread))


def _length_gain(inputs: Inputs, true: Codes, groups: Codes, seed: int) -> float:
    """How much the length term lowers the log-loss of unseen pairs, less one standard error."""
    folds = _folds(groups, inputs, true, seed)
    loss = {True: np.empty(len(true)), False: np.empty(len(true))}
    for long in (True, False):
        for fold in range(FOLDS):
            out = folds == fold
            weights = _fit_rising(_pick(inputs, ~out), true[~out], long)
            loss[long][out] = log_losses(probabilities(_features(_pick(inputs, out), True), weights), true[out])
    gap = (loss[False] - loss[True]) * inputs.weight
    return float(gap.mean()) - _standard_error(gap, groups)


def _fit_rising(inputs: Inputs, true: Codes, long: bool) -> Array:
    """The weights of slope, length (0 if it is not `long`) and tie, with a slope of at least 0.

    The likelihood is concave, so that where the best slope is below 0, the best of those allowed is 0.
    """
    weights = fit_davidson(_features(inputs, long), true, inputs.weight)
    if weights[0] < 0:
        left = inputs.log_length[:, None] if long else np.empty((len(true), 0))
        weights = np.append(0.0, fit_davidson(left, true, inputs.weight))
    return weights if long else np.array([weights[0], 0.0, weights[-1]])


def _standard_error(values: Array, groups: Codes) -> float:
    sums = np.bincount(groups, values - values.mean())
    return float(np.sqrt((sums**2).sum()) / len(values))


def _folds(groups: Codes, inputs: Inputs, true: Codes, seed: int) -> Codes:
    """The fold of each row; clusters stay whole, and neither the order of rows nor the side of a pair matters."""
    names, place = np.unique(groups, return_inverse=True)
    side = np.where(true == 0, 1.0, np.where(true == 1, -1.0, 0.0))
    marks = np.column_stack([side * inputs.log_odds, side * inputs.log_length, np.abs(inputs.log_odds), side**2])
    sums = np.column_stack([np.bincount(place.reshape(-1), mark) for mark in marks.T])
    rank = np.empty(len(names), dtype=np.int64)
    rank[np.lexsort(np.round(sums, 9).T)] = np.random.default_rng(seed).permutation(len(names))
    return np.asarray((rank % FOLDS)[place.reshape(-1)])


def _pick(inputs: Inputs, keep: NDArray[np.bool_]) -> Inputs:
    return Inputs(inputs.log_odds[keep], inputs.log_length[keep], inputs.weight[keep])


def _features(inputs: Inputs, long: bool) -> Array:
    return np.column_stack([inputs.log_odds, inputs.log_length]) if long else inputs.log_odds[:, None]


def probabilities(features: Array, weights: Array) -> Array:
    """What the model says of each row: p(1), p(2), p(tie)."""
    half = features @ weights[:-1] / 2
    scores = np.column_stack([half, -half, np.full(len(half), weights[-1])])
    odds = np.exp(scores - scores.max(axis=1, keepdims=True))
    return np.asarray(odds / odds.sum(axis=1, keepdims=True))


def fit_davidson(features: Array, true: Codes, weight: Array | None = None) -> Array:
    """Newton's method on the penalised log-likelihood, which is concave.

    The penalty is a wide normal prior on the slopes, and one pair at log-odds 0 that is a third of each answer.
    """
    scale = np.sqrt((features**2).mean(axis=0)) + TINY  # of no feature, where there is none
    x = features / scale
    weights, weight = np.zeros(x.shape[1] + 1), np.ones(len(true)) if weight is None else weight
    for _ in range(_STEPS):
        slope, curve = _derivatives(x, true, weights, weight)
        step = np.linalg.solve(curve, slope)
        weights = weights + step * min(1.0, 5.0 / (np.abs(step).max() + TINY))
        if np.abs(step).max() < 1e-10:
            break
    return np.asarray(np.append(weights[:-1] / scale, weights[-1]))


def _derivatives(x: Array, true: Codes, weights: Array, weight: Array) -> tuple[Array, Array]:
    """The gradient of the penalised log-likelihood, and the curvature with its sign turned."""
    p = probabilities(x, weights)
    count = x.shape[1]
    # What each answer adds to the exponent for one unit of each weight: half, minus half, or the tie's one.
    design = np.zeros((len(x), CATEGORIES, count + 1))
    design[:, 0, :count], design[:, 1, :count], design[:, 2, count] = x / 2, -x / 2, 1.0
    expected = np.einsum("ij,ijk->ik", p, design)
    gradient = (weight[:, None] * (design[np.arange(len(true)), true] - expected)).sum(axis=0)
    second = np.einsum("i,ij,ijk,ijl->kl", weight, p, design, design) - (weight[:, None] * expected).T @ expected
    prior = np.append(np.full(count, 1 / _PRIOR**2), 0.0)
    gradient, second = gradient - prior * weights, second + np.diag(prior)
    tie = np.exp(weights[-1]) / (np.exp(weights[-1]) + 2)
    gradient[-1] += 1 / 3 - tie
    second[-1, -1] += tie * (1 - tie)
    return gradient, second


def _codes(truth: ArrayLike) -> Codes:
    return np.asarray(truth, dtype=np.int64).reshape(-1)


def _rows(p: ArrayLike, truth: ArrayLike) -> tuple[Array, Codes]:
    return np.asarray(p, dtype=np.float64).reshape(-1, CATEGORIES), _codes(truth)
