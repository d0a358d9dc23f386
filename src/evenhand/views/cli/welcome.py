"""The bare command and `evenhand help`: where to begin."""

from __future__ import annotations

from typing import Annotated

from rich.table import Table
from rich.text import Text

from evenhand.views import console
from evenhand.views.cli.app import app, load_all
from evenhand.views.cli.option_groups import argument

# What a newcomer needs, in the order in which it is needed: what it does, and a line to copy.
FIRST = (
    ("demo", "see it work on pairs with known answers", "evenhand demo"),
    ("compare", "judge one pair", 'evenhand compare -i "Name a prime." --a "7" --b "8"'),
    ("judge", "judge a file of pairs, or two models", "evenhand judge pairs.jsonl"),
    ("results", "show the verdicts again", "evenhand results"),
    ("serve", "read them and label in a browser", "evenhand serve"),
)


def show_welcome() -> None:
    """Say what evenhand is, and the commands to begin with."""
    table = Table(box=None, show_header=False, padding=(0, 2, 0, 0), pad_edge=False)
    table.add_column(style="bold", no_wrap=True)
    table.add_column(no_wrap=True)
    for name, what, example in FIRST:
        table.add_row(name, what)
        table.add_row("", Text(example, style="dim"))
    console.out.print("[bold]evenhand[/]: which of two responses is better?\n", markup=True)
    console.out.print(table)
    console.out.print(
        "\nTwo models: evenhand old.jsonl new.jsonl"
        "\nA hosted judge: add --judge openai:gpt-4o-mini"
        "\nAll commands: evenhand --help. One of them: evenhand help judge",
        style="dim",
    )


@app.command("help")
def show_help(
    command: Annotated[list[str] | None, argument("COMMAND", "Such as judge.")] = None,
) -> None:
    """Explain a command, or list all of them."""
    load_all()(args=[*(command or []), "--help"], prog_name="evenhand")
