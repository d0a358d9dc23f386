"""Rows into files: written beside the place and moved there when they are whole."""

from __future__ import annotations

import csv
import gzip
import importlib
import io
import itertools
import os
import re
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, BinaryIO

import orjson

from evenhand.core.errors import InputError
from evenhand.io.files.arrow import pyarrow
from evenhand.io.files.finding import kind_of

WRITES = (".jsonl", ".json", ".csv", ".parquet")
# A spreadsheet may take a cell that begins so for a formula: some pass over blanks and what cannot be seen, some
# read full-width and small forms as the plain ones. An apostrophe of the text's own is treated like them. One that
# splits at semicolons cuts a text apart in the middle, and at line ends too, quoted or not: only an apostrophe in
# every line of every list would help, so docs/export.md says it.
_FORMULA = re.compile("['\t\r\n]|[\\s\u00ad\u200b-\u200f\u2060-\u2064\ufeff]*[-=+@＝＋－＠﹦﹢﹣﹫−]")
# The forms of views/export that no others write: all their columns, or who the annotator is, give them away.
OWN_COLUMNS = {
    "dpo": ("prompt", "chosen", "rejected", "margin", "pair", "chosen_model", "rejected_model"),
    "kto": ("prompt", "completion", "label", "margin", "pair", "model"),
    "alpaca-eval": (
        *("instruction", "output_1", "generator_1", "output_2", "generator_2", "dataset", "annotator"),
        "preference",
    ),
}
_BATCH = 1024
Columns = Mapping[str, str]  # name -> type: text, number, integer, truth, messages


def write_rows(path: str | Path, rows: Iterable[Mapping[str, Any]], columns: Columns | None = None) -> int:
    """Write rows to a file whose suffix names the form; how many there were.

    The file appears when it is whole, so that a run that is stopped leaves the old one or none. `columns` gives the
    names and types; it is needed for CSV and Parquet, which have a header.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     file = Path(folder, "a.csv")
    ...     write_rows(file, [{"a": "=1+1", "b": 2}], {"a": "text", "b": "integer"}), file.read_text().split()
    (1, ['a,b', "'=1+1,2"])
    """
    file = Path(path)
    check_writes(file)
    kind, packing = _kind(file)
    taken = itertools.count()
    counted = (row for row, _ in zip(rows, taken, strict=False))
    writers: dict[str, Callable[[BinaryIO, Iterable[Mapping[str, Any]], Columns], None]] = {
        ".jsonl": _jsonl,
        ".json": _json,
        ".csv": _csv,
        ".parquet": _parquet,
    }
    with written_whole(file) as raw, _packed(raw, packing) as out:
        writers[kind](out, counted, columns or {})
    return next(taken)


def find_columns(rows: Iterable[Mapping[str, Any]]) -> dict[str, str]:
    """Every field that some row has, and the narrowest type that holds all its values; a mixture is text.

    >>> find_columns([{"topic": "sums", "level": 2}, {"level": 2.5, "tags": ["a"]}])
    {'topic': 'text', 'level': 'number', 'tags': 'text'}
    """
    found: dict[str, set[str]] = {}
    for row in rows:
        for name, value in row.items():
            kinds = found.setdefault(name, set())
            if value is not None:
                kinds.add(_kind_of_value(value))
    return {name: _narrowest(kinds) for name, kinds in found.items()}


def _kind_of_value(value: Any) -> str:
    if isinstance(value, bool):
        return "truth"
    if isinstance(value, int):
        return "integer" if abs(value) <= 2**53 else "long" if abs(value) < 2**63 else "text"
    return "number" if isinstance(value, float) else "text"


def _narrowest(kinds: set[str]) -> str:
    """One type for values of several; a long integer would be rounded among numbers."""
    if not kinds:
        return "text"
    fits = (("truth", {"truth"}), ("integer", {"integer", "long"}), ("number", {"integer", "number"}))
    return next((kind for kind, holds in fits if kinds <= holds), "text")


def harmless(value: Any) -> Any:
    """A cell that no spreadsheet takes for a formula, if it splits at commas: an apostrophe goes before it.

    Numbers stay numbers. An apostrophe of the text's own is doubled, so that taking one off is always right.

    >>> [harmless(cell) for cell in ("=1+1", " -3", -3, "'quoted'", "plain")]
    ["'=1+1", "' -3", -3, "''quoted'", 'plain']
    """
    if isinstance(value, str) and _FORMULA.match(value):
        return "'" + value
    return value


def unharmed(value: Any) -> Any:
    """A cell that `harmless` has made, as it was before.

    >>> [unharmed(harmless(cell)) for cell in ("=1+1", "'quoted'", "plain", 3)]
    ['=1+1', "'quoted'", 'plain', 3]
    """
    return value[1:] if isinstance(value, str) and value.startswith("'") else value


def own_columns(header: Iterable[str]) -> tuple[str, ...]:
    """The columns of a CSV whose cells `harmless` has seen, where evenhand wrote it; none of a file of others.

    Files of `export judgments`, `verdicts` and `labels export` are put right where these are read.

    >>> own_columns(["prompt", "chosen", "rejected"])
    ()
    """
    names = set(header)
    return next((own for own in OWN_COLUMNS.values() if names.issuperset(own)), ())


def as_before(row: dict[str, Any], own: Sequence[str]) -> dict[str, Any]:
    """A row of a CSV as it was before it was written; `own` are the columns that evenhand wrote.

    >>> as_before({"prompt": "'=1", "notes": "'mine"}, ["prompt"])
    {'prompt': '=1', 'notes': "'mine"}
    """
    if "annotator" in own and not row["annotator"].startswith("evenhand "):
        return row  # AlpacaEval's own columns, written by somebody else
    return {**row, **{name: unharmed(row[name]) for name in own}}


def check_writes(path: str | Path) -> None:
    """Refuse a name that cannot be written to, before any work is done."""
    _kind(Path(path))
    check_folder(Path(path))


def check_folder(file: Path) -> None:
    """Refuse a file in a folder that is not there.

    >>> check_folder(Path("none/x.json"))
    Traceback (most recent call last):
    evenhand.core.errors.InputError: there is no folder none to write into (mkdir -p none)
    """
    if not file.parent.is_dir():
        raise InputError(f"there is no folder {file.parent} to write into", hint=f"mkdir -p {file.parent}")


def _kind(file: Path) -> tuple[str, str]:
    kind, packing = kind_of(file)
    if kind not in WRITES or (packing and kind == ".parquet"):
        raise InputError(f"cannot write {file}", hint=f"let the name end in {', '.join(WRITES)}")
    return kind, packing


@contextmanager
def written_whole(place: Path) -> Iterator[BinaryIO]:
    """A file to write into, which takes its place when it is whole; a pipe or a device is written into as it is.

    Until then it has a random name, so that nothing can be put in its place, and two processes that write the same
    file do not mix. A link stays: what it leads to is written.
    """
    file = place.resolve() if place.is_symlink() else place
    if file.exists() and not file.is_file():
        with file.open("wb") as out:
            yield out
        return
    handle, name = tempfile.mkstemp(prefix=f".{file.name}.", dir=file.parent)
    try:
        with os.fdopen(handle, "wb") as out:
            yield out
        mask = os.umask(0)
        os.umask(mask)
        Path(name).chmod(0o666 & ~mask)  # as any other new file
        Path(name).replace(file)
    except BaseException:
        with suppress(FileNotFoundError):
            Path(name).unlink()
        raise


@contextmanager
def _packed(raw: BinaryIO, packing: str) -> Iterator[BinaryIO]:
    opened: Any = raw
    if packing == ".gz":
        opened = gzip.GzipFile(fileobj=raw, mode="wb", mtime=0)
    elif packing == ".zst":
        opened = _zst(raw)
    try:
        yield opened
    finally:
        if opened is not raw:
            opened.close()


def _zst(raw: BinaryIO) -> Any:
    with suppress(ImportError):
        return importlib.import_module("compression.zstd").ZstdFile(raw, "wb")
    try:
        return importlib.import_module("zstandard").ZstdCompressor().stream_writer(raw, closefd=False)
    except ImportError:
        raise InputError(
            "a .zst file cannot be written without zstandard", hint="pip install 'evenhand[zst]'"
        ) from None


def _jsonl(out: BinaryIO, rows: Iterable[Mapping[str, Any]], _: Columns) -> None:
    for row in rows:
        out.write(dump(row) + b"\n")


def _json(out: BinaryIO, rows: Iterable[Mapping[str, Any]], _: Columns) -> None:
    out.write(b"[")
    for number, row in enumerate(rows):
        out.write((b",\n" if number else b"\n") + dump(row))
    out.write(b"\n]\n")


def dump(value: Any) -> bytes:
    """JSON of anything that came out of a file: what has no form of its own there (a date) becomes text."""
    return orjson.dumps(value, default=str, option=orjson.OPT_NON_STR_KEYS)


def _csv(out: BinaryIO, rows: Iterable[Mapping[str, Any]], columns: Columns) -> None:
    text = io.TextIOWrapper(out, encoding="utf-8", newline="", write_through=True)
    writer = csv.writer(text)  # its line ends, CR LF, are those of RFC 4180; with others it would not quote a CR
    writer.writerow([harmless(name) for name in columns])
    writer.writerows([_cell(row.get(name)) for name in columns] for row in rows)
    text.detach()


def _cell(value: Any) -> Any:
    if value is None or isinstance(value, int | float | str):
        return harmless(value)
    return dump(value).decode()


def _parquet(out: BinaryIO, rows: Iterable[Mapping[str, Any]], columns: Columns) -> None:
    arrow = pyarrow()
    import pyarrow.parquet as parquet

    schema = arrow.schema([(name, _type(arrow, kind)) for name, kind in columns.items()])
    every = iter(rows)
    with parquet.ParquetWriter(out, schema, compression="zstd") as writer:
        while batch := list(itertools.islice(every, _BATCH)):
            writer.write_batch(arrow.RecordBatch.from_pylist([_fit(row, columns) for row in batch], schema=schema))


def _fit(row: Mapping[str, Any], columns: Columns) -> dict[str, Any]:
    """A row for a typed table: what is nested and not a conversation goes in as JSON."""
    given = {name: row.get(name) for name in columns}
    return {
        name: value if columns[name] != "text" or value is None or isinstance(value, str) else dump(value).decode()
        for name, value in given.items()
    }


def _type(arrow: Any, kind: str) -> Any:
    message = arrow.struct([("role", arrow.string()), ("content", arrow.string())])
    return {
        "text": arrow.string(),
        "number": arrow.float64(),
        "integer": arrow.int64(),
        "truth": arrow.bool_(),
        "messages": arrow.list_(message),
    }[kind]
