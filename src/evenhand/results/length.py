"""AlpacaEval's length-controlled win rate of what was counted."""

from __future__ import annotations

from collections.abc import Mapping

from evenhand.core.stats.alpaca import AlpacaLength, alpaca_length_controlled
from evenhand.results.summary import DimensionRows, Summary


def alpaca_rates(summary: Summary) -> Mapping[str, AlpacaLength]:
    """AlpacaEval's length-controlled win rate of side 1 on each dimension.

    As there, the value of a pair is the judge's preference, p(1) + p(tie) / 2, and the other side is the baseline.
    """
    return {name: _rate(found.rows) for name, found in summary.dimensions.items() if found.rows is not None}


def _rate(found: DimensionRows) -> AlpacaLength:
    rows = found.all()
    return alpaca_length_controlled(rows["expected"], rows["longer"], rows["cluster"])
