"""Files of rows: packed, many at once, Parquet, Arrow, folders of datasets; what is broken has its place."""

from __future__ import annotations

import csv
import gzip
import io
import json
import os
import struct
import threading
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import datasets
import polars
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st

from evenhand.core.errors import InputError, PairError
from evenhand.engines.heads.head import Head
from evenhand.io.attacks import read_attacks
from evenhand.io.files import find_tables, finding, harmless, read_rows, write_rows
from evenhand.io.files.writing import unharmed
from evenhand.io.pairs import check_pairs, read_pairs
from evenhand.running.prices import find_price

ROWS = [{"instruction": f"q{n}", "output_1": f"x{n}", "output_2": "y"} for n in range(3)]
JSONL = "".join(json.dumps(row) + "\n" for row in ROWS).encode()


def asked(path: str | Path | list[str]) -> list[str]:
    return [pair.instruction for pair in read_pairs(path)]


def put(file: Path, content: bytes) -> Path:
    file.write_bytes(content)
    return file


def zst(content: bytes) -> bytes:
    return zstandard.ZstdCompressor().compress(content)


# -- packed ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("a.jsonl.gz", gzip.compress(JSONL)),
        ("a.jsonl.zst", zst(JSONL)),
        ("a.json.gz", gzip.compress(json.dumps(ROWS).encode())),
        ("a.csv.zst", zst(b"instruction,output_1,output_2\nq0,x,y\nq1,x,y\nq2,x,y\n")),
        ("a.ndjson", JSONL),
        ("several frames.jsonl.zst", zst(JSONL[:40]) + zst(JSONL[40:])),
        ("several members.jsonl.gz", gzip.compress(JSONL[:40]) + gzip.compress(JSONL[40:])),
    ],
    ids=lambda value: value if isinstance(value, str) else "",  # gzip writes the time: no id for two workers
)
def test_packed_files_are_read_as_they_are(tmp_path: Path, name: str, content: bytes) -> None:
    assert asked(put(tmp_path / name, content)) == ["q0", "q1", "q2"]


MANY = [{**ROWS[0], "id": str(n), "output_1": str(n) * 50} for n in range(5000)]
LONG = {
    "jsonl": "".join(json.dumps(row) + "\n" for row in MANY),
    "json": json.dumps(MANY),
    "csv": "id,instruction,output_1,output_2\n" + "".join(f"{n},q,{str(n) * 50},y\n" for n in range(5000)),
}


@pytest.mark.parametrize("name", ["a.jsonl.gz", "a.jsonl.zst", "a.json.gz", "a.csv.gz"])
@pytest.mark.parametrize("skip_bad", [False, True])
def test_a_file_that_breaks_off_is_a_fault_and_not_an_end(tmp_path: Path, name: str, skip_bad: bool) -> None:
    content = LONG[name.split(".")[1]].encode()
    whole = gzip.compress(content) if name.endswith("gz") else zst(content)
    file = put(tmp_path / name, whole[: len(whole) // 2])
    with pytest.raises(PairError, match=r"data is broken or breaks off.*make or fetch the file again") as caught:
        check_pairs(file, skip_bad=skip_bad)
    assert caught.value.file == str(file)


@pytest.mark.parametrize("name", ["a.jsonl.gz", "a.jsonl.zst"])
def test_a_file_that_is_not_packed_at_all_is_said_so(tmp_path: Path, name: str) -> None:
    with pytest.raises(PairError, match="data is broken or breaks off"):
        check_pairs(put(tmp_path / name, JSONL))


def test_packed_parquet_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"cannot be read out of \.gz.*Parquet is packed by itself"):
        find_tables(put(tmp_path / "a.parquet.gz", b""))


def test_without_zstandard_the_command_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def absent(name: str) -> Any:
        raise ImportError(name)

    monkeypatch.setattr("evenhand.io.files.packing.importlib.import_module", absent)
    with pytest.raises(InputError, match=r"pip install 'evenhand\[zst\]'"):
        asked(put(tmp_path / "a.jsonl.zst", zst(JSONL)))


# -- many files --------------------------------------------------------------------------------------------


def test_a_glob_reads_its_files_in_their_order(tmp_path: Path) -> None:
    put(tmp_path / "b.jsonl", JSONL.splitlines(keepends=True)[1])
    put(tmp_path / "a.jsonl.gz", gzip.compress(JSONL.splitlines(keepends=True)[0]))
    assert asked(str(tmp_path / "*.jsonl*")) == ["q0", "q1"]
    assert asked([str(tmp_path / "b.jsonl"), str(tmp_path / "a.jsonl.gz")]) == ["q1", "q0"]


def test_an_id_that_stands_in_two_files_is_named_with_both(tmp_path: Path) -> None:
    put(tmp_path / "a.jsonl", JSONL)
    put(tmp_path / "b.jsonl", JSONL)
    with pytest.raises(PairError, match=r"b\.jsonl:1: id 'pair-\w+' is already at .*a\.jsonl, line 1"):
        check_pairs(str(tmp_path / "*.jsonl"))


@pytest.mark.parametrize(
    "content",
    [
        JSONL,
        b"\n\n" + JSONL,
        gzip.compress(JSONL),
        zst(JSONL),
        json.dumps(ROWS).encode(),
        json.dumps(ROWS, indent=2).encode("utf-8-sig"),
        b"\n  " + json.dumps(ROWS).encode(),
        gzip.compress(json.dumps(ROWS).encode()),
        zst(json.dumps(ROWS, indent=1).encode("utf-8-sig")),
        json.dumps({"examples": ROWS}, indent=2).encode(),
        gzip.compress(json.dumps({"models": ["m"], "examples": ROWS}, indent=2).encode("utf-8-sig")),
        b'{"examples": [\n' + b",\n".join(JSONL.splitlines()) + b"\n]}",
    ],
    ids=[
        *("jsonl", "blank lines", "gz", "zst", "json", "list with a mark", "blanks before a list", "list in gz"),
        *("list with a mark in zst", "object", "object in gz", "object with a row a line"),
    ],
)
def test_standard_input_says_itself_what_it_is(content: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(finding, "_SPILLED", {})
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(content)))
    assert asked("-") == ["q0", "q1", "q2"]
    finding._SPILLED["-"].unlink()


def test_a_first_row_that_is_broken_does_not_make_all_of_standard_input_one_fault(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(finding, "_SPILLED", {})
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b'{"instruction": "q\n' + JSONL)))
    assert [pair.instruction for pair in read_pairs("-", skip_bad=True)] == ["q0", "q1", "q2"]
    finding._SPILLED["-"].unlink()


@pytest.mark.parametrize(
    ("content", "fault"),
    [(gzip.compress(JSONL)[:-20], "breaks off"), (gzip.compress(b"PAR1 and more"), "cannot be read out of .gz")],
    ids=["broken off", "Parquet"],  # gzip writes the time: no id for two workers
)
def test_packed_standard_input_that_cannot_be_read_is_said_so(
    content: bytes, fault: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(finding, "_SPILLED", {})
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(content)))
    with pytest.raises((InputError, PairError), match=f"standard input: .*{fault}"):
        asked("-")
    finding._SPILLED["-"].unlink()


# -- Parquet and Arrow -------------------------------------------------------------------------------------

Write = Callable[[Path, pa.Table], None]


def parquet(file: Path, table: pa.Table) -> None:
    pq.write_table(table, file, row_group_size=2)


def arrow_stream(file: Path, table: pa.Table) -> None:
    with pa.OSFile(str(file), "wb") as out, pa.ipc.new_stream(out, table.schema) as writer:
        writer.write_table(table)


def arrow_file(file: Path, table: pa.Table) -> None:
    with pa.OSFile(str(file), "wb") as out, pa.ipc.new_file(out, table.schema) as writer:
        writer.write_table(table)


KINDS = [("a.parquet", parquet), ("a.arrow", arrow_stream), ("a.arrow", arrow_file)]
kinds = pytest.mark.parametrize(("name", "write"), KINDS, ids=["parquet", "stream", "file"])


@kinds
def test_columnar_files_are_read(tmp_path: Path, name: str, write: Write) -> None:
    columns = {
        **{field: [row[field] for row in ROWS] for field in ROWS[0]},
        "id": [7, 8, 9],
        "labels": [{"overall": "A", "format": None}, None, None],
        "topic": pa.array(["a", "b", "a"]).dictionary_encode(),
    }
    write(tmp_path / name, pa.table(columns))
    first, *rest = read_pairs(tmp_path / name)
    assert (first.id, first.instruction, first.labels, first.metadata) == (
        "7",
        "q0",
        {"overall": "1"},
        {"topic": "a"},
    )
    assert [pair.labels for pair in rest] == [{}, {}]
    assert check_pairs(tmp_path / name) == (3, [])


@pytest.mark.parametrize("kind", [pa.large_string(), pa.string_view(), pa.dictionary(pa.int32(), pa.string())])
def test_every_kind_of_text_is_text(tmp_path: Path, kind: Any) -> None:
    columns = {field: pa.array([row[field] for row in ROWS]) for field in ROWS[0]}
    columns["output_1"] = (
        columns["output_1"].cast(pa.string()).cast(kind)
        if kind != pa.dictionary(pa.int32(), pa.string())
        else columns["output_1"].dictionary_encode()
    )
    arrow_stream(tmp_path / "a.arrow", pa.table(columns))
    assert asked(tmp_path / "a.arrow") == ["q0", "q1", "q2"]


@kinds
@pytest.mark.parametrize(
    ("values", "fault"),
    [
        (
            [["x"], ["x"], ["x"]],
            r"column 'output_1' is of type list<.*>, not text .*nested columns cannot",
        ),
        ([{"text": "x"}] * 3, r"column 'output_1' is of type struct<.*>, not text .*nested"),
        ([1, 2, 3], r"column 'output_1' is of type int64, not text .*write the column as strings"),
        ([b"x", b"y", b"z"], r"column 'output_1' is of type binary, not text"),
    ],
)
@pytest.mark.parametrize("skip_bad", [False, True])
def test_a_column_of_a_wrong_type_is_refused_before_any_row(
    tmp_path: Path, name: str, write: Write, values: list[Any], fault: str, skip_bad: bool
) -> None:
    columns: dict[str, Any] = {field: [row[field] for row in ROWS] for field in ROWS[0]}
    write(tmp_path / name, pa.table({**columns, "output_1": values}))
    with pytest.raises(PairError, match=fault) as caught:
        check_pairs(tmp_path / name, skip_bad=skip_bad)
    assert caught.value.file == str(tmp_path / name)


@kinds
def test_faults_of_rows_have_their_number(tmp_path: Path, name: str, write: Write) -> None:
    columns: dict[str, Any] = {field: [row[field] for row in ROWS] for field in ROWS[0]}
    write(tmp_path / name, pa.table({**columns, "output_2": ["y", None, "y"]}))
    with pytest.raises(PairError, match=r"a\.\w+: row 2: field 'output_2' is null, not text \(write it as text"):
        check_pairs(tmp_path / name)
    count, bad = check_pairs(tmp_path / name, skip_bad=True)
    assert (count, len(bad)) == (2, 1)


def test_text_that_is_not_utf8_is_the_fault_of_its_row_alone(tmp_path: Path) -> None:
    columns: dict[str, Any] = {field: pa.array([row[field] for row in ROWS]) for field in ROWS[0]}
    raw = pa.array([b"x", b"caf\xe9", b"z"], pa.binary())
    columns["output_1"] = pa.StringArray.from_buffers(3, *raw.buffers()[1:])
    arrow_stream(tmp_path / "a.arrow", pa.table(columns))
    with pytest.raises(PairError, match=r"row 2: field 'output_1' is not UTF-8 at byte 3"):
        check_pairs(tmp_path / "a.arrow")
    assert check_pairs(tmp_path / "a.arrow", skip_bad=True)[0] == 2


@pytest.mark.parametrize("name", ["a.parquet", "a.arrow"])
def test_a_columnar_file_that_is_none_or_breaks_off_is_said_so(tmp_path: Path, name: str) -> None:
    write = parquet if name == "a.parquet" else arrow_stream
    write(tmp_path / name, pa.table({field: [row[field] * 999 for row in ROWS] for field in ROWS[0]}))
    whole = (tmp_path / name).read_bytes()
    for content in (b"", b"nonsense", whole[: len(whole) // 2]):
        with pytest.raises(PairError, match=r"not (Parquet|Arrow), or broken off|no pairs"):
            check_pairs(put(tmp_path / name, content))


@pytest.mark.parametrize("places", [(0, 8, 3, 15), (0, 3, 2**30, 15), (0, -3, 8, 15), (0, 3, 8, 2**30)])
def test_a_text_that_lies_outside_of_its_arrow_file_is_a_fault(tmp_path: Path, places: tuple[int, ...]) -> None:
    """What lies there is the memory of this process, or nothing at all."""
    table = pa.table({"output": ["a" * 3, "b" * 5, "c" * 7]})
    sink = io.BytesIO()
    with pa.ipc.new_file(sink, table.schema) as writer:
        writer.write(table)
    whole, offsets = sink.getvalue(), struct.pack("<4i", 0, 3, 8, 15)
    assert whole.count(offsets) == 1
    file = tmp_path / "a.arrow"
    file.write_bytes(whole.replace(offsets, struct.pack("<4i", *places)))
    [found] = find_tables(file)
    with pytest.raises(PairError, match="not Arrow, or broken off"):
        list(read_rows(found))


def test_a_number_of_a_text_that_is_not_there_is_a_fault_beside_text_that_is_no_utf8(tmp_path: Path) -> None:
    column = pa.DictionaryArray.from_arrays(pa.array([0, 1, 0], pa.int32()), pa.array(["caf\u00e9", "x"]))
    sink = io.BytesIO()
    with pa.ipc.new_file(sink, pa.schema([("output", column.type)])) as writer:
        writer.write(pa.record_batch([column], ["output"]))
    numbers = struct.pack("<3i", 0, 1, 0)
    whole = sink.getvalue().replace("caf\u00e9".encode(), b"caf\xff\xff")
    assert whole.count(numbers) == 1
    file = tmp_path / "a.arrow"
    file.write_bytes(whole.replace(numbers, struct.pack("<3i", 0, 1, 2**28)))
    [found] = find_tables(file)
    with pytest.raises(PairError, match="not Arrow, or broken off"):
        list(read_rows(found))


@pytest.mark.parametrize("kind", ["arrow", "parquet"])
def test_a_column_whose_name_is_no_text_is_a_fault(tmp_path: Path, kind: str) -> None:
    table, sink = pa.table({"output": ["x"], "caf\u00e9": ["y"]}), io.BytesIO()
    if kind == "parquet":
        pq.write_table(table, sink, store_schema=False)
    else:
        with pa.ipc.new_file(sink, table.schema) as writer:
            writer.write(table)
    file = tmp_path / f"a.{kind}"
    file.write_bytes(sink.getvalue().replace("caf\u00e9".encode(), b"caf\xff\xff"))
    [found] = find_tables(file)
    with pytest.raises(PairError, match="or broken off"):
        list(read_rows(found))


def test_without_pyarrow_the_command_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    put(tmp_path / "a.parquet", b"")
    monkeypatch.setitem(__import__("sys").modules, "pyarrow", None)
    with pytest.raises(InputError, match=r"pip install 'evenhand\[parquet\]'"):
        check_pairs(tmp_path / "a.parquet")


def test_a_folder_that_datasets_saved_is_read(tmp_path: Path) -> None:
    saved = datasets.Dataset.from_list(ROWS).shuffle(seed=1)
    saved.save_to_disk(str(tmp_path / "one"), num_shards=2)
    assert asked(tmp_path / "one") == list(saved["instruction"])
    datasets.DatasetDict({"train": saved}).save_to_disk(str(tmp_path / "dict"))
    assert sorted(asked(tmp_path / "dict")) == ["q0", "q1", "q2"]
    datasets.DatasetDict({"train": saved, "test": saved}).save_to_disk(str(tmp_path / "two"))
    with pytest.raises(InputError, match=r"holds several splits: train, test \(name one: .*train\)"):
        check_pairs(tmp_path / "two")


def test_a_folder_of_parquet_is_read_and_an_empty_one_is_refused(tmp_path: Path) -> None:
    pq.write_table(
        pa.table({field: [row[field] for row in ROWS] for field in ROWS[0]}), tmp_path / "part-0.parquet"
    )
    assert asked(tmp_path) == ["q0", "q1", "q2"]
    (tmp_path / "empty").mkdir()
    with pytest.raises(InputError, match="no file of pairs in the folder"):
        check_pairs(tmp_path / "empty")
    (tmp_path / "empty" / "model.jsonl").write_text("")
    with pytest.raises(InputError, match=r"its \.jsonl files are given by a glob: .*empty/\*\.jsonl"):
        check_pairs(tmp_path / "empty")


# -- writing -----------------------------------------------------------------------------------------------

COLUMNS = {"text": "text", "n": "integer", "p": "number", "yes": "truth"}
texts = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\x00"))
rows = st.lists(
    st.fixed_dictionaries(
        {
            "text": texts,
            "n": st.none() | st.integers(-(2**53), 2**53),
            "p": st.none() | st.floats(0, 1),
            "yes": st.booleans(),
        }
    ),
    max_size=5,
)


def read_back(file: Path) -> list[Any]:
    return [row for table in find_tables(file) for _, row in read_rows(table)]


@settings(deadline=None, max_examples=30)
@given(rows)
@pytest.mark.parametrize("name", ["a.jsonl", "a.json", "a.jsonl.gz", "a.jsonl.zst", "a.parquet"])
def test_what_is_written_comes_back(tmp_path_factory: pytest.TempPathFactory, name: str, rows: list[Any]) -> None:
    file = tmp_path_factory.getbasetemp() / name
    assert write_rows(file, iter(rows), COLUMNS) == len(rows)
    assert read_back(file) == rows


@settings(deadline=None, max_examples=50)
@given(st.lists(texts, min_size=1, max_size=5))
def test_no_cell_of_a_csv_begins_a_formula_and_the_text_can_be_had_back(
    tmp_path_factory: pytest.TempPathFactory, cells: list[str]
) -> None:
    file = tmp_path_factory.getbasetemp() / "cells.csv"
    write_rows(file, ({"text": cell, "n": -1} for cell in cells), {"text": "text", "n": "integer"})
    with file.open(encoding="utf-8", newline="") as opened:
        header, *lines = csv.reader(opened)
    assert header == ["text", "n"]
    for cell, (text, number) in zip(cells, lines, strict=True):
        assert not text.startswith(("=", "+", "-", "@", "\t", "\r", "\n"))
        assert text.removeprefix("'") == cell
        assert number == "-1"


def test_other_programs_read_what_is_written(tmp_path: Path) -> None:
    given_rows: list[dict[str, Any]] = [
        {"text": "a", "n": 1, "p": 0.5, "yes": True},
        {"text": "=b", "n": None, "p": None, "yes": False},
    ]
    for name in ("a.parquet", "a.csv", "a.jsonl"):
        write_rows(tmp_path / name, given_rows, COLUMNS)
    assert polars.read_parquet(tmp_path / "a.parquet").to_dicts() == given_rows
    assert polars.read_ndjson(tmp_path / "a.jsonl").to_dicts() == given_rows
    assert polars.read_csv(tmp_path / "a.csv")["text"].to_list() == ["a", "'=b"]


def test_a_file_appears_whole_or_not_at_all(tmp_path: Path) -> None:
    file = tmp_path / "a.jsonl"
    write_rows(file, [{"n": 1}])

    def broken() -> Any:
        yield {"n": 2}
        raise RuntimeError("stop")

    with pytest.raises(RuntimeError):
        write_rows(file, broken())
    assert read_back(file) == [{"n": 1}]
    assert [path.name for path in tmp_path.iterdir()] == ["a.jsonl"]


def test_a_date_that_python_has_not_is_read_as_arrow_spells_it(tmp_path: Path) -> None:
    """There was a traceback. What Arrow cannot spell either is the fault of its row alone."""
    far = {"date": pa.array([1, 2**30], pa.date32()), "span": pa.array([1, 2**62], pa.duration("s"))}
    pq.write_table(pa.table({**far, "text": ["a", "b"]}), tmp_path / "a.parquet")
    (_, near), (_, row) = read_rows(find_tables(tmp_path / "a.parquet")[0])
    assert isinstance(near, dict)
    assert str(near["date"]) == "1970-01-02"
    assert row == {"date": "<value out of range: 1073741824>", "span": "4611686018427387904", "text": "b"}
    nested = pa.array([[1], [2**30]], pa.list_(pa.date32()))
    pq.write_table(pa.table({"dates": nested, "text": ["a", "b"]}), tmp_path / "b.parquet")
    (_, near), (_, fault) = read_rows(find_tables(tmp_path / "b.parquet")[0])
    assert isinstance(near, dict)
    assert near["text"] == "a"
    assert "field 'dates' cannot be read: " in str(fault)


@pytest.mark.parametrize("depth", [900, 1_020, 100_000])
def test_brackets_without_end_are_no_json_wherever_they_stand(tmp_path: Path, depth: int) -> None:
    deep = "[" * depth
    log, table, attacks = tmp_path / "a.eval", tmp_path / "prices.json", tmp_path / "a.toml"
    with zipfile.ZipFile(log, "w") as archive:
        archive.writestr("samples/1_epoch_1.json", deep + "]" * depth)
    ((_, fault),) = read_rows(find_tables(log)[0])
    assert isinstance(fault, ValueError)
    table.write_text(deep)
    attacks.write_text(f"x = {deep}")
    with pytest.raises(InputError, match="not a table of prices"):
        find_price("a", table)
    with pytest.raises(InputError, match="not TOML"):
        read_attacks(attacks)
    with pytest.raises(InputError, match="not JSON"):
        Head.load(table)


def test_a_link_stays_and_what_it_leads_to_is_written(tmp_path: Path) -> None:
    (tmp_path / "far").mkdir()
    for name, target in (("old.jsonl", "far/old.jsonl"), ("new.jsonl", "far/new.jsonl")):
        (tmp_path / name).symlink_to(target)
    write_rows(tmp_path / "far" / "old.jsonl", [{"n": 1}])
    for name in ("old.jsonl", "new.jsonl"):
        write_rows(tmp_path / name, [{"n": 2}])
        assert (tmp_path / name).is_symlink()
        assert read_back(tmp_path / "far" / name) == [{"n": 2}]
    assert sorted(path.name for path in tmp_path.rglob("*")) == sorted(["far", *["new.jsonl", "old.jsonl"] * 2])


def test_a_pipe_is_written_into_and_stays_a_pipe(tmp_path: Path) -> None:
    pipe, came = tmp_path / "pipe.jsonl", []
    os.mkfifo(pipe)
    reader = threading.Thread(target=lambda: came.append(pipe.read_bytes()), daemon=True)
    reader.start()
    write_rows(pipe, [{"n": 2}])
    reader.join(60)
    assert came == [b'{"n":2}\n']
    assert pipe.is_fifo()


def test_a_folder_in_the_place_of_a_file_is_named(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").mkdir()
    with pytest.raises(IsADirectoryError, match=r"'[^']*/a\.jsonl'"):
        write_rows(tmp_path / "a.jsonl", [])


@pytest.mark.parametrize("name", ["a.txt", "a", "a.parquet.gz", "nowhere/a.jsonl"])
def test_a_name_that_cannot_be_written_is_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(InputError):
        write_rows(tmp_path / name, [])


@pytest.mark.parametrize("sign", "=+-@＝＋－＠﹦﹢﹣﹫−")
@pytest.mark.parametrize("before", ["", " ", "\u00a0 ", "\u3000", "\v", "\t", "\r\n", "\ufeff", "\u200b", "'"])
def test_what_some_spreadsheet_takes_for_a_formula_is_none(before: str, sign: str) -> None:
    cell = f"{before}{sign}1+1"
    assert harmless(cell) == f"'{cell}"
    assert unharmed(harmless(cell)) == cell


def test_numbers_are_no_formulas() -> None:
    assert [harmless(value) for value in (-1, 0.5, None, True)] == [-1, 0.5, None, True]
