"""The outcomes of a judge, counted dimension by dimension: counts, win rates, position bias, label mass.

`Counter` takes blocks of outcomes and holds a few thousand rows in memory; `summary()` is what every view shows.
"""

from __future__ import annotations

import collections
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from evenhand.core.columns import MISSING, ONE, TIE, TWO, Block, Codes, Outcomes, first_chosen
from evenhand.core.pair import COMBINED
from evenhand.core.stats.clusters import UNIT, Groups, Weighting, evened, fixed_point, gather
from evenhand.core.stats.length import LengthControlled, LengthRows, arrange, length_controlled_over
from evenhand.core.stats.multiple import p_of
from evenhand.core.stats.trust import is_low
from evenhand.core.stats.winrate import Rate, mean_rate, mean_rates_over
from evenhand.io.spill_file import Part, PartFile, SpillFile
from evenhand.results.counting import (
    DEFAULT,
    WEIGHTINGS,
    Counting,
    repeats_text,
    weighs_text,
    which_count,
    without_repeats,
)
from evenhand.results.questions import caution, correct_dimensions
from evenhand.results.wording import anytime_text, attacked_field, attacked_text, count, percent

if TYPE_CHECKING:
    from evenhand.core.judge import Judgment

Span = tuple[float, float]
ROLES = {"1": ("candidate", "baseline"), "2": ("baseline", "candidate")}  # of the sides, by the candidate's
SignedValues = Callable[[Part], NDArray[np.float64]]
Rates = Callable[[float], Rate]  # by level
GroupParts = Callable[[], Iterator[Groups]]  # clusters in parts; each call reads them again
_SIGNED = np.array([1.0, -1.0, 0.0])  # what a side is worth to side 1: won, lost, tie
_TOGETHER = 4096  # judgments that wait to be counted
_IN_MEMORY = 131_072  # rows of one dimension that statistics may have in memory, at about 60 bytes each


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
class PairRate:
    """How often side 1 wins where each pair weighs the same."""

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
    weighting: Weighting  # what weighs the same in the rates above
    p: float | None  # of a win rate of one half
    by_instruction: InstructionRate
    by_pair: PairRate
    length_controlled: EqualLengthRate
    # Pairs with a verdict whose outputs differ in length, and so are not the same.
    unlike: int = field(default=0, metadata={"json": False})
    p_holm: float | None = None  # corrected for the other dimensions, or groups, that are shown with it
    agreement: KnownAnswers | None = field(default=None, metadata={"json": None})
    rows: DimensionRows | None = field(default=None, repr=False, compare=False, metadata={"json": False})

    @property
    def shares(self) -> Mapping[str, float] | None:
        """The verdicts as shares of 1, 2 and tie; None where there are none."""
        if not self.n:
            return None
        return {"1": self.wins_1 / self.n, "2": self.wins_2 / self.n, "tie": self.ties / self.n}

    @property
    def low_mass(self) -> bool:
        """Whether too little of the judge's probability falls on the labels."""
        return is_low(self.label_mass)

    @property
    def shared(self) -> bool:
        """Whether the two weightings come to different rates, or to different intervals."""
        each, pair = self.by_instruction, self.by_pair
        return (each.win_rate_1, each.ci) != (pair.win_rate_1, pair.ci)


@dataclass(frozen=True, slots=True)
class EarlyStop:
    """The last run stopped when its verdicts were enough: what may still be said of the win rate."""

    dimension: str
    win_rate_1: float | None
    interval: Span  # holds at whatever moment the run stopped
    level: float
    method: str
    pairs: int
    word: str  # what a reader must know of the rate

    def note(self, one: str) -> str:
        """The same in words; `one` is what to call side 1."""
        return (
            f"{self.dimension}: the win rate of {one} is {anytime_text(self.interval, self.level)}, by"
            f" {count(self.pairs, 'pair')}. {self.word} Other intervals assume a fixed number of pairs, and are too"
            " narrow after such a stop."
        )


@dataclass(frozen=True, slots=True)
class Summary:
    """Every dimension of a judge."""

    pairs: int
    sides: tuple[str, str]  # what to call them: the models' names, where every pair has the same two
    dimensions: Mapping[str, DimensionSummary]
    roles: tuple[str, str] | None = None  # candidate and baseline, where every pair has the same
    unfinished: int = 0  # pairs that were given to the judge and are not asked, or asked in part
    repeats: int = 0  # exact repeats of other pairs, which are in no number
    attacked: int = 0  # pairs that `evenhand attack` has made of others, which are in no number
    suspicious: int = 0  # pairs whose text seems to speak to the judge; they count like any other
    too_long: int = 0  # pairs with a response longer than any that the judge was measured on
    measured: int = 0  # that length, in characters; 0: not known
    several: bool = False  # a side is not the same model in all pairs
    stopped_early: EarlyStop | None = None

    def plain(self) -> dict[str, object]:
        """The summary as JSON has it."""
        roles = {} if self.roles is None else {"roles": dict(zip(("1", "2"), self.roles, strict=True))}
        sides = dict(zip(("1", "2"), self.sides, strict=True))
        return {
            "pairs": self.pairs,
            "sides": sides,
            **roles,
            "unfinished": self.unfinished,
            "repeats": self.repeats,
            **attacked_field(self.attacked),
            **({"suspicious": self.suspicious} if self.suspicious else {}),
            **({"too_long": self.too_long, "measured_characters": self.measured} if self.too_long else {}),
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

    def notes(self) -> Iterator[str]:
        """What a reader must know of how this was counted, a sentence each."""
        if self.stopped_early is not None:
            yield self.stopped_early.note(self.sides[0])
        if self.repeats:
            yield f"{repeats_text(self.repeats)}."
        if self.attacked:
            yield f"{attacked_text(self.attacked)}."
        if self.suspicious:
            pairs = "1 pair holds" if self.suspicious == 1 else f"{self.suspicious:,} pairs hold"
            yield f"Suspicious: {pairs} text that seems to speak to the judge. Nothing was changed or left out."
        if self.too_long:
            pairs = "1 pair has" if self.too_long == 1 else f"{self.too_long:,} pairs have"
            yield f"{pairs} a response longer than the {self.measured:,} characters this judge was measured on."
        shared = {name: found for name, found in self.dimensions.items() if found.shared}
        if shared and not self.several:  # else no rate is that of a model
            weighting = next(iter(shared.values())).weighting
            others = ", ".join(f"{name} {_other_rate(found)}" for name, found in shared.items())
            other: Weighting = "pairs" if weighting == "instructions" else "instructions"
            yield f"In the win rates {weighs_text(weighting)}. Where {weighs_text(other)}: {others}."
        said = caution((name, found.p_holm) for name, found in self.dimensions.items())
        if said:
            yield said


def _other_rate(found: DimensionSummary) -> str:
    """The rate by the other weighting, in words."""
    other = found.by_pair if found.weighting == "instructions" else found.by_instruction
    if other.win_rate_1 is None or other.ci is None:
        return "–"
    return f"{percent(other.win_rate_1)} ({100 * other.ci[0]:.0f} to {percent(other.ci[1], 0)})"


class DimensionRows:
    """What statistics need of the outcomes of one dimension, some bytes a pair; repeats are left out on the way."""

    def __init__(self, counting: Counting = DEFAULT) -> None:
        self._counting = counting
        self._repeats: int | None = 0 if counting.keep_repeats else None  # None: not looked for yet
        self._arranged: PartFile | None = None
        self._rows = SpillFile(
            cluster="Q", identity="Q", number="q", longer="i", side="b", forward="b", swapped="b", mass="d",
            masses="b", expected="d", lean="b", inconsistent="b", known="b", reason="h",
        )  # fmt: skip

    def extend(self, block: Block, found: Outcomes, known: Codes, reason: NDArray[Any]) -> None:
        """Take the rows of a block."""
        both = found.both_orders
        self._rows.extend(
            cluster=block.cluster,
            identity=block.identities,
            number=block.number,
            longer=block.longer,
            side=found.side,
            forward=np.where(both, found.forward, MISSING),
            swapped=np.where(both, found.swapped, MISSING),
            mass=found.mass,
            masses=found.masses,
            expected=found.expected,
            lean=found.lean,
            inconsistent=found.inconsistent,
            known=known,
            reason=reason,
        )
        self._repeats = 0 if self._counting.keep_repeats else None

    @property
    def repeats(self) -> int:
        """How many rows are left out, because they repeat another."""
        if self._repeats is None:
            self._repeats = len(self._rows) - sum(len(part["side"]) for part in self._counted())
        return self._repeats

    def repeated(self) -> list[int]:
        """The numbers of the pairs that are left out."""
        each = map(_as_arrays, self._rows.parts()) if self.repeats else ()
        return [number for part in each for number in part["number"][~which_count(part)].tolist()]

    def _counted(self) -> Iterator[Part]:
        """All rows that count, in parts that share no cluster."""
        each = map(_as_arrays, self._rows.parts())
        return each if self._repeats == 0 else map(without_repeats, each)

    @contextmanager
    def arranged(self, look: Callable[[Part], None]) -> Iterator[None]:
        """Have what rates need ready for a while, sorted by instruction; `look` is given all rows on the way."""
        arranged, rows = PartFile(_IN_MEMORY), 0
        for part in self._counted():
            look(part)
            rows += len(part["side"])
            arranged.add(_by_cluster(part))
        self._repeats, self._arranged = len(self._rows) - rows, arranged
        try:
            yield
        finally:
            self._arranged = None

    def every(self) -> Iterator[Part]:
        """All rows that count, in parts that share no cluster; where there is no verdict, the side is missing."""
        return self._counted() if self._arranged is None else self._arranged.parts()

    def parts(self) -> Iterator[Part]:
        """The same with a verdict each."""
        for part in self.every():
            valid = part["side"] != MISSING
            yield part if valid.all() else {name: column[valid] for name, column in part.items()}

    def all(self) -> Part:
        """All rows with a verdict at once, where there is memory for them."""
        parts = list(self.parts())
        return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}

    def rates(self) -> dict[Weighting, Rates]:
        """How often side 1 wins, a tie counting one half; at any level, by what weighs the same."""
        found = self._gathered(self.parts, lambda part: _SIGNED[part["side"]])
        if all((groups.sizes == 1).all() for groups in found()):  # then each instruction is one pair
            return dict.fromkeys(WEIGHTINGS, _means(found, "instructions"))
        return {weighting: _means(found, weighting) for weighting in WEIGHTINGS}

    def expected_rate(self) -> Rate:
        """How often side 1 can expect to win."""
        found = self._gathered(self.parts, lambda part: 2 * part["expected"] - 1)
        return _means(found, self._counting.weighting)(0.95)

    def invalid_bounds(self) -> Span | None:
        """The win rate if everything invalid went against side 1, and if it all went for it: Manski's bounds."""
        ends = [
            _means(self._gathered(self.every, partial(_with_missing_as, end)), self._counting.weighting)(0.95)
            for end in (TWO, ONE)
        ]
        return span(*(rate.value for rate in ends))

    def _gathered(self, parts: Callable[[], Iterator[Part]], signed: SignedValues) -> GroupParts:
        """The clusters of all parts, gathered once, each pair weighing the same."""
        kept = PartFile(_IN_MEMORY)
        for part in parts():
            if len(part["side"]):
                groups = gather(signed(part), part["cluster"])
                kept.add({"won": groups.won, "lost": groups.lost, "sizes": groups.sizes})
        return lambda: (Groups(**part) for part in kept.parts())

    def length_controlled(self) -> LengthControlled:
        """How often side 1 would win at equal length."""
        kept = PartFile(_IN_MEMORY)
        for part in self.parts():
            values = (_SIGNED[part["side"]] + 1) / 2
            rows = arrange(values, part["longer"], part["cluster"], self._counting.weighting)
            kept.add({"y": rows.y, "d": rows.d, "place": rows.place, "w": rows.w})
        return length_controlled_over(lambda: (LengthRows(**part) for part in kept.parts()))


def _means(found: GroupParts, weighting: Weighting) -> Rates:
    """The mean of what clusters have won and lost, at any level."""
    if next(found(), None) is None:
        return lambda level: mean_rate([], level=level, weighting=weighting)
    parts = found if weighting == "pairs" else lambda: map(evened, found())
    return mean_rates_over(parts, weighting=weighting)


class DimensionCounter:
    """One dimension: rows as blocks come, and at the end what they come to."""

    def __init__(self, counting: Counting = DEFAULT) -> None:
        self.counting = counting
        self._reasons: dict[str, int] = {}
        self.rows = DimensionRows(counting)

    def add(self, block: Block, found: Outcomes, known: Codes) -> None:
        """Take the pairs of a block."""
        words = [self._reasons.setdefault(word, len(self._reasons)) for word in (*found.reason.words, "unknown")]
        reason = np.where(found.valid, MISSING, np.array(words, dtype=np.int16)[found.reason.codes])
        self.rows.extend(block, found, known, reason)

    def summary(self) -> DimensionSummary:
        """What was counted."""
        count = _Tally(len(self._reasons))
        with self.rows.arranged(count.add):
            return self._summary(count)

    def _summary(self, count: _Tally) -> DimensionSummary:
        weighting = self.counting.weighting
        rates = self.rows.rates()
        rate, each, pair = (rates[which](0.95) for which in (weighting, "instructions", "pairs"))
        expected = self.rows.expected_rate()
        invalid = int(count.reasons.sum())
        one, two, tie = (int(number) for number in count.sides)
        return DimensionSummary(
            n=one + two + tie,
            wins_1=one,
            wins_2=two,
            ties=tie,
            inconsistent=count.inconsistent,
            invalid=invalid,
            invalid_reasons={
                name: n for name in sorted(self._reasons) if (n := int(count.reasons[self._reasons[name]]))
            },
            label_mass=count.mass / UNIT / count.masses if count.masses else None,
            position_bias=count.first / count.places if count.places else None,
            first_in_both=2 * count.first_in_both / count.places if count.places else None,
            second_in_both=2 * count.second_in_both / count.places if count.places else None,
            win_rate_1=rate.value,
            ci=span(rate.low, rate.high),
            ci_method=rate.method,
            ci_level=rate.level,
            clusters=rate.clusters,
            effective_n=rate.effective,
            small=rate.small,
            invalid_bounds=self.rows.invalid_bounds() if invalid else None,
            expected=ExpectedRate(expected.value, span(expected.low, expected.high)),
            weighting=weighting,
            p=p_of(lambda level: _ends(rates[weighting](level)), 0.5),
            by_instruction=InstructionRate(each.value, span(each.low, each.high)),
            by_pair=PairRate(pair.value, span(pair.low, pair.high)),
            length_controlled=_equal_length(self.rows.length_controlled()),
            unlike=count.unlike,
            agreement=count.agreement(),
            rows=self.rows,
        )


class _Tally:
    """Plain counts over the rows of one dimension."""

    def __init__(self, reasons: int) -> None:
        self.sides, self.reasons = np.zeros(3, dtype=np.int64), np.zeros(reasons, dtype=np.int64)
        self.inconsistent = self.mass = self.masses = self.first = self.places = 0
        self.first_in_both = self.second_in_both = self.unlike = 0
        self.labelled = self.agreed = self.decided = 0
        self.decided_right = 0.0

    def add(self, part: Part) -> None:
        """Count some rows."""
        valid = part["side"] != MISSING
        self.reasons += np.bincount(part["reason"][~valid], minlength=len(self.reasons))
        self.inconsistent += int(part["inconsistent"].sum())
        rows = part if valid.all() else {name: column[valid] for name, column in part.items()}
        self.sides += np.bincount(rows["side"], minlength=3)
        self.unlike += int(np.count_nonzero(rows["longer"]))
        # In whole numbers, so that the order in which pairs come cannot change a digit.
        self.mass += int(fixed_point(rows["mass"]).sum())
        self.masses += int(rows["masses"].sum())
        self._look_at_places(rows["forward"], rows["swapped"])
        self._compare(rows)

    def _look_at_places(self, forward: Codes, swapped: Codes) -> None:
        both = (forward != MISSING) & (swapped != MISSING)
        first = first_chosen(forward[both], swapped[both])
        self.first += int(first.sum())
        self.places += 2 * len(first)
        self.first_in_both += int((first == 2).sum())
        self.second_in_both += int((first == -2).sum())

    def _compare(self, rows: Part) -> None:
        known, side = rows["known"], rows["side"]
        given, decided = known != MISSING, (known != MISSING) & (known != TIE)
        self.labelled += int(given.sum())
        self.agreed += int((side == known)[given].sum())
        self.decided += int(decided.sum())
        lean = rows["lean"][decided]
        self.decided_right += float(np.where(lean == TIE, 0.5, lean == known[decided]).sum())

    def agreement(self) -> KnownAnswers | None:
        """How often the judge said the same as the labels; None where there are none."""
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

    def __init__(self, dimensions: Iterable[str] = (), counting: Counting = DEFAULT, *, measured: int = 0) -> None:
        self._counting, self._measured = counting, measured
        self._too_long: list[NDArray[Any]] = []  # the identities of those pairs
        self._dimensions = {name: DimensionCounter(counting) for name in dimensions}
        self._models: set[tuple[str, str]] = set()
        self._candidates: set[str] = set()
        self._on_trial: set[str] = set()  # the models of the candidate's side
        self._suspicious: list[int] = []  # the identities of those pairs
        self._waiting: list[Judgment] = []
        self._counted = 0
        self.invalid = 0  # verdicts that are missing among the judgments that were added

    @property
    def _several(self) -> bool:
        named = {(one, two) for one, two in self._models if one and two and one != two}
        return any((two, one) in named for one, two in named) or len({m for p in self._models for m in p if m}) > 2

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
        if not self._several:  # beyond that no name of a model matters
            self._models |= models_of(block)
        self._candidates |= {block.candidate.words[code] for code in np.unique(block.candidate.codes)}
        if len(self._on_trial) < 2:
            self._on_trial |= on_trial_in(block)
        if block.suspicious is not None and block.suspicious.any():
            self._suspicious += block.identities[block.suspicious].tolist()
        if self._measured:
            self._too_long.append(block.identities[np.maximum(block.length_1, block.length_2) > self._measured])
        block = replace(block, identity=block.identities)  # made once, for all dimensions
        for name, found in block.outcomes.items():
            if name not in self._dimensions:
                self._dimensions[name] = DimensionCounter(self._counting)
            self._dimensions[name].add(block, found, block.known(name))

    def summary(self) -> Summary:
        """What was counted."""
        self._flush()
        [found] = correct_dimensions([{name: counter.summary() for name, counter in self._dimensions.items()}])
        candidate = next(iter(self._candidates)) if len(self._candidates) == 1 else ""
        repeats = max((counter.rows.repeats for counter in self._dimensions.values()), default=0)
        suspicious = len(self._suspicious if self._counting.keep_repeats else set(self._suspicious))
        long = np.concatenate(self._too_long) if self._too_long else np.array([])
        one = next(iter(self._on_trial)) if candidate and len(self._on_trial) == 1 else ""
        sides = side_names(self._models)
        if one and len(self._models) > 1:  # against several others
            sides = (one, "2") if candidate == "1" else ("1", one)
        return Summary(
            *(self.pairs - repeats, sides, found, ROLES.get(candidate)),
            repeats=repeats,
            suspicious=suspicious,
            too_long=len(long if self._counting.keep_repeats else np.unique(long)),
            measured=self._measured,
            several=self._several and not one,
        )


def summarise(
    blocks: Iterable[Block], dimensions: Iterable[str] = (), counting: Counting = DEFAULT, *, measured: int = 0
) -> Summary:
    """Every dimension of a judge, counted over blocks; `measured` as for `Summary`."""
    counter = Counter(dimensions, counting, measured=measured)
    for block in blocks:
        counter.add_block(block)
    return counter.summary()


def _as_arrays(part: Part) -> Part:
    """A part with numpy's arrays; Python's own are copied, as they could not grow while they are looked at."""
    return {name: c if isinstance(c, np.ndarray) else np.array(c) for name, c in part.items()}


def _by_cluster(part: Part) -> Part:
    """What rates need of a part, by instruction: where rows are sorted, statistics find clusters quickly."""
    order = np.argsort(part["cluster"])
    return {name: part[name][order] for name in ("cluster", "side", "expected", "longer")}


def side_names(models: Collection[tuple[str, str]]) -> tuple[str, str]:
    """What to call the two sides: the models' names, where every pair has the same two.

    >>> side_names({("old", "new")}), side_names({("old", "new"), ("new", "old")}), side_names({("", "new")})
    (('old', 'new'), ('1', '2'), ('1', 'new'))
    """
    one, two = next(iter(models)) if len(models) == 1 else ("", "")
    return one or "1", two or "2"


def models_of(block: Block) -> set[tuple[str, str]]:
    """The pairs of models that are compared in a block."""
    one, two = (*block.model_1.words, ""), (*block.model_2.words, "")  # -1 finds the last
    first, second = block.model_1.codes.astype(np.int64), block.model_2.codes
    _, some = np.unique(first * len(two) + second, return_index=True)
    return {(one[a], two[b]) for a, b in zip(first[some], second[some], strict=True)}


def on_trial_in(block: Block) -> set[str]:
    """The models that are the candidate in some pair of a block."""
    found = set[str]()
    for side, models in (("1", block.model_1), ("2", block.model_2)):
        if side in block.candidate.words:
            rows = block.candidate.codes == block.candidate.words.index(side)
            found |= {(*models.words, "")[code] for code in np.unique(models.codes[rows])}
    return found


def span(low: float | None, high: float | None) -> Span | None:
    """Two ends; None where there are none."""
    return None if low is None or high is None else (low, high)


def _with_missing_as(side: int, part: Part) -> NDArray[np.float64]:
    """What each pair is worth to side 1 if all without a verdict had gone to one side."""
    return np.asarray(_SIGNED[np.where(part["side"] == MISSING, side, part["side"])])


def _ends(rate: Rate) -> tuple[float | None, float | None]:
    return rate.low, rate.high


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
