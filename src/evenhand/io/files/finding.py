"""Which files a name stands for: one file, a glob, a folder, or standard input."""

from __future__ import annotations

import atexit
import glob
import shutil
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import orjson

from evenhand.core.errors import InputError, PairError

SUFFIXES = (".jsonl", ".json", ".csv", ".parquet", ".arrow", ".eval")
PACKINGS = (".gz", ".zst")
_ALIKE = {".ndjson": ".jsonl"}
_READ_ALIKE = {".tsv": ".csv"}  # the header says what stands between its fields
_UNITS = {".json": "item", ".parquet": "row", ".arrow": "row", ".eval": "sample"}
# What the first bytes of standard input say, where there is no name to go by.
_GZIP, _ZSTD, _PARQUET, _MARK = b"\x1f\x8b", b"\x28\xb5\x2f\xfd", b"PAR1", b"\xef\xbb\xbf"
_SHEETS = (".xlsx", ".xls", ".ods", ".numbers")
_MOST_FIRST = 64 * 2**20


@dataclass(frozen=True, slots=True)
class Table:
    """One file of rows: where it is, what to call it, its kind, and how it is packed.

    >>> Table(Path("a.jsonl"), "a.jsonl", ".jsonl").error(3, "not JSON").message
    'a.jsonl:3: not JSON'
    """

    path: Path
    name: str
    kind: str
    packing: str = ""

    @property
    def unit(self) -> str:
        """What rows are counted in: the items of a JSON list have no line of their own."""
        return _UNITS.get(self.kind, "line")

    def place(self, where: int) -> str:
        """A row of this file, in words."""
        return f"{self.unit} {where}"

    def error(self, where: int | None, fault: str, *, hint: str = "") -> PairError:
        """A fault of one row, with its place; or of the file."""
        if where is None or self.unit == "line":
            return PairError(self.name, where, fault, hint=hint)
        return PairError(self.name, None, f"{self.place(where)}: {fault}", hint=hint)


def find_tables(name: str | Path, what: str = "rows") -> list[Table]:
    """The files that a name stands for, in the order in which they are read.

    >>> find_tables("nowhere/*.jsonl", "pairs")
    Traceback (most recent call last):
    evenhand.core.errors.InputError: no file of pairs at nowhere/*.jsonl (give a file, a folder, a glob in quotes,
    or - for standard input)
    """
    text, path = str(name), Path(name)
    if text == "-":
        return [_sniffed(_spill("-", sys.stdin.buffer), "standard input")]
    if text.startswith("hf:") and not path.exists():
        from evenhand.io.files.hub import hub_tables

        return hub_tables(text)
    if path.is_file():
        return [_table(path)]
    if path.is_dir():
        return _folder(path, what)
    if path.is_fifo():  # <(...) of a shell
        return [_stream(path)]
    if path.is_symlink() and not path.exists():
        raise InputError(f"{text} is a link to {path.readlink()}, where nothing is", hint="name the file itself")
    if path.exists():
        raise InputError(f"{text} is neither a file nor a folder", hint="copy what is in it into a file")
    found = sorted(glob.glob(text, recursive=True))  # noqa: PTH207 - Path.glob takes no absolute patterns
    if not found:
        raise InputError(
            f"no file of {what} at {text}", hint="give a file, a folder, a glob in quotes, or - for standard input"
        )
    return [table for each in found for table in find_tables(each, what)]


def kind_of(path: str | Path) -> tuple[str, str]:
    """What a name says of its file: the kind and the packing, each empty where it says none.

    >>> kind_of("a.csv.jsonl"), kind_of("a.CSV.gz"), kind_of("a.ndjson"), kind_of("a")
    (('.jsonl', ''), ('.csv', '.gz'), ('.jsonl', ''), ('', ''))
    """
    suffixes = [suffix.lower() for suffix in Path(path).suffixes[-2:]]
    packing = suffixes.pop() if suffixes and suffixes[-1] in PACKINGS else ""
    kind = suffixes[-1] if suffixes else ""
    return _ALIKE.get(kind, kind), packing


def _table(path: Path) -> Table:
    kind, packing = kind_of(path)
    kind = _READ_ALIKE.get(kind, kind)
    if kind not in SUFFIXES:
        use = "save the sheet as CSV in UTF-8" if kind in _SHEETS else f"use {', '.join(SUFFIXES)}"
        raise InputError(f"{path}: unknown kind of file '{kind or packing}'", hint=use)
    _refuse_packed(str(path), kind, packing)
    return Table(path, str(path), kind, packing)


def _refuse_packed(name: str, kind: str, packing: str) -> None:
    if packing and kind in (".parquet", ".arrow", ".eval"):
        raise InputError(
            f"{name}: a {kind} file cannot be read out of {packing}",
            hint="unpack it; Parquet is packed by itself",
        )


def _folder(folder: Path, what: str) -> list[Table]:
    """A folder that Hugging Face `datasets` saved, or one of Parquet or Arrow files."""
    splits = folder / "dataset_dict.json"
    if splits.is_file():
        names = [str(split) for split in _fields(splits).get("splits") or []]
        if len(names) != 1:
            raise InputError(
                f"{folder} holds several splits: {', '.join(names)}",
                hint=f"name one: {folder / (names or ['…'])[0]}",
            )
        return _folder(folder / names[0], what)
    files = _saved(folder) or sorted(folder.glob("*.parquet")) or sorted(folder.glob("*.arrow"))
    if not files:
        others = next((kind for kind in ("jsonl", "json", "csv") if any(folder.glob(f"*.{kind}"))), "")
        named = f"; its .{others} files are given by a glob: {folder}/*.{others}" if others else ""
        raise InputError(
            f"no file of {what} in the folder {folder}", hint=f"expected .parquet or .arrow files in it{named}"
        )
    return [_table(file) for file in files]


def _saved(folder: Path) -> list[Path]:
    """The files of `Dataset.save_to_disk`, in their order."""
    state = folder / "state.json"
    if not state.is_file():
        return []
    fields = _fields(state)
    if fields.get("_indices_files") or fields.get("_indices_data_files"):
        raise InputError(
            f"{folder} was saved with its rows chosen by a list of indices",
            hint="call flatten_indices() before save_to_disk()",
        )
    try:
        files = [folder / str(entry["filename"]) for entry in fields.get("_data_files") or []]
    except (TypeError, KeyError):
        raise _broken(state) from None
    if missing := next((file for file in files if not file.is_file()), None):
        raise InputError(f"{missing} is not there, though {state} names it", hint="save the data set again")
    return files


def _fields(file: Path) -> dict[str, Any]:
    """What `datasets` wrote about a folder."""
    try:
        fields = orjson.loads(file.read_bytes())
    except (OSError, ValueError):
        raise _broken(file) from None
    if not isinstance(fields, dict) or not isinstance(fields.get("splits") or [], list):
        raise _broken(file)
    return fields


def _broken(file: Path) -> InputError:
    return InputError(f"{file} is not what datasets writes there", hint="save the data set again")


def _stream(path: Path) -> Table:
    """What comes through a pipe can be read only once, so it is put into a file."""
    if str(path) in _SPILLED:
        return _sniffed(_SPILLED[str(path)], str(path))
    with path.open("rb") as stream:
        return _sniffed(_spill(str(path), stream), str(path))


def _sniffed(path: Path, name: str) -> Table:
    """A file without a name that would tell its kind."""
    from evenhand.io.files.packing import open_bytes  # which knows Table

    with path.open("rb") as raw:
        head = raw.read(4)
    packing = ".gz" if head.startswith(_GZIP) else ".zst" if head.startswith(_ZSTD) else ""
    with open_bytes(Table(path, name, ".jsonl", packing)) as file:
        first = _first_line(file)
    kind = ".parquet" if first.startswith(_PARQUET) else ".json" if _is_whole(first) else ".jsonl"
    _refuse_packed(name, kind, packing)
    return Table(path, name, kind, packing)


def _first_line(file: BinaryIO) -> bytes:
    """The first line with something on it, or as much of it as a row may have."""
    lines = iter(lambda: file.readline(_MOST_FIRST), b"")
    return next((line for each in lines if (line := each.removeprefix(_MARK).strip())), b"")


def _is_whole(first: bytes) -> bool:
    """Whether a file is one piece of JSON: a list, or an object that goes on in the next line."""
    if first.startswith(b"["):
        return True
    if not first.startswith(b"{") or not first.endswith((b"{", b"[", b",", b":")):
        return False
    try:
        orjson.loads(first)
    except orjson.JSONDecodeError:
        return True
    return False


def _spill(name: str, stream: BinaryIO) -> Path:
    """Standard input and pipes are read more than once too, so they are put into files first."""
    if name not in _SPILLED:
        with tempfile.NamedTemporaryFile(prefix="evenhand-", delete=False) as file:
            shutil.copyfileobj(stream, file)
        _SPILLED[name] = Path(file.name)
        atexit.register(_SPILLED[name].unlink, missing_ok=True)
    return _SPILLED[name]


_SPILLED: dict[str, Path] = {}  # by name
