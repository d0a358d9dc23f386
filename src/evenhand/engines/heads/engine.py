"""A head as an engine, so that whatever asks engines can ask it: runs, the store, Ray, the web page.

An engine is given a prompt and answers with labels and their probabilities. A head has a protocol of its own, made
from its dimensions: one prompt that holds the pair, and one answer on all dimensions. The engine takes the texts
out of the prompt's untrusted spans, reads each response by itself, and answers with the labels' probabilities.
Swapped sides give the same probabilities, swapped: the second order costs nothing, since both responses are known.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping

import numpy as np

from evenhand.core.engine import MEASURED, Answer, Engine, State, StateReader, Token, Usage
from evenhand.core.errors import EngineError, SpecError
from evenhand.core.protocol import COMPARED, Prompt, Protocol
from evenhand.engines.heads import PREFIX
from evenhand.engines.heads.head import LENGTH, Array, Head, check_width, log_length_ratio
from evenhand.engines.heads.reading import Eyes
from evenhand.engines.heads.vectors import MemoryVectors, Vectors

_FIELDS = ("Instruction", "Response A", "Response B")
_HEADING = re.compile(rf"## ({'|'.join(_FIELDS)}):\n")
_SLOTS = ("{instruction}", "{output_1}", "{output_2}")
_TINY = 1e-12


def head_protocol(head: Head) -> Protocol:
    """The protocol of a head: one question on all that it has learned to judge.

    >>> from evenhand.engines.heads.head import Weights
    >>> head_protocol(Head("h", "m", "", None, {"overall": Weights(np.ones(2))})).dimensions
    ('overall',)
    """
    names = list(head.dimensions)
    asked = names[0] if len(names) == 1 else f"{', '.join(names[:-1])}, and {names[-1]}"
    body = "".join(f"## {field}:\n{slot}\n\n" for field, slot in zip(_FIELDS, _SLOTS, strict=True))
    text = (
        f"---\nname: head\ndescription: A trained head: nothing is asked, each response is read once.\n---\n"
        f"<|im_start|>user\n{body}Best on {asked}: A, B, or tie?<|im_end|>\n<|im_start|>assistant\n"
    )
    return Protocol.parse(text, name="head", file="head")


class HeadEngine(Engine):
    """A head on the engine whose states it was trained on."""

    def __init__(self, head: Head, engine: Engine, vectors: Vectors | None = None) -> None:
        if not isinstance(engine, StateReader):
            raise SpecError(f"{engine.identity['model']} gives no states, and a head needs them")
        self.head, self._engine = head, engine
        self._identity = dict(engine.state_identity(head.blocks))
        theirs = self._identity.get("sha256", "")
        if theirs and head.sha256 and theirs != head.sha256:
            raise SpecError(
                f"the head {head.name} was trained on {head.model} (sha256 {head.sha256[:12]}), not on "
                f"{self._identity['model']} (sha256 {theirs[:12]})",
                hint=f"use it with {head.model}, or train another with `evenhand learn`",
            )
        _check_features(head)
        self.concurrency = engine.concurrency
        self._eyes = Eyes(engine, vectors or MemoryVectors(), blocks=head.blocks, reading=head.reading)

    @property
    def identity(self) -> Mapping[str, str]:
        """The head by its hash, and the model whose states it reads."""
        below = {name: value for name, value in self._identity.items() if name not in ("engine", "model")}
        return {
            "engine": "head",
            "model": f"{PREFIX}{self.head.name}",
            "head": self.head.fingerprint,
            "states_of": self._identity["model"],
            **({MEASURED: str(self.head.longest)} if self.head.longest else {}),
            **below,
        }

    @property
    def protocol(self) -> Protocol:
        """The one protocol that it answers."""
        return head_protocol(self.head)

    async def answer(self, prompt: Prompt) -> Answer:
        """Read both responses, those that are new, and compare their scores."""
        if prompt.verdicts != len(self.head.dimensions) or prompt.words != COMPARED:
            raise EngineError(
                f"the head {self.head.name} answers only the protocol of its own", reason="protocol", fatal=True
            )
        instruction, shown_a, shown_b = _texts(prompt)
        first, state_a = await self._eyes.read(instruction, shown_a)
        second, state_b = await self._eyes.read(instruction, shown_b)
        check_width(self.head, [len(first), len(second)])
        features = {LENGTH: log_length_ratio(shown_a, shown_b)}
        p = [
            self.head.weights[name].probabilities(np.asarray(first, float), np.asarray(second, float), features)
            for name in self.head.dimensions
        ]
        beyond = self.head.longest and max(len(shown_a), len(shown_b)) > self.head.longest
        notes = ("longer_than_measured",) if beyond else ()
        return _answer(p, _usage(state_a, state_b), notes)

    def keep_states(self, book: Callable[[str], Vectors]) -> None:
        """Keep what was read in a database, so that the next run need not read it again."""
        self._eyes.vectors = book(self._eyes.reader_name)

    async def close(self) -> None:
        """Close the engine."""
        await self._engine.close()


def _check_features(head: Head) -> None:
    """Refuse a head with features that a pair alone does not have."""
    names = {name for weights in head.weights.values() for name in weights.features}
    if names - {LENGTH}:
        missing = ", ".join(sorted(names - {LENGTH}))
        raise SpecError(f"the head {head.name} also needs {missing}, which a pair alone does not have")


def _texts(prompt: Prompt) -> list[str]:
    """The three texts of a prompt made by `head_protocol`; one that is empty has no span of its own."""
    found = dict.fromkeys(_FIELDS, "")
    field = ""
    for span in prompt.turns[-1].spans:
        if not span.trusted:
            found[field] = span.text
        else:
            field = (_HEADING.findall(span.text) or [field])[-1]
    return list(found.values())


def _usage(*states: State | None) -> Usage:
    return Usage.total([state.usage for state in states if state is not None] or [Usage()])


def _answer(p: list[Array], usage: Usage, notes: tuple[str, ...]) -> Answer:
    """Probabilities as tokens: the likeliest label of each dimension, commas between them."""
    tokens: list[Token] = []
    for shares in p:
        ranked = sorted(zip(COMPARED, shares.tolist(), strict=True), key=lambda item: -item[1])
        top = tuple((label, math.log(max(share, _TINY))) for label, share in ranked)
        tokens += [Token(","), Token(top[0][0], top)] if tokens else [Token(top[0][0], top)]
    return Answer("".join(token.text for token in tokens), tuple(tokens), usage, notes=notes)
