"""What attacks did to a judge, from the verdicts that are kept: for its card, the report, and to compare with."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace
from typing import Literal

from evenhand.core.attacks import ATTACK_MARKS, Attack, AttackCase, is_attacked
from evenhand.core.pair import Pair
from evenhand.core.verdict import headline
from evenhand.io.attacks import built_in_attacks
from evenhand.results.attack import AttackSummary, AttackTally
from evenhand.results.pair_outcome import PairOutcome, pick_outcomes
from evenhand.store import JudgeRow, Records


def stored_attacks(
    store: Records, row: JudgeRow, dimension: str = "", only: Collection[str] | None = None
) -> AttackSummary | None:
    """How a judge stands against the attacks that are kept; None where it has judged no attacked pair.

    `dimension` is the headline unless another is named. `only` are the keys of the pairs that count.

    >>> from evenhand.store import Store
    >>> with Store(":memory:") as store:
    ...     stored_attacks(store, JudgeRow(1, "", "", {}, "", "", ("overall",), False, 0))
    """
    pairs = [(number, pair) for number, pair in store.attacked() if only is None or pair.key in only]
    on = dimension or headline(row.dimensions)
    outcomes = pick_outcomes(store.blocks(row, attacked=True), [number for number, _ in pairs]) if pairs else {}
    judged = [(number, pair) for number, pair in pairs if on in outcomes.get(number, {})]
    cases = list(_cases(judged))
    if not any(case.attack for case in cases):
        return None
    attacks = {case.attack.name: case.attack for case in cases if case.attack}
    found = {number: outcomes[number][on] for number, _ in judged}
    like = [case for case in cases if _shown_alike(found[int(case.pair.id)], found[int(case.of)])]
    tally = AttackTally(on, attacks.values(), kept=True)
    for pair in tally.watch(like):
        tally.add(pair, found[int(pair.id)].side, found[int(pair.id)].p)
    return tally.standing(row.model, row.protocol, row.fingerprint, len(cases) - len(like))


def _shown_alike(after: PairOutcome, before: PairOutcome) -> bool:
    """Whether two pairs were judged in the same orders, so that no position bias looks like an attack.

    Where a verdict is missing, that is what counts, and not in which order.
    """
    if after.side is None or before.side is None:
        return True
    orders = [(found.forward is None, found.swapped is None) for found in (after, before)]
    return orders[0] == orders[1]


def _cases(pairs: Sequence[tuple[int, Pair]]) -> Iterator[AttackCase]:
    """The same cases as when they were judged, each by the number of its pair: several files may share ids.

    An attack may have had several texts for a pair, by other seeds or in a changed file: the newest counts.
    """
    described = {attack.name: attack.description for attack in built_in_attacks()}
    unchanged = [(number, pair) for number, pair in pairs if not is_attacked(pair)]
    first = {pair.key: (number, pair) for number, pair in reversed(unchanged)}  # exact repeats are one pair
    originals = {key: first[pair.key] for _, pair in unchanged for key in _keys(pair)}
    begun: dict[int, str] = {}  # which side of an original was attacked
    seen: set[tuple[int, str]] = set()
    for number, pair in reversed([each for each in pairs if is_attacked(each[1])]):
        name, kind, side, of = (str(pair.metadata[mark]) for mark in ATTACK_MARKS)
        found = originals.get((of, side, _rest(pair, side)))
        if found is None or begun.setdefault(found[0], side) != side or (found[0], name) in seen:
            continue
        seen.add((found[0], name))
        loser: Literal["1", "2"] = "1" if side == "1" else "2"
        before, after = (each.output_1 if side == "1" else each.output_2 for each in (found[1], pair))
        original = str(found[0])
        yield AttackCase(replace(found[1], id=original), original, loser)
        attack = Attack(name, kind, described.get(name, ""))
        yield AttackCase(replace(pair, id=str(number)), original, loser, attack, len(after) - len(before))


def _keys(pair: Pair) -> list[tuple[str, str, str]]:
    """By what an original is found, whichever side of it was attacked."""
    return [(pair.id, side, _rest(pair, side)) for side in ("1", "2")]


def _rest(pair: Pair, attacked: str) -> str:
    """What an attack leaves as it is: the instruction and the other response."""
    return f"{pair.instruction}\0{pair.output_2 if attacked == '1' else pair.output_1}"
