"""A judge -> the batch service that answers for it."""

from __future__ import annotations

from evenhand.core.engine import Engine
from evenhand.core.errors import SpecError
from evenhand.engines.batches.anthropic import AnthropicBatches
from evenhand.engines.batches.client import BatchService
from evenhand.engines.batches.openai import OpenAIBatches
from evenhand.engines.endpoint import EndpointEngine
from evenhand.engines.repeated import Repeated

_SERVICES: dict[str, type[OpenAIBatches | AnthropicBatches]] = {
    "openai": OpenAIBatches,
    "anthropic": AnthropicBatches,
}
WHO_CAN = "openai:MODEL and anthropic:MODEL can, and openai@URL#MODEL where a server has OpenAI's batches"


def check_batches(engine: Engine) -> EndpointEngine:
    """The endpoint behind a judge that can be asked in batches; else why it cannot.

    >>> from evenhand.engines import open_engine
    >>> check_batches(open_engine("openai:gpt-4o-mini")).settings.model
    'gpt-4o-mini'
    """
    endpoint = engine.inner if isinstance(engine, Repeated) else engine
    if not isinstance(endpoint, EndpointEngine):
        raise SpecError(f"{engine.identity['model']} cannot be asked in batches", hint=WHO_CAN)
    settings = endpoint.settings
    if settings.preset.name not in _SERVICES:
        who = settings.base_url if settings.preset.name == "endpoint" else settings.preset.name
        raise SpecError(f"{who} cannot be asked in batches", hint=WHO_CAN)
    if settings.samples > 1:
        raise SpecError("batches do not support --samples", hint="leave out --samples, or --batch")
    if settings.mode == "completions":
        raise SpecError("batches are chats", hint="leave out --set mode=completions, or --batch")
    if settings.effort and settings.preset.name == "anthropic":
        raise SpecError(
            "the effort cannot be set in Anthropic's batches", hint="leave out --set effort, or --batch"
        )
    return endpoint


def open_batches(engine: Engine) -> BatchService:
    """The service; its key is looked up now."""
    endpoint = check_batches(engine)
    return _SERVICES[endpoint.settings.preset.name](endpoint)
