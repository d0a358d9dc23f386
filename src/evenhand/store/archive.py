"""What a report reads from the database: how verdicts were made, and single pairs by their names."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from evenhand.core.engine import Answer
from evenhand.core.protocol import Order
from evenhand.store.attacked import ATTACKED
from evenhand.store.book import Book
from evenhand.store.rows import AMONG, answer_from, said_text, to_json
from evenhand.store.schema import clearly

_USED = ("asked", "computed", "reused", "generated")
# What is kept of the answers of runs that have not come to their end.
_CUT_SHORT = """
WITH spans AS (SELECT id, started, ended, lead(started, 1, 9e999) OVER (ORDER BY started, id) AS before
               FROM runs WHERE judge = ?1),
     kept AS (SELECT s.id AS run, count(*) AS asked, sum(a.computed) AS computed, sum(a.reused) AS reused,
                     sum(a.generated) AS generated
              FROM conversations h CROSS JOIN answers a ON a.conversation = h.id
              JOIN spans s ON s.ended IS NULL AND a.created >= s.started AND a.created < s.before
              WHERE h.judge = ?1 AND EXISTS (SELECT 1 FROM spans WHERE ended IS NULL) GROUP BY s.id)
"""


@dataclass(frozen=True, slots=True)
class RunGroup:
    """All runs of one judge with the same settings; times are seconds since 1970, in universal time."""

    settings: Mapping[str, Any]
    runs: int
    started: float  # the first of them
    ended: float | None  # the last of them; None where none has come to its end
    asked: int
    computed: int
    reused: int
    generated: int


@dataclass(frozen=True, slots=True)
class Transcript:
    """One order of a pair: the conversation's key, every answer word for word, and why it did not end."""

    pair: int
    order: Order
    key: str
    answers: tuple[Answer, ...]
    failure: tuple[int, str, str] | None  # ask, reason, detail
    ended: float  # when the last answer or the failure came
    shared: bool  # another pair, or the other order, had the same conversation before


class Archive(Book):
    """The report's view of one store: `store.archive`.

    >>> from evenhand.store import Store
    >>> with Store(":memory:") as store:
    ...     store.archive.runs(1), store.archive.pairs_judged([1]), store.archive.number("x", "key")
    ([], 0, None)
    """

    def runs(self, judge: int, *, together: bool = True) -> list[RunGroup]:
        """The runs of a judge, those with the same settings together unless each is wanted, the earliest first.

        Only a run that ended has entered what it used. One that was killed, or is under way, has the answers that
        came after its start and before that of the next.
        """
        by = "settings" if together else "id"
        used = ", ".join(f"coalesce(sum(coalesce(r.{name}, k.{name})), 0)" for name in _USED)
        rows = self._rows(
            f"{_CUT_SHORT} SELECT settings, count(*), min(started), max(ended), {used}"
            f" FROM runs r LEFT JOIN kept k ON k.run = r.id WHERE r.judge = ?1 GROUP BY {by}"
            " ORDER BY min(started), settings",
            judge,
        )
        return [RunGroup(json.loads(settings), *rest) for settings, *rest in rows]

    def transcripts(self, judge: int) -> Iterator[Transcript]:
        """What a judge said of each pair in each order, in the order of the pairs."""
        with clearly(self.path):
            rows = self._db.execute(
                'SELECT d.pair, d."order", h.key, h.id, f.question, f.reason, f.detail, f.created,'
                " EXISTS (SELECT 1 FROM queue e WHERE e.conversation = d.conversation AND e.judge = d.judge"
                ' AND (e.pair, e."order") < (d.pair, d."order")) FROM queue d'
                " JOIN conversations h ON h.id = d.conversation"
                " LEFT JOIN failures f ON f.conversation = d.conversation"
                ' WHERE d.judge = ? ORDER BY d.pair, d."order"',
                (judge,),
            )
            for pair, order, key, conversation, question, reason, detail, failed, shared in rows:
                said = self._db.execute(
                    "SELECT text, tokens, finish, samples, notes, computed, reused, generated, created FROM answers"
                    " WHERE conversation = ? ORDER BY question",
                    (conversation,),
                ).fetchall()
                answers = tuple(answer_from(*columns) for *columns, _ in said)
                ended = max([failed or 0.0, *(created for *_, created in said)])
                failure = None if question is None else (question, reason, detail)
                yield Transcript(pair, order, key, answers, failure, ended, bool(shared))

    def said(self, judge: int, pair: int) -> dict[Order, tuple[str, ...]]:
        """What a judge answered about one pair, word for word: by order, one answer for each question.

        Where it was asked several times, all of that stands in one text.
        """
        rows = self._rows(
            'SELECT d."order", a.text, a.samples FROM queue d JOIN answers a ON a.conversation = d.conversation'
            ' WHERE d.judge = ? AND d.pair = ? ORDER BY d."order", a.question',
            *(judge, pair),
        )
        found: dict[Order, tuple[str, ...]] = {}
        for order, text, samples in rows:
            found[order] = (*found.get(order, ()), said_text(text, samples))
        return found

    def example(self, judge: int, reason: str) -> str:
        """What a judge said, or what went wrong, where a verdict is missing for this reason; empty if unknown.

        An answer that could not be read is the last of its conversation: nothing is asked behind it.
        """
        row = self._row(
            "SELECT f.detail, '[]' FROM conversations c JOIN failures f ON f.conversation = c.id"
            " WHERE c.judge = ? AND f.reason = ? UNION ALL "
            "SELECT a.text, a.samples FROM conversations c JOIN verdicts v ON v.conversation = c.id"
            " JOIN answers a ON a.conversation = c.id WHERE c.judge = ? AND v.invalid = ?"
            " AND a.question = (SELECT max(question) FROM answers WHERE conversation = c.id) LIMIT 1",
            *(judge, reason, judge, reason),
        )
        return said_text(*row) if row else ""

    def pairs_judged(self, judges: Sequence[int]) -> int:
        """How many pairs at least one of these judges has judged, without those that were attacked."""
        exists = f"EXISTS (SELECT 1 FROM queue d WHERE d.pair = p.id AND d.judge IN {AMONG})"
        as_it_was = f"p.id NOT IN ({ATTACKED})"
        (count,) = self._row(f"SELECT count(*) FROM pairs p WHERE {exists} AND {as_it_was}", to_json(judges))
        return int(count)

    def number(self, name: str, key: str) -> int | None:
        """The number of the pair with this id and these texts."""
        row = self._db.execute("SELECT id FROM pairs WHERE name = ? AND key = ?", (name, key)).fetchone()
        return None if row is None else int(row[0])
