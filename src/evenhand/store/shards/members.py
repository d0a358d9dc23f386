"""A folder that is made of other judges' verdicts: each of them has a folder of its own in it, below `judges`."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any

import orjson

from evenhand.core.engine import Usage
from evenhand.core.errors import InputError
from evenhand.core.judge import Conversation, Judgment, Setup
from evenhand.core.pair import Pair
from evenhand.core.verdict import Outcome
from evenhand.engines.made import is_made, members_of
from evenhand.store import JudgeRow
from evenhand.store.records import MemberUsage
from evenhand.store.shards.place import Place
from evenhand.store.shards.reading import Finished, Shards
from evenhand.store.shards.schema import has_ended, pair_of, row_name, verdicts_by_order
from evenhand.store.shards.writing import JUDGE, PART

MEMBERS = "judges"  # the folder in which the folders of the judges lie
Said = Mapping[str, Outcome]
_PAIR = ("instruction", "output_1", "output_2", "name", "model_1", "model_2", "labels", "metadata", "candidate")
_VERDICTS = ("key", "verdicts", "outcomes.list.element.said")
_TEXT = "conversations.list.element.answers.list.element.text"


def member_place(folder: Place, setup: Setup) -> Place:
    """Where a judge keeps what it says: named by its model for people, by its fingerprint for the program."""
    name = re.sub(r"[^\w.-]+", "-", setup.engine.identity["model"]).strip("-.")[:40] or "judge"
    return folder.below(f"{MEMBERS}/{name}-{setup.fingerprint[:8]}")


def refuse_asked(folder: Place) -> None:
    """Refuse a folder with verdicts of a judge that was asked: those cannot be made again."""
    if folder.has(JUDGE) and not is_made(orjson.loads(folder.read(JUDGE))["identity"]):
        raise InputError(
            f"{folder.name} holds verdicts of one judge, not of several",
            hint="write into another folder",
        )


class MemberFolder:
    """What one judge said, pair by pair; a folder in which nothing is yet is that of one who said nothing."""

    def __init__(self, place: Place) -> None:
        self.shards = Shards(place) if place.has(JUDGE) and place.names(PART, ".parquet") else None

    def rows(self) -> Iterator[list[tuple[Pair, Said | None]]]:
        """Every pair that counts, some at a time, and what was said of it; None where that has no end yet."""
        for batch in self.shards.batches([*_PAIR, *_VERDICTS]) if self.shards else ():
            yield [(pair_of(fields), _said(fields)) for fields in batch.to_pylist()]

    def said(self, pairs: Sequence[Pair]) -> list[Said | None]:
        """What was said of each of these pairs."""
        numbers = [self._number(pair) for pair in pairs]
        found = self._said_in(sorted({number for number in numbers if number is not None}))
        return [None if number is None else found[number] for number in numbers]

    def __contains__(self, pair: Pair) -> bool:
        return self._number(pair) is not None

    @cached_property
    def _index(self) -> tuple[Finished, list[int]]:
        """The names of all rows that count, and their numbers."""
        names, numbers = [], []
        for some, batch in self.shards.numbered(["name", "key"]) if self.shards else ():
            keys = zip(*(batch.column(name).to_pylist() for name in ("name", "key")), strict=True)
            names += [row_name(name, key) for name, key in keys]
            numbers += some.tolist()
        return Finished(names), numbers

    def _number(self, pair: Pair) -> int | None:
        names, numbers = self._index
        place = names.place(pair)
        return None if place is None else numbers[place]

    def _said_in(self, numbers: Sequence[int]) -> dict[int, Said | None]:
        """What was said in some rows; only the files that hold them are read."""
        import numpy as np

        found: dict[int, Said | None] = {}
        for part in self.shards.parts if self.shards else ():
            wanted = [number for number in numbers if part.first < number <= part.first + part.rows]
            if not wanted or self.shards is None:
                continue
            for some, batch in self.shards.numbered(_VERDICTS, [part], every=True):
                places = np.flatnonzero(np.isin(some, wanted))
                rows = batch.take(places).to_pylist()
                found |= {int(some[place]): _said(row) for place, row in zip(places, rows, strict=True)}
        return found


def _said(fields: Mapping[str, Any]) -> Said | None:
    if not has_ended(fields):
        return None
    conversations = {order: Conversation(verdicts) for order, verdicts in verdicts_by_order(fields).items()}
    return Judgment.outcomes_of(conversations)


def said_together(members: Sequence[MemberFolder]) -> Iterator[list[tuple[Pair, list[Said | None]]]]:
    """Every pair that any of the judges was given, each once, and what each of them said of it."""
    for number, member in enumerate(members):
        for rows in member.rows():
            fresh = [(pair, said) for pair, said in rows if not any(pair in before for before in members[:number])]
            pairs = [pair for pair, _ in fresh]
            later = [other.said(pairs) for other in members[number + 1 :]]
            yield [
                (pair, [*[None] * number, said, *others])
                for (pair, said), *others in zip(fresh, *later, strict=True)
            ]


# -- a made folder, read ---------------------------------------------------------------------------------------


def made_words(shards: Shards) -> Iterator[Mapping[str, Any]]:
    """The word that is kept about each pair of a made folder: who spoke, or who decided."""
    for batch in shards.batches([_TEXT]):
        for fields in batch.to_pylist():
            [word, *_] = [answer["text"] for one in fields["conversations"] for answer in one["answers"]]
            yield json.loads(word)


def members_used(shards: Shards, made: JudgeRow) -> list[MemberUsage]:
    """The judges that a made folder rests on, the tokens of each, and about how many pairs it was asked."""
    known: dict[str, MemberUsage] = {}
    for place in shards.place.below(MEMBERS).folders():
        member = MemberFolder(place).shards
        if member is not None:
            row = member.judges()[0]
            known[row.fingerprint] = MemberUsage(row, member.usage(row)[0], row.pairs)
    return [known.get(mark, MemberUsage(None, Usage(), 0)) for mark in members_of(made.identity)]
