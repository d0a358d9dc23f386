"""Pairs that people labelled, as a head learns from them, and how good the judges of the database are on them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from evenhand.core.outcome import OutcomeRow
from evenhand.core.pair import Pair
from evenhand.core.stats.clustered import Estimate, mean
from evenhand.core.verdict import found_on, headline
from evenhand.core.votes import Votes, final_label, gather_votes, label_by_votes
from evenhand.engines.heads import PREFIX, SHIPPED_HEAD
from evenhand.engines.heads.head import StackedJudge
from evenhand.engines.heads.training import StackedVerdicts, estimate_text
from evenhand.results.people import People
from evenhand.store import Store
from evenhand.store.database import JudgeRow

_CODES = {"1": 0, "2": 1, "tie": 2}


@dataclass(frozen=True, slots=True)
class LabelledPair:
    """A pair that people voted on: who said what, and what most of them said as its labels, if they agree."""

    number: int  # in the database; 0 of a pair that is only in a file
    pair: Pair
    votes: Votes


@dataclass(frozen=True, slots=True)
class OtherJudge:
    """How often another judge takes the side that people take, on the decided pairs that it has judged."""

    name: str
    dimension: str
    accuracy: Estimate
    learned: bool = False  # a head that may have been trained on these labels

    def sentence(self, decided: int) -> str:
        """Its figure beside that of a head that was tested on so many decided pairs.

        >>> OtherJudge("m / chained", "combined", Estimate(0.7, None, None, 40, 20)).sentence(60)
        'm / chained, combined: 70% on 40 of them'
        """
        some = "" if self.accuracy.n == decided else f" on {self.accuracy.n:,} of them"
        doubt = " (it may have been trained on these labels)" if self.learned else ""
        return f"{self.name}, {self.dimension}: {estimate_text(self.accuracy)}{some}{doubt}"


def labelled_pairs(store: Store) -> list[LabelledPair]:
    """Every pair that people voted on; one on which they differ has no label, and says that they differ."""
    people, found = People(store), []
    for number, pair in store.voted():
        votes, decisions = people.votes(pair), people.decisions(pair)
        labels = {name: side for name in {**votes, **decisions} if (side := final_label(votes, decisions, name))}
        found.append(LabelledPair(number, replace(pair, labels=labels), votes))
    return found


def labelled_in_file(pairs: Iterable[Pair]) -> tuple[list[LabelledPair], int]:
    """The same of pairs that come from a file; and how many have votes that cannot be read.

    >>> voted, not_voted = Pair("Hi", "x", "y", metadata={"human": {"ann": "A"}}), Pair("Hi", "x", "z")
    >>> [found], _ = labelled_in_file([voted, not_voted])
    >>> found.pair.labels, found.votes
    ({'overall': '1'}, {'overall': {'ann': '1'}})
    """
    found, unreadable = [], 0
    for given in pairs:
        pair, readable = label_by_votes(given)
        unreadable += not readable
        if votes := gather_votes(given, ())[0]:
            found.append(LabelledPair(0, pair, votes))
    return found, unreadable


def without_known(pairs: Iterable[LabelledPair], known: dict[str, set[str]]) -> list[LabelledPair]:
    """The pairs with what is new of them: the same texts count once on a dimension. Adds them to `known`."""
    found = []
    for each in pairs:
        before = known.setdefault(each.pair.key, set())
        labels = {name: side for name, side in each.pair.labels.items() if name not in before}
        votes = {name: said for name, said in each.votes.items() if name not in before}
        before.update(labels, votes)
        if labels or votes:
            found.append(LabelledPair(each.number, replace(each.pair, labels=labels), votes))
    return found


def votes_on(pairs: Sequence[LabelledPair], dimension: str) -> list[list[int]]:
    """What people said on one dimension, pair by pair, as codes."""
    said = [each.votes.get(dimension, {}) for each in pairs]
    return [[_CODES[side] for side in votes.values() if side is not None] for votes in said]


def other_judges(store: Store, pairs: Sequence[LabelledPair], dimension: str) -> list[OtherJudge]:
    """The judges of the database on these pairs; each one's headline is compared with the overall label."""
    found = [_other_judge(store, row, pairs, dimension) for row in store.judges()]
    return [each for each in found if each is not None]


def stacked_verdicts(store: Store, rows: Sequence[JudgeRow], pairs: Sequence[Pair]) -> StackedVerdicts:
    """What judges said of pairs, as features of a head; each is asked on the dimension that the labels are on."""
    judges = [StackedJudge(row.fingerprint, row.model, row.protocol) for row in rows]
    labels = {name for pair in pairs for name in pair.labels}
    asked = {
        name: [(judge, on) for judge, row in zip(judges, rows, strict=True) if (on := asked_on(row, name))]
        for name in labels
    }
    said = {
        judge: {pair.key: store.made.log_odds(judge.fingerprint, pair.texts) or {} for pair in pairs}
        for judge in judges
    }
    odds = {
        judge.feature(on): {key: found[on] for key, found in said[judge].items() if on in found}
        for each in asked.values()
        for judge, on in each
    }
    features = {name: tuple(judge.feature(on) for judge, on in each) for name, each in asked.items()}
    return StackedVerdicts(tuple(judges), features, odds)


def asked_on(row: JudgeRow, dimension: str) -> str:
    """The dimension of a judge that answers the question of a label; "" where it has none."""
    on = headline(row.dimensions) if dimension == "overall" else dimension
    return on if on in found_on(row.dimensions) else ""


def has_learned(row: JudgeRow) -> bool:
    """Whether a judge is a head that a user trained, perhaps on these very labels: its figures may be too good."""
    return row.identity.get("engine") == "head" and row.model != f"{PREFIX}{SHIPPED_HEAD}"


def _other_judge(store: Store, row: JudgeRow, pairs: Sequence[LabelledPair], dimension: str) -> OtherJudge | None:
    asked = asked_on(row, dimension)
    right: dict[str, float] = {}  # by the key of the texts: exact repeats count once
    clusters: list[int] = []
    names: dict[str, int] = {}
    for each in pairs if asked else ():
        truth = each.pair.labels.get(dimension)
        if truth not in ("1", "2") or each.pair.key in right:
            continue
        said = {kept.dimension: kept for kept in store.pages.outcomes(row.id, each.number)}.get(asked)
        if said is not None:
            right[each.pair.key] = _score(said, truth)
            clusters.append(names.setdefault(each.pair.instruction, len(names)))
    if not right:
        return None
    name = f"{row.model} / {row.protocol}"
    return OtherJudge(name, asked, mean(np.array(list(right.values())), np.array(clusters)), has_learned(row))


def _score(said: OutcomeRow, truth: str) -> float:
    """1 for the side that people take; no verdict, or one that leans to neither side, is half right."""
    if said.p_1 is None or said.p_2 is None or said.p_1 == said.p_2:
        return 0.5
    return float(("1" if said.p_1 > said.p_2 else "2") == truth)
