"""Files over HTTP, of any size: they go from the disk and to the disk, never through memory as a whole."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from evenhand.core.errors import EngineError
from evenhand.engines.batches.service import UnclearSubmission
from evenhand.engines.http import JsonClient, Reply

if TYPE_CHECKING:
    import aiohttp

_CHUNK = 2**20
_SILENCE_SECONDS = 300.0  # without a byte, a connection counts as broken
_CONNECT_SECONDS = 30.0
_MOST_REPLY = 2**22
_MOST_LINE = 2**26


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
            async with (
                self._session() as session,
                session.request(method, self.url + path, proxy=self._proxy, allow_redirects=False, **body) as reply,
            ):
                self.reached = True
                if into is not None and reply.status == 200:
                    await _save(reply, into)
                    return Reply(200, {})
                return Reply(reply.status, self._parse(reply.status, await _read(reply)))
        except TimeoutError:
            raise self._late() from None
        except (aiohttp.ClientError, OSError, ValueError) as fault:
            raise EngineError(
                self._redaction.text(f"the connection to {self.who} broke: {str(fault) or type(fault).__name__}"),
                reason="connection",
                retryable=True,
            ) from None

    @asynccontextmanager
    async def _session(self) -> AsyncIterator[aiohttp.ClientSession]:
        """A session for one file: there are few of them, minutes or hours apart."""
        import aiohttp

        patience = aiohttp.ClientTimeout(total=None, sock_connect=_CONNECT_SECONDS, sock_read=_SILENCE_SECONDS)
        async with aiohttp.ClientSession(headers=self._identification(), timeout=patience) as session:
            yield session


async def _read(reply: aiohttp.ClientResponse) -> bytes:
    """A short answer; what is longer than any can be is cut off."""
    content = bytearray()
    async for chunk in reply.content.iter_any():
        content += chunk
        if len(content) > _MOST_REPLY:
            break
    return bytes(content)


async def _save(reply: aiohttp.ClientResponse, file: Path) -> None:
    with file.open("wb") as saved:
        async for chunk in reply.content.iter_chunked(_CHUNK):
            await asyncio.to_thread(saved.write, chunk)


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
