"""A stand-in for the batch services of OpenAI and Anthropic on loopback, with their lifecycles and their faults.

    python batch_server.py SEED SHARE TROUBLE    prints its address, and runs until its standard input is closed

SHARE of the requests fail when they are first computed, and TROUBLE is the share of submissions that go wrong.

It computes a request once for each batch that holds it, and counts that: whoever was computed twice was paid twice.
A batch goes on by one step whenever it is looked at. Results come in random order. `GET /counts` says what it has
counted.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import random
import sys
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from aiohttp import web

Body = dict[str, Any]
LABELS = ("A", "B", "tie")
KEY = "sk-secret-of-the-tests"
USAGE = {"prompt_tokens": 100, "completion_tokens": 2}
OPENAI_STEPS = ("validating", "in_progress", "finalizing", "completed")
ANTHROPIC_STEPS = ("in_progress", "in_progress", "ended")
TROUBLE = ("429", "500", "500-taken", "cut", "cut-taken")
# What becomes of a request: the words of `StandIn.fate`.
OK, BROKEN, EXPIRED, MISSING, BABBLE, FILTERED = "ok", "broken", "expired", "missing", "babble", "filtered"


def key_of(body: Body) -> str:
    """What was asked, whichever service was asked."""
    system = [{"role": "system", "content": body["system"]}] if body.get("system") else []
    return hashlib.sha256(json.dumps([*system, *body["messages"]]).encode()).hexdigest()


def label_of(key: str) -> str:
    return LABELS[int(key, 16) % 3]


@dataclass
class Batch:
    id: str
    requests: list[Body]
    steps: list[str]
    metadata: Body = field(default_factory=dict)
    input_file: str = ""
    results: list[Body] | None = None  # of each request, in the order in which they are sent back
    cancelled: bool = False
    errors: Body | None = None

    @property
    def word(self) -> str:
        return self.steps[0]

    def step(self) -> None:
        if len(self.steps) > 1:
            self.steps.pop(0)


class StandIn:
    """Both services; `submissions` are what the next attempts to submit come to, one word each:

    429, 500: refused without a trace; 500-taken: taken, but said to have failed; cut: the connection is cut before
    it is taken; cut-taken: after; refused-KIND: the batch fails validation with this code.
    """

    def __init__(
        self,
        seed: int = 0,
        fate: Callable[[Body, int], str] = lambda body, time: OK,
        submissions: tuple[str, ...] = (),
        refuse: tuple[str, ...] = (),
        trouble: float = 0.0,  # how often a submission goes wrong, in one way or another
    ) -> None:
        self.trouble = trouble
        self.rng, self.fate, self.submissions = random.Random(seed), fate, [*submissions]
        self.refuse = refuse  # fields of a request that the model does not take
        self.steps: dict[str, tuple[str, ...]] = {"openai": OPENAI_STEPS, "anthropic": ANTHROPIC_STEPS}
        self.files: dict[str, list[Body]] = {}
        self.batches: list[Batch] = []
        self.computed: Counter[str] = Counter()  # how often each question was computed in a batch
        self.asked: Counter[str] = Counter()  # how often in the ordinary way
        self.attempts: Counter[str] = Counter()  # how often each was in a batch that was computed
        self.keys: set[str] = set()
        self.junk: list[bytes] = []  # lines among the results; TOKEN is the batch's own
        self.twice = False  # every result comes twice
        self.oldest_first = False  # the order of the list of batches
        self.polls = self.requests = 0
        self.broken_polls = 0  # so many of the next looks fail
        self.broken_downloads = 0
        self.headers: list[dict[str, str]] = []
        self.url = ""
        self._runner: web.AppRunner | None = None

    async def __aenter__(self) -> StandIn:
        app = web.Application(client_max_size=2**29, middlewares=[self._authorised])
        app.add_routes(
            [
                web.post("/v1/chat/completions", self._chat),
                web.post("/v1/messages", self._message),
                web.post("/v1/files", self._upload),
                web.get("/v1/files/{id}", self._file),
                web.get("/v1/files/{id}/content", self._content),
                web.post("/v1/batches", self._create),
                web.get("/v1/batches", self._list),
                web.get("/v1/batches/{id}", self._openai_status),
                web.post("/v1/batches/{id}/cancel", self._cancel),
                web.post("/v1/messages/batches", self._create_messages),
                web.get("/v1/messages/batches", self._list_messages),
                web.get("/v1/messages/batches/{id}", self._anthropic_status),
                web.get("/v1/messages/batches/{id}/results", self._results),
                web.post("/v1/messages/batches/{id}/cancel", self._cancel),
                web.get("/counts", self._counts),
                web.get("/requests", self._number),
            ]
        )
        self._runner = web.AppRunner(app, shutdown_timeout=0.1)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", 0)
        await site.start()
        self.url = f"http://127.0.0.1:{self._runner.addresses[0][1]}/v1"
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._runner is not None
        await self._runner.cleanup()

    @web.middleware
    async def _authorised(self, request: web.Request, handler: Any) -> web.StreamResponse:
        if len(self.headers) < 100_000:
            self.headers.append(dict(request.headers))
        if request.path.startswith("/v1/messages") and not request.headers.get("anthropic-version"):
            return _fault(400, "anthropic-version: header is required")
        key = request.headers.get("x-api-key") or request.headers.get("Authorization", "").removeprefix("Bearer ")
        service = request.path.startswith("/v1/")
        self.requests += service
        if service and self.keys and key not in self.keys:
            return _fault(401, "invalid key")
        response: web.StreamResponse = await handler(request)
        return response

    # -- the ordinary way ------------------------------------------------------------------------

    async def _chat(self, request: web.Request) -> web.Response:
        body = await request.json()
        if name := self._refused(body):
            return _fault(400, f"Unsupported parameter: '{name}' is not supported with this model.", param=name)
        self.asked[key_of(body)] += 1
        return web.json_response(_completion(body, label_of(key_of(body))))

    async def _message(self, request: web.Request) -> web.Response:
        body = await request.json()
        if name := self._refused(body):
            return _fault(400, f"{name}: this parameter is not supported by this model")
        self.asked[key_of(body)] += 1
        return web.json_response(_message(label_of(key_of(body))))

    def _refused(self, body: Body) -> str:
        return next((name for name in self.refuse if name in body), "")

    # -- OpenAI ----------------------------------------------------------------------------------

    async def _upload(self, request: web.Request) -> web.Response:
        form = await request.post()
        assert form["purpose"] == "batch"
        lines = form["file"].file.read().decode().splitlines()  # type: ignore[union-attr]
        name = f"file-{len(self.files) + 1}"
        self.files[name] = [json.loads(line) for line in lines]
        return web.json_response({"id": name, "object": "file"})

    async def _file(self, request: web.Request) -> web.Response:
        if request.match_info["id"] not in self.files:
            return _fault(404, "no such file")
        return web.json_response({"id": request.match_info["id"]})

    async def _content(self, request: web.Request) -> web.StreamResponse:
        kind, _, number = request.match_info["id"].partition("-")
        batch = self.batches[int(number)]
        ok = [row for row in batch.results or [] if _is_answer(row) == (kind == "output")]
        return await self._lines(request, ok)

    async def _create(self, request: web.Request) -> web.StreamResponse:
        body = await request.json()
        assert body["endpoint"] == "/v1/chat/completions"
        assert body["completion_window"] == "24h"
        requests = self.files[body["input_file_id"]]
        return await self._take(request, "openai", requests, body.get("metadata") or {}, body["input_file_id"])

    async def _list(self, request: web.Request) -> web.Response:
        return self._page(request, request.query.get("after"), self._openai)

    async def _openai_status(self, request: web.Request) -> web.Response:
        return self._look(request, self._openai)

    def _openai(self, batch: Batch) -> Body:
        done = batch.results or []
        failed = sum(not _is_answer(row) for row in done)
        found: Body = {"id": batch.id, "object": "batch", "status": batch.word, "metadata": batch.metadata}
        found |= {"input_file_id": batch.input_file, "errors": batch.errors}
        found["created_at"] = 1_790_000_000 + self.batches.index(batch)
        found["request_counts"] = {
            "total": len(batch.requests),
            "completed": len(done) - failed,
            "failed": failed,
        }
        if batch.results is not None:
            number = self.batches.index(batch)
            found["output_file_id"] = f"output-{number}" if len(done) > failed else None
            found["error_file_id"] = f"error-{number}" if failed else None
        return found

    # -- Anthropic -------------------------------------------------------------------------------

    async def _create_messages(self, request: web.Request) -> web.StreamResponse:
        body = json.loads(await request.read())
        return await self._take(request, "anthropic", body["requests"])

    async def _list_messages(self, request: web.Request) -> web.Response:
        return self._page(request, request.query.get("after_id"), self._anthropic)

    async def _anthropic_status(self, request: web.Request) -> web.Response:
        return self._look(request, self._anthropic)

    async def _results(self, request: web.Request) -> web.StreamResponse:
        batch = self._find(request)
        assert batch is not None
        return await self._lines(request, batch.results or [])

    def _anthropic(self, batch: Batch) -> Body:
        kinds = Counter(row["result"]["type"] for row in batch.results or [])
        counts = {name: kinds[name] for name in ("succeeded", "errored", "canceled", "expired")}
        counts["processing"] = len(batch.requests) - sum(counts.values())
        ended = batch.word == "ended"
        if ended:
            counts["processing"] = 0
            counts["errored"] += len(batch.requests) - sum(counts.values())
        return {
            "id": batch.id,
            "type": "message_batch",
            "processing_status": batch.word,
            "request_counts": counts,
            "results_url": f"{self.url}/messages/batches/{batch.id}/results" if ended else None,
        }

    # -- both ------------------------------------------------------------------------------------

    async def _take(
        self, request: web.Request, service: str, requests: list[Body], metadata: Body | None = None, file: str = ""
    ) -> web.StreamResponse:
        names = [row["custom_id"] for row in requests]
        assert len(set(names)) == len(names) > 0
        how = self.submissions.pop(0) if self.submissions else self._trouble()
        if how in ("429", "500"):
            return _fault(int(how), "not now")
        if how == "cut":
            return _cut(request)
        steps = [*self.steps[service]]
        batch = Batch(f"batch_{len(self.batches) + 1}", requests, steps, metadata or {}, file)
        self.batches.append(batch)
        if how.startswith("refused-"):
            code = how.removeprefix("refused-")
            batch.steps = ["validating", "failed"]
            batch.errors = {"data": [{"code": code, "message": f"{code}: this cannot be computed"}]}
        if how == "cut-taken":
            return _cut(request)
        if how == "500-taken":
            return _fault(500, "something went wrong")
        return web.json_response(self._shown(service)(batch))

    def _trouble(self) -> str:
        return self.rng.choice(TROUBLE) if self.rng.random() < self.trouble else ""

    def _shown(self, service: str) -> Callable[[Batch], Body]:
        return self._openai if service == "openai" else self._anthropic

    def _page(self, request: web.Request, after: str | None, shown: Callable[[Batch], Body]) -> web.Response:
        newest_first = self.batches if self.oldest_first else self.batches[::-1]
        if after:
            newest_first = newest_first[[batch.id for batch in newest_first].index(after) + 1 :]
        limit = min(int(request.query.get("limit", "20")), 2)  # small pages, so that there are several
        page = newest_first[:limit]
        return web.json_response({"data": [shown(batch) for batch in page], "has_more": len(newest_first) > limit})

    def _find(self, request: web.Request) -> Batch | None:
        return next((batch for batch in self.batches if batch.id == request.match_info["id"]), None)

    def _look(self, request: web.Request, shown: Callable[[Batch], Body]) -> web.Response:
        self.polls += 1
        if self.broken_polls:
            self.broken_polls -= 1
            return _fault(503, "down for a moment")
        batch = self._find(request)
        if batch is None:
            return _fault(404, "no such batch")
        batch.step()
        if batch.word in ("completed", "expired", "cancelled", "ended") and batch.results is None:
            self._compute(batch, shown == self._openai)
        return web.json_response(shown(batch))

    async def _cancel(self, request: web.Request) -> web.Response:
        batch = self._find(request)
        assert batch is not None
        batch.cancelled = True
        openai = "messages" not in request.path
        batch.steps = ["cancelling", "cancelled"] if openai else ["canceling", "ended"]
        return web.json_response(self._shown("openai" if openai else "anthropic")(batch))

    async def _lines(self, request: web.Request, rows: list[Body]) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        for line in self.junk:
            await response.write(line.replace(b"TOKEN", str(rows[0]["custom_id"]).split("-")[0].encode()) + b"\n")
        for number, row in enumerate(rows * 2 if self.twice else rows):
            if self.broken_downloads and number == len(rows) // 2:
                self.broken_downloads -= 1
                assert request.transport is not None
                request.transport.abort()
                return response
            await response.write(json.dumps(row).encode() + b"\n")
        await response.write_eof()
        return response

    def _compute(self, batch: Batch, openai: bool) -> None:
        rows = [self._row(request, batch, openai) for request in batch.requests]
        batch.results = [row for row in rows if row is not None]
        self.rng.shuffle(batch.results)

    def _row(self, request: Body, batch: Batch, openai: bool) -> Body | None:
        body = request["body"] if openai else request["params"]
        key = key_of(body)
        fate = "cancelled" if batch.cancelled else self.fate(body, self.attempts[key])
        self.attempts[key] += 1
        if refused := self._refused(body):
            fate = f"refused {refused}"
        if fate in (OK, BABBLE):
            self.computed[key] += 1
        text = "I could not say." if fate == BABBLE else label_of(key)
        if fate == MISSING:
            return None
        row: Body = _openai_row(body, fate, text) if openai else {"result": _anthropic_result(fate, text)}
        return {"custom_id": request["custom_id"], **row}

    async def _number(self, request: web.Request) -> web.Response:
        return web.json_response(self.requests)

    async def _counts(self, request: web.Request) -> web.Response:
        batches = [{"id": batch.id, "requests": len(batch.requests)} for batch in self.batches]
        return web.json_response(
            {
                "computed": dict(self.computed),
                "asked": dict(self.asked),
                "batches": batches,
            }
        )


def _openai_row(body: Body, fate: str, text: str) -> Body:
    if fate in (OK, BABBLE):
        return {"response": {"status_code": 200, "body": _completion(body, text)}, "error": None}
    if fate == "cancelled":
        return {"response": None, "error": {"code": "batch_cancelled", "message": "cancelled"}}
    if fate == EXPIRED:
        return {"response": None, "error": {"code": "batch_expired", "message": "not in time"}}
    if fate == FILTERED:
        return {"response": {"status_code": 400, "body": _error("content_policy_violation")}, "error": None}
    if fate.startswith("refused "):
        name = fate.split()[1]
        said = f"Unsupported parameter: '{name}' is not supported with this model."
        return {"response": {"status_code": 400, "body": _error(said, param=name)}, "error": None}
    if fate == "leak":
        return {"response": None, "error": {"code": "x", "message": f"broken with the key {KEY}"}}
    return {"response": {"status_code": 500, "body": _error("internal error")}, "error": None}


def _anthropic_result(fate: str, text: str) -> Body:
    if fate in (OK, BABBLE):
        return {"type": "succeeded", "message": _message(text)}
    if fate == "cancelled":
        return {"type": "canceled"}
    if fate == EXPIRED:
        return {"type": "expired"}
    kind, said = ("api_error", "internal error") if fate == BROKEN else ("invalid_request_error", fate)
    if fate.startswith("refused "):
        said = f"{fate.split()[1]}: this parameter is not supported by this model"
    if fate == "leak":
        said = f"broken with the key {KEY}"
    if fate == FILTERED:
        said = "flagged by the content filter"
    return {"type": "errored", "error": {"type": "error", "error": {"type": kind, "message": said}}}


def _completion(body: Body, text: str) -> Body:
    choice: Body = {"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": text}}
    if body.get("logprobs"):
        tops = [{"token": text, "logprob": -0.2}, *({"token": each, "logprob": -2.3} for each in LABELS)]
        choice["logprobs"] = {"content": [{"token": text, "bytes": list(text.encode()), "top_logprobs": tops}]}
    return {"choices": [choice], "usage": USAGE}


def _message(text: str) -> Body:
    return {
        "type": "message",
        "content": [{"type": "text", "text": text}],
        "stop_reason": "end_turn",
        "usage": {"input_tokens": 100, "output_tokens": 2},
    }


def _is_answer(row: Body) -> bool:
    return bool(row.get("response")) and row["response"]["status_code"] == 200


def _error(message: str, param: str | None = None) -> Body:
    return {"error": {"message": message, "type": "invalid_request_error", "param": param, "code": None}}


def _fault(status: int, message: str, param: str | None = None) -> web.Response:
    return web.json_response(_error(message, param), status=status)


def _cut(request: web.Request) -> web.StreamResponse:
    assert request.transport is not None
    request.transport.abort()
    raise web.HTTPOk  # it goes nowhere


def now_and_then(share: float) -> Callable[[Body, int], str]:
    """So many requests fail when they are first computed, in ways that depend on the question alone."""

    def fate(body: Body, time: int) -> str:
        place = int(key_of(body)[:8], 16) / 2**32
        return OK if time or place >= share else (BROKEN, EXPIRED, MISSING)[int(place / share * 3)]

    return fate


async def main() -> None:
    seed, share, trouble = int(sys.argv[1]), float(sys.argv[2]), float(sys.argv[3])
    async with StandIn(seed, now_and_then(share), trouble=trouble) as server:
        print(server.url, flush=True)
        await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)


if __name__ == "__main__":
    asyncio.run(main())
