"""What the outcomes of a judge come to, dimension by dimension: counts, win rates, position bias, label mass.

`Counter` takes blocks of outcomes and holds some thousand rows in memory; `summary()` is what every view shows.
"""

from __future__ import annotations

import collections
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from evenhand.core.columns import MISSING, TIE, Block, Codes, Outcomes
from evenhand.core.pair import COMBINED
from evenhand.core.stats.clusters import UNIT, Weighting, fixed_point, gather
from evenhand.core.stats.length import LengthControlled, arrange, length_controlled_over
from evenhand.core.stats.winrate import Rate, mean_rate, mean_rate_over, missing_bounds
from evenhand.io.spill_file import Part, SpillFile

if TYPE_CHECKING:
    from evenhand.core.judge import Judgment

Span = tuple[float, float]
ROLES = {"1": ("candidate", "baseline"), "2": ("baseline", "candidate")}  # of the sides, by the candidate's
SignedValues = Callable[[Part], NDArray[np.float64]]
_SIGNED = np.array([1.0, -1.0, 0.0])  # what a side is worth to side 1: won, lost, tie
_TOGETHER = 4096  # judgments that wait to be counted


@dataclass(frozen=True, slots=True)
class ExpectedRate:
    """How often side 1 can expect to win: each verdict counts by its probabilities."""

    win_rate_1: float | None
    ci: Span | None


@dataclass(frozen=True, slots=True)
class InstructionRate:
    """How often side 1 wins where each instruction weighs the same, however many pairs share it."""

    win_rate_1: float | None
    ci: Span | None


@dataclass(frozen=True, slots=True)
class EqualLengthRate:
    """How often side 1 would win at equal length."""

    win_rate_1: float | None
    ci: Span | None
    length_effect: float | None
    length_effect_ci: Span | None
    typical_difference: float | None
    method: str
    reason: str | None


@dataclass(frozen=True, slots=True)
class KnownAnswers:
    """How often the judge said the same as the labels that are known."""

    n: int
    three_way: float
    decided_n: int
    decided: float | None


@dataclass(frozen=True, slots=True)
class DimensionSummary:
    """One dimension of one judge. The fields, and their names, are those of `--json`."""

    n: int  # pairs with a verdict
    wins_1: int
    wins_2: int
    ties: int
    inconsistent: int
    invalid: int
    invalid_reasons: Mapping[str, int]
    label_mass: float | None
    position_bias: float | None
    first_in_both: float | None  # share of pairs in which whatever stood first was chosen, in both orders
    second_in_both: float | None
    win_rate_1: float | None
    ci: Span | None
    ci_method: str
    ci_level: float
    clusters: int
    effective_n: float | None
    small: bool
    invalid_bounds: Span | None
    expected: ExpectedRate
    by_instruction: InstructionRate
    length_controlled: EqualLengthRate
    agreement: KnownAnswers | None = field(default=None, metadata={"json": None})
    rows: DimensionRows | None = field(default=None, repr=False, compare=False, metadata={"json": False})

    @property
    def shares(self) -> Mapping[str, float] | None:
        """The verdicts as shares of 1, 2 and tie; None where there are none."""
        if not self.n:
            return None
        return {"1": self.wins_1 / self.n, "2": self.wins_2 / self.n, "tie": self.ties / self.n}


@dataclass(frozen=True, slots=True)
class Summary:
    """Every dimension of a judge."""

    pairs: int
    sides: tuple[str, str]  # what to call them: the models' names, where every pair has the same two
    dimensions: Mapping[str, DimensionSummary]
    roles: tuple[str, str] | None = None  # candidate and baseline, where every pair has the same
    unfinished: int = 0  # pairs that were given to the judge and are not asked, or asked in part

    def plain(self) -> dict[str, object]:
        """The summary as JSON has it."""
        roles = {} if self.roles is None else {"roles": dict(zip(("1", "2"), self.roles, strict=True))}
        sides = dict(zip(("1", "2"), self.sides, strict=True))
        return {
            "pairs": self.pairs,
            "sides": sides,
            **roles,
            "unfinished": self.unfinished,
            "dimensions": self.dimensions,
        }

    @property
    def invalid(self) -> int:
        """Verdicts that are missing, over all dimensions that were asked."""
        return sum(found.invalid for name, found in self.dimensions.items() if name != COMBINED)

    @property
    def reasons(self) -> Mapping[str, int]:
        """Why verdicts are missing, over all dimensions that were asked."""
        reasons: collections.Counter[str] = collections.Counter()
        for name, found in self.dimensions.items():
            if name != COMBINED:
                reasons.update(found.invalid_reasons)
        return dict(reasons)


class DimensionRows:
    """What statistics need of the valid outcomes of one dimension, a few bytes a pair."""

    def __init__(self) -> None:
        self._rows = SpillFile(
            cluster="Q", longer="i", side="b", forward="b", swapped="b", mass="d", masses="b", expected="d"
        )

    def __len__(self) -> int:
        return len(self._rows)

    def extend(self, block: Block, found: Outcomes, rows: NDArray[Any]) -> None:
        """Take some rows of a block."""
        both = found.both_orders[rows]
        self._rows.extend(
            cluster=block.cluster[rows],
            longer=block.longer[rows],
            side=found.side[rows],
            forward=np.where(both, found.forward[rows], MISSING),
            swapped=np.where(both, found.swapped[rows], MISSING),
            mass=found.mass[rows],
            masses=found.masses[rows],
            expected=found.expected[rows],
        )

    def parts(self) -> Iterator[Part]:
        """All rows in parts that share no cluster."""
        return ({name: np.array(column) for name, column in part.items()} for part in self._rows.parts())

    def all(self) -> Part:
        """All rows at once, for whoever has the memory."""
        return {name: np.asarray(column) for name, column in self._rows.all().items()}

    def rate(self) -> Rate:
        """How often side 1 wins, a tie counting one half."""
        return self._mean(lambda part: _SIGNED[part["side"]])

    def expected_rate(self) -> Rate:
        """How often side 1 can expect to win."""
        return self._mean(lambda part: 2 * part["expected"] - 1)

    def rate_by_instruction(self) -> Rate:
        """How often side 1 wins, each instruction weighing the same."""
        return self._mean(lambda part: _SIGNED[part["side"]], "instructions")

    def _mean(self, signed: SignedValues, weighting: Weighting = "pairs") -> Rate:
        if not len(self):
            return mean_rate([])
        return mean_rate_over(
            lambda: (gather(signed(part), part["cluster"], weighting) for part in self.parts()), weighting=weighting
        )

    def length_controlled(self) -> LengthControlled:
        """How often side 1 would win at equal length."""
        return length_controlled_over(
            lambda: (
                arrange((_SIGNED[part["side"]] + 1) / 2, part["longer"], part["cluster"]) for part in self.parts()
            )
        )


class DimensionCounter:
    """One dimension, counted as blocks come."""

    def __init__(self) -> None:
        self.sides = np.zeros(3, dtype=np.int64)
        self.reasons: collections.Counter[str] = collections.Counter()
        self.inconsistent = self.mass = self.masses = self.first = self.places = 0
        self.first_in_both = self.second_in_both = 0
        self.labelled = self.agreed = self.decided = 0
        self.decided_right = 0.0
        self.rows = DimensionRows()

    def add(self, block: Block, found: Outcomes, known: Codes) -> None:
        """Count the pairs of a block."""
        rows = np.flatnonzero(found.valid)
        self._count_reasons(found, np.flatnonzero(~found.valid))
        self.rows.extend(block, found, rows)
        self.sides += np.bincount(found.side[rows], minlength=3)
        self.inconsistent += int(found.inconsistent.sum())
        # In whole numbers, so that the order in which pairs come cannot change a digit.
        self.mass += int(fixed_point(found.mass[rows]).sum())
        self.masses += int(found.masses[rows].sum())
        both = rows[found.both_orders[rows]]
        self.first += int(found.first[both].sum())
        self.places += 2 * len(both)
        self.first_in_both += int((found.first[both] == 2).sum())
        self.second_in_both += int((found.first[both] == -2).sum())
        self._compare(found.take(rows), known[rows])

    def _count_reasons(self, found: Outcomes, rows: NDArray[Any]) -> None:
        words, counts = np.unique(found.reason.codes[rows], return_counts=True)
        for word, count in zip(words, counts, strict=True):
            self.reasons[found.reason.words[word] if word != MISSING else "unknown"] += int(count)

    def _compare(self, found: Outcomes, known: Codes) -> None:
        given, decided = known != MISSING, (known != MISSING) & (known != TIE)
        self.labelled += int(given.sum())
        self.agreed += int((found.side == known)[given].sum())
        self.decided += int(decided.sum())
        lean = found.lean[decided]
        self.decided_right += float(np.where(lean == TIE, 0.5, lean == known[decided]).sum())

    def summary(self) -> DimensionSummary:
        """What was counted."""
        rate, expected, length = self.rows.rate(), self.rows.expected_rate(), self.rows.length_controlled()
        each = self.rows.rate_by_instruction()
        invalid = self.reasons.total()
        one, two, tie = (int(count) for count in self.sides)
        return DimensionSummary(
            n=one + two + tie,
            wins_1=one,
            wins_2=two,
            ties=tie,
            inconsistent=self.inconsistent,
            invalid=invalid,
            invalid_reasons=dict(sorted(self.reasons.items())),
            label_mass=self.mass / UNIT / self.masses if self.masses else None,
            position_bias=self.first / self.places if self.places else None,
            first_in_both=2 * self.first_in_both / self.places if self.places else None,
            second_in_both=2 * self.second_in_both / self.places if self.places else None,
            win_rate_1=rate.value,
            ci=span(rate.low, rate.high),
            ci_method=rate.method,
            ci_level=rate.level,
            clusters=rate.clusters,
            effective_n=rate.effective,
            small=rate.small,
            invalid_bounds=missing_bounds(rate, invalid) if invalid else None,
            expected=ExpectedRate(expected.value, span(expected.low, expected.high)),
            by_instruction=InstructionRate(each.value, span(each.low, each.high)),
            length_controlled=_equal_length(length),
            agreement=self._agreement(),
            rows=self.rows,
        )

    def _agreement(self) -> KnownAnswers | None:
        if not self.labelled:
            return None
        right = self.decided_right / self.decided if self.decided else None
        return KnownAnswers(self.labelled, self.agreed / self.labelled, self.decided, right)


class Counter:
    """Every dimension of a judge, filled block by block, or one judgment at a time.

    >>> from evenhand.core.judge import Conversation, Judgment
    >>> from evenhand.io.pairs import Pair
    >>> from evenhand.core.verdict import Verdict
    >>> counter = Counter(["overall"])
    >>> conversation = Conversation({"overall": Verdict("overall", "A")})
    >>> counter.add(Judgment.of(Pair("Hi", "x", "y"), {"forward": conversation}))
    >>> counter.summary().dimensions["overall"].wins_1
    1
    """

    def __init__(self, dimensions: Iterable[str] = ()) -> None:
        self._dimensions = {name: DimensionCounter() for name in dimensions}
        self._models: set[tuple[str, str]] = set()
        self._candidates: set[str] = set()
        self._waiting: list[Judgment] = []
        self._counted = 0
        self.invalid = 0  # verdicts that are missing among the judgments that were added

    @property
    def pairs(self) -> int:
        """How many pairs were taken."""
        return self._counted + len(self._waiting)

    def add(self, judgment: Judgment) -> None:
        """Take one judgment; it is counted with the others that follow it."""
        if self._waiting and self._waiting[0].outcomes.keys() != judgment.outcomes.keys():
            self._flush()
        self._waiting.append(judgment)
        self.invalid += sum(outcome.side is None for name, outcome in judgment.outcomes.items() if name != COMBINED)
        if len(self._waiting) >= _TOGETHER:
            self._flush()

    def _flush(self) -> None:
        if self._waiting:
            waiting, self._waiting = self._waiting, []
            self.add_block(Block.of(waiting))

    def add_block(self, block: Block) -> None:
        """Count the pairs of a block."""
        self._counted += len(block)
        if len(self._models) < 2:  # only whether all pairs are of the same two models matters
            self._models |= models_of(block)
        self._candidates |= {block.candidate.words[code] for code in np.unique(block.candidate.codes)}
        for name, found in block.outcomes.items():
            self._dimensions.setdefault(name, DimensionCounter()).add(block, found, block.known(name))

    def summary(self) -> Summary:
        """What was counted."""
        self._flush()
        names = next(iter(self._models)) if len(self._models) == 1 else ("", "")
        found = {name: counter.summary() for name, counter in self._dimensions.items()}
        candidate = next(iter(self._candidates)) if len(self._candidates) == 1 else ""
        return Summary(self.pairs, (names[0] or "1", names[1] or "2"), found, ROLES.get(candidate))


def summarise(blocks: Iterable[Block], dimensions: Iterable[str] = ()) -> Summary:
    """Every dimension of a judge, counted over blocks."""
    counter = Counter(dimensions)
    for block in blocks:
        counter.add_block(block)
    return counter.summary()


def models_of(block: Block) -> set[tuple[str, str]]:
    """The pairs of models that are compared in a block."""
    pairs = np.unique(np.column_stack([block.model_1.codes, block.model_2.codes]), axis=0)
    one, two = block.model_1.words, block.model_2.words
    return {(one[a] if a >= 0 else "", two[b] if b >= 0 else "") for a, b in pairs}


def span(low: float | None, high: float | None) -> Span | None:
    """Two ends; None where there are none."""
    return None if low is None or high is None else (low, high)


def _equal_length(found: LengthControlled) -> EqualLengthRate:
    return EqualLengthRate(
        found.value,
        span(found.low, found.high),
        found.effect,
        span(found.effect_low, found.effect_high),
        found.typical,
        found.method,
        found.reason or None,
    )
