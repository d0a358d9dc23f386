"""What a server sends, taken with care: numbers within bounds, shapes as expected, or a `bad_response`.

    count             a number of tokens, at least 0 and at most MOST_TOKENS
    log_probability   a log-probability, at most 0; None where it is none
    state_vector      the state of a model, as it is
    sound             a block that reads a reply: whatever it trips over is an EngineError

A server may send anything. None of it may end a run: the answers of other prompts are paid for and under way.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from evenhand.core.errors import EngineError

# More than any context; sums of billions of them still fit a database's integers.
MOST_TOKENS = 2**31
# A state as it is has a length of ten and more; one that was brought to length one is off by rounding.
_LENGTH_ONE = 1e-3
_LARGEST = 1e30  # what no model computes, and no number of 32 bits holds the square of
_FAULTS = (ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError)


def count(value: Any) -> int:
    """A number of tokens; what is no number counts as none.

    >>> count(12), count(2**63), count(-1), count("many"), count(True)
    (12, 2147483648, 0, 0, 0)
    """
    if not isinstance(value, int) or isinstance(value, bool):
        return 0
    return min(max(value, 0), MOST_TOKENS)


def log_probability(value: Any) -> float | None:
    """A log-probability. Rounding lets some servers send a little more than 0, and none can mean much more.

    >>> log_probability(-1), log_probability(710.5), log_probability(float("nan")), log_probability(None)
    (-1.0, 0.0, None, None)
    """
    if not isinstance(value, (float, int)) or isinstance(value, bool):
        return None
    if value > 0:  # an int may be too large for a float
        return 0.0
    return float(max(value, -1e9)) if not math.isnan(value) else None


def bad_response(message: str) -> EngineError:
    """The error for a reply that makes no sense; the next one may."""
    return EngineError(message, reason="bad_response", retryable=True)


def state_vector(values: Any, who: str, hint: str) -> tuple[float, ...]:
    """The state of a model as a server sends it; one that was brought to length one has lost what it was to tell.

    >>> state_vector([3, 4.5], "x", "")
    (3.0, 4.5)
    """
    with sound(who):
        vector = tuple(map(float, values))
    size = math.hypot(*vector)
    if not vector or not size < _LARGEST:  # nor is it where that is no number
        raise bad_response(f"{who} gave a state that is no row of numbers")
    if abs(size - 1.0) < _LENGTH_ONE:
        message = f"{who} gives states that were brought to length one"
        raise EngineError(message, reason="normalised_states", fatal=True, hint=hint)
    return vector


@contextmanager
def sound(who: str = "the server") -> Iterator[None]:
    """Read a reply in here: a field that is missing or of another type than it should be is a bad response.

    >>> with sound("x"):
    ...     {}["tokens"]
    Traceback (most recent call last):
    evenhand.core.errors.EngineError: x answered in a form that cannot be read: KeyError('tokens')
    """
    try:
        yield
    except _FAULTS as fault:
        raise bad_response(f"{who} answered in a form that cannot be read: {_named(fault)}") from fault


def token_ids(value: Any) -> list[int]:
    """Token ids as a server lists them.

    >>> token_ids([1, 2])
    [1, 2]
    """
    if not isinstance(value, list) or not all(_is_id(number) for number in value):
        raise TypeError("a list of token ids was expected")
    return value


def _is_id(value: Any) -> bool:
    return type(value) is int and 0 <= value < 2**31


def text_of(value: Any) -> str:
    """A text, and nothing that merely can be written as one.

    >>> text_of(None)
    Traceback (most recent call last):
    TypeError: a text was expected, and came NoneType
    """
    if not isinstance(value, str):
        raise TypeError(f"a text was expected, and came {type(value).__name__}")
    return value


def _named(fault: Exception) -> str:
    return f"{type(fault).__name__}({str(fault)[:200]})"
