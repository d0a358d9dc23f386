"""Options that several commands take, in one wording."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from evenhand.core.errors import InputError
from evenhand.core.fence import FENCES, FenceKind
from evenhand.core.judge import ORDER_CHOICES, Orders
from evenhand.core.jury import POOLS, Pool
from evenhand.views.cli.opening import bring_up_to_date

DEFAULT_DB = Path("evenhand.db")

# The panels of --help, in the order in which they stand there.
INPUT, JUDGE, LIMITS, OUTPUT, ADVANCED = "Input", "Judge", "Limits", "Output", "Advanced"

JudgeOption = Annotated[
    str,
    typer.Option(
        "--judge",
        "-j",
        metavar="SPEC",
        help="A model of the catalog (see [bold]evenhand models[/]), a path to a GGUF file, "
        "hf:owner/repo/file.gguf, an endpoint such as openai:MODEL or vllm:MODEL, http://host/v1#MODEL, "
        "or head:FILE, which [bold]evenhand learn[/] writes. Several with commas between are a jury. "
        "Default: head:general, which comes trained; with --protocol, the model that is asked.",
        rich_help_panel=JUDGE,
    ),
]
PoolOption = Annotated[
    str,
    typer.Option(
        "--pool",
        metavar="|".join(POOLS),
        help="How several judges are pooled: the mean of their log-odds, calibrated where that is kept, or a vote.",
        rich_help_panel=JUDGE,
    ),
]
WeightsOption = Annotated[
    str,
    typer.Option(
        "--weights", metavar="NUMBERS", help="What each judge of a jury weighs: 2,1,1.", rich_help_panel=JUDGE
    ),
]
QuorumOption = Annotated[
    int,
    typer.Option(
        "--quorum",
        min=0,
        help="So many judges of a jury must speak on a pair for a verdict. Default: all.",
        rich_help_panel=JUDGE,
    ),
]
EscalateOption = Annotated[
    str,
    typer.Option(
        "--escalate",
        metavar="SPECS",
        help="Judges from the cheapest to the best with commas between, and people last if they are to decide the"
        " rest: small,large,people. Each decides what it may, by the labels of people that are there.",
        rich_help_panel=JUDGE,
    ),
]
AgreeOption = Annotated[
    float,
    typer.Option(
        "--agree",
        help="With --escalate: on what share of the decided pairs people must agree, with 95% confidence.",
        rich_help_panel=JUDGE,
    ),
]
ProtocolOption = Annotated[
    str | None,
    typer.Option(
        "--protocol",
        "-p",
        metavar="NAME|FILE",
        help="What the judge is asked: a built-in protocol or a template file. Default: weighed for a model that"
        " runs here, chained for one behind HTTP; a trained head is not asked.",
        rich_help_panel=JUDGE,
    ),
]
OrdersOption = Annotated[
    str,
    typer.Option(
        "--orders",
        metavar="|".join(ORDER_CHOICES),
        help="In which orders each pair is judged.",
        rich_help_panel=JUDGE,
    ),
]
DbOption = Annotated[
    Path,
    typer.Option(
        "--db", metavar="FILE", help="Where verdicts are kept.", callback=bring_up_to_date, rich_help_panel=OUTPUT
    ),
]
RecordsOption = Annotated[
    Path,
    typer.Option(
        "--db",
        metavar="FILE|DIR",
        help="Where verdicts are kept: a database, or a folder of shards.",
        callback=bring_up_to_date,
        rich_help_panel=INPUT,
    ),
]
JsonOption = Annotated[
    bool, typer.Option("--json", help="Print the results as JSON on standard output.", rich_help_panel=OUTPUT)
]
SetOption = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="NAME=VALUE",
        help="A setting of a judge behind an endpoint: key_env, mode, effort, max_tokens, temperature, timeout, "
        "or any other field of the request. May be given several times.",
        rich_help_panel=ADVANCED,
    ),
]
SamplesOption = Annotated[
    int,
    typer.Option(
        "--samples",
        min=1,
        help="Answers to sample where an endpoint gives no probabilities.",
        rich_help_panel=ADVANCED,
    ),
]
RepeatOption = Annotated[
    int,
    typer.Option(
        "--repeat",
        min=1,
        help="2 asks everything a second time, to tell noise from position bias.",
        rich_help_panel=ADVANCED,
    ),
]
SeedOption = Annotated[
    int,
    typer.Option(
        "--seed",
        help="Decides the orders with --orders random, and which pairs come first with --until-decided.",
        rich_help_panel=ADVANCED,
    ),
]
OnOption = Annotated[
    str,
    typer.Option(
        "--on",
        metavar="DIMENSION",
        help="The dimension that decides. Default: the parts combined, else overall.",
        rich_help_panel=JUDGE,
    ),
]
RawOption = Annotated[
    bool,
    typer.Option(
        "--raw-markup",
        help="Send the template's own markup instead of the model's chat template.",
        rich_help_panel=ADVANCED,
    ),
]
FenceOption = Annotated[
    str | None,
    typer.Option(
        "--fence",
        metavar="|".join(FENCES),
        help="Set the pair's texts off, so that nothing in them passes for a heading of the template: by a mark"
        " before each line, or between lines with a word that no text holds. Default: as the template says.",
        rich_help_panel=ADVANCED,
    ),
]
ContextOption = Annotated[
    int | None,
    typer.Option(
        "--context",
        min=256,
        metavar="TOKENS",
        help="The model's context. Default: up to 16384.",
        rich_help_panel=ADVANCED,
    ),
]
ThreadsOption = Annotated[
    int | None,
    typer.Option("--threads", min=1, help="Of the embedded model. Default: all cores.", rich_help_panel=ADVANCED),
]
GpuOption = Annotated[
    int | None,
    typer.Option(
        "--gpu-layers", min=0, help="Layers on the GPU. Default: llama.cpp decides.", rich_help_panel=ADVANCED
    ),
]

BatchOption = Annotated[
    bool,
    typer.Option(
        "--batch",
        help="Ask through the batches of OpenAI or Anthropic: half the price, within a day. The same command picks"
        " up what is under way.",
        rich_help_panel=JUDGE,
    ),
]
DetachOption = Annotated[
    bool,
    typer.Option(
        "--detach",
        help="With --batch: send, take in what has ended, and do not wait for the rest.",
        rich_help_panel=JUDGE,
    ),
]

ConcurrencyOption = Annotated[
    int | None,
    typer.Option(
        "--concurrency", min=1, help="Have at most so many requests under way at once.", rich_help_panel=LIMITS
    ),
]
RequestsPerMinuteOption = Annotated[
    float | None,
    typer.Option("--requests-per-minute", min=0.01, help="Send at most so many.", rich_help_panel=LIMITS),
]
TokensPerMinuteOption = Annotated[
    float | None, typer.Option("--tokens-per-minute", min=1, help="Use at most so many.", rich_help_panel=LIMITS)
]
MaxRequestsOption = Annotated[
    int | None,
    typer.Option("--max-requests", min=1, help="Stop before more requests than this.", rich_help_panel=LIMITS),
]
MaxCostOption = Annotated[
    float | None,
    typer.Option(
        "--max-cost",
        min=0,
        help="Stop before it costs more than this, by the table of prices.",
        rich_help_panel=LIMITS,
    ),
]
PricesOption = Annotated[
    Path | None,
    typer.Option("--prices", metavar="FILE", help="Your own table of prices, as JSON.", rich_help_panel=LIMITS),
]

LimitOption = Annotated[
    int | None, typer.Option("--limit", min=1, help="Judge only the first so many pairs.", rich_help_panel=LIMITS)
]
DryRunOption = Annotated[
    bool,
    typer.Option(
        "--dry-run",
        help="Say what the run would take, and keep nothing; a model that runs here is timed on a pair or two.",
        rich_help_panel=LIMITS,
    ),
]

RenameOption = Annotated[
    list[str] | None,
    typer.Option(
        "--rename",
        metavar="THEIRS=OURS",
        help="Labels on a dimension of one name count for another: correctness_topical=correctness. "
        "May be given several times.",
        rich_help_panel=INPUT,
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


def fence_from(word: str | None) -> FenceKind | None:
    """The fence that a word names; None where the template decides."""
    for kind in FENCES:
        if word == kind:
            return kind
    if word is None:
        return None
    raise InputError(f"--fence {word}", hint=f"one of {', '.join(FENCES)}")


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


@dataclass(frozen=True)
class JudgeFilter:
    """Which judges of a database are meant."""

    spec: Annotated[
        str,
        typer.Option(
            "--judge", "-j", metavar="NAME", help="Only this judge: its model, model/protocol or fingerprint."
        ),
    ] = ""
    protocol: Annotated[str, typer.Option("--protocol", "-p", metavar="NAME", help="Only under this protocol.")] = (
        ""
    )


def pool_from(word: str) -> Pool:
    """What --pool says."""
    found = next((pool for pool in POOLS if pool == word), None)
    if found is None:
        raise InputError(f"--pool {word}", hint=f"one of {', '.join(POOLS)}")
    return found


def weights_from(text: str) -> tuple[float, ...]:
    """What --weights says.

    >>> weights_from("2, 1,1"), weights_from("")
    ((2.0, 1.0, 1.0), ())
    """
    try:
        return tuple(float(part) for part in text.split(",")) if text else ()
    except ValueError:
        raise InputError(
            f"--weights {text}", hint="numbers with commas between, one for each judge: 2,1,1"
        ) from None
