"""One judgment as a result: per dimension the verdict, its probabilities, and what each order said."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from evenhand.core.engine import Usage
from evenhand.core.judge import Judgment
from evenhand.core.pair import Side
from evenhand.core.protocol import Order
from evenhand.core.reasons import ReasonReader
from evenhand.core.verdict import Label, Outcome

Shares = Mapping[Side, float]
_WHERE_KNOWN = {"json": None}


@dataclass(frozen=True, slots=True)
class JudgedOrder:
    """What one order said; sides are "1" and "2" in every place, whatever the order."""

    verdict: str
    p: Shares | None
    mass: float | None
    shown: Label | None
    invalid_reason: str | None
    raw: str
    reason: str | None = field(default=None, metadata=_WHERE_KNOWN)  # why, in words of sides
    strength: int | None = field(default=None, metadata=_WHERE_KNOWN)  # 2 for A>>B, 1 for A>B, 0 for A=B


@dataclass(frozen=True, slots=True)
class JudgedDimension:
    """What one dimension came to."""

    verdict: str
    p: Shares | None
    inconsistent: bool
    invalid_reason: str | None
    orders: Mapping[Order, JudgedOrder]


@dataclass(frozen=True, slots=True)
class JudgedPair:
    """One pair. The fields, and their names, are those of `compare --json`."""

    id: str
    dimensions: Mapping[str, JudgedDimension]
    notes: tuple[str, ...]
    tokens: Usage
    seconds: float


def judged_pair(judgment: Judgment, reader: ReasonReader | None = None) -> JudgedPair:
    """A judgment as a result; a reader knows how to tell a reason from a verdict in the judge's words."""
    dimensions = {name: _dimension(outcome, reader) for name, outcome in judgment.outcomes.items()}
    notes = tuple(sorted(judgment.notes))
    return JudgedPair(judgment.pair.id, dimensions, notes, judgment.usage, round(judgment.seconds, 3))


def _dimension(outcome: Outcome, reader: ReasonReader | None) -> JudgedDimension:
    orders = {
        order: JudgedOrder(
            outcome.side_in(order) or "invalid",
            outcome.p_in(order),
            *(verdict.mass, verdict.label, verdict.invalid, verdict.raw),
            reason=(reader.reason(verdict, order) or None) if reader else None,
            strength=reader.strength(verdict) if reader else None,
        )
        for order, verdict in outcome.orders.items()
    }
    return JudgedDimension(outcome.side or "invalid", outcome.p, outcome.inconsistent, outcome.invalid, orders)
