r"""Text without its disguise: what a reader takes it for, whichever characters it is written in.

LINE_END      all that ends a line
LOOK_ALIKES   Cyrillic and Greek letters that look like Latin ones
Plain         a text with line feeds and ASCII for what looks like them, and where each character came from
bare          a text to look for a word in: decomposed and in small letters as well
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

# All that Python, and so most readers, take for the end of a line.
_LINE_ENDS = "\n\r\v\f\x1c\x1d\x1e\x85\u2028\u2029"
LINE_END = re.compile(f"\r\n|[{_LINE_ENDS}]")
LOOK_ALIKES: dict[str, str] = dict(
    zip(
        "асеорхуіјѕһԁАВСЕНКМОРТХІЈЅοΑΒΕΖΗΙΚΜΝΟΡΤΥΧ",
        "aceopxyijshdABCEHKMOPTXIJSoABEZHIKMNOPTYX",
        strict=True,
    )
)
_UNSEEN = ("Cc", "Cf", "Mn", "Me")  # control and format characters, and marks that stand on another character
_FILLERS = "\u115f\u1160\u2800\u3164\uffa0"  # letters and signs with nothing to see


@dataclass(frozen=True, slots=True)
class Plain:
    """A text without its disguise."""

    text: str
    places: Sequence[int] | None = None  # where each of its characters stood; None where none was left out

    @classmethod
    def of(cls, text: str) -> Plain:
        r"""Characters one by one, so that every place can be found again.

        >>> Plain.of("a\r\u200b＃＃\u00a0B").text
        'a\n## B'
        """
        table = _table(text)
        if "" not in table.values():
            return cls(text.translate(table) if table else text)
        return cls(text.translate(table), [place for place, char in enumerate(text) if table.get(ord(char)) != ""])

    def span(self, start: int, end: int) -> tuple[int, int]:
        """Where a part of it, of a character at least, stands in the text as it was.

        >>> Plain.of("a\u200bbc").span(1, 3)
        (2, 4)
        """
        return (start, end) if self.places is None else (self.places[start], self.places[end - 1] + 1)


def bare(text: str) -> str:
    r"""A text to look for a word in: no disguise of the word that is known here hides it.

    >>> bare("Ｂａ\u200bb\u0430BÁ")
    'bababa'
    """
    known = text if text.isascii() else unicodedata.normalize("NFKD", text)
    return known.translate(_table(known)).casefold()


def _table(text: str) -> dict[int, str]:
    """What stands for the characters of a text that are not what they seem."""
    odd = ((char, _seems(char)) for char in set(text) if not (" " <= char <= "~" or char in "\n\t"))
    return {ord(char): seems for char, seems in odd if seems != char}


@cache
def _seems(char: str) -> str:
    """What a character is taken for: nothing, a line feed, a blank, or the one character that it is a form of."""
    if char in _LINE_ENDS:
        return "\n"
    if char in LOOK_ALIKES:
        return LOOK_ALIKES[char]
    kind = unicodedata.category(char)
    if kind in _UNSEEN or char in _FILLERS:
        return ""
    form = " " if kind == "Zs" else unicodedata.normalize("NFKC", char)
    return form if len(form) == 1 and form.isascii() else char
