"""Every command that there is, found by walking the program: alone, wrong, and with files that are not there.

Whatever is typed, there is no traceback, and a line says what to do instead.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer.main

from command import Done, evenhand_any
from evenhand.views import console
from evenhand.views.cli import load_all

NOBODY = "http://127.0.0.1:9/v1#nobody"  # refused at once
ROOT = typer.main.get_command(load_all())
ALONE = {"": 0, "help": 0, "models": 0, "protocols": 0}  # commands that need nothing; the others say what they need
JUDGES_AT_ONCE = {"attack", "demo"}  # alone, they judge the pairs that come with the package
MISSING = "missing.jsonl"
GIVEN = {
    "form": ["judgments"],
    "judges": ["nobody"],
    "name": ["nobody"],
    "outputs": [f"a={MISSING}", f"b={MISSING}"],
}
OPTIONS = {"instruction": "Hi", "a": "x", "b": "y", "out": "o.jsonl", "spec": NOBODY, "db": "missing.db"}


def walk(command: Any, words: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    yield words, command
    for name, below in getattr(command, "commands", {}).items():
        yield from walk(below, (*words, name))


EVERY = {" ".join(words): command for words, command in walk(ROOT)}
LEAVES = [name for name, command in EVERY.items() if not getattr(command, "commands", None)]


@pytest.fixture(params=[80, 140], autouse=True)
def columns(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> int:
    """An empty folder, and a terminal of some width."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", str(request.param))
    for screen in (console.out, console.err):
        monkeypatch.setattr(screen, "width", request.param)
    return int(request.param)


def said(done: Done, columns: int) -> str:
    """All that is on the screen, without the breaks and frames that a narrow one needs."""
    text = done.stdout + done.stderr
    assert "Traceback" not in text
    boxes = [line for line in text.splitlines() if line.startswith(("│", "╭"))]
    assert all(len(line) <= columns for line in boxes)
    return " ".join(text.replace("│", " ").split())


def is_helpful(text: str) -> bool:
    return any(words in text for words in ("hint:", "Try 'evenhand", "Usage: evenhand"))


@pytest.mark.parametrize("name", [name for name in EVERY if name not in JUDGES_AT_ONCE])
def test_alone(name: str, columns: int) -> None:
    done = evenhand_any(*name.split())
    assert done.returncode == ALONE.get(name, 2)
    text = said(done, columns)
    assert text
    assert name in ALONE or is_helpful(text)


@pytest.mark.parametrize("name", EVERY)
def test_with_an_option_that_does_not_exist(name: str, columns: int) -> None:
    done = evenhand_any(*name.split(), "--no-such-thing")
    assert done.returncode == 2
    text = said(done, columns)
    assert "--no-such-thing" in text
    assert is_helpful(text)


@pytest.mark.parametrize("name", LEAVES)
def test_with_one_word_too_many(name: str, columns: int) -> None:
    if any(param.param_type_name == "argument" and param.nargs == -1 for param in EVERY[name].params):
        pytest.skip("it takes any number of words")
    done = evenhand_any(*line_for(name), "superfluous")
    assert done.returncode == 2
    text = said(done, columns)
    assert "superfluous" in text
    assert is_helpful(text)


def line_for(name: str) -> list[str]:
    """A command line that is right in all but this: no file that it names is there."""
    words = name.split()
    for param in EVERY[name].params:
        if param.param_type_name == "argument":
            words += GIVEN.get(param.name, [MISSING])
        elif param.required or param.name in ("db", "spec"):
            words += [param.opts[0], OPTIONS[param.name]]
    return words


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of Ray, when it is loaded
@pytest.mark.parametrize("name", [name for name in LEAVES if name != "demo"])
def test_with_files_that_are_not_there(name: str, columns: int, tmp_path: Path) -> None:
    done = evenhand_any(*line_for(name))
    assert done.returncode in (1, 2), "compare, which needs no file, finds nobody at its judge's address"
    text = said(done, columns)
    assert any(word in text for word in ("missing", "nobody", "127.0.0.1:9"))
    assert is_helpful(text)
    left = {path.name for path in tmp_path.rglob("*") if path.is_file()}
    assert not left - {"evenhand.db", "missing.db"}, "nothing is written besides a database"
