"""evenhand gate: for CI, is model 2 worse than model 1 by more than a margin?"""

from __future__ import annotations

import os
import sys
import traceback
from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from pathlib import Path
from typing import Annotated

import numpy as np
import typer
from rich.text import Text

from evenhand.core.columns import Block
from evenhand.core.errors import EvenhandError, InputError
from evenhand.core.shuffle import Shuffle
from evenhand.core.verdict import found_on
from evenhand.engines import catalog
from evenhand.engines.llama import Hardware
from evenhand.io.pairs import ReadingOptions
from evenhand.results.decision import Decider, replay
from evenhand.results.gate import Gate, GateResult
from evenhand.results.plain import to_json
from evenhand.results.run import RunSummary
from evenhand.results.summary import Counter, summarise
from evenhand.running.pace import Limits
from evenhand.running.prices import find_price
from evenhand.store import JudgeRow, Store
from evenhand.views import console
from evenhand.views.api import Judge
from evenhand.views.cli.app import app
from evenhand.views.cli.deciding import dimension_from
from evenhand.views.cli.inputs import BaselineOption, Input, JoinOnOption, find_input
from evenhand.views.cli.options import (
    DEFAULT_DB,
    ConcurrencyOption,
    ContextOption,
    DbOption,
    GpuOption,
    JsonOption,
    MaxCostOption,
    MaxRequestsOption,
    OnOption,
    PricesOption,
    SamplesOption,
    SetOption,
    ThreadsOption,
)
from evenhand.views.cli.running import endpoint_settings, load_protocol, open_judge, run_with_progress

# The judge or the machine failed. Elsewhere that is 1, but here 1 is a model that is worse.
NOT_JUDGED = 4
CODES = {"not_worse": 0, "worse": 1, "undecided": 3, "not_judged": NOT_JUDGED}
COLOURS = {"not_worse": "green", "worse": "red", "undecided": "yellow", "not_judged": "red"}
Fields = dict[str, object]
Work = Callable[[], tuple[GateResult, Fields]]


@app.command()
def gate(
    pairs: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[PAIRS]...",
            help="Files of pairs, as for judge; output_2 is that of the model on trial. Without any, the verdicts "
            "that --db holds already are looked at.",
        ),
    ] = None,
    candidate: Annotated[
        str | None,
        typer.Option(
            "--candidate", metavar="[NAME=]OUTPUTS", help="Outputs of the model on trial, instead of PAIRS."
        ),
    ] = None,
    baseline: BaselineOption = None,
    join_on: JoinOnOption = "instruction",
    spec: Annotated[
        str,
        typer.Option(
            "--judge", "-j", metavar="SPEC", help="As for judge. Without PAIRS: the newest judge of the database."
        ),
    ] = "",
    protocol: Annotated[
        str,
        typer.Option("--protocol", "-p", metavar="NAME|FILE", help="As for judge; with pairs, so is the default."),
    ] = "",
    on: OnOption = "",
    margin: Annotated[
        float, typer.Option("--margin", help="Pass down to a win rate of one half less this.")
    ] = 0.05,
    level: Annotated[float, typer.Option("--level", help="How sure to be: the level of the interval.")] = 0.95,
    max_pairs: Annotated[int | None, typer.Option("--max-pairs", min=1, help="Judge no more pairs.")] = None,
    max_requests: MaxRequestsOption = None,
    max_cost: MaxCostOption = None,
    prices: PricesOption = None,
    db: DbOption = DEFAULT_DB,
    seed: Annotated[int, typer.Option("--seed", help="Decides which pairs come first.")] = 0,
    markdown: Annotated[
        Path | None,
        typer.Option("--markdown", metavar="FILE", help="Write the result there, for a pull request."),
    ] = None,
    concurrency: ConcurrencyOption = None,
    settings: SetOption = None,
    samples: SamplesOption = 1,
    context: ContextOption = None,
    threads: ThreadsOption = None,
    gpu_layers: GpuOption = None,
    as_json: JsonOption = False,
) -> None:
    """Pass or fail a model for CI: exit 0 if model 2 is not worse than model 1 by more than a margin, 1 if it is.

    Exit 3: undecided within the budget. Exit 4: the judge or the machine failed, which says nothing of the model.
    Exit 2: wrong use. Each pair is judged in both orders; pairs are taken in random order until it is decided.
    """
    what = Gate(margin)
    if not 0 < level < 1:
        raise InputError(f"--level {level:g}", hint="a share between 0 and 1, such as 0.95")
    limits = Limits(concurrency, max_requests=max_requests, max_cost=max_cost)

    def judge_them() -> tuple[GateResult, Fields]:
        template = load_protocol(protocol, spec or catalog.DEFAULT_MODEL)
        decider = Decider(dimension_from(on, template.dimensions), level=level, enough=what.settled)
        given = find_pairs(pairs, candidate, baseline, join_on)
        name = spec or catalog.DEFAULT_MODEL
        price = find_price(name, prices)
        settled = endpoint_settings(settings, samples, concurrency)
        engine = open_judge(name, Hardware(context, threads, gpu_layers), settled)
        shuffled = Shuffle(given.read, seed=seed)
        with Judge(engine, template, db=db, seed=seed, limits=limits, price=price) as judge:
            return go_through(what, decider, judge, shuffled, min(given.count, max_pairs or given.count))

    def look_up() -> tuple[GateResult, Fields]:
        if not db.is_file():
            raise InputError(f"no pairs, and no database at {db}", hint="evenhand gate PAIRS")
        with Store(db, read_only=True) as store:
            row = newest(store, spec, protocol, db)
            decider = Decider(dimension_from(on, row.dimensions), level=level, enough=what.settled)
            return count_stored(what, decider, store, row, seed, max_pairs)

    def empty(failure: str) -> GateResult:
        return GateResult(what, Decider(on or "overall", level=level).standing, ("1", "2"), 0, 0, failure=failure)

    raise typer.Exit(report(judge_them if pairs or candidate or baseline else look_up, empty, markdown, as_json))


def find_pairs(pairs: list[str] | None, candidate: str | None, baseline: str | None, join_on: str) -> Input:
    """The pairs, all of them read once; where outputs are joined, those of the model on trial are output_2."""
    if not pairs and not (candidate and baseline):
        raise InputError("--candidate NEW --baseline OLD are given together")
    given = find_input(pairs, candidate, baseline, ReadingOptions(join_on=join_on), candidate_side="2")
    given.print()
    return given


def go_through(
    what: Gate, decider: Decider, judge: Judge, shuffled: Shuffle, most: int
) -> tuple[GateResult, Fields]:
    """Judge until it is settled; what keeps the judge from judging ends up in the result."""
    counter, found, failure = Counter(found_on(judge.setup.protocol.dimensions)), None, ""
    try:
        drawn = decider.watch(islice(shuffled, most))
        found = run_with_progress(judge, drawn, most, enough=decider, line=decider, counter=counter)
    except InputError:
        raise
    except EvenhandError as error:
        failure = "" if decider.met else str(error)
    why = found.stopped if found else ""
    if not why and not failure and most < shuffled.pairs and not decider.met:
        why = f"the budget of {most:,} pairs is used up"
    summary = found.summary if found else counter.summary()
    pairs = shuffled.pairs - summary.repeats
    result = GateResult(what, decider.standing, summary.sides, pairs, summary.pairs, why, failure, summary.repeats)
    return result, _about(judge, found)


def _about(judge: Judge, found: RunSummary | None) -> Fields:
    """Who judged, and what that took."""
    own: Fields = {"judge": judge.setup.engine.identity["model"], "protocol": judge.setup.protocol.name}
    if found is None:
        return own
    used = {"asked": found.asked, "tokens": found.tokens, "cost": found.cost, "seconds": round(found.seconds, 3)}
    return {**own, "fingerprint": found.fingerprint, **used}


def newest(store: Store, spec: str, protocol: str, db: Path) -> JudgeRow:
    """The judge that was added last, of those that are meant."""
    rows = [row for row in store.judges() if spec in ("", row.model) and protocol in ("", row.protocol)]
    if not rows:
        raise InputError(f"{db} holds no verdicts of that kind", hint="evenhand results shows what it holds")
    return rows[-1]


def count_stored(
    what: Gate, decider: Decider, store: Store, row: JudgeRow, seed: int, most: int | None
) -> tuple[GateResult, Fields]:
    """Count what a database holds, in random order, until it is settled."""
    candidate = candidate_of(store.matches(row), store.path)
    blocks = list(on_trial(store.blocks(row), candidate))
    replay(blocks, decider, seed=seed, most=most)
    summary = summarise(blocks, found_on(row.dimensions))
    result = GateResult(
        what, decider.standing, summary.sides, summary.pairs, summary.pairs, repeats=summary.repeats
    )
    return result, {"judge": row.model, "protocol": row.protocol, "fingerprint": row.fingerprint}


def candidate_of(matches: list[tuple[str, str, str]], path: str) -> str:
    """The model on trial, empty where no roles were given; what is not one model against another is refused."""
    models = sorted({name for one, two, _ in matches for name in (one, two)})
    if len(models) > 2:
        some = ", ".join(name or "(no name)" for name in models[:6]) + (", …" if len(models) > 6 else "")
        raise InputError(
            f"{path} compares {len(models):,} models, and a gate takes two: {some}",
            hint="evenhand gate --candidate NEW --baseline OLD --db ANOTHER; evenhand rank ranks many models",
        )
    tried = {(one, two)[int(side) - 1] for one, two, side in matches if side}
    if len(tried) > 1 or (not tried and len({(one, two) for one, two, _ in matches}) > 1):
        raise InputError(
            f"{path} does not say the same of all pairs which model is the candidate",
            hint="evenhand gate --candidate NEW --baseline OLD --db ANOTHER",
        )
    return next(iter(tried), "")


def on_trial(blocks: Iterable[Block], candidate: str) -> Iterator[Block]:
    """Blocks with the candidate on side 2, as the gate counts; without roles, output_2 is on trial."""
    for block in blocks:
        role, model = (words.text() for words in (block.candidate, block.model_1))
        turn = (role == "1") | ((role == "") & (model == candidate) & bool(candidate))
        for rows, turned in ((np.flatnonzero(~turn), False), (np.flatnonzero(turn), True)):
            if len(rows):
                yield block.take(rows).turned() if turned else block.take(rows)


def report(work: Work, empty: Callable[[str], GateResult], markdown: Path | None, as_json: bool) -> int:
    """Do the work and show what came of it; the exit code. Whatever breaks, it never reads as a worse model."""
    try:
        result, fields = work()
    except InputError:
        raise
    except EvenhandError as error:
        result, fields = empty(str(error)), Fields()
    except Exception as error:
        traceback.print_exc()
        result, fields = empty(f"{type(error).__name__}: {error}"), Fields()
    code = CODES[result.outcome]
    try:
        show(result, {**result.plain(), "exit_code": code, **fields}, markdown, as_json)
    except OSError as fault:
        if not isinstance(fault, BrokenPipeError):
            console.fail(
                f"{fault.filename or 'output'}: {fault.strerror}", f"the decision stands: exit code {code}"
            )
        if not fault.filename:  # what is left in the buffer cannot be written; it would be tried again at the end
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return code


def show(result: GateResult, fields: Fields, markdown: Path | None, as_json: bool) -> None:
    """The result for a log or as JSON, and as Markdown where it is wanted."""
    if as_json:
        print(to_json(fields))
    else:
        console.out.print(
            Text(console.visible(f"{result.word}: {result.sentence()}"), style=f"bold {COLOURS[result.outcome]}")
        )
        for name, text in result.details().items():
            console.out.print(Text(f"  {console.visible(name)}: {console.visible(text)}"), soft_wrap=True)
    sys.stdout.flush()
    if markdown:
        # GitHub's summary of a step is one file for all that the step runs; any other file is this command's own.
        mode = "a" if str(markdown) == os.environ.get("GITHUB_STEP_SUMMARY") else "w"
        with markdown.open(mode, encoding="utf-8") as file:
            file.write(result.markdown())
