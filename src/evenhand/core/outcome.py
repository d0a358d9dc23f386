"""The row that is kept of an outcome: one for each pair, judge and dimension, the same in SQLite and in Parquet.

An outcome is made once, by `evenhand.core.verdict.pool`; code that counts reads rows back as columns
(`columns.py`). What was decided stands in one number, `said`, so that a row is quick to read:

    bits 0-1    side              0 none, 1 side 1, 2 side 2, 3 tie
    bits 2-3    forward           what the forward order chose, in the same code
    bits 4-5    swapped           what the swapped order chose
    bit  6      asked forward     the pair was shown in this order
    bit  7      asked swapped
    bits 8-9    masses            how many orders have a label mass
    bit  10     inconsistent      one order chose side 1, the other side 2
    bit  11     pointwise         asked of one response at a time, so that no place can be favoured
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import NamedTuple

from evenhand.core.pair import POINTWISE_DIMENSIONS, short_hash
from evenhand.core.protocol import ORDERS
from evenhand.core.verdict import SIDES, Outcome

# The numbers of sides in `said`, and where what stands.
_BITS: Mapping[str | None, int] = {None: 0, "1": 1, "2": 2, "tie": 3}
FORWARD, SWAPPED, ASKED, MASSES = 2, 4, 6, 8
INCONSISTENT, POINTWISE = 1 << 10, 1 << 11

MOST_MASS = 2.01  # both orders, each with at most 1


class OutcomeRow(NamedTuple):
    """What is kept of one outcome; the columns of SQLite's `outcomes` and of the list in a shard."""

    dimension: str
    said: int
    p_1: float | None
    p_2: float | None
    p_tie: float | None
    mass: float  # summed over the orders that have one
    reason: str | None  # why there is no verdict


def outcome_row(outcome: Outcome) -> OutcomeRow:
    """An outcome as the row that is kept of it.

    >>> from evenhand.core.verdict import Verdict, pool
    >>> outcome_row(pool("overall", {"forward": Verdict("overall", "A")}))
    OutcomeRow(dimension='overall', said=69, p_1=1.0, p_2=0.0, p_tie=0.0, mass=0.0, reason=None)
    """
    masses = [verdict.mass for verdict in outcome.orders.values() if verdict.mass is not None]
    said = _BITS[outcome.side] | len(masses) << MASSES
    said |= _BITS[outcome.side_in("forward")] << FORWARD | _BITS[outcome.side_in("swapped")] << SWAPPED
    for bit, order in enumerate(ORDERS):
        said |= (order in outcome.orders) << (ASKED + bit)
    said |= outcome.inconsistent * INCONSISTENT | (outcome.dimension in POINTWISE_DIMENSIONS) * POINTWISE
    if outcome.side is None or outcome.p is None:
        return OutcomeRow(
            outcome.dimension, said, None, None, None, math.fsum(masses), outcome.invalid or "unknown"
        )
    one, two, tie = (outcome.p[side] for side in SIDES)
    return OutcomeRow(outcome.dimension, said, one, two, tie, math.fsum(masses), None)


def cluster_number(instruction: str) -> int:
    """A number that pairs with the same instruction share.

    >>> cluster_number("Hi") == cluster_number("Hi") != cluster_number("Ho")
    True
    """
    return short_hash(instruction)


def leading(key: str) -> int:
    """The first eight bytes of a pair's key.

    >>> leading("00000000000000ff" + 48 * "0")
    255
    """
    return int(key[:16], 16)
