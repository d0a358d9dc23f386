"""The command line: thin commands over the library.

Exit codes: 0 done; 1 the machine or the judge failed; 2 wrong use or wrong input; 3 done, but with failures;
130 stopped by Ctrl-C.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import fields
from itertools import islice
from pathlib import Path
from typing import Annotated, Any, NoReturn

import typer

from evenhand import __version__, console
from evenhand.api import DEFAULT_PROTOCOL, Judge, Judgments
from evenhand.engines import catalog, open_engine
from evenhand.engines.base import Engine, Usage
from evenhand.engines.endpoint import EndpointSettings
from evenhand.engines.llama import Hardware
from evenhand.errors import EvenhandError, InputError
from evenhand.judge import ORDER_CHOICES, Orders, Setup
from evenhand.markup import render
from evenhand.pace import BudgetError, Limits
from evenhand.pairs import Pair, check_pairs, read_pairs, sample_pairs
from evenhand.prices import Price, find_price
from evenhand.protocol import Protocol, built_in_names
from evenhand.report import Summary, judgment_facts, usage_facts
from evenhand.runner import plan
from evenhand.store import JudgeRow, Store

DONE, FAILED, WRONG, WITH_FAILURES = 0, 1, 2, 3
DEFAULT_DB = Path("evenhand.db")
DEMO_DB = Path("evenhand-demo.db")

app = typer.Typer(
    no_args_is_help=True, add_completion=False, rich_markup_mode="rich", pretty_exceptions_enable=False
)
protocols_app = typer.Typer(help="The protocols: what a judge is asked.", invoke_without_command=True)
models_app = typer.Typer(help="The models that can judge on this machine.", invoke_without_command=True)
app.add_typer(protocols_app, name="protocols")
app.add_typer(models_app, name="models")

JudgeOption = Annotated[
    str,
    typer.Option(
        "--judge",
        "-j",
        metavar="SPEC",
        help="A model of the catalog (see [bold]evenhand models[/]), a path to a GGUF file, "
        "hf:owner/repo/file.gguf, an endpoint such as openai:MODEL or vllm:MODEL, or http://host/v1#MODEL.",
    ),
]
ProtocolOption = Annotated[
    str, typer.Option("--protocol", "-p", metavar="NAME|FILE", help="A built-in protocol or a template file.")
]
OrdersOption = Annotated[
    str, typer.Option("--orders", metavar="|".join(ORDER_CHOICES), help="In which orders each pair is heard.")
]
DbOption = Annotated[Path, typer.Option("--db", metavar="FILE", help="Where verdicts are kept.")]
JsonOption = Annotated[bool, typer.Option("--json", help="Print the facts as JSON on standard output.")]
SetOption = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="NAME=VALUE",
        help="A setting of a judge behind an endpoint: key_env, mode, effort, max_tokens, temperature, timeout, "
        "or any other field of the request. May be given several times.",
    ),
]
SamplesOption = Annotated[
    int, typer.Option("--samples", min=1, help="Answers to share out where an endpoint tells no probabilities.")
]
SeedOption = Annotated[int, typer.Option("--seed", help="Decides the order of each pair with --orders random.")]
RawOption = Annotated[
    bool,
    typer.Option("--raw-markup", help="Send the template's own markup instead of the model's chat template."),
]
ContextOption = Annotated[
    int | None,
    typer.Option("--context", min=256, metavar="TOKENS", help="The model's context. Default: up to 16384."),
]
ThreadsOption = Annotated[int | None, typer.Option("--threads", min=1, help="Default: the machine's cores.")]
GpuOption = Annotated[
    int | None, typer.Option("--gpu-layers", min=0, help="Layers on the GPU. Default: llama.cpp decides.")
]


def _print_version(wanted: bool) -> None:
    if wanted:
        print(f"evenhand {__version__}")
        raise typer.Exit


@app.callback()
def root(
    version: Annotated[
        bool, typer.Option("--version", help="Print the version.", callback=_print_version, is_eager=True)
    ] = False,
) -> None:
    """A pairwise judge for language-model outputs: which of two responses is better, A, B or tie?"""


@app.command()
def judge(
    pairs: Annotated[
        str,
        typer.Argument(
            metavar="PAIRS",
            help="A .jsonl, .json or .csv file with the fields instruction, output_1, output_2; "
            "'-' reads JSONL from standard input.",
        ),
    ],
    spec: JudgeOption = catalog.DEFAULT_MODEL,
    protocol: ProtocolOption = DEFAULT_PROTOCOL,
    orders: OrdersOption = "both",
    db: DbOption = DEFAULT_DB,
    seed: SeedOption = 0,
    limit: Annotated[int | None, typer.Option("--limit", min=1, help="Judge only the first so many pairs.")] = None,
    skip_bad: Annotated[bool, typer.Option("--skip-bad", help="Pass over broken rows and say how many.")] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Say what the run would take, and ask nobody.")
    ] = False,
    raw_markup: RawOption = False,
    settings: SetOption = None,
    samples: SamplesOption = 1,
    concurrency: Annotated[
        int | None, typer.Option("--concurrency", min=1, help="At most so many at once.")
    ] = None,
    requests_per_minute: Annotated[
        float | None, typer.Option("--requests-per-minute", min=0.01, help="Ask no faster than that.")
    ] = None,
    tokens_per_minute: Annotated[
        float | None, typer.Option("--tokens-per-minute", min=1, help="Use no more than that.")
    ] = None,
    max_requests: Annotated[int | None, typer.Option("--max-requests", min=1, help="Stop before more.")] = None,
    max_cost: Annotated[float | None, typer.Option("--max-cost", min=0, help="Stop before it costs more.")] = None,
    prices: Annotated[
        Path | None, typer.Option("--prices", metavar="FILE", help="Your own table of prices, as JSON.")
    ] = None,
    context: ContextOption = None,
    threads: ThreadsOption = None,
    gpu_layers: GpuOption = None,
    as_json: JsonOption = False,
) -> None:
    """Judge every pair of a file; a run that was stopped goes on where it stopped."""
    count, bad = check_pairs(pairs, skip_bad=skip_bad)
    for fault in bad[:5]:
        console.err.print(f"skipped: {fault.message}", style="yellow", soft_wrap=True, markup=False)
    template, chosen = Protocol.load(protocol), _orders(orders)
    price = find_price(spec, prices)
    limits = Limits(concurrency, requests_per_minute, tokens_per_minute, max_requests, max_cost)
    engine = _engine(spec, Hardware(context, threads, gpu_layers), _endpoint(settings, samples, concurrency))
    rows = islice(read_pairs(pairs, skip_bad=skip_bad), limit)
    if dry_run:
        _show_plan(Setup(engine, template, raw_markup), rows, db, chosen, seed, price, as_json)
        return
    with Judge(
        engine, template, db=db, orders=chosen, seed=seed, raw_markup=raw_markup, limits=limits, price=price
    ) as judge:
        summary, facts = _run(judge, rows, min(count, limit or count))
    facts |= {"db": str(db), "skipped": len(bad)}
    if as_json:
        print(console.facts_to_print(facts))
    else:
        _show_run(summary, facts, f"{facts['judge']} under {template.name}")
        if bad:
            console.out.print(f"{len(bad)} broken rows were skipped.", style="yellow")
        console.out.print(f"[dim]kept in {db}; see it again:[/] evenhand results --db {db}", soft_wrap=True)
    raise typer.Exit(WITH_FAILURES if summary.invalid or bad or facts["stopped"] else DONE)


@app.command()
def compare(
    instruction: Annotated[str, typer.Option("--instruction", "-i", help="What was asked.")],
    a: Annotated[str, typer.Option("--a", help="Response 1.")],
    b: Annotated[str, typer.Option("--b", help="Response 2.")],
    spec: JudgeOption = catalog.DEFAULT_MODEL,
    protocol: ProtocolOption = DEFAULT_PROTOCOL,
    orders: OrdersOption = "both",
    db: Annotated[Path | None, typer.Option("--db", metavar="FILE", help="Keep the verdict there.")] = None,
    raw_markup: RawOption = False,
    settings: SetOption = None,
    samples: SamplesOption = 1,
    context: ContextOption = None,
    threads: ThreadsOption = None,
    gpu_layers: GpuOption = None,
    as_json: JsonOption = False,
) -> None:
    """Judge one pair on the spot."""
    template, chosen = Protocol.load(protocol), _orders(orders)  # before a model is fetched
    engine = _engine(spec, Hardware(context, threads, gpu_layers), _endpoint(settings, samples))
    with Judge(engine, template, db=db, orders=chosen, raw_markup=raw_markup) as judge:
        judgment = judge.compare(instruction, a, b)
    if as_json:
        print(console.facts_to_print(judgment_facts(judgment)))
    else:
        console.out.print(console.comparison(judgment))
        for note in sorted(judgment.notes):
            console.out.print(f"note: {note.replace('_', ' ')}", style="yellow")
        console.out.print(
            console.usage_line(judgment.usage, judgment.seconds, judgment.asked), style="dim", soft_wrap=True
        )
    bad = any(finding.side is None for finding in judgment.findings.values())
    raise typer.Exit(WITH_FAILURES if bad else DONE)


@app.command()
def results(
    db: DbOption = DEFAULT_DB,
    spec: Annotated[str, typer.Option("--judge", "-j", metavar="MODEL", help="Only judges of this model.")] = "",
    protocol: Annotated[
        str, typer.Option("--protocol", "-p", metavar="NAME", help="Only under this protocol.")
    ] = "",
    as_json: JsonOption = False,
) -> None:
    """Print the table of a database again."""
    if not db.is_file():
        raise InputError(f"no database at {db}", hint="evenhand judge PAIRS writes one")
    with Store(db) as store:
        rows = [row for row in store.judges() if spec in ("", row.model) and protocol in ("", row.protocol)]
        if not rows:
            raise InputError(f"{db} holds no verdicts of that kind")
        found = [_stored(store, row) for row in rows]
    if as_json:
        every = [facts for _, facts in found]
        print(console.facts_to_print({**every[-1], "judges": every}))
        return
    for summary, facts in found:
        _show_run(summary, facts, f"{facts['judge']} under {facts['protocol']}")


@app.command()
def reread(db: DbOption = DEFAULT_DB, as_json: JsonOption = False) -> None:
    """Read every kept answer again with the present reader, without asking anyone."""
    if not db.is_file():
        raise InputError(f"no database at {db}", hint="evenhand judge PAIRS writes one")
    read = changed = 0
    with Store(db) as store:
        for row in store.judges():
            protocol = Protocol.parse(row.template, name=row.protocol)
            seen, other = store.reread(row, [ask.dimensions for ask in protocol.asks])
            read, changed = read + seen, changed + other
    if as_json:
        print(console.facts_to_print({"verdicts": read, "changed": changed}))
    else:
        console.out.print(f"{read:,} verdicts read again, {changed:,} of them came out otherwise")


@app.command()
def demo(
    db: Annotated[Path, typer.Option("--db", metavar="FILE", help="Where verdicts are kept.")] = DEMO_DB,
) -> None:
    """Judge the pairs that come with evenhand, and see how often the judge is right."""
    pairs = list(sample_pairs())
    console.out.print(
        f"[bold]evenhand demo[/]: {len(pairs)} pairs with known answers, judged on this machine by"
        f" {catalog.DEFAULT_MODEL} under the protocol [bold]chained[/], each in both orders.\n"
        "1 and 2 are the sides of a pair; ✓ and ✗ tell whether the known answer is the same.\n",
        soft_wrap=True,
    )
    with Judge(_engine(catalog.DEFAULT_MODEL), "chained", db=db) as judge:
        summary, facts = _run(judge, pairs, len(pairs), lines=True)
    _show_run(summary, facts, f"{facts['judge']} under chained")
    console.out.print(_SMALL, soft_wrap=True)
    console.out.print(console.panel(_NEXT, "what to try next"))
    raise typer.Exit(WITH_FAILURES if summary.invalid else DONE)


_SMALL = """
This is a small judge: it leans to whatever stands first (place lift), so its orders disagree, and it cannot tell
ties from other pairs. What is left after both orders are heard is the column "right side"; see docs/quality.md."""
_NEXT = """\
evenhand compare --instruction "Name a prime number." --a "7" --b "8"
evenhand judge PAIRS.jsonl            your own pairs: instruction, output_1, output_2
evenhand protocols show chained       what the judge was asked, word for word
evenhand models                       other judges
(a clone has its evenhand in .venv/bin)"""


@protocols_app.callback()
def protocols(context: typer.Context, as_json: JsonOption = False) -> None:
    """List the built-in protocols."""
    if context.invoked_subcommand:
        return
    every = [Protocol.load(name) for name in built_in_names()]
    if as_json:
        print(console.facts_to_print({"protocols": [_protocol_facts(protocol) for protocol in every]}))
    else:
        console.out.print(console.protocols_table(every))


@protocols_app.command("show")
def protocols_show(
    name: Annotated[str, typer.Argument(metavar="NAME|FILE")],
    raw: Annotated[bool, typer.Option("--template", help="Print the template itself, its slots open.")] = False,
) -> None:
    """Print a protocol as the judge sees it, with a sample pair; what comes from the pair is marked."""
    protocol = Protocol.load(name)
    if raw:
        sys.stdout.write(protocol.text)
        return
    last = len(protocol.asks) - 1
    pair = next(iter(sample_pairs()))
    said = [
        "A" if len(ask.dimensions) == 1 else ", ".join("A" for _ in ask.dimensions) for ask in protocol.asks[:-1]
    ]
    prompt = protocol.prompt(pair, "forward", last, said)
    console.out.print(console.conversation(render(prompt.turns, protocol.dialect)), soft_wrap=True)
    if last:
        console.out.print("\n[dim]The earlier answers, here A, are the judge's own in a real hearing.[/]")


@protocols_app.command("check")
def protocols_check(file: Annotated[str, typer.Argument(metavar="FILE")], as_json: JsonOption = False) -> None:
    """Say what is in a template file, or what is wrong with it."""
    protocol = Protocol.load(file)
    facts = _protocol_facts(protocol)
    if as_json:
        print(console.facts_to_print(facts))
        return
    console.out.print(
        f"[green]ok[/]  {file}: {protocol.dialect.name}, {len(protocol.turns)} turns,"
        f" {len(protocol.asks)} {'ask' if len(protocol.asks) == 1 else 'asks'}",
        soft_wrap=True,
    )
    for number, ask in enumerate(protocol.asks, 1):
        console.out.print(f"    ask {number}: {', '.join(ask.dimensions)}")


@models_app.callback()
def models(context: typer.Context, as_json: JsonOption = False) -> None:
    """List the catalog of models."""
    if context.invoked_subcommand:
        return
    rows = catalog.statuses()
    if as_json:
        print(console.facts_to_print({"models": [_model_facts(row) for row in rows]}))
    else:
        console.out.print(console.models_table(rows))
        console.out.print(f"[dim]kept in {catalog.cache_folder()}; EVENHAND_CACHE moves them[/]", soft_wrap=True)


@models_app.command("pull")
def models_pull(
    name: Annotated[str, typer.Argument(metavar="NAME")],
    force: Annotated[bool, typer.Option("--force", help="Fetch it again even if it is there.")] = False,
) -> None:
    """Fetch a model into the cache folder; a fetch that was stopped goes on where it stopped."""
    with _download() as progress:
        model = catalog.pull(name, force=force, on_progress=progress)
    console.out.print(f"{model.name} is at {model.path}", soft_wrap=True)


@models_app.command("remove")
def models_remove(name: Annotated[str, typer.Argument(metavar="NAME")]) -> None:
    """Delete a model from the cache folder."""
    there = catalog.remove(name)
    console.out.print(f"{name} is deleted" if there else f"{name} was not there")


# -- what the commands share ---------------------------------------------------------------------------


def _orders(word: str) -> Orders:
    for choice in ORDER_CHOICES:
        if word == choice:
            return choice
    raise InputError(f"--orders {word}", hint=f"one of {', '.join(ORDER_CHOICES)}")


def _engine(spec: str, hardware: Hardware | None = None, endpoint: EndpointSettings | None = None) -> Engine:
    """Open a judge; a model that has to be fetched is announced with its size first."""
    if spec.startswith("hf:") and catalog.find(spec) is None:
        console.err.print(f"{spec} is not here yet: fetching it from Hugging Face", soft_wrap=True)
    if spec in catalog.CATALOG and catalog.find(spec) is None:
        model = catalog.CATALOG[spec]
        console.err.print(
            f"{spec} is not here yet: fetching {model.size / 1e6:,.0f} MB from {model.source}", soft_wrap=True
        )
    with _download() as progress:
        return open_engine(
            spec,
            hardware,
            endpoint=endpoint,
            on_progress=progress,
            on_load=lambda: console.err.print(f"loading {spec} …", style="dim"),
            on_notice=lambda text: console.err.print(f"note: {text}", style="yellow", markup=False, soft_wrap=True),
        )


def _endpoint(settings: list[str] | None, samples: int, concurrency: int | None = None) -> EndpointSettings:
    """Settings of an endpoint out of NAME=VALUE; a name that is none of them is a field of the request."""
    known = {field.name: field.type for field in fields(EndpointSettings)}
    given: dict[str, Any] = {"samples": samples, "extra": {}}
    if concurrency is not None:
        given["concurrency"] = concurrency
    for setting in settings or []:
        name, equals, text = setting.partition("=")
        if not equals or name in ("base_url", "model", "preset", "extra"):
            raise InputError(f"--set {setting}", hint="write NAME=VALUE, such as --set effort=low")
        value = _json_or_text(text) if name not in known or known[name] != "str" else text
        (given if name in known else given["extra"])[name] = value
    try:
        return EndpointSettings(**given)
    except TypeError as fault:
        raise InputError(f"--set: {fault}") from None


def _json_or_text(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return text


@contextmanager
def _download() -> Iterator[console.Download]:
    progress = console.Download()
    try:
        yield progress
    finally:
        progress.stop()


def _run(judge: Judge, pairs: Iterable[Pair], total: int, *, lines: bool = False) -> tuple[Summary, dict[str, Any]]:
    """Judge with progress; Ctrl-C stops after what is under way, a second one at once."""
    summary = Summary(judge.setup.protocol.dimensions)
    began, stopped = time.monotonic(), ""
    with console.watching(total, lines=lines) as watch, judge.run(pairs) as judgments:
        try:
            _take_all(judgments, summary, watch)
        except BudgetError as error:
            stopped = error.message
            watch.say(f"{error.message}; {summary.pairs} of {total} pairs are done")
        except KeyboardInterrupt:
            watch.say("stopping after what is under way; press Ctrl-C again to stop at once")
            judgments.stop()
            try:
                _take_all(judgments, summary, watch)
            finally:
                watch.say(f"stopped after {summary.pairs} of {total} pairs; the same command goes on from here")
            raise
    totals = judgments.totals
    facts = {
        "judge": judge.setup.engine.identity["model"],
        "protocol": judge.setup.protocol.name,
        "fingerprint": judge.setup.fingerprint,
        **summary.facts(),
        "asked": totals.asked,
        "tokens": usage_facts(totals.usage),
        "cost": judge.price.of(totals.usage) if judge.price else None,
        "stopped": stopped,
        "seconds": round(time.monotonic() - began, 3),
    }
    return summary, facts


def _show_plan(
    setup: Setup, pairs: Iterable[Pair], db: Path, orders: Orders, seed: int, price: Price | None, as_json: bool
) -> None:
    """What a run would take."""
    with Store(db if db.exists() else ":memory:") as store:
        found = plan(setup, pairs, store, orders=orders, seed=seed)
    usage = found.usage
    cost = price.of(usage) if price else None
    if as_json:
        facts = {"pairs": found.pairs, "requests": found.requests, "kept": found.kept, "tokens": usage_facts(usage)}
        print(console.facts_to_print({**facts, "cost": cost, "currency": price.currency if price else None}))
        return
    console.out.print(
        f"{found.pairs:,} pairs: {found.requests:,} requests to make, {found.kept:,} answers kept already.\n"
        f"About {usage.computed:,} tokens to read and {usage.generated:,} to write, by the lengths of the texts.\n"
        + (
            f"About {cost:.2f} {price.currency} at the prices of {price.date}, with nothing cached."
            if price
            else "No price is known for this judge; --prices gives one."
        ),
        soft_wrap=True,
    )


def _take_all(judgments: Judgments, summary: Summary, watch: console.Watch) -> None:
    for judgment in judgments:
        summary.add(judgment)
        watch.judged(judgment, judgments.totals.usage, summary.invalid)


def _stored(store: Store, row: JudgeRow) -> tuple[Summary, dict[str, Any]]:
    summary = Summary(row.dimensions)
    for judgment in store.judgments(row):
        summary.add(judgment)
    usage, seconds = store.usage(row)
    return summary, {
        "judge": row.model,
        "protocol": row.protocol,
        "fingerprint": row.fingerprint,
        **summary.facts(),
        "tokens": usage_facts(usage),
        "seconds": round(seconds, 3),
    }


def _show_run(summary: Summary, facts: dict[str, Any], title: str) -> None:
    console.out.print()
    console.out.print(console.summary_table(summary, f"{title}: {summary.pairs} pairs"))
    known = console.agreement_table(summary)
    if known:
        console.out.print(known)
    for note in console.notes(summary):
        console.out.print(note, soft_wrap=True)
    usage = Usage(**facts["tokens"])
    console.out.print(console.usage_line(usage, facts["seconds"], facts.get("asked")), style="dim", soft_wrap=True)
    if facts.get("cost") is not None:
        console.out.print(f"cost: {facts['cost']:.4f} at the table's prices", style="dim")


def _protocol_facts(protocol: Protocol) -> dict[str, Any]:
    return {
        "name": protocol.name,
        "description": protocol.description,
        "dialect": protocol.dialect.name,
        "turns": len(protocol.turns),
        "asks": [list(ask.dimensions) for ask in protocol.asks],
        "fingerprint": protocol.fingerprint,
    }


def _model_facts(status: catalog.Status) -> dict[str, Any]:
    model = status.model
    return {
        "name": model.name,
        "size": model.size,
        "licence": model.licence,
        "source": model.source,
        "sha256": model.sha256,
        "on_disk": status.on_disk,
        "path": str(status.path) if status.on_disk else None,
        "default": status.is_default,
    }


def main() -> NoReturn:
    """Run a command; what went wrong is said in a sentence, with the remedy where one is known."""
    try:
        try:
            app()
        finally:
            sys.stdout.flush()  # here, where a full disk can still be said
    except EvenhandError as error:
        console.fail(error.message, error.hint)
        sys.exit(WRONG if isinstance(error, InputError) else FAILED)
    except OSError as fault:
        # What is left in the buffer cannot be written; Python would try again at its end, and complain.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        if not isinstance(fault, BrokenPipeError):
            console.fail(f"{fault.filename or 'output'}: {fault.strerror}", "what was answered is kept")
        sys.exit(FAILED)
    sys.exit(DONE)
