"""The judge's card: whether a judge deserves trust on these pairs, in numbers.

`card_of` is one judge on one dimension; `compare` puts several next to each other on the same pairs; `drag_of` is
what a chain of questions does to a verdict.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace

import numpy as np

from evenhand.core.stats import agreement, bias, calibration, trust
from evenhand.core.stats.agreement import MISSING, Ceiling, Codes, Raters
from evenhand.core.stats.calibration import Reliability
from evenhand.core.stats.clustered import Array, Estimate, mean, picked
from evenhand.core.stats.multiple import correct_together, p_of
from evenhand.results.evidence import Evidence, shared_rows
from evenhand.results.label_use import LabelUse
from evenhand.results.noise import NoiseSummary


@dataclass(frozen=True, slots=True)
class CardReading:
    """How one way of reading the orders compares with people."""

    decided: Estimate  # right side, on pairs that people decided; a tie scores one half
    three_way: Estimate  # same verdict, ties included
    kappa: Estimate


@dataclass(frozen=True, slots=True)
class Biases:
    """What moves the judge besides the content."""

    flips: Estimate
    changes: Estimate
    position_bias: Estimate
    longer_judge: Estimate  # how often the judge prefers the longer output
    longer_people: Estimate
    length_bias: Estimate
    label_mass: Estimate
    invalid: Estimate


@dataclass(frozen=True, slots=True)
class Meaning:
    """Whether the probabilities mean what they say."""

    brier: Estimate
    brier_binary: Estimate
    reliability: Reliability


@dataclass(frozen=True, slots=True)
class Card:
    """One judge on one dimension against people."""

    dimension: str
    pairs: int
    labelled: int
    decided: int
    ties: int
    contested: int
    adjudicated: int  # pairs whose label an adjudicator decided
    instructions: int
    readings: Mapping[str, CardReading]
    gain: Estimate  # both orders' verdict less the forward one, label with label
    longer: Estimate  # what taking the longer output would score
    over_longer: Estimate  # pooled less that
    always: Estimate  # what always the same side would score, of the two the harder to beat
    over_always: Estimate
    biases: Biases
    meaning: Meaning
    people: Raters | None  # None where no pair has two votes
    ceiling: Ceiling | None  # right side
    trust: trust.Word
    verdict: str
    margin: float  # by how much a trusted judge may score below one person, or below the target
    target: float | None
    better_than_person: bool
    label_use: LabelUse  # which labels the figures against people rest on
    noise: NoiseSummary | None  # None where the judge was asked once: that is not measured, and not 0

    def plain(self) -> dict[str, object]:
        """The card as JSON has it."""
        found: dict[str, object] = {field.name: getattr(self, field.name) for field in fields(self)}
        if (people := self.people) is not None:
            named = [{"people": list(names), **asdict(kappa)} for names, kappa in people.kappas.items()]
            found["people"] = {
                **{each.name: getattr(people, each.name) for each in fields(people)},
                "kappas": named,
            }
        return found


READINGS = ("forward_hard", "both_hard", "pooled")


def card_of(
    evidence: Evidence,
    *,
    margin: float = trust.MARGIN,
    target: float | None = None,
    noise: NoiseSummary | None = None,
) -> Card:
    """The card of one judge on one dimension; the margin and the target are those of `stats.trust.weigh`."""
    e, c, w = evidence, evidence.clusters, evidence.weights
    scores = {name: _decided_scores(e, name) for name in READINGS}
    # A label beside a label: a lean of both orders would gain wherever the label of one is a tie.
    both, one = (agreement.score_sides(said, e.truth) for said in (e.verdict, e.forward))
    longer = bias.longer_side(e.length_1, e.length_2)
    several = (e.counts.sum(axis=1) >= 2).any()
    biases = _biases(e, longer)
    measures = trust.measure(
        e.lean,
        e.verdict,
        e.truth,
        longer,
        c,
        e.counts,
        mass=biases.label_mass.value,
        invalid=biases.invalid.value,
        weights=w,
    )
    found = trust.weigh(measures, margin=margin, target=target)
    return Card(
        dimension=e.dimension,
        pairs=len(e),
        labelled=len(e.labelled),
        decided=int(agreement.is_decided(e.truth).sum()),
        ties=int((e.truth == agreement.TIE).sum()),
        contested=e.contested,
        adjudicated=int((e.final != MISSING).sum()),
        instructions=len(np.unique(c)),
        readings={name: _reading(e, name, scores[name]) for name in READINGS},
        gain=agreement.compare(both, one, c, weights=w),
        longer=measures.longer,
        over_longer=measures.over_longer,
        always=measures.always,
        over_always=measures.over_always,
        biases=biases,
        meaning=Meaning(
            calibration.brier(e.p, e.truth, c, weights=w),
            calibration.brier_binary(e.p, e.truth, c, weights=w),
            calibration.reliability(e.p, e.truth, c, weights=w),
        ),
        people=agreement.people(e.counts, c, e.votes, e.names) if several else None,
        ceiling=(agreement.against_others(e.counts, e.lean, c, decided_only=True, weights=w) if several else None),
        trust=found.word,
        verdict=found.text,
        margin=margin,
        target=target,
        better_than_person=found.better_than_person,
        label_use=e.use,
        noise=noise,
    )


def _hard(e: Evidence, reading: str) -> Codes:
    return {"forward_hard": e.forward, "both_hard": e.both_hard, "pooled": e.verdict}[reading]


def _decided_scores(e: Evidence, reading: str) -> Array:
    """Scores on decided pairs; pooled probabilities lean to a side also where the verdict is a tie."""
    return agreement.score_sides(e.lean if reading == "pooled" else _hard(e, reading), e.truth)


def _reading(e: Evidence, reading: str, scores: Array) -> CardReading:
    said, c, w = _hard(e, reading), e.clusters, e.weights
    return CardReading(
        agreement.decided(scores, e.truth, c, weights=w),
        agreement.three_way(said, e.truth, c, weights=w),
        agreement.cohen_kappa(said, e.truth, c, weights=w),
    )


def _biases(e: Evidence, longer: Codes) -> Biases:
    c, rows = e.clusters, e.labelled
    lean, truth, w = e.lean[rows], e.truth[rows], picked(e.weights, rows)
    return Biases(
        bias.flip_rate(e.forward, e.swapped, c),
        bias.change_rate(e.forward, e.swapped, c),
        bias.position_bias(e.forward, e.swapped, c),
        bias.longer_rate(lean, longer[rows], c[rows], weights=w),
        bias.longer_rate(truth, longer[rows], c[rows], weights=w),
        bias.length_bias(lean, truth, longer[rows], c[rows], weights=w),
        bias.label_mass(e.mass, c),
        mean(e.verdict == MISSING, c),
    )


# -- several judges -------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Contender:
    """A judge on one dimension, with what it cost."""

    name: str
    evidence: Evidence
    tokens: float | None = None  # computed, a pair
    seconds: float | None = None  # a pair


@dataclass(frozen=True, slots=True)
class ContenderRow:
    """One contender on the pairs that all have judged."""

    name: str
    dimension: str
    judged: int
    decided: Estimate
    three_way: Estimate
    kappa: Estimate
    brier: Estimate
    flips: Estimate
    ahead: Estimate | None  # right side, less that of the first contender; None for the first itself
    ahead_three_way: Estimate | None
    tokens: float | None
    seconds: float | None
    ahead_p: float | None = None  # of being as good as the first
    ahead_p_holm: float | None = None  # corrected for the other contenders


@dataclass(frozen=True, slots=True)
class JudgeComparison:
    """Judges or protocols on the same pairs; the others are compared with the first."""

    dimension: str  # what people were asked
    pairs: int
    decided: int
    rows: tuple[ContenderRow, ...]
    longer: Estimate
    label_use: LabelUse


def compare(contenders: Sequence[Contender], dimension: str) -> JudgeComparison:
    """Put judges next to each other on the pairs that all have judged and people have labelled."""
    rows = shared_rows([one.evidence for one in contenders])
    same = [one.evidence.take(row) for one, row in zip(contenders, rows, strict=True)]
    # Numbers of clusters are each judge's own; those of the first serve for all.
    clusters = same[0].clusters
    first = same[0]
    longer = agreement.score_sides(bias.longer_side(first.length_1, first.length_2), first.truth)
    return JudgeComparison(
        dimension,
        len(first),
        int(agreement.is_decided(first.truth).sum()),
        _corrected([_row(one, e, first, clusters) for one, e in zip(contenders, same, strict=True)]),
        agreement.decided(longer, first.truth, clusters, weights=first.weights),
        first.use,
    )


def _corrected(rows: Sequence[ContenderRow]) -> tuple[ContenderRow, ...]:
    fixed = correct_together([row.ahead_p for row in rows]).corrected
    return tuple(replace(row, ahead_p_holm=p) for row, p in zip(rows, fixed, strict=True))


def _ahead_p(scores: Array, others: Array, clusters: Codes, weights: Array | None) -> float | None:
    def at(level: float) -> tuple[float | None, float | None]:
        found = agreement.compare(scores, others, clusters, level=level, weights=weights)
        return found.low, found.high

    return p_of(at)


def _row(one: Contender, e: Evidence, first: Evidence, clusters: Codes) -> ContenderRow:
    scores, others = _decided_scores(e, "pooled"), _decided_scores(first, "pooled")
    same, their_same = ((x.verdict == first.truth).astype(np.float64) for x in (e, first))
    is_first, w = e is first, first.weights
    return ContenderRow(
        one.name,
        e.dimension,
        len(one.evidence),
        agreement.decided(scores, first.truth, clusters, weights=w),
        agreement.three_way(e.verdict, first.truth, clusters, weights=w),
        agreement.cohen_kappa(e.verdict, first.truth, clusters, weights=w),
        calibration.brier(e.p, first.truth, clusters, weights=w),
        bias.flip_rate(e.forward, e.swapped, clusters),
        None if is_first else agreement.compare(scores, others, clusters, weights=w),
        None if is_first else agreement.compare(same, their_same, clusters, weights=w),
        one.tokens,
        one.seconds,
        None if is_first else _ahead_p(scores, others, clusters, w),
    )


# -- what a chain does to a verdict ---------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Drag:
    """The same dimension asked in a chain and asked alone, on the same pairs."""

    dimension: str
    chain: str
    alone: str
    pairs: int
    changed: Estimate  # share of pairs whose verdict is another
    turned: Estimate  # share of pairs whose favoured side is the other
    followed: Estimate  # of those that turned, the share that turned to the side of the earlier answers
    gain: Estimate  # right side in the chain less alone, on decided pairs


def drag_of(chain: Contender, alone: Contender) -> Drag | None:
    """How far the earlier answers of a chain drag a later one; None where no pair was asked both ways."""
    one, other = _asked_both_ways(chain.evidence, alone.evidence)
    if not len(one):
        return None
    c = one.clusters
    turned = (one.lean != other.lean) & (one.lean != agreement.TIE) & (other.lean != agreement.TIE)
    earlier = np.where(np.isnan(one.earlier) | (one.earlier == 0), MISSING, (one.earlier < 0).astype(np.int64))
    given = turned & (earlier != MISSING)
    return Drag(
        one.dimension,
        chain.name,
        alone.name,
        len(one),
        mean(one.verdict != other.verdict, c),
        mean(turned, c),
        mean((one.lean == earlier)[given], c[given]),
        agreement.compare(_decided_scores(one, "pooled"), _decided_scores(other, "pooled"), c),
    )


def _asked_both_ways(chain: Evidence, alone: Evidence) -> tuple[Evidence, Evidence]:
    """The pairs with a verdict from both, labelled or not."""
    places = [
        {key: row for row, key in enumerate(e.keys.tolist()) if e.verdict[row] != MISSING} for e in (chain, alone)
    ]
    common = [key for key in places[0] if key in places[1]]
    one, other = (e.take([place[key] for key in common]) for e, place in zip((chain, alone), places, strict=True))
    return one, other
