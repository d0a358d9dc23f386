"""The pairs of a gate one by one: those that got worse, and what the candidate scored on each instruction."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from evenhand.core.columns import MISSING, ONE, Block
from evenhand.core.judge import Judgment
from evenhand.core.outcome import cluster_number
from evenhand.core.pair import Pair, excerpt, short_hash
from evenhand.core.stats.winrate import Difference, paired_difference
from evenhand.results.counting import first_of_each
from evenhand.results.decision import score_of
from evenhand.results.wording import count

Against = Literal["last", "passed"]  # with which earlier gate one is compared: the last, or the last that passed
_SHOWN = 80  # characters of an instruction


@dataclass(frozen=True, slots=True)
class Loss:
    """A pair in which the baseline's response is the better one, and how sure the judge is of it."""

    id: str
    instruction: str
    p_baseline: float | None

    @property
    def sure(self) -> str:
        """How sure, for a reader."""
        return "" if self.p_baseline is None else f"{100 * self.p_baseline:.0f}%"

    @property
    def short(self) -> str:
        """The instruction on one line.

        >>> Loss("p", "Write\\n  a poem.", None).short
        'Write a poem.'
        """
        return excerpt(self.instruction, _SHOWN)


@dataclass(frozen=True, slots=True)
class Losses:
    """How many of the judged pairs got worse, whether or not they were needed, and the clearest of them."""

    count: int
    worst: Sequence[Loss]

    def sentence(self, baseline: str, judged: int) -> str:
        """How many they are, of so many that were judged.

        >>> Losses(1, ()).sentence("old", 33)
        '1 of 33 judged pairs got worse: the response of old is the better one'
        """
        shown = f"; the {len(self.worst)} clearest of them" if 0 < len(self.worst) < self.count else ""
        share = f"{self.count:,} of {count(judged, 'judged pair')}"
        return f"{share} got worse: the response of {baseline} is the better one{shown}"


NO_LOSSES = Losses(0, ())


class TrialLog:
    """Takes judgments in which the candidate is side 2, in any order; memory holds a number for each pair.

    >>> from evenhand.views.api import Judge
    >>> from evenhand.engines.scripted import ScriptedEngine
    >>> log = TrialLog("overall", most=1)
    >>> with Judge(ScriptedEngine(lambda prompt: "tie"), "overall") as judge:
    ...     log.add(judge.compare("Name a colour.", "Red.", "Blue."))
    >>> log.losses.count, list(log.scores.values())
    (0, [0.5])
    """

    def __init__(self, dimension: str, most: int = 10) -> None:
        self.dimension, self._most = dimension, most
        self._sums: dict[int, tuple[float, int]] = {}
        self._seen: set[int] = set()  # pairs that count: an exact repeat of one does not
        self._lost = 0
        self._worst: list[tuple[float, str, Loss]] = []  # a heap, the least sure first

    def add(self, judgment: Judgment) -> None:
        """One more judgment."""
        outcome, pair = judgment[self.dimension], judgment.pair
        score = score_of(outcome)
        which = short_hash("\0".join((pair.key, pair.model_1, pair.model_2)))
        if score is None or which in self._seen:
            return
        self._seen.add(which)
        number = cluster_number(pair.instruction)
        total, pairs = self._sums.get(number, (0.0, 0))
        self._sums[number] = (total + 1 - score, pairs + 1)
        if outcome.side == "1":
            self._lost += 1
            self._note(Loss(pair.id, pair.instruction, outcome.p["1"] if outcome.p else None))

    def _note(self, loss: Loss) -> None:
        heapq.heappush(self._worst, (loss.p_baseline or 0.0, loss.id, loss))
        if len(self._worst) > self._most:
            heapq.heappop(self._worst)

    @property
    def losses(self) -> Losses:
        """The pairs that got worse, the clearest first."""
        return Losses(self._lost, [loss for _, _, loss in sorted(self._worst, reverse=True)])

    @property
    def scores(self) -> Mapping[int, float]:
        """What the candidate scored on each instruction: the mean over its pairs, a tie being one half."""
        return {number: total / pairs for number, (total, pairs) in self._sums.items()}


def stored_losses(
    blocks: Iterable[Block], dimension: str, most: int, pair_of: Callable[[int], Pair | None]
) -> Losses:
    """The same out of kept outcomes, in which the candidate is side 2."""
    found: list[tuple[float, int]] = []
    lost, every = 0, list(blocks)
    for block, counts in zip(every, _without_repeats(every, dimension), strict=True):
        outcomes = block.outcomes[dimension]
        rows = np.flatnonzero((outcomes.side == ONE) & counts)
        lost += len(rows)
        sure = np.nan_to_num(outcomes.p[rows, ONE])
        found += zip(sure.tolist(), block.number[rows].tolist(), strict=True)
        found = heapq.nlargest(most, found)
    pairs = [(sure, pair_of(number)) for sure, number in found]
    return Losses(lost, [Loss(pair.id, pair.instruction, sure) for sure, pair in pairs if pair is not None])


def _without_repeats(blocks: Sequence[Block], dimension: str) -> list[NDArray[np.bool_]]:
    """Which rows of each block count: not those that repeat another pair."""
    if not blocks:
        return []
    each = [(block.identities, block.number, block.outcomes[dimension].side == MISSING) for block in blocks]
    counts = first_of_each(*(np.concatenate(columns) for columns in zip(*each, strict=True)))
    return np.split(counts, np.cumsum([len(block.number) for block in blocks])[:-1])


@dataclass(frozen=True, slots=True)
class SinceLast:
    """How the candidate's win rate differs from that of an earlier candidate on the same instructions.

    >>> since_last({1: 0.0, 2: 0.5, 3: 0.0}, {1: 1.0, 2: 0.5, 4: 1.0}, "v1").difference
    -0.5
    """

    against: Against  # which of the earlier gates it is
    candidate: str  # the earlier one
    instructions: int  # that both have
    win_rate: float | None
    win_rate_before: float | None
    difference: float | None
    ci: tuple[float, float] | None
    ci_level: float
    ci_method: str

    @property
    def earlier(self) -> str:
        """What to call the earlier gate."""
        return "the last gate that passed" if self.against == "passed" else "the last gate"

    @property
    def fell(self) -> bool:
        """Whether the win rate has fallen by more than chance would explain."""
        return self.ci is not None and self.ci[1] < 0

    def sentence(self) -> str:
        """The difference in words."""
        if self.difference is None or self.ci is None:
            return f"{self.earlier} shares no instruction with this one"
        low, high = (f"{100 * end:+z.1f}" for end in self.ci)
        return (
            f"{100 * self.difference:+z.1f} points ({low} to {high}): {100 * (self.win_rate or 0):.1f}% now,"
            f" {100 * (self.win_rate_before or 0):.1f}% then, on {count(self.instructions, 'instruction')}"
        )


def since_last(
    now: Mapping[int, float],
    before: Mapping[int, float],
    candidate: str,
    *,
    against: Against = "last",
    level: float = 0.95,
) -> SinceLast:
    """Compare two gates instruction by instruction; each of them must have judged all it drew.

    A gate that stops when it is decided stops on a lucky or unlucky streak, and the next would seem to fall or
    rise from there; such gates are not kept for comparing.
    """
    shared = sorted(now.keys() & before.keys())
    found: Difference = paired_difference(
        [now[number] for number in shared], [before[number] for number in shared], level=level
    )
    ci = None if found.low is None or found.high is None else (found.low, found.high)
    return SinceLast(
        *(against, candidate, len(shared), found.first, found.second, found.value, ci, found.level, found.method)
    )
