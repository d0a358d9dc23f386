"""evenhand calibrate: bring a judge's probabilities into line with what people say."""

from __future__ import annotations

from typing import Annotated

from rich.table import Table
from rich.text import Text

from evenhand.core.errors import InputError
from evenhand.core.stats.calibration import Calibration, Scores
from evenhand.results.calibration_fit import FittedCalibration, fit_evidence
from evenhand.results.evidence import gather
from evenhand.results.judges import choose_judges
from evenhand.results.people import People
from evenhand.results.plain import to_json
from evenhand.results.wording import signed
from evenhand.store import JudgeRow, Store
from evenhand.views import console
from evenhand.views.cli.app import app
from evenhand.views.cli.option_groups import argument, option
from evenhand.views.cli.options import DEFAULT_DB, DbOption, JsonOption, RenameOption, renames_from


@app.command()
def calibrate(
    judges: Annotated[
        list[str] | None,
        argument("JUDGE", "Judges by protocol, model, model/protocol or fingerprint. Default: all."),
    ] = None,
    db: DbOption = DEFAULT_DB,
    dimension: Annotated[str, option("--dimension -d NAME", "Only this dimension.")] = "",
    rename: RenameOption = None,
    seed: Annotated[int, option("--seed", "Decides which pairs are held out together.")] = 0,
    forget: Annotated[bool, option("--forget", "Forget what was fitted before.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Fit a small model from a judge's log-odds to labels of people, and keep it beside the judge.

    `card --calibrated` and `results --calibrated` apply it. Every figure is of pairs that the model had not seen.
    Where labels are too few it refuses, and says how many it takes.
    """
    if not db.is_file():
        raise InputError(f"no database at {db}", hint="evenhand judge PAIRS writes one")
    with Store(db) as store:
        rows = _rows(store, judges or [])
        if forget:
            gone = sum(store.calibrations.forget(row.id, dimension or None) for row in rows)
            print(to_json({"forgotten": gone}) if as_json else f"Forgotten: {console.count(gone, 'calibration')}")
            return
        found, refused = _fit(store, rows, dimension, People(store, rename=renames_from(rename)), seed)
    if not found and refused:
        raise refused[0]
    if not found:
        hint = "evenhand serve to label here, evenhand labels import FILE"
        raise InputError("the pairs of these judges have no labels", hint=hint)
    if as_json:
        print(to_json({"calibrations": found, "refused": [error.message for error in refused]}))
        return
    for one in found:
        _show(one.judge, one.dimension, one.calibration)
        for note in one.use.notes:
            console.out.print(note, style="dim")
    for error in refused:
        console.out.print(console.safe(error.message, "yellow"))


def _rows(store: Store, words: list[str]) -> list[JudgeRow]:
    every = store.judges()
    found = [row for word in words for row, _ in choose_judges(every, word)] if words else every
    if not found:
        known = ", ".join(dict.fromkeys(row.protocol for row in every)) or "none"
        raise InputError(f"no judge called {', '.join(words)}", hint=f"protocols there: {known}")
    return found


def _fit(
    store: Store, rows: list[JudgeRow], only: str, people: People, seed: int
) -> tuple[list[FittedCalibration], list[InputError]]:
    """Fit and keep what can be fitted; what cannot comes back as the reason why."""
    found: list[FittedCalibration] = []
    refused: list[InputError] = []
    for row in rows:
        for name, evidence in gather(store, row, people).items():
            if only not in ("", name) or not evidence.use.labelled:
                continue
            try:
                calibration = fit_evidence(evidence, seed=seed)
            except InputError as error:
                under = "" if row.protocol == name else f"{row.protocol}: "
                refused.append(InputError(f"{under}{error.message}", hint=error.hint))
                continue
            store.calibrations.keep(row.id, name, calibration.plain())
            found.append(FittedCalibration(row, name, calibration, evidence.use))
    return found, refused


def _show(row: JudgeRow, dimension: str, found: Calibration) -> None:
    console.out.print()
    console.out.print(_table(f"{row.model} under {row.protocol}: {dimension}", found))
    one, two, ties = found.labels
    length = f", length {signed(found.length)}" if found.length else ", no length term"
    console.out.print(
        f"{console.count(found.n, 'label')} ({one} for 1, {two} for 2, {ties} ties) on"
        f" {console.count(found.clusters, 'instruction')};"
        f" slope {found.slope:.2f}, tie {signed(found.tie)}{length}",
        style="dim",
    )
    console.out.print(_verdict(found))
    if not ties:
        console.out.print("No label is a tie, so ties get almost no probability.", style="dim")


def _table(title: str, found: Calibration) -> Table:
    numbers = ("log-loss", "Brier, three-way", "same verdict", "right side")
    table = console.plain_table(title, "on pairs that were held out", numbers=numbers)
    for name, scores in (("as the judge says it", found.before), ("calibrated", found.after)):
        if scores is not None:
            table.add_row(name, *_cells(scores))
    return table


def _cells(scores: Scores) -> list[str]:
    shares = (console.percent(scores.three_way), console.percent(scores.decided))
    return [f"{scores.log_loss:.3f}", f"{scores.brier:.3f}", *shares]


def _verdict(found: Calibration) -> Text:
    gain = found.gain
    if not found.signal:
        return Text(
            "No signal: the judge's odds have not been shown to predict what people choose here."
            " Every pair gets the same probabilities, the shares of the labels.",
            style="red",
        )
    if gain is None or gain.value is None or gain.low is None or gain.high is None:
        return Text("How much it helps cannot be told.", style="yellow")
    by = f"log-loss {_change(gain.value, gain.low, gain.high)} on pairs that it had not seen"
    if gain.low > 0:
        return Text(f"Calibration helps: {by}.", style="green")
    return Text(f"Calibration has not been shown to help: {by}.", style="yellow")


def _change(value: float, low: float, high: float) -> str:
    """A fall of a loss in words, or its rise.

    >>> _change(0.1, -0.02, 0.2)
    'falls by 0.100 (-0.020 to +0.200)'
    >>> _change(-0.095, -0.2, 0.01)
    'rises by 0.095 (-0.010 to +0.200)'
    """
    if value < 0:
        value, low, high, way = -value, -high, -low, "rises"
    else:
        way = "falls"
    return f"{way} by {value:.3f} ({low:+z.3f} to {high:+z.3f})"
