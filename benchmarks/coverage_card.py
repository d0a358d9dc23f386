"""How often the intervals of the judge's card hold the truth, by simulation.

    python benchmarks/coverage_card.py --repetitions 2000
    python benchmarks/coverage_card.py trust

Each row draws data whose truth is known, works out the interval, and counts how often it holds the truth. The
second table has the word of trust: how often a judge that does not deserve a *yes* gets one, and how often those
get it that do. Tables are Markdown. A seed decides all of it.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from evenhand.core.stats import agreement, bias, calibration, noise, trust
from evenhand.core.stats.clustered import Estimate, mean

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


def position_biases(rng: np.random.Generator, truth: float, n: int) -> Estimate:
    """A judge that says A whatever it sees with this probability, and is fair otherwise."""
    real = rng.integers(0, 2, n)
    stuck = rng.random((2, n)) < truth
    return bias.position_bias(np.where(stuck[0], 0, real), np.where(stuck[1], 1, real), range(n))


NOISES = {"noise": "noise", "position": "position bias beyond noise", "noise_share": "share of noise in changes"}


def answers(rng: np.random.Generator, n: int, order: float) -> tuple[np.ndarray, np.ndarray]:
    """How likely side 1 is in each order, for a judge of mixed opinions that an order moves by so many log-odds."""
    opinion = rng.normal(0, 2, n)
    first, second = (1 / (1 + np.exp(-(opinion + sign * order))) for sign in (1, -1))
    return first, second


def noises(rng: np.random.Generator, n: int, order: float, name: str) -> Estimate:
    """A judge asked twice in each order; one answer in ten is a tie."""

    def drawn(p: np.ndarray) -> np.ndarray:
        said = np.where(rng.random((n, 2)) < p[:, None], 0, 1)
        return np.where(rng.random((n, 2)) < 0.1, 2, said)

    first, second = answers(rng, n, order)
    found = noise.split_changes(drawn(first), drawn(second), range(n))
    return {"noise": found.noise, "position": found.position, "noise_share": found.noise_share}[name]


def noise_truth(order: float) -> dict[str, float]:
    """What endless pairs would show."""
    tables = [
        np.column_stack([0.9 * p, 0.9 * (1 - p), np.full(len(p), 0.1)])
        for p in answers(np.random.default_rng(0), 400_000, order)
    ]
    within = float(np.mean([1 - (table**2).sum(axis=1) for table in tables]))
    changes = float(np.mean(1 - (tables[0] * tables[1]).sum(axis=1)))
    return {"noise": within, "position": changes - within, "noise_share": within / changes}


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
            yield "position bias", f"{n} pairs", truth, lambda r, t=truth, n=n: position_biases(r, t, n)
    for order in (0.0, 1.0, 3.0):
        for name, true in noise_truth(order).items():
            for n in (30, 200):
                yield NOISES[name], f"{n} pairs", true, lambda r, n=n, o=order, w=name: noises(r, n, o, w)


# -- the word of trust ----------------------------------------------------------------------------------------

VOTERS = 3
LABELS = (20, 30, 50, 100, 200, 1000)


@dataclass(frozen=True)
class Judge:
    """A judge and the people beside it: how often each sees what is there, how often side 1 is better."""

    name: str
    person: float
    judge: float = 0.5
    skew: float = 0.5
    longer: float = 0.55  # how often the longer output is the better one
    like: str = ""  # what the judge does in place of looking
    each: int = 1  # pairs of one instruction, all or none of which the judge sees

    def draw(self, rng: np.random.Generator, n: int) -> trust.Measures:
        """What so many labelled pairs show."""
        home = np.arange(n) // self.each
        real = (rng.random(n) >= self.skew).astype(np.int64)
        votes = np.where(rng.random((n, VOTERS)) < self.person, real[:, None], 1 - real[:, None])
        if self.like == "nobody agrees":
            votes = (rng.random((n, VOTERS)) >= self.skew).astype(np.int64)
        second = votes.sum(axis=1)
        counts = np.column_stack([VOTERS - second, second, np.zeros(n, dtype=np.int64)])
        longer = np.where(rng.random(n) < self.longer, real, 1 - real)
        said = np.where(rng.random(home[-1] + 1)[home] < self.judge, real, 1 - real)
        if self.like == "same side":
            said = np.zeros(n, dtype=np.int64)
        elif self.like == "habit":
            said = (rng.random(n) >= self.skew).astype(np.int64)
        elif self.like == "longer":
            said = np.where(rng.random(n) < 0.9, longer, rng.integers(0, 2, n))
        return trust.measure(said, said, (2 * second > VOTERS).astype(np.int64), longer, home, counts)


def at_the_margin(person: float, margin: float = trust.MARGIN) -> float:
    """How often a judge must be right to score just the margin less than one person, by two others who agree."""
    both, neither = person**2, (1 - person) ** 2
    score = (person * both + (1 - person) * neither) / (both + neither) - margin
    return (score * (both + neither) - neither) / (both - neither)


UNDESERVED = (
    *(
        Judge(f"a margin below people who are right on {p:.0%}", p, at_the_margin(p))
        for p in (0.8, 0.9, 0.95, 0.999)
    ),
    Judge("the same, 3 pairs of one instruction", 0.95, at_the_margin(0.95), each=3),
    Judge("always the same side, which is right on 90%", 0.95, skew=0.9, like="same side"),
    Judge("says 1 on 90% of pairs, as people do, whatever it sees", 0.95, skew=0.9, like="habit"),
    Judge("mostly the longer output, which is right on 85%", 0.85, longer=0.85, like="longer"),
    Judge("a coin", 0.9),
    Judge("sees nothing, and people do not agree, 90% on one side", 0.5, skew=0.9, like="nobody agrees"),
)
DESERVED = (Judge("as good as a person, 90%", 0.9, 0.9), Judge("97% beside people of 80%", 0.8, 0.97))


def trust_table(repetitions: int, seed: int) -> bool:
    """How often each judge is given a yes; whether one is that should not be in more than 5% of draws."""
    heads = ("judge", *(f"{n} labels" for n in LABELS))
    print(f"| {' | '.join(heads)} |\n|---|{'--:|' * len(LABELS)}")
    failed = False
    for judge in (*UNDESERVED, *DESERVED):
        shares = []
        for n in LABELS:
            rng = np.random.default_rng([seed, n])
            yes = sum(trust.weigh(judge.draw(rng, n)).word == "yes" for _ in range(repetitions))
            shares.append(yes / repetitions)
        print(f"| {judge.name} | {' | '.join(f'{100 * share:.1f}%' for share in shares)} |", flush=True)
        chance = 2 * (0.05 * 0.95 / repetitions) ** 0.5
        failed |= judge in UNDESERVED and max(shares) > 0.05 + chance
    return failed


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
    parser.add_argument("table", nargs="?", choices=("intervals", "trust", "all"), default="all")
    parser.add_argument("--repetitions", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    if args.table != "trust":
        print("| figure | data | truth | covered | mean width |\n|---|---|--:|--:|--:|")
        for name, data, truth, draw in cases():
            covered, width = measure(draw, truth, args.repetitions, args.seed)
            print(f"| {name} | {data} | {truth:.2f} | {100 * covered:.1f}% | {width:.3f} |", flush=True)
        print()
    sys.exit(args.table != "intervals" and trust_table(max(args.repetitions // 2, 1), args.seed))


if __name__ == "__main__":
    main()
