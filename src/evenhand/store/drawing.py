"""Which pairs are put on an annotator's list, and how each came to stand there.

Pairs are drawn at random, or taken from a list of suggested ones. Random draws are from *all* pairs that were not
drawn before, including those that were suggested to somebody: otherwise they would not represent all pairs. Where
chance takes a pair that this annotator has already as a suggested one, the pair counts as drawn from then on.
"""

from __future__ import annotations

import random
import sqlite3
from collections.abc import Sequence
from dataclasses import dataclass, replace

from evenhand.core.votes import Design, Drawn
from evenhand.store.attacked import ATTACKED

# One pair in so many is drawn at random where others are suggested.
ONE_IN = 5


@dataclass(frozen=True, slots=True)
class NewTask:
    """A pair for an annotator's list: whether others have it too, and how it was chosen."""

    pair: str
    shared: bool
    drawn: Drawn

    @property
    def how(self) -> tuple[Design, float | None, int | None]:
        """How it was chosen, as the tables have it."""
        return self.drawn.design, self.drawn.probability, self.drawn.among


# Nobody is asked to label a response that an attack has made up.
_KEYS = f"SELECT DISTINCT key FROM pairs WHERE id NOT IN ({ATTACKED}) ORDER BY key"


class Drawing:
    """One drawing of pairs for one annotator, inside a transaction."""

    def __init__(self, db: sqlite3.Connection, name: str, seed: int, first: Sequence[str]) -> None:
        self._db, self._name, self._seed = db, name, seed
        self._keys = [key for (key,) in db.execute(_KEYS)]
        (self._last,) = db.execute("SELECT coalesce(max(id), 0) FROM pairs").fetchone()
        self._mine = {key for (key,) in db.execute("SELECT pair FROM tasks WHERE annotator = ?", (name,))}
        self._mine |= {key for (key,) in db.execute("SELECT pair FROM labels WHERE annotator = ?", (name,))}
        there = set(self._keys) - self._mine
        self._first = [key for key in dict.fromkeys(first) if key in there]
        self._random = {key for (key,) in db.execute("SELECT pair FROM labels WHERE design = 'random'")}
        self._theirs: dict[str, Drawn] = {}  # what others have, and how it came to them
        self._shared: dict[str, Drawn] = {}
        for key, who, shared, *how in db.execute(
            "SELECT pair, annotator, shared, design, probability, among FROM tasks WHERE annotator NOT IN"
            " (SELECT name FROM annotators WHERE role = 'adjudicator') ORDER BY annotator, place"
        ):
            if how[0] == "random":
                self._random.add(key)
            if who != name:
                for book in (self._theirs, self._shared) if shared else (self._theirs,):
                    book[key] = Drawn(*how) if key not in book or how[0] == "random" else book[key]
        self._plan: dict[str, NewTask] = {}
        self._orders: dict[int, list[str]] = {}

    def tasks(self, count: int, shared: int) -> list[NewTask]:
        """The pairs in the order in which they come: the suggested ones first, each fifth by chance."""
        for key in self._shuffled(0):  # what others share is taken first, and came to be chosen as theirs did
            if len(self._plan) < shared and key in self._shared and key not in self._mine:
                self._plan[key] = NewTask(key, True, self._shared[key])
        self._fill(shared - len(self._plan), 0, shared=True)
        self._fill(count - len(self._plan), self._seed, shared=False)
        return self._in_turn()

    def _fill(self, number: int, seed: int, *, shared: bool) -> None:
        """Put so many more pairs on the list, those that nobody else has while they last."""
        wanted = sorted((key for key in self._first if key not in self._plan), key=self._theirs.__contains__)
        by_chance = number - min(len(wanted), number - number // ONE_IN)
        free = len(set(self._keys) - self._random)
        drawn, again = self._draw(by_chance, seed)
        suggested = [key for key in wanted if key not in drawn][: number - by_chance]
        self._plan |= {key: NewTask(key, shared, Drawn("suggested")) for key in suggested}
        more, also = self._draw(number - len(drawn) - len(suggested), seed)
        chance = min(len({*drawn, *more, *again, *also}) / max(free, 1), 1.0)
        how = Drawn("random", chance, self._last)
        self._plan |= {key: NewTask(key, shared, how) for key in (*drawn, *more)}
        self._count_as_drawn(again | also, how)
        self._take_from_others(number - len(drawn) - len(suggested) - len(more), seed, shared=shared)

    def _draw(self, number: int, seed: int) -> tuple[list[str], set[str]]:
        """The next pairs that chance takes; and those that it takes and that are on this list already."""
        found: list[str] = []
        again: set[str] = set()
        for key in self._shuffled(seed):
            if len(found) >= number:
                break
            if key in self._random:
                continue
            if key in self._mine or key in self._plan:
                again.add(key)
            else:
                found.append(key)
            self._random.add(key)
        return found, again

    def _take_from_others(self, number: int, seed: int, *, shared: bool) -> None:
        """Where chance has taken every pair already: those of others, as they came to them."""
        left = [key for key in self._shuffled(seed) if key not in self._mine and key not in self._plan]
        for key in left[: max(number, 0)]:
            self._plan[key] = NewTask(key, shared, self._theirs.get(key, Drawn("random", None, self._last)))

    def _count_as_drawn(self, keys: set[str], how: Drawn) -> None:
        """What was suggested before and is drawn now."""
        self._plan |= {key: replace(self._plan[key], drawn=how) for key in keys if key in self._plan}
        rows = [(how.probability, how.among, key, self._name) for key in sorted(keys - self._plan.keys())]
        for table in ("tasks", "labels"):
            self._db.executemany(
                f"UPDATE {table} SET design = 'random', probability = ?, among = ?"
                " WHERE pair = ? AND annotator = ? AND design = 'suggested'",
                rows,
            )

    def _shuffled(self, seed: int) -> list[str]:
        """All pairs as a seed shuffles them."""
        if seed not in self._orders:
            self._orders[seed] = list(self._keys)
            random.Random(seed).shuffle(self._orders[seed])
        return self._orders[seed]

    def _in_turn(self) -> list[NewTask]:
        """Suggested pairs as they were given, each fifth place for another; others as the seed shuffles them."""
        suggested = [key for key in self._plan if self._plan[key].drawn.design == "suggested"]
        given = {key: place for place, key in enumerate(self._first)}
        ahead = [self._plan[key] for key in sorted(suggested, key=lambda key: given.get(key, len(given)))]
        # A suggested pair that chance has taken must not come earlier for that.
        behind = [
            self._plan[key] for key in self._shuffled(self._seed) if key in self._plan and key not in suggested
        ]
        found: list[NewTask] = []
        while ahead or behind:
            by_chance = behind and (not ahead or (len(found) + 1) % ONE_IN == 0)
            found.append((behind if by_chance else ahead).pop(0))
        return found
