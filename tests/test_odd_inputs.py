"""Input that is no plain file, text that steers a terminal: a clear sentence, or the right answer."""

from __future__ import annotations

import io
import json
import math
import os
import re
import threading
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from rich.console import Console

from command import evenhand, evenhand_any
from evenhand import Judge, ScriptedEngine
from evenhand.core.engine import Usage
from evenhand.core.errors import InputError
from evenhand.core.pair import Pair
from evenhand.io.files import small
from evenhand.io.pairs import check_pairs, read_pairs
from evenhand.running.cluster.slices import local_work, pairs_of
from evenhand.store import Store
from evenhand.views import console, progress
from evenhand.views.console import note

ROW = json.dumps({"instruction": "q", "output_1": "x", "output_2": "y"}) + "\n"
NOBODY = "http://127.0.0.1:9/v1#m"


def test_a_pipe_is_read_once_and_used_as_often_as_needed(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    writer = threading.Thread(target=lambda: pipe.write_text(ROW))
    writer.start()
    done = evenhand("judge", pipe, "--judge", NOBODY, "--dry-run")
    writer.join()
    assert "1 pair: " in done.stdout


def test_a_link_to_nothing_says_where_it_leads(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").symlink_to("gone.jsonl")
    done = evenhand("judge", tmp_path / "a.jsonl", "--judge", NOBODY, code=2)
    assert "is a link to gone.jsonl, where nothing is" in done.stderr


SMALL: dict[str, tuple[str, ...]] = {
    "attacks": ("attack", "--list", "--attacks"),
    "prices": ("judge", "{rows}", "--judge", NOBODY, "--db", "{out}.db", "--prices"),
    "a system prompt": ("generate", "{rows}", "--model", NOBODY, "--out", "{out}", "--system"),
    "a password": ("serve", "--db", "{db}", "--port", "0", "--password-file"),
}


@pytest.mark.parametrize("what", SMALL)
def test_what_is_written_by_hand_is_not_read_without_end(
    what: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As a device is, of which the whole memory would be filled: here a file that is a little too large."""
    monkeypatch.setattr(small, "MOST_SMALL", 2**20)
    rows, db, large = tmp_path / "rows.jsonl", tmp_path / "a.db", tmp_path / "large"
    rows.write_text(ROW)
    Store(db).close()
    with large.open("wb") as file:
        file.truncate(2**20 + 1)
    words = [word.format(rows=rows, out=tmp_path / "out.jsonl", db=db) for word in SMALL[what]]
    done = evenhand(*words, large, code=2)
    assert "has more than 1 MB" in done.stderr


def test_a_device_is_refused() -> None:
    assert "neither a file nor a folder" in evenhand("judge", "/dev/null", "--judge", NOBODY, code=2).stderr


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("state.json", "{"),
        ("state.json", "[]"),
        ("state.json", '{"_data_files": [{}]}'),
        ("state.json", '{"_data_files": 7}'),
        ("state.json", '{"_data_files": [{"filename": "gone.arrow"}]}'),
        ("dataset_dict.json", "nonsense"),
        ("dataset_dict.json", '{"splits": "train"}'),
        ("dataset_dict.json", '{"splits": ["gone"]}'),
        ("dataset_dict.json", "{}"),
    ],
)
def test_a_malformed_folder_of_a_data_set_is_explained(tmp_path: Path, name: str, content: str) -> None:
    folder = tmp_path / "saved"
    folder.mkdir()
    (folder / name).write_text(content)
    with pytest.raises(InputError, match="saved"):
        check_pairs(folder)


def test_a_surrogate_in_a_label_is_a_fault_of_its_row(tmp_path: Path) -> None:
    file = tmp_path / "a.jsonl"
    file.write_text(ROW.replace("}", ', "labels": {"\\ud800": "1"}}'))
    done = evenhand("judge", file, "--judge", NOBODY, "--db", tmp_path / "a.db", code=2)
    assert "a.jsonl:1: field 'labels' holds a lone surrogate" in done.stderr
    with pytest.raises(InputError, match="surrogate"):
        Pair("q", "x", "y", labels={"\ud800": "1"})


@pytest.mark.parametrize("value", ["\ud800", ["\ud800"], {"\ud800": 1}])
def test_a_surrogate_in_any_field_is_a_fault_of_its_row(tmp_path: Path, value: object) -> None:
    """No database and no file can hold one: where it came to be written there was a traceback."""
    pairs, outputs = tmp_path / "pairs.jsonl", tmp_path / "outputs.jsonl"
    pairs.write_text(json.dumps({**json.loads(ROW), "topic": value}) + "\n")
    outputs.write_text(json.dumps({"instruction": "q", "output": "x", "topic": value}) + "\n")
    lines: list[list[str | Path]] = [
        ["judge", pairs, "--judge", NOBODY, "--db", tmp_path / "a.db"],
        ["look", pairs],
        ["look", outputs],
        ["arena", f"a={outputs}", f"b={outputs}", "--out", tmp_path / "met.jsonl"],
    ]
    for words in lines:
        assert "jsonl:1: field 'topic' holds a lone surrogate" in evenhand(*words, code=2).stderr


LONE = os.fsdecode(b"b\xff")  # as a shell gives a byte that is no UTF-8


@pytest.mark.parametrize(
    "options",
    [
        ("--judge", f"{NOBODY}{LONE}"),
        ("--judge", f"./{LONE}.gguf"),
        ("--judge", NOBODY, "--set", f"top={LONE}"),
        ("--judge", NOBODY, "--set", f"effort={LONE}"),
    ],
)
def test_a_byte_that_is_no_text_in_what_a_judge_is_told_is_refused(
    options: tuple[str, ...], tmp_path: Path
) -> None:
    file, db = tmp_path / "a.jsonl", tmp_path / "a.db"
    file.write_text(ROW)
    assert "is not UTF-8" in evenhand("judge", file, *options, "--db", db, code=2).stderr


def test_a_file_may_have_a_name_that_is_no_text(tmp_path: Path) -> None:
    db = tmp_path / f"{LONE}.db"
    with Judge(ScriptedEngine(lambda _: "A"), "overall", db=db) as judge:
        list(judge.judge([Pair("q", "x", "y")]))
    assert json.loads(evenhand("results", "--db", db, "--json").stdout)["pairs"] == 1
    assert "Traceback" not in evenhand_any("results", "--db", tmp_path).stderr  # a folder, of shards perhaps


def test_a_surrogate_in_an_output_is_a_fault_of_its_row(tmp_path: Path) -> None:
    outputs = tmp_path / "outputs.jsonl"
    outputs.write_text(json.dumps({"instruction": "q", "output": "\ud800"}) + "\n")
    done = evenhand("arena", f"a={outputs}", f"b={outputs}", "--out", tmp_path / "met.jsonl", code=2)
    assert "outputs.jsonl:1: field 'output' holds a lone surrogate" in done.stderr


def test_metadata_that_json_has_no_number_for_are_grouped_all_the_same(tmp_path: Path) -> None:
    """Parquet of other programs has NaN where it has nothing, and Python reads and writes it in JSON, too."""
    file, db = tmp_path / "a.parquet", tmp_path / "a.db"
    scores = [math.nan, math.inf, 1.0, 1.0]
    rows = [{"instruction": f"q{n}", "output_1": "x", "output_2": "y", "score": s} for n, s in enumerate(scores)]
    pq.write_table(pa.Table.from_pylist(rows), file)
    with Judge(ScriptedEngine(lambda _: "A"), "overall", db=db) as judge:
        list(judge.judge(read_pairs(file)))
    found = json.loads(evenhand("results", "--by", "score", "--json", "--db", db).stdout)["by"]["groups"]
    assert {group["value"]: group["pairs"] for group in found} == {"Infinity": 1, "1.0": 2, None: 1}
    with Store(db) as store:
        assert store.pages.fields()["score"] == ["1.0", "inf"]
    (task,) = local_work(read_pairs(file), 4, workers=1, at_once=4).tasks
    assert [pair.key for pair in pairs_of(task, skip_bad=False)] == [pair.key for pair in read_pairs(file)]


@pytest.mark.parametrize("label", ["{}", '"inf"', "-1", "[1]"])
def test_look_says_of_a_label_what_judge_would_say(tmp_path: Path, label: str) -> None:
    file = tmp_path / "a.jsonl"
    file.write_text(ROW.replace("}", f', "label": {label}}}') + ROW)
    judging: list[str | Path] = ["judge", file, "--judge", NOBODY, "--dry-run", "--db", tmp_path / "a.db"]
    for words in (["look", file], judging):
        assert "is none of 1, 2, A, B, tie" in evenhand(*words, code=2).stderr
    assert "no field is left over" in evenhand("look", file, "--skip-bad").stdout


def test_a_servers_notice_cannot_steer_the_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    note("\x1b]0;owned\x07 [red]hi[/]")
    console.out.print(console.plain_table("\x1b[2Jtitle"))
    with progress.watching(1) as watch:
        watch.print("\x1b[31m[bold]red \ud800")
    said = "".join(capsys.readouterr())
    assert "\x1b" not in said
    assert "␛]0;owned␇ [red]hi[/]" in said
    assert "[bold]red" in said


def test_the_bar_of_a_run_that_was_stopped_ends_on_what_is_done(monkeypatch: pytest.MonkeyPatch) -> None:
    """Many pairs come between two drawings; the last ones of a stopped run were not on the bar."""
    shown = Console(file=io.StringIO(), force_terminal=True, width=100)
    monkeypatch.setattr(console, "err", shown)
    with progress.watching(100) as watch:
        for done in range(1, 8):
            watch.moved(done, Usage(), 0)
    assert isinstance(shown.file, io.StringIO)
    assert re.findall(r"\d+/100 pairs", shown.file.getvalue())[-1] == "7/100 pairs"


@pytest.mark.parametrize("pairs", [1, 1234])
def test_counts_are_grammatical_and_have_separators(tmp_path: Path, pairs: int) -> None:
    file = tmp_path / "a.jsonl"
    file.write_text("".join(ROW.replace('"q"', f'"q{n}"') for n in range(pairs)))
    said = evenhand_any("judge", file, "--judge", NOBODY, "--dry-run").stdout
    assert ("1 pair: " if pairs == 1 else "1,234 pairs: ") in said
