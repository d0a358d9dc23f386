"""Untrusted text in Markdown: it can neither break out of its place nor call anybody.

Everything untrusted stands in code: there no renderer reads markup, and GitHub and GitLab look for no mentions, no
numbers of issues and no addresses. What is left is to keep the code from ending early.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from evenhand.views.web.text import cut, visible

LONGEST = 120  # characters of a text in a cell
_TICKS = re.compile(r"`+")
# A pipe would end a cell, also in code, and a backslash before it may not help; so it is shown by a likeness.
_PIPE = "│"


def code(text: str, longest: int = LONGEST) -> str:
    """A text of one line, for a sentence or for a cell.

    >>> code("a|b"), code("`x`"), code("@you #1")
    ('`a│b`', '`` `x` ``', '`@you #1`')
    >>> code("")
    '–'
    """
    shown, left_out = cut(text, longest)
    line = " ".join(visible(shown).split()).replace("|", _PIPE)
    if not line:
        return "–"
    line += "…" if left_out else ""
    fence = "`" * (1 + max((len(run) for run in _TICKS.findall(line)), default=0))
    # Of one space at each end a renderer takes both away; without one, ticks at an end would join the fence.
    padding = " " if line[0] == "`" or line[-1] == "`" else ""
    return f"{fence}{padding}{line}{padding}{fence}"


def fenced(text: str, longest: int) -> str:
    """A text of many lines, as a block.

    >>> print(fenced("a\\n```\\nb", 100))
    ````text
    a
    ```
    b
    ````
    """
    shown, left_out = cut(text, longest)
    more = f"\n… {left_out:,} more characters" if left_out else ""
    body = visible(shown)
    fence = "`" * max(3, 1 + max((len(run) for run in _TICKS.findall(body)), default=0))
    return f"{fence}text\n{body}{more}\n{fence}"


def table(head: Sequence[str], rows: Iterable[Sequence[str]], right: Iterable[int] = ()) -> str:
    """A table of cells that are safe already; the columns in `right` are numbers.

    >>> print(table(["a", "n"], [["x", "1"]], right=[1]))
    | a | n |
    |---|--:|
    | x | 1 |
    """
    numbers = set(right)
    rule = "|".join("--:" if column in numbers else "---" for column in range(len(head)))
    lines = [f"| {' | '.join(cells)} |" for cells in (head, *rows)]
    return "\n".join([lines[0], f"|{rule}|", *lines[1:]])
