"""Pictures of facts: Vega-Lite charts, drawn to SVG or PNG by vl-convert on this machine, without a browser.

A function here takes plain facts and returns a Plot. The SVG holds no script, no style, no reference to anything
outside itself, so that a page may inline it. Names (of models, of dimensions) are untrusted: they only ever stand
in the chart's data, never in an expression, and characters that cannot stand in an SVG are replaced first; one of
them would otherwise end the whole process, not merely this picture.
"""

from __future__ import annotations

import hashlib
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from evenhand.core.errors import InputError

Spec = dict[str, Any]
Row = Mapping[str, Any]

# The blue and the orange of Okabe and Ito's palette, which keep apart for every kind of colour blindness.
COLOURS = {"1": "#0072B2", "2": "#D55E00", "tie": "#6F6F6F"}
SUFFIXES = (".svg", ".png")
PIP = "pip install 'evenhand[plot]'"
_SCHEMA = "https://vega.github.io/schema/vega-lite/v5.json"  # a name: nothing is fetched
_VERSION = "5.20"
_INK, _FAINT = "#222222", "#DDDDDD"
_LONGEST_NAME = 36
_MOST_CELLS_WITH_TEXT = 400
_WIDTH = 360


@dataclass(frozen=True, slots=True)
class Plot:
    """A chart that can be drawn; `spec` is plain Vega-Lite, for those who want to change it."""

    spec: Spec

    def svg(self) -> str:
        """The picture as the text of an SVG file."""
        text: str = _converter().vegalite_to_svg(self.spec, vl_version=_VERSION, allowed_base_urls=[])
        return _own_ids(text)

    def png(self, scale: float = 2.0) -> bytes:
        """The picture as the bytes of a PNG file; 2 is sharp on the screens of today."""
        data: bytes = _converter().vegalite_to_png(
            self.spec, vl_version=_VERSION, scale=scale, allowed_base_urls=[]
        )
        return data


def save_plot(path: str | Path, plot: Plot) -> Path:
    """Write a plot to FILE.svg or FILE.png and return the path."""
    file = check_plot_path(path)
    data = plot.png() if file.suffix.lower() == ".png" else plot.svg().encode()
    try:
        file.write_bytes(data)
    except OSError as fault:
        raise InputError(f"{file} cannot be written: {fault.strerror}", hint="does the folder exist?") from None
    return file


def check_plot_path(path: str | Path) -> Path:
    """The file of a plot; refused before anything is computed, if its kind is unknown or the extra is missing.

    >>> check_plot_path("rates.pdf")
    Traceback (most recent call last):
    evenhand.core.errors.InputError: rates.pdf: plots are .svg or .png files (such as --plot plot.svg)
    """
    file = Path(path)
    if file.suffix.lower() not in SUFFIXES:
        raise InputError(f"{file}: plots are .svg or .png files", hint="such as --plot plot.svg")
    _converter()
    return file


def _converter() -> Any:
    try:
        import vl_convert
    except ImportError:
        raise InputError("plots need the package vl-convert-python", hint=PIP) from None
    return vl_convert


def _own_ids(svg: str) -> str:
    """Give gradients ids by content: counted ones differ from call to call and clash where a page holds two plots.

    >>> _own_ids('<a fill="url(#gradient_7)"/><b id="gradient_7"/>')
    '<a fill="url(#g...-0)"/><b id="g...-0"/>'
    """
    counted = list(dict.fromkeys(re.findall(r'id="((?:gradient|clip)_?\d+)"', svg)))
    for number, name in enumerate(counted):
        svg = svg.replace(f'id="{name}"', f'id="\0-{number}"').replace(f"url(#{name})", f"url(#\0-{number})")
    return svg.replace("\0", f"g{hashlib.sha256(svg.encode()).hexdigest()[:8]}")


# -- the pictures ------------------------------------------------------------------------------------


def winrate_plot(rows: Iterable[Row], *, sides: tuple[str, str] = ("1", "2"), title: str = "") -> Plot:
    """Win rates of side 1 with their intervals, one line for each row.

    A row has `name`, `value`, `low`, `high` and `n`; where `value` is None the line stays empty and says so.
    Blue: the interval lies above one half; orange: below it; grey: it holds one half, and neither is shown to win.

    >>> plot = winrate_plot([{"name": "overall", "value": 0.6, "low": 0.4, "high": 0.8, "n": 20}])
    >>> plot.spec["layer"][0]["data"]["values"][0]["leader"]
    'neither'
    """
    one, two = (f"side {name}" if name in ("1", "2") else name for name in _names(sides))
    data = _interval_rows(rows, middle=0.5)
    for row in data:
        row["leader"] = {1: one, -1: two, 0: "neither"}[row["sign"]]
        row["said"] = _said(row, f"{row['value']:.1%}" if row["value"] is not None else "no verdicts")
    scale = {"domain": [0, 1]}
    colour = {
        "field": "leader",
        "type": "nominal",
        "scale": {"domain": [one, two, "neither"], "range": [*_range("1", "2", "tie")]},
        "legend": {"title": "shown to be better", "orient": "bottom"},
    }
    axis = {"format": "%", "title": f"win rate of {one}", "values": [0, 0.25, 0.5, 0.75, 1]}
    return _plot(_forest(data, scale, axis, colour, middle=0.5), title)


def effect_plot(rows: Iterable[Row], *, axis: str = "effect", title: str = "") -> Plot:
    """Effects around zero with their intervals: position bias, length bias, differences.

    A row has `name`, `value`, `low`, `high` and perhaps `n`. Blue: above zero; orange: below; grey: zero is inside.

    >>> plot = effect_plot([{"name": "place", "value": 0.2, "low": 0.1, "high": 0.3}])
    >>> plot.spec["layer"][0]["data"]["values"][0]["leader"]
    'above 0'
    """
    data = _interval_rows(rows, middle=0.0)
    for row in data:
        row["leader"] = {1: "above 0", -1: "below 0", 0: "0 is inside"}[row["sign"]]
        row["said"] = _said(
            row, f"{row['value']:+.3f}".replace("-", "−") if row["value"] is not None else "not known"
        )
    ends = [abs(row[key]) for row in data for key in ("value", "low", "high") if row[key] is not None]
    reach = 1.1 * max([*ends, 0.05])
    colour = {
        "field": "leader",
        "type": "nominal",
        "scale": {"domain": ["above 0", "below 0", "0 is inside"], "range": [*_range("1", "2", "tie")]},
        "legend": {"title": None, "orient": "bottom"},
    }
    return _plot(_forest(data, {"domain": [-reach, reach]}, {"title": _text(axis)}, colour, middle=0.0), title)


def reliability_plot(points: Iterable[Row], *, title: str = "") -> Plot:
    """The reliability curve: how often a side was right, against how likely the judge had called it.

    A point has `predicted`, `observed`, `low`, `high` and `n`. On the diagonal the judge means what it says; below
    it, it is too sure. The area of a point is its number of pairs.

    >>> reliability_plot([{"predicted": 0.9, "observed": 0.7, "low": 0.6, "high": 0.8, "n": 50}]).spec["width"]
    300
    """
    data = [
        {key: _number(point.get(key)) for key in ("predicted", "observed", "low", "high", "n")} for point in points
    ]
    data = [row for row in data if row["predicted"] is not None and row["observed"] is not None]
    ns = [row["n"] for row in data if row["n"] is not None]
    x = {"field": "predicted", "type": "quantitative", "scale": {"domain": [0, 1]}}
    y = {"type": "quantitative", "scale": {"domain": [0, 1]}}
    size = {
        "field": "n",
        "type": "quantitative",
        "scale": {"rangeMin": 25, "rangeMax": 250, "domainMin": 0},
        "legend": {
            "title": "pairs",
            "orient": "right",
            "values": sorted({pick(ns) for pick in (min, max)}) if ns else [],
        },
    }
    named_x = {**x, "axis": {"title": "the judge's probability", "tickCount": 6}}
    named_y = {**y, "axis": {"title": "share that was right", "tickCount": 6, "grid": True}}
    layers = [
        {
            "data": {"values": [{"predicted": 0, "observed": 0}, {"predicted": 1, "observed": 1}]},
            "mark": {"type": "line", "strokeDash": [4, 4], "color": COLOURS["tie"], "strokeWidth": 1},
            "encoding": {"x": named_x, "y": {**named_y, "field": "observed"}},
        },
        {
            "data": {"values": [row for row in data if row["low"] is not None and row["high"] is not None]},
            "mark": {"type": "rule", "color": COLOURS["1"], "strokeWidth": 1.5},
            "encoding": {"x": x, "y": {**y, "field": "low"}, "y2": {"field": "high"}},
        },
        {
            "data": {"values": data},
            "mark": {"type": "line", "color": COLOURS["1"], "strokeWidth": 1},
            "encoding": {"x": x, "y": {**y, "field": "observed"}, "order": {"field": "predicted"}},
        },
        {
            "data": {"values": data},
            "mark": {"type": "point", "filled": True, "color": COLOURS["1"], "opacity": 1},
            "encoding": {"x": x, "y": {**y, "field": "observed"}, "size": size},
        },
    ]
    return _plot({"layer": layers, "width": 300, "height": 300}, title)


def win_matrix_plot(
    models: Sequence[str],
    rates: Sequence[Sequence[float | None]],
    counts: Sequence[Sequence[float]] | None = None,
    *,
    title: str = "",
) -> Plot:
    """How often the model of each row beats the model of each column; a pair that never met stays white.

    >>> plot = win_matrix_plot(["a", "b"], [[None, 0.75], [0.25, None]])
    >>> [cell["rate"] for cell in plot.spec["layer"][0]["data"]["values"]]
    [0.75, 0.25]
    """
    names = _names(models)
    cells = [
        {
            "row": names[i],
            "column": names[j],
            "rate": rate,
            "said": f"{100 * rate:.0f}",
            "n": None if counts is None else counts[i][j],
            "of": "" if counts is None else f"n={counts[i][j]:,.0f}",
            "strong": abs(rate - 0.5) > 0.4,
        }
        for i, line in enumerate(rates)
        for j, rate in enumerate(line)
        if rate is not None
    ]
    legible = len(names) ** 2 <= _MOST_CELLS_WITH_TEXT
    roomy = legible and len(names) <= 12 and counts is not None  # for the number of pairs below each rate
    step, angle = (46 if roomy else 34 if len(names) <= 12 else 24, -45) if legible else (14, -90)
    place = {"type": "nominal", "sort": None, "scale": {"domain": names}}
    encoding: Spec = {
        "y": {**place, "field": "row", "axis": {"title": "this model", **_LABELS}},
        "x": {
            **place,
            "field": "column",
            "axis": {"title": "against", "orient": "top", "labelAngle": angle, **_LABELS},
        },
    }
    shade = {
        "field": "rate",
        "type": "quantitative",
        "scale": {"domain": [0, 0.5, 1], "range": [COLOURS["2"], "#F4F4F4", COLOURS["1"]]},
        "legend": {"title": "wins", "format": "%", "tickCount": 3},
    }
    layers: list[Spec] = [
        {"data": {"values": cells}, "mark": {"type": "rect"}, "encoding": {**encoding, "color": shade}}
    ]
    if legible:
        ink = {"field": "strong", "type": "nominal", "scale": {"domain": [True, False], "range": ["white", _INK]}}
        text = {"text": {"field": "said"}, "color": {**ink, "legend": None}}
        mark = {"type": "text", "fontSize": 10, "dy": -5 if roomy else 0}
        layers.append({"data": {"values": cells}, "mark": mark, "encoding": {**encoding, **text}})
        if roomy:
            below = {"type": "text", "fontSize": 8, "dy": 8}
            counted = {**encoding, **text, "text": {"field": "of"}}
            layers.append({"data": {"values": cells}, "mark": below, "encoding": counted})
    size = {"width": {"step": step}, "height": {"step": step}}
    return _plot({"layer": layers, **size, "resolve": {"scale": {"color": "independent"}}}, title)


def ranking_plot(rows: Iterable[Row], *, axis: str = "strength", title: str = "") -> Plot:
    """Models in the order of their strength, with intervals and the letters of their groups.

    A row has `name`, `value`, `low`, `high`, `group` and `n`. A model without a finite strength has `value` None;
    if only one end of its interval is known (it won or lost everything), that end is drawn as an arrowhead.

    >>> rows = [{"name": "a", "value": 1.0, "low": 0.5, "high": 1.5, "group": "a", "n": 40}]
    >>> ranking_plot(rows).spec["layer"][0]["data"]["values"][0]["said"]
    'a  (n = 40)'
    """
    given = list(rows)
    data = _interval_rows(given, middle=None)
    for row, fields in zip(data, given, strict=True):
        row["leader"] = "model"
        bound = row["low"] if row["low"] is not None else row["high"]
        row["bound"] = bound if row["value"] is None else None
        row["way"] = "triangle-right" if row["low"] is not None else "triangle-left"
        row["said"] = _said(row, _text(str(fields.get("group") or "–")))
    colour = {"value": COLOURS["1"]}
    spec = _forest(data, {"zero": False, "nice": True}, {"title": _text(axis)}, colour, middle=None)
    spec["layer"].append(
        {
            "data": {"values": [row for row in data if row["bound"] is not None]},
            "mark": {"type": "point", "filled": True, "size": 70, "opacity": 1, "color": COLOURS["tie"]},
            "encoding": {
                **_line_of(data),
                "x": {"field": "bound", "type": "quantitative"},
                "shape": {"field": "way", "type": "nominal", "scale": None},
            },
        }
    )
    return _plot(spec, title)


# -- their parts -------------------------------------------------------------------------------------

_LABELS = {"labelLimit": 280, "labelOverlap": False}


def _forest(data: list[Spec], scale: Spec, axis: Spec, colour: Spec, *, middle: float | None) -> Spec:
    """One line for each row: an interval, a point, and in words what stands there at the right."""
    line = _line_of(data)
    x = {"type": "quantitative", "scale": scale, "axis": axis}
    whole = [row for row in data if row["low"] is not None and row["high"] is not None]
    layers: list[Spec] = [
        {
            "data": {"values": data},
            "mark": {"type": "text", "align": "left", "color": _INK, "fontSize": 11},
            "encoding": {**line, "x": {"value": _WIDTH + 8}, "text": {"field": "said"}},
        },
        {
            "data": {"values": whole},
            "mark": {"type": "rule", "strokeWidth": 2},
            "encoding": {**line, "x": {**x, "field": "low"}, "x2": {"field": "high"}, "color": colour},
        },
        {
            "data": {"values": [row for row in data if row["value"] is not None]},
            "mark": {"type": "point", "filled": True, "size": 60, "opacity": 1},
            "encoding": {**line, "x": {**x, "field": "value"}, "color": colour},
        },
    ]
    if middle is not None:
        rule = {"type": "rule", "strokeDash": [4, 4], "color": COLOURS["tie"], "strokeWidth": 1}
        layers.insert(
            1, {"data": {"values": [{"x": middle}]}, "mark": rule, "encoding": {"x": {**x, "field": "x"}}}
        )
    return {"layer": layers, "width": _WIDTH, "height": {"step": 24}}


def _line_of(data: list[Spec]) -> Spec:
    order = [row["name"] for row in data]
    axis = {"title": None, "domain": False, "ticks": False, "labelPadding": 6, **_LABELS}
    return {"y": {"field": "name", "type": "nominal", "sort": None, "scale": {"domain": order}, "axis": axis}}


def _plot(spec: Spec, title: str) -> Plot:
    config = {
        "font": "sans-serif",
        "background": "white",
        "view": {"stroke": None},
        "axis": {"gridColor": _FAINT, "labelColor": _INK, "titleColor": _INK, "titleFontWeight": "normal"},
        "axisY": {"grid": False},
        "legend": {"offset": 8, "labelColor": _INK, "titleColor": _INK, "titleFontWeight": "normal"},
        "title": {"anchor": "start", "fontSize": 13, "color": _INK},
    }
    named = {"title": _text(title, longest=100)} if title else {}
    return Plot({"$schema": _SCHEMA, **named, **spec, "padding": 8, "config": config})


def _interval_rows(rows: Iterable[Row], middle: float | None) -> list[Spec]:
    given = list(rows)
    names = _names([str(row["name"]) for row in given])
    found: list[Spec] = []
    for name, row in zip(names, given, strict=True):
        numbers = {key: _number(row.get(key)) for key in ("value", "low", "high", "n")}
        found.append({"name": name, **numbers, "sign": _sign(numbers["low"], numbers["high"], middle)})
    return found


def _sign(low: float | None, high: float | None, middle: float | None) -> int:
    """1 where the interval lies above the middle, -1 where below, 0 where it holds it or is not known."""
    if low is None or high is None or middle is None:
        return 0
    return int(low > middle) - int(high < middle)


def _said(row: Row, words: str) -> str:
    return words if row["n"] is None else f"{words}  (n = {row['n']:,.0f})"


def _number(value: Any) -> float | None:
    """A number that can be drawn; infinities and NaN cannot."""
    return float(value) if value is not None and math.isfinite(value) else None


def _range(*sides: str) -> list[str]:
    return [COLOURS[side] for side in sides]


def _names(names: Iterable[str]) -> list[str]:
    """Names as they are drawn; two that look the same get numbers, so that they do not fall on one line.

    >>> _names(["a", "b\\x07", "a"])
    ['a', 'b␇', 'a (2)']
    """
    seen: set[str] = set()
    drawn = []
    for name in names:
        first = text = _text(name) or "(no name)"
        count = 1
        while text in seen:
            count += 1
            text = f"{first} ({count})"
        seen.add(text)
        drawn.append(text)
    return drawn


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
