"""evenhand results, evenhand reread: look at what is kept, without asking anyone."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.markup import escape

from evenhand import console
from evenhand.analysis import Column, columns_of, difference_facts, group_by, hear_people, human_facts
from evenhand.cli import result_tables as tables
from evenhand.cli.app import app
from evenhand.cli.opening import is_records, open_records, open_store
from evenhand.cli.options import DEFAULT_DB, DbOption, JsonOption, RecordsOption, RenameOption, renames_from
from evenhand.cli.running import show_run
from evenhand.errors import InputError
from evenhand.judge import Judgment
from evenhand.people import People
from evenhand.protocol import Protocol
from evenhand.report import Summary, usage_facts
from evenhand.shards import Shards
from evenhand.store import JudgeRow, Records, Store


@dataclass(frozen=True, slots=True)
class Wanted:
    """What besides the plain table was asked for."""

    by: str = ""
    against: str = ""
    between: str = ""
    human: bool = False
    width: float | None = None
    rename: Mapping[str, str] | None = None
    calibrated: bool = False

    def __bool__(self) -> bool:
        return bool(self.by or self.against or self.between or self.human)


@app.command()
def results(
    db: RecordsOption = DEFAULT_DB,
    spec: Annotated[str, typer.Option("--judge", "-j", metavar="MODEL", help="Only judges of this model.")] = "",
    protocol: Annotated[
        str, typer.Option("--protocol", "-p", metavar="NAME", help="Only under this protocol.")
    ] = "",
    by: Annotated[
        str,
        typer.Option(
            "--by", metavar="FIELD", help="For each value of a field of the pairs, or of model_1, model_2."
        ),
    ] = "",
    against: Annotated[
        str,
        typer.Option(
            "--against",
            metavar="RUN",
            help="The paired difference to other verdicts on the same pairs: a model, a protocol or a fingerprint"
            " in this database, or another database or folder of shards.",
        ),
    ] = "",
    between: Annotated[
        str,
        typer.Option("--between", metavar="DIMENSION,DIMENSION", help="The paired difference of two dimensions."),
    ] = "",
    human: Annotated[
        bool, typer.Option("--human", help="What people would say of all pairs, from their labels on some.")
    ] = False,
    width: Annotated[
        float | None,
        typer.Option(
            "--width", min=0.001, max=1.0, help="With --human: how many labels an interval of this width takes."
        ),
    ] = None,
    rename: RenameOption = None,
    calibrated: Annotated[
        bool, typer.Option("--calibrated", help="Apply what evenhand calibrate has fitted, where it has.")
    ] = False,
    plot: Annotated[
        Path | None, typer.Option("--plot", metavar="FILE", help="Draw the win rates into an SVG or PNG file.")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Print the table of a database again; or its verdicts in groups, beside other verdicts, or beside people's."""
    wanted = Wanted(by, against, between, human, width, renames_from(rename), calibrated)
    if calibrated and human:
        raise InputError(
            "--calibrated and --human would use the same labels twice", hint="--human corrects the judge by itself"
        )
    if width is not None and not human:
        raise InputError("--width says how narrow --human shall be", hint="give --human too")
    if plot:
        from evenhand.plots import check_plot_path

        check_plot_path(plot)
    with open_records(db) as store, ExitStack() as others:
        rows = [row for row in store.judges() if spec in ("", row.model) and protocol in ("", row.protocol)]
        if not rows:
            raise InputError(f"{db} holds no verdicts of that kind")
        if calibrated and not any(store.calibrations.of(row.id) for row in rows):
            raise InputError("none of these judges has been calibrated", hint="evenhand calibrate does that")
        found = [(*stored_summary(store, row, calibrated), more_facts(store, row, wanted, others)) for row in rows]
    if plot:
        draw_rates(plot, [(facts, more) for _, facts, more in found])
    if as_json:
        every = [{**facts, **more} for _, facts, more in found]
        print(console.facts_to_print({**every[-1], "judges": every}))
        return
    for summary, facts, more in found:
        if wanted:
            show_more(facts, more, wanted)
        else:
            show_results(summary, facts)


@app.command()
def reread(db: DbOption = DEFAULT_DB, as_json: JsonOption = False) -> None:
    """Read every kept answer again with the present reader, without asking anyone."""
    read = changed = 0
    with open_store(db) as store:
        for row in store.judges():
            protocol = Protocol.parse(row.template, name=row.protocol)
            seen, other = store.reread(row, [ask.dimensions for ask in protocol.asks])
            read, changed = read + seen, changed + other
    if as_json:
        print(console.facts_to_print({"verdicts": read, "changed": changed}))
    else:
        console.out.print(f"{read:,} verdicts read again, {changed:,} of them came out otherwise")


def heard(store: Records, row: JudgeRow, calibrated: bool) -> Iterator[Judgment]:
    """Every pair that a judge has heard, its findings as they are or calibrated."""
    if not calibrated:
        return store.judgments(row)
    from evenhand.calibrating import calibrated_judgments

    return calibrated_judgments(store, row)


def count(store: Records, row: JudgeRow, calibrated: bool) -> Summary:
    """Every dimension of a judge, counted; shards in blocks, without their texts."""
    if isinstance(store, Shards):  # of which none is calibrated
        from evenhand import counting
        from evenhand.shards.blocks import blocks

        return counting.summarise(blocks(store), row.dimensions)
    summary = Summary(row.dimensions)
    for judgment in in_roles(store, row, heard(store, row, calibrated)):
        summary.add(judgment)
    return summary


def in_roles(store: Records, row: JudgeRow, judgments: Iterator[Judgment]) -> Iterator[Judgment]:
    """Judgments with the candidate on side 1 throughout, where it was on different sides in different runs."""
    if not isinstance(store, Store) or len({side for *_, side in store.matches(row) if side}) < 2:
        return judgments
    return (each.turned() if each.pair.candidate == "2" else each for each in judgments)


def grouped(store: Records, row: JudgeRow, wanted: Wanted) -> dict[str | None, Summary]:
    """The same for each value of a field."""
    if isinstance(store, Shards):
        from evenhand import counting
        from evenhand.shards.blocks import blocks

        return counting.group_blocks(blocks(store, metadata=True), row.dimensions, wanted.by)
    return group_by(heard(store, row, wanted.calibrated), row.dimensions, wanted.by)


def columns(store: Records, row: JudgeRow, calibrated: bool) -> dict[str, Column]:
    """The values of each dimension, to be compared with others on the same pairs."""
    if isinstance(store, Shards):
        from evenhand import counting
        from evenhand.shards.blocks import blocks

        return counting.columns_of_blocks(blocks(store, keys=True))
    return columns_of(heard(store, row, calibrated))


def stored_summary(store: Records, row: JudgeRow, calibrated: bool = False) -> tuple[Summary, dict[str, Any]]:
    """What a database holds of one judge, counted."""
    summary = count(store, row, calibrated)
    usage, seconds = store.usage(row)
    return summary, {
        "judge": row.model,
        "protocol": row.protocol,
        "fingerprint": row.fingerprint,
        **({"calibrated": sorted(store.calibrations.of(row.id))} if calibrated else {}),
        **summary.facts(),
        "tokens": usage_facts(usage),
        "seconds": round(seconds, 3),
    }


def more_facts(store: Records, row: JudgeRow, wanted: Wanted, others: ExitStack) -> dict[str, Any]:
    """What was asked for besides the plain table."""
    facts: dict[str, Any] = {}
    if wanted.by:
        groups = grouped(store, row, wanted)
        facts["by"] = {
            "field": wanted.by,
            "groups": [{"value": value, **summary.facts()} for value, summary in groups.items()],
        }
    if wanted.against:
        facts["against"] = list(against_facts(store, row, wanted, others))
    if wanted.between:
        facts["between"] = [between_facts(store, row, wanted)]
    if wanted.human:
        said = hear_people(store.judgments(row), People(store, rename=wanted.rename))
        facts["human"] = {name: human_facts(labelled, wanted.width) for name, labelled in said.items()}
    return facts


def against_facts(store: Records, row: JudgeRow, wanted: Wanted, others: ExitStack) -> Iterator[dict[str, Any]]:
    """The paired differences between a judge and those that a name stands for, on the dimensions they share."""
    name, here = wanted.against, columns(store, row, wanted.calibrated)
    there = others.enter_context(open_records(Path(name))) if is_records(name) else store
    rows = [other for other in there.judges() if there is not store or _means(name, other)]
    rows = [other for other in rows if there is not store or other.id != row.id]
    if not rows:
        known = sorted({word for other in store.judges() for word in (other.model, other.protocol)})
        raise InputError(f"--against {name} stands for no other verdicts", hint=f"here are {', '.join(known)}")
    for other in rows:
        others_columns = columns(there, other, wanted.calibrated)
        for dimension in (dimension for dimension in here if dimension in others_columns):
            yield {
                "dimension": dimension,
                "against": f"{other.model} under {other.protocol}",
                "fingerprint": other.fingerprint,
                "db": name if there is not store else None,
                **difference_facts(here[dimension], others_columns[dimension]),
            }


def _means(name: str, row: JudgeRow) -> bool:
    return name in (row.model, row.protocol) or (len(name) >= 6 and row.fingerprint.startswith(name))


def between_facts(store: Records, row: JudgeRow, wanted: Wanted) -> dict[str, Any]:
    """The paired difference of two dimensions of one judge."""
    first, comma, second = (part.strip() for part in wanted.between.partition(","))
    found = columns(store, row, wanted.calibrated)
    missing = [name for name in (first, second) if name not in found]
    if not comma or missing:
        raise InputError(
            f"--between {wanted.between}", hint=f"two dimensions with a comma between them, of {', '.join(found)}"
        )
    return {"dimension": first, "against": second, **difference_facts(found[first], found[second])}


def show_results(summary: Summary, facts: Mapping[str, Any]) -> None:
    """The plain table, and the other readings below it."""
    mended = f", calibrated: {', '.join(facts['calibrated']) or 'nothing'}" if "calibrated" in facts else ""
    show_run(summary, dict(facts), f"{facts['judge']} under {facts['protocol']}{mended}")
    dimensions = facts["dimensions"]
    if any(tally["n"] for tally in dimensions.values()):
        console.out.print(tables.readings_table(dimensions, summary.sides[0]))
        say(tables.readings_notes(dimensions))


def show_more(facts: Mapping[str, Any], more: Mapping[str, Any], wanted: Wanted) -> None:
    """The tables of what was asked for."""
    title = f"{facts['judge']} under {facts['protocol']}: {console.count(facts['pairs'], 'pair')}"
    console.out.print()
    console.out.print(title, style="bold", markup=False, soft_wrap=True)
    if "by" in more:
        console.out.print(tables.groups_table(wanted.by, more["by"]["groups"]))
    for kind in ("against", "between"):
        if kind in more:
            console.out.print(tables.differences_table("Paired differences, in percentage points", more[kind]))
    if "human" in more:
        console.out.print(tables.human_table("What people would say of all pairs", more["human"]))
        say(tables.human_notes(more["human"], wanted.width))


def say(notes: Iterable[str]) -> None:
    """Sentences below a table."""
    for note in notes:
        console.out.print(escape(console.visible(note)), soft_wrap=True)


def draw_rates(file: Path, found: Iterable[tuple[Mapping[str, Any], Mapping[str, Any]]]) -> None:
    """The win rates as a picture: a line for each dimension of each judge, or for each group."""
    from evenhand.plots import save_plot, winrate_plot

    rows, sides = [], ("1", "2")
    several = list(found)
    for facts, more in several:
        sides = (facts["sides"]["1"], facts["sides"]["2"])
        parts = more["by"]["groups"] if "by" in more else [{"value": "", "dimensions": facts["dimensions"]}]
        for part in parts:
            for dimension, tally in part["dimensions"].items():
                names = [facts["protocol"] if len(several) > 1 else "", str(part["value"] or ""), dimension]
                low, high = tally["ci"] or (None, None)
                name = " · ".join(word for word in names if word)
                rows.append({"name": name, "value": tally["win_rate_1"], "low": low, "high": high, "n": tally["n"]})
    save_plot(file, winrate_plot(rows, sides=sides))
