"""What a database holds on one dimension of one judge, as arrays: verdicts, probabilities, and what people said.

This is the step between the store and the statistics, which know nothing of it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import ArrayLike, NDArray

from evenhand.judge import Judgment
from evenhand.pairs import Pair
from evenhand.people import People
from evenhand.stats.agreement import CATEGORIES, MAX_PEOPLE, MISSING, TIE, Codes
from evenhand.stats.agreement import People as AmongPeople
from evenhand.stats.agreement import people as among_people
from evenhand.stats.clustered import Array
from evenhand.store import JudgeRow, Records
from evenhand.verdict import SIDES, Finding, log_odds
from evenhand.votes import majority, votes_on

CODES = {None: MISSING, "1": 0, "2": 1, "tie": TIE}
Mend = Callable[[Pair, Finding], Finding]
Key = tuple[str, str]  # a pair's id and the hash of its texts


@dataclass(frozen=True)
class Evidence:
    """One row for each pair that the judge has heard on this dimension; codes are those of `stats.agreement`."""

    dimension: str
    keys: list[Key]
    clusters: Codes  # pairs with the same instruction have the same number
    forward: Codes
    swapped: Codes
    verdict: Codes  # the pooled one
    lean: Codes  # the side with the larger pooled probability
    p: Array  # (n, 3), NaN where invalid
    log_odds: Array
    earlier: Array  # the mean log-odds of the dimensions that were asked before this one; NaN for none
    mass: Array
    length_1: Codes
    length_2: Codes
    truth: Codes  # what most people said
    counts: Codes  # (n, 3): how many people said 1, 2, tie
    names: list[str]  # of the people
    votes: Codes  # (n, people)

    def __len__(self) -> int:
        return len(self.keys)

    def take(self, rows: ArrayLike) -> Evidence:
        """Some of the rows, by their numbers."""
        index = np.asarray(rows, dtype=np.int64)
        columns = {name: value[index] for name, value in vars(self).items() if isinstance(value, np.ndarray)}
        return Evidence(self.dimension, [self.keys[i] for i in index], names=self.names, **columns)

    @property
    def labelled(self) -> Codes:
        """The numbers of the rows on which people have a majority."""
        return np.flatnonzero(self.truth != MISSING)

    @property
    def contested(self) -> int:
        """How many pairs have votes and no majority."""
        return int(((self.truth == MISSING) & (self.counts.sum(axis=1) > 0)).sum())

    @property
    def both_hard(self) -> Codes:
        """Two labels as one: a tie leaves the other's say, and a contradiction is a tie."""
        one, two = self.forward, self.swapped
        agreed = np.where(one == two, one, np.where(one == TIE, two, np.where(two == TIE, one, TIE)))
        return np.where((one == MISSING) | (two == MISSING), MISSING, agreed)

    @property
    def log_length(self) -> Array:
        """The log of the lengths' ratio; an empty text counts as one character."""
        one, two = np.maximum(self.length_1, 1), np.maximum(self.length_2, 1)
        return np.asarray(np.log(one) - np.log(two), dtype=np.float64)


@dataclass
class _Columns:
    """Evidence on its way: one list for each column."""

    keys: list[Key] = field(default_factory=list)
    numbers: list[tuple[float, ...]] = field(default_factory=list)
    said: list[Mapping[str, str]] = field(default_factory=list)

    def add(self, pair: Pair, finding: Finding, cluster: int, earlier: float, said: Mapping[str, str]) -> None:
        self.keys.append((pair.id, pair.key))
        self.said.append(said)
        p = [finding.p[side] for side in SIDES] if finding.p else [np.nan] * CATEGORIES
        odds = log_odds(finding.p) if finding.p else np.nan
        masses = [verdict.mass for verdict in finding.orders.values() if verdict.mass is not None]
        lean = MISSING if finding.p is None else TIE if odds == 0 else int(odds < 0)
        self.numbers.append(
            (
                *(cluster, CODES[finding.heard("forward")], CODES[finding.heard("swapped")]),
                *(CODES[finding.side], lean, *p, odds, earlier),
                sum(masses) / len(masses) if masses else np.nan,
                *(len(pair.output_1), len(pair.output_2), CODES[majority(said.values())]),  # type: ignore[arg-type]
                *(sum(side == known for side in said.values()) for known in SIDES),
            )
        )

    def evidence(self, dimension: str) -> Evidence:
        table = np.array(self.numbers, dtype=np.float64).reshape(len(self.keys), 17)
        whole: Callable[[int], Codes] = lambda column: table[:, column].astype(np.int64)  # noqa: E731
        names = sorted({who for said in self.said for who in said})
        names = names if len(names) <= MAX_PEOPLE else []  # a crowd is looked at by its counts
        place = {who: number for number, who in enumerate(names)}
        votes = np.full((len(self.keys), len(names)), MISSING, dtype=np.int64)
        for row, said in enumerate(self.said):
            for who in place.keys() & said.keys():
                votes[row, place[who]] = CODES[said[who]]
        return Evidence(
            *(dimension, self.keys, whole(0), whole(1), whole(2), whole(3), whole(4)),
            *(table[:, 5:8], table[:, 8], table[:, 9], table[:, 10], whole(11), whole(12), whole(13)),
            *(table[:, 14:17].astype(np.int64), names, votes),
        )


def gather(
    store: Records, judge: JudgeRow, people: People, mend: Mapping[str, Mend] | None = None
) -> dict[str, Evidence]:
    """Everything that a database holds of one judge, by dimension; `mend` calibrates findings of a dimension."""
    return gather_from(store.judgments(judge), people, mend)


def gather_from(
    judgments: Iterable[Judgment], people: People, mend: Mapping[str, Mend] | None = None
) -> dict[str, Evidence]:
    """Judgments as arrays, by dimension."""
    columns: dict[str, _Columns] = {}
    clusters: dict[str, int] = {}
    for judgment in judgments:
        pair = judgment.pair
        cluster = clusters.setdefault(pair.instruction, len(clusters))
        votes = people.votes(pair)
        before: list[float] = []
        for name, finding in judgment.findings.items():
            earlier = sum(before) / len(before) if before else np.nan
            fixed = mend[name](pair, finding) if mend and name in mend else finding
            columns.setdefault(name, _Columns()).add(pair, fixed, cluster, earlier, votes_on(votes, name))
            if finding.p:
                before.append(log_odds(finding.p))
    return {name: column.evidence(name) for name, column in columns.items()}


def people_with_each_other(pairs: Iterable[Pair], people: People) -> dict[str, AmongPeople]:
    """How far people agree with each other, by dimension, on pairs with two votes; no judge need have heard them.

    >>> votes = {"human": {"ann": "A", "ben": "A"}}
    >>> from evenhand.store import Store
    >>> with Store(":memory:") as store:
    ...     people_with_each_other([Pair("Hi", "x", "y", metadata=votes)], People(store))["overall"].pairs
    1
    """
    said: dict[str, dict[str, tuple[int, Mapping[str, str]]]] = {}
    clusters: dict[str, int] = {}
    for pair in pairs:
        for dimension, votes in people.votes(pair).items():
            if len(votes) > 1:
                cluster = clusters.setdefault(pair.instruction, len(clusters))
                said.setdefault(dimension, {})[pair.key] = (cluster, votes)  # labels belong to texts, not to ids
    return {name: _among(list(rows.values())) for name, rows in said.items()}


def _among(rows: list[tuple[int, Mapping[str, str]]]) -> AmongPeople:
    names = sorted({who for _, votes in rows for who in votes})
    counts = [[sum(said == side for said in votes.values()) for side in SIDES] for _, votes in rows]
    clusters = [cluster for cluster, _ in rows]
    if len(names) > MAX_PEOPLE:  # a crowd is looked at by its counts
        return among_people(counts, clusters)
    by_person = [[CODES[votes.get(who)] for who in names] for _, votes in rows]
    return among_people(counts, clusters, by_person, names)


def shared_rows(every: Iterable[Evidence]) -> list[NDArray[np.int64]]:
    """For each evidence the rows of the pairs that all of them have judged and people have labelled, in one order.

    A pair counts where every judge has a valid verdict on it.
    """
    places = [
        {key: row for row, key in enumerate(e.keys) if e.truth[row] != MISSING and e.verdict[row] != MISSING}
        for e in every
    ]
    common = [key for key in places[0] if all(key in place for place in places[1:])] if places else []
    return [np.array([place[key] for key in common], dtype=np.int64) for place in places]
