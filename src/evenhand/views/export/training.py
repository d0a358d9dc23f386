"""Data to train on: preferences of the judge, and the verdicts of people as a judge should have given them.

The column names are those of TRL's trainers: prompt, chosen, rejected (DPO); prompt, completion, label (KTO);
prompt, completion (supervised).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from evenhand.core.judge import Judgment
from evenhand.core.markup import Turn, break_up_spans
from evenhand.core.pair import Pair, Side
from evenhand.core.pieces import Recall
from evenhand.core.protocol import ORDERS, Order, Protocol
from evenhand.core.template import Question
from evenhand.core.verdict import SIDE_OF, Label, Outcome
from evenhand.io.files import Row

_MODELS = {"chosen_model": "text", "rejected_model": "text"}
DPO = {"prompt": "text", "chosen": "text", "rejected": "text", "margin": "number", "pair": "text", **_MODELS}
KTO = {
    "prompt": "text",
    "completion": "text",
    "label": "truth",
    "margin": "number",
    "pair": "text",
    "model": "text",
}
JUDGE = {
    "prompt": "messages",
    "completion": "messages",
    "pair": "text",
    "order": "text",
    "question": "integer",
    "dimensions": "text",
}


def dpo_rows(
    judgments: Iterable[Judgment], dimension: str, *, margin: float = 0.0, chat: bool = False
) -> Iterator[Row]:
    """One row for each pair with a winner whose margin is large enough; ties and invalid ones are left out.

    The margin is how much likelier the winner is than the loser: 1 where the judge gives no probabilities.
    """
    for judgment in judgments:
        found = _decided(judgment[dimension], margin)
        if found is None:
            continue
        winner, by = found
        pair = judgment.pair
        (chosen, chosen_model), (rejected, rejected_model) = _sides(pair, winner)
        yield {
            "prompt": _said("user", pair.instruction, chat),
            "chosen": _said("assistant", chosen, chat),
            "rejected": _said("assistant", rejected, chat),
            "margin": by,
            "pair": pair.id,
            "chosen_model": chosen_model,
            "rejected_model": rejected_model,
        }


def kto_rows(
    judgments: Iterable[Judgment],
    dimension: str,
    *,
    margin: float = 0.0,
    keep_ties: bool = False,
    chat: bool = False,
) -> Iterator[Row]:
    """Two rows for each pair with a winner: the winner is good, the loser is not.

    With `keep_ties` both responses of a tie are good: the judge preferred nothing to either of them.
    """
    for judgment in judgments:
        outcome, pair = judgment[dimension], judgment.pair
        found = _decided(outcome, margin)
        if found is not None:
            (good, good_model), (bad, bad_model) = _sides(pair, found[0])
            rated = [(good, good_model, True, found[1]), (bad, bad_model, False, found[1])]
        elif keep_ties and outcome.side == "tie":
            rated = [(pair.output_1, pair.model_1, True, 0.0), (pair.output_2, pair.model_2, True, 0.0)]
        else:
            continue
        for text, model, label, by in rated:
            yield {
                "prompt": _said("user", pair.instruction, chat),
                "completion": _said("assistant", text, chat),
                "label": label,
                "margin": by,
                "pair": pair.id,
                "model": model,
            }


def judge_rows(
    protocol: Protocol, labelled: Iterable[tuple[Pair, Mapping[str, Side]]], orders: Iterable[Order] = ORDERS
) -> Iterator[Row]:
    """The protocol's conversations with people's verdicts in the judge's place: a row for each order and question.

    What a question stands on (the earlier judgements of a chain) are people's verdicts too. A pair without a label
    on some dimension is taken as far as its labels go; so is one with a tie, where the form of the protocol's
    answers has none. A form that wants a reason before the verdict gets the verdict alone. Control tokens in a
    pair's text are broken up, as they are on their way to a judge, so that no chat template takes them for turns.

    >>> pair = Pair("2 + 2?", "4", "5")
    >>> rows = list(judge_rows(Protocol.load("overall"), [(pair, {"overall": "1"})]))
    >>> [(row["order"], row["completion"][0]["content"]) for row in rows]
    [('forward', 'A'), ('swapped', 'B')]
    """
    chosen = tuple(orders)
    for pair, labels in labelled:
        for order in chosen:
            yield from _conversation(protocol, pair, labels, order)


def _conversation(protocol: Protocol, pair: Pair, labels: Mapping[str, Side], order: Order) -> Iterator[Row]:
    shown = {side: label for label, side in SIDE_OF[order].items()}
    said: list[str] = []
    open_ones: set[int] = set()  # conversations with a verdict that nobody gave: what comes next would stand on it
    for number, question in enumerate(protocol.questions):
        verdicts = [shown[labels[name]] for name in question.dimensions if name in labels]
        answer = _answer(question, verdicts)
        if answer is None:
            open_ones.add(question.conversation)
        if open_ones & {question.conversation, *_stands_on(protocol, question)}:
            said.append("")
            continue
        prompt = protocol.prompt(pair, order, number, said)
        yield {
            "prompt": [_message(turn) for turn in prompt.turns],
            "completion": [{"role": "assistant", "content": answer}],
            "pair": pair.id,
            "order": order,
            "question": number + 1,
            "dimensions": ", ".join(question.dimensions),
        }
        said.append(", ".join(verdicts))


def _answer(question: Question, verdicts: Sequence[Label]) -> str | None:
    """What a judge would answer, in the form that the protocol asks for; None where it could say nothing."""
    if len(verdicts) < len(question.dimensions):
        return None
    return question.form.write(verdicts[0]) if question.form else ",".join(verdicts)


def has_no_word(protocol: Protocol, labels: Mapping[str, Side]) -> bool:
    """Whether one of the labels cannot be said in the form of the protocol: some forms have no tie.

    >>> has_no_word(Protocol.load("alpaca-eval"), {"overall": "tie"})
    True
    """
    asked = [(question.form, name) for question in protocol.questions for name in question.dimensions]
    return any(form and labels.get(name) == "tie" and form.write("tie") is None for form, name in asked)


def _stands_on(protocol: Protocol, question: Question) -> set[int]:
    """The conversations whose verdicts are repeated before a question."""
    pieces = [piece for turn in protocol.turns[question.start : question.turns] for piece in turn.pieces]
    return {protocol.questions[piece.question - 1].conversation for piece in pieces if isinstance(piece, Recall)}


def _message(turn: Turn) -> dict[str, str]:
    return {"role": turn.role, "content": break_up_spans(turn.spans)[0]}


def _decided(outcome: Outcome, margin: float) -> tuple[Side, float] | None:
    """The winner and by how much; None for a tie, an invalid outcome, or a margin that is too small."""
    if outcome.side not in ("1", "2") or outcome.p is None:
        return None
    other: Side = "2" if outcome.side == "1" else "1"
    by = outcome.p[outcome.side] - outcome.p[other]
    return (outcome.side, by) if by >= margin else None


def _sides(pair: Pair, winner: Side) -> tuple[tuple[str, str], tuple[str, str]]:
    one, two = (pair.output_1, pair.model_1), (pair.output_2, pair.model_2)
    return (one, two) if winner == "1" else (two, one)


def _said(role: str, text: str, chat: bool) -> Any:
    return [{"role": role, "content": text}] if chat else text
