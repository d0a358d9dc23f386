"""`--columns` at every door that reads a file, and in Python."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from evenhand import Pair, read_pairs
from evenhand.core.errors import InputError, PairError
from evenhand.io.files import write_rows
from evenhand.io.pairs import Arena, JoinOptions, join_outputs
from evenhand.results.people import import_labels
from evenhand.running.cluster.slices import check, find_parquet, local_work, pairs_of, parquet_work
from evenhand.running.generation import read_instructions
from evenhand.store import Store
from evenhand.views.cli.app import load_all

ROWS = [
    {"frage": f"Frage {n}", "links": f"gut {n}", "rechts": f"schlecht {n}", "besser": "A", "thema": "x"}
    for n in range(3)
]
COLUMNS = {"instruction": "frage", "output_1": "links", "output_2": "rechts", "label": "besser"}
WORDS = ",".join(f"{ours}={theirs}" for ours, theirs in COLUMNS.items())
NOBODY = "http://127.0.0.1:9/v1#nobody"


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return written(tmp_path / "rows.jsonl", ROWS)


def written(path: Path, rows: list[dict[str, str]]) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


def invoke(*words: object) -> Any:
    return CliRunner().invoke(load_all(), [str(word) for word in words])


def test_in_python(file: Path) -> None:
    found = list(read_pairs(file, columns=COLUMNS))
    assert [pair.texts for pair in found] == [(r["frage"], r["links"], r["rechts"]) for r in ROWS]
    assert found[0].labels == {"overall": "1"}
    assert found[0].metadata == {"thema": "x"}


OUTPUTS = {"instruction": "frage", "output": "links"}


@pytest.fixture
def outputs(tmp_path: Path) -> tuple[Path, Path]:
    new = written(tmp_path / "new.jsonl", ROWS)
    return new, written(tmp_path / "old.jsonl", [{**row, "links": row["rechts"]} for row in ROWS])


def test_outputs_that_are_joined_or_meet_in_an_arena(outputs: tuple[Path, Path]) -> None:
    reading = JoinOptions(columns=OUTPUTS)
    joined = list(join_outputs(str(outputs[0]), str(outputs[1]), reading))
    met = list(Arena(list(outputs), reading=reading))
    assert sorted(pair.output_1 for pair in joined) == ["gut 0", "gut 1", "gut 2"]
    assert {frozenset(pair.texts) for pair in met} == {frozenset(pair.texts) for pair in joined}


def refused(command: tuple[object, ...]) -> str:
    """What a command says of the file without --columns."""
    fault = invoke(*command).exception
    assert isinstance(fault, InputError)
    return f"{fault.message}; {fault.hint}"


@pytest.mark.parametrize("name", ["judge", "gate", "learn", "labels", "attack", "look"])
def test_a_command_reads_pairs_by_it_and_names_it_where_it_is_missing(
    name: str, file: Path, tmp_path: Path
) -> None:
    db = tmp_path / "e.db"
    command: Mapping[str, tuple[object, ...]] = {
        "judge": ("judge", file, "--dry-run", "--judge", NOBODY, "--db", db),
        "gate": ("gate", file, "--judge", NOBODY, "--db", db),
        "learn": ("learn", file, "--judge", NOBODY, "--out", tmp_path / "head.json"),
        "labels": ("labels", "import", file, "--db", db),
        "attack": ("attack", file, "--dry-run", "--judge", NOBODY, "--db", db),
        "look": ("look", file),
    }
    said = refused(command[name])
    assert ("no votes in this row" if name == "labels" else "no field 'instruction'") in said
    assert "--columns" in said
    done = invoke(*command[name], "--columns", WORDS)
    text = f"{done.output} {done.exception}"
    assert "no field" not in text
    assert "No such option" not in text
    if name in ("judge", "labels", "attack", "look"):
        assert done.exit_code == 0, text


def test_a_name_that_is_no_field_of_evenhand_is_refused(file: Path) -> None:
    done = invoke("gate", file, "--judge", NOBODY, "--columns", "question=frage")
    assert isinstance(done.exception, InputError)
    assert "'question' is no field of evenhand" in done.exception.message


def test_labels_are_taken_from_the_field_that_holds_them(file: Path) -> None:
    with Store(":memory:") as store:
        import_labels(store, file, annotator="ann", columns=COLUMNS)
        [vote] = store.labels.of(next(iter(read_pairs(file, columns=COLUMNS))).key)
    assert (vote.annotator, vote.side) == ("ann", "1")


def test_instructions_to_answer(file: Path, tmp_path: Path) -> None:
    found = list(read_instructions(file, {"instruction": "frage"}))
    assert [each.instruction for each in found] == [row["frage"] for row in ROWS]
    assert found[0].about["thema"] == "x"
    with pytest.raises(PairError, match="no field 'instruction'"):
        list(read_instructions(file))
    with pytest.raises(PairError, match="no field 'nichts', which --columns names"):
        list(read_instructions(file, {"instruction": "nichts"}))
    command = ("generate", file, "--model", NOBODY, "--out", tmp_path / "o.jsonl", "--db", tmp_path / "e.db")
    assert "no field 'instruction'" in refused(command)


def test_the_workers_of_a_cluster_read_parquet_by_it(tmp_path: Path) -> None:
    write_rows(tmp_path / "rows.parquet", ROWS, dict.fromkeys(ROWS[0], "text"))
    groups = find_parquet([str(tmp_path / "rows.parquet")], COLUMNS)
    assert groups
    found = [check(group, skip_bad=False) for group in groups]
    work = parquet_work(groups, found, workers=1, at_once=1)
    read = [pair for task in work.tasks for pair in pairs_of(task, skip_bad=False)]
    assert [pair.texts for pair in read] == [(r["frage"], r["links"], r["rechts"]) for r in ROWS]
    plain = find_parquet([str(tmp_path / "rows.parquet")])
    assert plain
    assert "no field 'instruction'" in str(check(plain[0], skip_bad=False).bad[0])


def test_pairs_that_are_sent_to_workers_keep_which_side_is_the_candidate() -> None:
    pair = Pair("Hi", "x", "y", candidate="2")
    work = local_work([pair], 1, workers=1, at_once=1)
    [sent] = [pair for task in work.tasks for pair in pairs_of(task, skip_bad=False)]
    assert (sent, sent.candidate) == (pair, "2")
