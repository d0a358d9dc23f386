"""What a jury of three costs beside one judge: requests, and seconds, against a server on this machine.

    python benchmarks/jury_speed.py [--pairs 1000] [--latency 0.01] [--concurrency 32]

The server answers every request after so many seconds with the same probabilities. A jury has to make three times
the requests of one judge; what it takes beyond three times the seconds is what pooling and keeping the pooled
verdicts costs. On a machine that is busy with other things, the seconds of the processor say more.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import multiprocessing
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing.connection import Connection
from pathlib import Path

from evenhand import Judge, Jury, Pair
from evenhand.engines import open_engine
from evenhand.engines.endpoint import EndpointSettings

TOPS = [{"token": token, "logprob": logprob} for token, logprob in (("A", -0.4), ("B", -1.4), ("tie", -2.5))]
BODY = json.dumps(
    {
        "choices": [
            {
                "index": 0,
                "finish_reason": "stop",
                "message": {"role": "assistant", "content": "A"},
                "logprobs": {"content": [{"token": "A", "bytes": [65], "logprob": -0.4, "top_logprobs": TOPS}]},
            }
        ],
        "usage": {"prompt_tokens": 300, "completion_tokens": 1},
    }
).encode()
RESPONSE = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%b" % (len(BODY), BODY)


async def serve(pipe: Connection, latency: float) -> None:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).lower()
                await reader.readexactly(int(head.split(b"content-length: ")[1].split(b"\r\n")[0]))
                await asyncio.sleep(latency)
                writer.write(RESPONSE)
                await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError):
            writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    pipe.send(server.sockets[0].getsockname()[1])
    async with server:
        await server.serve_forever()


def run_server(pipe: Connection, latency: float) -> None:
    asyncio.run(serve(pipe, latency))


@contextmanager
def serving(latency: float) -> Iterator[str]:
    ours, theirs = multiprocessing.Pipe()
    process = multiprocessing.Process(target=run_server, args=(theirs, latency), daemon=True)
    process.start()
    try:
        yield f"http://127.0.0.1:{ours.recv()}/v1"
    finally:
        process.terminate()
        process.join()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pairs", type=int, default=1000)
    parser.add_argument("--latency", type=float, default=0.01)
    parser.add_argument("--concurrency", type=int, default=32)
    parser.add_argument("--protocol", default="overall")
    wanted = parser.parse_args()
    pairs = [Pair(f"Task {n}", f"one {n}", f"two {n}", id=str(n)) for n in range(wanted.pairs)]
    settings = EndpointSettings(concurrency=wanted.concurrency)
    with serving(wanted.latency) as url, tempfile.TemporaryDirectory() as folder:
        seconds, busy, asked = [], [], []
        for names in ("a", "abc"):
            engines = [open_engine(f"{url}#{name}", endpoint=settings) for name in names]
            db = Path(folder) / f"{names}.db"
            made = Judge if len(engines) == 1 else Jury
            with made(engines[0] if len(engines) == 1 else engines, wanted.protocol, db=db) as judge:  # type: ignore
                began, worked = time.monotonic(), time.process_time()
                with judge.run(pairs, words=False) as judgments:
                    count = sum(1 for _ in judgments)
                seconds.append(time.monotonic() - began)
                busy.append(time.process_time() - worked)
                asked.append(judgments.totals.asked)
            assert count == wanted.pairs
    for name, n, took, worked in zip(("one judge", "a jury of three"), asked, seconds, busy, strict=True):
        print(f"{name}: {n:,} requests in {took:.2f} s, {worked:.2f} s of the processor")
    over, work = seconds[1] / seconds[0] / 3, busy[1] / busy[0] / 3
    times = asked[1] / asked[0] / 3
    print(f"of three times one judge: requests {times:.3f}, seconds {over:.3f}, processor {work:.3f}")


if __name__ == "__main__":
    main()
