"""A server of bare sockets that sends exactly the bytes it is told to."""

from __future__ import annotations

import asyncio
import ssl

PLAIN = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n{}"
CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"


class Peer:
    """Answers the n-th request with the n-th script; one that ends on None closes the connection behind it."""

    def __init__(
        self, *scripts: list[bytes | None], tls: ssl.SSLContext | None = None, pause: float = 0.005
    ) -> None:
        self.scripts, self.tls, self.pause = list(scripts), tls, pause
        self.requests: list[bytes] = []
        self.connections = self.busy = self.most = 0

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        try:
            while self.scripts:
                head = await reader.readuntil(b"\r\n\r\n")
                length = int(head.lower().split(b"content-length: ")[1].split(b"\r\n")[0])
                self.requests.append(head + await reader.readexactly(length))
                self.busy += 1
                self.most = max(self.most, self.busy)
                for part in self.scripts.pop(0):
                    if part is None:
                        return
                    await asyncio.sleep(self.pause)
                    self.busy -= bool(self.busy)
                    writer.write(part)
                    await writer.drain()
                    await asyncio.sleep(self.pause)
            await reader.read()
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()

    async def __aenter__(self) -> Peer:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0, ssl=self.tls)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *_: object) -> None:
        self._server.close()
        await asyncio.sleep(0.01)
