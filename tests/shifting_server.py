"""A server of bare sockets that knows the right answer to each prompt, and at times sends one response too many.

The right answer to "Task 8" is A, to "Task 7" B, which shows where a response reaches another prompt than its own.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Iterator
from contextlib import suppress
from typing import Literal


def right(task: int) -> str:
    return "AB"[task % 2]


End = Literal["announced", "silent"]


class ShiftingServer:
    """Answers after `seconds`; behind every response of `strays` comes another, `delay` seconds later.

    With an `end`, the connection is closed behind such a response, and behind the `uses`-th answer over it; one
    that has been idle for `idle` seconds is closed too.
    """

    def __init__(
        self,
        strays: Iterator[bool],
        *,
        delay: float | None,
        seconds: float = 0.002,
        end: End | None = None,
        uses: int = 0,
        idle: float | None = None,
    ) -> None:
        self.strays, self.delay, self.seconds = strays, delay, seconds
        self.end, self.uses, self.idle = end, uses, idle
        self.connections = self.requests = 0
        self.url = ""
        self._late: set[asyncio.Task[None]] = set()

    async def __aenter__(self) -> ShiftingServer:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.url = f"http://127.0.0.1:{self._server.sockets[0].getsockname()[1]}/v1"
        return self

    async def __aexit__(self, *_: object) -> None:
        self._server.close()
        for task in self._late:
            task.cancel()
        await asyncio.sleep(0.01)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        uses = 0
        with suppress(asyncio.IncompleteReadError, ConnectionError, TimeoutError):
            while True:
                head = (await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), self.idle)).lower()
                body = await reader.readexactly(int(head.split(b"content-length: ")[1].split(b"\r\n")[0]))
                self.requests += 1
                await asyncio.sleep(self.seconds)
                response = _response(right(int(re.findall(rb"Task (\d+)", body)[-1])))
                uses += 1
                if uses == self.uses:
                    writer.write(self._last(response))
                    break
                if not next(self.strays):
                    writer.write(response)
                elif self.delay is None:  # in one piece with the answer
                    writer.write(response + response)
                else:
                    writer.write(response)
                    task = asyncio.create_task(self._again(writer, response))
                    self._late.add(task)
                    task.add_done_callback(self._late.discard)
                await writer.drain()
        writer.close()

    async def _again(self, writer: asyncio.StreamWriter, response: bytes) -> None:
        await asyncio.sleep(self.delay or 0)
        with suppress(ConnectionError):
            writer.write(self._last(response))
            if self.end:
                writer.close()

    def _last(self, response: bytes) -> bytes:
        """A response behind which the connection ends."""
        said = b"\r\nConnection: close\r\n\r\n" if self.end == "announced" else b"\r\n\r\n"
        return response.replace(b"\r\n\r\n", said, 1)


def _response(label: str) -> bytes:
    choice = {"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": label}}
    body = json.dumps({"choices": [choice]}).encode()
    return b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%b" % (len(body), body)
