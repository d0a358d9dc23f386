"""Verdicts and judgments as tables."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from evenhand.core.attacks import ATTACK_MARKS, is_attacked
from evenhand.core.judge import Judgment
from evenhand.core.pair import Pair
from evenhand.core.protocol import ORDERS, Order
from evenhand.core.reasons import ReasonReader
from evenhand.core.verdict import Verdict, known_label
from evenhand.io.files import Row
from evenhand.store import JudgeRow

_WHO = {"judge": "text", "protocol": "text", "fingerprint": "text"}
_PAIR = dict.fromkeys(("pair", "key", "model_1", "model_2", *ATTACK_MARKS), "text")
_P = {"p_1": "number", "p_2": "number", "p_tie": "number"}
# Why, in words of sides, and how strong a verdict is where its form says so: 2 for A>>B, 1 for A>B, 0 for A=B.
_SAID = {"reason": "text", "strength": "number"}
TEXTS = {"instruction": "text", "output_1": "text", "output_2": "text"}
JUDGMENTS = {
    **_WHO,
    **_PAIR,
    "dimension": "text",
    "verdict": "text",
    **_P,
    "inconsistent": "truth",
    "invalid": "text",
    "label": "text",
    **{f"{name}_{order}": kind for name, kind in _SAID.items() for order in ORDERS},
}
VERDICTS = {
    **_WHO,
    **_PAIR,
    "dimension": "text",
    "order": "text",
    "shown": "text",
    "verdict": "text",
    **_P,
    "mass": "number",
    "invalid": "text",
    **_SAID,
}


def judgment_rows(judge: JudgeRow, judgments: Iterable[Judgment]) -> Iterator[Row]:
    """One row for each pair and dimension: what the orders come to together, and the reason of each."""
    reader = ReasonReader.of(judge)
    for judgment in judgments:
        about = _about(judge, judgment.pair)
        for dimension, outcome in judgment.outcomes.items():
            yield {
                **about,
                "dimension": dimension,
                "verdict": outcome.side,
                **_sides(outcome.p),
                "inconsistent": outcome.inconsistent,
                "invalid": outcome.invalid,
                "label": known_label(judgment.pair.labels, dimension),
                **{
                    f"{name}_{order}": value
                    for order in ORDERS
                    for name, value in _said(reader, outcome.orders.get(order), order).items()
                },
            }


def verdict_rows(judge: JudgeRow, judgments: Iterable[Judgment]) -> Iterator[Row]:
    """One row for each pair, dimension and order: what the judge said when it was shown so."""
    reader = ReasonReader.of(judge)
    for judgment in judgments:
        about = _about(judge, judgment.pair)
        for dimension, outcome in judgment.outcomes.items():
            for order, verdict in outcome.orders.items():
                yield {
                    **about,
                    "dimension": dimension,
                    "order": order,
                    "shown": verdict.label,
                    "verdict": outcome.side_in(order),
                    **_sides(outcome.p_in(order)),
                    "mass": verdict.mass,
                    "invalid": verdict.invalid,
                    **_said(reader, verdict, order),
                }


def _said(reader: ReasonReader, verdict: Verdict | None, order: Order) -> Row:
    """What the judge wrote beside a verdict; "combined" has none."""
    if verdict is None or not verdict.raw:
        return dict.fromkeys(_SAID)
    return {"reason": reader.reason(verdict, order) or None, "strength": reader.strength(verdict)}


def _about(judge: JudgeRow, pair: Pair) -> Row:
    return {
        "judge": judge.model,
        "protocol": judge.protocol,
        "fingerprint": judge.fingerprint,
        "pair": pair.id,
        "key": pair.key,
        "model_1": pair.model_1,
        "model_2": pair.model_2,
        **{mark: str(pair.metadata[mark]) if is_attacked(pair) else None for mark in ATTACK_MARKS},
        "instruction": pair.instruction,
        "output_1": pair.output_1,
        "output_2": pair.output_2,
    }


def _sides(p: Any) -> Row:
    return {f"p_{side}": None if p is None else p[side] for side in ("1", "2", "tie")}
