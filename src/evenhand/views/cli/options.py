"""Options that several commands take, in one wording."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from evenhand.core.errors import InputError
from evenhand.core.judge import ORDER_CHOICES, Orders
from evenhand.views.cli.opening import bring_up_to_date

DEFAULT_DB = Path("evenhand.db")

JudgeOption = Annotated[
    str,
    typer.Option(
        "--judge",
        "-j",
        metavar="SPEC",
        help="A model of the catalog (see [bold]evenhand models[/]), a path to a GGUF file, "
        "hf:owner/repo/file.gguf, an endpoint such as openai:MODEL or vllm:MODEL, http://host/v1#MODEL, "
        "or head:FILE, which [bold]evenhand learn[/] writes.",
    ),
]
ProtocolOption = Annotated[
    str | None,
    typer.Option(
        "--protocol",
        "-p",
        metavar="NAME|FILE",
        help="A built-in protocol or a template file. Default: weighed for a model that runs here,"
        " chained for one behind HTTP.",
    ),
]
OrdersOption = Annotated[
    str, typer.Option("--orders", metavar="|".join(ORDER_CHOICES), help="In which orders each pair is judged.")
]
DbOption = Annotated[
    Path, typer.Option("--db", metavar="FILE", help="Where verdicts are kept.", callback=bring_up_to_date)
]
RecordsOption = Annotated[
    Path,
    typer.Option(
        "--db",
        metavar="FILE|DIR",
        help="Where verdicts are kept: a database, or a folder of shards.",
        callback=bring_up_to_date,
    ),
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print the facts as JSON on standard output.")]
SetOption = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="NAME=VALUE",
        help="A setting of a judge behind an endpoint: key_env, mode, effort, max_tokens, temperature, timeout, "
        "or any other field of the request. May be given several times.",
    ),
]
SamplesOption = Annotated[
    int, typer.Option("--samples", min=1, help="Answers to share out where an endpoint tells no probabilities.")
]
SeedOption = Annotated[
    int,
    typer.Option(
        "--seed",
        help="Decides the orders with --orders random, and which pairs come first with --until-decided.",
    ),
]
OnOption = Annotated[
    str,
    typer.Option(
        "--on", metavar="DIMENSION", help="The dimension that decides. Default: the parts combined, else overall."
    ),
]
RawOption = Annotated[
    bool,
    typer.Option("--raw-markup", help="Send the template's own markup instead of the model's chat template."),
]
ContextOption = Annotated[
    int | None,
    typer.Option("--context", min=256, metavar="TOKENS", help="The model's context. Default: up to 16384."),
]
ThreadsOption = Annotated[
    int | None, typer.Option("--threads", min=1, help="Of the embedded model. Default: all cores.")
]
GpuOption = Annotated[
    int | None, typer.Option("--gpu-layers", min=0, help="Layers on the GPU. Default: llama.cpp decides.")
]

ConcurrencyOption = Annotated[
    int | None, typer.Option("--concurrency", min=1, help="Have at most so many requests under way at once.")
]
RequestsPerMinuteOption = Annotated[
    float | None, typer.Option("--requests-per-minute", min=0.01, help="Send at most so many.")
]
TokensPerMinuteOption = Annotated[
    float | None, typer.Option("--tokens-per-minute", min=1, help="Use at most so many.")
]
MaxRequestsOption = Annotated[
    int | None, typer.Option("--max-requests", min=1, help="Stop before more requests than this.")
]
MaxCostOption = Annotated[
    float | None,
    typer.Option("--max-cost", min=0, help="Stop before it costs more than this, by the table of prices."),
]
PricesOption = Annotated[
    Path | None, typer.Option("--prices", metavar="FILE", help="Your own table of prices, as JSON.")
]

LimitOption = Annotated[int | None, typer.Option("--limit", min=1, help="Judge only the first so many pairs.")]

RenameOption = Annotated[
    list[str] | None,
    typer.Option(
        "--rename",
        metavar="THEIRS=OURS",
        help="Labels on a dimension of one name count for another: correctness_topical=correctness. "
        "May be given several times.",
    ),
]


def renames_from(words: list[str] | None) -> dict[str, str]:
    """The names that --rename gives.

    >>> renames_from(["style=format"])
    {'style': 'format'}
    """
    names = {}
    for word in words or []:
        theirs, equals, ours = word.partition("=")
        if not (theirs and equals and ours):
            raise InputError(f"--rename {word}", hint="write THEIRS=OURS, such as --rename style=format")
        names[theirs] = ours
    return names


def orders_from(word: str) -> Orders:
    """The orders that a word names."""
    for choice in ORDER_CHOICES:
        if word == choice:
            return choice
    raise InputError(f"--orders {word}", hint=f"one of {', '.join(ORDER_CHOICES)}")


WeighOption = Annotated[
    str,
    typer.Option(
        "--weigh",
        metavar="instructions|pairs",
        help="What weighs the same: each instruction, however many pairs it has, or each pair.",
    ),
]
KeepRepeatsOption = Annotated[
    bool,
    typer.Option(
        "--keep-repeats", help="Count pairs that repeat another exactly (instruction, outputs, models); else not."
    ),
]
