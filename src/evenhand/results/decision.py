"""When the verdicts so far are enough: judgments in the order of the draw, one instruction at a time.

Judgments come out of a run as they are done, and which are done first may depend on what is in them: a short pair
is quick. A sequence that took them as they come would look at short pairs first. So they are put back into the
random order in which they were drawn, and count when all before them have been counted.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from evenhand.core.columns import MISSING, Block
from evenhand.core.judge import Judgment
from evenhand.core.pair import Pair
from evenhand.core.shuffle import mixed
from evenhand.core.stats.sequence import Bounds, ConfidenceSequence
from evenhand.core.stats.stopping import WORD, add_cluster
from evenhand.core.verdict import Outcome
from evenhand.results.summary import EarlyStop

_BOTH = 3  # both orders, in the column `asked`
_SCORES = {"1": 1.0, "tie": 0.5, "2": 0.0}


@dataclass(frozen=True, slots=True)
class RunningRate:
    """What has been counted so far on one dimension: the win rate of side 1, an instruction being the unit."""

    dimension: str
    rate: Bounds
    pairs: int
    invalid: int

    @property
    def instructions(self) -> int:
        """How many instructions were counted."""
        return self.rate.n

    def against(self, rate: float) -> Literal["above", "below"] | None:
        """On which side of a rate the win rate of side 1 is known to lie; None where it may be either.

        >>> RunningRate("overall", Bounds(0.8, 0.6, 0.9, 40), 40, 0).against(0.5)
        'above'
        """
        if self.rate.low > rate:
            return "above"
        return "below" if self.rate.high < rate else None


@dataclass(frozen=True, slots=True)
class Decision:
    """Whether one side is known to be better, and by what."""

    dimension: str
    better: Literal["1", "2"] | None
    win_rate_1: float | None
    interval: tuple[float, float]
    interval_level: float
    interval_method: str
    counted: int
    instructions: int
    invalid: int
    beyond: int  # pairs that were judged and not needed
    saved: int  # pairs that did not have to be judged


def decision_of(rate: RunningRate, judged: int, count: int) -> Decision:
    """What a run that could stop early came to, of `count` pairs."""
    where, bounds = rate.against(0.5), rate.rate
    return Decision(
        dimension=rate.dimension,
        better=None if where is None else "1" if where == "above" else "2",
        win_rate_1=bounds.value,
        interval=(bounds.low, bounds.high),
        interval_level=bounds.level,
        interval_method=bounds.method,
        counted=rate.pairs,
        instructions=rate.instructions,
        invalid=rate.invalid,
        beyond=judged - rate.pairs if where else 0,
        saved=count - judged if where else 0,
    )


class Decider:
    """Counts judgments of a run in the order in which its pairs were drawn.

    The pairs go through `watch` on their way to the judge; those that share an instruction follow each other. An
    instruction is one observation: the mean over its pairs, a tie being one half. An invalid pair may be anything.
    Once `enough` says of what was counted that it is enough, nothing more counts for the decision: one answer may
    let several instructions in at once, and what is decided must not depend on which answer came last. The sequence
    goes on, for what may be said of all pairs in the end (`early_stop`).

    >>> from evenhand.views.api import Judge
    >>> from evenhand.engines.scripted import ScriptedEngine
    >>> decider = Decider("overall")
    >>> with Judge(ScriptedEngine(lambda prompt: "tie")) as judge:
    ...     for judgment in judge.judge(decider.watch([Pair("Hi", "x", "y"), Pair("Hi", "x", "z")])):
    ...         decider.add(judgment)
    >>> decider.standing.rate.value, decider.standing.pairs, decider.standing.instructions
    (0.5, 2, 1)
    """

    def __init__(
        self, dimension: str, *, level: float = 0.95, enough: Callable[[RunningRate], bool] = lambda standing: False
    ) -> None:
        self.dimension, self._enough = dimension, enough
        self._sequence = ConfidenceSequence(level)
        # Ids in their order, whether an instruction ends there, and whether the pair repeats one before it.
        self._drawn: deque[tuple[str, bool, bool]] = deque()
        self._done: dict[str, Outcome] = {}  # judged, but something drawn before it is not
        self._numbers: dict[str, int] = {}  # of those drawn and not counted, their places in the draw
        self._taken = 0  # how many of the drawn are counted
        self._cluster: list[float | None] = []
        self._pairs = self._invalid = 0
        self._decided: RunningRate | None = None
        self.seen = 0

    def watch(self, pairs: Iterable[Pair]) -> Iterator[Pair]:
        """The same pairs, with their order noted as they are taken; exact repeats are judged and do not count."""
        before: Pair | None = None
        number, seen = 0, set[tuple[str, str, str]]()
        for number, pair in enumerate(pairs):
            if before is not None:
                yield self._draw(before, number - 1, seen, ends=before.instruction != pair.instruction)
            before = pair
        if before is not None:
            yield self._draw(before, number, seen, ends=True)

    def _draw(self, pair: Pair, number: int, seen: set[tuple[str, str, str]], *, ends: bool) -> Pair:
        self._numbers[pair.id] = number
        which = (pair.key, pair.model_1, pair.model_2)
        self._drawn.append((pair.id, ends, which in seen))
        seen.add(which)
        if ends:  # the next instruction has no pair in common with this one
            seen.clear()
        return pair

    def before(self, pair: Pair) -> int:
        """How many that were drawn before this pair are not counted yet."""
        return self._numbers.get(pair.id, 0) - self._taken

    def __call__(self, judgment: Judgment) -> bool:
        """Add a judgment; True if there are enough."""
        self.add(judgment)
        return self.met

    def add(self, judgment: Judgment) -> None:
        """One more judgment, in any order."""
        self.seen += 1
        self._done[judgment.pair.id] = judgment[self.dimension]
        while self._drawn and self._drawn[0][0] in self._done:
            name, ends, repeats = self._drawn.popleft()
            self._taken += 1
            self._numbers.pop(name, None)
            score = score_of(self._done.pop(name))
            if not repeats:
                self._cluster.append(score)
            if ends:
                self.count(self._cluster)
                self._cluster = []

    def count(self, scores: Sequence[float | None]) -> None:
        """One more instruction, by what side 1 scored on its pairs; None is an invalid one."""
        add_cluster(self._sequence, scores)
        self._pairs += len(scores)
        self._invalid += sum(score is None for score in scores)
        if self._decided is None and self._enough(self._so_far):
            self._decided = self._so_far

    @property
    def met(self) -> bool:
        """Whether what was counted is enough."""
        return self._enough(self.standing)

    @property
    def standing(self) -> RunningRate:
        """What has been counted so far for the decision."""
        return self._decided or self._so_far

    @property
    def _so_far(self) -> RunningRate:
        return RunningRate(self.dimension, self._sequence.bounds, self._pairs, self._invalid)

    @property
    def early_stop(self) -> EarlyStop:
        """What may be said after a run that stopped early, by all pairs that came out of it in their order."""
        rate = self._sequence.bounds
        interval = rate.low, rate.high
        return EarlyStop(self.dimension, rate.value, interval, rate.level, rate.method, self._pairs, WORD)


def score_of(outcome: Outcome) -> float | None:
    """What side 1 scored: 1 for a win, 1/2 for a tie; None for an invalid outcome."""
    return None if outcome.side is None else _SCORES[outcome.side]


def replay(
    blocks: Iterable[Block],
    decider: Decider,
    *,
    seed: int = 0,
    most: int | None = None,
    one_order: bool = False,
) -> None:
    """Count outcomes that are there already, in the random order in which they would have been drawn.

    A pair that was not asked in both orders counts as invalid, unless `one_order` is enough; one that repeats
    another does not count at all. Forty bytes of each are held.
    """
    import numpy as np

    from evenhand.results.counting import first_of_each

    parts = [_places(block, decider.dimension, seed, one_order) for block in blocks]
    if not parts:
        return
    *columns, identity, number = (np.concatenate(columns) for columns in zip(*parts, strict=True))
    kept = first_of_each(identity, number, np.isnan(columns[2]))
    instructions, each, scores = (column[kept] for column in columns)
    order = np.lexsort((each, instructions))[:most]
    ends = np.flatnonzero(np.diff(instructions[order])) + 1
    for rows in np.split(order, ends):
        decider.count([None if np.isnan(scores[row]) else float(scores[row]) for row in rows])
        if decider.met:
            return


def _places(block: Block, dimension: str, seed: int, one_order: bool) -> tuple[Any, ...]:
    """Where each pair stands in the draw, what side 1 scored (NaN for nothing), and which pair it is."""
    import numpy as np

    found = block.outcomes[dimension]
    first, second = ([mixed(number, seed) for number in column.tolist()] for column in (block.cluster, block.key))
    asked = (found.asked == _BOTH) | one_order
    score = np.where(asked & (found.side != MISSING), found.value, np.nan)
    draw = (np.array(column, dtype=np.uint64) for column in (first, second))
    return *draw, score, block.identities, block.number
