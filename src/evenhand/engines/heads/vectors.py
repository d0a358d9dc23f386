"""Vectors of responses, kept by content: in memory here, in a file by `evenhand.store.vectors`.

A vector is kept in half precision, which is far finer than the difference between two builds of llama.cpp. A book
of vectors belongs to one *reader*: a model by its hash, a place in it and the words around the response.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from typing import Protocol

import numpy as np
import numpy.typing as npt

Vector = npt.NDArray[np.float16]


def content_key(instruction: str, response: str) -> str:
    r"""The name of a response by its content: sha256 of instruction, NUL and response.

    >>> content_key("Say hi.", "Hi.")[:20]
    'd427ee761120abaffc1f'
    """
    return hashlib.sha256(f"{instruction}\0{response}".encode("utf-8", "surrogatepass")).hexdigest()


def to_vector(values: Iterable[float]) -> Vector:
    """Half precision; a value beyond its range is the largest there is, instead of infinite.

    >>> float(to_vector([1e9])[0])
    65504.0
    """
    wide = np.fromiter(values, dtype=np.float64)
    return np.clip(wide, -65504.0, 65504.0).astype(np.float16)


class Vectors(Protocol):
    """Where vectors are kept."""

    def get(self, keys: Sequence[str]) -> dict[str, Vector]:
        """Those of the keys that are there."""

    def put(self, vectors: Mapping[str, Vector], *, tokens: Mapping[str, int] | None = None) -> None:
        """Keep vectors, and how many tokens each took; one that is there already stays."""

    def __len__(self) -> int: ...


class MemoryVectors:
    """Vectors of this process.

    >>> book = MemoryVectors()
    >>> book.put({"k": to_vector([1, 2])})
    >>> book.get(["k", "other"])["k"].tolist(), len(book)
    ([1.0, 2.0], 1)
    """

    def __init__(self) -> None:
        self._kept: dict[str, Vector] = {}

    def get(self, keys: Sequence[str]) -> dict[str, Vector]:
        """Those of the keys that are there."""
        return {key: self._kept[key] for key in keys if key in self._kept}

    def put(self, vectors: Mapping[str, Vector], *, tokens: Mapping[str, int] | None = None) -> None:
        """Keep vectors; one that is there already stays."""
        for key, vector in vectors.items():
            self._kept.setdefault(key, vector)

    def __len__(self) -> int:
        return len(self._kept)
