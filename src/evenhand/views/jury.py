"""Several judges as one: a Jury is used like a Judge, and keeps what each of its judges said.

Pairs go through the jurors a few hundred at a time, through one after the other; what they said is then pooled and
comes out. A juror that fails is left aside for the rest of the run, and the pairs say that it did not speak.
"""

from __future__ import annotations

import asyncio
import re
import tempfile
from collections import deque
from collections.abc import AsyncGenerator, Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Self, Union

from evenhand.core.engine import NOTHING, Engine, Usage
from evenhand.core.errors import EngineError, InputError, SpecError
from evenhand.core.judge import Judgment, Orders, Setup
from evenhand.core.jury import JurorOutcomes, Pool, PoolRule, log_length, on_dimension, spoke
from evenhand.core.pair import Pair
from evenhand.core.protocol import Protocol
from evenhand.core.verdict import headline
from evenhand.running.escalation import EscalationPool, check_target
from evenhand.running.jury import JuryMembers, JuryPool, member_of, outcomes_of, scales_of
from evenhand.running.pace import BudgetError, Limits, Pace
from evenhand.running.runner import Line, Totals
from evenhand.store import Store
from evenhand.views.api import Judge, Judgments, JudgmentStream

if TYPE_CHECKING:  # the statistics load numpy, which takes a third of a second
    from evenhand.results.escalation import EscalationPlan, EscalationResult
    from evenhand.results.jury import JuryResult

AnyJudge = Union[Judge, "ManyJudges"]
AT_ONCE = 512  # pairs that go through all jurors before they are pooled
FEW = 32  # the same, where a budget or a decision may end the run at any pair


def split_judges(text: str) -> list[str]:
    """The judges that a text with commas names; a comma with a backslash before it belongs to a name, and so does
    one in the name of a file that is there.

    >>> split_judges("small, openai:gpt-4o"), split_judges(r"http://host/v1#a\\,b")
    (['small', 'openai:gpt-4o'], ['http://host/v1#a,b'])
    """
    if "," not in text or Path(text).exists():
        return [text.replace("\\,", ",")]
    found = [part.strip().replace("\\,", ",") for part in re.split(r"(?<!\\),", text)]
    if "" in found:
        raise SpecError(f"an empty name among the judges: {text!r}", hint="name them with commas between: a,b,c")
    return found


def refuse_twins(members: JuryMembers) -> None:
    """Refuse a judge that is named twice."""
    marks = [member.fingerprint for member in members.members]
    twins = [name for name, mark in zip(members.names, marks, strict=True) if marks.count(mark) > 1]
    if twins:
        raise InputError(f"the same judge is named twice: {twins[0].partition('/')[0]}", hint="name it once")


class ManyJudges:
    """Several judges that are asked about the same pairs, and what is made of it: a Jury, an Escalation."""

    setup: Setup
    names: list[str]
    _pool: JuryPool | EscalationPool

    def __init__(
        self,
        judges: Sequence[str | Engine | Judge],
        protocol: str | Path | Protocol | None,
        db: str | Path | None,
        *,
        orders: Orders,
        seed: int,
        limits: Limits | None,
        closing: ExitStack | None,
    ) -> None:
        self.orders, self.seed, self.limits = orders, seed, limits or Limits()
        self._open = closing or ExitStack()
        self.failed: dict[str, str] = {}  # judges that are asked no more, and why
        with self._closing_on_error():
            path = db or self._folder()
            self.judges = [self._judge(judge, protocol, path) for judge in judges]
            self.store = self._open.enter_context(Store(path))
            self.members = JuryMembers(tuple(member_of(judge.setup) for judge in self.judges))
            refuse_twins(self.members)
            self.paces = [Pace(j.setup.engine, j.limits or self.limits, j.price, seed=j.seed) for j in self.judges]

    @contextmanager
    def _closing_on_error(self) -> Iterator[None]:
        try:
            yield
        except BaseException:
            self._open.close()
            raise

    def _folder(self) -> Path:
        folder = tempfile.TemporaryDirectory(prefix="evenhand-", ignore_cleanup_errors=True)
        return Path(self._open.enter_context(folder)) / "judges.db"

    def _judge(
        self, judge: str | Engine | Judge, protocol: str | Path | Protocol | None, path: str | Path
    ) -> Judge:
        if not isinstance(judge, Judge):
            judge = Judge(judge, protocol, db=path, orders=self.orders, seed=self.seed, limits=self.limits)
            self._open.enter_context(judge)
        return judge

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close all judges that were opened here, and the database."""
        self._open.close()

    @property
    def answers_of_pair(self) -> int:
        """How many answers a pair takes."""
        return sum(judge.answers_of_pair for judge in self.judges)

    def cost_of(self, usage: Usage) -> float | None:
        """What has been asked so far has cost; None where a judge has no price."""
        return sum(pace.spent for pace in self.paces) if all(pace.price for pace in self.paces) else None

    def compare(self, instruction: str | Pair, output_1: str = "", output_2: str = "") -> Judgment:
        """Judge one pair."""
        pair = instruction if isinstance(instruction, Pair) else Pair(instruction, output_1, output_2)
        with self.run([pair]) as judgments:
            [judgment] = judgments
            return replace(judgment, usage=judgments.totals.usage, asked=judgments.totals.asked)

    async def acompare(self, instruction: str | Pair, output_1: str = "", output_2: str = "") -> Judgment:
        """Like `compare`, for async code."""
        return await asyncio.to_thread(self.compare, instruction, output_1, output_2)

    def judge(self, pairs: Iterable[Pair]) -> Iterator[Judgment]:
        """Judge pairs; the judgments come out a few hundred at a time."""
        with self.run(pairs) as judgments:
            yield from judgments

    async def ajudge(self, pairs: Iterable[Pair]) -> AsyncGenerator[Judgment, None]:
        """Like `judge`, for async code."""
        judgments = self.run(pairs)
        try:
            while (judgment := await asyncio.to_thread(judgments.take)) is not None:
                yield judgment
        finally:
            await asyncio.to_thread(judgments.close)

    def run(
        self,
        pairs: Iterable[Pair],
        *,
        line: Line | None = None,
        words: bool = True,
        on_wait: Callable[[str], None] | None = None,
    ) -> JuryJudgments:
        """Begin a run, as `Judge.run` does; `words` are those of the judges, who are not looked up here."""
        return self._judgments(pairs, line, on_wait)

    def _judgments(
        self, pairs: Iterable[Pair], line: Line | None, on_wait: Callable[[str], None] | None
    ) -> JuryJudgments:
        return JuryJudgments(self, self._pool, pairs, line, on_wait)


class Jury(ManyJudges):
    """Asks several judges about the same pairs and pools what they say.

    `judges` are names or engines, as for Judge, or judges that are open already on `db`. The pool is "mean" (of
    log-odds, calibrated where a calibration is kept) or "majority"; `quorum` is how many must speak on a pair, all
    of them unless it is given. `result()` says who spoke, how far they agree, and what each of them changes.

    >>> from evenhand.engines.scripted import ScriptedEngine
    >>> three = [ScriptedEngine(lambda prompt, said=said: said, name=said) for said in ("A", "tie", "B")]
    >>> with Jury(three, "overall", pool="majority") as jury:
    ...     judgment = jury.compare("Name a colour.", "Red.", "Blue, I think.")
    >>> judgment["overall"].side, jury.result().spoke
    ('tie', {3: 1})
    """

    def __init__(
        self,
        judges: Sequence[str | Engine | Judge],
        protocol: str | Path | Protocol | None = None,
        *,
        db: str | Path | None = None,
        pool: Pool = "mean",
        weights: Sequence[float] = (),
        quorum: int = 0,
        calibrated: bool = True,
        name: str = "",
        on: str = "",
        orders: Orders = "both",
        seed: int = 0,
        limits: Limits | None = None,
        closing: ExitStack | None = None,  # what to close with the jury, where its judges were opened for it
    ) -> None:
        from evenhand.results.jury import JuryCounter

        rule = PoolRule(len(judges), pool, tuple(weights), quorum)
        super().__init__(judges, protocol, db, orders=orders, seed=seed, limits=limits, closing=closing)
        with self._closing_on_error():
            scales = scales_of(self.store, self.members) if calibrated and pool == "mean" else {}
            self.rule = replace(rule, scales=scales)
            self._pool = JuryPool(self.store, self.members, self.rule, name, watch=self._count)
            self.setup, self.names = self._pool.setup, self._pool.names
            self._counter = JuryCounter(self.names, self.rule, self._pool.dimensions, on)

    def result(self) -> JuryResult:
        """Who spoke on the pairs judged so far, how far the judges agree, and what each of them changes."""
        return self._counter.result(self.setup.engine.identity["model"], self.failed)

    def _count(self, pair: Pair, outcomes: JurorOutcomes, _: Judgment) -> None:
        self._counter.add(pair, outcomes, log_length(pair))


class Escalation(ManyJudges):
    """Levels of judges, the cheapest first: each decides what it may, and the next gets the rest.

    What a level may decide is found on labelled pairs by `prepare`, so that the decided pairs agree with people as
    often as `agree` says, with 95% confidence. What no judge may decide is left to people, if they are a level.
    How sure a judge is, is said by its calibration where one is kept, unless `calibrated` is False.

    >>> from evenhand.engines.scripted import ScriptedEngine
    >>> right = lambda prompt: {"A": 0.9, "B": 0.05, "tie": 0.05}
    >>> labelled = [Pair(f"Q{n}", "x", "y", id=str(n), labels={"overall": "1"}) for n in range(40)]
    >>> with Escalation([ScriptedEngine(right)], "overall", agree=0.8, orders="forward") as levels:
    ...     plan = levels.prepare(labelled)
    ...     levels.compare("Name a colour.", "Red.", "Blue, I think.")["overall"].side
    '1'
    >>> plan.cascade.coverage
    1.0
    """

    def __init__(
        self,
        judges: Sequence[str | Engine | Judge],
        protocol: str | Path | Protocol | None = None,
        *,
        agree: float,
        people: bool = True,
        calibrated: bool = True,
        db: str | Path | None = None,
        on: str = "",
        orders: Orders = "both",
        seed: int = 0,
        limits: Limits | None = None,
        closing: ExitStack | None = None,
    ) -> None:
        check_target(agree)
        super().__init__(judges, protocol, db, orders=orders, seed=seed, limits=limits, closing=closing)
        with self._closing_on_error():
            self.names, self.agree, self.people = self.members.names, agree, people
            self.calibrated = calibrated
            dimensions = self.members.dimensions
            self.dimension = on or headline(dimensions)
            if self.dimension not in dimensions:
                raise InputError(f"no outcome on {self.dimension!r}", hint=f"one of {', '.join(dimensions)}")
        self.plan: EscalationPlan | None = None

    def prepare(self, pairs: Iterable[Pair], on_note: Callable[[str], None] | None = None) -> EscalationPlan:
        """Ask all levels about the labelled pairs, and find what each may decide; InputError where it is nothing.

        Labels are looked for among these pairs, and among all pairs of the database where none of these has one.
        """
        from evenhand.results.escalation import find_labelled, plan_escalation, refuse_few

        labelled = find_labelled(self.store, pairs, self.dimension, on_note)
        refuse_few(labelled, self.agree, len(self.judges))
        if on_note:
            on_note(f"asking {', '.join(self.names)} about the {len(labelled.pairs):,} labelled pairs first")
        for number in range(len(self.judges)):
            pace = shared_pace(self.paces, number, self.limits)
            with self.judges[number].run(labelled.pairs, words=False, pace=pace) as judgments:
                for _ in judgments:
                    pass
        outcomes = outcomes_of(self.store, self.members, labelled.pairs)
        scales = scales_of(self.store, self.members).get(self.dimension, ()) if self.calibrated else ()
        self.plan = plan = plan_escalation(self.names, labelled, outcomes, self.agree, scales)
        self._pool = EscalationPool(
            self.store, self.members, plan.cascade, self.dimension, people=self.people, scales=scales
        )
        self.setup = self._pool.setup
        return plan

    def result(self) -> EscalationResult:
        """What each level decided, what it cost, and what is left to people; of all pairs of this escalation."""
        from evenhand.results.escalation import escalation_result

        prices = [pace.price for pace in self.paces]
        row = next(row for row in self.store.judges() if row.fingerprint == self.setup.fingerprint)
        return escalation_result(self.store, row, prices)

    def _judgments(
        self, pairs: Iterable[Pair], line: Line | None, on_wait: Callable[[str], None] | None
    ) -> JuryJudgments:
        """Begin a run; `prepare` comes before it."""
        if self.plan is None:
            self.prepare(())  # by the labels of the database
        return EscalationJudgments(self, self._pool, pairs, line, on_wait)


class JuryJudgments(JudgmentStream):
    """The pooled judgments of a run, as they come; `Judgments` for a jury."""

    def __init__(
        self,
        jury: ManyJudges,
        pool: JuryPool | EscalationPool,
        pairs: Iterable[Pair],
        line: Line | None,
        on_wait: Callable[[str], None] | None,
    ) -> None:
        self.totals = Totals()
        self._jury, self._pool, self._line, self._on_wait = jury, pool, line, on_wait
        self._pairs = iter(pairs)
        limited = line is not None or jury.limits.max_requests or jury.limits.max_cost
        self._size = FEW if limited else AT_ONCE
        self._some: list[Pair] = []  # pairs on their way through the jurors
        self._next = 0  # the juror whose turn is next
        self._asking: Judgments | None = None
        self._ready: deque[Judgment] = deque()
        self._before = Totals()  # what the turns that have ended came to
        self._stopping, self._run = False, 0

    def take(self) -> Judgment | None:
        """Wait for the next judgment; None at the end of the run. An interrupt leaves everything where it is."""
        while not self._ready:
            if self._asking is not None:
                self._take_from_juror(self._asking)
            elif not self._go_on():
                return None
        self.totals.pairs += 1
        return self._ready.popleft()

    def _take_from_juror(self, asking: Judgments) -> None:
        """One more judgment of the juror whose turn it is; what it costs is counted as it comes."""
        try:
            taken = asking.take()
        except BudgetError:
            self._end_turn(asking)
            self._ready.extend(self._pooled(self._complete()))
            self._some = []
            raise
        except EngineError as error:
            if self._give_up(error):
                self._end_turn(asking)
                raise
            taken = None
        self.totals.asked = self._before.asked + asking.totals.asked
        self.totals.usage = self._before.usage + asking.totals.usage
        if taken is None:
            self._end_turn(asking)

    def _give_up(self, error: EngineError) -> bool:
        """A judge has failed: it is asked no more; whether that ends the run."""
        self._jury.failed[self._jury.names[self._next]] = error.message
        return len(self._jury.failed) == len(self._jury.names)

    def _end_turn(self, asking: Judgments) -> None:
        asking.close()
        self.totals.asked = self._before.asked + asking.totals.asked
        self.totals.usage = self._before.usage + asking.totals.usage
        self._before = replace(self.totals)
        self._asking = None
        self._next += 1

    def _go_on(self) -> bool:
        """Begin the turn of the next juror, pool the pairs that have been through all of them, or read on."""
        jurors = self._jury.names
        if self._stopping and (self._next < len(jurors) or not self._some):
            return False  # what was answered is kept, and the next run goes on from there
        if not self._some:
            self._some, self._next = list(islice(self._pairs, self._size)), 0
            if not self._some:
                return False
        while self._next < len(jurors) and jurors[self._next] in self._jury.failed:
            self._next += 1
        if self._next < len(jurors):
            self._begin_turn()
        else:
            self._ready.extend(self._pooled(self._some))
            self._some = []
        return True

    def _begin_turn(self) -> None:
        pace = shared_pace(self._jury.paces, self._next, self._jury.limits)
        judge = self._jury.judges[self._next]
        self._asking = judge.run(self._turn_pairs(), words=False, on_wait=self._on_wait, pace=pace)

    def _turn_pairs(self) -> list[Pair]:
        """The pairs about which the judge whose turn it is is asked."""
        return self._some

    def _complete(self) -> list[Pair]:
        """The pairs on which every juror has spoken by now."""
        outcomes = outcomes_of(self._jury.store, self._jury.members, self._some)
        on, jurors = self._pool.dimensions[0], len(self._jury.names)
        whole = [spoke(on_dimension(said, on)) == jurors for said in outcomes]
        return [pair for pair, all_spoke in zip(self._some, whole, strict=True) if all_spoke]

    def _pooled(self, pairs: Sequence[Pair]) -> list[Judgment]:
        if not self._run:
            settings: dict[str, str | int] = {"orders": self._jury.orders, "seed": self._jury.seed}
            if self._line is not None:
                settings["until_decided"] = self._line.dimension
            self._run = self._jury.store.begin_run(self._jury.store.judge(self._pool.setup), settings)
        return self._pool.pool(pairs) if pairs else []

    def stop(self) -> None:
        """Ask about no other pair; what is under way with the juror whose turn it is comes to its end."""
        self._stopping = True
        if self._asking is not None:
            self._asking.stop()

    def close(self) -> None:
        """Stop the run; what was answered is kept."""
        if self._asking is not None:
            self._end_turn(self._asking)
        self._ready.clear()
        if self._run:
            decided = self._line is not None and self._line.met
            self._jury.store.end_run(self._run, pairs=self.totals.pairs, asked=0, usage=NOTHING, decided=decided)
            self._run = 0


class EscalationJudgments(JuryJudgments):
    """The judgments of an escalation: a level is asked about the pairs that none before it may decide."""

    def _turn_pairs(self) -> list[Pair]:
        if not self._next or not isinstance(self._pool, EscalationPool):
            return self._some
        return self._pool.left_after(self._some, self._next)

    def _give_up(self, error: EngineError) -> bool:
        return True  # the next level would be asked instead, and that costs more

    def _complete(self) -> list[Pair]:
        return []  # what the levels have answered is kept, and the next run goes on from there


def shared_pace(paces: Sequence[Pace], number: int, limits: Limits) -> Pace:
    """The way to one of several judges. The budget is one for all: what the others have used is taken off it."""
    pace = paces[number]
    requests, spent = (sum(getattr(other, what) for other in paces if other is not pace) for what in _USED)
    pace.limits = replace(
        pace.limits,
        max_requests=None if limits.max_requests is None else max(limits.max_requests - requests, 0),
        max_cost=None if limits.max_cost is None else max(limits.max_cost - spent, 0.0),
    )
    return pace


_USED = ("requests", "spent")  # what a Pace counts
