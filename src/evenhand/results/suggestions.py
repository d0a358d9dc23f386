"""Which pairs people should label next: those whose label would teach most about the judge.

A pair that the judge finds easy, in both orders, as do all other judges, will most likely be labelled as they say.
Where they waver, a label tells something. Three things are looked at, each between 0 and 1:

uncertainty how little the likeliest verdict stands above the next: 1 - (p best - p second)
flip        whether the two orders contradict each other: 1; one half if one of them says tie; 0 if they agree
dispute     the share of other judges that say otherwise

Uncertainty is margin sampling (Scheffer, Decomain and Wrobel 2001, "Active hidden Markov models for information
extraction"), dispute a query by committee (Seung, Opper and Sompolinsky 1992); Settles (2009), "Active learning
literature survey", has both. The score is the mean of those that are known. Of pairs that share an instruction the
best counts in full, the second half, the third a third: people should see many instructions.

Labels on such pairs do not speak for the others. So a share of the pairs may be drawn at random, each with the same
chance: those with the smallest hash of the seed and the texts. That keeps the sample the same while pairs are added
and labelled (permanent random numbers: Ohlsson 1995, "Coordination of samples using permanent random numbers").
"""

from __future__ import annotations

from array import array
from bisect import insort
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from evenhand.core.attacks import as_they_were
from evenhand.core.judge import Judgment
from evenhand.core.pair import Pair, Side, short_hash
from evenhand.core.verdict import SIDES, Outcome
from evenhand.core.votes import Drawn

Others = Callable[[Pair], Sequence[Side]]
_TO_LEARN = Drawn("suggested")


@dataclass(frozen=True, slots=True)
class WorthParts:
    """The parts of a score; None where one is not known."""

    uncertainty: float | None
    flip: float | None
    dispute: float | None

    @property
    def score(self) -> float:
        """The mean of what is known.

        >>> WorthParts(uncertainty=0.5, flip=1.0, dispute=None).score
        0.75
        """
        known = [part for part in (self.uncertainty, self.flip, self.dispute) if part is not None]
        return sum(known) / len(known) if known else 0.0


@dataclass(frozen=True, slots=True)
class Suggestion:
    """A pair to label, and why; `place` is 1 for the best pair of its instruction, 2 for the next."""

    pair: Pair
    parts: WorthParts
    place: int = 1
    drawn: Drawn = _TO_LEARN

    @property
    def worth(self) -> float:
        """The score, less where better pairs of the same instruction are there."""
        return self.parts.score / self.place

    def plain(self) -> dict[str, object]:
        """The suggestion as JSON has it."""
        return {
            "id": self.pair.id,
            "instruction": self.pair.instruction,
            "worth": self.worth,
            "score": self.parts.score,
            "uncertainty": self.parts.uncertainty,
            "flip": self.parts.flip,
            "dispute": self.parts.dispute,
            "place": self.place,
            "design": self.drawn.design,
            "probability": self.drawn.probability,
        }


@dataclass(frozen=True, slots=True)
class Suggestions:
    """The pairs to label, the most worth first, and what was passed over."""

    pairs: tuple[Suggestion, ...]
    considered: int
    labelled: int  # passed over, because people have said already
    invalid: int  # passed over, because there is no verdict that a label could teach something about
    dimension: str
    again: tuple[Suggestion, ...] = ()  # drawn by chance, and labelled already because they had been suggested


def suggest(
    judgments: Iterable[Judgment],
    labelled: Callable[[Pair], bool],
    *,
    dimension: str = "overall",
    number: int = 20,
    others: Others | None = None,
    random_share: float = 0.0,
    seed: int = 0,
    chosen_before: Callable[[Pair], bool] | None = None,
) -> Suggestions:
    """The pairs whose label would teach most; memory holds no more of them than are asked for.

    `labelled` says whether people have spoken of a pair, `others` what other judges say of it. Of the `number`, a
    `random_share`, to the nearest pair, is drawn at random from all pairs that chance has not taken before;
    `chosen_before` says of a labelled pair that it was labelled only because it was suggested, so that chance may
    still take it.

    >>> from evenhand.views.api import Judge
    >>> from evenhand.engines.scripted import ScriptedEngine
    >>> script = lambda prompt: "A" if "Which colour?" in prompt.turns[-1].text else "tie"
    >>> with Judge(ScriptedEngine(script), "overall") as judge:
    ...     judged = list(judge.judge([Pair("Hello", "x", "y"), Pair("Which colour?", "x", "y")]))
    >>> [(s.pair.instruction, s.worth) for s in suggest(judged, lambda pair: False).pairs]
    [('Which colour?', 1.0), ('Hello', 0.0)]
    """
    by_chance = round(number * random_share)
    chosen, lottery = _ChosenPairs(number), _Lottery(by_chance, seed)
    considered = known = invalid = 0
    for judgment in as_they_were(judgments):
        outcome, pair = judgment.outcomes.get(dimension), judgment.pair
        spoken = labelled(pair)
        parts = (
            weigh(outcome, others(pair) if others else ()) if outcome is not None else WorthParts(None, None, None)
        )
        if by_chance and (not spoken or (chosen_before is not None and chosen_before(pair))):
            lottery.offer(pair, parts, spoken=spoken)
        if outcome is None or outcome.p is None:
            invalid += 1
        elif spoken:
            known += 1
        else:
            considered += 1
            chosen.offer(pair, parts)
    drawn, again = lottery.drawn()
    taken = {suggestion.pair.key for suggestion in drawn}
    best = [one for one in chosen.best() if one.pair.key not in taken][: number - len(drawn)]
    return Suggestions((*best, *drawn), considered, known, invalid, dimension, again)


def weigh(outcome: Outcome, others: Sequence[Side] = ()) -> WorthParts:
    """How much a label of this pair would teach, in parts.

    >>> from evenhand.core.verdict import Verdict, pool
    >>> said = Verdict("overall", "A", {"A": 0.6, "B": 0.3, "tie": 0.1})
    >>> weigh(pool("overall", {"forward": said, "swapped": said}), others=["1", "tie"])
    WorthParts(uncertainty=1.0, flip=1.0, dispute=0.5)
    """
    p = outcome.p or {}
    best, second, *_ = sorted((p[side] for side in SIDES), reverse=True) if p else (1.0, 0.0)
    uncertainty = 1 - (best - second) if p else None
    dispute = sum(side != outcome.side for side in others) / len(others) if others else None
    return WorthParts(uncertainty, _flip(outcome), dispute)


def _flip(outcome: Outcome) -> float | None:
    if len(outcome.orders) < 2:
        return None
    said = {outcome.side_in(order) for order in outcome.orders}
    return 1.0 if outcome.inconsistent else 0.5 if len(said) > 1 else 0.0


def short_name(pair: Pair) -> int:
    """Eight bytes that stand for a pair, its id included."""
    return short_hash(f"{pair.key} {pair.id}")


class OtherJudges:
    """What other judges say of a pair; nine bytes for each of their verdicts are held.

    >>> from evenhand.views.api import Judge
    >>> from evenhand.engines.scripted import ScriptedEngine
    >>> with Judge(ScriptedEngine(lambda prompt: "tie")) as judge:
    ...     others = OtherJudges([judge.judge([Pair("Hi", "x", "y")])], "overall")
    >>> others(Pair("Hi", "x", "y")), others(Pair("Hi", "x", "z"))
    (['tie'], [])
    """

    def __init__(self, judges: Iterable[Iterable[Judgment]], dimension: str) -> None:
        self._books = [_book(judgments, dimension) for judgments in judges]

    def __call__(self, pair: Pair) -> list[Side]:
        """The sides that they chose."""
        name = short_name(pair)
        found = (_look_up(names, sides, name) for names, sides in self._books)
        return [side for side in found if side is not None]


def _book(judgments: Iterable[Judgment], dimension: str) -> tuple[Any, Any]:
    """The names of the pairs that one judge has a verdict on, sorted, and the verdicts."""
    import numpy as np

    names, sides = array("Q"), array("b")
    for judgment in judgments:
        outcome = judgment.outcomes.get(dimension)
        if outcome is not None and outcome.side is not None:
            names.append(short_name(judgment.pair))
            sides.append(SIDES.index(outcome.side))
    order = np.argsort(np.frombuffer(names, dtype=np.uint64))
    return np.frombuffer(names, dtype=np.uint64)[order], np.frombuffer(sides, dtype=np.int8)[order]


def _look_up(names: Any, sides: Any, name: int) -> Side | None:
    place = int(names.searchsorted(names.dtype.type(name)))
    return SIDES[sides[place]] if place < len(names) and int(names[place]) == name else None


@dataclass(frozen=True, slots=True, order=True)
class _Offer:
    """A pair on offer; the better sorts first, and among equals the order of the rows does not matter."""

    minus_score: float
    name: int
    pair: Pair = field(compare=False)
    parts: WorthParts = field(compare=False)


_Ticket = tuple[int, int, Pair, WorthParts]


class _Lottery:
    """Pairs drawn by chance: those with the smallest hash. All that are labelled already are remembered."""

    def __init__(self, number: int, seed: int) -> None:
        self._number, self._seed, self._seen = number, seed, 0
        self._new: list[_Ticket] = []  # sorted
        self._spoken: list[_Ticket] = []

    def offer(self, pair: Pair, parts: WorthParts, *, spoken: bool) -> None:
        self._seen += 1
        ticket = (short_hash(f"{self._seed} {pair.key}"), short_name(pair), pair, parts)
        if spoken:
            self._spoken.append(ticket)
        elif len(self._new) < self._number or ticket[:2] < self._new[-1][:2]:
            insort(self._new, ticket, key=lambda known: known[:2])
            del self._new[self._number :]

    def drawn(self) -> tuple[tuple[Suggestion, ...], tuple[Suggestion, ...]]:
        """Those to label, and those that are labelled already."""
        last = self._new[-1][0] if self._new else -1
        again = [ticket for ticket in self._spoken if ticket[0] < last]
        how = Drawn("random", (len(self._new) + len(again)) / max(self._seen, 1))
        made = [[Suggestion(pair, parts, 1, how) for _, _, pair, parts in some] for some in (self._new, again)]
        return tuple(made[0]), tuple(made[1])


class _ChosenPairs:
    """The best so far. What is dropped never has to come back: a place among the pairs of an instruction, once
    filled, is only ever taken by a better pair, so whatever was worth less than all that is kept stays so."""

    def __init__(self, number: int) -> None:
        self._number, self._count = number, 0
        self._by_instruction: dict[int, list[_Offer]] = {}
        self._least = float("-inf")  # what the least of those that are kept is worth

    def offer(self, pair: Pair, parts: WorthParts) -> None:
        if self._count >= self._number and parts.score < self._least:
            return
        group = self._by_instruction.setdefault(short_hash(pair.instruction), [])
        insort(group, _Offer(-parts.score, short_name(pair), pair, parts))
        self._count += 1
        if self._count > self._number:
            self._drop_least()

    def _drop_least(self) -> None:
        *_, where = max(_rank(group, where) for where, group in self._by_instruction.items())
        self._by_instruction[where].pop()
        if not self._by_instruction[where]:
            del self._by_instruction[where]
        self._count -= 1
        self._least = -max(_rank(group, where) for where, group in self._by_instruction.items())[0]

    def best(self) -> tuple[Suggestion, ...]:
        found = [
            ((offer.minus_score / place, place, offer.name), Suggestion(offer.pair, offer.parts, place))
            for group in self._by_instruction.values()
            for place, offer in enumerate(group, 1)
        ]
        return tuple(suggestion for _, suggestion in sorted(found, key=lambda item: item[0]))


def _rank(group: Sequence[_Offer], where: int) -> tuple[float, int, int, int]:
    """How little the last of a group is worth: the larger, the less."""
    return group[-1].minus_score / len(group), len(group), group[-1].name, where
