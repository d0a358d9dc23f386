"""The card after labelling: how far people agree with each other and with each judge, per dimension."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from starlette.requests import Request
from starlette.responses import Response

from evenhand.core.stats.agreement import Raters as AmongPeople
from evenhand.results.attack import AttackSummary
from evenhand.results.card import Card, card_of
from evenhand.results.evidence import gather, people_with_each_other
from evenhand.results.noise import noise_of
from evenhand.results.people import People
from evenhand.results.stored_attacks import stored_attacks
from evenhand.store import JudgeRow, Store
from evenhand.views.web.site import CachedFigure, Site


@dataclass(frozen=True, slots=True)
class JudgeCards:
    """One judge, and its cards on the dimensions that people have labelled."""

    judge: JudgeRow
    cards: tuple[Card, ...]
    attacks: AttackSummary | None = None  # None where no attacked pair is kept


@dataclass(frozen=True, slots=True)
class Agreement:
    """All that is known of agreement: each judge with people, and people with each other, by dimension."""

    judges: tuple[JudgeCards, ...]
    among: Mapping[str, AmongPeople]


def show_card(site: Site, request: Request) -> Response:
    """The owner's page of agreement; counted in the background, because it reads every outcome."""
    session = site.owner(request)
    found = cards(site)
    context = {
        "judges": None if found.value is None else found.value.judges,
        "fresh": found.fresh,
        "among": found.value.among if found.value else {},
    }
    return site.page("card.html", request, context, session=session)


def cards(site: Site, *, patience: float | None = None) -> CachedFigure[Agreement]:
    """The cards of all judges, or those of a moment ago."""
    return site.figure(("card",), _agreement, patience=patience)


def _agreement(store: Store) -> Agreement:
    people = People(store)
    return Agreement(
        tuple(judge_cards(store, judge, people) for judge in reversed(store.judges())),
        people_with_each_other(store.labels.pairs(), people),
    )


def judge_cards(store: Store, judge: JudgeRow, people: People) -> JudgeCards:
    """The cards of one judge."""
    evidence = gather(store, judge, people)
    noise = noise_of(store, judge)
    labelled = ((name, e) for name, e in evidence.items() if e.use.labelled)
    found = tuple(card_of(e, noise=noise.get(name)) for name, e in labelled)
    return JudgeCards(judge, found, stored_attacks(store, judge))
