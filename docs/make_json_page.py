"""Writes docs/json.md from what `--json` prints: python docs/make_json_page.py.

Each command runs over a small database, and what it hands to the writer of JSON is looked at before it is text. A
key that is a field of a result has the field's type, and what the comment beside the field says; any other has the
type of what stands there. So a key that comes, goes or changes its type changes the page, and a test fails.
"""

from __future__ import annotations

import contextlib
import dataclasses
import inspect
import io
import re
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any
from unittest import mock

from evenhand import Judge, Pair, ScriptedEngine
from evenhand.core.protocol import Prompt
from evenhand.results import plain as writer
from evenhand.views.cli import load_all
from evenhand.views.cli import main as run_command

PAGE = Path(__file__).with_name("json.md")
_HEAD = """\
# What `--json` prints

Every key of the commands that print results, with its type and, where the name does not say it, its meaning. The
page is written by `python docs/make_json_page.py` from the results themselves, and a test compares the two.

`NAME` stands for a dimension, `[]` for each entry of a list. A key whose type says *or null* is null where there is
no such number; one marked *where there is one* may be left out. Objects that stand in several places are described
once, [below](#objects), by the name that they have in Python. Examples are in [judging.md](judging.md#json).
"""
_COMMANDS = {
    "results": ("results", "--by", "topic", "--human"),
    "rank": ("rank",),
    "card": ("card",),
    "gate": ("gate", "--margin", "0.1"),
    "suggest": ("suggest", "-n", "2"),
    "calibrate": ("calibrate",),
    "labels": ("labels",),
    "judges": ("judges",),
    "reasons": ("reasons",),
}
_TYPES = {
    "int": "whole number",
    "float": "number",
    "str": "text",
    "bool": "truth",
    "None": "null",
    "Span": "two numbers",
}


@dataclasses.dataclass
class Key:
    """A key of the JSON: the types that it has, what it means, and whether it may be missing."""

    types: list[str]
    meaning: str = ""
    optional: bool = False


Keys = dict[str, Key]


def page() -> str:
    """The whole page."""
    load_all()  # before anything is put in the place of the writer
    with tempfile.TemporaryDirectory() as folder:
        three, two = Path(folder) / "three.db", Path(folder) / "two.db"
        fill(three, ("ant", "bee", "cat"))
        fill(two, ("ant", "bee"))  # a gate is between two models
        objects: dict[str, Keys] = {}
        commands = {
            name: keys_of((*words, "--db", str(two if name == "gate" else three), "--json"), objects)
            for name, words in _COMMANDS.items()
        }
    parts = [_section(f"## evenhand {name}", keys) for name, keys in commands.items()]
    named = [_section(f"### {name}", objects[name]) for name in sorted(objects)]
    return "\n".join([_HEAD, *parts, "## Objects\n", *named])


def fill(db: Path, names: Sequence[str]) -> None:
    """Eighty instructions, judged under two protocols, with labels of two people on all pairs."""
    pairs = [
        Pair(
            f"Task {number}",
            f"one {'so ' * (number % 7)}",
            f"two {'so ' * (number % 5)}",
            id=str(number),
            model_1=names[number % (len(names) - 1)],
            model_2=names[number % (len(names) - 1) + 1],
            metadata={
                "topic": number % 2,
                "human": {"ann": "AB"[number % 2], "ben": "AB"[(number + (number % 10 == 0)) % 2]},
            },
        )
        for number in range(80)
    ]
    for protocol in ("overall", "explained"):
        with Judge(ScriptedEngine(_say, name="script"), protocol, db=db) as judge:
            for _ in judge.judge(pairs):
                pass


def _say(prompt: Prompt) -> str | dict[str, float]:
    number = sum(map(ord, prompt.turns[-1].text)) % 97
    if prompt.room:
        return f"Response A is clear and complete. Response B is wrong.\n\nVerdict: {'AB'[number % 2]}"
    return {"A": 0.1 + 0.008 * number, "B": 0.8 - 0.008 * number, "tie": 0.1}


def keys_of(words: tuple[str, ...], objects: dict[str, Keys]) -> Keys:
    """What a command prints, key by key: the last that is made plain. Results inside it go to the objects."""
    given: list[Any] = []
    depth, make_plain = [0], writer.plain

    def watch(value: Any) -> Any:
        given.extend([value] if not depth[0] else [])
        depth[0] += 1
        try:
            return make_plain(value)
        finally:
            depth[0] -= 1

    said = io.StringIO()
    with (
        mock.patch.object(writer, "plain", watch),
        mock.patch.object(sys, "argv", ["evenhand", *words]),
        contextlib.redirect_stdout(io.StringIO()),
        contextlib.redirect_stderr(said),
        contextlib.suppress(SystemExit),
    ):
        run_command()
    if not given:
        raise RuntimeError(f"evenhand {' '.join(words)} printed no JSON: {said.getvalue()}")
    keys: Keys = {}
    _walk(given[-1], "", keys, objects)
    return keys


def _walk(value: Any, path: str, keys: Keys, objects: dict[str, Keys]) -> None:
    """Note the keys of a value; those of a result inside it stand in a table of their own."""
    if _is_result(value) and path:
        _walk(value, "", objects.setdefault(type(value).__name__, {}), objects)
    elif hasattr(value, "plain"):
        _walk(value.plain(), path, keys, objects)
    elif dataclasses.is_dataclass(value):
        _walk_fields(value, keys, objects)
    elif isinstance(value, Mapping):
        for name, item in value.items():
            below = f"{path}.{_general(str(name), path)}".lstrip(".")
            _note(keys, below, Key([_type_of(item)]))
            _walk(item, below, keys, objects)
    elif isinstance(value, (list, tuple)):
        for item in value:
            _walk(item, f"{path}[]", keys, objects)


def _walk_fields(value: Any, keys: Keys, objects: dict[str, Keys]) -> None:
    meanings = _comments(type(value))
    for field in dataclasses.fields(value):
        how = field.metadata.get("json", True)
        item = getattr(value, field.name)
        if how is False or (how is None and item is None):
            continue
        name = how if isinstance(how, str) else field.name
        _note(keys, name, Key(_types(str(field.type), item), meanings.get(field.name, ""), how is None))
        _walk(item, name, keys, objects)


def _note(keys: Keys, path: str, key: Key) -> None:
    known = keys.setdefault(path, key)
    known.types = list(dict.fromkeys([*known.types, *key.types]))


def _is_result(value: Any) -> bool:
    return dataclasses.is_dataclass(value) and not isinstance(value, type)


def _general(name: str, path: str) -> str:
    """A dimension, or a topic, by what it is."""
    return "NAME" if path.rpartition(".")[2] in ("dimensions", "human", "refused") or name == "overall" else name


def _types(annotation: str, item: Any) -> list[str]:
    """The types that a field's annotation names; what it does not name plainly is looked at."""
    parts = [part.strip() for part in re.split(r"\|(?![^\[]*\])", annotation)]
    return list(dict.fromkeys(_TYPES.get(part) or _named(part, item) for part in parts))


def _named(part: str, item: Any) -> str:
    if part.startswith(("tuple", "list", "Sequence")) and not item:
        return "list"
    return _type_of(item) if item is not None else f"`{part}`"


def _type_of(item: Any) -> str:
    if _is_result(item):
        return f"[{type(item).__name__}](#{type(item).__name__.lower()})"
    if isinstance(item, (list, tuple)):
        return f"list of {_type_of(item[0])}" if item else "list"
    item = item.item() if hasattr(item, "item") else item  # a number of numpy's
    return _TYPES.get("None" if item is None else type(item).__name__, "object")


def _comments(kind: type) -> dict[str, str]:
    """What stands beside the fields of a class, in its source."""
    found = re.findall(r"^    (\w+):[^#\n]*#\s*(.+)$", inspect.getsource(kind), re.MULTILINE)
    return {name: text.replace("|", "\\|") for name, text in found}


def _section(name: str, keys: Mapping[str, Key]) -> str:
    under = {path for path in keys if path.startswith("judges[].")}
    if under and {path.removeprefix("judges[].") for path in under} <= set(keys):  # every judge as the last one
        keys = {path: key for path, key in keys.items() if path not in under}
        keys["judges[]"] = Key(["object"], "every judge of the database, with the keys above")
    rows = "\n".join(
        f"| `{path}` | {' or '.join(key.types)}{', where there is one' if key.optional else ''} | {key.meaning} |"
        for path, key in keys.items()
    )
    return f"{name}\n\n| key | type | meaning |\n|---|---|---|\n{rows}\n"


if __name__ == "__main__":
    PAGE.write_text(page(), "utf-8")
