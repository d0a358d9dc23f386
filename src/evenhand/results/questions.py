"""Many questions at once: dimensions, groups, comparisons. One correction for all of them, and one caution."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from evenhand.core.stats.multiple import correct_together
from evenhand.results.wording import some_of

if TYPE_CHECKING:
    from evenhand.results.comparison import Comparison
    from evenhand.results.summary import DimensionSummary

LEVEL = 0.95


def correct_dimensions(every: Sequence[Mapping[str, DimensionSummary]]) -> list[dict[str, DimensionSummary]]:
    """Dimensions of one judge, or of several groups, with their p-values corrected for each other."""
    flat = [(place, name, found) for place, some in enumerate(every) for name, found in some.items()]
    fixed = correct_together([found.p for *_, found in flat], level=LEVEL).corrected
    corrected: list[dict[str, DimensionSummary]] = [{} for _ in every]
    for (place, name, found), p in zip(flat, fixed, strict=True):
        corrected[place][name] = replace(found, p_holm=p)
    return corrected


def correct_comparisons(rows: Iterable[Comparison]) -> list[Comparison]:
    """Paired differences that are shown together, with their p-values corrected for each other."""
    found = list(rows)
    fixed = correct_together([row.p for row in found], level=LEVEL).corrected
    return [replace(row, p_holm=p) for row, p in zip(found, fixed, strict=True)]


def caution(asked: Iterable[tuple[str, float | None]]) -> str:
    """One line on how many questions are asked at once, and which stand out; empty for one.

    >>> caution([("overall", 0.01), ("format", 0.3)])
    '2 tests at once: corrected for their number (Holm), these stand out: overall.'
    >>> caution([("overall", 0.06), ("format", 0.3)])
    '2 tests at once: corrected for their number (Holm), none stands out.'
    >>> caution([("overall", 0.01)])
    ''
    """
    given = [(name, p) for name, p in asked if p is not None]
    if len(given) < 2:
        return ""
    out = [name for name, p in given if stands_out(p)]
    said = f"these stand out: {some_of(out)}" if out else "none stands out"
    return f"{len(given):,} tests at once: corrected for their number (Holm), {said}."


def stands_out(p_holm: float | None) -> bool:
    """Whether a corrected p-value rejects that there is nothing.

    >>> stands_out(0.05), stands_out(0.06), stands_out(None)
    (True, False, False)
    """
    return p_holm is not None and p_holm <= 1 - LEVEL + 1e-12
