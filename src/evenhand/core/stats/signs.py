"""Which way differences point, whatever their size: the sign test, by cluster.

Few differences say little of their mean: one that is large and goes the other way could be rare and not be seen,
and an interval that holds must allow for it (docs/statistics.md). That most of them point one way is another
question, which few can answer.
"""

from __future__ import annotations

from dataclasses import dataclass

from numpy.typing import ArrayLike

from evenhand.core.stats.clusters import gather

METHOD = "sign test, exact, two-sided, by cluster"


@dataclass(frozen=True, slots=True)
class Signs:
    """How many clusters point up and down, and the p-value of both being as likely; None without clusters."""

    up: int
    down: int
    p: float | None
    method: str = METHOD


def sign_test(values: ArrayLike, clusters: ArrayLike | None = None) -> Signs:
    """The exact test of as many clusters being above zero as below, by the sum of each; those at zero are left out.

    Dixon & Mood (1946), "The statistical sign test", JASA 41, 557-566: of clusters that are not at zero, those
    above are a binomial count with a chance of one half. It asks nothing of how values are distributed, and says
    nothing of their mean. For verdicts that are yes or no it is the exact form of McNemar's test (1947,
    Psychometrika 12, 153-157).

    >>> found = sign_test([0.4] * 12)
    >>> found.up, found.down, found.p == 2 / 2**12
    (12, 0, True)
    >>> sign_test([0.5, -0.1, 0.0], ["a", "a", "b"]).up, sign_test([0.0]).p
    (1, 1.0)
    """
    groups = gather(values, clusters)
    up, down = int((groups.won > groups.lost).sum()), int((groups.won < groups.lost).sum())
    return Signs(up, down, _two_sided(min(up, down), up + down) if len(groups.sizes) else None)


def _two_sided(fewer: int, n: int) -> float:
    from scipy.special import bdtr

    return min(1.0, 2 * float(bdtr(fewer, n, 0.5)))
