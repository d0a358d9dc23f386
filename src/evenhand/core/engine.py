"""The engine contract: one method, from a prompt to an answer.

An engine that implements `answer` can judge; one that also implements `write` can make the outputs that are
judged; and one that implements `state` gives the vector behind a prompt, on which a head can be trained.
Everything that an engine knows about the answer (its tokens, and what else could have stood in their places) goes
into the Answer and into the store, so that it can be read again.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol, runtime_checkable

from evenhand.core.errors import SpecError
from evenhand.core.protocol import Prompt


@dataclass(frozen=True, slots=True)
class Token:
    """A token of the answer, and the likeliest tokens at its place with their log-probabilities."""

    text: str
    top: tuple[tuple[str, float], ...] = ()


@dataclass(frozen=True, slots=True)
class Usage:
    """Tokens of the prompt that were computed, those reused from a cache, and those generated.

    >>> Usage(10, 90, 1) + Usage(20, 80, 1)
    Usage(computed=30, reused=170, generated=2)
    """

    computed: int = 0
    reused: int = 0
    generated: int = 0

    def __add__(self, other: Usage) -> Usage:
        return Usage(self.computed + other.computed, self.reused + other.reused, self.generated + other.generated)

    @classmethod
    def total(cls, usages: Sequence[Usage]) -> Usage:
        """The sum; of one, that one: most conversations have one answer.

        >>> Usage.total([Usage(1), Usage(2, 1), Usage()])
        Usage(computed=3, reused=1, generated=0)
        """
        if len(usages) == 1:
            return usages[0]
        return cls(
            sum([usage.computed for usage in usages]),
            sum([usage.reused for usage in usages]),
            sum([usage.generated for usage in usages]),
        )


MEASURED = "measured_characters"  # in an engine's identity: the longest responses that it was measured on


def measured_length(identity: Mapping[str, str]) -> int:
    """The length in characters up to which an engine is known to judge; 0 where that is not known.

    >>> measured_length({"model": "m", "measured_characters": "900"}), measured_length({"model": "m"})
    (900, 0)
    """
    given = identity.get(MEASURED, "")
    return int(given) if given.isdecimal() else 0


NOTHING = Usage()  # one for all that took none: it cannot be changed


BROKEN = "control_tokens_broken"  # a note: the prompt is not quite what the pair says


def note_text(note: str) -> str:
    """A note on what was done to a prompt, as a sentence.

    >>> note_text(BROKEN)
    "text that looks like a model's control token went to the judge with a backslash in it: <\\\\|im_end|>"
    """
    if note == BROKEN:
        return r"text that looks like a model's control token went to the judge with a backslash in it: <\|im_end|>"
    return note.replace("_", " ")


@dataclass(frozen=True, slots=True)
class Answer:
    """What a judge said, word for word.

    `finish` is "length" where a limit cut it off. `samples` are several answers to the same prompt, where an
    engine without probabilities was asked more than once; `text` is then the first of them. `notes` say what was
    done to the prompt on its way, such as "control_tokens_broken".
    """

    text: str
    tokens: tuple[Token, ...] = ()
    usage: Usage = NOTHING
    finish: Literal["stop", "length"] = "stop"
    samples: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Sampling:
    """How free text is drawn; all of it decides what comes out.

    >>> Sampling(temperature=0.0).identity
    {'temperature': '0', 'top_p': '1', 'max_tokens': '1024', 'seed': '0'}
    """

    temperature: float = 0.7
    top_p: float = 1.0
    max_tokens: int = 1024
    seed: int = 0

    @property
    def identity(self) -> dict[str, str]:
        """The settings as names and values."""
        return {
            "temperature": f"{self.temperature:g}",
            "top_p": f"{self.top_p:g}",
            "max_tokens": str(self.max_tokens),
            "seed": str(self.seed),
        }


# What the judge with this fingerprint has said of an instruction and two responses: log-odds of the first over the
# second by dimension, those without a verdict left out; None where it was not asked.
OtherVerdicts = Callable[[str, tuple[str, str, str]], Mapping[str, float] | None]


class Engine(ABC):
    """Something that answers prompts.

    `identity` holds what decides the answers (model, settings) and nothing else: it is part of a verdict's key.
    `concurrency` is how many prompts it takes at once.
    """

    concurrency: int = 1

    @property
    @abstractmethod
    def identity(self) -> Mapping[str, str]:
        """What decides the answers, as names and values; "model" is always among them."""

    @abstractmethod
    async def answer(self, prompt: Prompt) -> Answer:
        """Answer one prompt, or raise EngineError."""

    def keep_states(self, book: Callable[[str], Any]) -> None:  # noqa: B027 - most engines have no states to keep
        """Keep states where `book` says, by the name of their reader, instead of only in memory."""

    def read_for(self, prompt: Prompt) -> tuple[str, ...]:
        """The texts that a model reads to answer a prompt; one that it has read already may cost nothing."""
        return ("".join(turn.text for turn in prompt.turns),)

    def use_other_verdicts(self, said: OtherVerdicts) -> None:  # noqa: B027 - most engines judge by themselves
        """Look up there what other judges have said of a pair."""

    def note_answered(self) -> None:  # noqa: B027 - most engines cannot refuse
        """It answered in an earlier run, so what it refuses now may be one prompt only."""

    async def close(self) -> None:  # noqa: B027 - most engines have nothing to close
        """Give back what the engine holds; it may be asked again afterwards."""


@runtime_checkable
class Writer(Protocol):
    """An engine that also writes free text: nothing holds its answer to the labels."""

    async def write(self, prompt: Prompt, sampling: Sampling) -> Answer:
        """Write one answer, or raise EngineError."""


@dataclass(frozen=True, slots=True)
class State:
    """The hidden state of a model at the last token of a prompt, and what it took."""

    vector: tuple[float, ...]
    usage: Usage = NOTHING


@runtime_checkable
class StateReader(Protocol):
    """An engine that also gives the state in which a prompt leaves its model, before a word is said."""

    def state_identity(self, blocks: int | None = None) -> Mapping[str, str]:
        """What decides the states besides the prompt, as names and values; "model" is always among them."""

    async def state(self, prompt: Prompt, blocks: int | None = None) -> State:
        """The state after so many blocks of the model (None: after all of them), or raise EngineError."""


class Writing(Engine):
    """A writer with its sampling settings as an engine, so that retries and limits work for it, too.

    >>> import asyncio
    >>> from evenhand.engines.scripted import ScriptedEngine
    >>> engine = Writing(ScriptedEngine(lambda prompt: "Hello."), Sampling(seed=3))
    >>> asyncio.run(engine.answer(Prompt(()))).text, engine.identity["seed"]
    ('Hello.', '3')
    """

    def __init__(self, engine: Engine, sampling: Sampling) -> None:
        if not isinstance(engine, Writer):
            raise SpecError(f"{engine.identity['model']} can judge, but writes no free text")
        self._engine, self._writer, self.sampling = engine, engine, sampling
        self.concurrency = engine.concurrency

    @property
    def identity(self) -> Mapping[str, str]:
        """The engine's, with the sampling's in the place of its own."""
        own = {name: value for name, value in self._engine.identity.items() if name not in _JUDGING}
        return {**own, **self.sampling.identity}

    async def answer(self, prompt: Prompt) -> Answer:
        """Write one answer."""
        return await self._writer.write(prompt, self.sampling)

    async def close(self) -> None:
        """Close the engine."""
        await self._engine.close()


# What decides how a verdict is read, and has no part in free text.
_JUDGING = ("top_tokens", "samples")
