"""The way to one server: aiohttp with a few connections, limits on all that may come, and an eye on strays.

    Transport.send   a method, a path, a body -> a Response
    Unreachable      no connection came about
    Broken           one was cut, or what came over it is no HTTP, or may belong to another request
    TooLarge         more came than anyone wants to read

In HTTP/1.1 nothing but the order on a connection says to which request a response belongs. A server that sends one
response too many shifts all that follow, and every prompt would be stored with the answer to another. So a
connection rests before it is used again, for as long as an answer takes: what arrives meanwhile was not asked for.
After the first such stray no connection is used twice, and what is under way on one that was is asked again. A
stray that is later than that is taken for the next answer, and found out when the right one comes: so whatever came
over a used connection is noted, and a run takes it back where the server is distrusted soon after. Where a used
connection ends with an answer, the right one would never come: that answer is asked for again, and from then on no
connection is used so often. One that ends with its first answer, or after a while at rest, is as good as any.
"""

from __future__ import annotations

import asyncio
import io
import ssl
import sys
import time
import zlib
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, NamedTuple

import aiohttp
from aiohttp.client_proto import ResponseHandler
from aiohttp.http_exceptions import HttpProcessingError
from yarl import URL

from evenhand.engines.provenance import ConnectionRecord, ServerRecord, note
from evenhand.engines.unreached import Broken, TooLarge, Unreachable

CONNECT_SECONDS = 30.0
# A connection that has been idle for so long may be one that the server is closing just now.
_IDLE_SECONDS = 15.0
# The least rest of a connection between two requests; with so many at rest, the first has rested enough.
_REST_SECONDS = 0.1
_MOST_RESTING = 128
# A connection that is closed so soon ended with its last answer; a server waits longer for another request.
_END_SECONDS = 1.0
_MOST_HEAD = 2**18
# aiohttp warns where larger bodies come as bytes; a file it sends in parts.
_LARGE = 2**20


class Response(NamedTuple):
    """An answer, whole."""

    status: int
    headers: Mapping[str, str]
    body: bytes


class Transport:
    """Connections to one server, of which at most `limit` are in use at once.

    `timeout` is for one request, from its first byte to the last one of its answer; `most` is the largest body
    that is taken, packed or not. `on_stray` is called once, when the server sends something that nobody asked for;
    with `once_only` no connection is used twice from the beginning.
    """

    def __init__(
        self,
        url: str,
        headers: Mapping[str, str],
        *,
        timeout: float | None,
        limit: int,
        most: int,
        proxy: str | None = None,
        once_only: bool = False,
        on_stray: Callable[[], None] = lambda: None,
    ) -> None:
        _check(headers)
        self._url, self._most, self._proxy = url, most, proxy
        self._urls: dict[str, URL] = {}
        self._ssl = ssl.create_default_context() if url.startswith("https:") else True
        self._connector = _Connector(
            limit=limit, most=most, timeout=timeout, once_only=once_only, on_stray=on_stray
        )
        self._session = aiohttp.ClientSession(
            headers=headers,
            # One timer for all requests costs less than one for each: see _Connector.
            timeout=aiohttp.ClientTimeout(
                total=None, sock_connect=min(CONNECT_SECONDS, timeout or CONNECT_SECONDS)
            ),
            connector=self._connector,
            cookie_jar=aiohttp.DummyCookieJar(),  # nobody logs in here, and a jar is searched for every request
            response_class=_Answer,
            auto_decompress=False,  # done below, within bounds
        )

    def __del__(self) -> None:
        if hasattr(self, "_connector"):
            self._connector._close()  # nobody did; aiohttp would complain of it, long after

    async def send(self, method: str, path: str, body: bytes = b"") -> Response:
        """Send a request and wait for the answer; raises TimeoutError, or one of the errors of this module."""
        try:
            return await self._send(method, path, body)
        except aiohttp.ConnectionTimeoutError:
            raise Unreachable("no connection in time", late=True) from None
        except TimeoutError:
            raise TimeoutError from None
        except aiohttp.InvalidURL as fault:
            raise Unreachable(f"{fault.url} is no address", lasting=True) from None
        except aiohttp.ClientConnectorCertificateError as fault:
            raise Unreachable(f"its certificate is not good: {fault.certificate_error}", lasting=True) from None
        except (aiohttp.ClientProxyConnectionError, aiohttp.ClientHttpProxyError) as fault:
            raise Unreachable(f"the proxy does not let us through: {_said(fault)}") from None
        except aiohttp.ClientConnectorError as fault:
            raise Unreachable(str(fault.os_error) or type(fault.os_error).__name__) from None
        except aiohttp.ClientError as fault:
            raise Broken(_said(fault)) from None

    async def close(self) -> None:
        """Close what is open; requests that are under way break."""
        self._connector.forget()
        await self._session.close()

    async def _send(self, method: str, path: str, body: bytes) -> Response:
        began = time.monotonic()
        async with self._session.request(
            method,
            self._address(path),
            data=io.BytesIO(body) if len(body) > _LARGE else body or None,
            proxy=self._proxy,
            ssl=self._ssl,
            allow_redirects=False,
        ) as response:
            content = await self._read(response)
        if response.headers.get("Transfer-Encoding", "chunked").lower() != "chunked":
            raise Broken("the answer is sent in a way that was not asked for")
        assert isinstance(response, _Answer)
        if response.line.uses > 1 and self._connector.once_only:
            raise Broken("the server sent something that was not asked for: this may be another's answer")
        if response.line.record.ended:
            raise Broken("it ended with an answer that may be another's")
        self._connector.took(time.monotonic() - began)
        if response.line.uses > 1:
            response.line.record.rest = self._connector.rest
            note(response.line.record)
        return Response(response.status, response.headers, unpacked(content, response.headers, self._most))

    def _address(self, path: str) -> URL:
        known = self._urls.get(path)
        if known is None:
            known = self._urls[path] = URL(self._url + path)
        return known

    async def _read(self, response: aiohttp.ClientResponse) -> bytes:
        length = response.content_length
        if length is not None and length <= self._most:
            return await response.content.read()  # the parser lets no more through than was announced
        if length is not None:
            raise TooLarge
        content = bytearray()
        async for chunk in response.content.iter_any():
            content += chunk
            if len(content) > self._most:
                raise TooLarge
        return bytes(content)


class _Answer(aiohttp.ClientResponse):
    """A response that remembers over which connection it came."""

    line: _Line

    async def start(self, connection: Any) -> aiohttp.ClientResponse:
        self.line = connection.protocol
        return await super().start(connection)


class _Line(ResponseHandler):
    """One connection, with one request under way at most; whatever else comes is a stray."""

    def __init__(self, loop: Any, connector: _Connector) -> None:
        super().__init__(loop)
        self._connector = connector
        self._came = self._answers = 0  # bytes and whole heads, since the last request
        self._head: int | None = None  # the length of the head, if it came in one piece
        self._whole: int | None = None  # the length of the answer with its head, if it is known
        self._last, self._chunked = b"", False
        self._is_answered = False  # with something else than an error
        self._since = 0.0  # when the last answer was whole
        self.uses = 0
        self.record = ConnectionRecord(connector.record)
        self.asked = False
        self.late: float | None = None  # when the request that is under way has taken too long

    def set_response_params(self, **params: Any) -> None:
        """A request is about to be sent."""
        self._came = self._answers = 0
        self._is_answered = False
        self._whole = None
        self.uses += 1
        self.asked = True
        self._connector.watch(self)
        super().set_response_params(**params)

    def expire(self) -> None:
        """Give up what is under way, for it is late."""
        self._give_up(aiohttp.SocketTimeoutError("too late"))

    def connection_lost(self, exc: BaseException | None) -> None:
        """Wake whoever reads the body: aiohttp itself reports a fault behind the head to nobody."""
        self._connector.busy.discard(self)
        closed_by_server = self.transport is not None
        if closed_by_server and (self.asked or time.monotonic() - self._since < _END_SECONDS):
            self._end()
        body, fault = self._payload, self.exception()
        super().connection_lost(exc)
        if body is not None and not body.is_eof() and body.exception() is None:
            said = (
                f"the answer is no HTTP: {fault.message}" if isinstance(fault, HttpProcessingError) else "cut off"
            )
            body.set_exception(aiohttp.ClientPayloadError(said))

    def data_received(self, data: bytes) -> None:
        """Take what came, if somebody asked and it is not too much."""
        if not data:  # aiohttp's own way to go on with what was kept
            super().data_received(data)
            return
        if not self._came:
            end = data.find(b"\r\n\r\n")
            self._head = end + 4 if end >= 0 else None
        self._came += len(data)
        self._last = data[-4:] if len(data) >= 4 else (self._last + data)[-4:]
        if not self.asked:
            self._stray()
        elif self._came > self._connector.most + _MOST_HEAD or (not self._answers and self._came > _MOST_HEAD):
            self._give_up(aiohttp.ClientPayloadError("the head or the tail of the answer has no end"))
        else:
            super().data_received(data)
            if not self.asked:  # the answer was whole, and the connection given back
                self.rest()

    def feed_data(self, data: Any, size: int = 0) -> None:
        """A head is whole, and its body follows; only one of them can be the answer."""
        message = data[0]
        if 100 <= message.code < 200 and message.code != 101:  # another head will follow
            self._head = None
        else:
            self._answers += 1
            self._is_answered = message.code < 300
            self._chunked = message.chunked
            length = message.headers.get("Content-Length")
            if length is not None and self._head is not None:
                self._whole = self._head + int(length)
        if self._answers > 1:
            self._stray()
        else:
            if message.should_close:
                self._end()
            super().feed_data(data, size)

    def rest(self) -> None:
        """The answer is there; what stands behind it was not asked for."""
        self.asked, self._since = False, time.monotonic()
        if not self.should_close and not self._ended():
            self._stray()

    def _ended(self) -> bool:
        """Whether an answer ends where the last bytes do, as far as that is known."""
        if self._whole is not None:
            return self._came == self._whole
        return not self._chunked or self._last == b"\r\n\r\n"

    def set_exception(self, exc: Any, *cause: Any) -> None:
        """What cannot be read may be the rest of something that nobody asked for."""
        if isinstance(exc, HttpProcessingError) and self.uses > 1:
            self._stray()
        super().set_exception(exc, *cause)

    def _give_up(self, fault: Exception) -> None:
        """Fail the request that waits; the connection is closed when it is released."""
        self.set_exception(fault)
        if self._payload is not None:
            self._payload.set_exception(fault)

    def _end(self) -> None:
        """The connection ends with an answer; had it been used before, the answer may be another's."""
        if self._is_answered and self.uses > 1:
            self.record.ended = True
            self._connector.use_less(self.uses - 1)

    def _stray(self) -> None:
        self.record.shifted = True
        self.force_close()
        if not self.asked:
            self.abort()
        self._connector.distrust()


class _Connector(aiohttp.TCPConnector):
    """Gives out connections that have rested, and none twice once the server is distrusted."""

    def __init__(
        self, *, limit: int, most: int, timeout: float | None, once_only: bool, on_stray: Callable[[], None]
    ) -> None:
        super().__init__(limit=limit, ttl_dns_cache=300, keepalive_timeout=_IDLE_SECONDS)
        self._factory: Any = partial(_Line, self._loop, self)
        self._latency = 0.0
        self._on_stray = on_stray
        self.most, self.once_only = most, once_only
        self.most_uses = sys.maxsize  # of one connection, by where the server has ended others
        self.record = ServerRecord(once_only)
        self._timeout = timeout
        self._watching: asyncio.TimerHandle | None = None
        self.busy: set[_Line] = set()

    def watch(self, line: _Line) -> None:
        """A request begins, which may be late one day."""
        if self._timeout is not None:
            line.late = time.monotonic() + self._timeout
            self.busy.add(line)
            if self._watching is None:
                self._watching = self._loop.call_later(min(self._timeout / 20, 0.5), self._look)

    def _look(self) -> None:
        """Give up what is late, and look again as long as anything is under way."""
        self._watching, now = None, time.monotonic()
        for line in [line for line in self.busy if line.late is not None and line.late <= now]:
            self.busy.discard(line)
            line.expire()
        if self.busy and self._timeout is not None:
            self._watching = self._loop.call_later(min(self._timeout / 20, 0.5), self._look)

    def forget(self) -> None:
        """Look no more."""
        self.busy.clear()
        if self._watching is not None:
            self._watching.cancel()
            self._watching = None

    def took(self, seconds: float) -> None:
        """An answer took so long: the mean of the last few is how long a connection rests."""
        self._latency = seconds if not self._latency else 0.9 * self._latency + 0.1 * seconds

    def distrust(self) -> None:
        """The server has sent what nobody asked for."""
        if not self.once_only:
            self.once_only = self.record.distrusted = True
            self.use_less(1)
            self._on_stray()

    def use_less(self, uses: int) -> None:
        """Use no connection more often than this; those at rest that have been are closed."""
        self.most_uses = min(self.most_uses, uses)
        for waiting in self._conns.values():
            for line, _ in waiting:
                if isinstance(line, _Line) and line.uses >= self.most_uses:
                    line.close()

    async def _get(self, key: Any, traces: Any) -> Any:
        waiting = self._conns.get(key)  # the one that has rested longest is the first
        if self.once_only or (waiting and not self._is_rested(waiting[0][1], len(waiting))):
            return None
        return await super()._get(key, traces)

    @property
    def rest(self) -> float:
        """How long a connection rests: as long as an answer takes, within bounds."""
        return min(max(self._latency, _REST_SECONDS), _IDLE_SECONDS / 2)

    def _is_rested(self, since: float, waiting: int) -> bool:
        return waiting > _MOST_RESTING or time.monotonic() - since >= self.rest

    def _release(self, key: Any, protocol: Any, *, should_close: bool = False) -> None:
        self.busy.discard(protocol)
        is_last = should_close or self.once_only
        if isinstance(protocol, _Line):
            protocol.rest()
            is_last = is_last or protocol.uses >= self.most_uses
        super()._release(key, protocol, should_close=is_last)


def unpacked(body: bytes, headers: Mapping[str, str], most: int) -> bytes:
    """The body as it was before the server packed it.

    >>> unpacked(zlib.compress(b"{}"), {"Content-Encoding": "deflate"}, 10)
    b'{}'
    """
    packing = headers.get("Content-Encoding", "identity").lower()
    if packing == "identity" or not body:
        return body
    if packing not in ("gzip", "x-gzip", "deflate"):
        raise Broken(f"the answer is packed as {packing[:40]!r}, which was not asked for")
    for window in (47, -15):  # gzip or zlib, by its first bytes; some send deflate without either
        unpacker = zlib.decompressobj(window)
        try:
            content = unpacker.decompress(body, most + 1)
        except zlib.error:
            continue
        if len(content) > most:
            raise TooLarge
        if unpacker.eof:
            return content
    raise Broken("the answer cannot be unpacked")


def _check(headers: Mapping[str, str]) -> None:
    """Refuse headers that cannot be sent: a line break in one would begin another.

    >>> _check({"Authorization": "Bearer a\\r\\nHost: b"})
    Traceback (most recent call last):
    ValueError: the header Authorization holds a character that no header may
    """
    for name, value in headers.items():
        if not value.isascii() or not value.isprintable():
            raise ValueError(f"the header {name} holds a character that no header may")


def _said(fault: Exception) -> str:
    """What an error says, without the address that aiohttp puts behind it: a proxy's may hold a password."""
    if isinstance(fault, aiohttp.ClientHttpProxyError):
        return f"{fault.status} {fault.message}"
    if isinstance(fault, aiohttp.ClientResponseError):
        return f"the answer is no HTTP: {fault.message}"
    if isinstance(fault, aiohttp.ClientConnectorError):
        return str(fault.os_error) or type(fault.os_error).__name__
    if isinstance(fault, aiohttp.ServerDisconnectedError):  # which holds as much of a head as came
        return "the server ended it without an answer"
    return str(fault) or type(fault).__name__
