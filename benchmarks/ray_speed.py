"""What Ray costs: the local runner and the Ray path with one and two workers, beside each other.

All of them ask the loopback server of endpoint_speed.py, nginx with one fixed answer, so that what is measured is
evenhand and Ray and no model. Each is run with few pairs and with many: what lies between the two is the cost of a
verdict, and what is left is the cost of starting.

    python benchmarks/ray_speed.py --pairs 2000 --rounds 2
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from endpoint_speed import CONNECTIONS, fixed_server

FILLER = "The quick brown fox jumps over the lazy dog, and then it thinks about what it has done. " * 15
TICK = os.sysconf("SC_CLK_TCK")
RUNS = {"local runner": (), "Ray, 1 worker": ("--workers", "1"), "Ray, 2 workers": ("--workers", "2")}


@dataclass(frozen=True)
class Took:
    """What one command took, with all the processes that it started."""

    verdicts: int
    seconds: float  # from its start to its end
    judging: float  # of these, from the first pair to the last
    processor: float
    workers: float  # the part of the processor time that is the workers' own


def write_pairs(path: Path, count: int) -> None:
    rows = [
        {"instruction": f"Task {n}", "output_1": f"{n} {FILLER}", "output_2": f"{FILLER} {n}"} for n in range(count)
    ]
    pq.write_table(pa.Table.from_pylist(rows), path)


def processor_times(session: int) -> dict[int, tuple[float, bool]]:
    """Seconds of each process of a session so far, and whether it is a worker of Ray Data."""
    found = {}
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            fields = (entry / "stat").read_text().rpartition(")")[2].split()
            if int(fields[3]) == session:
                title = (entry / "cmdline").read_bytes()
                used = (int(fields[11]) + int(fields[12])) / TICK
                found[int(entry.name)] = (used, title.startswith(b"ray::MapWorker"))
        except OSError:
            continue
    return found


def run(pairs: Path, url: str, folder: Path, options: tuple[str, ...]) -> Took:
    where = ("--out", str(folder / "out"), *options) if options else ("--db", str(folder / "local.db"))
    words = (*(("ray", "judge") if options else ("judge",)), str(pairs), *where)
    words += ("--judge", f"{url}#fixed", "--protocol", "overall", "--json")
    words += ("--concurrency", str(CONNECTIONS))
    began = time.perf_counter()
    process = subprocess.Popen(
        [sys.executable, "-m", "evenhand", *words],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
    )
    used: dict[int, tuple[float, bool]] = {}
    while process.poll() is None:
        for pid, (seconds, worker) in processor_times(process.pid).items():
            used[pid] = (seconds, worker or used.get(pid, (0.0, False))[1])  # one that is gone has no title
        time.sleep(0.05)
    said, given = process.communicate()
    if process.returncode:
        sys.exit(given.decode())
    fields = json.loads(said)
    return Took(
        fields["asked"],
        time.perf_counter() - began,
        fields.get("judging_seconds", fields["seconds"]),
        sum(seconds for seconds, _ in used.values()),
        sum(seconds for seconds, worker in used.values() if worker),
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--pairs", type=int, default=2000, help="of the smaller run; the other has four times that")
    parser.add_argument("--rounds", type=int, default=2)
    args = parser.parse_args()
    took: dict[tuple[str, int], list[Took]] = {}
    sizes = (args.pairs, 4 * args.pairs)
    with tempfile.TemporaryDirectory() as folder, fixed_server() as url:
        files = {size: Path(folder) / f"{size}.parquet" for size in sizes}
        for size, file in files.items():
            write_pairs(file, size)
        for number in range(args.rounds):
            for name, options in RUNS.items():
                for size, file in files.items():
                    place = Path(folder) / f"{number}-{name}-{size}".replace(" ", "-")
                    place.mkdir()
                    took.setdefault((name, size), []).append(run(file, url, place, options))
                    print(number + 1, name, size, took[name, size][-1], file=sys.stderr, flush=True)
    print(
        f"| {sizes[1]:,} pairs, median of {args.rounds} | verdicts/s while judging | whole command"
        " | processor time a verdict, all processes | of this, the workers | processor time to start and end |\n"
        "|---|--:|--:|--:|--:|--:|"
    )
    for name in RUNS:
        print(row(name, took[name, sizes[0]], took[name, sizes[1]]))


def row(name: str, few: list[Took], many: list[Took]) -> str:
    def middle(values: list[float]) -> float:
        return statistics.median(values)

    more = many[0].verdicts - few[0].verdicts
    slope = middle([m.processor - f.processor for f, m in zip(few, many, strict=True)]) / more
    own = middle([m.workers - f.workers for f, m in zip(few, many, strict=True)]) / more
    start = middle([took.processor for took in many]) - slope * many[0].verdicts
    return (
        f"| {name} | {middle([took.verdicts / took.judging for took in many]):,.0f}"
        f" | {middle([took.seconds for took in many]):.1f} s | {slope * 1e6:,.0f} µs"
        f" | {f'{own * 1e6:,.0f} µs' if own else '–'} | {start:.1f} s |"
    )


if __name__ == "__main__":
    main()
