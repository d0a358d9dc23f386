"""Secrets stay secret, whole and in part; text of servers cannot steer a terminal."""

from __future__ import annotations

import asyncio
import base64
import json
import socket
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from hypothesis import given
from hypothesis import strategies as st

from evenhand import Judge, Pair
from evenhand.core.errors import EngineError, SpecError
from evenhand.core.markup import Span, Turn
from evenhand.core.protocol import Prompt
from evenhand.engines import open_engine
from evenhand.engines.batches.client import BatchClient
from evenhand.engines.endpoint import EndpointEngine, EndpointSettings
from evenhand.engines.http import JsonClient, Reply
from evenhand.engines.presets import find_address
from evenhand.engines.redaction import Redaction, printable, secrets_of
from evenhand.running.pace import Limits
from evenhand.views import console
from misbehaving_server import Behaviour, Body, Server, fails, in_turn, says, sends

KEY = "sk-very-secret-0123456789"
PASSWORD = "p@ss/w0rd-of-the-proxy"
PROMPT = Prompt((Turn("user", (Span("Which?", True),)),))


def part_of(key: str, text: str) -> str:
    """The longest beginning of a key that a text holds, if it is more than chance."""
    return next((key[:n] for n in range(len(key), 5, -1) if key[:n] in text), "")


def asked(behave: Behaviour, times: int = 1) -> tuple[list[str], list[str]]:
    """What the errors and the notices say."""
    notices: list[str] = []

    async def run() -> list[str]:
        async with Server(behave) as server:
            engine = EndpointEngine(
                EndpointSettings(server.url, "m", key_env="MY_KEY", seed=1), on_notice=notices.append
            )
            errors = []
            for _ in range(times):
                try:
                    await engine.answer(PROMPT)
                except EngineError as error:
                    errors.append(f"{error} {error!r}")
            await engine.close()
            return errors

    return asyncio.run(run()), notices


@pytest.mark.parametrize("before", [0, 270, 276, 280, 290, 299, 975, 980, 999])
@pytest.mark.parametrize("status", [200, 418, 500])
def test_no_part_of_a_key_is_left_by_a_cut(before: int, status: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MY_KEY", KEY)
    long = "x" * before + KEY
    for behave in (
        fails(status if status != 200 else 500, long),
        sends(long, status=status),
        sends(json.dumps({"detail": [{"loc": [long], "msg": long}]}), status=max(status, 400)),
        sends(json.dumps({"error": {"message": "no", long: long}}), status=max(status, 400)),
        sends(json.dumps({long: long}), status=status),
    ):
        [error], _ = asked(behave)
        assert part_of(KEY, error) == ""


@pytest.mark.parametrize("before", [0, 250, 290])
def test_no_part_of_a_key_is_in_a_notice(before: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MY_KEY", KEY)
    _, notices = asked(in_turn(fails(400, f"seed is refused {'x' * before} {KEY}", param="seed"), says("A")))
    assert notices
    assert part_of(KEY, " ".join(notices)) == ""


def test_a_short_key_is_in_no_notice(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MY_KEY", "abc123")
    _, notices = asked(in_turn(fails(400, "seed is refused to abc123", param="seed"), says("A")))
    assert notices[0].endswith("seed is refused to ***")


def test_a_key_that_an_answer_repeats_is_not_stored(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("MY_KEY", KEY)

    async def run() -> str:
        async with Server(says(f"I know your key: {KEY}\nVerdict: A")) as server:
            engine = EndpointEngine(EndpointSettings(server.url, "m", key_env="MY_KEY"))
            answer = await engine.answer(PROMPT)
            await engine.close()
            return answer.text

    assert asyncio.run(run()) == "I know your key: ***\nVerdict: A"


def test_a_short_key_changes_no_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    """Local servers are often given "x" or "none" for a key."""
    monkeypatch.setenv("MY_KEY", "A")

    async def run() -> str:
        async with Server(says("A")) as server:
            engine = EndpointEngine(EndpointSettings(server.url, "m", key_env="MY_KEY"))
            answer = await engine.answer(PROMPT)
            await engine.close()
            return answer.text

    assert asyncio.run(run()) == "A"


async def _echoes_login(request: web.Request, body: Body) -> web.Response:
    login = request.headers.get("Proxy-Authorization", "")
    plain = base64.b64decode(login.removeprefix("Basic ")).decode()
    return web.json_response({"error": {"message": f"{login} {plain}"}}, status=418)


@pytest.mark.parametrize("where", ["refuses", "nobody", "echoes", "cuts"])
@pytest.mark.parametrize("scheme", ["http", "https"])
def test_a_proxys_password_is_in_no_message_and_no_database(
    where: str, scheme: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    quoted = PASSWORD.replace("@", "%40").replace("/", "%2F")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        nobody = free.getsockname()[1]
    behave: dict[str, Behaviour] = {"refuses": fails(407, "who are you?"), "echoes": _echoes_login}

    async def run() -> str:
        async with Server(behave.get(where, says("A"))) as server:
            port = nobody if where == "nobody" else int(server.url.split(":")[2].split("/")[0])
            monkeypatch.setenv(f"{scheme}_proxy", f"http://me:{quoted}@127.0.0.1:{port}")
            client = JsonClient(f"{scheme}://judge.invalid/v1", who="x", timeout=5)
            try:
                reply = await client.post("/chat/completions", {"messages": []})
                return f"{client.fault(reply)!r} {reply}"
            except EngineError as error:
                return f"{error} {error!r} {error.__context__!r}"
            finally:
                await client.close()

    said = asyncio.run(run())
    for secret in (PASSWORD, quoted, base64.b64encode(f"me:{PASSWORD}".encode()).decode()):
        assert part_of(secret, said) == ""


@pytest.mark.parametrize(
    "proxy",
    [
        "me:{}@127.0.0.1:9",
        "http://me:{}@[::1",
        "http://me:{}#x@127.0.0.1:9",
        "http://me:{}/x@127.0.0.1:9",
        "http://me:{}?x@127.0.0.1:9",
        "http://me:{}@127.0.0.1:99999",
        "//me:{}@127.0.0.1:x",
        "http://{}@127.0.0.1:x",
        "http://{}:@127.0.0.1:x",
        "http://" + "u" * 280 + ":{}@[::1",  # which is cut in the middle of the password
    ],
)
@pytest.mark.parametrize("file", [False, True], ids=["post", "file"])
def test_a_proxy_that_is_no_address_is_said_without_its_password(
    proxy: str, file: bool, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("http_proxy", proxy.format("secret-word-99"))
    (tmp_path / "x").write_text("{}")

    async def run() -> None:
        client = BatchClient("http://judge.invalid/v1", who="x", timeout=5)
        try:
            await (client.send_file("/x", tmp_path / "x") if file else client.post("/x", {}))
        finally:
            await client.close()

    with pytest.raises(EngineError) as caught:
        asyncio.run(run())
    assert part_of("secret-word-99", f"{caught.value} {caught.value!r}") == ""


def test_a_proxy_may_be_named_without_its_scheme(monkeypatch: pytest.MonkeyPatch) -> None:
    """As curl and others take it."""

    async def run() -> int:
        async with Server(says("A")) as server:
            monkeypatch.setenv("http_proxy", server.url.removesuffix("/v1").removeprefix("http://"))
            client = JsonClient("http://judge.invalid/v1", who="x", timeout=60)
            try:
                return (await client.post("/chat/completions", {"messages": []})).status
            finally:
                await client.close()

    assert asyncio.run(run()) == 200


@pytest.mark.parametrize("address", ["http://[bad", "http://h:word/v1", "http://h:99999/v1", "http://ｈ／v1"])
def test_an_address_that_is_none_is_refused_in_a_sentence(address: str) -> None:
    with pytest.raises(SpecError, match="not valid"):
        find_address(f"vllm@{address}#m")


def test_an_address_may_be_in_capital_letters() -> None:
    found = open_engine("HTTP://127.0.0.1:9/v1#m")
    assert found.identity["base_url"] == "http://127.0.0.1:9/v1"


@pytest.mark.parametrize("status", [200, 418])
@pytest.mark.parametrize("written", ["plain", "escaped", "cut"])
def test_a_key_is_known_however_a_server_writes_it(
    written: str, status: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MY_KEY", KEY)
    echoed = {"plain": KEY, "escaped": "".join(f"\\u{ord(c):04x}" for c in KEY), "cut": KEY[:-4] + "..."}[written]
    reply = '{"choices": [{"message": {"content": "the key ' + echoed + '"}}], "message": "the key ' + echoed + '"}'

    async def run() -> str:
        async with Server(sends(reply, status=status)) as server:
            engine = EndpointEngine(EndpointSettings(server.url, "m", key_env="MY_KEY"))
            try:
                return (await engine.answer(PROMPT)).text
            except EngineError as error:
                return str(error)
            finally:
                await engine.close()

    said = asyncio.run(run())
    assert "the key ***" in said
    assert part_of(KEY, said) == ""


def test_a_short_key_is_in_no_message() -> None:
    """In an answer it may be a word of it, so that it is left there; a message quotes the answer."""
    fault = JsonClient("http://x/v1", who="x", key="abc123").fault(Reply(200, {"error": "no abc123"}))
    assert fault.message == "x answered with something else: no ***"


def test_an_address_with_a_password_is_no_judge() -> None:
    with pytest.raises(SpecError, match="password"):
        EndpointSettings("http://me:secret@127.0.0.1/v1", "m")


@pytest.mark.parametrize("sign", "/?#")
def test_a_part_of_a_password_that_is_taken_for_a_port_is_hidden(sign: str) -> None:
    """What stands behind such a sign is no part of the address to one who reads it by the letter."""
    hidden = Redaction(secrets_of(f"http://me:word99{sign}more@127.0.0.1:9"))
    assert hidden.text("no port: 'word99', no host: 'more@127'") == "no port: '***', no host: '***@127'"


def test_what_is_nested_without_end_is_redacted_too() -> None:
    data: list[Any] = ["sk-1"]
    for _ in range(100_000):
        data = [data]
    Redaction(["sk-1"]).data(data)
    while isinstance(data, list):
        data = data[0]
    assert data != "sk-1"


@given(st.text(), st.text(min_size=1, max_size=8))
def test_what_is_redacted_is_gone(text: str, secret: str) -> None:
    cleaned = Redaction([secret]).text(f"{text}{secret}{text}")
    assert secret not in cleaned.replace("***", "\ue000") or secret in text.replace(secret, "") + "***"


@given(st.text())
def test_nothing_printable_steers_a_terminal(text: str) -> None:
    shown = printable(text)
    assert not [c for c in shown if (ord(c) < 32 and c not in "\n\t") or 0x7F <= ord(c) < 0xA0]


ESCAPES = "\x1b]0;owned\x07\x1b[2J\x9b31m\x08\u202e"


def test_escape_codes_of_a_server_are_in_no_message() -> None:
    def compare(url: str) -> str:
        with Judge(f"{url}#m{ESCAPES}", protocol="overall", limits=Limits(retries=0)) as judge:
            return judge.compare(Pair("Hi", "x", "y"))["overall"].orders["forward"].raw

    async def run() -> str:
        async with Server(fails(418, f"hello {ESCAPES}")) as server:
            return await asyncio.to_thread(compare, server.url)

    raw = asyncio.run(run())
    assert "hello" in raw
    assert raw == printable(raw)


def test_the_console_shows_control_characters_instead_of_obeying_them() -> None:
    file = StringIO()
    calm = type(console.out)(file=file, force_terminal=True, width=200)
    table = console.plain_table(f"title {ESCAPES}")
    table.add_column(f"head {ESCAPES}")
    table.add_row(f"cell {ESCAPES}")
    calm.print(table)
    calm.print(f"note: {ESCAPES}", style="yellow", markup=False)
    shown = file.getvalue()
    assert "\x1b]" not in shown
    assert "\x1b[2J" not in shown
    assert "\x9b" not in shown
    assert "\u202e" not in shown
    assert "␛[2J" in shown
