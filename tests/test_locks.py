"""A process keeps its locks on a database whatever it opens: without them another deletes the log under it."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from evenhand.core.errors import StoreError
from evenhand.store import Store
from evenhand.store.opening import open_to_read, open_to_write

# Whoever closes a database last puts its log away. Whether somebody else has it open is told by a lock alone.
OTHER_PROCESS = """
import sqlite3, sys
db = sqlite3.connect(sys.argv[1], isolation_level=None)
db.execute("CREATE TABLE IF NOT EXISTS others (n INTEGER)")
db.execute("INSERT INTO others VALUES (1)")
db.close()
"""


def run_another(db: Path) -> None:
    subprocess.run([sys.executable, "-c", OTHER_PROCESS, str(db)], check=True, timeout=60)


@pytest.mark.parametrize("again", [open_to_write, open_to_read])
def test_opening_a_database_again_keeps_the_locks_of_the_first_connection(
    db: Path, again: Callable[[str], sqlite3.Connection]
) -> None:
    with Store(db) as store:
        store.judges()
        with closing(again(str(db))):
            pass
        run_another(db)
        assert Path(f"{db}-wal").exists(), "the other process took itself for the last one"


def test_two_processes_that_open_and_close_leave_the_database_whole(db: Path) -> None:
    with Store(db):
        mine = open_to_write(str(db))
        mine.execute("CREATE TABLE mine (n INTEGER, text TEXT)")
        for number in range(5):
            with Store(db, read_only=True):
                pass
            mine.execute("BEGIN IMMEDIATE")
            mine.executemany("INSERT INTO mine VALUES (?, ?)", [(number, "x" * 3000)] * 100)
            mine.execute("COMMIT")
            run_another(db)
        mine.close()
    with closing(sqlite3.connect(db)) as found:
        assert found.execute("PRAGMA integrity_check").fetchone() == ("ok",)
        assert found.execute("SELECT count(*) FROM mine").fetchone() == (500,)
        assert found.execute("SELECT count(*) FROM others").fetchone() == (5,)


def test_what_is_no_database_is_refused_and_left_as_it_is(tmp_path: Path) -> None:
    for content in (b"SQLite format 3", b"{}\n", b"\x00" * 4096, b"SQLite format 3\x00" + b"\x07" * 4096):
        file = tmp_path / "some.db"
        file.write_bytes(content)
        with pytest.raises(StoreError):
            open_to_read(str(file))
        assert file.read_bytes() == content
        assert [path.name for path in tmp_path.iterdir()] == ["some.db"]
