"""evenhand ray judge: the same judging on many machines, with outcomes in a folder of shards."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice
from math import inf
from typing import Annotated, Any, NoReturn

import typer

from evenhand.core.engine import Usage
from evenhand.core.judge import Orders, Setup
from evenhand.core.protocol import Protocol
from evenhand.core.verdict import found_on
from evenhand.engines import catalog, open_engine
from evenhand.engines.endpoint import EndpointSettings
from evenhand.engines.llama import Hardware
from evenhand.engines.presets import find_address
from evenhand.engines.versions import versions_of
from evenhand.io.pairs import ReadingOptions
from evenhand.results.plain import plain, to_json
from evenhand.results.run import RunSummary, judge_summary
from evenhand.results.summary import Summary, summarise
from evenhand.running.pace import Limits, Pace
from evenhand.running.prices import Price, find_price
from evenhand.views import console
from evenhand.views.cli.app import DONE, WITH_FAILURES, app
from evenhand.views.cli.inputs import (
    BaselineOption,
    CandidateOption,
    Input,
    JoinOnOption,
    PairsArgument,
    QuestionsOption,
    SkipBadOption,
    TurnOption,
    find_input,
)
from evenhand.views.cli.options import (
    ConcurrencyOption,
    ContextOption,
    GpuOption,
    JsonOption,
    JudgeOption,
    LimitOption,
    MaxCostOption,
    MaxRequestsOption,
    OrdersOption,
    PricesOption,
    ProtocolOption,
    RawOption,
    RequestsPerMinuteOption,
    SamplesOption,
    SeedOption,
    SetOption,
    ThreadsOption,
    TokensPerMinuteOption,
    orders_from,
)
from evenhand.views.cli.running import endpoint_settings, load_protocol, open_judge, show_run

AddressOption = Annotated[
    str,
    typer.Option(
        "--address",
        metavar="HOST:PORT",
        help="A running cluster, or auto for one that this machine belongs to. Default: RAY_ADDRESS, else Ray is"
        " started on this machine for this run.",
    ),
]
OutOption = Annotated[
    str,
    typer.Option(
        "--out", metavar="DIR", help="The folder of shards, here or at an address such as s3://bucket/run."
    ),
]
WorkersOption = Annotated[
    int | None, typer.Option("--workers", min=1, help="So many judges at once. Default: one for each node.")
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


@dataclass(frozen=True)
class ClusterOptions:
    """What a command line asks for; the judge is opened here once to know who it is, and again by each worker."""

    names: list[str]
    given: Callable[[], Input]  # where the pairs are no Parquet
    reading: ReadingOptions
    spec: str
    protocol: Protocol
    hardware: Hardware
    endpoint: EndpointSettings
    limits: Limits
    orders: Orders
    seed: int
    raw_markup: bool
    price: Price | None
    limit: int | None


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
def judge_on_ray(
    out: OutOption,
    pairs: PairsArgument = None,
    candidate: CandidateOption = None,
    baseline: BaselineOption = None,
    questions: QuestionsOption = None,
    turn: TurnOption = 1,
    join_on: JoinOnOption = "instruction",
    spec: JudgeOption = catalog.DEFAULT_MODEL,
    protocol: ProtocolOption = None,
    orders: OrdersOption = "both",
    address: AddressOption = "",
    workers: WorkersOption = None,
    seed: SeedOption = 0,
    limit: LimitOption = None,
    skip_bad: SkipBadOption = False,
    raw_markup: RawOption = False,
    settings: SetOption = None,
    samples: SamplesOption = 1,
    concurrency: ConcurrencyOption = None,
    requests_per_minute: RequestsPerMinuteOption = None,
    tokens_per_minute: TokensPerMinuteOption = None,
    max_requests: MaxRequestsOption = None,
    max_cost: MaxCostOption = None,
    prices: PricesOption = None,
    context: ContextOption = None,
    threads: ThreadsOption = None,
    gpu_layers: GpuOption = None,
    as_json: JsonOption = False,
) -> None:
    """Judge pairs on a Ray cluster, or on Ray on this machine; the same command goes on where it was stopped."""
    reading = ReadingOptions(questions, turn, join_on, skip_bad)
    names = [] if candidate or baseline else list(pairs or [])
    options = ClusterOptions(
        names,
        partial(find_input, pairs, candidate, baseline, reading),
        reading,
        spec,
        load_protocol(protocol, spec),
        Hardware(context, threads, gpu_layers),
        endpoint_settings(settings, samples, concurrency),
        Limits(concurrency, requests_per_minute, tokens_per_minute, max_requests, max_cost),
        *(orders_from(orders), seed, raw_markup, find_price(spec, prices), limit),
    )
    _judge(options, address, out, workers, as_json=as_json)


def _judge(options: ClusterOptions, address: str, out: str, workers: int | None, *, as_json: bool) -> NoReturn:
    """Judge on a cluster with progress, show all that the folder holds, and end the command."""
    from evenhand.running.cluster.cluster import address_of, connect, ray_data, share_cores
    from evenhand.store.shards import begin_shards

    ray_data(address_of(address))  # before a model is fetched
    began = time.time()
    embedded = find_address(options.spec) is None
    engine = open_judge(options.spec, options.hardware, options.endpoint)
    setup = Setup(engine, options.protocol, options.raw_markup)
    Pace(engine, options.limits, options.price)  # refuses what cannot be kept
    place = begin_shards(out, setup, orders=options.orders, seed=options.seed)
    cluster = connect(address)
    try:
        most = options.limits.concurrency
        count, cores = share_cores(
            cluster.cores, embedded=embedded, workers=workers, threads=options.hardware.threads
        )
        count = min(count, most) if most and not embedded else count
        run = _run(options, cluster, setup, place, count, cores, embedded, began)
    finally:
        cluster.close()
    found = RunSummary(
        *(engine.identity["model"], options.protocol.name, setup.fingerprint, _summary(place, options.protocol)),
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
    options: ClusterOptions,
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

    hardware = replace(options.hardware, threads=cores) if embedded else options.hardware
    recipe = Recipe(
        open=partial(open_engine, options.spec, hardware, endpoint=options.endpoint),
        protocol=options.protocol,
        place=place,
        fingerprint=setup.fingerprint,
        orders=options.orders,
        seed=options.seed,
        raw_markup=options.raw_markup,
        metered=is_metered(options.limits),
        price=options.price,
        skip_bad=options.reading.skip_bad,
    )
    work, unmatched = _work(options, cluster, workers, _at_once(setup, options.limits, workers))
    run = ScaleOut(cluster, recipe, options.limits, workers=workers, cores=cores)
    with console.watching(work.count) as watch:
        where = "this machine" if cluster.address == "local" else f"Ray at {cluster.address}"
        what = f"{workers} worker{'s' * (workers > 1)}"
        watch.print(f"{work.count:,} pairs in {len(work.tasks):,} tasks for {what} on {where}")
        run.start(work)
        try:
            _watch(run, watch, work.count)
        finally:
            _note(options, setup, place, run.seen, workers, began)
    outcome = run.outcome()
    progress = outcome.standing.progress
    return ClusterRun(
        asked=progress.asked,
        tokens=progress.usage,
        cost=options.price.of(progress.usage) if options.price else None,
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


def _note(options: ClusterOptions, setup: Setup, place: Any, seen: Any, workers: int, began: float) -> None:
    """Keep when the run was and what it took, however it ended."""
    from evenhand.store.shards import RunNote, note_run

    chosen = {"orders": options.orders, "seed": options.seed, "workers": workers}
    settings = {**chosen, **versions_of(setup.engine.identity)}
    done = seen.progress
    note_run(place, RunNote(settings, began, time.time(), done.pairs, done.asked, done.usage))


def _work(options: ClusterOptions, cluster: Any, workers: int, at_once: int) -> tuple[Any, list[Any]]:
    """Tasks of Parquet that the workers read, else of pairs that are read here."""
    from evenhand.running.cluster.driver import check_all
    from evenhand.running.cluster.slices import find_parquet, local_work, parquet_work, refuse_twins

    groups = find_parquet(options.names) if options.names else None
    if groups is None:
        given = options.given()
        given.print()
        total = min(given.count, options.limit or given.count)
        pairs = islice(given.read(), options.limit)
        work = local_work(pairs, total, workers=workers, at_once=at_once, bad=given.bad)
        return work, [each.plain() for each in given.unmatched]
    found = check_all(cluster, groups, skip_bad=options.reading.skip_bad)
    refuse_twins(groups, found)
    work = parquet_work(groups, found, workers=workers, at_once=at_once, limit=options.limit)
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
            watch.print(f"stopped after {done} of {total} pairs; the same command goes on from here")
        raise
    standing = run.standing()
    if standing.stopped:
        watch.print(f"{standing.stopped}; {standing.progress.pairs} of {total} pairs are done")


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
