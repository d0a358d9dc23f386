"""A report as one HTML file: styles, pictures and a small script inside, nothing outside.

The Content-Security-Policy of the file names the hashes of its one style sheet and its one script and allows
nothing else, so that whatever a text might smuggle in would neither run nor be fetched.
"""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cache
from importlib.resources import files
from typing import IO

from markupsafe import Markup

from evenhand.core.errors import TemplateError
from evenhand.core.judge import Judgment
from evenhand.core.pair import Pair, Side, excerpt
from evenhand.core.protocol import ORDERS, Order, Protocol
from evenhand.core.reasons import Reason, ReasonReader, questions_of, with_words
from evenhand.core.verdict import SIDES
from evenhand.core.votes import final_label, label_of
from evenhand.results.examples import KINDS
from evenhand.results.pair_outcome import PairOutcome, pick_outcomes
from evenhand.results.people import People
from evenhand.store import Records
from evenhand.views.report.contents import EXCERPT, JudgeReport, Report, short_name
from evenhand.views.web.markdown import Rendered, render
from evenhand.views.web.outcome_view import OutcomeView, outcome_views
from evenhand.views.web.overview import ModelsOverview
from evenhand.views.web.templating import make_environment
from evenhand.views.web.text import cut

ANSWER_LIMIT = 1_000  # characters of one answer of a judge
TEXT_LIMIT = 20_000  # characters of one text: the file is to be mailed, and to be opened
_META_LIMIT, _MOST_META = 200, 20
KIND_WORDS = {
    "inconsistent": "The two orders contradict each other",
    "invalid": "No verdict could be read",
    "against_people": "Judge and people differ",
    "near_tie": "Nearest to a tie",
    "clear": "Clearest wins",
}


def write_page(report: Report, store: Records, to: IO[str]) -> None:
    """Write the file, one pair after the other."""
    style = _own("evenhand.views.web", "static/style.css") + _own("evenhand.views.report", "static/report.css")
    script = _own("evenhand.views.report", "static/report.js")
    context = {
        "report": report,
        "title": report.options.title or "evenhand report",
        "style": Markup(style),
        "script": Markup(script),
        "policy": policy(style, script),
        "icon": Markup(_own("evenhand.views.web", "static/icon.svg").strip()),
        "kinds": KIND_WORDS,
        "shown": _pairs(report, store),
        "short_name": short_name,
        "models_of": lambda judge: ModelsOverview(judge.ranking),
    }
    for piece in make_environment("evenhand.views.report").get_template("report.html").generate(**context):
        to.write(piece)


def policy(style: str, script: str) -> str:
    """What the file may do: be styled by its own sheet, run its own script.

    >>> policy("", "").split(";")[0]
    "default-src 'none'"
    """
    hashes = [base64.b64encode(hashlib.sha256(text.encode()).digest()).decode() for text in (style, script)]
    return (
        f"default-src 'none'; style-src 'sha256-{hashes[0]}'; script-src 'sha256-{hashes[1]}';"
        " base-uri 'none'; form-action 'none'"
    )


def _own(package: str, path: str) -> str:
    return files(package).joinpath(path).read_text("utf-8")


# -- pairs ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class JudgedPairReport:
    """What one judge said of a pair: outcomes, and answers word for word, in each order, by what they are about."""

    judge: JudgeReport
    outcomes: tuple[OutcomeView, ...]
    answers: list[tuple[str, list[str]]]
    reasons: list[Reason]

    @property
    def decided(self) -> PairOutcome | None:
        """The outcome on the dimension that decides."""
        return next((view.outcome for view in self.outcomes if view.dimension == self.judge.decides), None)


@dataclass(frozen=True, slots=True)
class PairReport:
    """One pair as the file shows it."""

    number: int
    pair: Pair
    excerpt: str
    names: tuple[str, str]
    texts: list[tuple[Rendered, int]]
    sizes: list[tuple[int, int]]
    kinds: str
    judged: list[JudgedPairReport]
    votes: Mapping[str, Mapping[Side, int]]  # how many people said what
    decided: Mapping[str, Side]  # what an adjudicator decided
    notes: list[str]
    meta: list[tuple[str, str]]


def _pairs(report: Report, store: Records) -> Iterator[PairReport]:
    people = People(store)
    stored = {judge.row.id: pick_outcomes(store.blocks(judge.row), report.chosen) for judge in report.judges}
    for number in report.chosen:
        pair = store.pages.pair(number)
        if pair is None:
            continue
        judged = [
            _judged_pair(
                judge, judgment, stored[judge.row.id].get(number, {}), store.archive.said(judge.row.id, number)
            )
            for judge in report.judges
            if (judgment := store.judgment(judge.row, number, pair)) is not None
        ]
        yield _pair_report(number, pair, judged, people, store)


def _pair_report(
    number: int, pair: Pair, judged: list[JudgedPairReport], people: People, store: Records
) -> PairReport:
    votes, decisions = people.votes(pair), people.decisions(pair)
    kinds = {kind for x in judged for kind in _kinds(x, final_label(votes, decisions, x.judge.decides))}
    return PairReport(
        number,
        pair,
        excerpt(pair.instruction, EXCERPT),
        (pair.model_1 or "1", pair.model_2 or "2"),
        [_text(text) for text in (pair.instruction, pair.output_1, pair.output_2)],
        [(len(text), len(text.split())) for text in (pair.output_1, pair.output_2)],
        " ".join(kind for kind in KINDS if kind in kinds),
        judged,
        {name: _tallied(list(said.values())) for name, said in votes.items()},
        {name: side for name in decisions if (side := label_of(decisions, name))},
        [label.note for label in store.labels.of(pair.key) if label.note],
        _meta(pair.metadata),
    )


def _tallied(said: list[Side]) -> dict[Side, int]:
    """How many people said what of this pair."""
    return {side: said.count(side) for side in SIDES if side in said}


def _text(text: str) -> tuple[Rendered, int]:
    shown, left_out = cut(text, TEXT_LIMIT)
    rendered = render(shown)
    return rendered, left_out + rendered.left_out


def _kinds(item: JudgedPairReport, known: Side | None) -> Iterator[str]:
    found = item.decided
    if found is None:
        return
    if found.side is None:
        yield "invalid"
    if found.inconsistent:
        yield "inconsistent"
    if known and found.side not in (None, known):
        yield "against_people"


def _judged_pair(
    judge: JudgeReport, judgment: Judgment, stored: Mapping[str, PairOutcome], said: Mapping[Order, tuple[str, ...]]
) -> JudgedPairReport:
    views = outcome_views(judgment, stored)
    return JudgedPairReport(judge, views, _answers(judge, said), _reasons(judge, judgment, said))


def _answers(judge: JudgeReport, said: Mapping[Order, tuple[str, ...]]) -> list[tuple[str, list[str]]]:
    """What the judge answered, word for word: for each question what it was about, and the answer in each order."""
    about = asked_about(judge.template)
    most = max((len(answers) for answers in said.values()), default=0)
    return [
        (
            ", ".join(about[question]) if question < len(about) else f"question {question + 1}",
            [_short(said[order][question]) if question < len(said.get(order, ())) else "" for order in ORDERS],
        )
        for question in range(most)
    ]


def _reasons(judge: JudgeReport, judgment: Judgment, said: Mapping[Order, tuple[str, ...]]) -> list[Reason]:
    """Why the judge said what it said, in words of sides."""
    found = ReasonReader.of(judge.row).reasons(with_words(judgment, said, questions_of(judge.template)))
    return [replace(reason, text=_short(reason.text)) for reason in found]


@cache
def asked_about(template: str) -> tuple[tuple[str, ...], ...]:
    """The dimensions of each question of a template; none of one that today's reader does not understand."""
    try:
        return tuple(tuple(question.dimensions) for question in Protocol.parse(template).questions)
    except TemplateError:
        return ()


def _short(text: str) -> str:
    shown, left_out = cut(text, ANSWER_LIMIT)
    return f"{shown}… ({left_out:,} more characters)" if left_out else shown


def _meta(metadata: Mapping[str, object]) -> list[tuple[str, str]]:
    """Metadata in a line: the first fields, none of them long."""
    found = []
    for key, value in list(metadata.items())[:_MOST_META]:
        text = (
            value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, sort_keys=True, default=str)
        )
        shown, left_out = cut(text, _META_LIMIT)
        found.append((cut(key, _META_LIMIT)[0], shown + ("…" if left_out else "")))
    return found
