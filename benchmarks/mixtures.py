"""What a head should be trained on, by attacks and by people's labels at once.

    python benchmarks/made_pairs.py made.jsonl --from DATA/pandalm.jsonl --most 100
    python benchmarks/attack_pairs.py DATA/llmbar.jsonl --attacked > attacked.jsonl
    python benchmarks/states.py STATES made.jsonl attacked.jsonl
    python benchmarks/mixtures.py STATES DATA --made made.jsonl --npz DATA/states-qwen2.5-coder-1.5b.npz

A row is a mixture of training pairs, written as weights. *Turned* is the share of the pairs that the attacked side
had not won and that some attack turns to it, *worst* the attack that turns most. Mixtures are to be chosen by one
attack of each kind (*to choose by*); the attacks of the tables in docs/attack-figures.md have no part in that (*to
tell by*). The pairs are those of attack_pairs.py, on which no head is trained. The columns behind are the share of
decided pairs on the side that people take: for sets in training over whole instructions held out, for the others
by a head fitted to all training pairs.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from attack_pairs import TO_CHOOSE, TO_TELL, attack_pairs, named
from evenhand.core.attacks import Attack, attack_all
from evenhand.core.pair import Pair, Side
from evenhand.engines.catalog import locate
from evenhand.engines.heads.fitting import Array, HeadFit
from evenhand.engines.heads.learning import davidson_rows
from evenhand.engines.heads.reading import StateReading
from evenhand.engines.heads.vectors import content_key
from evenhand.engines.llama import LlamaEngine
from evenhand.results.attack import AttackSummary, AttackTally
from evenhand.store.vectors import FileVectors
from heads import CHOSEN, Bench, Mixture, add_sources, load_sets, load_states, share, ties_of
from states import reader_name

SIDES: tuple[Side, ...] = ("1", "2", "tie")
PEOPLE = ("pandalm", "adversarial", "natural", "evalbias", "sample")
# `made` are here the pairs made by program without the pleas to the judge, which are a set of their own.
MIXTURES: tuple[dict[str, float], ...] = (
    {"pandalm": 1.0},
    {"pandalm": 1.0, "adversarial": 0.2},
    {"pandalm": 1.0, "adversarial": 1.0},
    {"made": 1.0},
    {"made": 1.0, "pleas": 1.0},
    {"pandalm": 1.0, "made": 1.5},
    {"pandalm": 1.0, "made": 1.5, "pleas": 1.5},
    {"pandalm": 1.0, "adversarial": 0.2, "pleas": 1.5},
    {"pandalm": 1.0, "adversarial": 0.2, "made": 1.5},
    {"pandalm": 1.0, "adversarial": 0.2, "made": 0.5, "pleas": 0.5},
    {"pandalm": 1.0, "adversarial": 0.2, "made": 1.5, "pleas": 1.5},  # what ships
    {"pandalm": 1.0, "adversarial": 0.2, "made": 3.0, "pleas": 3.0},
    {"pandalm": 1.0, "adversarial": 0.2, "made": 1.5, "pleas": 4.0},
    {"pandalm": 1.0, "adversarial": 0.5, "made": 1.5, "pleas": 1.5},
)


class Attacked:
    """Pairs under some attacks, as rows of a table of states."""

    def __init__(self, bench: Bench, pairs: Sequence[Pair], attacks: Sequence[Attack]) -> None:
        self.attacks, rows = attacks, bench.raw.rows
        self.cases = [case for case in attack_all(pairs, attacks) if all(key in rows for key in _keys(case.pair))]
        both = [[rows[key] for key in _keys(case.pair)] for case in self.cases]
        self._difference: Array = bench.table[[a for a, _ in both]] - bench.table[[b for _, b in both]]

    def under(self, head: HeadFit, slope: float, tie: float) -> AttackSummary:
        """How a head stands; its term for length is 0 at use, as in the one that ships."""
        tally = AttackTally("overall", self.attacks)
        list(tally.watch(self.cases))
        for case, row in zip(self.cases, davidson_rows(self._difference @ head.state, slope, tie), strict=True):
            p = dict(zip(SIDES, row.tolist(), strict=True))
            tally.add(case.pair, max(SIDES, key=p.__getitem__), p)
        return tally.standing("head", "", "")


def _keys(pair: Pair) -> tuple[str, str]:
    return content_key(pair.instruction, pair.output_1), content_key(pair.instruction, pair.output_2)


def stands(found: AttackSummary) -> str:
    """How many pairs some attack turned, and the attack that turned most."""
    worst = max(found.attacks, key=lambda each: each.turned.value or 0.0)
    some, most = found.any_turned, 100 * (worst.turned.value or 0.0)
    ends = "" if some.low is None or some.high is None else f" ({100 * some.low:.0f} to {100 * some.high:.0f})"
    return f"{100 * (some.value or 0.0):.0f}{ends} | `{worst.attack}` {most:.0f}"


def open_bench(wanted: argparse.Namespace, attacked: Sequence[Pair]) -> Bench:
    """All sets with their states, and those of the attacked pairs in the same table."""
    model = locate(wanted.model)
    kept = FileVectors(
        wanted.states / "states.sqlite", reader_name(LlamaEngine(model), wanted.blocks, StateReading())
    )
    sets = load_sets(wanted.data, wanted.sample, wanted.made)
    made = sets.pop("made")
    sets["pleas"] = [pair for pair in made if pair.metadata["subset"] == "plea"]
    sets["made"] = [pair for pair in made if pair.metadata["subset"] != "plea"]
    every = [pair for pairs in sets.values() for pair in pairs]
    ordinary, _ = load_states(every, kept, wanted.npz, model.path)
    bench = Bench(sets, ordinary, wanted.components)  # its components know nothing of the attacks
    bench.raw, _ = load_states([*every, *attacked], kept, wanted.npz, model.path)
    bench.table = bench.axes.project(bench.raw.states)
    return bench


def mixture_of(weights: dict[str, float]) -> Mixture:
    """All else as in the head that ships: labels of people, where there are any, say how sure a gap may make it."""
    people = tuple(name for name in ("pandalm", "adversarial") if name in weights)
    return Mixture(weights, length=0.0, penalty=CHOSEN["overall"].penalty, calibrated_on=people or tuple(weights))


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_sources(parser)
    wanted = parser.parse_args()
    pairs = attack_pairs(wanted.data / "llmbar.jsonl")
    bench = open_bench(wanted, [case.pair for case in attack_all(pairs, named(TO_TELL + TO_CHOOSE))])
    trials = [Attacked(bench, pairs, named(names)) for names in (TO_CHOOSE, TO_TELL)]
    print("pairs of each set with states:", {name: len(found) for name, found in bench.sets.items()})
    print("texts to choose and to tell by:", [len(trial.cases) for trial in trials])
    heads = ("trained on", "to choose by: turned, %", "worst", "to tell by: turned, %", "worst", "right before")
    print(f"| {' | '.join([*heads, *PEOPLE])} |")
    for weights in MIXTURES:
        mixture = mixture_of(weights)
        found, whole = bench.gaps(mixture)
        stood = [trial.under(whole, *ties_of(found, mixture)) for trial in trials]
        shares = [share(*found[name]) if name in found else "" for name in PEOPLE]
        before = f"{100 * (stood[1].right.value or 0.0):.0f}%"
        print(f"| {' | '.join([mixture.name, *map(stands, stood), before, *shares])} |", flush=True)


if __name__ == "__main__":
    main()
