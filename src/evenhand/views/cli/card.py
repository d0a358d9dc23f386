"""evenhand card: whether a judge deserves trust on these pairs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Annotated

from evenhand.core.errors import InputError
from evenhand.core.pair import COMBINED
from evenhand.core.protocol import Protocol
from evenhand.core.stats.trust import MARGIN
from evenhand.results.attack import AttackSummary
from evenhand.results.card import Card, Contender, Drag, JudgeComparison, card_of, compare, drag_of
from evenhand.results.evidence import Evidence, gather
from evenhand.results.judges import choose_judges, own_digits, title_of
from evenhand.results.noise import NoiseSummary, noise_of
from evenhand.results.people import People
from evenhand.results.plain import to_json
from evenhand.results.run import calibrations_of
from evenhand.results.stored_attacks import stored_attacks
from evenhand.results.wording import attacked_field
from evenhand.store import JudgeRow, Records
from evenhand.views import console
from evenhand.views.charts import check_plot_path, reliability_chart, save_plot
from evenhand.views.cli.app import app
from evenhand.views.cli.attack_tables import print_on_card
from evenhand.views.cli.card_tables import comparison_note, comparison_table, drag_table, print_cards
from evenhand.views.cli.opening import is_records, open_records
from evenhand.views.cli.option_groups import argument, flat_options, option
from evenhand.views.cli.options import (
    DEFAULT_DB,
    CalibratedOption,
    JsonOption,
    RecordsOption,
    RenameOption,
    renames_from,
)

_NOT_ATTACKED = "Attacks: not measured here (evenhand attack LABELLED --db FILE tries some)."
_FLATTERED = (
    "Calibrated: {}. On the labels that it was fitted to, it looks a little better than it is;"
    " evenhand calibrate shows held-out figures."
)


@dataclass(frozen=True, slots=True)
class JudgedEvidence:
    """A judge of a database with all that it has judged."""

    row: JudgeRow
    name: str
    title: str
    evidence: dict[str, Evidence]
    tokens: float | None
    seconds: float | None
    calibrated: tuple[str, ...] = ()
    noise: Mapping[str, NoiseSummary] = field(default_factory=dict)
    attacks: AttackSummary | None = None  # None where no attacked pair is kept
    attacked: int = 0  # pairs of theirs, which are in no other number

    def contender(self, dimension: str) -> Contender:
        """The judge on one dimension."""
        return Contender(self.name, self.evidence[dimension], self.tokens, self.seconds)


@dataclass(frozen=True)
class CardOptions:
    """Which judges, and what they are compared with."""

    judges: Annotated[
        list[str] | None,
        argument(
            "JUDGE",
            "Judges by protocol, model, model/protocol or fingerprint, each with :DIMENSION if one is meant, "
            "or databases or folders of shards. Two or more are put next to each other.",
        ),
    ] = None
    db: RecordsOption = DEFAULT_DB
    dimension: Annotated[str, option("--dimension -d NAME", "Only this dimension.")] = ""
    rename: RenameOption = None
    calibrated: CalibratedOption = False
    margin: Annotated[
        float,
        option("--margin", "By how much a trusted judge may score below a person or the target.", min=0.0, max=0.5),
    ] = MARGIN
    target: Annotated[
        float | None,
        option(
            "--target",
            "Hold the judge against this share of decided pairs on the right side, not against one person.",
            min=0.0,
            max=1.0,
        ),
    ] = None
    plot: Annotated[Path | None, option("--plot FILE", "Draw the reliability curve to an SVG or PNG file.")] = None
    as_json: JsonOption = False


@app.command()
@flat_options
def card(options: CardOptions) -> None:
    """Say whether a judge deserves trust here: its agreement with people, its biases, what its numbers mean.

    Labels are votes in the pairs' own file, imported ones (evenhand labels import), or collected by evenhand.
    """
    if options.plot is not None:
        check_plot_path(options.plot)
    with ExitStack() as stack:
        chosen = list(_chosen(stack, options))
        if options.calibrated and not any(judged.calibrated for judged, _ in chosen):
            raise InputError("none of these judges has been calibrated", hint="evenhand calibrate does that")
        if len(options.judges or ()) > 1:
            _compare(chosen, options)
        else:
            _cards(chosen, options)


def _compare(chosen: Sequence[tuple[JudgedEvidence, str]], options: CardOptions) -> None:
    found = _comparisons(chosen, options.dimension)
    if options.as_json:
        print(to_json({"comparisons": found}))
        return
    for comparison in found:
        console.out.print(comparison_table(comparison))
        for note in comparison.label_use.notes:
            console.out.print(note, style="dim")
        if note := comparison_note(comparison):
            console.out.print(note, style="dim", markup=False, soft_wrap=False)


# -- which judges -------------------------------------------------------------------------------------------


def _chosen(stack: ExitStack, options: CardOptions) -> Iterator[tuple[JudgedEvidence, str]]:
    """The judges that are named, each with a dimension, or "" for all of them."""
    words = options.judges or []
    files = [Path(word) for word in words if is_records(word)]
    for file in files or [options.db]:
        store = open_records(file)
        stack.enter_context(store)
        people, rows = People(store, rename=renames_from(options.rename)), store.judges()
        specs = [word for word in words if Path(word) not in files]
        prefix = f"{file.stem}: " if len(files) > 1 else ""
        found = (
            [match for spec in specs for match in _matching(rows, spec, file)] if specs else [(r, "") for r in rows]
        )
        judged: dict[int, JudgedEvidence] = {}
        for row, dimension in found:
            if row.id not in judged:
                names = prefix + _name(row, rows), title_of(row, rows)
                judged[row.id] = _gather(store, row, people, names, options.calibrated)
            yield judged[row.id], dimension
        if people.unreadable:
            pairs = console.count(people.unreadable, "pair")
            console.note(f"a field 'human' or 'dims' without votes in it: {pairs}")


def _matching(rows: Sequence[JudgeRow], spec: str, file: Path) -> list[tuple[JudgeRow, str]]:
    found = choose_judges(rows, spec)
    if not found:
        known = ", ".join(dict.fromkeys(row.protocol for row in rows)) or "none"
        raise InputError(f"{file} has no judge called {spec}", hint=f"protocols there: {known}")
    return found


def _name(row: JudgeRow, rows: Sequence[JudgeRow]) -> str:
    """As short as it may be: with the model where there are several, with the fingerprint where all is alike."""
    name = f"{row.model}/{row.protocol}" if len({other.model for other in rows}) > 1 else row.protocol
    return f"{name} {own_digits(row, rows)}".rstrip()


def _gather(
    store: Records, row: JudgeRow, people: People, names: tuple[str, str], calibrated: bool
) -> JudgedEvidence:
    fixes = calibrations_of(store, row) if calibrated else {}
    usage, seconds = store.usage(row)
    pairs = row.pairs or 1
    return JudgedEvidence(
        row,
        *names,
        gather(store, row, people, fixes),
        (usage.computed + usage.generated) / pairs if usage.computed else None,
        seconds / pairs if seconds else None,
        tuple(fixes),
        noise_of(store, row),
        stored_attacks(store, row),
        store.count_attacked(row),
    )


# -- cards ----------------------------------------------------------------------------------------------------


def _cards(chosen: Sequence[tuple[JudgedEvidence, str]], options: CardOptions) -> None:
    only, plot = options.dimension, options.plot
    every = [(judged, _cards_of(judged, meant or only, options)) for judged, meant in chosen]
    if not any(cards for _, cards in every):
        raise InputError(
            f"no verdicts on {only}" if only else "no verdicts in this database",
            hint="evenhand results shows what is there",
        )
    drags = list(_drags([judged for judged, _ in chosen], only))
    if options.as_json:
        judges = [
            {**_about(judged), "dimensions": {card.dimension: card for card in cards}} for judged, cards in every
        ]
        print(to_json({"judges": judges, "drag": drags}))
    else:
        for judged, cards in every:
            print_cards(judged.title, cards, _cost(judged))
            if judged.attacks is not None:
                print_on_card(judged.attacks, judged.attacked)
            else:
                console.out.print(_NOT_ATTACKED, style="dim")
            if judged.calibrated:
                console.out.print(_FLATTERED.format(", ".join(judged.calibrated)), style="dim", soft_wrap=False)
        if drags:
            console.out.print(drag_table(drags))
    if plot is not None:
        _draw(every, plot)
        if not options.as_json:
            console.out.print(f"wrote {plot}", markup=False)


def _cards_of(judged: JudgedEvidence, only: str, bar: CardOptions) -> list[Card]:
    """Cards of the dimensions that people have labelled; without any, of all, for the judge's biases."""
    every = [e for name, e in judged.evidence.items() if only in ("", name)]
    labelled = [e for e in every if len(e.labelled)]
    return [
        card_of(e, noise=judged.noise.get(e.dimension), margin=bar.margin, target=bar.target)
        for e in labelled or every
    ]


def _about(judged: JudgedEvidence) -> dict[str, object]:
    row = judged.row
    return {
        "judge": row.model,
        "protocol": row.protocol,
        "fingerprint": row.fingerprint,
        "pairs": row.pairs - judged.attacked,
        "tokens_per_pair": judged.tokens,
        "seconds_per_pair": judged.seconds,
        "calibrated": list(judged.calibrated),
        **attacked_field(judged.attacked),
        **({"attacks": judged.attacks} if judged.attacks is not None else {}),
    }


def _draw(every: Sequence[tuple[JudgedEvidence, Sequence[Card]]], plot: Path) -> None:
    labelled = [(judged, card) for judged, cards in every for card in cards if card.labelled]
    if len(labelled) != 1:
        raise InputError(
            f"--plot draws one curve, and there are {len(labelled)}", hint="name a judge, and --dimension"
        )
    [(judged, card)] = labelled
    save_plot(plot, reliability_chart(card.meaning.reliability, title=f"{judged.name}: {card.dimension}"))


# -- comparisons ----------------------------------------------------------------------------------------------


def _comparisons(chosen: Sequence[tuple[JudgedEvidence, str]], only: str) -> list[JudgeComparison]:
    """One table for each question that people were asked; `combined` and `overall` answer the same."""
    groups: dict[str, list[Contender]] = {}
    seen: set[tuple[int, str]] = set()
    for judged, meant in chosen:
        for name, evidence in judged.evidence.items():
            if (meant or only) not in ("", name) or not len(evidence.labelled) or (id(judged), name) in seen:
                continue
            seen.add((id(judged), name))
            asked = "overall" if name == COMBINED else name
            groups.setdefault(asked, []).append(judged.contender(name))
    found = [compare(group, asked) for asked, group in groups.items() if len(group) > 1]
    if not any(comparison.pairs for comparison in found):
        raise InputError(
            "these judges have no labelled pair in common",
            hint="evenhand labels lists the labels; each judge must have judged the same pairs",
        )
    return found


# -- drag -----------------------------------------------------------------------------------------------------


def _drags(every: Sequence[JudgedEvidence], only: str) -> Iterator[Drag]:
    """Each dimension of a chain against the same model asked for it alone, where both are there."""
    for chain in every:
        questions = Protocol.parse(chain.row.template, name=chain.row.protocol).questions
        behind = [
            question for before, question in pairwise(questions) if before.conversation == question.conversation
        ]
        later = [name for question in behind for name in question.dimensions]
        for alone in every:
            if alone.row.dimensions != alone.row.dimensions[:1] or alone.row.identity != chain.row.identity:
                continue
            [name] = alone.row.dimensions
            if name in later and only in ("", name):
                found = drag_of(chain.contender(name), alone.contender(name))
                if found is not None:
                    yield found


def _cost(judged: JudgedEvidence) -> str:
    parts = [f"{judged.tokens:,.0f} tokens computed a pair"] if judged.tokens is not None else []
    parts += [f"{judged.seconds:.1f} s a pair"] if judged.seconds is not None else []
    return ", ".join(parts)
