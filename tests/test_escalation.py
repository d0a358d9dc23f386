"""Levels of judges: what is promised, who decides, what is left to people; runs that are killed at each level."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import binom

import warm
from command import evenhand, evenhand_any
from conftest import LoopThread
from evenhand import Pair, Store
from evenhand.core.errors import InputError
from evenhand.core.stats.calibration import Calibration
from evenhand.core.stats.escalation import (
    Cascade,
    best_promise,
    choose_cascade,
    disagreement_test,
    error_of,
    fewest_labels,
    log_odds_of,
)
from evenhand.core.verdict import log_odds
from evenhand.results.escalation import find_labelled
from evenhand.running.escalation import _PeoplesVotes
from evenhand.store import HumanLabel
from evenhand.views.jury import Escalation
from panel_server import Panel, row, serving

# -- thresholds against a naive reference ------------------------------------------------------------------------


def ranked(values: list[float], shares: list[float]) -> list[float]:
    """The values that stand behind each share of all, from the highest down, each once."""
    down = sorted(values, reverse=True)
    ranks = [math.ceil(share * len(down)) for share in shares]
    return list(dict.fromkeys(down[rank] if rank < len(down) else -math.inf for rank in ranks))


def naive_paths(z: list[list[float]]) -> list[list[tuple[float, ...]]]:
    """The floors that are tried, in the words of the docstring."""
    levels, shares = len(z[0]), [step / 20 for step in range(6, 20)]

    def alone(one: int) -> list[tuple[float, ...]]:
        found = [t for t in ranked([row[one] for row in z], shares) if t > -math.inf]
        return [tuple(t if k == one else math.inf for k in range(levels)) for t in [*found, -math.inf]]

    def rest(offsets: list[float], begin: float) -> list[tuple[float, ...]]:
        cheap = [max(row[k] - offsets[k] for k in range(levels - 1)) for row in z]
        more = [t for t in ranked(cheap, [step / 10 for step in range(1, 11)]) if t < begin]
        return [(*(t + offsets[k] for k in range(levels - 1)), -math.inf) for t in [begin, *more]]

    if levels == 1:
        return [alone(0)]
    paths = []
    for step in (0.0, 1.0, 2.0):
        offsets = [step * (levels - 1 - k) for k in range(levels)]
        best = [max(row[k] - offsets[k] for k in range(levels)) for row in z]
        down = [t for t in ranked(best, shares) if t > -math.inf]
        first = [tuple(t + o for o in offsets) for t in down]
        paths.append([*first, *rest(offsets, down[-1] if down else math.inf)])
    return [*paths, rest([0.0] * levels, math.inf), *(alone(one) for one in range(levels))]


def naive(confidence: Any, right: Any, target: float) -> tuple[int, tuple[int, ...]]:
    """The most labelled pairs that any path decides and keeps the promise, by level."""
    z = [[-math.inf if math.isnan(c) else float(log_odds_of([c])[0]) for c in row] for row in confidence]
    paths, best = naive_paths(z), (0, (0,) * len(z[0]))
    for path in paths:
        for floors in path:
            by = [next((k for k, x in enumerate(row) if x > floors[k]), None) for row in z]
            n = sum(k is not None for k in by)
            wins = sum(right[i][k] for i, k in enumerate(by) if k is not None)
            if target**n > 0.05 / len(paths):
                continue
            if binom.cdf(n - wins, n, 1 - target) > 0.05 / len(paths):
                break
            best = max(best, (n, tuple(by.count(k) for k in range(len(z[0])))))
    return best


tables = st.integers(1, 3).flatmap(
    lambda levels: st.lists(
        st.tuples(
            st.lists(
                st.sampled_from([0.4, 0.5, 0.7, 0.9, 0.95, 0.99, 1.0, math.nan]), min_size=levels, max_size=levels
            ),
            st.lists(st.integers(0, 9).map(bool), min_size=levels, max_size=levels),
        ),
        min_size=40,
        max_size=90,
    )
)


@settings(max_examples=60)
@given(tables, st.sampled_from([0.6, 0.75, 0.85]))
def test_what_is_decided_is_what_a_naive_search_finds(table: list[Any], target: float) -> None:
    confidence, right = [list(one) for one, _ in table], [list(two) for _, two in table]
    found = choose_cascade(confidence, right, target)
    most, by_level = naive(confidence, right, target)
    assert (found.n, found.by_level if most else by_level) == (most, by_level)
    assert found.promised == (most > 0)
    decided = [
        next((k for k, c in enumerate(one) if found.decides(k, None if math.isnan(c) else c)), None)
        for one in confidence
    ]
    assert tuple(decided.count(k) for k in range(len(confidence[0]))) == found.by_level
    assert sum(right[i][k] for i, k in enumerate(decided) if k is not None) == found.agreed


@given(st.integers(1, 200), st.integers(0, 200), st.floats(0.51, 0.99))
def test_the_test_is_the_binomial_tail(n: int, wrong: int, target: float) -> None:
    wrong = min(wrong, n)
    assert disagreement_test(n - wrong, n, target) == pytest.approx(binom.cdf(wrong, n, 1 - target), abs=1e-9)


def test_fewest_labels_are_just_enough() -> None:
    for target, levels in ((0.85, 1), (0.85, 2), (0.9, 3), (0.6, 2)):
        error, least = error_of(levels), fewest_labels(target, levels)
        assert target**least <= error < target ** (least - 1)


def test_pairs_that_may_have_been_drawn_by_instruction_count_as_instructions() -> None:
    sure, right = np.full((60, 1), 0.9), np.ones((60, 1))
    assert choose_cascade(sure, right, 0.85).n == 60
    assert choose_cascade(sure, right, 0.85, clusters=np.arange(60)).n == 60
    # 15 instructions, and it takes 19
    assert not choose_cascade(sure, right, 0.85, clusters=np.arange(60) // 4).promised


def test_the_best_promise_is_the_highest_that_holds() -> None:
    rng = np.random.default_rng(2)
    sure = rng.uniform(0.5, 1, (80, 1))
    right = rng.random((80, 1)) < 0.8
    found = best_promise(sure, right, 0.95)
    assert found is not None
    assert choose_cascade(sure, right, found.target).promised
    assert not any(choose_cascade(sure, right, p / 100).promised for p in range(round(found.target * 100) + 1, 95))
    assert best_promise(sure, np.zeros((80, 1)), 0.9) is None


@pytest.mark.parametrize("kind", ["informative", "flat at the target", "surest are worst"])
def test_the_promise_holds_in_95_percent_of_draws(kind: str) -> None:
    rng = np.random.default_rng(7)
    size, target, draws = 20_000, 0.85, 200
    sure = rng.uniform(0.5, 0.999, (size, 2))
    chance = {
        "informative": 0.6 + 0.78 * (sure - 0.5),
        "flat at the target": np.full((size, 2), 0.845),
        "surest are worst": np.where(sure > 0.9, 0.8, 0.95 - 0.2 * (sure < 0.7)),
    }[kind]
    right = rng.random((size, 2)) < chance
    z, kept, covered = log_odds_of(sure), 0, []
    for _ in range(draws):
        some = rng.choice(size, 250, replace=False)
        found = choose_cascade(sure[some], right[some], target)
        decided = agreed = 0.0
        if found.promised:
            by = z > np.asarray(found.floors)
            any_, first = by.any(axis=1), by.argmax(axis=1)
            decided, agreed = float(any_.mean()), float(right[np.arange(size), first][any_].mean())
        kept += not decided or agreed >= target
        covered.append(decided)
    assert kept >= 0.95 * draws
    if kind == "informative":
        assert np.mean(covered) > 0.4  # and it is not kept by deciding nothing


def test_floors_are_told_as_confidences() -> None:
    found = Cascade((3.0, 1.0), 9, 9, (4, 5), 9, 0.8, 0.05).confidences()
    assert found == pytest.approx((1 / (1 + math.exp(-3)), 1 / (1 + math.exp(-1))))


# -- the command -------------------------------------------------------------------------------------------------

TRUTH = ("2", "1")  # by the number of the pair, even and odd


def view(model: str, number: int) -> float:
    """The small judge is sure of three pairs in five and right then, the large one of nine in ten."""
    right = 0.97 if number % 2 else 0.03
    if model == "small":
        return right if number % 5 < 3 else (0.55 if number % 3 else 0.45)
    return 0.5 + (right - 0.5) * 0.9 if number % 10 != 9 else 0.48


@pytest.fixture
def panel(loop: LoopThread) -> Iterator[Panel]:
    with serving(Panel(view), loop) as found:
        yield found


def file_of(folder: Path, count: int, labels: int) -> Path:
    path = folder / "pairs.jsonl"
    rows = [row(n, **({"label": TRUTH[n % 2]} if n < labels else {})) for n in range(count)]
    path.write_text("".join(json.dumps(one) + "\n" for one in rows), encoding="utf-8")
    return path


def words(panel: Panel, db: Path, agree: str = "0.85", last: str = ",people") -> tuple[str | Path, ...]:
    levels = f"{panel.spec('small')},{panel.spec('large')}{last}"
    return "--escalate", levels, "--agree", agree, "--protocol", "overall", "--db", db


def decisions(db: Path) -> dict[str, tuple[str | None, Any]]:
    """Of each pair the side and who decided."""
    with Store(db) as store:
        judge = next(judge for judge in store.judges() if judge.model.startswith("escalation of"))
        levels = {number: word["level"] for number, word in store.made.words(judge.id)}
        return {
            found.pair.id: (found["overall"].side, levels[store.archive.number(found.pair.id, found.pair.key) or 0])
            for found in store.judgments(judge)
        }


def test_each_level_decides_what_it_may_and_the_rest_waits_for_people(tmp_path: Path, panel: Panel) -> None:
    pairs, db = file_of(tmp_path, 200, 80), tmp_path / "x.db"
    found = json.loads(evenhand("judge", pairs, *words(panel, db), "--json").stdout)["escalation"]
    small, large, people = found["levels"]
    assert (small["name"], large["name"], people["name"]) == ("small", "large", "people")
    assert small["decided"] + large["decided"] + people["decided"] + found["waiting"] == found["pairs"] == 200
    assert small["decided"] == 120  # three in five
    assert small["asked"] == 200
    assert panel.pairs["large"] == {n for n in range(200) if n < 80 or n % 5 >= 3}  # labelled, or left over
    assert found["waiting"] + people["decided"] == 20  # nine in ten go with n % 5 == 4
    assert people["decided"] == 8  # those of them that are labelled
    side = {f"p{n}": TRUTH[n % 2] for n in range(200)}
    by_judges = {name: said for name, (said, level) in decisions(db).items() if level in (1, 2)}
    assert np.mean([side[name] == said for name, said in by_judges.items()]) >= 0.85
    assert found["tokens"] == 204 * (200 + 128)  # the server's count, of two orders
    assert found["tokens_always"] == 204 * 200
    shown = evenhand("judge", pairs, *words(panel, db)).stdout
    assert "at least 85% are decided as people would, with 95% confidence (80 labels" in shown
    assert "12 pairs wait for people: evenhand serve" in shown
    assert "large was asked about 128 of 200 pairs, 36% less than about every pair." in shown


def test_a_calibration_that_is_kept_says_how_sure_a_level_is(tmp_path: Path, panel: Panel) -> None:
    pairs, db = file_of(tmp_path, 200, 80), tmp_path / "x.db"
    as_said = evenhand("judge", pairs, *words(panel, db))
    assert "No calibration of small and large is kept: how sure they are, is taken as said." in as_said.stdout
    evenhand("calibrate", "small", "--db", db)
    asked = panel.asked.copy()
    given = evenhand("judge", pairs, *words(panel, db))
    assert "No calibration of large is kept: how sure it is, is taken as said. Of small it is" in given.stdout
    assert panel.asked == asked
    found = json.loads(evenhand("judge", pairs, *words(panel, db), "--json").stdout)["escalation"]
    assert [level["calibrated"] for level in found["levels"]] == [True, False, False]
    with Store(db) as store:
        small, levels = store.judges()[0], store.judges()[-1]
        fitted = Calibration.of(store.calibrations.of(small.id)["overall"])
        own = {one.pair.id: one["overall"] for one in store.judgments(small)}
        words_kept = dict(store.made.words(levels.id))
        checked = 0
        for one in store.judgments(levels):
            word = words_kept[store.archive.number(one.pair.id, one.pair.key) or 0]
            if word["level"] == 1:
                said = own[one.pair.id]
                assert said.p is not None
                assert said.side is not None
                assert one["overall"] == said  # its verdict stays what it is
                sure = fitted.apply([log_odds(said.p)], [0.0])[0]["12".index(said.side)]
                assert word["confidence"] == pytest.approx(sure, abs=1e-6)
                assert sure != pytest.approx(said.p[said.side], abs=1e-3)
                checked += 1
    assert checked == found["levels"][0]["decided"] > 50


def test_money_is_counted_where_prices_are_known(tmp_path: Path, panel: Panel) -> None:
    pairs, db, prices = file_of(tmp_path, 200, 80), tmp_path / "x.db", tmp_path / "prices.json"
    table = {panel.spec("small"): {"input": 1, "output": 1}, panel.spec("large"): {"input": 10, "output": 10}}
    prices.write_text(json.dumps({"currency": "EUR", "date": "2026-01-01", "models": table}))
    given = (*words(panel, db), "--prices", prices)
    found = json.loads(evenhand("judge", pairs, *given, "--json").stdout)["escalation"]
    assert found["cost"] == pytest.approx(204e-6 * (200 + 10 * 128))
    assert found["cost_always"] == pytest.approx(204e-6 * 10 * 200)
    shown = evenhand("judge", pairs, *given).stdout
    assert "0.30 EUR instead of 0.41 for asking large about every pair: 26% less." in shown


def test_what_people_say_is_taken_in_and_moves_no_threshold(tmp_path: Path, panel: Panel) -> None:
    pairs, db = file_of(tmp_path, 200, 80), tmp_path / "x.db"
    before = json.loads(evenhand("judge", pairs, *words(panel, db), "--json").stdout)["escalation"]
    with Store(db) as store:
        who = store.annotation.annotator("people")
        assert who is not None
        assert (who.tasks, who.dimensions) == (12, ("overall",))
        while (task := store.annotation.next("people")) is not None:
            store.annotation.save("people", task.place, "overall", "tie")
    asked = panel.asked.copy()
    after = json.loads(evenhand("judge", pairs, *words(panel, db), "--json").stdout)["escalation"]
    assert (after["waiting"], after["levels"][2]["decided"]) == (0, 20)
    assert panel.asked == asked
    assert [level["floor"] for level in after["levels"]] == [level["floor"] for level in before["levels"]]
    assert after["labels"] == before["labels"] == 80
    with Store(db) as store:
        assert sum(judge.model.startswith("escalation") for judge in store.judges()) == 1
        assert judgeable(store) == 200


def test_an_adjudicator_decides_a_pair_for_the_floors_and_for_people() -> None:
    contested, outvoted = Pair("Say.", "x", "y", id="p0"), Pair("Say more.", "x", "y", id="p1")
    said = [
        HumanLabel(contested.key, "overall", "ann", "1"),
        HumanLabel(contested.key, "overall", "ben", "2"),
        *(HumanLabel(outvoted.key, "overall", who, "1") for who in ("ann", "ben")),
        HumanLabel(contested.key, "overall", "cleo", "tie", role="adjudicator"),
        HumanLabel(outvoted.key, "overall", "cleo", "2", role="adjudicator"),
    ]
    with Store(":memory:") as store:
        store.labels.add(said)
        found = find_labelled(store, [contested, outvoted], "overall")
        assert (found.pairs, found.sides) == ([contested, outvoted], ["tie", "2"])
        votes = _PeoplesVotes(store)
        assert [votes.label(pair, "overall") for pair in (contested, outvoted)] == ["tie", "2"]


def judgeable(store: Store) -> int:
    judge = store.judges()[-1]
    return sum(found["overall"].side is not None for found in store.judgments(judge))


def test_without_labels_it_says_what_it_needs_and_asks_nobody(tmp_path: Path, panel: Panel) -> None:
    done = evenhand("judge", file_of(tmp_path, 50, 0), *words(panel, tmp_path / "x.db"), code=2)
    assert "--escalate needs labels of people on overall, and no pair is labelled" in done.stderr
    assert "evenhand serve --pairs" in done.stderr
    assert "it takes at least 30" in done.stderr
    few = evenhand("judge", file_of(tmp_path, 50, 29), *words(panel, tmp_path / "x.db"), code=2)
    assert "with your 29 labels, 85% cannot be promised whatever the judges say: it takes at least 30" in few.stderr
    assert not panel.asked


def test_a_target_out_of_reach_is_said_before_the_bulk_is_asked(tmp_path: Path, loop: LoopThread) -> None:
    def coin(model: str, number: int) -> float:
        right = number % 2 if number % 8 else 1 - number % 2  # seven in eight
        return 0.9 if right else 0.1

    with serving(Panel(coin), loop) as panel:
        pairs = file_of(tmp_path, 400, 100)
        done = evenhand("judge", pairs, *words(panel, tmp_path / "x.db", "0.9"), code=2)
        assert panel.pairs == {"small": set(range(100)), "large": set(range(100))}
    assert "with your 100 labels, 90% cannot be promised; " in done.stderr
    percent = int(done.stderr.split("cannot be promised; ")[1].split("%")[0])
    assert 70 < percent < 88
    assert "100% of the pairs decided" in done.stderr
    assert f"--agree 0.{percent}" in done.stderr


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (("--escalate", "a,b"), "--escalate without --agree"),
        (("--agree", "0.8"), "--agree without --escalate"),
        (("--escalate", "a", "--agree", "1.2"), "--agree 1.2"),
        (("--escalate", "a", "--agree", "0"), "error: --agree 0\n"),
        (("--escalate", "people,a", "--agree", "0.8"), "judges first, people last"),
        (("--escalate", "people", "--agree", "0.8"), "judges first, people last"),
        (("--escalate", "a,b", "--agree", "0.8", "--judge", "c"), "two ways to say who judges"),
        (("--escalate", "http://127.0.0.1:9/v1#a,http://127.0.0.1:9/v1#a", "--agree", "0.8"), "named twice"),
    ],
)
def test_what_makes_no_sense_is_refused(tmp_path: Path, given: tuple[str, ...], said: str) -> None:
    done = evenhand("judge", file_of(tmp_path, 50, 50), *given, "--db", tmp_path / "x.db", code=2)
    assert said in done.stderr


def test_a_level_that_fails_stops_the_run_and_the_next_is_not_asked_instead(tmp_path: Path, panel: Panel) -> None:
    pairs, db = file_of(tmp_path, 120, 80), tmp_path / "x.db"
    panel.failing = {"small"}
    evenhand("judge", pairs, *words(panel, db), code=1)
    assert not panel.asked
    panel.failing = set()
    evenhand("judge", pairs, *words(panel, db))


def test_gate_arena_and_python_take_levels(tmp_path: Path, panel: Panel) -> None:
    pairs, db = file_of(tmp_path, 120, 80), tmp_path / "x.db"
    gated = json.loads(evenhand_any("gate", pairs, *words(panel, db), "--json").stdout)
    assert gated["escalation"]["agree"] == 0.85
    assert gated["judge"] == "escalation of small, large, people"
    for side in (1, 2):
        lines = [{"instruction": f"Question {n}?", "output": f"answer {n} side {side}"} for n in range(200, 220)]
        (tmp_path / f"m{side}.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    files = [tmp_path / f"m{side}.jsonl" for side in (1, 2)]
    done = evenhand("arena", *files, *words(panel, db), "--json")
    assert "80 labelled pairs of the database are taken for a random sample" in done.stderr
    assert json.loads(done.stdout)["escalation"]["pairs"] >= 20
    names = [panel.spec("small"), panel.spec("large")]
    with Escalation(names, "overall", agree=0.85, db=db) as levels:
        judged = levels.compare(Pair("Question 1?", "answer 1 side 1", "answer 1 side 2"))
        assert judged["overall"].side == "1"
        assert levels.result().levels[0].decided
    with pytest.raises(InputError, match=r"--agree 0\.4"):
        Escalation(names, "overall", agree=0.4, db=db)


@pytest.mark.parametrize(
    ("model", "after"),
    [("small", 60), ("large", 60), ("small", 260), ("large", 175)],
    ids=["small on labels", "large on labels", "small on the rest", "large on the rest"],
)
def test_a_run_that_is_killed_at_any_level_ends_as_if_it_had_not_been(
    tmp_path: Path, panel: Panel, model: str, after: int
) -> None:
    pairs, whole, db = file_of(tmp_path, 200, 80), tmp_path / "whole.db", tmp_path / "x.db"
    evenhand("judge", pairs, *words(panel, whole))
    total, panel.asked = panel.asked.copy(), type(panel.asked)()
    panel.hold = (model, after)
    process = warm.start("judge", pairs, *words(panel, db), "--concurrency", "4")
    try:
        until = time.monotonic() + 60
        while panel.asked[model] < after and time.monotonic() < until:
            time.sleep(0.02)
        assert panel.asked[model] >= after, "the run ended before it could be killed"
        process.kill()
        process.wait()
    finally:
        process.close()
    panel.hold = None
    evenhand("judge", pairs, *words(panel, db))
    assert decisions(db) == decisions(whole)
    assert set(panel.asked) == set(total)
    assert all(panel.asked[name] <= total[name] + 4 for name in total)  # no more than what was under way
