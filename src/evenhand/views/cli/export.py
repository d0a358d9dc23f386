"""evenhand export: write what is kept in the forms of others."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from evenhand.core.attacks import as_they_were
from evenhand.core.errors import InputError
from evenhand.core.pair import Pair, Side
from evenhand.core.protocol import Protocol
from evenhand.core.verdict import found_on, headline
from evenhand.core.votes import final_label
from evenhand.io.files import WRITES, Row, write_rows
from evenhand.io.files.finding import kind_of
from evenhand.io.files.writing import check_writes
from evenhand.results.people import People
from evenhand.results.plain import to_json
from evenhand.store import JudgeRow, Records
from evenhand.views import console
from evenhand.views import export as forms
from evenhand.views.cli.app import app
from evenhand.views.cli.opening import open_records
from evenhand.views.cli.option_groups import argument, flat_options, option
from evenhand.views.cli.options import (
    DEFAULT_DB,
    JsonOption,
    JudgeFilter,
    RecordsOption,
    RenameOption,
    renames_from,
)

FORMS = ("judgments", "verdicts", "dpo", "kto", "judge", "alpaca-eval", "leaderboard")


@dataclass(frozen=True)
class ExportOptions:
    """What is to be written, and how."""

    form: Annotated[str, argument("|".join(FORMS), "What is written; see docs/export.md.")]
    out: Annotated[Path, option("--out -o FILE", f"Where to; the name ends in {', '.join(WRITES)}.")]
    db: RecordsOption = DEFAULT_DB
    spec: Annotated[
        str, option("--judge -j NAME", "Only this judge: its model, model/protocol or fingerprint.")
    ] = ""
    protocol: Annotated[
        str,
        option(
            "--protocol -p NAME|FILE",
            "Only under this protocol; for the form judge, the one whose conversation is written.",
        ),
    ] = ""
    dimension: Annotated[
        str,
        option("--dimension -d", "dpo, kto, alpaca-eval, leaderboard: default the parts combined, else overall."),
    ] = ""
    margin: Annotated[
        float, option("--margin", "dpo, kto: leave out winners that are less far ahead.", min=0, max=1)
    ] = 0.0
    keep_ties: Annotated[
        bool, option("--keep-ties", "kto: both responses of a tie count as good. Otherwise ties are left out.")
    ] = False
    chat: Annotated[bool, option("--chat", "dpo, kto: conversations of one turn instead of plain texts.")] = False
    texts: Annotated[bool, option("--texts", "judgments, verdicts: with instruction and responses.")] = False
    hard: Annotated[
        bool, option("--hard", "alpaca-eval, leaderboard: 1, 1.5 and 2 instead of expected preferences.")
    ] = False
    rename: RenameOption = None
    as_json: JsonOption = False

    def check(self) -> None:
        """Refuse a form that there is not, and options that mean nothing to the one that is written."""
        if self.form not in FORMS:
            raise InputError(f"there is no form '{self.form}'", hint=f"one of {', '.join(FORMS)}")
        for name, (flag, takers) in _ONLY.items():
            if getattr(self, name) and self.form not in takers:
                *others, last = takers
                named = f"{', '.join(others)} and {last}" if others else last
                raise InputError(f"{flag} is for {named}", hint=f"leave it out for {self.form}")


# Options that not every form takes, and those that do.
_ONLY: dict[str, tuple[str, tuple[str, ...]]] = {
    "spec": ("--judge", tuple(form for form in FORMS if form != "judge")),
    "dimension": ("--dimension", ("dpo", "kto", "alpaca-eval", "leaderboard")),
    "margin": ("--margin", ("dpo", "kto")),
    "keep_ties": ("--keep-ties", ("kto",)),
    "chat": ("--chat", ("dpo", "kto")),
    "texts": ("--texts", ("judgments", "verdicts")),
    "hard": ("--hard", ("alpaca-eval", "leaderboard")),
    "rename": ("--rename", ("judge",)),
}
Made = tuple[Iterable[Mapping[str, Any]], dict[str, str]]


@app.command()
@flat_options
def export(options: ExportOptions) -> None:
    """Write verdicts, preferences to train on, or AlpacaEval's files out of a database."""
    form, out, names = options.form, options.out, renames_from(options.rename)
    options.check()
    check_writes(out)
    no_word: list[str] = []
    with open_records(options.db) as store:
        judged = form != "judge"
        rows, columns = (
            stored_rows(store, options) if judged else people_rows(store, options.protocol, names, no_word)
        )
        count = write_rows(out, rows, columns)
    if no_word:
        told = (
            f"{console.count(len(no_word), 'pair')} with a tie left out: answers under {options.protocol} have none"
        )
        console.err.print(told, style="yellow", markup=False)
    if not count:
        console.err.print(f"{_why_empty(form)}: the file has no rows", style="yellow")
    if options.as_json:
        print(to_json({"form": form, "rows": count, "columns": list(columns), "out": str(out)}))
    else:
        console.out.print(f"{console.count(count, 'row')} of {form}: {out}", markup=False)


def _why_empty(form: str) -> str:
    if form == "judge":
        return "nobody has labelled a pair yet (evenhand labels import FILE, or evenhand serve)"
    return "nothing in the database is of that kind"


def people_rows(store: Records, protocol: str, names: Mapping[str, str], no_word: list[str]) -> Made:
    """A judge's conversations with the verdicts of people; no judge need have judged the pairs.

    Pairs with a label that the protocol's form of answers has no word for are put into `no_word`, by their ids.
    """
    template, people = Protocol.load(protocol or "overall"), People(store, rename=names)

    def labelled() -> Iterator[tuple[Pair, dict[str, Side]]]:
        for pair in store.labels.pairs():
            votes, decided = people.votes(pair), people.decisions(pair)
            found = {name: final_label(votes, decided, name) for name in template.dimensions}
            labels = {name: side for name, side in found.items() if side is not None}
            if forms.has_no_word(template, labels):
                no_word.append(pair.id)
            yield pair, labels

    return forms.judge_rows(template, labelled()), forms.JUDGE


def stored_rows(store: Records, options: ExportOptions) -> Made:
    """Rows out of what judges said; preferences are those of one judge."""
    named = JudgeFilter(options.spec, options.protocol)
    judges = named.find(store.judges(), options.db, hint="evenhand results shows what it holds")
    tables = {
        "judgments": (forms.judgment_rows, forms.JUDGMENTS),
        "verdicts": (forms.verdict_rows, forms.VERDICTS),
    }
    if options.form in tables:
        make, columns = tables[options.form]
        chosen = {**columns, **forms.TEXTS} if options.texts else columns
        every = (row for judge in judges for row in make(judge, store.judgments(judge, words=True)))
        return ({name: row[name] for name in chosen} for row in every), chosen
    judge = only(judges)
    dimension = dimension_of(judge, options.dimension)
    judged, hard = as_they_were(store.judgments(judge)), options.hard
    console.print_attacked(store.count_attacked(judge))
    chat = "messages" if options.chat else "text"
    makers: dict[str, Callable[[], Made]] = {
        "dpo": lambda: (
            forms.dpo_rows(judged, dimension, margin=options.margin, chat=options.chat),
            {**forms.DPO, "prompt": chat, "chosen": chat, "rejected": chat},
        ),
        "kto": lambda: (
            forms.kto_rows(
                judged, dimension, margin=options.margin, keep_ties=options.keep_ties, chat=options.chat
            ),
            {**forms.KTO, "prompt": chat, "completion": chat},
        ),
        "alpaca-eval": lambda: (
            forms.annotation_rows(judged, dimension, f"evenhand {judge.model} {judge.protocol}", hard=hard),
            forms.ANNOTATIONS,
        ),
        "leaderboard": lambda: leaderboard(
            forms.leaderboard_rows(judged, dimension, hard=hard), csv=kind_of(options.out)[0] == ".csv"
        ),
    }
    return makers[options.form]()


def leaderboard(rows: list[Row], *, csv: bool) -> Made:
    """AlpacaEval's own file is a CSV in which the models' column, the index of a frame, has no name."""
    if not csv:
        return rows, forms.LEADERBOARD
    columns = {"" if name == "model" else name: kind for name, kind in forms.LEADERBOARD.items()}
    return ({**row, "": row["model"]} for row in rows), columns


def only(judges: list[JudgeRow]) -> JudgeRow:
    """The one judge that is meant."""
    if len(judges) > 1:
        names = "; ".join(f"--judge {judge.model} --protocol {judge.protocol}" for judge in judges)
        raise InputError("several judges have judged these pairs", hint=f"name one: {names}")
    return judges[0]


def dimension_of(judge: JudgeRow, wanted: str) -> str:
    """The dimension that is meant; the headline, if none is named."""
    if not wanted:
        return headline(judge.dimensions)
    known = found_on(judge.dimensions)
    if wanted not in known:
        raise InputError(f"the judge was not asked on '{wanted}'", hint=f"one of {', '.join(known)}")
    return wanted
