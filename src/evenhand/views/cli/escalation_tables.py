"""How levels of judges look in a terminal, and the list of what they leave to people."""

from __future__ import annotations

from pathlib import Path

from rich.table import Table
from rich.text import Text

from evenhand.core.votes import Drawn
from evenhand.results.escalation import EscalationResult
from evenhand.running.escalation import PEOPLE, WAITING
from evenhand.views import console
from evenhand.views.jury import Escalation


def show_levels(found: EscalationResult) -> None:
    """What each level decided and took, the promise, and what was saved."""
    console.out.print(_table(found))
    console.out.print(Text(found.guarantee), soft_wrap=True)
    console.out.print(Text(console.visible(found.sureness), style="dim"), soft_wrap=True)
    if found.saved:
        console.out.print(Text(console.visible(found.saved)), soft_wrap=True)


def show_escalation(found: EscalationResult, db: Path) -> None:
    """The same, and what waits for people."""
    show_levels(found)
    if found.waiting:
        console.out.print(Text(console.visible(waiting_line(found, db)), style="yellow"), soft_wrap=True)


def waiting_line(found: EscalationResult, db: Path) -> str:
    """What to do about pairs that no judge may decide."""
    some = "1 pair waits" if found.waiting == 1 else f"{found.waiting:,} pairs wait"
    if found.levels[-1].name != PEOPLE:
        return f"{some} for a verdict that no judge may give; end --escalate on people to have them labelled."
    return (
        f"{some} for people: evenhand serve --db {db}, page People, annotator {PEOPLE!r}, New link. The same"
        " command again takes in what they have said."
    )


def _table(found: EscalationResult) -> Table:
    table = console.plain_table(f"Who decided, on {console.visible(found.dimension)}")
    table.add_column("level")
    for name in ("surer than", "asked", "decided", "share", "tokens", "cost"):
        table.add_column(name, justify="right")
    for level in found.levels:
        tokens = level.tokens
        table.add_row(
            Text(console.visible(level.name)),
            "–" if level.floor is None else f"{level.floor:.3f}",
            *(f"{level.asked:,}", f"{level.decided:,}", console.percent(level.share)),
            "–" if tokens is None else f"{tokens.computed + tokens.reused + tokens.generated:,}",
            "–" if level.cost is None else f"{level.cost:,.4f}",
        )
    return table


def queue_for_people(levels: Escalation) -> int:
    """Put what no judge may decide on the list of an annotator called people; how many are new there."""
    if not levels.people:
        return 0
    store = levels.store
    number = store.judge_book.find(levels.setup.fingerprint)
    keys = store.made.without_verdict(number, WAITING) if number is not None else []
    if not keys:
        return 0
    asked = "overall" if levels.dimension == "combined" else levels.dimension
    store.labels.suggest([(key, Drawn("suggested")) for key in keys], asked)
    if store.annotation.annotator(PEOPLE) is None:
        store.annotation.invite(PEOPLE, dimensions=[asked], seed=levels.seed)
    return store.annotation.give(PEOPLE, keys)
