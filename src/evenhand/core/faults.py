"""What is wrong with one row, before its place is known."""

from __future__ import annotations

from evenhand.core.errors import InputError


class RowFault(ValueError):
    """A row that cannot be used; `hint` is the remedy.

    >>> str(RowFault("no field 'output'", hint="write one"))
    "no field 'output'"
    """

    def __init__(self, fault: str, *, hint: str = "") -> None:
        super().__init__(fault)
        self.hint = hint


def message_and_hint(fault: ValueError | InputError) -> tuple[str, str]:
    """A fault in two parts: what is wrong, and the remedy.

    >>> message_and_hint(RowFault("no field 'output'", hint="write one"))
    ("no field 'output'", 'write one')
    """
    if isinstance(fault, InputError):
        return fault.message, fault.hint
    return str(fault), getattr(fault, "hint", "")
