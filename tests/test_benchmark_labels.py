"""Labels of people in the forms of PandaLM, LLMBar, AlpacaEval and MT-Bench, on either side of a pair."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from evenhand import Judge, Pair, ScriptedEngine
from evenhand.core.errors import PairError
from evenhand.results.people import import_labels
from evenhand.store import Store


def turns(*texts: str) -> list[dict[str, str]]:
    return [{"role": ("user", "assistant")[n % 2], "content": text} for n, text in enumerate(texts)]


MT_BENCH = {
    "question_id": 81,
    "model_a": "alpaca-13b",
    "model_b": "gpt-4",
    "winner": "model_b",
    "judge": "author_2",
    "conversation_a": turns("q", "x", "more", "x2"),
    "conversation_b": turns("q", "y", "more", "y2"),
    "turn": 1,
}
SECOND = ("[Turn 1]\nq\n\n[Turn 2]\nmore", "[Turn 1]\nx\n\n[Turn 2]\nx2", "[Turn 1]\ny\n\n[Turn 2]\ny2")
PANDALM = {
    "idx": 3,
    "instruction": "Add.",
    "input": "2, 2",
    "response1": "4",
    "response2": "5",
    "cmp_key": "a_b",
    "annotator1": 1,
    "annotator2": 1.0,
    "annotator3": 0,
}
ALPACA: dict[str, Any] = {"instruction": "q", "input": "", "output_1": "x", "output_2": "y", "generator": "m"}

# a benchmark's row, the pair that it speaks of, and who said what
ROWS: dict[str, tuple[dict[str, Any], tuple[str, str, str], dict[str, str | None]]] = {
    "PandaLM": (PANDALM, ("Add.\n\n2, 2", "4", "5"), {"annotator1": "1", "annotator2": "1", "annotator3": "tie"}),
    "LLMBar": ({"input": "q", "output_1": "x", "output_2": "y", "label": 2}, ("q", "x", "y"), {"file": "2"}),
    "AlpacaEval": ({**ALPACA, "preference": 1, "annotator_index": 15}, ("q", "x", "y"), {"annotator 15": "1"}),
    "AlpacaEval, named": ({**ALPACA, "preference": 1.5, "annotator": "gpt"}, ("q", "x", "y"), {"gpt": "tie"}),
    "AlpacaEval, old tie": ({**ALPACA, "preference": 0}, ("q", "x", "y"), {"file": "tie"}),
    "AlpacaEval, none": ({**ALPACA, "preference": None}, ("q", "x", "y"), {"file": None}),
    "MT-Bench": (MT_BENCH, ("q", "x", "y"), {"author_2": "2"}),
    "MT-Bench, tie": ({**MT_BENCH, "winner": "tie (inconsistent)"}, ("q", "x", "y"), {"author_2": "tie"}),
    "MT-Bench, second turn": ({**MT_BENCH, "turn": 2}, SECOND, {"author_2": "2"}),
}


@pytest.mark.parametrize(("row", "texts", "votes"), ROWS.values(), ids=ROWS.keys())
@pytest.mark.parametrize("exchanged", [False, True], ids=["as it stands", "sides exchanged"])
def test_a_benchmarks_labels_find_their_pair_on_either_side(
    tmp_path: Path, row: dict[str, Any], texts: tuple[str, str, str], votes: dict[str, str | None], exchanged: bool
) -> None:
    task, one, two = texts
    pair = Pair(task, two, one) if exchanged else Pair(task, one, two)
    file = tmp_path / "labels.jsonl"
    file.write_text(json.dumps(row) + "\n")
    with Judge(ScriptedEngine(lambda _: "A"), db=tmp_path / "e.db") as judge:
        judge.compare(pair)
    with Store(tmp_path / "e.db") as store:
        assert import_labels(store, file).labels == len(votes)
        found = {label.annotator: label.side for label in store.labels.of(pair.key)}
    other = {"1": "2", "2": "1"}
    assert found == ({who: other.get(str(s), s) for who, s in votes.items()} if exchanged else votes)


def test_labels_of_a_pair_that_is_not_there_yet_are_kept_as_they_stand(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text(json.dumps([PANDALM]))
    with Store(":memory:") as store:
        import_labels(store, tmp_path / "a.json")
        assert len(store.labels.of(Pair("Add.\n\n2, 2", "4", "5").key)) == 3


@pytest.mark.parametrize(
    ("row", "fault"),
    [
        ({**ALPACA, "preference": 3}, r"a\.jsonl:1: field 'preference' is 3, not from 1 to 2"),
        ({**MT_BENCH, "conversation_b": "text"}, r"a\.jsonl:1: field 'conversation_b' is not a list of turns"),
        (
            {**MT_BENCH, "conversation_b": turns("q")},
            "'conversation_b' has no text of the assistant",
        ),
        ({**MT_BENCH, "turn": 3}, r"a\.jsonl:1: field 'conversation_a' has 2 turns, not 3"),
        ({**MT_BENCH, "winner": "both"}, r"a\.jsonl:1: label 'both' is none of"),
    ],
)
def test_faults_have_their_place_and_nothing_is_kept(tmp_path: Path, row: dict[str, Any], fault: str) -> None:
    (tmp_path / "a.jsonl").write_text(json.dumps(row))
    with Store(":memory:") as store:
        with pytest.raises(PairError, match=fault):
            import_labels(store, tmp_path / "a.jsonl")
        assert not store.labels.any()
