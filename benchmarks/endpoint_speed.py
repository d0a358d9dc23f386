"""Judgments a second over HTTP: evenhand end to end beside a bare aiohttp loop, in one run; and at scale.

    python benchmarks/endpoint_speed.py [--pairs N] [--rounds K]
    python benchmarks/endpoint_speed.py --rounds 0 --scale 1000 100000 1000000 [--short]
    python benchmarks/endpoint_speed.py --rounds 0 --finished 1000000 [--short]

A loopback nginx gives the same answer to every request. The bare loop sends the very bodies that evenhand sends,
over as many connections, and parses the JSON. evenhand reads the pairs from a file, renders, hashes, asks, reads
the verdict with its probabilities, and stores it durably. The two take turns. Beside the rates stands the time that
the processor spent on each, which says more than the clock on a machine that is busy with other things.

`--scale` runs the command itself over so many pairs: `evenhand judge`, the same again when all is done, and
`evenhand results`; and tells the rate, the peak memory of each, and how long the last two take. The database and
the pairs (about 9 KB a pair together) are deleted afterwards; `--short` makes pairs of 300 bytes. `--finished`
does the last two alone, over a database that the store has filled without asking anyone, which is much quicker.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import math
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import aiohttp
import orjson

from evenhand import Protocol, Store, read_pairs
from evenhand.core.engine import Answer, Token, Usage
from evenhand.core.judge import Setup
from evenhand.core.protocol import ORDERS
from evenhand.core.verdict import read_answer
from evenhand.engines import open_engine
from evenhand.engines.endpoint import EndpointSettings
from evenhand.io.pairs import mark_of
from evenhand.running.runner import Run
from evenhand.store import Entry
from evenhand.views.cli.running import collect_seldom

CONNECTIONS = 64
TOP = [("A", -0.1), ("B", -2.5), ("tie", -4.0), *((f"word{n}", -6.0 - n) for n in range(17))]
REPLY = {
    "id": "x",
    "object": "chat.completion",
    "model": "fixed",
    "choices": [
        {
            "index": 0,
            "finish_reason": "stop",
            "message": {"role": "assistant", "content": "A"},
            "logprobs": {
                "content": [
                    {
                        "token": "A",
                        "logprob": -0.1,
                        "top_logprobs": [{"token": token, "logprob": value} for token, value in TOP],
                    }
                ]
            },
        }
    ],
    "usage": {"prompt_tokens": 900, "completion_tokens": 1, "total_tokens": 901},
}
CONF = """
daemon off; worker_processes 1; pid {folder}/nginx.pid; error_log {folder}/error.log;
events {{ worker_connections 1024; }}
http {{
  access_log off; client_body_temp_path {folder}/body; client_body_buffer_size 256k; keepalive_requests 100000000;
  proxy_temp_path {folder}/p; fastcgi_temp_path {folder}/f; uwsgi_temp_path {folder}/u; scgi_temp_path {folder}/s;
  server {{
    listen 127.0.0.1:{port};
    location / {{ default_type application/json; return 200 '{reply}'; }}
  }}
}}
"""


@contextmanager
def fixed_server(reply: Mapping[str, Any] = REPLY) -> Iterator[str]:
    """nginx with one answer to everything."""
    nginx = shutil.which("nginx") or shutil.which("nginx", path="/usr/sbin")
    if nginx is None:
        sys.exit("this benchmark needs nginx (Debian: apt-get install nginx-light)")
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    with tempfile.TemporaryDirectory() as folder:
        conf = Path(folder) / "nginx.conf"
        quoted = json.dumps(reply).replace("\\", "\\\\")  # nginx reads escapes of its own
        conf.write_text(CONF.format(folder=folder, port=port, reply=quoted))
        server = subprocess.Popen([nginx, "-c", str(conf), "-e", f"{folder}/error.log"])
        try:
            time.sleep(0.5)
            yield f"http://127.0.0.1:{port}/v1"
        finally:
            server.terminate()
            server.wait()


def write_pairs(path: Path, count: int, repeated: int = 15) -> None:
    """Pairs of about 3 KB, all different."""
    filler = "The quick brown fox jumps over the lazy dog, and then it thinks about what it has done. " * repeated
    with path.open("w") as file:
        for number in range(count):
            row = {
                "instruction": f"Task {number}",
                "output_1": f"{number} {filler}",
                "output_2": f"{filler} {number}",
            }
            file.write(json.dumps(row) + "\n")


async def bare(url: str, bodies: list[bytes], count: int) -> float:
    """Requests a second of a loop that only sends and parses."""
    todo = iter(range(count))
    connector = aiohttp.TCPConnector(limit=CONNECTIONS)
    headers = {"Content-Type": "application/json"}
    async with aiohttp.ClientSession(connector=connector, headers=headers) as session:

        async def worker() -> None:
            for number in todo:
                async with session.post(f"{url}/chat/completions", data=bodies[number % len(bodies)]) as response:
                    orjson.loads(await response.read())

        began = time.perf_counter()
        await asyncio.gather(*(worker() for _ in range(CONNECTIONS)))
        return count / (time.perf_counter() - began)


async def evenhand(url: str, pairs: Path, db: Path, count: int) -> tuple[float, int]:
    """Verdicts a second, end to end, and how many."""
    engine = open_engine(f"{url}#fixed", endpoint=EndpointSettings(concurrency=CONNECTIONS))
    began, asked = time.perf_counter(), 0
    with Store(db) as store:
        run = Run(Setup(engine, Protocol.load("overall")), islice(read_pairs(pairs), count), store)
        async for judgment in run:
            asked += judgment.asked
    await engine.close()
    return asked / (time.perf_counter() - began), asked


def bodies_of(pairs: Path, count: int) -> list[bytes]:
    """The bodies that evenhand sends for these pairs."""
    protocol = Protocol.load("overall")
    bodies = []
    for pair in islice(read_pairs(pairs), count):
        turns = protocol.prompt(pair, "forward").turns
        messages = [{"role": turn.role, "content": turn.text} for turn in turns]
        more = {"temperature": 0, "max_tokens": 2048, "logprobs": True, "top_logprobs": 20}
        bodies.append(orjson.dumps({"model": "fixed", "messages": messages, **more}))
    return bodies


def side_by_side(url: str, folder: Path, count: int, rounds: int) -> None:
    pairs = folder / "pairs.jsonl"
    write_pairs(pairs, count)
    bodies = bodies_of(pairs, 200)
    collect_seldom()  # as the command does, for both
    print(
        "| round | bare aiohttp loop, requests/s | evenhand, verdicts/s | ratio | processor time, bare / evenhand |"
    )
    print("|--:|--:|--:|--:|--:|", flush=True)
    for number in range(1, rounds + 1):
        began = time.process_time()
        plain = asyncio.run(bare(url, bodies, 2 * count))
        middle = time.process_time()
        ours, _ = asyncio.run(evenhand(url, pairs, folder / f"{number}.db", count))
        cost, our_cost = ((x / (2 * count)) * 1e6 for x in (middle - began, time.process_time() - middle))
        print(
            f"| {number} | {plain:,.0f} | {ours:,.0f} | {ours / plain:.2f} |"
            f" {cost:.0f} / {our_cost:.0f} µs = {cost / our_cost:.2f} |",
            flush=True,
        )


@dataclass(frozen=True, slots=True)
class Took:
    """What one command took."""

    fields: dict[str, Any]
    seconds: float
    processor: float
    megabytes: float
    nothing_to_do: float | None = None  # seconds until it said so


def command(*arguments: str) -> Took:
    """Run evenhand as a user would, and see what it took."""
    began, given = time.perf_counter(), list[float]()
    process = subprocess.Popen(
        [sys.executable, "-m", "evenhand", *arguments, "--json"], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    assert process.stdout is not None
    assert process.stderr is not None

    def listen(lines: Iterable[bytes]) -> None:
        given.extend(time.perf_counter() - began for line in lines if b"nothing is left to ask" in line)

    listener = threading.Thread(target=listen, args=(process.stderr,))
    listener.start()
    said = process.stdout.read()
    listener.join()
    _, status, used = os.wait4(process.pid, 0)  # of this process alone, unlike getrusage
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        sys.exit(f"evenhand {arguments[0]} ended with {process.returncode}")
    cpu = used.ru_utime + used.ru_stime
    nothing_to_do = given[0] if given else None
    return Took(json.loads(said), time.perf_counter() - began, cpu, used.ru_maxrss / 1024, nothing_to_do)


def judging(url: str, pairs: Path, db: Path) -> tuple[str, ...]:
    """The command line of a run: one verdict for each order."""
    where = ("--judge", f"{url}#fixed", "--db", str(db), "--concurrency", str(CONNECTIONS))
    return ("judge", str(pairs), "--protocol", "overall", *where)


def at_scale(url: str, folder: Path, count: int, short: bool) -> None:
    """One size: judged, judged again, and looked at."""
    pairs, db = folder / f"{count}.jsonl", folder / f"{count}.db"
    write_pairs(pairs, count, repeated=1 if short else 15)
    judge = judging(url, pairs, db)
    first = command(*judge)
    again = command(*judge)
    results = command("results", "--db", str(db))
    assert (first.fields["asked"], again.fields["asked"], results.fields["pairs"]) == (2 * count, 0, count)
    rate = count / first.fields["seconds"]
    print(
        f"| {count:,} | {rate:,.0f} | {first.processor / count * 1e6:,.0f} µs | {first.megabytes:,.0f} MB"
        f" | {db.stat().st_size / count:,.0f} | {again.nothing_to_do or math.nan:,.1f} s"
        f" | {again.seconds:,.1f} s ({again.processor:,.1f} s), {again.megabytes:,.0f} MB"
        f" | {results.seconds:,.1f} s ({results.processor:,.1f} s),"
        f" {results.megabytes:,.0f} MB |",
        flush=True,
    )
    pairs.unlink()
    db.unlink()


def fill(pairs: Path, db: Path, url: str) -> None:
    """A database as a finished run leaves it, without asking: one answer for every conversation, by the store."""
    settings = EndpointSettings(concurrency=CONNECTIONS)
    setup = Setup(open_engine(f"{url}#fixed", endpoint=settings), Protocol.load("overall"))
    answer = Answer("A", (Token("A", tuple(TOP)),), Usage(900, 0, 1))
    verdicts = read_answer(answer, ["overall"])
    source = read_pairs(pairs)
    with Store(db) as store:
        judge = store.judge(setup)
        mark, count = mark_of(pairs), 0
        while batch := list(islice(source, 500)):
            keyed = [(pair, {order: setup.key(pair, order) for order in ORDERS}) for pair in batch]
            cases = store.enter(judge, 1, keyed)
            store.record_all(
                [
                    Entry(conversation, 0, answer, verdicts)
                    for case in cases
                    for conversation in case.conversations.values()
                ]
            )
            for case in cases:
                store.release(case)
            count += len(cases)
        assert mark is not None
        store.note_checked(mark, count)
        store.note_finished(mark, judge, "both")


def finished(url: str, folder: Path, count: int, short: bool) -> None:
    """A run over pairs that are all judged already."""
    pairs, db = folder / f"{count}.jsonl", folder / f"{count}.db"
    write_pairs(pairs, count, repeated=1 if short else 15)
    fill(pairs, db, url)
    size = db.stat().st_size
    judge = judging(url, pairs, db)
    for arguments in (judge, ("results", "--db", str(db))):
        took = command(*arguments)
        assert (took.fields.get("asked", 0), took.fields["pairs"]) == (0, count)
        print(
            f"| {count:,} | {size / 1e9:.1f} GB | `evenhand {arguments[0]}`"
            f" | {took.nothing_to_do or math.nan:,.1f} s | {took.seconds:,.0f} s"
            f" | {took.processor:,.0f} s | {took.megabytes:,.0f} MB |",
            flush=True,
        )


SCALE_HEAD = """
| pairs | pairs/s | processor time a pair | peak memory | bytes a pair in the database | the same command again: \
until it says that nothing is left to ask | until its table (processor time) | `evenhand results` |
|--:|--:|--:|--:|--:|--:|--:|--:|"""


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--pairs", type=int, default=3000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--scale", type=int, nargs="*", default=[])
    parser.add_argument(
        "--finished", type=int, help="repeat a finished run of so many pairs; it is not asked first"
    )
    parser.add_argument("--short", action="store_true", help="pairs of about 300 bytes at scale")
    parser.add_argument("--folder", help="where the files of --scale are put; else the system's temporary folder")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=args.folder) as folder, fixed_server() as url:
        if args.rounds:
            side_by_side(url, Path(folder), args.pairs, args.rounds)
        if args.scale:
            print(SCALE_HEAD, flush=True)
        for count in args.scale:
            at_scale(url, Path(folder), count, args.short)
        if args.finished:
            print(
                "\n| pairs | database | command | says so after | time | processor time | peak memory |"
                "\n|--:|--:|---|--:|--:|--:|--:|"
            )
            finished(url, Path(folder), args.finished, args.short)


if __name__ == "__main__":
    main()
