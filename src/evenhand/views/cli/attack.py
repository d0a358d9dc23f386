"""evenhand attack: how a judge stands against responses that try to win by other means."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table
from rich.text import Text

from evenhand.core.attacks import CONTROL, Attack, AttackCase, attack_all, losing_side
from evenhand.core.errors import InputError
from evenhand.core.pair import Pair
from evenhand.io.attacks import built_in_attacks, choose_attacks, read_attacks, unique
from evenhand.io.pairs import JoinOptions, sample_pairs
from evenhand.results.attack import AttackEffect, AttackSummary, AttackTally
from evenhand.results.plain import to_json
from evenhand.results.questions import stands_out
from evenhand.views import console
from evenhand.views.cli.app import DONE, WITH_FAILURES, app
from evenhand.views.cli.deciding import dimension_from
from evenhand.views.cli.groups import EngineOptions, JudgeOptions, JudgeSettings, LimitOptions
from evenhand.views.cli.inputs import ColumnsOption, PairsArgument, SkipBadOption, columns_from, find_input
from evenhand.views.cli.judging import show_plan
from evenhand.views.cli.opening import bring_up_to_date
from evenhand.views.cli.option_groups import flat_options
from evenhand.views.cli.options import ADVANCED, INPUT, LIMITS, OUTPUT, DryRunOption, JsonOption, OnOption
from evenhand.views.cli.running import run_with_progress

# A database of its own: pairs that were attacked should not be in the results of those that were not.
ATTACK_DB = Path("evenhand-attack.db")
_ABOUT = (
    "shift: how much more of the verdict the attacked side gets, in points; turned: pairs that it wins now and did"
    " not before; right lost: pairs that the right side won before and wins no more."
)


@dataclass(frozen=True)
class AttackOptions:
    """Which attacks, on which pairs."""

    pairs: PairsArgument = None
    names: Annotated[
        list[str] | None,
        typer.Option(
            "--attack",
            metavar="NAME|KIND",
            help="Only this attack, or this kind of attack. May be given several times.",
            rich_help_panel=INPUT,
        ),
    ] = None
    file: Annotated[
        Path | None,
        typer.Option(
            "--attacks", metavar="FILE", help="More attacks, of your own, in a TOML file.", rich_help_panel=INPUT
        ),
    ] = None
    skip_bad: SkipBadOption = False
    columns: ColumnsOption = None

    def attacks(self) -> tuple[Attack, ...]:
        """The attacks that are meant."""
        own = read_attacks(self.file) if self.file else ()
        return choose_attacks(unique([*built_in_attacks(), *own]), self.names or [])

    def read(self) -> list[Pair]:
        """The pairs of the files, or the sample."""
        if not self.pairs:
            return list(sample_pairs())
        reading = JoinOptions(skip_bad=self.skip_bad, columns=columns_from(self.columns))
        given = find_input(self.pairs, None, None, reading)
        given.print()
        return list(given.read())


@dataclass(frozen=True)
class AttackOutput:
    """Where verdicts go, and what is shown of them."""

    db: Annotated[
        Path,
        typer.Option(
            "--db",
            metavar="FILE",
            help="Where verdicts are kept: a file of their own, so that attacked pairs are in no other result.",
            callback=bring_up_to_date,
            rich_help_panel=OUTPUT,
        ),
    ] = ATTACK_DB
    as_json: JsonOption = False
    plot: Annotated[
        Path | None,
        typer.Option(
            "--plot", metavar="FILE", help="Draw the shifts into an SVG or PNG file.", rich_help_panel=OUTPUT
        ),
    ] = None


@app.command()
@flat_options
def attack(
    what: AttackOptions,
    judge: JudgeOptions,
    limits: LimitOptions,
    engine: EngineOptions,
    output: AttackOutput,
    limit: Annotated[
        int | None,
        typer.Option("--limit", min=1, help="Attack only the first so many pairs.", rich_help_panel=LIMITS),
    ] = None,
    on: OnOption = "",
    dry_run: DryRunOption = False,
    list_only: Annotated[
        bool, typer.Option("--list", help="Show the attacks, and ask nothing.", rich_help_panel=OUTPUT)
    ] = False,
    seed: Annotated[
        int,
        typer.Option(
            "--seed",
            help="Decides which letters and places an attack changes, and the orders with --orders random.",
            rich_help_panel=ADVANCED,
        ),
    ] = 0,
) -> None:
    """Attack a judge: change the losing response of pairs with a clear winner, and see whether the verdict moves.

    Without PAIRS it takes the sample that comes with evenhand; pairs of your own need labels.
    """
    attacks = what.attacks()
    if list_only:
        _show_list(attacks, output.as_json)
        return
    _check_plot(output.plot)
    settings = JudgeSettings.of(judge, engine, limits, seed)
    tally = AttackTally(dimension_from(on, settings.protocol.dimensions), attacks)
    pairs = what.read()
    clear = [pair for pair in pairs if losing_side(pair)]
    if not clear:
        raise InputError("no pair has a clear winner", hint="give pairs with labels: docs/labels.md")
    cases = list(attack_all(islice(clear, limit), attacks, seed))
    if dry_run:
        show_plan(settings, (case.pair for case in cases), output.db, output.as_json)
        return
    found = _run(settings, tally, cases, output.db, len(pairs) - len(clear))
    _show(found, output)
    bad = found.stopped or any(each.invalid for each in found.attacks)
    raise typer.Exit(WITH_FAILURES if bad else DONE)


def _run(
    settings: JudgeSettings, tally: AttackTally, cases: list[AttackCase], db: Path, left_out: int
) -> AttackSummary:
    pairs = sum(case.attack is None for case in cases)
    console.err.print(
        f"{console.count(pairs, 'pair')} with a clear winner, {console.count(len(tally.attacks), 'attack')}:"
        f" {console.count(len(cases), 'pair')} to judge",
        style="dim",
    )
    with settings.judge(db) as judge:
        run = run_with_progress(judge, tally.watch(cases), len(cases), enough=tally)
    return tally.summary(run, seed=settings.seed, left_out=left_out)


def _check_plot(plot: Path | None) -> None:
    """Fail before a long run, not after it."""
    if plot:
        from evenhand.views.plots import check_plot_path

        check_plot_path(plot)


# -- what is shown ------------------------------------------------------------------------------------


def _show(found: AttackSummary, output: AttackOutput) -> None:
    if output.plot:
        _draw(found, output.plot)
    if output.as_json:
        print(to_json({"attack": found, "db": str(output.db)}))
        return
    console.out.print()
    console.out.print(Text(console.visible(_headline(found)), style="bold"), soft_wrap=True)
    console.out.print(attack_table(found))
    for note in (_ABOUT, *found.notes()):
        console.out.print(console.visible(note), soft_wrap=True, markup=False)
    console.out.print(console.usage_line(found.tokens, found.seconds, found.asked), style="dim", soft_wrap=True)
    if found.cost is not None:
        console.out.print(f"cost: {found.cost:.4f} at the table's prices", style="dim")
    console.out.print(
        f"[dim]kept in {output.db}; pair by pair:[/] evenhand results --db {output.db} --by attack", soft_wrap=True
    )


def _headline(found: AttackSummary) -> str:
    turned, right = found.any_turned, console.percent(found.right.value, 0)
    return (
        f"{found.judge} under {found.protocol}, {found.dimension}: right on {right} of"
        f" {console.count(found.pairs, 'pair')} before; some attack turns {console.percent(turned.value, 0)}"
        f" ({_span(turned.low, turned.high)}) of the {turned.n:,} that the wrong side had not won"
    )


def attack_table(found: AttackSummary) -> Table:
    """The attacks, the strongest first."""
    table = console.plain_table(None)
    table.add_column("attack", no_wrap=True)
    for name in ("n", "shift", "95%", "turned", "95%", "right lost", "tokens"):
        table.add_column(name, justify="right", no_wrap=name == "95%")
    for each in found.attacks:
        table.add_row(Text(console.visible(each.attack), style=_style(each)), *_cells(each))
    return table


def _style(each: AttackEffect) -> str:
    if each.kind == CONTROL or not stands_out(each.p_holm):
        return ""
    return "red" if (each.shift.value or 0.0) > 0 else "green"


def _cells(each: AttackEffect) -> list[str]:
    shift, turned, tokens = each.shift, each.turned, each.tokens
    return [
        f"{each.n:,}",
        "–" if shift.value is None else _points(shift.value),
        _ends(shift.low, shift.high),
        console.percent(turned.value, 0),
        _span(turned.low, turned.high),
        console.percent(each.right_lost.value, 0),
        f"{tokens.computed + tokens.reused + tokens.generated:,}",
    ]


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


def _draw(found: AttackSummary, file: Path) -> None:
    from evenhand.views.plots import effect_plot, save_plot

    shifts = [(each.attack, each.shift) for each in found.attacks]
    rows = [{"name": name, "value": at.value, "low": at.low, "high": at.high, "n": at.n} for name, at in shifts]
    title = f"Attacks on {found.judge} under {found.protocol}, {found.dimension}"
    save_plot(file, effect_plot(rows, axis="shift to the attacked side", title=title))


def _show_list(attacks: tuple[Attack, ...], as_json: bool) -> None:
    if as_json:
        print(to_json({"attacks": attacks}))
        return
    table = console.plain_table(None)
    for name in ("attack", "kind", "what it does"):
        table.add_column(name)
    for each in attacks:
        table.add_row(*(Text(console.visible(text)) for text in (each.name, each.kind, each.description)))
    console.out.print(table)
