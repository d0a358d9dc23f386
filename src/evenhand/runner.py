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
from itertools import islice

from evenhand.engines.base import Usage
from evenhand.judge import Judgment, Orders, Setup, hear, orders_of
from evenhand.pace import Limits, Pace
from evenhand.pairs import Pair
from evenhand.prices import Price
from evenhand.protocol import Order
from evenhand.store import Case, Store

# How often to look whether another process is done with a pair that it holds.
_HELD_SECONDS = 0.2
# How many such pairs to put aside before reading on has to wait.
_HELD_PAIRS = 256
# How many pairs to enter in the store in one transaction, where so many can be asked at once.
_TOGETHER = 32


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
        self,
        setup: Setup,
        pairs: Iterable[Pair],
        store: Store,
        *,
        orders: Orders = "both",
        seed: int = 0,
        limits: Limits | None = None,
        price: Price | None = None,
    ) -> None:
        self.setup, self.store, self.orders, self.seed = setup, store, orders, seed
        self.pace = Pace(setup.engine, limits or Limits(), price, seed=seed)
        self.totals = Totals()
        self._stopping = False
        self._pairs: Iterator[Pair] = iter(pairs)
        self._held: deque[Pair] = deque()
        self._entered: deque[Case] = deque()
        self._waiting = False  # nothing new can be read now
        self._judge = 0

    async def __aiter__(self) -> AsyncGenerator[Judgment, None]:
        self._judge = self.store.judge(self.setup)
        settings = {"orders": self.orders, "seed": self.seed}
        run = self.store.begin_run(self._judge, settings)
        done: asyncio.Queue[Judgment | None] = asyncio.Queue(maxsize=64)
        workers = asyncio.create_task(self._work(done))
        try:
            while (judgment := await done.get()) is not None:
                self.totals.add(judgment)
                yield judgment
            await workers  # raises what stopped them
        finally:
            if not workers.done():  # awaited a second time, a fault would lose the places it came from
                workers.cancel()
                with suppress(asyncio.CancelledError, Exception):
                    await workers
            for case in self._entered:  # claimed and never begun
                self.store.release(case)
            t = self.totals
            self.store.end_run(run, pairs=t.pairs, asked=t.asked, usage=t.usage)

    def stop(self) -> None:
        """Begin no other pair; what is under way is brought to its end."""
        self._stopping = True

    async def _work(self, done: asyncio.Queue[Judgment | None]) -> None:
        fault: BaseException | None = None
        try:
            async with asyncio.TaskGroup() as group:
                for _ in range(self.pace.most):
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
        """The next pair, entered in the store together with the few that follow it."""
        if not self._entered and not self._stopping:
            asks = len(self.setup.protocol.asks)
            self._entered.extend(self.store.enter(self._judge, asks, map(self._keyed, self._next_pairs())))
        return self._entered.popleft() if self._entered else None

    def _next_pairs(self) -> list[Pair]:
        """What is next in the file; at its end, or with many put aside, a pair that another process held."""
        room = min(_TOGETHER, self.pace.level, _HELD_PAIRS - len(self._held))
        pairs = list(islice(self._pairs, max(room, 0)))
        self._waiting = not pairs
        if not pairs and self._held:
            pairs = [self._held.popleft()]
        return pairs

    def _keyed(self, pair: Pair) -> tuple[Pair, dict[Order, str]]:
        return pair, {order: self.setup.key(pair, order) for order in orders_of(pair, self.orders, self.seed)}

    async def _judge_case(self, case: Case) -> Judgment:
        """Hear a pair; its orders follow each other, so that an engine can reuse what they share."""
        began = time.monotonic()
        hearings = {}
        for order in case.hearings:
            number = case.hearings[order]
            hearings[order] = await hear(self.setup, case.pair, order, number, self.store, self.pace.ask)
        return Judgment.of(case.pair, hearings, time.monotonic() - began)


@dataclass
class Plan:
    """What a run would take, by a look at the store and at the lengths of the texts; nobody is asked."""

    pairs: int = 0
    requests: int = 0
    kept: int = 0  # answers that are in the store already
    characters: int = 0  # of the prompts that would be sent
    labels: int = 0  # that would be generated

    @property
    def usage(self) -> Usage:
        """About how many tokens that is, at four characters to a token and with nothing cached."""
        return Usage(computed=self.characters // 4, generated=self.labels)


def plan(setup: Setup, pairs: Iterable[Pair], store: Store, *, orders: Orders = "both", seed: int = 0) -> Plan:
    """Count what a run would ask.

    >>> from evenhand.engines.scripted import ScriptedEngine
    >>> from evenhand.protocol import Protocol
    >>> setup = Setup(ScriptedEngine(lambda prompt: "A"), Protocol.load("chained"))
    >>> plan(setup, [Pair("Hi", "x", "y")], Store(":memory:")).requests
    8
    """
    found, asks = Plan(), setup.protocol.asks
    for pair in pairs:
        found.pairs += 1
        for order in orders_of(pair, orders, seed):
            left = store.asks_left(setup.key(pair, order), len(asks))
            found.kept += len(asks) - left
            for number in range(len(asks) - left, len(asks)):
                prompt = setup.protocol.prompt(pair, order, number, ["A"] * number)
                found.requests += 1
                found.characters += sum(len(turn.text) for turn in prompt.turns)
                found.labels += prompt.verdicts
    return found
