"""evenhand arena: pair the outputs of many models."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from evenhand.core.errors import InputError
from evenhand.core.pair import Pair
from evenhand.core.verdict import headline
from evenhand.io.files import Row, write_rows
from evenhand.io.files.finding import kind_of
from evenhand.io.files.writing import find_columns
from evenhand.io.pairs import Arena
from evenhand.results.answer import ranking_answer
from evenhand.results.plain import to_json
from evenhand.results.ranking import matches_of
from evenhand.views import console
from evenhand.views.cli.app import DONE, WITH_FAILURES, app
from evenhand.views.cli.batching import check_batch_judge, judge_in_batches
from evenhand.views.cli.groups import (
    BatchOptions,
    EngineOptions,
    JudgeOptions,
    LimitOptions,
    OutputOptions,
    ReadingOptions,
    settings_of,
)
from evenhand.views.cli.inputs import Input
from evenhand.views.cli.judging import JudgedInput, judge_input, show_end, show_plan
from evenhand.views.cli.opening import open_records
from evenhand.views.cli.option_groups import INPUT, OUTPUT, argument, flat_options, option
from evenhand.views.cli.options import DryRunOption
from evenhand.views.cli.rank import JudgeRanking, show_ranking
from evenhand.views.cli.running import show_run, show_usage


@dataclass(frozen=True)
class DrawOptions:
    """Which pairs are made of the models' outputs."""

    baseline: Annotated[str | None, option("--baseline MODEL", "Pair every model only with this one.", INPUT)] = (
        None
    )
    size: Annotated[
        int | None,
        option("--size", "Draw this many pairs at random, so that every model is reached.", INPUT, min=1),
    ] = None
    seed: Annotated[int, option("--seed", "Decides what --size draws.", INPUT)] = 0


@app.command()
@flat_options
def arena(
    outputs: Annotated[
        list[str],
        argument(
            "[NAME=]OUTPUTS",
            "Files of outputs, one model in each or several told apart by their rows; in all the forms that"
            " [bold]evenhand judge --candidate[/] takes.",
        ),
    ],
    draw: DrawOptions,
    reading: ReadingOptions,
    judge: JudgeOptions,
    limits: LimitOptions,
    engine: EngineOptions,
    batches: BatchOptions,
    output: OutputOptions,
    out: Annotated[
        Path | None, option("--out FILE", "Write the pairs (.jsonl, .json, .parquet) and judge nothing.", OUTPUT)
    ] = None,
    dry_run: DryRunOption = False,
) -> None:
    """Pair many models' outputs, all against all, and judge the pairs or write them to a file."""
    batches.check(limits, until_decided=False)
    settings = settings_of(judge, engine, limits, draw.seed)
    batched = check_batch_judge(settings) if batches.batch else None
    met = Arena(outputs, baseline=draw.baseline, size=draw.size, seed=draw.seed, reading=reading.reading)
    given = Input(len(met), lambda: iter(met), met.bad, met.unmatched, notes=met.notes)
    given.print()
    about = {"models": list(met.models), "possible": met.possible, "seed": draw.seed, **given.plain()}
    if dry_run:
        show_plan(settings, given.read(), output.db, output.as_json, batch=batches.batch)
        return
    if out is not None:
        written = write_pairs(out, met)
        if output.as_json:
            print(to_json({**about, "pairs": written, "out": str(out)}))
        else:
            console.out.print(f"{console.count(written, 'pair')} of {len(met.models)} models: {out}", markup=False)
        raise typer.Exit(WITH_FAILURES if given.bad else DONE)
    if batched is None:
        judged = judge_input(settings, given, output.db)
    elif (found := judge_in_batches(batched, given, output, limit=None, detach=batches.detach)) is not None:
        judged = found
    else:
        return
    ranking = _ranking(judged, output.db)
    if output.as_json:
        print(to_json({**judged.plain(), "db": str(output.db), **about, "ranking": ranking}))
    else:
        _show_ranking(judged, ranking, output.db)
    raise typer.Exit(judged.exit_code)


def _ranking(judged: JudgedInput, db: Path) -> JudgeRanking | None:
    """What all verdicts of this judge in the database come to; None where there is nothing to rank by."""
    with suppress(InputError), open_records(db) as store:
        for row in store.judges():
            if row.fingerprint == judged.run.fingerprint:
                found = matches_of(store.blocks(row), headline(row.dimensions)).ranking()
                answer = ranking_answer(found, judged.run.summary)
                return JudgeRanking(
                    *(row.model, row.protocol, row.fingerprint, found, answer, store.count_attacked(row)),
                    engine=row.identity.get("engine", ""),
                )
    return None


def _show_ranking(judged: JudgedInput, ranking: JudgeRanking | None, db: Path) -> None:
    """The ranking is the result; where there is none, the table of verdicts says why."""
    if ranking is None:
        show_run(judged.run)
    else:
        show_ranking(ranking, db)
        intervals = any(model.low is not None for model in ranking.ranking.models)
        for note in console.notes(judged.run.summary, intervals=intervals):
            console.out.print(note)
        show_usage(judged.run)
    show_end(judged, db, f"evenhand rank --db {db}")


def write_pairs(out: Path, pairs: Arena) -> int:
    """Write a file of pairs that `evenhand judge` reads."""
    if kind_of(out)[0] == ".csv":
        # A cell that a spreadsheet would take for a formula is changed in a CSV; a pair must stay what it is.
        raise InputError(f"pairs are not written as CSV: {out}", hint="use .jsonl, .json or .parquet")
    columns = dict.fromkeys(("id", "instruction", "output_1", "output_2", "model_1", "model_2"), "text")
    if kind_of(out)[0] == ".parquet":  # whose columns are told before its rows
        columns = {**columns, **find_columns(map(_row, pairs)), **columns}
    return write_rows(out, map(_row, pairs), columns)


def _row(pair: Pair) -> Row:
    named = {"id": pair.id, "instruction": pair.instruction, "output_1": pair.output_1, "output_2": pair.output_2}
    return {**pair.metadata, **named, "model_1": pair.model_1, "model_2": pair.model_2}
