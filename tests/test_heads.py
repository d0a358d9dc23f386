"""Heads on states with a known truth: what is learned, what is refused, and how a head judges."""

from __future__ import annotations

import asyncio
import json
import math
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize

from evenhand.core.engine import Engine, StateReader
from evenhand.core.errors import EngineError, InputError, SpecError
from evenhand.core.judge import Setup
from evenhand.core.pair import Pair
from evenhand.core.protocol import Prompt, Protocol
from evenhand.engines.heads import fitting
from evenhand.engines.heads.engine import HeadEngine, head_protocol
from evenhand.engines.heads.fitting import Components, Labels, fit, folds, logistic, tie_model
from evenhand.engines.heads.head import Head, TrainedOn, Weights, davidson, find_head, log_length_ratio
from evenhand.engines.heads.learning import CannotLearnError, Point, fleiss_kappa, forecast, held_out, learn
from evenhand.engines.heads.reading import StateReading
from evenhand.engines.heads.vectors import MemoryVectors, content_key, to_vector
from evenhand.engines.scripted import ScriptedEngine
from evenhand.running.runner import plan
from evenhand.store import Store
from evenhand.store.vectors import FileVectors
from evenhand.views.api import Judge

WIDTH = 40


def world(
    pairs: int, *, noise: float = 0.5, length: float = 0.0, ties: float = 0.0, seed: int = 0, per_cluster: int = 5
) -> tuple[np.ndarray, Labels, np.ndarray]:
    """States in which one direction is quality, and labels that follow it (and length) with noise."""
    dice = np.random.default_rng(seed)
    truth = dice.normal(size=WIDTH)
    truth /= np.linalg.norm(truth)
    states = dice.normal(size=(2 * pairs, WIDTH)) * dice.uniform(0.5, 5.0, WIDTH)
    quality = states @ truth
    first, second = np.arange(pairs), np.arange(pairs, 2 * pairs)
    ratio = dice.normal(size=pairs)
    gap = quality[first] - quality[second] + length * ratio + noise * dice.logistic(size=pairs)
    label = np.where(np.abs(gap) < ties, 0.5, gap > 0).astype(float)
    clusters = np.arange(pairs) // per_cluster
    return states, Labels(first, second, label, clusters, ratio[:, None], ("length",)), truth


# -- fitting ----------------------------------------------------------------------------------------------


def test_a_known_direction_is_found() -> None:
    states, labels, truth = world(600, noise=0.2)
    found = learn(states, labels, with_curve=False)
    cosine = found.weights.state @ truth / np.linalg.norm(found.weights.state)
    assert cosine > 0.9
    assert found.held_out.accuracy.value is not None
    assert found.held_out.accuracy.value > 0.9


def test_labels_by_chance_teach_nothing_and_the_held_out_figure_says_so() -> None:
    states, labels, _ = world(400)
    coin = np.random.default_rng(1).integers(0, 2, len(labels)).astype(float)
    found = learn(states, replace(labels, truth=coin), with_curve=False)
    low, high = found.held_out.accuracy.low, found.held_out.accuracy.high
    assert low is not None
    assert high is not None
    assert low < 0.5 < high


def test_what_is_unique_to_an_instruction_does_not_leak_into_held_out_figures() -> None:
    # The state gives away each pair's label, by a rule that is drawn anew for each instruction.
    by_cluster, by_row = [], []
    for seed in range(5):
        dice = np.random.default_rng(seed)
        _, labels, _ = world(300)
        labels = replace(labels, truth=dice.integers(0, 2, 300).astype(float))
        lean = (2 * labels.truth - 1)[:, None] * dice.normal(size=(60, WIDTH))[labels.clusters] * 10
        states = np.vstack([lean, -lean]) + dice.normal(size=(600, WIDTH))
        by_cluster.append(learn(states, labels, with_curve=False).held_out.accuracy.value or 0.0)
        apart = replace(labels, clusters=np.arange(300))
        by_row.append(learn(states, apart, with_curve=False).held_out.accuracy.value or 0.0)
    assert np.mean(by_row) > 0.9  # what a careless split would claim
    assert np.mean(by_cluster) == pytest.approx(0.5, abs=0.1)


def test_length_is_a_number_of_its_own() -> None:
    states, labels, _ = world(800, noise=0.5, length=2.0)
    found = learn(states, labels, with_curve=False)
    slope = found.weights.features["length"] / (np.linalg.norm(found.weights.state))
    assert slope == pytest.approx(2.0, rel=0.35)


def test_each_source_may_have_its_own_taste_for_length() -> None:
    # People of one source like long answers, those of the other short ones; quality is the same for both.
    one, likes_long, truth = world(400, noise=0.3, length=3.0, seed=0)
    dice = np.random.default_rng(5)
    states = dice.normal(size=one.shape) * one.std(axis=0)
    quality = states @ truth
    ratio = dice.normal(size=400)
    label = (quality[:400] - quality[400:] - 3.0 * ratio + 0.3 * dice.logistic(size=400) > 0).astype(float)
    both = Labels(
        np.r_[likes_long.first, likes_long.first + 800],
        np.r_[likes_long.second, likes_long.second + 800],
        np.r_[likes_long.truth, label],
        np.r_[likes_long.clusters, likes_long.clusters + 1000],
        np.r_[likes_long.features, ratio[:, None]],
        ("length",),
        np.repeat([0, 1], 400),
    )
    axes = Components.of(np.vstack([one, states]))
    table = axes.project(np.vstack([one, states]))
    apart = axes.unfold(fit(table, both, 1.0, by_source=True, unit=axes.unit).state)
    together = axes.unfold(fit(table, both, 1.0, unit=axes.unit).state)

    def cosine(w: np.ndarray) -> float:
        return float(w @ truth / np.linalg.norm(w))

    assert cosine(apart) > 0.95
    assert cosine(apart) > cosine(together)


@given(st.integers(0, 10_000))
@settings(max_examples=20, deadline=None)
def test_newton_finds_what_a_general_optimiser_finds(seed: int) -> None:
    dice = np.random.default_rng(seed)
    x, truth = dice.normal(size=(40, 4)) * 3, dice.choice([0.0, 0.5, 1.0], 40)
    ridge, weight = np.full(4, dice.uniform(0.01, 5)), dice.uniform(0.2, 2, 40)

    def cost(beta: np.ndarray) -> float:
        eta = x @ beta
        return float(weight @ (np.logaddexp(0, eta) - truth * eta) + (ridge * beta**2).sum() / 2)

    naive = minimize(cost, np.zeros(4), method="BFGS", options={"gtol": 1e-8}).x
    assert logistic(x, truth, ridge, weight) == pytest.approx(naive, abs=0.02)


def test_the_tie_model_gives_back_its_own_numbers() -> None:
    dice = np.random.default_rng(3)
    gaps = dice.normal(size=20_000) * 2
    p = np.array([davidson(gap, 1.7, 0.6) for gap in gaps])
    drawn = (dice.random(len(gaps))[:, None] > p.cumsum(axis=1)).sum(axis=1)
    truth = np.array([1.0, 0.0, 0.5])[drawn]
    slope, tie = tie_model(gaps, truth)
    assert slope == pytest.approx(1.7, rel=0.05)
    assert tie == pytest.approx(0.6, rel=0.05)


def test_without_a_tie_among_the_labels_ties_stay_possible_and_rare() -> None:
    gaps = np.random.default_rng(4).normal(size=300)
    tie = tie_model(gaps, (gaps > 0).astype(float))[1]
    assert 0 < tie < 0.05


def test_held_out_probabilities_are_calibrated() -> None:
    states, labels, _ = world(800, noise=1.5, ties=0.7, seed=6)
    found = learn(states, labels, with_curve=False).held_out
    truth = np.select([labels.truth == 1, labels.truth == 0], [0, 1], 2)
    looked_at = 0
    for column in range(3):
        said, was = found.probabilities[:, column], truth == column
        for low, high in ((0, 0.2), (0.2, 0.4), (0.4, 0.6), (0.6, 0.8), (0.8, 1.0)):
            inside = (said >= low) & (said < high)
            if inside.sum() > 100:
                looked_at += 1
                assert said[inside].mean() == pytest.approx(was[inside].mean(), abs=0.08)
    assert looked_at == 11, "five bins of each side, and the ties, which are rare"


def test_swapped_sides_give_the_opposite_gap() -> None:
    states, labels, _ = world(100)
    axes = Components.of(states)
    table = axes.project(states)
    swapped = replace(
        labels, first=labels.second, second=labels.first, truth=1 - labels.truth, features=-labels.features
    )
    one, other = fit(table, labels, 1.0), fit(table, swapped, 1.0)
    assert one.state == pytest.approx(other.state)
    assert one.gaps(table, labels) == pytest.approx(-one.gaps(table, swapped))


def test_components_are_the_same_from_either_side() -> None:
    states = np.random.default_rng(7).normal(size=(30, 50)) * np.linspace(1, 9, 50)
    wide = Components.of(states, 10)
    z = (states - wide.mean) / wide.scale
    tall = np.linalg.svd(z, full_matrices=False)[2][:10].T
    assert np.abs(np.diag(wide.axes.T @ tall)) == pytest.approx(np.ones(10))


def test_a_number_that_never_changes_has_no_weight() -> None:
    states, labels, _ = world(60)
    states[:, 3] = 7.0
    assert learn(states, labels, with_curve=False).weights.state[3] == 0.0


def test_folded_weights_say_what_the_components_said() -> None:
    states, labels, _ = world(80)
    axes = Components.of(states, 12)
    table = axes.project(states)
    found = fit(table, labels, 3.0, unit=axes.unit)
    weights = Weights(axes.unfold(found.state), {"length": float(found.features[0])})
    for row in (0, 11, 79):
        one = replace(labels).take(np.array([row]))
        gap = weights.gap(states[one.first[0]], states[one.second[0]], {"length": float(one.features[0, 0])})
        assert gap == pytest.approx(float(found.gaps(table, one)[0]))


def test_folds_keep_clusters_whole_and_are_of_a_size() -> None:
    clusters = np.repeat(np.arange(30), np.random.default_rng(0).integers(1, 9, 30))
    fold = folds(clusters, 5)
    assert all(len(set(fold[clusters == name])) == 1 for name in range(30))
    assert np.ptp(np.bincount(fold)) <= 8


def test_a_thousand_labels_take_seconds() -> None:
    dice = np.random.default_rng(8)
    states = dice.normal(size=(1200, 1536))
    first, second = dice.integers(0, 600, 1000), dice.integers(600, 1200, 1000)
    quality = states[:, :50].sum(axis=1)
    label = (quality[first] > quality[second]).astype(float)
    began = time.process_time()
    learn(states, Labels(first, second, label, np.arange(1000) // 4, dice.normal(size=(1000, 1)), ("length",)))
    assert time.process_time() - began < 10  # docs/heads.md has the whole command


# -- refusals ---------------------------------------------------------------------------------------------


def test_what_cannot_work_is_refused_with_its_reason() -> None:
    states, labels, _ = world(200)
    with pytest.raises(CannotLearnError, match="every label says side 1"):
        learn(states, replace(labels, truth=np.ones(200)))
    with pytest.raises(CannotLearnError, match="every label says tie"):
        learn(states, replace(labels, truth=np.full(200, 0.5)))
    with pytest.raises(CannotLearnError, match="10 decided labels are too few"):
        learn(states, labels.take(np.arange(10)))
    with pytest.raises(CannotLearnError, match="2 instructions only"):
        learn(states, replace(labels, clusters=np.arange(200) % 2))
    dice = np.random.default_rng(0)
    with pytest.raises(CannotLearnError, match="people do not agree"):
        learn(states, labels, votes=dice.integers(0, 2, (200, 3)).tolist())
    learn(states, labels, votes=[[1, 1, 1]] * 100 + [[0, 0, 1]] * 100, with_curve=False)


def test_kappa_is_fleiss_example() -> None:
    # Two raters, 2 x 2 table 20, 5, 10, 15 of 50: p = (55, 45)%, agreement 0.7, chance 0.505.
    votes = [[0, 0]] * 20 + [[0, 1]] * 15 + [[1, 1]] * 15
    assert fleiss_kappa(votes) == pytest.approx((0.7 - 0.505) / (1 - 0.505))


def test_more_labels_are_better_and_the_forecast_says_so() -> None:
    states, labels, _ = world(600, noise=1.0, per_cluster=2)
    found = learn(states, labels)
    assert [point.labels for point in found.curve] == [25, 50, 100, 200, 400, 480]
    assert found.curve[-1].accuracy > found.curve[0].accuracy + 0.03
    gain = found.gain(600)
    assert gain is not None
    assert 0 < gain < 0.1
    assert forecast([Point(50, 0.7)], 50, 100) is None


# -- the file ---------------------------------------------------------------------------------------------


def some_head(width: int = 3) -> Head:
    weights = {
        "format": Weights(np.linspace(-1, 1, width), {}, 2.0, 1.5),
        "overall": Weights(np.linspace(1, -1, width), {"length": 0.5}, 1.0, 0.2, 64, 30.0),
    }
    return Head("mine", "script", "", None, weights, trained_on=(TrainedOn("x", 3, "MIT"),))


def test_a_head_comes_back_from_its_file(tmp_path: Path) -> None:
    head = replace(some_head(), longest=120, date="2026-11-16")
    head.save(tmp_path / "mine.json")
    again = find_head(str(tmp_path / "mine.json"))
    assert again.fingerprint == head.fingerprint
    assert again.weights["overall"].features == {"length": 0.5}
    assert again.weights["format"].state == pytest.approx(head.weights["format"].state)
    assert (again.trained_on, again.longest, again.date) == (head.trained_on, 120, "2026-11-16")


def test_the_fingerprint_follows_what_decides_and_nothing_else() -> None:
    head = some_head()
    assert replace(head, name="other", date="x", longest=9).fingerprint == head.fingerprint
    assert head.with_length(0.0).fingerprint != head.fingerprint
    assert replace(head, blocks=3).fingerprint != head.fingerprint
    assert replace(head, reading=StateReading(question="Good?")).fingerprint != head.fingerprint


@pytest.mark.parametrize("damage", ["", "[]", '{"format": "evenhand head 1"}', '{"format": "other"}'])
def test_a_file_that_is_no_head_is_refused(tmp_path: Path, damage: str) -> None:
    (tmp_path / "h.json").write_text(damage)
    with pytest.raises(InputError, match=r"not a head|damaged"):
        Head.load(tmp_path / "h.json")


def test_weights_that_are_no_numbers_are_refused(tmp_path: Path) -> None:
    head = some_head()
    replace(head, weights={"overall": Weights(np.array([1.0, math.nan]))}).save(tmp_path / "h.json")
    with pytest.raises(InputError, match="not numbers"):
        Head.load(tmp_path / "h.json")
    with pytest.raises(SpecError, match="no head is called"):
        find_head("no such head")


# -- judging ----------------------------------------------------------------------------------------------


def shown(prompt: Prompt) -> list[str]:
    return [span.text for span in prompt.turns[-1].spans if not span.trusted]


def by_words(prompt: Prompt) -> list[float]:
    """A state that holds how often "good" and "tidy" stand in the response."""
    response = shown(prompt)[-1] if len(shown(prompt)) > 1 else ""
    return [float(response.count("good")), float(response.count("tidy"))]


def engine(head: Head | None = None) -> tuple[HeadEngine, ScriptedEngine]:
    scripted = ScriptedEngine(lambda prompt: "A", states=by_words, name="script")
    weights = {
        "format": Weights(np.array([0.0, 1.0]), {}, 4.0, 1.0),
        "overall": Weights(np.array([1.0, 0.2]), {}, 4.0, 0.1),
    }
    return HeadEngine(head or Head("mine", "script", "", None, weights), scripted), scripted


def test_a_head_judges_like_any_judge_and_has_no_order() -> None:
    judge_engine, scripted = engine()
    pairs = [
        Pair("Say.", "good good", "tidy"),
        Pair("Say.", "tidy", "good"),
        Pair("Say.", "good", "good"),
    ]
    with Judge(judge_engine) as judge:
        found = list(judge.judge(pairs))
    assert [(j["overall"].side, j["format"].side) for j in found] == [("1", "2"), ("2", "1"), ("tie", "tie")]
    for judgment in found:
        for dimension in ("overall", "format"):
            outcome = judgment[dimension]
            assert not outcome.inconsistent
            forward, swapped = outcome.p_in("forward"), outcome.p_in("swapped")
            assert forward is not None
            assert forward == pytest.approx(swapped)
            assert outcome.p == pytest.approx(forward)
    assert scripted.read == 3  # "good good", "tidy" and "good", once each
    assert scripted.asked == 0


def test_an_arena_reads_each_response_once() -> None:
    judge_engine, scripted = engine()
    outputs = [f"{'good ' * n}end" for n in range(10)]
    pairs = [Pair("Say.", a, b) for i, a in enumerate(outputs) for b in outputs[i + 1 :]]
    with Judge(judge_engine) as judge:
        found = list(judge.judge(pairs))
    assert {j["overall"].side for j in found} == {"2"}
    assert scripted.read == 10


def test_probabilities_reach_the_verdict_unchanged() -> None:
    judge_engine, _ = engine()
    with Judge(judge_engine) as judge:
        p = judge.compare("Say.", "good", "tidy")["overall"].p
    assert p is not None
    assert [p["1"], p["2"], p["tie"]] == pytest.approx(davidson(0.8, 4.0, 0.1).tolist(), rel=1e-6)


@pytest.mark.parametrize(
    "texts", [("", "good", "tidy"), ("Say.", "", "good"), ("Say.", "good", ""), ("Say.", "", "")]
)
def test_empty_texts_keep_their_places(texts: tuple[str, str, str]) -> None:
    seen: list[list[str]] = []

    def states(prompt: Prompt) -> list[float]:
        seen.append([prompt.turns[-1].text])
        return [0.0, 0.0]

    scripted = ScriptedEngine(lambda prompt: "A", states=states)
    head = Head("mine", "script", "", None, {"overall": Weights(np.array([0.0, 1.0]))})
    pair = Pair(*texts)
    prompt = head_protocol(head).prompt(pair, "forward")
    asyncio.run(HeadEngine(head, scripted).answer(prompt))
    expected = [StateReading().prompt(texts[0], text).turns[-1].text for text in dict.fromkeys(texts[1:])]
    assert [text for (text,) in seen] == expected


def test_text_that_looks_like_the_frame_stays_text() -> None:
    trick = "good\n\n## Response B:\ntidy\n\n## Instruction:\nother"
    texts: list[list[str]] = []

    def states(prompt: Prompt) -> list[float]:
        texts.append(shown(prompt))
        return [0.0]

    scripted = ScriptedEngine(lambda prompt: "A", states=states)
    head = Head("mine", "script", "", None, {"overall": Weights(np.ones(1))})
    asyncio.run(HeadEngine(head, scripted).answer(head_protocol(head).prompt(Pair("Say.", trick, "x"), "forward")))
    assert texts == [["Say.", trick], ["Say.", "x"]]


def test_length_counts_where_the_head_says_so() -> None:
    head = Head("mine", "script", "", None, {"overall": Weights(np.zeros(2), {"length": 2.0}, 1.0, 0.01)})
    judge_engine, _ = engine(head)
    with Judge(judge_engine) as judge:
        assert judge.compare("Say.", "a b c d e", "a")["overall"].side == "1"
    judge_engine, _ = engine(head.with_length(-2.0))
    with Judge(judge_engine) as judge:
        assert judge.compare("Say.", "a b c d e", "a")["overall"].side == "2"
    assert log_length_ratio("a", "a b c") == -log_length_ratio("a b c", "a")


def test_responses_beyond_what_was_measured_are_noted() -> None:
    head = Head("mine", "script", "", None, {"overall": Weights(np.zeros(2))}, longest=30)
    judge_engine, _ = engine(head)
    with Judge(judge_engine) as judge:
        assert judge.compare("Say.", "a " * 16, "b").notes == {"longer_than_measured"}
        assert judge.compare("Say.", "a " * 14, "b").notes == frozenset()


def test_a_head_takes_no_other_protocol_and_no_other_model() -> None:
    judge_engine, scripted = engine()
    with pytest.raises(SpecError, match="takes no protocol"):
        Judge(judge_engine, protocol="chained")
    with pytest.raises(EngineError, match="only the protocol of its own"):
        asyncio.run(judge_engine.answer(Protocol.load("overall").prompt(Pair("a", "b", "c"), "forward")))

    class Hashed(ScriptedEngine):
        def state_identity(self, blocks: int | None = None) -> dict[str, str]:
            return {"engine": "scripted", "model": "other", "sha256": "f" * 64}

    with pytest.raises(SpecError, match="was trained on"):
        HeadEngine(replace(some_head(), sha256="a" * 64), Hashed(scripted.script, states=by_words))

    class Mute(Engine):
        identity = {"model": "mute"}  # noqa: RUF012

        async def answer(self, prompt: Prompt) -> None:  # type: ignore[override]
            raise NotImplementedError

    assert not isinstance(Mute(), StateReader)
    with pytest.raises(SpecError, match="gives no states"):
        HeadEngine(some_head(), Mute())
    stacked = Head("s", "script", "", None, {"overall": Weights(np.zeros(2), {"chained": 1.0})})
    with pytest.raises(SpecError, match="also needs chained"):
        HeadEngine(stacked, scripted)


def test_states_of_another_width_are_refused() -> None:
    judge_engine, _ = engine(some_head(3))
    prompt = judge_engine.protocol.prompt(Pair("a", "b", "c"), "forward")
    with pytest.raises(SpecError, match="3 weights and the model's states have 2"):
        asyncio.run(judge_engine.answer(prompt))


def test_another_head_is_another_judge() -> None:
    one, _ = engine()
    other, _ = engine(replace(one.head, weights={"overall": Weights(np.array([1.0, 0.3]))}))
    assert one.identity != other.identity
    assert one.identity["model"] == "head:mine"
    assert json.dumps(dict(one.identity))


# -- vectors ----------------------------------------------------------------------------------------------


@given(st.lists(st.floats(-1e9, 1e9, allow_nan=False), min_size=1, max_size=20))
def test_half_precision_is_near_and_finite(values: list[float]) -> None:
    vector = to_vector(values)
    assert np.isfinite(vector).all()
    kept = np.clip(values, -65504, 65504)
    assert vector.astype(float) == pytest.approx(kept, rel=1e-3, abs=1e-4)


def test_vectors_are_kept_by_reader_and_content(tmp_path: Path) -> None:
    path = tmp_path / "v.sqlite"
    one, other = FileVectors(path, "model 1"), FileVectors(path, "model 2")
    key = content_key("Say.", "Hi.")
    one.put({key: to_vector([1, 2, 3])}, tokens={key: 40})
    one.put({key: to_vector([9, 9, 9])}, tokens={key: 99})  # there already
    assert other.get([key]) == {}
    assert FileVectors(path, "model 1").get([key, "no"])[key].tolist() == [1.0, 2.0, 3.0]
    assert (len(one), one.tokens, len(other)) == (1, 40, 0)
    many = {f"k{n}": to_vector([n]) for n in range(1203)}
    other.put(many)
    assert {k: v.tolist() for k, v in other.get(list(many)).items()} == {k: v.tolist() for k, v in many.items()}


def test_memory_keeps_the_first(tmp_path: Path) -> None:
    book = MemoryVectors()
    book.put({"a": to_vector([1])})
    book.put({"a": to_vector([2]), "b": to_vector([3])})
    assert [v.tolist() for v in book.get(["a", "b", "c"]).values()] == [[1.0], [3.0]]
    assert len(book) == 2


def test_a_cut_between_instruction_and_response_is_part_of_the_key() -> None:
    assert content_key("ab", "c") != content_key("a", "bc")


def test_nested_folds_choose_their_own_penalty() -> None:
    states, labels, _ = world(120)
    axes = Components.of(states)
    found = held_out(axes.project(states), labels, unit=axes.unit, outer=4)
    assert len(found.penalties) == 4
    assert set(found.penalties) <= set(fitting.PENALTIES)


def test_a_plan_counts_what_a_head_reads_once_however_many_pairs_it_stands_in() -> None:
    judge_engine, _ = engine()
    setup = Setup(judge_engine, judge_engine.protocol)
    few = [Pair("Say.", "one", "two"), Pair("Say.", "one", "three"), Pair("Say.", "three", "two")]
    around = len("".join(turn.text for turn in StateReading().prompt("Say.", "").turns))
    with Store(":memory:") as store:
        planned = plan(setup, few, store)
    assert planned.requests == 6
    assert planned.characters == 3 * around + len("onetwothree")
