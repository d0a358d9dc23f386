"""States from a stand-in for vLLM: what is sent, what is refused, and a head that is learned and used with them."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from command import evenhand
from conftest import LoopThread
from evenhand.core.engine import StateReader
from evenhand.core.errors import EngineError, SpecError
from evenhand.engines import open_engine
from evenhand.engines.heads.head import Head
from evenhand.engines.heads.reading import StateReading
from evenhand.engines.vllm_states import VllmEngine
from test_control_tokens import CONTROL, Tokeniser, detokenise, forged


class Pooling:
    """A vLLM that was started for embeddings: whether "fine" stands in a prompt is its state."""

    def __init__(self) -> None:
        self.bodies: list[dict[str, Any]] = []
        self.scale, self.status = 10.0, 200

    async def embeddings(self, request: web.Request) -> web.Response:
        body = await request.json()
        self.bodies.append(body)
        if self.status != 200:
            return web.json_response({"detail": "Not Found"}, status=self.status)
        text = detokenise(body["input"])
        vector = [self.scale * x for x in ((0.6, 0.8) if "fine" in text else (0.8, -0.6))]
        usage = {"prompt_tokens": len(body["input"]), "total_tokens": len(body["input"])}
        return web.json_response({"data": [{"index": 0, "embedding": vector}], "usage": usage})

    async def start(self) -> tuple[str, web.AppRunner]:
        app, tokeniser = web.Application(), Tokeniser(given=True)
        app.router.add_post("/tokenize", tokeniser.tokenize)
        app.router.add_post("/detokenize", tokeniser.detokenize)
        app.router.add_post("/v1/embeddings", self.embeddings)
        runner = web.AppRunner(app, access_log=None)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        return f"vllm@http://127.0.0.1:{runner.addresses[0][1]}/v1#m", runner


@pytest.fixture
def served() -> Iterator[tuple[str, Pooling]]:
    loop, pooling = LoopThread(), Pooling()
    spec, runner = loop.run(pooling.start())
    try:
        yield spec, pooling
    finally:
        loop.run(runner.cleanup())
        loop.stop()


def state(spec: str, response: str) -> tuple[float, ...]:
    async def read() -> tuple[float, ...]:
        engine = open_engine(spec)
        assert isinstance(engine, VllmEngine)
        try:
            return (await engine.state(StateReading(system="").prompt("Say.", response))).vector
        finally:
            await engine.close()

    return asyncio.run(read())


def test_states_come_for_token_ids_in_which_text_stays_text(served: tuple[str, Pooling]) -> None:
    spec, pooling = served
    assert state(spec, "fine") == (6.0, 8.0)
    trick = " ".join(CONTROL)
    state(spec, trick)
    plain, hostile = pooling.bodies
    assert (plain["normalize"], plain["use_activation"], plain["model"]) == (False, False, "m")
    assert forged(hostile["input"]) == []
    assert trick in detokenise(hostile["input"])


def test_what_is_no_state_is_refused(served: tuple[str, Pooling]) -> None:
    spec, pooling = served
    pooling.scale = 1.0
    with pytest.raises(EngineError, match=r"brought to length one.*--pooler-config") as caught:
        state(spec, "fine")
    assert caught.value.fatal
    pooling.scale = float("nan")
    with pytest.raises(EngineError) as caught:
        state(spec, "fine")
    assert caught.value.reason == "bad_response"
    pooling.status = 404
    with pytest.raises(EngineError, match="--runner pooling") as caught:
        state(spec, "fine")
    assert caught.value.fatal
    with pytest.raises(SpecError, match="last block alone"):
        VllmEngine(open_engine(spec).settings).state_identity(3)  # type: ignore[attr-defined]
    assert not isinstance(open_engine("openai:gpt-4o-mini"), StateReader)


def test_a_head_is_learned_and_used_through_the_server(served: tuple[str, Pooling], tmp_path: Path) -> None:
    spec, pooling = served
    rows = []
    for n in range(24):
        good, bad = f"fine {n}", f"bad {n}"
        one, two, side = (good, bad, "1") if n % 2 else (bad, good, "2")
        rows.append(
            {"instruction": f"Task {n % 12}", "output_1": one, "output_2": two, "labels": {"overall": side}}
        )
    pairs, head = tmp_path / "pairs.jsonl", tmp_path / "mine.json"
    pairs.write_text("".join(json.dumps(row) + "\n" for row in rows), "utf-8")
    found = json.loads(evenhand("learn", pairs, "--judge", spec, "--out", head, "--json").stdout)
    assert found["learned"]["overall"]["held_out"]["value"] == 1.0
    assert (Head.load(head).model, Head.load(head).opened_by) == ("m", spec)
    read = len(pooling.bodies)
    done = evenhand("judge", pairs, "--judge", f"head:{head}", "--db", tmp_path / "h.db", "--json")
    assert json.loads(done.stdout)["dimensions"]["overall"]["agreement"]["n"] == 24
    assert len(pooling.bodies) == read + 48
