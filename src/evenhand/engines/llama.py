"""The embedded engine: llama.cpp's own server, inside this process, on loopback behind a random key."""

from __future__ import annotations

import asyncio
import os
import secrets
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from evenhand.core.engine import Answer, Engine, Sampling, State
from evenhand.core.errors import ModelError
from evenhand.core.protocol import Prompt
from evenhand.engines import gguf
from evenhand.engines.catalog import ModelFile
from evenhand.engines.llama_client import TOKENISED, TOP_TOKENS, LlamaClient
from evenhand.engines.llama_states import StateServer

# Enough for two responses of several pages; a longer context only costs memory until it is asked for.
DEFAULT_CONTEXT = 16384
# Places for what was computed of a prompt: for as many conversations as a protocol may hold without losing any.
SLOTS = 2


@dataclass(frozen=True, slots=True)
class Hardware:
    """How the model is run. None of this decides a verdict, so none of it is part of a verdict's key."""

    context: int | None = None  # tokens; None: as many as the model knows, up to DEFAULT_CONTEXT
    threads: int | None = None  # None: the machine's cores
    gpu_layers: int | None = None  # None: llama.cpp decides; 0: all on the CPU


class LlamaEngine(Engine):
    """A GGUF model, loaded when it is first asked.

    >>> from evenhand.engines.catalog import locate
    >>> engine = LlamaEngine(locate("smollm2-135m"))
    >>> engine.identity["model"], engine.context
    ('smollm2-135m', 8192)
    """

    # One conversation at a time: on a CPU several at once are no faster, and a slot keeps the shared prefix.
    concurrency = 1

    def __init__(
        self, model: ModelFile, hardware: Hardware | None = None, *, on_load: Callable[[], None] | None = None
    ) -> None:
        self.model = model
        self.hardware = hardware or Hardware()
        header = gguf.read_header(model.path)
        known = header.context_length or DEFAULT_CONTEXT
        self.context = min(known, self.hardware.context or DEFAULT_CONTEXT)
        self._on_load = on_load
        self._server: Any = None
        self._key = ""
        self._client: LlamaClient | None = None
        self._starting = asyncio.Lock()
        self._states: dict[int | None, StateServer] = {}

    @property
    def identity(self) -> Mapping[str, str]:
        """The model by its name and hash, and how its probabilities are read."""
        return {
            "engine": "llama.cpp",
            "model": self.model.name,
            "sha256": self.model.sha256,
            "top_tokens": str(TOP_TOKENS),
            "tokenised": TOKENISED,
        }

    async def answer(self, prompt: Prompt) -> Answer:
        """Ask the model."""
        client = await self.start()
        return await client.answer(prompt, context=self.context)

    async def write(self, prompt: Prompt, sampling: Sampling) -> Answer:
        """Let the model write."""
        client = await self.start()
        return await client.write(prompt, sampling, context=self.context)

    def state_identity(self, blocks: int | None = None) -> Mapping[str, str]:
        """The model by its name and hash, and where in it the state is taken."""
        return {
            "engine": "llama.cpp",
            "model": self.model.name,
            "sha256": self.model.sha256,
            "tokenised": TOKENISED,
            "blocks": "all" if blocks is None else str(blocks),
        }

    async def state(self, prompt: Prompt, blocks: int | None = None) -> State:
        """The state at the end of a prompt; the model is loaded once more for it, up to so many blocks."""
        if blocks not in self._states:
            self._states[blocks] = StateServer(
                self.model,
                blocks,
                self.context,
                self._control,
                threads=self.hardware.threads,
                gpu_layers=self.hardware.gpu_layers,
            )
        return await self._states[blocks].state(prompt)

    async def start(self) -> LlamaClient:
        """Load the model, if it is not loaded yet."""
        async with self._starting:
            if self._client is None:
                if self._on_load:
                    self._on_load()
                self._key = secrets.token_urlsafe(32)
                self._server = await asyncio.to_thread(self._load, self._key)
                self._client = LlamaClient(
                    self._server.listening_address, self._key, control_tokens=self._control(), slots=SLOTS
                )
        return self._client

    async def address(self) -> tuple[str, str]:
        """The URL and the key of the running server, for other clients here; it speaks OpenAI's API too."""
        client = await self.start()
        return client.url, self._key

    async def close(self) -> None:
        """Stop the server and give its memory back."""
        if self._client is not None:
            await self._client.close()
            self._client = None
        for server in self._states.values():
            await server.close()
        await asyncio.to_thread(self._let_go)

    def _let_go(self) -> None:
        self._server = None  # the last reference: llama.cpp stops its threads and waits for them

    def _control(self) -> dict[str, int]:
        """The tokens that steer the model: those declared so, and others that its chat template writes.

        Some vocabularies declare their turn markers "user defined" instead, and llama.cpp finds those in any text.
        """
        special = gguf.special_tokens(self.model.path)
        template = gguf.read_header(self.model.path).chat_template or ""
        written = {text: number for text, number in special.user_defined.items() if text in template}
        return {**special.control, **written}

    def _load(self, key: str) -> Any:
        import xllamacpp  # here, because it takes a moment that a listing of protocols should not

        params = xllamacpp.CommonParams()
        params.model.path = str(self.model.path)
        params.hostnames = ["127.0.0.1"]
        params.port = 0  # any that is free
        params.api_keys = [key]
        # A context for each: in a common one, what one conversation holds moves the last digits of the other.
        params.n_ctx, params.n_parallel, params.kv_unified = self.context * SLOTS, SLOTS, False
        params.cache_ram_mib = 0  # the slots' own cache is enough: pairs share their prefixes and come in turn
        params.ui = params.endpoint_slots = False
        params.verbosity = -1
        threads = self.hardware.threads or os.cpu_count() or 1
        params.cpuparams.n_threads = params.cpuparams_batch.n_threads = threads
        if self.hardware.gpu_layers is not None:
            params.n_gpu_layers = self.hardware.gpu_layers
        try:
            return xllamacpp.Server(params)
        except RuntimeError as fault:
            raise ModelError(
                f"llama.cpp cannot load {self.model.path}: {fault}",
                hint=f"the file may be damaged, or a context of {self.context} tokens too large for the memory",
            ) from fault
