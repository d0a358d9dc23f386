"""evenhand learn: train a judge on labelled pairs."""

from __future__ import annotations

import asyncio
import json
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer

from evenhand.core.engine import Engine, StateReader
from evenhand.core.errors import InputError, SpecError
from evenhand.core.pair import digest
from evenhand.engines import catalog
from evenhand.engines.heads.reading import Eyes, StateReading
from evenhand.engines.heads.training import Trained, TrainingSource, TrainingTable, check, train
from evenhand.engines.llama import Hardware
from evenhand.io.pairs import read_pairs
from evenhand.store.vectors import FileVectors
from evenhand.views import console
from evenhand.views.cli.app import app
from evenhand.views.cli.inputs import ColumnsOption, columns_from
from evenhand.views.cli.options import ContextOption, GpuOption, JsonOption, ThreadsOption
from evenhand.views.cli.running import open_judge

_EVERY = 25  # responses between two lines of progress


@app.command()
def learn(
    files: Annotated[list[Path], typer.Argument(metavar="PAIRS", help="Files of pairs with labels.")],
    out: Annotated[Path, typer.Option("--out", "-o", metavar="FILE", help="Where the head is written.")] = Path(
        "head.json"
    ),
    model: Annotated[
        str, typer.Option("--judge", "-j", metavar="MODEL", help="The model whose states the head reads.")
    ] = catalog.DEFAULT_MODEL,
    blocks: Annotated[
        int | None, typer.Option("--blocks", min=1, help="Read the state after so many blocks. Default: the last.")
    ] = None,
    vectors: Annotated[
        Path | None,
        typer.Option("--vectors", metavar="FILE", help="Where states are kept. Default: beside the head."),
    ] = None,
    columns: ColumnsOption = None,
    context: ContextOption = None,
    threads: ThreadsOption = None,
    gpu_layers: GpuOption = None,
    as_json: JsonOption = False,
) -> None:
    """Train a judge on labelled pairs: a head that reads each response once.

    Use it with --judge head:FILE. Every figure is of instructions that took no part in the training.
    """
    named = columns_from(columns)
    sources = [
        TrainingSource(file.stem, [pair for pair in read_pairs(file, columns=named) if pair.labels])
        for file in files
    ]
    check(sources)  # before a model is fetched and anything read
    if out.suffix != ".json":
        raise InputError(f"--out {out}", hint="let the name end on .json")
    engine = open_judge(model, Hardware(context, threads, gpu_layers))
    kept = vectors or out.with_suffix(".vectors")
    trained = asyncio.run(_train(engine, sources, out, blocks, kept))
    trained.head.save(out)
    if as_json:
        print(console.json_text(_fields(trained, out)))
        return
    _show(trained, out)


async def _train(
    engine: Engine, sources: list[TrainingSource], out: Path, blocks: int | None, vectors: Path
) -> Trained:
    if not isinstance(engine, StateReader):
        raise SpecError(f"{engine.identity['model']} gives no states, and a head needs them")
    reading = StateReading()
    name = digest(json.dumps(dict(engine.state_identity(blocks)), sort_keys=True), reading.fingerprint)
    kept = FileVectors(vectors, name)
    try:
        eyes = Eyes(engine, kept, blocks=blocks, reading=reading)
        table = await TrainingTable.read([pair for source in sources for pair in source.pairs], eyes, _report)
    finally:
        kept.close()
        await engine.close()
    return train(out.stem, engine, table, sources, blocks=blocks, reading=reading)


def _report(done: int, total: int) -> None:
    if done % _EVERY == 0 or done == total:
        console.err.print(f"{done:,} of {total:,} responses read", style="dim")


def _show(trained: Trained, out: Path) -> None:
    for dimension in trained.learned:
        console.out.print(trained.sentence(dimension), markup=False, highlight=False, soft_wrap=True)
    for dimension, why in trained.refused.items():
        console.out.print(f"{dimension}: not learned, {why}", markup=False, highlight=False, soft_wrap=True)
    console.out.print(f"use it: evenhand judge PAIRS --judge head:{out}", markup=False, soft_wrap=True)


def _fields(trained: Trained, out: Path) -> dict[str, Any]:
    learned = {
        dimension: {
            "labels": found.labels,
            "decided": found.decided,
            "instructions": found.clusters,
            "held_out": found.held_out.accuracy.plain(),
            "three_way": found.held_out.three_way.plain(),
            "longer_output": trained.longer[dimension].plain(),
            "curve": [asdict(point) for point in found.curve],
            "penalty": found.weights.penalty,
        }
        for dimension, found in trained.learned.items()
    }
    return {"head": str(out), "model": trained.head.model, "learned": learned, "refused": dict(trained.refused)}
