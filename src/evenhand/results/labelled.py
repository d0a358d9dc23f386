"""Pairs that people labelled, as a head learns from them, and how good the judges of the database are on them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from evenhand.core.outcome import OutcomeRow
from evenhand.core.pair import Pair
from evenhand.core.stats.clustered import Estimate, mean
from evenhand.core.verdict import headline
from evenhand.core.votes import Votes
from evenhand.results.people import People
from evenhand.store import Store
from evenhand.store.database import JudgeRow

_CODES = {"1": 0, "2": 1, "tie": 2}


@dataclass(frozen=True, slots=True)
class LabelledPair:
    """A pair with what most people said of it, and who said what."""

    number: int
    pair: Pair
    votes: Votes


@dataclass(frozen=True, slots=True)
class OtherJudge:
    """How often another judge takes the side that people take, on the decided pairs that it has judged."""

    name: str
    dimension: str
    accuracy: Estimate


def labelled_pairs(store: Store) -> list[LabelledPair]:
    """Every pair with a majority on some dimension; the labels are on the pair."""
    people, found = People(store), []
    for number, pair in store.voted():
        votes = people.votes(pair)
        labels = {name: side for name in votes if (side := people.label(pair, name)) is not None}
        if labels:
            found.append(LabelledPair(number, replace(pair, labels=labels), votes))
    return found


def votes_on(pairs: Sequence[LabelledPair], dimension: str) -> list[list[int]]:
    """What people said on one dimension, pair by pair, as codes."""
    said = [each.votes.get(dimension, {}) for each in pairs]
    return [[_CODES[side] for side in votes.values() if side is not None] for votes in said]


def other_judges(store: Store, pairs: Sequence[LabelledPair], dimension: str) -> list[OtherJudge]:
    """The judges of the database on these pairs; held against overall, each by its headline."""
    found = [_other_judge(store, row, pairs, dimension) for row in store.judges()]
    return [each for each in found if each is not None]


def _other_judge(store: Store, row: JudgeRow, pairs: Sequence[LabelledPair], dimension: str) -> OtherJudge | None:
    asked = headline(row.dimensions) if dimension == "overall" else dimension
    right: list[float] = []
    clusters: list[int] = []
    names: dict[str, int] = {}
    for each in pairs:
        truth = each.pair.labels.get(dimension)
        said = {kept.dimension: kept for kept in store.pages.outcomes(row.id, each.number)}.get(asked)
        if truth in ("1", "2") and said is not None:
            right.append(_score(said, truth))
            clusters.append(names.setdefault(each.pair.instruction, len(names)))
    if not right:
        return None
    return OtherJudge(f"{row.model} / {row.protocol}", asked, mean(np.array(right), np.array(clusters)))


def _score(said: OutcomeRow, truth: str) -> float:
    """1 for the side that people take; no verdict, or one that leans to neither side, is half right."""
    if said.p_1 is None or said.p_2 is None or said.p_1 == said.p_2:
        return 0.5
    return float(("1" if said.p_1 > said.p_2 else "2") == truth)
