"""Files without a command do the obvious thing, and a misspelt command is still told from them."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from command import evenhand
from evenhand.core.errors import InputError
from evenhand.views.cli.app import meant_by

NOBODY = "http://127.0.0.1:9/v1#m"  # the port of nobody; a dry run asks nobody


@pytest.fixture(autouse=True)
def desk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    pair = {"instruction": "Name a prime.", "output_1": "7", "output_2": "8"}
    for name in ("pairs", "more"):
        Path(f"{name}.jsonl").write_text(json.dumps(pair) + "\n")
    for name in ("old", "new", "third"):
        Path(f"{name}.jsonl").write_text(json.dumps({"instruction": "Name a prime.", "output": name}) + "\n")
    Path("mt.jsonl").write_text(json.dumps({"question_id": 1, "choices": []}) + "\n")
    Path("broken.jsonl").write_text("{\n")
    for name, row in {
        "asked": {"prompt": "q", "response": "x"},
        "batch": {"custom_id": "1", "response": {"body": {}}},
        "odd": {"frage": "q", "antwort": "x"},
    }.items():
        Path(f"{name}.jsonl").write_text(json.dumps(row) + "\n")
    Path("judge").write_text("a file that is called like a command\n")


@pytest.mark.parametrize(
    ("words", "meant"),
    [
        ("pairs.jsonl", "judge pairs.jsonl"),
        ("pairs.jsonl more.jsonl --limit 3", "judge pairs.jsonl more.jsonl --limit 3"),
        ("old.jsonl new.jsonl", "judge --baseline old.jsonl --candidate new.jsonl"),
        ("v1=old.jsonl v2=new.jsonl --json", "judge --baseline v1=old.jsonl --candidate v2=new.jsonl --json"),
        ("old.jsonl new.jsonl third.jsonl", "arena old.jsonl new.jsonl third.jsonl"),
        ("old.jsonl mt.jsonl", "judge --baseline old.jsonl --candidate mt.jsonl"),
        ("asked.jsonl batch.jsonl", "judge --baseline asked.jsonl --candidate batch.jsonl"),
        ("odd.jsonl", "judge odd.jsonl"),
        ("odd.jsonl odd.jsonl", "judge --baseline odd.jsonl --candidate odd.jsonl"),
        ("pairs.jsonl odd.jsonl", "judge pairs.jsonl odd.jsonl"),
        ("old.jsonl odd.jsonl", "judge --baseline old.jsonl --candidate odd.jsonl"),
        (
            "odd.jsonl odd.jsonl --json --columns instruction=frage,output=antwort",
            "judge --baseline odd.jsonl --candidate odd.jsonl --json --columns instruction=frage,output=antwort",
        ),
        ("odd.jsonl --columns=instruction=gone", "judge odd.jsonl --columns=instruction=gone"),
        ("broken.jsonl", "judge broken.jsonl"),
        ("judge", "judge"),
        ("judge pairs.jsonl", "judge pairs.jsonl"),
        ("jugde", "jugde"),
        ("jugde pairs.jsonl", "jugde pairs.jsonl"),
        ("--version", "--version"),
        ("", ""),
    ],
)
def test_files_stand_for_a_command(words: str, meant: str) -> None:
    assert meant_by(words.split()) == meant.split()


def test_a_database_is_shown() -> None:
    Path("run.db").touch()
    assert meant_by(["run.db"]) == ["results", "--db", "run.db"]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("old.jsonl", "a comparison takes two"),
        ("old.jsonl pairs.jsonl", "some of these files hold pairs"),
        ("old.jsonl gone.jsonl", "no file at gone.jsonl"),
        ("gone.jsonl", "no file at gone.jsonl"),
        ("outs/gone", "no file at outs/gone"),
        ("old.jsnl new.jsonl", "no file at old.jsnl"),
    ],
)
def test_what_is_not_obvious_is_said(words: str, said: str) -> None:
    with pytest.raises(InputError, match=said) as caught:
        meant_by(words.split())
    assert caught.value.hint
    assert said in evenhand(*words.split(), code=2).stderr


@pytest.mark.parametrize("words", ["old.jsnl new.jsonl", "old.jsonl nwe.jsonl", "old.jsonl ./neww.jsonl"])
def test_a_misspelt_file_gets_its_suggestion(words: str) -> None:
    assert re.search(r"did you mean (old|new).jsonl\?", evenhand(*words.split(), code=2).stderr)


@pytest.mark.parametrize(
    ("file", "said"),
    [
        ("odd.jsonl", "odd.jsonl:1: no field 'instruction'"),
        ("broken.jsonl", "broken.jsonl:1: "),
        ("empty.jsonl", "empty.jsonl: no outputs in this file"),
    ],
)
def test_what_is_wrong_with_one_of_two_files_is_said(file: str, said: str) -> None:
    Path("empty.jsonl").touch()
    for words in ([file, "new.jsonl"], ["old.jsonl", file]):
        assert said in evenhand(*words, "--judge", NOBODY, code=2).stderr


def test_two_files_are_compared_and_the_whole_command_is_shown() -> None:
    done = evenhand("old.jsonl", "new.jsonl", "--judge", NOBODY, "--dry-run")
    assert "evenhand judge --baseline old.jsonl --candidate new.jsonl" in done.stderr
    assert "1 pair: " in done.stdout


def test_a_misspelt_command_gets_its_suggestion() -> None:
    assert "Did you mean 'judge'" in evenhand("jugde", "pairs.jsonl", code=2).stderr


def test_compare_with_files_names_the_command_that_is_meant(tmp_path: Path) -> None:
    old, new = (tmp_path / name for name in ("old.jsonl", "new.jsonl"))
    for file in (old, new):
        file.write_text('{"instruction": "Hi", "output": "x"}\n')
    said = " ".join(evenhand("compare", old, new, "--judge", "openai:m", code=2).stderr.split())
    assert "compare judges one pair, whose texts stand on the command line" in said
    assert f"hint: evenhand {old} {new} --judge openai:m" in said
    for words in ([], ["7", "8"]):
        assert "Missing option" in evenhand("compare", *words, code=2).stderr
