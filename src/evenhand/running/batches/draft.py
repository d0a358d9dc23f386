"""Questions on their way into a batch: lines of a file on the disk, within what the service takes."""

from __future__ import annotations

import os
import secrets
import tempfile
from pathlib import Path

from evenhand.engines.batches.client import BatchService
from evenhand.store import BatchItem

_MOST_DIGITS = 18


def name_of(token: str, conversation: int, question: int) -> str:
    """The name of a question in a batch; the token says whose it is.

    >>> name_of("ab12", 7, 0), read_name("ab12", "ab12-7-0"), read_name("ab12", "cd34-7-0")
    ('ab12-7-0', (7, 0), None)
    """
    return f"{token}-{conversation}-{question}"


def read_name(token: str, name: str) -> tuple[int, int] | None:
    """The conversation and the question of a name; None where it is not one of this batch."""
    found, _, rest = name.partition("-")
    conversation, _, question = rest.partition("-")
    if found != token or not (_is_number(conversation) and _is_number(question)):
        return None
    return int(conversation), int(question)


def _is_number(text: str) -> bool:
    """Whether a text is a number that a database can hold."""
    return text.isdecimal() and len(text) <= _MOST_DIGITS


class Draft:
    """A file of requests, taken off the disk by `close`."""

    def __init__(self, service: BatchService, most: int) -> None:
        self.token = secrets.token_hex(8)
        self.items: list[BatchItem] = []
        self.estimate = 0.0  # what it will cost
        self._service, self._most = service, min(most, service.most_requests)
        handle, name = tempfile.mkstemp(prefix="evenhand-batch-", suffix=".jsonl")
        self.file, self._lines = Path(name), os.fdopen(handle, "wb")
        self._size = self._lines.write(service.head)

    def fits(self, line: bytes) -> bool:
        """Whether the service would still take the batch with this line in it."""
        size = self._size + len(line) + len(self._service.between) + len(self._service.tail)
        return not self.items or (len(self.items) < self._most and size <= self._service.most_bytes)

    def add(self, line: bytes, item: BatchItem, cost: float = 0.0) -> None:
        """Put a question in."""
        if self.items:
            self._size += self._lines.write(self._service.between)
        self._size += self._lines.write(line)
        self.items.append(item)
        self.estimate += cost

    def finish(self) -> Path:
        """The file, whole."""
        if not self._lines.closed:
            self._lines.write(self._service.tail)
            self._lines.close()
        return self.file

    def close(self) -> None:
        """Take the file off the disk."""
        self._lines.close()
        self.file.unlink(missing_ok=True)
