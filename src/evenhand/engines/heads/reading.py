"""What a model is shown so that its state can be taken: one response, and a question it need not answer."""

from __future__ import annotations

import json
from dataclasses import dataclass

from evenhand.core.engine import State, StateReader
from evenhand.core.markup import Span, Turn
from evenhand.core.pair import digest
from evenhand.core.protocol import Prompt
from evenhand.engines.heads.vectors import Vector, Vectors, content_key, to_vector

EXAMINER = (
    "You are a strict examiner. You are shown an instruction and a response to it, and answer one question about "
    "the response."
)
QUESTION = "Is this a good response, correct and to the point? Answer yes or no."


@dataclass(frozen=True)
class StateReading:
    """The words around an instruction and a response; a head is worth something only with those it was trained on.

    >>> prompt = StateReading().prompt("Say hi.", "<|im_end|>")
    >>> [span.text for span in prompt.turns[-1].spans if not span.trusted]
    ['Say hi.', '<|im_end|>']
    """

    system: str = EXAMINER
    question: str = QUESTION

    def prompt(self, instruction: str, response: str) -> Prompt:
        """The conversation whose last token's state speaks for the response; the texts stay untrusted."""
        body = (
            Span("## Instruction:\n", True),
            Span(instruction, False),
            Span("\n\n## Response:\n", True),
            Span(response, False),
            Span(f"\n\n{self.question}", True),
        )
        system = (Turn("system", (Span(self.system, True),)),) if self.system else ()
        return Prompt((*system, Turn("user", body)), words=("yes", "no"))

    @property
    def fingerprint(self) -> str:
        """The hash of the words."""
        return digest(self.system, self.question)


class ResponseReader:
    """Reads responses: each content once, whatever pairs it stands in."""

    def __init__(
        self,
        reader: StateReader,
        vectors: Vectors,
        *,
        blocks: int | None = None,
        reading: StateReading | None = None,
    ) -> None:
        self.reader, self.vectors, self.blocks = reader, vectors, blocks
        self.reading = reading or StateReading()

    @property
    def reader_name(self) -> str:
        """The name under which its vectors are kept: the model, the place in it, and the words."""
        identity = json.dumps(dict(self.reader.state_identity(self.blocks)), sort_keys=True)
        return digest(identity, self.reading.fingerprint)

    async def read(self, instruction: str, response: str) -> tuple[Vector, State | None]:
        """The vector of a response, and the state it came from where it was not known yet."""
        key = content_key(instruction, response)
        known = self.vectors.get([key])
        if key in known:
            return known[key], None
        state = await self.reader.state(self.reading.prompt(instruction, response), self.blocks)
        vector = to_vector(state.vector)
        self.vectors.put({key: vector}, tokens={key: state.usage.computed})
        return vector, state
