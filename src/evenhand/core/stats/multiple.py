"""Many questions at once: of 20 true nulls one looks special by chance, and this keeps it from doing so.

One correction for everything that compares more than one thing: rankings, several dimensions, groups by a field,
each run "less the first". What has p-values goes through `holm`; what has intervals gets its p-value from `p_of`,
which asks at what level the interval comes to leave out the null.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from evenhand.core.stats.clusters import Floats

METHOD = "Holm (1979)"
Interval = tuple[float | None, float | None]
# A level so near to one that no interval of use leaves anything out there.
_SUREST = 1 - 1e-9


def holm(p: ArrayLike) -> Floats:
    """p-values corrected for their number, so that a false one among those below x comes in a share x of all cases.

    Holm (1979), "A simple sequentially rejective multiple test procedure", Scand. J. Statistics 6, 65-70. It asks
    nothing of how the tests depend on each other, which for differences between the same models they do.

    >>> holm([0.01, 0.04, 0.03]).round(3).tolist()
    [0.03, 0.06, 0.06]
    """
    raw = np.asarray(p, dtype=np.float64)
    order = np.argsort(raw, kind="stable")
    steps = np.maximum.accumulate(raw[order] * np.arange(len(raw), 0, -1))
    corrected = np.empty_like(raw)
    corrected[order] = np.minimum(steps, 1.0)
    return corrected


def p_of(interval_at: Callable[[float], Interval], null: float = 0.0) -> float | None:
    """The p-value that goes with an interval: one less the highest level at which it leaves out the null.

    `interval_at` gives the interval at a level; a higher level is a wider interval. None where there is none.

    >>> from evenhand.core.stats.winrate import paired_difference
    >>> def at(level):
    ...     found = paired_difference([1] * 12 + [0], [0] * 12 + [0], level=level)
    ...     return found.low, found.high
    >>> 0 < p_of(at) < 0.001
    True
    """
    if interval_at(0.5)[0] is None:
        return None
    if _leaves_out(interval_at(_SUREST), null):
        return 1 - _SUREST
    low, high = 0.0, _SUREST  # leaves out the null at low or nowhere, and never at high
    for _ in range(40):
        middle = (low + high) / 2
        low, high = (middle, high) if _leaves_out(interval_at(middle), null) else (low, middle)
    return 1 - low


def _leaves_out(interval: Interval, null: float) -> bool:
    low, high = interval
    return low is not None and high is not None and not low <= null <= high


@dataclass(frozen=True, slots=True)
class Together:
    """Several comparisons together: the p-value of each as it is and corrected, and which stand out."""

    p: tuple[float | None, ...]
    corrected: tuple[float | None, ...]
    decided: tuple[bool, ...]
    level: float = 0.95
    method: str = METHOD

    @property
    def questions(self) -> int:
        """How many comparisons were corrected for."""
        return sum(p is not None for p in self.p)


def correct_together(p: Sequence[float | None], *, level: float = 0.95) -> Together:
    """Comparisons corrected for each other; those without a p-value stand beside and count for nothing.

    >>> found = correct_together([0.01, None, 0.04])
    >>> found.corrected, found.decided, found.questions
    ((0.02, None, 0.04), (True, False, True), 2)
    """
    there = [value for value in p if value is not None]
    fixed = iter(holm(there).tolist())
    corrected = tuple(None if value is None else next(fixed) for value in p)
    decided = tuple(value is not None and value <= 1 - level + 1e-12 for value in corrected)
    return Together(tuple(p), corrected, decided, level)
