"""Who answers: the embedded model, an endpoint, or a script."""

from __future__ import annotations

from collections.abc import Callable

from evenhand.core.engine import Engine
from evenhand.engines.catalog import Progress, locate
from evenhand.engines.endpoint import EndpointSettings, Notice, open_endpoint
from evenhand.engines.heads import PREFIX, is_head
from evenhand.engines.llama import Hardware, LlamaEngine
from evenhand.engines.presets import find_address, refuse_lone_bytes


def open_engine(
    spec: str,
    hardware: Hardware | None = None,
    *,
    endpoint: EndpointSettings | None = None,
    on_progress: Progress | None = None,
    on_load: Callable[[], None] | None = None,
    on_notice: Notice | None = None,
) -> Engine:
    """The engine that a judge's name stands for; a model that is not there yet is fetched.

    `hardware` is for models that run here, `endpoint` for those behind HTTP.

    >>> open_engine("smollm2-135m").identity["engine"]
    'llama.cpp'
    >>> open_engine("openai:gpt-4o-mini").identity["base_url"]
    'https://api.openai.com/v1'
    """
    refuse_lone_bytes(spec)
    if is_head(spec):
        from evenhand.engines.heads.engine import HeadEngine  # with numpy, which takes a third of a second
        from evenhand.engines.heads.head import find_head

        head = find_head(spec.removeprefix(PREFIX))
        below = open_engine(
            *(head.opened_by, hardware),
            endpoint=endpoint,
            on_progress=on_progress,
            on_load=on_load,
            on_notice=on_notice,
        )
        return HeadEngine(head, below)
    address = find_address(spec)
    if address is not None:
        return open_endpoint(address, endpoint, on_notice=on_notice)
    return LlamaEngine(locate(spec, on_progress=on_progress), hardware, on_load=on_load)
