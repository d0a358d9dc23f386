"""A reason cut into clauses, each about one side, and phrases that two clauses may share.

    "Response 1 is right, but Response 2 misses the point. It is also too long."
        1  is right
        2  misses the point          phrases: misses the point, misses, point
        2  it is also too long       phrases: too long, long

Phrases are the same if their stems are, without articles; they are shown as they were first written. The words
that are left out are English; a reason in another language is cut in the same way, and has some phrases that say
little.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import lru_cache
from typing import NamedTuple

from evenhand.core.pair import Side

LONGEST = 4  # words of a phrase, articles not counted
_SPLIT = re.compile(
    r"[.!?;\n]+(?=\s|$)|\n|,?\s*\b(?:but|while|whereas|however|although|though|yet)\b|,\s*(?:and|so|which)\b|:\s",
    re.IGNORECASE,
)
_MENTION = re.compile(
    r"(?P<other>\b(?:than|unlike|compared (?:to|with)|over|like|as)\s+)?\bresponse ([12])\b(?:['’]s)?", re.I
)
_BOTH = re.compile(r"\b(?:both|neither|responses|each)\b", re.IGNORECASE)
_WORD = re.compile(r"[^\W_]+(?:['’][^\W_]+)*", re.UNICODE)
_NOT = re.compile(r"n['’]t$")
_ARTICLES = frozenset(["a", "an", "the"])
_NEGATIONS = frozenset(("not", "no", "never", "without", "too", "nothing", "none", "nor"))
_OF_A_VERB = frozenset(("out", "off", "down"))  # leaves out, breaks off
# What every reason speaks of; a blame only where it is denied: "does not answer the question".
_TASK_WORDS = "answer answers answered question instruction instructions prompt user person request asked"
_TASK = frozenset(_TASK_WORDS.split())
# Words that carry no reason by themselves, and stand at neither end of a phrase.
_STOP_WORDS = """
i you he she it we they me him her us them my your his its our their this that these those there here who whom
whose which what when where why how all any both each few more most other some such only own same so than very
is am are was were be been being has have had having does do did doing will would shall should can could may
might must of at by for with about against between into through during before after above below to from up down
in out on off over under again further then once and but if or because as until while also just even quite
rather really well make makes made making give gives given gave provide provides provided use uses used response
responses assistant output outputs ask asks better best worse worst good bad one two first second less least
overall therefore thus whereas however although though seem seems say says said get gets way lot much many bit
like
"""
_STOP = _TASK | frozenset(_STOP_WORDS.split())


class Clause(NamedTuple):
    """A piece of a reason and the side that it is about."""

    side: Side
    text: str


class Phrase(NamedTuple):
    """Words that may be found again in another reason: their stems, and as they were written."""

    stems: tuple[str, ...]
    text: str


def clauses(reason: str) -> Iterator[Clause]:
    """The pieces of a reason that are about one side; what names none is about the side that was named last.

    >>> list(clauses("Unlike Response 2, Response 1 is right. It is short. Both are polite."))
    [Clause(side='1', text='Unlike Response 2, Response 1 is right'), Clause(side='1', text='It is short')]
    """
    last: Side | None = None
    for text in map(str.strip, _SPLIT.split(reason)):
        named = [match[2] for match in _MENTION.finditer(text) if not match["other"]]
        if not named and _BOTH.search(text):
            last = None
            continue
        last = ("1" if named[0] == "1" else "2") if named else last
        if last is not None and text:
            yield Clause(last, text)


def phrases(text: str) -> Iterator[Phrase]:
    """Every run of up to four words that does not begin or end on a word without meaning of its own.

    >>> sorted({phrase.text for phrase in phrases("Response 2 misses the point")})
    ['misses', 'misses the point', 'point']
    >>> [phrase.text for phrase in phrases("it doesn't answer")]
    ["doesn't answer"]
    """
    for piece in _MENTION.split(text)[::3]:
        words = [match for match in _WORD.finditer(piece) if match[0].lower() not in _ARTICLES]
        kinds = [_kind(word[0].lower()) for word in words]
        for begin, first in enumerate(kinds):
            for end in range(begin, min(begin + LONGEST, len(words)) if first.begins else begin):
                if _ends(first, kinds[end], alone=end == begin):
                    stems = tuple([kind.stem for kind in kinds[begin : end + 1]])
                    yield Phrase(stems, " ".join(piece[words[begin].start() : words[end].end()].split()))


class _Kind(NamedTuple):
    """What a word may do in a phrase."""

    stem: str
    begins: bool  # a phrase: it has a meaning of its own, or denies something
    denies: bool
    ends: bool  # a phrase, whatever stands before it
    word: str


@lru_cache(maxsize=50_000)
def _kind(word: str) -> _Kind:
    negated = bool(_NOT.search(word))
    denies = negated or word in _NEGATIONS
    ends = not denies and word not in _STOP and len(word) > 2 and not word.isdigit()
    return _Kind(stem(word), denies or word not in _STOP, denies, ends, word)


def _ends(first: _Kind, last: _Kind, *, alone: bool) -> bool:
    """Whether a phrase that begins with one word may end on another."""
    return last.ends or (not alone and (last.word in _OF_A_VERB or (first.denies and last.word in _TASK)))


def stem(word: str) -> str:
    """A word without its ending, so that its forms are one; rough, and for nothing but counting.

    >>> [stem(word) for word in ("misses", "missing", "missed", "facts", "doesn't", "class")]
    ['miss', 'miss', 'miss', 'fact', 'not', 'class']
    """
    if _NOT.search(word):
        return "not"
    for ending in ("ing", "ed", "es", "s"):
        if word.endswith(ending) and len(word) - len(ending) >= 4 and not word.endswith("ss"):
            return word.removesuffix(ending).rstrip("e")
    return word.rstrip("e") if len(word) > 4 else word


def stems_of(text: str) -> tuple[str, ...]:
    """All words of a text by their stems, without articles.

    >>> stems_of("It missed the points.")
    ('it', 'miss', 'point')
    """
    words = (match[0].lower() for match in _WORD.finditer(text))
    return tuple(stem(word) for word in words if word not in _ARTICLES)
