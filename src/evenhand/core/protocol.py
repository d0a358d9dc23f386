"""What is asked: a template as a protocol, which turns a pair into prompts.

    Protocol.load("chained")              a built-in one, or a path
    protocol.prompt(pair, order, 0)       the conversation up to the first question
    protocol.prompt(pair, order, 1, [..]) up to the second, the first answer standing in it

The file itself is read in template.py.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from itertools import takewhile
from pathlib import Path
from typing import Any, Literal

from evenhand.core.answer_forms import FREE_TOKENS
from evenhand.core.conversations import conversation_of
from evenhand.core.errors import InputError, SpecError, TemplateError
from evenhand.core.fence import OFF, Fence, FenceKind, lay_out
from evenhand.core.markup import CHATML, Dialect, Span, Turn, merge
from evenhand.core.pair import POINTWISE_DIMENSIONS, Pair, digest
from evenhand.core.pieces import Piece, Recall, Slot
from evenhand.core.template import MORE_SLOTS, SLOTS, Question, TemplateTurn, read_template, with_fence

Order = Literal["forward", "swapped"]
# The words that a question may be answered with: on two responses, and on one.
COMPARED = ("A", "B", "tie")
YES_OR_NO = ("yes", "no")
ORDERS: tuple[Order, ...] = ("forward", "swapped")
BUILT_IN = Path(__file__).parent / "protocols"
FORMS = BUILT_IN / "forms"
VARIANTS = BUILT_IN / "variants"


@dataclass(frozen=True, slots=True)
class Prompt:
    """What an engine is given: a conversation that wants an answer of `verdicts` labels, which are among `words`.

    `raw` holds the file's own markup, for a user who wants it sent as it is. `lead` are the turns at its beginning
    that are the same for every pair: the same object each time, so that an engine can know it again. `conversation`
    tells conversations of a protocol apart, which have little in common and are asked in turn. `room` is how many
    tokens an answer may have that is in a form of its own, 0 where it is labels alone.
    """

    turns: tuple[Turn, ...]
    verdicts: int = 1
    raw: tuple[Span, ...] | None = None
    lead: tuple[Turn, ...] = field(default=(), repr=False, compare=False)
    words: tuple[str, ...] = COMPARED
    conversation: int = field(default=0, compare=False)
    room: int = 0


@dataclass(frozen=True)
class Protocol:
    """A template that was understood."""

    name: str
    text: str
    dialect: Dialect
    turns: tuple[TemplateTurn, ...]
    questions: tuple[Question, ...]
    description: str = ""
    fence: FenceKind = "off"  # how the pair's texts are set off from the template's own lines

    @classmethod
    def load(cls, name: str | Path) -> Protocol:
        """A built-in protocol by its name, or a template file by its path.

        >>> Protocol.load("chained").dimensions
        ('precision', 'correctness', 'format', 'overall')
        """
        folder = next((each for each in (BUILT_IN, FORMS, VARIANTS) if str(name) in _names_in(each)), None)
        path = folder / f"{name}.txt" if folder else Path(name)
        if not path.is_file():
            raise _unknown(str(name))
        try:
            return cls.parse(path.read_bytes().decode("utf-8-sig"), name=path.stem, file=str(name))
        except UnicodeDecodeError as fault:
            line = path.read_bytes()[: fault.start].count(b"\n") + 1
            raise TemplateError(str(path), line, found="bytes that are not UTF-8", expected="text") from None

    @classmethod
    def parse(cls, text: str, *, name: str = "template", file: str = "template") -> Protocol:
        """Read a template; TemplateError names the line where it stops making sense.

        >>> Protocol.parse("<|im_start|>user\\n{instruction}<|im_end|>")
        Traceback (most recent call last):
        evenhand.core.errors.TemplateError: template:2: found no {output_1} before the judge is asked, expected ...
        """
        front, reader = read_template(text, file)
        return cls(
            name=front.get("name", name),
            text=text,
            dialect=reader.dialect or CHATML,
            turns=tuple(reader.turns),
            questions=tuple(reader.questions),
            description=front.get("description", ""),
            fence=reader.fence,
        )

    def fenced(self, kind: FenceKind) -> Protocol:
        """The same protocol with another fence around the pair's texts; its name says so.

        >>> fenced = Protocol.load("overall").fenced("word")
        >>> fenced.name, fenced.fence, fenced.fenced("off").text == Protocol.load("overall").text
        ('overall+word', 'word', True)
        """
        if kind == self.fence:
            return self
        name = fenced_name(self.name, self.fence, kind)
        return Protocol.parse(with_fence(self.text, name, kind), name=name, file=name)

    @cached_property
    def _laid(self) -> tuple[tuple[Piece, ...], ...]:
        """The pieces of each turn, with the fence's between them."""
        return tuple(lay_out(turn.pieces, self.fence) for turn in self.turns)

    @cached_property
    def dimensions(self) -> tuple[str, ...]:
        """The dimensions in the order in which they are asked."""
        return tuple(dimension for question in self.questions for dimension in question.dimensions)

    def last_questions(self, answered: int | None = None) -> list[int]:
        """The last question of each conversation, or the last that was answered if only so many were; one at least.

        >>> Protocol.load("weighed").last_questions(), Protocol.load("weighed").last_questions(0)
        ([0, 4], [0])
        """
        questions = self.questions if answered is None else self.questions[: max(answered, 1)]
        return list({question.conversation: number for number, question in enumerate(questions)}.values())

    @cached_property
    def _fixed(self) -> tuple[Turn | None, ...]:
        """The turns that are the same for every pair, made once: a worked example is many of them."""
        return tuple(
            Turn(turn.role, _fill(turn.pieces, {}, ())) if all(isinstance(p, str) for p in turn.pieces) else None
            for turn in self.turns
        )

    @cached_property
    def _leads(self) -> dict[int, tuple[Turn, ...]]:
        """Those of them that stand before anything of the pair, the rubric and the worked examples as a rule.

        They are found by the turn with which their conversation begins.
        """
        starts = {question.start for question in self.questions}
        return {start: tuple(turn for turn in takewhile(bool, self._fixed[start:]) if turn) for start in starts}

    @cached_property
    def fingerprint(self) -> str:
        """The hash of the text and of what this program makes of it.

        The second half means that a change in how templates are rendered is another protocol too, so that a
        stored verdict never answers for a conversation that would look different today.
        """
        probe = dict(zip(SLOTS, ("\x00i", "\x00a", "\x00b"), strict=True)) | {
            name: f"\x00{name}" for name in self.more
        }
        prompts = [self._filled(probe, k, ["A"] * k, raw=False) for k in range(len(self.questions))]
        turns = [
            (turn.role, str(span.trusted), span.text) for p in prompts for turn in p.turns for span in turn.spans
        ]
        return digest(self.text, *(part for turn in turns for part in turn))

    def prompt(
        self, pair: Pair, order: Order, question: int = 0, answers: Sequence[str] = (), *, raw: bool = False
    ) -> Prompt:
        """The conversation up to a question, with the pair and the earlier answers in their places.

        >>> pair = Pair("Hi", "Hello.", "Yo.")
        >>> Protocol.load("overall").prompt(pair, "swapped").turns[-1].text.split("\\n")[-4:]
        ['## Response B:', 'Hello.', '', 'Best overall: A, B, or tie?']
        """
        shown_a, shown_b = pair.shown(order)
        texts = dict(zip(SLOTS, (pair.instruction, shown_a, shown_b), strict=True))
        return self._filled(texts | self.more_texts(pair) if self.more else texts, question, answers, raw=raw)

    @cached_property
    def more(self) -> tuple[str, ...]:
        """The slots besides those of the pair's three texts, in alphabetical order.

        >>> Protocol.load("overall").more
        ()
        """
        pieces = (piece for turn in self.turns for piece in turn.pieces)
        return tuple(sorted({piece.name for piece in pieces if isinstance(piece, Slot)} - set(SLOTS)))

    def more_texts(self, pair: Pair) -> dict[str, str]:
        """What fills those slots; InputError where a pair has nothing for one of them."""
        return {name: _slot_text(pair, name, self.name) for name in self.more}

    def shown_texts(self, pair: Pair) -> tuple[str, ...]:
        """Every text of a pair that the judge is shown: what it repeats of them is no word of its own."""
        try:
            return (*pair.texts, *self.more_texts(pair).values()) if self.more else pair.texts
        except InputError:  # a field that the pair had when it was judged
            return pair.texts

    def _filled(self, texts: dict[str, str], question: int, answers: Sequence[str], *, raw: bool) -> Prompt:
        place = self.questions[question]
        lead = self._leads[place.start]
        begin, end = place.start + len(lead), place.turns
        fence = Fence.around(self.fence, self.text, texts) if self.fence != "off" else OFF
        turns = lead + tuple(
            fixed or Turn(turn.role, _fill(pieces, texts, answers, fence))
            for fixed, turn, pieces in zip(
                self._fixed[begin:end], self.turns[begin:end], self._laid[begin:end], strict=True
            )
        )
        own = _fill(lay_out(place.raw, self.fence), texts, answers, fence) if raw else None
        words = YES_OR_NO if place.dimensions[0] in POINTWISE_DIMENSIONS else COMPARED
        room = 0 if place.form is None else FREE_TOKENS if place.form.free else 4
        return Prompt(turns, len(place.dimensions), own, lead, words, place.conversation, room)


def fenced_name(name: str, fence: FenceKind, other: FenceKind) -> str:
    """What a protocol with one fence is called when it has another.

    >>> fenced_name("overall", "off", "word"), fenced_name("overall+word", "word", "off")
    ('overall+word', 'overall')
    """
    plain = name.removesuffix(f"+{fence}")
    return plain if other == "off" else f"{plain}+{other}"


def built_in_names() -> list[str]:
    """The names of the protocols that come with the package.

    >>> built_in_names()
    ['chained', 'correctness', 'format', 'four', 'holistic', 'overall', 'precision', 'weighed']
    """
    return _names_in(BUILT_IN)


def form_names() -> list[str]:
    """The names of built-in protocols whose answers have a form of their own, most of them that of another tool.

    >>> form_names()
    ['alpaca-eval', 'arena-hard', 'explained', 'judgebench', 'mt-bench', 'prometheus-2']
    """
    return _names_in(FORMS)


def variant_names() -> list[str]:
    """The names of built-in protocols that show the judge more of a pair than its three texts.

    >>> variant_names()
    ['reference', 'turns']
    """
    return _names_in(VARIANTS)


def _names_in(folder: Path) -> list[str]:
    return sorted(path.stem for path in folder.glob("*.txt"))


def _slot_text(pair: Pair, slot: str, protocol: str) -> str:
    """The text of a slot out of a pair's other fields."""
    if slot == "conversation":
        return conversation_of(pair)
    names = MORE_SLOTS.get(slot) or (slot.removeprefix("meta."),)
    for name in names:
        value: Any = pair.metadata
        for part in [name] if name in pair.metadata else name.split("."):
            value = value.get(part) if isinstance(value, Mapping) else None
        if isinstance(value, str | int | float) and value != "":
            return str(value)
    raise InputError(
        f"pair '{pair.id}' has nothing for {{{slot}}}, which protocol {protocol} shows the judge",
        hint=f"give each row a field {' or '.join(repr(name) for name in names)} with text",
    )


def _unknown(name: str) -> SpecError:
    near = difflib.get_close_matches(name, [*built_in_names(), *form_names(), *variant_names()], 1)
    hint = f"did you mean '{near[0]}'?" if near else f"built in: {', '.join(built_in_names())}; or give a file"
    return SpecError(f"no protocol and no file is called '{name}'", hint=hint)


def _fill(
    pieces: Sequence[Piece], texts: Mapping[str, str], answers: Sequence[str], fence: Fence = OFF
) -> tuple[Span, ...]:
    """Put texts and answers in their places, in one pass: what is filled in is never looked at again."""
    return merge(
        [
            _ours(piece)
            if isinstance(piece, str)
            else Span(fence.shown(texts[piece.name]), trusted=False)
            if isinstance(piece, Slot)
            else _ours(answers[piece.question - 1])
            if isinstance(piece, Recall)
            else Span(fence.text(piece), trusted=True)
            for piece in pieces
        ]
    )


@lru_cache(maxsize=1024)
def _ours(text: str) -> Span:
    """A trusted span, made once: a template has few, and every prompt needs them."""
    return Span(text, trusted=True)
