"""What would be published: the wheel is built, looked into, installed into an empty environment, and run."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import sysconfig
import venv
import zipfile
from email.parser import Parser
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from misbehaving_server import Body, Server, says

pytest.importorskip("hatchling", reason="the wheel is built with it: pip install -e '.[dev]'")

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = ROOT / "src" / "evenhand"
NEEDED = (
    "evenhand/py.typed",
    "evenhand/io/sample.jsonl",
    "evenhand/running/prices.json",
    "evenhand/core/protocols/weighed.txt",
    "evenhand/views/web/templates/pair.html",
    "evenhand/views/report/templates/report.html",
)


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    build = "import sys; from hatchling.build import build_wheel; build_wheel(sys.argv[1])"
    subprocess.run([sys.executable, "-c", build, str(folder)], cwd=ROOT, check=True, capture_output=True)
    [built] = folder.glob("*.whl")
    return built


@pytest.fixture(scope="module")
def environment(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A new virtual environment that holds the wheel, and sees the packages that it depends on."""
    place = tmp_path_factory.mktemp("environment")
    venv.create(place, with_pip=False, symlinks=True)
    python = place / "bin" / "python"
    pip = [sys.executable, "-m", "pip", "--python", str(python), "--disable-pip-version-check", "install"]
    subprocess.run([*pip, "--no-deps", "--no-index", "--no-compile", str(wheel)], check=True, capture_output=True)
    # A folder that a .pth file names is searched; .pth files in it, as of an editable evenhand, are not read.
    [site] = place.glob("lib/python*/site-packages")
    others = {sysconfig.get_path(name) for name in ("purelib", "platlib")}
    (site / "dependencies.pth").write_text("\n".join(sorted(others)) + "\n")
    return place


def run(environment: Path, *words: str, cwd: Path, program: str = "evenhand") -> str:
    env = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    line = [str(environment / "bin" / program), *words]
    done = subprocess.run(line, cwd=cwd, env=env, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    return done.stdout


def names_in(wheel: Path) -> set[str]:
    with zipfile.ZipFile(wheel) as file:
        return set(file.namelist())


def test_it_holds_every_file_of_the_package_and_nothing_else(wheel: Path) -> None:
    there = {
        path.relative_to(PACKAGE.parent).as_posix()
        for path in PACKAGE.rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    inside = {name for name in names_in(wheel) if ".dist-info/" not in name}
    assert inside == there
    assert set(NEEDED) <= inside


def test_its_metadata_is_what_an_index_shows(wheel: Path) -> None:
    [name] = [name for name in names_in(wheel) if name.endswith(".dist-info/METADATA")]
    with zipfile.ZipFile(wheel) as file:
        fields = Parser().parsestr(file.read(name).decode())
    assert fields["Name"] == "evenhand"
    assert fields["Requires-Python"] == ">=3.11"
    assert fields["License-Expression"] == "Apache-2.0"
    assert str(fields.get_payload()).startswith("# evenhand")
    assert {"web", "plot", "parquet", "pytest", "ray", "zst", "hf"} <= set(fields.get_all("Provides-Extra") or [])


def test_what_is_installed_runs(environment: Path, tmp_path: Path) -> None:
    code = "import evenhand, sys; print(evenhand.__file__)"
    assert Path(run(environment, "-c", code, cwd=tmp_path, program="python").strip()).is_relative_to(environment)
    assert run(environment, "--version", cwd=tmp_path).startswith("evenhand ")
    assert "weighed" in run(environment, "protocols", cwd=tmp_path)
    pair = {"instruction": "Name a prime number.", "output_1": "7", "output_2": "8"}
    (tmp_path / "pairs.jsonl").write_text(json.dumps(pair) + "\n")
    assert "Name a prime number." in run(environment, "look", "pairs.jsonl", cwd=tmp_path)


async def prefers_seven(request: web.Request, body: Body) -> web.StreamResponse:
    """A judge that knows which of 7 and 8 is a prime."""
    text = body["messages"][-1]["content"]
    return await says("A" if text.rfind("7") < text.rfind("8") else "B")(request, body)


def test_the_commands_of_the_readme_run_from_it(environment: Path, tmp_path: Path, loop: Any) -> None:
    for name, output in (("old", "8"), ("new", "7")):
        rows = [{"instruction": f"{word} prime number, please.", "output": output} for word in "abcdefghij"]
        (tmp_path / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    server = Server(prefers_seven)
    loop.run(server.__aenter__())
    try:
        judge = f"{server.url}#judge"
        said = run(environment, "old.jsonl", "new.jsonl", "--judge", judge, "--protocol", "overall", cwd=tmp_path)
    finally:
        loop.run(server.__aexit__())
    assert said.split("\n")[1].startswith("new (candidate) is better: it wins 100% of pairs")
    run(environment, "report", "--out", "report.html", cwd=tmp_path)
    assert "new" in (tmp_path / "report.html").read_text("utf-8")
