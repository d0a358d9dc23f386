"""evenhand import: verdicts that were made elsewhere."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.markup import escape

from evenhand.io.pairs.verdicts import ReadOptions
from evenhand.results.plain import to_json
from evenhand.running.importing import VerdictImport, import_verdicts
from evenhand.store import Store
from evenhand.views import console
from evenhand.views.cli.app import WITH_FAILURES, app
from evenhand.views.cli.inputs import ColumnsOption, SkipBadOption, columns_from
from evenhand.views.cli.option_groups import argument, option
from evenhand.views.cli.options import DEFAULT_DB, DbOption, JsonOption

import_app = typer.Typer(help="Verdicts that were made elsewhere.", no_args_is_help=True)
app.add_typer(import_app, name="import")


@import_app.callback()
def import_() -> None:
    """Take the verdicts of another tool or judge into the database."""


@import_app.command("verdicts")
def verdicts(
    files: Annotated[
        list[str],
        argument(
            "FILE",
            "Annotations of AlpacaEval, judgments of Arena-Hard or FastChat, outputs of JudgeBench, or rows of"
            " your own with id, texts or models, and a verdict.",
        ),
    ],
    db: DbOption = DEFAULT_DB,
    judge: Annotated[str, option("--name NAME", "What the judge is called where the file does not say.")] = "",
    baseline: Annotated[str, option("--baseline MODEL", "The model that the others were compared with.")] = "",
    pairs: Annotated[
        list[Path] | None, option("--pairs FILE", "Pairs with the texts of those that the verdicts name by id.")
    ] = None,
    columns: ColumnsOption = None,
    skip_bad: SkipBadOption = False,
    as_json: JsonOption = False,
) -> None:
    """Keep the verdicts of another judge: results, rank, card, gate and report then work on them.

    Files that are given together are the verdicts of one judge, or of each judge that their rows name. The same
    files a second time change nothing. Exit code 3: some rows were passed over.
    """
    options = ReadOptions(judge, baseline, columns_from(columns), skip_bad)
    with Store(db) as store:
        done = import_verdicts(store, files, options, pairs=pairs or None)
    if as_json:
        print(to_json(done))
    else:
        _show(done)
    if done.bad:
        raise typer.Exit(WITH_FAILURES)


def _show(done: VerdictImport) -> None:
    for judge in done.judges:
        both = "both orders" if len(judge.orders) > 1 else "one order"
        name = f"{judge.author.judge} · {judge.author.protocol}"
        was = f"{judge.new:,} new verdicts" if judge.new else "nothing new"
        more = f", {console.count(judge.invalid, 'pair')} without a verdict" if judge.invalid else ""
        pairs = f"{console.count(judge.pairs, 'pair')} on {judge.author.dimension}"
        console.out.print(f"{name}: {pairs}, {both}, {was}{more}")
    for count, what in (
        (done.without_texts, "without texts: stand-ins take their place, and nothing can be said of length"),
        (done.repeated, "repeated: the same judge on the same texts; the first verdict counts"),
    ):
        if count:
            console.out.print(f"  {console.count(count, 'row')} {what}")
    for error in done.bad:
        console.out.print(f"  [yellow]passed over[/] {escape(console.visible(str(error)))}", markup=True)
