"""The command line inside this process: the same entry point, without the seconds that a new Python takes."""

from __future__ import annotations

import contextlib
import io
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest import mock

import typer
from typer.main import get_command

from evenhand.views.cli import main


@dataclass(frozen=True)
class Done:
    stdout: str
    stderr: str
    returncode: int


_MADE: dict[tuple[int, ...], Any] = {}


def made_once(program: typer.Typer) -> Any:
    """The commands of the program as Typer makes them, made anew only when another module has been loaded.

    A process makes them once; done for every command here, it would be five sixths of the time.
    """
    known = tuple(map(id, [*program.registered_commands, *program.registered_groups]))
    if known not in _MADE:
        _MADE[known] = get_command(program)
    return _MADE[known]


def evenhand(*words: str | Path, code: int = 0, stdin: str | None = None) -> Done:
    """Run a command and check its exit code."""
    done = evenhand_any(*words, stdin=stdin)
    assert done.returncode == code, done.stderr
    return done


def evenhand_any(*words: str | Path, stdin: str | None = None) -> Done:
    """Run a command, whatever comes of it."""
    out, err = io.StringIO(), io.StringIO()
    given = io.TextIOWrapper(io.BytesIO((stdin or "").encode()))
    with (
        mock.patch("typer.main.get_command", made_once),
        mock.patch("sys.argv", ["evenhand", *map(str, words)]),
        mock.patch("sys.stdin", given),
        contextlib.redirect_stdout(out),
        contextlib.redirect_stderr(err),
    ):
        try:
            main()
        except SystemExit as left:
            ended = left.code
    return Done(out.getvalue(), err.getvalue(), int(ended or 0))
