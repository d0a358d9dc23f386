"""How much JSON holds, looked at before it is parsed: a few kilobytes that were packed may become gigabytes."""

from __future__ import annotations

import re

# A number or a text takes some 60 bytes of memory once parsed, an object four times that. An answer of 16,000
# tokens with twenty log-probabilities each has about half of this.
MOST_VALUES = 10_000_000
_SMALL = 2**20  # bytes that cannot hold too much
# A text, which may not be closed, or something that makes a value.
_PARTS = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"?|[,{\[]', re.DOTALL)


def holds_too_much(content: bytes) -> bool:
    """Whether JSON has more values than `MOST_VALUES`, an object or a list counted as four.

    >>> holds_too_much(b'{"a": [1, 2]}'), holds_too_much(b"[" + b"{}," * 4_000_000 + b"{}]")
    (False, True)
    """
    if len(content) <= _SMALL:
        return False
    brackets, commas = content.count(b"{") + content.count(b"["), content.count(b",")
    return 4 * brackets + commas > MOST_VALUES and _has_more(content)


def _has_more(content: bytes) -> bool:
    """The same without what stands inside of texts, which may be code with many brackets."""
    values = 0
    for part in _PARTS.finditer(content):
        first = content[part.start()]
        if first != 0x22:  # a quote
            values += 1 if first == 0x2C else 4
            if values > MOST_VALUES:
                return True
    return False
