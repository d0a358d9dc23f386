"""Which judges of a database are meant: one way for every command that takes --judge or --protocol."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TypeVar

from evenhand.core.errors import InputError
from evenhand.results.wording import some_of
from evenhand.store import JudgeEntry, JudgeRow

# A fingerprint may be given by its beginning, of so many digits at least.
SHORTEST_PREFIX = 4
# So many digits of it are shown, which is enough to tell judges apart.
SHOWN_DIGITS = 8
# Judges that are made of others are called by what they are, too: "jury of a, b" by jury.
MADE = ("jury", "escalation")


AnyJudge = TypeVar("AnyJudge", JudgeRow, JudgeEntry)


def is_called(judge: JudgeRow | JudgeEntry, word: str) -> bool:
    """Whether a word names a judge: model, protocol, model/protocol, or the beginning of the fingerprint."""
    names = (judge.protocol, judge.model, f"{judge.model}/{judge.protocol}")
    if word in MADE and judge.model.startswith(f"{word} of "):
        return True
    return word in names or (len(word) >= SHORTEST_PREFIX and judge.fingerprint.startswith(word))


def own_digits(judge: JudgeRow | JudgeEntry, judges: Iterable[JudgeRow | JudgeEntry]) -> str:
    """The beginning of a judge's fingerprint where others have its model and protocol, too; else nothing."""
    alike = sum((other.model, other.protocol) == (judge.model, judge.protocol) for other in judges)
    return judge.fingerprint[:SHOWN_DIGITS] if alike > 1 else ""


def title_of(judge: JudgeRow | JudgeEntry, judges: Sequence[JudgeRow | JudgeEntry]) -> str:
    """What to call a judge among others: its model and protocol, and its fingerprint where these name several."""
    digits = own_digits(judge, judges)
    return f"{judge.model} under {judge.protocol}" + (f" ({digits})" if digits else "")


def judges_named(judges: Iterable[AnyJudge], word: str = "", protocol: str = "") -> list[AnyJudge]:
    """The judges that a word names, under a protocol; without either, all of them."""
    return [judge for judge in judges if (not word or is_called(judge, word)) and protocol in ("", judge.protocol)]


def judges_there(judges: Iterable[JudgeRow | JudgeEntry]) -> str:
    """The judges there are, by names that --judge takes; empty where there is none."""
    names = list(dict.fromkeys(f"{judge.model}/{judge.protocol}" for judge in judges))
    return f"judges there: {some_of(names)}" if names else ""


def one_judge(judges: Iterable[AnyJudge], word: str, db: object, protocol: str = "") -> AnyJudge:
    """The one judge of a database that a word names, under a protocol; InputError where that is not one."""
    every = list(judges)
    named = judges_named(every, word, protocol)
    if not named:
        raise InputError(f"no judge in {db} is called {word!r}", hint=judges_there(every) or "there are no judges")
    if len(named) > 1:
        some = ", ".join(f"{judge.fingerprint[:SHOWN_DIGITS]} under {judge.protocol}" for judge in named[:6])
        raise InputError(
            f"{len(named):,} judges are called {word!r}: {some}", hint="give model/protocol, or a fingerprint"
        )
    return named[0]


def choose_judges(judges: Iterable[AnyJudge], word: str) -> list[tuple[AnyJudge, str]]:
    """The judges that a word names, each with the one dimension that is meant, or "" for all.

    The word may end on :DIMENSION.
    """
    every = list(judges)
    if named := judges_named(every, word) if word else []:
        return [(judge, "") for judge in named]
    word, colon, dimension = word.rpartition(":")
    return [(judge, dimension) for judge in every if is_called(judge, word)] if colon else []
