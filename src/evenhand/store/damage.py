"""Is a database damaged? Looked at only when something has gone wrong that should not."""

from __future__ import annotations

import sqlite3

from evenhand.core.pair import digest

_JSON = {
    "judges": ("identity", "dimensions"),
    "pairs": ("labels", "metadata"),
    "answers": ("tokens", "samples", "notes"),
    "runs": ("settings",),
    "calibrations": ("model",),
    "gates": ("scores",),
}
_TEXT = {
    "judges": ("fingerprint", "model", "protocol", "template"),
    "pairs": ("name", "key", "instruction", "output_1", "output_2", "model_1", "model_2"),
    "answers": ("text", "finish"),
    "verdicts": ("dimension",),
    "failures": ("reason", "detail"),
}
_WORDS = {
    ("queue", '"order"'): ("forward", "swapped"),
    ("verdicts", "label"): ("A", "B", "tie"),
    ("labels", "side"): ("1", "2", "tie"),
    ("pairs", "candidate"): ("", "1", "2"),
}
_NUMBERS = {"verdicts": ("p_a", "p_b", "p_tie", "mass"), "runs": ("started", "ended"), "judges": ("created",)}
_LINKS = (
    ("queue", "pair", "pairs"),
    ("queue", "conversation", "conversations"),
    ("conversations", "judge", "judges"),
)


def damage_in(db: sqlite3.Connection) -> str:
    """What is wrong with a file, in a few words; empty where nothing is.

    >>> damage_in(sqlite3.connect(":memory:"))
    'no such table: judges'
    """
    try:
        (said,) = db.execute("PRAGMA integrity_check(1)").fetchone()
        if said != "ok":
            return str(said)
        return next((text for text in (_look(db, *look) for look in _looks()) if text), "") or _altered(db)
    except (sqlite3.Error, ValueError) as fault:
        return str(fault)


def _altered(db: sqlite3.Connection) -> str:
    """A pair's key is a hash of its texts: a changed letter shows."""
    for number, key, *texts in db.execute("SELECT id, key, instruction, output_1, output_2 FROM pairs"):
        if digest(*texts) != key:
            return f"the texts of pair {number} are not what they were"
    return ""


def _looks() -> list[tuple[str, str, str]]:
    """Table, column, and the condition under which a value of it is damaged."""
    found = []
    for tables, condition in (
        (_JSON, "typeof({0}) != 'text' OR NOT json_valid({0})"),
        (_TEXT, "typeof({0}) != 'text'"),
        (_NUMBERS, "{0} IS NOT NULL AND typeof({0}) NOT IN ('real', 'integer')"),
    ):
        found += [(table, name, condition.format(name)) for table, names in tables.items() for name in names]
    for (table, name), words in _WORDS.items():
        listed = ", ".join(f"'{word}'" for word in words)
        found.append((table, name, f"{name} IS NOT NULL AND {name} NOT IN ({listed})"))
    for table, name, other in _LINKS:
        found.append((table, name, f"{name} NOT IN (SELECT id FROM {other})"))
    return found


def _look(db: sqlite3.Connection, table: str, name: str, condition: str) -> str:
    if db.execute(f"SELECT 1 FROM {table} WHERE {condition} LIMIT 1").fetchone():
        return f"the column {name} of the table {table} holds what evenhand does not write"
    # Text that is no UTF-8 is found by reading it.
    for _ in db.execute(f"SELECT {name} FROM {table}"):
        pass
    return ""
