"""The very conversation that a judge saw, in pieces: what is ours, what is theirs, what was answered."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from evenhand.core.engine import Answer, note_text
from evenhand.core.markup import Span
from evenhand.core.pair import Pair
from evenhand.core.protocol import Order, Protocol
from evenhand.core.verdict import Verdict, read_answer
from evenhand.views.web.text import cut

PieceKind = Literal["ours", "theirs", "answer"]
PIECE_LIMIT = 20_000  # characters that a page shows of one piece
# Stand around an earlier answer while it is put in its place; no template and no answer holds these.
_OPEN, _CLOSE = "\ue0f0", "\ue0f1"


@dataclass(frozen=True, slots=True)
class Piece:
    """A piece of a turn; `left_out` characters of it are not shown."""

    kind: PieceKind
    text: str
    left_out: int = 0


@dataclass(frozen=True, slots=True)
class ShownTurn:
    """One turn. What stands before the pair is the same for every pair: `common`."""

    role: str
    pieces: tuple[Piece, ...]
    common: bool = False


@dataclass(frozen=True, slots=True)
class ConversationView:
    """All turns up to the last answer, the verdicts read off it, and what was done to the prompt on its way."""

    turns: tuple[ShownTurn, ...]
    verdicts: tuple[Verdict, ...]
    notes: tuple[str, ...]


def conversation_view(
    protocol: Protocol, pair: Pair, order: Order, answers: Sequence[Answer], *, raw: bool
) -> ConversationView:
    """One conversation up to its last answer, or up to the first question if there is none.

    >>> protocol = Protocol.load("overall")
    >>> view = conversation_view(protocol, Pair("Hi", "Hello.", "Yo."), "forward", [Answer("A")], raw=False)
    >>> view.turns[-1]
    ShownTurn(role='assistant', pieces=(Piece(kind='answer', text='A', left_out=0),), common=False)
    >>> [piece.text for piece in view.turns[-2].pieces if piece.kind == "theirs"]
    ['Hi', 'Hello.', 'Yo.']
    """
    asked = zip(answers, protocol.questions, strict=False)
    shown = protocol.shown_texts(pair)
    read = [read_answer(answer, question.dimensions, shown, question.form) for answer, question in asked]
    said = [_OPEN + ", ".join(v.word for v in verdicts) + _CLOSE for verdicts in read]
    turns: list[ShownTurn] = []
    for last in protocol.last_questions(len(answers)):
        prompt = protocol.prompt(pair, order, last, said, raw=raw)
        if prompt.raw is not None:
            given = [ShownTurn("as sent", tuple(_pieces(prompt.raw)))]
        else:
            given = [ShownTurn(turn.role, tuple(_pieces(turn.spans))) for turn in prompt.turns]
        turns += _mark_common(given)
        if answers:
            turns.append(ShownTurn("assistant", (_piece("answer", answers[last].text),)))
    notes = tuple(dict.fromkeys(note_text(note) for answer in answers for note in answer.notes))
    return ConversationView(tuple(turns), tuple(v for verdicts in read for v in verdicts), notes)


def _mark_common(turns: Sequence[ShownTurn]) -> list[ShownTurn]:
    first = next((i for i, turn in enumerate(turns) if any(p.kind == "theirs" for p in turn.pieces)), len(turns))
    return [ShownTurn(turn.role, turn.pieces, i < first) for i, turn in enumerate(turns)]


def _pieces(spans: Sequence[Span]) -> Iterator[Piece]:
    for span in spans:
        if not span.trusted:
            yield _piece("theirs", span.text)
            continue
        for part in span.text.split(_OPEN):
            answer, sign, ours = part.rpartition(_CLOSE)
            if sign:
                yield Piece("answer", answer)
            if ours:
                yield Piece("ours", ours)


def _piece(kind: PieceKind, text: str) -> Piece:
    return Piece(kind, *cut(text, PIECE_LIMIT))
