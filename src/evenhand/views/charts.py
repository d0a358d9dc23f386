"""Numbers as pictures: the only module that draws, for the web page, the report and `--plot`.

*Cells* (bar, interval, leaning, span) are part of a table that says the same in figures, so they have no axis and
grow with their column. *Charts* stand by themselves, with names, an axis and a legend, and can be written to files.
Both are made of the same marks. A mark carries classes: a page's style sheet colours them, in light and in dark;
`Chart.svg` writes the colours into a file instead.

Names (of models, of dimensions) are untrusted: they are escaped, and what cannot stand in an SVG is replaced.

Colours: blue is side 1, or above; orange side 2, or below; grey a tie, or neither. Blue and orange are of Okabe and
Ito's palette, which keeps apart for every kind of colour blindness.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from html import escape
from pathlib import Path
from typing import Any

from rich.cells import cell_len

from evenhand.core.errors import InputError
from evenhand.core.stats.calibration import Reliability
from evenhand.core.stats.clustered import Estimate
from evenhand.core.stats.winrate import Difference
from evenhand.io.files.writing import check_folder
from evenhand.results.ranking import RankingSummary, WinMatrix
from evenhand.results.summary import DimensionSummary
from evenhand.results.wording import count

SUFFIXES = (".svg", ".png")
PIP = "pip install 'evenhand[plot]'"
_BLUE, _ORANGE, _GREY, _INK, _FAINT = "#0072B2", "#D55E00", "#6F6F6F", "#222222", "#DDDDDD"
# What a class looks like in a file; pages have a style sheet for it.
_LOOK: Mapping[str, Mapping[str, str]] = {
    "one": {"fill": _BLUE, "stroke": _BLUE},
    "two": {"fill": _ORANGE, "stroke": _ORANGE},
    "tie": {"fill": _GREY, "stroke": _GREY},
    "grid": {"stroke": _FAINT},
    "middle": {"stroke": _GREY, "stroke-dasharray": "4 4"},
    "range": {"stroke-width": "2"},
    "dot": {"stroke-width": "8", "stroke-linecap": "round"},
    "frame": {"fill": "none", "stroke": _FAINT},
    "way": {"fill": "none", "stroke": _BLUE},
    "words": {"fill": _INK},
    "title": {"fill": _INK, "font-size": "13", "font-weight": "bold"},
    "light": {"fill": "white"},
    "small": {"font-size": "8"},
}
_SEGMENTS = (("1", "one"), ("tie", "tie"), ("2", "two"))
_LONGEST_NAME = 36
_MOST_CELLS_WITH_WORDS = 400
_WIDTH, _STEP, _EDGE, _LETTER = 360, 24, 10, 6.3  # of a chart's field, its lines, its margin; of a letter


@dataclass(frozen=True, slots=True)
class Chart:
    """A picture that stands by itself."""

    width: float
    height: float
    marks: tuple[str, ...]

    def svg(self) -> str:
        """The text of an SVG file: shapes and words, without script, style or link."""
        size = (
            f'width="{_n(self.width)}" height="{_n(self.height)}" viewBox="0 0 {_n(self.width)} {_n(self.height)}"'
        )
        return (
            f'<svg xmlns="http://www.w3.org/2000/svg" {size} font-family="sans-serif" font-size="11">'
            f'<rect width="100%" height="100%" fill="white"/>{_coloured("".join(self.marks))}</svg>\n'
        )

    def png(self) -> bytes:
        """The bytes of a PNG file, twice as large, which is sharp on the screens of today."""
        data: bytes = _converter().svg_to_png(self.svg(), scale=2.0)
        return data


def save_plot(path: str | Path, chart: Chart) -> Path:
    """Write a chart to FILE.svg or FILE.png and return the path."""
    file = check_plot_path(path)
    data = chart.png() if file.suffix.lower() == ".png" else chart.svg().encode()
    try:
        file.write_bytes(data)
    except OSError as fault:
        raise InputError(f"{file} cannot be written: {fault.strerror}", hint="does the folder exist?") from None
    return file


def check_plot_path(path: str | Path) -> Path:
    """The file of a plot; refused before anything is computed if its kind, its folder or the extra is not there.

    >>> check_plot_path("rates.pdf")
    Traceback (most recent call last):
    evenhand.core.errors.InputError: rates.pdf: plots are .svg or .png files (such as --plot plot.svg)
    """
    file = Path(path)
    if file.suffix.lower() not in SUFFIXES:
        raise InputError(f"{file}: plots are .svg or .png files", hint="such as --plot plot.svg")
    check_folder(file)
    if file.suffix.lower() == ".png":
        _converter()
    return file


def _converter() -> Any:
    try:
        import vl_convert
    except ImportError:
        raise InputError("PNG files need the package vl-convert-python", hint=f"{PIP}, or write .svg") from None
    return vl_convert


# -- cells -------------------------------------------------------------------------------------------


def bar(p: Mapping[str, float] | None, *, names: tuple[str, str] = ("1", "2")) -> str:
    """Three shares as one bar: 1, tie, 2 from left to right.

    >>> bar({"1": 0.5, "tie": 0.25, "2": 0.25}).count("<rect")
    3
    """
    box = 'class="bar" viewBox="0 0 100 10" preserveAspectRatio="none"'
    if p is None:
        return f'<svg {box} aria-hidden="true"></svg>'
    total = sum(p.values()) or 1.0
    parts, x = [], 0.0
    for side, kind in _SEGMENTS:
        width = 100 * p[side] / total
        parts.append(_mark("rect", kind, x=x, y=0, width=width, height=10))
        x += width
    called = {"1": _text(names[0]), "2": _text(names[1]), "tie": "tie"}
    return _picture(box, ", ".join(f"{called[side]} {100 * p[side]:.0f}%" for side, _ in _SEGMENTS), parts)


def interval(value: float | None, low: float | None, high: float | None) -> str:
    """A share between 0 and 1 with its interval: a dot on a line, and one half as a thin mark.

    >>> interval(0.6, 0.5, 0.7).count("<line")
    4
    """
    return _strip(ChartLine("", value, low, high), _Field(0, 1), 0.5, "{:.1%}, between {:.0%} and {:.0%}")


def leaning(found: Estimate | Difference) -> str:
    """A leaning between -1 and 1 with its interval: a dot on a line, and zero as a thin mark.

    >>> leaning(Estimate(0.2, 0.1, 0.3, 9, 9)).count("<line")
    4
    """
    line = ChartLine("", found.value, found.low, found.high)
    return _strip(line, _Field(-1, 1), 0.0, "{:+z.2f}, between {:+z.2f} and {:+z.2f}")


def span(value: float, low: float, high: float, least: float, most: float) -> str:
    """A score with its interval on a scale of its own, such as a rating among ratings.

    >>> span(1000, 990, 1010, 900, 1100).count("<line")
    2
    """
    line = ChartLine("", value, low, high)
    return _strip(line, _Field(least, most), None, "{:z.2f}, between {:z.2f} and {:z.2f}", "-2 0 104 20")


def reliability(found: Reliability) -> str:
    """How often a judge is right, by how sure it said it was; nothing where no pair tells.

    >>> from evenhand.core.stats.calibration import Bin
    >>> known, unknown = Estimate(0.5, 0.3, 0.7, 10, 10), Estimate(None, None, None, 0, 0)
    >>> bins = (Bin(0.5, 0.7, 0.6, known), Bin(0.7, 1, None, unknown))
    >>> reliability(Reliability(bins, unknown, None, None)).count("<circle")
    1
    """
    marks = _curve(found, _Field(0, 1), _Field(1, 0))
    return _picture('class="reliability" viewBox="-7 -7 114 114"', "calibration", marks) if marks else ""


# -- charts ------------------------------------------------------------------------------------------


def win_rate_chart(
    rates: Iterable[tuple[str, DimensionSummary]], *, sides: tuple[str, str] = ("1", "2"), title: str = ""
) -> Chart:
    """Win rates of side 1 with their intervals, one line for each name.

    Blue: the interval lies above one half; orange: below it; grey: it holds one half, and neither is shown to win.
    """
    lines = [
        ChartLine(name, each.win_rate_1, low, high, _noted(each.win_rate_1, "{:.1%}", each.n))
        for name, each in rates
        for low, high in [each.ci or (None, None)]
    ]
    one, two = (f"side {name}" if name in ("1", "2") else name for name in _names(sides))
    legend = (("", "shown to be better:"), ("one", one), ("two", two), ("tie", "neither"))
    ticks = {share: f"{share:.0%}" for share in (0, 0.25, 0.5, 0.75, 1)}
    return _lines_chart(lines, _Field(0, 1, _WIDTH), ticks, f"win rate of {one}", title, middle=0.5, legend=legend)


def effect_chart(
    effects: Iterable[tuple[str, Estimate | Difference]],
    *,
    axis: str = "effect",
    title: str = "",
    points: bool = False,
) -> Chart:
    """Effects around zero with their intervals. Blue: above zero; orange: below; grey: zero is inside.

    With `points` they are drawn in points of 100, and written without decimals.
    """
    unit, form = (100, "{:+.0f}") if points else (1, "{:+.3f}")
    lines = [
        ChartLine(
            name,
            *(_times(unit, each.value), _times(unit, each.low), _times(unit, each.high)),
            _noted(each.value, form, each.n, unit),
        )
        for name, each in effects
    ]
    reach = 1.1 * max([0.05 * unit, *(abs(end) for line in lines for end in line.ends())])
    legend = (("one", "above 0"), ("two", "below 0"), ("tie", "0 is inside"))
    field = _Field(-reach, reach, _WIDTH)
    said = _text(axis, int(_WIDTH / _LETTER))
    return _lines_chart(lines, field, _ticks(-reach, reach), said, title, middle=0.0, legend=legend)


def ranking_chart(found: RankingSummary, *, title: str = "") -> Chart:
    """Models in the order of their strength, with intervals and the letters of their groups.

    A model that won or lost everything may have one end of its interval only, which is drawn as an arrowhead.
    """
    lines = [
        ChartLine(each.model, each.strength, each.low, each.high, f"{each.group or '–'}  (n = {each.n:,})")
        for each in found.models
    ]
    axis = {"elo": "Elo", "arena": "Elo (a tie is half a win)"}.get(found.scale, "strength (log-odds)")
    ends = [end for line in lines for end in line.ends()] or [0.0]
    room = 0.05 * (max(ends) - min(ends)) or 1.0
    least, most = min(ends) - room, max(ends) + room
    return _lines_chart(lines, _Field(least, most, _WIDTH), _ticks(least, most), axis, title)


def reliability_chart(found: Reliability, *, title: str = "") -> Chart:
    """The reliability curve: how often a side was right, against how likely the judge had called it.

    On the diagonal the judge means what it says; below it, it is too sure. A larger dot is more pairs.
    """
    size, left, top = 300, 60, _top(title)
    x, y = _Field(0, 1, size, left), _Field(1, 0, size, top)
    marks = [_mark("rect", "frame", x=left, y=top, width=size, height=size)]
    for share in (0, 0.2, 0.4, 0.6, 0.8, 1):
        marks.append(_words(f"{share:.0%}", x.at(share), top + size + 16, "middle"))
        marks.append(_words(f"{share:.0%}", left - 6, y.at(share) + 4, "end"))
    marks += _curve(found, x, y) or [_words("no pair tells", x.at(0.5), y.at(0.5), "middle")]
    marks.append(
        _words("the judge's probability (a larger dot is more pairs)", x.at(0.5), top + size + 34, "middle")
    )
    marks.append(_words("share that was right", 16, y.at(0.5), "middle", turn=-90))
    return Chart(left + size + 24, top + size + 44, (*_titled(title), *marks))


def win_matrix_chart(found: WinMatrix, *, title: str = "") -> Chart:
    """How often the model of each row beats the model of each column; a pair that never met stays white."""
    names = _names(found.models)
    legible = len(names) ** 2 <= _MOST_CELLS_WITH_WORDS
    roomy = len(names) <= 12  # for the number of pairs below each rate
    step = 46 if roomy else 24 if legible else 14
    room = _room(names)
    left, top = room + _EDGE, _top(title) + 0.75 * room + 6
    marks = [*_titled(title)]
    for place, name in enumerate(names):
        middle = (place + 0.5) * step
        marks.append(_words(name, left - 6, top + middle + 4, "end"))
        marks.append(_words(name, left + middle, top - 6, turn=-45))
    percents = found.percents
    for row, rates in enumerate(found.rates):
        for column, rate in enumerate(rates):
            if rate is not None:
                words = (
                    f"{percents[row][column]}" if legible else "",
                    f"n={found.counts[row][column]:,}" if roomy else "",
                )
                marks += _matrix_cell(left + column * step, top + row * step, step, rate, words)
    size = len(names) * step
    below = "wins of the row against the column, in percent: blue above 50, orange below"
    marks.append(_words(below, _EDGE, top + size + 18))
    width = max(left + size + 0.75 * room, _room([below]) + _EDGE)
    return Chart(width, top + size + 28, tuple(marks))


def _matrix_cell(x: float, y: float, step: int, rate: float, words: tuple[str, str]) -> list[str]:
    """A square in the colour of its rate, with two rows of words, or one, or none."""
    kind = "light" if abs(rate - 0.5) > 0.4 else "words"
    middle, height = x + step / 2, y + step / 2
    square = f'<rect x="{_n(x)}" y="{_n(y)}" width="{step}" height="{step}" fill="{_shade(rate)}"/>'
    first = _words(words[0], middle, height + (-1 if words[1] else 4), "middle", kind)
    second = _words(words[1], middle, height + 12, "middle", f"small {kind}")
    return [square, *(mark for mark, text in zip((first, second), words, strict=True) if text)]


# -- their parts -------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ChartLine:
    """A number with its interval, what it is called, and the words at its end. What is not finite is not known."""

    name: str
    value: float | None
    low: float | None
    high: float | None
    note: str = ""

    def __post_init__(self) -> None:
        for key in ("value", "low", "high"):
            number = getattr(self, key)
            if number is not None and not math.isfinite(number):
                object.__setattr__(self, key, None)

    def ends(self) -> list[float]:
        """What must find room in a picture."""
        return [number for number in (self.value, self.low, self.high) if number is not None]

    def tone(self, middle: float | None) -> str:
        """Which side of the middle the interval lies on."""
        if middle is None:
            return "one"
        above, below = self.low is not None and self.low > middle, self.high is not None and self.high < middle
        return "one" if above else "two" if below else "tie"


@dataclass(frozen=True, slots=True)
class _Field:
    """Where a number stands between two ends, in pixels, or in hundredths of a cell."""

    least: float
    most: float
    size: float = 100
    start: float = 0

    def at(self, x: float) -> float:
        return self.start + self.size * (x - self.least) / ((self.most - self.least) or 1.0)


def _interval_marks(line: ChartLine, field: _Field, y: float, middle: float | None) -> list[str]:
    """The interval and the value; where only one end is known, an arrowhead that points to where it goes on."""
    tone, found = line.tone(middle), []
    if line.low is not None and line.high is not None:
        found.append(_line(f"range {tone}", field.at(line.low), y, field.at(line.high), y))
    if line.value is not None:
        found.append(_line(f"dot {tone}", field.at(line.value), y, field.at(line.value), y))
    elif ends := line.ends():
        way = 7 if line.low is not None else -7
        x = field.at(ends[0])
        found.append(f'<path class="tie" d="M{_n(x)},{_n(y - 4)} l{way},4 l{-way},4 z"/>')
    return found


def _strip(line: ChartLine, field: _Field, middle: float | None, words: str, box: str = "0 0 100 20") -> str:
    """One line as wide as its column, with the words for it."""
    known = len(line.ends()) == 3
    marks = [] if middle is None else [_line("grid", 0, 0, 0, 20)]
    if middle is not None:
        marks.append(_line("grid middle", field.at(middle), 0, field.at(middle), 20))
    marks += _interval_marks(line, field, 10, middle) if known else []
    said = words.format(line.value, line.low, line.high) if known else "no data"
    return _picture(f'class="interval" viewBox="{box}" preserveAspectRatio="none"', said, marks)


def _curve(found: Reliability, x: _Field, y: _Field) -> list[str]:
    """The diagonal, and a point for each bin that has pairs, with its interval; nothing where none has."""
    given = [
        (part.confidence, part.right.value, part.right)
        for part in found.bins
        if part.confidence is not None and part.right.value is not None
    ]
    if not given:
        return []
    most = max(right.n for *_, right in given)
    way = " ".join(f"{_n(x.at(sure))},{_n(y.at(share))}" for sure, share, _ in given)
    dots = []
    for sure, share, right in given:
        said = f"said {sure:.0%}, right {share:.0%}, {count(right.n, 'pair')}"
        place = f'cx="{_n(x.at(sure))}" cy="{_n(y.at(share))}" r="{_n(2 + 4 * (right.n / most) ** 0.5)}"'
        dots.append(f'<circle class="one" {place}><title>{said}</title></circle>')
    return [
        _line("grid middle", x.at(0), y.at(0), x.at(1), y.at(1)),
        *(
            _line("range one", x.at(sure), y.at(right.low), x.at(sure), y.at(right.high))
            for sure, _, right in given
            if right.low is not None and right.high is not None
        ),
        f'<polyline class="way" points="{way}"/>',
        *dots,
    ]


def _lines_chart(
    lines: Sequence[ChartLine],
    field: _Field,
    ticks: Mapping[float, str],
    axis: str,
    title: str,
    *,
    middle: float | None = None,
    legend: Sequence[tuple[str, str]] = (),
) -> Chart:
    """One line for each number: its name, its interval on a common axis, its words."""
    names = _names([line.name for line in lines])
    left, top = _room(names) + _EDGE, _top(title)
    field = replace(field, start=left)
    right, bottom = left + field.size, top + len(lines) * _STEP
    marks = [*_titled(title)]
    for tick, words in ticks.items():
        marks.append(_line("grid", field.at(tick), top, field.at(tick), bottom))
        marks.append(_words(words, field.at(tick), bottom + 14, "middle"))
    if middle is not None:
        marks.append(_line("middle", field.at(middle), top, field.at(middle), bottom))
    for place, (line, name) in enumerate(zip(lines, names, strict=True)):
        y = top + (place + 0.5) * _STEP
        marks += [_words(name, left - 8, y + 4, "end"), *_interval_marks(line, field, y, middle)]
        marks.append(_words(_text(line.note), right + 8, y + 4))
    marks.append(_words(axis, (left + right) / 2, bottom + 32, "middle"))
    row, end = _legend(legend, bottom + 56)
    width = max(end, right + _room([line.note for line in lines])) + _EDGE
    return Chart(width, bottom + (66 if legend else 42), (*marks, *row))


def _legend(entries: Sequence[tuple[str, str]], y: float) -> tuple[list[str], float]:
    """What the colours mean, in one row, and where that row ends."""
    marks, x = [], float(_EDGE)
    for kind, words in entries:
        if kind:
            marks.append(_line(f"dot {kind}", x, y - 4, x, y - 4))
        marks.append(_words(words, x + (8 if kind else 0), y))
        x += _room([words]) + 12
    return marks, x


def _times(unit: int, value: float | None) -> float | None:
    return None if value is None else unit * value


def _noted(value: float | None, form: str, n: int, unit: int = 1) -> str:
    """A number in words, with a true minus, and of how many pairs it is; what rounds to nothing has no sign.

    >>> _noted(-0.001, "{:+.0f}", 9, 100)
    '0  (n = 9)'
    """
    known = value is not None and math.isfinite(value)
    said = form.format(unit * value).replace("-", "−") if value is not None and known else "not known"
    return f"{'0' if said in ('+0', '−0') else said}  (n = {n:,})"


def _ticks(least: float, most: float) -> dict[float, str]:
    """Up to nine round numbers between two ends.

    >>> list(_ticks(-0.9, 1.1).values())
    ['−0.5', '0.0', '0.5', '1.0']
    """
    rough = (most - least) / 8
    unit = 10.0 ** math.floor(math.log10(rough))
    step = next(unit * times for times in (1, 2, 5, 10) if unit * times >= rough * 0.999)
    digits = max(0, -math.floor(math.log10(step)))
    places = range(math.ceil(least / step), math.floor(most / step) + 1)
    return {place * step: f"{place * step:.{digits}f}".replace("-", "−") for place in places}


def _shade(rate: float) -> str:
    """Orange for 0, nearly white for one half, blue for 1.

    >>> _shade(0), _shade(0.5), _shade(1)
    ('#d55e00', '#f4f4f4', '#0072b2')
    """
    end, share = (_BLUE if rate > 0.5 else _ORANGE), abs(rate - 0.5) * 2
    parts = (int(end[place : place + 2], 16) for place in (1, 3, 5))
    return "#" + "".join(f"{round(244 + share * (part - 244)):02x}" for part in parts)


def _top(title: str) -> int:
    return 36 if title else _EDGE


def _titled(title: str) -> list[str]:
    return [_words(_text(title, longest=100), _EDGE, 22, kind="title")] if title else []


def _room(words: Iterable[str]) -> float:
    """How wide the longest of some words is drawn, about: no font is known here."""
    return _LETTER * max((cell_len(each) for each in words), default=0) + 8


# -- marks -------------------------------------------------------------------------------------------


def _picture(about: str, words: str, marks: Iterable[str]) -> str:
    said = escape(words)
    return f'<svg {about} role="img" aria-label="{said}"><title>{said}</title>{"".join(marks)}</svg>'


def _mark(name: str, kind: str, **places: float) -> str:
    where = " ".join(f'{key}="{_n(value)}"' for key, value in places.items())
    return f'<{name} class="{kind}" {where}/>'


def _line(kind: str, x1: float, y1: float, x2: float, y2: float) -> str:
    return _mark("line", kind, x1=x1, y1=y1, x2=x2, y2=y2)


def _words(words: str, x: float, y: float, anchor: str = "start", kind: str = "words", turn: int = 0) -> str:
    turned = f' transform="rotate({turn} {_n(x)} {_n(y)})"' if turn else ""
    place = f'x="{_n(x)}" y="{_n(y)}" text-anchor="{anchor}"{turned}'
    return f'<text class="{kind}" {place}>{escape(words)}</text>'


def _coloured(marks: str) -> str:
    """Marks with colours in the place of classes; in escaped text no quote can begin a class.

    >>> _coloured('<line class="grid"/>')
    '<line stroke="#DDDDDD"/>'
    """

    def look(found: re.Match[str]) -> str:
        every = {key: value for kind in found[1].split() for key, value in _LOOK[kind].items()}
        return " ".join(f'{key}="{value}"' for key, value in every.items())

    return re.sub(r'class="([^"]*)"', look, marks)


def _n(x: float) -> str:
    """A number for an attribute.

    >>> _n(33.3333), _n(50.0)
    ('33.33', '50')
    """
    return f"{x:.2f}".rstrip("0").rstrip(".")


def _names(names: Iterable[str]) -> list[str]:
    """Names as they are drawn; two that look the same get numbers.

    >>> _names(["a", "b\\x07", "a"])
    ['a', 'b␇', 'a (2)']
    """
    drawn: dict[str, None] = {}
    for name in names:
        first = text = _text(name) or "(no name)"
        number = 1
        while text in drawn:
            number += 1
            text = f"{first} ({number})"
        drawn[text] = None
    return list(drawn)


def _text(text: str, longest: int = _LONGEST_NAME) -> str:
    """Text of one line that can stand in an SVG: what cannot be printed becomes a sign for itself.

    >>> _text("a\\x1b[31m\\u202eb")
    'a␛[31m�b'
    """
    clean = "".join(_character(c) for c in text[: 4 * longest])
    return clean if len(clean) <= longest else f"{clean[: longest - 1]}…"


def _character(c: str) -> str:
    if c.isprintable():
        return c
    return chr(0x2400 + ord(c)) if ord(c) < 32 else " " if c.isspace() else "�"
