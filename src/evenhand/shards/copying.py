"""What a database holds of one judge, as a folder of shards."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import groupby, islice
from pathlib import Path
from typing import Any

from evenhand.engines.base import Usage
from evenhand.shards.place import Place
from evenhand.shards.schema import Failure, Heard, Row
from evenhand.shards.writing import RunNote, begin_folder, note_run, write_shard
from evenhand.store import JudgeRow, Store
from evenhand.store.archive import Transcript
from evenhand.verdict import Verdict

ROWS = 16_384  # in a shard
_UNASKED = "not_asked"


def copy_store(store: Store, judge: JudgeRow, where: str | Path | Place, *, rows: int = ROWS) -> int:
    """Write every pair that a judge has heard into a folder; how many pairs.

    >>> import tempfile
    >>> from evenhand.engines.scripted import ScriptedEngine
    >>> from evenhand.judge import Setup
    >>> from evenhand.protocol import Protocol
    >>> with Store(":memory:") as store, tempfile.TemporaryDirectory() as folder:
    ...     _ = store.judge(Setup(ScriptedEngine(lambda prompt: "A"), Protocol.load("overall")))
    ...     copy_store(store, store.judges()[0], folder)
    0
    """
    runs = store.archive.runs(judge.id, together=False)
    settings: dict[str, Any] = dict(runs[-1].settings) if runs else {}
    place = begin_folder(where, _facts(judge, settings))
    count, every = 0, rows_of_store(store, judge)
    while some := list(islice(every, rows)):
        write_shard(place, f"{count // rows:06d}", some, fingerprint=judge.fingerprint)
        count += len(some)
    for group in runs:
        usage = Usage(group.computed, group.reused, group.generated)
        note_run(place, RunNote(group.settings, group.started, group.ended, count, group.asked, usage))
    return count


def _facts(judge: JudgeRow, settings: dict[str, Any]) -> dict[str, Any]:
    return {
        "fingerprint": judge.fingerprint,
        "model": judge.model,
        "identity": dict(judge.identity),
        "protocol": judge.protocol,
        "template": judge.template,
        "dimensions": list(judge.dimensions),
        "raw_markup": judge.raw_markup,
        "orders": settings.get("orders", "both"),
        "seed": settings.get("seed", 0),
    }


def rows_of_store(store: Store, judge: JudgeRow) -> Iterator[Row]:
    """Every pair that a judge was given, as a row of a shard; one that has not come to an end has no outcomes."""
    every = groupby(store.archive.transcripts(judge.id), key=lambda transcript: transcript.pair)
    for number, group in every:
        pair, transcripts = store.pages.pair(number), list(group)
        judgment = None if pair is None else store.judgment(judge, number, pair)
        if pair is not None and judgment is not None:
            verdicts = {name: found for name, found in judgment.outcomes.items() if name in judge.dimensions}
            orders = {
                t.order: _heard(t, {name: found.orders[t.order] for name, found in verdicts.items()})
                for t in transcripts
            }
            ended = any(t.failure for t in transcripts) or all(heard.failure is None for heard in orders.values())
            yield Row(pair, orders, round(max(t.ended for t in transcripts), 6), ended)


def _heard(said: Transcript, verdicts: Mapping[str, Verdict]) -> Heard:
    """One conversation; where it was broken off, that is why it is to be tried again."""
    failure = None if said.failure is None else Failure(*said.failure)
    if failure is None and not _has_ended(verdicts.values()):
        failure = Failure(len(said.answers), "stopped")
    return Heard(said.key, verdicts, said.answers, failure, said.shared)


def _has_ended(verdicts: Iterable[Verdict]) -> bool:
    """Whether all questions were answered, or one in a way that could not be read."""
    why = {verdict.invalid for verdict in verdicts}
    return why != {None, _UNASKED} and why != {_UNASKED}
