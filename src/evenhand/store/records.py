"""What a database and a folder of shards have in common: statistics and reports use only this."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from evenhand.core.engine import Usage

if TYPE_CHECKING:
    from evenhand.store.database import JudgeRow, Store
    from evenhand.store.pages import PageBook
    from evenhand.store.shards.reading import Shards

Records: TypeAlias = "Store | Shards"
PairReader: TypeAlias = "PageBook | Shards"  # their pairs by number


class MemberUsage(NamedTuple):
    """A judge that another is made of, None if it is gone; its tokens, and on how many pairs it has answers."""

    judge: JudgeRow | None
    tokens: Usage
    pairs: int
