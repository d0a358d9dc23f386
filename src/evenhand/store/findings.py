"""Findings kept ready: what each dimension of each pair comes to, in rows that lists can filter, sort and count.

The verdicts stay the truth; a row here is made from them by `pool`, as everywhere else. Whoever writes a verdict,
a failure or a label only marks the hearing as stale (triggers in `schema.py` do), and `absorb` makes its rows anew.
"""

from __future__ import annotations

import json
import math
import sqlite3
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any

from evenhand.judge import Hearing
from evenhand.pairs import Side
from evenhand.protocol import Order
from evenhand.verdict import SIDES, Finding, pool

Hearings = Callable[[int, Sequence[str], int], Mapping[Order, Hearing]]
_EXCERPT = 240  # characters of an instruction that a list shows
_NO_DOUBT = -1.0  # in the column, where there is nothing to doubt; a NULL would not compare
_LONGEST_VALUE = 120  # a metadata value that is longer is a text, not something to filter by


class FindingBook:
    """The findings of one store: `store.findings`.

    >>> from evenhand.store import Store
    >>> with Store(":memory:") as store:
    ...     store.findings.absorb(), store.findings.waiting()
    (0, 0)
    """

    def __init__(
        self, db: sqlite3.Connection, writing: Callable[[], AbstractContextManager[None]], hearings: Hearings
    ) -> None:
        self._db, self._writing, self._hearings = db, writing, hearings

    def waiting(self) -> int:
        """How many hearings are still to be absorbed."""
        (count,) = self._db.execute("SELECT count(*) FROM stale").fetchone()
        return int(count)

    def absorb(self, limit: int = 400) -> int:
        """Make the rows of some stale hearings anew; how many hearings that were. A run may write meanwhile."""
        if self._db.execute("SELECT 1 FROM stale LIMIT 1").fetchone() is None:
            return 0  # without asking for the lock
        with self._writing():
            some = "SELECT hearing FROM stale ORDER BY hearing LIMIT ?"
            cases = self._db.execute(
                f"SELECT DISTINCT pair, judge FROM docket WHERE hearing IN ({some}) ORDER BY pair, judge", (limit,)
            ).fetchall()
            self._make(cases)
            return self._db.execute(f"DELETE FROM stale WHERE hearing IN ({some})", (limit,)).rowcount

    def absorb_all(self) -> int:
        """Absorb until nothing is stale."""
        done = 0
        while some := self.absorb():
            done += some
        return done

    def _make(self, cases: Sequence[tuple[int, int]]) -> None:
        judges = {
            number: tuple(json.loads(dimensions))
            for number, dimensions in self._db.execute("SELECT id, dimensions FROM judges")
        }
        known: dict[str, Side] = {}
        gap, last = 0, None
        for pair, judge in cases:
            if pair != last:
                known, gap = self._brief(pair)
                last = pair
            self._enter(judge, pair, judges[judge], known, gap)
        self._db.executemany(
            "UPDATE findings SET split = (SELECT count(DISTINCT o.side) > 1 FROM findings o WHERE o.pair ="
            " findings.pair AND o.dimension = findings.dimension) WHERE pair = ?",
            [(pair,) for pair in {pair for pair, _ in cases}],
        )

    def _brief(self, pair: int) -> tuple[dict[str, Side], int]:
        """Enter what a list shows of a pair; what is known of it, and how much longer output 1 is than output 2."""
        key, *shown, labels, metadata = self._db.execute(
            "SELECT key, name, substr(instruction, 1, ?), model_1, model_2, length(output_1), length(output_2),"
            " labels, metadata FROM pairs WHERE id = ?",
            (_EXCERPT, pair),
        ).fetchone()
        self._db.execute("INSERT OR REPLACE INTO briefs VALUES (?, ?, ?, ?, ?, ?, ?, ?)", (pair, key, *shown))
        self._db.execute("DELETE FROM facets WHERE pair = ?", (pair,))
        fields = {**_scalars(json.loads(metadata)), **{("model", name): None for name in shown[2:4] if name}}
        self._db.executemany("INSERT INTO facets VALUES (?, ?, ?)", [(*field, pair) for field in fields])
        return {**json.loads(labels), **self._said(key)}, shown[4] - shown[5]

    def _said(self, key: str) -> dict[str, Side]:
        """The verdict of most people, by dimension; none where as many say another."""
        votes: dict[str, Counter[Side]] = {}
        for dimension, side in self._db.execute(
            "SELECT dimension, side FROM labels WHERE pair = ? AND side IS NOT NULL", (key,)
        ):
            votes.setdefault(dimension, Counter())[side] += 1
        return {dimension: side for dimension, count in votes.items() if (side := _winner(count))}

    def _enter(self, judge: int, pair: int, dimensions: Sequence[str], known: Mapping[str, Side], gap: int) -> None:
        heard = self._hearings(judge, dimensions, pair)
        found = [pool(name, {order: h.verdicts[name] for order, h in heard.items()}) for name in dimensions]
        self._db.executemany(
            f"INSERT OR REPLACE INTO findings VALUES ({', '.join('?' * 17)})",
            [
                (judge, finding.dimension, pair, *_row(finding), known.get(finding.dimension), 0, gap)
                for finding in found
            ],
        )


def doubt(p: Mapping[Side, float] | None) -> float | None:
    """How undecided probabilities are, from 0 (certain) to 1 (all three alike): entropy over its largest value.

    Shannon (1948), "A Mathematical Theory of Communication", section 6.

    >>> doubt({"1": 1.0, "2": 0.0, "tie": 0.0}), round(doubt({"1": 0.5, "2": 0.5, "tie": 0.0}), 2)
    (0.0, 0.63)
    """
    if p is None:
        return None
    return abs(sum(-x * math.log(x) for x in p.values() if x > 0) / math.log(len(SIDES)))


def _row(finding: Finding) -> tuple[Any, ...]:
    """The columns from `side` to `places`; sums, so that a tally can be made of many rows at once."""
    if finding.side is None:
        return (None, None, None, None, _NO_DOUBT, False, finding.invalid or "unknown", 0.0, 0, 0, 0)
    masses = [verdict.mass for verdict in finding.orders.values() if verdict.mass is not None]
    labels = [verdict.label for verdict in finding.orders.values()] if len(finding.orders) == 2 else []
    p = finding.p or {}
    unsure = doubt(finding.p)
    return (
        *(
            finding.side,
            *(p.get(side) for side in SIDES),
            _NO_DOUBT if unsure is None else unsure,
            finding.inconsistent,
            None,
        ),
        *(sum(masses), len(masses), labels.count("A") - labels.count("B"), len(labels)),
    )


def _scalars(metadata: Mapping[str, Any]) -> dict[tuple[str, str], None]:
    """Fields to filter by: a short text, a number, a yes or no."""
    kept: dict[tuple[str, str], None] = {}
    for field, value in metadata.items():
        if isinstance(value, (str, int, float)):
            text = json.dumps(value) if isinstance(value, bool) else str(value)
            if 0 < len(text) <= _LONGEST_VALUE:
                kept[str(field), text] = None
    return kept


def _winner(votes: Counter[Side]) -> Side | None:
    first, *rest = votes.most_common(2)
    return None if rest and rest[0][1] == first[1] else first[0]
