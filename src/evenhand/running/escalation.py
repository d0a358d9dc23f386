"""Levels of judges over kept verdicts: who decides each pair, kept as the verdicts of a judge of its own."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from evenhand.core.errors import InputError
from evenhand.core.judge import Judgment, Setup
from evenhand.core.jury import JurorOutcomes, Scale, confidence_of, log_length
from evenhand.core.pair import Pair, Side
from evenhand.core.protocol import ORDERS, Order
from evenhand.core.verdict import SIDE_OF, Outcome, Verdict
from evenhand.engines.made import ESCALATION, MadeEngine, made_protocol, names_of
from evenhand.running.jury import JuryMembers, outcomes_of
from evenhand.store import Store
from evenhand.store.made import MadeVerdicts

if TYPE_CHECKING:  # the statistics load numpy, which takes a third of a second
    from evenhand.core.stats.escalation import Cascade

PEOPLE = "people"  # the last level
WAITING = "for_people"  # the reason of a pair that no judge may decide, and people have not


def check_target(agree: float) -> None:
    """Refuse a target that is no share of agreement."""
    if not 0.5 < agree < 1:
        raise InputError(f"--agree {agree:g}", hint="a share above 0.5 and below 1, such as 0.85")


class EscalationPool:
    """Has each pair decided by the first level that may; `people` says that they are the last level.

    `scales` are the calibrations by which it is said how sure each level is; none where none are kept.
    """

    def __init__(
        self,
        store: Store,
        members: JuryMembers,
        cascade: Cascade,
        dimension: str,
        *,
        people: bool = True,
        scales: Sequence[Scale | None] = (),
    ) -> None:
        self.store, self.members, self.cascade, self.dimension = store, members, cascade, dimension
        self.people, self.scales = people, tuple(scales) or (None,) * len(members.members)
        self.dimensions, self.names = (dimension,), members.names
        self.setup = Setup(self._engine(), made_protocol(members.members, [dimension]))
        self._votes = _PeoplesVotes(store) if people else None

    def _engine(self) -> MadeEngine:
        cascade, members = self.cascade, self.members.members
        names = [*names_of(members), *([PEOPLE] if self.people else [])]
        about = {
            "levels": " ".join(member.fingerprint for member in members),
            "agree": f"{cascade.target:g}",
            "on": self.dimension,
            "floors": " ".join("never" if x is None else f"{x:.6g}" for x in cascade.confidences()),
            "plan": json.dumps(
                {
                    "labels": cascade.labels,
                    "decided": cascade.n,
                    "agreed": cascade.agreed,
                    "by_level": list(cascade.by_level),
                    "people": self.people,
                }
            ),
        }
        if any(self.scales):
            about["calibrations"] = json.dumps([scale and list(scale) for scale in self.scales])
        return MadeEngine(ESCALATION, f"escalation of {', '.join(names)}", about)

    def left_after(self, pairs: Sequence[Pair], levels: int) -> list[Pair]:
        """The pairs that none of the first so many levels may decide."""
        outcomes = outcomes_of(self.store, self.members, pairs, levels)
        return [pair for pair, said in zip(pairs, outcomes, strict=True) if self._level(pair, said) is None]

    def pool(self, pairs: Sequence[Pair]) -> list[Judgment]:
        """What the levels say of pairs that are in the store; it is kept when this returns."""
        outcomes = outcomes_of(self.store, self.members, pairs)
        made = [self.made(pair, said) for pair, said in zip(pairs, outcomes, strict=True)]
        self.store.made.keep(self.store.judge(self.setup), made)
        return [one.judgment() for one in made]

    def made(self, pair: Pair, outcomes: JurorOutcomes) -> MadeVerdicts:
        """What the levels say of a pair, as it is kept."""
        verdicts, word = self._decide(pair, outcomes)
        keys = {order: self.setup.key(pair, order) for order in verdicts}
        return MadeVerdicts(pair, keys, {order: [one] for order, one in verdicts.items()}, word)

    def is_ready(self, pair: Pair, outcomes: JurorOutcomes) -> bool:
        """Whether it is known who decides a pair: a level may, or all have been asked."""
        return self._level(pair, outcomes) is not None or all(said is not None for said in outcomes)

    def decides(self, level: int, pair: Pair, said: Mapping[str, Outcome] | None) -> bool:
        """Whether a level may decide a pair of which it has said this."""
        return self.cascade.decides(level, self._sure(level, pair, said))

    def _sure(self, level: int, pair: Pair, said: Mapping[str, Outcome] | None) -> float | None:
        outcome = said.get(self.dimension) if said else None
        return confidence_of(outcome, self.scales[level], log_length(pair))

    def waits(self, made: MadeVerdicts) -> bool:
        """Whether a pair is left to people, and they have not decided it."""
        return any(verdict.invalid == WAITING for verdicts in made.verdicts.values() for verdict in verdicts)

    def _level(self, pair: Pair, outcomes: JurorOutcomes) -> int | None:
        """The first level that may decide."""
        return next((level for level, said in enumerate(outcomes) if self.decides(level, pair, said)), None)

    def _decide(self, pair: Pair, outcomes: JurorOutcomes) -> tuple[Mapping[Order, Verdict], str]:
        level = self._level(pair, outcomes)
        if level is not None:
            outcome = (outcomes[level] or {})[self.dimension]
            sure = self._sure(level, pair, outcomes[level])
            word = {"level": level + 1, "judge": self.names[level], "confidence": sure and round(sure, 6)}
            return outcome.orders, json.dumps(word)
        side = self._votes.label(pair, self.dimension) if self._votes else None
        word = {"level": len(self.names) + 1 if side else None, "judge": PEOPLE if side else None}
        return {order: _people_say(self.dimension, order, side) for order in ORDERS}, json.dumps(word)


class _PeoplesVotes:
    """What people say of pairs; read again for each run."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def label(self, pair: Pair, dimension: str) -> Side | None:
        from evenhand.core.votes import by_dimension, final_label, gather_votes

        kept = self._store.labels.of(pair.key)
        votes, decisions = (
            [(label.dimension, label.annotator, label.side) for label in kept if label.role == role]
            for role in ("annotator", "adjudicator")
        )
        return final_label(gather_votes(pair, votes, {})[0], by_dimension(decisions, {}), dimension)


def _people_say(dimension: str, order: Order, side: Side | None) -> Verdict:
    if side is None:
        return Verdict(dimension, None, invalid=WAITING)
    return Verdict(dimension, next(label for label, meant in SIDE_OF[order].items() if meant == side))
