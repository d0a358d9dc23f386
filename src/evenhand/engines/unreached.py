"""What can go wrong between a request and its answer, with any client."""

from __future__ import annotations


class Unreachable(OSError):
    """No connection came about: not in time (`late`), or for a reason that will not pass (`lasting`)."""

    def __init__(self, why: str, *, late: bool = False, lasting: bool = False) -> None:
        super().__init__(why)
        self.late, self.lasting = late, lasting


class Broken(OSError):
    """The connection was cut before the answer was whole, or the answer is no HTTP, or may be another's."""


class TooLarge(Exception):
    """The answer is larger than what is taken."""
