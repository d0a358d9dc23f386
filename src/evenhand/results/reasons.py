"""What judges give as their reasons: found again by their words, and grouped over a run.

    summarise_reasons(store, judge)      what the losing side is blamed for, and the winning side praised for
    search_reasons(store, judge, text)   every reason that says this

A phrase counts once for each pair, whichever order said it. The loser is the side that the reason's own order
decided against; a tie has none.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from evenhand.core.attacks import as_they_were
from evenhand.core.judge import Judgment
from evenhand.core.pair import Pair, Side
from evenhand.core.protocol import Order
from evenhand.core.reasons import Reason, ReasonReader, may_reason
from evenhand.core.stats.contrast import log_odds_z
from evenhand.core.verdict import headline
from evenhand.results.clauses import Phrase, clauses, phrases, stems_of
from evenhand.store import JudgeRow, Records

TOP, LEAST, EXAMPLES = 10, 2, 5
_MOST_PHRASES = 200_000  # that are held at once; beyond it the rarest are let go of
_SAME = 0.7  # of the pairs of a phrase say a longer one that holds it: the longer one is shown
_OTHER: Mapping[Side, Side] = {"1": "2", "2": "1"}


@dataclass(frozen=True, slots=True)
class ReasonPlace:
    """A pair whose reason says a phrase: of which model, and the piece of the reason that says it."""

    id: str
    key: str
    side: Side
    model: str
    quote: str


@dataclass(frozen=True, slots=True)
class ReasonPhrase:
    """A phrase that reasons share."""

    phrase: str
    pairs: int  # in which it is said of the side that this list is about
    of_the_other: int  # pairs in which it is said of the other side
    z: float  # how far it is said of the one more than of the other, in standard errors
    models: Mapping[str, int]  # of whom it is said, in how many pairs
    examples: tuple[ReasonPlace, ...]


@dataclass(frozen=True, slots=True)
class ReasonSummary:
    """The reasons of one judge on one dimension. The fields, and their names, are those of `--json`."""

    dimension: str
    pairs: int  # with a reason
    reasons: int
    decided: int  # reasons that stand with a verdict other than a tie
    blamed: tuple[ReasonPhrase, ...]  # what the losing side is blamed for
    praised: tuple[ReasonPhrase, ...]  # what the winning side is praised for
    pruned: bool = False  # there were so many phrases that some rare ones were let go of


@dataclass(frozen=True, slots=True)
class FoundReason:
    """A reason with its pair."""

    id: str
    key: str
    model_1: str
    model_2: str
    dimension: str
    order: Order
    side: Side
    text: str


@dataclass(slots=True)
class _PhraseCount:
    """In how many pairs a phrase was said of one side, how it was written, of whom, and where."""

    pairs: int = 0
    texts: dict[str, int] = field(default_factory=dict)
    models: dict[str, int] = field(default_factory=dict)
    places: list[ReasonPlace] = field(default_factory=list)


_NEVER = _PhraseCount()


class ReasonCounter:
    """Takes judgments with their words, and counts the phrases of their reasons.

    >>> from evenhand.core.protocol import Protocol
    >>> ReasonCounter(ReasonReader(Protocol.load("explained").questions), "overall").summary().reasons
    0
    """

    def __init__(self, reader: ReasonReader, dimension: str, *, loser: str = "") -> None:
        self.dimension = dimension
        self._reader, self._loser = reader, loser
        # By what is said: of losers (0), of winners (1).
        self._counts: tuple[dict[tuple[str, ...], _PhraseCount], ...] = ({}, {})
        self._seen: set[tuple[str, str, str]] = set()
        self._pairs = self._reasons = self._decided = 0
        self._pruned = False

    def add(self, judgment: Judgment) -> None:
        """One more judgment; an exact repeat of an earlier pair is passed over."""
        pair = judgment.pair
        identity = (pair.key, pair.model_1, pair.model_2)
        found = [r for r in self._reader.reasons(judgment) if is_wanted(r, pair, self.dimension, self._loser)]
        if not found or identity in self._seen:
            return
        self._seen.add(identity)
        self._pairs += 1
        self._reasons += len(found)
        self._decided += sum(reason.side != "tie" for reason in found)
        for (stems, is_winner), (phrase, place) in _said(found, pair).items():
            self._note(stems, is_winner, phrase, place)
        if sum(map(len, self._counts)) > _MOST_PHRASES:
            self._prune()

    def _note(self, stems: tuple[str, ...], is_winner: bool, phrase: Phrase, place: ReasonPlace) -> None:
        counts = self._counts[is_winner]
        if (count := counts.get(stems)) is None:
            count = counts[stems] = _PhraseCount()
        count.pairs += 1
        count.texts[phrase.text] = count.texts.get(phrase.text, 0) + 1
        count.models[place.model] = count.models.get(place.model, 0) + 1
        if count.pairs <= EXAMPLES:
            count.places.append(place)

    def _prune(self) -> None:
        """Let go of the rarest phrases until half of the room is free."""
        self._pruned, least = True, 1
        while sum(map(len, self._counts)) > _MOST_PHRASES // 2:
            for counts in self._counts:
                for stems in [stems for stems, count in counts.items() if count.pairs <= least]:
                    del counts[stems]
            least += 1

    def summary(self, *, top: int = TOP, least: int = LEAST) -> ReasonSummary:
        """What the reasons come to."""
        blamed, praised = (self._list(which, top, least) for which in (0, 1))
        counts = (self._pairs, self._reasons, self._decided)
        return ReasonSummary(self.dimension, *counts, blamed, praised, self._pruned)

    def _list(self, which: int, top: int, least: int) -> tuple[ReasonPhrase, ...]:
        often = {stems: count for stems, count in self._counts[which].items() if count.pairs >= least}
        told = within_longer({stems: count.pairs for stems, count in often.items()})
        scores = self._scores(which, [stems for stems in often if stems not in told])
        chosen: list[tuple[str, ...]] = []
        for stems in sorted(scores, key=lambda stems: (-scores[stems], -often[stems].pairs, -len(stems), stems)):
            of_it = scores[stems] > 0 or not self._other(which, stems).pairs
            if of_it and len(chosen) < top and not any(_holds(stems, other) for other in chosen):
                chosen.append(stems)
        return tuple(self._phrase(stems, which, scores[stems]) for stems in chosen)

    def _scores(self, which: int, phrases: Iterable[tuple[str, ...]]) -> dict[tuple[str, ...], float]:
        totals = [sum(count.pairs for count in self._counts[group].values()) for group in (which, 1 - which)]
        different = max(2, len(self._counts[0].keys() | self._counts[1].keys()))
        return {
            stems: log_odds_z(
                (self._counts[which][stems].pairs, self._other(which, stems).pairs),
                (totals[0], totals[1]),
                different,
            )
            for stems in phrases
        }

    def _other(self, which: int, stems: tuple[str, ...]) -> _PhraseCount:
        return self._counts[1 - which].get(stems, _NEVER)

    def _phrase(self, stems: tuple[str, ...], which: int, z: float) -> ReasonPhrase:
        count = self._counts[which][stems]
        text = max(count.texts, key=lambda text: (count.texts[text], text))
        models = dict(sorted(count.models.items(), key=lambda item: (-item[1], item[0])))
        numbers = (count.pairs, self._other(which, stems).pairs, round(z, 3))
        return ReasonPhrase(text, *numbers, models, tuple(count.places))


def _said(reasons: Iterable[Reason], pair: Pair) -> dict[tuple[tuple[str, ...], bool], tuple[Phrase, ReasonPlace]]:
    """The phrases of a pair's reasons, each once, by their stems and whether they are about the winner."""
    found: dict[tuple[tuple[str, ...], bool], tuple[Phrase, ReasonPlace]] = {}
    for reason in reasons:
        for clause in clauses(reason.text) if reason.side != "tie" else ():
            place = ReasonPlace(pair.id, pair.key, clause.side, model_of(pair, clause.side), clause.text)
            for phrase in phrases(clause.text):
                found.setdefault((phrase.stems, clause.side == reason.side), (phrase, place))
    return found


def is_wanted(reason: Reason, pair: Pair, dimension: str = "", loser: str = "") -> bool:
    """Whether a reason is on a dimension, and against a model or a side; empty is any.

    >>> pair, reason = Pair("Hi", "x", "y", model_2="new"), Reason("overall", "forward", "1", "It rambles.")
    >>> is_wanted(reason, pair, loser="new"), is_wanted(reason, pair, loser="1"), is_wanted(reason, pair, "format")
    (True, False, False)
    """
    if dimension not in ("", reason.dimension):
        return False
    if not loser:
        return True
    return reason.side != "tie" and loser in (_OTHER[reason.side], model_of(pair, _OTHER[reason.side]))


def model_of(pair: Pair, side: Side) -> str:
    """The model of a side, or the side itself where it has no name.

    >>> model_of(Pair("Hi", "x", "y", model_2="new"), "2"), model_of(Pair("Hi", "x", "y"), "1")
    ('new', '1')
    """
    return (pair.model_1 if side == "1" else pair.model_2) or side


def within_longer(counts: Mapping[tuple[str, ...], int]) -> set[tuple[str, ...]]:
    """Phrases that most of the time are said as part of a longer one.

    >>> within_longer({("too", "long"): 9, ("long",): 10, ("much", "too", "long"): 2})
    {('long',)}
    """
    found = set()
    for stems, count in counts.items():
        for length in range(1, len(stems)):
            for begin in range(len(stems) - length + 1):
                part = stems[begin : begin + length]
                if part in counts and count >= _SAME * counts[part]:
                    found.add(part)
    return found


def _holds(longer: tuple[str, ...], shorter: tuple[str, ...]) -> bool:
    """Whether a phrase stands in another, word for word."""
    size = len(shorter)
    return any(longer[begin : begin + size] == shorter for begin in range(len(longer) - size + 1))


def summarise_reasons(
    store: Records, judge: JudgeRow, dimension: str = "", *, loser: str = "", top: int = TOP, least: int = LEAST
) -> ReasonSummary:
    """What a judge's reasons come to on one dimension; on the headline, if none is named.

    `loser` keeps reasons against one side alone: a model's name, or 1 or 2.
    """
    counter = ReasonCounter(ReasonReader.of(judge), dimension or asked_headline(judge), loser=loser)
    for judgment in as_they_were(store.judgments(judge, words=True)):
        counter.add(judgment)
    return counter.summary(top=top, least=least)


def reasons_on(store: Records, judge: JudgeRow, dimension: str) -> ReasonSummary | None:
    """The reasons for a view that shows all of a judge; None where it was not asked for any, or gave none.

    Nothing is read of a judge that answers with labels alone.
    """
    if not may_reason(judge):
        return None
    found = summarise_reasons(store, judge, dimension if dimension in judge.dimensions else "")
    return found if found.reasons else None


def asked_headline(judge: JudgeRow) -> str:
    """The dimension to look at: the headline if it was asked ("combined" never is), else overall, else the last.

    >>> asked_headline(JudgeRow(1, "", "", {}, "", "", ("format", "overall", "tone"), False, 0))
    'overall'
    """
    asked = judge.dimensions
    return next((name for name in (headline(asked), "overall") if name in asked), asked[-1])


def search_reasons(
    store: Records, judge: JudgeRow, text: str = "", dimension: str = "", *, loser: str = ""
) -> Iterator[FoundReason]:
    """Every reason of a judge that says a text: as it is written, or in other forms of the same words.

    `loser` keeps reasons against one side alone: a model's name, or 1 or 2.
    """
    reader, wanted = ReasonReader.of(judge), _WantedText(text)
    for judgment in as_they_were(store.judgments(judge, words=True)):
        pair = judgment.pair
        about = (pair.id, pair.key, pair.model_1, pair.model_2)
        for reason in reader.reasons(judgment):
            if is_wanted(reason, pair, dimension, loser) and wanted.is_in(reason.text):
                yield FoundReason(*about, reason.dimension, reason.order, reason.side, reason.text)


class _WantedText:
    """A text to look for in others: as it is written, or by the stems of its words."""

    def __init__(self, text: str) -> None:
        self._letters, self._stems = " ".join(text.lower().split()), stems_of(text)
        self._must = [stem for stem in self._stems if stem != "not"]  # which is not written where it is "n't"

    def is_in(self, text: str) -> bool:
        """Whether a text says it; most texts are passed over without being cut into words."""
        letters = " ".join(text.lower().split())
        if self._letters in letters:
            return True
        return bool(self._stems) and all(s in letters for s in self._must) and _holds(stems_of(text), self._stems)
