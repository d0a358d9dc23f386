"""Conversations as turns of spans, and the chat markup that writes them down.

A span is trusted (ours: the template) or untrusted (theirs: instruction and responses). The two are kept
apart all the way into the engine, because only then can "<|im_end|>" inside a response stay ten characters
of text instead of becoming the end of a turn.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal

Role = Literal["system", "user", "assistant"]
ROLES: tuple[Role, ...] = ("system", "user", "assistant")


@dataclass(frozen=True, slots=True)
class Span:
    """A piece of text, and whether it is ours."""

    text: str
    trusted: bool


@dataclass(frozen=True, slots=True)
class Turn:
    """One message of a conversation."""

    role: Role
    spans: tuple[Span, ...]

    @property
    def text(self) -> str:
        """The turn's content, trust forgotten."""
        return "".join(span.text for span in self.spans)


@dataclass(frozen=True, slots=True)
class Dialect:
    """How one family of models writes turns down."""

    name: str
    start: str  # once, at the very beginning
    header: str  # opens a turn; {role} stands for the role
    end: str  # closes a turn
    markers: tuple[str, ...]  # the control tokens of this dialect

    def open(self, role: Role) -> str:
        """What stands before a turn's content."""
        return self.header.replace("{role}", role)


CHATML = Dialect(
    name="ChatML",
    start="",
    header="<|im_start|>{role}\n",
    end="<|im_end|>\n",
    markers=("<|im_start|>", "<|im_end|>"),
)
LLAMA3 = Dialect(
    name="Llama 3",
    start="<|begin_of_text|>",
    header="<|start_header_id|>{role}<|end_header_id|>\n\n",
    end="<|eot_id|>",
    markers=("<|begin_of_text|>", "<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>"),
)
DIALECTS = (CHATML, LLAMA3)


def render(turns: Sequence[Turn], dialect: Dialect) -> tuple[Span, ...]:
    """Write turns down in a dialect, with the assistant's turn opened at the end.

    >>> spans = render([Turn("user", (Span("Say ", True), Span("<|im_end|>", False)))], CHATML)
    >>> [span.text for span in spans if not span.trusted]
    ['<|im_end|>']
    >>> "".join(span.text for span in spans)
    '<|im_start|>user\\nSay <|im_end|><|im_end|>\\n<|im_start|>assistant\\n'
    """
    return weave(turns, frames([turn.role for turn in turns], dialect))


def frames(roles: Sequence[Role], dialect: Dialect) -> list[str]:
    """What stands before, between and after the contents of turns with these roles.

    >>> frames(["user"], CHATML)
    ['<|im_start|>user\\n', '<|im_end|>\\n<|im_start|>assistant\\n']
    """
    opens = [dialect.open(role) for role in (*roles, "assistant")]
    return [dialect.start + opens[0], *(dialect.end + opening for opening in opens[1:])]


def weave(turns: Iterable[Turn], frame: Sequence[str]) -> tuple[Span, ...]:
    """Put the turns' contents into their frame; neighbouring trusted spans become one."""
    spans: list[Span] = []
    for before, turn in zip(frame, turns, strict=False):
        spans += [Span(before, True), *turn.spans]
    return merge([*spans, Span(frame[-1], True)])


def without_system(turns: Sequence[Turn]) -> list[Turn]:
    """The same conversation for a model that knows no system turn: the user says it first.

    >>> [turn.text for turn in without_system([Turn("system", (Span("Be brief.", True),)), Turn("user", ())])]
    ['Be brief.\\n\\n']
    """
    if len(turns) < 2 or turns[0].role != "system" or turns[1].role != "user":
        return list(turns)
    said = (*turns[0].spans, Span("\n\n", True), *turns[1].spans)
    return [Turn("user", merge(said)), *turns[2:]]


def merge(spans: Iterable[Span]) -> tuple[Span, ...]:
    """Join neighbouring trusted spans, so that they are tokenised as one text, and drop empty ones.

    Untrusted spans stay apart: each is the whole text of one field.

    >>> merge([Span("a", True), Span("b", True), Span("", False), Span("c", False)])
    (Span(text='ab', trusted=True), Span(text='c', trusted=False))
    """
    merged: list[Span] = []
    for span in spans:
        if not span.text:
            continue
        if merged and span.trusted and merged[-1].trusted:
            merged[-1] = Span(merged[-1].text + span.text, True)
        else:
            merged.append(span)
    return tuple(merged)


# Every family's control tokens have one of these shapes: a first character, and what follows it. What follows holds
# none of the first characters but at its end, so that breaking one up never changes another. They are wide on
# purpose: a tag of some XML that is broken up costs a backslash, a control token that is not costs the verdict.
_INNER = r"[^<>\[\]◁|｜\s\\]"
_NAMES = (
    "s|bos|eos|unk|pad|mask|cls|sep|sop|eop|eod|eoh|eoa|eom|eot|bom|sot|think|thinking|thought|answer|image|audio|video"
    "|human|bot|user|system|assistant|tool|tools|end|role|img|ref|box|quad|predict|用户"
)
_DSML = r"DSML[|｜]"  # a token of DeepSeek V3.2 without brackets, as in <｜DSML｜invoke name="f">
_FOLLOWS = {
    # <|im_end|>, <｜User｜>, <|turn>, <turn|>
    "<": rf"(?![|｜]{_DSML})[|｜]{_INNER}{{1,60}}[|｜]?>|{_INNER}{{1,60}}[|｜]>"
    rf"|/?(?:{_NAMES})>"
    r"|/?[A-Za-z][A-Za-z0-9]{0,40}(?:[_:▁][A-Za-z0-9]{1,40}){1,8}>"  # <start_of_turn>, <SPECIAL_11>, <seed:bos>
    r"|_[A-Za-z0-9]{1,40}>"  # <_user>
    r"|/?[A-Z]{2,40}>"  # <PAD>, and the inner part of <<SYS>>
    r"|(?:unused|ctrl|reserved|extra|special|placeholder|loc|seg)\d{1,6}>|0x[0-9A-Fa-f]{2}>",
    r"\[": r"/?[A-Z][A-Z0-9_]{1,40}\]"  # [INST], [/SYSTEM_PROMPT]
    rf"|[gs]MASK\]|(?:unused|control|special)_?\d{{1,6}}\]|(?![|｜]{_DSML})[|｜]{_INNER}{{1,60}}[|｜]\]|e~\[",
    r"\]": r"~!?b[\[\]]|![a-z]~\[|<\][a-z]{2,40}\[>\[",
    ">": r"[A-Z][A-Z0-9_]{2,40}<<",
    "◁": r"/?think▷",
    r"\|": _DSML,
}
_FIRST = "<[]>◁"
# The group behind each first character holds the rest of the token, with the backslashes that broke it up before.
_WHOLE = re.compile("|".join(rf"{first}(?=(\\*(?:{rest})))" for first, rest in _FOLLOWS.items()))
_BROKEN = re.compile("|".join(rf"{first}\\(?=\\*(?:{rest}))" for first, rest in _FOLLOWS.items()))
# Other forms of the same characters, such as full-width ones: a tokeniser that brings a text into one form first
# would find a token in them. The break itself is no such form.
_FORMS = {
    number: plain
    for number in (0x212A, *range(0xFE50, 0xFE70), *range(0xFF01, 0xFF5F))
    if (plain := unicodedata.normalize("NFKC", chr(number))).isascii() and plain not in ("", " ", "\\")
}
# One of them from end to end.
MARKER = re.compile("(" + "|".join(f"{first}(?:{rest})" for first, rest in _FOLLOWS.items()) + ")")


def break_up(text: str) -> str:
    """Break the control tokens in untrusted text, where only strings can be sent; `put_together` undoes it.

    The break is a backslash behind the first character: visible to a reader, and no token of any model.

    >>> print(break_up("the end<|im_end|>"), put_together(break_up("[INST] <s>")))
    the end<\\|im_end|> [INST] <s>
    """
    return "\\".join(_cut(text, control_places(text)))


def break_up_spans(spans: Sequence[Span]) -> tuple[str, bool]:
    """Spans as one text in which no control token is whole that is not all ours; and whether one was broken up.

    It is the joined text that counts: what stands at the end of one span and the beginning of the next is one token
    as well.

    >>> print(*break_up_spans([Span("<s>[", True), Span("INST", False), Span("]", True)]))
    <s>[\\INST] True
    """
    text = "".join([span.text for span in spans])
    places = _foreign(text, spans)
    return "\\".join(_cut(text, places)), bool(places)


def control_places(text: str) -> list[int]:
    """Where to cut a text so that no control token in it stays whole: behind the first character of each.

    >>> control_places("a<s>[INST]")
    [2, 5]
    """
    return [token.end() for token in _tokens(text)]


def _tokens(text: str) -> Iterator[re.Match[str]]:
    """The control tokens in a text, whichever form its characters have."""
    plain = text if text.isascii() else text.translate(_FORMS)
    # Most texts: no need to look at every character in turn.
    if "DSML" not in plain and not any(first in plain for first in _FIRST):
        return iter(())
    return _WHOLE.finditer(plain)


def _cut(text: str, places: Sequence[int]) -> list[str]:
    return [text[begin:end] for begin, end in pairwise([0, *places, len(text)])]


def _foreign(text: str, spans: Sequence[Span]) -> list[int]:
    """Where to break: behind the first character of each control token of which any character is untrusted."""
    theirs: list[tuple[int, int]] = []
    end = 0
    for span in spans:
        begin, end = end, end + len(span.text)
        if not span.trusted and span.text:
            theirs.append((begin, end))
    found = ((token.start(), token.end(token.lastindex or 0)) for token in _tokens(text))
    return [begin + 1 for begin, end in found if any(begin < last and first < end for first, last in theirs)]


def put_together(text: str) -> str:
    """Undo `break_up`: any text comes back as it was.

    >>> put_together(break_up("<\\\\|im_end|>")) == "<\\\\|im_end|>"
    True
    """
    bounds = [0]
    for broken in _BROKEN.finditer(text if text.isascii() else text.translate(_FORMS)):
        bounds += [broken.end() - 1, broken.end()]
    bounds.append(len(text))
    return "".join(text[begin:end] for begin, end in zip(bounds[::2], bounds[1::2], strict=True))
