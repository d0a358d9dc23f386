"""How many pairs does a gate take to pass a model that is just as good as the old one?

    python benchmarks/gate_pairs.py                    200 gates in each case, about two minutes
    python benchmarks/gate_pairs.py --repetitions 50   a quick look

Each gate draws pairs until the confidence sequence lies above one half less the margin. The table has the number of
pairs after which half of the gates have passed, and four in five.
"""

from __future__ import annotations

import argparse
import time

import numpy as np
from numpy.random import Generator

from evenhand.core.stats.sequence import ConfidenceSequence
from evenhand.results.gate import Gate

MARGINS = (0.05, 0.1, 0.15, 0.2)
TIES = (0.0, 0.3, 0.6)
_MOST = {0.05: 12_000, 0.1: 4_000, 0.15: 2_000, 0.2: 1_500}


def pairs_to_pass(rng: Generator, margin: float, ties: float) -> float:
    """After how many pairs a gate passes an equally good model; infinite where it does not."""
    sequence, bar = ConfidenceSequence(), Gate(margin).bar
    scores = rng.choice([1.0, 0.5, 0.0], _MOST[margin], p=[(1 - ties) / 2, ties, (1 - ties) / 2])
    for number, score in enumerate(scores, 1):
        sequence.add(float(score))
        if sequence.bounds.low > bar:
            return number
        if sequence.bounds.high < bar:
            return float("inf")
    return float("inf")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repetitions", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    began, rng = time.monotonic(), np.random.default_rng(options.seed)
    heads = ["margin", *(f"{100 * ties:.0f}% ties" for ties in TIES)]
    print("| " + " | ".join(heads) + " |\n" + "|---" * len(heads) + "|")
    for margin in MARGINS:
        cells = []
        for ties in TIES:
            taken = [pairs_to_pass(rng, margin, ties) for _ in range(options.repetitions)]
            half, most = np.quantile(taken, [0.5, 0.8], method="higher")
            cells.append(f"{half:,.0f}, {most:,.0f}")
        print(f"| {100 * margin:g} points | " + " | ".join(cells) + " |", flush=True)
    print(f"\n{options.repetitions} repetitions, {time.monotonic() - began:.0f} s")


if __name__ == "__main__":
    main()
