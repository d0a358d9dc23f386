"""How often the intervals hold the truth, by simulation.

    python benchmarks/coverage.py                                # every study, as the tables of docs/statistics.md
    python benchmarks/coverage.py winrate paired --repetitions 500

A study draws data whose truth is known, many times over, and counts how often the interval holds it. Nominal is
95%: a row under 94% fails the run (under 93% where the study promises that, by more than chance), a row over 97%
says why more is forced. To add a study, write a generator of `Row` and enter it in STUDIES; `held` does the
counting.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from evenhand.core.stats.alpaca import alpaca_length_controlled
from evenhand.core.stats.clustered import mean
from evenhand.core.stats.length import length_controlled
from evenhand.core.stats.ppi import powered_rate
from evenhand.core.stats.winrate import mean_rate, paired_difference

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

    def short(self, repetitions: int) -> bool:
        """Whether it holds too seldom; where less is promised than was drawn for, by more than chance."""
        slack = 0.0 if self.lowest == LOWEST else 2 * np.sqrt(0.05 * 0.95 / repetitions)
        return bool(self.coverage < self.lowest - slack)

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
    repetitions: int


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

PROMISED = 0.93
# Truth, share of all pairs on which the judge errs, ties of people, whether the judge says how sure it is.
MISTAKES = (
    (0.05, 0.05, 0.0, False), (0.3, 0.05, 0.3, False), (0.6, 0.01, 0.0, False), (0.6, 0.05, 0.0, False),
    (0.6, 0.05, 0.0, True), (0.6, 0.2, 0.0, False), (0.6, 0.2, 0.0, True), (0.95, 0.05, 0.0, False),
)  # fmt: skip


def powered(repetitions: int, seed: int) -> Iterator[Row]:
    """One row for each number of labels and kind of error: the worst of its cells, which the row names."""
    for n in (10, 20, 50, 100, 500):
        for shape in ("no", "fives") if n > 10 else ("no",):
            for kind in ("losses into wins", "wins into losses", "both"):
                cells = [_powered(n, shape, kind, *cell, repetitions, seed) for cell in MISTAKES]
                worst = min(cells, key=lambda row: row.coverage)
                width = sum(row.width for row in cells) / len(cells)
                yield Row((*worst.setting[:3], worst.setting[3]), worst.coverage, width, 0.0, "", worst.lowest)


def _powered(
    n: int, shape: str, kind: str, rate: float, wrong: float, ties: float, soft: bool, repetitions: int, seed: int
) -> Row:
    pairs = max(800, 3 * n)
    sizes = SIZES[shape](pairs)
    into_win = 0.0 if kind == "wins into losses" else wrong if kind == "both" else min(1.0, wrong / (1 - rate))
    into_loss = 0.0 if kind == "losses into wins" else wrong if kind == "both" else min(1.0, wrong / rate)

    def both(rng: np.random.Generator, size: tuple[int, ...]) -> np.ndarray:
        truth, u = hard(rng, size, rate, ties), rng.random(size)
        said = np.where((truth == 0) & (u < into_win), 1.0, np.where((truth == 1) & (u < into_loss), 0.0, truth))
        return 2 * truth + 4 * 2 * said

    def draw(rng: np.random.Generator) -> tuple[Interval, float]:
        codes, cluster = clustered(rng, sizes, 0.5 if shape != "no" else 0.0, both)
        truth, said = codes % 4 / 2, codes // 4 / 2
        if soft:
            said = 0.5 + (said - 0.5) * rng.uniform(0.8, 1.0, pairs)
        found = powered_rate(np.where(rng.permutation(pairs) < n, truth, np.nan), said, cluster)
        return (found.low, found.high), rate

    cell = (
        f"{rate}, {100 * wrong:.0f}%" + (f", {100 * ties:.0f}% ties" if ties else "") + (", shares" if soft else "")
    )
    return held(draw, repetitions, seed, (str(n), shape, kind, cell), lowest=PROMISED)


# -- labels that were not drawn alike ---------------------------------------------------------------------------


def suggested(repetitions: int, seed: int) -> Iterator[Row]:
    """Labels mostly on pairs of which the judge is unsure; `plain` takes them for a random sample."""
    for n in (30, 50, 100, 300):
        for shape in ("no", "fives"):
            for what in ("people's rate", "accuracy"):
                for how in ("plain", "weighted"):
                    yield _suggested(n, shape, what, how, repetitions, seed)


def _suggested(n: int, shape: str, what: str, how: str, repetitions: int, seed: int) -> Row:
    sizes = SIZES[shape](1500)
    cluster = np.repeat(np.arange(len(sizes)), sizes)

    def draw(rng: np.random.Generator) -> tuple[Interval, float]:
        easy = rng.random(len(sizes))[cluster]
        truth = rng.random(1500) < 0.35 + 0.4 * easy
        right = rng.random(1500) < 0.5 + 0.49 * easy
        wish = 0.2 + 2.4 * (1 - easy) ** 3
        chance = np.minimum(1.0, wish / wish.sum() * n)
        drawn = rng.random(1500) < chance
        weights = 1 / chance if how == "weighted" else None
        if what == "accuracy":
            here = mean(right[drawn], cluster[drawn], weights=None if weights is None else weights[drawn])
            return (here.low, here.high), 0.745
        said = np.where(right, truth, ~truth)
        found = powered_rate(np.where(drawn, truth, np.nan), said, cluster, weights=weights)
        return (found.low, found.high), 0.55

    lowest = PROMISED if how == "weighted" else 0.0
    return held(draw, repetitions, seed, (str(n), shape, what, how), lowest=lowest)


# -- each pair the same, or each instruction --------------------------------------------------------------------


def weightings(repetitions: int, seed: int) -> Iterator[Row]:
    """Large instructions are won in 30% and small ones in 70%, so that the two rates are not the same number."""
    for instructions in (30, 100, 400):
        for large in (4, 30):
            for weighting in ("pairs", "instructions"):
                yield _weighting(instructions, large, weighting, repetitions, seed)


def _weighting(instructions: int, large: int, weighting: str, repetitions: int, seed: int) -> Row:
    truth = {"pairs": (0.2 * large * 0.3 + 0.8 * 0.7) / (0.2 * large + 0.8), "instructions": 0.62}[weighting]

    def draw(rng: np.random.Generator) -> tuple[Interval, float]:
        sizes = np.where(rng.random(instructions) < 0.2, large, 1)
        cluster = np.repeat(np.arange(instructions), sizes)
        alike = rng.random(len(cluster)) < np.sqrt(0.5)
        u = np.where(alike, rng.random(instructions)[cluster], rng.random(len(cluster)))
        values = (u < np.where(sizes > 1, 0.3, 0.7)[cluster]).astype(float)
        found = mean_rate(values, cluster, weighting=weighting)  # type: ignore[arg-type]
        return (found.low, found.high), truth

    return held(draw, repetitions, seed, (str(instructions), str(large), weighting), "few", PROMISED)


# -- AlpacaEval's length control --------------------------------------------------------------------------------


def alpaca(repetitions: int, seed: int) -> Iterator[Row]:
    for n, shape in ((50, "no"), (200, "no"), (805, "no"), (500, "fives")):
        for rate in (0.2, 0.6):
            yield _alpaca(n, shape, rate, repetitions, seed)


def _alpaca(n: int, shape: str, rate: float, repetitions: int, seed: int) -> Row:
    sizes = SIZES[shape](n)
    cluster = np.repeat(np.arange(len(sizes)), sizes)
    level, grid = np.log(rate / (1 - rate)), np.random.default_rng(0).normal(0, 1, 200_000)
    truth = float((1 / (1 + np.exp(-(level + 0.7 * grid)))).mean())

    def draw(rng: np.random.Generator) -> tuple[Interval, float]:
        longer, difficulty = rng.normal(80, 200, n), rng.normal(0, 1, len(sizes))[cluster]
        chance = 1 / (1 + np.exp(-(level + 1.5 * np.tanh(longer / 200) + 0.7 * difficulty)))
        u = np.where(rng.random(n) < (0.7 if shape != "no" else 0), rng.random(len(sizes))[cluster], rng.random(n))
        found = alpaca_length_controlled((u < chance).astype(float), longer, cluster, difficulty=difficulty)
        return (found.low, found.high), truth

    return held(draw, repetitions, seed, (str(n), shape, f"{rate}"), "few", PROMISED)


STUDIES: dict[str, Study] = {
    "winrate": Study("Win rate", ("pairs", "clusters", "reading", "rate", "ties"), winrates, 1500),
    "weighting": Study("By pairs and by instructions", ("instructions", "large", "weighting"), weightings, 1500),
    "paired": Study("Paired difference", ("pairs", "clusters", "first", "second", "alike"), paired, 1500),
    "length": Study("At equal length", ("pairs", "clusters", "rate", "effect", "of"), lengths, 1000),
    "alpaca": Study("AlpacaEval's length control", ("pairs", "clusters", "rate"), alpaca, 1000),
    "human": Study(
        "Prediction-powered, worst cell of eight", ("labels", "clusters", "errors", "worst at"), powered, 500
    ),
    "suggested": Study("Labels on suggested pairs", ("labels", "clusters", "of", "labels taken"), suggested, 500),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("studies", nargs="*", help=f"of {', '.join(STUDIES)}; all by default")
    parser.add_argument("--repetitions", type=int, help="of each row; by default as many as its study needs")
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    low = 0
    for name in args.studies or STUDIES:
        study, began = STUDIES[name], time.monotonic()
        repetitions = args.repetitions or study.repetitions
        print(f"\n**{study.title}** ({repetitions:,} repetitions, seed {args.seed})\n")
        columns = [*study.columns, "held, %", "mean width", "note"]
        print("| " + " | ".join(columns) + " |\n|" + "--:|" * (len(columns) - 1) + "---|")
        for row in study.rows(repetitions, args.seed):
            low += row.short(repetitions)
            print("| " + " | ".join(row.cells()) + " |", flush=True)
        print(f"{name}: {time.monotonic() - began:.0f} s", file=sys.stderr)
    sys.exit(1 if low else 0)


if __name__ == "__main__":
    main()
