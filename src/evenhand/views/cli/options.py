"""Options that several commands take, in one wording."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from evenhand.core.errors import InputError
from evenhand.core.fence import FENCES, FenceKind
from evenhand.results.judges import judges_named, judges_there
from evenhand.store import JudgeRow
from evenhand.views.cli.opening import DEFAULT_DB as DEFAULT_DB
from evenhand.views.cli.opening import bring_up_to_date
from evenhand.views.cli.option_groups import ADVANCED, INPUT, JUDGE, LIMITS, OUTPUT, one_of, option

if TYPE_CHECKING:  # with numpy, which takes a third of a second
    from evenhand.results.counting import Counting


DbOption = Annotated[Path, option("--db FILE", "Where verdicts are kept.", OUTPUT, callback=bring_up_to_date)]
RecordsOption = Annotated[
    Path,
    option(
        "--db FILE|DIR",
        "Where verdicts are kept: a database, or a folder of shards.",
        INPUT,
        callback=bring_up_to_date,
    ),
]
JsonOption = Annotated[bool, option("--json", "Print the results as JSON on standard output.", OUTPUT)]
SetOption = Annotated[
    list[str] | None,
    option(
        "--set NAME=VALUE",
        "A setting of a judge behind an endpoint: key_env, mode, effort, max_tokens, temperature, timeout, "
        "or any other field of the request. May be given several times.",
        ADVANCED,
    ),
]
SeedOption = Annotated[
    int,
    option(
        "--seed",
        "Decides the orders with --orders random, and which pairs come first with --until-decided.",
        ADVANCED,
    ),
]
OnOption = Annotated[
    str, option("--on DIMENSION", "The dimension that decides. Default: the parts combined, else overall.", JUDGE)
]
FenceOption = Annotated[
    str | None,
    option(
        f"--fence {'|'.join(FENCES)}",
        "Set the pair's texts off, so that nothing in them passes for a heading of the template: by a mark"
        " before each line, or between lines with a word that no text holds. Default: as the template says.",
        ADVANCED,
    ),
]


LimitOption = Annotated[int | None, option("--limit", "Judge only the first N pairs.", LIMITS, min=1)]
DryRunOption = Annotated[
    bool,
    option(
        "--dry-run",
        "Say what the run would take, and keep nothing; a model that runs here is timed on a pair or two.",
        LIMITS,
    ),
]

RenameOption = Annotated[
    list[str] | None,
    option(
        "--rename THEIRS=OURS",
        "Labels on a dimension of one name count for another: correctness_topical=correctness. "
        "May be given several times.",
        INPUT,
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


def fence_from(word: str | None) -> FenceKind | None:
    """The fence that a word names; None where the template decides."""
    return None if word is None else one_of("--fence", word, FENCES)


CalibratedOption = Annotated[
    bool, option("--calibrated", "Apply the calibrations that evenhand calibrate has fitted.")
]


@dataclass(frozen=True)
class CountOptions:
    """How pairs are counted."""

    weigh: Annotated[
        str,
        option(
            "--weigh instructions|pairs",
            "What weighs the same: each instruction, however many pairs it has, or each pair.",
        ),
    ] = "instructions"
    keep_repeats: Annotated[
        bool,
        option("--keep-repeats", "Also count pairs that repeat another exactly (instruction, outputs, models)."),
    ] = False

    @property
    def counting(self) -> Counting:
        """The same for those who count."""
        from evenhand.results.counting import Counting, weighting_from

        return Counting(weighting_from(self.weigh), self.keep_repeats)


USUAL_COUNT = CountOptions()


@dataclass(frozen=True)
class JudgeFilter:
    """Which judges of a database are meant."""

    spec: Annotated[
        str, option("--judge -j NAME", "Only this judge: its model, model/protocol or fingerprint.")
    ] = ""
    protocol: Annotated[str, option("--protocol -p NAME", "Only under this protocol.")] = ""

    def find(self, judges: Sequence[JudgeRow], db: Path, hint: str = "") -> list[JudgeRow]:
        """These, of all judges of a database; InputError where none is."""
        found = judges_named(judges, self.spec, self.protocol)
        if not found:
            raise InputError(f"{db} holds no verdicts of that kind", hint=judges_there(judges) or hint)
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
