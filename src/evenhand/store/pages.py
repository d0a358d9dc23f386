"""What the web page asks of the database: lists by filter and order, one pair, totals.

Every list query runs over `outcomes`, whose key begins with judge and dimension, so that 100,000 pairs take
milliseconds; texts are read for the rows of one page alone.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, cast, get_args

from evenhand.core.outcome import OutcomeRow
from evenhand.core.pair import COMBINED, Pair, Side
from evenhand.core.protocol import Order
from evenhand.store.attacked import ATTACKED
from evenhand.store.book import Book, SharedTables
from evenhand.store.rows import PAIR_COLUMNS, stored_pair
from evenhand.store.schema import clearly
from evenhand.store.words import WordIndex

Only = Literal["inconsistent", "invalid", "against_people", "with_people", "against_judges", "once", "as_it_was"]
Sort = Literal["uncertain", "sure", "entry", "gap"]
ONLY: tuple[Only, ...] = get_args(Only)
SORTS: tuple[Sort, ...] = get_args(Sort)
PAGE_SIZE = 50

# What people said of the pair: of the whole, where the judge combines. By how much output 1 is longer.
_KNOWN = (
    "(SELECT k.side FROM known k WHERE k.pair = f.pair"
    " AND k.dimension = CASE f.dimension WHEN 'combined' THEN 'overall' ELSE f.dimension END)"
)
_GAP = "(SELECT c.length_1 - c.length_2 FROM pair_columns c WHERE c.pair = f.pair)"
_ONLY_SQL: dict[Only, str] = {
    "inconsistent": "f.inconsistent",
    "invalid": "f.side IS NULL",
    "against_people": f"f.side <> {_KNOWN}",
    "with_people": f"{_KNOWN} IS NOT NULL",
    "against_judges": "f.split",
    "as_it_was": f"f.pair NOT IN ({ATTACKED})",
    # Of exact repeats the one that counts: a valid one, and of those the first. CROSS JOIN keeps SQLite to this
    # order of tables, by the key of the texts; it would look through all outcomes for each row.
    "once": (
        "NOT EXISTS (SELECT 1 FROM pairs p CROSS JOIN pairs q ON q.key = p.key AND q.model_1 = p.model_1"
        " AND q.model_2 = p.model_2 AND q.id <> p.id CROSS JOIN outcomes g ON g.judge = f.judge"
        " AND g.dimension = f.dimension AND g.pair = q.id WHERE p.id = f.pair"
        " AND ((g.side IS NULL) < (f.side IS NULL) OR ((g.side IS NULL) = (f.side IS NULL) AND q.id < f.pair)))"
    ),
}
# What a list is ordered by, and whether it falls; the pair's number decides between equals, so that every row has
# its place. The first two are the very columns of an index or key, which SQLite then walks instead of sorting.
_SORT_SQL: dict[Sort, tuple[str, bool]] = {
    "uncertain": ("f.uncertainty", True),
    "entry": ("f.pair", False),
    "sure": ("CASE WHEN f.uncertainty < 0 THEN 2.0 ELSE f.uncertainty END", False),  # what is invalid stands last
    "gap": (f"abs({_GAP})", True),
}


@dataclass(frozen=True, slots=True)
class View:
    """Which outcomes a list shows, and in which order."""

    judge: int
    dimension: str
    side: Side | None = None
    only: tuple[Only, ...] = ()
    text: str = ""
    longer: Literal["", "1", "2", "winner", "loser"] = ""
    gap: int = 0  # at least so many characters between the outputs
    fields: tuple[tuple[str, str], ...] = ()
    sort: Sort = "uncertain"
    reason: str = ""  # words in an answer of the judge


@dataclass(frozen=True, slots=True)
class Listed:
    """What every list shows of a pair."""

    pair: int
    name: str
    excerpt: str
    model_1: str
    model_2: str
    length_1: int
    length_2: int


@dataclass(frozen=True, slots=True)
class OutcomeLine(Listed):
    """One outcome as a list shows it."""

    side: Side | None
    p: Mapping[Side, float] | None
    uncertainty: float | None
    inconsistent: bool
    invalid: str | None
    known: Side | None
    split: bool


@dataclass(frozen=True, slots=True)
class PairLine(Listed):
    """One pair as a list shows it that knows of no judge."""

    people: int  # who have said something of it, beside what its file says
    judged: int  # 1, if it was given to any judge


@dataclass(frozen=True, slots=True)
class ListPosition:
    """Where a pair stands in a view: its number from 1 (None, if it is not in it), and its neighbours."""

    number: int | None
    of: int
    before: int | None
    after: int | None


class PageBook(Book):
    """The pages' view of one store: `store.pages`.

    >>> from evenhand.store import Store
    >>> with Store(":memory:") as store:
    ...     store.pages.count(View(1, "overall"))
    0
    """

    def __init__(self, shared: SharedTables) -> None:
        super().__init__(shared)
        self.words: WordIndex | None = None  # which pairs may hold a text, where there is an index
        self._asked: WordIndex | None = None  # the one that is attached
        self._sought: tuple[str, int] | None = None  # what the table `sought` holds, and up to which pair

    # -- lists -----------------------------------------------------------------------------------

    def count(self, view: View) -> int:
        """How many rows a view has."""
        where, values = self._where(view)
        (count,) = self._row(f"SELECT count(*) FROM outcomes f WHERE {where}", *values)
        return int(count)

    def rows(self, view: View, page: int = 1, size: int = PAGE_SIZE) -> list[OutcomeLine]:
        """One page of a view."""
        where, values = self._where(view)
        sql = (
            "WITH chosen AS MATERIALIZED (SELECT f.pair AS number FROM outcomes f"
            f" WHERE {where} ORDER BY {_order(view)} LIMIT ? OFFSET ?)"
            " SELECT f.pair, p.name, substr(p.instruction, 1, 240), c.model_1, c.model_2, c.length_1, c.length_2,"
            f" f.side, f.p_1, f.p_2, f.p_tie, f.uncertainty, f.inconsistent, f.reason, {_KNOWN}, f.split"
            " FROM chosen"
            " JOIN outcomes f ON f.judge = ? AND f.dimension = ? AND f.pair = chosen.number"
            f" JOIN pairs p ON p.id = f.pair JOIN pair_columns c ON c.pair = f.pair ORDER BY {_order(view)}"
        )
        offset = (max(page, 1) - 1) * size
        return [_line(row) for row in self._rows(sql, *values, size, offset, view.judge, view.dimension)]

    def all_pairs(self, text: str = "", page: int = 1, size: int = PAGE_SIZE) -> tuple[int, list[PairLine]]:
        """Every pair, judged or not, as they came: how many there are, and one page of them."""
        with clearly(self.path):
            if text:
                self._seek(text)
            found = "pairs p JOIN temp.sought s ON s.pair = p.id" if text else "pairs p"
            (count,) = self._db.execute(f"SELECT count(*) FROM {found}").fetchone()
            last = max(1, -(-count // size))
            rows = self._db.execute(
                "SELECT p.id, p.name, substr(p.instruction, 1, 240), p.model_1, p.model_2, length(p.output_1),"
                " length(p.output_2), (SELECT count(DISTINCT l.annotator) FROM labels l WHERE l.pair = p.key"
                " AND l.side IS NOT NULL), EXISTS (SELECT 1 FROM queue d WHERE d.pair = p.id)"
                f" FROM {found} ORDER BY p.id LIMIT ? OFFSET ?",
                (size, (min(max(page, 1), last) - 1) * size),
            ).fetchall()
        return int(count), [PairLine(*row) for row in rows]

    def place_among_all(self, pair: int) -> ListPosition:
        """Where a pair stands among all, as they came."""
        row = self._row(
            "SELECT (SELECT count(*) FROM pairs WHERE id <= ?1), (SELECT count(*) FROM pairs),"
            " (SELECT max(id) FROM pairs WHERE id < ?1), (SELECT min(id) FROM pairs WHERE id > ?1)",
            pair,
        )
        return ListPosition(*row)

    def place(self, view: View, pair: int) -> ListPosition:
        """Where a pair stands in a view."""
        where, values = self._where(view)
        key, falls = _SORT_SQL[view.sort]
        with clearly(self.path):
            here = self._db.execute(
                f"SELECT {key} FROM outcomes f WHERE f.judge = ? AND f.dimension = ? AND f.pair = ?",
                (view.judge, view.dimension, pair),
            ).fetchone()
            if here is None:
                return ListPosition(None, self.count(view), None, None)
            total, upto, there = self._db.execute(
                f"SELECT count(*), sum(({key}, f.pair) {'>=' if falls else '<='} (?, ?)), max(f.pair = ?)"
                f" FROM outcomes f WHERE {where}",
                (*here, pair, pair, *values),
            ).fetchone()
            near = [
                self._db.execute(
                    f"SELECT f.pair FROM outcomes f WHERE {where} AND ({key}, f.pair) {'<' if down else '>'} (?, ?)"
                    f" ORDER BY {_direction(view.sort, down)} LIMIT 1",
                    (*values, *here, pair),
                ).fetchone()
                for down in (not falls, falls)
            ]
        before, after = (None if row is None else int(row[0]) for row in near)
        return ListPosition(int(upto) if there else None, int(total), before, after)

    def fields(self, most: int = 24) -> dict[str, list[str]]:
        """Metadata fields with their values, those with too many different values left empty."""
        with clearly(self.path):
            return {
                name: values if len(values := self._next("value", "field = ?", name, most=most + 1)) <= most else []
                for name in self._next("field", "? IS NULL", None, most=200)
            }

    def _next(self, column: str, where: str, value: str | None, *, most: int) -> list[str]:
        """The first different values of a column: from one to the next by the index, past all that are alike."""
        found: list[str] = []
        last: str | None = None
        while len(found) < most:
            (last,) = self._db.execute(
                f"SELECT min({column}) FROM facets WHERE {where} AND {column} > ?", (value, last if found else "")
            ).fetchone()
            if last is None:
                break
            found.append(last)
        return found

    def _where(self, view: View) -> tuple[str, Sequence[Any]]:
        if view.text:
            with clearly(self.path):
                self._seek(view.text)
        return _where(view)

    def _seek(self, text: str) -> None:
        """Look through all texts once, and keep the numbers; later only through pairs that came since.

        The table is this connection's own. A pair's texts never change, so what was found stays right.
        """
        (last,) = self._db.execute("SELECT coalesce(max(id), 0) FROM pairs").fetchone()
        done = self._sought[1] if self._sought and self._sought[0] == text else 0
        if self._sought == (text, last):
            return
        self._db.execute("CREATE TEMP TABLE IF NOT EXISTS sought (pair INTEGER PRIMARY KEY)")
        if not done:
            self._db.execute("DELETE FROM temp.sought")
        done = self._seek_by_words(text, done, last)
        self._db.execute(_SEEK_SQL, (done, last, *(_like(text),) * 4))
        self._sought = (text, last)

    def _seek_by_words(self, text: str, done: int, last: int) -> int:
        """Look through the pairs that an index names, as far as it knows them; the last of those it knows."""
        words = self.words
        known = min(last, words.last) if words is not None else 0
        pattern = words.pattern(text) if words is not None and known > done else None
        if words is None or pattern is None:
            return done
        try:
            if self._asked is not words:
                self._db.execute("ATTACH ? AS words", (words.path,))
                self._asked = words
            self._db.execute(_SEEK_SQL + _NAMED_SQL, (done, known, *(_like(text),) * 4, pattern))
        except sqlite3.OperationalError:  # it was thrown away meanwhile
            self.words = None
            return done
        return known

    def teach(self, words: WordIndex) -> int:
        """Add the pairs that an index does not have yet; how many."""
        with clearly(self.path):
            return words.add(
                self._db.execute(
                    "SELECT id, name, instruction, output_1, output_2 FROM pairs WHERE id > ? ORDER BY id"
                    " LIMIT 500",
                    (words.last,),
                )
            )

    # -- one pair --------------------------------------------------------------------------------

    def pair(self, number: int) -> Pair | None:
        """A pair by its number."""
        row = self._row(f"SELECT {PAIR_COLUMNS} FROM pairs WHERE id = ?", number)
        return None if row is None else stored_pair(row)

    def number(self, key: str) -> int | None:
        """The number of the first pair with these texts."""
        row = self._db.execute("SELECT min(id) FROM pairs WHERE key = ?", (key,)).fetchone()
        return cast("int | None", row[0])

    def outcomes(self, judge: int, pair: int) -> list[OutcomeRow]:
        """The outcomes of one pair as they are kept; none where it is not finished."""
        rows = self._rows(
            "SELECT o.dimension, said, p_1, p_2, p_tie, mass, reason"
            " FROM (SELECT value AS name FROM json_each((SELECT dimensions FROM judges WHERE id = ?))"
            " UNION SELECT ?) CROSS JOIN outcomes o ON o.judge = ? AND o.dimension = name AND o.pair = ?",
            *(judge, COMBINED, judge, pair),
        )
        return [OutcomeRow(*row) for row in rows]

    def conversation(self, judge: int, pair: int, order: Order) -> int | None:
        """The number of the conversation on a pair in one order."""
        row = self._db.execute(
            'SELECT conversation FROM queue WHERE judge = ? AND pair = ? AND "order" = ?', (judge, pair, order)
        ).fetchone()
        return None if row is None else int(row[0])

    # -- totals ----------------------------------------------------------------------------------

    def models(self) -> list[tuple[str, int]]:
        """The models that pairs are of, with the number of pairs."""
        return self._db.execute(
            "SELECT value, count(*) FROM facets WHERE field = 'model' GROUP BY value ORDER BY 2 DESC, 1"
        ).fetchall()

    def sides(self) -> tuple[str, str]:
        """What to call the two sides: the models' names, where every pair has the same two."""
        names = self._db.execute("SELECT DISTINCT model_1, model_2 FROM pair_columns LIMIT 2").fetchall()
        one, two = names[0] if len(names) == 1 else ("", "")
        return one or "1", two or "2"

    def version(self) -> int:
        """A number that changes whenever another connection has written to the file."""
        (number,) = self._db.execute("PRAGMA data_version").fetchone()
        return int(number)

    def totals(self) -> dict[str, int]:
        """How much there is of everything."""
        names = ("pairs", "judges", "labels", "annotators")
        return {name: self._db.execute(f"SELECT count(*) FROM {name}").fetchone()[0] for name in names}


_LONGER_SQL = {
    "1": f"{_GAP} > 0",
    "2": f"{_GAP} < 0",
    "winner": f"((f.side = '1' AND {_GAP} > 0) OR (f.side = '2' AND {_GAP} < 0))",
    "loser": f"((f.side = '1' AND {_GAP} < 0) OR (f.side = '2' AND {_GAP} > 0))",
}


def _where(view: View) -> tuple[str, Sequence[Any]]:
    parts: list[tuple[str, tuple[Any, ...]]] = [
        ("f.judge = ? AND f.dimension = ?", (view.judge, view.dimension)),
        *((_ONLY_SQL[only], ()) for only in view.only),
        *((_FIELD_SQL, field) for field in view.fields),
    ]
    if view.side is not None:
        parts.append(("f.side = ?", (view.side,)))
    if view.longer:
        parts.append((_LONGER_SQL[view.longer], ()))
    if view.gap:
        parts.append((f"abs({_GAP}) >= ?", (view.gap,)))
    if view.text:
        parts.append((_TEXT_SQL, ()))
    if view.reason:
        parts.append((_REASON_SQL, (view.judge, _like(view.reason))))
    return " AND ".join(sql for sql, _ in parts), [value for _, values in parts for value in values]


_FIELD_SQL = "f.pair IN (SELECT x.pair FROM facets x WHERE x.field = ? AND x.value = ?)"
_TEXT_SQL = "f.pair IN (SELECT pair FROM temp.sought)"
_REASON_SQL = (
    "EXISTS (SELECT 1 FROM queue d JOIN answers a ON a.conversation = d.conversation WHERE d.judge = ?"
    " AND d.pair = f.pair AND a.text LIKE ? ESCAPE '\\')"
)
_SEEK_SQL = "INSERT INTO temp.sought SELECT id FROM pairs WHERE id > ? AND id <= ? AND ({})".format(
    " OR ".join(f"{column} LIKE ? ESCAPE '\\'" for column in ("name", "instruction", "output_1", "output_2"))
)

_NAMED_SQL = " AND id IN (SELECT rowid FROM words.grams WHERE grams MATCH ?)"


def _like(text: str) -> str:
    """The pattern that finds a text anywhere, its own signs taken as they are.

    >>> _like("100%")
    '%100\\\\%%'
    """
    for sign in ("\\", "%", "_"):
        text = text.replace(sign, "\\" + sign)
    return f"%{text}%"


def _direction(sort: Sort, falls: bool) -> str:
    turn = "DESC" if falls else "ASC"
    return ", ".join(f"{part} {turn}" for part in dict.fromkeys((_SORT_SQL[sort][0], "f.pair")))


def _order(view: View) -> str:
    return _direction(view.sort, _SORT_SQL[view.sort][1])


def _line(columns: Sequence[Any]) -> OutcomeLine:
    pair, name, excerpt, model_1, model_2, length_1, length_2, side = columns[:8]
    p_1, p_2, p_tie, unsure, inconsistent, reason, known, split = columns[8:]
    p: Mapping[Side, float] | None = None if p_1 is None else {"1": p_1, "2": p_2, "tie": p_tie}
    return OutcomeLine(
        *(pair, name, excerpt, model_1, model_2, length_1, length_2, side, p),
        *(None if unsure < 0 else unsure, bool(inconsistent), reason, known, bool(split)),
    )
