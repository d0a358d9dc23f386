"""evenhand ray judge: the same judging on many machines, with outcomes in a folder of shards."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import islice
from math import inf
from typing import Annotated, Any, NoReturn

import typer

from evenhand.core.engine import Engine, Usage
from evenhand.core.judge import Setup
from evenhand.core.protocol import Protocol
from evenhand.core.verdict import found_on
from evenhand.engines import open_engine
from evenhand.engines.endpoint import EndpointSettings
from evenhand.engines.llama import Hardware
from evenhand.engines.presets import find_address
from evenhand.engines.repeated import Repeated
from evenhand.engines.versions import versions_of
from evenhand.results.plain import plain, to_json
from evenhand.results.run import RunSummary, judge_summary
from evenhand.results.summary import Summary, summarise
from evenhand.running.pace import Limits, Pace
from evenhand.views import console
from evenhand.views.cli.app import DONE, WITH_FAILURES, app
from evenhand.views.cli.groups import (
    EngineOptions,
    JudgeOptions,
    JudgeSettings,
    LimitOptions,
    PairOptions,
    ReadingOptions,
)
from evenhand.views.cli.inputs import Input
from evenhand.views.cli.option_groups import flat_options
from evenhand.views.cli.options import ADVANCED, OUTPUT, JsonOption, LimitOption, SeedOption
from evenhand.views.cli.running import show_run

AddressOption = Annotated[
    str,
    typer.Option(
        "--address",
        metavar="HOST:PORT",
        help="A running cluster, or auto for one that this machine belongs to. Default: RAY_ADDRESS, else Ray is"
        " started on this machine for this run.",
        rich_help_panel=ADVANCED,
    ),
]
OutOption = Annotated[
    str,
    typer.Option(
        "--out",
        metavar="DIR",
        help="The folder of shards, here or at an address such as s3://bucket/run.",
        rich_help_panel=OUTPUT,
    ),
]
WorkersOption = Annotated[
    int | None,
    typer.Option(
        "--workers", min=1, help="So many judges at once. Default: one for each node.", rich_help_panel=ADVANCED
    ),
]
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
    """What a command line asks for; the judge is opened here once to know who it is, and again by each worker."""

    names: list[str]
    given: Callable[[], Input]  # where the pairs are no Parquet
    skip_bad: bool
    settings: JudgeSettings
    limit: int | None
    columns: Mapping[str, str] = field(default_factory=dict)


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
    unmatched: list[Any]


@ray_app.command("judge")
@flat_options
def judge_on_ray(
    files: PairOptions,
    reading: ReadingOptions,
    judge: JudgeOptions,
    limits: LimitOptions,
    out: OutOption,
    engine: EngineOptions,
    address: AddressOption = "",
    workers: WorkersOption = None,
    limit: LimitOption = None,
    as_json: JsonOption = False,
    seed: SeedOption = 0,
) -> None:
    """Judge pairs on a Ray cluster, or on Ray on this machine; the same command goes on where it was stopped."""
    settings = JudgeSettings.of(judge, engine, limits, seed)
    names = [] if files.candidate or files.baseline else list(files.pairs or [])
    found = reading.reading
    job = ClusterJob(names, partial(files.find, found), reading.skip_bad, settings, limit, found.columns)
    _judge(job, address, out, workers, as_json=as_json)


def _judge(job: ClusterJob, address: str, out: str, workers: int | None, *, as_json: bool) -> NoReturn:
    """Judge on a cluster with progress, show all that the folder holds, and end the command."""
    from evenhand.running.cluster.cluster import address_of, connect, ray_data, share_cores
    from evenhand.store.shards import begin_shards

    ray_data(address_of(address))  # before a model is fetched
    found_input = _find_input(job)  # before a folder is begun and Ray is started
    began, settings = time.time(), job.settings
    embedded = find_address(settings.spec) is None
    engine = settings.engine()
    setup = settings.setup(engine)
    Pace(engine, settings.limits, settings.price)  # refuses what cannot be kept
    place = begin_shards(out, setup, orders=settings.orders, seed=settings.seed)
    cluster = connect(address)
    try:
        most = settings.limits.concurrency
        count, cores = share_cores(
            cluster.cores, embedded=embedded, workers=workers, threads=settings.hardware.threads
        )
        count = min(count, most) if most and not embedded else count
        run = _run(job, found_input, cluster, setup, place, count, cores, embedded, began)
    finally:
        cluster.close()
    found = RunSummary(
        *(engine.identity["model"], settings.protocol.name, setup.fingerprint, _summary(place, settings.protocol)),
        *(run.tokens, run.seconds),
        asked=run.asked,
        cost=run.cost,
        stopped=run.stopped,
    )
    if as_json:
        print(to_json({**found.plain(), **plain(run)}))
    else:
        show_run(found, f"{found.title}, all of {out}")
        if run.skipped:
            console.out.print(f"left out: {console.count(run.skipped, 'broken row')}", style="yellow")
        console.out.print(f"[dim]kept in {out}; see it again:[/] evenhand results --db {out}", soft_wrap=True)
    raise typer.Exit(WITH_FAILURES if found.summary.invalid or run.skipped or run.stopped else DONE)


def _run(
    job: ClusterJob,
    found_input: Input | list[Any],
    cluster: Any,
    setup: Setup,
    place: Any,
    workers: int,
    cores: int,
    embedded: bool,
    began: float,
) -> ClusterRun:
    from evenhand.running.cluster import Recipe, ScaleOut
    from evenhand.running.cluster.coordinator import is_metered

    settings = job.settings
    hardware = replace(settings.hardware, threads=cores) if embedded else settings.hardware
    recipe = Recipe(
        open=partial(opened, settings.spec, hardware, settings.endpoint, settings.repeat),
        protocol=settings.protocol,
        place=place,
        fingerprint=setup.fingerprint,
        orders=settings.orders,
        seed=settings.seed,
        raw_markup=settings.raw_markup,
        metered=is_metered(settings.limits),
        price=settings.price,
        skip_bad=job.skip_bad,
    )
    work, unmatched = _work(job, found_input, cluster, workers, _at_once(setup, settings.limits, workers))
    run = ScaleOut(cluster, recipe, settings.limits, workers=workers, cores=cores)
    with console.watching(work.count) as watch:
        where = "this machine" if cluster.address == "local" else f"Ray at {cluster.address}"
        what = f"{workers} worker{'s' * (workers > 1)}"
        watch.print(
            f"{console.count(work.count, 'pair')} in {console.count(len(work.tasks), 'task')} for {what} on {where}"
        )
        run.start(work)
        try:
            _watch(run, watch, work.count)
        finally:
            _note(settings, setup, place, run.seen, workers, began)
    outcome = run.outcome()
    progress = outcome.standing.progress
    return ClusterRun(
        asked=progress.asked,
        tokens=progress.usage,
        cost=settings.price.of(progress.usage) if settings.price else None,
        stopped=outcome.standing.stopped,
        seconds=round(time.time() - began, 3),
        judging_seconds=round(outcome.standing.seconds, 3),
        out=place.name,
        workers=workers,
        tasks=outcome.tasks,
        attempts=outcome.standing.attempts,
        skipped=len(work.bad),
        unmatched=unmatched,
    )


def _note(asked: JudgeSettings, setup: Setup, place: Any, seen: Any, workers: int, began: float) -> None:
    """Keep when the run was and what it took, however it ended."""
    from evenhand.store.shards import RunNote, note_run

    chosen = {"orders": asked.orders, "seed": asked.seed, "workers": workers}
    settings = {**chosen, **versions_of(setup.engine.identity)}
    done = seen.progress
    note_run(place, RunNote(settings, began, time.time(), done.pairs, done.asked, done.usage))


def _find_input(job: ClusterJob) -> Input | list[Any]:
    """Row groups of Parquet, which the workers read, or pairs that are read here."""
    from evenhand.running.cluster.slices import find_parquet

    groups = find_parquet(job.names, job.columns) if job.names else None
    return job.given() if groups is None else groups


def _work(
    job: ClusterJob, found_input: Input | list[Any], cluster: Any, workers: int, at_once: int
) -> tuple[Any, list[Any]]:
    """Tasks of Parquet that the workers read, else of pairs that are read here."""
    from evenhand.running.cluster.driver import check_all
    from evenhand.running.cluster.slices import local_work, parquet_work, refuse_twins

    if isinstance(found_input, Input):
        found_input.print()
        total = min(found_input.count, job.limit or found_input.count)
        pairs = islice(found_input.read(), job.limit)
        work = local_work(pairs, total, workers=workers, at_once=at_once, bad=found_input.bad)
        return work, list(found_input.unmatched)
    groups = found_input
    found = check_all(cluster, groups, skip_bad=job.skip_bad)
    refuse_twins(groups, found)
    work = parquet_work(groups, found, workers=workers, at_once=at_once, limit=job.limit)
    Input(work.count, lambda: iter(()), list(work.bad), []).print()
    return work, []


def _at_once(setup: Setup, limits: Limits, workers: int) -> int:
    share = setup.engine.concurrency if limits.concurrency is None else limits.concurrency // workers
    return max(1, min(share, setup.engine.concurrency))


def _watch(run: Any, watch: console.Watch, total: int) -> None:
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


def _look_on(run: Any, watch: console.Watch) -> None:
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


def _summary(place: Any, protocol: Protocol) -> Summary:
    """All that the folder holds, from this run or another."""
    from evenhand.store.shards import open_shards

    if not place.names("part-", ".parquet"):
        return summarise((), found_on(protocol.dimensions))
    with open_shards(place) as shards:
        return judge_summary(shards, shards.judges()[0]).summary
