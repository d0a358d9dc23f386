"""What a database holds on one dimension of one judge, as arrays: verdicts, probabilities, and what people said.

This is the step between the store and the statistics, which know nothing of it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from evenhand.core.columns import CODE_OF, Block, Outcomes, log_ratio
from evenhand.core.pair import Pair
from evenhand.core.stats.agreement import CATEGORIES, MAX_PEOPLE, MISSING, TIE, Codes
from evenhand.core.stats.agreement import Raters as AmongPeople
from evenhand.core.stats.agreement import people as among_people
from evenhand.core.stats.calibration import Calibration
from evenhand.core.stats.clustered import Array
from evenhand.core.verdict import SIDES
from evenhand.core.votes import Drawn, Votes, draws_on, label_of, majority, votes_on
from evenhand.results.calibrated_outcomes import calibrated
from evenhand.results.counting import first_of_each
from evenhand.results.label_use import LabelUse, label_use
from evenhand.results.people import FROM_FILE, People
from evenhand.store import JudgeRow, Records

CODES = CODE_OF
Draws = Mapping[str, Sequence[Drawn]]  # how a pair came to be labelled, by dimension


@dataclass(frozen=True)
class Evidence:
    """One row for each pair that the judge has judged on this dimension; codes are those of `stats.agreement`.

    Labels are those that an estimate may use, with their weights: `use` says which, and why.
    """

    dimension: str
    keys: Codes  # the numbers of the pairs
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
    truth: Codes  # what an adjudicator decided, else what most people said
    counts: Codes  # (n, 3): how many people said 1, 2, tie; an adjudicator is none of them
    final: Codes  # what an adjudicator decided
    names: list[str]  # of the people
    votes: Codes  # (n, people)
    drawn: Array  # what each label weighs, 0 where there is none
    use: LabelUse

    def __len__(self) -> int:
        return len(self.keys)

    def take(self, rows: ArrayLike) -> Evidence:
        """Some of the rows, by their numbers."""
        index = np.asarray(rows, dtype=np.int64)
        columns = {name: value[index] for name, value in vars(self).items() if isinstance(value, np.ndarray)}
        return Evidence(self.dimension, names=self.names, use=self.use, **columns)

    @property
    def weights(self) -> Array | None:
        """What labels weigh; None where all weigh the same."""
        return self.drawn if self.use.weighted else None

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
        """The log of the ratio of the lengths."""
        return log_ratio(self.length_1, self.length_2)


def gather(
    store: Records,
    judge: JudgeRow,
    people: People,
    calibrations: Mapping[str, Calibration] | None = None,
    *,
    keep_repeats: bool = True,
) -> dict[str, Evidence]:
    """Everything that is kept of one judge, by dimension; with calibrations, what they make of it."""
    blocks = calibrated(store.blocks(judge), calibrations or {})
    votes = votes_by_number(store, people)
    draws, decisions = draws_by_number(store, people, votes), decisions_by_number(store, people)
    return gather_from(blocks, votes, draws, decisions, keep_repeats=keep_repeats)


def votes_by_number(store: Records, people: People) -> Mapping[int, Votes]:
    """What people said, by the numbers of the pairs."""
    return {number: people.votes(pair) for number, pair in store.voted()}


def decisions_by_number(store: Records, people: People) -> Mapping[int, Votes]:
    """What adjudicators decided, by the numbers of the pairs."""
    if people.only_in_files:
        return {}
    found = ((number, people.decisions(pair)) for number, pair in store.voted())
    return {number: said for number, said in found if said}


def draws_by_number(store: Records, people: People, votes: Mapping[int, Votes]) -> Mapping[int, Draws]:
    """How pairs came to be labelled, by their numbers."""
    if people.only_in_files:
        return {number: {name: [FROM_FILE] for name in said} for number, said in votes.items()}
    return {number: people.draws(pair, votes[number]) for number, pair in store.voted() if number in votes}


def gather_from(
    blocks: Iterable[Block],
    votes: Mapping[int, Votes],
    draws: Mapping[int, Draws],
    decisions: Mapping[int, Votes] | None = None,
    *,
    keep_repeats: bool = True,
) -> dict[str, Evidence]:
    """Blocks as arrays with the votes of people that an estimate may use, by dimension."""
    parts: dict[str, list[dict[str, Array | Codes]]] = {}
    repeats: dict[str, list[NDArray[np.uint64]]] = {}
    for block in blocks:
        before: list[Array] = []
        for name, found in block.outcomes.items():
            parts.setdefault(name, []).append(_columns(block, found, before))
            before.append(found.log_odds)
            if not keep_repeats:
                repeats.setdefault(name, []).append(block.identities)
    every = {name: _joined(some) for name, some in parts.items()}
    for name, identities in repeats.items():
        every[name] = _without_repeats(every[name], np.concatenate(identities), name, votes)
    return {name: _evidence(name, columns, votes, draws, decisions or {}) for name, columns in every.items()}


def _joined(parts: Sequence[Mapping[str, Array | Codes]]) -> dict[str, Any]:
    return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}


def _without_repeats(
    columns: Mapping[str, Any], identity: NDArray[np.uint64], dimension: str, votes: Mapping[int, Votes]
) -> dict[str, Any]:
    """The rows that count: of exact repeats a valid one, of those one that people have labelled, else the first."""
    numbers = columns["keys"].tolist()
    unlabelled = np.array([not votes_on(votes.get(number, {}), dimension) for number in numbers])
    kept = first_of_each(identity, columns["keys"], 2 * (columns["verdict"] == MISSING) + unlabelled)
    return {name: column[kept] for name, column in columns.items()}


def _columns(block: Block, found: Outcomes, before: Sequence[Array]) -> dict[str, Array | Codes]:
    whole: Callable[[NDArray[Any]], Codes] = lambda column: column.astype(np.int64)  # noqa: E731
    both = ~np.full(len(found), found.pointwise)
    told = found.valid & (found.masses > 0)  # of an invalid verdict the mass of one order may be known
    mass = np.where(told, found.mass / np.maximum(found.masses, 1), np.nan)
    return {
        "keys": block.number,
        "clusters": block.cluster,
        "forward": whole(np.where(both, found.forward, MISSING)),
        "swapped": whole(np.where(both, found.swapped, MISSING)),
        "verdict": whole(found.side),
        "lean": whole(found.lean),
        "p": found.p,
        "log_odds": found.log_odds,
        "earlier": _mean_of(before, len(found)),
        "mass": mass,
        "length_1": whole(block.length_1),
        "length_2": whole(block.length_2),
    }


def _mean_of(before: Sequence[Array], n: int) -> Array:
    """The mean log-odds of what was asked before; NaN for nothing, or nothing valid."""
    if not before:
        return np.full(n, np.nan)
    table = np.stack(before)
    given = ~np.isnan(table)
    sums, counts = np.where(given, table, 0.0).sum(axis=0), given.sum(axis=0)
    return np.asarray(np.where(counts > 0, sums / np.maximum(counts, 1), np.nan))


def _evidence(
    dimension: str,
    columns: Mapping[str, Any],
    votes: Mapping[int, Votes],
    draws: Mapping[int, Draws],
    decisions: Mapping[int, Votes],
) -> Evidence:
    numbers = columns["keys"].tolist()
    said = {row: votes_on(votes[number], dimension) for row, number in enumerate(numbers) if number in votes}
    decided = {row: label_of(decisions.get(number, {}), dimension) for row, number in enumerate(numbers)}
    said = {row: by_person for row, by_person in said.items() if by_person or decided[row]}
    weights, use = label_use(columns["keys"], {row: draws_on(draws[numbers[row]], dimension) for row in said})
    said = {row: by_person for row, by_person in said.items() if weights[row] > 0}
    names = sorted({who for by_person in said.values() for who in by_person})
    names = names if len(names) <= MAX_PEOPLE else []  # a crowd is looked at by its counts
    place = {who: number for number, who in enumerate(names)}
    truth, final = np.full((2, len(numbers)), MISSING, dtype=np.int64)
    counts = np.zeros((len(numbers), CATEGORIES), dtype=np.int64)
    by_name = np.full((len(numbers), len(names)), MISSING, dtype=np.int64)
    for row, by_person in said.items():
        final[row] = CODES[decided[row]]
        truth[row] = CODES[decided[row] or majority(by_person.values())]
        counts[row] = [sum(side == known for side in by_person.values()) for known in SIDES]
        for who in place.keys() & by_person.keys():
            by_name[row, place[who]] = CODES[by_person[who]]
    labels: dict[str, Any] = {"truth": truth, "final": final, "counts": counts, "votes": by_name}
    return Evidence(dimension, names=names, use=use, drawn=weights, **labels, **columns)


def people_with_each_other(pairs: Iterable[Pair], people: People) -> dict[str, AmongPeople]:
    """How far people agree with each other, by dimension, on pairs with two votes; no judge need have judged them.

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
        {
            key: row
            for row, key in enumerate(e.keys.tolist())
            if e.truth[row] != MISSING and e.verdict[row] != MISSING
        }
        for e in every
    ]
    common = [key for key in places[0] if all(key in place for place in places[1:])] if places else []
    return [np.array([place[key] for key in common], dtype=np.int64) for place in places]
