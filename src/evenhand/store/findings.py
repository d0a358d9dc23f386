"""Findings kept ready: what each dimension of each pair comes to, in rows that lists can filter, sort and count.

The verdicts stay the truth; a row here is made from them by `pool`, as everywhere else. Whoever writes a verdict,
a failure or a label only marks the hearing as stale (triggers in `schema.py` do), and `absorb` makes its rows anew.
"""

from __future__ import annotations

import json
import math
import sqlite3
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any

from evenhand.judge import Hearing, Judgment
from evenhand.pairs import Pair, Side
from evenhand.protocol import Order
from evenhand.verdict import SIDES, Finding, known_label

Hearings = Callable[[int, Sequence[str], int], Mapping[Order, Hearing]]
# What is known of a pair's dimension: what people say, or the file; None where nothing is.
Known = Callable[[Pair, str], Side | None]
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

    def absorb(self, limit: int = 400, *, known: Known | None = None) -> int:
        """Make the rows of some stale hearings anew; how many hearings that were. A run may write meanwhile."""
        if self._db.execute("SELECT 1 FROM stale LIMIT 1").fetchone() is None:
            return 0  # without asking for the lock
        with self._writing():
            some = "SELECT hearing FROM stale ORDER BY hearing LIMIT ?"
            cases = self._db.execute(
                f"SELECT DISTINCT pair, judge FROM docket WHERE hearing IN ({some}) ORDER BY pair, judge", (limit,)
            ).fetchall()
            self._make(cases, known or _of_file)
            return self._db.execute(f"DELETE FROM stale WHERE hearing IN ({some})", (limit,)).rowcount

    def absorb_all(self, *, known: Known | None = None) -> int:
        """Absorb until nothing is stale."""
        done = 0
        while some := self.absorb(known=known):
            done += some
        return done

    def _make(self, cases: Sequence[tuple[int, int]], known: Known) -> None:
        judges = {
            number: tuple(json.loads(dimensions))
            for number, dimensions in self._db.execute("SELECT id, dimensions FROM judges")
        }
        pair: Pair | None = None
        last = 0
        for number, judge in cases:
            if pair is None or number != last:
                pair, last = self._brief(number), number
            self._enter(judge, number, pair, judges[judge], known)
        self._db.executemany(
            "UPDATE findings SET split = (SELECT count(DISTINCT o.side) > 1 FROM findings o WHERE o.pair ="
            " findings.pair AND o.dimension = findings.dimension) WHERE pair = ?",
            [(number,) for number in {number for number, _ in cases}],
        )

    def _brief(self, number: int) -> Pair:
        """Enter what a list shows of a pair."""
        key, task, one, two, *names, labels, metadata = self._db.execute(
            "SELECT key, instruction, output_1, output_2, name, model_1, model_2, labels, metadata FROM pairs"
            " WHERE id = ?",
            (number,),
        ).fetchone()
        pair = Pair(task, one, two, names[0], names[1], names[2], json.loads(labels), json.loads(metadata))
        self._db.execute(
            "INSERT OR REPLACE INTO briefs VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
            (number, key, pair.id, task[:_EXCERPT], pair.model_1, pair.model_2, len(one), len(two)),
        )
        self._db.execute("DELETE FROM facets WHERE pair = ?", (number,))
        fields = {**_scalars(pair.metadata), **{("model", name): None for name in names[1:] if name}}
        self._db.executemany("INSERT INTO facets VALUES (?, ?, ?)", [(*field, number) for field in fields])
        return pair

    def _enter(self, judge: int, number: int, pair: Pair, dimensions: Sequence[str], known: Known) -> None:
        found = Judgment.of(pair, self._hearings(judge, dimensions, number)).findings
        gap = len(pair.output_1) - len(pair.output_2)
        self._db.executemany(
            f"INSERT OR REPLACE INTO findings VALUES ({', '.join('?' * 17)})",
            [
                (judge, dimension, number, *_row(finding), known(pair, dimension), 0, gap)
                for dimension, finding in found.items()
            ],
        )


def _of_file(pair: Pair, dimension: str) -> Side | None:
    return known_label(pair.labels, dimension)


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
