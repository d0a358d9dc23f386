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

from evenhand.core.engine import MEASURED, Answer, Engine, OtherVerdicts, State, StateReader, Token, Usage
from evenhand.core.errors import EngineError, SpecError
from evenhand.core.protocol import COMPARED, Prompt, Protocol
from evenhand.engines.heads import PREFIX
from evenhand.engines.heads.head import LENGTH, Array, Head, StackedJudge, check_width, log_length_ratio
from evenhand.engines.heads.reading import ResponseReader
from evenhand.engines.heads.vectors import MemoryVectors, Vectors

_FIELDS = ("Instruction", "Response A", "Response B")
_HEADING = re.compile(rf"## ({'|'.join(_FIELDS)}):\n")
_SLOTS = ("{instruction}", "{output_1}", "{output_2}")
_TINY = 1e-12
NOT_JUDGED = "other_judge_missing"  # the reason of a pair on which a judge has no verdict that the head weighs


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

    def __init__(self, head: Head, engine: Engine) -> None:
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
        self._others = _others(head)
        self._said: OtherVerdicts | None = None
        self.concurrency = engine.concurrency
        self._reader = ResponseReader(engine, MemoryVectors(), blocks=head.blocks, reading=head.reading)

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
        others = self._other_judges((instruction, shown_a, shown_b))
        first, state_a = await self._reader.read(instruction, shown_a)
        second, state_b = await self._reader.read(instruction, shown_b)
        check_width(self.head, [len(first), len(second)])
        features = {LENGTH: log_length_ratio(shown_a, shown_b), **others}
        p = [
            self.head.weights[name].probabilities(np.asarray(first, float), np.asarray(second, float), features)
            for name in self.head.dimensions
        ]
        beyond = self.head.longest and max(len(shown_a), len(shown_b)) > self.head.longest
        notes = ("longer_than_measured",) if beyond else ()
        return _answer(p, _usage(state_a, state_b), notes)

    def read_for(self, prompt: Prompt) -> tuple[str, ...]:
        """Each response by itself, in the words that stand around it."""
        instruction, *shown = _texts(prompt)
        prompts = [self.head.reading.prompt(instruction, text) for text in shown]
        return tuple(["".join(turn.text for turn in each.turns) for each in prompts])

    def keep_states(self, book: Callable[[str], Vectors]) -> None:
        """Keep what was read in a database, so that the next run need not read it again."""
        self._reader.vectors = book(self._reader.reader_name)

    def use_other_verdicts(self, said: OtherVerdicts) -> None:
        """Look up there what the judges have said that the head weighs."""
        self._said = said

    def _other_judges(self, texts: tuple[str, str, str]) -> dict[str, float]:
        """What the other judges have said of a pair; where one has no verdict, neither has the head."""
        found: dict[str, float] = {}
        if self._others and self._said is None:
            raise EngineError(
                f"the head {self.head.name} weighs what other judges said, and here is no database that has it",
                reason=NOT_JUDGED,
                fatal=True,
            )
        for judge, dimensions in self._others.items():
            said = self._said(judge.fingerprint, texts) if self._said else None
            for dimension in dimensions:
                if said is None or dimension not in said:
                    why = "has not judged this pair" if said is None else f"has no verdict on its {dimension}"
                    raise EngineError(
                        f"the head {self.head.name} weighs {judge.name}, which {why} in this database",
                        reason=NOT_JUDGED,
                        hint="let it judge the pairs first, then run the head again",
                    )
                found[judge.feature(dimension)] = said[dimension]
        return found

    async def close(self) -> None:
        """Close the engine."""
        await self._engine.close()


def _others(head: Head) -> dict[StackedJudge, tuple[str, ...]]:
    """The judges that a head weighs, each with its dimensions; features that nobody can give are refused."""
    found = {judge: head.asked_of(judge) for judge in head.judges}
    named = {name for weights in head.weights.values() for name in weights.features} - {LENGTH}
    missing = named - {judge.feature(each) for judge, dimensions in found.items() for each in dimensions}
    if missing:
        given = ", ".join(sorted(missing))
        raise SpecError(f"the head {head.name} also needs {given}, which a pair alone does not have")
    return found


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
