"""What a database comes to, as facts for a page: counted from the findings that lists are made of.

The figures are those of `evenhand results`, clusters and all: both make a `Tally` and ask it for its facts.
"""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from evenhand.report import Tally, cluster_number, new_rows
from evenhand.stats.agreement import TIE
from evenhand.stats.bias import longer_rate, longer_side
from evenhand.stats.clustered import Estimate
from evenhand.stats.winrate import Rate, win_rate
from evenhand.store import Counts, JudgeRow, Store
from evenhand.web.address import dimensions_of


@dataclass(frozen=True, slots=True)
class DimensionFacts:
    """One dimension of one judge."""

    name: str
    tally: Tally
    counts: Counts

    @property
    def rate(self) -> Rate:
        """How often side 1 wins."""
        return self.tally.rate

    @property
    def facts(self) -> dict[str, Any]:
        """The numbers that the command line prints, too."""
        return self.tally.facts()

    @property
    def shares(self) -> dict[str, float] | None:
        """The verdicts as shares of 1, 2 and tie."""
        n = self.tally.n
        return {side: self.tally.sides[side] / n for side in ("1", "2", "tie")} if n else None

    @property
    def longer(self) -> Estimate:
        """How often the longer output is chosen, a tie counting one half, where outputs differ in length."""
        rows = self.tally.rows.all()
        codes = np.array([1, TIE, 0])[rows["hard"]]  # twice the value of side 1 -> 2, tie, 1
        gaps = rows["longer"]
        return longer_rate(codes, longer_side(gaps, np.zeros_like(gaps)), rows["cluster"])

    @property
    def agreed(self) -> Rate:
        """How often the judge says the same as people, of the pairs of which both are known."""
        return win_rate(self.counts.known - self.counts.against, 0, self.counts.against)


@dataclass(frozen=True, slots=True)
class JudgeFacts:
    """One judge with all its dimensions."""

    judge: JudgeRow
    sides: tuple[str, str]
    dimensions: tuple[DimensionFacts, ...]


@dataclass(frozen=True, slots=True)
class Meeting:
    """How one model fared against another: a cell of the win matrix."""

    rate: Rate
    wins: int
    ties: int
    losses: int


class Clusters:
    """Which pairs share an instruction. A pair's texts never change, so each is looked at once.

    >>> with Store(":memory:") as store:
    ...     Clusters().of(store, [])
    array('Q')
    """

    def __init__(self) -> None:
        self._numbers = array("Q", [0])  # by the number of the pair

    def of(self, store: Store, pairs: Sequence[int]) -> array[int]:
        """The cluster of each of these pairs."""
        for number, instruction in store.pages.instructions(len(self._numbers) - 1):
            self._numbers.extend([0] * (number - len(self._numbers)))
            self._numbers.append(cluster_number(instruction))
        return array("Q", [self._numbers[pair] for pair in pairs])


def overview(store: Store, clusters: Clusters | None = None) -> list[JudgeFacts]:
    """Every judge that has findings, the newest first; `clusters` remembers what it has seen from time to time."""
    known_clusters = clusters or Clusters()
    judges, counts = store.judges(), store.pages.counts()
    sides = store.pages.sides()
    found = []
    for judge in reversed(judges):
        mine = {count.dimension: count for count in counts if count.judge == judge.id}
        known = [
            DimensionFacts(name, tally_of(store, mine[name], known_clusters), mine[name])
            for name in dimensions_of(judge)
            if name in mine
        ]
        if known:
            found.append(JudgeFacts(judge, sides, tuple(known)))
    return found


def tally_of(store: Store, counts: Counts, clusters: Clusters) -> Tally:
    """The tally that adding the same findings one by one would give."""
    rows = store.pages.values(counts.judge, counts.dimension)
    pairs, hard, expected, gaps = zip(*rows, strict=True) if rows else ((), (), (), ())
    kept = new_rows()
    columns = (clusters.of(store, pairs), gaps, hard, expected)
    kept.extend(**dict(zip(("cluster", "longer", "hard", "expected"), map(np.array, columns), strict=True)))
    return Tally(
        Counter({side: n for side, n in counts.sides.items() if n}),
        Counter(counts.reasons),
        counts.inconsistent,
        counts.mass,
        counts.masses,
        counts.first,
        counts.places,
        rows=kept,
    )


def win_matrix(matches: Sequence[tuple[str, str, str, int]]) -> tuple[list[str], dict[tuple[str, str], Meeting]]:
    """Models from best to worst by their share of wins over all, and how each fared against each.

    >>> models, cells = win_matrix([("a", "b", "1", 3), ("b", "a", "1", 1)])
    >>> models, cells["a", "b"].rate.value
    (['a', 'b'], 0.75)
    """
    wins: Counter[tuple[str, str]] = Counter()
    ties: Counter[tuple[str, str]] = Counter()
    for one, two, side, n in matches:
        if side == "tie":
            ties[one, two] += n
            ties[two, one] += n
        else:
            wins[(one, two) if side == "1" else (two, one)] += n
    met = {*wins, *ties} | {(b, a) for a, b in wins}
    cells = {
        (a, b): Meeting(win_rate(wins[a, b], ties[a, b], wins[b, a]), wins[a, b], ties[a, b], wins[b, a])
        for a, b in met
        if a != b
    }
    models = {name for pair in cells for name in pair}
    return sorted(models, key=lambda name: (-_share(name, cells), name)), cells


def _share(name: str, cells: dict[tuple[str, str], Meeting]) -> float:
    mine = [meeting for (a, _), meeting in cells.items() if a == name]
    total = sum(meeting.wins + meeting.ties + meeting.losses for meeting in mine)
    return sum(meeting.wins + meeting.ties / 2 for meeting in mine) / total if total else 0.5
