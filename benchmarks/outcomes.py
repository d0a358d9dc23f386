"""The table of outcomes: what writing it costs, and how long `results` takes over a million pairs.

    python benchmarks/outcomes.py [--pairs 1000000] [--written 4000] [--rounds 5]

Writing: the same made-up answers under `chained` are kept in a database, with outcomes and without, in turn; only
processor time is compared. Counting: a thousand pairs are judged for real by a scripted judge, the rows that
`results` reads are copied until there are as many pairs as wanted, and the command is run as a process of its own.
"""

from __future__ import annotations

import argparse
import os
import random
import resource
import sqlite3
import subprocess
import sys
import tempfile
import time
from contextlib import closing
from pathlib import Path
from statistics import median
from unittest.mock import patch

from evenhand import Judge, Pair, ScriptedEngine
from evenhand.core.protocol import Prompt
from evenhand.store.outcomes import OutcomeTable

BASE = 1000


def made_pairs(count: int) -> list[Pair]:
    draw = random.Random(1)
    return [
        Pair(f"Task {n}", "so " * draw.randrange(5, 80), "thus " * draw.randrange(5, 80), f"p{n}", "new", "old")
        for n in range(count)
    ]


def answer(prompt: Prompt) -> dict[str, float]:
    draw = random.Random("".join(turn.text for turn in prompt.turns))
    a, b = draw.random(), draw.random()
    return {"A": a / (a + b + 0.3), "B": b / (a + b + 0.3), "tie": 0.3 / (a + b + 0.3)}


def judge_all(pairs: list[Pair], db: Path, at_once: int = 1) -> float:
    began = time.process_time()
    with Judge(ScriptedEngine(answer, concurrency=at_once), "chained", db=db) as judge:
        for _ in judge.judge(pairs):
            pass
    return time.process_time() - began


def cost_of_writing(pairs: int, rounds: int, folder: Path, at_once: int) -> None:
    """Medians over rounds, in which the two ways take turns at being first."""
    given, full = made_pairs(pairs), OutcomeTable.refresh_conversations
    taken: dict[str, list[float]] = {"without": [], "with": []}
    judge_all(given[:20], folder / f"first-{at_once}.db", at_once)  # what is loaded once is in neither
    for number in range(rounds):
        for way in list(taken) if number % 2 else reversed(list(taken)):
            refresh = full if way == "with" else lambda *_, **__: None
            with patch.object(OutcomeTable, "refresh_conversations", refresh):
                seconds = judge_all(given, folder / f"{way}{number}-{at_once}.db", at_once)
            taken[way].append(1e6 * seconds / (pairs * 8))
    each = {way: median(found) for way, found in taken.items()}
    print(f"{at_once} at once: a verdict asked, read and kept takes {each['without']:.1f} µs without outcomes,")
    more = each["with"] / each["without"] - 1
    print(f"  {each['with']:.1f} µs with them: outcomes cost {more:.1%} more processor time (medians of {rounds})")


def grow(db: Path, pairs: int) -> None:
    """Copy the rows that are counted until there are as many pairs as wanted, each on an instruction of its own."""
    with closing(sqlite3.connect(db)) as base:
        base.execute("PRAGMA synchronous = off")
        tables = {
            name: [row[1] for row in base.execute(f"PRAGMA table_xinfo({name})") if row[6] == 0]
            for name in ("pairs", "pair_columns", "outcomes", "packed", "queue")
        }
        for name in tables:
            base.execute(f"CREATE TEMP TABLE first_{name} AS SELECT * FROM {name}")
        for copy in range(1, pairs // BASE):
            shift = copy * BASE
            changed = {
                "id": f"id + {shift}",
                "pair": f"pair + {shift}",
                "cluster": f"cluster + {shift * 7919}",
                "name": f"name || '-{copy}'",
                "key": f"key + {shift * 104729}",
            }
            for name, columns in tables.items():
                new = {**changed, "key": f"key || '-{copy}'"} if name == "pairs" else changed
                values = ", ".join(new.get(column, f'"{column}"') for column in columns)
                names = ", ".join(f'"{column}"' for column in columns)
                base.execute(f"INSERT INTO {name} ({names}) SELECT {values} FROM first_{name}")
        base.commit()


def count(db: Path) -> None:
    began = time.monotonic()
    child = subprocess.Popen(
        [sys.executable, "-m", "evenhand", "results", "--db", str(db)], stdout=subprocess.PIPE, env=os.environ
    )
    out, _ = child.communicate()
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    print(out.decode())
    print(
        f"results: {used.ru_utime + used.ru_stime:.1f} s of processor time, {time.monotonic() - began:.1f} s by the"
        f" clock, at most {used.ru_maxrss / 1024:,.0f} MB; exit code {child.returncode}"
    )


def main() -> None:
    words = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    words.add_argument("--pairs", type=int, default=1_000_000)
    words.add_argument("--written", type=int, default=4000)
    words.add_argument("--rounds", type=int, default=5)
    chosen = words.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        if chosen.written:
            for at_once in (1, 32):
                cost_of_writing(chosen.written, chosen.rounds, folder, at_once)
        if chosen.pairs:
            judge_all(made_pairs(BASE), folder / "million.db")
            grow(folder / "million.db", chosen.pairs)
            size = (folder / "million.db").stat().st_size
            print(f"{chosen.pairs:,} pairs under chained, {size / 1e6:,.0f} MB")
            count(folder / "million.db")


if __name__ == "__main__":
    main()
