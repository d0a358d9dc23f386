"""evenhand judge --ray: the same judging on many machines, with verdicts in a folder of shards."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from itertools import islice
from math import inf
from typing import Annotated, Any, NoReturn

import typer

from evenhand import console
from evenhand.cli.app import DONE, WITH_FAILURES
from evenhand.cli.inputs import Input, find_input
from evenhand.cli.running import open_judge, show_run
from evenhand.engines import open_engine
from evenhand.engines.endpoint import EndpointSettings
from evenhand.engines.llama import Hardware
from evenhand.engines.presets import find_address
from evenhand.engines.versions import versions_of
from evenhand.errors import InputError
from evenhand.judge import Orders, Setup
from evenhand.pace import Limits, Pace
from evenhand.pairs import Reading
from evenhand.prices import Price
from evenhand.protocol import Protocol
from evenhand.report import Summary, usage_facts

RayOption = Annotated[
    str | None,
    typer.Option(
        "--ray",
        metavar="[ADDRESS]",
        help="Judge on Ray: on a running cluster (HOST:PORT, or auto), or without ADDRESS on this machine. "
        "Verdicts go into the folder of --out.",
    ),
]
OutOption = Annotated[
    str | None,
    typer.Option(
        "--out",
        metavar="DIR",
        help="With --ray: the folder of shards, here or at an address such as s3://bucket/run.",
    ),
]
WorkersOption = Annotated[
    int | None,
    typer.Option("--workers", min=1, help="With --ray: so many judges at once. Default: one for each node."),
]
_POLL_SECONDS = 0.25
_PATIENCE_SECONDS = 60.0


@dataclass(frozen=True)
class Wanted:
    """What a command line asks for; the judge is opened here once to know who it is, and again by each worker."""

    names: list[str]
    given: Callable[[], Input]  # where the pairs are no Parquet
    reading: Reading
    spec: str
    protocol: Protocol
    hardware: Hardware
    endpoint: EndpointSettings
    limits: Limits
    orders: Orders = "both"
    seed: int = 0
    raw_markup: bool = False
    price: Price | None = None
    limit: int | None = None


def check_options(ray: str | None, out: str | None, workers: int | None, clashing: dict[str, bool]) -> bool:
    """Whether Ray is wanted; options that make no sense with or without it are refused."""
    if ray is None:
        for name, given in (("--out", out), ("--workers", workers)):
            if given is not None:
                raise InputError(f"{name} without --ray", hint="add --ray; without it verdicts go into --db FILE")
        return False
    if not out:
        raise InputError("--ray without --out", hint="name the folder for the verdicts: --out DIR")
    for name, wanted in clashing.items():
        if wanted:
            raise InputError(f"{name} does not go together with --ray", hint="leave one of them out")
    return True


def judge_on_ray(wanted: Wanted, address: str, out: str, workers: int | None, *, as_json: bool) -> NoReturn:
    """Judge on a cluster with progress, show all that the folder holds, and end the command."""
    from evenhand.scaleout.cluster import address_of, connect, ray_data, share_cores
    from evenhand.shards import begin_shards

    ray_data(address_of(address))  # before a model is fetched
    began = time.time()
    embedded = find_address(wanted.spec) is None
    engine = open_judge(wanted.spec, wanted.hardware, wanted.endpoint)
    setup = Setup(engine, wanted.protocol, wanted.raw_markup)
    Pace(engine, wanted.limits, wanted.price)  # refuses what cannot be kept
    place = begin_shards(out, setup, orders=wanted.orders, seed=wanted.seed)
    cluster = connect(address)
    try:
        most = wanted.limits.concurrency
        count, cores = share_cores(
            cluster.cores, embedded=embedded, workers=workers, threads=wanted.hardware.threads
        )
        count = min(count, most) if most and not embedded else count
        facts = _run(wanted, cluster, setup, place, count, cores, embedded, began)
    finally:
        cluster.close()
    summary = _summary(place, wanted.protocol)
    facts = {**_judge_facts(setup), **summary.facts(), **facts}
    if as_json:
        print(console.facts_to_print(facts))
    else:
        show_run(summary, facts, f"{facts['judge']} under {wanted.protocol.name}, all of {out}")
        if facts["skipped"]:
            console.out.print(f"left out: {console.count(facts['skipped'], 'broken row')}", style="yellow")
        console.out.print(f"[dim]kept in {out}; see it again:[/] evenhand results --db {out}", soft_wrap=True)
    raise typer.Exit(WITH_FAILURES if summary.invalid or facts["skipped"] or facts["stopped"] else DONE)


def _run(
    wanted: Wanted, cluster: Any, setup: Setup, place: Any, workers: int, cores: int, embedded: bool, began: float
) -> dict[str, Any]:
    from evenhand.scaleout import Recipe, ScaleOut
    from evenhand.scaleout.keeper import is_metered

    hardware = Hardware(wanted.hardware.context, cores, wanted.hardware.gpu_layers) if embedded else wanted.hardware
    recipe = Recipe(
        open=partial(open_engine, wanted.spec, hardware, endpoint=wanted.endpoint),
        protocol=wanted.protocol,
        place=place,
        fingerprint=setup.fingerprint,
        orders=wanted.orders,
        seed=wanted.seed,
        raw_markup=wanted.raw_markup,
        metered=is_metered(wanted.limits),
        price=wanted.price,
        skip_bad=wanted.reading.skip_bad,
    )
    work, unmatched = _work(wanted, cluster, workers, _at_once(setup, wanted.limits, workers))
    run = ScaleOut(cluster, recipe, wanted.limits, workers=workers, cores=cores)
    with console.watching(work.count) as watch:
        where = "this machine" if cluster.address == "local" else f"Ray at {cluster.address}"
        what = f"{workers} worker{'s' * (workers > 1)}"
        watch.say(f"{work.count:,} pairs in {len(work.tasks):,} tasks for {what} on {where}")
        run.start(work)
        try:
            _watch(run, watch, work.count)
        finally:
            _note(wanted, setup, place, run.seen, workers, began)
    outcome = run.outcome()
    progress = outcome.standing.progress
    return {
        "asked": progress.asked,
        "tokens": usage_facts(progress.usage),
        "cost": wanted.price.of(progress.usage) if wanted.price else None,
        "stopped": outcome.standing.stopped,
        "seconds": round(time.time() - began, 3),
        "judging_seconds": round(outcome.standing.seconds, 3),
        "out": place.name,
        "workers": workers,
        "tasks": outcome.tasks,
        "attempts": outcome.standing.attempts,
        "skipped": len(work.bad),
        "unmatched": unmatched,
    }


def _note(wanted: Wanted, setup: Setup, place: Any, seen: Any, workers: int, began: float) -> None:
    """Keep when the run was and what it took, however it ended."""
    from evenhand.shards import RunNote, note_run

    chosen = {"orders": wanted.orders, "seed": wanted.seed, "workers": workers}
    settings = {**chosen, **versions_of(setup.engine.identity)}
    done = seen.progress
    note_run(place, RunNote(settings, began, time.time(), done.pairs, done.asked, done.usage))


def _work(wanted: Wanted, cluster: Any, workers: int, at_once: int) -> tuple[Any, list[Any]]:
    """Tasks of Parquet that the workers read, else of pairs that are read here."""
    from evenhand.scaleout.driver import check_all
    from evenhand.scaleout.slices import find_parquet, local_work, parquet_work, refuse_twins

    groups = find_parquet(wanted.names) if wanted.names else None
    if groups is None:
        given = wanted.given()
        given.say()
        total = min(given.count, wanted.limit or given.count)
        pairs = islice(given.read(), wanted.limit)
        work = local_work(pairs, total, workers=workers, at_once=at_once, bad=given.bad)
        return work, [each.facts() for each in given.unmatched]
    found = check_all(cluster, groups, skip_bad=wanted.reading.skip_bad)
    refuse_twins(groups, found)
    work = parquet_work(groups, found, workers=workers, at_once=at_once, limit=wanted.limit)
    Input(work.count, lambda: iter(()), list(work.bad), []).say()
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
            watch.say("stopping after what is under way; press Ctrl-C again to stop at once")
            run.stop()
            _look_on(run, watch)
        finally:
            done = run.seen.progress.pairs
            watch.say(f"stopped after {done} of {total} pairs; the same command goes on from here")
        raise
    standing = run.standing()
    if standing.stopped:
        watch.say(f"{standing.stopped}; {standing.progress.pairs} of {total} pairs are done")


def _look_on(run: Any, watch: console.Watch) -> None:
    ended, lost, began = False, run.seen.lost, time.monotonic()
    while not ended:
        ended = run.wait(_POLL_SECONDS)
        standing = run.standing()
        watch.moved(standing.progress.pairs, standing.progress.usage, standing.progress.invalid)
        if standing.lost > lost:
            watch.say("a worker was lost; what it had not written is judged again")
            lost = standing.lost
        if not standing.workers and time.monotonic() - began > _PATIENCE_SECONDS:
            watch.say("no worker has begun yet; ray status says whether the cluster has cores that are free")
            began = inf


def _judge_facts(setup: Setup) -> dict[str, Any]:
    names = {"judge": setup.engine.identity["model"], "protocol": setup.protocol.name}
    return {**names, "fingerprint": setup.fingerprint}


def _summary(place: Any, protocol: Protocol) -> Summary:
    from evenhand.counting import summarise
    from evenhand.shards import open_shards
    from evenhand.shards.blocks import blocks

    if place.names("part-", ".parquet"):
        with open_shards(place) as shards:
            return summarise(blocks(shards), protocol.dimensions)
    return Summary(protocol.dimensions)


def inputs_of(
    pairs: list[str] | None, candidate: str | None, baseline: str | None, reading: Reading
) -> tuple[list[str], Callable[[], Input]]:
    """The names that may stand for Parquet, and how to read them here where they do not."""
    names = [] if candidate or baseline else list(pairs or [])
    return names, partial(find_input, pairs, candidate, baseline, reading)
