"""Batches at a service, stored before they are sent, so that a run can find them again after a crash.

    planned      its questions are fixed; nothing was sent, or nothing that counts
    submitting   it is being sent: whether the service has it is known only when it has answered, or by asking it
    open         the service has it, under the name `remote`
    ended        its answers are kept
    failed       the service refused it as a whole, and computed nothing
    dropped      it never reached the service
    forgotten    the user said so

A question is in one batch at most (`batch_items`), and as long as it is, nobody asks it.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from evenhand.core.errors import InputError
from evenhand.store.book import Book, SharedTables
from evenhand.store.queue import holder_name, is_alive
from evenhand.store.rows import AMONG, to_json

UNSETTLED = ("planned", "submitting", "open")
_COLUMNS = (
    "id, judge, service, token, requests, state, remote, file, newest, rejected, lessons, answered, failed,"
    " created, submitted, ended"
)


class BatchItem(NamedTuple):
    """A question in a batch, and what was done to its prompt on its way."""

    conversation: int
    question: int
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class BatchRow:
    """A batch as the store knows it."""

    id: int
    judge: int
    service: str
    token: str  # at the beginning of the name of each of its questions
    requests: int
    state: str
    remote: str  # the service's name for it
    file: str  # the service's name for the file with its questions, where there is one
    newest: str  # the newest batch that the service had before this one
    rejected: tuple[str, ...]  # batches at the service that were taken for this one, and are not
    lessons: Mapping[str, Any]  # what the service will not take
    answered: int
    failed: int
    created: float
    submitted: float | None
    ended: float | None


class BatchBook(Book):
    """The batches of one store: `store.batches`.

    >>> from evenhand.store import Store
    >>> with Store(":memory:") as store:
    ...     store.batches.rows()
    []
    """

    def __init__(self, shared: SharedTables, worker: str) -> None:
        super().__init__(shared)
        self._worker = worker

    # -- who sees to them ------------------------------------------------------------------------

    def take(self, judge: int) -> None:
        """Take the batches of a judge in hand, unless another live process has them."""
        with self._writing():
            row = self._db.execute("SELECT worker, claimed FROM batch_leases WHERE judge = ?", (judge,)).fetchone()
            if row is not None and is_alive(row[0], row[1], self._worker):
                raise InputError(
                    f"{holder_name(row[0])} sees to the batches of this judge",
                    hint="wait for it, or stop it; then run the same command again",
                )
            self._db.execute(
                "INSERT OR REPLACE INTO batch_leases VALUES (?, ?, ?)", (judge, self._worker, time.time())
            )

    def renew(self, judge: int) -> None:
        """Say that this process is still at work."""
        with self._writing():
            self._db.execute(
                "UPDATE batch_leases SET claimed = ? WHERE judge = ? AND worker = ?",
                (time.time(), judge, self._worker),
            )

    def leave(self, judge: int) -> None:
        """Let other processes take the batches of a judge."""
        with self._writing():
            self._db.execute("DELETE FROM batch_leases WHERE judge = ? AND worker = ?", (judge, self._worker))

    # -- the life of a batch ---------------------------------------------------------------------

    def plan(
        self, judge: int, service: str, token: str, items: Sequence[BatchItem], lessons: Mapping[str, Any]
    ) -> BatchRow:
        """Enter a batch with its questions, in one transaction."""
        with self._writing():
            cursor = self._db.execute(
                "INSERT INTO batches (judge, service, token, requests, state, lessons, created)"
                " VALUES (?, ?, ?, ?, 'planned', ?, ?)",
                (judge, service, token, len(items), json.dumps(dict(lessons)), time.time()),
            )
            number = int(cursor.lastrowid or 0)
            self._db.executemany(
                "INSERT INTO batch_items VALUES (?, ?, ?, ?)",
                [(item.conversation, number, item.question, json.dumps(item.notes)) for item in items],
            )
        return self.row(number)

    def note_file(self, number: int, file: str) -> None:
        """The service has the questions in a file of this name."""
        self._set(number, file=file)

    def note_submitting(self, number: int, newest: str) -> None:
        """From now on the service may have it."""
        self._set(number, state="submitting", newest=newest, submitted=time.time())

    def note_refused(self, number: int) -> None:
        """The service has said that it does not have it."""
        self._set(number, state="planned")

    def note_open(self, number: int, remote: str) -> None:
        """The service has it under this name."""
        self._set(number, state="open", remote=remote)

    def note_mistaken(self, row: BatchRow) -> None:
        """What was taken for this batch is another one."""
        rejected = json.dumps([*row.rejected, row.remote])
        self._set(row.id, state="submitting", remote="", rejected=rejected)

    def settle(self, number: int, conversations: Iterable[int], *, answered: int = 0, failed: int = 0) -> None:
        """These questions have come back: any process may now ask the ones that follow them."""
        with self._writing():
            self._db.executemany(
                "DELETE FROM batch_items WHERE conversation = ? AND batch = ?",
                [(conversation, number) for conversation in conversations],
            )
            self._db.execute(
                "UPDATE batches SET answered = answered + ?, failed = failed + ? WHERE id = ?",
                (answered, failed, number),
            )

    def close(self, number: int, state: str) -> None:
        """It is over; questions that are left in it may be asked again."""
        with self._writing():
            self._db.execute("DELETE FROM batch_items WHERE batch = ?", (number,))
            self._db.execute("UPDATE batches SET state = ?, ended = ? WHERE id = ?", (state, time.time(), number))

    def _set(self, number: int, **values: object) -> None:
        names = ", ".join(f"{name} = ?" for name in values)
        with self._writing():
            self._db.execute(f"UPDATE batches SET {names} WHERE id = ?", (*values.values(), number))

    # -- reading ---------------------------------------------------------------------------------

    def row(self, number: int) -> BatchRow:
        """A batch by its number."""
        return _row(self._db.execute(f"SELECT {_COLUMNS} FROM batches WHERE id = ?", (number,)).fetchone())

    def rows(self, judge: int | None = None, states: Sequence[str] = ()) -> list[BatchRow]:
        """The batches of a judge, or of all, the oldest first; those in these states, where some are named."""
        found = self._db.execute(
            f"SELECT {_COLUMNS} FROM batches WHERE (?1 IS NULL OR judge = ?1)"
            " AND (?2 = '[]' OR state IN (SELECT value FROM json_each(?2))) ORDER BY id",
            (judge, to_json(states)),
        )
        return [_row(row) for row in found]

    def items(self, number: int, conversations: Iterable[int]) -> dict[int, BatchItem]:
        """Those of these conversations that have a question in a batch, with it."""
        rows = self._db.execute(
            f"SELECT conversation, question, notes FROM batch_items WHERE batch = ? AND conversation IN {AMONG}",
            (number, to_json(conversations)),
        )
        return {item.conversation: item for item in map(_item, rows)}

    def left(self, batch: int, most: int) -> list[BatchItem]:
        """Some questions of a batch that have not come back."""
        rows = self._db.execute(
            "SELECT conversation, question, notes FROM batch_items WHERE batch = ? LIMIT ?", (batch, most)
        )
        return [_item(row) for row in rows]

    def lessons(self, judge: int) -> Mapping[str, Any] | None:
        """What the service would not take when the last batch was made; None where there never was one."""
        row = self._db.execute(
            "SELECT lessons FROM batches WHERE judge = ? ORDER BY id DESC LIMIT 1", (judge,)
        ).fetchone()
        return None if row is None else json.loads(row[0])


def _item(columns: Sequence[Any]) -> BatchItem:
    conversation, question, notes = columns
    return BatchItem(conversation, question, tuple(json.loads(notes)))


def _row(columns: Sequence[Any]) -> BatchRow:
    fields = list(columns)
    fields[9], fields[10] = tuple(json.loads(fields[9])), json.loads(fields[10])
    return BatchRow(*fields)
