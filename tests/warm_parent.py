"""A Python with evenhand loaded that turns into the command: asked over a socket, it forks, and the child runs it.

    python warm_parent.py    prints the address of its socket, and runs until its standard input is closed

A command has a process of its own, with its own signals, exit code and files, as if it had been started anew; only
the seconds in which Python reads its libraries are saved. What reads the environment when it is loaded, the console
above all, is left for the child to load.
"""

from __future__ import annotations

import gc
import importlib
import io
import json
import os
import pkgutil
import runpy
import select
import shutil
import signal
import socket
import sys
import tempfile
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any

LIBRARIES = (
    *(
        "aiohttp",
        "aiohttp.web",
        "numpy",
        "orjson",
        "rich.live",
        "rich.markup",
        "rich.progress",
        "rich.table",
        "typer",
    ),
    "typer._adapters",  # it loads pydantic
    *("jinja2", "markdown_it", "nh3", "scipy.optimize", "scipy.sparse.csgraph", "scipy.special", "starlette"),
    *("starlette.applications", "starlette.routing", "uvicorn"),
)
LEFT = {"__main__", "cli", "cluster", "console", "progress", "report", "pytest_plugin", "web"}


def load() -> None:
    """Load what is no command: other libraries, and evenhand without its views."""
    import evenhand

    for name in LIBRARIES:
        with suppress(ImportError):
            importlib.import_module(name)
    todo: list[tuple[str, Iterable[str]]] = [("evenhand", evenhand.__path__)]
    while todo:
        parent, path = todo.pop()
        for part in pkgutil.iter_modules(path):
            if part.name not in LEFT:
                module = importlib.import_module(f"{parent}.{part.name}")
                todo += [(module.__name__, module.__path__)] if part.ispkg else []
    check()


def check() -> None:
    """What was loaded must be fit for a fork, and for any environment."""
    from rich.console import Console

    ours = [module for name, module in sys.modules.items() if name.startswith("evenhand")]
    made = [module for module in ours if any(isinstance(value, Console) for value in vars(module).values())]
    assert not made, f"these know the width of the terminal already: {made}"
    if os.path.exists("/proc/self/task"):  # noqa: PTH110
        assert len(os.listdir("/proc/self/task")) == 1, "a fork would lose threads"  # noqa: PTH208


def wait_for_wish(listening: socket.socket) -> dict[str, Any] | None:
    """Fork for everybody who asks; what to run, in the child, and None at the end in the parent."""
    while True:
        ready, _, _ = select.select([listening, sys.stdin], [], [])
        if listening not in ready:
            return None
        asking, _ = listening.accept()
        if os.fork() == 0:
            listening.close()
            return attend(asking)
        asking.close()


def attend(asking: socket.socket) -> dict[str, Any]:
    """Fork once more: the parent waits and reports how the child ended; the child gets what it is to run."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    head, files, _, _ = socket.recv_fds(asking, 16, 3)
    body = b""
    while len(body) < int(head):
        body += asking.recv(1 << 16)
    pid = os.fork()
    if pid:
        for file in files:
            os.close(file)
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        asking.sendall(f"{pid}\n".encode())
        _, status = os.waitpid(pid, 0)
        with suppress(BrokenPipeError):  # nobody may be there to hear it
            asking.sendall(f"{os.waitstatus_to_exitcode(status)}\n".encode())
        os._exit(0)
    asking.close()
    for place, file in enumerate(files):
        os.dup2(file, place)
        os.close(file)
    wish: dict[str, Any] = json.loads(body)
    return wish


def become(wish: dict[str, Any]) -> None:
    """Take over the environment, the folder, the words and the standard streams of the command."""
    os.environ.clear()
    os.environ.update(wish["env"])
    os.chdir(wish["cwd"])
    signal.signal(signal.SIGINT, signal.default_int_handler)
    at_once = bool(os.environ.get("PYTHONUNBUFFERED"))
    sys.stdin = open(0, encoding="utf-8")  # noqa: SIM115
    for name, place, errors in (("stdout", 1, "strict"), ("stderr", 2, "backslashreplace")):
        raw = open(place, "wb", closefd=False)  # noqa: SIM115
        lines = raw.isatty() or place == 2
        stream = io.TextIOWrapper(raw, "utf-8", errors, write_through=at_once, line_buffering=lines)
        setattr(sys, name, stream)
        setattr(sys, f"__{name}__", stream)
    sys.argv[1:] = wish["words"]


load()
signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # the children are nobody's to wait for
door = socket.socket(socket.AF_UNIX)
folder = Path(tempfile.mkdtemp(prefix="evenhand-"))  # a short name: that of a socket may not be long
door.bind(str(folder / "door"))
door.listen(64)
gc.collect()
gc.freeze()
print(folder / "door", flush=True)
wish = wait_for_wish(door)
if wish is None:
    shutil.rmtree(folder)
else:  # the last lines, so that Python ends as it would end the command
    become(wish)
    if wish["script"]:
        sys.argv[0] = wish["script"]
        runpy.run_path(wish["script"], run_name="__main__")
    else:
        runpy.run_module("evenhand", run_name="__main__", alter_sys=True)
