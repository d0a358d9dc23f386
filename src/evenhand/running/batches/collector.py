"""A batch that has ended: its answers become verdicts in the store as in any run, its faults become failures."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path

from evenhand.core.engine import Answer
from evenhand.core.errors import EngineError
from evenhand.core.judge import Setup
from evenhand.core.verdict import read_answer
from evenhand.engines.batches.client import BatchService
from evenhand.engines.batches.service import CANCELLED, EXPIRED, BatchReply, BatchStatus, ended_by
from evenhand.running.batches.draft import read_name
from evenhand.store import BatchItem, BatchRow, Entry, Store

# How often a question is put into a batch before its failure stands.
MOST_TRIES = 3
_AT_ONCE = 500  # replies in one transaction


class BatchCollector:
    """Takes in what comes back, and remembers what is not to be asked again in this run."""

    def __init__(
        self, service: BatchService, store: Store, setup: Setup, on_answer: Callable[[Answer], None]
    ) -> None:
        self._service, self._store, self._book, self._setup = service, store, store.batches, setup
        self._on_answer = on_answer
        self._tries: dict[int, int] = {}  # of conversations that have failed
        self.given_up: set[int] = set()
        self.fatal: EngineError | None = None
        self.cancelled = 0

    async def collect(self, row: BatchRow, status: BatchStatus) -> bool:
        """Take in a batch; whether it was ours: one that was found again may be another's."""
        seen = ours = 0
        with tempfile.TemporaryDirectory(prefix="evenhand-batch-") as folder:
            replies: list[BatchReply] = []
            async for reply in self._service.replies(status, Path(folder)):
                seen, ours = seen + 1, ours + (read_name(row.token, reply.name) is not None)
                replies.append(reply)
                if len(replies) >= _AT_ONCE:
                    self._keep(row, replies)
                    replies.clear()
                    await asyncio.sleep(0)  # where an interrupt is noticed
            self._keep(row, replies)
        if seen and not ours:
            self._book.note_mistaken(row)
            return False
        self._keep_missing(row, status)
        self._book.close(row.id, "ended")
        return True

    def give_up(self, conversation: int, question: int, error: EngineError) -> None:
        """A question that failed and is not to be asked again in this run."""
        self._store.fail(conversation, question, error)
        self.given_up.add(conversation)

    def _keep(self, row: BatchRow, replies: Iterable[BatchReply]) -> None:
        """Write some replies; those that were written before a crash are known by their missing item."""
        named = {place: reply for reply in replies if (place := read_name(row.token, reply.name)) is not None}
        items = self._book.items(row.id, [conversation for conversation, _ in named])
        answered: list[tuple[BatchItem, Answer]] = []
        failed: list[tuple[BatchItem, EngineError]] = []
        for item in items.values():
            reply = named.get((item.conversation, item.question))
            if reply is not None and reply.answer is not None:
                answered.append((item, replace(reply.answer, notes=item.notes)))
            elif reply is not None and reply.error is not None:
                failed.append((item, reply.error))
        self._record(answered)
        self._fail(failed)
        done = [item.conversation for item, _ in (*answered, *failed)]
        self._book.settle(row.id, done, answered=len(answered), failed=len(failed))

    def _record(self, answered: list[tuple[BatchItem, Answer]]) -> None:
        pairs = self._store.pairs_of([item.conversation for item, _ in answered])
        entries = []
        for item, answer in answered:
            question = self._setup.protocol.questions[item.question]
            shown = self._setup.protocol.shown_texts(pairs[item.conversation])
            verdicts = read_answer(answer, question.dimensions, shown, question.form)
            entries.append(Entry(item.conversation, item.question, answer, verdicts))
            self._on_answer(answer)
        if entries:
            self._store.record_all(entries)

    def _fail(self, failed: list[tuple[BatchItem, EngineError]]) -> None:
        for item, error in failed:
            tries = self._tries[item.conversation] = self._tries.get(item.conversation, 0) + 1
            if not error.retryable or tries >= MOST_TRIES:
                self.given_up.add(item.conversation)
            if error.fatal:
                self.fatal = self.fatal or error
            self.cancelled += error.reason == CANCELLED
        if failed:
            self._store.fail_all([(item.conversation, item.question, error) for item, error in failed])

    def _keep_missing(self, row: BatchRow, status: BatchStatus) -> None:
        """Questions that nothing came back for."""
        reasons = {"expired": EXPIRED, "cancelled": CANCELLED}
        error = ended_by(reasons.get(status.word, ""), f"the batch {status.word} without an answer to this request")
        if status.word not in reasons:
            error = EngineError("the service sent nothing back for this request", reason="missing", retryable=True)
        while left := self._book.left(row.id, _AT_ONCE):
            self._fail([(item, error) for item in left])
            self._book.settle(row.id, [item.conversation for item in left], failed=len(left))
