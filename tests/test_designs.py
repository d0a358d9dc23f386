"""How labels were drawn, as weights: what is used, what is left out, and that weighted accuracy holds."""

from __future__ import annotations

import numpy as np
import pytest

from evenhand.core.stats.clustered import difference, mean
from evenhand.core.stats.designs import design_weights

NAN = float("nan")


def test_a_random_draw_needs_no_weights() -> None:
    found = design_weights([0.2] * 5)
    assert (found.kind, found.weights.tolist(), found.reason) == ("random", [1.0] * 5, "")
    assert found.representative


def test_unequal_chances_are_weighted_and_said() -> None:
    found = design_weights([0.5, 0.1, NAN], [True, True, False])
    assert found.kind == "weighted"
    assert found.weights == pytest.approx([2.0, 10.0, 0.0])
    assert (found.used, found.left_out) == (2, 0)
    assert "one over the probability" in found.reason


def test_labels_of_unknown_origin_are_left_out_where_others_are_known() -> None:
    found = design_weights([0.1, NAN, 0.1, NAN])
    assert (found.kind, found.used, found.left_out) == ("known part", 2, 2)
    assert found.weights.tolist() == [1.0, 0.0, 1.0, 0.0]
    assert "2 labels are left out" in found.reason


def test_where_nothing_is_known_it_is_assumed_and_said() -> None:
    found = design_weights([NAN, NAN], [True, False])
    assert (found.kind, found.weights.tolist()) == ("assumed random", [1.0, 0.0])
    assert not found.representative
    assert "not known" in found.reason


def test_labels_on_every_pair_need_no_design() -> None:
    assert design_weights([NAN, 0.5], [True, True]).kind == "complete"


def test_a_few_heavy_labels_are_told() -> None:
    assert "carry much of the weight" in design_weights([0.9] * 99 + [0.001]).reason


@pytest.mark.parametrize("chance", [0.0, -0.1, 1.5])
def test_a_chance_that_is_none_is_refused(chance: float) -> None:
    with pytest.raises(ValueError, match="above 0"):
        design_weights([0.5, chance])


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
