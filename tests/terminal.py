"""A real terminal for tests: a program runs on a pty, and what is on the screen in the end is text."""

from __future__ import annotations

import codecs
import fcntl
import os
import pty
import re
import select
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

_ESCAPE = re.compile(r"\x1b\[([0-9;?]*)([A-Za-z])|\x1b\][^\x07]*\x07|\x1b[=>()][0-9A-B]?")
_PATIENCE = 60.0  # seconds; only a test that fails waits so long


@dataclass
class Screen:
    """What a terminal shows: lines, a cursor, and as many movements as rich makes; colours are passed over."""

    columns: int
    lines: list[list[str]] = field(default_factory=lambda: [[]])
    row: int = 0
    column: int = 0

    def feed(self, text: str) -> None:
        """Take what a program writes."""
        place = 0
        while place < len(text):
            found = _ESCAPE.match(text, place)
            if found:
                self._move(found[1] or "", found[2] or "")
                place = found.end()
            else:
                self._put(text[place])
                place += 1

    def _move(self, given: str, what: str) -> None:
        number = int(given) if given.isdigit() else 1
        if what == "A":
            self.row = max(0, self.row - number)
        elif what == "B":
            self._down(number)
        elif what == "G":
            self.column = number - 1
        elif what == "K":
            line = self.lines[self.row]
            del line[0 if given == "2" else self.column :]

    def _down(self, number: int = 1) -> None:
        self.row += number
        while len(self.lines) <= self.row:
            self.lines.append([])

    def _put(self, letter: str) -> None:
        if letter == "\n":
            self._down()
        elif letter == "\r":
            self.column = 0
        elif letter >= " ":
            if self.column >= self.columns:  # as a terminal does: the text goes on below
                self._down()
                self.column = 0
            line = self.lines[self.row]
            line += [" "] * (self.column + 1 - len(line))
            line[self.column] = letter
            self.column += 1

    @property
    def text(self) -> str:
        """All lines, without blanks at their ends."""
        return "\n".join("".join(line).rstrip() for line in self.lines).strip("\n")


class Terminal:
    """evenhand in a terminal of its own: `python -m evenhand WORDS`."""

    def __init__(
        self, *words: str | Path, columns: int = 80, cwd: Path, environment: Mapping[str, str] | None = None
    ) -> None:
        self.screen = Screen(columns)
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._mine, theirs = pty.openpty()
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 50, columns, 0, 0))
        keys = [name for name in os.environ if name.endswith("_API_KEY") or name in ("COLUMNS", "NO_COLOR", "CI")]
        shell = {name: value for name, value in os.environ.items() if name not in keys}
        shell |= {"TERM": "xterm-256color", **(environment or {})}
        command = [sys.executable, "-m", "evenhand", *map(str, words)]
        self.process = subprocess.Popen(
            command, stdin=theirs, stdout=theirs, stderr=theirs, cwd=cwd, env=shell, start_new_session=True
        )
        os.close(theirs)

    def read(self, enough: Callable[[str], bool] = lambda text: False) -> str:
        """Read until the screen shows enough, or the program has ended; all that is on the screen."""
        until = time.monotonic() + _PATIENCE
        while not enough(self.screen.text):
            assert time.monotonic() < until, self.screen.text
            if not select.select([self._mine], [], [], 0.5)[0]:
                continue
            try:
                data = os.read(self._mine, 65536)
            except OSError:  # how a pty says that nobody writes to it any more
                data = b""
            if not data:
                break
            self.screen.feed(self._decoder.decode(data))
        return self.screen.text

    def close(self) -> int:
        """End the program, if it has not ended; its exit code."""
        if self.process.poll() is None:
            self.process.terminate()
        code = self.process.wait(_PATIENCE)
        os.close(self._mine)
        return code


def run(*words: str | Path, cwd: Path, columns: int = 80, code: int = 0) -> str:
    """What is on the screen when a command has come to its end with this exit code."""
    terminal = Terminal(*words, columns=columns, cwd=cwd)
    text = terminal.read()
    ended = terminal.process.wait(_PATIENCE)
    terminal.close()
    assert ended == code, text
    assert "Traceback" not in text
    assert all(len(line) <= columns for line in text.splitlines())
    return text
