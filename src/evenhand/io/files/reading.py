"""Rows out of files, one at a time; a row that cannot be read comes out as the fault that says why."""

from __future__ import annotations

import codecs
import csv
import io
import json
import re
from collections.abc import Callable, Iterator
from itertools import chain
from typing import Any, BinaryIO, TextIO

import orjson

from evenhand.core.errors import PairError
from evenhand.core.faults import RowFault
from evenhand.core.json_size import MOST_VALUES, holds_too_much
from evenhand.io.files.arrow import read_arrow, read_parquet
from evenhand.io.files.finding import Table
from evenhand.io.files.inner import archive_rows, inner_rows, outer_of
from evenhand.io.files.packing import open_bytes
from evenhand.io.files.writing import as_before, own_columns

__all__ = ["MOST_LINE", "Row", "outer_of", "parse", "parse_object", "read_rows"]
Row = dict[str, Any]

Rows = Iterator[tuple[int, "Row | RowFault"]]
_UTF8 = "write the file in UTF-8, such as with: iconv -f {} -t utf-8"
# What may stand between fields, the rarest within a name first: Excel writes semicolons in half of the world.
_DELIMITERS = {"\t": "tabs", ",": "commas", ";": "semicolons"}
_QUOTED = re.compile(r'"[^"]*"')
_WHOLE = "a .json file is one list of objects; write it again if it broke off; one object a line is called .jsonl"
_AS_LINES = "write one object a line, as .jsonl: such a file may be of any size"
_MARK = b"\xef\xbb\xbf"
# No pair comes near this. A packed file of a megabyte may hold a line of a gigabyte, and parsing it takes five.
MOST_LINE = 64 * 2**20
_MOST_FILE = 2**30
_MOST_UNPACKED = 2**28  # one document is held as a whole, as bytes and as objects
_TOO_LONG = f"longer than {MOST_LINE // 2**20} MB"


def read_rows(table: Table) -> Rows:
    """Every row of a file with its place; a fault of the whole file raises PairError.

    >>> from pathlib import Path
    >>> sample = Path(__file__).parents[1] / "sample.jsonl"
    >>> where, row = next(read_rows(Table(sample, "sample.jsonl", ".jsonl")))
    >>> where, "instruction" in row
    (1, True)
    """
    readers: dict[str, Callable[[Table], Rows]] = {
        ".jsonl": _jsonl,
        ".json": _json,
        ".csv": _csv,
        ".parquet": read_parquet,
        ".arrow": read_arrow,
        ".eval": lambda table: archive_rows(table, parse),
    }
    yield from readers[table.kind](table)


def parse_object(line: bytes) -> Row | RowFault:
    """One JSON object, or why it is none.

    >>> parse_object(b'{"a": 1}'), parse_object(b"[1]")
    ({'a': 1}, RowFault('the line is not a JSON object'))
    """
    if holds_too_much(line):
        return RowFault(f"the line holds more than {MOST_VALUES:,} values", hint="one pair a line")
    try:
        row = parse(line)
    except ValueError as fault:
        return _no_json(fault)
    return row if isinstance(row, dict) else RowFault("the line is not a JSON object")


def parse(data: bytes) -> Any:
    """JSON by the quick parser where both read the same; json's word counts, in what it takes and in its faults."""
    try:
        value = orjson.loads(data)
        return value if _is_exact(value) else parse_slowly(data)
    except orjson.JSONDecodeError:
        return parse_slowly(data)
    except RecursionError as fault:
        raise ValueError(str(fault)) from None


def parse_slowly(data: str | bytes) -> Any:
    """JSON by Python's own parser, to which brackets within brackets without end are a ValueError, too."""
    try:
        return json.loads(data)
    except RecursionError as fault:
        raise ValueError(str(fault)) from None


def _is_exact(value: Any) -> bool:
    """Whether no number here can have been an integer that was too long for orjson, which makes it a float."""
    if isinstance(value, float):
        return abs(value) < 2**53
    items = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return all(_is_exact(item) for item in items if item.__class__ is not str)  # nearly all of them are text


def _jsonl(table: Table) -> Rows:
    with open_bytes(table) as file:
        for number, line in enumerate(_lines(file), 1):
            if len(line) > MOST_LINE:
                yield number, RowFault(f"the line is {_TOO_LONG}", hint="one JSON object a line")
            elif not line.isspace():
                yield number, parse_object(line.removeprefix(_MARK) if number == 1 else line)


def _lines(file: BinaryIO) -> Iterator[bytes]:
    """The lines of a file; of one that is too long only so much that this can be seen."""
    while line := file.readline(MOST_LINE + 1):
        rest = line
        while len(rest) > MOST_LINE and not rest.endswith(b"\n"):
            rest = file.readline(MOST_LINE + 1)
        yield line


def _json(table: Table) -> Rows:
    if _is_lines(table):
        yield from _jsonl(table)
        return
    raw = _document(table)
    try:
        data = parse(raw)
    except ValueError as fault:
        if not raw.strip():
            raise table.error(None, "not JSON: the file is empty", hint=_WHOLE) from None
        given = _no_json(fault)
        where = getattr(fault, "lineno", None)
        hint = given.hint if isinstance(fault, UnicodeDecodeError) else _WHOLE
        raise PairError(table.name, where, str(given), hint=hint) from None
    if isinstance(data, dict):
        yield from enumerate(inner_rows(data, table), 1)
        return
    if not isinstance(data, list):
        raise table.error(None, "the file is not a list of objects", hint="one object a line is called .jsonl")
    for number, item in enumerate(data, 1):
        yield number, item if isinstance(item, dict) else RowFault("the item is not an object")


def _document(table: Table) -> bytes:
    """All bytes of a file; one that was small while it was packed may hold less than one that never was."""
    most = _MOST_UNPACKED if table.packing else _MOST_FILE
    with open_bytes(table) as file:
        raw = file.read(most + 1).removeprefix(_MARK)
    if len(raw) > most:
        unpacked = " once unpacked" if table.packing else ""
        raise table.error(None, f"the file has more than {most // 2**20:,} MB{unpacked}", hint=_AS_LINES)
    if table.packing and holds_too_much(raw):
        raise table.error(None, f"the file holds more than {MOST_VALUES:,} values", hint=_AS_LINES)
    return raw


def _is_lines(table: Table) -> bool:
    """Whether a .json file holds one object a line: its first line is whole, and something comes behind it."""
    with open_bytes(table) as file:
        if not file.read(1024).removeprefix(_MARK).lstrip().startswith(b"{"):
            return False  # a list, as a rule; it may be one line of a gigabyte
    with open_bytes(table) as file:
        lines = (line for line in _lines(file) if not line.isspace())
        first = next(lines, b"").removeprefix(_MARK)
        if len(first) > MOST_LINE or next(lines, None) is None:
            return False
    return isinstance(parse_object(first), dict)


def _csv(table: Table) -> Rows:
    csv.field_size_limit(MOST_LINE)
    begin = 1  # a row may take several lines
    try:
        with open_bytes(table) as raw, io.TextIOWrapper(raw, encoding="utf-8-sig", newline="") as file:
            lines = _texts(file)
            first = next(lines, "")
            delimiter = _delimiter(first)
            reader = csv.reader(chain([first], lines), strict=True, delimiter=delimiter)
            header = next(reader, [])
            own = own_columns(header)
            begin = reader.line_num + 1
            for cells in reader:
                if cells:
                    yield begin, _csv_row(header, cells, own, delimiter)
                begin = reader.line_num + 1
    except UnicodeDecodeError:
        raise _not_utf8(table) from None
    except csv.Error as fault:
        raise table.error(begin, f"not CSV: {fault}", hint="close every quote; double one inside a cell") from None


def _texts(file: TextIO) -> Iterator[str]:
    while line := file.readline(MOST_LINE + 1):
        if len(line) > MOST_LINE:
            raise csv.Error(f"a line is {_TOO_LONG}")
        yield line


def _delimiter(first: str) -> str:
    """What stands between the fields of a header.

    >>> _delimiter("instruction,output"), _delimiter('"a, b";output_1;output_2'), _delimiter("instruction")
    (',', ';', ',')
    """
    bare = _QUOTED.sub("", first)
    return next((sign for sign in _DELIMITERS if sign in bare), ",")


def _csv_row(header: list[str], cells: list[str], own: tuple[str, ...], delimiter: str) -> Row | RowFault:
    if len(cells) != len(header):
        more = "more" if len(cells) > len(header) else "fewer"
        return RowFault(
            f"{more} cells than the header has fields", hint=f"quote cells that hold {_DELIMITERS[delimiter]}"
        )
    row = dict(zip(header, cells, strict=True))
    return as_before(row, own) if own else row


def _not_utf8(table: Table) -> PairError:
    """The first line that is not UTF-8, and what is wrong with it; the file is known to have one."""
    with open_bytes(table) as file:
        for number, line in enumerate(_lines(file), 1):
            try:
                line.decode()
            except UnicodeDecodeError as fault:
                return table.error(number, str(_not_utf8_at(fault)), hint=_not_utf8_at(fault).hint)
    raise AssertionError(f"{table.name} is UTF-8")


def _no_json(fault: Exception) -> RowFault:
    if isinstance(fault, UnicodeDecodeError):
        return _not_utf8_at(fault)
    # The parser's own line is one inside this row; its column is what helps to find the place.
    said = f"{fault.msg} at column {fault.colno}" if isinstance(fault, json.JSONDecodeError) else str(fault)
    return RowFault(f"not JSON: {said}", hint="one whole JSON object a line; --skip-bad leaves such rows out")


def _not_utf8_at(fault: UnicodeDecodeError) -> RowFault:
    """What is wrong, and what would make it right: Excel writes UTF-16 with a mark, and else as Windows does."""
    written = "utf-16" if fault.object[:2] in (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE) else "cp1252"
    return RowFault(f"not UTF-8 at byte {fault.start}", hint=_UTF8.format(written))
