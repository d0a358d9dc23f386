"""Imports point one way: a folder knows those before it here, none behind it; so do the parts of one."""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

PACKAGE = Path(__file__).resolve().parents[1] / "src" / "evenhand"
LAYERS = (
    "core.errors",
    "core.stats",
    "core.steering",
    "core.faults",
    "core.json_size",
    "core.pair",
    "core.conversations",
    "core.markup",
    "core.answer_forms",
    "core.pieces",
    "core.disguise",
    "core.fence",
    "core.template",
    "core.protocol",
    "core.engine",
    "core.verdict",
    "core.suspicion",
    "core.outcome",
    "core.shuffle",
    "core.judge",
    "core.attacks",
    "core.reasons",
    "core.votes",
    "core.jury",
    "core.columns",
    "io.files",
    "io.spill_file",
    "io.attacks",
    "io.pairs",
    "engines",
    "store",
    "running",
    "results",
    "views.export",
    "views.charts",
    "views.api",
    "views.jury",
    "views.tables",
    "views.console",
    "views.progress",
    "views.pytest_plugin",
    "views.web",
    "views.report",
    "views.cli",
    "__main__",
)
SPLIT = {layer.split(".")[0] for layer in LAYERS if "." in layer}
MODULES = sorted(PACKAGE.rglob("*.py"))
MOST_ENTRIES = 10


def layer_of(file: Path) -> str:
    return layer(file.relative_to(PACKAGE).with_suffix("").parts)


def layer(parts: tuple[str, ...] | list[str]) -> str:
    """The layer of a module, given by the parts of its name below the package; "" is the package itself."""
    if not parts or not known(parts[0]):
        return ""
    if parts[0] not in SPLIT or len(parts) == 1 or parts[1] == "__init__":
        return parts[0]
    return ".".join(parts[:2])


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
    return {layer(parts[1:]) for parts in own}


def known(name: str) -> bool:
    return (PACKAGE / name).is_dir() or (PACKAGE / f"{name}.py").is_file()


inner_modules = pytest.mark.parametrize(
    "file",
    [file for file in MODULES if file != PACKAGE / "__init__.py"],
    ids=lambda file: str(file.relative_to(PACKAGE)),
)


def test_few_things_stand_at_the_top() -> None:
    assert len([entry for entry in PACKAGE.iterdir() if entry.name != "__pycache__"]) <= MOST_ENTRIES


def test_every_module_has_its_layer() -> None:
    found = {layer_of(file) for file in MODULES} - {"", "__init__", *SPLIT}
    assert found == set(LAYERS), "put a new module into LAYERS, behind all that it imports"


@inner_modules
def test_imports_point_one_way(file: Path) -> None:
    mine = layer_of(file)
    if mine in SPLIT:  # the folder's own file, which says what is in it
        assert not layers_imported(file)
        return
    allowed = {*LAYERS[: LAYERS.index(mine) + 1]}
    if mine == "core.stats":
        allowed = {"core.stats"}
    if mine == "results":
        allowed.remove("running")
    if mine.startswith("views."):
        allowed.add("")
    assert layers_imported(file) <= allowed


@inner_modules
def test_sql_stays_in_the_store(file: Path) -> None:
    # It is a temporary file in the form of a database; nothing is kept there.
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
        ("from .llama import LlamaEngine", {"engines"}),
        ("from ..store import Store", {"store"}),
        ("from .. import store", {"store"}),
        ("from evenhand.core import verdict", {"core.verdict"}),
        ("from evenhand.core.stats.ranking import rank", {"core.stats"}),
        ("def late():\n    from evenhand.views.cli import main", {"views.cli"}),
        ("import json\nfrom pathlib import Path", set()),
    ],
)
def test_every_form_of_import_is_seen(monkeypatch: pytest.MonkeyPatch, source: str, expected: set[str]) -> None:
    monkeypatch.setattr(Path, "read_text", lambda *_, **__: source)
    assert layers_imported(PACKAGE / "engines" / "any.py") == expected


def test_a_pair_is_a_plain_value() -> None:
    own = {name for name in imports(PACKAGE / "core" / "pair.py") if name.startswith("evenhand")}
    assert own == {"evenhand.core.errors.InputError", "evenhand.core.faults.RowFault"}, (
        "reading a row into a pair belongs into io/pairs/rows.py"
    )


def test_no_two_classes_share_a_name() -> None:
    nodes = [node for file in MODULES for node in ast.walk(ast.parse(file.read_text(encoding="utf-8")))]
    names = Counter(node.name for node in nodes if isinstance(node, ast.ClassDef))
    assert [name for name, count in names.items() if count > 1] == []
