"""The card after labelling: how far people agree with each other and with each judge, per dimension."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from markupsafe import Markup
from starlette.requests import Request
from starlette.responses import Response

from evenhand.card import Card, card_of
from evenhand.evidence import gather
from evenhand.people import People
from evenhand.stats.agreement import People as Among
from evenhand.store import JudgeRow, Store
from evenhand.web import charts
from evenhand.web.site import Figure, Site

TRUST = {"yes": "ok", "limited": "warn", "no": "bad", "unknown": "quiet"}


@dataclass(frozen=True, slots=True)
class JudgeCards:
    """One judge, and its cards on the dimensions that people have labelled."""

    judge: JudgeRow
    cards: tuple[Card, ...]


def show_card(site: Site, request: Request) -> Response:
    """The owner's page of agreement; counted aside, because it looks at every judgment."""
    session = site.owner(request)
    with site.store() as store:
        found = cards(site, store)
    facts: dict[str, Any] = {
        "judges": found.value,
        "fresh": found.fresh,
        "among": among_people(found.value) if found.value else {},
        "trust": TRUST,
        "reliability": reliability,
    }
    return site.page("card.html", request, facts, session=session)


def cards(site: Site, store: Store, *, patience: float | None = None) -> Figure[list[JudgeCards]]:
    """The cards of all judges, or those of a moment ago."""
    return site.figure(("card",), store.pages.state(), _all_cards, patience=patience)


def reliability(card: Card) -> Markup:
    """How sure a judge was against how often it was right, as a picture."""
    return charts.reliability([(point["predicted"], point["observed"], point["n"]) for point in card.curve()])


def _all_cards(store: Store) -> list[JudgeCards]:
    people = People(store)
    return [judge_cards(store, judge, people) for judge in reversed(store.judges())]


def judge_cards(store: Store, judge: JudgeRow, people: People) -> JudgeCards:
    """The cards of one judge."""
    evidence = gather(store, judge, people)
    return JudgeCards(judge, tuple(card_of(e) for e in evidence.values() if len(e.labelled)))


def among_people(judges: list[JudgeCards]) -> dict[str, Among]:
    """How far people agree with each other, by dimension; of several judges the one that heard most pairs."""
    best: dict[str, Among] = {}
    for item in judges:
        for card in item.cards:
            mine, known = card.people, best.get(card.dimension)
            if mine is not None and card.dimension != "combined" and (known is None or mine.pairs > known.pairs):
                best[card.dimension] = mine
    return best
