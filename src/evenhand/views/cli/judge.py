"""evenhand judge, evenhand compare: ask a judge."""

from __future__ import annotations

from itertools import islice
from pathlib import Path
from typing import Annotated

import typer

from evenhand.core.engine import note_text
from evenhand.core.errors import InputError
from evenhand.core.judge import Judgment
from evenhand.core.reasons import ReasonReader
from evenhand.results.decision import Decider, Decision, decision_of
from evenhand.results.judgments import judged_pair
from evenhand.results.plain import plain, to_json
from evenhand.views import console
from evenhand.views.cli.app import DONE, WITH_FAILURES, app
from evenhand.views.cli.batching import check_batch_judge, judge_in_batches
from evenhand.views.cli.deciding import dimension_from
from evenhand.views.cli.groups import (
    BatchOptions,
    EngineOptions,
    JudgeOptions,
    LimitOptions,
    OutputOptions,
    PairOptions,
    ReadingOptions,
    settings_of,
)
from evenhand.views.cli.judging import JudgedInput, judge_input, show_end, show_plan
from evenhand.views.cli.jury_tables import show_jury
from evenhand.views.cli.option_groups import INPUT, LIMITS, OUTPUT, flat_options, option
from evenhand.views.cli.options import DryRunOption, JsonOption, LimitOption, OnOption, SeedOption
from evenhand.views.cli.running import show_run
from evenhand.views.jury import Jury


@app.command()
@flat_options
def judge(
    files: PairOptions,
    reading: ReadingOptions,
    judge: JudgeOptions,
    limits: LimitOptions,
    engine: EngineOptions,
    batches: BatchOptions,
    output: OutputOptions,
    limit: LimitOption = None,
    until_decided: Annotated[
        bool,
        option(
            "--until-decided",
            "Take the pairs in random order, and stop as soon as it is known which side is better.",
            LIMITS,
        ),
    ] = False,
    on: OnOption = "",
    dry_run: DryRunOption = False,
    seed: SeedOption = 0,
) -> None:
    """Judge every pair of a file, or the outputs of two models; a run that was stopped goes on where it stopped."""
    if on and not until_decided and not judge.levels.escalate:
        raise InputError("--on without --until-decided", hint="add --until-decided")
    batches.check(limits, until_decided=until_decided)
    settings = settings_of(judge, engine, limits, seed, on)
    batched = check_batch_judge(settings) if batches.batch else None
    dimension = dimension_from(on, settings.protocol.dimensions) if until_decided else ""
    given = files.find(reading.reading, output.db)
    given.print()
    if dry_run:
        show_plan(settings, islice(given.read(), limit), output.db, output.as_json, batch=batches.batch)
        return
    if batched is not None:
        found = judge_in_batches(batched, given, output, limit=limit, detach=batches.detach)
        if found is None:
            return
        _show(found, None, output)
        raise typer.Exit(found.exit_code)
    decider = None
    if until_decided:
        decider = Decider(dimension, enough=lambda standing: standing.against(0.5) is not None)
    judged = judge_input(settings, given, output.db, limit=limit, decider=decider)
    total = min(given.count, limit or given.count) - judged.run.summary.repeats
    decision = decision_of(decider.standing, judged.run.summary.pairs, total) if decider else None
    _show(judged, decision, output)
    raise typer.Exit(judged.exit_code)


def _show(judged: JudgedInput, decision: Decision | None, output: OutputOptions) -> None:
    if output.as_json:
        stopping = {"until_decided": decision} if decision else {}
        print(to_json({**judged.plain(), "db": str(output.db), **judged.given.plain(), **stopping}))
        return
    show_run(judged.run)
    show_end(judged, output.db, decision=decision)


@app.command()
@flat_options
def compare(
    instruction: Annotated[str, option("--instruction -i", "What was asked.", INPUT)],
    a: Annotated[str, option("--a", "Response 1.", INPUT)],
    b: Annotated[str, option("--b", "Response 2.", INPUT)],
    judge: JudgeOptions,
    engine: EngineOptions,
    db: Annotated[Path | None, option("--db FILE", "Keep the verdict there.", OUTPUT)] = None,
    as_json: JsonOption = False,
) -> None:
    """Judge one pair on the spot."""
    settings = settings_of(judge, engine)  # before a model is fetched
    with settings.judge(db) as opened:
        judgment = opened.compare(instruction, a, b)
        reader = ReasonReader(opened.setup.protocol.questions)
        jury = opened.result() if isinstance(opened, Jury) else None
    if as_json:
        shown = judged_pair(judgment, reader)
        print(to_json({**plain(shown), **({} if jury is None else {"jury": jury})}))
    else:
        _show_one(judgment, reader)
        if jury is not None:
            show_jury(jury)
    bad = any(outcome.side is None for outcome in judgment.outcomes.values())
    raise typer.Exit(WITH_FAILURES if bad else DONE)


def _show_one(judgment: Judgment, reader: ReasonReader) -> None:
    console.out.print(console.comparison(judgment))
    for reason in reader.reasons(judgment):
        shown = "1 shown first" if reason.order == "forward" else "2 shown first"
        said = f"{reason.dimension}, {shown}: {console.visible(reason.text)}"
        console.out.print(said, markup=False)
    for note in sorted(judgment.notes):
        console.out.print(f"note: {note_text(note)}", style="yellow", markup=False)
    console.out.print(console.usage_line(judgment.usage, judgment.seconds, judgment.asked), style="dim")
