"""The Python front: a Judge that works in a script, in a notebook and in async code.

The engine and the store live on an event loop of their own, in a thread of the Judge's. Plain calls wait for it,
async calls await it, and a loop that is running already (a notebook's) is never in the way.
"""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import AsyncGenerator, Callable, Coroutine, Iterable, Iterator, Sequence
from concurrent.futures import Future, wait
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self, TypedDict, TypeVar

from evenhand.core.engine import Engine, Usage
from evenhand.core.errors import SpecError
from evenhand.core.fence import FenceKind
from evenhand.core.judge import Judgment, Orders, Setup
from evenhand.core.pair import Pair
from evenhand.core.protocol import ORDERS, Protocol
from evenhand.engines import open_engine
from evenhand.engines.catalog import DEFAULT_MODEL
from evenhand.engines.heads import PREFIX, SHIPPED_HEAD
from evenhand.engines.llama import LlamaEngine
from evenhand.engines.presets import find_address
from evenhand.running.pace import Limits, Pace
from evenhand.running.prices import Price
from evenhand.running.runner import Line, Run
from evenhand.store import Store

if TYPE_CHECKING:
    from evenhand.running.batches.run import BatchProgress, BatchRun

# How many judgments are brought over from the loop's thread at a time, where so many are ready.
_AT_ONCE = 256
T = TypeVar("T")


def default_protocol(judge: str | Engine) -> str:
    """The protocol for a judge where none is named: docs/quality.md says why.

    A small model that runs here judges better when it is first asked about each response by itself. One behind HTTP
    is larger as a rule, has not been measured so, and is paid by the question.

    >>> default_protocol("smollm2-135m"), default_protocol("openai:gpt-4o-mini")
    ('weighed', 'chained')
    """
    here = isinstance(judge, LlamaEngine) if isinstance(judge, Engine) else find_address(judge) is None
    return "weighed" if here else "chained"


def default_judge(asked: object = None) -> str:
    """The judge where nobody names one: the head that ships; with a protocol or a fence, the model that is asked.

    >>> default_judge(), default_judge("chained")
    ('head:general', 'qwen2.5-coder-1.5b')
    """
    return DEFAULT_MODEL if asked else f"{PREFIX}{SHIPPED_HEAD}"


def protocol_for(
    engine: Engine, protocol: str | Path | Protocol | None, fence: FenceKind | None = None
) -> Protocol:
    """The protocol that is named, or the engine's default; a head has one of its own and answers no other."""
    from evenhand.engines.heads.engine import HeadEngine  # with numpy, which takes a third of a second

    if isinstance(engine, HeadEngine):
        if fence:
            raise SpecError("a trained head is not asked anything, so it takes no fence", hint="leave it out")
        if protocol is None or (isinstance(protocol, Protocol) and protocol.text == engine.protocol.text):
            return engine.protocol
        raise SpecError(
            "a trained head is not asked anything, so it takes no protocol", hint="leave --protocol out"
        )
    named = default_protocol(engine) if protocol is None else protocol
    found = named if isinstance(named, Protocol) else Protocol.load(named)
    return found.fenced(fence) if fence else found


class _RunTerms(TypedDict):
    orders: Orders
    seed: int
    limits: Limits | None
    price: Price | None


class Judge:
    """Asks a model which of two responses is better.

    `judge` is a model of the catalog, a path to a GGUF file, `hf:owner/repo/file.gguf`, or an Engine. `db` is
    the file in which verdicts are kept; without one they are kept until `close`. Without a judge it is
    `default_judge`, without a protocol `default_protocol`. `fence` sets texts off from the template: "word",
    "lines" or "off"; without one it is as the template says.

    >>> from evenhand.engines.scripted import ScriptedEngine
    >>> longer_is_better = lambda prompt: {"A": 0.2, "B": 0.7, "tie": 0.1}
    >>> with Judge(ScriptedEngine(longer_is_better), protocol="overall") as judge:
    ...     judgment = judge.compare("Name a colour.", "Red.", "Blue, I think.")
    >>> judgment["overall"].inconsistent, judgment["overall"].side_in("forward")
    (True, '2')
    """

    def __init__(
        self,
        judge: str | Engine | None = None,
        protocol: str | Path | Protocol | None = None,
        *,
        db: str | Path | None = None,
        orders: Orders = "both",
        seed: int = 0,
        raw_markup: bool = False,
        fence: FenceKind | None = None,
        limits: Limits | None = None,
        price: Price | None = None,
    ) -> None:
        engine = judge if isinstance(judge, Engine) else open_engine(judge or default_judge(protocol or fence))
        template = protocol_for(engine, protocol, fence)
        self.setup = Setup(engine, template, raw_markup)
        self.orders, self.seed, self.limits = orders, seed, limits
        self.price = price
        self.store = Store(db or ":memory:")
        engine.keep_states(self.store.vectors.of)
        engine.use_other_verdicts(self.store.made.log_odds)
        self._loop = _LoopThread()

    def __enter__(self) -> Judge:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def compare(self, instruction: str | Pair, output_1: str = "", output_2: str = "") -> Judgment:
        """Judge one pair, given as a Pair or as its three texts, and wait for it."""
        return self._loop.run(self._one(_pair(instruction, output_1, output_2)))

    async def acompare(self, instruction: str | Pair, output_1: str = "", output_2: str = "") -> Judgment:
        """Like `compare`, for async code."""
        future = self._loop.submit(self._one(_pair(instruction, output_1, output_2)))
        return await asyncio.wrap_future(future)

    def judge(self, pairs: Iterable[Pair]) -> Iterator[Judgment]:
        """Judge pairs and give each judgment as soon as it is done.

        >>> from evenhand.engines.scripted import ScriptedEngine
        >>> with Judge(ScriptedEngine(lambda prompt: "A,B,tie,tie"), protocol="four") as judge:
        ...     [j["format"].side for j in judge.judge([Pair("Hi", "x", "y"), Pair("Hi", "x", "z")])]
        ['tie', 'tie']
        """
        with self.run(pairs) as judgments:
            yield from judgments

    async def ajudge(self, pairs: Iterable[Pair]) -> AsyncGenerator[Judgment, None]:
        """Like `judge`, for async code: `async for judgment in judge.ajudge(pairs)`."""
        judgments = self.run(pairs)
        try:
            while (judgment := await judgments.atake()) is not None:
                yield judgment
        finally:
            await judgments.aclose()

    def judge_in_batches(
        self,
        pairs: Sequence[Pair] | Callable[[], Iterable[Pair]],
        *,
        detach: bool = False,
        on_notice: Callable[[str], None] = lambda _: None,
        on_progress: Callable[[BatchProgress], None] = lambda _: None,
    ) -> BatchRun:
        """Judge pairs through the service's batches, at half the price, and wait for it: up to a day.

        `pairs` are a list, or a function that gives them again each time. What comes back has the judgments. With
        `detach` nothing is waited for; the same call goes on from there, and so it does after an interrupt.
        """
        from evenhand.engines.batches.opening import open_batches
        from evenhand.running.batches.run import BatchRun

        read = pairs if callable(pairs) else lambda: pairs
        run = BatchRun(
            *(self.setup, read, self.store, open_batches(self.setup.engine)),
            **self._terms(),
            detach=detach,
            on_notice=on_notice,
            on_progress=on_progress,
        )
        self._loop.run_to_end(_settle(run))
        return run

    def run(
        self,
        pairs: Iterable[Pair],
        *,
        line: Line | None = None,
        words: bool = True,
        on_wait: Callable[[str], None] | None = None,
        pace: Pace | None = None,
    ) -> Judgments:
        """Begin a run; what comes back is iterated over, and `close` stops it early without losing anything.

        With a `line`, such as a Decider that watches the pairs, little is asked that may turn out not to be
        needed. Without `words`, a judgment that was kept comes with its verdicts alone and without what the judge
        said, which is most of what there is to read. `on_wait` is called with the name of another process that the
        run has to wait for. A `pace` that was asked with before goes on with its limits and its budget.
        """
        run = Run(
            self.setup, pairs, self.store, **self._terms(), line=line, words=words, on_wait=on_wait, pace=pace
        )
        return Judgments(run, self._loop)

    def _terms(self) -> _RunTerms:
        """What every run of this judge shares."""
        return {"orders": self.orders, "seed": self.seed, "limits": self.limits, "price": self.price}

    @property
    def answers_of_pair(self) -> int:
        """How many answers a pair takes."""
        return len(self.setup.protocol.questions) * (len(ORDERS) if self.orders == "both" else 1)

    def cost_of(self, usage: Usage) -> float | None:
        """What tokens cost at this judge's price; None where it has none."""
        return self.price.of(usage) if self.price else None

    def close(self) -> None:
        """Stop what is under way and the engine, and close the database."""
        if self._loop.running:
            try:
                self._loop.run(self._shut())
            finally:
                self._loop.stop()

    async def _shut(self) -> None:
        left = asyncio.all_tasks() - {asyncio.current_task()}
        for task in left:
            task.cancel()
        await asyncio.gather(*left, return_exceptions=True)
        await asyncio.get_running_loop().shutdown_asyncgens()  # runs that nobody took to their end
        try:
            await self.setup.engine.close()
        finally:
            self.store.close()

    async def _one(self, pair: Pair) -> Judgment:
        run = Run(self.setup, [pair], self.store, **self._terms())
        judgments = [judgment async for judgment in run]  # to its end, so that the run is closed
        return judgments.pop()


class JudgmentStream:
    """Judgments as they come, one after the other, until the stream is closed."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __iter__(self) -> Iterator[Judgment]:
        while (judgment := self.take()) is not None:
            yield judgment

    def take(self) -> Judgment | None:
        """Wait for the next judgment; None at the end of the run."""
        raise NotImplementedError

    def close(self) -> None:
        """Stop the run; what was answered is kept."""
        raise NotImplementedError


class Judgments(JudgmentStream):
    """The judgments of a run, as they come; the run begins when the first is asked for."""

    def __init__(self, run: Run, loop: _LoopThread) -> None:
        self.totals = run.totals
        self._run = run
        self._stream = aiter(run)
        self._loop = loop
        self._here: deque[Judgment] = deque()  # brought over from the loop's thread, not handed out yet
        self._asked: Future[list[Judgment]] | None = None  # the question that a caller is waiting for
        self._taking: asyncio.Task[list[Judgment]] | None = None

    def take(self) -> Judgment | None:
        """Wait for the next judgment; None at the end of the run."""
        if not self._here and self._loop.running:
            if self._asked is None or self._asked.cancelled():
                self._asked = self._loop.submit(self._take())
            wait([self._asked])  # after an interrupt here the next call takes what was asked for
            answered, self._asked = self._asked, None
            self._here.extend(answered.result())
        return self._here.popleft() if self._here else None

    async def atake(self) -> Judgment | None:
        """Like `take`, for async code."""
        if not self._here:
            self._here.extend(await asyncio.wrap_future(self._loop.submit(self._take())))
        return self._here.popleft() if self._here else None

    def stop(self) -> None:
        """Begin no other pair; those under way still come out."""
        self._run.stop()

    def close(self) -> None:
        """Stop the run, if it is not at its end, and wait until it has stopped; what was answered is kept."""
        self._here.clear()
        if self._loop.running:
            self._loop.run(self._stop())

    async def aclose(self) -> None:
        """Like `close`, for async code."""
        self._here.clear()
        if self._loop.running:
            await asyncio.wrap_future(self._loop.submit(self._stop()))

    async def _take(self) -> list[Judgment]:
        """The next, and what is ready behind it: the way between threads costs as much for one as for many."""
        before, self._taking = self._taking, asyncio.current_task()
        if before is not None and not before.done():
            return await before  # its caller was interrupted before it could note that the question stands
        judgment = await anext(self._stream, None)
        return [] if judgment is None else [judgment, *self._run.take_ready(_AT_ONCE - 1)]

    async def _stop(self) -> None:
        """A caller that was interrupted has left its question behind; it is taken back first."""
        if self._taking is not None and not self._taking.done():
            self._taking.cancel()
            await asyncio.wait([self._taking])
        await self._stream.aclose()


class _LoopThread:
    """An event loop in a thread of its own."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="evenhand", daemon=True)
        self._thread.start()

    @property
    def running(self) -> bool:
        return self._thread.is_alive()

    def submit(self, work: Coroutine[Any, Any, T]) -> Future[T]:
        if not self.running:
            work.close()
            raise RuntimeError("this Judge is closed")
        return asyncio.run_coroutine_threadsafe(work, self._loop)

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        return self.submit(work).result()

    def run_to_end(self, work: Coroutine[Any, Any, T]) -> T:
        """Run work; where the caller is interrupted, the work is too, and has ended when this raises."""
        tasks: list[asyncio.Task[T]] = []

        async def begin() -> T:
            tasks.append(asyncio.create_task(work))
            return await tasks[0]

        async def end() -> None:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

        future = self.submit(begin())
        try:
            return future.result()
        except KeyboardInterrupt:
            self.run(end())
            raise

    def stop(self) -> None:
        self.run(self._loop.shutdown_default_executor())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


async def _settle(run: BatchRun) -> None:
    try:
        await run.settle()
    finally:
        await run.service.close()


def _pair(instruction: str | Pair, output_1: str, output_2: str) -> Pair:
    return instruction if isinstance(instruction, Pair) else Pair(instruction, output_1, output_2)
