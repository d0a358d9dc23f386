"""evenhand learn: train a judge on labelled pairs."""

from __future__ import annotations

import asyncio
import json
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer

from evenhand import console
from evenhand.cli.app import app
from evenhand.cli.options import ContextOption, GpuOption, JsonOption, ThreadsOption
from evenhand.cli.running import open_judge
from evenhand.engines import catalog
from evenhand.engines.base import Engine, StateReader
from evenhand.engines.llama import Hardware
from evenhand.errors import InputError, SpecError
from evenhand.heads.reading import Eyes, Reading
from evenhand.heads.training import Source, Table, Trained, check, train
from evenhand.pairs import digest, read_pairs
from evenhand.store.vectors import FileVectors

_EVERY = 25  # responses between two lines of progress


@app.command()
def learn(
    files: Annotated[list[Path], typer.Argument(metavar="PAIRS...", help="Files of pairs with labels.")],
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
    context: ContextOption = None,
    threads: ThreadsOption = None,
    gpu_layers: GpuOption = None,
    as_json: JsonOption = False,
) -> None:
    """Train a judge on labelled pairs: a head that reads each response once.

    Use it with --judge head:FILE. Every figure is of instructions that took no part in the training.
    """
    sources = [Source(file.stem, [pair for pair in read_pairs(file) if pair.labels]) for file in files]
    check(sources)  # before a model is fetched and anything read
    if out.suffix != ".json":
        raise InputError(f"--out {out}", hint="let the name end on .json")
    engine = open_judge(model, Hardware(context, threads, gpu_layers))
    kept = vectors or out.with_suffix(".vectors")
    trained = asyncio.run(_train(engine, sources, out, blocks, kept))
    trained.head.save(out)
    if as_json:
        print(console.facts_to_print(_facts(trained, out)))
        return
    _show(trained, out)


async def _train(engine: Engine, sources: list[Source], out: Path, blocks: int | None, vectors: Path) -> Trained:
    if not isinstance(engine, StateReader):
        raise SpecError(f"{engine.identity['model']} gives no states, and a head needs them")
    reading = Reading()
    name = digest(json.dumps(dict(engine.state_identity(blocks)), sort_keys=True), reading.fingerprint)
    kept = FileVectors(vectors, name)
    try:
        eyes = Eyes(engine, kept, blocks=blocks, reading=reading)
        table = await Table.read([pair for source in sources for pair in source.pairs], eyes, _tell)
    finally:
        kept.close()
        await engine.close()
    return train(out.stem, engine, table, sources, blocks=blocks, reading=reading)


def _tell(done: int, total: int) -> None:
    if done % _EVERY == 0 or done == total:
        console.err.print(f"{done:,} of {total:,} responses read", style="dim")


def _show(trained: Trained, out: Path) -> None:
    for dimension in trained.learned:
        console.out.print(trained.sentence(dimension), markup=False, highlight=False, soft_wrap=True)
    for dimension, why in trained.refused.items():
        console.out.print(f"{dimension}: not learned, {why}", markup=False, highlight=False, soft_wrap=True)
    console.out.print(f"use it: evenhand judge PAIRS --judge head:{out}", markup=False, soft_wrap=True)


def _facts(trained: Trained, out: Path) -> dict[str, Any]:
    learned = {
        dimension: {
            "labels": found.labels,
            "decided": found.decided,
            "instructions": found.clusters,
            "held_out": found.held_out.accuracy.facts(),
            "three_way": found.held_out.three_way.facts(),
            "longer_output": trained.longer[dimension].facts(),
            "curve": [asdict(point) for point in found.curve],
            "penalty": found.weights.penalty,
        }
        for dimension, found in trained.learned.items()
    }
    return {"head": str(out), "model": trained.head.model, "learned": learned, "refused": dict(trained.refused)}
