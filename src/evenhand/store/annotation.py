"""Annotation by people: who labels, which pairs are put before them, and what may be said next.

The server decides what an annotator is to label; a page only shows it. A verdict is taken for the one question that
is open, once: another tab, a late click or a repeated request finds the question closed and changes nothing.
"""

from __future__ import annotations

import hashlib
import json
import random
import secrets
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import cast

from evenhand.core.errors import InputError
from evenhand.core.pair import Side
from evenhand.core.protocol import ORDERS, Order
from evenhand.core.verdict import SIDE_OF, Label
from evenhand.core.votes import Drawn, Role
from evenhand.store.book import Book
from evenhand.store.drawing import Drawing, NewTask

SOURCE = "page"  # what `labels.source` says of a verdict that was given here
_LONGEST_NAME = 80


@dataclass(frozen=True, slots=True)
class Annotator:
    """A person who labels: on which dimensions, by which protocol's rubric, and how far they are."""

    name: str
    seed: int
    dimensions: tuple[str, ...]
    protocol: str
    rubric: str  # JSON: what the page shows of the protocol
    created: float
    role: Role
    tasks: int
    done: int

    @property
    def decides(self) -> bool:
        """Whether this is an adjudicator, who decides where others differ."""
        return self.role == "adjudicator"


@dataclass(frozen=True, slots=True)
class AnnotationTask:
    """A pair before an annotator: its place in their list, how it is shown, and what they said of it so far."""

    place: int
    pair: str  # Pair.key
    order: Order
    shared: bool
    done: bool
    asked: tuple[str, ...]  # the dimensions to be labelled
    said: dict[str, Side | None]  # by dimension; None is a question that was passed over

    def shown(self, dimension: str) -> Label | None:
        """What was said, in the letters of the page."""
        side = self.said.get(dimension)
        return next((label for label, which in SIDE_OF[self.order].items() if which == side), None)


@dataclass(frozen=True, slots=True)
class SavedLabel:
    """A verdict that was saved: `fresh` is False where the very same was there already."""

    place: int
    dimension: str
    fresh: bool


class Conflict(InputError):
    """The question is not open: it was answered in another tab, or is not this annotator's to answer."""


class AnnotationBook(Book):
    """Who labels what in one store: `store.annotation`.

    >>> from evenhand.store import Store
    >>> with Store(":memory:") as store:
    ...     secret = store.annotation.invite("ann", dimensions=["overall"], seed=7)
    ...     store.annotation.who(secret).name, store.annotation.who("guessed")
    ('ann', None)
    """

    # -- who labels ------------------------------------------------------------------------------

    def invite(
        self,
        name: str,
        *,
        dimensions: Sequence[str],
        seed: int = 0,
        protocol: str = "",
        rubric: str = "{}",
        role: Role = "annotator",
    ) -> str:
        """Enter an annotator; the secret of their link, of which only a hash is kept.

        An adjudicator is asked for the dimensions that each disagreement has, and has not labelled before.
        """
        _check_name(name)
        if not dimensions and role == "annotator":
            raise InputError("nothing to label", hint="choose at least one dimension")
        secret = secrets.token_urlsafe(32)
        row = (name, _hash(secret), seed, json.dumps(list(dimensions)), protocol, rubric, time.time(), role)
        with self._writing():
            self._refuse_taken(name, labels=role == "adjudicator")
            self._db.execute("INSERT INTO annotators VALUES (?, ?, ?, ?, ?, ?, ?, ?)", row)
        return secret

    def rename(self, name: str, new: str) -> None:
        """Give an annotator another name, in their list and in all that they said; their link stays."""
        _check_name(new)
        with self._writing():
            self._known(name)
            self._refuse_taken(new, labels=True)
            self._db.execute("PRAGMA defer_foreign_keys = ON")
            self._db.execute("UPDATE annotators SET name = ? WHERE name = ?", (new, name))
            for table in ("tasks", "labels"):
                self._db.execute(f"UPDATE {table} SET annotator = ? WHERE annotator = ?", (new, name))
            self._outcomes.relabel(self._labelled_by(new))

    def remove(self, name: str, *, labels: bool = False) -> int:
        """End an annotator's link and list; with `labels`, forget what they said, too. How many labels went."""
        gone = 0
        with self._writing():
            self._known(name)
            self._db.execute("DELETE FROM tasks WHERE annotator = ?", (name,))
            self._db.execute("DELETE FROM annotators WHERE name = ?", (name,))
            if labels:
                keys = self._labelled_by(name)
                gone = self._db.execute("DELETE FROM labels WHERE annotator = ?", (name,)).rowcount
                self._outcomes.relabel(keys)
        return gone

    def _known(self, name: str) -> Annotator:
        who = self.annotator(name)
        if who is None:
            raise InputError(f"no annotator is called {name}")
        return who

    def _labelled_by(self, name: str) -> list[str]:
        return [key for (key,) in self._db.execute("SELECT DISTINCT pair FROM labels WHERE annotator = ?", (name,))]

    def _refuse_taken(self, name: str, *, labels: bool) -> None:
        """Two people under one name could not be told apart again."""
        if self.annotator(name) is not None:
            raise InputError(f"there is an annotator called {name} already", hint="choose another name")
        if labels and self._labelled_by(name):
            raise InputError(f"there are labels of {name} already", hint="choose another name")

    def renew(self, name: str) -> str:
        """A new link for an annotator; the old one leads nowhere from now on."""
        secret = secrets.token_urlsafe(32)
        with self._writing():
            self._db.execute("UPDATE annotators SET secret = ? WHERE name = ?", (_hash(secret), name))
        return secret

    def who(self, secret: str) -> Annotator | None:
        """Whose link it is."""
        return next(iter(self._annotators("WHERE a.secret = ?", _hash(secret))), None)

    def annotator(self, name: str) -> Annotator | None:
        """An annotator by name."""
        return next(iter(self._annotators("WHERE a.name = ?", name)), None)

    def annotators(self) -> list[Annotator]:
        """Everybody who was invited."""
        return self._annotators()

    def _annotators(self, where: str = "", *values: str) -> list[Annotator]:
        rows = self._rows(
            "SELECT a.name, a.seed, a.dimensions, a.protocol, a.rubric, a.created, a.role,"
            " count(t.place), count(t.done) FROM annotators a LEFT JOIN tasks t ON t.annotator = a.name"
            f" {where} GROUP BY a.name ORDER BY a.name",
            *values,
        )
        return [
            Annotator(name, seed, tuple(json.loads(dimensions)), *rest) for name, seed, dimensions, *rest in rows
        ]

    # -- what is labelled ------------------------------------------------------------------------

    def assign(self, name: str, *, count: int, shared: int, first: Iterable[str] = ()) -> int:
        """Put pairs on an annotator's list; how many were found.

        Of `count` pairs, `shared` are those that others have on their lists as shared, too, as far as there are
        any; the rest are pairs that nobody else has, while they last. `first` are keys to take before others; one
        pair in five is drawn at random all the same, so that the labels can speak for all pairs.
        The annotator's seed decides in which order they come, and on which side each output stands.
        """
        with self._writing():
            who = self._known(name)
            drawing = Drawing(self._db, name, who.seed, list(first))
            chosen = drawing.tasks(count, min(shared, count))
            self._put_on_list(who, chosen)
        return len(chosen)

    def assign_disagreements(self, name: str, found: Sequence[tuple[str, Sequence[str]]]) -> int:
        """Put pairs on an adjudicator's list, each with the dimensions on which people differ; how many are new.

        What another adjudicator has on an open list is left to them.
        """
        with self._writing():
            who = self._known(name)
            theirs = {pair for (pair,) in self._db.execute(_ON_OTHER_LISTS, (name,))}
            mine = dict(self._db.execute("SELECT pair, asked FROM tasks WHERE annotator = ?", (name,)))
            new = 0
            for pair, dimensions in found:
                before = json.loads(mine.get(pair) or "[]")
                if pair in theirs or set(dimensions) <= set(before):
                    continue
                new += 1
                asked = json.dumps(list(dict.fromkeys((*before, *dimensions))))
                self._db.execute(_ONE_MORE_TASK, (name, name, pair, order_for(who.seed, pair), asked))
            every = dict.fromkeys((*who.dimensions, *(word for _, words in found for word in words)))
            self._db.execute("UPDATE annotators SET dimensions = ? WHERE name = ?", (json.dumps(list(every)), name))
        return new

    def give(self, name: str, pairs: Sequence[str]) -> int:
        """Put these very pairs on an annotator's list, behind what is there; how many are new to it.

        They were chosen and not drawn, so that their labels do not speak for other pairs.
        """
        with self._writing():
            who = self._known(name)
            mine = {key for (key,) in self._db.execute("SELECT pair FROM tasks WHERE annotator = ?", (name,))}
            new = [key for key in dict.fromkeys(pairs) if key not in mine]
            self._put_on_list(who, [NewTask(key, False, Drawn("suggested")) for key in new])
        return len(new)

    def _put_on_list(self, who: Annotator, new: Sequence[NewTask]) -> None:
        self._db.executemany(
            'INSERT INTO tasks (annotator, place, pair, "order", shared, done, design, probability, among)'
            " VALUES (?, ?, ?, ?, ?, NULL, ?, ?, ?)",
            [
                (who.name, place, task.pair, order_for(who.seed, task.pair), task.shared, *task.how)
                for place, task in enumerate(new, who.tasks + 1)
            ],
        )

    def next(self, name: str) -> AnnotationTask | None:
        """The pair that an annotator is to label now; None where the list is done."""
        return self._task(name, "done IS NULL ORDER BY place LIMIT 1")

    def task(self, name: str, place: int) -> AnnotationTask | None:
        """One pair of an annotator's list."""
        return self._task(name, "place = ?", place)

    def _task(self, name: str, where: str, *values: int) -> AnnotationTask | None:
        row = self._row(
            'SELECT place, pair, "order", shared, done, asked, dimensions FROM tasks JOIN annotators'
            f" ON name = annotator WHERE annotator = ? AND {where}",
            name,
            *values,
        )
        if row is None:
            return None
        place, pair, order, shared, done, asked, dimensions = row
        said = self._db.execute("SELECT dimension, side FROM labels WHERE pair = ? AND annotator = ?", (pair, name))
        asked = tuple(json.loads(asked or dimensions))
        return AnnotationTask(place, pair, cast("Order", order), bool(shared), done is not None, asked, dict(said))

    def done(self, name: str, page: int = 1, size: int = 50) -> list[AnnotationTask]:
        """What an annotator has labelled or passed over, the latest first."""
        places = self._db.execute(
            "SELECT place FROM tasks WHERE annotator = ? AND done IS NOT NULL ORDER BY done DESC, place DESC"
            " LIMIT ? OFFSET ?",
            (name, size, (page - 1) * size),
        ).fetchall()
        return [task for (place,) in places if (task := self.task(name, place))]

    # -- what is said ----------------------------------------------------------------------------

    def save(
        self, name: str, place: int, dimension: str, label: Label, *, note: str = "", seconds: float | None = None
    ) -> SavedLabel:
        """Keep a verdict, given in the letters of the page; durable when this returns.

        The very same verdict again (a request that was repeated) is no harm; another one on a question that is
        answered is a Conflict: to change a verdict, take it back first.
        """
        with self._writing():
            who, task = self._open(name, place)
            side = SIDE_OF[task.order][label]
            if dimension not in task.asked:
                raise Conflict(f"{dimension} is not asked here")
            if dimension in task.said:
                if task.said[dimension] == side:
                    return SavedLabel(place, dimension, fresh=False)
                raise Conflict("this question is answered already", hint="undo takes an answer back")
            current = self.next(name)
            if current is None or current.place != place:
                raise Conflict("another pair is to be labelled now", hint="it may have been shown in another tab")
            self._enter(who, task, {dimension: side}, note, seconds)
            self._close_if_complete(name, task, {*task.said, dimension})
        return SavedLabel(place, dimension, fresh=True)

    def skip(self, name: str, place: int, reason: str, *, seconds: float | None = None) -> None:
        """Pass over what is open of a pair, with a reason."""
        with self._writing():
            who, task = self._open(name, place)
            left = [dimension for dimension in task.asked if dimension not in task.said]
            current = self.next(name)
            if not left or current is None or current.place != place:
                raise Conflict("this pair is done already", hint="it may have been labelled in another tab")
            self._enter(who, task, dict.fromkeys(left), reason, seconds)
            self._close_if_complete(name, task, set(task.asked))

    def undo(self, name: str, expected: tuple[int, str] | None = None) -> AnnotationTask | None:
        """Take back what an annotator said last; the pair it was said of, which is before them again.

        `expected` is the place and dimension that the page believes to be the last; where it is not, nothing
        is taken back. None, where there is nothing to take back.
        """
        with self._writing():
            last = self.last(name)
            if last is None:
                return None
            if expected is not None and last[:2] != expected:
                raise Conflict("something else was said last", hint="it may have been said in another tab")
            place, _, created = last
            task = self.task(name, place)
            assert task is not None
            self._db.execute(
                "DELETE FROM labels WHERE pair = ? AND annotator = ? AND created = ?", (task.pair, name, created)
            )
            self._outcomes.relabel([task.pair])
            self._reopen(name, place)
        return self.task(name, place)

    def last(self, name: str) -> tuple[int, str, float] | None:
        """Place, dimension and time of what was said last; of several questions passed over at once, the first."""
        row = self._db.execute(
            "SELECT t.place, l.dimension, l.created FROM labels l JOIN tasks t ON t.annotator = l.annotator"
            " AND t.pair = l.pair WHERE l.annotator = ? AND l.source = ?"
            " ORDER BY l.created DESC, l.dimension LIMIT 1",
            (name, SOURCE),
        ).fetchone()
        return None if row is None else (int(row[0]), str(row[1]), float(row[2]))

    def again(self, name: str, place: int) -> None:
        """Open a pair that is done: what was said of it is forgotten, and it comes next."""
        with self._writing():
            _, task = self._open(name, place)
            self._db.execute("DELETE FROM labels WHERE pair = ? AND annotator = ?", (task.pair, name))
            self._outcomes.relabel([task.pair])
            self._reopen(name, place)

    def _open(self, name: str, place: int) -> tuple[Annotator, AnnotationTask]:
        who, task = self.annotator(name), self.task(name, place)
        if who is None or task is None:
            raise Conflict("there is no such pair on this list")
        return who, task

    def _reopen(self, name: str, place: int) -> None:
        self._db.execute("UPDATE tasks SET done = NULL WHERE annotator = ? AND place = ?", (name, place))

    def _enter(
        self, who: Annotator, task: AnnotationTask, sides: dict[str, Side | None], note: str, seconds: float | None
    ) -> None:
        name = who.name
        now = self._moment(name)
        how = self._db.execute(
            "SELECT design, probability, among FROM tasks WHERE annotator = ? AND place = ?", (name, task.place)
        ).fetchone()
        self._db.executemany(
            'INSERT INTO labels (pair, dimension, annotator, side, "order", note, seconds, source, created, design,'
            " probability, among, role) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
            [
                (task.pair, dimension, name, side, task.order, note, seconds, SOURCE, now, *how, who.role)
                for dimension, side in sides.items()
            ],
        )
        self._outcomes.relabel([task.pair])

    def _moment(self, name: str) -> float:
        """Now, but later than anything this annotator said before: a clock may stand still or be set back."""
        (latest,) = self._db.execute("SELECT max(created) FROM labels WHERE annotator = ?", (name,)).fetchone()
        return max(time.time(), (latest or 0.0) + 1e-6)

    def _close_if_complete(self, name: str, task: AnnotationTask, said: set[str]) -> None:
        if said >= set(task.asked):
            self._db.execute(
                "UPDATE tasks SET done = ? WHERE annotator = ? AND place = ?", (time.time(), name, task.place)
            )


# A pair that is on the list already is asked once more, for what is new. It was chosen because people differ on it.
_ONE_MORE_TASK = """INSERT INTO tasks (annotator, place, pair, "order", shared, done, design, asked)
    VALUES (?, (SELECT coalesce(max(place), 0) + 1 FROM tasks WHERE annotator = ?), ?, ?, 0, NULL, 'suggested', ?)
    ON CONFLICT (annotator, pair) DO UPDATE SET asked = excluded.asked, done = NULL"""
_ON_OTHER_LISTS = """SELECT t.pair FROM tasks t JOIN annotators a ON a.name = t.annotator
    WHERE a.role = 'adjudicator' AND a.name <> ? AND t.done IS NULL"""


def _check_name(name: str) -> None:
    if not name.strip() or len(name) > _LONGEST_NAME:
        raise InputError("an annotator needs a name", hint=f"at most {_LONGEST_NAME} characters")


def order_for(seed: int, key: str) -> Order:
    """How an annotator is shown a pair: decided by their seed and the texts alone.

    >>> {order_for(seed, "key") for seed in range(9)} == set(ORDERS)
    True
    """
    return random.Random(f"{seed} {key}").choice(ORDERS)


def _hash(secret: str) -> str:
    return hashlib.sha256(secret.encode()).hexdigest()
