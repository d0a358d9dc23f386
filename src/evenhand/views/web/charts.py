"""Numbers as small pictures: the only module that makes SVG for pages, those of the server and the report alike.

A page wants pictures that are part of it: a few hundred bytes each, without a word of style, coloured by the page's
classes in light and in dark, and there without an extra package. Each is one cell of a table that says the same in
figures, so it needs no axis labels of its own and grows with its column. A file that stands by itself
(`--plot FILE.svg` or `.png`) wants axes, legends and fonts; `evenhand.views.plots` draws those, and nothing else.

Colours: blue is side 1, orange side 2, grey a tie, red what is invalid.
"""

from __future__ import annotations

from collections.abc import Mapping

from markupsafe import Markup

from evenhand.core.stats.calibration import Reliability
from evenhand.core.stats.clustered import Estimate
from evenhand.results.wording import count
from evenhand.views.web.text import visible

_SEGMENTS = (("1", "one"), ("tie", "tie"), ("2", "two"))


def bar(p: Mapping[str, float] | None, *, names: tuple[str, str] = ("1", "2"), title: str = "") -> Markup:
    """Three shares as one bar: 1, tie, 2 from left to right.

    >>> bar({"1": 0.5, "tie": 0.25, "2": 0.25}).count("<rect")
    3
    """
    if p is None:
        return Markup(
            '<svg class="bar none" viewBox="0 0 100 10" preserveAspectRatio="none" aria-hidden="true"></svg>'
        )
    total = sum(p.values()) or 1.0
    parts, x = [], 0.0
    for side, name in _SEGMENTS:
        width = 100 * p[side] / total
        parts.append(
            Markup('<rect class="{}" x="{}" y="0" width="{}" height="10"/>').format(name, _n(x), _n(width))
        )
        x += width
    said = title or _said(p, names)
    return Markup(
        '<svg class="bar" viewBox="0 0 100 10" preserveAspectRatio="none" role="img" aria-label="{}">'
        "<title>{}</title>{}</svg>"
    ).format(said, said, Markup("").join(parts))


def interval(value: float | None, low: float | None, high: float | None, *, middle: float = 0.5) -> Markup:
    """A share between 0 and 1 with its interval: a dot on a line, and the middle as a thin mark.

    >>> interval(0.6, 0.5, 0.7).count("<line")
    4
    """
    marks = [_line("grid", 0, 0, 0, 20), _line("grid middle", 100 * middle, 0, 100 * middle, 20)]
    if value is not None and low is not None and high is not None:
        tone = "one" if low > middle else "two" if high < middle else "tie"
        marks.append(_line(f"range {tone}", 100 * low, 10, 100 * high, 10))
        marks.append(_line(f"dot {tone}", 100 * value, 10, 100 * value, 10))
        said = f"{100 * value:.1f}%, between {100 * low:.0f}% and {100 * high:.0f}%"
    else:
        said = "no data"
    return _wide(said, marks)


def leaning(found: Estimate) -> Markup:
    """A leaning between -1 and 1 with its interval: a dot on a line, and zero as a thin mark.

    >>> leaning(Estimate(0.2, 0.1, 0.3, 9, 9)).count("<line")
    4
    """
    marks = [_line("grid", 0, 0, 0, 20), _line("grid middle", 50, 0, 50, 20)]
    said = "no data"
    if found.value is not None and found.low is not None and found.high is not None:
        tone = "one" if found.low > 0 else "two" if found.high < 0 else "tie"
        low, high, value = (50 + 50 * x for x in (found.low, found.high, found.value))
        marks += [_line(f"range {tone}", low, 10, high, 10), _line(f"dot {tone}", value, 10, value, 10)]
        said = f"{found.value:+.2f}, between {found.low:+.2f} and {found.high:+.2f}"
    return _wide(said, marks)


def span(value: float, low: float, high: float, least: float, most: float) -> Markup:
    """A score with its interval on a scale of its own, such as a rating among ratings.

    >>> span(1000, 990, 1010, 900, 1100).count("<line")
    2
    """
    width = (most - least) or 1.0
    at = [100 * (x - least) / width for x in (low, high, value)]
    marks = [_line("range one", at[0], 10, at[1], 10), _line("dot one", at[2], 10, at[2], 10)]
    return _wide(f"{value:.2f}, between {low:.2f} and {high:.2f}", marks, left=-2, width=104)


def reliability(found: Reliability) -> Markup:
    """How often a judge is right, by how sure it said it was; a larger dot is more pairs.

    >>> from evenhand.core.stats.calibration import Bin
    >>> known, unknown = Estimate(0.5, 0.3, 0.7, 10, 10), Estimate(None, None, None, 0, 0)
    >>> bins = (Bin(0.5, 0.7, 0.6, known), Bin(0.7, 1, None, unknown))
    >>> reliability(Reliability(bins, unknown, None, None)).count("<circle")
    1
    """
    points = [(part.confidence, part.right) for part in found.bins]
    given = [(sure, right.value, right) for sure, right in points if sure is not None and right.value is not None]
    if not given:
        return Markup("")
    most = max(right.n for *_, right in given)
    ranges = [
        _line("range", 100 * sure, 100 - 100 * right.low, 100 * sure, 100 - 100 * right.high)
        for sure, _, right in given
        if right.low is not None and right.high is not None
    ]
    dots = [
        Markup('<circle class="one" cx="{}" cy="{}" r="{}"><title>{}</title></circle>').format(
            _n(100 * sure),
            _n(100 - 100 * share),
            _n(2 + 4 * (right.n / most) ** 0.5),
            f"said {100 * sure:.0f}%, right {100 * share:.0f}%, {count(right.n, 'pair')}",
        )
        for sure, share, right in given
    ]
    way = " ".join(f"{_n(100 * sure)},{_n(100 - 100 * share)}" for sure, share, _ in given)
    return Markup(
        '<svg class="reliability" viewBox="-2 -2 104 104" role="img" aria-label="calibration">'
        '<rect class="frame" x="0" y="0" width="100" height="100"/>'
        '<line class="grid" x1="0" y1="100" x2="100" y2="0"/>{}<polyline class="way" points="{}"/>{}</svg>'
    ).format(Markup("").join(ranges), way, Markup("").join(dots))


def _wide(said: str, marks: list[Markup], left: int = 0, width: int = 100) -> Markup:
    """Marks in a strip as wide as its column, with the words for it."""
    return Markup(
        '<svg class="interval" viewBox="{} 0 {} 20" preserveAspectRatio="none" role="img" aria-label="{}">'
        "<title>{}</title>{}</svg>"
    ).format(left, width, said, said, Markup("").join(marks))


def _line(kind: str, x1: float, y1: float, x2: float, y2: float) -> Markup:
    return Markup('<line class="{}" x1="{}" y1="{}" x2="{}" y2="{}"/>').format(kind, _n(x1), _n(y1), _n(x2), _n(y2))


def _said(p: Mapping[str, float], names: tuple[str, str]) -> str:
    called = {"1": visible(names[0]), "2": visible(names[1]), "tie": "tie"}
    return ", ".join(f"{called[side]} {100 * p[side]:.0f}%" for side, _ in _SEGMENTS)


def _n(x: float) -> str:
    """A number for an attribute.

    >>> _n(33.3333), _n(50.0)
    ('33.33', '50')
    """
    return f"{x:.2f}".rstrip("0").rstrip(".")
