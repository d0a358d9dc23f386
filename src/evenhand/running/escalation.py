"""Levels of judges over kept verdicts: who decides each pair, kept as the verdicts of a judge of its own."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from evenhand.core.errors import InputError
from evenhand.core.judge import Conversation, Judgment, Setup
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


def confidence_of(outcome: Outcome | None) -> float | None:
    """How sure a judge is of its verdict: the probability that it gives the side it chose; None without a verdict.

    >>> from evenhand.core.verdict import pool
    >>> confidence_of(pool("overall", {"forward": Verdict("overall", "A")})), confidence_of(None)
    (1.0, None)
    """
    if outcome is None or outcome.side is None or outcome.p is None:
        return None
    return outcome.p[outcome.side]


class EscalationPool:
    """Has each pair decided by the first level that may; `people` says that they are the last level."""

    def __init__(
        self, store: Store, members: JuryMembers, cascade: Cascade, dimension: str, *, people: bool = True
    ) -> None:
        self.store, self.members, self.cascade, self.dimension, self.people = (
            *(store, members, cascade, dimension),
            people,
        )
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
        return MadeEngine(ESCALATION, f"escalation of {', '.join(names)}", about)

    def left_after(self, pairs: Sequence[Pair], levels: int) -> list[Pair]:
        """The pairs that none of the first so many levels may decide."""
        heard = outcomes_of(self.store, self.members, pairs, levels)
        return [pair for pair, said in zip(pairs, heard, strict=True) if self._level(said) is None]

    def pool(self, pairs: Sequence[Pair]) -> list[Judgment]:
        """What the levels say of pairs that are in the store; it is kept when this returns."""
        made, judgments = [], []
        for pair, heard in zip(pairs, outcomes_of(self.store, self.members, pairs), strict=True):
            verdicts, word = self._decide(pair, heard)
            conversations = {order: Conversation({self.dimension: verdict}) for order, verdict in verdicts.items()}
            judgments.append(Judgment.of(pair, conversations))
            keys = {order: self.setup.key(pair, order) for order in verdicts}
            made.append(MadeVerdicts(pair, keys, {order: [one] for order, one in verdicts.items()}, word))
        self.store.made.keep(self.store.judge(self.setup), made)
        return judgments

    def _level(self, heard: Sequence[Mapping[str, Outcome] | None]) -> int | None:
        """The first level that may decide."""
        for level, said in enumerate(heard):
            if self.cascade.decides(level, confidence_of(said.get(self.dimension) if said else None)):
                return level
        return None

    def _decide(
        self, pair: Pair, heard: Sequence[Mapping[str, Outcome] | None]
    ) -> tuple[Mapping[Order, Verdict], str]:
        level = self._level(heard)
        if level is not None:
            outcome = (heard[level] or {})[self.dimension]
            sure = confidence_of(outcome)
            word = {"level": level + 1, "judge": self.names[level], "confidence": sure and round(sure, 6)}
            return outcome.orders, json.dumps(word)
        side = self._votes.label(pair, self.dimension) if self._votes else None
        word = {"level": len(self.names) + 1 if side else None, "judge": PEOPLE if side else None}
        return {order: _people_say(self.dimension, order, side) for order in ORDERS}, json.dumps(word)


class _PeoplesVotes:
    """What people say of pairs; read anew for each run."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def label(self, pair: Pair, dimension: str) -> Side | None:
        from evenhand.core.votes import gather_votes, label_of

        kept = [(label.dimension, label.annotator, label.side) for label in self._store.labels.of(pair.key)]
        return label_of(gather_votes(pair, kept, {})[0], dimension)


def _people_say(dimension: str, order: Order, side: Side | None) -> Verdict:
    if side is None:
        return Verdict(dimension, None, invalid=WAITING)
    return Verdict(dimension, next(label for label, meant in SIDE_OF[order].items() if meant == side))
