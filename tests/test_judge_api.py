"""The Judge: in a script, inside a running loop, from async code, twice at once, closed early, closed twice."""

from __future__ import annotations

import asyncio
import itertools
import subprocess
import sys
import threading
import time
from collections.abc import Coroutine, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from evenhand import EngineError, InputError, Judge, Pair, Protocol, ScriptedEngine
from evenhand.core.engine import Answer
from evenhand.core.protocol import Prompt
from evenhand.engines.catalog import ModelFile
from evenhand.engines.llama import LlamaEngine
from evenhand.engines.scripted import Script

TIME_LIMIT = 60.0


class Slow(ScriptedEngine):
    """Takes its time, and says whether it was closed."""

    def __init__(self, seconds: float = 0.01, script: Script | None = None) -> None:
        super().__init__(script or (lambda _: "A"))
        self.seconds, self.begun, self.closed, self.cancelled = seconds, 0, 0, 0

    async def answer(self, prompt: Prompt) -> Answer:
        self.begun += 1
        try:
            await asyncio.sleep(self.seconds)
        except asyncio.CancelledError:
            self.cancelled += 1
            raise
        return await super().answer(prompt)

    async def close(self) -> None:
        self.closed += 1


def scripted(said: str = "A") -> ScriptedEngine:
    return ScriptedEngine(lambda _: said)


def pairs(count: int) -> list[Pair]:
    return [Pair(f"Question {n}", "x", "y", id=f"p{n}") for n in range(count)]


def endless() -> Iterator[Pair]:
    return (Pair(f"Question {n}", "x", "y") for n in itertools.count())


@pytest.fixture(autouse=True)
def no_thread_is_left() -> Iterator[None]:
    """Whatever a test does with its judges, their threads end with them, and soon."""
    before = set(threading.enumerate())
    yield
    deadline = time.monotonic() + TIME_LIMIT
    while set(threading.enumerate()) - before and time.monotonic() < deadline:
        time.sleep(0.01)
    assert set(threading.enumerate()) <= before


# -- in a script ------------------------------------------------------------------------------------------


def test_compare_texts_and_a_pair() -> None:
    with Judge(scripted(), "overall") as judge:
        assert judge.compare("Hi", "x", "y")["overall"].side_in("forward") == "1"
        assert judge.compare(Pair("Hi", "x", "y", id="mine")).pair.id == "mine"


def test_judge_streams_in_order() -> None:
    with Judge(scripted(), "overall") as judge:
        assert [j.pair.id for j in judge.judge(pairs(200))] == [f"p{n}" for n in range(200)]


def test_a_protocol_by_name_by_path_and_ready_made(tmp_path: Path) -> None:
    file = tmp_path / "mine.txt"
    file.write_text("<|im_start|>user\n{instruction}{output_1}{output_2}\nWhich is best, A, B, or tie?<|im_end|>")
    for protocol in ("overall", file, str(file), Protocol.load(file)):
        with Judge(scripted(), protocol) as judge:
            assert judge.compare("Hi", "x", "y")["overall"].inconsistent


def test_verdicts_are_kept_in_the_database(db: Path) -> None:
    with Judge(scripted(), "overall", db=db) as judge:
        list(judge.judge(pairs(3)))
    engine = scripted("B")
    with Judge(engine, "overall", db=db) as judge:
        found = list(judge.judge(pairs(3)))
    assert engine.asked == 0
    assert [j["overall"].side_in("forward") for j in found] == ["1"] * 3


def test_orders_and_seed_are_passed_on() -> None:
    with Judge(scripted(), "overall", orders="swapped") as judge:
        assert judge.compare("Hi", "x", "y")["overall"].side == "2"


def test_raw_markup_reaches_the_engine() -> None:
    seen: list[Prompt] = []
    engine = ScriptedEngine(lambda prompt: seen.append(prompt) or "A")  # type: ignore[func-returns-value]
    with Judge(engine, "overall", raw_markup=True, orders="forward") as judge:
        judge.compare("Hi", "x", "y")
    assert seen[0].raw is not None
    assert "".join(span.text for span in seen[0].raw).endswith("<|im_start|>assistant\n")


def test_wrong_names_are_refused_before_anything_is_opened(db: Path) -> None:
    with pytest.raises(InputError, match="did you mean 'overall'"):
        Judge(scripted(), "overal", db=db)
    with pytest.raises(InputError):
        Judge("no-such-model", "overall", db=db)
    assert not db.exists()


def test_an_error_reaches_the_caller_and_the_judge_goes_on() -> None:
    def moody(prompt: Prompt) -> str:
        if any("bad" in turn.text.splitlines()[1:2] for turn in prompt.turns):
            raise EngineError("wrong key", fatal=True)
        return "A"

    with Judge(ScriptedEngine(moody), "overall") as judge:
        with pytest.raises(EngineError, match="wrong key"):
            judge.compare("bad", "x", "y")
        assert judge.compare("good", "x", "y")["overall"].inconsistent


def test_a_fault_in_the_callers_iterable_reaches_the_caller() -> None:
    def broken() -> Iterator[Pair]:
        yield from pairs(2)
        raise ValueError("no more")

    with Judge(scripted(), "overall") as judge, pytest.raises(ValueError, match="no more"):
        list(judge.judge(broken()))


# -- closing ----------------------------------------------------------------------------------------------


def test_leaving_the_loop_early_stops_the_run() -> None:
    engine = Slow(0.001)
    with Judge(engine, "overall") as judge:
        for number, _ in enumerate(judge.judge(endless())):
            if number == 4:
                break
    asked = engine.asked
    time.sleep(0.05)
    assert engine.asked == asked


def test_a_run_is_closed_with_more_waiting_than_anyone_takes() -> None:
    """The engine is far quicker than the caller: what it did ahead must not keep the run from ending."""
    with Judge(scripted(), "overall") as judge:
        run = judge.run(endless())
        assert run.take() is not None
        time.sleep(0.3)
        began = time.monotonic()
        run.close()
        assert time.monotonic() - began < TIME_LIMIT


def test_when_close_returns_the_run_is_over() -> None:
    engine = Slow(0.05)
    with Judge(engine, "overall") as judge:
        run = judge.run(endless())
        run.take()
        run.close()
        asked = engine.asked
        assert judge.store._db.execute("SELECT count(*) FROM runs WHERE ended IS NULL").fetchone() == (0,)
        claimed = "SELECT count(*) FROM claims"
        assert judge.store._db.execute(claimed).fetchone() == (0,)
        time.sleep(0.1)
        assert engine.asked == asked


def test_a_run_is_closed_twice_and_after_its_end() -> None:
    with Judge(scripted(), "overall") as judge:
        run = judge.run(pairs(2))
        assert len(list(run)) == 2
        assert run.take() is None
        run.close()
        run.close()
        assert run.take() is None


def test_an_interrupt_while_a_question_is_put_loses_neither_it_nor_its_answer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Ctrl-C between sending the question to the loop and noting that it stands there."""
    with Judge(Slow(0.1), "overall") as judge, judge.run(pairs(3)) as run:
        with monkeypatch.context() as patched:
            submit = run._loop.submit

            def interrupted(work: Coroutine[Any, Any, Any]) -> Any:
                submit(work)
                raise KeyboardInterrupt

            patched.setattr(run._loop, "submit", interrupted)
            with pytest.raises(KeyboardInterrupt):
                run.take()
        assert {judgment.pair.id for judgment in run} == {"p0", "p1", "p2"}
    with Judge(Slow(60), "overall") as judge, judge.run(pairs(3)) as run:
        run._loop.submit(run._take())
        run._loop.submit(run._take())  # and the run can still be closed


def test_a_run_that_nobody_takes_from_is_closed() -> None:
    with Judge(scripted(), "overall") as judge, judge.run(endless()):
        pass


def test_closing_early_loses_nothing_that_was_answered(db: Path) -> None:
    first = Slow(0.002)
    with Judge(first, "overall", db=db) as judge, judge.run(endless()) as run:
        for _ in range(5):
            run.take()
    again = scripted()
    with Judge(again, "overall", db=db) as judge:
        list(judge.judge(itertools.islice(endless(), first.asked // 2)))
    assert again.asked <= 1


def test_the_source_is_not_read_far_ahead() -> None:
    read = itertools.count()
    source = (Pair(f"Question {n}", "x", "y") for n in read)
    with Judge(scripted(), "overall") as judge, judge.run(source) as run:
        for _ in range(5):
            run.take()
        time.sleep(0.3)
    # Those taken, those that were ready with them and came along, those that wait, those that are begun.
    assert next(read) <= 5 + 64 + 64 + 4


def test_close_stops_the_engine_once_and_may_be_called_twice() -> None:
    engine = Slow()
    judge = Judge(engine, "overall")
    judge.compare("Hi", "x", "y")
    judge.close()
    judge.close()
    assert engine.closed == 1


def test_closing_the_judge_ends_a_run_that_is_under_way() -> None:
    judge = Judge(Slow(), "overall")
    run = judge.run(endless())
    assert run.take() is not None
    judge.close()
    assert run.take() is None


def test_a_closed_judge_says_so() -> None:
    judge = Judge(scripted(), "overall")
    judge.close()
    with pytest.raises(RuntimeError, match="closed"):
        judge.compare("Hi", "x", "y")


# -- with an event loop -----------------------------------------------------------------------------------


def test_plain_calls_inside_a_running_loop_as_in_a_notebook() -> None:
    async def cell() -> int:
        with Judge(scripted(), "overall") as judge:
            judge.compare("Hi", "x", "y")
            return len(list(judge.judge(pairs(3))))

    assert asyncio.run(cell()) == 3


def test_async_calls() -> None:
    async def main() -> list[str]:
        with Judge(scripted(), "overall") as judge:
            one = await judge.acompare("Hi", "x", "y")
            return [one.pair.id] + [j.pair.id async for j in judge.ajudge(pairs(3))]

    assert asyncio.run(main())[1:] == ["p0", "p1", "p2"]


def test_async_calls_leave_the_callers_loop_free() -> None:
    ticks = 0

    class Watching(ScriptedEngine):
        """Answers once it has seen the caller's loop go on, or when it has waited for that in vain."""

        async def answer(self, prompt: Prompt) -> Answer:
            deadline = time.monotonic() + TIME_LIMIT
            while ticks < 5 and time.monotonic() < deadline:  # noqa: ASYNC110
                await asyncio.sleep(0.005)
            return await super().answer(prompt)

    async def main() -> int:
        nonlocal ticks
        with Judge(Watching(lambda _: "A"), "overall") as judge:
            waiting = asyncio.create_task(judge.acompare("Hi", "x", "y"))
            while not waiting.done():
                await asyncio.sleep(0.005)
                ticks += 1
        return ticks

    assert asyncio.run(main()) >= 5


def test_many_async_comparisons_at_once() -> None:
    async def main() -> list[str]:
        with Judge(Slow(0.001), "overall") as judge:
            found = await asyncio.gather(*(judge.acompare(pair) for pair in pairs(10)))
        return [j.pair.id for j in found]

    assert asyncio.run(main()) == [f"p{n}" for n in range(10)]


def test_an_async_loop_left_early_stops_the_run() -> None:
    engine = Slow(0.001)

    async def main() -> None:
        with Judge(engine, "overall") as judge:
            stream = judge.ajudge(endless())
            async for _ in stream:
                break
            await stream.aclose()
            asked = engine.asked
            await asyncio.sleep(0.05)
            assert engine.asked == asked

    asyncio.run(main())


def test_a_cancelled_async_caller_cancels_the_question() -> None:
    engine = Slow(600)

    async def cancel(work: Coroutine[Any, Any, Any]) -> None:
        """Once its question is under way."""
        begun, task = engine.begun, asyncio.create_task(work)
        while engine.begun == begun:  # noqa: ASYNC110 (it is asked in another loop)
            await asyncio.sleep(0.005)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    async def main() -> None:
        with Judge(engine, "overall") as judge:
            await cancel(judge.acompare("Hi", "x", "y"))

            async def take() -> None:
                async for _ in judge.ajudge(endless()):
                    raise AssertionError("nothing is answered within ten minutes")

            await cancel(take())

    began = time.monotonic()
    asyncio.run(main())
    assert time.monotonic() - began < TIME_LIMIT
    assert engine.cancelled == 2


# -- several judges ---------------------------------------------------------------------------------------


def test_two_judges_at_once() -> None:
    with Judge(scripted("A"), "overall") as one, Judge(scripted("B"), "overall") as two:
        both = list(zip(one.judge(pairs(5)), two.judge(pairs(5)), strict=True))
    assert [(a["overall"].side_in("forward"), b["overall"].side_in("forward")) for a, b in both] == [("1", "2")] * 5


def test_two_judges_on_one_database_ask_everything_once(db: Path) -> None:
    engines: list[Slow] = []

    class Beside(Slow):
        """Answers nothing before the other is asked as well."""

        async def answer(self, prompt: Prompt) -> Answer:
            answer = asyncio.create_task(super().answer(prompt))
            deadline = time.monotonic() + TIME_LIMIT
            while not all(engine.begun for engine in engines) and time.monotonic() < deadline:  # noqa: ASYNC110
                await asyncio.sleep(0.002)
            return await answer

    engines += [Beside(0.002), Beside(0.002)]

    def work(engine: Slow) -> int:
        with Judge(engine, "overall", db=db) as judge:
            return sum(not j["overall"].invalid for j in judge.judge(pairs(30)))

    with ThreadPoolExecutor(2) as pool:
        assert list(pool.map(work, engines)) == [30, 30]
    assert engines[0].asked + engines[1].asked == 60
    assert min(engine.asked for engine in engines) > 0


def test_one_judge_from_several_threads() -> None:
    with Judge(Slow(0.001), "overall") as judge, ThreadPoolExecutor(4) as pool:
        found = list(pool.map(judge.compare, pairs(12)))
    assert [j.pair.id for j in found] == [f"p{n}" for n in range(12)]


OTHER = """
import sys
from evenhand import Judge, Pair, ScriptedEngine
with Judge(ScriptedEngine(lambda prompt: "A"), "overall", db=sys.argv[1]) as judge:
    pairs = (Pair(f"Question {n}", "x", "y", id=f"p{n}") for n in range(100))
    print(sum(j["overall"].side is not None for j in judge.judge(pairs)))
"""


def test_a_judge_over_a_database_that_another_process_uses(db: Path) -> None:
    with Judge(Slow(0.005), "overall", db=db) as judge:
        other = subprocess.Popen([sys.executable, "-c", OTHER, str(db)], stdout=subprocess.PIPE)
        mine = sum(j["overall"].side is not None for j in judge.judge(pairs(100)))
        said, _ = other.communicate(timeout=60)
    assert (mine, said) == (100, b"100\n")


def test_the_default_protocol_goes_by_where_the_model_runs(smollm: ModelFile) -> None:
    with Judge(LlamaEngine(smollm)) as here, Judge(scripted()) as elsewhere:
        assert (here.setup.protocol.name, elsewhere.setup.protocol.name) == ("weighed", "chained")
