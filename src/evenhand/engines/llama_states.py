"""States from llama.cpp: its server in this process once more, started for embeddings instead of answers.

One server cannot do both: a model loaded for embeddings pools its outputs. The weights are mapped from the file, so
that a second server of the same file shares them; one that stops after some blocks is a smaller file of its own.
"""

from __future__ import annotations

import asyncio
import os
import secrets
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from evenhand.core.engine import State
from evenhand.core.errors import ModelError
from evenhand.core.protocol import Prompt
from evenhand.engines.catalog import ModelFile, cache_folder
from evenhand.engines.cut import cut_after
from evenhand.engines.llama_client import LlamaClient

# A prompt is computed in pieces of this many tokens; larger ones are no faster and take more memory.
_PIECE = 512
_POOL_LAST = 3  # llama.cpp's LLAMA_POOLING_TYPE_LAST


class StateServer:
    """One model, loaded up to some block when it is first asked for a state."""

    def __init__(
        self,
        model: ModelFile,
        blocks: int | None,
        context: int,
        control: Callable[[], Mapping[str, int]],
        *,
        threads: int | None = None,
        gpu_layers: int | None = None,
    ) -> None:
        self.model, self.blocks, self.context = model, blocks, context
        self._control, self._threads, self._gpu_layers = control, threads, gpu_layers
        self._server: Any = None
        self._key = ""
        self._client: LlamaClient | None = None
        self._starting = asyncio.Lock()

    @property
    def path(self) -> Path:
        """The file that is loaded: the model's own, or the copy that ends after some blocks."""
        if self.blocks is None:
            return self.model.path
        return cache_folder() / "cut" / f"{self.model.sha256[:16]}-{self.blocks}.gguf"

    async def state(self, prompt: Prompt) -> State:
        """The state at the last token of a prompt."""
        client = await self._start()
        return await client.state(prompt, context=self.context)

    async def close(self) -> None:
        """Stop the server and give its memory back."""
        if self._client is not None:
            await self._client.close()
            self._client = None
        await asyncio.to_thread(self._let_go)

    def _let_go(self) -> None:
        self._server = None

    async def _start(self) -> LlamaClient:
        async with self._starting:
            if self._client is None:
                self._key = secrets.token_urlsafe(32)
                self._server = await asyncio.to_thread(self._load, self._key)
                self._client = LlamaClient(
                    self._server.listening_address, self._key, control_tokens=self._control()
                )
        return self._client

    def _load(self, key: str) -> Any:
        import xllamacpp  # here, because it takes a moment that a listing of protocols should not

        if self.blocks is not None:
            cut_after(self.model.path, self.blocks, self.path)
        params = xllamacpp.CommonParams()
        params.model.path = str(self.path)
        params.hostnames, params.port, params.api_keys = ["127.0.0.1"], 0, [key]
        params.embedding, params.pooling_type, params.embd_normalize = True, _POOL_LAST, -1
        params.n_ctx, params.n_parallel = self.context, 1
        params.n_batch = params.n_ubatch = _PIECE
        params.cache_ram_mib = 0
        params.ui = params.endpoint_slots = False
        params.verbosity = -1
        params.cpuparams.n_threads = params.cpuparams_batch.n_threads = self._threads or os.cpu_count() or 1
        if self._gpu_layers is not None:
            params.n_gpu_layers = self._gpu_layers
        try:
            return xllamacpp.Server(params)
        except RuntimeError as fault:
            raise ModelError(
                f"llama.cpp cannot load {self.path} for states: {fault}",
                hint="remove the file and try again" if self.blocks is not None else "the file may be damaged",
            ) from fault
