"""Checks whether a database is damaged; run only after an error that should not happen."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing
from functools import cache
from typing import Any

import orjson

from evenhand.core.outcome import MOST_MASS
from evenhand.core.pair import digest
from evenhand.core.verdict import SHARES_OFF, found_on
from evenhand.core.votes import DESIGNS, ROLES
from evenhand.engines.made import ESCALATION, JURY
from evenhand.store.outcomes import PACKED, pack_outcomes
from evenhand.store.rows import AMONG
from evenhand.store.schema import MIGRATIONS

# What SQLite may hold in a column of each type; a damaged file may hold anything anywhere.
_TYPES = {"INTEGER": ("integer",), "REAL": ("real", "integer"), "TEXT": ("text",), "BLOB": ("blob",)}
_LARGEST = 1e15  # no duration comes near it
# Seconds since 1970 of which a date can be made, the year 5000 the last.
_TIMES = ("created", "claimed", "started", "ended", "submitted", "checked", "done")
_LAST = 9.6e10
# What holds of every row that evenhand writes. Text compares as larger than any number, and NULL as nothing.
_SHARES = f"min({{0}}, {{1}}, {{2}}) >= 0 AND abs({{0}} + {{1}} + {{2}} - 1) <= {SHARES_OFF}"
_HOLDS = {
    "verdicts": (_SHARES.format("p_a", "p_b", "p_tie"), "mass BETWEEN 0 AND 1.001"),
    "outcomes": (
        _SHARES.format("p_1", "p_2", "p_tie"),
        "(p_1 IS NULL) = (said & 3 = 0)",
        "said BETWEEN 0 AND 4095",
        f"mass BETWEEN 0 AND {MOST_MASS}",
    ),
    **dict.fromkeys(("labels", "tasks", "suggestions"), ("probability > 0 AND probability <= 1",)),
}
_SIDES = ("1", "2", "tie")
_JSON: dict[tuple[str, str], Callable[[Any], bool]] = {
    ("judges", "identity"): lambda value: _is_texts(value, dict) and "model" in value,
    ("judges", "dimensions"): lambda value: _is_texts(value, list) and bool(value),
    ("pairs", "labels"): lambda value: _is_texts(value, dict) and set(value.values()) <= set(_SIDES),
    ("pairs", "metadata"): lambda value: isinstance(value, dict),
    ("answers", "tokens"): lambda value: isinstance(value, list) and all(map(_is_token, value)),
    ("answers", "samples"): lambda value: _is_texts(value, list),
    ("answers", "notes"): lambda value: _is_texts(value, list),
    ("runs", "settings"): lambda value: isinstance(value, dict),
    ("calibrations", "model"): lambda value: _is_calibration(value),
    ("gates", "scores"): lambda value: isinstance(value, dict) and all(map(_is_score, value.items())),
    ("batches", "rejected"): lambda value: isinstance(value, list),
    ("batches", "lessons"): lambda value: isinstance(value, dict),
    ("batch_items", "notes"): lambda value: _is_texts(value, list),
    ("annotators", "dimensions"): lambda value: _is_texts(value, list),
    ("annotators", "rubric"): lambda value: isinstance(value, dict),
}
_STRICT = ("answers", "batch_items")  # whose JSON is read by a reader that takes no NaN and no infinity
_WORDS = {
    ("queue", "order"): ("forward", "swapped"),
    ("tasks", "order"): ("forward", "swapped"),
    ("verdicts", "label"): ("A", "B", "tie"),
    ("labels", "side"): _SIDES,
    ("known", "side"): _SIDES,
    **{(table, "design"): DESIGNS for table in ("labels", "tasks", "suggestions")},
    **{(table, "role"): ROLES for table in ("labels", "annotators")},
    ("pairs", "candidate"): ("", "1", "2"),
    ("pair_columns", "candidate"): ("", "1", "2"),
}
# Rows that rest on others without SQLite's knowing.
_LINKS = (
    *((table, "pair", "pairs") for table in ("outcomes", "packed", "pair_columns", "known", "facets")),
    *((table, "judge", "judges") for table in ("outcomes", "packed")),
    ("packed", "pair", "pair_columns"),
)


def damage_in(db: sqlite3.Connection) -> str:
    """What is wrong with a file, in a few words; empty where nothing is.

    >>> damage_in(sqlite3.connect(":memory:"))
    'there is no table annotators'
    """
    try:
        (said,) = db.execute("PRAGMA integrity_check(1)").fetchone()
        return str(said) if said != "ok" else next(_faults(db), "")
    except (sqlite3.Error, ValueError, TypeError) as fault:
        return str(fault)


def _faults(db: sqlite3.Connection) -> Iterator[str]:
    yield from _missing(db)
    for table, columns in _expected().items():
        for name, kind, needed in columns:
            if _is_strange(db, table, name, kind, needed):
                yield f"the column {name} of the table {table} holds what evenhand does not write"
    for table, conditions in _HOLDS.items():
        if _any(db, f"FROM {table} WHERE {' OR '.join(f'NOT ({each})' for each in conditions)}"):
            yield f"numbers of the table {table} are out of range"
    for table, _, other, _ in db.execute("PRAGMA foreign_key_check"):
        yield f"a row of the table {table} rests on one of {other} that is not there"
    for table, name, other in _LINKS:
        target = "pair" if other == "pair_columns" else "id"
        if _any(db, f"FROM {table} WHERE {name} NOT IN (SELECT {target} FROM {other})"):
            yield f"a row of the table {table} rests on one of {other} that is not there"
    yield from _changed_texts(db)
    yield from _unknown_dimensions(db)
    yield from _bad_words(db)
    yield from _unequal_copies(db)


@cache
def _expected() -> dict[str, list[tuple[str, str, bool]]]:
    """The tables of a file as evenhand makes them: each column with its type and whether it must hold something."""
    with closing(sqlite3.connect(":memory:")) as db:
        for step in (step for steps in MIGRATIONS for step in steps):
            db.execute(step)
        return {table: _columns(db, table) for table in sorted(_tables(db))}


def _tables(db: sqlite3.Connection) -> set[str]:
    return {name for (name,) in db.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}


def _columns(db: sqlite3.Connection, table: str) -> list[tuple[str, str, bool]]:
    rows = db.execute(f"PRAGMA table_info({table})")
    return [(name, kind, bool(needed or key)) for _, name, kind, needed, _, key in rows]


def _missing(db: sqlite3.Connection) -> Iterator[str]:
    here = _tables(db)
    for table, columns in _expected().items():
        if table not in here:
            yield f"there is no table {table}"
        elif lost := {name for name, _, _ in columns} - {name for name, _, _ in _columns(db, table)}:
            yield f"the table {table} has no column {min(lost)}"


def _is_strange(db: sqlite3.Connection, table: str, name: str, kind: str, needed: bool) -> bool:
    """Whether a column holds a value of another type, or one that cannot stand there."""
    quoted, types = f'"{name}"', ", ".join(f"'{each}'" for each in _TYPES[kind])
    wrong = [f"typeof({quoted}) NOT IN ({types})"]
    if kind == "REAL":
        wrong.append(f"abs({quoted}) > {_LAST if name in _TIMES else _LARGEST}")
    if words := _WORDS.get((table, name)):
        wrong.append(f"{quoted} NOT IN ({', '.join(repr(word) for word in words)})")
    null = f"{quoted} IS NULL" if needed else "0"
    if _any(db, f"FROM {table} WHERE {null} OR ({quoted} IS NOT NULL AND ({' OR '.join(wrong)}))"):
        return True
    if kind != "TEXT":
        return False
    # Text that is no UTF-8 is found by reading it.
    fits = _JSON.get((table, name))
    texts = (text for (text,) in db.execute(f"SELECT {quoted} FROM {table}"))
    load = orjson.loads if table in _STRICT else json.loads
    return not all(fits is None or _is_json(text, fits, load) for text in texts)


def _is_json(text: str, fits: Callable[[Any], bool], load: Callable[[str], Any] = json.loads) -> bool:
    try:
        return fits(load(text))
    except (ValueError, TypeError, KeyError, RecursionError):
        return False


def _any(db: sqlite3.Connection, what: str) -> bool:
    return db.execute(f"SELECT 1 {what} LIMIT 1").fetchone() is not None


def _is_texts(value: Any, kind: type[list[Any]] | type[dict[str, Any]]) -> bool:
    held: Iterable[Any] = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return isinstance(value, kind) and all(isinstance(each, str) for each in held)


def _is_calibration(value: Any) -> bool:
    """Whether these are a calibration's fields, with numbers that outcomes can be brought into line by."""
    from evenhand.core.stats.calibration import Calibration  # with numpy, which takes a third of a second

    return isinstance(Calibration.of(value), Calibration)


def _is_score(value: tuple[str, Any]) -> bool:
    """Whether this is an instruction's number with what the candidate scored on it."""
    number, score = value
    return number.lstrip("-").isdecimal() and isinstance(score, int | float)


def _is_token(value: Any) -> bool:
    """Whether this is a token's text with what else could have stood there, and their log-probabilities."""
    match value:
        case [str(), list() as others]:
            return all(map(_is_weighed, others))
    return False


def _is_weighed(value: Any) -> bool:
    match value:
        case [str(), int() | float()]:
            return True
    return False


def _changed_texts(db: sqlite3.Connection) -> Iterator[str]:
    """A pair's key is a hash of its texts: a changed letter shows."""
    for number, key, *texts in db.execute("SELECT id, key, instruction, output_1, output_2 FROM pairs"):
        if digest(*texts) != key:
            yield f"the texts of pair {number} are not what they were"


def _unknown_dimensions(db: sqlite3.Connection) -> Iterator[str]:
    """A verdict is on one of the dimensions that its judge is asked about."""
    for pair, dimension in db.execute(
        "SELECT d.pair, v.dimension FROM judges j CROSS JOIN queue d ON d.judge = j.id"
        " CROSS JOIN verdicts v ON v.conversation = d.conversation"
        " WHERE v.dimension NOT IN (SELECT value FROM json_each(j.dimensions))"
    ):
        yield f"there is a verdict on pair {pair} for {dimension!r}, which its judge was not asked about"


def _bad_words(db: sqlite3.Connection) -> Iterator[str]:
    """What a judge made of others keeps of a pair says who spoke, or who decided."""
    rows = db.execute(
        "SELECT d.pair, json_extract(j.identity, '$.engine'), a.text FROM judges j CROSS JOIN queue d"
        " ON d.judge = j.id CROSS JOIN answers a ON a.conversation = d.conversation"
        " WHERE json_extract(j.identity, '$.engine') IN (?, ?)",
        (JURY, ESCALATION),
    )
    for pair, kind, text in rows:
        if not _is_json(text, _is_spoken if kind == JURY else _is_decided):
            yield f"what is kept of pair {pair} does not say who decided it"


def _is_spoken(value: Any) -> bool:
    match value:
        case {"spoke": int(), "of": int()}:
            return _is_texts(value.get("silent", {}), dict)
    return False


def _is_decided(value: Any) -> bool:
    match value:
        case {"level": int() | None, "judge": str() | None}:
            return isinstance(value.get("confidence"), float | int | None)
    return False


def _unequal_copies(db: sqlite3.Connection) -> Iterator[str]:
    """The numbers of a pair's outcomes are kept twice, and must be the same."""
    for judge, dimensions in db.execute("SELECT id, dimensions FROM judges").fetchall():
        names = found_on(tuple(json.loads(dimensions)))
        once = "FROM outcomes WHERE judge = ? AND pair NOT IN (SELECT pair FROM packed WHERE judge = ?)"
        for (pair,) in db.execute(f"SELECT pair {once} LIMIT 1", (judge, judge)):
            yield f"the outcomes of pair {pair} do not fit together"
        for pair, numbers in db.execute("SELECT pair, numbers FROM packed WHERE judge = ?", (judge,)):
            rows = {
                row[0]: row
                for row in db.execute(
                    f"SELECT dimension, {', '.join(PACKED)} FROM outcomes WHERE judge = ? AND pair = ?"
                    f" AND dimension IN {AMONG}",
                    (judge, pair, json.dumps(names)),
                )
            }
            if len(rows) != len(names) or pack_outcomes(rows[name] for name in names) != numbers:
                yield f"the outcomes of pair {pair} do not fit together"
