"""evenhand judge --batch: the run in batches, its progress, and how to resume it."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from itertools import islice

from rich.status import Status

from evenhand.core.errors import SpecError
from evenhand.core.verdict import found_on
from evenhand.engines.batches.opening import WHO_CAN, check_batches
from evenhand.engines.presets import find_address
from evenhand.results.plain import to_json
from evenhand.results.summary import Counter
from evenhand.running.batches.run import BatchProgress, BatchRun
from evenhand.store import BatchRow
from evenhand.store.batches import UNSETTLED
from evenhand.views import console
from evenhand.views.api import Judge
from evenhand.views.cli.groups import AnySettings, JudgeSettings, OutputOptions
from evenhand.views.cli.inputs import Input
from evenhand.views.cli.judging import JudgedInput
from evenhand.views.cli.running import summary_of_run

# How often to say how far the batches are where there is no live line.
_LINE_SECONDS = 60.0


def check_batch_judge(settings: AnySettings) -> JudgeSettings:
    """Refuse a judge that has no batches, before a model is fetched and pairs are read."""
    if not isinstance(settings, JudgeSettings):
        hint = "run each judge with --batch; evenhand jury pools what the database then holds"
        raise SpecError("--batch asks one judge at a time", hint=hint)
    if find_address(settings.spec) is None:
        raise SpecError(f"{settings.spec} cannot be asked in batches", hint=WHO_CAN)
    check_batches(settings.engine())
    return settings


def judge_in_batches(
    settings: JudgeSettings, given: Input, output: OutputOptions, *, limit: int | None, detach: bool
) -> JudgedInput | None:
    """Judge pairs in batches; None where they are still under way, and nobody wants to wait."""
    given.check_slots(settings.protocol)
    with settings.judge(output.db) as judge:
        given.begin(judge)
        began = time.monotonic()
        run = _run(judge, given, limit, detach)
        if run.detached:
            _show_detached(judge, output)
            return None
        counter = Counter(found_on(judge.setup.protocol.dimensions))
        for judgment in run.judgments():
            counter.add(judgment)
        cost = run.cost if judge.price else None
        found = summary_of_run(judge, counter, run.totals, cost, time.monotonic() - began, run.stopped)
        if price := judge.price:
            found = replace(found, prices=f"in batches, at {price.batch:.0%} of the prices of {price.date}")
        if run.stopped:
            console.err.print(
                f"{run.stopped}; the same command goes on from here", style="yellow", markup=False, soft_wrap=False
            )
        given.end(judge, found.summary.pairs)
        kept = judge.store.judge_book.find(judge.setup.fingerprint) is not None
    return JudgedInput(given, found, kept)


def _run(judge: Judge, given: Input, limit: int | None, detach: bool) -> BatchRun:
    with _watching() as watch:
        try:
            return judge.judge_in_batches(
                lambda: islice(given.read(), limit),
                detach=detach,
                on_notice=console.aside,
                on_progress=watch.progress,
            )
        except KeyboardInterrupt:
            if left := _open(judge):
                console.aside(f"{_said(left)}; the same command picks up, evenhand batches cancel gives up")
            raise


def _open(judge: Judge) -> list[BatchRow]:
    number = judge.store.judge_book.find(judge.setup.fingerprint)
    return judge.store.batches.rows(number, UNSETTLED) if number is not None else []


def _batches(number: int) -> str:
    return f"{number:,} batch" if number == 1 else f"{number:,} batches"


def _said(rows: Sequence[BatchRow]) -> str:
    requests = sum(row.requests for row in rows)
    verb = "is" if len(rows) == 1 else "are"
    return f"{_batches(len(rows))} of {console.count(requests, 'request')} {verb} under way at {rows[0].service}"


def _show_detached(judge: Judge, output: OutputOptions) -> None:
    rows = _open(judge)
    if output.as_json:
        batches = [{"id": row.remote, "service": row.service, "requests": row.requests} for row in rows]
        print(to_json({"detached": True, "batches": batches, "db": str(output.db)}))
    else:
        console.out.print(f"{_said(rows)}; the same command picks up")


class _BatchWatch:
    """How far the batches are, on standard error: a live line in a terminal, a line now and then elsewhere."""

    def __init__(self, live: Status | None) -> None:
        self._live, self._last, self._reported = live, "", 0.0

    def progress(self, found: BatchProgress) -> None:
        words = ", ".join(dict.fromkeys(found.words))
        text = f"{_batches(found.batches)}: {found.done:,} of {found.requests:,} computed"
        text += f" ({console.visible(words)})"
        if self._live is not None:
            self._live.update(console.safe(f"{text}; Ctrl-C stops waiting, and nothing else"))
        elif words != self._last or time.monotonic() - self._reported > _LINE_SECONDS:
            self._reported = time.monotonic()
            console.aside(text)
        self._last = words


@contextmanager
def _watching() -> Iterator[_BatchWatch]:
    if not console.err.is_terminal:
        yield _BatchWatch(None)
        return
    with console.err.status("sending …") as live:
        yield _BatchWatch(live)
