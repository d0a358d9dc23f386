"""A confidence sequence: an interval for a mean that holds at every moment, however often you look.

An interval for a fixed n is wrong when the data decide where to stop. This one may be looked at after every
observation. It is a game against each mean m that could be true: a gambler bets on observations above m, at odds
that are fair if m is the mean. If it is, the capital ever grows to 1/a times its stake with a probability of at
most a (Ville's inequality, 1939); so an m against which it has grown that much is ruled out, for good.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

# Observations are counted by their value, in so many steps and rounded so as to widen the interval. It keeps the
# room that a sequence takes the same for ten observations and for ten million; 0, 1/2 and 1 are exact.
_STEPS = 1000
# How many bets are mixed. With so many, Gauss's rule is exact for up to 255 observations.
_BETS = 128
# The lower end is found to within this, and begins there.
_EXACT = 1e-7
_SMALLEST = 1e-9
METHOD = "betting confidence sequence, uniform mixture of bets"


@dataclass(frozen=True, slots=True)
class Bounds:
    """A mean between 0 and 1 with the interval that holds at all times; None where nothing was observed.

    `least` and `most` are what the mean itself would be if all that is not known were 0, or 1.
    """

    value: float | None
    low: float
    high: float
    n: int
    least: float | None = None
    most: float | None = None
    level: float = 0.95
    method: str = METHOD


class ConfidenceSequence:
    """An interval for the mean of observations in [0, 1], valid at every moment at once.

    The observations may be of any kind, as long as each has the same mean given those before it: independent
    draws have. The two ends share the error evenly. An observation that is only known to lie between `least` and
    `most` may be added as such: the lower end is that of a sequence in which all of them are least, the upper end
    that of one in which all of them are most, so the interval holds whichever way they fell.

    Waudby-Smith and Ramdas (2024), "Estimating means of bounded random variables by betting", JRSS-B 86, 1-27:
    the capital against m is the product of 1 + bet (x - m). Here it is the mean of that product over all constant
    bets from 0 to 1/m, as in Cover (1991), "Universal portfolios", Mathematical Finance 1, 1-29; Orabona and Jun
    (2024), "Tight concentrations and confidence sequences from the regret of universal portfolio", IEEE Trans.
    Inf. Theory 70, 436-455, show that no choice of bets made on the way does much better.

    >>> sequence = ConfidenceSequence()
    >>> for win in [1, 1, 1, 0.5, 1, 1, 1, 1, 1, 1]:
    ...     sequence.add(win)
    >>> bounds = sequence.bounds
    >>> bounds.value, round(bounds.low, 3), round(bounds.high, 3), bounds.n
    (0.95, 0.557, 0.999, 10)
    """

    def __init__(self, level: float = 0.95) -> None:
        if not 0 < level < 1:
            raise ValueError(f"level is {level}, not between 0 and 1")
        self.level, self.n = level, 0
        self._below, self._above = _Floor((1 - level) / 2), _Floor((1 - level) / 2)
        self._least = self._most = self._sum = 0.0
        self._known = 0

    def add(self, value: float | None, least: float | None = None, most: float | None = None) -> None:
        """One more observation: a value, or what it is known to lie between."""
        least = least if least is not None else 0.0 if value is None else value
        most = most if most is not None else 1.0 if value is None else value
        if not 0 <= least <= (least if value is None else value) <= most <= 1:
            raise ValueError(f"{least} <= {value} <= {most} does not hold within 0 and 1")
        self.n += 1
        self._least, self._most = self._least + least, self._most + most
        if value is not None:
            self._known, self._sum = self._known + 1, self._sum + value
        self._below.add(least)
        self._above.add(1 - most)  # the same game, with the sides changed

    @property
    def bounds(self) -> Bounds:
        """Where the mean lies, by all that was observed so far."""
        low, high = self._below.at, 1 - self._above.at
        if not self.n:
            return Bounds(None, low, high, 0, level=self.level)
        value = self._sum / self._known if self._known else None
        return Bounds(value, low, high, self.n, self._least / self.n, self._most / self.n, self.level)


class _Floor:
    """The lower end: every mean up to `at` is ruled out."""

    def __init__(self, error: float) -> None:
        import numpy as np  # here and below, because a command that needs no sequence should not wait for it

        self.at = 0.0
        self._enough = math.log(1 / error)
        self._counts = np.zeros(_STEPS + 1)
        self._places: Any = np.zeros(0, dtype=int)  # of the values that were observed
        self._over = 0.0  # the log capital against `at` is not more than so much above what rules it out

    def add(self, value: float) -> None:
        step = math.floor(value * _STEPS)
        is_new = not self._counts[step]
        self._counts[step] += 1
        if is_new:
            self._places = self._counts.nonzero()[0]
        if step > self.at * _STEPS:  # else every bet has lost
            self._over += math.log(step / (max(self.at, _SMALLEST) * _STEPS))  # what the boldest bet has won
            if self._over >= 0:
                self._raise()

    def _raise(self) -> None:
        """Newton's method: the log capital falls with log m and is convex in it, so no step goes too far."""
        m = max(self.at, _SMALLEST)
        over, slope = self._log_capital(m)
        self._over = over
        while over >= 0:
            gain, self.at, self._over = m * math.expm1(-over / slope), m, over
            if gain < _EXACT:
                return
            m += gain
            over, slope = self._log_capital(m)

    def _log_capital(self, m: float) -> tuple[float, float]:
        """The log of what one unit has become in the game against m, less what rules m out; its slope in log m."""
        import numpy as np

        bets, log_weights = _bets()
        often, returns = self._counts[self._places], bets * (self._places[:, None] / (_STEPS * m))
        factors = returns + (1 - bets)
        logs = often @ np.log(factors) + log_weights
        most = logs.max()
        shares = np.exp(logs - most)
        total = shares.sum()
        over = float(most + math.log(total)) - self._enough
        return over, 0.0 if over < 0 else float(-((often @ (returns / factors)) @ shares) / total)


@lru_cache(maxsize=1)
def _bets() -> tuple[Any, Any]:
    """Shares of the largest bet, 1/m, spread evenly over 0 to 1, and the logarithms of their weights."""
    import numpy as np

    nodes, weights = np.polynomial.legendre.leggauss(_BETS)
    return (nodes + 1) / 2, np.log(weights / 2)
