"""Pictures: what is in them, that hostile names stay text, and that nothing in them reaches out."""

from __future__ import annotations

import re
import struct
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from evenhand.core.errors import InputError
from evenhand.views import plots
from evenhand.views.plots import (
    Plot,
    effect_plot,
    ranking_plot,
    reliability_plot,
    save_plot,
    win_matrix_plot,
    winrate_plot,
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
RATE = {"value": 0.6, "low": 0.55, "high": 0.7, "n": 40}


def of_names(one: str, two: str) -> dict[str, Plot]:
    """Every kind of plot, with these names in every place that takes one."""
    rows = [{"name": one, "group": one, **RATE}, {"name": two, "group": two, **RATE}]
    return {
        "winrate": winrate_plot(rows, sides=(one, two), title=one),
        "effect": effect_plot(rows, axis=one, title=two),
        "reliability": reliability_plot(
            [{"predicted": 0.5, "observed": 0.4, "low": 0.3, "high": 0.5, "n": 9}], title=one
        ),
        "matrix": win_matrix_plot([one, two], [[None, 0.2], [0.8, None]], title=one),
        "ranking": ranking_plot(rows, axis=one, title=two),
    }


KINDS = sorted(of_names("a", "b"))


def texts(svg: str) -> list[str]:
    return [element.text or "" for element in ET.fromstring(svg).iter("{http://www.w3.org/2000/svg}text")]


def assert_harmless(svg: str) -> None:
    """Shapes and text: no element that runs, loads or styles; no attribute that does."""
    for element in ET.fromstring(svg).iter():
        assert element.tag.removeprefix("{http://www.w3.org/2000/svg}") in {
            "svg",
            "g",
            "path",
            "rect",
            "line",
            "text",
            "defs",
            "linearGradient",
            "stop",
            "clipPath",
        }
        for name, value in element.attrib.items():
            local = name.rpartition("}")[2].lower()
            assert not local.startswith("on"), name
            assert local not in {"style", "href", "src"}, name
            assert "url(" not in value or re.fullmatch(r"url\(#[\w-]+\)", value), value


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", HOSTILE, ids=ascii)
def test_hostile_names_stay_text(kind: str, name: str) -> None:
    assert_harmless(of_names(name, f"{name} ")[kind].svg())


@settings(max_examples=10, deadline=None)
@given(st.text(max_size=60), st.text(max_size=60))
def test_any_name_can_be_drawn(one: str, two: str) -> None:
    for plot in of_names(one, two).values():
        assert_harmless(plot.svg())


@settings(max_examples=200)
@given(st.lists(st.text(st.characters(), max_size=80), max_size=8))
def test_names_are_drawn_each_on_its_own_line(names: list[str]) -> None:
    drawn = plots._names(names)
    assert len(set(drawn)) == len(names)
    assert all(name.isprintable() for name in drawn)


def test_the_svg_names_no_address_but_its_own_namespaces() -> None:
    for plot in of_names("a", "b").values():
        assert set(re.findall(r"https?://[^\"]+", plot.svg())) <= {
            "http://www.w3.org/2000/svg",
            "http://www.w3.org/1999/xlink",
        }


@pytest.mark.parametrize("kind", KINDS)
def test_the_same_facts_give_the_same_bytes(kind: str) -> None:
    assert of_names("a", "b")[kind].svg() == of_names("a", "b")[kind].svg()
    assert of_names("a", "b")[kind].png() == of_names("a", "b")[kind].png()


def test_ids_of_two_plots_on_a_page_do_not_clash() -> None:
    two = [win_matrix_plot(["a", "b"], [[None, rate], [1 - rate, None]]).svg() for rate in (0.2, 0.3)]
    first, second = (set(re.findall(r'id="([^"]+)"', svg)) for svg in two)
    assert first
    assert not first & second
    assert all(set(re.findall(r"url\(#([^)]+)\)", svg)) <= set(re.findall(r'id="([^"]+)"', svg)) for svg in two)


def test_every_row_is_named_and_its_number_told() -> None:
    said = texts(winrate_plot([{"name": "overall", **RATE}, {"name": "format", **RATE}]).svg())
    assert {"overall", "format", "60.0%  (n = 40)", "win rate of side 1"} <= set(said)


@pytest.mark.parametrize(
    ("low", "high", "leader"), [(0.51, 0.9, "m"), (0.1, 0.49, "n"), (0.4, 0.6, "neither"), (0.5, 0.9, "neither")]
)
def test_the_colour_says_whether_one_half_is_inside(low: float, high: float, leader: str) -> None:
    plot = winrate_plot(
        [{"name": "x", "value": (low + high) / 2, "low": low, "high": high, "n": 9}], sides=("m", "n")
    )
    assert plot.spec["layer"][0]["data"]["values"][0]["leader"] == leader


@pytest.mark.parametrize("make", [winrate_plot, effect_plot, ranking_plot])
def test_what_is_not_known_is_an_empty_line(make: Callable[..., Plot]) -> None:
    nothing = {"value": None, "low": None, "high": None, "n": 0}
    svg = make([{"name": "empty", **nothing}, {"name": "full", **RATE}]).svg()
    assert "empty" in texts(svg)
    assert svg.count('aria-roledescription="point"') == 1


def test_without_any_rows_there_is_an_empty_picture() -> None:
    for plot in (
        winrate_plot([]),
        effect_plot([]),
        reliability_plot([]),
        ranking_plot([]),
        win_matrix_plot([], []),
    ):
        assert plot.svg().startswith("<svg")


def test_infinite_and_undefined_numbers_are_not_drawn() -> None:
    rows = [{"name": "a", "value": float("nan"), "low": float("-inf"), "high": float("inf"), "n": 3}]
    assert 'aria-roledescription="point"' not in winrate_plot(rows).svg()


def test_a_model_that_won_everything_is_an_arrow_at_its_bound() -> None:
    rows: list[dict[str, Any]] = [
        {"name": "best", "value": None, "low": 2.0, "high": None, "group": "a", "n": 9},
        {"name": "rest", "value": 0.0, "low": -1.0, "high": 1.0, "group": "b", "n": 9},
    ]
    last = ranking_plot(rows).spec["layer"][-1]["data"]["values"]
    assert [(row["name"], row["bound"], row["way"]) for row in last] == [("best", 2.0, "triangle-right")]


def test_a_pair_that_never_met_has_no_cell() -> None:
    svg = win_matrix_plot(["a", "b", "c"], [[None, 0.7, None], [0.3, None, None], [None, None, None]]).svg()
    assert {"70", "30"} <= set(texts(svg))
    assert svg.count('aria-roledescription="rect mark"') == 2


def test_points_stand_where_the_numbers_say() -> None:
    """0.25 of a width of 360 is 90."""
    svg = winrate_plot([{"name": "x", "value": 0.25, "low": 0.1, "high": 0.4, "n": 9}]).svg()
    (point,) = re.findall(r'<path[^>]*aria-roledescription="point" transform="translate\(([\d.]+),', svg)
    assert float(point) == pytest.approx(90, abs=0.51)


# -- files --------------------------------------------------------------------------------------------


def test_the_ending_decides_the_kind(tmp_path: Path) -> None:
    plot = winrate_plot([{"name": "overall", **RATE}])
    svg, png = save_plot(tmp_path / "p.SVG", plot), save_plot(tmp_path / "p.png", plot)
    assert svg.read_text("utf-8") == plot.svg()
    head = png.read_bytes()[:24]
    assert head.startswith(b"\x89PNG\r\n\x1a\n")
    width, _ = struct.unpack(">II", head[16:24])
    assert width == 2 * int(re.findall(r'width="(\d+)"', plot.svg())[0])


@pytest.mark.parametrize("name", ["p.pdf", "p", ".svg", "p.svg.gz"])
def test_other_endings_are_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(InputError, match="svg or"):
        save_plot(tmp_path / name, Plot({}))
    assert not (tmp_path / name).exists()


def test_a_folder_that_is_not_there_is_said(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="cannot be written"):
        save_plot(tmp_path / "no" / "p.svg", winrate_plot([]))


def test_without_the_extra_the_answer_is_the_pip_command(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "vl_convert", None)
    with pytest.raises(InputError) as caught:
        plots.check_plot_path("p.svg")
    assert caught.value.hint == "pip install 'evenhand[plot]'"


def test_the_extra_is_not_loaded_before_it_is_needed() -> None:
    code = "import sys, evenhand.views.cli; sys.exit('vl_convert' in sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_no_data_is_fetched() -> None:
    spec = {"data": {"url": "http://127.0.0.1:9/x.json"}, "mark": "point", "encoding": {}}
    with pytest.raises(ValueError, match=r"allowed|not permitted|External"):
        Plot(spec).svg()
