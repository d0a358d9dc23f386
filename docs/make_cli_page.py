"""Writes docs/cli.md from the commands themselves: python docs/make_cli_page.py.

The texts are those that --help prints. They are taken from the commands and not from the screen, so that the page
does not change with the terminal's width or with the version of the library that draws the boxes.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import typer
from rich.text import Text

from evenhand.views.cli import load_all
from evenhand.views.cli.help_pages import EXAMPLES

PAGE = Path(__file__).with_name("cli.md")
_HEAD = """\
# The command line

Every command and option. The texts are those of `--help`; the page is written by
`python docs/make_cli_page.py`, and a test compares the two. What files, tables and exit codes mean is described in
[judging.md](judging.md).
"""


def page() -> str:
    """The whole page."""
    root = typer.main.get_command(load_all())
    return "\n".join([_HEAD, *_sections(root, "evenhand")])


def commands(command: Any, name: str = "evenhand") -> Iterator[tuple[str, Any]]:
    """A command and all below it, each with its full name."""
    yield name, command
    for sub, below in getattr(command, "commands", {}).items():
        yield from commands(below, f"{name} {sub}")


def options(command: Any) -> list[str]:
    """The options that a command takes, in all their spellings."""
    return ["--help", *(word for option in command.params if _is_option(option) for word in option.opts)]


def _sections(root: Any, name: str) -> Iterator[str]:
    for full, command in commands(root, name):
        yield f"## {full}\n"
        yield f"{_plain(command.help)}\n"
        yield f"```text\n{_usage(full, command)}\n```\n"
        if examples := EXAMPLES.get(full.removeprefix(name).strip()):
            yield "\n".join(["Examples:\n", *(f"    {line}" for line in examples), ""])
        yield from _table("argument", [item for item in command.params if not _is_option(item)])
        yield from _table("option", [item for item in command.params if _is_option(item) and item.name != "help"])


def _usage(full: str, command: Any) -> str:
    needed = [item for item in command.params if _is_option(item) and item.required]
    arguments = [_argument(item) for item in command.params if not _is_option(item)]
    words = [full, *(f"{item.opts[0]} {_value(item)}" for item in needed), "[OPTIONS]", *arguments]
    return " ".join([*words, "COMMAND ..."] if getattr(command, "commands", None) else words)


def _argument(item: Any) -> str:
    """An argument as the usage has it: what may be left out in brackets, what may come again with dots."""
    name = item.metavar or item.name.upper()
    return (name if item.required else f"[{name}]") + ("..." if item.nargs != 1 else "")


def _table(kind: str, items: list[Any]) -> Iterator[str]:
    if items:
        rows = [f"| {_spelt(item)} | {_meaning(item)} |" for item in items]
        yield "\n".join([f"| {kind} | meaning |", "|---|---|", *rows, ""])


def _spelt(item: Any) -> str:
    if not _is_option(item):
        return f"`{_cell(item.metavar or item.name.upper())}`"
    return ", ".join(f"`{_cell(f'{word} {_value(item)}'.strip())}`" for word in item.opts)


def _value(item: Any) -> str:
    is_switch = item.default is False
    return "" if is_switch else str(item.metavar or "VALUE")


def _meaning(item: Any) -> str:
    said = [_cell(_plain(item.help))] if item.help else []
    shown = item.show_default is not False and not item.required
    if shown and item.default is not False and item.default not in (None, ""):
        said.append(f"Default: `{item.default}`.")
    return " ".join(said)


def _is_option(item: Any) -> bool:
    return str(item.param_type_name) == "option"


def _plain(text: str | None) -> str:
    """Help without the marks that colour it."""
    return " ".join(Text.from_markup(text or "").plain.split())


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
