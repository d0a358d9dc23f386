"""Rows inside other things: a list under a key of an object, the samples in an archive.

A row keeps what stood around it (`outer_of`): the names of the models often stand there and nowhere else.
"""

from __future__ import annotations

import re
import zipfile
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from evenhand.core.faults import RowFault
from evenhand.core.json_size import MOST_VALUES, holds_too_much
from evenhand.io.files.finding import Table

# Where several keys hold lists of objects, the one that the tools of this field put their rows under.
_KEYS = ("examples", "samples", "results", "rows", "annotations", "pairs", "outputs", "data", "items", "instances")
# What Inspect calls the file that names the model: now, while a run goes on, and in its first versions.
_HEADERS = ("header.json", "_journal/start.json", "start.json")
_SAMPLE = re.compile(r"samples/.+\.json")
_MOST_SAMPLE = 64 * 2**20
Parse = Callable[[bytes], Any]


class InnerRow(dict[str, Any]):
    """A row that stood in a list inside an object; `outer` is that object without the list."""

    __slots__ = ("outer",)

    def __init__(self, row: Mapping[str, Any], outer: Mapping[str, Any]) -> None:
        super().__init__(row)
        self.outer = outer


def outer_of(row: Mapping[str, Any]) -> Mapping[str, Any]:
    """What stood around the list that a row comes from; empty where the row stood by itself.

    >>> outer_of(InnerRow({"a": 1}, {"models": 2})), outer_of({"a": 1})
    ({'models': 2}, {})
    """
    return row.outer if isinstance(row, InnerRow) else {}


def inner_rows(data: dict[str, Any], table: Table) -> Iterator[dict[str, Any] | RowFault]:
    """The rows of an object: those of the list that it holds, those that it names by keys, or the object itself.

    >>> from pathlib import Path
    >>> table = Table(Path("a.json"), "a.json", ".json")
    >>> list(inner_rows({"models": ["m"], "examples": [{"a": 1}, {"a": 2}]}, table))
    [{'a': 1}, {'a': 2}]
    """
    for level in ([data], [value for value in data.values() if isinstance(value, dict)]):
        found = _chosen(level, table)
        if found is not None:
            part, key = found
            outer = {name: value for name, value in part.items() if name != key}
            for item in part[key]:
                yield InnerRow(item, outer) if isinstance(item, dict) else RowFault("the item is not an object")
            return
    if len(data) > 1 and all(isinstance(value, dict) for value in data.values()):
        yield from ({"id": name, **value} for name, value in data.items())
    else:
        yield data


def _chosen(level: list[dict[str, Any]], table: Table) -> tuple[dict[str, Any], str] | None:
    """The one list of rows among some objects, and the object that it stands in; the name decides among several."""
    lists = [(part, key) for part in level for key, value in part.items() if _is_rows(value)]
    for name in _KEYS:
        for part, key in lists:
            if key == name:
                return part, key
    if len(lists) > 1:
        named = ", ".join(f"'{key}'" for _, key in lists)
        raise table.error(
            None, f"the file holds lists under {named}", hint="write the one with the rows to a file of its own"
        )
    return lists[0] if lists else None


def _is_rows(value: Any) -> bool:
    """A list of objects that are no messages and no choices: those belong to one row."""
    return (
        isinstance(value, list)
        and bool(value)
        and isinstance(value[0], dict)
        and not {"role", "from", "turns"} & value[0].keys()
    )


def archive_rows(table: Table, parse: Parse) -> Iterator[tuple[int, dict[str, Any] | RowFault]]:
    """The samples of an Inspect log, one at a time."""
    try:
        with zipfile.ZipFile(table.path) as archive:
            names = archive.namelist()
            header = next((name for name in _HEADERS if name in names), None)
            outer = _parsed(archive, header, parse) if header else {}
            for number, name in enumerate((each for each in names if _SAMPLE.fullmatch(each)), 1):
                yield number, _sample(archive, name, outer, parse)
    except (zipfile.BadZipFile, NotImplementedError, ValueError, OSError) as fault:
        if isinstance(fault, FileNotFoundError | PermissionError):
            raise
        raise table.error(
            None, f"not a log of Inspect, or broken off: {fault}", hint="inspect log convert makes .json of it"
        ) from None


class _TooLargeError(ValueError):
    """A part of an archive that is not unpacked, or not parsed."""


def _parsed(archive: zipfile.ZipFile, name: str, parse: Parse) -> Any:
    if archive.getinfo(name).file_size > _MOST_SAMPLE:
        raise _TooLargeError(f"{name} is longer than {_MOST_SAMPLE // 2**20} MB")
    data = archive.read(name)
    if holds_too_much(data):
        raise _TooLargeError(f"{name} holds more than {MOST_VALUES:,} values")
    return parse(data)


def _sample(archive: zipfile.ZipFile, name: str, outer: Any, parse: Parse) -> dict[str, Any] | RowFault:
    try:
        found = _parsed(archive, name, parse)
    except _TooLargeError as fault:
        return RowFault(str(fault))
    except ValueError as fault:
        return RowFault(f"{name} is not JSON: {fault}")
    return InnerRow(found, outer) if isinstance(found, dict) else RowFault(f"{name} is not an object")
