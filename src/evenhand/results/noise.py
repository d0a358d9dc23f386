"""Noise beside bias: how often a judge changes its own answer with nothing changed.

It takes a second asking: `evenhand judge --repeat 2`, or another seed of an endpoint. Judges that differ in nothing
else are repetitions of each other, and are put together here.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from evenhand.core.columns import MISSING, Block
from evenhand.core.stats.agreement import Codes
from evenhand.core.stats.clustered import Estimate
from evenhand.core.stats.noise import split_changes
from evenhand.engines.repeated import REPEATS
from evenhand.results.wording import count, percent, share_text
from evenhand.store import JudgeRow, Records


@dataclass(frozen=True, slots=True)
class NoiseSummary:
    """One dimension of a judge that was asked several times. The fields, and their names, are those of `--json`."""

    repetitions: int
    pairs: int  # that were asked twice in some order, and in both
    noise: Estimate  # how often two answers to the very same prompt differ
    changes: Estimate  # how often two answers in different orders do
    position: Estimate  # the second less the first: what the order alone changes
    noise_share: Estimate  # the part of the changes that noise alone would make

    @property
    def text(self) -> str:
        """The sentence that every view shows."""
        return (
            f"changes its own answer in {share_text(self.noise)} of pairs with nothing changed; of the"
            f" {percent(self.changes.value, 0)} that change with the order, {_points(self.position)} are"
            f" position bias ({count(self.pairs, 'pair')}, asked {count(self.repetitions, 'time')})"
        )


NOT_MEASURED = "not measured (evenhand judge --repeat 2 asks again)"


def repetitions_of(judge: JudgeRow, rows: Iterable[JudgeRow]) -> list[JudgeRow]:
    """The askings of one judge, itself among them: judges that differ in the seed or the repetition alone."""
    return [row for row in rows if _apart_from_repeats(row) == _apart_from_repeats(judge)]


def _apart_from_repeats(row: JudgeRow) -> tuple[object, ...]:
    named = sorted((name, value) for name, value in row.identity.items() if name not in REPEATS)
    return tuple(named), row.protocol, row.template, row.raw_markup


def noise_of(store: Records, judge: JudgeRow) -> Mapping[str, NoiseSummary]:
    """The noise of a judge by dimension; empty where it was asked once, which says nothing of its noise."""
    same = repetitions_of(judge, store.judges(counted=False))
    if len(same) < 2:
        return {}
    given = [_answers(store.blocks(row)) for row in same]
    shared = [name for name in given[0] if all(name in each for each in given)]
    found = {name: _summary([each[name] for each in given]) for name in shared}
    return {name: one for name, one in found.items() if one.noise.value is not None}


def _answers(blocks: Iterable[Block]) -> dict[str, Codes]:
    """By dimension, a row for each pair: its number, its cluster, what was said forward and what swapped."""
    found: dict[str, list[Codes]] = {}
    for block in blocks:
        about = [column.astype(np.int64) for column in (block.number, block.cluster)]
        for name, outcomes in block.outcomes.items():
            if not outcomes.pointwise:
                rows = np.column_stack([*about, outcomes.forward, outcomes.swapped])
                found.setdefault(name, []).append(rows)
    return {name: np.concatenate(parts) for name, parts in found.items()}


def _summary(given: Sequence[Codes]) -> NoiseSummary:
    """One dimension of several askings, which need not have the same pairs."""
    pairs = np.unique(np.concatenate([each[:, 0] for each in given]))
    clusters = np.zeros(len(pairs), dtype=np.int64)
    answers = np.full((2, len(pairs), len(given)), MISSING)  # by order: a row for each pair, a column an asking
    for asking, each in enumerate(given):
        rows = np.searchsorted(pairs, each[:, 0])
        clusters[rows] = each[:, 1]
        answers[:, rows, asking] = each[:, 2:].T
    split = split_changes(answers[0], answers[1], clusters)
    return NoiseSummary(len(given), split.noise.n, split.noise, split.changes, split.position, split.noise_share)


def _points(found: Estimate) -> str:
    if found.value is None:
        return "–"
    said = f"{100 * found.value:z.0f} points"
    if found.low is None or found.high is None:
        return said
    return f"{said} ({100 * found.low:z.0f} to {100 * found.high:z.0f})"
