"""Pairs that were attacked, as `evenhand attack` has put them into a database, and those that they were made of.

They show how a judge stands against attacks and say nothing about the models, so code that counts pairs leaves
them out.
"""

from __future__ import annotations

import json
import sqlite3

from evenhand.core.pair import Pair
from evenhand.store.rows import AMONG, PAIR_COLUMNS, stored_pair

# All of an attack's marks, as in `is_attacked`: a user's file may have some of them by chance. The last is an id,
# which may be too long for a field to filter by.
ATTACKED = (
    "SELECT a.pair FROM facets a WHERE a.field = 'attacked'"
    " AND EXISTS (SELECT 1 FROM facets b WHERE b.pair = a.pair AND b.field = 'attack')"
    " AND EXISTS (SELECT 1 FROM facets b WHERE b.pair = a.pair AND b.field = 'attack_kind')"
    """ AND EXISTS (SELECT 1 FROM pairs p WHERE p.id = a.pair AND p.metadata LIKE '%"attack_of"%')"""
)


def attacked_pairs(db: sqlite3.Connection) -> list[tuple[int, Pair]]:
    """Attacked pairs and their originals, with their numbers; where there are none, that is known at once."""
    found = _pairs(db, f"SELECT id, {PAIR_COLUMNS} FROM pairs WHERE id IN ({ATTACKED}) ORDER BY id")
    names = sorted({str(pair.metadata.get("attack_of")) for _, pair in found})
    if not names:
        return []
    originals = f"SELECT id, {PAIR_COLUMNS} FROM pairs WHERE name IN {AMONG} AND id NOT IN ({ATTACKED}) ORDER BY id"
    return [*_pairs(db, originals, json.dumps(names)), *found]


def attacked_numbers(db: sqlite3.Connection, judge: int | None = None) -> list[int]:
    """The numbers of the attacked pairs, or of those that a judge has brought to an end, in their order."""
    if judge is None:
        rows = db.execute(f"{ATTACKED} ORDER BY a.pair")
    else:
        rows = db.execute(
            f"SELECT pair FROM packed WHERE judge = ? AND pair IN ({ATTACKED}) ORDER BY pair", (judge,)
        )
    return [pair for (pair,) in rows]


def _pairs(db: sqlite3.Connection, query: str, *values: str) -> list[tuple[int, Pair]]:
    return [(number, stored_pair(columns)) for number, *columns in db.execute(query, values)]
