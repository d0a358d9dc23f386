"""What models wrote, kept like verdicts: by the hash of all that made it, so that nothing is written twice."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from dataclasses import dataclass, field

from evenhand.core.engine import Answer, Usage
from evenhand.core.errors import EngineError
from evenhand.store.book import Book


@dataclass(frozen=True, slots=True)
class Written:
    """One output, or the reason why there is none (`text` is None then)."""

    text: str | None
    finish: str = "stop"
    reason: str = ""
    detail: str = ""
    usage: Usage = field(default_factory=Usage)


class OutputBook(Book):
    """The outputs of one store: `store.outputs`.

    >>> from evenhand.store import Store
    >>> with Store(":memory:") as store:
    ...     store.outputs.fail("key", {"model": "m"}, "Hi", EngineError("no", reason="timeout"))
    ...     failed = store.outputs.get("key")
    ...     store.outputs.add("key", {"model": "m"}, "Hi", Answer("Hello."))
    ...     failed.reason, store.outputs.get("key").text
    ('timeout', 'Hello.')
    """

    def get(self, key: str) -> Written | None:
        """What is known under a key."""
        row = self._row(
            "SELECT text, finish, reason, detail, computed, reused, generated FROM outputs WHERE key = ?", key
        )
        if row is None:
            return None
        text, finish, reason, detail, *usage = row
        return Written(text, finish, reason, detail, Usage(*usage))

    def add(self, key: str, identity: Mapping[str, str], instruction: str, answer: Answer) -> None:
        """Keep an output, durable when this returns."""
        self._put(key, identity, instruction, Written(answer.text, answer.finish, usage=answer.usage))

    def fail(self, key: str, identity: Mapping[str, str], instruction: str, error: EngineError) -> None:
        """Keep a failure, to be tried again in the next run; it never takes the place of an output."""
        self._put(key, identity, instruction, Written(None, "", error.reason, str(error)))

    def _put(self, key: str, identity: Mapping[str, str], instruction: str, new: Written) -> None:
        made_by = (identity["model"], json.dumps(dict(identity)))
        row = (key, *made_by, instruction, new.text, new.finish, new.reason, new.detail)
        with self._writing():
            self._db.execute(
                "INSERT INTO outputs VALUES (?, ?, ?, ?, ?, ?, ?, ?, 1, ?, ?, ?, ?) ON CONFLICT DO UPDATE SET"
                " text = excluded.text, finish = excluded.finish, reason = excluded.reason,"
                " detail = excluded.detail, attempts = attempts + 1, computed = excluded.computed,"
                " reused = excluded.reused, generated = excluded.generated, created = excluded.created"
                " WHERE outputs.text IS NULL",
                (*row, new.usage.computed, new.usage.reused, new.usage.generated, time.time()),
            )
