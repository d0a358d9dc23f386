"""Results as plain data for JSON: a dataclass becomes an object with its fields, in their order."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from typing import Any

from evenhand.core.steering import STEERING


def plain(value: Any) -> Any:
    """A result as JSON can hold it.

    A field's metadata may say otherwise: `json=False` leaves it out, `json="name"` gives it another name, and
    `json=None` leaves it out where it is None.

    >>> from evenhand.core.stats.winrate import win_rate
    >>> plain({"rates": (win_rate(1, 0, 1).value,)})
    {'rates': [0.5]}
    """
    if hasattr(value, "plain"):
        return plain(value.plain())
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return dict(_field(value, field) for field in dataclasses.fields(value) if _is_told(value, field))
    if isinstance(value, Mapping):
        return {str(name): plain(item) for name, item in value.items()}
    if isinstance(value, (list, tuple, set, frozenset)):
        return [plain(item) for item in value]
    return value.item() if hasattr(value, "item") else value


def to_json(value: Any) -> str:
    """A result as the text that `--json` prints; nothing in it can steer a terminal.

    >>> to_json({"n": 1})
    '{\\n  "n": 1\\n}'
    >>> print(to_json("é \\x9b"))
    "é \\u009b"
    """
    text = json.dumps(plain(value), ensure_ascii=False, indent=2)
    return STEERING.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


def _is_told(value: Any, field: dataclasses.Field[Any]) -> bool:
    how = field.metadata.get("json", True)
    return how is not False and (how is not None or getattr(value, field.name) is not None)


def _field(value: Any, field: dataclasses.Field[Any]) -> tuple[str, Any]:
    how = field.metadata.get("json", True)
    return how if isinstance(how, str) else field.name, plain(getattr(value, field.name))
