"""Data sets of the Hugging Face hub by name; the hub itself is a stand-in, since no test reaches the network."""

from __future__ import annotations

import sys
import types
from pathlib import Path
from typing import Any

import pytest

from evenhand.core.errors import InputError
from evenhand.io.files import write_rows
from evenhand.io.files.hub import choose_files
from evenhand.io.pairs import read_pairs

ROW = {"prompt": "Hi", "chosen": "Hello", "rejected": "Go away"}
FILES = ["README.md", "default/train/0000.parquet", "default/test/0000.parquet", "default/train/0001.parquet"]


class HubError(Exception):
    """What the library raises where the hub says no."""


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[tuple[Any, ...]]:
    """A hub with one data set of three files; what was asked of it comes back."""
    asked: list[tuple[Any, ...]] = []

    class Api:
        def list_repo_files(self, repo: str, **more: str) -> list[str]:
            asked.append((repo, more["repo_type"], more["revision"]))
            if repo != "owner/data":
                raise HubError("404 Client Error\nmore")
            return FILES

    def download(_: str, name: str, **__: str) -> str:
        file = tmp_path / name.replace("/", "-")
        write_rows(file, [{**ROW, "prompt": name}], dict.fromkeys(ROW, "text"))
        return str(file)

    library = types.ModuleType("huggingface_hub")
    library.errors = types.ModuleType("huggingface_hub.errors")  # type: ignore[attr-defined]
    library.errors.HfHubHTTPError = HubError
    library.HfApi, library.hf_hub_download = Api, download  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "huggingface_hub", library)
    monkeypatch.setitem(sys.modules, "huggingface_hub.errors", library.errors)
    return asked


@pytest.mark.parametrize("name", ["hf:owner/data:train", "hf:owner/data/default:train"])
def test_a_split_is_read_in_the_order_of_its_files(hub: list[tuple[Any, ...]], name: str) -> None:
    assert [pair.instruction for pair in read_pairs(name)] == [FILES[1], FILES[3]]
    assert hub == [("owner/data", "dataset", "refs/convert/parquet")]


@pytest.mark.parametrize(
    ("name", "fault"),
    [
        ("hf:owner/data", r"several splits \(name one: hf:owner/data/default:test, hf:owner/data/default:train\)"),
        ("hf:owner/data:dev", "no such split"),
        ("hf:owner/other", "cannot be fetched: 404 Client Error"),
        ("hf:data", "names no data set"),
    ],
)
def test_what_cannot_be_found_is_explained(hub: list[tuple[Any, ...]], name: str, fault: str) -> None:
    with pytest.raises(InputError, match=fault):
        list(read_pairs(name))


def test_without_the_library_the_command_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    with pytest.raises(InputError, match=r"pip install 'evenhand\[hf,parquet\]'"):
        list(read_pairs("hf:owner/data:train"))


def test_a_config_chooses_among_several() -> None:
    names = ["a/train/0000.parquet", "b/train/0000.parquet"]
    assert choose_files("hf:o/d/b", names, "b", None) == ["b/train/0000.parquet"]
