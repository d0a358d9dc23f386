"""Opening a database: whose file it is, whether it may be written to, and whether it is up to date.

A file of another program is never written to: it is looked at through a connection that takes no lock and makes no
file beside it; where its tables are in its log alone, through a copy. SQLite's `application_id`
marks ours; older files of evenhand are known by their version and their tables.
"""

from __future__ import annotations

import os
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path
from urllib.parse import quote

from evenhand.core.errors import InputError, StoreError

APPLICATION_ID = 0x45564E48  # "EVNH"
MEMORY = ":memory:"
# How long to wait for another process that is writing.
BUSY_SECONDS = 30.0
# How long another process may take from making a file to writing its first bytes.
_BIRTH_SECONDS = 2.0
# Tables that a file has which was written before files were marked as ours, and a column that no other would have.
_OUR_TABLES = {
    "judges": "fingerprint",
    "pairs": "output_1",
    "hearings": "judge",
    "docket": "hearing",
    "verdicts": "p_tie",
}
_COPY = "import shutil, sys; shutil.copyfile(*sys.argv[1:])"
_NOT_OURS = "name another file with --db; this one is left as it is"


def open_to_write(path: str) -> sqlite3.Connection:
    """A connection to our own file, made now if there is none; a file of another program is refused."""
    if path != MEMORY:
        _make_or_check(Path(path))
    return _connect(path)


def open_to_read(path: str) -> sqlite3.Connection:
    """A connection through which nothing can be changed; the file and its folder may be read-only."""
    if path == MEMORY:
        return _connect(path)
    _check(Path(path))
    # Where that is possible SQLite may put away what a killed run has left.
    db = _connect(path) if is_writable(path) else _connect_locked(Path(path))
    db.execute("PRAGMA query_only = ON")
    return db


def refuse_to_migrate(path: str) -> None:
    """Say that an old file cannot be brought up to date where it lies, if that is so."""
    if not is_writable(path):
        raise StoreError(
            f"{path} was written by an older evenhand and has to be brought up to date, but cannot be written to",
            hint="copy it to a folder of yours, and open the copy",
        )


def _connect(path: str) -> sqlite3.Connection:
    return sqlite3.connect(path, timeout=BUSY_SECONDS, isolation_level=None, check_same_thread=False)


def _connect_by_uri(path: Path, how: str) -> sqlite3.Connection:
    uri = f"file:{quote(os.fsencode(path.absolute()))}?{how}"
    return sqlite3.connect(uri, uri=True, timeout=BUSY_SECONDS, isolation_level=None, check_same_thread=False)


def _connect_locked(path: Path) -> sqlite3.Connection:
    """A connection to a file that cannot be written to; one that nobody can write to needs no lock."""
    db = _connect_by_uri(path, "mode=ro")
    try:
        db.execute("SELECT count(*) FROM sqlite_master").fetchone()
    except sqlite3.OperationalError:
        db.close()
        if _has_log(path):
            raise StoreError(
                f"a part of {path} stands in its log, {path.name}-wal, which cannot be read on a read-only mount",
                hint=f"copy {path.name} and {path.name}-wal to a folder of yours, and open the copy",
            ) from None
        return _connect_by_uri(path, "immutable=1")
    return db


def _has_log(path: Path) -> bool:
    log = Path(f"{path}-wal")
    return log.is_file() and log.stat().st_size > 0


def is_writable(path: str | Path) -> bool:
    """Whether a database, and the files that SQLite puts beside it, can be written to."""
    return os.access(path, os.W_OK) and os.access(Path(path).absolute().parent, os.W_OK)


def _make_or_check(path: Path) -> None:
    """Make a file that is marked as ours from its first bytes on, or check the one that is there."""
    try:
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o644))
    except FileExistsError:
        _check(path)
    except OSError:
        raise _unable() from None
    else:
        with closing(_connect(str(path))) as db:  # before the log is switched on: the mark is in the file itself
            db.execute(f"PRAGMA application_id = {APPLICATION_ID}")


def _check(path: Path) -> None:
    """Refuse what is not a database of evenhand."""
    if _is_empty(path):
        raise InputError(
            f"{path} is empty: nothing is judged yet", hint="delete it, or name another file with --db"
        )
    mark = _mark(path)
    if mark != APPLICATION_ID and (mark or not _has_our_tables(path)):
        raise StoreError(f"{path} is a database of another program", hint=_NOT_OURS)


def _is_empty(path: Path) -> bool:
    """Whether there is nothing in a file; another process may be making it just now."""
    deadline = time.monotonic() + _BIRTH_SECONDS
    while True:
        try:
            found = path.stat()
        except OSError:
            raise _unable() from None
        if found.st_size or time.monotonic() > deadline or time.time() - found.st_mtime > _BIRTH_SECONDS:
            return not found.st_size
        time.sleep(0.01)


def _mark(path: Path) -> int:
    """Whose file it says it is, read by SQLite and never as bytes.

    To close a file takes away every lock that this process has on it, also those of its other connections. The next
    process to end would then take itself for the last one and delete the log under them
    (https://sqlite.org/howtocorrupt.html, section 2.2). SQLite knows its own connections, and waits.
    """
    with closing(_connect_by_uri(path, "immutable=1")) as db:
        # The log may be being written back just now, so that the file is shorter than it says.
        db.execute("PRAGMA writable_schema = ON")
        try:
            return int(db.execute("PRAGMA application_id").fetchone()[0])
        except sqlite3.OperationalError:
            raise
        except sqlite3.DatabaseError:
            raise StoreError(f"{path} is not a database", hint=_NOT_OURS) from None


def _unable() -> sqlite3.OperationalError:
    """SQLite's own words for a place where there can be no file."""
    return sqlite3.OperationalError("unable to open database file")


def _has_our_tables(path: Path) -> bool:
    """Whether an unmarked file is ours. To read its log, SQLite would make a file beside it: so that is copied."""
    found = _tables(path)
    if found or not _has_log(path):
        return _are_ours(found)
    with tempfile.TemporaryDirectory(prefix="evenhand-") as folder:
        copy = Path(folder, "copy.db")
        for ending in ("", "-wal"):  # by another process, which has no lock to lose
            subprocess.run([sys.executable, "-I", "-c", _COPY, f"{path}{ending}", f"{copy}{ending}"], check=True)
        return _are_ours(_tables(copy, "mode=ro"))


def _are_ours(tables: Mapping[str, set[str]]) -> bool:
    return all(column in tables.get(table, ()) for table, column in _OUR_TABLES.items())


def _tables(path: Path, how: str = "immutable=1") -> dict[str, set[str]]:
    """The tables of anybody's file and, if it has a version, the names of their columns."""
    with closing(_connect_by_uri(path, how)) as db:
        names = [name for (name,) in db.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
        if not db.execute("PRAGMA user_version").fetchone()[0]:
            return {name: set() for name in names}
        query = "SELECT name FROM pragma_table_info(?)"
        return {table: {name for (name,) in db.execute(query, (table,))} for table in names}
