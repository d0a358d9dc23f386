"""Win rates with intervals."""

from __future__ import annotations

import math
from dataclasses import dataclass
from statistics import NormalDist


@dataclass(frozen=True, slots=True)
class Rate:
    """A share between 0 and 1 with its interval, and how it came about; None where there is no data."""

    value: float | None
    low: float | None
    high: float | None
    n: int
    level: float = 0.95
    method: str = "Wilson score"


def win_rate(wins: float, ties: float, losses: float, *, level: float = 0.95) -> Rate:
    """The share of pairs won, a tie counting one half, with Wilson's score interval.

    Wilson (1927), "Probable inference, the law of succession, and statistical inference", JASA 22, 209-212.
    The interval is for a share of n yes-or-no trials. A tie varies less than a win or a loss does, so with ties
    among the pairs the interval is a little wider than it need be, never too narrow.

    >>> win_rate(8, 0, 2)
    Rate(value=0.8, low=0.4901..., high=0.9433..., n=10, level=0.95, method='Wilson score')
    >>> win_rate(0, 0, 0).value is None
    True
    """
    n = wins + ties + losses
    if n == 0:
        return Rate(None, None, None, 0, level)
    share = (wins + ties / 2) / n
    z = NormalDist().inv_cdf((1 + level) / 2)
    centre = (share + z * z / (2 * n)) / (1 + z * z / n)
    half = z / (1 + z * z / n) * math.sqrt(share * (1 - share) / n + z * z / (4 * n * n))
    # Rounding must not put the share itself outside: all won is 1.0, and centre + half may be a hair less.
    low, high = min(share, max(0.0, centre - half)), max(share, min(1.0, centre + half))
    return Rate(share, low, high, int(n), level)
