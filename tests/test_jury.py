"""Several judges as one: what is pooled, who spoke, and what becomes of a juror that fails."""

from __future__ import annotations

import asyncio
import json
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from command import evenhand, evenhand_any
from conftest import LoopThread
from evenhand import Judge, Pair, ScriptedEngine, Store
from evenhand.core.errors import InputError, SpecError
from evenhand.core.jury import PoolRule, Scale, pool_jury
from evenhand.core.protocol import ORDERS, Order
from evenhand.core.stats.calibration import Calibration, TooFewLabels
from evenhand.core.stats.jury import learn_weights
from evenhand.core.verdict import SIDES, Label, Outcome, Verdict, pool
from evenhand.results.labelled_pairs import labelled_pairs, other_judges
from evenhand.results.run import judge_summary
from evenhand.running.jury import JuryMembers, JuryPool, member_of, scales_of
from evenhand.running.pace import BudgetError, Limits
from evenhand.views.cli.jury_tables import pool_line
from evenhand.views.jury import Jury, split_judges
from panel_server import Panel, row, serving

MODELS = ("small", "middle", "large")


# -- pooling against a naive reference ---------------------------------------------------------------------------

shares = st.tuples(*[st.floats(0.01, 1.0)] * 3).map(lambda x: [v / sum(x) for v in x])
soft = st.tuples(shares, shares).map(lambda two: _outcome(*two))
hard = st.tuples(*[st.sampled_from(["A", "B", "tie"])] * 2).map(lambda two: _hard(*two))


def _outcome(forward: list[float], swapped: list[float]) -> Outcome:
    orders: dict[Order, Verdict] = {}
    for order, p in zip(ORDERS, (forward, swapped), strict=True):
        labels: tuple[Label, ...] = ("A", "B", "tie")
        best = labels[int(np.argmax(p))]
        orders[order] = Verdict("overall", best, dict(zip(labels, p, strict=True)), 1.0)
    return pool("overall", orders)


def _hard(forward: Label, swapped: Label) -> Outcome:
    return pool("overall", {"forward": Verdict("overall", forward), "swapped": Verdict("overall", swapped)})


def _table(outcomes: list[Outcome]) -> np.ndarray[Any, Any]:
    return np.array([[outcome.p[side] for side in SIDES] for outcome in outcomes if outcome.p])


def _pooled(outcomes: list[Outcome], rule: PoolRule, length: float = 0.0) -> Outcome:
    return pool("overall", pool_jury("overall", outcomes, rule, length))


@given(st.lists(soft, min_size=2, max_size=5), st.data())
def test_the_mean_is_a_weighted_geometric_mean(outcomes: list[Outcome], data: st.DataObject) -> None:
    weights = data.draw(st.lists(st.floats(0.1, 5.0), min_size=len(outcomes), max_size=len(outcomes)))
    found = _pooled(outcomes, PoolRule(len(outcomes), "mean", tuple(weights)))
    naive = np.exp(np.average(np.log(_table(outcomes)), axis=0, weights=weights))
    naive /= naive.sum()
    assert found.p is not None
    assert [found.p[side] for side in SIDES] == pytest.approx(naive.tolist(), rel=1e-6)
    odds = np.log(_table(outcomes)[:, 0] / _table(outcomes)[:, 1])
    assert math.log(found.p["1"] / found.p["2"]) == pytest.approx(np.average(odds, weights=weights), abs=1e-6)


@given(st.lists(soft, min_size=2, max_size=4), st.floats(0.0, 3.0), st.floats(-2, 2), st.floats(-0.5, 0.5))
def test_a_calibrated_mean_is_the_mean_of_calibrated_log_odds(
    outcomes: list[Outcome], slope: float, tie: float, length: float
) -> None:
    scale, ratio = Scale(slope, tie, length), 0.7
    rule = PoolRule(len(outcomes), scales={"overall": (scale,) * len(outcomes)})
    found = _pooled(outcomes, rule, ratio)
    odds = np.log(_table(outcomes)[:, 0] / _table(outcomes)[:, 1])
    each = Calibration(slope, tie, length, 100, 60).apply(odds, np.full(len(odds), ratio))
    naive = np.exp(np.log(each).mean(axis=0))
    assert found.p is not None
    assert [found.p[side] for side in SIDES] == pytest.approx((naive / naive.sum()).tolist(), rel=1e-5, abs=1e-7)


@given(st.lists(st.one_of(soft, hard), min_size=2, max_size=6))
def test_a_majority_counts_the_outcomes(outcomes: list[Outcome]) -> None:
    found = _pooled(outcomes, PoolRule(len(outcomes), "majority"))
    votes = [sum(outcome.side == side for outcome in outcomes) for side in SIDES]
    best = [side for side, count in zip(SIDES, votes, strict=True) if count == max(votes)]
    assert found.side == (best[0] if len(best) == 1 else "tie")
    assert found.p is not None
    assert [found.p[side] for side in SIDES] == pytest.approx([count / len(outcomes) for count in votes])


@given(st.lists(st.one_of(soft, hard), min_size=2, max_size=4), hard)
def test_with_a_juror_that_gives_labels_alone_shares_are_averaged(outcomes: list[Outcome], one: Outcome) -> None:
    every = [*outcomes, one]
    found = _pooled(every, PoolRule(len(every)))
    assert found.p is not None
    assert [found.p[side] for side in SIDES] == pytest.approx(_table(every).mean(axis=0).tolist())


@given(st.lists(st.one_of(soft, hard), min_size=2, max_size=4), st.sampled_from(["mean", "majority"]))
def test_exchanging_the_sides_exchanges_the_pool(outcomes: list[Outcome], how: Any) -> None:
    other: dict[Order, Order] = {"forward": "swapped", "swapped": "forward"}
    turned = [pool("overall", {other[order]: verdict for order, verdict in o.orders.items()}) for o in outcomes]
    one, two = (_pooled(every, PoolRule(len(every), how)) for every in (outcomes, turned))
    assert one.p is not None
    assert two.p is not None
    assert (one.p["1"], one.p["2"]) == pytest.approx((two.p["2"], two.p["1"]), rel=1e-6)


def test_a_place_that_most_jurors_favour_is_a_contradiction_of_the_jury() -> None:
    leaning = [_hard("A", "A")] * 2 + [_hard("A", "B")]
    assert _pooled(leaning, PoolRule(3, "majority")).inconsistent
    assert not _pooled([_hard("A", "B")] * 2 + [_hard("A", "A")], PoolRule(3, "majority")).inconsistent


def test_a_juror_that_is_silent_leaves_no_verdict_unless_a_quorum_allows_it() -> None:
    said = [_hard("A", "B"), _hard("A", "B"), None]
    strict = pool_jury("overall", said, PoolRule(3, "majority"))
    assert {verdict.invalid for verdict in strict.values()} == {"incomplete"}
    assert pool("overall", pool_jury("overall", said, PoolRule(3, "majority", quorum=2))).side == "1"


def test_a_juror_that_was_asked_in_one_order_speaks_for_both() -> None:
    once = pool("overall", {"forward": Verdict("overall", "B")})
    found = _pooled([once, once, _hard("A", "B")], PoolRule(3, "majority"))
    assert (found.side, set(found.orders)) == ("2", set(ORDERS))


@pytest.mark.parametrize(
    ("rule", "said"),
    [
        ({"jurors": 1}, "two judges or more"),
        ({"jurors": 3, "weights": (1.0, 2.0)}, "2 weights for 3"),
        ({"jurors": 2, "weights": (1.0, 0.0)}, "must be a number above 0"),
        ({"jurors": 2, "weights": (1.0, math.nan)}, "must be a number above 0"),
        ({"jurors": 2, "quorum": 3}, "quorum of 3 of 2"),
    ],
)
def test_a_rule_that_makes_no_sense_is_refused(rule: dict[str, Any], said: str) -> None:
    with pytest.raises(InputError, match=said):
        PoolRule(**rule)


# -- weights that are learned -------------------------------------------------------------------------------------


def test_learned_weights_are_those_of_a_plain_search() -> None:
    rng = np.random.default_rng(3)
    x = rng.normal(size=(300, 2)) * 2
    s = 0.9 * x[:, 0] + 0.3 * x[:, 1]
    weights = np.column_stack([np.exp(s / 2), np.exp(-s / 2), np.full(300, math.exp(-0.5))])
    p = weights / weights.sum(axis=1, keepdims=True)
    truth = np.array([rng.choice(3, p=one) for one in p])
    found = learn_weights(x, truth, range(300))

    def loss(a: float, b: float, tie: float) -> float:
        odds = a * x[:, 0] + b * x[:, 1]
        each = np.column_stack([odds / 2, -odds / 2, np.full(300, tie)])
        return float((np.log(np.exp(each).sum(axis=1)) - each[np.arange(300), truth]).mean())

    grid = [
        (a, b, t) for a in np.arange(0, 2, 0.1) for b in np.arange(0, 1, 0.1) for t in np.arange(-1.5, 0.5, 0.25)
    ]
    best = min(grid, key=lambda point: loss(*point))
    assert found.slopes == pytest.approx(best[:2], abs=0.12)
    assert found.log_loss <= loss(*best) + 2e-3


def test_a_juror_that_goes_against_people_weighs_nothing_and_few_labels_are_refused() -> None:
    rng = np.random.default_rng(5)
    good = rng.normal(size=200) * 2
    truth = (rng.random(200) > 1 / (1 + np.exp(-good))).astype(int)
    found = learn_weights(np.column_stack([good, -good + rng.normal(size=200)]), truth, range(200))
    assert found.slopes[1] == 0.0 < found.slopes[0]
    with pytest.raises(TooFewLabels):
        learn_weights(np.zeros((20, 2)), np.zeros(20), range(20))


# -- in Python ----------------------------------------------------------------------------------------------------


def engine(name: str, said: str) -> ScriptedEngine:
    return ScriptedEngine(lambda prompt: said, name=name)


def leaning(p: float) -> ScriptedEngine:
    return ScriptedEngine(lambda prompt: {"A": p, "B": 1 - p, "tie": 0.01}, name=str(p))


def test_a_jury_is_used_like_a_judge_and_each_verdict_is_kept(tmp_path: Path) -> None:
    db, pairs = tmp_path / "x.db", [Pair(f"Q{n}", "one", "two", id=str(n)) for n in range(5)]
    with Jury([engine("a", "A"), engine("b", "tie"), engine("c", "A")], "overall", db=db, pool="majority") as jury:
        assert [judgment["overall"].side for judgment in jury.judge(pairs)] == ["tie"] * 5  # A in both places
        assert asyncio.run(jury.acompare(pairs[0]))["overall"].inconsistent
        assert jury.result().spoke == {3: 6}
    with Store(db) as store:
        assert [(row.model, row.pairs) for row in store.judges()] == [
            ("a", 5),
            ("b", 5),
            ("c", 5),
            ("jury of a, b, c", 5),
        ]


def test_the_win_rate_of_a_jury_is_that_of_the_results_beside_it(tmp_path: Path) -> None:
    """Three pairs of one instruction and one of another: each instruction weighs the same."""
    pairs = [Pair("Q", f"good {n}", f"bad {n}") for n in range(3)] + [Pair("R", "bad", "good")]
    jurors = [
        ScriptedEngine(lambda prompt: "A" if _is_first("good", prompt.turns[-1].text) else "B", name=name)
        for name in ("a", "b", "c")
    ]
    with Jury(jurors, "overall", db=tmp_path / "x.db", pool="majority") as jury:
        list(jury.judge(pairs))
        found = jury.result()
    with Store(tmp_path / "x.db") as store:
        summary = judge_summary(store, store.judges()[-1]).summary.dimensions["overall"]
    assert found.win_rate_1 == summary.win_rate_1 == 0.5
    assert [juror.win_rate_1_without for juror in found.jurors] == [0.5] * 3


def _is_first(word: str, text: str) -> bool:
    return text.index(word) < text.index("bad")


def test_pooling_twice_writes_nothing_and_another_rule_is_another_jury(tmp_path: Path) -> None:
    db, pairs = tmp_path / "x.db", [Pair(f"Q{n}", "one", "two", id=str(n)) for n in range(5)]
    with Jury([engine("a", "A"), engine("b", "tie")], "overall", db=db) as jury:
        list(jury.judge(pairs))
        members = jury.members
    with Store(db) as store:
        before = store._db.total_changes
        same = JuryPool(store, members, PoolRule(2))
        assert same.pool(pairs)
        assert store._db.total_changes == before
        JuryPool(store, members, PoolRule(2, "majority")).pool(pairs)
        assert [row.model for row in store.judges()].count("jury of a, b") == 2


def test_a_run_that_is_told_to_stop_asks_about_no_other_pair(tmp_path: Path) -> None:
    pairs = [Pair(f"Q{n}", "one", "two", id=str(n)) for n in range(100)]
    limits = Limits(max_requests=10_000)  # so that a few are taken at a time
    with Jury([engine("a", "A"), engine("b", "tie")], "overall", db=tmp_path / "x.db", limits=limits) as jury:
        with jury.run(pairs) as judgments:
            first = next(iter(judgments))
            judgments.stop()
            rest = list(judgments)
        assert (first.pair.id, len(rest), judgments.totals.asked) == ("0", 31, 32 * 4)
        with jury.run(pairs) as judgments:
            assert len(list(judgments)) == 100
        assert judgments.totals.asked == 68 * 4


def test_jurors_under_other_protocols_are_pooled_on_what_they_share(tmp_path: Path) -> None:
    db = tmp_path / "x.db"
    four = ScriptedEngine(lambda prompt: "A,B,tie,A" if prompt.verdicts == 4 else "A", name="a")
    with Judge(four, "four", db=db) as one, Judge(engine("b", "A"), "overall", db=db) as two:
        with Jury([one, two], db=db) as jury:
            found = jury.compare("Hi", "x", "y")
        assert list(found.outcomes) == ["overall"]
        with Jury([one, two], db=db, name="panel") as jury:
            assert jury.setup.engine.identity["model"] == "panel"


def test_the_same_judge_twice_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="named twice"):
        Jury([engine("a", "A"), engine("a", "A")], "overall", db=tmp_path / "x.db")


def test_calibrations_that_are_kept_are_used_and_make_another_jury(tmp_path: Path) -> None:
    db, pair = tmp_path / "x.db", Pair("Q", "one", "two", id="1")
    three = [leaning(0.6), leaning(0.9)]
    with Jury(three, "overall", db=db, orders="forward") as jury:
        plain = jury.compare(pair)["overall"]
    with Store(db) as store:
        store.calibrations.keep(1, "overall", Calibration(4.0, -2.0, 0.0, 100, 60).plain())
        assert scales_of(store, jury.members)["overall"][1] is None
    with Jury(three, "overall", db=db, orders="forward") as jury:
        assert [juror.calibrated for juror in jury.result().jurors] == [True, False]
        assert "calibrated but for" in pool_line(jury.result())
        sure = jury.compare(pair)["overall"]
    assert sure.p is not None
    assert plain.p is not None
    assert sure.p["1"] > plain.p["1"]
    with Store(db) as store:
        assert len(store.judges()) == 4


def test_a_name_may_hold_a_comma_that_is_written_with_a_backslash() -> None:
    assert split_judges(r"http://h/v1#a\,b,c") == ["http://h/v1#a,b", "c"]
    with pytest.raises(SpecError, match="empty name"):
        split_judges("a,,b")


# -- the command, against a server --------------------------------------------------------------------------------


@pytest.fixture
def panel(loop: LoopThread) -> Iterator[Panel]:
    with serving(Panel(), loop) as found:
        yield found


def file_of(folder: Path, count: int, **more: object) -> Path:
    path = folder / "pairs.jsonl"
    path.write_text("".join(json.dumps(row(number, **more)) + "\n" for number in range(count)), encoding="utf-8")
    return path


def specs(panel: Panel) -> str:
    return ",".join(panel.spec(model) for model in MODELS)


def test_the_command_judges_pools_and_says_how_far_they_agree(tmp_path: Path, panel: Panel) -> None:
    pairs, db = file_of(tmp_path, 30), tmp_path / "x.db"
    words = ("--judge", specs(panel), "--protocol", "overall", "--db", db)
    found = json.loads(evenhand("judge", pairs, *words, "--json").stdout)
    assert panel.asked == dict.fromkeys(MODELS, 60)
    assert (found["pairs"], found["jury"]["spoke"], found["jury"]["incomplete"]) == (30, {"3": 30}, 0)
    assert [juror["name"] for juror in found["jury"]["jurors"]] == list(MODELS)
    mean = [np.mean([_odds(panel.view(model, n)) for model in MODELS]) for n in range(30)]
    wins = [0.5 if abs(x) < 1e-9 else float(x > 0) for x in mean]
    assert found["jury"]["win_rate_1"] == pytest.approx(np.mean(wins), abs=0.04)  # a few may be ties
    for two in found["jury"]["agreement"]:
        same = np.mean(
            [(panel.view(two["one"], n) > 0.5) == (panel.view(two["other"], n) > 0.5) for n in range(30)]
        )
        assert two["same"]["value"] == pytest.approx(same, abs=0.07)
    again = evenhand("judge", pairs, *words)
    assert panel.asked.total() == 180
    assert "by the mean of log-odds, none of them calibrated." in again.stdout
    assert "Agreement between judges" in again.stdout
    assert "verdicts it changes" in again.stdout


def _odds(share: float) -> float:
    return math.log((0.95 * share + 1e-3) / (0.95 * (1 - share) + 1e-3))


def test_leaving_a_juror_out_is_pooling_the_others(tmp_path: Path, panel: Panel) -> None:
    pairs, db = file_of(tmp_path, 25), tmp_path / "x.db"
    whole = json.loads(
        evenhand("judge", pairs, "--judge", specs(panel), "-p", "overall", "--db", db, "--json").stdout
    )
    for juror in whole["jury"]["jurors"]:
        others = ",".join(model for model in MODELS if model != juror["name"])
        found = json.loads(evenhand("jury", others, "--db", db, "--json").stdout)
        assert found["jury"]["win_rate_1"] == pytest.approx(juror["win_rate_1_without"])
    with Store(db) as store:
        rows = {row.model: row for row in store.judges()}
        sides = {name: _sides(store, rows[name]) for name in rows}
    for juror in whole["jury"]["jurors"]:
        rest = f"jury of {', '.join(model for model in MODELS if model != juror['name'])}"
        changed = sum(sides[rest][n] != side for n, side in sides["jury of small, middle, large"].items())
        assert juror["changed"] == changed


def _sides(store: Store, judge: Any) -> dict[str, str | None]:
    return {judgment.pair.id: judgment["overall"].side for judgment in store.judgments(judge)}


def test_a_juror_without_a_key_marks_every_pair_and_the_run_is_completed_later(
    tmp_path: Path, panel: Panel
) -> None:
    pairs, db = file_of(tmp_path, 12), tmp_path / "x.db"
    words = ("judge", pairs, "--judge", specs(panel), "--protocol", "overall", "--db", db)
    panel.failing = {"large"}
    done = evenhand(*words, "--json", code=3)
    jury = json.loads(done.stdout)["jury"]
    assert (jury["spoke"], jury["incomplete"], jury["win_rate_1"]) == ({"2": 12}, 12, None)
    assert jury["jurors"][2]["failed"]
    said = evenhand(*words, code=3)
    assert "large was not asked to the end" in said.stdout
    assert "12 pairs have no pooled verdict: fewer than 3 of 3 judges spoke" in said.stdout
    panel.failing, asked = set(), panel.asked.copy()
    whole = json.loads(evenhand(*words, "--json").stdout)
    assert whole["jury"]["spoke"] == {"3": 12}
    assert panel.asked - asked == {"large": 24}  # nobody was asked twice
    with Store(db) as store:
        assert judge_summary(store, store.judges()[-1]).summary.invalid == 0


def test_pairs_that_a_juror_answers_with_nonsense_are_marked_and_a_quorum_pools_them(
    tmp_path: Path, panel: Panel
) -> None:
    pairs, db = file_of(tmp_path, 10), tmp_path / "x.db"
    panel.unreadable = {"middle": {3, 4}}
    words = ("--protocol", "overall", "--db", db)
    strict = json.loads(evenhand("judge", pairs, "--judge", specs(panel), *words, "--json", code=3).stdout)
    assert (strict["jury"]["spoke"], strict["jury"]["incomplete"]) == ({"3": 8, "2": 2}, 2)
    assert strict["jury"]["jurors"][1]["silent"] == {"unreadable": 2}
    assert strict["dimensions"]["overall"]["invalid_reasons"] == {"incomplete": 2}
    told = evenhand("jury", "--db", db, code=3).stdout
    assert (
        "fewer than 3 of 3 judges spoke. Answers that cannot be read are not asked for again. --quorum 2 " in told
    )
    later = evenhand("results", "--judge", "jury", "--db", db).stdout
    assert "invalid: incomplete 2. Invalid verdicts are in no win rate." in later
    assert "silent" not in later  # what is kept of the jurors is not written for people
    asked = panel.asked.total()
    loose = json.loads(evenhand("jury", "--quorum", "2", "--db", db, "--json").stdout)
    assert (loose["jury"]["spoke"], loose["jury"]["incomplete"]) == ({"3": 8, "2": 2}, 0)
    assert "rest on fewer than all 3 judges" in evenhand("jury", "--quorum", "2", "--db", db).stdout
    assert panel.asked.total() == asked


def test_all_jurors_failing_is_an_error_and_leaves_nothing(tmp_path: Path, panel: Panel) -> None:
    panel.failing = set(MODELS)
    pairs, db = file_of(tmp_path, 4), tmp_path / "x.db"
    done = evenhand("judge", pairs, "--judge", specs(panel), "-p", "overall", "--db", db, code=1)
    assert "does not accept the key" in done.stderr
    with Store(db) as store:
        assert store.judges() == []


def test_a_budget_is_one_for_all_jurors(tmp_path: Path, panel: Panel) -> None:
    pairs, db = file_of(tmp_path, 40), tmp_path / "x.db"
    words = ("judge", pairs, "--judge", specs(panel), "-p", "overall", "--db", db)
    evenhand(*words, "--max-requests", "100", code=3)
    assert panel.asked.total() == 100
    evenhand(*words)
    assert panel.asked.total() == 240


def test_a_python_jury_stops_at_its_budget(tmp_path: Path, panel: Panel) -> None:
    pairs = [Pair(f"Question {n}?", f"answer {n} side 1", f"answer {n} side 2", id=str(n)) for n in range(10)]
    names = [panel.spec(model) for model in MODELS]
    limits = Limits(max_requests=30)
    with Jury(names, "overall", db=tmp_path / "x.db", limits=limits) as jury, pytest.raises(BudgetError):
        list(jury.judge(pairs))
    assert panel.asked.total() == 30


def test_every_command_that_asks_takes_a_jury(tmp_path: Path, panel: Panel) -> None:
    db = tmp_path / "x.db"
    words = ("--judge", specs(panel), "--protocol", "overall")
    one = ("-i", "Question 1?", "--a", "answer 1 side 1", "--b", "answer 1 side 2")
    compared = json.loads(evenhand("compare", *one, *words, "--json").stdout)
    assert compared["jury"]["spoke"] == {"3": 1}
    gated = evenhand_any("gate", file_of(tmp_path, 60), *words, "--db", db, "--json")
    assert json.loads(gated.stdout)["jury"]["pairs"] == json.loads(gated.stdout)["judged"]
    for side in (1, 2):
        lines = [{"instruction": f"Question {n}?", "output": f"answer {n} side {side}"} for n in range(8)]
        (tmp_path / f"m{side}.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    files = [tmp_path / f"m{side}.jsonl" for side in (1, 2)]
    arena = json.loads(evenhand("arena", *files, *words, "--db", tmp_path / "a.db", "--json").stdout)
    assert arena["jury"]["spoke"] == {"3": 8}
    assert arena["ranking"]["judge"] == "jury of small, middle, large"
    assert "jury of small" in evenhand("results", "--judge", "jury", "--db", db).stdout
    for command in (("report", "--out", tmp_path / "r.html"), ("rank",), ("export", "judgments", "--out", "-")):
        evenhand_any(*command, "--db", db)


def test_a_jury_in_a_database_is_one_of_the_judges_that_commands_take(tmp_path: Path, panel: Panel) -> None:
    db, pairs = tmp_path / "x.db", tmp_path / "pairs.jsonl"
    labels = ["1" if panel.view("large", n) > 0.4 else "2" for n in range(80)]
    rows = [row(n, label=label, model_1="old", model_2="new") for n, label in enumerate(labels)]
    pairs.write_text("".join(json.dumps(one) + "\n" for one in rows), encoding="utf-8")
    evenhand("judge", pairs, "--judge", specs(panel), "--protocol", "overall", "--db", db)
    asked, name = panel.asked.copy(), "jury of small, middle, large"

    def said(*command: str) -> Any:
        return json.loads(evenhand(*command, "--db", db, "--json").stdout)

    [card] = said("card", "jury")["judges"]
    assert (card["judge"], card["dimensions"]["overall"]["labelled"]) == (name, 80)
    [fitted] = said("calibrate", "jury")["calibrations"]
    assert (fitted["judge"], fitted["n"], fitted["slope"] > 0) == (name, 80, True)
    result = said("results", "--judge", "jury", "--calibrated")
    assert (result["judge"], result["calibrated"], result["pairs"]) == (name, ["overall"], 80)
    ranking = said("rank", "--judge", "jury")
    assert (ranking["judge"], {one["model"] for one in ranking["models"]}) == (name, {"old", "new"})
    gated = json.loads(evenhand_any("gate", "--judge", "jury", "--db", db, "--json").stdout)
    assert (gated["judge"], gated["judged"]) == (name, 80)
    out = tmp_path / "judgments.jsonl"
    evenhand("export", "judgments", "--judge", "jury", "--db", db, "--out", out)
    kept = [json.loads(line) for line in out.read_text(encoding="utf-8").splitlines()]
    assert (len(kept), {one["judge"] for one in kept}) == (80, {name})
    with Store(db) as store:
        others = {one.name: one for one in other_judges(store, labelled_pairs(store), "overall")}
        jury = next(one for one in store.judges() if one.model == name)
        right = [found["overall"].side == found.pair.labels["overall"] for found in store.judgments(jury)]
    assert others[f"{name} / overall"].accuracy.value == pytest.approx(
        np.mean(right), abs=0.02
    )  # what learn compares with
    assert set(others) == {f"{model} / overall" for model in (*MODELS, name)}
    assert panel.asked == asked


def test_what_cannot_take_a_jury_says_what_to_do_instead(tmp_path: Path, panel: Panel) -> None:
    pairs = file_of(tmp_path, 4)
    done = evenhand("judge", pairs, "--judge", panel.spec("a"), "--pool", "majority", code=2)
    assert "for several judges" in done.stderr
    assert "one of mean, majority" in evenhand("judge", pairs, "--judge", "a,b", "--pool", "best", code=2).stderr
    assert "no database" in evenhand("jury", "--db", tmp_path / "none.db", code=2).stderr


def test_a_dry_run_plans_each_juror(tmp_path: Path, panel: Panel) -> None:
    words = ("judge", file_of(tmp_path, 7), "--judge", specs(panel), "-p", "overall", "--dry-run")
    found = json.loads(evenhand(*words, "--db", tmp_path / "x.db", "--json").stdout)["judges"]
    assert [(plan["judge"].rpartition("#")[2], plan["requests"]) for plan in found] == [(m, 14) for m in MODELS]
    assert "14 requests to make" in evenhand(*words, "--db", tmp_path / "x.db").stdout
    assert not panel.asked


def test_repooling_asks_nobody(tmp_path: Path, panel: Panel) -> None:
    pairs, db = file_of(tmp_path, 15), tmp_path / "x.db"
    for model in MODELS:
        evenhand("judge", pairs, "--judge", panel.spec(model), "-p", "overall", "--db", db)
    asked = panel.asked.total()
    found = json.loads(evenhand("jury", "--pool", "majority", "--weights", "3,1,1", "--db", db, "--json").stdout)
    assert found["jury"]["weights"] == [3, 1, 1]
    with Store(db) as store:
        rows = {row.model: row for row in store.judges()}
        assert _sides(store, rows["jury of small, middle, large"]) == _sides(
            store, rows["small"]
        )  # it outvotes both
        members = JuryMembers(tuple(member_of(rows[model]) for model in MODELS))
        assert members.dimensions == ("overall",)
    assert panel.asked.total() == asked
    done = evenhand("jury", "small,nobody", "--db", db, code=2)
    assert "no judge in" in done.stderr
    assert "takes two judges or more" in evenhand("jury", "small", "--db", db, code=2).stderr


def test_weights_are_learned_from_labels_and_refused_without(tmp_path: Path, loop: LoopThread) -> None:
    def view(model: str, number: int) -> float:
        right = 0.85 if number % 2 else 0.15
        return right if model == "good" else (number * 7 % 10) / 10 + 0.05

    path, db = tmp_path / "pairs.jsonl", tmp_path / "x.db"
    labels = ["1" if number % 2 else "2" for number in range(80)]
    labels[::9] = ["2" if label == "1" else "1" for label in labels[::9]]
    path.write_text("".join(json.dumps(row(n, label=label)) + "\n" for n, label in enumerate(labels)))
    with serving(Panel(view), loop) as panel:
        names = ",".join(panel.spec(model) for model in ("good", "noise"))
        evenhand("judge", path, "--judge", names, "-p", "overall", "--db", db)
    found = json.loads(evenhand("jury", "good,noise", "--learned", "--name", "taught", "--db", db, "--json").stdout)
    assert found["jury"]["calibrated"]
    with Store(db) as store:
        rows = {row.model: row for row in store.judges()}
        assert _sides(store, rows["taught"]) == _sides(store, rows["good"])
    bare = tmp_path / "bare.db"
    with serving(Panel(view), loop) as panel:
        names = ",".join(panel.spec(model) for model in ("good", "noise"))
        evenhand("judge", file_of(tmp_path, 5), "--judge", names, "-p", "overall", "--db", bare)
    assert "weights cannot be learned on overall" in evenhand("jury", "--learned", "--db", bare, code=2).stderr
