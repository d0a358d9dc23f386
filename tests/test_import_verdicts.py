"""Verdicts made elsewhere, imported as those of a judge of its own. The rows are our own, in the tools' schemas."""

from __future__ import annotations

import gzip
import json
import random
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from evenhand.core.errors import InputError, PairError
from evenhand.core.protocol import ORDERS
from evenhand.io.pairs.verdicts import NO_TEXT, ReadOptions, read_verdicts
from evenhand.running.importing import VerdictImport, import_verdicts
from evenhand.store import Store
from evenhand.views.cli.app import load_all
from evenhand.views.export.alpaca import annotation_rows, leaderboard_rows
from web_server import WebServer

DATA = Path(__file__).resolve().parents[2] / "shared" / "data"
ALPACA = [
    {
        "dataset": "own",
        "instruction": f"Question {number}",
        "output_1": f"The baseline says {number}.",
        "generator_1": "base",
        "output_2": f"The model says {number}, at length.",
        "generator_2": "new",
        "annotator": "weighted_judge",
        "preference": preference,
    }
    for number, preference in enumerate((1.7, 1.2, 1.5, 2.0, 1.9, None))
]
FASTCHAT = [
    {
        "question_id": number,
        "model_1": "alpha",
        "model_2": "beta",
        "g1_winner": first,
        "g2_winner": second,
        "judge": ["gpt-x", "pair-v2"],
        "g1_user_prompt": "...",
        "g1_judgment": "So I say [[A]]",
        "g2_user_prompt": "...",
        "g2_judgment": "So I say [[B]]",
        "turn": 1,
        "tstamp": 1.0,
    }
    for number, (first, second) in enumerate(
        [("model_1", "model_1"), ("model_1", "model_2"), ("tie", "tie"), ("error", "model_2")], 81
    )
]


def written(folder: Path, rows: Iterable[Mapping[str, Any]], name: str = "rows.jsonl") -> Path:
    path = folder / name
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


def sides(store: Store, judge: int = 0) -> list[str | None]:
    return [judgment["overall"].side for judgment in store.judgments(store.judges()[judge])]


def imported(store: Store, folder: Path, rows: Iterable[Mapping[str, Any]], **options: Any) -> VerdictImport:
    return import_verdicts(store, written(folder, rows), ReadOptions(**options))


def test_alpaca_evals_preferences_are_probabilities_and_its_leaderboard_is_the_same(tmp_path: Path) -> None:
    with Store(":memory:") as store:
        done = imported(store, tmp_path, ALPACA)
        [judge] = store.judges()
        judgments = list(store.judgments(judge))
        [row] = [each for each in leaderboard_rows(judgments, "overall") if each["model"] == "new"]
        again = list(annotation_rows(judgments, "overall", "weighted_judge"))
    values = [0.7, 0.2, 0.5, 1.0, 0.9]  # one has no preference
    mean = sum(values) / 5
    error = (sum((x - mean) ** 2 for x in values) / 4 / 5) ** 0.5
    assert (row["model"], row["n_wins"], row["n_wins_base"], row["n_draws"]) == ("new", 3, 1, 1)
    assert row["win_rate"] == pytest.approx(100 * mean, abs=1e-6)
    assert row["standard_error"] == pytest.approx(100 * error, abs=1e-6)
    assert done.judges[0].invalid == 1
    for one, two in zip(ALPACA, again, strict=True):
        assert two["preference"] == pytest.approx(one["preference"], abs=1e-8)
        assert {name: two[name] for name in one if name != "preference"} == {
            name: value for name, value in one.items() if name != "preference"
        }


def test_an_annotation_is_the_word_of_a_judge_and_no_label_of_people(tmp_path: Path) -> None:
    with Store(":memory:") as store:
        imported(store, tmp_path, ALPACA)
        assert not list(store.voted())


def test_the_judge_says_that_it_was_imported_and_from_where(tmp_path: Path) -> None:
    with Store(":memory:") as store:
        imported(store, tmp_path, ALPACA)
        [judge] = store.judges()
        usage, _ = store.usage(judge)
    assert judge.identity["engine"] == "imported"
    assert judge.identity["file"].endswith("rows.jsonl")
    assert len(judge.identity["sha256"]) == 64
    assert (judge.model, judge.protocol) == ("weighted_judge", "imported")
    assert (usage.computed, usage.reused, usage.generated) == (0, 0, 0)


def test_importing_twice_changes_nothing_not_even_when_texts_have_turned_up(tmp_path: Path) -> None:
    rows = [{"id": "p1", "model_1": "alpha", "model_2": "beta", "verdict": "1"}]
    texts = {"instruction": "Hi", "output_1": "x", "output_2": "y"}
    pairs = written(tmp_path, [{**rows[0], **texts}], "pairs.jsonl")
    with Store(tmp_path / "e.db") as store:
        first = imported(store, tmp_path, rows)
        before = list(store._db.iterdump())
        second = imported(store, tmp_path, rows)
        assert list(store._db.iterdump()) == before
        import_verdicts(store, tmp_path / "rows.jsonl", pairs=pairs)
        assert sides(store) == ["1"]
    assert (first.judges[0].new, second.judges[0].new, second.judges[0].pairs) == (1, 0, 1)
    assert first.without_texts == second.without_texts == 1


def test_fastchats_games_are_the_two_orders(tmp_path: Path) -> None:
    with Store(":memory:") as store:
        done = imported(store, tmp_path, FASTCHAT)
        judgments = list(store.judgments(store.judges()[0]))
        said = [
            (judgment["overall"].side_in("forward"), judgment["overall"].side_in("swapped"))
            for judgment in judgments
        ]
        assert said == [("1", "1"), ("1", "2"), ("tie", "tie"), (None, "2")]
        assert [judgment["overall"].side for judgment in judgments] == ["1", "tie", "tie", None]
        # In the second game of the first row, beta stood first, and the judge chose what stood second.
        assert judgments[0]["overall"].orders["swapped"].label == "B"
        assert judgments[0].pair.metadata == {"turn": 1, "prompt": "pair-v2"}
        answers = store.archive.said(store.judges()[0].id, 1)
    assert answers["forward"] == ("So I say [[A]]",), "what the judge wrote is kept"
    assert (done.judges[0].author.judge, done.without_texts) == ("gpt-x", 4)


def test_fastchats_scores_are_compared_question_by_question(tmp_path: Path) -> None:
    scores = {"alpha": (8, 5, -1), "beta": (7, 5, 6), "gamma": (9, 9, 9)}
    rows = [
        {
            "question_id": number,
            "model": model,
            "score": score,
            "judge": ["gpt-x", "single-v1"],
            "user_prompt": "...",
            "judgment": f"[[{score}]]",
            "turn": 1,
            "tstamp": 1.0,
        }
        for model, each in scores.items()
        for number, score in enumerate(each)
    ]
    with Store(":memory:") as store:
        imported(store, tmp_path, rows)
        found = {
            (judgment.pair.model_1, judgment.pair.model_2, str(judgment.pair.id)[0]): judgment["overall"].side
            for judgment in store.judgments(store.judges()[0])
        }
    assert len(found) == 9
    assert [found["alpha", "beta", str(number)] for number in range(3)] == ["1", "tie", None]
    with Store(":memory:") as store:
        imported(store, tmp_path, rows, baseline="beta")
        assert {pair[:2] for pair in store.matches(store.judges()[0])} == {("beta", "alpha"), ("beta", "gamma")}
    with Store(":memory:") as store, pytest.raises(InputError, match="no scores of delta"):
        imported(store, tmp_path, rows, baseline="delta")
    with Store(":memory:") as store, pytest.raises(InputError, match="one model alone"):
        imported(store, tmp_path, rows[:3])


def test_arena_hards_baseline_stands_first_in_the_first_game(tmp_path: Path) -> None:
    games = [("B>>A", "A>B"), ("A>B", "A>B"), ("A=B", "B=A"), (None, "A<<B")]
    rows = [
        {
            "question_id": f"q{number}",
            "model": "new",
            "judge": "gpt-x",
            "games": [{"user_prompt": "...", "judgment": "...", "score": score} for score in each],
        }
        for number, each in enumerate(games)
    ]
    with Store(":memory:") as store:
        imported(store, tmp_path, rows, baseline="old")
        judgments = list(store.judgments(store.judges()[0]))
    assert [judgment["overall"].side for judgment in judgments] == ["2", "tie", "tie", None]
    assert judgments[0].pair.model_2 == "new"
    assert judgments[0].pair.candidate == "2"
    assert judgments[1]["overall"].side_in("forward") == "1", "the baseline stood first and won"
    assert judgments[1]["overall"].side_in("swapped") == "2", "the model stood first and won"
    rows[0]["games"][0]["score"] = "A wins"  # type: ignore[index]
    with Store(":memory:") as store, pytest.raises(PairError, match=r"rows.jsonl:1: a game's score is 'A wins'"):
        imported(store, tmp_path, rows)


def judge_bench(decisions: Iterable[tuple[str | None, str | None]]) -> list[dict[str, Any]]:
    return [
        {
            "pair_id": f"id-{number}",
            "source": "own",
            "question": f"Question {number}",
            "response_model": "m",
            "response_A": f"one {number}",
            "response_B": f"two {number}",
            "label": "A>B",
            "judge_name": "arena_hard",
            "judgments": [
                {"judgment": {"judge_model": "gpt-x", "prompt": "", "response": "[[A>B]]"}, "decision": decision}
                if decision
                else None
                for decision in each
            ],
        }
        for number, each in enumerate(decisions)
    ]


def test_judge_benchs_second_decision_is_as_it_was_shown(tmp_path: Path) -> None:
    rows = judge_bench([("A>B", "B>A"), ("A>B", "A>B"), ("A=B", "A>B"), ("A>B", None)])
    with Store(":memory:") as store:
        imported(store, tmp_path, rows)
        [judge] = store.judges()
        judgments = list(store.judgments(judge))
    said = [(each["overall"].side_in("forward"), each["overall"].side_in("swapped")) for each in judgments]
    assert said == [("1", "1"), ("1", "2"), ("tie", "2"), ("1", None)]
    assert {each.pair.labels["overall"] for each in judgments} == {"1"}
    assert (judge.model, judge.protocol) == ("gpt-x", "arena_hard")


PLAIN: list[tuple[dict[str, Any], str | None]] = [
    ({"id": "a", "model_1": "x", "model_2": "y", "verdict": "A"}, "1"),
    ({"model_a": "x", "model_b": "y", "winner": "model_b"}, "2"),
    ({"model_a": "x", "model_b": "y", "winner": "tie (bothbad)"}, "tie"),
    ({"model_1": "x", "model_2": "y", "winner": "y"}, "2"),
    ({"model_1": "x", "model_2": "y", "verdict": None}, None),
    ({"model_1": "x", "model_2": "y", "verdict": "B", "p": "0.2"}, "2"),
    ({"model_1": "x", "model_2": "y", "p_1": 0.2, "p_2": 0.2, "p_tie": 0.6}, "tie"),
    ({"instruction": "Hi", "output_1": "x", "output_2": "y", "verdict": 2}, "2"),
    (
        {"prompt": "Hi", "response_a": "x", "response_b": "y", "model_a": "x", "model_b": "y", "winner": "model_a"},
        "1",
    ),
    ({"model_1": "x", "model_2": "y", "forward": "1", "swapped": "1"}, "1"),
    ({"model_1": "x", "model_2": "y", "verdict": "B", "order": "swapped"}, "2"),
]


@pytest.mark.parametrize(("row", "side"), PLAIN)
def test_rows_of_your_own(tmp_path: Path, row: dict[str, Any], side: str | None) -> None:
    with Store(":memory:") as store:
        imported(store, tmp_path, [row])
        assert sides(store) == [side]
        [judgment] = store.judgments(store.judges()[0])
    assert judgment.pair.instruction.startswith(NO_TEXT) == (not {"instruction", "prompt"} & row.keys())


@pytest.mark.parametrize(
    ("row", "fault"),
    [
        (
            {"model_1": "x", "model_2": "y", "verdict": "A", "p": 0.2},
            "'verdict' is for 1, the probabilities are for 2",
        ),
        ({"model_1": "x", "model_2": "y", "p": 1.2}, "not from 0 to 1"),
        ({"model_1": "x", "model_2": "y", "verdict": "good"}, "label 'good' is none of"),
        ({"instruction": "Hi", "output_1": "x", "output_2": "y"}, "without the verdict of a judge"),
        ({"colour": "red"}, "no field 'verdict'"),
        (
            {"model_1": "x", "model_2": "y", "verdict": "A", "order": "backward"},
            "field 'order' is 'backward', neither forward nor swapped",
        ),
        ({"instruction": "Hi", "output_1": "x", "output_2": "y", "preference": 3}, "not from 1 to 2"),
    ],
)
def test_what_is_no_verdict_is_refused_with_its_place(tmp_path: Path, row: dict[str, Any], fault: str) -> None:
    path = written(tmp_path, [row])
    with pytest.raises(PairError, match=r"rows\.jsonl:1: ") as raised:
        list(read_verdicts(path))
    assert fault in raised.value.message


@pytest.mark.parametrize("score", [0.7, "high", None, [1]])
def test_a_row_of_your_own_may_hold_a_score_besides(tmp_path: Path, score: Any) -> None:
    row = {"id": "7", "instruction": "q", "output_1": "x", "output_2": "y", "verdict": "2", "score": score}
    with Store(":memory:") as store:
        imported(store, tmp_path, [row])
        assert sides(store) == ["2"]


def test_stand_ins_are_equally_long_and_a_cluster_is_a_question(tmp_path: Path) -> None:
    rows = [
        {"model_1": "a", "model_2": "a much longer name", "verdict": "A"},
        {"model_1": "a", "model_2": "b", "verdict": "A"},
    ]
    path = written(tmp_path, rows)
    pairs = [found.pair for found in read_verdicts(path)]
    assert len({len(text) for pair in pairs for text in (pair.output_1, pair.output_2)}) == 1
    assert len({pair.instruction for pair in pairs}) == 2, "rows without an id are questions of their own"
    of_fastchat = [found.pair for found in read_verdicts(written(tmp_path, FASTCHAT + FASTCHAT[:1]))]
    assert len({pair.instruction for pair in of_fastchat}) == 4


def test_an_id_finds_its_pair_also_with_the_models_the_other_way_round(tmp_path: Path) -> None:
    pair = {"id": "p", "instruction": "Hi", "output_1": "x", "output_2": "y", "model_1": "m", "model_2": "n"}
    pairs = written(tmp_path, [pair], "pairs.jsonl")
    path = written(tmp_path, [{"id": "p", "model_1": "n", "model_2": "m", "verdict": "1", "p": 0.9}])
    with Store(":memory:") as store:
        import_verdicts(store, path, pairs=pairs)
        [judgment] = store.judgments(store.judges()[0])
    assert judgment.pair.output_1 == "x"
    assert judgment["overall"].side == "2", "n, the row's first model, is side 2 here"
    assert judgment["overall"].p is not None
    assert judgment["overall"].p["2"] == pytest.approx(0.9)


def test_an_id_that_leads_nowhere_is_refused_and_no_judge_is_entered(tmp_path: Path) -> None:
    with Store(":memory:") as store:
        with pytest.raises(InputError, match="no pair here has the id 'p'"):
            imported(store, tmp_path, [{"id": "p", "verdict": "1"}])
        assert store.judges() == []


def test_one_broken_row_keeps_all_out_unless_it_may_be_skipped(tmp_path: Path) -> None:
    rows = [*ALPACA[:2], {**ALPACA[2], "preference": 7}]
    with Store(":memory:") as store:
        with pytest.raises(PairError, match=r"rows\.jsonl:3"):
            imported(store, tmp_path, rows)
        assert store.judges() == []
        done = imported(store, tmp_path, rows, skip_bad=True)
        assert len(sides(store)) == 2
    assert len(done.bad) == 1


def test_a_pair_that_stands_twice_is_counted_and_said(tmp_path: Path) -> None:
    with Store(":memory:") as store:
        done = imported(store, tmp_path, [*ALPACA, {**ALPACA[0], "preference": 1.0}])
        assert done.repeated == 1
        assert sides(store)[0] == "2", "the first verdict counts"


@pytest.mark.parametrize("word", ["swapped", "Swapped", " SWAPPED "])
def test_an_order_is_known_however_it_is_spelt(tmp_path: Path, word: str) -> None:
    row = {"model_1": "x", "model_2": "y", "verdict": "A"}
    rows = [{**row, "order": word}, {**row, "order": "Forward"}, {**row, "order": ""}, row]
    orders = [list(found.orders) for found in read_verdicts(written(tmp_path, rows))]
    assert orders == [["swapped"], ["forward"], ["forward"], ["forward"]]


def test_pairs_are_counted_once_where_each_order_has_a_row(tmp_path: Path) -> None:
    texts = {"output_1": "x", "output_2": "y"}
    rows = [{**texts, "instruction": name, "verdict": "error", "order": order} for name in "ab" for order in ORDERS]
    with Store(":memory:") as store:
        [judge] = imported(store, tmp_path, rows).judges
        again = imported(store, tmp_path, rows).judges[0]
    assert (judge.pairs, judge.new, judge.invalid, sorted(judge.orders)) == (2, 4, 2, ["forward", "swapped"])
    assert (again.pairs, again.new) == (2, 0)


def test_every_command_that_counts_works_on_an_imported_judge(tmp_path: Path) -> None:
    db = str(tmp_path / "e.db")
    given = [row for row in ALPACA if row["preference"]]
    rows = [{**row, "instruction": f"{row['instruction']} of {group}"} for row in given for group in range(20)]
    path = written(tmp_path, rows, "annotations.jsonl")
    app, run = load_all(), CliRunner()
    said = run.invoke(app, ["import", "verdicts", str(path), "--db", db])
    assert "weighted_judge · imported: 100 pairs on overall, one order, 100 new verdicts" in said.output
    for words in (
        *(["results"], ["rank"], ["card"], ["judges"], ["gate"]),
        ["report", "--out", str(tmp_path / "r.html")],
    ):
        found = run.invoke(app, [*words, "--db", db])
        assert found.exception is None or isinstance(found.exception, SystemExit), (words, found.exception)
        assert found.exit_code == 0, (words, found.output)
    result = json.loads(run.invoke(app, ["results", "--db", db, "--json"]).stdout)
    overall = result["dimensions"]["overall"]
    assert (overall["wins_1"], overall["wins_2"], overall["ties"]) == (20, 60, 20)
    assert overall["position_bias"] is None, "one order says nothing of places"
    assert 1 - overall["expected"]["win_rate_1"] == pytest.approx(0.66)
    again = run.invoke(app, ["reread", "--db", db, "--json"])
    assert json.loads(again.stdout) == {"verdicts": 0, "changed": 0}
    assert (
        json.loads(run.invoke(app, ["results", "--db", db, "--json"]).stdout)["dimensions"] == result["dimensions"]
    )


def test_nobody_is_told_to_ask_an_imported_judge_for_more_games(tmp_path: Path) -> None:
    """Two models that cannot be told apart take more verdicts, which no command of ours can make."""
    db, page = str(tmp_path / "e.db"), tmp_path / "r.html"
    meetings = [("a", "b"), ("b", "c"), ("a", "c")]
    rows = [
        {"question_id": f"{n}", "model_1": one, "model_2": two, "verdict": "112"[(n + k) % 3]}
        for n in range(12)
        for k, (one, two) in enumerate(meetings)
    ]
    app, run = load_all(), CliRunner()
    for words in (["import", "verdicts", str(written(tmp_path, rows))], ["report", "--out", str(page)]):
        found = run.invoke(app, [*words, "--db", db])
        assert found.exit_code == 0, found.output
    for shown in (run.invoke(app, ["rank", "--db", db]).output, page.read_text("utf-8")):
        assert "evenhand arena" not in shown
        assert "import those on more instructions, too." in shown


def test_the_page_of_a_pair_shows_the_verdict_and_no_question_that_was_never_asked(tmp_path: Path) -> None:
    db = tmp_path / "e.db"
    with Store(db) as store:
        imported(store, tmp_path, ALPACA)
    with WebServer(db) as server:
        answer = server.owner().get("/pair/1")
    assert answer.status == 200
    assert "weighted_judge" in answer.text
    assert "Which is best: A, B, or tie?" not in answer.text


def test_who_wants_to_judge_a_file_of_verdicts_is_told_the_command(tmp_path: Path) -> None:
    found = CliRunner().invoke(load_all(), ["judge", str(written(tmp_path, FASTCHAT)), "--dry-run"])
    assert isinstance(found.exception, InputError)
    assert "FastChat pairwise judgments" in found.exception.message
    assert found.exception.hint == "evenhand import verdicts FILE"


@pytest.mark.shared
@pytest.mark.skipif(not DATA.is_dir(), reason="no shared data folder beside the checkout")
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
def test_llmbars_published_verdicts_come_to_its_published_accuracies(
    tmp_path: Path, judge: str, strategy: str, accuracy: float, same: float
) -> None:
    """Zeng et al. (2024): mean accuracy over the two orders on natural pairs, and how often both say the same."""
    lines = gzip.decompress((DATA / "llmbar_published_judgments.jsonl.gz").read_bytes()).decode().splitlines()
    rows = [row for row in map(json.loads, lines) if (row["judge"], row["strategy"]) == (judge, strategy)]
    columns = {
        "protocol": "strategy",
        "forward": "verdict_order_1",
        "swapped": "verdict_order_2_mapped_back",
    }
    with Store(":memory:") as store:
        options = ReadOptions(columns=columns)
        import_verdicts(store, written(tmp_path, rows), options, pairs=DATA / "llmbar.jsonl")
        [row] = store.judges()
        judgments = [each for each in store.judgments(row) if "Natural" in each.pair.id]
    assert (row.model, row.protocol, len(judgments)) == (judge, strategy, 100)
    said = [(each["overall"].side_in("forward"), each["overall"].side_in("swapped")) for each in judgments]
    labels = [each.pair.labels["overall"] for each in judgments]
    right = sum((one == label) + (two == label) for (one, two), label in zip(said, labels, strict=True))
    assert right / 2 == accuracy
    assert sum(one == two for one, two in said) == same


@pytest.mark.shared
@pytest.mark.skipif(not DATA.is_dir(), reason="no shared data folder beside the checkout")
@pytest.mark.parametrize(("judge", "share"), [("gpt-3.5-turbo", 0.698), ("pandalm-7b", 0.668)])
def test_pandalms_published_judges_come_to_their_published_shares(tmp_path: Path, judge: str, share: float) -> None:
    """Wang et al. (2024), "PandaLM": three-way agreement with the majority; what could not be read is wrong."""
    db = tmp_path / "e.db"
    with Store(db) as store:
        options = ReadOptions(judge=judge, columns={"verdict": judge})
        import_verdicts(store, DATA / "pandalm_published_judges.jsonl", options, pairs=DATA / "pandalm.jsonl")
    done = CliRunner().invoke(load_all(), ["results", "--db", str(db), "--json"])
    found = json.loads(done.stdout)["dimensions"]["overall"]
    assert found["n"] + found["invalid"] == 999
    assert round(found["agreement"]["three_way"] * found["agreement"]["n"] / 999, 3) == share


def naive_leaderboard(rows: Iterable[Mapping[str, Any]]) -> tuple[float, float]:
    """AlpacaEval's: the mean of preferences less one, and the standard error of that mean, both in percent."""
    values = [row["preference"] - 1 for row in rows if row["preference"] is not None]
    mean = sum(values) / len(values)
    spread = sum((value - mean) ** 2 for value in values) / (len(values) - 1)
    return 100 * mean, 100 * (spread / len(values)) ** 0.5


@pytest.mark.parametrize("seed", range(3))
def test_alpaca_evals_win_rates_and_standard_errors_are_those_of_its_formula(tmp_path: Path, seed: int) -> None:
    rng = random.Random(seed)
    rows = [
        {
            **{key: value for key, value in ALPACA[0].items() if not key.startswith("output")},
            "instruction": f"Question {number}",
            "output_1": f"The baseline says {number}.",
            "output_2": f"{model} says {number}.",
            "generator_2": model,
            "preference": rng.choice((1.0, 1.5, 2.0, None, 1 + rng.random(), 1 + rng.random(), 1 + rng.random())),
        }
        for model in ("new", "newer")
        for number in range(60)
    ]
    db, out = tmp_path / "e.db", tmp_path / "board.json"
    with Store(db) as store:
        imported(store, tmp_path, rows)
    CliRunner().invoke(load_all(), ["export", "leaderboard", "--db", str(db), "--out", str(out)])
    board = {row["model"]: row for row in json.loads(out.read_text())}
    assert set(board) == {"base", "new", "newer"}
    for model, row in board.items():
        if model == "base":  # AlpacaEval has no row for it
            continue
        rate, error = naive_leaderboard(each for each in rows if each["generator_2"] == model)
        assert row["win_rate"] == pytest.approx(rate, abs=1e-6)
        assert row["standard_error"] == pytest.approx(error, abs=1e-6)


def test_judge_benchs_accuracy_is_that_of_its_own_rule(tmp_path: Path) -> None:
    """A pair is right where both orders together speak for the label: +1 for it, -1 against it, 0 for a tie."""
    said = ["A>B", "B>A", "A=B", None]
    decisions = [(one, two) for one in said for two in said]
    counted = [
        sum(
            {"A>B": sign, "B>A": -sign}.get(decision or "", 0) for decision, sign in zip(pair, (1, -1), strict=True)
        )
        for pair in decisions
    ]
    with Store(":memory:") as store:
        imported(store, tmp_path, judge_bench(decisions))
        judgments = list(store.judgments(store.judges()[0]))
    worth = {"1": 1, "2": -1}  # every label is for side 1
    ours = [
        sum(worth.get(each["overall"].side_in(order) or "", 0) for order in ("forward", "swapped"))
        for each in judgments
    ]
    assert ours == counted
    assert sum(score > 0 for score in ours) / len(ours) == 5 / 16
