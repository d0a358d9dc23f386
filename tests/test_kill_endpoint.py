"""Nothing lost, nothing twice: the command over HTTP, SIGKILLed at random moments, counted by the server itself."""

from __future__ import annotations

import json
import os
import random
import signal
import sqlite3
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import closing, suppress
from dataclasses import dataclass
from math import inf
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.request import urlopen

import pytest

import warm
from counting_server import label_of
from warm import Warm

SERVER = Path(__file__).with_name("counting_server.py")
CONCURRENCY = 8
KILLS = int(os.environ.get("EVENHAND_KILLS", "40"))
TIME_LIMIT = 240.0
STARTING = 0.3  # seconds that pass until the first question, or more
DURABLE = 1.0  # seconds from an answer's arrival until it must be kept


class Counting:
    """The server's process, and what it has written down so far."""

    def __init__(self, log: Path) -> None:
        log.touch()
        self._most = Path(f"{log}.most")
        self._log, self._rest = log.open(), ""
        self._events: list[tuple[str, float, str]] = []  # what happened, when, and the hash of the question
        self.process = warm.start(log, "11", script=SERVER)
        self.url = self.process.stdout.readline().strip()

    def close(self) -> None:
        self._log.close()
        self.process.communicate(timeout=30)
        assert self.process.returncode == 0

    def events(self, kinds: str, since: float = 0.0, until: float = inf) -> Counter[str]:
        """The questions to which this happened in this time."""
        *lines, self._rest = (self._rest + self._log.read()).split("\n")
        for line in lines:
            kind, when, key = line.split()
            self._events.append((kind, float(when), key))
        return Counter(key for kind, when, key in self._events if kind in kinds and since <= when <= until)

    def asked(self) -> Counter[str]:
        return self.events("+")

    def last(self) -> float:
        """When the last question came."""
        self.asked()
        return max((when for kind, when, _ in self._events if kind == "+"), default=0.0)

    def answer_only(self, most: int) -> None:
        """Let the others wait: whoever is to kill in the middle of the work cannot come too late."""
        new = self._most.with_suffix(".new")
        new.write_text(str(most))
        new.replace(self._most)

    def answer_all(self) -> None:
        self._most.unlink()

    def settle(self) -> None:
        """Wait until the server has read all that was sent, and noticed that whoever asked is gone."""
        deadline = time.monotonic() + 30
        with suppress(HTTPError):  # there is no such page, but it comes after what came before
            urlopen(self.url, timeout=30)
        while self.asked() != self.events("=-"):
            assert time.monotonic() < deadline, "a question is neither answered nor given up"
            time.sleep(0.01)


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Counting]:
    counting = Counting(tmp_path / "requests.log")
    yield counting
    counting.close()


@dataclass(frozen=True)
class Work:
    """A command, and how much there is for it to ask."""

    command: list[str]
    db: Path
    pairs: int
    dimensions: int = 1

    @property
    def questions(self) -> int:
        return self.pairs * 2 * self.dimensions

    def start(self) -> Warm:
        return warm.start(*self.command)

    def finish(self, process: Warm | None = None) -> dict[str, Any]:
        said, fault = (process or self.start()).communicate(timeout=TIME_LIMIT)
        assert said, fault
        fields: dict[str, Any] = json.loads(said)
        assert fields["pairs"] == self.pairs
        return fields

    def answers(self) -> int:
        return self.count("SELECT count(*) FROM answers") if self.db.exists() else 0

    def count(self, query: str) -> int:
        return int(self.rows(query)[0][0])

    def rows(self, query: str) -> list[tuple[Any, ...]]:
        with closing(sqlite3.connect(f"file:{self.db}?mode=ro", uri=True, timeout=30)) as base:
            try:
                return base.execute(query).fetchall()
            except sqlite3.OperationalError as fault:
                if "no such table" not in str(fault):  # killed while the file was being made
                    raise
                return [(0,)]

    def check_whole(self, asked: Counter[str]) -> None:
        """Every verdict is there exactly once, as the server gave it, and the file is sound."""
        assert len(asked) == self.questions, "every question was asked"
        assert self.answers() == self.questions
        assert self.count("SELECT count(*) FROM verdicts") == self.questions
        assert self.count("SELECT count(*) FROM queue") == self.pairs * 2
        assert self.count("SELECT count(*) FROM failures") == 0
        assert dict(self.rows("SELECT label, count(*) FROM verdicts GROUP BY label")) == Counter(
            map(label_of, asked)
        )
        assert self.rows("PRAGMA integrity_check") == [("ok",)]


def work_of(
    server: Counting, folder: Path, pairs: int, protocol: str = "overall", concurrency: int = CONCURRENCY
) -> Work:
    file, db = folder / "pairs.jsonl", folder / "evenhand.db"
    rows = ({"instruction": f"Question {n}", "output_1": f"x{n}", "output_2": f"y{n}"} for n in range(pairs))
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    command = ["judge", str(file), "--judge", f"{server.url}#m", "--protocol", protocol]
    command += ["--db", str(db), "--concurrency", str(concurrency), "--json"]
    return Work(command, db, pairs, 4 if protocol == "chained" else 1)


def wait_until_asked(server: Counting, wanted: int, process: Warm) -> None:
    deadline = time.monotonic() + TIME_LIMIT
    while process.poll() is None and server.asked().total() < wanted:
        assert time.monotonic() < deadline, "the process does not get on"
        time.sleep(0.005)


def kill(process: Warm) -> bool:
    """Whether there was still somebody to kill."""
    alive = process.poll() is None
    process.kill()
    process.communicate(timeout=TIME_LIMIT)
    assert process.returncode in (0, -signal.SIGKILL)
    return alive


def kill_somewhere(rng: random.Random, work: Work, server: Counting, most: int) -> tuple[bool, int]:
    """Start the command and kill it; whether it was still running, and how much was under way then, at most.

    One in five dies at any moment from its first instruction on, the others in the middle of asking.
    """
    early, before = rng.random() < 0.2, server.asked().total()
    wanted = before + (0 if early else rng.randint(1, most))
    server.answer_only(wanted + 2 * CONCURRENCY)
    process = work.start()
    if early:
        time.sleep(rng.uniform(0, STARTING))
    else:
        wait_until_asked(server, wanted, process)
        time.sleep(rng.uniform(0, 0.02))
    alive = kill(process)
    server.settle()
    return alive, min(CONCURRENCY, server.asked().total() - before)


@pytest.mark.parametrize(("protocol", "pairs", "kills"), [("overall", 15 * KILLS, KILLS), ("chained", 90, 15)])
def test_a_command_killed_at_random_moments_loses_only_what_was_under_way(
    server: Counting, tmp_path: Path, protocol: str, pairs: int, kills: int
) -> None:
    work, rng = work_of(server, tmp_path, pairs, protocol), random.Random(5)
    killed = under_way = kept = 0
    for left in range(kills, 0, -1):
        alive, here = kill_somewhere(rng, work, server, max(1, (work.questions - kept) // left))
        killed, under_way, before, kept = killed + alive, under_way + here, kept, work.answers()
        assert kept >= before, "what was kept before a kill is kept after it"
        assert server.asked().total() - kept <= under_way
    assert killed >= 0.9 * kills
    assert 0.2 * work.questions < kept < work.questions, "the kills came in the middle of the work"
    server.answer_all()
    assert work.finish()["asked"] == work.questions - kept
    work.check_whole(server.asked())
    assert server.asked().total() - work.questions <= under_way <= kills * CONCURRENCY


def test_an_answer_is_kept_within_a_second_of_its_arrival(server: Counting, tmp_path: Path) -> None:
    """While it asks: a question that is asked shows that the command was let run until then."""
    work, rng = work_of(server, tmp_path, 10_000), random.Random(6)
    for _ in range(3):
        before, began = server.asked().total(), time.monotonic()
        process, deadline = work.start(), began + TIME_LIMIT
        while server.events("=", began, server.last() - DURABLE).total() < 100:
            assert time.monotonic() < deadline, "the process does not get on"
            time.sleep(0.05)
        time.sleep(rng.uniform(0.2, 0.8))
        assert kill(process), "there was enough to do"
        server.settle()
        assert work.answers() >= server.events("=", until=server.last() - DURABLE).total() > before
        assert work.answers() >= server.asked().total() - 3 * CONCURRENCY


def test_two_commands_on_one_database_share_the_work_and_ask_nothing_twice(
    server: Counting, tmp_path: Path
) -> None:
    work = work_of(server, tmp_path, 400, concurrency=2)  # long enough for both to have begun
    shares = [work.finish(process)["asked"] for process in (work.start(), work.start())]
    assert sum(shares) == work.questions
    assert min(shares) > 0, "both had a part in it"
    work.check_whole(server.asked())
    assert server.asked().total() == work.questions


def test_a_command_goes_on_with_what_one_killed_beside_it_had_begun(server: Counting, tmp_path: Path) -> None:
    work = work_of(server, tmp_path, 60, "chained")
    one, other = work.start(), work.start()
    wait_until_asked(server, work.questions // 3, one)
    assert kill(one)
    assert work.answers() < work.questions, "there was something to take over"
    work.finish(other)
    work.check_whole(server.asked())
    assert server.asked().total() - work.questions <= CONCURRENCY
