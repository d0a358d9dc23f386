"""A run of one judge over pairs in batches: sent, waited for and taken in, until nothing is left to ask.

A question that stands on the answer to another one goes into a later batch. A run may be stopped at any moment; the
batches stay at the service, and the next run takes them in.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice

from evenhand.core.engine import Answer, Usage
from evenhand.core.errors import EngineError, StoreError
from evenhand.core.judge import Judgment, Orders, Setup, next_question, orders_of
from evenhand.core.pair import Pair
from evenhand.core.protocol import Prompt
from evenhand.core.verdict import read_answer
from evenhand.engines.batches.client import BatchService
from evenhand.engines.batches.service import BatchStatus, RefusedBatch
from evenhand.engines.versions import versions_of
from evenhand.running.batches.collector import BatchCollector
from evenhand.running.batches.draft import Draft, name_of
from evenhand.running.batches.sender import BatchSender, Notice, patiently, pause
from evenhand.running.pace import BudgetError, Limits, Pace, guess_tokens
from evenhand.running.prices import Price
from evenhand.running.runner import Totals
from evenhand.store import BatchItem, BatchRow, Entry, Job, Store
from evenhand.store.batches import UNSETTLED

FIRST_POLL, LONGEST_POLL = 1.0, 60.0  # seconds between two looks at the batches
_SLOWER = 1.5
_RENEW_SECONDS = 20.0
_PAIRS_AT_ONCE = 256
_MOST_FAILED_TRIES = 5  # of single questions before the first batch
_MOST_REFUSALS = 6  # of batches that are too large for the account, one after the other


@dataclass(frozen=True, slots=True)
class BatchProgress:
    """What is at the service now."""

    batches: int
    requests: int
    done: int  # requests that are computed
    words: tuple[str, ...]  # the service's own for how far each batch is


class BatchRun:
    """All pairs that `read` gives, judged in batches; it is called once for each round.

    `totals` and `cost` grow with the answers. After `settle`, `detached` says that batches are still under way,
    `stopped` why the run ended early, and `judgments` gives what came of the pairs.
    """

    def __init__(
        self,
        setup: Setup,
        read: Callable[[], Iterable[Pair]],
        store: Store,
        service: BatchService,
        *,
        orders: Orders = "both",
        seed: int = 0,
        limits: Limits | None = None,
        price: Price | None = None,
        detach: bool = False,
        on_notice: Notice = lambda _: None,
        on_progress: Callable[[BatchProgress], None] = lambda _: None,
    ) -> None:
        self.setup, self.store, self.service = setup, store, service
        self._read, self._orders, self._seed = read, orders, seed
        self._limits, self._price = limits or Limits(), price
        self._pace = Pace(service.engine, Limits(max_cost=self._limits.max_cost), price, seed=seed)
        self._detach, self._notice, self._on_progress = detach, on_notice, on_progress
        self.totals, self.cost = Totals(), 0.0
        self.detached, self.stopped = False, ""
        self._book = store.batches
        self._judge = 0
        self._most = service.most_requests
        self._requests = 0  # sent by this run
        self._added = 0  # in this round
        self._estimates: dict[int, float] = {}  # what batches that are under way will cost
        self._tried = False  # whether the service has answered a question in the ordinary way
        self._elsewhere = 0  # pairs that another process is at work on
        self._refusals, self._crowded = 0, False
        self._renewed = time.monotonic()

    async def settle(self) -> None:
        """Bring everything to its end, or as far as it goes without waiting where that was asked for."""
        self.store.flush_each()  # what is sent is paid for, so that a power cut must not lose the note of it
        self._judge = self.store.judge(self.setup)
        self._book.take(self._judge)
        last_pair = self.store.judge_book.last_pair()
        versions = versions_of(self.setup.engine.identity)
        settings = {"orders": self._orders, "seed": self._seed, "batch": self.service.name, **versions}
        run = self.store.begin_run(self._judge, settings)
        self._sender = BatchSender(self.service, self.store, self._judge, self._notice)
        self._collector = BatchCollector(self.service, self.store, self.setup, self._count)
        try:
            await self._rounds()
        finally:
            self._end(run, last_pair)

    def _end(self, run: int, last_pair: int) -> None:
        totals = self.totals
        self.store.end_run(run, pairs=0, asked=totals.asked, usage=totals.usage)
        self._book.leave(self._judge)
        if not totals.asked and not self.open():
            self.store.judge_book.forget_silent(self._judge, run, last_pair)

    def open(self) -> list[BatchRow]:
        """The batches of this judge that are not settled."""
        return self._book.rows(self._judge, UNSETTLED)

    def judgments(self) -> Iterator[Judgment]:
        """What came of each pair that is at its end."""
        pairs = iter(self._read())
        while some := list(islice(pairs, _PAIRS_AT_ONCE)):
            for judgment in self.store.judgments_of(self._judge, self.setup, some):
                if judgment is not None:
                    self.totals.pairs += 1
                    yield judgment

    # -- rounds ----------------------------------------------------------------------------------

    async def _rounds(self) -> None:
        lessons = self._book.lessons(self._judge)
        if lessons is not None:
            self.service.remember(lessons)
            self._tried = True
        await self._sender.recover()
        await self._look()
        while True:
            sent = await self._sweep() if not (self._collector.cancelled or self._crowded) else 0
            waiting = self.open()
            if waiting and self._detach:
                self.detached = True
                return
            if waiting:
                await self._wait()
            elif self._crowded:
                self._crowded = False
                await pause(self._refusals + 3)
            elif not sent and self._elsewhere:
                await asyncio.sleep(1.0)
            elif not sent:
                return

    async def _wait(self) -> None:
        """Until at least one batch has ended."""
        delay = FIRST_POLL
        while self.open():
            await asyncio.sleep(delay)
            self._renew()
            delay = min(LONGEST_POLL, delay * _SLOWER)
            if await self._look():
                return

    async def _look(self) -> int:
        """Look at every batch that is under way, and take in those that have ended; how many they are."""
        ended, found = 0, list[BatchStatus]()
        for row in self._book.rows(self._judge, ("open",)):
            status = await patiently(lambda row=row: self.service.status(row.remote), self._notice, None)  # type: ignore[misc]
            found.append(status)
            if status.phase != "waiting":
                ended += 1
                await self._take_in(row, status)
        if found:
            totals = sum(status.total for status in found), sum(status.done for status in found)
            self._on_progress(BatchProgress(len(found), *totals, tuple(status.word for status in found)))
        return ended

    async def _take_in(self, row: BatchRow, status: BatchStatus) -> None:
        if status.phase == "refused":
            self._refused(row, status)
            return
        self._estimates.pop(row.id, None)
        self._refusals, self._crowded = 0, False
        if not await patiently(lambda: self._collector.collect(row, status), self._notice):
            await self._sender.find(self._book.row(row.id))
        if self._collector.fatal is not None:
            raise self._collector.fatal
        if self._collector.cancelled:
            self.stopped = f"a batch was cancelled at {self.service.name}"

    def _refused(self, row: BatchRow, status: BatchStatus) -> None:
        """Nothing of a batch was computed; where it was too large for the account, smaller ones are sent."""
        self._book.close(row.id, "failed")
        self._requests -= row.requests if self._estimates.pop(row.id, None) is not None else 0
        message = f"{self.service.name} refused a batch of {row.requests:,} requests: {status.why}"
        self._refusals += 1
        if not status.too_many or self._refusals >= _MOST_REFUSALS:
            raise RefusedBatch(message)
        self._most, self._crowded = max(1, min(self._most, row.requests // 2)), True
        self._notice(f"{message}; sending smaller ones")

    def _renew(self) -> None:
        if time.monotonic() - self._renewed > _RENEW_SECONDS:
            self._renewed = time.monotonic()
            with suppress(StoreError):
                self.store.renew()
                self._book.renew(self._judge)

    # -- sending ---------------------------------------------------------------------------------

    async def _sweep(self) -> int:
        """Put every question that can be asked now into batches; how many there are."""
        self._added, self._elsewhere, self.stopped = 0, 0, ""
        self._draft = Draft(self.service, self._most)
        try:
            pairs = iter(self._read())
            while not self.stopped and (some := list(islice(pairs, _PAIRS_AT_ONCE))):
                for job in self._enter(some):
                    await self._add_job(job)
                self._renew()
                await asyncio.sleep(0)  # where an interrupt is noticed
            if self._draft.items:
                await self._send()
        finally:
            self._draft.close()
            self.store.release_conversations(item.conversation for item in self._draft.items)
        return self._added

    def _enter(self, found: Sequence[Pair]) -> list[Job]:
        pairs = [(pair, orders_of(pair, self._orders, self._seed)) for pair in found]
        questions = [question.dimensions for question in self.setup.protocol.questions]
        kept = self.store.kept(self._judge, questions, pairs, words=False)
        new = [
            (pair, {order: self.setup.key(pair, order) for order in orders})
            for (pair, orders), conversations in zip(pairs, kept, strict=True)
            if conversations is None
        ]
        return self.store.enter(self._judge, len(questions), new)

    async def _add_job(self, job: Job) -> None:
        """Put the open questions of a pair into the draft; what is not put in is let go."""
        if job.held:
            own = job.in_batch or self.store.holds(job.conversations.values())
            self._elsewhere += not own
            return
        added = set[int]()
        for item, prompt in self._open_questions(job):
            cost = self._afford(prompt)
            if self.stopped:
                break
            if self._tried:
                await self._add(item, prompt, cost)
                added.add(item.conversation)
            else:
                await self._try(job.pair, item, prompt)
        self.store.release_conversations({*job.conversations.values()} - added)

    async def _add(self, item: BatchItem, prompt: Prompt, cost: float) -> None:
        """Put a question into the draft; one that is full is sent first."""
        line, notes = self._line(item, prompt)
        if not self._draft.fits(line):
            await self._send()
            self._draft = Draft(self.service, self._most)
            line, notes = self._line(item, prompt)
        self._draft.add(line, item._replace(notes=notes), cost)
        self._requests += 1
        self._added += 1

    def _line(self, item: BatchItem, prompt: Prompt) -> tuple[bytes, tuple[str, ...]]:
        return self.service.line(name_of(self._draft.token, item.conversation, item.question), prompt)

    def _open_questions(self, job: Job) -> Iterator[tuple[BatchItem, Prompt]]:
        seen = set[int]()
        for order, number in job.conversations.items():
            if number in seen or number in self._collector.given_up:
                continue
            seen.add(number)  # two equal responses are the same conversation in both orders
            kept = self.store.answers(number) if number in job.begun else ()
            found = next_question(self.setup, job.pair, order, kept)
            if found is not None:
                yield BatchItem(number, found[0]), found[1]

    def _afford(self, prompt: Prompt) -> float:
        """About what a question will cost; the run stops before it takes more than it may."""
        limits, cost = self._limits, 0.0
        if limits.max_requests is not None and self._requests >= limits.max_requests:
            self.stopped = f"the budget of {limits.max_requests:,} requests is used up"
        if self._price is not None:
            usage = Usage(computed=guess_tokens(prompt), generated=prompt.verdicts)
            cost = self._price.in_batch().of(usage)
            under_way = sum(self._estimates.values()) + self._draft.estimate
            if limits.max_cost is not None and self.cost + under_way + cost > limits.max_cost:
                self.stopped = f"the budget of {limits.max_cost:g} is used up: {self.cost + under_way:.4f} spent"
        return cost

    async def _send(self) -> None:
        draft = self._draft
        try:
            row = await self._sender.send(draft)
        finally:
            draft.close()
        if row is None:
            self._requests -= len(draft.items)
        else:
            self._estimates[row.id] = draft.estimate
            said = f"{len(draft.items):,} request{'s' if len(draft.items) != 1 else ''}"
            self._notice(f"sent a batch of {said}: {row.remote}")

    async def _try(self, pair: Pair, item: BatchItem, prompt: Prompt) -> None:
        """Ask one question in the ordinary way: a wrong key, model or setting is known before a batch is sent."""
        self._requests += 1
        self._added += 1
        try:
            answer = await self._pace.ask(prompt)
        except BudgetError as error:
            self.stopped = error.message
            return
        except EngineError as error:
            if error.fatal:
                raise
            self._collector.give_up(item.conversation, item.question, error)
            if len(self._collector.given_up) >= _MOST_FAILED_TRIES:
                raise
            return
        self._tried = True
        question = self.setup.protocol.questions[item.question]
        verdicts = read_answer(answer, question.dimensions, self.setup.protocol.shown_texts(pair), question.form)
        self.store.record_all([Entry(item.conversation, item.question, answer, verdicts)])
        self._count(answer, 1.0)

    def _count(self, answer: Answer, share: float | None = None) -> None:
        self.totals.add(answer)
        if self._price is not None:
            self.cost += (self._price if share else self._price.in_batch()).of(answer.usage)
