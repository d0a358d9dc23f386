"""A llama.cpp server that others started, asked in the same words as the embedded one."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping

from evenhand.core.engine import Answer, Engine, Sampling, State
from evenhand.core.protocol import Prompt
from evenhand.engines.llama_client import TOKENISED, TOP_TOKENS, LlamaClient


class LlamaServerEngine(Engine):
    """llama-server's own API: prompts go as token ids, answers are held to the labels by a grammar.

    >>> LlamaServerEngine("http://127.0.0.1:8080", "qwen").identity["model"]
    'qwen'
    """

    def __init__(
        self,
        url: str,
        model: str,
        *,
        key: Callable[[], str] = lambda: "",
        key_env: str = "",
        timeout: float | None = None,
        concurrency: int = 4,
        on_notice: Callable[[str], None] | None = None,
    ) -> None:
        self.url, self.model, self.concurrency = url, model, concurrency
        self._key, self._key_env, self._timeout = key, key_env, timeout
        self._notice = on_notice or (lambda _: None)
        self._client: LlamaClient | None = None
        self._context = 0
        self._starting = asyncio.Lock()

    @property
    def identity(self) -> Mapping[str, str]:
        """Where the server is, what its model is called, and how its probabilities are read."""
        return {
            "engine": "llama-server",
            "base_url": self.url,
            "model": self.model,
            "top_tokens": str(TOP_TOKENS),
            "tokenised": TOKENISED,
        }

    async def answer(self, prompt: Prompt) -> Answer:
        """Ask the server."""
        client = await self._start()
        return await client.answer(prompt, context=self._context)

    async def write(self, prompt: Prompt, sampling: Sampling) -> Answer:
        """Let the server's model write."""
        client = await self._start()
        return await client.write(prompt, sampling, context=self._context)

    def state_identity(self, blocks: int | None = None) -> Mapping[str, str]:
        """Where the server is, and what its model is called: its hash is not known here."""
        return {
            "engine": "llama-server",
            "base_url": self.url,
            "model": self.model,
            "tokenised": TOKENISED,
            "blocks": "all" if blocks is None else str(blocks),
        }

    async def state(self, prompt: Prompt, blocks: int | None = None) -> State:
        """The state at the end of a prompt, from a server started with `--embeddings --pooling last`.

        The server gives the state after the last block of its file. To read an earlier one, serve a file that ends
        there; this program cannot check that it does.
        """
        client = await self._start()
        return await client.state(prompt, context=self._context)

    async def close(self) -> None:
        """Close the connections."""
        if self._client is not None:
            await self._client.close()

    async def _start(self) -> LlamaClient:
        """Learn what the server holds, before the first prompt."""
        async with self._starting:
            if self._client is None:
                client = LlamaClient(
                    self.url,
                    self._key(),
                    key_env=self._key_env,
                    timeout=self._timeout,
                    limit=self.concurrency,
                    on_notice=self._notice,
                )
                try:
                    self._context = await client.learn()
                except BaseException:
                    await client.close()
                    raise
                self._client = client
        return self._client
