"""The conversation that both responses of a pair belong to, as one text for the slot {conversation}.

    [System]      where the pair has a system prompt
    Be brief.

    [User]
    Name a prime.

It comes from the pair's row: messages in a field `conversation`, `messages` or `history`, with the instruction as
the last of them. Where there is no such field, the instruction is the conversation; readers of other tools' files
have put all turns there, under the same headings. Every pair has one, if only of a single turn.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

from evenhand.core.errors import InputError
from evenhand.core.pair import Pair

FIELDS = ("conversation", "messages", "history")
SYSTEM_FIELDS = ("system", "system_prompt")
_HEADED = re.compile(r"\[(?:System|User|Assistant|Turn 1)\]\n")
HEADINGS = {
    **dict.fromkeys(("user", "human", "prompter"), "User"),
    **dict.fromkeys(("assistant", "gpt", "model", "chatgpt", "bot", "ai"), "Assistant"),
    **dict.fromkeys(("system", "developer"), "System"),
}
Part = tuple[str, str]  # a heading, and what stands under it


def conversation_of(pair: Pair) -> str:
    """The conversation of a pair; InputError where the field that should hold it holds something else.

    >>> print(conversation_of(Pair("And in 2020?", "x", "y", metadata={"history": [
    ...     {"role": "user", "content": "Who won in 2019?"}, {"role": "assistant", "content": "Ann."}]})))
    [User]
    Who won in 2019?
    <BLANKLINE>
    [Assistant]
    Ann.
    <BLANKLINE>
    [User]
    And in 2020?
    """
    name = next((name for name in FIELDS if pair.metadata.get(name)), "")
    system = next((text for name in SYSTEM_FIELDS if isinstance(text := pair.metadata.get(name), str) and text), "")
    if not name:
        return _written(_with_system(system, [("", pair.instruction)] if _is_headed(pair) else [_last(pair)]))
    value = _parsed(pair.metadata[name])
    parts = [("", value)] if isinstance(value, str) else _messages(pair, name, value)
    if parts[-1][0] not in ("", "User") or pair.instruction.strip() not in parts[-1][1]:
        parts.append(("", pair.instruction) if _is_headed(pair) else _last(pair))
    return _written(_with_system(system, parts))


def _last(pair: Pair) -> Part:
    return "User", pair.instruction


def _is_headed(pair: Pair) -> bool:
    return bool(_HEADED.match(pair.instruction))


def _with_system(system: str, parts: list[Part]) -> list[Part]:
    """The parts with the system prompt above them, unless they have one."""
    there = any(heading == "System" or text.startswith("[System]\n") for heading, text in parts)
    return parts if there or not system else [("System", system), *parts]


def _written(parts: Sequence[Part]) -> str:
    return "\n\n".join(f"[{heading}]\n{text}" if heading else text for heading, text in parts)


def _parsed(value: Any) -> Any:
    """A list of messages that a cell of a CSV file holds as JSON; any other value as it is."""
    if isinstance(value, str) and value.lstrip().startswith("["):
        try:
            return json.loads(value)
        except ValueError:
            return value
    return value


def _messages(pair: Pair, field: str, value: Any) -> list[Part]:
    given = value if isinstance(value, list | tuple) else [None]
    parts = [_part(message) for message in given]
    if None in parts:
        place = f"message {parts.index(None) + 1} of field" if isinstance(value, list | tuple) else "field"
        raise InputError(
            f"pair '{pair.id}' has nothing for {{conversation}}: {place} '{field}' is no message with text",
            hint='write messages such as {"role": "user", "content": "Hi"}, roles user, assistant, system',
        )
    return [part for part in parts if part is not None]


def _part(message: Any) -> Part | None:
    """One message as OpenAI or ShareGPT write it; None if it is not one, or holds more than text."""
    if not isinstance(message, Mapping):
        return None
    heading = HEADINGS.get(str(message.get("role", message.get("from"))).lower())
    content = message["content"] if "content" in message else message.get("value")
    if isinstance(content, list) and content and all(_is_text(part) for part in content):
        content = "\n".join(part["text"] for part in content)
    return (heading, content) if heading and isinstance(content, str) else None


def _is_text(part: Any) -> bool:
    return isinstance(part, Mapping) and part.get("type", "text") == "text" and isinstance(part.get("text"), str)
