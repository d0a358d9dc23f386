"""Formats of one model's outputs, each a function: its name, the fields that tell it apart, and how a row is read.

A row becomes `instruction`, `output` and, where known, `model` and `id`. Conversations of several turns are
compared up to the turn that the reading names, and a note says so.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from evenhand.core.faults import RowFault
from evenhand.io.files import Row
from evenhand.io.files.reading import outer_of
from evenhand.io.pairs.formats import with_input
from evenhand.io.pairs.messages import (
    SKIP,
    Dialogue,
    Message,
    dialogue_of,
    is_messages,
    parsed_list,
    read_messages,
    read_text,
    read_texts,
    write_context,
)
from evenhand.io.pairs.questions import key_of_question
from evenhand.io.pairs.recognition import Context, Format, reads

_outputs = partial(reads, "outputs")
_MODEL_FIELDS = ("generator", "model", "model_id")
_NAMES = (*_MODEL_FIELDS, "id")
# What FastChat writes where a model that it ran itself failed.
_BROKE_DOWN = "ERROR"
_SYSTEM = ("system", "system_prompt")
_LONGEST_NAME = 24  # of a prompt, whose label may be all of it
_FILE_OF_PROMPT = re.compile(r"(\S+\.\w+): ")
_ASKED = ("prompt", "input", "question", "instruction")
_ANSWERED = ("response", "output", "answer")


@_outputs("outputs", ("instruction", "output"), uses=("input", *_NAMES))
def _plain(row: Row, _: Context) -> Row:
    instruction, text = read_text(row["instruction"], "instruction"), read_text(row["output"], "output")
    return {"instruction": with_input({**row, "instruction": instruction}), "output": text, **_named(row)}


@_outputs(
    "MT-Bench or Arena-Hard answers",
    ("choices",),
    uses=("question_id", "answer_id", "tstamp", "conv_metadata", *_NAMES),
    unless=("output",),
)
def _choices(row: Row, context: Context) -> Row:
    """FastChat's form; where it was asked several times, its first choice counts."""
    choices, key = row["choices"], key_of_question(row, "question_id")
    if not isinstance(choices, list) or not choices or not isinstance(choices[0], Mapping):
        raise RowFault("field 'choices' holds no choice", hint=SKIP)
    if len(choices) > 1:
        context.note("of several choices, the first is judged")
    texts = read_texts(choices[0].get("turns"), "choices[0].turns")
    if _BROKE_DOWN in texts:
        place = f"choices[0].turns[{texts.index(_BROKE_DOWN)}]"
        raise RowFault(
            f"field '{place}' is {_BROKE_DOWN}: the model gave no answer", hint=f"generate it again; {SKIP}"
        )
    questions = context.questions
    asked = questions.text_of(questions.of(key), "turns")
    said = questions.text_of(texts, "choices[0].turns")
    _note_turns(len(texts), context)
    return {"instruction": asked, "output": said, **_named(row), "id": key}


@_outputs(
    "messages",
    ("messages",),
    uses=("uid", "ans_id", "tstamp", "metadata", *_SYSTEM, *_NAMES),
    unless=("output", "chosen"),
)
def _messages(row: Row, context: Context) -> Row:
    return {**_talk(row, "messages", context), **_named(row), "id": row.get("uid", row.get("id"))}


@_outputs("ShareGPT", ("conversations",), uses=(*_SYSTEM, *_NAMES))
def _share_gpt(row: Row, context: Context) -> Row:
    return {**_talk(row, "conversations", context), **_named(row)}


def _talk(row: Row, field: str, context: Context) -> Row:
    """A conversation of one model, up to the turn that is compared."""
    messages = read_messages(row[field], field)
    above = next((row[name] for name in _SYSTEM if isinstance(row.get(name), str) and row[name]), "")
    if above and not any(one.role == "system" for one in messages):
        messages = [Message("system", above), *messages]
    return _compared(dialogue_of(messages, field), field, context)


def _compared(talk: Dialogue, field: str, context: Context) -> Row:
    _note_turns(len(talk.asked), context)
    questions = context.questions
    return {
        "instruction": questions.text_of(talk.asked, field, talk.system),
        "output": questions.text_of(talk.said, field),
    }


def _note_turns(turns: int, context: Context) -> None:
    turn = context.questions.turn
    if turns > turn:
        how = f"turn {turn}" if turn == 1 else f"turns 1 to {turn}"
        context.note(f"judging {how} of {turns}; --turn {turns} judges all of them")


@_outputs("OpenAI batch", ("custom_id", "response"), uses=("id", "error"))
def _batch(row: Row, context: Context) -> Row:
    """The output of an OpenAI batch; what was asked is in the batch's input."""
    key = key_of_question(row, "custom_id")
    response = row.get("response")
    body = response.get("body") if isinstance(response, Mapping) else None
    if row.get("error") or not isinstance(body, Mapping):
        raise RowFault("the batch gave no answer to this request", hint=f"send it again; {SKIP}")
    asked = context.questions.text_of(context.questions.of(key), "messages")
    return {"instruction": asked, "output": _completion(body), "model": body.get("model"), "id": key}


def _completion(body: Mapping[str, Any]) -> str:
    """The text in an answer of /v1/chat/completions, /v1/completions or /v1/responses."""
    choices = body.get("choices")
    if isinstance(choices, list) and choices and isinstance(choices[0], Mapping):
        first = choices[0]
        return read_text(first.get("message", first.get("text")), "choices[0].message.content")
    parts = [
        part for part in body.get("output") or () if isinstance(part, Mapping) and part.get("type") == "message"
    ]
    if parts:
        return read_text(parts[-1].get("content"), "output.content")
    error = body.get("error")
    raise RowFault(f"the batch gave no answer: {error or 'neither choices nor output'}", hint=SKIP)


@_outputs(
    "Inspect log",
    ("input", "output", "target"),
    uses=("id", "epoch", "messages", "events", "attachments", "store", "model_usage", "uuid"),
    test=lambda row: isinstance(row["output"], Mapping),
)
def _inspect(row: Row, context: Context) -> Row | None:
    """A sample of an Inspect log; of several epochs the first is judged."""
    if int(row.get("epoch") or 1) > 1:
        context.note("of several epochs, the first is judged")
        return None
    asked = row["input"]
    shared = [Message("user", asked)] if isinstance(asked, str) else read_messages(asked, "input")
    given = [one for one in row.get("messages") or () if isinstance(one, Mapping) and one.get("role") == "system"]
    if given and not any(one.role == "system" for one in shared):
        shared = [*read_messages(given, "messages"), *shared]
    output = row["output"]
    choices = output.get("choices") if isinstance(output, Mapping) else None
    if not choices:
        raise RowFault("the sample has no output", hint=f"its run broke off; {SKIP}")
    spec = outer_of(row).get("eval")
    model = spec.get("model") if isinstance(spec, Mapping) else None
    return {
        "instruction": write_context(shared),
        "output": read_text(choices[0].get("message"), "output.choices[0].message.content"),
        "model": model or output.get("model"),
        "id": row.get("id"),
    }


@_outputs("promptfoo", ("prompt", "provider", "vars"), uses=("response", "id", "error"), unless=("output_1",))
def _promptfoo(row: Row, context: Context) -> Row:
    """A result of promptfoo: the prompt with its variables filled in, and what a provider answered.

    Where a file holds several prompts, these are what is compared: the variables are the instruction, and a prompt
    is part of the model's name.
    """
    response, provider, prompt = row.get("response"), row["provider"], row["prompt"]
    output = response.get("output") if isinstance(response, Mapping) else None
    if output is None:
        raise RowFault(f"the provider gave no answer: {row.get('error') or 'no output'}", hint=SKIP)
    raw = prompt.get("raw") if isinstance(prompt, Mapping) else prompt
    name = (provider.get("label") or provider.get("id")) if isinstance(provider, Mapping) else provider
    asked = _prompt(raw, "prompt.raw")
    prompts = _listed_around(row, "label", "raw")
    if len(prompts) > 1 and isinstance(row["vars"], Mapping) and row["vars"]:
        context.note("several prompts in one file: their variables are the instruction, and each is a model")
        label = (prompt.get("label") or raw) if isinstance(prompt, Mapping) else prompt
        tried = _name_of_prompt(label, prompts)
        asked, name = (
            _variables(row["vars"]),
            tried if len(_listed_around(row, "provider")) == 1 else f"{name}, {tried}",
        )
    return {
        "instruction": asked,
        "output": output if isinstance(output, str) else json.dumps(output, ensure_ascii=False),
        "model": name,
    }


def _listed_around(row: Row, *names: str) -> list[str]:
    """What the prompts have under a name that a file of promptfoo lists beside its results, each value once."""
    around = outer_of(row).get("prompts")
    found = [one for one in around if isinstance(one, Mapping)] if isinstance(around, list) else []
    values = (next((one[name] for name in names if one.get(name)), None) for one in found)
    return [*dict.fromkeys(value for value in values if isinstance(value, str))]


def _variables(given: Any) -> str:
    """The variables of a test as text: the only one by itself, several under their names.

    >>> _variables({"question": "2 + 2?"}), _variables({"text": "Hi", "into": "French"})
    ('2 + 2?', 'text: Hi\\n\\ninto: French')
    """
    texts = {
        name: value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
        for name, value in given.items()
    }
    if len(texts) == 1:
        return next(iter(texts.values()))
    return "\n\n".join(f"{name}: {text}" for name, text in texts.items())


def _name_of_prompt(label: Any, prompts: Sequence[str]) -> str:
    """What to call a prompt: its label if that is short, the file that it begins with, or its number.

    >>> prompts = ["terse", "prompts/long.txt: Answer {{question}} in detail", "Answer {{question}} in one word"]
    >>> [_name_of_prompt(label, prompts) for label in prompts]
    ['terse', 'prompts/long.txt', 'prompt 3']
    """
    text = " ".join(str(label).split())
    file = _FILE_OF_PROMPT.match(text)
    if len(text) <= _LONGEST_NAME or (file is None and label not in prompts):
        return text
    return file[1] if file else f"prompt {prompts.index(label) + 1}"


@_outputs("lm-evaluation-harness", ("doc", "arguments", "resps"), uses=("doc_id", "filter"))
def _harness(row: Row, context: Context) -> Row | None:
    """A sample of lm-evaluation-harness; each filter repeats the answers, so those of the first are read."""
    name = row.get("filter")
    if context.memory.setdefault("filter", name) != name:
        context.note(f"the rows of filter '{name}' repeat the answers, and are left out")
        return None
    answers = row["resps"]
    while isinstance(answers, list) and answers and isinstance(answers[0], list):
        answers = answers[0]
    if not isinstance(answers, list) or not answers or not isinstance(answers[0], str):
        raise RowFault(
            "the sample holds no text that a model wrote",
            hint="a task of multiple choice only scores its options; judge one that generates",
        )
    return {
        "instruction": _prompt(_argument(row["arguments"]), "arguments"),
        "output": answers[0],
        "id": row["doc_id"],
    }


def _argument(arguments: Any) -> Any:
    """The prompt among the arguments of a request: a list of lists, or objects with arg_0."""
    found = arguments
    if isinstance(found, Mapping):
        found = next(iter(found.values()), None)
        found = found.get("arg_0") if isinstance(found, Mapping) else found
    while isinstance(found, list) and found and not is_messages(found):
        found = found[0]
    return found


@_outputs("prompt and completion", ("prompt", "completion"), uses=_NAMES)
def _completions(row: Row, _: Context) -> Row:
    """prompt and completion, as TRL and `evenhand export kto` write them."""
    completion = row["completion"]
    if is_messages(completion):
        completion = read_messages(completion, "completion")[-1].text
    asked = _prompt(row["prompt"], "prompt")
    return {"instruction": asked, "output": read_text(completion, "completion"), **_named(row)}


@_outputs(
    "prompt and response",
    ("|".join(_ASKED), "|".join(_ANSWERED)),
    uses=(*_NAMES, "response_model_name", *_SYSTEM),
    unless=("output_1", "output_2"),
)
def _responses(row: Row, _: Context) -> Row:
    """AutoArena's prompt, response and model; BiGGen-Bench's input, response and response_model_name; plain names.

    Beside a response or an output, an answer is the reference.
    """
    asked = next(row[name] for name in _ASKED if name in row)
    answered = next(name for name in _ANSWERED if name in row)
    system = next((row[name] for name in _SYSTEM if isinstance(row.get(name), str) and row[name]), "")
    shared = [Message("system", system)] if system else []
    text = read_text(row[answered], answered)
    named = _named(row)
    model = row.get("response_model_name")
    return {
        "instruction": write_context([*shared, Message("user", _prompt(asked, "prompt"))]),
        "output": text,
        **named,
        **({"model": model} if model else {}),
    }


def _prompt(value: Any, field: str) -> str:
    """A prompt as text; one that is a list of messages, or JSON that holds one, as a conversation."""
    found = parsed_list(value)
    return write_context(read_messages(found, field)) if is_messages(found) else read_text(value, field)


def _named(row: Row, names: Sequence[str] = _MODEL_FIELDS) -> Row:
    model = next((row[name] for name in names if isinstance(row.get(name), str) and row[name]), "")
    return {"model": model, "id": row.get("id")}


# The most telling first.
OUTPUT_FORMATS: tuple[Format, ...] = (
    *(_inspect, _batch, _promptfoo, _harness, _choices, _messages, _share_gpt, _completions, _plain, _responses),
)
