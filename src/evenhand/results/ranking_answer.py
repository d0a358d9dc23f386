"""What a ranking says, in one sentence: the answer of an arena."""

from __future__ import annotations

from evenhand.results.answer import AnswerSentence, distrust
from evenhand.results.ranking import RankingSummary
from evenhand.results.summary import Summary
from evenhand.results.wording import count

_MOST_NAMED = 3


def ranking_answer(ranking: RankingSummary, summary: Summary | None = None) -> AnswerSentence:
    """Who is first and whether that is certain; with the judge's summary, why nobody should believe it."""
    said = _sentence(ranking)
    warning = distrust(summary) if summary is not None else ""
    if not warning:
        return said
    return AnswerSentence(
        "distrust", f"do not trust this: {warning}; {said.sentence}", ranking.dimension, n=ranking.n
    )


def _sentence(ranking: RankingSummary) -> AnswerSentence:
    """Models whose best possible rank is the first lead; one of them alone is the best."""
    leaders = [model.model for model in ranking.models if model.best_rank == 1]
    games, dimension = f"n = {ranking.n:,}", ranking.dimension
    if len(leaders) == len(ranking.models):
        models = count(len(leaders), "model")
        return AnswerSentence(
            "unclear", f"cannot tell yet which of {models} is best, {games}", dimension, n=ranking.n
        )
    if len(leaders) > 1:
        named = f"{leaders[0]} leads, and cannot be told apart yet from {_named(leaders[1:])}"
        return AnswerSentence("unclear", f"{named}, {games}", dimension, n=ranking.n)
    best = f"{leaders[0]} is the best of {count(len(ranking.models), 'model')}"
    return AnswerSentence("better", f"{best}: it is ahead of every other, {games}", dimension, n=ranking.n)


def _named(names: list[str]) -> str:
    """Some names in words.

    >>> _named(["a"]), _named(["a", "b"]), _named(list("abcde"))
    ('a', 'a and b', 'a, b, c and 2 others')
    """
    shown, left = names[:_MOST_NAMED], len(names) - _MOST_NAMED
    if left > 0:
        return f"{', '.join(shown)} and {count(left, 'other')}"
    return " and ".join(filter(None, (", ".join(shown[:-1]), shown[-1])))
