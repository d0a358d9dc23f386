"""The page on which people judge blind, and the owner's page that invites them.

An annotator is told neither the models nor the pair's id nor any verdict; what is A and what is B is decided by
their own seed. The page only shows what `store.annotation` says is open, which alone decides what is taken.
"""

from __future__ import annotations

import json
import math
import secrets
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, RedirectResponse, Response

from evenhand.core.errors import InputError, TemplateError
from evenhand.core.pair import POINTWISE_DIMENSIONS, Pair
from evenhand.core.protocol import Protocol, built_in_names
from evenhand.core.verdict import LABELS, found_on, headline
from evenhand.core.votes import votes_on
from evenhand.results.people import People
from evenhand.results.suggest import OtherJudges, suggest
from evenhand.store import AnnotationTask, Annotator, Store
from evenhand.views.web.address import path_number, read_number
from evenhand.views.web.guard import Refusal, check_token, cookie
from evenhand.views.web.markdown import How, render
from evenhand.views.web.site import Site

Form = Mapping[str, list[str]]
REASONS = (
    "cannot tell",
    "not my language",
    "needs knowledge I do not have",
    "broken or empty",
    "offensive",
    "other",
)
_LONGEST_NOTE = 4_000
_ALONE = "overall alone"
_KEEP_DAYS = 90


# -- the annotator -----------------------------------------------------------------------------------


def come_in(site: Site, request: Request) -> Response:
    """An annotator's link: it may be used again, until the owner makes another."""
    secret = request.path_params["secret"]
    with site.store() as store:
        if store.annotation.who(secret) is None:
            raise Refusal(403, "This link leads nowhere.", "ask whoever invited you for a new one")
    return cookie(RedirectResponse("/annotate", 303), site.annotator_cookie, secret, days=_KEEP_DAYS)


def show_task(site: Site, request: Request) -> Response:
    """The pair that is to be labelled now."""
    with site.store() as store:
        who, session = site.annotator(request, store)
        task, show = store.annotation.next(who.name), _how(request)
        context: dict[str, object] = {
            "who": who,
            "last": store.annotation.last(who.name),
            "is_owner": site.is_owner(request),
            "reasons": REASONS,
            "show": show,
        }
        if task is None:
            return site.page("finished.html", request, context, session=session)
        context |= _task_context(store, who, task, show)
    return site.page("annotate.html", request, context, session=session)


def _task_context(store: Store, who: Annotator, task: AnnotationTask, how: str) -> dict[str, object]:
    pair = _pair_of(store, task)
    rubric = {"text": "", "questions": {}, **json.loads(who.rubric)}
    open_now = next(name for name in who.dimensions if name not in task.said)
    shown = (pair.instruction, *pair.shown(task.order))
    plain: How = "text" if how == "text" else "markdown"
    return {
        "task": task,
        "dimension": open_now,
        "steps": [(name, task.shown(name), name in task.said) for name in who.dimensions],
        "question": rubric["questions"].get(open_now, f"Which response is better on {open_now}?"),
        "rubric": rubric,
        "texts": dict(zip(("instruction", "a", "b"), (render(text, plain) for text in shown), strict=True)),
    }


def _pair_of(store: Store, task: AnnotationTask) -> Pair:
    number = store.pages.number(task.pair)
    pair = store.pages.pair(number) if number is not None else None
    if pair is None:
        raise Refusal(404, "This pair is no longer in the database.")
    return pair


def _how(request: Request) -> str:
    how = request.query_params.get("show", "markdown")
    if how not in ("markdown", "text"):
        raise InputError(f"show is {how[:40]!r}", hint="markdown or text")
    return how


def show_task_text(site: Site, request: Request) -> Response:
    """One text of a pair on the annotator's list, whole and as it is."""
    with site.store() as store:
        who, _ = site.annotator(request, store)
        place = path_number(request.path_params["place"])
        task = None if place is None else store.annotation.task(who.name, place)
        if task is None:
            raise Refusal(404, "There is no such pair on this list.")
        pair = _pair_of(store, task)
    a, b = pair.shown(task.order)
    return PlainTextResponse({"instruction": pair.instruction, "a": a, "b": b}[request.path_params["which"]])


def show_said(site: Site, request: Request) -> Response:
    """What an annotator has said so far, to look at and to take back."""
    with site.store() as store:
        who, session = site.annotator(request, store)
        page = read_number("page", request.query_params.get("page", ""), 1, least=1, most=10**6)
        tasks = store.annotation.done(who.name, page)
        rows = [(task, _pair_of(store, task).instruction[:160]) for task in tasks]
    context = {"who": who, "rows": rows, "page": page, "is_owner": site.is_owner(request)}
    return site.page("said.html", request, context, session=session)


def save(site: Site, request: Request, form: Form) -> Response:
    """Take a verdict; it is on the disk before this answers."""
    with site.store() as store:
        who, session = site.annotator(request, store)
        check_token(session, dict(form))
        label = _field(form, "label")
        if label not in LABELS:
            raise InputError(f"the verdict is {label[:40]!r}", hint="A, B or tie")
        place = read_number("place", _field(form, "place"), 0)
        said = store.annotation.save(
            who.name,
            place,
            _field(form, "dimension"),
            label,
            note=_note(form),
            seconds=_seconds(form),
        )
    return _answer(request, {"saved": True, "fresh": said.fresh})


def skip(site: Site, request: Request, form: Form) -> Response:
    """Pass over a pair, with a reason."""
    with site.store() as store:
        who, session = site.annotator(request, store)
        check_token(session, dict(form))
        reason = _field(form, "reason")
        if reason not in REASONS:
            raise InputError("a pair is passed over for a reason", hint=f"one of: {', '.join(REASONS)}")
        note = _note(form)
        place = read_number("place", _field(form, "place"), 0)
        store.annotation.skip(who.name, place, f"{reason}: {note}" if note else reason, seconds=_seconds(form))
    return _answer(request, {"saved": True})


def undo(site: Site, request: Request, form: Form) -> Response:
    """Take back what was said last."""
    with site.store() as store:
        who, session = site.annotator(request, store)
        check_token(session, dict(form))
        expected = (read_number("place", _field(form, "place"), 0), _field(form, "dimension"))
        if store.annotation.undo(who.name, expected) is None:
            raise InputError("there is nothing to take back")
    return _answer(request, {"saved": True})


def again(site: Site, request: Request, form: Form) -> Response:
    """Open a pair that is done."""
    with site.store() as store:
        who, session = site.annotator(request, store)
        check_token(session, dict(form))
        store.annotation.again(who.name, read_number("place", _field(form, "place"), 0))
    return _answer(request, {"saved": True})


def _answer(request: Request, given: Mapping[str, bool]) -> Response:
    """For our script in JSON; for a browser without it, the page with what is open now."""
    if "application/json" in request.headers.get("accept", ""):
        return JSONResponse(dict(given))
    return RedirectResponse("/annotate", 303)


def _field(form: Form, name: str) -> str:
    return form.get(name, [""])[0]


def _note(form: Form) -> str:
    note = _field(form, "note").strip()
    if len(note) > _LONGEST_NOTE:
        raise InputError("the note is too long", hint=f"at most {_LONGEST_NOTE:,} characters")
    return note


def _seconds(form: Form) -> float | None:
    """The time that the page was looked at, as the page says; nobody's word is taken for a day or more."""
    try:
        seconds = float(_field(form, "seconds"))
    except ValueError:
        return None
    return round(seconds, 1) if math.isfinite(seconds) and 0 <= seconds < 86_400 else None


# -- the owner ---------------------------------------------------------------------------------------


def show_people(site: Site, request: Request) -> Response:
    """Who labels, how far they are, and the form that invites another."""
    session = site.owner(request)
    with site.store() as store:
        return _people_page(site, request, store, session)


def _people_page(
    site: Site, request: Request, store: Store, session: str, *, link: str = "", name: str = ""
) -> Response:
    context = {
        "annotators": store.annotation.annotators(),
        "spoken": store.labels.annotators(),
        "choices": [(key, about) for key, (about, _, _) in _choices(store).items()],
        "pairs": store.pages.totals()["pairs"],
        "link": link,
        "name": name,
    }
    return site.page("people.html", request, context, session=session)


def invite(site: Site, request: Request, form: Form) -> Response:
    """Enter an annotator and put pairs before them."""
    session = site.owner(request)
    check_token(session, dict(form))
    name = _field(form, "name").strip()
    with site.store() as store:
        choices = _choices(store)
        asked = _field(form, "asked") or _ALONE
        if asked not in choices:
            raise InputError(f"what is to be labelled is {asked[:40]!r}", hint="choose from the list")
        _, dimensions, rubric = choices[asked]
        count = read_number("pairs", _field(form, "count"), 50, least=1, most=100_000)
        shared = read_number("shared pairs", _field(form, "shared"), 0)
        seed = read_number("seed", _field(form, "seed"), secrets.randbelow(1_000_000))
        secret = store.annotation.invite(
            name, dimensions=dimensions, seed=seed, protocol=asked, rubric=json.dumps(rubric)
        )
        store.annotation.assign(name, count=count, shared=shared, first=_suggested(store, form, count))
        if _field(form, "here"):
            return cookie(RedirectResponse("/annotate", 303), site.annotator_cookie, secret, days=_KEEP_DAYS)
        return _people_page(site, request, store, session, link=f"{site.base}/a/{secret}", name=name)


def renew(site: Site, request: Request, form: Form) -> Response:
    """A new link for an annotator, or their chair in this browser; the old link leads nowhere from now on."""
    session = site.owner(request)
    check_token(session, dict(form))
    with site.store() as store:
        who = _annotator(store, _field(form, "name"))
        secret = store.annotation.renew(who.name)
        if _field(form, "here"):
            return cookie(RedirectResponse("/annotate", 303), site.annotator_cookie, secret, days=_KEEP_DAYS)
        return _people_page(site, request, store, session, link=f"{site.base}/a/{secret}", name=who.name)


def give_more(site: Site, request: Request, form: Form) -> Response:
    """More pairs for an annotator."""
    session = site.owner(request)
    check_token(session, dict(form))
    with site.store() as store:
        who = _annotator(store, _field(form, "name"))
        count = read_number("pairs", _field(form, "count"), 20, least=1, most=100_000)
        store.annotation.assign(who.name, count=count, shared=count if _field(form, "shared") else 0)
    return RedirectResponse("/people", 303)


def _annotator(store: Store, name: str) -> Annotator:
    who = store.annotation.annotator(name)
    if who is None:
        raise Refusal(404, "No one of that name has been invited.")
    return who


def _choices(store: Store) -> dict[str, tuple[str, Sequence[str], dict[str, Any]]]:
    """What may be labelled: overall alone, or what a protocol asks; with words for it, dimensions and rubric."""
    templates = {judge.protocol: judge.template for judge in store.judges(counted=False)}
    found = {}
    for name, text in templates.items():
        with suppress(TemplateError):  # one that today's reader does not understand cannot be asked
            found[name] = Protocol.parse(text, name=name)
    found = {**{name: Protocol.load(name) for name in built_in_names() if name not in found}, **found}
    ordered = sorted(found.values(), key=lambda protocol: (protocol.name not in templates, protocol.name))
    alone = {_ALONE: (_ALONE, ["overall"], {"text": "", "questions": {"overall": "Which response is better?"}})}
    return alone | {
        protocol.name: (
            f"{protocol.name}: {', '.join(compared)}",
            compared,
            rubric_of(protocol),
        )
        for protocol in ordered
        if (compared := tuple(name for name in protocol.dimensions if name not in POINTWISE_DIMENSIONS))
    }


def rubric_of(protocol: Protocol) -> dict[str, Any]:
    """What a person is to go by: what the template says before its examples, and its question on each dimension.

    >>> rubric_of(Protocol.load("chained"))["questions"]["format"]
    'Best on format: A, B, or tie?'
    """
    compared = [question for question in protocol.questions if question.dimensions[0] not in POINTWISE_DIMENSIONS]
    before = dict.fromkeys(
        turn for question in compared for turn in protocol.turns[question.start : question.turns]
    )
    said = [
        "".join(piece for piece in turn.pieces if isinstance(piece, str))
        for turn in before
        if turn.role == "system"
    ]
    questions: dict[str, str] = {}
    for question in compared:
        closing = protocol.turns[question.turns - 1].pieces[-1]
        line = closing.rstrip().rsplit("\n", 1)[-1] if isinstance(closing, str) else ""
        questions |= {name: line for name in question.dimensions if line and len(question.dimensions) == 1}
    return {"text": "\n\n".join(said), "questions": questions}


def _suggested(store: Store, form: Form, count: int) -> Sequence[str]:
    """Keys of the pairs whose labels would teach most about the newest judge, where they are wanted first."""
    judges = store.judges(counted=False)
    if not _field(form, "suggested") or not judges:
        return ()
    newest, people = judges[-1], People(store)
    dimension = headline(newest.dimensions)
    others = [judge for judge in judges[:-1] if dimension in found_on(judge.dimensions)]
    found = suggest(
        store.judgments(newest),
        lambda pair: bool(votes_on(people.votes(pair), dimension)),
        dimension=dimension,
        number=count,
        others=OtherJudges((store.judgments(other) for other in others), dimension) if others else None,
    )
    return [suggestion.pair.key for suggestion in found.pairs]
