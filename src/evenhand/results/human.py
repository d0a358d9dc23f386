"""What people would say of all pairs, from their labels on some and the verdicts of a judge on all."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import ArrayLike

from evenhand.core.columns import VALUES
from evenhand.core.stats.agreement import MISSING
from evenhand.core.stats.ppi import LabelsNeeded, labels_needed, powered_rate
from evenhand.core.stats.winrate import Rate
from evenhand.results.evidence import Evidence, gather
from evenhand.results.label_use import LabelUse
from evenhand.results.people import People
from evenhand.results.roles import turned_pairs
from evenhand.results.summary import Span, span
from evenhand.store import JudgeRow, Records


@dataclass(frozen=True, slots=True)
class RateAlone:
    """A win rate by one source alone."""

    win_rate_1: float | None
    ci: Span | None
    n: int


@dataclass(frozen=True, slots=True)
class HumanRate:
    """The human-corrected win rate. The fields, and their names, are those of `--json`."""

    win_rate_1: float | None
    ci: Span | None
    labels_alone: RateAlone
    judge_alone: RateAlone
    narrower: float | None
    tuning: float | None = field(metadata={"json": "lambda"})  # how far the judge is trusted
    pairs: int
    labelled: int
    labels: int  # of persons, before those on one pair were averaged
    clusters: int
    ci_method: str
    ci_level: float
    reason: str | None
    wanted: LabelsNeeded | None
    label_use: LabelUse  # which labels it rests on


def human_rates(
    store: Records, judge: JudgeRow, people: People, width: float | None = None, *, keep_repeats: bool = False
) -> Mapping[str, HumanRate]:
    """The human-corrected win rate of each dimension; each pair weighs the same, and exact repeats count once."""
    every, turned = gather(store, judge, people, keep_repeats=keep_repeats), turned_pairs(store.blocks(judge))
    return {name: human_rate(found, width, turned) for name, found in every.items()}


def human_rate(evidence: Evidence, width: float | None = None, turned: ArrayLike = ()) -> HumanRate:
    """The human-corrected win rate of one dimension; a pair's label is the mean over the people who gave one.

    Where an adjudicator has decided, that is the label. A pair without a verdict counts as one half: that costs
    width, and never validity. Of the pairs that are `turned`, side 1 is what `results` calls side 2.
    """
    people = evidence.counts.sum(axis=1)
    with np.errstate(invalid="ignore"):
        labels = (evidence.counts[:, 0] + evidence.counts[:, 2] / 2) / people
    labels = np.where(evidence.final == MISSING, labels, VALUES[evidence.final])
    expected = evidence.p[:, 0] + evidence.p[:, 2] / 2
    verdicts = np.where(np.isnan(expected), 0.5, expected)
    other = np.isin(evidence.keys, turned)
    labels, verdicts = np.where(other, 1 - labels, labels), np.where(other, 1 - verdicts, verdicts)
    found = powered_rate(labels, verdicts, evidence.clusters, weights=evidence.weights)
    needed = width and labels_needed(labels, verdicts, evidence.clusters, width=width, weights=evidence.weights)
    return HumanRate(
        found.value,
        span(found.low, found.high),
        _alone(found.labels),
        _alone(found.judge),
        *(found.narrower, found.tuning, found.n, found.labelled, int(people.sum()), found.clusters),
        *(found.method, found.level, found.reason or None, needed or None),
        evidence.use,
    )


def _alone(rate: Rate) -> RateAlone:
    return RateAlone(rate.value, span(rate.low, rate.high), rate.n)
