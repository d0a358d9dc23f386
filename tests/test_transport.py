"""The transport, against a server of bare sockets that sends exactly the bytes it is told to."""

from __future__ import annotations

import asyncio
import gzip
import shutil
import ssl
import subprocess
import zlib
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path
from typing import TypeVar

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import patient
from bare_server import CHUNKED, PLAIN, Peer
from evenhand.core.errors import EngineError
from evenhand.engines.http import JsonClient, Reply
from evenhand.engines.provenance import noting
from evenhand.engines.transport import Response, Transport
from evenhand.engines.unreached import Broken, TooLarge
from misbehaving_server import Behaviour, Server, cuts, fails, hangs, says

T = TypeVar("T")


def talk(
    use: Callable[[Transport, Peer], Awaitable[T]],
    *scripts: list[bytes | None],
    timeout: float = 60.0,
    pause: float = 0.005,
) -> T:
    async def run() -> T:
        async with Peer(*scripts, pause=pause) as peer:
            transport = Transport(
                f"http://127.0.0.1:{peer.port}/v1", {"X": "y"}, timeout=timeout, limit=4, most=1000
            )
            try:
                return await use(transport, peer)
            finally:
                await transport.close()

    return patient.run(run())


def ask(*script: bytes | None, timeout: float = 60.0, pause: float = 0.005) -> Response:
    return talk(
        lambda transport, _: transport.send("POST", "/ask", b"[1]"), list(script), timeout=timeout, pause=pause
    )


def test_in_a_loop_of_another_make() -> None:
    uvloop = pytest.importorskip("uvloop", reason="uvloop is not made for Windows")

    async def use() -> Reply:
        async with Peer([PLAIN]) as peer:
            client = JsonClient(f"http://127.0.0.1:{peer.port}/v1", who="x", timeout=60)
            other = JsonClient("http://nobody.invalid/v1", who="x", timeout=60)  # a name, not a number
            try:
                with pytest.raises(EngineError, match="cannot be reached"):
                    await other.post("/ask", {})
                return await client.post("/ask", {})
            finally:
                await client.close()
                await other.close()

    assert uvloop.run(use()) == Reply(200, {})


def test_what_is_sent() -> None:
    async def use(transport: Transport, peer: Peer) -> tuple[Response, bytes, int]:
        return await transport.send("POST", "/ask", b"[1]"), peer.requests[0], peer.port

    response, request, port = talk(use, [PLAIN])
    head, _, body = request.partition(b"\r\n\r\n")
    first, *lines = head.decode().split("\r\n")
    assert (first, body) == ("POST /v1/ask HTTP/1.1", b"[1]")
    assert {f"Host: 127.0.0.1:{port}", "X: y", "Content-Length: 3"} <= set(lines)
    assert (response.status, response.headers["content-type"], response.body) == (200, "application/json", b"{}")


@pytest.mark.parametrize(
    "script",
    [
        (PLAIN,),
        (PLAIN[:3], PLAIN[3:30], PLAIN[30:-1], PLAIN[-1:]),
        (b"HTTP/1.1 100 Continue\r\n\r\n" + PLAIN,),
        (CHUNKED + b"1\r\n{\r\n", b"1;why=not\r\n}\r\n", b"0\r\n\r\n"),
        (CHUNKED + b"2\r\n{}\r\n0\r\n", b"Trailer: x\r\n", b"\r\n"),
        (b"HTTP/1.1 200 OK\r\n\r\n{}", None),
        (b"HTTP/1.0 200 OK\r\n\r\n{", b"}", None),
        (b"HTTP/1.1 200 \r\nCONTENT-LENGTH:2\r\n\r\n{}",),
        (b"HTTP/1.1 200\r\nContent-Length: 2\r\n\r\n{}",),
    ],
    ids=lambda script: f"{len(script)}-{sum(len(part or b'') for part in script)}",
)
def test_an_answer_in_every_form(script: tuple[bytes | None, ...]) -> None:
    assert ask(*script).body == b"{}"


@pytest.mark.parametrize(
    "script",
    [
        (b"hello\r\n\r\n",),
        (b"h",),
        (b"HTTP/2 200 OK\r\n\r\n",),
        (b"HTTP/1.1 2000 OK\r\n\r\n",),
        (b"HTTP/1.1 200 OK\r\nContent-Length: -2\r\n\r\n{}",),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 1e1\r\n\r\n{}",),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip\r\n\r\n{}", None),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nContent-Length: 3\r\n\r\n{}x",),
        (b"HTTP/1.1 200 OK\r\nno colon\r\n\r\n",),
        (b"HTTP/1.1 200 OK\r\nX: " + b"x" * 2**17,),
        (CHUNKED + b"zz\r\n",),
        (CHUNKED + b"-1\r\n",),
        (CHUNKED + b"2\r\n{}0\r\n\r\n",),
        (CHUNKED + b"f" * 300,),
        (CHUNKED + b"2\r\n{}\r\n", None),
        (CHUNKED + b"2\r\n{}\r\n0\r\n", None),
        (CHUNKED, b"zz\r\n"),  # these three go wrong behind the head, while somebody reads the body
        (CHUNKED + b"2\r\n{}\r\n", b"2\r\n{}0\r\n\r\n"),
        (CHUNKED + b"2\r\n{}\r\n0\r\n", b"X: " + b"x" * 2**17),
        (PLAIN[:-1], None),
        (PLAIN[:20], None),
        (None,),
        (PLAIN.replace(b"\r\n\r\n", b"\r\nContent-Encoding: br\r\n\r\n"),),
        (PLAIN.replace(b"\r\n\r\n", b"\r\nContent-Encoding: gzip\r\n\r\n"),),
    ],
    ids=lambda script: f"{len(script)}-{sum(len(part or b'') for part in script)}",
)
def test_what_is_no_answer_breaks_at_once(script: tuple[bytes | None, ...]) -> None:
    with pytest.raises(Broken):
        ask(*script)


def test_a_head_that_breaks_off_is_said_in_words() -> None:
    with pytest.raises(Broken) as caught:
        ask(b"HTTP/1.1 200 OK\r\nSet-Cookie: token=4711", None)
    assert str(caught.value) == "the server ended it without an answer"


def _packed(name: bytes, body: bytes) -> bytes:
    return b"HTTP/1.1 200 OK\r\nContent-Encoding: %b\r\nContent-Length: %d\r\n\r\n%b" % (name, len(body), body)


def test_packed_answers() -> None:
    squeeze = zlib.compressobj(wbits=-15)
    bare = squeeze.compress(b"{}") + squeeze.flush()
    for name, body in ((b"gzip", gzip.compress(b"{}")), (b"deflate", zlib.compress(b"{}")), (b"deflate", bare)):
        assert ask(_packed(name, body)).body == b"{}"


@pytest.mark.parametrize(
    "script",
    [
        (b"HTTP/1.1 200 OK\r\nContent-Length: 1001\r\n\r\n",),
        (CHUNKED + b"3e9\r\n", b"x" * 1001),
        (CHUNKED + b"3e8\r\n" + b"x" * 1000 + b"\r\n1\r\nx",),
        (b"HTTP/1.1 200 OK\r\n\r\n" + b"x" * 1001,),
        (_packed(b"gzip", gzip.compress(b"x" * 1001)),),
    ],
    ids=["length", "chunk", "chunks", "endless", "packed"],
)
def test_too_large(script: tuple[bytes | None, ...]) -> None:
    with pytest.raises(TooLarge):
        ask(*script)


def test_a_server_that_never_answers_and_one_that_stops_in_the_middle() -> None:
    for script in ((), (PLAIN[:-1],)):
        with pytest.raises(TimeoutError):
            ask(*script, timeout=0.1)


async def _three(transport: Transport, peer: Peer) -> int:
    for _ in range(3):
        assert (await transport.send("POST", "/ask")).body == b"{}"
        await asyncio.sleep(0.15)  # a connection rests for a while
    return peer.connections


@pytest.mark.parametrize(
    ("script", "connections"),
    [
        ([PLAIN], 1),
        ([CHUNKED + b"2\r\n{}\r\n0\r\n\r\n"], 1),
        ([CHUNKED + b"2\r\n{}\r\n0\r\n\r", b"\n"], 1),
        ([PLAIN[:20], PLAIN[20:]], 1),
        ([b"HTTP/1.1 100 Continue\r\n\r\n" + PLAIN], 1),
        ([CHUNKED + b"2\r\n{}\r\n0\r\n\r\nHTTP/1.1"], 3),
        ([PLAIN + PLAIN], 3),
        ([PLAIN.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n")], 3),
        ([PLAIN.replace(b"1.1", b"1.0")], 3),
        ([PLAIN.replace(b"1.1", b"1.0").replace(b"\r\n\r\n", b"\r\nConnection: keep-alive\r\n\r\n")], 1),
        ([PLAIN + b"HTTP/1.1 200 OK\r\n"], 3),  # more than it said
        ([PLAIN, b"HTTP/1.1 408 Bye\r\n\r\n"], 3),  # unasked, a little later
        ([PLAIN, None], 3),  # closed while it was idle
    ],
    ids=[
        "length",
        "chunked",
        "split",
        "head",
        "continue",
        "more-chunked",
        "twice",
        "close",
        "old",
        "old-kept",
        "more",
        "unasked",
        "idle",
    ],
)
def test_a_connection_is_used_again_only_where_that_is_safe(script: list[bytes | None], connections: int) -> None:
    assert talk(_three, script, script, script) == connections


@pytest.mark.parametrize(
    ("scripts", "connections"),
    [
        ([PLAIN, b"the rest of another answer", PLAIN, PLAIN], 3),  # two on the first, then each on its own
        ([b"no answer at all", PLAIN, PLAIN], 2),  # a server that speaks no HTTP for once has answered nobody else
    ],
    ids=["used", "fresh"],
)
def test_what_cannot_be_read_on_a_used_connection_is_a_stray(scripts: list[bytes], connections: int) -> None:
    async def use(transport: Transport, peer: Peer) -> int:
        for script in scripts:
            if script == PLAIN:
                assert (await transport.send("POST", "/ask")).body == b"{}"
            else:
                with pytest.raises(Broken, match="no HTTP"):
                    await asyncio.wait_for(transport.send("POST", "/ask"), 5)  # whoever asked is told at once
            await asyncio.sleep(0.15)  # a connection rests for a while
        return peer.connections

    every: list[list[bytes | None]] = [[script] for script in scripts]
    assert talk(use, *every) == connections


SWITCHED = b"HTTP/1.1 101 Switching Protocols\r\nContent-Length: 0\r\n\r\n"


@pytest.mark.parametrize(
    "answers",
    [2 * PLAIN, 2 * (CHUNKED + b"2\r\n{}\r\n0\r\n\r\n"), SWITCHED + PLAIN],
    ids=["length", "chunked", "switched"],
)
def test_two_answers_in_one_piece_are_a_stray(answers: bytes) -> None:
    strays: list[bool] = []

    async def use(transport: Transport, peer: Peer) -> None:
        transport._connector._on_stray = lambda: strays.append(True)
        await transport.send("POST", "/ask")

    talk(use, [answers])
    assert strays == [True]


def test_what_comes_over_a_used_connection_is_noted_with_how_long_it_rests() -> None:
    """A judgment is held back for that time: nobody else would find out that its answer is another's."""

    async def use(transport: Transport, peer: Peer) -> list[float]:
        with noting() as records:
            await transport.send("POST", "/ask")
            assert records == []
            await asyncio.sleep(0.15)
            await transport.send("POST", "/ask")
        return [record.rest for record in records]

    [rest] = talk(use, [PLAIN], [PLAIN])
    assert rest >= 0.1


def test_an_answer_with_which_a_used_connection_ends_may_be_anothers() -> None:
    async def use(transport: Transport, peer: Peer) -> int:
        assert (await transport.send("POST", "/ask")).body == b"{}"
        await asyncio.sleep(0.15)  # a connection rests for a while
        with pytest.raises(Broken, match="may be another's"):
            await transport.send("POST", "/ask")
        assert (await transport.send("POST", "/ask")).body == b"{}"
        return peer.connections

    last = PLAIN.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n")
    assert talk(use, [PLAIN], [last], [last]) == 2


def test_requests_at_once_share_no_connection_and_keep_to_the_limit() -> None:
    async def use(transport: Transport, peer: Peer) -> int:
        answers = await asyncio.gather(*(transport.send("POST", "/ask") for _ in range(12)))
        assert len(answers) == 12
        return peer.most

    scripts: list[bytes | None] = [PLAIN] * 12
    assert talk(use, *([part] for part in scripts)) == 4


def test_a_cancelled_request_spoils_no_other() -> None:
    async def use(transport: Transport, peer: Peer) -> bytes:
        first = asyncio.create_task(transport.send("POST", "/ask"))
        while not peer.requests:  # noqa: ASYNC110
            await asyncio.sleep(0.001)
        await asyncio.sleep(0.02)
        first.cancel()
        await asyncio.sleep(0.02)
        return (await transport.send("POST", "/ask")).body

    assert talk(use, [PLAIN[:-1]], [PLAIN]) == b"{}"


@settings(max_examples=25, deadline=None)
@given(
    st.lists(st.binary(min_size=1, max_size=40), max_size=6),
    st.lists(st.integers(min_value=1, max_value=50), min_size=1, max_size=12),
)
def test_however_the_bytes_are_cut_the_answer_is_the_same(chunks: list[bytes], cuts: list[int]) -> None:
    raw = CHUNKED + b"".join(b"%x\r\n%b\r\n" % (len(chunk), chunk) for chunk in chunks) + b"0\r\n\r\n"
    script, at = [], 0
    while at < len(raw):
        size = cuts[at % len(cuts)]
        script.append(raw[at : at + size])
        at += size
    assert ask(*script, pause=0).body == b"".join(chunks)


@settings(max_examples=60, deadline=None)
@given(st.sampled_from([b"", b"HTTP/1.1 200 OK\r\n", CHUNKED]), st.binary(max_size=200))
def test_any_bytes_are_an_answer_or_refused(begin: bytes, raw: bytes) -> None:
    with suppress(Broken, TooLarge):
        assert 100 < ask(begin + raw, None, pause=0).status < 1000


# --- what the client makes of it --------------------------------------------------------------------------


def test_tls_and_a_certificate_that_nobody_vouches_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if shutil.which("openssl") is None:
        pytest.skip("no openssl to make a certificate with")
    key, cert = tmp_path / "key.pem", tmp_path / "cert.pem"
    made = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=localhost"]
    more = ["-addext", "subjectAltName=DNS:localhost", "-keyout", str(key), "-out", str(cert)]
    subprocess.run([*made, *more], check=True, capture_output=True)
    tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    tls.load_cert_chain(cert, key)

    async def use() -> Reply:
        async with Peer([PLAIN], [PLAIN], tls=tls) as peer:
            client = JsonClient(f"https://localhost:{peer.port}/v1", who="x")
            try:
                return await client.post("/ask", {})
            finally:
                await client.close()

    with pytest.raises(EngineError, match="certificate") as caught:
        asyncio.run(use())
    assert caught.value.fatal
    monkeypatch.setenv("SSL_CERT_FILE", str(cert))
    assert asyncio.run(use()) == Reply(200, {})


@pytest.mark.parametrize("host", ["nobody.invalid", "a" * 70 + ".invalid"], ids=["unknown", "impossible"])
def test_a_host_that_does_not_exist(host: str) -> None:
    async def use() -> None:
        client = JsonClient(f"http://{host}/v1", who="x")
        try:
            await client.post("/ask", {})
        finally:
            await client.close()

    with pytest.raises(EngineError) as caught:
        asyncio.run(use())
    assert (caught.value.reason, caught.value.fatal) == ("connection", True)


def test_a_key_with_a_line_break_is_not_sent_and_not_shown() -> None:
    async def use(peer: Peer) -> None:
        await JsonClient(f"http://127.0.0.1:{peer.port}/v1", key="sk-1\nHost: b", who="x").post("/ask", {})

    async def run() -> None:
        async with Peer([PLAIN]) as peer:
            with pytest.raises(EngineError, match="Authorization") as caught:
                await use(peer)
            assert not peer.requests
            assert "sk-1" not in str(caught.value)

    asyncio.run(run())


@pytest.mark.parametrize(
    ("behave", "reason"),
    [(says("A"), ""), (fails(429), "rate_limited"), (cuts, "connection"), (hangs, "timeout")],
    ids=["says", "fails", "cuts", "hangs"],
)
def test_through_a_proxy(monkeypatch: pytest.MonkeyPatch, behave: Behaviour, reason: str) -> None:
    """The server of the tests stands for a proxy: a name that nobody knows is its business."""

    async def run() -> str:
        async with Server(behave) as server:
            monkeypatch.setenv("http_proxy", server.url.removesuffix("/v1"))
            client = JsonClient("http://judge.invalid/v1", who="x", timeout=0.5 if reason == "timeout" else 60)
            try:
                reply = await client.post("/chat/completions", {"messages": []})
            except EngineError as error:
                return error.reason
            finally:
                await client.close()
            return "" if reply.status == 200 else client.fault(reply).reason

    assert asyncio.run(run()) == reason
