"""The card after labelling: how far people agree with each other and with each judge, per dimension."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from evenhand.card import Card, card_of
from evenhand.evidence import gather
from evenhand.people import People
from evenhand.stats.agreement import People as Among
from evenhand.store import JudgeRow, Store
from evenhand.web import charts
from evenhand.web.site import Site

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
        state = store.pages.state()
        annotators = store.desk.annotators()
    found = site.figure(("card",), state, _all_cards)
    facts: dict[str, Any] = {
        "judges": found,
        "annotators": annotators,
        "among": among_people(found) if found else {},
        "trust": TRUST,
        "reliability": lambda card: charts.reliability(
            [(point["predicted"], point["observed"], point["n"]) for point in card.curve()]
        ),
    }
    return site.page("card.html", request, facts, session=session)


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
