"""Models ranked: who met whom, what came out, and what that says about each."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from evenhand.core.columns import MISSING, Block, Outcomes, Words
from evenhand.core.errors import InputError
from evenhand.core.stats.clusters import Weighting
from evenhand.core.stats.comparisons import gather_numbers
from evenhand.core.stats.ranking import Contrast, Ranking, Standing, rank
from evenhand.core.verdict import SIDES
from evenhand.results.counting import DEFAULT, Counting, first_of_each, repeats_text, weighs_text
from evenhand.results.wording import count

Reading = Literal["hard", "expected"]
Scale = Literal["log-odds", "elo", "arena"]
SCALES: tuple[Scale, ...] = get_args(Scale)


def is_ranked(models: int, several: bool) -> bool:
    """Whether models get a ranking: more than two, or two that change sides, so that no win rate is one model's.

    >>> is_ranked(3, False), is_ranked(2, True), is_ranked(2, False)
    (True, True, False)
    """
    return several or models > 2


@dataclass(frozen=True, slots=True)
class WinMatrix:
    """How often the model of the row beats that of the column, a tie counting one half, and of how many pairs."""

    models: tuple[str, ...]
    rates: Any
    counts: Any

    @property
    def percents(self) -> list[list[int | None]]:
        """The rates in whole percent, of which those of two models add up to 100.

        >>> WinMatrix(("a", "b"), [[None, 0.925], [0.075, None]], []).percents
        [[None, 93], [7, None]]
        """
        places = range(len(self.models))
        return [[self._percent(row, column) for column in places] for row in places]

    def _percent(self, row: int, column: int) -> int | None:
        """The model that stands first has the half; the other one what is left."""
        rate = self.rates[min(row, column)][max(row, column)]
        if rate is None:
            return None
        first: int = math.floor(round(100 * rate, 9) + 0.5)
        return first if row < column else 100 - first


@dataclass(frozen=True, slots=True)
class RankingSummary:
    """A ranking. The fields, and their names, are those of `--json`."""

    dimension: str
    reading: Reading
    unnamed: int  # pairs that name no two different models
    n: int
    instructions: int
    invalid: int
    models: tuple[Standing, ...]
    win_matrix: WinMatrix
    contrasts: tuple[Contrast, ...]
    parts: tuple[tuple[str, ...], ...]
    tie_parameter: float | None
    scale: str
    anchor: str | None
    level: float
    method: str
    warnings: tuple[str, ...]
    weighting: Weighting  # what weighs the same in strengths and differences
    repeats: int  # exact repeats of other pairs, which are in no number

    @property
    def all_tied(self) -> bool:
        """Whether nobody has won anything, so that all models are alike."""
        return not any(model.wins for model in self.models)

    @property
    def notes(self) -> tuple[str, ...]:
        """What a reader must know of how this was counted."""
        weighs = f"in strengths and tests {weighs_text(self.weighting)}; records count pairs"
        return tuple(filter(None, [weighs if self.n > self.instructions else "", repeats_text(self.repeats)]))


class Matches:
    """Comparisons of models on one dimension, filled block by block.

    The unit is the pair, both orders pooled. `hard` takes the pooled verdict, `expected` its probabilities. A pair
    that names no two different models is counted and left out; an invalid one is counted by its models; an exact
    repeat of another is left out, unless `counting` keeps it.
    """

    def __init__(self, dimension: str, reading: Reading = "hard", counting: Counting = DEFAULT) -> None:
        self.dimension, self.reading, self.counting = dimension, reading, counting
        self.unnamed = 0
        self.seen: set[str] = set()
        self._names: dict[str, int] = {}
        self._parts: list[tuple[NDArray[Any], ...]] = []

    @property
    def models(self) -> list[str]:
        """Every model with a comparison."""
        return list(self._names)

    def add_block(self, block: Block) -> None:
        """Take the pairs of a block."""
        self.seen.update(block.outcomes)
        if self.dimension in block.outcomes:
            self._take(block, block.outcomes[self.dimension])

    def _take(self, block: Block, found: Outcomes) -> None:
        one, two = (self._numbers(words) for words in (block.model_1, block.model_2))
        named = (one != MISSING) & (two != MISSING) & (one != two)
        self.unnamed += int((~named).sum())
        hard = np.where(found.valid[:, None], found.side[:, None] == np.arange(len(SIDES)), np.nan)
        weights = hard if self.reading == "hard" else found.p
        about = (block.cluster, block.identities, block.number)
        self._parts.append((one[named], two[named], weights[named], *(column[named] for column in about)))

    def _numbers(self, words: Words) -> NDArray[np.int64]:
        """Models by the numbers that they have here; -1 for no name."""
        present = set(np.unique(words.codes).tolist())
        table = [
            self._names.setdefault(word, len(self._names)) if word and code in present else MISSING
            for code, word in enumerate(words.words)
        ]
        return np.asarray(np.array([*table, MISSING], dtype=np.int64)[words.codes])

    def ranking(self, *, scale: Scale = "log-odds", anchor: str | None = None) -> RankingSummary:
        """What the comparisons come to."""
        columns = [np.concatenate(parts) for parts in zip(*self._parts, strict=True)] if self._parts else []
        if not columns or not (columns[2] >= 0).any():
            raise InputError(self._why_empty(bool(columns) and len(columns[0]) > 0), hint=self._hint())
        (one, two, weights, clusters), repeats = self._once(columns)
        data = gather_numbers(self.models, one, two, weights, clusters)
        try:
            found = rank(data, scale=scale, anchor=anchor, weighting=self.counting.weighting)
        except ValueError as fault:
            raise InputError(str(fault), hint=f"models here: {', '.join(sorted(self._names))}") from None
        return self._summary(found, repeats)

    def _once(self, columns: list[NDArray[Any]]) -> tuple[list[NDArray[Any]], int]:
        """The columns without exact repeats, and how many these were."""
        *found, identity, number = columns
        if self.counting.keep_repeats:
            return found, 0
        kept = first_of_each(identity, number, np.isnan(found[2][:, 0]))
        return [column[kept] for column in found], int((~kept).sum())

    def _summary(self, found: Ranking, repeats: int) -> RankingSummary:
        return RankingSummary(
            *(self.dimension, self.reading, self.unnamed, found.n, found.clusters, found.invalid),
            tuple(found.standings),
            WinMatrix(tuple(found.models), found.rates, found.counts),
            tuple(found.contrasts),
            tuple(tuple(part) for part in found.parts),
            *(found.tie_parameter, found.scale, found.anchor, found.level, found.method, tuple(found.warnings)),
            *(found.weighting, repeats),
        )

    def _why_empty(self, met: bool) -> str:
        if met:
            return f"every verdict on {self.dimension} is invalid"
        if self.unnamed:
            return f"none of {count(self.unnamed, 'pair')} names two different models"
        return f"no verdicts on {self.dimension}"

    def _hint(self) -> str:
        if self.unnamed:
            return "pairs to rank by carry model_1 and model_2"
        return f"dimensions here: {', '.join(sorted(self.seen))}" if self.seen - {self.dimension} else ""


def matches_of(
    blocks: Iterable[Block], dimension: str, reading: Reading = "hard", counting: Counting = DEFAULT
) -> Matches:
    """All comparisons of a judge on one dimension."""
    matches = Matches(dimension, reading, counting)
    for block in blocks:
        matches.add_block(block)
    return matches
