"""HTTP/1.1 over kept connections: as much of it as asking one server for JSON takes, and no more.

    Wire.send       a method, a path, a body -> a Response
    Unreachable     no connection came about
    Broken          one was cut, or what came over it is no HTTP
    TooLarge        more came than anyone wants to read

A request costs a third of what it costs in a library for every use of HTTP (docs/performance.md), and a fast
server answers thousands in a second. Left out are redirects, cookies, proxies, sending in parts, sending again.
Where a proxy stands between, `http.py` takes aiohttp. What comes is read by httptools, which is llhttp, node's own.
"""

from __future__ import annotations

import asyncio
import re
import ssl
import time
import zlib
from collections import deque
from collections.abc import Mapping
from typing import Any, NamedTuple, cast
from urllib.parse import quote, urlsplit

import httptools

# A connection that has been idle for so long may be one that the server is closing just now.
_IDLE_SECONDS = 15.0
CONNECT_SECONDS = 30.0
_MOST_HEAD = 2**16
_PORTS = {"http": 80, "https": 443}


class Unreachable(OSError):
    """No connection came about: not in time (`late`), or for a reason that will not pass (`lasting`)."""

    def __init__(self, why: str, *, late: bool = False, lasting: bool = False) -> None:
        super().__init__(why)
        self.late, self.lasting = late, lasting


class Broken(OSError):
    """The connection was cut before the answer was whole, or the answer is no HTTP."""


class TooLarge(Exception):
    """The answer is larger than what is taken."""


class Response(NamedTuple):
    """An answer, whole; the names of its headers in lower case."""

    status: int
    headers: Mapping[str, str]
    body: bytes


class Wire:
    """Connections to one server, of which at most `limit` are open at once.

    `timeout` is for one request, from the wish to send it to the last byte of its answer.
    """

    def __init__(
        self, url: str, headers: Mapping[str, str], *, timeout: float | None, limit: int, most: int
    ) -> None:
        parts = urlsplit(url)
        self._host = (parts.hostname or "").encode("idna").decode()
        self._tls = parts.scheme == "https"
        self._port = parts.port or _PORTS[parts.scheme]
        # A name may stand for several addresses, of which some lead nowhere; a number stands for one.
        self._race = re.fullmatch(r"[\d.]+|.*:.*|localhost", self._host) is None
        self._path = quote(parts.path, safe="/%:@!$&'()*+,;=~-._")
        self._head = _head_lines({"Host": _shown_host(self._host, self._port, parts.scheme), **headers})
        self._timeout, self._most = timeout, most
        self._places = asyncio.Semaphore(limit)
        self._open: set[_Connection] = set()
        self._idle: deque[_Connection] = deque()
        self._context: ssl.SSLContext | None = None
        self._watching: asyncio.TimerHandle | None = None

    async def send(self, method: str, path: str, body: bytes = b"") -> Response:
        """Send a request and wait for the answer; raises TimeoutError, or one of the errors of this module."""
        head = f"{method} {self._path}{path} HTTP/1.1\r\n{self._head}Content-Length: {len(body)}\r\n\r\n"
        late = None if self._timeout is None else time.monotonic() + self._timeout
        async with self._places:
            connection = self._take() or await self._connect()
            try:
                self._watch()
                response = await connection.ask(head.encode() + body, late)
            except BaseException:
                self._drop(connection)
                raise
            if connection.usable:
                connection.idle_since = time.monotonic()
                self._idle.append(connection)
            else:
                self._drop(connection)
            return response

    async def close(self) -> None:
        """Close what is open; requests that are under way break."""
        if self._watching is not None:
            self._watching.cancel()
            self._watching = None
        self._idle.clear()
        for connection in list(self._open):
            self._drop(connection)
        await asyncio.sleep(0)  # the loop closes sockets in its next turn

    def _watch(self) -> None:
        """Look now and then for requests that are late: one timer for all costs less than one for each."""
        if self._timeout is not None and self._watching is None:
            loop = asyncio.get_running_loop()
            self._watching = loop.call_later(min(self._timeout / 20, 0.5), self._look)

    def _look(self) -> None:
        self._watching, now, busy = None, time.monotonic(), False
        for connection in list(self._open):
            if connection.late is not None:
                busy = True
                if connection.late <= now:
                    connection.expire()
        if busy:
            self._watch()

    def _take(self) -> _Connection | None:
        """The connection that was used last; those that have been idle for long are closed."""
        while self._idle:
            connection = self._idle.pop()
            if connection.usable and time.monotonic() - connection.idle_since < _IDLE_SECONDS:
                return connection
            self._drop(connection)
        return None

    def _drop(self, connection: _Connection) -> None:
        self._open.discard(connection)
        connection.close()

    async def _connect(self) -> _Connection:
        if self._tls and self._context is None:
            self._context = ssl.create_default_context()
        loop = asyncio.get_running_loop()
        # Another loop than asyncio's own, such as uvloop's, may not know how to race addresses.
        race: dict[str, Any] = (
            {"happy_eyeballs_delay": 0.25} if self._race and isinstance(loop, asyncio.BaseEventLoop) else {}
        )
        connection: _Connection
        try:
            async with asyncio.timeout(min(CONNECT_SECONDS, self._timeout or CONNECT_SECONDS)):
                _, connection = await loop.create_connection(
                    lambda: _Connection(loop, self._most),
                    self._host,
                    self._port,
                    ssl=self._context,
                    **race,
                )
        except TimeoutError:
            raise Unreachable("no connection in time", late=True) from None
        except ssl.SSLCertVerificationError as fault:
            raise Unreachable(f"its certificate is not good: {fault.verify_message}", lasting=True) from None
        except (OSError, UnicodeError) as fault:
            raise Unreachable(str(fault) or type(fault).__name__) from None
        self._open.add(connection)
        return connection


class _Connection(asyncio.Protocol):
    """One connection, with one request under way at most."""

    def __init__(self, loop: asyncio.AbstractEventLoop, most: int) -> None:
        self._loop, self._most = loop, most
        self._transport: asyncio.Transport | None = None
        self._answer: asyncio.Future[Response] | None = None  # what somebody waits for
        self._reader = _Reader(most)
        self.usable = True  # for another request
        self.late: float | None = None  # when the request that is under way has taken too long
        self.idle_since = 0.0

    async def ask(self, request: bytes, late: float | None) -> Response:
        """Send a request, and wait for its answer until the clock says `late`."""
        assert self._transport is not None
        answer: asyncio.Future[Response] = self._loop.create_future()
        self._answer, self.late = answer, late
        self._reader.begin()
        self._transport.write(request)
        try:
            return await answer
        finally:
            self._answer = self.late = None

    def expire(self) -> None:
        """Give up what is under way, for it is late."""
        self._fail(TimeoutError())

    def close(self) -> None:
        """Close it, whatever is under way; nothing more is sent."""
        self.usable = False
        if self._transport is not None:
            self._transport.abort()

    # -- what the loop calls -------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # other loops have classes of their own

    def data_received(self, data: bytes) -> None:
        if self._answer is None:  # nobody asked, so that it belongs to no answer
            self.close()
            return
        try:
            response = self._reader.feed(data)
        except (Broken, TooLarge) as fault:
            self._fail(fault)
            return
        if response is not None:
            self.usable = self._reader.keeps
            self._done(response)

    def eof_received(self) -> None:
        self.usable = False  # the transport closes itself, and says so below

    def connection_lost(self, fault: Exception | None) -> None:
        self.usable = False
        response = self._reader.end() if fault is None and self._answer else None
        if response is not None:
            self._done(response)
        else:
            self._fail(Broken(str(fault) if fault else "the server closed it before the answer was whole"))

    def _done(self, response: Response) -> None:
        if self._answer is not None and not self._answer.done():
            try:
                self._answer.set_result(_unpacked(response, self._most))
            except (Broken, TooLarge) as fault:
                self._answer.set_exception(fault)

    def _fail(self, fault: Exception) -> None:
        self.usable = False
        if self._answer is not None and not self._answer.done():
            self._answer.set_exception(fault)


class _Reader:
    """One answer, read from the bytes as they come; httptools, which is llhttp, knows where it ends.

    >>> reader = _Reader(100)
    >>> reader.feed(b"HTTP/1.1 200 OK\\r\\nContent-Length: 2\\r\\n\\r\\n{")
    >>> reader.feed(b"}").body, reader.keeps
    (b'{}', True)
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._parser = httptools.HttpResponseParser(self)
        self.begin()

    def begin(self) -> None:
        """Forget the answer before; the parser goes on where that ended."""
        self._headers: dict[str, str] = {}
        self._status = self._head = 0  # the status, once the head is there, and how much came
        self._parts: list[bytes] = []
        self._size = 0
        self._refused: Broken | TooLarge | None = None
        self._whole: Response | None = None
        self.keeps = False  # whether the connection may be used again behind this answer

    def feed(self, data: bytes) -> Response | None:
        """Take what came; the answer, if it is whole now."""
        self._head += len(data)
        if not self._status and self._head > _MOST_HEAD + self._most:
            raise Broken("the head of the answer has no end")
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserError as fault:
            raise self._refused or Broken(f"the answer is no HTTP: {fault}") from None
        if self._refused:
            raise self._refused
        return self._whole

    def end(self) -> Response | None:
        """The connection was closed: that ends an answer which did not say how long it is."""
        headers = self._headers
        if not self._status or "content-length" in headers or "transfer-encoding" in headers:
            return None
        return Response(self._status, headers, b"".join(self._parts))

    # -- what the parser calls; an error raised here would come out as the parser's own ---------------

    def on_message_begin(self) -> None:
        self.keeps = False  # if it is a second answer, for which nobody asked

    def on_header(self, name: bytes, value: bytes) -> None:
        if self._whole is None:
            self._headers[name.decode("latin-1").lower()] = value.decode("latin-1").strip(" \t")

    def on_headers_complete(self) -> None:
        if self._whole is not None:  # nobody asked for a second answer
            return
        status = self._parser.get_status_code()
        if status < 200:
            if status == 101:
                self._refused = Broken("the server wants to speak something else than HTTP")
            self._headers = {}  # another head will follow
            return
        self._status = status
        self._grow(int(self._headers.get("content-length", 0)), 0)

    def on_body(self, part: bytes) -> None:
        if self._whole is None:
            self._parts.append(part)
            self._grow(0, len(part))

    def on_message_complete(self) -> None:
        if self._status and self._whole is None:
            self._whole = Response(self._status, self._headers, b"".join(self._parts))
            self.keeps = self._parser.should_keep_alive()

    def _grow(self, said: int, came: int) -> None:
        self._size += came
        if max(said, self._size) > self._most:
            self._refused = TooLarge()


def _unpacked(response: Response, most: int) -> Response:
    """The answer with its body as it was before the server packed it."""
    packing = response.headers.get("content-encoding", "identity").lower()
    if packing == "identity":
        return response
    if packing not in ("gzip", "x-gzip", "deflate"):
        raise Broken(f"the answer is packed as {packing[:40]!r}, which nobody asked for")
    for window in (47, -15):  # gzip or zlib, by its first bytes; some send deflate without either
        unpacker = zlib.decompressobj(window)
        try:
            body = unpacker.decompress(response.body, most + 1)
        except zlib.error:
            continue
        if len(body) > most:
            raise TooLarge
        if unpacker.eof:
            return response._replace(body=body)
    raise Broken("the answer cannot be unpacked")


def _shown_host(host: str, port: int, scheme: str) -> str:
    """The host as a header has it.

    >>> _shown_host("::1", 8080, "http"), _shown_host("example.org", 443, "https")
    ('[::1]:8080', 'example.org')
    """
    name = f"[{host}]" if ":" in host else host
    return name if port == _PORTS[scheme] else f"{name}:{port}"


def _head_lines(headers: Mapping[str, str]) -> str:
    """Headers as they are sent; a line break in one would begin another.

    >>> _head_lines({"Authorization": "Bearer a\\r\\nHost: b"})
    Traceback (most recent call last):
    ValueError: the header Authorization holds a character that no header may
    """
    for name, value in headers.items():
        if not value.isascii() or not value.isprintable():
            raise ValueError(f"the header {name} holds a character that no header may")
    return "".join(f"{name}: {value}\r\n" for name, value in headers.items())
