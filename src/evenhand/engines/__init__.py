"""Who answers: the embedded model, an endpoint, or a script."""

from __future__ import annotations

from collections.abc import Callable

from evenhand.engines.base import Engine
from evenhand.engines.catalog import Progress, locate
from evenhand.engines.llama import Hardware, LlamaEngine


def open_engine(
    spec: str,
    hardware: Hardware | None = None,
    *,
    on_progress: Progress | None = None,
    on_load: Callable[[], None] | None = None,
) -> Engine:
    """The engine that a judge's name stands for; a model that is not there yet is fetched.

    >>> open_engine("smollm2-135m").identity["engine"]
    'llama.cpp'
    """
    return LlamaEngine(locate(spec, on_progress=on_progress), hardware, on_load=on_load)
