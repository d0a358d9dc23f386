"""The win rate at equal length: what is left of a win rate when the longer response has no longer an advantage."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from evenhand.core.stats.clusters import Floats, Ints, Weighting, ordered_sum, places, shape_of, t_quantile
from evenhand.core.stats.weighted_means import target_weights

METHOD = "fractional logit on tanh(length difference), bias-reduced, cluster-robust with the fit"
# With fewer clusters the error of the fit is itself too uncertain to be shown (docs/statistics.md).
FEWEST = 40
# With a smaller share of pairs, or fewer, on the other side of equal length, the sides do not overlap in length.
_OVERLAP = 0.05
_FEWEST_OVERLAP = 3
_STEPS = 200


@dataclass(frozen=True, slots=True)
class LengthControlled:
    """The win rate at equal length and the effect of length; None with a reason where it has no meaning."""

    value: float | None
    low: float | None
    high: float | None
    effect: float | None  # what being longer by `typical` adds to the log-odds of winning
    effect_low: float | None
    effect_high: float | None
    typical: float | None  # the root mean square of the differences in length
    n: int
    clusters: int
    level: float = 0.95
    method: str = METHOD
    reason: str = ""


def length_controlled(
    values: ArrayLike,
    differences: ArrayLike,
    clusters: ArrayLike | None = None,
    *,
    level: float = 0.95,
    weighting: Weighting = "pairs",
) -> LengthControlled:
    """The win rate of side 1 at equal length, and what length adds; `differences` are length 1 less length 2.

    After Dubois, Galambosi, Liang & Hashimoto (2024), "Length-Controlled AlpacaEval": a logistic regression of the
    verdicts on tanh(difference / its spread), whose value at difference 0 is the result. What is different here:
    the fit is to the user's own pairs, with no term for the instructions, which would come from other data; the
    spread is the root mean square, so that the sides may be exchanged; and the error is that of the whole fit, by
    the delta method from the estimating equations of both coefficients and the spread (Liang & Zeger 1986,
    "Longitudinal data analysis using generalized linear models"; Papke & Wooldridge 1996 for values between 0 and
    1). The original gives the spread of its fitted values, as if the fit were known.

    >>> rng = np.random.default_rng(0)
    >>> longer = rng.normal(100, 80, 400)
    >>> won = rng.random(400) < 1 / (1 + np.exp(-longer / 100))
    >>> found = length_controlled(won, longer)
    >>> bool(won.mean() > 0.65), found.low < 0.5 < found.high, found.effect_low > 0
    (True, True, True)
    >>> length_controlled([1, 0, 1], [5, -5, 2]).reason
    'fewer than 40 instructions'
    """
    rows = arrange(values, differences, clusters, weighting)
    return length_controlled_over(lambda: [rows], level=level)


@dataclass(frozen=True, slots=True)
class LengthRows:
    """Some clusters with all their pairs: value, difference in length, cluster and weight of each."""

    y: Floats
    d: Floats
    place: Ints
    w: Floats


def arrange(
    values: ArrayLike,
    differences: ArrayLike,
    clusters: ArrayLike | None = None,
    weighting: Weighting = "pairs",
) -> LengthRows:
    """Rows in an order of their own, so that the one in which they come cannot change a digit.

    Each pair weighs the same, or each cluster.

    >>> arrange([1, 0], [5, -5], ["a", "b"]).d.tolist()
    [-5.0, 5.0]
    """
    y, d = np.asarray(values, dtype=np.float64), np.asarray(differences, dtype=np.float64)
    place = np.arange(len(y)) if clusters is None else places(clusters)
    w = target_weights(place, weighting)
    order = _order(d, y, w)
    return LengthRows(y[order], d[order], place[order], w[order])


def _order(d: Floats, y: Floats, w: Floats) -> Ints:
    """An order by difference, value and weight: `np.lexsort((w, y, d))`, but for rows that are all the same.

    Differences in characters, verdicts and one over the size of a cluster are steps that make one number together,
    by which rows are sorted in a fifth of the time.
    """
    sizes = np.rint(1 / w)
    whole = np.rint(4 * d + 2 * y) * (sizes.max(initial=0.0) + 1) - sizes
    exact = (d == np.rint(d)).all() and (2 * y == np.rint(2 * y)).all() and (w == 1 / sizes).all()
    if exact and np.abs(whole).max(initial=0.0) < 2**52:
        return np.argsort(whole.astype(np.int64))
    return np.lexsort((w, y, d))


def length_controlled_over(parts: Callable[[], Iterable[LengthRows]], *, level: float = 0.95) -> LengthControlled:
    """The same of clusters that come in parts, gone through twice; no more than a part is in memory at once.

    >>> halves = [arrange([1, 0], [5, -5]), arrange([1, 1], [2, 3])]
    >>> length_controlled_over(lambda: halves).clusters
    4
    """
    cells, sizes, n = _count(parts())
    count = sum(sizes.values())
    reason = obstacle(cells.y, cells.d, count) or no_overlap(cells.d, cells.n)
    if not reason:
        return replace(_fit(parts, cells, sizes, level), n=n)
    return LengthControlled(None, None, None, None, None, None, None, n, count, level, METHOD, reason)


@dataclass(frozen=True, slots=True)
class _Cells:
    """Pairs by value and difference in length, and what they weigh: many are alike, and the fit sees no more."""

    y: Floats
    d: Floats
    n: Floats


def _count(parts: Iterable[LengthRows]) -> tuple[_Cells, Counter[int], int]:
    """The cells of all parts, how many clusters there are that weigh so many pairs, and the number of pairs."""
    cells, whole = np.empty((0, 3)), True
    sizes: Counter[int] = Counter()
    pairs = 0
    for rows in parts:
        pairs += len(rows.y)
        weighs = np.rint(np.bincount(rows.place, rows.w)).astype(np.int64)
        each, counts = np.unique(weighs, return_counts=True)
        sizes.update(dict(zip(each.tolist(), counts.tolist(), strict=True)))
        here = np.column_stack([rows.d, rows.y, rows.w])
        whole = whole and bool((rows.w == np.rint(rows.w)).all())
        if whole:  # then no digit depends on what is added first
            here = _added_up(here)
        cells = _merged(np.concatenate([cells, here]))
    d, y, n = cells.T
    return _Cells(y, d, n), sizes, pairs


def _merged(cells: NDArray[Any]) -> NDArray[Any]:
    """One row for each value and difference, in order, with the numbers of those that are alike added up."""
    return _added_up(cells[np.lexsort((cells[:, 2], cells[:, 1], cells[:, 0]))])


def _added_up(cells: NDArray[Any]) -> NDArray[Any]:
    """The same of rows that are in order."""
    new = np.ones(len(cells), dtype=bool)
    new[1:] = (cells[1:, 0] != cells[:-1, 0]) | (cells[1:, 1] != cells[:-1, 1])
    begins = np.flatnonzero(new)
    merged = cells[begins]
    merged[:, 2] = np.add.reduceat(cells[:, 2], begins) if len(cells) else []
    return merged


def obstacle(y: Floats, d: Floats, clusters: int) -> str:
    """Why the effect of length cannot be estimated from these values and differences; empty where it can."""
    if clusters < FEWEST:
        return f"fewer than {FEWEST} instructions"
    if np.all(y == y[0]):
        return "all verdicts are the same"
    if np.all(d == d[0]):
        return "the lengths differ by nothing" if d[0] == 0 else "the lengths differ by the same in all pairs"
    return ""


def no_overlap(differences: Floats, counts: Floats | None = None) -> str:
    """Why there is nothing to be said about equal length: one side is nearly always the longer one; or nothing.

    Then no pair is near equal length, or so few that the fit is drawn on beyond the data: of AlpacaEval's published
    models, gpt4_gamed is the longer one in 4% of the pairs, and its win rate of 4% would become one of 40%.

    >>> no_overlap(np.array([1.0, 2.0, 3.0, 4.0]))
    'side 1 is longer in all pairs: nothing is known of equal length'
    >>> no_overlap(np.array([-1.0, 2.0] * 10))
    ''
    """
    n = np.ones(len(differences)) if counts is None else counts
    total = n.sum()
    up, down = n[differences >= 0].sum(), n[differences <= 0].sum()
    if min(up, down) >= max(_OVERLAP * total, _FEWEST_OVERLAP):
        return ""
    word = "longer" if up > down else "shorter"
    share = max(n[differences > 0].sum(), n[differences < 0].sum()) / total
    often = "all pairs" if share == 1 else f"{100 * share:.0f}% of the pairs"
    return f"side 1 is {word} in {often}: nothing is known of equal length"


def _fit(
    parts: Callable[[], Iterable[LengthRows]], cells: _Cells, sizes: Mapping[int, int], level: float
) -> LengthControlled:
    n = float(cells.n.sum())
    typical = math.sqrt(ordered_sum(cells.n * cells.d**2) / n)
    shape = shape_of(np.array(list(sizes)), np.array(list(sizes.values())))
    coefficients = _newton(cells, _design(cells.d, typical), n / shape.kish)
    at_zero, slope = (float(c) for c in coefficients)
    most = shape.freedom - 1
    error, tilt = (_reach(*sums, most, level) for sums in _squares(parts, cells, coefficients, typical))
    unit = math.tanh(1.0)  # what x is for a pair that differs by the typical length
    value, low, high = (_logistic(at_zero + sign * error) for sign in (0, -1, 1))
    effect, weakest, strongest = (unit * (slope + sign * tilt) for sign in (0, -1, 1))
    return LengthControlled(value, low, high, effect, weakest, strongest, typical, shape.n, shape.clusters, level)


def _design(d: Floats, typical: float) -> Floats:
    return np.column_stack([np.ones(len(d)), np.tanh(d / typical)])


def _newton(cells: _Cells, x: Floats, repeats: float) -> Floats:
    """Firth's fit (1993, "Bias reduction of maximum likelihood estimates", Biometrika 80, 27-38): its coefficients.

    Verdicts are drawn to one half by their leverage, which keeps the fit finite where length decides every
    verdict, and unbiased where there are few. `repeats` is how many pairs there are for each cluster of equal
    weight: a pair that is there twice must not count for more. A step that would make the fit worse is halved
    until it does not, so that it ends at the best fit for any data.
    """
    b: Floats = np.zeros(2)
    best = _penalised(cells, x, b, repeats)
    for _ in range(_STEPS):
        mean, weight, bread = _state(cells, x, b)
        drawn = repeats * _leverage(x, weight, bread) * (0.5 - mean)
        step = bread @ (x.T @ (cells.n * (cells.y - mean + drawn)))
        step = step * min(1.0, 3.0 / max(float(np.abs(step).max()), 1e-300))
        there = _penalised(cells, x, b + step, repeats)
        while there < best - 1e-9 * abs(best) and np.abs(step).max() > 1e-10:
            step = step / 2
            there = _penalised(cells, x, b + step, repeats)
        b, best = b + step, there
        if np.abs(step).max() < 1e-10:
            break
    return b


def _penalised(cells: _Cells, x: Floats, b: Floats, repeats: float) -> float:
    """The log-likelihood and half the logarithm of the information's determinant."""
    odds = x @ b
    mean = logistic(odds)
    information = (x * (cells.n * mean * (1 - mean))[:, None]).T @ x
    sign, size = np.linalg.slogdet(information)
    if sign <= 0:
        return -math.inf
    return float((cells.n * (cells.y * odds - np.logaddexp(0.0, odds))).sum() + repeats / 2 * size)


def _state(cells: _Cells, x: Floats, b: Floats) -> tuple[Floats, Floats, NDArray[Any]]:
    """Of a fit: the mean and the weight of a pair of each cell, and the inverse of the information of all."""
    mean = logistic(x @ b)
    weight = mean * (1 - mean)
    return mean, weight, np.linalg.inv((x * (cells.n * weight)[:, None]).T @ x)


def _leverage(x: Floats, weight: Floats, bread: NDArray[Any]) -> Floats:
    one, two = x.T  # term by term: a quarter of the time of np.einsum, and the same digits
    (a, b), (c, d) = bread
    return np.asarray(weight * (one * a * one + one * b * two + two * c * one + two * d * two), dtype=np.float64)


def _reach(total: float, fourth: float, most: float, level: float) -> float:
    """How far an interval reaches to either side, from what clusters add to a coefficient.

    `total` and `fourth` are the sums of the squares and of the fourth powers of what they add. A variance to which
    few clusters add nearly all is known as badly as one from so few clusters. Their number is that of Satterthwaite
    (1946), with what they did add in place of what they might.
    """
    freedom = total**2 / fourth if total > 0 else most
    return t_quantile(min(most, freedom), level) * math.sqrt(total)


def _squares(
    parts: Callable[[], Iterable[LengthRows]], cells: _Cells, b: Floats, typical: float
) -> list[tuple[float, float]]:
    """For either coefficient, the squares and fourth powers of what clusters add, the error of the spread included.

    A cluster's part is divided by 1 - its leverage, as in the jackknife (CR3 of Bell & McCaffrey 2002).
    """
    x = _design(cells.d, typical)
    mean, weight, bread = _state(cells, x, b)
    slope_of_x = _slope_of_x(x, cells.d, typical)
    drift = -(x * (cells.n * weight * b[1] * slope_of_x)[:, None]).sum(axis=0)
    drift[1] += (cells.n * (cells.y - mean) * slope_of_x).sum()
    n = cells.n.sum()
    found: list[list[tuple[float, float]]] = [[], []]
    for rows in parts():
        x = _design(rows.d, typical)
        mean = logistic(x @ b)
        spread = (rows.d**2 - typical**2) / (2 * typical * n)
        influence = ((x * (rows.y - mean)[:, None] + np.outer(spread, drift)) * rows.w[:, None]) @ bread
        free = 1 - np.clip(np.bincount(rows.place, rows.w * _leverage(x, mean * (1 - mean), bread)), 0, 0.9)
        for column, sums in enumerate(found):
            squares = (np.bincount(rows.place, influence[:, column]) / free) ** 2
            sums.append((ordered_sum(squares), ordered_sum(squares**2)))
    return [(math.fsum(a for a, _ in sums), math.fsum(b for _, b in sums)) for sums in found]


def _slope_of_x(x: Floats, d: Floats, typical: float) -> Floats:
    """How x moves with the spread."""
    return np.asarray(-(1 - x[:, 1] ** 2) * d / typical**2, dtype=np.float64)


def _logistic(x: float) -> float:
    return 1 / (1 + math.exp(-x)) if x >= 0 else math.exp(x) / (1 + math.exp(x))


def logistic(x: Floats) -> Floats:
    """The probabilities of log-odds."""
    from scipy.special import expit

    return np.asarray(expit(x), dtype=np.float64)
