"""The covariance of fitted strengths when comparisons come in clusters: one cluster left out at a time.

Pairs that share an instruction are not independent: an instruction that one model happens to know decides all its
pairs. The jackknife leaves out one cluster after the other and looks how the strengths move,

    V = (G - 1) / G  *  sum over clusters g of (s without g - s)(s without g - s)'

and needs no assumption about what happens inside a cluster. Each move is one Newton step from the full fit, with
the information H that is left: (H - H_g)^-1 score_g. This is the cluster-robust variance CR3 of Bell and McCaffrey
(2002), "Bias reduction in standard errors for linear regression with multi-stage samples", Survey Methodology 28,
169-181; the one step is the linearised jackknife of MacKinnon, Nielsen and Webb (2023), "Fast and reliable
jackknife and bootstrap methods for cluster-robust inference", J. Applied Econometrics 38, 671-694. Unlike the
plain sandwich, in which scores are taken as they are, it does not come out too small where clusters are few.

    (H - H_g)^-1 score_g  =  H^-1 (1 - H_g H^-1)^-1 score_g

The middle part, the adjusted score, is what the three ways below compute: for small clusters in the space of their
rows, for large ones by iteration, for the few that hold much of all information directly.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from evenhand.core.stats.comparisons import Bools, ComparisonRows, Floats, Ints, matrices
from evenhand.core.stats.davidson import DavidsonFit, curvature, expect, slopes

_ROOM = 2_000_000  # numbers held at once for a batch of clusters
_SMALL = 4  # rows of a cluster that is solved in the space of its rows
_ROUNDS = 30
_CLOSE = 1e-11
_ALL = 1 - 1e-9  # a share of the information that a cluster holds alone


@dataclass(frozen=True, slots=True)
class _Terms:
    """What each row adds to the score and the information of its cluster, along strengths and the tie parameter."""

    one: Ints
    two: Ints
    score: Floats
    score_tie: Floats
    info: Floats
    info_tie: Floats
    info_both: Floats

    def of(self, rows: Ints | slice) -> _Terms:
        return _Terms(*(getattr(self, name)[rows] for name in self.__slots__))


def covariance(rows: ComparisonRows, fit: DavidsonFit, bridges: Ints) -> Floats:
    """The jackknife covariance of strengths that sum to zero; last, of the log of the tie parameter if any.

    A cluster among `bridges` links models that nothing else links. What it does to the difference between them
    cannot be seen by leaving it out, so such differences come out too small here and must not be used.
    """
    size = len(fit.strengths)
    information = slopes(*matrices(rows, size), fit.strengths, fit.log_tie)[1]
    inverse = np.asarray(np.linalg.inv(information), dtype=np.float64)
    clusters, first = np.unique(rows.cluster, return_index=True)
    ends = np.append(first, len(rows.cluster))
    meat = np.zeros_like(inverse)
    for scores in _adjusted(_terms(rows, fit), ends, np.isin(clusters, bridges), inverse, size):
        meat += scores.T @ scores
    return np.asarray(inverse @ meat @ inverse * (len(clusters) - 1) / len(clusters))


def _terms(rows: ComparisonRows, fit: DavidsonFit) -> _Terms:
    odds = expect(fit.strengths[rows.one] - fit.strengths[rows.two], fit.log_tie)
    bend, met = curvature(odds), rows.met
    score = (rows.wins_1 - rows.wins_2 - met * odds.lead) / 2
    score_tie = rows.ties - met * odds.tie
    return _Terms(rows.one, rows.two, score, score_tie, met * bend.strength, met * bend.tie, met * bend.both)


def _adjusted(terms: _Terms, ends: Ints, bridge: Bools, inverse: Floats, size: int) -> Iterator[Floats]:
    """Adjusted scores, a line for each cluster, in batches."""
    count = np.diff(ends)
    for cluster in np.flatnonzero(bridge):
        own = terms.of(slice(ends[cluster], ends[cluster + 1]))
        yield _bridge_score(*_dense(own, inverse, size), inverse)[None, :]
    for many in range(1, _SMALL + 1):
        members = np.flatnonzero((count == many) & ~bridge)
        step = max(1, _ROOM // max(4 * many * many, len(inverse)))
        for start in range(0, len(members), step):
            first = ends[members[start : start + step]]
            yield _small_scores(terms.of((first[:, None] + np.arange(many)).reshape(-1)), many, inverse, size)
    large = np.flatnonzero((count > _SMALL) & ~bridge)
    for members in np.array_split(large, 1 + len(large) * len(inverse) // _ROOM) if len(large) else ():
        home = np.repeat(np.arange(len(members)), count[members])
        yield _large_scores(terms.of(_ranges(ends[members], count[members])), home, len(members), inverse, size)


def _ranges(starts: Ints, counts: Ints) -> Ints:
    """The numbers of several ranges, one range after the other.

    >>> _ranges(np.array([0, 7]), np.array([2, 3])).tolist()
    [0, 1, 7, 8, 9]
    """
    skipped = starts - np.concatenate([[0], np.cumsum(counts)[:-1]])
    return np.asarray(np.arange(counts.sum()) + np.repeat(skipped, counts))


def _small_scores(terms: _Terms, many: int, inverse: Floats, size: int) -> Floats:
    """Clusters of the same small number of rows, each solved in the space of its rows.

    With X the rows' directions and L their information, H_g = X' L X and score_g = X' c, so that the adjusted score
    is X' (1 - L X H^-1 X')^-1 c.
    """
    has_tie = len(inverse) > size
    width = many * (1 + has_tie)
    one, two = terms.one.reshape(-1, many), terms.two.reshape(-1, many)
    inner = np.zeros((len(one), width, width))
    crossed = inverse[:, :size] if not has_tie else inverse
    inner[:, :many, :many] = sum(
        sign * crossed[a[:, :, None], b[:, None, :]]
        for a, b, sign in ((one, one, 1), (one, two, -1), (two, one, -1), (two, two, 1))
    )
    score = [terms.score.reshape(-1, many)]
    if has_tie:
        lean = inverse[one, size] - inverse[two, size]
        inner[:, :many, many:] = lean[:, :, None]
        inner[:, many:, :many] = lean[:, None, :]
        inner[:, many:, many:] = inverse[size, size]
        score.append(terms.score_tie.reshape(-1, many))
    solved = np.linalg.solve(np.eye(width) - _weigh(terms, inner, many), np.concatenate(score, axis=1)[:, :, None])
    found = np.asarray(solved[:, :, 0], dtype=np.float64)
    home = np.repeat(np.arange(len(one)), many)
    tie = found[:, many:].reshape(-1) if has_tie else None
    return _spread(terms, home, found[:, :many].reshape(-1), tie, len(one), len(inverse), size)


def _weigh(terms: _Terms, inner: Floats, many: int) -> Floats:
    """L times a matrix over rows, for each cluster; L is two by two in each row."""
    info, tie, both = (v.reshape(-1, many, 1) for v in (terms.info, terms.info_tie, terms.info_both))
    if inner.shape[1] == many:
        return np.asarray(info * inner)
    upper, lower = inner[:, :many], inner[:, many:]
    return np.concatenate([info * upper + both * lower, both * upper + tie * lower], axis=1)


def _spread(
    terms: _Terms, home: Ints, along: Floats, tie: Floats | None, count: int, width: int, size: int
) -> Floats:
    """X' times a vector over rows: a line for each cluster, a column for each parameter."""
    base = home * width
    found = np.bincount(base + terms.one, along, count * width) - np.bincount(
        base + terms.two, along, count * width
    )
    lines = np.asarray(found, dtype=np.float64).reshape(count, width)
    if tie is not None:
        lines[:, size] = np.bincount(home, tie, count)
    return lines


def _large_scores(terms: _Terms, home: Ints, count: int, inverse: Floats, size: int) -> Floats:
    """x = score + H_g H^-1 x, repeated for all clusters at once; those that do not converge are solved."""
    has_tie = len(inverse) > size
    width = len(inverse)
    score = _spread(terms, home, terms.score, terms.score_tie if has_tie else None, count, width, size)
    adjusted, moved = score, np.full(count, np.inf)
    scale = np.maximum(np.abs(score).max(axis=1), 1e-300)
    for _ in range(_ROUNDS):
        step = adjusted @ inverse
        lead = step[home, terms.one] - step[home, terms.two]
        tie = step[home, size] if has_tie else 0.0
        along = terms.info * lead + terms.info_both * tie
        along_tie = terms.info_both * lead + terms.info_tie * tie if has_tie else None
        fresh = score + _spread(terms, home, along, along_tie, count, width, size)
        moved, adjusted = np.abs(fresh - adjusted).max(axis=1) / scale, fresh
        if (moved < _CLOSE).all():
            return adjusted
    starts = np.searchsorted(home, np.arange(count + 1))
    for cluster in np.flatnonzero(moved >= _CLOSE):
        own_score, info = _dense(terms.of(slice(starts[cluster], starts[cluster + 1])), inverse, size)
        adjusted[cluster] = np.linalg.solve(np.eye(width) - info @ inverse, own_score)
    return adjusted


def _dense(terms: _Terms, inverse: Floats, size: int) -> tuple[Floats, Floats]:
    """Score and information of one cluster over all parameters."""
    width, has_tie = len(inverse), len(inverse) > size
    home = np.zeros(len(terms.one), dtype=np.int64)
    score = _spread(terms, home, terms.score, terms.score_tie if has_tie else None, 1, width, size)[0]
    info = np.zeros((width, width))
    for a, b, sign in (
        (terms.one, terms.one, 1),
        (terms.two, terms.two, 1),
        (terms.one, terms.two, -1),
        (terms.two, terms.one, -1),
    ):
        np.add.at(info, (a, b), sign * terms.info)
    if has_tie:
        info[size, size] = terms.info_tie.sum()
        lean = _spread(terms, home, terms.info_both, None, 1, width, size)[0, :size]
        info[:size, size] = info[size, :size] = lean
    return score, info


def _bridge_score(score: Floats, info: Floats, inverse: Floats) -> Floats:
    """The adjusted score where H - H_g is singular, along the directions in which it is not."""
    root = np.linalg.cholesky(inverse)
    share, ways = np.linalg.eigh(root.T @ info @ root)
    open_ways = share < _ALL
    factor = np.where(open_ways, 1 / np.where(open_ways, 1 - share, 1.0), 0.0)
    moved = ways @ (factor * (ways.T @ (root.T @ score)))
    return np.asarray(np.linalg.solve(root.T, moved))
