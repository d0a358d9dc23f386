"""Files that are not right: file, row, field and remedy are said, and nothing is kept by half."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from evenhand.core.errors import InputError, PairError
from evenhand.results.people import check_labels, import_labels
from evenhand.store import Store
from test_cli import evenhand

GOOD = {"instruction": "q", "output_1": "x", "output_2": "y", "label": "1"}
LINE = json.dumps(GOOD).encode()
FAULTS: dict[str, tuple[str, bytes, str]] = {
    "no votes": ("a.jsonl", LINE + b'\n{"id": "x", "output": "y"}\n', "a.jsonl:2: no votes in this row"),
    "no text": (
        "a.jsonl",
        b'{"instruction": "q", "label": "1"}\n',
        "a.jsonl:1: the row names no pair: no field 'output_1'",
    ),
    "null": (
        "a.jsonl",
        LINE.replace(b'"y"', b"null"),
        "a.jsonl:1: the row names no pair: field 'output_2' is null",
    ),
    "a number": ("a.jsonl", LINE.replace(b'"y"', b"3"), "field 'output_2' is of type int, not text"),
    "an unknown label": ("a.jsonl", LINE.replace(b'"1"', b'"good"'), "a.jsonl:1: label 'good' is none of"),
    "not UTF-8": ("a.jsonl", LINE.replace(b"q", b"caf\xe9"), "a.jsonl:1: not UTF-8 at byte"),
    "a line that breaks off": ("a.jsonl", LINE + b"\n" + LINE[:-5], "a.jsonl:2: not JSON"),
    "empty": ("a.jsonl", b"", "a.jsonl: no labels in this file"),
    "empty JSON": ("a.json", b"", "a.json: not JSON: the file is empty"),
    "JSON that breaks off": ("a.json", b"[" + LINE, "a.json:1: not JSON"),
    "an empty list": ("a.json", b"[]", "a.json: no labels in this file"),
    "a header alone": ("a.csv", b"id,label\r\n", "a.csv: no labels in this file"),
    "gzip that breaks off": ("a.jsonl.gz", gzip.compress(LINE * 50)[:-9], "a.jsonl.gz: the .gz data is broken"),
}


@pytest.mark.parametrize(("name", "content", "said"), FAULTS.values(), ids=FAULTS.keys())
def test_labels_that_cannot_be_read_say_where_and_what_to_do(
    tmp_path: Path, name: str, content: bytes, said: str
) -> None:
    file = tmp_path / name
    file.write_bytes(content)
    with Store(":memory:") as store, pytest.raises(PairError) as caught:
        import_labels(store, file)
    assert said in caught.value.message
    assert caught.value.hint
    if name != "a.jsonl.gz" and content.startswith(LINE):
        with Store(":memory:") as store:
            done = import_labels(store, file, skip_bad=True)
        assert (done.labels, len(done.bad)) == (1, 1)


@pytest.mark.parametrize(("column", "kind"), [([["x"]], "list"), ([3], "int64")], ids=["nested", "a number"])
def test_labels_in_parquet_of_a_wrong_type(tmp_path: Path, column: list[object], kind: str) -> None:
    table = pa.table({"instruction": ["q"], "output_1": column, "output_2": ["y"], "label": ["1"]})
    pq.write_table(table, tmp_path / "a.parquet")
    with pytest.raises(PairError, match=f"column 'output_1' is of type {kind}") as caught:
        check_labels(tmp_path / "a.parquet")
    assert caught.value.hint


def test_a_file_that_is_not_there_is_called_by_what_it_should_hold(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no file of labels at") as caught:
        check_labels(tmp_path / "gone.jsonl")
    assert "standard input" in caught.value.hint
    with pytest.raises(InputError, match="no file of labels in the folder"):
        check_labels(tmp_path)


def test_of_several_files_of_labels_none_is_kept_where_one_is_broken(tmp_path: Path) -> None:
    (tmp_path / "good.jsonl").write_bytes(LINE)
    (tmp_path / "bad.jsonl").write_bytes(LINE + b"\n{}\n")
    db = tmp_path / "a.db"
    done = evenhand("labels", "import", tmp_path / "good.jsonl", tmp_path / "bad.jsonl", "--db", db, code=2)
    assert "bad.jsonl:2: no votes in this row" in done.stderr
    assert "hint:" in done.stderr
    assert not db.exists()


def test_a_line_that_is_no_json_is_told_by_its_own_column(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_bytes(LINE + b"\n" + b'{"instruction": q}\n')
    done = evenhand("judge", tmp_path / "a.jsonl", "--judge", "http://127.0.0.1:9/v1#none", code=2)
    assert "a.jsonl:2: not JSON: Expecting value at column 17" in done.stderr
    assert "--skip-bad" in done.stderr


def test_a_folder_that_is_not_there_is_said_before_a_model_is_asked(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text('{"instruction": "q"}')
    nobody, out = "http://127.0.0.1:9/v1#none", tmp_path / "gone" / "a.jsonl"
    done = evenhand("generate", tmp_path / "a.jsonl", "--model", nobody, "--out", out, code=2)
    assert "there is no folder" in done.stderr
    assert "mkdir -p" in done.stderr
