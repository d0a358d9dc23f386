"""The program: its name, its exit codes, and what becomes of an error."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Sequence
from typing import Annotated, NoReturn

import typer

from evenhand import __version__, console
from evenhand.errors import EvenhandError, InputError

DONE, FAILED, WRONG, WITH_FAILURES = 0, 1, 2, 3

app = typer.Typer(
    invoke_without_command=True,
    add_completion=False,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["--help", "-h"]},
)


def _print_version(wanted: bool) -> None:
    if wanted:
        print(f"evenhand {__version__}")
        raise typer.Exit


@app.callback()
def root(
    context: typer.Context,
    version: Annotated[
        bool, typer.Option("--version", help="Print the version.", callback=_print_version, is_eager=True)
    ] = False,
) -> None:
    """A pairwise judge for language-model outputs: which of two responses is better, A, B or tie?"""
    if context.invoked_subcommand is None:
        from evenhand.cli.welcome import show_welcome

        show_welcome()


# Options whose value may be left out, and what the value looks like where it is given.
_OPTIONAL = {"--ray": re.compile(r"auto|local|(ray://)?[^/\\s]+:\d+")}


def with_optional_values(words: Sequence[str]) -> list[str]:
    """The words of a command line, with an empty value where an optional one was left out.

    >>> with_optional_values(["judge", "--ray", "--out", "d"])
    ['judge', '--ray=', '--out', 'd']
    >>> with_optional_values(["judge", "--ray", "pairs.parquet"]), with_optional_values(["--ray", "head:6379"])
    (['judge', '--ray=', 'pairs.parquet'], ['--ray', 'head:6379'])
    >>> with_optional_values([])
    []
    """
    following = [*words[1:], ""][: len(words)]
    return [
        f"{word}=" if word in _OPTIONAL and not _OPTIONAL[word].fullmatch(after) else word
        for word, after in zip(words, following, strict=True)
    ]


def main() -> NoReturn:
    """Run a command; what went wrong is said in a sentence, with the remedy where one is known."""
    try:
        try:
            app(args=with_optional_values(sys.argv[1:]), prog_name="evenhand")
        finally:
            sys.stdout.flush()  # here, where a full disk can still be said
    except EvenhandError as error:
        console.fail(error.message, error.hint)
        sys.exit(WRONG if isinstance(error, InputError) else FAILED)
    except OSError as fault:
        # What is left in the buffer cannot be written; Python would try again at its end, and complain.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        if not isinstance(fault, BrokenPipeError):
            console.fail(f"{fault.filename or 'output'}: {fault.strerror}", "what was answered is kept")
        sys.exit(FAILED)
    sys.exit(DONE)
