"""A view's place in the address bar: the list's filters as a query, and back, so that a link shows the same."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any, Literal, cast
from urllib.parse import urlencode

from evenhand.core.errors import InputError
from evenhand.core.pair import Side
from evenhand.core.verdict import SIDES, found_on, headline
from evenhand.store import JudgeRow, View
from evenhand.store.pages import ONLY, SORTS, Sort

FIELD = "f."  # before the name of a metadata field
_LONGER = ("1", "2", "winner", "loser")
MOST_TEXT = 500


def read_view(query: Sequence[tuple[str, str]], judges: Sequence[JudgeRow]) -> View:
    """The view that a query names; what it does not name is the newest judge, its headline, the uncertain first."""
    asked = {name: value for name, value in query if value}
    judge = _judge(asked.get("judge", ""), judges)
    known = found_on(judge.dimensions)
    dimension = asked.get("dimension", "") or headline(judge.dimensions)
    if dimension not in known:
        raise InputError(f"this judge was not asked about {dimension}", hint=f"it was about {', '.join(known)}")
    verdict = _one_of("verdict", asked.get("verdict", ""), ("", *SIDES))
    only = [_one_of("only", value, ONLY) for name, value in query if name == "only" and value]
    return View(
        judge.id,
        dimension,
        side=cast("Side", verdict) if verdict else None,
        only=tuple(name for name in ONLY if name in only),
        text=asked.get("q", "")[:MOST_TEXT],
        reason=asked.get("reason", "")[:MOST_TEXT],
        longer=cast(
            "Literal['', '1', '2', 'winner', 'loser']", _one_of("longer", asked.get("longer", ""), ("", *_LONGER))
        ),
        gap=read_number("gap", asked.get("gap", ""), 0),
        fields=tuple(
            (name.removeprefix(FIELD), value) for name, value in query if name.startswith(FIELD) and value
        ),
        sort=cast("Sort", _one_of("sort", asked.get("sort", "uncertain"), SORTS)),
    )


def write_view(view: View, **more: Any) -> str:
    """The query of a view; `more` is added, and replaces what the view says where the name is the same.

    Several values of one name are a tuple.

    >>> write_view(View(2, "format", only=("inconsistent",)), page=3)
    'judge=2&dimension=format&only=inconsistent&page=3'
    >>> write_view(View(2, "format"), only=("invalid", "once"))
    'judge=2&dimension=format&only=invalid&only=once'
    """
    fields: list[tuple[str, Any]] = [
        ("judge", view.judge),
        ("dimension", view.dimension),
        ("verdict", view.side or ""),
        *(("only", only) for only in view.only),
        ("q", view.text),
        ("reason", view.reason),
        ("longer", view.longer),
        ("gap", view.gap or ""),
        *((FIELD + name, value) for name, value in view.fields),
        ("sort", view.sort if view.sort != "uncertain" else ""),
    ]
    kept = [(name, value) for name, value in fields if name not in more and value != ""]
    added = [(name, value) for name, value in more.items() if value not in ("", None)]
    return urlencode([*kept, *added], doseq=True)


def narrowed(view: View, **changes: Any) -> str:
    """The query of a view with something else in it."""
    return write_view(replace(view, **changes))


def read_number(name: str, text: str, default: int, *, least: int = 0, most: int = 10**12) -> int:
    """A whole number out of a query.

    >>> read_number("page", "", 1), read_number("page", "7", 1)
    (1, 7)
    """
    if not text:
        return default
    if not text.isascii() or not text.isdecimal() or len(text) > 15 or not least <= int(text) <= most:
        raise InputError(f"{name} is {text[:40]!r}", hint=f"a whole number from {least} on")
    return int(text)


def _judge(text: str, judges: Sequence[JudgeRow]) -> JudgeRow:
    if not text:
        return judges[-1]
    number = read_number("judge", text, 0)
    found = next((judge for judge in judges if judge.id == number), None)
    if found is None:
        raise InputError(f"there is no judge {number}")
    return found


def _one_of(name: str, value: str, choices: Iterable[str]) -> str:
    if value not in choices:
        raise InputError(f"{name} is {value[:40]!r}", hint=f"one of {', '.join(c for c in choices if c)}")
    return value


def path_number(text: str) -> int | None:
    """A number in a path; None where it is none, or more than a database can count to.

    >>> path_number("12"), path_number("9" * 5000), path_number("x")
    (12, None, None)
    """
    if not text.isascii() or not text.isdecimal() or len(text) > 18:
        return None
    return int(text)
