"""Answers and verdicts as rows of the database, and back."""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal, cast

import orjson

from evenhand.core.engine import Answer, Token, Usage
from evenhand.core.pair import Pair
from evenhand.core.verdict import SAMPLE_BREAK, Label, Verdict, are_shares, invalid

AMONG = "(SELECT value FROM json_each(?))"  # the values of a list that is given as JSON
PAIR_COLUMNS = "instruction, output_1, output_2, name, model_1, model_2, labels, metadata, candidate"


def stored_pair(columns: Sequence[Any]) -> Pair:
    """A pair out of PAIR_COLUMNS.

    >>> stored_pair(["Hi", "x", "y", "p1", "m", "", '{"overall": "1"}', "{}", ""]).labels
    {'overall': '1'}
    """
    task, one, two, name, model_1, model_2, labels, metadata, candidate = columns
    return Pair(task, one, two, name, model_1, model_2, orjson.loads(labels), json.loads(metadata), candidate)


def pair_about(pair: Pair) -> tuple[str, str, str, str]:
    """What is known of a pair besides its texts, as columns.

    >>> pair_about(Pair("Hi", "x", "y", model_1="m", labels={"overall": "1"}))
    ('m', '', '{"overall":"1"}', '{}')
    """
    labels = orjson.dumps(dict(pair.labels)).decode() if pair.labels else "{}"
    metadata = json.dumps(dict(pair.metadata), default=str) if pair.metadata else "{}"
    return pair.model_1, pair.model_2, labels, metadata


def answer_row(conversation: int, question: int, answer: Answer) -> tuple[Any, ...]:
    """An answer as a row of `answers`."""
    usage = answer.usage
    return (
        *(
            conversation,
            question,
            answer.text,
            _json([(token.text, token.top) for token in answer.tokens]),
            answer.finish,
        ),
        *(_json(answer.samples), _json(answer.notes), usage.computed, usage.reused, usage.generated, time.time()),
    )


def answer_from(text: str, tokens: str, finish: str, samples: str, notes: str, *usage: int) -> Answer:
    """An answer out of its columns."""
    parts = tuple(Token(word, tuple((other, p) for other, p in top)) for word, top in orjson.loads(tokens))
    ending: Literal["stop", "length"] = "length" if finish == "length" else "stop"
    return Answer(text, parts, Usage(*usage), ending, tuple(orjson.loads(samples)), tuple(orjson.loads(notes)))


def said_text(text: str, samples: str) -> str:
    """What was said to one question, out of its columns; several samples stand in one text."""
    return text if samples == "[]" else SAMPLE_BREAK.join(orjson.loads(samples))


def verdict_row(conversation: int, verdict: Verdict) -> tuple[Any, ...]:
    """A verdict as a row of `verdicts`."""
    p = verdict.p or {}
    return (
        *(conversation, verdict.dimension, verdict.label, p.get("A"), p.get("B"), p.get("tie")),
        *(verdict.mass, verdict.invalid, verdict.counted),
    )


def verdict_from(
    dimension: str,
    label: str | None,
    a: float | None,
    b: float | None,
    tie: float | None,
    mass: float | None,
    reason: str | None,
    counted: int = 0,
    raw: str = "",
) -> Verdict:
    """A verdict out of its columns, and the text that it was read off; ValueError where its numbers are none."""
    p = None if a is None or b is None or tie is None else {"A": a, "B": b, "tie": tie}
    if p is not None and not are_shares(p.values()):
        raise ValueError(f"the probabilities of a verdict are {a}, {b} and {tie}")
    return Verdict(
        dimension,
        cast("Label | None", label),
        cast("Mapping[Label, float] | None", p),
        *(mass, reason, raw, bool(counted)),
    )


def absent(dimensions: Iterable[str], reason: str | None, detail: str | None) -> dict[str, Verdict]:
    """What stands in the place of verdicts that are not there."""
    missing = invalid(dimensions, reason or "not_asked", detail or "")
    return {verdict.dimension: verdict for verdict in missing}


def to_json(values: Iterable[Any]) -> str:
    """Values as a list in JSON.

    >>> to_json({1: "x", 2: "y"})
    '[1,2]'
    """
    return orjson.dumps(list(values)).decode()


def _json(value: Any) -> str:
    return orjson.dumps(value).decode() if value else "[]"
