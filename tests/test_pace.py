from __future__ import annotations

import asyncio
import time

import pytest

from evenhand.core.engine import Answer, Engine, Usage
from evenhand.core.errors import EngineError
from evenhand.core.protocol import Prompt
from evenhand.running.pace import BudgetError, Limits, Pace

PROMPT = Prompt(())


class Server(Engine):
    """Takes `room` prompts at once and refuses the others; each takes `seconds`."""

    def __init__(self, room: int, *, concurrency: int = 64, seconds: float = 0.002) -> None:
        self.room, self.concurrency, self.seconds = room, concurrency, seconds
        self.busy = self.most = self.refused = self.served = 0

    @property
    def identity(self) -> dict[str, str]:
        return {"model": "server"}

    async def answer(self, prompt: Prompt) -> Answer:
        self.busy += 1
        self.most = max(self.most, self.busy)
        try:
            await asyncio.sleep(self.seconds)
            if self.busy > self.room:
                self.refused += 1
                raise EngineError("too many", reason="rate_limited", retryable=True, overloaded=True)
            self.served += 1
            return Answer("A", usage=Usage(100))
        finally:
            self.busy -= 1


class Failing(Engine):
    def __init__(self, *errors: EngineError) -> None:
        self.errors = list(errors)
        self.asked: list[float] = []

    @property
    def identity(self) -> dict[str, str]:
        return {"model": "failing"}

    async def answer(self, prompt: Prompt) -> Answer:
        self.asked.append(time.monotonic())
        if self.errors:
            raise self.errors.pop(0)
        return Answer("A")


class Clock:
    """Sleeps that take no time, and are remembered."""

    def __init__(self) -> None:
        self.slept: list[float] = []

    async def __call__(self, seconds: float) -> None:
        self.slept.append(seconds)
        await asyncio.sleep(0)


def retryable(**more: float) -> EngineError:
    return EngineError("busy", reason="server_error", retryable=True, retry_after=more.get("retry_after"))


async def ask_many(pace: Pace, count: int) -> list[Answer]:
    return await asyncio.gather(*(pace.ask(PROMPT) for _ in range(count)))


def test_concurrency_grows_to_what_is_allowed_where_the_server_keeps_up() -> None:
    server = Server(room=1000, concurrency=32)
    asyncio.run(ask_many(Pace(server), 600))
    assert server.most == 32


def test_concurrency_settles_near_the_servers_room() -> None:
    server = Server(room=10, concurrency=64)
    pace = Pace(server, Limits(retries=50), sleep=Clock())
    asyncio.run(ask_many(pace, 2000))
    assert server.served == 2000
    assert server.refused < 300
    assert pace.level <= 20


def test_concurrency_limit_is_kept() -> None:
    server = Server(room=1000, concurrency=64)
    asyncio.run(ask_many(Pace(server, Limits(concurrency=3)), 50))
    assert server.most == 3


def test_a_retryable_failure_is_asked_again_with_growing_waits() -> None:
    clock = Clock()
    engine = Failing(*(retryable() for _ in range(5)))
    answer = asyncio.run(Pace(engine, sleep=clock).ask(PROMPT))
    assert answer.text == "A"
    assert len(engine.asked) == 6
    for number, seconds in enumerate(clock.slept):
        assert 0.25 * 2**number <= seconds <= 0.75 * 2**number


def test_retries_have_an_end() -> None:
    engine = Failing(*(retryable() for _ in range(50)))
    with pytest.raises(EngineError, match="busy"):
        asyncio.run(Pace(engine, Limits(retries=3), sleep=Clock()).ask(PROMPT))
    assert len(engine.asked) == 4


def test_retry_after_is_honoured() -> None:
    clock = Clock()
    asyncio.run(Pace(Failing(retryable(retry_after=0.05)), sleep=clock).ask(PROMPT))
    assert clock.slept[0] >= 0.05


@pytest.mark.parametrize("error", [EngineError("no", fatal=True, retryable=True), EngineError("no")])
def test_what_no_retry_can_mend_is_raised_at_once(error: EngineError) -> None:
    engine = Failing(error)
    with pytest.raises(EngineError, match="no"):
        asyncio.run(Pace(engine).ask(PROMPT))
    assert len(engine.asked) == 1


def nobody_there() -> EngineError:
    return EngineError("cannot be reached any more", reason="connection", retryable=True, nobody_there=True)


def test_a_server_that_is_gone_ends_the_run() -> None:
    engine = Failing(*(nobody_there() for _ in range(50)))
    with pytest.raises(EngineError, match="run the same command again") as failed:
        asyncio.run(Pace(engine, sleep=Clock()).ask(PROMPT))
    assert failed.value.fatal
    assert failed.value.reason == "connection"
    assert len(engine.asked) == 7


@pytest.mark.parametrize(
    "errors",
    [
        [*(nobody_there() for _ in range(5)), retryable(), nobody_there()],  # it was there once
        [*(nobody_there() for _ in range(6)), retryable()],  # and is there again
        [*(retryable() for _ in range(5)), nobody_there(), nobody_there()],  # for moments
    ],
)
def test_a_server_that_was_there_meanwhile_is_not_gone(errors: list[EngineError]) -> None:
    with pytest.raises(EngineError) as failed:
        asyncio.run(Pace(Failing(*errors), sleep=Clock()).ask(PROMPT))
    assert not failed.value.fatal


def test_an_answer_to_another_prompt_is_a_sign_of_life() -> None:
    class OnlyOne(Server):
        async def answer(self, prompt: Prompt) -> Answer:
            if prompt is PROMPT:
                raise nobody_there()
            return await super().answer(prompt)

    async def main() -> None:
        async def ask_another(_: float) -> None:
            await pace.ask(Prompt(()))

        pace = Pace(OnlyOne(room=10, concurrency=4), sleep=ask_another)
        with pytest.raises(EngineError) as failed:
            await pace.ask(PROMPT)
        assert not failed.value.fatal

    asyncio.run(main())


def test_waits_differ_between_prompts_but_not_between_runs() -> None:
    def waits(seed: int) -> list[float]:
        clock = Clock()
        asyncio.run(Pace(Failing(*(retryable() for _ in range(4))), seed=seed, sleep=clock).ask(PROMPT))
        return clock.slept

    assert waits(1) == waits(1)
    assert waits(1) != waits(2)


def test_requests_per_minute_are_spaced() -> None:
    engine = Failing()
    pace = Pace(engine, Limits(requests_per_minute=1200))  # one each 50 ms

    async def main() -> None:
        for _ in range(5):
            await pace.ask(PROMPT)

    asyncio.run(main())
    assert engine.asked[-1] - engine.asked[0] >= 0.19


def test_tokens_per_minute_count_what_the_server_counted() -> None:
    server = Server(room=10, seconds=0)
    pace = Pace(server, Limits(tokens_per_minute=60_000))  # 1,000 a second; each answer takes 100

    async def main() -> float:
        began = time.monotonic()
        for _ in range(4):
            await pace.ask(PROMPT)
        return time.monotonic() - began

    assert asyncio.run(main()) >= 0.29


def test_a_budget_of_requests_stops_in_time() -> None:
    engine = Failing()
    pace = Pace(engine, Limits(max_requests=3))

    async def main() -> None:
        for _ in range(5):
            await pace.ask(PROMPT)

    with pytest.raises(BudgetError, match="3 requests"):
        asyncio.run(main())
    assert len(engine.asked) == 3


def test_a_cancelled_prompt_gives_its_place_back() -> None:
    server = Server(room=10, concurrency=1, seconds=0.05)
    pace = Pace(server)

    async def main() -> int:
        tasks = [asyncio.create_task(pace.ask(PROMPT)) for _ in range(3)]
        await asyncio.sleep(0.01)
        tasks[0].cancel()
        tasks[1].cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await pace.ask(PROMPT)
        return server.served

    assert asyncio.run(main()) == 2


def test_what_was_asked_before_the_budget_was_used_up_is_waited_for() -> None:
    server = Server(room=10, concurrency=4, seconds=0.05)
    pace = Pace(server, Limits(max_requests=3))

    async def main() -> list[Answer | BaseException]:
        return await asyncio.gather(*(pace.ask(PROMPT) for _ in range(4)), return_exceptions=True)

    began = time.monotonic()
    *answers, refused = asyncio.run(main())
    assert [type(answer) for answer in answers] == [Answer] * 3
    assert isinstance(refused, BudgetError)
    assert time.monotonic() - began >= 0.05

    async def stopped_by_the_first() -> None:
        async with asyncio.TaskGroup() as group:
            for _ in range(4):
                group.create_task(pace.ask(PROMPT))

    pace = Pace(server, Limits(max_requests=3))
    with pytest.raises(ExceptionGroup):
        asyncio.run(stopped_by_the_first())
    assert server.served == 6


def test_a_budget_does_not_wait_for_prompts_that_a_limit_holds_back() -> None:
    pace = Pace(Server(room=10, concurrency=4), Limits(max_requests=1, requests_per_minute=2))

    async def main() -> None:
        async with asyncio.TaskGroup() as group:
            for _ in range(4):
                group.create_task(pace.ask(PROMPT))

    pace.limits = Limits(max_requests=0)
    began = time.monotonic()
    with pytest.raises(ExceptionGroup):
        asyncio.run(main())
    assert time.monotonic() - began < 20, "not the minute and a half that the last would wait"


def test_what_was_asked_before_a_failure_for_all_is_waited_for() -> None:
    """A key that is withdrawn in the middle of a run costs nothing that is paid for already."""

    class Withdrawn(Server):
        async def answer(self, prompt: Prompt) -> Answer:
            if self.served + self.busy == 3:
                raise EngineError("the key is withdrawn", reason="wrong_key", fatal=True)
            return await super().answer(prompt)

    server = Withdrawn(room=10, concurrency=4, seconds=0.05)
    pace = Pace(server)

    async def main() -> list[Answer | BaseException]:
        return await asyncio.gather(*(pace.ask(PROMPT) for _ in range(4)), return_exceptions=True)

    kinds = [type(found) for found in asyncio.run(main())]
    assert kinds.count(Answer) == 3
    assert kinds.count(EngineError) == 1

    async def stopped_by_the_first() -> None:
        async with asyncio.TaskGroup() as group:
            for _ in range(4):
                group.create_task(pace.ask(PROMPT))

    server.served = 0
    pace.begin()
    with pytest.raises(ExceptionGroup):
        asyncio.run(stopped_by_the_first())
    assert server.served == 3
    with pytest.raises(EngineError, match="withdrawn"):
        asyncio.run(pace.ask(PROMPT))
    assert server.served == 3, "nothing is asked in the same run once it is over"
