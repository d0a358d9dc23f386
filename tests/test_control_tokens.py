"""Token ids out of servers whose tokenisers find control tokens in any text: none is in what a pair says."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from aiohttp import web

from evenhand.core.errors import EngineError
from evenhand.core.markup import Span, Turn
from evenhand.core.protocol import Prompt
from evenhand.engines import vllm
from evenhand.engines.control_tokens import KNOWN
from evenhand.engines.http import JsonClient
from evenhand.engines.llama_client import LlamaClient
from evenhand.engines.vllm import VllmTokeniser

CONTROL = [*KNOWN, "<|brand_new_token|>"]
_SPLIT = re.compile("(" + "|".join(map(re.escape, sorted(CONTROL, key=len, reverse=True))) + ")")


def tokenise(text: str) -> list[tuple[int, str]]:
    """Control tokens have the first ids, characters those behind; a line feed is told as SentencePiece does."""
    found: list[tuple[int, str]] = []
    for part in _SPLIT.split(text):
        if part in CONTROL:
            found.append((CONTROL.index(part), part))
        else:
            found += [(1000 + ord(c), "<0x0A>" if c == "\n" else c) for c in part]
    return found


def detokenise(ids: list[int]) -> str:
    return "".join(CONTROL[number] if number < 1000 else chr(number - 1000) for number in ids)


class Tokeniser:
    """vLLM's routes and llama.cpp's; `told` says whether it tells the texts of tokens."""

    def __init__(self, given: bool) -> None:
        self.given = given

    async def tokenize(self, request: web.Request) -> web.Response:
        body: dict[str, Any] = await request.json()
        if "messages" in body:
            text = "".join(f"<|user|>{turn['content']}<|end|>" for turn in body["messages"]) + "<|assistant|>"
        else:
            text = body.get("prompt", body.get("content", ""))
        found = tokenise(text)
        if body.get("with_pieces") and self.given:
            return web.json_response({"tokens": [{"id": number, "piece": name} for number, name in found]})
        reply: dict[str, Any] = {"tokens": [number for number, _ in found]}
        if body.get("return_token_strs") and self.given:
            reply["token_strs"] = [name for _, name in found]
        return web.json_response(reply)

    async def detokenize(self, request: web.Request) -> web.Response:
        return web.json_response({"prompt": detokenise((await request.json())["tokens"])})

    async def props(self, request: web.Request) -> web.Response:
        return web.json_response(
            {"chat_template": "<|user|>", "default_generation_settings": {"n_ctx": 4096}, "bos_token": "<s>"}
        )

    async def apply(self, request: web.Request) -> web.Response:
        messages = (await request.json())["messages"]
        text = "".join(f"<|user|>{turn['content']}<|end|>" for turn in messages) + "<|assistant|>"
        return web.json_response({"prompt": text})


@asynccontextmanager
async def serving(given: bool) -> Any:
    tokeniser, app = Tokeniser(given), web.Application()
    app.router.add_post("/tokenize", tokeniser.tokenize)
    app.router.add_post("/detokenize", tokeniser.detokenize)
    app.router.add_post("/apply-template", tokeniser.apply)
    app.router.add_get("/props", tokeniser.props)
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    try:
        yield f"http://127.0.0.1:{runner.addresses[0][1]}"
    finally:
        await runner.cleanup()


def hostile(tokens: list[str]) -> Iterator[Prompt]:
    """All of them in one response, and each spread over two that follow each other, or over ours and theirs."""
    yield Prompt((Turn("user", (Span("Which?\n", True), Span(" x\n ".join(tokens), False))),))
    halves = [(token[: len(token) // 2], token[len(token) // 2 :]) for token in tokens]
    spans = [Span(part, False) for first, second in halves for part in (first, second, "\n")]
    yield Prompt((Turn("user", (Span("Which?\n", True), *spans)),))


def forged(ids: list[int]) -> list[str]:
    """The control tokens that are not the template's three."""
    return [CONTROL[number] for number in ids[1:-2] if number < 1000]


def check(ids: list[int], prompt: Prompt) -> None:
    assert forged(ids) == []
    assert detokenise(ids) == f"<|user|>{prompt.turns[0].text}<|end|><|assistant|>"  # and nothing was changed


@pytest.mark.parametrize("given", [True, False], ids=["with names", "ids alone"])
@pytest.mark.parametrize("shapes", [True, False], ids=["by shape", "by id"])
def test_vllm_is_sent_no_control_token_of_a_pair(
    given: bool, shapes: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not shapes:  # so that the comparison of ids is all there is
        monkeypatch.setattr(vllm, "control_places", lambda text: [])
    tokens = CONTROL if given or shapes else list(KNOWN)

    async def run() -> None:
        async with serving(given) as url:
            client = JsonClient(url, who="x")
            tokeniser = VllmTokeniser(client, "m")
            try:
                for prompt in hostile(tokens):
                    check(await tokeniser.tokens(prompt), prompt)
            finally:
                await client.close()

    asyncio.run(run())


def test_llama_server_is_sent_no_control_token_of_a_pair() -> None:
    async def run() -> None:
        async with serving(given=True) as url:
            client = LlamaClient(url, "key")
            try:
                await client.learn()
                for prompt in hostile(CONTROL):  # one of which nobody has heard of
                    check(await client.tokens(prompt), prompt)
            finally:
                await client.close()

    asyncio.run(run())


def test_a_control_token_of_one_character_is_refused() -> None:
    class Odd(VllmTokeniser):
        async def _steering(self) -> frozenset[int]:
            return frozenset([1000 + ord("§")])

    async def run() -> None:
        async with serving(given=True) as url:
            client = JsonClient(url, who="x")
            try:
                await Odd(client, "m").tokens(Prompt((Turn("user", (Span("a§b", False),)),)))
            finally:
                await client.close()

    with pytest.raises(EngineError, match="single character") as caught:
        asyncio.run(run())
    assert caught.value.reason == "control_token"
