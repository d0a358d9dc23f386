"""A draft becomes a batch at the service, once.

The order of the steps is what keeps a crash from paying twice:

    1. the batch and its questions are written down as planned
    2. the newest batch that the service has is noted, and that ours is being submitted
    3. it is submitted
    4. its name at the service is written down

After a crash before 2 nothing was sent. After one between 2 and 4 the service is asked for its batches: ours is
newer than the one noted, and has our token (OpenAI) or our number of requests (Anthropic, where the names of the
answers tell for certain). Only where it does not turn up for a while are its questions asked again. A submission
whose connection broke, or that the server answered with a fault of its own, takes the same way.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Awaitable, Callable
from typing import TypeVar

from evenhand.core.errors import EngineError
from evenhand.engines.batches.client import BatchService
from evenhand.engines.batches.service import UnclearSubmission
from evenhand.running.batches.draft import Draft
from evenhand.store import BatchRow, Store

T = TypeVar("T")
Notice = Callable[[str], None]
# How long a batch that was sent may take to turn up in the service's list.
GRACE_SECONDS = 20.0
LONG_AGO = 600.0
LOOK_SECONDS = 2.0
FIRST_DELAY, LONGEST_DELAY = 1.0, 60.0
_TRIES = 8
_MOST_LOST = 5


async def patiently(work: Callable[[], Awaitable[T]], notice: Notice, tries: int | None = _TRIES) -> T:
    """Try until it works, or until it makes no sense to; without a number of tries, for as long as it takes."""
    attempt, told = 0, ""
    while True:
        try:
            return await work()
        except EngineError as error:
            attempt += 1
            if error.fatal or not error.retryable or (tries is not None and attempt >= tries):
                raise
            if error.message != told and attempt > 1:
                notice(f"{error.message}; trying again")
                told = error.message
            await pause(attempt, error)


async def pause(attempt: int, error: EngineError | None = None) -> None:
    """Wait before the next attempt: longer each time, and as long as the service says."""
    delay = min(LONGEST_DELAY, FIRST_DELAY * 2 ** min(attempt - 1, 10)) * random.uniform(0.5, 1.5)
    asked = error.retry_after if error is not None else None
    await asyncio.sleep(delay if asked is None else asked + random.uniform(0, 0.5))


class BatchSender:
    """Sends batches for one judge, and finds those again whose submission was cut short."""

    def __init__(self, service: BatchService, store: Store, judge: int, notice: Notice) -> None:
        self._service, self._store, self._book = service, store, store.batches
        self._judge, self._notice = judge, notice
        self._lost = 0  # submissions that did not arrive, one after the other

    async def recover(self) -> None:
        """Find out whether batches that an earlier run was sending have arrived."""
        for row in self._book.rows(self._judge, ("planned", "submitting")):
            if row.state == "planned":
                self._book.close(row.id, "dropped")
            else:
                await self.find(row)

    async def send(self, draft: Draft) -> BatchRow | None:
        """Send a draft; None where it did not arrive, so that its questions are to be asked again."""
        row = self._book.plan(self._judge, self._service.name, draft.token, draft.items, self._service.lessons)
        self._store.release_conversations(item.conversation for item in draft.items)
        try:
            file = draft.finish()
            uploaded = await patiently(lambda: self._service.upload(file), self._notice)
            self._book.note_file(row.id, uploaded)
            return await self._submit(draft, row.id, uploaded)
        except EngineError:
            if self._book.row(row.id).state == "planned":
                self._book.close(row.id, "dropped")
            raise

    async def _submit(self, draft: Draft, number: int, uploaded: str) -> BatchRow | None:
        for attempt in range(1, _TRIES + 1):
            newest = await patiently(self._service.newest, self._notice)
            self._book.note_submitting(number, newest)
            try:
                remote = await self._service.submit(draft.file, uploaded, draft.token)
            except UnclearSubmission as error:
                return await self._look_for(number, error)
            except EngineError as error:
                self._book.note_refused(number)
                if error.fatal or not error.retryable or attempt == _TRIES:
                    raise
                await pause(attempt, error)
            else:
                self._book.note_open(number, remote)
                self._lost = 0
                return self._book.row(number)
        raise AssertionError("the last attempt returns or raises")

    async def _look_for(self, number: int, error: EngineError) -> BatchRow | None:
        self._notice(f"{error.message}: looking whether the batch has arrived")
        if await self.find(self._book.row(number)):
            self._lost = 0
            return self._book.row(number)
        self._lost += 1
        if self._lost >= _MOST_LOST:
            raise error
        return None

    async def find(self, row: BatchRow) -> bool:
        """Whether the service has a batch that was being submitted; if not, its questions are free again."""
        deadline = time.monotonic() + (GRACE_SECONDS if time.time() - (row.submitted or 0.0) < LONG_AGO else 0.0)
        known = {other.remote for other in self._book.rows() if other.remote} | {*row.rejected}
        while True:
            found = await patiently(
                lambda: self._service.find(row.token, row.file, row.requests, row.newest, known), self._notice
            )
            if found:
                self._book.note_open(row.id, found[0])
                self._notice(f"found the batch {found[0]}, which was sent before: it is not sent again")
                return True
            if time.monotonic() >= deadline:
                self._book.close(row.id, "dropped")
                return False
            await asyncio.sleep(LOOK_SECONDS)
