"""evenhand report: all that a database says, in one file."""

from __future__ import annotations

import io
import sys
from collections.abc import Callable
from pathlib import Path
from typing import IO, TYPE_CHECKING, Annotated

from evenhand.core.errors import InputError
from evenhand.io.files.writing import written_whole
from evenhand.store import Records
from evenhand.views import console
from evenhand.views.cli.app import app
from evenhand.views.cli.opening import open_records
from evenhand.views.cli.option_groups import flat_options, option
from evenhand.views.cli.options import DEFAULT_DB, JsonOption, JudgeFilter, RecordsOption

if TYPE_CHECKING:
    from evenhand.views.report import Report

FORMATS = {".html": "html", ".htm": "html", ".md": "md", ".markdown": "md"}
_OTHER = {".json", ".jsonl", ".csv", ".pdf", ".docx", ".xlsx"}  # an HTML page in such a file surprises
PIP = "pip install 'evenhand[web]'"
_PAIRS = {"html": 500, "md": 0}  # a pull request wants the numbers


@app.command()
@flat_options
def report(
    judges: JudgeFilter,
    db: RecordsOption = DEFAULT_DB,
    out: Annotated[
        Path | None, option("--out -o FILE", "Where to; - is standard output. Default: report.html.")
    ] = None,
    form: Annotated[str, option("--format html|md", "Default: by the file's name, or html.")] = "",
    dimension: Annotated[
        str,
        option(
            "--dimension -d NAME", "What examples and rankings go by. Default: the parts combined, else overall."
        ),
    ] = "",
    pairs: Annotated[
        int | None,
        option("--pairs N", "Show up to N pairs, drawn by the seed. Default: 500, in Markdown 0.", min=0),
    ] = None,
    examples: Annotated[int, option("--examples N", "Pairs of each kind.", min=0)] = 5,
    seed: Annotated[int, option("--seed", "Draws the pairs that are shown.")] = 0,
    title: Annotated[str, option("--title TEXT", "The heading.")] = "",
    date: Annotated[str, option("--date TEXT", "A date to show. Default: none.")] = "",
    as_json: JsonOption = False,
) -> None:
    """Write one file with everything: an HTML page that opens offline, or Markdown for a pull request.

    With --json the results go to standard output, and a file is written only if --out names one.
    """
    from evenhand.results.plain import to_json
    from evenhand.views.report import ReportOptions, compile_report

    kind = _format(form, out)
    shown = _PAIRS[kind] if pairs is None else pairs
    options = ReportOptions(dimension, examples, shown, seed, title, date, example_texts=kind == "html")
    with open_records(db) as store:
        with_pairs = [row for row in store.judges() if row.pairs]
        found = compile_report(store, judges.find(with_pairs, db), options)
        target = out or (None if as_json else Path(f"report.{kind}"))
        if target is not None:
            write_report(found, store, kind, target)
    if as_json:
        print(to_json(found))
    elif target is not None and str(target) != "-":
        console.out.print(f"wrote {target}", markup=False)


def _format(word: str, out: Path | None) -> str:
    if not word and out is not None and out.suffix.lower() in _OTHER:
        raise InputError(
            f"a report is HTML or Markdown, not {out.suffix}",
            hint=f"{out.with_suffix('.html').name}, {out.with_suffix('.md').name}; or --json, on standard output",
        )
    kind = word or (FORMATS.get(out.suffix.lower(), "html") if out else "html")
    if kind not in _PAIRS:
        raise InputError(f"--format {kind}", hint="one of html, md")
    return kind


def write_report(found: Report, store: Records, kind: str, target: Path) -> None:
    """Write a report to a file, or to standard output for "-"."""
    write = _writer(kind)
    if str(target) == "-":
        write(found, store, sys.stdout)
        return
    try:
        # What fails on the way leaves an older report as it is.
        with (
            written_whole(target) as raw,
            io.TextIOWrapper(raw, encoding="utf-8", errors="replace", newline="\n") as file,
        ):
            write(found, store, file)
    except OSError as fault:
        raise InputError(f"{target} cannot be written: {fault.strerror}", hint="does the folder exist?") from None


def _writer(kind: str) -> Callable[[Report, Records, IO[str]], None]:
    if kind == "md":
        from evenhand.views.report.summary import write_markdown

        return write_markdown
    try:
        from evenhand.views.report.page import write_page
    except ModuleNotFoundError as missing:
        raise InputError(f"the HTML report needs {missing.name}, which is not installed", hint=PIP) from None
    return write_page
