"""evenhand results in groups, beside other verdicts and beside people's, on a database that a script has filled."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import warm
from evenhand import Judge, Pair, ScriptedEngine
from evenhand.core.columns import blocks_of
from evenhand.core.errors import InputError
from evenhand.core.judge import Judgment
from evenhand.core.pair import Side
from evenhand.core.stats.ppi import powered_rate
from evenhand.core.stats.winrate import mean_rate, paired_difference
from evenhand.results.comparison import compare, values_of
from evenhand.results.counting import WEIGHTINGS
from evenhand.results.evidence import gather
from evenhand.results.groups import group_by
from evenhand.results.human import human_rate
from evenhand.results.people import People
from evenhand.store import HumanLabel, JudgeRow, Store

HOSTILE = "\x1b[31m[red]"
COUNT = 90


def make_pairs() -> list[Pair]:
    """Three pairs for each of 30 instructions; the better response says so, and people have labelled a third."""
    rng = random.Random(0)
    pairs = []
    for number in range(COUNT):
        best = rng.random() < 0.65
        words = ("good", "poor") if best else ("poor", "good")
        one, two = (f"{'so ' * rng.randint(1, 30)}{word} {number}" for word in words)
        pairs.append(
            Pair(
                f"Task {number // 3}",
                one,
                two,
                id=f"p{number}",
                model_1="left",
                model_2="right",
                labels={"overall": "1" if best else "2"} if number % 3 == 0 else {},
                metadata={"topic": HOSTILE if number % 2 else "sums", "hard": number % 5 == 0},
            )
        )
    return pairs


def script(prompt: Any) -> dict[str, float] | str:
    """Finds the good response four times out of five, leans to the first, and now and then says nothing."""
    text = prompt.turns[-1].text
    shown = text[text.rindex("Response A") :] if "Response A" in text else text
    chance = random.Random(shown).random()
    if chance > 0.97:
        return "I cannot say."
    first = shown.find("good") < shown.find("poor")
    right = 0.75 if chance < 0.8 else 0.3
    a = min(0.9, (right if first else 1 - right) + 0.1)
    return {"A": 0.95 * a, "B": 0.95 * (1 - a), "tie": 0.05}


@pytest.fixture(scope="module")
def database(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("results") / "evenhand.db"
    for protocol in ("overall", "chained"):
        with Judge(ScriptedEngine(script if protocol == "overall" else scripted_chain), protocol, db=path) as judge:
            assert len(list(judge.judge(make_pairs()))) == COUNT
    return path


def scripted_chain(prompt: Any) -> dict[str, float]:
    a = random.Random(prompt.turns[-1].text).random()
    return {"A": 0.9 * a, "B": 0.9 * (1 - a), "tie": 0.1}


def judge_row(store: Store, protocol: str) -> JudgeRow:
    return next(row for row in store.judges() if row.protocol == protocol)


def judgments(database: Path, protocol: str = "overall") -> list[Judgment]:
    with Store(database) as store:
        return list(store.judgments(judge_row(store, protocol)))


def run(database: Path, *words: str, code: int = 0) -> str:
    done = warm.run("results", "--db", database, *words)
    assert done.returncode == code, done.stderr
    return done.stdout if code == 0 else done.stderr


def fields_of(database: Path, *words: str) -> dict[str, Any]:
    fields: dict[str, Any] = json.loads(run(database, "--protocol", "overall", "--json", *words))
    return fields


def value(judgment: Judgment) -> float:
    return {"1": 1.0, "2": 0.0, "tie": 0.5}[str(judgment["overall"].side)]


# -- the plain table ---------------------------------------------------------------------------------------------


def test_the_table_has_both_readings_the_length_and_the_invalid(database: Path) -> None:
    shown = run(database, "--protocol", "overall")
    for words in ("expected", "at equal", "odds if", "with the", "invalid", "left"):
        assert words in shown


def test_dimensions_without_a_rate_at_equal_length_are_named_together(tmp_path: Path) -> None:
    with Judge(ScriptedEngine(lambda _: "A"), "chained", db=tmp_path / "few.db") as judge:
        list(judge.judge(make_pairs()[:6]))
    said = " ".join(warm.run("results", "--db", tmp_path / "few.db").stdout.split())
    assert "precision, correctness, format, overall, combined: no rate at equal length, because of" in said
    assert said.count("no rate at equal length") == 1


def test_the_rate_is_that_of_the_judgments_in_clusters(database: Path) -> None:
    valid = [j for j in judgments(database) if j["overall"].side]
    assert 0 < len(valid) < COUNT
    values, instructions = [value(j) for j in valid], [j.pair.instruction for j in valid]
    for weighting in WEIGHTINGS:
        rate = mean_rate(values, instructions, weighting=weighting)
        fields = fields_of(database, "--weigh", weighting)["dimensions"]["overall"]
        assert (fields["win_rate_1"], fields["ci"]) == (rate.value, [rate.low, rate.high])
        assert fields["weighting"] == weighting
    rate = mean_rate(values, instructions, weighting="instructions")
    fields = fields_of(database)["dimensions"]["overall"]
    assert (fields["win_rate_1"], fields["weighting"]) == (rate.value, "instructions")
    assert fields["clusters"] == 30
    assert fields["invalid_bounds"][0] < rate.value < fields["invalid_bounds"][1]


# -- groups ------------------------------------------------------------------------------------------------------


def test_groups_are_those_of_the_field(database: Path) -> None:
    groups = fields_of(database, "--by", "topic")["by"]["groups"]
    assert [group["value"] for group in groups] == [HOSTILE, "sums"]
    assert sum(group["pairs"] for group in groups) == COUNT
    sums = [j for j in judgments(database) if j.pair.metadata["topic"] == "sums"]
    assert groups[1]["dimensions"]["overall"]["n"] == sum(j["overall"].side is not None for j in sums)


def test_a_name_from_outside_cannot_steer_the_terminal(database: Path) -> None:
    shown = run(database, "--protocol", "overall", "--by", "topic")
    assert "\x1b[31m" not in shown
    assert "[red]" in shown


def test_groups_by_model_and_by_what_is_no_text(database: Path) -> None:
    assert [g["value"] for g in fields_of(database, "--by", "model_1")["by"]["groups"]] == ["left"]
    assert [g["value"] for g in fields_of(database, "--by", "hard")["by"]["groups"]] == ["false", "true"]


def test_a_field_that_no_pair_has_is_refused_with_those_that_there_are(database: Path) -> None:
    said = run(database, "--by", "colour", code=2)
    assert "no pair has a field 'colour'" in said
    assert "topic" in said


def test_pairs_without_the_field_stand_last() -> None:
    pairs = [Pair("a", "x", "y"), Pair("b", "x", "y", metadata={"kind": "z"}), Pair("c", "x", "y", model_1="m")]
    with Judge(ScriptedEngine(lambda _: "A"), "overall") as judge:
        found = list(judge.judge(pairs))
    groups = group_by(blocks_of(found), ["overall"], "kind")
    assert [(group.value, group.summary.pairs) for group in groups] == [("z", 1), (None, 2)]
    assert [group.value for group in group_by(blocks_of(found), ["overall"], "model_1")] == ["m", None]
    with pytest.raises(InputError, match="no pair has a field"):
        group_by(blocks_of(found), ["overall"], "model_2")


# -- differences -------------------------------------------------------------------------------------------------


def test_the_difference_to_another_protocol_is_paired(database: Path) -> None:
    [fields] = fields_of(database, "--against", "chained")["against"]
    other = {j.pair.id: j for j in judgments(database, "chained") if j["overall"].side}
    both = [j for j in judgments(database) if j["overall"].side and j.pair.id in other]
    expected = paired_difference(
        [value(j) for j in both],
        [value(other[j.pair.id]) for j in both],
        [j.pair.instruction for j in both],
        weighting="instructions",
    )
    assert (fields["dimension"], fields["n"]) == ("overall", len(both))
    assert (fields["difference"], fields["ci"]) == (expected.value, [expected.low, expected.high])
    assert (fields["p"] < 0.05) == expected.decided
    assert fields["p_holm"] == fields["p"], "one question needs no correction"


def test_the_difference_to_another_database(database: Path, tmp_path: Path) -> None:
    other = tmp_path / "other.db"
    with Judge(ScriptedEngine(script), "overall", db=other) as judge:
        list(judge.judge(make_pairs()[:40]))
    [fields] = fields_of(database, "--against", str(other))["against"]
    assert (fields["difference"], fields["decided"], fields["db"]) == (0.0, False, str(other))
    assert 30 <= fields["n"] <= 40


def test_two_dimensions_of_one_judge(database: Path) -> None:
    fields = json.loads(run(database, "--protocol", "chained", "--between", "precision,format", "--json"))
    [found] = fields["between"]
    values = values_of(blocks_of(judgments(database, "chained")))
    expected = compare(values["precision"], values["format"], "precision", "format")
    assert (found["difference"], found["n"]) == (expected.difference, COUNT)
    assert found["expected"]["difference"] != found["difference"]
    assert "difference" in run(database, "--protocol", "chained", "--between", "precision,format")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--against", "nobody"], "matches no other verdicts"),
        (["--against", "overall"], "matches no other verdicts"),
        (["--between", "overall,colour"], "--between overall,colour"),
        (["--between", "overall"], "two dimensions with a comma"),
        (["--width", "0.1"], "give --human too"),
    ],
)
def test_what_cannot_be_compared_is_refused(database: Path, words: list[str], said: str) -> None:
    assert said in run(database, "--protocol", "overall", *words, code=2)


# -- people ------------------------------------------------------------------------------------------------------


def test_people_and_judge_together(database: Path) -> None:
    fields = fields_of(database, "--human", "--width", "0.3")["human"]["overall"]
    found = judgments(database)
    labels = [{"1": 1.0, "2": 0.0}.get(j.pair.labels.get("overall", ""), np.nan) for j in found]
    verdicts = [0.5 if j["overall"].p is None else j["overall"].p["1"] + j["overall"].p["tie"] / 2 for j in found]
    expected = powered_rate(labels, verdicts, [j.pair.instruction for j in found])
    assert fields["win_rate_1"] == pytest.approx(expected.value)
    assert fields["ci"] == pytest.approx([expected.low, expected.high])
    assert (fields["labelled"], fields["pairs"]) == (30, COUNT)
    assert fields["wanted"]["width"] == 0.3
    shown = run(database, "--protocol", "overall", "--human", "--width", "0.3")
    assert "30 of 90" in shown
    assert "whatever the judge's bias" in shown
    side = fields_of(database)["sides"]["1"]
    assert f"Win rate of {side}, as people would have it on all pairs" in shown
    assert "The judge alone is counted by its probabilities, not by its verdicts." in shown


def test_labels_of_several_people_are_averaged() -> None:
    pairs = [Pair(f"Task {n}", "x", "y") for n in range(12)]
    with Judge(ScriptedEngine(lambda _: {"A": 0.5, "B": 0.3, "tie": 0.2}), "overall") as judge:
        list(judge.judge(pairs))
        votes: list[tuple[str, Side]] = [("a", "1"), ("b", "1"), ("c", "tie")]
        judge.store.labels.add(HumanLabel(pairs[0].key, "overall", who, side) for who, side in votes)
        evidence = gather(judge.store, judge.store.judges()[0], People(judge.store))["overall"]
    found = human_rate(evidence)
    assert (found.labels, found.labelled) == (3, 1)
    assert found.labels_alone.win_rate_1 == pytest.approx(5 / 6)


def test_people_and_judge_leave_out_exact_repeats_as_the_table_does(tmp_path: Path) -> None:
    pairs = [
        Pair(f"Task {n // 2}", f"x{n}", "y", f"p{n}", labels={"overall": "1"} if n < 9 else {}) for n in range(20)
    ]
    again = [Pair(*pair.texts, f"again {pair.id}") for pair in pairs[:7]]
    once = [Pair(*pairs[15].texts, "labelled", labels={"overall": "2"})]  # that its first appearance has not
    for name, given in (("once", pairs), ("twice", [*pairs, *again, *once])):
        with Judge(
            ScriptedEngine(lambda _: {"A": 0.5, "B": 0.3, "tie": 0.2}), "overall", db=tmp_path / name
        ) as judge:
            list(judge.judge(given))
    alone, fields = (fields_of(tmp_path / name, "--human")["human"]["overall"] for name in ("once", "twice"))
    assert (alone["pairs"], alone["labelled"]) == (20, 9)
    assert (fields["pairs"], fields["labelled"]) == (20, 10)
    assert fields["labels_alone"]["win_rate_1"] == pytest.approx(0.9)
    kept = fields_of(tmp_path / "twice", "--human", "--keep-repeats")["human"]["overall"]
    assert kept["pairs"] == 28
    assert "each pair weighs the same" in run(tmp_path / "twice", "--human")


def test_without_labels_it_says_so(database: Path) -> None:
    fields = json.loads(run(database, "--protocol", "chained", "--human", "--json"))["human"]["format"]
    assert (fields["win_rate_1"], fields["reason"]) == (None, "no pair has a label")
    assert "no pair has a label" in run(database, "--protocol", "chained", "--human")


def test_a_pair_without_a_verdict_is_one_half_and_counts() -> None:
    with Judge(ScriptedEngine(lambda _: "What?"), "overall") as judge:
        list(judge.judge([Pair("Hi", "x", "y", labels={"overall": "1"})]))
        found = human_rate(gather(judge.store, judge.store.judges()[0], People(judge.store))["overall"])
    assert (found.pairs, found.judge_alone.win_rate_1) == (1, 0.5)
    assert found.labels_alone.win_rate_1 == 1


def test_the_same_database_gives_the_same_bytes(database: Path) -> None:
    words = ("--json", "--by", "topic", "--human", "--width", "0.2")
    assert run(database, *words) == run(database, *words)


def test_the_rates_as_a_picture(database: Path, tmp_path: Path) -> None:
    pytest.importorskip("vl_convert")
    picture = tmp_path / "rates.svg"
    assert run(database, "--by", "topic", "--plot", str(picture)).endswith(f"wrote {picture}\n")
    assert picture.read_text().startswith("<svg")
    assert "plots are .svg or .png" in run(database, "--plot", str(tmp_path / "rates.pdf"), code=2)
