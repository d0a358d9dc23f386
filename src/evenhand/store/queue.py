"""The queue: which pairs are to be judged, which process works on them, and which are done.

Pairs come in batches, and a batch takes a fixed number of statements however many pairs are in it: most of the time
of a statement is its way through Python.
"""

from __future__ import annotations

import os
import re
import socket
import sqlite3
import time
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal, cast

import orjson

from evenhand.core.judge import Conversation
from evenhand.core.pair import Pair
from evenhand.core.protocol import Order
from evenhand.core.verdict import Verdict
from evenhand.store.outcomes import OutcomeTable
from evenhand.store.rows import AMONG, absent, pair_about, said_text, to_json, verdict_from

# After so long a claim counts for nothing. On this machine the process itself is looked at, and the limit is for
# where its number may have been given to another; a process on another machine, or in another container, cannot be
# looked at, but it renews its claims.
_CLAIM_SECONDS = 86_400.0
_FAR_CLAIM_SECONDS = 120.0
# What `name_worker` makes; 0 and negative numbers are groups of processes to the system.
_WORKER = re.compile(r"(.*) ([1-9][0-9]{0,9}) (\S+)")
# How far the clocks of two machines may be apart; a claim from further in the future is a mistake.
_CLOCK_SECONDS = 120.0
QuestionDimensions = Sequence[Sequence[str]]  # the dimensions of each question of a protocol


@dataclass(frozen=True, slots=True)
class Job:
    """A pair that was put in the queue: its conversations by order, and those of them that have answers already.

    It is held where another process, or another pair of this run, is at work on one of its conversations; so it is
    where a question of it is in a batch at a service.
    """

    pair: Pair
    conversations: Mapping[Order, int]
    held: bool
    begun: frozenset[int] = frozenset()
    in_batch: bool = False


@dataclass(slots=True)
class _Entry:
    """A conversation as the queue knows it."""

    id: int
    to_come: int  # questions that have no answer yet
    begun: bool = False
    worker: str | bytes | None = None  # no text, and no number below, in a file that was changed
    since: float | str = 0.0
    in_batch: bool = False


class Queue:
    """The queue of one database; `enter` is called inside a transaction."""

    def __init__(self, db: sqlite3.Connection, worker: str, outcomes: OutcomeTable) -> None:
        self._db, self._worker, self._outcomes = db, worker, outcomes

    # -- entering --------------------------------------------------------------------------------

    def enter(
        self,
        judge: int,
        questions: int,
        wanted: Sequence[tuple[Pair, Mapping[Order, str]]],
        busy: Mapping[int, int],
    ) -> tuple[list[Job], dict[int, int]]:
        """Enter pairs with the keys of their conversations; those claimed, and their open questions.

        `busy` are conversations that this process is at work on.
        """
        numbers = self.enter_pairs([pair for pair, _ in wanted])
        keys = [key for _, keys in wanted for key in keys.values()]
        known = self._find(keys, questions)
        self._enter_conversations(judge, questions, keys, known)
        self._db.executemany(
            "INSERT INTO queue VALUES (?, ?, ?, ?) ON CONFLICT DO UPDATE SET conversation = excluded.conversation",
            [
                (number, judge, order, known[key].id)
                for number, (_, keys) in zip(numbers, wanted, strict=True)
                for order, key in keys.items()
            ],
        )
        alive = _Alive(self._worker)
        claimed: dict[int, int] = {}
        jobs = []
        complete = []
        for number, (pair, by_order) in zip(numbers, wanted, strict=True):
            entries = {known[key].id: known[key] for key in by_order.values()}
            left = [entry for entry in entries.values() if entry.to_come]
            # All of a pair or nothing of it: two processes that each hold one order and wait for the other would
            # wait forever.
            in_batch = any(entry.in_batch for entry in left)
            held = in_batch or any(entry.id in busy or entry.id in claimed or alive(entry) for entry in left)
            if not left:
                complete.append((judge, number))
            if not held:
                claimed |= {entry.id: entry.to_come for entry in left}
            begun = frozenset(entry.id for entry in entries.values() if entry.begun)
            conversations = {order: known[key].id for order, key in by_order.items()}
            jobs.append(Job(pair, conversations, held, begun, in_batch))
        self._claim(claimed)
        # A pair that came to an end before and is now given another order has outcomes again when that has ended.
        self._outcomes.refresh_if_any(judge, numbers)
        # The same texts may have been judged under another id.
        self._outcomes.refresh(complete)
        return jobs, claimed

    def enter_pairs(self, pairs: Sequence[Pair]) -> list[int]:
        """The numbers of pairs, entered now if new; what is known besides the texts is brought up to date."""
        known = self._known_pairs(pairs)
        last = self._last("pairs")
        new: list[tuple[Any, ...]] = []
        changed: list[tuple[Any, ...]] = []
        numbers: list[int] = []
        for pair in pairs:
            name = (pair.id, pair.key)
            if name not in known:
                last += 1
                about = _about(pair)
                new.append((last, *name, pair.instruction, pair.output_1, pair.output_2, *about))
                known[name] = (last, about)
            elif known[name][1] != (about := _about(_as_kept(pair, known[name][1]))):
                changed.append((*about, known[name][0]))
                known[name] = (known[name][0], about)
            numbers.append(known[name][0])
        self._db.executemany("INSERT INTO pairs VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)", new)
        self._db.executemany(
            "UPDATE pairs SET model_1 = ?, model_2 = ?, labels = ?, metadata = ?, candidate = ? WHERE id = ?",
            changed,
        )
        written = {row[0] for row in new} | {row[-1] for row in changed}
        if written:
            kept = [_as_kept(pair, known[pair.id, pair.key][1]) for pair in pairs]
            by_number = dict(zip(numbers, kept, strict=True))
            self._outcomes.enter_pairs([(number, by_number[number]) for number in sorted(written)])
        return numbers

    def numbers(self, pairs: Sequence[Pair]) -> list[int | None]:
        """The numbers of pairs; None for one that is not here."""
        known = self._known_pairs(pairs)
        return [known[pair.id, pair.key][0] if (pair.id, pair.key) in known else None for pair in pairs]

    def _known_pairs(self, pairs: Sequence[Pair]) -> dict[tuple[str, str], tuple[int, tuple[str, ...]]]:
        values = ", ".join(["(?, ?)"] * len(pairs))
        rows = self._db.execute(
            f"WITH wanted (name, key) AS (VALUES {values}) SELECT p.name, p.key, p.id, p.model_1, p.model_2,"
            " p.labels, p.metadata, p.candidate FROM wanted w"
            " CROSS JOIN pairs p ON p.name = w.name AND p.key = w.key",
            [text for pair in pairs for text in (pair.id, pair.key)],
        )
        return {(name, key): (number, tuple(about)) for name, key, number, *about in rows}

    def _enter_conversations(
        self, judge: int, questions: int, keys: Iterable[str], known: dict[str, _Entry]
    ) -> None:
        last = self._last("conversations")
        new = []
        for key in keys:
            if key not in known:
                last += 1
                known[key] = _Entry(last, questions)
                new.append((last, key, judge))
        self._db.executemany("INSERT INTO conversations (id, key, judge) VALUES (?, ?, ?)", new)

    def _last(self, table: str) -> int:
        """The highest number given so far; nobody else gives one while this transaction is open."""
        return int(self._db.execute(f"SELECT coalesce(max(id), 0) FROM {table}").fetchone()[0])

    def _claim(self, claimed: Iterable[int]) -> None:
        now = time.time()
        self._db.executemany(
            "INSERT OR REPLACE INTO claims VALUES (?, ?, ?)",
            [(conversation, self._worker, now) for conversation in claimed],
        )

    # -- looking up ------------------------------------------------------------------------------

    def questions_left(self, keys: Iterable[str], questions: int) -> dict[str, int]:
        """How many questions of each conversation are still to be answered."""
        wanted = list(keys)
        known = self._find(wanted, questions)
        return {key: known[key].to_come if key in known else questions for key in wanted}

    def _find(self, keys: Iterable[str], questions: int) -> dict[str, _Entry]:
        """Conversations that are in the queue; one that an unreadable answer has ended has no questions to come."""
        rows = self._db.execute(
            "SELECT h.key, h.id, (SELECT count(*) FROM answers WHERE conversation = h.id),"
            " EXISTS (SELECT 1 FROM verdicts WHERE conversation = h.id AND invalid IS NOT NULL),"
            " c.worker, c.claimed, EXISTS (SELECT 1 FROM batch_items WHERE conversation = h.id)"
            " FROM conversations h LEFT JOIN claims c ON c.conversation = h.id"
            f" WHERE h.key IN {AMONG}",
            (to_json(keys),),
        )
        return {
            key: _Entry(
                *(number, 0 if broken else questions - answered, answered > 0, worker, since or 0.0, bool(in_batch))
            )
            for key, number, answered, broken, worker, since, in_batch in rows
        }

    def kept(
        self, judge: int, questions: QuestionDimensions, wanted: Sequence[tuple[Pair, Sequence[Order]]], words: bool
    ) -> list[dict[Order, Conversation] | None]:
        """The conversations of each pair, if nothing is left to ask of it or to bring up to date."""
        known = self._known_pairs([pair for pair, _ in wanted])
        numbers = [_unchanged(pair, known) for pair, _ in wanted]
        judged = self._record_of(judge, questions, [number for number in numbers if number is not None], words)
        return [
            _all_of(judged.get(number, {}), orders) if number is not None else None
            for number, (_, orders) in zip(numbers, wanted, strict=True)
        ]

    def _record_of(
        self, judge: int, questions: QuestionDimensions, pairs: list[int], words: bool
    ) -> dict[int, dict[Order, Conversation]]:
        """The finished conversations of pairs, by pair and order."""
        if not pairs:
            return {}
        places = self._db.execute(
            'SELECT pair, "order", conversation FROM queue'
            f" WHERE judge = ? AND pair IN {AMONG}"
            ' ORDER BY pair, "order"',
            (judge, to_json(pairs)),
        ).fetchall()
        conversations = (to_json({conversation for _, _, conversation in places}),)
        verdicts, said = _Rows(list), _Rows(list)
        for row in self._db.execute(_VERDICTS, conversations):
            verdicts[row[0]].append(row)
        for row in self._db.execute(_SAID, conversations) if words else ():
            said[row[0]].append(row)
        question_of = {dimension: number for number, question in enumerate(questions) for dimension in question}
        done = {
            conversation: _conversation(question_of, rows, said[conversation])
            for conversation, rows in verdicts.items()
        }
        found: dict[int, dict[Order, Conversation]] = {}
        for pair, order, conversation in places:
            if (whole := done.get(conversation)) is not None:
                found.setdefault(pair, {})[order] = whole
        return found


_Rows = defaultdict[int, list[tuple[Any, ...]]]  # by conversation, which is their first column
_VERDICTS = (
    "SELECT conversation, dimension, label, p_a, p_b, p_tie, mass, invalid, counted FROM verdicts"
    f" WHERE conversation IN {AMONG}"
)
_SAID = (
    f"SELECT conversation, text, samples, notes FROM answers WHERE conversation IN {AMONG}"
    " ORDER BY conversation, question"
)


def _unchanged(pair: Pair, known: Mapping[tuple[str, str], tuple[int, tuple[str, ...]]]) -> int | None:
    """The number of a pair that is there just as it is."""
    if (found := known.get((pair.id, pair.key))) is None:
        return None
    number, about = found
    return number if about == _about(_as_kept(pair, about)) else None


def _about(pair: Pair) -> tuple[str, ...]:
    """What is known of a pair besides its texts."""
    return *pair_about(pair), pair.candidate


def _as_kept(pair: Pair, about: tuple[str, ...]) -> Pair:
    """The pair; where it comes without names of models, labels or a role, it keeps those that it had."""
    model_1, model_2, labels, _, role = about
    return replace(
        pair,
        model_1=pair.model_1 or model_1,
        model_2=pair.model_2 or model_2,
        labels=pair.labels or orjson.loads(labels),
        candidate=pair.candidate or cast('Literal["", "1", "2"]', role),
    )


def _all_of(judged: Mapping[Order, Conversation], orders: Sequence[Order]) -> dict[Order, Conversation] | None:
    found = {order: judged[order] for order in orders if order in judged}
    return found if len(found) == len(orders) else None


def _conversation(
    question_of: Mapping[str, int], rows: Sequence[tuple[Any, ...]], said: Sequence[tuple[Any, ...]]
) -> Conversation | None:
    """A conversation out of its rows; None where something is left to ask."""
    verdicts: dict[str, Verdict] = {}
    ended = False
    for _, dimension, label, a, b, tie, mass, reason, counted in rows:
        question = question_of.get(dimension, len(said))
        raw = said_text(*said[question][1:3]) if question < len(said) else ""
        verdicts[dimension] = verdict_from(dimension, label, a, b, tie, mass, reason, counted, raw)
        ended = ended or label is None
    if len(verdicts) < len(question_of):
        if not ended:
            return None
        verdicts = absent(question_of, None, None) | verdicts  # an unreadable answer has ended it
    notes = [note for row in said if row[3] != "[]" for note in orjson.loads(row[3])]
    return Conversation({name: verdicts[name] for name in question_of}, notes=frozenset(notes))


class _Alive:
    """Whether the process that holds a conversation is still at it; each process is looked at once.

    A claim that has grown old counts for nothing: the process may be gone and its number given to another. Nor does
    one that no process can have made, as in a file that was changed.
    """

    def __init__(self, own: str) -> None:
        self._own, self._here = own, socket.gethostname()
        self._runs: dict[str, bool] = {}

    def __call__(self, entry: _Entry) -> bool:
        worker = entry.worker
        if not isinstance(worker, str) or worker == self._own:
            return False
        named = _WORKER.fullmatch(worker)
        if named is None or not isinstance(entry.since, float | int):
            return False
        host, pid, stamp = named.groups()
        far = host != self._here
        age = time.time() - entry.since
        if age > (_FAR_CLAIM_SECONDS if far else _CLAIM_SECONDS) or age < -_CLOCK_SECONDS:
            return False
        if worker not in self._runs:
            self._runs[worker] = far or _runs(int(pid), stamp)
        return self._runs[worker]


def is_alive(worker: str, since: float, own: str) -> bool:
    """Whether the process that entered its name then is another one, and still at work."""
    return _Alive(own)(_Entry(0, 0, worker=worker, since=since))


def name_worker() -> str:
    """A name for a process with the database open: machine, process, when it began, and when it opened the
    database.

    Numbers of processes come again, in a container that is started again at once.
    """
    return f"{socket.gethostname()} {os.getpid()} {_started(os.getpid())}.{time.time_ns()}"


def holder_name(worker: str) -> str:
    """Whom a claim names, for people.

    >>> holder_name("gpu-box 4711 99.5")
    'process 4711 on gpu-box'
    """
    host, _, rest = worker.rpartition(" ")[0].rpartition(" ")
    return f"process {rest} on {host}" if host else worker


def _started(pid: int) -> str:
    """When a process began, by the kernel's clock; empty where that cannot be known."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19]
    except (OSError, IndexError):
        return ""


def _runs(pid: int, stamp: str) -> bool:
    started, dot, _ = stamp.partition(".")
    if dot and started and (now := _started(pid)):
        return now == started
    try:
        os.kill(pid, 0)
    except (ProcessLookupError, OverflowError):  # gone, or a number that no process has
        return False
    except PermissionError:
        return True  # it runs, and belongs to another user
    return True
