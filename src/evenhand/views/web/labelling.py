"""The page on which people judge blind.

An annotator is told neither the models nor the pair's id nor any verdict; what is A and what is B is decided by
their own seed. The page only shows what `store.annotation` says is open, which alone decides what is taken.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass

from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, RedirectResponse, Response

from evenhand.core.errors import InputError
from evenhand.core.pair import Pair, excerpt
from evenhand.core.verdict import LABELS, SIDE_OF
from evenhand.results.disagreement import disagreements, tally
from evenhand.results.people import People
from evenhand.store import AnnotationTask, Annotator, Store
from evenhand.views.web.address import path_number, read_number
from evenhand.views.web.guard import Form, Refusal, cookie
from evenhand.views.web.markdown import How, render
from evenhand.views.web.site import Site

REASONS = (
    "cannot tell",
    "not my language",
    "needs knowledge I do not have",
    "broken or empty",
    "offensive",
    "other",
)
_LONGEST_NOTE = 4_000
_EXCERPT = 160  # characters of a text in the list of what was said
KEEP_DAYS = 90


# -- the annotator -----------------------------------------------------------------------------------


def come_in(site: Site, request: Request) -> Response:
    """An annotator's link: it may be used again, until the owner makes another."""
    secret = request.path_params["secret"]
    with site.store() as store:
        if store.annotation.who(secret) is None:
            raise Refusal(403, "This link leads nowhere.", "ask whoever invited you for a new one")
    return cookie(RedirectResponse("/annotate", 303), site.annotator_cookie, secret, days=KEEP_DAYS)


def show_task(site: Site, request: Request) -> Response:
    """The pair that is to be labelled now."""
    with site.store() as store:
        who, session = site.annotator(request, store)
        task, show = store.annotation.next(who.name), _how(request)
        if task is None and who.decides and put_disagreements(store, who.name):
            who, task = store.annotation.annotator(who.name) or who, store.annotation.next(who.name)
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


def put_disagreements(store: Store, name: str) -> int:
    """Put what people differ on by now before an adjudicator; how many pairs are new on the list."""
    found = disagreements(store).open
    return store.annotation.assign_disagreements(name, [(one.pair, one.dimensions) for one in found])


@dataclass(frozen=True, slots=True)
class OtherVotes:
    """What others said of a question, in the letters of the adjudicator's page and without names."""

    counts: tuple[tuple[str, int], ...]
    notes: tuple[str, ...]


def _others(store: Store, pair: Pair, task: AnnotationTask, dimension: str) -> OtherVotes:
    letter = {side: label for label, side in SIDE_OF[task.order].items()}
    counts = tally(People(store).votes(pair), dimension)
    notes = (
        label.note
        for label in store.labels.of(pair.key)
        if label.note and label.dimension == dimension and label.role == "annotator"
    )
    return OtherVotes(tuple((letter[side], count) for side, count in counts.items()), tuple(notes))


def _task_context(store: Store, who: Annotator, task: AnnotationTask, how: str) -> dict[str, object]:
    pair = _pair_of(store, task)
    rubric = {"guidelines": "", "text": "", "questions": {}, **json.loads(who.rubric)}
    open_now = next(name for name in task.asked if name not in task.said)
    shown = (pair.instruction, *pair.shown(task.order))
    plain: How = "text" if how == "text" else "markdown"
    return {
        "task": task,
        "dimension": open_now,
        "steps": [(name, task.shown(name), name in task.said) for name in task.asked],
        "others": _others(store, pair, task, open_now) if who.decides else None,
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
    which = request.path_params["which"]
    if which not in ("instruction", "a", "b"):
        raise Refusal(404, "There is no such text.")
    with site.store() as store:
        who, _ = site.annotator(request, store)
        place = path_number(request.path_params["place"])
        task = None if place is None else store.annotation.task(who.name, place)
        if task is None:
            raise Refusal(404, "There is no such pair on this list.")
        pair = _pair_of(store, task)
    a, b = pair.shown(task.order)
    return PlainTextResponse({"instruction": pair.instruction, "a": a, "b": b}[which])


def show_said(site: Site, request: Request) -> Response:
    """What an annotator has said so far, to look at and to take back."""
    with site.store() as store:
        who, session = site.annotator(request, store)
        page = read_number("page", request.query_params.get("page", ""), 1, least=1, most=10**6)
        tasks = store.annotation.done(who.name, page)
        rows = [(task, *_beginnings(_pair_of(store, task), task)) for task in tasks]
    context = {"who": who, "rows": rows, "page": page, "is_owner": site.is_owner(request)}
    return site.page("said.html", request, context, session=session)


def _beginnings(pair: Pair, task: AnnotationTask) -> tuple[str, str, str]:
    """Instruction, A and B as they were shown: many pairs may share the instruction."""
    a, b = pair.shown(task.order)
    return excerpt(pair.instruction, _EXCERPT), excerpt(a, _EXCERPT), excerpt(b, _EXCERPT)


def save(site: Site, request: Request, form: Form) -> Response:
    """Save a verdict; it is on the disk before the answer is sent."""
    with site.store() as store:
        who, _ = site.annotator(request, store, form)
        label = field_of(form, "label")
        if label not in LABELS:
            raise InputError(f"the verdict is {label[:40]!r}", hint="A, B or tie")
        place = read_number("place", field_of(form, "place"), 0)
        said = store.annotation.save(
            who.name,
            place,
            field_of(form, "dimension"),
            label,
            note=_note(form),
            seconds=_seconds(form),
        )
    return _answer(request, {"saved": True, "fresh": said.fresh})


def skip(site: Site, request: Request, form: Form) -> Response:
    """Pass over a pair, with a reason."""
    with site.store() as store:
        who, _ = site.annotator(request, store, form)
        reason = field_of(form, "reason")
        if reason not in REASONS:
            raise InputError("a pair is passed over for a reason", hint=f"one of: {', '.join(REASONS)}")
        note = _note(form)
        place = read_number("place", field_of(form, "place"), 0)
        store.annotation.skip(who.name, place, f"{reason}: {note}" if note else reason, seconds=_seconds(form))
    return _answer(request, {"saved": True})


def undo(site: Site, request: Request, form: Form) -> Response:
    """Take back what was said last."""
    with site.store() as store:
        who, _ = site.annotator(request, store, form)
        expected = (read_number("place", field_of(form, "place"), 0), field_of(form, "dimension"))
        if store.annotation.undo(who.name, expected) is None:
            raise InputError("there is nothing to take back")
    return _answer(request, {"saved": True})


def again(site: Site, request: Request, form: Form) -> Response:
    """Open a pair that is done."""
    with site.store() as store:
        who, _ = site.annotator(request, store, form)
        store.annotation.again(who.name, read_number("place", field_of(form, "place"), 0))
    return _answer(request, {"saved": True})


def _answer(request: Request, given: Mapping[str, bool]) -> Response:
    """For our script in JSON; for a browser without it, the page with what is open now."""
    if "application/json" in request.headers.get("accept", ""):
        return JSONResponse(dict(given))
    return RedirectResponse("/annotate", 303)


def field_of(form: Form, name: str) -> str:
    """A field of a form; empty where it is not there."""
    return form.get(name, [""])[0]


def _note(form: Form) -> str:
    note = field_of(form, "note").strip()
    if len(note) > _LONGEST_NOTE:
        raise InputError("the note is too long", hint=f"at most {_LONGEST_NOTE:,} characters")
    return note


def _seconds(form: Form) -> float | None:
    """The time that the page was looked at, as the page says; nobody's word is taken for a day or more."""
    try:
        seconds = float(field_of(form, "seconds"))
    except ValueError:
        return None
    return round(seconds, 1) if math.isfinite(seconds) and 0 <= seconds < 86_400 else None
