"""The command with short waits and small batches; it dies at a named moment.

    python batch_command.py POINT TIMES WORDS...

POINT is before:CLASS.METHOD or after:CLASS.METHOD, TIMES how often that moment is survived; "never" is none.
"""

from __future__ import annotations

import os
import sys
from typing import Any

from evenhand.engines.batches.anthropic import AnthropicBatches
from evenhand.engines.batches.openai import OpenAIBatches
from evenhand.running.batches import run, sender
from evenhand.store import BatchBook, Store
from evenhand.views.cli import main

CLASSES = {"book": BatchBook, "store": Store, "openai": OpenAIBatches, "anthropic": AnthropicBatches}
MOST = int(os.environ.get("EVENHAND_BATCH_MOST", "9"))  # requests in a batch


def shorten() -> None:
    run.FIRST_POLL, run.LONGEST_POLL = 0.02, 0.05
    sender.FIRST_DELAY, sender.LONGEST_DELAY, sender.GRACE_SECONDS, sender.LOOK_SECONDS = 0.01, 0.05, 0.3, 0.05
    OpenAIBatches.most_requests = AnthropicBatches.most_requests = MOST


def die_at(point: str, times: int) -> None:
    when, _, place = point.partition(":")
    owner, _, name = place.partition(".")
    method, lived = getattr(CLASSES[owner], name), [0]

    def die() -> None:
        lived[0] += 1
        if lived[0] > times:
            os._exit(9)

    def called(*given: Any, **named: Any) -> Any:
        if when == "before":
            die()
        found = method(*given, **named)
        if when == "after" and not hasattr(found, "__await__"):
            die()
        return found

    async def awaited(*given: Any, **named: Any) -> Any:
        if when == "before":
            die()
        found = await method(*given, **named)
        die() if when == "after" else None
        return found

    setattr(CLASSES[owner], name, awaited if owner in ("openai", "anthropic") else called)


if __name__ == "__main__":
    point, times, *words = sys.argv[1:]
    shorten()
    if point != "never":
        die_at(point, int(times))
    sys.argv = ["evenhand", *words]
    main()
