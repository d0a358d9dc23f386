"""Which pairs a report shows: a few of each kind that one wants to read, and more by the seed.

What stays in memory is a name and a few numbers of each pair that is chosen, never a text.
"""

from __future__ import annotations

import hashlib
import heapq
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Literal, get_args

from evenhand.judge import Judgment
from evenhand.pairs import Pair, Side
from evenhand.verdict import Finding

Kind = Literal["inconsistent", "invalid", "against_people", "near_tie", "clear"]
KINDS: tuple[Kind, ...] = get_args(Kind)
Name = tuple[str, str]  # a pair's id and the hash of its texts


@dataclass(frozen=True, slots=True)
class Example:
    """A pair of one kind, as a list shows it."""

    name: Name
    excerpt: str
    side: Side | None
    p: Mapping[str, float] | None  # pooled, by side
    invalid: str | None
    known: Side | None
    models: tuple[str, str]


EXCERPT = 160  # characters of an instruction


class Smallest:
    """The k entries with the smallest ranks of a stream; equal names are one entry.

    >>> few = Smallest(2)
    >>> for rank, name in ((3.0, "c"), (1.0, "a"), (2.0, "b"), (1.0, "a")):
    ...     few.offer(rank, (name, ""), None)
    >>> [name for name, _ in few]
    [('a', ''), ('b', '')]
    """

    def __init__(self, size: int) -> None:
        self._size = size
        self._heap: list[tuple[float, _Last, Example | None]] = []
        self._names: set[Name] = set()

    def wants(self, rank: float, name: Name) -> bool:
        """Whether an entry of this rank would be kept."""
        if not self._size or name in self._names:
            return False
        return len(self._heap) < self._size or (-rank, _Last(name)) > self._heap[0][:2]

    def offer(self, rank: float, name: Name, entry: Example | None) -> None:
        """Take an entry, if it is among the smallest."""
        if not self.wants(rank, name):
            return
        self._names.add(name)
        item = (-rank, _Last(name), entry)
        if len(self._heap) < self._size:
            heapq.heappush(self._heap, item)
        else:
            self._names.discard(heapq.heapreplace(self._heap, item)[1].name)

    def __iter__(self) -> Iterator[tuple[Name, Example | None]]:
        for _, last, entry in sorted(self._heap, key=lambda item: (-item[0], item[1].name)):
            yield last.name, entry


@dataclass(frozen=True, slots=True)
class _Last:
    """Turns the order of names around: between equal ranks the smaller name is kept."""

    name: Name

    def __lt__(self, other: _Last) -> bool:
        return self.name > other.name

    def __gt__(self, other: _Last) -> bool:
        return self.name < other.name


def chance(seed: int, name: Name) -> float:
    """A number between 0 and 1 that depends on the seed and the pair alone, whatever else the database holds.

    >>> chance(0, ("a", "k")) == chance(0, ("a", "k")) != chance(1, ("a", "k"))
    True
    """
    text = f"{seed}\0{name[0]}\0{name[1]}".encode()
    return int.from_bytes(hashlib.blake2b(text, digest_size=7).digest(), "big") / 2**56


class Examples:
    """A few pairs of each kind, of one judge on one dimension, out of a stream of judgments.

    Near ties and clear wins are the nearest and the clearest there are; of the other kinds the seed draws.
    """

    def __init__(self, dimension: str, each: int, seed: int) -> None:
        self.dimension, self._seed = dimension, seed
        self._kinds = {kind: Smallest(each) for kind in KINDS}
        self.counts: dict[Kind, int] = dict.fromkeys(KINDS, 0)

    def add(self, judgment: Judgment, known: Side | None) -> None:
        """Take one judgment, and what people say of it."""
        finding = judgment.findings.get(self.dimension)
        if finding is None:
            return
        name = (judgment.pair.id, judgment.pair.key)
        for kind, rank in self._ranks(finding, name, known):
            self.counts[kind] += 1
            if self._kinds[kind].wants(rank, name):
                self._kinds[kind].offer(rank, name, _example(judgment.pair, finding, name, known))

    def _ranks(self, finding: Finding, name: Name, known: Side | None) -> Iterator[tuple[Kind, float]]:
        drawn = chance(self._seed, name)
        if finding.side is None:
            yield "invalid", drawn
            return
        if finding.inconsistent:
            yield "inconsistent", drawn
        if known is not None and known != finding.side:
            yield "against_people", drawn
        if finding.p is not None:
            yield "near_tie", abs(finding.p["1"] - finding.p["2"])
            if finding.side != "tie":
                yield "clear", 1 - finding.p[finding.side]

    def found(self) -> dict[Kind, tuple[Example, ...]]:
        """The examples of each kind."""
        return {kind: tuple(e for _, e in few if e is not None) for kind, few in self._kinds.items()}


def _example(pair: Pair, finding: Finding, name: Name, known: Side | None) -> Example:
    excerpt = " ".join(pair.instruction[: 4 * EXCERPT].split())
    cut = excerpt if len(excerpt) <= EXCERPT else f"{excerpt[: EXCERPT - 1]}…"
    p = None if finding.p is None else {str(side): share for side, share in finding.p.items()}
    return Example(name, cut, finding.side, p, finding.invalid, known, (pair.model_1, pair.model_2))
