"""One pair's outcome on one dimension, as pages and reports show it: a row of the columns."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import cast

import numpy as np

from evenhand.core.columns import CODE_OF, MISSING, Block, Outcomes, outcomes_of
from evenhand.core.outcome import OutcomeRow
from evenhand.core.pair import Side
from evenhand.core.stats.trust import is_low
from evenhand.core.verdict import SIDES

SIDE_OF_CODE = {code: cast("Side | None", side) for side, code in CODE_OF.items()}


@dataclass(frozen=True, slots=True)
class PairOutcome:
    """What a pair came to on one dimension, with what each order chose."""

    dimension: str
    side: Side | None
    p: Mapping[Side, float] | None
    forward: Side | None
    swapped: Side | None
    mass: float | None  # the mean over the orders that have one
    inconsistent: bool
    pointwise: bool
    reason: str | None  # why there is no verdict

    @property
    def low_mass(self) -> bool:
        """Whether the judge would rather have said something else than it was asked for."""
        return is_low(self.mass)


def pair_outcome(dimension: str, found: Outcomes, row: int) -> PairOutcome:
    """One row of the columns.

    >>> rows = [OutcomeRow("overall", 69, 1.0, 0.0, 0.0, 0.0, None)]
    >>> pair_outcome("overall", outcomes_of(rows), 0).side
    '1'
    """
    side = SIDE_OF_CODE[int(found.side[row])]
    masses, word = int(found.masses[row]), int(found.reason.codes[row])
    return PairOutcome(
        dimension,
        side,
        None if side is None else dict(zip(SIDES, found.p[row].tolist(), strict=True)),
        SIDE_OF_CODE[int(found.forward[row])],
        SIDE_OF_CODE[int(found.swapped[row])],
        float(found.mass[row]) / masses if masses else None,
        bool(found.inconsistent[row]),
        found.pointwise,
        None if word == MISSING else found.reason.words[word],
    )


def outcomes_from(rows: Iterable[OutcomeRow]) -> dict[str, PairOutcome]:
    """The stored rows of one pair, by dimension."""
    return {row.dimension: pair_outcome(row.dimension, outcomes_of([row]), 0) for row in rows}


def pick_outcomes(blocks: Iterable[Block], numbers: Iterable[int]) -> dict[int, dict[str, PairOutcome]]:
    """The outcomes of some pairs, by the numbers of the pairs and by dimension."""
    wanted = np.array(sorted(numbers), dtype=np.int64)
    picked: dict[int, dict[str, PairOutcome]] = {}
    for block in blocks:
        for row in np.flatnonzero(np.isin(block.number, wanted)).tolist():
            picked[int(block.number[row])] = {
                name: pair_outcome(name, found, row) for name, found in block.outcomes.items()
            }
    return picked
