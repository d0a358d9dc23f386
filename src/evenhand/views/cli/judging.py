"""What judge and arena share once they know their pairs: a plan, or a run with progress, its answer and its end."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import chain, islice
from pathlib import Path

from rich.markup import escape

from evenhand.core.engine import Engine
from evenhand.core.pair import Pair
from evenhand.core.shuffle import Shuffle
from evenhand.engines import catalog
from evenhand.engines.presets import find_address
from evenhand.engines.scripted import ScriptedEngine
from evenhand.results.decision import Decider
from evenhand.results.escalation import EscalationResult
from evenhand.results.jury import JuryResult
from evenhand.results.plain import plain, to_json
from evenhand.results.run import RunSummary
from evenhand.running.runner import plan
from evenhand.store import Store
from evenhand.views import console
from evenhand.views.cli.app import DONE, WITH_FAILURES
from evenhand.views.cli.escalation_tables import queue_for_people
from evenhand.views.cli.groups import AnySettings, EscalationSettings, JudgeSettings, JurySettings
from evenhand.views.cli.inputs import Input
from evenhand.views.cli.probe import seconds_for
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

    def plain(self) -> dict[str, object]:
        """The run as JSON has it, with who spoke in a jury."""
        more = {"jury": self.jury, "escalation": self.escalation}
        return {**self.run.plain(), **{name: plain(found) for name, found in more.items() if found is not None}}

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
            )
        found = run_with_progress(judge, rows, min(given.count, limit or given.count), enough=decider, line=decider)
        given.end(judge, found.summary.pairs)
        kept = judge.store.judge_book.find(judge.setup.fingerprint) is not None
        jury = judge.result() if isinstance(judge, Jury) else None
        levels = judge.result() if isinstance(judge, Escalation) and kept else None
        if isinstance(judge, Escalation) and kept:
            queue_for_people(judge)
    return JudgedInput(given, found, kept, jury, levels)


def prepare(judge: AnyJudge, given: Input, limit: int | None = None) -> None:
    """Of levels, find what each may decide before the bulk of the pairs is asked about."""
    if isinstance(judge, Escalation):
        plan = judge.prepare(islice(given.read(), limit), _note)
        for note in plan.notes:
            _note(note)


def _note(text: str) -> None:
    console.err.print(console.visible(text), style="dim", markup=False, soft_wrap=True)


def check_slots(settings: AnySettings, given: Input) -> None:
    """Refuse pairs that cannot fill a slot of a judge's protocol."""
    for one in settings.each if isinstance(settings, JurySettings) else (settings,):
        given.check_slots(one.protocol)


def show_end(judged: JudgedInput, db: Path, more: str = "") -> None:
    """The last lines of a run: what was left out, and where the rest is."""
    if judged.given.bad:
        console.out.print(f"left out: {console.count(len(judged.given.bad), 'broken row')}", style="yellow")
    if judged.kept:
        console.out.print(
            f"[dim]kept in {db}; see it again:[/] {more or f'evenhand results --db {db}'}", soft_wrap=True
        )
    else:
        console.out.print("the judge answered nothing, so nothing is kept", style="yellow")


# -- a run that is only planned ----------------------------------------------------------------------


def planned_engine(spec: str) -> Engine | None:
    """A stand-in to plan with for a model that would have to be fetched first; None where it is here."""
    name = model_of(spec)
    model = catalog.CATALOG.get(name)
    if model is None or catalog.find(name) is not None:
        return None
    console.err.print(
        f"{name} is not here yet: the run would first fetch {model.bytes / 1e6:,.0f} MB from {model.source}",
        style="dim",
        soft_wrap=True,
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
            console.out.print(f"[bold]{escape(one.spec)}[/]")
        plans.append({"judge": one.spec, **_show_plan(one, every, db, as_json)})
    if as_json:
        print(to_json({"judges": plans}))
    elif isinstance(settings, EscalationSettings):
        console.out.print(
            "That is the most: a level is asked about the labelled pairs, and what those before it leave."
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
    if stand_in is None and find_address(settings.spec) is None:
        console.err.print("timing a pair on this machine …", style="dim")
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
        f" {console.count(found.kept, 'answer')} kept already.\n"
        f"About {usage.computed:,} tokens to read and {usage.generated:,} to write, by the lengths of the texts.\n"
        + _what_it_takes(settings, cost, seconds, batch),
        soft_wrap=True,
    )
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
