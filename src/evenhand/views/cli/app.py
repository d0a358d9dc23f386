"""The program: its name, its exit codes, and how errors are reported."""

from __future__ import annotations

import os
import re
import shlex
import sys
from collections.abc import Sequence
from importlib import import_module
from typing import Annotated, NoReturn

import typer

from evenhand import __version__
from evenhand.core.errors import EvenhandError, InputError
from evenhand.views import console
from evenhand.views.cli.help_pages import PANELS, PlainGroup, dress, name_of

DONE, FAILED, WRONG, WITH_FAILURES = 0, 1, 2, 3
INTERRUPTED = 130

app = typer.Typer(
    cls=PlainGroup,
    invoke_without_command=True,
    add_completion=False,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["--help", "-h"]},
)


# Which file a command is in, that of its own name unless it says so; importing it enters the command. One command
# loads no other's file: the statistics alone would cost each of them a second.
_ELSEWHERE = {"compare": "judge", "import": "importing", "vectors": "learn", "reread": "results"}
_ELSEWHERE |= {"ray": "scaling", "help": "welcome"}
_MODULES = {name: _ELSEWHERE.get(name, name) for names in PANELS.values() for name in names}


def load_all() -> typer.Typer:
    """The program with all its commands."""
    for module in dict.fromkeys(_MODULES.values()):
        import_module(f"evenhand.views.cli.{module}")
    dress(app)
    # In one order, whichever was loaded first.
    places = {name: place for place, name in enumerate(_MODULES)}
    app.registered_commands.sort(key=lambda command: places[name_of(command)])
    app.registered_groups.sort(key=lambda group: places[name_of(group)])
    return app


def load_for(words: Sequence[str]) -> None:
    """Load what a command line needs: one command, or all where it names none that is known."""
    if not words or words[0] == "--version":
        return
    if words[0] in _MODULES and words[0] != "help":
        import_module(f"evenhand.views.cli.{_MODULES[words[0]]}")
        dress(app)
    else:
        load_all()


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
    """A pairwise judge for language-model outputs: which of two responses is better, A, B or tie?

    Two files of outputs need no command: evenhand old.jsonl new.jsonl
    """
    if context.invoked_subcommand is None:
        from evenhand.views.cli.welcome import show_welcome

        show_welcome()


# What `judge` took before Ray had a command of its own.
_OF_RAY = ("--ray", "--out", "--workers")
_ADDRESS = re.compile(r"auto|local|(ray://)?[^/\s]+:\d+")


def ray_command(words: Sequence[str]) -> str:
    """The command that stands for `judge --ray` of older versions; empty where the words are no such thing.

    >>> ray_command(["judge", "p.jsonl", "--ray", "head:6379", "--out", "d"])
    'evenhand ray judge p.jsonl --address head:6379 --out d'
    >>> ray_command(["judge", "--ray", "p.jsonl", "--out=d"]), ray_command(["judge", "p.jsonl"])
    ('evenhand ray judge p.jsonl --out=d', '')
    """
    names = [word.partition("=")[0] for word in words]
    if words[:1] != ["judge"] or not set(names) & set(_OF_RAY):
        return ""
    meant = ["evenhand", "ray"]
    for word, after in zip(words, [*words[1:], ""], strict=True):
        name, _, value = word.partition("=")
        if name != "--ray":
            meant.append(word)
        elif value or _ADDRESS.fullmatch(after):
            meant += ["--address", value] if value else ["--address"]
    return shlex.join([*meant, *([] if "--out" in names else ["--out", "DIR"])])


def meant_by(words: Sequence[str]) -> list[str]:
    """The command line that these words stand for: files alone name their command."""
    if meant := ray_command(words):
        raise InputError("judge no longer has --ray: Ray has a command of its own", hint=meant)
    if not words or words[0] in _MODULES.keys() - {"compare"} or words[0].startswith("-"):
        return list(words)
    from evenhand.views.cli.bare_files import command_for, refuse_files

    if words[0] == "compare":
        refuse_files(words[1:])
        return list(words)
    return command_for(words)


def _was_interrupted(error: BaseException | None) -> bool:
    """Whether an error came up while a Ctrl-C was being dealt with."""
    while error is not None:
        if isinstance(error, KeyboardInterrupt):
            return True
        error = error.__context__
    return False


def _run(words: Sequence[str]) -> None:
    """Run a command; an unexpected error may come from a damaged database, which is then reported."""
    try:
        app(words, prog_name="evenhand")
    except (EvenhandError, OSError):
        raise
    except Exception as fault:
        from evenhand.views.cli.opening import explain

        explain(fault, words)
        raise


def main() -> NoReturn:
    """Run a command; what went wrong is said in a sentence, with the remedy where one is known."""
    # The matrices here are small. Several threads on one take no less time, and ten times as much where cores are
    # busy and the threads wait for each other. numpy looks at this when it is loaded.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    try:
        try:
            words = meant_by(sys.argv[1:])
            load_for(words)
            _run(words)
        finally:
            sys.stdout.flush()  # here, where a full disk can still be said
    except EvenhandError as error:
        if _was_interrupted(error):  # an error during an interrupt is not why the run ended
            sys.exit(INTERRUPTED)
        console.fail(error.message, error.hint)
        sys.exit(WRONG if isinstance(error, InputError) else FAILED)
    except OSError as fault:
        # What is left in the buffer cannot be written; Python would try again at its end, and complain.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        if not isinstance(fault, BrokenPipeError):
            console.fail(f"{fault.filename or 'output'}: {fault.strerror}", "what was answered is kept")
        sys.exit(FAILED)
    except KeyboardInterrupt:  # while a command is being loaded; a command says more of its own interruption
        sys.exit(INTERRUPTED)
    sys.exit(DONE)
