"""HTTP/1.1 over kept connections: as much of it as asking one server for JSON takes, and no more.

    Wire.send       a method, a path, a body -> a Response
    Unreachable     no connection came about
    Broken          one was cut, or what came over it is no HTTP
    TooLarge        more came than anyone wants to read

A request costs a quarter of what it costs in a library for every use of HTTP (docs/performance.md), and a fast
server answers thousands in a second. Left out are redirects, cookies, proxies, sending in parts, sending again.
Where a proxy stands between, `http.py` takes aiohttp. How long a body is, is told by RFC 9112, section 6.3.
"""

from __future__ import annotations

import asyncio
import re
import ssl
import time
import zlib
from collections import deque
from collections.abc import Mapping
from typing import NamedTuple
from urllib.parse import quote, urlsplit

# A connection that has been idle for so long may be one that the server is closing just now.
_IDLE_SECONDS = 15.0
CONNECT_SECONDS = 30.0
_MOST_HEAD = 2**16
_STATUS = re.compile(rb"HTTP/1\.([01]) ([1-5][0-9]{2})(?: |\r\n)")
_CHUNK = re.compile(rb"([0-9A-Fa-f]{1,12})[ \t]*(?:;[^\r\n]*)?\r\n")
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
        self._race = None if re.fullmatch(r"[\d.]+|.*:.*|localhost", self._host) else 0.25
        self._path = quote(parts.path, safe="/%:@!$&'()*+,;=~-._")
        self._head = _head_lines({"Host": _shown_host(self._host, self._port, parts.scheme), **headers})
        self._timeout, self._most = timeout, most
        self._places = asyncio.Semaphore(limit)
        self._open: set[_Connection] = set()
        self._idle: deque[_Connection] = deque()
        self._context: ssl.SSLContext | None = None

    async def send(self, method: str, path: str, body: bytes = b"") -> Response:
        """Send a request and wait for the answer; raises TimeoutError, or one of the errors of this module."""
        head = f"{method} {self._path}{path} HTTP/1.1\r\n{self._head}Content-Length: {len(body)}\r\n\r\n"
        late = None if self._timeout is None else time.monotonic() + self._timeout
        async with self._places:
            connection = self._take() or await self._connect()
            try:
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
        self._idle.clear()
        for connection in list(self._open):
            self._drop(connection)
        await asyncio.sleep(0)  # the loop closes sockets in its next turn

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
        try:
            async with asyncio.timeout(min(CONNECT_SECONDS, self._timeout or CONNECT_SECONDS)):
                _, connection = await loop.create_connection(
                    lambda: _Connection(loop, self._most),
                    self._host,
                    self._port,
                    ssl=self._context,
                    happy_eyeballs_delay=self._race,
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
        self.idle_since = 0.0

    async def ask(self, request: bytes, late: float | None) -> Response:
        """Send a request, and wait for its answer until the clock says `late`."""
        assert self._transport is not None
        answer: asyncio.Future[Response] = self._loop.create_future()
        self._answer = answer
        self._reader = _Reader(self._most)
        left = None if late is None else late - time.monotonic()
        timer = None if left is None else self._loop.call_later(left, self._fail, TimeoutError())
        self._transport.write(request)
        try:
            return await answer
        finally:
            self._answer = None
            if timer:
                timer.cancel()

    def close(self) -> None:
        """Close it, whatever is under way; nothing more is sent."""
        self.usable = False
        if self._transport is not None:
            self._transport.abort()

    # -- what the loop calls -------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

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
    """One answer, read from the bytes as they come.

    >>> reader = _Reader(100)
    >>> reader.feed(b"HTTP/1.1 200 OK\\r\\nContent-Length: 2\\r\\n\\r\\n{")
    >>> reader.feed(b"}").body, reader.keeps
    (b'{}', True)
    >>> head = b"HTTP/1.1 200 OK\\r\\nTransfer-Encoding: chunked\\r\\n\\r\\n"
    >>> _Reader(100).feed(head + b"2\\r\\n{}\\r\\n0\\r\\n\\r\\n").body
    b'{}'
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._left = bytearray()  # not read yet
        self._status = 0  # of the head, once that is there
        self._headers: dict[str, str] = {}
        self._length: int | None = None  # of the body; None, if it ends with the connection or is chunked
        self._chunked = False
        self._chunks: list[bytes] | None = None
        self._size = 0
        self.keeps = False  # whether the connection may be used again behind this answer

    def feed(self, data: bytes) -> Response | None:
        """Take what came; the answer, if it is whole now."""
        self._left += data
        while not self._status:
            if not self._read_head():
                return None
        if self._chunked:
            return self._read_chunks()
        if self._length is None:
            self._refuse_more_than(len(self._left))
            return None
        if len(self._left) < self._length:
            return None
        body = bytes(self._left[: self._length])
        self.keeps = self.keeps and len(self._left) == self._length
        return Response(self._status, self._headers, body)

    def end(self) -> Response | None:
        """The connection was closed: that ends an answer which did not say how long it is."""
        if self._status and not self._chunked and self._length is None:
            return Response(self._status, self._headers, bytes(self._left))
        return None

    def _read_head(self) -> bool:
        """Read a head, if it is whole; one that only says that another will follow (1xx) is passed over."""
        end = self._left.find(b"\r\n\r\n")
        if end < 0:
            if len(self._left) > _MOST_HEAD or not b"HTTP/1.".startswith(bytes(self._left[:7])):
                raise Broken("the answer does not begin as HTTP does")
            return False
        raw = bytes(self._left[: end + 2])
        del self._left[: end + 4]
        line = _STATUS.match(raw)
        if line is None:
            raise Broken("the answer does not begin as HTTP does")
        status = int(line[2])
        if status == 101:
            raise Broken("the server wants to speak something else than HTTP")
        if status >= 200:
            self._headers = _read_headers(raw)
            self._settle(status, old=line[1] == b"0")
        return True

    def _settle(self, status: int, *, old: bool) -> None:
        """How long the body is, and whether the connection outlives it."""
        self._status, headers = status, self._headers
        says = headers.get("connection", "").lower()
        self.keeps = "keep-alive" in says if old else "close" not in says
        if status in (204, 304):
            self._length = 0
        elif "transfer-encoding" in headers:
            self._chunked = headers["transfer-encoding"].lower().rsplit(",", 1)[-1].strip() == "chunked"
            self.keeps = self.keeps and self._chunked
        elif (length := headers.get("content-length")) is not None:
            if not (length.isascii() and length.isdigit() and len(length) < 16):
                raise Broken(f"the answer's length is {length[:40]!r}")
            self._length = int(length)
            self._refuse_more_than(self._length)
        else:
            self.keeps = False

    def _read_chunks(self) -> Response | None:
        """Put the whole chunks that are there behind those before them."""
        chunks = self._chunks = self._chunks if self._chunks is not None else []
        at = 0
        while (found := _CHUNK.match(self._left, at)) is not None:
            size = int(found[1], 16)
            end = found.end() + size
            if not size:
                del self._left[:at]
                return self._read_trailer(found.end() - at - 2)
            self._refuse_more_than(self._size + size)
            if len(self._left) < end + 2:
                break
            if self._left[end : end + 2] != b"\r\n":
                raise Broken("a chunk of the answer does not end where it should")
            chunks.append(bytes(self._left[found.end() : end]))
            self._size += size
            at = end + 2
        else:
            if b"\n" in self._left[at : at + 200] or len(self._left) - at > 200:
                raise Broken("a chunk of the answer does not say how long it is")
        del self._left[:at]
        return None

    def _read_trailer(self, line_end: int) -> Response | None:
        """Behind the last chunk: an empty line, or headers of which nobody needs any, and an empty line."""
        end = self._left.find(b"\r\n\r\n", line_end)
        if end < 0:
            if len(self._left) - line_end > _MOST_HEAD:
                raise Broken("what follows the answer has no end")
            return None
        self.keeps = self.keeps and len(self._left) == end + 4
        return Response(self._status, self._headers, b"".join(self._chunks or ()))

    def _refuse_more_than(self, size: int) -> None:
        if size > self._most:
            raise TooLarge


def _read_headers(raw: bytes) -> dict[str, str]:
    """The headers by their names; two lengths that differ are refused, since nobody knows which is right."""
    headers: dict[str, str] = {}
    for line in raw.decode("latin-1").split("\r\n")[1:-1]:
        name, colon, value = line.partition(":")
        name, value = name.lower(), value.strip(" \t")
        if not colon or (name == "content-length" and headers.get(name, value) != value):
            raise Broken(f"the answer has a header that cannot be: {line[:80]!r}")
        headers[name] = value
    return headers


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
