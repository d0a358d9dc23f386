"""A report as Markdown, for a pull request: the numbers, a few pairs of each kind, where it all came from."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import IO

from evenhand.core.stats.clustered import Estimate
from evenhand.core.stats.ranking import Standing
from evenhand.core.stats.winrate import Rate
from evenhand.results.examples import ExampleKind
from evenhand.results.pair_outcome import pick_outcomes
from evenhand.results.wording import count, percent, signed
from evenhand.store import Records
from evenhand.views.console import clock, points
from evenhand.views.report.contents import ExampleLine, JudgeReport, Report
from evenhand.views.report.passages import code, fenced, table
from evenhand.views.web.outcome_view import OutcomeView, outcome_views
from evenhand.views.web.templating import write_date

_TEMPLATE_LIMIT = 20_000
_NOTE_LIMIT = 1_000
_TEXT_LIMIT = 2_000  # characters of one text; GitHub takes 65,536 in all
_HOW_TO_READ = "Models that share a letter cannot be told apart; a rank is the range that the tests leave open."
_NO_MODEL = (
    "The sides are not always the same models: the ranking above is the result, and the next table says how the"
    " judge works."
)
KINDS: dict[ExampleKind, str] = {
    "inconsistent": "orders contradict",
    "invalid": "invalid",
    "against_people": "judge and people differ",
    "near_tie": "nearest to a tie",
    "clear": "clearest win",
}


def write_markdown(report: Report, store: Records, to: IO[str]) -> None:
    """Write the Markdown, paragraph by paragraph."""
    for paragraph in _paragraphs(report, store):
        to.write(f"{paragraph}\n\n")


def _paragraphs(report: Report, store: Records) -> Iterator[str]:
    yield f"# {code(report.options.title) if report.options.title else 'evenhand report'}"
    yield _lead(report)
    for judge in report.judges:
        yield f"## {code(judge.name)}"
        yield code(judge.answer.sentence, 400)
        if judge.several:
            yield from _models(judge)
        if judge.several and judge.ranking:
            yield _NO_MODEL
        yield _rates(judge)
        yield from (code(note, _NOTE_LIMIT) for note in judge.notes)  # they name judges and dimensions
        yield from _invalid(judge)
        yield from _people(judge)
        yield from _attacks(judge)
        if not judge.several:
            yield from _models(judge)
        yield from _reasons(judge)
        yield from _examples(judge)
    yield from _pairs(report, store)
    yield "## Provenance"
    yield "\n".join(_provenance(report))
    yield from _templates(report)


def _lead(report: Report) -> str:
    judged = f"{count(report.pairs, 'pair')}, {count(len(report.judges), 'judge')}"
    when = f" Judged {write_date(report.started)} to {write_date(report.ended)} UTC."
    return f"{judged}, {report.labelled:,} labelled by people." + (when if report.started is not None else "")


def _rates(judge: JudgeReport) -> str:
    one, two = (code(name, 40) for name in judge.names)
    head = [
        *("dimension", f"{one} wins", "tie", f"{two} wins", f"win rate of {one}", "95%", "inconsistent", "invalid"),
        *("label mass", "position bias", "longer is chosen"),
    ]
    rows = []
    for name, found in judge.dimensions.items():
        interval = f"{percent(found.ci[0], 0)} – {percent(found.ci[1], 0)}" if found.ci else "–"
        counts = [f"{n:,}" for n in (found.wins_1, found.ties, found.wins_2)]
        rows.append(
            [
                *(code(name), *counts, f"**{percent(found.win_rate_1)}**", interval),
                *(f"{found.inconsistent:,}", f"{found.invalid:,}", percent(found.label_mass, 0)),
                *(signed(found.position_bias), percent(judge.effects[name].longer.value, 0)),
            ]
        )
    return table(head, rows, right=range(1, len(head)))


def _invalid(judge: JudgeReport) -> Iterator[str]:
    for name, found in judge.dimensions.items():
        reasons = ", ".join(f"{code(reason)} {n:,}" for reason, n in sorted(found.invalid_reasons.items()))
        if reasons and name != "combined":
            yield f"Invalid on {code(name)}: {reasons}. They are in no rate."


def _people(judge: JudgeReport) -> Iterator[str]:
    if not judge.people:
        return
    head = [
        "against people",
        "labelled",
        "decided",
        "right side",
        "same verdict",
        "kappa",
        "longer output",
        "trust",
    ]
    rows = []
    for card in judge.people.values():
        pooled = card.readings["pooled"]
        kappa = "–" if pooled.kappa.value is None else f"{pooled.kappa.value:z.2f}"
        numbers = [_estimate(pooled.decided), _estimate(pooled.three_way), kappa, percent(card.longer.value, 0)]
        rows.append(
            [
                code(card.dimension),
                f"{card.labelled:,}",
                f"{card.decided:,}",
                *numbers,
                "" if card.trust == "none" else card.trust,
            ]
        )
    yield table(head, rows, right=range(1, 7))
    yield "\n".join(
        f"- {code(card.dimension)}: {' '.join((card.verdict, *card.label_use.notes))}"
        for card in judge.people.values()
    )


def _attacks(judge: JudgeReport) -> Iterator[str]:
    """How the judge stands against attacks, where attacked pairs are kept."""
    if judge.attacks is None:
        return
    yield f"### Attacks\n\n{code(judge.attacks.text, _NOTE_LIMIT)}"
    rows = [
        [code(each.attack), f"{each.n:,}", shift, _estimate(each.turned), _estimate(each.right_lost)]
        for each in judge.attacks.attacks
        for shift in [points(each.shift.value, each.shift.low, each.shift.high)]
    ]
    yield table(["attack", "n", "shift", "turned", "right lost"], rows, right=range(1, 5))
    yield "\n".join(f"- {code(note, _NOTE_LIMIT)}" for note in judge.attacks.notes())


def _estimate(e: Estimate | Rate) -> str:
    if e.value is None or e.low is None or e.high is None:
        return percent(e.value, 0)
    return f"{percent(e.value, 0)} ({percent(e.low, 0)} – {percent(e.high, 0)})"


def _models(judge: JudgeReport) -> Iterator[str]:
    if judge.why_unranked:
        yield f"No ranking: {code(judge.why_unranked, 400)}"
    if judge.ranking is None:
        return
    head = [f"rank by {code(judge.decides)}", "model", "strength", "95%", "group", "won", "tied", "lost"]
    rows = [[*_standing(model)] for model in judge.ranking.models]
    yield table(head, rows, right=(0, 2, 5, 6, 7))
    yield _HOW_TO_READ
    for warning in (*judge.ranking.notes, *judge.ranking.warnings):
        yield f"Note: {code(warning, 400)}"


def _standing(model: Standing) -> Iterator[str]:
    yield f"{model.best_rank}" if model.best_rank == model.worst_rank else f"{model.best_rank}–{model.worst_rank}"
    yield code(model.model, 60)
    yield "–" if model.strength is None else f"{model.strength:z.2f}"
    yield _between(model.low, model.high)
    yield model.group
    yield from (f"{games:,.10g}" for games in (model.wins, model.ties, model.losses))


def _between(low: float | None, high: float | None) -> str:
    """An interval, of which one end or both may be open."""
    if low is not None and high is not None:
        return f"{low:z.2f} to {high:z.2f}"
    if low is not None:
        return f"at least {low:z.2f}"
    return "–" if high is None else f"at most {high:z.2f}"


def _reasons(judge: JudgeReport) -> Iterator[str]:
    if judge.reasons is None or not judge.reasons.blamed:
        return
    head = [f"what the losing side is blamed for, by {code(judge.reasons.dimension)}", "pairs", "for example"]
    rows = [
        [code(each.phrase), f"{each.pairs:,}", f"{code(each.examples[0].id, 60)}: {code(each.examples[0].quote)}"]
        for each in judge.reasons.blamed
    ]
    yield table(head, rows, right=[1])


def _examples(judge: JudgeReport) -> Iterator[str]:
    rows = [
        [KINDS[kind], code(e.id, 60), code(e.excerpt), *_verdict(e), e.people or "–"]
        for kind, few in judge.examples.items()
        for e in few
    ]
    if rows:
        yield f"Examples, by {code(judge.decides)}:"
        yield table(["kind", "pair", "instruction", "verdict", "1 · tie · 2", "people"], rows)


def _verdict(e: ExampleLine) -> tuple[str, str]:
    p = e.p
    shares = "–" if p is None else " · ".join(percent(p[side], 0) for side in ("1", "tie", "2"))
    return e.verdict if p else f"invalid: {code(e.invalid_reason or 'unknown')}", shares


def _pairs(report: Report, store: Records) -> Iterator[str]:
    if not report.options.pairs:
        return
    yield "## Pairs"
    if len(report.drawn) < report.pairs:
        yield f"{len(report.drawn):,} of {report.pairs:,}, drawn by the seed {report.options.seed}."
    outcomes = {judge.row.id: pick_outcomes(store.blocks(judge.row), report.drawn) for judge in report.judges}
    for number in report.drawn:
        pair = store.pages.pair(number)
        if pair is None:
            continue
        yield f"### {code(pair.id)}"
        for judge in report.judges:
            judgment = store.judgment(judge.row, number, pair)
            if judgment is not None:
                yield "\n".join(
                    _said(judge, store, number, outcome_views(judgment, outcomes[judge.row.id].get(number, {})))
                )
        for name, text in (
            ("Instruction", pair.instruction),
            ("Output 1", pair.output_1),
            ("Output 2", pair.output_2),
        ):
            model = {"Output 1": pair.model_1, "Output 2": pair.model_2}.get(name, "")
            yield f"{name}{f', by {code(model, 60)}' if model else ''}:"
            yield fenced(text, _TEXT_LIMIT)


def _said(judge: JudgeReport, store: Records, number: int, views: tuple[OutcomeView, ...]) -> Iterator[str]:
    yield f"- {code(judge.name)}: " + ", ".join(f"{code(view.dimension)} {_outcome(view)}" for view in views)
    for order, answers in store.archive.said(judge.row.id, number).items():
        first = "1" if order == "forward" else "2"
        yield f"- {code(judge.name)} answered, {first} shown first: " + ", ".join(code(a) for a in answers)


def _outcome(view: OutcomeView) -> str:
    """An outcome with what each order said, and its label mass."""
    orders = " and ".join(said.side or "invalid" for said in view.orders.values())
    found = view.outcome
    if found is None:
        return f"not finished ({orders})"
    mass = f", mass {percent(found.mass, 0)}" if found.mass is not None else ""
    return f"**{found.side or 'invalid'}** ({orders}{mass}{', orders differ' if found.inconsistent else ''})"


def _templates(report: Report) -> Iterator[str]:
    """The templates word for word, folded away."""
    yield "<details><summary>The templates, word for word</summary>"
    for name, text in dict.fromkeys((judge.protocol, judge.template) for judge in report.judges):
        yield f"{code(name)}:"
        yield fenced(text, _TEMPLATE_LIMIT)
    yield "</details>"


def _provenance(report: Report) -> Iterator[str]:
    date = f", {code(report.options.date)}" if report.options.date else ""
    made = f"Written by evenhand {report.evenhand}{date} from {code(report.database)}"
    yield f"- {made}, seed {report.options.seed}."
    for judge in report.judges:
        yield f"- {code(judge.name)}"
        yield f"  - judge {code(judge.fingerprint)}"
        yield from (f"  - {code(key)}: {code(str(value))}" for key, value in sorted(judge.identity.items()))
        yield f"  - template {code(judge.protocol)}, sha256 {code(judge.template_sha256)}"
        tokens = judge.tokens
        yield (
            f"  - {tokens.computed:,} tokens computed, {tokens.reused:,} reused,"
            f" {tokens.generated:,} generated in {clock(judge.seconds)}"
        )
        for group in judge.runs:
            settings = json.dumps(dict(group.settings), ensure_ascii=False, sort_keys=True)
            when = f"{write_date(group.started)} to {write_date(group.ended)} UTC"
            yield f"  - {count(group.runs, 'run')}, {when}, {code(settings)}, {count(group.asked, 'answer')}"
