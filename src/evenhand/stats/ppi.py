"""The win rate that people would give, from their labels on some pairs and the judge's verdicts on all of them.

Angelopoulos, Duchi & Zrnic (2023), "PPI++: Efficient prediction-powered inference", arXiv:2311.01453, after
Angelopoulos et al. (2023), "Prediction-powered inference", Science 382, 669-674. It is valid whatever the judge's
bias: a judge that knows nothing costs nothing, a good one stands in for labels.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from evenhand.stats.clusters import (
    UNIT,
    Floats,
    Ints,
    Moments,
    Shape,
    group,
    moments,
    ordered_sum,
    places,
    share_interval,
)
from evenhand.stats.winrate import Rate, mean_rate

METHOD = "PPI++ with tuned lambda, clustered"
# With fewer labelled clusters lambda cannot be tuned with any sense.
FEWEST = 10


@dataclass(frozen=True, slots=True)
class Powered:
    """The prediction-powered win rate beside that of the labels alone and that of the judge alone."""

    value: float | None
    low: float | None
    high: float | None
    labels: Rate
    judge: Rate
    tuning: float | None  # lambda: 0 leaves the judge out, 1 trusts it like a label
    narrower: float | None  # by what share the interval is narrower than that of the labels alone
    n: int
    labelled: int
    clusters: int
    level: float = 0.95
    method: str = METHOD
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Needed:
    """How many labels a width takes; None where all pairs together do not give it, with the width that they do."""

    width: float
    labels: int | None
    more: int | None
    best_width: float


def powered_rate(
    labels: ArrayLike, verdicts: ArrayLike, clusters: ArrayLike | None = None, *, level: float = 0.95
) -> Powered:
    """The mean of the labels over all pairs; a label that is nan is not known.

    With Y for labels, f for verdicts, n labelled pairs and N others:

        value = mean(Y) + lambda (mean of f over the others - mean of f over the labelled)

    lambda is the one that makes the measured variance smallest, held between 0 and 1; the variance is that over
    clusters, each of which adds its labelled and its other pairs together.

    >>> rng = np.random.default_rng(1)
    >>> truth = rng.random(1000) < 0.6
    >>> verdicts = np.where(rng.random(1000) < 0.9, truth, ~truth)
    >>> labels = np.where(np.arange(1000) < 100, truth, np.nan)
    >>> found = powered_rate(labels, verdicts)
    >>> found.low < 0.6 < found.high, found.labelled, found.narrower > 0.2
    (True, 100, True)
    """
    y, f = np.asarray(labels, dtype=np.float64), np.asarray(verdicts, dtype=np.float64)
    place = np.arange(len(y)) if clusters is None else places(clusters)
    known = ~np.isnan(y)
    alone = mean_rate(y[known], place[known], level=level)
    judge = mean_rate(f, place, level=level)
    reason = _obstacle(known, alone)
    if reason:
        return Powered(
            *(alone.value, alone.low, alone.high), alone, judge, None, None, len(y), alone.n, alone.clusters, level,
            METHOD, reason,
        )  # fmt: skip
    parts = _parts(y, f, place, known)
    return _powered(parts, alone, judge, len(y), level)


def _obstacle(known: np.ndarray, alone: Rate) -> str:
    if alone.clusters == 0:
        return "no pair has a label"
    if known.all():
        return "every pair has a label: the judge has nothing to add"
    if alone.clusters < FEWEST:
        return f"labels on fewer than {FEWEST} instructions: the judge's bias cannot be told from chance"
    return ""


@dataclass(frozen=True, slots=True)
class _Parts:
    """What each cluster adds to the mean label, and to the mean verdict over labelled and other pairs."""

    label: Floats
    seen: Floats
    other: Floats
    base: Moments  # of the labels
    shift: float  # mean verdict of the others less that of the labelled
    known: int
    rest: int


def _parts(y: Floats, f: Floats, place: Ints, known: np.ndarray) -> _Parts:
    count = int(place.max()) + 1
    sums, sizes = group(y[known], place[known])
    base = moments(sums, sizes)
    mean_seen, mean_other = _exact_mean(f[known]), _exact_mean(f[~known])

    def added(values: Floats, rows: np.ndarray, mean: float) -> Floats:
        order = np.lexsort((values, place[rows]))
        centred = (values - mean)[order]
        return np.bincount(place[rows][order], centred, minlength=count) / len(values)

    return _Parts(
        added(y[known], known, base.mean),
        added(f[known], known, mean_seen),
        added(f[~known], ~known, mean_other),
        base,
        mean_other - mean_seen,
        int(known.sum()),
        int((~known).sum()),
    )


def _exact_mean(values: Floats) -> float:
    sums, _ = group(values)
    return int(sums.sum()) / (len(values) * UNIT)


def _powered(parts: _Parts, alone: Rate, judge: Rate, n: int, level: float) -> Powered:
    step = parts.other - parts.seen
    spread = ordered_sum(step**2)
    tuning = min(1.0, max(0.0, -ordered_sum(parts.label * step) / spread)) if spread > 0 else 0.0
    value = min(1.0, max(0.0, parts.base.mean + tuning * parts.shift))
    variance = ordered_sum((parts.label + tuning * step) ** 2)
    # A tuned lambda has made the variance look smaller than it is: one degree of freedom is gone.
    shape = parts.base.shape
    variance *= shape.kish / max(shape.kish - 1, 1.0)
    m = Moments(value, variance, 1.0, Shape(n, shape.clusters, shape.kish, max(shape.freedom - 1, 1.0)))
    low, high = share_interval(m, level)
    wide = None if alone.low is None or alone.high is None else alone.high - alone.low
    narrower = 1 - (high - low) / wide if wide else None
    return Powered(*(value, low, high), alone, judge, tuning, narrower, n, alone.n, alone.clusters, level)


def labels_needed(
    labels: ArrayLike,
    verdicts: ArrayLike,
    clusters: ArrayLike | None = None,
    *,
    width: float,
    level: float = 0.95,
) -> Needed | None:
    """How many labels would bring the interval to this width, if more of them are like those at hand.

    The variances and the covariance of labels and verdicts are taken from the labelled pairs, lambda is tuned anew
    for each number, and the number is found by bisection. None where powered_rate gives a reason for none.

    >>> rng = np.random.default_rng(1)
    >>> truth = rng.random(5000) < 0.6
    >>> verdicts = np.where(rng.random(5000) < 0.9, truth, ~truth)
    >>> needed = labels_needed(np.where(np.arange(5000) < 100, truth, np.nan), verdicts, width=0.1)
    >>> 130 < needed.labels < 220, needed.more == needed.labels - 100
    (True, True)
    """
    y, f = np.asarray(labels, dtype=np.float64), np.asarray(verdicts, dtype=np.float64)
    place = np.arange(len(y)) if clusters is None else places(clusters)
    known = ~np.isnan(y)
    if _obstacle(known, mean_rate(y[known], place[known], level=level)):
        return None
    plan = _Plan(_parts(y, f, place, known), level)
    low, high = plan.parts.known, len(y)
    best = plan.width(high)
    if best > width:
        return Needed(width, None, None, best)
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if plan.width(middle) <= width else (middle + 1, high)
    return Needed(width, low, low - plan.parts.known, best)


@dataclass(frozen=True, slots=True)
class _Plan:
    """What the interval would be with another number of labels."""

    parts: _Parts
    level: float

    def width(self, labelled: int) -> float:
        p = self.parts
        rest = p.known + p.rest - labelled
        of_labels, of_verdicts = p.known * ordered_sum(p.label**2), p.known * ordered_sum(p.seen**2)
        together = p.known * ordered_sum(p.label * p.seen)
        tuning = 0.0
        if rest and of_verdicts > 0:
            tuning = min(1.0, max(0.0, together / (of_verdicts * (1 + labelled / rest))))
        variance = (of_labels - 2 * tuning * together + tuning**2 * of_verdicts) / labelled
        variance += tuning**2 * p.rest * ordered_sum(p.other**2) / rest if rest else 0.0
        more = labelled / p.known
        shape = p.base.shape
        grown = Shape(labelled, round(shape.clusters * more), shape.kish * more, shape.freedom * more - 1)
        low, high = share_interval(Moments(p.base.mean, variance, 1.0, grown), self.level)
        return high - low
