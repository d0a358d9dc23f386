"""Differences between all pairs of models: within a part by Student's t, across parts by likelihood."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from evenhand.core.stats.comparisons import Comparisons, Floats, Ints
from evenhand.core.stats.parts import Part, Parts
from evenhand.core.stats.separated_models import decided_wins, equal_p


@dataclass(frozen=True, slots=True)
class Differences:
    """For all pairs of models: difference, error (NaN: not known), degrees of freedom, p-value of no difference."""

    value: Floats
    error: Floats
    freedom: Floats
    p: Floats


def all_differences(data: Comparisons, parts: Parts, strengths: Floats | None = None) -> Differences:
    """Differences of all pairs of models; across parts by the strengths (NaN: none), where these are given."""
    shape = (data.size, data.size)
    value, error, freedom, p = np.full(shape, np.nan), np.full(shape, np.nan), np.zeros(shape), np.ones(shape)
    if strengths is not None:
        value = strengths[:, None] - strengths[None, :]
    for part in parts.each:
        inner = np.ix_(part.members, part.members)
        value[inner], error[inner], freedom[inner], p[inner] = _within(part)
    one, two = _across(parts, value)
    if len(one):
        p[one, two] = equal_p(decided_wins(data.rows, parts.labels), one, two)
    return Differences(value, error, freedom, np.minimum(p, p.T))


def _across(parts: Parts, value: Floats) -> tuple[Ints, Ints]:
    """Pairs of models in different parts of which it is known who is the stronger one, if one is."""
    over = parts.over[parts.labels][:, parts.labels]
    apart = parts.labels[:, None] != parts.labels[None, :]
    one, two = np.nonzero(np.triu(apart & (over | over.T | np.isfinite(value)), 1))
    return one, two


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


def t_quantiles(freedom: Floats, level: float) -> Floats:
    """Student's t for a two-sided interval; NaN without a degree of freedom.

    >>> t_quantiles(np.array([0.0, 1.0, 1e9]), 0.95).round(2).tolist()
    [nan, 12.71, 1.96]
    """
    from scipy.special import stdtrit

    return np.asarray(np.where(freedom > 0, stdtrit(np.maximum(freedom, 1.0), (1 + level) / 2), np.nan))
