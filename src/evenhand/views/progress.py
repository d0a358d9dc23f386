"""How far something is, on standard error: a live bar in a terminal, a line now and then elsewhere."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import chain
from typing import Protocol, Self

from rich.console import RenderableType
from rich.markup import escape
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
from rich.text import Text

from evenhand.core.engine import Usage
from evenhand.core.judge import Judgment
from evenhand.results.wording import count
from evenhand.views import console

_QUIET_SECONDS = 10.0
_UPKEEP_SECONDS = 1.0  # how long background work may take without a message
_BAR_SECONDS = 0.05  # how often a live bar is redrawn
_ONE_LINE = 110  # columns that a bar needs with all that stands beside it


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
    if not console.err.is_terminal:
        with _Lines(total, lines) as given:
            yield given
        return
    with _progress() as bar:
        given_bar = _Bar(bar, total, lines)
        try:
            yield given_bar
        finally:
            given_bar.draw()  # a run that ends early ends between two drawings


def _progress() -> Progress:
    """The bar with all that stands beside it, on one line or on two."""
    drawn, pairs = BarColumn(bar_width=24), TextColumn("{task.fields[pairs]}")
    invalid = TextColumn("{task.fields[invalid]}")
    if console.err.width < _ONE_LINE:
        return _TwoLines(drawn, pairs, invalid, console=console.err)
    return Progress(drawn, pairs, _LiveColumn(), invalid, console=console.err)


class _LiveColumn(ProgressColumn):
    """What the run says of itself each time the bar is drawn."""

    def render(self, task: Task) -> Text:
        return _live_text(task)


class _TwoLines(Progress):
    """The bar, and below it what a narrow terminal has no room for beside it."""

    def get_renderables(self) -> Iterator[RenderableType]:
        """The table of bars, and a line."""
        below = [_live_text(task) for task in self.tasks]
        return chain([self.make_tasks_table(self.tasks)], below)


def _live_text(task: Task) -> Text:
    """What a run says of itself; the bar moves along."""
    live: Live | None = task.fields["live"]
    if live is None:
        return Text(task.fields["more"])
    done = int(task.fields["done"])
    task.completed = live.fraction(done)
    return Text(live.text(done), no_wrap=True, overflow="ellipsis")


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
            self._bar.console.print(console.judgment_line(judgment))
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
        self._bar.console.print(console.visible(text), style="dim", markup=False)


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
            console.err.print(console.judgment_line(judgment))
        else:
            self.moved(self._done + 1, usage, invalid)

    def moved(self, pairs: int, usage: Usage, invalid: int) -> None:
        self._done, self._invalid = pairs, invalid
        if self._live is None and self._is_time():
            pace = _pace(self._done, self._reported - self._began)
            done = f"{self._done:,}/{count(self._total, 'pair')}"
            self.print(f"{done}, {pace}, {usage.computed:,} tokens, {invalid:,} invalid")

    def print(self, text: str) -> None:
        console.err.print(console.visible(text), markup=False)


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
        if not console.err.is_terminal:
            tenth = 10 * done // total if total else 0
            if tenth > self._tenth:
                self._tenth = tenth
                console.err.print(f"{what}: {line}", markup=False)
            return
        if self._bar is None:
            columns = (TextColumn("{task.description}"), BarColumn(bar_width=24), *self._columns)
            self._bar = Progress(*columns, console=console.err)
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
