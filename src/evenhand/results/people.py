"""What people said of the pairs: votes in the pairs' own file, votes in files of labels, and the majority of both.

Votes are looked for in three places, and count alike:

    the pairs' own file    `human` (a list or an object of votes), `dims` (the same by dimension)
    the table of labels    imported by `labels import`, or collected by evenhand
    `label`, `labels`      of the pairs' file, as the one voice of FILE where it gives no votes on that dimension
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from pathlib import Path
from typing import Any, TypeVar

from evenhand.core.errors import InputError, PairError
from evenhand.core.faults import RowFault
from evenhand.core.pair import TEXT_FIELDS, Pair, Side, digest
from evenhand.core.votes import (
    DESIGNS,
    FILE,
    OVERALL,
    ROLES,
    SHOWN,
    Design,
    Drawn,
    KeptVote,
    NamedVote,
    Role,
    Votes,
    by_dimension,
    final_label,
    gather_votes,
    own_votes,
    parsed,
    row_votes,
    side_of,
)
from evenhand.io.files import Row
from evenhand.io.files.finding import kind_of
from evenhand.io.files.writing import unharmed
from evenhand.io.pairs import read_rows
from evenhand.io.pairs.recognition import Context, recognise, rename_columns
from evenhand.io.pairs.rows import named_fields
from evenhand.store import HumanLabel, Records, Store
from evenhand.store.labels import LabelRow

_BATCH = 1000
_EXAMPLES = 5
FROM_FILE = Drawn("imported")
_KEY = re.compile("[0-9a-f]{64}")  # a Pair.key
# The words for fields in files of single votes.
_PERSON = ("annotator", "annotator_id", "worker", "rater", "user")
_SAID = ("label", "side", "verdict", "vote", "winner", "preference")
# The fields by which a row of `evenhand export judgments` or `verdicts` is known.
_EXPORTED = ("judge", "fingerprint", "pair", "key", "dimension", "verdict")


class People:
    """Who said what of a pair, over all places where votes stand.

    `rename` gives dimensions of the people the names that the judge's have: {"correctness_topical": "correctness"}.

    >>> pair = Pair("Hi", "x", "y", metadata={"human": ["A", "A", "tie"]})
    >>> with Store(":memory:") as store:
    ...     people = People(store)
    ...     people.votes(pair), people.label(pair, "overall"), people.label(pair, "format")
    ({'overall': {'annotator 1': '1', 'annotator 2': '1', 'annotator 3': 'tie'}}, '1', None)
    """

    def __init__(self, store: Records, *, rename: Mapping[str, str] | None = None) -> None:
        self._book = store.labels
        self._kept = store.labels.any()
        self._rename = dict(rename or {})
        self.unreadable = 0  # pairs with a field of votes that holds something else

    def votes(self, pair: Pair) -> dict[str, dict[str, Side]]:
        """The votes on a pair, by dimension and person; the table has the last word where both places speak."""
        found, readable = gather_votes(pair, self._said(pair, "annotator"), self._rename)
        self.unreadable += not readable
        return found

    def decisions(self, pair: Pair) -> dict[str, dict[str, Side]]:
        """What adjudicators decided of a pair, by dimension and person: its label, and no votes."""
        return by_dimension(self._said(pair, "adjudicator"), self._rename)

    def _said(self, pair: Pair, role: Role) -> list[KeptVote]:
        kept = self._book.of(pair.key) if self._kept else []
        return [(label.dimension, label.annotator, label.side) for label in kept if label.role == role]

    def draws(self, pair: Pair, votes: Votes) -> dict[str, list[Drawn]]:
        """How a pair came to be labelled, by dimension: an entry for each of its votes, or of its decisions."""
        kept = {
            (self._rename.get(label.dimension, label.dimension), label.annotator): label.drawn
            for label in (self._book.of(pair.key) if self._kept else [])
            if label.side is not None
        }
        said = {**self.decisions(pair), **votes}
        return {name: [kept.get((name, who), FROM_FILE) for who in people] for name, people in said.items()}

    @property
    def only_in_files(self) -> bool:
        """Whether all votes stand in the pairs' own files."""
        return not self._kept

    def label(self, pair: Pair, dimension: str) -> Side | None:
        """What an adjudicator decided of one dimension, else what most people said; None without a majority."""
        return final_label(self.votes(pair), self.decisions(pair), dimension)


def human_label(vote: NamedVote, key: str, source: str, drawn: Drawn = FROM_FILE) -> HumanLabel:
    """A vote as the store keeps it."""
    said = (vote.side, vote.order, vote.note, vote.seconds)
    how = vote.drawn or drawn
    return HumanLabel(
        *(key, vote.dimension, vote.annotator, *said, source),
        design=how.design,
        probability=how.probability,
        among=how.among,
        role=vote.role,
    )


# -- files of labels --------------------------------------------------------------------------------------


def read_votes(row: Mapping[str, Any], annotator: str = FILE) -> list[NamedVote]:
    """The votes in one row of a file of labels; raises ValueError that says what is missing.

    Each reader knows one form of row and says None to others; the first that knows the row reads it.

    >>> [(v.id, v.annotator, v.side) for v in read_votes({"id": "p1", "annotator": "ann", "label": "B"})]
    [('p1', 'ann', '2')]
    """
    for reader in READERS:
        found = reader(row, annotator)
        if found is not None:
            return found
    raise RowFault(
        "no votes in this row: neither 'label' nor 'labels', 'human' or 'dims'",
        hint="give each row one of them, or --columns label=FIELD names it; docs/labels.md lists the forms",
    )


def _read_many(row: Mapping[str, Any], annotator: str) -> list[NamedVote] | None:
    """A pair with the votes of several people: `human`, `dims`."""
    if row.get("human") in (None, "") and row.get("dims") in (None, ""):
        return None
    key, name = _which_pair(row)
    return list(row_votes(row, key, name))


def _read_one(row: Mapping[str, Any], annotator: str) -> list[NamedVote] | None:
    """One vote: annotator, dimension, label."""
    fields = [name for name in _SAID if name in row]
    if not fields:
        return None
    field = next((name for name in fields if row[name] not in (None, "")), fields[0])  # a null hides no other
    key, name = _which_pair(row)
    dimension = str(row.get("dimension") or OVERALL)
    seconds, who = row.get("seconds"), _who(row, annotator)
    return [
        NamedVote(
            *(key, name, dimension, who, side_of(row[field], dimension)),
            SHOWN.get(str(row.get("order") or row.get("shown") or "")),
            str(row.get("note") or ""),
            None if seconds in (None, "") else float(str(seconds)),
        )
    ]


def _read_labels(row: Mapping[str, Any], annotator: str) -> list[NamedVote] | None:
    """One person's labels on several dimensions: {"labels": {"format": "1", ...}}."""
    labels = parsed(row.get("labels"))
    if not isinstance(labels, Mapping):
        return None
    key, name = _which_pair(row)
    who = _who(row, annotator)
    return [NamedVote(key, name, str(d), who, side_of(said, str(d))) for d, said in labels.items()]


def _read_verdict(row: Mapping[str, Any], annotator: str) -> list[NamedVote] | None:
    """What `evenhand export` writes: the verdict in the judge's own name, and the known label beside it."""
    if not all(name in row for name in _EXPORTED):
        return None
    key, name, dimension = str(row["key"]), str(row["pair"]), str(row["dimension"])
    order = SHOWN.get(str(row.get("order") or ""))
    judge = f"{row['judge']} {order}" if order else str(row["judge"])
    found = [NamedVote(key, name, dimension, judge, side_of(row["verdict"], dimension), order)]
    if row.get("label") not in (None, ""):
        found.append(NamedVote(key, name, dimension, annotator, side_of(row["label"], dimension)))
    return found


def _who(row: Mapping[str, Any], annotator: str) -> str:
    return next((str(row[name]) for name in _PERSON if row.get(name) not in (None, "")), annotator)


Reader = Callable[[Mapping[str, Any], str], list[NamedVote] | None]
READERS: tuple[Reader, ...] = (_read_verdict, _read_many, _read_labels, _read_one)


def _which_pair(row: Mapping[str, Any]) -> tuple[str, str]:
    """The key of the texts, where the row has them, and the id."""
    texts = [row.get(name) for name in TEXT_FIELDS]
    name = "" if row.get("id") is None else str(row["id"])
    if all(isinstance(text, str) for text in texts):
        return digest(*map(str, texts)), name
    if _KEY.fullmatch(str(row.get("key") or "")):  # a row of `evenhand labels export`
        return str(row["key"]), name
    if not name:
        raise _nameless(row)
    return "", name


def _nameless(row: Mapping[str, Any]) -> RowFault:
    """Why a row without an id names no pair: the first text that is missing, or is none."""
    at_fault = next(field for field in TEXT_FIELDS if not isinstance(row.get(field), str))
    value = row.get(at_fault)
    kind = "null" if value is None else f"of type {type(value).__name__}"
    said = f"field '{at_fault}' is {kind}, not text" if at_fault in row else f"no field '{at_fault}'"
    wanted = "give 'id', or the texts 'instruction', 'output_1' and 'output_2'"
    return RowFault(f"the row names no pair: {said}", hint=f"{wanted}; {named_fields(row)}")


@dataclass
class Imported:
    """What an import came to; ids that lead to no pair, or to several, are counted and the first few named."""

    labels: int = 0
    passed: int = 0  # labels in which a person gave no verdict
    replaced: int = 0  # labels that replaced one by the same person on the same pair and dimension
    unknown: int = 0
    ambiguous: int = 0
    designs: Counter[str] = field(default_factory=Counter)  # labels by how their pairs came to be labelled
    pairs: set[str] = field(default_factory=set)
    annotators: set[str] = field(default_factory=set)
    dimensions: set[str] = field(default_factory=set)
    unknown_ids: list[str] = field(default_factory=list)
    ambiguous_ids: list[str] = field(default_factory=list)
    bad: list[PairError] = field(default_factory=list)

    def count(self, label: HumanLabel) -> None:
        """Take one more label."""
        self.labels += 1
        self.passed += label.side is None
        self.designs[label.design] += 1
        self.pairs.add(label.pair)
        self.annotators.add(label.annotator)
        self.dimensions.add(label.dimension)

    def plain(self) -> dict[str, object]:
        """The import as plain data."""
        return {
            "labels": self.labels,
            "pairs": len(self.pairs),
            "annotators": sorted(self.annotators),
            "dimensions": sorted(self.dimensions),
            "passed": self.passed,
            "replaced": self.replaced,
            "designs": {name: self.designs[name] for name in DESIGNS},
            "unknown": {"labels": self.unknown, "ids": self.unknown_ids},
            "ambiguous": {"labels": self.ambiguous, "ids": self.ambiguous_ids},
            "bad_rows": [str(error) for error in self.bad],
        }


def import_labels(
    store: Store,
    path: str | Path,
    *,
    annotator: str = FILE,
    rename: Mapping[str, str] | None = None,
    skip_bad: bool = False,
    checked: bool = False,
    design: Design | None = None,
    columns: Mapping[str, str] | None = None,
) -> Imported:
    """Read a file of labels into the store; the whole file is checked before anything is kept.

    A vote on a pair that is named by its id alone needs that pair in the store. `checked` says that `check_labels`
    has seen the file. `design` says how the labelled pairs were chosen, where a row does not say it itself; without
    it, pairs that `evenhand suggest` has written to a file are known by that, and the others are "imported".
    """
    names = rename or {}
    if not checked:
        check_labels(path, annotator=annotator, skip_bad=skip_bad, columns=columns)
    done = Imported()
    votes = _file_votes(path, annotator, done.bad, columns)
    while batch := list(islice(votes, _BATCH)):
        renamed = [replace(vote, dimension=names.get(vote.dimension, vote.dimension)) for vote in batch]
        _keep(store, renamed, str(path), done, None if design is None else Drawn(design))
    return done


def check_labels(
    path: str | Path, *, annotator: str = FILE, skip_bad: bool = False, columns: Mapping[str, str] | None = None
) -> None:
    """Read a file of labels to its end; the first fault is raised, and so is a file without labels."""
    bad: list[PairError] | None = [] if skip_bad else None
    votes = sum(1 for _ in _file_votes(path, annotator, bad, columns))
    if not votes and not bad:
        raise PairError(
            str(path), None, "no labels in this file", hint="docs/labels.md lists the forms that are read"
        )


def _file_votes(
    path: str | Path, annotator: str, bad: list[PairError] | None, columns: Mapping[str, str] | None = None
) -> Iterator[NamedVote]:
    """The votes of a file; a bad row is raised, or put into `bad` if there is such a list."""
    context = Context(suffix=kind_of(path)[0])
    for blame, row in read_rows(path, "labels"):
        try:
            if isinstance(row, ValueError):
                raise row
            for each in _own_words(rename_columns(row, columns) if columns else row, context):
                yield from _placed(each, annotator)
        except (ValueError, InputError) as fault:
            error = blame(fault)
            if bad is None:
                raise error from None
            bad.append(error)


def _own_words(row: Row, context: Context) -> list[Row]:
    """A row of another tool in evenhand's words; a row of labels that names its pair by an id stays as it is.

    So does a row of `evenhand labels export`, whose cells were made harmless for spreadsheets in a CSV file.
    """
    if _KEY.fullmatch(str(row.get("key") or "")) and "label_role" in row:
        return [{name: unharmed(value) for name, value in row.items()} if context.suffix == ".csv" else row]
    found = recognise(row, "pairs")
    if found is None or found.kind != "pairs" or found.together:
        return [row]
    return found.rows(row, context)


def _placed(row: Mapping[str, Any], annotator: str) -> Iterator[NamedVote]:
    """The votes of a row, with the key that its pair has where the sides stand the other way round."""
    texts = [row.get(name) for name in TEXT_FIELDS]
    task, one, two = map(str, texts)
    flipped = digest(task, two, one) if all(isinstance(text, str) for text in texts) else ""
    drawn, role = _drawn(row), _role(row)
    for vote in read_votes(row, annotator):
        yield replace(vote, flipped=flipped, drawn=drawn, role=role)


def _role(row: Mapping[str, Any]) -> Role:
    """Whether the row is a vote or a decision: `label_role`, as `evenhand labels export` writes it."""
    return _one_of(ROLES, str(row.get("label_role") or "annotator"), "label_role")


_Known = TypeVar("_Known", Role, Design)


def _one_of(every: Sequence[_Known], word: str, field: str) -> _Known:
    for known in every:
        if known == word:
            return known
    raise RowFault(f"field '{field}' is {word[:40]!r}", hint=f"one of {', '.join(every)}")


def _drawn(row: Mapping[str, Any]) -> Drawn | None:
    """How the pair of a row came to be labelled: `label_design` and `label_probability`, where it has them."""
    design, chance = (row.get(name) for name in ("label_design", "label_probability"))
    if chance in (None, "") and design in (None, ""):
        return None
    found = _one_of(DESIGNS, "random" if design in (None, "") else str(design), "label_design")
    return Drawn(found) if chance in (None, "") else Drawn(found, _chance(chance))


def _chance(value: Any) -> float:
    try:
        chance = float(str(value))
    except ValueError:
        chance = 0.0
    if not 0 < chance <= 1:
        raise RowFault(f"field 'label_probability' is {str(value)[:40]!r}", hint="a number above 0, at most 1")
    return chance


def _keep(store: Store, votes: Sequence[NamedVote], source: str, done: Imported, design: Drawn | None) -> None:
    """Find the pairs of some votes and keep what they say, and how the pairs came to be labelled.

    Of that the row's own word goes first, then the import's, then what is known of the same label already, then
    what `evenhand suggest` has chosen.
    """
    found = [(vote, key) for vote, key in (_resolved(store, given, done) for given in votes) if key is not None]
    before = {(x.pair, x.dimension, x.annotator): x for key in {k for _, k in found} for x in store.labels.of(key)}
    labels: dict[tuple[str, str, str], HumanLabel] = {}
    for vote, key in found:
        place = (key, vote.dimension, vote.annotator)
        known = before[place].drawn if place in before else store.labels.suggested(key, vote.dimension)
        label = human_label(vote, key, source, design or known or FROM_FILE)
        done.replaced += place in labels
        labels[place] = label
        done.count(label)
    done.replaced += len(before.keys() & labels.keys())
    store.labels.add(labels.values())


def _resolved(store: Store, given: NamedVote, done: Imported) -> tuple[NamedVote, str | None]:
    """A vote on the sides as the database has them, and the key of its pair; None where there is no such pair."""
    vote = given
    if vote.key and not store.labels.has_pair(vote.key) and store.labels.has_pair(vote.flipped):
        vote = vote.exchanged()
    return vote, vote.key or _key_named(store, vote.id, done)


def _key_named(store: Store, name: str, done: Imported) -> str | None:
    keys = store.labels.keys_named(name)
    if len(keys) == 1:
        return keys[0]
    if keys:
        done.ambiguous += 1
        _mention(done.ambiguous_ids, name)
    else:
        done.unknown += 1
        _mention(done.unknown_ids, name)
    return None


def _mention(names: list[str], name: str) -> None:
    if len(names) < _EXAMPLES and name not in names:
        names.append(name)


# -- who has labelled -------------------------------------------------------------------------------------


def _own_row(counts: Counter[tuple[str, str, Side | None]], who: str, dimension: str) -> LabelRow:
    one, two, ties, passed = (counts[who, dimension, side] for side in ("1", "2", "tie", None))
    return LabelRow(who, dimension, "pairs", one, two, ties, passed)


def label_rows(store: Store) -> tuple[list[LabelRow], int]:
    """Who has labelled what in a database, and how many pairs have a field of votes that holds something else."""
    counts: Counter[tuple[str, str, Side | None]] = Counter()
    unreadable = 0
    for pair in store.labels.pairs():
        try:
            counts.update((vote.annotator, vote.dimension, vote.side) for vote in own_votes(pair))
        except ValueError:
            unreadable += 1
    own = [_own_row(counts, *named) for named in sorted({(who, dimension) for who, dimension, _ in counts})]
    return own + store.labels.counts(), unreadable
