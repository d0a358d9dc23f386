"""Outcomes corrected by the calibration that is stored with the judge."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace

import numpy as np

from evenhand.core.columns import MISSING, TIE, Block, Codes, Floats
from evenhand.core.stats.calibration import Calibration

# A tie between two probabilities that differ by rounding alone.
_ALIKE = 1e-9


def calibrated(blocks: Iterable[Block], calibrations: Mapping[str, Calibration]) -> Iterator[Block]:
    """Blocks with calibrated probabilities, and the verdicts that they make; an invalid outcome stays as it is.

    What each order said stays as it was: calibration speaks of the two together.
    """
    for block in blocks:
        outcomes = dict(block.outcomes)
        for name in outcomes.keys() & calibrations.keys():
            found, rows = outcomes[name], np.flatnonzero(outcomes[name].valid)
            p, side = found.p.copy(), found.side.copy()
            p[rows] = calibrations[name].apply(found.log_odds[rows], block.log_length[rows])
            side[rows] = likeliest(p[rows])
            outcomes[name] = replace(found, p=p, side=side)
        yield replace(block, outcomes=outcomes)


def likeliest(p: Floats) -> Codes:
    """The likeliest side; two that are equally likely are a tie.

    >>> likeliest(np.array([[0.5, 0.3, 0.2], [0.4, 0.4, 0.2]])).tolist()
    [0, 2]
    """
    if not len(p):
        return np.full(0, MISSING, dtype=np.int8)
    best = p >= p.max(axis=1, keepdims=True) - _ALIKE
    return np.where(best.sum(axis=1) == 1, best.argmax(axis=1), TIE).astype(np.int8)
