"""Verdicts made out of those of other judges: read and stored in bulk, and made again where those changed."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from operator import itemgetter
from typing import Any

from evenhand.core.engine import Answer, Usage
from evenhand.core.judge import Conversation, Judgment
from evenhand.core.pair import COMBINED, Pair, digest
from evenhand.core.protocol import Order
from evenhand.core.verdict import Outcome, Verdict, log_odds
from evenhand.store.book import Book, SharedTables
from evenhand.store.outcomes import IN_ORDER, SAID_BY_JUDGE, conversations_of
from evenhand.store.queue import Queue
from evenhand.store.rows import AMONG, PAIR_COLUMNS, answer_row, stored_pair, to_json, verdict_row
from evenhand.store.schema import clearly


@dataclass(frozen=True, slots=True)
class MadeVerdicts:
    """What is made of one pair: verdicts and a word about them by order, under the names of the conversations."""

    pair: Pair
    keys: Mapping[Order, str]
    verdicts: Mapping[Order, Sequence[Verdict]]
    word: str

    def judgment(self) -> Judgment:
        """What the verdicts come to."""
        said = {order: {one.dimension: one for one in verdicts} for order, verdicts in self.verdicts.items()}
        return Judgment.of(self.pair, {order: Conversation(verdicts) for order, verdicts in said.items()})


class MadeBook(Book):
    """The made verdicts of one store: `store.made`.

    >>> from evenhand.store import Store
    >>> with Store(":memory:") as store:
    ...     store.made.numbers([Pair("Hi", "x", "y")])
    [None]
    """

    def __init__(self, shared: SharedTables, queue: Queue) -> None:
        super().__init__(shared)
        self._queue = queue

    # -- reading ---------------------------------------------------------------------------------

    def numbers(self, pairs: Sequence[Pair]) -> list[int | None]:
        """The numbers of pairs; None for one that is not here."""
        rows = self._rows(
            "SELECT p.name, p.key, p.id FROM json_each(?) w CROSS JOIN pairs p"
            " ON p.name = json_extract(w.value, '$[0]') AND p.key = json_extract(w.value, '$[1]')",
            to_json([pair.id, pair.key] for pair in pairs),
        )
        found = {(name, key): int(number) for name, key, number in rows}
        return [found.get((pair.id, pair.key)) for pair in pairs]

    def outcomes(
        self, judge: int, dimensions: Sequence[str], pairs: Sequence[int]
    ) -> dict[int, dict[str, Outcome]]:
        """What a judge said of pairs, by their numbers, where it has come to an end or failed."""
        with clearly(self.path):
            rows = self._db.execute(f"{SAID_BY_JUDGE} AND d.pair IN {AMONG}{IN_ORDER}", (judge, to_json(pairs)))
            found: dict[int, dict[str, Outcome]] = {}
            for pair, judged in groupby(rows, key=itemgetter(0)):
                conversations, ended = conversations_of(dimensions, judged)
                if ended:
                    found[pair] = Judgment.outcomes_of(conversations)
        return found

    def log_odds(self, fingerprint: str, texts: tuple[str, str, str]) -> dict[str, float] | None:
        """How far a judge sees the first of two responses ahead, by dimension; None where it was not asked.

        The pair may be kept with its sides the other way round, or both ways; then it is the mean of the two, so
        that exchanged texts give the opposite number, always.
        """
        task, one, two = texts
        here, there = (self._log_odds(fingerprint, digest(task, *shown)) for shown in ((one, two), (two, one)))
        turned = None if there is None else {name: -value for name, value in there.items()}
        if here is None or turned is None:
            return turned if here is None else here
        both = {**turned, **here}
        return {name: (both[name] + turned.get(name, both[name])) / 2 for name in both}

    def _log_odds(self, fingerprint: str, key: str) -> dict[str, float] | None:
        rows = self._rows(
            "SELECT o.dimension, o.p_1, o.p_2 FROM judges j CROSS JOIN pairs p"
            " CROSS JOIN json_each(json_insert(j.dimensions, '$[#]', ?)) d"
            " CROSS JOIN outcomes o ON o.judge = j.id AND o.dimension = d.value AND o.pair = p.id"
            " WHERE j.fingerprint = ? AND p.key = ?",
            *(COMBINED, fingerprint, key),
        )
        if not rows:
            return None
        return {name: log_odds({"1": p_1, "2": p_2}) for name, p_1, p_2 in rows if p_1 is not None}

    def pairs(self, judges: Sequence[int], size: int = 500) -> Iterator[list[Pair]]:
        """Every pair that was given to any of these judges, a few hundred at a time."""
        query = (
            f"SELECT id, {PAIR_COLUMNS} FROM pairs WHERE id > ? AND id IN"
            f" (SELECT pair FROM queue WHERE judge IN {AMONG}) ORDER BY id LIMIT ?"
        )
        after, given = -1, to_json(judges)
        while rows := self._rows(query, after, given, size):
            after = rows[-1][0]
            yield [stored_pair(columns) for _, *columns in rows]

    def words(self, judge: int) -> Iterator[tuple[int, Mapping[str, Any]]]:
        """The word that is kept about each pair of a made judge, in the order of the pairs' numbers."""
        with clearly(self.path):
            rows = self._db.execute(
                "SELECT d.pair, min(a.text) FROM queue d JOIN answers a ON a.conversation = d.conversation"
                " WHERE d.judge = ? GROUP BY d.pair ORDER BY d.pair",
                (judge,),
            )
            for pair, text in rows:
                yield pair, json.loads(text)

    def word(self, judge: int, pair: int) -> Mapping[str, Any] | None:
        """The word that is kept about one pair of a made judge."""
        row = self._row(
            "SELECT a.text FROM queue d JOIN answers a ON a.conversation = d.conversation"
            " WHERE d.judge = ? AND d.pair = ? LIMIT 1",
            *(judge, pair),
        )
        return None if row is None else json.loads(row[0])

    def without_verdict(self, judge: int, reason: str) -> list[str]:
        """The keys of the pairs of a made judge that have no verdict for this reason."""
        rows = self._rows(
            "SELECT DISTINCT p.key, p.id FROM outcomes o JOIN pairs p ON p.id = o.pair"
            " WHERE o.judge = ? AND o.reason = ? ORDER BY p.id",
            *(judge, reason),
        )
        return [key for key, _ in rows]

    def usage(self, judge: int, made: int) -> tuple[Usage, int]:
        """The tokens of a judge's answers on the pairs of a made one, and on how many of them it has answered."""
        *tokens, pairs = self._row(
            "SELECT coalesce(sum(a.computed), 0), coalesce(sum(a.reused), 0), coalesce(sum(a.generated), 0),"
            " count(DISTINCT d.pair) FROM (SELECT DISTINCT pair, conversation FROM queue WHERE judge = ?"
            " AND pair IN (SELECT pair FROM queue WHERE judge = ?)) d"
            " JOIN answers a ON a.conversation = d.conversation",
            *(judge, made),
        )
        return Usage(*tokens), int(pairs)

    # -- writing ---------------------------------------------------------------------------------

    def keep(self, judge: int, made: Sequence[MadeVerdicts]) -> int:
        """Keep verdicts in one transaction, those that are new or changed; how many conversations that were."""
        with clearly(self.path):
            changed = self._changed(judge, made)
        if not changed:
            return 0
        with self._writing():
            jobs, claimed = self._queue.enter(judge, 1, [(one.pair, one.keys) for one in changed], {})
            self._db.executemany("DELETE FROM claims WHERE conversation = ?", [(number,) for number in claimed])
            given = {
                job.conversations[order]: (one, verdicts)
                for job, one in zip(jobs, changed, strict=True)
                for order, verdicts in one.verdicts.items()
            }
            self._replace(given)
            rows = self._db.execute(
                f"SELECT DISTINCT judge, pair FROM queue WHERE judge = ? AND conversation IN {AMONG}",
                (judge, to_json(given)),
            )
            self._outcomes.refresh(rows.fetchall())
        return len(given)

    def _changed(self, judge: int, made: Sequence[MadeVerdicts]) -> list[MadeVerdicts]:
        """Those that are new or different."""
        numbers = self.numbers([one.pair for one in made])
        rows = self._db.execute(
            'SELECT d.pair, d."order", d.conversation, a.text FROM queue d JOIN answers a'
            f" ON a.conversation = d.conversation WHERE d.judge = ? AND d.pair IN {AMONG}",
            (judge, to_json(number for number in numbers if number is not None)),
        ).fetchall()
        there = {(pair, order): (conversation, text) for pair, order, conversation, text in rows}
        kept: dict[int, set[tuple[Any, ...]]] = {}
        conversations = to_json({conversation for conversation, _ in there.values()})
        for row in self._db.execute(f"SELECT * FROM verdicts WHERE conversation IN {AMONG}", (conversations,)):
            kept.setdefault(row[0], set()).add(row)

        def same(number: int | None, one: MadeVerdicts, order: Order) -> bool:
            conversation, text = there.get((number, order), (0, ""))
            rows = {verdict_row(conversation, verdict) for verdict in one.verdicts[order]}
            return text == one.word and kept.get(conversation) == rows

        return [
            one
            for number, one in zip(numbers, made, strict=True)
            if not all(same(number, one, order) for order in one.verdicts)
        ]

    def _replace(self, given: Mapping[int, tuple[MadeVerdicts, Sequence[Verdict]]]) -> None:
        for table in ("answers", "verdicts"):
            self._db.execute(f"DELETE FROM {table} WHERE conversation IN {AMONG}", (to_json(given),))
        self._db.executemany(
            "INSERT INTO answers VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
            [answer_row(number, 0, Answer(one.word)) for number, (one, _) in given.items()],
        )
        self._db.executemany(
            "INSERT INTO verdicts VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
            [verdict_row(number, verdict) for number, (_, verdicts) in given.items() for verdict in verdicts],
        )
