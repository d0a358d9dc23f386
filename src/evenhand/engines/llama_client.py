"""The HTTP that llama.cpp's server speaks: tokens in, tokens with their probabilities out.

Prompts go as token ids. Only the control tokens of trusted spans are looked for; all text between them is tokenised
without any, so that nothing in a pair can open or close a turn. From one control token to the next it is one piece,
whoever wrote it: cut where a response ends and the template goes on, "." and an empty line would be two tokens
where the model has learnt one.
"""

from __future__ import annotations

import math
import re
import secrets
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal

from evenhand.core.engine import Answer, Sampling, State, Token, Usage
from evenhand.core.errors import EngineError, TooLongError
from evenhand.core.markup import MARKER, Role, Span, Turn, merge, weave, without_system
from evenhand.core.protocol import COMPARED, Prompt
from evenhand.engines.control_tokens import KNOWN
from evenhand.engines.figures import count, log_probability, sound, state_vector, text_of, token_ids
from evenhand.engines.http import JsonClient, Reply

# Goes into the fingerprint of a judge: text cut in other places is other tokens, and so another judgment.
TOKENISED = "by turn"
# A label that is not among this many likeliest tokens has next to no probability.
TOP_TOKENS = 60
# What looks like a control token where a chat template writes one.
_MARKER = re.compile(r"<[^<>\s]{1,40}>|\[/?[A-Z_]{2,20}\]")


class LlamaClient:
    """Asks one llama.cpp server."""

    def __init__(
        self,
        url: str,
        key: str,
        *,
        control_tokens: Mapping[str, int] | None = None,
        key_env: str = "",
        timeout: float | None = None,
        limit: int = 64,
        slots: int = 0,
        on_notice: Callable[[str], None] = lambda _: None,
    ) -> None:
        self.url, self._slots = url, slots
        self._http = JsonClient(
            url,
            key=key,
            key_env=key_env,
            timeout=timeout,
            limit=limit,
            who="llama.cpp's server",
            # It has a thread for each of a few connections: one that only rests would keep others waiting. And it
            # closes those that rest for some seconds, perhaps while the next request is on its way.
            once_only=True,
            on_notice=on_notice,
        )
        self._steer_by(control_tokens or {})
        self._frames: dict[tuple[Role, ...], list[str]] = {}
        self._tokens: OrderedDict[Span, list[int]] = OrderedDict()
        self._answer_tokens: dict[tuple[str, ...], int] = {}
        self._no_system = False  # whether the model's template refuses a system turn
        self._is_known = True  # whether all tokens that steer the model are known, as they are from its file

    async def answer(self, prompt: Prompt, *, context: int) -> Answer:
        """One answer, held to the labels by a grammar, with the unconstrained probabilities."""
        if prompt.room:  # a verdict in a form of its own: no grammar, and so no more than the text
            return await self.write(prompt, Sampling(temperature=0.0, max_tokens=prompt.room), context=context)
        ids = await self.tokens(prompt)
        room = await self._label_tokens(prompt.words) * prompt.verdicts + prompt.verdicts - 1
        if len(ids) + room > context:
            raise TooLongError(tokens=len(ids) + room, limit=context)
        body = _request(ids, room, grammar(prompt.verdicts, prompt.words))
        if self._slots:  # each conversation of a protocol keeps what it has computed in a place of its own
            body["id_slot"] = prompt.conversation % self._slots
        first = await self._asked(body)
        if _whole(first.text, prompt):
            return first
        # A label that the tokenizer has in one piece was written in several, and cut off behind the first.
        body["n_predict"] = max(map(len, prompt.words)) * prompt.verdicts + prompt.verdicts - 1
        again = await self._asked(body)
        return replace(again, usage=Usage.total([first.usage, again.usage]))

    async def _asked(self, body: dict[str, Any]) -> Answer:
        reply = await self._post("/completion", body)
        with sound(self._http.who):
            return _answer(reply)

    async def write(self, prompt: Prompt, sampling: Sampling, *, context: int) -> Answer:
        """Free text, to the end of the model's turn or to a limit."""
        ids = await self.tokens(prompt)
        if len(ids) >= context:
            raise TooLongError(tokens=len(ids) + 1, limit=context)
        reply = await self._post("/completion", _free_request(ids, sampling, context - len(ids)))
        with sound(self._http.who):
            return _written(reply)

    async def state(self, prompt: Prompt, *, context: int) -> State:
        """The state at the last token of a prompt, from a server that was started for embeddings."""
        ids = await self.tokens(prompt)
        if len(ids) > context:
            raise TooLongError(tokens=len(ids), limit=context)
        reply = await self._http.post("/embeddings", {"content": ids, "embd_normalize": -1})
        return State(read_embedding(self._http, reply), Usage(computed=len(ids)))

    async def tokens(self, prompt: Prompt) -> list[int]:
        """The token ids of a prompt, as the model is given them."""
        # The file's own markup brings its own beginning; the model's own template may rely on the tokenizer's.
        spans = merge(prompt.raw) if prompt.raw is not None else await self._render(prompt.turns)
        ids: list[int] = [] if prompt.raw is not None else await self._beginning(spans[0])
        for piece in await self._pieces(spans):
            ids += await self.tokenise(piece)
        return ids

    async def _pieces(self, spans: Iterable[Span]) -> list[Span]:
        """Control tokens of trusted spans, and between them all text in one piece, which counts as untrusted."""
        pieces: list[Span] = []
        text = ""
        for span in spans:
            for part in self._markers.split(span.text) if span.trusted else [span.text]:
                if not span.trusted or await self._is_plain(part):
                    text += part
                else:
                    pieces += [Span(text, False), Span(part, True)]
                    text = ""
        return [piece for piece in (*pieces, Span(text, False)) if piece.text]

    async def _is_plain(self, text: str) -> bool:
        """Whether a text of the template is the same tokens with and without control tokens."""
        if not text or self._markers.fullmatch(text):
            return not text
        return await self.tokenise(Span(text, True)) == await self.tokenise(Span(text, False))

    async def tokenise(self, span: Span) -> list[int]:
        """The ids of one span; a template's spans are the same for every pair and are remembered."""
        known = self._tokens.get(span)
        if known is not None:
            self._tokens.move_to_end(span)
            return known
        ids = await self._tokenise(span.text, special=span.trusted)
        if not span.trusted:
            ids = await self._without_control(span.text, ids)
        self._tokens[span] = ids  # only now: several prompts may be on their way at once
        if len(self._tokens) > 256:
            self._tokens.popitem(last=False)
        return ids

    async def close(self) -> None:
        """Close the connections."""
        await self._http.close()

    async def learn(self) -> int:
        """Learn from a server that others started which tokens steer its model; give its context in tokens."""
        props = _data(self._http, await self._http.get("/props"))
        with sound(self._http.who):
            context = count(props["default_generation_settings"]["n_ctx"])
            markers = {
                *_MARKER.findall(text_of(props.get("chat_template") or "")),
                text_of(props.get("bos_token") or ""),
                text_of(props.get("eos_token") or ""),
            }
        found = {marker: await self._tokenise(marker, special=True) for marker in markers if marker}
        single = {marker: ids[0] for marker, ids in found.items() if len(ids) == 1}
        self._steer_by({**await self._probed(), **single})
        self._is_known = False
        return context

    async def _probed(self) -> dict[str, int]:
        """Control tokens that the model has and its chat template does not write, of those known of any family."""
        body = {"content": "\n".join(KNOWN), "parse_special": True, "with_pieces": True}
        reply = await self._post("/tokenize", body)
        with sound(self._http.who):
            # An older server gives the numbers alone.
            pieces = [token for token in reply["tokens"] if isinstance(token, dict)]
            ids = token_ids([token["id"] for token in pieces])
            named = zip(pieces, ids, strict=True)
            return {token["piece"]: number for token, number in named if token["piece"] in KNOWN}

    def _steer_by(self, control_tokens: Mapping[str, int]) -> None:
        """Take these for the tokens that steer the model."""
        self._control = frozenset(control_tokens.values())
        longest_first = sorted(filter(None, control_tokens), key=len, reverse=True)
        self._markers = re.compile(f"({'|'.join(map(re.escape, longest_first)) or '(?!)'})")

    async def _tokenise(self, text: str, *, special: bool, beginning: bool = False) -> list[int]:
        """The ids of a text; a token of which nobody knew that it steers is known by its shape from now on."""
        body = {"content": text, "add_special": beginning, "parse_special": special}
        if not special and not self._is_known:
            body["with_pieces"] = True
        reply = await self._post("/tokenize", body)
        with sound(self._http.who):
            pieces = {t["id"]: t["piece"] for t in reply["tokens"] if isinstance(t, dict)}
            ids = token_ids([t["id"] if isinstance(t, dict) else t for t in reply["tokens"]])
        # A piece that is not in the text is a byte's, such as <0x0A> for a line feed.
        words = {number: piece for number, piece in pieces.items() if isinstance(piece, str) and piece in text}
        self._control |= {number for number, piece in words.items() if MARKER.fullmatch(piece)}
        return ids

    async def _beginning(self, first: Span) -> list[int]:
        """The tokens that this model's tokenizer puts before any text, unless the template wrote them."""
        key = Span("", trusted=True)
        opening = self._tokens.get(key)
        if opening is None:
            opening = self._tokens[key] = await self._tokenise("", special=True, beginning=True)
        return [] if (await self.tokenise(first))[: len(opening)] == opening else opening

    async def _without_control(self, text: str, ids: list[int]) -> list[int]:
        """Tokenise around tokens that count as control although the text was not to be parsed for them.

        Some vocabularies declare their turn markers "user defined", and those are matched in any text. Cut
        inside each such marker, the same characters come out as ordinary tokens.
        """
        if self._control.isdisjoint(ids):
            return ids
        if len(text) == 1:
            raise EngineError("the pair holds a control token that is a single character", reason="control_token")
        half = len(text) // 2
        parts = [await self._tokenise(part, special=False) for part in (text[:half], text[half:])]
        left = await self._without_control(text[:half], parts[0])
        return left + await self._without_control(text[half:], parts[1])

    async def _render(self, turns: Sequence[Turn]) -> tuple[Span, ...]:
        """Write the turns in the model's own chat template, which llama.cpp reads from the model file.

        A template that knows no system turn refuses it; what it says then stands at the head of the user's turn.
        """
        if self._no_system:
            turns = without_system(turns)
        roles = tuple(turn.role for turn in turns)
        try:
            if roles not in self._frames:
                self._frames[roles] = await self._frame(roles)
        except EngineError as error:
            if roles[0] != "system" or error.fatal:
                raise
            spans = weave(without_system(turns), await self._frame(roles[1:]))
            self._no_system = True  # now that it is seen to help
            return spans
        return weave(turns, self._frames[roles])

    async def _frame(self, roles: Sequence[Role]) -> list[str]:
        """What the template writes around the contents, found by rendering marks in their places."""
        marks = [f"{secrets.token_hex(8)}" for _ in roles]
        messages = [{"role": role, "content": mark} for role, mark in zip(roles, marks, strict=True)]
        # A judge that answers with a label has no use for a thinking turn.
        body = {"messages": messages, "chat_template_kwargs": {"enable_thinking": False}}
        reply = await self._post("/apply-template", body)
        with sound(self._http.who):
            rendered = text_of(reply["prompt"])
        return split_frame(rendered, marks, roles)

    async def _label_tokens(self, words: tuple[str, ...]) -> int:
        """How many tokens the longest of the words takes."""
        if words not in self._answer_tokens:
            self._answer_tokens[words] = max([len(await self._tokenise(word, special=False)) for word in words])
        return self._answer_tokens[words]

    async def _post(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        return _data(self._http, await self._http.post(path, body))


def split_frame(rendered: str, marks: Sequence[str], roles: Sequence[Role]) -> list[str]:
    """What stands before, between and after marks that were rendered in place of contents.

    >>> split_frame("<user>x1<end><assistant>", ["x1"], ["user"])
    ['<user>', '<end><assistant>']
    """
    frame, rest = [], rendered
    for mark in marks:
        before, found, rest = rest.partition(mark)
        if not found:
            raise EngineError(f"the model's chat template cannot show these turns: {', '.join(roles)}")
        frame.append(before)
    return [*frame, rest]


def _data(client: JsonClient, reply: Reply) -> dict[str, Any]:
    if reply.status != 200 or not isinstance(reply.data, dict):
        raise client.fault(reply)
    return reply.data


def read_embedding(client: JsonClient, reply: Reply) -> tuple[float, ...]:
    """The vector of the one prompt that was sent: llama.cpp gives a row for each token that it does not pool."""
    try:
        rows = reply.data[0]["embedding"]
        given = rows[-1] if isinstance(rows[-1], list) else rows
    except (TypeError, KeyError, IndexError):
        raise client.fault(reply) from None
    return state_vector(given, client.who, "start it with --embeddings --pooling last, or a newer one")


def grammar(verdicts: int, words: Sequence[str] = COMPARED) -> str:
    """Labels with commas between them and nothing else.

    No blank follows a comma: with one allowed, the likeliest next token would often be the blank alone, and
    the label's probabilities would have to be read behind it, where they are distorted.

    >>> print(grammar(2))
    root ::= label "," label
    label ::= "A" | "B" | "tie"
    """
    labels = " | ".join(f'"{word}"' for word in words)
    answer = ' "," '.join(["label"] * verdicts)
    return f"root ::= {answer}\nlabel ::= {labels}"


def _whole(text: str, prompt: Prompt) -> bool:
    """Whether an answer has all its labels, or is none that more room could complete."""
    labels = text.split(",")
    unfinished = len(labels) < prompt.verdicts or labels[-1] not in prompt.words
    return not text or not unfinished or not any(word.startswith(labels[-1]) for word in prompt.words)


def _request(ids: list[int], limit: int, held_to: str) -> dict[str, Any]:
    return {
        "prompt": ids,
        "n_predict": limit,  # no more than the labels take: the end of the turn need not be computed
        "n_probs": TOP_TOKENS,
        "temperature": 0,
        "grammar": held_to,
        "cache_prompt": True,
    }


def _free_request(ids: list[int], sampling: Sampling, room: int) -> dict[str, Any]:
    return {
        "prompt": ids,
        "n_predict": min(sampling.max_tokens, room),
        "temperature": sampling.temperature,
        "top_p": sampling.top_p,
        "seed": sampling.seed,
        "top_k": 0,  # llama.cpp's own defaults would cut the distribution, and services' do not
        "min_p": 0,
        "cache_prompt": True,
    }


def _written(data: dict[str, Any]) -> Answer:
    finish: Literal["stop", "length"] = "length" if data.get("stop_type") == "limit" else "stop"
    return Answer(text_of(data["content"]), usage=_usage(data.get("timings")), finish=finish)


def _answer(data: dict[str, Any]) -> Answer:
    places = map(_newer, data.get("completion_probabilities") or [])
    tokens = tuple(Token(text_of(p["token"]), _top(p["top_logprobs"])) for p in places if p["token"])
    return Answer(text_of(data["content"]), tokens, _usage(data.get("timings")))


def _newer(place: dict[str, Any]) -> dict[str, Any]:
    """The probabilities at a place, in today's form; servers of 2024, and ik_llama.cpp, write them in another.

    >>> _newer({"content": "A", "probs": [{"tok_str": "A", "prob": 1.0}, {"tok_str": "B", "prob": 0.0}]})
    {'token': 'A', 'top_logprobs': [{'token': 'A', 'logprob': 0.0}]}
    """
    if "probs" not in place:
        return place
    top = [{"token": p["tok_str"], "logprob": math.log(p["prob"])} for p in place["probs"] if p["prob"] > 0]
    return {"token": place["content"], "top_logprobs": top}


def _top(places: list[dict[str, Any]]) -> tuple[tuple[str, float], ...]:
    return tuple(
        [(text_of(top["token"]), x) for top in places if (x := log_probability(top["logprob"])) is not None]
    )


def _usage(timings: Any) -> Usage:
    """What an answer took; nothing where the server does not tell."""
    if not isinstance(timings, dict):
        return Usage()
    return Usage(*[count(timings.get(name)) for name in ("prompt_n", "cache_n", "predicted_n")])
