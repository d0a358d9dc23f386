"""evenhand results, evenhand reread: look at what is kept, without asking anyone."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated

from evenhand.core.attacks import ATTACK_MARKS
from evenhand.core.errors import InputError
from evenhand.core.protocol import Protocol
from evenhand.core.verdict import found_on
from evenhand.engines.made import was_asked_here
from evenhand.results.answer import answer_of
from evenhand.results.comparison import Comparison, compare, values_of
from evenhand.results.groups import Group, group_by
from evenhand.results.human import human_rates
from evenhand.results.judges import choose_judges
from evenhand.results.length import alpaca_rates
from evenhand.results.people import People
from evenhand.results.plain import to_json
from evenhand.results.questions import correct_comparisons
from evenhand.results.run import JudgeSummary, Readings, blocks_of_judge, judge_summary
from evenhand.store import JudgeRow, Records, Store
from evenhand.views import console
from evenhand.views.charts import check_plot_path, save_plot, win_rate_chart
from evenhand.views.cli import result_tables as tables
from evenhand.views.cli.app import app
from evenhand.views.cli.opening import is_records, open_records, open_store
from evenhand.views.cli.option_groups import flat_options, option
from evenhand.views.cli.options import (
    DEFAULT_DB,
    USUAL_COUNT,
    CalibratedOption,
    CountOptions,
    DbOption,
    JsonOption,
    JudgeFilter,
    RecordsOption,
    RenameOption,
    renames_from,
)
from evenhand.views.cli.running import show_run, stored_examples


@dataclass(frozen=True)
class ResultOptions:
    """What besides the plain table is asked for."""

    by: Annotated[str, option("--by FIELD", "For each value of a field of the pairs, or of model_1, model_2.")] = ""
    against: Annotated[
        str,
        option(
            "--against RUN",
            "The paired difference to other verdicts on the same pairs: a model, a protocol or a fingerprint"
            " in this database, or another database or folder of shards.",
        ),
    ] = ""
    between: Annotated[str, option("--between DIMENSION,DIMENSION", "The paired difference of two dimensions.")] = (
        ""
    )
    human: Annotated[bool, option("--human", "What people would say of all pairs, from their labels on some.")] = (
        False
    )
    width: Annotated[
        float | None,
        option("--width", "With --human: how many labels an interval of this width takes.", min=0.001, max=1.0),
    ] = None
    rename: RenameOption = None
    calibrated: CalibratedOption = False
    alpaca: Annotated[
        bool, option("--alpaca-length-control", "AlpacaEval's length-controlled win rate, by its own formula.")
    ] = False
    count: CountOptions = USUAL_COUNT

    def __bool__(self) -> bool:
        return bool(self.by or self.against or self.between or self.human or self.alpaca)

    def check(self) -> None:
        """Refuse what has no meaning together."""
        if self.calibrated and self.human:
            raise InputError(
                "--calibrated and --human would use the same labels twice",
                hint="--human corrects the judge by itself",
            )
        if self.width is not None and not self.human:
            raise InputError("--width works only with --human", hint="give --human too")


# A win rate of side 1 says little here: the attacked side is 1 in some pairs and 2 in others.
_ATTACKED_TOO = "The attacked pairs are in these groups; what attacks did is on the card (evenhand card)."


@app.command()
@flat_options
def results(
    *,
    judges: JudgeFilter,
    db: RecordsOption = DEFAULT_DB,
    options: ResultOptions,
    plot: Annotated[Path | None, option("--plot FILE", "Draw the win rates into an SVG or PNG file.")] = None,
    as_json: JsonOption = False,
) -> None:
    """Print the table of a database again; or its verdicts in groups, beside other verdicts, or beside people's."""
    options.check()
    if plot:
        check_plot_path(plot)
    with open_records(db) as store, ExitStack() as others:
        rows = judges.find(store.judges(counted=False), db)
        if options.calibrated and not any(store.calibrations.of(row.id) for row in rows):
            raise InputError("none of these judges has been calibrated", hint="evenhand calibrate does that")
        found = [_read(store, row, options, others) for row in rows]
    if plot:
        draw_rates(plot, found)
    if as_json:
        every = [{**summary.plain(), **more.plain()} for summary, more in found]
        print(to_json({**every[-1], "judges": every}))
        return
    for summary, more in found:
        if options:
            show_more(summary, more, options)
        else:
            show_results(summary)
    if not options and any(answer_of(summary.summary).kind == "several" for summary, _ in found):
        rank = shlex.join(["evenhand", "rank", "--db", str(db)])
        console.out.print(f"the ranking: {rank}", markup=False, highlight=False)
    if plot:
        console.out.print(f"wrote {plot}", markup=False)


@app.command()
def reread(db: DbOption = DEFAULT_DB, as_json: JsonOption = False) -> None:
    """Read every kept answer again with the present reader, without asking anyone."""
    read = changed = 0
    with open_store(db) as store:
        for row in store.judges():
            if not was_asked_here(row.identity):  # how its verdicts were read off its answers is not known here
                continue
            protocol = Protocol.parse(row.template, name=row.protocol)
            seen, other = store.reread(
                row,
                [question.dimensions for question in protocol.questions],
                protocol.questions[0].form,
                protocol.shown_texts,
            )
            read, changed = read + seen, changed + other
    if as_json:
        print(to_json({"verdicts": read, "changed": changed}))
    else:
        console.out.print(f"{read:,} verdicts read again, {changed:,} of them changed")


def _read(
    store: Records, row: JudgeRow, options: ResultOptions, others: ExitStack
) -> tuple[JudgeSummary, Readings]:
    """A judge with what was asked for besides."""
    counting, people = options.count.counting, People(store, rename=renames_from(options.rename))
    found = judge_summary(store, row, calibrated=options.calibrated, counting=counting)
    if isinstance(store, Store):
        found = replace(found, examples=stored_examples(store, row.id, found.summary.reasons))
    groups: list[Group] = []
    if options.by:
        attacked = options.by in ATTACK_MARKS
        blocks = blocks_of_judge(store, row, calibrated=options.calibrated, metadata=True, attacked=attacked)
        groups = group_by(blocks, found_on(row.dimensions), options.by, counting)
    return found, Readings(
        options.by,
        groups,
        correct_comparisons(compare_judges(store, row, options, others)) if options.against else [],
        correct_comparisons([compare_dimensions(store, row, options)]) if options.between else [],
        human_rates(store, row, people, options.width, keep_repeats=counting.keep_repeats)
        if options.human
        else None,
        alpaca_rates(found.summary) if options.alpaca else None,
    )


def compare_judges(
    store: Records, row: JudgeRow, options: ResultOptions, others: ExitStack
) -> Iterator[Comparison]:
    """The paired differences between a judge and those that a name stands for, on the dimensions they share."""
    name, here = options.against, values_of(blocks_of_judge(store, row, calibrated=options.calibrated))
    there = open_records(Path(name)) if is_records(name) else store
    if there is not store:
        others.enter_context(there)
    rows = there.judges() if there is not store else [match for match, _ in choose_judges(store.judges(), name)]
    rows = [other for other in rows if there is not store or other.id != row.id]
    if not rows:
        known = sorted({word for other in store.judges() for word in (other.model, other.protocol)})
        raise InputError(f"--against {name} matches no other verdicts", hint=f"here are {', '.join(known)}")
    for other in rows:
        beside = values_of(blocks_of_judge(there, other, calibrated=options.calibrated))
        for dimension in (dimension for dimension in here if dimension in beside):
            yield compare(
                here[dimension],
                beside[dimension],
                dimension,
                f"{other.model} under {other.protocol}",
                counting=options.count.counting,
                fingerprint=other.fingerprint,
                db=name if there is not store else None,
            )


def compare_dimensions(store: Records, row: JudgeRow, options: ResultOptions) -> Comparison:
    """The paired difference of two dimensions of one judge."""
    first, comma, second = (part.strip() for part in options.between.partition(","))
    found = values_of(blocks_of_judge(store, row, calibrated=options.calibrated))
    missing = [name for name in (first, second) if name not in found]
    if not comma or missing:
        raise InputError(
            f"--between {options.between}", hint=f"two dimensions with a comma between them, of {', '.join(found)}"
        )
    return compare(found[first], found[second], first, second, counting=options.count.counting)


def show_results(found: JudgeSummary) -> None:
    """The plain table, and the other readings below it."""
    names = f", calibrated: {', '.join(found.calibrated) or 'nothing'}" if found.calibrated is not None else ""
    show_run(found, f"{found.title}{names}")
    dimensions = found.summary.dimensions
    if any(each.n for each in dimensions.values()):
        console.out.print(tables.readings_table(dimensions, found.summary.sides[0]))
        print_notes(tables.readings_notes(dimensions))


def show_more(found: JudgeSummary, more: Readings, options: ResultOptions) -> None:
    """The tables of what was asked for."""
    title = f"{found.title}: {console.count(found.summary.pairs, 'pair')}"
    console.out.print()
    console.out.print(console.safe(title, "bold"))
    if more.by:
        console.out.print(tables.groups_table(more.by, more.groups))
        print_notes(tables.groups_notes(more.groups))
        if found.summary.attacked and more.by in ATTACK_MARKS:
            console.out.print(_ATTACKED_TOO, style="dim")
    for comparisons in (more.against, more.between):
        if comparisons:
            console.out.print(tables.differences_table("Paired differences, in percentage points", comparisons))
            print_notes(tables.differences_notes(comparisons))
    if more.alpaca is not None:
        console.out.print(tables.alpaca_table(more.alpaca, found.summary.sides[0]))
        print_notes(tables.alpaca_notes(more.alpaca))
    if more.human is not None:
        console.out.print(tables.human_table(more.human, found.summary.sides[0]))
        print_notes(tables.human_notes(more.human, options.width))


def print_notes(notes: Iterable[str]) -> None:
    """Sentences below a table."""
    for note in notes:
        console.out.print(console.one_line(note))


def draw_rates(file: Path, found: Sequence[tuple[JudgeSummary, Readings]]) -> None:
    """The win rates as a picture: a line for each dimension of each judge, or for each group."""
    titles = [judge.title for judge, _ in found]
    rates = []
    for (judge, more), title in zip(found, titles, strict=True):
        parts = [(group.value or "", group.summary) for group in more.groups] or [("", judge.summary)]
        for value, summary in parts:
            for dimension, each in summary.dimensions.items():
                words = [title if len(found) > 1 else "", value, dimension]
                rates.append((" · ".join(word for word in words if word), each))
    title = f"Win rates: {titles[0]}" if len(titles) == 1 else ""  # else each line begins with its judge
    save_plot(file, win_rate_chart(rates, sides=found[-1][0].summary.sides, title=title))
