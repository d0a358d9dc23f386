"""Which words are said of one group more than of another."""

from __future__ import annotations

import math

PRIOR = 0.5  # of each phrase


def log_odds_z(counts: tuple[int, int], totals: tuple[int, int], phrases: int, prior: float = PRIOR) -> float:
    """How far a phrase is said of the first group more than of the second, in standard errors.

    The log-odds ratio with a symmetric Dirichlet prior over its approximate standard error: Monroe, Colaresi and
    Quinn (2008), "Fightin' Words: Lexical Feature Selection and Evaluation for Identifying the Content of Political
    Conflict", Political Analysis 16(4), section 3. `counts` are those of the phrase in both groups, `totals` those
    of all phrases; `phrases` is how many different ones there are. A phrase that is said a few times only is far
    from 0 if it is said of one group alone.

    >>> round(log_odds_z((20, 2), (100, 100), 40), 2), log_odds_z((5, 5), (50, 50), 40)
    (3.39, 0.0)
    """
    rest = prior * (phrases - 1)
    odds = [math.log((n + prior) / (total - n + rest)) for n, total in zip(counts, totals, strict=True)]
    return (odds[0] - odds[1]) / math.sqrt(sum(1 / (n + prior) for n in counts))
