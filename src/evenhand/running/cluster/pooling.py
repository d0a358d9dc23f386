"""What is made of several judges' folders: a jury's verdicts or those of levels, in the folder above theirs.

Made verdicts cost nothing, so they are made again after each run and replace those that another rule made.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Sequence

import orjson

from evenhand.core.engine import Answer
from evenhand.core.judge import Orders, Setup
from evenhand.core.jury import JurorOutcomes
from evenhand.core.pair import Pair
from evenhand.running.escalation import EscalationPool
from evenhand.running.jury import JuryPool
from evenhand.store.made import MadeVerdicts
from evenhand.store.shards import (
    OrderRecord,
    Place,
    RunNote,
    ShardRow,
    begin_shards,
    note_run,
    row_name,
    write_shard,
)
from evenhand.store.shards.members import MemberFolder, refuse_asked, said_together
from evenhand.store.shards.writing import JUDGE, PART

FOR_PEOPLE = "for_people.jsonl"  # the pairs that no judge may decide, as a file of pairs
Watcher = Callable[[Pair, JurorOutcomes], None]


def pool_folders(
    folder: Place,
    pool: JuryPool | EscalationPool,
    members: Sequence[MemberFolder],
    *,
    orders: Orders,
    seed: int,
    taken: Callable[[Pair, JurorOutcomes], bool] = lambda _, __: True,
    watch: Watcher = lambda _, __: None,
) -> int:
    """Write what is made of the judges' verdicts; how many pairs. `taken` says which pairs are ready for it."""
    began, count = time.time(), 0
    before = _begin(folder, pool.setup, orders, seed)
    name, waiting = uuid.uuid4().hex[:8], []
    for number, some in enumerate(said_together(members)):
        rows = []
        for pair, outcomes in some:
            if not taken(pair, outcomes):
                continue
            made = pool.made(pair, outcomes)
            rows.append(_row(made))
            waiting += _waiting(made, pool)
            watch(pair, outcomes)
        if rows:
            write_shard(folder, f"{name}-{number:06d}", rows, fingerprint=pool.setup.fingerprint)
        count += len(rows)
    for file in before:  # now that all of it is there anew
        folder.remove(file)
    if waiting:
        folder.write(FOR_PEOPLE, b"".join(waiting))
    elif folder.has(FOR_PEOPLE):
        folder.remove(FOR_PEOPLE)
    note_run(folder, RunNote({"orders": orders, "seed": seed}, began, time.time(), count, 0))
    return count


def _begin(folder: Place, setup: Setup, orders: Orders, seed: int) -> list[str]:
    """Make the folder that of this judge; the files that stand in it already, to be removed in the end."""
    refuse_asked(folder)
    before = folder.names(PART, ".parquet")
    if folder.has(JUDGE) and orjson.loads(folder.read(JUDGE))["fingerprint"] != setup.fingerprint:
        for file in (*before, JUDGE):  # no file may say that another judge's verdicts are this one's
            folder.remove(file)
        before = []
    begin_shards(folder, setup, orders=orders, seed=seed)
    return before


def _row(made: MadeVerdicts) -> ShardRow:
    records = {
        order: OrderRecord(made.keys[order], {one.dimension: one for one in verdicts}, [Answer(made.word)])
        for order, verdicts in made.verdicts.items()
    }
    return ShardRow(made.pair, records)


def _waiting(made: MadeVerdicts, pool: JuryPool | EscalationPool) -> list[bytes]:
    """The pair as a line of a file of pairs, where it waits for people."""
    if isinstance(pool, JuryPool) or not pool.waits(made):
        return []
    pair = made.pair
    fields = {"id": pair.id, "instruction": pair.instruction, "output_1": pair.output_1, "output_2": pair.output_2}
    return [orjson.dumps({**fields, "model_1": pair.model_1, "model_2": pair.model_2}) + b"\n"]


def decided_by(member: MemberFolder, level: int, pool: EscalationPool) -> list[bytes]:
    """The names of the pairs that a level may decide: about those the next level is not asked."""
    return [
        row_name(pair.id, pair.key)
        for rows in member.rows()
        for pair, said in rows
        if pool.decides(level, pair, said)
    ]
