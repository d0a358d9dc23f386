"""A dossier as one HTML file: styles, pictures and a small script inside, nothing outside.

The Content-Security-Policy of the file names the hashes of its one style sheet and its one script and allows
nothing else, so that whatever a text might smuggle in would neither run nor be fetched.
"""

from __future__ import annotations

import base64
import hashlib
import json
from collections import Counter
from collections.abc import Iterator, Mapping
from functools import cache
from importlib.resources import files
from typing import IO, Any

from markupsafe import Markup

from evenhand.dossier import pictures
from evenhand.dossier.draws import KINDS
from evenhand.dossier.facts import EXCERPT, Dossier, JudgePart
from evenhand.errors import TemplateError
from evenhand.judge import Judgment
from evenhand.pairs import Pair
from evenhand.people import People
from evenhand.protocol import ORDERS, Protocol
from evenhand.store import Records
from evenhand.verdict import SIDES, Finding
from evenhand.web.markdown import render
from evenhand.web.templating import make_environment
from evenhand.web.text import cut

ANSWER_LIMIT = 1_000  # characters of one answer of a judge
TEXT_LIMIT = 20_000  # characters of one text: the file is to be mailed, and to be opened
MOST_MODELS = 30  # in a win matrix
_META_LIMIT, _MOST_META = 200, 20
KIND_WORDS = {
    "inconsistent": "The two orders contradict each other",
    "invalid": "No verdict could be read",
    "against_people": "Judge and people differ",
    "near_tie": "Nearest to a tie",
    "clear": "Clearest wins",
}


def write_page(dossier: Dossier, store: Records, to: IO[str]) -> None:
    """Write the file, one pair after the other."""
    style = _own("evenhand.web", "static/style.css") + _own("evenhand.dossier", "static/report.css")
    script = _own("evenhand.dossier", "static/report.js")
    facts = {
        "dossier": dossier,
        "title": dossier.wishes.title or "evenhand report",
        "style": Markup(style),
        "script": Markup(script),
        "policy": policy(style, script),
        "icon": Markup(_own("evenhand.web", "static/icon.svg").strip()),
        "can_draw": pictures.can_draw(),
        "pictures": pictures,
        "kinds": KIND_WORDS,
        "anchors": anchors_of(dossier, store),
        "shown": _pairs(dossier, store),
        "matrix": _matrix,
        "most_models": MOST_MODELS,
    }
    for piece in make_environment("evenhand.dossier").get_template("report.html").generate(**facts):
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


def anchors_of(dossier: Dossier, store: Records) -> dict[tuple[str, str], int]:
    """Where in the file a pair of the examples stands: its number."""
    names = {example.name for part in dossier.judges for few in part.examples.values() for example in few}
    found = {name: store.archive.number(*name) for name in names}
    return {name: number for name, number in found.items() if number is not None}


def _own(package: str, path: str) -> str:
    return files(package).joinpath(path).read_text("utf-8")


# -- pairs ---------------------------------------------------------------------------------------------------


def _pairs(dossier: Dossier, store: Records) -> Iterator[dict[str, Any]]:
    people = People(store)
    for number in dossier.chosen:
        pair = store.pages.pair(number)
        if pair is None:
            continue
        heard = [(part, store.judgment(part.row, number, pair)) for part in dossier.judges]
        yield _pair_facts(number, pair, [(p, j) for p, j in heard if j is not None], people, store)


def _pair_facts(
    number: int, pair: Pair, heard: list[tuple[JudgePart, Judgment]], people: People, store: Records
) -> dict[str, Any]:
    votes = people.votes(pair)
    verdicts = [(part, judgment.findings[part.on]) for part, judgment in heard if part.on in judgment.findings]
    texts = [_text(text) for text in (pair.instruction, pair.output_1, pair.output_2)]
    return {
        "number": number,
        "pair": pair,
        "excerpt": cut(pair.instruction, EXCERPT)[0] + ("…" if len(pair.instruction) > EXCERPT else ""),
        "names": (pair.model_1 or "1", pair.model_2 or "2"),
        "texts": texts,
        "sizes": [(len(text), len(text.split())) for text in (pair.output_1, pair.output_2)],
        "verdicts": verdicts,
        "kinds": " ".join(kind for kind in KINDS if kind in _kinds(verdicts, people, pair)),
        "judgments": [
            (part, [_finding_facts(f) for f in judgment.findings.values()], _answers(part, number, store))
            for part, judgment in heard
        ],
        "votes": {name: Counter(said.values()) for name, said in votes.items()},
        "notes": [label.note for label in store.labels.of(pair.key) if label.note],
        "meta": _meta(pair.metadata),
    }


def _text(text: str) -> tuple[Any, int]:
    shown, left_out = cut(text, TEXT_LIMIT)
    rendered = render(shown)
    return rendered, left_out + rendered.left_out


def _kinds(verdicts: list[tuple[JudgePart, Finding]], people: People, pair: Pair) -> set[str]:
    found = set()
    for part, finding in verdicts:
        known = people.label(pair, part.on)
        found |= {"invalid"} if finding.side is None else set()
        found |= {"inconsistent"} if finding.inconsistent else set()
        found |= {"against_people"} if known and finding.side not in (None, known) else set()
    return found


def _finding_facts(finding: Finding) -> dict[str, Any]:
    masses = [verdict.mass for verdict in finding.orders.values() if verdict.mass is not None]
    said = [
        (order, verdict, finding.heard(order), finding.p_heard(order) or _hard(finding.heard(order)))
        for order in ORDERS
        if (verdict := finding.orders.get(order))
    ]
    return {"finding": finding, "orders": said, "mass": min(masses, default=None)}


def _answers(part: JudgePart, number: int, store: Records) -> list[tuple[str, list[str]]]:
    """What the judge answered, word for word: for each ask what it was about, and the answer in each order."""
    said = store.archive.said(part.row.id, number)
    asked = asked_about(part.row.template)
    most = max((len(answers) for answers in said.values()), default=0)
    return [
        (
            ", ".join(asked[ask]) if ask < len(asked) else f"ask {ask + 1}",
            [_short(said[order][ask]) if ask < len(said.get(order, ())) else "" for order in ORDERS],
        )
        for ask in range(most)
    ]


@cache
def asked_about(template: str) -> tuple[tuple[str, ...], ...]:
    """The dimensions of each ask of a template; none of one that today's reader does not understand."""
    try:
        return tuple(tuple(ask.dimensions) for ask in Protocol.parse(template).asks)
    except TemplateError:
        return ()


def _short(text: str) -> str:
    shown, left_out = cut(text, ANSWER_LIMIT)
    return f"{shown}… ({left_out:,} more characters)" if left_out else shown


def _hard(side: str | None) -> dict[str, float] | None:
    return None if side is None else {name: float(name == side) for name in SIDES}


def _meta(metadata: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Metadata in a line: the first fields, none of them long."""
    found = []
    for key, value in list(metadata.items())[:_MOST_META]:
        text = (
            value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, sort_keys=True, default=str)
        )
        shown, left_out = cut(text, _META_LIMIT)
        found.append((cut(key, _META_LIMIT)[0], shown + ("…" if left_out else "")))
    return found


def _matrix(part: JudgePart) -> list[tuple[str, list[tuple[float | None, int]]]]:
    """The win matrix by rows: a model, and its (rate, pairs) against each."""
    found = part.ranking["win_matrix"] if part.ranking else {"models": [], "rates": [], "counts": []}
    return [
        (name, list(zip(rates, counts, strict=True))[:MOST_MODELS])
        for name, rates, counts in zip(found["models"], found["rates"], found["counts"], strict=True)
    ][:MOST_MODELS]
