"""Judgments that wait a moment before they count: one of their answers may turn out to be another prompt's.

In HTTP/1.1 nothing but the order on a connection says to which request a response belongs. Where a server sends one
too many, and late, the next request on that connection takes it for its answer, and the right one comes when nobody
asks any more. So a judgment whose answers came over used connections is handed out a little later than it is
made. If the server is distrusted by then, or has closed such a connection right behind its answer, so that nothing
more can come, the answers are taken back and the pair is asked again.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from evenhand.core.judge import Judgment
from evenhand.engines.provenance import ConnectionRecord
from evenhand.store import Job

# Some answers take longer than the mean one.
_PATIENCE = 1.5
_MOST_SETTLED = 4096


@dataclass(frozen=True, slots=True)
class _Waiting:
    """A judgment, the job that it is of, and when it counts."""

    judgment: Judgment
    job: Job
    records: tuple[ConnectionRecord, ...]
    due: float

    @property
    def is_doubtful(self) -> bool:
        """Whether its answers may be those to other prompts, by what the server has shown until now."""
        return any(record.server.distrusted or record.ended for record in self.records)


class Settling:
    """Hands judgments out once they are sure.

    `put` takes those that are sure; `take_back` gets the jobs whose answers are not, and whether they were held
    back so far, so that the pair can be asked again.
    """

    def __init__(self, put: Callable[[Judgment], None], take_back: Callable[[Job, bool], None]) -> None:
        self._put, self._take_back = put, take_back
        self._waiting: deque[_Waiting] = deque()
        self._settled: deque[_Waiting] = deque(maxlen=_MOST_SETTLED)
        self._timer: asyncio.TimerHandle | None = None

    def add(self, judgment: Judgment, job: Job, records: Sequence[ConnectionRecord]) -> None:
        """A judgment was made; `records` are the used connections over which its answers came."""
        if not records:
            self._put(judgment)
            return
        due = time.monotonic() + _PATIENCE * max(record.rest for record in records)
        self._waiting.append(_Waiting(judgment, job, tuple(records), due))
        self._set_timer()

    async def wait(self) -> None:
        """Wait until none is held back."""
        while self._waiting:
            await asyncio.sleep(max(self._waiting[0].due - time.monotonic(), 0.0))
            self._look()
        self.look_back()

    def look_back(self) -> None:
        """Take back what was handed out already and came over a connection that was shifted, as is known now."""
        doubtful = [each for each in self._settled if any(record.shifted for record in each.records)]
        self._settled.clear()
        for each in doubtful:
            self._take_back(each.job, False)

    def stop(self) -> None:
        """No time is left: take back what is held back and known to be doubtful; the rest is kept."""
        if self._timer is not None:
            self._timer.cancel()
        for each in self._waiting:
            if each.is_doubtful:
                self._take_back(each.job, False)
        self._waiting.clear()
        self.look_back()

    def _look(self) -> None:
        """Hand out what has waited long enough, or take it back."""
        self._timer = None
        while self._waiting and self._waiting[0].due <= time.monotonic():
            each = self._waiting.popleft()
            if each.is_doubtful:
                self._take_back(each.job, True)
            else:
                self._settled.append(each)
                self._put(each.judgment)
        self._set_timer()

    def _set_timer(self) -> None:
        if self._waiting and self._timer is None:
            seconds = max(self._waiting[0].due - time.monotonic(), 0.0)
            self._timer = asyncio.get_running_loop().call_later(seconds, self._look)
