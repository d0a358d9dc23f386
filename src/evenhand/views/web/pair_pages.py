"""The owner's pages: the overview, the list of pairs, one pair."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any, cast
from urllib.parse import urlencode

from starlette.requests import Request
from starlette.responses import PlainTextResponse, RedirectResponse, Response

from evenhand.core.errors import InputError
from evenhand.core.judge import Judgment
from evenhand.core.pair import Pair, Side
from evenhand.core.protocol import ORDERS, Order, Protocol
from evenhand.core.reasons import Reason, ReasonReader, may_reason, questions_of, with_words
from evenhand.core.suspicion import suspicions
from evenhand.core.verdict import found_on
from evenhand.engines.made import is_made, was_asked_here
from evenhand.results.made import pair_line
from evenhand.results.pair_outcome import outcomes_from
from evenhand.results.people import People
from evenhand.results.ranking import is_ranked
from evenhand.store import HumanLabel, JudgeRow, Store, View
from evenhand.store.pages import ONLY, PAGE_SIZE, SORTS
from evenhand.views.web.address import MOST_TEXT, narrowed, path_number, read_number, read_view, write_view
from evenhand.views.web.agreeing import cards
from evenhand.views.web.conversation import PIECE_LIMIT, ConversationView, conversation_view
from evenhand.views.web.differences import mark_differences
from evenhand.views.web.guard import Refusal
from evenhand.views.web.markdown import How, render
from evenhand.views.web.outcome_view import OutcomeView, outcome_views
from evenhand.views.web.overview import JudgeOverview, ModelsOverview, judges_reasons, models_overview, overview
from evenhand.views.web.site import Site
from evenhand.views.web.text import cut

SHOWS = ("markdown", "text", "differences")
_MOST_PLACES = 10  # that are listed of text that seems to speak to the judge
_SORT_WORDS = {
    "uncertain": "most uncertain first",
    "sure": "surest first",
    "gap": "largest difference in length first",
    "entry": "as they came",
}
_ONLY_WORDS = {
    "inconsistent": "the two orders contradict each other",
    "invalid": "no verdict could be read",
    "against_people": "judge and people differ",
    "with_people": "people have spoken",
    "against_judges": "judges differ",
    "once": "it repeats no other pair",
    "as_it_was": "it was not attacked",
}


def show_overview(site: Site, request: Request) -> Response:
    """Judges, win rates, models, biases."""
    session = site.owner(request)
    found = site.figure(("overview",), lambda own: (overview(own), own.pages.models()))
    judges, models = found.value or ([], [])
    ranked = is_ranked(len(models), any(item.summary.several for item in judges))
    with site.store() as store:
        totals = store.pages.totals()
    context: dict[str, object] = {
        "judges": judges,
        "counting": found.value is None,
        "fresh": found.fresh,
        "totals": totals,
        "models": models,
        "write_view": write_view,
        "View": View,
        "compared": _compared(site, request, judges) if judges and ranked else None,
        **_beside_people(site, judges),
        **_reasons_given(site, judges),
    }
    return site.page("overview.html", request, context, session=session)


def _beside_people(site: Site, judges: list[JudgeOverview]) -> dict[str, object]:
    """The cards by judge, where people have labelled; counted in the background, so that the page need not wait."""
    labelled = [
        item.judge.id for item in judges if any(found.agreement for found in item.summary.dimensions.values())
    ]
    found = cards(site, patience=site.patience / 3) if labelled else None
    counted = found.value.judges if found and found.value else ()
    known = {item.judge.id: item.cards for item in counted}
    return {
        "cards": known,
        "attacks": {item.judge.id: item.attacks for item in counted if item.attacks},
        "uncounted": [number for number in labelled if number not in known],
    }


def _reasons_given(site: Site, judges: list[JudgeOverview]) -> dict[str, object]:
    """The reasons by judge, where one was asked for them; all answers are read, so this page does not wait long."""
    if not any(may_reason(item.judge) for item in judges):
        return {"reasons": {}, "unread": False}
    found = site.figure(("reasons",), judges_reasons, patience=site.patience / 3)
    return {"reasons": found.value or {}, "unread": found.value is None}


@dataclass(frozen=True, slots=True)
class ComparedModels:
    """The part of the overview that compares models: what was chosen, what may be chosen, and what came out."""

    view: View
    choices: list[tuple[JudgeRow, str]]
    found: ModelsOverview | None  # None while it is being counted


def _compared(site: Site, request: Request, judges: list[JudgeOverview]) -> ComparedModels:
    """The models by the judge and dimension that the address names."""
    rows = [item.judge for item in judges]
    view = read_view(request.query_params.multi_items(), rows[::-1])
    row = _named(rows, view.judge)
    summary = next(item.summary for item in judges if item.judge.id == row.id)
    found = site.figure(
        ("ranking", view.judge, view.dimension),
        lambda own: models_overview(own, row, view.dimension, summary),
        patience=site.patience / 3,
    )
    return ComparedModels(
        view, [(judge, name) for judge in rows for name in found_on(judge.dimensions)], found.value
    )


def show_pairs(site: Site, request: Request) -> Response:
    """The list."""
    session = site.owner(request)
    with site.store() as store:
        judges = store.judges(counted=False)
        if not judges:
            return _all_pairs(site, request, store, session)
        view = read_view(request.query_params.multi_items(), judges)
        count = store.pages.count(view)
        pages = max(1, -(-count // PAGE_SIZE))
        page = min(read_number("page", request.query_params.get("page", ""), 1, least=1), pages)
        judge = _named(judges, view.judge)
        context = {
            "view": view,
            "judges": judges,
            "judge": judge,
            "dimensions": found_on(judge.dimensions),
            "rows": store.pages.rows(view, page),
            "count": count,
            "page": page,
            "pages": pages,
            "fields": store.pages.fields(),
            "unfinished": store.unfinished(judge),
            "sorts": [(name, _SORT_WORDS[name]) for name in SORTS],
            "only": [(name, _ONLY_WORDS[name]) for name in ONLY],
            "sides": store.pages.sides(),
            "total": store.pages.totals()["pairs"],
            "write_view": write_view,
            "narrowed": narrowed,
        }
    return site.page("pairs.html", request, context, session=session)


def show_all_pairs(site: Site, request: Request) -> Response:
    """Every pair, judged or not."""
    session = site.owner(request)
    with site.store() as store:
        return _all_pairs(site, request, store, session)


def _all_pairs(site: Site, request: Request, store: Store, session: str) -> Response:
    text = request.query_params.get("q", "")[:MOST_TEXT]
    wanted = read_number("page", request.query_params.get("page", ""), 1, least=1)
    count, rows = store.pages.all_pairs(text, wanted)
    pages = max(1, -(-count // PAGE_SIZE))
    context = {
        "text": text,
        "rows": rows,
        "count": count,
        "page": min(wanted, pages),
        "pages": pages,
        "judges": store.judges(counted=False),
        "query": lambda **more: urlencode({"q": text, **more}),
    }
    return site.page("all_pairs.html", request, context, session=session)


def show_pair(site: Site, request: Request) -> Response:
    """One pair: texts, verdicts, people, the conversation."""
    session = site.owner(request)
    with site.store() as store:
        number, pair = _pair(store, request)
        judges = store.judges(counted=False)
        bare = not judges or "all" in request.query_params  # from the list that knows of no judge
        view = read_view(request.query_params.multi_items(), judges) if judges else View(0, "")
        context = {
            "number": number,
            "pair": pair,
            "suspicions": (found := suspicions(pair))[:_MOST_PLACES],
            "more_suspicions": max(len(found) - _MOST_PLACES, 0),
            "place": store.pages.place_among_all(number) if bare else store.pages.place(view, number),
            "list": "/pairs/all" if bare else f"/pairs?{write_view(view)}",
            "query": lambda **more: _same_list(view, bare, more),
            "judged": _judged(store, judges, view.judge, number, pair),
            "people": _people(store, pair),
            **_texts(pair, request.query_params.get("show", "markdown")),
            **_conversation(store, judges, view.judge, number, pair, request.query_params.get("order", "")),
        }
    return site.page("pair.html", request, context, session=session)


def show_text(site: Site, request: Request) -> Response:
    """One text of a pair, whole and as it is."""
    which = request.path_params["which"]
    if which not in ("instruction", "output_1", "output_2"):
        raise Refusal(404, "There is no such text.")
    site.owner(request)
    with site.store() as store:
        _, pair = _pair(store, request)
    return PlainTextResponse(getattr(pair, which))


def find_pair(site: Site, request: Request) -> Response:
    """The page of a pair that is named by its key."""
    site.owner(request)
    with site.store() as store:
        number = store.pages.number(request.path_params["key"])
    if number is None:
        raise Refusal(404, "There is no such pair.")
    return RedirectResponse(f"/pair/{number}", 303)


def _pair(store: Store, request: Request) -> tuple[int, Pair]:
    """The pair that the address names, with its number."""
    number = path_number(request.path_params["number"])
    pair = None if number is None else store.pages.pair(number)
    if number is None or pair is None:
        raise Refusal(404, "There is no such pair.")
    return number, pair


def _named(judges: list[JudgeRow], number: int) -> JudgeRow:
    return next(judge for judge in judges if judge.id == number)


def _texts(pair: Pair, show: str) -> dict[str, object]:
    """The three texts as the address wants them."""
    if show not in SHOWS:
        raise InputError(f"show is {show[:40]!r}", hint=f"one of {', '.join(SHOWS)}")
    plain: How = "markdown" if show == "markdown" else "text"
    outputs = [render(text, plain) for text in (pair.output_1, pair.output_2)]
    marked = mark_differences(pair.output_1, pair.output_2) if show == "differences" else None
    return {
        "show": show,
        "instruction": render(pair.instruction, plain),
        "outputs": outputs,
        "marked": marked,
        "too_long": show == "differences" and marked is None,
        "sizes": [(len(text), len(text.split())) for text in (pair.output_1, pair.output_2)],
    }


@dataclass(frozen=True, slots=True)
class JudgedPairView:
    """What one judge said of a pair."""

    judge: JudgeRow
    outcomes: tuple[OutcomeView, ...]
    reasons: tuple[Reason, ...] = ()
    word: str = ""  # of a judge that is made of others: who spoke, or who decided


def _judged(store: Store, judges: list[JudgeRow], first: int, number: int, pair: Pair) -> list[JudgedPairView]:
    """What each judge said of a pair; the judge of the list stands first, then the newest."""
    found = [
        JudgedPairView(
            judge,
            outcome_views(judgment, outcomes_from(store.pages.outcomes(judge.id, number))),
            _reasons(store, judge, number, judgment),
            _word(store, judge, number),
        )
        for judge in reversed(judges)
        if (judgment := store.judgment(judge, number, pair))
    ]
    return sorted(found, key=lambda item: item.judge.id != first)


def _reasons(store: Store, judge: JudgeRow, number: int, judgment: Judgment) -> tuple[Reason, ...]:
    """Why a judge said what it said, in words of sides, cut to what a page can hold."""
    spoken = with_words(judgment, store.archive.said(judge.id, number), questions_of(judge.template))
    found = ReasonReader.of(judge).reasons(spoken)
    return tuple(replace(reason, text=cut(reason.text, PIECE_LIMIT)[0]) for reason in found)


def _word(store: Store, judge: JudgeRow, number: int) -> str:
    """Who spoke in a jury, or which level decided; empty for a judge that was asked itself."""
    if not is_made(judge.identity):
        return ""
    word = store.made.word(judge.id, number)
    return pair_line(word) if word else ""


@dataclass(frozen=True, slots=True)
class PairVotes:
    """Who said what of a pair, by dimension; their notes, and who passed over it."""

    votes: Mapping[str, Mapping[str, Side]]
    decided: Mapping[str, Mapping[str, Side]]  # by adjudicators
    names: list[str]
    notes: list[HumanLabel]
    skipped: list[str]


def _people(store: Store, pair: Pair) -> PairVotes:
    people, kept = People(store), store.labels.of(pair.key)
    votes, decided = people.votes(pair), people.decisions(pair)
    return PairVotes(
        votes,
        decided,
        sorted({who for said in votes.values() for who in said}),
        [label for label in kept if label.note],
        sorted({label.annotator for label in kept if label.side is None}),
    )


def _same_list(view: View, bare: bool, more: Mapping[str, Any]) -> str:
    """The query of a pair's page that leads through the same list."""
    if not bare:
        return write_view(view, **more)
    return urlencode({"all": 1, **{name: value for name, value in more.items() if value}})


def _conversation(
    store: Store, judges: list[JudgeRow], wanted: int, number: int, pair: Pair, chosen: str
) -> dict[str, object]:
    """What the judge of the list saw and said, in the order that the address wants."""
    if chosen not in ("", *ORDERS):
        raise InputError(f"order is {chosen[:40]!r}", hint=f"one of {', '.join(ORDERS)}")
    if not judges:
        return {"conversation": None, "opened": False, "order": ""}
    judge = _named(judges, wanted)
    there = [order for order in ORDERS if store.pages.conversation(judge.id, number, order) is not None]
    order = cast("Order", chosen or (there[0] if there else ORDERS[0]))
    conversation = store.pages.conversation(judge.id, number, order)
    given: ConversationView | None = None
    if conversation is not None and was_asked_here(judge.identity):  # what it was asked is not known
        with suppress(InputError):  # a template that today's reader does not understand, or a field that is gone
            protocol = Protocol.parse(judge.template, name=judge.protocol)
            given = conversation_view(protocol, pair, order, store.answers(conversation), raw=judge.raw_markup)
    return {"conversation": given, "order": order, "orders": there, "opened": bool(chosen), "judge": judge}
