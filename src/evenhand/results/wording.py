"""Numbers and names in sentences."""

from __future__ import annotations

from collections.abc import Sequence


def count(number: int, one: str) -> str:
    """A number of things.

    >>> count(1, "pair"), count(2000, "pair")
    ('1 pair', '2,000 pairs')
    """
    return f"{number:,} {one}" + ("" if number == 1 else "s")


def listed(names: Sequence[str]) -> str:
    """Some names in words.

    >>> listed(["a"]), listed(["a", "b"]), listed(["a", "b", "c"])
    ('a', 'a and b', 'a, b and c')
    """
    return " and ".join(filter(None, (", ".join(names[:-1]), names[-1])))
