"""One model's outputs, read through the one door: output_formats.py lists the formats."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from evenhand.core.errors import InputError, PairError
from evenhand.io.files import Row, Table, find_tables
from evenhand.io.pairs.questions import Questions
from evenhand.io.pairs.recognition import Recogniser, blame
from evenhand.io.pairs.rows import check_encodable, name_in


@dataclass(frozen=True, slots=True)
class Output:
    """What one model answered to one instruction."""

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


def read_outputs(
    path: str | Path,
    questions: Questions | None = None,
    *,
    skip_bad: bool = False,
    skipped: list[PairError] | None = None,
    columns: Mapping[str, str] | None = None,
    notes: Counter[str] | None = None,
) -> Iterator[Placed]:
    """Stream the outputs of a file, a glob, a folder or '-'; what is broken raises, or goes into `skipped`.

    `notes` counts what is to be said of the files, such as that only the first turn is judged.
    """
    door = Recogniser("outputs", columns, questions)
    for table, where, found in door.rows(find_tables(path, "outputs")):
        try:
            if isinstance(found, PairError):
                raise found
            yield Placed(output_from(found.row), table, where)
            continue
        except (ValueError, InputError) as fault:
            error = fault if isinstance(fault, PairError) else blame(table, where, fault)
        if not skip_bad:
            raise error from None
        if skipped is not None:
            skipped.append(error)
    if notes is not None:
        notes.update(door.context.notes)


def output_from(row: Row) -> Output:
    """One model's output out of one row in evenhand's words; raises RowFault where a name is none.

    >>> output_from({"instruction": "Hi", "output": "Hello", "model": "m", "dataset": "d"})
    Output(instruction='Hi', text='Hello', model='m', id='', about={'dataset': 'd'})
    """
    check_encodable(row)
    rest = dict(row)
    instruction, text = rest.pop("instruction"), rest.pop("output")
    model, name = (name_in(rest.pop(field, None), field) for field in ("model", "id"))
    return Output(instruction, text, model, name, rest)
