"""A judge behind an OpenAI-compatible API, on the network or on this machine.

    EndpointSettings   where it is, and all that decides its answers
    EndpointEngine     asks it, once for each prompt; the runner asks again where that may help
    open_endpoint      an address -> the engine for it

What a server refuses (log-probabilities, a parameter) is learnt from its first refusal, said once, and not
sent again; the refused request goes out again at once without it.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import reduce
from typing import Any, Literal, NamedTuple, get_args
from urllib.parse import urlsplit

import orjson

from evenhand.core.engine import BROKEN, Answer, Engine, Sampling, Usage
from evenhand.core.errors import EngineError, SpecError
from evenhand.core.markup import CHATML, DIALECTS, LLAMA3, Dialect, Span, Turn, break_up_spans, merge, render
from evenhand.core.protocol import Prompt
from evenhand.engines.completion import Choice, read_choices, read_usage
from evenhand.engines.figures import sound
from evenhand.engines.http import JsonClient, Reply, ServerReply, dump
from evenhand.engines.llama_server import LlamaServerEngine
from evenhand.engines.presets import ANY, PRESETS, Address, Preset, refuse_lone_bytes
from evenhand.engines.vllm import VllmTokeniser

Mode = Literal["auto", "chat", "completions"]
Notice = Callable[[str], None]

# Room for some thinking. A model that answers with the label alone never comes near it.
CHAT_TOKENS = 2048
COMPLETION_TOKENS = 16
_CUT = "\n[cut off by the token limit]"
_OWN_FIELDS = ("model", "messages", "prompt", "stream", "n")
_LEARNT = ("logprobs", "top_logprobs", "max_tokens", "max_completion_tokens")  # fields that lessons may take away
_LIMITS = ("max_tokens", "max_completion_tokens")
_REFUSALS = (400, 403, 404, 422)
_MOST_LESSONS = 8
_HARMLESS = "Answer with the letter A."  # nothing that anybody would refuse for what stands in it
_PROBE: Mapping[str, Any] = {"messages": [{"role": "user", "content": _HARMLESS}], "prompt": _HARMLESS}


@dataclass(frozen=True, slots=True)
class EndpointSettings:
    """Where a judge is and how it is asked.

    `extra` holds further fields of the request's body; one that is None is left out even where it has a
    default here. `timeout`, `concurrency` and the key do not decide an answer and are no part of its identity.

    >>> EndpointSettings("http://127.0.0.1:8000/v1", "m", samples=0)
    Traceback (most recent call last):
    evenhand.core.errors.SpecError: samples must be at least 1
    """

    base_url: str = ""
    model: str = ""
    key_env: str = ""  # the variable that holds the key; empty: the preset's
    mode: Mode = "auto"  # chat, unless the server has a better way
    samples: int = 1  # answers to share out where there are no log-probabilities
    temperature: float = 0.0
    max_tokens: int | None = None  # of the answer with its thinking
    effort: str = ""  # of the thinking, where the model takes a word for it
    seed: int | None = None
    dialect: str = ""  # of the rendered template where only a string can be sent; empty: by the model's name
    timeout: float = 300.0  # seconds for one answer
    concurrency: int | None = None  # requests at once; None: as many as the preset says
    extra: Mapping[str, Any] = field(default_factory=dict)
    preset: Preset = ANY

    def __post_init__(self) -> None:
        for name in ("samples", "at_once"):
            if getattr(self, name) < 1:
                raise SpecError(f"{name.replace('at_once', 'concurrency')} must be at least 1")
        if self.max_tokens is not None and self.max_tokens < 1:
            raise SpecError("max_tokens must be at least 1")
        if self.timeout <= 0:
            raise SpecError("timeout must be more than 0 seconds")
        if "@" in urlsplit(self.base_url).netloc:  # identities are stored and shown
            raise SpecError("a URL with a name or a password is not taken", hint="keys come from the environment")
        if self.mode not in get_args(Mode):
            raise SpecError(f"there is no mode {self.mode!r}", hint=", ".join(get_args(Mode)))
        if self.dialect not in ("", *(dialect.name for dialect in DIALECTS)):
            raise SpecError(f"there is no dialect {self.dialect!r}", hint=", ".join(d.name for d in DIALECTS))
        for value in (self.base_url, self.model, self.effort, json.dumps(dict(self.extra), ensure_ascii=False)):
            refuse_lone_bytes(value)
        if taken := [name for name in _OWN_FIELDS if name in self.extra]:
            raise SpecError(f"extra cannot set {taken[0]!r}: evenhand does")

    @property
    def at_once(self) -> int:
        """How many requests there may be at once."""
        return self.preset.at_once if self.concurrency is None else self.concurrency

    @property
    def identity(self) -> dict[str, str]:
        """What decides the answers, and nothing else."""
        found = {
            "base_url": self.base_url,
            "model": self.model,
            "mode": "completions" if self.mode == "completions" else "chat",
            "samples": str(self.samples),
            "temperature": f"{self.temperature:g}",
            "max_tokens": str(self.max_tokens or "default"),
            "effort": self.effort,
            "seed": "" if self.seed is None else str(self.seed),
            "extra": json.dumps(dict(self.extra), sort_keys=True) if self.extra else "",
        }
        if self.mode == "completions":
            found["template"] = "the model's own" if self.preset.tokenises else self.written_in.name
        return {name: value for name, value in found.items() if value}

    @property
    def written_in(self) -> Dialect:
        """The dialect of a template that goes out as a string."""
        named = {dialect.name: dialect for dialect in DIALECTS}
        guess = LLAMA3 if re.search(r"llama-?3", self.model, re.IGNORECASE) else CHATML
        return named.get(self.dialect, guess)

    @property
    def key_variable(self) -> str:
        """The environment variable that holds the key, if any does."""
        return self.key_env or self.preset.key_env

    def key(self) -> str:
        """The key, from the environment; empty where none is needed and none is set."""
        key = os.environ.get(self.key_variable, "").strip() if self.key_variable else ""
        if not key and (self.key_env or self.preset.key_needed):
            raise EngineError(
                f"the environment variable {self.key_variable} is not set, and {self.preset.name} wants a key",
                reason="wrong_key",
                fatal=True,
                hint=f"export {self.key_variable}=…",
            )
        return key


class _Shown(NamedTuple):
    """A prompt as the body's field that carries it."""

    field: str
    value: Any
    verdicts: int
    notes: tuple[str, ...] = ()
    room: int = 0  # for an answer that is more than labels


@dataclass(frozen=True, slots=True)
class _Lessons:
    """What a server has taught: each lesson takes something away, so that several can be brought together."""

    log_probabilities: bool = True
    top: int = 20  # how many log-probabilities it gives
    many: bool = True  # whether it gives several answers to one request
    refused: frozenset[str] = frozenset()  # fields that it does not take

    def also(self, other: _Lessons) -> _Lessons:
        """What both of them say."""
        return _Lessons(
            self.log_probabilities and other.log_probabilities,
            min(self.top, other.top),
            self.many and other.many,
            self.refused | other.refused,
        )


_NOTHING = _Lessons(top=2**31)
_NOT_MANY = replace(_NOTHING, many=False)
_HARD = replace(_NOTHING, log_probabilities=False)


class EndpointEngine(Engine):
    """Asks an OpenAI-compatible server.

    >>> engine = EndpointEngine(EndpointSettings("http://127.0.0.1:8000/v1", "m"))
    >>> engine.identity["model"], engine.log_probabilities, engine.concurrency
    ('m', True, 64)
    """

    def __init__(self, settings: EndpointSettings, *, on_notice: Notice | None = None) -> None:
        self.settings = settings
        self.concurrency = settings.at_once
        self._notice = on_notice or (lambda _: None)
        self._is_chat = settings.mode != "completions"
        if not self._is_chat and not settings.preset.completions:
            raise SpecError(f"{settings.preset.name} has no completions", hint="leave the mode at chat")
        self._answered = False  # whether an earlier run got answers
        self._proven = False  # whether log-probabilities ever came
        self._learnt = _Lessons(
            settings.preset.logprobs != "none",
            settings.preset.top if self._is_chat else settings.preset.top_completions,
            settings.preset.many,
        )
        self._noticed: set[str] = set()
        self._probing, self._probed = asyncio.Lock(), False
        self._tokenises = settings.preset.tokenises == "vllm" and not self._is_chat
        self._client: JsonClient | None = None
        self._writer: JsonClient | None = None
        self._tokeniser: VllmTokeniser | None = None
        self._root: JsonClient | None = None

    @property
    def log_probabilities(self) -> bool:
        """Whether the server gives them, as far as is known."""
        return self._learnt.log_probabilities

    @property
    def identity(self) -> Mapping[str, str]:
        """Where the judge is, and the settings that decide its answers; never a key."""
        return {"engine": "openai", **self.settings.identity}

    async def answer(self, prompt: Prompt) -> Answer:
        """Ask once; only a request that was refused for a parameter goes out again, without it."""
        shown = await self._show(prompt)
        if self.settings.samples == 1 or self.log_probabilities:
            choices, usage = await self._ask(shown)
            choice = choices[0]
            if self.settings.samples == 1 or self.log_probabilities:
                return Answer(choice.text, choice.tokens, usage, choice.finish, notes=shown.notes)
            return await self._sampled(shown, usage)
        return await self._sampled(shown, Usage())

    async def write(self, prompt: Prompt, sampling: Sampling) -> Answer:
        """Let the model write; thinking is left out of what it wrote."""
        shown = await self._show(prompt)
        (choice, *_), usage = await self._ask(shown, sampling=sampling)
        return Answer(choice.text, usage=usage, finish=choice.finish, notes=shown.notes)

    async def close(self) -> None:
        """Close the connections."""
        for client in (self._client, self._writer, self._root):
            if client is not None:
                await client.close()

    def note_answered(self) -> None:
        """An earlier run got answers: what is refused now may be one prompt."""
        self._answered = True
        if self._client is not None:
            self._client.answered = True

    # --- for those who send the requests themselves -----------------------------------------------------------

    def request(self, prompt: Prompt) -> tuple[dict[str, Any], tuple[str, ...]]:
        """The body of a chat request, and what was done to the prompt on its way into it."""
        shown = _messages(prompt)
        return {**self._fields(shown, None, 1), shown.field: shown.value}, shown.notes

    def read_reply(self, reply: Reply, fault: Callable[[Reply], EngineError]) -> Answer:
        """The answer in a reply, or why it is none; a refused parameter is learnt, and its error may be retried."""
        if reply.status == 200:
            with sound():
                choice, usage = read_choices(reply.data)[0], read_usage(reply.data)
            return Answer(choice.text, choice.tokens, usage, choice.finish)
        error = fault(reply)
        fields = self._fields(_Shown("messages", [], 1), None, 1)
        refused = refused_field(reply, {**dict.fromkeys((*self._learnt.refused, *_LEARNT)), **fields})
        if refused is not None:
            if refused in fields:  # else another request has taught it already
                self._apply_lesson(*self._lesson(refused, fields, error, ServerReply.of(reply.data).message))
            error.retryable = True
        raise error

    @property
    def lessons(self) -> dict[str, Any]:
        """What the server has taught so far, to be remembered by another process."""
        return {
            "log_probabilities": self._learnt.log_probabilities,
            "top": self._learnt.top,
            "refused": sorted(self._learnt.refused),
        }

    def remember(self, lessons: Mapping[str, Any]) -> None:
        """Know what the server has taught another process.

        >>> engine = EndpointEngine(EndpointSettings("http://127.0.0.1:8000/v1", "m"))
        >>> engine.remember({"refused": ["temperature"]})
        >>> engine.lessons["refused"], engine.lessons["log_probabilities"]
        (['temperature'], True)
        """
        known = self._learnt
        self._learnt = known.also(
            _Lessons(
                lessons.get("log_probabilities", known.log_probabilities),
                lessons.get("top", known.top),
                known.many,
                frozenset(lessons.get("refused", ())),
            )
        )

    # --- the prompt -----------------------------------------------------------------------------------------

    async def _show(self, prompt: Prompt) -> _Shown:
        if self._is_chat:
            return _messages(prompt)
        if self._tokenises:
            try:
                return _Shown("prompt", await self._tokens(prompt), prompt.verdicts, room=prompt.room)
            except EngineError as fault:
                if fault.reason != "no_such_route":
                    raise
                self._tokenises = False
                self._notice("the server has no /tokenize: control tokens in the pairs are broken up instead")
        spans = render(prompt.turns, self.settings.written_in) if prompt.raw is None else merge(prompt.raw)
        text, notes = string_of(spans)
        return _Shown("prompt", text, prompt.verdicts, notes, prompt.room)

    async def _tokens(self, prompt: Prompt) -> list[int]:
        if self._tokeniser is None:
            # Ids are remembered for later prompts: none may be the answer to another text.
            self._root = self._connect(_root(self.settings.base_url), once_only=True)
            self._tokeniser = VllmTokeniser(self._root, self.settings.model)
        return await self._tokeniser.tokens(prompt)

    # --- asking ---------------------------------------------------------------------------------------------

    async def _ask(
        self, shown: _Shown, sample: int | None = None, n: int = 1, sampling: Sampling | None = None
    ) -> tuple[list[Choice], Usage]:
        """One request, and again after each refusal that teaches something.

        What was learnt counts for other prompts once it has helped: a refusal that quotes its prompt may name
        fields of a request as well.
        """
        client = self._connected() if sampling is None else self._connected_to_write()
        path = "/chat/completions" if self._is_chat else "/completions"
        new: list[tuple[_Lessons, str]] = []
        for _ in range(_MOST_LESSONS):
            lessons = reduce(_Lessons.also, (lesson for lesson, _ in new), self._learnt)
            fields = self._free_fields(sampling, lessons) if sampling else self._fields(shown, sample, n, lessons)
            reply = _unwrapped(await client.post(path, {**fields, shown.field: shown.value}))
            if reply.status == 200:
                with sound(client.who):
                    choices, usage = read_choices(reply.data), read_usage(reply.data)
                for lesson, said in new:
                    self._apply_lesson(lesson, said)
                self._notice_no_probabilities(fields, choices)
                return choices, usage
            refused = refused_field(reply, fields)
            if refused is None or (client.answered and self._was_asked_for(refused)):
                break
            new.append(self._lesson(refused, fields, client.fault(reply), ServerReply.of(reply.data).message))
        await self._probe(client, path, {**fields, shown.field: _PROBE[shown.field]}, reply)
        raise client.fault(reply)

    async def _probe(self, client: JsonClient, path: str, body: Mapping[str, Any], refusal: Reply) -> None:
        """Where the first thing that a server says is a refusal, see whether it answers another prompt.

        If it does, the address and the key are good, and the client takes refusals for those of single prompts.
        """
        if not client.may_be_of_one(refusal):
            return
        async with self._probing:
            if not self._probed and not client.answered:
                self._probed = True
                with suppress(EngineError):
                    await client.post(path, body)

    async def _sampled(self, shown: _Shown, usage: Usage) -> Answer:
        """As many answers as were asked for, in one request where the server does that."""
        wanted = self.settings.samples
        choices: list[Choice] = []
        if self._learnt.many:
            choices, took = await self._ask_many(shown, wanted)
            usage += took
        rest = range(len(choices), wanted)
        for more, took in await _all([self._ask(shown, sample=number) for number in rest]):
            choices += more[:1]
            usage += took
        texts = tuple(c.text + _CUT if c.finish == "length" else c.text for c in choices[:wanted])
        return Answer(texts[0], usage=usage, samples=texts, notes=shown.notes)

    async def _ask_many(self, shown: _Shown, n: int) -> tuple[list[Choice], Usage]:
        choices, usage = await self._ask(shown, sample=0, n=n)
        if len(choices) < n:
            self._apply_lesson(_NOT_MANY)  # it took the number and did not mind it
        return choices, usage

    def _fields(self, shown: _Shown, sample: int | None, n: int, lessons: _Lessons | None = None) -> dict[str, Any]:
        """The body but for the prompt: the settings, as far as the server takes them."""
        settings, lessons = self.settings, lessons or self._learnt
        fields: dict[str, Any] = {"model": settings.model}
        default = max(CHAT_TOKENS if self._is_chat else COMPLETION_TOKENS * shown.verdicts, shown.room)
        fields[self._limit_field(lessons)] = settings.max_tokens or default
        if not self._is_chat and not shown.room:
            fields["stop"] = ["\n"]  # a model without turns would go on with a conversation of its own
        fields["temperature"] = settings.temperature if sample is None else settings.temperature or 1.0
        if settings.seed is not None:
            fields["seed"] = settings.seed + (sample or 0)
        if settings.effort:
            fields["reasoning_effort"] = settings.effort
        if sample is None and lessons.log_probabilities:
            fields |= self._log_probability_fields(lessons.top)
        if n > 1 and lessons.many:
            fields["n"] = n
        if lessons.refused:
            fields = {name: value for name, value in fields.items() if name not in lessons.refused}
        return _with(fields, settings.extra) if settings.extra else fields

    def _free_fields(self, sampling: Sampling, lessons: _Lessons) -> dict[str, Any]:
        """The body but for the prompt, where free text is wanted."""
        settings = self.settings
        fields: dict[str, Any] = {
            "model": settings.model,
            self._limit_field(lessons): sampling.max_tokens,
            "temperature": sampling.temperature,
            "top_p": sampling.top_p,
            "seed": sampling.seed,
        }
        if settings.effort:
            fields["reasoning_effort"] = settings.effort
        fields = {name: value for name, value in fields.items() if name not in lessons.refused}
        return _with(fields, settings.extra) if settings.extra else fields

    def _log_probability_fields(self, top: int) -> dict[str, Any]:
        if self._is_chat and self.settings.preset.logprobs == "ask":
            return {"logprobs": True, "top_logprobs": top}
        return {"logprobs": top}

    def _limit_field(self, lessons: _Lessons) -> str:
        """What the limit of an answer is called: the other name where the usual one is refused."""
        usual = self.settings.preset.limit_field if self._is_chat else "max_tokens"
        return next((name for name in (usual, *_LIMITS) if name not in lessons.refused), usual)

    # --- learning -------------------------------------------------------------------------------------------

    def _notice_no_probabilities(self, fields: Mapping[str, Any], choices: list[Choice]) -> None:
        """Notice a server that takes the parameter and gives no log-probabilities."""
        if "logprobs" not in fields or not self.log_probabilities:
            return
        if any(token.top for token in choices[0].tokens):
            self._proven = True
        elif not self._proven and choices[0].text and choices[0].finish == "stop":
            self._apply_lesson(_HARD, self._without_probabilities("gives no log-probabilities"))

    def _lesson(self, name: str, fields: Mapping[str, Any], fault: EngineError, said: str) -> tuple[_Lessons, str]:
        """What the refusal of a field teaches, and what to say of it."""
        if self._was_asked_for(name):
            raise EngineError(
                fault.message, reason="refused_parameter", fatal=True, hint=f"leave {name} out, or change it"
            )
        if name in ("logprobs", "top_logprobs"):
            return self._lesson_on_log_probabilities(fields, said)
        if name == "n":
            return _NOT_MANY, ""
        refused = replace(_NOTHING, refused=frozenset([name]))
        if name in _LIMITS:
            return refused, ""
        return refused, f"the server refuses {name}, which is left out from now on: {said}"

    def _was_asked_for(self, name: str) -> bool:
        """Whether a field was asked for outright, so that it is not left out."""
        return name in self.settings.extra or name == "reasoning_effort"

    def _lesson_on_log_probabilities(self, fields: Mapping[str, Any], said: str) -> tuple[_Lessons, str]:
        """Ask for fewer where the refusal names a smaller number, else for none."""
        sent = max(int(fields.get("top_logprobs", 0)), int(fields.get("logprobs", 0)))
        numbers = [int(digits) for digits in re.findall(r"(?<![\w.-])\d{1,4}(?![\w-]|\.\d)", said)]
        fewer = [number for number in numbers if 2 < number < sent]
        if fewer and re.search(r"max|between|most|less|greater|exceed|up to|<", said, re.IGNORECASE):
            return replace(_NOTHING, top=max(fewer)), ""
        return _HARD, self._without_probabilities(f"refuses log-probabilities ({said})")

    def _apply_lesson(self, lesson: _Lessons, notice: str = "") -> None:
        """Ask all prompts in this way from now on; several requests may have learnt the same at once."""
        learnt = self._learnt.also(lesson)
        if learnt != self._learnt:
            self._learnt = learnt
            if notice:
                self._notice(notice)

    def _without_probabilities(self, why: str) -> str:
        shares = self.settings.samples > 1
        then = f"shares of {self.settings.samples} samples" if shares else "hard, without probabilities"
        return f"the server {why}: verdicts are {then}"

    def _notice_once(self, text: str) -> None:
        if text not in self._noticed:
            self._noticed.add(text)
            self._notice(text)

    def _connected(self) -> JsonClient:
        self._client = self._client or self._connect(self.settings.base_url)
        return self._client

    def _connected_to_write(self) -> JsonClient:
        """Outputs are kept as they come, and nothing in one shows whose it is: none may be that of another."""
        self._writer = self._writer or self._connect(self.settings.base_url, once_only=True)
        return self._writer

    def _connect(self, url: str, *, once_only: bool = False) -> JsonClient:
        settings = self.settings
        return JsonClient(
            url,
            key=settings.key(),
            key_env=settings.key_variable,
            timeout=settings.timeout,
            limit=settings.at_once * settings.samples,
            who=settings.preset.name if settings.preset is not ANY else "the endpoint",
            once_only=once_only,
            answered=self._answered,
            on_notice=self._notice_once,
        )


def open_endpoint(
    address: Address, settings: EndpointSettings | None = None, *, on_notice: Notice | None = None
) -> Engine:
    """The engine for an address; `settings` say how to ask, and get their place from the address.

    >>> from evenhand.engines.presets import find_address
    >>> open_endpoint(find_address("llama-server:smollm2")).identity["engine"]
    'llama-server'
    """
    settings = replace(
        settings or EndpointSettings(), base_url=address.base_url, model=address.model, preset=address.preset
    )
    if address.preset is PRESETS["llama-server"] and settings.mode != "chat":
        return LlamaServerEngine(
            _root(settings.base_url),
            settings.model,
            key=settings.key,
            key_env=settings.key_variable,
            timeout=settings.timeout,
            concurrency=settings.at_once,
            on_notice=on_notice,
        )
    if address.preset is PRESETS["vllm"]:
        from evenhand.engines.vllm_states import VllmEngine  # which is an endpoint itself

        return VllmEngine(settings, on_notice=on_notice)
    return EndpointEngine(settings, on_notice=on_notice)


def _messages(prompt: Prompt) -> _Shown:
    if prompt.raw is not None:
        raise EngineError(
            "a chat endpoint writes its own markup and cannot be sent the file's",
            reason="raw_markup",
            fatal=True,
            hint="use the mode completions, or leave the markup to the server",
        )
    messages: list[Any] = [_ready(prompt.lead)] if prompt.lead else []
    notes: tuple[str, ...] = ()
    for turn in prompt.turns[len(prompt.lead) :]:
        content, broken = string_of(turn.spans)
        messages.append({"role": turn.role, "content": content})
        notes = notes or broken
    return _Shown("messages", messages, prompt.verdicts, notes, prompt.room)


_READY: dict[int, tuple[tuple[Turn, ...], orjson.Fragment]] = {}


def _ready(turns: tuple[Turn, ...]) -> orjson.Fragment:
    """Turns of a template as JSON with commas, written once: a protocol gives the same object each time."""
    known = _READY.get(id(turns))
    if known is None or known[0] is not turns:
        if len(_READY) > 100:
            _READY.clear()
        written = b",".join(dump({"role": turn.role, "content": turn.text}) for turn in turns)
        known = _READY[id(turns)] = (turns, orjson.Fragment(written))
    return known[1]


def string_of(spans: tuple[Span, ...]) -> tuple[str, tuple[str, ...]]:
    """Spans as one string in which no control token is whole that is not ours; and a note where one was."""
    if len(spans) == 1 and spans[0].trusted:
        return spans[0].text, ()
    sent, broken = break_up_spans(spans)
    return sent, (BROKEN,) if broken else ()


def refused_field(reply: Reply, fields: Mapping[str, Any]) -> str | None:
    """The field that a server will not take, if that is what it says."""
    if reply.status not in _REFUSALS:
        return None
    said = ServerReply.of(reply.data)
    if said.param in fields:
        return said.param if said.param != "model" else None
    if reply.status in (403, 404) and "logprobs" not in said.message.lower():
        return None  # a key or a model
    if re.search(r"context.?(length|size|window)", said.message, re.IGNORECASE):
        return None  # a long prompt, which is sometimes told as too large a max_tokens
    names = [name for name in fields if name not in ("model", "stop")]
    # The longest first: "top_logprobs" holds "logprobs". A lone n may be the end of an escaped newline.
    for name in sorted(names, key=len, reverse=True):
        if re.search(rf"(?<![\w\\]){re.escape(name)}(?!\w)", said.message, re.IGNORECASE):
            return name
    return None


def _unwrapped(reply: Reply) -> Reply:
    """A failure that came under status 200, as OpenRouter sends what happened behind it."""
    data = reply.data
    if reply.status != 200 or not isinstance(data, dict) or not data.get("error") or data.get("choices"):
        return reply
    code = data["error"].get("code") if isinstance(data["error"], Mapping) else None
    status = code if isinstance(code, int) and 400 <= code < 600 else 502
    return Reply(status, data, reply.retry_after)


def _with(fields: dict[str, Any], extra: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in {**fields, **extra}.items() if value is not None}


def _root(base_url: str) -> str:
    """The server's own address, where the routes are that OpenAI's API does not have."""
    return base_url.removesuffix("/v1")


async def _all(questions: list[Any]) -> list[tuple[list[Choice], Usage]]:
    """All at once; the first failure stops the others."""
    try:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(question) for question in questions]
    except BaseExceptionGroup as faults:
        raise faults.exceptions[0] from None
    return [task.result() for task in tasks]
