"""evenhand suggest: which pairs people should label next."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Annotated

from rich.table import Table
from rich.text import Text

from evenhand.core.errors import InputError, StoreError
from evenhand.core.pair import Pair
from evenhand.core.verdict import found_on
from evenhand.core.votes import draws_on, votes_on
from evenhand.io.files import Row, write_rows
from evenhand.results.people import People
from evenhand.results.plain import to_json
from evenhand.results.suggestions import OtherJudges, Suggestion, Suggestions, suggest
from evenhand.store import JudgeRow, Store
from evenhand.views import console
from evenhand.views.cli.app import app
from evenhand.views.cli.deciding import dimension_from
from evenhand.views.cli.option_groups import option
from evenhand.views.cli.options import DEFAULT_DB, DbOption, JsonOption, JudgeFilter, OnOption

_SHOWN = 60
# A spreadsheet may change texts, and an apostrophe goes before what it would take for a formula. Under other names
# they are not taken for the pair's own, and the row is found again by its id.
_COLUMNS = {"id": "text", "prompt": "text", "text_1": "text", "text_2": "text"}
_TO_FILL = {"dimension": "text", "label": "text"}


@app.command("suggest")
def suggest_pairs(
    db: DbOption = DEFAULT_DB,
    spec: Annotated[str, option("--judge -j MODEL", "The judge to learn about.")] = "",
    protocol: Annotated[str, option("--protocol -p NAME", "The protocol to learn about.")] = "",
    on: OnOption = "",
    number: Annotated[int, option("--number -n", "How many pairs.", min=1)] = 20,
    by_chance: Annotated[
        float,
        option("--random", "The share drawn at random, so that labels represent all pairs.", min=0.0, max=1.0),
    ] = 0.2,
    out: Annotated[Path | None, option("--out FILE", "Write them there to be labelled: .jsonl or .csv.")] = None,
    as_json: JsonOption = False,
) -> None:
    """Name the pairs whose label by people would teach most about a judge.

    Those in which it wavers, its two orders contradict each other, or other judges of the database say otherwise;
    pairs that people have labelled already are left out. One in five is drawn at random instead: only those labels
    can tell how good the judge is on all pairs. With --out the database remembers how each pair was chosen.
    """
    if not db.is_file():
        raise InputError(f"no database at {db}", hint="evenhand judge PAIRS writes one")
    if out and out.suffix not in (".jsonl", ".csv"):
        raise InputError(f"--out {out}", hint="let the name end in .jsonl or .csv")
    with Store(db, read_only=True) as store:
        judges = store.judges()
        row = JudgeFilter(spec, protocol).find(judges, db, hint="evenhand results shows what it holds")[-1]
        dimension = dimension_from(on, row.dimensions)
        others = [other for other in judges if other.id != row.id and dimension in found_on(other.dimensions)]
        found = look(store, row, others, dimension, number, by_chance)
    if out:
        write(found, out)
        remember(db, found)
    if as_json:
        print(to_json(fields_of(found, row, len(others))))
        return
    show(found, row, len(others), out, db)


def remember(db: Path, found: Suggestions) -> None:
    """Keep how each pair was chosen, for the labels that will be imported."""
    try:
        with Store(db) as store:
            among = {"random": store.judge_book.last_pair()}
            every = (*found.pairs, *found.again)
            chosen = [(one.pair.key, replace(one.drawn, among=among.get(one.drawn.design))) for one in every]
            store.labels.suggest(chosen, found.dimension)
    except StoreError as fault:
        lost = f"how these pairs were chosen is not kept ({fault.message})"
        console.note(f"{lost}; import their labels with --design suggested")


def look(
    store: Store, row: JudgeRow, others: list[JudgeRow], dimension: str, number: int, by_chance: float = 0.0
) -> Suggestions:
    """Suggest pairs of one judge, in the light of the others; some of them by chance."""
    people = People(store)

    def only_suggested(pair: Pair) -> bool:
        drawn = draws_on(people.draws(pair, people.votes(pair)), dimension)
        return all(one.design == "suggested" for one in drawn)

    return suggest(
        store.judgments(row),
        lambda pair: bool(votes_on(people.votes(pair), dimension)),
        dimension=dimension,
        number=number,
        random_share=by_chance,
        chosen_before=only_suggested,
        others=OtherJudges((store.judgments(other) for other in others), dimension) if others else None,
    )


def fields_of(found: Suggestions, row: JudgeRow, others: int) -> dict[str, object]:
    """What was found, as JSON has it."""
    return {
        "judge": row.model,
        "protocol": row.protocol,
        "dimension": found.dimension,
        "other_judges": others,
        "considered": found.considered,
        "labelled": found.labelled,
        "invalid": found.invalid,
        "pairs": found.pairs,
    }


def write(found: Suggestions, out: Path) -> None:
    """A file to be labelled: the texts, and nothing that would give the judge's verdict away."""
    columns = {**_COLUMNS, **_TO_FILL} if out.suffix == ".csv" else None
    write_rows(out, _rows(found, csv=columns is not None), columns)


def _rows(found: Suggestions, *, csv: bool) -> Iterator[Row]:
    for suggestion in found.pairs:
        pair = suggestion.pair
        names = tuple(_COLUMNS) if csv else ("id", "instruction", "output_1", "output_2")
        texts = (pair.id, pair.instruction, pair.output_1, pair.output_2)
        yield {
            **dict(zip(names, texts, strict=True)),
            "dimension": found.dimension,
            "label": "" if csv else None,
        }


def show(found: Suggestions, row: JudgeRow, others: int, out: Path | None, db: Path) -> None:
    """A table of the pairs, and what was passed over."""
    title = f"Pairs to label on {found.dimension}, for {row.model} under {row.protocol}"
    if found.pairs:
        console.out.print(_table(found.pairs, title))
    else:
        console.out.print("no pair is left to label")
    console.out.print(
        f"{console.count(found.considered, 'pair')} considered; {found.labelled:,} have labels of people,"
        f" {found.invalid:,} no verdict; {others} other {'judge' if others == 1 else 'judges'} in this database",
        style="dim",
    )
    if out:
        command = f"evenhand labels import {shlex.quote(str(out))} --db {shlex.quote(str(db))}"
        console.out.print(Text(f"written to {out}; fill in 1, 2 or tie, then: {command}"))


def _table(pairs: tuple[Suggestion, ...], title: str) -> Table:
    table = console.plain_table(title)
    table.keys, table.optional = 2, ((3, 4, 5, 6),)
    table.add_column("id")
    table.add_column("chosen", no_wrap=True)
    table.add_numbers("worth", "uncertainty", "flip", "dispute", "place")
    table.add_column("instruction", no_wrap=True, max_width=_SHOWN)
    for suggestion in pairs:
        parts = suggestion.parts
        known = [
            "–" if part is None else f"{part:.2f}"
            for part in (suggestion.worth, parts.uncertainty, parts.flip, parts.dispute)
        ]
        words = " ".join(console.visible(suggestion.pair.instruction).split())
        why = "by chance" if suggestion.drawn.design == "random" else "to learn"
        table.add_row(console.safe(suggestion.pair.id), why, *known, str(suggestion.place), Text(words))
    return table
