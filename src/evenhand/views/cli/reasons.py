"""evenhand reasons: why the judges said what they said."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from evenhand.core.pair import COMBINED
from evenhand.results.plain import to_json
from evenhand.results.reasons import (
    LEAST,
    TOP,
    FoundReason,
    ReasonPhrase,
    ReasonSummary,
    search_reasons,
    summarise_reasons,
)
from evenhand.store import JudgeRow, Records
from evenhand.views import console
from evenhand.views.cli.app import app
from evenhand.views.cli.opening import open_records
from evenhand.views.cli.option_groups import flat_options, option
from evenhand.views.cli.options import DEFAULT_DB, JsonOption, JudgeFilter, RecordsOption
from evenhand.views.tables import FittedTable

_SHOWN_MODELS = 3


@dataclass(frozen=True)
class ReasonOptions:
    """Which reasons are meant, and how many phrases are shown."""

    search: Annotated[str, option("--search -s TEXT", "List the reasons that say this, with their pairs.")] = ""
    dimension: Annotated[
        str, option("--dimension -d NAME", "Default: overall, else the last that was asked; all, with --search.")
    ] = ""
    loser: Annotated[str, option("--loser MODEL|1|2", "Only reasons against this model or side.")] = ""
    top: Annotated[int, option("--top", "How many phrases or reasons to show.", min=1)] = TOP
    least: Annotated[int, option("--least", "Leave out what fewer pairs say.", min=1)] = LEAST


@dataclass(frozen=True, slots=True)
class JudgeReasons:
    """The reasons of one judge. The fields, and their names, are those of `--json`."""

    judge: str
    protocol: str
    fingerprint: str
    reasons: ReasonSummary | tuple[FoundReason, ...]


@app.command()
@flat_options
def reasons(
    judges: JudgeFilter,
    options: ReasonOptions,
    db: RecordsOption = DEFAULT_DB,
    as_json: JsonOption = False,
) -> None:
    """Say what the losing side is blamed for, phrase by phrase with its pairs; or search the judges' reasons."""
    with open_records(db) as store:
        rows = judges.find(store.judges(counted=False), db, hint="evenhand results shows what it holds")
        found = [found for row in rows if (found := _reasons(store, row, options)) is not None]
    if as_json:
        print(to_json({"search": options.search, "judges": found} if options.search else {"judges": found}))
    elif not found:
        console.out.print(_nothing(options), markup=False)
    for each in found if not as_json else ():
        _show(each, options.top)
    if found and not as_json and not options.search:
        console.below("the pairs of a phrase:", f"evenhand reasons --search PHRASE --db {db}")


def _reasons(store: Records, row: JudgeRow, options: ReasonOptions) -> JudgeReasons | None:
    """What there is of one judge; None where it gave no such reason."""
    if options.dimension and options.dimension not in row.dimensions:
        return None
    about = (row.model, row.protocol, row.fingerprint)
    if options.search:
        hits = tuple(search_reasons(store, row, options.search, options.dimension, loser=options.loser))
        return JudgeReasons(*about, hits) if hits else None
    found = summarise_reasons(
        store, row, options.dimension, loser=options.loser, top=options.top, least=options.least
    )
    return JudgeReasons(*about, found) if found.reasons else None


def _nothing(options: ReasonOptions) -> str:
    """What was looked for, where nothing was found."""
    if not (options.search or options.dimension or options.loser):
        return "no judge gave a reason here; --protocol explained asks for one"
    said = f"no reason says {console.visible(options.search)!r}" if options.search else "no judge gave a reason"
    on = f" on {console.visible(options.dimension)!r}" if options.dimension else ""
    against = f" against {console.visible(options.loser)!r}" if options.loser else ""
    why = ": it is made of the others, and no judge is asked for it" if options.dimension == COMBINED else ""
    return f"{said}{against}{on}{why}"


def _show(found: JudgeReasons, top: int) -> None:
    title = f"{found.judge} under {found.protocol}"
    if isinstance(found.reasons, ReasonSummary):
        _show_summary(found.reasons, title)
    else:
        _show_found(found.reasons, title, top)


def _show_summary(summary: ReasonSummary, title: str) -> None:
    counted = f"{console.count(summary.reasons, 'reason')} on {console.count(summary.pairs, 'pair')}"
    console.out.print(console.safe(f"{title}, {summary.dimension}: {counted}", "bold"))
    for heading, phrases in (
        ("what the losing side is blamed for", summary.blamed),
        ("what the winning side is praised for", summary.praised),
    ):
        if phrases:
            console.out.print(phrase_table(heading, phrases))
    if not summary.blamed and not summary.praised:
        console.out.print("no phrase is in the reasons of several pairs")


def phrase_table(heading: str, phrases: tuple[ReasonPhrase, ...]) -> FittedTable:
    """Phrases with how many pairs say them, of whom, and one that does."""
    table = console.plain_table(None, heading, numbers=("pairs", "said of the other"))
    table.add_column("of whom")
    table.add_column("for example")
    table.optional = ((3,), (2,))
    for each in phrases:
        table.add_row(
            console.safe(each.phrase),
            f"{each.pairs:,}",
            f"{each.of_the_other:,}",
            console.safe(_models(each)),
            console.safe(f"{each.examples[0].id}: {each.examples[0].quote}"),
        )
    return table


def _models(phrase: ReasonPhrase) -> str:
    named = [f"{model} {count:,}" for model, count in phrase.models.items()]
    more = f", {len(named) - _SHOWN_MODELS} more" if len(named) > _SHOWN_MODELS else ""
    return ", ".join(named[:_SHOWN_MODELS]) + more


def _show_found(found: tuple[FoundReason, ...], title: str, top: int) -> None:
    pairs = len({each.key for each in found})
    said = f"{title}: {console.count(len(found), 'reason')} on {console.count(pairs, 'pair')}"
    console.out.print(console.safe(said, "bold"))
    for each in found[:top]:
        shown = "1 shown first" if each.order == "forward" else "2 shown first"
        console.out.print(f"\n{console.one_line(each.id)}: {each.side} ({shown})", markup=False)
        console.out.print(f"  {console.visible(each.text)}", style="dim", markup=False)
    if len(found) > top:
        console.out.print(
            f"\nand {len(found) - top:,} more: --top {len(found)}, or --json", style="dim", soft_wrap=False
        )
