"""Forms in which judges are trained to answer, each named by an example: what an answer for A looks like.

    [[A]]              also [[B]], [[C]] or [[tie]], anywhere in the text
    [[A>>B]]           also A>B, A=B, B>A, B>>A: a comparison with a strength
    [RESULT] A         Winner: A, or any other word and a colon at the beginning of a line
    Output (a)         in words of the judge, alone on a line or with a full stop behind it
    {"verdict": "A"}   a field of a JSON object
    <verdict>A</verdict>
    m                  nothing but m for A, M for B

A text is read strictly: it says one thing in its form, however often, or it is invalid. What stands around the
verdict is the judge's reason (`evenhand.core.reasons`).
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal, NamedTuple

Word = Literal["A", "B", "tie"]
FREE_TOKENS = 2048  # of an answer that may reason before its verdict
_LETTERS: Mapping[str, Word] = {"a": "A", "b": "B", "tie": "tie"}
_LABELS: Mapping[str, Word] = {"A": "A", "B": "B", "tie": "tie"}
_BRACKETS: Mapping[str, Word] = {**_LETTERS, "c": "tie"}
_MOST_CUTS = 20  # of verdicts that come together only when another is cut out
_OBJECT = re.compile(r'\{\s*+"')
_MOST_BROKEN = 1000  # places that look like an object and are none; each is read to where it breaks
_COMPARED: Mapping[Word, str] = {"A": "[[A>B]]", "B": "[[B>A]]", "tie": "[[A=B]]"}
# Forms in which a label is not written as A, B or tie in the place of the example's A.
_SPELT: Mapping[str, Mapping[Word, str]] = {
    "[[A]]": {"A": "[[A]]", "B": "[[B]]", "tie": "[[C]]"},
    "[[A>>B]]": _COMPARED,
    "[[A>B]]": _COMPARED,
    "Output (a)": {"A": "Output (a)", "B": "Output (b)"},
    "m": {"A": "m", "B": "M"},
}
_LABEL_OF_EXAMPLE = re.compile(r'(?<=")A(?="\s*\}$)|(?<=>)A(?=</)|A$')
_COMPARISON = r"[AB]\s*(?:>{1,2}|<{1,2}|=)\s*[AB]"


class FormMatch(NamedTuple):
    """A verdict in its form: the label, where it stands, and how strong it is (0 for a tie, 2 for >>).

    `begin` is where the form begins, with its brackets or its name; `instead` is what an object that holds the
    verdict says besides it.
    """

    label: Word
    start: int
    end: int
    strength: int = 1
    begin: int = 0
    instead: str = ""


@dataclass(frozen=True, slots=True)
class AnswerForm:
    """One form; `tokens` are the words that a token may hold in place of the label, where there are such."""

    example: str
    find: Callable[[str], list[FormMatch] | None]
    tokens: Mapping[str, Word] | None = None
    free: bool = True  # a judge may write before it
    graded: bool = False  # it says how strong a verdict is

    def read(self, text: str, shown: Sequence[str] = ()) -> FormMatch | Literal["unreadable", "echo"]:
        """What an answer says; the last place where it says so.

        A line that stands in a text of the pair, with more in it than the verdict, is a quotation.

        >>> form_of("[[A]]").read("Both are fine, but [[B]] is clearer.").label
        'B'
        >>> form_of("[[A]]").read("[[A]] or [[B]]"), form_of("[[A]]").read("He said [[A]]", ["He said [[A]]"])
        ('unreadable', 'echo')
        """
        found = self.find(text)
        if not found:
            return "unreadable"
        own = [match for match in found if not _is_quoted(text, match, shown)]
        if not own:
            return "echo"
        return own[-1] if len({(match.label, match.strength) for match in own}) == 1 else "unreadable"

    def write(self, label: Word) -> str | None:
        """An answer that says the label and nothing else; None where the form has no word for it.

        >>> form_of("[[A]]").write("tie"), form_of("<verdict>A</verdict>").write("B"), form_of("m").write("tie")
        ('[[C]]', '<verdict>B</verdict>', None)
        """
        if self.example in _SPELT:
            return _SPELT[self.example].get(label)
        return _LABEL_OF_EXAMPLE.sub(label, self.example)

    def without_verdict(self, text: str) -> str:
        """What an answer says besides its verdict; nothing that is left can be read as one.

        >>> form_of("[[A]]").without_verdict("B is wrong. [[A]]")
        'B is wrong.'
        >>> form_of('{"verdict": "A"}').without_verdict('{"reason": "B is wrong.", "verdict": "A"}')
        'B is wrong.'
        """
        for _ in range(_MOST_CUTS):
            found = self.find(text)
            if not found:
                return text.strip()
            text = "\n".join(filter(None, map(str.strip, _around(text, found))))
        return ""


def _around(text: str, found: Sequence[FormMatch]) -> Iterator[str]:
    """The text before, between and behind verdicts."""
    done = 0
    for match in found:
        yield text[done : match.begin]
        yield match.instead
        done = match.end
    yield text[done:]


def _is_quoted(text: str, match: FormMatch, shown: Sequence[str]) -> bool:
    begin = text.rfind("\n", 0, match.start) + 1
    end = text.find("\n", match.end)
    line = text[begin : len(text) if end < 0 else end].strip()
    body = text.rstrip()
    if any(other.strip() and body.endswith(other.strip()) and _covers(body, other, match) for other in shown):
        return True
    return len(line) > match.end - match.start + 4 and any(line in other for other in shown)


def _covers(body: str, other: str, match: FormMatch) -> bool:
    """Whether a text that the answer ends on holds this verdict and more."""
    text = other.strip()
    return len(body) - len(text) <= match.start and len(text) > match.end - match.start + 4


@lru_cache(maxsize=64)
def form_of(example: str) -> AnswerForm:
    """The form that an example names; ValueError where it names none.

    >>> form_of('{"verdict": "A"}').read('So: {"verdict": "tie"}').label
    'tie'
    >>> form_of("<better>A</better>").read("<better>B</better>").label
    'B'
    """
    for pattern, make in _FORMS:
        if match := re.fullmatch(pattern, example.strip()):
            return make(example.strip(), match)
    raise ValueError(example)


# -- makers -------------------------------------------------------------------------------------------------------


def _by_pattern(
    example: str,
    pattern: str,
    words: Mapping[str, Word],
    tokens: Mapping[str, Word] | None,
    flags: int = 0,
    dress: str = "",
) -> AnswerForm:
    """A form whose matches hold the word in a group; where a match holds another word, the answer is unreadable.

    `dress` are characters that may stand behind the word in its group. No pattern may go back over a long run of
    blanks or stars: a judge that repeats itself writes thousands, and each would be tried with each.
    """
    compiled = re.compile(pattern, flags)

    def find(text: str) -> list[FormMatch] | None:
        found = []
        for match in compiled.finditer(text):
            label = words.get(match[1].rstrip(dress or None).strip().lower())
            if label is None:
                return None
            found.append(FormMatch(label, match.start(1), match.end(), int(label != "tie"), match.start()))
        return found

    return AnswerForm(example, find, tokens)


def _brackets(example: str, _: re.Match[str]) -> AnswerForm:
    # [[1, 2]] is somebody's list
    return _by_pattern(example, r"\[\[(A|B|C|[Tt]ie)\]\]", _BRACKETS, {**_LABELS, "C": "tie"})


def _comparison(example: str, _: re.Match[str]) -> AnswerForm:
    compiled = re.compile(rf"\[\[({_COMPARISON})\]\]")

    def find(text: str) -> list[FormMatch] | None:
        found = []
        for match in compiled.finditer(text):
            said = re.sub(r"\s", "", match[1])
            if said[0] == said[-1]:
                return None
            sign = said[1:-1]
            first = (said[0] == "A") == (sign[0] == ">")
            label: Word = "tie" if sign == "=" else "A" if first else "B"
            strength = 0 if sign == "=" else len(sign)
            found.append(FormMatch(label, match.start(1), match.end(), strength, match.start()))
        return found

    return AnswerForm(example, find, graded=True)


def _result(example: str, _: re.Match[str]) -> AnswerForm:
    return _by_pattern(example, r"\[RESULT\][ \t]*+(?::[ \t]*+)?[(\[]?(\w+)[)\]]?", _LETTERS, _LABELS)


def _named(example: str, match: re.Match[str]) -> AnswerForm:
    name = re.escape(match[1])
    dressed = rf"^[ \t*_#>]*{name}[ \t*_]*:[ \t*_\"'(\[]*(?:response |assistant )?([^\n]*)$"
    return _by_pattern(example, dressed, _LETTERS, _LABELS, re.IGNORECASE | re.MULTILINE, dress=" \t*_\"')].")


def _output(example: str, _: re.Match[str]) -> AnswerForm:
    letters: Mapping[str, Word] = {"a": "A", "b": "B"}
    return _by_pattern(example, r"^[ \t*_]*Output \((\w)\)[ \t*_.]*$", letters, letters, re.MULTILINE)


def _tag(example: str, match: re.Match[str]) -> AnswerForm:
    name = re.escape(match[1])
    return _by_pattern(example, rf"<{name}>([^<]*)</{name}>", _LETTERS, _LABELS, re.IGNORECASE)


def _field(example: str, match: re.Match[str]) -> AnswerForm:
    name = match[1]

    def find(text: str) -> list[FormMatch] | None:
        found = []
        for start, end, value in _objects(text):
            if name in value:
                label = _LETTERS.get(str(value[name]).strip().lower())
                if label is None:
                    return None
                place = re.search(rf'"{re.escape(name)}"\s*:\s*"\s*', text[start:end])
                told = start + (place.end() if place else 0)
                rest = "\n".join(str(text) for key, text in value.items() if key != name and isinstance(text, str))
                found.append(FormMatch(label, told, end, int(label != "tie"), start, rest))
        return found

    return AnswerForm(example, find, _LABELS)


def _objects(text: str) -> Iterator[tuple[int, int, dict[str, object]]]:
    """The JSON objects in a text that are not inside another."""
    decoder, end, broken = json.JSONDecoder(), 0, 0
    while broken < _MOST_BROKEN and (place := _OBJECT.search(text, end)):
        at = place.start()
        try:
            value, end = decoder.raw_decode(text, at)
        except (ValueError, RecursionError):
            end, broken = at + 1, broken + 1
        else:
            yield at, end, value


def _letter_case(example: str, _: re.Match[str]) -> AnswerForm:
    words: Mapping[str, Word] = {"m": "A", "M": "B"}

    def find(text: str) -> list[FormMatch] | None:
        said = text.strip(" \t\r\n*_`\"'.")
        if said not in words:
            return None
        place = text.index(said)
        return [FormMatch(words[said], place, place + 1, begin=place)]

    return AnswerForm(example, find, words, free=False)


_FORMS: tuple[tuple[str, Callable[[str, re.Match[str]], AnswerForm]], ...] = (
    (r"\[\[A\]\]", _brackets),
    (r"\[\[A>>?B\]\]", _comparison),
    (r"\[RESULT\] A", _result),
    (r"Output \(a\)", _output),
    (r'\{\s*"(\w+)"\s*:\s*"A"\s*\}', _field),
    (r"<(\w+)>A</\1>", _tag),
    (r"(\w[\w ]*): ?A", _named),
    (r"m", _letter_case),
)
EXAMPLES = (
    "[[A]]",
    "[[A>>B]]",
    "[RESULT] A",
    "Output (a)",
    '{"verdict": "A"}',
    "<verdict>A</verdict>",
    "Winner: A",
    "m",
)
