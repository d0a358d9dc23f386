"""A Pair: what is compared. A plain value that knows nothing of files."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, get_args

from evenhand.core.errors import InputError
from evenhand.core.faults import RowFault

Side = Literal["1", "2", "tie"]
TEXT_FIELDS = ("instruction", "output_1", "output_2")
_NAMES = ("id", "model_1", "model_2")
_STRINGS = (*TEXT_FIELDS, *_NAMES)
DIMENSIONS = ("precision", "correctness", "format", "overall")
# The name under which the parts of a judgment come together; people answer the same question as "overall".
COMBINED = "combined"
# What a judge is asked of one response, yes or no: of response A as it is shown, of response B beside it. Judged in
# both orders, each is a comparison of the two.
GOOD_1, GOOD_2 = "good_1", "good_2"
POINTWISE_DIMENSIONS = (GOOD_1, GOOD_2)
_SKIP = "--skip-bad leaves such rows out"

_TURNED: dict[Side, Side] = {"1": "2", "2": "1", "tie": "tie"}
# Data sets name the winner in many ways; all of them mean a side of the pair as it stands in the file.
_LABELS: dict[str, Side] = {
    **dict.fromkeys(("1", "a", "output_1", "model_1", "model_a", "response_a", "a>b", "a>>b"), "1"),
    **dict.fromkeys(("2", "b", "output_2", "model_2", "model_b", "response_b", "b>a", "b>>a"), "2"),
    **dict.fromkeys(("tie", "0", "equal", "a=b", "b=a"), "tie"),
}


@dataclass(frozen=True, slots=True)
class Pair:
    """An instruction and two responses to it.

    >>> pair = Pair("2 + 2?", "4", "5", labels={"overall": "1"})
    >>> pair.id, pair.shown("swapped")
    ('pair-3c1872ddf21e', ('5', '4'))
    """

    instruction: str
    output_1: str
    output_2: str
    id: str = ""
    model_1: str = ""
    model_2: str = ""
    labels: Mapping[str, Side] = field(default_factory=dict)
    metadata: Mapping[str, Any] = field(default_factory=dict)
    # The side whose model is on trial; the other is the baseline. Empty where no roles were given.
    candidate: Literal["", "1", "2"] = field(default="", repr=False, compare=False)
    _key: str = field(default="", init=False, repr=False, compare=False)  # made once: it is a hash of all the text

    def __post_init__(self) -> None:
        texts = (self.instruction, self.output_1, self.output_2, self.id, self.model_1, self.model_2)
        for name, text in zip(_STRINGS, texts, strict=True):
            if text.__class__ is not str or not text.isascii():  # known without a look at the text
                _check_text(name, text)
        for dimension, label in self.labels.items():
            if not dimension.isascii():
                _check_text("labels", dimension)
            if label not in get_args(Side):
                raise InputError(f"the label of {dimension} is {label!r}", hint="write '1', '2' or 'tie'")
        if not self.id:
            object.__setattr__(self, "id", f"pair-{self.key[:12]}")

    @property
    def key(self) -> str:
        """The hash of the three texts: two pairs with the same key are the same question."""
        if not self._key:
            object.__setattr__(self, "_key", digest(self.instruction, self.output_1, self.output_2))
        return self._key

    @property
    def texts(self) -> tuple[str, str, str]:
        """The three texts that a judge is shown."""
        return self.instruction, self.output_1, self.output_2

    def turned(self) -> Pair:
        """The same pair with its sides exchanged.

        >>> pair = Pair("Hi", "x", "y", model_1="m", labels={"overall": "1"}, candidate="1").turned()
        >>> pair.output_1, pair.model_2, pair.labels, pair.candidate
        ('y', 'm', {'overall': '2'}, '2')
        """
        labels = {dimension: _TURNED[label] for dimension, label in self.labels.items()}
        other: Literal["", "1", "2"] = "2" if self.candidate == "1" else "1" if self.candidate == "2" else ""
        names = (self.id, self.model_2, self.model_1)
        return Pair(self.instruction, self.output_2, self.output_1, *names, labels, self.metadata, other)

    def shown(self, order: str) -> tuple[str, str]:
        """The texts behind Response A and Response B in this order."""
        return (self.output_1, self.output_2) if order == "forward" else (self.output_2, self.output_1)


def read_label(value: object) -> Side | None:
    """The side that a data set's label names; None where it names none.

    >>> read_label("A"), read_label(2), read_label("Tie"), read_label(None)
    ('1', '2', 'tie', None)
    """
    if value is None or value == "":
        return None
    label = _LABELS.get(str(value).strip().lower())
    if label is None:
        raise RowFault(f"label {value!r} is none of 1, 2, A, B, tie", hint=_SKIP)
    return label


def digest(*texts: str) -> str:
    """A hash of texts that no other cut between them shares: ("ab", "c") differs from ("a", "bc").

    >>> digest("ab", "c") == digest("a", "bc")
    False
    """
    parts = [text.encode() for text in texts]
    # One call over all of it takes half the time of one call for each part.
    return hashlib.sha256(b"".join([len(part).to_bytes(8, "big") + part for part in parts])).hexdigest()


def short_hash(text: str) -> int:
    """Eight bytes that stand for a text where all that matters is whether it was seen."""
    return int.from_bytes(hashlib.blake2b(text.encode(errors="replace"), digest_size=8).digest(), "big")


def _check_text(name: str, value: object) -> None:
    if not isinstance(value, str):
        kind = "null" if value is None else f"of type {type(value).__name__}"
        raise InputError(f"field '{name}' is {kind}, not text", hint=f"write it as text, or {_SKIP}")
    try:
        value.encode()
    except UnicodeEncodeError as fault:
        raise InputError(f"field '{name}' holds a lone surrogate at character {fault.start}", hint=_SKIP) from None


def excerpt(text: str, most: int = 60) -> str:
    """The beginning of a text, on one line.

    >>> excerpt("one\\n two"), excerpt("one two three", 9)
    ('one two', 'one two …')
    """
    line = " ".join(text[: 4 * most].split())
    return line if len(line) <= most and len(text) <= 4 * most else line[: most - 1] + "…"
