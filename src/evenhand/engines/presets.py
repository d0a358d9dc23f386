"""The services and servers that people use, as a table; and what a judge's name means.

    openai:gpt-4o-mini                      a preset and a model
    vllm@http://gpu:8000/v1#Qwen/Qwen3-8B   a preset's settings at another address
    https://host/v1#some-model              any OpenAI-compatible server

What a server can do is learnt by asking it. The table only saves the requests whose answer is known.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal
from urllib.parse import urlsplit

from evenhand.core.errors import SpecError


@dataclass(frozen=True, slots=True)
class Preset:
    """What is known of a service beforehand."""

    name: str
    base_url: str
    key_env: str = ""  # the variable in which its users keep their key
    key_needed: bool = False
    # "ask": logprobs is a switch and top_logprobs a number; "count": logprobs is the number; "none": not to be had
    logprobs: Literal["ask", "count", "none"] = "ask"
    top: int = 20  # the most log-probabilities for each token
    top_completions: int = 20  # the same for /completions
    many: bool = True  # gives several samples in one request
    limit_field: Literal["max_tokens", "max_completion_tokens"] = "max_tokens"
    completions: bool = True  # has /completions
    tokenises: Literal["", "vllm", "llama.cpp"] = ""  # whose way to turn text into token ids
    # Requests at once where nobody says how many. A server that keeps few conversations in memory reads each from
    # its beginning again if others come between its questions.
    at_once: int = 64


@dataclass(frozen=True, slots=True)
class Address:
    """A judge behind HTTP."""

    preset: Preset
    base_url: str
    model: str


ANY = Preset("endpoint", "")
_FEW = 4  # as many as llama-server keeps by default

PRESETS: Mapping[str, Preset] = {
    preset.name: preset
    for preset in (
        Preset(
            "openai",
            "https://api.openai.com/v1",
            "OPENAI_API_KEY",
            key_needed=True,
            top_completions=5,
            limit_field="max_completion_tokens",
        ),
        Preset("openrouter", "https://openrouter.ai/api/v1", "OPENROUTER_API_KEY", key_needed=True, many=False),
        Preset("together", "https://api.together.xyz/v1", "TOGETHER_API_KEY", key_needed=True, logprobs="count"),
        Preset(
            "groq",
            "https://api.groq.com/openai/v1",
            "GROQ_API_KEY",
            key_needed=True,
            logprobs="none",  # refused with 400
            many=False,
            completions=False,
        ),
        Preset(
            "gemini",
            "https://generativelanguage.googleapis.com/v1beta/openai",
            "GEMINI_API_KEY",
            key_needed=True,
            completions=False,
        ),
        Preset(
            "anthropic",
            "https://api.anthropic.com/v1",
            "ANTHROPIC_API_KEY",
            key_needed=True,
            logprobs="none",  # ignored
            many=False,
            completions=False,
        ),
        Preset("vllm", "http://127.0.0.1:8000/v1", "VLLM_API_KEY", tokenises="vllm"),
        Preset("sglang", "http://127.0.0.1:30000/v1"),
        Preset("ollama", "http://127.0.0.1:11434/v1", many=False, at_once=_FEW),
        Preset("lmstudio", "http://127.0.0.1:1234/v1", "LM_API_TOKEN", many=False, at_once=_FEW),
        Preset(
            "llama-server",
            "http://127.0.0.1:8080/v1",
            "LLAMA_API_KEY",
            many=False,
            tokenises="llama.cpp",
            at_once=_FEW,
        ),
    )
}

_URL = re.compile(r"(?:(?P<preset>[\w-]+)@)?(?P<url>https?://[^#]*)(?:#(?P<model>.*))?", re.IGNORECASE)
_NAMED = re.compile(r"(?P<preset>[\w-]+)(?::(?P<model>.*))?", re.DOTALL)


def refuse_lone_bytes(text: str) -> None:
    """Refuse a name that no database can hold: Python reads a byte that is no UTF-8 as half of a surrogate pair."""
    try:
        text.encode()
    except UnicodeEncodeError:
        raise SpecError(
            f"{text!a} is not UTF-8", hint="what a judge is called and told is stored as text"
        ) from None


def find_address(spec: str) -> Address | None:
    """The endpoint that a judge's name stands for; None where it names something else, such as a file.

    >>> find_address("ollama:qwen3:8b").model
    'qwen3:8b'
    >>> find_address("vllm@http://gpu:9000/v1/#Qwen/Qwen3-8B").base_url
    'http://gpu:9000/v1'
    >>> find_address("qwen2.5-coder-1.5b") is None
    True
    """
    if found := _URL.fullmatch(spec):
        name = found["preset"]
        preset = PRESETS.get(name) if name else ANY
        if preset is None:
            raise _unknown(name)
        return Address(preset, _checked(found["url"]), _model(found["model"], spec.partition("#")[0] + "#MODEL"))
    found = _NAMED.fullmatch(spec)
    if found and found["preset"] in PRESETS:
        preset = PRESETS[found["preset"]]
        return Address(preset, preset.base_url, _model(found["model"], f"{preset.name}:MODEL"))
    if found and found["model"] and (near := difflib.get_close_matches(found["preset"], PRESETS, n=1, cutoff=0.7)):
        raise SpecError(f"no service is called {found['preset']!r}", hint=f"did you mean {near[0]}?")
    return None


def _checked(url: str) -> str:
    try:
        parts = urlsplit(url)
        _ = parts.port  # which is read now
    except ValueError:
        raise SpecError("the URL is not valid", hint="write http://host:port/v1#MODEL") from None
    if parts.username or parts.password or parts.query:
        # Whatever is in a URL ends up in the shell's history, in the database and in messages.
        raise SpecError(
            "a URL with a name, a password or a query is not taken", hint="keys come from the environment"
        )
    if not parts.hostname:
        raise SpecError(f"{url!r} names no server", hint="write http://host:port/v1#MODEL")
    return parts.geturl().rstrip("/")


def _model(name: str | None, form: str) -> str:
    if not name:
        raise SpecError("which model is to judge?", hint=f"write {form}")
    return name


def _unknown(name: str) -> SpecError:
    return SpecError(f"no service is called {name!r}", hint=f"there are {', '.join(PRESETS)}")
