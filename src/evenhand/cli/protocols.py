"""evenhand protocols: what a judge is asked."""

from __future__ import annotations

import sys
from typing import Annotated, Any

import typer

from evenhand import console
from evenhand.cli.app import app
from evenhand.cli.options import JsonOption
from evenhand.markup import render
from evenhand.pairs import sample_pairs
from evenhand.protocol import Protocol, built_in_names
from evenhand.verdict import Verdict

protocols_app = typer.Typer(help="The protocols: what a judge is asked.", invoke_without_command=True)
app.add_typer(protocols_app, name="protocols")


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
    name: Annotated[str, typer.Argument(metavar="NAME|FILE", help="A built-in protocol or a template file.")],
    raw: Annotated[bool, typer.Option("--template", help="Print the template itself, its slots open.")] = False,
) -> None:
    """Print a protocol as the judge sees it, with a sample pair; what comes from the pair is marked."""
    protocol = Protocol.load(name)
    if raw:
        sys.stdout.write(protocol.text)
        return
    pair = next(iter(sample_pairs()))
    said = [", ".join(Verdict(dimension, "A").word for dimension in ask.dimensions) for ask in protocol.asks[:-1]]
    lasts = protocol.last_asks()
    for number, last in enumerate(lasts, 1):
        if len(lasts) > 1:
            console.out.print(f"[dim]conversation {number} of {len(lasts)}[/]")
        prompt = protocol.prompt(pair, "forward", last, said)
        console.out.print(console.conversation(render(prompt.turns, protocol.dialect)), soft_wrap=True)
    if said:
        console.out.print("\n[dim]The earlier answers, here all for A, are the judge's own in a real hearing.[/]")


@protocols_app.command("check")
def protocols_check(
    file: Annotated[str, typer.Argument(metavar="FILE", help="A template file.")], as_json: JsonOption = False
) -> None:
    """Say what is in a template file, or what is wrong with it."""
    protocol = Protocol.load(file)
    facts = _protocol_facts(protocol)
    if as_json:
        print(console.facts_to_print(facts))
        return
    console.out.print(
        f"[green]ok[/]  {file}: {protocol.dialect.name}, {len(protocol.turns)} turns,"
        f" {console.count(len(protocol.asks), 'ask')}{_in_conversations(protocol)}",
        soft_wrap=True,
    )
    for number, ask in enumerate(protocol.asks, 1):
        console.out.print(f"    ask {number}: {', '.join(ask.dimensions)}")


def _protocol_facts(protocol: Protocol) -> dict[str, Any]:
    return {
        "name": protocol.name,
        "description": protocol.description,
        "dialect": protocol.dialect.name,
        "turns": len(protocol.turns),
        "asks": [list(ask.dimensions) for ask in protocol.asks],
        "conversations": len(protocol.last_asks()),
        "fingerprint": protocol.fingerprint,
    }


def _in_conversations(protocol: Protocol) -> str:
    number = len(protocol.last_asks())
    return f" in {number} conversations" if number > 1 else ""
