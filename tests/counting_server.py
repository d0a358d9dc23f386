"""A real HTTP server in a process of its own that writes down every request and answers after a short random delay.

    python counting_server.py LOG SEED    prints its address, and runs until its standard input is closed

A line of the log is an event, the time on the clock that all processes share, and the hash of what was asked: `+`
when a request has arrived, `=` when its answer is about to be sent, `-` when whoever asked was gone before that.
A number in the file LOG.most is how many it answers in all: the rest waits until that is changed.
The label depends on what was asked alone, so that whoever knows the question knows the answer.
"""

from __future__ import annotations

import asyncio
import hashlib
import itertools
import json
import os
import random
import sys
import time
from pathlib import Path

from aiohttp import web

from misbehaving_server import Behaviour, Body, Server, says

LABELS = ("A", "B", "tie")
SLOWEST = 0.02  # seconds


def key_of(body: Body) -> str:
    return hashlib.sha256(json.dumps(body["messages"]).encode()).hexdigest()


def label_of(key: str) -> str:
    return LABELS[int(key, 16) % 3]


def counting(log: int, seed: int, most: Path) -> Behaviour:
    rng, numbers = random.Random(seed), itertools.count()

    def note(event: str, key: str) -> None:
        os.write(log, f"{event} {time.monotonic():.6f} {key}\n".encode())

    async def behave(request: web.Request, body: Body) -> web.StreamResponse:
        key = key_of(body)
        note("+", key)
        try:
            number = next(numbers)
            while most.exists() and number >= int(most.read_text()):  # noqa: ASYNC110
                await asyncio.sleep(0.05)
            await asyncio.sleep(rng.uniform(0, SLOWEST))
            label = label_of(key)
            tops = dict.fromkeys(LABELS, 0.1) | {label: 0.8}
            response = await says(label, tops=[(label, tops)])(request, body)
        except asyncio.CancelledError:
            note("-", key)
            raise
        note("=", key)
        return response

    return behave


async def main() -> None:
    log = os.open(sys.argv[1], os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    async with Server(counting(log, int(sys.argv[2]), Path(f"{sys.argv[1]}.most"))) as server:
        print(server.url, flush=True)
        await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)


if __name__ == "__main__":
    asyncio.run(main())
