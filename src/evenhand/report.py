"""Facts for the views, as plain data: what the tables show and what --json prints."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from evenhand.engines.base import Usage
from evenhand.judge import Judgment
from evenhand.pairs import BY_ITSELF, COMBINED, Pair, Side, short_hash
from evenhand.spool import Part, Spool
from evenhand.verdict import SIDES, Finding, known_label, log_odds

if TYPE_CHECKING:  # numpy takes a third of a second, which commands without statistics should not pay
    from evenhand.stats.length import LengthControlled
    from evenhand.stats.winrate import Rate

VALUE_OF: dict[Side, float] = {"1": 1.0, "2": 0.0, "tie": 0.5}
_DOUBLED: dict[Side, int] = {side: round(2 * value) for side, value in VALUE_OF.items()}


def new_rows() -> Spool:
    """Room for what statistics need of a pair: twenty-one bytes, whatever the length of its texts.

    `longer` is by how many characters output 1 is longer; `hard` is twice the value, 2 won, 1 tie, 0 lost.
    """
    return Spool(cluster="Q", longer="i", hard="b", expected="d")


def cluster_of(pair: Pair) -> int:
    """A number that pairs with the same instruction share.

    >>> cluster_of(Pair("Hi", "x", "y")) == cluster_of(Pair("Hi", "v", "w"))
    True
    """
    return cluster_number(pair.instruction)


def cluster_number(instruction: str) -> int:
    """The number of the cluster of an instruction.

    >>> cluster_number("Hi") == cluster_of(Pair("Hi", "x", "y"))
    True
    """
    return short_hash(instruction)


def length_difference(pair: Pair) -> int:
    """By how many characters output 1 is longer than output 2.

    >>> length_difference(Pair("Hi", "Hello", "Hey"))
    2
    """
    return len(pair.output_1) - len(pair.output_2)


def expected_value(p: Mapping[Side, float]) -> float:
    """What side 1 can expect: the probability that it wins, and half of that of a tie.

    >>> expected_value({"1": 0.5, "2": 0.25, "tie": 0.25})
    0.625
    """
    return p["1"] + p["tie"] / 2


@dataclass
class Tally:
    """What one dimension comes to over many pairs, of which no more than some thousands are in memory.

    Counts alone make a tally too, one that knows of no clusters, no probabilities and no lengths.
    """

    sides: Counter[str] = field(default_factory=Counter)
    reasons: Counter[str] = field(default_factory=Counter)
    inconsistent: int = 0
    mass: float = 0.0
    masses: int = 0
    first: int = 0  # how often the response shown first was chosen, less how often the second was
    places: int = 0
    agreed: int = 0
    labelled: int = 0
    decided_right: float = 0.0
    decided: int = 0
    rows: Spool = field(default_factory=new_rows)
    _told: tuple[int, dict[str, Any]] = (-1, {})

    def add(self, finding: Finding, known: str | None = None, cluster: int | None = None, longer: int = 0) -> None:
        """Count one finding, against the known answer if there is one; without a cluster it is like no other."""
        if finding.side is None or finding.p is None:
            self.reasons[finding.invalid or "unknown"] += 1
            return
        key = len(self.rows) if cluster is None else cluster
        self.rows.append(key, longer, _DOUBLED[finding.side], expected_value(finding.p))
        self.sides[finding.side] += 1
        self.inconsistent += finding.inconsistent
        for verdict in finding.orders.values():
            if verdict.mass is not None:
                self.mass, self.masses = self.mass + verdict.mass, self.masses + 1
        if len(finding.orders) == 2 and finding.dimension not in BY_ITSELF:
            # Heard in both orders, the better response stands first as often as second: what is left is bias.
            labels = [verdict.label for verdict in finding.orders.values()]
            self.first += labels.count("A") - labels.count("B")
            self.places += 2
        if known is not None:
            self._compare(finding, known)

    def _compare(self, finding: Finding, known: str) -> None:
        self.labelled += 1
        self.agreed += finding.side == known
        if known in ("1", "2") and finding.p is not None:
            self.decided += 1
            odds = log_odds(finding.p)
            self.decided_right += 0.5 if odds == 0 else float((odds > 0) == (known == "1"))

    @property
    def n(self) -> int:
        """Pairs with a valid judgment."""
        return self.sides.total()

    @property
    def invalid(self) -> int:
        """Pairs without one."""
        return self.reasons.total()

    @property
    def rate(self) -> Rate:
        """How often side 1 wins, a tie counting one half."""
        from evenhand.stats.winrate import win_rate

        if not len(self.rows):
            return win_rate(self.sides["1"], self.sides["tie"], self.sides["2"])
        return self._rate("hard", 2)

    @property
    def expected_rate(self) -> Rate:
        """How often side 1 can expect to win: each verdict counts by its probabilities."""
        from evenhand.stats.winrate import mean_rate

        return self._rate("expected") if len(self.rows) else mean_rate([])

    def _rate(self, column: str, whole: float = 1) -> Rate:
        from evenhand.stats.clusters import gather
        from evenhand.stats.winrate import mean_rate_over

        return mean_rate_over(
            lambda: (gather(2 * part[column] / whole - 1, part["cluster"]) for part in self._parts())
        )

    def length_controlled(self) -> LengthControlled:
        """How often side 1 would win at equal length."""
        from evenhand.stats.length import arrange, length_controlled_over

        return length_controlled_over(
            lambda: (arrange(part["hard"] / 2, part["longer"], part["cluster"]) for part in self._parts())
        )

    def _parts(self) -> Iterator[Part]:
        import numpy as np

        return ({name: np.array(column) for name, column in part.items()} for part in self.rows.parts())

    def facts(self) -> dict[str, Any]:
        """The tally as plain data; worked out once for as many findings as there are."""
        seen = self.n + self.invalid
        if self._told[0] != seen:
            self._told = (seen, {**self._counts(), **self._rates()})
        return dict(self._told[1])

    def _rates(self) -> dict[str, Any]:
        from evenhand.stats.winrate import missing_bounds

        rate, expected = self.rate, self.expected_rate
        bounds = missing_bounds(rate, self.invalid) if self.invalid else None
        return {
            "win_rate_1": rate.value,
            "ci": interval(rate.low, rate.high),
            "ci_method": rate.method,
            "ci_level": rate.level,
            "clusters": rate.clusters,
            "effective_n": rate.effective,
            "small": rate.small,
            "invalid_bounds": None if bounds is None else list(bounds),
            "expected": {"win_rate_1": expected.value, "ci": interval(expected.low, expected.high)},
            "length_controlled": _length_facts(self.length_controlled()),
        }

    def _counts(self) -> dict[str, Any]:
        facts: dict[str, Any] = {
            "n": self.n,
            "wins_1": self.sides["1"],
            "wins_2": self.sides["2"],
            "ties": self.sides["tie"],
            "inconsistent": self.inconsistent,
            "invalid": self.invalid,
            "invalid_reasons": dict(self.reasons),
            "label_mass": self.mass / self.masses if self.masses else None,
            "position_lift": self.first / self.places if self.places else None,
        }
        if self.labelled:
            facts["agreement"] = {
                "n": self.labelled,
                "three_way": self.agreed / self.labelled,
                "decided_n": self.decided,
                "decided": self.decided_right / self.decided if self.decided else None,
            }
        return facts


class Summary:
    """Every dimension of a judge, filled one judgment at a time.

    >>> from evenhand.judge import Hearing, Judgment
    >>> from evenhand.pairs import Pair
    >>> from evenhand.verdict import Verdict
    >>> summary = Summary(["overall"])
    >>> summary.add(Judgment.of(Pair("Hi", "x", "y"), {"forward": Hearing({"overall": Verdict("overall", "A")})}))
    >>> summary.facts()["dimensions"]["overall"]["wins_1"]
    1
    """

    def __init__(self, dimensions: Iterable[str]) -> None:
        self.tallies = {dimension: Tally() for dimension in dimensions}
        self.models: set[tuple[str, str]] = set()
        self.candidates: set[str] = set()
        self.pairs = 0

    def add(self, judgment: Judgment) -> None:
        """Count one judgment."""
        self.pairs += 1
        if len(self.models) < 2:  # only whether all pairs are of the same two models matters
            self.models.add((judgment.pair.model_1, judgment.pair.model_2))
        self.candidates.add(judgment.pair.candidate)
        cluster, longer = cluster_of(judgment.pair), length_difference(judgment.pair)
        for dimension, finding in judgment.findings.items():
            tally = self.tallies.get(dimension)
            if tally is None:
                tally = self.tallies[dimension] = Tally()
            tally.add(finding, known_label(judgment.pair.labels, dimension), cluster, longer)

    @property
    def invalid(self) -> int:
        """Verdicts that are missing, over all dimensions."""
        return sum(tally.invalid for name, tally in self.tallies.items() if name != COMBINED)

    @property
    def sides(self) -> tuple[str, str]:
        """What to call the two sides: the models' names, where every pair has the same two."""
        names = next(iter(self.models)) if len(self.models) == 1 else ("", "")
        return names[0] or "1", names[1] or "2"

    @property
    def roles(self) -> tuple[str, str] | None:
        """The roles of the two sides, where every pair has the same."""
        one = next(iter(self.candidates)) if len(self.candidates) == 1 else ""
        return {"1": ("candidate", "baseline"), "2": ("baseline", "candidate")}.get(one)

    def facts(self) -> dict[str, Any]:
        """The summary as plain data."""
        return {
            "pairs": self.pairs,
            "sides": {"1": self.sides[0], "2": self.sides[1]},
            **({"roles": dict(zip(("1", "2"), self.roles, strict=True))} if self.roles else {}),
            "dimensions": {dimension: tally.facts() for dimension, tally in self.tallies.items()},
        }


def interval(low: float | None, high: float | None) -> list[float] | None:
    """Two ends as plain data; None where there are none."""
    return None if low is None or high is None else [low, high]


def _length_facts(found: LengthControlled) -> dict[str, Any]:
    return {
        "win_rate_1": found.value,
        "ci": interval(found.low, found.high),
        "length_effect": found.effect,
        "length_effect_ci": interval(found.effect_low, found.effect_high),
        "typical_difference": found.typical,
        "method": found.method,
        "reason": found.reason or None,
    }


def judgment_facts(judgment: Judgment) -> dict[str, Any]:
    """One judgment as plain data; sides are "1" and "2" in every place, whatever the order."""
    return {
        "id": judgment.pair.id,
        "dimensions": {name: _finding_facts(finding) for name, finding in judgment.findings.items()},
        "notes": sorted(judgment.notes),
        "tokens": usage_facts(judgment.usage),
        "seconds": round(judgment.seconds, 3),
    }


def usage_facts(usage: Usage) -> dict[str, int]:
    """Tokens as plain data."""
    return {"computed": usage.computed, "reused": usage.reused, "generated": usage.generated}


def _finding_facts(finding: Finding) -> dict[str, Any]:
    return {
        "verdict": finding.side or "invalid",
        "p": _plain(finding.p),
        "inconsistent": finding.inconsistent,
        "invalid_reason": finding.invalid,
        "orders": {
            order: {
                "verdict": finding.heard(order) or "invalid",
                "p": _plain(finding.p_heard(order)),
                "mass": verdict.mass,
                "shown": verdict.label,
                "invalid_reason": verdict.invalid,
                "raw": verdict.raw,
            }
            for order, verdict in finding.orders.items()
        },
    }


def _plain(p: Mapping[Any, float] | None) -> dict[str, float] | None:
    return None if p is None else {str(side): p[side] for side in SIDES}
