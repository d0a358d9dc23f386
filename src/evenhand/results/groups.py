"""The outcomes of a judge in groups, by a field of the pairs."""

from __future__ import annotations

import json
from collections import Counter as Tally
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from evenhand.core.columns import MISSING, Block, Words
from evenhand.core.errors import InputError
from evenhand.results.counting import DEFAULT, Counting
from evenhand.results.questions import correct_dimensions
from evenhand.results.summary import Counter, Summary

MODEL_FIELDS = ("model_1", "model_2")
_MOST_NAMED = 8


@dataclass(frozen=True, slots=True)
class Group:
    """The pairs that have one value of a field; None is for those without it."""

    value: str | None
    summary: Summary

    def plain(self) -> dict[str, object]:
        """The group as JSON has it."""
        return {"value": self.value, **self.summary.plain()}


def group_by(
    blocks: Iterable[Block], dimensions: Iterable[str], name: str, counting: Counting = DEFAULT
) -> list[Group]:
    """A summary for each value of a field, those without it last; the blocks are read with their metadata.

    Repeats are left out within each group; p-values are corrected over all groups and dimensions. InputError if no
    pair has the field, with the fields that they have.
    """
    groups: dict[str | None, Counter] = {}
    fields: Tally[str] = Tally()
    asked = list(dimensions)
    for block in blocks:
        values = _values(block, name)
        each, codes = np.unique(values.codes, return_inverse=True)
        for place, code in enumerate(each):
            value = values.words[code] if code != MISSING else None
            rows = np.flatnonzero(codes == place)
            if value is None:
                fields.update(_fields(block.take(rows[:1])))
            groups.setdefault(value, Counter(asked, counting)).add_block(block.take(rows))
    if groups and set(groups) == {None}:
        known = ", ".join(field for field, _ in fields.most_common(_MOST_NAMED)) or "none at all"
        raise InputError(f"no pair has a field '{name}'", hint=f"the pairs have {known}")
    ordered = sorted(groups.items(), key=lambda group: (group[0] is None, group[0] or ""))
    found = [Group(value, counter.summary()) for value, counter in ordered]
    fixed = correct_dimensions([group.summary.dimensions for group in found])
    return [
        Group(group.value, replace(group.summary, dimensions=each))
        for group, each in zip(found, fixed, strict=True)
    ]


def field_text(metadata: Mapping[str, Any], name: str) -> str | None:
    """What a field says, as text; None where it says nothing, as NaN does, which Parquet may have there.

    >>> field_text({"hard": True}, "hard"), field_text({}, "hard"), field_text({"hard": float("nan")}, "hard")
    ('true', None, None)
    """
    value = metadata.get(name)
    if value is None or value == "" or value != value:
        return None
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, sort_keys=True)


def _values(block: Block, name: str) -> Words:
    """The value of a field for each pair."""
    if name in MODEL_FIELDS:
        column: Words = getattr(block, name)
        said = [word or None for word in column.words]
    else:
        column = block.metadata or Words((), np.full(len(block), MISSING))
        said = [field_text(json.loads(text), name) for text in column.words]
    words = tuple(dict.fromkeys(word for word in said if word is not None))
    place = {word: number for number, word in enumerate(words)}
    table = np.array([*(MISSING if word is None else place[word] for word in said), MISSING], dtype=np.int64)
    return Words(words, table[column.codes])


def _fields(block: Block) -> list[str]:
    """The fields that the first pair of a block can be grouped by."""
    models = [name for name in MODEL_FIELDS if (words := getattr(block, name)).words[words.codes[0]]]
    metadata = json.loads(block.metadata.words[block.metadata.codes[0]]) if block.metadata else {}
    return [*models, *(name for name in metadata if field_text(metadata, name) is not None)]
