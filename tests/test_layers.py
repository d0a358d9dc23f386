"""Imports point one way: a module knows those before it in this list, and none behind it."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

PACKAGE = Path(__file__).resolve().parents[1] / "src" / "evenhand"
LAYERS = (
    "errors",
    "files",
    "spill",
    "pairs",
    "markup",
    "protocol",
    "engines",
    "stats",
    "heads",
    "verdict",
    "votes",
    "outcome",
    "shuffle",
    "judge",
    "columns",
    "store",
    "shards",
    "people",
    "prices",
    "pace",
    "runner",
    "scaleout",
    "generate",
    "results",
    "suggest",
    "export",
    "plots",
    "api",
    "pytest_plugin",
    "console",
    "web",
    "report",
    "cli",
    "__main__",
)
MODULES = sorted(PACKAGE.rglob("*.py"))


def layer_of(file: Path) -> str:
    return file.relative_to(PACKAGE).parts[0].removesuffix(".py")


def absolute(file: Path, node: ast.ImportFrom) -> str:
    """The module that a from-import names, with its dots resolved: from . import x -> evenhand.x's package."""
    if not node.level:
        return node.module or ""
    package = ["evenhand", *file.relative_to(PACKAGE).parent.parts]
    base = package[: len(package) - node.level + 1]
    return ".".join([*base, *([node.module] if node.module else [])])


def imports(file: Path) -> Iterator[str]:
    """The full names of all that a file imports, wherever in it, also for type checking alone."""
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            module = absolute(file, node)
            yield from (f"{module}.{alias.name}" for alias in node.names)


def layers_imported(file: Path) -> set[str]:
    """The layers that a file imports from; what the package itself offers, such as __version__, is ""."""
    names = [name.split(".") for name in imports(file)]
    own = [parts for parts in names if parts[0] == "evenhand"]
    return {parts[1] if len(parts) > 1 and known(parts[1]) else "" for parts in own}


def known(name: str) -> bool:
    return (PACKAGE / name).is_dir() or (PACKAGE / f"{name}.py").is_file()


inner_modules = pytest.mark.parametrize(
    "file",
    [file for file in MODULES if file != PACKAGE / "__init__.py"],
    ids=lambda file: str(file.relative_to(PACKAGE)),
)


def test_every_module_has_its_layer() -> None:
    found = {layer_of(file) for file in MODULES} - {"__init__"}
    assert found == set(LAYERS), "put a new module into LAYERS, behind all that it imports"


@inner_modules
def test_imports_point_one_way(file: Path) -> None:
    mine = layer_of(file)
    allowed = {*LAYERS[: LAYERS.index(mine) + 1]}
    if mine == "stats":
        allowed = {"stats"}
    if mine in ("cli", "report", "web"):
        allowed.add("")
    assert layers_imported(file) <= allowed


@inner_modules
def test_sql_stays_in_the_store(file: Path) -> None:
    # A shelved is a temporary file in the form of a database; nothing is kept there.
    if layer_of(file) != "store" and file.name != "temporary_table.py":
        assert not [name for name in imports(file) if name.split(".")[0] == "sqlite3"]


def test_the_store_speaks_sql() -> None:
    assert "sqlite3" in set(imports(PACKAGE / "store" / "database.py")), "the check above looks for the wrong thing"


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("import evenhand.store", {"store"}),
        ("from evenhand.store import Store", {"store"}),
        ("from evenhand import store, __version__", {"store", ""}),
        ("import evenhand", {""}),
        ("from .base import Engine", {"engines"}),
        ("from ..store import Store", {"store"}),
        ("from .. import store", {"store"}),
        ("def late():\n    from evenhand.views.cli import main", {"cli"}),
        ("import json\nfrom pathlib import Path", set()),
    ],
)
def test_every_form_of_import_is_seen(monkeypatch: pytest.MonkeyPatch, source: str, expected: set[str]) -> None:
    monkeypatch.setattr(Path, "read_text", lambda *_, **__: source)
    assert layers_imported(PACKAGE / "engines" / "any.py") == expected


def test_a_pair_is_a_plain_value() -> None:
    own = {name for name in imports(PACKAGE / "pairs" / "pair.py") if name.startswith("evenhand")}
    assert own == {"evenhand.core.errors.InputError"}, "reading a row into a pair belongs into pairs/rows.py"
