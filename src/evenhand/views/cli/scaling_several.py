"""evenhand ray judge with several judges: a jury, or levels; one after the other goes over all its pairs."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import NoReturn

import typer

from evenhand.core.engine import Usage
from evenhand.core.errors import EngineError, InputError
from evenhand.core.jury import JurorOutcomes, log_length
from evenhand.core.pair import Pair
from evenhand.core.verdict import headline
from evenhand.results.escalation import (
    EscalationResult,
    escalation_result,
    find_labelled,
    plan_escalation,
    refuse_few,
)
from evenhand.results.jury import JuryCounter, JuryResult
from evenhand.results.plain import plain, to_json
from evenhand.results.run import RunSummary, judge_summary
from evenhand.running.cluster.cluster import Cluster
from evenhand.running.cluster.pooling import FOR_PEOPLE, decided_by, pool_folders
from evenhand.running.cluster.slices import Work, local_work
from evenhand.running.escalation import EscalationPool
from evenhand.running.jury import JuryMembers, JuryPool, member_of
from evenhand.store import Store
from evenhand.store.shards import Place, begin_shards, open_shards
from evenhand.store.shards.members import MemberFolder, member_place, refuse_asked
from evenhand.views import console
from evenhand.views.cli.app import DONE, WITH_FAILURES
from evenhand.views.cli.groups import EscalationSettings, JurySettings
from evenhand.views.cli.jury_tables import show_jury, show_levels
from evenhand.views.cli.running import show_run
from evenhand.views.cli.scaling import (
    ClusterJob,
    ClusterJudge,
    ClusterRun,
    PairSource,
    find_input,
    find_pairs,
    opened_cluster,
    opened_judge,
    show_folder,
)
from evenhand.views.jury import refuse_twins


@dataclass
class SeveralRuns:
    """The runs of several judges over the same pairs, with one budget for all of them."""

    job: ClusterJob
    settings: JurySettings
    judges: list[ClusterJudge]
    members: JuryMembers
    cluster: Cluster
    source: PairSource
    runs: list[ClusterRun] = field(default_factory=list)
    used: tuple[int, float] = (0, 0.0)
    failed: dict[str, str] = field(default_factory=dict)
    stopped: str = ""

    def ask(
        self, number: int, source: PairSource | None = None, passed_over: Sequence[bytes] = (), what: str = ""
    ) -> None:
        """Have one judge go over the pairs; a budget that is used up is the end for all of them."""
        name = f"{self.members.names[number]}{what}"
        run, standing = self.judges[number].run(
            *(self.job, self.cluster, source or self.source), name=name, used=self.used, passed_over=passed_over
        )
        self.runs.append(run)
        self.used = (standing.taken, standing.spent)
        self.stopped = run.stopped
        if standing.fault:
            raise standing.fault.error()

    def folders(self) -> list[MemberFolder]:
        """What each judge has said by now."""
        return [MemberFolder(judge.place) for judge in self.judges]

    def total(self) -> ClusterRun:
        """All runs together."""
        first, costs = self.runs[0], [run.cost for run in self.runs]
        return replace(
            first,
            asked=sum(run.asked for run in self.runs),
            tokens=Usage.total([run.tokens for run in self.runs]),
            cost=None if any(cost is None for cost in costs) else sum(cost for cost in costs if cost is not None),
            stopped=self.stopped,
            seconds=self.runs[-1].seconds,
            judging_seconds=round(sum(run.judging_seconds for run in self.runs), 3),
            workers=max(run.workers for run in self.runs),
            tasks=sum(run.tasks for run in self.runs),
            attempts=sum(run.attempts for run in self.runs),
            skipped=max(run.skipped for run in self.runs),
            unmatched=self.source.unmatched,
        )


def judge_with_several(job: ClusterJob, settings: JurySettings, *, as_json: bool) -> NoReturn:
    """Have each judge judge on the cluster, make of it what is asked for, show that, and end the command."""
    folder = Place.of(job.out)
    with opened_cluster(job) as connect, Store(":memory:") as store:
        given = find_input(job, settings)
        refuse_asked(folder)
        setups = [opened_judge(one) for one in settings.each]
        members = JuryMembers(tuple(map(member_of, setups)))
        refuse_twins(members)
        judges = [
            ClusterJudge(one, setup, begin_shards(place, setup, orders=one.orders, seed=one.seed))
            for one, setup in zip(settings.each, setups, strict=True)
            for place in [member_place(folder, setup)]
        ]
        cluster = connect()
        source = find_pairs(job, given, cluster, settings)
        several = SeveralRuns(job, settings, judges, members, cluster, source)
        make = _escalate if isinstance(settings, EscalationSettings) else _pool
        more = make(several, folder, store)
    _show(several.total(), folder, more, as_json)


def _pool(several: SeveralRuns, folder: Place, store: Store) -> JuryResult:
    """Ask one juror after the other; one that fails is marked on every pair, and the run can be completed later."""
    members, rule, errors = several.members, several.settings.rule, []
    for number, name in enumerate(members.names):
        try:
            several.ask(number)
        except EngineError as error:
            several.failed[name] = error.message
            errors.append(error)
        if several.stopped:
            break
    if len(errors) == len(members.names):
        raise errors[-1]
    pool = JuryPool(store, members, rule)
    counter = JuryCounter(members.names, rule, members.dimensions)

    def complete(_: Pair, outcomes: JurorOutcomes) -> bool:
        silent = [name for name, said in zip(members.names, outcomes, strict=True) if said is None]
        return not several.stopped or not set(silent) - set(several.failed)

    _make(several, folder, pool, complete, lambda pair, outcomes: counter.add(pair, outcomes, log_length(pair)))
    return counter.result(pool.setup.engine.identity["model"], several.failed)


def _escalate(several: SeveralRuns, folder: Place, store: Store) -> EscalationResult:
    """Find on labelled pairs what each level may decide, then ask each about what those before it leave."""
    settings, members = several.settings, several.members
    assert isinstance(settings, EscalationSettings)
    dimension = settings.on or headline(members.dimensions)
    if dimension not in members.dimensions:
        raise InputError(f"no outcome on {dimension!r}", hint=f"one of {', '.join(members.dimensions)}")
    labelled = find_labelled(store, several.source.read(), dimension)
    refuse_few(labelled, settings.agree, len(members.names))
    for number in range(len(members.names)):
        several.ask(number, _these(labelled.pairs), what=f", {console.count(len(labelled.pairs), 'labelled pair')}")
        if several.stopped:
            raise InputError(f"{several.stopped} before it was known what the levels may decide", hint=_MORE)
    outcomes = zip(*(one.said(labelled.pairs) for one in several.folders()), strict=True)
    plan = plan_escalation(members.names, labelled, list(outcomes), settings.agree)
    for note in plan.notes:
        console.aside(note)
    pool = EscalationPool(store, members, plan.cascade, dimension, people=settings.people)
    decided: list[bytes] = []
    for number in range(len(members.names)):
        several.ask(number, passed_over=decided)
        if several.stopped:
            break
        decided += decided_by(several.folders()[number], number, pool)
    _make(several, folder, pool, lambda pair, outcomes: not several.stopped or pool.is_ready(pair, outcomes))
    with open_shards(folder) as shards:
        return escalation_result(shards, shards.judges()[0], [one.price for one in settings.each])


_MORE = "give more; what was answered is kept, and the same command goes on"


def _these(pairs: Sequence[Pair]) -> PairSource:
    def cut(workers: int, at_once: int) -> Work:
        return local_work(pairs, len(pairs), workers=workers, at_once=at_once)

    return PairSource(cut, lambda: iter(pairs), [])


def _make(
    several: SeveralRuns,
    folder: Place,
    pool: JuryPool | EscalationPool,
    taken: Callable[[Pair, JurorOutcomes], bool],
    watch: Callable[[Pair, JurorOutcomes], None] = lambda _, __: None,
) -> None:
    first = several.settings
    pool_folders(folder, pool, several.folders(), orders=first.orders, seed=first.seed, taken=taken, watch=watch)


def _show(run: ClusterRun, folder: Place, more: JuryResult | EscalationResult, as_json: bool) -> NoReturn:
    """All that the folder holds, who spoke or decided, and how the command ends."""
    with open_shards(folder) as shards:
        kept = judge_summary(shards, shards.judges()[0])
    found = RunSummary(
        *(kept.judge, kept.protocol, kept.fingerprint, kept.summary, run.tokens, run.seconds),
        asked=run.asked,
        cost=run.cost,
        stopped=run.stopped,
    )
    waiting = more.waiting if isinstance(more, EscalationResult) else 0
    if as_json:
        name = "escalation" if isinstance(more, EscalationResult) else "jury"
        print(to_json({**found.plain(), **plain(run), name: plain(more)}))
    else:
        show_run(found, f"{found.title}, all of {run.out}")
        if isinstance(more, JuryResult):
            show_jury(more)
        else:
            show_levels(more)
            for line in _waiting(more, folder):
                console.out.print(console.safe(line, "yellow"))
        show_folder(run)
    failed = found.summary.invalid > waiting or run.skipped or run.stopped
    raise typer.Exit(WITH_FAILURES if failed else DONE)


def _waiting(found: EscalationResult, folder: Place) -> Iterator[str]:
    """What to do about pairs that no judge may decide; a folder has no lists of annotators."""
    if found.waiting:
        some = "1 pair waits" if found.waiting == 1 else f"{found.waiting:,} pairs wait"
        file = folder.shown(FOR_PEOPLE)
        yield f"{some} for people, in {file}: evenhand serve --pairs {file} puts them before people."
