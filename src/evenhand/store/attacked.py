"""Pairs that were attacked, as `evenhand attack` has put them into a database, and those that they were made of."""

from __future__ import annotations

import json
import sqlite3

from evenhand.core.pair import Pair
from evenhand.store.rows import PAIR_COLUMNS, stored_pair

_ATTACKED = "SELECT pair FROM facets WHERE field = 'attacked'"


def attacked_pairs(db: sqlite3.Connection) -> list[tuple[int, Pair]]:
    """Attacked pairs and their originals, with their numbers; where there are none, that is known at once."""
    found = _pairs(db, f"SELECT id, {PAIR_COLUMNS} FROM pairs WHERE id IN ({_ATTACKED}) ORDER BY id")
    names = sorted({str(pair.metadata.get("attack_of")) for _, pair in found})
    if not names:
        return []
    originals = (
        f"SELECT id, {PAIR_COLUMNS} FROM pairs WHERE name IN (SELECT value FROM json_each(?))"
        f" AND id NOT IN ({_ATTACKED}) ORDER BY id"
    )
    return [*_pairs(db, originals, json.dumps(names)), *found]


def _pairs(db: sqlite3.Connection, query: str, *values: str) -> list[tuple[int, Pair]]:
    return [(number, stored_pair(columns)) for number, *columns in db.execute(query, values)]
