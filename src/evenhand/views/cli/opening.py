"""What --db names: a database, or a folder of shards, which is read in the same way."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from itertools import pairwise
from pathlib import Path

from evenhand.core.errors import EvenhandError, InputError
from evenhand.store import Records, Store
from evenhand.store.database import is_old
from evenhand.views import console
from evenhand.views.progress import Upkeep

DEFAULT_DB = Path("evenhand.db")


def open_store(db: Path, *, read_only: bool = False) -> Store:
    """A database that is there already."""
    if db.is_dir():
        raise InputError(f"{db} is a folder, and this command writes into a database", hint="name a file with --db")
    if not db.is_file():
        raise InputError(f"no database at {db}", hint="evenhand judge PAIRS writes one")
    return Store(db, read_only=read_only)


def bring_up_to_date(db: Path | None) -> Path | None:
    """Bring a database of an older version up to date, with a bar if it takes longer than a second.

    It is what becomes of --db before a command sees it; whatever else may be wrong with the file, the command says.
    """
    if db is not None and db.is_file() and is_old(db):
        with suppress(EvenhandError), Upkeep(f"bringing {db} up to date") as upkeep:
            Store(db, read_only=True, on_progress=upkeep).close()
    return db


def explain(fault: Exception, words: Sequence[str]) -> None:
    """Say that a database on the command line is damaged, where that is so: it may be why the command failed."""
    named = [after for word, after in pairwise(words) if word == "--db"]
    named += [word.removeprefix("--db=") for word in words if word.startswith("--db=")]
    for path in map(Path, named or [str(DEFAULT_DB)]):
        if path.is_file():
            with Store(path, read_only=True) as store:
                store.explain(fault)


def open_records(db: Path) -> Records:
    """A database or a folder of shards, to be read."""
    if db.is_dir() or _is_address(db):
        from evenhand.store.shards import open_shards

        return open_shards(db, on_note=console.note)
    return open_store(db, read_only=True)


def is_records(word: str) -> bool:
    """Whether a word names a database or a folder of shards; any other folder may have the name of a judge."""
    path = Path(word)
    return path.is_file() or (path / "judge.json").is_file() or _is_address(path)


def _is_address(path: Path) -> bool:
    from evenhand.store.shards.place import looks_like_uri

    return looks_like_uri(path)
