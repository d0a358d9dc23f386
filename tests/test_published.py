"""Published figures, worked out again from the published votes and verdicts."""

from __future__ import annotations

import gzip
import json
from collections import defaultdict
from functools import cache
from itertools import permutations
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from evenhand.core.stats import agreement, bias

DATA = Path(__file__).resolve().parents[2] / "shared" / "data"
pytestmark = [
    pytest.mark.shared,
    pytest.mark.skipif(not DATA.is_dir(), reason="no shared data folder beside the checkout"),
]
CODES = {"A": 0, "B": 1, "tie": 2, None: -1}


def rows_of(name: str) -> list[dict[str, Any]]:
    file = DATA / name
    data = gzip.decompress(file.read_bytes()) if file.suffix == ".gz" else file.read_bytes()
    return [json.loads(line) for line in data.decode().splitlines()]


def codes(labels: Any) -> Any:
    return np.array([CODES[label] for label in labels])


def test_pandalms_annotators_agree_as_published() -> None:
    """Wang et al. (2024), "PandaLM", section 5: Cohen's kappas of its three annotators .85, .86 and .88."""
    rows = rows_of("pandalm.jsonl")
    votes = np.stack([codes(row["human"]) for row in rows])
    clusters = [row["instruction"] for row in rows]
    mean_kappa, kappas = agreement.pairwise_kappas(votes, clusters, ["1", "2", "3"])
    assert sorted(round(k.value or 0, 2) for k in kappas.values()) == [0.85, 0.86, 0.88]
    assert [round(kappas[pair].value or 0, 2) for pair in (("1", "2"), ("1", "3"), ("2", "3"))] == [
        0.85,
        0.88,
        0.86,
    ]
    assert mean_kappa is not None
    assert mean_kappa.value == pytest.approx(0.863, abs=0.005)
    assert mean_kappa.clusters == 170, "its 999 pairs are about 170 instructions"


@pytest.mark.parametrize(("judge", "share"), [("gpt-3.5-turbo", 0.698), ("pandalm-7b", 0.668)])
def test_pandalms_judges_agree_with_the_majority_as_published(judge: str, share: float) -> None:
    people, judges = rows_of("pandalm.jsonl"), rows_of("pandalm_published_judges.jsonl")
    said = {row["id"]: row[judge] for row in judges}
    truth = codes(row["label"] for row in people)
    verdicts = codes(said[row["id"]] for row in people)
    clusters = [row["instruction"] for row in people]
    # The published share counts answers that could not be read as wrong.
    found = agreement.three_way(verdicts, truth, clusters, missing_is_wrong=True)
    assert found.value is not None
    assert round(found.value, 3) == share
    assert found.n == 999


def test_the_longer_output_wins_as_often_as_the_data_say() -> None:
    for name, share in (("pandalm", 0.67), ("llmbar", 0.27)):
        rows = rows_of(f"{name}.jsonl")
        longer = bias.longer_side([len(r["output_1"]) for r in rows], [len(r["output_2"]) for r in rows])
        truth = codes(row["label"] for row in rows)
        found = agreement.decided(agreement.score_sides(longer, truth), truth, [r["instruction"] for r in rows])
        assert found.value == pytest.approx(share, abs=0.01)


@cache
def llmbar() -> tuple[dict[str, dict[str, Any]], dict[tuple[str, str], list[dict[str, Any]]]]:
    judged = defaultdict(list)
    for row in rows_of("llmbar_published_judgments.jsonl.gz"):
        judged[row["judge"], row["strategy"]].append(row)
    return {row["id"]: row for row in rows_of("llmbar.jsonl")}, judged


@pytest.mark.parametrize(
    ("judge", "strategy", "accuracy", "same"),
    [
        ("GPT-4", "Vanilla_NoRules", 93.5, 97.0),
        ("GPT-4", "Vanilla", 95.5, 95.0),
        ("GPT-4", "Metrics_Reference", 96.0, 96.0),
        ("GPT-4", "Swap", 94.5, 97.0),
        ("ChatGPT", "Vanilla", 81.5, 71.0),
        ("ChatGPT", "Swap", 77.5, 89.0),
    ],
)
def test_llmbars_accuracies_and_agreements_on_natural_pairs(
    judge: str, strategy: str, accuracy: float, same: float
) -> None:
    """Zeng et al. (2024), "Evaluating large language models at evaluating instruction following": mean accuracy
    over the two orders, and the share of pairs on which both orders say the same.
    """
    pairs, judged = llmbar()
    rows = [row for row in judged[judge, strategy] if "Natural" in row["id"]]
    truth = codes(pairs[row["id"]]["label"] for row in rows)
    clusters = [pairs[row["id"]]["instruction"] for row in rows]
    one, two = (codes(row[order] for row in rows) for order in ("verdict_order_1", "verdict_order_2_mapped_back"))
    each = [agreement.three_way(said, truth, clusters).value for said in (one, two)]
    assert None not in each
    assert 50 * sum(x for x in each if x is not None) == pytest.approx(accuracy)
    changed = bias.change_rate(one, two, clusters)
    assert changed.value is not None
    assert 100 * (1 - changed.value) == pytest.approx(same)
    # With no ties a verdict that changes has flipped.
    assert bias.flip_rate(one, two, clusters).value == changed.value


def test_every_published_judge_of_llmbar_by_plain_counting() -> None:
    pairs, judged = llmbar()
    assert len(judged) == 65
    for rows in judged.values():
        clusters = [pairs[row["id"]]["instruction"] for row in rows]
        one, two = (
            codes(row[order] for row in rows) for order in ("verdict_order_1", "verdict_order_2_mapped_back")
        )
        valid = [(a, b) for a, b in zip(one.tolist(), two.tolist(), strict=True) if a >= 0 and b >= 0]
        flips = sum(a != b for a, b in valid) / len(valid)
        # The first place is side 1 in the first order and side 2 in the second.
        first = sum((a == 0) + (b == 1) for a, b in valid)
        second = sum((a == 1) + (b == 0) for a, b in valid)
        assert bias.flip_rate(one, two, clusters).value == pytest.approx(flips)
        found = bias.position_bias(one, two, clusters)
        assert found.value == pytest.approx((first - second) / (2 * len(valid)))
        assert found.n == len(valid)


def test_llmbars_other_judges_lean_further_to_a_place_than_gpt_4() -> None:
    pairs, judged = llmbar()
    biases = {}
    for judge in ("GPT-4", "ChatGPT", "LLaMA2", "Falcon"):
        rows = judged[judge, "Vanilla"]
        one, two = (
            codes(row[order] for row in rows) for order in ("verdict_order_1", "verdict_order_2_mapped_back")
        )
        found = bias.position_bias(one, two, [pairs[row["id"]]["instruction"] for row in rows])
        biases[judge] = abs(found.value or 0)
    assert biases["GPT-4"] < 0.05 < 0.1 < min(biases[name] for name in ("ChatGPT", "LLaMA2", "Falcon"))


def test_crowdrags_people_agree_little_more_often_than_coins() -> None:
    rows = rows_of("crowdrag25-dev.jsonl")
    counts = [[row["human"].count(label) for label in ("A", "B", "tie")] for row in rows]
    found = agreement.people(counts, [row["instruction"] for row in rows])
    plain = [sum(a == b for a, b in permutations(row["human"], 2)) / len(row["human"]) for row in rows]
    plain = [same / (len(row["human"]) - 1) for same, row in zip(plain, rows, strict=True)]
    assert found.agreement.value == pytest.approx(sum(plain) / len(plain)) == pytest.approx(0.559, abs=0.001)
    assert found.alpha.value == pytest.approx(0.12, abs=0.005)
