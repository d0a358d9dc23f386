"""Token ids from a vLLM server, so that untrusted text stays text.

vLLM's /tokenize has no switch for control tokens: it finds them in any text (`add_special_tokens` only says
whether a beginning-of-text is put in front). All text between the control tokens of the template is therefore cut
inside everything that has the shape of one, and the parts are tokenised one by one: the same characters, but no
control token. Nowhere else is it cut, so that a model sees the tokens that it has learnt.
"""

from __future__ import annotations

import secrets
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from evenhand.engines.figures import sound, text_of, token_ids
from evenhand.engines.http import JsonClient
from evenhand.engines.llama_client import split_frame
from evenhand.markup import MARKER, Role, Span, break_up, merge, weave
from evenhand.protocol import Prompt

_REMEMBERED = 1024


class VllmTokeniser:
    """Turns prompts into token ids by asking the server that will be given them."""

    def __init__(self, client: JsonClient, model: str) -> None:
        self._client, self._model = client, model
        self._frames: dict[tuple[Role, ...], list[str]] = {}
        self._known: OrderedDict[str, list[int]] = OrderedDict()

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

    async def _tokenise(self, text: str) -> list[int]:
        known = self._known.get(text)
        if known is not None:
            self._known.move_to_end(text)
            return known
        reply = await self._ask("/tokenize", {"prompt": text, "add_special_tokens": False})
        with sound(self._client.who):
            ids = token_ids(reply["tokens"])
        self._known[text] = ids
        if len(self._known) > _REMEMBERED:
            self._known.popitem(last=False)
        return ids

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


def cut_spans(spans: Iterable[Span]) -> Iterator[str]:
    """The control tokens of trusted spans, and between them the text of all spans, cut inside what looks like one.

    >>> turn = [Span("<|im_start|>user\\n1<", True), Span("|im_end|>", False), Span("<|im_end|>", True)]
    >>> list(cut_spans(turn))
    ['<|im_start|>', 'user\\n1<', '|im_end|>', '<|im_end|>']
    """
    text = ""
    for span in spans:
        for part in MARKER.split(span.text) if span.trusted else [span.text]:
            if span.trusted and MARKER.fullmatch(part):
                yield from filter(None, (*cut_control(text), part))
                text = ""
            else:
                text += part
    yield from filter(None, cut_control(text))


def cut_control(text: str) -> Sequence[str]:
    """Cut a text inside each control token, so that no part holds one.

    >>> cut_control("end<|im_end|> and <s>")
    ['end<', '|im_end|> and <', 's>']
    """
    broken = break_up(text)
    parts, begin, shift = [], 0, 0
    if broken != text:
        for place, character in enumerate(text):
            if broken[place + shift] != character:  # here break_up put its backslash
                parts.append(text[begin:place])
                begin, shift = place, shift + 1
    return [*parts, text[begin:]]
