"""Many models ranked by pairwise comparisons: strengths, intervals, and who cannot be told apart.

The model is Bradley and Terry's with Davidson's ties (davidson.py), fitted by maximum likelihood to sums over pairs
of models. Intervals come from the jackknife over clusters (jackknife.py). Models are grouped by tests of all their
differences at once (differences.py, groups.py). Where the comparisons do not link all models, no number is made up
(graph.py, parts.py).
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from evenhand.core.stats.clusters import Weighting
from evenhand.core.stats.comparisons import Bools, Comparisons, Floats, Ints, gather, matrices
from evenhand.core.stats.differences import Differences, all_differences, t_quantiles
from evenhand.core.stats.graph import with_wins
from evenhand.core.stats.groups import letters, rank_ranges
from evenhand.core.stats.multiple import holm
from evenhand.core.stats.parts import Parts, anchored, split
from evenhand.core.stats.separated_models import Separated, separated

Scale = Literal["log-odds", "elo", "arena"]
Place = Literal["above", "linked", "below", "beside"]
METHOD = (
    "Bradley-Terry with ties (Davidson 1970), cluster jackknife (CR3), t intervals, Holm;"
    " separated models: Firth's penalised likelihood, likelihood-ratio tests"
)
ARENA_METHOD = METHOD.replace("with ties (Davidson 1970)", "with ties as half wins")
# On Elo's scale a lead of 400 means ten wins for each loss; the average model, or the anchor, stands at 1000.
_FACTOR: Mapping[Scale, float] = {"log-odds": 1.0, "elo": 400 / math.log(10), "arena": 400 / math.log(10)}
_ZERO: Mapping[Scale, float] = {"log-odds": 0.0, "elo": 1000.0, "arena": 1000.0}
_FEW = 10
_NO_SPREAD = 1e-12  # a variance that is 0 but for rounding: where all is tied, nothing shows how sure a strength is


_Intervals = tuple[Floats, Floats, Floats, Floats]


@dataclass(frozen=True, slots=True)
class Standing:
    """One model: its strength and interval, the ranks it may have, the letters of its groups, and its record.

    `place` is where the model stands to the main part: linked with it, above it (never lost to it), below it (never
    won), or beside it, unlinked, as all are where nobody beat anybody. Above and below, strength and interval are
    those of `separated_models.py`, and there is no standard error; beside, there is no strength.
    """

    model: str
    strength: float | None
    low: float | None
    high: float | None
    error: float | None
    best_rank: int
    worst_rank: int
    group: str
    place: Place
    n: int
    wins: float
    losses: float
    ties: float
    clusters: int
    invalid: int


@dataclass(frozen=True, slots=True)
class Contrast:
    """Two models: by how much the first is stronger, its own 95% interval, and p-values alone and among all."""

    model_1: str
    model_2: str
    difference: float | None
    low: float | None
    high: float | None
    p: float
    p_holm: float


@dataclass(frozen=True, slots=True)
class Ranking:
    """Models, best first, with how they came about.

    `rates[i][j]` is the share of comparisons that model i won against model j, a tie counting one half; `counts`
    are those comparisons. `parts` are the sets of models that can be ranked among themselves.
    """

    standings: tuple[Standing, ...]
    contrasts: tuple[Contrast, ...]
    rates: tuple[tuple[float | None, ...], ...]
    counts: tuple[tuple[int, ...], ...]
    parts: tuple[tuple[str, ...], ...]
    tie_parameter: float | None
    n: int
    clusters: int
    invalid: int
    warnings: tuple[str, ...]
    scale: Scale = "log-odds"
    anchor: str | None = None
    level: float = 0.95
    steps: int = 0
    method: str = METHOD
    weighting: Weighting = "pairs"  # what weighs the same in strengths and differences

    @property
    def models(self) -> tuple[str, ...]:
        """The names, best first."""
        return tuple(standing.model for standing in self.standings)


def rank_models(
    model_1: Sequence[str],
    model_2: Sequence[str],
    outcomes: Sequence[str | None] | Sequence[Sequence[float]] | Floats,
    clusters: Sequence[Hashable] | None = None,
    *,
    scale: Scale = "log-odds",
    anchor: str | None = None,
    level: float = 0.95,
    weighting: Weighting = "pairs",
) -> Ranking:
    """Rank models by comparisons: for each the two models, what came out, and the cluster that it belongs to.

    An outcome is "1", "2", "tie", or None where it is invalid; or three weights (1, 2, tie) that sum to one, NaN
    where it is invalid. Invalid ones are counted and used for nothing else. Without clusters each comparison is its
    own. Strengths are log-odds against the average model of the main part, or against the anchor.

    >>> games = [("a", "b", "1")] * 3 + [("a", "b", "2")] + [("b", "c", "1")] * 3 + [("b", "c", "2")]
    >>> ranking = rank_models(*zip(*games))
    >>> ranking.models, round(ranking.standings[0].strength, 3)
    (('a', 'b', 'c'), 1.099)
    """
    data = gather(model_1, model_2, outcomes, clusters)
    return rank(data, scale=scale, anchor=anchor, level=level, weighting=weighting)


def rank(
    data: Comparisons,
    *,
    scale: Scale = "log-odds",
    anchor: str | None = None,
    level: float = 0.95,
    weighting: Weighting = "pairs",
) -> Ranking:
    """Rank models by comparisons that are in numbers already.

    The scale "arena" is Chatbot Arena's: Bradley and Terry's model without a tie parameter, a tie being half a win
    of both, on Elo's scale (Chiang et al. 2024, "Chatbot Arena", arXiv:2403.04132, and its published notebooks).
    With the weighting "instructions" each cluster weighs the same in strengths and their errors, however many
    comparisons it has. Records and win matrix count comparisons, and results for separated models rest on their
    number: there a cluster weighs no more than one game of a model anyway.
    """
    if not data.counts.any():
        raise ValueError("there are no valid comparisons")
    given = data
    if scale == "arena":
        data = _with_half_wins(data)
    parts = split(data if weighting == "pairs" else replace(data, rows=data.rows.with_equal_clusters()))
    place = _anchor_place(data, parts, anchor)
    if place is not None:
        parts = anchored(parts, place)
    apart = separated(data, parts, place, level)
    strengths = _all_strengths(parts, apart)
    differences = all_differences(data, parts, strengths)
    order = _order(data, parts, strengths)
    p_holm = _corrected(differences.p)
    above = ((p_holm <= 1 - level) & _higher(parts, differences))[np.ix_(order, order)]
    wins, ties = matrices(data.rows, data.size)
    log_tie = parts.first.log_tie
    return Ranking(
        standings=tuple(_standings(given, parts, order, above, _intervals(parts, apart, place, level), scale)),
        contrasts=tuple(_contrasts(data, order, differences, p_holm, level, scale)),
        rates=_rates((wins + ties / 2)[np.ix_(order, order)], data.counts[np.ix_(order, order)]),
        counts=tuple(tuple(map(int, line)) for line in data.counts[np.ix_(order, order)]),
        parts=_named_parts(data, parts, order),
        tie_parameter=None if log_tie is None else math.exp(log_tie),
        n=int(data.counts.sum()) // 2,
        clusters=data.all_clusters,
        invalid=int(data.invalid.sum()) // 2,
        warnings=tuple(_warnings(given, parts, order)),
        scale=scale,
        anchor=anchor,
        level=level,
        steps=parts.first.steps,
        method=ARENA_METHOD if scale == "arena" else METHOD,
        weighting=weighting,
    )


def _with_half_wins(data: Comparisons) -> Comparisons:
    """Ties as half wins, but for models that met only in ties: they are as unlinked as on every other scale."""
    decided = with_wins(*matrices(data.rows, data.size))
    return replace(data, rows=data.rows.with_half_wins(decided[data.rows.one]))


def _anchor_place(data: Comparisons, parts: Parts, anchor: str | None) -> int | None:
    if anchor is None:
        return None
    if anchor not in data.models:
        raise ValueError(f"there is no model {anchor!r} to anchor the scale")
    place = data.models.index(anchor)
    if parts.labels[place] != parts.main:
        raise ValueError(
            f"the model {anchor!r} is not linked with the others both ways and cannot anchor the scale"
        )
    return place


def _all_strengths(parts: Parts, apart: Separated) -> Floats:
    """The strengths of all models that have one; NaN for the others."""
    found = apart.strength.copy()
    if len(parts.first.members) > 1:
        found[parts.first.members] = parts.first.strengths
    return found


def _place(parts: Parts, model: int) -> Place:
    part = parts.labels[model]
    if part == parts.main:
        alone = len(parts.first.members) < 2 and not (parts.over[part] | parts.over[:, part]).any()
        return "beside" if alone else "linked"
    return "above" if parts.over[part, parts.main] else "below" if parts.over[parts.main, part] else "beside"


def _order(data: Comparisons, parts: Parts, strengths: Floats) -> Ints:
    """Models best first; those without a strength stand behind, by their parts."""
    wins, ties = matrices(data.rows, data.size)
    rate = (wins + ties / 2).sum(axis=1) / np.maximum(data.counts.sum(axis=1), 1)
    reached = parts.over @ np.bincount(parts.labels, minlength=len(parts.each))
    inner = parts.spread("strengths")

    def key(model: int) -> tuple[float, ...]:
        part, known = parts.labels[model], math.isfinite(strengths[model])
        stands = (0, 0, 0) if known else (1, -reached[part], part)
        strength = strengths[model] if known else inner[model]
        # Strengths that differ only by rounding are equal: then the names decide, not the machine.
        return *stands, -round(float(strength), 10), -round(float(rate[model]), 10), model

    return np.array(sorted(range(data.size), key=key), dtype=np.int64)


def _corrected(p: Floats) -> Floats:
    upper = np.triu_indices(len(p), 1)
    found = np.ones_like(p)
    found[upper] = holm(p[upper])
    return np.minimum(found, found.T)


def _higher(parts: Parts, differences: Differences) -> Bools:
    """Which of two models is the stronger one, if they are told apart."""
    over = parts.over[parts.labels][:, parts.labels]
    return np.where(over | over.T, over, differences.value > 0).astype(bool)


def _standings(
    data: Comparisons, parts: Parts, order: Ints, above: Bools, intervals: _Intervals, scale: Scale
) -> Iterator[Standing]:
    wins, ties = matrices(data.rows, data.size)
    groups, (best, worst) = letters(above), rank_ranges(above)
    strengths, lows, highs, errors = intervals
    zero, factor = _ZERO[scale], _FACTOR[scale]
    for i, model in enumerate(order):
        yield Standing(
            model=data.models[model],
            strength=_finite(zero + factor * strengths[model]),
            low=_finite(zero + factor * lows[model]),
            high=_finite(zero + factor * highs[model]),
            error=_finite(factor * errors[model]),
            best_rank=best[i],
            worst_rank=worst[i],
            group=groups[i],
            place=_place(parts, model),
            n=int(data.counts[model].sum()),
            wins=float(wins[model].sum()),
            losses=float(wins[:, model].sum()),
            ties=float(ties[model].sum()),
            clusters=int(data.clusters[model]),
            invalid=int(data.invalid[model].sum()),
        )


def _finite(number: float) -> float | None:
    return float(number) if math.isfinite(number) else None


def _intervals(parts: Parts, apart: Separated, anchor: int | None, level: float) -> _Intervals:
    """Strength, both ends of its interval, and its standard error, by model; NaN for what cannot be known."""
    strength, low, high = apart.strength.copy(), apart.low.copy(), apart.high.copy()
    error = np.full(len(strength), np.nan)
    main = parts.first
    if len(main.members) > 1:
        freedom = np.asarray(main.clusters - 1.0, dtype=np.float64)
        strength[main.members] = main.strengths
        variance = np.diag(main.covariance)
        unseen = main.hanging | (variance < _NO_SPREAD)
        if anchor is not None:
            at = main.members == anchor
            freedom = np.minimum(freedom, freedom[at])
            unseen |= main.hanging[at] | at  # the anchor is where it was put
        error[main.members] = np.where(unseen, np.nan, np.sqrt(np.maximum(variance, 0.0)))
        half = t_quantiles(freedom, level) * error[main.members]
        low[main.members], high[main.members] = main.strengths - half, main.strengths + half
    return strength, low, high, error


def _contrasts(
    data: Comparisons, order: Ints, differences: Differences, p_holm: Floats, level: float, scale: Scale
) -> Iterator[Contrast]:
    lines, columns = np.triu_indices(data.size, 1)
    first, second = order[lines], order[columns]
    value = _FACTOR[scale] * differences.value[first, second]
    half = _FACTOR[scale] * differences.error[first, second]
    half *= t_quantiles(differences.freedom[first, second], level)
    for i, j, middle, reach in zip(first, second, value, half, strict=True):
        yield Contrast(
            data.models[i],
            data.models[j],
            _finite(middle),
            _finite(middle - reach),
            _finite(middle + reach),
            float(differences.p[i, j]),
            float(p_holm[i, j]),
        )


def _rates(won: Floats, met: Ints) -> tuple[tuple[float | None, ...], ...]:
    return tuple(
        tuple(float(score / n) if n else None for score, n in zip(*lines, strict=True))
        for lines in zip(won, met, strict=True)
    )


def _named_parts(data: Comparisons, parts: Parts, order: Ints) -> tuple[tuple[str, ...], ...]:
    found: dict[int, list[str]] = {}
    for model in order:
        found.setdefault(int(parts.labels[model]), []).append(data.models[model])
    return tuple(tuple(names) for names in found.values())


_AMONG = {"above": " except to each other", "below": " except against each other"}  # of several
_WORDS: Mapping[Place, str] = {
    "above": "never lost{}: how far above the others is a guess (Firth's), as is the interval's upper end",
    "below": "never won{}: how far below the others is a guess (Firth's), as is the interval's lower end",
    "beside": "not linked with the others by wins and losses: cannot be ranked among them",
}


def _warnings(data: Comparisons, parts: Parts, order: Ints) -> Iterator[str]:
    """What a reader must know about these very numbers."""
    main = parts.first
    if not (data.rows.wins_1.any() or data.rows.wins_2.any()):
        yield "every comparison is a tie: nothing puts one model above another"
        return
    if len(main.members) < 2:
        yield (
            "no two models have each beaten the other, directly or through others: all strengths are guesses"
            " (Firth's). Judge more pairs"
        )
    for place, words in _WORDS.items():
        those = [data.models[model] for model in order if _place(parts, model) == place]
        if those:
            yield f"{_listed(those)}: {words.format(_AMONG.get(place, '') if len(those) > 1 else '')}"
    hanging = [data.models[model] for model in main.members[main.hanging]]
    if hanging:
        yield f"{_listed(hanging)}: linked with the others by one instruction alone, so there is no interval"
    few = [data.models[model] for model in main.members[~main.hanging & (main.clusters < _FEW)]]
    if few and len(main.members) > 1:
        yield f"{_listed(few)}: fewer than {_FEW} instructions, so the intervals are wide"


def _listed(names: Iterable[str], most: int = 8) -> str:
    """Names in a sentence; only the first few of many.

    >>> _listed(["a", "b", "c"], 2)
    'a, b and 1 more'
    """
    every = list(names)
    more = f" and {len(every) - most} more" if len(every) > most else ""
    return ", ".join(every[:most]) + more
