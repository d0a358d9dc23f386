"""Everything in a report, from the results of each judge: one pass over its outcomes, and no text is kept.

Memory grows by some bytes a pair, by the numbers of those that people have labelled, and by the pairs to show.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Protocol

from evenhand import __version__
from evenhand.core.columns import Block
from evenhand.core.engine import Usage, measured_length
from evenhand.core.errors import InputError
from evenhand.core.pair import Pair, Side, excerpt
from evenhand.core.verdict import found_on, headline
from evenhand.core.votes import Votes
from evenhand.engines.made import members_of
from evenhand.results.answer import AnswerSentence, answer_of, ranking_answer
from evenhand.results.attack import AttackSummary
from evenhand.results.bias import BiasSummary, biases_of
from evenhand.results.card import Card, card_of
from evenhand.results.evidence import Draws, decisions_by_number, draws_by_number, gather_from, votes_by_number
from evenhand.results.examples import ExampleKind, ExamplePair, Examples, LowestRanks, chance
from evenhand.results.judges import title_of
from evenhand.results.made import made_notes
from evenhand.results.noise import NoiseSummary, noise_of
from evenhand.results.people import People
from evenhand.results.ranking import Matches, RankingSummary, is_ranked
from evenhand.results.reasons import ReasonSummary, reasons_on
from evenhand.results.roles import Roles
from evenhand.results.run import blocks_of_judge, with_the_rest
from evenhand.results.stored_attacks import stored_attacks
from evenhand.results.summary import Counter, DimensionSummary, Summary, models_of
from evenhand.running.prices import Price, price_of
from evenhand.store import JudgeRow, Records, RunGroup
from evenhand.store.records import PairReader

EXCERPT = 160  # characters of an instruction
_OF_THE_PAGE = {"json": False}


@dataclass(frozen=True, slots=True)
class ReportOptions:
    """What a report should contain."""

    dimension: str = ""  # that decides: the pairs of each kind, the ranking; "" is the headline of each judge
    examples: int = 5  # pairs of each kind
    pairs: int = 500  # pairs beside these
    seed: int = 0
    title: str = ""
    date: str = ""
    example_texts: bool = True  # examples are shown whole, as the page does; Markdown only lists them


@dataclass(frozen=True, slots=True)
class ExampleLine:
    """A pair of one kind, as a list shows it."""

    id: str
    verdict: str  # a side, or "invalid"
    p: Mapping[Side, float] | None  # of both orders together, by side
    people: Side | None
    invalid_reason: str | None
    number: int = field(metadata=_OF_THE_PAGE)
    excerpt: str = field(metadata=_OF_THE_PAGE)
    models: tuple[str, str] = field(metadata=_OF_THE_PAGE)


@dataclass(frozen=True, slots=True)
class JudgeReport:
    """One judge under one protocol. The fields, and their names, are those of `--json`."""

    judge: str
    protocol: str
    fingerprint: str
    identity: Mapping[str, object]
    template: str
    template_sha256: str  # as `sha256sum` would print it
    raw_markup: bool
    pairs: int
    sides: Mapping[str, str]
    decides: str  # the dimension
    answer: AnswerSentence  # in one sentence
    dimensions: Mapping[str, DimensionSummary]
    effects: Mapping[str, BiasSummary]
    noise: Mapping[
        str, NoiseSummary
    ]  # of the dimensions in which it was asked again; empty where that is not known
    people: Mapping[str, Card]  # of the dimensions that people have labelled, without their names
    ranking: RankingSummary | None
    examples: Mapping[ExampleKind, tuple[ExampleLine, ...]]
    counts: Mapping[ExampleKind, int]
    runs: tuple[RunGroup, ...]
    tokens: Usage
    seconds: float
    row: JudgeRow = field(metadata=_OF_THE_PAGE)
    name: str = field(metadata=_OF_THE_PAGE)
    why_unranked: str = field(metadata=_OF_THE_PAGE)
    reasons: ReasonSummary | None = None  # of a judge that is asked for reasons, on the dimension that decides
    repeats: int = 0  # exact repeats of other pairs, which are in no number
    notes: tuple[str, ...] = ()  # how it was counted
    attacks: AttackSummary | None = field(default=None, metadata={"json": None})  # where attacked pairs are kept
    several: bool = field(default=False, metadata=_OF_THE_PAGE)  # a side is not the same model in all pairs

    @property
    def names(self) -> tuple[str, str]:
        """What to call the two sides."""
        return self.sides["1"], self.sides["2"]


@dataclass(frozen=True, slots=True)
class Report:
    """All judges of a report, and which pairs it shows. The fields, and their names, are those of `--json`."""

    evenhand: str  # the version
    database: str  # the file's name alone: where it lies is nobody's business
    pairs: int
    labelled: int
    models: tuple[str, ...]
    pairs_shown: int  # with their texts
    seed: int
    started: float | None  # when the first run began
    ended: float | None  # when the last run ended
    judges: tuple[JudgeReport, ...]
    options: ReportOptions = field(metadata=_OF_THE_PAGE)
    drawn: tuple[int, ...] = field(metadata=_OF_THE_PAGE)  # the numbers of the pairs that the seed drew
    chosen: tuple[int, ...] = field(
        metadata=_OF_THE_PAGE
    )  # of the pairs that are shown: these, and the examples where they are shown whole


def compile_report(store: Records, rows: Sequence[JudgeRow], options: ReportOptions | None = None) -> Report:
    """Everything that a database holds of some judges.

    >>> from evenhand.store import Store
    >>> with Store(":memory:") as store:
    ...     compile_report(store, []).pairs
    0
    """
    options = options or ReportOptions()
    if options.dimension and not any(options.dimension in found_on(row.dimensions) for row in rows):
        known = dict.fromkeys(name for row in rows for name in found_on(row.dimensions))
        raise InputError(f"no verdicts on {options.dimension}", hint=f"dimensions here: {', '.join(known)}")
    people = People(store)
    decisions = decisions_by_number(store, people)
    every = votes_by_number(store, people).items()
    votes = {number: said for number, said in every if said or number in decisions}
    draws = draws_by_number(store, people, votes)
    gathered = _Gathered(votes, draws, decisions, LowestRanks(options.pairs), options)
    judges = tuple(_judge_report(store, row, rows, gathered) for row in reversed(rows))
    drawn = tuple(sorted(gathered.drawn.numbers))
    lines = [line for judge in judges for few in judge.examples.values() for line in few]
    chosen = {*drawn, *(line.number for line in lines if options.example_texts)}
    groups = [group for judge in judges for group in judge.runs]
    return Report(
        __version__,
        Path(store.path).name,
        store.archive.pairs_judged([row.id for row in rows]) if rows else 0,
        len(gathered.labelled),
        tuple(sorted(gathered.models)),
        len(chosen),
        options.seed,
        min((group.started for group in groups), default=None),
        max((group.ended for group in groups if group.ended is not None), default=None),
        judges,
        options,
        drawn,
        tuple(sorted(chosen)),
    )


@dataclass
class _Gathered:
    """What the judges of a report gather together."""

    votes: Mapping[int, Votes]
    draws: Mapping[int, Draws]
    decisions: Mapping[int, Votes]
    drawn: LowestRanks
    options: ReportOptions
    models: set[str] = field(default_factory=set)
    labelled: set[int] = field(default_factory=set)

    def add_block(self, block: Block) -> None:
        """Take the pairs of a block."""
        self.models.update(name for pair in models_of(block) for name in pair if name)
        self.drawn.add(chance(self.options.seed, block.key), block.number)
        if self.votes:
            self.labelled.update(number for number in block.number.tolist() if number in self.votes)


def _judge_report(store: Records, row: JudgeRow, rows: Sequence[JudgeRow], gathered: _Gathered) -> JudgeReport:
    on = deciding(row.dimensions, gathered.options.dimension)
    measured = measured_length(row.identity)
    counter, matches = Counter(found_on(row.dimensions), measured=measured), Matches(on)
    examples = Examples(on, gathered.options.examples, gathered.options.seed)
    takers = (_InRoles(counter), matches, examples, gathered)
    noise = noise_of(store, row)
    cards = _cards(_watched(store.blocks(row), takers), gathered, noise)
    summary = with_the_rest(store, row, counter.summary(), blocks_of_judge(store, row))
    examples = _without_repeats(examples, summary, store.blocks(row), gathered.options)
    ranking, why = _rank(matches) if is_ranked(len(gathered.models), summary.several) else (None, "")
    usage, seconds = store.usage(row)
    return JudgeReport(
        *(row.model, row.protocol, row.fingerprint, dict(row.identity), row.template),
        *(hashlib.sha256(row.template.encode()).hexdigest(), row.raw_markup, row.pairs - summary.attacked),
        dict(zip(("1", "2"), summary.sides, strict=True)),
        on,
        answer_of(summary) if ranking is None else ranking_answer(ranking, summary),
        {name: replace(found, rows=None) for name, found in summary.dimensions.items()},
        {name: biases_of(found) for name, found in summary.dimensions.items()},
        noise,
        cards,
        ranking,
        example_lines(examples, store.pages),
        examples.counts,
        tuple(store.archive.runs(row.id)),
        usage,
        round(seconds, 3),
        row,
        title_of(row, rows),
        why,
        reasons_on(store, row, on),
        summary.repeats,
        (*summary.notes(), *made_notes(store, row, _prices(store, row))),
        stored_attacks(store, row),
        summary.several,
    )


def _without_repeats(
    found: Examples, summary: Summary, blocks: Iterable[Block], options: ReportOptions
) -> Examples:
    """The examples among pairs that count; where some do not, which is rare, they are searched again."""
    counted = summary.dimensions.get(found.dimension)
    repeated = counted.rows.repeated() if counted is not None and counted.rows is not None else []
    if not repeated:
        return found
    again = Examples(found.dimension, options.examples, options.seed, without=repeated)
    for block in blocks:
        again.add_block(block)
    return again


def _prices(store: Records, row: JudgeRow) -> list[Price | None]:
    """The prices of the judges that a judge is made of, where their services have one."""
    known = {judge.fingerprint: judge.identity for judge in store.judges(counted=False)}
    return [price_of(known[mark]) if mark in known else None for mark in members_of(row.identity)]


class _Taker(Protocol):
    """Anything that takes blocks."""

    def add_block(self, block: Block) -> None: ...


class _InRoles:
    """Has a counter take the candidate as one side throughout, as `results` does."""

    def __init__(self, counter: Counter) -> None:
        self._counter, self._roles = counter, Roles()

    def add_block(self, block: Block) -> None:
        """Take the pairs of a block."""
        for part in self._roles.parts(block):
            self._counter.add_block(part)


def _watched(blocks: Iterable[Block], takers: Iterable[_Taker]) -> Iterator[Block]:
    for block in blocks:
        for taker in takers:
            taker.add_block(block)
        yield block


def _cards(blocks: Iterator[Block], gathered: _Gathered, noise: Mapping[str, NoiseSummary]) -> Mapping[str, Card]:
    """The cards of the dimensions that people have labelled; all blocks are read in any case."""
    if not gathered.votes:
        for _ in blocks:
            pass
        return {}
    evidence = gather_from(blocks, gathered.votes, gathered.draws, gathered.decisions)
    labelled = {name: found for name, found in evidence.items() if found.use.labelled}
    return {name: _nameless(card_of(found, noise=noise.get(name))) for name, found in labelled.items()}


def _nameless(card: Card) -> Card:
    """A card without the names of people: a report may go to anybody."""
    return card if card.people is None else replace(card, people=replace(card.people, kappas={}))


def deciding(asked: Sequence[str], named: str = "") -> str:
    """The dimension that decides: the named one, or the headline of those that were asked.

    >>> deciding(["format", "overall"], "format"), deciding(["format"], "overall")
    ('format', 'format')
    """
    return named if named in found_on(asked) else headline(asked)


def short_name(judge: JudgeReport, report: Report) -> str:
    """A judge's protocol, if that is enough to tell it from the others; its model, if there are none."""
    if len(report.judges) == 1:
        return judge.judge
    protocols = [other.protocol for other in report.judges]
    one_model = len({other.judge for other in report.judges}) == 1
    return judge.protocol if one_model and protocols.count(judge.protocol) == 1 else judge.name


def _rank(matches: Matches) -> tuple[RankingSummary | None, str]:
    try:
        return matches.ranking(), ""
    except InputError as fault:
        return None, fault.message


def example_lines(examples: Examples, pairs: PairReader) -> Mapping[ExampleKind, tuple[ExampleLine, ...]]:
    """The examples of each kind with their texts, of which one is read at a time."""
    return {
        kind: tuple(_line(pair, example) for example in few if (pair := pairs.pair(example.number)))
        for kind, few in examples.found().items()
    }


def _line(pair: Pair, example: ExamplePair) -> ExampleLine:
    outcome = example.outcome
    return ExampleLine(
        pair.id,
        outcome.side or "invalid",
        outcome.p,
        example.known,
        outcome.reason,
        example.number,
        excerpt(pair.instruction, EXCERPT),
        (pair.model_1, pair.model_2),
    )
