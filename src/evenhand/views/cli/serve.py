"""evenhand serve: the web page."""

from __future__ import annotations

import json
import webbrowser
from pathlib import Path
from typing import Annotated

from evenhand.core.errors import InputError
from evenhand.io.files.small import read_small
from evenhand.io.pairs import JoinOptions
from evenhand.store import Store
from evenhand.views import console
from evenhand.views.cli.app import app
from evenhand.views.cli.inputs import find_input
from evenhand.views.cli.option_groups import option
from evenhand.views.cli.options import DEFAULT_DB, DbOption

PIP = "pip install 'evenhand[web]'"


@app.command()
def serve(
    db: DbOption = DEFAULT_DB,
    pairs: Annotated[
        list[str] | None,
        option(
            "--pairs FILE",
            "Enter the pairs of a file first, without asking any judge: people can label them at once."
            " May be repeated.",
        ),
    ] = None,
    port: Annotated[int, option("--port", "0 takes one that is free.", min=0, max=65535)] = 8765,
    listen: Annotated[
        str,
        option(
            "--listen ADDRESS",
            "The address to listen on. One that other machines can reach needs a password as well.",
        ),
    ] = "127.0.0.1",
    name: Annotated[
        list[str] | None, option("--name HOST", "A name by which others reach this machine. May be repeated.")
    ] = None,
    password_file: Annotated[
        Path | None, option("--password-file FILE", "The owner's password is its first line.")
    ] = None,
    open_browser: Annotated[bool, option("--open", "Open the page in a browser.")] = False,
    as_json: Annotated[bool, option("--json", "Print each link as a line of JSON.")] = False,
) -> None:
    """Look at verdicts and judge blind, in a browser: prints a link that works once, and serves until Ctrl-C."""
    if not db.is_file() and not pairs:
        raise InputError(
            f"no database at {db}", hint="evenhand judge PAIRS writes one, and so does evenhand serve --pairs PAIRS"
        )
    try:
        from evenhand.views.web.serving import ServerAddress
        from evenhand.views.web.serving import serve as run
    except ModuleNotFoundError as missing:
        raise InputError(f"the web page needs {missing.name}, which is not installed", hint=PIP) from None

    entered = _enter(db, pairs) if pairs else {}
    if entered and not as_json:
        _print(f"{console.count(entered['pairs'], 'pair')}, {entered['new']:,} new")

    def ready(link: str, first: bool) -> None:
        if as_json:
            print(json.dumps({"link": link, "db": str(db), **entered}), flush=True)
        elif first:
            _print(f"Open this link; it works once, and ends with this program (Ctrl-C):\n  {link}")
        else:
            _print(f"It was used. The next one:\n  {link}")
        if first and open_browser:
            webbrowser.open(link)

    run(db, ServerAddress(listen, port, tuple(name or ())), password=_password(password_file), ready=ready)


def _enter(db: Path, pairs: list[str]) -> dict[str, int]:
    """Keep the pairs of some files; all of them are read and found good first."""
    found = find_input(pairs, None, None, JoinOptions())
    with Store(db) as store:
        given, new = store.add_pairs(found.read())
    return {"pairs": given, "new": new}


def _print(text: str) -> None:
    console.out.print(text, markup=False)  # a link is one line, and [::1] is no markup


def _password(file: Path | None) -> str:
    if file is None:
        return ""
    try:
        return read_small(file).decode("utf-8").split("\n", 1)[0].strip()
    except (OSError, UnicodeDecodeError) as fault:
        raise InputError(f"{file} cannot be read as a password", hint=str(fault)) from None
