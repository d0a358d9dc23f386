"""Over which connections the answers to a pair came, so that they can be taken back where one is not trusted.

noting      what comes within it over connections that were used before is noted
note        a transport says that something came over such a connection
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass


@dataclass(slots=True)
class ServerRecord:
    """One server; it is distrusted once it has sent something that nobody asked for."""

    distrusted: bool = False


@dataclass(slots=True)
class ConnectionRecord:
    """One connection to it. `shifted` once something came over it that nobody asked for.

    `ended` once it was closed right behind an answer: no other can come and show whether it was the right one.
    `rest` is how long a response takes at present: the answer that a stray one stands for comes within that time.
    """

    server: ServerRecord
    shifted: bool = False
    ended: bool = False
    rest: float = 0.0


_NOTED: ContextVar[list[ConnectionRecord] | None] = ContextVar("noted", default=None)


@contextmanager
def noting() -> Iterator[list[ConnectionRecord]]:
    """Note the connections of all that is asked in here, by this task and those it starts.

    >>> with noting() as found:
    ...     note(ConnectionRecord(ServerRecord()))
    >>> len(found)
    1
    """
    found: list[ConnectionRecord] = []
    token = _NOTED.set(found)
    try:
        yield found
    finally:
        _NOTED.reset(token)


def note(record: ConnectionRecord) -> None:
    """Something came over a connection that had been used before; nobody needs to want to know."""
    noted = _NOTED.get()
    if noted is not None:
        noted.append(record)
