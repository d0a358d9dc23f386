"""Which labels an estimate may use, and what each weighs: the only place where that is decided.

A label on a pair that was chosen because it would teach most does not speak for the other pairs. So each labelled
pair counts by how it came to be labelled:

    drawn at random by evenhand          as a sample of the pairs that were there at the draw
    imported, unknown                    like a random sample, and the note says that this is assumed
    with a probability (a file's own)    one over it: Horvitz & Thompson (1952), "A generalization of sampling
                                         without replacement from a finite universe", JASA 47, 663-685
    suggested, without a probability     not at all: pairs like the others had no chance to be chosen

Pairs that were added after a draw could not be drawn. Where a later draw took some of them, each group of pairs
that had the same draws weighs what it has pairs (poststratification: Holt & Smith 1979, "Post stratification",
Journal of the Royal Statistical Society A 142, 33-46). Where every pair has a label, there is nothing to choose,
and all are used.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from evenhand.core.stats.clustered import Array
from evenhand.core.votes import DESIGNS, Design, Drawn

Numbers = NDArray[np.int64]
# Groups of pairs that had the same draws are put together until they have so many labels.
_FEWEST = 10
# A label that stands for more than so many times as many pairs as a mean one makes any estimate hang on it.
HEAVY = 20.0


@dataclass(frozen=True, slots=True)
class LabelUse:
    """What an estimate uses of the labelled pairs of one dimension, and why. The fields are those of `--json`."""

    labelled: int = 0  # pairs with a vote
    used: int = 0
    designs: Mapping[Design, int] = field(
        default_factory=lambda: dict.fromkeys(DESIGNS, 0)
    )  # of the labelled pairs
    left_out: int = 0  # chosen because they were informative, with no probability that could make up for it
    weighted: bool = False  # whether labels weigh differently
    assumed: bool = False  # whether some are taken for a random sample because nobody knows better
    after_draw: int = 0  # pairs that came after the last draw, for which the labels do not speak
    notes: tuple[str, ...] = ()


def label_use(numbers: Numbers, drawn: Mapping[int, Sequence[Drawn]]) -> tuple[Array, LabelUse]:
    """The weight of each pair's label, 0 where it has none that may be used, and what to say of it.

    `numbers` are those of all pairs that a judge has judged, `drawn` says by row how each labelled one came to be
    labelled, once for each vote.

    >>> random, chosen = Drawn("random", 0.5, among=9), Drawn("suggested")
    >>> weights, use = label_use(np.arange(4), {0: [random], 1: [chosen], 2: [random, chosen]})
    >>> weights.tolist(), use.notes
    ([1.0, 0.0, 1.0, 0.0], ('1 of 3 labelled pairs was chosen because it was informative; ...',))
    """
    rows = [row for row in sorted(drawn) if drawn[row]]
    designs: Counter[Design] = Counter(_design_of(drawn[row]) for row in rows)
    counts = {design: designs[design] for design in DESIGNS}
    if len(rows) == len(numbers):
        return np.ones(len(numbers)), LabelUse(len(rows), len(rows), counts)
    weights, after = _weights(numbers, {row: drawn[row] for row in rows})
    used = weights[weights > 0]
    weighted = bool(len(used) and np.ptp(used) > 1e-9 * used.max())
    if len(used) and not weighted:
        weights = (weights > 0).astype(np.float64)
    assumed = any(weights[row] > 0 and not _is_known(drawn[row]) for row in rows)
    use = LabelUse(len(rows), len(used), counts, len(rows) - len(used), weighted, assumed, after)
    return weights, _noted(use, heavy=bool(weighted and used.max() > HEAVY * used.mean()))


def _design_of(every: Sequence[Drawn]) -> Design:
    """Of several labels on one pair, the one that makes it most like a random draw."""
    order: tuple[Design, ...] = ("random", "imported", "unknown", "suggested")
    return min((one.design for one in every), key=order.index)


def _is_plain(one: Drawn) -> bool:
    """Taken for a random sample: by its own word, or because nobody knows better."""
    return one.design != "suggested" and one.probability is None


def _is_ours(one: Drawn) -> bool:
    """Drawn by evenhand, with equal chances for all pairs that were there."""
    return one.design == "random" and one.among is not None


def _is_known(every: Sequence[Drawn]) -> bool:
    return any(one.design == "random" or one.probability is not None for one in every)


def _weights(numbers: Numbers, drawn: Mapping[int, Sequence[Drawn]]) -> tuple[Array, int]:
    """Weights by row, and for how many pairs no label speaks."""
    ours = {
        row: max(one.among or 0 for one in every if _is_ours(one))
        for row, every in drawn.items()
        if any(map(_is_ours, every))
    }
    plain = [row for row, every in drawn.items() if any(map(_is_plain, every))]
    known = {
        row: min(p for one in every if not _is_ours(one) and (p := one.probability) is not None)
        for row, every in drawn.items()
        if any(one.probability is not None and not _is_ours(one) for one in every)
    }
    equal = np.zeros(len(numbers))
    equal[[*ours, *plain]] = 1.0
    after = 0
    if ours:
        last = max(ours.values())
        after = int((numbers > last).sum()) if not plain and not known else 0
        equal = _poststratified(numbers, equal, sorted(set(ours.values())), whole=bool(plain))
    weights = equal
    if known:
        rows, by_chance = list(known), 1 / np.array(list(known.values()))
        if np.ptp(by_chance) <= 1e-9 * by_chance.max():
            by_chance = np.ones(len(rows))
        # As much together as so many labels of equal weight: Kish (1965), "Survey sampling".
        effective = by_chance.sum() ** 2 / (by_chance**2).sum()
        weights = weights.copy()
        np.add.at(weights, rows, by_chance * effective / by_chance.sum())
    return weights, after


def _poststratified(numbers: Numbers, equal: Array, edges: Sequence[int], *, whole: bool) -> Array:
    """Labels of equal weight, so that each group of pairs that had the same draws weighs what it has pairs."""
    group = np.searchsorted(np.asarray(edges), numbers)
    reached = len(edges) + whole  # pairs after the last draw are reached by nothing but labels of unknown origin
    group = _merged(np.minimum(group, reached), equal, reached)
    weights = np.zeros(len(equal))
    for number in np.unique(group[group < reached]):
        inside = group == number
        weights[inside] = equal[inside] * inside.sum() / max(equal[inside].sum(), 1.0)
    used = weights > 0
    return np.asarray(weights * used.sum() / weights.sum() if used.any() else weights)


def _merged(group: Numbers, equal: Array, reached: int) -> Numbers:
    """Neighbouring groups put together until each has labels enough; what is left joins the last."""
    labels = np.bincount(group, equal, minlength=reached + 1)[:reached]
    name, names, count = 0, [], 0.0
    for found in labels:
        names.append(name)
        count += found
        if count >= _FEWEST:
            name, count = name + 1, 0.0
    if count < _FEWEST and name:
        names = [min(given, name - 1) for given in names]
    return np.asarray([*names, reached], dtype=np.int64)[group]


def _noted(use: LabelUse, *, heavy: bool) -> LabelUse:
    return replace(use, notes=tuple(_notes(use, heavy)))


def _notes(use: LabelUse, heavy: bool) -> Iterator[str]:
    if use.left_out:
        was = "was chosen because it was" if use.left_out == 1 else "were chosen because they were"
        chosen = f"{use.left_out:,} of {use.labelled:,} labelled pairs {was} informative"
        kind = "others" if use.assumed or use.weighted else "drawn at random"
        yield (
            f"{chosen}; the estimates use the {use.used:,} {kind}."
            if use.used
            else (f"{chosen}, and none was drawn at random; no estimate can speak for the other pairs.")
        )
    if use.assumed:
        unknown = use.designs["imported"] + use.designs["unknown"]
        pairs = "labelled pair was" if unknown == 1 else "labelled pairs were"
        taken = "it is taken for a random draw" if unknown == 1 else "they are taken for a random sample"
        yield f"How {unknown:,} {pairs} chosen is not known; {taken}."
    if use.weighted:
        yield "Labels are weighted by one over the chance of their pair to be labelled."
    if heavy:
        yield "A few labels carry much of the weight, so the intervals are wide."
    if use.after_draw:
        pairs = "pair" if use.after_draw == 1 else "pairs"
        yield f"{use.after_draw:,} {pairs} came after the last draw; the labels do not speak for them."
