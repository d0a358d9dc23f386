"""What is compared: a Pair, and the readers of files of pairs.

A file is read twice: once to check every row before anything is judged, once to stream the pairs. Neither
pass keeps the pairs in memory; the check keeps eight bytes a row, to find ids that stand twice.
"""

from __future__ import annotations

import atexit
import csv
import hashlib
import json
import shutil
import sys
import tempfile
from array import array
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any, Literal, TextIO, get_args

import orjson

from evenhand.errors import InputError, PairError

Side = Literal["1", "2", "tie"]
TEXT_FIELDS = ("instruction", "output_1", "output_2")
_NAMES = ("id", "model_1", "model_2")
_STRINGS = (*TEXT_FIELDS, *_NAMES)
DIMENSIONS = ("precision", "correctness", "format", "overall")
# The name under which the parts of a judgment come together; people answer the same question as "overall".
COMBINED = "combined"
SUFFIXES = (".jsonl", ".json", ".csv")

# Data sets name the winner in many ways; all of them mean a side of the pair as it stands in the file.
_LABELS: dict[str, Side] = {
    **dict.fromkeys(("1", "a", "output_1", "model_1"), "1"),
    **dict.fromkeys(("2", "b", "output_2", "model_2"), "2"),
    **dict.fromkeys(("tie", "0", "equal"), "tie"),
}


@dataclass(frozen=True, slots=True)
class Pair:
    """An instruction and two responses to it.

    >>> pair = Pair("2 + 2?", "4", "5", labels={"overall": "1"})
    >>> pair.id, pair.shown("swapped")
    ('pair-3c1872ddf21e', ('5', '4'))
    """

    instruction: str
    output_1: str
    output_2: str
    id: str = ""
    model_1: str = ""
    model_2: str = ""
    labels: Mapping[str, Side] = field(default_factory=dict)
    metadata: Mapping[str, Any] = field(default_factory=dict)
    _key: str = field(default="", init=False, repr=False, compare=False)  # made once: it is a hash of all the text

    def __post_init__(self) -> None:
        for name in _STRINGS:
            _check_text(name, getattr(self, name))
        for dimension, label in self.labels.items():
            if label not in get_args(Side):
                raise InputError(f"the label of {dimension} is {label!r}", hint="write '1', '2' or 'tie'")
        if not self.id:
            object.__setattr__(self, "id", f"pair-{self.key[:12]}")

    @property
    def key(self) -> str:
        """The hash of the three texts: two pairs with the same key are the same question."""
        if not self._key:
            object.__setattr__(self, "_key", digest(self.instruction, self.output_1, self.output_2))
        return self._key

    def shown(self, order: str) -> tuple[str, str]:
        """The texts behind Response A and Response B in this order."""
        return (self.output_1, self.output_2) if order == "forward" else (self.output_2, self.output_1)


def digest(*texts: str) -> str:
    """A hash of texts that no other cut between them shares: ("ab", "c") differs from ("a", "bc").

    >>> digest("ab", "c") == digest("a", "bc")
    False
    """
    parts = [text.encode() for text in texts]
    # One call over all of it takes half the time of one call for each part.
    return hashlib.sha256(b"".join([len(part).to_bytes(8, "big") + part for part in parts])).hexdigest()


def read_label(value: object) -> Side | None:
    """The side that a data set's label names; None where it names none.

    >>> read_label("A"), read_label(2), read_label("Tie"), read_label(None)
    ('1', '2', 'tie', None)
    """
    if value is None or value == "":
        return None
    label = _LABELS.get(str(value).strip().lower())
    if label is None:
        raise ValueError(f"label {value!r} is none of 1, 2, A, B, tie")
    return label


def pair_from(row: Mapping[str, Any]) -> Pair:
    """A Pair out of one row of a file; raises ValueError that says which field is at fault.

    >>> pair_from({"instruction": "Hi", "output_1": "x", "output_2": "y", "label": "B", "topic": "talk"})
    Pair(instruction='Hi', output_1='x', output_2='y', id='pair-443a17e551bb', model_1='', model_2='',
    labels={'overall': '2'}, metadata={'topic': 'talk'})
    """
    rest = dict(row)
    for name in TEXT_FIELDS:
        if name not in rest:
            raise ValueError(f"no field '{name}'")
    texts = {name: rest.pop(name) for name in TEXT_FIELDS}
    names = {name: _name(rest, name) for name in _NAMES}
    labels = _labels(rest)
    return Pair(**texts, **names, labels=labels, metadata=rest)


def read_pairs(
    path: str | Path, *, skip_bad: bool = False, skipped: list[PairError] | None = None
) -> Iterator[Pair]:
    """Stream the pairs of a JSONL, JSON or CSV file ('-' is JSONL on standard input).

    A broken row raises PairError with its place, or with `skip_bad` is put into `skipped` and passed over.
    """
    source = _Source.open(path)
    for where, row in source.rows():
        try:
            if isinstance(row, ValueError):
                raise row
            yield pair_from(row)
        except (ValueError, InputError) as fault:
            error = source.error(where, str(fault))
            if not skip_bad:
                raise error from None
            if skipped is not None:
                skipped.append(error)


def read_rows(path: str | Path) -> Iterator[tuple[Callable[[str], PairError], dict[str, Any] | ValueError]]:
    """Every row of a JSONL, JSON or CSV file as it stands, with what makes an error of its place.

    A row that cannot be read at all comes out as the ValueError that says why.
    """
    source = _Source.open(path)
    for where, row in source.rows():
        yield partial(source.error, where), row


def check_pairs(path: str | Path, *, skip_bad: bool = False) -> tuple[int, list[PairError]]:
    """Read a whole file once: the number of good pairs, and what is wrong with the others.

    Without `skip_bad` the first fault is raised. An id that stands twice is always an error.
    """
    bad: list[PairError] = []
    hashes = array("Q")
    for pair in read_pairs(path, skip_bad=skip_bad, skipped=bad):
        hashes.append(_short_hash(pair.id))
    _refuse_twins(path, hashes)
    if not hashes:
        raise PairError(str(path), None, "no pairs in this file", hint=_EXPECTED)
    return len(hashes), bad


_EXPECTED = "expected rows with the fields instruction, output_1 and output_2"


def _check_text(name: str, value: object) -> None:
    if not isinstance(value, str):
        kind = "null" if value is None else f"of type {type(value).__name__}"
        raise InputError(f"field '{name}' is {kind}, not text")
    if value.isascii():  # known without a look at the text
        return
    try:
        value.encode()
    except UnicodeEncodeError as fault:
        raise InputError(f"field '{name}' holds a lone surrogate at character {fault.start}") from None


def _labels(rest: dict[str, Any]) -> dict[str, Side]:
    """Take `label` (overall) and `labels` (per dimension) out of the row."""
    found = rest.pop("labels", None) or {}
    if not found and "label" not in rest:
        return {}
    if isinstance(found, str):  # a CSV cell can only hold text
        found = _object(found.encode(errors="surrogatepass"))
    if not isinstance(found, Mapping):
        raise ValueError("field 'labels' is not an object of dimension: label")
    labels = {dimension: read_label(value) for dimension, value in found.items()}
    if "label" in rest:
        label = read_label(rest.pop("label"))
        labels["overall"] = labels.get("overall") or label
    return {dimension: label for dimension, label in labels.items() if label is not None}


def _name(rest: dict[str, Any], key: str) -> str:
    value = rest.pop(key, "")
    if isinstance(value, (dict, list, bool)):
        raise ValueError(f"field '{key}' is of type {type(value).__name__}, not a name")
    return "" if value is None else str(value)


def _short_hash(text: str) -> int:
    return int.from_bytes(hashlib.blake2b(text.encode(errors="replace"), digest_size=8).digest(), "big")


def _refuse_twins(path: str | Path, hashes: array[int]) -> None:
    """Find the first id that stands twice, with both its places."""
    ordered = sorted(hashes)
    twins = {a for a, b in pairwise(ordered) if a == b}
    if not twins:
        return
    seen: dict[str, int] = {}
    source = _Source.open(path)
    for where, row in source.rows():
        try:
            pair = pair_from(row) if not isinstance(row, ValueError) else None
        except (ValueError, InputError):
            continue
        if pair is None or _short_hash(pair.id) not in twins:
            continue
        if pair.id in seen:
            first = f"{source.unit} {seen[pair.id]}"
            raise source.error(
                where,
                f"id '{pair.id}' stands already at {first}",
                hint="give each row an id of its own; without one, the same three texts are the same pair",
            )
        seen[pair.id] = where


@dataclass(frozen=True, slots=True)
class _Source:
    """A file of rows; a row that cannot be read at all comes out as the ValueError that says why."""

    path: Path
    name: str
    suffix: str

    @classmethod
    def open(cls, path: str | Path) -> _Source:
        if str(path) == "-":
            return cls(_spool(sys.stdin), "standard input", ".jsonl")
        file = Path(path)
        if not file.is_file():
            raise InputError(f"no file of pairs at {file}")
        if file.suffix.lower() not in SUFFIXES:
            raise InputError(f"{file}: unknown kind of file '{file.suffix}'", hint=f"use {', '.join(SUFFIXES)}")
        return cls(file, str(file), file.suffix.lower())

    @property
    def unit(self) -> str:
        """What rows are counted in: the items of a JSON list have no line of their own."""
        return "item" if self.suffix == ".json" else "line"

    def error(self, where: int, fault: str, *, hint: str = "") -> PairError:
        """A fault of one row, with its place."""
        if self.unit == "item":
            return PairError(self.name, None, f"item {where}: {fault}", hint=hint)
        return PairError(self.name, where, fault, hint=hint)

    def rows(self) -> Iterator[tuple[int, dict[str, Any] | ValueError]]:
        read = {".jsonl": self._jsonl, ".json": self._json, ".csv": self._csv}[self.suffix]
        yield from read()

    def _jsonl(self) -> Iterator[tuple[int, dict[str, Any] | ValueError]]:
        with self.path.open("rb") as file:
            for number, line in enumerate(file, 1):
                if line.strip():
                    yield number, _object(line.removeprefix(b"\xef\xbb\xbf"))

    def _json(self) -> Iterator[tuple[int, dict[str, Any] | ValueError]]:
        try:
            data = json.loads(self.path.read_bytes().decode("utf-8-sig"))
        except (ValueError, RecursionError) as fault:
            raise PairError(self.name, getattr(fault, "lineno", None), _no_json(fault)) from None
        if not isinstance(data, list):
            raise PairError(self.name, None, "the file is not a list of objects", hint=_EXPECTED)
        for number, item in enumerate(data, 1):
            yield number, item if isinstance(item, dict) else ValueError("the item is not an object")

    def _csv(self) -> Iterator[tuple[int, dict[str, Any] | ValueError]]:
        csv.field_size_limit(2**31 - 1)
        begin = 1  # a row may take several lines
        try:
            with self.path.open(encoding="utf-8-sig", newline="") as file:
                reader = csv.reader(file, strict=True)
                header = next(reader, [])
                begin = reader.line_num + 1
                for cells in reader:
                    if cells:
                        yield begin, _csv_row(header, cells)
                    begin = reader.line_num + 1
        except UnicodeDecodeError:
            raise PairError(self.name, *_not_utf8(self.path)) from None
        except csv.Error as fault:
            raise PairError(self.name, begin, f"not CSV: {fault}") from None


def _spool(stream: TextIO) -> Path:
    """Standard input is read twice too, so it is put into a file first."""
    if not _SPOOLED:
        with tempfile.NamedTemporaryFile(prefix="evenhand-", suffix=".jsonl", delete=False) as file:
            shutil.copyfileobj(stream.buffer, file)
        _SPOOLED.append(Path(file.name))
        atexit.register(_SPOOLED[0].unlink, missing_ok=True)
    return _SPOOLED[0]


_SPOOLED: list[Path] = []


def _object(line: bytes) -> dict[str, Any] | ValueError:
    try:
        row = _parsed(line)
    except (ValueError, RecursionError) as fault:
        return ValueError(_no_json(fault))
    return row if isinstance(row, dict) else ValueError("the line is not a JSON object")


def _parsed(line: bytes) -> Any:
    """JSON by the quick parser where both read the same; json's word counts, in what it takes and in its faults."""
    try:
        row = orjson.loads(line)
    except orjson.JSONDecodeError:
        return json.loads(line)
    return row if _is_exact(row) else json.loads(line)


def _is_exact(value: Any) -> bool:
    """Whether no number here can have been an integer that was too long for orjson, which makes it a float."""
    if isinstance(value, float):
        return abs(value) < 2**53
    items = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return all(_is_exact(item) for item in items if item.__class__ is not str)  # nearly all of them are text


def _not_utf8(path: Path) -> tuple[int, str]:
    """The first line that is not UTF-8, and what is wrong with it; the file is known to have one."""
    with path.open("rb") as file:
        for number, line in enumerate(file, 1):
            try:
                line.decode()
            except UnicodeDecodeError as fault:
                return number, _no_json(fault)
    raise AssertionError(f"{path} is UTF-8")


def _no_json(fault: Exception) -> str:
    if isinstance(fault, UnicodeDecodeError):
        return f"not UTF-8 at byte {fault.start}"
    return f"not JSON: {fault}"


def _csv_row(header: list[str], cells: list[str]) -> dict[str, Any] | ValueError:
    if len(cells) != len(header):
        more = "more" if len(cells) > len(header) else "fewer"
        return ValueError(f"{more} cells than the header has fields")
    return dict(zip(header, cells, strict=True))


def sample_pairs() -> Iterable[Pair]:
    """The pairs that come with the package, each with known answers.

    >>> all(set(pair.labels) == set(DIMENSIONS) for pair in sample_pairs())
    True
    """
    return read_pairs(Path(__file__).parent / "data" / "sample.jsonl")
