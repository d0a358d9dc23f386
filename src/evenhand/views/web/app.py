"""The application: its routes, and how errors are shown."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, RedirectResponse, Response
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles
from starlette.types import ASGIApp

from evenhand.core.errors import EvenhandError, InputError
from evenhand.store import Conflict
from evenhand.views.web import agreeing, labelling, people_pages
from evenhand.views.web import pair_pages as looking
from evenhand.views.web.guard import Guard, Refusal, cookie, read_form
from evenhand.views.web.site import Site
from evenhand.views.web.uploads import Upload, read_upload

Look = Callable[[Site, Request], Response]
Change = Callable[[Site, Request, Mapping[str, list[str]]], Response]
STATIC = Path(__file__).parent / "static"
_SPEAKS = "application/json"


def make_app(site: Site) -> ASGIApp:
    """The pages of a site."""

    @asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[None]:
        site.start()
        yield
        await run_in_threadpool(site.close)

    def look(path: str, page: Look) -> Route:
        return Route(path, _looking(site, page), methods=["GET"])

    def change(path: str, page: Change) -> Route:
        return Route(path, _changing(site, page), methods=["POST"])

    app = Starlette(
        routes=[
            look("/", looking.show_overview),
            look("/pairs", looking.show_pairs),
            look("/pairs/all", looking.show_all_pairs),
            look("/pair/{number}", looking.show_pair),
            look("/pair/{number}/text/{which}", looking.show_text),
            look("/find/{key}", looking.find_pair),
            look("/people", people_pages.show_people),
            look("/people/labels.{kind}", people_pages.take_labels),
            look("/card", agreeing.show_card),
            change("/people/invite", people_pages.invite),
            change("/people/adjudicate", people_pages.adjudicate),
            change("/people/renew", people_pages.renew),
            change("/people/rename", people_pages.rename),
            change("/people/remove", people_pages.remove),
            change("/people/more", people_pages.give_more),
            Route("/people/pairs", _uploading(site, people_pages.bring_pairs), methods=["POST"]),
            look("/a/{secret}", labelling.come_in),
            look("/annotate", labelling.show_task),
            look("/annotate/said", labelling.show_said),
            look("/annotate/text/{place}/{which}", labelling.show_task_text),
            change("/annotate/save", labelling.save),
            change("/annotate/skip", labelling.skip),
            change("/annotate/undo", labelling.undo),
            change("/annotate/again", labelling.again),
            look("/enter/{link}", _show_door),
            change("/enter/{link}", _enter),
            change("/leave", _leave),
            Mount("/static", StaticFiles(directory=STATIC)),
        ],
        exception_handlers={
            **dict.fromkeys((Refusal, EvenhandError, HTTPException), partial(_on_error, site)),
            ClientDisconnect: _on_leaving,
            Exception: _on_fault,
        },
        lifespan=lifespan,
    )
    return Guard(app, site.hosts)  # outermost: an error of ours goes out with the same headers


def _looking(site: Site, page: Look) -> Callable[[Request], Awaitable[Response]]:
    async def answer(request: Request) -> Response:
        return await run_in_threadpool(_explained, site, page, request)

    return answer


def _changing(site: Site, page: Change) -> Callable[[Request], Awaitable[Response]]:
    async def answer(request: Request) -> Response:
        form = await read_form(request)
        return await run_in_threadpool(_explained, site, page, request, form)

    return answer


def _uploading(
    site: Site, page: Callable[[Site, Request, Upload], Response]
) -> Callable[[Request], Awaitable[Response]]:
    async def answer(request: Request) -> Response:
        site.owner(request)  # before a large body is read
        upload = await read_upload(request)
        return await run_in_threadpool(_explained, site, page, request, upload)

    return answer


def _explained(site: Site, page: Callable[..., Response], *given: object) -> Response:
    with site.explaining():
        return page(site, *given)


# -- the owner's door --------------------------------------------------------------------------------


def _show_door(site: Site, request: Request) -> Response:
    """The one-time link. A link that is only looked at (HEAD, a browser that fetches ahead) is not used up."""
    if site.is_owner(request):
        return RedirectResponse("/", 303)
    link = request.path_params["link"]
    if not site.door.fits(link):
        raise Refusal(403, "This link was used already.", "the terminal shows a new one below it")
    if request.method != "GET" or "prefetch" in request.headers.get("sec-purpose", ""):
        return Response(status_code=204)
    if site.door.password:
        return site.page("door.html", request, {"link": link})
    return _let_in(site, site.door.enter(link))


def _enter(site: Site, request: Request, form: Mapping[str, list[str]]) -> Response:
    """The one-time link, with the password."""
    return _let_in(site, site.door.enter(request.path_params["link"], form.get("password", [""])[0]))


def _let_in(site: Site, session: str | None) -> Response:
    if session is None:
        raise Refusal(403, "This link was used already.", "the terminal shows a new one below it")
    return cookie(RedirectResponse("/", 303), site.owner_cookie, session)


def _leave(site: Site, request: Request, form: Mapping[str, list[str]]) -> Response:
    site.door.leave(site.owner(request, form))
    raise Refusal(200, "You have left.", "the terminal shows a link that leads in again")


# -- errors ------------------------------------------------------------------------------------------


def _message_page(site: Site, request: Request, status: int, message: str, hint: str) -> Response:
    if _SPEAKS in request.headers.get("accept", ""):
        return JSONResponse({"error": message, "hint": hint}, status)
    return site.page("refused.html", request, {"message": message, "hint": hint, "status": status}, status=status)


def _on_error(site: Site, request: Request, error: Exception) -> Response:
    """A request that is refused, an error of evenhand's own, or one of the server: what it says."""
    if isinstance(error, HTTPException):
        words = {404: "There is no such page.", 405: "That cannot be done here."}
        return _message_page(site, request, error.status_code, words.get(error.status_code, error.detail), "")
    assert isinstance(error, Refusal | EvenhandError)
    if isinstance(error, Refusal):
        status = error.status
    else:
        status = 409 if isinstance(error, Conflict) else 400 if isinstance(error, InputError) else 500
    return _message_page(site, request, status, error.message, error.hint)


def _on_leaving(request: Request, error: Exception) -> Response:
    """The client left before its form had arrived: not an error of ours, and nobody reads the answer."""
    return Response(status_code=400)


def _on_fault(request: Request, error: Exception) -> Response:
    """An internal error: shown without details, which are printed in the terminal."""
    return Response("Something went wrong here; the terminal says what.\n", 500, media_type="text/plain")
