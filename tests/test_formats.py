"""Every format through every door: rows of our own with the fields and types of the real files.

Looked up on 2026-11-16 and 17: AlpacaEval, JudgeBench, LLMBar, Auto-J, prometheus-eval, llm-comparator, AutoArena,
promptfoo and Inspect in their repositories; lm-evaluation-harness in files that programs around it test with.
Of BiGGen-Bench only the first rows were seen. Chatbot Arena 33k and 140k, MT-Bench's human judgments, HelpSteer3,
RewardBench, UltraFeedback, HH, Prometheus preferences, OpenAI's batches and ShareGPT were written from memory:
these tests hold the reader to what we believe of those files, not to the files.
"""

from __future__ import annotations

import csv
import io
import json
import zipfile
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import misbehaving_server
from command import evenhand
from conftest import LoopThread
from evenhand.core.errors import InputError, PairError
from evenhand.core.pair import Pair
from evenhand.io.pairs import Arena, JoinOptions, check_pairs, join_outputs, read_pairs
from evenhand.io.pairs.outputs import output_from as output_from_words
from evenhand.io.pairs.preview import look_at
from evenhand.io.pairs.recognition import Context, formats, parse_columns
from evenhand.io.pairs.rows import pair_from
from evenhand.results.people import _own_words, import_labels, read_votes
from evenhand.running.generation import read_instructions
from evenhand.store import Store

NOBODY = "http://127.0.0.1:9/v1#nobody"  # a plan asks nobody, and times no model that is here

Row = dict[str, Any]
Texts = tuple[str, str, str]
Q, X, Y = "Name a prime number.", "7", "8"


def says(role: str, content: Any) -> Row:
    return {"role": role, "content": content}


def part(text: str) -> list[Row]:
    return [{"type": "text", "text": text, "image": None, "mimeType": None}]


def talk(*texts: str, parts: bool = False) -> list[Row]:
    roles = ("user", "assistant")
    return [says(roles[n % 2], part(text) if parts else text) for n, text in enumerate(texts)]


TWO_TURNS = (
    f"[Turn 1]\n{Q}\n\n[Turn 2]\nAnother.",
    f"[Turn 1]\n{X}\n\n[Turn 2]\n11",
    f"[Turn 1]\n{Y}\n\n[Turn 2]\n9",
)
HISTORY = f"[System]\nBe brief.\n\n[User]\nHi\n\n[Assistant]\nHello\n\n[User]\n{Q}"
BATTLE = {"model_a": "m", "model_b": "n", "winner": "model_a"}
ARENA_140K = {
    "id": "e1",
    **BATTLE,
    "evaluation_session_id": "s",
    "evaluation_order": 1,
    "conversation_a": talk(Q, X, parts=True),
    "conversation_b": talk(Q, Y, parts=True),
    "full_conversation": [],
    "conv_metadata": {"turns": 1},
    "category_tag": {},
    "language": "en",
    "is_code": False,
}
ARENA_33K = {
    "question_id": "q1",
    **BATTLE,
    "winner": "tie (bothbad)",
    "judge": "arena_user_1",
    "conversation_a": talk(Q, X, "Another.", "11"),
    "conversation_b": talk(Q, Y, "Another.", "9"),
    "turn": 2,
    "anony": True,
    "language": "English",
    "tstamp": 1682351591.1,
}
HH = "\n\nHuman: Hi\n\nAssistant: Hello\n\nHuman: Name a prime number.\n\nAssistant:"
HARMONY = f"[User]\nHi\n\n[Assistant]\nHello\n\n[User]\n{Q}"

# name: the format that is recognised, the file, its texts, its models, its label
PAIRS: dict[str, tuple[str, str, Any, Texts, tuple[str, str], str | None]] = {
    "pairs": (
        "pairs", "a.jsonl", [{"instruction": Q, "output_1": X, "output_2": Y, "model_1": "m", "label": "B"}],
        (Q, X, Y), ("m", ""), "2",
    ),
    "RewardBench": (
        "chosen and rejected", "a.jsonl",
        [{"prompt": Q, "chosen": X, "chosen_model": "m", "rejected": Y, "rejected_model": "n", "subset": "s",
          "id": 3}],
        (Q, X, Y), ("m", "n"), "1",
    ),
    "UltraFeedback": (
        "chosen and rejected", "a.jsonl",
        [{"prompt": Q, "prompt_id": "p", "chosen": talk(Q, X), "rejected": talk(Q, Y), "messages": talk(Q, X),
          "score_chosen": 8.0, "score_rejected": 2.0}],
        (Q, X, Y), ("chosen", "rejected"), "1",
    ),
    "HH": (
        "chosen and rejected", "a.jsonl", [{"chosen": f"{HH} 7", "rejected": f"{HH} 8"}],
        (HARMONY, X, Y), ("chosen", "rejected"), "1",
    ),
    "TRL with a system message": (
        "chosen and rejected", "a.jsonl",
        [{"prompt": [says("system", "Be brief."), says("user", "Hi"), says("assistant", "Hello"), says("user", Q)],
          "chosen": [says("assistant", X)], "rejected": [says("assistant", Y)]}],
        (HISTORY, X, Y), ("chosen", "rejected"), "1",
    ),
    "HelpSteer3": (
        "HelpSteer3", "a.jsonl",
        [{"domain": "general", "language": "english", "context": talk("Hi", "Hello", Q), "response1": X,
          "response2": Y, "overall_preference": -2,
          "individual_preference": [{"score": -2, "reasoning": "r"}, {"score": -1}]}],
        (HARMONY, X, Y), ("", ""), "1",
    ),
    "Chatbot Arena, 140k": (
        "Chatbot Arena or MT-Bench human judgments", "a.jsonl", [ARENA_140K], (Q, X, Y), ("m", "n"), "1",
    ),
    "Chatbot Arena, 33k": (
        "Chatbot Arena or MT-Bench human judgments", "a.jsonl", [ARENA_33K], TWO_TURNS, ("m", "n"), "tie",
    ),
    "Chatbot Arena, 55k": (
        "Chatbot Arena (55k)", "a.csv",
        [{"id": "1", "model_a": "m", "model_b": "n", "prompt": json.dumps([Q, "Another."]),
          "response_a": json.dumps([X, "11"]), "response_b": json.dumps([Y, "9"]),
          "winner_model_a": "0", "winner_model_b": "1", "winner_tie": "0"}],
        TWO_TURNS, ("m", "n"), "2",
    ),
    "MT-Bench human": (
        "Chatbot Arena or MT-Bench human judgments", "a.jsonl",
        [{"question_id": 81, **BATTLE, "judge": "expert_0", "conversation_a": talk(Q, X, "More.", "x"),
          "conversation_b": talk(Q, Y, "More.", "y"), "turn": 1}],
        (Q, X, Y), ("m", "n"), "1",
    ),
    "LLMBar": (
        "LLMBar", "dataset.json", [{"input": Q, "output_1": X, "output_2": Y, "label": 1}],
        (Q, X, Y), ("", ""), "1",
    ),
    "PandaLM": (
        "PandaLM", "a.json",
        [{"idx": 0, "motivation_app": "a", "instruction": "Add.", "input": "2, 2", "response1": "4",
          "response2": "5", "annotator1": 1, "annotator2": 1, "annotator3": 2, "cmp_key": "bloom-7b_llama-7b"}],
        ("Add.\n\n2, 2", "4", "5"), ("bloom-7b", "llama-7b"), "1",
    ),
    "JudgeBench": (
        "JudgeBench", "a.jsonl",
        [{"pair_id": "u1", "original_id": 6603, "source": "mmlu", "question": Q, "response_model": "m",
          "response_A": X, "response_B": Y, "label": "B>A"}],
        (Q, X, Y), ("", ""), "2",
    ),
    "Auto-J": (
        "Auto-J", "a.jsonl", [{"scenario": "s", "label": 0, "prompt": Q, "response 1": X, "response 2": Y}],
        (Q, X, Y), ("", ""), "1",
    ),
    "Prometheus": (
        "Prometheus preferences", "a.jsonl",
        [{"orig_instruction": Q, "orig_response_A": X, "orig_response_B": Y, "orig_preference": "B",
          "orig_criteria": "c", "orig_reference_answer": "2", "orig_score_A": "2", "orig_score_B": "4",
          "instruction": "###Task Description:", "output": "So the overall winner is B. [RESULT] B"}],
        (Q, X, Y), ("", ""), "2",
    ),
    "AlpacaEval annotations": (
        "AlpacaEval annotations", "annotations.json",
        [{"instruction": Q, "output_1": X, "generator_1": "m", "dataset": "d", "output_2": Y, "generator_2": "n",
          "annotator": "weighted", "preference": 1.9999, "raw_completion": {}, "price_per_example": 0.1}],
        (Q, X, Y), ("m", "n"), "2",
    ),
    "LLM Comparator": (
        "LLM Comparator", "a.json",
        {"metadata": {"source_path": "s", "custom_fields_schema": []}, "models": [{"name": "m"}, {"name": "n"}],
         "examples": [{"input_text": Q, "tags": ["Math"], "output_text_a": X, "output_text_b": Y, "score": -1.25,
                       "individual_rater_scores": [], "custom_fields": {}}]},
        (Q, X, Y), ("m", "n"), "2",
    ),
    "two answers": (
        "two answers", "a.csv", [{"question": Q, "answer_a": X, "answer_b": Y, "winner": "model_b"}],
        (Q, X, Y), ("", ""), "2",
    ),
}  # fmt: skip


def put(folder: Path, name: str, content: Any) -> Path:
    file = folder / name
    if name.endswith(".jsonl"):
        file.write_text("".join(json.dumps(row) + "\n" for row in content))
    elif name.endswith(".csv"):
        out = io.StringIO()
        writer = csv.DictWriter(out, list(content[0]))
        writer.writeheader()
        writer.writerows(content)
        file.write_text(out.getvalue())
    else:
        file.write_text(json.dumps(content, indent=1))
    return file


every_pair_format = pytest.mark.parametrize(
    ("name", "file", "content", "texts", "models", "label"), PAIRS.values(), ids=PAIRS.keys()
)


@every_pair_format
def test_pairs_are_recognised_and_read(
    tmp_path: Path, name: str, file: str, content: Any, texts: Texts, models: tuple[str, str], label: str | None
) -> None:
    path = put(tmp_path, file, content)
    [pair] = read_pairs(path)
    assert (pair.texts, (pair.model_1, pair.model_2)) == (texts, models)
    assert pair.labels.get("overall") == label
    [sight] = look_at(path)
    assert (sight.format, sight.kind) == (name, "pairs")


@every_pair_format
def test_pairs_come_through_every_door(
    tmp_path: Path, name: str, file: str, content: Any, texts: Texts, models: tuple[str, str], label: str | None
) -> None:
    path = put(tmp_path, file, content)
    done = evenhand("judge", path, "--judge", NOBODY, "--dry-run", "--json", "--db", tmp_path / "e.db")
    assert json.loads(done.stdout)["pairs"] == 1
    with Store(":memory:") as store:
        imported = import_labels(store, path)
        assert imported.pairs == {Pair(*texts).key}
        sides = {vote.side for vote in store.labels.of(Pair(*texts).key)}
        assert label in sides
    [question] = read_instructions(path)
    assert question.turns[0] in texts[0]
    assert not {X, Y} & {value for value in question.about.values() if isinstance(value, str)}


def batch(key: str, text: str, **more: Any) -> Row:
    body = {
        "id": "c",
        "object": "chat.completion",
        "model": "m-1",
        "choices": [{"index": 0, "message": says("assistant", text)}],
    }
    return {
        "id": "b",
        "custom_id": key,
        "response": {"status_code": 200, "request_id": "r", "body": body},
        "error": None,
        **more,
    }


def promptfoo(model: str, text: str) -> Row:
    return {
        "id": "r",
        "promptIdx": 0,
        "testIdx": 0,
        "prompt": {"raw": Q, "label": "{{q}}"},
        "promptId": "p",
        "provider": {"id": model, "label": ""},
        "vars": {"q": Q},
        "response": {"output": text, "tokenUsage": {}},
        "success": False,
        "error": "Latency 5794ms is greater than threshold 3000ms",
        "score": 0.5,
    }


def harness(text: str, **more: Any) -> Row:
    arguments = {"gen_args_0": {"arg_0": Q, "arg_1": {"until": ["\n"]}}}
    row = {"doc_id": 0, "doc": {"question": Q}, "target": "2", "arguments": arguments, "resps": [[text]]}
    return {**row, "filtered_resps": [text], "filter": "none", "metrics": ["em"], "doc_hash": "h", **more}


def inspect_sample(text: str) -> Row:
    choices = [
        {"message": says("assistant", [{"type": "reasoning", "reasoning": "Hm."}, {"type": "text", "text": text}])}
    ]
    return {
        "id": 1,
        "epoch": 1,
        "input": Q,
        "target": "2",
        "messages": [says("system", "Be brief."), says("user", Q)],
        "output": {"model": "m-1", "choices": choices, "completion": text},
        "scores": {},
        "events": [],
    }


ASKED_BRIEFLY = f"[System]\nBe brief.\n\n[User]\n{Q}"
# name: the format that is recognised, the file's name, how an answer is written, the instruction, the questions
OUTPUTS: dict[str, tuple[str, str, Any, str, list[Row] | None]] = {
    "plain": ("outputs", "a.jsonl", lambda text: [{"instruction": Q, "output": text, "generator": "m"}], Q, None),
    "messages": (
        "messages", "a.jsonl",
        lambda text: [{"uid": "u", "messages": [says("system", "Be brief."), *talk(Q, text)]}],
        ASKED_BRIEFLY, None,
    ),
    "ShareGPT": (
        "ShareGPT", "a.json",
        lambda text: [{"id": "s", "conversations": [
            {"from": "system", "value": "Be brief."}, {"from": "human", "value": Q},
            {"from": "gpt", "value": text}]}],
        ASKED_BRIEFLY, None,
    ),
    "MT-Bench answers": (
        "MT-Bench or Arena-Hard answers", "a.jsonl",
        lambda text: [{"question_id": 81, "model_id": "m", "choices": [{"index": 0, "turns": [text]}]}],
        Q, [{"question_id": 81, "turns": [Q]}],
    ),
    "OpenAI batch": (
        "OpenAI batch", "a.jsonl", lambda text: [batch("k1", text)], ASKED_BRIEFLY,
        [{"custom_id": "k1", "method": "POST", "url": "/v1/chat/completions",
          "body": {"model": "m", "messages": [says("system", "Be brief."), says("user", Q)]}}],
    ),
    "promptfoo": (
        "promptfoo", "a.json",
        lambda text: {"evalId": "e", "config": {"tests": [{}]},
                      "results": {"version": 3, "prompts": [{"raw": "{{q}}"}], "results": [promptfoo("m", text)]}},
        Q, None,
    ),
    "lm-evaluation-harness": (
        "lm-evaluation-harness", "a.jsonl", lambda text: [harness(text), harness(text, filter="flexible")], Q, None,
    ),
    "lm-evaluation-harness, chat": (
        "lm-evaluation-harness", "a.jsonl",
        lambda text: [harness(text, arguments=[[json.dumps([says("system", "Be brief."), says("user", Q)]), {}]])],
        ASKED_BRIEFLY, None,
    ),
    "Inspect, JSON": (
        "Inspect log", "a.json",
        lambda text: {"version": 2, "status": "success", "eval": {"model": "m"},
                      "plan": {"steps": [{"solver": "g"}]}, "samples": [inspect_sample(text)]},
        ASKED_BRIEFLY, None,
    ),
    "AutoArena": (
        "prompt and response", "a.csv", lambda text: [{"prompt": Q, "model": "m", "response": text}], Q, None,
    ),
    "BiGGen-Bench": (
        "prompt and response", "a.json",
        lambda text: {f"t{n}": {"id": f"t{n}", "system_prompt": "Be brief.", "input": Q + "!" * n, "response": text,
                                "reference_answer": "2", "response_model_name": "m"} for n in range(2)},
        ASKED_BRIEFLY, None,
    ),
    "completions": ("prompt and completion", "a.jsonl", lambda text: [{"prompt": Q, "completion": text}], Q, None),
}  # fmt: skip
every_output_format = pytest.mark.parametrize(
    ("name", "file", "make", "asked", "questions"), OUTPUTS.values(), ids=OUTPUTS.keys()
)


@every_output_format
def test_outputs_come_through_every_door(
    tmp_path: Path, name: str, file: str, make: Any, asked: str, questions: list[Row] | None
) -> None:
    for folder in ("new", "old"):
        (tmp_path / folder).mkdir()
    new, old = put(tmp_path / "new", file, make(X)), put(tmp_path / "old", file, make(Y))
    given = put(tmp_path, "q.jsonl", questions) if questions else None
    reading = JoinOptions(given)
    joined = join_outputs(f"new={new}", f"old={old}", reading)
    pair = next(iter(joined))
    assert pair.texts == (asked, X, Y)
    assert len(Arena([f"new={new}", f"old={old}"], reading=reading)) == len(joined)
    [sight] = look_at(new, reading)
    assert (sight.format, sight.kind) == (name, "outputs")
    if not questions:
        question = next(read_instructions(new))
        assert asked.endswith(question.turns[0])
    with pytest.raises(PairError, match=r"outputs, not pairs .* --candidate and --baseline"):
        check_pairs(new)


def test_every_format_is_tested() -> None:
    own = {"evenhand judgments"}  # in test_round_trips.py
    tested = {entry[0] for entry in PAIRS.values()} | {entry[0] for entry in OUTPUTS.values()} | own
    assert {each.name for each in formats()} == tested


def inspect_archive(path: Path, header: str, *texts: str) -> Path:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr(header, json.dumps({"version": 2, "eval": {"model": path.stem}}))
        for number, text in enumerate(texts, 1):
            archive.writestr(f"samples/{number}_epoch_1.json", json.dumps({**inspect_sample(text), "id": number}))
        archive.writestr("summaries.json", "[]")
    return path


@pytest.mark.parametrize("header", ["header.json", "_journal/start.json", "start.json"])
def test_inspect_archives_name_their_model(tmp_path: Path, header: str) -> None:
    new, old = inspect_archive(tmp_path / "new.eval", header, X), inspect_archive(tmp_path / "old.eval", header, Y)
    [pair] = join_outputs(new, old)
    assert (pair.texts, pair.model_1, pair.model_2) == ((ASKED_BRIEFLY, X, Y), "new", "old")


def test_a_broken_archive_is_said_so(tmp_path: Path) -> None:
    (tmp_path / "a.eval").write_bytes(b"PK nonsense")
    with pytest.raises(PairError, match=r"a\.eval: not a log of Inspect, or broken off"):
        join_outputs(tmp_path / "a.eval", tmp_path / "a.eval")


def test_promptfoo_holds_many_models_for_an_arena(tmp_path: Path) -> None:
    rows = [promptfoo("m", X), promptfoo("n", Y)]
    file = put(tmp_path, "a.json", {"results": {"version": 3, "results": rows, "prompts": [{"raw": "q"}]}})
    [met] = Arena([file])
    pair = met if met.model_1 == "m" else met.turned()
    assert (pair.texts, pair.model_1, pair.model_2) == ((Q, X, Y), "m", "n")


def test_reward_bench_2_has_a_pair_for_each_that_was_rejected(tmp_path: Path) -> None:
    file = put(
        tmp_path, "a.jsonl", [{"id": "r", "prompt": Q, "chosen": [X], "rejected": [Y, "9"], "num_correct": 1}]
    )
    assert [(pair.id, pair.output_1, pair.output_2) for pair in read_pairs(file)] == [
        ("r/1", X, Y),
        ("r/2", X, "9"),
    ]


def test_a_field_of_ones_own_is_no_other_tools(tmp_path: Path) -> None:
    """Plain files keep their meaning where a field happens to be called as in another format."""
    pair = {
        "instruction": Q,
        "output_1": X,
        "output_2": Y,
        "preference": "short ones",
        "chosen": "x",
        "messages": [],
    }
    [found] = read_pairs(put(tmp_path, "a.jsonl", [pair]))
    assert (found.texts, found.metadata["preference"], found.labels) == ((Q, X, Y), "short ones", {})
    output = {"instruction": Q, "output": X, "choices": ["7", "8"], "messages": talk("other", "words")}
    file = put(tmp_path, "b.jsonl", [output])
    [met] = join_outputs(f"new={file}", f"old={file}")
    assert met.texts == (Q, X, X)


# -- where rows stand ---------------------------------------------------------------------------------------------

PLAIN = [{"instruction": f"q{n}", "output_1": X, "output_2": Y} for n in range(3)]


@pytest.mark.parametrize(
    "content",
    [
        "".join(json.dumps(row) + "\n" for row in PLAIN),
        json.dumps({"version": 1, "data": PLAIN}),
        json.dumps({"outer": {"rows": PLAIN, "stats": {}}}),
        json.dumps({"anything": PLAIN}, indent=1),
        json.dumps({f"k{n}": row for n, row in enumerate(PLAIN)}),
    ],
    ids=["lines", "a list under a key", "two keys deep", "any key", "an object of objects"],
)
def test_a_json_file_may_hold_its_rows_anywhere(tmp_path: Path, content: str) -> None:
    (tmp_path / "a.json").write_text(content)
    assert [pair.instruction for pair in read_pairs(tmp_path / "a.json")] == ["q0", "q1", "q2"]


def test_one_object_is_one_row(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text(json.dumps({"chosen": talk(Q, X), "rejected": talk(Q, Y)}))
    [pair] = read_pairs(tmp_path / "a.json")
    assert pair.texts == (Q, X, Y)


def test_several_lists_are_refused_by_name(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text(json.dumps({"train": PLAIN, "test": PLAIN}))
    with pytest.raises(PairError, match=r"a\.json: the file holds lists under 'train', 'test'"):
        check_pairs(tmp_path / "a.json")


# -- nothing in silence -------------------------------------------------------------------------------------------


def test_two_system_messages_make_two_questions(tmp_path: Path) -> None:
    def outputs(name: str, system: str) -> Path:
        turns = [says("system", system), *talk(Q, name)]
        return put(tmp_path, f"{name}.jsonl", [{"uid": "u", "model": name, "messages": turns}])

    new, old = outputs("new", "Be brief."), outputs("old", "Be kind.")
    with pytest.raises(InputError, match=r"no instruction of .* is in"):
        join_outputs(new, old)
    with pytest.raises(PairError, match=r"its instruction is not the one .* \(a system message is part of the"):
        join_outputs(new, old, JoinOptions(join_on="id"))


def test_a_turn_that_is_not_judged_is_said(tmp_path: Path) -> None:
    for name in ("new", "old"):
        put(tmp_path, f"{name}.jsonl", [{"messages": talk(Q, name, "Another.", name)}])
    sides = ("--candidate", tmp_path / "new.jsonl", "--baseline", tmp_path / "old.jsonl", "--db", tmp_path / "e.db")
    done = evenhand("judge", *sides, "--judge", NOBODY, "--dry-run", "--json")
    assert "judging turn 1 of 2; --turn 2 judges all of them" in done.stderr
    done = evenhand("judge", *sides, "--turn", "2", "--judge", NOBODY, "--dry-run", "--json")
    assert "judging turn" not in done.stderr


def test_votes_on_one_pair_are_judged_once_and_all_kept(tmp_path: Path) -> None:
    rows = [{**ARENA_33K, "judge": who, "winner": said} for who, said in (("ann", "model_a"), ("ben", "tie"))]
    file = put(tmp_path, "a.jsonl", rows)
    notes: Counter[str] = Counter()
    assert check_pairs(file, notes=notes)[0] == 1
    assert [(text.split(":")[0], count) for text, count in notes.items()] == [("the same pair again", 1)]
    with Store(":memory:") as store:
        import_labels(store, file)
        found = {vote.annotator: vote.side for vote in store.labels.of(Pair(*TWO_TURNS).key)}
    assert found == {"ann": "1", "ben": "tie"}


def test_what_is_to_be_said_of_a_file_is_said_in_every_run(tmp_path: Path, loop: LoopThread) -> None:
    rows = [{**ARENA_33K, "judge": who, "winner": "model_a"} for who in ("ann", "ben", "cem")]
    file = put(tmp_path, "a.jsonl", rows)
    server = loop.run(misbehaving_server.Server(misbehaving_server.says("A")).__aenter__())
    words = (
        "judge",
        file,
        "--judge",
        f"{server.url}#m",
        "--protocol",
        "overall",
        "--db",
        tmp_path / "e.db",
        "--json",
    )
    try:
        for _ in range(3):
            done = evenhand(*words)
            assert "the same pair again" in done.stderr
            assert list(json.loads(done.stdout)["notes"].values()) == [2]
    finally:
        loop.run(server.__aexit__())


def test_a_null_label_hides_no_verdict(tmp_path: Path) -> None:
    texts = {"instruction": Q, "output_1": X, "output_2": Y}
    file = put(tmp_path, "a.jsonl", [{**texts, "label": None, "verdict": "2"}])
    with Store(":memory:") as store:
        import_labels(store, file)
        assert [vote.side for vote in store.labels.of(Pair(Q, X, Y).key)] == ["2"]


def test_what_is_no_text_is_a_fault(tmp_path: Path) -> None:
    image = {
        **ARENA_140K,
        "conversation_a": [says("user", [{"type": "image", "image": "x"}]), says("assistant", X)],
    }
    with pytest.raises(PairError, match=r"a\.jsonl:1: field 'conversation_a\[0\]' holds a part of type 'image'"):
        check_pairs(put(tmp_path, "a.jsonl", [image]))
    tool = [{"messages": [says("user", Q), {"role": "assistant", "content": None, "tool_calls": [{}]}]}]
    with pytest.raises(PairError, match=r"field 'messages\[1\]' is a call of a tool"):
        join_outputs(put(tmp_path, "b.jsonl", tool), tmp_path / "b.jsonl")


def test_conversations_that_ask_different_things_are_no_pair(tmp_path: Path) -> None:
    with pytest.raises(PairError, match="ask different things"):
        check_pairs(put(tmp_path, "a.jsonl", [{**ARENA_140K, "conversation_b": talk("Another?", Y)}]))
    apart = [{"chosen": f"{HH} 7", "rejected": f"\n\nHuman: Bye{HH} 8"}]
    with pytest.raises(PairError, match="differ before their last answer"):
        check_pairs(put(tmp_path, "b.jsonl", apart))


# -- bad input ----------------------------------------------------------------------------------------------------


def test_an_unknown_format_says_what_was_found_expected_and_would_help(tmp_path: Path) -> None:
    file = put(tmp_path, "a.jsonl", [{"frage": Q, "eins": X, "zwei": Y}])
    with pytest.raises(PairError) as caught:
        check_pairs(file)
    said = str(caught.value)
    for words in ("a.jsonl:1: no field 'instruction'", "expected rows with the fields", "found frage, eins, zwei"):
        assert words in said
    assert "--columns instruction=FIELD,output_1=FIELD,output_2=FIELD" in said


def test_a_mixed_file_names_the_first_row_that_differs(tmp_path: Path) -> None:
    mixed = [*PLAIN, {"prompt": Q, "chosen": X, "rejected": Y}, PLAIN[0]]
    with pytest.raises(PairError, match=r"a\.jsonl:4: this row has 'rejected', the rows before it have 'output_2'"):
        check_pairs(put(tmp_path, "a.jsonl", mixed))
    done = evenhand(
        "judge", tmp_path / "a.jsonl", "--judge", NOBODY, "--dry-run", "--db", tmp_path / "e.db", code=2
    )
    assert "chosen and rejected and pairs in one file" in done.stderr


JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=5)
    | st.sampled_from(["[1]", "A", "[]"]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["role", "content", "from", "value", "type", "text", "a"]), inner, max_size=3
        )
    ),
    max_leaves=6,
)


@settings(max_examples=300, deadline=None)
@given(data=st.data(), number=st.integers(0, len(formats()) - 1))
def test_any_row_is_read_or_is_a_fault(data: st.DataObject, number: int) -> None:
    """Whatever stands in the fields of a format, the row becomes pairs or outputs, or RowFault says why not."""
    each = formats()[number]
    names = sorted({name.split("|")[0] for name in each.fields} | {*each.uses})
    row = {name: data.draw(JSON, label=name) for name in names}
    make = pair_from if each.kind == "pairs" else output_from_words
    try:
        if each.fits(row):
            for found in each.rows(row, Context(group=[row])):
                make(found)
        import_rows(row)
    except (ValueError, InputError):
        pass


def import_rows(row: Row) -> None:
    for found in _own_words(row, Context(group=[row])):
        read_votes(found)


# -- --columns ----------------------------------------------------------------------------------------------------

COLUMNS = "instruction=frage,output_1=antworten.eins,output_2=antworten.zwei,label=besser"
FOREIGN = [{"frage": Q, "antworten": {"eins": X, "zwei": Y}, "besser": "A", "thema": "zahlen"}]


def test_columns_read_any_format(tmp_path: Path) -> None:
    file = put(tmp_path, "a.jsonl", FOREIGN)
    [pair] = read_pairs(file, columns=parse_columns(COLUMNS))
    assert (pair.texts, pair.labels) == ((Q, X, Y), {"overall": "1"})
    assert pair.metadata == {"antworten": {"eins": X, "zwei": Y}, "thema": "zahlen"}
    db = ("--db", tmp_path / "e.db", "--columns", COLUMNS)
    done = evenhand("judge", file, *db, "--judge", NOBODY, "--dry-run", "--json")
    assert json.loads(done.stdout)["pairs"] == 1
    done = evenhand("labels", "import", file, *db, "--json")
    assert json.loads(done.stdout)["files"][0]["labels"] == 1
    done = evenhand("look", file, "--columns", COLUMNS)
    assert "left over, kept as metadata: antworten, thema" in done.stdout


def test_columns_take_outputs_too(tmp_path: Path) -> None:
    for name in ("new", "old"):
        put(tmp_path, f"{name}.jsonl", [{"frage": Q, "antwort": name}])
    reading = JoinOptions(columns={"instruction": "frage", "output": "antwort"})
    [pair] = join_outputs(tmp_path / "new.jsonl", tmp_path / "old.jsonl", reading)
    assert pair.texts == (Q, "new", "old")


def test_a_name_that_columns_replace_is_not_lost(tmp_path: Path) -> None:
    row = {"instruction": "old words", "prompt": Q, "output_1": X, "output_2": Y}
    [pair] = read_pairs(put(tmp_path, "a.jsonl", [row]), columns={"instruction": "prompt"})
    assert (pair.instruction, pair.metadata) == (Q, {"prompt": "old words"})


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("prompt", "--columns holds 'prompt'"),
        ("answer=x", "'answer' is no field of evenhand"),
        ("=x", "--columns holds"),
    ],
)
def test_columns_that_mean_nothing_are_refused(text: str, fault: str) -> None:
    with pytest.raises(InputError, match=fault):
        parse_columns(text)


def test_a_column_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(PairError, match=r"a\.jsonl:1: no field 'antworten\.drei', which --columns names"):
        check_pairs(put(tmp_path, "a.jsonl", FOREIGN), columns={"output_1": "antworten.drei"})


# -- look ---------------------------------------------------------------------------------------------------------


def test_look_shows_three_rows_and_what_is_left_over(tmp_path: Path) -> None:
    rows = [{"prompt": f"q{n}", "chosen": X, "rejected": Y, "topic": "t"} for n in range(5)]
    file = put(tmp_path, "a.jsonl", rows)
    done = evenhand("look", file)
    assert "a.jsonl: pairs, recognised as chosen and rejected" in done.stdout
    assert [f"q{n}" in done.stdout for n in range(5)] == [True, True, True, False, False]
    assert "left over, kept as metadata: topic" in done.stdout
    [fields] = json.loads(evenhand("look", file, "--json").stdout)["files"]
    assert (fields["format"], fields["kind"], fields["left_over"]) == ("chosen and rejected", "pairs", ["topic"])
    assert fields["rows"][0]["output_1"] == X


def test_look_names_the_command_that_reads_verdicts(tmp_path: Path) -> None:
    row = {"instruction": "Say hi.", "output_1": "Hi", "output_2": "Ho", "topic": "talk"}
    plain, said = put(tmp_path, "pairs.jsonl", [row]), put(tmp_path, "said.jsonl", [{**row, "verdict": "A"}])
    assert "import verdicts" not in evenhand("look", plain).stdout
    assert "judging does not read verdict; evenhand import verdicts FILE does" in evenhand("look", said).stdout


def test_look_refuses_what_it_does_not_know(tmp_path: Path) -> None:
    done = evenhand("look", put(tmp_path, "a.jsonl", [{"colour": "red"}]), code=2)
    assert "found colour" in done.stderr


def test_promptfoo_with_several_prompts_compares_the_prompts(tmp_path: Path) -> None:
    asked = {"question": Q}
    labels = ["terse", "prompts/long.txt: Answer {{question}} with every detail that matters"]
    rows = [
        {**promptfoo("m", text), "prompt": {"raw": label.replace("{{question}}", Q), "label": label}, "vars": asked}
        for label, text in zip(labels, (X, Y), strict=True)
    ]
    beside = [{"raw": label, "label": label, "provider": "m"} for label in labels]
    file = put(tmp_path, "a.json", {"results": {"version": 3, "results": rows, "prompts": beside}})
    [pair] = Arena([file])
    assert (pair.texts, pair.model_1, pair.model_2) == ((Q, X, Y), "terse", "prompts/long.txt")

    two = [*rows, *({**row, "provider": {"id": "n", "label": ""}} for row in rows)]
    beside += [{**one, "provider": "n"} for one in beside]
    file = put(tmp_path, "b.json", {"results": {"version": 3, "results": two, "prompts": beside}})
    models = {name for pair in Arena([file]) for name in (pair.model_1, pair.model_2)}
    assert models == {"m, terse", "m, prompts/long.txt", "n, terse", "n, prompts/long.txt"}


@pytest.mark.parametrize("asked", ["prompt", "input", "question", "instruction"])
@pytest.mark.parametrize("answered", ["response", "output", "answer"])
def test_plain_names_of_a_question_and_an_answer_are_known(tmp_path: Path, asked: str, answered: str) -> None:
    new, old = (put(tmp_path, f"{text}.jsonl", [{asked: Q, answered: text}]) for text in (X, Y))
    [pair] = join_outputs(new, old)
    assert pair.texts == (Q, X, Y)


@pytest.mark.parametrize("answered", ["response", "output"])
def test_beside_an_output_an_answer_is_the_reference(tmp_path: Path, answered: str) -> None:
    row = {"question": Q, "answer": "the right one"}
    new, old = (put(tmp_path, f"{text}.jsonl", [{**row, answered: text}]) for text in (X, Y))
    [pair] = join_outputs(new, old)
    assert pair.texts == (Q, X, Y)
    assert pair.metadata["answer"] == "the right one"
