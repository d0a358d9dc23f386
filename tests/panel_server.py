"""A server behind which several judges stand, told apart by the model that is asked for.

What a judge says of a pair depends on its name and on the texts, so that whoever knows the pair knows the answer.
It speaks for the same response in either order.
"""

from __future__ import annotations

import asyncio
import hashlib
import re
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from aiohttp import web

from conftest import LoopThread
from misbehaving_server import Body, Server, fails, says

# What a model says of a pair: the probability that its output 1 is better.
Opinion = Callable[[str, int], float]


def number_of(body: Body) -> tuple[int, bool]:
    """The number of the pair that a prompt is about, and whether its output 1 is shown first."""
    text = body["messages"][-1]["content"]
    first, second = re.findall(r"answer (\d+) side ([12])", text)[-2:]
    return int(first[0]), first[1] == "1" and second[1] == "2"


def opinion(model: str, number: int) -> float:
    """Spread over all shares, and the same each time."""
    return int(hashlib.sha256(f"{model} {number}".encode()).hexdigest()[:8], 16) / 0xFFFFFFFF


class Panel:
    """The server's say: who answers what, who fails, and how often each was asked."""

    def __init__(self, view: Opinion = opinion) -> None:
        self.view = view
        self.failing: set[str] = set()  # models that answer 401
        self.unreadable: dict[str, set[int]] = {}  # numbers of pairs to which a model answers nonsense
        self.asked: Counter[str] = Counter()
        self.pairs: dict[str, set[int]] = {}
        self.hold: tuple[str, int] | None = None  # a model, and after how many questions it answers no more
        self.url = ""

    async def behave(self, request: web.Request, body: Body) -> web.StreamResponse:
        model = str(body["model"])
        if model in self.failing:
            return await fails(401, "no such key")(request, body)
        self.asked[model] += 1
        while self.hold is not None and model == self.hold[0] and self.asked[model] >= self.hold[1]:  # noqa: ASYNC110
            await asyncio.sleep(0.02)  # another thread ends it
        number, forward = number_of(body)
        self.pairs.setdefault(model, set()).add(number)
        if number in self.unreadable.get(model, ()):
            return await says("I would rather not say.")(request, body)
        share = self.view(model, number)
        a = share if forward else 1 - share
        tops = {"A": 0.95 * a + 1e-3, "B": 0.95 * (1 - a) + 1e-3, "tie": 0.04}
        label = max(tops, key=lambda name: tops[name])
        return await says(label, tops=[(label, tops)])(request, body)

    def spec(self, model: str) -> str:
        return f"{self.url}#{model}"


@contextmanager
def serving(panel: Panel, loop: LoopThread) -> Iterator[Panel]:
    """The panel behind HTTP."""
    server = Server(panel.behave)
    loop.run(server.__aenter__())
    panel.url = server.url
    try:
        yield panel
    finally:
        loop.run(server.__aexit__(None, None, None))


def row(number: int, **more: object) -> dict[str, object]:
    """A pair as a row of a file."""
    texts = {f"output_{side}": f"answer {number} side {side}" for side in (1, 2)}
    return {"id": f"p{number}", "instruction": f"Question {number}?", **texts, **more}
