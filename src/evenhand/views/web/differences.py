"""What differs between two texts, word by word."""

from __future__ import annotations

import re
from difflib import SequenceMatcher

from markupsafe import Markup, escape

from evenhand.views.web.text import visible

MOST_WORDS = 1_500  # on either side; comparing takes time with the square of it


def mark_differences(one: str, two: str) -> tuple[Markup, Markup] | None:
    """Both texts, with what the other does not have marked; None where they are too long to compare.

    >>> mark_differences("a red fox", "a blue fox")[0]
    Markup('<div class="plain">a <mark>red</mark> fox</div>')
    """
    first, second = _words(one), _words(two)
    if max(len(first), len(second)) > MOST_WORDS:
        return None
    same = SequenceMatcher(None, first, second, autojunk=len(first) > 400).get_matching_blocks()
    return (
        _marked(first, [(block.a, block.a + block.size) for block in same]),
        _marked(second, [(block.b, block.b + block.size) for block in same]),
    )


def _words(text: str) -> list[str]:
    shown = visible(text[: MOST_WORDS * 40])
    words = re.findall(r"\w+|\s+|[^\w\s]", shown)
    # A text of few but very long words is not cut silently: it counts as too long.
    return words if len(text) <= MOST_WORDS * 40 else words + [""] * (MOST_WORDS + 1)


def _marked(words: list[str], same: list[tuple[int, int]]) -> Markup:
    parts, done = [], 0
    for begin, end in same:
        other = "".join(words[done:begin])
        parts.append(Markup("<mark>{}</mark>").format(other) if other.strip() else escape(other))
        parts.append(escape("".join(words[begin:end])))
        done = end
    return Markup('<div class="plain">{}</div>').format(Markup("").join(parts))
