"""evenhand generate: let a model answer, so that there is something to judge."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.progress import BarColumn, TextColumn, TimeRemainingColumn
from rich.progress import Progress as Bar

from evenhand import console
from evenhand.cli.app import DONE, WITH_FAILURES, app
from evenhand.cli.options import (
    DEFAULT_DB,
    ConcurrencyOption,
    ContextOption,
    DbOption,
    GpuOption,
    JsonOption,
    MaxRequestsOption,
    SetOption,
    ThreadsOption,
)
from evenhand.cli.running import endpoint_settings, open_judge
from evenhand.engines.base import Sampling, Writing
from evenhand.engines.llama import Hardware
from evenhand.errors import InputError
from evenhand.files import write_rows
from evenhand.files.writing import check_writes
from evenhand.generate import (
    OUTPUT_COLUMNS,
    Progress,
    Task,
    check_instructions,
    output_rows,
    read_instructions,
)
from evenhand.generate import (
    generate as generate_outputs,
)
from evenhand.pace import BudgetError, Limits
from evenhand.store import Store

_TELL_SECONDS = 10.0


@app.command()
def generate(
    instructions: Annotated[
        str,
        typer.Argument(
            metavar="INSTRUCTIONS",
            help="Rows with the field instruction (or prompt, or turns), in any form that judge reads; or a .txt"
            " file with one on each line; '-' is standard input.",
        ),
    ],
    spec: Annotated[
        str, typer.Option("--model", "-m", metavar="SPEC", help="Who answers; in the same words as --judge.")
    ],
    out: Annotated[Path, typer.Option("--out", "-o", metavar="FILE", help="Outputs: .jsonl, .json or .parquet.")],
    system: Annotated[
        Path | None,
        typer.Option("--system", metavar="FILE", help="What the model is told before each instruction."),
    ] = None,
    name: Annotated[
        str, typer.Option("--name", help="What to call it in the file. Default: the model's name.")
    ] = "",
    temperature: Annotated[float, typer.Option("--temperature", min=0, help="0 takes the likeliest token.")] = 0.7,
    top_p: Annotated[float, typer.Option("--top-p", min=0.01, max=1, help="Draw from so much of the mass.")] = 1.0,
    max_tokens: Annotated[int, typer.Option("--max-tokens", min=1, help="Cut an answer off there.")] = 1024,
    seed: Annotated[int, typer.Option("--seed", help="Of the drawing, where the engine takes one.")] = 0,
    limit: Annotated[
        int | None, typer.Option("--limit", min=1, help="Only the first so many instructions.")
    ] = None,
    db: DbOption = DEFAULT_DB,
    settings: SetOption = None,
    concurrency: ConcurrencyOption = None,
    max_requests: MaxRequestsOption = None,
    context: ContextOption = None,
    threads: ThreadsOption = None,
    gpu_layers: GpuOption = None,
    as_json: JsonOption = False,
) -> None:
    """Let a model answer instructions; a run that was stopped goes on where it stopped."""
    _check_out(out)
    total = check_instructions(instructions)
    total = min(total, limit or total)
    words = _read_system(system) if system else ""
    engine = open_judge(spec, Hardware(context, threads, gpu_layers), endpoint_settings(settings, 1, concurrency))
    task = Task(Writing(engine, Sampling(temperature, top_p, max_tokens, seed)), words)
    limits = Limits(concurrency, max_requests=max_requests)
    began = time.monotonic()
    with Store(db) as store:
        progress, stopped = run(task, lambda: islice(read_instructions(instructions), limit), store, limits, total)
        rows = write_rows(
            out, output_rows(task, islice(read_instructions(instructions), limit), store, name), OUTPUT_COLUMNS
        )
    facts = {
        "model": name or task.writing.identity["model"],
        "settings": dict(task.writing.identity),
        "rows": rows,
        "asked": progress.asked,
        "kept": progress.kept,
        "failed": progress.failed,
        "cut": progress.cut,
        "stopped": stopped,
        "tokens": (progress.usage),
        "seconds": round(time.monotonic() - began, 3),
        "out": str(out),
    }
    show(facts, as_json)
    raise typer.Exit(WITH_FAILURES if progress.failed or stopped else DONE)


def run(
    task: Task, asks: Callable[[], Iterator[Any]], store: Store, limits: Limits, total: int
) -> tuple[Progress, str]:
    """Ask with progress; Ctrl-C stops at once, and what was answered is kept."""
    last = Progress()

    async def ask() -> Progress:
        try:
            return await generate_outputs(task, asks(), store, limits=limits, on_done=told)
        finally:
            await task.writing.close()

    with watching(total) as tell:

        def told(progress: Progress) -> None:
            nonlocal last
            last = progress
            tell(progress)

        try:
            return asyncio.run(ask()), ""
        except BudgetError as error:
            return last, error.message
        except KeyboardInterrupt:
            console.err.print(f"stopped after {last.done} of {total}; the same command goes on from here")
            raise


@contextmanager
def watching(total: int) -> Iterator[Callable[[Progress], None]]:
    """Progress on standard error: a live bar in a terminal, a line now and then elsewhere."""
    if not console.err.is_terminal:
        yield _lines(total)
        return
    columns = (BarColumn(bar_width=24), TextColumn("{task.completed}/{task.total} answers"))
    with Bar(
        *columns, TimeRemainingColumn(compact=True), TextColumn("{task.fields[more]}"), console=console.err
    ) as bar:
        task = bar.add_task("", total=total, more="")
        yield lambda progress: bar.update(task, completed=progress.done, more=_more(progress))


def _lines(total: int) -> Callable[[Progress], None]:
    told = time.monotonic()

    def tell(progress: Progress) -> None:
        nonlocal told
        if time.monotonic() - told > _TELL_SECONDS:
            told = time.monotonic()
            console.err.print(f"{progress.done}/{total} answers, {_more(progress)}", soft_wrap=True)

    return tell


def _more(progress: Progress) -> str:
    return f"{progress.usage.generated:,} tokens, {progress.failed} failed"


def _read_system(path: Path) -> str:
    try:
        return path.read_bytes().decode("utf-8-sig").strip()
    except UnicodeDecodeError as fault:
        raise InputError(f"{path}: not UTF-8 at byte {fault.start}", hint="write the file in UTF-8") from None
    except OSError as fault:
        raise InputError(f"no file of the system's words at {path}: {fault.strerror}") from None


def _check_out(out: Path) -> None:
    if ".csv" in out.suffixes:
        # A cell that a spreadsheet would take for a formula is changed in a CSV; an output must stay what it is.
        raise InputError(f"outputs are not written as CSV: {out}", hint="use .jsonl, .json or .parquet")
    check_writes(out)


def show(facts: dict[str, Any], as_json: bool) -> None:
    """What came of it."""
    if as_json:
        print(console.facts_to_print(facts))
        return
    console.out.print(
        f"{facts['rows']:,} outputs of {console.visible(facts['model'])}: {facts['out']}"
        f" ({facts['asked']:,} written now, {facts['kept']:,} kept, {facts['failed']:,} failed)",
        soft_wrap=True,
        markup=False,
    )
    if facts["cut"]:
        console.out.print(f"{facts['cut']:,} were cut off by --max-tokens", style="yellow")
    if facts["failed"]:
        console.out.print("failures are nulls in the file; the same command tries them again", style="yellow")
    if facts["stopped"]:
        console.out.print(f"stopped: {facts['stopped']}", style="yellow")
