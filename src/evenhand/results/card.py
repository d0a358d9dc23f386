"""The judge's card: whether a judge deserves trust on these pairs, as plain facts.

`card_of` is one judge on one dimension; `compare` puts several next to each other on the same pairs; `drag_of` is
what a chain of questions does to a verdict.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal

import numpy as np

from evenhand.results.evidence import Evidence, shared_rows
from evenhand.stats import agreement, bias, calibration
from evenhand.stats.agreement import MISSING, Ceiling, Codes, People
from evenhand.stats.calibration import Reliability
from evenhand.stats.clustered import Array, Estimate, mean
from evenhand.store import JudgeRow

Trust = Literal["yes", "limited", "no", "unknown"]
# Fewer decided pairs than this say nothing about a judge.
MIN_DECIDED = 30
# A judge that puts less than this on the labels is answering something else.
LOW_MASS = 0.5
HIGH_INVALID = 0.1
_SHORTEST_PREFIX = 4


@dataclass(frozen=True, slots=True)
class CardReading:
    """What one way of reading the orders gives against people."""

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
    length_lift: Estimate
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
    instructions: int
    readings: Mapping[str, CardReading]
    gain: Estimate  # pooled less forward, right side
    longer: Estimate  # what taking the longer output would score
    over_longer: Estimate  # pooled less that
    biases: Biases
    meaning: Meaning
    people: People | None  # None where no pair has two votes
    ceiling: Ceiling | None  # right side
    trust: Trust
    verdict: str

    def plain(self) -> dict[str, object]:
        """The card as JSON has it."""
        facts = asdict(self)
        if self.people is not None:
            named = [{"people": list(names), **asdict(found)} for names, found in self.people.kappas.items()]
            facts["people"]["kappas"] = named
        return facts

    def curve(self) -> list[dict[str, Any]]:
        """The reliability curve as points for a plot."""
        every = [(part.confidence, part.right) for part in self.meaning.reliability.bins if part.right.n]
        return [
            {"predicted": sure, "observed": right.value, "low": right.low, "high": right.high, "n": right.n}
            for sure, right in every
        ]


READINGS = ("forward_hard", "both_hard", "pooled")


def card_of(evidence: Evidence, *, level: float = 0.95) -> Card:
    """The card of one judge on one dimension."""
    e, c = evidence, evidence.clusters
    scores = {name: _decided_scores(e, name) for name in READINGS}
    longer = bias.longer_side(e.length_1, e.length_2)
    by_length = agreement.score_sides(longer, e.truth)
    several = (e.counts.sum(axis=1) >= 2).any()
    ceiling = agreement.against_others(e.counts, e.lean, c, decided_only=True, level=level) if several else None
    readings = {name: _reading(e, name, scores[name], level) for name in READINGS}
    found = Card(
        dimension=e.dimension,
        pairs=len(e),
        labelled=len(e.labelled),
        decided=int(agreement.is_decided(e.truth).sum()),
        ties=int((e.truth == agreement.TIE).sum()),
        contested=e.contested,
        instructions=len(np.unique(c)),
        readings=readings,
        gain=agreement.compare(scores["pooled"], scores["forward_hard"], c, level=level),
        longer=agreement.decided(by_length, e.truth, c, level=level),
        over_longer=agreement.compare(scores["pooled"], by_length, c, level=level),
        biases=_biases(e, longer, level),
        meaning=Meaning(
            calibration.brier(e.p, e.truth, c, level=level),
            calibration.brier_binary(e.p, e.truth, c, level=level),
            calibration.reliability(e.p, e.truth, c, level=level),
        ),
        people=agreement.people(e.counts, c, e.votes, e.names, level=level) if several else None,
        ceiling=ceiling,
        trust="unknown",
        verdict="",
    )
    trust, verdict = judge_the_judge(found)
    return replace(found, trust=trust, verdict=verdict)


def _hard(e: Evidence, reading: str) -> Codes:
    return {"forward_hard": e.forward, "both_hard": e.both_hard, "pooled": e.verdict}[reading]


def _decided_scores(e: Evidence, reading: str) -> Array:
    """Scores on decided pairs; pooled probabilities lean to a side also where the verdict is a tie."""
    return agreement.score_sides(e.lean if reading == "pooled" else _hard(e, reading), e.truth)


def _reading(e: Evidence, reading: str, scores: Array, level: float) -> CardReading:
    said, c = _hard(e, reading), e.clusters
    return CardReading(
        agreement.decided(scores, e.truth, c, level=level),
        agreement.three_way(said, e.truth, c, level=level),
        agreement.cohen_kappa(said, e.truth, c, level=level),
    )


def _biases(e: Evidence, longer: Codes, level: float) -> Biases:
    c, rows = e.clusters, e.labelled
    lean, truth = e.lean[rows], e.truth[rows]
    return Biases(
        bias.flip_rate(e.forward, e.swapped, c, level=level),
        bias.change_rate(e.forward, e.swapped, c, level=level),
        bias.position_lift(e.forward, e.swapped, c, level=level),
        bias.longer_rate(lean, longer[rows], c[rows], level=level),
        bias.longer_rate(truth, longer[rows], c[rows], level=level),
        bias.length_lift(lean, truth, longer[rows], c[rows], level=level),
        bias.label_mass(e.mass, c, level=level),
        mean(e.verdict == MISSING, c, level=level),
    )


# -- does it deserve trust? -----------------------------------------------------------------------------------


def judge_the_judge(card: Card) -> tuple[Trust, str]:
    """Whether a judge deserves trust here, and why, in a sentence or two."""
    mass, invalid = card.biases.label_mass.value, card.biases.invalid.value
    if mass is not None and mass < LOW_MASS:
        return "no", f"Not a judge: only {_percent(mass)} of its probability falls on A, B or tie."
    right = card.readings["pooled"].decided
    if right.value is None or right.low is None or right.n < MIN_DECIDED:
        return "unknown", (
            f"Too few labels to say: {right.n} decided pairs with a verdict, and it takes at least {MIN_DECIDED}."
        )
    trust, why = _against_chance(card, right)
    if invalid is not None and invalid > HIGH_INVALID:
        trust = "limited" if trust == "yes" else trust
        why += f" {_percent(invalid)} of its verdicts are invalid, and those pairs are in no number here."
    return trust, why


def _against_chance(card: Card, right: Estimate) -> tuple[Trust, str]:
    said = f"It sides with people on {_percent(right.value)} of the decided pairs"
    if right.high is not None and right.high < 0.5:
        return "no", f"Do not trust it here. {said}, fewer than a coin would."
    if right.low is None or right.low <= 0.5:
        return "unknown", f"Not shown to deserve trust. {said} ({right.n}), which cannot be told from a coin."
    longer = card.over_longer
    compared = f"taking the longer output gives {_percent(card.longer.value)}"
    if longer.high is not None and longer.high < 0:
        return "no", f"Do not trust it here. {said}; {compared}, which is better."
    if longer.low is None or longer.low <= 0:
        return "unknown", (
            f"Not shown to deserve trust. {said}, more than a coin would; but {compared},"
            " and the judge has not been shown to do better than that."
        )
    return _against_people(card, f"{said}; {compared}")


def _against_people(card: Card, said: str) -> tuple[Trust, str]:
    if card.ceiling is None or card.ceiling.gap.value is None:
        return "limited", (
            f"Trust it with care. {said}. No pair has the votes of several people, so how much of the rest is the"
            " judge's fault cannot be told."
        )
    gap, person = card.ceiling.gap, _percent(card.ceiling.person.value)
    level = f"one person agrees with the others on {person}, the judge with the same on"
    level = f"{level} {_percent(card.ceiling.judge.value)}"
    if gap.high is not None and gap.high < 0:
        return "limited", f"Trust it with care, not in place of people. {said}; {level}."
    return "yes", f"It deserves trust here. {said}; {level}, which cannot be told apart."


def _percent(share: float | None) -> str:
    return "–" if share is None else f"{100 * share:.0f}%"


# -- which judges ---------------------------------------------------------------------------------------------


def choose_judges(rows: Sequence[JudgeRow], spec: str) -> list[tuple[JudgeRow, str]]:
    """The judges that a word names, each with the one dimension that is meant, or "" for all.

    A word is a protocol, a model, model/protocol, or the beginning of a fingerprint, and may end on :DIMENSION.
    """
    named = [(row, "") for row in rows if _is_called(row, spec)]
    if named:
        return named
    word, colon, dimension = spec.rpartition(":")
    return [(row, dimension) for row in rows if _is_called(row, word)] if colon else []


def _is_called(row: JudgeRow, word: str) -> bool:
    names = (row.protocol, row.model, f"{row.model}/{row.protocol}")
    return word in names or (len(word) >= _SHORTEST_PREFIX and row.fingerprint.startswith(word))


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
    heard: int
    decided: Estimate
    three_way: Estimate
    kappa: Estimate
    brier: Estimate
    flips: Estimate
    ahead: Estimate | None  # right side, less that of the first contender; None for the first itself
    ahead_three_way: Estimate | None
    tokens: float | None
    seconds: float | None


@dataclass(frozen=True, slots=True)
class JudgeComparison:
    """Judges or protocols on the same pairs; the first is what the others are held against."""

    dimension: str  # what people were asked
    pairs: int
    decided: int
    rows: tuple[ContenderRow, ...]
    longer: Estimate


def compare(contenders: Sequence[Contender], dimension: str, *, level: float = 0.95) -> JudgeComparison:
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
        tuple(_row(one, e, first, clusters, level) for one, e in zip(contenders, same, strict=True)),
        agreement.decided(longer, first.truth, clusters, level=level),
    )


def _row(one: Contender, e: Evidence, first: Evidence, clusters: Codes, level: float) -> ContenderRow:
    scores, others = _decided_scores(e, "pooled"), _decided_scores(first, "pooled")
    same, their_same = ((x.verdict == first.truth).astype(np.float64) for x in (e, first))
    is_first = e is first
    return ContenderRow(
        one.name,
        e.dimension,
        len(one.evidence),
        agreement.decided(scores, first.truth, clusters, level=level),
        agreement.three_way(e.verdict, first.truth, clusters, level=level),
        agreement.cohen_kappa(e.verdict, first.truth, clusters, level=level),
        calibration.brier(e.p, first.truth, clusters, level=level),
        bias.flip_rate(e.forward, e.swapped, clusters, level=level),
        None if is_first else agreement.compare(scores, others, clusters, level=level),
        None if is_first else agreement.compare(same, their_same, clusters, level=level),
        one.tokens,
        one.seconds,
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


def drag_of(chain: Contender, alone: Contender, *, level: float = 0.95) -> Drag | None:
    """How far the earlier answers of a chain drag a later one; None where no pair was asked both ways."""
    one, other = _asked_both_ways(chain.evidence, alone.evidence)
    if not len(one):
        return None
    c = one.clusters
    turned = (one.lean != other.lean) & (one.lean != agreement.TIE) & (other.lean != agreement.TIE)
    earlier = np.where(np.isnan(one.earlier) | (one.earlier == 0), MISSING, (one.earlier < 0).astype(np.int64))
    told = turned & (earlier != MISSING)
    return Drag(
        one.dimension,
        chain.name,
        alone.name,
        len(one),
        mean(one.verdict != other.verdict, c, level=level),
        mean(turned, c, level=level),
        mean((one.lean == earlier)[told], c[told], level=level),
        agreement.compare(_decided_scores(one, "pooled"), _decided_scores(other, "pooled"), c, level=level),
    )


def _asked_both_ways(chain: Evidence, alone: Evidence) -> tuple[Evidence, Evidence]:
    """The pairs with a verdict from both, labelled or not."""
    places = [
        {key: row for row, key in enumerate(e.keys.tolist()) if e.verdict[row] != MISSING} for e in (chain, alone)
    ]
    common = [key for key in places[0] if key in places[1]]
    one, other = (e.take([place[key] for key in common]) for e, place in zip((chain, alone), places, strict=True))
    return one, other
