"""How long `evenhand learn` takes where the states are there, and how large they are in the database.

    python benchmarks/learn_speed.py                     1,000 labels, 2,000 responses of 1,536 numbers
    python benchmarks/learn_speed.py --labels 4000

A database is made with labelled pairs and a state for each response: random numbers in which one direction is
quality, in half precision as they are kept. The command runs in a process of its own, by its real entry point; the
model's file has to be here, for its hash, and is not loaded.
"""

from __future__ import annotations

import argparse
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

from evenhand.core.pair import Pair
from evenhand.engines.catalog import DEFAULT_MODEL, locate
from evenhand.engines.heads import SHIPPED_HEAD
from evenhand.engines.heads.head import find_head
from evenhand.engines.heads.reading import ResponseReader
from evenhand.engines.heads.vectors import MemoryVectors, content_key, to_vector
from evenhand.engines.llama import LlamaEngine
from evenhand.store import Store

WIDTH = 1536


def fill(db: Path, count: int) -> tuple[int, int]:
    """Labelled pairs, four to an instruction, and their states; the file's size without and with the states."""
    dice = np.random.default_rng(0)
    states = dice.normal(size=(2 * count, WIDTH))
    quality = states[:, :40].sum(axis=1) / 6
    labels = np.where(quality[:count] - quality[count:] + 0.5 * dice.logistic(size=count) > 0, "1", "2")
    pairs = [
        Pair(f"Task {n // 4}", f"first {n}", f"second {n}", labels={"overall": label})
        for n, label in enumerate(labels.tolist())
    ]
    reader = ResponseReader(
        LlamaEngine(locate(DEFAULT_MODEL)), MemoryVectors(), blocks=find_head(SHIPPED_HEAD).blocks
    )
    texts = [(p.instruction, p.output_1) for p in pairs] + [(p.instruction, p.output_2) for p in pairs]
    with Store(db) as store:
        store.add_pairs(pairs)
        store.compact()
        before = db.stat().st_size
        keyed = {content_key(*text): to_vector(row) for text, row in zip(texts, states, strict=True)}
        store.vectors.of(reader.reader_name).put(keyed)
        store.compact()
    return before, db.stat().st_size


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--labels", type=int, default=1000)
    count = parser.parse_args().labels
    with tempfile.TemporaryDirectory() as folder:
        db = Path(folder) / "e.db"
        before, after = fill(db, count)
        print(f"{(after - before) / (2 * count):,.0f} bytes of the file for each response")
        began, used = time.monotonic(), resource.getrusage(resource.RUSAGE_CHILDREN)
        words = ["learn", "--db", str(db), "--out", str(Path(folder) / "mine.json")]
        subprocess.run([sys.executable, "-m", "evenhand", *words], check=True)
        now = resource.getrusage(resource.RUSAGE_CHILDREN)
        processor = now.ru_utime + now.ru_stime - used.ru_utime - used.ru_stime
        print(f"{count:,} labels: {time.monotonic() - began:.1f} s, {processor:.1f} s of processor time")


if __name__ == "__main__":
    main()
