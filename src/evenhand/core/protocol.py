"""What is asked: a template file read into turns, slots and questions.

    Protocol.load("chained")              a built-in one, or a path
    protocol.prompt(pair, order, 0)       the conversation up to the first question
    protocol.prompt(pair, order, 1, [..]) up to the second, the first answer standing in it

docs/templates.md describes the template language.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from itertools import takewhile
from pathlib import Path
from typing import Any, Literal

from evenhand.core.answer_forms import EXAMPLES, FREE_TOKENS, AnswerForm, form_of
from evenhand.core.conversations import FIELDS, conversation_of
from evenhand.core.errors import InputError, SpecError, TemplateError
from evenhand.core.fence import FENCES, OFF, Fence, FenceKind, lay_out
from evenhand.core.markup import CHATML, DIALECTS, ROLES, Dialect, Role, Span, Turn, merge
from evenhand.core.pair import COMBINED, DIMENSIONS, GOOD_1, GOOD_2, POINTWISE_DIMENSIONS, Pair, digest
from evenhand.core.pieces import Piece, Recall, Slot

Order = Literal["forward", "swapped"]
# The words that a question may be answered with: on two responses, and on one.
COMPARED = ("A", "B", "tie")
YES_OR_NO = ("yes", "no")
ORDERS: tuple[Order, ...] = ("forward", "swapped")
SLOTS = ("instruction", "output_1", "output_2")
# Further slots, and the fields of a pair's row that fill them; {meta.topic} is the field topic.
MORE_SLOTS = {
    "system": ("system", "system_prompt"),
    "reference": ("reference", "reference_answer", "orig_reference_answer", "target"),
    "rubric": ("rubric", "criteria", "orig_criteria"),
    "conversation": FIELDS,  # and the instruction: `conversation_of`
}
BUILT_IN = Path(__file__).parent / "protocols"
FORMS = BUILT_IN / "forms"
VARIANTS = BUILT_IN / "variants"

_MARKER = re.compile(r"<\|[A-Za-z0-9_]+\|>")
_RECALL = re.compile(r"<\|judgement_(\d+)\|>")
# The slots count wherever they stand, except in doubled braces. Another name in braces looks like a slot
# that was misspelt if it stands by itself: not ${x}, \frac{a}, f{x} or a single letter.
_SLOT = re.compile(
    r"\{\{[\w.]+\}\}|\{(instruction|output_1|output_2)\}"
    r"|(?<![\w$\\{}])\{(system|reference|rubric|conversation|meta(?:\.\w+)+)\}(?!\})"
    r"|(?<![\w$\\{}])\{([A-Za-z_][A-Za-z0-9_]+)\}(?!\})"
)
_QUESTION = re.compile(r"\bA\b.*\bB\b.*\btie\b.*\?", re.IGNORECASE)
_QUESTION_FORM = "a closing question such as 'Which is best on correctness: A, B, or tie?'"
_YES_OR_NO = re.compile(r"\byes\b.*\bno\b\W*$", re.IGNORECASE)
_ASKED_OF = {"A": GOOD_1, "B": GOOD_2}
_SHOWN_IN = {GOOD_1: "output_1", GOOD_2: "output_2"}  # the slot of the response that is asked about
_FRONT_KEYS = ("name", "description", "questions", "asks", "literal", "answer", "fence")
# What an older template calls its questions about one response.
_OLD_NAMES = {"alone": GOOD_1, "beside": GOOD_2}


@dataclass(frozen=True, slots=True)
class TemplateTurn:
    """One turn of a template, its slots still open."""

    role: Role
    pieces: tuple[Piece, ...]
    line: int


@dataclass(frozen=True, slots=True)
class Question:
    """A place where the judge answers: how many turns stand before it, and what it is asked.

    A template may hold several conversations, one after the other: `start` is the turn with which this one begins.
    """

    turns: int
    dimensions: tuple[str, ...]
    raw: tuple[Piece, ...] = field(repr=False)  # the file's own text from there up to here
    start: int = 0
    conversation: int = 0
    form: AnswerForm | None = field(default=None, repr=False)  # how the judge answers, if not with labels alone


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
            raise TemplateError(str(path), line, found="bytes that are no UTF-8", expected="text") from None

    @classmethod
    def parse(cls, text: str, *, name: str = "template", file: str = "template") -> Protocol:
        """Read a template; TemplateError names the line where it stops making sense.

        >>> Protocol.parse("<|im_start|>user\\n{instruction}<|im_end|>")
        Traceback (most recent call last):
        evenhand.core.errors.TemplateError: template:2: found no {output_1} before the judge is asked, expected ...
        """
        front, body, first_line = _front_matter(text.replace("\r\n", "\n"), file)
        reader = _Reader(file, front, first_line)
        reader.read(body)
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
        return Protocol.parse(_with_fence(self.text, name, kind), name=name, file=name)

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


class _Front(dict[str, str]):
    """The front matter's values, and the lines on which they stand."""

    def __init__(self) -> None:
        super().__init__()
        self.lines: dict[str, int] = {}


def _front_matter(text: str, file: str) -> tuple[_Front, str, int]:
    """Split off `key: value` lines between two lines of `---`; the body, and the line on which it begins."""
    if not text.startswith("---\n"):
        return _Front(), text, 1
    lines = text.split("\n")
    front = _Front()
    for number, line in enumerate(lines[1:], 2):
        if line.strip() == "---":
            return front, "\n".join(lines[number:]), number + 1
        key, colon, value = line.partition(":")
        if line.strip() and (not colon or key.strip() not in _FRONT_KEYS):
            raise TemplateError(
                file, number, found=repr(line), expected=f"one of {', '.join(_FRONT_KEYS)} and a colon"
            )
        if key.strip() in front:
            raise TemplateError(file, number, found=f"'{key.strip()}' a second time", expected="it once")
        if line.strip():
            front[key.strip()], front.lines[key.strip()] = value.strip(), number
    raise TemplateError(file, len(lines), found="the end of the file", expected="--- to close the front matter")


def _with_fence(text: str, name: str, kind: FenceKind) -> str:
    r"""A template's text with another fence in its front matter, and another name where it has one.

    >>> _with_fence("<|im_start|>user", "mine+word", "word")
    '---\nfence: word\n---\n<|im_start|>user'
    """
    lines = text.split("\n")
    end_of_line = "\r" * lines[0].endswith("\r")
    if lines[0].rstrip("\r") != "---":
        lines = [f"---{end_of_line}"] * 2 + lines
    end = next(number for number, line in enumerate(lines[1:], 1) if line.strip() == "---")
    keys = [line.partition(":")[0].strip() for line in lines]
    front = [
        f"name: {name}{end_of_line}" if keys[number] == "name" else lines[number]
        for number in range(1, end)
        if keys[number] != "fence"
    ]
    if kind != "off":
        front = [f"fence: {kind}{end_of_line}", *front]
    return "\n".join([lines[0], *front, *lines[end:]] if front else lines[end + 1 :])


class _Reader:
    """Reads a template from its beginning to its end, one marker after the other."""

    def __init__(self, file: str, front: _Front, first_line: int) -> None:
        self.file, self.front, self.line = file, front, first_line
        self.literal = set(re.split(r"[,\s]+", front.get("literal", "")))
        self.dialect: Dialect | None = None
        self.turns: list[TemplateTurn] = []
        self.questions: list[Question] = []
        self.raw: list[Piece] = []
        self.start = self.conversation = 0
        self.opened = 0  # where in `raw` the newest turn was opened
        self.role: Role | None = None  # of the turn that is open
        self.role_line = 0
        self.pieces: list[Piece] = []
        self.header: str | None = None  # collects the role's name between the header's markers
        self.question_line = 0  # where the last turn's text ends
        self.form = self._form()
        self.fence = self._fence()

    def read(self, body: str) -> None:
        """Read it all."""
        if not body.strip():
            raise self._error(found="an empty file", expected="turns in ChatML or Llama 3 markup")
        for part in re.split(f"({_MARKER.pattern})", body):
            if _MARKER.fullmatch(part):
                self._marker(part)
            else:
                self._text(part)
                self.line += part.count("\n")
        self._finish()

    def _form(self) -> AnswerForm | None:
        """The form of the answers that the front matter names."""
        example = self.front.get("answer")
        if example is None:
            return None
        try:
            return form_of(example)
        except ValueError:
            expected = f"an answer for A in one of the forms {', '.join(EXAMPLES)}"
            raise self._error(
                found=f"answer: {example}", expected=expected, line=self.front.lines["answer"]
            ) from None

    def _fence(self) -> FenceKind:
        """The fence that the front matter names."""
        named = self.front.get("fence", "off")
        for kind in FENCES:
            if named == kind:
                return kind
        expected = f"one of {', '.join(FENCES)}"
        raise self._error(found=f"fence: {named}", expected=expected, line=self.front.lines["fence"])

    def _error(self, *, found: str, expected: str, line: int | None = None, hint: str = "") -> TemplateError:
        return TemplateError(self.file, line or self.line, found=found, expected=expected, hint=hint)

    # -- markers ---------------------------------------------------------------------------------

    def _marker(self, marker: str) -> None:
        if self.header is not None and marker != "<|end_header_id|>":
            raise self._error(found=marker, expected="<|end_header_id|> behind the role's name")
        if marker == "<|im_break|>":
            self._break()
        elif recall := _RECALL.fullmatch(marker):
            self._recall(marker, int(recall[1]))
        else:
            self._settle_dialect(marker)
            self.raw.append(marker)
            if marker in ("<|im_start|>", "<|start_header_id|>"):
                self._open(marker)
            elif marker == "<|end_header_id|>":
                self._role_named(marker)
            elif marker in ("<|im_end|>", "<|eot_id|>"):
                self._close(marker)
            elif self.role is not None or self.turns:
                raise self._error(found=f"{marker} in the middle", expected="it at the very beginning")

    def _settle_dialect(self, marker: str) -> None:
        spoken = next((dialect for dialect in DIALECTS if marker in dialect.markers), None)
        if spoken is None:
            known = [m for dialect in DIALECTS for m in dialect.markers]
            raise self._error(found=marker, expected=f"one of {' '.join(known)} <|im_break|> <|judgement_1|>")
        if self.dialect is not None and spoken is not self.dialect:
            raise self._error(found=f"{marker} of {spoken.name}", expected=f"only {self.dialect.name}, as above")
        self.dialect = spoken

    def _open(self, marker: str) -> None:
        if self.role is not None:
            raise self._error(
                found=marker,
                expected=f"the end of the {self.role}'s turn that was opened on line {self.role_line}",
            )
        self.header, self.role_line, self.opened = "", self.line, len(self.raw) - 1

    def _role_named(self, marker: str) -> None:
        if self.header is None:
            raise self._error(found=marker, expected="<|start_header_id|> and a role before it")
        name, self.header = self.header.strip(), None
        if name not in ROLES:
            raise self._error(found=f"the role '{name}'", expected=f"one of {', '.join(ROLES)}")
        self.role, self.pieces = name, []
        if name == "system" and self.questions:
            self._begin_anew()

    def _begin_anew(self) -> None:
        """A system turn behind a question begins another conversation, which knows nothing of the one before."""
        self.start, self.conversation = len(self.turns), self.conversation + 1
        beginning = [piece for piece in self.raw if piece == "<|begin_of_text|>"]
        self.raw = beginning + self.raw[self.opened :]

    def _close(self, marker: str) -> None:
        if self.role is None:
            raise self._error(found=marker, expected="an open turn before it")
        self.turns.append(TemplateTurn(self.role, _trim(self.pieces), self.role_line))
        self.question_line = self.line - _trailing_lines(self.pieces)
        self.role = None

    def _break(self) -> None:
        if self.role == "assistant" and not _blank(self.pieces):
            raise self._error(found="text before <|im_break|> in the assistant's turn", expected="nothing there")
        if self.role in ("system", "user"):
            raise self._error(found=f"<|im_break|> inside the {self.role}'s turn", expected="the end of that turn")
        self._ask()

    def _recall(self, marker: str, number: int) -> None:
        if not 1 <= number <= len(self.questions):
            there = (
                f"at most <|judgement_{len(self.questions)}|>" if self.questions else "an <|im_break|> before it"
            )
            raise self._error(found=marker, expected=f"{there}: that answer does not exist yet")
        if self.role is None:
            raise self._error(found=f"{marker} outside a turn", expected="it inside a turn")
        self.pieces.append(Recall(number))
        self.raw.append(Recall(number))

    # -- text ------------------------------------------------------------------------------------

    def _text(self, text: str) -> None:
        if self.header is not None and self.dialect is CHATML:
            self.header, newline, text = text.partition("\n")
            self.raw.append(self.header + newline)
            self._role_named("<|im_start|>")
            self.line += len(newline)
            self._content(text)
            self.line -= len(newline)
        elif self.header is not None:
            self.header += text
            self.raw.append(text)
        else:
            self._content(text)

    def _content(self, text: str) -> None:
        pieces = list(self._pieces(text))
        if self.role is None and not _blank(pieces):
            raise self._error(
                found=f"text outside a turn: {text.strip()[:30]!r}",
                expected="<|im_start|> or <|start_header_id|> before it",
                line=self.line + _leading_lines(text),
            )
        if self.raw and self.raw[-1] == "":  # right behind an <|im_break|>: its own line break is not text
            self.raw.pop()
            pieces_raw = list(self._pieces(text.removeprefix("\n")))
        else:
            pieces_raw = pieces
        self.raw += pieces_raw
        if self.role is not None:
            self.pieces += pieces

    def _pieces(self, text: str) -> Iterator[Piece]:
        done = 0
        for match in _SLOT.finditer(text):
            slot, other = match[1] or match[2], match[3]
            if other and other not in self.literal:
                raise self._error(
                    found=match[0],
                    expected=", ".join(f"{{{slot}}}" for slot in (*SLOTS, *MORE_SLOTS, "meta.FIELD")),
                    line=self.line + text[: match.start()].count("\n"),
                    hint=f"if it is meant as text, say 'literal: {other}' in the front matter",
                )
            if slot and slot not in self.literal:
                yield text[done : match.start()]
                yield Slot(slot)
                done = match.end()
        yield text[done:]

    # -- questions -------------------------------------------------------------------------------

    def _ask(self) -> None:
        if not self.turns or self.turns[-1].role != "user":
            raise self._error(found="no question before the judge is asked", expected="a user's turn")
        names = {p.name for turn in self.turns[self.start :] for p in turn.pieces if isinstance(p, Slot)}
        # A conversation ends on the instruction.
        shown = [s for s in SLOTS if s in names or (s == "instruction" and "conversation" in names)]
        asked_of = None if self.form else _about_one(_closing(self.turns[-1]), shown)
        wanted = ("instruction", _SHOWN_IN[asked_of]) if asked_of else SLOTS
        missing = [s for s in wanted if s not in shown]
        if missing:
            raise self._error(
                found=f"no {{{missing[0]}}} before the judge is asked",
                expected="the instruction and the response that is asked about"
                if asked_of
                else "all of the pair before the first question",
            )
        raw = list(self.raw)
        if self.role != "assistant" and self.dialect:
            raw.append("\n" * (self.dialect is CHATML and not str(raw[-1]).endswith("\n")))
            raw.append(self.dialect.open("assistant"))
        dimensions = self._dimensions(self.turns[-1], asked_of)
        self._refuse_twice_asked(dimensions)
        own = tuple(p for p in raw if p != "")
        if self.form and len(dimensions) > 1:
            raise self._error(
                found=f"{', '.join(dimensions)} in one question", expected="one, as 'answer' holds one"
            )
        self.questions.append(Question(len(self.turns), dimensions, own, self.start, self.conversation, self.form))
        self.raw.append("")  # marks the break

    def _dimensions(self, turn: TemplateTurn, asked_of: str | None) -> tuple[str, ...]:
        if self._list_key in self.front:
            return self._named_outright(len(self.questions), asked_of)
        if asked_of:
            return (asked_of,)
        closing = _closing(turn)
        if self.form:
            return ("overall",)
        if not _QUESTION.search(closing):
            raise self._error(
                found=f"no question: the turn ends on {closing[-60:]!r}",
                expected=_QUESTION_FORM,
                line=self.question_line,
            )
        named = re.findall(rf"\b(?:{'|'.join(DIMENSIONS)})\b", closing.lower())
        return tuple(named) or ("overall",)

    @property
    def _list_key(self) -> str:
        """What the front matter calls its list of questions: `questions`, or `asks` in an older template."""
        return "asks" if "asks" in self.front and "questions" not in self.front else "questions"

    def _named_outright(self, index: int, asked_of: str | None) -> tuple[str, ...]:
        """What the front matter says; a question that asks yes or no of one response has its own name."""
        named = [re.split(r"[,\s]+", part.strip()) for part in self.front[self._list_key].split(";")]
        questions = [[_OLD_NAMES.get(name, name) for name in names] for names in named]
        if index >= len(questions):
            raise self._error(
                found=f"question number {index + 1}",
                expected=f"{len(questions)}, as '{self._list_key}' in the front matter says",
            )
        bad = [name for name in questions[index] if not re.fullmatch(r"[a-z][a-z0-9_]*", name) or name == COMBINED]
        if bad:
            expected = f"a lower-case word other than '{COMBINED}', which is worked out from the others"
            raise self._error(
                found=f"the dimension {bad[0]!r}", expected=expected, line=self.front.lines[self._list_key]
            )
        if asked_of and questions[index] != [asked_of]:
            expected = f"'{asked_of}', as it asks yes or no of one response"
            raise self._error(
                found=f"{', '.join(questions[index])!r}", expected=expected, line=self.front.lines[self._list_key]
            )
        if not asked_of and (of_one := set(questions[index]) & set(POINTWISE_DIMENSIONS)):
            expected = "a closing question such as 'Is response A correct: yes or no?'"
            raise self._error(
                found=f"{min(of_one)!r} for another question", expected=expected, line=self.question_line
            )
        return tuple(questions[index])

    def _finish(self) -> None:
        if self.header is not None:
            raise self._error(found="the end of the file", expected="the role's name and the rest of the turn")
        # A closing assistant header is optional; the engine opens the turn either way.
        if self.role is not None and not (self.role == "assistant" and _blank(self.pieces)):
            raise self._error(
                found="the end of the file",
                expected=f"the end of the {self.role}'s turn that was opened on line {self.role_line}",
            )
        asked_last = bool(self.questions) and self.questions[-1].turns == len(self.turns)
        if self.turns and self.turns[-1].role == "user" and not asked_last:
            self._ask()
        if not self.questions:
            raise self._error(found="no question: no user's turn at the end", expected=_QUESTION_FORM)
        said = self.front.get(self._list_key)
        if said and len(said.split(";")) != len(self.questions):
            raise self._error(
                found=f"{len(said.split(';'))} questions in the front matter",
                expected=f"{len(self.questions)}, as many as in the conversation",
                line=self.front.lines[self._list_key],
            )

    def _refuse_twice_asked(self, dimensions: Sequence[str]) -> None:
        every = [dimension for question in self.questions for dimension in question.dimensions] + list(dimensions)
        twice = next((dimension for dimension in every if every.count(dimension) > 1), None)
        if twice:
            line = self.front.lines.get(self._list_key, self.question_line)
            raise self._error(found=f"'{twice}' asked twice", expected="each dimension once", line=line)


def _closing(turn: TemplateTurn) -> str:
    """The last line of a turn, where its question stands."""
    text = "".join(piece if isinstance(piece, str) else "\x00" for piece in turn.pieces)
    return text.rstrip().rsplit("\n", 1)[-1]


def _about_one(question: str, shown: Sequence[str]) -> str | None:
    """What a question is called that asks yes or no of one response; None of any other.

    It names the response, or only one has been shown.

    >>> _about_one("Is response B correct: yes or no?", SLOTS), _about_one("Is it correct: yes or no?", SLOTS)
    ('good_2', None)
    >>> _about_one("Is it correct: yes or no?", ["instruction", "output_1"])
    'good_1'
    """
    if _QUESTION.search(question) or not _YES_OR_NO.search(question):
        return None
    named = {letter.upper() for letter in re.findall(r"\bresponse ([AB])\b", question, re.IGNORECASE)}
    meant = {_ASKED_OF[letter] for letter in named} or {name for name, slot in _SHOWN_IN.items() if slot in shown}
    return meant.pop() if len(meant) == 1 else None


def _blank(pieces: Sequence[Piece]) -> bool:
    return all(isinstance(piece, str) and not piece.strip() for piece in pieces)


def _leading_lines(text: str) -> int:
    return text[: len(text) - len(text.lstrip())].count("\n")


def _trailing_lines(pieces: Sequence[Piece]) -> int:
    last = next((piece for piece in reversed(pieces) if piece != ""), "")
    return last[len(last.rstrip()) :].count("\n") if isinstance(last, str) else 0


def _trim(pieces: Sequence[Piece]) -> tuple[Piece, ...]:
    """Drop the line breaks next to a turn's markers: they belong to the markup, not to the content."""
    trimmed: list[Piece] = []
    for piece in pieces:  # an <|im_break|> may have cut a text in two
        if isinstance(piece, str) and trimmed and isinstance(trimmed[-1], str):
            trimmed[-1] += piece
        else:
            trimmed.append(piece)
    if trimmed and isinstance(trimmed[0], str):
        trimmed[0] = trimmed[0].lstrip("\n")
    if trimmed and isinstance(trimmed[-1], str):
        trimmed[-1] = trimmed[-1].rstrip()
    return tuple(piece for piece in trimmed if piece != "")
