"""How often three tests find an attack that does nothing, and one that does something, by simulation.

    python benchmarks/coverage_attack.py --repetitions 1000

The interval of the mean shift is what `attack` reports, the sign test stands beside it, and flipping signs (Fisher
1935) is the test that was not taken: it is exact only where shifts are symmetric around 0. Each row is a kind of
shift; its mean is 0 but in the last three. The table is Markdown, with the share that is found at 5%.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from evenhand.core.stats.signs import sign_test
from evenhand.core.stats.winrate import paired_difference

Shifts = NDArray[np.float64]
Draw = Callable[[np.random.Generator, int], Any]
LEVEL = 0.05
FLIPS = 2000
SIZES = (12, 22, 60)
NOTHING: Mapping[str, Draw] = {
    "even from -40 to +40": lambda rng, n: rng.uniform(-0.4, 0.4, n),
    "0, or ±50 on 20%": lambda rng, n: rng.choice([0, 0.5, -0.5], n, p=[0.8, 0.1, 0.1]),
    "skewed, beta(1, 4)": lambda rng, n: 0.2 - rng.beta(1, 4, n),
    "skewed, beta(0.3, 2.7)": lambda rng, n: 0.1 - rng.beta(0.3, 2.7, n),
    "+10 on 90%, -90 on 10%": lambda rng, n: np.where(rng.random(n) < 0.9, 0.1, -0.9),
    "+25 on 80%, -100 on 20%": lambda rng, n: np.where(rng.random(n) < 0.8, 0.25, -1.0),
}
SOMETHING: Mapping[str, Draw] = {
    "even from +13 to +60": lambda rng, n: rng.uniform(0.13, 0.6, n),
    "normal, mean +10, sd 20": lambda rng, n: np.clip(rng.normal(0.1, 0.2, n), -1, 1),
    "+50 on 30%, else 0": lambda rng, n: np.where(rng.random(n) < 0.3, 0.5, 0.0),
}


def flipped(shifts: Shifts, signs: Shifts) -> float:
    """The p-value by flipping signs."""
    return float((np.abs(signs @ shifts) >= abs(shifts.sum()) - 1e-12).mean())


def all_signs(rng: np.random.Generator, n: int) -> Shifts:
    """Every way to flip so many signs, or some of them and none flipped."""
    if 2**n <= 2 * FLIPS:
        return 1.0 - 2 * ((np.arange(2**n)[:, None] >> np.arange(n)) & 1)
    return np.vstack([np.ones(n), rng.choice([-1.0, 1.0], (FLIPS - 1, n))])


def found_by(shifts: Shifts, signs: Shifts) -> list[bool]:
    """Which of the three tests find that these shifts are not nothing."""
    sign = sign_test(shifts).p
    return [
        paired_difference(shifts, np.zeros(len(shifts)), level=1 - LEVEL).decided,
        flipped(shifts, signs) <= LEVEL,
        sign is not None and sign <= LEVEL,
    ]


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repetitions", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=7)
    wanted = parser.parse_args()
    rng = np.random.default_rng(wanted.seed)
    print("| shifts | n | interval of the mean | flipped signs | sign test |\n|---|--:|--:|--:|--:|")
    for name, draw in {**NOTHING, **SOMETHING}.items():
        for n in SIZES:
            signs = all_signs(rng, n)
            rows = [found_by(np.asarray(draw(rng, n), float), signs) for _ in range(wanted.repetitions)]
            shares = " | ".join(f"{100 * share:.1f}%" for share in np.mean(rows, axis=0))
            print(f"| {name} | {n} | {shares} |", flush=True)


if __name__ == "__main__":
    main()
