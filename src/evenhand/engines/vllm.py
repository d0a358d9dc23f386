"""Token ids from a vLLM server, so that untrusted text stays text.

vLLM's /tokenize has no switch for control tokens: it finds them in any text (`add_special_tokens` only says
whether a beginning-of-text is put in front). All text between the control tokens of the template is therefore cut
inside everything that has the shape of one, and the parts are tokenised one by one: the same characters, but no
control token. What comes back is compared with the ids of the control tokens that the model has, and cut further
where one is among them. Nowhere else is it cut, so that a model sees the tokens that it has learnt.
"""

from __future__ import annotations

import secrets
from collections import OrderedDict
from collections.abc import Iterable, Iterator
from itertools import pairwise
from typing import Any

from evenhand.core.errors import EngineError
from evenhand.core.markup import MARKER, Role, Span, control_places, merge, weave
from evenhand.core.protocol import Prompt
from evenhand.engines.control_tokens import KNOWN
from evenhand.engines.figures import sound, text_of, token_ids
from evenhand.engines.http import JsonClient
from evenhand.engines.llama_client import split_frame

_REMEMBERED = 1024


class VllmTokeniser:
    """Turns prompts into token ids by asking the server that will be given them."""

    def __init__(self, client: JsonClient, model: str) -> None:
        self._client, self._model = client, model
        self._frames: dict[tuple[Role, ...], list[str]] = {}
        self._known: OrderedDict[Span, list[int]] = OrderedDict()
        self._control: frozenset[int] | None = None  # the ids that steer the model, once they are learnt

    async def tokens(self, prompt: Prompt) -> list[int]:
        """The token ids of a prompt, in the model's own chat template or in the file's own markup."""
        if prompt.raw is not None:
            spans = merge(prompt.raw)
        else:
            spans = weave(prompt.turns, await self._frame(tuple(turn.role for turn in prompt.turns)))
        ids: list[int] = []
        for part in cut_spans(spans):
            ids += await self._tokenise(part)
        return ids

    async def _tokenise(self, span: Span) -> list[int]:
        known = self._known.get(span)
        if known is not None:
            self._known.move_to_end(span)
            return known
        ids = (await self._ids(span.text))[0] if span.trusted else await self._as_text(span.text)
        self._known[span] = ids
        if len(self._known) > _REMEMBERED:
            self._known.popitem(last=False)
        return ids

    async def _as_text(self, text: str) -> list[int]:
        """The ids of a text that may steer nothing: where one of them would, the text is cut in two there."""
        control = await self._steering()
        ids, names = await self._ids(text)
        # A name that is not in the text is a byte's, such as <0x0A> for a line feed.
        if control.isdisjoint(ids) and not any(name in text and MARKER.fullmatch(name) for name in names):
            return ids
        if len(text) == 1:
            raise EngineError("the pair holds a control token that is a single character", reason="control_token")
        half = len(text) // 2
        return await self._as_text(text[:half]) + await self._as_text(text[half:])

    async def _steering(self) -> frozenset[int]:
        """The ids of the control tokens that this model has, of those that any family is known to have."""
        if self._control is None:
            ids, names = await self._ids("\n".join(KNOWN))
            if names:
                found = {number for number, name in zip(ids, names, strict=True) if name in KNOWN}
            else:  # a server that does not tell the tokens' texts
                each = [(await self._ids(token))[0] for token in KNOWN]
                found = {ids[0] for ids in each if len(ids) == 1}
            self._control = frozenset(found)
        return self._control

    async def _ids(self, text: str) -> tuple[list[int], list[str]]:
        """The ids of a text, and the text of each, if the server tells it."""
        body = {"prompt": text, "add_special_tokens": False, "return_token_strs": True}
        reply = await self._ask("/tokenize", body)
        with sound(self._client.who):
            ids, names = token_ids(reply["tokens"]), reply.get("token_strs") or []
            return ids, [text_of(name) for name in names] if len(names) == len(ids) else []

    async def _frame(self, roles: tuple[Role, ...]) -> list[str]:
        if roles not in self._frames:
            marks = [secrets.token_hex(8) for _ in roles]
            messages = [{"role": role, "content": mark} for role, mark in zip(roles, marks, strict=True)]
            # A judge that answers with a label has no use for a thinking turn.
            body = {"messages": messages, "chat_template_kwargs": {"enable_thinking": False}}
            reply = await self._ask("/tokenize", body)
            with sound(self._client.who):
                ids = token_ids(reply["tokens"])
            reply = await self._ask("/detokenize", {"tokens": ids})
            with sound(self._client.who):
                text = text_of(reply["prompt"])
            self._frames[roles] = split_frame(text, marks, roles)
        return self._frames[roles]

    async def _ask(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        reply = await self._client.post(path, {"model": self._model, **body})
        if reply.status != 200 or not isinstance(reply.data, dict):
            raise self._client.fault(reply)
        return reply.data


def cut_spans(spans: Iterable[Span]) -> Iterator[Span]:
    """The control tokens of trusted spans, and between them the text of all spans, cut inside what looks like one.

    >>> turn = [Span("<|im_start|>user\\n1<", True), Span("|im_end|>", False), Span("<|im_end|>", True)]
    >>> [(part.text, part.trusted) for part in cut_spans(turn)]
    [('<|im_start|>', True), ('user\\n1<', False), ('|im_end|>', False), ('<|im_end|>', True)]
    """
    text = ""
    for span in spans:
        for part in MARKER.split(span.text) if span.trusted else [span.text]:
            if span.trusted and MARKER.fullmatch(part):
                yield from _pieces(text)
                yield Span(part, True)
                text = ""
            else:
                text += part
    yield from _pieces(text)


def _pieces(text: str) -> Iterator[Span]:
    """A text, cut inside each control token."""
    bounds = [0, *control_places(text), len(text)]
    return (Span(text[begin:end], False) for begin, end in pairwise(bounds) if begin < end)
