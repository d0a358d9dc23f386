"""Commands over a folder of shards say what they say over a database with the same judgments, figure for figure."""

from __future__ import annotations

import json
import random
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from command import evenhand
from evenhand import Judge, Pair, ScriptedEngine
from evenhand.errors import EngineError
from evenhand.pairs import Side
from evenhand.shards import open_shards
from evenhand.shards.copying import copy_store, rows_of_store
from evenhand.store import Store
from test_shards import plain

COUNT = 120
MODELS = ("ann", "ben", "cid")
SIDES: tuple[Side, ...] = ("1", "2", "tie")
PROTOCOLS = ("chained", "overall", "four")


def make_pairs() -> list[Pair]:
    """Two pairs for each instruction, of three models; people have labelled half, and voted on a few."""
    rng = random.Random(1)
    pairs = []
    for number in range(COUNT):
        one, two = rng.sample(MODELS, 2)
        best = MODELS.index(one) < MODELS.index(two)
        words = ("good", "poor") if best else ("poor", "good")
        first, second = (f"{'so ' * rng.randint(1, 30)}{word} {number}" for word in words)
        second = first if number % 40 == 7 else second  # one hearing in both orders
        votes = {"human": {who: rng.choice(SIDES) for who in ("x", "y", "z")}} if number % 3 == 0 else {}
        labels: dict[str, Side] = {"overall": rng.choice(SIDES), "format": "1"} if number % 2 else {}
        about = {"topic": "ä\x1b[31m" if number % 4 else "sums", "hard": number % 5 == 0, **votes}
        pairs.append(Pair(f"Task {number // 2} ü", first, second, f"p{number}", one, two, labels, about))
    pairs.append(replace(pairs[3], id="twin"))
    return pairs


def script(prompt: Any) -> dict[str, float] | str:
    """Leans to the better and to the first; now and then says nothing, fails, or tells no probabilities."""
    text = "".join(turn.text for turn in prompt.turns[-3:])
    chance = random.Random(text).random()
    if chance > 0.985:
        raise EngineError("the server is gone", reason="timeout")
    if chance > 0.97:
        return "I cannot say."
    if chance > 0.9:
        return ", ".join(["A"] * prompt.verdicts)
    a = chance / 1.1 + 0.1
    return {"A": 0.95 * a, "B": 0.95 * (1 - a), "tie": 0.05}


@pytest.fixture(scope="module", params=["both", "random"])
def kept(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A database with the judges of three protocols, and a folder for each."""
    home = tmp_path_factory.mktemp("kept")
    db = home / "evenhand.db"
    for protocol in PROTOCOLS:
        with Judge(ScriptedEngine(script), protocol, db=db, orders=request.param, seed=3) as judge:
            assert len(list(judge.judge(make_pairs()))) == COUNT + 1
    with Store(db) as store:
        for row in store.judges():
            assert copy_store(store, row, home / row.protocol, rows=50) == COUNT + 1
    return db, home


def facts(*words: str | Path) -> Any:
    return json.loads(evenhand(*words, "--json").stdout)


@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize(
    "words",
    [
        ["results"],
        ["results", "--by", "topic"],
        ["results", "--by", "hard"],
        ["results", "--by", "model_2"],
        ["results", "--human"],
        ["rank"],
        ["rank", "--expected", "--scale", "elo", "--anchor", "ben"],
        ["card"],
        ["report", "--pairs", "5", "--examples", "3"],
    ],
    ids=lambda words: " ".join(words),
)
def test_a_folder_says_what_a_database_says(kept: tuple[Path, Path], protocol: str, words: list[str]) -> None:
    db, home = kept
    chosen = [protocol] if words[0] == "card" else ["--protocol", protocol]
    one = facts(*words, "--db", db, *chosen)
    two = facts(*words, "--db", home / protocol, *chosen)
    for found in (one, two):
        found.pop("database", None)
    assert two == one
    assert one["judges"]


def test_dimensions_and_judges_are_compared_across_folders_and_databases(kept: tuple[Path, Path]) -> None:
    db, home = kept
    between = ["results", "--between", "format,overall", "--protocol", "chained"]
    assert facts(*between, "--db", home / "chained") == facts(*between, "--db", db)
    here = facts("results", "--db", db, "--protocol", "chained", "--against", "four")
    there = facts("results", "--db", home / "chained", "--against", home / "four")
    [mine], [theirs] = here["judges"], there["judges"]
    assert [{**row, "db": None} for row in theirs["against"]] == mine["against"]
    two = facts("card", home / "chained", home / "four", "--dimension", "overall")["comparisons"]
    assert (
        two[0]["pairs"] == facts("card", "chained", "four", "--db", db, "-d", "overall")["comparisons"][0]["pairs"]
    )


@pytest.mark.parametrize("form", ["judgments", "verdicts", "dpo", "kto", "alpaca-eval", "leaderboard", "judge"])
def test_exports_are_the_same(kept: tuple[Path, Path], tmp_path: Path, form: str) -> None:
    db, home = kept
    words = ("export", form, "--protocol", "overall")
    evenhand(*words, "--db", db, "--out", tmp_path / "one.jsonl")
    evenhand(*words, "--db", home / "overall", "--out", tmp_path / "two.jsonl")
    assert (tmp_path / "two.jsonl").read_text() == (tmp_path / "one.jsonl").read_text() != ""


@pytest.mark.parametrize("suffix", ["html", "md"])
def test_reports_show_the_same_pairs(kept: tuple[Path, Path], tmp_path: Path, suffix: str) -> None:
    db, home = kept
    found = []
    for number, where in enumerate((db, home / "chained")):
        file = tmp_path / f"{number}.{suffix}"
        evenhand("report", "--db", where, "--protocol", "chained", "--pairs", "9", "--out", file)
        found.append(file.read_text().replace("evenhand.db", "chained"))
    assert found[0].count("\n") > 100
    assert found[1] == found[0]


def test_what_is_copied_comes_back(kept: tuple[Path, Path]) -> None:
    db, home = kept
    with Store(db) as store, open_shards(home / "chained") as shards:
        [row] = [row for row in store.judges() if row.protocol == "chained"]
        rows = list(rows_of_store(store, row))
        assert list(shards.heard()) == [plain(one) for one in rows]
        assert {one.finished for one in rows} == {True, False}
        assert shards.runs(1) == store.archive.runs(row.id)
        assert shards.usage(row)[1] == pytest.approx(store.usage(row)[1])


def test_commands_that_write_want_a_database(kept: tuple[Path, Path]) -> None:
    said = evenhand("reread", "--db", kept[1] / "chained", code=2).stderr
    assert "is a folder" in said


@pytest.mark.parametrize("command", ["results", "rank", "card", "report"])
def test_a_bad_folder_is_refused_by_every_command(tmp_path: Path, command: str) -> None:
    said = evenhand(command, "--db", tmp_path, code=2).stderr
    assert "is no folder of verdicts" in said
    assert "judge.json" in said
    assert "no database at" in evenhand(command, "--db", tmp_path / "none.db", code=2).stderr


def test_an_address_is_taken(kept: tuple[Path, Path]) -> None:
    where = f"file://{kept[1] / 'overall'}"
    assert facts("results", "--db", where) == facts("results", "--db", kept[1] / "overall")
