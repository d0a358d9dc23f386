"""evenhand results, evenhand reread: look at what is kept, without asking anyone."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from evenhand import console
from evenhand.cli.app import app
from evenhand.cli.options import DEFAULT_DB, DbOption, JsonOption
from evenhand.cli.running import show_run
from evenhand.errors import InputError
from evenhand.protocol import Protocol
from evenhand.report import Summary, usage_facts
from evenhand.store import JudgeRow, Store


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
        found = [stored_summary(store, row) for row in rows]
    if as_json:
        every = [facts for _, facts in found]
        print(console.facts_to_print({**every[-1], "judges": every}))
        return
    for summary, facts in found:
        show_run(summary, facts, f"{facts['judge']} under {facts['protocol']}")


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


def stored_summary(store: Store, row: JudgeRow) -> tuple[Summary, dict[str, Any]]:
    """What a database holds of one judge, counted."""
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
