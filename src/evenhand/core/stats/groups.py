"""Which models can be told apart: letters for those that cannot, and ranks."""

from __future__ import annotations

import string

import numpy as np

from evenhand.core.stats.comparisons import Bools

_LETTERS = string.ascii_lowercase + string.ascii_uppercase


def letters(apart: Bools) -> list[str]:
    """Letters such that two models share one exactly if they cannot be told apart; the best model's is a.

    Piepho (2004), "An algorithm for a letter-based representation of all-pairwise comparisons", J. Computational
    and Graphical Statistics 13, 456-466. Sets of models of which no two are apart are taken greedily, from the best
    model down, until every such two are in one; see Gramm et al. (2008), "Algorithms for compact letter displays",
    Computational Statistics and Data Analysis 52, 725-736. Models stand best first.

    >>> letters(np.array([[0, 0, 1], [0, 0, 0], [1, 0, 0]], dtype=bool))
    ['a', 'ab', 'b']
    """
    size = len(apart)
    together = ~(apart | apart.T)
    uncovered = together.copy()
    marks = [""] * size
    count = 0
    for first in range(size):
        for second in range(first, size):
            if not uncovered[first, second]:
                continue
            group = _grow(together, first, second)
            uncovered[np.ix_(group, group)] = False
            for member in group:
                marks[member] += _mark(count)
            count += 1
    return marks


def _grow(together: Bools, first: int, second: int) -> list[int]:
    """The two and all others, nearest rank first, that are together with every one taken so far."""
    group = [first, second] if first != second else [first]
    fits = together[first] & together[second]
    fits[group] = False
    for other in sorted(np.flatnonzero(fits), key=lambda place: (abs(place - first), place)):
        if fits[other]:
            group.append(int(other))
            fits &= together[other]
            fits[other] = False
    return sorted(group)


def _mark(number: int) -> str:
    return _LETTERS[number] if number < len(_LETTERS) else f"({number + 1})"


def rank_ranges(above: Bools) -> tuple[list[int], list[int]]:
    """The best and the worst rank that each model may have, from how many were shown to be above and below it.

    With the tests corrected together, all ranges hold at once; Klein, Wright and Wieczorek (2020), "A joint
    confidence region for an overall ranking of populations", J. Royal Statistical Society C 69, 589-606.
    `above[i, j]`: i was shown to be above j.

    >>> rank_ranges(np.array([[0, 0, 1], [0, 0, 0], [0, 0, 0]], dtype=bool))
    ([1, 1, 2], [2, 3, 3])
    """
    best = 1 + above.sum(axis=0)
    worst = len(above) - above.sum(axis=1)
    return [int(rank) for rank in best], [int(rank) for rank in worst]
