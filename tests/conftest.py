"""What the tests share: the small model, a loop to run an engine on, and a few pairs."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
from collections.abc import Coroutine, Generator, Iterator
from pathlib import Path
from typing import Any, TypeVar

import pytest
from _pytest.doctest import DoctestModule
from hypothesis import settings

from evenhand.core.errors import ModelError
from evenhand.engines import catalog
from evenhand.engines.catalog import ModelFile
from evenhand.engines.llama import Hardware, LlamaEngine
from evenhand.engines.llama_client import LlamaClient

# As the command does: with as many workers as cores, threads of small matrices only wait for each other. numpy
# looks at this when it is loaded, which no import above does.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

T = TypeVar("T")
# How long one example takes says more of what else runs here than of what is tested.
settings.register_profile("patient", deadline=None, max_examples=60)
settings.load_profile("patient")
SMOLLM = "smollm2-135m"


# Files whose tests take longest, and the one browser that two of them share.
SLOW = (
    "test_kill_endpoint.py",
    "test_kill_batches.py",
    "test_scaleout_ray.py",
    "test_scaleout_nodes.py",
    "test_learn_command.py",
)
collect_ignore = ["warm_parent.py"]  # a program of its own, run by warm.py
TOGETHER = ("test_parity.py", "test_four_roles.py")
BROWSER = ("test_web_browser.py", "test_report_browser.py", "test_made_browser.py")


def pytest_configure() -> None:
    """A Ctrl-C reaches what the tests start: a shell's background job ignores it, and so would every child."""
    if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.hookimpl(wrapper=True)
def pytest_collect_file(file_path: Path) -> Generator[None, list[pytest.Collector], list[pytest.Collector]]:
    """Examples are looked for only where there are any: the search through all of a module's objects takes long."""
    found = yield
    without = file_path.suffix == ".py" and ">>>" not in file_path.read_text("utf-8")
    return [each for each in found if not (without and isinstance(each, DoctestModule))]


@pytest.hookimpl(tryfirst=True)  # before xdist looks for the groups
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Which tests one worker runs, and which come first.

    Tests with a real model run one after the other, and so do those on a cluster: two would wait for each other's
    cores. So do those in a browser, which is started for all of them, and those of a file that share what is slow
    to make. What takes long goes first, so that no worker is left with it at the end, while the others have
    nothing to do.
    """
    for item in items:
        if item.get_closest_marker("ray"):
            item.add_marker(pytest.mark.xdist_group("ray"))
        elif item.get_closest_marker("engine"):
            item.add_marker(pytest.mark.xdist_group("engine"))
        elif item.path.name in BROWSER:
            item.add_marker(pytest.mark.xdist_group("browser"))
        elif item.path.name in TOGETHER:
            item.add_marker(pytest.mark.xdist_group(item.path.name))
    items.sort(key=lambda item: item.path.name not in SLOW)


def pytest_collection_finish(session: pytest.Session) -> None:
    """The groups have reached xdist, which tells them by the ends of names; without them all runs, but slowly."""
    if session.config.getoption("loadgroup", False):
        lost = [item.nodeid for item in session.items if item.get_closest_marker("xdist_group")]
        lost = [name for name in lost if name.rfind("@") <= name.rfind("]")]
        assert not lost, f"xdist does not know that these belong to a group: {lost[:3]}"


class LoopThread:
    """One event loop for a whole session: an engine belongs to the loop on which it was first asked."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()

    def stop(self) -> None:
        self.run(self._loop.shutdown_default_executor())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


@pytest.fixture(scope="session")
def loop() -> Iterator[LoopThread]:
    thread = LoopThread()
    yield thread
    thread.stop()


@pytest.fixture(scope="session")
def smollm() -> ModelFile:
    """The model of the engine's tests; no reason counts for going without it where CI runs them."""
    try:
        return catalog.locate(SMOLLM)
    except ModelError as fault:
        if os.environ.get("CI"):
            pytest.fail(f"{SMOLLM} cannot be had: {fault}")
        pytest.skip(f"{SMOLLM} cannot be had: {fault}")


@pytest.fixture(scope="session")
def engine(smollm: ModelFile, loop: LoopThread) -> Iterator[LlamaEngine]:
    """A loaded engine; it is asked through `loop` alone.

    It leaves a core to others: where one of llama.cpp's threads has to wait for a core, all of them do.
    """
    engine = LlamaEngine(smollm, Hardware(context=8192, threads=max(1, (os.cpu_count() or 1) - 1)))
    loop.run(engine.start())
    yield engine
    loop.run(engine.close())


@pytest.fixture(scope="session")
def client(engine: LlamaEngine, loop: LoopThread) -> LlamaClient:
    return loop.run(engine.start())


@pytest.fixture
def db(tmp_path: Path) -> Path:
    return tmp_path / "evenhand.db"
