"""A folder of shards, opened: its files checked, each pair counted once, read as a database is."""

from __future__ import annotations

import tempfile
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from itertools import chain
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Self

import orjson

from evenhand.core.engine import Usage
from evenhand.core.errors import InputError
from evenhand.core.judge import Judgment
from evenhand.core.pair import Pair
from evenhand.core.protocol import Order
from evenhand.core.reasons import questions_of, with_words
from evenhand.core.votes import known_labels
from evenhand.io.files.arrow import pyarrow
from evenhand.io.spill_file import HELD, SpillFile
from evenhand.store import HumanLabel, JudgeRow, RunGroup
from evenhand.store.records import MemberUsage
from evenhand.store.shards.place import Place
from evenhand.store.shards.schema import (
    FORM,
    NEW_COLUMNS,
    OLD_FORM,
    OLD_NAMES,
    ShardRow,
    conversations_in,
    dimension_named,
    has_ended,
    judgment_of,
    pair_of,
    row_name,
    rows_of,
    shard_schema,
)
from evenhand.store.shards.writing import FINGERPRINT, FORM_KEY, JUDGE, PART, RUN

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from evenhand.core.columns import Block

_BATCH = 16_384
_DIGITS = 64  # of a key, which is a SHA-256 in hexadecimal
_TEXTS = ("instruction", "output_1", "output_2")
_ABOUT = ("name", "model_1", "model_2", "labels", "metadata", "candidate")
_ENDED = "outcomes.list.element.said"  # the smallest of the columns that say whether there are outcomes
_NO_VOTES = "{}"
_VOTES = r'"(human|dims)"'  # fields of metadata in which people's votes stand
_WORDS = ("conversations.list.element.order", "conversations.list.element.answers.list.element.text")
_NEEDED = ("fingerprint", "model", "identity", "protocol", "template", "dimensions", "raw_markup")
_AGAIN = "delete it and run the same evenhand ray judge command again: what it held is judged again"


@dataclass(frozen=True)
class ShardPart:
    """One file of the folder: how many rows it has, the number of its first, and the form of its columns."""

    name: str
    rows: int
    first: int
    form: str = FORM


def open_shards(where: str | Path | Place, on_note: Callable[[str], None] = lambda _: None) -> Shards:
    """The folder, its files checked; InputError with the file and the remedy where one cannot be used.

    `on_note` takes a sentence that a user may want to know.

    >>> open_shards("none")
    Traceback (most recent call last):
        ...
    evenhand.core.errors.InputError: there is no folder none (evenhand ray judge PAIRS --out none writes one)
    """
    place = Place.of(where)
    if not place.exists():
        hint = f"evenhand ray judge PAIRS --out {place.name} writes one"
        raise InputError(f"there is no folder {place.name}", hint=hint)
    return Shards(place, on_note)


class Finished:
    """Pairs that need nothing more, in 24 bytes each, so that every worker can have a copy.

    >>> pair = Pair("Hi", "x", "y")
    >>> finished = Finished([row_name(pair.id, pair.key)])
    >>> pair in finished, Pair("Ho", "x", "y") in finished, len(finished)
    (True, False, 1)
    """

    def __init__(self, names: Iterable[bytes]) -> None:
        """Names, one by one or several in a piece."""
        import numpy as np

        every = np.frombuffer(b"".join(names), dtype=">u8").astype(np.uint64).reshape(-1, 2)
        order = np.lexsort((every[:, 1], every[:, 0]))
        every = every[order]
        fresh = np.ones(len(every), dtype=bool)
        fresh[1:] = (every[1:] != every[:-1]).any(axis=1)
        self._first, self._second, self._given = every[fresh, 0].copy(), every[fresh, 1].copy(), order[fresh]

    def __len__(self) -> int:
        return len(self._first)

    def __contains__(self, pair: Pair) -> bool:
        return self.place(pair) is not None

    def place(self, pair: Pair) -> int | None:
        """The place of a pair's name among those that were given; None where it is not among them.

        >>> pair = Pair("Hi", "x", "y")
        >>> Finished([row_name("other", pair.key), row_name(pair.id, pair.key)]).place(pair)
        1
        """
        name = row_name(pair.id, pair.key)
        first, second = int.from_bytes(name[:8], "big"), int.from_bytes(name[8:], "big")
        begin, end = (self._first.searchsorted(self._first.dtype.type(first), side) for side in ("left", "right"))
        return next((int(self._given[n]) for n in range(begin, end) if int(self._second[n]) == second), None)


def keys_in(where: str | Path | Place, more: Iterable[bytes] = ()) -> Finished:
    """The pairs that need nothing more, and those of `more` names; a folder that is not there has none.

    A pair with a failure is not among them: it is to be tried again.
    """
    place = Place.of(where)
    if not place.has(JUDGE) or not place.names(PART, ".parquet"):
        return Finished(more)
    every = Shards(place).batches(["name", "key", "finished"], every=True)
    return Finished(chain(map(_names, every), more))


def _names(batch: Any) -> bytes:
    """The names of the finished rows of a batch, in one piece."""
    columns = (batch.column(name).to_pylist() for name in ("name", "key", "finished"))
    return b"".join(row_name(name, key) for name, key, finished in zip(*columns, strict=True) if finished)


class Shards:
    """The verdicts of one judge in a folder; it can be asked what a `Store` can, and nothing is written.

    Rows are numbered from 1, file by file in the order of their names. Where a pair has several rows (it failed and
    was tried again, or two workers had it), the newest finished one counts, or the newest if none is finished.
    """

    def __init__(self, place: Place, on_note: Callable[[str], None] = lambda _: None) -> None:
        self.place, self.path = place, place.name
        self._on_note, self._noted = on_note, False
        self.fields = _judge(place)
        self.parts = _parts(place, str(self.fields["fingerprint"]))
        self.labels, self.calibrations = _Labels(self), _Calibrations()
        self.archive = self.pages = self
        self._near: tuple[str, int, Any] = ("", -1, None)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """Nothing is held open."""

    # -- rows ------------------------------------------------------------------------------------

    def batches(self, columns: Sequence[str], *, every: bool = False) -> Iterator[Any]:
        """Record batches of some columns, only of rows that count unless `every` is wanted."""
        return (batch for _, batch in self.numbered(columns, every=every))

    def numbered(
        self,
        columns: Sequence[str],
        parts: Sequence[ShardPart] | None = None,
        *,
        every: bool = False,
        words: Sequence[str] = (),
    ) -> Iterator[tuple[NDArray[np.int64], Any]]:
        """The same, of some files, with the number of each row; shards of the old form lack the columns of the new.

        `words` are columns that come as numbers of their words. No batch spans two row groups: of one that does,
        Arrow cannot always make nested columns.
        """
        import numpy as np

        for part in self.parts if parts is None else parts:
            begin = part.first
            for batch in _read(self.place, part.name, _present(columns, part), words):
                numbers = np.arange(begin + 1, begin + 1 + batch.num_rows)
                begin += batch.num_rows
                yield (numbers, batch) if every else self._counting(numbers, batch)

    def _counting(self, numbers: NDArray[np.int64], batch: Any) -> tuple[NDArray[np.int64], Any]:
        """Only the rows that count."""
        import numpy as np

        if not len(self._left_out) or not len(numbers):
            return numbers, batch
        left, right = np.searchsorted(self._left_out, [numbers[0], numbers[-1] + 1])
        if left == right:
            return numbers, batch
        kept = np.ones(len(numbers), dtype=bool)
        kept[self._left_out[left:right] - numbers[0]] = False
        return numbers[kept], batch.filter(pyarrow().array(kept))

    @property
    def rows(self) -> int:
        """All rows, also those that do not count."""
        return sum(part.rows for part in self.parts)

    @cached_property
    def _key_file(self) -> IO[bytes]:
        """The first eight bytes of each row's key, one after the other: the column is read and decoded once."""
        file = tempfile.TemporaryFile(prefix="evenhand-")  # noqa: SIM115 - it lives as long as the folder is open
        weakref.finalize(self, file.close)
        for batch in self.batches(["key"], every=True):
            file.write(leading(batch.column("key")).tobytes())
        return file

    def keys(self, numbers: NDArray[np.int64]) -> NDArray[np.uint64]:
        """The first eight bytes of the keys of some rows, in the order of their numbers."""
        import numpy as np

        if not len(numbers):
            return np.zeros(0, dtype=np.uint64)
        first = int(numbers[0])
        self._key_file.seek(8 * (first - 1))
        near = np.frombuffer(self._key_file.read(8 * (int(numbers[-1]) - first + 1)), dtype=np.uint64)
        return near if len(near) == len(numbers) else near[numbers - first]

    @cached_property
    def _all_keys(self) -> NDArray[np.uint64]:
        """Those of all rows, where pairs are looked up."""
        import numpy as np

        return self.keys(np.arange(1, self.rows + 1))

    @cached_property
    def _left_out(self) -> NDArray[np.int64]:
        """The numbers of the rows in whose place another counts, in order.

        Keys wait in parts that share none, so that memory does not grow with the folder.
        """
        import numpy as np

        keys = SpillFile(key="Q", number="q")
        for first in range(1, self.rows + 1, HELD):
            numbers = np.arange(first, min(first + HELD, self.rows + 1))
            keys.extend(key=self.keys(numbers), number=numbers)
        alike = np.concatenate([_alike(part) for part in keys.parts()])
        return self._superseded(np.sort(alike)) if len(alike) else alike

    def _superseded(self, alike: NDArray[np.int64]) -> NDArray[np.int64]:
        """Among rows whose keys begin alike, those that a better row of the same pair stands for."""
        import numpy as np

        best: dict[tuple[str, str], tuple[tuple[bool, Any, int], int]] = {}
        gone: list[int] = []
        for numbers, batch in self.numbered(["name", "key", "finished", "judged"], every=True):
            places = np.flatnonzero(np.isin(numbers, alike, assume_unique=True))
            for place, row in zip(places, batch.take(pyarrow().array(places)).to_pylist(), strict=True):
                number, name = int(numbers[place]), (row["name"], row["key"])
                worth = (row["finished"], row["judged"], number)
                if name not in best or worth > best[name][0]:
                    gone += [best[name][1]] if name in best else []
                    best[name] = (worth, number)
                else:
                    gone.append(number)
        return np.array(sorted(gone), dtype=np.int64)

    def note_old_form(self) -> None:
        """Say, once, that a folder of the old form is slow to read."""
        if not self._noted:
            self._noted = True
            self._on_note(f"{self.path} was written by an older evenhand: its outcomes are made while it is read")

    def records(self) -> Iterator[ShardRow]:
        """Every row that counts, with its answers."""
        for batch in self.batches(shard_schema().names):
            yield from rows_of(batch)

    # -- as a store ------------------------------------------------------------------------------

    def judges(self, *, counted: bool = True) -> list[JudgeRow]:
        """The one judge of the folder."""
        f = self.fields
        pairs = self.rows - len(self._left_out) if counted else 0
        about = (f["fingerprint"], f["model"], f["identity"], f["protocol"], f["template"])
        return [JudgeRow(1, *about, tuple(f["dimensions"]), bool(f["raw_markup"]), pairs)]

    def judgments(self, judge: JudgeRow, *, words: bool = False) -> Iterator[Judgment]:
        """Every pair that counts and has come to an end, with its outcomes, one after the other."""
        questions = questions_of(judge.template) if words else ()
        for batch in self.batches([*_TEXTS, *_ABOUT, "verdicts", _ENDED, *(_WORDS if words else ())]):
            for fields in batch.to_pylist():
                if has_ended(fields):
                    found = judgment_of(fields)
                    yield with_words(found, _said(fields), questions) if words else found

    def blocks(self, judge: JudgeRow, *, metadata: bool = False, attacked: bool = False) -> Iterator[Block]:
        """The same as columns, without a text; what everything that counts reads. No shard has attacked pairs."""
        from evenhand.store.shards.blocks import blocks

        return blocks(self, metadata=metadata)

    def unfinished(self, judge: JudgeRow) -> int:
        """How many pairs were begun and are not brought to an end: a run was stopped in the middle of them."""
        return sum(self._unfinished_in(part) for part in self.parts)

    def _unfinished_in(self, part: ShardPart) -> int:
        import pyarrow.compute as compute

        if all(compute.all(batch.column("finished")).as_py() for _, batch in self.numbered(["finished"], [part])):
            return 0
        given = "verdicts.list.element.invalid" if part.form == OLD_FORM else _ENDED
        return sum(
            not has_ended(fields)
            for _, batch in self.numbered(["finished", given], [part])
            for fields in batch.filter(compute.invert(batch.column("finished"))).to_pylist()
        )

    def count_attacked(self, judge: JudgeRow) -> int:
        """None: `evenhand attack` writes to a database."""
        return 0

    def attacked(self) -> list[tuple[int, Pair]]:
        """None: `evenhand attack` writes to a database."""
        return []

    def voted(self) -> Iterator[tuple[int, Pair]]:
        """Every pair that people have said something of, with its number; texts are read where there are such."""
        import pyarrow.compute as compute

        for part in self.parts:
            given = [
                compute.or_(
                    compute.not_equal(batch.column("labels"), _NO_VOTES),
                    compute.match_substring_regex(batch.column("metadata"), _VOTES),
                )
                for _, batch in self.numbered(["labels", "metadata"], [part])
            ]
            if not any(compute.any(some).as_py() for some in given):
                continue
            for some, (numbers, batch) in zip(given, self.numbered([*_TEXTS, *_ABOUT], [part]), strict=True):
                pairs = map(pair_of, batch.filter(some).to_pylist())
                found = zip(numbers[some.to_numpy(False)], pairs, strict=True)
                yield from ((int(number), pair) for number, pair in found if known_labels(pair))

    def judgment(self, judge: JudgeRow, number: int, pair: Pair) -> Judgment | None:
        """One pair, by its number."""
        return judgment_of(self._fields(number))

    def usage(self, judge: JudgeRow) -> tuple[Usage, float]:
        """The tokens that the answers took, and the seconds that the runs took."""
        import pyarrow.compute as compute

        names = ("computed", "reused", "generated")
        sums = dict.fromkeys(names, 0)
        for batch in self.batches(names):
            for name in names:
                sums[name] += compute.sum(batch.column(name)).as_py() or 0
        seconds = sum(note["ended"] - note["started"] for note in self._notes() if note["ended"] is not None)
        return Usage(*sums.values()), float(seconds)

    def made_words(self, judge: JudgeRow) -> Iterator[Mapping[str, Any]]:
        """The word that is kept about each pair of a judge that is made of others: who spoke, or who decided."""
        from evenhand.store.shards.members import made_words

        return made_words(self)

    def members_used(self, judge: JudgeRow) -> list[MemberUsage]:
        """The judges that a made one is made of, whose folders lie in this one, and what their answers took."""
        from evenhand.store.shards.members import members_used

        return members_used(self, judge)

    def runs(self, judge: int) -> list[RunGroup]:
        """The runs, those with the same settings together, the earliest first."""
        groups: dict[str, list[Mapping[str, Any]]] = {}
        for note in self._notes():
            groups.setdefault(orjson.dumps(note["settings"], option=orjson.OPT_SORT_KEYS).decode(), []).append(note)
        found = [
            RunGroup(
                notes[0]["settings"],
                len(notes),
                min(note["started"] for note in notes),
                max((note["ended"] for note in notes if note["ended"] is not None), default=None),
                sum(note["asked"] for note in notes),
                *(sum(note["usage"][name] for note in notes) for name in ("computed", "reused", "generated")),
            )
            for notes in groups.values()
        ]
        return sorted(found, key=lambda group: group.started)

    def _notes(self) -> list[dict[str, Any]]:
        return [orjson.loads(self.place.read(name)) for name in self.place.names(RUN, ".json")]

    def said(self, judge: int, pair: int) -> dict[Order, tuple[str, ...]]:
        """What the judge answered about one pair, word for word; the tokens beside the words are not read."""
        return _said(self._fields(pair))

    def pairs_judged(self, judges: Sequence[int]) -> int:
        """How many pairs count."""
        return self.rows - len(self._left_out) if judges else 0

    def number(self, name: str, key: str) -> int | None:
        """The number of the pair with this id and these texts."""
        import numpy as np

        for place in np.flatnonzero(self._all_keys == np.uint64(int(key[:16], 16))):
            fields = self._fields(int(place) + 1)
            if (fields["name"], fields["key"]) == (name, key) and place + 1 not in self._left_out:
                return int(place) + 1
        return None

    def pair(self, number: int) -> Pair | None:
        """A pair by its number."""
        return pair_of(self._fields(number)) if 0 < number <= self.rows else None

    def _fields(self, number: int) -> dict[str, Any]:
        """A row by its number; those that lie beside it are kept in memory, since the next is often one of them."""
        part = next(part for part in self.parts if part.first < number <= part.first + part.rows)
        with _opened(self.place, part.name) as file:
            group, begin = 0, part.first
            while number > begin + file.metadata.row_group(group).num_rows:
                begin += file.metadata.row_group(group).num_rows
                group += 1
            if self._near[:2] != (part.name, group):
                columns = _present([*_TEXTS, *_ABOUT, "key", "verdicts", *_WORDS], part)
                self._near = (part.name, group, file.read_row_group(group, columns=columns))
        fields: dict[str, Any] = self._near[2].slice(number - begin - 1, 1).to_pylist()[0]
        return fields


class _Labels:
    """Nobody's labels lie in the folder but those that came with the pairs, in their own columns."""

    def __init__(self, shards: Shards) -> None:
        self._shards = shards

    def any(self) -> bool:
        """None were collected or imported."""
        return False

    def of(self, pair: str) -> list[HumanLabel]:
        """None were collected or imported."""
        return []

    def pairs(self) -> Iterator[Pair]:
        """Every pair that counts."""
        for batch in self._shards.batches([*_TEXTS, *_ABOUT]):
            yield from map(pair_of, batch.to_pylist())


class _Calibrations:
    """None are kept in the folder."""

    def of(self, judge: int) -> dict[str, dict[str, Any]]:
        """None."""
        return {}


def _alike(part: Mapping[str, Any]) -> NDArray[np.int64]:
    """The numbers of rows whose key another row has, too."""
    import numpy as np

    keys, numbers = np.asarray(part["key"]), np.asarray(part["number"])
    order = np.argsort(keys, kind="stable")
    same = keys[order[1:]] == keys[order[:-1]]
    return np.unique(np.concatenate([numbers[order[1:][same]], numbers[order[:-1][same]]]))


def _said(fields: Mapping[str, Any]) -> dict[Order, tuple[str, ...]]:
    """What the judge answered in a row, by order; nothing of an order without an answer."""
    found = {h["order"]: tuple(answer["text"] for answer in h["answers"]) for h in conversations_in(fields)}
    return {order: answers for order, answers in found.items() if answers}


def _present(columns: Sequence[str], part: ShardPart) -> list[str]:
    """The columns that a file has: one of the old form lacks some."""
    if part.form != OLD_FORM:
        return list(columns)
    heads = [name.partition(".") for name in columns]
    return ["".join((OLD_NAMES.get(head, head), *rest)) for head, *rest in heads if head not in NEW_COLUMNS]


def leading(keys: Any) -> NDArray[np.uint64]:
    """The first sixteen hexadecimal digits of each key as a number, all at once.

    >>> leading(pyarrow().array(["00000000000000ff" + 48 * "0"])).tolist()
    [255]
    """
    import numpy as np

    _, offsets, text = keys.buffers()
    ends = np.frombuffer(offsets, dtype=np.int32)[keys.offset : keys.offset + len(keys) + 1]
    try:
        digits = np.frombuffer(text or b"", dtype=np.uint8)[ends[0] : ends[-1]].reshape(-1, _DIGITS)[:, :16]
        if len(digits) != len(keys) or (np.diff(ends) != _DIGITS).any():
            raise ValueError
        return np.frombuffer(bytes.fromhex(digits.tobytes().decode()), dtype=">u8").astype(np.uint64)
    except ValueError:
        raise InputError(
            "column 'key' holds something other than hashes of 64 digits",
            hint="another program has written a shard; bring back what the run wrote",
        ) from None


# -- checks ------------------------------------------------------------------------------------------------------


def _judge(place: Place) -> dict[str, Any]:
    file = place.shown(JUDGE)
    if not place.has(JUDGE):
        parts = place.names(PART, ".parquet")
        what = f"has {len(parts)} shards and no {JUDGE}" if parts else "is no folder of verdicts"
        hint = (
            f"bring {JUDGE} back; the run that wrote the shards wrote it beside them"
            if parts
            else f"a run with --out leaves {JUDGE} and part-*.parquet there"
        )
        raise InputError(f"{place.name} {what}", hint=hint)
    try:
        fields = orjson.loads(place.read(JUDGE))
        missing = [name for name in _NEEDED if name not in fields]
    except (orjson.JSONDecodeError, TypeError) as fault:
        raise InputError(
            f"{file} does not hold JSON of a judge: {fault}", hint="bring back what the run wrote"
        ) from None
    if missing:
        raise InputError(f"{file} does not say {', '.join(missing)}", hint="bring back what the run wrote")
    if fields.get("form", FORM) not in (OLD_FORM, FORM):
        raise InputError(f"{file} was written by a newer evenhand", hint="pip install -U evenhand")
    return {**fields, "dimensions": [dimension_named(name) for name in fields["dimensions"]]}


def _parts(place: Place, fingerprint: str) -> list[ShardPart]:
    """The shards, each looked at: whole, of this judge, with the right columns."""
    names = place.names(PART, ".parquet")
    if not names:
        raise InputError(f"{place.name} has no shards", hint="the run has not finished a first part-*.parquet yet")
    parts, first = [], 0
    for name in names:
        with _opened(place, name) as file:
            form = _check(place.shown(name), file, fingerprint)
            parts.append(ShardPart(name, file.metadata.num_rows, first, form))
            first += file.metadata.num_rows
    return parts


def _check(shown: str, file: Any, fingerprint: str) -> str:
    """The form of a shard that is whole, of this judge, and has the right columns."""
    schema, about = file.schema_arrow, file.metadata.metadata or {}
    form = str(about.get(FORM_KEY, FORM.encode()).decode())
    if form not in (OLD_FORM, FORM):
        raise InputError(f"{shown} was written by a newer evenhand", hint="pip install -U evenhand")
    for field in shard_schema():
        place = schema.get_field_index(OLD_NAMES.get(field.name, field.name) if form == OLD_FORM else field.name)
        if form == OLD_FORM and field.name in NEW_COLUMNS:
            continue
        if place < 0:
            raise InputError(
                f"{shown} has no column '{field.name}'", hint="it is not a shard of evenhand; move it away"
            )
        # The old form does not say which verdicts are counted, and has other names in its conversations.
        same = form == OLD_FORM and field.name in ("verdicts", *OLD_NAMES)
        if schema.field(place).type != field.type and not same:
            raise InputError(
                f"{shown}: column '{field.name}' is {schema.field(place).type}, not {field.type}",
                hint="another program has written it; bring back what the run wrote",
            )
    theirs = about.get(FINGERPRINT, b"").decode()
    if theirs != fingerprint:
        said = f"of the judge {theirs[:12]}" if theirs else "of a judge that it does not name"
        raise InputError(
            f"{shown} holds verdicts {said}, {JUDGE} is that of {fingerprint[:12]}",
            hint="one folder holds one judge: move the shards of the other into a folder with its own judge.json",
        )
    return form


@contextmanager
def _opened(place: Place, name: str, words: Sequence[str] = ()) -> Iterator[Any]:
    """A shard; columns of few words, that often come again, can be read as numbers of their words."""
    with _faults(place.shown(name)):
        import pyarrow.parquet as parquet

        with (
            place.fs.open_input_file(place.file(name)) as source,
            parquet.ParquetFile(source, read_dictionary=list(words)) as file,
        ):
            yield file


def _read(place: Place, name: str, columns: Sequence[str], words: Sequence[str] = ()) -> Iterator[Any]:
    with _opened(place, name, words) as file:
        for group in range(file.metadata.num_row_groups):
            yield from file.iter_batches(batch_size=_BATCH, row_groups=[group], columns=list(columns))


@contextmanager
def _faults(shown: str) -> Iterator[None]:
    """Say in a sentence that a shard breaks off."""
    try:
        yield
    except (pyarrow().ArrowException, OSError) as fault:
        if isinstance(fault, FileNotFoundError | PermissionError):
            raise InputError(f"{shown} cannot be read: {fault}", hint="may you read it?") from None
        said = str(fault).splitlines()[0] if str(fault) else type(fault).__name__
        raise InputError(f"{shown} is not Parquet, or broken off: {said}", hint=_AGAIN) from None
