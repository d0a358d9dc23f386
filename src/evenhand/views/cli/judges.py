"""evenhand judges: the judges of a database, and how to remove one."""

from __future__ import annotations

import time
from typing import Annotated

import typer
from rich.table import Table

from evenhand.results.judges import one_judge
from evenhand.results.plain import to_json
from evenhand.store import JudgeEntry
from evenhand.views import console
from evenhand.views.cli.app import app
from evenhand.views.cli.opening import open_store
from evenhand.views.cli.option_groups import argument, option
from evenhand.views.cli.options import DEFAULT_DB, DbOption, JsonOption

judges_app = typer.Typer(help="The judges of a database.", invoke_without_command=True)
app.add_typer(judges_app, name="judges")
_SHORT = 8  # characters of a fingerprint that tell judges apart


@judges_app.callback()
def judges(context: typer.Context, db: DbOption = DEFAULT_DB, as_json: JsonOption = False) -> None:
    """List the judges of a database: their pairs, what is invalid, and when they judged."""
    if context.invoked_subcommand:
        return
    with open_store(db, read_only=True) as store:
        entries = store.judge_book.entries()
    if as_json:
        print(to_json({"judges": [entry.plain() for entry in entries]}))
    elif entries:
        console.out.print(_table(entries))
    else:
        console.out.print("no judges here; evenhand judge PAIRS brings one")


@judges_app.command("remove")
def judges_remove(
    name: Annotated[str, argument("NAME", "A model, or the beginning of a fingerprint: evenhand judges.")],
    protocol: Annotated[str, option("--protocol -p NAME", "The one under this protocol.")] = "",
    db: DbOption = DEFAULT_DB,
    yes: Annotated[bool, option("--yes -y", "Remove without asking.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Remove a judge and its verdicts; pairs and people's labels stay."""
    with open_store(db) as store:
        entry = one_judge(store.judge_book.entries(), name, db, protocol)
        if not yes:
            typer.confirm(f"Remove {_said(entry)}? It cannot be undone.", abort=True, err=True)
        store.judge_book.remove(entry.id)
    if as_json:
        print(to_json({"removed": entry.plain()}))
    else:
        console.out.print(f"removed: {_said(entry)}", markup=False)


def _said(entry: JudgeEntry) -> str:
    return console.one_line(f"{entry.model} under {entry.protocol}, {console.count(entry.pairs, 'pair')}")


def _table(entries: list[JudgeEntry]) -> Table:
    table = console.plain_table("Judges")
    table.optional = ((4,),)
    table.add_column("judge")
    table.add_column("protocol", no_wrap=True)
    table.add_numbers("pairs", "invalid")
    for name in ("since", "last run", "fingerprint"):
        table.add_column(name, no_wrap=True)
    for entry in entries:
        table.add_row(
            *(console.safe(name) for name in (entry.model, entry.protocol)),
            *(f"{entry.pairs:,}", f"{entry.invalid:,}", _day(entry.first), _day(entry.last)),
            entry.fingerprint[:_SHORT],
        )
    return table


def _day(moment: float | None) -> str:
    return time.strftime("%Y-%m-%d", time.localtime(moment)) if moment else "not ended"
