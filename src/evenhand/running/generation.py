"""Outputs to judge: any engine that can judge also answers a list of instructions.

read_instructions(path)          what is asked, row by row
generate(asks, writing, store)   ask what is not kept yet; each answer is kept as it comes
output_rows(asks, ...)           the rows of a file of outputs, in the order of the instructions
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
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
from evenhand.io.files.writing import find_columns
from evenhand.io.pairs.instructions import EXPECTED, read_asked
from evenhand.io.pairs.recognition import check_columns, rename_columns
from evenhand.running.pace import Limits, Pace
from evenhand.running.prices import Price
from evenhand.store import Store
from evenhand.store.outputs import Written

# Fields of an earlier answer, which would be mistaken for this one's.
_ANSWERS = (
    *("output", "output_1", "output_2", "generator", "model", "model_id", "choices", "messages", "conversations"),
    *("completion", "response", "label", "labels"),
)


@dataclass(frozen=True, slots=True)
class Instruction:
    """One instruction, and what else its row says of it: further turns, a system message, other fields."""

    instruction: str
    about: Mapping[str, Any] = field(default_factory=dict)
    more: tuple[str, ...] = ()
    system: str = ""

    @property
    def turns(self) -> tuple[str, ...]:
        """All that is asked, one after the other."""
        return (self.instruction, *self.more)


@dataclass(frozen=True)
class Task:
    """Who writes, and under which words of the system."""

    writing: Writing
    system: str = ""

    def key(self, question: Instruction, said: Sequence[str] = ()) -> str:
        """The name of an output: two that were made alike are one. `said` are the answers to earlier turns."""
        identity = json.dumps(dict(self.writing.identity), sort_keys=True)
        return digest("output", identity, self._system(question), *_interleaved(question, said))

    def prompt(self, question: Instruction, said: Sequence[str] = ()) -> Prompt:
        """What the model is given; an instruction is text and opens no turn of its own."""
        turns = [
            Turn(("user", "assistant")[place % 2], (Span(text, trusted=False),))
            for place, text in enumerate(_interleaved(question, said))
        ]
        own = (Span(self.system, trusted=True),) if self.system else ()
        between = (Span("\n\n", trusted=True),) if self.system and question.system else ()
        spans = (*own, *between, *((Span(question.system, trusted=False),) if question.system else ()))
        return Prompt((*((Turn("system", spans),) if spans else ()), *turns))

    def _system(self, question: Instruction) -> str:
        return "\n\n".join(text for text in (self.system, question.system) if text)


def _interleaved(question: Instruction, said: Sequence[str]) -> list[str]:
    """The turns up to the one that is to be answered, each earlier one with its answer."""
    pairs = zip(question.turns, said, strict=False)
    return [text for pair in pairs for text in pair] + [question.turns[len(said)]]


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


def read_instructions(path: str | Path, columns: Mapping[str, str] | None = None) -> Iterator[Instruction]:
    """Stream instructions: rows of any format that is recognised, with all their turns, or lines of a .txt.

    `columns` names the fields of another format: {"instruction": "frage"}. A broken row raises PairError with its
    place.
    """
    named = check_columns(columns or {})
    if Path(path).suffix.lower() == ".txt":
        yield from _lines(Path(path))
        return
    for table in find_tables(path, "instructions"):
        for where, row in files.read_rows(table):
            try:
                yield _ask(row, named)
            except ValueError as fault:
                message, hint = message_and_hint(fault)
                raise table.error(where, message, hint=hint) from None


def check_instructions(path: str | Path, columns: Mapping[str, str] | None = None) -> int:
    """Read all of it once; how many there are."""
    count = sum(1 for _ in read_instructions(path, columns))
    if not count:
        raise PairError(str(path), None, "no instructions in this file", hint=EXPECTED)
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
    """Ask what is not stored yet. Failures are stored with their reasons and tried again in the next run.

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
    """All turns of an instruction; a turn that fails ends it."""
    said: list[str] = []
    asked = cut = False
    for turn in question.turns:
        key = task.key(question, said)
        kept = store.outputs.get(key)
        if kept is not None and kept.text is not None:
            said.append(kept.text)
            cut |= kept.finish == "length"
            continue
        try:
            answer = await pace.ask(task.prompt(question, said))
        except EngineError as error:
            if error.fatal:
                raise
            store.outputs.fail(key, task.writing.identity, turn, error)
            progress.failed += 1
            return
        store.outputs.add(key, task.writing.identity, turn, answer)
        said.append(answer.text)
        asked, cut = True, cut or answer.finish == "length"
        progress.usage += answer.usage
    progress.asked += asked
    progress.kept += not asked
    progress.cut += cut


def output_columns(conversations: bool = False, questions: Iterable[Instruction] = ()) -> dict[str, str]:
    """The columns of a file of outputs, where it has to have some, with what `questions` bring along.

    >>> list(output_columns(questions=[Instruction("Hi", {"topic": "talk"})]))
    ['id', 'instruction', 'output', 'generator', 'finish', 'error', 'settings', 'topic']
    """
    texts = {"messages": "messages"} if conversations else {"instruction": "text", "output": "text"}
    own = {"id": "text", **texts, **dict.fromkeys(("generator", "finish", "error", "settings"), "text")}
    return {**own, **find_columns(each.about for each in questions), **own}


def are_conversations(questions: Iterable[Instruction]) -> bool:
    """Whether any of them has several turns or a system message of its own; then all are written as `messages`.

    >>> are_conversations([Instruction("Hi"), Instruction("Hi", more=("Bye",))])
    True
    """
    return any(question.more or question.system for question in questions)


def output_rows(
    task: Task, questions: Iterable[Instruction], store: Store, name: str = "", *, conversations: bool = False
) -> Iterator[Row]:
    """A row for each instruction; what could not be written is a null with its reason in `error`."""
    settings = {**task.writing.identity, **({"system": task.system} if task.system else {})}
    generator = name or settings["model"]
    for question in questions:
        said, found = _written(task, question, store)
        row = {**question.about, **_said(question, said, conversations), "generator": generator}
        if found is None or found.text is None:
            row["error"] = f"{found.reason}: {found.detail}" if found else "not asked"
        else:
            row["finish"] = found.finish
        yield {**row, "settings": settings}


def _written(task: Task, question: Instruction, store: Store) -> tuple[list[str | None], Written | None]:
    """The answers to the turns of an instruction, up to the first that is missing, and the last that is known."""
    said: list[str] = []
    found = None
    for _ in question.turns:
        found = store.outputs.get(task.key(question, said))
        if found is None or found.text is None:
            return [*said, None], found
        said.append(found.text)
    return [*said], found


def _said(question: Instruction, said: Sequence[str | None], conversation: bool) -> Row:
    if not conversation:
        return {"instruction": question.instruction, "output": said[0]}
    first = [{"role": "system", "content": question.system}] if question.system else []
    turns = [
        {"role": role, "content": text}
        for asked, answer in zip(question.turns, said, strict=False)
        for role, text in (("user", asked), ("assistant", answer))
    ]
    return {"messages": [*first, *turns]}


def _ask(given: Row | RowFault, columns: Mapping[str, str]) -> Instruction:
    if isinstance(given, ValueError):
        raise given
    row = rename_columns(given, columns) if columns else given
    asked = read_asked(row)
    about = {name: item for name, item in row.items() if name not in (*asked.fields, *_ANSWERS)}
    return Instruction(asked.turns[0], about, asked.turns[1:], asked.system)


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
