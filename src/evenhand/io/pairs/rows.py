"""A row of a file of pairs read into a Pair."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from evenhand.core.faults import RowFault
from evenhand.core.pair import TEXT_FIELDS, Pair, Side, read_label
from evenhand.io.files.reading import parse_object

_NAMES = ("id", "model_1", "model_2")


def pair_from(row: Mapping[str, Any]) -> Pair:
    """A Pair out of one row of a file; raises ValueError that says which field is at fault.

    >>> pair_from({"instruction": "Hi", "output_1": "x", "output_2": "y", "label": "B", "topic": "talk"})
    Pair(instruction='Hi', output_1='x', output_2='y', id='pair-443a17e551bb', model_1='', model_2='',
    labels={'overall': '2'}, metadata={'topic': 'talk'})
    """
    rest = dict(row)
    try:
        task, one, two = [rest.pop(name) for name in TEXT_FIELDS]
    except KeyError as missing:
        raise RowFault(f"no field {missing}", hint=_remedy(row)) from None
    name, model_1, model_2 = [name_in(rest.pop(key), key) if key in rest else "" for key in _NAMES]
    labels = _labels(rest) if "labels" in rest or "label" in rest else {}
    check_encodable(rest)
    return Pair(task, one, two, name, model_1, model_2, labels, rest)


def _remedy(row: Mapping[str, Any]) -> str:
    """What to do about a row that is no pair."""
    if "output" in row or "choices" in row or "messages" in row:
        return "these look like one model's outputs: give two such files with --candidate and --baseline"
    return f"expected rows with the fields instruction, output_1 and output_2; {named_fields(row)}"


def named_fields(row: Mapping[str, Any], most: int = 12) -> str:
    """The fields that a row has, for a message.

    >>> named_fields({"prompt": "Hi", "chosen": "x"})
    'found prompt, chosen'
    """
    names = [str(name) for name in row][:most]
    return f"found {', '.join(names)}{', …' if len(row) > most else ''}" if names else "the row has no fields"


def _labels(rest: dict[str, Any]) -> dict[str, Side]:
    """Take `label` (overall) and `labels` (per dimension) out of the row."""
    found = rest.pop("labels", None) or {}
    if isinstance(found, str):  # a CSV cell can only hold text
        found = parse_object(found.encode(errors="surrogatepass"))
    if not isinstance(found, Mapping):
        raise RowFault("field 'labels' is not an object of dimension: label")
    labels = {dimension: read_label(value) for dimension, value in found.items()}
    if "label" in rest:
        label = read_label(rest.pop("label"))
        labels["overall"] = labels.get("overall") or label
    return {dimension: label for dimension, label in labels.items() if label is not None}


def check_encodable(fields: Mapping[str, Any]) -> None:
    """Refuse half of a surrogate pair, which no file or database can hold, wherever it stands.

    >>> check_encodable({"tags": ["\\ud800"]})
    Traceback (most recent call last):
    evenhand.core.faults.RowFault: field 'tags' holds a lone surrogate
    """
    for name, value in fields.items():
        text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)
        try:
            f"{name}{text}".encode()
        except UnicodeEncodeError:
            raise RowFault(
                f"field '{name}' holds a lone surrogate", hint="--skip-bad leaves such rows out"
            ) from None


def name_in(value: Any, key: str) -> str:
    """A name that a field holds; "" where it holds none."""
    if isinstance(value, (dict, list, bool)):
        raise RowFault(f"field '{key}' is of type {type(value).__name__}, not a name", hint="write it as text")
    return "" if value is None else str(value)
