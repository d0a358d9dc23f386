"""What models wrote, kept like verdicts: by the hash of all that made it, so that nothing is written twice."""

from __future__ import annotations

import json
import sqlite3
import time
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field

from evenhand.core.engine import Answer, Usage
from evenhand.core.errors import EngineError
from evenhand.store.schema import clearly


@dataclass(frozen=True, slots=True)
class Written:
    """One output, or the reason why there is none (`text` is None then)."""

    text: str | None
    finish: str = "stop"
    reason: str = ""
    detail: str = ""
    usage: Usage = field(default_factory=Usage)


class OutputBook:
    """The outputs of one store: `store.outputs`.

    >>> from evenhand.store import Store
    >>> with Store(":memory:") as store:
    ...     store.outputs.fail("key", {"model": "m"}, "Hi", EngineError("no", reason="timeout"))
    ...     failed = store.outputs.get("key")
    ...     store.outputs.add("key", {"model": "m"}, "Hi", Answer("Hello."))
    ...     failed.reason, store.outputs.get("key").text
    ('timeout', 'Hello.')
    """

    def __init__(
        self, db: sqlite3.Connection, writing: Callable[[], AbstractContextManager[None]], path: str
    ) -> None:
        self._db, self._writing, self._path = db, writing, path

    def get(self, key: str) -> Written | None:
        """What is known under a key."""
        with clearly(self._path):
            row = self._db.execute(
                "SELECT text, finish, reason, detail, computed, reused, generated FROM outputs WHERE key = ?",
                (key,),
            ).fetchone()
        if row is None:
            return None
        text, finish, reason, detail, *usage = row
        return Written(text, finish, reason, detail, Usage(*usage))

    def add(self, key: str, identity: Mapping[str, str], instruction: str, answer: Answer) -> None:
        """Keep an output, durable when this returns."""
        usage = answer.usage
        self._put(key, identity, instruction, answer.text, answer.finish, "", "", usage)

    def fail(self, key: str, identity: Mapping[str, str], instruction: str, error: EngineError) -> None:
        """Keep a failure, to be tried again in the next run; it never takes the place of an output."""
        self._put(key, identity, instruction, None, "", error.reason, str(error), Usage())

    def _put(
        self,
        key: str,
        identity: Mapping[str, str],
        instruction: str,
        text: str | None,
        finish: str,
        reason: str,
        detail: str,
        usage: Usage,
    ) -> None:
        row = (key, identity["model"], json.dumps(dict(identity)), instruction, text, finish, reason, detail)
        with self._writing():
            self._db.execute(
                "INSERT INTO outputs VALUES (?, ?, ?, ?, ?, ?, ?, ?, 1, ?, ?, ?, ?) ON CONFLICT DO UPDATE SET"
                " text = excluded.text, finish = excluded.finish, reason = excluded.reason,"
                " detail = excluded.detail, attempts = attempts + 1, computed = excluded.computed,"
                " reused = excluded.reused, generated = excluded.generated, created = excluded.created"
                " WHERE outputs.text IS NULL",
                (*row, usage.computed, usage.reused, usage.generated, time.time()),
            )
