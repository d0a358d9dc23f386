"""The database itself: one SQLite file, opened, written in small transactions, and read back."""

from __future__ import annotations

import json
import os
import socket
import sqlite3
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, cast

import orjson

from evenhand.engines.base import Answer, Token, Usage
from evenhand.errors import EngineError
from evenhand.judge import Hearing, Judgment, Setup
from evenhand.pairs import Pair
from evenhand.protocol import Order
from evenhand.store.desk import Desk
from evenhand.store.findings import FindingBook
from evenhand.store.labels import LabelBook
from evenhand.store.pages import PageBook
from evenhand.store.schema import clearly, migrate
from evenhand.verdict import Label, Verdict, invalid, read_answer

# After so long a claim counts for nothing. On this machine the process itself is looked at, so only a number that
# was given to another process needs the limit; a process on another machine cannot be looked at.
_CLAIM_SECONDS = 86_400.0
_FAR_CLAIM_SECONDS = 3_600.0
# How long to wait for another process that is writing.
_BUSY_SECONDS = 30.0


@dataclass(frozen=True, slots=True)
class JudgeRow:
    """A judge as the store knows it."""

    id: int
    fingerprint: str
    model: str
    identity: Mapping[str, str]
    protocol: str
    template: str
    dimensions: tuple[str, ...]
    raw_markup: bool
    pairs: int


@dataclass(frozen=True, slots=True)
class Case:
    """A pair that was put on the docket: its hearings by order, and those that another process is holding."""

    pair: Pair
    hearings: Mapping[Order, int]
    held: bool


class Store:
    """One database; `Store(":memory:")` keeps nothing.

    >>> with Store(":memory:") as store:
    ...     store.judges()
    []
    """

    def __init__(self, path: str | Path) -> None:
        self.path = str(path)
        self.worker = f"{socket.gethostname()} {os.getpid()} {time.time_ns()}"
        self._held: dict[int, int] = {}  # hearings that this process is at work on, and their asks to come
        self._closed = False
        with clearly(self.path):
            self._db = sqlite3.connect(
                self.path, timeout=_BUSY_SECONDS, isolation_level=None, check_same_thread=False
            )
            try:
                self._prepare()
            except BaseException:
                self._db.close()
                raise
        self.labels = LabelBook(self._db, self._writing, self.path)
        self.findings = FindingBook(self._db, self._writing, self._hearings)
        self.pages = PageBook(self._db, self.path)
        self.desk = Desk(self._db, self._writing, self.path)

    def __enter__(self) -> Store:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Commit, let go of what this process holds, and close the file."""
        if self._closed:
            return
        self._closed = True
        with clearly(self.path), closing(self._db):
            self._db.execute("UPDATE hearings SET worker = NULL WHERE worker = ?", (self.worker,))

    def _prepare(self) -> None:
        self._switch_to_wal()
        # WAL with NORMAL survives the death of the process at any moment; only a power cut may cost the
        # last moments, and never the file.
        self._db.execute("PRAGMA synchronous = NORMAL")
        self._db.execute("PRAGMA foreign_keys = ON")
        migrate(self._db, self.path)

    def _switch_to_wal(self) -> None:
        """Here SQLite does not wait by itself for another process that is switching the same new file."""
        deadline = time.monotonic() + _BUSY_SECONDS
        while True:
            try:
                self._db.execute("PRAGMA journal_mode = WAL")
            except sqlite3.OperationalError as fault:
                if "locked" not in str(fault) or time.monotonic() > deadline:
                    raise
                time.sleep(0.01)
            else:
                return

    @contextmanager
    def _writing(self) -> Iterator[None]:
        """A transaction: all of it is durable when it ends, or none of it, if it fails.

        A commit costs some tens of microseconds here, because WAL with NORMAL does not wait for the disk.
        """
        with clearly(self.path):
            self._db.execute("BEGIN IMMEDIATE")
            try:
                yield
                self._db.execute("COMMIT")
            except BaseException:
                if self._db.in_transaction:  # else SQLite has taken it back by itself
                    self._db.execute("ROLLBACK")
                raise

    # -- a run -----------------------------------------------------------------------------------

    def judge(self, setup: Setup) -> int:
        """The number of a judge, entered now if it is new."""
        row = (
            setup.fingerprint,
            setup.engine.identity["model"],
            json.dumps(dict(setup.engine.identity)),
            setup.protocol.name,
            setup.protocol.text,
            json.dumps(setup.protocol.dimensions),
            setup.raw_markup,
            time.time(),
        )
        with self._writing():
            self._db.execute(
                "INSERT INTO judges (fingerprint, model, identity, protocol, template, dimensions, raw_markup,"
                " created) VALUES (?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT DO NOTHING",
                row,
            )
            (number,) = self._db.execute("SELECT id FROM judges WHERE fingerprint = ?", row[:1]).fetchone()
        return int(number)

    def begin_run(self, judge: int, settings: Mapping[str, Any]) -> int:
        """Enter a run; what it used is entered by `end_run`."""
        with self._writing():
            cursor = self._db.execute(
                "INSERT INTO runs (judge, settings, started) VALUES (?, ?, ?)",
                (judge, json.dumps(dict(settings)), time.time()),
            )
        return int(cursor.lastrowid or 0)

    def end_run(self, run: int, *, pairs: int, asked: int, usage: Usage) -> None:
        """Enter what a run used."""
        with self._writing():
            self._db.execute(
                "UPDATE runs SET ended = ?, pairs = ?, asked = ?, computed = ?, reused = ?, generated = ?"
                " WHERE id = ?",
                (time.time(), pairs, asked, usage.computed, usage.reused, usage.generated, run),
            )

    def enter(self, judge: int, asks: int, cases: Iterable[tuple[Pair, Mapping[Order, str]]]) -> list[Case]:
        """Put pairs on the docket and claim their hearings, unless another live process holds one of them.

        Claims are durable before anyone is asked: that is what keeps two processes from asking twice.
        """
        with self._writing():
            return [self._enter(judge, asks, pair, keys) for pair, keys in cases]

    def _enter(self, judge: int, asks: int, pair: Pair, keys: Mapping[Order, str]) -> Case:
        number = self._pair(pair)
        left: dict[int, int] = {}  # asks to come, by hearing
        hearings = {order: self._hearing(judge, key, asks, left) for order, key in keys.items()}
        self._db.executemany(
            "INSERT INTO docket VALUES (?, ?, ?, ?) ON CONFLICT DO UPDATE SET hearing = excluded.hearing",
            [(number, judge, order, hearing) for order, hearing in hearings.items()],
        )
        claimed = {hearing: asks for hearing, asks in left.items() if self._claim(hearing)}
        if len(claimed) < len(left):
            # Holding one order while waiting for the other could wait for ever on somebody who does the same.
            self._let_go(claimed)
            return Case(pair, hearings, held=True)
        self._held |= claimed
        return Case(pair, hearings, held=False)

    def _pair(self, pair: Pair) -> int:
        texts = (pair.instruction, pair.output_1, pair.output_2)
        about = (orjson.dumps(dict(pair.labels)).decode(), json.dumps(dict(pair.metadata), default=str))
        (number,) = self._db.execute(
            "INSERT INTO pairs (name, key, instruction, output_1, output_2, model_1, model_2, labels, metadata)"
            " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT DO UPDATE SET model_1 = excluded.model_1,"
            " model_2 = excluded.model_2, labels = excluded.labels, metadata = excluded.metadata RETURNING id",
            (pair.id, pair.key, *texts, pair.model_1, pair.model_2, *about),
        ).fetchone()
        return int(number)

    def _hearing(self, judge: int, key: str, asks: int, left: dict[int, int]) -> int:
        """The number of a hearing, entered now if it is new; how many asks it has to come goes into `left`."""
        new = self._db.execute(
            "INSERT INTO hearings (key, judge) VALUES (?, ?) ON CONFLICT DO NOTHING RETURNING id", (key, judge)
        ).fetchone()
        row = new or self._db.execute("SELECT id FROM hearings WHERE key = ?", (key,)).fetchone()
        hearing = int(row[0])
        to_come = asks if new else self._to_come(hearing, asks)
        if to_come:
            left[hearing] = to_come
        return hearing

    def _to_come(self, hearing: int, asks: int) -> int:
        """How many asks are left; none, if an answer was unreadable and ended the hearing."""
        answered, broken = self._db.execute(
            "SELECT (SELECT count(*) FROM answers WHERE hearing = ?),"
            " EXISTS (SELECT 1 FROM verdicts WHERE hearing = ? AND invalid IS NOT NULL)",
            (hearing, hearing),
        ).fetchone()
        return 0 if broken else asks - int(answered)

    def asks_left(self, key: str, asks: int) -> int:
        """How many asks of a hearing are still to be answered."""
        row = self._db.execute("SELECT id FROM hearings WHERE key = ?", (key,)).fetchone()
        if row is None:
            return asks
        return self._to_come(row[0], asks)

    def _claim(self, hearing: int) -> bool:
        holder, since = self._db.execute("SELECT worker, claimed FROM hearings WHERE id = ?", (hearing,)).fetchone()
        if hearing in self._held or (holder not in (None, self.worker) and _alive(holder, since)):
            return False
        self._db.execute(
            "UPDATE hearings SET worker = ?, claimed = ? WHERE id = ?", (self.worker, time.time(), hearing)
        )
        return True

    def release(self, case: Case) -> None:
        """Let go of a pair's hearings; a claim on one that is complete means nothing and may stay."""
        held = {hearing: self._held.pop(hearing) for hearing in set(case.hearings.values()) & self._held.keys()}
        unfinished = [hearing for hearing, left in held.items() if left]
        if unfinished:
            with self._writing():
                self._let_go(unfinished)

    def _let_go(self, hearings: Iterable[int]) -> None:
        self._db.executemany("UPDATE hearings SET worker = NULL WHERE id = ?", [(h,) for h in hearings])

    # -- the ledger of a hearing -----------------------------------------------------------------

    def answers(self, hearing: int) -> Sequence[Answer]:
        """The answers of a hearing, in the order of its asks."""
        rows = self._db.execute(
            "SELECT text, tokens, finish, samples, notes, computed, reused, generated FROM answers"
            " WHERE hearing = ? ORDER BY ask",
            (hearing,),
        )
        return [_answer(*row) for row in rows]

    def record(self, hearing: int, ask: int, answer: Answer, verdicts: Sequence[Verdict]) -> None:
        """Keep an answer and what was read off it; a failure that stood in its place is forgotten.

        An answer that is there already stays: another worker was quicker, having taken this one for dead.
        """
        tokens = orjson.dumps([(token.text, token.top) for token in answer.tokens]).decode()
        more = orjson.dumps(answer.samples).decode(), orjson.dumps(answer.notes).decode()
        usage = answer.usage
        with self._writing():
            entered = self._db.execute(
                "INSERT INTO answers VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT DO NOTHING",
                (
                    *(hearing, ask, answer.text, tokens, answer.finish),
                    *more,
                    *(usage.computed, usage.reused, usage.generated, time.time()),
                ),
            )
            self._db.executemany(
                "INSERT INTO verdicts VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
                [_verdict_row(hearing, v) for v in verdicts if entered.rowcount],
            )
            self._db.execute("DELETE FROM failures WHERE hearing = ?", (hearing,))
        if self._held.get(hearing):
            self._held[hearing] = (
                0 if any(verdict.label is None for verdict in verdicts) else self._held[hearing] - 1
            )

    def fail(self, hearing: int, ask: int, error: EngineError) -> None:
        """Keep a failure with its reason."""
        with self._writing():
            self._db.execute(
                "INSERT INTO failures VALUES (?, ?, ?, ?, 1, ?) ON CONFLICT DO UPDATE SET ask = excluded.ask,"
                " reason = excluded.reason, detail = excluded.detail, attempts = attempts + 1,"
                " created = excluded.created",
                (hearing, ask, error.reason, str(error), time.time()),
            )

    def reread(self, judge: JudgeRow, asks: Sequence[Sequence[str]]) -> tuple[int, int]:
        """Read every answer of a judge again with the present reader; how many verdicts, and how many changed.

        An answer that the reader of its day could not read, and the present one can, reopens its hearing.
        """
        seen = changed = 0
        hearings = self._db.execute("SELECT id FROM hearings WHERE judge = ?", (judge.id,)).fetchall()
        for (hearing,) in hearings:
            fresh = [
                _verdict_row(hearing, verdict)
                for answer, dimensions in zip(self.answers(hearing), asks, strict=False)
                for verdict in read_answer(answer, dimensions)
            ]
            kept = self._db.execute("SELECT * FROM verdicts WHERE hearing = ?", (hearing,)).fetchall()
            seen, changed = seen + len(fresh), changed + len(set(fresh) - set(kept))
            with self._writing():
                self._db.execute("DELETE FROM verdicts WHERE hearing = ?", (hearing,))
                self._db.executemany("INSERT INTO verdicts VALUES (?, ?, ?, ?, ?, ?, ?, ?)", fresh)
        return seen, changed

    # -- reading ---------------------------------------------------------------------------------

    def judges(self, *, counted: bool = True) -> list[JudgeRow]:
        """Every judge that has heard a pair, the newest last; uncounted, which is quicker, their `pairs` are 0."""
        pairs = "(SELECT count(DISTINCT pair) FROM docket WHERE judge = judges.id)" if counted else "0"
        with clearly(self.path):
            rows = self._db.execute(
                "SELECT id, fingerprint, model, identity, protocol, template, dimensions, raw_markup,"
                f" {pairs} FROM judges ORDER BY id"
            ).fetchall()
        return [
            JudgeRow(i, f, m, json.loads(ident), p, t, tuple(json.loads(d)), bool(raw), n)
            for i, f, m, ident, p, t, d, raw, n in rows
        ]

    def judgments(self, judge: JudgeRow) -> Iterator[Judgment]:
        """Every pair that a judge has heard, with its findings, one after the other."""
        with clearly(self.path):
            pairs = self._db.execute(
                "SELECT p.id, p.name, p.instruction, p.output_1, p.output_2, p.model_1, p.model_2, p.labels,"
                " p.metadata FROM pairs p WHERE p.id IN (SELECT pair FROM docket WHERE judge = ?) ORDER BY p.id",
                (judge.id,),
            )
            for number, name, task, one, two, model_1, model_2, labels, metadata in pairs:
                pair = Pair(task, one, two, name, model_1, model_2, json.loads(labels), json.loads(metadata))
                yield Judgment.of(pair, self._hearings(judge.id, judge.dimensions, number))

    def judgment(self, judge: JudgeRow, number: int, pair: Pair) -> Judgment | None:
        """One pair, by its number, with the findings of a judge; None, if that judge has not heard it."""
        with clearly(self.path):
            hearings = self._hearings(judge.id, judge.dimensions, number)
        return Judgment.of(pair, hearings) if hearings else None

    def flush_each(self) -> None:
        """From now on wait for the disk at each commit: what a person said shall outlast a power cut, too."""
        self._db.execute("PRAGMA synchronous = FULL")

    def _hearings(self, judge: int, dimensions: Sequence[str], pair: int) -> dict[Order, Hearing]:
        """The verdicts of a pair by order; what is not there is invalid, with the reason that is known."""
        rows = self._db.execute(
            'SELECT d."order", v.dimension, v.label, v.p_a, v.p_b, v.p_tie, v.mass, v.invalid, f.reason, f.detail'
            " FROM docket d LEFT JOIN verdicts v ON v.hearing = d.hearing"
            " LEFT JOIN failures f ON f.hearing = d.hearing WHERE d.judge = ? AND d.pair = ?"
            ' ORDER BY d."order"',
            (judge, pair),
        ).fetchall()
        found: dict[Order, dict[str, Verdict]] = {}
        for order, dimension, *columns, reason, detail in rows:
            verdicts = found.setdefault(order, _absent(dimensions, reason, detail))
            if dimension is not None:
                verdicts[dimension] = _verdict(dimension, *columns)
        return {order: Hearing(verdicts) for order, verdicts in found.items()}

    def usage(self, judge: JudgeRow) -> tuple[Usage, float]:
        """The tokens that a judge's answers took, and the seconds that its runs took."""
        computed, reused, generated = self._db.execute(
            "SELECT coalesce(sum(computed), 0), coalesce(sum(reused), 0), coalesce(sum(generated), 0)"
            " FROM answers WHERE hearing IN (SELECT id FROM hearings WHERE judge = ?)",
            (judge.id,),
        ).fetchone()
        (seconds,) = self._db.execute(
            "SELECT coalesce(sum(ended - started), 0) FROM runs WHERE judge = ?", (judge.id,)
        ).fetchone()
        return Usage(computed, reused, generated), float(seconds)


def _absent(dimensions: Iterable[str], reason: str | None, detail: str | None) -> dict[str, Verdict]:
    missing = invalid(dimensions, reason or "not_asked", detail or "")
    return {verdict.dimension: verdict for verdict in missing}


def _answer(text: str, tokens: str, finish: str, samples: str, notes: str, *usage: int) -> Answer:
    parts = tuple(Token(word, tuple((other, p) for other, p in top)) for word, top in orjson.loads(tokens))
    ending: Literal["stop", "length"] = "length" if finish == "length" else "stop"
    return Answer(text, parts, Usage(*usage), ending, tuple(orjson.loads(samples)), tuple(orjson.loads(notes)))


def _verdict_row(hearing: int, verdict: Verdict) -> tuple[Any, ...]:
    p = verdict.p or {}
    return (
        *(hearing, verdict.dimension, verdict.label, p.get("A"), p.get("B"), p.get("tie")),
        *(verdict.mass, verdict.invalid),
    )


def _verdict(
    dimension: str,
    label: str | None,
    a: float | None,
    b: float | None,
    tie: float | None,
    mass: float | None,
    reason: str | None,
) -> Verdict:
    p = None if a is None or b is None or tie is None else {"A": a, "B": b, "tie": tie}
    return Verdict(dimension, cast("Label | None", label), cast("Mapping[Label, float] | None", p), mass, reason)


def _alive(worker: str, since: float) -> bool:
    """Whether the process that holds a hearing is still at it.

    A claim that has grown old counts for nothing: the process may be gone and its number given to another.
    """
    host, pid, _ = worker.rsplit(" ", 2)
    far = host != socket.gethostname()
    if time.time() - since > (_FAR_CLAIM_SECONDS if far else _CLAIM_SECONDS):
        return False
    if far:
        return True
    try:
        os.kill(int(pid), 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True  # it runs, and belongs to another user
    return True
