"""One row for each pair: its texts, what each order said, and the outcomes, which statistics read alone.

Outcomes are made once, when the row is written, and have the columns of `OutcomeRow`, as in a database. Texts and
answers are columns of their own, so that whoever counts never reads them. What statistics want of the texts (which
instruction it is, how long the responses are, what people said) stands beside them.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from functools import cache
from itertools import accumulate
from typing import Any

import orjson

from evenhand.core.engine import Answer, Usage
from evenhand.core.judge import Conversation as JudgedConversation
from evenhand.core.judge import Judgment
from evenhand.core.outcome import OutcomeRow, cluster_number, outcome_row
from evenhand.core.pair import GOOD_1, GOOD_2, Pair, digest
from evenhand.core.protocol import ORDERS, Order
from evenhand.core.verdict import Verdict
from evenhand.core.votes import known_labels
from evenhand.io.files.arrow import pyarrow
from evenhand.store.rows import answer_from, answer_row, pair_about, verdict_from, verdict_row

FORM = "2"  # of the columns that are written
OLD_FORM = "1"  # without outcomes, which are made while reading
NEW_COLUMNS = ("candidate", "known", "outcomes")  # that the old form has not
OLD_NAMES = {"conversations": "hearings"}  # what the old form calls a column
_OLD_DIMENSIONS = {"alone": GOOD_1, "beside": GOOD_2}
# Why rows of the old form have no outcomes: a run was stopped in the middle of them.
_BROKEN_OFF = {"stopped", "budget"}
_ANSWER = ("question", "text", "tokens", "finish", "samples", "notes", "computed", "reused", "generated", "created")
_VERDICT = ("dimension", "label", "p_a", "p_b", "p_tie", "mass", "invalid")


@dataclass(frozen=True, slots=True)
class Failure:
    """Why a conversation was not brought to its end."""

    question: int
    reason: str
    detail: str = ""


@dataclass(frozen=True, slots=True)
class OrderRecord:
    """One order of a pair: the conversation's key, its answers, a verdict on each dimension, what went wrong."""

    key: str
    verdicts: Mapping[str, Verdict]
    answers: Sequence[Answer] = ()
    failure: Failure | None = None
    shared: bool = field(default=False, compare=False)  # its answers were another row's, which counts their tokens


@dataclass(frozen=True, slots=True)
class ShardRow:
    """A pair with all that was judged of it."""

    pair: Pair
    orders: Mapping[Order, OrderRecord]
    judged: float = field(default_factory=lambda: round(time.time(), 6))  # seconds since 1970
    ended: bool = True  # its conversations came to an end, or one failed; else there are no outcomes yet

    @property
    def finished(self) -> bool:
        """Whether nothing is left to ask."""
        return all(record.failure is None for record in self.orders.values())

    @property
    def usage(self) -> Usage:
        """The tokens of its answers; two orders that show the same texts are one conversation, and count once."""
        conversations = {record.key: record for record in self.orders.values() if not record.shared}
        return Usage.total([answer.usage for record in conversations.values() for answer in record.answers])

    def judgment(self) -> Judgment:
        """What the verdicts come to."""
        return Judgment.of(self.pair, self._conversations())

    def outcomes(self) -> list[OutcomeRow]:
        """The outcome of each dimension, as it is kept."""
        if not self.ended:
            return []
        return [outcome_row(outcome) for outcome in Judgment.outcomes_of(self._conversations()).values()]

    def _conversations(self) -> dict[Order, JudgedConversation]:
        return {order: JudgedConversation(record.verdicts) for order, record in self.orders.items()}


def row_name(name: str, key: str) -> bytes:
    """Sixteen bytes that stand for a pair's id and texts: what tells two rows apart.

    >>> row_name("a", "k") == row_name("a", "k") != row_name("b", "k")
    True
    """
    return bytes.fromhex(digest(name, key)[:32])


@cache
def shard_schema() -> Any:
    """The columns of a shard, as an Arrow schema.

    >>> shard_schema().names[:3]
    ['name', 'key', 'instruction']
    """
    arrow = pyarrow()
    text, number, whole = arrow.string(), arrow.float64(), arrow.int64()
    answer = arrow.struct(
        [
            *(("question", arrow.int32()), ("text", text), ("tokens", text), ("finish", text), ("samples", text)),
            *(("notes", text), ("computed", whole), ("reused", whole), ("generated", whole), ("created", number)),
        ]
    )
    failure = arrow.struct([("question", arrow.int32()), ("reason", text), ("detail", text)])
    conversation = arrow.struct(
        [("order", text), ("key", text), ("answers", arrow.list_(answer)), ("failure", failure)]
    )
    verdict = arrow.struct(
        [
            *(("order", text), ("dimension", text), ("label", text), ("p_a", number), ("p_b", number)),
            *(("p_tie", number), ("mass", number), ("invalid", text), ("counted", arrow.bool_())),
        ]
    )
    outcome = arrow.struct(
        [
            *(("dimension", text), ("said", arrow.int32()), ("p_1", number), ("p_2", number), ("p_tie", number)),
            *(("mass", number), ("reason", text)),
        ]
    )
    return arrow.schema(
        [
            *(("name", text), ("key", text), ("instruction", text), ("output_1", text), ("output_2", text)),
            *(("model_1", text), ("model_2", text), ("labels", text), ("metadata", text), ("candidate", text)),
            *(("known", text), ("cluster", arrow.uint64())),
            *(("length_1", arrow.int32()), ("length_2", arrow.int32())),
            *(("finished", arrow.bool_()), ("judged", arrow.timestamp("us", tz="UTC"))),
            *(("computed", whole), ("reused", whole), ("generated", whole), ("outcomes", arrow.list_(outcome))),
            *(("verdicts", arrow.list_(verdict)), ("conversations", arrow.list_(conversation))),
        ]
    )


def table_of(rows: Iterable[ShardRow]) -> Any:
    """Rows as an Arrow table.

    >>> record = OrderRecord("k", {"overall": Verdict("overall", "A")}, [Answer("A")])
    >>> table = table_of([ShardRow(Pair("Hi", "x", "y", "p"), {"forward": record})])
    >>> table["name"].to_pylist(), [row.judgment()["overall"].side for row in rows_of(table)]
    (['p'], ['1'])
    """
    every = list(rows)
    arrow, schema = pyarrow(), shard_schema()
    plain = [arrow.array(column, field.type) for column, field in _columns([_plain(row) for row in every], schema)]
    record = [[(order, row.orders[order]) for order in ORDERS if order in row.orders] for row in every]
    verdicts = [[v for order, one in orders for v in _verdicts(order, one)] for orders in record]
    lists = [
        _lists(schema.field("outcomes").type, [row.outcomes() for row in every]),
        _lists(schema.field("verdicts").type, verdicts),
        _conversations(schema.field("conversations").type, every, record),
    ]
    return arrow.Table.from_arrays([*plain, *lists], schema=schema)


def _columns(rows: Sequence[tuple[Any, ...]], kind: Iterable[Any]) -> Iterator[tuple[Any, Any]]:
    """Rows turned into columns, each with its field; this way Arrow makes them several times as fast."""
    fields = list(kind)[: len(rows[0])] if rows else list(kind)
    return zip(zip(*rows, strict=True) if rows else [()] * len(fields), fields, strict=True)


def _lists(kind: Any, each: Sequence[Sequence[tuple[Any, ...]]], *more: Any) -> Any:
    """A column of lists of structs; `more` are fields of the structs that are columns already."""
    arrow, flat = pyarrow(), [one for some in each for one in some]
    fields = list(kind.value_type)
    arrays = [
        arrow.array(column, field.type) for column, field in _columns(flat, fields[: len(fields) - len(more)])
    ]
    ends = arrow.array([0, *accumulate(map(len, each))], arrow.int32())
    return arrow.ListArray.from_arrays(ends, arrow.StructArray.from_arrays([*arrays, *more], fields=fields))


def _plain(row: ShardRow) -> tuple[Any, ...]:
    pair, usage = row.pair, row.usage
    lengths = (len(pair.output_1), len(pair.output_2))
    return (
        *(pair.id, pair.key, *pair.texts, *pair_about(pair), pair.candidate, _known(pair)),
        *(cluster_number(pair.instruction), *lengths, row.finished, datetime.fromtimestamp(row.judged, UTC)),
        *(usage.computed, usage.reused, usage.generated),
    )


def _known(pair: Pair) -> str:
    """What most people say of a pair, by dimension, as JSON; where they have no majority there is nothing."""
    given = {dimension: side for dimension, side in sorted(known_labels(pair).items()) if side is not None}
    return orjson.dumps(given).decode() if given else "{}"


def _verdicts(order: Order, record: OrderRecord) -> Iterator[tuple[Any, ...]]:
    return ((order, *verdict_row(0, verdict)[1:]) for verdict in record.verdicts.values())


def _conversations(kind: Any, rows: Sequence[ShardRow], each: Sequence[Sequence[tuple[Order, OrderRecord]]]) -> Any:
    fields = kind.value_type
    flat = [(row.judged, record) for row, some in zip(rows, each, strict=True) for _, record in some]
    said = [
        [(*answer_row(0, question, answer)[1:-1], judged) for question, answer in enumerate(record.answers)]
        for judged, record in flat
    ]
    failures = [None if record.failure is None else asdict(record.failure) for _, record in flat]
    names = [[(order, record.key) for order, record in some] for some in each]
    answers = _lists(fields.field("answers").type, said)
    return _lists(kind, names, answers, pyarrow().array(failures, fields.field("failure").type))


def rows_of(table: Any) -> list[ShardRow]:
    """The rows of a table or batch that has all the columns."""
    return [_row(fields) for fields in table.to_pylist()]


def pair_of(fields: Mapping[str, Any]) -> Pair:
    """The pair of a row."""
    texts = (fields["instruction"], fields["output_1"], fields["output_2"])
    labels, metadata = orjson.loads(fields["labels"]), json.loads(fields["metadata"])
    about = (fields["name"], fields["model_1"], fields["model_2"], labels, metadata)
    return Pair(*texts, *about, fields.get("candidate", ""))


def verdicts_by_order(fields: Mapping[str, Any]) -> dict[Order, dict[str, Verdict]]:
    """The verdicts of a row, by order and dimension."""
    found: dict[Order, dict[str, Verdict]] = {}
    for verdict in fields["verdicts"]:
        said_on, label, a, b, tie, mass, reason = (verdict[name] for name in _VERDICT)
        dimension = dimension_named(said_on)
        counted = verdict.get("counted") or False  # a folder of the old form does not say
        read = verdict_from(dimension, label, a, b, tie, mass, reason, counted)
        found.setdefault(verdict["order"], {})[dimension] = read
    return found


def conversations_in(fields: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The conversations of a row, whatever its form calls them."""
    found: list[dict[str, Any]] = fields[
        "conversations" if "conversations" in fields else OLD_NAMES["conversations"]
    ]
    return found


def dimension_named(name: str) -> str:
    """The name of a dimension today, where an older evenhand gave it another.

    >>> dimension_named("alone"), dimension_named("overall")
    ('good_1', 'overall')
    """
    return _OLD_DIMENSIONS.get(name, name)


def judgment_of(fields: Mapping[str, Any]) -> Judgment:
    """What the verdicts of a row come to."""
    verdicts = verdicts_by_order(fields)
    return Judgment.of(pair_of(fields), {order: JudgedConversation(found) for order, found in verdicts.items()})


def _row(fields: Mapping[str, Any]) -> ShardRow:
    verdicts = verdicts_by_order(fields)
    orders: dict[Order, OrderRecord] = {
        conversation["order"]: OrderRecord(
            conversation["key"],
            verdicts.get(conversation["order"], {}),
            tuple(answer_from(*(answer[name] for name in _ANSWER[1:-1])) for answer in conversation["answers"]),
            None if conversation["failure"] is None else Failure(*conversation["failure"].values()),
        )
        for conversation in conversations_in(fields)
    }
    return ShardRow(pair_of(fields), orders, fields["judged"].timestamp(), has_ended(fields))


def has_ended(fields: Mapping[str, Any]) -> bool:
    """Whether a row has outcomes; of one in the old form, whether it would have some."""
    if "outcomes" in fields:
        return bool(fields["outcomes"])
    return not any(verdict["invalid"] in _BROKEN_OFF for verdict in fields["verdicts"])
