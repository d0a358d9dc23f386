"""Formats of pairs, each a function: its name, the fields that tell it apart, and how a row is put into our words.

Sides follow the file: its first response is output_1. What a file says of the winner becomes `label`, or `human`
where it names who said it. docs/formats.md says which were tested on real files, and which are from memory.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from functools import partial
from typing import Any

from evenhand.core.attacks import ATTACK_MARKS
from evenhand.core.faults import RowFault
from evenhand.core.pair import read_label
from evenhand.io.files import Row
from evenhand.io.files.reading import outer_of
from evenhand.io.files.writing import unharmed
from evenhand.io.pairs.messages import (
    SKIP,
    Message,
    dialogue_of,
    is_messages,
    parsed_list,
    read_messages,
    read_text,
    read_texts,
    write_context,
    write_turns,
)
from evenhand.io.pairs.recognition import Context, Format, reads

_pairs = partial(reads, "pairs")
_ASKED = "instruction|prompt|question|input"
_FIRST = "response_a|response_A|answer_a|answer_A|output_a|output_A"
_SECOND = "response_b|response_B|answer_b|answer_B|output_b|output_B"
_WINNER = ("winner", "label", "preference", "verdict")
_HUMAN_TURN, _ASSISTANT_TURN = "\n\nHuman:", "\n\nAssistant:"


@_pairs("pairs", ("instruction", "output_1", "output_2"), verbatim=True)
def _same(row: Row, _: Context) -> Row:
    """A row that is in evenhand's words already."""
    return row


@_pairs(
    "evenhand judgments",
    ("fingerprint", "key", "pair", "dimension", "verdict", "instruction", "output_1", "output_2"),
    uses=(
        *("judge", "protocol", "model_1", "model_2", "p_1", "p_2", "p_tie", "mass", "order", "shown"),
        *("inconsistent", "invalid", "label", "reason", "reason_forward", "reason_swapped"),
        *("strength", "strength_forward", "strength_swapped", *ATTACK_MARKS),
    ),
    together="key",
)
def _judgments(row: Row, context: Context) -> Row:
    """What `evenhand export judgments --texts` writes: rows of one pair, one for each dimension, are together."""
    judge = row["fingerprint"]
    if context.memory.setdefault("judge", judge) != judge:
        raise RowFault(
            "this file holds the verdicts of several judges",
            hint="export one of them: evenhand export --judge NAME",
        )
    names = ("instruction", "output_1", "output_2", "model_1", "model_2")
    labels = {each["dimension"]: each["label"] for each in context.group if each.get("label") not in (None, "")}
    if labels.pop("combined", None):  # the label of overall, said once more
        labels.setdefault(
            "overall", next(each["label"] for each in context.group if each["dimension"] == "combined")
        )
    found = {"id": row["pair"], **{name: row.get(name) for name in names}, "labels": labels}
    if row.get("attack"):  # not where the marks are empty: a pair that has them all is an attacked one
        found |= {mark: row[mark] for mark in ATTACK_MARKS if mark in row}
    return {name: unharmed(value) for name, value in found.items()} if context.suffix == ".csv" else found


@_pairs(
    "PandaLM",
    ("instruction", "response1", "response2", "annotator1"),
    uses=("input", "cmp_key", *(f"annotator{number}" for number in range(2, 10))),
)
def _pandalm(row: Row, _: Context) -> Row:
    votes = {name: _number(row[name]) for name in row if re.fullmatch(r"annotator\d+", name)}
    named = str(row.get("cmp_key") or "").split("_")
    models = dict(zip(("model_1", "model_2"), named, strict=True)) if len(named) == 2 else {}
    texts = pair_texts(with_input(row), _word(row["response1"]), _word(row["response2"]))
    return {**texts, "human": votes, "label": _most(votes.values()), **models}


@_pairs("HelpSteer3", ("context", "response1", "response2", "overall_preference"))
def _helpsteer(row: Row, _: Context) -> Row:
    """HelpSteer3: -3 says that the first response is much better, 3 that the second is."""
    votes = row.get("individual_preference")
    said = [_signed(vote.get("score")) for vote in votes or () if isinstance(vote, Mapping)]
    label, asked = _signed(row["overall_preference"]), write_context(read_messages(row["context"], "context"))
    one, two = (read_text(row[name], name) for name in ("response1", "response2"))
    return {**pair_texts(asked, one, two), "label": label, **({"human": said} if said else {})}


@_pairs(
    "Chatbot Arena or MT-Bench human judgments",
    ("conversation_a", "conversation_b"),
    uses=("winner", "judge", "model_a", "model_b", "turn"),
)
def _arena(row: Row, _: Context) -> Row:
    """Chatbot Arena and MT-Bench's human judgments; `turn` says how far the vote goes, else it is on all of it."""
    one, two = (dialogue_of(read_messages(row[name], name), name) for name in ("conversation_a", "conversation_b"))
    turn = int(row.get("turn") or len(one.asked))
    if min(len(one.asked), len(two.asked)) < turn:
        name, has = ("conversation_a", one) if len(one.asked) < turn else ("conversation_b", two)
        raise RowFault(f"field '{name}' has {len(has.asked)} turns, not {turn}", hint=SKIP)
    if one.asked[:turn] != two.asked[:turn] or one.system != two.system:
        raise RowFault("the two conversations ask different things, so they are not one pair", hint=SKIP)
    judge = row.get("judge")
    who = " ".join(map(str, judge)) if isinstance(judge, list) else str(judge or "")
    asked = write_turns(one.asked[:turn], system=one.system)
    texts = pair_texts(asked, write_turns(one.said[:turn]), write_turns(two.said[:turn]))
    return {**texts, **_models(row), **_said(_winner(row.get("winner")), who)}


@_pairs(
    "Chatbot Arena (55k)",
    ("prompt", "response_a", "response_b", "winner_model_a", "winner_model_b"),
    uses=("winner_tie", "model_a", "model_b"),
)
def _kaggle(row: Row, _: Context) -> Row:
    """Chatbot Arena's 55k: each text is a list of turns as JSON, the winner is one of three columns."""
    asked, one, two = (_turns(row[name], name) for name in ("prompt", "response_a", "response_b"))
    given = (("winner_model_a", "1"), ("winner_model_b", "2"), ("winner_tie", "tie"))
    label = next((side for name, side in given if str(row.get(name)) in ("1", "1.0", "True", "true")), None)
    return {**pair_texts(write_turns(asked), write_turns(one), write_turns(two)), **_models(row), "label": label}


@_pairs("JudgeBench", ("question", "response_A", "response_B"), uses=("pair_id", "label"))
def _judge_bench(row: Row, _: Context) -> Row:
    texts = pair_texts(row["question"], row["response_A"], row["response_B"])
    return {"id": row.get("pair_id"), **texts, "label": row.get("label")}


@_pairs("Auto-J", ("prompt", "response 1", "response 2"), uses=("label",))
def _auto_j(row: Row, _: Context) -> Row:
    """Auto-J's label is 0 for the first response, 1 for the second, 2 for a tie."""
    label = _number(row.get("label"))
    sides = {"0": "1", "1": "2", "2": "tie", "None": None}
    if str(label) not in sides:
        raise RowFault(f"label {label!r} is none of 0, 1, 2", hint=SKIP)
    return {**pair_texts(row["prompt"], row["response 1"], row["response 2"]), "label": sides[str(label)]}


@_pairs(
    "Prometheus preferences",
    ("orig_instruction", "orig_response_A", "orig_response_B"),
    uses=("orig_preference", "instruction", "output"),
)
def _prometheus(row: Row, _: Context) -> Row:
    """Prometheus' Preference Collection; `instruction` and `output` there are the judge's own prompt and answer."""
    return {
        **pair_texts(row["orig_instruction"], row["orig_response_A"], row["orig_response_B"]),
        "label": row.get("orig_preference"),
        **{name: row[name] for name in ("orig_criteria", "orig_reference_answer") if name in row},
    }


@_pairs("LLM Comparator", ("input_text", "output_text_a", "output_text_b"), uses=("score",))
def _llm_comparator(row: Row, _: Context) -> Row:
    """LLM Comparator: a score above 0 is for the first model."""
    models = outer_of(row).get("models")
    names = [str(one.get("name", "")) for one in models if isinstance(one, Mapping)] if models else []
    score = row.get("score")
    return {
        **pair_texts(row["input_text"], row["output_text_a"], row["output_text_b"]),
        **(dict(zip(("model_1", "model_2"), names, strict=True)) if len(names) == 2 else {}),
        "label": None if score is None else _signed(-float(score)),
    }


@_pairs(
    "AlpacaEval annotations",
    ("instruction", "output_1", "output_2", "preference"),
    uses=("input", "annotator", "annotator_index", "generator_1", "generator_2"),
    test=lambda row: is_number(row["preference"]),
)
def _alpaca_eval(row: Row, _: Context) -> Row:
    """AlpacaEval's annotations; who prefers is a model or, in AlpacaFarm, a person's number."""
    who = row.get("annotator", row.get("annotator_index"))
    name = "" if who in (None, "") else f"annotator {who}" if isinstance(who, int) else str(who)
    models = {"model_1": row.get("generator_1"), "model_2": row.get("generator_2")}
    return {
        **pair_texts(with_input(row), row["output_1"], row["output_2"]),
        **{side: model for side, model in models.items() if model is not None},
        **_said(_preference(row["preference"]), name),
    }


@_pairs("LLMBar", ("input", "output_1", "output_2"), uses=("label",), unless=("instruction",))
def _llmbar(row: Row, _: Context) -> Row:
    texts = pair_texts(row["input"], row["output_1"], row["output_2"])
    return {**texts, **({"label": _number(row["label"])} if "label" in row else {})}


@_pairs(
    "chosen and rejected",
    ("chosen", "rejected"),
    uses=(
        *("prompt", "instruction", "question", "context", "input", "system", "system_prompt"),
        *("messages", "pair", "chosen_model", "rejected_model"),
    ),
)
def _preferences(row: Row, context: Context) -> Row | list[Row]:
    """chosen and rejected: RewardBench, UltraFeedback, HH, TRL; what was chosen is side 1."""
    chosen, rejected = parsed_list(row["chosen"]), parsed_list(row["rejected"])
    if _are_texts(chosen) and _are_texts(rejected):  # RewardBench 2 has one that is right and several that are not
        many = [(good, bad) for good in chosen for bad in rejected]
        name = str(row.get("id") or row.get("pair") or "")
        each = [_preferences.read({**row, "chosen": good, "rejected": bad}, context) for good, bad in many]
        return [
            {**one, "id": f"{name}/{n}" if name else ""} for n, one in enumerate(each, 1) if isinstance(one, dict)
        ]
    return {
        **({"id": row["pair"]} if "pair" in row and "id" not in row else {}),
        **pair_texts(*_split(row, chosen, rejected)),
        "model_1": row.get("chosen_model") or "chosen",
        "model_2": row.get("rejected_model") or "rejected",
        "label": "1",
    }


def _split(row: Row, chosen: Any, rejected: Any) -> tuple[str, str, str]:
    """What both responses answer, and the two."""
    before = _before(row)
    if is_messages(chosen) and is_messages(rejected):
        good, bad = (read_messages(value, name) for value, name in ((chosen, "chosen"), (rejected, "rejected")))
        if good[:-1] != bad[:-1] or good[-1].role != "assistant" or bad[-1].role != "assistant":
            raise RowFault("'chosen' and 'rejected' differ before their last message", hint=SKIP)
        shared = good[:-1] if any(one.role == "user" for one in good[:-1]) else [*before, *good[:-1]]
        return _reported(shared), good[-1].text, bad[-1].text
    one, two = read_text(chosen, "chosen"), read_text(rejected, "rejected")
    if before:
        return _reported(before), one, two
    (asked, good_text), (other, bad_text) = _hh(one, "chosen"), _hh(two, "rejected")
    if asked != other:
        raise RowFault("'chosen' and 'rejected' differ before their last answer", hint=SKIP)
    return write_context(asked), good_text, bad_text


def _before(row: Row) -> list[Message]:
    """What was said before the two responses, in whichever field a data set keeps it."""
    name = next((each for each in ("prompt", "instruction", "question", "context", "input") if row.get(each)), None)
    if name is None:
        return []
    found = [Message("user", row[name])] if isinstance(row[name], str) else read_messages(row[name], name)
    system = row.get("system") or row.get("system_prompt")
    return [Message("system", system), *found] if isinstance(system, str) else found


def _reported(messages: Sequence[Message]) -> str:
    if not messages:
        raise RowFault(
            "nothing says what 'chosen' and 'rejected' answer", hint="--columns instruction=FIELD names it"
        )
    return write_context(messages)


def _hh(text: str, field: str) -> tuple[list[Message], str]:
    r"""Anthropic's HH: a conversation as one text.

    >>> _hh("\n\nHuman: Hi\n\nAssistant: Hello", "chosen")
    ([Message(role='user', text='Hi')], 'Hello')
    """
    if not text.startswith(_HUMAN_TURN) or _ASSISTANT_TURN not in text:
        raise RowFault(
            f"no field 'prompt', and field '{field}' is no conversation of Human and Assistant",
            hint="--columns instruction=FIELD,output_1=chosen,output_2=rejected says what was asked",
        )
    shared, _, answer = text.rpartition(_ASSISTANT_TURN)
    parts = re.split(r"\n\n(Human|Assistant):", shared)[1:]
    roles = {"Human": "user", "Assistant": "assistant"}
    turns = [Message(roles[who], said.strip()) for who, said in zip(parts[::2], parts[1::2], strict=True)]
    return turns, answer.strip()


@_pairs("two answers", (_ASKED, _FIRST, _SECOND), uses=("model_a", "model_b", "winner"))
def _two_answers(row: Row, _: Context) -> Row:
    """Any file with a question and two answers under names that speak for themselves."""
    asked, one, two = (_pick(row, names) for names in (_ASKED, _FIRST, _SECOND))
    asked = with_input(row) if "instruction" in row else asked
    said = next((row[name] for name in _WINNER if row.get(name) not in (None, "")), None)
    return {**pair_texts(asked, one, two), **_models(row), "label": _winner(said)}


# -- what several of them share -----------------------------------------------------------------------------------


def with_input(row: Row) -> Any:
    """An instruction with what it is about, as AlpacaFarm keeps them apart.

    >>> with_input({"instruction": "Add.", "input": "2, 2"})
    'Add.\\n\\n2, 2'
    """
    more = row.get("input")
    return f"{row['instruction']}\n\n{more}" if isinstance(more, str) and more.strip() else row["instruction"]


def pair_texts(asked: Any, one: Any, two: Any) -> Row:
    """The texts of a pair, in our words."""
    return {"instruction": asked, "output_1": one, "output_2": two}


def _said(label: Any, who: str) -> Row:
    """A verdict as the pair's label, and under the name of the person or model that gave it."""
    return {"label": label, **({"human": {who: label}} if who else {})}


def _most(sides: Collection[Any]) -> Any:
    """What more than half of some votes say."""
    counts = Counter(map(read_label, sides)).most_common(1)
    return counts[0][0] if counts and 2 * counts[0][1] > len(sides) else None


def _winner(value: Any) -> Any:
    """Arena's words for the winner; a tie may say of which kind, and an error is no verdict."""
    said = re.sub(r"^(tie \(.*\)|both[_ ]?bad)$", "tie", str(value)) if value is not None else None
    return {"model_a": "1", "model_b": "2", "error": None, "nan": None}.get(said, said) if said else None


def _models(row: Row) -> Row:
    """The models of a row; in some files a model that is only revealed after the vote is a dict or empty."""
    found = {"model_1": row.get("model_a"), "model_2": row.get("model_b")}
    return {side: model for side, model in found.items() if isinstance(model, str) and model}


def _turns(value: Any, field: str) -> list[str]:
    """Turns as a JSON list; a turn that broke off is null there."""
    found = parsed_list(value)
    return read_texts(found if isinstance(found, list) else [found], field)


def _are_texts(value: Any) -> bool:
    return isinstance(value, list) and bool(value) and all(isinstance(one, str) for one in value)


def _pick(row: Row, names: str) -> Any:
    return next(row[name] for name in names.split("|") if name in row)


def _signed(value: Any) -> str | None:
    """A preference on a scale: below 0 for the first response, above it for the second."""
    if value is None or value == "":
        return None
    number = float(value)
    return None if math.isnan(number) else "tie" if number == 0 else "1" if number < 0 else "2"


def _preference(value: Any) -> str | None:
    """AlpacaEval's number: 1 for output_1, 2 for output_2, 1.5 or 0 for a tie, and anything between.

    >>> [_preference(x) for x in (1, 2.0, "1.5", 0, 1.8, None)]
    ['1', '2', 'tie', 'tie', '2', None]
    """
    if value is None or value == "":
        return None
    number = float(value)
    if math.isnan(number):
        return None
    if number in (0.0, 1.5):
        return "tie"
    if not 1 <= number <= 2:
        raise RowFault(f"field 'preference' is {value!r}, not from 1 to 2", hint=SKIP)
    return "1" if number < 1.5 else "2"


def is_number(value: Any) -> bool:
    """Whether a field holds a number or nothing; a file of another kind may have words there."""
    try:
        return value in (None, "") or math.isfinite(float(value)) or math.isnan(float(value))
    except (TypeError, ValueError):
        return False


def _word(value: Any) -> Any:
    """A response that was the word True or False, and was made a truth value on its way into the file."""
    return str(value) if isinstance(value, bool) else value


def _number(value: Any) -> Any:
    """A whole number that a frame has made a float of: 1.0 -> 1."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


# The most telling first.
PAIR_FORMATS: tuple[Format, ...] = (
    *(_judgments, _pandalm, _helpsteer, _arena, _kaggle, _judge_bench, _auto_j, _prometheus, _llm_comparator),
    *(_alpaca_eval, _same, _llmbar, _preferences, _two_answers),
)
