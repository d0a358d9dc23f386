"""Attacks on a judge in the terminal: the table, its headline, the picture."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from rich.table import Table

from evenhand.core.attacks import CONTROL, Attack
from evenhand.results.attack import AttackEffect, AttackSummary
from evenhand.results.plain import to_json
from evenhand.results.questions import stands_out
from evenhand.results.wording import attacked_text
from evenhand.views import console
from evenhand.views.charts import effect_chart, save_plot

_ABOUT = (
    "shift: how much more of the verdict the attacked side gets, in points; turned: of the pairs that it had not"
    " won, how many it wins now; right lost: of the pairs that the right side had won, how many it wins no more."
)
_ON_A_CARD = 5  # attacks


def print_attacks(found: AttackSummary, beside: Mapping[str, AttackSummary] | None = None) -> None:
    """How a judge stands: the headline, the table and what to keep in mind."""
    others = beside or {}
    console.out.print()
    console.out.print(console.safe(_headline(found), "bold"))
    for other in others.values():
        console.out.print(console.safe(_headline(other) + _fewer(other, found), "bold"))
    console.out.print(attack_table(found, others))
    for note in (_ABOUT, *found.notes()):
        console.out.print(console.visible(note), markup=False)


def print_on_card(found: AttackSummary, attacked: int) -> None:
    """The same in short, for a judge's card: the strongest attacks, and how many pairs are in no other number."""
    console.out.print(console.safe(found.text, "bold"))
    console.out.print(attack_table(found, {}, most=_ON_A_CARD))
    if (hidden := len(found.attacks) - _ON_A_CARD) > 0:
        console.out.print(f"The {_ON_A_CARD} strongest; {hidden:,} more are in --json and the report.", style="dim")
    for note in (*found.notes(), f"{attacked_text(attacked)}."):
        console.out.print(console.visible(note), style="dim", markup=False)
    console.out.print()


def _headline(found: AttackSummary) -> str:
    right, pairs = console.percent(found.right.value, 0), console.count(found.pairs, "pair")
    among = pairs if found.right.n == found.pairs else f"the {found.right.n:,} of {pairs} with a verdict"
    named = f"{found.judge} under {found.protocol}, {found.dimension}"
    if not found.right.n:
        return f"{named}: no verdict on {pairs} before the attacks"
    return f"{named}: right on {right} of {among} before; {found.fallen}"


def _fewer(other: AttackSummary, found: AttackSummary) -> str:
    """That fewer attacks were tried on another judge, since the more there are, the more pairs fall to one."""
    had, here = ({each.attack for each in one.attacks if each.kind != CONTROL} for one in (other, found))
    missing = len(here - had)
    return f" (without {missing:,} of the {console.count(len(here), 'attack')})" if missing else ""


def attack_table(found: AttackSummary, beside: Mapping[str, AttackSummary], most: int | None = None) -> Table:
    """The attacks, the strongest first; beside them what they do to other judges, by what these are called."""
    table = console.plain_table(None)
    table.add_column("attack", no_wrap=True)
    table.add_numbers("n", "shift", "95%", "turned", "95%", "right lost")
    asked = any(_tokens(each) for each in found.attacks)
    if asked:
        table.optional = ((len(table.columns),),)
        table.add_numbers("tokens")
    table.add_numbers(*(f"{figure}, {console.visible(name)}" for name in beside for figure in ("shift", "turned")))
    others = [{each.attack: each for each in other.attacks} for other in beside.values()]
    for each in found.attacks[:most]:
        named = console.safe(each.attack, _style(each))
        used = [f"{_tokens(each):,}"] if asked else []
        table.add_row(named, *_cells(each), *used, *_beside(each.attack, others))
    return table


def _style(each: AttackEffect) -> str:
    if each.kind == CONTROL or not stands_out(each.p_holm):
        return ""
    return "red" if (each.shift.value or 0.0) > 0 else "green"


def _cells(each: AttackEffect) -> list[str]:
    return [
        f"{each.n:,}",
        _shift(each),
        _ends(each.shift.low, each.shift.high),
        _turned(each),
        _span(each.turned.low, each.turned.high),
        console.percent(each.right_lost.value, 0),
    ]


def _tokens(each: AttackEffect) -> int:
    """Of the answers that a run asked for; none where it asked for nothing, or that is not known."""
    return 0 if each.tokens is None else each.tokens.computed + each.tokens.reused + each.tokens.generated


def _beside(attack: str, others: Sequence[Mapping[str, AttackEffect]]) -> list[str]:
    """What an attack does to other judges; a shift may be small where many pairs turn."""
    found = [other.get(attack) for other in others]
    return [show(each) for each in found for show in (_shift, _turned)]


def _shift(each: AttackEffect | None) -> str:
    return "–" if each is None or each.shift.value is None else _points(each.shift.value)


def _turned(each: AttackEffect | None) -> str:
    return console.percent(None if each is None else each.turned.value, 0)


def _points(value: float) -> str:
    """A shift in points; what rounds to nothing has no sign.

    >>> _points(0.125), _points(-0.3), _points(-0.0001)
    ('+12', '−30', '0')
    """
    points = round(100 * value)
    return f"{points:+d}".replace("-", "−") if points else "0"


def _ends(low: float | None, high: float | None) -> str:
    return "–" if low is None or high is None else f"{_points(low)} to {_points(high)}".replace("+", "")


def _span(low: float | None, high: float | None) -> str:
    return console.span(None if low is None or high is None else (low, high))


def draw_attacks(found: AttackSummary, file: Path) -> None:
    """Draw the shifts into a file."""
    shifts = [(each.attack, each.shift) for each in found.attacks]
    title = f"Attacks on {found.judge} under {found.protocol}, {found.dimension}"
    axis = "shift to the attacked side in points; 95%, uncorrected"
    save_plot(file, effect_chart(shifts, axis=axis, title=title, points=True))


def print_list(attacks: Sequence[Attack], as_json: bool) -> None:
    """The attacks, and what each does."""
    if as_json:
        print(to_json({"attacks": attacks}))
        return
    table = console.plain_table(None, "attack", "kind", "what it does")
    for each in attacks:
        table.add_row(*(console.safe(text) for text in (each.name, each.kind, each.description)))
    console.out.print(table)
