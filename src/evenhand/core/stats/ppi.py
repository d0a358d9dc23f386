"""The win rate that people would give, from their labels on some pairs and the judge's verdicts on all of them.

Angelopoulos, Duchi & Zrnic (2023), "PPI++: Efficient prediction-powered inference", arXiv:2311.01453, after
Angelopoulos et al. (2023), "Prediction-powered inference", Science 382, 669-674; survey statistics know the same
as the difference estimator (Cassel, Särndal & Wretman 1976, Biometrika 63, 615-620). Whatever the judge gets wrong
on all pairs alike is seen on the labelled ones and taken off.

The interval is not the paper's, which is normal and holds too seldom where the judge errs rarely: with 10 labels
and a judge that is wrong on 5% of the pairs, most sets of labels show no error at all. What the judge misses on
either side is counted like the rare event that it is (docs/statistics.md has how often it holds).
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import ArrayLike, NDArray

from evenhand.core.stats.clustered import Weights
from evenhand.core.stats.clusters import (
    Floats,
    Ints,
    Moments,
    Weighting,
    mover,
    ordered_sum,
    places,
    reaches,
    share_interval,
)
from evenhand.core.stats.weighted_means import Weighed, target_weights, weigh
from evenhand.core.stats.winrate import Rate, mean_rate, weighted_rate

METHOD = "PPI++ with tuned lambda, clustered; Clopper-Pearson by effective trials, MOVER"
# With fewer labelled clusters lambda cannot be tuned with any sense.
FEWEST = 10
# What is narrower by rounding alone.
_ROUNDING = 1e-9
# A variance that is rounding alone.
_NOTHING = 1e-24


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
    weighting: Weighting = "pairs"


@dataclass(frozen=True, slots=True)
class LabelsNeeded:
    """How many labels an interval of a width takes; None where all pairs together do not give it."""

    width: float
    labelled: int | None
    more: int | None
    width_with_all: float


def powered_rate(
    labels: ArrayLike,
    verdicts: ArrayLike,
    clusters: ArrayLike | None = None,
    *,
    weights: Weights = None,
    weighting: Weighting = "pairs",
    level: float = 0.95,
) -> Powered:
    """The mean of the labels over all pairs; a label that is nan is not known.

    With Y for labels and f for verdicts:

        value = mean(Y) + lambda (mean of f over all pairs - mean of f over the labelled)

    lambda is the one that makes the measured variance smallest, held between 0 and 1; the variance is that over
    clusters, each of which adds its labelled and its other pairs together. `weights` are one over the probability
    with which a pair came to be labelled, for pairs that were not all as likely; a label with a weight of 0 or nan
    is not used. Means over the labelled are then Hájek's.

    Where the interval would be wider than that of the labels alone, as with few labels or with labels on most
    pairs, the result is that of the labels. To choose so after looking costs coverage, and little: the two go
    together (docs/statistics.md has how often the chosen one holds).

    >>> rng = np.random.default_rng(1)
    >>> truth = rng.random(1000) < 0.6
    >>> verdicts = np.where(rng.random(1000) < 0.9, truth, ~truth)
    >>> labels = np.where(np.arange(1000) < 100, truth, np.nan)
    >>> found = powered_rate(labels, verdicts)
    >>> found.low < 0.6 < found.high, found.labelled, found.narrower > 0.2
    (True, 100, True)
    """
    data = _Data.of(labels, verdicts, clusters, weights, weighting)
    alone, judge = data.alone(level), mean_rate(data.f, data.place, level=level, weighting=weighting)
    reason = _obstacle(data, alone)
    if reason:
        return _labels_alone(data, alone, judge, weighting, reason)
    tuned = _tuned(data, judge)
    low, high = tuned.interval(level)
    wide = _wide(alone)
    narrower = 1 - (high - low) / wide if 0 < wide < math.inf else None
    if narrower is not None and narrower < _ROUNDING:
        return _labels_alone(data, alone, judge, weighting, _wider(-narrower) if tuned.tuning else "")
    return Powered(
        *(tuned.value, low, high), alone, judge, tuned.tuning, narrower, len(data.y), alone.n, alone.clusters,
        level, weighting=weighting,
    )  # fmt: skip


@dataclass(frozen=True, slots=True)
class _Data:
    """Labels and verdicts with their clusters; `wanted` is what a pair is to weigh, `drawn` what its label does."""

    y: Floats
    f: Floats
    place: Ints
    known: NDArray[np.bool_]
    wanted: Floats
    drawn: Floats

    @classmethod
    def of(
        cls,
        labels: ArrayLike,
        verdicts: ArrayLike,
        clusters: ArrayLike | None,
        weights: Weights,
        weighting: Weighting,
    ) -> _Data:
        y, f = np.asarray(labels, dtype=np.float64), np.asarray(verdicts, dtype=np.float64)
        place = np.arange(len(y)) if clusters is None else places(clusters)
        drawn = np.ones(len(y)) if weights is None else np.asarray(weights, dtype=np.float64)
        known = ~np.isnan(y) & (drawn > 0)
        wanted = target_weights(place, weighting)
        return cls(y, f, place, known, wanted, np.where(known, drawn, 0.0) * wanted)

    def alone(self, level: float) -> Rate:
        """The rate of the labels by themselves."""
        y, place, drawn = self.y[self.known], self.place[self.known], self.drawn[self.known]
        if (drawn == 1).all():
            return mean_rate(y, place, level=level)
        return weighted_rate(y, drawn, place, level=level)


def _wide(alone: Rate) -> float:
    return math.inf if alone.low is None or alone.high is None else alone.high - alone.low


def _wider(share: float) -> str:
    """Why the judge is left out, where its verdicts make the interval wider.

    >>> _wider(0.111)
    "the judge's verdicts would widen the interval by 11%: the labels stand alone"
    """
    by = f"{share:.0%}" if share >= 0.005 else "less than 1%"
    return f"the judge's verdicts would widen the interval by {by}: the labels stand alone"


def _labels_alone(data: _Data, alone: Rate, judge: Rate, weighting: Weighting, reason: str) -> Powered:
    """The rate of the labels, for a reason; without one the judge is of no use, and lambda is 0."""
    none = None if reason else 0.0
    return Powered(
        *(alone.value, alone.low, alone.high), alone, judge, none, none, len(data.y), alone.n, alone.clusters,
        alone.level, METHOD, reason, weighting,
    )  # fmt: skip


def _obstacle(data: _Data, alone: Rate) -> str:
    if alone.clusters == 0:
        return "no pair has a label"
    if data.known.all():
        return "every pair has a label: the judge has nothing to add"
    if alone.clusters < FEWEST:
        return f"labels on fewer than {FEWEST} instructions: the judge's bias cannot be told from chance"
    return ""


@dataclass(frozen=True, slots=True)
class _Tuned:
    """The estimate and what its interval is made of: what the judge misses on the labelled, and its rate on all.

    The rate is that of what is rarer, a win or a loss (`turned`), and so are all parts: Y - lambda f is then 0 for
    most pairs, and what is not 0 can be counted. `missed` is the mean of what is above 0, `made_up` of what is
    below it, in units of lambda; `link` is the correlation of their difference with the judge's rate.
    """

    rate: float
    turned: bool
    tuning: float
    missed: Moments
    made_up: Moments
    together: float
    judge: tuple[float, float]  # how far the interval of its rate reaches down and up
    link: float

    @property
    def value(self) -> float:
        """The estimate."""
        return 1 - self.rate if self.turned else self.rate

    def interval(self, level: float, more: float = 1.0) -> tuple[float, float]:
        """The interval, with so many times as many labels."""
        missed, made_up = _grown(self.missed, more), _grown(self.made_up, more)
        down, up = reaches(missed, made_up, self.together / more, level, _guarded, self.tuning)
        link = max(-1.0, min(1.0, self.link * math.sqrt(more)))
        low = max(0.0, self.rate - mover(down, self.tuning * self.judge[0], -link))
        high = min(1.0, self.rate + mover(up, self.tuning * self.judge[1], -link))
        return (1 - high, 1 - low) if self.turned else (low, high)


def _grown(m: Moments, more: float) -> Moments:
    shape = m.shape
    if more == 1.0:
        return m
    grown = replace(
        shape, clusters=round(shape.clusters * more), kish=shape.kish * more, freedom=shape.freedom * more
    )
    return replace(m, variance=m.variance / more, shape=grown)


def _guarded(m: Moments, level: float) -> tuple[float, float]:
    """The interval of a share; some values could be 1 and have gone unseen, however small those seen are."""
    low, high = share_interval(m, level)
    unseen = 1 - ((1 - level) / 2) ** (1 / m.shape.kish)
    return low, max(high, m.mean * (1 - unseen) + unseen)


def _tuned(data: _Data, judge: Rate) -> _Tuned:
    count = int(data.place.max()) + 1
    every, seen = (
        weigh(data.place, data.wanted, count),
        weigh(data.place[data.known], data.drawn[data.known], count),
    )
    turned = _turn(seen.mean(data.y[data.known]), every.mean(data.f))
    y, f = (1 - data.y, 1 - data.f) if turned else (data.y, data.f)
    return _estimate(y[data.known], f[data.known], f, every, seen, _reach_of(judge, turned), turned)


def _turn(of_labels: float, of_judge: float) -> bool:
    """Whether losses are rarer than wins; where labels are even, the judge says."""
    return of_labels > 0.5 if abs(of_labels - 0.5) > 1e-9 else of_judge > 0.5


def _reach_of(judge: Rate, turned: bool) -> tuple[float, float]:
    if judge.value is None or judge.low is None or judge.high is None:  # there is at least one verdict
        return 0.0, 0.0
    down, up = judge.value - judge.low, judge.high - judge.value
    return (up, down) if turned else (down, up)


def _estimate(
    y: Floats, f: Floats, all_f: Floats, every: Weighed, seen: Weighed, judge: tuple[float, float], turned: bool
) -> _Tuned:
    mean_y, mean_f, rate_f = seen.mean(y), seen.mean(f), every.mean(all_f)
    of_y, of_f, of_all = seen.adds(y, mean_y), seen.adds(f, mean_f), every.adds(all_f, rate_f)
    step = of_f - of_all
    spread = ordered_sum(step**2)
    tuning = min(1.0, max(0.0, round(ordered_sum(of_y * step) / spread, 12))) if spread > _NOTHING else 0.0
    gap = y - tuning * f
    missed, made_up = np.maximum(gap, 0.0), np.maximum(-gap, 0.0) / (tuning or 1.0)
    plus, minus = (_after_tuning(seen.moments(x), tuning) for x in (missed, made_up))
    together = seen.covariance(seen.adds(missed, plus.mean), seen.adds(made_up, minus.mean))
    return _Tuned(
        min(1.0, max(0.0, mean_y + tuning * (rate_f - mean_f))),
        turned,
        tuning,
        plus,
        minus,
        together,
        judge,
        _link(of_y - tuning * of_f, of_all),
    )


def _after_tuning(m: Moments, tuning: float) -> Moments:
    """A tuned lambda has made the variance look smaller than it is: one degree of freedom is gone."""
    if not 0 < tuning < 1:
        return m
    shape = m.shape
    fewer = replace(shape, freedom=max(shape.freedom - 1, 1.0))
    return replace(m, variance=m.variance * shape.kish / max(shape.kish - 1, 1.0), shape=fewer)


def _link(one: Floats, other: Floats) -> float:
    spread = ordered_sum(one**2) * ordered_sum(other**2)
    return ordered_sum(one * other) / math.sqrt(spread) if spread > 0 else 0.0


def labels_needed(
    labels: ArrayLike,
    verdicts: ArrayLike,
    clusters: ArrayLike | None = None,
    *,
    width: float,
    weights: Weights = None,
    weighting: Weighting = "pairs",
    level: float = 0.95,
) -> LabelsNeeded | None:
    """How many labels would bring the interval to this width, if more of them are like those at hand.

    What the judge misses is taken from the labelled pairs, and the number is found by bisection; where the labels
    alone are narrower, their width falls with the root of their number. None where there is no such rate.

    >>> rng = np.random.default_rng(1)
    >>> truth = rng.random(5000) < 0.6
    >>> verdicts = np.where(rng.random(5000) < 0.9, truth, ~truth)
    >>> needed = labels_needed(np.where(np.arange(5000) < 100, truth, np.nan), verdicts, width=0.1)
    >>> 130 < needed.labelled < 220, needed.more == needed.labelled - 100
    (True, True)
    """
    data = _Data.of(labels, verdicts, clusters, weights, weighting)
    alone = data.alone(level)
    if _obstacle(data, alone):
        return None
    tuned = _tuned(data, mean_rate(data.f, data.place, level=level, weighting=weighting))
    here = int(data.known.sum())

    def wide(labelled: int) -> float:
        low, high = tuned.interval(level, labelled / here)
        return min(high - low, _wide(alone) * math.sqrt(here / labelled))

    low, high = here, len(data.y)
    best = wide(high)
    if best > width:
        return LabelsNeeded(width, None, None, best)
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if wide(middle) <= width else (middle + 1, high)
    return LabelsNeeded(width, low, low - here, best)
