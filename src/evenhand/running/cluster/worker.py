"""One worker: it judges the pairs of a task with the local runner and writes them as shards.

A task's pairs are judged in groups, each a run of its own over a store in memory, so that memory does not grow with
the task; what is done is written when a group ends, and at least once a minute.
"""

from __future__ import annotations

import asyncio
import os
import socket
import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

from evenhand.core.engine import Answer, Engine
from evenhand.core.errors import EngineError, EvenhandError, InputError
from evenhand.core.judge import Judgment, Orders, Setup
from evenhand.core.pair import COMBINED, Pair
from evenhand.core.protocol import Order, Protocol
from evenhand.core.verdict import Verdict, invalid, read_answer
from evenhand.running.cluster.coordinator import Call, ClusterProgress, Fault, Metered
from evenhand.running.cluster.slices import pairs_of
from evenhand.running.pace import BudgetError, Limits, Pace
from evenhand.running.prices import Price
from evenhand.running.runner import Run
from evenhand.store import Entry, Job, Store
from evenhand.store.shards import Failure, Finished, OrderRecord, Place, ShardRow, row_name, write_shard

# Pairs that are judged and written together.
GROUP = 1024
# How long what is done may wait to be written.
WRITE_SECONDS = 60.0
# How often a worker says how far it is, and is told whether to stop.
REPORT_SECONDS = 0.5
Begun = Mapping[str, Sequence[Answer]]


@dataclass(frozen=True)
class Recipe:
    """All that a worker has to know, the same for each of them; it travels by pickle."""

    open: Callable[[], Engine]
    protocol: Protocol
    place: Place
    fingerprint: str
    run: str = field(default_factory=lambda: uuid.uuid4().hex[:8])
    orders: Orders = "both"
    seed: int = 0
    raw_markup: bool = False
    limits: Limits = field(default_factory=Limits)  # of one worker
    metered: bool = False
    price: Price | None = None
    skip_bad: bool = False


class Worker:
    """A worker. Ray Data makes one of these in each actor and calls it with a task at a time.

    What goes wrong for all (a wrong key, a missing model) is reported to the coordinator, and the run ends in good
    order; what is raised here is a fault of the machinery, which Ray shows as it is.
    """

    def __init__(
        self,
        recipe: Recipe,
        call: Call,
        finished: Callable[[], Finished],
        begun: Callable[[], Begun],
        again: Callable[[], bool] = lambda: False,
    ) -> None:
        self.recipe, self._call = recipe, call
        self._finished, self._begun, self._again = finished(), begun(), again
        self._name = f"{socket.gethostname()} {os.getpid()}"
        self._loop: asyncio.Runner | None = None
        self._setup: Setup | None = None
        self._pace: Pace | None = None

    def __call__(self, batch: Any) -> Any:
        """Judge the tasks of a batch; what comes back is how many pairs each had."""
        self._loop = self._loop or asyncio.Runner()
        counts = [self._loop.run(self._judge(task)) for task in batch.to_pylist()]
        return {"pairs": counts}

    def close(self) -> None:
        """Close the judge; an actor of Ray ends without this, with all that it holds."""
        if self._loop is not None:
            if self._setup is not None:
                self._loop.run(self._setup.engine.close())
            self._loop.close()
            self._loop = None

    async def _judge(self, task: Mapping[str, Any]) -> int:
        work = _Task(self, str(task["task"]))
        if await work.reported():
            return 0
        try:
            await work.judge(pairs_of(task, skip_bad=self.recipe.skip_bad))
        except BudgetError as error:
            if not self.recipe.metered:
                raise AssertionError("nobody but the coordinator has a budget") from error
        except EvenhandError as error:
            await self._call("fail", Fault.of(error))
        await work.reported()
        return work.progress.pairs

    @property
    def setup(self) -> Setup:
        """The judge, opened when the first task comes, so that a failure can be reported."""
        if self._setup is None:
            recipe = self.recipe
            engine = recipe.open()
            if recipe.metered:
                engine = Metered(engine, self._call, recipe.price)
            setup = Setup(engine, recipe.protocol, recipe.raw_markup)
            if setup.fingerprint != recipe.fingerprint:
                raise InputError(
                    f"the judge on {socket.gethostname()} is not the same as where the command was given",
                    hint="the same model file, the same settings and the same evenhand belong on every machine",
                )
            self._setup, self._pace = setup, Pace(engine, recipe.limits, seed=recipe.seed)
        return self._setup


class _Task:
    """One attempt at one task."""

    def __init__(self, worker: Worker, name: str) -> None:
        self.worker, self.recipe, self.name = worker, worker.recipe, name
        self.attempt = uuid.uuid4().hex[:6]
        self.progress = ClusterProgress()
        self._parts = 0
        self._stopping = False

    async def reported(self) -> bool:
        """Tell how far this is; whether to stop."""
        worker, attempt = self.worker, f"{self.name}-{self.attempt}"
        self._stopping = await worker._call(
            "report", worker._name, self.name, attempt, self.progress, worker._again()
        )
        return self._stopping

    async def judge(self, pairs: Iterable[Pair]) -> None:
        left = self._not_done(pairs)
        while not self._stopping and (group := list(islice(left, GROUP))):
            await self._judge_group(group)

    def _not_done(self, pairs: Iterable[Pair]) -> Iterator[Pair]:
        """The pairs that are not in the folder yet."""
        written = self._written() if self.worker._again() else Finished([])
        for pair in pairs:
            if pair in self.worker._finished or pair in written:
                self._count(pairs=1)
            else:
                yield pair

    def _written(self) -> Finished:
        """What an earlier attempt at this task has written before its worker was lost."""
        place, names = self.recipe.place, []
        for file in place.names(f"part-{self.recipe.run}-{self.name}-", ".parquet"):
            names += _finished_names(place, file)
        return Finished(names)

    def _count(self, pairs: int = 0, invalid: int = 0, asked: int = 0) -> None:
        was = self.progress
        self.progress = ClusterProgress(was.pairs + pairs, was.invalid + invalid, was.asked + asked, was.usage)

    async def _judge_group(self, group: list[Pair]) -> None:
        recipe, setup = self.recipe, self.worker.setup
        with Notebook(setup, self.worker._begun) as book:
            run = Run(setup, group, book, orders=recipe.orders, seed=recipe.seed, pace=self.worker._pace)
            reporting = asyncio.create_task(self._report(run))
            rows: list[ShardRow] = []
            since, before = time.monotonic(), self.progress
            try:
                async for judgment in run:
                    rows.append(book.row(judgment))
                    self._count(pairs=1, invalid=_missing(judgment))
                    self.progress = _with_cost(self.progress, before, run)
                    if time.monotonic() - since > WRITE_SECONDS:
                        self._write(rows)
                        rows, since = [], time.monotonic()
            except EvenhandError as error:
                rows += book.broken_off(error)
                raise
            finally:
                reporting.cancel()
                with suppress(asyncio.CancelledError):
                    await reporting
                self._write(rows)
                self.progress = _with_cost(self.progress, before, run)

    async def _report(self, run: Run) -> None:
        while not await self.reported():  # noqa: ASYNC110 (it asks another process)
            await asyncio.sleep(REPORT_SECONDS)
        run.stop()

    def _write(self, rows: list[ShardRow]) -> None:
        if rows:
            name = f"{self.recipe.run}-{self.name}-{self.attempt}-{self._parts}"
            write_shard(self.recipe.place, name, rows, fingerprint=self.recipe.fingerprint)
            self._parts += 1


def _missing(judgment: Judgment) -> int:
    return sum(outcome.side is None for name, outcome in judgment.outcomes.items() if name != COMBINED)


def _with_cost(progress: ClusterProgress, before: ClusterProgress, run: Run) -> ClusterProgress:
    totals = run.totals
    return ClusterProgress(
        progress.pairs, progress.invalid, before.asked + totals.asked, before.usage + totals.usage
    )


def _finished_names(place: Place, file: str) -> list[bytes]:
    import pyarrow.parquet as parquet

    with place.fs.open_input_file(place.file(file)) as source:
        rows = parquet.ParquetFile(source).read(columns=["name", "key", "finished"]).to_pylist()
    return [row_name(row["name"], row["key"]) for row in rows if row["finished"]]


class Notebook(Store):
    """A store in memory that remembers, pair by pair, what a shard keeps: keys, answers, failures."""

    def __init__(self, setup: Setup, begun: Begun) -> None:
        super().__init__(":memory:")
        self._setup, self._begun = setup, begun
        self._jobs: dict[str, tuple[Job, Mapping[Order, str]]] = {}
        self._said: dict[int, dict[int, Answer]] = {}
        self._failed: dict[int, Failure] = {}
        self._judged: set[str] = set()
        self._counted: dict[tuple[int, int], str] = {}  # the pair whose row counts a conversation's answers

    def enter(self, judge: int, questions: int, jobs: Iterable[tuple[Pair, Mapping[Order, str]]]) -> list[Job]:
        """Put pairs in the queue; answers that an earlier run got before it was stopped are theirs."""
        wanted = list(jobs)
        entered = super().enter(judge, questions, wanted)
        brought: list[Entry] = []
        for job, (pair, keys) in zip(entered, wanted, strict=True):
            self._jobs[pair.id] = (job, keys)
            for order, key in keys.items():
                if key in self._begun and job.conversations[order] not in self._said:
                    brought += self._brought(pair, job.conversations[order], self._begun[key])
        if not brought:
            return entered
        self.record_all(brought)
        begun = frozenset(entry.conversation for entry in brought)
        return [Job(job.pair, job.conversations, job.held, job.begun | begun) for job in entered]

    def _brought(self, pair: Pair, conversation: int, answers: Sequence[Answer]) -> list[Entry]:
        questions, shown = self._setup.protocol.questions, self._setup.protocol.shown_texts(pair)
        return [
            Entry(conversation, number, answer, read_answer(answer, question.dimensions, shown, question.form))
            for number, (answer, question) in enumerate(zip(answers, questions, strict=False))
        ]

    def record_all(self, entries: Sequence[Entry]) -> None:
        """Keep answers."""
        super().record_all(entries)
        for entry in entries:
            self._said.setdefault(entry.conversation, {})[entry.question] = entry.answer
            self._failed.pop(entry.conversation, None)

    def fail(self, conversation: int, question: int, error: EngineError) -> None:
        """Keep a failure."""
        super().fail(conversation, question, error)
        self._failed[conversation] = Failure(question, error.reason, str(error))

    def row(self, judgment: Judgment) -> ShardRow:
        """A judgment as a row of a shard."""
        self._judged.add(judgment.pair.id)
        job, keys = self._jobs[judgment.pair.id]
        dimensions = self._setup.protocol.dimensions
        orders = {
            order: self._record_of(job, order, key, {name: judgment[name].orders[order] for name in dimensions})
            for order, key in keys.items()
        }
        return ShardRow(judgment.pair, orders)

    def _record_of(
        self, job: Job, order: Order, key: str, verdicts: Mapping[str, Verdict], why: Failure | None = None
    ) -> OrderRecord:
        """One order of a pair. Pairs with the same texts share a conversation, and the first row counts its tokens.

        A row that came before some of the answers, since one failed, does not count for those.
        """
        conversation = job.conversations[order]
        answers = [answer for _, answer in sorted(self._said.get(conversation, {}).items())]
        counts_it = self._counted.setdefault((conversation, len(answers)), job.pair.id)
        failure = self._failed.get(conversation) or why
        return OrderRecord(key, verdicts, answers, failure, shared=counts_it != job.pair.id)

    def broken_off(self, error: EvenhandError) -> list[ShardRow]:
        """Pairs that were under way when the run was stopped and have answers: those are paid for."""
        return [
            self._broken_off(job, keys, error)
            for name, (job, keys) in self._jobs.items()
            if name not in self._judged and any(self._said.get(number) for number in job.conversations.values())
        ]

    def _broken_off(self, job: Job, keys: Mapping[Order, str], error: EvenhandError) -> ShardRow:
        """A pair as far as it came; it has outcomes if its conversations came to an end, or one of them failed."""
        orders: dict[Order, OrderRecord] = {}
        for order, key in keys.items():
            number = job.conversations[order]
            answers = [answer for _, answer in sorted(self._said.get(number, {}).items())]
            read = {v.dimension: v for e in self._brought(job.pair, number, answers) for v in e.verdicts}
            missing = [name for name in self._setup.protocol.dimensions if name not in read]
            ended = not missing or any(verdict.label is None for verdict in read.values())
            reason = "not_asked" if ended else getattr(error, "reason", "stopped")
            verdicts = {**read, **{v.dimension: v for v in invalid(missing, reason)}}
            why = None if ended else Failure(len(answers), reason, str(error))
            orders[order] = self._record_of(job, order, key, verdicts, why)
        failed = any(number in self._failed for number in job.conversations.values())
        return ShardRow(job.pair, orders, ended=failed or all(record.failure is None for record in orders.values()))
