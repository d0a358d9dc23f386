"""All that a report says, as plain facts: one pass over the judgments of each judge, whose texts are not kept.

Memory grows by some bytes a pair, by the numbers of those that people have labelled, and by the pairs to show.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from evenhand import __version__
from evenhand.dossier.draws import EXCERPT, Example, Examples, Kind, Name, Smallest, chance
from evenhand.dossier.effects import Columns, Effects
from evenhand.errors import InputError
from evenhand.judge import Judgment
from evenhand.people import People
from evenhand.rankings import Bouts, ranking_facts
from evenhand.report import Summary, usage_facts
from evenhand.store import JudgeRow, Records, RunGroup
from evenhand.verdict import found_on, headline
from evenhand.votes import label_of

if TYPE_CHECKING:
    from evenhand.card import Card

__all__ = ["EXCERPT", "Dossier", "JudgePart", "Wishes", "compile_dossier"]
_FEWEST_MODELS = 3  # two have a win rate; a ranking says nothing more of them


@dataclass(frozen=True, slots=True)
class Wishes:
    """What a report shall hold."""

    dimension: str = ""  # that decides: the pairs of each kind, the ranking; "" is the headline of each judge
    examples: int = 5  # pairs of each kind
    pairs: int = 500  # pairs beside these
    seed: int = 0
    title: str = ""
    date: str = ""


@dataclass(frozen=True, slots=True)
class JudgePart:
    """One judge under one protocol."""

    row: JudgeRow
    name: str
    on: str  # the dimension that decides
    sides: tuple[str, str]
    dimensions: Mapping[str, Mapping[str, Any]]  # the numbers of `evenhand results`
    effects: tuple[Effects, ...]
    cards: tuple[Card, ...]  # of the dimensions that people have labelled, on the labelled pairs
    ranking: Mapping[str, Any] | None
    why_unranked: str
    examples: Mapping[Kind, tuple[Example, ...]]
    counts: Mapping[Kind, int]
    runs: tuple[RunGroup, ...]
    tokens: Mapping[str, int]
    seconds: float

    @property
    def template_hash(self) -> str:
        """The sha256 of the template's text, as `sha256sum` would print it."""
        return hashlib.sha256(self.row.template.encode()).hexdigest()

    def facts(self) -> dict[str, Any]:
        """The part as plain data."""
        return {
            "judge": self.row.model,
            "protocol": self.row.protocol,
            "fingerprint": self.row.fingerprint,
            "identity": dict(self.row.identity),
            "template": self.row.template,
            "template_sha256": self.template_hash,
            "raw_markup": self.row.raw_markup,
            "pairs": self.row.pairs,
            "sides": {"1": self.sides[0], "2": self.sides[1]},
            "decides": self.on,
            "dimensions": {name: dict(facts) for name, facts in self.dimensions.items()},
            "effects": {effects.dimension: effects.facts() for effects in self.effects},
            "people": {card.dimension: _without_names(card.facts()) for card in self.cards},
            "ranking": self.ranking,
            "examples": {kind: [_example_facts(e) for e in few] for kind, few in self.examples.items()},
            "counts": dict(self.counts),
            "runs": [asdict(group) for group in self.runs],
            "tokens": dict(self.tokens),
            "seconds": round(self.seconds, 3),
        }


@dataclass(frozen=True, slots=True)
class Dossier:
    """All judges of a report, and which pairs it shows."""

    wishes: Wishes
    database: str  # the file's name alone: where it lies is nobody's business
    version: str
    judges: tuple[JudgePart, ...]
    models: tuple[str, ...]
    pairs: int
    labelled: int
    drawn: tuple[int, ...]  # the numbers of the pairs that the seed drew, as they came into the database
    chosen: tuple[int, ...]  # these and the examples

    @property
    def started(self) -> float | None:
        """When the first run began."""
        return min((group.started for part in self.judges for group in part.runs), default=None)

    @property
    def ended(self) -> float | None:
        """When the last run ended."""
        ends = [group.ended for part in self.judges for group in part.runs if group.ended is not None]
        return max(ends, default=None)

    def facts(self) -> dict[str, Any]:
        """The dossier as plain data, without the texts of pairs."""
        return {
            "evenhand": self.version,
            "database": self.database,
            "pairs": self.pairs,
            "labelled": self.labelled,
            "models": list(self.models),
            "pairs_shown": len(self.chosen),
            "seed": self.wishes.seed,
            "started": self.started,
            "ended": self.ended,
            "judges": [part.facts() for part in self.judges],
        }


def compile_dossier(store: Records, rows: Sequence[JudgeRow], wishes: Wishes | None = None) -> Dossier:
    """Everything that a database holds of some judges.

    >>> from evenhand.store import Store
    >>> with Store(":memory:") as store:
    ...     compile_dossier(store, []).facts()["pairs"]
    0
    """
    wanted = wishes or Wishes()
    if wanted.dimension and not any(wanted.dimension in found_on(row.dimensions) for row in rows):
        known = dict.fromkeys(name for row in rows for name in found_on(row.dimensions))
        raise InputError(f"no verdicts on {wanted.dimension}", hint=f"dimensions here: {', '.join(known)}")
    shared = _Shared(People(store), Smallest(wanted.pairs), wanted)
    parts = tuple(_part(store, row, rows, shared) for row in reversed(rows))
    drawn = _numbers_of(store, {name for name, _ in shared.drawn})
    shown = _numbers_of(store, {e.name for part in parts for few in part.examples.values() for e in few})
    return Dossier(
        wanted,
        Path(store.path).name,
        __version__,
        parts,
        tuple(sorted(shared.models)),
        store.archive.pairs_heard([row.id for row in rows]) if rows else 0,
        len(shared.labelled),
        drawn,
        tuple(sorted({*drawn, *shown})),
    )


def _numbers_of(store: Records, names: Iterable[Name]) -> tuple[int, ...]:
    found = [store.archive.number(*name) for name in names]
    return tuple(sorted(number for number in found if number is not None))


@dataclass
class _Shared:
    """What the judges of a report gather together."""

    people: People
    drawn: Smallest
    wishes: Wishes
    models: set[str] = field(default_factory=set)
    labelled: set[Name] = field(default_factory=set)


def _part(store: Records, row: JudgeRow, rows: Sequence[JudgeRow], shared: _Shared) -> JudgePart:
    from evenhand.card import card_of  # with numpy and scipy, which --help needs not
    from evenhand.evidence import gather_from

    dimensions = found_on(row.dimensions)
    on = deciding(row.dimensions, shared.wishes.dimension)
    gathered = _Gathered(
        Summary(dimensions),
        {name: Columns(name) for name in dimensions},
        Examples(on, shared.wishes.examples, shared.wishes.seed),
        Bouts(on),
    )
    evidence = gather_from(gathered.watch(store.judgments(row), shared), shared.people)
    ranking, why = _rank(gathered.bouts, len(shared.models))
    usage, seconds = store.usage(row)
    return JudgePart(
        row,
        name_of(row, rows),
        on,
        gathered.summary.sides,
        {name: _numbers(facts) for name, facts in gathered.summary.facts()["dimensions"].items()},
        tuple(columns.effects() for columns in gathered.columns.values()),
        tuple(card_of(e) for e in evidence.values() if len(e.labelled)),
        ranking,
        why,
        gathered.examples.found(),
        gathered.examples.counts,
        tuple(store.archive.runs(row.id)),
        usage_facts(usage),
        seconds,
    )


@dataclass
class _Gathered:
    """What one pass over the judgments of a judge fills."""

    summary: Summary
    columns: Mapping[str, Columns]
    examples: Examples
    bouts: Bouts

    def watch(self, judgments: Iterable[Judgment], shared: _Shared) -> Iterator[Judgment]:
        """Count every judgment, and hand on those that people have labelled."""
        for judgment in judgments:
            pair = judgment.pair
            votes = shared.people.votes(pair)
            name = (pair.id, pair.key)
            self.summary.add(judgment)
            self.bouts.add(judgment)
            self.examples.add(judgment, label_of(votes, self.examples.dimension))
            for columns in self.columns.values():
                columns.add(judgment)
            shared.models.update(model for model in (pair.model_1, pair.model_2) if model)
            shared.drawn.offer(chance(shared.wishes.seed, name), name, None)
            if votes:
                shared.labelled.add(name)
                yield judgment


def deciding(asked: Sequence[str], wanted: str = "") -> str:
    """The dimension that decides: the wanted one, or the headline of those that were asked.

    >>> deciding(["format", "overall"], "format"), deciding(["format"], "overall")
    ('format', 'format')
    """
    return wanted if wanted in found_on(asked) else headline(asked)


def name_of(row: JudgeRow, rows: Sequence[JudgeRow]) -> str:
    """What to call a judge: its protocol, with the model where there are several, with a bit of its fingerprint
    where that would name two."""
    full = f"{row.model} under {row.protocol}"
    twins = [other for other in rows if (other.model, other.protocol) == (row.model, row.protocol)]
    return f"{full} ({row.fingerprint[:6]})" if len(twins) > 1 else full


def _rank(bouts: Bouts, models: int) -> tuple[dict[str, Any] | None, str]:
    if models < _FEWEST_MODELS:
        return None, ""
    try:
        return ranking_facts(bouts.ranking(), bouts), ""
    except InputError as fault:
        return None, fault.message


def _numbers(facts: Mapping[str, Any]) -> dict[str, Any]:
    """The numbers of a dimension; agreement is told by the cards, which know all the places where labels stand."""
    return {name: value for name, value in facts.items() if name != "agreement"}


def _without_names(card: dict[str, Any]) -> dict[str, Any]:
    """A card without the names of people: a report may go to anybody."""
    if card["people"] is not None:
        card["people"] = {name: value for name, value in card["people"].items() if name != "kappas"}
    return card


def _example_facts(example: Example) -> dict[str, Any]:
    facts = {"id": example.name[0], "verdict": example.side or "invalid", "p": example.p, "people": example.known}
    return {**facts, "invalid_reason": example.invalid}
