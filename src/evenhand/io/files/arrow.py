"""Rows of Parquet and Arrow files, a batch at a time; the types of their columns are checked before any row."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

from evenhand.core.errors import InputError, PairError
from evenhand.core.faults import RowFault
from evenhand.io.files.finding import Table

# Columns that hold text wherever they stand.
TEXTS = ("instruction", "output_1", "output_2", "output")
# Rows that are unpacked together: a few kilobytes may stand for a text of megabytes in each of them.
_BATCH = 64


class SchemaError(PairError):
    """A column of a Parquet or Arrow file has a type that cannot be what it is called."""


def pyarrow() -> Any:
    """The library, or how to get it."""
    try:
        import pyarrow
    except ImportError:
        raise InputError("Parquet and Arrow need pyarrow", hint="pip install 'evenhand[parquet]'") from None
    return pyarrow


def read_parquet(table: Table) -> Iterator[tuple[int, dict[str, Any] | RowFault]]:
    """The rows of a Parquet file."""
    pyarrow()
    import pyarrow.parquet as parquet

    with faults_of(table), parquet.ParquetFile(table.path) as file:
        check_columns(table, file.schema_arrow)
        yield from _rows(file.iter_batches(batch_size=_BATCH))


def read_arrow(table: Table) -> Iterator[tuple[int, dict[str, Any] | RowFault]]:
    """The rows of an Arrow file: a stream, as `datasets` writes it, or the form with an index at its end."""
    arrow = pyarrow()
    with faults_of(table), arrow.memory_map(str(table.path)) as source:
        indexed = source.read(6) == b"ARROW1"
        source.seek(0)
        if indexed:
            file = arrow.ipc.open_file(source)
            batches: Any = (file.get_batch(number) for number in range(file.num_record_batches))
        else:
            file = batches = arrow.ipc.open_stream(source)
        check_columns(table, file.schema)
        yield from _rows(map(_sound, batches))


def check_columns(table: Table, schema: Any) -> None:
    """Refuse a column that should hold text and is declared to hold something else."""
    for name in TEXTS:
        place = schema.get_field_index(name)
        if place < 0:
            if schema.names.count(name) > 1:
                raise SchemaError(table.name, None, f"there are several columns '{name}'", hint="keep one of them")
            continue
        kind = schema.field(place).type
        if not _is_text(kind):
            raise SchemaError(
                table.name,
                None,
                f"column '{name}' is of type {kind}, not text",
                hint="nested columns cannot be judged; write one string for each row"
                if pyarrow().types.is_nested(kind)
                else "write the column as strings",
            )


def _is_text(kind: Any) -> bool:
    types = pyarrow().types
    if types.is_dictionary(kind):
        return _is_text(kind.value_type)
    view = getattr(types, "is_string_view", lambda _: False)
    return bool(types.is_string(kind) or types.is_large_string(kind) or types.is_null(kind) or view(kind))


def _rows(batches: Iterable[Any]) -> Iterator[tuple[int, dict[str, Any] | RowFault]]:
    number = 0
    for batch in batches:
        for row in listed(batch):
            number += 1
            yield number, row


def _sound(batch: Any) -> Any:
    """The batch, unless a value in it points outside of the file. Text that is not UTF-8 is left to `listed`.

    A nested column is refused for that as well: its check ends at the first fault, and worse may follow.
    """
    arrow = pyarrow()
    for column in batch.columns:
        is_text = arrow.types.is_string(column.type) or arrow.types.is_large_string(column.type)
        try:
            column.validate(full=True)
        except arrow.ArrowInvalid as fault:
            if not (is_text and "UTF8" in str(fault)):
                raise
    return batch


def listed(batch: Any) -> Iterator[dict[str, Any] | RowFault]:
    """A batch as rows; where a text is not UTF-8, or Python has no type for a value, only that row is at fault."""
    for begin in range(0, batch.num_rows, _BATCH):
        yield from _listed(batch.slice(begin, _BATCH))


def _listed(batch: Any) -> list[dict[str, Any] | RowFault]:
    try:
        rows: list[dict[str, Any] | RowFault] = batch.to_pylist()
    except (ValueError, OverflowError):
        return [_row(batch, place) for place in range(batch.num_rows)]
    return rows


def _row(batch: Any, place: int) -> dict[str, Any] | RowFault:
    row = {}
    for name, column in zip(batch.schema.names, batch.columns, strict=True):
        try:
            row[name] = column[place].as_py()
        except UnicodeDecodeError as fault:
            return RowFault(
                f"field '{name}' is not UTF-8 at byte {fault.start}", hint="write the column again from UTF-8 text"
            )
        except (ValueError, OverflowError) as fault:
            row[name] = _spelled(column[place])
            if row[name] is None:
                return RowFault(f"field '{name}' cannot be read: {fault}", hint="write the column as text")
    return row


def _spelled(scalar: Any) -> str | None:
    """A value that Python has no type for, such as a date in the year 20000, as Arrow writes it; else None."""
    arrow = pyarrow()
    try:
        return str(scalar.cast(arrow.string()))
    except arrow.ArrowException:
        return None


@contextmanager
def faults_of(table: Table) -> Iterator[None]:
    """Say in a sentence that a file is no Parquet or Arrow, or breaks off."""
    try:
        yield
    except (pyarrow().ArrowException, OSError, UnicodeDecodeError) as fault:  # the last of a column's name
        if isinstance(fault, FileNotFoundError | PermissionError):
            raise
        said = str(fault).splitlines()[0] if str(fault) else type(fault).__name__
        kind = "Parquet" if table.kind == ".parquet" else "Arrow"
        raise table.error(
            None, f"not {kind}, or broken off: {said}", hint="nothing of it was used; make or fetch the file again"
        ) from None
