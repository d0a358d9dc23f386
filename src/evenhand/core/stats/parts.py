"""Comparisons split into parts within which strengths can be estimated, each part fitted by itself."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from evenhand.core.stats import davidson
from evenhand.core.stats.comparisons import Bools, Comparisons, Floats, Ints, clusters_met, matrices
from evenhand.core.stats.graph import finite_parts, firm_parts, reach
from evenhand.core.stats.jackknife import covariance


@dataclass(frozen=True, slots=True)
class Part:
    """Models whose strengths can be estimated relative to each other.

    `members` are their places. Strengths are against the mean of those that do not hang on a single cluster, or of
    all if all do: the errors of the others cannot be seen, and would otherwise be in everybody's zero. `firm`
    numbers sets of models that stay linked whichever cluster is left out: only within one can errors be seen.
    """

    members: Ints
    strengths: Floats
    covariance: Floats
    firm: Ints
    hanging: Bools
    clusters: Ints
    log_tie: float | None = None
    steps: int = 0


@dataclass(frozen=True, slots=True)
class Parts:
    """All parts: `labels` says which a model is in, `over[a, b]` that part a stands above part b.

    `main` is the part with the most models; among equals one that stands above or below another, then the one with
    the most comparisons, then the first by name.
    """

    labels: Ints
    each: tuple[Part, ...]
    main: int
    over: Bools

    @property
    def first(self) -> Part:
        """The main part."""
        return self.each[self.main]

    def spread(self, name: str) -> Floats:
        """A field of all parts, by model."""
        found = np.zeros(len(self.labels))
        for part in self.each:
            found[part.members] = getattr(part, name)
        return found


def split(data: Comparisons) -> Parts:
    """Take comparisons apart and fit each part."""
    wins, ties = matrices(data.rows, data.size)
    labels = finite_parts(wins, ties)
    count = int(labels.max(initial=-1)) + 1
    each = tuple(fit_part(data, np.flatnonzero(labels == label)) for label in range(count))
    met, over = data.counts.sum(axis=1), _over(wins > 0, labels, count)
    related = np.asarray((over | over.T).any(axis=1))
    sizes = [
        (len(part.members), bool(related[number]), int(met[part.members].sum()), -number)
        for number, part in enumerate(each)
    ]
    return Parts(labels, each, -max(sizes)[-1], over)


def _over(won: Bools, labels: Ints, count: int) -> Bools:
    """Which part stands above which, directly or through others; ties alone put nobody above."""
    beat = np.zeros((count, count), dtype=bool)
    one, two = np.nonzero(won)
    beat[labels[one], labels[two]] = True
    np.fill_diagonal(beat, val=False)
    above = reach(beat)
    return above & ~above.T


def fit_part(data: Comparisons, members: Ints) -> Part:
    """Strengths within one part and their covariance."""
    size = len(members)
    if size < 2:
        nothing = np.zeros(size, dtype=np.int64)
        return Part(members, np.zeros(size), np.zeros((size, size)), nothing, nothing > 0, nothing)
    rows = data.rows.within(members, data.size)
    fit = davidson.fit(*matrices(rows, size))
    firm, bridges = firm_parts(rows.one, rows.two, rows.cluster, size)
    core = firm == np.argmax(np.bincount(firm))
    hanging = ~core | (core.sum() < 2)
    spread = covariance(rows, fit, bridges)[:size, :size]
    part = Part(members, fit.strengths, spread, firm, hanging, clusters_met(rows, size), fit.log_tie, fit.steps)
    zero = hanging if hanging.all() else ~hanging
    return centred(part, zero / zero.sum())


def centred(part: Part, weights: Floats) -> Part:
    """The part with strengths against a weighted mean of them, and the covariance of these."""
    centre = np.eye(len(weights)) - weights[None, :]
    strengths = part.strengths - weights @ part.strengths
    return replace(part, strengths=strengths, covariance=centre @ part.covariance @ centre.T)


def anchored(parts: Parts, model: int) -> Parts:
    """The same with the strengths of the main part against one model."""
    main = centred(parts.first, (parts.first.members == model).astype(np.float64))
    each = tuple(main if number == parts.main else part for number, part in enumerate(parts.each))
    return replace(parts, each=each)
