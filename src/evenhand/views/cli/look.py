"""evenhand look: what a file was recognised as."""

from __future__ import annotations

from typing import Annotated

from rich.table import Table

from evenhand.core.pair import excerpt, read_label
from evenhand.io.files import Row
from evenhand.io.pairs import JoinOptions
from evenhand.io.pairs.preview import FilePreview, look_at
from evenhand.results.plain import to_json
from evenhand.views import console
from evenhand.views.cli.app import app
from evenhand.views.cli.inputs import ColumnsOption, QuestionsOption, SkipBadOption, TurnOption, columns_from
from evenhand.views.cli.option_groups import argument
from evenhand.views.cli.options import JsonOption

_SHOWN = {
    "pairs": ("instruction", "output_1", "output_2", "model_1", "model_2", "label"),
    "outputs": ("instruction", "output", "model"),
}


@app.command()
def look(
    files: Annotated[list[str], argument("FILE...", "Any file of pairs or outputs.")],
    columns: ColumnsOption = None,
    questions: QuestionsOption = None,
    turn: TurnOption = 1,
    skip_bad: SkipBadOption = False,
    as_json: JsonOption = False,
) -> None:
    """Say what a file was recognised as, show three rows as they would be judged, and name what is left over."""
    reading = JoinOptions(questions, turn, skip_bad=skip_bad, columns=columns_from(columns))
    previews = [preview for file in files for preview in look_at(file, reading)]
    if as_json:
        print(to_json({"files": previews}))
        return
    for preview in previews:
        _show(preview)


def _show(preview: FilePreview) -> None:
    what = "pairs" if preview.kind == "pairs" else "outputs of a model"
    name = "" if preview.format == preview.kind else f", recognised as {preview.format}"
    console.out.print(f"{console.visible(preview.file)}: {what}{name}", markup=False)
    console.out.print(_table(preview))
    for note in preview.notes:
        console.out.print(note, style="yellow", markup=False)
    left = ", ".join(console.visible(name) for name in preview.left_over)
    said = f"left over, kept as metadata: {left}" if left else "no field is left over"
    console.out.print(said, style="dim", markup=False)


def _table(preview: FilePreview) -> Table:
    names = [name for name in _SHOWN[preview.kind] if any(row.get(name) not in (None, "") for row in preview.rows)]
    table = console.plain_table("", *names)
    for row in preview.rows:
        table.add_row(*(console.safe(excerpt(_cell(row, name))) for name in names))
    return table


def _cell(row: Row, name: str) -> str:
    value = read_label(row[name]) if name == "label" and name in row else row.get(name)
    return "" if value is None else str(value)
