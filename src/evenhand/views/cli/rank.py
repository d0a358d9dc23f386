"""evenhand rank: many models by the verdicts that are kept."""

from __future__ import annotations

import re
import shlex
import string
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Annotated

from rich.markup import escape
from rich.table import Table

from evenhand.core.errors import InputError
from evenhand.core.stats.ranking import Standing
from evenhand.core.verdict import found_on, headline
from evenhand.results.answer import AnswerSentence, ranking_answer
from evenhand.results.judges import title_of
from evenhand.results.plain import to_json
from evenhand.results.ranking import SCALES, Matches, RankingSummary, Reading
from evenhand.results.separation import Separation, judge_options, separation_of
from evenhand.results.summary import Counter
from evenhand.results.wording import attacked_field
from evenhand.store import JudgeRow
from evenhand.views import console
from evenhand.views.charts import check_plot_path, ranking_chart, save_plot, win_matrix_chart
from evenhand.views.cli.app import app
from evenhand.views.cli.opening import open_records
from evenhand.views.cli.option_groups import flat_options, one_of, option
from evenhand.views.cli.options import (
    DEFAULT_DB,
    USUAL_COUNT,
    CountOptions,
    JsonOption,
    JudgeFilter,
    RecordsOption,
)

_MOST_IN_MATRIX = 10
_FEW_LETTERS = 6  # that may stand next to each other
_LETTERS = string.ascii_lowercase + string.ascii_uppercase


@dataclass(frozen=True, slots=True)
class JudgeRanking:
    """A ranking with the judge that it is by."""

    judge: str
    protocol: str
    fingerprint: str
    ranking: RankingSummary
    answer: AnswerSentence
    attacked: int = 0  # pairs that are in no number
    name: str = ""  # of the judge, among those of the database; else its model and protocol
    engine: str = ""

    @property
    def title(self) -> str:
        """Whose ranking, on what."""
        return f"{self.name or f'{self.judge} under {self.protocol}'}, {self.ranking.dimension}"

    def plain(self) -> dict[str, object]:
        """The ranking as JSON has it."""
        named = {"judge": self.judge, "protocol": self.protocol, "fingerprint": self.fingerprint}
        ranking = {field.name: getattr(self.ranking, field.name) for field in fields(self.ranking)}
        return {**named, "answer": self.answer, **ranking, **attacked_field(self.attacked)}


@dataclass(frozen=True)
class RankOptions:
    """How to rank."""

    dimension: Annotated[
        str,
        option("--dimension -d", "Rank by verdicts on this dimension. Default: the parts combined, else overall."),
    ] = ""
    expected: Annotated[
        bool, option("--expected", "Weigh by the judge's probabilities instead of its verdicts.")
    ] = False
    scale: Annotated[
        str,
        option(
            f"--scale {'|'.join(SCALES)}",
            "The scale of strengths: log-odds, Elo's, or Chatbot Arena's (a tie is half a win).",
        ),
    ] = "log-odds"
    anchor: Annotated[str, option("--anchor MODEL", "Measure strengths from this model, not from the average.")] = (
        ""
    )
    count: CountOptions = USUAL_COUNT

    @property
    def reading(self) -> Reading:
        """Whether verdicts count, or the probabilities behind them."""
        return "expected" if self.expected else "hard"


@app.command()
@flat_options
def rank(
    *,
    judges: JudgeFilter,
    db: RecordsOption = DEFAULT_DB,
    options: RankOptions,
    plot: Annotated[Path | None, option("--plot FILE", "Draw the ranking to FILE.svg or FILE.png.")] = None,
    matrix_plot: Annotated[
        Path | None, option("--plot-matrix FILE", "Draw the win matrix to FILE.svg or FILE.png.")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Rank the models that the pairs compare (model_1, model_2), and say which cannot be told apart."""
    for file in (plot, matrix_plot):
        if file is not None:
            check_plot_path(file)
    found = list(_rankings(db, judges, options))
    if (plot or matrix_plot) and len(found) > 1:
        raise InputError(
            f"{db} holds {console.count(len(found), 'judge')}",
            hint="name one to draw: --judge MODEL --protocol NAME",
        )
    drawn = list(_draw(found[0], plot, matrix_plot)) if found else []
    if as_json:
        print(to_json({**found[-1].plain(), "judges": found}))
        return
    for each in found:
        show_ranking(each, db)
    for file in drawn:
        console.out.print(f"wrote {file}", markup=False)


def _draw(found: JudgeRanking, plot: Path | None, matrix_plot: Path | None) -> Iterator[Path]:
    """The pictures that are wanted, each as it is written."""
    if plot:
        yield save_plot(plot, ranking_chart(found.ranking, title=f"Ranking: {found.title}"))
    if matrix_plot:
        yield save_plot(matrix_plot, win_matrix_chart(found.ranking.win_matrix, title=f"Win matrix: {found.title}"))


def _rankings(db: Path, judges: JudgeFilter, options: RankOptions) -> Iterator[JudgeRanking]:
    scale, counting = one_of("--scale", options.scale, SCALES), options.count.counting
    faults: dict[str, InputError] = {}
    with open_records(db) as store:
        every = store.judges()
        rows = _with_dimension(judges.find(every, db), options.dimension)
        attacked = {row.id: store.count_attacked(row) for row in rows}
        for pairs in sorted(set(attacked.values())):
            console.print_attacked(pairs)
        for row in rows:
            on, name = options.dimension or headline(row.dimensions), title_of(row, every)
            matches, counter = Matches(on, options.reading, counting), Counter(found_on(row.dimensions))
            for block in store.blocks(row):
                matches.add_block(block)
                counter.add_block(block)
            try:
                found = matches.ranking(scale=scale, anchor=options.anchor or None)
            except InputError as fault:
                faults[name] = fault
                continue
            answer = ranking_answer(found, counter.summary())
            about = attacked[row.id], name, row.identity.get("engine", "")
            yield JudgeRanking(row.model, row.protocol, row.fingerprint, found, answer, *about)
    _print_unranked(faults, len(rows))


def _print_unranked(faults: Mapping[str, InputError], judges: int) -> None:
    """Which judges cannot be ranked by; an error where none can."""
    if faults and len(faults) == judges:
        raise next(iter(faults.values()))
    for name, fault in faults.items():
        console.note(f"{name} is not ranked: {fault.message}")


def _with_dimension(rows: list[JudgeRow], dimension: str) -> list[JudgeRow]:
    """Judges that were asked for the dimension; if none was, all, so that the error can say what there is."""
    asked = [row for row in rows if not dimension or dimension in found_on(row.dimensions)]
    return asked or rows


# -- what it looks like ------------------------------------------------------------------------------


def show_ranking(found: JudgeRanking, db: Path) -> None:
    """The table, the matrix, and what a reader should know."""
    console.out.print()
    console.out.print(console.answer_line(found.answer))
    console.out.print(ranking_table(found))
    if 2 < len(found.ranking.models) <= _MOST_IN_MATRIX:
        console.out.print(matrix_table(found.ranking))
    for note in notes(found.ranking):
        console.out.print(note, markup=True)
    if close := separation_of(found.ranking):
        by = judge_options(found.judge, console.one_line(found.protocol), found.engine)
        console.out.print(separation_note(close, db, by), markup=False, highlight=False)


def separation_note(close: Separation, db: Path, by: Sequence[str]) -> str:
    """Two models that cannot be told apart, and the command that would separate them, with these options."""
    one, two = (console.one_line(name) for name in (close.model_1, close.model_2))
    if close.known and close.games is None:
        return f"{one} and {two} cannot be told apart, and are so close that more games would hardly do it."
    size = ["--size", str(close.games)] if close.games else []
    command = shlex.join(["evenhand", "arena", f"{one}=FILE", f"{two}=FILE", *size, *by, "--db", str(db)])
    more = "more games between them may do it"
    if close.games:
        more = (
            f"about {console.count(close.games, 'more game')} between them would do it, if they differ as it seems"
        )
    printed = f"{one} and {two} cannot be told apart yet; {more}."
    if not by:
        return f"{printed} This judge's verdicts were imported: import those on more instructions, too."
    return f"{printed} With their outputs on more instructions, by the same judge:\n  {command}"


def ranking_table(found: JudgeRanking) -> Table:
    """Models, best first: ranks they may have, strength, interval, group, record."""
    ranking = found.ranking
    title = f"{found.title}: {console.count(ranking.n, 'pair')}"
    table = console.plain_table(title)
    table.keys, table.optional = 2, ((6, 7, 8), (9,))
    table.add_column("rank", justify="right")
    table.add_column("model")
    unit = "strength" if ranking.scale == "log-odds" else "Elo"
    for name in (unit, f"{ranking.level:.0%}\ninterval", "group", "games", "won", "tied", "lost", "in-\nvalid"):
        table.add_column(name, justify="left" if name == "group" else "right")
    for model in ranking.models:
        table.add_row(*_cells(model, 2 if ranking.scale == "log-odds" else 0))
    return table


def _cells(model: Standing, digits: int) -> list[str]:
    best, worst = model.best_rank, model.worst_rank
    return [
        f"{best}" if best == worst else f"{best}–{worst}",
        console.one_line(model.model),
        "–" if model.strength is None else f"{model.strength:z.{digits}f}",
        _interval(model.low, model.high, digits),
        group_text(model.group),
        f"{model.n:,.10g}",
        *(f"{count:,.0f}" for count in (model.wins, model.ties, model.losses)),
        f"{model.invalid:,}" if model.invalid else "",
    ]


def group_text(group: str) -> str:
    """The letters of a model's groups; many of them as ranges, which a table may break between.

    >>> group_text("bc"), group_text("abcdefgkl"), group_text("yzABCDE(53)(54)")
    ('bc', 'a–g k l', 'y–E (53) (54)')
    """
    marks = re.findall(r"\(\d+\)|\w", group)
    if len(group) <= _FEW_LETTERS:
        return group
    runs: list[list[str]] = []
    for mark in marks:
        if runs and _LETTERS.find(runs[-1][-1] + mark) >= 0:
            runs[-1].append(mark)
        else:
            runs.append([mark])
    return " ".join(f"{run[0]}–{run[-1]}" if len(run) > 2 else " ".join(run) for run in runs)


def _interval(low: float | None, high: float | None, digits: int) -> str:
    if low is None:
        return "–" if high is None else f"≤ {high:z.{digits}f}"
    return f"≥ {low:z.{digits}f}" if high is None else f"{low:z.{digits}f} to {high:z.{digits}f}"


def matrix_table(ranking: RankingSummary) -> Table:
    """How often the model of a row beats the model of a column."""
    matrix = ranking.win_matrix
    table = console.plain_table("Wins of the row against the column, a tie one half")
    table.add_column("model")
    table.add_numbers(*(str(number) for number in range(1, len(matrix.models) + 1)))
    for number, (name, percents) in enumerate(zip(matrix.models, matrix.percents, strict=True), 1):
        cells = ("" if percent is None else f"{percent}%" for percent in percents)
        table.add_row(f"{number} {console.one_line(name)}", *cells)
    return table


def notes(ranking: RankingSummary) -> Iterator[str]:
    """What a reader of the table should know about these very numbers."""
    yield "[dim]Models that share a letter cannot be told apart; a rank is the range that the tests leave open.[/]"
    for warning in (*ranking.notes, *ranking.warnings):
        yield f"[yellow]note:[/] {escape(console.one_line(warning))}."
    if ranking.invalid:
        yield f"[red]invalid[/]: {console.count(ranking.invalid, 'pair')} without a verdict, not counted here."
    if ranking.unnamed:
        left_out = console.count(ranking.unnamed, "pair")
        yield f"[yellow]note:[/] left out, as they name no two different models: {left_out}."
