"""Verdicts that were made elsewhere, read off files: of which pair, by whom, in which orders.

    read_verdicts(["gpt-4_pair.jsonl"])  ->  ForeignVerdict, ForeignVerdict, ...

Where a file has no texts, a pair is known by its id or by its question and models; the import looks for the texts
in the database, or takes `stand_in`.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import combinations
from pathlib import Path
from typing import Any, Literal, NamedTuple, cast

from evenhand.core.errors import InputError, PairError
from evenhand.core.faults import RowFault
from evenhand.core.pair import TEXT_FIELDS, Pair, Side, digest
from evenhand.core.protocol import Order
from evenhand.core.verdict import SIDE_OF, SIDES, Label, Verdict
from evenhand.io.files import Row, Table
from evenhand.io.pairs.reading import Paths, tables_of
from evenhand.io.pairs.recognition import Recogniser, blame
from evenhand.io.pairs.rows import pair_from
from evenhand.io.pairs.verdict_formats import SaidVerdict

OVERALL = "overall"
NO_TEXT = "[no text]"
_OWN = ("said", "judge", "protocol", "dimension", "topic", "candidate", "score", "model")


class Author(NamedTuple):
    """Who judged: a name, the protocol if one is known, and what was asked for."""

    judge: str
    protocol: str
    dimension: str


@dataclass(frozen=True, slots=True)
class ForeignVerdict:
    """A verdict on one pair; `pair` has stand-in texts where `has_texts` is false."""

    author: Author
    pair: Pair
    orders: Mapping[Order, Verdict]
    has_texts: bool = True
    named: bool = True  # the row has an id, by which texts may be found


@dataclass
class ReadOptions:
    """How files of verdicts are read."""

    judge: str = ""  # the name of the judge where a row does not say it
    baseline: str = ""  # the model that the others were compared with, where a file does not name it
    columns: Mapping[str, str] = field(default_factory=dict)
    skip_bad: bool = False


def read_verdicts(
    path: Paths, options: ReadOptions | None = None, skipped: list[PairError] | None = None
) -> Iterator[ForeignVerdict]:
    """Every verdict of files; a broken row raises PairError, or with `skip_bad` is put into `skipped`."""
    options = options or ReadOptions()
    scores = _Scores(options.baseline)
    for table, where, found in _rows(path, options):
        try:
            if isinstance(found, PairError):
                raise found
            author = _author(found, options.judge or Path(table.name).name.split(".")[0])
            if "said" in found:  # a row that says who won may hold a score besides
                yield _verdict(author, found, f"{table.name}/{where}")
            else:
                scores.add(author, found)
        except (ValueError, InputError) as fault:
            error = fault if isinstance(fault, PairError) else blame(table, where, fault)
            if not options.skip_bad:
                raise error from None
            if skipped is not None:
                skipped.append(error)
    yield from scores.verdicts()


def _rows(path: Paths, options: ReadOptions) -> Iterator[tuple[Table, int, Row | PairError]]:
    door = Recogniser("verdicts", options.columns)
    for table in tables_of(path, "verdicts"):
        door.context.settings["baseline"] = options.baseline
        for _, where, found in door.rows([table]):
            yield table, where, found if isinstance(found, PairError) else found.row


def _author(row: Row, name: str) -> Author:
    words = (row.get("judge") or name, row.get("protocol") or "imported", row.get("dimension") or OVERALL)
    return Author(*(str(word) for word in words))


def _verdict(author: Author, row: Row, place: str) -> ForeignVerdict:
    """A row in evenhand's words as a verdict on a pair."""
    texts = [row.get(name) for name in TEXT_FIELDS]
    has_texts = all(isinstance(text, str) for text in texts)
    named = row.get("id") not in (None, "")
    rest: Row = {name: value for name, value in row.items() if name not in _OWN}
    if not has_texts:
        if not named and not (row.get("model_1") and row.get("model_2")):
            raise RowFault(
                "the row names no pair", hint="give id, or instruction, output_1 and output_2, or models"
            )
        topic = str(row.get("topic") or row.get("id") or place)
        rest = {**rest, **stand_in(topic, str(row.get("model_1") or "1"), str(row.get("model_2") or "2"))}
        rest["id"] = row.get("id") or f"{topic}/{row['model_1']}/{row['model_2']}"
    pair = replace(pair_from(rest), candidate=cast("Literal['', '1', '2']", row.get("candidate", "")))
    said: Mapping[Order, SaidVerdict] = row["said"]
    orders = {order: as_shown(author.dimension, order, each) for order, each in said.items()}
    return ForeignVerdict(author, pair, orders, has_texts, named)


def stand_in(topic: str, model_1: str, model_2: str) -> dict[str, str]:
    """Texts for a pair that came without: all outputs are equally long, so that none is the longer one.

    >>> stand_in("q1", "m", "n")["instruction"]
    '[no text] q1'
    >>> stand_in("q1", "m", "n")["output_1"] == stand_in("q1", "m", "other")["output_1"]
    True
    """
    outputs = [f"{NO_TEXT} {digest(topic, model)[:12]}" for model in (model_1, model_2)]
    return {"instruction": f"{NO_TEXT} {topic}", "output_1": outputs[0], "output_2": outputs[1]}


def is_stand_in(pair: Pair) -> bool:
    """Whether a pair came without texts.

    >>> is_stand_in(Pair(**stand_in("q1", "m", "n"))), is_stand_in(Pair("Hi", "x", "y"))
    (True, False)
    """
    return all(text.startswith(NO_TEXT) for text in pair.texts)


def as_shown(dimension: str, order: Order, said: SaidVerdict) -> Verdict:
    """What was said of sides, as a verdict on what stood first and second.

    >>> as_shown("overall", "swapped", SaidVerdict("1")).label
    'B'
    """
    if said.side is None:
        return Verdict(dimension, None, invalid="unreadable", raw=said.raw)
    label_of: dict[Side, Label] = {side: label for label, side in SIDE_OF[order].items()}
    p = None if said.p is None else {label_of[side]: x for side, x in zip(SIDES, said.p, strict=True)}
    return Verdict(dimension, label_of[said.side], p, raw=said.raw)


class _Scores:
    """Scores of single answers; two models that were asked the same are a pair, and the higher score wins it."""

    def __init__(self, baseline: str) -> None:
        self._baseline = baseline
        self._scores: dict[tuple[Author, str], dict[str, Row]] = defaultdict(dict)

    def add(self, author: Author, row: Row) -> None:
        of_question = self._scores[author, str(row["topic"])]
        if row["model"] in of_question:
            raise RowFault(f"a second score of {row['model']} on {row['topic']}", hint="give each score once")
        of_question[str(row["model"])] = row

    def verdicts(self) -> Iterator[ForeignVerdict]:
        """All pairs of models, or each against the baseline."""
        models = {model for scores in self._scores.values() for model in scores}
        if self._baseline and models and self._baseline not in models:
            raise InputError(f"no scores of {self._baseline}", hint=f"there are {', '.join(sorted(models))}")
        if len(models) == 1:
            raise InputError(
                "scores of one model alone compare nothing", hint="give the files of several models together"
            )
        for (author, topic), scores in self._scores.items():
            for one, two in self._matches(sorted(scores)):
                yield _verdict(author, _compared(topic, scores[one], scores[two], bool(self._baseline)), "")

    def _matches(self, models: Sequence[str]) -> Iterator[tuple[str, str]]:
        if not self._baseline:
            yield from combinations(models, 2)
        elif self._baseline in models:
            yield from ((self._baseline, model) for model in models if model != self._baseline)


def _compared(topic: str, one: Row, two: Row, roles: bool) -> dict[str, Any]:
    """Two scores as one row: the higher one wins, equal ones are a tie."""
    scores = one["score"], two["score"]
    side: Side | None = None
    if None not in scores:
        side = "tie" if scores[0] == scores[1] else "1" if scores[0] > scores[1] else "2"
    raw = " and ".join("no score" if score is None else f"{score:g}" for score in scores)
    about: Row = {name: one[name] for name in ("turn", "prompt") if name in one}
    return {
        **about,
        "topic": topic,
        "model_1": one["model"],
        "model_2": two["model"],
        **({"candidate": "2"} if roles else {}),
        "said": {"forward": SaidVerdict(side, None, raw)},
    }
