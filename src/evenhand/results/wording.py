"""Numbers and names in sentences."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

from evenhand.core.pair import excerpt

if TYPE_CHECKING:
    from evenhand.core.stats.clustered import Estimate
    from evenhand.io.pairs import Unmatched

_LONGEST_EXAMPLE = 200  # characters of an answer that is shown


def about(number: float) -> int:
    """A number that is known roughly, rounded up to two digits.

    >>> about(3.2), about(118), about(1874), about(0)
    (4, 120, 1900, 0)
    """
    if number <= 0:
        return 0
    digits = max(0, math.floor(math.log10(number)) - 1)
    return int(math.ceil(number / 10**digits) * 10**digits)


def count(number: int, one: str) -> str:
    """A number of things.

    >>> count(1, "pair"), count(2000, "pair")
    ('1 pair', '2,000 pairs')
    """
    return f"{number:,} {one}" + ("" if number == 1 else "s")


def percent(share: float | None, digits: int = 1) -> str:
    """A share for a reader.

    >>> percent(0.5), percent(0.5, 0), percent(None)
    ('50.0%', '50%', '–')
    """
    return "–" if share is None else f"{100 * share:.{digits}f}%"


def share_text(found: Estimate) -> str:
    """A share with its interval.

    >>> from evenhand.core.stats.clustered import Estimate
    >>> share_text(Estimate(0.5, 0.42, 0.58, 100, 100)), share_text(Estimate(0.5, None, None, 9, 1))
    ('50% (42–58)', '50%')
    """
    ends = "" if found.low is None or found.high is None else f" ({100 * found.low:.0f}–{100 * found.high:.0f})"
    return f"{percent(found.value, 0)}{ends}"


def anytime_text(interval: tuple[float, float], level: float) -> str:
    """An interval of a share that holds at every moment.

    >>> anytime_text((0.456, 0.5541), 0.95)
    'between 45.6 and 55.4% (95%, at every moment)'
    """
    return f"between {100 * interval[0]:.1f} and {percent(interval[1])} ({100 * level:g}%, at every moment)"


def signed(number: float | None) -> str:
    """A number between -1 and 1 with its sign; what rounds to nothing has no minus.

    >>> signed(-0.25), signed(-0.001), signed(None)
    ('-0.25', '+0.00', '–')
    """
    return "–" if number is None else f"{number:+z.2f}"


def attacked_field(pairs: int) -> dict[str, int]:
    """How many attacked pairs were left out, as JSON has it: nothing where there are none.

    >>> attacked_field(3), attacked_field(0)
    ({'attacked': 3}, {})
    """
    return {"attacked": pairs} if pairs else {}


def attacked_text(pairs: int) -> str:
    """How many attacked pairs were left out, in words.

    >>> attacked_text(1)
    '1 attacked pair left out: it says how the judge stands against attacks, and nothing of the models'
    """
    it_says = "it says" if pairs == 1 else "they say"
    attacked = count(pairs, "attacked pair")
    return f"{attacked} left out: {it_says} how the judge stands against attacks, and nothing of the models"


def sureness_text(over: Estimate) -> str:
    """Whether a judge is too sure, from its mean confidence less its accuracy; empty where nothing is known.

    >>> from evenhand.core.stats.clustered import Estimate
    >>> sureness_text(Estimate(0.2, 0.11, 0.3, 90, 90)), sureness_text(Estimate(-0.08, -0.15, -0.01, 176, 39))
    ('20 points too sure', '8 points less sure than right')
    >>> sureness_text(Estimate(0.2, -0.35, 0.71, 9, 9)), sureness_text(Estimate(None, None, None, 0, 0))
    ('not shown to be too sure or too unsure', '')
    """
    if over.value is None:
        return ""
    if over.low is None or over.high is None or over.low <= 0 <= over.high:
        return "not shown to be too sure or too unsure"
    return f"{100 * abs(over.value):.0f} points {'too sure' if over.value > 0 else 'less sure than right'}"


def listed(names: Sequence[str]) -> str:
    """Some names in words.

    >>> listed(["a"]), listed(["a", "b"]), listed(["a", "b", "c"])
    ('a', 'a and b', 'a, b and c')
    """
    return " and ".join(filter(None, (", ".join(names[:-1]), names[-1])))


def some_of(names: Sequence[str], most: int = 8) -> str:
    """Names in a sentence; of many, the first.

    >>> some_of(["a", "b"]), some_of(["a", "b", "c"], 2)
    ('a, b', 'a, b and 1 more')
    """
    more = f" and {len(names) - most:,} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more


def unmatched_text(each: Unmatched) -> str:
    """How many instructions a model did not answer, and the first few of them.

    >>> from evenhand.io.pairs import Unmatched
    >>> print(unmatched_text(Unmatched("new", 3, ("2 + 2?", "2 + 3?"))))
    new has no output for 3 instructions, left out:
      2 + 2?
      2 + 3?
      and 1 more
    """
    more = [f"and {each.count - len(each.first):,} more"] if each.count > len(each.first) else []
    head = f"{each.model} has no output for {count(each.count, 'instruction')}, left out:"
    return "\n  ".join([head, *each.first, *more])


def example_text(text: str) -> str:
    """What a judge said that could not be read, short and on one line.

    >>> example_text("Response A\\nis better."), len(example_text("x" * 1000))
    ('for example: “Response A is better.”', 215)
    """
    return f"for example: “{excerpt(text, _LONGEST_EXAMPLE)}”"
