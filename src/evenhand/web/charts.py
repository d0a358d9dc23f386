"""Numbers as small pictures: SVG without a word of style in it, coloured by the page's classes.

Each is one row of a table that says the same in figures, so that the picture needs no axis labels of its own and
grows with its column. Colours: blue is side 1, orange side 2, grey a tie, red what is invalid.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from markupsafe import Markup

from evenhand.web.text import visible

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
    return Markup(
        '<svg class="interval" viewBox="0 0 100 20" preserveAspectRatio="none" role="img" aria-label="{}">'
        "<title>{}</title>{}</svg>"
    ).format(said, said, Markup("").join(marks))


def span(value: float, low: float, high: float, least: float, most: float) -> Markup:
    """A score with its interval on a scale of its own, such as a rating among ratings.

    >>> span(1000, 990, 1010, 900, 1100).count("<line")
    2
    """
    width = (most - least) or 1.0
    at = [100 * (x - least) / width for x in (low, high, value)]
    said = f"{value:.2f}, between {low:.2f} and {high:.2f}"
    marks = [_line("range one", at[0], 10, at[1], 10), _line("dot one", at[2], 10, at[2], 10)]
    return Markup(
        '<svg class="interval" viewBox="-2 0 104 20" preserveAspectRatio="none" role="img" aria-label="{}">'
        "<title>{}</title>{}</svg>"
    ).format(said, said, Markup("").join(marks))


def reliability(bins: Sequence[tuple[float, float, int]]) -> Markup:
    """How often a judge is right, by how sure it said it was: (said, was right, pairs) for each bin.

    >>> reliability([(0.6, 0.5, 10), (0.9, 0.8, 30)]).count("<circle")
    2
    """
    most = max((n for _, _, n in bins), default=1) or 1
    dots = [
        Markup('<circle class="one" cx="{}" cy="{}" r="{}"><title>{}</title></circle>').format(
            _n(100 * said),
            _n(100 - 100 * right),
            _n(2 + 4 * (n / most) ** 0.5),
            f"said {100 * said:.0f}%, right {100 * right:.0f}%, {n} pairs",
        )
        for said, right, n in bins
    ]
    way = " ".join(f"{_n(100 * said)},{_n(100 - 100 * right)}" for said, right, _ in bins)
    return Markup(
        '<svg class="reliability" viewBox="-2 -2 104 104" role="img" aria-label="calibration">'
        '<rect class="frame" x="0" y="0" width="100" height="100"/>'
        '<line class="grid" x1="0" y1="100" x2="100" y2="0"/><polyline class="way" points="{}"/>{}</svg>'
    ).format(way, Markup("").join(dots))


def _line(kind: str, x1: float, y1: float, x2: float, y2: float) -> Markup:
    return Markup('<line class="{}" x1="{}" y1="{}" x2="{}" y2="{}"/>').format(kind, _n(x1), y1, _n(x2), y2)


def _said(p: Mapping[str, float], names: tuple[str, str]) -> str:
    called = {"1": visible(names[0]), "2": visible(names[1]), "tie": "tie"}
    return ", ".join(f"{called[side]} {100 * p[side]:.0f}%" for side, _ in _SEGMENTS)


def _n(x: float) -> str:
    """A number for an attribute.

    >>> _n(33.3333), _n(50.0)
    ('33.33', '50')
    """
    return f"{x:.2f}".rstrip("0").rstrip(".")
