"""The weights of a jury, learned from labels of people on pairs that all its judges have judged."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from evenhand.core.errors import InputError
from evenhand.core.jury import Scale
from evenhand.core.stats.agreement import MISSING
from evenhand.core.stats.calibration import TooFewLabels
from evenhand.core.stats.jury import learn_weights
from evenhand.core.verdict import headline
from evenhand.results.evidence import Evidence, gather
from evenhand.results.people import People
from evenhand.store import JudgeRow, Store


def learned_scales(
    store: Store, rows: Sequence[JudgeRow], dimensions: Sequence[str], on: str = ""
) -> dict[str, tuple[Scale | None, ...]]:
    """Scales under which the mean of the jurors is what was learned, by dimension.

    The dimension that is looked at must have labels enough; others that have too few are pooled as they are said.
    """
    people, wanted = People(store), on or headline(dimensions)
    every = [gather(store, row, people) for row in rows]
    found: dict[str, tuple[Scale | None, ...]] = {}
    for name in dimensions:
        try:
            found[name] = _scales([evidence[name] for evidence in every if name in evidence], len(rows))
        except TooFewLabels as fault:
            if name == wanted:
                raise InputError(
                    f"weights cannot be learned on {name}: {fault}, on pairs that all judges have judged",
                    hint="evenhand labels import FILE brings labels; evenhand suggest names pairs to label",
                ) from None
    return found


def _scales(every: Sequence[Evidence], jurors: int) -> tuple[Scale | None, ...]:
    if len(every) < jurors:
        raise TooFewLabels("0 labelled pairs")
    keys = every[0].keys
    for evidence in every[1:]:
        keys = np.intersect1d(keys, evidence.keys)
    same = [evidence.take(np.searchsorted(evidence.keys, keys)) for evidence in every]
    use = same[0].truth != MISSING
    for evidence in same:
        use &= evidence.verdict != MISSING
    rows = np.flatnonzero(use)
    e = same[0].take(rows)
    odds = np.column_stack([evidence.log_odds[rows] for evidence in same])
    learned = learn_weights(odds, e.truth, e.clusters, weights=e.weights)
    return tuple(Scale(jurors * slope, learned.tie) for slope in learned.slopes)
