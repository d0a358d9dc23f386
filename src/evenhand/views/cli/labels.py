"""evenhand labels: what people said of the pairs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer
from rich.markup import escape
from rich.table import Table

from evenhand.core.errors import InputError
from evenhand.core.votes import DESIGNS, FILE
from evenhand.io.files import WRITES, write_rows
from evenhand.io.files.writing import check_writes
from evenhand.results.people import Imported, check_labels, import_labels, label_rows
from evenhand.results.plain import to_json
from evenhand.store import Store
from evenhand.store.labels import LabelRow
from evenhand.views import console
from evenhand.views.cli.app import WITH_FAILURES, app
from evenhand.views.cli.inputs import ColumnsOption, columns_from
from evenhand.views.cli.option_groups import argument, one_of, option
from evenhand.views.cli.options import DEFAULT_DB, DbOption, JsonOption, RenameOption, renames_from
from evenhand.views.export import LABELS, TEXTS, exported_labels

labels_app = typer.Typer(help="What people said of the pairs.", invoke_without_command=True)
app.add_typer(labels_app, name="labels")


@labels_app.callback()
def labels(context: typer.Context, db: DbOption = DEFAULT_DB, as_json: JsonOption = False) -> None:
    """List who has labelled what: votes in the pairs' own files, imported ones, and those collected by evenhand."""
    if context.invoked_subcommand:
        return
    if not db.is_file():
        raise InputError(f"no database at {db}", hint="evenhand judge PAIRS or labels import FILE writes one")
    with Store(db, read_only=True) as store:
        rows, unreadable = label_rows(store)
    if as_json:
        print(to_json({"labels": rows, "unreadable_pairs": unreadable}))
        return
    if rows:
        console.out.print(_table(rows))
    else:
        console.out.print("no labels of people here; evenhand labels import FILE brings some")
    if unreadable:
        console.out.print(
            f"[yellow]{console.count(unreadable, 'pair')}[/] with a field 'human' or 'dims' without votes in it,"
            " which counts for nothing",
            markup=True,
        )


@labels_app.command("import")
def labels_import(
    files: Annotated[list[Path], argument("FILE", "JSONL, JSON, CSV or Parquet, packed or not.")],
    db: DbOption = DEFAULT_DB,
    annotator: Annotated[str, option("--annotator NAME", "Who speaks where the file does not say.")] = FILE,
    rename: RenameOption = None,
    columns: ColumnsOption = None,
    skip_bad: Annotated[bool, option("--skip-bad", "Skip rows that cannot be read.")] = False,
    design: Annotated[
        str,
        option(
            "--design WORD",
            "How the labelled pairs were chosen, where that is not known: random, suggested or unknown.",
        ),
    ] = "",
    as_json: JsonOption = False,
) -> None:
    """Read labels of people out of files, and keep them beside the verdicts.

    A row is one vote (id or the three texts, annotator, dimension, label), one person's labels (labels), or
    the votes of several people on a pair (human, dims). Exit code 3: some ids led to no pair, or to several.
    """
    chosen = one_of("--design", design, DESIGNS) if design else None
    names, mapped = renames_from(rename), columns_from(columns)
    for file in files:  # all of them, before anything of one is kept
        check_labels(file, annotator=annotator, skip_bad=skip_bad, columns=mapped)
    with Store(db) as store:
        done = [
            import_labels(
                *(store, file),
                annotator=annotator,
                rename=names,
                skip_bad=skip_bad,
                checked=True,
                design=chosen,
                columns=mapped,
            )
            for file in files
        ]
    if as_json:
        every = [{"file": str(file), **result.plain()} for file, result in zip(files, done, strict=True)]
        print(to_json({"files": every}))
    else:
        for file, result in zip(files, done, strict=True):
            _show(file, result)
    if any(result.unknown or result.ambiguous or result.bad for result in done):
        raise typer.Exit(WITH_FAILURES)


@labels_app.command("export")
def labels_export(
    file: Annotated[Path, argument("FILE", f"Where to; the name ends in {', '.join(WRITES)}.")],
    db: DbOption = DEFAULT_DB,
    texts: Annotated[bool, option("--texts", "With instruction and responses.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Write what people said to a file, one label a row; labels import reads it back.

    Votes and the decisions of adjudicators are told apart by the column label_role.
    """
    check_writes(file)
    if not db.is_file():
        raise InputError(f"no database at {db}", hint="evenhand judge PAIRS or labels import FILE writes one")
    columns = {**LABELS, **TEXTS} if texts else LABELS
    with Store(db, read_only=True) as store:
        rows = ({name: row[name] for name in columns} for row in exported_labels(store))
        count = write_rows(file, rows, columns)
    if as_json:
        print(to_json({"labels": count, "columns": list(columns), "out": str(file)}))
    else:
        console.out.print(f"{console.count(count, 'label')}: {file}", markup=False)


def _show(file: Path, done: Imported) -> None:
    people, pairs = len(done.annotators), len(done.pairs)
    console.out.print(
        f"{file}: {console.count(done.labels, 'label')} of {console.count(pairs, 'pair')}"
        f" by {people:,} {'person' if people == 1 else 'people'}"
        f" on {', '.join(sorted(done.dimensions)) or 'nothing'}"
    )
    for count, what in (
        (done.designs["suggested"], "on pairs that were chosen because they were informative"),
        (done.designs["random"], "on pairs that were drawn at random"),
        (done.passed, "skipped by the person, which counts for nothing"),
        (done.replaced, "in place of an earlier label of the same person on the same texts"),
    ):
        if count:
            console.out.print(f"  of them {what}: {count:,}")
    for count, ids, what in (
        (done.unknown, done.unknown_ids, "an id that no pair here has; judge the pairs first, or give texts"),
        (done.ambiguous, done.ambiguous_ids, "an id that several pairs here have; give their texts"),
    ):
        if count:
            named = ", ".join(escape(console.one_line(name)) for name in ids)
            more = ", …" if count > len(ids) else ""
            console.out.print(f"  [red]{console.count(count, 'label')}[/]: {what}: {named}{more}", markup=True)
    for error in done.bad:
        console.out.print(f"  [yellow]passed over[/] {escape(console.one_line(str(error)))}", markup=True)


def _table(rows: list[LabelRow]) -> Table:
    table = console.plain_table("Labels of people", "annotator", "dimension", "where")
    for name in ("1", "tie", "2"):
        table.add_column(name, justify="right", style=console.COLOURS[name])
    table.add_numbers("skipped")
    for row in rows:
        names: list[Any] = [console.safe(word) for word in (row.annotator, row.dimension)]
        counts = (row.wins_1, row.ties, row.wins_2, row.passed)
        where = f"{row.where}, {row.role}" if row.role == "adjudicator" else row.where
        table.add_row(*names, where, *(f"{count:,}" for count in counts))
    return table
