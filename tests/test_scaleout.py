"""Judging on many machines, without the machines: tasks, the coordinator of limits, and a worker on its own."""

from __future__ import annotations

import asyncio
import json
import pickle
import socket
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import warm
from command import evenhand
from evenhand import Pair, Protocol, ScriptedEngine
from evenhand.core.engine import Engine, Usage
from evenhand.core.errors import EngineError, InputError, PairError
from evenhand.core.judge import Setup
from evenhand.core.protocol import Prompt
from evenhand.running.cluster.cluster import connect, share_cores
from evenhand.running.cluster.coordinator import ATTEMPTS, ClusterProgress, Coordinator, Fault
from evenhand.running.cluster.driver import begun_in, check_all
from evenhand.running.cluster.slices import (
    Work,
    check,
    find_parquet,
    local_work,
    pairs_of,
    parquet_work,
    refuse_twins,
    task_rows,
)
from evenhand.running.cluster.worker import Notebook, Recipe, Worker
from evenhand.running.pace import Limits
from evenhand.running.prices import Price
from evenhand.running.runner import Run
from evenhand.store import Store
from evenhand.store.shards import Place, ShardRow, begin_shards, keys_in, open_shards

PROTOCOL = Protocol.load("chained")
WITH_REFERENCE = (
    "<|im_start|>user\n{instruction} {reference} {output_1} {output_2}\nWhich is best, A, B, or tie?<|im_end|>"
)


_TEXTS = pa.schema([(name, pa.string()) for name in ("instruction", "output_1", "output_2")])


def pairs_made(count: int) -> list[Pair]:
    return [Pair(f"Question {n}", f"x{n}", f"y{n * 7 % 5}", id=f"p{n}", metadata={"n": n}) for n in range(count)]


def write_parquet(path: Path, pairs: Iterable[Pair], group: int = 5, **columns: Any) -> Path:
    rows = [
        {"id": p.id, "instruction": p.instruction, "output_1": p.output_1, "output_2": p.output_2, **p.metadata}
        for p in pairs
    ]
    pq.write_table(pa.Table.from_pylist(rows), path, row_group_size=group)
    return path


# -- tasks -------------------------------------------------------------------------------------------------------


def tasks_of(names: Sequence[str | Path], *, workers: int = 2, at_once: int = 1, limit: int | None = None) -> Work:
    groups = find_parquet([str(name) for name in names])
    assert groups is not None
    found = [check(group, skip_bad=True) for group in groups]
    return parquet_work(groups, found, workers=workers, at_once=at_once, limit=limit)


def read_all(work: Work, *, skip_bad: bool = False) -> list[Pair]:
    return [pair for task in work.tasks for pair in pairs_of(task, skip_bad=skip_bad)]


@settings(deadline=None, max_examples=40)
@given(
    count=st.integers(1, 60),
    group=st.integers(1, 60),
    workers=st.integers(1, 5),
    limit=st.none() | st.integers(1, 70),
)
def test_tasks_hold_every_pair_once_and_in_order(
    tmp_path_factory: pytest.TempPathFactory, count: int, group: int, workers: int, limit: int | None
) -> None:
    pairs = pairs_made(count)
    file = write_parquet(tmp_path_factory.mktemp("slices") / "pairs.parquet", pairs, group)
    work = tasks_of([file], workers=workers, limit=limit)
    assert read_all(work) == pairs[:limit]
    assert work.count == len(pairs[:limit])
    here = local_work(iter(pairs), count, workers=workers, at_once=1)
    assert read_all(here) == pairs
    assert len({task["task"] for task in work.tasks}) == len(work.tasks)


def test_a_folder_an_address_and_a_glob_of_parquet_are_read(tmp_path: Path) -> None:
    pairs = pairs_made(12)
    write_parquet(tmp_path / "a.parquet", pairs[:6])
    write_parquet(tmp_path / "b.parquet", pairs[6:])
    for name in (str(tmp_path), f"file://{tmp_path}", str(tmp_path / "*.parquet")):
        assert read_all(tasks_of([name])) == pairs
    assert read_all(tasks_of([f"file://{tmp_path}/a.parquet", tmp_path / "b.parquet"])) == pairs


def test_other_files_are_left_to_the_local_reader(tmp_path: Path) -> None:
    (tmp_path / "pairs.jsonl").write_text("{}\n")
    assert find_parquet([str(tmp_path / "pairs.jsonl")]) is None
    write_parquet(tmp_path / "a.parquet", pairs_made(1))
    with pytest.raises(InputError, match="is not Parquet"):
        find_parquet([f"file://{tmp_path}/a.parquet", str(tmp_path / "pairs.jsonl")])


def test_a_broken_row_is_named_by_its_place_in_the_file(tmp_path: Path) -> None:
    rows = [{"instruction": "Hi", "output_1": "x", "output_2": None if n == 7 else f"y{n}"} for n in range(12)]
    file = tmp_path / "pairs.parquet"
    pq.write_table(pa.Table.from_pylist(rows), file, row_group_size=5)
    work = tasks_of([file])
    assert [fault.message for fault in work.bad] == [f"{file}: row 8: field 'output_2' is null, not text"]
    assert len(read_all(work, skip_bad=True)) == work.count == 11
    with pytest.raises(PairError, match="row 8"):
        read_all(work)


def test_what_a_check_found_travels(tmp_path: Path) -> None:
    rows = [{"instruction": "Hi", "output_1": "x", "output_2": None}]
    pq.write_table(pa.Table.from_pylist(rows, schema=_TEXTS), tmp_path / "pairs.parquet")
    groups = find_parquet([str(tmp_path)])
    assert groups is not None
    found = check(groups[0], skip_bad=True)
    again = pickle.loads(pickle.dumps(found))
    assert [(type(bad), str(bad)) for bad in again.bad] == [(PairError, str(found.bad[0]))]


def test_a_pair_that_does_not_fill_a_slot_is_refused_beforehand(tmp_path: Path) -> None:
    pairs = [Pair("Hi", "x", f"y{n}", f"p{n}", metadata={"reference": "" if n == 2 else "7"}) for n in range(4)]
    write_parquet(tmp_path / "pairs.parquet", pairs, group=2)
    groups = find_parquet([str(tmp_path)])
    assert groups is not None
    nobody: Any = None  # so few rows are checked here
    for skip_bad in (False, True):
        with pytest.raises(PairError, match=r"pairs\.parquet: row 3: .*\{reference\}"):
            check_all(nobody, groups, skip_bad=skip_bad, protocols=[Protocol.parse(WITH_REFERENCE)])
    assert sum(found.count for found in check_all(nobody, groups, skip_bad=False, protocols=[PROTOCOL])) == 4
    unfilled = check(groups[1], skip_bad=False, protocols=[Protocol.parse(WITH_REFERENCE)]).unfilled
    assert str(pickle.loads(pickle.dumps(unfilled))) == str(unfilled)


def test_the_command_refuses_an_empty_slot_before_a_folder_is_begun(tmp_path: Path) -> None:
    rows = [{"instruction": "Hi", "output_1": "x", "output_2": "y", "reference": "7"}]
    rows.append({"instruction": "Ho", "output_1": "x", "output_2": "y"})
    (tmp_path / "pairs.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (tmp_path / "mine.txt").write_text(WITH_REFERENCE)
    words = ("--protocol", tmp_path / "mine.txt", "--judge", "http://127.0.0.1:9/v1#m", "--out", tmp_path / "d")
    done = evenhand("ray", "judge", tmp_path / "pairs.jsonl", *words, code=2)
    assert "{reference}" in done.stderr
    assert not (tmp_path / "d").exists()


def test_an_id_that_stands_twice_is_refused_with_both_places(tmp_path: Path) -> None:
    pairs = pairs_made(9)
    write_parquet(tmp_path / "a.parquet", pairs)
    write_parquet(tmp_path / "b.parquet", [Pair("other", "x", "y", id="p7")])
    groups = find_parquet([str(tmp_path)])
    assert groups is not None
    with pytest.raises(PairError, match=r"b\.parquet: row 1: id 'p7' is already at .*a\.parquet, row 8"):
        refuse_twins(groups, [check(group, skip_bad=False) for group in groups])


@pytest.mark.parametrize("name", ["none.parquet", "file:///nowhere/none.parquet"])
def test_a_file_that_is_not_there_is_said(name: str) -> None:
    with pytest.raises(InputError, match=r"none\.parquet"):
        find_parquet([name])


def test_a_file_that_is_no_parquet_is_said(tmp_path: Path) -> None:
    (tmp_path / "pairs.parquet").write_text("not Parquet")
    with pytest.raises(PairError, match="not Parquet, or broken off"):
        find_parquet([str(tmp_path / "pairs.parquet")])


def test_tasks_are_many_for_each_worker_and_never_too_many() -> None:
    assert task_rows(16, 2, 1) == 1
    assert 10**9 / task_rows(10**9, 1000, 64) <= 50_000


# -- the coordinator -------------------------------------------------------------------------------


def test_rates_are_kept_for_all_workers_together() -> None:
    coordinator = Coordinator(Limits(requests_per_minute=600))
    waits = [coordinator.take(10, 0.0) for _ in range(11)]
    assert waits[0] == 0
    assert waits[-1] == pytest.approx(1.0, abs=0.05), "ten a second, whoever asks"
    tokens = Coordinator(Limits(tokens_per_minute=6000))
    assert [tokens.take(100, 0.0) for _ in range(3)] == pytest.approx([0, 1, 2], abs=0.05)
    tokens.settle(0.0, 0.0, 100)
    assert tokens.take(100, 0.0) == pytest.approx(4, abs=0.05), "it was more than thought"


@given(st.lists(st.floats(0.01, 1.0), max_size=30), st.floats(0.5, 5.0))
def test_a_budget_is_never_overdrawn_whoever_is_lost(costs: list[float], budget: float) -> None:
    coordinator = Coordinator(Limits(max_cost=budget))
    granted = [cost for cost in costs if coordinator.take(1, cost) == 0.0]  # never settled: their workers are lost
    assert sum(granted) <= budget + 1e-9


def test_what_is_settled_makes_room() -> None:
    coordinator = Coordinator(Limits(max_cost=1.0))
    assert coordinator.take(1, 0.9) == 0.0
    assert isinstance(coordinator.take(1, 0.9), str)
    coordinator.settle(0.9, 0.05, 0)
    assert coordinator.take(1, 0.9) == 0.0
    assert coordinator.standing().stopped.startswith("the budget of 1 is used up")


def test_a_worker_that_was_lost_between_two_tasks_is_known_by_the_one_in_its_place() -> None:
    coordinator = Coordinator(Limits())
    coordinator.report("host 1", "a", "a-1", ClusterProgress())
    assert coordinator.standing().lost == 0
    for _ in range(2):
        coordinator.report("host 2", "b", "b-1", ClusterProgress(), True)
    assert coordinator.standing().lost == 1


def test_a_task_that_is_begun_anew_counts_its_pairs_once_and_its_cost_twice() -> None:
    coordinator = Coordinator(Limits())
    coordinator.report("one", "0", "0-a", ClusterProgress(5, 1, 10, Usage(100)))
    coordinator.report("two", "1", "1-a", ClusterProgress(2, 0, 4, Usage(40)))
    coordinator.report("two", "0", "0-b", ClusterProgress(3, 0, 6, Usage(60)))
    standing = coordinator.standing()
    assert standing.progress == ClusterProgress(5, 0, 20, Usage(200))
    assert (standing.workers, standing.attempts, standing.lost) == (2, 3, 1)


def test_pairs_that_kill_every_worker_do_not_keep_the_run_from_its_end() -> None:
    coordinator = Coordinator(Limits())
    given = [coordinator.report("w", "7", f"7-{attempt}", ClusterProgress()) for attempt in range(ATTEMPTS + 1)]
    assert given == [False] * ATTEMPTS + [True]
    fault = coordinator.standing().fault
    assert fault is not None
    assert "task 7" in fault.error().message


@pytest.mark.parametrize(
    "error", [InputError("a", hint="b"), EngineError("a", reason="no_key", hint="b")], ids=["input", "engine"]
)
def test_a_fault_travels_and_is_the_same_error(error: InputError | EngineError) -> None:
    again = Fault.of(error).error()
    assert (type(again), again.message, again.hint) == (type(error), "a", "b")


# -- a worker ----------------------------------------------------------------------------------------------------


class Counted(ScriptedEngine):
    """Says A of what has an even hash, and counts what it was asked."""

    def __init__(self, fails: Callable[[str], Exception | None] = lambda text: None) -> None:
        super().__init__(self._print, name="counted", concurrency=4)
        self.prompts: Counter[str] = Counter()
        self._fails = fails

    def _print(self, prompt: Prompt) -> dict[str, float]:
        text = "".join(turn.text for turn in prompt.turns)
        if error := self._fails(text):
            raise error
        self.prompts[text] += 1
        share = 0.2 + 0.6 * (len(text) % 7) / 7
        return {"A": share, "B": 0.9 - share, "tie": 0.1}


class Stage:
    """A folder, a judge, a coordinator, and workers on it."""

    def __init__(
        self,
        folder: Path,
        engine: Engine | None = None,
        limits: Limits | None = None,
        protocol: Protocol = PROTOCOL,
    ) -> None:
        self.engine, self.protocol = engine or Counted(), protocol
        self.setup = Setup(self.engine, protocol)
        self.place = begin_shards(folder, self.setup)
        self.coordinator = Coordinator(limits or Limits())

    async def call(self, name: str, *arguments: Any) -> Any:
        return getattr(self.coordinator, name)(*arguments)

    def worker(self, *, again: bool = False, **recipe: Any) -> Worker:
        made = Recipe(lambda: self.engine, self.protocol, self.place, self.setup.fingerprint, run="r", **recipe)
        finished, begun = keys_in(self.place), begun_in(self.place)
        return Worker(made, self.call, lambda: finished, lambda: begun, lambda: again)

    def judge(self, pairs: Sequence[Pair], *, worker: Worker | None = None, **recipe: Any) -> None:
        work = local_work(pairs, len(pairs), workers=1, at_once=1)
        with closing(worker or self.worker(**recipe)) as judging:
            judging(pa.Table.from_pylist(list(work.tasks)))

    def rows(self) -> dict[str, ShardRow]:
        with open_shards(self.place) as shards:
            found = list(shards.records())
        assert len({row.pair.id for row in found}) == len(found), "each pair once"
        return {row.pair.id: row for row in found}


def local_rows(pairs: Sequence[Pair], path: Path) -> dict[str, dict[str, tuple[Any, ...]]]:
    """What the local runner has in its database: by pair and order, the key, answers, verdicts and failure."""

    async def work(store: Store) -> None:
        async for _ in Run(Setup(Counted(fails_sometimes), PROTOCOL), pairs, store):
            pass

    with Store(path) as store:
        asyncio.run(work(store))
        rows = store._db.execute(
            'SELECT p.name, d."order", h.key,'
            " (SELECT json_group_array(text) FROM answers WHERE conversation = h.id),"
            " (SELECT json_group_object(dimension, json_array(label, p_a, p_b, p_tie, mass)) FROM verdicts"
            " WHERE conversation = h.id AND invalid IS NULL),"
            " (SELECT reason FROM failures WHERE conversation = h.id)"
            " FROM queue d JOIN pairs p ON p.id = d.pair JOIN conversations h ON h.id = d.conversation"
        )
        found: dict[str, dict[str, tuple[Any, ...]]] = {}
        for name, order, key, answers, verdicts, reason in rows:
            read = {d: [label, *rounded(p)] for d, (label, *p) in json.loads(verdicts).items()}
            found.setdefault(name, {})[order] = (key, json.loads(answers), read, reason)
    return found


def rounded(numbers: Sequence[float | None]) -> list[float]:
    """SQLite's JSON writes fifteen digits."""
    return [round(number or 0.0, 12) for number in numbers]


def shard_rows(rows: dict[str, ShardRow]) -> dict[str, dict[str, tuple[Any, ...]]]:
    return {
        name: {
            order: (
                record.key,
                [answer.text for answer in record.answers],
                {
                    v.dimension: [v.label, *rounded([*(v.p[label] for label in ("A", "B", "tie")), v.mass])]
                    for v in record.verdicts.values()
                    if v.invalid is None and v.p
                },
                record.failure.reason if record.failure else None,
            )
            for order, record in row.orders.items()
        }
        for name, row in rows.items()
    }


def fails_sometimes(text: str) -> EngineError | None:
    """At the third of four questions, on one pair."""
    third = "Question 3" in text and text.endswith("Best on format: A, B, or tie?")
    return EngineError("too much", reason="refused") if third else None


def test_a_worker_gives_the_verdicts_and_keys_of_the_local_runner(tmp_path: Path) -> None:
    pairs = [*pairs_made(9), Pair("Equal", "same", "same", id="equal")]
    stage = Stage(tmp_path / "out", Counted(fails_sometimes))
    stage.judge(pairs)
    mine, theirs = shard_rows(stage.rows()), local_rows(pairs, tmp_path / "local.db")
    assert mine == theirs
    assert {order[3] for row in mine.values() for order in row.values()} == {None, "refused"}
    assert len(mine["p3"]["forward"][1]) == 2, "what was answered before the failure is kept"
    assert [stage.rows()[pair.id].pair for pair in pairs] == pairs


def test_pairs_with_the_same_texts_count_their_tokens_once() -> None:
    pairs = [*pairs_made(3), *(Pair(*pair.texts, id=f"again {pair.id}") for pair in pairs_made(2))]
    setup = Setup(Counted(), PROTOCOL)

    async def work(book: Notebook) -> tuple[list[ShardRow], Usage]:
        run = Run(setup, pairs, book)
        return [book.row(judgment) async for judgment in run], run.totals.usage

    with Notebook(setup, {}) as book:
        rows, spent = asyncio.run(work(book))
    usage = {row.pair.id: row.usage for row in rows}
    assert Usage.total([*usage.values()]) == spent
    assert [usage[f"p{n}"] == Usage() or usage[f"again p{n}"] == Usage() for n in range(2)] == [True, True]
    assert all(len(record.answers) == 4 for row in rows for record in row.orders.values())


def test_what_is_there_is_not_judged_again_and_failures_are_with_what_they_had(tmp_path: Path) -> None:
    pairs, engine = pairs_made(8), Counted(fails_sometimes)
    stage = Stage(tmp_path, engine)
    stage.judge(pairs)
    before = engine.prompts.total()
    engine._fails = lambda text: None
    stage.judge(pairs)
    assert max(engine.prompts.values()) == 1, "no prompt is answered twice"
    assert before < engine.prompts.total() == 8 * 2 * 4
    assert all(row.finished for row in stage.rows().values())
    stage.judge(pairs)
    assert engine.prompts.total() == 8 * 2 * 4
    assert stage.coordinator.standing().progress.pairs == 8


def test_a_budget_ends_the_run_and_nothing_that_was_answered_is_asked_again(tmp_path: Path) -> None:
    pairs, engine = pairs_made(6), Counted()
    stage = Stage(tmp_path, engine, Limits(max_requests=21))
    stage.judge(pairs, metered=True)
    assert engine.prompts.total() == 21
    assert stage.coordinator.standing().stopped == "the budget of 21 requests is used up"
    kept = sum(len(record.answers) for row in stage.rows().values() for record in row.orders.values())
    assert kept == 21, "every answer that was paid for is kept"
    stage.coordinator = Coordinator(Limits())
    stage.judge(pairs)
    assert engine.prompts.total() == 6 * 2 * 4
    assert max(engine.prompts.values()) == 1
    assert all(row.finished for row in stage.rows().values())


def test_costs_are_kept_over_all_workers(tmp_path: Path) -> None:
    price = Price(1e-3, 1e-3, 1e-3, "USD", "2026-11-16")
    stage = Stage(tmp_path, limits=Limits(max_cost=50.0))
    stage.judge(pairs_made(30), metered=True, price=price)
    spent = price.of(stage.coordinator.standing().progress.usage)
    assert 40.0 < spent <= 50.0, "what a prompt costs is guessed by its length before it is sent"
    assert "the budget of 50 is used up" in stage.coordinator.standing().stopped


def test_a_second_attempt_skips_what_the_lost_worker_had_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("evenhand.running.cluster.worker.GROUP", 2)
    pairs, engine = pairs_made(8), Counted()
    stage = Stage(tmp_path, engine)
    work = local_work(pairs, 8, workers=1, at_once=100)
    assert len(work.tasks) == 1
    batch = pa.Table.from_pylist(list(work.tasks))
    lost = stage.worker()
    engine._fails = lambda text: MemoryError() if "Question 5" in text else None
    with closing(lost), pytest.raises(MemoryError):  # in the third group of two
        lost(batch)
    assert 4 <= len(stage.rows()) < 8
    engine._fails = lambda text: None
    fresh = Worker(lost.recipe, stage.call, lambda: keys_in(tmp_path / "none"), dict, lambda: True)
    with closing(fresh):
        fresh(batch)
    assert len(stage.rows()) == 8
    first_two = [count for text, count in engine.prompts.items() if "Question 0" in text or "Question 1" in text]
    assert set(first_two) == {1}
    assert stage.coordinator.standing().progress.pairs == 8


def test_what_is_done_is_written_within_the_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("evenhand.running.cluster.worker.WRITE_SECONDS", 0.0)
    stage = Stage(tmp_path)
    stage.judge(pairs_made(3), worker=stage.worker())
    assert len(stage.place.names("part-")) == 3


def test_a_stop_ends_what_is_under_way_and_begins_nothing(tmp_path: Path) -> None:
    stage = Stage(tmp_path)
    stage.coordinator.stop()
    stage.judge(pairs_made(3))
    assert stage.place.names("part-") == []


def test_a_fault_that_no_other_pair_would_escape_is_told(tmp_path: Path) -> None:
    refusal = EngineError("no such key", reason="unauthorized", fatal=True, hint="set KEY")
    stage = Stage(tmp_path, Counted(lambda text: refusal))
    stage.judge(pairs_made(3))
    fault = stage.coordinator.standing().fault
    assert fault is not None
    assert (fault.message, fault.hint, fault.reason) == ("no such key", "set KEY", "unauthorized")
    other = Stage(tmp_path)
    worker = other.worker()
    object.__setattr__(worker.recipe, "fingerprint", "another")
    other.judge(pairs_made(3), worker=worker)
    assert other.coordinator.standing().fault is not None


# -- the cluster -------------------------------------------------------------------------------------------------


def test_an_address_at_which_nobody_answers_is_said_at_once() -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))  # nobody listens, and nobody else gets the port
        closed = free.getsockname()[1]
        began = time.monotonic()
        with pytest.raises(InputError, match=f"no answer from 127.0.0.1:{closed}"):
            connect(f"127.0.0.1:{closed}")
    assert time.monotonic() - began < 20


def test_a_server_that_is_not_ray_is_told_apart() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        import threading

        def refuse() -> None:
            line, _ = server.accept()
            line.recv(100)
            line.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")
            line.close()

        thread = threading.Thread(target=refuse)
        thread.start()
        with pytest.raises(InputError, match="is not Ray"):
            connect(f"127.0.0.1:{server.getsockname()[1]}")
        thread.join()


@pytest.mark.parametrize(("cores", "workers", "threads"), [((2.0,), 3, None), ((2.0, 2.0), 2, 3), ((), None, None)])
def test_workers_that_do_not_fit_are_refused(
    cores: tuple[float, ...], workers: int | None, threads: int | None
) -> None:
    with pytest.raises(InputError, match="do not fit the cluster"):
        share_cores(cores, embedded=True, workers=workers, threads=threads)


# -- the command, as far as it comes without Ray -----------------------------------------------------------------


@pytest.fixture
def pairs_file(tmp_path: Path) -> Path:
    return write_parquet(tmp_path / "pairs.parquet", pairs_made(3))


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([], "Missing option '--out'"),
        (["--out", "d", "--dry-run"], "No such option: --dry-run"),
        (["--out", "d", "--db", "x.db"], "No such option: --db"),
        (["--out", "d", "--protocol", "none"], "none"),
        (["--address", "nonsense", "--out", "{tmp}/d"], "--address nonsense is not an address"),
        (["--address", "ray://head:10001", "--out", "{tmp}/d"], "Ray Client"),
        (["--address", "127.0.0.1:1", "--out", "{tmp}/d"], "no answer from 127.0.0.1:1"),
        (["--out", "/proc/none"], "/proc/none cannot be used"),
        (["--out", "{tmp}/d", "--max-cost", "1"], "no price is known"),
    ],
    ids=lambda value: value if isinstance(value, str) else "_".join(value).replace("/", "_"),
)
def test_what_cannot_be_meant_is_refused(pairs_file: Path, tmp_path: Path, words: list[str], said: str) -> None:
    filled = [word.format(tmp=tmp_path) for word in words]
    done = evenhand("ray", "judge", pairs_file, "--judge", "http://127.0.0.1:9/v1#m", *filled, code=2)
    assert said in " ".join(done.stderr.split())


@pytest.mark.parametrize(
    ("words", "meant"),
    [
        (["--ray", "head:6379", "--out", "d"], "--address head:6379 --out d"),
        (["--ray", "cluster:6379", "--out", "d"], "--address cluster:6379 --out d"),
        (["--ray", "--out=d", "--workers", "2"], "--out=d --workers 2"),
        (["--ray=auto"], "--address auto --out DIR"),
        (["--workers", "2"], "--workers 2 --out DIR"),
    ],
)
def test_the_old_flags_of_judge_name_the_command_of_today(words: list[str], meant: str) -> None:
    done = warm.run("judge", "pairs.parquet", *words)
    assert done.returncode == 2
    assert f"evenhand ray judge pairs.parquet {meant}\n" in done.stderr


def test_without_the_extra_the_command_to_install_it_is_said(
    pairs_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    out = tmp_path / "d"
    done = evenhand("ray", "judge", pairs_file, "--judge", "http://127.0.0.1:9/v1#m", "--out", out, code=2)
    assert "pip install 'evenhand[ray]'" in done.stderr
    assert not out.exists()


def test_a_folder_of_another_judge_or_of_other_orders_is_refused(pairs_file: Path, tmp_path: Path) -> None:
    engine = ScriptedEngine(lambda prompt: "A")
    begin_shards(tmp_path / "d", Setup(engine, PROTOCOL))
    words = ("ray", "judge", pairs_file, "--judge", "http://127.0.0.1:9/v1#m", "--out", tmp_path / "d")
    assert "holds verdicts of another judge" in " ".join(evenhand(*words, code=2).stderr.split())


def test_answers_of_an_empty_folder_are_none(tmp_path: Path) -> None:
    assert begun_in(Place.of(tmp_path)) == {}
