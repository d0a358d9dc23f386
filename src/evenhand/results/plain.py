"""Results as plain data for JSON: a dataclass becomes an object with its fields, in their order."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any


def plain(value: Any) -> Any:
    """A result as JSON can hold it; a field whose metadata say `json=False` is left out.

    >>> from evenhand.stats.winrate import win_rate
    >>> plain({"rates": (win_rate(1, 0, 1).value,)})
    {'rates': [0.5]}
    """
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        fields = [field for field in dataclasses.fields(value) if field.metadata.get("json", True)]
        return {field.name: plain(getattr(value, field.name)) for field in fields}
    if isinstance(value, Mapping):
        return {str(name): plain(item) for name, item in value.items()}
    if isinstance(value, (list, tuple, set, frozenset)):
        return [plain(item) for item in value]
    return value
