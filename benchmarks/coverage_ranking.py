"""How often the intervals of a ranking hold the truth, and how often models are told apart wrongly, by simulation.

    python benchmarks/coverage_ranking.py                       # the table of docs/ranking.md
    python benchmarks/coverage_ranking.py --repetitions 200

Every instruction favours some models by chance (a normal effect for each model and instruction), so that pairs
of one instruction are dependent. The truth is then what maximum likelihood finds in endless data: the strengths
that fit the shares averaged over instructions, computed by quadrature. Nominal is 95%; a row under 94% fails the
run, as does a row in which more than 5% of the rankings (and what chance allows on top) tell two models apart the
wrong way round, or at all where the truth has none apart.

A second table has few games among many models, so that some won or lost everything (separated models). There the
intervals of all models, separated or not, are counted together: that a model is separated is part of its luck.
"""

from __future__ import annotations

import argparse
import math
import sys
import time
from dataclasses import dataclass

import numpy as np

from evenhand.core.stats.davidson import fit
from evenhand.core.stats.ranking import Ranking, rank_models

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
    given: int = 0
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
                self.given += 1
                self.held += standing.low <= self.truth[int(standing.model)] <= standing.high
        self.wrong += max(self._wrong(*contrast) for contrast in _fields(ranking))

    def _wrong(self, one: int, two: int, low: float | None, high: float | None, sign: int) -> bool:
        true = self.truth[one] - self.truth[two]
        if low is not None and high is not None:
            self.differences += 1
            self.differences_held += low <= true <= high
        return sign != 0 and sign * true <= 1e-12


def _fields(ranking: Ranking) -> list[tuple[int, int, float | None, float | None, int]]:
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


@dataclass(frozen=True)
class Sparse:
    """Few games among many models: so many games of two at random, or (0) one round robin."""

    models: int
    games: int
    ties: float = 0.0
    width: float = 0.0
    of_one: int = 1  # games of one instruction, all with the same luck

    def draw(self, rng: np.random.Generator) -> tuple[np.ndarray, Ranking]:
        """The true strengths, in random order, and one ranking."""
        true = rng.permutation(np.linspace(self.width, -self.width, self.models))
        one, two = np.triu_indices(self.models, 1)
        if self.games:
            one = rng.integers(0, self.models, self.games)
            two = (one + rng.integers(1, self.models, self.games)) % self.models
        home = np.arange(len(one)) // self.of_one
        luck = rng.random(home[-1] + 1)[home]  # one draw decides all games of an instruction
        won = luck < 1 / (1 + np.exp(true[two] - true[one]))
        outcome = np.where(rng.random(len(one)) < self.ties, 2, np.where(won, 0, 1))
        names = [f"{model:03}" for model in range(self.models)]
        found = rank_models([names[m] for m in one], [names[m] for m in two], np.eye(3)[outcome], home.tolist())
        return true, found


SPARSE = (
    Sparse(10, 30),
    Sparse(10, 30, ties=0.2),
    Sparse(8, 0),
    Sparse(8, 0, ties=0.2),
    Sparse(20, 60),
    Sparse(30, 100),
    Sparse(6, 10),
    Sparse(6, 10, ties=0.3),
    Sparse(3, 12),
    Sparse(2, 6),
    Sparse(10, 60, of_one=3),
    Sparse(10, 30, width=1.0),
    Sparse(8, 0, width=2.0),
    Sparse(6, 60, width=3.0),
    Sparse(20, 60, width=2.0),
)


@dataclass
class Apart:
    """What is counted over rankings with separated models."""

    wrong: int = 0
    given: int = 0
    held: int = 0
    separated: int = 0
    intervals: int = 0
    dashes: int = 0
    smallest: float = 1.0

    def add(self, true: np.ndarray, ranking: Ranking) -> None:
        """Count one ranking."""
        strength = {standing.model: true[int(standing.model)] for standing in ranking.standings}
        main = [s.model for s in ranking.standings if s.place == "linked"]
        firm = [s.model for s in ranking.standings if s.place == "linked" and s.error is not None]
        if len(main) < 2:
            firm = [s.model for s in ranking.standings if s.place != "beside"]
        zero = float(np.mean([strength[model] for model in firm or main]))
        for standing in ranking.standings:
            apart = standing.place in ("above", "below")
            self.separated += apart
            if standing.low is None or standing.high is None:
                self.dashes += apart
            else:
                self.intervals += 1
                self.held += standing.low <= strength[standing.model] - zero <= standing.high
        given = [c for c in ranking.contrasts if c.p_holm <= 1 - ranking.level]
        self.given += bool(given)
        self.wrong += any(strength[c.model_1] <= strength[c.model_2] + 1e-12 for c in given)
        self.smallest = min([self.smallest, *(c.p_holm for c in ranking.contrasts)])


def sparse_table(repetitions: int, seed: int) -> bool:
    """Print the table of few games; whether it fails."""
    columns = ("models", "games", "ties", "of one instruction", "strengths", "told apart wrongly", "told apart")
    columns += ("smallest p", "separated models", "intervals hold")
    print(f"| {' | '.join(columns)} |\n|{'---|' * len(columns)}")
    failed = False
    for setting in SPARSE:
        count = Apart()
        for repetition in range(repetitions):
            count.add(*setting.draw(np.random.default_rng([seed, repetition])))
        wrong, share = count.wrong / repetitions, count.separated / repetitions / setting.models
        held = count.held / count.intervals
        games = setting.games or "round robin"
        design = f"{setting.models} | {games} | {setting.ties:.0%} | {setting.of_one} | ±{setting.width}"
        given = f"{wrong:.1%} | {count.given / repetitions:.1%} | {count.smallest:.1g}"
        print(f"| {design} | {given} | {share:.1%} | {held:.1%} |", flush=True)
        chance = 2 * math.sqrt(0.05 * 0.95 / repetitions)
        failed |= wrong > 0.05 + chance or count.dashes > 0 or held < 0.95
    return failed


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--repetitions", type=int, default=2000)
    parser.add_argument("--sparse", type=int, default=200, help="repetitions of the second table")
    parser.add_argument("--seed", type=int, default=4)
    given = parser.parse_args()
    print(f"{given.repetitions} and {given.sparse} repetitions, seed {given.seed}, {time.strftime('%Y-%m-%d')}\n")
    failed = dense_table(given.repetitions, given.seed) if given.repetitions else False
    print()
    failed |= sparse_table(given.sparse, given.seed)
    sys.exit(failed)


def dense_table(repetitions: int, seed: int) -> bool:
    """Print the table of enough games; whether it fails."""
    columns = ("models", "instructions", "pairs of each", "effect", "strengths", "strength", "difference")
    columns += ("told apart wrongly", "none")
    print(f"| {' | '.join(columns)} |\n|{'---|' * len(columns)}")
    failed = False
    for setting in SETTINGS:
        count = Count(truth_of(setting))
        for repetition in range(repetitions):
            count.add(draw(setting, np.random.default_rng([seed, repetition])))
        one, both = count.held / count.given, count.differences_held / count.differences
        wrong, absent = count.wrong / count.rankings, count.absent / (count.absent + count.given)
        design = (
            f"{setting.models} | {setting.instructions} | {setting.pairs} | {setting.effect} | ±{setting.width}"
        )
        print(f"| {design} | {one:.1%} | {both:.1%} | {wrong:.1%} | {absent:.2%} |", flush=True)
        chance = 3 * math.sqrt(0.05 * 0.95 / count.rankings)
        failed |= min(one, both) < LOWEST or wrong > 0.05 + chance
    return failed


if __name__ == "__main__":
    main()
