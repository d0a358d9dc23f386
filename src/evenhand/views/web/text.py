"""Untrusted text before it goes into a page: nothing in it may hide, or turn the line around."""

from __future__ import annotations

import unicodedata

# Marks that turn the direction of what follows. Left-to-right and right-to-left marks by themselves are harmless,
# and usual in Arabic and Hebrew; these reach over the end of a word, and can show a line in another order.
_TURNS = {
    "\u202a": "LRE",
    "\u202b": "RLE",
    "\u202c": "PDF",
    "\u202d": "LRO",
    "\u202e": "RLO",
    "\u2066": "LRI",
    "\u2067": "RLI",
    "\u2068": "FSI",
    "\u2069": "PDI",
}
_SEEN: dict[int, str] = {
    **{code: chr(0x2400 + code) for code in range(32) if chr(code) not in "\n\t"},
    **dict.fromkeys(range(0x7F, 0xA0), "␡"),
    **{ord(mark): f"⟦{name}⟧" for mark, name in _TURNS.items()},
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
