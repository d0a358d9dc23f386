"""Which program versions a run was made with. They are no part of a verdict's key, and shown with its origin."""

from __future__ import annotations

from collections.abc import Mapping
from importlib.metadata import PackageNotFoundError, version

_PACKAGES = {"llama.cpp": "xllamacpp"}  # whose version decides, by what an engine's identity calls itself


def versions_of(identity: Mapping[str, str]) -> dict[str, str]:
    """evenhand's version, and that of the package an engine of this identity runs on, where it is one of ours.

    >>> sorted(versions_of({"engine": "llama.cpp"}))
    ['evenhand', 'xllamacpp']
    """
    names = ["evenhand", *([_PACKAGES[identity["engine"]]] if identity.get("engine") in _PACKAGES else [])]
    found = {name: _version(name) for name in names}
    return {name: number for name, number in found.items() if number}


def _version(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return ""
