"""Nothing lost, nothing paid twice: judge --batch, killed at every step and at random, counted by the service."""

from __future__ import annotations

import os
import random
import signal
import time
from collections import Counter
from pathlib import Path

import pytest

import warm
from batch_server import StandIn, label_of, now_and_then
from test_batches import Start, both, rows, start, words, write_pairs
from warm import Warm

__all__ = ["start"]

COMMAND = Path(__file__).with_name("batch_command.py")
TIME_LIMIT = 120.0
KILLS = int(os.environ.get("EVENHAND_KILLS", "8"))


@pytest.fixture(autouse=True)
def keys(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("OPENAI_API_KEY", "ANTHROPIC_API_KEY"):
        monkeypatch.setenv(name, "sk-secret-of-the-tests")


def begin(given: list[str], point: str = "never", times: int = 0) -> Warm:
    return warm.start(point, str(times), *given, script=COMMAND)


def finish(given: list[str]) -> None:
    process = begin(given)
    _, said = process.communicate(timeout=TIME_LIMIT)
    assert process.returncode == 0, said


def check_whole(server: StandIn, db: Path, pairs: int, lost: int = 0) -> None:
    """Every verdict once; every question computed in one batch or asked alone, and paid once.

    A question that is asked alone may be under way when the process is killed: so many may be `lost`.
    """
    assert set(server.computed.values()) == {1}, "no question was computed in two batches"
    assert not set(server.computed) & set(server.asked), "nor in a batch and alone"
    assert server.asked.total() - len(server.asked) <= lost
    paid = [*server.computed, *server.asked]
    assert len(paid) == 2 * pairs
    assert rows(db, "SELECT count(*) FROM answers") == [(2 * pairs,)]
    assert dict(rows(db, "SELECT label, count(*) FROM verdicts GROUP BY label")) == Counter(map(label_of, paid))
    assert rows(db, "SELECT count(*) FROM failures") == [(0,)]
    assert rows(db, "SELECT count(*) FROM batch_items") == [(0,)]
    assert rows(db, "PRAGMA integrity_check") == [("ok",)]
    sent = [remote for (remote,) in rows(db, "SELECT remote FROM batches WHERE remote != ''")]
    assert sorted(sent) == sorted(batch.id for batch in server.batches), "each batch at the service is known, once"


POINTS = [
    *("after:book.plan", "after:book.note_submitting", "before:book.note_open", "after:book.note_open"),
    *("after:store.record_all", "before:book.settle", "after:book.settle", "before:book.close", "after:book.close"),
    "after:store.fail_all",
]


@both
@pytest.mark.parametrize("point", POINTS)
def test_a_command_that_dies_at_this_point_pays_for_nothing_twice(
    start: Start, tmp_path: Path, service: str, point: str
) -> None:
    server = start(seed=3, fate=now_and_then(0.2))
    db = tmp_path / "evenhand.db"
    given = words(server, service, write_pairs(tmp_path / "pairs.jsonl", 15), db, "--batch")
    for times in (0, 2):  # at the first such moment, and at a later one
        process = begin(given, point, times)
        process.communicate(timeout=TIME_LIMIT)
        assert process.returncode == 9, "it came to that point"
    finish(given)
    check_whole(server, db, 15)


@both
def test_a_command_killed_at_random_moments_pays_for_nothing_twice(
    start: Start, tmp_path: Path, service: str
) -> None:
    server, rng = start(seed=4, fate=now_and_then(0.1), trouble=0.2), random.Random(7)
    db = tmp_path / "evenhand.db"
    given = words(server, service, write_pairs(tmp_path / "pairs.jsonl", 80), db, "--batch")
    killed = 0
    for _ in range(KILLS):
        process, seen = begin(given), len(server.headers)
        wanted, deadline = seen + rng.randint(1, 20), time.monotonic() + TIME_LIMIT
        while process.poll() is None and len(server.headers) < wanted:
            assert time.monotonic() < deadline
            time.sleep(0.001)
        time.sleep(rng.uniform(0, 0.02))
        killed += process.poll() is None
        process.kill()
        process.communicate(timeout=TIME_LIMIT)
    assert killed >= 0.7 * KILLS
    finish(given)
    check_whole(server, db, 80, lost=killed)


def test_an_interrupt_leaves_the_batch_and_says_how_to_come_back(start: Start, tmp_path: Path) -> None:
    server = start()
    server.steps["openai"] = ("validating", *["in_progress"] * 10_000)
    db = tmp_path / "evenhand.db"
    given = words(server, "openai", write_pairs(tmp_path / "pairs.jsonl", 4), db, "--batch")
    process, deadline = begin(given), time.monotonic() + TIME_LIMIT
    while server.polls < 3:
        assert time.monotonic() < deadline
        time.sleep(0.01)
    process.send_signal(signal.SIGINT)
    _, said = process.communicate(timeout=TIME_LIMIT)
    assert process.returncode == 130
    assert "1 batch of 7 requests is under way at openai; the same command picks up" in said
    assert not server.batches[0].cancelled
    server.batches[0].steps = ["completed"]
    finish(given)
    check_whole(server, db, 4)


def test_two_commands_at_once_do_not_send_the_same(start: Start, tmp_path: Path) -> None:
    server = start()
    server.steps["openai"] = ("validating", *["in_progress"] * 10_000)
    db = tmp_path / "evenhand.db"
    given = words(server, "openai", write_pairs(tmp_path / "pairs.jsonl", 4), db, "--batch")
    one, deadline = begin(given), time.monotonic() + TIME_LIMIT
    while server.polls < 1:
        assert time.monotonic() < deadline
        time.sleep(0.01)
    other = begin(given)
    _, said = other.communicate(timeout=TIME_LIMIT)
    assert other.returncode == 2
    assert "sees to the batches of this judge" in said
    server.batches[0].steps = ["completed"]
    _, said = one.communicate(timeout=TIME_LIMIT)
    assert one.returncode == 0, said
    check_whole(server, db, 4)
