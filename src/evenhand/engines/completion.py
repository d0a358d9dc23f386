"""Reading what an OpenAI-compatible server answered: the text without the thinking, its tokens, what it took.

Servers put thinking into a field of its own, or in tags before the answer, and count its tokens among the
log-probabilities or not. What comes out here is the answer alone, with the tokens that spell it.
"""

from __future__ import annotations

import codecs
import re
from collections.abc import Mapping, Sequence
from typing import Any, Literal, NamedTuple

from evenhand.core.engine import Token, Usage
from evenhand.core.errors import EngineError
from evenhand.engines.figures import bad_response, count, log_probability

# DeepSeek, Qwen and most others; Kimi; Magistral; gpt-oss, where the server leaves its channels in.
_OPENED = re.compile(r"\s*(?:<think(?:ing)?>|◁think▷|\[THINK\]|<\|channel\|>analysis)")
_CLOSED = re.compile(r"(?:</think(?:ing)?>|◁/think▷|\[/THINK\]|<\|channel\|>final<\|message\|>)\s*")


class Choice(NamedTuple):
    """One answer: what stands behind the thinking, and whether a limit cut it off."""

    text: str
    tokens: tuple[Token, ...]
    finish: Literal["stop", "length"]


def read_choices(data: Any) -> list[Choice]:
    """The answers in a reply, at least one.

    >>> reply = {"choices": [{"message": {"content": "<think>Hm.</think>\\n\\nA"}, "finish_reason": "stop"}]}
    >>> read_choices(reply)
    [Choice(text='A', tokens=(), finish='stop')]
    """
    choices = data.get("choices") if isinstance(data, dict) else None
    if not isinstance(choices, list) or not choices or not all(isinstance(choice, dict) for choice in choices):
        raise bad_response("the server answered without an answer in it")
    return [_choice(choice) for choice in choices]


def read_usage(data: Any) -> Usage:
    """The tokens that an answer took; nothing where the server does not tell.

    >>> read_usage({"usage": {"prompt_tokens": 100, "completion_tokens": 2,
    ...                       "prompt_tokens_details": {"cached_tokens": 90}}})
    Usage(computed=10, reused=90, generated=2)
    """
    usage = data.get("usage") if isinstance(data, dict) else None
    if not isinstance(usage, dict):
        return Usage()
    details = usage.get("prompt_tokens_details")
    prompt, cached = _count(usage, "prompt_tokens"), _count(details, "cached_tokens")
    return Usage(max(prompt - cached, 0), cached, _count(usage, "completion_tokens"))


def after_thinking(text: str) -> int | None:
    """Where the answer begins; None where the thinking never ended.

    The last closing tag counts: thinking may quote one, and an opening one may stand in the prompt already.

    >>> after_thinking("A"), after_thinking("<think>so B"), after_thinking("so B</think>\\nB")
    (0, None, 13)
    """
    if text in ("A", "B", "tie"):  # as most judges answer
        return 0
    ends = [tag.end() for tag in _CLOSED.finditer(text)]
    if ends:
        return ends[-1]
    return None if _OPENED.match(text) else 0


def _choice(choice: Mapping[str, Any]) -> Choice:
    finish = choice.get("finish_reason")
    if finish == "content_filter":
        raise EngineError("the server's content filter withheld the answer", reason="content_filter")
    if finish == "error":
        raise EngineError("the server broke off its answer", reason="server_error", retryable=True)
    content = _content(choice)
    start = after_thinking(content)
    if start is None:
        return Choice(content, (), "length")
    tokens = _tokens(choice.get("logprobs"), content, start)
    return Choice(content[start:], tokens, "length" if finish in ("length", "max_tokens") else "stop")


def _content(choice: Mapping[str, Any]) -> str:
    message = choice.get("message")
    if message is None:
        if "message" not in choice and "text" not in choice:
            raise bad_response("the server answered without an answer in it")
        return _word(choice.get("text"))
    if not isinstance(message, dict):
        raise bad_response(f"the server answered with {type(message).__name__} in the place of a message")
    content = message.get("content")
    if isinstance(content, list):  # in parts, of which only text is the answer
        if not all(isinstance(part, dict) for part in content):
            raise bad_response("the server answered in parts of which one is none")
        parts = [part for part in content if part.get("type") == "text"]
        content = "".join(_word(part.get("text")) for part in parts)
    return _word(content or message.get("refusal"))


def _word(text: Any) -> str:
    """A text that may be missing; anything else in its place is no answer."""
    if text is None or isinstance(text, str):
        return text or ""
    raise bad_response(f"the server answered with {type(text).__name__} in the place of a text")


def _tokens(logprobs: Any, content: str, start: int) -> tuple[Token, ...]:
    """The tokens that spell the answer; none where they cannot be brought together with it."""
    places = _places(logprobs)
    spelt = "".join(text for text, _ in places)
    if not spelt:
        return ()
    # A server that took the thinking out of the content may have left it among the tokens, at their beginning.
    begin = start if content.startswith(spelt) else spelt.rfind(content[start:])
    return _from(places, begin) if begin >= 0 else ()


def _from(places: Sequence[tuple[str, Any]], begin: int) -> tuple[Token, ...]:
    """The tokens from a character on; the one in which it stands loses what is before it."""
    tokens: list[Token] = []
    end = 0
    for text, top in places:
        end += len(text)
        if end > begin:
            tokens.append(Token(text[-(end - begin) :] if not tokens else text, _top(top)))
    return tuple(tokens)


def _places(logprobs: Any) -> list[tuple[str, Any]]:
    """Each token's text with what else could have stood there, from either of the two shapes in use."""
    if not isinstance(logprobs, dict):
        return []
    content = logprobs.get("content")
    if isinstance(content, list):
        entries = [entry for entry in content if isinstance(entry, dict)]
        return list(zip(_texts(entries), (entry.get("top_logprobs") for entry in entries), strict=True))
    tokens, tops = logprobs.get("tokens"), logprobs.get("top_logprobs")
    if isinstance(tokens, list) and isinstance(tops, list):
        return list(zip(map(str, tokens), tops, strict=False))
    return []


def _texts(entries: Sequence[Mapping[str, Any]]) -> list[str]:
    """The tokens as text; a character spread over several tokens belongs to the one that completes it."""
    raw = [entry.get("bytes") for entry in entries]
    if all(isinstance(item, list) for item in raw):
        decoder = codecs.getincrementaldecoder("utf-8")("replace")
        try:
            return [decoder.decode(bytes(item)) for item in raw if item is not None]
        except (TypeError, ValueError, OverflowError):
            pass  # no bytes after all
    return [str(entry.get("token") or "") for entry in entries]


def _top(top: Any) -> tuple[tuple[str, float], ...]:
    """The likeliest tokens, from either shape. There are twenty to an answer, so that every step counts."""
    if isinstance(top, dict):
        return tuple([(str(text), x) for text, p in top.items() if (x := log_probability(p)) is not None])
    found: list[tuple[str, float]] = []
    for item in top if isinstance(top, list) else ():
        if isinstance(item, dict):
            x = item.get("logprob")
            if type(x) is not float or not x <= 0.0:  # seldom
                x = log_probability(x)
            if x is not None:
                found.append((str(item.get("token")), x))
    return tuple(found)


def _count(counts: Any, name: str) -> int:
    return count(counts.get(name)) if isinstance(counts, dict) else 0
