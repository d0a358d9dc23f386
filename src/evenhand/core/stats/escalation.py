"""Which verdicts may be trusted: thresholds on the confidence of judges, chosen on labelled pairs.

The promise: of all pairs that the levels decide, at least `target` are decided as people would decide them,
with 95% confidence over the draw of the labelled pairs. Selective evaluation by fixed-sequence testing: Jung,
Brahman & Choi (2024), "Trust or Escalate: LLM judges with provable guarantees for human agreement", arXiv
2407.18370.

Thresholds. With z the log-odds of a level's confidence, level k decides a pair that came to it where z - o_k >
t. The offsets o make a *path*: how much surer a cheap level has to be than the next one; t goes down along the
path. All the levels are tested at once, by what they come to together: a pair stands on a path at the largest t
at which any level decides it. Labelled pairs stand in that order. The first r of them, given the place v of the
one behind them, are a random sample of all pairs that are decided at t = v; so the number of disagreements
among them is binomial, and the exact test of Clopper & Pearson (1934) says whether a risk of more than 1 -
target can be ruled out.

The sequence. Tests are made at ranks that depend on the number of labels alone, from the surest pairs
downwards, and end at the first that fails: nothing is paid for testing many thresholds. The error is kept where
those who are less sure err no less often, so that all places below the first bad one are bad; docs/juries.md
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
SHARES = tuple(step / 20 for step in range(6, 21))
STEPS = (0.0, 1.0, 2.0, 4.0)
_CERTAIN = 1e-9  # a confidence of 1 is taken for one less this
NEVER = math.inf  # the offset of a level that decides nothing


@dataclass(frozen=True, slots=True)
class Cascade:
    """Which level decides what: level k where the log-odds of its confidence less `offsets[k]` are above `floor`.

    `floor` is None where nothing can be promised. `n` labelled pairs are decided so, and on `agreed` of them the
    level that decides agrees with people; `by_level` is how many each decides.
    """

    offsets: tuple[float, ...]
    floor: float | None
    n: int
    agreed: int
    by_level: tuple[int, ...]
    labels: int
    target: float
    error: float  # what the path was given

    @property
    def coverage(self) -> float:
        """The share of the labelled pairs that are decided."""
        return self.n / self.labels if self.labels else 0.0

    def floors(self) -> tuple[float | None, ...]:
        """The confidence above which each level decides; None for a level that decides nothing.

        >>> Cascade((NEVER, 0.0), 0.0, 9, 9, (0, 9), 9, 0.8, 0.05).floors()
        (None, 0.5)
        """
        if self.floor is None:
            return (None,) * len(self.offsets)
        return tuple(None if o == NEVER else _confidence(self.floor + o) for o in self.offsets)

    def decides(self, level: int, confidence: float | None) -> bool:
        """Whether a level decides a pair that came to it; None stands for no verdict.

        >>> Cascade((0.0,), 0.0, 9, 9, (9,), 9, 0.8, 0.05).decides(0, 0.6)
        True
        """
        if confidence is None or self.floor is None:
            return False
        return bool(log_odds_of([confidence])[0] - self.offsets[level] > self.floor)


def fewest_labels(target: float, levels: int, confidence: float = CONFIDENCE) -> int:
    """How many labels it takes at the least, all of them agreed with, to promise a target.

    >>> fewest_labels(0.85, 1), fewest_labels(0.85, 2)
    (19, 30)
    """
    return math.ceil(math.log(_error(levels, confidence)) / math.log(target) - 1e-12)


def paths_for(levels: int) -> list[tuple[float, ...]]:
    """The offsets that are tried: each level alone, and all of them with steps between.

    >>> paths_for(1), len(paths_for(2))
    ([(0.0,)], 6)
    """
    if levels == 1:
        return [(0.0,)]
    together = [tuple(step * (levels - 1 - level) for level in range(levels)) for step in STEPS]
    alone = [tuple(0.0 if level == one else NEVER for level in range(levels)) for one in range(levels)]
    return [*together, *alone]


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
    z = log_odds_of(confidence)
    good = np.asarray(right, dtype=np.bool_).reshape(z.shape)
    error = _error(z.shape[1], confidence_level)
    groups = None if clusters is None else np.asarray(clusters)
    found = [_along(path, z, good, target, error, groups) for path in paths_for(z.shape[1])]
    return max(found, key=lambda cascade: (cascade.n, cascade.by_level))


def _error(levels: int, confidence: float) -> float:
    return round(1 - confidence, 12) / len(paths_for(levels))


def _along(
    path: Sequence[float], z: Array, good: NDArray[np.bool_], target: float, error: float, groups: Array | None
) -> Cascade:
    """The last place on a path at which the test holds, if those before it did."""
    place = np.where(np.isnan(z), -np.inf, z) - np.asarray(path)
    best = place.max(axis=1)
    order = np.argsort(-best, kind="stable")
    sorted_best, n = best[order], int((best > -np.inf).sum())
    found = Cascade(tuple(path), None, 0, 0, (0,) * z.shape[1], len(z), target, error)
    least = math.ceil(math.log(error) / math.log(target) - 1e-12)
    ranks = sorted({math.ceil(share * len(z)) for share in SHARES})
    for rank in dict.fromkeys(_block_end(sorted_best, r) for r in ranks if least <= r <= n):
        if rank > n:
            break
        floor = float(sorted_best[rank]) if rank < len(z) else -math.inf
        first = (place[order[:rank]] > floor).argmax(axis=1)  # the first level that decides each
        agreed = int(good[order[:rank], first].sum())
        size = rank / _design_effect(groups[order[:rank]]) if groups is not None else float(rank)
        if disagreement_test(agreed * size / rank, size, target) > error:
            break
        by_level = tuple(np.bincount(first, minlength=z.shape[1]).tolist())
        found = Cascade(tuple(path), floor, rank, agreed, by_level, len(z), target, error)
    return found


def best_promise(
    confidence: ArrayLike, right: ArrayLike, below: float, *, clusters: ArrayLike | None = None
) -> Cascade | None:
    """The highest promise below a target, in whole percent, that labels allow; None where none is above 50%."""
    for percent in range(math.ceil(below * 100 - 1e-9) - 1, 50, -1):
        found = choose_cascade(confidence, right, percent / 100, clusters=clusters)
        if found.floor is not None:
            return found
    return None


def log_odds_of(confidence: ArrayLike) -> Array:
    """The log-odds of confidences, so far rounded that the sides of a pair make no difference.

    >>> log_odds_of([0.5, 1.0]).round(1).tolist()
    [0.0, 20.7]
    """
    given = np.asarray(confidence, dtype=np.float64).clip(_CERTAIN, 1 - _CERTAIN)
    return np.asarray(np.round(np.log(given) - np.log1p(-given), 6))


def _confidence(log_odds: float) -> float:
    return 0.0 if log_odds == -math.inf else 1 / (1 + math.exp(-log_odds))


def _block_end(best: Array, rank: int) -> int:
    """The rank of the last of those that stand where the one at `rank` does: no floor comes between them."""
    return int(np.searchsorted(-best, -best[rank - 1], side="right"))


def _design_effect(groups: Array) -> float:
    """By how much fewer labels count where all pairs of an instruction are decided alike: Kish's, at its worst."""
    sizes = np.unique(groups, return_counts=True)[1]
    return float((sizes**2).sum() / sizes.sum())
