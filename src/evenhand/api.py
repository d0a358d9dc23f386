"""The Python front: a Judge that works in a script, in a notebook and in async code.

The engine and the store live on an event loop of their own, in a thread of the Judge's. Plain calls wait for it,
async calls await it, and a loop that is running already (a notebook's) is never in the way.
"""

from __future__ import annotations

import asyncio
import queue
import threading
from collections.abc import AsyncIterator, Coroutine, Iterable, Iterator
from concurrent.futures import Future
from pathlib import Path
from typing import Any, TypeVar

from evenhand.engines import open_engine
from evenhand.engines.base import Engine
from evenhand.engines.catalog import DEFAULT_MODEL
from evenhand.judge import Judgment, Orders, Setup
from evenhand.pairs import Pair
from evenhand.protocol import Protocol
from evenhand.runner import Run
from evenhand.store import Store

DEFAULT_PROTOCOL = "chained"
T = TypeVar("T")


class Judge:
    """Asks a model which of two responses is better.

    `judge` is a model of the catalog, a path to a GGUF file, `hf:owner/repo/file.gguf`, or an Engine. `db` is
    the file in which verdicts are kept; without one they are kept until `close`.

    >>> from evenhand.engines.scripted import ScriptedEngine
    >>> longer_is_better = lambda prompt: {"A": 0.2, "B": 0.7, "tie": 0.1}
    >>> with Judge(ScriptedEngine(longer_is_better), protocol="overall") as judge:
    ...     judgment = judge.compare("Name a colour.", "Red.", "Blue, I think.")
    >>> judgment["overall"].inconsistent, judgment["overall"].heard("forward")
    (True, '2')
    """

    def __init__(
        self,
        judge: str | Engine = DEFAULT_MODEL,
        protocol: str | Path | Protocol = DEFAULT_PROTOCOL,
        *,
        db: str | Path | None = None,
        orders: Orders = "both",
        seed: int = 0,
        raw_markup: bool = False,
    ) -> None:
        engine = judge if isinstance(judge, Engine) else open_engine(judge)
        template = protocol if isinstance(protocol, Protocol) else Protocol.load(protocol)
        self.setup = Setup(engine, template, raw_markup)
        self.orders, self.seed = orders, seed
        self.store = Store(db or ":memory:")
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

    async def ajudge(self, pairs: Iterable[Pair]) -> AsyncIterator[Judgment]:
        """Like `judge`, for async code: `async for judgment in judge.ajudge(pairs)`."""
        with self.run(pairs) as judgments:
            while (judgment := await asyncio.to_thread(judgments.take)) is not None:
                yield judgment

    def run(self, pairs: Iterable[Pair]) -> Judgments:
        """Begin a run; what comes back is iterated over, and `close` stops it early without losing anything."""
        return Judgments(Run(self.setup, pairs, self.store, orders=self.orders, seed=self.seed), self._loop)

    def close(self) -> None:
        """Stop the engine and close the database."""
        if self._loop.running:
            self._loop.run(self.setup.engine.close())
            self._loop.run(_call(self.store.close))
            self._loop.stop()

    async def _one(self, pair: Pair) -> Judgment:
        run = Run(self.setup, [pair], self.store, orders=self.orders, seed=self.seed)
        judgments = [judgment async for judgment in run]  # to its end, so that the run is closed
        return judgments.pop()


class Judgments:
    """The judgments of a run, as they come."""

    def __init__(self, run: Run, loop: _LoopThread) -> None:
        self.totals = run.totals
        self._done: queue.Queue[Judgment | BaseException | None] = queue.Queue(maxsize=64)
        self._closed = threading.Event()
        self._future = loop.submit(self._pump(run))

    def __enter__(self) -> Judgments:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __iter__(self) -> Iterator[Judgment]:
        while (judgment := self.take()) is not None:
            yield judgment

    def take(self) -> Judgment | None:
        """Wait for the next judgment; None at the end of the run."""
        item = self._done.get()
        if isinstance(item, BaseException):
            raise item
        return item

    def close(self) -> None:
        """Stop the run, if it is not at its end; what was answered is kept."""
        self._closed.set()
        self._future.cancel()
        while not self._future.done():
            self._drain()

    def _drain(self) -> None:
        try:
            self._done.get(timeout=0.05)
        except queue.Empty:
            return

    async def _pump(self, run: Run) -> None:
        """Carry judgments from the loop's thread to the caller's, no faster than they are taken."""
        try:
            async for judgment in run:
                await asyncio.to_thread(self._done.put, judgment)
            await asyncio.to_thread(self._done.put, None)
        except asyncio.CancelledError:
            raise
        except BaseException as fault:  # it belongs to whoever iterates
            await asyncio.to_thread(self._done.put, fault)


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
        return asyncio.run_coroutine_threadsafe(work, self._loop)

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        return self.submit(work).result()

    def stop(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.run_until_complete(self._loop.shutdown_default_executor())
        self._loop.close()


async def _call(function: Any) -> None:
    function()


def _pair(instruction: str | Pair, output_1: str, output_2: str) -> Pair:
    return instruction if isinstance(instruction, Pair) else Pair(instruction, output_1, output_2)
