"""The answer in one sentence: which side is better and how sure that is, or why it should not be trusted yet."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from evenhand.core.stats.clusters import z_quantile
from evenhand.core.stats.ranking import Standing
from evenhand.core.verdict import headline
from evenhand.results.counting import weighs_text
from evenhand.results.ranking import RankingSummary
from evenhand.results.summary import DimensionSummary, EarlyStop, Span, Summary
from evenhand.results.wording import about, count, listed, percent

Kind = Literal["better", "unclear", "distrust", "nothing", "several"]
# A judge whose verdicts follow the place in more pairs than this says little about the content.
MOST_BY_PLACE = 0.5
MOST_INVALID = 0.5
MOST_TOO_LONG = 0.5  # pairs of a length that the judge was never measured on
FEWEST_TIED = 10  # pairs with outputs of unlike length, all tied, before the judge may be said to see no difference
_MOST_NAMED = 3  # models of a ranking
FEWEST_ALIKE = 20  # instructions: with fewer, their spread says little of that of others
POINTS = 5  # the difference that "cannot tell yet" speaks of, in percentage points


@dataclass(frozen=True, slots=True)
class AnswerSentence:
    """What a summary says, in one sentence, and what the sentence stands on."""

    kind: Kind
    sentence: str
    dimension: str | None
    side: Literal["1", "2"] | None = None
    win_rate: float | None = None  # of the side that is named, or of side 1
    ci: Span | None = None
    n: int = 0
    more_pairs: int | None = None  # that would decide a difference of five points


def answer_of(summary: Summary) -> AnswerSentence:
    """The answer of a summary, by its headline dimension.

    >>> from evenhand.results.summary import Counter
    >>> answer_of(Counter().summary()).sentence
    'no verdicts yet'
    """
    name = headline_of(summary)
    if name is None:
        return AnswerSentence("nothing", "no verdicts yet", None)
    found = summary.dimensions[name]
    if not found.n:
        return AnswerSentence("nothing", _nothing(found), name)
    warning = _warning(found) or _too_long(summary)
    if warning:
        rate = "" if summary.several else f"; {_least_misleading(summary, found)}"
        return AnswerSentence("distrust", f"do not trust this: {warning}{rate}", name, n=found.n)
    if summary.several:
        return AnswerSentence(
            "several", "the sides are not always the same models: evenhand rank shows the result", name, n=found.n
        )
    return _sentence(summary, name, found)


def distrust(summary: Summary, dimension: str = "") -> str:
    """Why the verdicts of a summary say little; empty where they can be trusted.

    They are those on the headline dimension, unless another is named.
    """
    found = summary.dimensions.get(dimension or headline_of(summary) or "")
    return _warning(found) if found is not None and found.n else ""


def headline_of(summary: Summary) -> str | None:
    """The dimension that an answer is about."""
    return headline([*summary.dimensions]) if summary.dimensions else None


def _nothing(found: DimensionSummary) -> str:
    reasons = ", ".join(f"{reason} {count:,}" for reason, count in found.invalid_reasons.items())
    return f"no verdict could be read ({reasons})" if reasons else "no verdicts yet"


def _warning(found: DimensionSummary) -> str:
    """Why these verdicts say little; empty where nothing speaks against them."""
    if found.invalid > MOST_INVALID * (found.n + found.invalid):
        return f"{found.invalid:,} of {found.n + found.invalid:,} verdicts are invalid"
    if found.low_mass:
        return f"only {percent(found.label_mass, 0)} of the judge's probability falls on a label"
    for share, place in ((found.first_in_both, "first"), (found.second_in_both, "second")):
        if share is not None and share > MOST_BY_PLACE:
            return f"the judge chose whatever stood {place} in {percent(share, 0)} of pairs"
    if found.ties == found.n and found.unlike >= FEWEST_TIED:
        return f"the judge called all {found.n:,} pairs a tie, so it may not see any difference"
    return ""


def _too_long(summary: Summary) -> str:
    """Whether most responses are longer than those that the judge was measured on."""
    if summary.too_long <= MOST_TOO_LONG * summary.pairs:
        return ""
    share = percent(summary.too_long / summary.pairs, 0)
    return f"in {share} of pairs a response is longer than those this judge was measured on"


def _least_misleading(summary: Summary, found: DimensionSummary) -> str:
    """With both orders pooled, probabilities say more than the verdicts."""
    rate, ci = found.expected.win_rate_1, found.expected.ci
    return f"by probabilities {side_name(summary, '1')} wins {percent(rate, 0)}{_span(ci)}, n = {found.n:,}"


def _sentence(summary: Summary, name: str, found: DimensionSummary) -> AnswerSentence:
    rate, ci = _rate_that_holds(summary, name, found)
    if rate is None or ci is None:
        one = side_name(summary, "1")
        return AnswerSentence(
            "unclear", f"cannot tell yet: {one} wins {percent(rate, 0)}, n = {found.n:,}", name, n=found.n
        )
    if ci[0] <= 0.5 <= ci[1]:
        more = pairs_wanted(found)
        wanted = "" if more is None else f"; about {more:,} more pairs would decide a {POINTS}-point difference"
        said = (
            f"cannot tell yet: {side_name(summary, '1')} wins {percent(rate, 0)}{_reach(summary, name, ci)},"
            f" n = {found.n:,}{wanted}"
        )
        return AnswerSentence("unclear", said, name, None, rate, ci, found.n, more)
    if ci[0] > 0.5:
        return _better(summary, name, "1", rate, ci, found)
    return _better(summary, name, "2", 1 - rate, (1 - ci[1], 1 - ci[0]), found)


def _better(
    summary: Summary, name: str, side: Literal["1", "2"], rate: float, ci: Span, found: DimensionSummary
) -> AnswerSentence:
    who = side_name(summary, side)
    said = f"{who} is better: it wins {percent(rate, 0)} of pairs{_reach(summary, name, ci)}, n = {found.n:,}"
    return AnswerSentence("better", said, name, side, rate, ci, found.n)


def _rate_that_holds(summary: Summary, name: str, found: DimensionSummary) -> tuple[float | None, Span | None]:
    """The rate with its interval; where a run was to stop when decided, the interval that holds at every moment.

    That one is of the rate by instruction, whatever weighs the same elsewhere.
    """
    early = _early(summary, name)
    if early is None or found.by_instruction.win_rate_1 is None:
        return found.win_rate_1, found.ci
    return found.by_instruction.win_rate_1, early.interval


def _early(summary: Summary, name: str) -> EarlyStop | None:
    """What holds of a dimension after a run that it stopped."""
    early = summary.stopped_early
    return early if early is not None and early.dimension == name else None


def _reach(summary: Summary, name: str, ci: Span) -> str:
    """The interval in words, with what kind it is and what weighs the same where that matters."""
    found, early = summary.dimensions[name], _early(summary, name)
    weighting = found.weighting if early is None else "instructions"
    weighed = f", {weighs_text(weighting)}" if found.shared else ""
    kind = (
        "" if summary.stopped_early is None else ", at every moment" if early else ", too narrow: it stopped early"
    )
    return f"{_span(ci, kind)}{weighed}"


def side_name(summary: Summary, side: Literal["1", "2"]) -> str:
    """What to call a side in a sentence: its model, with its role; or "side 1"."""
    place = int(side) - 1
    name = summary.sides[place]
    called = f"side {side}" if name == side else name
    role = f" ({summary.roles[place]})" if summary.roles else ""
    return called if called.endswith(role) else f"{called}{role}"  # one file on both sides has it in its name


def pairs_wanted(found: DimensionSummary) -> int | None:
    """About how many more pairs an interval of five points to each side takes, rounded to two digits.

    Its width falls with the root of their number, if the pairs to come are like those at hand. Few instructions do
    not show what these are like: then the variance is taken to be the largest that there is, a quarter, as without
    ties, which asks for z² / 4 / 0.05², about 380 instructions.
    """
    if found.ci is None or not found.n:
        return None
    if found.clusters < FEWEST_ALIKE:
        times = (z_quantile(found.ci_level) / 2 / (POINTS / 100)) ** 2 / found.clusters
    else:
        times = ((found.ci[1] - found.ci[0]) / 2 / (POINTS / 100)) ** 2
    more = found.n * (times - 1)
    if more < 1:
        return None
    return about(more)


# -- of a ranking ----------------------------------------------------------------------------------------------


def ranking_answer(ranking: RankingSummary, summary: Summary | None = None) -> AnswerSentence:
    """Which model is first and whether that is certain; with the judge's summary, why it should not be trusted."""
    said = _leaders(ranking)
    warning = distrust(summary) if summary is not None else ""
    if not warning:
        return said
    return AnswerSentence(
        "distrust", f"do not trust this: {warning}; {said.sentence}", ranking.dimension, n=ranking.n
    )


def _leaders(ranking: RankingSummary) -> AnswerSentence:
    """Which of the linked models is first; the others cannot be compared with them."""
    if ranking.all_tied:
        tied = "the only game is" if ranking.n == 1 else f"all {ranking.n:,} games are"
        said = f"cannot tell which of {count(len(ranking.models), 'model')} is best: {tied} tied"
        return AnswerSentence("unclear", said, ranking.dimension, n=ranking.n)
    linked = [model for model in ranking.models if model.place != "beside"]
    beside = [model.model for model in ranking.models if model.place == "beside"]
    if len(linked) == 2:
        kind, said = _better_of_two(linked)
    else:
        kind, said = _first(linked, f"the {len(linked)} linked models" if beside else f"{len(linked):,} models")
    if beside:
        kind, said = "unclear", f"{said}; {_named(beside)} cannot be ranked with them"
    return AnswerSentence(kind, f"{said}, n = {ranking.n:,}", ranking.dimension, n=ranking.n)


def _better_of_two(linked: list[Standing]) -> tuple[Kind, str]:
    one, two = linked
    if two.best_rank == 1:
        return "unclear", f"cannot tell yet whether {one.model} or {two.model} is better"
    return "better", f"{one.model} is better than {two.model}"


def _first(linked: list[Standing], models: str) -> tuple[Kind, str]:
    """Models whose best possible rank is the first lead; one of them alone is the best."""
    leaders = [model.model for model in linked if model.best_rank == 1]
    if len(leaders) == len(linked):
        return "unclear", f"cannot tell yet which of {models} is best"
    if len(leaders) > 1:
        return "unclear", f"{leaders[0]} leads, and cannot be told apart yet from {_named(leaders[1:])}"
    return "better", f"{leaders[0]} is the best of {models}: it is ahead of every other"


def _named(names: list[str]) -> str:
    """Some names in words.

    >>> _named(["a"]), _named(["a", "b"]), _named(list("abcde"))
    ('a', 'a and b', 'a, b, c and 2 others')
    """
    shown, left = names[:_MOST_NAMED], len(names) - _MOST_NAMED
    if left > 0:
        return f"{', '.join(shown)} and {count(left, 'other')}"
    return listed(shown)


def _span(ci: Span | None, kind: str = "") -> str:
    return f" ({100 * ci[0]:.0f} to {percent(ci[1], 0)}{kind})" if ci else ""
