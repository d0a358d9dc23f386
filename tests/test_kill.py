"""Death in the middle: SIGKILL at any moment costs only what was under way, and two processes share the work."""

from __future__ import annotations

import json
import random
import sqlite3
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

import warm
from evenhand.engines.catalog import ModelFile
from warm import Warm

PAIRS = 60
CONCURRENCY = 3
KILLS = 20
TIME_LIMIT = 120.0

# Judges PAIRS pairs with an engine that takes a few milliseconds, and writes every question into a log first. After
# so many questions it answers no more: whoever is to kill it in the middle of its work cannot come too late.
WORKER = f"""
import asyncio, hashlib, itertools, os, sys
from evenhand import Judge, Pair, ScriptedEngine

log = os.open(sys.argv[2], os.O_WRONLY | os.O_CREAT | os.O_APPEND)
numbers = itertools.count()

class Logged(ScriptedEngine):
    async def answer(self, prompt):
        key = hashlib.sha256(repr(prompt).encode()).hexdigest()
        os.write(log, (key + "\\n").encode())
        await asyncio.sleep(0.004 if next(numbers) < int(sys.argv[3]) else 3600)
        return await super().answer(prompt)

engine = Logged(lambda prompt: {{"A": 0.5, "B": 0.3, "tie": 0.1}}, concurrency={CONCURRENCY})
pairs = (Pair(f"Question {{n}}", "x", "y", id=f"p{{n}}") for n in range({PAIRS}))
with Judge(engine, "chained", db=sys.argv[1]) as judge:
    print(sum(j[name].side is not None for j in judge.judge(pairs) for name in judge.setup.protocol.dimensions))
"""
VERDICTS = PAIRS * 4
ASKS = PAIRS * 2 * 4


@pytest.fixture
def worker(tmp_path: Path, db: Path) -> list[str]:
    script = tmp_path / "worker.py"
    script.write_text(WORKER)
    return [str(script), str(db), str(tmp_path / "asked.log")]


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return tmp_path / "asked.log"


def asked(log: Path) -> Counter[str]:
    return Counter(log.read_text().splitlines()) if log.exists() else Counter()


def count(db: Path, query: str) -> int:
    with closing(sqlite3.connect(f"file:{db}?mode=ro", uri=True, timeout=30)) as base:
        return int(base.execute(query).fetchone()[0])


def answers(db: Path) -> int:
    return count(db, "SELECT count(*) FROM answers")


def start(worker: list[str], most: int = ASKS) -> Warm:
    return warm.start(*worker[1:], str(most), script=Path(worker[0]))


def finish(process: Warm) -> str:
    said, fault = process.communicate(timeout=TIME_LIMIT)
    assert (process.returncode, fault) == (0, "")
    return said


def kill(process: Warm) -> None:
    process.kill()
    process.communicate(timeout=TIME_LIMIT)


def wait_for(condition: Iterator[bool], process: Warm) -> None:
    """Wait until it is so, or the process has ended, or it takes too long."""
    deadline = time.monotonic() + TIME_LIMIT
    for fulfilled in condition:
        if fulfilled or process.poll() is not None:
            return
        assert time.monotonic() < deadline, "the process does not get on"
        time.sleep(0.005)


def more_asked(log: Path, before: int, wanted: int) -> Iterator[bool]:
    while True:
        yield asked(log).total() >= before + wanted


def check_whole(db: Path) -> None:
    """Every answer and verdict is there exactly once, nothing failed, and the file is sound."""
    assert answers(db) == ASKS
    assert count(db, "SELECT count(*) FROM verdicts") == ASKS
    assert count(db, "SELECT count(*) FROM verdicts WHERE label IS NULL") == 0
    assert count(db, "SELECT count(*) FROM conversations") == PAIRS * 2
    assert count(db, "SELECT count(*) FROM failures") == 0
    assert count(db, "SELECT count(*) FROM pragma_integrity_check WHERE integrity_check <> 'ok'") == 0


def test_a_run_that_is_killed_again_and_again_loses_only_what_was_under_way(
    worker: list[str], db: Path, log: Path
) -> None:
    rng = random.Random(7)
    kept, kills = 0, 0
    for _ in range(KILLS):
        before, wanted = asked(log).total(), rng.randrange(1, ASKS // KILLS)
        process = start(worker, wanted + 30)
        wait_for(more_asked(log, before, wanted), process)
        time.sleep(rng.uniform(0, 0.03))
        kills += process.poll() is None
        kill(process)
        now = answers(db)
        assert now >= kept, "what was committed before a kill is still there after it"
        kept = now
    assert kills > KILLS // 2
    assert kept > ASKS // 10
    assert finish(start(worker)) == f"{VERDICTS}\n"
    check_whole(db)
    assert len(asked(log)) == ASKS
    assert asked(log).total() - ASKS <= kills * CONCURRENCY, "each worker has one answer on its way, and no more"


def test_what_was_committed_is_never_asked_again(worker: list[str], db: Path, log: Path) -> None:
    process = start(worker)
    wait_for(more_asked(log, 0, 100), process)
    kill(process)
    committed, before = answers(db), asked(log).total()
    assert committed > 0
    assert finish(start(worker)) == f"{VERDICTS}\n"
    assert asked(log).total() - before == ASKS - committed


def test_a_finished_run_asks_nothing(worker: list[str], db: Path, log: Path) -> None:
    finish(start(worker))
    assert set(asked(log).values()) == {1}
    assert finish(start(worker)) == f"{VERDICTS}\n"
    assert asked(log).total() == ASKS
    check_whole(db)


def test_processes_at_work_on_one_database_ask_everything_once(worker: list[str], db: Path, log: Path) -> None:
    processes = [start(worker) for _ in range(3)]
    assert [finish(process) for process in processes] == [f"{VERDICTS}\n"] * 3
    assert set(asked(log).values()) == {1}
    check_whole(db)


def test_a_process_takes_over_from_one_that_was_killed_beside_it(worker: list[str], db: Path, log: Path) -> None:
    one, two = start(worker), start(worker)
    wait_for(more_asked(log, 0, 60), one)
    kill(one)
    assert finish(two) == f"{VERDICTS}\n"
    check_whole(db)


@pytest.mark.engine
def test_the_real_engine_is_killed_and_the_command_goes_on(smollm: ModelFile, tmp_path: Path, db: Path) -> None:
    assert smollm.path.exists()
    pairs, template = tmp_path / "pairs.jsonl", tmp_path / "short.txt"
    rows = [{"instruction": f"What is {n} and {n}?", "output_1": str(2 * n), "output_2": "0"} for n in range(1, 13)]
    pairs.write_text("".join(json.dumps(row) + "\n" for row in rows))
    template.write_text(
        "<|im_start|>user\n{instruction}\nA: {output_1}\nB: {output_2}\nWhich is best, A, B, or tie?<|im_end|>\n"
    )
    command = ["judge", str(pairs), "--judge", "smollm2-135m", "--json"]
    command += ["--protocol", str(template), "--db", str(db), "--context", "512", "--threads", "1"]
    process = warm.start(*command)
    wait_for(some_answered(db, 4), process)
    kill(process)
    committed = answers(db)
    assert 4 <= committed < 24
    fields = json.loads(warm.run(*command).stdout)
    assert fields["asked"] == 24 - committed
    assert fields["dimensions"]["overall"]["n"] == 12
    assert answers(db) == 24


def some_answered(db: Path, wanted: int) -> Iterator[bool]:
    while True:
        try:
            yield db.exists() and answers(db) >= wanted
        except sqlite3.OperationalError:  # it is being created at this moment
            yield False
