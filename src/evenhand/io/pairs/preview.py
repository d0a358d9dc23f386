"""What a file holds, before anything is judged: the format it was recognised as, some rows, what is left over."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from evenhand.core.errors import InputError, PairError
from evenhand.io.files import Row, Table, find_tables
from evenhand.io.files import read_rows as file_rows
from evenhand.io.pairs.join import JoinOptions
from evenhand.io.pairs.outputs import output_from
from evenhand.io.pairs.questions import Questions
from evenhand.io.pairs.recognition import Kind, Recognised, Recogniser, blame, recognise, rename_columns
from evenhand.io.pairs.rows import pair_from
from evenhand.io.pairs.verdict_formats import VERDICT_FIELDS

_ROWS = 3
_LOOKED_AT = 100  # rows in which fields are looked for


@dataclass(frozen=True, slots=True)
class FilePreview:
    """What a file was recognised as: its first rows in evenhand's words, and the fields that are left over."""

    file: str
    format: str
    kind: Kind
    rows: tuple[Row, ...]
    left_over: tuple[str, ...]
    notes: tuple[str, ...]


def look_at(path: str | Path, reading: JoinOptions | None = None) -> list[FilePreview]:
    """What each of the files is; a file that is not recognised raises PairError with what was found and expected.

    >>> sample = Path(__file__).parents[1] / "sample.jsonl"
    >>> [preview] = look_at(sample)
    >>> preview.format, preview.kind, len(preview.rows)
    ('pairs', 'pairs', 3)
    """
    reading = reading or JoinOptions()
    questions = Questions(reading.questions, reading.turn)
    return [_look(table, reading, questions) for table in find_tables(path, "pairs or outputs")]


def _look(table: Table, reading: JoinOptions, questions: Questions) -> FilePreview:
    door = Recogniser(_kind(table, reading), reading.columns, questions)
    found: list[Recognised] = []
    for _, where, each in islice(door.rows([table]), _LOOKED_AT):
        fault = each if isinstance(each, PairError) else _fault(table, where, each, door.kind)
        if fault is None:
            assert isinstance(each, Recognised)
            found.append(each)
        elif not reading.skip_bad:
            raise fault
    if not found:
        raise PairError(table.name, None, "no rows in this file", hint="expected pairs, or outputs of a model")
    left = dict.fromkeys(name for each in found for name in each.left_over if name not in _known(door.kind))
    notes = (*door.context.notes, *_verdict_notes(door.kind, left))
    return FilePreview(
        table.name, found[0].format.name, door.kind, tuple(each.row for each in found[:_ROWS]), tuple(left), notes
    )


def _verdict_notes(kind: Kind, left: Iterable[str]) -> list[str]:
    """What reads the verdicts that judging leaves over.

    >>> _verdict_notes("pairs", ["topic", "verdict"])
    ['judging does not read verdict; evenhand import verdicts FILE does']
    """
    found = [name for name in left if kind == "pairs" and name in VERDICT_FIELDS]
    return [f"judging does not read {', '.join(found)}; evenhand import verdicts FILE does"] if found else []


def _fault(table: Table, where: int, found: Recognised, kind: Kind) -> PairError | None:
    """What judging would say of a row that it cannot take."""
    try:
        (pair_from if kind == "pairs" else output_from)(found.row)
    except (ValueError, InputError) as fault:
        return fault if isinstance(fault, PairError) else blame(table, where, fault)
    return None


def _kind(table: Table, reading: JoinOptions) -> Kind:
    """Pairs or outputs, by the first row that can be read."""
    for _, row in file_rows(table):
        if isinstance(row, dict):
            found = recognise(rename_columns(row, reading.columns) if reading.columns else row)
            return found.kind if found else "pairs"
    return "pairs"


def _known(kind: Kind) -> Iterable[str]:
    own = ("id", "label", "labels", "human", "dims")
    return (*own, "model_1", "model_2", "instruction", "output_1", "output_2") if kind == "pairs" else own
