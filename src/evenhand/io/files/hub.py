"""Data sets of the Hugging Face hub by name: hf:owner/data, hf:owner/data:split, hf:owner/data/config:split.

The hub keeps every public data set as Parquet too, on a branch of its own; those files are fetched once into the
library's cache, and read like any others.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from evenhand.core.errors import InputError
from evenhand.io.files.finding import Table

_BRANCH = "refs/convert/parquet"
_NAME = re.compile(r"hf:(?P<repo>[\w.-]+/[\w.-]+)(/(?P<config>[\w.-]+))?(:(?P<split>[\w.-]+))?")


def hub_tables(text: str) -> list[Table]:
    """The Parquet files of a data set on the hub."""
    found = _NAME.fullmatch(text)
    if found is None:
        raise InputError(f"{text!r} names no data set", hint="write hf:owner/data or hf:owner/data:split")
    hub, repo = _library(), found["repo"]
    try:
        names = hub.HfApi().list_repo_files(repo, repo_type="dataset", revision=_BRANCH)
        chosen = choose_files(text, names, found["config"], found["split"])
        paths = [hub.hf_hub_download(repo, name, repo_type="dataset", revision=_BRANCH) for name in chosen]
    except (OSError, ValueError, hub.errors.HfHubHTTPError) as fault:
        said = str(fault).splitlines()[0] if str(fault) else type(fault).__name__
        raise InputError(
            f"{text} cannot be fetched: {said}", hint="is the name right, and can the hub be reached?"
        ) from None
    return [Table(Path(path), f"{text}/{name}", ".parquet") for path, name in zip(paths, chosen, strict=True)]


def choose_files(text: str, names: Iterable[str], config: str | None, split: str | None) -> list[str]:
    """The files of one split among those of a data set, which are called config/split/0000.parquet.

    >>> choose_files("hf:o/d", ["default/train/0000.parquet", "README.md"], None, None)
    ['default/train/0000.parquet']
    """
    files = sorted(name for name in names if name.endswith(".parquet") and name.count("/") == 2)
    if config:
        files = [name for name in files if name.split("/")[0] == config]
    if split:
        files = [name for name in files if name.split("/")[1] == split]
    parts = list(dict.fromkeys(tuple(name.split("/")[:2]) for name in files))
    if not parts:
        raise InputError(
            f"{text} holds no such split as Parquet", hint="the hub shows configs and splits of a data set"
        )
    if len(parts) > 1:
        base = text.split("/")[0] + "/" + text.split("/")[1].split(":")[0]
        known = ", ".join(f"{base}/{each}:{part}" for each, part in parts)
        raise InputError(f"{text} holds several splits", hint=f"name one: {known}")
    return files


def _library() -> Any:
    try:
        import huggingface_hub
        import huggingface_hub.errors
    except ImportError:
        raise InputError(
            "data sets of Hugging Face need huggingface_hub", hint="pip install 'evenhand[hf,parquet]'"
        ) from None
    return huggingface_hub
