"""The outcome of a pair as it is kept, beside what the judge said in each order."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from evenhand.core.judge import Judgment
from evenhand.core.pair import Side
from evenhand.core.protocol import ORDERS, Order
from evenhand.core.verdict import SIDES, Outcome
from evenhand.results.pair_outcome import PairOutcome


@dataclass(frozen=True, slots=True)
class OrderView:
    """One order: the word that was said, the side it stands for, how sure the judge was."""

    order: Order
    word: str
    side: Side | None
    p: Mapping[Side, float] | None
    mass: float | None
    reason: str | None


@dataclass(frozen=True, slots=True)
class OutcomeView:
    """One dimension of a pair; `outcome` is None while its conversations go on."""

    dimension: str
    outcome: PairOutcome | None
    orders: Mapping[Order, OrderView]


def outcome_views(judgment: Judgment, stored: Mapping[str, PairOutcome]) -> tuple[OutcomeView, ...]:
    """Every dimension of a pair: what is stored of it, and what was said."""
    return tuple(
        OutcomeView(name, stored.get(name), dict(_orders(said))) for name, said in judgment.outcomes.items()
    )


def _orders(said: Outcome) -> Iterator[tuple[Order, OrderView]]:
    for order in ORDERS:
        verdict = said.orders.get(order)
        if verdict is not None:
            side = said.side_in(order)
            p = said.p_in(order) or _certain(side)
            reason = None if side else verdict.invalid or "invalid"
            yield order, OrderView(order, verdict.word, side, p, verdict.mass, reason)


def _certain(side: Side | None) -> dict[Side, float] | None:
    return None if side is None else {name: float(name == side) for name in SIDES}
