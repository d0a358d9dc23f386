"""Numbers in sentences."""

from __future__ import annotations


def count(number: int, one: str) -> str:
    """A number of things.

    >>> count(1, "pair"), count(2000, "pair")
    ('1 pair', '2,000 pairs')
    """
    return f"{number:,} {one}" + ("" if number == 1 else "s")
