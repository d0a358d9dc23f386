"""Where pairs come from on the command line: files of pairs, or models' outputs that are joined."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Literal

from evenhand.core.errors import InputError, PairError
from evenhand.core.pair import Pair
from evenhand.core.protocol import Protocol
from evenhand.io.pairs import JoinOptions, Unmatched, check_pairs, join_outputs, mark_of, read_pairs
from evenhand.io.pairs.recognition import parse_columns
from evenhand.results.wording import unmatched_text
from evenhand.store import Store
from evenhand.views import console
from evenhand.views.cli.option_groups import INPUT, argument, option
from evenhand.views.jury import AnyJudge, ManyJudges

PairsArgument = Annotated[
    list[str] | None,
    argument(
        "PAIRS",
        "Files of pairs in any format that [bold]evenhand look[/] knows: .jsonl, .json, .csv or .parquet, also"
        " .gz and .zst; a glob in quotes; a folder of Parquet or of Hugging Face datasets; hf:owner/data:split;"
        " '-' is standard input.",
    ),
]
BaselineOption = Annotated[
    str | None, option("--baseline [NAME=]OUTPUTS", "Outputs of the old model, joined on the instruction.", INPUT)
]
QuestionsOption = Annotated[
    Path | None, option("--questions FILE", "The questions of MT-Bench or Arena-Hard answers.", INPUT)
]
TurnOption = Annotated[
    int, option("--turn", "How far into conversations of several turns the outputs are compared.", INPUT, min=1)
]
JoinOnOption = Annotated[str, option("--join-on FIELD", "Join outputs on this field, such as id.", INPUT)]
_BAD_SHOWN = 5  # broken rows that are named
SkipBadOption = Annotated[bool, option("--skip-bad", "Skip broken rows and say how many.", INPUT)]
ColumnsOption = Annotated[
    str | None,
    option(
        "--columns NAME=FIELD,...",
        "Which fields of an unknown format are what: instruction=prompt,output_1=chosen,output_2=rejected.",
        INPUT,
    ),
]


@dataclass(frozen=True)
class Input:
    """Pairs that were checked, every one, before anything is judged."""

    count: int
    read: Callable[[], Iterator[Pair]]
    bad: list[PairError]
    unmatched: list[Unmatched]
    mark: str | None = None  # of files of which every row is good
    notes: Mapping[str, int] = field(default_factory=dict)  # what is to be said of the files, and of how many rows

    def check_slots(self, protocol: Protocol) -> None:
        """Refuse pairs that cannot fill a slot of the protocol, before a model is opened."""
        if protocol.more:
            for pair in self.read():
                protocol.more_texts(pair)

    def begin(self, judge: AnyJudge) -> bool:
        """Remember that the files were checked: the next run over them begins at once. Is all of them judged?"""
        if self.mark is None:
            return False
        judge.store.note_checked(self.mark, self.count, self.notes)
        number = judge.store.judge_book.find(judge.setup.fingerprint)
        return number is not None and judge.store.is_finished(self.mark, number, _orders(judge))

    def end(self, judge: AnyJudge, judged: int) -> None:
        """Remember that all of the files is judged, if it is; of a jury each juror's own runs tell."""
        if isinstance(judge, ManyJudges):
            return
        number = judge.store.judge_book.find(judge.setup.fingerprint)
        if self.mark is not None and number is not None and judged == self.count:
            judge.store.note_finished(self.mark, number, _orders(judge))

    def plain(self) -> dict[str, object]:
        """What a run says of its input."""
        left_out = {"skipped": len(self.bad), "unmatched": self.unmatched}
        return {**left_out, **({"notes": self.notes} if self.notes else {})}

    def print(self) -> None:
        """Tell what was left out, before the run begins."""
        for fault in self.bad[:_BAD_SHOWN]:
            console.err.print(f"skipped: {fault.message}", style="yellow", markup=False)
        if (more := len(self.bad) - _BAD_SHOWN) > 0:
            console.err.print(f"skipped: {console.count(more, 'more row')}", style="yellow")
        for note, rows in self.notes.items():
            counted = console.count(rows, "row")
            console.err.print(f"{console.visible(note)} ({counted})", style="yellow", markup=False)
        for each in self.unmatched:
            print_unmatched(each)


def find_input(
    pairs: list[str] | None,
    candidate: str | None,
    baseline: str | None,
    reading: JoinOptions,
    db: Path | None = None,
    candidate_side: Literal["1", "2"] = "1",
) -> Input:
    """The pairs that a command line names, all of them read once and found good.

    Files that are known to `db` by every byte were found good before, and are not looked through again.
    """
    if candidate or baseline:
        if pairs:
            raise InputError("PAIRS and --candidate are two ways to say what is judged", hint="give one of them")
        if not candidate or not baseline:
            missing = "--candidate" if baseline else "--baseline"
            raise InputError(f"no {missing}", hint="--candidate NEW --baseline OLD are given together")
        joined = join_outputs(candidate, baseline, reading, candidate_side=candidate_side)
        return Input(len(joined), lambda: iter(joined), joined.bad, joined.unmatched, notes=joined.notes)
    if not pairs:
        raise InputError("nothing to judge", hint="give a file of pairs, or --candidate NEW --baseline OLD")
    mark, columns = mark_of(pairs, reading.columns), reading.columns
    known, notes = _checked_before(db, mark)
    count, bad = known or 0, list[PairError]()
    if known is None:
        count, bad = check_pairs(pairs, skip_bad=reading.skip_bad, columns=columns, notes=notes)

    def read() -> Iterator[Pair]:
        return read_pairs(pairs, skip_bad=reading.skip_bad, columns=columns)

    return Input(count, read, bad, [], mark=None if bad else mark, notes=notes)


def columns_from(text: str | None) -> dict[str, str]:
    """What `--columns` says."""
    return parse_columns(text) if text else {}


def _orders(judge: AnyJudge) -> str:
    """In which orders pairs are judged: with another seed, random orders are others."""
    return judge.orders if judge.orders != "random" else f"random {judge.seed}"


def _checked_before(db: Path | None, mark: str | None) -> tuple[int | None, Counter[str]]:
    """How many pairs there are in files that were checked before, if they were, and what is to be said of them."""
    if mark is None or db is None or not db.is_file():
        return None, Counter()
    with Store(db, read_only=True) as store:
        return store.checked(mark), Counter(store.notes_on(mark))


def print_unmatched(each: Unmatched) -> None:
    """Count and name the instructions that a model did not answer."""
    console.err.print(console.visible(unmatched_text(each)), style="yellow", markup=False)
