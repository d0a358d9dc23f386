"""evenhand arena: pair the outputs of many models."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from evenhand.core.errors import InputError
from evenhand.core.pair import Pair
from evenhand.engines import catalog
from evenhand.engines.llama import Hardware
from evenhand.io.files import write_rows
from evenhand.io.pairs import Arena, ReadingOptions
from evenhand.running.pace import Limits
from evenhand.views import console
from evenhand.views.api import Judge
from evenhand.views.cli.app import DONE, WITH_FAILURES, app
from evenhand.views.cli.inputs import (
    ColumnsOption,
    Input,
    JoinOnOption,
    QuestionsOption,
    SkipBadOption,
    TurnOption,
    columns_from,
)
from evenhand.views.cli.options import (
    DEFAULT_DB,
    ConcurrencyOption,
    ContextOption,
    DbOption,
    GpuOption,
    JsonOption,
    JudgeOption,
    MaxRequestsOption,
    OrdersOption,
    ProtocolOption,
    SamplesOption,
    SetOption,
    ThreadsOption,
    orders_from,
)
from evenhand.views.cli.running import endpoint_settings, load_protocol, open_judge, run_with_progress, show_run


@app.command()
def arena(
    outputs: Annotated[
        list[str],
        typer.Argument(
            metavar="[NAME=]OUTPUTS...",
            help="Files of outputs, one model in each or several told apart by their rows; in all the forms that"
            " [bold]evenhand judge --candidate[/] takes.",
        ),
    ],
    baseline: Annotated[
        str | None, typer.Option("--baseline", metavar="MODEL", help="Pair every model with this one alone.")
    ] = None,
    size: Annotated[
        int | None,
        typer.Option("--size", min=1, help="Draw so many pairs at random, such that they reach every model."),
    ] = None,
    seed: Annotated[int, typer.Option("--seed", help="Decides what --size draws.")] = 0,
    out: Annotated[
        Path | None,
        typer.Option("--out", metavar="FILE", help="Write the pairs (.jsonl, .json, .parquet) and judge nothing."),
    ] = None,
    questions: QuestionsOption = None,
    turn: TurnOption = 1,
    join_on: JoinOnOption = "instruction",
    columns: ColumnsOption = None,
    skip_bad: SkipBadOption = False,
    spec: JudgeOption = catalog.DEFAULT_MODEL,
    protocol: ProtocolOption = None,
    orders: OrdersOption = "both",
    db: DbOption = DEFAULT_DB,
    settings: SetOption = None,
    samples: SamplesOption = 1,
    concurrency: ConcurrencyOption = None,
    max_requests: MaxRequestsOption = None,
    context: ContextOption = None,
    threads: ThreadsOption = None,
    gpu_layers: GpuOption = None,
    as_json: JsonOption = False,
) -> None:
    """Pair many models' outputs, all against all, and judge the pairs or write them to a file."""
    template, chosen = load_protocol(protocol, spec), orders_from(orders)
    reading = ReadingOptions(questions, turn, join_on, skip_bad, columns_from(columns))
    met = Arena(outputs, baseline=baseline, size=size, seed=seed, reading=reading)
    given = Input(len(met), lambda: iter(met), met.bad, met.unmatched, notes=met.notes)
    given.print()
    about = {"models": list(met.models), "possible": met.possible, "seed": seed, **given.plain()}
    if out is not None:
        written = write_pairs(out, met)
        _show(
            {**about, "pairs": written, "out": str(out)},
            f"{written:,} pairs of {len(met.models)} models: {out}",
            as_json,
        )
        raise typer.Exit(WITH_FAILURES if given.bad else DONE)
    engine = open_judge(
        spec, Hardware(context, threads, gpu_layers), endpoint_settings(settings, samples, concurrency)
    )
    limits = Limits(concurrency, max_requests=max_requests)
    with Judge(engine, template, db=db, orders=chosen, seed=seed, limits=limits) as judge:
        found = run_with_progress(judge, given.read(), given.count)
    if not as_json:
        show_run(found)
    _show({**found.plain(), "db": str(db), **about}, f"{len(met.models)} models, kept in {db}", as_json)
    raise typer.Exit(WITH_FAILURES if found.summary.invalid or given.bad or found.stopped else DONE)


def write_pairs(out: Path, pairs: Arena) -> int:
    """Write a file of pairs that `evenhand judge` reads."""
    if ".csv" in out.suffixes:
        # A cell that a spreadsheet would take for a formula is changed in a CSV; a pair must stay what it is.
        raise InputError(f"pairs are not written as CSV: {out}", hint="use .jsonl, .json or .parquet")
    columns = dict.fromkeys(("id", "instruction", "output_1", "output_2", "model_1", "model_2"), "text")
    return write_rows(out, map(_row, pairs), columns)


def _row(pair: Pair) -> dict[str, Any]:
    named = {"id": pair.id, "instruction": pair.instruction, "output_1": pair.output_1, "output_2": pair.output_2}
    return {**pair.metadata, **named, "model_1": pair.model_1, "model_2": pair.model_2}


def _show(fields: dict[str, Any], line: str, as_json: bool) -> None:
    if as_json:
        print(console.json_text(fields))
    else:
        console.out.print(line, soft_wrap=True, markup=False)
