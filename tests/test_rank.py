"""evenhand rank: from judgments in a real database to tables, JSON and pictures."""

from __future__ import annotations

import json
import math
import random
import re
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from rich.table import Table

import warm
from evenhand import Judge, Pair, ScriptedEngine
from evenhand.core.columns import blocks_of
from evenhand.core.errors import InputError
from evenhand.core.judge import Conversation, Judgment
from evenhand.core.verdict import Verdict, invalid, pool
from evenhand.results.answer import ranking_answer
from evenhand.results.counting import WEIGHTINGS, Counting
from evenhand.results.plain import plain
from evenhand.results.ranking import matches_of
from evenhand.views import console
from evenhand.views.charts import win_matrix_chart
from evenhand.views.cli.rank import JudgeRanking, matrix_table, ranking_table

MODELS = ("ant", "bee", "[red]cat\x1b[31m", "<b>dog</b>")
INSTRUCTIONS = 30


def pairs() -> list[Pair]:
    """Every two models on every instruction, the sides by turns; what each is worth stands in its response."""
    rng = random.Random(2)
    found = []
    for number in range(INSTRUCTIONS):
        worth = {model: 3 - place + rng.gauss(0, 2) for place, model in enumerate(MODELS)}
        for place, one in enumerate(MODELS):
            for two in MODELS[place + 1 :]:
                first, second = (one, two) if rng.random() < 0.5 else (two, one)
                texts = (f"worth {worth[first]:.3f}.", f"worth {worth[second]:.3f}.")
                found.append(Pair(f"Task {number}", *texts, f"{number} {one} {two}", first, second))
    return found


def script(prompt: Any) -> dict[str, float] | str:
    """A judge that sees what each response is worth, with a leaning to the first place."""
    text = prompt.turns[-1].text
    if "broken" in text:
        return "I cannot say."
    first, second = (float(part.split()[0].rstrip(".")) for part in text.split("worth ")[1:3])
    weights = {"A": math.exp((first - second) / 2 + 0.3), "B": math.exp((second - first) / 2), "tie": 0.8}
    return {label: weight / sum(weights.values()) for label, weight in weights.items()}


@pytest.fixture(scope="module")
def db(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("rank") / "evenhand.db"
    odd = [
        Pair("Task 0", "worth broken", "worth 1.", "broken", "ant", "bee"),
        Pair("Task 1", "worth 1.", "worth 2.", "unnamed"),
        Pair("Task 2", "worth 1.", "worth 3.", "same", "ant", "ant"),
    ]
    with Judge(ScriptedEngine(script), "overall", db=path) as judge:
        list(judge.judge([*pairs(), *odd]))
    return path


def evenhand(*words: str | Path) -> subprocess.CompletedProcess[str]:
    return warm.run(*words, env={"COLUMNS": "120"})


@pytest.fixture(scope="module")
def fields(db: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(evenhand("rank", "--db", db, "--json").stdout)
    return found


def test_the_json_holds_the_whole_ranking(fields: dict[str, Any]) -> None:
    assert fields["models"][0]["model"] == "ant"
    assert (fields["n"], fields["instructions"], fields["invalid"], fields["unnamed"]) == (180, INSTRUCTIONS, 1, 2)
    assert (fields["judge"], fields["protocol"], fields["dimension"], fields["reading"]) == (
        "script",
        "overall",
        "overall",
        "hard",
    )
    assert len(fields["contrasts"]) == 6
    assert fields["win_matrix"]["models"] == [model["model"] for model in fields["models"]]
    assert fields["judges"] == [{key: value for key, value in fields.items() if key != "judges"}]
    for model in fields["models"]:
        assert model["low"] < model["strength"] < model["high"]
        assert model["clusters"] == INSTRUCTIONS


def test_the_table_names_models_and_cannot_be_steered_by_them(db: Path) -> None:
    done = evenhand("rank", "--db", db)
    assert done.returncode == 0, done.stderr
    for shown in ("ant", "bee", "[red]cat␛[31m", "<b>dog</b>", "cannot be told apart", "invalid: 1 pair without"):
        assert shown in done.stdout
    assert "\x1b[31m" not in done.stdout


def test_the_same_database_gives_the_same_bytes(db: Path) -> None:
    assert evenhand("rank", "--db", db, "--json").stdout == evenhand("rank", "--db", db, "--json").stdout


def test_probabilities_can_be_the_weights(db: Path, fields: dict[str, Any]) -> None:
    soft = json.loads(evenhand("rank", "--db", db, "--json", "--expected").stdout)
    assert soft["reading"] == "expected"
    assert soft["n"] == fields["n"]
    strengths = {model["model"]: model["strength"] for model in soft["models"]}
    assert strengths != {model["model"]: model["strength"] for model in fields["models"]}
    wins = sum(model["wins"] for model in soft["models"])
    ties = sum(model["ties"] for model in soft["models"]) / 2
    assert wins + ties == pytest.approx(fields["n"])


def test_elo_with_an_anchor(db: Path) -> None:
    elo = json.loads(evenhand("rank", "--db", db, "--json", "--scale", "elo", "--anchor", "bee").stdout)
    assert {m["model"]: m["strength"] for m in elo["models"]}["bee"] == pytest.approx(1000)
    assert "Elo" in evenhand("rank", "--db", db, "--scale", "elo").stdout


def test_pictures_are_written(db: Path, tmp_path: Path) -> None:
    ranking, matrix = tmp_path / "r.svg", tmp_path / "m.png"
    done = evenhand("rank", "--db", db, "--plot", ranking, "--plot-matrix", matrix)
    assert done.returncode == 0, done.stderr
    svg = ranking.read_text("utf-8")
    assert "&lt;b&gt;dog&lt;/b&gt;" in svg
    assert "<b>" not in svg
    assert matrix.read_bytes().startswith(b"\x89PNG")
    assert done.stdout.endswith(f"wrote {ranking}\nwrote {matrix}\n")
    json.loads(evenhand("rank", "--db", db, "--plot", ranking, "--json").stdout)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--dimension", "format"), "dimensions here: overall"),
        (("--anchor", "nobody"), "no model 'nobody'"),
        (("--scale", "golf"), "one of log-odds, elo"),
        (("--judge", "nobody"), "no verdicts of that kind"),
        (("--judge", "nobody"), "judges there: script/overall"),
        (("--protocol", "nothing"), "judges there: script/overall"),
        (("--plot", "x.pdf"), ".svg or .png"),
        (("--db", "nowhere.db"), "no database"),
    ],
)
def test_wrong_use_is_said_in_a_sentence(db: Path, words: tuple[str, ...], said: str) -> None:
    done = evenhand("rank", "--db", db, *words)
    assert done.returncode == 2
    assert said in done.stderr
    assert "Traceback" not in done.stderr


def test_two_judges_are_two_rankings_and_one_picture_needs_one(db: Path, tmp_path: Path) -> None:
    path = tmp_path / "two.db"
    for name in ("one", "two"):
        with Judge(ScriptedEngine(script, name=name), "overall", db=path) as judge:
            list(judge.judge(pairs()[:60]))
    found = json.loads(evenhand("rank", "--db", path, "--json").stdout)
    assert [entry["judge"] for entry in found["judges"]] == ["one", "two"]
    done = evenhand("rank", "--db", path, "--plot", tmp_path / "x.svg")
    assert (done.returncode, (tmp_path / "x.svg").exists()) == (2, False)
    assert "--judge" in done.stderr


# -- judgments to comparisons ---------------------------------------------------------------------------


def test_a_judge_that_said_nothing_keeps_no_other_from_being_ranked(db: Path, tmp_path: Path) -> None:
    path = tmp_path / "two.db"
    path.write_bytes(db.read_bytes())
    with Judge(ScriptedEngine(lambda _: "I cannot say.", name="mute"), "overall", db=path) as judge:
        list(judge.judge(pairs()[:6]))
    done = evenhand("rank", "--db", path)
    assert (done.returncode, "ant" in done.stdout) == (0, True)
    assert "mute under overall is not ranked: every verdict on overall is invalid" in done.stderr
    alone = evenhand("rank", "--db", path, "--judge", "mute")
    assert (alone.returncode, alone.stderr) == (2, "error: every verdict on overall is invalid\n")


def judged(one: str, two: str, label: str | None, instruction: str = "Hi", output: str = "x") -> Judgment:
    verdict = Verdict("overall", label) if label else invalid(["overall"], "unreadable")[0]  # type: ignore[arg-type]
    pair = Pair(instruction, output, "y", model_1=one, model_2=two)
    return Judgment.of(pair, {"forward": Conversation({"overall": verdict})})


def test_an_order_that_is_invalid_makes_no_half_win() -> None:
    forward = Verdict("overall", "A", {"A": 0.9, "B": 0.05, "tie": 0.05}, 1.0)
    broken = invalid(["overall"], "unreadable")[0]
    pair = Pair("Hi", "x", "y", model_1="a", model_2="b")
    half = Judgment(pair, {"overall": pool("overall", {"forward": forward, "swapped": broken})})
    for reading in ("hard", "expected"):
        matches = matches_of(blocks_of([half, judged("a", "b", "A", output="z")]), "overall", reading)
        assert (matches.ranking().n, matches.ranking().invalid) == (1, 1)


def test_pairs_of_one_instruction_are_one_cluster() -> None:
    some = [judged("a", "b", "A", f"Task {number % 3}", str(number)) for number in range(9)]
    found = matches_of(blocks_of(some), "overall").ranking()
    assert (found.n, found.instructions, found.repeats) == (9, 3, 0)


def test_exact_repeats_are_left_out_unless_they_are_wanted() -> None:
    some = [judged("a", "b", "A", f"Task {number % 3}") for number in range(9)]
    found = matches_of(blocks_of(some), "overall").ranking()
    assert (found.n, found.instructions, found.repeats) == (3, 3, 6)
    kept = matches_of(blocks_of(some), "overall", counting=Counting(keep_repeats=True)).ranking()
    assert (kept.n, kept.repeats) == (9, 0)


def test_each_instruction_weighs_the_same_in_a_ranking() -> None:
    """Two models: a wins 60 of 100 single pairs, and 33 more on one instruction change next to nothing."""
    singles = [judged("a", "b", "A" if number < 60 else "B", f"Task {number}") for number in range(100)]
    more = [judged("a", "b", "B", "Task 0", str(number)) for number in range(33)]
    blocks = list(blocks_of([*singles, *more]))
    found = {word: matches_of(blocks, "overall", counting=Counting(word)).ranking() for word in WEIGHTINGS}
    a = {word: next(m for m in each.models if m.model == "a") for word, each in found.items()}
    rate = (59 + 1 / 34) / 100
    assert a["instructions"].strength == pytest.approx(math.log(rate / (1 - rate)) / 2)
    assert a["pairs"].strength == pytest.approx(math.log(60 / 73) / 2)
    assert a["instructions"].wins == a["pairs"].wins == 60, "records count pairs"
    widths = {word: (each.high or 0) - (each.low or 0) for word, each in a.items()}
    assert widths["pairs"] > 1.5 * widths["instructions"]
    assert {word: each.weighting for word, each in found.items()} == {word: word for word in WEIGHTINGS}


def test_why_nothing_can_be_ranked() -> None:
    with pytest.raises(InputError, match="none of 2 pairs names two different models"):
        matches_of(blocks_of([judged("", "b", "A"), judged("a", "a", "A")]), "overall").ranking()
    with pytest.raises(InputError, match="every verdict on overall is invalid"):
        matches_of(blocks_of([judged("a", "b", None)]), "overall").ranking()
    with pytest.raises(InputError, match="no verdicts on format"):
        matches_of(blocks_of([judged("a", "b", "A")]), "format").ranking()


def test_facts_are_json_also_where_nothing_is_known() -> None:
    matches = matches_of(blocks_of([judged("a", "b", "A")]), "overall")
    fields = json.loads(json.dumps(plain(matches.ranking()), allow_nan=False))
    assert [model["strength"] for model in fields["models"]] == pytest.approx([math.log(3) / 2, -math.log(3) / 2])


def test_where_every_game_is_tied_nobody_is_singled_out(tmp_path: Path) -> None:
    path = tmp_path / "ties.db"
    with Judge(ScriptedEngine(lambda _: {"A": 0.01, "B": 0.01, "tie": 0.98}), "overall", db=path) as judge:
        list(judge.judge(pairs()))
    said = evenhand("rank", "--db", path).stdout
    assert "cannot tell which of 4 models is best: all 180 games are tied" in " ".join(said.split())
    assert "main model" not in said
    assert "cannot be told apart yet" not in said
    assert "evenhand arena" not in said
    assert {model["place"] for model in json.loads(evenhand("rank", "--db", path, "--json").stdout)["models"]} == {
        "beside"
    }


def test_what_two_models_won_against_each_other_adds_up_to_all() -> None:
    """92.5% and 7.5% are not both rounded to the even number."""
    games = [(one, two, n) for one, two in (("a", "b"), ("b", "c"), ("a", "c")) for n in range(40)]
    wins = {("a", "b"): 25, ("b", "c"): 23, ("a", "c"): 37}
    some = [judged(one, two, "A" if n < wins[one, two] else "B", f"Task {n}") for one, two, n in games]
    ranking = matches_of(blocks_of(some), "overall").ranking()
    assert ranking.win_matrix.models == ("a", "b", "c")
    assert ranking.win_matrix.percents == [[None, 63, 93], [37, None, 58], [7, 42, None]]
    shown = [line.split() for line in rendered(matrix_table(ranking)).splitlines()]
    assert ["1", "a", "63%", "93%"] in shown
    assert ["3", "c", "7%", "42%"] in shown
    texts = re.findall(r">(\d+)</text>", win_matrix_chart(ranking.win_matrix).svg())
    assert sorted(texts) == sorted(["93", "63", "7", "58", "37", "42"])


def test_a_strength_of_nothing_has_no_sign() -> None:
    some = [judged(one, two, "A", f"Task {n}") for one, two in (("a", "b"), ("b", "c")) for n in range(12)]
    found = matches_of(blocks_of(some), "overall").ranking()
    middle = replace(found.models[1], strength=-0.001, low=-0.004, high=0.004)
    ranking = replace(found, models=(found.models[0], middle, found.models[2]))
    answer = ranking_answer(ranking)
    shown = rendered(ranking_table(JudgeRanking("judge", "overall", "", ranking, answer)))
    assert "0.00 to 0.00" in shown
    assert "-0.00" not in shown


def rendered(table: Table) -> str:
    with console.out.capture() as shown:
        console.out.print(table)
    return shown.get()


def test_a_note_speaks_of_nothing_that_is_not_shown() -> None:
    some = [judged("a", "b", "A", f"Task {n}") for n in range(12)]
    assert not any("matrix" in warning for warning in matches_of(blocks_of(some), "overall").ranking().warnings)
