"""A real HTTP server on loopback that answers like OpenAI's, or misbehaves as it is told.

    async with Server(in_turn(fails(429), says("A"))) as server:
        ...  # server.url, and afterwards server.bodies: what it was sent

A behaviour is a function from a request and its body to a response; those below are made to be combined.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import math
import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

from aiohttp import web

Body = dict[str, Any]
Behaviour = Callable[[web.Request, Body], Awaitable[web.StreamResponse]]
Top = Mapping[str, float]

USAGE = {"prompt_tokens": 100, "completion_tokens": 2, "prompt_tokens_details": {"cached_tokens": 60}}


class Server:
    """Listens while it is entered, on a free port unless told; `bodies` holds each request's body, in order."""

    def __init__(self, behave: Behaviour, *, port: int = 0) -> None:
        self.behave, self.port = behave, port
        self.bodies: list[Body] = []
        self.headers: list[Mapping[str, str]] = []
        self.tokenised: list[Body] = []
        self.url = ""
        self._runner: web.AppRunner | None = None

    async def __aenter__(self) -> Server:
        app = web.Application(client_max_size=2**28)
        for path in ("/v1/chat/completions", "/v1/completions"):
            app.router.add_post(path, self._complete)
        app.router.add_post("/tokenize", self._tokenize)
        app.router.add_post("/detokenize", self._detokenize)
        self._runner = web.AppRunner(app, handler_cancellation=True, shutdown_timeout=0.1)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", self.port)
        await site.start()
        self.url = f"http://127.0.0.1:{self._runner.addresses[0][1]}/v1"
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._runner is not None
        await self._runner.cleanup()

    async def _complete(self, request: web.Request) -> web.StreamResponse:
        body = json.loads(await request.read())
        self.bodies.append(body)
        self.headers.append(request.headers)
        return await self.behave(request, body)

    async def _tokenize(self, request: web.Request) -> web.Response:
        """vLLM's, with a vocabulary of characters and ChatML's two control tokens."""
        body = json.loads(await request.read())
        self.tokenised.append(body)
        return web.json_response({"tokens": tokenise(body["prompt"] if "prompt" in body else _render(body))})

    async def _detokenize(self, request: web.Request) -> web.Response:
        return web.json_response({"prompt": detokenise(json.loads(await request.read())["tokens"])})


CONTROL = ("<|im_start|>", "<|im_end|>")


def tokenise(text: str) -> list[int]:
    parts = re.split(r"(<\|im_start\|>|<\|im_end\|>)", text)
    return [
        i for part in parts for i in ([CONTROL.index(part)] if part in CONTROL else [ord(c) + 10 for c in part])
    ]


def detokenise(ids: Sequence[int]) -> str:
    return "".join(CONTROL[i] if i < 2 else chr(i - 10) for i in ids)


def _render(body: Body) -> str:
    turns = [f"<|im_start|>{m['role']}\n{m['content']}<|im_end|>\n" for m in body["messages"]]
    return "".join(turns) + "<|im_start|>assistant\n"


# --- behaviours -------------------------------------------------------------------------------------------


def says(
    content: str | list[Body] | None,
    *,
    tops: Sequence[tuple[str, Top]] = (),
    finish: str = "stop",
    count: int | None = None,
    usage: Body | None = None,
    message: Body | None = None,
) -> Behaviour:
    """Answer well; `tops` are the tokens with their probabilities, which are given if they are asked for."""

    async def behave(request: web.Request, body: Body) -> web.Response:
        chat = "messages" in body
        choice: Body = {"index": 0, "finish_reason": finish, "logprobs": None}
        spoken = {"role": "assistant", "content": content, **(message or {})}
        choice |= {"message": spoken} if chat else {"text": content}
        if tops and body.get("logprobs"):
            choice["logprobs"] = _chat_logprobs(tops) if chat else _logprobs(tops)
        choices = [choice] * (count or body.get("n", 1))
        return web.json_response({"choices": choices, "usage": USAGE if usage is None else usage})

    return behave


def _chat_logprobs(tops: Sequence[tuple[str, Top]]) -> Body:
    return {
        "content": [
            {
                "token": text,
                "bytes": list(text.encode()),
                "logprob": 0.0,
                "top_logprobs": [{"token": token, "logprob": math.log(p)} for token, p in top.items()],
            }
            for text, top in tops
        ]
    }


def _logprobs(tops: Sequence[tuple[str, Top]]) -> Body:
    return {
        "tokens": [text for text, _ in tops],
        "token_logprobs": [0.0 for _ in tops],
        "top_logprobs": [{token: math.log(p) for token, p in top.items()} for _, top in tops],
    }


def fails(
    status: int,
    message: str = "no",
    *,
    headers: Mapping[str, str] | None = None,
    code: str | None = None,
    param: str | None = None,
) -> Behaviour:
    """Answer with an error in OpenAI's shape."""
    error = {"error": {"message": message, "type": "error", "code": code, "param": param}}

    async def behave(request: web.Request, body: Body) -> web.Response:
        return web.json_response(error, status=status, headers=headers)

    return behave


def sends(text: str | bytes, *, status: int = 200, headers: Mapping[str, str] | None = None) -> Behaviour:
    """Answer with exactly this body."""
    content = text.encode() if isinstance(text, str) else text

    async def behave(request: web.Request, body: Body) -> web.Response:
        return web.Response(body=content, status=status, headers=headers, content_type="application/json")

    return behave


def refuses(name: str, then: Behaviour, *, message: str = "", status: int = 400) -> Behaviour:
    """Refuse any request that has a field of this name."""
    refusal = fails(status, message or f"Unsupported parameter: '{name}' is not supported with this model.")

    async def behave(request: web.Request, body: Body) -> web.StreamResponse:
        return await (refusal if name in body else then)(request, body)

    return behave


def slow(seconds: float, then: Behaviour) -> Behaviour:
    """Wait, then go on."""

    async def behave(request: web.Request, body: Body) -> web.StreamResponse:
        await asyncio.sleep(seconds)
        return await then(request, body)

    return behave


async def hangs(request: web.Request, body: Body) -> web.StreamResponse:
    """Never answer."""
    await asyncio.sleep(3600)
    raise AssertionError("nobody waits that long")


async def cuts(request: web.Request, body: Body) -> web.StreamResponse:
    """Close the connection in the middle of the body."""
    response = web.StreamResponse(headers={"Content-Length": "1000", "Content-Type": "application/json"})
    await response.prepare(request)
    await response.write(b'{"choices": [{"mess')
    assert request.transport is not None
    request.transport.close()
    return response


async def disconnects(request: web.Request, body: Body) -> web.StreamResponse:
    """Close the connection without a word."""
    assert request.transport is not None
    request.transport.close()
    raise web.HTTPOk  # it goes nowhere


def floods(size: int) -> Behaviour:
    """Send a body of this many bytes without saying beforehand how long it is."""

    async def behave(request: web.Request, body: Body) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        with contextlib.suppress(ConnectionError):
            for _ in range(size // 2**20):
                await response.write(b" " * 2**20)
        return response

    return behave


def in_turn(*behaviours: Behaviour) -> Behaviour:
    """The first request gets the first behaviour, and so on; the last one stays."""
    left = itertools.chain(behaviours, itertools.repeat(behaviours[-1]))

    async def behave(request: web.Request, body: Body) -> web.StreamResponse:
        return await next(left)(request, body)

    return behave


def now_and_then(every: int, bad: Behaviour, good: Behaviour) -> Behaviour:
    """Each `every`-th request gets the bad one."""
    numbers = itertools.count(1)

    async def behave(request: web.Request, body: Body) -> web.StreamResponse:
        return await (bad if next(numbers) % every == 0 else good)(request, body)

    return behave
