"""Why a judge said what it said: the reason in its answer, in words that do not depend on the order.

    "Response B misses the unit.\\nVerdict: A"   ->   "Response 2 misses the unit."      (forward)
                                                     "Response 1 misses the unit."      (swapped)

Reasons are not stored. Each is cut out of the stored answer, by the form with which the verdict was read, so that
what is left contains no verdict in that form.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Protocol as TypedClass

from evenhand.core.answer_forms import AnswerForm, FormMatch, form_of
from evenhand.core.errors import TemplateError
from evenhand.core.judge import Judgment
from evenhand.core.pair import COMBINED, Side
from evenhand.core.protocol import Order, Protocol
from evenhand.core.template import Question
from evenhand.core.verdict import SAMPLE_BREAK, SIDE_OF, Label, Verdict, text_before_labels

# The forms of judges that were asked elsewhere: how is not known, so that the first that fits counts.
_ELSEWHERE = tuple(form_of(example) for example in ("[[A]]", "[[A>>B]]", "[RESULT] A", "Verdict: A", "Winner: A"))
_BARE_COMPARISON = re.compile(r"\s*([AB]\s*(?:>{1,2}|<{1,2}|=)\s*[AB])\s*")
_FEWEST_WORDS = 2
_LEAD = re.compile(
    r"^\W*(?:feedback|reason(?:ing|s)?|explanation|analysis|comparison|rationale)\W*:\W*", re.IGNORECASE
)
# What only announces the verdict that was cut out behind it: "My final verdict is:".
_ANNOUNCED = re.compile(r"(?:^|(?<=[.!?\n]))[^.!?\n]{0,60}:[\s*_]*$")
_THOUGHT, _THOUGHT_ENDS = re.compile(r"<think(?:ing)?>"), re.compile(r"</think(?:ing)?>")
_WRAPPED = re.compile(r"<(\w+)>(.*)</\1>", re.DOTALL)
_NOUN = (
    r"(?:response|assistant|output|answer|model|option|reply|text|summary|candidate|completion|solution|translation"
    r"|essay|story|poem)"
)
_MARKS = r"[*_\"'‘“`]*"
_BOTH = re.compile(rf"(?i:\b{_NOUN}s)\s+([AB])\s+(and|or|&)\s+([AB])\b")
_NAMED = re.compile(rf"(?i:\b{_NOUN})\s+(?P<marks>{_MARKS})(?:\((?P<small>[ABab])\)|(?P<letter>[AB])\b(?P=marks))")
_ORDINAL = re.compile(rf"(?i:\bthe (first|second) {_NOUN}\b)")
_BARE = re.compile(
    r"(?<!itamin )(?<!lan )(?<!ype )(?<!rade )(?<!lass )(?<!oint )(?<!ection )(?<!roup )"
    r"(?<![\w'’.+=/<>-])([AB])(?![\w+=/<>-])"
)
_WORD_BEHIND = re.compile(r"(?:['’]s\b)?[*_\"'’”`]*\s+([\w'’]+)")
_VERB_WORDS = (
    "is was has had does did can could will would should may might must only also simply correctly fully never"
    " even wins loses and or didn't doesn't isn't wasn't hasn't can't couldn't"
)
_VERBS = frozenset(_VERB_WORDS.split())
_NOUNS_ON_S = frozenset(("series", "species", "always", "thus", "yes", "gas", "lens", "news", "this"))


class JudgeText(TypedClass):
    """What is known of a judge besides its verdicts; a row of the store is one."""

    @property
    def template(self) -> str:
        """The template, word for word."""

    @property
    def identity(self) -> Mapping[str, str]:
        """What decides its answers."""


@dataclass(frozen=True, slots=True)
class Reason:
    """Why one order of a pair came out as it did. `side` is what that order chose; the text names sides too."""

    dimension: str
    order: Order
    side: Side
    text: str


class ReasonReader:
    """Reads the reasons of one judge; without questions, those of a judge that was asked elsewhere.

    >>> reader = ReasonReader(Protocol.load("explained").questions)
    >>> reader.reason(Verdict("overall", "A", raw="Response B is wrong.\\nVerdict: A"), "swapped")
    'Response 1 is wrong.'
    """

    def __init__(self, questions: Sequence[Question] = ()) -> None:
        self._questions = {name: question for question in questions for name in question.dimensions}

    @classmethod
    def of(cls, judge: JudgeText) -> ReasonReader:
        """The reader for a judge of a store; a template that today's reader does not understand counts as none."""
        return cls() if judge.identity.get("engine") == "imported" else cls(questions_of(judge.template))

    def reason(self, verdict: Verdict, order: Order) -> str:
        """The reason of a verdict in words of sides; empty where it has none, or is no verdict."""
        if verdict.label is None or len(verdict.raw) < 2 * _FEWEST_WORDS:
            return ""
        found = _tidied(self._cut(verdict, verdict.label))
        return in_sides(found, order) if len(re.findall(r"\w{2,}", found)) >= _FEWEST_WORDS else ""

    def strength(self, verdict: Verdict) -> int | None:
        """How strong a verdict is: 2 for A>>B, 1 for A>B, 0 for A=B; None where its form does not say."""
        question = self._questions.get(verdict.dimension)
        forms = (question.form,) if question else _ELSEWHERE
        text = verdict.raw if question else _BARE_COMPARISON.sub(r"[[\1]]", verdict.raw, count=1)
        for form in forms:
            match = form.read(text) if form and form.graded and verdict.label else None
            if isinstance(match, FormMatch) and match.label == verdict.label:
                return match.strength
        return None

    def _cut(self, verdict: Verdict, label: Label) -> str:
        question = self._questions.get(verdict.dimension)
        if question is None and self._questions:
            return ""
        if question is None:
            form = next((form for form in _ELSEWHERE if _says(form, verdict.raw, label)), None)
            return form.without_verdict(verdict.raw) if form else verdict.raw
        if question.form is None:
            return text_before_labels(verdict.raw, question.dimensions)
        return question.form.without_verdict(_speaking(question.form, verdict.raw, label))

    def reasons(self, judgment: Judgment) -> list[Reason]:
        """All reasons of a judgment; that of a question on several dimensions stands with the last of them."""
        found = []
        for name, outcome in judgment.outcomes.items():
            question = self._questions.get(name)
            if name == COMBINED or (question and question.dimensions[-1] != name):
                continue
            for order, verdict in outcome.orders.items():
                if verdict.label is not None and (text := self.reason(verdict, order)):
                    found.append(Reason(name, order, SIDE_OF[order][verdict.label], text))
        return found


def with_words(judgment: Judgment, said: Mapping[Order, Sequence[str]], questions: Sequence[Question]) -> Judgment:
    """A judgment out of the store with what was said: by order, the answer to each question."""
    place = {name: number for number, question in enumerate(questions) for name in question.dimensions}

    def spoken(name: str, order: Order, verdict: Verdict) -> Verdict:
        answers = said.get(order, ())
        number = place.get(name, len(answers))
        return replace(verdict, raw=answers[number]) if number < len(answers) else verdict

    outcomes = {
        name: replace(
            outcome, orders={order: spoken(name, order, verdict) for order, verdict in outcome.orders.items()}
        )
        for name, outcome in judgment.outcomes.items()
    }
    return replace(judgment, outcomes=outcomes)


def may_reason(judge: JudgeText) -> bool:
    """Whether a judge's answers are meant to hold reasons: free text around a verdict, or words from elsewhere."""
    if judge.identity.get("engine") == "imported":
        return True
    return any(question.form is not None and question.form.free for question in questions_of(judge.template))


def in_sides(text: str, order: Order) -> str:
    """A judge's words with the sides of the pair in the place of the letters that it was shown.

    >>> in_sides("Response B is shorter than A.", "swapped")
    'Response 1 is shorter than Response 2.'
    >>> in_sides("A good start, but the second answer is wrong.", "forward")
    'A good start, but Response 2 is wrong.'
    """
    side: Mapping[str, Side] = {**SIDE_OF[order], "a": SIDE_OF[order]["A"], "b": SIDE_OF[order]["B"]}  # type: ignore[dict-item]
    text = _BOTH.sub(lambda m: f"Responses {side[m[1]]} {m[2]} {side[m[3]]}", text)
    text = _NAMED.sub(lambda m: f"Response {side[m['small'] or m['letter']]}", text)
    text = _ORDINAL.sub(lambda m: f"Response {side['A' if m[1].lower() == 'first' else 'B']}", text)
    return _BARE.sub(lambda m: f"Response {side[m[1]]}" if _is_letter(text, m) else m[0], text)


def _is_letter(text: str, match: re.Match[str]) -> bool:
    """Whether an A or B by itself is the name of a response; an A that begins a sentence may be an article."""
    if match[1] == "B":
        return True
    before = text[: match.start()].rstrip(" *_\"'‘“`(")
    if before and before[-1] not in ".!?:\n-•":
        return True
    behind = text[match.end() :]
    if behind[:1] in (":", ",", ")", "", ";") or behind[:2] in ("'s", "’s"):
        return True
    word = _WORD_BEHIND.match(behind)
    said = word[1].lower() if word else ""
    verb = said.endswith("s") and not said.endswith(("ss", "us", "is")) and said not in _NOUNS_ON_S
    return said in _VERBS or verb


def _says(form: AnswerForm, text: str, label: Label) -> bool:
    match = form.read(text)
    return isinstance(match, FormMatch) and match.label == label


def _speaking(form: AnswerForm, raw: str, label: Label) -> str:
    """The answer, or of several the first that speaks for the verdict; empty where it speaks for another one."""
    match = form.read(raw)
    if isinstance(match, FormMatch):
        return raw if match.label == label else ""
    if SAMPLE_BREAK not in raw:
        return raw  # beside its verdict it quotes another
    return next((text for text in raw.split(SAMPLE_BREAK) if _says(form, text, label)), "")


def _tidied(text: str) -> str:
    """A reason without what belongs to the form of the answer: thoughts, tags, "Feedback:", "My verdict is:"."""
    text = "".join(_without_thoughts(text)).strip()
    if wrapped := _WRAPPED.fullmatch(text):
        text = wrapped[2]
    text = _ANNOUNCED.sub("", _LEAD.sub("", text.strip())).strip(" \t\r\n*_`#")
    return re.sub(r"\n{3,}", "\n\n", text)


def _without_thoughts(text: str) -> Iterator[str]:
    """What stands around thoughts that have an end; one without an end is looked for but once."""
    done = 0
    while (begin := _THOUGHT.search(text, done)) and (end := _THOUGHT_ENDS.search(text, begin.end())):
        yield text[done : begin.start()]
        done = end.end()
    yield text[done:]


@lru_cache(maxsize=64)
def questions_of(template: str) -> tuple[Question, ...]:
    """The questions of a template; none of one that today's reader does not understand."""
    try:
        return Protocol.parse(template).questions
    except TemplateError:
        return ()
