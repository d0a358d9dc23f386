"""What all pages share: the database, the templates, the owner's door, and results that are counted aside."""

from __future__ import annotations

import ipaddress
import queue
import threading
import time
from collections.abc import Callable, Hashable, Iterator, Mapping
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Generic, TypeVar, cast
from urllib.parse import urlsplit

from starlette.requests import Request
from starlette.responses import HTMLResponse, Response

from evenhand import __version__
from evenhand.core.errors import EvenhandError
from evenhand.store import Annotator, Store
from evenhand.store.opening import is_writable
from evenhand.store.words import WordIndex
from evenhand.views.web.guard import Door, Form, Refusal, check_token, form_token
from evenhand.views.web.templating import make_environment

_IDLE_SECONDS = 0.5
_MOST_STORES = 8
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class CachedFigure(Generic[T]):
    """What was counted: None where nothing is yet, `fresh` if nothing was written since."""

    value: T | None
    fresh: bool


@dataclass(frozen=True, slots=True)
class _Count:
    """A figure that is being made or was made of one state of the file, and the one before it."""

    state: Hashable = None
    last: Any = None
    made: Future[Any] = field(default_factory=lambda: _done(None))


def _done(value: Any) -> Future[Any]:
    made: Future[Any] = Future()
    made.set_result(value)
    return made


def is_local(host: str) -> bool:
    """Whether only this machine can reach an address.

    >>> is_local("127.0.0.1"), is_local("localhost"), is_local("0.0.0.0")
    (True, True, False)
    """
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


@dataclass
class Site:
    """One database and all that serves it."""

    db: Path
    port: int
    door: Door
    base: str  # what links to this server begin with
    hosts: frozenset[str]
    _stores: queue.LifoQueue[Store] = field(default_factory=queue.LifoQueue)
    _places: threading.Semaphore = field(default_factory=lambda: threading.Semaphore(_MOST_STORES))
    _stop: threading.Event = field(default_factory=threading.Event)
    patience: float = 1.5  # seconds that a page waits for a figure before it says that it is being counted
    words: WordIndex | None = None  # made when the server starts
    _watcher: Store | None = None  # a connection that never writes, and so notices all that is written
    _indexing: threading.Thread | None = None
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _figures: dict[Hashable, _Count] = field(default_factory=dict)
    _one_figure: threading.Lock = field(default_factory=threading.Lock)  # counting takes a core

    def __post_init__(self) -> None:
        self.templates = make_environment()

    @property
    def owner_cookie(self) -> str:
        """Cookies know no ports, so the name has it: two servers on one machine do not disturb each other."""
        return f"evenhand_owner_{self.port}"

    @property
    def annotator_cookie(self) -> str:
        """The cookie of the annotator in this browser."""
        return f"evenhand_annotator_{self.port}"

    @property
    def is_local(self) -> bool:
        """Whether links to this server work on this machine alone."""
        return is_local(urlsplit(self.base).hostname or "")

    # -- the database ----------------------------------------------------------------------------

    @contextmanager
    def store(self) -> Iterator[Store]:
        """A connection for one request: each has its own, so that no transaction is in another's way."""
        with self._places:
            try:
                store = self._stores.get_nowait()
            except queue.Empty:
                store = self._open()
                store.flush_each()
            store.pages.words = self.words
            try:
                yield store
            finally:
                self._stores.put(store)

    def _open(self) -> Store:
        """A connection; on a read-only mount pages can be read, and changes are refused with the reason."""
        return Store(self.db, read_only=self.db.exists() and not is_writable(self.db))

    @contextmanager
    def explaining(self) -> Iterator[None]:
        """Say that the database is damaged, where that is why something went wrong that should not."""
        try:
            yield
        except (Refusal, EvenhandError):
            raise
        except Exception as fault:
            with self.store() as store:
                store.explain(fault)
            raise

    def version(self) -> int:
        """Another number whenever something was written to the file, by this server or anybody else."""
        with self._lock:
            if self._watcher is None:
                self._watcher = self._open()
            return self._watcher.pages.version()

    def start(self) -> None:
        """Keep the index of words fresh in the background, while runs write to the same file."""
        self.words = words = WordIndex()
        self._indexing = threading.Thread(target=lambda: self._learn(words), name="words", daemon=True)
        self._indexing.start()

    def _learn(self, words: WordIndex) -> None:
        """Take new pairs into the index that searches ask; it rests as long as it works: others come first."""
        with suppress(EvenhandError), self.explaining():  # a search then reads all texts
            while words.open and not self._stop.wait(_IDLE_SECONDS):
                taught = 1
                while taught and not self._stop.is_set():
                    began = time.monotonic()
                    with self.store() as store:
                        taught = store.pages.teach(words)
                    self._stop.wait(time.monotonic() - began)

    def close(self) -> None:
        """Stop, and close the database."""
        self._stop.set()
        if self._indexing is not None:
            self._indexing.join()
        if self.words is not None:
            self.words.close()
        if self._watcher is not None:
            self._watcher.close()
        while not self._stores.empty():
            self._stores.get_nowait().close()

    def figure(
        self, name: Hashable, make: Callable[[Store], T], *, patience: float | None = None
    ) -> CachedFigure[T]:
        """Something that looks at all there is: counted once for each state of the file, in a thread of its own.

        The page waits a moment for it. After that it has the earlier count, while a run goes on writing, or none
        yet, and says so.
        """
        state = self.version()
        with self._lock:
            count = self._figures.get(name, _Count())
            if count.made.done() and count.state != state:  # never two counts of one thing at once
                last = count.made.result() if count.made.exception() is None else count.last
                count = self._figures[name] = _Count(state, last, Future())
                # A daemon: Ctrl-C does not wait for a figure that nobody will see.
                threading.Thread(target=self._make, args=(make, count.made), name="figure", daemon=True).start()
        try:
            found = count.made.result(timeout=self.patience if patience is None else patience)
        except TimeoutError:
            return CachedFigure(cast("T | None", count.last), fresh=False)
        return CachedFigure(cast("T", found), fresh=count.state == state)

    def _make(self, make: Callable[[Store], T], made: Future[T]) -> None:
        try:
            with self._one_figure, self.store() as store:
                made.set_result(make(store))
        except BaseException as fault:  # raised again in the thread that waits
            made.set_exception(fault)

    # -- who asks --------------------------------------------------------------------------------

    def owner(self, request: Request, form: Form | None = None) -> str:
        """The owner's session, or a refusal; a form must carry the session's token."""
        session = request.cookies.get(self.owner_cookie, "")
        if not self.door.knows(session):
            raise Refusal(
                403,
                "This page is for the owner.",
                "open the link that `evenhand serve` printed last; it works once",
            )
        if form is not None:
            check_token(session, form)
        return session

    def is_owner(self, request: Request) -> bool:
        """Whether the owner asks."""
        return self.door.knows(request.cookies.get(self.owner_cookie, ""))

    def annotator(self, request: Request, store: Store, form: Form | None = None) -> tuple[Annotator, str]:
        """Who labels, and their session; or a refusal. A form must carry the session's token."""
        secret = request.cookies.get(self.annotator_cookie, "")
        who = store.annotation.who(secret) if secret else None
        if who is None:
            raise Refusal(403, "This page needs an annotator's link.", "ask whoever invited you for a new one")
        if form is not None:
            check_token(secret, form)
        return who, secret

    # -- pages -----------------------------------------------------------------------------------

    def page(
        self, name: str, request: Request, context: Mapping[str, object], *, session: str = "", status: int = 200
    ) -> Response:
        """A page made of a template and what it shows."""
        html = self.templates.get_template(name).render(
            **context, token=form_token(session) if session else "", path=request.url.path, version=__version__
        )
        return HTMLResponse(html, status)
