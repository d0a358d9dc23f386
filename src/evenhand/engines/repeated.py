"""The same engine, asked once more: a repetition is a judge of its own, and nothing else about it is different."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from evenhand.core.engine import Answer, Engine, OtherVerdicts
from evenhand.core.protocol import Prompt

# What may differ between two askings of the same judge.
REPEATS = ("repeat", "seed")


class Repeated(Engine):
    """An engine under the number of a repetition, so that its first answers do not stand in for the new ones.

    >>> from evenhand.engines.scripted import ScriptedEngine
    >>> Repeated(ScriptedEngine(lambda prompt: "A"), 2).identity["repeat"]
    '2'
    """

    def __init__(self, engine: Engine, number: int) -> None:
        self._engine, self._number = engine, number
        self.concurrency = engine.concurrency

    @property
    def identity(self) -> Mapping[str, str]:
        """The engine's own, with the number of the repetition."""
        return {**self._engine.identity, "repeat": str(self._number)}

    @property
    def inner(self) -> Engine:
        """The engine that is asked once more."""
        return self._engine

    async def answer(self, prompt: Prompt) -> Answer:
        """Answer one prompt."""
        return await self._engine.answer(prompt)

    def keep_states(self, book: Callable[[str], Any]) -> None:
        """Where the engine keeps states."""
        self._engine.keep_states(book)

    def use_other_verdicts(self, said: OtherVerdicts) -> None:
        """Where the engine looks up other judges."""
        self._engine.use_other_verdicts(said)

    def note_answered(self) -> None:
        """The engine has answered in an earlier run."""
        self._engine.note_answered()

    async def close(self) -> None:
        """Close the engine."""
        await self._engine.close()
