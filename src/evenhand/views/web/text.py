"""Untrusted text before it goes into a page: nothing in it may hide, or turn the line around."""

from __future__ import annotations

import unicodedata

from evenhand.core.steering import PICTURES, TURNS

_SEEN: dict[int, str] = {
    **PICTURES,
    **{mark: f"⟦{name}⟧" for mark, name in TURNS.items()},
    0x2028: "\n",
    0x2029: "\n",
    0xFEFF: "⟦BOM⟧",
}


def visible(text: str) -> str:
    """Text in which control characters and marks that turn the direction can be seen.

    >>> visible("a\\x00b\\u202ec\\r\\n")
    'a␀b⟦RLO⟧c\\n'
    """
    if text.isascii() and text.isprintable():
        return text
    return text.replace("\r\n", "\n").translate(_SEEN)


def cut(text: str, limit: int) -> tuple[str, int]:
    """The beginning of a text, and how many characters were left out.

    >>> cut("abcdef", 4), cut("abc", 4)
    (('abcd', 2), ('abc', 0))
    """
    if len(text) <= limit:
        return text, 0
    end = limit
    while end > limit - 8 and unicodedata.combining(text[end]):  # not between a letter and its accent
        end -= 1
    return text[:end], len(text) - end
