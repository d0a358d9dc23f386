"""One coordinator for all workers: it hands out what the limits allow, counts what is done, and says when to stop.

It is a plain object; on a cluster it lives in an actor of its own and the workers call it from afar.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from evenhand.core.engine import Answer, Engine, Usage
from evenhand.core.errors import EngineError, EvenhandError, InputError, ModelError
from evenhand.core.protocol import Prompt
from evenhand.running.pace import BudgetError, Limits, Window, guess_tokens, tokens_of
from evenhand.running.prices import Price

# How often a task may be begun; what a lost worker had written of it is not judged again.
ATTEMPTS = 10
# The way from a worker to the coordinator: the name of a method, and its arguments.
Call = Callable[..., Awaitable[Any]]


@dataclass(frozen=True, slots=True)
class ClusterProgress:
    """What one attempt at one task has done so far."""

    pairs: int = 0
    invalid: int = 0  # verdicts that are missing
    asked: int = 0
    usage: Usage = field(default_factory=Usage)


@dataclass(frozen=True, slots=True)
class Fault:
    """Why a worker gave up, in a form that travels: an error of evenhand's own and where it happened."""

    kind: str
    message: str
    hint: str = ""
    reason: str = ""

    @classmethod
    def of(cls, error: EvenhandError) -> Fault:
        """An error, taken apart."""
        return cls(type(error).__name__, error.message, error.hint, getattr(error, "reason", ""))

    def error(self) -> EvenhandError:
        """The error again, or one of its kin.

        >>> Fault.of(InputError("no key", hint="set KEY")).error().hint
        'set KEY'
        """
        if self.reason:
            return EngineError(self.message, reason=self.reason, fatal=True, hint=self.hint)
        kin = {"ModelError": ModelError, "EvenhandError": EvenhandError}.get(self.kind, InputError)
        return kin(self.message, hint=self.hint)


@dataclass(frozen=True, slots=True)
class ClusterStanding:
    """All workers together."""

    progress: ClusterProgress = field(default_factory=ClusterProgress)
    workers: int = 0  # that have reported
    attempts: int = 0  # at tasks
    lost: int = 0  # workers, as far as is known
    seconds: float = 0.0  # from the first word of a worker to the last
    stopped: str = ""  # a budget that is used up
    fault: Fault | None = None
    taken: int = 0  # requests of the budget, those of judges before this one among them
    spent: float = 0.0  # money, those of earlier judges included


class Coordinator:
    """Limits are kept for all workers together.

    A rate is kept as the local runner keeps it: a worker that asks is told how long to wait. What a lost worker
    had taken counts as used, so that a budget is never overdrawn.

    >>> coordinator = Coordinator(Limits(max_requests=1))
    >>> coordinator.take(100, 0.0), coordinator.take(100, 0.0)
    (0.0, 'the budget of 1 requests is used up')
    """

    def __init__(self, limits: Limits, taken: int = 0, spent: float = 0.0) -> None:
        """`taken` and `spent` are what other judges have used of the same budget."""
        self._limits = limits
        self._requests = Window(limits.requests_per_minute)
        self._tokens = Window(limits.tokens_per_minute)
        self._taken, self._spent, self._reserved = taken, spent, 0.0
        self._done: dict[str, ClusterProgress] = {}  # by task, of its last attempt
        self._cost: dict[str, ClusterProgress] = {}  # by attempt
        self._attempts: dict[str, int] = {}
        self._first: float | None = None
        self._last = 0.0
        self._workers: set[str] = set()
        self._replacing: set[str] = set()  # workers in the places of lost ones
        self._stopping, self._stopped = False, ""
        self._fault: Fault | None = None

    def take(self, tokens: int, cost: float) -> float | str:
        """Seconds to wait before a prompt may go; or why none may go any more."""
        limits = self._limits
        if limits.max_requests is not None and self._taken >= limits.max_requests:
            return self._end(f"the budget of {limits.max_requests:,} requests is used up")
        if limits.max_cost is not None and self._spent + self._reserved + cost > limits.max_cost:
            return self._end(f"the budget of {limits.max_cost:g} is used up: {self._spent:.4f} spent")
        self._taken += 1
        self._reserved += cost
        waits = [self._requests.take(1.0)] if self._requests.limited else []
        waits += [self._tokens.take(tokens)] if self._tokens.limited else []
        return max(waits, default=0.0)

    def settle(self, reserved: float, spent: float, tokens: int) -> None:
        """What was taken has been used: its cost, and by how many tokens it was more than thought."""
        self._reserved -= reserved
        self._spent += spent
        if self._tokens.limited:
            self._tokens.correct(tokens)

    def _end(self, why: str) -> str:
        self._stopping, self._stopped = True, self._stopped or why
        return why

    def report(self, worker: str, task: str, attempt: str, progress: ClusterProgress, again: bool = False) -> bool:
        """Note how far an attempt is; whether to begin no other pair. `again`: by one in a lost worker's place."""
        self._last = time.monotonic()
        self._first = self._last if self._first is None else self._first
        self._workers.add(worker)
        if again:
            self._replacing.add(worker)
        if attempt not in self._cost:
            self._begun(task)
        self._done[task] = self._cost[attempt] = progress
        return self._stopping

    def _begun(self, task: str) -> None:
        """Ray restarts a task without end; pairs that kill every worker must not keep the run from ending."""
        self._attempts[task] = self._attempts.get(task, 0) + 1
        if self._attempts[task] > ATTEMPTS:
            self.fail(
                Fault(
                    "EngineError",
                    f"workers were lost {ATTEMPTS} times over the same pairs (task {task})",
                    "what was judged is kept; is the memory of the nodes enough? the same command tries again",
                    "worker_lost",
                )
            )

    def fail(self, fault: Fault) -> None:
        """A worker gave up, and no other would fare better."""
        self._stopping, self._fault = True, self._fault or fault

    def stop(self) -> None:
        """Begin no other pair."""
        self._stopping = True

    def standing(self) -> ClusterStanding:
        """How far all of it is."""
        done, cost = self._done.values(), self._cost.values()
        progress = ClusterProgress(
            sum(each.pairs for each in done),
            sum(each.invalid for each in done),
            sum(each.asked for each in cost),
            Usage.total([each.usage for each in cost]) if cost else Usage(),
        )
        seconds = 0.0 if self._first is None else self._last - self._first
        lost = max(len(cost) - len(done), len(self._replacing))  # one may be lost between two tasks
        ended = (self._stopped, self._fault, self._taken, self._spent)
        return ClusterStanding(progress, len(self._workers), len(cost), lost, seconds, *ended)


class Metered(Engine):
    """An engine that asks the coordinator before each prompt; what decides its answers stays the same.

    >>> from evenhand.engines.scripted import ScriptedEngine
    >>> coordinator = Coordinator(Limits(max_requests=1))
    >>> async def call(name, *arguments):
    ...     return getattr(coordinator, name)(*arguments)
    >>> engine = Metered(ScriptedEngine(lambda prompt: "A"), call)
    >>> asyncio.run(engine.answer(Prompt(()))).text
    'A'
    >>> asyncio.run(engine.answer(Prompt(())))
    Traceback (most recent call last):
    evenhand.running.pace.BudgetError: the budget of 1 requests is used up (run the same command again to go on)
    """

    def __init__(self, engine: Engine, call: Call, price: Price | None = None) -> None:
        self._engine, self._call, self._price = engine, call, price
        self.concurrency = engine.concurrency

    @property
    def identity(self) -> Mapping[str, str]:
        """The engine's own."""
        return self._engine.identity

    async def answer(self, prompt: Prompt) -> Answer:
        """Wait for the permit, then ask; an attempt that fails has used its request, and no tokens."""
        guess = guess_tokens(prompt)
        cost = self._of(Usage(computed=guess, generated=prompt.verdicts))
        delay = await self._call("take", guess, cost)
        if isinstance(delay, str):
            raise BudgetError(delay)
        if delay > 0:
            await asyncio.sleep(delay)
        try:
            answer = await self._engine.answer(prompt)
        except EngineError:
            await self._call("settle", cost, 0.0, 0)
            raise
        await self._call("settle", cost, self._of(answer.usage), tokens_of(answer.usage) - guess)
        return answer

    def note_answered(self) -> None:
        """The engine has answered in an earlier run."""
        self._engine.note_answered()

    async def close(self) -> None:
        """Close the engine."""
        await self._engine.close()

    def _of(self, usage: Usage) -> float:
        return self._price.of(usage) if self._price else 0.0


def is_metered(limits: Limits) -> bool:
    """Whether there is anything that the coordinator has to hand out.

    >>> is_metered(Limits(concurrency=8)), is_metered(Limits(max_requests=8))
    (False, True)
    """
    return replace(limits, concurrency=None) != Limits(retries=limits.retries)
