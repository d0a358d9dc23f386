"""The owner's page of people: who labels, links, adjudication, labels to take away, and pairs to bring in."""

from __future__ import annotations

import json
import secrets
import shlex
import tempfile
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import TypedDict

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from evenhand.core.errors import InputError, TemplateError
from evenhand.core.pair import POINTWISE_DIMENSIONS
from evenhand.core.protocol import Protocol, built_in_names
from evenhand.core.verdict import found_on, headline
from evenhand.core.votes import votes_on
from evenhand.io.files import write_rows
from evenhand.results.disagreement import Disagreements, disagreements
from evenhand.results.people import People
from evenhand.results.suggestions import OtherJudges, suggest
from evenhand.store import Annotator, Store
from evenhand.views.export import LABELS, TEXTS, exported_labels
from evenhand.views.web.address import read_number
from evenhand.views.web.guard import Form, Refusal, cookie
from evenhand.views.web.labelling import KEEP_DAYS, field_of, put_disagreements
from evenhand.views.web.site import Site
from evenhand.views.web.uploads import MOST_UPLOAD, Upload, take_pairs

_ALONE = "overall only"
_LONGEST_GUIDELINES = 8_000
# What a person goes by where no protocol has a rubric of its own.
_GUIDELINES = """Read the instruction first, then both responses to the end.

Choose the response that serves the person who asked better: it does what was asked, what it says is true, and it \
is in the form that was asked for. Longer is not better by itself, and neither is a friendlier tone.

Choose tie where you would be equally glad, or equally sorry, to have been given either. Skip what you \
cannot judge."""
_DOWNLOADS = {"csv": "text/csv; charset=utf-8", "jsonl": "application/x-ndjson"}


class Rubric(TypedDict, total=False):
    """What annotators go by, as it is kept with them: the owner's words, the protocol's, and a line a dimension."""

    guidelines: str
    text: str
    questions: dict[str, str]


def show_people(site: Site, request: Request) -> Response:
    """Who labels, how far they are, and the form that invites another."""
    session = site.owner(request)
    with site.store() as store:
        return _people_page(site, request, store, session)


def _people_page(
    site: Site,
    request: Request,
    store: Store,
    session: str,
    *,
    link: str = "",
    name: str = "",
    notices: Sequence[str] = (),
) -> Response:
    differing = site.figure(("disagreements",), disagreements)
    context = {
        "annotators": store.annotation.annotators(),
        "labels": store.labels.annotators(),
        "differing": differing.value or Disagreements(),
        "counted": differing.value is not None,
        "notices": notices,
        "is_local": site.is_local,
        "db": shlex.quote(str(site.db)),
        "most_upload": MOST_UPLOAD >> 20,
        "choices": [(key, about) for key, (about, _, _) in _choices(store).items()],
        "pairs": store.pages.totals()["pairs"],
        "link": link,
        "name": name,
    }
    return site.page("people.html", request, context, session=session)


def invite(site: Site, request: Request, form: Form) -> Response:
    """Enter an annotator and put pairs before them."""
    session = site.owner(request, form)
    name = field_of(form, "name").strip()
    with site.store() as store:
        choices = _choices(store)
        asked = field_of(form, "asked") or _ALONE
        if asked not in choices:
            raise InputError(f"what is to be labelled is {asked[:40]!r}", hint="choose from the list")
        _, dimensions, rubric = choices[asked]
        rubric = {**rubric, **_guidelines(form)}
        count = read_number("pairs", field_of(form, "count"), 50, least=1, most=100_000)
        shared = read_number("shared pairs", field_of(form, "shared"), 0)
        seed = read_number("seed", field_of(form, "seed"), secrets.randbelow(1_000_000))
        secret = store.annotation.invite(
            name, dimensions=dimensions, seed=seed, protocol=asked, rubric=json.dumps(rubric)
        )
        store.annotation.assign(name, count=count, shared=shared, first=_suggested(store, form, count))
        return _with_link(site, request, store, form, session, name, secret)


def _with_link(
    site: Site, request: Request, store: Store, form: Form, session: str, name: str, secret: str
) -> Response:
    """The page with an annotator's link; or their labelling page, where the owner labels in this browser."""
    if field_of(form, "here"):
        return cookie(RedirectResponse("/annotate", 303), site.annotator_cookie, secret, days=KEEP_DAYS)
    return _people_page(site, request, store, session, link=f"{site.base}/a/{secret}", name=name)


def _guidelines(form: Form) -> Rubric:
    """The owner's own guidelines, where there are any."""
    given = field_of(form, "guidelines").replace("\r\n", "\n").strip()
    if len(given) > _LONGEST_GUIDELINES:
        raise InputError("the guidelines are too long", hint=f"at most {_LONGEST_GUIDELINES:,} characters")
    return Rubric(guidelines=given) if given else Rubric()


def adjudicate(site: Site, request: Request, form: Form) -> Response:
    """Enter an adjudicator, and put before them what people differ on."""
    session = site.owner(request, form)
    name = field_of(form, "name").strip()
    with site.store() as store:
        seed = read_number("seed", field_of(form, "seed"), secrets.randbelow(1_000_000))
        rubric = json.dumps({**_common_rubric(store), **_guidelines(form)})
        secret = store.annotation.invite(name, dimensions=(), seed=seed, rubric=rubric, role="adjudicator")
        put_disagreements(store, name)
        return _with_link(site, request, store, form, session, name, secret)


def _common_rubric(store: Store) -> Rubric:
    """The annotators' guidelines, for the adjudicator: the first rubric that there is for any of them."""
    every = [json.loads(who.rubric) for who in store.annotation.annotators() if not who.decides]
    questions = {name: line for rubric in reversed(every) for name, line in rubric.get("questions", {}).items()}
    words = {part: next((x[part] for x in every if x.get(part)), "") for part in ("guidelines", "text")}
    return Rubric(guidelines=words["guidelines"], text=words["text"], questions=questions)


def renew(site: Site, request: Request, form: Form) -> Response:
    """A new link for an annotator, or their labelling page in this browser; the old link stops working."""
    session = site.owner(request, form)
    with site.store() as store:
        who = _annotator(store, field_of(form, "name"))
        secret = store.annotation.renew(who.name)
        return _with_link(site, request, store, form, session, who.name, secret)


def rename(site: Site, request: Request, form: Form) -> Response:
    """Another name for an annotator; their link stays."""
    site.owner(request, form)
    with site.store() as store:
        store.annotation.rename(_annotator(store, field_of(form, "name")).name, field_of(form, "new").strip())
    return RedirectResponse("/people", 303)


def remove(site: Site, request: Request, form: Form) -> Response:
    """End an annotator's link and list; their labels stay, unless the form says otherwise."""
    site.owner(request, form)
    with site.store() as store:
        who = _annotator(store, field_of(form, "name"))
        store.annotation.remove(who.name, labels=bool(field_of(form, "labels")))
    return RedirectResponse("/people", 303)


def bring_pairs(site: Site, request: Request, upload: Upload) -> Response:
    """Take in a file of pairs, without asking any judge about them."""
    session = site.owner(request, upload.fields)
    with site.store() as store:
        given, new, notes = take_pairs(store, upload)
        pairs = "pair" if given == 1 else "pairs"
        notices = (f"{given:,} {pairs} in {upload.name[:80]}, {new:,} new.", *notes)
        return _people_page(site, request, store, session, notices=notices)


def take_labels(site: Site, request: Request) -> Response:
    """All labels as a file."""
    site.owner(request)
    kind = request.path_params["kind"]
    if kind not in _DOWNLOADS:
        raise Refusal(404, "There is no such file.", f"labels.{' or labels.'.join(_DOWNLOADS)}")
    columns = {**LABELS, **TEXTS} if request.query_params.get("texts") else LABELS
    with site.store() as store, tempfile.TemporaryDirectory(prefix="evenhand-") as folder:
        file = Path(folder, f"labels.{kind}")
        write_rows(file, ({name: row[name] for name in columns} for row in exported_labels(store)), columns)
        data = file.read_bytes()
    headers = {"Content-Disposition": f'attachment; filename="labels.{kind}"'}
    return Response(data, media_type=_DOWNLOADS[kind], headers=headers)


def give_more(site: Site, request: Request, form: Form) -> Response:
    """More pairs for an annotator."""
    site.owner(request, form)
    with site.store() as store:
        who = _annotator(store, field_of(form, "name"))
        if who.decides:
            put_disagreements(store, who.name)
            return RedirectResponse("/people", 303)
        count = read_number("pairs", field_of(form, "count"), 20, least=1, most=100_000)
        store.annotation.assign(who.name, count=count, shared=count if field_of(form, "shared") else 0)
    return RedirectResponse("/people", 303)


def _annotator(store: Store, name: str) -> Annotator:
    who = store.annotation.annotator(name)
    if who is None:
        raise Refusal(404, "No one of that name has been invited.")
    return who


def _choices(store: Store) -> dict[str, tuple[str, Sequence[str], Rubric]]:
    """What may be labelled: overall alone, or what a protocol asks; with words for it, dimensions and rubric."""
    templates = {judge.protocol: judge.template for judge in store.judges(counted=False)}
    found = {}
    for name, text in templates.items():
        with suppress(TemplateError):  # one that today's reader does not understand cannot be asked
            found[name] = Protocol.parse(text, name=name)
    found = {**{name: Protocol.load(name) for name in built_in_names() if name not in found}, **found}
    ordered = sorted(found.values(), key=lambda protocol: (protocol.name not in templates, protocol.name))
    question = {"overall": "Which response is better?"}
    alone = (_ALONE, ["overall"], Rubric(guidelines=_GUIDELINES, text="", questions=question))
    return {_ALONE: alone} | {
        protocol.name: (
            f"{protocol.name}: {', '.join(compared)}",
            compared,
            rubric_of(protocol),
        )
        for protocol in ordered
        if (compared := tuple(name for name in protocol.dimensions if name not in POINTWISE_DIMENSIONS))
    }


def rubric_of(protocol: Protocol) -> Rubric:
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
    return Rubric(text="\n\n".join(said), questions=questions)


def _suggested(store: Store, form: Form, count: int) -> Sequence[str]:
    """Keys of the pairs whose labels would teach most about the newest judge, where they are wanted first."""
    judges = store.judges(counted=False)
    if not field_of(form, "suggested") or not judges:
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
