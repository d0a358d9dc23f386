"""evenhand generate: let a model answer, so that there is something to judge."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Annotated

import typer
from rich.progress import BarColumn, TextColumn, TimeRemainingColumn
from rich.progress import Progress as Bar

from evenhand.core.engine import Sampling, Usage, Writing
from evenhand.core.errors import InputError
from evenhand.io.files import write_rows
from evenhand.io.files.finding import kind_of
from evenhand.io.files.small import read_small
from evenhand.io.files.writing import check_writes
from evenhand.results.plain import to_json
from evenhand.running.generation import (
    GenerationProgress,
    Instruction,
    Task,
    are_conversations,
    check_instructions,
    output_columns,
    output_rows,
    read_instructions,
)
from evenhand.running.generation import generate as generate_outputs
from evenhand.running.pace import BudgetError, Limits
from evenhand.running.prices import Price, find_price
from evenhand.store import Store
from evenhand.views import console
from evenhand.views.cli.app import DONE, WITH_FAILURES, app
from evenhand.views.cli.groups import HardwareOptions, LimitOptions, OutputOptions
from evenhand.views.cli.inputs import ColumnsOption, columns_from
from evenhand.views.cli.option_groups import LIMITS, OUTPUT, argument, flat_options, option
from evenhand.views.cli.options import SetOption
from evenhand.views.cli.running import endpoint_settings, open_judge

_REPORT_SECONDS = 10.0
MODEL = "Model"  # the panel of --help for what other commands ask of a judge


@dataclass(frozen=True)
class WritingOptions:
    """What a model is told, and how its answers are drawn."""

    system: Annotated[
        Path | None, option("--system FILE", "What the model is told before each instruction.", MODEL)
    ] = None
    name: Annotated[str, option("--name", "What to call it in the file. Default: the model's name.", MODEL)] = ""
    temperature: Annotated[float, option("--temperature", "0 takes the likeliest token.", MODEL, min=0)] = 0.7
    top_p: Annotated[
        float,
        option(
            "--top-p", "Draw from the likeliest tokens that together have this probability.", MODEL, min=0.01, max=1
        ),
    ] = 1.0
    max_tokens: Annotated[int, option("--max-tokens", "Cut answers off after N tokens.", MODEL, min=1)] = 1024
    seed: Annotated[int, option("--seed", "The seed for drawing tokens, if the engine takes one.", MODEL)] = 0
    limit: Annotated[int | None, option("--limit", "Only the first N instructions.", LIMITS, min=1)] = None

    @property
    def sampling(self) -> Sampling:
        """The same for the engine."""
        return Sampling(self.temperature, self.top_p, self.max_tokens, self.seed)


@dataclass(frozen=True, slots=True)
class MadeOutputs:
    """What a run came to. The fields, and their names, are those of `--json`."""

    model: str
    settings: Mapping[str, str]
    rows: int
    asked: int
    kept: int
    failed: int
    cut: int  # answers that --max-tokens cut off
    stopped: str  # why it ended early, or nothing
    tokens: Usage
    cost: float | None
    seconds: float
    out: str


@app.command()
@flat_options
def generate(
    instructions: Annotated[
        str,
        argument(
            "INSTRUCTIONS",
            "Rows with the field instruction, prompt, turns or messages, or in any format that"
            " [bold]evenhand look[/] knows; or a .txt file with one on each line; '-' is standard input.",
        ),
    ],
    spec: Annotated[str, option("--model -m SPEC", "Who answers; in the same words as --judge.", MODEL)],
    out: Annotated[Path, option("--out -o FILE", "Outputs: .jsonl, .json or .parquet.", OUTPUT)],
    writing: WritingOptions,
    limits: LimitOptions,
    settings: SetOption = None,
    columns: ColumnsOption = None,
    hardware: HardwareOptions = HardwareOptions(),  # noqa: B008  # it is frozen
    output: OutputOptions = OutputOptions(),  # noqa: B008
) -> None:
    """Let a model answer instructions; a run that was stopped goes on where it stopped."""
    _check_out(out)
    named = columns_from(columns)
    total = check_instructions(instructions, named)
    total = min(total, writing.limit or total)
    words = _read_system(writing.system) if writing.system else ""
    price = find_price(spec, limits.prices)
    engine = open_judge(spec, hardware.hardware, endpoint_settings(settings, 1, limits.concurrency))
    task = Task(Writing(engine, writing.sampling), words)
    began = time.monotonic()
    with Store(output.db) as store:

        def given() -> Iterator[Instruction]:
            return islice(read_instructions(instructions, named), writing.limit)

        progress, stopped = run(task, given, store, limits.limits, total, price)
        talks = are_conversations(given())
        found = output_rows(task, given(), store, writing.name, conversations=talks)
        rows = write_rows(out, found, output_columns(talks, given()))
    made = MadeOutputs(
        writing.name or task.writing.identity["model"],
        task.writing.identity,
        rows,
        progress.asked,
        progress.kept,
        progress.failed,
        progress.cut,
        stopped,
        progress.usage,
        price.of(progress.usage) if price else None,
        round(time.monotonic() - began, 3),
        str(out),
    )
    show(made, output.as_json)
    raise typer.Exit(WITH_FAILURES if progress.failed or stopped else DONE)


def run(
    task: Task,
    questions: Callable[[], Iterator[Instruction]],
    store: Store,
    limits: Limits,
    total: int,
    price: Price | None = None,
) -> tuple[GenerationProgress, str]:
    """Ask with progress; Ctrl-C stops at once, and what was answered is kept."""
    last = GenerationProgress()

    async def ask() -> GenerationProgress:
        try:
            return await generate_outputs(task, questions(), store, limits=limits, price=price, on_done=report_done)
        finally:
            await task.writing.close()

    with watching(total) as report:

        def report_done(progress: GenerationProgress) -> None:
            nonlocal last
            last = progress
            report(progress)

        try:
            return asyncio.run(ask()), ""
        except BudgetError as error:
            return last, error.message
        except KeyboardInterrupt:
            console.err.print(f"stopped after {last.done:,} of {total:,}; the same command goes on from here")
            raise


@contextmanager
def watching(total: int) -> Iterator[Callable[[GenerationProgress], None]]:
    """Progress on standard error: a live bar in a terminal, a line now and then elsewhere."""
    if not console.err.is_terminal:
        yield _lines(total)
        return
    columns = (BarColumn(bar_width=24), TextColumn("{task.completed:,.0f}/{task.total:,.0f} answers"))
    with Bar(
        *columns, TimeRemainingColumn(compact=True), TextColumn("{task.fields[more]}"), console=console.err
    ) as bar:
        task = bar.add_task("", total=total, more="")
        yield lambda progress: bar.update(task, completed=progress.done, more=_more(progress))


def _lines(total: int) -> Callable[[GenerationProgress], None]:
    report_done = time.monotonic()

    def report(progress: GenerationProgress) -> None:
        nonlocal report_done
        if time.monotonic() - report_done > _REPORT_SECONDS:
            report_done = time.monotonic()
            console.err.print(f"{progress.done:,}/{console.count(total, 'answer')}, {_more(progress)}")

    return report


def _more(progress: GenerationProgress) -> str:
    return f"{progress.usage.generated:,} tokens, {progress.failed:,} failed"


def _read_system(path: Path) -> str:
    try:
        return read_small(path).decode("utf-8-sig").strip()
    except UnicodeDecodeError as fault:
        raise InputError(f"{path}: not UTF-8 at byte {fault.start}", hint="write the file in UTF-8") from None
    except OSError as fault:
        raise InputError(f"cannot read the system prompt {path}: {fault.strerror}") from None


def _check_out(out: Path) -> None:
    if kind_of(out)[0] == ".csv":
        # A cell that a spreadsheet would take for a formula is changed in a CSV; an output must stay what it is.
        raise InputError(f"outputs are not written as CSV: {out}", hint="use .jsonl, .json or .parquet")
    check_writes(out)


def show(made: MadeOutputs, as_json: bool) -> None:
    """What came of it."""
    if as_json:
        print(to_json(made))
        return
    console.out.print(
        f"{console.count(made.rows, 'output')} of {console.visible(made.model)}: {made.out}"
        f" ({made.asked:,} written now, {made.kept:,} kept, {made.failed:,} failed)",
        markup=False,
    )
    if made.cut:
        console.out.print(f"{made.cut:,} were cut off by --max-tokens", style="yellow")
    if made.failed:
        console.out.print("failures are nulls in the file; the same command tries them again", style="yellow")
    if made.stopped:
        console.out.print(f"stopped: {made.stopped}", style="yellow", soft_wrap=False)
