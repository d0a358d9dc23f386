"""The win rate at equal length: what is left of a win rate when the longer response has no longer an advantage."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from evenhand.stats.clusters import Floats, Ints, ordered_sum, places, shape_of, t_quantile

METHOD = "fractional logit on tanh(length difference), bias-reduced, cluster-robust with the fit"
# With fewer clusters the error of the fit is itself too uncertain to be told (docs/statistics.md).
FEWEST = 40
_STEPS = 60


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
    values: ArrayLike, differences: ArrayLike, clusters: ArrayLike | None = None, *, level: float = 0.95
) -> LengthControlled:
    """The win rate of side 1 at equal length, and what length adds; `differences` are length 1 less length 2.

    After Dubois, Galambosi, Liang & Hashimoto (2024), "Length-Controlled AlpacaEval": a logistic regression of the
    verdicts on tanh(difference / its spread), of which the value at difference 0 is told. What is different here:
    the fit is to the user's own pairs, with no term for the instructions, which would come from other data; the
    spread is the root mean square, so that the sides may be exchanged; and the error is that of the whole fit, by
    the delta method from the estimating equations of both coefficients and the spread (Liang & Zeger 1986,
    "Longitudinal data analysis using generalized linear models"; Papke & Wooldridge 1996 for values between 0 and
    1). The original tells the spread of its fitted values and takes the fit for known.

    >>> rng = np.random.default_rng(0)
    >>> longer = rng.normal(100, 80, 400)
    >>> won = rng.random(400) < 1 / (1 + np.exp(-longer / 100))
    >>> found = length_controlled(won, longer)
    >>> bool(won.mean() > 0.65), found.low < 0.5 < found.high, found.effect_low > 0
    (True, True, True)
    >>> length_controlled([1, 0, 1], [5, -5, 2]).reason
    'fewer than 40 instructions'
    """
    y, d = np.asarray(values, dtype=np.float64), np.asarray(differences, dtype=np.float64)
    place = np.arange(len(y)) if clusters is None else places(clusters)
    order = np.lexsort((y, d))  # so that the rows' own order cannot change a digit
    y, d, place = y[order], d[order], place[order]
    count = len(np.unique(place))
    reason = _obstacle(y, d, place)
    if not reason:
        fitted = _fit(y, d, place, level)
        if fitted is not None:
            return fitted
        reason = "the fit does not come to rest"
    return LengthControlled(None, None, None, None, None, None, None, len(y), count, level, METHOD, reason)


def _obstacle(y: Floats, d: Floats, place: Ints) -> str:
    if not len(y) or len(np.unique(place)) < FEWEST:
        return f"fewer than {FEWEST} instructions"
    if np.all(y == y[0]):
        return "all verdicts are the same"
    if np.all(d == d[0]):
        return "the lengths differ by nothing" if d[0] == 0 else "the lengths differ by the same in all pairs"
    return ""


def _fit(y: Floats, d: Floats, place: Ints, level: float) -> LengthControlled | None:
    typical = math.sqrt(ordered_sum(d**2) / len(d))
    x = np.column_stack([np.ones(len(d)), np.tanh(d / typical)])
    coefficients = _newton(y, x, len(y) / shape_of(np.bincount(place)).kish)
    if coefficients is None:
        return None
    at_zero, slope = (float(c) for c in coefficients)
    most = shape_of(np.bincount(place)).freedom - 1
    error, tilt = (_reach(parts, most, level) for parts in _parts(y, d, x, coefficients, typical, place))
    unit = math.tanh(1.0)  # what x is for a pair that differs by the typical length
    value, low, high = (_logistic(at_zero + sign * error) for sign in (0, -1, 1))
    effect, weakest, strongest = (unit * (slope + sign * tilt) for sign in (0, -1, 1))
    count = int(place.max()) + 1
    return LengthControlled(value, low, high, effect, weakest, strongest, typical, len(y), count, level)


def _newton(y: Floats, x: Floats, repeats: float) -> Floats | None:
    """Firth's fit (1993, "Bias reduction of maximum likelihood estimates", Biometrika 80, 27-38): its coefficients.

    Verdicts are drawn to one half by their leverage, which keeps the fit finite where length decides every
    verdict, and unbiased where there are few. `repeats` is how many pairs there are for each cluster of equal
    weight: a pair that is there twice shall not count for more.
    """
    b: Floats = np.zeros(2)
    for _ in range(_STEPS):
        mean = _logistic_array(x @ b)
        weight = mean * (1 - mean)
        bread = np.linalg.inv((x * weight[:, None]).T @ x)
        drawn = repeats * _leverage(x, weight, bread) * (0.5 - mean)
        step = bread @ (x.T @ (y - mean + drawn))
        b = b + step * min(1.0, 3.0 / max(float(np.abs(step).max()), 1e-300))
        if np.abs(step).max() < 1e-10:
            return b
    return None


def _leverage(x: Floats, weight: Floats, bread: NDArray[Any]) -> Floats:
    return np.asarray(weight * np.einsum("ij,jk,ik->i", x, bread, x), dtype=np.float64)


def _reach(parts: Floats, most: float, level: float) -> float:
    """How far an interval reaches to either side, from what each cluster adds to a coefficient.

    A variance to which few clusters add nearly all is known as badly as one from so few clusters. Their number is
    that of Satterthwaite (1946), with what they did add in place of what they might.
    """
    squares = parts**2
    total = ordered_sum(squares)
    freedom = total**2 / ordered_sum(squares**2) if total > 0 else most
    return t_quantile(min(most, freedom), level) * math.sqrt(total)


def _parts(y: Floats, d: Floats, x: Floats, b: Floats, typical: float, place: Ints) -> tuple[Floats, Floats]:
    """What each cluster adds to either coefficient, the error of the spread included.

    A cluster's part is divided by 1 - its leverage, as in the jackknife (CR3 of Bell & McCaffrey 2002).
    """
    mean = _logistic_array(x @ b)
    weight = mean * (1 - mean)
    bread = np.linalg.inv((x * weight[:, None]).T @ x)
    slope_of_x = -(1 - x[:, 1] ** 2) * d / typical**2  # how x moves with the spread
    drift = -(x * (weight * b[1] * slope_of_x)[:, None]).sum(axis=0)
    drift[1] += ((y - mean) * slope_of_x).sum()
    spread = (d**2 - typical**2) / (2 * typical * len(d))
    influence = (x * (y - mean)[:, None] + np.outer(spread, drift)) @ bread
    leverage = _leverage(x, weight, bread)
    free = 1 - np.clip(np.bincount(place, leverage), 0, 0.9)
    return np.bincount(place, influence[:, 0]) / free, np.bincount(place, influence[:, 1]) / free


def _logistic(x: float) -> float:
    return 1 / (1 + math.exp(-x)) if x >= 0 else math.exp(x) / (1 + math.exp(x))


def _logistic_array(x: Floats) -> Floats:
    from scipy.special import expit

    return np.asarray(expit(x), dtype=np.float64)
