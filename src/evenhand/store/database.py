"""The database itself: one SQLite file, opened, written in small transactions, and read back."""

from __future__ import annotations

import json
import math
import sqlite3
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from itertools import groupby, islice, pairwise
from operator import itemgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Self

from evenhand.core.answer_forms import AnswerForm
from evenhand.core.engine import Answer, Usage
from evenhand.core.errors import EngineError, EvenhandError, StoreError
from evenhand.core.judge import Conversation, Judgment, Setup
from evenhand.core.pair import Pair
from evenhand.core.protocol import Order
from evenhand.core.reasons import questions_of, with_words
from evenhand.core.verdict import Verdict, read_answer
from evenhand.engines.made import members_of
from evenhand.store.annotation import AnnotationBook
from evenhand.store.archive import Archive
from evenhand.store.attacked import attacked_numbers, attacked_pairs
from evenhand.store.batches import BatchBook
from evenhand.store.book import Queries, SharedTables
from evenhand.store.calibrations import CalibrationBook
from evenhand.store.damage import damage_in
from evenhand.store.gates import GateBook
from evenhand.store.judgebook import JudgeBook
from evenhand.store.labels import LabelBook
from evenhand.store.made import MadeBook
from evenhand.store.opening import BUSY_SECONDS, MEMORY, open_to_read, open_to_write, refuse_to_migrate
from evenhand.store.outcomes import IN_ORDER, SAID_BY_JUDGE, OutcomeTable, Progress, conversations_of, is_dirty
from evenhand.store.outputs import OutputBook
from evenhand.store.pages import PageBook
from evenhand.store.queue import Job, QuestionDimensions, Queue, holder_name, name_worker
from evenhand.store.records import MemberUsage
from evenhand.store.rows import AMONG, PAIR_COLUMNS, answer_from, answer_row, stored_pair, to_json, verdict_row
from evenhand.store.schema import MIGRATIONS, clearly, migrate
from evenhand.store.vectors import VectorBook

if TYPE_CHECKING:
    from evenhand.core.columns import Block

# Pages that SQLite holds in memory. The keys are hashes, so that a row can fall anywhere in their indexes.
_CACHE_KILOBYTES = 16_000
# How far the log grows before it is put into the file proper, in pages of 4 KB: rarely enough that a page which is
# written again and again is moved once.
_CHECKPOINT_PAGES = 4_000
_PAIRS_AT_ONCE = 500  # entered in one transaction


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


class Entry(NamedTuple):
    """An answer to one question of a conversation, with what was read off it."""

    conversation: int
    question: int
    answer: Answer
    verdicts: Sequence[Verdict]


def is_old(path: Path) -> bool:
    """Whether a file is ours and still to be brought up to date; nothing is written to find out."""
    try:
        with clearly(str(path)), closing(open_to_read(str(path))) as db:
            (version,) = db.execute("PRAGMA user_version").fetchone()
            return bool(0 < version < len(MIGRATIONS) or (version == len(MIGRATIONS) and is_dirty(db)))
    except EvenhandError:  # what is wrong is said when it is opened
        return False


class Store(Queries):
    """One database; `Store(":memory:")` keeps nothing.

    >>> with Store(":memory:") as store:
    ...     store.judges()
    []
    """

    def __init__(self, path: str | Path, *, read_only: bool = False, on_progress: Progress | None = None) -> None:
        self.path = str(path)
        self.worker = name_worker()
        self._held: dict[int, int] = {}  # conversations that this process is at, and their questions to come
        self._claimed = self._closed = False
        with clearly(self.path):
            self._on_progress = on_progress
            self._db = self._open_to_read() if read_only and self.path != MEMORY else self._open_to_write()
        self.outcomes = OutcomeTable(self._db, self._writing)
        self._queue = Queue(self._db, self.worker, self.outcomes)
        shared = SharedTables(self._db, self._writing, self.path, self.outcomes)
        self.labels = LabelBook(shared)
        self.calibrations = CalibrationBook(shared)
        self.gates = GateBook(shared)
        self.batches = BatchBook(shared, self.worker)
        self.judge_book = JudgeBook(shared)
        self.pages = PageBook(shared)
        self.archive = Archive(shared)
        self.annotation = AnnotationBook(shared)
        self.outputs = OutputBook(shared)
        self.vectors = VectorBook(shared)
        self.made = MadeBook(shared, self._queue)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *raised: object) -> None:
        try:
            self.explain(raised[1] if len(raised) > 1 else None)
        finally:
            self.close()

    def explain(self, fault: object) -> None:
        """After an error that should not happen: say so if a damaged file is the reason."""
        if not isinstance(fault, Exception) or isinstance(fault, EvenhandError | OSError):
            return
        if said := damage_in(self._db):
            raise StoreError(
                f"the database {self.path} is damaged: {said}", hint="what can be read: sqlite3 FILE .recover"
            ) from fault
        if isinstance(fault, sqlite3.Error):
            with clearly(self.path):
                raise fault

    def close(self) -> None:
        """Commit, let go of what this process holds, and close the file."""
        if self._closed:
            return
        self._closed = True
        with clearly(self.path), closing(self._db):
            if self._claimed:  # who has only read asks for no lock, which another may be holding
                self._db.execute("DELETE FROM claims WHERE worker = ?", (self.worker,))

    def renew(self) -> None:
        """Say that this process is still at work; where it cannot be looked at, a claim grows old soon."""
        if self._held:
            with self._writing():
                self._db.execute("UPDATE claims SET claimed = ? WHERE worker = ?", (time.time(), self.worker))

    def _open_to_read(self) -> sqlite3.Connection:
        """A connection that changes nothing; an old file is brought to the present form first."""
        db = open_to_read(self.path)
        try:
            (version,) = db.execute("PRAGMA user_version").fetchone()
            if version != len(MIGRATIONS) or is_dirty(db):
                db.close()
                refuse_to_migrate(self.path)
                self._open_to_write().close()
                db = open_to_read(self.path)
            db.execute(f"PRAGMA cache_size = -{_CACHE_KILOBYTES}")
        except BaseException:
            db.close()
            raise
        return db

    def _open_to_write(self) -> sqlite3.Connection:
        self._db = open_to_write(self.path)
        try:
            self._prepare()
        except BaseException:
            self._db.close()
            raise
        return self._db

    def _prepare(self) -> None:
        self._switch_to_wal()
        # WAL with NORMAL survives the death of the process at any moment; only a power cut may cost the
        # last moments, and never the file.
        self._db.execute("PRAGMA synchronous = NORMAL")
        self._db.execute("PRAGMA foreign_keys = ON")
        self._db.execute(f"PRAGMA cache_size = -{_CACHE_KILOBYTES}")
        self._db.execute(f"PRAGMA wal_autocheckpoint = {_CHECKPOINT_PAGES}")
        migrate(self._db, self.path)
        OutcomeTable(self._db, self._writing).bring_up_to_date(self._on_progress)

    def _switch_to_wal(self) -> None:
        """Here SQLite does not wait by itself for another process that is switching the same new file."""
        deadline = time.monotonic() + BUSY_SECONDS
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

    def checked(self, mark: str) -> int | None:
        """How many pairs are in files of which every row was found good before; None where that is not known.

        >>> with Store(":memory:") as store:
        ...     store.note_checked("x", 3)
        ...     store.checked("x"), store.checked("y")
        (3, None)
        """
        row = self._row("SELECT pairs FROM inputs WHERE mark = ?", mark)
        return None if row is None else int(row[0])

    def notes_on(self, mark: str) -> dict[str, int]:
        """What was to be said of files that were checked before, and of how many rows.

        >>> with Store(":memory:") as store:
        ...     store.note_checked("x", 3, {"the same pair again": 2})
        ...     store.notes_on("x"), store.notes_on("y")
        ({'the same pair again': 2}, {})
        """
        found = self._rows("SELECT mark, pairs FROM inputs WHERE mark > ? AND mark < ?", f"{mark} ", f"{mark}!")
        return {str(key).removeprefix(f"{mark} "): int(rows) for key, rows in found}

    def note_checked(self, mark: str, pairs: int, notes: Mapping[str, int] | None = None) -> None:
        """Remember files whose rows are all good, by a hash of what is in them; a note has a row of its own."""
        named = [(mark, pairs), *((f"{mark} {note}", count) for note, count in (notes or {}).items())]
        rows = [(*row, time.time()) for row in named]
        with self._writing():
            self._db.executemany("INSERT OR REPLACE INTO inputs VALUES (?, ?, ?)", rows)

    def note_finished(self, mark: str, judge: int, orders: str) -> None:
        """Remember that a judge was asked all there is to ask about files, unless some of it has failed."""
        with self._writing():
            self._db.execute(
                "INSERT OR REPLACE INTO finished SELECT ?, ?, ?, ? WHERE NOT EXISTS (SELECT 1 FROM failures f"
                " JOIN conversations h ON h.id = f.conversation WHERE h.judge = ?)",
                (mark, judge, orders, time.time(), judge),
            )

    def is_finished(self, mark: str, judge: int, orders: str) -> bool:
        """Whether nothing is left to ask about files: answers stay, and only `reread` can reopen a conversation.

        >>> with Store(":memory:") as store:
        ...     store.is_finished("x", 1, "both")
        False
        """
        wanted = "SELECT 1 FROM finished WHERE mark = ? AND judge = ? AND orders = ?"
        return self._row(wanted, mark, judge, orders) is not None

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

    def end_run(self, run: int, *, pairs: int, asked: int, usage: Usage, decided: bool = False) -> None:
        """Enter what a run used, and whether it stopped because its verdicts were enough."""
        with self._writing():
            self._db.execute(
                "UPDATE runs SET ended = ?, pairs = ?, asked = ?, computed = ?, reused = ?, generated = ?,"
                " settings = CASE WHEN ? THEN json_set(settings, '$.stopped', 'decided') ELSE settings END"
                " WHERE id = ?",
                (time.time(), pairs, asked, usage.computed, usage.reused, usage.generated, decided, run),
            )

    def add_pairs(self, pairs: Iterable[Pair]) -> tuple[int, int]:
        """Keep pairs without asking anyone about them; how many were given, and how many of these are new.

        >>> with Store(":memory:") as store:
        ...     store.add_pairs([Pair("Hi", "x", "y", id="1")]), store.add_pairs([Pair("Hi", "x", "y", id="1")])
        ((1, 1), (1, 0))
        """
        given, before = 0, self.pages.totals()["pairs"]
        waiting = iter(pairs)
        while some := list(islice(waiting, _PAIRS_AT_ONCE)):
            with self._writing():
                self._queue.enter_pairs(some)
            given += len(some)
        return given, self.pages.totals()["pairs"] - before

    def enter(self, judge: int, questions: int, jobs: Iterable[tuple[Pair, Mapping[Order, str]]]) -> list[Job]:
        """Put pairs in the queue and claim their conversations, unless another live process holds one of them.

        Claims are durable before anyone is asked: that is what keeps two processes from asking twice.
        """
        wanted = list(jobs)
        if not wanted:
            return []
        with self._writing():
            entered, claimed = self._queue.enter(judge, questions, wanted, self._held)
        self._held |= claimed
        self._claimed = self._claimed or bool(claimed)
        return entered

    def kept(
        self,
        judge: int,
        questions: QuestionDimensions,
        jobs: Sequence[tuple[Pair, Sequence[Order]]],
        *,
        words: bool = True,
    ) -> list[dict[Order, Conversation] | None]:
        """The conversations of each pair that needs nothing more; None for the others, which are to be entered.

        `questions` are the dimensions of each. A finished run is repeated by this alone, which writes nothing.
        Without `words` the verdicts come without the text that they were read off, and without notes.
        """
        with clearly(self.path):
            return self._queue.kept(judge, questions, jobs, words) if jobs else []

    def questions_left(self, keys: Iterable[str], questions: int) -> dict[str, int]:
        """How many questions of each conversation, named by its key, are still to be answered."""
        with clearly(self.path):
            return self._queue.questions_left(keys, questions)

    def holders(self) -> list[tuple[str, int]]:
        """Which other processes are at work on pairs: machine and process number, and how many conversations each.

        >>> with Store(":memory:") as store:
        ...     store.holders()
        []
        """
        rows = self._rows(
            "SELECT worker, count(*) FROM claims WHERE worker != ? GROUP BY worker ORDER BY 2 DESC, 1", self.worker
        )
        return [(holder_name(str(worker)), number) for worker, number in rows]

    def release(self, job: Job) -> None:
        """Let go of a pair's conversations; one that is complete has no claim on it any more."""
        self.release_conversations(job.conversations.values())

    def release_conversations(self, conversations: Iterable[int]) -> None:
        """Let go of conversations, those of them that this process holds."""
        unfinished = [conversation for conversation in set(conversations) if self._held.pop(conversation, 0)]
        if unfinished:
            with self._writing():
                self._let_go(unfinished)

    def _let_go(self, conversations: Iterable[int]) -> None:
        self._db.executemany(
            "DELETE FROM claims WHERE conversation = ?", [(conversation,) for conversation in conversations]
        )

    # -- the ledger of a conversation -----------------------------------------------------------------

    def answers(self, conversation: int) -> Sequence[Answer]:
        """The answers of a conversation, in the order of its questions."""
        rows = self._db.execute(
            "SELECT text, tokens, finish, samples, notes, computed, reused, generated FROM answers"
            " WHERE conversation = ? ORDER BY question",
            (conversation,),
        )
        return [answer_from(*row) for row in rows]

    def record(self, conversation: int, question: int, answer: Answer, verdicts: Sequence[Verdict]) -> None:
        """Keep one answer and what was read off it, durable when this returns."""
        self.record_all([Entry(conversation, question, answer, verdicts)])

    def record_all(self, entries: Sequence[Entry]) -> None:
        """Keep answers in one transaction; failures that stood in their places are forgotten.

        An answer that is there already stays, and its verdicts with it: another worker was quicker, having taken
        this one for dead.
        """
        left = {
            entry.conversation: self._held[entry.conversation]
            for entry in entries
            if entry.conversation in self._held
        }
        for entry in entries:
            if left.get(entry.conversation):
                ended = any(verdict.label is None for verdict in entry.verdicts)
                left[entry.conversation] = 0 if ended else left[entry.conversation] - 1
        with self._writing():
            self._db.executemany(
                "INSERT INTO answers VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT DO NOTHING",
                [answer_row(entry.conversation, entry.question, entry.answer) for entry in entries],
            )
            self._db.executemany(
                "INSERT INTO verdicts VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT DO NOTHING",
                [verdict_row(entry.conversation, verdict) for entry in entries for verdict in entry.verdicts],
            )
            conversations = {entry.conversation for entry in entries}
            failed = self.outcomes.any_failed()
            if failed:
                self._db.executemany("DELETE FROM failures WHERE conversation = ?", [(h,) for h in conversations])
            self._let_go(conversation for conversation in conversations if left.get(conversation) == 0)
            done = {h for h in conversations if not left.get(h)}
            self.outcomes.refresh_conversations(conversations, done, failed=failed)
        self._held |= left

    def take_back(self, judge: int, conversations: Iterable[int]) -> None:
        """Forget all that was answered in conversations, and what rests on it, as if nobody had been asked."""
        gone = [(conversation,) for conversation in conversations]
        with self._writing():
            for table in ("answers", "verdicts", "failures"):
                self._db.executemany(f"DELETE FROM {table} WHERE conversation = ?", gone)
            self._db.execute("DELETE FROM finished WHERE judge = ?", (judge,))
            self.outcomes.forget_conversations(judge, [conversation for (conversation,) in gone])

    def fail(self, conversation: int, question: int, error: EngineError) -> None:
        """Keep a failure with its reason."""
        self.fail_all([(conversation, question, error)])

    def fail_all(self, failures: Sequence[tuple[int, int, EngineError]]) -> None:
        """Keep failures in one transaction: the conversation, the question, and what went wrong."""
        now = time.time()
        rows = [(number, question, error.reason, str(error), now) for number, question, error in failures]
        conversations = [number for number, _, _ in failures]
        with self._writing():
            self._db.executemany(
                "INSERT INTO failures VALUES (?, ?, ?, ?, 1, ?)"
                " ON CONFLICT DO UPDATE SET question = excluded.question,"
                " reason = excluded.reason, detail = excluded.detail, attempts = attempts + 1,"
                " created = excluded.created",
                rows,
            )
            self.outcomes.refresh_conversations(conversations, conversations, failed=True)

    def reread(
        self,
        judge: JudgeRow,
        questions: QuestionDimensions,
        form: AnswerForm | None = None,
        shown_texts: Callable[[Pair], Sequence[str]] = lambda pair: pair.texts,
    ) -> tuple[int, int]:
        """Read every answer of a judge again with the present reader; how many verdicts, and how many changed.

        An answer that the reader of its day could not read, and the present one can, reopens its conversation.
        """
        seen = changed = 0
        with self._writing():
            self._db.execute("DELETE FROM finished WHERE judge = ?", (judge.id,))
        conversations = dict(self._db.execute("SELECT conversation, pair FROM queue WHERE judge = ?", (judge.id,)))
        for conversation, number in conversations.items():
            shown = shown_texts(self._pair(number))
            with self._writing():  # a run may add an answer at any moment before this one
                fresh = [
                    verdict_row(conversation, verdict)
                    for answer, dimensions in zip(self.answers(conversation), questions, strict=False)
                    for verdict in read_answer(answer, dimensions, shown, form)
                ]
                kept = self._db.execute("SELECT * FROM verdicts WHERE conversation = ?", (conversation,)).fetchall()
                seen, changed = seen + len(fresh), changed + len(set(fresh) - set(kept))
                self._db.execute("DELETE FROM verdicts WHERE conversation = ?", (conversation,))
                self._db.executemany("INSERT INTO verdicts VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)", fresh)
                self.outcomes.refresh_conversations([conversation], [conversation])
        return seen, changed

    # -- reading ---------------------------------------------------------------------------------

    def judges(self, *, counted: bool = True) -> list[JudgeRow]:
        """Every judge that has judged a pair, the newest last; uncounted, which is quicker, their `pairs` are 0."""
        # Grouped, not DISTINCT: the queue is in this order, and DISTINCT would gather all the pairs first.
        count = "(SELECT count(*) FROM (SELECT 1 FROM queue WHERE judge = judges.id GROUP BY pair))"
        pairs = count if counted else "0"
        rows = self._rows(
            "SELECT id, fingerprint, model, identity, protocol, template, dimensions, raw_markup,"
            f" {pairs} FROM judges ORDER BY id"
        )
        return [
            JudgeRow(i, f, m, json.loads(ident), p, t, tuple(json.loads(d)), bool(raw), n)
            for i, f, m, ident, p, t, d, raw, n in rows
        ]

    def made_words(self, judge: JudgeRow) -> Iterator[Mapping[str, Any]]:
        """The word that is kept about each pair of a judge that is made of others: who spoke, or who decided.

        Attacked pairs are left out.
        """
        with clearly(self.path):
            attacked = set(attacked_numbers(self._db))
        return (word for pair, word in self.made.words(judge.id) if pair not in attacked)

    def members_used(self, judge: JudgeRow) -> list[MemberUsage]:
        """The judges that a made one is made of, in their order, and what their answers on its pairs took."""
        known = {row.fingerprint: row for row in self.judges(counted=False)}
        rows = [known.get(mark) for mark in members_of(judge.identity)]
        return [MemberUsage(row, *(self.made.usage(row.id, judge.id) if row else (Usage(), 0))) for row in rows]

    def matches(self, judge: JudgeRow) -> list[tuple[str, str, str]]:
        """Who met whom before a judge: model_1, model_2, and the candidate's side, each of them once.

        >>> with Store(":memory:") as store:
        ...     store.matches(JudgeRow(1, "", "", {}, "", "", (), False, 0))
        []
        """
        return self._rows(
            "SELECT DISTINCT model_1, model_2, candidate FROM pairs WHERE id IN"
            " (SELECT pair FROM queue WHERE judge = ?) ORDER BY 1, 2, 3",
            judge.id,
        )

    def judgments(self, judge: JudgeRow, *, words: bool = False) -> Iterator[Judgment]:
        """Every pair that a judge has brought to an end, with its verdicts, one after the other.

        The queue is kept in this order, so that nothing has to be sorted and nothing is held in memory. With
        `words`, each verdict comes with the text that it was read off, which takes another look for each pair.
        """
        questions = questions_of(judge.template) if words else ()
        with clearly(self.path):
            rows = self._db.execute(SAID_BY_JUDGE + IN_ORDER, (judge.id,))
            for number, judged in groupby(rows, key=itemgetter(0)):
                conversations, ended = conversations_of(judge.dimensions, judged)
                if ended:
                    found = Judgment.of(self._pair(number), conversations)
                    yield with_words(found, self.archive.said(judge.id, number), questions) if words else found

    def judgment(self, judge: JudgeRow, number: int, pair: Pair) -> Judgment | None:
        """One pair, by its number, with the outcomes of a judge; None, if that judge has not judged it."""
        with clearly(self.path):
            conversations, _ = self._conversations(judge.id, judge.dimensions, number)
        return Judgment.of(pair, conversations) if conversations else None

    def blocks(self, judge: JudgeRow, *, metadata: bool = False, attacked: bool = False) -> Iterator[Block]:
        """Every pair that a judge has brought to an end, as columns, a few thousand at a time.

        Pairs that were attacked are left out unless they are asked for.
        """
        with clearly(self.path):
            yield from self.outcomes.blocks(judge.id, metadata=metadata, attacked=attacked)

    def unfinished(self, judge: JudgeRow) -> int:
        """How many pairs were given to a judge and are not asked, or asked in part."""
        with clearly(self.path):
            return self.outcomes.unfinished(judge.id)

    def count_attacked(self, judge: JudgeRow) -> int:
        """How many attacked pairs a judge has brought to an end."""
        with clearly(self.path):
            return len(attacked_numbers(self._db, judge.id))

    def attacked(self) -> list[tuple[int, Pair]]:
        """Pairs that were attacked and those that they were made of, with their numbers.

        >>> with Store(":memory:") as store:
        ...     store.attacked()
        []
        """
        with clearly(self.path):
            return attacked_pairs(self._db)

    def voted(self) -> Iterator[tuple[int, Pair]]:
        """Every pair that people have said something of, with its number."""
        with clearly(self.path):
            yield from self.outcomes.voted()

    def compact(self) -> None:
        """Give the disk back what was deleted; it takes as long as the file is large."""
        with clearly(self.path):
            self._db.execute("VACUUM")

    def flush_each(self) -> None:
        """From now on wait for the disk at each commit: what a person said must survive a power cut, too."""
        self._db.execute("PRAGMA synchronous = FULL")

    def _conversations(
        self, judge: int, dimensions: Sequence[str], pair: int
    ) -> tuple[dict[Order, Conversation], bool]:
        """The verdicts of a pair by order, and whether they have come to an end."""
        rows = self._db.execute(f"{SAID_BY_JUDGE} AND d.pair = ?{IN_ORDER}", (judge, pair))
        return conversations_of(dimensions, rows)

    def _pair(self, number: int) -> Pair:
        query = f"SELECT {PAIR_COLUMNS} FROM pairs WHERE id = ?"
        return stored_pair(self._db.execute(query, (number,)).fetchone())

    def pairs_of(self, conversations: Iterable[int]) -> dict[int, Pair]:
        """The pair that was put before the judge, by conversation."""
        with clearly(self.path):
            rows = self._rows(
                f"SELECT conversation, min(pair) FROM queue WHERE conversation IN {AMONG} GROUP BY conversation",
                to_json(conversations),
            )
            return {conversation: self._pair(number) for conversation, number in rows}

    def judgments_of(self, judge: int, setup: Setup, pairs: Sequence[Pair]) -> list[Judgment | None]:
        """What a judge has said of these pairs; None for one that it has not brought to an end."""
        with clearly(self.path):
            numbers = self._queue.numbers(pairs)
            found = [self._conversations(judge, setup.protocol.dimensions, number or 0) for number in numbers]
        return [
            Judgment.of(pair, conversations) if conversations and ended else None
            for pair, (conversations, ended) in zip(pairs, found, strict=True)
        ]

    def holds(self, conversations: Iterable[int]) -> bool:
        """Whether this process itself is at work on one of these conversations."""
        return any(conversation in self._held for conversation in conversations)

    def usage(self, judge: JudgeRow) -> tuple[Usage, float]:
        """The tokens that a judge's answers took, and the seconds that its runs took."""
        computed, reused, generated = self._db.execute(
            "SELECT coalesce(sum(computed), 0), coalesce(sum(reused), 0), coalesce(sum(generated), 0)"
            " FROM conversations h CROSS JOIN answers a ON a.conversation = h.id WHERE h.judge = ?",
            (judge.id,),
        ).fetchone()
        return Usage(computed, reused, generated), self._seconds(judge.id)

    def _seconds(self, judge: int) -> float:
        """How long a judge's runs took; one that was killed, or is under way, as long as answers came."""
        runs = self._db.execute("SELECT started, ended FROM runs WHERE judge = ? ORDER BY started", (judge,))
        took = [
            (self._last_answer(judge, started, before) if ended is None else ended) - started
            for (started, ended), (before, _) in pairwise([*runs, (math.inf, None)])
        ]
        return float(sum(took))

    def _last_answer(self, judge: int, since: float, before: float) -> float:
        (last,) = self._db.execute(
            "SELECT max(a.created) FROM conversations h CROSS JOIN answers a ON a.conversation = h.id"
            " WHERE h.judge = ? AND a.created >= ? AND a.created < ?",
            (judge, since, before),
        ).fetchone()
        return float(last or since)
