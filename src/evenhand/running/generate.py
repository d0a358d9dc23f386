"""Outputs to judge: any engine that can judge also answers a list of instructions.

read_instructions(path)          what is asked, row by row
generate(asks, writing, store)   ask what is not kept yet; each answer is kept as it comes
output_rows(asks, ...)           the rows of a file of outputs, in the order of the instructions
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from evenhand.core.engine import Usage, Writing
from evenhand.core.errors import EngineError, InputError, PairError
from evenhand.core.faults import RowFault, message_and_hint
from evenhand.core.markup import Span, Turn
from evenhand.core.pair import digest
from evenhand.core.protocol import Prompt
from evenhand.io import files
from evenhand.io.files import Row, Table, find_tables
from evenhand.io.pairs.rows import named_fields
from evenhand.running.pace import Limits, Pace
from evenhand.running.prices import Price
from evenhand.store import Store

_EXPECTED = "expected rows with the field instruction, or a .txt file with one on each line"
_ASKED = ("instruction", "prompt", "turns")
# Fields that belong to somebody's answer and would be mistaken for this one's.
_ANSWERS = (
    "output",
    "output_1",
    "output_2",
    "generator",
    "model",
    "model_id",
    "choices",
    "messages",
    "label",
    "labels",
)


@dataclass(frozen=True, slots=True)
class Instruction:
    """One instruction, and what else its row says of it."""

    instruction: str
    about: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Task:
    """Who writes, and under which words of the system."""

    writing: Writing
    system: str = ""

    def key(self, question: Instruction) -> str:
        """The name of an output: two that were made alike are one."""
        identity = json.dumps(dict(self.writing.identity), sort_keys=True)
        return digest("output", identity, self.system, question.instruction)

    def prompt(self, question: Instruction) -> Prompt:
        """What the model is given; an instruction is text and opens no turn of its own."""
        user = Turn("user", (Span(question.instruction, trusted=False),))
        first = (Turn("system", (Span(self.system, trusted=True),)),) if self.system else ()
        return Prompt((*first, user))


@dataclass
class GenerationProgress:
    """What a run has done so far."""

    asked: int = 0
    kept: int = 0  # that were there already
    failed: int = 0
    cut: int = 0  # by the limit of tokens
    usage: Usage = field(default_factory=Usage)

    @property
    def done(self) -> int:
        """Instructions that are behind us."""
        return self.asked + self.kept + self.failed


def read_instructions(path: str | Path) -> Iterator[Instruction]:
    """Stream instructions: rows with `instruction`, `prompt` or `turns` (the first counts), or lines of a .txt.

    A broken row raises PairError with its place.
    """
    if Path(path).suffix.lower() == ".txt":
        yield from _lines(Path(path))
        return
    for table in find_tables(path, "instructions"):
        for where, row in files.read_rows(table):
            try:
                yield _ask(row)
            except ValueError as fault:
                message, hint = message_and_hint(fault)
                raise table.error(where, message, hint=hint) from None


def check_instructions(path: str | Path) -> int:
    """Read all of it once; how many there are."""
    count = sum(1 for _ in read_instructions(path))
    if not count:
        raise PairError(str(path), None, "no instructions in this file", hint=_EXPECTED)
    return count


async def generate(
    task: Task,
    questions: Iterable[Instruction],
    store: Store,
    *,
    limits: Limits | None = None,
    price: Price | None = None,
    on_done: Callable[[GenerationProgress], None] | None = None,
) -> GenerationProgress:
    """Ask what is not kept yet. What fails is kept with its reason, and tried again in the next run.

    >>> from evenhand.core.engine import Sampling
    >>> from evenhand.engines.scripted import ScriptedEngine
    >>> task = Task(Writing(ScriptedEngine(lambda prompt: "Hello."), Sampling()))
    >>> store = Store(":memory:")
    >>> asyncio.run(generate(task, [Instruction("Hi")], store)).asked
    1
    >>> asyncio.run(generate(task, [Instruction("Hi")], store)).kept
    1
    """
    progress, pace, left = GenerationProgress(), Pace(task.writing, limits or Limits(), price), iter(questions)

    async def work() -> None:
        for question in left:  # shared: each worker takes the next
            await _one(task, question, store, pace, progress)
            if on_done:
                on_done(progress)

    try:
        async with asyncio.TaskGroup() as group:
            for _ in range(pace.most):
                group.create_task(work())
    except BaseExceptionGroup as faults:
        raise faults.exceptions[0] from None
    return progress


async def _one(task: Task, question: Instruction, store: Store, pace: Pace, progress: GenerationProgress) -> None:
    key = task.key(question)
    kept = store.outputs.get(key)
    if kept is not None and kept.text is not None:
        progress.kept += 1
        progress.cut += kept.finish == "length"
        return
    try:
        answer = await pace.ask(task.prompt(question))
    except EngineError as error:
        if error.fatal:
            raise
        store.outputs.fail(key, task.writing.identity, question.instruction, error)
        progress.failed += 1
        return
    store.outputs.add(key, task.writing.identity, question.instruction, answer)
    progress.asked += 1
    progress.cut += answer.finish == "length"
    progress.usage += answer.usage


OUTPUT_COLUMNS = dict.fromkeys(("id", "instruction", "output", "generator", "finish", "error", "settings"), "text")


def output_rows(task: Task, questions: Iterable[Instruction], store: Store, name: str = "") -> Iterator[Row]:
    """A row for each instruction; what could not be written is a null with its reason in `error`."""
    settings = {**task.writing.identity, **({"system": task.system} if task.system else {})}
    generator = name or settings["model"]
    for question in questions:
        found = store.outputs.get(task.key(question))
        text = found.text if found else None
        row = {**question.about, "instruction": question.instruction, "output": text, "generator": generator}
        if found is None or text is None:
            row["error"] = f"{found.reason}: {found.detail}" if found else "not asked"
        else:
            row["finish"] = found.finish
        yield {**row, "settings": settings}


def _ask(row: Row | RowFault) -> Instruction:
    if isinstance(row, ValueError):
        raise row
    field = next((name for name in _ASKED if name in row), None)
    if field is None:
        raise RowFault("no field 'instruction'", hint=f"{_EXPECTED}; {named_fields(row)}")
    value = row[field]
    if field == "turns":
        value = value[0] if isinstance(value, list) and value else None
        value = value.get("content") if isinstance(value, Mapping) else value
    if not isinstance(value, str) or not value.strip():
        raise RowFault(f"field '{field}' is {'empty' if value == '' else 'no text'}", hint="give each row a text")
    about = {name: item for name, item in row.items() if name not in (*_ASKED, *_ANSWERS)}
    return Instruction(value, about)


def _lines(path: Path) -> Iterator[Instruction]:
    table = Table(path, str(path), ".txt")
    try:
        with path.open("rb") as file:
            for number, line in enumerate(file, 1):
                try:
                    text = line.decode("utf-8-sig" if number == 1 else "utf-8").strip()
                except UnicodeDecodeError as fault:
                    raise table.error(
                        number, f"not UTF-8 at byte {fault.start}", hint="write the file in UTF-8"
                    ) from None
                if text:
                    yield Instruction(text)
    except FileNotFoundError:
        raise InputError(f"no file of instructions at {path}") from None
