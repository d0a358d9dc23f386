"""States from vLLM: its embeddings of a chat model, which are what the last block leaves behind the last token.

The server is started for that: `vllm serve MODEL --runner pooling --convert embed`. It then judges nothing else.
Prompts go as token ids, so that untrusted text stays text.
"""

from __future__ import annotations

from collections.abc import Mapping

from evenhand.core.engine import State
from evenhand.core.errors import EngineError, SpecError
from evenhand.core.protocol import Prompt
from evenhand.engines.completion import read_usage
from evenhand.engines.endpoint import EndpointEngine
from evenhand.engines.figures import sound, state_vector

# Asks for states as they are. Newer servers know the switch by the second name, those before 0.10.1 by none.
_AS_THEY_ARE = {"normalize": False, "use_activation": False}
_START = "start it for states: vllm serve MODEL --runner pooling --convert embed"


class VllmEngine(EndpointEngine):
    """An endpoint that also gives states, where the server was started for them.

    >>> from evenhand.engines.endpoint import open_endpoint
    >>> from evenhand.engines.presets import find_address
    >>> open_endpoint(find_address("vllm:Qwen/Qwen3-8B")).state_identity()["engine"]
    'vllm'
    """

    def state_identity(self, blocks: int | None = None) -> Mapping[str, str]:
        """Where the server is, and what its model is called: its hash is not known here."""
        if blocks is not None:
            raise SpecError("vLLM gives the state after the last block alone", hint="leave --blocks out")
        return {"engine": "vllm", "base_url": self.settings.base_url, "model": self.settings.model, "blocks": "all"}

    async def state(self, prompt: Prompt, blocks: int | None = None) -> State:
        """The state at the last token of a prompt."""
        ids = await self._tokens(prompt)
        # States are kept: none may be that of another prompt. A server that gives them answers nothing else.
        client = self._client = self._client or self._connect(self.settings.base_url, once_only=True)
        body = {"model": self.settings.model, "input": ids, "encoding_format": "float", **_AS_THEY_ARE}
        reply = await client.post("/embeddings", body)
        if reply.status != 200:
            raise _explained(client.fault(reply))
        with sound(client.who):
            given = reply.data["data"][0]["embedding"]
        hint = "start it with --pooler-config '{\"normalize\": false}'"
        return State(state_vector(given, client.who, hint), read_usage(reply.data))


def _explained(fault: EngineError) -> EngineError:
    """A server that was started to answer has no such route, whatever the prompt."""
    if fault.reason == "no_such_route":
        return EngineError(fault.message, reason=fault.reason, fatal=True, hint=_START)
    return fault
