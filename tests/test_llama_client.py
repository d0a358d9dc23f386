"""The client of llama.cpp's server, against a server that answers as one with another chat template would."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest
from aiohttp import web

from evenhand import EngineError, Pair, Protocol
from evenhand.core.markup import Span
from evenhand.core.protocol import COMPARED
from evenhand.engines.llama_client import LlamaClient
from evenhand.engines.llama_server import LlamaServerEngine

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]
PAIR = Pair("Name a colour.", "Red.", "Blue.")


def server_without_system(seen: list[list[str]]) -> web.Application:
    """Its template knows user and assistant, and refuses a system turn as some do."""

    async def apply(request: web.Request) -> web.Response:
        messages = (await request.json())["messages"]
        seen.append([message["role"] for message in messages])
        if messages[0]["role"] == "system":
            return web.json_response({"error": {"message": "System role not supported", "code": 500}}, status=500)
        text = "".join(f"<{message['role']}>{message['content']}<end>" for message in messages)
        return web.json_response({"prompt": f"{text}<assistant>"})

    async def tokenize(request: web.Request) -> web.Response:
        return web.json_response({"tokens": list((await request.json())["content"].encode())})

    app = web.Application()
    app.router.add_post("/apply-template", apply)
    app.router.add_post("/tokenize", tokenize)
    return app


async def rendered(protocol: str, times: int = 1) -> tuple[str, list[list[str]]]:
    """The text that the client would send, and the roles of every attempt."""
    seen: list[list[str]] = []
    runner = web.AppRunner(server_without_system(seen))
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    port = runner.addresses[0][1]
    client = LlamaClient(f"http://127.0.0.1:{port}", "key")
    try:
        for _ in range(times):
            ids = await client.tokens(Protocol.load(protocol).prompt(PAIR, "forward"))
        return bytes(ids).decode(), seen
    finally:
        await client.close()
        await runner.cleanup()


def test_a_template_without_a_system_turn_gets_its_words_in_the_users() -> None:
    text, _ = asyncio.run(rendered("holistic"))
    assert text.startswith("<user>You compare two responses")
    assert "<system>" not in text
    assert "Red." in text
    assert text.endswith("<end><assistant>")


def test_the_refusal_is_met_once() -> None:
    _, seen = asyncio.run(rendered("holistic", times=3))
    assert [roles[0] for roles in seen].count("system") == 1


def test_a_refusal_of_all_turns_is_an_error() -> None:
    async def ask() -> None:
        client = LlamaClient("http://127.0.0.1:9", "key")
        try:
            await client.tokens(Protocol.load("holistic").prompt(PAIR, "forward"))
        finally:
            await client.close()

    with pytest.raises(EngineError):
        asyncio.run(ask())


async def labelled(pieces: list[str], *, older: bool = False) -> tuple[str, list[int], int]:
    """What a server that writes a label in these pieces answers, the room of each request, and tokens computed."""
    rooms: list[int] = []

    async def complete(request: web.Request) -> web.Response:
        rooms.append((await request.json())["n_predict"])
        written = pieces[: rooms[-1]]
        places: list[dict[str, object]] = [
            {"content": piece, "probs": [{"tok_str": piece, "prob": 0.9}]}
            if older
            else {"token": piece, "top_logprobs": [{"token": piece, "logprob": -0.1}]}
            for piece in written
        ]
        reply = {"content": "".join(written), "completion_probabilities": places, "timings": {"prompt_n": 9}}
        return web.json_response(reply)

    app = server_without_system([])
    app.router.add_post("/completion", complete)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    client = LlamaClient(f"http://127.0.0.1:{runner.addresses[0][1]}", "key")
    client._answer_tokens[COMPARED] = 1  # its tokenizer has each label in one piece
    try:
        answer = await client.answer(Protocol.load("holistic").prompt(PAIR, "forward"), context=100_000)
        return answer.text, rooms, answer.usage.computed
    finally:
        await client.close()
        await runner.cleanup()


@pytest.mark.parametrize("older", [False, True], ids=["today", "2024"])
@pytest.mark.parametrize("pieces", [["tie"], ["A"]])
def test_a_label_in_one_piece_is_asked_for_once(pieces: list[str], older: bool) -> None:
    assert asyncio.run(labelled(pieces, older=older)) == (pieces[0], [1], 9)


@pytest.mark.parametrize("pieces", [["t", "ie"], ["t", "i", "e"]])
def test_a_label_that_was_cut_off_is_asked_for_with_more_room(pieces: list[str]) -> None:
    assert asyncio.run(labelled(pieces)) == ("tie", [1, 3], 18)


@pytest.mark.parametrize("text", ["", "x"])
def test_what_no_room_could_complete_is_not_asked_for_again(text: str) -> None:
    assert asyncio.run(labelled([text])) == (text, [1], 9)


def test_no_connection_stays_open_to_a_server_that_has_a_thread_for_each() -> None:
    """llama-server has two threads more than slots, and one waits five seconds on a connection that rests."""
    asked: list[str] = []
    connections: list[object] = []  # kept, so that no two have one id

    @web.middleware
    async def watch(request: web.Request, handler: Handler) -> web.StreamResponse:
        asked.append(request.path)
        if not any(each is request.transport for each in connections):
            connections.append(request.transport)
        return await handler(request)

    async def props(_: web.Request) -> web.Response:
        return web.json_response({"default_generation_settings": {"n_ctx": 100_000}, "chat_template": "x"})

    async def complete(_: web.Request) -> web.Response:
        places = [{"token": "A", "top_logprobs": [{"token": "A", "logprob": -0.1}]}]
        return web.json_response({"content": "A", "completion_probabilities": places, "timings": {"prompt_n": 9}})

    async def ask() -> list[str]:
        app = server_without_system([])
        app.middlewares.append(watch)
        app.router.add_get("/props", props)
        app.router.add_post("/completion", complete)
        runner = web.AppRunner(app)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        engine = LlamaServerEngine(f"http://127.0.0.1:{runner.addresses[0][1]}", "m", concurrency=2)
        prompt = Protocol.load("holistic").prompt(PAIR, "forward")
        try:
            texts = [(await engine.answer(prompt)).text]
            await asyncio.sleep(0.3)  # a connection that had rested so long would be used again
            return texts + [each.text for each in await asyncio.gather(*(engine.answer(prompt) for _ in range(5)))]
        finally:
            await engine.close()
            await runner.cleanup()

    assert asyncio.run(ask()) == ["A"] * 6
    assert asked.count("/completion") == 6
    assert len(connections) == len(asked)


def test_a_server_that_closes_what_rests_takes_no_request_with_it() -> None:
    """It may do so while the next request is on its way: here it never answers a second one on a connection."""
    answer = b'HTTP/1.1 200 OK\r\nContent-Length: 14\r\n\r\n{"tokens":[7]}'

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"}")
        writer.write(answer)
        await reader.read(1)
        writer.close()

    async def ask() -> list[list[int]]:
        listening = await asyncio.start_server(serve, "127.0.0.1", 0)
        client = LlamaClient(f"http://127.0.0.1:{listening.sockets[0].getsockname()[1]}", "key")
        try:
            found = []
            for text in ("one", "two", "three"):
                found.append(await client.tokenise(Span(text, trusted=False)))
                await asyncio.sleep(0.5)
            return found
        finally:
            await client.close()
            listening.close()

    assert asyncio.run(ask()) == [[7], [7], [7]]
