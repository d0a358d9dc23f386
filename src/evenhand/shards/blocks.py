"""Verdicts of many pairs as blocks of numbers, read without texts and answers; what orders and dimensions come to.

`pool_orders` and `combine_parts` do for a block what `evenhand.verdict.pool` and `combine` do for one pair, by the
same formulas; a test compares them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from evenhand.errors import InputError
from evenhand.pairs import BY_ITSELF, COMBINED
from evenhand.protocol import ORDERS, Order
from evenhand.shards.reading import Shards, leading
from evenhand.verdict import LABELS, found_on, parts_of

Floats = NDArray[np.float64]
Codes = NDArray[np.int8]
Ints = NDArray[np.int32]
# Codes: of labels A, B, tie and of sides 1, 2, tie; what is not there is -1.
A, B, TIE, NONE = 0, 1, 2, -1
_CHOICES = len(LABELS)
_TINY, _ALIKE = 1e-9, 1e-9  # those of evenhand.verdict
_PLAIN = ("model_1", "model_2", "labels", "cluster", "length_1", "length_2")
_VERDICT = ("order", "dimension", "label", "p_a", "p_b", "p_tie", "mass", "invalid")


@dataclass(frozen=True)
class Words:
    """A column of words: each word once, and a number for each row; -1 where there is none."""

    words: tuple[str, ...]
    codes: NDArray[Any]

    def take(self, rows: NDArray[Any]) -> Words:
        """Some of the rows."""
        return Words(self.words, self.codes[rows])


@dataclass(frozen=True)
class Verdicts:
    """Verdicts of one dimension: a row for each pair, a column for each order; codes are those of labels."""

    label: Codes  # (n, orders)
    p: Floats  # (n, orders, 3), NaN where the judge told none
    mass: Floats  # (n, orders)
    reason: Words  # (n, orders): why there is no label


@dataclass(frozen=True)
class Findings:
    """What the orders come to; codes are those of sides."""

    side: Codes
    p: Floats  # (n, 3), NaN where invalid
    inconsistent: NDArray[np.bool_]
    reason: Words
    heard: Verdicts
    by_itself: bool = False  # said of each response by itself


@dataclass(frozen=True)
class Block:
    """Some pairs that were heard in the same orders."""

    orders: tuple[Order, ...]
    verdicts: dict[str, Verdicts]
    model_1: Words
    model_2: Words
    labels: Words  # JSON
    cluster: NDArray[np.uint64]
    length_1: Ints
    length_2: Ints
    metadata: Words | None = None  # JSON
    keys: NDArray[np.uint64] | None = None  # the first eight bytes of each

    def __len__(self) -> int:
        return len(self.cluster)

    def findings(self) -> dict[str, Findings]:
        """What each dimension comes to, and the parts together where there are several."""
        found = {
            name: pool_orders(heard, self.orders, by_itself=name in BY_ITSELF)
            for name, heard in self.verdicts.items()
        }
        together = combine_parts(self.verdicts, both_orders=len(self.orders) > 1)
        return found if together is None else {**found, COMBINED: pool_orders(together, self.orders)}

    def take(self, rows: NDArray[Any]) -> Block:
        """Some of the pairs."""
        verdicts = {
            name: Verdicts(v.label[rows], v.p[rows], v.mass[rows], v.reason.take(rows))
            for name, v in self.verdicts.items()
        }
        words = (self.model_1.take(rows), self.model_2.take(rows), self.labels.take(rows))
        numbers = (self.cluster[rows], self.length_1[rows], self.length_2[rows])
        metadata = None if self.metadata is None else self.metadata.take(rows)
        return Block(
            self.orders, verdicts, *words, *numbers, metadata, None if self.keys is None else self.keys[rows]
        )


# -- what verdicts come to -----------------------------------------------------------------------------------------


def pool_orders(heard: Verdicts, orders: Sequence[Order], *, by_itself: bool = False) -> Findings:
    """Bring the orders together, as `evenhand.verdict.pool` does for one pair.

    >>> label = np.array([[A, A]], dtype=np.int8)
    >>> p = np.array([[[0.8, 0.1, 0.1], [0.5, 0.4, 0.1]]])
    >>> heard = Verdicts(label, p, np.ones((1, 2)), Words((), np.full((1, 2), NONE)))
    >>> found = pool_orders(heard, ("forward", "swapped"))
    >>> found.side.tolist(), found.inconsistent.tolist(), round(float(found.p[0, 0]), 2)
    ([0], [True], 0.64)
    """
    turned = [order == "swapped" for order in orders]
    valid = (heard.label != NONE).all(axis=1)
    each = [_turn(_shares(heard, column), swap) for column, swap in enumerate(turned)]
    p = _mean(each, np.all([_told(heard, column) for column in range(len(turned))], axis=0))
    p[~valid] = np.nan
    side = np.where(valid, _choose(p), NONE).astype(np.int8)
    said = [_side(heard.label[:, column], swap) for column, swap in enumerate(turned)]
    one = np.any([codes == A for codes in said], axis=0)
    two = np.any([codes == B for codes in said], axis=0)
    return Findings(side, p, valid & one & two & (not by_itself), _first_reason(heard.reason), heard, by_itself)


def combine_parts(verdicts: dict[str, Verdicts], *, both_orders: bool = True) -> Verdicts | None:
    """What the parts of each hearing say together, as `evenhand.verdict.combine` does for one."""
    if COMBINED not in found_on(verdicts):
        return None
    parts = [verdicts[name] for name in parts_of(verdicts, both_orders=both_orders)]
    label, p, mass, reason = zip(
        *(_combine(parts, column) for column in range(parts[0].label.shape[1])), strict=True
    )
    columns = Words(parts[0].reason.words, np.column_stack(reason))
    return Verdicts(np.column_stack(label), np.stack(p, axis=1), np.column_stack(mass), columns)


def _combine(parts: Sequence[Verdicts], column: int) -> tuple[Codes, Floats, Floats, NDArray[Any]]:
    labels = np.column_stack([part.label[:, column] for part in parts])
    told = np.all([_told(part, column) for part in parts], axis=0)
    p = _mean([_shares(part, column) for part in parts], told)
    valid = (labels != NONE).all(axis=1)
    label = np.where(valid, _choose(p), NONE).astype(np.int8)
    p[~valid] = np.nan
    # fmin passes over what is missing, and is missing where all is
    mass = np.fmin.reduce([part.mass[:, column] for part in parts])
    mass = np.where(valid, mass, np.nan)
    broken = np.argmax(labels == NONE, axis=1)  # the first part that has no label
    reasons = np.column_stack([part.reason.codes[:, column] for part in parts])
    reason = np.where(valid, NONE, reasons[np.arange(len(labels)), broken])
    return label, p, mass, reason


def _told(heard: Verdicts, column: int) -> NDArray[np.bool_]:
    """Whether the judge told probabilities; of three numbers all are missing or none."""
    return np.asarray(~np.isnan(heard.p[:, column, 0]))


def _shares(heard: Verdicts, column: int) -> Floats:
    """Probabilities, or all of it on the label where there are none."""
    p, label = heard.p[:, column], heard.label[:, column]
    told = _told(heard, column)
    if told.all():
        return p
    hard = (label[:, None] == np.arange(_CHOICES)).astype(np.float64)
    return np.where(told[:, None], p, hard)


def _turn(p: Floats, swap: bool) -> Floats:
    return p[:, [B, A, TIE]] if swap else p


def _side(label: Codes, swap: bool) -> Codes:
    return np.array([B, A, TIE, NONE], dtype=np.int8)[label] if swap else label  # -1 finds the last


def _mean(each: Sequence[Floats], geometric: NDArray[np.bool_]) -> Floats:
    """The mean of distributions, geometric where a row has probabilities in all of them; summed one by one."""
    logs = np.log(np.maximum(each[0], _TINY))
    plain = each[0].copy()
    for p in each[1:]:
        logs = logs + np.log(np.maximum(p, _TINY))
        plain += p
    means = np.where(geometric[:, None], np.exp(logs / len(each)), plain / len(each))
    total = means[:, 0] + means[:, 1] + means[:, 2]
    with np.errstate(invalid="ignore"):  # 0 / 0 where there is no label; such rows are invalid
        return np.asarray(means / total[:, None], dtype=np.float64)


def _choose(p: Floats) -> Codes:
    """The likeliest; two that are equally likely are a tie."""
    best = p.max(axis=1)
    likeliest = best[:, None] - p <= _ALIKE * best[:, None]
    return np.where(likeliest.sum(axis=1) == 1, likeliest.argmax(axis=1), TIE).astype(np.int8)


def _first_reason(reason: Words) -> Words:
    """The reason of the first order that has one."""
    codes = reason.codes[:, 0]
    for column in range(1, reason.codes.shape[1]):
        codes = np.where(codes == NONE, reason.codes[:, column], codes)
    return Words(reason.words, codes)


# -- reading -------------------------------------------------------------------------------------------------------


def blocks(shards: Shards, *, metadata: bool = False, keys: bool = False) -> Iterator[Block]:
    """Every pair that counts, in blocks; metadata and keys only if they are wanted."""
    columns = [*_PLAIN, "verdicts", *(["metadata"] if metadata else []), *(["key"] if keys else [])]
    dimensions = tuple(shards.facts["dimensions"])
    for batch in shards.batches(columns):
        yield from _split(batch, dimensions, shards.path)


def _split(batch: Any, dimensions: tuple[str, ...], where: str) -> Iterator[Block]:
    """A batch by the orders in which its pairs were heard; nearly always all in the same."""
    column = batch.column("verdicts")
    flat, size = column.flatten(), len(dimensions)
    lengths = np.diff(column.offsets.to_numpy())
    starts = np.cumsum(lengths) - lengths
    fields = {name: flat.field(name) for name in _VERDICT}
    order, dimension = _words(fields["order"]), _words(fields["dimension"])
    _check(order, dimension, lengths, dimensions, where)
    first = order.codes[starts] if len(starts) else np.zeros(0, dtype=np.int32)
    for heard in (ORDERS, ORDERS[:1], ORDERS[1:]):
        code = order.words.index(heard[0]) if heard[0] in order.words else NONE
        rows = np.flatnonzero((lengths == len(heard) * size) & (first == code))
        if len(rows):
            places = (starts[rows][:, None] + np.arange(len(heard) * size)).ravel()
            yield _block(batch, rows, fields, places, heard, dimensions)


def _check(order: Words, dimension: Words, lengths: NDArray[Any], dimensions: tuple[str, ...], where: str) -> None:
    """Each order has a verdict on each dimension, in the judge's own order of them; nothing else can be counted."""
    size = len(dimensions)
    whole = bool(((lengths == size) | (lengths == 2 * size)).all())
    wanted = np.array([dimension.words.index(name) if name in dimension.words else NONE for name in dimensions])
    if not whole or (dimension.codes.reshape(-1, size) != wanted).any() or set(order.words) - set(ORDERS):
        raise InputError(
            f"{where}: a pair has no verdict on each of {', '.join(dimensions)} in each order",
            hint="another program has written a shard; bring back what the run wrote",
        )


def _block(
    batch: Any,
    rows: NDArray[Any],
    fields: Any,
    places: NDArray[Any],
    orders: Sequence[Order],
    dimensions: Sequence[str],
) -> Block:
    shape = (len(rows), len(orders), len(dimensions))
    label = _labels(_words(fields["label"]))[places].reshape(shape)
    numbers = {name: _floats(fields[name])[places].reshape(shape) for name in ("p_a", "p_b", "p_tie", "mass")}
    p = np.stack([numbers["p_a"], numbers["p_b"], numbers["p_tie"]], axis=-1)
    p[np.isnan(p).any(axis=-1)] = np.nan
    reason = _words(fields["invalid"])
    codes = reason.codes[places].reshape(shape)
    verdicts = {
        name: Verdicts(label[:, :, d], p[:, :, d], numbers["mass"][:, :, d], Words(reason.words, codes[:, :, d]))
        for d, name in enumerate(dimensions)
    }
    plain: dict[str, Any] = {
        name: _words(batch.column(name)).take(rows) for name in ("model_1", "model_2", "labels")
    }
    plain |= {name: batch.column(name).to_numpy()[rows] for name in ("cluster", "length_1", "length_2")}
    names = batch.schema.names
    return Block(
        cast("tuple[Order, ...]", tuple(orders)),
        verdicts,
        **plain,
        metadata=_words(batch.column("metadata")).take(rows) if "metadata" in names else None,
        keys=leading(batch.column("key"))[rows] if "key" in names else None,
    )


def _words(column: Any) -> Words:
    """A column of text as numbers of its words."""
    encoded = column if hasattr(column, "dictionary") else column.dictionary_encode()
    codes = encoded.indices.fill_null(NONE).to_numpy(zero_copy_only=False)
    return Words(tuple(encoded.dictionary.to_pylist()), codes)


def _labels(words: Words) -> Codes:
    known = {label: code for code, label in enumerate(LABELS)}
    table = np.array([*(known.get(cast("Any", word), NONE) for word in words.words), NONE], dtype=np.int8)
    return cast("Codes", table[words.codes])  # -1 finds the last


def _floats(column: Any) -> Floats:
    return cast("Floats", column.to_numpy(zero_copy_only=False))
