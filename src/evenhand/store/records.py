"""What statistics and reports ask of whatever keeps verdicts: a database, or a folder of shards."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, Self

from evenhand.core.engine import Usage
from evenhand.core.judge import Judgment
from evenhand.core.pair import Pair
from evenhand.core.protocol import Order
from evenhand.store.archive import RunGroup
from evenhand.store.labels import HumanLabel

if TYPE_CHECKING:
    from evenhand.core.columns import Block
    from evenhand.store.database import JudgeRow


class MemberUsage(NamedTuple):
    """A judge that another is made of, None if it is gone; its tokens, and on how many pairs it has answers."""

    judge: JudgeRow | None
    tokens: Usage
    pairs: int


class LabelReader(Protocol):
    """What people said."""

    def any(self) -> bool:
        """Whether there is a label at all."""

    def of(self, pair: str) -> list[HumanLabel]:
        """What everybody said of one pair."""

    def pairs(self) -> Iterator[Pair]:
        """Every pair, judged or not."""


class CalibrationReader(Protocol):
    """What brings a judge into line with people."""

    def of(self, judge: int) -> Mapping[str, dict[str, Any]]:
        """The calibrations of a judge, by dimension."""


class ArchiveReader(Protocol):
    """How verdicts came about."""

    def runs(self, judge: int) -> list[RunGroup]:
        """The runs of a judge."""

    def said(self, judge: int, pair: int) -> Mapping[Order, tuple[str, ...]]:
        """What a judge answered about one pair, word for word, by order; empty where that is not at hand."""

    def pairs_judged(self, judges: Sequence[int]) -> int:
        """How many pairs at least one of these judges has judged."""

    def number(self, name: str, key: str) -> int | None:
        """The number of the pair with this id and these texts."""


class PairReader(Protocol):
    """Pairs by their numbers."""

    def pair(self, number: int) -> Pair | None:
        """A pair by its number."""


class Records(Protocol):
    """Verdicts that are kept, for whoever only reads; `Store` is one."""

    path: str

    @property
    def labels(self) -> LabelReader:
        """What people said."""

    @property
    def calibrations(self) -> CalibrationReader:
        """What brings judges into line with people."""

    @property
    def archive(self) -> ArchiveReader:
        """How verdicts came about."""

    @property
    def pages(self) -> PairReader:
        """Pairs by their numbers."""

    def __enter__(self) -> Self: ...

    def __exit__(self, *_: object) -> None: ...

    def judges(self, *, counted: bool = True) -> list[JudgeRow]:
        """Every judge that has judged a pair."""

    def judgments(self, judge: JudgeRow, *, words: bool = False) -> Iterator[Judgment]:
        """Every pair that a judge has brought to an end, with its verdicts, and its words if wanted."""

    def blocks(self, judge: JudgeRow, *, metadata: bool = False) -> Iterator[Block]:
        """The same as columns, some thousand pairs at a time, without a text; what everything that counts reads."""

    def unfinished(self, judge: JudgeRow) -> int:
        """How many pairs were given to a judge and are not asked, or asked in part."""

    def attacked(self) -> list[tuple[int, Pair]]:
        """Pairs that were attacked and those that they were made of, with their numbers."""

    def voted(self) -> Iterator[tuple[int, Pair]]:
        """Every pair that people have said something of, with the number that it has in a block."""

    def judgment(self, judge: JudgeRow, number: int, pair: Pair) -> Judgment | None:
        """One pair, by its number, with the outcomes of a judge."""

    def usage(self, judge: JudgeRow) -> tuple[Usage, float]:
        """The tokens that a judge's answers took, and the seconds that its runs took."""

    def made_words(self, judge: JudgeRow) -> Iterator[Mapping[str, Any]]:
        """The word that is kept about each pair of a judge that is made of others: who spoke, or who decided."""

    def members_used(self, judge: JudgeRow) -> list[MemberUsage]:
        """The judges that a made one is made of, in their order, and what their answers on its pairs took."""
