"""The forked command is as good as a new one: the same words, codes and signals."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

import warm


@pytest.mark.parametrize("words", [["protocols"], ["nonsense"], ["results", "--db", "none.db"]], ids=" ".join)
def test_it_says_and_ends_as_a_new_process_does(words: list[str], tmp_path: Path) -> None:
    env = os.environ | {"COLUMNS": "97"}
    program = [sys.executable, "-m", "evenhand", *words]
    new = subprocess.run(program, capture_output=True, text=True, env=env, cwd=tmp_path, check=False)
    forked = warm.run(*words, env=env, cwd=tmp_path)
    assert (forked.returncode, forked.stdout, forked.stderr) == (new.returncode, new.stdout, new.stderr)


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_a_script_that_does_not_expect_it(tmp_path: Path, number: signal.Signals) -> None:
    script = tmp_path / "script.py"
    script.write_text("import os, sys, time\nprint(os.getpid(), sys.argv[1:], flush=True)\ntime.sleep(600)\n")
    process = warm.start("a", "b", script=script)
    assert process.stdout.readline() == f"{process.pid} ['a', 'b']\n"
    assert process.poll() is None
    process.send_signal(number)
    _, given = process.communicate(timeout=60)
    assert process.returncode == -number
    assert ("KeyboardInterrupt" in given) == (number == signal.SIGINT)


def test_a_process_that_a_test_starts_hears_ctrl_c() -> None:
    """Also where the tests run in a shell's background, whose children would ignore it."""
    asked = "import signal; print(signal.getsignal(signal.SIGINT) is signal.default_int_handler)"
    assert subprocess.run([sys.executable, "-c", asked], capture_output=True, text=True).stdout == "True\n"


def test_input_is_read_and_an_error_has_its_traceback(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text("import sys\nprint(sys.stdin.read().upper())\n1 / 0\n")
    process = warm.start(script=script)
    said, given = process.communicate("word", timeout=60)
    assert (process.returncode, said) == (1, "WORD\n")
    assert "ZeroDivisionError" in given


def test_waiting_too_long_is_an_error(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text("import time\ntime.sleep(600)\n")
    process = warm.start(script=script)
    with pytest.raises(subprocess.TimeoutExpired):
        process.wait(0.05)
    process.kill()
    process.communicate()
    assert process.returncode == -signal.SIGKILL
