"""evenhand ray judge: the same judging on many machines, with outcomes in a folder of shards."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import islice
from math import inf
from typing import Annotated, NoReturn

import typer

from evenhand.core.engine import Engine, Usage
from evenhand.core.errors import InputError
from evenhand.core.judge import Setup
from evenhand.core.pair import Pair
from evenhand.core.protocol import Protocol
from evenhand.core.verdict import found_on
from evenhand.engines import open_engine
from evenhand.engines.endpoint import EndpointSettings
from evenhand.engines.llama import Hardware
from evenhand.engines.presets import find_address
from evenhand.engines.repeated import Repeated
from evenhand.engines.versions import versions_of
from evenhand.io.pairs import Unmatched
from evenhand.results.plain import plain, to_json
from evenhand.results.run import RunSummary, judge_summary
from evenhand.results.summary import Summary, summarise
from evenhand.running.cluster import slices
from evenhand.running.cluster.cluster import Cluster, address_of, connect, ray_data, share_cores
from evenhand.running.cluster.coordinator import ClusterProgress, ClusterStanding, is_metered
from evenhand.running.cluster.driver import ScaleOut, all_done, check_all
from evenhand.running.cluster.slices import Slice, Work
from evenhand.running.cluster.worker import Recipe
from evenhand.running.pace import Limits, Pace
from evenhand.store.shards import Place, RunNote, begin_shards, keys_in, note_run, open_shards
from evenhand.views import console
from evenhand.views.cli.app import DONE, WITH_FAILURES, app
from evenhand.views.cli.groups import (
    AnySettings,
    EngineOptions,
    JudgeOptions,
    JudgeSettings,
    LimitOptions,
    PairOptions,
    ReadingOptions,
    settings_of,
)
from evenhand.views.cli.inputs import Input
from evenhand.views.cli.judging import check_slots, protocols_of
from evenhand.views.cli.option_groups import ADVANCED, OUTPUT, flat_options, option
from evenhand.views.cli.options import JsonOption, LimitOption, OnOption, SeedOption
from evenhand.views.cli.running import show_run
from evenhand.views.progress import Watch, watching

ray_app = typer.Typer(
    name="ray",
    help="Judge on many machines with Ray; outcomes go into a folder of shards.",
    no_args_is_help=True,
    rich_markup_mode="rich",
    context_settings={"help_option_names": ["--help", "-h"]},
)
app.add_typer(ray_app)
_POLL_SECONDS = 0.25
_PATIENCE_SECONDS = 60.0


def opened(spec: str, hardware: Hardware, endpoint: EndpointSettings, repeat: int) -> Engine:
    """The judge's engine, as each worker opens it."""
    engine = open_engine(spec, hardware, endpoint=endpoint)
    return Repeated(engine, repeat) if repeat > 1 else engine


@dataclass(frozen=True)
class ClusterJob:
    """What a command line asks for; a judge is opened here once to know who it is, and again by each worker."""

    names: list[str]
    given: Callable[[], Input]  # where the pairs are no Parquet
    skip_bad: bool
    limit: int | None
    address: str
    workers: int | None
    out: str
    columns: Mapping[str, str] = field(default_factory=dict)
    began: float = field(default_factory=time.time)


@dataclass(frozen=True)
class PairSource:
    """The pairs of a command, read once and found good; for each judge they are cut into tasks again."""

    cut: Callable[[int, int], Work]  # for so many workers, each with so many prompts at once
    read: Callable[[], Iterator[Pair]]
    unmatched: list[Unmatched]


@dataclass(frozen=True, slots=True)
class ClusterRun:
    """How a run on a cluster went. The fields, and their names, are those of `--json`."""

    asked: int
    tokens: Usage
    cost: float | None
    stopped: str
    seconds: float
    judging_seconds: float
    out: str
    workers: int
    tasks: int
    attempts: int
    skipped: int
    unmatched: list[Unmatched]


@ray_app.command("judge")
@flat_options
def judge_on_ray(
    files: PairOptions,
    reading: ReadingOptions,
    judge: JudgeOptions,
    limits: LimitOptions,
    out: Annotated[
        str, option("--out DIR", "The folder of shards, here or at an address such as s3://bucket/run.", OUTPUT)
    ],
    engine: EngineOptions,
    address: Annotated[
        str,
        option(
            "--address HOST:PORT",
            "A running cluster, or auto for one that this machine belongs to. Default: RAY_ADDRESS, else Ray is"
            " started on this machine for this run.",
            ADVANCED,
        ),
    ] = "",
    workers: Annotated[
        int | None,
        option("--workers", "How many judges at once. Default: one for each node.", ADVANCED, min=1),
    ] = None,
    limit: LimitOption = None,
    on: OnOption = "",
    as_json: JsonOption = False,
    seed: SeedOption = 0,
) -> None:
    """Judge pairs on a Ray cluster, or on Ray on this machine; the same command goes on where it was stopped."""
    if on and not judge.levels.escalate:
        raise InputError("--on without --escalate", hint="--on names the dimension that levels decide")
    settings = settings_of(judge, engine, limits, seed, on)
    names = [] if files.candidate or files.baseline else list(files.pairs or [])
    found = reading.reading
    job = ClusterJob(
        *(names, partial(files.find, found), reading.skip_bad, limit, address, workers, out), found.columns
    )
    if isinstance(settings, JudgeSettings):
        _judge(job, settings, as_json=as_json)
    from evenhand.views.cli.scaling_several import judge_with_several

    judge_with_several(job, settings, as_json=as_json)


def _judge(job: ClusterJob, settings: JudgeSettings, *, as_json: bool) -> NoReturn:
    """Judge on a cluster with progress, show all that the folder holds, and end the command."""
    with opened_cluster(job) as connect:
        given = find_input(job, settings)
        setup = opened_judge(settings)
        place = begin_shards(job.out, setup, orders=settings.orders, seed=settings.seed)
        cluster = connect()
        run, standing = ClusterJudge(settings, setup, place).run(
            job, cluster, find_pairs(job, given, cluster, settings)
        )
    if standing.fault:
        raise standing.fault.error()
    model = setup.engine.identity["model"]
    found = RunSummary(
        *(model, settings.protocol.name, setup.fingerprint, _summary(place, settings.protocol)),
        *(run.tokens, run.seconds),
        asked=run.asked,
        cost=run.cost,
        stopped=run.stopped,
    )
    if as_json:
        print(to_json({**found.plain(), **plain(run)}))
    else:
        show_run(found, f"{found.title}, all of {job.out}")
        show_folder(run)
    raise typer.Exit(WITH_FAILURES if found.summary.invalid or run.skipped or run.stopped else DONE)


def show_folder(run: ClusterRun) -> None:
    """The last lines of a run: what was left out, and where the rest is."""
    if run.skipped:
        console.out.print(f"left out: {console.count(run.skipped, 'broken row')}", style="yellow")
    console.below(f"kept in {run.out}; see it again:", f"evenhand results --db {run.out}")


@contextmanager
def opened_cluster(job: ClusterJob) -> Iterator[Callable[[], Cluster]]:
    """What connects to Ray, once judges are opened and the folder is found good; it is let go of in the end."""
    ray_data(address_of(job.address))  # before a model is fetched
    held: list[Cluster] = []

    def connected() -> Cluster:
        held.append(connect(job.address))
        return held[0]

    try:
        yield connected
    finally:
        for cluster in held:
            cluster.close()


def opened_judge(settings: JudgeSettings) -> Setup:
    """The judge as it is known here; what cannot be kept is refused."""
    engine = settings.engine()
    Pace(engine, settings.limits, settings.price)
    return settings.setup(engine)


def find_input(job: ClusterJob, settings: AnySettings) -> Input | list[Slice]:
    """Row groups of Parquet, which the workers read, or pairs that are read here; before a folder is begun."""
    groups = slices.find_parquet(job.names, job.columns) if job.names else None
    if groups is not None:
        return groups
    given = job.given()
    check_slots(settings, given)
    return given


def find_pairs(job: ClusterJob, given: Input | list[Slice], cluster: Cluster, settings: AnySettings) -> PairSource:
    """The same, all of it read once and found good."""
    if isinstance(given, Input):
        given.print()

        def read() -> Iterator[Pair]:
            return islice(given.read(), job.limit)

        def cut(workers: int, at_once: int) -> Work:
            total = min(given.count, job.limit or given.count)
            return slices.local_work(read(), total, workers=workers, at_once=at_once, bad=given.bad)

        return PairSource(cut, read, list(given.unmatched))
    groups = given
    found = check_all(cluster, groups, skip_bad=job.skip_bad, protocols=protocols_of(settings))
    slices.refuse_twins(groups, found)

    def cut_groups(workers: int, at_once: int) -> Work:
        return slices.parquet_work(groups, found, workers=workers, at_once=at_once, limit=job.limit)

    work = cut_groups(1, 1)
    Input(work.count, lambda: iter(()), list(work.bad), []).print()
    return PairSource(
        cut_groups,
        lambda: (pair for task in work.tasks for pair in slices.pairs_of(task, skip_bad=job.skip_bad)),
        [],
    )


@dataclass(frozen=True)
class ClusterJudge:
    """One judge on a cluster, and the folder in which it keeps what it says."""

    settings: JudgeSettings
    setup: Setup
    place: Place

    def run(
        self,
        job: ClusterJob,
        cluster: Cluster,
        source: PairSource,
        *,
        name: str = "",
        used: tuple[int, float] = (0, 0.0),
        passed_over: Sequence[bytes] = (),
    ) -> tuple[ClusterRun, ClusterStanding]:
        """Judge pairs with progress, but those that are passed over; how it went, and how the cluster stood."""
        began, settings = time.time(), self.settings
        workers, cores = self._share(job, cluster)
        work = source.cut(workers, _at_once(self.setup, settings.limits, workers))
        done = keys_in(self.place, passed_over)
        if all_done(done, work.count, source.read()):
            return self._nothing_to_do(job, work, source, name, used)
        run = ScaleOut(cluster, self._recipe(job, cores), settings.limits, workers=workers, cores=cores, used=used)
        with watching(work.count) as watch:
            watch.print(_heading(name, work, workers, cluster.address))
            run.start(work, done)
            try:
                _watch(run, watch, work.count)
            finally:
                _note(settings, self.setup, self.place, run.seen, workers, began)
        standing = run.outcome()
        return ClusterRun(
            asked=standing.progress.asked,
            tokens=standing.progress.usage,
            cost=settings.price.of(standing.progress.usage) if settings.price else None,
            stopped=standing.stopped,
            seconds=round(time.time() - job.began, 3),
            judging_seconds=round(standing.seconds, 3),
            out=job.out,
            workers=workers,
            tasks=len(work.tasks),
            attempts=standing.attempts,
            skipped=len(work.bad),
            unmatched=source.unmatched,
        ), standing

    def _nothing_to_do(
        self, job: ClusterJob, work: Work, source: PairSource, name: str, used: tuple[int, float]
    ) -> tuple[ClusterRun, ClusterStanding]:
        """The same where the judge has said all: no worker is started, and no model loaded."""
        said = f"{console.count(work.count, 'pair')}, nothing left to ask"
        console.aside(f"{name}: {said}" if name else said)
        taken, spent = used
        return ClusterRun(
            asked=0,
            tokens=Usage(),
            cost=self.settings.price.of(Usage()) if self.settings.price else None,
            stopped="",
            seconds=round(time.time() - job.began, 3),
            judging_seconds=0.0,
            out=job.out,
            workers=0,
            tasks=0,
            attempts=0,
            skipped=len(work.bad),
            unmatched=source.unmatched,
        ), ClusterStanding(ClusterProgress(pairs=work.count), taken=taken, spent=spent)

    @property
    def _embedded(self) -> bool:
        return find_address(self.settings.spec) is None

    def _share(self, job: ClusterJob, cluster: Cluster) -> tuple[int, int]:
        """How many workers this judge has, and how many cores each of them."""
        most, threads = self.settings.limits.concurrency, self.settings.hardware.threads
        count, cores = share_cores(cluster.cores, embedded=self._embedded, workers=job.workers, threads=threads)
        return min(count, most) if most and not self._embedded else count, cores

    def _recipe(self, job: ClusterJob, cores: int) -> Recipe:
        settings = self.settings
        hardware = replace(settings.hardware, threads=cores) if self._embedded else settings.hardware
        return Recipe(
            open=partial(opened, settings.spec, hardware, settings.endpoint, settings.repeat),
            protocol=settings.protocol,
            place=self.place,
            fingerprint=self.setup.fingerprint,
            orders=settings.orders,
            seed=settings.seed,
            raw_markup=settings.raw_markup,
            metered=is_metered(settings.limits),
            price=settings.price,
            skip_bad=job.skip_bad,
        )


def _heading(name: str, work: Work, workers: int, address: str) -> str:
    where = "this machine" if address == "local" else f"Ray at {address}"
    what = f"{workers} worker{'s' * (workers > 1)}"
    said = f"{console.count(work.count, 'pair')} in {console.count(len(work.tasks), 'task')} for {what} on {where}"
    return f"{name}: {said}" if name else said


def _note(
    asked: JudgeSettings, setup: Setup, place: Place, seen: ClusterStanding, workers: int, began: float
) -> None:
    """Keep when the run was and what it took, however it ended."""
    chosen = {"orders": asked.orders, "seed": asked.seed, "workers": workers}
    settings = {**chosen, **versions_of(setup.engine.identity)}
    done = seen.progress
    note_run(place, RunNote(settings, began, time.time(), done.pairs, done.asked, done.usage))


def _at_once(setup: Setup, limits: Limits, workers: int) -> int:
    share = setup.engine.concurrency if limits.concurrency is None else limits.concurrency // workers
    return max(1, min(share, setup.engine.concurrency))


def _watch(run: ScaleOut, watch: Watch, total: int) -> None:
    """Until it is done; Ctrl-C stops after what is under way, a second one at once."""
    try:
        _look_on(run, watch)
    except KeyboardInterrupt:
        try:
            watch.print("stopping after what is under way; press Ctrl-C again to stop at once")
            run.stop()
            _look_on(run, watch)
        finally:
            done = run.seen.progress.pairs
            watch.print(
                f"stopped after {done:,} of {console.count(total, 'pair')}; the same command goes on from here"
            )
        raise
    standing = run.standing()
    if standing.stopped:
        watch.print(f"{standing.stopped}; {standing.progress.pairs:,} of {console.count(total, 'pair')} done")


def _look_on(run: ScaleOut, watch: Watch) -> None:
    ended, lost, began = False, run.seen.lost, time.monotonic()
    while not ended:
        ended = run.wait(_POLL_SECONDS)
        standing = run.standing()
        watch.moved(standing.progress.pairs, standing.progress.usage, standing.progress.invalid)
        if standing.lost > lost:
            watch.print("a worker was lost; what it had not written is judged again")
            lost = standing.lost
        if not standing.workers and time.monotonic() - began > _PATIENCE_SECONDS:
            watch.print("no worker has begun yet; ray status says whether the cluster has cores that are free")
            began = inf


def _summary(place: Place, protocol: Protocol) -> Summary:
    """All that the folder holds, from this run or another."""
    if not place.names("part-", ".parquet"):
        return summarise((), found_on(protocol.dimensions))
    with open_shards(place) as shards:
        return judge_summary(shards, shards.judges()[0]).summary
