"""How outcomes are counted, in every view: what weighs the same in a rate, and whether exact repeats count."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, get_args

import numpy as np
from numpy.typing import NDArray

from evenhand.core.errors import InputError
from evenhand.core.stats.clusters import Weighting
from evenhand.io.spill_file import Part

WEIGHTINGS: tuple[Weighting, ...] = get_args(Weighting)


@dataclass(frozen=True, slots=True)
class Counting:
    """What weighs the same, each instruction or each pair; and whether a pair that stands twice counts twice."""

    weighting: Weighting = "instructions"
    keep_repeats: bool = False


DEFAULT = Counting()


def weighting_from(word: str) -> Weighting:
    """What a user's word means.

    >>> weighting_from("pairs")
    'pairs'
    """
    for weighting in WEIGHTINGS:
        if word == weighting:
            return weighting
    raise InputError(f"--weigh {word}", hint=f"one of {', '.join(WEIGHTINGS)}")


def weighs_text(weighting: Weighting) -> str:
    """What weighs the same, in words.

    >>> weighs_text("instructions")
    'each instruction weighs the same'
    """
    return f"each {weighting.removesuffix('s')} weighs the same"


def repeats_text(count: int) -> str:
    """How many repeats were left out, in words; empty for none.

    >>> repeats_text(12)
    '12 exact repeats left out: the same instruction, outputs and models as another pair'
    """
    if not count:
        return ""
    return (
        f"{count:,} exact repeat{'' if count == 1 else 's'} left out: the same instruction, outputs and models as"
        " another pair"
    )


def first_of_each(identity: NDArray[Any], number: NDArray[Any], invalid: NDArray[Any]) -> NDArray[np.bool_]:
    """Of the rows with one identity, the one that counts: a valid one, and of those the first by number.

    >>> first_of_each(np.array([7, 7, 8]), np.array([1, 2, 3]), np.array([True, False, False])).tolist()
    [False, True, True]
    """
    kept = np.ones(len(identity), dtype=bool)
    ordered = np.sort(identity)
    if not (ordered[1:] == ordered[:-1]).any():  # nearly always: then no second sort is due
        return kept
    order = np.lexsort((number, invalid, identity))
    kept[order[1:][identity[order[1:]] == identity[order[:-1]]]] = False
    return kept


def which_count(part: Part) -> NDArray[np.bool_]:
    """Which rows of a part count; equal pairs have one instruction and so are in one part."""
    return first_of_each(part["identity"], part["number"], part["side"] < 0)


def without_repeats(part: Part) -> Part:
    """The rows of a part that count."""
    kept = which_count(part)
    return part if kept.all() else {name: column[kept] for name, column in part.items()}
