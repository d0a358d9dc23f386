"""What all pages share: the database, the templates, the owner's door, and the one who keeps the lists fresh."""

from __future__ import annotations

import logging
import queue
import threading
import time
from collections.abc import Callable, Hashable, Iterator, Mapping
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Generic, TypeVar, cast

from starlette.requests import Request
from starlette.responses import HTMLResponse, Response

from evenhand import __version__
from evenhand.errors import EvenhandError
from evenhand.pairs import Pair, Side
from evenhand.people import People
from evenhand.store import Annotator, Store
from evenhand.store.words import WordIndex
from evenhand.votes import label_of
from evenhand.web.guard import Door, Refusal, form_token
from evenhand.web.overview import Clusters
from evenhand.web.templating import make_environment

_IDLE_SECONDS = 0.5
_AFTER_FAULT_SECONDS = 10.0
log = logging.getLogger(__name__)
_MOST_STORES = 8
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Figure(Generic[T]):
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
    clusters: Clusters = field(default_factory=Clusters)  # figures are counted one at a time, and share it
    generation: int = 0  # of the lists: another number whenever they have changed
    _keepers: list[threading.Thread] = field(default_factory=list)
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
        """The cookie of whoever labels in this browser."""
        return f"evenhand_annotator_{self.port}"

    # -- the database ----------------------------------------------------------------------------

    @contextmanager
    def store(self) -> Iterator[Store]:
        """A connection for one request: each has its own, so that no transaction is in another's way."""
        with self._places:
            try:
                store = self._stores.get_nowait()
            except queue.Empty:
                store = Store(self.db)
                store.flush_each()
            store.pages.words = self.words
            try:
                yield store
            finally:
                self._stores.put(store)

    def absorb(self, seconds: float) -> int:
        """Bring the lists up to date, for so many seconds at most; how many hearings are left."""
        end = time.monotonic() + seconds
        with self.store() as store:
            while time.monotonic() < end and store.findings.absorb(known=known(store)):
                self.generation += 1
                time.sleep(0.002)  # a run that waits for the lock gets it
            return store.findings.waiting()

    def start(self) -> None:
        """Keep the lists and the index fresh in the background, while runs write to the same file."""
        self.words = words = WordIndex()
        for work, name in ((self._keep, "lists"), (lambda: self._learn(words), "words")):
            thread = threading.Thread(target=work, name=name, daemon=True)
            thread.start()
            self._keepers.append(thread)

    def _keep(self) -> None:
        pause = _IDLE_SECONDS
        while not self._stop.wait(pause):
            pause = _IDLE_SECONDS
            try:
                self.absorb(5.0)
            except EvenhandError as fault:  # a full disk, say: the pages go on with what is there
                log.warning("the lists cannot be brought up to date: %s", fault)
                pause = _AFTER_FAULT_SECONDS

    def _learn(self, words: WordIndex) -> None:
        """Take new pairs into the index that searches ask; it rests as long as it works: others come first."""
        with suppress(EvenhandError):  # a search then reads all texts
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
        for thread in self._keepers:
            thread.join()
        if self.words is not None:
            self.words.close()
        while not self._stores.empty():
            self._stores.get_nowait().close()

    def figure(
        self, name: Hashable, state: Hashable, make: Callable[[Store], T], *, patience: float | None = None
    ) -> Figure[T]:
        """Something that looks at all there is: counted once for each state of the file, in a thread of its own.

        Whoever asks waits a moment for it. After that they have what was counted before, while a run goes on
        writing; or nothing yet, and the page says so.
        """
        with self._lock:
            count = self._figures.get(name, _Count())
            if count.made.done() and count.state != state:  # never two counts of one thing at once
                last = count.made.result() if count.made.exception() is None else count.last
                count = self._figures[name] = _Count(state, last, Future())
                # A daemon: whoever presses Ctrl-C does not wait for a figure that nobody will see.
                threading.Thread(target=self._make, args=(make, count.made), name="figure", daemon=True).start()
        try:
            found = count.made.result(timeout=self.patience if patience is None else patience)
        except TimeoutError:
            return Figure(cast("T | None", count.last), fresh=False)
        return Figure(cast("T", found), fresh=count.state == state)

    def _make(self, make: Callable[[Store], T], made: Future[T]) -> None:
        try:
            with self._one_figure, self.store() as store:
                made.set_result(make(store))
        except BaseException as fault:  # whoever waits is told
            made.set_exception(fault)

    # -- who asks --------------------------------------------------------------------------------

    def owner(self, request: Request) -> str:
        """The owner's session, or a refusal."""
        session = request.cookies.get(self.owner_cookie, "")
        if not self.door.knows(session):
            raise Refusal(
                403,
                "This page is for the owner.",
                "open the link that `evenhand serve` printed last; it works once",
            )
        return session

    def is_owner(self, request: Request) -> bool:
        """Whether the owner asks."""
        return self.door.knows(request.cookies.get(self.owner_cookie, ""))

    def annotator(self, request: Request, store: Store) -> tuple[Annotator, str]:
        """Who labels, and their session; or a refusal."""
        secret = request.cookies.get(self.annotator_cookie, "")
        who = store.desk.who(secret) if secret else None
        if who is None:
            raise Refusal(403, "This page needs an annotator's link.", "ask whoever invited you for a new one")
        return who, secret

    # -- pages -----------------------------------------------------------------------------------

    def page(
        self, name: str, request: Request, facts: Mapping[str, Any], *, session: str = "", status: int = 200
    ) -> Response:
        """A page made of a template and facts."""
        html = self.templates.get_template(name).render(
            **facts, token=form_token(session) if session else "", path=request.url.path, version=__version__
        )
        return HTMLResponse(html, status)


def known(store: Store) -> Callable[[Pair, str], Side | None]:
    """What people say of a pair's dimension; the votes are looked up once for all its dimensions."""
    people = People(store)
    last: tuple[str, dict[str, dict[str, Side]]] = ("", {})

    def say(pair: Pair, dimension: str) -> Side | None:
        nonlocal last
        if last[0] != pair.key:
            last = (pair.key, people.votes(pair))
        return label_of(last[1], dimension)

    return say
