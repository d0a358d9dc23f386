"""What moves a judge besides the content: the place of a response, and its length. With intervals."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from evenhand.core.stats import bias
from evenhand.core.stats.clustered import Estimate
from evenhand.results.summary import DimensionSummary


@dataclass(frozen=True, slots=True)
class BiasSummary:
    """One dimension; the values are those of its summary."""

    position_bias: Estimate
    flips: Estimate  # pairs in which one order chose side 1 and the other side 2
    longer: Estimate  # how often the longer output is chosen, a tie counting one half
    longer_wins: int  # decided pairs in which the longer output won


def biases_of(found: DimensionSummary) -> BiasSummary:
    """The biases of one dimension."""
    if found.rows is None:
        raise ValueError("a summary without its rows")
    rows = found.rows.all()
    longer = bias.longer_side(rows["longer"], np.zeros_like(rows["longer"]))
    side, cluster = rows["side"].astype(np.int64), rows["cluster"]
    place = bias.position_bias(rows["forward"], rows["swapped"], cluster)
    return BiasSummary(
        replace(place, value=found.position_bias),
        bias.flip_rate(rows["forward"], rows["swapped"], cluster),
        bias.longer_rate(side, longer, cluster),
        int(((side == longer) & (side != 2)).sum()),
    )
