"""Whether `evenhand learn` keeps its word: heads on made-up states, whose true accuracy is known.

    python benchmarks/learning.py                        a table, about ten minutes of one core
    python benchmarks/learning.py --repetitions 20

States are drawn with variances that fall as one over the rank; quality is a direction in them, labels follow it and
the lengths with logistic noise, two pairs to an instruction. `learn` is given so many labels, and then 200 more
of them. Its head is then judged on 20,000 fresh pairs: that is the truth which its interval should hold, and the
difference of the two truths is what "about 200 more labels would add" should come to on average.
"""

from __future__ import annotations

import argparse
import os
from dataclasses import dataclass, replace

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import numpy as np

from evenhand.engines.heads.fitting import Array, Labels
from evenhand.engines.heads.head import Weights
from evenhand.engines.heads.learning import accuracy, learn
from evenhand.engines.heads.training import MORE

FRESH = 20_000


@dataclass(frozen=True)
class World:
    """States in which a known direction is quality."""

    direction: Array
    scale: Array
    noise: float

    @classmethod
    def draw(cls, dice: np.random.Generator, width: int, noise: float) -> World:
        """A direction in which the states spread by one."""
        scale, direction = np.arange(1, width + 1) ** -0.5, dice.normal(size=width)
        return cls(direction / np.linalg.norm(direction * scale), scale, noise)

    def labels(self, dice: np.random.Generator, count: int) -> tuple[Array, Labels]:
        """So many pairs, and what people say of them."""
        states = dice.normal(size=(2 * count, len(self.scale))) * self.scale
        first, second, lengths = np.arange(count), np.arange(count, 2 * count), 0.5 * dice.normal(size=count)
        gap = (
            (states[first] - states[second]) @ self.direction
            + 0.5 * lengths
            + self.noise * dice.logistic(size=count)
        )
        truth = np.where(np.abs(gap) < 0.1, 0.5, gap > 0)
        return states, Labels(first, second, truth, first // 2, lengths[:, None], ("length",))


def true_accuracy(weights: Weights, states: Array, labels: Labels) -> float:
    """How good a head is on fresh pairs."""
    gaps = (states[labels.first] - states[labels.second]) @ weights.state
    return accuracy(gaps + weights.features["length"] * labels.features[:, 0], labels).value or 0.0


def one(seed: int, count: int, width: int, noise: float) -> tuple[float, float, bool, float, float | None]:
    """Held-out and true accuracy, whether the interval holds it, the true gain and the promised one."""
    dice = np.random.default_rng(seed)
    world = World.draw(dice, width, noise)
    states, labels = world.labels(dice, count + MORE)
    rows = np.arange(count)
    some = replace(labels.take(rows), second=rows + count)
    few = learn(states[np.r_[rows, rows + count + MORE]], some)
    many = learn(states, labels, with_curve=False)
    fresh = world.labels(dice, FRESH)
    truth, later = (true_accuracy(found.weights, *fresh) for found in (few, many))
    said = few.held_out.accuracy
    assert said.value is not None
    assert said.low is not None
    assert said.high is not None
    return said.value, truth, said.low <= truth <= said.high, later - truth, few.gain(MORE)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repetitions", type=int, default=100)
    parser.add_argument("--labels", type=int, nargs="+", default=[40, 120, 300])
    given = parser.parse_args()
    print("width noise labels  held out  true  interval holds  true gain  promised gain (spread)")
    for width, noise in ((12, 0.5), (60, 0.5), (60, 1.5)):
        for count in given.labels:
            rows = [one(seed, count, width, noise) for seed in range(given.repetitions)]
            said, truth, held, gain = (float(np.mean([row[k] for row in rows])) for k in range(4))
            promised = [row[4] for row in rows if row[4] is not None]
            word = f"{np.mean(promised):.3f} ({np.std(promised):.3f})" if promised else "none"
            print(
                f"{width:5} {noise:5} {count:6} {said:9.3f} {truth:5.3f} {held:15.0%} {gain:10.3f}  {word}",
                flush=True,
            )


if __name__ == "__main__":
    main()
