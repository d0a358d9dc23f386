"""A server that is gone in the middle of a run, over real sockets: the run stops, and the next one goes on."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from aiohttp import web
from yarl import URL

import patient
from evenhand.core.errors import EngineError
from evenhand.core.judge import Judgment, Setup
from evenhand.core.pair import Pair
from evenhand.core.protocol import Protocol
from evenhand.engines.endpoint import EndpointEngine, EndpointSettings
from evenhand.running.pace import Pace
from evenhand.running.runner import Run
from evenhand.store import Store
from misbehaving_server import Body, Server, says

PAIRS = [Pair(f"Task {n}", f"x{n}", f"y{n}", id=f"p{n}") for n in range(40)]
GOOD = says("A", tops=[("A", {"A": 0.7, "B": 0.2, "tie": 0.1})])


async def at_once(_: float) -> None:
    """A wait that takes no time."""
    await asyncio.sleep(0)


def failed(judgment: Judgment) -> bool:
    return any(verdict.label is None for verdict in judgment["overall"].orders.values())


async def judge(url: str, db: Path) -> int:
    """Judge the pairs; how many were."""
    engine = EndpointEngine(EndpointSettings(url, "m", concurrency=4, timeout=60))
    count = 0
    try:
        with Store(db) as store:
            pace = Pace(engine, sleep=at_once)
            async for judgment in Run(Setup(engine, Protocol.load("overall")), PAIRS, store, pace=pace):
                count += not failed(judgment)
    finally:
        await engine.close()
    return count


def test_the_run_stops_and_the_next_one_goes_on(tmp_path: Path) -> None:
    db = tmp_path / "evenhand.db"

    async def main() -> None:
        gone = asyncio.Event()
        answered = 0

        async def behave(request: web.Request, body: Body) -> web.StreamResponse:
            nonlocal answered
            answered += 1
            if answered == 21:
                gone.set()
                await asyncio.sleep(60)  # it dies over this one
            return await GOOD(request, body)

        server = Server(behave)
        await server.__aenter__()

        async def die() -> None:
            await gone.wait()
            await server.__aexit__()

        dying = asyncio.create_task(die())
        with pytest.raises(EngineError, match=r"cannot be reached any more.*run the same command again") as stopped:
            await judge(server.url, db)
        await dying
        assert stopped.value.fatal
        with Store(db) as store:
            [used] = store.judges()
            kept = list(store.judgments(used))
            assert 0 < len(kept) < len(PAIRS)
            assert sum(failed(judgment) for judgment in kept) <= 4, "no pair after those under way may have failed"
        async with Server(GOOD, port=URL(server.url).port or 0) as again:
            assert await judge(again.url, db) == len(PAIRS)
            assert len(again.bodies) <= 2 * len(PAIRS) - 16, "what was answered is not asked again"

    patient.run(main())
