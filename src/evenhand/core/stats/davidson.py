"""Bradley and Terry's model with ties, as Davidson made it: the likelihood, its maximum, its curvature.

Models i and j have strengths s on a log scale. With d = s_i - s_j and a tie parameter v >= 0,

    i wins : j wins : tie  =  exp(d / 2) : exp(-d / 2) : v

so that among decided comparisons i wins exp(d) times for each time that j does. Davidson (1970), "On extending the
Bradley-Terry model to accommodate ties in paired comparison experiments", JASA 65, 317-328. In s and log v this is
an exponential family: the log-likelihood is concave, and what the data say is in the sums of wins and of ties.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from evenhand.core.stats.comparisons import Floats

_MOST_STEPS = 100
_STILL = 1e-11


class Odds(NamedTuple):
    """What the model expects of comparisons: by how much the first is likelier to win, and how likely a tie is."""

    lead: Floats
    tie: Floats


class Curvature(NamedTuple):
    """Fisher information of one comparison in the difference of strengths and in the log of the tie parameter."""

    strength: Floats
    tie: Floats
    both: Floats


@dataclass(frozen=True, slots=True)
class DavidsonFit:
    """Strengths that sum to zero, the log of the tie parameter (None: there are no ties), and the steps it took."""

    strengths: Floats
    log_tie: float | None
    steps: int
    loglik: float


def expect(difference: Floats, log_tie: float | None) -> Odds:
    """What the model expects where strengths differ by so much.

    >>> odds = expect(np.array([0.0, 100.0]), 0.0)
    >>> odds.tie.round(3).tolist(), odds.lead.round(3).tolist()
    ([0.333, 0.0], [0.0, 1.0])
    """
    half = np.abs(difference) / 2
    top = half if log_tie is None else np.maximum(half, log_tie)
    better, worse = np.exp(half - top), np.exp(-half - top)
    tie = np.zeros_like(half) if log_tie is None else np.exp(log_tie - top)
    total = better + worse + tie
    return Odds(np.sign(difference) * (better - worse) / total, tie / total)


def curvature(odds: Odds) -> Curvature:
    """The covariance of the sufficient statistics of one comparison (Davidson 1970, section 3)."""
    lead, tie = odds
    return Curvature((1 - tie - lead * lead) / 4, tie * (1 - tie), -tie * lead / 2)


def fit(wins: Floats, ties: Floats) -> DavidsonFit:
    """The likeliest strengths, by Newton's method with steps halved where they would overshoot.

    `wins[i, j]` counts how often i beat j, `ties` is symmetric. The likelihood must have a finite maximum, see
    `finite_parts` in graph.py.

    >>> found = fit(np.array([[0.0, 3.0], [1.0, 0.0]]), np.zeros((2, 2)))
    >>> round(float(np.exp(found.strengths[0] - found.strengths[1])), 9)
    3.0
    """
    strengths = np.zeros(len(wins))
    tied, total = np.triu(ties).sum(), wins.sum() + np.triu(ties).sum()
    # For equal models, a share x of ties means v / (2 + v) = x.
    log_tie = float(np.log(2 * tied / (total - tied))) if tied > 0 else None
    now = loglik(wins, ties, strengths, log_tie)
    move, steps = np.array([np.inf]), 0
    while np.max(np.abs(move)) >= _STILL and steps < _MOST_STEPS:
        steps += 1
        gradient, information = slopes(wins, ties, strengths, log_tie)
        move = np.asarray(np.linalg.solve(information, gradient), dtype=np.float64)
        now, strengths, log_tie = _climb(wins, ties, strengths, log_tie, move, now)
    return DavidsonFit(strengths - strengths.mean(), log_tie, steps, now)


def _climb(
    wins: Floats, ties: Floats, strengths: Floats, log_tie: float | None, move: Floats, now: float
) -> tuple[float, Floats, float | None]:
    """As much of a step as does not lose likelihood."""
    for halving in range(40):
        part = move * 0.5**halving
        there = strengths + part[: len(strengths)]
        tie_there = None if log_tie is None else log_tie + float(part[-1])
        value = loglik(wins, ties, there, tie_there)
        if value >= now - 1e-12 * abs(now):
            return value, there, tie_there
    return now, strengths, log_tie


def loglik(wins: Floats, ties: Floats, strengths: Floats, log_tie: float | None) -> float:
    """The log-likelihood of strengths and tie parameter."""
    half = (strengths[:, None] - strengths[None, :]) / 2
    top = np.abs(half) if log_tie is None else np.maximum(np.abs(half), log_tie)
    weights = np.exp(half - top) + np.exp(-half - top) + (0 if log_tie is None else np.exp(log_tie - top))
    scale = top + np.log(weights)
    tied = 0.0 if log_tie is None else np.triu(ties * (log_tie - scale)).sum()
    return float((wins * (half - scale)).sum() + tied)


def slopes(wins: Floats, ties: Floats, strengths: Floats, log_tie: float | None) -> tuple[Floats, Floats]:
    """Gradient and information; the information is made regular along the shift of all strengths, which is free."""
    odds = expect(strengths[:, None] - strengths[None, :], log_tie)
    bend = curvature(odds)
    met = wins + wins.T + ties
    size = len(strengths)
    count = size + (log_tie is not None)
    gradient, information = np.zeros(count), np.zeros((count, count))
    gradient[:size] = ((wins - wins.T - met * odds.lead) / 2).sum(axis=1)
    inner = met * bend.strength
    information[:size, :size] = np.diag(inner.sum(axis=1)) - inner
    # Rows of the information sum to zero; a constant added to all cells fixes the mean and touches no difference.
    information[:size, :size] += np.trace(information) / size**2
    if log_tie is not None:
        gradient[size] = np.triu(ties - met * odds.tie).sum()
        information[size, size] = np.triu(met * bend.tie).sum()
        information[:size, size] = information[size, :size] = (met * bend.both).sum(axis=1)
    return gradient, information
