"""The outcomes of a folder as blocks of columns, read straight from Parquet without texts and answers.

Rows of the old form have no outcomes: theirs are made while reading, pair by pair.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, cast

import numpy as np
from numpy.typing import NDArray

from evenhand.core.columns import MISSING, Block, Floats, Outcomes, Words, are_possible
from evenhand.core.errors import InputError
from evenhand.core.verdict import found_on
from evenhand.store.shards.schema import OLD_FORM, has_ended, judgment_of

if TYPE_CHECKING:
    from evenhand.store.shards.reading import Shards

_PAIR = ("cluster", "model_1", "model_2", "length_1", "length_2", "candidate", "known")
_OLD = ("instruction", "output_1", "output_2", "name", "model_1", "model_2", "labels", "metadata", "verdicts")
_WORDS = ("model_1", "model_2", "candidate", "known")
_NESTED_WORDS = ("outcomes.list.element.dimension", "outcomes.list.element.reason")
_NUMBERS = ("p_1", "p_2", "p_tie")
_ANOTHER = "another program has written a shard; bring back what the run wrote"


def blocks(shards: Shards, *, metadata: bool = False) -> Iterator[Block]:
    """Every pair that counts and has come to an end, in blocks; metadata only if they are wanted."""
    columns = [*_PAIR, "outcomes", *(["metadata"] if metadata else [])]
    dimensions = found_on(tuple(shards.fields["dimensions"]))
    for part in shards.parts:
        if part.form == OLD_FORM:
            shards.note_old_form()
            yield from _old_blocks(shards.numbered(_OLD, [part]), metadata)
        else:
            for numbers, batch in shards.numbered(columns, [part], words=(*_WORDS, *_NESTED_WORDS)):
                yield from _block(shards, numbers, batch, dimensions)


def _old_blocks(batches: Iterator[tuple[Any, Any]], metadata: bool) -> Iterator[Block]:
    """Blocks of pairs whose outcomes are not kept."""
    for numbers, batch in batches:
        rows = [(number, fields) for number, fields in zip(numbers, batch.to_pylist(), strict=True)]
        ended = [(number, fields) for number, fields in rows if has_ended(fields)]
        if ended:
            found = Block.of([judgment_of(fields) for _, fields in ended])
            number = np.array([number for number, _ in ended], dtype=np.int64)
            yield replace(found, number=number, metadata=found.metadata if metadata else None)


def _block(shards: Shards, numbers: Any, batch: Any, dimensions: Sequence[str]) -> Iterator[Block]:
    """A batch as a block, without the pairs that have no outcomes yet."""
    kept = batch.column("outcomes")
    lengths = np.diff(kept.offsets.to_numpy())
    rows = np.flatnonzero(lengths)
    if not len(rows):
        return
    if len(rows) < len(lengths):
        numbers, batch = numbers[rows], batch.take(_indices(rows))
    outcomes = _outcomes(kept.flatten(), lengths[rows], dimensions, shards.path)
    words = {name: words_of(batch.column(name)) for name in _WORDS}
    yield Block(
        np.asarray(numbers),
        shards.keys(numbers),
        batch.column("cluster").to_numpy(),
        words["model_1"],
        words["model_2"],
        batch.column("length_1").to_numpy().astype(np.int64),
        batch.column("length_2").to_numpy().astype(np.int64),
        words["candidate"],
        words["known"],
        outcomes,
        words_of(batch.column("metadata")) if "metadata" in batch.schema.names else None,
    )


def _outcomes(flat: Any, lengths: NDArray[Any], dimensions: Sequence[str], where: str) -> dict[str, Outcomes]:
    """The outcomes of each dimension; those of a pair stand in the judge's own order of dimensions."""
    size = len(dimensions)
    if (lengths != size).any() or not _in_order(words_of(flat.field("dimension")), dimensions):
        raise InputError(
            f"{where}: a pair has no outcome on each of {', '.join(dimensions)}",
            hint=_ANOTHER,
        )
    said = flat.field("said").to_numpy()
    p = np.column_stack([_floats(flat.field(name)) for name in _NUMBERS])
    mass, reason = _floats(flat.field("mass")), words_of(flat.field("reason"))
    if not are_possible(said, p, mass):
        raise InputError(f"{where}: the probabilities of an outcome are not valid", hint=_ANOTHER)
    return {
        name: Outcomes.of(said[d::size], p[d::size], mass[d::size], Words(reason.words, reason.codes[d::size]))
        for d, name in enumerate(dimensions)
    }


def _in_order(found: Words, dimensions: Sequence[str]) -> bool:
    codes = [found.words.index(name) if name in found.words else MISSING for name in dimensions]
    return MISSING not in codes and bool((found.codes.reshape(-1, len(dimensions)) == codes).all())


def words_of(column: Any) -> Words:
    """A column of text as numbers of its words."""
    encoded = column if hasattr(column, "dictionary") else column.dictionary_encode()
    codes = encoded.indices.fill_null(MISSING).to_numpy(zero_copy_only=False)
    return Words(tuple(encoded.dictionary.to_pylist()), codes)


def _floats(column: Any) -> Floats:
    return cast("Floats", column.to_numpy(zero_copy_only=False))  # what is missing is NaN


def _indices(rows: NDArray[Any]) -> Any:
    import pyarrow

    return pyarrow.array(rows)
