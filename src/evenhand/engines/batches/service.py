"""How far a batch is, what came back of it, and what can go wrong with it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, NamedTuple

from evenhand.core.engine import Answer
from evenhand.core.errors import EngineError

# A batch that nobody has cancelled, and whose questions may be asked again.
EXPIRED, CANCELLED = "batch_expired", "batch_cancelled"


class UnclearSubmission(EngineError):
    """Nobody knows whether the service has the batch: it must be asked before the batch is sent again."""


class RefusedBatch(EngineError):
    """The service looked at the batch and will not compute any of it."""

    def __init__(self, message: str) -> None:
        super().__init__(
            message, reason="batch_refused", hint="nothing of it was computed, and nothing is to be paid"
        )


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
    too_many: bool = False  # not as much at once


class BatchReply(NamedTuple):
    """What came back under one name: an answer, or why there is none."""

    name: str
    answer: Answer | None = None
    error: EngineError | None = None


def ended_by(reason: str, message: str = "") -> EngineError:
    """Why a request was not computed: its day was over, or it was cancelled."""
    how = "ended" if reason == EXPIRED else "was cancelled"
    return EngineError(
        message or f"the batch {how} before this request was computed", reason=reason, retryable=reason == EXPIRED
    )


def no_such_batch(
    message: str, hint: str = "use the key of the account that sent it, or give it up: evenhand batches forget"
) -> EngineError:
    """The service does not have what it was sent: asking again might pay twice."""
    return EngineError(message, reason="no_such_batch", fatal=True, hint=hint)
