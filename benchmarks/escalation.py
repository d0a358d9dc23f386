"""Whether what `--escalate` promises is kept: in simulations, and on PandaLM with published judges as the levels.

    python benchmarks/escalation.py FOLDER [--draws 1000] [--calibrated] [--json]

FOLDER holds pandalm.jsonl, pandalm_published_judges.jsonl and states-qwen2.5-coder-1.5b.npz; without it, only the
simulations are run. In each draw a random part of the pairs is labelled, thresholds are chosen on it, and the pairs
that are decided are counted over the whole population: how many of them agree with people, what share is decided,
and about what share the largest judge is asked, the labelled pairs included.

With --calibrated only those rows are made in which every level is calibrated on the very labels on which thresholds
are then chosen, as happens where `evenhand calibrate` comes before `--escalate`: they are fitted in each draw anew.
What a judge says stays as it is; only how sure it is, is said by its calibration.

The levels of PandaLM: `embedded` is the log-odds with which qwen2.5-coder-1.5b says yes to one response, less that
of the other (no tie); gpt-3.5-turbo and pandalm-7b are published verdicts without probabilities, which have one
confidence, so that such a level decides all or nothing; `both` is their jury by majority, surer where they agree.
"""

from __future__ import annotations

import argparse
import hashlib
import json
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from evenhand.core.stats.calibration import Calibration, Inputs, _choose
from evenhand.core.stats.escalation import choose_cascade, log_odds_of

Table = NDArray[np.float64]
CODES, NONE = {"A": 0, "B": 1, "tie": 2}, -1


@dataclass(frozen=True)
class Case:
    """What came of many draws."""

    name: str
    pairs: int
    labels: int
    target: float
    kept: float  # the share of draws in which the promise was kept
    nothing: float  # the share in which nothing could be promised
    coverage: float  # the share of pairs that were decided, where anything was
    agreement: float | None  # of the decided pairs with people, on average
    first_level: float  # the share of pairs that the first level decided
    largest_asked: float  # the share of pairs about which the last level was asked
    largest_alone: float  # how often the last level agrees with people on all pairs


Sureness = Callable[[NDArray[np.int64]], Table]  # how sure each level is of all pairs, after some were labelled


def draw_many(name: str, sure: Table | Sureness, right: Table, labels: int, target: float, draws: int) -> Case:
    rng = np.random.default_rng(0)
    size, levels = right.shape
    kept, shares, agreed, first, asked = 0, [], [], [], []
    for _ in range(draws):
        some = rng.choice(size, labels, replace=False)
        now = sure(some) if callable(sure) else sure
        found = choose_cascade(now[some], right[some], target)
        if not found.promised:
            kept += 1
            continue
        z = np.where(np.isnan(now), -np.inf, log_odds_of(now))
        by = z > np.asarray(found.floors)
        decided, level = by.any(axis=1), by.argmax(axis=1)
        agreement = float(right[np.arange(size), level][decided].mean())
        kept += agreement >= target
        to_last = ~by[:, :-1].any(axis=1)
        to_last[some] = True
        shares.append(decided.mean())
        agreed.append(agreement)
        first.append((decided & (level == 0)).mean() if levels > 1 else decided.mean())
        asked.append(to_last.mean() if found.floors[-1] < np.inf else labels / size)
    mean = lambda values: float(np.mean(values)) if values else 0.0  # noqa: E731
    return Case(
        *(name, size, labels, target, kept / draws, 1 - len(shares) / draws, mean(shares)),
        *(mean(agreed) if agreed else None, mean(first), mean(asked), float(right[:, -1].mean())),
    )


# -- simulations ----------------------------------------------------------------------------------------------


def simulated(draws: int) -> list[Case]:
    rng = np.random.default_rng(1)
    size = 20_000
    sure = rng.uniform(0.5, 0.999, (size, 2))
    worlds = {
        "sure is right": 0.6 + 0.78 * (sure - 0.5) * [1.0, 1.0] + [0.0, 0.05],
        "too sure by far": np.column_stack([0.55 + 0.6 * (sure[:, 0] - 0.5), 0.75 + 0.48 * (sure[:, 1] - 0.5)]),
        "just below the target": np.full((size, 2), 0.845),
        "the surest are worst": np.where(sure > 0.9, 0.8, 0.95 - 0.2 * (sure < 0.7)),
        "confidence says nothing": np.full((size, 2), 0.9),
    }
    found = []
    for name, chance in worlds.items():
        right = (rng.random((size, 2)) < chance).astype(np.float64)
        found += [draw_many(name, sure, right, labels, 0.85, draws) for labels in (100, 300)]
    return found


# -- calibrated on the same labels ------------------------------------------------------------------------------


@dataclass(frozen=True)
class World:
    """What people say of pairs (0, 1 or 2 for a tie), the log-odds of each level, and lengths."""

    truth: NDArray[np.int64]
    odds: Table
    log_length: Table

    @property
    def right(self) -> Table:
        """Whether each level says what people say."""
        return (np.where(self.odds >= 0, 0, 1) == self.truth[:, None]).astype(np.float64)

    def sure(self, some: NDArray[np.int64]) -> Table:
        """The calibrated probability of each level's verdict."""
        return np.column_stack([self._level(level, some) for level in range(self.odds.shape[1])])

    def _level(self, level: int, some: NDArray[np.int64]) -> Table:
        odds, side = self.odds[:, level], np.where(self.odds[:, level] >= 0, 0, 1)
        inputs = Inputs(odds[some], self.log_length[some], np.ones(len(some)))
        slope, length, tie = numbers_of(inputs, self.truth[some], some)
        found = Calibration(slope, tie, length, len(some), len(some)).apply(odds, self.log_length)
        return found[np.arange(len(side)), side]


def numbers_of(inputs: Inputs, truth: NDArray[np.int64], groups: NDArray[np.int64]) -> tuple[float, ...]:
    """What `fit` fits, without the scores that it makes beside it, which take most of its time."""
    return tuple(map(float, _choose(inputs, truth, groups, 0).weights))


def _world(rng: np.random.Generator, tie: float, length: float) -> World:
    """People choose by quality and by length, and see ties; the small judge is shy, the large one far too sure."""
    size = 20_000
    quality, log_length = rng.normal(0, 2, size), rng.normal(0, 0.7, size)
    half = (quality + length * log_length) / 2
    weight = np.exp(np.column_stack([half, -half, np.full(size, tie)]))
    truth = (rng.random(size)[:, None] > (weight / weight.sum(axis=1, keepdims=True)).cumsum(axis=1)).sum(axis=1)
    small = 0.2 * (quality + rng.normal(0, 1.5, size))
    return World(truth.clip(0, 2), np.column_stack([small, 3 * (quality + rng.normal(0, 0.5, size))]), log_length)


def _flat(rng: np.random.Generator, rate: float) -> World:
    """Both judges are right as often as is said, however sure they are."""
    size = 20_000
    truth = rng.integers(0, 2, size)
    right = rng.random((size, 2)) < rate
    side = np.where(right, truth[:, None], 1 - truth[:, None])
    odds = np.where(side == 0, 1, -1) * rng.uniform(0.05, 3, (size, 2)) * [0.3, 1.0]
    return World(truth, odds, rng.normal(0, 0.7, size))


def calibrated(draws: int) -> list[Case]:
    rng = np.random.default_rng(2)
    cases = [
        ("flat, just below the target", _flat(rng, 0.845), 300, 0.85),
        ("shy and too sure", _world(rng, -1.0, 0.0), 300, 0.75),
        ("people like length", _world(rng, -1.0, 2.5), 300, 0.70),
        ("shy and too sure", _world(rng, -1.0, 0.0), 100, 0.70),
    ]
    return [
        draw_many(f"calibrated: {name}", world.sure, world.right, labels, target, draws)
        for name, world, labels, target in cases
    ]


# -- PandaLM ----------------------------------------------------------------------------------------------------


def pandalm(folder: Path, draws: int) -> list[Case]:
    rows = [json.loads(line) for line in (folder / "pandalm.jsonl").open(encoding="utf-8")]
    said = {
        row["id"]: row
        for row in map(json.loads, (folder / "pandalm_published_judges.jsonl").open(encoding="utf-8"))
    }
    states = np.load(folder / "states-qwen2.5-coder-1.5b.npz")
    yes = dict(zip(states["key"].tolist(), states["yes_no"].tolist(), strict=True))
    rows = [row for row in rows if row["label"] in CODES]
    truth = np.array([CODES[row["label"]] for row in rows])
    odds = np.array([_yes(yes, row, "output_1") - _yes(yes, row, "output_2") for row in rows])
    embedded = (1 / (1 + np.exp(-np.abs(odds))), np.where(odds >= 0, 0, 1))
    gpt, panda = (
        np.array([CODES.get(said[row["id"]][judge], NONE) for row in rows])
        for judge in ("gpt-3.5-turbo", "pandalm-7b")
    )
    by_gpt, by_panda = ((np.where(verdict == NONE, np.nan, 1.0), verdict) for verdict in (gpt, panda))
    missing = (gpt == NONE) | (panda == NONE)
    votes = np.where(missing, np.nan, np.where(gpt == panda, 1.0, 0.5))
    both = (votes, np.where(gpt == panda, gpt, CODES["tie"]))
    cascades = {
        "embedded": [embedded],
        "gpt-3.5-turbo": [by_gpt],
        "embedded, gpt-3.5-turbo": [embedded, by_gpt],
        "pandalm-7b, gpt-3.5-turbo": [by_panda, by_gpt],
        "embedded, both": [embedded, both],
        "embedded, both, gpt-3.5-turbo": [embedded, both, by_gpt],
    }
    found = []
    for name, levels in cascades.items():
        sure = np.column_stack([confidence for confidence, _ in levels])
        right = np.column_stack([verdict == truth for _, verdict in levels]).astype(np.float64)
        for target in (0.65, 0.70, 0.75):
            found.append(draw_many(f"PandaLM: {name}", sure, right, 300, target, draws))
    return found


def _yes(yes: dict[str, float], row: dict[str, str], output: str) -> float:
    text = f"{row['instruction']}\0{row[output]}"
    return yes[hashlib.sha256(text.encode()).hexdigest()[:20]]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, nargs="?")
    parser.add_argument("--draws", type=int, default=1000)
    parser.add_argument("--calibrated", action="store_true")
    parser.add_argument("--json", action="store_true")
    wanted = parser.parse_args()
    if wanted.calibrated:
        found = calibrated(wanted.draws)
    else:
        found = simulated(wanted.draws) + (pandalm(wanted.folder, wanted.draws) if wanted.folder else [])
    if wanted.json:
        print(json.dumps([asdict(case) for case in found], indent=2))
        return
    print(
        "levels | labels | target | kept | nothing | decided | agree | first level | largest asked | largest alone"
    )
    for case in found:
        agree = "-" if case.agreement is None else f"{case.agreement:.1%}"
        print(
            f"{case.name} | {case.labels} of {case.pairs} | {case.target:.0%} | {case.kept:.1%}"
            f" | {case.nothing:.1%} | {case.coverage:.1%} | {agree} | {case.first_level:.1%}"
            f" | {case.largest_asked:.1%} | {case.largest_alone:.1%}"
        )


if __name__ == "__main__":
    main()
