"""What may be said of a win rate after a run that stopped when it had seen enough.

Where the data decide when to stop, an interval for a fixed n does not hold: it is looked at most often where chance
has carried it away. The confidence sequence (sequence.py) holds at every n, so it holds at the one at which a run
stopped, for whatever reason. The share itself leans away from the rate at which it was stopped: a run ends early
when luck has helped it. How much is simulated in `benchmarks/sequence.py`: 2 to 6 points. The middle of the
interval leans less where the rate is near the one it was stopped at, and falls short where it is far (by 15 points
at a rate of 0.9, after a dozen observations), so it stands beside the share and does not replace it.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass
from itertools import groupby

from evenhand.core.stats.sequence import Bounds, ConfidenceSequence

WORD = (
    "The run was to stop when it had seen enough. The interval holds however it was stopped; the share leans away"
    " from the rate that it was stopped at, by 2 to 6 points in simulations."
)


@dataclass(frozen=True, slots=True)
class Stopped:
    """A mean after a run that was stopped by what it showed.

    `bounds` is the interval that holds at any n, `middle` its middle, `pairs` and `invalid` count observations
    (bounds.n counts clusters), and `word` says what a reader must know of the share.
    """

    bounds: Bounds
    middle: float | None
    pairs: int
    invalid: int
    word: str = WORD


def anytime_interval(
    values: Sequence[float | None], clusters: Sequence[Hashable] | None = None, *, level: float = 0.95
) -> Stopped:
    """The interval of a mean that holds whenever one stops, from values in the order in which they were drawn.

    A value lies between 0 and 1; None or NaN is an invalid one, which may have been anything. Values of one cluster
    (an instruction) follow each other, and are one observation: their mean. Without clusters each value is its own.

    >>> found = anytime_interval([1.0, 1.0, 0.5, None, 1.0, 1.0, 1.0, 1.0], list("aabbcdef"))
    >>> found.bounds.n, found.pairs, found.invalid, round(found.bounds.low, 2), round(found.bounds.high, 2)
    (6, 8, 1, 0.35, 1.0)
    """
    sequence = ConfidenceSequence(level)
    homes: Iterable[Hashable] = range(len(values)) if clusters is None else clusters
    rows = list(zip(homes, (_read(value) for value in values), strict=True))
    seen: set[Hashable] = set()
    for home, group in groupby(rows, key=lambda row: row[0]):
        if home in seen:
            raise ValueError(f"the values of cluster {home!r} do not follow each other")
        seen.add(home)
        add_cluster(sequence, [value for _, value in group])
    bounds = sequence.bounds
    middle = None if bounds.value is None else (bounds.low + bounds.high) / 2
    return Stopped(bounds, middle, len(rows), sum(value is None for _, value in rows))


def add_cluster(sequence: ConfidenceSequence, values: Sequence[float | None]) -> None:
    """One more cluster as one observation; the invalid ones among its values may have been anything.

    >>> sequence = ConfidenceSequence()
    >>> add_cluster(sequence, [1.0, None])
    >>> sequence.bounds.least, sequence.bounds.most
    (0.5, 1.0)
    """
    known = [value for value in values if value is not None]
    value = sum(known) / len(known) if known else None
    lost = len(values) - len(known)
    sequence.add(value, sum(known) / len(values), (sum(known) + lost) / len(values))


def _read(value: float | None) -> float | None:
    return None if value is None or math.isnan(value) else value
