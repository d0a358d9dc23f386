"""What every command that asks a judge shares: opening it, running it with progress, showing what came out."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Iterable
from dataclasses import fields, replace
from typing import Any

from evenhand.core.engine import Engine, measured_length
from evenhand.core.errors import InputError, ModelError, SpecError
from evenhand.core.fence import FenceKind
from evenhand.core.judge import Judgment
from evenhand.core.pair import Pair
from evenhand.core.protocol import Protocol
from evenhand.core.verdict import OF_OTHERS, found_on
from evenhand.engines import catalog, open_engine
from evenhand.engines.endpoint import EndpointSettings
from evenhand.engines.heads import PREFIX, is_head
from evenhand.engines.llama import Hardware
from evenhand.io.files.reading import parse_slowly
from evenhand.results.answer import answer_of
from evenhand.results.run import JudgeSummary, RunSummary
from evenhand.results.summary import Counter
from evenhand.running.pace import BudgetError
from evenhand.running.runner import Line, Totals
from evenhand.store import Store
from evenhand.views import console
from evenhand.views.api import Judgments, default_protocol
from evenhand.views.cli.headway import Headway
from evenhand.views.cli.services import full_name
from evenhand.views.jury import AnyJudge, JuryJudgments
from evenhand.views.progress import Download, Watch, watching

# What is on the command line is in the shell's history, and a field of the request is kept in the database.
_SECRETS = ("key", "api_key", "apikey", "api-key", "token", "access_token", "authorization", "password", "secret")


def open_judge(spec: str, hardware: Hardware | None = None, endpoint: EndpointSettings | None = None) -> Engine:
    """Open a judge; a model that has to be fetched is announced with its size first."""
    name = model_of(spec)
    if name.startswith("hf:") and catalog.find(name) is None:
        console.err.print(f"{name} is not here yet: fetching it from Hugging Face")
    if name in catalog.CATALOG and catalog.find(name) is None:
        model = catalog.CATALOG[name]
        console.err.print(f"{name} is not here yet: fetching {model.bytes / 1e6:,.0f} MB from {model.source}")
    try:
        with Download() as progress:
            return open_engine(
                spec,
                hardware,
                endpoint=endpoint,
                on_progress=progress,
                on_load=lambda: console.err.print(f"loading {name} …", style="dim"),
                on_notice=console.note,
            )
    except (SpecError, ModelError) as fault:
        if not is_head(spec) and (meant := full_name(spec)):
            raise SpecError(fault.message, hint=f"did you mean --judge {meant}?") from None
        raise


def model_of(spec: str) -> str:
    """The model that a judge runs on: that whose states a head reads, or the judge itself."""
    if not is_head(spec):
        return spec
    from evenhand.engines.heads.head import find_head

    return find_head(spec.removeprefix(PREFIX)).opened_by


def load_protocol(name: str | None, spec: str, fence: FenceKind | None = None) -> Protocol:
    """The protocol that is named, or the default of a judge; read before a model is fetched for it."""
    if is_head(spec):
        if fence:
            raise SpecError("a trained head is not asked anything, so it takes no fence", hint="leave it out")
        if name:
            raise SpecError("a trained head is not asked anything, so it takes no protocol", hint="leave it out")
        from evenhand.engines.heads.engine import head_protocol
        from evenhand.engines.heads.head import find_head

        return head_protocol(find_head(spec.removeprefix(PREFIX)))
    protocol = Protocol.load(name or default_protocol(spec))
    return protocol.fenced(fence) if fence else protocol


def endpoint_settings(settings: list[str] | None, samples: int, concurrency: int | None = None) -> EndpointSettings:
    """Settings of an endpoint out of NAME=VALUE; a name that is none of them is a field of the request."""
    known = {field.name: field.type for field in fields(EndpointSettings)}
    given: dict[str, Any] = {"samples": samples, "extra": {}}
    if concurrency is not None:
        given["concurrency"] = concurrency
    for setting in settings or []:
        name, equals, text = setting.partition("=")
        if not equals or name in ("base_url", "model", "preset", "extra"):
            raise InputError(f"--set {setting}", hint="write NAME=VALUE, such as --set effort=low")
        if name.lower() in _SECRETS:
            raise InputError(
                f"--set {name} is not taken", hint="keys come from the environment: --set key_env=NAME"
            )
        value = _json_or_text(text) if name not in known or known[name] != "str" else text
        (given if name in known else given["extra"])[name] = value
    try:
        return EndpointSettings(**given)
    except TypeError as fault:
        raise InputError(f"--set: {fault}") from None


def _json_or_text(text: str) -> Any:
    try:
        return parse_slowly(text)
    except ValueError:
        return text


def collect_seldom() -> None:
    """Keep the garbage collector out of the way of a run.

    What is loaded by now stays; it need not be looked through again and again while answers come, nor after every
    few pairs those that are under way: hardly anything here refers to itself.
    """
    gc.freeze()
    gc.set_threshold(20_000, 10, 10)


def run_with_progress(
    judge: AnyJudge,
    pairs: Iterable[Pair],
    total: int,
    *,
    lines: bool = False,
    enough: Callable[[Judgment], bool] | None = None,
    line: Line | None = None,
    counter: Counter | None = None,
) -> RunSummary:
    """Judge with progress until there is enough; Ctrl-C stops after what is under way, a second one at once."""
    collect_seldom()
    measured = measured_length(judge.setup.engine.identity)
    counter = counter or Counter(found_on(judge.setup.protocol.dimensions), measured=measured)
    began, stopped = time.monotonic(), ""
    examples = dict[str, str]()
    with (
        watching(total, lines=lines) as watch,
        judge.run(pairs, line=line, words=False, on_wait=watch.print) as judgments,
    ):
        headway = Headway(total, judge.answers_of_pair, judgments.totals)
        watch.follow(headway)
        try:
            _take_all(judgments, counter, watch, headway, examples, enough)
        except BudgetError as error:
            stopped = error.message
            watch.print(f"{error.message}; {counter.pairs:,} of {console.count(total, 'pair')} done")
        except KeyboardInterrupt:
            try:  # the second may come at any moment
                watch.print("stopping after what is under way; press Ctrl-C again to stop at once")
                judgments.stop()
                _take_all(judgments, counter, watch, headway, examples)
            finally:
                done = f"{counter.pairs:,} of {console.count(total, 'pair')}"
                watch.print(f"stopped after {done}; the same command goes on from here")
            raise
    totals = judgments.totals
    cost = judge.cost_of(totals.usage)
    found = summary_of_run(judge, counter, totals, cost, time.monotonic() - began, stopped)
    return replace(found, examples={**found.examples, **examples})


def summary_of_run(
    judge: AnyJudge, counter: Counter, totals: Totals, cost: float | None, seconds: float, stopped: str
) -> RunSummary:
    """What a run came to."""
    return RunSummary(
        *(judge.setup.engine.identity["model"], judge.setup.protocol.name, judge.setup.fingerprint),
        counter.summary(),
        totals.usage,
        seconds,
        asked=totals.asked,
        cost=cost,
        stopped=stopped,
        examples=examples_of(judge, counter.summary().reasons),
    )


def note_examples(judgment: Judgment, examples: dict[str, str]) -> None:
    """Note what was said, or what went wrong, for each reason that is new; of a judge that fails nothing is kept.

    >>> from evenhand.core.judge import Conversation
    >>> from evenhand.core.verdict import Verdict
    >>> failed = Conversation({"overall": Verdict("overall", None, invalid="timeout", raw="took too long")})
    >>> found = {}
    >>> note_examples(Judgment.of(Pair("Hi", "x", "y"), {"forward": failed}), found)
    >>> found
    {'timeout': 'took too long'}
    """
    for outcome in judgment.outcomes.values():
        if outcome.side is None:
            for verdict in outcome.orders.values():
                if verdict.invalid and verdict.raw and verdict.invalid not in OF_OTHERS:
                    examples.setdefault(verdict.invalid, verdict.raw)


def examples_of(judge: AnyJudge, reasons: Iterable[str]) -> dict[str, str]:
    """What this judge said, or what went wrong, for each reason why a verdict is missing."""
    number = judge.store.judge_book.find(judge.setup.fingerprint)
    return {} if number is None else stored_examples(judge.store, number, reasons)


def stored_examples(store: Store, judge: int, reasons: Iterable[str]) -> dict[str, str]:
    """One answer or message for each of these reasons, where one is kept."""
    found = {reason: store.archive.example(judge, reason) for reason in sorted({*reasons} - OF_OTHERS)}
    return {reason: text for reason, text in found.items() if text}


def _take_all(
    judgments: Judgments | JuryJudgments,
    counter: Counter,
    watch: Watch,
    headway: Headway,
    examples: dict[str, str],
    enough: Callable[[Judgment], bool] | None = None,
) -> None:
    for judgment in judgments:
        counter.add(judgment)
        note_examples(judgment, examples)
        headway.judged()
        watch.judged(judgment, judgments.totals.usage, counter.invalid)
        if enough and enough(judgment):
            judgments.stop()  # what is under way is paid for, and comes out
    headway.end()


def show_run(found: JudgeSummary, title: str = "") -> None:
    """The tables and notes of a run, or of what is kept of a judge."""
    summary = found.summary
    console.out.print()
    console.out.print(console.answer_line(answer_of(summary)))
    heading = f"{title or found.title}: {console.count(summary.pairs, 'pair')}"
    console.out.print(console.summary_table(summary, heading))
    if names := console.roles_line(summary) or console.sides_line(summary):
        console.out.print(names, markup=False)
    known = console.agreement_table(summary)
    if known:
        console.out.print(known)
    for note in console.notes(summary):
        console.out.print(note)
    for line in console.example_lines(found.examples):
        console.out.print(line, markup=False, highlight=False)
    for note in found.made:
        console.out.print(console.one_line(note), markup=False, highlight=False)
    if found.attacks is not None:
        console.out.print(console.one_line(f"Attacks: {found.attacks.text}"), markup=False, highlight=False)
    for dimension, noise in (found.noise or {}).items():
        console.out.print(f"{console.one_line(dimension)}: {noise.text}", markup=False)
    show_usage(found)


def show_usage(found: JudgeSummary) -> None:
    """The tokens of a run, and what they cost where it is known."""
    asked = found.asked if isinstance(found, RunSummary) else None
    console.out.print(console.usage_line(found.tokens, found.seconds, asked), style="dim")
    if isinstance(found, RunSummary) and found.cost is not None:
        console.out.print(f"cost: {found.cost:.4f} {found.prices}", style="dim")
