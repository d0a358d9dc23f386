"""Pairs on which people differ: what an adjudicator is asked to decide."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from evenhand.core.pair import DIMENSIONS, Side
from evenhand.core.votes import Votes, label_of, majority
from evenhand.results.people import People
from evenhand.store import Records


@dataclass(frozen=True, slots=True)
class Disagreement:
    """One pair, and the dimensions on which people differ and nobody has decided."""

    pair: str  # Pair.key
    dimensions: tuple[str, ...]
    contested: bool  # on one of them no side has a majority, so that the pair has no label without a decision


@dataclass(frozen=True, slots=True)
class Disagreements:
    """What people differ on, and how much of it is decided."""

    open: tuple[Disagreement, ...] = ()  # those without a majority first
    decided: int = 0  # pairs on which people differ and an adjudicator has spoken of every such dimension

    @property
    def contested(self) -> int:
        """How many open ones have no label as long as nobody decides."""
        return sum(one.contested for one in self.open)


def disagreements(store: Records) -> Disagreements:
    """Every pair on which not all people say the same, whether one side has a majority or not.

    >>> from evenhand import Pair, Store
    >>> differing = Pair("Hi", "x", "y", metadata={"human": {"ann": "A", "ben": "B"}})
    >>> agreed = Pair("Ho", "x", "y", metadata={"human": {"ann": "A", "ben": "A"}})
    >>> with Store(":memory:") as store:
    ...     _ = store.add_pairs([differing, agreed])
    ...     [(one.dimensions, one.contested) for one in disagreements(store).open]
    [(('overall',), True)]
    """
    people = People(store)
    found: dict[str, Disagreement] = {}
    decided: set[str] = set()
    for _, pair in store.voted():
        votes, decisions = people.votes(pair), people.decisions(pair)
        split = {name: said for name, said in votes.items() if len(set(said.values())) > 1}
        left = tuple(name for name in sorted(split, key=_place) if label_of(decisions, name) is None)
        if left:
            contested = any(majority(split[name].values()) is None for name in left)
            found[pair.key] = Disagreement(pair.key, left, contested)  # a pair may stand here under two ids
        elif split:
            decided.add(pair.key)
    ordered = sorted(found.values(), key=lambda one: not one.contested)
    return Disagreements(tuple(ordered), len(decided - found.keys()))


def _place(dimension: str) -> tuple[int, str]:
    """Where a dimension is asked: the known ones as protocols have them, others after these."""
    return DIMENSIONS.index(dimension) if dimension in DIMENSIONS else len(DIMENSIONS), dimension


def tally(votes: Votes, dimension: str) -> Mapping[Side, int]:
    """How many people said what of one dimension, the most frequent first.

    >>> tally({"overall": {"ann": "1", "ben": "2", "cleo": "2"}}, "overall")
    {'2': 2, '1': 1}
    """
    said = list(votes.get(dimension, {}).values())
    return {side: said.count(side) for side in sorted(set(said), key=lambda side: (-said.count(side), side))}
