"""The votes of people on a pair: who said what, what most of them say, and the votes in the pairs' own file."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from evenhand.core.pair import Pair, Side, read_label
from evenhand.core.protocol import Order

# Who speaks where a file gives a label and does not say whose it is.
FILE = "file"
OVERALL = "overall"
# A dimension that evenhand makes out of others has no labels of its own: people were asked for the whole.
_ASKED_AS = {"combined": OVERALL}
SHOWN: dict[str, Order] = {
    **dict.fromkeys(("forward", "1 shown first"), "forward"),
    **dict.fromkeys(("swapped", "2 shown first"), "swapped"),
}

# How a pair came to be labelled: drawn by chance, chosen because its label would teach most, or brought by a file
# that does not say; unknown is a label of an older version, or one that was added by a program.
Design = Literal["random", "suggested", "imported", "unknown"]
DESIGNS: tuple[Design, ...] = ("random", "suggested", "imported", "unknown")

# Annotators judge pairs by themselves. An adjudicator decides where they differ: that word is the label of the
# pair, and no vote, so that it is in no figure of agreement between people.
Role = Literal["annotator", "adjudicator"]
ROLES: tuple[Role, ...] = ("annotator", "adjudicator")

_OTHER_SIDE: dict[Side | None, Side] = {"1": "2", "2": "1", "tie": "tie"}
_OTHER_ORDER: dict[Order | None, Order] = {"forward": "swapped", "swapped": "forward"}


@dataclass(frozen=True, slots=True)
class Drawn:
    """How a pair came to be labelled, and with what probability, where that is known.

    `among` is the number of the newest pair that could have been drawn: of later ones the draw says nothing.
    """

    design: Design = "unknown"
    probability: float | None = None
    among: int | None = None


@dataclass(frozen=True, slots=True)
class NamedVote:
    """One vote as a file gives it: of a pair that is named by its texts or only by its id."""

    key: str  # of the texts; empty where the file has only an id
    id: str
    dimension: str
    annotator: str
    side: Side | None
    order: Order | None = None
    note: str = ""
    seconds: float | None = None
    flipped: str = ""  # the key of the same texts with their sides exchanged
    drawn: Drawn | None = None  # where the file says it
    role: Role = "annotator"

    def exchanged(self) -> NamedVote:
        """The same vote on the pair whose sides stand the other way round."""
        side, order = _OTHER_SIDE.get(self.side), _OTHER_ORDER.get(self.order)
        return replace(self, key=self.flipped, flipped=self.key, side=side, order=order)


Votes = Mapping[str, Mapping[str, Side]]


def votes_on(votes: Votes, dimension: str) -> Mapping[str, Side]:
    """The votes that speak of a dimension; for `combined` those on overall.

    >>> votes_on({"overall": {"ann": "1"}}, "combined")
    {'ann': '1'}
    """
    return votes.get(dimension) or votes.get(_ASKED_AS.get(dimension, dimension), {})


def draws_on(draws: Mapping[str, Sequence[Drawn]], dimension: str) -> Sequence[Drawn]:
    """How a pair came to be labelled on a dimension; for `combined` on overall.

    >>> draws_on({"overall": [Drawn("random")]}, "combined")[0].design
    'random'
    """
    return draws.get(dimension) or draws.get(_ASKED_AS.get(dimension, dimension), ())


def label_of(votes: Votes, dimension: str) -> Side | None:
    """What most people said of a dimension; None without a strict majority.

    >>> label_of({"overall": {"ann": "1", "ben": "2"}}, "overall") is None
    True
    """
    return majority(votes_on(votes, dimension).values())


def final_label(votes: Votes, decisions: Votes, dimension: str) -> Side | None:
    """The label of a pair: what an adjudicator decided, else what most people said.

    >>> votes = {"overall": {"ann": "1", "ben": "2"}}
    >>> final_label(votes, {}, "overall"), final_label(votes, {"overall": {"cleo": "tie"}}, "overall")
    (None, 'tie')
    """
    return label_of(decisions, dimension) or label_of(votes, dimension)


def majority(sides: Iterable[Side]) -> Side | None:
    """What more than half of them say; None where no side has so many.

    >>> majority(["1", "tie", "1"]), majority(["1", "2"]), majority([])
    ('1', None, None)
    """
    counts = Counter(sides)
    if not counts:
        return None
    side, most = counts.most_common(1)[0]
    return side if 2 * most > counts.total() else None


def own_votes(pair: Pair) -> list[NamedVote]:
    """The votes that stand in the pairs' own file; raises ValueError where a field of votes holds something else.

    >>> [(v.annotator, v.side) for v in own_votes(Pair("Hi", "x", "y", labels={"overall": "tie"}))]
    [('file', 'tie')]
    """
    found = list(row_votes(pair.metadata, pair.key, pair.id))
    voted = {vote.dimension for vote in found}
    found += [NamedVote(pair.key, pair.id, d, FILE, side) for d, side in pair.labels.items() if d not in voted]
    return found


def row_votes(row: Mapping[str, Any], key: str, name: str) -> Iterator[NamedVote]:
    """`human` and `dims` of a row; `shown` says in which order each person saw the pair."""
    shown = [SHOWN.get(str(word)) for word in parsed(row.get("shown")) or ()]
    group = str(row.get("source") or "annotator")
    asked = {OVERALL: row.get("human"), **_by_dimension(parsed(row.get("dims")))}
    for dimension, given in asked.items():
        votes = parsed(given)
        if votes is None:
            continue
        for place, (who, said) in enumerate(_named(votes, group, dimension)):
            order = shown[place] if place < len(shown) and isinstance(votes, list) else None
            yield NamedVote(key, name, dimension, who, side_of(said, dimension), order)


def _by_dimension(dims: object) -> dict[str, Any]:
    if dims is None:
        return {}
    if not isinstance(dims, Mapping):
        raise ValueError("field 'dims' is not an object of dimension: votes")
    return {str(name): _votes_of(part) for name, part in dims.items()}


def _votes_of(part: object) -> object:
    """Votes by themselves, or beside the label that they come to: {"human": [...], "label": ...}."""
    if not isinstance(part, Mapping) or not {"human", "label"} & part.keys():
        return part
    if part.get("human") is not None:
        return part["human"]
    return {FILE: part["label"]} if part.get("label") is not None else None


def _named(votes: object, group: str, dimension: str) -> list[tuple[str, Any]]:
    """Votes with who gave them; a bare list has no names, so people are told apart by their places."""
    if isinstance(votes, Mapping):
        return [(str(who), said) for who, said in votes.items()]
    if isinstance(votes, list):
        return [(f"{group} {place}", said) for place, said in enumerate(votes, 1)]
    raise ValueError(f"the votes on {dimension} are neither a list nor an object")


def side_of(said: object, dimension: str) -> Side | None:
    """The side that a vote names; None where it names none."""
    if isinstance(said, (dict, list)):
        raise ValueError(f"a vote on {dimension} is of type {type(said).__name__}, not a label")
    return read_label(said)


def parsed(value: Any) -> Any:
    """A cell of a CSV file can only hold text; a list or an object in it is JSON."""
    if isinstance(value, str) and value.strip()[:1] in ("[", "{"):
        return json.loads(value)  # a JSONDecodeError is a ValueError
    return None if value == "" else value


KeptVote = tuple[str, str, Side | None]  # dimension, annotator, side


def known_labels(
    pair: Pair, kept: Iterable[KeptVote] = (), decided: Iterable[KeptVote] = ()
) -> dict[str, Side | None]:
    """The label of a pair, by dimension: from the votes of its own file, and from what is kept beside it.

    `kept` have the last word where both places speak; `decided` is what adjudicators said, which goes before all
    votes. None where there are votes, no side has a majority and nobody has decided.

    >>> pair = Pair("Hi", "x", "y", labels={"overall": "1"})
    >>> known_labels(pair), known_labels(pair, [("format", "ann", "2"), ("overall", "ann", "2")])
    ({'overall': '1'}, {'overall': None, 'format': '2'})
    """
    votes, decisions = gather_votes(pair, kept)[0], by_dimension(decided)
    # Not `final_label`: the votes on overall are no label of `combined` here.
    return {
        name: majority(decisions.get(name, {}).values()) or majority(votes.get(name, {}).values())
        for name in (*votes, *(name for name in decisions if name not in votes))
    }


def label_by_votes(pair: Pair) -> tuple[Pair, bool]:
    """The pair with what most people say of it in its own file as its labels; and whether all votes could be read.

    >>> pair = Pair("Hi", "x", "y", metadata={"human": ["A", "A", "tie"]})
    >>> label_by_votes(pair)[0].labels
    {'overall': '1'}
    """
    readable = gather_votes(pair, ())[1]
    return replace(pair, labels={name: side for name, side in known_labels(pair).items() if side}), readable


def by_dimension(said: Iterable[KeptVote], rename: Mapping[str, str] | None = None) -> dict[str, dict[str, Side]]:
    """Votes by dimension and person, without those that name no side.

    >>> by_dimension([("overall", "ann", "1"), ("overall", "ben", None)])
    {'overall': {'ann': '1'}}
    """
    found: dict[str, dict[str, Side]] = {}
    for dimension, who, side in said:
        if side is not None:
            found.setdefault((rename or {}).get(dimension, dimension), {})[who] = side
    return found


def gather_votes(
    pair: Pair, kept: Iterable[KeptVote], rename: Mapping[str, str] | None = None
) -> tuple[dict[str, dict[str, Side]], bool]:
    """The votes on a pair, by dimension and person; and whether a field of votes could not be read."""
    readable = True
    given: list[KeptVote] = []
    if pair.labels or pair.metadata:
        try:
            given = [(vote.dimension, vote.annotator, vote.side) for vote in own_votes(pair)]
        except ValueError:
            readable = False
    return by_dimension((*given, *kept), rename), readable
