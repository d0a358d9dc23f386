"""OpenAI's batches: a file of requests, a batch over it, and files of answers and of errors."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any, Literal

from evenhand.core.errors import EngineError
from evenhand.core.protocol import Prompt
from evenhand.engines.batches.client import BatchService, listed_in, submitting
from evenhand.engines.batches.service import CANCELLED, EXPIRED, BatchReply, BatchStatus, ended_by
from evenhand.engines.endpoint import EndpointEngine
from evenhand.engines.figures import count, sound, text_of
from evenhand.engines.http import Reply, dump, short

_ROUTE = "/v1/chat/completions"
_ENDED = ("completed", "expired", "cancelled")
_MARK = "evenhand"  # the name of our token in a batch's metadata


class OpenAIBatches(BatchService):
    """https://platform.openai.com/docs/api-reference/batch."""

    name, route, after = "openai", "/batches", "after"
    most_requests = 50_000
    most_bytes = 200_000_000

    def __init__(self, engine: EndpointEngine) -> None:
        super().__init__(engine)
        self.engine = self._endpoint = engine

    @property
    def lessons(self) -> Mapping[str, Any]:
        """What the service has taught."""
        return self._endpoint.lessons

    def remember(self, lessons: Mapping[str, Any]) -> None:
        """Know what it has taught another process."""
        self._endpoint.remember(lessons)

    def line(self, name: str, prompt: Prompt) -> tuple[bytes, tuple[str, ...]]:
        """One request, as a line of JSON."""
        body, notes = self._endpoint.request(prompt)
        return dump({"custom_id": name, "method": "POST", "url": _ROUTE, "body": body}), notes

    async def upload(self, file: Path) -> str:
        """Give the service the file."""
        reply = await self._client.send_file("/files", file, {"purpose": "batch"})
        return str(self._client.checked(reply).get("id") or "")

    async def submit(self, file: Path, uploaded: str, token: str) -> str:
        """Send the batch."""
        body = {
            "input_file_id": uploaded,
            "endpoint": _ROUTE,
            "completion_window": "24h",
            "metadata": {_MARK: token},
        }
        async with submitting():
            return self._client.accepted(await self._client.post("/batches", body))

    async def find(
        self, token: str, uploaded: str, requests: int, newest: str, known: Collection[str]
    ) -> list[str]:
        """The batch whose metadata has our token, or that was made of our file."""
        reached = False  # whether the list has come to where it ended before ours was sent
        async for listed in self.pages():
            ours = [batch for batch in listed if _is_ours(batch, token, uploaded) and batch["id"] not in known]
            if ours:
                return [batch["id"] for batch in ours]
            reached = reached or any(batch["id"] == newest for batch in listed)
            if reached and _newest_first(listed):
                break
        if not reached and (newest or not await self._has_file(uploaded)):
            raise self.another_account()
        return []

    async def _has_file(self, name: str) -> bool:
        return (await self._client.get(f"/files/{name}")).status != 404

    async def status(self, remote: str) -> BatchStatus:
        """Look at a batch."""
        batch = await self.look_up(remote)
        word, counts = short(batch.get("status")), batch.get("request_counts")
        completed, failed, total = (
            count(counts.get(name)) if isinstance(counts, dict) else 0 for name in ("completed", "failed", "total")
        )
        if word == "failed":
            why, codes = _errors(batch)
            return BatchStatus(remote, "refused", word, why=why, too_many="token_limit_exceeded" in codes)
        with sound(self._client.who):  # else what is paid for would be given up
            names = [text_of(batch[name]) for name in ("output_file_id", "error_file_id") if batch.get(name)]
        files = tuple(f"/files/{name}/content" for name in names)
        phase: Literal["ended", "waiting"] = "ended" if word in _ENDED else "waiting"
        return BatchStatus(remote, phase, word, completed + failed, total, files)

    def _read(self, row: Mapping[str, Any], word: str) -> BatchReply:
        name, response = short(row.get("custom_id")), row.get("response")
        try:
            if isinstance(response, dict) and isinstance(response.get("status_code"), int):
                reply = Reply(response["status_code"], response.get("body"))
                return BatchReply(name, self._endpoint.read_reply(reply, self._client.fault))
            return BatchReply(name, error=_error(row.get("error"), word))
        except EngineError as fault:
            return BatchReply(name, error=fault)


def _newest_first(listed: list[dict[str, Any]]) -> bool:
    """Whether a page is in this order, which the service does not promise."""
    times = [batch.get("created_at") for batch in listed]
    known = [time for time in times if isinstance(time, int | float)]
    return len(known) == len(times) > 1 and known == sorted(known, reverse=True) and known[0] > known[-1]


def _is_ours(batch: Mapping[str, Any], token: str, uploaded: str) -> bool:
    metadata = batch.get("metadata")
    marked = isinstance(metadata, dict) and metadata.get(_MARK) == token
    return marked or bool(uploaded and batch.get("input_file_id") == uploaded)


def _errors(batch: Mapping[str, Any]) -> tuple[str, set[str]]:
    """What is wrong with a batch, in the service's words and in its codes."""
    errors = batch.get("errors")
    listed = listed_in(errors) if isinstance(errors, dict) else []
    said = "; ".join(dict.fromkeys(short(error.get("message")) for error in listed[:3]))
    return said or "no reason given", {short(error.get("code")) for error in listed}


def _error(error: Any, word: str) -> EngineError:
    """Why a request has no response."""
    code = short(error.get("code") or "") if isinstance(error, dict) else ""
    message = short(error.get("message") or "") if isinstance(error, dict) else ""
    if code == EXPIRED or (word == "expired" and not code):
        return ended_by(EXPIRED)
    if code == CANCELLED or word == "cancelled":
        return ended_by(CANCELLED)
    return EngineError(message or "no reason given", reason="server_error", retryable=True)
