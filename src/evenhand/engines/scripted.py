"""An engine without a model: a Python function answers. It is what tests of logic use."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

from evenhand.engines.base import Answer, Engine, Sampling, Token, Usage
from evenhand.protocol import Prompt

Script = Callable[[Prompt], str | Mapping[str, float] | Answer]


class ScriptedEngine(Engine):
    """Answers with what `script` returns: a text, probabilities of the labels, or a whole Answer.

    >>> import asyncio
    >>> engine = ScriptedEngine(lambda prompt: {"A": 0.7, "B": 0.2, "tie": 0.1})
    >>> asyncio.run(engine.answer(Prompt(()))).text
    'A'
    """

    def __init__(self, script: Script, *, name: str = "script", concurrency: int = 1) -> None:
        self.script, self.name, self.concurrency = script, name, concurrency
        self.asked = 0

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


def _tokens(p: Mapping[str, float], verdicts: int) -> tuple[Token, ...]:
    """The same probabilities for each of the labels that the answer holds."""
    top = tuple(sorted(((label, math.log(max(x, 1e-12))) for label, x in p.items()), key=lambda t: -t[1]))
    label = Token(top[0][0], top)
    return (label, *((Token(","), label) * (verdicts - 1)))
