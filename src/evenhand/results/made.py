"""What a reader must know of a judge that is made of others: who spoke, or who decided and at what price."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from evenhand.engines.made import ESCALATION, is_made
from evenhand.results.escalation import EscalationResult, Pricing, escalation_result
from evenhand.results.wording import count
from evenhand.store import JudgeRow, Records


def made_notes(store: Records, row: JudgeRow, prices: Sequence[Pricing | None] = ()) -> tuple[str, ...]:
    """Sentences about a made judge; none about another."""
    if not is_made(row.identity):
        return ()
    if row.identity["engine"] == ESCALATION:
        if not any(judge for judge, *_ in store.members_used(row)):  # a copy, without the judges of the levels
            return ()
        return tuple(_levels(escalation_result(store, row, prices)))
    spoke = Counter((word["spoke"], word["of"]) for word in store.made_words(row))
    return (spoke_line(spoke),) if spoke else ()


def spoke_line(counts: Mapping[tuple[int, int], int]) -> str:
    """On how many pairs how many judges of a jury spoke.

    >>> spoke_line({(3, 3): 90, (2, 3): 1})
    '3 of 3 judges spoke on 90 pairs; 2 of 3 judges spoke on 1 pair.'
    """
    parts = [
        f"{spoke} of {of} judges spoke on {count(pairs, 'pair')}"
        for (spoke, of), pairs in sorted(counts.items(), reverse=True)
    ]
    return "; ".join(parts) + "."


def pair_line(word: Mapping[str, Any]) -> str:
    """Who decided one pair, or how many spoke on it, out of the word that is kept about it.

    >>> pair_line({"level": 1, "judge": "small", "confidence": 0.93})
    'Decided by small, level 1, at a confidence of 0.930.'
    >>> pair_line({"spoke": 1, "of": 2, "silent": {"b": "unreadable"}})
    '1 of 2 judges spoke; b: unreadable.'
    """
    if "spoke" in word:
        silent = "".join(f"; {name}: {why}" for name, why in word.get("silent", {}).items())
        return f"{word['spoke']} of {word['of']} judges spoke{silent}."
    if word["level"] is None:
        return "No judge may decide this pair; it waits for people."
    if word.get("confidence") is None:
        return f"Decided by {word['judge']}."
    return f"Decided by {word['judge']}, level {word['level']}, at a confidence of {word['confidence']:.3f}."


def _levels(found: EscalationResult) -> Iterator[str]:
    for number, level in enumerate(found.levels, 1):
        took = ""
        if level.tokens is not None:
            took = f", {level.tokens.computed + level.tokens.reused + level.tokens.generated:,} tokens"
        if level.cost is not None:
            took += f", {level.cost:,.4f} {found.currency}"
        yield (
            f"Level {number}, {level.name}: decided {level.decided:,} of {found.pairs:,} pairs ({level.share:.0%}),"
            f" asked about {level.asked:,}{took}."
        )
    yield found.guarantee
    yield found.sureness
    if found.saved:
        yield found.saved
    if found.waiting:
        yield f"{found.waiting:,} {'pair waits' if found.waiting == 1 else 'pairs wait'} for people."
