"""The card after labelling: how far people agree with each other and with each judge, per dimension."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from markupsafe import Markup
from starlette.requests import Request
from starlette.responses import Response

from evenhand.card import Card, card_of
from evenhand.evidence import gather, people_with_each_other
from evenhand.people import People
from evenhand.stats.agreement import People as Among
from evenhand.store import JudgeRow, Store
from evenhand.web import charts
from evenhand.web.site import Figure, Site

TRUST = {"yes": "ok", "limited": "warn", "no": "bad", "unknown": "quiet", "none": "quiet"}


@dataclass(frozen=True, slots=True)
class JudgeCards:
    """One judge, and its cards on the dimensions that people have labelled."""

    judge: JudgeRow
    cards: tuple[Card, ...]


@dataclass(frozen=True, slots=True)
class Agreement:
    """All that is known of agreement: each judge with people, and people with each other, by dimension."""

    judges: tuple[JudgeCards, ...]
    among: Mapping[str, Among]


def show_card(site: Site, request: Request) -> Response:
    """The owner's page of agreement; counted aside, because it looks at every judgment."""
    session = site.owner(request)
    with site.store() as store:
        found = cards(site, store)
    facts: dict[str, Any] = {
        "judges": None if found.value is None else found.value.judges,
        "fresh": found.fresh,
        "among": found.value.among if found.value else {},
        "trust": TRUST,
        "reliability": reliability,
    }
    return site.page("card.html", request, facts, session=session)


def cards(site: Site, store: Store, *, patience: float | None = None) -> Figure[Agreement]:
    """The cards of all judges, or those of a moment ago."""
    return site.figure(("card",), store.pages.state(), _agreement, patience=patience)


def reliability(card: Card) -> Markup:
    """How sure a judge was against how often it was right, as a picture."""
    return charts.reliability([(point["predicted"], point["observed"], point["n"]) for point in card.curve()])


def _agreement(store: Store) -> Agreement:
    people = People(store)
    return Agreement(
        tuple(judge_cards(store, judge, people) for judge in reversed(store.judges())),
        people_with_each_other(store.labels.pairs(), people),
    )


def judge_cards(store: Store, judge: JudgeRow, people: People) -> JudgeCards:
    """The cards of one judge."""
    evidence = gather(store, judge, people)
    return JudgeCards(judge, tuple(card_of(e) for e in evidence.values() if len(e.labelled)))
