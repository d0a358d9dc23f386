"""The table of outcomes: what each dimension of each pair came to, written with the verdicts that it rests on.

A pair has outcomes as soon as its conversations have come to an end, with all questions answered or an answer that
could not be read, or one of them has failed. `refresh` makes them again from the verdicts, inside the transaction
that wrote those; made at once or step by step, the table is the same. What lists and statistics want of a pair
besides (its cluster, lengths and models, what people said) stands in small tables, so that no text is read.

The numbers of all outcomes of a pair stand once more in one value of `packed`, which is what blocks are made of:
one value is read about as fast as one row. It is written and deleted with the rows, here and in `JudgeBook` alone.
"""

from __future__ import annotations

import json
import math
import sqlite3
import struct
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from itertools import chain, groupby
from operator import itemgetter
from typing import TYPE_CHECKING, Any

import orjson

from evenhand.core.judge import Conversation, Judgment
from evenhand.core.outcome import OutcomeRow, cluster_number, leading, outcome_row
from evenhand.core.pair import Pair, Side
from evenhand.core.protocol import Order
from evenhand.core.suspicion import KINDS, suspicious_kinds
from evenhand.core.verdict import SIDES, Verdict, found_on
from evenhand.core.votes import KeptVote, known_labels
from evenhand.store.attacked import ATTACKED, attacked_numbers
from evenhand.store.rows import AMONG, PAIR_COLUMNS, absent, stored_pair, to_json, verdict_from

if TYPE_CHECKING:  # numpy takes a third of a second, which a run of a slow judge need not pay
    from evenhand.core.columns import Block, Outcomes

_NOTHING_KNOWN = -1.0  # in the column `uncertainty`; a NULL would not compare
_LONGEST_VALUE = 120  # a metadata value that is longer is a text, not something to filter by
_AT_ONCE = 500  # pairs that are refreshed in one transaction
_SIGNED = 1 << 63
_NAN = math.nan
PACKED = OutcomeRow._fields[1:6]  # what `packed` has of each dimension, in doubles: said, p_1, p_2, p_tie, mass
_SUSPICIOUS = "suspicious"  # the field of text that seems to speak to the judge
Progress = Callable[[int, int], None]
PairColumns = tuple[Any, Any, Any, Any, Any, Any, Any]  # of a block: key, cluster, models, lengths, candidate


class OutcomeTable:
    """The outcomes of one store: `store.outcomes`; `refresh` and `enter_pairs` are called inside a transaction."""

    def __init__(self, db: sqlite3.Connection, writing: Callable[[], AbstractContextManager[None]]) -> None:
        self._db, self._writing = db, writing
        self._dimensions: dict[int, tuple[str, ...]] = {}

    # -- pairs -----------------------------------------------------------------------------------

    def enter_pairs(self, pairs: Sequence[tuple[int, Pair]]) -> None:
        """Keep what lists and statistics want of pairs, under their numbers; what stood there is replaced."""
        self._db.executemany(
            "INSERT OR REPLACE INTO pair_columns VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
            [
                (
                    *(number, _signed(leading(pair.key)), _signed(cluster_number(pair.instruction))),
                    *(pair.model_1, pair.model_2, len(pair.output_1), len(pair.output_2), pair.candidate),
                )
                for number, pair in pairs
            ],
        )
        numbers = [(number,) for number, _ in pairs]
        self._db.executemany("DELETE FROM facets WHERE pair = ?", numbers)
        self._db.executemany(
            "INSERT INTO facets VALUES (?, ?, ?)",
            [(*field, number) for number, pair in pairs for field in fields_of(pair)],
        )
        self._enter_known(pairs)

    def _enter_known(self, pairs: Sequence[tuple[int, Pair]]) -> None:
        """What people say of pairs, by their files and by the labels that are kept."""
        said = self._labels({pair.key for _, pair in pairs})
        rows = [
            (number, dimension, side)
            for number, pair in pairs
            for dimension, side in known_labels(pair, *said.get(pair.key, ())).items()
        ]
        self._db.executemany("DELETE FROM known WHERE pair = ?", [(number,) for number, _ in pairs])
        self._db.executemany("INSERT INTO known VALUES (?, ?, ?)", rows)

    def _labels(self, keys: Iterable[str]) -> dict[str, tuple[list[KeptVote], list[KeptVote]]]:
        """What is kept of each key: votes, and what adjudicators decided."""
        found: dict[str, tuple[list[KeptVote], list[KeptVote]]] = {}
        if self._db.execute("SELECT 1 FROM labels LIMIT 1").fetchone() is None:
            return found
        rows = self._db.execute(
            f"SELECT pair, role = 'adjudicator', dimension, annotator, side FROM labels WHERE pair IN {AMONG}",
            (to_json(keys),),
        )
        for key, decides, dimension, who, side in rows:
            found.setdefault(key, ([], []))[decides].append((dimension, who, side))
        return found

    def relabel(self, keys: Iterable[str]) -> None:
        """Labels on these texts have changed."""
        rows = self._db.execute(f"SELECT id, {PAIR_COLUMNS} FROM pairs WHERE key IN {AMONG}", (to_json(set(keys)),))
        self._enter_known([(number, stored_pair(columns)) for number, *columns in rows.fetchall()])

    # -- outcomes --------------------------------------------------------------------------------

    def any_failed(self) -> bool:
        """Whether a conversation of any pair has failed."""
        return self._db.execute("SELECT 1 FROM failures LIMIT 1").fetchone() is not None

    def refresh_conversations(
        self, touched: Iterable[int], ended: Iterable[int], *, failed: bool | None = None
    ) -> None:
        """Conversations were written to, and some of them came to an end: make the outcomes of their pairs.

        A pair of which a conversation has failed has outcomes already, and what is answered later belongs in them.
        `failed` says whether there was such a one, where that is known.
        """
        if not (self.any_failed() if failed is None else failed):
            if ended := list(ended):
                self.refresh(self._db.execute(_ENDED_PAIRS, (to_json(ended),)).fetchall())
            return
        rows = self._db.execute(
            "SELECT DISTINCT d.judge, d.pair FROM queue d JOIN judges j ON j.id = d.judge"
            f" WHERE d.conversation IN {AMONG}"
            f" AND (d.conversation IN {AMONG}"
            " OR EXISTS (SELECT 1 FROM outcomes o WHERE o.judge = d.judge AND o.pair = d.pair"
            " AND o.dimension = json_extract(j.dimensions, '$[0]')))",
            (to_json(touched), to_json(ended)),
        )
        self.refresh(rows.fetchall())

    def forget_conversations(self, judge: int, conversations: Sequence[int]) -> None:
        """Forget the outcomes of the pairs that rest on these conversations."""
        rows = self._db.execute(
            f"SELECT DISTINCT pair FROM queue WHERE judge = ? AND conversation IN {AMONG}",
            (judge, to_json(conversations)),
        )
        pairs = [pair for (pair,) in rows.fetchall()]
        self._forget(judge, pairs)
        self.mark_splits(pairs)

    def refresh_if_any(self, judge: int, pairs: Sequence[int]) -> None:
        """Refresh the outcomes of those pairs that have some."""
        dimension = self._dimensions_of(judge)[0]
        rows = self._db.execute(
            f"SELECT judge, pair FROM outcomes WHERE judge = ? AND dimension = ? AND pair IN {AMONG}",
            (judge, dimension, to_json(pairs)),
        )
        self.refresh(rows.fetchall())

    def refresh(self, jobs: Iterable[tuple[int, int]]) -> None:
        """Make the outcomes of pairs again: (judge, pair)."""
        by_judge: dict[int, list[int]] = {}
        for judge, pair in jobs:
            by_judge.setdefault(judge, []).append(pair)
        for judge, pairs in by_judge.items():
            self._refresh(judge, pairs)

    def _refresh(self, judge: int, pairs: Sequence[int]) -> None:
        dimensions = self._dimensions_of(judge)
        rows = self._db.execute(_OF_PAIRS, (judge, to_json(pairs)))
        made: list[tuple[Any, ...]] = []
        packed: list[tuple[int, int, bytes]] = []
        unfinished: list[int] = []
        for pair, judged in groupby(rows, key=itemgetter(0)):
            conversations, ended = conversations_of(dimensions, judged)
            if not ended:
                unfinished.append(pair)
                continue
            found = Judgment.outcomes_of(conversations)
            outcomes = [outcome_row(found[name]) for name in found_on(dimensions)]
            made += [(judge, row.dimension, pair, *row[1:], _uncertainty(row)) for row in outcomes]
            packed.append((judge, pair, pack_outcomes(outcomes)))
        self._forget(judge, unfinished)
        self._db.executemany(_INSERT, made)
        self._db.executemany("INSERT OR REPLACE INTO packed VALUES (?, ?, ?)", packed)
        if self._db.execute("SELECT count(*) FROM judges").fetchone()[0] > 1:
            self.mark_splits(pairs)

    def _forget(self, judge: int, pairs: Sequence[int]) -> None:
        if pairs:
            self._db.executemany(
                "DELETE FROM outcomes WHERE judge = ? AND dimension = ? AND pair = ?",
                [(judge, name, pair) for name in found_on(self._dimensions_of(judge)) for pair in pairs],
            )
            self._db.executemany(
                "DELETE FROM packed WHERE judge = ? AND pair = ?", [(judge, pair) for pair in pairs]
            )

    def mark_splits(self, pairs: Sequence[int]) -> None:
        """Note where judges differ; with one judge, nowhere."""
        judges = [number for (number,) in self._db.execute("SELECT id FROM judges")]
        if len(judges) < 2:
            self._db.execute("UPDATE outcomes SET split = 0 WHERE split")
            return
        wanted = [
            (judge, dimension, pair)
            for judge in judges
            for dimension in found_on(self._dimensions_of(judge))
            for pair in pairs
        ]
        self._db.executemany(_SPLIT, wanted)

    def _dimensions_of(self, judge: int) -> tuple[str, ...]:
        if judge not in self._dimensions:
            (text,) = self._db.execute("SELECT dimensions FROM judges WHERE id = ?", (judge,)).fetchone()
            self._dimensions[judge] = tuple(json.loads(text))
        return self._dimensions[judge]

    # -- bringing up to date ---------------------------------------------------------------------

    def waiting(self) -> int:
        """How many pairs of an older file are still to be brought up to date."""
        (count,) = self._db.execute("SELECT count(*) FROM dirty").fetchone()
        return int(count)

    def bring_up_to_date(self, on_progress: Progress | None = None) -> int:
        """Make everything of the pairs that are marked dirty; may be killed at any moment, and called again."""
        total = self.waiting()
        done = 0
        while done < total:
            with self._writing():
                some = [n for (n,) in self._db.execute("SELECT pair FROM dirty ORDER BY pair LIMIT ?", (_AT_ONCE,))]
                if not some:
                    break
                self._rebuild(some)
                self._db.execute(f"DELETE FROM dirty WHERE pair IN {AMONG}", (to_json(some),))
            done += len(some)
            if on_progress:
                on_progress(done, total)
        return done

    def _rebuild(self, pairs: Sequence[int]) -> None:
        packed = self._pack(pairs)
        pairs = [pair for pair in pairs if pair not in packed]
        if not pairs:
            return
        rows = self._db.execute(f"SELECT id, {PAIR_COLUMNS} FROM pairs WHERE id IN {AMONG}", (to_json(pairs),))
        self.enter_pairs([(number, stored_pair(columns)) for number, *columns in rows.fetchall()])
        jobs = self._db.execute(
            f"SELECT DISTINCT judge, pair FROM queue WHERE pair IN {AMONG}",
            (to_json(pairs),),
        )
        self.refresh(jobs.fetchall())

    def _pack(self, pairs: Sequence[int]) -> set[int]:
        """Pack the numbers of those pairs whose outcomes are kept already, and tell which these are.

        They have columns of their own, which come with the outcomes, and a row on every dimension or on none. One
        that was packed before is dirty for another reason, and is refreshed.
        """
        rows = self._db.execute(
            f"SELECT pair FROM pair_columns WHERE pair IN {AMONG}"
            " AND NOT EXISTS (SELECT 1 FROM judges JOIN packed ON packed.judge = judges.id"
            " AND packed.pair = pair_columns.pair)",
            (to_json(pairs),),
        )
        whole = {pair for (pair,) in rows}
        made: list[tuple[int, int, bytes]] = []
        for (judge,) in self._db.execute("SELECT id FROM judges").fetchall():
            names = found_on(self._dimensions_of(judge))
            kept = [{row[0]: row for row in self._rows(judge, name, whole)} for name in names]
            every = set().union(*kept)
            here = every.intersection(*kept)
            whole -= every - here
            made += [(judge, pair, pack_outcomes(each[pair] for each in kept)) for pair in here]
        self._db.executemany("INSERT OR REPLACE INTO packed VALUES (?, ?, ?)", made)
        return whole

    def _rows(self, judge: int, dimension: str, pairs: Iterable[int]) -> list[tuple[Any, ...]]:
        """What is kept on one dimension of some pairs: their numbers, and the columns that are packed."""
        return self._db.execute(
            f"SELECT pair, {', '.join(PACKED)} FROM outcomes WHERE judge = ? AND dimension = ? AND pair IN {AMONG}",
            (judge, dimension, to_json(pairs)),
        ).fetchall()

    # -- reading ---------------------------------------------------------------------------------

    def blocks(
        self, judge: int, *, metadata: bool = False, attacked: bool = False, size: int = 16_384
    ) -> Iterator[Block]:
        """Every pair that a judge has brought to an end, in blocks, in the order of their numbers.

        Pairs that were attacked are left out unless they are asked for.
        """
        dimensions = found_on(self._dimensions_of(judge))
        apart = () if attacked else attacked_numbers(self._db)
        after = -1
        while True:
            with self._one_moment():
                found = self._block(judge, dimensions, after, size, metadata)
            if found is None:
                self._check_number(judge, dimensions[0])
                return
            after = int(found.number[-1])
            if len(found := _without(found, apart)):
                yield found

    def _check_number(self, judge: int, dimension: str) -> None:
        """Check that as many pairs are packed as have outcomes: a damaged file may have lost one."""
        packed, kept = self._db.execute(
            "SELECT (SELECT count(*) FROM packed WHERE judge = ?),"
            " (SELECT count(*) FROM outcomes WHERE judge = ? AND dimension = ?)",
            (judge, judge, dimension),
        ).fetchone()
        if packed != kept:
            raise ValueError(f"{kept} pairs have outcomes, and the numbers of {packed} are packed")

    @contextmanager
    def _one_moment(self) -> Iterator[None]:
        """Read everything as it is now: otherwise a run in progress could be in one column and not in the next."""
        if self._db.in_transaction:
            yield
            return
        self._db.execute("BEGIN")
        try:
            yield
        finally:
            self._db.execute("COMMIT")

    def _block(self, judge: int, dimensions: Sequence[str], after: int, size: int, metadata: bool) -> Block | None:
        import numpy as np

        from evenhand.core.columns import Block, are_possible

        rows = self._db.execute(
            "SELECT pair, numbers FROM packed WHERE judge = ? AND pair > ? ORDER BY pair LIMIT ?",
            (judge, after, size),
        )
        values = list(chain.from_iterable(rows))  # a fifth faster than rows that are taken apart
        if not values:
            return None
        pairs, packed = values[::2], values[1::2]
        numbers, span = np.array(pairs, dtype=np.int64), (after, pairs[-1])
        tables = np.frombuffer(b"".join(packed), dtype="<f8").reshape(len(pairs), len(dimensions), len(PACKED))
        flat = tables.reshape(-1, len(PACKED))
        if not are_possible(flat[:, 0], flat[:, 1:4], flat[:, 4]):
            raise ValueError(f"no outcomes of pairs {pairs[0]} to {pairs[-1]} can have these numbers")
        return Block(
            numbers,
            *self._pair_columns(numbers, span),
            self._known(numbers, span),
            {
                name: self._outcomes(judge, name, numbers, np.ascontiguousarray(tables[:, place]))
                for place, name in enumerate(dimensions)
            },
            self._metadata(numbers, span) if metadata else None,
            suspicious=self._suspicious(numbers, span),
        )

    def _pair_columns(self, numbers: Any, span: tuple[int, int]) -> PairColumns:
        """What is kept of the pairs themselves, as a block has it: from their keys to the candidate's side."""
        import numpy as np

        from evenhand.core.columns import Words

        where = "FROM pair_columns WHERE pair > ? AND pair <= ?"
        # Each column in one text of numbers: half the time that a row for each pair takes. SQLite says nothing of
        # their order, which is the same in all of them.
        columns = ", ".join(f"group_concat({name})" for name in ("pair", "key", "cluster", "length_1", "length_2"))
        texts = self._db.execute(f"SELECT {columns} {where}", span).fetchone()
        pair, *rest = (np.fromstring(text, dtype=np.int64, sep=",") for text in texts)
        order = np.argsort(pair, kind="stable")
        here = np.searchsorted(pair, numbers, sorter=order)
        if {len(column) for column in rest} != {len(pair)} or not np.array_equal(pair[order[here]], numbers):
            raise ValueError(f"what is kept of pairs {numbers[0]} to {numbers[-1]} is not whole")
        key, cluster, length_1, length_2 = (column[order[here]] for column in rest)
        names = f"model_1, model_2, candidate {where}"
        words = self._db.execute(f"SELECT DISTINCT {names} LIMIT 2", span).fetchall()
        if len(words) == 1:  # as where two models are compared: no need to read the same words for each pair
            model_1, model_2, candidate = (Words((word,), np.zeros(len(here), dtype=np.int32)) for word in words[0])
        else:
            each = self._db.execute(f"SELECT {names} ORDER BY pair", span).fetchall()
            model_1, model_2, candidate = (Words.of(column).take(here) for column in zip(*each, strict=True))
        return key.view(np.uint64), cluster.view(np.uint64), model_1, model_2, length_1, length_2, candidate

    def _outcomes(self, judge: int, dimension: str, numbers: Any, table: Any) -> Outcomes:
        """The outcomes of one dimension; words are read where there is no verdict."""
        import numpy as np

        from evenhand.core.columns import Outcomes, Words

        words = Words((), np.full(len(numbers), -1, dtype=np.int32))
        without = np.flatnonzero(np.isnan(table[:, 1]))
        if len(without):
            rows = self._db.execute(
                "SELECT pair, reason FROM outcomes WHERE judge = ? AND dimension = ? AND pair >= ? AND pair <= ?"
                " AND p_1 IS NULL",
                (judge, dimension, int(numbers[without[0]]), int(numbers[without[-1]])),
            )
            reasons = Words.of(map(dict(rows).__getitem__, numbers[without].tolist()))
            words = Words(reasons.words, words.codes)
            words.codes[without] = reasons.codes
        return Outcomes.of(table[:, 0].astype(np.int64), table[:, 1:4], table[:, 4], words)

    def _known(self, numbers: Any, span: tuple[int, int]) -> Any:
        """What people said of the pairs, as JSON by dimension."""
        import numpy as np

        from evenhand.core.columns import Words

        labels: dict[int, dict[str, str]] = {}
        rows = self._db.execute(
            "SELECT pair, dimension, side FROM known WHERE pair > ? AND pair <= ? AND side IS NOT NULL"
            " ORDER BY pair, dimension",
            span,
        )
        for pair, dimension, side in rows:
            labels.setdefault(pair, {})[dimension] = side
        if not labels:
            return Words(("{}",), np.zeros(len(numbers), dtype=np.int32))
        return Words.of(orjson.dumps(labels.get(pair, {})).decode() for pair in numbers.tolist())

    def _suspicious(self, numbers: Any, span: tuple[int, int]) -> Any:
        """Which of the pairs seem to speak to the judge, as they were found to when they came."""
        import numpy as np

        rows = self._db.execute(
            f"SELECT pair FROM facets WHERE field = ? AND value IN {AMONG} AND pair > ? AND pair <= ?",
            (_SUSPICIOUS, to_json(KINDS), *span),
        )
        return np.isin(numbers, [pair for (pair,) in rows])

    def _metadata(self, numbers: Any, span: tuple[int, int]) -> Any:
        from evenhand.core.columns import Words

        texts = dict(self._db.execute("SELECT id, metadata FROM pairs WHERE id > ? AND id <= ?", span))
        return Words.of(texts[number] for number in numbers.tolist())

    def voted(self) -> Iterator[tuple[int, Pair]]:
        """Every pair that people have said something of, with its number; an attacked one has another's labels."""
        rows = self._db.execute(
            f"SELECT id, {PAIR_COLUMNS} FROM pairs WHERE id IN (SELECT pair FROM known)"
            f" AND id NOT IN ({ATTACKED}) ORDER BY id"
        )
        return ((number, stored_pair(columns)) for number, *columns in rows)

    def unfinished(self, judge: int) -> int:
        """How many pairs a judge was given and has not brought to an end: not asked, or asked in part."""
        dimension = self._dimensions_of(judge)[0]
        (count,) = self._db.execute(
            "SELECT (SELECT count(*) FROM (SELECT 1 FROM queue WHERE judge = ? GROUP BY pair))"
            " - (SELECT count(*) FROM outcomes WHERE judge = ? AND dimension = ?)",
            (judge, judge, dimension),
        ).fetchone()
        return int(count)


# What is known of the conversations of a judge, pair by pair; `conversations_of` reads the rows of one.
SAID_BY_JUDGE = (
    'SELECT d.pair, d."order", v.dimension, v.label, v.p_a, v.p_b, v.p_tie, v.mass, v.invalid, v.counted,'
    " f.reason, f.detail FROM queue d LEFT JOIN verdicts v ON v.conversation = d.conversation"
    " LEFT JOIN failures f ON f.conversation = d.conversation WHERE d.judge = ?"
)
IN_ORDER = ' ORDER BY d.pair, d."order"'
# Pairs of conversations that came to an end, and of which none is still under way.
_ENDED_PAIRS = (
    f"SELECT DISTINCT d.judge, d.pair FROM queue d WHERE d.conversation IN {AMONG}"
    " AND NOT EXISTS (SELECT 1 FROM queue e JOIN claims c ON c.conversation = e.conversation"
    " WHERE e.judge = d.judge AND e.pair = d.pair)"
)
_OF_PAIRS = f"{SAID_BY_JUDGE} AND d.pair IN {AMONG}{IN_ORDER}"
_SPLIT = (
    "UPDATE outcomes SET split = EXISTS (SELECT 1 FROM judges j CROSS JOIN outcomes o ON o.judge = j.id"
    " AND o.dimension = outcomes.dimension AND o.pair = outcomes.pair WHERE o.side <> outcomes.side)"
    " WHERE judge = ? AND dimension = ? AND pair = ?"
)
_INSERT = (
    "INSERT OR REPLACE INTO outcomes (judge, dimension, pair, said, p_1, p_2, p_tie, mass, reason, uncertainty)"
    " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
)


def conversations_of(
    dimensions: Sequence[str], rows: Iterable[Sequence[Any]]
) -> tuple[dict[Order, Conversation], bool]:
    """The verdicts of a pair by order, and whether it has ended: all conversations have, or one has failed.

    What is not there is invalid, with the reason that is known.
    """
    read: dict[Order, dict[str, Verdict]] = {}
    why: dict[Order, tuple[str | None, str | None]] = {}
    for _, order, dimension, *columns, reason, detail in rows:
        verdicts = read.setdefault(order, {})
        why[order] = (reason, detail)
        if dimension is not None:
            verdicts[dimension] = verdict_from(dimension, *columns)
    failed = any(reason is not None for reason, _ in why.values())
    ended = failed or all(_has_ended(verdicts, len(dimensions)) for verdicts in read.values())
    return {order: _conversation(dimensions, verdicts, *why[order]) for order, verdicts in read.items()}, ended


def _has_ended(verdicts: Mapping[str, Verdict], asked: int) -> bool:
    return len(verdicts) >= asked or any(verdict.label is None for verdict in verdicts.values())


def _conversation(
    dimensions: Sequence[str], verdicts: Mapping[str, Verdict], reason: str | None, detail: str | None
) -> Conversation:
    if len(verdicts) < len(dimensions):
        return Conversation({**absent(dimensions, reason, detail), **verdicts})
    return Conversation({name: verdicts[name] for name in dimensions})


def pack_outcomes(rows: Iterable[Sequence[Any]]) -> bytes:
    """The numbers of a pair's outcomes, one after the other, the first value of each row left out; NaN for none."""
    numbers = [_NAN if number is None else number for row in rows for number in row[1 : 1 + len(PACKED)]]
    return struct.pack(f"<{len(numbers)}d", *numbers)


def _uncertainty(row: OutcomeRow) -> float:
    """How undecided probabilities are, for the column that lists are sorted by."""
    if row.p_1 is None or row.p_2 is None or row.p_tie is None:
        return _NOTHING_KNOWN
    return entropy((row.p_1, row.p_2, row.p_tie))


def uncertainty(p: Mapping[Side, float] | None) -> float | None:
    """How undecided probabilities are, from 0 (certain) to 1 (all three alike): entropy over its largest value.

    Shannon (1948), "A Mathematical Theory of Communication", section 6.

    >>> uncertainty({"1": 1.0, "2": 0.0, "tie": 0.0}), round(uncertainty({"1": 0.5, "2": 0.5, "tie": 0.0}), 2)
    (0.0, 0.63)
    """
    return None if p is None else entropy([p[side] for side in SIDES])


def entropy(shares: Iterable[float]) -> float:
    """The entropy of three shares, over the largest that it can be."""
    return abs(sum(-x * math.log(x) for x in shares if x > 0) / math.log(len(SIDES)))


def _without(block: Block, apart: Sequence[int]) -> Block:
    """A block without the pairs of these numbers."""
    if not apart:
        return block
    import numpy as np

    stays = np.isin(block.number, apart, invert=True)
    return block if stays.all() else block.take(np.flatnonzero(stays))


def fields_of(pair: Pair) -> Iterator[tuple[str, str]]:
    """What pairs can be filtered by: metadata that are a short text, a number, a yes or no; models; suspicions."""
    found: dict[tuple[str, str], None] = {}
    for field, value in pair.metadata.items():
        if isinstance(value, (str, int, float)) and value == value:  # NaN says nothing
            text = json.dumps(value) if isinstance(value, bool) else str(value)
            if 0 < len(text) <= _LONGEST_VALUE:
                found[str(field), text] = None
    found |= {("model", name): None for name in (pair.model_1, pair.model_2) if name}
    found |= {(_SUSPICIOUS, kind): None for kind in suspicious_kinds(pair)}
    return iter(found)


def is_dirty(db: sqlite3.Connection) -> bool:
    """Whether some pairs are still to be brought up to date."""
    return db.execute("SELECT 1 FROM dirty LIMIT 1").fetchone() is not None


def _signed(number: int) -> int:
    """Eight bytes as SQLite keeps them."""
    return number - (1 << 64) if number >= _SIGNED else number
