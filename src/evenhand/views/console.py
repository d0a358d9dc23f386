"""What a terminal shows: tables, progress, one line for each judgment."""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Protocol, Self

from rich.console import Console, ConsoleOptions, RenderableType
from rich.markup import escape
from rich.panel import Panel
from rich.progress import (
    BarColumn,
    DownloadColumn,
    Progress,
    ProgressColumn,
    Task,
    TextColumn,
    TimeRemainingColumn,
    TransferSpeedColumn,
)
from rich.segment import Segment
from rich.table import Table
from rich.text import Text

from evenhand.core.engine import Usage
from evenhand.core.judge import Judgment
from evenhand.core.markup import Span
from evenhand.core.protocol import ORDERS, Order
from evenhand.core.protocol import Protocol as Template
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
# A judge that puts less than this on the labels is answering something else.
LOW_MASS = 0.5
_QUIET_SECONDS = 10.0
_LONGEST_SIDE = 10  # characters of a model's name above a column of numbers
_UPKEEP_SECONDS = 1.0  # that work which nobody asked for may take without a word
# How often a live bar is brought up to date.
_BAR_SECONDS = 0.05


class _Calm(Console):
    """A console whose terminal nothing can steer but rich itself: names and messages come from others."""

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


# What services that run tests obey in a log: "::error::" where a line begins (GitHub); the others in any place.
_ORDER = re.compile(r"^\s*:(?=:)|##(?=(?:vso|teamcity)?\[)", re.MULTILINE)


def no_order(text: str, begins: bool = True) -> str:
    """Text in which a service that runs tests finds no order to itself; `begins` says that a line does here.

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
    """What others have written, on one line: it is no markup, and can steer nothing."""
    return Text(one_line(text), style=style)


def below(text: str, command: str) -> None:
    """What was done, dim, and the command that goes on from there."""
    out.print(f"[dim]{escape(visible(text))}[/] {escape(visible(command))}", markup=True)


def aside(text: str) -> None:
    """What goes on, on standard error."""
    err.print(visible(text), style="dim", markup=False)


def note(text: str) -> None:
    """Something to keep in mind, on standard error."""
    err.print(f"note: {one_line(text)}", style="yellow", markup=False)


def _cells(found: DimensionSummary) -> list[str | Text]:
    mass = found.label_mass
    return [
        percent(found.win_rate_1),
        span(found.ci),
        f"{found.wins_1:,}",
        f"{found.ties:,}",
        f"{found.wins_2:,}",
        Text(f"{found.inconsistent:,}", style="yellow" if found.inconsistent else ""),
        Text(f"{found.invalid:,}", style=COLOURS["invalid"] if found.invalid else ""),
        Text(percent(mass, 0), style=COLOURS["invalid"] if mass is not None and mass < LOW_MASS else ""),
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
    masses = [found.label_mass for found in summary.dimensions.values() if found.label_mass is not None]
    if masses and min(masses) < LOW_MASS:
        yield Text.assemble(
            ("label mass", "red"),
            f" {percent(min(masses))}: this judge would rather say something else"
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


def tell_attacked(pairs: int) -> None:
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
    """The tokens of a run in a sentence."""
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


def protocols_table(protocols: Iterable[Template]) -> Table:
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


class Live(Protocol):
    """How far a run is at any moment, also between two pairs."""

    def fraction(self, done: int) -> float:
        """Pairs that are done, those under way in part."""

    def text(self, done: int) -> str:
        """Answers, tokens, speed, time left."""


class Watch(Protocol):
    """What a run tells while it goes on."""

    def follow(self, live: Live) -> None:
        """Show how far the run is between two pairs, too."""

    def judged(self, judgment: Judgment, usage: Usage, invalid: int) -> None:
        """One more pair is done."""

    def moved(self, pairs: int, usage: Usage, invalid: int) -> None:
        """So many pairs are done in all."""

    def print(self, text: str) -> None:
        """Something to know, once."""


@contextmanager
def watching(total: int, *, lines: bool = False) -> Iterator[Watch]:
    """Progress on standard error: a live bar in a terminal, a line now and then elsewhere."""
    if not err.is_terminal:
        with _Lines(total, lines) as given:
            yield given
        return
    bar = Progress(
        BarColumn(bar_width=24),
        TextColumn("{task.fields[pairs]}"),
        _LiveColumn(),
        TextColumn("{task.fields[invalid]}"),
        console=err,
    )
    with bar:
        given_bar = _Bar(bar, total, lines)
        try:
            yield given_bar
        finally:
            given_bar.draw()  # a run that ends early ends between two drawings


class _LiveColumn(ProgressColumn):
    """What the run says of itself each time the bar is drawn."""

    def render(self, task: Task) -> Text:
        live: Live | None = task.fields["live"]
        if live is None:
            return Text(task.fields["more"])
        done = int(task.fields["done"])
        task.completed = live.fraction(done)
        return Text(live.text(done))


class _Bar:
    def __init__(self, bar: Progress, total: int, lines: bool) -> None:
        self._bar, self._lines = bar, lines
        self._began, self._reported = time.monotonic(), 0.0
        self._done, self._total = 0, total
        self._computed = self._invalid = 0
        self._task = bar.add_task(
            "", total=total, pairs=f"0/{count(total, 'pair')}", done=0, live=None, more="", invalid=""
        )

    def follow(self, live: Live) -> None:
        self._bar.update(self._task, live=live)

    def judged(self, judgment: Judgment, usage: Usage, invalid: int) -> None:
        if self._lines:
            self._bar.console.print(judgment_line(judgment))
        self.moved(self._done + 1, usage, invalid)

    def moved(self, pairs: int, usage: Usage, invalid: int) -> None:
        self._done, self._computed, self._invalid = pairs, usage.computed, invalid
        if time.monotonic() - self._reported >= _BAR_SECONDS or self._done >= self._total:
            self.draw()  # thousands may come in a second, and nobody sees each

    def draw(self) -> None:
        """Show what is known now."""
        self._reported = now = time.monotonic()
        self._bar.update(
            self._task,
            completed=self._done,
            done=self._done,
            pairs=f"{self._done:,}/{count(self._total, 'pair')}",
            more=f"{_pace(self._done, now - self._began)}, {self._computed:,} tokens",
            invalid=f"[red]{self._invalid:,} invalid[/]" if self._invalid else "0 invalid",
        )

    def print(self, text: str) -> None:
        self._bar.console.print(visible(text), style="dim", markup=False)


class _Lines:
    """A line now and then; a thread of its own says it where no pair is done for long."""

    def __init__(self, total: int, lines: bool) -> None:
        self._total, self._lines, self._done, self._invalid = total, lines, 0, 0
        self._began = self._reported = time.monotonic()
        self._live: Live | None = None
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._tick, name="progress", daemon=True)

    def __enter__(self) -> _Lines:
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        if self._thread.is_alive():
            self._thread.join()

    def follow(self, live: Live) -> None:
        self._live = live
        self._thread.start()

    def _tick(self) -> None:
        while not self._over.wait(_QUIET_SECONDS / 10):
            if self._live is not None and self._is_time():
                pairs = f"{self._done:,}/{count(self._total, 'pair')}"
                self.print(f"{pairs}, {self._live.text(self._done)}, {self._invalid:,} invalid")

    def _is_time(self) -> bool:
        if time.monotonic() - self._reported <= _QUIET_SECONDS:
            return False
        self._reported = time.monotonic()
        return True

    def judged(self, judgment: Judgment, usage: Usage, invalid: int) -> None:
        if self._lines:
            self._done += 1
            self._reported = time.monotonic()
            err.print(judgment_line(judgment))
        else:
            self.moved(self._done + 1, usage, invalid)

    def moved(self, pairs: int, usage: Usage, invalid: int) -> None:
        self._done, self._invalid = pairs, invalid
        if self._live is None and self._is_time():
            pace = _pace(self._done, self._reported - self._began)
            done = f"{self._done:,}/{count(self._total, 'pair')}"
            self.print(f"{done}, {pace}, {usage.computed:,} tokens, {invalid:,} invalid")

    def print(self, text: str) -> None:
        err.print(visible(text), markup=False)


def _pace(done: float, seconds: float) -> str:
    """Pairs a second, or seconds a pair where that reads better.

    >>> _pace(20, 10), _pace(2, 10)
    ('2.0 pairs/s', '5.0 s/pair')
    """
    rate = done / seconds if seconds > 0 else 0.0
    return f"{rate:,.1f} pairs/s" if rate >= 1 or not rate else f"{1 / rate:.1f} s/pair"


class _Tenths:
    """Progress of something: a bar in a terminal, which ends with the block, or a line at each tenth elsewhere."""

    def __init__(self, *columns: ProgressColumn, tenth: int) -> None:
        self._columns, self._tenth = columns, tenth
        self._bar: Progress | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._bar is not None:
            self._bar.stop()

    def _show(self, done: int, total: int, what: str, line: str) -> None:
        if not err.is_terminal:
            tenth = 10 * done // total if total else 0
            if tenth > self._tenth:
                self._tenth = tenth
                err.print(f"{what}: {line}", markup=False)
            return
        if self._bar is None:
            columns = (TextColumn("{task.description}"), BarColumn(bar_width=24), *self._columns)
            self._bar = Progress(*columns, console=err)
            self._bar.start()
            self._bar.add_task(escape(what), total=total)
        self._bar.update(self._bar.task_ids[0], completed=done, description=escape(what))


class Upkeep(_Tenths):
    """Progress of work that nobody asked for: silent for a second."""

    def __init__(self, what: str) -> None:
        super().__init__(tenth=0)
        self._what, self._began = what, time.monotonic()

    def __call__(self, done: int, total: int) -> None:
        """So many pairs of all are done."""
        if time.monotonic() - self._began >= _UPKEEP_SECONDS:
            self._show(done, total, self._what, f"{done:,} of {count(total, 'pair')}")


class Download(_Tenths):
    """The progress of a model on its way here."""

    def __init__(self) -> None:
        super().__init__(DownloadColumn(), TransferSpeedColumn(), TimeRemainingColumn(compact=True), tenth=-1)

    def __call__(self, done: int, total: int, what: str) -> None:
        """Show how far it is."""
        self._show(done, total, what, f"{done / 1e6:,.0f} of {total / 1e6:,.0f} MB")


def panel(text: str, title: str) -> Panel:
    """A box of text."""
    return Panel(text, title=title, title_align="left", expand=False)


def fail(message: str, hint: str = "") -> None:
    """An error on standard error, in one or two lines."""
    err.print(f"[bold red]error:[/] {escape(one_line(message))}", markup=True)
    if hint:
        err.print(f"[dim]  hint:[/] {escape(one_line(hint))}", markup=True)
