"""Whatever a server sends is an answer that can be read and stored, or an EngineError; never anything else."""

from __future__ import annotations

import copy
import json
import math
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from conftest import LoopThread
from evenhand import Judge, Pair
from evenhand.core.engine import Answer, Engine, Sampling, Token
from evenhand.core.errors import EngineError
from evenhand.core.markup import Span, Turn
from evenhand.core.protocol import Prompt, Protocol
from evenhand.core.verdict import read_answer
from evenhand.engines import open_engine
from evenhand.engines.batches.client import BatchService
from evenhand.engines.batches.opening import open_batches
from evenhand.engines.completion import read_choices
from evenhand.engines.endpoint import EndpointEngine, EndpointSettings
from evenhand.engines.figures import state_vector, token_ids
from evenhand.engines.http import ServerReply, _retry_after, load
from evenhand.running.pace import Limits
from evenhand.store.rows import answer_from, answer_row
from misbehaving_server import Body, Server

PROMPT = Prompt((Turn("user", (Span("Which? ", True), Span("x", False))),))
USAGE = {"prompt_tokens": 9, "completion_tokens": 1, "prompt_tokens_details": {"cached_tokens": 4}}
TOP = [{"token": "A", "logprob": -0.1}, {"token": "B", "logprob": -2.5}]
LOGPROBS = ("logprobs", "top_logprobs")
CHAT = {
    "choices": [
        {
            "finish_reason": "stop",
            "message": {"role": "assistant", "content": "A"},
            "logprobs": {"content": [{"token": "A", "bytes": [65], "logprob": -0.1, "top_logprobs": TOP}]},
        }
    ],
    "usage": USAGE,
}
TEXT = {
    "choices": [
        {
            "finish_reason": "stop",
            "text": "A",
            "logprobs": {"tokens": ["A"], "token_logprobs": [-0.1], "top_logprobs": [{"A": -0.1, "B": -2.5}]},
        }
    ],
    "usage": USAGE,
}
LLAMA = {
    "content": "A",
    "stop_type": "limit",
    "completion_probabilities": [{"token": "A", "logprob": -0.1, "top_logprobs": TOP}],
    "timings": {"prompt_n": 5, "cache_n": 4, "predicted_n": 1},
}
PROPS = {"chat_template": "<|x|>", "bos_token": "<s>", "eos_token": "</s>"} | {
    "default_generation_settings": {"n_ctx": 4096}
}
# What a judge of this kind is called, and a valid reply of each route that it asks.
KINDS: dict[str, tuple[str, dict[str, Any], dict[str, Any]]] = {
    "chat": ("{url}/v1#m", {}, {"/v1/chat/completions": CHAT}),
    "samples": ("anthropic@{url}/v1#m", {"samples": 3}, {"/v1/chat/completions": CHAT}),
    "completions": ("{url}/v1#m", {"mode": "completions"}, {"/v1/completions": TEXT}),
    "vllm": (
        "vllm@{url}/v1#m",
        {"mode": "completions"},
        {"/tokenize": {"tokens": [1, 2], "count": 2}, "/detokenize": {"prompt": "?"}, "/v1/completions": TEXT},
    ),
    "llama-server": (
        "llama-server@{url}/v1#m",
        {},
        {"/props": PROPS, "/tokenize": {"tokens": [7]}, "/apply-template": {"prompt": "?"}, "/completion": LLAMA},
    ),
}
ERRORS: list[Any] = [
    {"error": {"message": "no logprobs", "type": "x", "code": "y", "param": "logprobs"}},
    {"error": {"message": "top_logprobs must be at most 5", "code": 400, "param": None}},
    {"error": "slow down", "detail": "x"},
    [{"error": {"message": "API key not valid", "code": 400, "status": "INVALID"}}],
    {"detail": [{"loc": ["body", "seed"], "msg": "Extra inputs", "type": "x"}]},
    {"object": "error", "message": "max_tokens is too large", "code": 400},
]
DEEP = "[" * 990 + "]" * 990
ODD = [
    "",
    "x",
    "\ud83d",
    "\x1b[2J",
    0,
    -1,
    1,
    710,
    1e308,
    -1e308,
    2**31,
    2**53,
    2**63 - 1,
    2**64 - 1,
    2**64,
    10**300,
]
RAW = ["NaN", "Infinity", "-Infinity", "1e999", "1" + "0" * 5000, DEEP, '{"a":' * 500 + "1" + "}" * 500]
odd_value = st.one_of(
    st.sampled_from(ODD),
    st.sampled_from([None, True, False, [], {}, [None], [[]], [{}], {"": None}, 0.5]),
    st.sampled_from(RAW).map(lambda text: {"$raw": text}),
    st.text(max_size=5),
)
RETRY_AFTER = [
    "1e999",
    "-1",
    "nan",
    "soon",
    "Wed, 21 Oct 99999999999 07:28:00 GMT",
    "Mon, 01 Jan 0001 00:00:00 GMT",
]
RETRY_AFTER += ["9" * 5000, "Wed, 21 Oct 2015 07:28:00 +9999999999", "Wed, 21 Oct 2015 99:99:99 GMT", ",", "\x80"]


def places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Every place in a reply, by its path."""
    yield path
    items: Any = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for name, inner in items:
        yield from places(inner, (*path, name))


def changed(reply: Any, path: tuple[Any, ...], value: Any) -> Any:
    """The reply with one place changed; `...` takes it out."""
    if not path:
        return None if value is ... else value
    reply = copy.deepcopy(reply)
    inside = reply
    for name in path[:-1]:
        inside = inside[name]
    if value is ...:
        del inside[path[-1]]
    else:
        inside[path[-1]] = value
    return reply


def written(value: Any) -> str:
    """As JSON; what no JSON writer would write is put in by hand."""
    if isinstance(value, dict) and "$raw" in value:
        return str(value["$raw"])
    if isinstance(value, dict):
        return "{" + ",".join(f"{json.dumps(name)}:{written(inner)}" for name, inner in value.items()) + "}"
    return "[" + ",".join(map(written, value)) + "]" if isinstance(value, list) else json.dumps(value)


@st.composite
def oddities(draw: st.DrawFn, replies: dict[str, Any]) -> tuple[str, str, int, str]:
    """A route, and what it answers instead: the body, the status, the Retry-After."""
    route = draw(st.sampled_from(sorted(replies)))
    failing = draw(st.booleans())
    reply = draw(st.sampled_from(ERRORS)) if failing else replies[route]
    for _ in range(draw(st.integers(1, 2))):
        path = draw(st.sampled_from(list(places(reply))))
        reply = changed(reply, path, draw(st.one_of(st.just(...), odd_value)))
    status = draw(st.sampled_from([400, 422, 429, 500, 503, 200, 299, 418, 599, 999])) if failing else 200
    return route, written(reply), status, draw(st.sampled_from(RETRY_AFTER)) if failing else ""


class Odd:
    """A server whose routes answer as they should, but for one."""

    def __init__(self) -> None:
        self.url = ""
        self.replies: dict[str, Any] = {}
        self.odd: tuple[str, str, int, str] = ("", "", 200, "")
        self.marks = ""

    async def start(self) -> None:
        app = web.Application()
        app.router.add_route("*", "/{path:.*}", self._answer)
        self.runner = web.AppRunner(app, access_log=None)
        await self.runner.setup()
        await web.TCPSite(self.runner, "127.0.0.1", 0).start()
        self.url = f"http://127.0.0.1:{self.runner.addresses[0][1]}"

    async def _answer(self, request: web.Request) -> web.Response:
        sent = await request.read()
        body = json.loads(sent or b"{}") if request.content_type == "application/json" else {}
        route, text, status, later = self.odd
        if request.path == route:
            headers = {"Retry-After": later} if later else {}
            return web.Response(body=text.encode("utf-8", "surrogatepass"), status=status, headers=headers)
        if request.path not in self.replies:
            return web.json_response({}, status=404)
        reply = self.replies[request.path]
        if request.path in ("/apply-template", "/detokenize"):  # the frame has to show what was sent
            shown = "".join(turn["content"] for turn in body.get("messages", ())) or getattr(self, "marks", "")
            reply = {"prompt": f"<{shown}>"}
        elif "content" in body:  # llama.cpp's tokeniser: one control token, and bytes
            text = body["content"]
            reply = {"tokens": [7] if text == "<s>" and body["parse_special"] else [100 + n for n in text.encode()]}
        elif "messages" in body:
            self.marks = "".join(turn["content"] for turn in body["messages"])
        return web.json_response(reply)


@pytest.fixture(scope="module")
def server(loop: LoopThread) -> Iterator[Odd]:
    odd = Odd()
    loop.run(odd.start())
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("ANTHROPIC_API_KEY", "sk-0123456789")
        patch.setenv("OPENAI_API_KEY", "sk-0123456789")
        yield odd
    loop.run(odd.runner.cleanup())


async def asked(engine: Engine, sampling: Sampling | None) -> Answer | EngineError:
    try:
        return await (engine.write(PROMPT, sampling) if sampling else engine.answer(PROMPT))  # type: ignore[attr-defined]
    except EngineError as error:
        return error
    finally:
        await engine.close()


def stored(answer: Answer) -> Answer:
    """Through the columns of a database and back."""
    row = answer_row(1, 0, answer)
    with sqlite3.connect(":memory:") as base:
        kept = base.execute(f"SELECT {','.join('?' * len(row))}", row).fetchone()
    return answer_from(*kept[2:10])


@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=120, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data(), free=st.booleans())
def test_any_reply_is_an_answer_or_an_engine_error(
    kind: str, server: Odd, loop: LoopThread, data: st.DataObject, free: bool
) -> None:
    spec, options, server.replies = KINDS[kind]
    server.odd = data.draw(oddities(server.replies))
    engine = open_engine(spec.format(url=server.url), endpoint=EndpointSettings(timeout=5, **options))
    found = loop.run(asked(engine, Sampling() if free else None))
    if isinstance(found, EngineError):
        assert found.reason
        assert found.message.encode()
        assert found.retry_after is None or 0 <= found.retry_after <= 600
        return
    assert stored(found) == found
    for verdict in read_answer(found, ["overall"], ["x"]):
        assert verdict.p is None or math.isclose(sum(verdict.p.values()), 1.0)
        assert verdict.mass is None or 0 <= verdict.mass <= 1


@pytest.mark.parametrize("kind", KINDS)
def test_the_replies_that_are_changed_are_good_ones(kind: str, server: Odd, loop: LoopThread) -> None:
    spec, options, server.replies = KINDS[kind]
    server.odd = ("", "", 200, "")
    engine = open_engine(spec.format(url=server.url), endpoint=EndpointSettings(timeout=5, **options))
    found = loop.run(asked(engine, None))
    assert isinstance(found, Answer)
    assert read_answer(found, ["overall"])[0].label == "A"


BATCH = {
    "id": "b1",
    "status": "completed",
    "request_counts": {"total": 1, "completed": 1, "failed": 0},
    "output_file_id": "f1",
    "error_file_id": "f1",
    "metadata": {"evenhand": "token"},
    "input_file_id": "file-1",
    "created_at": 5,
}
FAILED = BATCH | {"status": "failed", "errors": {"data": [{"message": "m", "code": "c"}]}}
REFUSAL = {"error": {"message": "temperature", "param": "temperature", "code": "x"}}
MESSAGE = {
    "content": [{"type": "text", "text": "A"}],
    "stop_reason": "end_turn",
    "usage": {"input_tokens": 1, "output_tokens": 1},
}
ERRORED = {"type": "errored", "error": {"error": {"type": "invalid_request_error", "message": "temperature"}}}
MESSAGES = {"id": "b1", "processing_status": "ended", "results_url": "x", "request_counts": {"succeeded": 1}}
# What each route of a batch service may answer; the first is what it answers where another is changed.
SERVICES: dict[str, dict[str, list[Any]]] = {
    "openai": {
        "/v1/batches/b1": [BATCH, FAILED],
        "/v1/batches": [{"data": [BATCH, BATCH], "has_more": False}],
        "/v1/files": [{"id": "file-1"}],
        "/v1/files/file-1": [{"id": "file-1"}],
        "/v1/files/f1/content": [
            {"custom_id": "x", "response": {"status_code": 200, "body": CHAT}, "error": None},
            {"custom_id": "x", "response": {"status_code": 400, "body": REFUSAL}, "error": None},
            {"custom_id": "x", "response": None, "error": {"code": "c", "message": "m"}},
        ],
    },
    "anthropic": {
        "/v1/messages/batches/b1": [MESSAGES],
        "/v1/messages/batches": [{"data": [MESSAGES], "has_more": False}],
        "/v1/messages/batches/b1/results": [
            {"custom_id": "x", "result": {"type": "succeeded", "message": MESSAGE}},
            {"custom_id": "x", "result": ERRORED},
        ],
        "/v1/messages": [MESSAGE],
    },
}


async def used(service: BatchService, folder: Path) -> list[Any]:
    """What comes of everything that is done with a service, one after the other."""
    file = folder / "requests.jsonl"
    file.write_text("{}\n")

    async def replies() -> list[Any]:
        return [reply async for reply in service.replies(await service.status("b1"), folder)]

    steps: list[Any] = [
        service.newest(),
        service.upload(file),
        service.submit(file, "file-1", "token"),
        service.find("token", "file-1", 1, "b9", set()),
        service.find("another", "file-1", 1, "", {"b1"}),
        service.status("b1"),
        replies(),
        service.cancel("b1"),
        service.engine.answer(PROMPT),
    ]
    found = []
    for step in steps:
        try:
            found.append(await step)
        except EngineError as error:
            found.append(error)
    await service.close()
    await service.engine.close()
    return found


@pytest.mark.parametrize("name", SERVICES)
@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_any_reply_of_a_batch_service_can_be_used_or_is_an_engine_error(
    name: str, server: Odd, loop: LoopThread, data: st.DataObject, tmp_path: Path
) -> None:
    routes = SERVICES[name]
    server.replies = {route: replies[0] for route, replies in routes.items()}
    route = data.draw(st.sampled_from(sorted(routes)))
    server.odd = data.draw(oddities({route: data.draw(st.sampled_from(routes[route]))}))
    service = open_batches(open_engine(f"{name}@{server.url}/v1#m"))
    for found in loop.run(used(service, tmp_path)):
        str(found).encode()  # which no database takes otherwise


def test_a_page_in_the_place_of_results_is_fetched_again(server: Odd, loop: LoopThread, tmp_path: Path) -> None:
    """What cannot be read is no sign that nothing came back: the answers are paid for, and would be asked twice."""
    server.replies = {route: replies[0] for route, replies in SERVICES["openai"].items()}
    server.odd = ("/v1/files/f1/content", "<html>One moment, please.</html>", 200, "")

    async def replies() -> None:
        service = open_batches(open_engine(f"openai@{server.url}/v1#m"))
        try:
            async for _ in service.replies(await service.status("b1"), tmp_path):
                pass
        finally:
            await service.close()

    with pytest.raises(EngineError, match="holds none") as caught:
        loop.run(replies())
    assert (caught.value.reason, caught.value.retryable) == ("bad_response", True)


@given(st.text(max_size=40))
@example("Mon, 01 Jan 0001 00:00:00 GMT")
@example("Wed, 21 Oct 2015 07:28:00 +9999999999")
def test_any_retry_after(value: str) -> None:
    for header in (value, *RETRY_AFTER):
        seconds = _retry_after({"retry-after": header})
        assert seconds is None or 0 <= seconds <= 600


json_value = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=10)),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.dictionaries(st.sampled_from(["error", "detail", "message", "code", "param", "loc", "msg"]), inner),
    ),
    max_leaves=20,
)


@settings(deadline=None)
@given(json_value)
@example({"detail": [{"loc": None, "msg": None}]})
@example({"detail": [None]})
@example({"error": {"message": None, "code": None, "param": None}})
def test_any_error_body_says_something_short(body: Any) -> None:
    said = ServerReply.of(body)
    assert max(map(len, (said.message, said.code, said.param))) <= 300


def test_an_error_body_of_brackets_within_brackets_says_something_short() -> None:
    body: dict[str, Any] = {}
    for _ in range(100_000):
        body = {"a": body}
    assert len(ServerReply.of({"error": body}).message) <= 300


@pytest.mark.parametrize(
    "choice",
    [
        {},
        {"text": 7},
        {"message": "A"},
        {"message": {"content": 7}},
        {"message": {"content": ["A"]}},
        {"message": {"content": [{"type": "text", "text": 7}]}},
    ],
)
def test_something_else_in_the_place_of_an_answer_is_none(choice: dict[str, Any]) -> None:
    with pytest.raises(EngineError) as caught:
        read_choices({"choices": [choice]})
    assert (caught.value.reason, caught.value.retryable) == ("bad_response", True)


@pytest.mark.parametrize("number", [-1, 2**31, True, 1.0, "1", None])
def test_what_no_token_can_be_called_is_no_token(number: object) -> None:
    with pytest.raises(TypeError):
        token_ids([1, number])


@pytest.mark.parametrize("number", [1e31, 1e200, 1e308, math.inf, math.nan])
def test_a_state_that_no_model_has_is_a_bad_response(number: float) -> None:
    with pytest.raises(EngineError) as caught:
        state_vector([1.0, number, 1.0, -number], "x", "")
    assert caught.value.reason == "bad_response"


@pytest.mark.parametrize("logprob", [1e-9, 709.0, 710.0, 1e308, math.inf, math.nan])
def test_a_log_probability_that_cannot_be_is_held_to_what_can(logprob: float) -> None:
    token = Token("A", (("A", logprob), ("B", -3.0)))
    [verdict] = read_answer(Answer("A", (token,)), ["overall"])
    assert verdict.label in ("A", "B")
    assert verdict.p is None or math.isclose(sum(verdict.p.values()), 1.0)
    assert verdict.mass is not None
    assert 0 <= verdict.mass <= 1


@pytest.mark.parametrize(
    ("body", "status"),
    [
        (CHAT | {"usage": {"prompt_tokens": 2**63, "completion_tokens": 2**64}}, 200),
        (changed(CHAT, ("choices", 0, "logprobs", "content", 0, "top_logprobs", 0, "logprob"), 710), 200),
        ({"detail": [{"loc": None, "msg": None}]}, 400),
        (changed(CHAT, ("choices", 0, "message", "content"), 7), 200),
    ],
    ids=["usage", "logprob", "detail", "content"],
)
def test_one_odd_reply_costs_its_own_pair_at_most(body: Any, status: int, loop: LoopThread, tmp_path: Path) -> None:
    """One pair of twelve gets it, however often it is asked; the others' answers are kept."""

    async def behave(request: web.Request, sent: Body) -> web.Response:
        odd = "Task 7\\n" in json.dumps(sent)
        return web.json_response(body if odd else CHAT, status=status if odd else 200)

    server = Server(behave)
    loop.run(server.__aenter__())
    pairs = [Pair(f"Task {n}", f"x{n}", f"y{n}") for n in range(12)]
    try:
        with Judge(f"{server.url}#m", protocol="overall", db=tmp_path / "x.db", limits=Limits(retries=0)) as judge:
            judged = {judgment.pair.instruction: judgment["overall"] for judgment in judge.judge(pairs)}
    finally:
        loop.run(server.__aexit__())
    reasons = {task: outcome.invalid for task, outcome in judged.items()}
    assert {task for task, reason in reasons.items() if reason} <= {"Task 7"}
    assert reasons["Task 7"] in (None, "bad_response", "bad_request")
    assert len(reasons) == len(pairs)


@pytest.mark.parametrize(
    ("status", "said"),
    [
        (403, "<html>Sorry, you have been blocked</html>"),
        (400, '{"error": {"message": "cannot read: my api key is lost"}}'),
        (404, "<html>"),
        (302, ""),
        (400, '{"error": {"message": "cannot read: this model does not exist"}}'),
    ],
)
def test_a_refusal_of_one_prompt_among_answers_is_its_own(status: int, said: str, loop: LoopThread) -> None:
    """A firewall before a server refuses a text for what stands in it: the key is good, and the address right."""

    async def behave(request: web.Request, sent: Body) -> web.Response:
        odd = "Task 7\\n" in json.dumps(sent)
        return web.Response(text=said, status=status) if odd else web.json_response(CHAT)

    server = Server(behave)
    loop.run(server.__aenter__())
    pairs = [Pair(f"Task {n}", f"x{n}", f"y{n}") for n in range(12)]
    try:
        limits = Limits(retries=0, concurrency=1)
        with Judge(f"{server.url}#m", protocol="overall", limits=limits) as judge:
            judged = {judgment.pair.instruction: judgment["overall"].invalid for judgment in judge.judge(pairs)}
    finally:
        loop.run(server.__aexit__())
    assert {task for task, reason in judged.items() if reason} == {"Task 7"}
    assert len(judged) == 12


@pytest.mark.parametrize("first", [0, 1])
@pytest.mark.parametrize("status", [301, 403, 404])
def test_a_refusal_of_one_of_the_first_prompts_is_its_own(status: int, first: int, loop: LoopThread) -> None:
    """Nothing has been answered yet, so that only another prompt can tell."""

    async def behave(request: web.Request, sent: Body) -> web.Response:
        odd = f"Task {first}\\n" in json.dumps(sent)
        return web.Response(text="blocked", status=status) if odd else web.json_response(CHAT)

    server, limits = Server(behave), Limits(retries=0, concurrency=1 + first)
    loop.run(server.__aenter__())
    pairs = [Pair(f"Task {n}", f"x{n}", f"y{n}") for n in range(6)]
    try:
        with Judge(f"{server.url}#m", protocol="overall", limits=limits) as judge:
            judged = {judgment.pair.instruction: judgment["overall"].invalid for judgment in judge.judge(pairs)}
    finally:
        loop.run(server.__aexit__())
    assert {task for task, reason in judged.items() if reason} == {f"Task {first}"}
    assert len(judged) == 6


@pytest.mark.parametrize("status", [301, 401, 403, 404])
def test_what_refuses_every_prompt_ends_the_run_at_once(status: int, loop: LoopThread) -> None:
    async def behave(request: web.Request, sent: Body) -> web.Response:
        return web.Response(text="no", status=status)

    server = Server(behave)
    loop.run(server.__aenter__())
    try:
        with (
            Judge(f"{server.url}#m", protocol="overall") as judge,
            pytest.raises(EngineError, match=r"the key|address|has moved") as caught,
        ):
            list(judge.judge([Pair(f"Task {n}", f"x{n}", f"y{n}") for n in range(40)]))
    finally:
        loop.run(server.__aexit__())
    assert caught.value.fatal
    assert len(server.bodies) <= 5  # four at once, and one to see whether it was the prompt


def test_json_may_begin_with_a_byte_order_mark(loop: LoopThread) -> None:
    async def behave(request: web.Request, sent: Body) -> web.Response:
        return web.Response(body=b"\xef\xbb\xbf" + json.dumps(CHAT).encode(), content_type="application/json")

    server = Server(behave)
    loop.run(server.__aenter__())
    try:
        with Judge(f"{server.url}#m", protocol="overall", limits=Limits(retries=0)) as judge:
            assert judge.compare("Task", "x", "y")["overall"].invalid is None
    finally:
        loop.run(server.__aexit__())


def test_a_refusal_of_one_prompt_ends_no_later_run(loop: LoopThread, tmp_path: Path) -> None:
    """It is tried again first, before anything else has been answered; what is new comes behind it."""

    async def behave(request: web.Request, sent: Body) -> web.Response:
        odd = "Task 2\\n" in json.dumps(sent)
        return web.Response(text="blocked", status=403) if odd else web.json_response(CHAT)

    server, limits = Server(behave), Limits(retries=0, concurrency=1)
    loop.run(server.__aenter__())
    judged = []
    try:
        for n in (4, 6):
            with Judge(f"{server.url}#m", protocol="overall", db=tmp_path / "x.db", limits=limits) as judge:
                pairs = [Pair(f"Task {n}", f"x{n}", f"y{n}") for n in range(n)]
                found = {judgment.pair.instruction: judgment["overall"].invalid for judgment in judge.judge(pairs)}
                judged.append([task for task, reason in sorted(found.items()) if reason is None])
    finally:
        loop.run(server.__aexit__())
    assert judged == [[f"Task {n}" for n in numbers] for numbers in ([0, 1, 3], [0, 1, 3, 4, 5])]


@pytest.mark.parametrize("extra", [{}, {"top_k": 1}])
def test_a_refusal_that_quotes_its_prompt_changes_nothing_for_others(
    extra: dict[str, Any], loop: LoopThread
) -> None:
    """What is left out for one prompt, and does not help it, is asked for with all others."""
    said = {"error": {"message": "invalid: 'What are the temperature, the logprobs, top_k and max_tokens?'"}}

    async def behave(request: web.Request, sent: Body) -> web.Response:
        odd = "Task 3\\n" in json.dumps(sent)
        return web.json_response(said if odd else CHAT, status=400 if odd else 200)

    async def run() -> tuple[list[str], list[str], set[frozenset[str]]]:
        async with Server(behave) as server:
            engine = EndpointEngine(EndpointSettings(server.url, "m", extra=extra), on_notice=notices.append)
            faults = []
            for n in range(6):
                try:
                    await engine.answer(Protocol.load("overall").prompt(Pair(f"Task {n}", "x", "y"), "forward"))
                except EngineError as error:
                    faults.append(f"{n} {error.reason} {error.fatal}")
            await engine.close()
            asked = {frozenset(body) for body in server.bodies if "Task 3\\n" not in json.dumps(body)}
            return faults, notices, asked

    notices: list[str] = []
    faults, _, asked = loop.run(run())
    assert (faults, notices) == (["3 bad_request False"], [])
    assert asked == {
        frozenset({"model", "messages", "max_tokens", "temperature", "logprobs", "top_logprobs", *extra})
    }


def test_refusals_one_after_the_other_stop_a_run_that_was_answered_before(loop: LoopThread) -> None:
    """A key that is taken back in the middle is not told pair by pair."""
    asked = 0

    async def behave(request: web.Request, sent: Body) -> web.Response:
        nonlocal asked
        asked += 1
        return web.json_response(CHAT) if asked <= 8 else web.Response(text="{}", status=403)

    server = Server(behave)
    loop.run(server.__aenter__())
    pairs = [Pair(f"Task {n}", f"x{n}", f"y{n}") for n in range(40)]
    limits = Limits(retries=0, concurrency=1)
    try:
        with (
            Judge(f"{server.url}#m", protocol="overall", limits=limits) as judge,
            pytest.raises(EngineError, match="does not accept the key"),
        ):
            list(judge.judge(pairs))
    finally:
        loop.run(server.__aexit__())
    assert 8 < asked < 20


@given(
    st.lists(st.sampled_from([r"\ud83d", r"\uDE00", r"\\", r"\n", r"\"", r"\u0041", "u", "d83d", "x"]), max_size=12)
)
def test_half_a_character_is_a_question_mark_and_all_else_is_as_json_reads_it(parts: list[str]) -> None:
    text = json.dumps("x")[:-1] + "".join(parts) + '"'
    assert load(text.encode()) == json.loads(text).encode("utf-8", "replace").decode()
