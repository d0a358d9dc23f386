"""Writes docs/json.md from what `--json` prints: python docs/make_json_page.py.

Each command runs several times over small databases, with other options and with little or odd data, and what it
hands to the writer of JSON is looked at before it is text. A key that is a field of a result has the field's type,
and what the comment beside the field says; any other has the types of what stood there. What only some runs print
may be left out. So a key that comes, goes or changes its type changes the page, and a test fails.
"""

from __future__ import annotations

import contextlib
import dataclasses
import inspect
import io
import json
import re
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any
from unittest import mock

from typer.main import get_command

from evenhand import EngineError, Judge, Pair, ScriptedEngine
from evenhand.core.engine import MEASURED, Engine
from evenhand.core.pair import DIMENSIONS
from evenhand.core.protocol import Prompt
from evenhand.core.verdict import found_on
from evenhand.results import plain as writer
from evenhand.views.cli import load_all
from evenhand.views.cli import main as run_command

PAGE = Path(__file__).with_name("json.md")
_HEAD = """\
# What `--json` prints

Every key of the commands that print results, with its type and, where the name does not say it, its meaning. The
page is written by `python docs/make_json_page.py` from the results themselves, and a test compares the two. Not
here are commands that only tell what they did, such as `export` and `import`.

`NAME` stands for a dimension, a model, a protocol or a reason, `[]` for each entry of a list. A key whose type says
*or null* is null where there is no such number; one marked *where there is one* is left out without it, or without
the option that asks for it. Objects that stand in several places are described once, [below](#objects), by the name
that they have in Python. Examples are in [judging.md](judging.md#json).
"""
Words = tuple[str, ...]
_JUDGING = ("--judge", "script", "--protocol", "overall", "--db", "new.db")
# many.db has three models and two protocols, two.db two models, few.db next to nothing; runs make the others.
_COMMANDS: Mapping[str, Sequence[Words]] = {
    "judge": (
        ("judge", "pairs.jsonl", *_JUDGING),
        ("judge", "roles.jsonl", *_JUDGING[:-1], "roles.db", "--until-decided", "--limit", "60"),
        ("judge", "roles.jsonl", *_JUDGING[:-1], "roles.db", "--repeat", "2"),
        ("judge", "odd.jsonl", *_JUDGING[:-1], "odd.db", "--max-requests", "9", "--skip-bad"),
        ("judge", "pairs.jsonl", "--judge", "script,other", "--weights", "2,1", *_JUDGING[2:-1], "jury.db"),
        ("judge", "pairs.jsonl", "--escalate", "script,other", "--agree", "0.6", *_JUDGING[2:-1], "levels.db"),
        ("judge", "--candidate", "ant.jsonl", "--baseline", "bee.jsonl", *_JUDGING[:-1], "joined.db"),
        ("judge", "pairs.jsonl", "--judge", "sure", *_JUDGING[2:-1], "sure.db", "--until-decided"),
    ),
    "compare": (
        ("compare", "-i", "Task", "--a", "one", "--b", "two", *_JUDGING[:4]),
        ("compare", "-i", "Task", "--a", "one", "--b", "two", "--judge", "script", "--protocol", "explained"),
        ("compare", "-i", "Task", "--a", "broken", "--b", "two", *_JUDGING[:4]),
        ("compare", "-i", "Task", "--a", "one", "--b", "two", "--judge", "script,other", *_JUDGING[2:4]),
    ),
    "arena": (
        ("arena", "ant.jsonl", "bee.jsonl", "cat.jsonl", *_JUDGING[:-1], "arena.db"),
        ("arena", "ant.jsonl", "bee.jsonl", "--baseline", "ant", *_JUDGING[:-1], "arena.db"),
    ),
    "attack": (
        ("attack", *_JUDGING[:-1], "attack.db", "--attack", "order-a", "--attack", "control"),
        ("attack", *_JUDGING[:-1], "attack.db", "--attack", "order-a", "--fence", "word"),
        ("attack", *_JUDGING[:-1], "stopped.db", "--attack", "order-a", "--max-requests", "3"),
        ("attack", "broken.jsonl", *_JUDGING[:-1], "broken.db", "--attack", "order-a"),
    ),
    "gate": (
        ("gate", "--margin", "0.1", "--db", "two.db"),
        ("gate", "roles.jsonl", "--against", "last", "--max-pairs", "20", *_JUDGING[:-1], "gate.db"),
        ("gate", "roles.jsonl", "--against", "last", "--margin", "0.01", "--worst", "2", *_JUDGING[:-1], "gate.db"),
        ("gate", "--db", "few.db"),
        ("gate", "--db", "attack.db"),
    ),
    "results": (
        ("results", "--by", "topic", "--human", "--width", "0.05", "--db", "many.db"),
        ("results", "--calibrated", "--db", "many.db"),
        ("results", "--against", "explained", "--protocol", "overall", "--db", "two.db"),
        ("results", "--between", "precision,format", "--alpaca-length-control", "--db", "four.db"),
        ("results", "--human", "--db", "few.db"),
        ("results", "--by", "topic", "--db", "roles.db"),
        ("results", "--db", "odd.db"),
        ("results", "--db", "jury.db"),
        ("results", "--db", "sure.db"),
        ("results", "--db", "attack.db"),
    ),
    "rank": (
        ("rank", "--db", "many.db"),
        ("rank", "--anchor", "ant", "--scale", "elo", "--expected", "--db", "many.db"),
        ("rank", "--db", "few.db"),
        ("rank", "--db", "attack.db"),
    ),
    "card": (
        ("card", "--db", "many.db"),
        ("card", "--calibrated", "--target", "0.8", "--db", "many.db"),
        ("card", "--db", "four.db"),
        ("card", "--db", "few.db"),
        ("card", "--db", "roles.db"),
        ("card", "--db", "attack.db"),
        ("card", "overall", "explained", "--db", "many.db"),
    ),
    "report": (
        ("report", "--db", "many.db"),
        ("report", "--db", "few.db"),
        ("report", "--db", "roles.db"),
        ("report", "--db", "attack.db"),
    ),
    "jury": (
        ("jury", "overall,explained", "--db", "many.db"),
        ("jury", "overall,explained", "--learned", "--db", "many.db"),
    ),
    "suggest": (
        ("suggest", "-n", "4", "--random", "0.5", "--protocol", "overall", "--db", "few.db"),
        ("suggest", "-n", "2", "--protocol", "overall", "--db", "many.db"),
    ),
    "calibrate": (
        ("calibrate", "--db", "two.db"),
        ("calibrate", "--db", "four.db"),
        ("calibrate", "--forget", "--db", "two.db"),
    ),
    "learn": (
        ("learn", "pairs.jsonl", "--judge", "script", "--out", "head.json"),
        ("learn", "--db", "four.db", "--with", "four", "--judge", "script", "--out", "head.json"),
    ),
    "labels": (("labels", "--db", "many.db"), ("labels", "--db", "few.db")),
    "judges": (("judges", "--db", "many.db"), ("judges", "--db", "few.db")),
    "reasons": (("reasons", "--db", "many.db"), ("reasons", "--search", "wrong", "--db", "many.db")),
}
_TYPES = {
    "int": "whole number",
    "float": "number",
    "str": "text",
    "bool": "truth",
    "None": "null",
    "Span": "two numbers",
    "Side": "text",
    "Mapping[Side, float]": "object",
}
# What small data and scripts do not show, by the last part of the key: prices, noise, the model that ships.
_NOT_SEEN_HERE = {
    "cost": "number or null",
    "drag": "list of object",
    "length_gain": "number or null",
    "noise": "object or null",
    "notes": "list of text",
    "shipped_head": "[Estimate](#estimate) or null",
    "tie_parameter": "number or null",
    "worst": "list of object",
}
_FREE = ("dimensions", "human", "refused", "models", "learned", "weighs", "beside", "reasons", "invalid_reasons")
_FREE_TOO = (
    "alpaca_length_controlled",
    "calibrated",
    "verdicts",
    "outcomes",
    "influence",
    "floors",
    "spoke",
    "noise",
    "effects",
)


@dataclasses.dataclass
class Key:
    """A key of the JSON: the types that it has, what it means, and whether it may be missing."""

    types: list[str]
    meaning: str = ""
    optional: bool = False


class Keys(dict[str, Key]):
    """The keys of a command or an object, and how often each of them and its object were there."""

    def __init__(self) -> None:
        self.seen: Counter[str] = Counter()  # keys
        self.objects: Counter[str] = Counter()  # objects, by their path

    def note(self, path: str, key: Key) -> None:
        """One more look at a key."""
        known = self.setdefault(path, key)
        self.seen[path] += 1
        types = list(dict.fromkeys([*known.types, *key.types]))
        vague = {"list"} if any(each.startswith("list of") for each in types) else set()
        vague |= {"whole number"} if "number" in types else set()
        vague |= {"object"} if any(each.startswith("[") for each in types) else set()
        known.types = sorted((each for each in types if each not in vague), key=lambda each: each == "null")

    def may_miss(self, path: str) -> bool:
        """Whether some object did not have the key."""
        above, _, name = path.rpartition(".")
        return self[path].optional or (name != "NAME" and self.seen[path] < self.objects[above])


def page() -> str:
    """The whole page."""
    program = get_command(load_all())  # before anything is put in the place of the writer
    objects: dict[str, Keys] = {}
    with (
        tempfile.TemporaryDirectory() as folder,
        contextlib.chdir(folder),
        mock.patch("typer.main.get_command", return_value=program),  # made once, not for each of sixty runs
        _scripted(),
    ):
        prepare()
        commands = {name: keys_of(runs, objects) for name, runs in _COMMANDS.items()}
    parts = [_section(f"## evenhand {name}", keys) for name, keys in commands.items()]
    named = [_section(f"### {name}", objects[name]) for name in sorted(objects)]
    return "\n".join([_HEAD, *parts, "## Objects\n", *named])


# -- what there is to print ---------------------------------------------------------------------------


def prepare() -> None:
    """The files and databases of the runs, in the folder that we are in."""
    many, two = make_pairs(("ant", "bee", "cat")), make_pairs(("ant", "bee"))
    for name, pairs, protocols in (
        ("many.db", many, ("overall", "explained")),
        ("two.db", two, ("overall", "explained")),
        ("four.db", two, ("four", "chained")),
        ("few.db", _few(), ("overall", "explained", "four")),
    ):
        for protocol in protocols:
            with Judge(_engine("script"), protocol, db=name) as judge:
                list(judge.judge(pairs))
    run(("calibrate", "--db", "many.db"))
    _write("pairs.jsonl", map(_row, two))
    _write("roles.jsonl", ({**_row(pair), "candidate": 2} for pair in two))
    odd = {"id": "odd", "instruction": "Task", "output_1": "broken", "output_2": "## Response B:\nno"}
    _write("odd.jsonl", [odd, {**odd, "id": "again"}, *map(_row, two[:8]), {"instruction": "half a row"}])
    _write("broken.jsonl", [{"instruction": "Task", "output_1": "so", "output_2": "broken", "label": "1"}])
    for model in ("ant", "bee", "cat"):
        rows = [{"instruction": f"Task {n}", "output": f"{model} {'so ' * (n % 5)}"} for n in range(20)]
        _write(f"{model}.jsonl", [*rows, {"instruction": f"Only for {model}", "output": "so"}])


def make_pairs(names: Sequence[str]) -> list[Pair]:
    """Eighty instructions, with labels of two people on most of them."""
    return [
        Pair(
            f"Task {number}",
            f"one {'so ' * (number % 7)}",
            f"two {'so ' * (number % 5)}",
            id=str(number),
            model_1=names[number % (len(names) - 1)],
            model_2=names[number % (len(names) - 1) + 1],
            metadata={"topic": number % 2, **(_votes(number) if number < 70 else {})},
        )
        for number in range(80)
    ]


def _votes(number: int) -> dict[str, object]:
    """Two people, who differ on every tenth pair."""
    human = {"ann": "AB"[number % 2], "ben": "AB"[(number + (number % 10 == 0)) % 2]}
    return {"human": human, **({"dims": {"format": {"ann": "A"}}} if number < 5 else {})}


def _few() -> list[Pair]:
    """Six pairs, of which one has a label and one cannot be judged."""
    texts = [(f"Task {n}", "broken" if n == 5 else f"one {n}", f"two {n}") for n in range(6)]
    return [
        Pair(*each, id=str(n), model_1="ant", model_2="bee", labels={} if n else {"overall": "1"})
        for n, each in enumerate(texts)
    ]


def _row(pair: Pair) -> dict[str, object]:
    texts = dict(zip(("instruction", "output_1", "output_2"), pair.texts, strict=True))
    return {"id": pair.id, **texts, "model_1": pair.model_1, "model_2": pair.model_2, **pair.metadata}


def _write(name: str, rows: Any) -> None:
    Path(name).write_text("".join(json.dumps(row) + "\n" for row in rows), "utf-8")


class _SureEngine(ScriptedEngine):
    """Takes the same side of every pair, and was measured on shorter responses than there are."""

    @property
    def identity(self) -> Mapping[str, str]:
        return {**super().identity, MEASURED: "10"}


def _engine(name: str) -> ScriptedEngine:
    if name == "sure":
        return _SureEngine(_say_surely, name=name)
    return ScriptedEngine(_say if name == "script" else _say_otherwise, name=name, states=_states)


def _say(prompt: Prompt) -> str | dict[str, float]:
    text = prompt.turns[-1].text
    number = sum(map(ord, text)) % 97
    if "broken" in text:
        raise EngineError("broken", reason="broken")
    if prompt.room:
        return f"Response A is clear and complete. Response B is wrong.\n\nVerdict: {'AB'[number % 2]}"
    return {"A": 0.1 + 0.008 * number, "B": 0.8 - 0.008 * number, "tie": 0.1}


def _say_otherwise(prompt: Prompt) -> str:
    """As people say, nearly always."""
    text = prompt.turns[-1].text
    task = re.search(r"Task (\d+)", text)
    number = int(task[1]) if task else 0
    return "tie" if number % 19 == 7 else "AB"[(number % 2 == 0) != (text.find("one") < text.find("two"))]


def _say_surely(prompt: Prompt) -> str:
    text = prompt.turns[-1].text
    return "AB"[text.find("one") > text.find("two")]


def _states(prompt: Prompt) -> Sequence[float]:
    text = prompt.turns[-1].text
    return [float(text.count("so")), float(len(text) % 7), float(sum(map(ord, text)) % 11)]


@contextlib.contextmanager
def _scripted() -> Iterator[None]:
    """Let scripts judge instead of models."""

    def open_judge(spec: str, *_: Any, **__: Any) -> Engine:
        return _engine(spec)

    with (
        mock.patch("evenhand.views.cli.groups.open_judge", open_judge),
        mock.patch("evenhand.views.cli.learn.open_judge", open_judge),
    ):
        yield


# -- what is printed ------------------------------------------------------------------------------------


def keys_of(runs: Sequence[Words], objects: dict[str, Keys]) -> Keys:
    """What the runs of a command print, key by key. Results inside it go to the objects."""
    keys = Keys()
    for words in runs:
        _walk(run((*words, "--json")), "", keys, objects)
    return keys


def run(words: Words) -> Any:
    """What a command gives to be printed: the last that is made plain."""
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
    if "--json" in words and not given:
        raise RuntimeError(f"evenhand {' '.join(words)} printed no JSON: {said.getvalue()}")
    return given[-1] if given else None


def _walk(value: Any, path: str, keys: Keys, objects: dict[str, Keys]) -> None:
    """Note the keys of a value; those of a result inside it stand in a table of their own."""
    if _is_result(value) and path:
        _walk(value, "", objects.setdefault(type(value).__name__, Keys()), objects)
    elif hasattr(value, "plain"):
        _walk(value.plain(), path, keys, objects)
    elif dataclasses.is_dataclass(value):
        keys.objects[path] += 1
        _walk_fields(value, keys, objects)
    elif isinstance(value, Mapping):
        keys.objects[path] += 1
        for name, item in value.items():
            below = f"{path}.{_general(str(name), path)}".lstrip(".")
            keys.note(below, Key([_type_of(item)]))
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
        keys.note(name, Key(_types(str(field.type), item), meanings.get(field.name, ""), how is None))
        _walk(item, name, keys, objects)


def _is_result(value: Any) -> bool:
    return dataclasses.is_dataclass(value) and not isinstance(value, type)


def _general(name: str, path: str) -> str:
    """A dimension, a model or a protocol, by what it is."""
    free = path.rpartition(".")[2] in (*_FREE, *_FREE_TOO) or (path == "people" and name in found_on(DIMENSIONS))
    return "NAME" if free or name == "overall" else name


def _types(annotation: str, item: Any) -> list[str]:
    """The types that a field's annotation names; what it does not name plainly is looked at."""
    parts = [part.strip() for part in re.split(r"\|(?![^\[]*\])", annotation)]
    return list(dict.fromkeys(_TYPES.get(part) or _named(part, item) for part in parts))


def _named(part: str, item: Any) -> str:
    if part.startswith("Literal"):
        return "text"
    if part.startswith(("tuple", "list", "Sequence")) and not item:
        return "list"
    return _type_of(item) if item is not None else f"[{part}](#{part.lower()})"


def _type_of(item: Any) -> str:
    if _is_result(item):
        return f"[{type(item).__name__}](#{type(item).__name__.lower()})"
    if isinstance(item, (list, tuple)):
        kinds = sorted({_type_of(each) for each in item}, key=lambda kind: (kind == "null", kind))
        kinds = [kind for kind in kinds if kind != "whole number" or "number" not in kinds]
        return f"list of {' or '.join(kinds)}" if kinds else "list"
    item = item.item() if hasattr(item, "item") else item  # a number of numpy's
    return _TYPES.get("None" if item is None else type(item).__name__, "object")


@cache
def _comments(kind: type) -> dict[str, str]:
    """What stands beside the fields of a class, in its source and that of the classes it extends."""
    sources = [inspect.getsource(each) for each in reversed(kind.__mro__) if dataclasses.is_dataclass(each)]
    found = re.findall(r"^    (\w+):[^#\n]*#\s*(.+)$", "\n".join(sources), re.MULTILINE)
    return {name: text.replace("|", "\\|") for name, text in found}


def _section(name: str, keys: Keys) -> str:
    under = {path for path in keys if path.startswith("judges[].")}
    shown = {path: key for path, key in keys.items() if path not in under}
    if not under or not {path.removeprefix("judges[].") for path in under} <= set(keys):
        shown = dict(keys)
    else:  # every judge as the last one
        shown["judges[]"] = Key(["object"], "every judge of the database, with the keys above")
    for path, key in shown.items():
        if key.types in (["null"], ["list"]):
            key.types = [_NOT_SEEN_HERE.get(path.rpartition(".")[2], *key.types)]
    rows = "\n".join(
        f"| `{path}` | {' or '.join(key.types)}{', where there is one' if _may_miss(keys, path) else ''}"
        f" | {key.meaning} |"
        for path, key in shown.items()
    )
    return f"{name}\n\n| key | type | meaning |\n|---|---|---|\n{rows}\n"


def _may_miss(keys: Keys, path: str) -> bool:
    return path in keys and keys.may_miss(path)


if __name__ == "__main__":
    PAGE.write_text(page(), "utf-8")
