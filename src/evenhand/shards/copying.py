"""What a database holds of one judge, as a folder of shards."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby, islice
from pathlib import Path
from typing import Any

from evenhand.engines.base import Usage
from evenhand.shards.place import Place
from evenhand.shards.schema import Failure, Heard, Row
from evenhand.shards.writing import RunNote, begin_folder, note_run, write_shard
from evenhand.store import JudgeRow, Store

ROWS = 16_384  # in a shard


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
    """Every pair that a judge has heard, as a row of a shard."""
    said = groupby(store.archive.transcripts(judge.id), key=lambda transcript: transcript.pair)
    for (_, group), judgment in zip(said, store.judgments(judge), strict=True):
        transcripts = list(group)
        orders = {
            t.order: Heard(
                t.key,
                {name: f.orders[t.order] for name, f in judgment.findings.items() if name in judge.dimensions},
                t.answers,
                None if t.failure is None else Failure(*t.failure),
                t.shared,
            )
            for t in transcripts
        }
        yield Row(judgment.pair, orders, round(max(t.ended for t in transcripts), 6))
