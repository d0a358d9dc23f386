"""Several judges on one pair: their outcomes pooled into one, and who spoke.

    mean        the weighted mean of the jurors' log-probabilities, brought to one again: the logarithmic pool of
                Genest & Zidek (1986), "Combining probability distributions: a critique and an annotated
                bibliography", Statistical Science 1, 114-135. Its log-odds are the mean of the jurors' log-odds.
                A juror with a calibration speaks with its calibrated probabilities. Where a juror gives a label
                without probabilities, the plain mean of shares is taken instead, as `verdict.pool` does.
    majority    each juror has one vote, or its weight; the shares of the votes stand for probabilities.

A juror without a verdict on a pair is never left out silently: if fewer than the quorum have one, there is no
pooled verdict, and the reason is `incomplete`.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

from evenhand.core.errors import InputError
from evenhand.core.pair import Pair, Side
from evenhand.core.protocol import ORDERS, Order
from evenhand.core.verdict import SIDE_OF, SIDES, Label, Outcome, Verdict, choose, log_odds

Pool = Literal["mean", "majority"]
POOLS: tuple[Pool, ...] = ("mean", "majority")
INCOMPLETE = "incomplete"  # the reason of a pair on which too few jurors spoke
ABSENT = "not_asked"  # of a juror that was not asked about a pair
_TINY = 1e-9
JurorOutcomes = Sequence[Mapping[str, Outcome] | None]  # what each juror said of one pair, by dimension
_Shares = tuple[float, float, float]  # of SIDES


class Scale(NamedTuple):
    """The numbers of a calibration: p(1) : p(2) : p(tie) = exp(s / 2) : exp(-s / 2) : exp(tie).

    There s = slope x + length l, with x the log-odds and l the log of the lengths' ratio.

    >>> [round(share, 3) for share in Scale(2.0, -1.0, 0.0).shares(0.0, 0.0)]
    [0.422, 0.422, 0.155]
    """

    slope: float
    tie: float
    length: float = 0.0

    def shares(self, log_odds: float, log_length: float) -> _Shares:
        """Calibrated probabilities."""
        half = (self.slope * log_odds + self.length * log_length) / 2
        return _normal([math.exp(score - abs(half)) for score in (half, -half, self.tie)])


@dataclass(frozen=True)
class PoolRule:
    """How a jury pools: `weights` are those of the jurors, none for equal ones; `quorum` is how many must speak.

    `scales` are calibrations by dimension, one for each juror or None; a quorum of 0 stands for all jurors.

    >>> PoolRule(3).least, PoolRule(3, quorum=2).least
    (3, 2)
    """

    jurors: int
    pool: Pool = "mean"
    weights: tuple[float, ...] = ()
    quorum: int = 0
    scales: Mapping[str, tuple[Scale | None, ...]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.jurors < 2:
            raise InputError("a jury takes two judges or more", hint="name them with commas between: a,b,c")
        if self.weights and len(self.weights) != self.jurors:
            raise InputError(
                f"{len(self.weights)} weights for {self.jurors} judges", hint="give one for each judge"
            )
        if any(not (math.isfinite(weight) and weight > 0) for weight in self.weights):
            raise InputError(
                "every weight must be a number above 0", hint="leave a judge out instead of weighing it 0"
            )
        if not 0 <= self.quorum <= self.jurors:
            raise InputError(f"a quorum of {self.quorum} of {self.jurors} judges", hint=f"1 to {self.jurors}")

    @property
    def least(self) -> int:
        """How many jurors must speak."""
        return self.quorum or self.jurors

    def weight(self, juror: int) -> float:
        """What a juror weighs."""
        return self.weights[juror] if self.weights else 1.0

    def scale(self, dimension: str, juror: int) -> Scale | None:
        """A juror's calibration."""
        return self.scales.get(dimension, (None,) * self.jurors)[juror]

    def without(self, juror: int) -> PoolRule:
        """The same rule for the jury without one of them; a quorum stays what it is, as far as it can."""
        keep = [number for number in range(self.jurors) if number != juror]
        rule = object.__new__(PoolRule)  # one juror may be all that is left
        for name, value in (
            ("jurors", len(keep)),
            ("pool", self.pool),
            ("weights", tuple(self.weights[k] for k in keep) if self.weights else ()),
            ("quorum", min(self.quorum, len(keep))),
            ("scales", {name: tuple(each[k] for k in keep) for name, each in self.scales.items()}),
        ):
            object.__setattr__(rule, name, value)
        return rule


def confidence_of(outcome: Outcome | None, scale: Scale | None = None, log_length: float = 0.0) -> float | None:
    """How sure a judge is of its verdict: the probability of the side that it chose; None without a verdict.

    With a calibration it is the calibrated probability of that side; the verdict itself stays what it is.

    >>> from evenhand.core.verdict import pool
    >>> said = pool("overall", {"forward": Verdict("overall", "A", {"A": 0.6, "B": 0.3, "tie": 0.1})})
    >>> round(confidence_of(said), 3), round(confidence_of(said, Scale(4.0, -1.0)), 3), confidence_of(None)
    (0.6, 0.866, None)
    """
    if outcome is None or outcome.side is None or outcome.p is None:
        return None
    if scale is None:
        return outcome.p[outcome.side]
    return scale.shares(log_odds(outcome.p), log_length)[SIDES.index(outcome.side)]


def on_dimension(every: JurorOutcomes, dimension: str) -> list[Outcome | None]:
    """What each juror said of one dimension.

    >>> on_dimension([None, {}], "overall")
    [None, None]
    """
    return [None if outcomes is None else outcomes.get(dimension) for outcomes in every]


class _Voice(NamedTuple):
    """What one juror says, and whether its shares are probabilities, which have a geometric mean."""

    p: _Shares
    weight: float
    soft: bool


def pool_jury(
    dimension: str, outcomes: Sequence[Outcome | None], rule: PoolRule, log_length: float = 0.0
) -> dict[Order, Verdict]:
    """What a jury says of a pair on one dimension, in each order in which any juror was asked.

    The probabilities are those of the pair: the jurors' outcomes pooled, the same in each order, so that the orders
    together give them back. The label is what the jurors said in that very order, pooled by the same rule: so it is
    known how far the jury leans to a place. A juror that was asked in one order speaks for the other with its
    outcome. None stands for a juror that has nothing to say of the pair.

    >>> from evenhand.core.verdict import pool
    >>> said = [pool("overall", {"forward": Verdict("overall", label)}) for label in ("A", "A", "B")]
    >>> pool_jury("overall", said, PoolRule(3, "majority"))["forward"].label
    'A'
    >>> pool_jury("overall", [*said[:2], None], PoolRule(3))["forward"].invalid
    'incomplete'
    """
    orders = [order for order in ORDERS if any(o is not None and order in o.orders for o in outcomes)]
    speaking = [(juror, o) for juror, o in enumerate(outcomes) if o is not None and o.side is not None]
    if len(speaking) < max(rule.least, 1):
        return {order: Verdict(dimension, None, invalid=INCOMPLETE) for order in orders}
    whole = [_voice(dimension, outcome, None, rule, juror, log_length) for juror, outcome in speaking]
    shares, soft = _pooled(whole)
    found: dict[Order, Verdict] = {}
    for order in orders:
        here = [_voice(dimension, outcome, order, rule, juror, log_length) for juror, outcome in speaking]
        said = _likeliest(_pooled(here)[0]) if len(orders) > 1 else _likeliest(shares)
        labels = {side: label for label, side in SIDE_OF[order].items()}
        p: dict[Label, float] = {labels[side]: share for side, share in zip(SIDES, shares, strict=True)}
        found[order] = Verdict(dimension, labels[said], p, counted=not soft)
    return found


def pooled_side(
    dimension: str, outcomes: Sequence[Outcome | None], rule: PoolRule, log_length: float = 0.0
) -> Side | None:
    """The side of a pair that a jury chooses, without what it says in each order; None where too few spoke.

    >>> pooled_side("overall", [None, None], PoolRule(2)) is None
    True
    """
    speaking = [(juror, o) for juror, o in enumerate(outcomes) if o is not None and o.side is not None]
    if len(speaking) < max(rule.least, 1):
        return None
    return _likeliest(_pooled([_voice(dimension, o, None, rule, juror, log_length) for juror, o in speaking])[0])


def log_length(pair: Pair) -> float:
    """The log of the lengths' ratio; an empty text counts as one character.

    >>> log_length(Pair("Hi", "x", ""))
    0.0
    """
    return math.log(max(len(pair.output_1), 1)) - math.log(max(len(pair.output_2), 1))


def spoke(outcomes: Sequence[Outcome | None]) -> int:
    """How many jurors have a verdict."""
    return sum(outcome is not None and outcome.side is not None for outcome in outcomes)


def word_of(names: Sequence[str], outcomes: Sequence[Outcome | None]) -> str:
    """What is stored with a pooled verdict: how many jurors have a verdict, and why the others have none.

    >>> word_of(["a", "b"], [None, None])
    '{"spoke": 0, "of": 2, "silent": {"a": "not_asked", "b": "not_asked"}}'
    """
    silent = {
        name: ABSENT if outcome is None else outcome.invalid or "invalid"
        for name, outcome in zip(names, outcomes, strict=True)
        if outcome is None or outcome.side is None
    }
    word: dict[str, object] = {"spoke": spoke(outcomes), "of": len(names)}
    return json.dumps({**word, "silent": silent} if silent else word)


def _voice(
    dimension: str, outcome: Outcome, order: Order | None, rule: PoolRule, juror: int, log_length: float
) -> _Voice:
    """What a juror says in one order, or of the pair where no order is given or it was not asked in this one."""
    here = outcome.orders.get(order) if order is not None else None
    side = outcome.side if here is None or order is None else outcome.side_in(order)
    sure = _certain(side)
    if rule.pool == "majority":
        return _Voice(sure, rule.weight(juror), False)
    p = outcome.p if here is None or order is None else outcome.p_in(order)
    shares = sure if p is None else (p["1"], p["2"], p["tie"])
    scale = rule.scale(dimension, juror)
    if scale is not None:
        odds = log_odds(dict(zip(SIDES, shares, strict=True)))
        return _Voice(scale.shares(odds, log_length), rule.weight(juror), True)
    soft = all(verdict.p is not None and not verdict.counted for verdict in outcome.orders.values())
    return _Voice(shares, rule.weight(juror), soft)


def _pooled(voices: Sequence[_Voice]) -> tuple[_Shares, bool]:
    """The pooled shares, and whether they are probabilities."""
    total = math.fsum(voice.weight for voice in voices)
    soft = all(voice.soft for voice in voices)
    each = [
        [voice.weight * (math.log(max(voice.p[side], _TINY)) if soft else voice.p[side]) for voice in voices]
        for side in range(len(SIDES))
    ]
    means = [math.fsum(terms) / total for terms in each]
    return _normal([math.exp(mean) for mean in means] if soft else means), soft


def _normal(weights: Sequence[float]) -> _Shares:
    total = math.fsum(weights)
    one, two, tie = (weight / total for weight in weights)
    return one, two, tie


def _certain(side: Side | None) -> _Shares:
    return float(side == "1"), float(side == "2"), float(side == "tie")


def _likeliest(shares: _Shares) -> Side:
    return choose(dict(zip(SIDES, shares, strict=True)))
