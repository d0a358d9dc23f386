"""What a row asks, whatever tool wrote it: one instruction, or the user's turns of a conversation."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from evenhand.core.faults import RowFault
from evenhand.io.files import Row
from evenhand.io.pairs.formats import with_input
from evenhand.io.pairs.messages import is_messages, parsed_list, read_messages, read_texts, write_context
from evenhand.io.pairs.recognition import Context, Format, recognise
from evenhand.io.pairs.rows import named_fields

_TALKS = ("messages", "conversations", "conversation_a", "prompt", "context", "input")
_TEXTS = ("instruction", "prompt", "question", "input")
EXPECTED = "expected rows with the field instruction, or a .txt file with one on each line"


@dataclass(frozen=True, slots=True)
class Asked:
    """The user's turns of a row, the system message above them, and the fields that say so or hold answers."""

    turns: tuple[str, ...]
    system: str = ""
    fields: tuple[str, ...] = ()


def read_asked(row: Row) -> Asked:
    """What a row asks; raises RowFault where it asks nothing.

    >>> read_asked({"turns": ["Hi", "Bye"]}).turns, read_asked({"instruction": "Add.", "input": "2, 2"}).turns
    (('Hi', 'Bye'), ('Add.\\n\\n2, 2',))
    """
    found = recognise(row)
    used = tuple(name for name in row if found is not None and name not in found.left_over(row))
    asked = _talk(row) or _turns(row) or _text(row, found)
    return replace(asked, fields=(*asked.fields, *used))


def _talk(row: Row) -> Asked | None:
    """A conversation: the user's turns, to be answered again; one that ends with a question is taken as it is."""
    body = row.get("body")
    holder = body if isinstance(body, Mapping) and "messages" in body else row
    field = next((name for name in _TALKS if is_messages(holder.get(name))), None)
    if field is None:
        return None
    messages, fields = read_messages(holder[field], field), ("body",) if holder is body else (field,)
    turns = [one.text for one in messages if one.role == "user"]
    if not turns:
        raise RowFault(f"field '{field}' has no text of the user", hint=EXPECTED)
    if messages[-1].role == "user" and any(one.role == "assistant" for one in messages):
        return Asked((write_context(messages),), fields=fields)
    system = "\n\n".join(one.text for one in messages if one.role == "system")
    return Asked(_filled(turns, field), system, fields)


def _turns(row: Row) -> Asked | None:
    """A list of turns: MT-Bench's questions, the prompts of Chatbot Arena's 55k."""
    field = next((name for name in ("turns", "prompt") if isinstance(parsed_list(row.get(name)), list)), None)
    if field is None:
        return None
    return Asked(_filled(read_texts(parsed_list(row[field]), field), field), fields=(field,))


def _text(row: Row, found: Format | None) -> Asked:
    """One instruction: the field that holds it, or what a format of another tool makes of the row."""
    field = next((name for name in _TEXTS if name in row and not isinstance(row[name], (Mapping, list))), None)
    if found is not None and (field is None or (found.kind == "pairs" and not found.verbatim)):
        rows = found.rows(row, Context())
        return Asked(_filled([each["instruction"] for each in rows[:1]], "instruction"))
    if field is None:
        raise RowFault("no field 'instruction'", hint=f"{EXPECTED}; {named_fields(row)}")
    if field == "instruction":
        return Asked(_filled([with_input(row)], field), fields=(field, "input"))
    return Asked(_filled([row[field]], field), fields=(field,))


def _filled(texts: list[Any], field: str) -> tuple[str, ...]:
    for text in texts:
        if not isinstance(text, str) or not text.strip():
            what = "empty" if isinstance(text, str) else "no text"
            raise RowFault(f"field '{field}' is {what}", hint="give each row a text")
    return tuple(texts)
