"""What levels of judges may decide, what they decided, what it cost, and what is left to people."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from evenhand.core.engine import Usage
from evenhand.core.errors import InputError
from evenhand.core.jury import JurorOutcomes, Scale, confidence_of, log_length, on_dimension
from evenhand.core.outcome import cluster_number
from evenhand.core.pair import Pair, Side, short_hash
from evenhand.core.stats.clustered import Array
from evenhand.core.stats.escalation import CONFIDENCE, Cascade, best_promise, choose_cascade, fewest_labels
from evenhand.core.votes import Drawn, draws_on, final_label
from evenhand.results.label_use import LabelUse, label_use
from evenhand.results.people import People
from evenhand.results.wording import listed
from evenhand.store import JudgeRow, Records, Store
from evenhand.store.records import MemberUsage

_AT_ONCE = 500  # pairs that are looked up together
_HOW = (
    "label some that are drawn at random: evenhand serve --pairs PAIRS puts them before people, or evenhand suggest"
    " --random 1 --out FILE writes them to a file for evenhand labels import"
)


class Pricing(Protocol):
    """What tokens cost."""

    @property
    def currency(self) -> str:
        """In which money."""

    def of(self, usage: Usage) -> float:
        """What these tokens cost."""


@dataclass(frozen=True)
class LabelledPairs:
    """Pairs with labels that may be used, what people say of them, and how they came to be labelled."""

    dimension: str
    pairs: list[Pair]
    sides: list[Side]
    among: int  # of so many pairs
    use: LabelUse
    one_by_one: bool  # whether each pair is known to have been drawn by itself

    @property
    def instructions(self) -> int:
        """How many instructions they have."""
        return len({pair.instruction for pair in self.pairs})


@dataclass(frozen=True, slots=True)
class EscalationPlan:
    """What each level may decide, and what that promises."""

    names: tuple[str, ...]
    dimension: str
    cascade: Cascade
    notes: tuple[str, ...]
    calibrated: tuple[bool, ...] = ()  # whether each level speaks with calibrated probabilities

    def plain(self) -> dict[str, Any]:
        """The plan as JSON has it."""
        cascade = self.cascade
        floors = dict(zip(self.names, cascade.confidences(), strict=True))
        return {
            "dimension": self.dimension,
            "agree": cascade.target,
            "confidence": CONFIDENCE,
            "labels": cascade.labels,
            "decided_labels": cascade.n,
            "agreed_labels": cascade.agreed,
            "coverage": cascade.coverage,
            "floors": floors,
            "calibrated": dict(zip(self.names, self.calibrated, strict=True)),
            "notes": self.notes,
        }


@dataclass(frozen=True, slots=True)
class LevelResult:
    """One level: about how many pairs it was asked, how many it decided, and what its answers took."""

    name: str
    floor: float | None  # it decides where it is surer than this; None where it decides nothing
    asked: int
    decided: int
    share: float
    tokens: Usage | None
    cost: float | None
    calibrated: bool = False  # whether how sure it is was said by its calibration


@dataclass(frozen=True, slots=True)
class EscalationResult:
    """Who decided what; `always` is what the last judge would have taken for all pairs, by what some took."""

    escalation: str
    dimension: str
    agree: float
    confidence: float
    labels: int
    agreed: float  # of the labelled pairs that are decided
    pairs: int
    levels: tuple[LevelResult, ...]  # the last one is people's, where they are a level
    waiting: int
    tokens: int
    tokens_always: int | None
    cost: float | None
    cost_always: float | None
    currency: str

    @property
    def guarantee(self) -> str:
        """The promise in a sentence."""
        return (
            f"Of the pairs that judges decide, at least {self.agree:.0%} are decided as people would, with"
            f" {self.confidence:.0%} confidence ({self.labels:,} labels; on those decided, judges and people agree"
            f" in {self.agreed:.0%})."
        )

    @property
    def sureness(self) -> str:
        """By what it is said how sure each level is, in a sentence."""
        judges = [level for level in self.levels if level.tokens is not None]
        as_said, known = ([one.name for one in judges if one.calibrated == which] for which in (False, True))
        if not as_said:
            return "How sure each judge is, is said by its calibration."
        they = "it is" if len(as_said) == 1 else "they are"
        found = f"No calibration of {listed(as_said)} is kept: how sure {they}, is taken as said."
        return f"{found} Of {listed(known)} it is said by calibration." if known else found

    @property
    def saved(self) -> str:
        """What was saved, in a sentence: money where it is known, else questions to the last judge."""
        last = [level for level in self.levels if level.tokens is not None][-1]
        if self.cost is not None and self.cost_always:
            part = 1 - self.cost / self.cost_always
            word = f"{part:.0%} less" if part >= 0 else f"{-part:.0%} more"
            return (
                f"{self.cost:,.2f} {self.currency} instead of {self.cost_always:,.2f} for asking {last.name} about"
                f" every pair: {word}."
            )
        if not self.pairs or not last.asked:
            return ""
        return (
            f"{last.name} was asked about {last.asked:,} of {self.pairs:,} pairs,"
            f" {1 - last.asked / self.pairs:.0%} less than about every pair."
        )


def find_labelled(
    store: Store, pairs: Iterable[Pair], dimension: str, on_note: Callable[[str], None] | None = None
) -> LabelledPairs:
    """The labelled ones among these pairs; where none of them is, those of the whole database."""
    found = _labelled(store, pairs, dimension)
    if found.pairs:
        return found
    there = (pair for _, pair in store.voted())
    other = _labelled(store, there, dimension)
    if other.pairs and on_note:
        on_note(
            f"none of these pairs is labelled; the {len(other.pairs):,} labelled pairs of the database are taken"
            " for a random sample of pairs like these"
        )
    return other if other.pairs else found


def _labelled(store: Store, pairs: Iterable[Pair], dimension: str) -> LabelledPairs:
    people, kept, sides = People(store), [], []
    drawn: dict[int, Sequence[Drawn]] = {}
    numbers: list[int] = []
    waiting = iter(pairs)
    while some := list(islice(waiting, _AT_ONCE)):
        for pair, number in zip(some, store.made.numbers(some), strict=True):
            votes = people.votes(pair)
            side = final_label(votes, people.decisions(pair), dimension)
            if side is not None:
                drawn[len(numbers)] = draws_on(people.draws(pair, votes), dimension)
                kept.append((len(numbers), pair))
                sides.append(side)
            numbers.append(number if number is not None else 1 << 40)
    weights, use = label_use(np.array(numbers, dtype=np.int64), drawn)
    used = [_is_used(pair, weights[row], float(weights.max(initial=0.0))) for row, pair in kept]
    chosen = [(row, pair, side) for (row, pair), side, fits in zip(kept, sides, used, strict=True) if fits]
    one_by_one = len(numbers) == len(kept) or all(
        any(one.design == "random" for one in drawn[row]) for row, _, _ in chosen
    )
    return LabelledPairs(
        *(dimension, [pair for _, pair, _ in chosen], [side for _, _, side in chosen]),
        *(len(numbers), use, one_by_one),
    )


def _is_used(pair: Pair, weight: float, most: float) -> bool:
    """Whether a label is used: those of unequal weight are thinned until all had the same chance to be there."""
    return weight > 0 and short_hash(f"thin {pair.key}") / float(1 << 64) < weight / most


def refuse_few(labelled: LabelledPairs, target: float, levels: int) -> None:
    """Refuse labels that could not keep the promise whatever the judges said, before anybody is asked."""
    least, n = fewest_labels(target, levels), len(labelled.pairs)
    if not n:
        why = labelled.use.notes[0] if labelled.use.left_out else "no pair is labelled"
        raise InputError(
            f"--escalate needs labels of people on {_asked(labelled.dimension)}, and {why}",
            hint=f"{_HOW}. For {target:.0%} it takes at least {least}, and a few hundred to decide many pairs",
        )
    if n < least:
        raise InputError(
            f"with your {n:,} labels, {target:.0%} cannot be promised whatever the judges say: it takes at least"
            f" {least}",
            hint=f"label more, or promise less with --agree; {_HOW}",
        )


def plan_escalation(
    names: Sequence[str],
    labelled: LabelledPairs,
    outcomes: Sequence[JurorOutcomes],
    target: float,
    scales: Sequence[Scale | None] = (),
) -> EscalationPlan:
    """What each level may decide; InputError with what could be promised instead, where it is nothing.

    `scales` are the calibrations of the levels, by which it is said how sure they are.
    """
    sure, right = _tables(labelled, outcomes, tuple(scales) or (None,) * len(names))
    clusters = None if labelled.one_by_one else _clusters(labelled.pairs)
    found = choose_cascade(sure, right, target, clusters=clusters)
    if not found.promised:
        raise _refusal(labelled, sure, right, target, clusters)
    notes = list(labelled.use.notes)
    if clusters is not None and labelled.instructions < len(labelled.pairs):
        notes.append(
            f"{len(labelled.pairs):,} labels on {labelled.instructions:,} instructions, and it is not known that"
            " pairs were drawn one by one: they count as about one label for each instruction."
        )
    known = tuple(scale is not None for scale in tuple(scales) or (None,) * len(names))
    return EscalationPlan(tuple(names), labelled.dimension, found, tuple(notes), known)


def _tables(
    labelled: LabelledPairs, every: Sequence[JurorOutcomes], scales: Sequence[Scale | None]
) -> tuple[Array, NDArray[np.bool_]]:
    """How sure each level is of each labelled pair, and whether it says what people say."""
    sure = np.full((len(labelled.pairs), len(scales)), np.nan)
    right = np.zeros((len(labelled.pairs), len(scales)), dtype=np.bool_)
    for row, (pair, said, side) in enumerate(zip(labelled.pairs, every, labelled.sides, strict=True)):
        each = zip(on_dimension(said, labelled.dimension), scales, strict=True)
        for level, (outcome, scale) in enumerate(each):
            confidence = confidence_of(outcome, scale, log_length(pair))
            if outcome is not None and confidence is not None:
                sure[row, level] = confidence
                right[row, level] = outcome.side == side
    return sure, right


def _clusters(pairs: Sequence[Pair]) -> Array:
    return np.array([cluster_number(pair.instruction) for pair in pairs], dtype=np.uint64)


def _refusal(
    labelled: LabelledPairs, sure: Array, right: NDArray[np.bool_], target: float, clusters: Array | None
) -> InputError:
    n = len(labelled.pairs)
    other = best_promise(sure, right, target, clusters=clusters)
    said = f"with your {n:,} labels, {target:.0%} cannot be promised"
    if other is None:
        return InputError(f"{said}, nor anything above 50%", hint="label more pairs, or ask better judges")
    return InputError(
        f"{said}; {other.target:.0%} can, with {other.coverage:.0%} of the pairs decided",
        hint=f"--agree {other.target:.2f}, more labels, or a better judge as the last level",
    )


def _asked(dimension: str) -> str:
    return "overall" if dimension == "combined" else dimension


# -- what came of it ----------------------------------------------------------------------------------------------


def escalation_result(store: Records, row: JudgeRow, prices: Sequence[Pricing | None] = ()) -> EscalationResult:
    """What an escalation that a database or a folder of shards holds came to."""
    identity, plan = row.identity, json.loads(row.identity["plan"])
    judges = store.members_used(row)
    floors = [None if word == "never" else float(word) for word in identity["floors"].split()]
    decided: Counter[int | None] = Counter(word["level"] for word in store.made_words(row))
    pairs = decided.total()
    every = [*prices, *[None] * (len(judges) - len(prices))]
    scales = json.loads(identity.get("calibrations", "[]")) or [None] * len(judges)
    levels = [
        _level_result(judge, floor, decided[number], pairs, price, calibrated=scale is not None)
        for number, (judge, floor, price, scale) in enumerate(zip(judges, floors, every, scales, strict=True), 1)
    ]
    tokens = sum(_count(level.tokens) for level in levels)
    costs = [level.cost for level in levels]
    cost = None if any(x is None for x in costs) else sum(x for x in costs if x is not None)
    last = levels[-1]
    per_pair = pairs / last.asked if last.asked else None
    if plan["people"]:
        said = decided[len(judges) + 1]
        levels.append(LevelResult("people", None, said + decided[None], said, _share(said, pairs), None, None))
    return EscalationResult(
        *(row.model, identity["on"], float(identity["agree"]), CONFIDENCE, plan["labels"]),
        *(plan["agreed"] / max(plan["decided"], 1), pairs, tuple(levels), decided[None], tokens),
        round(_count(last.tokens) * per_pair) if per_pair and _count(last.tokens) else None,
        cost,
        last.cost * per_pair if per_pair and last.cost is not None else None,
        next((price.currency for price in every if price), ""),
    )


def _level_result(
    used: MemberUsage,
    floor: float | None,
    decided: int,
    pairs: int,
    price: Pricing | None,
    *,
    calibrated: bool,
) -> LevelResult:
    judge, usage, asked = used
    name = judge.model if judge else "a judge that was removed"
    return LevelResult(
        *(name, floor, asked, decided, _share(decided, pairs), usage),
        price.of(usage) if price else 0.0 if judge and "base_url" not in judge.identity else None,  # it runs here
        calibrated,
    )


def _count(usage: Usage | None) -> int:
    return 0 if usage is None else usage.computed + usage.reused + usage.generated


def _share(part: int, whole: int) -> float:
    return part / whole if whole else 0.0
