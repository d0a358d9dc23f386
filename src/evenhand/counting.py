"""Summaries, columns and comparisons out of blocks of verdicts, without the texts of the pairs.

What `report`, `analysis` and `rankings` make of judgments one by one, many at a time; a test compares the two.
"""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
import orjson
from numpy.typing import NDArray

from evenhand.analysis import NAMES, Column, field_of, fields_of, in_order
from evenhand.pairs import Pair
from evenhand.rankings import Bouts, Reading
from evenhand.report import Summary, Tally
from evenhand.shards.blocks import NONE, TIE, A, B, Block, Findings, Words
from evenhand.verdict import SIDES, known_label

_TINY = 1e-9  # that of evenhand.verdict
_DOUBLED = np.array([2, 0, 1], dtype=np.int8)  # twice the value of a side: 2 won, 0 lost, 1 tie
_CODES = {side: code for code, side in enumerate(SIDES)}


# -- summaries -----------------------------------------------------------------------------------------------------


def summarise(blocks: Iterable[Block], dimensions: Iterable[str]) -> Summary:
    """Every dimension of a judge, as `Summary.add` would count it pair by pair."""
    summary = Summary(dimensions)
    for block in blocks:
        add_block(summary, block)
    return summary


def add_block(summary: Summary, block: Block) -> None:
    """Count a block of pairs."""
    summary.pairs += len(block)
    if len(summary.models) < 2:
        summary.models.update(_models(block))
    for dimension, findings in block.findings().items():
        tally = summary.tallies.setdefault(dimension, Tally())
        _count(tally, findings, known_codes(block.labels, dimension), block)


def append(column: array[Any], values: NDArray[Any]) -> None:
    """Put numbers behind those of an array.

    >>> numbers = array("I", [1])
    >>> append(numbers, np.array([2, 3]))
    >>> numbers
    array('I', [1, 2, 3])
    """
    column.frombytes(np.ascontiguousarray(values, dtype=np.dtype(column.typecode)).tobytes())


def known_codes(labels: Words, dimension: str) -> NDArray[np.int8]:
    """What the pairs' own labels say of a dimension; each text of JSON is read once.

    >>> known_codes(Words(('{"overall":"2"}', "{}"), np.array([1, 0, 0])), "combined").tolist()
    [-1, 1, 1]
    """
    said = [known_label(orjson.loads(text), dimension) for text in labels.words]
    table = np.array([*(NONE if side is None else _CODES[side] for side in said), NONE], dtype=np.int8)
    return np.asarray(table[labels.codes], dtype=np.int8)


def _models(block: Block) -> Iterator[tuple[str, str]]:
    pairs = np.unique(np.column_stack([block.model_1.codes, block.model_2.codes]), axis=0)
    return ((block.model_1.words[one], block.model_2.words[two]) for one, two in pairs[:2])


def _count(tally: Tally, found: Findings, known: NDArray[np.int8], block: Block) -> None:
    valid = found.side != NONE
    _count_reasons(tally.reasons, found.reason.words, found.reason.codes[~valid])
    rows = np.flatnonzero(valid)
    side, p, heard = found.side[rows], found.p[rows], found.heard
    tally.rows.extend(
        cluster=block.cluster[rows],
        longer=(block.length_1 - block.length_2)[rows],
        hard=_DOUBLED[side],
        expected=p[:, 0] + p[:, 2] / 2,
    )
    for code, name in enumerate(SIDES):
        tally.sides[name] += int((side == code).sum())
    tally.inconsistent += int(found.inconsistent.sum())
    mass = heard.mass[rows].ravel()
    mass = mass[~np.isnan(mass)]
    # One after the other, as pair by pair: the sum of many in another order is another in its last digits.
    tally.mass = float(np.cumsum(np.concatenate([[tally.mass], mass]))[-1])
    tally.masses += len(mass)
    if heard.label.shape[1] == 2 and not found.by_itself:
        label = heard.label[rows]
        tally.first += int((label == A).sum()) - int((label == B).sum())
        tally.places += label.size
    _compare(tally, side, p, known[rows])


def _count_reasons(reasons: Counter[str], words: tuple[str, ...], codes: NDArray[Any]) -> None:
    """The reasons in the order in which they come first."""
    each, first, counts = np.unique(codes, return_index=True, return_counts=True)
    for place in np.argsort(first):
        word = words[each[place]] if each[place] != NONE else ""
        reasons[word or "unknown"] += int(counts[place])


def _compare(tally: Tally, side: NDArray[np.int8], p: NDArray[np.float64], known: NDArray[np.int8]) -> None:
    told, decided = known != NONE, (known != NONE) & (known != TIE)
    tally.labelled += int(told.sum())
    tally.agreed += int((side == known)[told].sum())
    tally.decided += int(decided.sum())
    floored = np.maximum(p[decided], _TINY)
    odds = np.log(floored[:, 0] / floored[:, 1])
    right = np.where(odds == 0, 0.5, (odds > 0) == (known[decided] == 0))
    tally.decided_right += float(right.sum())


# -- groups --------------------------------------------------------------------------------------------------------


def group_blocks(blocks: Iterable[Block], dimensions: Iterable[str], name: str) -> dict[str | None, Summary]:
    """A summary for each value of a field, as `analysis.group_by` makes them pair by pair."""
    groups: dict[str | None, Summary] = {}
    fields: Counter[str] = Counter()
    asked = list(dimensions)
    for block in blocks:
        values = _values(block, name)
        each, codes = np.unique(values.codes, return_inverse=True)
        for place, code in enumerate(each):
            value = values.words[code] if code != NONE else None
            rows = np.flatnonzero(codes == place)
            if value is None:
                fields.update(_fields(block.take(rows[:1])))
            add_block(groups.setdefault(value, Summary(asked)), block.take(rows))
    return in_order(groups, name, fields)


def _values(block: Block, name: str) -> Words:
    """The value of a field for each pair."""
    if name in NAMES:
        column: Words = getattr(block, name)
        said = [word or None for word in column.words]
    else:
        column = block.metadata or Words((), np.full(len(block), NONE))
        said = [field_of(_bare(text), name) for text in column.words]
    words = tuple(dict.fromkeys(word for word in said if word is not None))
    place = {word: number for number, word in enumerate(words)}
    table = np.array([*(NONE if word is None else place[word] for word in said), NONE], dtype=np.int64)
    return Words(words, table[column.codes])


def _bare(metadata: str, model_1: str = "", model_2: str = "") -> Pair:
    """A pair of which only what is told about it counts."""
    return Pair("", "", "", "bare", model_1, model_2, {}, orjson.loads(metadata))


def _fields(block: Block) -> list[str]:
    models = (block.model_1.words[block.model_1.codes[0]], block.model_2.words[block.model_2.codes[0]])
    metadata = block.metadata.words[block.metadata.codes[0]] if block.metadata else "{}"
    return fields_of(_bare(metadata, *models))


# -- columns, comparisons ------------------------------------------------------------------------------------------


def columns_of_blocks(blocks: Iterable[Block]) -> dict[str, Column]:
    """A column for each dimension, as `analysis.columns_of` makes it; the blocks are read with their keys."""
    found: dict[str, Column] = {}
    for block in blocks:
        for dimension, findings in block.findings().items():
            column, rows = found.setdefault(dimension, Column()), np.flatnonzero(findings.side != NONE)
            append(column.keys, np.zeros(0) if block.keys is None else block.keys[rows])
            append(column.clusters, block.cluster[rows])
            append(column.values["hard"], _DOUBLED[findings.side[rows]] / 2)
            append(column.values["expected"], findings.p[rows, 0] + findings.p[rows, 2] / 2)
    return found


def bouts_of_blocks(blocks: Iterable[Block], dimension: str = "overall", reading: Reading = "hard") -> Bouts:
    """All comparisons on one dimension, as `rankings.bouts_of` gathers them."""
    bouts = Bouts(dimension, reading)
    for block in blocks:
        findings = block.findings()
        bouts.seen.update(findings)
        if dimension in findings:
            _add_bouts(bouts, block, findings[dimension])
    return bouts


def _add_bouts(bouts: Bouts, block: Block, found: Findings) -> None:
    one, two = (_numbers(bouts, words) for words in (block.model_1, block.model_2))
    named = (one != NONE) & (two != NONE) & (one != two)
    hard = np.where((found.side == NONE)[:, None], np.nan, found.side[:, None] == np.arange(len(SIDES)))
    weights = hard if bouts.reading == "hard" else found.p
    bouts.take(one[named], two[named], weights[named], block.cluster[named], int((~named).sum()))


def _numbers(bouts: Bouts, words: Words) -> NDArray[np.int64]:
    """Models by the numbers that they have among the bouts; -1 for no name."""
    present = np.zeros(len(words.words) + 1, dtype=bool)
    present[words.codes] = True
    table = [
        bouts.number(word) if word and here else NONE for word, here in zip(words.words, present, strict=False)
    ]
    return np.asarray(np.array([*table, NONE], dtype=np.int64)[words.codes])
