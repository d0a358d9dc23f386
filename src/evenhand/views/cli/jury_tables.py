"""How a jury looks in a terminal: its judges, how far they agree, and what each of them changes."""

from __future__ import annotations

from rich.table import Table
from rich.text import Text

from evenhand.results.jury import JuryResult
from evenhand.views import console


def show_jury(found: JuryResult) -> None:
    """Who spoke, what each juror changes, and how far they agree."""
    console.out.print(_jurors(found))
    if len(found.agreement) and found.pairs:
        console.out.print(_agreement(found))
    console.out.print(Text(console.visible(pool_line(found)), style="dim"), soft_wrap=True)
    for note in found.notes:
        console.out.print(Text(console.visible(note), style="yellow"), soft_wrap=True)


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
    table = console.plain_table(f"Jurors, on {console.visible(found.dimension)}")
    table.add_column("judge")
    for name in ("spoke", "agrees with the others", "verdicts it changes", "win rate 1 without it"):
        table.add_column(name, justify="right")
    for juror in found.jurors:
        silent = ", ".join(f"{count:,} {reason}" for reason, count in juror.silent.items())
        table.add_row(
            Text(console.visible(juror.name)),
            f"{juror.spoke:,}" + (f" ({silent})" if silent else ""),
            console.percent(juror.with_others.value),
            f"{juror.changed:,} ({console.percent(juror.change.value)})",
            console.percent(juror.win_rate_1_without),
        )
    return table


def _agreement(found: JuryResult) -> Table:
    table = console.plain_table("Agreement between judges")
    table.add_column("judges")
    for name in ("pairs", "same verdict", "kappa"):
        table.add_column(name, justify="right")
    for two in found.agreement:
        kappa = two.kappa.value
        table.add_row(
            Text(console.visible(f"{two.one} and {two.other}")),
            f"{two.same.n:,}",
            console.percent(two.same.value),
            "–" if kappa is None else f"{kappa:.2f}",
        )
    return table
