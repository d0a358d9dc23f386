"""Two nodes, one of which is killed in the middle of a run: no outcome is missing, and none counts twice."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from counting_server import label_of
from evenhand.store.shards import open_shards
from test_kill_endpoint import Counting

pytestmark = pytest.mark.ray

PAIRS = 600
TIME_LIMIT = 120.0
# On loopback alone, and not giving way to whatever else runs here. A node that is gone is missed within seconds.
SETTINGS = {"RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0", "RAY_USAGE_STATS_ENABLED": "0", "RAY_worker_niceness": "0"}
HEALTH = {"health_check_initial_delay_ms": 0, "health_check_period_ms": 300, "health_check_failure_threshold": 3}


class Nodes:
    """A head and a second node with one core each, so that each has one of two workers."""

    def __init__(self) -> None:
        from ray.cluster_utils import Cluster

        about = {"num_cpus": 1, "object_store_memory": 100 * 2**20, "include_dashboard": False}
        head = {**about, "_system_config": HEALTH}
        self._cluster = Cluster(initialize_head=True, head_node_args=head)
        self.second = self._cluster.add_node(num_cpus=1, object_store_memory=100 * 2**20)
        self.address = str(self._cluster.address)

    def workers(self) -> list[int]:
        """How many judges each node runs."""
        return [self._count(node) for node in (self._cluster.head_node, self.second)]

    def _count(self, node: Any) -> int:
        raylet = node.all_processes["raylet"][0].process.pid
        children = 0
        for entry in Path("/proc").glob("[0-9]*"):
            with suppress(OSError):  # it may be gone by now
                parent = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
                children += parent == raylet and (entry / "cmdline").read_bytes().startswith(b"ray::MapWorker")
        return children

    def kill_second(self) -> None:
        """Every process of the second node at once, as if its power had failed."""
        self._cluster.remove_node(self.second, allow_graceful=False)

    def end(self) -> None:
        self._cluster.shutdown()


@pytest.fixture
def nodes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Nodes]:
    for name, value in SETTINGS.items():
        monkeypatch.setenv(name, value)
    (tmp_path / "home" / "ray").mkdir(parents=True)
    short = Path(f"/tmp/evenhand-nodes-{os.getpid()}")  # names of sockets may not be long
    short.symlink_to(tmp_path / "home")
    monkeypatch.setenv("RAY_TMPDIR", str(short))
    try:
        nodes = Nodes()
        try:
            yield nodes
        finally:
            nodes.end()
    finally:
        short.unlink()


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Counting]:
    counting = Counting(tmp_path / "requests.log")
    yield counting
    counting.close()


def wait_until(done: Any, process: subprocess.Popen[str], why: str) -> None:
    deadline = time.monotonic() + TIME_LIMIT
    while not done():
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < deadline, why
        time.sleep(0.02)


def test_a_node_is_killed_in_the_middle_of_a_run_and_every_pair_is_there_once(
    nodes: Nodes, server: Counting, tmp_path: Path
) -> None:
    names = [f"p{number}" for number in range(PAIRS)]
    rows = [{"id": name, "instruction": f"Say {name}", "output_1": f"x{name}", "output_2": "y"} for name in names]
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "pairs.parquet", row_group_size=100)
    words: tuple[str | Path, ...] = (
        "ray",
        "judge",
        tmp_path / "pairs.parquet",
        "--judge",
        f"{server.url}#m",
        "--protocol",
        "overall",
    )
    words += (
        "--address",
        nodes.address,
        "--workers",
        "2",
        "--concurrency",
        "4",
        "--out",
        tmp_path / "out",
        "--json",
    )
    server.answer_only(PAIRS)
    process = subprocess.Popen(
        [sys.executable, "-m", "evenhand", *map(str, words)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        wait_until(lambda: server.asked().total() >= PAIRS // 2, process, "the workers do not get on")
        wait_until(lambda: nodes.workers() == [1, 1], process, "each node has its worker")
        nodes.kill_second()
        server.answer_all()
        said, given = process.communicate(timeout=TIME_LIMIT)
    finally:
        process.kill()
    assert process.returncode == 0, given
    assert "a worker was lost" in given
    found = json.loads(said)
    assert (found["pairs"], found["workers"], found["dimensions"]["overall"]["invalid"]) == (PAIRS, 2, 0)
    with open_shards(tmp_path / "out") as shards:
        [judge] = shards.judges()
        kept = list(shards.records())
        assert sum(len(block) for block in shards.blocks(judge)) == PAIRS
    assert sorted(row.pair.id for row in kept) == sorted(names)
    assert all(row.finished and row.ended for row in kept)
    # Every conversation was asked, and what a task held that was not written is all that was asked twice.
    asked = server.asked()
    assert len(asked) == 2 * PAIRS
    assert 0 <= asked.total() - 2 * PAIRS <= 2 * 100
    answers = Counter(a.text for row in kept for record in row.orders.values() for a in record.answers)
    assert answers == Counter(map(label_of, asked))
