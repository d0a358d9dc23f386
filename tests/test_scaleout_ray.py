"""Judging on a real cluster of Ray on this machine: workers killed, the command killed, Ctrl-C; several judges."""

from __future__ import annotations

import json
import os
import secrets
import signal
import socket
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import panel_server
from command import evenhand
from conftest import SMOLLM, LoopThread
from counting_server import label_of
from evenhand.core.errors import InputError
from evenhand.engines.catalog import ModelFile
from evenhand.running.cluster.cluster import probe
from evenhand.running.cluster.worker import REPORT_SECONDS
from evenhand.store import Store
from evenhand.store.shards import ShardRow, open_shards
from panel_server import Panel
from test_escalation import TRUTH
from test_escalation import view as panel_view
from test_kill_endpoint import Counting

pytestmark = pytest.mark.ray

EVENHAND = Path(sys.executable).with_name("evenhand")
RAY = Path(sys.executable).with_name("ray")
TIME_LIMIT = 240.0
# The cluster listens on loopback alone, and its workers do not give way to whatever else runs here.
QUIET = {"RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0", "RAY_USAGE_STATS_ENABLED": "0", "RAY_worker_niceness": "0"}
TOKEN = {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": secrets.token_hex(32)}


SHORT = (
    "<|im_start|>user\nTask: {instruction}\nA: {output_1}\nB: {output_2}\nBest overall: A, B, or tie?"
    "<|im_end|>\n<|im_start|>assistant\n"
)


@dataclass(frozen=True)
class Cluster:
    """A cluster of one node with two cores, in a session of its own."""

    address: str
    session: int

    def workers(self) -> list[int]:
        """The processes that are at judging."""
        return self.processes(b"ray::MapWorker")

    def processes(self, title: bytes = b"") -> list[int]:
        """The processes of this cluster that are called so."""
        found = []
        for entry in Path("/proc").glob("[0-9]*/cmdline"):
            pid = int(entry.parent.name)
            with suppress(OSError):  # it may be gone by now
                if entry.read_bytes().startswith(title) and os.getsid(pid) == self.session:
                    found.append(pid)
        return found

    def end(self) -> None:
        """At once; asked to end by itself, Ray takes half a minute."""
        for pid in self.processes():
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{free.getsockname()[1]}"
    # Sockets lie in this folder, and their names may not be long.
    short = Path(f"/tmp/evenhand-ray-{os.getpid()}")
    short.symlink_to(tmp_path_factory.mktemp("ray"))
    command = [str(RAY), "start", "--head", f"--port={address.partition(':')[2]}", "--num-cpus=2", "--block"]
    command += ["--include-dashboard=false", "--disable-usage-stats", f"--temp-dir={short}"]
    command += ["--node-ip-address=127.0.0.1", f"--object-store-memory={200 * 2**20}"]
    nowhere = subprocess.DEVNULL
    env = {**os.environ, **QUIET, **TOKEN}
    process = subprocess.Popen(command, stdout=nowhere, stderr=nowhere, env=env, start_new_session=True)
    cluster = Cluster(address, process.pid)
    try:
        _wait_for_ray(address, process)
        yield cluster
    finally:
        cluster.end()
        process.wait(timeout=60)
        short.unlink()


def _wait_for_ray(address: str, process: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + TIME_LIMIT
    while True:
        try:
            return probe(address)
        except InputError:
            assert process.poll() is None, "Ray does not start"
            assert time.monotonic() < deadline, "Ray does not answer"
            time.sleep(0.2)


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Counting]:
    counting = Counting(tmp_path / "requests.log")
    yield counting
    counting.close()


STARTED: list[subprocess.Popen[str]] = []


@pytest.fixture(autouse=True)
def nothing_goes_on() -> Iterator[None]:
    """A command that a failed test has left would take its time from all the others."""
    yield
    for process in STARTED:
        if process.poll() is None:
            process.kill()
            process.communicate()
    STARTED.clear()


class Work:
    """A file of pairs, and the command that judges it on the cluster."""

    def __init__(self, folder: Path, count: int, judge: str, protocol: str, address: str) -> None:
        self.file, self.out, self.count = folder / "pairs.parquet", folder / "out", count
        rows = [
            {"id": f"p{n}", "instruction": f"Question {n}", "output_1": f"x{n}", "output_2": f"y{n}", "n": n}
            for n in range(count)
        ]
        pq.write_table(pa.Table.from_pylist(rows), self.file)
        self.judge: tuple[str, ...] = ("judge", str(self.file), "--judge", judge, "--protocol", protocol, "--json")
        self.words: tuple[str, ...] = ("ray", *self.judge, "--address", address, "--out", str(self.out))

    def start(self, *more: str) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [str(EVENHAND), *self.words, *more],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, **QUIET, **TOKEN},
        )
        STARTED.append(process)
        return process

    def finish(self, process: subprocess.Popen[str], code: int = 0) -> dict[str, Any]:
        said, given = process.communicate(timeout=TIME_LIMIT)
        assert process.returncode == code, given
        fields: dict[str, Any] = json.loads(said)
        return fields

    def rows(self) -> dict[str, ShardRow]:
        """What counts; each pair stands there once, whoever was killed."""
        with open_shards(self.out) as shards:
            found = list(shards.records())
        assert len({row.pair.id for row in found}) == len(found)
        return {row.pair.id: row for row in found}

    def answered(self) -> int:
        return sum(len(record.answers) for row in self.rows().values() for record in row.orders.values())


def wait_for(so: Callable[[], bool], process: subprocess.Popen[str]) -> None:
    deadline = time.monotonic() + TIME_LIMIT
    while not so():
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < deadline, "the workers do not get on"
        time.sleep(0.01)


def fields_of(rows: dict[str, ShardRow]) -> dict[tuple[str, str], tuple[Any, ...]]:
    return {
        (name, order): (
            record.key,
            [a.text for a in record.answers],
            {d: (v.label, v.p) for d, v in record.verdicts.items()},
        )
        for name, row in rows.items()
        for order, record in row.orders.items()
    }


def local_facts(db: Path) -> dict[tuple[str, str], tuple[Any, ...]]:
    """The same, out of a database of the local runner."""
    found: dict[tuple[str, str], tuple[Any, ...]] = {}
    with Store(db) as store:
        judge = store.judges()[0]
        for judgment in store.judgments(judge):
            for name in judge.dimensions:
                for order, verdict in judgment[name].orders.items():
                    key = (judgment.pair.id, order)
                    conversation, text = store._db.execute(
                        "SELECT h.id, h.key FROM queue d JOIN pairs p ON p.id = d.pair JOIN conversations h"
                        ' ON h.id = d.conversation WHERE p.name = ? AND d."order" = ?',
                        key,
                    ).fetchone()
                    answers = [answer.text for answer in store.answers(conversation)]
                    found.setdefault(key, (text, answers, {}))[2][name] = (verdict.label, verdict.p)
    return found


def test_a_worker_is_killed_and_every_pair_is_there_once_as_the_local_runner_has_it(
    cluster: Cluster, server: Counting, tmp_path: Path, db: Path
) -> None:
    work = Work(tmp_path, 400, f"{server.url}#m", "overall", cluster.address)
    server.answer_only(300)
    process = work.start("--workers", "2", "--concurrency", "8")
    wait_for(lambda: server.asked().total() >= 200 and len(cluster.workers()) == 2, process)
    os.kill(cluster.workers()[0], signal.SIGKILL)
    server.answer_all()
    said, given = process.communicate(timeout=TIME_LIMIT)
    assert "a worker was lost" in given
    fields = json.loads(said)
    assert (fields["pairs"], fields["workers"], fields["dimensions"]["overall"]["invalid"]) == (400, 2, 0)
    assert fields["attempts"] >= fields["tasks"]  # more, unless it was lost between two tasks
    rows = work.rows()
    assert len(rows) == 400
    assert all(row.finished for row in rows.values())
    lost = server.asked().total() - 800
    # What a task held that was not written: no more than its pairs.
    assert 0 <= lost <= 2 * (400 // fields["tasks"] + 1)
    assert Counter(a.text for row in rows.values() for h in row.orders.values() for a in h.answers) == Counter(
        map(label_of, server.asked())
    )
    evenhand(*work.judge, "--db", db, "--concurrency", "8")
    assert fields_of(rows) == local_facts(db)


def test_the_command_is_killed_and_goes_on_then_ctrl_c_and_goes_on(
    cluster: Cluster, server: Counting, tmp_path: Path
) -> None:
    work = Work(tmp_path, 120, f"{server.url}#m", "chained", cluster.address)
    server.answer_only(400)
    process = work.start("--workers", "2", "--concurrency", "4")
    wait_for(lambda: server.asked().total() >= 300, process)
    process.kill()
    process.communicate()
    deadline = time.monotonic() + 60
    while cluster.workers():
        assert time.monotonic() < deadline, "Ray ends the workers of a command that is gone"
        time.sleep(0.1)
    kept, asked = len(work.rows()), server.asked().total()
    assert 0 < kept < 120
    server.answer_only(asked + 200)
    process = work.start("--workers", "2", "--concurrency", "4")
    wait_for(lambda: server.asked().total() >= asked + 150, process)
    process.send_signal(signal.SIGINT)
    assert process.stderr is not None
    while "press Ctrl-C again" not in (line := process.stderr.readline()):
        assert line, "it ended without a word"
    time.sleep(4 * REPORT_SECONDS)  # until each worker has heard of it, too
    server.answer_all()
    _, given = process.communicate(timeout=TIME_LIMIT)
    assert process.returncode == 130, given
    assert "the same command goes on from here" in given
    assert kept < len(work.rows()) < 120
    answered, asked = work.answered(), server.asked().total()
    fields = work.finish(work.start("--workers", "2", "--concurrency", "4"))
    assert fields["pairs"] == len(work.rows()) == 120
    assert all(row.finished for row in work.rows().values())
    assert work.answered() == 960
    assert fields["asked"] == server.asked().total() - asked == 960 - answered, "what is kept is not asked again"


def test_limits_hold_for_all_workers_together(cluster: Cluster, server: Counting, tmp_path: Path) -> None:
    work = Work(tmp_path, 60, f"{server.url}#m", "overall", cluster.address)
    fields = work.finish(
        work.start("--workers", "2", "--max-requests", "50", "--requests-per-minute", "1200"), code=3
    )
    assert server.asked().total() == fields["asked"] == 50
    assert fields["stopped"] == "the budget of 50 requests is used up"
    arrivals = sorted(when for kind, when, _ in server._events if kind == "+")
    assert arrivals[-1] - arrivals[0] >= 0.9 * 49 / 20, "twenty a second, not forty"


def test_a_large_file_is_checked_by_the_workers_too(cluster: Cluster, server: Counting, tmp_path: Path) -> None:
    work = Work(tmp_path, 20, f"{server.url}#m", "overall", cluster.address)
    rows = pq.read_table(work.file).to_pylist()
    rows[3]["output_2"] = None
    pq.write_table(pa.Table.from_pylist(rows), work.file, row_group_size=6)
    # Any file is large now.
    script = (
        "import evenhand.running.cluster.driver as d; d._FEW_ROWS = 0; from evenhand.views.cli import main; main()"
    )
    command = [sys.executable, "-c", script, *work.words, "--skip-bad", "--limit", "10"]
    env = {**os.environ, **QUIET, **TOKEN}
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=TIME_LIMIT, check=False)
    assert done.returncode == 3, done.stderr
    assert "row 4: field 'output_2' is null" in " ".join(done.stderr.split())
    fields = json.loads(done.stdout)
    assert (fields["pairs"], fields["skipped"], fields["asked"]) == (10, 1, 20)
    assert set(work.rows()) == {f"p{n}" for n in range(11) if n != 3}


def test_a_judge_that_refuses_all_ends_the_run_with_its_own_words(cluster: Cluster, tmp_path: Path) -> None:
    work = Work(tmp_path, 20, "http://127.0.0.1:9/v1#m", "overall", cluster.address)
    process = work.start("--set", "key_env=EVENHAND_NO_SUCH_KEY")
    _, given = process.communicate(timeout=TIME_LIMIT)
    assert process.returncode in (1, 2), given
    assert "EVENHAND_NO_SUCH_KEY" in given


def test_a_cluster_that_asks_for_a_token_says_so(
    cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(TOKEN, "RAY_AUTH_TOKEN", secrets.token_hex(32))
    process = Work(tmp_path, 2, "http://127.0.0.1:9/v1#m", "overall", cluster.address).start()
    _, given = process.communicate(timeout=TIME_LIMIT)
    assert process.returncode == 2
    assert "asks for a token" in given
    assert "RAY_AUTH_TOKEN" in given


# -- several judges ----------------------------------------------------------------------------------------------


def panel_work(folder: Path, count: int, judges: tuple[str, ...], address: str, labels: int = 0) -> Work:
    """Pairs on which the judges of a panel have an opinion, the first of them labelled."""
    work = Work(folder, count, "none", "overall", address)
    said = [panel_server.row(n, label=TRUTH[n % 2] if n < labels else None) for n in range(count)]
    pq.write_table(pa.Table.from_pylist(said), work.file, row_group_size=30)
    work.judge = ("judge", str(work.file), "--protocol", "overall", "--json", *judges)
    work.words = ("ray", *work.judge, "--address", address, "--out", str(work.out))
    return work


def kill_while_held(work: Work, panel: Panel, model: str, after: int) -> None:
    """Kill the command when a judge has been asked so often; what it was asked then is not answered."""
    panel.hold = (model, after)
    process = work.start("--concurrency", "4")
    deadline = time.monotonic() + TIME_LIMIT
    while panel.asked[model] < after:
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < deadline, "the workers do not get on"
        time.sleep(0.02)
    process.kill()
    process.communicate()
    panel.hold = None


def outcomes_of(records: Any, made: str) -> dict[str, Any]:
    """What a made judge says of each pair, to the last digit."""
    row = next(row for row in records.judges() if row.model.startswith(made))
    return {found.pair.id: found.outcomes for found in records.judgments(row)}


def test_a_jury_with_a_failing_juror_killed_and_completed_is_that_of_a_database(
    cluster: Cluster, loop: LoopThread, tmp_path: Path, db: Path
) -> None:
    with panel_server.serving(Panel(), loop) as panel:
        names = ",".join(panel.spec(model) for model in ("small", "middle", "large"))
        work = panel_work(tmp_path, 60, ("--judge", names), cluster.address)
        panel.failing = {"middle"}
        fields = work.finish(work.start(), code=3)
        assert (fields["jury"]["spoke"], fields["jury"]["incomplete"], fields["asked"]) == ({"2": 60}, 60, 240)
        assert "key" in fields["jury"]["jurors"][1]["failed"]
        each = fields["tasks"] // 3
        assert fields["dimensions"]["overall"]["invalid_reasons"] == {"incomplete": 60}
        panel.failing = set()
        kill_while_held(work, panel, "middle", 40)
        fields = work.finish(work.start())
        assert fields["tasks"] == each, "workers are started for the one who has something left to say"
        assert (panel.asked["small"], panel.asked["large"]) == (120, 120), "nobody is asked twice"
        assert 120 <= panel.asked["middle"] <= 160
        again = work.finish(work.start())
        assert (again["workers"], again["tasks"], again["attempts"], again["asked"]) == (0, 0, 0, 0)
        assert (again["jury"], again["dimensions"]) == (fields["jury"], fields["dimensions"])
        local = json.loads(evenhand(*work.judge, "--db", db).stdout)
    with Store(db) as store, open_shards(work.out) as shards:
        assert outcomes_of(shards, "jury") == outcomes_of(store, "jury")
    assert local["jury"] == fields["jury"]
    assert local["dimensions"] == fields["dimensions"]
    assert "3 of 3 judges spoke on 60 pairs." in evenhand("results", "--db", work.out).stdout


def test_levels_killed_and_resumed_are_those_of_a_database(
    cluster: Cluster, loop: LoopThread, tmp_path: Path, db: Path
) -> None:
    with panel_server.serving(Panel(panel_view), loop) as panel:
        names = f"{panel.spec('small')},{panel.spec('large')},people"
        work = panel_work(tmp_path, 150, ("--escalate", names, "--agree", "0.85"), cluster.address, labels=80)
        kill_while_held(work, panel, "large", 60)  # 160 are about the labelled pairs
        fields = work.finish(work.start())["escalation"]
        assert panel.pairs["large"] == {n for n in range(150) if n < 80 or n % 5 >= 3}
        assert panel.asked["small"] == 300, "nobody is asked twice"
        local = json.loads(evenhand(*work.judge, "--db", db).stdout)["escalation"]
    assert fields == local
    assert fields["waiting"] == len((work.out / "for_people.jsonl").read_text().splitlines()) > 0
    with Store(db) as store, open_shards(work.out) as shards:
        assert outcomes_of(shards, "escalation") == outcomes_of(store, "escalation")
    said = evenhand("results", "--db", work.out).stdout
    assert "Level 1, small: decided 90 of 150 pairs" in " ".join(said.split())
    assert "at least 85% are decided as people would" in " ".join(said.split())


@pytest.mark.engine
def test_an_embedded_model_gives_the_same_verdicts_on_a_cluster_that_the_command_starts(
    smollm: ModelFile, tmp_path: Path, db: Path
) -> None:
    short = tmp_path / "short.txt"  # so that each worker has little to read before its first pair
    short.write_text(SHORT)
    work = Work(tmp_path, 4, SMOLLM, str(short), "local")
    fields = work.finish(work.start("--workers", "2", "--context", "2048"))
    assert (fields["pairs"], fields["workers"]) == (4, 2)
    evenhand(*work.judge, "--db", db, "--context", "2048", "--threads", "1")
    mine, theirs = fields_of(work.rows()), local_facts(db)
    assert mine.keys() == theirs.keys()
    for name, (key, answers, verdicts) in mine.items():
        assert (key, answers) == theirs[name][:2]
        for dimension, (label, p) in verdicts.items():
            assert label == theirs[name][2][dimension][0]
            # What llama.cpp takes out of its cache depends on the pair before, and moves a probability a little.
            assert p == pytest.approx(theirs[name][2][dimension][1], abs=0.05)
