"""One model's outputs, in the forms that the tools of this field write them.

AlpacaEval        instruction, output, generator
plain             instruction, output, and where known model, id
MT-Bench          question_id, model_id, choices[].turns[]            needs the questions' file
Arena-Hard 0.1    the same, each turn an object with its content      needs the questions' file
Arena-Hard 2.0    uid, model, messages[]

Which of them a file is in, its first row says; a row of another form is a fault.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from evenhand.core.errors import InputError, PairError
from evenhand.core.faults import RowFault, message_and_hint
from evenhand.io import files
from evenhand.io.files import Row, Table, find_tables
from evenhand.io.pairs.rows import named_fields

_MODEL_FIELDS = ("generator", "model", "model_id")
# What FastChat writes where a service gave no answer, and where a model that it ran itself broke down.
_FAILED, _BROKE_DOWN = "$ERROR$", "ERROR"
_EXPECTED = "expected instruction and output, or choices, or messages"
_SKIP = "--skip-bad leaves such rows out"


@dataclass(frozen=True, slots=True)
class Output:
    """What one model answered to one instruction.

    >>> output_from({"instruction": "Hi", "output": "Hello", "generator": "m", "dataset": "d"})
    Output(instruction='Hi', text='Hello', model='m', id='', about={'dataset': 'd'})
    """

    instruction: str
    text: str
    model: str = ""
    id: str = ""
    about: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Placed:
    """An output and where it stands."""

    output: Output
    table: Table
    where: int

    def error(self, fault: str, *, hint: str = "") -> PairError:
        """A fault of this output, with its place."""
        return self.table.error(self.where, fault, hint=hint)


class Questions:
    """The questions of MT-Bench or Arena-Hard by their id; with none, only files that hold their own can be read.

    `turn` is how far into the conversation the outputs are compared. From the second turn on, instruction and
    output hold all turns up to it, each under a heading.
    """

    def __init__(self, path: str | Path | None = None, turn: int = 1) -> None:
        self.path, self.turn = path, turn
        self._turns: dict[str, list[str]] = {}
        for table in find_tables(path, "questions") if path else []:
            for where, row in files.read_rows(table):
                self._add(table, where, row)
        if path and not self._turns:
            raise PairError(str(path), None, "no questions in this file", hint="expected question_id and turns")

    def _add(self, table: Table, where: int, row: Row | RowFault) -> None:
        try:
            if isinstance(row, RowFault):
                raise row
            key = _name(row, "question_id" if "question_id" in row else "uid")
            turns = [row["prompt"]] if "prompt" in row and "turns" not in row else row.get("turns")
            texts = _texts(turns, "turns")
        except ValueError as fault:
            message, hint = message_and_hint(fault)
            raise table.error(where, message, hint=hint or "expected question_id and turns") from None
        if key in self._turns:
            raise table.error(where, f"question '{key}' stands twice", hint="keep one of them")
        self._turns[key] = texts

    def of(self, key: str) -> list[str]:
        """The turns of a question."""
        if self.path is None:
            raise RowFault("the instruction is not in this file", hint="give the questions' file with --questions")
        if key not in self._turns:
            raise RowFault(f"question '{key}' is not in {self.path}", hint="give the questions that were answered")
        return self._turns[key]

    def text_of(self, turns: Sequence[str], field: str) -> str:
        """A conversation up to the turn that is compared, as one text.

        >>> print(Questions(turn=2).told(["Hi", "Bye"], "turns"))
        [Turn 1]
        Hi
        <BLANKLINE>
        [Turn 2]
        Bye
        """
        if len(turns) < self.turn:
            raise RowFault(
                f"field '{field}' has {len(turns)} turns, not {self.turn}",
                hint=f"compare turn {len(turns)}, or {_SKIP}",
            )
        if self.turn == 1:
            return turns[0]
        return "\n\n".join(f"[Turn {number}]\n{text}" for number, text in enumerate(turns[: self.turn], 1))


def form_of(row: Mapping[str, Any]) -> str:
    """The form that a row is in; the fault says what was expected.

    >>> form_of({"question_id": 81, "choices": []}), form_of({"uid": "x", "messages": []})
    ('choices', 'messages')
    """
    if "choices" in row:
        return "choices"
    if "messages" in row and "output" not in row:
        return "messages"
    if "output_1" in row:
        raise RowFault("this is a pair, not one model's output", hint="judge a file of pairs by its name alone")
    for name in ("instruction", "output"):
        if name not in row:
            raise RowFault(f"no field '{name}'", hint=f"{_EXPECTED}; {named_fields(row)}")
    return "plain"


def output_from(row: Row, questions: Questions | None = None) -> Output:
    """One model's output out of one row; raises RowFault that says which field is at fault."""
    readers = {"plain": _plain, "choices": _choices, "messages": _messages}
    return readers[form_of(row)](dict(row), questions or Questions())


def read_outputs(
    path: str | Path,
    questions: Questions | None = None,
    *,
    skip_bad: bool = False,
    skipped: list[PairError] | None = None,
) -> Iterator[Placed]:
    """Stream the outputs of a file, a glob, a folder or '-'; what is broken raises, or goes into `skipped`."""
    for table in find_tables(path, "outputs"):
        form = ""
        for where, row in files.read_rows(table):
            try:
                if isinstance(row, ValueError):
                    raise row
                form = form or form_of(row)
                _refuse_mixture(form, row)
                yield Placed(output_from(row, questions), table, where)
            except (ValueError, InputError) as fault:
                message, hint = message_and_hint(fault)
                error = table.error(where, message, hint=hint)
                if not skip_bad:
                    raise error from None
                if skipped is not None:
                    skipped.append(error)


def _refuse_mixture(form: str, row: Row) -> None:
    other = form_of(row)
    if other != form:
        raise RowFault(
            f"this row has '{other if other != 'plain' else 'output'}', the rows before it have"
            f" '{form if form != 'plain' else 'output'}'",
            hint="put rows of one form into one file",
        )


def _plain(row: Row, _: Questions) -> Output:
    instruction, text = _text(row, "instruction"), _text(row, "output")
    more = row.pop("input", "")
    if isinstance(more, str) and more.strip():  # as AlpacaFarm keeps what an instruction is about
        instruction = f"{instruction}\n\n{more}"
    model = _model(row)
    return Output(instruction, text, model, _name(row, "id", ""), row)


def _choices(row: Row, questions: Questions) -> Output:
    """FastChat's form; where it was asked several times, its first choice counts."""
    choices, key = row.pop("choices"), _name(row, "question_id")
    if not isinstance(choices, list) or not choices or not isinstance(choices[0], Mapping):
        raise RowFault("field 'choices' holds no choice", hint=_SKIP)
    texts = _texts(choices[0].get("turns"), "choices[0].turns")
    if _BROKE_DOWN in texts:
        place = f"choices[0].turns[{texts.index(_BROKE_DOWN)}]"
        raise RowFault(
            f"field '{place}' is {_BROKE_DOWN}: the model gave no answer", hint=f"generate it again; {_SKIP}"
        )
    model = _model(row)
    about = {name: value for name, value in row.items() if name not in ("answer_id", "tstamp", "conv_metadata")}
    return Output(
        questions.text_of(questions.of(key), "turns"),
        questions.text_of(texts, "choices[0].turns"),
        model,
        key,
        about,
    )


def _messages(row: Row, questions: Questions) -> Output:
    messages, key = row.pop("messages"), _name(row, "uid", "") or _name(row, "id", "")
    if not isinstance(messages, list) or not all(isinstance(message, Mapping) for message in messages):
        raise RowFault("field 'messages' is not a list of turns", hint=_SKIP)
    asked = _texts([m.get("content") for m in messages if m.get("role") == "user"], "messages")
    said = _texts([m.get("content") for m in messages if m.get("role") == "assistant"], "messages")
    model = _model(row)
    about = {name: value for name, value in row.items() if name not in ("ans_id", "tstamp", "metadata")}
    return Output(
        questions.text_of(asked, "messages"),
        questions.text_of(said, "messages"),
        model,
        key,
        about,
    )


def _texts(turns: Any, field: str) -> list[str]:
    """Turns that are texts, or objects with their text as `content` or `answer`."""
    if not isinstance(turns, list) or not turns:
        raise RowFault(f"field '{field}' holds no turns", hint=_SKIP)
    return [_checked(_inner(turn), f"{field}[{number}]") for number, turn in enumerate(turns)]


def _inner(turn: Any) -> Any:
    while isinstance(turn, Mapping):
        turn = turn.get("content", turn.get("answer"))
    return turn


def _text(row: Row, name: str) -> str:
    return _checked(row.pop(name), name)


def _checked(value: Any, name: str) -> str:
    if value is None:
        raise RowFault(
            f"field '{name}' is null: the model gave no answer, or refused",
            hint=f'write "" where that should be judged as an empty answer; {_SKIP}',
        )
    if not isinstance(value, str):
        raise RowFault(
            f"field '{name}' is of type {type(value).__name__}, not text", hint=f"write it as text, or {_SKIP}"
        )
    if value == _FAILED:
        raise RowFault(
            f"field '{name}' is {_FAILED}: the service gave no answer", hint=f"generate it again; {_SKIP}"
        )
    return value


def _model(row: Row) -> str:
    names = [str(row.pop(name)) for name in _MODEL_FIELDS if isinstance(row.get(name), str)]
    return names[0] if names else ""


def _name(row: Row, key: str, default: str | None = None) -> str:
    value = row.pop(key, default)
    if value is None or isinstance(value, (dict, list, bool)):
        raise RowFault(f"no field '{key}'", hint="each row needs the id of its question")
    return str(value)
