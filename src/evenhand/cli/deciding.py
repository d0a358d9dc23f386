"""What judge --until-decided and gate share: which dimension decides, and when a run may stop."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rich.text import Text

from evenhand import console
from evenhand.decision import Standing
from evenhand.errors import InputError
from evenhand.report import Summary
from evenhand.verdict import found_on, headline


def dimension_from(word: str, dimensions: Sequence[str]) -> str:
    """The dimension that decides: the one that is named, else the headline of these.

    >>> dimension_from("", ["correctness", "overall"]), dimension_from("format", ["precision", "format"])
    ('overall', 'format')
    """
    known = found_on(dimensions)
    if word and word not in known:
        raise InputError(f"--on {word}", hint=f"--on {', '.join(known)}")
    return word or headline(dimensions)


def decision_facts(standing: Standing, judged: int, count: int) -> dict[str, Any]:
    """Whether one side is known to be better, and by what, as plain data."""
    where, rate = standing.against(0.5), standing.rate
    return {
        "dimension": standing.dimension,
        "better": None if where is None else "1" if where == "above" else "2",
        "win_rate_1": rate.value,
        "interval": [rate.low, rate.high],
        "interval_level": rate.level,
        "interval_method": rate.method,
        "counted": standing.pairs,
        "instructions": standing.instructions,
        "invalid": standing.invalid,
        "beyond": judged - standing.pairs if where else 0,
        "saved": count - judged if where else 0,
    }


def show_decision(standing: Standing, summary: Summary, count: int) -> None:
    """The same in a few lines."""
    facts = decision_facts(standing, summary.pairs, count)
    low, high = (f"{100 * end:.1f}" for end in facts["interval"])
    one, two = summary.sides
    better = one if facts["better"] == "1" else two
    said = f"decided on {standing.dimension}: {better} is better" if facts["better"] else "not decided"
    text = Text(console.visible(said), style="bold")
    text.append(
        f"; the win rate of {console.visible(one)} is between {low} and {high}% (95%, at every moment), by"
        f" {standing.pairs:,} pairs on {standing.instructions:,} instructions",
        style="not bold",
    )
    console.out.print(text, soft_wrap=True)
    if facts["beyond"]:
        console.out.print(
            f"{facts['beyond']:,} pairs were judged beyond the decision: they were under way, or kept already, and"
            " do not count for it",
            soft_wrap=True,
        )
    if facts["saved"]:
        console.out.print(
            f"{facts['saved']:,} pairs did not have to be judged; without --until-decided they are. The interval in"
            " the table is for a number of pairs that was fixed before: here it is too narrow.",
            soft_wrap=True,
        )
