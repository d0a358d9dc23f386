"""Does the confidence sequence hold when one looks after every observation, and what does that cost?

    python benchmarks/sequence.py                     2,000 repetitions of 500 observations in each case
    python benchmarks/sequence.py --repetitions 100   a quick look

The column "sequence" is the share of sequences that held the truth at every look, "fixed n" what becomes of
Wilson's 95% interval when one looks at it after every observation from the tenth on. "decided" is the share that
excluded one half at some time, "wrongly" those that put it on the wrong side. Widths: the sequence's / Wilson's.

The second table stops each run as soon as the sequence excludes one half, or at the end: how often the interval at
that moment holds the truth (the sequence's, and Wilson's), and how far the share and the middle of the interval lie
from it.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from dataclasses import dataclass
from statistics import NormalDist

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from evenhand.core.stats.sequence import _STEPS, ConfidenceSequence, _bets
from evenhand.core.stats.stopping import anytime_interval

LENGTH = 500
LOOKS = (20, 50, 100, 200, 500)
WIDTHS = 50  # sequences of each case that are gone through one by one, for their widths and as a check
CHUNK = 200
ENOUGH = 2 / 0.05  # times the stake
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

    held: int
    fixed_held: int
    decided: Floats  # after how many observations, of those that were
    wrong: int
    widths: dict[int, float]
    fixed_widths: dict[int, float]


def wilson(totals: Floats, n: Floats) -> tuple[Floats, Floats]:
    """Wilson's interval of many shares at once."""
    share, z = totals / n, NormalDist().inv_cdf(0.975)
    centre = (share + z * z / (2 * n)) / (1 + z * z / n)
    half = z / (1 + z * z / n) * np.sqrt(share * (1 - share) / n + z * z / (4 * n * n))
    return np.minimum(share, centre - half), np.maximum(share, centre + half)


def first_ruled_out(values: Floats, means: Floats) -> Floats:
    """Of many sequences, a few hundred at a time: as many as a processor's cache holds."""
    cuts = range(CHUNK, len(values), CHUNK)
    parts = zip(np.split(values, cuts), np.split(means, cuts), strict=True)
    return np.concatenate([_first_ruled_out(some, theirs) for some, theirs in parts])


def _first_ruled_out(values: Floats, means: Floats) -> Floats:
    """For many sequences at once: after how many observations a mean is ruled out from below; infinity if never.

    The same game as in evenhand.core.stats.sequence, for one mean each instead of all; `measure` compares the two.
    """
    bets, log_weights = _bets()
    capitals, weights = np.ones((len(values), len(bets))), np.exp(log_weights)
    first = np.full(len(values), np.inf)
    possible = means > 0  # a mean of 0 cannot be too high
    for n, column in enumerate(np.floor(values * _STEPS).T / _STEPS, 1):
        gains = np.divide(column, means, out=np.ones_like(column), where=possible) - 1
        capitals *= 1 + bets * gains[:, None]
        hit = (capitals @ weights >= ENOUGH) & np.isinf(first)
        first[hit] = n
    return first


def measure(draw: Draw, repetitions: int, seed: int) -> Tally:
    """Many sequences from their first observation to their last, looked at after each."""
    rng = np.random.default_rng(seed)
    drawn = [draw(rng) for _ in range(repetitions)]
    truths, rows = np.array([truth for truth, _ in drawn]), np.stack([rows for _, rows in drawn])
    known, least, most = rows[:, 0], rows[:, 1], rows[:, 2]
    missed = np.minimum(first_ruled_out(least, truths), first_ruled_out(1 - most, 1 - truths))
    above = first_ruled_out(least, np.full(repetitions, 0.5))
    below = first_ruled_out(1 - most, np.full(repetitions, 0.5))
    wrong = ((above < below) & (truths <= 0.5)) | ((below < above) & (truths >= 0.5))
    after = np.minimum(above, below)
    totals, counts = np.nancumsum(known, axis=1), np.cumsum(~np.isnan(known), axis=1)
    low, high = wilson(totals, np.maximum(counts, 1))
    holds = ((low <= truths[:, None]) & (truths[:, None] <= high))[:, 9:].all(axis=1)
    looks = [n for n in LOOKS if n <= known.shape[1]]
    widths = check_and_measure(rows[:WIDTHS], truths, missed, after, looks)
    fixed = {n: float((high - low)[:, n - 1].mean()) for n in looks}
    return Tally(
        int(np.isinf(missed).sum()), int(holds.sum()), after[np.isfinite(after)], int(wrong.sum()), widths, fixed
    )


def check_and_measure(
    rows: Floats, truths: Floats, missed: Floats, after: Floats, looks: list[int]
) -> dict[int, float]:
    """The widths of real sequences, which must rule out the same means after the same number of observations."""
    widths: dict[int, list[float]] = {n: [] for n in looks}
    for case, truth, first, decided in zip(rows, truths, missed, after, strict=False):
        sequence, seen, settled = ConfidenceSequence(), np.inf, np.inf
        for n, (value, least, most) in enumerate(case.T, 1):
            sequence.add(None if np.isnan(value) else float(value), float(least), float(most))
            bounds = sequence.bounds
            if not bounds.low < truth < bounds.high and 0 < truth < 1:
                seen = min(seen, n)
            if not bounds.low < 0.5 < bounds.high:
                settled = min(settled, n)
            if n in widths:
                widths[n].append(bounds.high - bounds.low)
        assert (seen, settled) == (first, decided), "the quick way and the sequence do not say the same"
    return {n: float(np.mean(found)) for n, found in widths.items()}


def row(name: str, tally: Tally, repetitions: int) -> str:
    """One line of the table."""
    widths = [f"{tally.widths[n]:.2f} / {tally.fixed_widths[n]:.2f}" if n in tally.widths else "–" for n in LOOKS]
    after = f"{np.median(tally.decided):.0f}" if len(tally.decided) > repetitions / 2 else "–"
    shares = [
        f"{100 * tally.held / repetitions:.1f}%",
        f"{100 * tally.fixed_held / repetitions:.1f}%",
        f"{100 * len(tally.decided) / repetitions:.1f}%",
        after,
        f"{100 * tally.wrong / repetitions:.1f}%",
    ]
    return "| " + " | ".join([name, *shares, *widths]) + " |"


def after_stopping(rate: float, ties: float, repetitions: int, seed: int) -> str:
    """One line of the second table; share and middle are as far from the truth as from one half outwards."""
    rng, draw = np.random.default_rng([seed, int(1000 * rate)]), bernoulli(rate, ties)
    held, fixed, ends = 0, 0, []
    truth = 0.5
    for _ in range(repetitions):
        truth, rows = draw(rng)
        sequence = ConfidenceSequence()
        for value in rows[0]:
            sequence.add(float(value))
            if sequence.bounds.low > 0.5 or sequence.bounds.high < 0.5:
                break
        found = anytime_interval(rows[0][: sequence.n].tolist())
        share, n = found.bounds.value or 0.0, np.array([float(sequence.n)])
        low, high = wilson(np.array([share]) * n, n)
        held += found.bounds.low <= truth <= found.bounds.high
        fixed += bool((low <= truth <= high)[0])
        ends.append((sequence.n, share - truth, (found.middle or 0.0) - truth))
    count, share_off, middle_off = np.array(ends).T
    figures = (f"{held / repetitions:.1%}", f"{fixed / repetitions:.1%}")
    offs = (f"{100 * share_off.mean():+.1f}", f"{100 * middle_off.mean():+.1f}")
    name = f"rate {rate}" + (f", {ties:.0%} ties" if ties else "")
    return "| " + " | ".join((name, f"{np.median(count):.0f}", *figures, *offs)) + " |"


STOPPED = ((0.5, 0.0), (0.5, 0.3), (0.55, 0.0), (0.6, 0.0), (0.7, 0.0), (0.7, 0.3), (0.9, 0.0))


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
    if options.case is None:
        heads = ["case", "stopped after (median)", "sequence", "fixed n", "share off, points", "middle off, points"]
        print("\n| " + " | ".join(heads) + " |\n" + "|---" * len(heads) + "|")
        for rate, ties in STOPPED:
            print(after_stopping(rate, ties, max(options.repetitions // 8, 1), options.seed), flush=True)
    print(f"\n{options.repetitions} repetitions of up to {LENGTH}, {time.monotonic() - began:.0f} s")


if __name__ == "__main__":
    main()
