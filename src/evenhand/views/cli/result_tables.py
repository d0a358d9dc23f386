"""The tables of evenhand results: readings, groups, differences, and what people said."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence

from rich.table import Table
from rich.text import Text

from evenhand.core.stats.alpaca import AlpacaLength
from evenhand.core.verdict import headline_first
from evenhand.results.comparison import Comparison
from evenhand.results.counting import repeats_text, weighs_text
from evenhand.results.groups import Group
from evenhand.results.human import HumanRate
from evenhand.results.questions import caution, stands_out
from evenhand.results.summary import DimensionSummary
from evenhand.results.wording import signed
from evenhand.views.console import COLOURS, one_line, percent, plain_table, safe, span
from evenhand.views.tables import FittedTable


def readings_table(dimensions: Mapping[str, DimensionSummary], one: str) -> Table:
    """The same verdicts read in other ways: by their lean, at equal length, with the invalid on either side."""
    table = _table(f"Other readings of the win rate of {one}", "dimension")
    table.add_numbers("expected", "95%\ninterval", "at equal\nlength", "95%\ninterval")
    table.add_numbers("odds if\nlonger", "with the\ninvalid")
    for dimension, found in headline_first(dimensions):
        expected, length = found.expected, found.length_controlled
        table.add_row(
            dimension,
            percent(expected.win_rate_1),
            span(expected.ci),
            percent(length.win_rate_1),
            span(length.ci),
            odds(length.length_effect),
            span(found.invalid_bounds),
        )
    return table


def odds(effect: float | None) -> str:
    """An effect on the log-odds as a factor.

    >>> odds(0.0), odds(None)
    ('×1.00', '–')
    """
    return "–" if effect is None else f"×{math.exp(min(effect, 50.0)):.2f}"


def readings_notes(dimensions: Mapping[str, DimensionSummary]) -> Iterator[str]:
    """What a reader of the readings should know."""
    without: dict[str, list[str]] = {}  # dimensions by the reason that they share
    for dimension, found in dimensions.items():
        length = found.length_controlled
        if length.reason or length.length_effect_ci is None:
            if found.n and length.reason:
                without.setdefault(length.reason, []).append(dimension)
            continue
        low, high = length.length_effect_ci
        says = "wins more often" if low > 0 else "wins less often" if high < 0 else "is not shown to win more often"
        yield (
            f"{dimension}: a response that is longer by {length.typical_difference:.0f} characters {says}"
            f" (odds {odds(length.length_effect)}, {odds(low)} to {odds(high)})"
        )
    for reason, names in without.items():
        yield f"{', '.join(names)}: no rate at equal length, because of {_because(reason)}"


def _because(reason: str) -> str:
    return reason if reason.startswith(("fewer", "wins")) else f"this: {reason}"


def groups_table(field: str, groups: Iterable[Group]) -> Table:
    """A line for each value of a field and each dimension."""
    table = _table(f"By {field}", one_line(field), "dimension")
    table.optional = ((7,),)
    table.add_numbers("pairs", "in-\nvalid", "win rate\nof side 1", "95%\ninterval", "expected", "at equal\nlength")
    for group in groups:
        value = Text("(none)", style="dim") if group.value is None else safe(group.value)
        for dimension, found in headline_first(group.summary.dimensions):
            table.add_row(
                value,
                dimension,
                Text(f"{found.n:,}", style="yellow" if found.small else ""),
                Text(f"{found.invalid:,}", style=COLOURS["invalid"] if found.invalid else ""),
                percent(found.win_rate_1),
                span(found.ci),
                percent(found.expected.win_rate_1),
                percent(found.length_controlled.win_rate_1),
            )
            value = Text("")
    return table


def groups_notes(groups: Sequence[Group]) -> Iterator[str]:
    """What a reader of the groups should know."""
    every = [(group, name, found) for group in groups for name, found in group.summary.dimensions.items()]
    shared = [found for *_, found in every if found.shared]
    if shared:
        yield f"In the win rates {weighs_text(shared[0].weighting)}."
    repeats = sum(group.summary.repeats for group in groups)
    if repeats:
        yield f"{repeats_text(repeats)}."
    several = len({name for _, name, _ in every}) > 1
    named = (
        (" ".join([group.value or "(none)", *([name] if several else [])]), found.p_holm)
        for group, name, found in every
    )
    yield from filter(None, [caution(named)])


def differences_notes(rows: Sequence[Comparison]) -> Iterator[str]:
    """What a reader of the differences should know."""
    if any(found.n > found.clusters for found in rows):
        yield f"In rates and differences {weighs_text(rows[0].weighting)}."
    several = len({found.against for found in rows}) > 1
    named = ((f"{f.dimension}, {f.against}" if several else f.dimension, f.p_holm) for f in rows)
    yield from filter(None, [caution(named)])


def alpaca_table(dimensions: Mapping[str, AlpacaLength], one: str) -> Table:
    """AlpacaEval's length-controlled win rate, by its own formula."""
    table = _table(f"AlpacaEval's length-controlled win rate of {one}", "dimension")
    table.add_numbers("pairs", "win rate", "95%\ninterval", "length\ncoefficient")
    for dimension, found in headline_first(dimensions):
        ends = None if found.low is None or found.high is None else (found.low, found.high)
        length = signed(found.length)
        table.add_row(dimension, f"{found.n:,}", percent(found.value), span(ends), length)
    return table


def alpaca_notes(dimensions: Mapping[str, AlpacaLength]) -> Iterator[str]:
    """Why there is no number where there is none, and how far the others can be compared."""
    for dimension, found in dimensions.items():
        if found.reason:
            yield f"{dimension}: no length-controlled rate, because of {_because(found.reason)}"
    if any(found.value is not None for found in dimensions.values()):
        yield (
            "By AlpacaEval's formula on your pairs alone: its leaderboard also uses its own difficulties of"
            " instructions and verdicts on its baseline (docs/statistics.md)."
        )


def differences_table(title: str, rows: Iterable[Comparison]) -> Table:
    """Paired differences: a line for each dimension and each other run."""
    table = _table(title, "dimension", "against")
    table.add_numbers("pairs", "win rate\nof side 1", "there", "difference", "95%\ninterval")
    for found in rows:
        table.add_row(
            safe(found.dimension),
            safe(found.against),
            f"{found.n:,}",
            percent(found.win_rate_1),
            percent(found.win_rate_1_other),
            Text(points(found.difference), style="bold" if stands_out(found.p_holm) else ""),
            f"{points(found.ci[0])} to {points(found.ci[1])}" if found.ci else "–",
        )
    return table


def points(difference: float | None) -> str:
    """A difference of two shares in percentage points, with its sign.

    >>> points(0.125), points(None)
    ('+12.5', '–')
    """
    return "–" if difference is None else f"{100 * difference:+z.1f}"


def human_table(dimensions: Mapping[str, HumanRate], one: str) -> Table:
    """What people would say of all pairs, beside their labels alone and the judge alone."""
    table = _table(f"Win rate of {one}, as people would have it on all pairs", "dimension")
    table.add_numbers("labelled\npairs", "labels\nalone", "judge\nalone", "people,\nwith judge")
    table.add_numbers("narrower\nby", "trust in\njudge")
    for dimension, found in headline_first(dimensions):
        table.add_row(
            dimension,
            f"{found.labelled:,} of {found.pairs:,}",
            *(
                f"{percent(rate.win_rate_1)}\n{span(rate.ci)}"
                for rate in (found.labels_alone, found.judge_alone, found)
            ),
            percent(found.narrower, 0),
            "–" if found.tuning is None else f"{found.tuning:.2f}",
        )
    return table


def human_notes(dimensions: Mapping[str, HumanRate], width: float | None) -> Iterator[str]:
    """What more labels would bring, why there is no rate where there is none, and what weighs the same."""
    for dimension, found in dimensions.items():
        wanted = found.wanted
        yield from (f"{dimension}: {note}" for note in found.label_use.notes)
        if found.reason:
            yield f"{dimension}: {found.reason}"
        if wanted is not None and wanted.more is None:
            yield (
                f"{dimension}: all {found.pairs:,} pairs labelled would still leave a width of"
                f" {wanted.width_with_all:.3f}, above {width:g}"
            )
        elif wanted is not None:
            more = f"{wanted.more:,} more labelled pairs" if wanted.more else "the labels at hand"
            yield f"{dimension}: {more} give a width of {width:g}, if they are like those at hand"
    if any(not found.reason for found in dimensions.values()):
        yield "This holds whatever the judge's bias."
    if any(found.judge_alone.win_rate_1 is not None for found in dimensions.values()):
        yield "The judge alone is counted by its probabilities, not by its verdicts."
    if any(found.win_rate_1 is not None for found in dimensions.values()):
        yield f"In these rates {weighs_text('pairs')}, whatever --weigh says."


def _table(title: str, *first: str) -> FittedTable:
    table = plain_table(title, *first)
    table.keys = len(first)
    return table
