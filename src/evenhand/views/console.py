"""What a terminal shows: tables, notes, one line for each judgment. Progress is in progress.py."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from rich.console import Console, ConsoleOptions, RenderableType
from rich.markup import escape
from rich.panel import Panel
from rich.segment import Segment
from rich.table import Table
from rich.text import Text

from evenhand.core.engine import Usage
from evenhand.core.judge import Judgment
from evenhand.core.markup import Span
from evenhand.core.protocol import ORDERS, Order, Protocol
from evenhand.core.steering import PICTURES, TURNS
from evenhand.core.verdict import OF_ANSWERS, OF_OTHERS, SIDES, Outcome, headline, headline_first, known_label
from evenhand.engines.catalog import Status
from evenhand.results.wording import attacked_text, example_text, signed
from evenhand.results.wording import count as count
from evenhand.results.wording import percent as percent
from evenhand.views.tables import FittedTable, short_names

if TYPE_CHECKING:  # with numpy, which takes a third of a second
    from evenhand.results.answer import AnswerSentence
    from evenhand.results.summary import DimensionSummary, Summary


# Blue and orange keep apart for every kind of colour blindness; grey is a tie, red is what went wrong.
COLOURS = {"1": "dodger_blue1", "2": "dark_orange", "tie": "grey62", "invalid": "red"}
_LONGEST_SIDE = 10  # characters of a model's name above a column of numbers


class _Calm(Console):
    """A console in which only rich itself can steer the terminal: names and messages are untrusted."""

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterator[Segment]:
        begins = True  # whether a line begins here
        for segment in super().render(renderable, options):
            if segment.control:
                yield segment
                continue
            shown = no_order(visible(segment.text), begins)
            yield segment if shown == segment.text else Segment(shown, segment.style)
            last = shown.rpartition("\n")
            begins = not last[2].strip() and (begins or bool(last[1]))

    def print(self, *objects: Any, soft_wrap: bool | None = None, **more: Any) -> None:
        """As rich does; but a sentence is one line in a file, and breaks between words in a terminal.

        There, a command or an address stays one line, which can be copied; a long one begins on a line of its own.
        """
        if soft_wrap is None:
            soft_wrap = all(isinstance(each, str | Text) for each in objects)
        if soft_wrap and self.is_terminal:
            objects = tuple(_command_below(each, self.width) for each in objects)
            soft_wrap = any(_is_to_copy(each) for each in objects)
        super().print(*objects, soft_wrap=soft_wrap, **more)


# What CI services obey in a log: "::error::" where a line begins (GitHub); the others in any place.
_ORDER = re.compile(r"^\s*:(?=:)|##(?=(?:vso|teamcity)?\[)", re.MULTILINE)


def no_order(text: str, begins: bool = True) -> str:
    """Text without commands to a CI service; `begins` says that a line begins here.

    >>> print(no_order("::error::a, ::b"), no_order("::c", begins=False), no_order("##vso[d]"))
    :\\:error::a, ::b ::c ##\\vso[d]
    """
    if "::" not in text and "##" not in text:
        return text
    return _ORDER.sub(lambda found: found[0] + ("\\" if begins or found.start() or found[0] == "##" else ""), text)


def _is_to_copy(shown: object) -> bool:
    text = str(shown)
    return "://" in text or ("evenhand " in text and " --" in text)


def _command_below(shown: object, width: int) -> object:
    """A sentence that ends with a command, with the command below it if both are too long for one line.

    >>> _command_below("see it: evenhand rank --db a.db", 20)
    'see it:\\n  evenhand rank --db a.db'
    """
    if not isinstance(shown, str) or len(shown) <= width or not _is_to_copy(shown):
        return shown
    indent = len(shown) - len(shown.lstrip(" ")) + 2
    return shown.replace(": evenhand ", f":\n{' ' * indent}evenhand ")


# Strings are no markup, for most hold names of others; a line with markup of its own says so, and escapes the rest.
out = _Calm(highlight=False, markup=False)
err = _Calm(stderr=True, highlight=False, markup=False)


def summary_table(summary: Summary, title: str) -> Table:
    """The table at the end of a run: one row for each dimension."""
    one, two = (one_line(name) for name in short_sides(summary))
    table = plain_table(title)
    table.add_column("dimension", no_wrap=True)
    table.add_numbers(f"win rate\nof {one}", "95%\nCI")
    for name, style in ((f"{one}\nwins", COLOURS["1"]), ("tie", COLOURS["tie"]), (f"{two}\nwins", COLOURS["2"])):
        table.add_column(name, justify="right", style=style)
    table.breaks = (6,)  # what was found, and how far to trust it
    table.add_numbers("incon-\nsistent", "in-\nvalid", "label\nmass", "posi-\ntion\nbias")
    for name, found in headline_first(summary.dimensions):
        table.add_row(name, *_cells(found))
    return table


def short_sides(summary: Summary) -> list[str]:
    """The names of both sides for the head of a column."""
    return short_names(summary.sides, _LONGEST_SIDE)


def sides_line(summary: Summary) -> str:
    """Both names in full, where the table has no room for them; empty where it has."""
    named = zip(short_sides(summary), summary.sides, strict=True)
    return "; ".join(f"{one_line(cut)} is {one_line(name)}" for cut, name in named if cut != name)


_ASKED = 50  # characters of an instruction in a line
ANSWER_COLOURS = {
    "better": "green",
    "unclear": "yellow",
    "distrust": "red",
    "nothing": "red",
    "several": "default",
}


def answer_line(answer: AnswerSentence) -> Text:
    """The answer in one sentence, before any table."""
    return safe(answer.sentence, f"bold {ANSWER_COLOURS[answer.kind]}")


def roles_line(summary: Summary) -> str:
    """Which model is on trial; empty where nobody said so."""
    if not summary.roles:
        return ""
    named = zip(summary.roles, summary.sides, strict=True)
    return "; ".join(f"{role}: {one_line(name)}" for role, name in sorted(named, reverse=True))


def plain_table(title: str | None = None, *names: str, numbers: Iterable[str] = ()) -> FittedTable:
    """The one look that all tables have; columns of names or prose come before those of numbers."""
    table = FittedTable(None if title is None else one_line(title))
    for name in names:
        table.add_column(name)
    table.add_numbers(*numbers)
    return table


def safe(text: str, style: str = "") -> Text:
    """Untrusted text on one line: it cannot be markup and cannot steer the terminal."""
    return Text(one_line(text), style=style)


def below(text: str, command: str) -> None:
    """What was done, dim, and the command that goes on from there."""
    out.print(f"[dim]{escape(visible(text))}[/] {escape(visible(command))}", markup=True)


def aside(text: str) -> None:
    """A message about progress, on standard error."""
    err.print(visible(text), style="dim", markup=False)


def note(text: str) -> None:
    """Something to keep in mind, on standard error."""
    err.print(f"note: {one_line(text)}", style="yellow", markup=False)


def _cells(found: DimensionSummary) -> list[str | Text]:
    return [
        percent(found.win_rate_1),
        span(found.ci),
        f"{found.wins_1:,}",
        f"{found.ties:,}",
        f"{found.wins_2:,}",
        Text(f"{found.inconsistent:,}", style="yellow" if found.inconsistent else ""),
        Text(f"{found.invalid:,}", style=COLOURS["invalid"] if found.invalid else ""),
        Text(percent(found.label_mass, 0), style=COLOURS["invalid"] if found.low_mass else ""),
        signed(found.position_bias),
    ]


def span(ci: tuple[float, float] | None) -> str:
    """An interval for a table.

    >>> span((0.444, 0.975)), span(None)
    ('44–98%', '–')
    """
    return f"{100 * ci[0]:.0f}–{percent(ci[1], 0)}" if ci else "–"


def notes(summary: Summary, *, intervals: bool = True) -> Iterator[str | Text]:
    """What a reader of the table should know about these very numbers; `intervals` says that it has any."""
    yield from invalid_lines(summary.reasons, "win rate")
    if summary.unfinished:
        yield f"not asked yet, or only in part, and in no number here: {count(summary.unfinished, 'pair')}."
    if low := [found.label_mass or 0.0 for found in summary.dimensions.values() if found.low_mass]:
        yield Text.assemble(
            ("label mass", "red"),
            f" {percent(min(low))}: this judge would rather say something else"
            " than what it was asked for. It is not a judge; do not trust its verdicts.",
        )
    yield from map(one_line, summary.notes())
    if intervals and any(found.small for found in summary.dimensions.values()):
        yield "fewer than 30 instructions: n is small, so the intervals are wide."


def invalid_lines(reasons: Mapping[str, int], number: str) -> Iterator[Text]:
    """Why verdicts are missing, where some are; `number` is what they are not part of."""
    if reasons:
        said = ", ".join(f"{reason} {count:,}" for reason, count in sorted(reasons.items()))
        more = f": {said}. Invalid verdicts are in no {number}{_asked_again(reasons)}."
        yield Text.assemble(("invalid", "red"), more)


def _asked_again(reasons: Iterable[str]) -> str:
    """What the next run does about verdicts that are missing.

    >>> _asked_again(["timeout"]), _asked_again(["unreadable"])
    ('; the next run tries them again', '; answers that cannot be read are not asked for again')
    """
    found = set(reasons)
    if found.isdisjoint(OF_ANSWERS):
        return "; the next run tries them again" if found - OF_OTHERS else ""
    failures = "the next run tries failures again, and " if found - OF_ANSWERS - OF_OTHERS else ""
    return f"; {failures}answers that cannot be read are not asked for again"


def example_lines(examples: Mapping[str, str]) -> Iterator[str]:
    """What was said where a verdict is missing, one answer or message for each reason.

    >>> list(example_lines({"unreadable": "Response A\\nis better."}))
    ['unreadable, for example: “Response A is better.”']
    """
    for reason, text in examples.items():
        yield one_line(f"{reason}, {example_text(text)}")


def print_attacked(pairs: int) -> None:
    """Say how many attacked pairs are in no number, if any are."""
    if pairs:
        err.print(f"{attacked_text(pairs)}.", style="dim")


def agreement_table(summary: Summary) -> Table | None:
    """How often the judge agreed with known answers, where the pairs carry any."""
    known = {name: found.agreement for name, found in summary.dimensions.items() if found.agreement}
    if not known:
        return None
    numbers = ("pairs", "same verdict", "decided pairs", "right side")
    table = plain_table("Against the known answers", "dimension", numbers=numbers)
    for name, found in headline_first(known):
        counts = (f"{found.n:,}", percent(found.three_way), f"{found.decided_n:,}", percent(found.decided))
        table.add_row(name, *counts)
    return table


def usage_line(usage: Usage, seconds: float, asked: int | None = None) -> str:
    """The tokens of a run in a sentence.

    >>> usage_line(Usage(), 0.1, asked=0)
    'no new answers, in 0.1 s'
    """
    if asked == 0:
        return f"no new answers, in {clock(seconds)}"
    speed = f", {usage.computed / seconds:,.0f} computed a second" if seconds > 0 and usage.computed else ""
    answers = f"{count(asked, 'answer')}; " if asked is not None else ""
    return (
        f"{answers}{usage.computed:,} tokens computed, {usage.reused:,} reused, {usage.generated:,} generated"
        f" in {clock(seconds)}{speed}"
    )


def points(value: float | None, low: float | None, high: float | None) -> str:
    """A difference of shares in points, with its interval.

    >>> points(0.05, -0.02, 0.12), points(-0.001, None, None), points(None, None, None)
    ('+5 (-2 to +12)', '+0', '–')
    """
    if value is None:
        return "–"
    interval = "" if low is None or high is None else f" ({100 * low:+z.0f} to {100 * high:+z.0f})"
    return f"{100 * value:+z.0f}{interval}"


def clock(seconds: float) -> str:
    """Seconds for a reader.

    >>> clock(7.25), clock(187), clock(7300)
    ('7.2 s', '3 min 7 s', '2 h 1 min')
    """
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest} s" if minutes < 60 else f"{minutes // 60} h {minutes % 60} min"


def judgment_line(judgment: Judgment) -> Text:
    """One judgment in one line: what was asked, the verdict on the headline, and the answer that is known."""
    name = headline([*judgment.outcomes])
    side, known = judgment[name].side or "invalid", known_label(judgment.pair.labels, name)
    mark = " " if known is None else ("✓" if known == side else "✗")
    asked = safe(" ".join(judgment.pair.instruction.split()))
    asked.truncate(_ASKED, overflow="ellipsis", pad=True)
    line = Text.assemble((f"{mark} ", "green" if mark == "✓" else "red"), asked, ("  judge ", "dim"))
    line.append(f"{side:3}", style=COLOURS[side])
    return line if known is None else line.append("  known ", style="dim").append(known, style=COLOURS[known])


def comparison(judgment: Judgment) -> Table:
    """One judgment in full: per dimension the verdict, its probabilities, and what each order said."""
    table = plain_table()
    table.add_column("dimension", no_wrap=True)
    table.add_column("verdict")
    for name, side in (("p(1)", "1"), ("p(2)", "2"), ("p(tie)", "tie")):
        table.add_column(name, justify="right", style=COLOURS[side])
    table.add_numbers("1 shown\nfirst", "2 shown\nfirst", "label\nmass")
    for name, outcome in judgment.outcomes.items():
        p = [f"{outcome.p[side]:.2f}" if outcome.p else "–" for side in SIDES]
        judged = [_order_cell(outcome, order) for order in ORDERS]
        table.add_row(name, _verdict_cell(outcome), *p, *judged, _mass_cell(outcome))
    return table


def _verdict_cell(outcome: Outcome) -> Text:
    side = outcome.side or "invalid"
    words = {"1": "1 is better", "2": "2 is better", "tie": "tie", "invalid": f"invalid: {outcome.invalid}"}
    cell = Text(words[side], style=COLOURS[side])
    return cell.append("\n(orders disagree)", style="yellow") if outcome.inconsistent else cell


def _order_cell(outcome: Outcome, order: Order) -> Text:
    verdict, said, p = outcome.orders.get(order), outcome.side_in(order), outcome.p_in(order)
    if verdict is None:
        return Text("–")
    if said is None:
        return Text(verdict.invalid or "invalid", style=COLOURS["invalid"])
    return Text(said, style=COLOURS[said]).append(f"  {p[said]:.2f}" if p else "", style="dim")


def _mass_cell(outcome: Outcome) -> str:
    masses = [verdict.mass for verdict in outcome.orders.values() if verdict.mass is not None]
    return percent(min(masses), 0) if masses else "–"


def protocols_table(protocols: Iterable[Protocol]) -> Table:
    """The protocols that come with the package."""
    table = plain_table()
    for name in ("name", "questions", "dimensions", "what it is for"):
        table.add_column(name, no_wrap=name == "name")
    for protocol in protocols:
        questions = "; ".join(", ".join(question.dimensions) for question in protocol.questions)
        table.add_row(protocol.name, str(len(protocol.questions)), questions, protocol.description)
    return table


def models_table(statuses: Sequence[Status]) -> Table:
    """The catalog of models."""
    table = plain_table()
    table.add_column("name", no_wrap=True)
    table.add_numbers("size")
    for name in ("licence", "on disk"):
        table.add_column(name, no_wrap=True)
    table.add_column("what for, and where it comes from")
    for status in statuses:
        model = status.model
        here = Text("yes", style="green") if status.on_disk else "no"
        about = Text.assemble(f"{model.what_for}\n", (model.source, "dim"))
        if status.fits is False:
            needed = f"{model.memory / 1e9:,.0f} GB of memory"
            about.append(f"\nneeds about {needed}: too large for this machine", style="yellow")
        size = f"{model.bytes / 1e6:,.0f} MB" if model.size else f"≈{model.bytes / 1e9:,.1f} GB"
        table.add_row(model.name, size, model.licence, here, about)
    return table


def conversation(spans: Iterable[Span]) -> Text:
    """A conversation as the judge sees it; what is not ours is marked."""
    text = Text()
    for span in spans:
        text.append(visible(span.text), style="" if span.trusted else "black on khaki1")
    return text


def visible(text: str) -> str:
    """Text in which nothing can steer the terminal: control characters become pictures of themselves.

    So do marks that turn the direction of what follows, and halves of surrogate pairs.

    >>> visible("a\\x1b[31mb\\n"), visible("a\\u202eb")
    ('a␛[31mb\\n', 'a\ufffdb')
    """
    return text if text.isprintable() else text.translate(_SEEN)


def one_line(text: str) -> str:
    """A name that others gave, on one line: it cannot pass for a line of ours.

    >>> one_line("a\\nPASS: b")
    'a PASS: b'
    """
    return visible(" ".join(text.split()))


_SEEN: dict[int, str] = {
    **PICTURES,
    **dict.fromkeys((*TURNS, *range(0xD800, 0xE000)), "\ufffd"),
}


def panel(text: str, title: str) -> Panel:
    """A box of text."""
    return Panel(text, title=title, title_align="left", expand=False)


def fail(message: str, hint: str = "") -> None:
    """An error on standard error, in one or two lines."""
    err.print(f"[bold red]error:[/] {escape(one_line(message))}", markup=True)
    if hint:
        err.print(f"[dim]  hint:[/] {escape(one_line(hint))}", markup=True)
