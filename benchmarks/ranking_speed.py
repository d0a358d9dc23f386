"""The speed of a ranking beside evalica's, on the same comparisons in the same run.

    python benchmarks/ranking_speed.py
    python benchmarks/ranking_speed.py --models 20 --comparisons 100000 --resamples 50

evalica's `newman` fits the same model (Newman 2023 writes Davidson's tie parameter as 2v), so its strengths must be
evenhand's; `bradley_terry` counts a tie as half a win. Its intervals come from a bootstrap over single comparisons,
which knows nothing of clusters; evenhand's come from the jackknife over instructions, and are part of its time.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from typing import Any

import evalica
import numpy as np

from evenhand.core.stats.ranking import rank_models


def comparisons(
    models: int, count: int, instructions: int, seed: int
) -> tuple[list[str], list[str], Any, list[str]]:
    """Models on an instruction each get an effect of chance, so that comparisons within it are dependent."""
    rng = np.random.default_rng(seed)
    strength = rng.normal(0, 1, models)
    one = rng.integers(0, models, count)
    two = (one + rng.integers(1, models, count)) % models
    home = rng.integers(0, instructions, count)
    effect = rng.normal(0, 0.5, (instructions, models))
    lead = strength[one] - strength[two] + effect[home, one] - effect[home, two]
    better, worse, tie = np.exp(lead / 2), np.exp(-lead / 2), 0.5
    place = rng.random(count) * (better + worse + tie)
    outcomes = np.where(place < better, "1", np.where(place < better + worse, "2", "tie")).tolist()
    names = [f"model-{number:03}" for number in range(models)]
    return [names[m] for m in one], [names[m] for m in two], outcomes, [f"task {g}" for g in home]


def timed(what: str, work: Callable[[], Any]) -> Any:
    """Do it, and print how long it took: on the clock, and of the processor."""
    clock, cpu = time.perf_counter(), time.process_time()
    found = work()
    print(f"| {what} | {time.perf_counter() - clock:.2f} | {time.process_time() - cpu:.2f} |", flush=True)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--models", type=int, default=100)
    parser.add_argument("--comparisons", type=int, default=1_000_000)
    parser.add_argument("--instructions", type=int, default=10_000)
    parser.add_argument("--resamples", type=int, default=10)
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    one, two, outcomes, clusters = comparisons(given.models, given.comparisons, given.instructions, given.seed)
    word = {"1": evalica.Winner.X, "2": evalica.Winner.Y, "tie": evalica.Winner.Draw}
    winners = [word[outcome] for outcome in outcomes]
    print(f"{given.models} models, {given.comparisons:,} comparisons, {given.instructions:,} instructions\n")
    print(f"evalica {evalica.__version__}, {time.strftime('%Y-%m-%d')}\n")
    print("| | seconds | of the processor |\n|---|---|---|")
    ranking = timed(
        "evenhand: ranking with intervals, groups, all differences",
        lambda: rank_models(one, two, outcomes, clusters),
    )
    timed("evenhand: the same, every comparison its own cluster", lambda: rank_models(one, two, outcomes))
    timed("evalica: bradley_terry, no intervals", lambda: evalica.bradley_terry(one, two, winners))
    newman = timed(
        "evalica: newman, no intervals", lambda: evalica.newman(one, two, winners, tolerance=1e-12, limit=100_000)
    )
    timed(
        f"evalica: bradley_terry with a bootstrap of {given.resamples}",
        lambda: evalica.bootstrap(
            evalica.bradley_terry,
            one,
            two,
            winners,
            n_resamples=given.resamples,
            bootstrap_method="percentile",
            random_state=0,
        ),
    )
    logs = np.log(newman.scores)
    logs -= logs.mean()
    apart = max(abs(standing.strength - logs[standing.model]) for standing in ranking.standings)
    print(f"\nlargest difference between evenhand's strengths and newman's: {apart:.1e}")
    print(f"tie parameter: evenhand {ranking.tie_parameter:.6f}, newman 2 x {newman.v:.6f}")


if __name__ == "__main__":
    main()
