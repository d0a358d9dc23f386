"""Rows of people's labels as benchmarks publish them, brought into evenhand's own words.

PandaLM      instruction, input, response1, response2, annotator1, annotator2, annotator3    (1, 2; 0 is a tie)
             (a response that is the word True stands there as JSON's true)
LLMBar       input, output_1, output_2, label                                              (1, 2)
AlpacaEval   instruction, output_1, output_2, preference, annotator_index or annotator     (1 to 2; 1.5 and 0 a tie)
MT-Bench     conversation_a, conversation_b, winner, judge, turn                 (model_a, model_b, tie)
             (judge is a name, or a list of a model's and its prompt's; Chatbot Arena's votes are in the same form)
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from typing import Any

from evenhand.io.pairs.outputs import Questions

Row = Mapping[str, Any]


def plain_row(row: Row) -> Row:
    """The row in evenhand's words, if it is of a known benchmark; else the row itself.

    >>> plain_row({"input": "Hi", "output_1": "x", "output_2": "y", "label": 2})["instruction"]
    'Hi'
    """
    for known, read in _FORMS:
        if all(name in row for name in known):
            return read(row)
    return row


def _pandalm(row: Row) -> Row:
    votes = {name: value for name, value in row.items() if re.fullmatch(r"annotator\d+", name)}
    return {
        "instruction": _whole(row),
        "output_1": _word(row["response1"]),
        "output_2": _word(row["response2"]),
        "human": {name: _number(value) for name, value in votes.items()},
    }


def _llmbar(row: Row) -> Row:
    return row if "instruction" in row else {**row, "instruction": row["input"], "label": _number(row["label"])}


def _alpaca_eval(row: Row) -> Row:
    rest = {name: value for name, value in row.items() if name not in ("preference", "input")}
    who = row.get("annotator", row.get("annotator_index"))
    named = {} if who in (None, "") else {"annotator": f"annotator {who}" if isinstance(who, int) else str(who)}
    return {**rest, **named, "instruction": _whole(row), "label": _preference(row["preference"])}


def _mt_bench(row: Row) -> Row:
    said = re.sub(r"^tie \(.*\)$", "tie", str(row["winner"]))  # (inconsistent), (bothbad)
    judge = row.get("judge")
    turns = Questions(turn=int(row.get("turn", 1)))
    return {
        "instruction": turns.text_of(_turns(row, "conversation_a", "user"), "conversation_a"),
        "output_1": turns.text_of(_turns(row, "conversation_a", "assistant"), "conversation_a"),
        "output_2": turns.text_of(_turns(row, "conversation_b", "assistant"), "conversation_b"),
        "label": {"model_a": "1", "model_b": "2", "error": None}.get(said, said),
        "annotator": " ".join(map(str, judge)) if isinstance(judge, list) else str(judge or ""),
    }


_FORMS: tuple[tuple[tuple[str, ...], Callable[[Row], Row]], ...] = (
    (("response1", "response2", "annotator1"), _pandalm),
    (("conversation_a", "conversation_b", "winner"), _mt_bench),
    (("instruction", "output_1", "output_2", "preference"), _alpaca_eval),
    (("input", "output_1", "output_2", "label"), _llmbar),
)


def _whole(row: Row) -> Any:
    """An instruction with what it is about, as the readers of outputs put them together."""
    more = row.get("input")
    if isinstance(more, str) and more.strip():
        return f"{row['instruction']}\n\n{more}"
    return row["instruction"]


def _preference(value: Any) -> str | None:
    """AlpacaEval's number: 1 for output_1, 2 for output_2, 1.5 or 0 for a tie, and anything between.

    >>> [_preference(x) for x in (1, 2.0, "1.5", 0, 1.8, None)]
    ['1', '2', 'tie', 'tie', '2', None]
    """
    if value is None or value == "":
        return None
    number = float(value)
    if math.isnan(number):
        return None
    if number in (0.0, 1.5):
        return "tie"
    if not 1 <= number <= 2:
        raise ValueError(f"field 'preference' is {value!r}, not from 1 to 2")
    return "1" if number < 1.5 else "2"


def _word(value: Any) -> Any:
    """A response that was the word True or False, and was made a truth value on its way into the file."""
    return str(value) if isinstance(value, bool) else value


def _number(value: Any) -> Any:
    """A whole number that a frame has made a float of: 1.0 -> 1."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _turns(row: Row, field: str, role: str) -> list[str]:
    turns = row[field]
    if not isinstance(turns, list) or not all(isinstance(turn, Mapping) for turn in turns):
        raise ValueError(f"field '{field}' is not a list of turns")
    texts = [turn.get("content") for turn in turns if turn.get("role") == role]
    if not texts or not all(isinstance(text, str) for text in texts):
        raise ValueError(f"field '{field}' has no text of the {role}")
    return [str(text) for text in texts]
