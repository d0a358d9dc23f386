"""The judges of a database: what each has done, and how one is removed with all that is its own."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any

from evenhand.core.errors import InputError
from evenhand.store.book import Book

# A run that has not ended after so long was killed.
_LONGEST_RUN = 86_400.0
_OF_JUDGE = "(SELECT id FROM conversations WHERE judge = ?)"


@dataclass(frozen=True, slots=True)
class JudgeEntry:
    """One judge, and what it has done here."""

    id: int
    model: str
    protocol: str
    fingerprint: str
    pairs: int
    invalid: int  # pairs with a verdict that is missing
    first: float  # when it was entered
    last: float | None  # when its last run ended

    def plain(self) -> dict[str, Any]:
        """The entry as plain data."""
        names = ("model", "protocol", "fingerprint", "pairs", "invalid", "first", "last")
        return {name: getattr(self, name) for name in names}


class JudgeBook(Book):
    """The judges of one store: `store.judge_book`.

    >>> from evenhand.store import Store
    >>> with Store(":memory:") as store:
    ...     store.judge_book.entries()
    []
    """

    def entries(self) -> list[JudgeEntry]:
        """Every judge, the newest last."""
        rows = self._rows(
            "SELECT id, model, protocol, fingerprint, (SELECT count(DISTINCT pair) FROM queue WHERE judge = j.id),"
            " (SELECT count(DISTINCT pair) FROM outcomes WHERE judge = j.id AND p_1 IS NULL),"
            " created, (SELECT max(ended) FROM runs r WHERE r.judge = j.id) FROM judges j ORDER BY id"
        )
        return [JudgeEntry(*row) for row in rows]

    def find(self, fingerprint: str) -> int | None:
        """The number of a judge that is there."""
        row = self._row("SELECT id FROM judges WHERE fingerprint = ?", fingerprint)
        return None if row is None else int(row[0])

    def last_pair(self) -> int:
        """The number of the newest pair."""
        return int(self._row("SELECT coalesce(max(id), 0) FROM pairs")[0])

    def remove(self, judge: int) -> None:
        """Remove a judge and all that is its own, in one transaction; pairs and people's labels stay.

        Not while a batch of its questions is under way: it will be charged.
        """
        with self._writing():
            under_way = "SELECT 1 FROM batches WHERE judge = ? AND state IN ('submitting', 'open') LIMIT 1"
            if self._db.execute(under_way, (judge,)).fetchone() is not None:
                raise InputError(
                    "a batch of this judge is under way, and will be charged",
                    hint="evenhand judge … --batch takes it in; evenhand batches cancel, or forget, gives it up",
                )
            self._remove(judge)

    def forget_silent(self, judge: int, run: int, last_pair: int) -> bool:
        """Remove a judge that has never answered, and the pairs after `last_pair` that nobody else knows.

        Not while another run of the same judge is under way.
        """
        with self._writing():
            if self.has_answered(judge) or self._runs_elsewhere(judge, run):
                return False
            self._remove_pairs(judge, last_pair)
            self._remove(judge)
        return True

    def has_answered(self, judge: int) -> bool:
        """Whether anything is kept that it said."""
        found = "SELECT 1 FROM conversations h JOIN answers a ON a.conversation = h.id WHERE h.judge = ? LIMIT 1"
        return self._db.execute(found, (judge,)).fetchone() is not None

    def _runs_elsewhere(self, judge: int, run: int) -> bool:
        since = time.time() - _LONGEST_RUN
        others = "SELECT 1 FROM runs WHERE judge = ? AND id != ? AND ended IS NULL AND started > ? LIMIT 1"
        return self._db.execute(others, (judge, run, since)).fetchone() is not None

    def _remove(self, judge: int) -> None:
        shared = self._db.execute(
            "SELECT DISTINCT own.pair FROM queue own JOIN queue other ON other.pair = own.pair"
            " WHERE own.judge = ? AND other.judge != own.judge",
            (judge,),
        ).fetchall()
        for table in ("claims", "answers", "verdicts", "failures", "batch_items"):
            self._db.execute(f"DELETE FROM {table} WHERE conversation IN {_OF_JUDGE}", (judge,))
        own = ("queue", "conversations", "outcomes", "packed", "runs", "finished", "calibrations", "gates")
        for table in (*own, "batches", "batch_leases"):
            self._db.execute(f"DELETE FROM {table} WHERE judge = ?", (judge,))
        self._db.execute("DELETE FROM judges WHERE id = ?", (judge,))
        # Whether judges differ on a pair is written beside the outcomes of the others.
        self._outcomes.mark_splits([pair for (pair,) in shared])

    def _remove_pairs(self, judge: int, last_pair: int) -> None:
        """Pairs that came with this judge alone; the queue lets go of them first."""
        alone = (
            "SELECT p.id FROM pairs p JOIN queue d ON d.pair = p.id WHERE d.judge = ? AND p.id > ?"
            " AND NOT EXISTS (SELECT 1 FROM queue o WHERE o.pair = p.id AND o.judge != d.judge)"
            " AND NOT EXISTS (SELECT 1 FROM labels l WHERE l.pair = p.key)"
            " AND NOT EXISTS (SELECT 1 FROM tasks t WHERE t.pair = p.key)"
        )
        gone = sorted({(number,) for (number,) in self._db.execute(alone, (judge, last_pair))})
        self._db.execute("DELETE FROM queue WHERE judge = ? AND pair > ?", (judge, last_pair))
        for table, column in (("pair_columns", "pair"), ("known", "pair"), ("facets", "pair"), ("pairs", "id")):
            self._db.executemany(f"DELETE FROM {table} WHERE {column} = ?", gone)
