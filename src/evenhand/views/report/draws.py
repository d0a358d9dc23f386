"""The pairs that a report lists as examples: chosen by `evenhand.results.examples`, with a line of their text."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from evenhand.core.pair import Pair, Side
from evenhand.results.examples import ExampleKind, ExamplePair, Examples
from evenhand.store.records import PairReader

EXCERPT = 160  # characters of an instruction
_OF_THE_PAGE = {"json": False}


@dataclass(frozen=True, slots=True)
class ExampleLine:
    """A pair of one kind, as a list shows it."""

    id: str
    verdict: str  # a side, or "invalid"
    p: Mapping[Side, float] | None  # of both orders together, by side
    people: Side | None
    invalid_reason: str | None
    number: int = field(metadata=_OF_THE_PAGE)
    excerpt: str = field(metadata=_OF_THE_PAGE)
    models: tuple[str, str] = field(metadata=_OF_THE_PAGE)


def example_lines(examples: Examples, pairs: PairReader) -> Mapping[ExampleKind, tuple[ExampleLine, ...]]:
    """The examples of each kind with their texts, of which one is read at a time."""
    return {
        kind: tuple(_line(pair, example) for example in few if (pair := pairs.pair(example.number)))
        for kind, few in examples.found().items()
    }


def _line(pair: Pair, example: ExamplePair) -> ExampleLine:
    outcome = example.outcome
    return ExampleLine(
        pair.id,
        outcome.side or "invalid",
        outcome.p,
        example.known,
        outcome.reason,
        example.number,
        excerpt_of(pair),
        (pair.model_1, pair.model_2),
    )


def excerpt_of(pair: Pair) -> str:
    """The beginning of an instruction in one line.

    >>> excerpt_of(Pair("Say\\n hi.", "x", "y"))
    'Say hi.'
    """
    text = " ".join(pair.instruction[: 4 * EXCERPT].split())
    return text if len(text) <= EXCERPT else f"{text[: EXCERPT - 1]}…"
