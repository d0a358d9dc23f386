"""Does the confidence sequence hold when one looks after every observation, and what does that cost?

    python benchmarks/sequence.py                     2,000 repetitions of 500 observations in each case
    python benchmarks/sequence.py --repetitions 100   a quick look

The sequence never takes back what it ruled out, so its last interval holds the truth if and only if every one
before it did: that is the share in the column "sequence". The column "fixed n" is what becomes of Wilson's 95%
interval when one looks at it after every observation from the tenth on.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from evenhand.stats.sequence import ConfidenceSequence
from evenhand.stats.winrate import win_rate

LENGTH = 500
LOOKS = (20, 50, 100, 200, 500)
Floats = NDArray[np.float64]
# A case gives its observations as three rows: what is known of each (NaN if nothing), its least, its most.
Draw = Callable[[Generator], tuple[float, Floats]]


def bernoulli(rate: float, ties: float = 0.0) -> Draw:
    """Pairs won with this rate, a share of them tied."""

    def draw(rng: Generator) -> tuple[float, Floats]:
        won = (rng.random(LENGTH) < rate).astype(float)
        x = np.where(rng.random(LENGTH) < ties, 0.5, won)
        return ties / 2 + (1 - ties) * rate, np.stack([x, x, x])

    return draw


def clustered(rng: Generator) -> tuple[float, Floats]:
    """One to four pairs to an instruction, each instruction with a rate of its own; the cluster is the unit."""
    rates = rng.beta(1.2, 0.8, LENGTH)
    sizes = rng.integers(1, 5, LENGTH)
    x = rng.binomial(sizes, rates) / sizes
    return 0.6, np.stack([x, x, x])


def expected(rng: Generator) -> tuple[float, Floats]:
    """Probabilities instead of verdicts: any value from 0 to 1."""
    x = rng.beta(2.0, 3.0, LENGTH)
    return 0.4, np.stack([x, x, x])


def losses_get_lost(rng: Generator) -> tuple[float, Floats]:
    """A rate of one half, and every fifth loss is invalid: the valid ones alone would say 0.56."""
    won = (rng.random(LENGTH) < 0.5).astype(float)
    lost = (won == 0) & (rng.random(LENGTH) < 0.2)
    return 0.5, np.stack([np.where(lost, np.nan, won), np.where(lost, 0.0, won), np.where(lost, 1.0, won)])


def whole_file(size: int) -> Draw:
    """A file of so many pairs, taken in random order to its end; the truth is the file's own rate."""

    def draw(rng: Generator) -> tuple[float, Floats]:
        file = (rng.random(size) < 0.6).astype(float)
        return float(file.mean()), np.stack([rng.permutation(file)] * 3)

    return draw


CASES: dict[str, Draw] = {
    "rate 0.5": bernoulli(0.5),
    "rate 0.5, 30% ties": bernoulli(0.5, 0.3),
    "rate 0.6": bernoulli(0.6),
    "rate 0.7": bernoulli(0.7),
    "rate 0.9": bernoulli(0.9),
    "rate 1.0": bernoulli(1.0),
    "rate 0.05": bernoulli(0.05),
    "rate 0.05, 30% ties": bernoulli(0.05, 0.3),
    "clusters of 1 to 4 pairs": clustered,
    "expected, any value": expected,
    "every fifth loss invalid": losses_get_lost,
    "a file of 100, its own rate": whole_file(100),
}


@dataclass
class Tally:
    """What many repetitions of one case come to."""

    held: int = 0
    fixed_held: int = 0
    decided: list[int] = field(default_factory=list)
    wrong: int = 0
    widths: dict[int, list[float]] = field(default_factory=lambda: {n: [] for n in LOOKS})
    fixed_widths: dict[int, list[float]] = field(default_factory=lambda: {n: [] for n in LOOKS})


def wilson(total: float, n: int) -> tuple[float, float]:
    rate = win_rate(total, 0, n - total)
    assert rate.low is not None
    assert rate.high is not None
    return rate.low, rate.high


def repeat(tally: Tally, truth: float, rows: Floats) -> None:
    """One sequence from its first observation to its last, looked at after each."""
    sequence, total, known, fixed, decided = ConfidenceSequence(), 0.0, 0, True, 0
    for n, (value, least, most) in enumerate(rows.T, 1):
        sequence.add(None if np.isnan(value) else float(value), float(least), float(most))
        bounds = sequence.bounds
        if not decided and not bounds.low <= 0.5 <= bounds.high:
            decided = n
            tally.wrong += (bounds.low > 0.5) != (truth > 0.5) or truth == 0.5
        if not np.isnan(value):
            total, known = total + value, known + 1
        if n >= 10 or n in LOOKS:
            low, high = wilson(total, known)
            fixed = fixed and low <= truth <= high
            if n in LOOKS:
                tally.widths[n].append(bounds.high - bounds.low)
                tally.fixed_widths[n].append(high - low)
    tally.held += bounds.low <= truth <= bounds.high
    tally.fixed_held += fixed
    tally.decided += [decided] if decided else []


def measure(draw: Draw, repetitions: int, seed: int) -> Tally:
    rng, tally = np.random.default_rng(seed), Tally()
    for _ in range(repetitions):
        repeat(tally, *draw(rng))
    return tally


def row(name: str, tally: Tally, repetitions: int) -> str:
    """One line of the table."""
    widths = [
        f"{np.mean(tally.widths[n]):.2f} / {np.mean(tally.fixed_widths[n]):.2f}" if tally.widths[n] else "–"
        for n in LOOKS
    ]
    after = f"{np.median(tally.decided):.0f}" if len(tally.decided) > repetitions / 2 else "–"
    shares = [
        f"{100 * tally.held / repetitions:.1f}%",
        f"{100 * tally.fixed_held / repetitions:.1f}%",
        f"{100 * len(tally.decided) / repetitions:.1f}%",
        after,
        f"{100 * tally.wrong / repetitions:.1f}%",
    ]
    return "| " + " | ".join([name, *shares, *widths]) + " |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repetitions", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--case", help="only cases whose name holds this")
    options = parser.parse_args()
    began = time.monotonic()
    heads = [
        "case",
        "sequence",
        "fixed n",
        "decided",
        "after (median)",
        "wrongly",
        *(f"width at {n}" for n in LOOKS),
    ]
    print("| " + " | ".join(heads) + " |\n" + "|---" * len(heads) + "|")
    for name, draw in CASES.items():
        if options.case is None or options.case in name:
            tally = measure(draw, options.repetitions, options.seed)
            print(row(name, tally, options.repetitions), flush=True)
    print(f"\n{options.repetitions} repetitions of up to {LENGTH}, {time.monotonic() - began:.0f} s")


if __name__ == "__main__":
    main()
