"""`evenhand old.jsonl new.jsonl`: files without a command, and the command that they stand for."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from itertools import pairwise, takewhile
from pathlib import Path

from evenhand.core.errors import InputError
from evenhand.core.faults import RowFault
from evenhand.io.files import Row, find_tables, read_rows
from evenhand.io.pairs.join import split_name
from evenhand.io.pairs.recognition import Kind, parse_columns, recognise, rename_columns
from evenhand.views import console

_DATABASE = ".db"


def command_for(words: Sequence[str]) -> list[str]:
    """The words with the command in front that their files ask for; as they are, where the first is no file.

    Two files of outputs are compared, the old one first; files of pairs are judged, a database is shown.
    """
    named = list(takewhile(lambda word: not word.startswith("-"), words))
    if not named or not looks_like_file(named[0]):
        return list(words)
    missing = [word for word in named if not _path(word).exists()]
    if missing:
        raise InputError(f"no file at {missing[0]}", hint=_nearest(missing[0]))
    meant = [*_meant(named, _columns_in(words[len(named) :])), *words[len(named) :]]
    console.aside(f"evenhand {shlex.join(meant)}")
    return meant


def _nearest(word: str) -> str:
    """What may have been meant by a file that is not there."""
    path = _path(word)
    beside = [str(path.with_name(each.name)) for each in path.parent.iterdir()] if path.parent.is_dir() else []
    near = get_close_matches(str(path), beside, 1, cutoff=0.8)
    return f"did you mean {near[0]}?" if near else "evenhand --help lists the commands"


def refuse_files(words: Sequence[str]) -> None:
    """Say what is meant by files where texts belong."""
    if words and not words[0].startswith("-") and looks_like_file(words[0]):
        raise InputError(
            "compare judges one pair, whose texts stand on the command line", hint=shlex.join(["evenhand", *words])
        )


def _columns_in(options: Sequence[str]) -> dict[str, str]:
    """What --columns says of the files, among options that nobody has read yet.

    >>> _columns_in(["--columns", "output=text"]), _columns_in(["--columns=output=text"]), _columns_in(["--json"])
    ({'output': 'text'}, {'output': 'text'}, {})
    """
    for option, value in pairwise([*options, ""]):
        if option == "--columns" and value:
            return parse_columns(value)
        if option.startswith("--columns="):
            return parse_columns(option.partition("=")[2])
    return {}


def _meant(named: list[str], columns: Mapping[str, str]) -> list[str]:
    if len(named) == 1 and _path(named[0]).suffix == _DATABASE:
        return ["results", "--db", *named]
    kinds = {kind_of(word, columns) for word in named} - {None}
    if kinds == {"pairs"} or (not kinds and len(named) == 1):
        return ["judge", *named]
    if kinds == {"pairs", "outputs"}:
        raise InputError(
            "some of these files hold pairs, others one model's outputs", hint="give either kind alone"
        )
    if len(named) == 1:
        raise InputError(
            f"{named[0]} holds the outputs of one side, and a comparison takes two",
            hint=f"evenhand {named[0]} NEW.jsonl; several models in one file: evenhand arena {named[0]}",
        )
    if len(named) == 2:
        return ["judge", "--baseline", named[0], "--candidate", named[1]]
    return ["arena", *named]


def kind_of(word: str, columns: Mapping[str, str]) -> Kind | None:
    """What a file holds by its first row, "outputs" or "pairs"; None where it cannot be told.

    Such a file is taken for one of those beside it, and judge finds the words for what is wrong with it.
    """
    for table in find_tables(_path(word), "pairs"):
        for _, row in read_rows(table):
            return None if isinstance(row, ValueError) else _kind_of_row(row, columns)
    return None


def _kind_of_row(row: Row, columns: Mapping[str, str]) -> Kind | None:
    try:
        found = recognise(rename_columns(row, columns))
    except RowFault:  # a field that is not there
        found = None
    if found is not None:
        return found.kind
    return "outputs" if "output" in row or "output" in columns else None


def _path(word: str) -> Path:
    """The file of NAME=FILE."""
    return Path(split_name(word)[1])


def looks_like_file(word: str) -> bool:
    """A file that is there, or a name that only a file would have."""
    path = _path(word)
    return path.exists() or "/" in word or bool(path.suffix)
