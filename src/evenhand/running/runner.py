"""Many pairs: read ahead a little, judge several at once if the engine can, keep everything, stream the results.

Memory does not grow with the number of pairs: each queue is bounded, and a pair is forgotten when its judgment
has been taken.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import AsyncGenerator, Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import islice
from typing import Protocol

from evenhand.core.engine import Answer, Usage
from evenhand.core.errors import EngineError, InputError, StoreError
from evenhand.core.judge import Conversation, Judgment, Orders, Setup, hold_conversation, orders_of
from evenhand.core.pair import Pair
from evenhand.core.protocol import Order
from evenhand.core.verdict import Verdict
from evenhand.engines.provenance import noting
from evenhand.engines.versions import versions_of
from evenhand.running.pace import Limits, Pace
from evenhand.running.prices import Price
from evenhand.running.settling import Settling
from evenhand.store import Entry, Job, Store

# How often to look whether another process is done with a pair that it holds.
_HELD_SECONDS = 0.2
# How long to wait for others without a word, and how often to say it after that.
_FIRST_REPORT_SECONDS = 2.0
_REPORT_SECONDS = 30.0
# How often to say that this process is still at work on what it has claimed.
_RENEW_SECONDS = 20.0
# How many such pairs to put aside before reading on has to wait.
_HELD_PAIRS = 256
# How many pairs to enter in the store in one transaction, where so many can be asked at once.
_TOGETHER = 64
# How many pairs to look up at once where the last ones were all in the store already.
_LOOKED_UP = 256
# How long an answer may wait for others that are arriving just now, to be written together with them.
_GATHER_SECONDS = 0.02
# How many judgments may wait to be taken before no other pair is begun.
_READY = 64
# How many texts a plan remembers: what a head has just read of one pair it need not read of the next.
_REMEMBERED = 4096


@dataclass
class Totals:
    """What a run has done so far."""

    pairs: int = 0
    asked: int = 0
    usage: Usage = field(default_factory=Usage)

    def add(self, answer: Answer) -> None:
        """Count one more answer, whether or not its pair is ever judged to the end: it has been paid for."""
        self.asked += 1
        self.usage += answer.usage


class Line(Protocol):
    """Where pairs stand whose judgments are counted in the order of the draw, until they are enough."""

    dimension: str

    @property
    def met(self) -> bool:
        """Whether they are enough."""

    @property
    def seen(self) -> int:
        """How many judgments have been looked at."""

    def before(self, pair: Pair) -> int:
        """How many that were drawn before this pair are not counted yet."""


class Run:
    """A run of one judge over pairs; iterate over it once.

    Judgments come out as they are done. Pairs that another process is at work on are left to it, and taken
    from the store when it is done. With a `line` that may end at any pair, no pair is begun so early that more
    than are asked at once can turn out not to be needed, and none while judgments out of the store wait to be seen.
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
        line: Line | None = None,
        pace: Pace | None = None,  # one that has learnt already how fast to ask
        words: bool = True,  # whether what was kept comes out with what the judge said
        on_wait: Callable[[str], None] | None = None,  # told for whom the run waits
    ) -> None:
        self._on_wait, self._reported_waiting = on_wait, time.monotonic() - _REPORT_SECONDS + _FIRST_REPORT_SECONDS
        self.setup, self.store, self.orders, self.seed = setup, store, orders, seed
        self.pace = pace or Pace(setup.engine, limits or Limits(), price, seed=seed)
        self.totals = Totals()
        self._stopping = False
        self._words = words
        self._pairs: Iterator[Pair] = iter(pairs)
        self._held: deque[Pair] = deque()
        self._entered: deque[Job] = deque()
        self._waiting = False  # nothing new can be read now
        self._kept = 0  # how many pairs were looked up last, if all of them were in the store
        self._judge = 0
        self._line, self._taken, self._finished = line, asyncio.Event(), asyncio.Event()
        self._handed = self._handed_kept = 0  # judgments put out, and how many there were after the last kept one

    async def __aiter__(self) -> AsyncGenerator[Judgment, None]:
        self._judge = self.store.judge(self.setup)
        if self.store.judge_book.has_answered(self._judge):
            self.setup.engine.note_answered()
        self.pace.begin()
        versions = versions_of(self.setup.engine.identity)
        settings = {"orders": self.orders, "seed": self.seed, **versions}
        if self._line is not None:
            settings["until_decided"] = self._line.dimension
        run = self.store.begin_run(self._judge, settings)
        last_pair = self.store.judge_book.last_pair()
        self._outbox = _Outbox()
        self._batch_writer = _BatchWriter(self.store, self.totals)
        self._settling = Settling(self._put, self._take_back)
        workers = asyncio.create_task(self._work())
        renewing = asyncio.create_task(self._renew())
        try:
            async for judgment in self._outbox:
                self.totals.pairs += 1
                yield judgment
                self._taken.set()  # wakes who waits now
                self._taken.clear()
            await workers  # raises what stopped them
        finally:
            renewing.cancel()
            if not workers.done():  # awaited a second time, a fault would lose the places it came from
                workers.cancel()
                with suppress(asyncio.CancelledError, Exception):
                    await workers
            self._batch_writer.write()  # answers whose workers were told to stop
            self._settling.stop()
            for job in self._entered:  # claimed and never begun
                self.store.release(job)
            t = self.totals
            decided = self._line is not None and self._line.met
            self.store.end_run(run, pairs=t.pairs, asked=t.asked, usage=t.usage, decided=decided)
            if not t.asked:  # no key, nobody there, an unknown model: nothing of it stays
                self.store.judge_book.forget_silent(self._judge, run, last_pair)

    async def _renew(self) -> None:
        """Keep this run's claims fresh; should that fail once, the next time is early enough."""
        while True:
            await asyncio.sleep(_RENEW_SECONDS)
            with suppress(StoreError):
                self.store.renew()

    def stop(self) -> None:
        """Begin no other pair; what is under way is brought to its end."""
        self._stopping = True

    def take_ready(self, most: int) -> list[Judgment]:
        """Judgments that are ready now, without waiting; for code that iterates over the run."""
        taken = self._outbox.take(most)
        self.totals.pairs += len(taken)
        return taken

    async def _work(self) -> None:
        fault: BaseException | None = None
        try:
            while True:
                async with asyncio.TaskGroup() as group:
                    for _ in range(self.pace.most):
                        group.create_task(self._worker())
                await self._settling.wait()
                if not self._held or self._stopping:  # nothing was taken back
                    break
        except BaseExceptionGroup as faults:
            fault = faults.exceptions[0]
        self._outbox.end()
        if fault:
            raise fault

    async def _worker(self) -> None:
        while (job := await self._next_job()) is not None:
            if job.held:
                self._held.append(job.pair)
                self._report_waiting()
                await asyncio.sleep(_HELD_SECONDS if self._waiting else 0)
                continue
            with noting() as records, self.pace.promised(self._requests_of(job)):
                try:
                    judgment = await self._judge_job(job)
                finally:
                    self.store.release(job)
            self._finished.set()  # wakes who waits now
            self._finished.clear()
            self._settling.add(judgment, job, records)

    def _report_waiting(self) -> None:
        """Once a run has nothing to do but wait for others, say for whom."""
        now = time.monotonic()
        if not self._waiting or self._on_wait is None or now - self._reported_waiting < _REPORT_SECONDS:
            return
        self._reported_waiting = now
        who = ", ".join(name for name, _ in self.store.holders()[:3]) or "this run's own pairs"
        left = len(self._held)
        self._on_wait(f"waiting for {who}: {left:,} {'pair is' if left == 1 else 'pairs are'} under way there")

    def _take_back(self, job: Job, again: bool) -> None:
        """Forget answers that may be those to other prompts, and perhaps ask again."""
        self.store.take_back(self._judge, set(job.conversations.values()))
        if again:
            self._held.append(job.pair)
            self._taken.set()  # who waits for the line to move has something to do
            self._taken.clear()

    def _put(self, *judgments: Judgment) -> None:
        self._outbox.put(*judgments)
        self._handed += len(judgments)

    async def _next_job(self) -> Job | None:
        """The next pair that needs the engine; None when there is nothing more to begin."""
        while not self._stopping:
            if self._entered and not self.pace.has_room_for(self._requests_of(self._entered[0])):
                await self._finished.wait()
                continue
            if self._entered and not self._is_early(self._entered[0].pair):
                return self._entered.popleft()
            if self._entered:
                await self._line_to_move()
                continue
            await self._outbox.room()
            if not self._entered and not self._read_on(self._next_pairs()):
                return None
        return None

    def _requests_of(self, job: Job) -> int:
        """How many requests a pair takes at most, if none is made twice."""
        return len(set(job.conversations.values())) * len(self.setup.protocol.questions)

    def _is_early(self, pair: Pair) -> bool:
        """Whether the line may end before this pair without anybody knowing it yet."""
        line = self._line
        return line is not None and (line.seen < self._handed_kept or line.before(pair) >= self.pace.level)

    async def _line_to_move(self) -> None:
        """Wait until a judgment has been taken; the line may also wait for a pair that another process held."""
        if not self._held:
            await self._taken.wait()
            return
        await asyncio.sleep(_HELD_SECONDS)
        if self._held and not self._stopping:
            waiting = len(self._entered)
            self._read_on([self._held.popleft()])
            self._entered.rotate(len(self._entered) - waiting)  # it goes first, unless it came out of the store

    def _read_on(self, found: Sequence[Pair]) -> bool:
        """Look up some pairs in the store, hand out those that are done, and enter the others."""
        pairs = [(pair, orders_of(pair, self.orders, self.seed)) for pair in found]
        began = time.monotonic()
        questions = [question.dimensions for question in self.setup.protocol.questions]
        new, done = [], []
        kept = self.store.kept(self._judge, questions, pairs, words=self._words)
        for (pair, orders), conversations in zip(pairs, kept, strict=True):
            if conversations is None:
                new.append((pair, {order: self.setup.key(pair, order) for order in orders}))
            else:
                done.append(Judgment.of(pair, conversations, time.monotonic() - began))
        if done:
            self._put(*done)
            self._handed_kept = self._handed
        jobs = self.store.enter(self._judge, len(questions), new)
        if any(job.in_batch for job in jobs):
            for job in jobs:
                self.store.release(job)
            raise _in_batch()
        self._entered.extend(jobs)
        self._kept = 0 if new else len(pairs)
        return bool(pairs)

    def _next_pairs(self) -> list[Pair]:
        """What is next in the file; at its end, or with many put aside, a pair that another process held.

        Only a few at a time, so that nothing is read, and no other process kept from it, long before its turn.
        Where the last few were all done already, twice as many.
        """
        few = min(_TOGETHER, self.pace.level)
        room = min(max(few, min(2 * self._kept, _LOOKED_UP)), _HELD_PAIRS - len(self._held))
        pairs = list(islice(self._pairs, max(room, 0)))
        self._waiting = not pairs
        if not pairs and self._held:
            pairs = [self._held.popleft()]
        return pairs

    async def _judge_job(self, job: Job) -> Judgment:
        """Judge a pair; its orders follow each other, so that an engine can reuse what they share."""
        began = time.monotonic()
        conversations: dict[Order, Conversation] = {}
        begun = set(job.begun)
        for order, number in job.conversations.items():
            kept = self.store.answers(number) if number in begun else ()
            begun.add(number)  # two equal responses are the same conversation in both orders
            conversations[order] = await hold_conversation(
                self.setup, job.pair, order, number, kept, self._batch_writer, self.pace.ask
            )
        return Judgment.of(job.pair, conversations, time.monotonic() - began)


def _in_batch() -> InputError:
    """Asking now would pay for the same answer twice."""
    return InputError(
        "some of these questions are in a batch that is under way",
        hint="add --batch to wait for it; or evenhand batches cancel, and then --batch once more",
    )


class _BatchWriter:
    """Keeps answers in groups: those that follow each other closely are one transaction.

    A fast server's answers come many at a time, and a transaction costs more than all that it holds; a slow
    server's come one by one, and none waits for another. The caller waits until its answer is durable and asks
    nothing before that, so that a kill costs no more than what was under way.
    """

    def __init__(self, store: Store, totals: Totals) -> None:
        self._store, self._totals = store, totals
        self._entries: list[Entry] = []
        self._durable: list[asyncio.Future[None]] = []
        self._since = 0.0  # when the first of them came

    async def record(self, conversation: int, question: int, answer: Answer, verdicts: Sequence[Verdict]) -> None:
        """Keep an answer and what was read off it, durable when this returns."""
        loop = asyncio.get_running_loop()
        if not self._entries:
            self._since = time.monotonic()
            loop.call_soon(self._gather, loop, 0)
        durable = loop.create_future()
        self._totals.add(answer)
        self._entries.append(Entry(conversation, question, answer, verdicts))
        self._durable.append(durable)
        await durable

    def _gather(self, loop: asyncio.AbstractEventLoop, seen: int) -> None:
        """Write as soon as a turn of the event loop brings nothing new, and soon in any case."""
        if len(self._entries) > seen and time.monotonic() - self._since < _GATHER_SECONDS:
            loop.call_soon(self._gather, loop, len(self._entries))
        else:
            self.write()

    def fail(self, conversation: int, question: int, error: EngineError) -> None:
        """Keep a failure; an answer that came before it is kept first, since answers make failures forgotten."""
        self.write()
        self._store.fail(conversation, question, error)

    def write(self) -> None:
        """Write what is there; a failure is raised where somebody waits for it."""
        entries, durable = self._entries, self._durable
        if not entries:
            return
        self._entries, self._durable = [], []
        fault: Exception | None = None
        try:
            self._store.record_all(entries)
        except Exception as error:
            fault = error
        for future in durable:
            if future.done():
                continue  # cancelled
            if fault is None:
                future.set_result(None)
            else:
                future.set_exception(fault)


class _Outbox:
    """Judgments on their way out, of which only so many may wait."""

    def __init__(self) -> None:
        self._ready: deque[Judgment] = deque()
        self._ended = False
        self._filled, self._room = asyncio.Event(), asyncio.Event()
        self._room.set()

    def put(self, *judgments: Judgment) -> None:
        """Hand out a judgment; the number is bounded by those who wait for `room` before they begin a pair."""
        self._ready.extend(judgments)
        if judgments:
            self._filled.set()
        if len(self._ready) >= _READY:
            self._room.clear()

    def take(self, most: int) -> list[Judgment]:
        """Those that are there, up to so many."""
        taken = [self._ready.popleft() for _ in range(min(most, len(self._ready)))]
        if len(self._ready) < _READY:
            self._room.set()
        return taken

    def end(self) -> None:
        """No more will come."""
        self._ended = True
        self._filled.set()

    async def room(self) -> None:
        """Wait until judgments have been taken; another waiter may have filled the room again by then."""
        while not self._room.is_set():
            await self._room.wait()

    async def __aiter__(self) -> AsyncGenerator[Judgment, None]:
        while True:
            await self._filled.wait()
            while self._ready:
                if len(self._ready) <= _READY:
                    self._room.set()
                yield self._ready.popleft()
            if self._ended:
                return
            self._filled.clear()


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
    >>> from evenhand.core.protocol import Protocol
    >>> setup = Setup(ScriptedEngine(lambda prompt: "A"), Protocol.load("chained"))
    >>> plan(setup, [Pair("Hi", "x", "y")], Store(":memory:")).requests
    8
    """
    found, questions = Plan(), setup.protocol.questions
    read: dict[int, None] = {}
    for pair in pairs:
        found.pairs += 1
        keys = {order: setup.key(pair, order) for order in orders_of(pair, orders, seed)}
        to_come = store.questions_left(keys.values(), len(questions))
        for order, key in keys.items():
            left = to_come[key]
            found.kept += len(questions) - left
            for number in range(len(questions) - left, len(questions)):
                prompt = setup.protocol.prompt(pair, order, number, ["A"] * number)
                found.requests += 1
                found.labels += prompt.verdicts
                for text in setup.engine.read_for(prompt):
                    if hash(text) not in read:
                        found.characters += len(text)
                        read[hash(text)] = None
        while len(read) > _REMEMBERED:
            del read[next(iter(read))]
    return found
