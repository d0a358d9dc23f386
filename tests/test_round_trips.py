"""What evenhand writes, evenhand reads: every form of export through `judge`, `arena` and `labels import`."""

from __future__ import annotations

import csv
from collections.abc import Mapping
from pathlib import Path

import pytest

from command import evenhand
from evenhand import Judge, Pair, ScriptedEngine
from evenhand.core.pair import Side
from evenhand.core.protocol import Prompt
from evenhand.io.files.writing import OWN_COLUMNS
from evenhand.io.pairs import Arena, read_pairs
from evenhand.results.people import import_labels
from evenhand.running.generation import read_instructions
from evenhand.store import Store
from evenhand.views.export import ANNOTATIONS, DPO, KTO

LABELS: dict[str, Side] = {"overall": "1", "format": "tie"}
PAIRS = [
    Pair("clear", "good", "bad", "p1", "new", "old", labels=LABELS),
    Pair("lost", "bad", "good", "p2", "new", "old", labels={"correctness": "2"}),
    Pair("[System]\nBe brief.\n\n[User]\neven", "=same", "'alike'", "p3", "new", "old"),
]
KEYS = {pair.key for pair in PAIRS}
SIDES = {"p1": "1", "p2": "2", "p3": "tie"}
NOBODY = ("--judge", "http://127.0.0.1:9/v1#nobody")  # a dry run loads a model that runs here, to time it
FORMS = (".jsonl", ".json", ".csv", ".parquet", ".jsonl.gz")


def script(prompt: Prompt) -> Mapping[str, float]:
    text = prompt.turns[-1].text
    if "even" in text:
        return {"A": 0.1, "B": 0.1, "tie": 0.8}
    first = text.index("good") < text.index("bad")
    return {"A": 0.9, "B": 0.05, "tie": 0.05} if first else {"A": 0.05, "B": 0.9, "tie": 0.05}


def judged(path: Path, protocol: str) -> Path:
    with Judge(ScriptedEngine(script), protocol, db=path) as judge:
        list(judge.judge(PAIRS))
    return path


@pytest.fixture(scope="module")
def db(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One judge, asked on overall alone."""
    return judged(tmp_path_factory.mktemp("db") / "e.db", "overall")


@pytest.fixture
def many(tmp_path: Path) -> Path:
    """One judge, asked on four dimensions one after the other."""
    with Judge(ScriptedEngine(lambda _: "A"), "chained", db=tmp_path / "many.db") as judge:
        list(judge.judge(PAIRS))
    return tmp_path / "many.db"


def export(db: Path, form: str, out: Path, *more: str) -> Path:
    evenhand("export", form, "--db", db, "--out", out, *more)
    return out


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("kind", ["judgments", "verdicts"])
def test_verdicts_with_texts_are_the_pairs_again(db: Path, tmp_path: Path, kind: str, form: str) -> None:
    file = export(db, kind, tmp_path / f"a{form}", "--texts")
    found = list(read_pairs(file))
    assert [(pair.texts, pair.id, pair.model_1, pair.model_2) for pair in found] == [
        (pair.texts, pair.id, pair.model_1, pair.model_2) for pair in PAIRS
    ]
    assert evenhand("judge", file, "--dry-run", *NOBODY, "--db", tmp_path / "new.db").stdout.startswith("3 pairs")


def test_all_dimensions_of_a_pair_come_back_as_its_labels(many: Path, tmp_path: Path) -> None:
    file = export(many, "judgments", tmp_path / "a.jsonl", "--texts")
    assert len(file.read_text().splitlines()) > len(PAIRS)
    assert [dict(pair.labels) for pair in read_pairs(file)] == [dict(pair.labels) for pair in PAIRS]


@pytest.mark.parametrize("texts", [(), ("--texts",)], ids=["by key", "by texts"])
def test_verdicts_are_labels_in_the_judges_name(db: Path, tmp_path: Path, texts: tuple[str, ...]) -> None:
    file = export(db, "judgments", tmp_path / "a.jsonl", *texts)
    with Store(tmp_path / "new.db") as store:
        import_labels(store, file)
        found = {pair.id: {vote.annotator: vote.side for vote in store.labels.of(pair.key)} for pair in PAIRS}
    assert {name: votes["script"] for name, votes in found.items()} == SIDES
    assert found["p1"]["file"] == "1"  # the known label is beside the verdict, and hides none


def test_both_orders_are_kept_apart(db: Path, tmp_path: Path) -> None:
    file = export(db, "verdicts", tmp_path / "a.jsonl")
    with Store(tmp_path / "new.db") as store:
        import_labels(store, file)
        found = {vote.annotator: (vote.side, vote.order) for vote in store.labels.of(PAIRS[0].key)}
    assert found == {"script forward": ("1", "forward"), "script swapped": ("1", "swapped")}


def test_verdicts_without_texts_say_what_is_missing(db: Path, tmp_path: Path) -> None:
    file = export(db, "judgments", tmp_path / "a.jsonl")
    done = evenhand("judge", file, "--dry-run", *NOBODY, "--db", tmp_path / "new.db", code=2)
    assert "these are verdicts without texts" in done.stderr
    assert "--texts" in done.stderr


def test_verdicts_of_several_judges_are_refused(tmp_path: Path) -> None:
    db = judged(judged(tmp_path / "two.db", "overall"), "overall")
    with Judge(ScriptedEngine(script, name="other"), "overall", db=db) as judge:
        list(judge.judge(PAIRS))
    file = export(db, "judgments", tmp_path / "a.jsonl", "--texts")
    done = evenhand("judge", file, "--dry-run", *NOBODY, "--db", tmp_path / "new.db", code=2)
    assert "the verdicts of several judges" in done.stderr


@pytest.mark.parametrize("form", [".jsonl", ".json", ".parquet"])
@pytest.mark.parametrize("chat", [(), ("--chat",)], ids=["texts", "chat"])
def test_preferences_are_pairs_with_a_label(db: Path, tmp_path: Path, form: str, chat: tuple[str, ...]) -> None:
    file = export(db, "dpo", tmp_path / f"a{form}", *chat)
    found = {pair.id: pair for pair in read_pairs(file)}
    assert {name: pair.output_1 for name, pair in found.items()} == {"p1": "good", "p2": "good"}
    assert (found["p2"].model_1, found["p2"].model_2) == ("old", "new")
    with Store(db) as store:
        before = {pair.key: len(store.labels.of(pair.key)) for pair in PAIRS[:2]}
        import_labels(store, file, annotator=f"dpo {form} {chat}")
        sides = {
            pair.id: [v.side for v in store.labels.of(pair.key) if v.annotator == f"dpo {form} {chat}"]
            for pair in PAIRS[:2]
        }
        assert {key: len(store.labels.of(key)) - count for key, count in before.items()} == dict.fromkeys(before, 1)
    assert sides == {"p1": ["1"], "p2": ["2"]}  # on the pair as it was judged, whatever side was chosen


@pytest.mark.parametrize("chat", [(), ("--chat",)], ids=["texts", "chat"])
def test_rated_responses_are_outputs_for_an_arena(db: Path, tmp_path: Path, chat: tuple[str, ...]) -> None:
    file = export(db, "kto", tmp_path / "a.jsonl", "--keep-ties", *chat)
    met = {frozenset((pair.output_1, pair.output_2)) for pair in Arena([file])}
    assert met == {frozenset((pair.output_1, pair.output_2)) for pair in PAIRS}


@pytest.mark.parametrize("form", [".json", ".parquet"])
def test_annotations_of_alpaca_eval_come_back(db: Path, tmp_path: Path, form: str) -> None:
    file = export(db, "alpaca-eval", tmp_path / f"a{form}")
    found = list(read_pairs(file))
    assert [(p.instruction, p.output_2, p.output_1, p.model_2, p.model_1) for p in found] == [
        (p.instruction, p.output_1, p.output_2, p.model_1, p.model_2) for p in PAIRS
    ]
    with Store(db) as store:
        import_labels(store, file)
        votes = [v for pair in PAIRS for v in store.labels.of(pair.key) if v.annotator == "evenhand script overall"]
    assert [vote.side for vote in votes] == list(SIDES.values())


@pytest.fixture(scope="module")
def lists(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Texts and names that a spreadsheet would take for formulas, or that begin with an apostrophe."""
    path = tmp_path_factory.mktemp("db") / "lists.db"
    with Judge(
        ScriptedEngine(lambda _: {"A": 0.6, "B": 0.3, "tie": 0.1}), "overall", orders="forward", db=path
    ) as judge:
        list(judge.judge(LISTS))
    return path


LISTS = [Pair("=1+1?", "- good", "'bad'", "@p", "+new", "-old"), Pair("plain", "''", "\n\n", "q", "+new", "-old")]


def of_pair(pair: Pair) -> tuple[str, ...]:
    return (*pair.texts, pair.model_1, pair.model_2)


@pytest.mark.parametrize("form", [".csv", ".CSV", ".csv.gz"])
def test_a_csv_of_our_own_comes_back_without_the_apostrophes(lists: Path, tmp_path: Path, form: str) -> None:
    given = [of_pair(pair) for pair in LISTS]
    assert [of_pair(pair) for pair in read_pairs(export(lists, "dpo", tmp_path / f"dpo{form}"))] == given
    turned = read_pairs(export(lists, "alpaca-eval", tmp_path / f"alpaca{form}"))
    assert [of_pair(pair.turned()) for pair in turned] == given
    met = list(Arena([export(lists, "kto", tmp_path / f"kto{form}")]))  # an arena chooses the sides itself
    assert {of_pair(pair if pair.model_1 == "+new" else pair.turned()) for pair in met} == set(given)
    asked = read_instructions(tmp_path / f"dpo{form}")
    assert [question.instruction for question in asked] == [pair.instruction for pair in LISTS]


@pytest.mark.parametrize(
    "row",
    [
        {"prompt": "'q", "chosen": "'- good", "rejected": "'bad'"},
        {"prompt": "'q", "chosen": "'- good", "rejected": "'bad'", "chosen_model": "'m", "rejected_model": "n"},
        {
            "instruction": "'q",
            "output_1": "'- good",
            "generator_1": "m",
            "output_2": "'bad'",
            "generator_2": "n",
            "dataset": "",
            "annotator": "gpt-4",
            "preference": "1.0",
        },
    ],
)
def test_a_csv_of_others_keeps_its_apostrophes(tmp_path: Path, row: dict[str, str]) -> None:
    with (tmp_path / "a.csv").open("w", newline="") as file:
        writer = csv.DictWriter(file, list(row))
        writer.writeheader()
        writer.writerow(row)
    [pair] = read_pairs(tmp_path / "a.csv")
    assert pair.texts == ("'q", "'- good", "'bad'")


def test_columns_by_which_a_csv_is_known_are_those_that_are_written() -> None:
    forms = {"dpo": DPO, "kto": KTO, "alpaca-eval": ANNOTATIONS}
    assert {form: tuple(columns) for form, columns in forms.items()} == OWN_COLUMNS


@pytest.mark.parametrize(("form", "found"), [("leaderboard", "found model, win_rate"), ("judge", "not pairs")])
def test_what_holds_no_pairs_is_refused_with_what_was_found(
    db: Path, tmp_path: Path, form: str, found: str
) -> None:
    file = export(db, form, tmp_path / "a.jsonl")
    done = evenhand("judge", file, "--dry-run", *NOBODY, "--db", tmp_path / "new.db", code=2)
    assert found in done.stderr
    evenhand("labels", "import", file, "--db", tmp_path / "new.db", code=2)
