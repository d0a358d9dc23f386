"""How fast to ask: retries with an end, concurrency that finds its own level, limits, a budget.

Whatever an engine is, the runner asks it through a Pace. It lets as many prompts through at once as the server
keeps up with: the number grows while answers come back about as quickly as they did, and is halved when the
server says that it is too many (429, 503, a timeout). A server that names a time to wait is left alone for that
long by every prompt, not only by the one that was told.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections import deque
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from evenhand.core.engine import Answer, Engine, Usage
from evenhand.core.errors import EngineError, InputError
from evenhand.core.protocol import Prompt
from evenhand.running.prices import Price

Sleep = Callable[[float], Awaitable[None]]
# Latency may grow to so many times its best before more prompts at once are held to be of no use.
_SLOWER = 2.0
# Below so many seconds, latency is the machine's own noise and says nothing about the server.
_QUICK = 0.05
# Characters of English text to a token, for limits that must be kept before the server has counted.
_CHARACTERS = 4
# A server is gone if more tries than this in a row found nobody; fewer may be a short interruption.
_TRIES = 3
# Why a run stops that has been answered until now: the user's own budget, or the account's.
_OUT_OF_MONEY = ("budget", "no_credit")


@dataclass(frozen=True, slots=True)
class Limits:
    """What a run may use; None is no limit."""

    concurrency: int | None = None
    requests_per_minute: float | None = None
    tokens_per_minute: float | None = None
    max_requests: int | None = None
    max_cost: float | None = None  # in the price's currency; needs a price
    retries: int = 6


class BudgetError(EngineError):
    """The run has used what it was given; what was answered is kept."""

    def __init__(self, message: str) -> None:
        super().__init__(message, reason="budget", fatal=True, hint="run the same command again to go on")


@dataclass
class Pace:
    """The way to one engine.

    >>> from evenhand.engines.scripted import ScriptedEngine
    >>> pace = Pace(ScriptedEngine(lambda prompt: "A"))
    >>> asyncio.run(pace.ask(Prompt(()))).text, pace.requests
    ('A', 1)
    """

    engine: Engine
    limits: Limits = field(default_factory=Limits)
    price: Price | None = None
    seed: int = 0
    sleep: Sleep = asyncio.sleep
    requests: int = 0
    spent: float = 0.0

    def __post_init__(self) -> None:
        if self.limits.max_cost is not None and self.price is None:
            raise InputError("no price is known for this judge, so --max-cost cannot be kept", hint="give --prices")
        self.most = min(self.limits.concurrency or self.engine.concurrency, self.engine.concurrency)
        self._level = float(min(4, self.most))  # how many at once, now
        self._growing_fast = True  # doubling, until the server first complains
        self._in_flight = 0
        self._over: EngineError | None = None  # why nothing more is to be asked
        self._held_back = 0  # of those, how many wait for a limit and have not been asked
        self._promised = 0  # requests, to pairs that are under way
        self._reserved = 0.0  # what the prompts under way will cost at the least
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._random = random.Random(self.seed)
        self._quiet_until = 0.0
        self._halved = 0.0
        self._heard = 0  # signs of life that the server gave
        self._best = float("inf")
        self._latency = 0.0
        self._requests = Window(self.limits.requests_per_minute)
        self._tokens = Window(self.limits.tokens_per_minute)

    def begin(self) -> None:
        """A run begins: what ended another may be over by now; only a budget stays used up."""
        if self._over is not None and self._over.reason not in _OUT_OF_MONEY:
            self._over = None

    @property
    def level(self) -> int:
        """How many prompts may be under way at once, now."""
        return max(1, int(self._level))

    def has_room_for(self, requests: int) -> bool:
        """Whether the budget can finish a pair of so many beside those under way; where none is, any may begin.

        >>> from evenhand.engines.scripted import ScriptedEngine
        >>> pace = Pace(ScriptedEngine(lambda prompt: "A"), Limits(max_requests=3))
        >>> with pace.promised(2):
        ...     pace.has_room_for(1), pace.has_room_for(2)
        (True, False)
        """
        most = self.limits.max_requests
        return most is None or not self._promised or self.requests + self._promised + requests <= most

    @contextmanager
    def promised(self, requests: int) -> Iterator[None]:
        """Keep so much of the budget for one pair as long as it is under way."""
        self._promised += requests
        try:
            yield
        finally:
            self._promised -= requests

    async def ask(self, prompt: Prompt) -> Answer:
        """Ask until there is an answer, or no more sense in asking."""
        missed, heard = 0, self._heard  # tries in a row for which nobody was there, with no sign of life between
        for attempt in range(self.limits.retries + 1):
            try:
                return await self._once(prompt)
            except EngineError as error:
                missed = missed + 1 if error.nobody_there and heard == self._heard else int(error.nobody_there)
                heard, last = self._heard, attempt == self.limits.retries
                why = _gone(error) if last and missed > _TRIES else error
                if why.fatal:
                    await self._end(why)
                if why.fatal or not error.retryable or last:
                    raise why from None
                await self._back_off(error, attempt)
        raise AssertionError("the last attempt returns or raises")

    async def _once(self, prompt: Prompt) -> Answer:
        if self._in_flight < self.level and not self._waiting:
            self._in_flight += 1
        else:
            await self._wait_for_place()
        try:
            return await self._ask_now(prompt)
        finally:
            self._in_flight -= 1
            self._give_places()

    async def _ask_now(self, prompt: Prompt) -> Answer:
        if self._limited:
            await self._wait_for_limits(prompt)
        reserved = self._spend(prompt)
        began = time.monotonic()
        try:
            answer = await self.engine.answer(prompt)
        except EngineError as error:
            if error.overloaded:
                self._halve(began)
            if not error.nobody_there:
                self._heard += 1
            raise
        finally:
            self._reserved -= reserved
        if self.price:
            self.spent += self.price.of(answer.usage)
        self._went_well(time.monotonic() - began)
        if self._tokens.limited:
            self._tokens.correct(tokens_of(answer.usage) - guess_tokens(prompt))
        return answer

    @property
    def _limited(self) -> bool:
        """Whether anything but the number of places may keep a prompt waiting."""
        return bool(self._quiet_until) or self._requests.limited or self._tokens.limited

    def _spend(self, prompt: Prompt) -> float:
        """Take from the budget what this prompt is likely to cost, or refuse it."""
        limits, cost = self.limits, 0.0
        if self._over is not None:
            raise self._over
        if limits.max_requests is not None and self.requests >= limits.max_requests:
            raise BudgetError(f"the budget of {limits.max_requests:,} requests is used up")
        if self.price is not None:
            cost = self.price.of(Usage(computed=guess_tokens(prompt), generated=prompt.verdicts))
        if limits.max_cost is not None and self.spent + self._reserved + cost > limits.max_cost:
            raise BudgetError(f"the budget of {limits.max_cost:g} is used up: {self.spent:.4f} spent")
        self.requests += 1
        self._reserved += cost
        return cost

    async def _end(self, error: EngineError) -> None:
        """Ask nothing more in this run, and let what is under way come to its end."""
        self._over = self._over or error
        await self._emptied()

    async def _emptied(self) -> None:
        """Wait for what has been asked already: its answers are paid for, and stopping now would lose them."""
        while self._in_flight > self._held_back:  # noqa: ASYNC110 (once in a run, and then for moments)
            await asyncio.sleep(0.01)

    async def _wait_for_limits(self, prompt: Prompt) -> None:
        self._held_back += 1
        try:
            while (quiet := self._quiet_until - time.monotonic()) > 0:
                await self.sleep(quiet)
            for window, amount in ((self._requests, 1.0), (self._tokens, None)):
                delay = window.take(guess_tokens(prompt) if amount is None else amount) if window.limited else 0.0
                if delay > 0:
                    await self.sleep(delay)
        finally:
            self._held_back -= 1

    async def _back_off(self, error: EngineError, attempt: int) -> None:
        """Wait, longer each time and never in step with the others."""
        delay = min(60.0, 0.5 * 2**attempt) * self._random.uniform(0.5, 1.5)
        if error.retry_after is not None:
            self._quiet_until = max(self._quiet_until, time.monotonic() + error.retry_after)
            delay = error.retry_after + self._random.uniform(0, 0.5)
        await self.sleep(delay)

    # -- how many at once --------------------------------------------------------------------------

    async def _wait_for_place(self) -> None:
        """Wait in line; who is woken has a place already, which no other prompt can take."""
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append(turn)
        try:
            await turn
        except asyncio.CancelledError:
            if not turn.cancelled():  # the place had been given already: pass it on
                self._in_flight -= 1
                self._give_places()
            raise

    def _give_places(self) -> None:
        while self._waiting and self._in_flight < self.level:
            turn = self._waiting.popleft()
            if not turn.done():
                self._in_flight += 1
                turn.set_result(None)

    def _went_well(self, seconds: float) -> None:
        self._heard += 1
        self._latency = seconds if not self._latency else 0.9 * self._latency + 0.1 * seconds
        self._best = min(self._best, self._latency)
        if self._in_flight >= self.level and self._latency <= max(_QUICK, _SLOWER * self._best):
            self._level = min(self.most, self._level + (1.0 if self._growing_fast else 1.0 / self._level))

    def _halve(self, began: float) -> None:
        """Halve once for all the prompts that were under way together, not once for each of them."""
        self._growing_fast = False
        if began >= self._halved:
            self._level = max(1.0, self._level / 2)
            self._halved = time.monotonic()


def _gone(error: EngineError) -> EngineError:
    """Nobody was there, try after try, for this prompt and all others: none would fare better."""
    return EngineError(
        error.message,
        reason=error.reason,
        fatal=True,
        hint="is it still running? what was answered is kept: run the same command again to go on",
    )


class Window:
    """A limit per minute, kept by spacing: what is taken now is paid for by the time until the next."""

    def __init__(self, per_minute: float | None) -> None:
        self.limited = per_minute is not None
        self._rate = (per_minute or 0.0) / 60
        self._free = 0.0  # when the next may go

    def take(self, amount: float) -> float:
        """Seconds to wait before this may go."""
        now = time.monotonic()
        begin = max(now, self._free)
        self._free = begin + amount / self._rate
        return begin - now

    def correct(self, amount: float) -> None:
        """What was taken turned out to be more, or less."""
        self._free += amount / self._rate


def guess_tokens(prompt: Prompt) -> int:
    """About how many tokens a prompt has, before the server has counted."""
    return sum(len(span.text) for turn in prompt.turns for span in turn.spans) // _CHARACTERS


def tokens_of(usage: Usage) -> int:
    """All tokens that count against a limit."""
    return usage.computed + usage.reused + usage.generated
