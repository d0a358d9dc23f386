"""The answer in one sentence: what it must not be believed for, and what it calls the two sides."""

from __future__ import annotations

from dataclasses import replace

import pytest

from evenhand.core.judge import Conversation, Judgment
from evenhand.core.pair import Pair
from evenhand.core.protocol import ORDERS
from evenhand.core.verdict import LABELS, Verdict
from evenhand.results.answer import answer_of
from evenhand.results.summary import Counter, Summary


def judgment(number: int, said: str, output: str = "longer") -> Judgment:
    """A pair that both orders answered with this label as shown."""
    labels = {str(label): label for label in LABELS}
    verdict = Verdict("overall", labels.get(said), invalid=None if said in labels else said)
    orders = dict.fromkeys(ORDERS, Conversation({"overall": verdict}))
    return Judgment.of(Pair(f"Task {number}", "short", output), orders)


def counted(*judgments: Judgment) -> Summary:
    counter = Counter()
    for each in judgments:
        counter.add(each)
    return counter.summary()


@pytest.mark.parametrize(
    ("pairs", "output", "kind"), [(9, "longer", "unclear"), (10, "longer", "distrust"), (10, "short", "unclear")]
)
def test_a_judge_that_ties_all_unlike_outputs_may_see_nothing(pairs: int, output: str, kind: str) -> None:
    found = answer_of(counted(*(judgment(n, "tie", output) for n in range(pairs))))
    assert found.kind == kind
    said = f"do not trust this: the judge called all {pairs} pairs a tie, so it may not see any difference; "
    assert found.sentence.startswith(said) == (kind == "distrust")


def test_one_pair_that_is_decided_shows_that_it_sees_something() -> None:
    shown = zip(ORDERS, (Verdict("overall", "B"), Verdict("overall", "A")), strict=True)  # side 2, in both orders
    said = {order: Conversation({"overall": verdict}) for order, verdict in shown}
    decided = Judgment.of(Pair("Task", "x", "yes"), said)
    assert answer_of(counted(decided, *(judgment(n, "tie") for n in range(30)))).kind == "unclear"


def test_that_most_verdicts_are_invalid_comes_before_what_the_few_others_say() -> None:
    found = answer_of(counted(*(judgment(n, "A" if n < 2 else "unreadable") for n in range(10))))
    assert found.sentence.startswith("do not trust this: 8 of 10 verdicts are invalid; ")


def test_a_side_that_is_named_by_its_role_is_not_given_it_twice() -> None:
    found = counted(*(judgment(n, "tie") for n in range(3)))
    named = replace(found, sides=("old (candidate)", "old (baseline)"), roles=("candidate", "baseline"))
    assert "cannot tell yet: old (candidate) wins 50%" in answer_of(named).sentence
    other = replace(named, sides=("new", "old"))
    assert "cannot tell yet: new (candidate) wins 50%" in answer_of(other).sentence
