"""AlpacaEval's length-controlled win rate, by its own formula.

Dubois, Galambosi, Liang & Hashimoto (2024), "Length-Controlled AlpacaEval: a simple way to debias automatic
evaluators", arXiv:2404.04475. With d for the difference in length (model less baseline) and g for how hard the
instruction is:

    log-odds of the model's win = a + b tanh(d / standard deviation of d) + c g
    length-controlled win rate  = mean over instructions of logistic(a + c g)

The same: the formula, the standard deviation, preferences between 0 and 1 in place of verdicts, the mean over the
instructions at hand, and that b and c are drawn to what the baseline itself shows when it is asked to be longer or
shorter. Different: the original fits with an L1 penalty chosen by cross-validation, here it is a ridge so small
that it matters only where length decides every verdict; the original's g and the verdicts on its longer and
shorter baseline are files that have to be given (`difficulty`, `Gamed`), or `PUBLISHED` stands in for the second;
and here there is an interval. docs/statistics.md has how near it comes to the published column.

`evenhand.core.stats.length` has a rate at equal length of our own, which takes nothing from other data.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from evenhand.core.stats.clusters import Floats, Ints, ordered_sum, places, shape_of, t_quantile
from evenhand.core.stats.length import logistic, no_overlap, obstacle

METHOD = "AlpacaEval's length-controlled GLM (length_controlled_v1), ridge in place of L1"
# What both sets of a longer and a shorter baseline weigh together, for each pair: the original's lambda.
GAMED_WEIGHT = 0.2
_RIDGE = 1e-3
_STEPS = 100


@dataclass(frozen=True, slots=True)
class Prior:
    """What b and c are drawn to, and how strongly: the precision of a normal prior."""

    length: float
    length_precision: float
    difficulty: float
    difficulty_precision: float


# Stands in for the original's extra rows, which its repository does not hold: the mean coefficients of AlpacaEval's
# gpt4_1106_preview_verbose and _concise, and the information that 2 * 805 rows at a tenth of a pair's weight carry.
PUBLISHED = Prior(length=1.613, length_precision=13.0, difficulty=0.759, difficulty_precision=5.0)


@dataclass(frozen=True, slots=True)
class Gamed:
    """The baseline, asked to be longer or shorter, against itself: values, differences in length, difficulties."""

    values: ArrayLike
    differences: ArrayLike
    difficulty: ArrayLike | None = None
    sets: int = 2  # how many such baselines the rows are of; together they weigh GAMED_WEIGHT


@dataclass(frozen=True, slots=True)
class AlpacaLength:
    """AlpacaEval's length-controlled win rate of side 1; None with a reason where it has no meaning."""

    value: float | None
    low: float | None
    high: float | None
    length: float | None  # b
    difficulty: float | None  # c; None without difficulties
    spread: float | None  # the standard deviation of the differences
    n: int
    clusters: int
    level: float = 0.95
    method: str = METHOD
    reason: str = ""


def alpaca_length_controlled(
    values: ArrayLike,
    differences: ArrayLike,
    clusters: ArrayLike | None = None,
    *,
    difficulty: ArrayLike | None = None,
    gamed: Gamed | None = None,
    prior: Prior | None = None,
    level: float = 0.95,
) -> AlpacaLength:
    """The win rate of side 1 (the model) against side 2 (the baseline), as AlpacaEval controls it for length.

    `differences` are length 1 less length 2 in characters, `difficulty` the original's number for each pair's
    instruction. Without `gamed` rows and without a `prior` only the pairs at hand say what length is worth; then
    there is none where the sides do not overlap in length. The interval is over clusters and takes the prior and
    the standard deviation for known.

    >>> rng = np.random.default_rng(0)
    >>> longer = rng.normal(200, 300, 800)
    >>> won = rng.random(800) < 1 / (1 + np.exp(-1.5 * np.tanh(longer / 300)))
    >>> found = alpaca_length_controlled(won, longer)
    >>> bool(won.mean() > 0.6), found.low < 0.5 < found.high
    (True, True)
    >>> alpaca_length_controlled(won, np.abs(longer) + 1).reason
    'side 1 is longer in all pairs: nothing is known of equal length'
    >>> bool(alpaca_length_controlled(won, np.abs(longer) + 1, prior=PUBLISHED).value < won.mean())
    True
    """
    y, d = np.asarray(values, dtype=np.float64), np.asarray(differences, dtype=np.float64)
    place = np.arange(len(y)) if clusters is None else places(clusters)
    hard = None if difficulty is None else np.asarray(difficulty, dtype=np.float64)
    count = len(np.unique(place))
    known = gamed is not None or prior is not None
    reason = obstacle(y, d, count) or ("" if known else no_overlap(d))
    if reason:
        return AlpacaLength(None, None, None, None, None, None, len(y), count, level, METHOD, reason)
    order = np.lexsort((y, d)) if hard is None else np.lexsort((y, d, hard))
    rows = (y[order], d[order], place[order], None if hard is None else hard[order])
    return _fitted(*rows, gamed, prior, level)


def _fitted(
    y: Floats,
    d: Floats,
    place: Ints,
    hard: Floats | None,
    gamed: Gamed | None,
    prior: Prior | None,
    level: float,
) -> AlpacaLength:
    spread = float(d.std(ddof=1))
    x = _design(d / spread, hard, 1.0)
    extra = _extra(gamed, hard is not None)
    centre, precision = _penalty(prior, x.shape[1])
    b, curve = _solve([(x, y, np.ones(len(y))), *extra], centre, precision)
    equal = x.copy()
    equal[:, 1] = 0.0
    at_equal = logistic(equal @ b)
    value = ordered_sum(at_equal) / len(y)
    slope = (equal * (at_equal * (1 - at_equal))[:, None]).mean(axis=0)
    adds = (x * (y - logistic(x @ b))[:, None]) @ np.linalg.solve(curve, slope) + (at_equal - value) / len(y)
    low, high = _interval(value, np.bincount(place, adds).astype(np.float64), np.bincount(place), level)
    return AlpacaLength(
        *(value, low, high, float(b[1]), float(b[2]) if hard is not None else None, spread, len(y)),
        len(np.unique(place)),
        level,
    )


def _design(lengths: Floats, hard: Floats | None, ours: float) -> Floats:
    columns = [np.full(len(lengths), ours), np.tanh(lengths)]
    return np.column_stack(columns if hard is None else [*columns, hard])


def _extra(gamed: Gamed | None, with_difficulty: bool) -> list[tuple[Floats, Floats, Floats]]:
    """The rows of the baseline against itself: no term of their own, and little weight."""
    if gamed is None:
        return []
    y, d = np.asarray(gamed.values, dtype=np.float64), np.asarray(gamed.differences, dtype=np.float64)
    hard = None
    if with_difficulty:
        hard = np.zeros(len(y)) if gamed.difficulty is None else np.asarray(gamed.difficulty, dtype=np.float64)
    return [(_design(d / d.std(ddof=1), hard, 0.0), y, np.full(len(y), GAMED_WEIGHT / gamed.sets))]


def _penalty(prior: Prior | None, count: int) -> tuple[Floats, Floats]:
    centre, precision = np.zeros(count), np.full(count, _RIDGE)
    if prior is not None:
        centre[1], precision[1] = prior.length, prior.length_precision
        if count > 2:
            centre[2], precision[2] = prior.difficulty, prior.difficulty_precision
    return centre, precision


def _solve(rows: list[tuple[Floats, Floats, Floats]], centre: Floats, precision: Floats) -> tuple[Floats, Floats]:
    """Newton's method on the penalised log-likelihood, which is strictly concave; and its curvature there."""
    x, y, w = (np.concatenate(parts) for parts in zip(*rows, strict=True))
    b = centre.copy()
    best = -math.inf
    curve = np.diag(precision)
    for _ in range(_STEPS):
        mean = logistic(x @ b)
        curve = (x * (w * mean * (1 - mean))[:, None]).T @ x + np.diag(precision)
        step = np.linalg.solve(curve, x.T @ (w * (y - mean)) - precision * (b - centre))
        best = _objective(x, y, w, b, centre, precision)
        while _objective(x, y, w, b + step, centre, precision) < best - 1e-9 * abs(best):
            step = step / 2
        b = b + step
        if np.abs(step).max() < 1e-10:
            break
    return b, curve


def _objective(x: Floats, y: Floats, w: Floats, b: Floats, centre: Floats, precision: Floats) -> float:
    odds = x @ b
    return float((w * (y * odds - np.logaddexp(0.0, odds))).sum() - (precision * (b - centre) ** 2).sum() / 2)


def _interval(value: float, adds: Floats, sizes: Ints, level: float) -> tuple[float, float]:
    """By the delta method on the log-odds, from what clusters add to the rate."""
    there = sizes > 0
    shape = shape_of(sizes[there])
    error = math.sqrt(ordered_sum(adds[there] ** 2) * shape.kish / max(shape.kish - 1, 1.0)) / (value * (1 - value))
    reach = t_quantile(shape.freedom, level) * error
    odds = math.log(value / (1 - value))
    low, high = (float(x) for x in logistic(np.array([odds - reach, odds + reach])))
    return low, high
