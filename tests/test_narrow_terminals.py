"""What a terminal of 80, 100 or 140 columns shows: whole numbers, whole words, names that stay apart."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from command import evenhand
from evenhand.core.pair import Pair
from evenhand.core.protocol import Prompt
from evenhand.engines.scripted import ScriptedEngine
from evenhand.results.run import judge_summary
from evenhand.store import Store
from evenhand.views import console
from evenhand.views.api import Judge
from evenhand.views.tables import FittedTable, short_names

WIDTHS = (80, 100, 140)
LEFT = "Meridian-Tuned-Llama-3-70B-Instruct-v1"
RIGHT = "Meridian-Tuned-Llama-3-70B-Instruct-v2"
FAMILIES = (
    "Meridian-Tuned-Llama-{}-70B-Instruct",
    "harbour_claude_{}_sonnet_concise",
    "Quillon{}-72B-Chat-DPO-long",
    "gpt{}_turbo_1106_preview_verbose",
    "openlantern-v{}-mistral-7b-hybrid",
)
MODELS = [family.format(number) for number in range(12) for family in FAMILIES][:58]
COMMANDS = (
    ("results",),
    ("results", "--by", "topic"),
    ("results", "--by", "model_1"),
    ("results", "--human"),
    ("results", "--between", "format,overall"),
    ("results", "--alpaca-length-control"),
    ("suggest",),
    ("judges",),
    ("card",),
    ("card", "chained", "four"),
)
# A number that is cut: a digit or a sign before the mark of a cut.
CUT = re.compile(r"[\d+−.,–%-]…")


def lean(prompt: Prompt) -> dict[str, float]:
    """Some verdict or other, and the orders often disagree."""
    text = prompt.turns[-1].text
    share = 0.3 + 0.05 * (sum(map(ord, text)) % 9)
    return {"A": share, "B": 0.9 - share, "tie": 0.1}


def later_model(prompt: Prompt) -> str:
    """Mostly prefers the model that comes later in the list, and now and then the other one."""
    (n, one), (_, two) = re.findall(r"(\d+) of (\S+)", prompt.turns[-1].text)[-2:]
    places = MODELS.index(one), MODELS.index(two)
    surprise = (sum(places) + int(n)) % 4 == 0
    return "A" if (places[0] > places[1]) != surprise else "B"


@pytest.fixture(scope="module")
def two_models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two models with long names, judged twice; one pair in two has a label."""
    db = tmp_path_factory.mktemp("narrow") / "evenhand.db"
    pairs = [
        Pair(
            f"Explain the {word} of question number {number} to a newcomer in three sentences.",
            f"one {number} " * (3 + number % 5),
            f"two {number} " * (3 + number % 5),
            id=f"collection-of-questions/{word}/{number:04}",
            model_1=LEFT,
            model_2=RIGHT,
            labels={"overall": "1" if number % 3 else "2"} if number % 2 else {},
            metadata={"topic": f"a-rather-long-topic-about-{word}"},
        )
        for number in range(40)
        for word in ("gravitation", "constitution")
    ]
    for protocol in ("chained", "four"):
        engine = ScriptedEngine(lean, name="organisation/a-judge-with-a-long-name-and-a-date-2026-11-16")
        with Judge(engine, protocol, db=db) as judge:
            list(judge.judge(pairs))
    return db


@pytest.fixture(scope="module")
def many_models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Fifty-eight models, each against the next ones."""
    db = tmp_path_factory.mktemp("many") / "evenhand.db"
    pairs = [
        Pair(f"Question {n}?", f"{n} of {one}", f"{n} of {two}", model_1=one, model_2=two)
        for n in range(4)
        for place, one in enumerate(MODELS)
        for two in (MODELS[(place + 1) % 58], MODELS[(place + 7) % 58])
    ]
    with Judge(ScriptedEngine(later_model), "overall", db=db) as judge:
        list(judge.judge(pairs))
    return db


@pytest.fixture(params=WIDTHS)
def width(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> int:
    monkeypatch.setattr(console.out, "width", request.param)
    return int(request.param)


def table_lines(text: str) -> list[str]:
    """The lines of tables: those up to the first empty one behind a rule."""
    lines, inside = text.splitlines(), False
    found = []
    for before, line in zip(["", *lines], lines, strict=False):
        inside = bool(line.strip()) and (inside or set(line.strip()) == {"─"})
        if inside:
            found.append(before if set(line.strip()) == {"─"} else line)
    return found


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_nothing_is_cut_that_must_be_whole(two_models: Path, width: int, command: tuple[str, ...]) -> None:
    shown = evenhand(*command, "--db", two_models).stdout
    rows = table_lines(shown)
    assert rows
    assert max(map(len, rows)) <= width
    assert not [line for line in shown.splitlines() if CUT.search(line)]


def test_numbers_stand_on_the_right(two_models: Path, width: int) -> None:
    shown = evenhand("results", "--db", two_models).stdout
    rows = re.findall(r"^ \w+ +\d+\.\d%.*$", shown, re.MULTILINE)[:5]
    assert len({line.index("%") for line in rows}) == 1
    assert len({len(line.rstrip()) for line in rows}) == 1


@pytest.mark.parametrize("command", [c for c in COMMANDS if "--by" not in c and c[0] != "suggest"], ids=" ".join)
def test_every_figure_of_a_wide_terminal_is_in_a_narrow_one(
    two_models: Path, monkeypatch: pytest.MonkeyPatch, command: tuple[str, ...]
) -> None:
    monkeypatch.setattr(console.out, "width", 400)
    wide = evenhand(*command, "--db", two_models).stdout
    monkeypatch.setattr(console.out, "width", 80)
    narrow = evenhand(*command, "--db", two_models).stdout
    figures = [set(re.findall(r"(?<![\w/-])[+-]?\d[\d.,]*%?(?![\w/-])", text)) for text in (wide, narrow)]
    assert figures[0] <= figures[1]


@pytest.mark.parametrize("command", [c for c in COMMANDS if c[0] in ("results", "card")], ids=" ".join)
def test_headings_are_whole(two_models: Path, width: int, command: tuple[str, ...]) -> None:
    shown = evenhand(*command, "--db", two_models).stdout
    assert "…" not in re.sub(r"\S*\w…\S+", "", shown)  # but in the middle of a name


def test_millions_of_pairs_are_whole_numbers(two_models: Path, width: int) -> None:
    with Store(two_models, read_only=True) as store:
        summary = judge_summary(store, store.judges()[0]).summary
    large: dict[str, Any] = {
        "wins_1": 8_512_345,
        "ties": 1_234_567,
        "wins_2": 9_876_543,
        "inconsistent": 7_654_321,
        "invalid": 12_345,
    }
    dimensions = {name: replace(found, **large) for name, found in summary.dimensions.items()}
    with console.out.capture() as captured:
        console.out.print(console.summary_table(replace(summary, dimensions=dimensions), "title"))
    shown = captured.get()
    assert max(map(len, shown.splitlines())) <= width
    for number in large.values():
        assert len(re.findall(rf" {number:,} ", shown)) == len(dimensions)


def test_the_headline_row_comes_first(two_models: Path, width: int) -> None:
    shown = evenhand("results", "--db", two_models).stdout
    tables = re.findall(r"─ *\n +(\w+) ", shown)
    assert set(tables) == {"combined"}, tables


def test_long_names_of_two_versions_stay_apart(two_models: Path, width: int) -> None:
    shown = evenhand("results", "--db", two_models).stdout
    heads = set(re.findall(r"\S*…\S*v\d", shown)) | set(re.findall(r"\S+-v\d", shown))
    assert any(head.endswith("v1") for head in heads)
    assert any(head.endswith("v2") for head in heads)
    assert LEFT in shown
    assert RIGHT in shown


def test_a_ranking_of_58_models(many_models: Path, width: int) -> None:
    shown = evenhand("rank", "--db", many_models).stdout
    ranked = json.loads(evenhand("rank", "--db", many_models, "--json").stdout)["models"]
    rows = [line for line in table_lines(shown) if re.match(r" +\d+(–\d+)? ", line)]
    assert len(rows) == 58
    assert max(map(len, shown.splitlines()[:62])) <= width
    assert not CUT.search(shown)
    names = [line.split()[1] for line in rows]
    assert len(set(names)) == 58
    for line, model in zip(rows, ranked, strict=True):
        assert f" {model['strength']:.2f} " in line
        assert f" {model['n']:,.0f}" in line
        head, _, tail = line.split()[1].partition("…")
        assert model["model"].startswith(head)
        assert tail in model["model"]


@pytest.mark.parametrize(
    ("command", "left_out"),
    [
        (("rank",), "won, tied, lost, invalid"),
        (("suggest",), "uncertainty, flip, dispute, place"),
        (("results", "--by", "topic"), "at equal length"),
        (("judges",), "since"),
    ],
    ids=lambda value: value[0] if isinstance(value, tuple) else "",
)
def test_a_narrow_terminal_says_what_it_leaves_out(
    two_models: Path,
    many_models: Path,
    monkeypatch: pytest.MonkeyPatch,
    command: tuple[str, ...],
    left_out: str,
) -> None:
    said = {}
    for width in (80, 200):
        monkeypatch.setattr(console.out, "width", width)
        said[width] = evenhand(*command, "--db", many_models if command == ("rank",) else two_models).stdout
    assert f"In a wider terminal, and with --json: {left_out}." in said[80]
    assert "In a wider terminal" not in said[200]
    for name in left_out.split(", "):
        assert not [line for line in table_lines(said[80]) if name in line.split()]


@pytest.mark.parametrize("room", [12, 16, 24])
def test_names_that_are_cut_differ(room: int) -> None:
    cut = short_names(MODELS, room)
    assert len(set(cut)) == len(MODELS)
    assert max(map(len, cut)) <= room


def test_names_that_differ_in_their_middle_alone_differ() -> None:
    names = [f"a-very-long-beginning-{number}-and-a-very-long-end-of-it" for number in range(5)]
    cut = short_names(names, 16)
    assert len(set(cut)) == 5
    assert max(map(len, cut)) <= 16


def test_a_table_is_divided_at_its_break(monkeypatch: pytest.MonkeyPatch) -> None:
    table = FittedTable("title")
    table.add_column("dimension", no_wrap=True)
    table.breaks = (2,)
    for number in range(1, 5):
        table.add_column(f"column{number}", justify="right")
    table.add_row("overall", "1,234.5", "2,345.6", "3,456.7", "4,567.8")
    monkeypatch.setattr(console.out, "width", 42)
    with console.out.capture() as captured:
        console.out.print(table)
    lines = [line.split() for line in captured.get().splitlines() if line.strip()]
    assert lines[0] == ["title"]
    assert [line for line in lines if line[0] == "dimension"] == [
        ["dimension", "column1"],
        ["dimension", "column2", "column3", "column4"],
    ]
