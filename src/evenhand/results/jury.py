"""The result of a jury: which judges had a verdict, how far they agree, and what each of them changes.

Influence is that of leaving one out: how many pooled verdicts come out otherwise without a juror, and what the win
rate then is. It is asked of the pairs on which the jury has a verdict.
"""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np

from evenhand.core.attacks import is_attacked
from evenhand.core.columns import CODE_OF, VALUES
from evenhand.core.jury import ABSENT, JurorOutcomes, PoolRule, on_dimension, pooled_side, spoke
from evenhand.core.outcome import cluster_number
from evenhand.core.pair import Pair
from evenhand.core.stats.agreement import MISSING, Codes, cohen_kappa, three_way
from evenhand.core.stats.clustered import Estimate, mean
from evenhand.core.stats.winrate import mean_rate
from evenhand.core.verdict import OF_ANSWERS, Outcome, headline
from evenhand.results.counting import DEFAULT


@dataclass(frozen=True, slots=True)
class JurorResult:
    """One juror: on how many pairs it spoke, why not on the others, and what the jury would be without it."""

    name: str
    spoke: int
    silent: Mapping[str, int]  # reasons
    failed: str  # why it could not be asked at all; empty where it could
    with_others: Estimate  # how often it says what the others say together
    changed: int  # pooled verdicts that come out otherwise without it
    change: Estimate
    win_rate_1_without: float | None
    calibrated: bool  # whether it speaks with calibrated probabilities


@dataclass(frozen=True, slots=True)
class JurorAgreement:
    """How often two jurors say the same, and how far beyond chance."""

    one: str
    other: str
    same: Estimate
    kappa: Estimate


@dataclass(frozen=True, slots=True)
class JuryResult:
    """A jury on one dimension. `incomplete` are the pairs on which fewer than the quorum spoke: no verdict."""

    jury: str
    dimension: str
    pool: str
    weights: tuple[float, ...]
    quorum: int
    calibrated: bool
    pairs: int
    spoke: Mapping[int, int]  # by how many jurors spoke, how many pairs
    incomplete: int
    win_rate_1: float | None
    jurors: tuple[JurorResult, ...]
    agreement: tuple[JurorAgreement, ...]

    @property
    def notes(self) -> list[str]:
        """What a reader must know before the figures."""
        found = [f"{juror.name} was not asked to the end: {juror.failed}" for juror in self.jurors if juror.failed]
        if self.incomplete:
            some = "1 pair has" if self.incomplete == 1 else f"{self.incomplete:,} pairs have"
            few = f"fewer than {self.quorum} of {len(self.jurors)} judges spoke"
            found.append(" ".join([f"{some} no pooled verdict: {few}.", *self._remedies()]))
        less = sum(pairs for count, pairs in self.spoke.items() if self.quorum <= count < len(self.jurors))
        if less:
            found.append(
                f"{less:,} of the pooled verdicts {'rests' if less == 1 else 'rest'} on fewer than all"
                f" {len(self.jurors)} judges."
            )
        return found

    def _remedies(self) -> Iterator[str]:
        """What gives the incomplete pairs a verdict, where something does."""
        silent = {reason for juror in self.jurors for reason in juror.silent}
        if silent & OF_ANSWERS:
            yield "Answers that cannot be read are not asked for again."
        if silent - OF_ANSWERS or any(juror.failed for juror in self.jurors):
            yield "Judging again asks for what is missing."
        if most := max((count for count, pairs in self.spoke.items() if pairs and count < self.quorum), default=0):
            yield f"--quorum {most} takes less."


class JuryCounter:
    """Counts what jurors say while a jury is pooled; some bytes are held for each pair."""

    def __init__(self, names: Sequence[str], rule: PoolRule, dimensions: Sequence[str], on: str = "") -> None:
        self._names, self._rule, self.dimension = list(names), rule, on or headline(dimensions)
        self._others = [rule.without(k) for k in range(len(self._names))]
        self._said, self._pooled, self._without = array("b"), array("b"), array("b")
        self._clusters = array("q")
        self._spoke: Counter[int] = Counter()
        self._silent = [Counter[str]() for _ in names]

    def add(self, pair: Pair, outcomes: JurorOutcomes, length: float = 0.0) -> None:
        """Take what the jurors said of one more pair; an attacked one says nothing of how they judge others."""
        if is_attacked(pair):
            return
        said = on_dimension(outcomes, self.dimension)
        for juror, outcome in enumerate(said):
            if outcome is None or outcome.side is None:
                self._silent[juror][ABSENT if outcome is None else outcome.invalid or "invalid"] += 1
        self._spoke[spoke(said)] += 1
        self._said.extend([MISSING if outcome is None else CODE_OF[outcome.side] for outcome in said])
        whole = self._code(said, self._rule, length)
        self._pooled.append(whole)
        self._without.extend(
            [
                self._code([*said[:k], *said[k + 1 :]], self._others[k], length)
                if outcome is not None and outcome.side is not None and whole != MISSING
                else whole
                for k, outcome in enumerate(said)
            ]
        )
        self._clusters.append(cluster_number(pair.instruction) >> 1)  # a signed number

    def _code(self, said: Sequence[Outcome | None], rule: PoolRule, length: float) -> int:
        return CODE_OF[pooled_side(self.dimension, said, rule, length)]

    def result(self, jury: str, failed: Mapping[str, str] | None = None) -> JuryResult:
        """What has been counted."""
        jurors, width = len(self._names), len(self._names)
        said = np.array(self._said, dtype=np.int64).reshape(-1, width)
        without = np.array(self._without, dtype=np.int64).reshape(-1, width)
        pooled, clusters = np.array(self._pooled, dtype=np.int64), np.array(self._clusters, dtype=np.int64)
        every = tuple(
            self._juror(k, said[:, k], without[:, k], pooled, clusters, (failed or {}).get(self._names[k], ""))
            for k in range(jurors)
        )
        agreement = tuple(
            JurorAgreement(
                *(self._names[a], self._names[b]),
                three_way(said[:, a], said[:, b], clusters),
                cohen_kappa(said[:, a], said[:, b], clusters),
            )
            for a, b in combinations(range(jurors), 2)
        )
        rule = self._rule
        return JuryResult(
            *(jury, self.dimension, rule.pool, rule.weights, rule.least),
            rule.pool == "mean" and any(rule.scales.get(self.dimension, ())),
            *(len(pooled), dict(sorted(self._spoke.items(), reverse=True)), int((pooled == MISSING).sum())),
            *(_rate(pooled, clusters), every, agreement),
        )

    def _juror(
        self, juror: int, said: Codes, without: Codes, pooled: Codes, clusters: Codes, failed: str
    ) -> JurorResult:
        judged = pooled != MISSING
        changed = (without != pooled)[judged]
        silent = self._silent[juror]
        return JurorResult(
            *(self._names[juror], len(said) - silent.total(), dict(silent.most_common()), failed),
            three_way(said, without, clusters),
            int(changed.sum()),
            mean(changed.astype(np.float64), clusters[judged]),
            _rate(without[judged], clusters[judged]),
            self._rule.pool == "mean" and self._rule.scale(self.dimension, juror) is not None,
        )


def _rate(codes: Codes, clusters: Codes) -> float | None:
    """The win rate of side 1, weighed as `results` weighs it."""
    valid = codes != MISSING
    return mean_rate(VALUES[codes[valid]], clusters[valid], weighting=DEFAULT.weighting).value
