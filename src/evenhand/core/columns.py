"""Outcomes as columns: arrays of a few thousand pairs, each pair with an outcome on every dimension.

A database and a folder of shards both give their outcomes as blocks, and all code that counts takes blocks. The
two orders were pooled before that, once.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import orjson
from numpy.typing import NDArray

from evenhand.core.outcome import (
    ASKED,
    FORWARD,
    INCONSISTENT,
    MASSES,
    MOST_MASS,
    POINTWISE,
    SWAPPED,
    OutcomeRow,
    cluster_number,
    leading,
    outcome_row,
)
from evenhand.core.pair import short_hash
from evenhand.core.suspicion import suspicions
from evenhand.core.verdict import SHARES_OFF, SIDES, known_label
from evenhand.core.votes import known_labels

if TYPE_CHECKING:
    from evenhand.core.judge import Judgment

Floats = NDArray[np.float64]
Codes = NDArray[np.int8]
Ints = NDArray[np.int64]
# Codes of sides, those of `evenhand.core.stats.agreement`; what is not there is -1.
ONE, TWO, TIE, MISSING = 0, 1, 2, -1
CODE_OF: Mapping[str | None, int] = {None: MISSING, "1": ONE, "2": TWO, "tie": TIE}
BLOCK_SIZE = 16_384  # pairs read at once


@dataclass(frozen=True)
class Words:
    """A column of words: each word once, and a number for each row; -1 where there is none."""

    words: tuple[str, ...]
    codes: NDArray[Any]

    def take(self, rows: NDArray[Any]) -> Words:
        """Some of the rows."""
        return Words(self.words, self.codes[rows])

    def text(self) -> NDArray[np.str_]:
        """The word of each row; empty where there is none."""
        return np.asarray(np.array([*self.words, ""])[self.codes])

    @classmethod
    def of(cls, values: Iterable[str | None]) -> Words:
        """A column out of its values.

        >>> Words.of(["a", None, "a"]).codes.tolist()
        [0, -1, 0]
        """
        every = list(values)
        words = tuple(word for word in dict.fromkeys(every) if word is not None)
        place: dict[str | None, int] = {None: MISSING, **{word: number for number, word in enumerate(words)}}
        if len(words) == 1 and every.count(words[0]) == len(every):
            return cls(words, np.zeros(len(every), dtype=np.int32))
        return cls(words, np.fromiter(map(place.__getitem__, every), dtype=np.int32, count=len(every)))


@dataclass(frozen=True)
class Outcomes:
    """One dimension of a block: a row for each pair; codes are those of sides."""

    side: Codes
    p: Floats  # (n, 3), NaN where invalid
    forward: Codes
    swapped: Codes
    asked: Codes  # (n): 1 forward, 2 swapped, 3 both
    mass: Floats  # summed over the orders that have one
    masses: Codes
    inconsistent: NDArray[np.bool_]
    pointwise: bool
    reason: Words

    def __len__(self) -> int:
        return len(self.side)

    @classmethod
    def of(cls, said: Ints, p: Floats, mass: Floats, reason: Words) -> Outcomes:
        """The columns that `said` stands for, with the others.

        >>> found = Outcomes.of(np.array([69]), np.array([[1.0, 0, 0]]), np.zeros(1), Words((), np.array([-1])))
        >>> int(found.side[0]), int(found.forward[0]), int(found.swapped[0]), int(found.asked[0])
        (0, 0, -1, 1)
        """
        codes = said.astype(np.int64)
        side, forward, swapped = (((codes >> shift & 3) - 1).astype(np.int8) for shift in (0, FORWARD, SWAPPED))
        return cls(
            *(side, p, forward, swapped, (codes >> ASKED & 3).astype(np.int8), mass),
            *((codes >> MASSES & 3).astype(np.int8), (codes & INCONSISTENT) != 0),
            bool(len(codes)) and bool(codes[0] & POINTWISE),
            reason,
        )

    @property
    def valid(self) -> NDArray[np.bool_]:
        """Which pairs have a verdict."""
        return np.asarray(self.side != MISSING)

    @property
    def both_orders(self) -> NDArray[np.bool_]:
        """Which pairs were compared in both orders, each with a verdict: those in which a place can be favoured."""
        given = (self.forward != MISSING) & (self.swapped != MISSING)
        return np.asarray(given & (not self.pointwise))

    @property
    def value(self) -> Floats:
        """What each pair came to for side 1: 1 won, 0 lost, 1/2 tie; NaN where invalid."""
        return np.asarray(VALUES[self.side])

    @property
    def expected(self) -> Floats:
        """What side 1 can expect: the probability that it wins, and half of that of a tie; NaN where invalid."""
        return np.asarray(self.p[:, ONE] + self.p[:, TIE] / 2)

    @property
    def lean(self) -> Codes:
        """The side with the larger probability, also where the verdict is a tie; a tie where they are equal."""
        one, two = self.p[:, ONE], self.p[:, TWO]
        equal = np.abs(one - two) <= 1e-9 * np.maximum(one, two)  # as in `evenhand.core.verdict`
        lean = np.where(equal, TIE, np.where(one > two, ONE, TWO))
        return np.where(self.valid, lean, MISSING).astype(np.int8)

    @property
    def log_odds(self) -> Floats:
        """How far side 1 stands above side 2; NaN where invalid."""
        floored = np.maximum(self.p, TINY)
        return np.asarray(np.log(floored[:, ONE] / floored[:, TWO]))

    @property
    def first(self) -> Ints:
        """Of each pair in both orders, how often the response shown first was chosen, less how often the second."""
        return first_chosen(self.forward, self.swapped)

    def turned(self) -> Outcomes:
        """The same outcomes with the sides exchanged: forward is then what swapped was."""
        return replace(
            self,
            side=_OTHER[self.side],
            p=self.p[:, [TWO, ONE, TIE]],
            forward=_OTHER[self.swapped],
            swapped=_OTHER[self.forward],
            asked=np.array([0, 2, 1, 3], dtype=np.int8)[self.asked],
        )

    def take(self, rows: NDArray[Any]) -> Outcomes:
        """Some of the rows."""
        columns = {name: getattr(self, name)[rows] for name in _ARRAYS}
        return replace(self, **columns, reason=self.reason.take(rows))


TINY = 1e-9  # that of `evenhand.core.verdict.log_odds`
VALUES = np.array([1.0, 0.0, 0.5, np.nan])  # of each code for side 1; -1 finds the last
_OTHER = np.array([TWO, ONE, TIE, MISSING], dtype=np.int8)  # -1 finds the last
_OTHER_LABEL = {"1": "2", "2": "1", "tie": "tie"}
_ARRAYS = ("side", "p", "forward", "swapped", "asked", "mass", "masses", "inconsistent")


@dataclass(frozen=True)
class Block:
    """Some pairs of one judge with their outcomes, without a text."""

    number: Ints  # of the pair, in its database or folder
    key: NDArray[np.uint64]  # the first eight bytes of the hash of its texts
    cluster: NDArray[np.uint64]  # pairs with the same instruction share one
    model_1: Words
    model_2: Words
    length_1: Ints
    length_2: Ints
    candidate: Words  # the side that is the candidate, "" where no roles were given
    labels: Words  # what people said, by dimension, as JSON
    outcomes: Mapping[str, Outcomes]
    metadata: Words | None = None  # JSON, where it was asked for
    identity: NDArray[np.uint64] | None = None  # of a block whose sides were exchanged: what it was before
    suspicious: NDArray[np.bool_] | None = None  # whether its text seems to speak to the judge, where that is known

    def __len__(self) -> int:
        return len(self.number)

    @property
    def is_turned(self) -> bool:
        """Whether its sides were exchanged."""
        return self.identity is not None

    @property
    def longer(self) -> Ints:
        """By how many characters output 1 is longer."""
        return np.asarray(self.length_1 - self.length_2)

    @property
    def log_length(self) -> Floats:
        """The log of the ratio of the lengths."""
        return log_ratio(self.length_1, self.length_2)

    @property
    def identities(self) -> NDArray[np.uint64]:
        """Numbers that pairs share where their texts, their models and their sides are the same."""
        if self.identity is not None:
            return self.identity
        found = self.key.astype(np.uint64)
        for side, words in (("1", self.model_1), ("2", self.model_2)):
            each = [short_hash(f"{side}{word}") if word else 0 for word in (*words.words, "")]
            found = found ^ np.array(each, dtype=np.uint64)[words.codes]
        return found

    def known(self, dimension: str) -> Codes:
        """What people said on a dimension; each text of JSON is read once."""
        said = [known_label(orjson.loads(text), dimension) for text in self.labels.words]
        table = np.array([*(CODE_OF[side] for side in said), MISSING], dtype=np.int8)
        return np.asarray(table[self.labels.codes], dtype=np.int8)

    def take(self, rows: NDArray[Any]) -> Block:
        """Some of the pairs."""
        arrays = {name: getattr(self, name)[rows] for name in ("number", "key", "cluster", "length_1", "length_2")}
        words = {name: getattr(self, name).take(rows) for name in ("model_1", "model_2", "candidate", "labels")}
        outcomes = {name: found.take(rows) for name, found in self.outcomes.items()}
        metadata = None if self.metadata is None else self.metadata.take(rows)
        identity = None if self.identity is None else self.identity[rows]
        suspicious = None if self.suspicious is None else self.suspicious[rows]
        more = replace(self, metadata=metadata, identity=identity, suspicious=suspicious)
        return replace(more, **arrays, **words, outcomes=outcomes)

    def turned(self) -> Block:
        """The same pairs with their sides exchanged."""
        labels = [
            orjson.dumps({name: _OTHER_LABEL[side] for name, side in orjson.loads(text).items()}).decode()
            for text in self.labels.words
        ]
        candidate = tuple(_OTHER_LABEL.get(word, "") for word in self.candidate.words)
        return replace(
            self,
            model_1=self.model_2,
            model_2=self.model_1,
            length_1=self.length_2,
            length_2=self.length_1,
            candidate=Words(candidate, self.candidate.codes),
            labels=Words(tuple(labels), self.labels.codes),
            outcomes={name: found.turned() for name, found in self.outcomes.items()},
            identity=self.identities,
        )

    @classmethod
    def of(cls, judgments: Sequence[Judgment]) -> Block:
        """Judgments as a block; all of them on the same dimensions.

        >>> from evenhand.core.judge import Conversation, Judgment
        >>> from evenhand.io.pairs import Pair
        >>> from evenhand.core.verdict import Verdict
        >>> judged = {"forward": Conversation({"overall": Verdict("overall", "A")})}
        >>> Block.of([Judgment.of(Pair("Hi", "x", "y"), judged)]).outcomes["overall"].value.tolist()
        [1.0]
        """
        pairs = [judgment.pair for judgment in judgments]
        dimensions = judgments[0].outcomes if judgments else ()
        return cls(
            np.arange(len(pairs)),
            np.array([leading(pair.key) for pair in pairs], dtype=np.uint64),
            np.array([cluster_number(pair.instruction) for pair in pairs], dtype=np.uint64),
            Words.of(pair.model_1 for pair in pairs),
            Words.of(pair.model_2 for pair in pairs),
            np.array([len(pair.output_1) for pair in pairs], dtype=np.int64),
            np.array([len(pair.output_2) for pair in pairs], dtype=np.int64),
            Words.of(pair.candidate for pair in pairs),
            Words.of(labels_text(known_labels(pair)) for pair in pairs),
            {name: outcomes_of([outcome_row(j.outcomes[name]) for j in judgments]) for name in dimensions},
            Words.of(metadata_text(pair.metadata) for pair in pairs),
            suspicious=np.array([bool(suspicions(pair)) for pair in pairs], dtype=np.bool_),
        )


def are_possible(said: NDArray[Any], p: Floats, mass: Floats) -> bool:
    """Whether numbers can be those of outcomes; in a file that was damaged they may be anything.

    >>> said = np.array([69, 0])
    >>> are_possible(said, np.array([[1.0, 0, 0], [np.nan] * 3]), np.zeros(2))
    True
    >>> are_possible(said, np.array([[5.0, -4.0, 0], [np.nan] * 3]), np.zeros(2))
    False
    """
    with np.errstate(invalid="ignore", over="ignore"):
        whole = (said >= 0) & (said < 2 * POINTWISE) & (said == np.floor(said))
        shares = (p >= 0).all(axis=1) & (np.abs(p.sum(axis=1) - 1) <= SHARES_OFF)
        decided = np.where(whole, said, 0).astype(np.int64) & 3 != 0
    read = np.where(decided, shares, np.isnan(p).all(axis=1))
    return bool((whole & read & (mass >= 0) & (mass <= MOST_MASS)).all())


def log_ratio(length_1: Ints, length_2: Ints) -> Floats:
    """The log of the ratio of lengths; an empty text counts as one character.

    >>> log_ratio(np.array([1, 0]), np.array([1, 1])).tolist()
    [0.0, 0.0]
    """
    return np.asarray(np.log(np.maximum(length_1, 1)) - np.log(np.maximum(length_2, 1)), dtype=np.float64)


def first_chosen(forward: Codes, swapped: Codes) -> Ints:
    """How often the response shown first was chosen in both orders, less how often the second.

    >>> first_chosen(np.array([ONE, ONE, TIE]), np.array([TWO, ONE, TIE])).tolist()
    [2, 0, 0]
    """
    first = (forward == ONE).astype(np.int64) - (forward == TWO)
    return np.asarray(first + (swapped == TWO) - (swapped == ONE))


def outcomes_of(rows: Sequence[OutcomeRow]) -> Outcomes:
    """The rows of one dimension as columns."""
    p = np.array([row[2:5] for row in rows], dtype=np.float64).reshape(-1, len(SIDES))  # None becomes NaN
    said = np.array([row.said for row in rows], dtype=np.int64)
    mass = np.array([row.mass for row in rows], dtype=np.float64)
    return Outcomes.of(said, p, mass, Words.of(row.reason for row in rows))


def blocks_of(judgments: Iterable[Judgment], size: int = BLOCK_SIZE) -> Iterator[Block]:
    """Judgments in blocks; those on other dimensions than the ones before begin another."""
    waiting = iter(judgments)
    held: list[Judgment] = []
    for judgment in waiting:
        if held and (len(held) >= size or judgment.outcomes.keys() != held[0].outcomes.keys()):
            yield Block.of(held)
            held = []
        held.append(judgment)
    if held:
        yield Block.of(held)


def labels_text(labels: Mapping[str, str | None]) -> str:
    """Labels by dimension, as they are kept; where people have no majority there is none."""
    given = {dimension: side for dimension, side in labels.items() if side is not None}
    return orjson.dumps(given).decode() if given else "{}"


def metadata_text(metadata: Mapping[str, Any]) -> str:
    """Metadata as they are kept."""
    return json.dumps(dict(metadata), default=str) if metadata else "{}"
