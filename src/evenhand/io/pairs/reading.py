"""Files of pairs: every row checked before anything is judged, then streamed."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from importlib.metadata import version
from itertools import pairwise
from pathlib import Path

from evenhand.core.errors import InputError, PairError
from evenhand.core.pair import Pair, short_hash
from evenhand.io import files
from evenhand.io.files import Row, Table, find_tables
from evenhand.io.pairs.recognition import Recogniser, blame
from evenhand.io.pairs.rows import pair_from
from evenhand.io.pairs.temporary_table import Seen
from evenhand.io.spill_file import SpillFile

Paths = str | Path | Sequence[str | Path]
_EXPECTED = "expected rows with the fields instruction, output_1 and output_2"
_REPEATED = "the same pair again: it is judged once; evenhand labels import FILE keeps the votes of every row"
Placed = tuple[Table, int, Pair | PairError]


def read_pairs(
    path: Paths,
    *,
    skip_bad: bool = False,
    skipped: list[PairError] | None = None,
    columns: Mapping[str, str] | None = None,
    notes: Counter[str] | None = None,
) -> Iterator[Pair]:
    """Stream the pairs of JSONL, JSON, CSV or Parquet files, packed or not; of a glob; of a folder; of '-'.

    The rows may be in any format that `evenhand look` recognises; `columns` names the fields of others, such as
    {"instruction": "prompt"}. A broken row raises PairError with its place, or with `skip_bad` is put into
    `skipped` and passed over. `notes` counts what is to be said of the files.
    """
    for _, _, found in _placed(path, columns, notes):
        if isinstance(found, Pair):
            yield found
        elif not skip_bad:
            raise found from None
        elif skipped is not None:
            skipped.append(found)


Blame = Callable[[ValueError | InputError], PairError]


def read_rows(path: Paths, what: str = "pairs") -> Iterator[tuple[Blame, Row | ValueError]]:
    """Every row of every file as it stands, with what gives a fault its place.

    A row that cannot be read at all comes out as the ValueError that says why.
    """
    for table in tables_of(path, what):
        for where, row in files.read_rows(table):
            yield partial(blame, table, where), row


def check_pairs(
    path: Paths,
    *,
    skip_bad: bool = False,
    columns: Mapping[str, str] | None = None,
    notes: Counter[str] | None = None,
) -> tuple[int, list[PairError]]:
    """Read all of it once: the number of good pairs, and what is wrong with the others.

    Without `skip_bad` the first fault is raised. An id that stands twice is always an error.
    """
    bad: list[PairError] = []
    hashes = SpillFile(key="Q")
    for pair in read_pairs(path, skip_bad=skip_bad, skipped=bad, columns=columns, notes=notes):
        hashes.append(short_hash(pair.id))
    _refuse_twins(path, hashes, columns)
    if not len(hashes):
        raise PairError(_name(path), None, "no pairs in this file", hint=_EXPECTED)
    return len(hashes), bad


def mark_of(path: Paths, columns: Mapping[str, str] | None = None) -> str | None:
    """A hash of what is in files, to know them again; None for standard input, which cannot be known beforehand.

    Another version of evenhand may find other faults, so it is part of the mark.

    >>> mark_of("-") is None
    True
    """
    if "-" in ([path] if isinstance(path, str | Path) else path):
        return None
    whole = hashlib.blake2b(version("evenhand").encode(), digest_size=20)
    if columns:
        whole.update(f"\ncolumns {sorted(columns.items())}".encode())
    for table in tables_of(path):
        with table.path.open("rb") as file:
            found = hashlib.file_digest(file, "blake2b").hexdigest()
        whole.update(f"\n{table.kind} {table.packing} {found}".encode())
    return whole.hexdigest()


def sample_pairs() -> Iterable[Pair]:
    """The pairs that come with the package, each with known answers.

    >>> from evenhand.io.pairs import DIMENSIONS
    >>> all(set(pair.labels) == set(DIMENSIONS) for pair in sample_pairs())
    True
    """
    return read_pairs(Path(__file__).parents[1] / "sample.jsonl")


def _placed(
    path: Paths, columns: Mapping[str, str] | None = None, notes: Counter[str] | None = None
) -> Iterator[Placed]:
    """Every row of every file with its place: a pair, or what is wrong with it."""
    door, seen = Recogniser("pairs", columns), Seen()
    for table, where, found in door.rows(tables_of(path)):
        if isinstance(found, PairError):
            yield table, where, found
            continue
        try:
            pair = pair_from(found.row)
        except (ValueError, InputError) as fault:
            yield table, where, blame(table, where, fault)
            continue
        # Data sets of others hold a pair twice, usually with another person's vote; in a plain file of pairs that
        # is a fault.
        if not found.format.verbatim and not seen.add(short_hash(pair.id + pair.key)):
            door.context.note(_REPEATED)
            continue
        yield table, where, pair
    if notes is not None:
        notes.update(door.context.notes)


def tables_of(path: Paths, what: str = "pairs") -> list[Table]:
    """The files that paths stand for."""
    paths = [path] if isinstance(path, str | Path) else path
    return [table for each in paths for table in find_tables(each, what)]


def _name(path: Paths) -> str:
    return ", ".join(dict.fromkeys(table.name for table in tables_of(path)))


def _refuse_twins(path: Paths, hashes: SpillFile, columns: Mapping[str, str] | None = None) -> None:
    """Find the first id that stands twice, with both its places."""
    twins = {a for part in hashes.parts() for a, b in pairwise(sorted(part["key"].tolist())) if a == b}
    if not twins:
        return
    seen: dict[str, tuple[Table, int]] = {}
    for table, where, pair in _placed(path, columns):
        if not isinstance(pair, Pair) or short_hash(pair.id) not in twins:
            continue
        if pair.id in seen:
            first, place = seen[pair.id]
            there = "" if first == table else f"{first.name}, "
            raise table.error(
                where,
                f"id '{pair.id}' is already at {there}{first.place(place)}",
                hint="give each row an id of its own; without one, the same three texts are the same pair",
            )
        seen[pair.id] = table, where
