"""Anthropic's batches: the requests are in the batch itself, in the form of its own Messages API.

An ordinary run asks Anthropic through its layer for OpenAI's clients. That layer does what is done here: it takes
the system turns out of the conversation, and leaves out what the Messages API does not know.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

from evenhand.core.engine import BROKEN, Answer, Engine, Usage
from evenhand.core.errors import EngineError
from evenhand.core.protocol import Prompt
from evenhand.engines.batches.client import BatchClient, BatchService, submitting
from evenhand.engines.batches.service import (
    CANCELLED,
    EXPIRED,
    BatchReply,
    BatchStatus,
    ended_by,
    no_such_batch,
)
from evenhand.engines.completion import read_choices
from evenhand.engines.endpoint import CHAT_TOKENS, EndpointEngine, refused_field, string_of
from evenhand.engines.figures import bad_response, count
from evenhand.engines.http import Reply, ServerReply, dump, short

VERSION = "2023-06-01"
# The kinds of errors, as the statuses that they come with elsewhere.
_STATUS = {
    "invalid_request_error": 400,
    "authentication_error": 401,
    "billing_error": 402,
    "permission_error": 403,
    "not_found_error": 404,
    "request_too_large": 413,
    "rate_limit_error": 429,
    "api_error": 500,
    "timeout_error": 504,
    "overloaded_error": 529,
}


class MessagesEngine(Engine):
    """Asks one question through the Messages API; who judges is the same as through the other layer."""

    concurrency = 1

    def __init__(self, endpoint: EndpointEngine, client: BatchClient) -> None:
        self._endpoint, self._client = endpoint, client
        self.refused: set[str] = set()

    @property
    def identity(self) -> Mapping[str, str]:
        """The endpoint's."""
        return self._endpoint.identity

    async def answer(self, prompt: Prompt) -> Answer:
        """Ask, and ask again without what is refused."""
        body, notes = self.request(prompt)
        reply = await self._client.post("/messages", body)
        while reply.status != 200 and self.learn(reply):
            body, notes = self.request(prompt)
            reply = await self._client.post("/messages", body)
        if reply.status != 200:
            raise self._client.fault(reply)
        return read_message(reply.data, notes)

    def request(self, prompt: Prompt) -> tuple[dict[str, Any], tuple[str, ...]]:
        """The body of a request, and what was done to the prompt on its way into it."""
        if prompt.raw is not None:
            raise EngineError("Anthropic writes its own markup and cannot be sent the file's", fatal=True)
        settings, notes = self._endpoint.settings, set[str]()
        system, messages = [], []
        for turn in prompt.turns:
            content, broken = string_of(turn.spans)
            notes.update(broken)
            if turn.role == "system":
                system.append(content)
            else:
                messages.append({"role": turn.role, "content": content})
        body: dict[str, Any] = {
            "model": settings.model,
            "max_tokens": settings.max_tokens or max(CHAT_TOKENS, prompt.room),
            "temperature": min(settings.temperature, 1.0),
            **settings.extra,
            "messages": messages,
        }
        if system:
            body["system"] = "\n".join(system)
        kept = {name: value for name, value in body.items() if value is not None and name not in self.refused}
        return kept, (BROKEN,) if notes else ()

    def learn(self, reply: Reply) -> bool:
        """Whether a refusal names a field that can be left out; it is from now on."""
        name = refused_field(reply, {"temperature": 0.0})
        if name is None:
            return False
        self.refused.add(name)
        return True


class AnthropicBatches(BatchService):
    """https://docs.anthropic.com/en/api/creating-message-batches."""

    name, route, after = "anthropic", "/messages/batches", "after_id"
    most_requests = 100_000
    most_bytes = 250_000_000
    head, between, tail = b'{"requests": [\n', b",\n", b"\n]}\n"

    def __init__(self, engine: EndpointEngine) -> None:
        super().__init__(engine, {"x-api-key": engine.settings.key(), "anthropic-version": VERSION})
        self.engine = self._messages = MessagesEngine(engine, self._client)

    @property
    def lessons(self) -> Mapping[str, Any]:
        """What the service has taught."""
        return {"refused": sorted(self._messages.refused)}

    def remember(self, lessons: Mapping[str, Any]) -> None:
        """Know what it has taught another process."""
        self._messages.refused |= set(lessons.get("refused", ()))

    def line(self, name: str, prompt: Prompt) -> tuple[bytes, tuple[str, ...]]:
        """One request, as a line of JSON."""
        body, notes = self._messages.request(prompt)
        return dump({"custom_id": name, "params": body}), notes

    async def submit(self, file: Path, uploaded: str, token: str) -> str:
        """Send the batch."""
        async with submitting():
            return self._client.accepted(await self._client.send_file(self.route, file))

    async def find(
        self, token: str, uploaded: str, requests: int, newest: str, known: Collection[str]
    ) -> list[str]:
        """Newer batches of as many requests, the oldest first; the names of their answers will tell whose it is."""
        found = list[str]()
        async for listed in self.pages():
            for batch in listed:
                if batch["id"] == newest:
                    return found
                if _total(batch) == requests and batch["id"] not in known:
                    found.insert(0, batch["id"])
        if newest:
            raise self.another_account()
        return found

    async def status(self, remote: str) -> BatchStatus:
        """Look at a batch."""
        batch = await self.look_up(remote)
        word, total = short(batch.get("processing_status")), _total(batch)
        done = total - _counts(batch).get("processing", 0)
        if word != "ended":
            return BatchStatus(remote, "waiting", word, done, total)
        if not batch.get("results_url"):
            raise no_such_batch(
                f"anthropic no longer has the results of the batch {remote}",
                "they are there for 29 days; give it up: evenhand batches forget",
            )
        return BatchStatus(remote, "ended", word, done, total, (f"{self.route}/{remote}/results",))

    def _read(self, row: Mapping[str, Any], word: str) -> BatchReply:
        name, given = short(row.get("custom_id")), row.get("result")
        result: Mapping[str, Any] = given if isinstance(given, dict) else {}
        try:
            if result.get("type") == "succeeded":
                return BatchReply(name, read_message(result.get("message")))
            return BatchReply(name, error=self._error(short(result.get("type")), result.get("error")))
        except EngineError as fault:
            return BatchReply(name, error=fault)

    def _error(self, kind: str, error: Any) -> EngineError:
        if kind == "expired":
            return ended_by(EXPIRED)
        if kind == "canceled":
            return ended_by(CANCELLED)
        inner = error.get("error", error) if isinstance(error, dict) else {}
        word = short(inner.get("type")) if isinstance(inner, dict) else ""
        reply = Reply(_STATUS.get(word, 500), {"error": inner})
        fault = self._client.fault(reply)
        known = ServerReply.of(reply.data).message
        if self._messages.learn(reply) or any(name in known for name in self._messages.refused):
            fault.retryable, fault.fatal = True, False
        return fault


def read_message(data: Any, notes: tuple[str, ...] = ()) -> Answer:
    """The answer in a message, without its thinking.

    >>> answer = read_message({"content": [{"type": "text", "text": "B"}], "stop_reason": "end_turn",
    ...                        "usage": {"input_tokens": 90, "cache_read_input_tokens": 10, "output_tokens": 1}})
    >>> answer.text, answer.finish, answer.usage
    ('B', 'stop', Usage(computed=90, reused=10, generated=1))
    """
    if not isinstance(data, dict) or not isinstance(data.get("content"), list):
        raise bad_response("the server answered without an answer in it")
    stop = {"refusal": "content_filter", "max_tokens": "length", "model_context_window_exceeded": "length"}
    finish = stop.get(short(data.get("stop_reason")), "stop")
    (choice,) = read_choices({"choices": [{"message": {"content": data["content"]}, "finish_reason": finish}]})
    return Answer(choice.text, (), _usage(data.get("usage")), choice.finish, notes=notes)


def _usage(usage: Any) -> Usage:
    names = ("input_tokens", "cache_creation_input_tokens", "cache_read_input_tokens", "output_tokens")
    read, made, reused, written = (count(usage.get(name)) if isinstance(usage, dict) else 0 for name in names)
    return Usage(read + made, reused, written)


def _counts(batch: Mapping[str, Any]) -> dict[str, int]:
    counts = batch.get("request_counts")
    return {name: count(value) for name, value in counts.items()} if isinstance(counts, dict) else {}


def _total(batch: Mapping[str, Any]) -> int:
    return sum(_counts(batch).values())
