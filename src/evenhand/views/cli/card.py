"""evenhand card: whether a judge deserves trust on these pairs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from evenhand.views.cli.app import app
from evenhand.views.cli.options import DEFAULT_DB, JsonOption, RecordsOption, RenameOption, renames_from


@app.command()
def card(
    judges: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="JUDGE",
            help="Judges by protocol, model, model/protocol or fingerprint, each with :DIMENSION if one is meant, "
            "or databases or folders of shards. Two or more are put next to each other.",
        ),
    ] = None,
    db: RecordsOption = DEFAULT_DB,
    dimension: Annotated[str, typer.Option("--dimension", "-d", metavar="NAME", help="Only this dimension.")] = "",
    rename: RenameOption = None,
    calibrated: Annotated[
        bool, typer.Option("--calibrated", help="Apply what evenhand calibrate has fitted, where it has.")
    ] = False,
    margin: Annotated[
        float,
        typer.Option(
            "--margin", min=0.0, max=0.5, help="By how much a trusted judge may score below a person or the target."
        ),
    ] = 0.1,
    target: Annotated[
        float | None,
        typer.Option(
            "--target",
            min=0.0,
            max=1.0,
            help="Hold the judge against this share of decided pairs on the right side, not against one person.",
        ),
    ] = None,
    plot: Annotated[
        Path | None,
        typer.Option("--plot", metavar="FILE", help="Draw the reliability curve to an SVG or PNG file."),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Say whether a judge deserves trust here: its agreement with people, its biases, what its numbers mean.

    Labels are votes in the pairs' own file, imported ones (evenhand labels import), or collected by evenhand.
    """
    from evenhand.views.cli.cards import Bar, CardOptions, show  # here, because it loads numpy

    bar = Bar(margin, target)
    show(CardOptions(judges or [], db, dimension, renames_from(rename), calibrated, plot, as_json, bar))
