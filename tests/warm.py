"""The command in a process of its own, without the second that a new Python takes: forked off a warm one.

It is a real process: it can be killed, interrupted and waited for, and ends with an exit code. `start` is to
`subprocess.Popen` what `run` is to `subprocess.run`.
"""

from __future__ import annotations

import atexit
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Mapping
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import IO, Any

TIME_LIMIT = 300.0


@cache
def parent() -> str:
    """Start the warm Python, once for each process that runs tests; the address of its socket."""
    program = [sys.executable, str(Path(__file__).with_name("warm_parent.py"))]
    # Threads of libraries would not outlive a fork.
    env = {**os.environ, "OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}
    process = subprocess.Popen(program, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=env)
    assert process.stdout is not None
    atexit.register(process.communicate)  # which ends it
    return process.stdout.readline().strip()


class Warm:
    """A process that was forked off the warm one; the part of `subprocess.Popen` that the tests use."""

    def __init__(self, wish: Mapping[str, Any], out: IO[str] | None) -> None:
        self.args = [wish["script"] or "evenhand", *wish["words"]]
        self.returncode: int | None = None
        theirs, mine = zip(os.pipe(), os.pipe()[::-1], os.pipe()[::-1], strict=True)
        self.stdin = os.fdopen(mine[0], "w", encoding="utf-8")
        self.stdout, self.stderr = (os.fdopen(file, encoding="utf-8") for file in mine[1:])
        self._link = socket.socket(socket.AF_UNIX)
        self._link.connect(parent())
        self._ask(wish, [theirs[0], out.fileno() if out else theirs[1], theirs[2]])
        for file in theirs:
            os.close(file)
        self._reported = self._link.makefile()
        self.pid = int(self._reported.readline())
        self._ended = threading.Event()
        self._watch = threading.Thread(target=self._wait, daemon=True)
        self._watch.start()

    def _ask(self, wish: Mapping[str, Any], files: list[int]) -> None:
        data = json.dumps(wish).encode()
        socket.send_fds(self._link, [f"{len(data):<16}".encode()], files)
        self._link.sendall(data)

    def _wait(self) -> None:
        self.returncode = int(self._reported.readline())
        self._reported.close()
        self._link.close()
        self._ended.set()

    def poll(self) -> int | None:
        return self.returncode

    def wait(self, timeout: float = TIME_LIMIT) -> int:
        if not self._ended.wait(timeout):
            raise subprocess.TimeoutExpired(self.args, timeout)
        self._watch.join()
        assert self.returncode is not None
        return self.returncode

    def send_signal(self, number: int) -> None:
        if self.returncode is None:
            with suppress(ProcessLookupError):  # it may have ended just now
                os.kill(self.pid, number)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    def communicate(self, text: str | None = None, timeout: float = TIME_LIMIT) -> tuple[str, str]:
        """Give it a text to read, take all that it writes, and wait for its end."""
        until = time.monotonic() + timeout
        said: dict[str, str] = {}
        streams = {"out": self.stdout, "err": self.stderr}
        readers = [threading.Thread(target=lambda n=n: said.update({n: streams[n].read()})) for n in streams]
        for reader in readers:
            reader.daemon = True
            reader.start()
        self._give(text)
        for reader in readers:
            reader.join(max(0.0, until - time.monotonic()))
        self.wait(max(0.0, until - time.monotonic()))
        self.close()
        return said["out"], said["err"]

    def _give(self, text: str | None) -> None:
        with suppress(BrokenPipeError):  # it may not want it
            self.stdin.write(text or "")
            self.stdin.close()

    def close(self) -> None:
        """Let go of its streams."""
        for stream in (self.stdin, self.stdout, self.stderr):
            if not stream.closed:
                stream.close()


def start(
    *words: str | Path,
    script: Path | None = None,
    env: Mapping[str, str] | None = None,
    cwd: Path | None = None,
    stdout: IO[str] | None = None,
) -> Warm:
    """Start the command, or a script, with these words."""
    place = {"env": dict(os.environ if env is None else env), "cwd": str(cwd or Path.cwd())}
    return Warm({"script": str(script or ""), "words": [*map(str, words)], **place}, stdout)


def run(
    *words: str | Path,
    stdin: str | None = None,
    env: Mapping[str, str] | None = None,
    cwd: Path | None = None,
    stdout: IO[str] | None = None,
    timeout: float = TIME_LIMIT,
) -> subprocess.CompletedProcess[str]:
    """Run the command to its end; whatever comes of it is for the caller to judge."""
    process = start(*words, env=env, cwd=cwd, stdout=stdout)
    try:
        out, err = process.communicate(stdin, timeout)
    finally:
        process.kill()
    return subprocess.CompletedProcess(process.args, process.wait(), out, err)
