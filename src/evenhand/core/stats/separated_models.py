"""Models that never lost, or never won, against the rest: what can still be said of them, and how surely.

Where one set of models won every decided comparison with another, the likelihood rises without end as the two
drift apart: there is no finite estimate, and none of the usual errors (Albert and Anderson 1984, "On the existence
of maximum likelihood estimates in logistic regression models", Biometrika 71, 1-10). Three things remain.

*A test.* That two models are equally strong is the model in which they are one. With l for the largest
log-likelihood, all other strengths free both times, so that their noise is in it,

    D = l(all models) - l(the two as one)        p = 2 exp(-D)

For one binomial share this is Chernoff's bound on the exact test, and exact where all was won (p = 2 / 2^n); with
the chi-squared distribution in its place, far too many equal models would be told apart.

*A strength.* Firth's penalised likelihood (1993, "Bias reduction of maximum likelihood estimates", Biometrika 80,
27-38; Heinze and Schemper 2002, "A solution to the problem of separation in logistic regression", Statistics in
Medicine 21, 2409-2419), in which eight wins of eight stand for odds of 8.5 to 0.5.

*An interval.* On the side that the data bound, it ends where the likelihood and Firth's, all strengths free, have
both fallen by log(2 / (1 - level)); on the other side, where Firth's has, with the main models where they are.

All of it is over decided comparisons: given which are tied, these follow Bradley and Terry's model with the same
strengths. Comparisons of a model within one cluster may all be one piece of luck, so they weigh no more than one.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from evenhand.core.stats.clusters import places
from evenhand.core.stats.comparisons import Bools, ComparisonRows, Comparisons, Floats, Ints
from evenhand.core.stats.graph import linked_parts
from evenhand.core.stats.parts import Parts

_RIDGE = 1e-4  # keeps strengths finite that would grow without end; they stop about 9 from the others
_STILL = 1e-10
_MOST_STEPS = 80
_LONGEST = 2.0  # a step of a strength
_FLOOR = 1e-11  # information that is never zero, so that it has an inverse
_ROOM = 2_000_000  # numbers held at once for a batch of fits
_WORK = 5e9  # pairs of models times models cubed: about ten seconds
_EXACT = 1e-3  # of the end of an interval


@dataclass(frozen=True, slots=True)
class Separated:
    """Strengths with their intervals, by model; NaN for a main part of several models and for unlinked models.

    Zero is the main part's zero; where no two models make one, the mean of all that are linked.
    """

    strength: Floats
    low: Floats
    high: Floats


def decided_wins(rows: ComparisonRows, labels: Ints) -> Floats:
    """Wins by ordered pair of models, where what a model decided in one cluster weighs at most one.

    `labels` are the models' parts: what happened within parts and what happened across them are weighed apart.

    >>> rows = ComparisonRows(*(np.array(x) for x in ([0, 0], [1, 1], [0, 1], [4.0, 1.0], [1.0, 0.0], [0.0, 0.0])))
    >>> decided_wins(rows, np.array([0, 0])).tolist()
    [[0.0, 1.8], [0.2, 0.0]]
    """
    size, met = len(labels), rows.wins_1 + rows.wins_2
    home = 2 * places(rows.cluster) + (labels[rows.one] != labels[rows.two]) if len(met) else rows.cluster
    one, two = home * size + rows.one, home * size + rows.two
    count = (int(home.max(initial=0)) + 1) * size
    load = np.bincount(one, met, count) + np.bincount(two, met, count)
    weight = 1 / np.maximum(np.maximum(load[one], load[two]), 1.0)
    wins = np.zeros((size, size))
    np.add.at(wins, (rows.one, rows.two), rows.wins_1 * weight)
    np.add.at(wins, (rows.two, rows.one), rows.wins_2 * weight)
    return wins


# -- the likelihood, many fits at a time ----------------------------------------------------------------------


class Hold(NamedTuple):
    """A weighted sum of strengths that is held where it is put."""

    weights: Floats
    value: Floats


def fit_many(wins: Floats, start: Floats, hold: Hold | None = None) -> Floats:
    """The likeliest strengths for each of many win matrices, by Newton's method.

    >>> fit_many(np.array([[[0.0, 3.0], [1.0, 0.0]]]), np.zeros((1, 2))).round(2).tolist()
    [[0.55, -0.55]]
    """
    strengths = start.copy()
    met, won = wins + np.swapaxes(wins, 1, 2), wins.sum(axis=2)
    for _ in range(_MOST_STEPS):
        chance = _chances(strengths)
        gradient = won - (met * chance).sum(axis=2) - _RIDGE * strengths
        inverse: Floats = np.asarray(np.linalg.inv(_laplacians(met * chance * (1 - chance))), dtype=np.float64)
        move = _move(inverse, gradient, strengths, hold)
        strengths += move
        if np.abs(move).max(initial=0.0) < _STILL:
            break
    return strengths


def _move(inverse: Floats, gradient: Floats, at: Floats, hold: Hold | None) -> Floats:
    """Newton's step, kept short; with a hold, the best of those that end where it is put (Lagrange)."""
    move = np.asarray((inverse @ gradient[:, :, None])[:, :, 0])
    if hold is not None:
        along = (inverse @ hold.weights[:, :, None])[:, :, 0]
        missing = hold.value - (hold.weights * (at + move)).sum(axis=1)
        move += along * (missing / (hold.weights * along).sum(axis=1))[:, None]
    longest = np.abs(move).max(axis=1, keepdims=True, initial=0.0)
    return np.asarray(move * np.minimum(1.0, _LONGEST / np.maximum(longest, 1e-300)))


def _chances(strengths: Floats) -> Floats:
    """How likely each beats each other."""
    gap = strengths[:, :, None] - strengths[:, None, :]
    return np.asarray(0.5 + 0.5 * np.tanh(gap / 2))


def _laplacians(bend: Floats) -> Floats:
    found = -bend
    line = np.arange(bend.shape[1])
    found[:, line, line] += bend.sum(axis=2) + _RIDGE
    return found


def _logliks(wins: Floats, strengths: Floats) -> Floats:
    gap = strengths[:, :, None] - strengths[:, None, :]
    return np.asarray(-(wins * np.logaddexp(0.0, -gap)).sum(axis=(1, 2)))


def _suprema(wins: Floats, strengths: Floats) -> Floats:
    """The least upper bound of each likelihood: what is separated can be made as likely as one likes."""
    inside = np.empty(wins.shape, dtype=bool)
    for number, matrix in enumerate(wins):
        labels = linked_parts(matrix > 0)
        inside[number] = labels[:, None] == labels[None, :]
    return _logliks(np.where(inside, wins, 0.0), strengths)


# -- tests ----------------------------------------------------------------------------------------------------


def equal_p(wins: Floats, one: Ints, two: Ints, most: float = _WORK) -> Floats:
    """p-values of two models being equally strong, for many pairs of models, by wins of decided comparisons.

    Where that would take too long, only the pairs of models that may have the smallest are worked out, and the
    others have a 1.

    >>> wins = np.array([[0.0, 5.0], [0.0, 0.0]])
    >>> equal_p(wins, np.array([0]), np.array([1])).round(4).tolist()
    [0.0625]
    """
    size, found = len(wins), np.ones(len(one))
    free = fit_many(wins[None], np.zeros((1, size)))
    top = _suprema(wins[None], free)[0]
    chosen = np.arange(len(one))
    if len(one) * size**3 > most:
        chosen = np.argsort(_at_most(wins, free[0], one, two), kind="stable")[::-1][: int(most / size**3)]
    for part in np.array_split(chosen, 1 + len(chosen) * size**2 // _ROOM):
        found[part] = np.minimum(1.0, 2 * np.exp(_as_one(wins, one[part], two[part], free[0]) - top))
    return found


def _at_most(wins: Floats, strengths: Floats, one: Ints, two: Ints) -> Floats:
    """By how much likelihood falls at most if two are as one: by moving the first, or the second, to the other."""
    gap = strengths[:, None] - strengths[None, :]
    now = -(wins * np.logaddexp(0.0, -gap) + wins.T * np.logaddexp(0.0, gap)).sum(axis=1)

    def moved(model: int, to: Ints) -> Floats:
        lead = strengths[to][:, None] - strengths[None, :]
        there = wins[model] * np.logaddexp(0.0, -lead) + wins[:, model] * np.logaddexp(0.0, lead)
        rival = wins[model, to] + wins[to, model]
        wrong = there[np.arange(len(to)), to]
        return np.asarray(now[model] + there.sum(axis=1) - wrong + rival * math.log(2))

    falls = np.full(len(one), np.inf)
    for first, second in ((one, two), (two, one)):
        for model in np.unique(first):
            rows = np.flatnonzero(first == model)
            falls[rows] = np.minimum(falls[rows], moved(int(model), second[rows]))
    return falls


def _as_one(wins: Floats, one: Ints, two: Ints, start: Floats) -> Floats:
    """The largest log-likelihood with two models as one, for many pairs of models."""
    every = np.arange(len(one))
    merged = np.repeat(wins[None], len(one), axis=0)
    between = merged[every, one, two] + merged[every, two, one]
    merged[every, one] += merged[every, two]
    merged[every, two] = 0.0
    merged[every, :, one] += merged[every, :, two]
    merged[every, :, two] = 0.0
    merged[every, one, one] = 0.0
    begin = np.repeat(start[None], len(one), axis=0)
    begin[every, two] = 0.0
    found = fit_many(merged, begin)
    return _suprema(merged, found) - between * math.log(2)


# -- strengths ------------------------------------------------------------------------------------------------


def separated(data: Comparisons, parts: Parts, anchor: int | None, level: float) -> Separated:
    """Strengths and intervals of the models above and below the main part, and of a main part of one model."""
    found = Separated(*(np.full(data.size, np.nan) for _ in range(3)))
    main = parts.first.members
    above, below = parts.over[parts.labels, parts.main], parts.over[parts.main, parts.labels]
    known = np.concatenate([main, np.flatnonzero(above | below)])
    if len(known) == len(main):
        return found
    wins = decided_wins(data.rows, parts.labels)[np.ix_(known, known)]
    zero = _zero(parts, anchor, len(known))
    game, enough = _Penalised(wins, parts.first.strengths, zero), math.log(2 / (1 - level))
    found.strength[known] = game.value
    if (len(known) - len(main)) * len(known) ** 3 <= _WORK / 10:
        for ends, side, firm, loose in ((found.low, -1, above, below), (found.high, 1, below, above)):
            every = np.arange(len(known)) if len(main) == 1 else np.flatnonzero(loose[known])
            ends[known[every]] = game.ends(every, side, enough)
            if len(main) > 1:  # the data bound the other side
                those = np.flatnonzero(firm[known])
                ends[known[those]] = _bounded_ends(wins, zero, those, side, enough)
    found.low[:], found.high[:] = np.minimum(found.low, found.strength), np.maximum(found.high, found.strength)
    if len(main) > 1:
        found.strength[main] = np.nan
    return found


def _zero(parts: Parts, anchor: int | None, count: int) -> Floats:
    """Weights of the mean that strengths are measured from, over the main part and so many models in all."""
    main, zero = parts.first, np.zeros(count)
    size = len(main.members)
    if anchor is not None:
        zero[:size] = main.members == anchor
    elif size == 1:
        zero[:] = 1 / count
    else:
        firm = main.hanging if main.hanging.all() else ~main.hanging
        zero[:size] = firm / firm.sum()
    return zero


def _bounded_ends(wins: Floats, zero: Floats, models: Ints, side: int, enough: float) -> Floats:
    """The ends on the side that the data bound: by likelihood and by Firth's, all strengths free, the farther one.

    With few games for each strength the likelihood is too sure: it fits luck. The penalty takes that back
    (benchmarks/coverage_ranking.py, second table).
    """
    plain = _likelihood_ends(wins, zero, models, side, enough)
    every = _Penalised(wins, np.zeros(1), zero).ends(models, side, enough)
    return np.asarray(side * np.maximum(side * plain, side * every))


def _likelihood_ends(wins: Floats, zero: Floats, models: Ints, side: int, enough: float) -> Floats:
    """Where the likelihood, all other strengths free, has fallen by so much from its least upper bound."""
    free = fit_many(wins[None], np.zeros((1, len(wins))))
    top = _suprema(wins[None], free)[0]
    ways = np.eye(len(wins))[models] - zero
    many, at = np.repeat(wins[None], len(models), axis=0), np.repeat(free, len(models), axis=0)

    def fallen(value: Floats) -> Bools:
        at[:] = fit_many(many, at, Hold(ways, value))  # the next one begins where this one ended
        return np.asarray(top - _logliks(many, at) >= enough)

    return _edge(fallen, (ways * at).sum(axis=1), side)


def _edge(fallen: Callable[[Floats], Bools], start: Floats, side: int) -> Floats:
    """Where something that holds far out on one side begins to hold, for many at once."""
    near, far = start.copy(), start.copy()
    for reach in (1.0, 2.0, 4.0, 8.0, 16.0, 32.0):
        ahead = ~fallen(far)
        if not ahead.any():
            break
        near, far = np.where(ahead, far, near), np.where(ahead, far + side * reach, far)
    while np.abs(far - near).max(initial=0.0) > _EXACT:
        middle = (near + far) / 2
        gone = fallen(middle)
        near, far = np.where(gone, near, middle), np.where(gone, middle, far)
    return far


class _Penalised:
    """Firth's likelihood of the strengths that are not fixed, of which the first are."""

    def __init__(self, wins: Floats, fixed: Floats, zero: Floats) -> None:
        self.wins, self.met, self.zero = wins, wins + wins.T, zero
        self.fixed = np.asarray(fixed, dtype=np.float64)
        count = len(wins) - len(fixed)
        self.best = self._fit(np.zeros((1, count)) + np.mean(fixed))
        self.top = float(self._value(self.best)[0])

    @property
    def value(self) -> Floats:
        """All strengths, against the zero."""
        whole = self._whole(self.best)[0]
        return np.asarray(whole - self.zero @ whole)

    def ends(self, models: Ints, side: int, enough: float) -> Floats:
        """How far each of some strengths can go to one side before the likelihood has fallen by so much."""
        ways = np.eye(len(self.wins))[models] - self.zero
        fixed = len(self.fixed)
        put, at = ways[:, :fixed] @ self.fixed, np.repeat(self.best, len(models), axis=0)

        def fallen(value: Floats) -> Bools:
            at[:] = self._fit(at, Hold(ways[:, fixed:], value - put))
            return np.asarray(self.top - self._value(at) >= enough)

        return _edge(fallen, ways @ self._whole(self.best)[0], side)

    def _whole(self, free: Floats) -> Floats:
        return np.concatenate([np.repeat(self.fixed[None], len(free), axis=0), free], axis=1)

    def _inner(self, bend: Floats) -> Floats:
        """The information of the free strengths, from that of each two models."""
        fixed = len(self.fixed)
        inner = -bend[:, fixed:, fixed:]
        line = np.arange(inner.shape[1])
        inner[:, line, line] += bend.sum(axis=2)[:, fixed:] + _FLOOR
        return inner

    def _value(self, free: Floats) -> Floats:
        whole = self._whole(free)
        chance = _chances(whole)
        _, logs = np.linalg.slogdet(self._inner(self.met * chance * (1 - chance)))
        return np.asarray(_logliks(np.repeat(self.wins[None], len(free), axis=0), whole) + logs / 2)

    def _fit(self, start: Floats, hold: Hold | None = None) -> Floats:
        free, fixed = start.copy(), len(self.fixed)
        for _ in range(_MOST_STEPS):
            chance = _chances(self._whole(free))
            single = chance * (1 - chance)
            lever = self._leverage(self.met * single)
            score = (self.wins - self.met * chance + lever * (0.5 - chance)).sum(axis=2)[:, fixed:]
            # The penalty is as good as half a win and half a loss for each unit of leverage.
            inner: Floats = np.asarray(np.linalg.inv(self._inner((self.met + lever) * single)), dtype=np.float64)
            move = _move(inner, score, free, hold)
            free += move
            if np.abs(move).max(initial=0.0) < _STILL:
                break
        return free

    def _leverage(self, bend: Floats) -> Floats:
        """The leverage of each two models' comparisons: how far they decide the free strengths."""
        fixed, spread = len(self.fixed), np.zeros_like(bend)
        spread[:, fixed:, fixed:] = np.linalg.inv(self._inner(bend))
        line = np.diagonal(spread, axis1=1, axis2=2)
        return np.asarray(bend * (line[:, :, None] + line[:, None, :] - 2 * spread))
