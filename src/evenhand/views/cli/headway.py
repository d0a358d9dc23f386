"""How far a run is, by its answers: a pair can take a local model a minute, and users watch."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field

from evenhand.running.runner import Totals
from evenhand.views import console


@dataclass
class Headway:
    """Follows the totals of a run, which grow with each answer.

    >>> now, totals = [0.0], Totals()
    >>> way = Headway(total=10, per_pair=4, totals=totals, clock=lambda: now[0])
    >>> now[0], totals.asked = 6.0, 2
    >>> way.fraction(0), way.seconds_left(0)
    (0.5, None)
    >>> now[0], totals.asked = 12.0, 4
    >>> way.judged()
    >>> way.fraction(1), way.seconds_left(1)
    (1.0, 108.0)
    """

    total: int  # pairs
    per_pair: int  # answers that a pair takes, if none is kept
    totals: Totals
    clock: Callable[[], float] = time.monotonic
    _began: float = field(init=False)
    _settled: int = field(init=False, default=0)  # answers of pairs that are done
    _over: bool = field(init=False, default=False)

    def __post_init__(self) -> None:
        self._began = self.clock()

    def judged(self) -> None:
        """One more pair is done; until the first answer, they were all kept and took no time of the judge's."""
        self._settled = self.totals.asked
        if not self.totals.asked:
            self._began = self.clock()

    def end(self) -> None:
        """The run is over, with all pairs or with enough of them: nothing is left to wait for.

        >>> way = Headway(10, 4, Totals(asked=8))
        >>> way.end()
        >>> way.text(2)
        '8 answers, 0 tokens'
        """
        self._over = True

    def fraction(self, done: int) -> float:
        """Pairs that are done, those under way by their answers."""
        return min(float(self.total), done + max(0, self.totals.asked - self._settled) / self.per_pair)

    def seconds_left(self, done: int) -> float | None:
        """About how long it will take; None before there are as many answers as a pair takes."""
        asked = self.totals.asked
        if asked < self.per_pair:
            return None
        left = (self.total - self.fraction(done)) * self.per_pair
        return (self.clock() - self._began) / asked * left

    def text(self, done: int) -> str:
        """Answers, tokens and speed, and how long it will take.

        >>> Headway(10, 4, Totals(asked=1)).text(0).split(", ")[0]
        '1 answer'
        """
        seconds, usage = max(self.clock() - self._began, 1e-9), self.totals.usage
        words = [console.count(self.totals.asked, "answer"), f"{usage.computed:,} tokens"]
        if usage.computed and seconds >= 1:
            words[-1] += f" ({usage.computed / seconds:,.0f}/s)"
        left = self.seconds_left(done)
        if left is not None and done < self.total and not self._over:
            words.append(f"about {console.clock(left)} left")
        return ", ".join(words)
