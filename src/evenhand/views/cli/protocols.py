"""evenhand protocols: what a judge is asked."""

from __future__ import annotations

import sys
from dataclasses import replace
from typing import Annotated

import typer
from rich.markup import escape

from evenhand.core.markup import render
from evenhand.core.protocol import Protocol, built_in_names, form_names, variant_names
from evenhand.core.verdict import Verdict
from evenhand.io.pairs import sample_pairs
from evenhand.results.plain import to_json
from evenhand.views import console
from evenhand.views.cli.app import app
from evenhand.views.cli.option_groups import argument, option
from evenhand.views.cli.options import FenceOption, JsonOption, fence_from

protocols_app = typer.Typer(help="The protocols: what a judge is asked.", invoke_without_command=True)
app.add_typer(protocols_app, name="protocols")


@protocols_app.callback()
def protocols(context: typer.Context, as_json: JsonOption = False) -> None:
    """List the built-in protocols."""
    if context.invoked_subcommand:
        return
    every = [Protocol.load(name) for name in (*built_in_names(), *form_names(), *variant_names())]
    if as_json:
        print(to_json({"protocols": [_protocol_fields(protocol) for protocol in every]}))
    else:
        console.out.print(console.protocols_table(every))


@protocols_app.command("show")
def protocols_show(
    name: Annotated[str, argument("NAME|FILE", "A built-in protocol or a template file.")],
    raw: Annotated[bool, option("--template", "Print the template itself, its slots open.")] = False,
    fence: FenceOption = None,
) -> None:
    """Print a protocol as the judge sees it, with a sample pair; what comes from the pair is marked."""
    protocol = Protocol.load(name)
    if kind := fence_from(fence):
        protocol = protocol.fenced(kind)
    if raw:
        sys.stdout.write(protocol.text)
        return
    pair = next(iter(sample_pairs()))
    if protocol.more:
        pair = replace(pair, metadata={**pair.metadata, **_stand_ins(protocol)})
    said = [
        ", ".join(Verdict(dimension, "A").word for dimension in question.dimensions)
        for question in protocol.questions[:-1]
    ]
    lasts = protocol.last_questions()
    for number, last in enumerate(lasts, 1):
        if len(lasts) > 1:
            console.out.print(f"conversation {number} of {len(lasts)}", style="dim")
        prompt = protocol.prompt(pair, "forward", last, said)
        console.out.print(console.conversation(render(prompt.turns, protocol.dialect)))
    if said:
        console.out.print(
            "\nThe earlier answers, here all for A, are the judge's own in a real conversation.",
            style="dim",
            soft_wrap=False,
        )


@protocols_app.command("check")
def protocols_check(
    file: Annotated[str, argument("FILE", "A template file.")], as_json: JsonOption = False
) -> None:
    """Say what is in a template file, or what is wrong with it."""
    protocol = Protocol.load(file)
    fields = _protocol_fields(protocol)
    if as_json:
        print(to_json(fields))
        return
    questions, talks = console.count(len(protocol.questions), "question"), len(protocol.last_questions())
    within = f" in {talks} conversations" if talks > 1 else ""
    name = escape(console.visible(file))
    console.out.print(
        f"[green]ok[/]  {name}: {protocol.dialect.name}, {len(protocol.turns)} turns, {questions}{within}",
        markup=True,
    )
    for number, question in enumerate(protocol.questions, 1):
        console.out.print(f"    question {number}: {', '.join(question.dimensions)}", soft_wrap=False)


def _stand_ins(protocol: Protocol) -> dict[str, str]:
    """Texts for slots that the sample pair has nothing for."""
    names = (name.removeprefix("meta.") for name in protocol.more)
    return {name: f"(the pair's {name})" for name in names}


def _protocol_fields(protocol: Protocol) -> dict[str, object]:
    return {
        "name": protocol.name,
        "description": protocol.description,
        "dialect": protocol.dialect.name,
        "turns": len(protocol.turns),
        "questions": [list(question.dimensions) for question in protocol.questions],
        "conversations": len(protocol.last_questions()),
        "answer": protocol.questions[0].form.example if protocol.questions[0].form else "label",
        "fingerprint": protocol.fingerprint,
    }
