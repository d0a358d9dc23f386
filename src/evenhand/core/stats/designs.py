"""How pairs came to be labelled, as weights.

Labels on pairs that were chosen because the judge was unsure of them do not speak for the others. Where the chance
of each pair to be labelled is known, one over that chance makes up for it: Horvitz & Thompson (1952), "A
generalization of sampling without replacement from a finite universe", JASA 47, 663-685. Where it is not, only
those labels can be used whose chance is known.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike

from evenhand.core.stats.clusters import Floats

Kind = Literal["random", "weighted", "known part", "assumed random", "complete"]
# A label that stands for more than so many times as many pairs as a mean one makes any estimate hang on it.
HEAVY = 20.0


@dataclass(frozen=True, slots=True)
class Design:
    """What each label weighs, 0 for those that are not used, and what to say about it."""

    weights: Floats
    kind: Kind
    used: int
    left_out: int
    reason: str = ""

    @property
    def representative(self) -> bool:
        """Whether an estimate with these weights speaks for all pairs, and not for the labelled ones alone."""
        return self.kind != "assumed random"


def design_weights(probabilities: ArrayLike, labelled: ArrayLike | None = None) -> Design:
    """Weights for labels from the probability of each pair to be labelled.

    `probabilities` has one entry for each pair, nan where nobody knows; `labelled` says which have a label (all, if
    it is None). A pair that two draws could have taken has the probability that at least one does:
    `either`. Where no probability is known at all, labels are taken for a random sample, and `reason` says so.

    >>> design_weights([0.1, 0.1, 0.5]).weights.round(2).tolist()
    [10.0, 10.0, 2.0]
    >>> found = design_weights([0.1, 0.1, float("nan")])
    >>> found.kind, found.weights.tolist(), found.left_out
    ('known part', [1.0, 1.0, 0.0], 1)
    >>> design_weights([float("nan")] * 3).representative
    False
    """
    p = np.asarray(probabilities, dtype=np.float64).reshape(-1)
    has = np.ones(len(p), dtype=bool) if labelled is None else np.asarray(labelled, dtype=bool).reshape(-1)
    if np.any((p <= 0) | (p > 1)):
        raise ValueError("the probability of a pair to be labelled lies above 0 and not above 1")
    known = has & ~np.isnan(p)
    used, out = int(known.sum()), int((has & np.isnan(p)).sum())
    if labelled is not None and has.all() and len(has):
        return Design(np.ones(len(p)), "complete", len(p), 0)
    if not used:
        reason = (
            "how the labelled pairs were chosen is not known; they are taken for a random sample" if out else ""
        )
        return Design(has.astype(np.float64), "assumed random", out, 0, reason)
    weights = np.where(known, 1 / np.where(known, p, 1.0), 0.0)
    return _described(weights, known, used, out)


def _described(weights: Floats, known: np.ndarray, used: int, out: int) -> Design:
    equal = bool(np.ptp(weights[known]) <= 1e-9 * weights.max())
    notes = []
    if out:
        notes.append(
            "1 label is left out: how its pair was chosen is not known"
            if out == 1
            else f"{out:,} labels are left out: how their pairs were chosen is not known"
        )
    if not equal:
        notes.append("labels are weighted by one over the probability of their pair to be labelled")
        if weights.max() > HEAVY * weights[known].mean():
            notes.append("a few labels carry much of the weight, so the interval is wide")
    kind: Kind = "known part" if out else "random" if equal else "weighted"
    return Design(np.where(known, 1.0, 0.0) if equal else weights, kind, used, out, "; ".join(notes))
