"""A judge's name without its service: what was probably meant."""

from __future__ import annotations

import re
from pathlib import Path

# How the names of hosted models begin, and the service that has them.
_FAMILIES = {
    "openai": re.compile(r"(gpt|chatgpt|o\d)(-|$)", re.IGNORECASE),
    "anthropic": re.compile(r"claude(-|$)", re.IGNORECASE),
    "gemini": re.compile(r"gemini(-|$)", re.IGNORECASE),
}
_OLLAMA = re.compile(r"[\w.-]+:[\w.-]+")
_HUB = re.compile(r"[\w-][\w.-]*/[\w-][\w.-]*")


def full_name(spec: str) -> str:
    """The spec that a bare model name was probably meant to be; empty where nothing comes to mind.

    >>> full_name("gpt-4o"), full_name("claude-sonnet-4-5"), full_name("qwen3:8b"), full_name("nope")
    ('openai:gpt-4o', 'anthropic:claude-sonnet-4-5', 'ollama:qwen3:8b', '')
    >>> full_name("Qwen/Qwen3-8B")
    'vllm:Qwen/Qwen3-8B'
    """
    for service, begins in _FAMILIES.items():
        if begins.match(spec) and ":" not in spec and "/" not in spec:
            return f"{service}:{spec}"
    if _HUB.fullmatch(spec) and not spec.endswith(".gguf") and not Path(spec).exists():
        return f"vllm:{spec}"
    return f"ollama:{spec}" if _OLLAMA.fullmatch(spec) and not spec.startswith("hf:") else ""
