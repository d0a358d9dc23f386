"""Many pairs with a scripted engine: orders, chains, what is kept, what fails, what is read ahead."""

from __future__ import annotations

import asyncio
import itertools
import re
import sqlite3
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import aclosing, closing, suppress
from dataclasses import replace
from pathlib import Path

import pytest

from evenhand.core.engine import Answer
from evenhand.core.errors import EngineError, StoreError
from evenhand.core.judge import Judgment, Orders, Setup
from evenhand.core.pair import Pair
from evenhand.core.protocol import Prompt, Protocol
from evenhand.engines.scripted import Script, ScriptedEngine
from evenhand.running.pace import BudgetError, Limits
from evenhand.running.runner import Run
from evenhand.store import Entry, Store


class Scribe(ScriptedEngine):
    """Writes down every prompt, and takes its time if told to, so that several are under way at once."""

    def __init__(self, script: Script, *, concurrency: int = 1, seconds: float = 0.0) -> None:
        super().__init__(script, concurrency=concurrency)
        self.prompts: list[Prompt] = []
        self.seconds, self.busy, self.busiest = seconds, 0, 0

    async def answer(self, prompt: Prompt) -> Answer:
        self.prompts.append(prompt)
        self.busy += 1
        self.busiest = max(self.busy, self.busiest)
        try:
            await asyncio.sleep(self.seconds)
            return await super().answer(prompt)
        finally:
            self.busy -= 1


def always(said: str) -> Script:
    return lambda _: said


def text_of(prompt: Prompt) -> str:
    return "\n".join(turn.text for turn in prompt.turns)


def shown(prompt: Prompt) -> tuple[str, ...]:
    """What the prompt holds of the pair."""
    return tuple(span.text for turn in prompt.turns for span in turn.spans if not span.trusted)


def pairs(count: int) -> list[Pair]:
    return [Pair(f"Question {n}", f"one {n}", f"two {n}", id=f"p{n}") for n in range(count)]


def setup(engine: ScriptedEngine, protocol: str = "overall") -> Setup:
    return Setup(engine, Protocol.load(protocol))


def judged(
    engine: ScriptedEngine,
    work: Iterable[Pair],
    db: Path | str = ":memory:",
    *,
    protocol: str = "overall",
    orders: Orders = "both",
    seed: int = 0,
) -> list[Judgment]:
    """A whole run in a store of its own."""

    async def run() -> list[Judgment]:
        with Store(db) as store:
            return [j async for j in Run(setup(engine, protocol), work, store, orders=orders, seed=seed)]

    return asyncio.run(run())


def taken(engine: ScriptedEngine, work: Iterable[Pair], count: int, db: Path | str = ":memory:") -> list[Judgment]:
    """The first judgments of a run that is closed after them."""

    async def run() -> list[Judgment]:
        with Store(db) as store:
            async with aclosing(aiter(Run(setup(engine), work, store))) as stream:
                return [await anext(stream) for _ in range(count)]

    return asyncio.run(run())


# -- a budget ---------------------------------------------------------------------------------------------


async def until_the_budget(run: Run) -> list[str]:
    found: list[str] = []
    with suppress(BudgetError):
        async for judgment in run:
            found.append(judgment.pair.id)
    return found


@pytest.mark.parametrize(
    ("protocol", "budget", "done"),
    [("overall", 2, 1), ("overall", 8, 4), ("overall", 25, 12), ("chained", 24, 3), ("chained", 7, 0)],
)
def test_a_budget_is_spent_on_finishing_pairs(protocol: str, budget: int, done: int) -> None:
    engine = Scribe(always("A"), concurrency=16, seconds=0.002)

    async def run() -> list[str]:
        with Store(":memory:") as store:
            limits = Limits(max_requests=budget)
            return await until_the_budget(Run(setup(engine, protocol), pairs(40), store, limits=limits))

    assert len(asyncio.run(run())) == done
    assert len(engine.prompts) == budget, "and all of it"


def test_runs_with_a_budget_for_half_a_pair_come_to_an_end(tmp_path: Path) -> None:
    engine = Scribe(always("A"), concurrency=8)

    async def run() -> list[str]:
        with Store(tmp_path / "v.db") as store:
            return await until_the_budget(Run(setup(engine), pairs(3), store, limits=Limits(max_requests=1)))

    assert [len(asyncio.run(run())) for _ in range(6)] == [0, 1, 1, 2, 2, 3]
    assert len(engine.prompts) == 6


def test_a_run_that_is_stopped_begins_no_pair_that_waits_for_the_budget() -> None:
    engine = Scribe(always("A"), concurrency=8, seconds=0.02)

    async def run() -> list[str]:
        with Store(":memory:") as store:
            run = Run(setup(engine), pairs(8), store, limits=Limits(max_requests=5))
            asyncio.get_running_loop().call_later(0.01, run.stop)
            return await until_the_budget(run)

    assert len(asyncio.run(run())) == 2
    assert len(engine.prompts) == 4


# -- orders -----------------------------------------------------------------------------------------------


def test_results_come_in_the_order_of_the_pairs() -> None:
    assert [j.pair.id for j in judged(Scribe(always("A")), pairs(10))] == [f"p{n}" for n in range(10)]


def test_both_orders_are_heard_one_after_the_other() -> None:
    engine = Scribe(always("A"))
    (judgment,) = judged(engine, pairs(1))
    assert [shown(p) for p in engine.prompts] == [
        ("Question 0", "one 0", "two 0"),
        ("Question 0", "two 0", "one 0"),
    ]
    assert (judgment["overall"].side_in("forward"), judgment["overall"].side_in("swapped")) == ("1", "2")
    assert judgment["overall"].inconsistent
    assert judgment.asked == 2


@pytest.mark.parametrize(("orders", "first", "side"), [("forward", "one 0", "1"), ("swapped", "two 0", "2")])
def test_one_order_alone(orders: Orders, first: str, side: str) -> None:
    engine = Scribe(always("A"))
    (judgment,) = judged(engine, pairs(1), orders=orders)
    assert [shown(p)[1] for p in engine.prompts] == [first]
    assert judgment["overall"].side == side
    assert list(judgment["overall"].orders) == [orders]


def orders_judged(seed: int) -> list[str]:
    found = judged(Scribe(always("A")), pairs(40), orders="random", seed=seed)
    return [order for j in found for order in j["overall"].orders]


def test_random_orders_are_one_each_and_follow_from_the_seed() -> None:
    judged = orders_judged(seed=1)
    assert len(judged) == 40
    assert 10 < judged.count("forward") < 30
    assert judged == orders_judged(seed=1) != orders_judged(seed=2)


def test_a_random_order_does_not_depend_on_the_other_pairs() -> None:
    alone = [judged(Scribe(always("A")), [pair], orders="random")[0] for pair in pairs(20)]
    together = judged(Scribe(always("A")), reversed(pairs(20)), orders="random")
    assert {j.pair.id: set(j["overall"].orders) for j in alone} == {
        j.pair.id: set(j["overall"].orders) for j in together
    }


# -- what is kept -----------------------------------------------------------------------------------------


def test_a_run_repeated_asks_nothing_and_finds_the_same(db: Path) -> None:
    first, second = Scribe(always("A")), Scribe(always("B"))
    before = judged(first, pairs(5), db)
    after = judged(second, pairs(5), db)
    assert (first.asked, second.asked) == (10, 0)
    assert [j.outcomes for j in after] == [j.outcomes for j in before]
    assert sum(j.asked for j in after) == 0


def test_only_what_is_new_is_asked(db: Path) -> None:
    judged(Scribe(always("A")), pairs(3), db, orders="forward")
    engine = Scribe(always("A"))
    judged(engine, pairs(5), db)
    assert engine.asked == 3 + 2 * 2


def test_an_exchanged_pair_asks_nothing_new(db: Path) -> None:
    judged(Scribe(always("A")), [Pair("Hi", "x", "y")], db)
    engine = Scribe(always("A"))
    judged(engine, [Pair("Hi", "y", "x")], db)
    assert engine.asked == 0


def test_another_protocol_asks_again(db: Path) -> None:
    judged(Scribe(always("A")), pairs(1), db)
    engine = Scribe(always("A"))
    judged(engine, pairs(1), db, protocol="format")
    assert engine.asked == 2


def test_the_store_tells_the_same_as_the_run(db: Path) -> None:
    live = judged(Scribe(lambda _: {"A": 0.5, "B": 0.3, "tie": 0.1}), pairs(3), db, protocol="four")
    with Store(db) as store:
        (row,) = store.judges()
        stored = list(store.judgments(row))
    assert [j.pair for j in stored] == [j.pair for j in live]
    for one, other in zip(live, stored, strict=True):
        assert one.outcomes.keys() == other.outcomes.keys()
        for name in one.outcomes:
            assert one[name].side == other[name].side
            assert one[name].p == pytest.approx(other[name].p)


# -- chains -----------------------------------------------------------------------------------------------


def one_after_another() -> Script:
    answers = itertools.cycle(["A", "B", "tie", "A"])
    return lambda _: next(answers)


def test_a_chain_carries_earlier_verdicts_into_later_prompts() -> None:
    engine = Scribe(one_after_another())
    judged(engine, pairs(1), protocol="chained", orders="forward")
    said = [[turn.text for turn in p.turns if turn.role == "assistant"] for p in engine.prompts]
    worked = len(said[0])  # the template's own worked examples stand before
    assert [answers[worked:] for answers in said] == [[], ["A"], ["A", "B"], ["A", "B", "tie"]]


def test_a_later_prompt_of_a_chain_begins_with_the_whole_earlier_one() -> None:
    engine = Scribe(one_after_another())
    judged(engine, pairs(1), protocol="chained", orders="forward")
    for earlier, later in itertools.pairwise(engine.prompts):
        assert later.turns[: len(earlier.turns)] == earlier.turns


def test_a_chain_goes_on_where_it_stopped(db: Path) -> None:
    judged(Scribe(failing_at(3)), pairs(1), db, protocol="chained", orders="forward")
    engine = Scribe(always("tie"))
    (judgment,) = judged(engine, pairs(1), db, protocol="chained", orders="forward")
    assert engine.asked == 2
    assert {name: outcome.side for name, outcome in judgment.outcomes.items()} == {
        "precision": "1",
        "correctness": "1",
        "format": "tie",
        "overall": "tie",
        "combined": "1",
    }
    assert [t.text for t in engine.prompts[0].turns if t.role == "assistant"][-2:] == ["A", "A"]


def test_an_unreadable_answer_leaves_the_rest_of_the_chain_unasked(db: Path) -> None:
    answers = iter(["A", "Both have merit."])
    engine = Scribe(lambda _: next(answers))
    (judgment,) = judged(engine, pairs(1), db, protocol="chained", orders="forward")
    assert engine.asked == 2
    reasons = [outcome.invalid for outcome in judgment.outcomes.values()]
    assert reasons == [None, "unreadable", "not_asked", "not_asked", "unreadable"]
    assert judgment["correctness"].orders["forward"].raw == "Both have merit."
    again = Scribe(always("A"))
    judged(again, pairs(1), db, protocol="chained", orders="forward")
    assert again.asked == 0, "an answer that cannot be read is an answer: it is not asked again"


# -- failures ---------------------------------------------------------------------------------------------


def failing_at(number: int, error: EngineError | None = None) -> Script:
    """Says A, but fails when asked for the nth time."""
    count = itertools.count(1)

    def script(_: Prompt) -> str:
        if next(count) == number:
            raise error or EngineError("out of breath", reason="breathless")
        return "A"

    return script


def test_a_failure_is_a_row_and_the_run_goes_on(db: Path) -> None:
    found = judged(Scribe(failing_at(3)), pairs(3), db)
    assert [j["overall"].invalid for j in found] == [None, "breathless", None]
    assert [j["overall"].side for j in found][1] is None


def test_a_failure_is_tried_again_in_the_next_run_and_only_it(db: Path) -> None:
    judged(Scribe(failing_at(3)), pairs(3), db)
    engine = Scribe(always("B"))
    found = judged(engine, pairs(3), db)
    assert engine.asked == 1
    assert [j["overall"].invalid for j in found] == [None] * 3


@pytest.mark.parametrize("protocol", ["overall", "four", "chained"])
def test_a_failure_reads_the_same_live_and_from_the_store(db: Path, protocol: str) -> None:
    (live,) = judged(Scribe(failing_at(2, EngineError("no", reason="why"))), pairs(1), db, protocol=protocol)
    with Store(db) as store:
        (stored,) = store.judgments(store.judges()[0])
    assert {n: f.invalid for n, f in live.outcomes.items()} == {n: f.invalid for n, f in stored.outcomes.items()}


def test_a_fatal_error_stops_the_run_and_keeps_what_was_answered(db: Path) -> None:
    engine = Scribe(failing_at(6, EngineError("wrong key", fatal=True)))
    with pytest.raises(EngineError, match="wrong key"):
        judged(engine, pairs(10), db)
    assert engine.asked == 6
    again = Scribe(always("A"))
    judged(again, pairs(10), db)
    assert again.asked == 20 - 5


def test_nothing_is_asked_after_a_fatal_error_and_all_that_was_is_kept(db: Path) -> None:
    """The others answer while the run waits for them; none of their pairs goes on to its other order."""

    class Withdrawn(Scribe):
        async def answer(self, prompt: Prompt) -> Answer:
            if len(self.prompts) == 3:
                self.prompts.append(prompt)
                raise EngineError("wrong key", fatal=True)
            return await super().answer(prompt)

    engine = Withdrawn(always("A"), concurrency=4, seconds=0.05)
    with pytest.raises(EngineError, match="wrong key"):
        judged(engine, pairs(10), db)
    assert len(engine.prompts) == 4
    again = Scribe(always("A"))
    judged(again, pairs(10), db)
    assert again.asked == 20 - 3


def test_any_other_exception_of_an_engine_stops_the_run(db: Path) -> None:
    def broken(_: Prompt) -> str:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        judged(Scribe(broken), pairs(3), db)


def failing_source(count: int) -> Iterator[Pair]:
    yield from pairs(count)
    raise ValueError("line 4 is broken")


@pytest.mark.parametrize("concurrency", [1, 4])
def test_an_exception_in_the_source_of_pairs_propagates(db: Path, concurrency: int) -> None:
    with pytest.raises(ValueError, match="line 4"):
        judged(Scribe(always("A"), concurrency=concurrency), failing_source(3), db)


def test_judgments_before_a_fault_in_the_source_still_come_out() -> None:
    found: list[Judgment] = []

    async def run() -> None:
        with Store(":memory:") as store:
            async for judgment in Run(setup(Scribe(always("A"))), failing_source(3), store):
                found.append(judgment)

    with pytest.raises(ValueError, match="line 4"):
        asyncio.run(run())
    assert len(found) == 3


def test_a_database_that_fills_up_stops_the_run(db: Path) -> None:
    async def run() -> None:
        with Store(db) as store:
            store._db.execute("PRAGMA max_page_count = 60")
            async for _ in Run(setup(Scribe(always("A"))), pairs(10_000), store):
                pass

    with pytest.raises(StoreError, match="full"):
        asyncio.run(run())


# -- several at once --------------------------------------------------------------------------------------


def test_as_many_are_asked_at_once_as_the_engine_takes() -> None:
    engine = Scribe(always("A"), concurrency=4, seconds=0.005)
    assert len(judged(engine, pairs(20))) == 20
    assert engine.busiest == 4


@pytest.mark.parametrize("concurrency", [1, 2, 8])
def test_the_same_content_several_times_is_asked_once(concurrency: int) -> None:
    engine = Scribe(always("A"), concurrency=concurrency, seconds=0.005)
    work = [Pair("Hi", "x", "y", id=str(n)) for n in range(6)] + [
        Pair("Hi", "y", "x", id=f"r{n}") for n in range(6)
    ]
    found = judged(engine, work)
    assert engine.asked == 2
    assert {j.pair.id for j in found} == {pair.id for pair in work}
    assert all(j["overall"].inconsistent for j in found)


def test_fast_pairs_do_not_wait_for_a_slow_one() -> None:
    class Uneven(Scribe):
        async def answer(self, prompt: Prompt) -> Answer:
            for _ in range(500 if "Question 0" in text_of(prompt) else 0):
                await asyncio.sleep(0.01)
                if len(self.prompts) == 19:  # all others have been asked
                    break
            return await super().answer(prompt)

    found = judged(Uneven(always("A"), concurrency=2), pairs(20), orders="forward")
    assert found[-1].pair.id == "p0"


# -- streaming --------------------------------------------------------------------------------------------


class Source:
    """Pairs without end, and how many were taken."""

    def __init__(self, make: Callable[[int], Pair] | None = None) -> None:
        self.make = make or (lambda n: Pair(f"Question {n}", "x", "y"))
        self.read = 0

    def __iter__(self) -> Iterator[Pair]:
        while True:
            self.read += 1
            yield self.make(self.read)


@pytest.mark.parametrize("concurrency", [1, 8])
def test_a_source_without_end_is_read_only_a_little_ahead(concurrency: int) -> None:
    source = Source()
    assert len(taken(Scribe(always("A"), concurrency=concurrency), source, 5)) == 5
    assert source.read <= 5 + 64 + 2 * concurrency


def test_a_source_that_repeats_itself_is_not_read_far_ahead_either() -> None:
    source = Source(lambda _: Pair("Hi", "x", "y"))
    engine = Scribe(always("A"), concurrency=4, seconds=0.1)
    assert len(taken(engine, source, 5)) == 5
    assert engine.asked == 2
    assert source.read <= 5 + 64 + 256 + 2 * 4


def test_closing_early_loses_nothing_that_was_answered(db: Path) -> None:
    first = Scribe(always("A"))
    taken(first, Source(), 5, db)
    again = Scribe(always("A"))
    judged(again, itertools.islice(Source(), first.asked // 2), db)
    assert first.asked >= 10
    assert again.asked <= 1, "only what was under way may be asked again"


def test_closing_early_ends_the_run_and_lets_go_of_its_claims(db: Path) -> None:
    taken(Scribe(always("A"), concurrency=4, seconds=0.01), Source(), 5, db)
    with Store(db) as store:
        assert store._db.execute("SELECT count(*) FROM claims").fetchone() == (0,)
        assert store._db.execute("SELECT count(*) FROM runs WHERE ended IS NULL").fetchone() == (0,)


def test_answers_are_durable_within_moments(db: Path) -> None:
    """Another process sees them while the run goes on, without waiting for the next answer."""

    async def run() -> list[int]:
        seen = []
        with Store(db) as store, Store(db) as other:
            async for _ in Run(setup(Scribe(always("A"))), pairs(3), store):
                await asyncio.sleep(0.3)
                seen.append(other._db.execute("SELECT count(*) FROM answers").fetchone()[0])
        return seen

    assert asyncio.run(run())[0] >= 2


class Halting(Scribe):
    """Answers so many prompts, and then no more."""

    def __init__(self, answers: int, *, concurrency: int) -> None:
        super().__init__(always("A"), concurrency=concurrency)
        self.answers, self.halted = answers, asyncio.Event()

    async def answer(self, prompt: Prompt) -> Answer:
        if len(self.prompts) >= self.answers:
            self.halted.set()
            await asyncio.sleep(60)
        return await super().answer(prompt)


@pytest.mark.parametrize("concurrency", [1, 16])
def test_an_answer_is_durable_within_a_second_of_its_arrival(db: Path, concurrency: int) -> None:
    """Also where the next answer never comes."""

    async def run() -> int:
        with Store(db) as store, closing(sqlite3.connect(db)) as other:
            engine = Halting(20, concurrency=concurrency)
            going = asyncio.create_task(drain(Run(setup(engine), pairs(30), store)))
            await engine.halted.wait()
            await asyncio.sleep(0.9)
            (seen,) = other.execute("SELECT count(*) FROM answers").fetchone()
            going.cancel()
            await asyncio.wait([going])
        return int(seen)

    assert asyncio.run(run()) == 20


class Counting(Store):
    """Counts its groups of answers."""

    groups = 0

    def record_all(self, entries: Sequence[Entry]) -> None:
        self.groups += 1
        super().record_all(entries)


def test_answers_that_come_together_are_written_together(db: Path) -> None:
    async def run() -> int:
        with Counting(db) as store:
            await drain(Run(setup(Scribe(always("A"), concurrency=16)), pairs(200), store))
            return store.groups

    assert asyncio.run(run()) < 400 / 4


@pytest.mark.parametrize("concurrency", [1, 16])
def test_nobody_is_asked_before_the_answer_before_is_durable(db: Path, concurrency: int) -> None:
    """So a kill costs at most what was under way, however many answers are written together."""

    class Looking(Scribe):
        async def answer(self, prompt: Prompt) -> Answer:
            (durable,) = other.execute("SELECT count(*) FROM answers").fetchone()
            lost.append(len(self.prompts) + 1 - durable)
            return await super().answer(prompt)

    lost: list[int] = []

    async def run() -> None:
        with Store(db) as store:
            await drain(Run(setup(Looking(always("A"), concurrency=concurrency), "chained"), pairs(40), store))

    with Store(db), closing(sqlite3.connect(db)) as other:
        asyncio.run(run())
    assert len(lost) == 40 * 2 * 4
    assert max(lost) <= concurrency


def unreadable_now_and_then() -> Script:
    count = itertools.count()
    answers: list[str | Mapping[str, float]] = [
        "A",
        "B",
        "Both have merit.",
        "tie",
        {"A": 0.7, "B": 0.1, "tie": 0.1},
    ]
    return lambda _: answers[next(count) % len(answers)]


@pytest.mark.parametrize("protocol", ["overall", "chained"])
def test_what_is_kept_is_told_again_as_it_was_told_first(db: Path, protocol: str) -> None:
    """Out of the rows of verdicts, without reading the answers again."""
    before = judged(Scribe(unreadable_now_and_then()), pairs(40), db, protocol=protocol)
    with Store(db) as store:
        (row,) = store.judges()
        questions = [question.dimensions for question in Protocol.load(protocol).questions]
        kept = store.kept(row.id, questions, [(j.pair, ("forward", "swapped")) for j in before])
    assert [Judgment.of(j.pair, k).outcomes for j, k in zip(before, kept, strict=True) if k] == [
        j.outcomes for j in before
    ]


def test_what_is_kept_can_come_without_the_judges_words(db: Path) -> None:
    engine = Scribe(unreadable_now_and_then())
    before = judged(engine, pairs(40), db)
    asked = len(engine.prompts)

    async def again() -> list[Judgment]:
        with Store(db) as store:
            return [j async for j in Run(setup(engine), pairs(40), store, words=False)]

    after = asyncio.run(again())
    assert len(engine.prompts) == asked
    for old, new in zip(before, after, strict=True):
        verdicts = {order: replace(verdict, raw="") for order, verdict in old["overall"].orders.items()}
        assert new["overall"] == replace(old["overall"], orders=verdicts)


def test_a_pair_that_needs_something_is_not_among_the_kept(db: Path) -> None:
    judged(Scribe(failing_at(2)), pairs(2), db)
    known, changed = pairs(2)[1], replace(pairs(2)[1], labels={"overall": "1"})
    with Store(db) as store:
        (row,) = store.judges()
        wanted = [*pairs(2), changed, replace(known, id="another"), pairs(3)[2]]
        kept = store.kept(row.id, [["overall"]], [(pair, ("forward", "swapped")) for pair in wanted])
        elsewhere = store.kept(row.id + 1, [["overall"]], [(known, ("forward",))])
    assert [found is not None for found in kept] == [False, True, False, False, False]
    assert elsewhere == [None]


@pytest.mark.parametrize("concurrency", [1, 64])
def test_what_is_kept_is_read_only_a_little_ahead(db: Path, concurrency: int) -> None:
    judged(Scribe(always("A"), concurrency=64), itertools.islice(Source(), 3000), db, orders="forward")
    source = Source()

    async def run() -> int:
        with Store(db) as store:
            again = Run(setup(Scribe(always("A"), concurrency=concurrency)), source, store, orders="forward")
            async with aclosing(aiter(again)) as stream:
                for _ in range(1000):
                    await anext(stream)
                return source.read

    assert asyncio.run(run()) <= 1000 + 64 + 2 * 256


def test_a_finished_run_repeated_writes_nothing_but_itself(db: Path) -> None:
    judged(Scribe(always("A")), pairs(300), db)

    async def run() -> int:
        with Store(db) as store:
            before = store._db.total_changes
            await drain(Run(setup(Scribe(always("B"))), pairs(300), store))
            return store._db.total_changes - before

    assert asyncio.run(run()) == 2, "the run's beginning and its end"


def test_a_run_that_is_stopped_begins_no_pair_that_it_has_only_claimed(db: Path) -> None:
    async def run() -> tuple[set[str], set[str]]:
        engine = Scribe(always("A"), concurrency=16, seconds=0.02)
        with Store(db) as store:
            going = Run(setup(engine), pairs(200), store)
            async for _ in going:
                if len(engine.prompts) > 60 and not going._stopping:
                    going.stop()
                    before = {text_of(prompt).partition("Question ")[2].split()[0] for prompt in engine.prompts}
        return before, {text_of(prompt).partition("Question ")[2].split()[0] for prompt in engine.prompts}

    before, after = asyncio.run(run())
    assert before == after


def test_totals_add_up() -> None:
    async def run() -> Run:
        with Store(":memory:") as store:
            going = Run(setup(Scribe(always("A"))), pairs(4), store)
            found = [j async for j in going]
        assert going.totals.usage.computed == sum(j.usage.computed for j in found) > 0
        return going

    totals = asyncio.run(run()).totals
    assert (totals.pairs, totals.asked) == (4, 8)


def test_no_pairs_no_judgments() -> None:
    assert judged(Scribe(always("A")), []) == []


def test_a_pair_that_another_process_finishes_is_taken_from_it(db: Path) -> None:
    """Held by another store of this process: the run waits for it, and asks nothing."""

    async def run() -> tuple[int, list[Judgment]]:
        engine = Scribe(always("B"))
        with Store(db) as mine, Store(db) as theirs:
            busy = Scribe(always("A"), seconds=0.2)
            slow = asyncio.create_task(drain(Run(setup(busy), pairs(1), theirs)))
            while not busy.prompts:  # noqa: ASYNC110
                await asyncio.sleep(0.001)
            found = await drain(Run(setup(engine), pairs(1), mine))
            await slow
        return engine.asked, found

    began = time.monotonic()
    asked, found = asyncio.run(run())
    assert asked == 0
    assert found[0]["overall"].side_in("forward") == "1"
    assert time.monotonic() - began < 20


async def drain(run: Run) -> list[Judgment]:
    return [judgment async for judgment in run]


def test_every_question_of_a_chain_is_the_last_thing_asked() -> None:
    engine = Scribe(always("A"))
    judged(engine, pairs(1), protocol="chained", orders="forward")
    closing = [prompt.turns[-1].text.splitlines()[-1] for prompt in engine.prompts]
    assert [re.findall("precision|correctness|format|overall", line.lower())[-1] for line in closing] == [
        "precision",
        "correctness",
        "format",
        "overall",
    ]
