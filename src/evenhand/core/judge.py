"""One pair, judged: Pair x Protocol x Engine -> Judgment.

A conversation is one pair in one order: the questions of the protocol, one after the other. Answers from before,
in this run or another, are read from the ledger and not asked again.
"""

from __future__ import annotations

import json
import random
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Literal, Protocol

from evenhand.core.engine import NOTHING, Answer, Engine, Usage
from evenhand.core.errors import EngineError
from evenhand.core.pair import COMBINED, Pair, digest
from evenhand.core.protocol import ORDERS, Order, Prompt
from evenhand.core.protocol import Protocol as Template
from evenhand.core.verdict import Outcome, Verdict, found_on, invalid, pool, pool_combined, read_answer

Orders = Literal["both", "forward", "swapped", "random"]
Asking = Callable[[Prompt], Awaitable[Answer]]
_OTHER: Mapping[Order, Order] = {"forward": "swapped", "swapped": "forward"}
ORDER_CHOICES: tuple[Orders, ...] = ("both", "forward", "swapped", "random")


class Ledger(Protocol):
    """Where answers are kept."""

    async def record(self, conversation: int, question: int, answer: Answer, verdicts: Sequence[Verdict]) -> None:
        """Keep an answer and what was read off it, durable when this returns."""

    def fail(self, conversation: int, question: int, error: EngineError) -> None:
        """Keep a failure, to be tried again in the next run."""


@dataclass(frozen=True)
class Setup:
    """An engine under a protocol: all that decides a verdict besides the pair."""

    engine: Engine
    protocol: Template
    raw_markup: bool = False  # send the file's own markup instead of the model's

    @cached_property
    def fingerprint(self) -> str:
        """The hash of all that decides a verdict besides the pair."""
        identity = json.dumps(dict(self.engine.identity), sort_keys=True)
        return digest(identity, self.protocol.fingerprint, str(self.raw_markup))

    def key(self, pair: Pair, order: Order) -> str:
        """The name of a conversation: two conversations that show the judge the same text are one."""
        more = self.protocol.more_texts(pair).values() if self.protocol.more else ()
        return digest(self.fingerprint, pair.instruction, *pair.shown(order), *more)


@dataclass(frozen=True, slots=True)
class Conversation:
    """One pair in one order: its verdicts, and what they took now (nothing, if all were kept)."""

    verdicts: Mapping[str, Verdict]
    usage: Usage = NOTHING
    asked: int = 0
    notes: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Judgment:
    """All verdicts on one pair by one judge under one protocol, brought together over the orders.

    Where several dimensions besides overall were asked, what they say together is the outcome "combined".

    >>> from evenhand.core.verdict import Verdict
    >>> judged = Conversation({"overall": Verdict("overall", "B")})
    >>> Judgment.of(Pair("Hi", "x", "y"), {"forward": judged})["overall"].side
    '2'
    """

    pair: Pair
    outcomes: Mapping[str, Outcome]
    usage: Usage = NOTHING
    asked: int = 0
    seconds: float = field(default=0.0, compare=False)
    notes: frozenset[str] = frozenset()  # what was done to a prompt on its way

    def __getitem__(self, dimension: str) -> Outcome:
        return self.outcomes[dimension]

    def turned(self) -> Judgment:
        """The same judgment for the pair with its sides exchanged; the response that was shown first stays first.

        >>> from evenhand.core.verdict import Verdict
        >>> judged = Conversation({"overall": Verdict("overall", "B")})
        >>> Judgment.of(Pair("Hi", "x", "y"), {"forward": judged}).turned()["overall"].side
        '1'
        """
        derived = COMBINED in found_on([name for name in self.outcomes if name != COMBINED])
        asked = [outcome for name, outcome in self.outcomes.items() if name != COMBINED or not derived]
        orders = {order: None for outcome in asked for order in outcome.orders}
        conversations = {
            _OTHER[order]: Conversation({outcome.dimension: outcome.orders[order] for outcome in asked})
            for order in sorted(orders, reverse=True)
        }
        found = Judgment.of(self.pair.turned(), conversations, self.seconds)
        return replace(found, usage=self.usage, asked=self.asked, notes=self.notes)

    @classmethod
    def of(cls, pair: Pair, conversations: Mapping[Order, Conversation], seconds: float = 0.0) -> Judgment:
        """Bring conversations together."""
        judged = list(conversations.values())
        asked = sum([conversation.asked for conversation in judged])
        usage = Usage.total([conversation.usage for conversation in judged]) if asked else NOTHING
        notes = frozenset().union(*[conversation.notes for conversation in judged])
        return cls(pair, cls.outcomes_of(conversations), usage, asked, seconds, notes)

    @staticmethod
    def outcomes_of(conversations: Mapping[Order, Conversation]) -> dict[str, Outcome]:
        """What each dimension comes to over the orders, and the parts together where there are several."""
        dimensions = next(iter(conversations.values())).verdicts
        outcomes = {
            name: pool(name, {order: conversation.verdicts[name] for order, conversation in conversations.items()})
            for name in dimensions
        }
        if COMBINED not in outcomes and COMBINED in found_on(dimensions):
            outcomes[COMBINED] = pool_combined(
                {order: conversation.verdicts for order, conversation in conversations.items()}
            )
        return outcomes


def orders_of(pair: Pair, orders: Orders, seed: int = 0) -> tuple[Order, ...]:
    """The orders in which a pair is judged; a random one depends on the seed and the pair alone.

    >>> orders_of(Pair("Hi", "x", "y"), "both")
    ('forward', 'swapped')
    """
    if orders == "both":
        return ORDERS
    if orders == "random":
        return (random.Random(f"{seed} {pair.key}").choice(ORDERS),)
    return (orders,)


def next_question(setup: Setup, pair: Pair, order: Order, kept: Sequence[Answer]) -> tuple[int, Prompt] | None:
    """The first question of a conversation that has no answer yet, with its prompt; None where it is at its end.

    >>> from evenhand.engines.scripted import ScriptedEngine
    >>> setup = Setup(ScriptedEngine(lambda prompt: "A"), Template.load("chained"))
    >>> next_question(setup, Pair("Hi", "x", "y"), "forward", [Answer("A")])[0]
    1
    >>> next_question(setup, Pair("Hi", "x", "y"), "forward", [Answer("no idea")]) is None
    True
    """
    said: list[str] = []
    for number, question in enumerate(setup.protocol.questions):
        if number == len(kept):
            return number, setup.protocol.prompt(pair, order, number, said, raw=setup.raw_markup)
        read = read_answer(kept[number], question.dimensions, setup.protocol.shown_texts(pair), question.form)
        if any(verdict.label is None for verdict in read):
            break
        said.append(", ".join(verdict.word for verdict in read))
    return None


async def hold_conversation(
    setup: Setup,
    pair: Pair,
    order: Order,
    conversation: int,
    kept: Sequence[Answer],
    ledger: Ledger,
    asking: Asking,
) -> Conversation:
    """Ask what has not been answered yet, keep it, and read all of it.

    `kept` are the answers that the conversation has already; `asking` is the way to the engine, a patient one.
    """
    verdicts: dict[str, Verdict] = {}
    said: list[str] = []
    fresh: list[Answer] = []
    notes: set[str] = set()
    why_unasked = "not_asked"
    for number, question in enumerate(setup.protocol.questions):
        try:
            if number < len(kept):
                answer = kept[number]
            else:
                prompt = setup.protocol.prompt(pair, order, number, said, raw=setup.raw_markup)
                answer = await asking(prompt)
                fresh.append(answer)
        except EngineError as error:
            if error.fatal:
                raise
            ledger.fail(conversation, number, error)
            read = invalid(question.dimensions, error.reason, str(error))
            why_unasked = error.reason  # a failure counts for all questions that it kept from being asked
        else:
            read = read_answer(answer, question.dimensions, setup.protocol.shown_texts(pair), question.form)
            notes.update(answer.notes)
            if number >= len(kept):
                await ledger.record(conversation, number, answer, read)
        verdicts |= {verdict.dimension: verdict for verdict in read}
        if any(verdict.label is None for verdict in read):
            break  # the next question would need a verdict that is missing
        said.append(", ".join(verdict.word for verdict in read))
    unasked = [name for name in setup.protocol.dimensions if name not in verdicts]
    verdicts |= {verdict.dimension: verdict for verdict in invalid(unasked, why_unasked)}
    usage = Usage.total([answer.usage for answer in fresh])
    return Conversation(verdicts, usage, len(fresh), frozenset(notes))
