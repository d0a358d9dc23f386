"""Judgments ranked: which models the pairs of a run compare, what came out, and the ranking as plain data."""

from __future__ import annotations

from array import array
from collections.abc import Iterable
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, Literal, get_args

from evenhand.errors import InputError
from evenhand.judge import Judgment
from evenhand.report import cluster_of
from evenhand.verdict import SIDES

if TYPE_CHECKING:  # numpy would cost every command a tenth of a second
    from evenhand.stats.comparisons import Floats, Ints
    from evenhand.stats.ranking import Ranking

Reading = Literal["hard", "expected"]
Scale = Literal["log-odds", "elo", "arena"]
SCALES: tuple[Scale, ...] = get_args(Scale)


class Bouts:
    """Comparisons of models on one dimension, filled one judgment at a time; texts are not kept.

    The unit is the pair, both orders pooled. `hard` takes the pooled verdict, `expected` its probabilities. A pair
    that names no two different models is counted and left out; an invalid one is counted by its models.

    >>> from evenhand.judge import Hearing
    >>> from evenhand.pairs import Pair
    >>> from evenhand.verdict import Verdict
    >>> bouts = Bouts("overall")
    >>> heard = {"forward": Hearing({"overall": Verdict("overall", "A")})}
    >>> bouts.add(Judgment.of(Pair("Hi", "x", "y", model_1="gemma", model_2="llama"), heard))
    >>> bouts.ranking().models
    ('gemma', 'llama')
    """

    def __init__(self, dimension: str, reading: Reading = "hard") -> None:
        self.dimension, self.reading = dimension, reading
        self.unnamed = 0
        self.seen: set[str] = set()
        self._names: dict[str, int] = {}
        self._one, self._two = array("I"), array("I")
        self._weights = array("d")
        self._clusters = array("Q")

    def __len__(self) -> int:
        return len(self._one)

    def add(self, judgment: Judgment) -> None:
        """Take one judgment."""
        self.seen.update(judgment.findings)
        finding = judgment.findings.get(self.dimension)
        if finding is None:
            return
        one, two = judgment.pair.model_1, judgment.pair.model_2
        if not one or not two or one == two:
            self.unnamed += 1
            return
        hard = None if finding.side is None else {side: float(side == finding.side) for side in SIDES}
        p = hard if self.reading == "hard" else finding.p
        self._weights.extend([p[side] for side in SIDES] if p else [float("nan")] * len(SIDES))
        self._one.append(self.number(one))
        self._two.append(self.number(two))
        self._clusters.append(cluster_of(judgment.pair))

    def number(self, model: str) -> int:
        """The number of a model; each name is kept once, however many pairs carry it."""
        return self._names.setdefault(model, len(self._names))

    def take(self, one: Ints, two: Ints, weights: Floats, clusters: Any, unnamed: int) -> None:
        """Take many at once: models by their numbers, weights of 1, 2 and tie, numbers of the instructions."""
        self.unnamed += unnamed
        self._one.frombytes(one.astype("uint32").tobytes())
        self._two.frombytes(two.astype("uint32").tobytes())
        self._weights.frombytes(weights.astype("float64").tobytes())
        self._clusters.frombytes(clusters.astype("uint64").tobytes())

    def ranking(self, *, scale: Scale = "log-odds", anchor: str | None = None) -> Ranking:
        """What the comparisons come to."""
        import numpy as np

        from evenhand.stats.comparisons import gather_numbers
        from evenhand.stats.ranking import rank

        weights = np.frombuffer(self._weights, dtype=np.float64).reshape(-1, len(SIDES))
        if not (weights >= 0).any():
            raise InputError(self._why_empty(), hint=self._hint())
        try:
            data = gather_numbers(list(self._names), self._one, self._two, weights, self._clusters)
            return rank(data, scale=scale, anchor=anchor)
        except ValueError as fault:
            raise InputError(str(fault), hint=f"models here: {', '.join(sorted(self._names))}") from None

    def _why_empty(self) -> str:
        if self._one:
            return f"every verdict on {self.dimension} is invalid"
        if self.unnamed:
            return f"none of {self.unnamed:,} pairs names two different models"
        return f"no verdicts on {self.dimension}"

    def _hint(self) -> str:
        if self.unnamed:
            return "pairs to rank by carry model_1 and model_2"
        return f"dimensions here: {', '.join(sorted(self.seen))}" if self.seen - {self.dimension} else ""


def bouts_of(judgments: Iterable[Judgment], dimension: str = "overall", reading: Reading = "hard") -> Bouts:
    """All comparisons of a run on one dimension."""
    bouts = Bouts(dimension, reading)
    for judgment in judgments:
        bouts.add(judgment)
    return bouts


def ranking_facts(ranking: Ranking, bouts: Bouts | None = None) -> dict[str, Any]:
    """A ranking as plain data, for --json and the views."""
    facts: dict[str, Any] = {}
    if bouts is not None:
        facts = {"dimension": bouts.dimension, "reading": bouts.reading, "unnamed": bouts.unnamed}
    facts |= {
        "n": ranking.n,
        "instructions": ranking.clusters,
        "invalid": ranking.invalid,
        "models": [asdict(standing) for standing in ranking.standings],
        "win_matrix": {"models": list(ranking.models), "rates": ranking.rates, "counts": ranking.counts},
        "contrasts": [asdict(contrast) for contrast in ranking.contrasts],
        "parts": [list(part) for part in ranking.parts],
        "tie_parameter": ranking.tie_parameter,
        "scale": ranking.scale,
        "anchor": ranking.anchor,
        "level": ranking.level,
        "method": ranking.method,
        "warnings": list(ranking.warnings),
    }
    return facts
