"""What the layout of the built-in protocols saves, counted by the real engine."""

from __future__ import annotations

import pytest

from evenhand import Judge, Pair, Usage
from evenhand.engines.catalog import ModelFile
from evenhand.engines.llama import LlamaEngine

# Of about the size of PandaLM's pairs: 150 new tokens for a pair in one order, the instruction among them.
INSTRUCTION = "Rewrite the sentence so that it is shorter and easier to read, and keep what it means."
FIRST = (
    "The committee came together on number {n} of its many meetings and, after talking about the matter for quite "
    "some time, decided that it would be best to wait for the report before doing anything about the new bridge. "
    "This was said to be a wise decision by all who were there."
)
SECOND = (
    "On number {n} of its meetings the committee decided to wait. There was a report to come, and nobody wanted to "
    "build a new bridge, or to mend the old one, before everyone in the room had had time to read it carefully. "
    "They will meet again when the report is there."
)
PAIRS = [Pair(f"{INSTRUCTION} Case {n}.", FIRST.format(n=n), SECOND.format(n=n)) for n in range(1, 5)]


def usage_after_the_first(model: ModelFile, protocol: str) -> Usage:
    """The tokens of all pairs but the first, which pays for the prefix."""
    with Judge(LlamaEngine(model), protocol) as judge:
        judged = list(judge.judge(PAIRS))
    return sum((judgment.usage for judgment in judged[1:]), Usage())


@pytest.mark.engine
def test_four_chained_verdicts_cost_at_most_half_as_much_again_as_one(smollm: ModelFile) -> None:
    one = usage_after_the_first(smollm, "overall")
    four = usage_after_the_first(smollm, "chained")
    each = one.computed / (2 * (len(PAIRS) - 1))
    assert 135 <= each <= 165, "the pairs are no longer of PandaLM's size"
    assert four.computed <= 1.5 * one.computed


@pytest.mark.engine
def test_the_shared_prefix_is_computed_once(smollm: ModelFile) -> None:
    usage = usage_after_the_first(smollm, "overall")
    hearings = 2 * (len(PAIRS) - 1)
    assert usage.reused / hearings > 800  # the rubric and the worked examples
    assert usage.computed / hearings < 200
