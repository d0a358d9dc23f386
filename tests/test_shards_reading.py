"""Commands over a folder of shards say what they say over a database with the same judgments, figure for figure."""

from __future__ import annotations

import json
import random
import shutil
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from command import evenhand
from evenhand import Judge, Pair, ScriptedEngine
from evenhand.core.columns import Block, Words
from evenhand.core.errors import EngineError, InputError
from evenhand.core.outcome import cluster_number
from evenhand.core.pair import Side
from evenhand.core.protocol import ORDERS
from evenhand.core.verdict import LABELS, Verdict, found_on
from evenhand.results.comparison import compare, values_of
from evenhand.results.evidence import gather
from evenhand.results.groups import group_by
from evenhand.results.human import human_rates
from evenhand.results.people import People
from evenhand.results.plain import plain as plain_data
from evenhand.results.ranking import matches_of
from evenhand.results.summary import summarise
from evenhand.store import JudgeRow, Records, Store
from evenhand.store.shards import Failure, OrderRecord, ShardRow, open_shards, write_shard, writing
from evenhand.store.shards.copying import copy_store, rows_of_store
from evenhand.store.shards.writing import begin_folder
from test_shards import plain

OLD = Path(__file__).parent / "fixtures" / "shards_form_1"
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
        second = first if number % 40 == 7 else second  # one conversation in both orders
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


def fields(*words: str | Path) -> Any:
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
    one = fields(*words, "--db", db, *chosen)
    two = fields(*words, "--db", home / protocol, *chosen)
    for found in (one, two):
        found.pop("database", None)
    assert two == one
    assert one["judges"]


def test_dimensions_and_judges_are_compared_across_folders_and_databases(kept: tuple[Path, Path]) -> None:
    db, home = kept
    between = ["results", "--between", "format,overall", "--protocol", "chained"]
    assert fields(*between, "--db", home / "chained") == fields(*between, "--db", db)
    here = fields("results", "--db", db, "--protocol", "chained", "--against", "four")
    there = fields("results", "--db", home / "chained", "--against", home / "four")
    [mine], [theirs] = here["judges"], there["judges"]
    assert [{**row, "db": None} for row in theirs["against"]] == mine["against"]
    two = fields("card", home / "chained", home / "four", "--dimension", "overall")["comparisons"]
    assert (
        two[0]["pairs"] == fields("card", "chained", "four", "--db", db, "-d", "overall")["comparisons"][0]["pairs"]
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
        assert list(shards.records()) == [plain(one) for one in rows]
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
    assert fields("results", "--db", where) == fields("results", "--db", kept[1] / "overall")


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
def rows(draw: st.DrawFn, dimensions: tuple[str, ...]) -> list[ShardRow]:
    found = []
    for number in range(draw(st.integers(1, 6))):
        orders = draw(st.sampled_from([ORDERS, ORDERS[:1], ORDERS[1:]]))
        said = {order: {name: draw(verdicts(name)) for name in dimensions} for order in orders}
        record = {order: OrderRecord(f"{number}{order}", verdicts) for order, verdicts in said.items()}
        labels: dict[str, Side] = draw(st.sampled_from([{}, {"overall": "1"}, {"overall": "tie", "format": "2"}]))
        models = draw(st.sampled_from([("m", "n"), ("n", "m"), ("", "m"), ("m", "m")]))
        words = [draw(st.sampled_from(["x", "longer", ""])) for _ in "12"]
        about: dict[str, Any] = draw(st.sampled_from([{}, {"topic": "sums"}, {"topic": ["a", 1]}]))
        pair = Pair(f"Task {number // 2}", words[0], words[1], f"p{number}", *models, labels, about)
        ended = draw(st.integers(0, 4)) > 0
        if not ended:  # a run was stopped in the middle of it
            record = {order: replace(each, failure=Failure(1, "stopped")) for order, each in record.items()}
        found.append(ShardRow(pair, record, 1.0, ended))
    return found


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    data=st.data(),
    dimensions=st.sampled_from(
        [("overall",), ("format", "overall"), ("precision", "format", "overall"), ("good_1", "good_2", "overall")]
    ),
)
def test_blocks_are_what_the_judgments_say(
    data: st.DataObject, dimensions: tuple[str, ...], tmp_path_factory: pytest.TempPathFactory
) -> None:
    every = data.draw(rows(dimensions))
    place = begin_folder(tmp_path_factory.mktemp("blocks"), {**JUDGE, "dimensions": dimensions})
    write_shard(place, "0", every, fingerprint="f")
    ended = [row.judgment() for row in every if row.ended]
    with open_shards(place) as shards:
        [judge] = shards.judges()
        assert shards.unfinished(judge) == len(every) - len(ended)
        found = list(shards.blocks(judge, metadata=True))
        numbers = [number for number, row in enumerate(every, 1) if row.ended]
        assert [number for block in found for number in block.number] == numbers
        assert len(found) == bool(ended)
        for block in found:
            same_block(block, replace(Block.of(ended), number=block.number))
        assert list(shards.judgments(judge)) == ended


def same_block(one: Block, two: Block) -> None:
    """Equal in every column, to the last digit."""
    for name in ("number", "key", "cluster", "length_1", "length_2"):
        assert getattr(one, name).tolist() == getattr(two, name).tolist(), name
    for name in ("model_1", "model_2", "candidate", "labels", "metadata"):
        assert spelled(getattr(one, name)) == spelled(getattr(two, name)), name
    assert list(one.outcomes) == list(two.outcomes)
    for name, found in one.outcomes.items():
        other = two.outcomes[name]
        for column in ("side", "p", "forward", "swapped", "asked", "mass", "masses", "inconsistent"):
            mine, theirs = getattr(found, column), getattr(other, column)
            assert np.array_equal(mine, theirs, equal_nan=column == "p"), (name, column)
        assert (spelled(found.reason), found.pointwise) == (spelled(other.reason), other.pointwise)


def spelled(column: Words | None) -> list[Any]:
    """The words of a column; of JSON, what it says."""
    assert column is not None
    words = [None if code < 0 else column.words[code] for code in column.codes]
    return [json.loads(word) if word and word[0] == "{" else word for word in words]


def test_a_shard_without_an_outcome_on_each_dimension_is_refused(tmp_path: Path) -> None:
    row = ShardRow(Pair("Hi", "x", "y"), {"forward": OrderRecord("k", {"format": Verdict("format", "A")})})
    place = begin_folder(tmp_path, {**JUDGE, "dimensions": ("format", "overall")})
    write_shard(place, "0", [row], fingerprint="f")
    with open_shards(place) as shards, pytest.raises(InputError, match="no outcome on each of format, overall"):
        list(shards.blocks(shards.judges()[0]))


# -- results of a database and of its folder ---------------------------------------------------------------------


def counted(store: Records, judge: JudgeRow) -> str:
    """All that is counted of a judge, to the last digit."""
    people, dimensions = People(store), found_on(judge.dimensions)
    values, readings = values_of(store.blocks(judge)), ("hard", "expected")
    found = {
        "summary": replace(summarise(store.blocks(judge), dimensions), unfinished=store.unfinished(judge)),
        "groups": {
            name: group_by(store.blocks(judge, metadata=True), dimensions, name) for name in ("topic", "model_1")
        },
        "ranking": [matches_of(store.blocks(judge), "overall", how).ranking() for how in readings],  # type: ignore[arg-type]
        "compare": [compare(values[dimensions[0]], values[name], name, "x") for name in dimensions],
        "human": human_rates(store, judge, people, width=0.1),
        "evidence": {
            name: {column: value for column, value in vars(each).items() if column != "keys"}
            for name, each in gather(store, judge, people).items()
        },
    }
    return json.dumps(spread(found), indent=1, sort_keys=True)


def spread(value: Any) -> Any:
    """Plain data, arrays as lists."""
    if isinstance(value, np.ndarray):
        return value.tolist()
    if isinstance(value, dict):
        return {str(name): spread(item) for name, item in value.items()}
    return value if isinstance(value, (str, int, float)) else plain_data(value)


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_results_of_a_folder_are_those_of_a_database_to_the_last_digit(
    kept: tuple[Path, Path], protocol: str
) -> None:
    db, home = kept
    with Store(db) as store, open_shards(home / protocol) as shards:
        [row] = [row for row in store.judges() if row.protocol == protocol]
        [mine] = shards.judges()
        one, two = counted(store, row), counted(shards, mine)
    assert two == one
    found = json.loads(one)
    assert found["summary"]["dimensions"]["overall"]["agreement"]["n"] > COUNT / 3
    assert 0 < found["human"]["overall"]["labelled"] < COUNT


def test_pairs_that_were_not_brought_to_an_end_are_copied_and_not_counted(tmp_path: Path) -> None:
    asked = 0

    def stop(_: Any) -> str:
        nonlocal asked
        asked += 1
        if asked > 11:
            raise EngineError("no more", reason="budget", fatal=True)
        return "A"

    db = tmp_path / "e.db"
    with Judge(ScriptedEngine(stop), "chained", db=db) as judge, pytest.raises(EngineError):
        list(judge.judge(make_pairs()[:6]))
    with Store(db) as store:
        [row] = store.judges()
        given = copy_store(store, row, tmp_path / "folder")
        with open_shards(tmp_path / "folder") as shards:
            assert shards.unfinished(row) == store.unfinished(row) > 0
            assert shards.judges()[0].pairs == row.pairs == given
            assert list(shards.judgments(row)) == list(store.judgments(row))
            every = list(shards.records())
            assert sum(len(record.answers) for each in every for record in each.orders.values()) == 11
            assert all(each.ended or not each.finished for each in every)


# -- folders of the old form -------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["chained", "weighed"])
def test_a_folder_of_the_old_form_counts_as_one_of_today(name: str, tmp_path: Path) -> None:
    notes: list[str] = []
    with open_shards(OLD / name, notes.append) as old:
        assert {part.form for part in old.parts} == {"1"}
        place = begin_folder(tmp_path, {key: old.fields[key] for key in old.fields if key != "form"})
        write_shard(place, "0", list(old.records()), fingerprint=old.fields["fingerprint"])
        with open_shards(place) as new:
            [one], [two] = old.judges(), new.judges()
            assert {part.form for part in new.parts} == {"2"}
            assert counted(old, one) == counted(new, two)
            assert list(old.voted()) == list(new.voted()) != []
            assert old.unfinished(one) == new.unfinished(two) == (1 if name == "chained" else 0)
            mine, theirs = old.blocks(one), new.blocks(two)
            assert [n for block in mine for n in block.number] == [n for block in theirs for n in block.number]
    assert len(notes) == 1
    assert "older evenhand" in notes[0]


def test_a_run_goes_on_in_a_folder_of_the_old_form(tmp_path: Path) -> None:
    shutil.copytree(OLD / "chained", tmp_path / "run")
    with open_shards(tmp_path / "run") as old:
        [judge] = old.judges()
        [*_, last] = old.records()
        assert not last.ended
        before = summarise(old.blocks(judge))
        verdicts = {name: Verdict(name, "A") for name in judge.dimensions}
        done = {order: OrderRecord(record.key, verdicts) for order, record in last.orders.items()}
        begin_folder(tmp_path / "run", {key: old.fields[key] for key in old.fields if key != "form"})
        write_shard(tmp_path / "run", "more", [ShardRow(last.pair, done)], fingerprint=judge.fingerprint)
    with open_shards(tmp_path / "run") as mixed:
        assert {part.form for part in mixed.parts} == {"1", "2"}
        after = summarise(mixed.blocks(judge))
        assert (after.pairs, mixed.unfinished(judge)) == (before.pairs + 1, 0)
        clusters = {int(c) for block in mixed.blocks(judge) for c in block.cluster}
        assert clusters == {cluster_number(row.pair.instruction) for row in mixed.records()}


def test_commands_read_the_old_form_and_say_so() -> None:
    done = evenhand("results", "--db", OLD / "chained", "--json")
    assert done.stderr.count("note:") == 1
    found = json.loads(done.stdout)["judges"][0]
    assert (found["pairs"], found["repeats"]) == (9, 1), "two of the ten have the same texts and other ids"
