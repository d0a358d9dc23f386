"""Connections that cannot be held open for nothing: deadlines, and a bound on their number.

A request must be here whole some seconds after its first byte, and somebody must read the answer. With more
connections than the bound, those go first that wait for their client: who sends a request at once gets an answer,
however many others send half of one.
"""

from __future__ import annotations

import asyncio
from typing import Any

import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from evenhand.views import console

REQUEST_SECONDS = 15.0  # for a whole request, and for the first byte on a new connection
READING_SECONDS = 30.0  # for a client that has stopped reading its answer
MOST_CONNECTIONS = 256
BACKLOG = 64  # so many are accepted at once, before any of them is looked at
_LEAST_CONNECTIONS = 8


def most_connections() -> int:
    """How many connections may be open: far fewer than the files that this process may open.

    >>> 8 <= most_connections() <= 256
    True
    """
    try:
        import resource
    except ImportError:  # Windows, where a process may open thousands
        return MOST_CONNECTIONS
    files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if files == resource.RLIM_INFINITY:
        return MOST_CONNECTIONS
    return max(_LEAST_CONNECTIONS, min(MOST_CONNECTIONS, files // 4))


class BoundedConnection(H11Protocol):
    """One connection, which ends when its client keeps us waiting."""

    most = MOST_CONNECTIONS
    request_seconds = REQUEST_SECONDS
    reading_seconds = READING_SECONDS

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._request: asyncio.TimerHandle | None = None
        self._reading: asyncio.TimerHandle | None = None
        self._since = 0.0

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Begin to wait for a request; where there are too many, somebody has to go."""
        super().connection_made(transport)
        self._since = self.loop.time()
        self._watch()
        if len(self.connections) > self.most:
            self._make_room()

    def data_received(self, data: bytes) -> None:
        """Take a part of a request."""
        super().data_received(data)
        self._watch()

    def pause_writing(self) -> None:
        """The client does not read."""
        super().pause_writing()
        if self._reading is None:
            self._reading = self.loop.call_later(self.reading_seconds, self.transport.abort)

    def resume_writing(self) -> None:
        """It reads again."""
        super().resume_writing()
        self._reading = _stopped(self._reading)

    def connection_lost(self, exc: Exception | None) -> None:
        """Wait for nothing more."""
        self._request, self._reading = _stopped(self._request), _stopped(self._reading)
        super().connection_lost(exc)

    @property
    def waits(self) -> bool:
        """Whether it is the client's turn: it has not sent a whole request, or does not read the answer."""
        cycle = self.cycle
        return cycle is None or cycle.response_complete or cycle.more_body or self._reading is not None

    def _watch(self) -> None:
        """Set the deadline for a request that is not here whole; take it away from one that is."""
        cycle = self.cycle
        if cycle is not None and not cycle.response_complete and not cycle.more_body:
            self._request = _stopped(self._request)
        elif self._request is None:
            self._request = self.loop.call_later(self.request_seconds, self.transport.abort)

    def _make_room(self) -> None:
        """End the oldest connection that waits for its client, other than this one; this one if there is none."""
        others = [each for each in self.connections if isinstance(each, BoundedConnection) and each is not self]
        waiting = [each for each in others if each.waits and not each.transport.is_closing()]
        min(waiting, key=lambda each: each._since, default=self).transport.abort()


def _stopped(timer: asyncio.TimerHandle | None) -> asyncio.TimerHandle | None:
    """No timer any more."""
    if timer is not None:
        timer.cancel()
    return None


def make_server(app: Any, **options: Any) -> uvicorn.Server:
    """A server for the pages, whose connections are bounded."""
    BoundedConnection.most = most_connections()
    settings = {
        "log_level": "error",  # a line for every bad request would let anybody fill the terminal
        "access_log": False,
        "server_header": False,
        "proxy_headers": False,
        "timeout_graceful_shutdown": 2,
        "backlog": BACKLOG,
        "loop": "asyncio",
        "ws": "none",
        "http": BoundedConnection,
        **options,
    }
    return _QuietServer(uvicorn.Config(app, **settings))


class _QuietServer(uvicorn.Server):
    """Says in a line, once, that it cannot take connections, where asyncio would print tracebacks without end."""

    async def startup(self, sockets: Any = None) -> None:
        """Listen."""
        asyncio.get_running_loop().set_exception_handler(self._on_fault)
        self._told = False
        await super().startup(sockets)

    def _on_fault(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        if not isinstance(context.get("exception"), OSError):
            loop.default_exception_handler(context)
        elif not self._told:
            self._told = True
            console.err.print(f"note: a connection failed: {context['exception']}", markup=False)
