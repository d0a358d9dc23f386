"""A clock that stands still while this process does: on a busy machine, no two moments of a test fall together.

Server and client of a test often share an event loop, and their waits of milliseconds an order: first the server
writes, then the client looks. A process that is not let run for half a second finds all these waits over at once.
"""

from __future__ import annotations

import asyncio
import selectors
import time
from collections.abc import Coroutine
from typing import Any, TypeVar
from unittest import mock

T = TypeVar("T")
_STEP = 0.002  # seconds; no turn of the loop counts for more


class _Clock:
    """Goes on with `time.monotonic`, a little at each look."""

    def __init__(self) -> None:
        self._real = time.monotonic
        self._seen = self._now = self._real()

    def __call__(self) -> float:
        seen = self._real()
        self._now += min(seen - self._seen, _STEP)
        self._seen = seen
        return self._now


class _Selector(selectors.DefaultSelector):
    """Never waits longer than one step, so that the clock is looked at in time."""

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        return super().select(_STEP if timeout is None else min(timeout, _STEP))


def run(work: Coroutine[Any, Any, T]) -> T:
    """As asyncio.run, by the patient clock."""
    clock = _Clock()
    with (
        mock.patch("time.monotonic", clock),
        mock.patch("aiohttp.connector.monotonic", clock),  # it has taken the name for its own
        asyncio.Runner(loop_factory=lambda: asyncio.SelectorEventLoop(_Selector())) as runner,
    ):
        return runner.run(work)
