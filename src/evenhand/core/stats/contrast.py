"""Which words are said of one group more than of another."""

from __future__ import annotations

import math

PRIOR = 0.5  # what is added to each count; Jeffreys' prior of a share


def log_odds_z(first: int, second: int, total_first: int, total_second: int, prior: float = PRIOR) -> float:
    """How far a phrase is said of the first group more than of the second, in standard errors.

    The log-odds ratio with a Dirichlet prior over its approximate standard error: Monroe, Colaresi and Quinn
    (2008), "Fightin' Words: Lexical Feature Selection and Evaluation for Identifying the Content of Political
    Conflict", Political Analysis 16(4), section 3.4; here all other phrases together have the same prior as this
    one. A phrase that is said a few times only is far from 0 if it is said of one group alone.

    >>> round(log_odds_z(20, 2, 100, 100), 2), log_odds_z(5, 5, 50, 50)
    (3.44, 0.0)
    """
    odds = [
        math.log((count + prior) / (total - count + prior))
        for count, total in ((first, total_first), (second, total_second))
    ]
    return (odds[0] - odds[1]) / math.sqrt(1 / (first + prior) + 1 / (second + prior))
