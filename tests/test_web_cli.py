"""evenhand serve by its real entry point."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

import warm
from web_server import Client, fill, plain_pairs

STOPPED, WRONG = 130, 2


@pytest.fixture
def filled(db: Path) -> Path:
    fill(db, plain_pairs(2))
    return db


def run(*words: str, before: str = "") -> subprocess.CompletedProcess[str]:
    """The command; `before` is Python that runs first in the same process, which then is a new one."""
    if not before:
        return warm.run(*words)
    code = (
        f"import sys; sys.argv = ['evenhand', *sys.argv[1:]]; {before}; from evenhand.views.cli import main; main()"
    )
    return subprocess.run(
        [sys.executable, "-c", code, *words], capture_output=True, encoding="utf-8", timeout=120, check=False
    )


@contextmanager
def serving(*words: str) -> Iterator[tuple[Client, dict[str, Any], Callable[[], dict[str, Any]]]]:
    """The command at work: a client that came in by its link, its first words, and its next; then Ctrl-C."""
    program = warm.start("serve", *words, "--port", "0", "--json")
    out = program.stdout
    try:
        said = json.loads(out.readline())
        link = urlsplit(said["link"])
        client = Client(int(link.port or 0))
        assert client.get(link.path).status == 303
        yield client, said, lambda: json.loads(out.readline())
        program.send_signal(signal.SIGINT)
        assert program.wait(30) == STOPPED
    finally:
        program.kill()
        program.wait()
        program.close()


def test_it_serves_until_it_is_stopped(filled: Path) -> None:
    """Two links: the first is used, the second announced; Ctrl-C ends it at once."""
    with serving("--db", str(filled)) as (client, said, listen):
        assert listen()["link"] != said["link"]
        assert "pair-0001" in client.get("/pairs").text


def test_bare_pairs_are_entered_and_can_be_labelled(tmp_path: Path) -> None:
    db, file = tmp_path / "new.db", tmp_path / "pairs.jsonl"
    rows = [{"instruction": p.instruction, "output_1": p.output_1, "output_2": p.output_2} for p in plain_pairs(3)]
    file.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    for new in (3, 0):
        with serving("--pairs", str(file), "--db", str(db)) as (client, said, _):
            assert (said["pairs"], said["new"]) == (3, new)
            if new:
                assert client.post("/people/invite", {"name": "wil", "here": 1, "count": 3}).status == 303
                assert "spider" in client.get("/annotate").text
            assert "Question number 2" in client.get("/pairs").text


def test_a_broken_file_of_pairs_is_refused_and_nothing_entered(tmp_path: Path) -> None:
    db, file = tmp_path / "new.db", tmp_path / "pairs.jsonl"
    file.write_text(
        '{"instruction": "x", "output_1": "y", "output_2": "z"}\n{"instruction": 1}\n', encoding="utf-8"
    )
    done = run("serve", "--pairs", str(file), "--db", str(db))
    assert done.returncode == WRONG
    assert "pairs.jsonl:2: no field" in done.stderr
    assert not db.exists()


def test_without_a_database_there_is_nothing_to_serve(tmp_path: Path) -> None:
    done = run("serve", "--db", str(tmp_path / "none.db"))
    assert done.returncode == WRONG
    assert "no database" in done.stderr


@pytest.mark.parametrize("missing", ["starlette", "jinja2", "nh3", "markdown_it", "uvicorn"])
def test_a_missing_extra_answers_with_the_command(filled: Path, missing: str) -> None:
    done = run("serve", "--db", str(filled), before=f"sys.modules['{missing}'] = None")
    assert done.returncode == WRONG
    assert missing in done.stderr
    assert "pip install 'evenhand[web]'" in done.stderr


def test_other_machines_need_a_password(filled: Path, tmp_path: Path) -> None:
    short = tmp_path / "password"
    short.write_text("short\n", encoding="utf-8")
    for more in ([], ["--password-file", str(short)], ["--password-file", str(tmp_path / "none")]):
        done = run("serve", "--db", str(filled), "--listen", "0.0.0.0", "--port", "0", *more)
        assert done.returncode == WRONG
        assert "password" in done.stderr


def test_the_command_starts_without_the_web_extra() -> None:
    """Other commands do not load what only the page needs."""
    done = run("--version", before="sys.modules['starlette'] = sys.modules['uvicorn'] = None")
    assert done.returncode == 0
