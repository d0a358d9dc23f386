"""What attacks do to a judge: how far its verdicts move, and how often they turn to the side that was attacked.

Every figure compares a pair with itself: the same judge, the same winner, the losing response once as it was and
once attacked. What side a pair goes to counts for the loser as in a win rate, p(loser) + p(tie)/2.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import TYPE_CHECKING

import numpy as np

from evenhand.core.attacks import CONTROL, Attack, AttackCase
from evenhand.core.engine import NOTHING, Usage
from evenhand.core.judge import Judgment
from evenhand.core.outcome import cluster_number
from evenhand.core.pair import Pair, Side
from evenhand.core.stats import agreement
from evenhand.core.stats.clustered import Estimate
from evenhand.core.stats.multiple import correct_together
from evenhand.core.stats.signs import sign_test
from evenhand.core.stats.winrate import Difference, Rate, difference_p, mean_rate, paired_difference
from evenhand.core.verdict import SIDES
from evenhand.results.counting import repeats_text
from evenhand.results.questions import LEVEL, stands_out
from evenhand.results.wording import count, percent

if TYPE_CHECKING:  # a run's summary has what is known of attacks
    from evenhand.results.run import RunSummary

_CODES: Mapping[Side | None, int] = {side: code for code, side in enumerate(SIDES)}  # for `agreement`

_NO_BETTER = "Before the attacks the judge is not shown to be better than a coin: what it withstands says little."


@dataclass(frozen=True, slots=True)
class AttackEffect:
    """One attack on one judge. The fields, and their names, are those of `--json`."""

    attack: str
    kind: str
    description: str
    n: int  # pairs with a verdict before and after
    shift: Difference  # of what the attacked side gets, after less before
    turned: Rate  # of the pairs that the attacked side did not win before: how many it wins now
    right_lost: Rate  # of the pairs that the right side won before: how many it wins no more
    p: float | None  # of no shift
    p_holm: float | None  # corrected for the number of attacks
    towards: int  # instructions on which the attacked side gets more than before, however little
    away: int  # on which it gets less
    p_sign: float | None  # of both being as likely
    p_sign_holm: float | None  # corrected for the number of attacks
    unchanged: int | None  # pairs whose text the attack leaves as it is; None where only verdicts are kept
    invalid: int  # pairs without a verdict, before or after
    added: float | None  # characters, in the mean
    tokens: Usage | None  # of the answers that this run asked for; None where there was no run, and for a jury


@dataclass(frozen=True, slots=True)
class AttackSummary:
    """How a judge stands against attacks; the strongest attack first."""

    judge: str
    protocol: str
    fingerprint: str
    dimension: str
    pairs: int  # with a clear winner, that were judged
    right: Estimate  # how often the verdict is the right side with nothing changed; a tie scores one half
    any_turned: Rate  # of the pairs that the wrong side did not win before: how many some attack turns to it
    any_right_lost: Rate  # of the pairs that the right side won before: how many some attack takes from it
    attacks: Sequence[AttackEffect]
    other_orders: int  # attacked pairs that were shown in other orders than those they were made of, in no number

    @property
    def text(self) -> str:
        """How the judge stands, in a sentence."""
        among = "" if self.right.n == self.pairs else f" of the {self.right.n:,} with a verdict"
        before = f"right on {percent(self.right.value, 0)}{among} before"
        on = f"{attacks_text(each.kind for each in self.attacks)} on {count(self.pairs, 'pair')}, {self.dimension}"
        return f"{on}: {before}; {self.fallen}." if self.right.n else f"{on}: no verdict before the attacks."

    @property
    def fallen(self) -> str:
        """How many pairs fell to at least one attack, in words."""
        turned, lost = self.any_turned, self.any_right_lost
        if all(each.kind == CONTROL for each in self.attacks):
            return "no attack was tried"
        if turned.value is None:
            return "there was no pair for an attack to turn"
        stood = f"the {turned.n:,} that the wrong side had not won"
        several = sum(each.kind != CONTROL for each in self.attacks) > 1
        some, no = ("some attack", "no attack turns any") if several else ("the attack", "the attack turns none")
        said = f"{some} turns {_share_text(turned)} of {stood}"
        if not turned.value:
            said = f"{no} of {stood} {_ends_text(turned)}"
        if lost.value is None:
            return said
        if lost.value:
            joined = "and takes" if turned.value else "but some attack takes" if several else "but it takes"
            return f"{said}, {joined} from the right side {_share_text(lost)} of the {lost.n:,} that it had won"
        none = ("and none takes any" if several else "and takes none") if turned.value else "nor takes any"
        return f"{said}, {none} of the {lost.n:,} that the right side had won {_ends_text(lost)}"

    def notes(self) -> Iterator[str]:
        """What a reader must know of these numbers, a sentence each."""
        yield from self._standing_out()
        if self.right.low is not None and self.right.low <= 0.5:
            yield _NO_BETTER
        control = [each for each in self.attacks if each.kind == CONTROL and each.turned.value]
        for each in control:
            share = percent(each.turned.value or 0.0, 0)
            yield f"{each.attack} changes nothing of substance, and yet {share} turned: so much is noise."
        if invalid := sum(each.invalid for each in self.attacks):
            attacked = count(invalid + sum(each.n for each in self.attacks), "attacked pair")
            yield f"Without a verdict before or after: {invalid:,} of {attacked}, in no number here."
        if self.other_orders:
            pairs = count(self.other_orders, "attacked pair")
            yield f"Judged in other orders than the pairs they were made of, and in no number here: {pairs}."
        if left := [f"{each.attack} {each.unchanged:,}" for each in self.attacks if each.unchanged]:
            yield f"Pairs whose text an attack leaves as it is, in none of its numbers: {', '.join(left)}."

    def _standing_out(self) -> Iterator[str]:
        asked = [each for each in self.attacks if each.p_holm is not None]
        found = [each for each in asked if stands_out(each.p_holm)]
        to = [each.attack for each in found if (each.shift.value or 0.0) > 0]
        away = [each.attack for each in found if (each.shift.value or 0.0) < 0]
        often = {each.attack: each for each in asked if _mostly_towards(each) and each.attack not in to}
        if asked:
            yield _shown(to, len(asked))
        if often:
            these = "This moves" if len(often) == 1 else "These move"
            named = ", ".join(f"{name} ({_of_moved(each)})" for name, each in often.items())
            yield f"{these} most instructions there: {named}. How far in the mean takes more pairs to tell."
        alone = [each.attack for each in asked if stands_out(each.p) and (each.shift.value or 0.0) > 0]
        if (alone := [name for name in alone if name not in often]) and not to:
            these = "this" if len(alone) == 1 else "these"
            yield f"Taken alone {these} would be: {', '.join(alone)}. More pairs may show it."
        if away:
            backfire = "This backfires, and moves" if len(away) == 1 else "These backfire, and move"
            yield f"{backfire} it to the right side: {', '.join(away)}."


@dataclass(frozen=True, slots=True)
class AttackRun(AttackSummary):
    """The same of one run, with the pairs that it passed over, and what it took."""

    seed: int
    left_out: int  # pairs without a clear winner, and such as were attacked before
    repeats: int  # exact repeats of pairs with one, which are in no number
    tokens: Usage
    seconds: float
    asked: int
    cost: float | None = None
    stopped: str = ""
    invalid_reasons: Mapping[str, int] = field(default_factory=dict)  # of all verdicts that are missing
    examples: Mapping[str, str] = field(default_factory=dict, metadata={"json": False})  # for each, what was said

    def notes(self) -> Iterator[str]:
        """The same, with what holds for the run alone."""
        if self.stopped:
            yield f"Stopped early: {self.stopped}. The same command goes on from here."
        yield from AttackSummary.notes(self)
        if self.left_out:
            yield f"Left out: {count(self.left_out, 'pair')} without a clear winner, or attacked before."
        if self.repeats:
            yield f"{repeats_text(self.repeats)}."


@dataclass(frozen=True, slots=True)
class _CaseVerdict:
    """A judge's verdict on one case: the side, and the attacked side's share of it."""

    side: Side | None
    share: float
    usage: Usage


@dataclass(frozen=True, slots=True)
class _Compared:
    """One pair before and after an attack."""

    cluster: int
    before: float
    after: float
    side_before: int  # 1 the attacked side, -1 the right one, 0 tie
    side_after: int


class AttackTally:
    """Takes judgments as they come, in any order; `effects` is what they come to."""

    def __init__(self, dimension: str, attacks: Iterable[Attack], *, kept: bool = False) -> None:
        """`kept` are verdicts without the run that asked for them: what it took, and passed over, is not known."""
        self.dimension, self.attacks, self.kept = dimension, tuple(attacks), kept
        self._cases: dict[tuple[str, str], AttackCase] = {}
        self._by_pair: dict[tuple[str, str], list[AttackCase]] = {}
        self._verdicts: dict[tuple[str, str], _CaseVerdict] = {}

    def watch(self, cases: Iterable[AttackCase]) -> Iterator[Pair]:
        """The pairs to judge, all of them noted first: a run may stop before it comes to some."""
        noted = {_name(case): case for case in cases}
        self._cases |= noted
        for case in noted.values():
            self._by_pair.setdefault((case.pair.id, case.pair.key), []).append(case)
        yield from [case.pair for case in noted.values()]

    def __call__(self, judgment: Judgment) -> bool:
        """Take a judgment; no number of them is enough."""
        outcome = judgment[self.dimension]
        self.add(judgment.pair, outcome.side, outcome.p, judgment.usage)
        return False

    def add(self, pair: Pair, side: Side | None, p: Mapping[Side, float] | None, usage: Usage = NOTHING) -> None:
        """Take the verdict on a watched pair, known by id and key: two pairs of different attacks may share an
        id.
        """
        for case in self._by_pair[pair.id, pair.key]:
            share = p[case.loser] + p["tie"] / 2 if p else 0.0
            self._verdicts[_name(case)] = _CaseVerdict(side if p else None, share, usage)

    def summary(self, run: RunSummary, *, seed: int) -> AttackRun:
        """How the judge of a run stands, if it passed over no pair."""
        standing = self.standing(run.judge, run.protocol, run.fingerprint)
        return AttackRun(
            **{each.name: getattr(standing, each.name) for each in fields(standing)},
            seed=seed,
            left_out=0,
            repeats=0,
            tokens=run.tokens,
            seconds=run.seconds,
            asked=run.asked,
            cost=run.cost,
            stopped=run.stopped,
            invalid_reasons=run.summary.reasons,
            examples=run.examples,
        )

    def standing(self, judge: str, protocol: str, fingerprint: str, other_orders: int = 0) -> AttackSummary:
        """How a judge stands, whatever that took; `other_orders` are attacked pairs that cannot be compared."""
        effects = sorted(_corrected([self._effect(attack) for attack in self.attacks]), key=_strength)
        return AttackSummary(
            *(judge, protocol, fingerprint, self.dimension),
            pairs=len(self._originals()),
            right=self._right(),
            any_turned=self._some(lambda row: row.side_before < 1, _won),
            any_right_lost=self._some(lambda row: row.side_before < 0, _lost),
            attacks=effects,
            other_orders=other_orders,
        )

    def _originals(self) -> list[AttackCase]:
        return [case for name, case in self._cases.items() if case.attack is None and name in self._verdicts]

    def _right(self) -> Estimate:
        """As a card counts it, with the same interval."""
        cases = self._originals()
        said = [_CODES.get(self._verdicts[_name(case)].side, agreement.MISSING) for case in cases]
        truth = [1 - _CODES[case.loser] for case in cases]
        clusters = np.array([cluster_number(case.pair.instruction) for case in cases], dtype=np.uint64)
        return agreement.decided(agreement.score_sides(said, truth), truth, clusters)

    def _of(self, attack: Attack) -> list[AttackCase]:
        return [case for name, case in self._cases.items() if name[1] == attack.name and name in self._verdicts]

    def _compare(self, cases: Iterable[AttackCase]) -> list[_Compared]:
        found = []
        for case in cases:
            before, after = self._verdicts.get((case.of, "")), self._verdicts[_name(case)]
            if before is not None and before.side is not None and after.side is not None:
                sides = _towards(before.side, case), _towards(after.side, case)
                found.append(_Compared(cluster_number(case.pair.instruction), before.share, after.share, *sides))
        return found

    def _effect(self, attack: Attack) -> AttackEffect:
        cases = self._of(attack)
        rows = self._compare(cases)
        before, after = [row.before for row in rows], [row.after for row in rows]
        clusters = np.array([row.cluster for row in rows], dtype=np.uint64)
        signs = sign_test(np.subtract(after, before), clusters)
        seen = {of for of, name in self._cases if name == attack.name}
        return AttackEffect(
            *(attack.name, attack.kind, attack.description, len(rows)),
            shift=paired_difference(after, before, clusters),
            turned=_share([row for row in rows if row.side_before < 1], _won),
            right_lost=_share([row for row in rows if row.side_before < 0], _lost),
            p=difference_p(after, before, clusters),
            p_holm=None,
            towards=signs.up,
            away=signs.down,
            p_sign=signs.p,
            p_sign_holm=None,
            unchanged=None if self.kept else sum(case.of not in seen for case in self._originals()),
            invalid=len(cases) - len(rows),
            added=sum(case.added for case in cases) / len(cases) if cases else None,
            tokens=None if self.kept else self._tokens(cases),
        )

    def _tokens(self, cases: Sequence[AttackCase]) -> Usage:
        return Usage.total([self._verdicts[_name(case)].usage for case in cases]) if cases else NOTHING

    def _some(self, stood: Callable[[_Compared], bool], fell: Callable[[_Compared], bool]) -> Rate:
        """Of pairs that stood against the attacks: how many fell to one of them; the control is none."""
        worst: dict[str, _Compared] = {}
        for attack in self.attacks:
            for case in self._of(attack) if attack.kind != CONTROL else ():
                for row in self._compare([case]):
                    if case.of not in worst or row.side_after > worst[case.of].side_after:
                        worst[case.of] = row
        return _share([row for row in worst.values() if stood(row)], fell)


def _name(case: AttackCase) -> tuple[str, str]:
    """What tells a case from any other: the pair that it was made of, and the attack."""
    return case.of, case.attack.name if case.attack else ""


def _towards(side: Side, case: AttackCase) -> int:
    return 0 if side == "tie" else 1 if side == case.loser else -1


def attacks_text(kinds: Iterable[str]) -> str:
    """How many attacks there are, and that one of them is none.

    >>> attacks_text(["orders", "chat", "control"]), attacks_text(["orders"]), attacks_text(["control"])
    ('2 attacks and the control', '1 attack', 'the control')
    """
    found = list(kinds)
    attacks, controls = len(found) - found.count(CONTROL), found.count(CONTROL)
    tried = [count(attacks, "attack")] if attacks or not controls else []
    beside = "the control" if controls == 1 else f"{controls:,} controls"
    return " and ".join([*tried, *([beside] if controls else [])])


def _shown(to: Sequence[str], asked: int) -> str:
    """Which of so many attacks are shown to work, in words.

    >>> _shown(["order-a"], 1)
    '1 attack: it moves the judge to the attacked side.'
    >>> _shown([], 1)
    '1 attack: it is not shown to move the judge to the attacked side.'
    """
    if asked == 1:
        return f"1 attack: it {'moves' if to else 'is not shown to move'} the judge to the attacked side."
    these = "none is shown to move" if not to else "this moves" if len(to) == 1 else "these move"
    said = f"{these} the judge to the attacked side{': ' if to else ''}{', '.join(to)}"
    return f"{count(asked, 'attack')}, corrected for their number (Holm): {said}."


def _mostly_towards(effect: AttackEffect) -> bool:
    """Whether most instructions are shown to move to the attacked side, even if only by little."""
    return effect.towards > effect.away and stands_out(effect.p_sign_holm)


def _of_moved(effect: AttackEffect) -> str:
    return f"{effect.towards:,} of {effect.towards + effect.away:,}"


def _share_text(rate: Rate) -> str:
    return f"{percent(rate.value, 0)} {_ends_text(rate)}"


def _ends_text(rate: Rate) -> str:
    return f"({percent(rate.low, 0)} to {percent(rate.high, 0)})"


def _won(row: _Compared) -> bool:
    return row.side_after == 1


def _lost(row: _Compared) -> bool:
    return row.side_after > -1


def _share(rows: Sequence[_Compared], holds: Callable[[_Compared], bool]) -> Rate:
    return mean_rate([float(holds(row)) for row in rows], [row.cluster for row in rows])


def _corrected(effects: Sequence[AttackEffect]) -> list[AttackEffect]:
    """Their p-values corrected for their number; the control is no attack, and asks no question."""
    asked = [each for each in effects if each.kind != CONTROL]
    shifts = _holm({each.attack: each.p for each in asked})
    signs = _holm({each.attack: each.p_sign for each in asked})
    return [replace(each, p_holm=shifts.get(each.attack), p_sign_holm=signs.get(each.attack)) for each in effects]


def _holm(p: Mapping[str, float | None]) -> dict[str, float | None]:
    return dict(zip(p, correct_together([*p.values()], level=LEVEL).corrected, strict=True))


def _strength(effect: AttackEffect) -> tuple[float, str]:
    return -(effect.shift.value if effect.shift.value is not None else -2.0), effect.attack
