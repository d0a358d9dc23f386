"""How several judges look in a terminal: a jury, levels, and the list of what these leave to people."""

from __future__ import annotations

from pathlib import Path

from rich.table import Table
from rich.text import Text

from evenhand.core.votes import Drawn
from evenhand.results.escalation import EscalationResult
from evenhand.results.jury import JuryResult
from evenhand.running.escalation import PEOPLE, WAITING
from evenhand.views import console
from evenhand.views.jury import Escalation


def show_jury(found: JuryResult) -> None:
    """Who spoke, what each juror changes, and how far they agree."""
    console.out.print(_jurors(found))
    if len(found.agreement) and found.pairs:
        console.out.print(_agreement(found))
    console.out.print(console.safe(pool_line(found), "dim"))
    for note in found.notes:
        console.out.print(console.safe(note, "yellow"))


def pool_line(found: JuryResult) -> str:
    """The rule by which a jury pools, and how many spoke, in a sentence."""
    how = "a vote" if found.pool == "majority" else f"the mean of log-odds, {_calibrated(found)}"
    if found.weights:
        how += f", weights {', '.join(f'{weight:g}' for weight in found.weights)}"
    spoke = "; ".join(
        f"{count} of {len(found.jurors)} spoke on {console.count(pairs, 'pair')}"
        for count, pairs in found.spoke.items()
    )
    return f"pooled on {found.dimension} by {how}. {spoke}."


def _calibrated(found: JuryResult) -> str:
    """Whose log-odds are calibrated."""
    as_said = [juror.name for juror in found.jurors if not juror.calibrated]
    if not as_said:
        return "calibrated"
    return f"calibrated but for {', '.join(as_said)}" if found.calibrated else "none of them calibrated"


def _jurors(found: JuryResult) -> Table:
    numbers = ("spoke", "agrees with the others", "verdicts it changes", "win rate 1 without it")
    table = console.plain_table(f"Jurors, on {found.dimension}", "judge", numbers=numbers)
    for juror in found.jurors:
        silent = ", ".join(f"{count:,} {reason}" for reason, count in juror.silent.items())
        table.add_row(
            console.safe(juror.name),
            f"{juror.spoke:,}" + (f" ({silent})" if silent else ""),
            console.percent(juror.with_others.value),
            f"{juror.changed:,} ({console.percent(juror.change.value)})",
            console.percent(juror.win_rate_1_without),
        )
    return table


def _agreement(found: JuryResult) -> Table:
    numbers = ("pairs", "same verdict", "kappa")
    table = console.plain_table("Agreement between judges", "judges", numbers=numbers)
    for two in found.agreement:
        kappa = two.kappa.value
        table.add_row(
            console.safe(f"{two.one} and {two.other}"),
            f"{two.same.n:,}",
            console.percent(two.same.value),
            "–" if kappa is None else f"{kappa:z.2f}",
        )
    return table


# -- levels ------------------------------------------------------------------------------------------


def show_levels(found: EscalationResult) -> None:
    """What each level decided and took, the promise, and what was saved."""
    console.out.print(_levels(found))
    console.out.print(Text(found.guarantee))
    console.out.print(console.safe(found.sureness, "dim"))
    if found.saved:
        console.out.print(console.safe(found.saved))


def show_escalation(found: EscalationResult, db: Path) -> None:
    """The same, and what waits for people."""
    show_levels(found)
    if found.waiting:
        console.out.print(console.safe(waiting_line(found, db), "yellow"))


def waiting_line(found: EscalationResult, db: Path) -> str:
    """What to do about pairs that no judge may decide."""
    some = "1 pair waits" if found.waiting == 1 else f"{found.waiting:,} pairs wait"
    if found.levels[-1].name != PEOPLE:
        unsure = console.count(found.waiting, "pair")
        return f"No judge was sure enough on {unsure}. End --escalate with people to have them labelled."
    return (
        f"{some} for people: evenhand serve --db {db}, page People, annotator {PEOPLE!r}, New link. The same"
        " command again takes in what they have said."
    )


def _levels(found: EscalationResult) -> Table:
    numbers = ("surer than", "asked", "decided", "share", "tokens", "cost")
    table = console.plain_table(f"Who decided, on {found.dimension}", "level", numbers=numbers)
    for level in found.levels:
        tokens = level.tokens
        table.add_row(
            console.safe(level.name),
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
