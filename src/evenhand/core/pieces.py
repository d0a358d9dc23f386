"""The parts of a template's turn: text of its own, places for texts of the pair, and places for answers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, slots=True)
class Slot:
    """A place for a text of the pair."""

    name: str


@dataclass(frozen=True, slots=True)
class Recall:
    """A place for the answer to an earlier question, counted from 1."""

    question: int


@dataclass(frozen=True, slots=True)
class FencePiece:
    """A place for text of the fence: what opens or closes it, or the sentence that says where it ended."""

    part: Literal["open", "close", "end"]


Piece = str | Slot | Recall | FencePiece
