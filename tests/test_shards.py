"""A folder of shards: written whole, read back the same, each pair counted once, refused with a reason."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from evenhand.core.engine import Answer, Token, Usage
from evenhand.core.errors import InputError
from evenhand.core.judge import Setup
from evenhand.core.pair import Pair
from evenhand.core.protocol import Protocol
from evenhand.core.verdict import Label, Verdict, invalid
from evenhand.engines.scripted import ScriptedEngine
from evenhand.store.shards import (
    Failure,
    OrderRecord,
    Place,
    RunNote,
    ShardRow,
    begin_shards,
    keys_in,
    note_run,
    open_shards,
    shard_schema,
    table_of,
    write_shard,
)

SETUP = Setup(ScriptedEngine(lambda prompt: "A"), Protocol.load("overall"))


def verdict(label: Label, p: float = 0.7) -> Verdict:
    rest = (1 - p) / 2
    shares: dict[Label, float] = {"A": rest, "B": rest, "tie": rest}
    return Verdict("overall", label, shares | {label: p}, 0.9)


def row(number: int, *, label: Label = "A", failed: bool = False, judged: float = 1.0) -> ShardRow:
    pair = Pair(
        f"Question {number}",
        "yes" * number,
        "no",
        f"p{number}",
        "m",
        "n",
        {"overall": "1"},
        {"topic": "ü", "x": [1]},
    )
    answer = Answer(label, (Token(label, ((label, -0.1), ("tie", -3.0))),), Usage(10, 5, 1), notes=("broken",))
    good = OrderRecord(SETUP.key(pair, "forward"), {"overall": verdict(label)}, [answer])
    bad = OrderRecord(
        SETUP.key(pair, "swapped"),
        {v.dimension: v for v in invalid(["overall"], "timeout", "too slow")},
        failure=Failure(0, "timeout", "too slow"),
    )
    other = OrderRecord(SETUP.key(pair, "swapped"), {"overall": verdict("B")}, [answer])
    return ShardRow(pair, {"forward": good, "swapped": bad if failed else other}, judged)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    begin_shards(tmp_path / "run", SETUP)
    return tmp_path / "run"


def write(folder: Path, name: str, rows: Sequence[ShardRow]) -> None:
    write_shard(folder, name, rows, fingerprint=SETUP.fingerprint)


def plain(row: ShardRow) -> ShardRow:
    """Without what the columns do not hold: the text that a verdict was read off stands with the answers."""
    orders = {
        order: replace(
            record,
            answers=tuple(record.answers),
            verdicts={name: replace(verdict, raw="") for name, verdict in record.verdicts.items()},
        )
        for order, record in row.orders.items()
    }
    return replace(row, orders=orders)


def test_rows_come_back_as_they_went(folder: Path) -> None:
    rows = [row(1), row(2, label="tie"), row(3, failed=True)]
    write(folder, "a", rows[:2])
    write(folder, "b", rows[2:])
    with open_shards(folder) as shards:
        assert list(shards.records()) == [plain(one) for one in rows]
        [judge] = shards.judges()
        assert (judge.fingerprint, judge.model, judge.dimensions, judge.pairs) == (
            SETUP.fingerprint,
            "script",
            ("overall",),
            3,
        )
        found = [judgment["overall"] for judgment in shards.judgments(judge)]
        assert [(outcome.side, outcome.invalid) for outcome in found] == [
            ("1", None),
            ("tie", None),
            (None, "timeout"),
        ]
        assert shards.usage(judge) == (Usage(50, 25, 5), 0.0)


def test_a_failure_is_not_finished_and_a_later_success_stands_for_it(folder: Path) -> None:
    write(folder, "0", [row(1, judged=1.0), row(2, failed=True, judged=2.0)])
    assert [row(n).pair in keys_in(folder) for n in (1, 2, 3)] == [True, False, False]
    write(folder, "1", [row(2, judged=3.0), row(3, judged=3.0)])
    write(folder, "2", [row(3, judged=4.0)])
    assert [row(n).pair in keys_in(folder) for n in (1, 2, 3, 4)] == [True, True, True, False]
    assert len(keys_in(folder)) == 3
    with open_shards(folder) as shards:
        assert [one.pair.id for one in shards.records()] == ["p1", "p2", "p3"]
        assert all(one.finished for one in shards.records())


@pytest.mark.parametrize("newest", [0, 1, 2])
def test_the_newest_finished_row_counts_whichever_file_it_is_in(folder: Path, newest: int) -> None:
    for number in range(3):
        label: Label = "A" if number == newest else "B"
        write(folder, str(number), [row(1, label=label, judged=9.0 if number == newest else 1.0 + number)])
    write(folder, "3", [row(1, failed=True, judged=99.0)])
    with open_shards(folder) as shards:
        [one] = shards.records()
        assert one.orders["forward"].verdicts["overall"].label == "A"
        assert shards.judges()[0].pairs == 1
        assert shards.number("p1", one.pair.key) == newest + 1


def test_pairs_with_the_same_texts_and_other_names_are_two(folder: Path) -> None:
    one = row(1)
    write(folder, "0", [one, replace(one, pair=replace(one.pair, id="twin"))])
    with open_shards(folder) as shards:
        assert [row.pair.id for row in shards.records()] == ["p1", "twin"]
        assert shards.number("twin", one.pair.key) == 2
        found = shards.pair(2)
        assert found is not None
        assert found.id == "twin"
        assert shards.pair(3) is None


def test_equal_responses_are_one_hearing_whose_tokens_count_once() -> None:
    pair = Pair("Hi", "x", "x")
    record = OrderRecord(
        SETUP.key(pair, "forward"), {"overall": verdict("tie")}, [Answer("tie", usage=Usage(7, 0, 1))]
    )
    assert ShardRow(pair, {"forward": record, "swapped": record}).usage == Usage(7, 0, 1)


def test_a_shard_is_whole_or_absent(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def stop(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(pq.ParquetWriter, "write_table", stop)
    with pytest.raises(KeyboardInterrupt):
        write(folder, "0", [row(1)])
    assert [file.name for file in folder.iterdir()] == ["judge.json"]


def test_what_a_dead_writer_leaves_is_not_read(folder: Path) -> None:
    write(folder, "0", [row(1)])
    (folder / ".part-1.parquet.abc").write_bytes(b"half")
    with open_shards(folder) as shards:
        assert [part.name for part in shards.parts] == ["part-0.parquet"]


def test_a_shard_that_is_written_again_is_there_once(folder: Path) -> None:
    write(folder, "0", [row(1)])
    write(folder, "0", [row(1)])
    assert len(list(folder.glob("part-*"))) == 1


def test_a_folder_goes_on_with_its_own_judge_alone(folder: Path) -> None:
    begin_shards(folder, SETUP)
    with pytest.raises(InputError, match="another judge"):
        begin_shards(folder, replace(SETUP, raw_markup=True))
    with pytest.raises(InputError, match="other orders"):
        begin_shards(folder, SETUP, orders="forward")
    begin_shards(folder, SETUP, seed=3)  # decides nothing where both orders are judged


def test_a_seed_decides_random_orders(tmp_path: Path) -> None:
    begin_shards(tmp_path, SETUP, orders="random", seed=1)
    with pytest.raises(InputError, match="another seed"):
        begin_shards(tmp_path, SETUP, orders="random", seed=2)


def test_runs_are_kept_beside_the_shards(folder: Path) -> None:
    write(folder, "0", [row(1)])
    for began in (10.0, 20.0):
        note_run(folder, RunNote({"orders": "both"}, began, began + 5, 1, 2, Usage(20, 10, 2)))
    with open_shards(folder) as shards:
        [group] = shards.runs(1)
        assert (group.runs, group.started, group.ended, group.asked, group.computed) == (2, 10.0, 25.0, 4, 40)
        assert shards.usage(shards.judges()[0])[1] == 10.0


def test_tables_and_other_filesystems_are_taken_too(tmp_path: Path) -> None:
    place = begin_shards(f"file://{tmp_path}/run", SETUP)
    assert Place.of(Path(f"file://{tmp_path}/run")) == place
    write_shard(place, "0", table_of([row(1)]), fingerprint=SETUP.fingerprint)
    with open_shards(f"file://{tmp_path}/run") as shards:
        assert [one.pair.id for one in shards.records()] == ["p1"]
    assert (tmp_path / "run" / "part-0.parquet").is_file()


def test_an_address_that_arrow_does_not_know_is_refused() -> None:
    with pytest.raises(InputError, match=r"nowhere://x/y cannot be opened"):
        Place.of("nowhere://x/y")


# -- folders that cannot be used ---------------------------------------------------------------------------------


def refusal(folder: Path) -> str:
    with pytest.raises(InputError) as fault:
        open_shards(folder)
    assert fault.value.hint
    return str(fault.value)


def test_an_empty_folder(tmp_path: Path) -> None:
    assert "is no folder of verdicts" in refusal(tmp_path)
    assert len(keys_in(tmp_path)) == 0


def test_a_folder_that_is_not_there(tmp_path: Path) -> None:
    assert "there is no folder" in refusal(tmp_path / "none")
    assert len(keys_in(tmp_path / "none")) == 0


def test_a_judge_without_shards(folder: Path) -> None:
    assert "has no shards" in refusal(folder)
    assert len(keys_in(folder)) == 0


def test_shards_without_a_judge(folder: Path) -> None:
    write(folder, "0", [row(1)])
    (folder / "judge.json").unlink()
    assert "has 1 shards and no judge.json" in refusal(folder)
    with pytest.raises(InputError, match=r"no judge\.json"):
        begin_shards(folder, SETUP)


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("{", "does not hold JSON"),
        ("[1]", "does not say"),
        ('{"model": "m"}', "does not say fingerprint"),
        ("7", "does not hold JSON"),
    ],
    ids=["broken", "list", "fields", "number"],
)
def test_a_judge_that_cannot_be_read(folder: Path, content: str, said: str) -> None:
    (folder / "judge.json").write_text(content)
    assert said in refusal(folder)


def test_a_newer_form(folder: Path) -> None:
    fields = json.loads((folder / "judge.json").read_text())
    (folder / "judge.json").write_text(json.dumps(fields | {"form": "3"}))
    assert "newer evenhand" in refusal(folder)


def test_shards_of_two_judges(folder: Path) -> None:
    write(folder, "0", [row(1)])
    write_shard(folder, "1", [row(2)], fingerprint="f" * 64)
    said = refusal(folder)
    assert "part-1.parquet holds verdicts of the judge ffffffffffff" in said
    assert "one folder holds one judge" in said


@pytest.mark.parametrize("left", [0, 3, 200], ids=["nothing", "magic", "some"])
def test_a_truncated_shard(folder: Path, left: int) -> None:
    write(folder, "0", [row(1)])
    write(folder, "1", [row(2)])
    file = folder / "part-1.parquet"
    file.write_bytes(file.read_bytes()[:left])
    said = refusal(folder)
    assert "part-1.parquet is not Parquet, or broken off" in said
    assert "delete it and run the same" in said


def test_a_shard_whose_middle_is_damaged_says_so_when_it_is_read(folder: Path) -> None:
    write(folder, "0", [row(number) for number in range(1, 400)])
    file = folder / "part-0.parquet"
    content = bytearray(file.read_bytes())
    content[4 : len(content) // 2] = bytes(len(content) // 2 - 4)
    file.write_bytes(content)
    with open_shards(folder) as shards, pytest.raises(InputError, match=r"part-0\.parquet"):
        list(shards.records())


def test_wrong_columns(folder: Path) -> None:
    pq.write_table(pa.table({"name": ["x"]}), folder / "part-0.parquet")
    assert "part-0.parquet has no column 'key'" in refusal(folder)
    table = table_of([row(1)])
    place = table.schema.get_field_index("length_1")
    pq.write_table(table.set_column(place, "length_1", pa.array(["3"])), folder / "part-0.parquet")
    assert "column 'length_1' is string, not int32" in refusal(folder)


@pytest.mark.parametrize("key", ["short", "x" * 64, "ü" * 32], ids=["short", "letters", "wide"])
def test_a_key_that_is_no_hash(folder: Path, key: str) -> None:
    table = table_of([row(1), row(2)])
    place = table.schema.get_field_index("key")
    keys = pa.array([table["key"][0].as_py(), key])
    write_shard(folder, "0", table.set_column(place, "key", keys), fingerprint=SETUP.fingerprint)
    with open_shards(folder) as shards, pytest.raises(InputError, match="hashes of 64 digits"):
        shards.judges()


def test_an_outcome_that_is_more_than_certain_is_refused(folder: Path) -> None:
    table = table_of([row(1)])
    outcomes = [[{**each, "p_1": 5.0, "p_2": -4.0} for each in some] for some in table["outcomes"].to_pylist()]
    place = table.schema.get_field_index("outcomes")
    altered = table.set_column(place, "outcomes", pa.array(outcomes, table.schema.field(place).type))
    write_shard(folder, "0", altered, fingerprint=SETUP.fingerprint)
    with (
        open_shards(folder) as shards,
        pytest.raises(InputError, match="an outcome are not valid"),
    ):
        list(shards.blocks(shards.judges()[0]))


def test_a_shard_that_another_program_has_written_again(folder: Path) -> None:
    pq.write_table(table_of([row(1)]), folder / "part-0.parquet")
    assert "of a judge that it does not name" in refusal(folder)


def test_the_columns_are_those_of_the_page() -> None:
    page = Path(__file__).resolve().parents[1] / "docs" / "shards.md"
    text = page.read_text(encoding="utf-8")
    assert [name for name in shard_schema().names if f"| `{name}` |" not in text] == []
