"""Pictures: what is in them, that hostile names stay text, and that nothing in them reaches out."""

from __future__ import annotations

import re
import struct
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree as ET

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from evenhand.core.errors import InputError
from evenhand.core.stats.calibration import Bin, Reliability
from evenhand.core.stats.clustered import Estimate
from evenhand.core.stats.ranking import Standing
from evenhand.results.ranking import RankingSummary, WinMatrix
from evenhand.results.summary import DimensionCounter, DimensionSummary, Span
from evenhand.views import charts
from evenhand.views.charts import (
    Chart,
    check_plot_path,
    effect_chart,
    ranking_chart,
    reliability_chart,
    save_plot,
    win_matrix_chart,
    win_rate_chart,
)

HOSTILE = (
    "<script>alert(1)</script>",
    '"><img src=x onerror=alert(1)>',
    "']]><svg onload=alert(1)>",
    "javascript:alert(1)",
    "&lt;script&gt;",
    "datum.value",
    "{{7*7}} ${7*7}",
    "\x1b[31mred\x00\x08",
    "\u202eright to left",
    "\ud800 lone",
    "\ufffe\uffff",
    "line\nbreak\r\n\u2028",
    "x" * 5000,
    "",
    "   ",
)
NOTHING = Estimate(None, None, None, 0, 0)
KNOWN = Estimate(0.6, 0.55, 0.7, 40, 40)


def rate(value: float | None, ci: Span | None, n: int = 40) -> DimensionSummary:
    """A dimension of which only the win rate matters; the rest is what an empty one has."""
    return replace(DimensionCounter().summary(), win_rate_1=value, ci=ci, n=n)


def standing(
    name: str, strength: float | None, low: float | None, high: float | None, group: str = "a"
) -> Standing:
    return Standing(name, strength, low, high, None, 1, 1, group, "linked", 9, 0.0, 0.0, 0.0, 9, 0)


def ranking(*models: Standing) -> RankingSummary:
    names = tuple(model.model for model in models)
    matrix = WinMatrix(names, [[None] * len(names)] * len(names), [[0] * len(names)] * len(names))
    return RankingSummary(
        "overall",
        "hard",
        0,
        9,
        9,
        0,
        models,
        matrix,
        (),
        (names,),
        None,
        "log-odds",
        None,
        0.95,
        "m",
        (),
        "pairs",
        0,
    )


def curve(*points: tuple[float, Estimate]) -> Reliability:
    return Reliability(tuple(Bin(0.5, 1.0, sure, right) for sure, right in points), NOTHING, None, None)


def of_names(one: str, two: str) -> dict[str, Chart]:
    """Every kind of chart, with these names in every place that takes one."""
    rates = [(name, rate(0.6, (0.55, 0.7))) for name in (one, two)]
    models = [standing(name, 1.0, 0.5, 1.5, name) for name in (one, two)]
    matrix = WinMatrix((one, two), [[None, 0.2], [0.8, None]], [[0, 5], [5, 0]])
    return {
        "winrate": win_rate_chart(rates, sides=(one, two), title=one),
        "effect": effect_chart([(one, KNOWN), (two, KNOWN)], axis=one, title=two),
        "reliability": reliability_chart(curve((0.5, KNOWN)), title=one),
        "matrix": win_matrix_chart(matrix, title=one),
        "ranking": ranking_chart(ranking(*models), title=two),
    }


KINDS = sorted(of_names("a", "b"))


def texts(svg: str) -> list[str]:
    return [element.text or "" for element in ET.fromstring(svg).iter("{http://www.w3.org/2000/svg}text")]


def assert_harmless(svg: str) -> None:
    """Shapes and text: no element that runs, loads or styles; no attribute that does."""
    for element in ET.fromstring(svg).iter():
        assert element.tag.removeprefix("{http://www.w3.org/2000/svg}") in {
            *("svg", "path", "rect", "line", "polyline", "circle", "text", "title"),
        }
        for name, value in element.attrib.items():
            local = name.rpartition("}")[2].lower()
            assert not local.startswith("on"), name
            assert local not in {"style", "href", "src"}, name
            assert "url(" not in value, value


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", HOSTILE, ids=ascii)
def test_hostile_names_stay_text(kind: str, name: str) -> None:
    assert_harmless(of_names(name, f"{name} ")[kind].svg())


@settings(max_examples=10, deadline=None)
@given(st.text(max_size=60), st.text(max_size=60))
def test_any_name_can_be_drawn(one: str, two: str) -> None:
    for chart in of_names(one, two).values():
        assert_harmless(chart.svg())


@settings(max_examples=200)
@given(st.lists(st.text(st.characters(), max_size=80), max_size=8))
def test_names_are_drawn_each_on_its_own_line(names: list[str]) -> None:
    drawn = charts._names(names)
    assert len(set(drawn)) == len(names)
    assert all(name.isprintable() for name in drawn)


def test_the_svg_names_no_address_but_its_own_namespace() -> None:
    for chart in of_names("a", "b").values():
        assert set(re.findall(r"https?://[^\"]+", chart.svg())) == {"http://www.w3.org/2000/svg"}


@pytest.mark.parametrize("kind", KINDS)
def test_the_same_numbers_give_the_same_bytes(kind: str) -> None:
    assert of_names("a", "b")[kind].svg() == of_names("a", "b")[kind].svg()
    assert of_names("a", "b")[kind].png() == of_names("a", "b")[kind].png()


@pytest.mark.parametrize("kind", KINDS)
def test_everything_is_drawn_inside_the_picture(kind: str) -> None:
    chart = of_names("a name of some length", "W" * 36)[kind]
    for element in ET.fromstring(chart.svg()).iter():
        for key, most in (("x", chart.width), ("x2", chart.width), ("cx", chart.width), ("y", chart.height)):
            assert 0 <= float(element.get(key, 0)) <= most
        if element.tag.endswith("text") and element.get("text-anchor") == "start" and not element.get("transform"):
            assert float(element.get("x", 0)) + 6 * len(element.text or "") <= chart.width + 10


def test_every_line_is_named_and_its_number_given() -> None:
    found = texts(win_rate_chart([(name, rate(0.6, (0.55, 0.7))) for name in ("overall", "format")]).svg())
    assert {"overall", "format", "60.0%  (n = 40)", "win rate of side 1"} <= set(found)
    assert "−0.200  (n = 9)" in texts(effect_chart([("x", Estimate(-0.2, -0.3, -0.1, 9, 9))]).svg())


@pytest.mark.parametrize(
    ("low", "high", "colour"),
    [(0.51, 0.9, "#0072B2"), (0.1, 0.49, "#D55E00"), (0.4, 0.6, "#6F6F6F"), (0.5, 0.9, "#6F6F6F")],
)
def test_the_colour_says_whether_one_half_is_inside(low: float, high: float, colour: str) -> None:
    svg = win_rate_chart([("x", rate((low + high) / 2, (low, high)))], sides=("m", "n")).svg()
    assert re.findall(r'<line stroke-width="2" fill="(#\w+)" stroke="\1"', svg) == [colour]


def test_what_is_not_known_is_an_empty_line() -> None:
    for chart in (
        win_rate_chart([("empty", rate(None, None, 0)), ("full", rate(0.6, (0.5, 0.7)))]),
        effect_chart([("empty", NOTHING), ("full", KNOWN)]),
        ranking_chart(ranking(standing("empty", None, None, None), standing("full", 1.0, 0.5, 1.5))),
    ):
        assert {"empty", "full"} <= set(texts(chart.svg()))
        assert len(re.findall(r'class="dot \w+" [^>]*/><text[^>]*>[^<]*n = ', "".join(chart.marks))) == 1


def test_without_any_rows_there_is_an_empty_picture() -> None:
    empty = WinMatrix((), [], [])
    for chart in (
        win_rate_chart([]),
        effect_chart([]),
        reliability_chart(curve()),
        ranking_chart(ranking()),
        win_matrix_chart(empty),
    ):
        assert_harmless(chart.svg())


def test_infinite_and_undefined_numbers_are_not_drawn() -> None:
    inf, nan = float("inf"), float("nan")
    svg = effect_chart([("a", Estimate(nan, -inf, inf, 3, 3))]).svg()
    assert "nan" not in svg
    assert "inf" not in svg
    assert "not known  (n = 3)" in texts(svg)


def test_a_model_that_won_everything_is_an_arrow_at_its_bound() -> None:
    won, lost = standing("best", None, 2.0, None), standing("worst", None, None, -2.0)
    marks = "".join(ranking_chart(ranking(won, standing("rest", 0.0, -1.0, 1.0), lost)).marks)
    right, left = re.findall(r'<path class="tie" d="M([\d.]+),\d+ l(-?7),4', marks)
    assert (right[1], left[1]) == ("7", "-7")
    assert float(right[0]) > float(left[0])


def test_a_pair_that_never_met_has_no_cell() -> None:
    rates = [[None, 0.7, None], [0.3, None, None], [None, None, None]]
    svg = win_matrix_chart(WinMatrix(("a", "b", "c"), rates, [[0, 1240, 0], [1240, 0, 0], [0, 0, 0]])).svg()
    assert texts(svg).count("n=1,240") == 2
    assert {"70", "30"} <= set(texts(svg))
    assert svg.count("<rect") == 1 + 2  # the ground, and two cells


def test_points_stand_where_the_numbers_say() -> None:
    """0.25 of a width of 360 is 90 from the left end of the axis."""
    marks = "".join(win_rate_chart([("x", rate(0.25, (0.1, 0.4)))]).marks)
    start = re.findall(r'<line class="grid" x1="([\d.]+)"', marks)[0]
    (point,) = re.findall(
        r'<line class="dot two" x1="([\d.]+)" y1="\d+" x2="\1" y2="\d+"/><text[^>]*>25.0%  ', marks
    )
    assert float(point) - float(start) == pytest.approx(90, abs=0.01)


def test_the_curve_is_the_same_on_a_page_and_in_a_file() -> None:
    found = curve((0.55, KNOWN), (0.9, Estimate(0.8, 0.7, 0.85, 160, 90)))
    page, chart = (
        [tuple(map(float, found)) for found in re.findall(r'cx="([\d.]+)" cy="([\d.]+)" r="([\d.]+)"', svg)]
        for svg in (charts.reliability(found), reliability_chart(found).svg())
    )
    assert np.array(chart) == pytest.approx(np.array(page) * (3, 3, 1) + (60, 10, 0))
    assert len(page) == 2


# -- cells --------------------------------------------------------------------------------------------


@given(st.lists(st.floats(0.001, 1), min_size=3, max_size=3))
def test_bars_fill_their_width(shares: list[float]) -> None:
    bar = charts.bar(dict(zip(("1", "2", "tie"), shares, strict=True)))
    widths = [float(width) for width in re.findall(r'width="([\d.]+)"', bar)]
    assert sum(widths) == pytest.approx(100, abs=0.05)


def test_charts_carry_no_style_and_say_what_they_show() -> None:
    known = Estimate(0.7, 0.5, 0.9, 3, 3)
    made = [
        charts.bar({"1": 0.5, "2": 0.3, "tie": 0.2}, names=("<b>", "\u202ex")),
        charts.interval(0.6, 0.4, 0.8),
        charts.interval(None, None, None),
        charts.span(1.0, 0.5, 1.5, -2.0, 2.0),
        charts.leaning(Estimate(-0.2, -0.3, -0.1, 9, 9)),
        charts.reliability(Reliability((Bin(0.5, 0.7, 0.6, known),), known, None, None)),
    ]
    for svg in made:
        assert "style" not in svg
        assert "<b>" not in svg
        assert "\u202e" not in svg
        assert 'aria-label="' in svg
    assert "60.0%, between 40% and 80%" in made[1]
    assert "no data" in made[2]
    assert "-0.20, between -0.30 and -0.10" in made[4]
    assert '<line class="range two" x1="35" y1="10" x2="45" y2="10"/>' in made[4]


def test_a_picture_of_nothing_is_nothing() -> None:
    nothing = Estimate(None, None, None, 0, 0)
    assert charts.reliability(Reliability((Bin(0.5, 0.7, None, nothing),), nothing, None, None)) == ""
    assert "no data" in charts.leaning(nothing)


# -- files --------------------------------------------------------------------------------------------


def test_the_ending_decides_the_kind(tmp_path: Path) -> None:
    chart = win_rate_chart([("overall", rate(0.6, (0.5, 0.7)))])
    svg, png = save_plot(tmp_path / "p.SVG", chart), save_plot(tmp_path / "p.png", chart)
    assert svg.read_text("utf-8") == chart.svg()
    head = png.read_bytes()[:24]
    assert head.startswith(b"\x89PNG\r\n\x1a\n")
    width, _ = struct.unpack(">II", head[16:24])
    assert width == pytest.approx(2 * chart.width, abs=2)


@pytest.mark.parametrize("name", ["p.pdf", "p", ".svg", "p.svg.gz"])
def test_other_endings_are_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(InputError, match="svg or"):
        save_plot(tmp_path / name, Chart(1, 1, ()))
    assert not (tmp_path / name).exists()


def test_a_folder_that_is_not_there_is_said(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="there is no folder"):
        save_plot(tmp_path / "no" / "p.svg", Chart(1, 1, ()))


def test_only_png_needs_the_extra_and_names_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "vl_convert", None)
    assert save_plot(tmp_path / "p.svg", win_rate_chart([])).exists()
    with pytest.raises(InputError) as caught:
        check_plot_path("p.png")
    assert caught.value.hint == "pip install 'evenhand[plot]', or write .svg"


def test_the_extra_is_not_loaded_before_it_is_needed() -> None:
    code = "import sys, evenhand.views.cli; sys.exit('vl_convert' in sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)
