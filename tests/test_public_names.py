"""The names that others may rely on: a change here is a change of the interface."""

from __future__ import annotations

import pytest

import evenhand

PUBLIC = [
    "Answer",
    "Engine",
    "EngineError",
    "Escalation",
    "EvenhandError",
    "InputError",
    "Judge",
    "Judgment",
    "Jury",
    "ModelError",
    "Outcome",
    "Pair",
    "Protocol",
    "ScriptedEngine",
    "Store",
    "StoreError",
    "Token",
    "Usage",
    "Verdict",
    "read_pairs",
]


def test_the_public_names_are_these() -> None:
    assert evenhand.__all__ == PUBLIC


def test_the_public_names_are_sorted() -> None:
    assert sorted(evenhand.__all__) == evenhand.__all__


@pytest.mark.parametrize("name", PUBLIC)
def test_a_public_name_is_there_and_described(name: str) -> None:
    assert getattr(evenhand, name).__doc__


def test_star_import_brings_the_public_names_and_no_others() -> None:
    namespace: dict[str, object] = {}
    exec("from evenhand import *", namespace)
    assert sorted(set(namespace) - {"__builtins__"}) == PUBLIC


def test_the_version_is_told() -> None:
    assert evenhand.__version__[0].isdigit()
