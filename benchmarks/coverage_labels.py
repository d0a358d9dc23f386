"""How often the intervals of card and --human hold where labels were not drawn at random, by simulation.

    python benchmarks/coverage_labels.py --repetitions 400

A judge that is right on 88% of all pairs, and on little more than half of those that it is unsure of, has judged
1,000 pairs in a database. In each repetition somebody labels pairs on the web page's lists (`store.annotation`),
with the most informative first or all by chance, or gives labels with known chances; then `results/` is asked.
*Plain* are the same labels with nothing said of how they came about. Tables are Markdown; the command fails below
93%.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from evenhand import Judge, Pair, ScriptedEngine, Store
from evenhand.core.protocol import Prompt
from evenhand.results.card import card_of
from evenhand.results.evidence import gather
from evenhand.results.human import human_rate
from evenhand.results.people import People
from evenhand.results.suggestions import suggest
from evenhand.store import HumanLabel, JudgeRow

PROMISE = 0.93


@dataclass(frozen=True)
class Population:
    """Pairs that a judge has judged, and what people would say of each."""

    store: Store
    judge: JudgeRow
    labels: dict[str, str]
    informative: list[str]  # keys, those that would teach most first
    right: float  # on how many of all pairs the judge takes the side of people
    rate: float  # how often people prefer side 1


def population(pairs: int = 1000, seed: int = 0) -> Population:
    """A judge that is unsure of a third of the pairs, and knows nothing of those."""
    rng = np.random.default_rng(seed)
    sure = np.where(rng.random(pairs) < 0.24, rng.uniform(0.5, 0.56, pairs), rng.uniform(0.9, 0.99, pairs))
    says_1 = rng.random(pairs) < 0.6
    right = rng.random(pairs) < np.where(sure < 0.6, 0.54, 0.987)
    every = [
        Pair(f"Task {i}, {sure[i]:.4f} for {'one' if says_1[i] else 'two'}.", "one", "two", f"p{i}")
        for i in range(pairs)
    ]
    labels = {pair.key: "1" if says_1[i] == right[i] else "2" for i, pair in enumerate(every)}
    judge = Judge(ScriptedEngine(_script), "overall", db=":memory:")
    judged = list(judge.judge(every))
    found = suggest(judged, lambda pair: False, number=pairs)
    [row] = judge.store.judges()
    rate = float(np.mean([side == "1" for side in labels.values()]))
    best = [one.pair.key for one in found.pairs]
    return Population(judge.store, row, labels, best, float(right.mean()), rate)


def _script(prompt: Prompt) -> dict[str, float]:
    text = prompt.turns[-1].text
    found = re.search(r"Task \d+, ([.\d]+) for (one|two)\.", text)
    assert found is not None
    first = re.search(r"Response A:\s+(one|two)", text)
    assert first is not None
    p = float(found[1]) if first[1] == found[2] else 1 - float(found[1])
    return {"A": p * 0.99, "B": (1 - p) * 0.99, "tie": 0.01}


Labelling = Callable[[Population, int, int], None]


def on_the_page(informative: bool, forgotten: bool = False) -> Labelling:
    """Somebody labels what the web page gives them."""

    def label(found: Population, count: int, seed: int) -> None:
        name, book = f"person {seed}", found.store.annotation
        book.invite(name, dimensions=["overall"], seed=seed)
        book.assign(name, count=count, shared=0, first=found.informative[:count] if informative else ())
        while (task := book.next(name)) is not None:
            shown = {"1": "A", "2": "B"} if task.order == "forward" else {"1": "B", "2": "A"}
            book.save(name, task.place, "overall", shown[found.labels[task.pair]])  # type: ignore[arg-type]
        if forgotten:
            kept = list(found.store.labels.all())
            found.store.labels.add(HumanLabel(x.pair, x.dimension, x.annotator, x.side) for x in kept)

    return label


def with_known_chances(found: Population, count: int, seed: int) -> None:
    """Labels on pairs that were drawn with unequal chances, all of them known: unsure ones ten times as often."""
    rng = np.random.default_rng(seed)
    size = np.ones(len(found.informative))
    size[: len(size) // 4] = 10.0
    chance = np.minimum(count * size / size.sum(), 1.0)
    taken = np.flatnonzero(rng.random(len(size)) < chance)
    keys = [found.informative[place] for place in taken]
    found.store.labels.add(
        HumanLabel(key, "overall", "ann", found.labels[key], design="suggested", probability=float(chance[place]))  # type: ignore[arg-type]
        for key, place in zip(keys, taken, strict=True)
    )


def clear(found: Population) -> None:
    """Forget every label, and who gave it."""
    for label in list(found.store.labels.all()):
        found.store.labels.remove(label.pair, label.annotator)
    found.store._db.execute("DELETE FROM tasks")
    found.store._db.execute("DELETE FROM annotators")


def held(
    found: Population, labelling: Labelling, count: int, repetitions: int
) -> tuple[float, float, float, float]:
    """How often the intervals of accuracy and of people's rate hold; the mean accuracy and the labels used."""
    hits, shown, used = np.zeros(2), 0.0, 0.0
    for seed in range(repetitions):
        labelling(found, count, seed)
        evidence = gather(found.store, found.judge, People(found.store))["overall"]
        right = card_of(evidence).readings["pooled"].decided
        rate = human_rate(evidence)
        clear(found)
        assert right.value is not None
        assert right.low is not None
        assert right.high is not None
        assert rate.ci is not None
        hits += [right.low <= found.right <= right.high, rate.ci[0] <= found.rate <= rate.ci[1]]
        shown, used = shown + right.value, used + evidence.use.used
    accuracy, people = hits / repetitions
    return float(accuracy), float(people), shown / repetitions, used / repetitions


CASES: dict[str, Labelling] = {
    "by chance": on_the_page(informative=False),
    "most informative first": on_the_page(informative=True),
    "with known chances": with_known_chances,
    "most informative first, plain": on_the_page(informative=True, forgotten=True),
}


def main() -> int:
    """Print the table; 1 where an interval holds less often than is promised."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repetitions", type=int, default=60)
    repetitions = parser.parse_args().repetitions
    found = population()
    print(f"The judge is right on {found.right:.1%} of all pairs; people prefer side 1 on {found.rate:.1%}.\n")
    print("| labels | chosen | used | accuracy shown | held | people's rate, held |")
    print("|--:|---|--:|--:|--:|--:|")
    worst = 1.0
    for count in (80, 200):
        for name, labelling in CASES.items():
            accuracy, people, shown, used = held(found, labelling, count, repetitions)
            print(f"| {count} | {name} | {used:.0f} | {shown:.1%} | {accuracy:.1%} | {people:.1%} |", flush=True)
            if "plain" not in name:
                worst = min(worst, accuracy, people)
    chance = 2 * (PROMISE * (1 - PROMISE) / repetitions) ** 0.5
    return int(worst < PROMISE - chance)


if __name__ == "__main__":
    sys.exit(main())
