"""Exports: each form by its schema, read back by the programs that it is for."""

from __future__ import annotations

import csv
import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import datasets
import pandas
import polars
import pyarrow.parquet as pq
import pytest

from command import evenhand
from evenhand import Judge, Pair, Protocol, ScriptedEngine
from evenhand.core.engine import Answer
from evenhand.core.judge import Judgment
from evenhand.core.markup import put_together
from evenhand.core.pair import Side
from evenhand.core.protocol import Prompt, form_names
from evenhand.core.verdict import SIDE_OF, read_answer
from evenhand.store import HumanLabel, Store
from evenhand.views.export import (
    ANNOTATIONS,
    DPO,
    JUDGE,
    JUDGMENTS,
    KTO,
    LEADERBOARD,
    TEXTS,
    VERDICTS,
    annotation_rows,
    dpo_rows,
    has_no_word,
    judge_rows,
    judgment_rows,
    kto_rows,
    leaderboard_rows,
    verdict_rows,
)

PAIRS = [
    Pair("clear", "good", "bad", "p1", "new", "old", labels={"overall": "1"}, metadata={"dataset": "koala"}),
    Pair("narrow", "=good", "bad", "p2", "new", "old", labels={"overall": "2"}),
    Pair("even", "same", "alike", "p3", "new", "old"),
    Pair("lost", "bad", "good", "p4", "new", "old"),
    Pair("broken", "x", "y", "p5", "new", "old"),
]


def script(prompt: Prompt) -> str | Mapping[str, float]:
    text = prompt.turns[-1].text
    if "broken" in text:
        return "I cannot say."
    if "even" in text:
        return {"A": 0.2, "B": 0.2, "tie": 0.6}
    first = text.index("good") < text.index("bad")
    high = 0.5 if "narrow" in text else 0.9
    return {"A": high, "B": 0.95 - high, "tie": 0.05} if first else {"B": high, "A": 0.95 - high, "tie": 0.05}


@pytest.fixture(scope="module")
def db(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("export") / "evenhand.db"
    with Judge(ScriptedEngine(script), "overall", db=path) as judge:
        assert len(list(judge.judge(PAIRS))) == 5
    return path


@pytest.fixture(scope="module")
def judged(db: Path) -> list[Judgment]:
    with Store(db) as store:
        return list(store.judgments(store.judges()[0]))


def load(file: Path, tmp_path: Path) -> Any:
    """The way in which a trainer opens a file."""
    kind = {".jsonl": "json", ".json": "json", ".parquet": "parquet", ".csv": "csv"}[file.suffix]
    return datasets.load_dataset(kind, data_files=str(file), split="train", cache_dir=str(tmp_path / "cache"))


# -- tables ------------------------------------------------------------------------------------------------


def test_judgments_and_verdicts_say_what_the_store_says(db: Path, judged: list[Judgment]) -> None:
    with Store(db) as store:
        judge = store.judges()[0]
    rows = list(judgment_rows(judge, judged))
    assert [(row["pair"], row["verdict"], row["invalid"], row["label"]) for row in rows] == [
        ("p1", "1", None, "1"),
        ("p2", "1", None, "2"),
        ("p3", "tie", None, None),
        ("p4", "2", None, None),
        ("p5", None, "unreadable", None),
    ]
    assert set(rows[0]) == {*JUDGMENTS, *TEXTS}
    assert rows[0]["p_1"] == pytest.approx(judged[0]["overall"].p["1"])  # type: ignore[index]
    said = list(verdict_rows(judge, judged))
    assert [(row["order"], row["shown"], row["verdict"]) for row in said[:2]] == [
        ("forward", "A", "1"),
        ("swapped", "B", "1"),
    ]
    assert set(said[0]) == {*VERDICTS, *TEXTS}
    assert (len(said), said[0]["p_1"], said[1]["p_1"]) == (10, pytest.approx(0.9), pytest.approx(0.9))


@pytest.mark.parametrize("name", ["j.jsonl", "j.csv", "j.parquet", "j.json", "j.jsonl.gz"])
def test_judgments_come_back_with_polars(db: Path, tmp_path: Path, name: str) -> None:
    out = tmp_path / name
    fields = json.loads(evenhand("export", "judgments", "--db", db, "--out", out, "--texts", "--json").stdout)
    assert (fields["rows"], fields["columns"]) == (5, [*JUDGMENTS, *TEXTS])
    kind = name.split(".")[1]
    reader = {"jsonl": "read_ndjson", "csv": "read_csv", "parquet": "read_parquet", "json": "read_json"}[kind]
    frame = getattr(polars, reader)(out)
    assert frame.columns == [*JUDGMENTS, *TEXTS]
    assert frame["pair"].to_list() == ["p1", "p2", "p3", "p4", "p5"]
    assert [None if v is None else str(v) for v in frame["verdict"]] == ["1", "1", "tie", "2", None]
    assert frame["output_1"][1] == ("'=good" if kind == "csv" else "=good")
    assert frame["inconsistent"].to_list() == [False] * 5 or frame["inconsistent"].dtype == polars.String


def test_parquet_has_the_documented_types(db: Path, tmp_path: Path) -> None:
    evenhand("export", "verdicts", "--db", db, "--out", tmp_path / "v.parquet")
    schema = pq.read_schema(tmp_path / "v.parquet")
    assert schema.names == list(VERDICTS)
    assert [str(schema.field(name).type) for name in ("order", "p_1", "mass")] == ["string", "double", "double"]


# -- preferences -------------------------------------------------------------------------------------------


def test_dpo_leaves_out_ties_invalid_ones_and_small_margins(judged: list[Judgment]) -> None:
    rows = list(dpo_rows(judged, "overall"))
    assert [(row["prompt"], row["chosen"], row["rejected"]) for row in rows] == [
        ("clear", "good", "bad"),
        ("narrow", "=good", "bad"),
        ("lost", "good", "bad"),
    ]
    assert [row["chosen_model"] for row in rows] == ["new", "new", "old"]
    assert rows[1]["margin"] == pytest.approx(0.05)
    assert [row["prompt"] for row in dpo_rows(judged, "overall", margin=0.5)] == ["clear", "lost"]


def test_kto_rates_both_responses_and_ties_if_wanted(judged: list[Judgment]) -> None:
    rows = list(kto_rows(judged, "overall"))
    assert [(row["prompt"], row["completion"], row["label"]) for row in rows[:2]] == [
        ("clear", "good", True),
        ("clear", "bad", False),
    ]
    assert len(rows) == 6
    ties = [row for row in kto_rows(judged, "overall", keep_ties=True) if row["prompt"] == "even"]
    assert [(row["completion"], row["label"]) for row in ties] == [("same", True), ("alike", True)]


@pytest.mark.parametrize("name", ["d.jsonl", "d.parquet"])
@pytest.mark.parametrize("chat", [False, True], ids=["text", "chat"])
def test_preferences_come_back_with_datasets(db: Path, tmp_path: Path, name: str, chat: bool) -> None:
    extra = ["--chat"] if chat else []
    for form, columns in (("dpo", DPO), ("kto", KTO)):
        evenhand("export", form, "--db", db, "--out", tmp_path / name, *extra)
        found = load(tmp_path / name, tmp_path / form)
        assert found.column_names == list(columns)
        said = found[0]["prompt"]
        assert said == ([{"content": "clear", "role": "user"}] if chat else "clear")
        texts = [found[0][column] for column in ("chosen", "completion") if column in columns]
        assert texts == [[{"content": "good", "role": "assistant"}] if chat else "good"]
    assert str(found.features["label"].dtype) == "bool"


# -- a judge's own training --------------------------------------------------------------------------------


def test_people_speak_in_the_judges_place_and_a_chain_stands_on_them() -> None:
    labels = {"precision": "2", "correctness": "1", "format": "tie", "overall": "1"}
    chain = Protocol.load("chained")
    rows = list(judge_rows(chain, [(Pair("q", "x", "y", "p"), labels)]))  # type: ignore[list-item]
    assert [(row["order"], row["question"], row["completion"][0]["content"]) for row in rows] == [
        ("forward", 1, "B"),
        ("forward", 2, "A"),
        ("forward", 3, "tie"),
        ("forward", 4, "A"),
        ("swapped", 1, "A"),
        ("swapped", 2, "B"),
        ("swapped", 3, "tie"),
        ("swapped", 4, "B"),
    ]
    last = rows[3]["prompt"]
    assert [turn["content"] for turn in last[-6:] if turn["role"] == "assistant"] == ["B", "A", "tie"]
    assert last[-1]["role"] == "user"
    assert set(rows[0]) == set(JUDGE)


def test_the_conversation_is_the_one_that_a_judge_is_shown() -> None:
    """What an engine was really asked, with people's words for its answers, is what is written."""
    pair = Pair("q <|im_end|>", "x", "y")
    labels = {"precision": "1", "correctness": "1", "format": "1", "overall": "1"}
    asked: list[Prompt] = []

    def engine(prompt: Prompt) -> Answer:
        asked.append(prompt)
        return Answer("A")

    with Judge(ScriptedEngine(engine), "chained", orders="forward") as judge:
        judge.compare(pair)
    rows = list(judge_rows(Protocol.load("chained"), [(pair, labels)], ["forward"]))  # type: ignore[list-item]
    for row, prompt in zip(rows, asked, strict=True):
        assert [put_together(turn["content"]) for turn in row["prompt"]] == [turn.text for turn in prompt.turns]
        assert not any("<|im_end|>" in turn["content"] for turn in row["prompt"])


def test_a_pair_is_taken_as_far_as_its_labels_go() -> None:
    labels = {"precision": "1", "format": "1", "overall": "1"}
    rows = list(judge_rows(Protocol.load("chained"), [(Pair("q", "x", "y"), labels)], ["forward"]))  # type: ignore[list-item]
    assert [row["dimensions"] for row in rows] == ["precision"]
    assert not list(judge_rows(Protocol.load("four"), [(Pair("q", "x", "y"), {"overall": "1"})]))
    four = {"precision": "1", "correctness": "2", "format": "tie", "overall": "1"}
    rows = list(judge_rows(Protocol.load("four"), [(Pair("q", "x", "y"), four)]))  # type: ignore[list-item]
    assert [row["completion"][0]["content"] for row in rows] == ["A,B,tie,A", "B,A,tie,B"]


@pytest.mark.parametrize("name", form_names())
def test_people_answer_in_the_form_of_the_protocol(name: str) -> None:
    protocol = Protocol.load(name)
    [question] = protocol.questions
    for side in ("1", "2", "tie"):
        labels: dict[str, Side] = {"overall": side}
        rows = list(judge_rows(protocol, [(Pair("q", "x", "y"), labels)]))
        assert len(rows) == (0 if has_no_word(protocol, labels) else 2)
        for row in rows:
            [said] = read_answer(Answer(row["completion"][0]["content"]), question.dimensions, form=question.form)
            assert said.label is not None
            assert SIDE_OF[row["order"]][said.label] == side


def test_a_tie_that_the_form_cannot_say_is_left_out_and_said_so(tmp_path: Path) -> None:
    sides: tuple[Side, ...] = ("1", "tie", "2")
    pairs = [Pair(f"q{side}", "x", "y") for side in sides]
    with Judge(ScriptedEngine(lambda _: "A"), "overall", db=tmp_path / "e.db") as judge:
        list(judge.judge(pairs))
        named = zip(pairs, sides, strict=True)
        judge.store.labels.add([HumanLabel(pair.key, "overall", "ann", side) for pair, side in named])
    words = ("export", "judge", "--db", tmp_path / "e.db", "--out", tmp_path / "a.jsonl", "--protocol")
    told = evenhand(*words, "alpaca-eval").stderr
    assert "1 pair with a tie left out: answers under alpaca-eval have none" in told
    said = [
        json.loads(line)["completion"][0]["content"] for line in (tmp_path / "a.jsonl").read_text().splitlines()
    ]
    assert said == ["m", "M", "M", "m"]
    assert not evenhand(*words, "mt-bench").stderr


def test_training_data_of_a_judge_without_labels_says_what_is_missing(tmp_path: Path) -> None:
    with Judge(ScriptedEngine(lambda _: "A"), "overall", db=tmp_path / "e.db") as judge:
        judge.compare(Pair("q", "x", "y"))
    told = evenhand("export", "judge", "--db", tmp_path / "e.db", "--out", tmp_path / "a.jsonl").stderr
    assert "nobody has labelled a pair yet" in told


@pytest.mark.parametrize("name", ["s.jsonl", "s.parquet"])
def test_training_data_of_a_judge_comes_back_with_datasets(db: Path, tmp_path: Path, name: str) -> None:
    with Store(db) as store:
        store.labels.add([HumanLabel(PAIRS[3].key, "overall", "ann", "2")])
    fields = json.loads(evenhand("export", "judge", "--db", db, "--out", tmp_path / name, "--json").stdout)
    found = load(tmp_path / name, tmp_path)
    assert fields["rows"] == found.num_rows == 6
    rows = [(row["pair"], row["order"], row["completion"][0]["content"]) for row in found]
    assert ("p1", "forward", "A") in rows
    assert ("p4", "swapped", "A") in rows
    assert {turn["role"] for row in found for turn in row["prompt"]} <= {"system", "user", "assistant"}


# -- AlpacaEval --------------------------------------------------------------------------------------------


def test_annotations_have_the_reference_first(judged: list[Judgment]) -> None:
    rows = list(annotation_rows(judged, "overall", "me"))
    assert set(rows[0]) == set(ANNOTATIONS)
    assert (rows[0]["output_1"], rows[0]["generator_1"], rows[0]["output_2"]) == ("bad", "old", "good")
    assert rows[0]["dataset"] == "koala"
    assert rows[0]["preference"] > 1.8
    assert rows[4]["preference"] is None
    hard = [row["preference"] for row in annotation_rows(judged, "overall", "me", hard=True)]
    assert hard == [2.0, 2.0, 1.5, 1.0, None]


@pytest.mark.parametrize("hard", [False, True])
def test_the_leaderboard_is_what_the_annotations_come_to(db: Path, tmp_path: Path, hard: bool) -> None:
    extra = ["--hard"] if hard else []
    evenhand("export", "alpaca-eval", "--db", db, "--out", tmp_path / "annotations.json", *extra)
    evenhand("export", "leaderboard", "--db", db, "--out", tmp_path / "leaderboard.csv", *extra)
    frame = pandas.read_json(tmp_path / "annotations.json")
    scores = frame["preference"].dropna() - 1
    board = pandas.read_csv(tmp_path / "leaderboard.csv", index_col=0)
    assert list(board.columns) == [name for name in LEADERBOARD if name != "model"]
    row = board.loc["new"]
    assert row["win_rate"] == pytest.approx(100 * scores.mean())
    assert row["standard_error"] == pytest.approx(100 * scores.sem())
    assert (row["n_wins"], row["n_wins_base"], row["n_draws"], row["n_total"]) == (2, 1, 1, 4)
    assert row["discrete_win_rate"] == 62.5


def test_wins_are_counted_as_alpaca_eval_counts_them(judged: list[Judgment]) -> None:
    """By the preference: above 1.5 is a win, below it a loss, 1.5 itself a draw; lengths are of all outputs."""
    outcome = judged[0]["overall"]
    leaning = replace(outcome, side="tie", p={"1": 0.3, "2": 0.1, "tie": 0.6})
    even = replace(outcome, side="tie", p={"1": 0.25, "2": 0.25, "tie": 0.5})
    pair = judged[0].pair
    invalid = next(judgment for judgment in judged if judgment["overall"].side is None)["overall"]
    texts = ("xxx", "xxxx", "xxxx")
    judgments = [
        replace(judged[0], pair=replace(pair, output_1=text, id=text), outcomes={"overall": found})
        for text, found in zip(texts, (leaning, even, invalid), strict=True)
    ]
    row, other = leaderboard_rows(judgments, "overall")
    assert (other["n_wins"], other["n_wins_base"], other["n_draws"]) == (0, 1, 1), "the other side of the same"
    assert row["win_rate"] + other["win_rate"] == pytest.approx(100)
    assert (row["against"], other["against"]) == (f"{other['model']} (2)", f"{row['model']} (2)")
    assert (row["n_wins"], row["n_wins_base"], row["n_draws"], row["n_total"]) == (1, 0, 1, 2)
    assert row["discrete_win_rate"] == 75
    assert row["avg_length"] == 3, "the mean, 3.67, cut down to a whole number"
    assert leaderboard_rows(judgments[2:], "overall") == []


def test_the_leaderboard_of_one_pair_has_no_error(judged: list[Judgment]) -> None:
    rows = leaderboard_rows(judged[:1], "overall")
    assert [row["standard_error"] for row in rows] == [None, None]


def test_the_leaderboard_of_an_arena_has_every_model_and_whom_it_met(judged: list[Judgment]) -> None:
    """Whichever side a model stood on: the last of an arena may never stand first."""
    met = [("a", "b"), ("a", "c"), ("b", "c"), ("a", "c")]
    won = judged[0]
    arena = [
        replace(won, pair=replace(won.pair, id=str(number), model_1=one, model_2=two, candidate=""))
        for number, (one, two) in enumerate(met)
    ]
    rows = leaderboard_rows(arena, "overall", hard=True)
    assert [(row["model"], row["win_rate"], row["n_total"], row["against"]) for row in rows] == [
        ("a", 100.0, 3, "c (2); b (1)"),
        ("b", 50.0, 2, "a (1); c (1)"),
        ("c", 0.0, 3, "a (2); b (1)"),
    ]


# -- the command -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["nonsense", "--out", "a.jsonl"], "there is no form 'nonsense'"),
        (["dpo", "--out", "a.txt"], "cannot write a.txt"),
        (["dpo", "--out", "a.jsonl", "--judge", "other"], "holds no verdicts of that kind"),
        (["dpo", "--out", "a.jsonl", "-d", "format"], "the judge was not asked on 'format'"),
        (["dpo", "--out", "a.jsonl", "-d", "combined"], "the judge was not asked on 'combined'"),
        (["dpo", "--out", "nowhere/a.jsonl"], "there is no folder nowhere"),
        (["judgments", "--out", "a.jsonl", "--margin", "0.9"], "--margin is for dpo and kto"),
        (["verdicts", "--out", "a.jsonl", "-d", "nonsense"], "--dimension is for dpo, kto, alpaca-eval and leader"),
        (["judgments", "--out", "a.jsonl", "--hard"], "--hard is for alpaca-eval and leaderboard"),
        (["dpo", "--out", "a.jsonl", "--keep-ties"], "--keep-ties is for kto"),
        (["leaderboard", "--out", "a.jsonl", "--chat"], "--chat is for dpo and kto"),
        (["alpaca-eval", "--out", "a.jsonl", "--texts"], "--texts is for judgments and verdicts"),
        (["kto", "--out", "a.jsonl", "--rename", "a=b"], "--rename is for judge"),
        (["judge", "--out", "a.jsonl", "--judge", "script"], "--judge is for judgments, verdicts, dpo"),
    ],
)
def test_what_cannot_be_exported_is_refused(db: Path, words: list[str], said: str) -> None:
    assert said in evenhand("export", *words, "--db", db, code=2).stderr


@pytest.mark.parametrize(("name", "first"), [("a.CSV", b",win_rate"), ("a.csv.jsonl", b'{"model"')])
def test_the_end_of_a_name_says_what_a_leaderboard_is(db: Path, tmp_path: Path, name: str, first: bytes) -> None:
    evenhand("export", "leaderboard", "--db", db, "--out", tmp_path / name)
    written = (tmp_path / name).read_bytes()
    assert written.startswith(first)
    assert b'"":' not in written


def test_preferences_are_those_of_one_judge(tmp_path: Path) -> None:
    db = tmp_path / "two.db"
    for protocol in ("overall", "holistic"):
        with Judge(ScriptedEngine(script), protocol, db=db) as judge:
            list(judge.judge(PAIRS[:1]))
    out = tmp_path / "a.jsonl"
    said = evenhand("export", "dpo", "--db", db, "--out", out, code=2).stderr
    assert "several judges have judged these pairs" in said
    assert "--protocol holistic" in said
    evenhand("export", "dpo", "--db", db, "--out", out, "--protocol", "holistic")
    evenhand("export", "judgments", "--db", db, "--out", out)
    assert len(out.read_text().splitlines()) == 2


def test_a_hostile_name_is_text_in_a_csv(tmp_path: Path) -> None:
    db, out = tmp_path / "e.db", tmp_path / "a.csv"
    with Judge(ScriptedEngine(script), "overall", db=db) as judge:
        list(judge.judge([Pair("clear", "good", "bad", "@SUM(1)", '=HYPERLINK("x")', "\tnew")]))
    evenhand("export", "judgments", "--db", db, "--out", out)
    with out.open(newline="") as file:
        [row] = csv.DictReader(file)
    assert (row["pair"], row["model_1"], row["model_2"]) == ("'@SUM(1)", '\'=HYPERLINK("x")', "'\tnew")


def test_what_nobody_labels_does_not_keep_another_conversation_from_being_taken() -> None:
    labels = dict.fromkeys(("precision", "correctness", "format", "overall"), "1")
    weighed, chained = (
        list(judge_rows(Protocol.load(name), [(Pair("q", "x", "y"), labels)]))  # type: ignore[list-item]
        for name in ("weighed", "chained")
    )
    assert [row["prompt"] for row in weighed] == [row["prompt"] for row in chained]
    assert [row["question"] for row in weighed] == [2, 3, 4, 5] * 2
