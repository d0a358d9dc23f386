"""What a batch service can do, whichever it is; and files over HTTP, of any size.

Files go from the disk and to the disk, never through memory as a whole.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Collection, Iterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from evenhand.core.engine import Engine
from evenhand.core.errors import EngineError
from evenhand.core.protocol import Prompt
from evenhand.engines.batches.service import (
    BatchReply,
    BatchStatus,
    UnclearSubmission,
    no_such_batch,
)
from evenhand.engines.endpoint import EndpointEngine
from evenhand.engines.figures import bad_response
from evenhand.engines.http import JsonClient, Reply, short

if TYPE_CHECKING:
    import aiohttp

_CHUNK = 2**20
_SILENCE_SECONDS = 300.0  # without a byte, a connection counts as broken
_CONNECT_SECONDS = 30.0
_MOST_REPLY = 2**22
_MOST_LINE = 2**26
_MOST_FILE = 2**33  # the results of the largest batches, several times over
_PAGE = 100  # batches of a service's list
_MOST_PAGES = 50


class BatchClient(JsonClient):
    """A client that also sends and fetches files."""

    async def send_file(self, path: str, file: Path, form: Mapping[str, str] | None = None) -> Reply:
        """Send a file as the body, or in a form with other fields."""
        from aiohttp import FormData

        with file.open("rb") as content:
            if form is None:
                return await self._stream("POST", path, data=content, headers={"Content-Type": "application/json"})
            fields = FormData(default_to_multipart=True)
            for name, value in form.items():
                fields.add_field(name, value)
            fields.add_field("file", content, filename=file.name, content_type="application/jsonl")
            return await self._stream("POST", path, data=fields)

    async def fetch(self, path: str, file: Path) -> None:
        """Fetch a file."""
        reply = await self._stream("GET", path, into=file)
        if reply.status != 200:
            raise self.fault(reply)

    def rows(self, file: Path) -> Iterator[dict[str, Any]]:
        """The objects in a file of JSON, one a line; what is none is left out, and so are keys in them."""
        with file.open("rb") as lines:
            while line := lines.readline(_MOST_LINE):
                try:
                    row = self._parse(200, line)
                except EngineError:
                    continue
                if isinstance(row, dict):
                    yield row

    async def get_ok(self, path: str) -> Any:
        """What is there, or why it cannot be had."""
        return self.checked(await self.get(path))

    def checked(self, reply: Reply) -> Any:
        """The data of a reply that is as it should be."""
        if reply.status != 200 or not isinstance(reply.data, dict):
            raise self.fault(reply)
        return reply.data

    def accepted(self, reply: Reply) -> str:
        """The name of what was made; a fault of the server leaves open whether it was."""
        name = reply.data.get("id") if reply.status == 200 and isinstance(reply.data, dict) else None
        if isinstance(name, str) and name:
            return name
        error = self.fault(reply)
        raise error if 400 <= reply.status < 500 and reply.status not in (408, 409) else unclear(error)

    async def _stream(self, method: str, path: str, *, into: Path | None = None, **body: Any) -> Reply:
        import aiohttp

        try:
            async with self._session() as session:
                asked = session.request(method, self.url + path, proxy=self._proxy, allow_redirects=False, **body)
                # A file that is sent takes its time; a reply that is only announced, again and again, never comes.
                async with asyncio.timeout(_SILENCE_SECONDS if into is not None else None):
                    reply = await asked
                async with reply:
                    self.reached = True
                    if into is not None and reply.status == 200:
                        await self._save(reply, into)
                        return Reply(200, {})
                    return Reply(reply.status, self._parse(reply.status, await _read(reply)))
        except TimeoutError:
            raise self._late() from None
        except (aiohttp.ClientError, OSError, ValueError) as fault:
            why = short(self._redaction.text(str(fault) or type(fault).__name__))
            raise EngineError(
                f"the connection to {self.who} broke: {why}", reason="connection", retryable=True
            ) from None

    async def _save(self, reply: aiohttp.ClientResponse, file: Path) -> None:
        size = 0
        with file.open("wb") as saved:
            async for chunk in reply.content.iter_chunked(_CHUNK):
                size += len(chunk)
                if size > _MOST_FILE:
                    raise bad_response(f"{self.who} sent a file larger than results can be")
                await asyncio.to_thread(saved.write, chunk)

    @asynccontextmanager
    async def _session(self) -> AsyncIterator[aiohttp.ClientSession]:
        """A session for one file: there are few of them, minutes or hours apart."""
        import aiohttp

        patience = aiohttp.ClientTimeout(total=None, sock_connect=_CONNECT_SECONDS, sock_read=_SILENCE_SECONDS)
        async with aiohttp.ClientSession(headers=self._identification(), timeout=patience) as session:
            yield session


class BatchService(ABC):
    """A service that takes many requests at once; it has a list of batches, and files of what came back.

    `engine` asks a single question in the ordinary way, and learns from it what the service will not take.
    """

    name: str
    engine: Engine
    most_requests: int
    most_bytes: int
    head, between, tail = b"", b"\n", b"\n"  # of a file of requests
    route: str  # where the batches are
    after: str  # what the next page of their list is asked by

    def __init__(self, engine: EndpointEngine, headers: Mapping[str, str] | None = None) -> None:
        settings = engine.settings
        self._client = BatchClient(
            settings.base_url,
            key=settings.key(),
            key_env=settings.key_variable,
            timeout=settings.timeout,
            who=settings.preset.name,
            headers=headers,
        )

    @property
    @abstractmethod
    def lessons(self) -> Mapping[str, Any]:
        """What the service has taught, to be remembered by another process."""

    @abstractmethod
    def remember(self, lessons: Mapping[str, Any]) -> None:
        """Know what it has taught another process."""

    @abstractmethod
    def line(self, name: str, prompt: Prompt) -> tuple[bytes, tuple[str, ...]]:
        """One request of a batch, and what was done to the prompt on its way."""

    async def upload(self, file: Path) -> str:
        """Give the service a file of requests, where it wants that first; the file's name there."""
        return ""

    @abstractmethod
    async def submit(self, file: Path, uploaded: str, token: str) -> str:
        """Send a batch; its name there. UnclearSubmission where nobody knows whether it arrived."""

    @abstractmethod
    async def find(
        self, token: str, uploaded: str, requests: int, newest: str, known: Collection[str]
    ) -> list[str]:
        """Batches at the service that may be one that was sent, the likeliest first.

        They are newer than `newest`, and none of those that are `known`.
        """

    @abstractmethod
    async def status(self, remote: str) -> BatchStatus:
        """How far a batch is."""

    async def newest(self) -> str:
        """The newest batch that the service has; empty where it has none."""
        listed = batches_in(await self._client.get_ok(f"{self.route}?limit=1"))
        return listed[0]["id"] if listed else ""

    async def pages(self) -> AsyncIterator[list[dict[str, Any]]]:
        """The list of batches, page by page."""
        after = ""
        for _ in range(_MOST_PAGES):
            page = await self._client.get_ok(f"{self.route}?limit={_PAGE}{after}")
            listed = batches_in(page)
            yield listed
            if not listed or not page.get("has_more"):
                return
            after = f"&{self.after}={listed[-1]['id']}"

    def another_account(self) -> EngineError:
        """What was at the service before a batch was sent is not there."""
        return no_such_batch(
            f"{self._client.who} does not show the batches that it had when a batch was sent that has not been"
            " heard of since"
        )

    async def look_up(self, remote: str) -> Any:
        """What the service says of a batch."""
        reply = await self._client.get(f"{self.route}/{remote}")
        if reply.status == 404:
            raise no_such_batch(f"{self._client.who} does not know the batch {remote}")
        return self._client.checked(reply)

    async def replies(self, status: BatchStatus, folder: Path) -> AsyncIterator[BatchReply]:
        """What came back, in whatever order; files on their way are in this folder."""
        for number, path in enumerate(status.results):
            file = folder / f"{number}.jsonl"
            await self._client.fetch(path, file)
            found = False
            for row in self._client.rows(file):
                found = True
                yield self._read(row, status.word)
            if not found and file.stat().st_size > len("\r\n"):  # a page of something in between, perhaps
                raise bad_response(f"{self._client.who} sent a file of results that holds none")
            file.unlink()

    @abstractmethod
    def _read(self, row: Mapping[str, Any], word: str) -> BatchReply:
        """What one line says, of a batch that ended with this word."""

    async def cancel(self, remote: str) -> None:
        """Compute no more of it."""
        self._client.checked(await self._client.post(f"{self.route}/{remote}/cancel", {}))

    async def close(self) -> None:
        """Close the connections."""
        await self._client.close()


def listed_in(page: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The objects of a list that a service gives.

    >>> listed_in({"data": [{"id": "b"}, None]}), listed_in({})
    ([{'id': 'b'}], [])
    """
    listed = page.get("data")
    return [one for one in listed if isinstance(one, dict)] if isinstance(listed, list) else []


def batches_in(page: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The batches of a list, each with its name.

    >>> batches_in({"data": [{"id": "b"}, {"id": 7}, {}]})
    [{'id': 'b'}]
    """
    return [batch for batch in listed_in(page) if isinstance(batch.get("id"), str) and batch["id"]]


async def _read(reply: aiohttp.ClientResponse) -> bytes:
    """A short answer; what is longer than any can be is cut off."""
    content = bytearray()
    async for chunk in reply.content.iter_any():
        content += chunk
        if len(content) > _MOST_REPLY:
            break
    return bytes(content)


def unclear(error: EngineError) -> UnclearSubmission:
    """An error after which nobody knows whether the batch was taken.

    >>> unclear(EngineError("x failed (500)", reason="server_error")).reason
    'server_error'
    """
    return UnclearSubmission(error.message, reason=error.reason, retryable=True, retry_after=error.retry_after)


@asynccontextmanager
async def submitting() -> AsyncIterator[None]:
    """Within this, a broken connection leaves open whether what was sent has arrived."""
    try:
        yield
    except UnclearSubmission:
        raise
    except EngineError as error:
        if error.reason in ("connection", "timeout", "bad_response") and not error.fatal:
            raise unclear(error) from None
        raise
