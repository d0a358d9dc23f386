"""Many pairs: read ahead a little, hear several at once if the engine can, keep everything, stream the results.

Memory does not grow with the number of pairs: each queue is bounded, and a pair is forgotten when its judgment
has been taken.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import AsyncGenerator, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field

from evenhand.engines.base import Usage
from evenhand.judge import Judgment, Orders, Setup, hear, orders_of
from evenhand.pairs import Pair
from evenhand.store import COMMIT_SECONDS, Case, Store

# How often to look whether another process is done with a pair that it holds.
_HELD_SECONDS = 0.2
# How many such pairs to put aside before reading on has to wait.
_HELD_PAIRS = 256


@dataclass
class Totals:
    """What a run has done so far."""

    pairs: int = 0
    asked: int = 0
    usage: Usage = field(default_factory=Usage)

    def add(self, judgment: Judgment) -> None:
        """Count one more judgment."""
        self.pairs += 1
        self.asked += judgment.asked
        self.usage += judgment.usage


class Run:
    """A run of one judge over pairs; iterate over it once.

    Judgments come out as they are done. Pairs that another process is at work on are left to it, and taken
    from the store when it is done.
    """

    def __init__(
        self, setup: Setup, pairs: Iterable[Pair], store: Store, *, orders: Orders = "both", seed: int = 0
    ) -> None:
        self.setup, self.store, self.orders, self.seed = setup, store, orders, seed
        self.totals = Totals()
        self._pairs: Iterator[Pair] = iter(pairs)
        self._held: deque[Pair] = deque()
        self._waiting = False  # nothing new can be read now
        self._judge = 0

    async def __aiter__(self) -> AsyncGenerator[Judgment, None]:
        self._judge = self.store.judge(self.setup)
        settings = {"orders": self.orders, "seed": self.seed}
        run = self.store.begin_run(self._judge, settings)
        done: asyncio.Queue[Judgment | None] = asyncio.Queue(maxsize=64)
        workers = asyncio.create_task(self._work(done))
        saving = asyncio.create_task(self._save_in_time())
        try:
            while (judgment := await done.get()) is not None:
                self.totals.add(judgment)
                yield judgment
            await workers  # raises what stopped them
            if saving.done():
                saving.result()  # it only ends by a commit that failed
        finally:
            for task in (workers, saving):
                task.cancel()
                with suppress(asyncio.CancelledError, Exception):
                    await task
            t = self.totals
            self.store.end_run(run, pairs=t.pairs, asked=t.asked, usage=t.usage)

    async def _work(self, done: asyncio.Queue[Judgment | None]) -> None:
        fault: BaseException | None = None
        try:
            async with asyncio.TaskGroup() as group:
                for _ in range(self.setup.engine.concurrency):
                    group.create_task(self._worker(done))
        except BaseExceptionGroup as faults:
            fault = faults.exceptions[0]
        await done.put(None)
        if fault:
            raise fault

    async def _worker(self, done: asyncio.Queue[Judgment | None]) -> None:
        while True:
            case = self._next_case()
            if case is None:
                return
            if case.held:
                self._held.append(case.pair)
                await asyncio.sleep(_HELD_SECONDS if self._waiting else 0)
                continue
            try:
                judgment = await self._judge_case(case)
            finally:
                self.store.release(case)
            await done.put(judgment)

    def _next_case(self) -> Case | None:
        """The next pair of the file; at its end, or with many put aside, the pairs that another process held."""
        pair = next(self._pairs, None) if len(self._held) < _HELD_PAIRS else None
        self._waiting = pair is None
        if pair is None and self._held:
            pair = self._held.popleft()
        if pair is None:
            return None
        keys = {order: self.setup.key(pair, order) for order in orders_of(pair, self.orders, self.seed)}
        return self.store.enter(self._judge, pair, keys, len(self.setup.protocol.asks))

    async def _judge_case(self, case: Case) -> Judgment:
        """Hear a pair; its orders follow each other, so that an engine can reuse what they share."""
        began = time.monotonic()
        hearings = {}
        for order in case.hearings:
            hearings[order] = await hear(self.setup, case.pair, order, case.hearings[order], self.store)
        return Judgment.of(case.pair, hearings, time.monotonic() - began)

    async def _save_in_time(self) -> None:
        while True:
            await asyncio.sleep(COMMIT_SECONDS)
            self.store.flush()
