"""The questions of files of answers that do not hold them: MT-Bench, Arena-Hard, the input of an OpenAI batch."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from evenhand.core.errors import PairError
from evenhand.core.faults import RowFault, message_and_hint
from evenhand.io import files
from evenhand.io.files import Row, Table, find_tables
from evenhand.io.pairs.messages import SKIP, read_messages, read_texts, write_context, write_turns

_KEYS = ("question_id", "uid", "custom_id", "id")
_EXPECTED = "expected question_id and turns"


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
            raise PairError(str(path), None, "no questions in this file", hint=_EXPECTED)

    def _add(self, table: Table, where: int, row: Row | RowFault) -> None:
        try:
            if isinstance(row, RowFault):
                raise row
            key = key_of_question(row, next((name for name in _KEYS if name in row), "question_id"))
            turns = _turns(row)
        except ValueError as fault:
            message, hint = message_and_hint(fault)
            raise table.error(where, message, hint=hint or _EXPECTED) from None
        if key in self._turns:
            raise table.error(where, f"question '{key}' appears twice", hint="keep one of them")
        self._turns[key] = turns

    def of(self, key: str) -> list[str]:
        """The turns of a question."""
        if self.path is None:
            raise RowFault("the instruction is not in this file", hint="give the questions' file with --questions")
        if key not in self._turns:
            raise RowFault(f"question '{key}' is not in {self.path}", hint="give the questions that were answered")
        return self._turns[key]

    def text_of(self, turns: Sequence[str], field: str, system: str = "") -> str:
        """A conversation up to the turn that is compared, as one text.

        >>> print(Questions(turn=2).text_of(["Hi", "Bye"], "turns"))
        [Turn 1]
        Hi
        <BLANKLINE>
        [Turn 2]
        Bye
        """
        if len(turns) < self.turn:
            raise RowFault(
                f"field '{field}' has {len(turns)} turns, not {self.turn}",
                hint=f"compare turn {len(turns)}, or {SKIP}",
            )
        return write_turns(turns[: self.turn], system=system)


def key_of_question(row: Row, field: str) -> str:
    """The id by which a row names its question."""
    value = row.get(field)
    if value is None or isinstance(value, (dict, list, bool)):
        raise RowFault(f"no field '{field}'", hint="each row needs the id of its question")
    return str(value)


def _turns(row: Row) -> list[str]:
    """The turns of a question; messages up to an answer are one."""
    body: Any = row.get("body")
    asked = body.get("messages") if isinstance(body, dict) else row.get("messages")
    if asked is not None:
        return [write_context(read_messages(asked, "messages"))]
    if "turns" in row:
        return read_texts(row["turns"], "turns")
    text = next((row[name] for name in ("prompt", "instruction", "question") if name in row), None)
    return read_texts([text] if text is not None else None, "turns")
