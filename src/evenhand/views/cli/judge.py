"""evenhand judge, evenhand compare: ask a judge."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import islice
from pathlib import Path
from typing import Annotated

import typer

from evenhand.core.engine import Engine
from evenhand.core.errors import InputError
from evenhand.core.judge import Orders, Setup
from evenhand.core.pair import Pair
from evenhand.core.shuffle import Shuffle
from evenhand.engines import catalog
from evenhand.engines.llama import Hardware
from evenhand.engines.scripted import ScriptedEngine
from evenhand.io.pairs import ReadingOptions
from evenhand.results.decision import Decider, decision_of
from evenhand.results.judged import judged_pair
from evenhand.results.plain import to_json
from evenhand.running.pace import Limits
from evenhand.running.prices import Price, find_price
from evenhand.running.runner import plan
from evenhand.store import Store
from evenhand.views import console
from evenhand.views.api import Judge
from evenhand.views.cli.app import DONE, WITH_FAILURES, app
from evenhand.views.cli.deciding import dimension_from, show_decision
from evenhand.views.cli.inputs import (
    BaselineOption,
    CandidateOption,
    ColumnsOption,
    JoinOnOption,
    PairsArgument,
    QuestionsOption,
    SkipBadOption,
    TurnOption,
    columns_from,
    find_input,
)
from evenhand.views.cli.options import (
    DEFAULT_DB,
    ConcurrencyOption,
    ContextOption,
    DbOption,
    GpuOption,
    JsonOption,
    JudgeOption,
    LimitOption,
    MaxCostOption,
    MaxRequestsOption,
    OnOption,
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
from evenhand.views.cli.running import endpoint_settings, load_protocol, open_judge, run_with_progress, show_run


@app.command()
def judge(
    pairs: PairsArgument = None,
    candidate: CandidateOption = None,
    baseline: BaselineOption = None,
    questions: QuestionsOption = None,
    turn: TurnOption = 1,
    join_on: JoinOnOption = "instruction",
    columns: ColumnsOption = None,
    spec: JudgeOption = catalog.DEFAULT_MODEL,
    protocol: ProtocolOption = None,
    orders: OrdersOption = "both",
    db: DbOption = DEFAULT_DB,
    seed: SeedOption = 0,
    limit: LimitOption = None,
    skip_bad: SkipBadOption = False,
    until_decided: Annotated[
        bool,
        typer.Option(
            "--until-decided",
            help="Take the pairs in random order, and stop as soon as it is known which side is better.",
        ),
    ] = False,
    on: OnOption = "",
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Say what the run would take, and ask nobody.")
    ] = False,
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
    """Judge every pair of a file, or the outputs of two models; a run that was stopped goes on where it stopped."""
    if on and not until_decided:
        raise InputError("--on without --until-decided", hint="add --until-decided")
    reading = ReadingOptions(questions, turn, join_on, skip_bad, columns_from(columns))
    hardware = Hardware(context, threads, gpu_layers)
    endpoint = endpoint_settings(settings, samples, concurrency)
    limits = Limits(concurrency, requests_per_minute, tokens_per_minute, max_requests, max_cost)
    template, chosen, price = load_protocol(protocol, spec), orders_from(orders), find_price(spec, prices)
    dimension = dimension_from(on, template.dimensions) if until_decided else ""
    given = find_input(pairs, candidate, baseline, reading, db)
    given.print()
    engine = planned_engine(spec) if dry_run else None
    engine = engine or open_judge(spec, hardware, endpoint)
    rows: Iterable[Pair] = islice(given.read(), limit)
    decider = None
    if until_decided and not dry_run:
        decider = Decider(dimension, enough=lambda standing: standing.against(0.5) is not None)
        rows = decider.watch(islice(Shuffle(given.read, seed=seed), limit))
    if dry_run:
        show_plan(Setup(engine, template, raw_markup), rows, db, chosen, seed, price, as_json)
        return
    with Judge(
        engine, template, db=db, orders=chosen, seed=seed, raw_markup=raw_markup, limits=limits, price=price
    ) as judge:
        if given.begin(judge):
            console.err.print(
                f"all {console.count(given.count, 'pair')} were judged before: nothing is left to ask,"
                " counting them",
                style="dim",
            )
        found = run_with_progress(judge, rows, min(given.count, limit or given.count), enough=decider, line=decider)
        given.end(judge, found.summary.pairs)
        kept = judge.store.judge_book.find(judge.setup.fingerprint) is not None
    decision = decision_of(decider.standing, found.summary.pairs, given.count) if decider else None
    if as_json:
        stopping = {"until_decided": decision} if decision else {}
        print(to_json({**found.plain(), "db": str(db), **given.plain(), **stopping}))
    else:
        show_run(found)
        if decision:
            show_decision(decision, found.summary.sides)
        if given.bad:
            console.out.print(f"left out: {console.count(len(given.bad), 'broken row')}", style="yellow")
        if kept:
            console.out.print(f"[dim]kept in {db}; see it again:[/] evenhand results --db {db}", soft_wrap=True)
        else:
            console.out.print("the judge answered nothing, so nothing is kept", style="yellow")
    raise typer.Exit(WITH_FAILURES if found.summary.invalid or given.bad or found.stopped else DONE)


@app.command()
def compare(
    instruction: Annotated[str, typer.Option("--instruction", "-i", help="What was asked.")],
    a: Annotated[str, typer.Option("--a", help="Response 1.")],
    b: Annotated[str, typer.Option("--b", help="Response 2.")],
    spec: JudgeOption = catalog.DEFAULT_MODEL,
    protocol: ProtocolOption = None,
    orders: OrdersOption = "both",
    db: Annotated[Path | None, typer.Option("--db", metavar="FILE", help="Keep the verdict there.")] = None,
    raw_markup: RawOption = False,
    settings: SetOption = None,
    samples: SamplesOption = 1,
    context: ContextOption = None,
    threads: ThreadsOption = None,
    gpu_layers: GpuOption = None,
    as_json: JsonOption = False,
) -> None:
    """Judge one pair on the spot."""
    template, chosen = load_protocol(protocol, spec), orders_from(orders)  # before a model is fetched
    engine = open_judge(spec, Hardware(context, threads, gpu_layers), endpoint_settings(settings, samples))
    with Judge(engine, template, db=db, orders=chosen, raw_markup=raw_markup) as judge:
        judgment = judge.compare(instruction, a, b)
    if as_json:
        print(to_json(judged_pair(judgment)))
    else:
        console.out.print(console.comparison(judgment))
        for note in sorted(judgment.notes):
            console.out.print(f"note: {note.replace('_', ' ')}", style="yellow")
        console.out.print(
            console.usage_line(judgment.usage, judgment.seconds, judgment.asked), style="dim", soft_wrap=True
        )
    bad = any(outcome.side is None for outcome in judgment.outcomes.values())
    raise typer.Exit(WITH_FAILURES if bad else DONE)


def planned_engine(spec: str) -> Engine | None:
    """A stand-in to plan with for a model that would have to be fetched first; None where it is here."""
    model = catalog.CATALOG.get(spec)
    if model is None or catalog.find(spec) is not None:
        return None
    console.err.print(
        f"{spec} is not here yet: the run would first fetch {model.size / 1e6:,.0f} MB from {model.source}",
        style="dim",
        soft_wrap=True,
    )
    return ScriptedEngine(lambda _: "", name=spec)


def show_plan(
    setup: Setup, pairs: Iterable[Pair], db: Path, orders: Orders, seed: int, price: Price | None, as_json: bool
) -> None:
    """What a run would take."""
    with Store(db if db.exists() else ":memory:", read_only=True) as store:
        found = plan(setup, pairs, store, orders=orders, seed=seed)
    usage = found.usage
    cost = price.of(usage) if price else None
    if as_json:
        fields = {"pairs": found.pairs, "requests": found.requests, "kept": found.kept, "tokens": usage}
        print(to_json({**fields, "cost": cost, "currency": price.currency if price else None}))
        return
    console.out.print(
        f"{console.count(found.pairs, 'pair')}: {console.count(found.requests, 'request')} to make, {found.kept:,}"
        f" {'answer' if found.kept == 1 else 'answers'} kept already.\n"
        f"About {usage.computed:,} tokens to read and {usage.generated:,} to write, by the lengths of the texts.\n"
        + (
            f"About {cost:.2f} {price.currency} at the prices of {price.date}, with nothing cached."
            if price
            else "No price is known for this judge; --prices gives one."
        ),
        soft_wrap=True,
    )
