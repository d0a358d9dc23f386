"""How options are declared, and groups of them: a command takes a few dataclasses, its users see flat options.

    @app.command()
    @flat_options
    def judge(pairs: PairOptions, judge: JudgeOptions, as_json: JsonOption = False) -> None: ...

Each field of a group is an `Annotated` option with its default: an ordinary frozen dataclass, which code can make
without a command line. A group may hold other groups.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import MISSING, fields, is_dataclass
from functools import wraps
from inspect import Parameter, Signature
from typing import Any, TypeVar, get_type_hints

import typer

from evenhand.core.errors import InputError

# The panels of --help, in the order in which they stand there.
INPUT, JUDGE, LIMITS, OUTPUT, ADVANCED = "Input", "Judge", "Limits", "Output", "Advanced"
T = TypeVar("T")
Word = TypeVar("Word", bound=str)


def option(usage: str, says: str, panel: str | None = None, **more: Any) -> Any:
    """An option as its line of --help shows it: its names and what it takes, what it is for, and its panel.

    >>> found = option("--out -o FILE", "Where to.")
    >>> found.metavar, found.help
    ('FILE', 'Where to.')
    """
    words = usage.split()
    names = [word for word in words if word.startswith("-")]
    takes = " ".join(words[len(names) :]) or None
    return typer.Option(*names, metavar=takes, help=says, rich_help_panel=panel, **more)


def argument(takes: str, says: str) -> Any:
    """An argument: what it is called in --help, and what it is for."""
    return typer.Argument(metavar=takes, help=says)


def one_of(name: str, word: str, choices: Iterable[Word]) -> Word:
    """The choice that a word stands for; what is none of them is refused with the list.

    >>> one_of("--pool", "mean", ("mean", "majority"))
    'mean'
    """
    for choice in choices:
        if word == choice:
            return choice
    raise InputError(f"{name} {word}", hint=f"one of {', '.join(choices)}")


def flat_options(command: Callable[..., T]) -> Callable[..., T]:
    """A command whose parameters are the options of its groups.

    >>> from dataclasses import dataclass
    >>> @dataclass(frozen=True)
    ... class Sizes:
    ...     width: int = 3
    ...     height: int = 4
    >>> @flat_options
    ... def area(sizes: "Sizes", times: int = 1) -> int:
    ...     return sizes.width * sizes.height * times
    >>> str(inspect.signature(area)), area(width=5, times=3)
    ('(*, width: int = 3, height: int = 4, times: int = 1) -> int', 60)
    """
    hints = get_type_hints(command, include_extras=True)
    taken = {each.name: (hints[each.name], each) for each in inspect.signature(command).parameters.values()}
    flat = [option for kind, given in taken.values() for option in _flatten(kind, given)]
    _refuse_twins(command, flat)
    signature = Signature(flat, return_annotation=hints.get("return", Signature.empty))

    @wraps(command)
    def call(**words: Any) -> T:
        bound = signature.bind(**words)
        bound.apply_defaults()
        made = {name: _gather(kind, name, bound.arguments) for name, (kind, _) in taken.items()}
        return command(**made)

    call.__signature__ = signature  # type: ignore[attr-defined]
    call.__annotations__ = {option.name: option.annotation for option in flat}
    return call


def _flatten(kind: Any, given: Parameter) -> Iterator[Parameter]:
    """The options that stand for a parameter: itself, or the fields of its group."""
    if not _is_group(kind):
        yield given.replace(annotation=kind, kind=Parameter.KEYWORD_ONLY)
        return
    hints = get_type_hints(kind, include_extras=True)
    for field in fields(kind):
        default = Parameter.empty if field.default is MISSING else field.default
        option = Parameter(field.name, Parameter.KEYWORD_ONLY, default=default, annotation=hints[field.name])
        yield from _flatten(hints[field.name], option)


def _gather(kind: Any, name: str, words: Mapping[str, Any]) -> Any:
    """The value of a parameter out of the flat options."""
    if not _is_group(kind):
        return words[name]
    hints = get_type_hints(kind, include_extras=True)
    return kind(**{field.name: _gather(hints[field.name], field.name, words) for field in fields(kind)})


def _is_group(kind: Any) -> bool:
    return isinstance(kind, type) and is_dataclass(kind)


def _refuse_twins(command: Callable[..., Any], flat: list[Parameter]) -> None:
    names = [option.name for option in flat]
    twins = sorted({name for name in names if names.count(name) > 1})
    if twins:
        raise TypeError(f"{command.__name__} has two options called {', '.join(twins)}")
