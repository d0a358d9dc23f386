"""Who may ask for what: hosts, origins, sessions, tokens, and the headers that keep a page to itself.

A page on this machine can be reached by any page that the user's browser has open. So a request must name a host
that is ours (a foreign name that was pointed at 127.0.0.1 does not), a change must come from a page of ours
(Origin) and carry a token that only such a page can know, and nothing that a response holds may run or be fetched.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
import threading
import time
from collections.abc import Callable, Mapping
from urllib.parse import parse_qsl

from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

Form = Mapping[str, list[str]]
MOST_BYTES = 64 * 1024  # of a form
_MOST_FIELDS = 64
_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self';"
    " form-action 'self'; base-uri 'none'; frame-ancestors 'none';"
    " require-trusted-types-for 'script'; trusted-types 'none'"
)
HEADERS = {
    "Content-Security-Policy": _POLICY,
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    # Not "no-referrer": browsers then send "Origin: null" with our own forms.
    "Referrer-Policy": "same-origin",
    "Permissions-Policy": "camera=(), microphone=(), geolocation=(), browsing-topics=()",
}


class Refusal(Exception):
    """A request that is not answered, and why."""

    def __init__(self, status: int, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.status, self.message, self.hint = status, message, hint


def own_hosts(port: int, names: tuple[str, ...] = ()) -> frozenset[str]:
    """The values of the Host header that are ours.

    >>> sorted(own_hosts(8000))
    ['127.0.0.1:8000', '[::1]:8000', 'localhost:8000']
    """
    local = (f"{name}:{port}" for name in ("127.0.0.1", "localhost", "[::1]"))
    given = (host.lower() for name in names for host in (name, f"{name}:{port}"))
    return frozenset((*local, *given))


class Guard:
    """Stands before all pages: Host, Origin, how the browser came here; and headers on whatever goes out."""

    def __init__(self, app: ASGIApp, hosts: frozenset[str]) -> None:
        self.app, self.hosts = app, hosts

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer, or refuse."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in HEADERS.items():
                    headers[name] = value
                headers.setdefault("Cache-Control", "no-store")
            await send(message)

        fault = self.fault(scope["method"], Headers(scope=scope))
        if fault is not None:
            await PlainTextResponse(fault[1] + "\n", fault[0])(scope, receive, send_with_headers)
        else:
            await self.app(scope, receive, send_with_headers)

    def fault(self, method: str, headers: Headers) -> tuple[int, str] | None:
        """Why a request is refused, or None."""
        if [host.lower() for host in headers.getlist("host")] not in [[host] for host in self.hosts]:
            return 421, "This server does not answer to that name."
        if method in ("GET", "HEAD"):
            return self._strange(headers)
        if headers.get("origin", "").lower() not in {f"{s}://{h}" for h in self.hosts for s in ("http", "https")}:
            return 403, "A change must come from a page of this server."
        return None

    def _strange(self, headers: Headers) -> tuple[int, str] | None:
        """A foreign page may link here; it may not load what is here into itself."""
        site, mode = headers.get("sec-fetch-site", ""), headers.get("sec-fetch-mode", "")
        if site in ("cross-site", "same-site") and mode != "navigate":
            return 403, "Another site may not load this."
        if headers.get("sec-fetch-dest") in ("iframe", "frame", "embed", "object"):
            return 403, "This page does not stand in another."
        return None


class Door:
    """The owner's way in: a link that works once, and with `password`, that too.

    >>> door = Door()
    >>> link = door.link
    >>> session = door.enter(link)
    >>> door.knows(session), door.enter(link), door.link == link
    (True, None, False)
    """

    def __init__(self, password: str = "", announce: Callable[[str], None] | None = None) -> None:
        self.password = password
        self.link = secrets.token_urlsafe(24)
        self._announce = announce
        self._sessions: set[str] = set()
        self._lock = threading.Lock()
        self._wrong: list[float] = []  # when a wrong password was given

    def fits(self, link: str) -> bool:
        """Whether a link is the one that is open now."""
        return hmac.compare_digest(link.encode(), self.link.encode())

    def enter(self, link: str, password: str = "") -> str | None:
        """A session for the holder of the link, which then stops working; the next one is announced."""
        with self._lock:
            if not self.fits(link):
                return None
            if self.password:
                self._check(password)
            self.link = secrets.token_urlsafe(24)
            session = secrets.token_urlsafe(32)
            self._sessions.add(session)
        if self._announce is not None:
            self._announce(self.link)
        return session

    def _check(self, password: str) -> None:
        now = time.monotonic()
        self._wrong = [when for when in self._wrong if now - when < 60]
        if len(self._wrong) >= 5:
            raise Refusal(429, "Too many wrong passwords.", "wait a minute")
        if not hmac.compare_digest(password.encode(), self.password.encode()):
            self._wrong.append(now)
            raise Refusal(403, "That is not the password.", "try again")

    def knows(self, session: str) -> bool:
        """Whether the browser was let in by a link."""
        return any(hmac.compare_digest(session.encode(), known.encode()) for known in self._sessions)

    def leave(self, session: str) -> None:
        """End a session."""
        with self._lock:
            self._sessions.discard(session)


def form_token(session: str) -> str:
    """The token that a session's forms carry; who cannot read the cookie cannot make it.

    >>> form_token("a") == form_token("b")
    False
    """
    return hmac.new(session.encode(), b"evenhand form", hashlib.sha256).hexdigest()


async def read_form(request: Request) -> dict[str, list[str]]:
    """The fields of a form; Refusal where it is too large or something else."""
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != "application/x-www-form-urlencoded":
        raise Refusal(415, "That is not a form.")
    body = b""
    async for chunk in request.stream():
        body += chunk
        if len(body) > MOST_BYTES:
            raise Refusal(413, "That is too long.", f"a form may have {MOST_BYTES // 1024} KB")
    try:
        pairs = parse_qsl(
            body.decode(),
            keep_blank_values=True,
            strict_parsing=bool(body),
            max_num_fields=_MOST_FIELDS,
            errors="strict",
        )
    except ValueError as fault:
        raise Refusal(400, "That form cannot be read.") from fault
    form: dict[str, list[str]] = {}
    for name, value in pairs:
        form.setdefault(name, []).append(value)
    return form


def check_token(session: str, form: Form) -> None:
    """Refuse a form that does not carry its session's token."""
    given = form.get("token", [""])[0]
    if not hmac.compare_digest(given.encode(), form_token(session).encode()):
        raise Refusal(403, "This page is out of date.", "load it again, and try once more")


def cookie(response: Response, name: str, value: str, *, days: int | None = None) -> Response:
    """Set a cookie that scripts cannot read and other sites' requests do not carry."""
    age = None if days is None else days * 86_400
    response.set_cookie(name, value, max_age=age, httponly=True, samesite="lax", path="/")
    return response
