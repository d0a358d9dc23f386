"""How often the intervals hold the truth, by simulation.

    python benchmarks/coverage.py                                # every study, as the tables of docs/statistics.md
    python benchmarks/coverage.py winrate paired --repetitions 500

A study draws data whose truth is known, many times over, and counts how often the interval holds it. Nominal is
95%: a row under 94% fails the run, a row over 97% says why more is forced. To add a study, write a generator of
`Row` and enter it in STUDIES; `held` does the counting.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from evenhand.stats.length import length_controlled
from evenhand.stats.ppi import powered_rate
from evenhand.stats.winrate import mean_rate, paired_difference

LOWEST, HIGHEST = 0.94, 0.97
Interval = tuple[float | None, float | None]
Kind = Callable[..., np.ndarray]
Draw = Callable[[np.random.Generator], tuple[Interval, float]]


@dataclass(frozen=True)
class Row:
    """One line of a table: what was drawn, how often the interval held the truth, how wide it was on average."""

    setting: tuple[str, ...]
    coverage: float
    width: float
    none: float  # share of draws for which no interval exists
    why: str = ""  # what forces more than 97%, where something does
    lowest: float = LOWEST

    def cells(self) -> list[str]:
        """The line as text."""
        note = self.why if self.coverage > HIGHEST else ""
        if self.none:
            note = f"none in {100 * self.none:.1f}%" + (f"; {note}" if note else "")
        return [*self.setting, f"{100 * self.coverage:.1f}", f"{self.width:.3f}", note]


@dataclass(frozen=True)
class Study:
    """A table: the names of its first columns, and the rows."""

    title: str
    columns: tuple[str, ...]
    rows: Callable[[int, int], Iterator[Row]]


def held(
    draw: Draw, repetitions: int, seed: int, setting: tuple[str, ...], why: str = "", lowest: float = LOWEST
) -> Row:
    """Draw many times and count; an interval of None is left out of the coverage and counted beside it."""
    rng = np.random.default_rng([seed, *(ord(letter) for part in setting for letter in part)])
    hits = none = 0
    widths = 0.0
    for _ in range(repetitions):
        (low, high), truth = draw(rng)
        if low is None or high is None:
            none += 1
            continue
        hits += low - 1e-12 <= truth <= high + 1e-12
        widths += high - low
    there = repetitions - none
    return Row(
        setting, hits / there if there else 0.0, widths / there if there else 0.0, none / repetitions, why, lowest
    )


# -- win rates --------------------------------------------------------------------------------------------------


def hard(rng: np.random.Generator, shape: tuple[int, ...], rate: float, ties: float) -> np.ndarray:
    """Verdicts with this mean: 1, 1/2, 0."""
    u = rng.random(shape)
    return np.where(u < rate - ties / 2, 1.0, np.where(u < rate + ties / 2, 0.5, 0.0))


def expected(rng: np.random.Generator, shape: tuple[int, ...], rate: float, ties: float) -> np.ndarray:
    """Shares between 0 and 1 with this mean; at 0.9 they lean heavily to one side."""
    return rng.beta(4 * rate, 4 * (1 - rate), shape) if rate < 1 else np.ones(shape)


def clustered(
    rng: np.random.Generator, sizes: np.ndarray, alike: float, kind: Kind, *how: float
) -> tuple[np.ndarray, np.ndarray]:
    """Values in clusters: each takes the common one of its cluster with probability sqrt(alike), else its own."""
    cluster = np.repeat(np.arange(len(sizes)), sizes)
    common = kind(rng, (len(sizes),), *how)[cluster]
    own = kind(rng, (len(cluster),), *how)
    return np.where(rng.random(len(cluster)) < np.sqrt(alike), common, own), cluster


SIZES: dict[str, Callable[[int], np.ndarray]] = {
    "no": lambda n: np.ones(n, dtype=int),
    "twos": lambda n: np.full(n // 2, 2),
    "fives": lambda n: np.full(n // 5, 5),
    "1 to 8": lambda n: np.tile([1, 1, 2, 1, 5, 3, 8, 1, 2, 1], n // 25 + 1)[: max(4, 10 * n // 25)],
}


def winrates(repetitions: int, seed: int) -> Iterator[Row]:
    cases = [(0.5, 0.0, hard), (0.5, 0.3, hard), (0.9, 0.0, hard), (0.9, 0.1, hard), (1.0, 0.0, hard)]
    cases += [(0.5, 0.0, expected), (0.9, 0.0, expected)]
    for n in (10, 50, 500):
        for shape in ("no", "twos", "fives", "1 to 8"):
            if shape == "1 to 8" and n < 50:
                continue
            sizes = SIZES[shape](n)
            for rate, ties, kind in cases:
                yield _winrate(sizes, shape, rate, ties, kind, repetitions, seed)


def _winrate(
    sizes: np.ndarray,
    shape: str,
    rate: float,
    ties: float,
    kind: Callable[..., np.ndarray],
    repetitions: int,
    seed: int,
) -> Row:
    def draw(rng: np.random.Generator) -> tuple[Interval, float]:
        found = mean_rate(*clustered(rng, sizes, 0.5 if shape != "no" else 0.0, kind, rate, ties))
        return (found.low, found.high), rate

    name = "expected" if kind is expected else "hard"
    few = f"few trials: {len(sizes)} clusters" if shape != "no" else f"few trials: {len(sizes)}"
    why = "the edge" if rate == 1 else few if len(sizes) <= 50 else ""
    setting = (str(int(sizes.sum())), shape, name, f"{rate}", f"{100 * ties:.0f}%")
    return held(draw, repetitions, seed, setting, why)


# -- two readings of the same pairs -----------------------------------------------------------------------------


def paired(repetitions: int, seed: int) -> Iterator[Row]:
    for n in (10, 50, 500):
        for shape in ("no", "fives"):
            for first, second, agree in ((0.5, 0.5, 0.8), (0.7, 0.6, 0.5), (0.9, 0.8, 0.8)):
                yield _paired(n, shape, first, second, agree, repetitions, seed)


def _paired(n: int, shape: str, first: float, second: float, agree: float, repetitions: int, seed: int) -> Row:
    sizes = SIZES[shape](n)

    def both(rng: np.random.Generator, size: tuple[int, ...]) -> np.ndarray:
        u = rng.random(size)
        v = np.where(rng.random(size) < agree, u, rng.random(size))  # two judges that look at the same things
        return (u < first).astype(float) + 2.0 * (v < second)

    def draw(rng: np.random.Generator) -> tuple[Interval, float]:
        codes, cluster = clustered(rng, sizes, 0.5 if shape != "no" else 0.0, both)
        found = paired_difference(codes % 2, codes // 2, cluster)
        return (found.low, found.high), first - second

    setting = (str(n), shape, f"{first}", f"{second}", f"{agree}")
    few = f"few trials: {len(sizes)} clusters" if shape != "no" else "few pairs on which they differ"
    return held(draw, repetitions, seed, setting, few if len(sizes) <= 50 else "")


# -- at equal length --------------------------------------------------------------------------------------------


def lengths(repetitions: int, seed: int) -> Iterator[Row]:
    for n in (40, 50, 500):
        for shape in ("no", "fives") if n >= 500 else ("no",):
            for rate, effect in ((0.5, 0.0), (0.5, 1.0), (0.8, 1.0), (0.9, 0.5)):
                for what in ("rate", "effect"):
                    yield _length(n, shape, rate, effect, what, repetitions, seed)


def _length(n: int, shape: str, rate: float, effect: float, what: str, repetitions: int, seed: int) -> Row:
    sizes = SIZES[shape](n)
    cluster = np.repeat(np.arange(len(sizes)), sizes)
    odds = np.log(rate / (1 - rate))

    def draw(rng: np.random.Generator) -> tuple[Interval, float]:
        longer = rng.normal(80, 200, n)  # side 1 is the longer one, mostly
        spread = np.hypot(80, 200)
        chance = 1 / (1 + np.exp(-(odds + effect / np.tanh(1) * np.tanh(longer / spread))))
        u = np.where(
            rng.random(n) < (0.7 if shape != "no" else 0.0), rng.random(len(sizes))[cluster], rng.random(n)
        )
        found = length_controlled((u < chance).astype(float), longer, cluster)
        if what == "rate":
            return (found.low, found.high), rate
        return (found.effect_low, found.effect_high), effect

    why = "few trials" if n <= 50 else ""
    return held(draw, repetitions, seed, (str(n), shape, f"{rate}", f"{effect}", what), why)


# -- labels on some pairs, verdicts on all ----------------------------------------------------------------------


def powered(repetitions: int, seed: int) -> Iterator[Row]:
    for labelled, n in ((20, 200), (50, 500), (200, 2000)):
        for shape in ("no", "fives"):
            for rate, right, bias in ((0.5, 0.8, 0.0), (0.5, 0.8, 0.3), (0.9, 0.9, 0.3), (0.6, 0.5, 0.0)):
                yield _powered(labelled, n, shape, rate, right, bias, repetitions, seed)


def _powered(
    labelled: int, n: int, shape: str, rate: float, right: float, bias: float, repetitions: int, seed: int
) -> Row:
    sizes = SIZES[shape](n)

    def both(rng: np.random.Generator, size: tuple[int, ...]) -> np.ndarray:
        truth = rng.random(size) < rate
        said = np.where(rng.random(size) < right, truth, ~truth)
        return truth + 2.0 * (said | (rng.random(size) < bias))  # a judge that leans to side 1

    def draw(rng: np.random.Generator) -> tuple[Interval, float]:
        codes, cluster = clustered(rng, sizes, 0.5 if shape != "no" else 0.0, both)
        labels = np.where(rng.permutation(n) < labelled, codes % 2, np.nan)
        found = powered_rate(labels, codes // 2, cluster)
        return (found.low, found.high), rate

    setting = (str(labelled), str(n), shape, f"{rate}", f"{right}", f"{bias}")
    return held(draw, repetitions, seed, setting, "few labels" if labelled <= 50 else "")


STUDIES: dict[str, Study] = {
    "winrate": Study("Win rate", ("pairs", "clusters", "reading", "rate", "ties"), winrates),
    "paired": Study("Paired difference", ("pairs", "clusters", "first", "second", "alike"), paired),
    "length": Study("At equal length", ("pairs", "clusters", "rate", "effect", "of"), lengths),
    "human": Study(
        "Prediction-powered", ("labels", "pairs", "clusters", "rate", "judge right", "judge's leaning"), powered
    ),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("studies", nargs="*", help=f"of {', '.join(STUDIES)}; all by default")
    parser.add_argument("--repetitions", type=int, default=4000)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    low = 0
    for name in args.studies or STUDIES:
        study, began = STUDIES[name], time.monotonic()
        print(f"\n**{study.title}** ({args.repetitions:,} repetitions, seed {args.seed})\n")
        columns = [*study.columns, "held, %", "mean width", "note"]
        print("| " + " | ".join(columns) + " |\n|" + "--:|" * (len(columns) - 1) + "---|")
        for row in study.rows(args.repetitions, args.seed):
            low += row.coverage < row.lowest
            print("| " + " | ".join(row.cells()) + " |", flush=True)
        print(f"{name}: {time.monotonic() - began:.0f} s", file=sys.stderr)
    sys.exit(1 if low else 0)


if __name__ == "__main__":
    main()
