"""A jury over kept verdicts: what its judges said of pairs is pooled, and kept as what a judge of its own said.

Nobody is asked here. The same jurors under the same rule are the same jury, so pooling again after a juror has
answered more brings the jury up to date, and pooling again without that writes nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

from evenhand.core.engine import NOTHING
from evenhand.core.judge import Judgment, Setup
from evenhand.core.jury import (
    INCOMPLETE,
    JurorOutcomes,
    PoolRule,
    Scale,
    log_length,
    on_dimension,
    pool_jury,
    word_of,
)
from evenhand.core.pair import Pair
from evenhand.core.protocol import ORDERS, Order
from evenhand.core.verdict import Outcome, Verdict
from evenhand.engines.made import Member, jury_engine, made_protocol, names_of, shared_dimensions
from evenhand.store import JudgeRow, Store
from evenhand.store.made import MadeVerdicts

AT_ONCE = 500  # pairs that are pooled in one transaction
Watcher = Callable[[Pair, JurorOutcomes, Judgment], None]


@dataclass(frozen=True)
class JuryMembers:
    """Who sits in a jury, and on which dimensions all of them have outcomes."""

    members: tuple[Member, ...]

    @property
    def names(self) -> list[str]:
        """What to call them."""
        return names_of(self.members)

    @property
    def dimensions(self) -> tuple[str, ...]:
        """What the jury has outcomes on."""
        return shared_dimensions(self.members)

    def rows(self, store: Store) -> list[JudgeRow | None]:
        """Their rows in a store; None for one that has not answered anything there."""
        known = {row.fingerprint: row for row in store.judges(counted=False)}
        return [known.get(member.fingerprint) for member in self.members]


def member_of(judge: Setup | JudgeRow) -> Member:
    """A judge as a member of a jury."""
    if isinstance(judge, JudgeRow):
        return Member(judge.model, judge.protocol, judge.fingerprint, judge.dimensions)
    return Member(
        judge.engine.identity["model"], judge.protocol.name, judge.fingerprint, tuple(judge.protocol.dimensions)
    )


def scales_of(store: Store, members: JuryMembers) -> dict[str, tuple[Scale | None, ...]]:
    """The calibrations that are kept of the jurors, by dimension; a dimension that has none is not there."""
    rows = members.rows(store)
    kept = [store.calibrations.of(row.id) if row else {} for row in rows]
    found = {}
    for name in members.dimensions:
        each = tuple(_scale(one.get(name)) for one in kept)
        if any(each):
            found[name] = each
    return found


def _scale(fields: dict[str, Any] | None) -> Scale | None:
    if fields is None:
        return None
    from evenhand.core.stats.calibration import Calibration  # with numpy, which takes a third of a second

    kept = Calibration.of(fields)
    return Scale(kept.slope, kept.tie, kept.length if kept.slope else 0.0)


class JuryPool:
    """Pools what jurors said of pairs, in one store."""

    def __init__(
        self, store: Store, members: JuryMembers, rule: PoolRule, name: str = "", *, watch: Watcher | None = None
    ) -> None:
        self.store, self.members, self.rule, self._watch = store, members, rule, watch
        self.names, self.dimensions = members.names, members.dimensions
        self.setup = Setup(
            jury_engine(members.members, rule, name), made_protocol(members.members, self.dimensions)
        )

    def pool(self, pairs: Sequence[Pair]) -> list[Judgment]:
        """What the jury says of pairs that are in the store; it is kept when this returns."""
        every = outcomes_of(self.store, self.members, pairs)
        made = [self.made(pair, said) for pair, said in zip(pairs, every, strict=True)]
        self.store.made.keep(self.store.judge(self.setup), made)
        judgments = [one.judgment() for one in made]
        if self._watch is not None:
            for pair, said, judgment in zip(pairs, every, judgments, strict=True):
                self._watch(pair, said, judgment)
        return judgments

    def pool_all(self, pairs: Iterable[Pair]) -> int:
        """Pool pairs a few hundred at a time, and note that as a run; how many they were."""
        run = self.store.begin_run(self.store.judge(self.setup), {"orders": "both", "seed": 0})
        count, waiting = 0, iter(pairs)
        while some := list(islice(waiting, AT_ONCE)):
            count += len(self.pool(some))
        self.store.end_run(run, pairs=count, asked=0, usage=NOTHING)
        return count

    def made(self, pair: Pair, outcomes: JurorOutcomes) -> MadeVerdicts:
        """What the jury says of a pair, as it is kept."""
        said = on_dimension(outcomes, self.dimensions[0])
        verdicts = self._verdicts(pair, outcomes)
        keys = {order: self.setup.key(pair, order) for order in verdicts}
        return MadeVerdicts(pair, keys, verdicts, word_of(self.names, said))

    def _verdicts(self, pair: Pair, outcomes: JurorOutcomes) -> dict[Order, list[Verdict]]:
        """What the jury says of a pair in each order, on every dimension."""
        length = log_length(pair)
        by_order: dict[Order, dict[str, Verdict]] = {}
        for name in self.dimensions:
            for order, verdict in pool_jury(name, on_dimension(outcomes, name), self.rule, length).items():
                by_order.setdefault(order, {})[name] = verdict
        orders = by_order or {order: {} for order in ORDERS}  # where nobody was asked, nobody has spoken in either
        return {
            order: [said.get(name) or Verdict(name, None, invalid=INCOMPLETE) for name in self.dimensions]
            for order, said in orders.items()
        }


def outcomes_of(
    store: Store, members: JuryMembers, pairs: Sequence[Pair], first: int | None = None
) -> list[list[dict[str, Outcome] | None]]:
    """What each member, or only the first so many of them, said of each pair; None where it said nothing."""
    numbers = store.made.numbers(pairs)
    here = [number for number in numbers if number is not None]
    each = [store.made.outcomes(row.id, row.dimensions, here) if row else {} for row in members.rows(store)[:first]]
    return [[None if number is None else said.get(number) for said in each] for number in numbers]
