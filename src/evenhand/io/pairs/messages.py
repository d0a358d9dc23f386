"""Conversations as other tools write them, and how they stand in a pair.

A message is {"role", "content"} or ShareGPT's {"from", "value"}. Content is text, an object that holds text, or a
list of parts. What a judge of texts cannot see, such as an image, is a fault and never left out silently.

    one question                    its text, as it stands
    a system message before it      [System] ... [User] ...
    turns that both models share    [User] ... [Assistant] ... [User] ...
    turns that each model answers   [Turn 1] ... [Turn 2] ...
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from evenhand.core.conversations import HEADINGS
from evenhand.core.faults import RowFault
from evenhand.io.files.reading import parse

SKIP = "--skip-bad leaves such rows out"
# What FastChat writes where a service gave no answer.
_FAILED = "$ERROR$"
_ROLES = {
    **{word: heading.lower() for word, heading in HEADINGS.items()},
    **dict.fromkeys(("tool", "function", "observation", "function_call", "tool_call"), "tool"),
}
_TEXT_PARTS = (None, "text", "input_text", "output_text")
# What a model thinks before it answers is no part of its answer.
_THOUGHT_PARTS = ("reasoning", "thinking", "redacted_thinking")


@dataclass(frozen=True, slots=True)
class Message:
    """One message of a conversation."""

    role: str  # user, assistant, system or tool
    text: str


@dataclass(frozen=True, slots=True)
class Dialogue:
    """A conversation in turns: what was asked and what was answered in each, and the system message above them."""

    system: str
    asked: tuple[str, ...]
    said: tuple[str, ...]


def read_messages(value: Any, field: str) -> list[Message]:
    """The messages of a field; raises RowFault where it holds something else.

    >>> read_messages([{"role": "user", "content": "Hi"}, {"from": "gpt", "value": "Hello"}], "messages")
    [Message(role='user', text='Hi'), Message(role='assistant', text='Hello')]
    """
    found = parsed_list(value)
    if not isinstance(found, list) or not found or not all(isinstance(one, Mapping) for one in found):
        raise RowFault(f"field '{field}' is not a list of turns", hint=SKIP)
    return [_message(one, f"{field}[{number}]") for number, one in enumerate(found)]


def is_messages(value: Any) -> bool:
    """Whether a value is a list of messages.

    >>> is_messages([{"role": "user", "content": "Hi"}]), is_messages(["Hi"]), is_messages("Hi")
    (True, False, False)
    """
    found = parsed_list(value)
    keys = ("role", "from")
    return (
        isinstance(found, list)
        and bool(found)
        and all(isinstance(one, Mapping) and any(isinstance(one.get(key), str) for key in keys) for one in found)
    )


def parsed_list(value: Any) -> Any:
    """A list, also one that a cell of a CSV file holds as JSON; any other value as it is.

    >>> parsed_list('["a", "b"]'), parsed_list("[a")
    (['a', 'b'], '[a')
    """
    if hasattr(value, "tolist"):
        return value.tolist()
    if isinstance(value, str) and value[:1] == "[" and value.rstrip()[-1:] == "]":
        try:
            return parse(value.encode(errors="surrogatepass"))
        except ValueError:
            return value
    return value


def read_text(value: Any, field: str) -> str:
    """The text of some content: text itself, an object with it inside, or a list of parts."""
    if isinstance(value, Mapping):
        inner = next((name for name in ("content", "answer", "text", "value") if name in value), None)
        return read_text(value[inner] if inner else None, field)
    if isinstance(value, list) and value and all(isinstance(part, Mapping) for part in value):
        return "\n".join(_parts(value, field))
    if value is None:
        raise RowFault(
            f"field '{field}' is null: the model gave no answer, or refused",
            hint=f'write "" where that should be judged as an empty answer; {SKIP}',
        )
    if not isinstance(value, str):
        raise RowFault(
            f"field '{field}' is of type {type(value).__name__}, not text", hint=f"write it as text, or {SKIP}"
        )
    if value == _FAILED:
        raise RowFault(
            f"field '{field}' is {_FAILED}: the service gave no answer", hint=f"generate it again; {SKIP}"
        )
    return value


def read_texts(value: Any, field: str) -> list[str]:
    """A list of turns, each text or an object that holds it."""
    if not isinstance(value, list) or not value:
        raise RowFault(f"field '{field}' holds no turns", hint=SKIP)
    return [read_text(turn, f"{field}[{number}]") for number, turn in enumerate(value)]


def dialogue_of(messages: Sequence[Message], field: str) -> Dialogue:
    """A conversation cut into turns.

    >>> dialogue_of([Message("user", "Hi"), Message("assistant", "Hello")], "messages")
    Dialogue(system='', asked=('Hi',), said=('Hello',))
    """
    system = "\n\n".join(one.text for one in messages if one.role == "system")
    rest = [one for one in messages if one.role != "system"]
    turns: list[list[Message]] = [[]]
    for one in rest:
        roles = {earlier.role for earlier in turns[-1]}
        if one.role == "user" and "user" in roles and len(roles) > 1:
            turns.append([])
        turns[-1].append(one)
    cut = [_cut(turn, field) for turn in turns]
    return Dialogue(system, tuple(asked for asked, _ in cut), tuple(said for _, said in cut))


def write_context(messages: Sequence[Message]) -> str:
    """What both responses answer: a question, or a whole conversation up to it under headings.

    >>> print(write_context([Message("system", "Be brief."), Message("user", "Hi")]))
    [System]
    Be brief.
    <BLANKLINE>
    [User]
    Hi
    """
    if len(messages) == 1 and messages[0].role == "user":
        return messages[0].text
    return _headed((one.role.capitalize(), one.text) for one in messages)


def write_turns(texts: Sequence[str], *, system: str = "") -> str:
    """The texts of some turns as one: each under a heading where there are several.

    >>> write_turns(["Hi"]), write_turns(["Hi", "Bye"])
    ('Hi', '[Turn 1]\\nHi\\n\\n[Turn 2]\\nBye')
    """
    first = [("System", system)] if system else []
    if len(texts) == 1:
        return _headed([*first, ("User", texts[0])]) if system else texts[0]
    return _headed([*first, *((f"Turn {number}", text) for number, text in enumerate(texts, 1))])


def _headed(parts: Iterable[tuple[str, str]]) -> str:
    return "\n\n".join(f"[{heading}]\n{text}" for heading, text in parts)


def _message(one: Mapping[str, Any], place: str) -> Message:
    said = one.get("role", one.get("from"))
    role = _ROLES.get(str(said).lower())
    if role is None:
        raise RowFault(f"field '{place}' has the role {said!r}", hint="known are user, assistant, system and tool")
    content = one["content"] if "content" in one else one.get("value")
    if role == "tool" or (content is None and one.get("tool_calls")):
        raise RowFault(f"field '{place}' is a call of a tool, which is not judged", hint=SKIP)
    return Message(role, read_text(content, place))


def _parts(parts: list[Mapping[str, Any]], field: str) -> list[str]:
    found = []
    for number, part in enumerate(parts):
        kind = part.get("type")
        if kind in _THOUGHT_PARTS:
            continue
        if kind not in _TEXT_PARTS:
            raise RowFault(f"field '{field}' holds a part of type {kind!r}, which is not text", hint=SKIP)
        found.append(read_text(part, f"{field}[{number}]"))
    return found


def _cut(turn: Sequence[Message], field: str) -> tuple[str, str]:
    """One turn: what was asked, with what the assistant had said before it, and the answer."""
    last = max((place for place, one in enumerate(turn) if one.role == "user"), default=-1)
    if last < 0:
        raise RowFault(f"field '{field}' has no text of the user", hint=SKIP)
    answer = [one.text for one in turn[last + 1 :]]
    if not answer:
        raise RowFault(f"field '{field}' has no text of the assistant", hint=f"it ends with a question; {SKIP}")
    return write_context(turn[: last + 1]), "\n\n".join(answer)
