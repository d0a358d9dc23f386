"""Tables that fit the terminal: numbers stay whole, names are shortened in their middle, the rest goes below.

A table is made as with rich. Where it is too wide, these steps follow, each only if the one before is not enough:

1. names, snippets and prose get less room: see `short_names`; prose wraps between words;
2. columns that are marked as optional are left out, the last first, and a line below names them;
3. the columns are spread over several tables, each of which begins with the same first columns.
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
from rich.measure import Measurement
from rich.table import Column, Table
from rich.text import Text

_LEAST_NAME, _LEAST_SNIPPET, _LEAST_PROSE = 16, 24, 20
_ROOMY = 28  # characters of a name, before columns that are optional get any
_ENDLESS = 100_000
_LOOK: dict[str, Any] = {"header_style": "bold", "box": SIMPLE_HEAD, "pad_edge": False, "collapse_padding": True}


class FittedTable(Table):
    """A table that no width can make cut a number.

    `keys` is how many of the first columns name a row. `optional` are groups of columns that a narrow terminal can
    do without. At `breaks` the columns are best divided. Columns are given by their numbers, from 0.
    """

    def __init__(self, title: str | Text | None = None) -> None:
        super().__init__(**_LOOK)
        self.heading = Text(title) if isinstance(title, str) else title
        self.keys = 1
        self.optional: tuple[tuple[int, ...], ...] = ()
        self.breaks: tuple[int, ...] = ()

    def add_numbers(self, *names: str) -> None:
        """Add columns that stay whole."""
        for name in names:
            self.add_column(name, justify="right")

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """The table, or those that it is divided into."""
        if self.heading is not None:
            yield _bold(self.heading)
        layout = _Fitting(self, console, options)
        shown, left_out = layout.shown()
        for part in layout.parts(shown):
            yield layout.table(part)
        if left_out:
            names = ", ".join(_words(self.columns[number]) for number in left_out)
            yield Text(f"In a wider terminal, and with --json: {names}.", style="dim")


def _bold(heading: Text) -> Text:
    shown = heading.copy()
    shown.stylize("bold")
    return shown


def _words(column: Column) -> str:
    return _text(column.header).plain.replace("-\n", "").replace("\n", " ")


def _text(cell: RenderableType) -> Text:
    """A cell as text; a string is no markup, for it may be a name that others have given."""
    return cell if isinstance(cell, Text) else Text(str(cell))


class _Fitting:
    """What fits where, for one table in one terminal."""

    def __init__(self, table: FittedTable, console: Console, options: ConsoleOptions) -> None:
        self._table, self._console, self._options = table, console, options
        self._cells = [[_text(cell) for cell in column.cells] for column in table.columns]
        self._natural = [self._width(number) for number in range(len(table.columns))]
        self._least = [self._floor(number) for number in range(len(table.columns))]

    def shown(self) -> tuple[list[int], list[int]]:
        """The columns to show, and those that a terminal of this width does without."""
        shown = list(range(len(self._table.columns)))
        left_out: list[int] = []
        for numbers in reversed(self._table.optional):
            if self._fits(shown, roomy=True):
                break
            shown = [number for number in shown if number not in numbers]
            left_out = [*numbers, *left_out]
        return shown, left_out

    def parts(self, shown: Sequence[int]) -> Iterator[list[int]]:
        """Columns by table, the keys in each."""
        keys, rest = list(shown[: self._table.keys]), list(shown[self._table.keys :])
        while rest:
            many = next((n for n in range(len(rest), 1, -1) if self._fits([*keys, *rest[:n]])), 1)
            if many < len(rest):
                many = next((n for n in range(many, 0, -1) if rest[n] in self._table.breaks), many)
            yield [*keys, *rest[:many]]
            rest = rest[many:]
        if len(shown) <= self._table.keys:
            yield keys

    def table(self, part: Sequence[int]) -> Table:
        """Some of the columns as a table that fits."""
        room = self._room(part)
        made = Table(**_LOOK)
        for number in part:
            column = self._table.columns[number]
            prose = self._kind(number) == "prose"
            made.add_column(
                _text(column.header),
                style=column.style,
                justify=column.justify,
                overflow="fold" if prose else "ellipsis",
                no_wrap=not prose,
                max_width=room[number] if prose else None,
            )
        columns = [self._cut(number, room[number]) for number in part]
        for row, *cells in zip(self._table.rows, *columns, strict=True):
            made.add_row(*cells, end_section=row.end_section)
        return made

    def _kind(self, number: int) -> str:
        column = self._table.columns[number]
        if column.justify == "right":
            return "rigid"
        if column.no_wrap:
            return "snippet" if column.max_width else "rigid"
        return "name" if number < self._table.keys else "prose"

    def _width(self, number: int) -> int:
        column = self._table.columns[number]
        lines = [_text(column.header), *self._cells[number]]
        width = max(Measurement.get(self._console, self._options.update(width=_ENDLESS), x).maximum for x in lines)
        return min(width, column.max_width or width)

    def _floor(self, number: int) -> int:
        natural, kind = self._natural[number], self._kind(number)
        if kind == "prose":
            words = (word for cell in self._cells[number] for word in cell.plain.split())
            longest = max((len(word) for word in words), default=0)
            return min(natural, max(_LEAST_PROSE, min(longest, 2 * _LEAST_PROSE)))
        least = {"name": _LEAST_NAME, "snippet": _LEAST_SNIPPET}
        heading = max(len(line) for line in _text(self._table.columns[number].header).plain.split("\n"))
        return min(natural, max(heading, least.get(kind, natural)))

    def _spare(self, part: Sequence[int]) -> int:
        """What is left of the terminal's width when each column has the least it needs."""
        gaps = 2 + 2 * (len(part) - 1)  # a space at each edge, two between columns
        return self._options.max_width - gaps - sum(self._least[number] for number in part)

    def _fits(self, part: Sequence[int], *, roomy: bool = False) -> bool:
        """Whether columns fit; roomy: with names that can be read."""
        names = [number for number in part if self._kind(number) in ("name", "snippet")] if roomy else []
        more = (max(0, min(self._natural[number], _ROOMY) - self._least[number]) for number in names)
        return self._spare(part) >= sum(more)

    def _room(self, part: Sequence[int]) -> dict[int, int]:
        """The width of each column: the least, and an equal part of what is left for those that can use it."""
        spare, room = self._spare(part), {number: self._least[number] for number in part}
        while spare > 0:
            growing = [number for number in part if room[number] < self._natural[number]][:spare]
            if not growing:
                break
            room.update({number: room[number] + 1 for number in growing})
            spare -= len(growing)
        return room

    def _cut(self, number: int, room: int) -> list[Text]:
        cells, kind = self._cells[number], self._kind(number)
        if kind == "snippet":
            return [Text(snippet(cell.plain, room), style=cell.style) for cell in cells]
        if kind != "name":
            return cells
        short = short_names([cell.plain for cell in cells], room)
        return [
            cell if name == cell.plain else Text(name, style=cell.style)
            for cell, name in zip(cells, short, strict=True)
        ]


def snippet(text: str, room: int) -> str:
    """The first words of a text.

    >>> snippet("Name a prime above 100", 20), snippet("Name a prime", 20)
    ('Name a prime above …', 'Name a prime')
    """
    if len(text) <= room:
        return text
    return textwrap.shorten(text, room, placeholder=" …") if " " in text[:room] else f"{text[: room - 1]}…"


def short_names(names: Sequence[str], room: int) -> list[str]:
    """Names that fit; cut in the middle, and different names stay different.

    >>> short_names(["gpt4_turbo_v1", "gpt4_turbo_v2", "claude"], 9)
    ['gpt…o_v1', 'gpt…o_v2', 'claude']
    >>> short_names(["llama-7b-chat-hf", "llama-8b-chat-hf"], 10)
    ['llama-7b…f', 'llama-8b…f']
    """
    every = list(dict.fromkeys(names))
    tails = sorted(range(1, room - 2), key=lambda tail: abs(tail - (room - 1) // 2))
    for cut in ({name: shorten(name, room, tail) for name in every} for tail in tails or [1]):
        if len(set(cut.values())) == len(every):
            return [cut[name] for name in names]
    apart = {name: _apart(name, every, room) for name in every}
    if len(set(apart.values())) < len(every):
        ends = {name: f"…{number}" for number, name in enumerate(every, 1)}
        apart = {name: _head(name, room - len(ends[name])) + ends[name] for name in every}
    return [apart[name] for name in names]


def shorten(name: str, room: int, tail: int | None = None) -> str:
    """A name cut in its middle, so that v1 and v2 stay apart; never behind a digit, as if a number went on.

    >>> shorten("prompt-v2", 5), shorten("v2", 5), shorten("gpt4_1106_preview", 14)
    ('pr…v2', 'v2', 'gpt4_…review')
    """
    if len(name) <= room:
        return name
    end = (room - 1) // 2 if tail is None else tail
    return f"{_head(name, room - 1 - end)}…{name[len(name) - end :]}"


def _head(name: str, room: int) -> str:
    head = name[: max(room, 1)]
    return head.rstrip("0123456789.,+-–−") or name[:1]


def _apart(name: str, every: Sequence[str], room: int) -> str:
    """A name by its beginning and by where it leaves the one that is most like it."""
    if len(name) <= room:
        return name
    ranked = sorted(every)
    near = [other for pair in pairwise(ranked) if name in pair for other in pair if other != name]
    start = max((_shared(name, other) for other in near), default=0)
    head = _head(name, room // 2)
    rest = name[max(start - 1, len(head)) :] if start + 1 < len(name) else name[-(room - len(head) - 1) :]
    return f"{head}…{rest[: room - len(head) - 1]}"


def _shared(one: str, two: str) -> int:
    """How many characters two names begin with alike."""
    return next((n for n, (a, b) in enumerate(zip(one, two, strict=False)) if a != b), min(len(one), len(two)))
