"""Hidden states of the responses in files of pairs, with the embedded engine as users get it.

    python benchmarks/states.py FOLDER pandalm.jsonl llmbar.jsonl --blocks 23 --threads 1
    python benchmarks/states.py FOLDER autoj-dev.jsonl --pairs 60 --seed 1        a random part of the pairs
    python benchmarks/states.py FOLDER --check states-qwen2.5-coder-1.5b.npz pandalm.jsonl --pairs 5

Each response is read once and kept in FOLDER/states.sqlite at once, by its content, so that the program can be
stopped and started again at any time, and several may run. Files are taken in the order given.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from evenhand.core.errors import EngineError
from evenhand.engines.catalog import locate
from evenhand.engines.heads.reading import ResponseReader, StateReading
from evenhand.engines.heads.vectors import MemoryVectors, content_key
from evenhand.engines.llama import Hardware, LlamaEngine
from evenhand.store.vectors import FileVectors


def options() -> argparse.Namespace:
    """What the command line asks for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("files", type=Path, nargs="+")
    parser.add_argument("--model", default="qwen2.5-coder-1.5b")
    parser.add_argument("--blocks", type=int, default=23)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--pairs", type=int, default=0, help="a random part of each file; 0: all")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--longest", type=int, default=0, help="leave out pairs with more characters; 0: none")
    parser.add_argument("--subset", default="", help="only pairs whose subset begins with this")
    parser.add_argument(
        "--check", type=Path, help="compare with the states of an .npz file instead of keeping them"
    )
    return parser.parse_args()


def responses(file: Path, wanted: argparse.Namespace) -> Iterator[tuple[str, str]]:
    """The instruction and response of each side of each pair."""
    rows = [json.loads(line) for line in file.read_text("utf-8").splitlines() if line.strip()]
    rows = [row for row in rows if str(row.get("subset", "")).startswith(wanted.subset)]
    if wanted.longest:
        rows = [row for row in rows if sum(len(row[f]) for f in ("output_1", "output_2")) <= wanted.longest]
    if wanted.pairs:
        random.Random(wanted.seed).shuffle(rows)  # so that a larger part holds a smaller one
        del rows[wanted.pairs :]
    for row in rows:
        yield row["instruction"], row["output_1"]
        yield row["instruction"], row["output_2"]


def reader_name(engine: LlamaEngine, blocks: int, reading: StateReading) -> str:
    """The name under which vectors are kept."""
    return ResponseReader(engine, MemoryVectors(), blocks=blocks, reading=reading).reader_name


async def main() -> None:
    """Read what is not there yet."""
    wanted = options()
    engine = LlamaEngine(locate(wanted.model), Hardware(context=8192, threads=wanted.threads))
    wanted.folder.mkdir(parents=True, exist_ok=True)
    kept = FileVectors(wanted.folder / "states.sqlite", reader_name(engine, wanted.blocks, StateReading()))
    reader = ResponseReader(engine, kept, blocks=wanted.blocks)
    try:
        for file in wanted.files:
            await (check(file, wanted, engine) if wanted.check else read(file, wanted, reader))
    finally:
        await engine.close()


async def read(file: Path, wanted: argparse.Namespace, reader: ResponseReader) -> None:
    """Read the responses of one file."""
    todo = list(dict.fromkeys(responses(file, wanted)))
    began, tokens, new = time.monotonic(), 0, 0
    for done, (instruction, response) in enumerate(todo, start=1):
        try:
            state = (await reader.read(instruction, response))[1]
        except EngineError as error:
            print(f"{file.name}: {error}", file=sys.stderr)
            continue
        if state is not None:
            tokens, new = tokens + state.usage.computed, new + 1
            if new % 20 == 0:
                rate = tokens / (time.monotonic() - began)
                print(f"{file.name}: {done} of {len(todo)}, {tokens:,} tokens, {rate:.1f} a second", flush=True)
    print(
        f"{file.name}: {len(todo)} responses, {new} new, {tokens:,} tokens, {time.monotonic() - began:.0f} s",
        flush=True,
    )


async def check(file: Path, wanted: argparse.Namespace, engine: LlamaEngine) -> None:
    """Compare the last layer's states with those of another build of llama.cpp."""
    other = np.load(wanted.check)
    rows = {key: number for number, key in enumerate(other["key"])}
    for instruction, response in responses(file, wanted):
        ours = np.array((await engine.state(StateReading().prompt(instruction, response))).vector)
        theirs = other["last"][rows[content_key(instruction, response)[:20]]].astype(float)
        print(f"cosine {ours @ theirs / np.linalg.norm(ours) / np.linalg.norm(theirs):.5f}", flush=True)


if __name__ == "__main__":
    asyncio.run(main())
