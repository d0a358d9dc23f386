"""Connections that cannot be held open for nothing: deadlines, and a bound on their number.

A request must have arrived some seconds after its first byte, and its answer must be read to the end. With more
connections than the bound, those go first that wait for their client, then those that were answered most often:
who sends a request at once gets an answer, however many others send half of one, or one after another.
"""

from __future__ import annotations

import asyncio
from typing import Any

import h11
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
        self._rest: asyncio.TimerHandle | None = None
        self._since = 0.0
        self._answered = 0

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Begin to wait for a request; where there are too many connections, one is closed."""
        super().connection_made(transport)
        self._since = self.loop.time()
        self._watch()
        if len(self.connections) > self.most:
            self._make_room()

    def handle_events(self) -> None:
        """Take a part of a request: one that has just come, or that came behind the request before it."""
        super().handle_events()
        self._watch()

    def send_400_response(self, msg: str) -> None:
        """Refuse what is no HTTP; where an answer has begun, another has no place."""
        answered = self.cycle is None or self.cycle.response_complete
        if answered and self.conn.our_state in (h11.IDLE, h11.SEND_RESPONSE):
            super().send_400_response(msg)
            self._expect_reading()
        else:
            self.transport.abort()

    def on_response_complete(self) -> None:
        """An answer is written, if not yet read."""
        self._answered += 1
        super().on_response_complete()
        self._expect_reading()

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
        self._rest = _stopped(self._rest)
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

    def _expect_reading(self) -> None:
        """Set the deadline for the rest of a written answer: too little to pause at, and kept even when closing."""
        self._rest = _stopped(self._rest)
        if self._unread:
            self._rest = self.loop.call_later(self.reading_seconds, self._end_unread, self.cycle)

    def _end_unread(self, cycle: Any) -> None:
        if self._unread and self.cycle is cycle:  # another answer has a deadline of its own
            self.transport.abort()

    @property
    def _unread(self) -> int:
        return self.transport.get_write_buffer_size()

    def _make_room(self) -> None:
        """End the oldest connection that waits for its client; else the one answered most often, or this one."""
        others = [each for each in self.connections if isinstance(each, BoundedConnection) and each is not self]
        # One that closes goes by itself, unless there is something that its client should read first.
        others = [each for each in others if each._unread or not each.transport.is_closing()]
        waiting = [each for each in others if each.waits]
        busiest = max((self, *others), key=lambda each: each._answered)
        min(waiting, key=lambda each: each._since, default=busiest).transport.abort()


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
