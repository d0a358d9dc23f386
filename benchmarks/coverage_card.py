"""How often the intervals of the judge's card hold the truth, by simulation.

    python benchmarks/coverage_card.py --repetitions 2000

Each row draws data whose truth is known, works out the interval, and counts how often it holds the truth. The table
is Markdown. A seed decides all of it.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator

import numpy as np

from evenhand.stats import agreement, bias, calibration
from evenhand.stats.clustered import Estimate, mean

Draw = Callable[[np.random.Generator], Estimate]
# How often people say 1, 2 and tie in what is drawn here.
HABITS = np.array([0.45, 0.45, 0.1])


def shares(rng: np.random.Generator, truth: float, clusters: int, alone: bool) -> Estimate:
    """A share, where pairs of one instruction are alike (intraclass correlation one half) or all stand alone."""
    if alone:
        return mean(rng.random(clusters) < truth, range(clusters))
    sizes = rng.integers(1, 8, clusters)
    which = np.repeat(np.arange(clusters), sizes)
    chance = np.repeat(rng.beta(truth, 1 - truth, clusters), sizes)
    return mean(rng.random(len(which)) < chance, which)


def kappas(rng: np.random.Generator, truth: float, n: int) -> Estimate:
    """Two who agree on purpose with this probability and follow their habits otherwise."""
    one = rng.choice(3, n, p=HABITS)
    other = np.where(rng.random(n) < truth, one, rng.choice(3, n, p=HABITS))
    return agreement.cohen_kappa(one, other, range(n))


def alphas(rng: np.random.Generator, truth: float, n: int) -> Estimate:
    """Three people, each of whom sees what is there with the root of this probability."""
    real = rng.choice(3, n, p=HABITS)[:, None]
    votes = np.where(rng.random((n, 3)) < truth**0.5, real, rng.choice(3, (n, 3), p=HABITS))
    counts = np.stack([(votes == c).sum(axis=1) for c in range(3)], axis=1)
    return agreement.krippendorff_alpha(counts, range(n))


def differences(rng: np.random.Generator, gap: float, n: int) -> Estimate:
    """Two judges that are right on mostly the same pairs."""
    luck = rng.random(n)
    other = np.where(rng.random(n) < 0.5, luck, rng.random(n))
    return agreement.compare(luck < 0.7, other < 0.7 - gap, range(n))


def briers(rng: np.random.Generator, n: int) -> Estimate:
    """A calibrated judge on decided pairs, with probabilities spread evenly."""
    share = rng.random(n)
    p = np.column_stack([share, 1 - share, np.zeros(n)])
    return calibration.brier_binary(p, (rng.random(n) > share).astype(int), range(n))


def lifts(rng: np.random.Generator, truth: float, n: int) -> Estimate:
    """A judge that says A whatever it sees with this probability, and is fair otherwise."""
    real = rng.integers(0, 2, n)
    stuck = rng.random((2, n)) < truth
    return bias.position_lift(np.where(stuck[0], 0, real), np.where(stuck[1], 1, real), range(n))


def cases() -> Iterator[tuple[str, str, float, Draw]]:
    for n in (10, 50, 500):
        for truth in (0.5, 0.7, 0.9):
            yield "accuracy", f"{n} pairs", truth, lambda r, t=truth, n=n: shares(r, t, n, True)
    for n in (10, 50, 200):
        for truth in (0.5, 0.7, 0.9):
            yield (
                "accuracy",
                f"{n} instructions, 1 to 7 pairs each",
                truth,
                lambda r, t=truth, n=n: shares(r, t, n, False),
            )
    for n in (20, 50, 200):
        for truth in (0.4, 0.8):
            yield "Cohen's kappa", f"{n} pairs", truth, lambda r, t=truth, n=n: kappas(r, t, n)
    for n in (20, 50, 200):
        for truth in (0.4, 0.8):
            yield "Krippendorff's alpha", f"{n} pairs", truth, lambda r, t=truth, n=n: alphas(r, t, n)
    for n in (20, 50, 200):
        for gap in (0.0, 0.1):
            yield "paired difference", f"{n} pairs", gap, lambda r, g=gap, n=n: differences(r, g, n)
    for n in (20, 50, 200):
        yield "Brier, two sides", f"{n} pairs", 1 / 6, lambda r, n=n: briers(r, n)
    for n in (20, 50, 200):
        for truth in (0.1, 0.8):
            yield "position lift", f"{n} pairs", truth, lambda r, t=truth, n=n: lifts(r, t, n)


def measure(draw: Draw, truth: float, repetitions: int, seed: int) -> tuple[float, float]:
    """The share of intervals that hold the truth, and their mean width."""
    rng = np.random.default_rng(seed)
    hits, width, made = 0, 0.0, 0
    for _ in range(repetitions):
        found = draw(rng)
        if found.low is None or found.high is None:
            continue
        made += 1
        hits += found.low - 1e-12 <= truth <= found.high + 1e-12
        width += found.high - found.low
    return hits / made, width / made


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--repetitions", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    print("| figure | data | truth | covered | mean width |\n|---|---|--:|--:|--:|")
    for name, data, truth, draw in cases():
        covered, width = measure(draw, truth, args.repetitions, args.seed)
        print(f"| {name} | {data} | {truth:.2f} | {100 * covered:.1f}% | {width:.3f} |", flush=True)


if __name__ == "__main__":
    main()
