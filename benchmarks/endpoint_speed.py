"""Judgments a second over HTTP: evenhand end to end beside a bare aiohttp loop, in one run.

    python benchmarks/endpoint_speed.py [--pairs N] [--rounds K] [--scale 1000 100000 ...]

A loopback nginx gives the same answer to every request. The bare loop sends the very bodies that evenhand sends,
over as many connections, and parses the JSON. evenhand reads the pairs from a file, renders, hashes, asks, reads
the verdict with its probabilities, and stores it durably. The two take turns. `--scale` runs evenhand alone over
so many pairs and prints its rate, its memory, and the time until a finished run says that there is nothing to do.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import resource
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import Any

import aiohttp
import orjson

from evenhand import Protocol, Store, read_pairs
from evenhand.engines import open_engine
from evenhand.engines.endpoint import EndpointSettings
from evenhand.judge import Setup
from evenhand.runner import Run

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


def write_pairs(path: Path, count: int) -> None:
    """Pairs of about 3 KB, all different."""
    filler = "The quick brown fox jumps over the lazy dog, and then it thinks about what it has done. " * 15
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
    print("| round | bare aiohttp loop, requests/s | evenhand, verdicts/s | ratio |\n|--:|--:|--:|--:|")
    for number in range(1, rounds + 1):
        plain = asyncio.run(bare(url, bodies, 2 * count))
        ours, _ = asyncio.run(evenhand(url, pairs, folder / f"{number}.db", count))
        print(f"| {number} | {plain:,.0f} | {ours:,.0f} | {ours / plain:.2f} |", flush=True)


def at_scale(url: str, folder: Path, count: int) -> None:
    """One size, in a process of its own, so that its memory is its own."""
    pairs, db = folder / f"{count}.jsonl", folder / f"{count}.db"
    write_pairs(pairs, count)
    rate, asked = asyncio.run(evenhand(url, pairs, db, count))
    began = time.perf_counter()
    asyncio.run(evenhand(url, pairs, db, count))
    again = time.perf_counter() - began
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    size = db.stat().st_size / max(asked, 1)
    print(f"| {count:,} | {rate:,.0f} | {peak:,.0f} MB | {size:,.0f} | {again:,.1f} s |", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--pairs", type=int, default=3000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--scale", type=int, nargs="*", default=[])
    parser.add_argument("--one-size", nargs=2, metavar=("URL", "COUNT"), help=argparse.SUPPRESS)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        if args.one_size:
            at_scale(args.one_size[0], Path(folder), int(args.one_size[1]))
            return
        with fixed_server() as url:
            if args.rounds:
                side_by_side(url, Path(folder), args.pairs, args.rounds)
            if args.scale:
                print("\n| pairs | verdicts/s | peak memory | bytes a verdict | finished run, until it says so |")
                print("|--:|--:|--:|--:|--:|", flush=True)
            for count in args.scale:
                again = [sys.executable, __file__, "--one-size", url, str(count)]
                subprocess.run(again, check=True, env=os.environ)


if __name__ == "__main__":
    main()
