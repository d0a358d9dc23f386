"""An engine without a model: a Python function answers. It is what tests of logic use."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

from evenhand.core.engine import Answer, Engine, Sampling, State, Token, Usage
from evenhand.core.errors import EngineError
from evenhand.core.protocol import Prompt

Script = Callable[[Prompt], str | Mapping[str, float] | Answer]


class ScriptedEngine(Engine):
    """Answers with what `script` returns: a text, probabilities of the labels, or a whole Answer.

    >>> import asyncio
    >>> engine = ScriptedEngine(lambda prompt: {"A": 0.7, "B": 0.2, "tie": 0.1})
    >>> asyncio.run(engine.answer(Prompt(()))).text
    'A'
    """

    def __init__(
        self,
        script: Script,
        *,
        name: str = "script",
        concurrency: int = 1,
        states: Callable[[Prompt], Sequence[float]] | None = None,
    ) -> None:
        self.script, self.name, self.concurrency, self.states = script, name, concurrency, states
        self.asked = 0
        self.read = 0

    @property
    def identity(self) -> Mapping[str, str]:
        """The script's name: two scripts under one name share their verdicts."""
        return {"engine": "scripted", "model": self.name}

    async def answer(self, prompt: Prompt) -> Answer:
        """Call the script."""
        self.asked += 1
        said = self.script(prompt)
        if isinstance(said, Answer):
            return said
        tokens = _tokens(said, prompt.verdicts) if isinstance(said, Mapping) else ()
        text = "".join(token.text for token in tokens) if isinstance(said, Mapping) else said
        words = sum(len(turn.text.split()) for turn in prompt.turns)
        return Answer(text, tokens, Usage(computed=words, generated=prompt.verdicts))

    async def write(self, prompt: Prompt, sampling: Sampling) -> Answer:
        """Call the script; its text is the answer."""
        return await self.answer(prompt)

    def state_identity(self, blocks: int | None = None) -> Mapping[str, str]:
        """The script's name, and the block."""
        return {"engine": "scripted", "model": self.name, "blocks": "all" if blocks is None else str(blocks)}

    async def state(self, prompt: Prompt, blocks: int | None = None) -> State:
        """Call the script of states."""
        if self.states is None:
            raise EngineError(f"{self.name} has no script of states", reason="no_states", fatal=True)
        self.read += 1
        words = sum(len(turn.text.split()) for turn in prompt.turns)
        return State(tuple(map(float, self.states(prompt))), Usage(computed=words))


def _tokens(p: Mapping[str, float], verdicts: int) -> tuple[Token, ...]:
    """The same probabilities for each of the labels that the answer holds."""
    top = tuple(sorted(((label, math.log(max(x, 1e-12))) for label, x in p.items()), key=lambda t: -t[1]))
    label = Token(top[0][0], top)
    return (label, *((Token(","), label) * (verdicts - 1)))
