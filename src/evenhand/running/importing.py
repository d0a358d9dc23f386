"""Verdicts that were made elsewhere, kept in the database as those of a judge of its own.

A judge is what one command imports under one name, protocol and dimension. Its identity names the files and their
hash, so that the same files are the same judge: importing them again changes nothing.
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from itertools import islice

from evenhand.core.engine import NOTHING, Answer
from evenhand.core.errors import InputError, PairError
from evenhand.core.judge import Setup
from evenhand.core.pair import Pair, short_hash
from evenhand.core.protocol import ORDERS, Order
from evenhand.core.verdict import Verdict
from evenhand.engines.imported import IMPORTED, ImportedEngine, imported_protocol
from evenhand.io.pairs import check_pairs, read_pairs
from evenhand.io.pairs.reading import Paths, tables_of
from evenhand.io.pairs.temporary_table import Seen
from evenhand.io.pairs.verdicts import Author, ForeignVerdict, ReadOptions, is_stand_in, read_verdicts
from evenhand.store import Store
from evenhand.store.database import Entry

_BATCH = 500
_OTHER: Mapping[Order, Order] = {"forward": "swapped", "swapped": "forward"}


@dataclass
class ImportedJudge:
    """What was imported of one judge."""

    author: Author
    setup: Setup
    number: int = 0  # in the database
    known: bool = False  # all of it was imported before
    pairs: int = 0
    new: int = 0  # verdicts that were not there before
    invalid: int = 0
    orders: set[Order] = field(default_factory=set)

    def plain(self) -> dict[str, object]:
        """The judge as plain data."""
        return {
            **self.author._asdict(),
            "fingerprint": self.setup.fingerprint,
            "identity": dict(self.setup.engine.identity),
            "pairs": self.pairs,
            "new": self.new,
            "invalid": self.invalid,
            "orders": [order for order in ORDERS if order in self.orders],
        }


@dataclass
class VerdictImport:
    """What an import came to."""

    judges: list[ImportedJudge] = field(default_factory=list)
    without_texts: int = 0  # verdicts on pairs that have stand-in texts
    repeated: int = 0  # verdicts on texts of which the same judge had spoken before, in the same order
    bad: list[PairError] = field(default_factory=list)

    def plain(self) -> dict[str, object]:
        """The import as plain data."""
        return {
            "judges": self.judges,
            "without_texts": self.without_texts,
            "repeated": self.repeated,
            "bad_rows": [str(error) for error in self.bad],
        }


def import_verdicts(
    store: Store, path: Paths, options: ReadOptions | None = None, *, pairs: Paths | None = None
) -> VerdictImport:
    """Read files of verdicts into a store, each judge in them as a judge of its own.

    All is read and checked before any verdict is kept. `pairs` are files with the texts of pairs that the verdicts
    name by id; pairs of the store are found so too.
    """
    options = options or ReadOptions()
    done = VerdictImport()
    authors = Counter(found.author for found in read_verdicts(path, options, done.bad))
    if not authors:
        raise InputError("no verdicts in these files", hint="evenhand import verdicts --help lists what is read")
    if pairs:
        check_pairs(pairs)
        store.add_pairs(read_pairs(pairs))
    for found in read_verdicts(path, options):
        resolve(store, found)
    source = source_of(path, options)
    judges = {author: _judge(author, source) for author in sorted(authors)}
    done.judges = list(judges.values())
    _Writing(store, judges, done).write(read_verdicts(path, options))
    return done


def source_of(path: Paths, options: ReadOptions) -> dict[str, str]:
    """Where verdicts came from: the files' names, a hash of all that is in them, and what was said of them."""
    tables = tables_of(path, "verdicts")
    hashes = []
    for table in tables:
        with table.path.open("rb") as file:
            hashes.append(hashlib.file_digest(file, "sha256").hexdigest())
    one = len(tables) == 1
    found = {
        "file": tables[0].name if one else f"{tables[0].name} and {len(tables) - 1} more",
        "sha256": hashes[0] if one else hashlib.sha256("\n".join(sorted(hashes)).encode()).hexdigest(),
    }
    if options.columns:
        found["columns"] = json.dumps(dict(sorted(options.columns.items())))
    return {**found, "baseline": options.baseline} if options.baseline else found


def _judge(author: Author, source: Mapping[str, str]) -> ImportedJudge:
    engine = ImportedEngine(author.judge, source)
    return ImportedJudge(author, Setup(engine, imported_protocol(author.protocol, author.dimension)))


def resolve(store: Store, found: ForeignVerdict) -> tuple[Pair, Mapping[Order, Verdict], bool]:
    """The pair that a verdict is on, what was said of it, and whether its texts are known.

    A verdict that names an id speaks of the pair of that id in the store; where its models stand the other way
    round there, so do the orders.
    """
    if found.has_texts or not found.named:
        return found.pair, found.orders, found.has_texts
    there = _pairs_named(store, found.pair.id)
    models = found.pair.model_1, found.pair.model_2
    if any(models):
        there = [pair for pair in there if not pair.model_1 or {pair.model_1, pair.model_2} == set(models)]
    if len(there) > 1:
        raise InputError(
            f"several pairs here have the id {found.pair.id!r}", hint="give their texts with the verdicts"
        )
    if there:
        turned = there[0].model_1 == models[1] != models[0] and bool(models[1])
        orders = {_OTHER[order]: said for order, said in found.orders.items()} if turned else found.orders
        return there[0], orders, not is_stand_in(there[0])
    if not all(models):
        raise InputError(
            f"no pair here has the id {found.pair.id!r}", hint="--pairs FILE brings the texts of the pairs"
        )
    return found.pair, found.orders, False


def _pairs_named(store: Store, name: str) -> list[Pair]:
    numbers = [store.archive.number(name, key) for key in store.labels.keys_named(name)]
    found = [store.pages.pair(number) for number in numbers if number is not None]
    pairs = [pair for pair in found if pair is not None]
    return [pair for pair in pairs if not is_stand_in(pair)] or pairs


class _Writing:
    """Verdicts on their way into a store, a few hundred in a transaction."""

    def __init__(self, store: Store, judges: Mapping[Author, ImportedJudge], done: VerdictImport) -> None:
        self._store, self._judges, self._done = store, judges, done
        self._seen = Seen()

    def write(self, verdicts: Iterable[ForeignVerdict]) -> None:
        """Keep them all, and a run of each judge that is new."""
        for judge in self._judges.values():
            judge.number = self._store.judge(judge.setup)
            judge.known = self._store.is_finished(IMPORTED, judge.number, IMPORTED)
        waiting = iter(verdicts)
        while some := list(islice(waiting, _BATCH)):
            for author in dict.fromkeys(found.author for found in some):
                self._enter(self._judges[author], [found for found in some if found.author == author])
        for judge in self._judges.values():
            if not judge.known:
                self._note(judge)

    def _note(self, judge: ImportedJudge) -> None:
        """Note a run, and that all of these files is there: texts that turn up later make no second verdict."""
        orders = "both" if len(judge.orders) > 1 else next(iter(judge.orders))
        run = self._store.begin_run(judge.number, {"orders": orders, "seed": 0})
        self._store.end_run(run, pairs=judge.pairs, asked=0, usage=NOTHING)
        self._store.note_finished(IMPORTED, judge.number, IMPORTED)

    def _enter(self, judge: ImportedJudge, some: list[ForeignVerdict]) -> None:
        ready = [self._counted(judge, found) for found in some]
        if judge.known:
            return
        keys = [(pair, {order: judge.setup.key(pair, order) for order in said}) for pair, said in ready]
        jobs = self._store.enter(judge.number, 1, keys)
        entries: dict[int, Entry] = {}
        for job, (_, said) in zip(jobs, ready, strict=True):
            for order, verdict in said.items():
                number = job.conversations[order]
                if number not in job.begun:
                    entries.setdefault(number, Entry(number, 0, Answer(verdict.raw), [verdict]))
        if entries:
            self._store.record_all(list(entries.values()))
        judge.new += len(entries)

    def _counted(self, judge: ImportedJudge, found: ForeignVerdict) -> tuple[Pair, Mapping[Order, Verdict]]:
        pair, said, has_texts = resolve(self._store, found)
        judge.pairs += self._is_new(judge, pair, "pair")  # each order may have a row of its own
        if any(verdict.label is None for verdict in said.values()):
            judge.invalid += self._is_new(judge, pair, "invalid")
        judge.orders |= set(said)
        self._done.without_texts += not has_texts
        self._done.repeated += self._repeats(judge, pair, said)
        return pair, said

    def _is_new(self, judge: ImportedJudge, pair: Pair, what: str) -> bool:
        return self._seen.add(short_hash(f"{judge.number} {what} {pair.key} {pair.id}"))

    def _repeats(self, judge: ImportedJudge, pair: Pair, said: Iterable[Order]) -> bool:
        new = [self._seen.add(short_hash(f"{judge.number} {judge.setup.key(pair, order)}")) for order in said]
        return not any(new)
