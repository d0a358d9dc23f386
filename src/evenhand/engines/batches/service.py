"""What a batch service can do, whichever it is, and what came back of a batch."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, NamedTuple

from evenhand.core.engine import Answer, Engine
from evenhand.core.errors import EngineError
from evenhand.core.protocol import Prompt

# A batch that nobody has cancelled, and whose questions may be asked again.
EXPIRED, CANCELLED = "batch_expired", "batch_cancelled"


class UnclearSubmission(EngineError):
    """Nobody knows whether the service has the batch: it must be asked before the batch is sent again."""


class RefusedBatch(EngineError):
    """The service looked at the batch and will not compute any of it; `too_many`: not as much at once."""

    def __init__(self, message: str, *, too_many: bool = False) -> None:
        super().__init__(
            message, reason="batch_refused", hint="nothing of it was computed, and nothing is to be paid"
        )
        self.too_many = too_many


@dataclass(frozen=True, slots=True)
class BatchStatus:
    """How far a batch is; `word` is the service's own for it."""

    remote: str
    phase: Literal["waiting", "ended", "refused"]
    word: str
    done: int = 0
    total: int = 0
    results: tuple[str, ...] = ()  # where its results are
    why: str = ""  # it was refused
    too_many: bool = False


class BatchReply(NamedTuple):
    """What came back under one name: an answer, or why there is none."""

    name: str
    answer: Answer | None = None
    error: EngineError | None = None


class BatchService(ABC):
    """A service that takes many requests at once.

    `engine` asks a single question in the ordinary way, and learns from it what the service will not take.
    """

    name: str
    engine: Engine
    most_requests: int
    most_bytes: int
    head, between, tail = b"", b"\n", b"\n"  # of a file of requests

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
    async def newest(self) -> str:
        """The newest batch that the service has; empty where it has none."""

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

    @abstractmethod
    def replies(self, status: BatchStatus, folder: Path) -> AsyncIterator[BatchReply]:
        """What came back, in whatever order; files on their way are in this folder."""

    @abstractmethod
    async def cancel(self, remote: str) -> None:
        """Compute no more of it."""

    @abstractmethod
    async def close(self) -> None:
        """Close the connections."""


def ended_by(reason: str, message: str) -> EngineError:
    """Why a request was not computed: the day was over, or somebody cancelled it."""
    return EngineError(message, reason=reason, retryable=reason == EXPIRED)


def unknown_batch(who: str, remote: str) -> EngineError:
    """The service does not know a batch that it was sent: most likely the key is another account's."""
    return EngineError(
        f"{who} does not know the batch {remote}",
        reason="no_such_batch",
        fatal=True,
        hint="use the key of the account that sent it, or give it up: evenhand batches forget",
    )


def another_account(who: str) -> EngineError:
    """What was at the service before a batch was sent is not there: asking again might pay twice."""
    return EngineError(
        f"{who} does not show the batches that it had when a batch was sent that has not been heard of since",
        reason="no_such_batch",
        fatal=True,
        hint="use the key of the account that sent it, or give it up: evenhand batches forget",
    )
