"""Which verdicts may be trusted: thresholds on the confidence of judges, chosen on labelled pairs.

The promise: of all pairs that the levels decide, at least `target` are decided as people would decide them,
with 95% confidence over the draw of the labelled pairs. Selective evaluation by fixed-sequence testing: Jung,
Brahman & Choi (2024), "Trust or Escalate: LLM judges with provable guarantees for human agreement", arXiv
2407.18370.

Thresholds. With z the log-odds of a level's confidence, level k decides a pair that came to it where z is above
its floor. A *path* is a sequence of floors for all levels, each deciding more than the one before. Along the
first paths level k has the floor t + o_k, where the offsets o say how much surer a cheap level has to be than
the next one, and t goes down; once all pairs are decided the last level takes what is left, and t goes down for
the others, which saves money. Another path begins there: the last level decides all, and the others take over
more and more. On the last ones one level decides alone.

The test. All levels are tested at once, by what they come to together. The labelled pairs that are decided are
a random sample of all pairs that are decided by the same floors, so that the number of disagreements among them
is binomial, and the exact test of Clopper & Pearson (1934) says whether a risk of more than 1 - target can be
ruled out. Floors lie at ranks of the labelled pairs, not at labels: given the pair at the floor, those above it
are still a random sample.

The sequence. Tests are made at ranks that depend on the number of labels alone, from the surest pairs
downwards, and end at the first that fails: nothing is paid for testing many floors. The error is kept where
floors below a bad one are bad, too, as with judges that err more often where they are less sure; docs/juries.md
has the argument, and what simulations show of judges that are not like that. Several paths are tried, each with
its share of the error (the union bound), and the one that decides most is taken.

Clusters. Pairs that were drawn one by one are independent draws, whatever their instructions. Where it is not
known how they were drawn, whole instructions may have been, and as many labels as instructions are counted at
the worst: the effective sample size of Kish (1965), in the exact test as Korn & Graubard (1998), "Confidence
intervals for proportions with small expected number of positive counts estimated from survey data", Survey
Methodology 24, 193-201.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from evenhand.core.stats.clustered import Array

CONFIDENCE = 0.95
# Shares of the labelled pairs at which tests are made; and by how much surer each level has to be than the next.
SHARES = tuple(step / 20 for step in range(6, 20))
TAKEN_OVER = tuple(step / 10 for step in range(1, 11))
STEPS = (0.0, 1.0, 2.0)
_CERTAIN = 1e-9  # a confidence of 1 is taken for one less this
NEVER, ALWAYS = (
    math.inf,
    -math.inf,
)  # the floors of a level that decides nothing, and of one that takes what is left
Floors = tuple[float, ...]


@dataclass(frozen=True, slots=True)
class Cascade:
    """Which level decides what: the first one whose confidence has log-odds above its floor.

    Of `labels` labelled pairs `n` are decided, each level has decided `by_level`, and on `agreed` the level that
    decides agrees with people. Where nothing can be promised, nothing is decided.
    """

    floors: Floors
    n: int
    agreed: int
    by_level: tuple[int, ...]
    labels: int
    target: float
    error: float  # what the path was given

    @property
    def promised(self) -> bool:
        """Whether anything can be promised."""
        return self.n > 0

    @property
    def coverage(self) -> float:
        """The share of the labelled pairs that are decided."""
        return self.n / self.labels if self.labels else 0.0

    def confidences(self) -> tuple[float | None, ...]:
        """The confidence above which each level decides; None for a level that decides nothing.

        >>> Cascade((NEVER, 0.0, ALWAYS), 9, 9, (0, 9, 0), 9, 0.8, 0.05).confidences()
        (None, 0.5, 0.0)
        """
        return tuple(None if z == NEVER else 0.0 if z == ALWAYS else 1 / (1 + math.exp(-z)) for z in self.floors)

    def decides(self, level: int, confidence: float | None) -> bool:
        """Whether a level decides a pair that came to it; None stands for no verdict.

        >>> Cascade((0.0,), 9, 9, (9,), 9, 0.8, 0.05).decides(0, 0.6)
        True
        """
        return confidence is not None and bool(log_odds_of([confidence])[0] > self.floors[level])


def fewest_labels(target: float, levels: int, confidence: float = CONFIDENCE) -> int:
    """How many labels it takes at the least, all of them agreed with, to promise a target.

    >>> fewest_labels(0.85, 1), fewest_labels(0.85, 2)
    (19, 30)
    """
    return math.ceil(math.log(error_of(levels, confidence)) / math.log(target) - 1e-12)


def error_of(levels: int, confidence: float = CONFIDENCE) -> float:
    """The share of the error that each path has.

    >>> error_of(1), error_of(2) == 0.05 / 6
    (0.05, True)
    """
    paths = 1 if levels == 1 else len(STEPS) + 1 + levels
    return round(1 - confidence, 12) / paths


def disagreement_test(agreed: float, n: float, target: float) -> float:
    """How likely so few disagreements are where judge and people agree on no more than `target` of the pairs.

    The lower tail of the binomial distribution, for numbers that need not be whole (effective sample sizes).

    >>> round(disagreement_test(10, 10, 0.9), 4) == round(0.9**10, 4)
    True
    """
    from scipy.special import betaincc

    # P(X <= k) of n with chance q is I_{1-q}(n - k, k + 1); here q = 1 - target, and n - k agree.
    return 1.0 if agreed <= 0 else float(1 - betaincc(agreed, n - agreed + 1, target))


def choose_cascade(
    confidence: ArrayLike,
    right: ArrayLike,
    target: float,
    *,
    clusters: ArrayLike | None = None,
    confidence_level: float = CONFIDENCE,
) -> Cascade:
    """The cascade that decides most of the labelled pairs and keeps the promise; of equals, the cheapest.

    `confidence` and `right` have a row for each labelled pair and a column for each level, the cheapest first; NaN
    stands for no verdict. `clusters` are instructions, given where pairs may not have been drawn one by one.

    >>> found = choose_cascade(np.linspace(0.5, 0.99, 100)[:, None], np.ones((100, 1)), 0.85)
    >>> found.coverage, found.agreed
    (1.0, 100)
    """
    given = log_odds_of(confidence)
    z = np.where(np.isnan(given), -np.inf, given)
    good = np.asarray(right, dtype=np.bool_).reshape(z.shape)
    error = error_of(z.shape[1], confidence_level)
    groups = None if clusters is None else np.asarray(clusters)
    found = [_along(path, z, good, target, error, groups) for path in paths_of(z)]
    return max(found, key=lambda cascade: (cascade.n, cascade.by_level))


def paths_of(z: Array) -> list[list[Floors]]:
    """The floors of each path, by the log-odds of all levels on the labelled pairs; -inf stands for no verdict.

    >>> [len(path) for path in paths_of(np.linspace(0, 1, 100)[:, None])]
    [15]
    """
    levels = z.shape[1]
    if levels == 1:
        return [_alone(z, 0)]
    together = [_together(z, [step * (levels - 1 - level) for level in range(levels)]) for step in STEPS]
    return [*together, _taking_over(z, [0.0] * (levels - 1), NEVER), *(_alone(z, one) for one in range(levels))]


def _together(z: Array, offsets: Sequence[float]) -> list[Floors]:
    """All levels with one t; then the last one takes the rest, and t goes down for the others."""
    floors = [tuple(t + o for o in offsets) for t in _going_down((z - offsets).max(axis=1))]
    lowest = floors[-1][-1] if floors else NEVER
    return [*floors, *_taking_over(z, offsets[:-1], lowest)]


def _taking_over(z: Array, offsets: Sequence[float], below: float) -> list[Floors]:
    """The last level takes what is left, while the others decide more and more."""
    best = np.sort((z[:, :-1] - np.asarray(offsets)).max(axis=1))[::-1]
    ranks = [math.ceil(share * len(z)) for share in TAKEN_OVER]
    steps = [float(best[rank]) if rank < len(best) else ALWAYS for rank in ranks]
    return [(*(t + o for o in offsets), ALWAYS) for t in (below, *(t for t in dict.fromkeys(steps) if t < below))]


def _alone(z: Array, one: int) -> list[Floors]:
    """One level, and in the end all that it has a verdict on."""
    floors = [*_going_down(z[:, one]), ALWAYS]
    return [tuple(t if level == one else NEVER for level in range(z.shape[1])) for t in floors]


def _going_down(best: Array) -> list[float]:
    """Floors such that about each share of the pairs stands above one."""
    order = np.sort(best)[::-1]
    ranks = [math.ceil(share * len(order)) for share in SHARES]
    found = [float(order[rank]) for rank in ranks if rank < len(order)]
    return [t for t in dict.fromkeys(found) if t > -math.inf]


def _along(
    path: Sequence[Floors], z: Array, good: NDArray[np.bool_], target: float, error: float, groups: Array | None
) -> Cascade:
    """The last floors on a path at which the test holds, if those before them did."""
    levels = z.shape[1]
    found = Cascade((NEVER,) * levels, 0, 0, (0,) * levels, len(z), target, error)
    least = math.ceil(math.log(error) / math.log(target) - 1e-12)
    for floors in path:
        by = z > np.asarray(floors)
        decided = np.flatnonzero(by.any(axis=1))
        if len(decided) < least:
            continue  # too few to pass whatever they say
        first = by[decided].argmax(axis=1)
        agreed = int(good[decided, first].sum())
        size = len(decided) / (1.0 if groups is None else _design_effect(groups[decided]))
        if disagreement_test(agreed * size / len(decided), size, target) > error:
            break
        by_level = tuple(np.bincount(first, minlength=levels).tolist())
        found = Cascade(floors, len(decided), agreed, by_level, len(z), target, error)
    return found


def best_promise(
    confidence: ArrayLike, right: ArrayLike, below: float, *, clusters: ArrayLike | None = None
) -> Cascade | None:
    """The highest promise below a target, in whole percent, that labels allow; None where none is above 50%."""
    for percent in range(math.ceil(below * 100 - 1e-9) - 1, 50, -1):
        found = choose_cascade(confidence, right, percent / 100, clusters=clusters)
        if found.promised:
            return found
    return None


def log_odds_of(confidence: ArrayLike) -> Array:
    """The log-odds of confidences, so far rounded that the sides of a pair make no difference.

    >>> log_odds_of([0.5, 1.0]).round(1).tolist()
    [0.0, 20.7]
    """
    given = np.asarray(confidence, dtype=np.float64).clip(_CERTAIN, 1 - _CERTAIN)
    return np.asarray(np.round(np.log(given) - np.log1p(-given), 6))


def _design_effect(groups: Array) -> float:
    """By how much fewer labels count where all pairs of an instruction are decided alike: Kish's, at its worst."""
    sizes = np.unique(groups, return_counts=True)[1]
    return float((sizes**2).sum() / sizes.sum())
