"""What few instructions cost `evenhand calibrate`: held-out log-loss in simulated sets whose truth is known.

    python benchmarks/calibration_few.py --repetitions 120

Each instruction has 15 pairs, and its people lean to the longer or the shorter output by an amount of its own. The
judge's log-odds either say nothing of the labels or have to be taken times six. A judge that says nothing is to
have a signal in about 5% of the sets.
"""

from __future__ import annotations

import argparse

import numpy as np

from evenhand.core.stats.calibration import Calibration, fit, log_losses

PAIRS, TIE = 15, -0.5


def draw(instructions: int, worth: float, rng: np.random.Generator) -> tuple[Calibration, float]:
    """One set: what was fitted to it, and the log-loss of the true model without the leanings."""
    groups = np.repeat(np.arange(instructions), PAIRS)
    odds, length = rng.normal(0, 0.13, len(groups)), rng.normal(0, 0.5, len(groups))
    leaning = rng.normal(0, 0.7, instructions)[groups] * np.sign(length)
    truth = [rng.choice(3, p=row) for row in probabilities(worth * odds + leaning, TIE)]
    fitted = fit(probabilities(odds, -0.1), odds, length, truth, groups)
    return fitted, float(log_losses(probabilities(worth * odds, TIE), truth).mean())


def probabilities(sides: np.ndarray, tie: float) -> np.ndarray:
    weights = np.exp(np.column_stack([sides / 2, -sides / 2, np.full(len(sides), tie)]))
    return np.asarray(weights / weights.sum(axis=1, keepdims=True))


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--repetitions", type=int, default=120)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    rng = np.random.default_rng(args.seed)
    print(
        "| instructions | the judge | has a signal | above the true model | it falls by | shown to fall |",
        "|--:|---|--:|--:|--:|--:|",
        sep="\n",
    )
    for instructions in (10, 20, 50):
        for judge, worth in (("knows nothing", 0.0), ("knows something", 6.0)):
            sets = [draw(instructions, worth, rng) for _ in range(args.repetitions)]
            above = np.mean([fitted.after.log_loss - best for fitted, best in sets])
            falls = np.mean([fitted.gain.value for fitted, _ in sets])
            shown = np.mean([(fitted.gain.low or 0) > 0 for fitted, _ in sets])
            signal = np.mean([fitted.signal for fitted, _ in sets])
            assert min(fitted.slope for fitted, _ in sets) >= 0
            print(f"| {instructions} | {judge} | {signal:.0%} | {above:.3f} | {falls:.3f} | {shown:.0%} |")


if __name__ == "__main__":
    main()
