"""Ten million verdicts through the database, through Parquet and through the statistics: time, memory, bytes.

    python benchmarks/ten_million.py [--verdicts 10000000] [--store-verdicts 1000000] [--rows 10000000] [--keep DIR]

Verdicts are made up, and kept as a run keeps them: pairs of about 1.2 KB under `chained`, four verdicts in each of
two orders, each with the probabilities of ten tokens. Each step is a process of its own, whose processor time and
largest memory the kernel tells; making the verdicts up is timed alone, and taken off. The last step reads as many
rows of Parquet, under `overall`, as --rows says; these are written in bulk, with short texts, which nobody reads.
The machine may be busy with other things: processor time says more than the clock.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import random
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any

from evenhand import Pair, Protocol
from evenhand.core.engine import Answer, Token, Usage
from evenhand.core.judge import Setup
from evenhand.core.outcome import ASKED, FORWARD, INCONSISTENT, MASSES, SWAPPED
from evenhand.core.protocol import ORDERS
from evenhand.core.verdict import Verdict
from evenhand.engines.scripted import ScriptedEngine
from evenhand.store import Store
from evenhand.store.database import Entry
from evenhand.store.shards import OrderRecord, ShardRow, begin_shards, write_shard

MODELS = ("alpha", "beta", "gamma", "delta", "epsilon")
SHARD, TOGETHER = 16_384, 64
VERDICTS = 8  # of a pair


# -- made up -------------------------------------------------------------------------------------------------------


def setup_of(protocol: str) -> Setup:
    return Setup(ScriptedEngine(lambda _: "A", name="made-up"), Protocol.load(protocol))


def made_up_pairs(count: int) -> Iterator[Pair]:
    draw = random.Random(1)
    words = [f"{draw.choice('bcdfgklmnprst')}{draw.choice('aeiou')}{draw.randrange(400)}" for _ in range(4000)]
    texts = [" ".join(draw.choices(words, k=draw.randrange(40, 180))) for _ in range(5000)]
    for number in range(count):
        one, two = draw.sample(MODELS, 2)
        task = f"Task {number // 2}: {texts[number // 2 % 997][:150]}"
        about: dict[str, Any] = {"topic": number % 20}
        labels: dict[str, Any] = {"overall": draw.choice(("1", "2", "tie"))} if number % 10 == 0 else {}
        first, second = (f"{draw.choice(texts)} {number}" for _ in "12")
        yield Pair(task, first, second, f"pair-{number}", one, two, labels, about)


class Answers:
    """Answers whose log-probabilities do not come again: numbers are nearly all that a verdict takes on disk."""

    def __init__(self) -> None:
        draw = random.Random(2)
        names = ("A", "B", "tie", " A", " B", "The", "Both", "\n", "I", "Response")
        self._names = [(*draw.sample(names[:3], 3), *names[3:]) for _ in range(64)]
        self._logs = [-12 * draw.random() ** 0.5 for _ in range(1_000_003)]
        self._shares = [0.05 + 0.9 * draw.random() for _ in range(1_000_003)]
        self._draw = draw

    def one(self, dimension: str) -> tuple[Answer, tuple[Verdict, ...]]:
        """An answer, and what is read off it."""
        place = int(self._draw.random() * 1_000_000)
        names = self._names[place & 63]
        top = tuple(zip(names, self._logs[place : place + 10], strict=False))
        share, mass = self._shares[place : place + 2]
        rest = (1 - share) * mass
        p = {names[0]: share, names[1]: rest, names[2]: 1 - share - rest}
        label: Any = max(p, key=p.__getitem__)
        answer = Answer(label, (Token(label, top),), Usage(60, 1500, 1))
        return answer, (Verdict(dimension, label, p, mass),)  # type: ignore[arg-type]


def conversations(count: int) -> Iterator[tuple[Pair, dict[str, list[tuple[Answer, tuple[Verdict, ...]]]]]]:
    """Pairs, with the answers to the four questions of each order."""
    answers, dimensions = Answers(), setup_of("chained").protocol.dimensions
    for pair in made_up_pairs(count):
        yield pair, {order: [answers.one(name) for name in dimensions] for order in ORDERS}


# -- steps, each in a process of its own ---------------------------------------------------------------------------


def make_up(count: int, _: Path) -> None:
    setup = setup_of("chained")
    for pair, _answers in conversations(count):
        for order in ORDERS:
            setup.key(pair, order)


def fill_store(count: int, home: Path) -> None:
    setup, every = setup_of("chained"), conversations(count)
    questions = len(setup.protocol.questions)
    with Store(home / "evenhand.db") as store:
        judge = store.judge(setup)
        while some := list(islice(every, TOGETHER)):
            keys = [(pair, {order: setup.key(pair, order) for order in ORDERS}) for pair, _ in some]
            cases = store.enter(judge, questions, keys)
            for question in range(questions):  # as answers come: all first asks, then all second ones
                store.record_all(
                    [
                        Entry(case.conversations[order], question, *said[order][question])
                        for case, (_, said) in zip(cases, some, strict=True)
                        for order in ORDERS
                    ]
                )
            for case in cases:
                store.release(case)


def fill_shards(count: int, home: Path) -> None:
    setup, every = setup_of("chained"), conversations(count)
    place = begin_shards(home / "shards", setup)
    number = 0
    while some := list(islice(every, SHARD)):
        rows = [
            ShardRow(
                pair,
                {
                    order: OrderRecord(
                        setup.key(pair, order),
                        {verdict.dimension: verdict for _, read in said[order] for verdict in read},
                        [answer for answer, _ in said[order]],
                    )
                    for order in ORDERS
                },
            )
            for pair, said in some
        ]
        write_shard(place, f"{number:06d}", rows, fingerprint=setup.fingerprint)
        number += 1


def fill_rows(count: int, home: Path) -> None:
    """Rows in bulk, out of arrays."""
    import numpy as np
    import pyarrow as pa

    from evenhand.store.shards import shard_schema

    setup, rng, schema = setup_of("overall"), np.random.default_rng(4), shard_schema()
    place = begin_shards(home / "rows", setup)
    for begin in range(0, count, 131_072):
        n = min(131_072, count - begin)
        numbers = np.arange(begin, begin + n)
        p = rng.dirichlet((2.0, 1.5, 0.5), 2 * n)
        masses = rng.beta(50, 1, 2 * n)
        digits = rng.bytes(96 * n).hex()
        keys = [digits[k : k + 64] for k in range(0, len(digits), 64)]
        orders = pa.array(list(ORDERS) * n)
        verdicts = pa.StructArray.from_arrays(
            [
                orders,
                pa.array(["overall"] * (2 * n)),
                pa.array(np.array(["A", "B", "tie"], dtype=object)[p.argmax(axis=1)], pa.string()),
                *(pa.array(p[:, column]) for column in range(3)),
                pa.array(masses),
                pa.nulls(2 * n, pa.string()),
                pa.array(np.zeros(2 * n, dtype=bool)),
            ],
            fields=list(schema.field("verdicts").type.value_type),
        )
        offsets = pa.array(np.arange(0, 2 * n + 1, 2, dtype=np.int32))
        conversation = schema.field("conversations").type.value_type
        judged = pa.StructArray.from_arrays(
            [
                orders,
                pa.array(keys[n:]),
                pa.array([[]] * (2 * n), conversation.field("answers").type),
                pa.nulls(2 * n, conversation.field("failure").type),
            ],
            fields=list(conversation),
        )
        outcomes = pa.StructArray.from_arrays(
            outcome_columns(p, masses), fields=list(schema.field("outcomes").type.value_type)
        )
        words = pa.array(["text"] * n)
        models = np.array(MODELS, dtype=object)
        one = rng.integers(0, 5, n)
        columns = {
            "name": pa.array([f"p{x}" for x in numbers.tolist()]),
            "key": pa.array(keys[:n]),
            **dict.fromkeys(("instruction", "output_1", "output_2"), words),
            "model_1": pa.array(models[one], pa.string()),
            "model_2": pa.array(models[(one + rng.integers(1, 5, n)) % 5], pa.string()),
            **dict.fromkeys(("labels", "metadata", "known"), pa.array(["{}"] * n)),
            "candidate": pa.array([""] * n),
            "cluster": pa.array((numbers // 2).astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15)),
            "length_1": pa.array(rng.integers(100, 1500, n), pa.int32()),
            "length_2": pa.array(rng.integers(100, 1500, n), pa.int32()),
            "finished": pa.array([True] * n),
            "judged": pa.array(np.full(n, 1_700_000_000_000_000), pa.timestamp("us", tz="UTC")),
            **dict.fromkeys(("computed", "reused", "generated"), pa.array(np.full(n, 60))),
            "outcomes": pa.ListArray.from_arrays(pa.array(np.arange(n + 1, dtype=np.int32)), outcomes),
            "verdicts": pa.ListArray.from_arrays(offsets, verdicts),
            "conversations": pa.ListArray.from_arrays(offsets, judged),
        }
        table = pa.table(columns).select(schema.names).cast(schema)
        write_shard(place, f"{begin // 131_072:06d}", table, fingerprint=setup.fingerprint)


def outcome_columns(p: Any, masses: Any) -> list[Any]:
    """Verdicts in both orders as columns of outcomes; rows 2k and 2k + 1 are the orders of pair k."""
    import numpy as np
    import pyarrow as pa

    forward, swapped = p[::2], p[1::2][:, [1, 0, 2]]
    pooled = np.sqrt(forward * swapped)
    pooled /= pooled.sum(axis=1, keepdims=True)
    side, one, two = (shares.argmax(axis=1) + 1 for shares in (pooled, forward, swapped))
    said = side | one << FORWARD | two << SWAPPED | 3 << ASKED | 2 << MASSES
    said |= np.where((one != two) & (one < 3) & (two < 3), INCONSISTENT, 0)
    n = len(side)
    return [
        *(pa.array(["overall"] * n), pa.array(said, pa.int32()), *(pa.array(pooled[:, k]) for k in range(3))),
        *(pa.array(masses[::2] + masses[1::2]), pa.nulls(n, pa.string())),
    ]


STEPS: dict[str, Callable[[int, Path], None]] = {
    "make up": make_up,
    "store": fill_store,
    "shards": fill_shards,
    "rows": fill_rows,
}


# -- measuring -----------------------------------------------------------------------------------------------------


def run(name: str, words: list[str]) -> dict[str, float]:
    """Run a process; its seconds by the clock, of processor time, and its largest memory."""
    began = time.monotonic()
    child = subprocess.Popen(words, stdout=subprocess.DEVNULL)
    _, status, usage = os.wait4(child.pid, 0)
    if status:
        sys.exit(f"{name} failed")
    found = {
        "seconds": time.monotonic() - began,
        "processor": usage.ru_utime + usage.ru_stime,
        "megabytes": usage.ru_maxrss * 1024 / 1e6,
    }
    print(
        f"{name:<38} {found['seconds']:8.1f} s {found['processor']:8.1f} s processor {found['megabytes']:8.0f} MB",
        flush=True,
    )
    return found


def step(name: str, count: int, home: Path) -> dict[str, float]:
    words = ["--step", name, "--count", str(count), "--home", str(home)]
    return run(f"{name}, {count:,}", [sys.executable, __file__, *words])


def command(name: str, *words: str | Path) -> dict[str, float]:
    return run(name, [sys.executable, "-m", "evenhand", *map(str, words), "--json"])


def size_of(path: Path) -> int:
    files = [path] if path.is_file() else list(path.iterdir())
    return sum(file.stat().st_size for file in files)


def per(name: str, found: dict[str, float], verdicts: int, *, less: float = 0.0) -> None:
    print(f"  {name}: {1e6 * (found['processor'] - less) / verdicts:.1f} µs of processor time a verdict")


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--verdicts", type=int, default=10_000_000)
    options.add_argument("--store-verdicts", type=int, default=1_000_000, help="0 leaves the database out")
    options.add_argument("--rows", type=int, default=10_000_000)
    options.add_argument("--keep", type=Path, help="keep the files in this folder")
    options.add_argument("--step", choices=STEPS, help=argparse.SUPPRESS)
    options.add_argument("--count", type=int, help=argparse.SUPPRESS)
    options.add_argument("--home", type=Path, help=argparse.SUPPRESS)
    given = options.parse_args()
    if given.step:
        gc.disable()  # nothing here goes in circles, and looking for them would be timed too
        STEPS[given.step](given.count, given.home)
        return
    home = given.keep or Path(tempfile.mkdtemp())
    home.mkdir(parents=True, exist_ok=True)
    try:
        measure(given.verdicts, given.store_verdicts, given.rows, home)
    finally:
        if not given.keep:
            shutil.rmtree(home)


def measure(verdicts: int, store_verdicts: int, rows: int, home: Path) -> None:
    sample = step("make up", 20_000, home)
    apart = sample["processor"] / (20_000 * VERDICTS)
    if store_verdicts:
        per("store", step("store", store_verdicts // VERDICTS, home), store_verdicts, less=apart * store_verdicts)
        print(f"  {size_of(home / 'evenhand.db') / store_verdicts:.0f} bytes a verdict, the pair's texts included")
        found = command("results over the database", "results", "--db", home / "evenhand.db")
        per("results", found, store_verdicts)
    if verdicts:
        per("shards", step("shards", verdicts // VERDICTS, home), verdicts, less=apart * verdicts)
        print(f"  {size_of(home / 'shards') / verdicts:.0f} bytes a verdict, the pair's texts included")
        print(f"  {json.dumps(columns_of(home / 'shards', verdicts))} bytes a verdict by column")
        for name in ("results", "rank"):
            per(name, command(f"{name} over the shards", name, "--db", home / "shards"), verdicts)
        by = command("results --by topic over the shards", "results", "--by", "topic", "--db", home / "shards")
        per("results --by", by, verdicts)
    if rows:
        step("rows", rows, home)
        per("results", command(f"results over {rows:,} rows", "results", "--db", home / "rows"), 2 * rows)
    print(f"largest memory of this process: {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024:.0f} MB")


def columns_of(folder: Path, verdicts: int) -> dict[str, float]:
    """Bytes a verdict of each column, as they lie packed in the shards."""
    import pyarrow.parquet as parquet

    sums: dict[str, int] = {}
    for file in folder.glob("part-*.parquet"):
        about = parquet.read_metadata(file)
        for group in range(about.num_row_groups):
            for number in range(about.num_columns):
                column = about.row_group(group).column(number)
                path = column.path_in_schema.replace(".list.element", "")
                name = path if path.startswith("conversations.answers") else path.partition(".")[0]
                sums[name] = sums.get(name, 0) + column.total_compressed_size
    return {name: round(size / verdicts, 2) for name, size in sorted(sums.items(), key=lambda item: -item[1])}


if __name__ == "__main__":
    main()
