"""Commands over a folder of shards say what they say over a database with the same judgments, figure for figure."""

from __future__ import annotations

import json
import random
import re
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from command import evenhand
from evenhand import Judge, Pair, ScriptedEngine
from evenhand.columns import Block
from evenhand.errors import EngineError, InputError
from evenhand.pairs import Side
from evenhand.people import People
from evenhand.protocol import ORDERS
from evenhand.results.comparison import compare, values_of
from evenhand.results.evidence import gather
from evenhand.results.groups import group_by
from evenhand.results.human import human_rates
from evenhand.results.plain import plain as plain_data
from evenhand.results.ranking import matches_of
from evenhand.results.summary import summarise
from evenhand.shards import Heard, Row, Shards, open_shards, write_shard, writing
from evenhand.shards.copying import copy_store, rows_of_store
from evenhand.shards.writing import begin_folder
from evenhand.store import JudgeRow, Records, Store
from evenhand.verdict import LABELS, Verdict
from test_shards import plain

COUNT = 120
MODELS = ("ann", "ben", "cid")
SIDES: tuple[Side, ...] = ("1", "2", "tie")
JUDGE = {
    **dict.fromkeys(("fingerprint", "model", "protocol", "template"), "f"),
    "identity": {},
    "raw_markup": False,
    "orders": "both",
    "seed": 0,
}
PROTOCOLS = ("chained", "overall", "four", "weighed")


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
        return ", ".join([prompt.words[0]] * prompt.verdicts)
    a = chance / 1.1 + 0.1
    first, second, *_ = prompt.words  # A and B, or yes and no
    return {first: 0.95 * a, second: 0.95 * (1 - a), "tie": 0.05}


@pytest.fixture(scope="module", params=["both", "random"])
def kept(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A database with the judges of three protocols, and a folder for each."""
    home = tmp_path_factory.mktemp("kept")
    db = home / "evenhand.db"
    for protocol in PROTOCOLS:
        with Judge(ScriptedEngine(script), protocol, db=db, orders=request.param, seed=3) as judge:
            assert len(list(judge.judge(make_pairs()))) == COUNT + 1
    with Store(db) as store, pytest.MonkeyPatch.context() as patch:
        patch.setattr(writing, "ROW_GROUP", 17)  # several in a shard, and the last one shorter
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
    assert same(two, one) if words[0] == "rank" else two == one
    assert one["judges"]


def same(one: Any, two: Any) -> bool:
    """Equal, numbers to ten digits: sums of fractions differ in the last with their order and their logarithms."""
    if isinstance(one, dict):
        return one.keys() == two.keys() and all(same(one[key], two[key]) for key in one)
    if isinstance(one, list):
        return len(one) == len(two) and all(map(same, one, two))
    return bool(one == pytest.approx(two, rel=1e-10, abs=1e-10)) if isinstance(one, float) else bool(one == two)


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


@pytest.mark.parametrize("command", ["results", "rank", "card", "report"])
def test_without_the_extra_the_pip_command_is_said(
    kept: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    said = evenhand(command, "--db", kept[1] / "overall", code=2).stderr
    assert "pip install 'evenhand[parquet]'" in said


def test_an_address_is_taken(kept: tuple[Path, Path]) -> None:
    where = f"file://{kept[1] / 'overall'}"
    assert facts("results", "--db", where) == facts("results", "--db", kept[1] / "overall")


# -- blocks of verdicts against one pair at a time ---------------------------------------------------------------

numbers = st.floats(0.0, 1.0).map(lambda x: round(x, 3))


@st.composite
def verdicts(draw: st.DrawFn, dimension: str) -> Verdict:
    kind = draw(st.sampled_from(["told", "told", "hard", "massless", "invalid"]))
    if kind == "invalid":
        return Verdict(dimension, None, invalid=draw(st.sampled_from(["timeout", "unreadable", None])))
    label = draw(st.sampled_from(LABELS))
    if kind == "hard":
        return Verdict(dimension, label, mass=draw(st.sampled_from([None, 0.0])))
    shares = [draw(numbers) + 1e-6 for _ in LABELS]
    p = {name: share / sum(shares) for name, share in zip(LABELS, shares, strict=True)}
    return Verdict(dimension, label, p, None if kind == "massless" else draw(numbers))


@st.composite
def rows(draw: st.DrawFn, dimensions: tuple[str, ...]) -> list[Row]:
    found = []
    for number in range(draw(st.integers(1, 6))):
        orders = draw(st.sampled_from([ORDERS, ORDERS[:1], ORDERS[1:]]))
        said = {order: {name: draw(verdicts(name)) for name in dimensions} for order in orders}
        heard = {order: Heard(f"{number}{order}", verdicts) for order, verdicts in said.items()}
        labels: dict[str, Side] = draw(st.sampled_from([{}, {"overall": "1"}, {"overall": "tie", "format": "2"}]))
        models = draw(st.sampled_from([("m", "n"), ("n", "m"), ("", "m"), ("m", "m")]))
        words = [draw(st.sampled_from(["x", "longer", ""])) for _ in "12"]
        about: dict[str, Any] = draw(st.sampled_from([{}, {"topic": "sums"}, {"topic": ["a", 1]}]))
        pair = Pair(f"Task {number // 2}", words[0], words[1], f"p{number}", *models, labels, about)
        found.append(Row(pair, heard, 1.0))
    return found


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    data=st.data(),
    dimensions=st.sampled_from([("overall",), ("format", "overall"), ("precision", "format", "overall")]),
)
def test_blocks_count_as_one_pair_after_the_other(
    data: st.DataObject, dimensions: tuple[str, ...], tmp_path_factory: pytest.TempPathFactory
) -> None:
    every = data.draw(rows(dimensions))
    place = begin_folder(tmp_path_factory.mktemp("blocks"), {**JUDGE, "dimensions": dimensions})
    write_shard(place, "0", every, fingerprint="f")
    summary, bouts = Summary(dimensions), Bouts(dimensions[-1])
    for row in every:
        summary.add(row.judgment())
        bouts.add(row.judgment())
    with open_shards(place) as shards:
        assert same(summarise(blocks(shards), dimensions).facts(), summary.facts())
        judgments = [row.judgment() for row in every]
        slow, fast = columns_of(judgments), columns_of_blocks(blocks(shards, keys=True))
        assert {name: sorted(column.keys) for name, column in fast.items()} == {
            name: sorted(column.keys) for name, column in slow.items()
        }
        found = bouts_of_blocks(blocks(shards), dimensions[-1])
        assert (len(found), found.unnamed, found.seen) == (len(bouts), bouts.unnamed, bouts.seen)
        for name in ("topic", "model_1"):
            try:
                one = {value: group.facts() for value, group in group_by(judgments, dimensions, name).items()}
            except InputError as fault:
                with pytest.raises(InputError, match=re.escape(fault.message)):
                    group_blocks(blocks(shards, metadata=True), dimensions, name)
            else:
                two = group_blocks(blocks(shards, metadata=True), dimensions, name)
                assert list(two) == list(one)
                assert all(same(group.facts(), one[value]) for value, group in two.items())


def test_a_shard_without_a_verdict_on_each_dimension_is_refused(tmp_path: Path) -> None:
    row = Row(Pair("Hi", "x", "y"), {"forward": Heard("k", {"format": Verdict("format", "A")})})
    place = begin_folder(tmp_path, {**JUDGE, "dimensions": ("format", "overall")})
    write_shard(place, "0", [row], fingerprint="f")
    with open_shards(place) as shards, pytest.raises(InputError, match="no verdict on each of format, overall"):
        list(blocks(shards))
