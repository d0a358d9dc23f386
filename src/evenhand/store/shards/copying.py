"""What a database holds of one judge, as a folder of shards."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import groupby, islice
from pathlib import Path
from typing import Any

from evenhand.core.engine import Usage
from evenhand.core.judge import Orders
from evenhand.core.verdict import Verdict
from evenhand.store import JudgeRow, Store
from evenhand.store.archive import Transcript
from evenhand.store.shards.place import Place
from evenhand.store.shards.schema import Failure, OrderRecord, ShardRow
from evenhand.store.shards.writing import RunNote, begin_folder, judge_fields, note_run, write_shard

ROWS = 16_384  # in a shard
_UNASKED = "not_asked"


def copy_store(store: Store, judge: JudgeRow, where: str | Path | Place, *, rows: int = ROWS) -> int:
    """Write every pair that a judge has judged into a folder; how many pairs.

    >>> import tempfile
    >>> from evenhand.engines.scripted import ScriptedEngine
    >>> from evenhand.core.judge import Setup
    >>> from evenhand.core.protocol import Protocol
    >>> with Store(":memory:") as store, tempfile.TemporaryDirectory() as folder:
    ...     _ = store.judge(Setup(ScriptedEngine(lambda prompt: "A"), Protocol.load("overall")))
    ...     copy_store(store, store.judges()[0], folder)
    0
    """
    runs = store.archive.runs(judge.id, together=False)
    settings: dict[str, Any] = dict(runs[-1].settings) if runs else {}
    orders: Orders = settings.get("orders", "both")
    place = begin_folder(where, judge_fields(judge, orders=orders, seed=settings.get("seed", 0)))
    count, every = 0, rows_of_store(store, judge)
    while some := list(islice(every, rows)):
        write_shard(place, f"{count // rows:06d}", some, fingerprint=judge.fingerprint)
        count += len(some)
    for group in runs:
        usage = Usage(group.computed, group.reused, group.generated)
        note_run(place, RunNote(group.settings, group.started, group.ended, count, group.asked, usage))
    return count


def rows_of_store(store: Store, judge: JudgeRow) -> Iterator[ShardRow]:
    """Every pair that a judge was given, as a row of a shard; one that has not come to an end has no outcomes."""
    every = groupby(store.archive.transcripts(judge.id), key=lambda transcript: transcript.pair)
    for number, group in every:
        pair, transcripts = store.pages.pair(number), list(group)
        judgment = None if pair is None else store.judgment(judge, number, pair)
        if pair is not None and judgment is not None:
            verdicts = {name: found for name, found in judgment.outcomes.items() if name in judge.dimensions}
            orders = {
                t.order: _record_of(t, {name: found.orders[t.order] for name, found in verdicts.items()})
                for t in transcripts
            }
            ended = any(t.failure for t in transcripts) or all(record.failure is None for record in orders.values())
            yield ShardRow(pair, orders, round(max(t.ended for t in transcripts), 6), ended)


def _record_of(said: Transcript, verdicts: Mapping[str, Verdict]) -> OrderRecord:
    """One conversation; where it was broken off, that is why it is to be tried again."""
    failure = None if said.failure is None else Failure(*said.failure)
    if failure is None and not _has_ended(verdicts.values()):
        failure = Failure(len(said.answers), "stopped")
    return OrderRecord(said.key, verdicts, said.answers, failure, said.shared)


def _has_ended(verdicts: Iterable[Verdict]) -> bool:
    """Whether all questions were answered, or one in a way that could not be read."""
    why = {verdict.invalid for verdict in verdicts}
    return why != {None, _UNASKED} and why != {_UNASKED}
