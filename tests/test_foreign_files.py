"""Whose file is it? Another program's is refused and left as it is; our own opens where it can only be read."""

from __future__ import annotations

import os
import shutil
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from command import evenhand
from evenhand.core.errors import InputError, StoreError
from evenhand.core.pair import Pair
from evenhand.engines.scripted import ScriptedEngine
from evenhand.store import Store, opening
from evenhand.store.opening import APPLICATION_ID, open_to_write
from evenhand.store.schema import MIGRATIONS
from evenhand.views.api import Judge
from evenhand.views.web.serving import ServerAddress, open_site

NOBODY = "http://127.0.0.1:9/v1#m"
PAIRS = [Pair(f"Question {n}?", "yes", "no", id=str(n), model_1="a", model_2="b") for n in range(4)]
READING = ["results", "rank", "card", "gate", "labels", "suggest", "report", "export judgments --out x.jsonl"]
WRITING = ["reread", "calibrate"]


def judged(path: Path) -> Path:
    with Judge(ScriptedEngine(lambda _: {"A": 0.6, "B": 0.3, "tie": 0.1}), "overall", db=path) as judge:
        list(judge.judge(PAIRS))
    return path


def foreign(path: Path, *pragmas: str) -> Path:
    """A database with a table that everybody has, made by somebody else."""
    with closing(sqlite3.connect(path, isolation_level=None)) as db:
        for pragma in pragmas:
            db.execute(f"PRAGMA {pragma}")
        db.execute("CREATE TABLE pairs (id INTEGER, name TEXT)")
        db.execute("INSERT INTO pairs VALUES (1, 'shoes')")
    return path


def pragma(path: Path, name: str) -> int:
    with closing(sqlite3.connect(path)) as db:
        return int(db.execute(f"PRAGMA {name}").fetchone()[0])


def stopped(path: Path) -> Path:
    """What a program that was killed leaves: all that it wrote is in the log, and nothing looks after it."""
    with closing(sqlite3.connect(path.with_name("running.db"), isolation_level=None)) as db:
        db.execute("PRAGMA journal_mode = WAL")
        db.execute("CREATE TABLE pairs (id INTEGER, name TEXT)")
        for ending in ("", "-wal"):
            shutil.copy(f"{path.with_name('running.db')}{ending}", f"{path}{ending}")
    path.with_name("running.db").unlink()
    return path


def namesake(path: Path, version: int) -> Path:
    """A database whose tables happen to have the names of ours."""
    with closing(sqlite3.connect(path, isolation_level=None)) as db:
        db.execute(f"PRAGMA user_version = {version}")
        for name in ("judges", "pairs", "hearings", "docket", "verdicts"):
            db.execute(f"CREATE TABLE {name} (id INTEGER, court TEXT)")
    return path


def marked(path: Path) -> Path:
    """A database with all tables of an older evenhand that another program has taken for its own."""
    old_file(path)
    with closing(sqlite3.connect(path, isolation_level=None)) as db:
        db.execute("PRAGMA application_id = 1196444487")
    return path


FOREIGN: dict[str, Callable[[Path], Path]] = {
    "of a killed program": stopped,
    "with tables of our names": lambda path: namesake(path, 0),
    "with tables of our names and a version": lambda path: namesake(path, 4),
    "plain": lambda path: foreign(path),
    "with a log": lambda path: foreign(path, "journal_mode = WAL"),
    "with a version": lambda path: foreign(path, "user_version = 3"),
    "with our tables and a mark": lambda path: marked(path),
    "with a mark": lambda path: foreign(path, "application_id = 1196444487"),
}


@pytest.mark.parametrize("command", READING + WRITING)
@pytest.mark.parametrize("make", FOREIGN.values(), ids=FOREIGN.keys())
def test_a_database_of_another_program_is_refused_and_left_as_it_is(
    tmp_path: Path, make: Callable[[Path], Path], command: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    db = make(tmp_path / "shop.db")
    before = {file: file.read_bytes() for file in tmp_path.iterdir()}
    done = evenhand(*command.split(), "--db", db, code=4 if command == "gate" else 1)
    assert "a database of another program" in done.stderr + done.stdout
    assert {file: file.read_bytes() for file in tmp_path.iterdir()} == before


def test_a_foreign_database_that_is_open_elsewhere_is_left_alone(tmp_path: Path) -> None:
    db = foreign(tmp_path / "shop.db", "journal_mode = WAL")
    with closing(sqlite3.connect(db, isolation_level=None)) as other:
        other.execute("INSERT INTO pairs VALUES (2, 'hats')")  # it is in the log now
        before = {file: file.read_bytes() for file in tmp_path.iterdir()}
        with pytest.raises(StoreError, match="another program"):
            Store(db)
        assert {file: file.read_bytes() for file in tmp_path.iterdir()} == before


def test_judging_into_a_foreign_or_an_empty_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "p.jsonl").write_text('{"instruction": "q", "output_1": "x", "output_2": "y"}\n')
    db = foreign(tmp_path / "shop.db")
    before = db.read_bytes()
    evenhand("judge", tmp_path / "p.jsonl", "--judge", NOBODY, "--db", db, code=1)
    assert db.read_bytes() == before
    empty = tmp_path / "empty.db"
    empty.touch()
    os.utime(empty, (1, 1))
    done = evenhand("judge", tmp_path / "p.jsonl", "--judge", NOBODY, "--db", empty, code=2)
    assert "empty.db is empty" in done.stderr
    assert empty.read_bytes() == b""


def test_a_new_file_is_marked_and_an_old_one_is_marked_when_it_is_brought_up_to_date(tmp_path: Path) -> None:
    db = judged(tmp_path / "a.db")
    assert pragma(db, "application_id") == APPLICATION_ID
    old_file(db)
    evenhand("results", "--db", db)
    assert (pragma(db, "application_id"), pragma(db, "user_version")) == (APPLICATION_ID, len(MIGRATIONS))


def test_a_file_is_marked_before_it_holds_anything(tmp_path: Path) -> None:
    """A run that is killed while it makes one leaves a file that the next run knows."""
    open_to_write(str(tmp_path / "a.db")).close()
    assert pragma(tmp_path / "a.db", "application_id") == APPLICATION_ID
    with Store(tmp_path / "a.db") as store:
        assert store.judges() == []


def old_file(db: Path) -> None:
    """What an older evenhand has left: a file without the mark."""
    shutil.copy(Path(__file__).parent / "fixtures" / "version_7.db", db)


def test_an_old_file_of_a_run_that_was_killed_is_known_by_its_log(tmp_path: Path) -> None:
    """It has no mark, and its tables are nowhere but in the log."""
    old_file(old := tmp_path / "old.db")
    db, log = tmp_path / "a.db", tmp_path / "a.db-wal"
    with closing(sqlite3.connect(tmp_path / "running.db", isolation_level=None)) as running:
        running.execute("PRAGMA journal_mode = WAL")
        with closing(sqlite3.connect(old)) as source:
            running.execute("BEGIN")
            for line in source.iterdump():
                if not line.startswith(("BEGIN", "COMMIT")):
                    running.execute(line)
            running.execute(f"PRAGMA user_version = {pragma(old, 'user_version')}")
            running.execute("COMMIT")
        shutil.copy(tmp_path / "running.db", db)
        shutil.copy(tmp_path / "running.db-wal", log)
    with Store(db, read_only=True) as store:
        assert store.judges()


def test_reading_writes_nothing(tmp_path: Path) -> None:
    db = judged(tmp_path / "a.db")
    before = db.read_bytes()
    with Store(db, read_only=True) as store:
        assert len(list(store.judgments(store.judges()[0]))) == len(PAIRS)
        with pytest.raises(StoreError, match="readonly"):
            store.add_pairs([Pair("New?", "x", "y")])
    assert db.read_bytes() == before


def test_a_file_that_is_being_written_back_is_known_by_its_mark(tmp_path: Path) -> None:
    """Another process is at it: for a moment the file is shorter than it says."""
    db = judged(tmp_path / "a.db")
    os.truncate(db, db.stat().st_size - 4096)
    assert opening._mark(db) == APPLICATION_ID


def test_a_file_without_a_version_is_not_ours(tmp_path: Path) -> None:
    old_file(db := tmp_path / "a.db")
    with closing(sqlite3.connect(db, isolation_level=None)) as other:
        other.execute("PRAGMA user_version = 0")
    with pytest.raises(StoreError, match="another program"):
        Store(db)


@pytest.mark.parametrize("closed", ["a.db", "."])
def test_a_database_is_written_to_only_with_its_folder(
    tmp_path: Path, closed: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """SQLite puts its log beside the file. What the system says is set here, since root may do everything."""
    db = judged(tmp_path / "a.db")
    assert opening.is_writable(db)
    monkeypatch.setattr(os, "access", lambda path, _: Path(path) != tmp_path / closed)
    assert not opening.is_writable(db)


@pytest.fixture
def locked(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing may be written, as on a read-only mount; to root the system would allow it all the same."""
    monkeypatch.setattr("evenhand.store.opening.is_writable", lambda _: False)


@pytest.mark.usefixtures("locked")
@pytest.mark.parametrize("command", ["results", "labels", "suggest", "rank"])
def test_a_database_on_a_read_only_mount_can_be_read(tmp_path: Path, command: str) -> None:
    db = judged(tmp_path / "a.db")
    before = db.read_bytes()
    db.chmod(0o444)
    evenhand(command, "--db", db)
    assert db.read_bytes() == before


@pytest.fixture
def mounted(tmp_path: Path, locked: None) -> Path:
    """A database beside which SQLite can make no file, whoever it runs as."""
    db = judged(tmp_path / "a.db")
    Path(f"{db}-shm").symlink_to(tmp_path / "no" / "folder")
    return db


def test_serve_shows_a_database_on_a_read_only_mount(mounted: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("evenhand.views.web.site.is_writable", lambda _: False)
    site = open_site(mounted, ServerAddress(), 8000)
    with site.store() as store:
        assert len(store.judges()) == 1
        with pytest.raises(StoreError, match="readonly"):
            store.add_pairs([Pair("New?", "x", "y")])
    assert site.version() == site.version()
    site.close()


def test_a_log_that_cannot_be_read_there_is_named(mounted: Path) -> None:
    with Store(mounted, read_only=True) as store:
        assert len(store.judges()) == 1
    Path(f"{mounted}-wal").touch()  # an empty one holds nothing
    Store(mounted, read_only=True).close()
    Path(f"{mounted}-wal").write_bytes(b"frames")
    done = evenhand("results", "--db", mounted, code=1)
    assert "stands in its log" in done.stderr
    assert "copy a.db and a.db-wal" in " ".join(done.stderr.split())


def test_where_sqlite_cannot_even_take_a_lock_the_file_is_read_as_it_lies(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, locked: None
) -> None:
    """What SQLite does in a folder that cannot be written to: mode=ro fails on a file with a log."""
    db, real = judged(tmp_path / "a.db"), opening._connect_by_uri
    refused = sqlite3.OperationalError("unable to open database file")
    opened: list[str] = []

    def connect(path: Path, how: str) -> sqlite3.Connection:
        opened.append(how)
        return real(path, how) if how == "immutable=1" else _Refusing(refused)  # type: ignore[return-value]

    monkeypatch.setattr(opening, "_connect_by_uri", connect)
    with Store(db, read_only=True) as store:
        assert len(store.judges()) == 1
    assert opened[-2:] == ["mode=ro", "immutable=1"]


class _Refusing:
    def __init__(self, fault: Exception) -> None:
        self._fault = fault

    def execute(self, _: str) -> None:
        raise self._fault

    def close(self) -> None:
        pass


@pytest.mark.usefixtures("locked")
def test_an_old_file_that_cannot_be_brought_up_to_date_says_so(tmp_path: Path) -> None:
    db = judged(tmp_path / "a.db")
    old_file(db)
    done = evenhand("results", "--db", db, code=1)
    assert "written by an older evenhand" in done.stderr
    assert "copy it" in done.stderr


def test_an_empty_file_has_nothing_to_read(tmp_path: Path) -> None:
    (tmp_path / "e.db").touch()
    os.utime(tmp_path / "e.db", (1, 1))
    with pytest.raises(InputError, match="nothing is judged yet"):
        Store(tmp_path / "e.db", read_only=True)
