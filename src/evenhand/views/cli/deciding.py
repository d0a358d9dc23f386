"""What judge --until-decided and gate share: which dimension decides, and when a run may stop."""

from __future__ import annotations

from collections.abc import Sequence

from evenhand.core.errors import InputError
from evenhand.core.verdict import found_on, headline
from evenhand.results.decision import Decision
from evenhand.results.wording import anytime_text
from evenhand.views import console


def dimension_from(word: str, dimensions: Sequence[str]) -> str:
    """The dimension that decides: the one that is named, else the headline of these.

    >>> dimension_from("", ["correctness", "overall"]), dimension_from("format", ["precision", "format"])
    ('overall', 'format')
    """
    known = found_on(dimensions)
    if word and word not in known:
        raise InputError(f"--on {word}: there is no such dimension here", hint=f"choose from {', '.join(known)}")
    return word or headline(dimensions)


def show_decision(found: Decision, sides: tuple[str, str]) -> None:
    """A decision in a few lines."""
    one, two = sides
    better = one if found.better == "1" else two
    said = f"decided on {found.dimension}: {better} is better" if found.better else "not decided"
    text = console.safe(said, "bold")
    text.append(
        f"; the win rate of {console.one_line(one)} is {anytime_text(found.interval, found.interval_level)}, by"
        f" {console.count(found.counted, 'pair')} on {console.count(found.instructions, 'instruction')}",
        style="not bold",
    )
    console.out.print(text)
    if found.beyond:
        console.out.print(
            f"Judged after the decision, or before this run: {console.count(found.beyond, 'pair')}; they do not"
            " count for it."
        )
    if found.saved:
        console.out.print(
            f"Stopped early: {console.count(found.saved, 'pair')} not judged; without --until-decided all are."
        )
