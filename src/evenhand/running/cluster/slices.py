"""What is judged, cut into tasks.

Parquet is read by the workers themselves, from any filesystem that Arrow knows: a task is some rows of a row group.
Other files are read where the command is given, and a task is the pairs themselves.
"""

from __future__ import annotations

import json
import pickle
from array import array
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import islice, pairwise
from math import ceil
from pathlib import Path
from typing import Any

import orjson

from evenhand.core.errors import InputError, PairError
from evenhand.core.faults import RowFault, message_and_hint
from evenhand.core.pair import Pair, short_hash
from evenhand.core.protocol import Protocol
from evenhand.io.files import Table, find_tables
from evenhand.io.files.arrow import check_columns, faults_of, listed, pyarrow
from evenhand.io.pairs import pair_from
from evenhand.io.pairs.recognition import Recogniser
from evenhand.store.rows import pair_about
from evenhand.store.shards import Place, looks_like_uri

# Rows of a task, at the most; of so many tasks at the most, a task has more.
_MOST_ROWS, _MOST_TASKS = 4096, 50_000
# Tasks for each worker, so that none is idle long before the others are done.
_TASKS_EACH = 8
# To come to its rows a task reads those before it in their row group: so a row group is cut into few pieces only.
_PIECES = 16
_BATCH = 256
_FOOTERS = 16  # read at once
Task = Mapping[str, Any]
Columns = tuple[tuple[str, str], ...]  # what --columns says, as a value that can be sent and looked up


@dataclass(frozen=True)
class Slice:
    """Some rows of a row group of a Parquet file."""

    fs: Any  # a pyarrow.fs.FileSystem
    path: str  # as that filesystem writes it
    name: str  # as people do
    group: int
    before: int  # rows of the file before this row group
    skip: int  # rows of the row group before these
    rows: int
    most: int | None = None  # pairs to take, where a limit falls into it
    columns: Columns = ()

    @property
    def table(self) -> Table:
        """The file, for its name in errors."""
        return Table(Path(self.path), self.name, ".parquet")

    def read(self) -> Iterator[tuple[int, Pair | PairError]]:
        """Each row by its number in the file: a pair, or what is wrong with it."""
        number = self.before + self.skip
        for batch in self._batches():
            for row in listed(batch):
                number += 1
                yield number, _pair(self.table, number, row, self.columns)

    def pairs(self, *, skip_bad: bool) -> Iterator[Pair]:
        """The pairs; a broken row is passed over or raised."""
        good = (found for _, found in self.read() if not (skip_bad and isinstance(found, PairError)))
        for found in islice(good, self.most):
            if isinstance(found, PairError):
                raise found
            yield found

    def _batches(self) -> Iterator[Any]:
        import pyarrow.parquet as parquet

        skip, left = self.skip, self.rows
        with (
            faults_of(self.table),
            self.fs.open_input_file(self.path) as source,
            parquet.ParquetFile(source) as file,
        ):
            for batch in file.iter_batches(batch_size=_BATCH, row_groups=[self.group]):
                if left and skip < batch.num_rows:
                    batch = batch.slice(skip, left)
                    skip, left = 0, left - batch.num_rows
                    yield batch
                elif not left:
                    return
                else:
                    skip -= batch.num_rows


@dataclass(frozen=True)
class Checked:
    """What a check found in a slice: good pairs, short hashes of their ids, and faults of the others.

    A good pair that does not fill a slot of a judge's protocol is no broken row: none of them is passed over.
    """

    count: int
    hashes: bytes
    bad: tuple[PairError, ...]
    unfilled: PairError | None = None  # the first such pair


@dataclass(frozen=True)
class Work:
    """Tasks, and how many pairs are in them."""

    tasks: list[Task]
    count: int
    bad: Sequence[PairError] = ()


@lru_cache(maxsize=8)
def _recogniser(columns: Columns) -> Recogniser:
    return Recogniser("pairs", dict(columns))


def _pair(table: Table, number: int, row: Mapping[str, Any] | RowFault, columns: Columns = ()) -> Pair | PairError:
    try:
        if isinstance(row, RowFault):
            raise row
        return pair_from(_recogniser(columns).read(dict(row)))
    except (ValueError, InputError) as fault:
        message, hint = message_and_hint(fault)
        return table.error(number, message, hint=hint)


# -- outcome -----------------------------------------------------------------------------------------------------


def find_parquet(names: Sequence[str], columns: Mapping[str, str] | None = None) -> list[Slice] | None:
    """Every row group of the Parquet files that the names stand for; None where they are other files.

    `columns` says which of their columns are what, as `--columns` does.

    A name may be an address such as s3://bucket/pairs.parquet or s3://bucket/folder.
    """
    files: list[tuple[Any, str, str]] = []
    for name in names:
        found = _at_address(name) if looks_like_uri(name) else _on_disk(name)
        if found is None:
            if any(map(looks_like_uri, names)):
                raise InputError(
                    f"{name} is not Parquet, and others come from {names[0]}", hint="judge them separately"
                )
            return None
        files += found
    with ThreadPoolExecutor(_FOOTERS) as pool:
        groups = [group for some in pool.map(lambda file: _groups(*file), files) for group in some]
    named = tuple(sorted((columns or {}).items()))
    return [replace(group, columns=named) for group in groups]


def _at_address(name: str) -> list[tuple[Any, str, str]]:
    place = Place.of(name)
    if not place.exists():
        return [(place.fs, place.path, place.name)]
    names = place.names("", ".parquet")
    if not names:
        raise InputError(f"no .parquet files in {place.name}", hint="name a folder that holds some, or one file")
    return [(place.fs, place.file(each), place.shown(each)) for each in names]


def _on_disk(name: str) -> list[tuple[Any, str, str]] | None:
    pyarrow()
    from pyarrow.fs import LocalFileSystem

    if name == "-":
        return None
    tables = find_tables(name, "pairs")
    if any(table.kind != ".parquet" for table in tables):
        return None
    return [(LocalFileSystem(), table.path.absolute().as_posix(), table.name) for table in tables]


def _groups(fs: Any, path: str, name: str) -> list[Slice]:
    import pyarrow.parquet as parquet

    table = Table(Path(path), name, ".parquet")
    try:
        with faults_of(table), fs.open_input_file(path) as source, parquet.ParquetFile(source) as file:
            check_columns(table, file.schema_arrow)
            rows = [file.metadata.row_group(number).num_rows for number in range(file.metadata.num_row_groups)]
    except OSError as fault:
        raise InputError(
            f"{name} cannot be read: {str(fault).splitlines()[0]}", hint="is the name right, and may you read it?"
        ) from None
    before, slices = 0, []
    for number, count in enumerate(rows):
        slices.append(Slice(fs, path, name, number, before, 0, count))
        before += count
    return slices


# -- checking ----------------------------------------------------------------------------------------------------


def check(group: Slice, *, skip_bad: bool, protocols: Sequence[Protocol] = ()) -> Checked:
    """Read all of it once; without `skip_bad` up to the first fault, and never past a slot that stays empty."""
    hashes, bad = array("Q"), []
    unfilled: PairError | None = None
    for number, found in group.read():
        if isinstance(found, Pair):
            hashes.append(short_hash(found.id))
            unfilled = _unfilled(group.table, number, found, protocols)
        else:
            bad.append(found)
        if unfilled is not None or (bad and not skip_bad):
            break
    return Checked(len(hashes), hashes.tobytes(), tuple(bad), unfilled)


def _unfilled(table: Table, number: int, pair: Pair, protocols: Sequence[Protocol]) -> PairError | None:
    """What is wrong with a pair that has nothing for a slot of one of the protocols."""
    try:
        for protocol in protocols:
            protocol.more_texts(pair)
    except InputError as fault:
        return table.error(number, fault.message, hint=fault.hint)
    return None


def refuse_twins(groups: Sequence[Slice], found: Sequence[Checked]) -> None:
    """An id that stands twice is an error with both its places."""
    ordered = array("Q")
    for each in found:
        ordered.frombytes(each.hashes)
    twins = {a for a, b in pairwise(sorted(ordered)) if a == b}
    seen: dict[str, tuple[Slice, int]] = {}
    for group, where, pair in _rows_of(groups) if twins else ():
        if short_hash(pair.id) not in twins:
            continue
        if pair.id in seen:
            first, place = seen[pair.id]
            there = "" if first.name == group.name else f"{first.name}, "
            raise group.table.error(
                where,
                f"id '{pair.id}' is already at {there}{first.table.place(place)}",
                hint="give each row an id of its own; without one, the same three texts are the same pair",
            )
        seen[pair.id] = group, where


def _rows_of(groups: Iterable[Slice]) -> Iterator[tuple[Slice, int, Pair]]:
    for group in groups:
        for where, found in group.read():
            if isinstance(found, Pair):
                yield group, where, found


# -- cutting -----------------------------------------------------------------------------------------------------


def task_rows(total: int, workers: int, at_once: int) -> int:
    """How many pairs a task has: many tasks for each worker, and enough in each to keep a server busy.

    >>> task_rows(40, 2, 1), task_rows(3000, 2, 64), task_rows(10**6, 10, 64), task_rows(10**9, 10, 64)
    (3, 256, 4096, 20000)
    """
    even = ceil(total / (_TASKS_EACH * workers))
    busy = min(4 * at_once if at_once > 1 else 1, ceil(total / workers))
    return max(min(max(even, busy), _MOST_ROWS), ceil(total / _MOST_TASKS), 1)


def parquet_work(
    groups: Sequence[Slice], found: Sequence[Checked], *, workers: int, at_once: int, limit: int | None = None
) -> Work:
    """Tasks of row groups that were checked."""
    left = total = min(limit or sum(each.count for each in found), sum(each.count for each in found))
    size = task_rows(total, workers, at_once)
    tasks: list[Task] = []
    for group, each in zip(groups, found, strict=True):
        if left < each.count:
            group = replace(group, most=left)
        pieces = 1 if group.most is not None else min(ceil(group.rows / size), max(_PIECES, 4 * workers))
        tasks += [
            {"task": f"{len(tasks) + n:06d}", "slice": pickle.dumps(piece), "pairs": b""}
            for n, piece in enumerate(_cut(group, pieces) if left else ())
        ]
        left -= min(left, each.count)
    return Work(tasks, total, [fault for each in found for fault in each.bad])


def _cut(group: Slice, pieces: int) -> list[Slice]:
    edges = [group.rows * n // pieces for n in range(pieces + 1)]
    return [replace(group, skip=a, rows=b - a) for a, b in pairwise(edges) if b > a]


def local_work(
    pairs: Iterable[Pair], total: int, *, workers: int, at_once: int, bad: Sequence[PairError] = ()
) -> Work:
    """Tasks of pairs that were read here; all of them are in memory.

    >>> work = local_work([Pair("Hi", "x", "y"), Pair("Ho", "x", "y")], 2, workers=1, at_once=1)
    >>> [pair.instruction for task in work.tasks for pair in pairs_of(task, skip_bad=False)]
    ['Hi', 'Ho']
    """
    source, size = iter(pairs), task_rows(total, workers, at_once)
    tasks: list[Task] = []
    while group := [_packed(pair) for pair in islice(source, size)]:
        tasks.append({"task": f"{len(tasks):06d}", "slice": b"", "pairs": orjson.dumps(group)})
    return Work(tasks, total, bad)


def _packed(pair: Pair) -> list[str]:
    return [*pair.texts, pair.id, *pair_about(pair), pair.candidate]


def pairs_of(task: Task, *, skip_bad: bool) -> Iterator[Pair]:
    """The pairs of a task."""
    if task["slice"]:
        piece: Slice = pickle.loads(task["slice"])
        yield from piece.pairs(skip_bad=skip_bad)
        return
    for one in orjson.loads(task["pairs"]):
        instruction, output_1, output_2, name, model_1, model_2, labels, metadata, candidate = one
        about = orjson.loads(labels), json.loads(metadata), candidate
        yield Pair(instruction, output_1, output_2, name, model_1, model_2, *about)
