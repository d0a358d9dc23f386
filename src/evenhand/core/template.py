"""A template file, read into turns and questions; docs/templates.md describes the language.

read_template(text, file)  ->  the front matter, and a reader with the turns, the questions and the dialect
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from evenhand.core.answer_forms import EXAMPLES, AnswerForm, form_of
from evenhand.core.conversations import FIELDS
from evenhand.core.errors import TemplateError
from evenhand.core.fence import FENCES, FenceKind
from evenhand.core.markup import CHATML, DIALECTS, ROLES, Dialect, Role
from evenhand.core.pair import COMBINED, DIMENSIONS, GOOD_1, GOOD_2, POINTWISE_DIMENSIONS
from evenhand.core.pieces import Piece, Recall, Slot

SLOTS = ("instruction", "output_1", "output_2")
# Further slots, and the fields of a pair's row that fill them; {meta.topic} is the field topic.
MORE_SLOTS = {
    "system": ("system", "system_prompt"),
    "reference": ("reference", "reference_answer", "orig_reference_answer", "target"),
    "rubric": ("rubric", "criteria", "orig_criteria"),
    "conversation": FIELDS,  # and the instruction: `conversation_of`
}

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


def read_template(text: str, file: str) -> tuple[Mapping[str, str], TemplateReader]:
    """A template's front matter, and the reader that has read the rest; TemplateError where it makes no sense."""
    front, body, first_line = _front_matter(text.replace("\r\n", "\n"), file)
    reader = TemplateReader(file, front, first_line)
    reader.read(body)
    return front, reader


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


def with_fence(text: str, name: str, kind: FenceKind) -> str:
    r"""A template's text with another fence in its front matter, and another name where it has one.

    >>> with_fence("<|im_start|>user", "mine+word", "word")
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


class TemplateReader:
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
