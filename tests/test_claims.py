"""Runs beside each other: no verdict is lost by reading again, and nobody waits in silence or for ever."""

from __future__ import annotations

import asyncio
import os
import socket
import sqlite3
import time
from contextlib import closing
from pathlib import Path

import pytest

from evenhand.core.engine import Answer
from evenhand.core.pair import Pair
from evenhand.core.protocol import Prompt, Protocol
from evenhand.core.verdict import Verdict, read_answer
from evenhand.engines.scripted import ScriptedEngine
from evenhand.running import runner
from evenhand.store import Store, database
from evenhand.store.queue import is_alive, name_worker
from evenhand.store.rows import verdict_row
from evenhand.views.api import Judge

PAIRS = [Pair(f"Question {n}?", "yes", "no", id=str(n)) for n in range(2)]
FAR = "another-machine 17 5.5"


def judge_all(db: Path) -> None:
    with Judge(ScriptedEngine(lambda _: "A"), "chained", db=db) as judge:
        list(judge.judge(PAIRS))


def test_a_verdict_that_comes_while_others_are_read_again_is_kept(
    db: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A run adds its answer after the answers were read and before the verdicts are written, if it can."""
    judge_all(db)
    questions = [question.dimensions for question in Protocol.load("chained").questions]
    last = len(questions) - 1
    with closing(sqlite3.connect(db)) as base, base:
        base.execute("DELETE FROM answers WHERE question = ?", (last,))
        base.execute("DELETE FROM verdicts WHERE dimension = ?", (questions[last][0],))
    late: list[int] = []
    with Store(db) as store, Store(db) as run:
        run._db.execute("PRAGMA busy_timeout = 50")

        def slow(conversation: int, verdict: Verdict) -> tuple[object, ...]:
            if not late:
                late.append(conversation)
                answer = Answer("A")
                try:
                    run.record(conversation, last, answer, read_answer(answer, questions[last], ("q", "x", "y")))
                except Exception:  # it has to wait, as it should
                    late.append(-1)
            return verdict_row(conversation, verdict)

        monkeypatch.setattr(database, "verdict_row", slow)
        store.reread(store.judges()[0], questions)
    with closing(sqlite3.connect(db)) as base:
        answers = base.execute("SELECT count(*) FROM answers").fetchone()
        verdicts = base.execute("SELECT count(*) FROM verdicts").fetchone()
    assert answers == verdicts


def claim_all(db: Path, since: float | str, worker: str | bytes = FAR) -> None:
    with closing(sqlite3.connect(db)) as base, base:
        base.execute("DELETE FROM answers")
        base.execute("DELETE FROM verdicts")
        base.execute("INSERT OR REPLACE INTO claims SELECT id, ?, ? FROM conversations", (worker, since))


def test_a_claim_from_the_future_counts_for_nothing(db: Path) -> None:
    judge_all(db)
    claim_all(db, time.time() + 1e6)
    began = time.monotonic()
    judge_all(db)
    assert time.monotonic() - began < 20


HERE = socket.gethostname()


@pytest.mark.parametrize(
    ("worker", "since"),
    [
        *((worker, 0.0) for worker in ("x", "", b"x", b"box 17 5.5", "a b c", FAR.replace("17", "-1"))),
        *((f"{HERE} {pid} 5.5", 0.0) for pid in ("abc", "-1", "0", "9999999999", "9" * 20)),
        (FAR, "soon"),
    ],
)
def test_a_claim_that_no_process_can_have_made_counts_for_nothing(
    db: Path, worker: str | bytes, since: float | str
) -> None:
    judge_all(db)
    claim_all(db, since or time.time(), worker)
    began = time.monotonic()
    judge_all(db)
    with Store(db) as store:
        assert store.holders() == []
    assert time.monotonic() - began < 20


def test_a_process_with_the_number_of_another_is_not_that_one() -> None:
    """Numbers of processes come again: whoever has this one now began at another time than the claim says."""
    host, pid, stamp = name_worker().rsplit(" ", 2)
    assert int(pid) == os.getpid()
    assert is_alive(f"{host} {pid} {stamp}", time.time(), own="")
    began, _, opened = stamp.partition(".")
    if not began:
        pytest.skip("this system does not say when a process began")
    assert not is_alive(f"{host} {pid} {int(began) - 1}.{opened}", time.time(), own="")


@pytest.mark.parametrize(
    ("worker", "age", "alive"),
    [
        (FAR, 100.0, True),
        (FAR, 140.0, False),  # nobody has renewed it
        (FAR, -100.0, True),  # clocks differ
        (FAR, -140.0, False),
        ("here", 80_000.0, True),
        ("here", 90_000.0, False),
        ("here", -140.0, False),
    ],
)
def test_a_claim_counts_for_a_while(worker: str, age: float, alive: bool) -> None:
    worker = name_worker() if worker == "here" else worker
    assert is_alive(worker, time.time() - age, own="") is alive


def test_who_is_waited_for_is_said_before_anybody_wonders(db: Path) -> None:
    judge_all(db)
    claim_all(db, time.time())
    said: list[str] = []
    began = time.monotonic()

    def hear(text: str) -> None:
        said.append(text)
        with closing(sqlite3.connect(db)) as base, base:
            base.execute("DELETE FROM claims")  # the other is done

    with (
        Judge(ScriptedEngine(lambda _: "A"), "chained", db=db) as judge,
        judge.run(PAIRS, on_wait=hear) as judgments,
    ):
        assert len(list(judgments)) == len(PAIRS)
    assert said[0].startswith("waiting for process 17 on another-machine: ")
    assert time.monotonic() - began < 60


def test_a_run_that_takes_long_renews_its_claims(db: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """On another machine a claim that nobody renews counts for nothing after two minutes, and is asked again."""
    monkeypatch.setattr(runner, "_RENEW_SECONDS", 0.01)
    seen: set[float] = set()

    class Slow(ScriptedEngine):
        async def answer(self, prompt: Prompt) -> Answer:
            while len(seen) < 3 and time.monotonic() < deadline:
                await asyncio.sleep(0.02)
                with closing(sqlite3.connect(db)) as base:
                    seen.update(since for (since,) in base.execute("SELECT claimed FROM claims"))
            return await super().answer(prompt)

    deadline = time.monotonic() + 20
    with Judge(Slow(lambda _: "A"), "chained", db=db) as judge:
        list(judge.judge(PAIRS[:1]))
    assert len(seen) >= 3
