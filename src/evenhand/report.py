"""Facts for the views, as plain data: what the tables show and what --json prints."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from evenhand.engines.base import Usage
from evenhand.judge import Judgment
from evenhand.pairs import COMBINED
from evenhand.verdict import SIDES, Finding, known_label, log_odds

if TYPE_CHECKING:
    from evenhand.stats.winrate import Rate


@dataclass
class Tally:
    """What one dimension comes to over many pairs; it takes the same room for ten pairs and for ten million."""

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

    def add(self, finding: Finding, known: str | None = None) -> None:
        """Count one finding, against the known answer if there is one."""
        if finding.side is None:
            self.reasons[finding.invalid or "unknown"] += 1
            return
        self.sides[finding.side] += 1
        self.inconsistent += finding.inconsistent
        for verdict in finding.orders.values():
            if verdict.mass is not None:
                self.mass, self.masses = self.mass + verdict.mass, self.masses + 1
        if len(finding.orders) == 2:
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
        from evenhand.stats.winrate import win_rate  # with numpy, which is not needed to begin a run

        wins, losses, ties = (self.sides[side] for side in SIDES)
        return win_rate(wins, ties, losses)

    def facts(self) -> dict[str, Any]:
        """The tally as plain data."""
        rate = self.rate
        facts: dict[str, Any] = {
            "n": self.n,
            "wins_1": self.sides["1"],
            "wins_2": self.sides["2"],
            "ties": self.sides["tie"],
            "inconsistent": self.inconsistent,
            "invalid": self.invalid,
            "invalid_reasons": dict(self.reasons),
            "win_rate_1": rate.value,
            "ci": None if rate.low is None else [rate.low, rate.high],
            "ci_method": rate.method,
            "ci_level": rate.level,
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
        self.pairs = 0

    def add(self, judgment: Judgment) -> None:
        """Count one judgment."""
        self.pairs += 1
        if len(self.models) < 2:  # only whether all pairs are of the same two models matters
            self.models.add((judgment.pair.model_1, judgment.pair.model_2))
        for dimension, finding in judgment.findings.items():
            self.tallies.setdefault(dimension, Tally()).add(finding, known_label(judgment.pair.labels, dimension))

    @property
    def invalid(self) -> int:
        """Verdicts that are missing, over all dimensions."""
        return sum(tally.invalid for name, tally in self.tallies.items() if name != COMBINED)

    @property
    def sides(self) -> tuple[str, str]:
        """What to call the two sides: the models' names, where every pair has the same two."""
        names = next(iter(self.models)) if len(self.models) == 1 else ("", "")
        return names[0] or "1", names[1] or "2"

    def facts(self) -> dict[str, Any]:
        """The summary as plain data."""
        return {
            "pairs": self.pairs,
            "sides": {"1": self.sides[0], "2": self.sides[1]},
            "dimensions": {dimension: tally.facts() for dimension, tally in self.tallies.items()},
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
