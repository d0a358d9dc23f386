"""How long a local model would take: a pair or two are judged on this machine, and nothing of it is kept."""

from __future__ import annotations

import time
from collections.abc import Sequence

from evenhand.core.engine import Engine
from evenhand.core.pair import Pair
from evenhand.running.runner import Plan, plan
from evenhand.store import Store
from evenhand.views.api import Judge
from evenhand.views.cli.groups import JudgeSettings

# A second pair is judged where the first took no longer: it finds the model loaded and its cache warm.
_ENOUGH_SECONDS = 15.0


def seconds_for(planned: Plan, settings: JudgeSettings, engine: Engine, pairs: Sequence[Pair]) -> float | None:
    """About how many seconds the planned requests take, by the time of the first pairs; None without any."""
    if not pairs or not planned.requests:
        return 0.0 if pairs else None
    taken = seconds = 0.0
    with Judge(engine, settings.protocol, orders=settings.orders, raw_markup=settings.raw_markup) as judge:
        for pair in pairs[:2]:
            began = time.monotonic()
            judge.compare(pair)
            seconds, taken = time.monotonic() - began, _characters(settings, engine, pair)
            if seconds > _ENOUGH_SECONDS:
                break
    return seconds * planned.characters / taken


def _characters(settings: JudgeSettings, engine: Engine, pair: Pair) -> int:
    """What the prompts of one pair come to."""
    with Store(":memory:") as store:
        return plan(settings.setup(engine), [pair], store, orders=settings.orders, seed=settings.seed).characters
