"""The owner's pages: the overview, the list of pairs, one pair."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from typing import Any, cast
from urllib.parse import urlencode

from starlette.requests import Request
from starlette.responses import PlainTextResponse, RedirectResponse, Response

from evenhand.errors import InputError, TemplateError
from evenhand.judge import Judgment
from evenhand.pairs import Pair
from evenhand.people import People
from evenhand.protocol import ORDERS, Order, Protocol
from evenhand.rankings import bouts_of, ranking_facts
from evenhand.store import JudgeRow, Store, View
from evenhand.store.pages import ONLY, PAGE_SIZE, SORTS
from evenhand.verdict import SIDES, Finding
from evenhand.web.address import MOST_TEXT, dimensions_of, narrowed, path_number, read_number, read_view, write_view
from evenhand.web.agreeing import TRUST, cards, reliability
from evenhand.web.conversation import Conversation, retell
from evenhand.web.differences import mark_differences
from evenhand.web.guard import Refusal
from evenhand.web.markdown import How, render
from evenhand.web.overview import JudgeFacts, overview, win_matrix
from evenhand.web.site import Site

SHOWS = ("markdown", "text", "differences")
_SORT_WORDS = {
    "doubt": "most doubtful first",
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
}


def show_overview(site: Site, request: Request) -> Response:
    """Judges, win rates, models, effects."""
    session = site.owner(request)
    found = site.figure(
        ("overview",), site.generation, lambda own: (overview(own, site.clusters), own.pages.models())
    )
    judges, models = found.value or ([], [])
    with site.store() as store:
        facts: dict[str, Any] = {
            "judges": judges,
            "counting": found.value is None,
            "fresh": found.fresh,
            "totals": store.pages.totals(),
            "waiting": store.findings.waiting(),
            "models": models,
            "write_view": write_view,
            "View": View,
            "meeting": None,
            **_beside_people(site, store, judges),
        }
        if judges and len(models) > 2:
            facts["meeting"] = _meeting(site, store, request, [item.judge for item in judges])
    return site.page("overview.html", request, facts, session=session)


def _beside_people(site: Site, store: Store, judges: list[JudgeFacts]) -> dict[str, Any]:
    """The cards by judge, where people have labelled; counted aside, and this page does not wait for them."""
    spoken = [item.judge.id for item in judges if any(row.counts.known for row in item.dimensions)]
    found = cards(site, store, patience=site.patience / 3) if spoken else None
    known = {item.judge.id: item.cards for item in found.value.judges} if found and found.value else {}
    return {
        "cards": known,
        "uncounted": [number for number in spoken if number not in known],
        "trust": TRUST,
        "reliability": reliability,
    }


def _meeting(site: Site, store: Store, request: Request, judges: list[JudgeRow]) -> dict[str, Any]:
    """Win matrix and ranking of the judge and dimension that the address names."""
    view = read_view(request.query_params.multi_items(), judges[::-1])
    models, cells = win_matrix(store.pages.matches(view.judge, view.dimension))
    row = _named(judges, view.judge)
    ranking = site.figure(
        ("ranking", view.judge, view.dimension),
        store.pages.state(),
        lambda own: _ranking(own, row, view.dimension),
        patience=site.patience / 3,
    )
    return {
        "ranking": ranking.value,
        "view": view,
        "models": models[:30],
        "left_out": max(0, len(models) - 30),
        "cells": cells,
        "choices": [(judge, name) for judge in judges for name in dimensions_of(judge)],
    }


def _ranking(store: Store, judge: JudgeRow, dimension: str) -> dict[str, Any]:
    """Strengths with intervals and groups, or the sentence that says why there are none."""
    try:
        facts = ranking_facts(bouts_of(store.judgments(judge), dimension).ranking())
    except InputError as fault:
        return {"models": [], "why": str(fault), "warnings": []}
    ends = [
        x for model in facts["models"] for x in (model["low"], model["high"], model["strength"]) if x is not None
    ]
    return {**facts, "why": "", "least": min(ends, default=0.0), "most": max(ends, default=1.0)}


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
        facts = {
            "view": view,
            "judges": judges,
            "judge": _named(judges, view.judge),
            "dimensions": dimensions_of(_named(judges, view.judge)),
            "rows": store.pages.rows(view, page),
            "count": count,
            "page": page,
            "pages": pages,
            "fields": store.pages.fields(),
            "waiting": store.findings.waiting(),
            "sorts": [(name, _SORT_WORDS[name]) for name in SORTS],
            "only": [(name, _ONLY_WORDS[name]) for name in ONLY],
            "sides": store.pages.sides(),
            "total": store.pages.totals()["pairs"],
            "write_view": write_view,
            "narrowed": narrowed,
        }
    return site.page("pairs.html", request, facts, session=session)


def show_all_pairs(site: Site, request: Request) -> Response:
    """Every pair, heard by a judge or not."""
    session = site.owner(request)
    with site.store() as store:
        return _all_pairs(site, request, store, session)


def _all_pairs(site: Site, request: Request, store: Store, session: str) -> Response:
    text = request.query_params.get("q", "")[:MOST_TEXT]
    wanted = read_number("page", request.query_params.get("page", ""), 1, least=1)
    count, rows = store.pages.all_pairs(text, wanted)
    pages = max(1, -(-count // PAGE_SIZE))
    facts = {"text": text, "rows": rows, "count": count, "page": min(wanted, pages), "pages": pages}
    facts |= {"judges": store.judges(counted=False), "query": lambda **more: urlencode({"q": text, **more})}
    return site.page("all_pairs.html", request, facts, session=session)


def show_pair(site: Site, request: Request) -> Response:
    """One pair: texts, verdicts, people, the conversation."""
    session = site.owner(request)
    number = _number(request)
    with site.store() as store:
        pair = _pair(store, number)
        judges = store.judges(counted=False)
        bare = not judges or "all" in request.query_params  # from the list that knows of no judge
        view = read_view(request.query_params.multi_items(), judges) if judges else View(0, "")
        heard = [
            (judge, judgment) for judge in reversed(judges) if (judgment := store.judgment(judge, number, pair))
        ]
        heard.sort(key=lambda item: item[0].id != view.judge)  # the judge of the list stands first
        facts = {
            "number": number,
            "pair": pair,
            "place": store.pages.place_among_all(number) if bare else store.pages.place(view, number),
            "list": "/pairs/all" if bare else f"/pairs?{write_view(view)}",
            "query": lambda **more: _same_list(view, bare, more),
            "judgments": [_judgment_facts(judge, judgment) for judge, judgment in heard],
            "people": _people(store, pair),
            **_texts(pair, request.query_params.get("show", "markdown")),
            **_conversation(store, judges, view.judge, number, pair, request.query_params.get("heard", "")),
        }
    return site.page("pair.html", request, facts, session=session)


def show_text(site: Site, request: Request) -> Response:
    """One text of a pair, whole and as it is."""
    site.owner(request)
    with site.store() as store:
        pair = _pair(store, _number(request))
    return PlainTextResponse(getattr(pair, request.path_params["which"]))


def find_pair(site: Site, request: Request) -> Response:
    """The page of a pair that is named by its key."""
    site.owner(request)
    with site.store() as store:
        number = store.pages.number(request.path_params["key"])
    if number is None:
        raise Refusal(404, "There is no such pair.")
    return RedirectResponse(f"/pair/{number}", 303)


def _number(request: Request) -> int:
    number = path_number(request.path_params["number"])
    if number is None:
        raise Refusal(404, "There is no such pair.")
    return number


def _pair(store: Store, number: int) -> Pair:
    pair = store.pages.pair(number)
    if pair is None:
        raise Refusal(404, "There is no such pair.")
    return pair


def _named(judges: list[JudgeRow], number: int) -> JudgeRow:
    return next(judge for judge in judges if judge.id == number)


def _texts(pair: Pair, show: str) -> dict[str, Any]:
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


def _judgment_facts(judge: JudgeRow, judgment: Judgment) -> dict[str, Any]:
    return {"judge": judge, "rows": [_finding_facts(finding) for finding in judgment.findings.values()]}


def _finding_facts(finding: Finding) -> dict[str, Any]:
    masses = [verdict.mass for verdict in finding.orders.values() if verdict.mass is not None]
    return {
        "finding": finding,
        "orders": [
            (order, verdict, finding.heard(order), finding.p_heard(order) or _hard(finding.heard(order)))
            for order in ORDERS
            if (verdict := finding.orders.get(order))
        ],
        "mass": min(masses, default=None),
    }


def _hard(side: str | None) -> dict[str, float] | None:
    return None if side is None else {name: float(name == side) for name in SIDES}


def _people(store: Store, pair: Pair) -> dict[str, Any]:
    """Who said what of this pair, by dimension; and their notes."""
    votes = People(store).votes(pair)
    kept = store.labels.of(pair.key)
    return {
        "dimensions": list(votes),
        "names": sorted({who for said in votes.values() for who in said}),
        "votes": votes,
        "notes": [label for label in kept if label.note],
        "skipped": sorted({label.annotator for label in kept if label.side is None}),
    }


def _same_list(view: View, bare: bool, more: Mapping[str, Any]) -> str:
    """The query of a pair's page that leads through the same list."""
    if not bare:
        return write_view(view, **more)
    return urlencode({"all": 1, **{name: value for name, value in more.items() if value}})


def _conversation(
    store: Store, judges: list[JudgeRow], wanted: int, number: int, pair: Pair, heard: str
) -> dict[str, Any]:
    """What the judge of the list saw and said, in the order that the address wants."""
    if heard not in ("", *ORDERS):
        raise InputError(f"heard is {heard[:40]!r}", hint=f"one of {', '.join(ORDERS)}")
    if not judges:
        return {"told": None, "opened": False, "order": ""}
    judge = _named(judges, wanted)
    there = [order for order in ORDERS if store.pages.hearing(judge.id, number, order) is not None]
    order = cast("Order", heard or (there[0] if there else ORDERS[0]))
    hearing = store.pages.hearing(judge.id, number, order)
    told: Conversation | None = None
    if hearing is not None:
        with suppress(
            TemplateError
        ):  # of a template that today's reader does not understand there is nothing to tell
            protocol = Protocol.parse(judge.template, name=judge.protocol)
            told = retell(protocol, pair, order, store.answers(hearing), raw=judge.raw_markup)
    return {"told": told, "order": order, "orders": there, "opened": bool(heard), "judge": judge}
