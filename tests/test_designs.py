"""How labels were drawn, as weights: weighted accuracy holds."""

from __future__ import annotations

import numpy as np

from evenhand.core.stats.clustered import difference, mean


def test_weighted_accuracy_holds_where_the_plain_one_does_not() -> None:
    """Labels mostly on pairs of which the judge is unsure: 86% right in all, 60% on those."""
    rng = np.random.default_rng(0)
    weighted = plain = 0
    clusters = np.arange(1000) // 2
    for _ in range(200):
        unsure = rng.random(1000) < 0.25
        right = rng.random(1000) < np.where(unsure, 0.6, 0.95)
        chance = np.where(unsure, 0.4, 0.05)
        drawn = rng.random(1000) < chance
        for weights in (None, 1 / chance[drawn]):
            found = mean(right[drawn], clusters[drawn], weights=weights)
            assert found.low is not None
            assert found.high is not None
            holds = found.low <= 0.8625 <= found.high
            weighted, plain = (weighted, plain + holds) if weights is None else (weighted + holds, plain)
    assert weighted >= 184
    assert plain < 20


def test_weights_are_those_of_repeated_rows() -> None:
    """Two weighs as much as two rows of the same instruction do, in the mean and in its interval."""
    values, clusters = [1.0, 0.0, 1.0, 1.0, 0.0], [0, 1, 2, 3, 4]
    twice = mean([*values, 0.0], [*clusters, 1])
    once = mean(values, clusters, weights=[1, 2, 1, 1, 1])
    assert once.value == twice.value
    assert difference([1, 1], [0, 1], [0, 1], weights=[1, 3]).value == 0.25
