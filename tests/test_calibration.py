"""Calibration: the model finds what is there, exchanges sides exactly, is kept, and refuses to guess."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from evenhand import Judge, Pair, ScriptedEngine, Store
from evenhand.core.columns import blocks_of
from evenhand.core.errors import InputError
from evenhand.core.judge import Conversation, Judgment
from evenhand.core.protocol import Prompt
from evenhand.core.stats import calibration
from evenhand.core.stats.calibration import Calibration, TooFewLabels, fit, reliability, scores
from evenhand.core.verdict import Verdict
from evenhand.results.calibrated_outcomes import calibrated
from evenhand.results.calibration_fit import fit_evidence
from evenhand.results.evidence import gather
from evenhand.results.people import People
from evenhand.results.run import blocks_of_judge, calibrations_of
from test_card import judge_that_knows, judged, pairs_with_votes
from test_cli import evenhand, fields_of


def drawn(n: int, *, slope: float, tie: float, length: float = 0.0, seed: int = 0) -> dict[str, Any]:
    """Labels drawn from the model itself, for a judge that is far too shy."""
    rng = np.random.default_rng(seed)
    odds, lengths = rng.normal(0, 0.3, n), rng.normal(0, 0.8, n)
    true = Calibration(slope, tie, length, n, n).apply(odds, lengths)
    said = np.column_stack([np.exp(odds / 2), np.exp(-odds / 2), np.full(n, 0.5)])
    return {
        "p": said / said.sum(axis=1, keepdims=True),
        "log_odds": odds,
        "log_length": lengths,
        "truth": np.array([rng.choice(3, p=row) for row in true]),
        "clusters": np.arange(n) // 2,
    }


def test_the_model_finds_what_is_there() -> None:
    data = drawn(4000, slope=6.0, tie=-0.5, length=0.9)
    found = fit(**data)
    assert found.slope == pytest.approx(6.0, rel=0.12)
    assert found.tie == pytest.approx(-0.5, abs=0.12)
    assert found.length == pytest.approx(0.9, rel=0.12)
    assert found.n == sum(found.labels) == 4000
    assert found.clusters == 2000


def test_it_is_a_maximum() -> None:
    """No small step from the fitted weights has a better penalised likelihood."""
    data = drawn(300, slope=4.0, tie=-1.0)
    x = data["log_odds"][:, None]
    weights = calibration.fit_davidson(x, data["truth"])
    scale = np.sqrt((x**2).mean(axis=0))

    def objective(w: Any) -> float:
        losses = calibration.log_losses(calibration.probabilities(x, w), data["truth"]).sum()
        odds = np.exp([0.0, 0.0, w[-1]])
        middle = np.log(odds / odds.sum()).mean()
        return float(-losses - ((w[:-1] * scale) ** 2).sum() / (2 * 3.0**2) + middle)

    for step in (0.01, -0.01):
        for place in (0, 1):
            other = weights.copy()
            other[place] += step
            assert objective(other) < objective(weights)


def test_held_out_pairs_get_better_and_it_says_by_how_much() -> None:
    found = fit(**drawn(600, slope=6.0, tie=-1.0))
    assert found.before is not None
    assert found.after is not None
    assert found.gain is not None
    assert found.gain.low is not None
    assert found.gain.low > 0
    assert found.gain.value == pytest.approx(found.before.log_loss - found.after.log_loss)
    assert found.after.brier < found.before.brier


def test_noise_gains_nothing_and_leaves_no_length_term() -> None:
    data = drawn(400, slope=0.0, tie=-1.0)
    found = fit(**data)
    assert abs(found.slope) < 2
    assert found.length == 0.0
    assert found.after is not None
    assert found.after.decided == pytest.approx(0.5, abs=0.1)


def test_a_judge_without_signal_is_calibrated_to_the_shares_of_the_labels() -> None:
    """Such a judge has a signal by chance in about one fit of twenty, and never one that turns verdicts around."""
    shown = 0
    for seed in range(60):
        found = fit(**drawn(150, slope=0.0, tie=-1.0, seed=seed))
        shown += found.signal
        assert found.slope >= 0
        if not found.signal:
            assert (found.slope, found.length) == (0.0, 0.0)
            p = found.apply([-5.0, 5.0], [1.0, -1.0])
            np.testing.assert_array_equal(p[0], p[1])
            assert p[0, 0] == p[0, 1]
            assert p[0, 2] == pytest.approx(found.labels[2] / 150, abs=0.01)
            assert found.signal_p is not None
            assert found.signal_p > 0.05
    assert shown <= 8  # 3 expected; more than 8 in one of 200 sets of 60


def test_odds_that_go_against_people_are_not_turned_around() -> None:
    data = drawn(400, slope=6.0, tie=-1.0)
    data["log_odds"] = -data["log_odds"]
    found = fit(**data)
    assert (found.slope, found.length, found.signal) == (0.0, 0.0, False)
    assert found.signal_p == pytest.approx(1.0, abs=1e-6)


def test_a_judge_with_signal_has_one() -> None:
    found = [fit(**drawn(150, slope=6.0, tie=-1.0, seed=seed)) for seed in range(20)]
    assert all(one.signal and one.slope > 0 for one in found)


def test_the_length_term_is_there_only_where_it_helps() -> None:
    assert fit(**drawn(500, slope=5.0, tie=-1.0, length=1.0)).length > 0.5
    assert fit(**drawn(500, slope=5.0, tie=-1.0, length=0.0)).length == 0.0


def turned(data: dict[str, Any]) -> dict[str, Any]:
    return {
        **data,
        "p": data["p"][:, [1, 0, 2]],
        "log_odds": -data["log_odds"],
        "log_length": -data["log_length"],
        "truth": np.array([1, 0, 2])[data["truth"]],
    }


def test_exchanging_the_sides_exchanges_the_probabilities() -> None:
    data = drawn(200, slope=5.0, tie=-1.0, length=0.8)
    one, other = fit(**data), fit(**turned(data))
    assert (one.slope, one.tie, one.length) == pytest.approx((other.slope, other.tie, other.length))
    assert one.after is not None
    assert other.after is not None
    assert one.after.log_loss == pytest.approx(other.after.log_loss)
    p = one.apply(data["log_odds"], data["log_length"])
    mirrored = one.apply(-data["log_odds"], -data["log_length"])
    np.testing.assert_array_equal(p[:, [1, 0, 2]], mirrored)


def test_the_order_of_rows_does_not_matter_and_the_seed_decides_the_rest() -> None:
    data = drawn(200, slope=5.0, tie=-1.0)
    order = np.random.default_rng(1).permutation(200)
    other = {name: column[order] for name, column in data.items()}
    one, two = fit(**data), fit(**other)
    assert (one.slope, one.tie) == pytest.approx((two.slope, two.tie))
    assert one.after is not None
    assert two.after is not None
    assert one.after.log_loss == pytest.approx(two.after.log_loss)
    assert fit(**data) == one
    assert fit(**data, seed=1).after != one.after


def test_clusters_stay_whole() -> None:
    """Ten rows of each instruction that are copies of one: folds that cut through them would see the future."""
    data = {name: np.repeat(column, 10, axis=0) for name, column in drawn(60, slope=0.0, tie=-1.0).items()}
    data["clusters"] = np.arange(600) // 10
    folds = calibration._folds(
        data["clusters"], calibration.Inputs(data["log_odds"], data["log_length"], np.ones(600)), data["truth"], 0
    )
    assert all(len(set(folds[data["clusters"] == cluster])) == 1 for cluster in range(60))
    assert sorted(np.bincount(folds)) == [120] * 5


@pytest.mark.parametrize("sure", [0.999999999, 1.0])
def test_a_judge_without_doubt_or_error_gives_finite_numbers(sure: float) -> None:
    truth = np.array([0, 1] * 40)
    odds = np.where(truth == 0, 20.7, -20.7)
    p = np.column_stack([truth == 0, truth == 1, truth == 2]).astype(float) * sure
    found = fit(p, odds, np.zeros(80), truth, np.arange(80))
    assert np.isfinite([found.slope, found.tie, found.length]).all()
    assert found.slope > 0


@pytest.mark.parametrize(
    ("n", "truth", "clusters", "reason"),
    [
        (49, 0, 49, "49 labelled pairs, and it takes at least 50"),
        (100, 0, 9, "9 different instructions"),
        (100, 2, 100, "0 labels for a side"),
    ],
)
def test_too_few_labels_are_refused_with_the_reason(n: int, truth: int, clusters: int, reason: str) -> None:
    with pytest.raises(TooFewLabels, match=reason):
        fit(np.full((n, 3), 1 / 3), np.zeros(n), np.zeros(n), np.full(n, truth), np.arange(n) % clusters)


@settings(max_examples=50, deadline=None)
@given(
    slope=st.floats(-10, 10),
    tie=st.floats(-10, 5),
    length=st.floats(-3, 3),
    odds=st.floats(-25, 25),
    lengths=st.floats(-5, 5),
)
def test_probabilities_are_probabilities(
    slope: float, tie: float, length: float, odds: float, lengths: float
) -> None:
    [p] = Calibration(slope, tie, length, 100, 100).apply([odds], [lengths])
    assert p.sum() == pytest.approx(1)
    assert (p >= 0).all()


# -- the curve ------------------------------------------------------------------------------------------------


def test_the_bins_hold_every_decided_pair_once() -> None:
    rng = np.random.default_rng(2)
    share = rng.random(300)
    p = np.column_stack([share, 1 - share, np.zeros(300)])
    truth = rng.integers(0, 3, 300)
    found = reliability(p, truth, range(300))
    assert sum(part.right.n for part in found.bins) == (truth < 2).sum() == found.over.n
    assert [(part.low, part.high) for part in found.bins][:2] == [(0.5, 0.6), (0.6, 0.7)]


def test_a_calibrated_judge_shows_about_the_error_of_chance() -> None:
    rng = np.random.default_rng(3)
    errors = []
    for _ in range(200):
        share = rng.random(200)
        p = np.column_stack([share, 1 - share, np.zeros(200)])
        found = reliability(p, (rng.random(200) > share).astype(int), range(200))
        assert found.ece is not None
        assert found.ece_of_chance is not None
        errors.append((found.ece, found.ece_of_chance))
    seen, expected = np.mean(errors, axis=0)
    assert seen == pytest.approx(expected, rel=0.08)


def test_the_error_of_chance_knows_clusters() -> None:
    """Instructions of eight pairs on which a calibrated judge is right or wrong together, mostly."""
    rng = np.random.default_rng(4)
    errors = []
    groups = np.repeat(np.arange(40), 8)
    for _ in range(150):
        share = rng.random(320)
        u = np.where(rng.random(320) < 0.8, rng.random(40)[groups], rng.random(320))
        sure = np.maximum(share, 1 - share)
        truth = np.where(u < sure, share < 0.5, share >= 0.5).astype(int)
        p = np.column_stack([share, 1 - share, np.zeros(320)])
        found, alone = (reliability(p, truth, clusters) for clusters in (groups, range(320)))
        assert found.ece_of_chance is not None
        assert alone.ece_of_chance is not None
        assert alone.alike == 0
        errors.append((found.ece or 0.0, found.ece_of_chance, alone.ece_of_chance))
    seen, expected, taken_alone = np.mean(errors, axis=0)
    assert seen == pytest.approx(expected, rel=0.1)
    assert taken_alone < 0.8 * seen


def test_without_decided_pairs_there_is_no_curve() -> None:
    found = reliability([[0.5, 0.5, 0.0]], [2], ["a"])
    assert (found.ece, found.over.value) == (None, None)


def test_scores_of_even_odds() -> None:
    assert scores([[0.4, 0.4, 0.2]], [0]).decided == 0.5
    assert scores([[0.4, 0.4, 0.2]], [2]).three_way == 1.0, "two that are equally likely are a tie"


# -- in a database ----------------------------------------------------------------------------------------------


def uncertain_judge(seed: int = 0) -> Any:
    """A judge whose odds carry some truth and are far too near to even."""
    rng = random.Random(seed)
    moods: dict[str, float] = {}

    def script(prompt: Prompt) -> dict[str, float]:
        text = prompt.turns[-1].text
        task = text[text.index("Task") :].split(".")[0]
        mood = moods.setdefault(task, rng.gauss(0.1, 0.15))
        return judge_that_knows(1 / (1 + np.exp(-mood)), lean=1.0)(prompt)  # type: ignore[return-value]

    return script


@pytest.fixture(scope="module")
def shy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    db = tmp_path_factory.mktemp("calibrate") / "shy.db"
    judged(db, uncertain_judge(), pairs=pairs_with_votes(200))
    return db


def test_an_outcome_is_calibrated_and_an_invalid_one_is_not() -> None:
    said = [
        Verdict("overall", "A", {"A": 0.4, "B": 0.35, "tie": 0.25}, 1.0),
        Verdict("overall", None, invalid="empty"),
        Verdict("overall", "tie", {"A": 0.4, "B": 0.4, "tie": 0.2}, 1.0),
    ]
    judged = [
        Judgment.of(Pair("Hi", "x", "y"), {"forward": Conversation({"overall": verdict})}) for verdict in said
    ]
    for fitted in (
        Calibration(slope=4.0, tie=0.3, length=0.0, n=100, clusters=100),
        Calibration(4.0, -9.0, 0.0, 100, 100),
    ):
        (raw,) = blocks_of(judged)
        (block,) = calibrated([raw], {"overall": fitted})
        found = block.outcomes["overall"]
        assert np.nansum(found.p, axis=1) == pytest.approx([1, 0, 1])
        assert found.side[0] == found.p[0].argmax()
        assert found.side[1] == -1
        assert (found.forward == raw.outcomes["overall"].forward).all()
    assert found.side[2] == 2, "two that are equally likely are a tie"


def test_calibrating_keeps_applies_and_forgets(shy: Path) -> None:
    done = evenhand("calibrate", "--db", shy)
    assert "Calibration helps" in done.stdout
    with Store(shy) as store:
        [row] = store.judges()
        kept = Calibration.of(store.calibrations.of(row.id)["overall"])
        assert kept.slope > 1.5
        raw = gather(store, row, People(store))["overall"]
        calibrated = gather(store, row, People(store), calibrations_of(store, row))["overall"]
        assert fit_evidence(raw) == kept
    np.testing.assert_allclose(calibrated.p, kept.apply(raw.log_odds, raw.log_length))
    assert (raw.lean == calibrated.lean).all()
    before, after = (
        fields_of(evenhand("card", "--db", shy, "--json", *more))["judges"][0] for more in ([], ["--calibrated"])
    )
    assert after["calibrated"] == ["overall"]
    brier = [card["dimensions"]["overall"]["meaning"]["brier"]["value"] for card in (before, after)]
    assert brier[1] < brier[0]
    assert "better than it is" in evenhand("card", "--db", shy, "--calibrated").stdout
    plain, changed = (
        fields_of(evenhand("results", "--db", shy, "--json", *more)) for more in ([], ["--calibrated"])
    )
    assert "calibrated" not in plain
    assert changed["calibrated"] == ["overall"]
    with Store(shy) as store:
        [row] = store.judges()
        shares = [
            share
            for block in blocks_of_judge(store, row, calibrated=True)
            for share in block.outcomes["overall"].expected
        ]
    rates = [fields["dimensions"]["overall"]["expected"]["win_rate_1"] for fields in (plain, changed)]
    assert rates[1] == pytest.approx(np.mean(shares))
    assert rates[1] != pytest.approx(rates[0], abs=1e-4)
    assert "twice" in evenhand("results", "--db", shy, "--calibrated", "--human", code=2).stderr
    assert "Forgotten: 1 calibration" in evenhand("calibrate", "--db", shy, "--forget").stdout
    for command in ("card", "results"):
        assert "has been calibrated" in evenhand(command, "--db", shy, "--calibrated", code=2).stderr


def test_the_facts_of_a_calibration(shy: Path) -> None:
    one, two = (evenhand("calibrate", "overall", "--db", shy, "--json").stdout for _ in range(2))
    assert one == two
    [found] = fields_of(evenhand("calibrate", "--db", shy, "--json"))["calibrations"]
    assert {"fingerprint", "dimension", "slope", "tie", "length", "before", "after", "gain", "seed"} <= set(found)


def test_too_few_labels_in_a_database_are_refused(db: Path) -> None:
    judged(db, judge_that_knows(0.8), pairs=pairs_with_votes(30))
    refused = evenhand("calibrate", "--db", db, code=2).stderr
    assert refused.startswith("error: overall cannot be calibrated: 30 labelled pairs, and it takes at least 50")
    assert "labels import" in refused
    with Store(db) as store, pytest.raises(InputError, match="cannot be calibrated"):
        fit_evidence(gather(store, store.judges()[0], People(store))["overall"])
    assert "no judge called" in evenhand("calibrate", "nobody", "--db", db, code=2).stderr


def test_without_labels_there_is_nothing_to_calibrate(db: Path) -> None:
    with Judge(ScriptedEngine(lambda _: "A"), "overall", db=db) as judge:
        list(judge.judge([Pair("Hi", "x", "y")]))
    assert "have no labels" in evenhand("calibrate", "--db", db, code=2).stderr


def test_a_database_of_before_gets_the_table(db: Path) -> None:
    with Store(db) as store:
        assert store.calibrations.of(1) == {}
