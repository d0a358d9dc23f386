"""What --help shows besides the options: commands in panels, examples, and flags without a type."""

from __future__ import annotations

import shlex
from itertools import pairwise
from pathlib import Path
from typing import Any

import typer
from rich.markup import escape
from typer.core import TyperCommand, TyperGroup

from evenhand.core.errors import InputError

# Every command in its panel, as --help lists them.
PANELS = {
    "Start": ("demo", "compare", "judge", "arena", "gate", "generate", "look"),
    "Analyse": ("results", "rank", "card", "reasons", "jury", "attack", "report", "export"),
    "People": ("serve", "labels", "suggest", "calibrate", "learn"),
    "Manage": ("import", "judges", "batches", "models", "protocols", "vectors", "reread", "ray", "help"),
}

# The panels of options in their order, and where options stand that say nothing of it themselves.
_ORDER = ("Input", "Model", "Judge", "Rule", "Limits", "Output", "Advanced")
_USUAL = {
    **dict.fromkeys(("--judge", "--protocol"), "Judge"),
    **dict.fromkeys(("--out", "--format", "--plot", "--plot-matrix"), "Output"),
    **dict.fromkeys(("--context", "--threads", "--gpu-layers"), "Advanced"),
}

# Options whose value is never empty and never another option.
_NEVER_EMPTY = {"--judge", "-j", "--protocol", "-p", "--db", "--candidate", "--baseline", "--model"}

EXAMPLES: dict[str, tuple[str, ...]] = {
    "demo": ("evenhand demo",),
    "look": ("evenhand look pairs.jsonl", "evenhand look rows.jsonl --columns instruction=prompt,output=reply"),
    "compare": (
        'evenhand compare -i "Name a prime." --a 7 --b 8',
        'evenhand compare -i "Name a prime." --a 7 --b 8 --judge openai:gpt-4o-mini --json',
    ),
    "judge": (
        "evenhand judge pairs.jsonl",
        "evenhand judge --candidate new.jsonl --baseline old.jsonl --judge openai:gpt-4o-mini --max-cost 2",
        "evenhand judge pairs.jsonl --dry-run",
        "evenhand judge pairs.jsonl --until-decided",
        "evenhand judge pairs.jsonl --judge openai:gpt-4o-mini --batch",
        "evenhand judge pairs.jsonl --judge openai:gpt-4o-mini,qwen2.5-coder-1.5b --pool majority",
    ),
    "arena": (
        "evenhand arena a.jsonl b.jsonl c.jsonl --size 300",
        "evenhand arena outputs.jsonl --baseline gpt-4o --dry-run",
    ),
    "gate": (
        "evenhand gate --candidate new.jsonl --baseline old.jsonl --margin 0.05",
        "evenhand gate pairs.jsonl --judge openai:gpt-4o-mini --max-cost 2 --markdown summary.md",
        "evenhand gate pairs.jsonl --against passed --annotations github --junit gate.xml",
        "evenhand gate --db evenhand.db",
    ),
    "generate": (
        "evenhand generate prompts.txt --model openai:gpt-4o-mini --out new.jsonl",
        "evenhand generate prompts.jsonl --model qwen2.5-coder-1.5b --system v2.txt --name v2 --out v2.jsonl",
    ),
    "results": (
        "evenhand results",
        "evenhand results --by topic --plot rates.svg",
        "evenhand results --human --width 0.1",
    ),
    "rank": ("evenhand rank", "evenhand rank --scale elo --anchor gpt-4o --plot ranking.svg"),
    "card": ("evenhand card", "evenhand card qwen2.5-coder-1.5b --json"),
    "reasons": ("evenhand reasons", 'evenhand reasons --search "misses the point"', "evenhand reasons --loser new"),
    "jury": (
        "evenhand jury --pool majority",
        "evenhand jury gpt-4o,claude-sonnet,qwen3-8b/overall --weights 2,1,1 --name panel",
    ),
    "attack": (
        "evenhand attack --list",
        "evenhand attack --judge openai:gpt-4o-mini --max-cost 1",
        "evenhand attack labelled.jsonl --family headings --attack verdict-a --pairs 60 --plot attacks.svg",
        "evenhand attack --protocol overall --family headings --fence word",
    ),
    "report": ("evenhand report", "evenhand report --out summary.md --pairs 20"),
    "export": (
        "evenhand export judgments --out judgments.parquet",
        "evenhand export dpo --out train.jsonl --margin 0.2",
    ),
    "serve": ("evenhand serve", "evenhand serve --port 8123"),
    "labels": ("evenhand labels", "evenhand labels import labels.csv", "evenhand labels export labels.csv"),
    "suggest": ("evenhand suggest --number 50 --out to_label.csv",),
    "calibrate": ("evenhand calibrate", "evenhand calibrate --dimension overall"),
    "learn": ("evenhand learn labelled.jsonl --out head.json", "evenhand learn --db evenhand.db"),
    "vectors": ("evenhand vectors --db evenhand.db", "evenhand vectors --db evenhand.db --drop"),
    "import": ("evenhand import verdicts annotations.json",),
    "import verdicts": (
        "evenhand import verdicts annotations.json",
        "evenhand import verdicts verdicts.csv --pairs pairs.jsonl --name gpt-4",
    ),
    "judges": ("evenhand judges", "evenhand judges remove 1a2b3c4d"),
    "batches": ("evenhand batches", "evenhand batches cancel batch_68f0c1"),
    "models": ("evenhand models", "evenhand models pull qwen2.5-coder-1.5b"),
    "protocols": ("evenhand protocols", "evenhand protocols show chained"),
    "reread": ("evenhand reread --db evenhand.db",),
    "ray": ("evenhand ray judge pairs.parquet --out shards",),
    "ray judge": (
        "evenhand ray judge pairs.parquet --out shards",
        "evenhand ray judge pairs.parquet --address auto --workers 4 --out s3://bucket/run",
    ),
    "help": ("evenhand help judge",),
}


def example_lines(name: str) -> str:
    """The examples of a command, for below its options.

    >>> print(example_lines("demo"))
    [bold]Examples[/]
    <BLANKLINE>
      evenhand demo
    """
    lines = [f"  {escape(line)}" for line in EXAMPLES.get(name, ())]
    return "\n".join(["[bold]Examples[/]\n", *lines]) if lines else ""


def dress(program: typer.Typer, above: str = "") -> None:
    """Give every command that is loaded its panel, its examples and its look."""
    panels = {name: panel for panel, names in PANELS.items() for name in names}
    loaded: list[Any] = [*program.registered_commands, *program.registered_groups]
    for info in loaded:
        name = name_of(info)
        full = f"{above} {name}".strip()
        info.epilog = example_lines(full)
        if not above:
            info.rich_help_panel = panels.get(name)
        if isinstance(info, typer.models.CommandInfo):
            info.cls = PlainCommand
        else:
            info.cls = PlainGroup
            dress(info.typer_instance, full)


def name_of(info: Any) -> str:
    """What users call a command."""
    if isinstance(info, typer.models.CommandInfo):
        return info.name or str(getattr(info.callback, "__name__", ""))
    return str(info.name or info.typer_instance.info.name)


class PlainCommand(TyperCommand):
    """A command whose flags are flags, and whose numbers are N."""

    def __init__(self, *words: Any, **more: Any) -> None:
        super().__init__(*words, **more)
        tidy(self.params)

    def get_params(self, ctx: Any) -> list[Any]:
        """The options in the order of their panels."""
        return in_panels(super().get_params(ctx))

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Read the words of a command line; a database among them is named with an option."""
        words = list(args)  # they are taken off one by one
        refuse_nothing(self.params, words)
        try:
            return list(super().parse_args(ctx, args))
        except Exception as fault:  # click's UsageError, which typer has kept in two places over time
            if any("--db" in param.opts for param in self.params):
                refuse_file(ctx.command_path, words, str(getattr(fault, "message", "")))
            raise


def refuse_nothing(params: list[Any], words: list[str]) -> None:
    """Say which option is given nothing, as where the variable of a shell is not set: no default is meant then."""
    options = {name for param in params for name in param.opts}
    for word, after in pairwise([*words, ""]):
        name, equals, given = word.partition("=")
        value = given if equals else after
        if name in _NEVER_EMPTY & options and (not value.strip() or value in options):
            follows = f": {value} follows it" if value.strip() else ""
            raise InputError(f"{name} is given nothing{follows}", hint="is the variable set that it comes from?")


def refuse_file(command: str, words: list[str], complaint: str) -> None:
    """Say how a database is named where a command line just names it, or a file that is none."""
    for word in words:
        if "unexpected extra argument" in complaint and word in complaint and Path(word).is_file():
            name = shlex.quote(word)
            hint = f"to read verdicts from a database: {command} --db {name}"
            if not word.endswith((".db", ".sqlite", ".sqlite3")):
                hint = f"it reads verdicts from a database (--db); evenhand look {name} says what this file is"
            raise InputError(f"{command} takes no file: {word}", hint=hint)


class PlainGroup(TyperGroup):
    """The same of a group; its commands stand in the order of the panels."""

    def __init__(self, *words: Any, **more: Any) -> None:
        super().__init__(*words, **more)
        tidy(self.params)

    def get_params(self, ctx: Any) -> list[Any]:
        """The options in the order of their panels."""
        return in_panels(super().get_params(ctx))

    def list_commands(self, ctx: Any) -> list[str]:
        """The commands; those of the program as its panels have them."""
        order = [name for names in PANELS.values() for name in names]
        return sorted(super().list_commands(ctx), key=lambda name: order.index(name) if name in order else 0)


def tidy(params: list[Any]) -> None:
    """Let a flag and an argument say nothing of their types, and other options say N or TEXT."""
    for param in params:
        if param.param_type_name == "argument":
            param.display_type_rich = lambda ctx: None
        elif param.metavar is None:
            param.metavar = "" if param.is_flag else "N" if _is_number(param) else "TEXT"


def _is_number(param: Any) -> bool:
    """Whether an option takes a number; typer has kept its type in two places over time."""
    kind = getattr(param.type_descriptor, "annotation", "") if hasattr(param, "type_descriptor") else param.type
    return any(word in str(kind).lower() for word in ("int", "float"))


def in_panels(params: list[Any]) -> list[Any]:
    """The options in the order of their panels; help is the last of the last, and needs no panel of its own."""
    for param in params:
        if param.param_type_name == "option" and not getattr(param, "rich_help_panel", None):
            param.rich_help_panel = _USUAL.get(param.opts[0])
    used = [panel for panel in _ORDER if any(getattr(param, "rich_help_panel", None) == panel for param in params)]
    for param in params:
        if param.name == "help" and param.param_type_name == "option":
            tidy([param])
            param.rich_help_panel = used[-1] if used else None
    return sorted(params, key=_place)


def _place(param: Any) -> int:
    panel = getattr(param, "rich_help_panel", None)
    return _ORDER.index(panel) if panel in _ORDER else -1
