"""How often the intervals of a ranking hold the truth, and how often models are told apart wrongly, by simulation.

    python benchmarks/coverage_ranking.py                       # the table of docs/ranking.md
    python benchmarks/coverage_ranking.py --repetitions 200

Every instruction favours some models by chance (a normal effect for each model and instruction), so that pairs
of one instruction are dependent. The truth is then what maximum likelihood finds in endless data: the strengths
that fit the shares averaged over instructions, computed by quadrature. Nominal is 95%; a row under 94% fails the
run, as does a row in which more than 5% of the rankings (and what chance allows on top) tell two models apart the
wrong way round, or at all where the truth has none apart.
"""

from __future__ import annotations

import argparse
import math
import sys
import time
from dataclasses import dataclass

import numpy as np

from evenhand.stats.davidson import fit
from evenhand.stats.ranking import Ranking, rank_models

LOWEST = 0.94
TIES = 0.5  # the tie parameter


@dataclass(frozen=True)
class Setting:
    """A design: models, instructions, pairs of each, the effect of an instruction, the width of the strengths."""

    models: int
    instructions: int
    pairs: int
    effect: float
    width: float

    @property
    def strengths(self) -> np.ndarray:
        """The true strengths, evenly spaced."""
        return np.linspace(self.width, -self.width, self.models)


@dataclass
class Count:
    """What is counted over the repetitions of a setting."""

    truth: np.ndarray
    held: int = 0
    told: int = 0
    absent: int = 0
    differences_held: int = 0
    differences: int = 0
    wrong: int = 0
    rankings: int = 0

    def add(self, ranking: Ranking) -> None:
        """Count one ranking."""
        self.rankings += 1
        for standing in ranking.standings:
            if standing.low is None or standing.high is None:
                self.absent += 1
            else:
                self.told += 1
                self.held += standing.low <= self.truth[int(standing.model)] <= standing.high
        self.wrong += max(self._wrong(*contrast) for contrast in _facts(ranking))

    def _wrong(self, one: int, two: int, low: float | None, high: float | None, sign: int) -> bool:
        true = self.truth[one] - self.truth[two]
        if low is not None and high is not None:
            self.differences += 1
            self.differences_held += low <= true <= high
        return sign != 0 and sign * true <= 1e-12


def _facts(ranking: Ranking) -> list[tuple[int, int, float | None, float | None, int]]:
    """Each difference with the direction in which it was told; models stand best first."""
    return [
        (int(c.model_1), int(c.model_2), c.low, c.high, int(c.p_holm <= 1 - ranking.level))
        for c in ranking.contrasts
    ]


def truth_of(setting: Setting) -> np.ndarray:
    """The strengths that fit endless data: shares averaged over the effects of instructions."""
    points, weights = np.polynomial.hermite_e.hermegauss(61)
    weights /= weights.sum()
    gap = setting.strengths[:, None] - setting.strengths[None, :]
    lead = gap[:, :, None] + math.sqrt(2) * setting.effect * points
    better, worse = np.exp(lead / 2), np.exp(-lead / 2)
    wins = (better / (better + worse + TIES)) @ weights
    ties = (TIES / (better + worse + TIES)) @ weights
    for matrix in (wins, ties):
        np.fill_diagonal(matrix, 0.0)
    return fit(wins, ties).strengths


def draw(setting: Setting, rng: np.random.Generator) -> Ranking:
    """One set of comparisons, ranked."""
    n = setting.instructions * setting.pairs
    home = np.repeat(np.arange(setting.instructions), setting.pairs)
    one = rng.integers(0, setting.models, n)
    two = (one + rng.integers(1, setting.models, n)) % setting.models
    level = setting.strengths + rng.normal(0, setting.effect, (setting.instructions, setting.models))
    lead = level[home, one] - level[home, two]
    better, worse = np.exp(lead / 2), np.exp(-lead / 2)
    place = rng.random(n) * (better + worse + TIES)
    outcome = np.where(place < better, 0, np.where(place < better + worse, 1, 2))
    names = [f"{model:03}" for model in range(setting.models)]
    return rank_models([names[m] for m in one], [names[m] for m in two], np.eye(3)[outcome], home.tolist())


SETTINGS = (
    Setting(2, 20, 2, 0.8, 0.5),
    Setting(2, 200, 1, 0.8, 0.5),
    Setting(4, 20, 6, 0.8, 0.8),
    Setting(4, 20, 6, 0.8, 0.0),
    Setting(4, 100, 6, 0.8, 0.8),
    Setting(4, 100, 6, 2.0, 0.8),
    Setting(8, 50, 28, 0.8, 0.0),
    Setting(8, 500, 1, 0.0, 1.0),
    Setting(16, 300, 8, 0.8, 1.5),
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--repetitions", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=4)
    given = parser.parse_args()
    print(f"{given.repetitions} repetitions, seed {given.seed}, {time.strftime('%Y-%m-%d')}\n")
    columns = ("models", "instructions", "pairs of each", "effect", "strengths", "strength", "difference")
    columns += ("told apart wrongly", "none")
    print(f"| {' | '.join(columns)} |\n|{'---|' * len(columns)}")
    failed = False
    for setting in SETTINGS:
        count = Count(truth_of(setting))
        for repetition in range(given.repetitions):
            count.add(draw(setting, np.random.default_rng([given.seed, repetition])))
        one, both = count.held / count.told, count.differences_held / count.differences
        wrong, absent = count.wrong / count.rankings, count.absent / (count.absent + count.told)
        design = (
            f"{setting.models} | {setting.instructions} | {setting.pairs} | {setting.effect} | ±{setting.width}"
        )
        print(f"| {design} | {one:.1%} | {both:.1%} | {wrong:.1%} | {absent:.2%} |", flush=True)
        chance = 3 * math.sqrt(0.05 * 0.95 / count.rankings)
        failed |= min(one, both) < LOWEST or wrong > 0.05 + chance
    sys.exit(failed)


if __name__ == "__main__":
    main()
