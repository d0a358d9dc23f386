"""The judge's card in a terminal: tables of what `evenhand.card` found."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rich.table import Table
from rich.text import Text

from evenhand.core.stats.clustered import Estimate
from evenhand.core.verdict import headline_first
from evenhand.results.card import Card, ContenderRow, Drag, JudgeComparison
from evenhand.results.noise import NOT_MEASURED
from evenhand.results.questions import caution
from evenhand.results.wording import share_text, signed
from evenhand.views import console

TRUST = {"yes": "green", "limited": "yellow", "no": "red", "unknown": "yellow", "none": "yellow"}
_READINGS = {"forward_hard": "forward, hard", "both_hard": "both orders, hard", "pooled": "both orders, pooled"}
_UNLABELLED = (
    "No labels yet, so only biases are shown. Add some: evenhand serve to label here, evenhand labels import FILE"
    " to bring some"
)


def print_cards(title: str, cards: Sequence[Card], cost: str) -> None:
    """The cards of one judge."""
    console.out.print()
    console.out.print(console.safe(title, "bold"))
    for _, found in headline_first({card.dimension: card for card in cards}):
        if found.labelled:
            console.out.print(_against_people(found))
            console.out.print(_biases(found))
            console.out.print(_reliability(found))
            console.out.print(Text(found.verdict, style=TRUST[found.trust]), soft_wrap=False)
            for note in _notes(found):
                console.out.print(console.one_line(note), style="dim", soft_wrap=False)
            console.out.print()
        else:
            unused = "no label to go by" if found.label_use.labelled else "none with a label"
            console.out.print(_biases(found, f"{found.dimension}: {console.count(found.pairs, 'pair')}, {unused}"))
            for note in found.label_use.notes:
                console.out.print(console.one_line(note), style="yellow", soft_wrap=False)
    if not any(found.label_use.labelled for found in cards):
        console.out.print(_UNLABELLED, style="yellow", soft_wrap=False)
    if cost:
        console.out.print(cost, style="dim")


def _against_people(found: Card) -> Table:
    decided = f"{found.decided:,} decided" + (f", {console.count(found.ties, 'tie')}" if found.ties else "")
    table = console.plain_table(
        f"{found.dimension}: {found.labelled:,} of {console.count(found.pairs, 'pair')} with a label ({decided})"
    )
    table.add_column("against people", no_wrap=True)
    table.add_numbers("right side", "same verdict", "kappa")
    for name, reading in found.readings.items():
        table.add_row(
            _READINGS[name], share_text(reading.decided), share_text(reading.three_way), number(reading.kappa)
        )
    table.add_row("pooled less forward", points(found.gain), "", "", end_section=True)
    table.add_row("longer output", share_text(found.longer), "", "")
    table.add_row("pooled less longer", points(found.over_longer), "", "")
    table.add_row("always the same side", share_text(found.always), "", "")
    table.add_row("pooled less that", points(found.over_always), "", "")
    if found.people is not None and found.ceiling is not None:
        table.add_row(
            "one person, by the others", share_text(found.ceiling.person), share_text(found.people.three_way), ""
        )
        table.add_row("judge, by the same", share_text(found.ceiling.judge), "", "")
        kappa = number(found.people.kappa) if found.people.kappa else f"α {number(found.people.alpha)}"
        table.add_row("two people", "", share_text(found.people.agreement), kappa)
    return table


def _biases(found: Card, title: str | None = None) -> Table:
    table = console.plain_table(title)
    for name in ("biases", "value", "95%", "n"):
        table.add_column(name, justify="right" if name in ("value", "n") else "left", no_wrap=True)
    b, m = found.biases, found.meaning
    rows: list[tuple[str, Estimate, str]] = [
        ("flips with the order (1 ↔ 2)", b.flips, "share"),
        ("changes with the order at all", b.changes, "share"),
        ("position bias", b.position_bias, "signed"),
        ("prefers the longer output", b.longer_judge, "share"),
        ("people prefer the longer", b.longer_people, "share"),
        ("length bias: judge less people", b.length_bias, "signed"),
        ("label mass", b.label_mass, "share"),
        ("invalid", b.invalid, "share"),
        ("Brier, three-way (0 to 2)", m.brier, "number"),
        ("Brier, two sides (coin .250)", m.brier_binary, "number"),
        ("confidence less accuracy", m.reliability.over, "signed"),
    ]
    for name, value, kind in rows:
        if value.value is not None:
            table.add_row(name, *_cells(value, kind), f"{value.n:,}")
    if found.noise is None:
        table.add_row("changes with nothing changed", "–", "not measured", "")
        return table
    noise = found.noise
    table.add_row("changes with nothing changed", *_cells(noise.noise, "share"), f"{noise.pairs:,}")
    table.add_row("changes that are position bias", *_cells(noise.position, "signed"), f"{noise.pairs:,}")
    return table


def _reliability(found: Card) -> Table:
    table = console.plain_table()
    for name in ("sure of its side", "mean", "right", "95%", "pairs"):
        table.add_column(name, justify="left" if name in ("sure of its side", "95%") else "right", no_wrap=True)
    for part in found.meaning.reliability.bins:
        if part.right.n:
            shown = _cells(part.right, "share")
            span = f"{100 * part.low:.0f}–{100 * part.high:.0f}%"
            table.add_row(span, console.percent(part.confidence, 0), *shown, f"{part.right.n:,}")
    return table


def _notes(found: Card) -> Iterator[str]:
    yield from found.label_use.notes
    yield f"Noise: {found.noise.text if found.noise else NOT_MEASURED}."
    yield bar_text(found)
    if found.contested:
        yield f"Left out of every accuracy: {console.count(found.contested, 'pair')} without a majority."
    if found.adjudicated:
        yield f"decided by an adjudicator: {console.count(found.adjudicated, 'pair')}; not counted as a vote."
    if 0 < found.decided < 100:
        yield "n is small (fewer than 100 decided pairs), so the intervals are wide."
    r = found.meaning.reliability
    if r.ece is not None and r.ece_of_chance is not None:
        ece, chance = f"{r.ece:.3f}", f"{r.ece_of_chance:.3f}"
        yield f"Calibration error (ECE) {ece}; a perfectly calibrated judge would show about {chance} here."


def bar_text(found: Card) -> str:
    """What the judge was compared with to decide whether to trust it."""
    bar = "one person" if found.target is None else f"the target of {100 * found.target:.0f}%"
    return f"Trust is held against {bar}, less a margin of {100 * found.margin:g} points."


def comparison_note(c: JudgeComparison) -> str:
    """One line for several judges compared with the first; empty for one."""
    return console.one_line(caution((_called(row, c), row.ahead_p_holm) for row in c.rows))


def _called(row: ContenderRow, c: JudgeComparison) -> str:
    return row.name if row.dimension == c.dimension else f"{row.name}:{row.dimension}"


def comparison_table(c: JudgeComparison) -> Table:
    """Judges next to each other, each figure above its interval."""
    heads = ("right\nside", "less the\nfirst", "same\nverdict", "kappa", "flips", "tokens\na pair", "s a\npair")
    pairs = f"{console.count(c.pairs, 'labelled pair')}, {c.decided:,} of them decided"
    table = console.plain_table(f"{c.dimension}: the same {pairs}", "judge", numbers=heads)
    for row in c.rows:
        table.add_row(
            console.safe(_called(row, c)),
            _stacked(share_text(row.decided)),
            _stacked(points(row.ahead)) if row.ahead else "",
            _stacked(share_text(row.three_way)),
            _stacked(number(row.kappa)),
            _stacked(share_text(row.flips)),
            f"{row.tokens:,.0f}" if row.tokens is not None else "–",
            f"{row.seconds:.1f}" if row.seconds is not None else "–",
        )
    table.add_section()
    table.add_row(Text("longer output", style="dim"), _stacked(share_text(c.longer)), *[""] * 6)
    return table


def _stacked(cell: str) -> Text:
    value, space, interval = cell.partition(" (")
    return Text(value).append(f"\n{interval.removesuffix(')')}" if space else "", style="dim")


def drag_table(drags: Sequence[Drag]) -> Table:
    """The same dimension asked in a chain and alone."""
    heads = ("pairs", "verdict\nchanged", "side\nturned", "to earlier\nones' side", "right side,\nless alone")
    title, keys = "Drag: the same dimension asked in a chain and alone", ("dimension", "chain", "alone")
    table = console.plain_table(title, *keys, numbers=heads)
    table.keys = len(keys)
    for drag in drags:
        names = [console.safe(name) for name in (drag.dimension, drag.chain, drag.alone)]
        figures = (share_text(drag.changed), share_text(drag.turned), share_text(drag.followed), points(drag.gain))
        cells = [_stacked(figure) for figure in figures]
        table.add_row(*names, str(drag.pairs), *cells)
    return table


# -- numbers for readers --------------------------------------------------------------------------------------


def points(found: Estimate) -> str:
    """A difference of shares in points, with its interval."""
    return console.points(found.value, found.low, found.high)


def number(found: Estimate) -> str:
    """A number with its interval.

    >>> number(Estimate(0.5, 0.42, 0.58, 100, 100))
    '.50 (.42–.58)'
    """
    value, interval = _cells(found, "number")
    return f"{value} ({interval})" if interval else value


def _cells(found: Estimate, kind: str) -> tuple[str, str]:
    """The value and its interval for two columns."""
    write = {"share": lambda x: f"{100 * x:z.0f}", "signed": signed, "number": _short}[kind]
    if found.value is None:
        return "–", ""
    unit = "%" if kind == "share" else ""
    if found.low is None or found.high is None:
        return write(found.value) + unit, ""
    between = " to " if kind == "signed" or found.low < 0 else "–"
    return write(found.value) + unit, f"{write(found.low)}{between}{write(found.high)}{unit}"


def _short(x: float) -> str:
    text = f"{x:z.2f}"
    return text.replace("0.", ".", 1) if abs(x) < 1 and not text.startswith(("1", "-1")) else text
