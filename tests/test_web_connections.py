"""evenhand serve under connections that keep it waiting: they end, and everybody else is served."""

from __future__ import annotations

import resource
import select
import socket
import time
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from pathlib import Path

import pytest

from evenhand import Pair
from evenhand.views.web import connections
from evenhand.views.web.connections import BoundedConnection, make_server, most_connections
from web_server import WebServer, fill, plain_pairs

MOST = 40
HALF = b"GET /pairs HTTP/1.1\r\nHost: 127.0.0.1\r\nX-Half: "
FORM = b"POST /people/invite HTTP/1.1\r\nHost: %s\r\nOrigin: http://%s\r\nContent-Length: 100\r\n"
FORM += b"Content-Type: application/x-www-form-urlencoded\r\n\r\ntoken="
PATIENCE = 60.0  # seconds; only a test that fails waits so long


@pytest.fixture
def web(db: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[WebServer]:
    """A server that waits a second where it would wait for a quarter of a minute, and takes few connections."""
    fill(db, [*plain_pairs(2), Pair("Long?", "x" * 8_000_000, "y", id="long")])
    monkeypatch.setattr(connections, "MOST_CONNECTIONS", MOST)
    monkeypatch.setattr(BoundedConnection, "most", MOST)  # put back at the end
    monkeypatch.setattr(BoundedConnection, "request_seconds", 1.0)
    monkeypatch.setattr(BoundedConnection, "reading_seconds", 0.5)
    with WebServer(db, log_level="error") as server:
        yield server


@pytest.fixture(autouse=True)
def nothing_is_printed(capfd: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    """No traceback and no line of the server or of asyncio."""
    yield
    assert capfd.readouterr().err == ""
    assert not [record.message for record in caplog.get_records("call") if record.levelname == "ERROR"]


def opened(web: WebServer, sent: bytes, stack: ExitStack) -> socket.socket:
    link = stack.enter_context(socket.socket())
    link.settimeout(PATIENCE)
    # The kernel may grow a buffer until it holds whole answers that nobody reads; one that is set stays as it is.
    link.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2**16)
    link.connect(("127.0.0.1", web.port))
    link.sendall(sent)
    return link


def ended(links: list[socket.socket]) -> int:
    """How many of them the server ends, given time."""
    waiting, until = set(links), time.monotonic() + PATIENCE
    while waiting and (left := until - time.monotonic()) > 0:
        for link in select.select(list(waiting), [], [], left)[0]:
            with suppress(ConnectionError):
                if link.recv(2**20):
                    continue
            waiting.discard(link)
    return len(links) - len(waiting)


def test_half_sent_requests_are_ended_and_others_served_meanwhile(web: WebServer) -> None:
    with ExitStack() as stack:
        owner = web.owner()
        links = []
        for number in range(300):
            links.append(opened(web, HALF, stack))
            if number % 50 == 49:
                began = time.monotonic()
                assert owner.get("/pairs").status == 200
                assert time.monotonic() - began < 20
        most = len(web.connections)
        assert ended(links) == 300
        assert owner.get("/pairs").status == 200
    assert most <= MOST


def test_a_connection_on_which_nothing_comes_is_ended(web: WebServer) -> None:
    with ExitStack() as stack:
        began = time.monotonic()
        assert ended([opened(web, b"", stack) for _ in range(5)]) == 5
        assert time.monotonic() - began > 0.5


def test_a_request_that_comes_byte_by_byte_is_ended(web: WebServer) -> None:
    with ExitStack() as stack:
        began = time.monotonic()
        link = opened(web, HALF, stack)
        with suppress(ConnectionError):
            while time.monotonic() - began < PATIENCE:
                link.sendall(b"x")
                time.sleep(0.05)
        assert 0.8 < time.monotonic() - began < PATIENCE


def test_a_half_sent_form_is_ended_without_a_traceback(web: WebServer) -> None:
    host = f"127.0.0.1:{web.port}".encode()
    with ExitStack() as stack:
        links = [opened(web, FORM % (host, host), stack) for _ in range(5)]
        assert ended(links) == 5
    assert web.owner().get("/pairs").status == 200


def test_the_second_request_of_a_connection_has_its_deadline_too(web: WebServer) -> None:
    with ExitStack() as stack:
        link = opened(web, b"GET /static/style.css HTTP/1.1\r\nHost: 127.0.0.1:%d\r\n\r\n" % web.port, stack)
        assert link.recv(12) == b"HTTP/1.1 200"
        time.sleep(0.2)
        link.sendall(HALF)
        assert ended([link]) == 1


def test_a_form_that_is_half_sent_behind_another_request_has_its_deadline_too(web: WebServer) -> None:
    host = f"127.0.0.1:{web.port}".encode()
    with ExitStack() as stack:
        whole = b"GET /static/style.css HTTP/1.1\r\nHost: %s\r\n\r\n" % host
        assert ended([opened(web, whole + FORM % (host, host), stack)]) == 1


def test_what_is_no_http_behind_an_early_answer_leaves_no_traceback(web: WebServer) -> None:
    with ExitStack() as stack:
        form = b"POST /people/invite HTTP/1.1\r\nHost: 127.0.0.1:%d\r\nTransfer-Encoding: chunked\r\n\r\n"
        link = opened(web, form % web.port, stack)
        assert link.recv(12) == b"HTTP/1.1 403"  # it has no Origin, so nobody waits for the rest
        link.sendall(b"no length\r\n")
        assert ended([link]) == 1


def test_the_rest_of_an_answer_that_nobody_reads_is_ended(web: WebServer) -> None:
    """It is too short to pause at, and closing a connection waits for it to be read."""
    web.listening.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 2**12)
    request = b"GET /static/style.css HTTP/1.1\r\nHost: 127.0.0.1:%d\r\nConnection: close\r\n\r\n" % web.port
    with socket.socket() as link:
        link.settimeout(PATIENCE)
        link.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2**12)
        link.connect(("127.0.0.1", web.port))
        link.sendall(request)
        assert link.recv(12) == b"HTTP/1.1 200"
        deadline = time.monotonic() + PATIENCE
        while web.connections and time.monotonic() < deadline:
            time.sleep(0.02)
        assert not web.connections


def test_a_newcomer_is_answered_where_all_others_are_being_served_again_and_again(
    web: WebServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """None of them waits for its client: there, the one goes that was answered most often."""
    monkeypatch.setattr(BoundedConnection, "most", 8)
    host = f"127.0.0.1:{web.port}".encode()
    with ExitStack() as stack:
        links = [opened(web, b"GET / HTTP/1.1\r\nHost: %s\r\n\r\n" % host, stack) for _ in range(8)]
        assert all(link.recv(12) == b"HTTP/1.1 403" for link in links)
        stack.enter_context(web.site.door._lock)  # what comes to the door is under way until the end of this test
        for link in links:
            link.sendall(FORM.replace(b"people/invite", b"enter/it") % (host, host) + b"x" * 94)
        deadline = time.monotonic() + PATIENCE
        while any(each.waits for each in web.connections) and time.monotonic() < deadline:
            time.sleep(0.01)
        assert web.client().get("/static/style.css").status == 200


def test_an_answer_that_nobody_reads_is_ended(web: WebServer, monkeypatch: pytest.MonkeyPatch) -> None:
    owner = web.owner()
    cookies = "; ".join(f"{name}={value}" for name, value in owner.cookies.items())
    text = f"GET /pair/3/text/output_1 HTTP/1.1\r\nHost: 127.0.0.1:{web.port}\r\nCookie: {cookies}\r\n\r\n"
    with ExitStack() as stack:
        link = opened(web, text.encode(), stack)
        assert link.recv(12) == b"HTTP/1.1 200"  # a connection not yet accepted is not one that has ended
        deadline = time.monotonic() + PATIENCE
        while web.connections and time.monotonic() < deadline:
            time.sleep(0.05)
        assert not web.connections
        came = 0
        with suppress(ConnectionError):
            while part := link.recv(2**20):
                came += len(part)
        assert 0 < came < 8_000_000
    monkeypatch.setattr(BoundedConnection, "reading_seconds", PATIENCE)  # for one that reads, but may be slow
    assert owner.get("/pair/3/text/output_1").text == "x" * 8_000_000


def test_there_are_fewer_connections_than_files(monkeypatch: pytest.MonkeyPatch) -> None:
    for files, most in ((64, 16), (1024, 256), (2**20, 256), (resource.RLIM_INFINITY, 256), (4, 8)):
        monkeypatch.setattr(resource, "getrlimit", lambda _, files=files: (files, files))
        assert most_connections() == most


def test_a_server_that_cannot_accept_says_so_once(capfd: pytest.CaptureFixture[str]) -> None:
    server = make_server(lambda: None)
    server._told = False  # type: ignore[attr-defined]
    for _ in range(1000):
        server._on_fault(None, {"exception": OSError(24, "Too many open files")})  # type: ignore[attr-defined]
    assert capfd.readouterr().err.count("Too many open files") == 1
