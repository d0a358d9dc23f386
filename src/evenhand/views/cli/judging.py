"""What judge and arena share once they know their pairs: a plan, or a run with progress, its answer and its end."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import chain, islice
from pathlib import Path

from evenhand.core.engine import Engine
from evenhand.core.pair import Pair
from evenhand.core.protocol import Protocol
from evenhand.core.shuffle import Shuffle
from evenhand.engines import catalog
from evenhand.engines.presets import find_address
from evenhand.engines.scripted import ScriptedEngine
from evenhand.results.decision import Decider, Decision
from evenhand.results.escalation import EscalationResult
from evenhand.results.jury import JuryResult
from evenhand.results.plain import to_json
from evenhand.results.run import RunSummary
from evenhand.results.summary import Summary
from evenhand.results.wording import about
from evenhand.running.runner import Plan, plan
from evenhand.store import Store
from evenhand.views import console
from evenhand.views.api import Judge
from evenhand.views.cli.app import DONE, WITH_FAILURES
from evenhand.views.cli.deciding import show_decision
from evenhand.views.cli.groups import AnySettings, EscalationSettings, JudgeSettings, JurySettings
from evenhand.views.cli.inputs import Input
from evenhand.views.cli.jury_tables import queue_for_people, show_escalation, show_jury
from evenhand.views.cli.running import model_of, run_with_progress
from evenhand.views.jury import AnyJudge, Escalation, Jury


@dataclass(frozen=True)
class JudgedInput:
    """What came of a run over pairs, and whether anything of it is kept."""

    given: Input
    run: RunSummary
    kept: bool
    jury: JuryResult | None = None  # where several judges were asked
    escalation: EscalationResult | None = None  # where levels were
    others: int = 0  # pairs that the judge has judged in other runs, and that results count too

    def plain(self) -> dict[str, object]:
        """The run as JSON has it, with who spoke in a jury."""
        more = {"jury": self.jury, "escalation": self.escalation}
        return {**self.run.plain(), **{name: found for name, found in more.items() if found is not None}}

    @property
    def exit_code(self) -> int:
        """Whether all went well."""
        waiting = self.escalation.waiting if self.escalation else 0  # for people: that is no failure
        failed = self.run.summary.invalid > waiting or self.given.bad or self.run.stopped
        return WITH_FAILURES if failed else DONE


def judge_input(
    settings: AnySettings, given: Input, db: Path, *, limit: int | None = None, decider: Decider | None = None
) -> JudgedInput:
    """Judge pairs with progress, until the decider has seen enough where there is one."""
    check_slots(settings, given)
    rows: Iterable[Pair] = islice(given.read(), limit)
    if decider is not None:
        rows = decider.watch(islice(Shuffle(given.read, seed=settings.seed), limit))
    with settings.judge(db) as judge:
        prepare(judge, given, limit)
        if given.begin(judge):
            console.err.print(
                f"all {console.count(given.count, 'pair')} were judged before: nothing is left to ask,"
                " counting them",
                style="dim",
                soft_wrap=False,
            )
        found = run_with_progress(judge, rows, min(given.count, limit or given.count), enough=decider, line=decider)
        if decider is not None and decider.met:
            found = replace(found, summary=replace(found.summary, stopped_early=decider.early_stop))
        given.end(judge, found.summary.pairs)
        kept = judge.store.judge_book.find(judge.setup.fingerprint) is not None
        jury = judge.result() if isinstance(judge, Jury) else None
        levels = judge.result() if isinstance(judge, Escalation) and kept else None
        if isinstance(judge, Escalation) and kept:
            queue_for_people(judge)
        others = 0 if found.stopped else count_others(judge, found.summary)
    return JudgedInput(given, found, kept, jury, levels, others)


def count_others(judge: AnyJudge, summary: Summary) -> int:
    """How many pairs a judge has judged besides those of a run."""
    held = [row for row in judge.store.judges() if row.fingerprint == judge.setup.fingerprint]
    every = sum(row.pairs - judge.store.count_attacked(row) for row in held)
    return max(0, every - summary.pairs - summary.repeats)


def prepare(judge: AnyJudge, given: Input, limit: int | None = None) -> None:
    """Of levels, find what each may decide before the bulk of the pairs is asked about."""
    if isinstance(judge, Escalation):
        plan = judge.prepare(islice(given.read(), limit), console.aside)
        for note in plan.notes:
            console.aside(note)


def check_slots(settings: AnySettings, given: Input) -> None:
    """Refuse pairs that cannot fill a slot of a judge's protocol."""
    for protocol in protocols_of(settings):
        given.check_slots(protocol)


def protocols_of(settings: AnySettings) -> list[Protocol]:
    """The protocols of all judges that are asked."""
    return [one.protocol for one in (settings.each if isinstance(settings, JurySettings) else (settings,))]


def show_end(judged: JudgedInput, db: Path, more: str = "", decision: Decision | None = None) -> None:
    """What follows the tables of a run: who spoke or decided, what was left out, and where the rest is."""
    if judged.jury is not None:
        show_jury(judged.jury)
    if judged.escalation is not None:
        show_escalation(judged.escalation, db)
    if decision is not None:
        show_decision(decision, judged.run.summary.sides)
    if judged.given.bad:
        console.out.print(f"left out: {console.count(len(judged.given.bad), 'broken row')}", style="yellow")
    if judged.kept:
        command = more or f"evenhand results --db {db}"
        if judged.others:
            pairs = console.count(judged.others, "other pair")
            console.below(
                f"kept in {db}, with {pairs} of this judge; --db keeps runs apart. All together:", command
            )
        else:
            console.below(f"kept in {db}; see it again:", command)
    else:
        show_nothing_kept()


def show_nothing_kept() -> None:
    """Say that there is nothing to see in the database."""
    console.out.print("the judge answered nothing, so nothing is kept", style="yellow")


# -- a run that is only planned ----------------------------------------------------------------------

# A second pair is judged where the first took no longer. The first also waits for the model, and for the text with
# which all prompts begin; under `chained` that is several times what a pair takes by itself.
_ENOUGH_SECONDS = 60.0
_SO_FEW = "It costs only time: to find out how much would take as long as judging so few."


def planned_engine(spec: str) -> Engine | None:
    """A stand-in to plan with for a model that would have to be fetched first; None where it is here."""
    name = model_of(spec)
    model = catalog.CATALOG.get(name)
    if model is None or catalog.find(name) is not None:
        return None
    console.aside(
        f"{name} is not here yet: the run would first fetch {model.bytes / 1e6:,.0f} MB from {model.source}"
    )
    return ScriptedEngine(lambda _: "", name=spec)


def show_plan(
    settings: AnySettings, pairs: Iterable[Pair], db: Path, as_json: bool, *, batch: bool = False
) -> None:
    """What a run would take: money for an endpoint, time for a model that runs here; of a jury, one by one."""
    if isinstance(settings, JudgeSettings):
        fields = _show_plan(settings, pairs, db, as_json, batch=batch)
        if as_json:
            print(to_json(fields))
        return
    every, plans = list(pairs), []
    for one in settings.each:
        if not as_json:
            console.out.print(one.spec, style="bold")
        plans.append({"judge": one.spec, **_show_plan(one, every, db, as_json)})
    if as_json:
        print(to_json({"judges": plans}))
    elif isinstance(settings, EscalationSettings):
        console.out.print(
            "That is the most: a level is asked about the labelled pairs, and what those before it leave.",
            soft_wrap=False,
        )


def _show_plan(
    settings: JudgeSettings, pairs: Iterable[Pair], db: Path, as_json: bool, *, batch: bool = False
) -> dict[str, object]:
    stand_in = planned_engine(settings.spec)
    engine = stand_in or settings.engine()
    price = settings.price.in_batch() if settings.price and batch else settings.price
    rest = iter(pairs)
    first = list(islice(rest, 2))
    with Store(db if db.exists() else ":memory:", read_only=True) as store:
        found = plan(settings.setup(engine), chain(first, rest), store, orders=settings.orders, seed=settings.seed)
    seconds = None
    here = stand_in is None and find_address(settings.spec) is None
    few = here and found.requests > 0 and found.pairs <= len(first)
    if here and not few:
        console.aside("timing a pair on this machine …")
        seconds = seconds_for(found, settings, engine, first)
    usage = found.usage
    cost = price.of(usage) if price else None
    if as_json:
        fields: dict[str, object] = {
            "pairs": found.pairs,
            "requests": found.requests,
            "kept": found.kept,
            "tokens": usage,
        }
        money = {"cost": cost, "currency": price.currency if price else None}
        return {**fields, **money, "seconds": seconds, **({"batch": True} if batch else {})}
    console.out.print(
        f"{console.count(found.pairs, 'pair')}: {console.count(found.requests, 'request')} to make,"
        f" {console.count(found.kept, 'answer')} kept already."
    )
    if found.requests:
        read, written = about(usage.computed), about(usage.generated)
        console.out.print(f"About {read:,} tokens to read and {written:,} to write, by the lengths of the texts.")
        console.out.print(_SO_FEW if few else _what_it_takes(settings, cost, seconds, batch))
    return {}


def _what_it_takes(settings: JudgeSettings, cost: float | None, seconds: float | None, batch: bool = False) -> str:
    """The cost or the time of a run in a sentence."""
    if seconds is not None:
        return f"About {console.clock(seconds)} on this machine, by the time of a pair that was judged just now."
    if cost is not None and settings.price:
        price = settings.price
        where = f"in batches, at {price.batch:.0%} of the prices" if batch else "at the prices"
        return f"About {cost:,.2f} {price.currency} {where} of {price.date}, with nothing cached."
    if find_address(settings.spec) is None:
        return "It costs only time; once the model is fetched, --dry-run says how much."
    return "No price is known for this judge; --prices gives one."


def seconds_for(planned: Plan, settings: JudgeSettings, engine: Engine, pairs: Sequence[Pair]) -> float | None:
    """About how many seconds the planned requests take, by the time of the first pairs; None without any.

    Nothing of what is judged for that is kept.
    """
    if not pairs or not planned.requests:
        return 0.0 if pairs else None
    taken = seconds = 0.0
    with Judge(engine, settings.protocol, orders=settings.orders, raw_markup=settings.raw_markup) as judge:
        for pair in pairs[:2]:
            began = time.monotonic()
            judge.compare(pair)
            seconds, taken = time.monotonic() - began, _characters(settings, engine, pair)
            if seconds > _ENOUGH_SECONDS:
                break
    return seconds * planned.characters / taken


def _characters(settings: JudgeSettings, engine: Engine, pair: Pair) -> int:
    """What the prompts of one pair come to."""
    with Store(":memory:") as store:
        return plan(settings.setup(engine), [pair], store, orders=settings.orders, seed=settings.seed).characters
