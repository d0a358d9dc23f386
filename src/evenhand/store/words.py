"""Which pairs may hold a text: an index over every three letters, in a file of its own that is deleted with its
process.

It names candidates, whose texts the caller then checks. The database is only read for it, so a run that writes is
not slowed, and a database that is not served has no index.
"""

from __future__ import annotations

import sqlite3
import tempfile
from collections.abc import Iterable
from pathlib import Path

_TABLE = (
    "CREATE VIRTUAL TABLE grams USING fts5(name, instruction, output_1, output_2, content='', detail='none',"
    " tokenize='trigram')"
)
_ADD = "INSERT INTO grams (rowid, name, instruction, output_1, output_2) VALUES (?, ?, ?, ?, ?)"
_LETTERS = 3
_MOST_GRAMS = 40  # more tell candidates apart no better
_MOST_LETTERS = 4_000_000  # that are taken in at once

Texts = tuple[int, str, str, str, str]  # a pair's number, id, instruction and outputs


class WordIndex:
    """Candidates for a search, as far as pairs were taken in: those up to `last`.

    >>> with WordIndex() as words:
    ...     added = words.add([(1, "p1", "Name a colour.", "Blue", "A spider")])
    ...     added, words.last, words.pattern("SPID"), words.pattern("sp")
    (1, 1, '"SPI" "PID"', None)
    """

    def __init__(self) -> None:
        self.path, self.last = "", 0
        self._db: sqlite3.Connection | None = None
        self._folder: tempfile.TemporaryDirectory[str] | None = None
        try:
            self._folder = tempfile.TemporaryDirectory(prefix="evenhand-words-", ignore_cleanup_errors=True)
            self.path = str(Path(self._folder.name) / "words.db")
            self._db = sqlite3.connect(self.path, isolation_level=None, check_same_thread=False)
            self._db.execute("PRAGMA journal_mode = WAL")  # searches go on while it grows
            self._db.execute("PRAGMA synchronous = OFF")  # it is built again each time
            self._db.execute(_TABLE)
        except (OSError, sqlite3.Error):  # no room, an SQLite without it: then every search reads all texts
            self.close()

    def __enter__(self) -> WordIndex:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def open(self) -> bool:
        """Whether it can be searched and added to."""
        return self._db is not None

    def add(self, pairs: Iterable[Texts]) -> int:
        """Take in some pairs, with rising numbers, until they are many letters; how many that were."""
        if self._db is None:
            return 0
        taken = letters = last = 0
        try:
            self._db.execute("BEGIN")
            for pair in pairs:
                self._db.execute(_ADD, pair)
                taken, last, letters = taken + 1, pair[0], letters + sum(map(len, pair[1:]))
                if letters > _MOST_LETTERS:
                    break
            self._db.execute("COMMIT")
        except sqlite3.Error:  # the disk is full, say
            self.close()
            return 0
        self.last = last or self.last
        return taken

    def pattern(self, text: str) -> str | None:
        """The query for a text; None for one that the index cannot find."""
        if self._db is None or len(text) < _LETTERS or "\0" in text:
            return None
        grams = dict.fromkeys(text[i : i + _LETTERS] for i in range(len(text) - _LETTERS + 1))
        return " ".join('"' + gram.replace('"', '""') + '"' for gram in list(grams)[:_MOST_GRAMS])

    def close(self) -> None:
        """Throw it away."""
        if self._db is not None:
            self._db.close()
            self._db = None
        self.last = 0
        if self._folder is not None:
            self._folder.cleanup()
