"""Differences between all pairs of models: within a part by Student's t, across parts by how often nobody lost."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from evenhand.stats.clusters import places
from evenhand.stats.comparisons import Comparisons, Floats
from evenhand.stats.parts import Part, Parts


@dataclass(frozen=True, slots=True)
class Differences:
    """For all pairs of models: difference, error (NaN: not known), degrees of freedom, p-value of no difference."""

    value: Floats
    error: Floats
    freedom: Floats
    p: Floats


def all_differences(data: Comparisons, parts: Parts) -> Differences:
    """Differences of all pairs of models."""
    shape = (data.size, data.size)
    value, error, freedom, p = np.full(shape, np.nan), np.full(shape, np.nan), np.zeros(shape), np.ones(shape)
    for part in parts.each:
        inner = np.ix_(part.members, part.members)
        value[inner], error[inner], freedom[inner], p[inner] = _within(part)
    for upper, lower in np.argwhere(parts.over):
        p[np.ix_(parts.each[upper].members, parts.each[lower].members)] = _across(data, parts, upper, lower)
    _by_way_of_main(parts, p)
    return Differences(value, error, freedom, np.minimum(p, p.T))


def _within(part: Part) -> tuple[Floats, Floats, Floats, Floats]:
    from scipy.special import stdtr

    spread = np.diag(part.covariance)
    value = part.strengths[:, None] - part.strengths[None, :]
    error = np.sqrt(np.maximum(spread[:, None] + spread[None, :] - 2 * part.covariance, 0.0))
    freedom = np.minimum(part.clusters[:, None], part.clusters[None, :]) - 1.0
    known = (part.firm[:, None] == part.firm[None, :]) & (freedom > 0) & (error > 0)
    ratio = np.abs(value) / np.where(known, error, 1.0)
    p = np.where(known, 2 * stdtr(np.maximum(freedom, 1), -ratio), 1.0)
    return value, np.where(known, error, np.nan), freedom, p


def _across(data: Comparisons, parts: Parts, upper: int, lower: int) -> Floats:
    """p-values that a model of the upper part is as strong as one of the lower, which never won."""
    high, low = parts.each[upper], parts.each[lower]
    lead, weight = _leads(data, parts, upper, lower)
    if not len(lead):
        return np.ones((len(high.members), len(low.members)))
    shift = low.strengths[None, :] - high.strengths[:, None]
    logs = [[float(weight @ _log_win(lead + x)) for x in line] for line in shift]
    return np.asarray(np.minimum(1.0, 2 * np.exp(np.array(logs))))


def _leads(data: Comparisons, parts: Parts, upper: int, lower: int) -> tuple[Floats, Floats]:
    """Decided comparisons across two parts: the lead by the parts' own strengths, and a weight.

    Comparisons of one cluster may all be one piece of luck, so that a cluster weighs as much as one comparison.
    """
    rows = data.rows
    one, two = parts.labels[rows.one], parts.labels[rows.two]
    down = (one == upper) & (two == lower)
    met = (down | ((one == lower) & (two == upper))) & (rows.wins_1 + rows.wins_2 > 0)
    chosen, strength = rows.of(met), parts.spread("strengths")
    lead = np.where(down[met], 1, -1) * (strength[chosen.one] - strength[chosen.two])
    decided = chosen.wins_1 + chosen.wins_2
    home = places(chosen.cluster)
    return lead, decided / np.bincount(home, decided)[home] if len(decided) else decided


def _by_way_of_main(parts: Parts, p: Floats) -> None:
    """Models above and below the main part are also compared through each of its models.

    That one is above a third and the third above the other has the larger of the two p-values; that it holds for
    some of the m thirds, m times the smallest of these (Bonferroni).
    """
    middle = parts.first.members
    for upper in np.flatnonzero(parts.over[:, parts.main]):
        for lower in np.flatnonzero(parts.over[parts.main]):
            top, bottom = parts.each[upper].members, parts.each[lower].members
            steps = np.maximum(p[np.ix_(top, middle)][:, None, :], p[np.ix_(middle, bottom)].T[None, :, :])
            across = np.ix_(top, bottom)
            p[across] = np.minimum(p[across], len(middle) * steps.min(axis=2))


def bound(data: Comparisons, parts: Parts, model: int, level: float) -> float | None:
    """How strong a model that stands above the main part is at least, or at most if it stands below.

    Were it weaker than that, so many clusters without a loss would come in a share 1 - level of all cases: the
    bound of Clopper and Pearson (1934), Biometrika 26, 404-413, where all was won, with the opponents' strengths in
    the place of a common one.
    """
    part = int(parts.labels[model])
    above = bool(parts.over[part, parts.main])
    if not above and not parts.over[parts.main, part]:
        return None
    lead, weight = _leads(data, parts, *((part, parts.main) if above else (parts.main, part)))
    if not len(lead):
        return None
    low, high = -1e3, 1e3
    for _ in range(80):
        shift = (low + high) / 2
        low, high = (shift, high) if weight @ _log_win(lead + shift) < math.log(1 - level) else (low, shift)
    return float(parts.spread("strengths")[model] + (shift if above else -shift))


def _log_win(lead: Floats) -> Floats:
    """The log of the chance that one with this lead wins a decided comparison."""
    return np.asarray(-np.logaddexp(0.0, -lead))


def t_quantiles(freedom: Floats, level: float) -> Floats:
    """Student's t for a two-sided interval; NaN without a degree of freedom.

    >>> t_quantiles(np.array([0.0, 1.0, 1e9]), 0.95).round(2).tolist()
    [nan, 12.71, 1.96]
    """
    from scipy.special import stdtrit

    return np.asarray(np.where(freedom > 0, stdtrit(np.maximum(freedom, 1.0), (1 + level) / 2), np.nan))
