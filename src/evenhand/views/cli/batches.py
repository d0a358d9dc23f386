"""evenhand batches: what is at a service, and how to give it up."""

from __future__ import annotations

import asyncio
import time
from typing import Annotated

import typer
from rich.table import Table

from evenhand.core.errors import InputError, StoreError
from evenhand.engines.batches.opening import open_batches
from evenhand.engines.endpoint import EndpointSettings, open_endpoint
from evenhand.engines.presets import PRESETS, Address
from evenhand.results.plain import to_json
from evenhand.store import BatchRow, JudgeRow, Store
from evenhand.store.batches import UNSETTLED
from evenhand.views import console
from evenhand.views.cli.app import WITH_FAILURES, app
from evenhand.views.cli.opening import open_store
from evenhand.views.cli.option_groups import argument, option
from evenhand.views.cli.options import DEFAULT_DB, DbOption, JsonOption

batches_app = typer.Typer(help="The batches of a database.", invoke_without_command=True)
app.add_typer(batches_app, name="batches")

NameArgument = Annotated[
    str, argument("[ID]", "One batch, by its name at the service. Default: all that are under way.")
]

# Why a batch that has no name at the service cannot be cancelled there, and what can be done.
_NOT_THERE = {
    "planned": "it was not sent: judge --batch sends it, batches forget gives it up",
    "submitting": "it is being sent, or was when a run broke off, and the service may have it: judge --batch finds"
    " out, then it can be cancelled; batches forget gives it up here alone",
}


@batches_app.callback()
def batches(context: typer.Context, db: DbOption = DEFAULT_DB, as_json: JsonOption = False) -> None:
    """List the batches that judge --batch has sent, and what came of them."""
    if context.invoked_subcommand:
        return
    with open_store(db, read_only=True) as store:
        rows, judges = store.batches.rows(), {judge.id: judge for judge in store.judges(counted=False)}
    if as_json:
        print(to_json({"batches": [_plain(row, judges[row.judge]) for row in rows]}))
    elif rows:
        console.out.print(_table(rows, judges))
    else:
        console.out.print("no batches here; evenhand judge PAIRS --batch sends one", soft_wrap=False)


@batches_app.command("cancel")
def batches_cancel(
    name: NameArgument = "",
    db: DbOption = DEFAULT_DB,
    key_env: Annotated[
        str, option("--key-env NAME", "The variable with the key, if not the service's usual one.")
    ] = "",
) -> None:
    """Cancel batches at the service; what is computed by then is paid, and judge --batch takes it in."""
    with open_store(db) as store:
        judges = {judge.id: judge for judge in store.judges(counted=False)}
        chosen = _chosen(store, name)
    for row in chosen:
        if row.state == "open":
            asyncio.run(_cancel(judges[row.judge], row, key_env))
            done = f"cancelled: {row.remote}; judge --batch takes in what was computed"
            console.out.print(console.visible(done), markup=False)
        else:
            console.out.print(f"not cancelled: {row.token}; {_NOT_THERE[row.state]}", style="yellow", markup=False)
    if any(row.state != "open" for row in chosen):
        raise typer.Exit(WITH_FAILURES)


@batches_app.command("forget")
def batches_forget(
    name: NameArgument = "",
    db: DbOption = DEFAULT_DB,
    yes: Annotated[bool, option("--yes -y", "Forget without asking.")] = False,
) -> None:
    """Give up batches that cannot be reached any more; their questions are asked, and paid, again."""
    with open_store(db) as store:
        for row in _chosen(store, name):
            if not yes:
                asked = f"Forget {row.remote or 'a batch'} with {row.requests:,} requests?"
                typer.confirm(console.visible(asked), abort=True, err=True)
            store.batches.close(row.id, "forgotten")
            console.out.print(console.visible(f"forgotten: {row.remote or row.token}"), markup=False)


def _chosen(store: Store, name: str) -> list[BatchRow]:
    rows = store.batches.rows(states=UNSETTLED)
    found = [row for row in rows if not name or name in (row.remote, row.token)]
    if not found:
        known = ", ".join(row.remote or row.token for row in rows) or "none"
        raise InputError(
            f"no batch {name} is under way" if name else "no batch is under way", hint=f"there: {known}"
        )
    return found


async def _cancel(judge: JudgeRow, row: BatchRow, key_env: str) -> None:
    identity = judge.identity
    if row.service not in PRESETS or "base_url" not in identity:
        raise StoreError(
            f"{row.remote or row.token} is a batch of no service that evenhand knows",
            hint=f"evenhand batches forget {row.remote or row.token} gives it up",
        )
    address = Address(PRESETS[row.service], identity["base_url"], identity["model"])
    service = open_batches(open_endpoint(address, EndpointSettings(key_env=key_env)))
    try:
        await service.cancel(row.remote)
    finally:
        await service.close()


def _plain(row: BatchRow, judge: JudgeRow) -> dict[str, object]:
    names = ("service", "state", "requests", "answered", "failed", "created", "submitted", "ended")
    found = {"id": row.remote, "judge": judge.model, "protocol": judge.protocol}
    return {**found, **{name: getattr(row, name) for name in names}}


def _table(rows: list[BatchRow], judges: dict[int, JudgeRow]) -> Table:
    table = console.plain_table("Batches")
    for name in ("sent", "judge", "batch", "state"):
        table.add_column(name, no_wrap=name == "sent")
    table.add_numbers("requests", "answered", "failed")
    for row in rows:
        judge = judges[row.judge]
        table.add_row(
            time.strftime("%Y-%m-%d %H:%M", time.localtime(row.submitted)) if row.submitted else "not yet",
            *(console.safe(text) for text in (f"{judge.model} under {judge.protocol}", row.remote, row.state)),
            *(f"{number:,}" for number in (row.requests, row.answered, row.failed)),
        )
    return table
