"""Rows of our own with exactly the fields and types that other tools' files have, as read in those tools and files.

AlpacaEval (commit cd543a1), FastChat's llm_judge, Arena-Hard (196f6b8), PandaLM and LLMBar were looked at on
2026-11-16; only names and types of fields are taken from there.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from evenhand.core.errors import PairError
from evenhand.io.pairs import Arena, JoinOptions, join_outputs
from evenhand.io.pairs.recognition import Recogniser
from evenhand.results.people import import_labels
from evenhand.store import Store

Row = dict[str, Any]
TASKS = ("Name a prime number.", "Say hello in French.")
SAID = {"new": ("7", "Bonjour"), "old": ("8", "Hola")}


def put(path: Path, rows: list[Row]) -> Path:
    text = json.dumps(rows, indent=2) if path.suffix == ".json" else "".join(json.dumps(row) + "\n" for row in rows)
    path.write_text(text)
    return path


def alpaca_eval(name: str, **more: Any) -> list[Row]:
    return [
        {"dataset": "ours", "instruction": task, "output": said, "generator": name, **more}
        for task, said in zip(TASKS, SAID[name], strict=True)
    ]


def fastchat(name: str) -> list[Row]:
    return [
        {
            "question_id": 81 + number,
            "answer_id": f"a{number}{name}",
            "model_id": name,
            "choices": [{"index": 0, "turns": [said, f"{said}!"]}],
            "tstamp": 1686286924.844282,
        }
        for number, said in enumerate(SAID[name])
    ]


def arena_hard_old(name: str) -> list[Row]:
    return [
        {
            "question_id": f"{number:032x}",
            "answer_id": f"a{number}{name}",
            "model_id": name,
            "choices": [{"index": 0, "turns": [{"content": said, "token_len": 3}]}],
            "tstamp": 1713.5,
        }
        for number, said in enumerate(SAID[name])
    ]


def arena_hard(name: str, **more: Any) -> list[Row]:
    return [
        {
            "uid": f"{number:016x}",
            "ans_id": f"a{number}{name}",
            "model": name,
            "messages": [
                *([{"role": "system", "content": "Be brief."}] if number else []),
                {"role": "user", "content": task},
                {"role": "assistant", "content": {"answer": said, **more}},
            ],
            "tstamp": 1745.25,
            "metadata": {
                "token_len": 3,
                "header_count": {f"h{level}": 0 for level in range(1, 7)},
                "list_count": {"ordered": 0, "unordered": 0},
                "bold_count": {"**": 0, "__": 0},
            },
        }
        for number, (task, said) in enumerate(zip(TASKS, SAID[name], strict=True))
    ]


MT_QUESTIONS = [
    {"question_id": 81 + number, "category": "writing", "turns": [task, "Now louder."]}
    for number, task in enumerate(TASKS)
]
OLD_QUESTIONS = [
    {
        "question_id": f"{number:032x}",
        "category": "arena-hard-v0.1",
        "cluster": "ours",
        "turns": [{"content": task}],
    }
    for number, task in enumerate(TASKS)
]
NEW_QUESTIONS = [
    {"uid": f"{number:032x}", "category": "arena-hard-v0.1", "cluster": "ours", "prompt": task}
    for number, task in enumerate(TASKS)
]
OUTPUTS: dict[str, tuple[Any, list[Row] | None, str]] = {
    "AlpacaEval": (alpaca_eval, None, ".json"),
    "AlpacaEval with fields of a submitter": (
        lambda name: alpaca_eval(name, datasplit="eval", metadata="x", index=3, original_output="y"),
        None,
        ".json",
    ),
    "MT-Bench": (fastchat, MT_QUESTIONS, ".jsonl"),
    "Arena-Hard as it was first": (arena_hard_old, OLD_QUESTIONS, ".jsonl"),
    "Arena-Hard answers of old, questions of now": (arena_hard_old, NEW_QUESTIONS, ".jsonl"),
    "Arena-Hard": (arena_hard, None, ".jsonl"),
    "Arena-Hard with thinking": (lambda name: arena_hard(name, thought="Hm."), None, ".jsonl"),
}


@pytest.mark.parametrize(("make", "questions", "suffix"), OUTPUTS.values(), ids=OUTPUTS.keys())
def test_outputs_meet(tmp_path: Path, make: Any, questions: list[Row] | None, suffix: str) -> None:
    new, old = (put(tmp_path / f"{name}{suffix}", make(name)) for name in SAID)
    asked = put(tmp_path / "question.jsonl", questions) if questions else None
    joined = join_outputs(new, old, JoinOptions(questions=asked))
    found = [(p.instruction, p.output_1, p.output_2, p.model_1, p.model_2) for p in joined]
    tasks = [TASKS[0], f"[System]\nBe brief.\n\n[User]\n{TASKS[1]}"] if "messages" in make("new")[0] else TASKS
    expected = zip(tasks, SAID["new"], SAID["old"], strict=True)
    assert found == [(task, one, two, "new", "old") for task, one, two in expected]
    assert not joined.unmatched
    assert len(Arena([new, old], reading=JoinOptions(questions=asked))) == 2


def test_a_model_that_broke_down_in_fastchat_gave_no_answer(tmp_path: Path) -> None:
    rows = fastchat("new")
    rows[1]["choices"][0]["turns"] = ["Bonjour", "ERROR"]
    new, old = put(tmp_path / "new.jsonl", rows), put(tmp_path / "old.jsonl", fastchat("old"))
    asked = JoinOptions(questions=put(tmp_path / "question.jsonl", MT_QUESTIONS))
    with pytest.raises(PairError, match=r"new\.jsonl:2: field 'choices\[0\]\.turns\[1\]' is ERROR") as caught:
        join_outputs(new, old, asked)
    assert "--skip-bad" in caught.value.hint
    said = [{"instruction": "Which word does a log begin with?", "output": "ERROR"}]
    assert len(join_outputs(put(tmp_path / "a.jsonl", said), put(tmp_path / "b.jsonl", said))) == 1


# -- labels of people ----------------------------------------------------------------------------------------------

PANDALM = {
    "idx": 7,
    "motivation_app": "Grammar",
    "cmp_key": "a-7b_b-7b",
    "instruction": "Is the statement right?",
    "input": "Two is even.",
    "response1": True,
    "response2": "It is right.",
    "annotator1": 1,
    "annotator2": 2,
    "annotator3": 0,
}
LLMBAR = {"input": TASKS[0], "output_1": "7", "output_2": "8", "label": 1}
ALPACA = {
    "instruction": TASKS[0],
    "output_1": "7",
    "generator_1": "old",
    "dataset": "ours",
    "output_2": "8",
    "generator_2": "new",
    "annotator": "weighted_alpaca_eval_gpt4_turbo",
    "preference": 1.0000021,
    "raw_completion": {"finish_reason": "stop", "logprobs": {"content": [{"token": "m"}]}},
    "time_per_example": 1.25,
    "price_per_example": 0.01,
}
TALK = [{"content": TASKS[0], "role": "user"}, {"content": "7", "role": "assistant"}]
MT_BENCH = {
    "question_id": 81,
    "model_a": "old",
    "model_b": "new",
    "winner": "model_a",
    "judge": "expert_3",
    "conversation_a": TALK,
    "conversation_b": [TALK[0], {"content": "8", "role": "assistant"}],
    "turn": 1,
}
LABELS: dict[str, tuple[Row, dict[str, str | None]]] = {
    "PandaLM": (PANDALM, {"annotator1": "1", "annotator2": "2", "annotator3": "tie"}),
    "LLMBar": (LLMBAR, {"file": "1"}),
    "AlpacaEval": (ALPACA, {"weighted_alpaca_eval_gpt4_turbo": "1"}),
    "AlpacaEval without an answer": ({**ALPACA, "preference": None}, {"weighted_alpaca_eval_gpt4_turbo": None}),
    "AlpacaEval, whole numbers": ({**ALPACA, "preference": 2}, {"weighted_alpaca_eval_gpt4_turbo": "2"}),
    "MT-Bench, a person": (MT_BENCH, {"expert_3": "1"}),
    "MT-Bench, GPT-4": (
        {**MT_BENCH, "judge": ["gpt-4", "pair-v2"], "winner": "tie (inconsistent)"},
        {"gpt-4 pair-v2": "tie"},
    ),
    "MT-Bench, GPT-4 without an answer": (
        {**MT_BENCH, "judge": ["gpt-4", "pair-v2"], "winner": "error"},
        {"gpt-4 pair-v2": None},
    ),
    "Chatbot Arena": (
        {**MT_BENCH, "judge": "arena_user_9", "winner": "tie (bothbad)", "anony": True, "language": "English"},
        {"arena_user_9": "tie"},
    ),
}


@pytest.mark.parametrize(("row", "votes"), LABELS.values(), ids=LABELS.keys())
def test_labels_are_read_as_they_are_published(tmp_path: Path, row: Row, votes: dict[str, str | None]) -> None:
    file = put(tmp_path / "labels.json", [row])
    with Store(":memory:") as store:
        done = import_labels(store, file)
        [key] = done.pairs
        assert {label.annotator: label.side for label in store.labels.of(key)} == votes


def test_a_truth_value_in_pandalms_file_was_a_word() -> None:
    read = Recogniser("pairs").read(PANDALM)
    assert (read["output_1"], read["output_2"]) == ("True", "It is right.")
    assert read["instruction"] == "Is the statement right?\n\nTwo is even."
