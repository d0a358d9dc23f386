"""Rows that do not fit in memory: nothing is lost, no cluster is torn apart, and every number stays what it was."""

import math
import random
import tracemalloc
from pathlib import Path
from typing import Any

import numpy as np
import orjson
import pytest

from evenhand.core.columns import Block, Outcomes, Words
from evenhand.core.errors import PairError
from evenhand.core.pair import short_hash
from evenhand.io import spill_file as spill_module
from evenhand.io.pairs import check_pairs
from evenhand.io.spill_file import HELD, SpillFile
from evenhand.results.plain import plain
from evenhand.results.summary import DimensionCounter


@pytest.fixture
def few_held(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spill_module, "HELD", 100)


def filled(rows: list[tuple[int, float]]) -> SpillFile:
    spill = SpillFile(key="Q", value="d")
    for row in rows:
        spill.append(*row)
    return spill


def some_rows(n: int, keys: int, seed: int = 0) -> list[tuple[int, float]]:
    rng = random.Random(seed)
    return [(short_hash(str(rng.randrange(keys))), rng.random()) for _ in range(n)]


@pytest.mark.usefixtures("few_held")
@pytest.mark.parametrize("n", [0, 1, 99, 100, 101, 1_000, 5_432])
def test_all_rows_come_out_once_and_no_key_is_in_two_parts(n: int) -> None:
    rows = some_rows(n, 300)
    spill = filled(rows)
    parts = [list(zip(part["key"].tolist(), part["value"].tolist(), strict=True)) for part in spill.parts()]
    assert len(spill) == n
    assert sorted(row for part in parts for row in part) == sorted(rows)
    keys = [{key for key, _ in part} for part in parts]
    assert sum(len(each) for each in keys) == len(set().union(*keys))
    if n > 1_000:
        assert len(parts) > 8
        assert max(len(part) for part in parts) < n / 4


@pytest.mark.usefixtures("few_held")
def test_parts_can_be_read_again_and_rows_added_between() -> None:
    rows = some_rows(1_000, 50)
    spill = filled(rows)
    once = [part["value"].tolist() for part in spill.parts()]
    assert [part["value"].tolist() for part in spill.parts()] == once
    spill.extend(key=np.array([1, 2], dtype=np.uint64), value=np.array([0.25, 0.5]))
    assert sorted(spill.all()["value"].tolist()) == sorted([*(value for _, value in rows), 0.25, 0.5])


def counter_of(rows: list[tuple[int, int, int, float]]) -> DimensionCounter:
    """Rows of cluster, difference in length, twice the value of side 1, and what it can expect."""
    counter = DimensionCounter()
    cluster, longer, hard, expected = (np.array(column) for column in zip(*rows, strict=True))
    take(counter, cluster.astype(np.uint64), longer, hard, expected)
    return counter


def take(counter: DimensionCounter, cluster: Any, longer: Any, hard: Any, expected: Any) -> None:
    n = len(cluster)
    p = np.column_stack([expected, 1 - expected, np.zeros(n)])
    nothing = Words((), np.full(n, -1))
    said = np.array([2, 3, 1])[hard]  # 0 lost, 1 tie, 2 won
    found = Outcomes.of(said, p, np.zeros(n), nothing)
    zeros = np.zeros(n, dtype=np.int64)
    words = (nothing, nothing)
    keys = cluster ^ expected.astype(np.float64).view(np.uint64)  # no two rows are the same pair
    block = Block(zeros, keys, cluster, *words, longer, zeros, *words, {"overall": found})
    counter.add(block, found, np.full(n, -1, dtype=np.int8))


def fields_of(counter: DimensionCounter) -> Any:
    return plain(counter.summary())


def verdicts(n: int, instructions: int, seed: int = 0) -> list[tuple[int, int, int, float]]:
    rng = random.Random(seed)
    names = [short_hash(str(rng.randrange(instructions))) for _ in range(n)]
    return [(name, rng.randrange(-300, 300), rng.choice([0, 1, 2, 2]), rng.random()) for name in names]


def numbers(fields: Any) -> list[float]:
    if isinstance(fields, dict):
        return [x for each in fields.values() for x in numbers(each)]
    if isinstance(fields, list):
        return [x for each in fields for x in numbers(each)]
    return [float(fields)] if isinstance(fields, (int, float)) else []


@pytest.mark.parametrize("instructions", [60, 500, 10**6])
def test_statistics_in_parts_are_those_of_all_rows_at_once(
    instructions: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = verdicts(3_000, instructions)
    whole = fields_of(counter_of(rows))
    monkeypatch.setattr(spill_module, "HELD", 100)
    counter = counter_of(rows)
    assert len(list(counter.rows.parts())) == 32
    fields = fields_of(counter)
    assert fields["length_controlled"]["win_rate_1"] is not None
    assert numbers(fields) == pytest.approx(numbers(whole), rel=1e-9)


@pytest.mark.usefixtures("few_held")
def test_in_parts_too_the_order_of_rows_changes_no_digit_and_exchanged_sides_mirror_all() -> None:
    rows = verdicts(2_000, 300)
    fields = fields_of(counter_of(rows))
    assert fields_of(counter_of(random.Random(1).sample(rows, len(rows)))) == fields
    mirrored = fields_of(counter_of([(cluster, -longer, 2 - hard, 1 - p) for cluster, longer, hard, p in rows]))
    for name in ("win_rate_1", "ci"):
        assert numbers(mirrored[name])[::-1] == pytest.approx([1 - x for x in numbers(fields[name])], abs=1e-12)
    assert mirrored["length_controlled"]["length_effect"] == pytest.approx(
        fields["length_controlled"]["length_effect"], abs=1e-9
    )


def test_a_million_rows_need_no_more_memory_than_a_fifth_of_them() -> None:
    def peak(n: int) -> int:
        rng = np.random.default_rng(0)
        counter = DimensionCounter()
        tracemalloc.start()
        for _ in range(n // 10_000):
            take(
                counter,
                rng.integers(0, 2**64, 10_000, dtype=np.uint64),
                rng.integers(-2_000, 2_000, 10_000),
                rng.integers(0, 3, 10_000),
                rng.random(10_000),
            )
        assert counter.summary().clusters == n
        _, most = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        return most

    peak(10_000)  # what is loaded on the way is not the rows'
    assert HELD < 200_000
    assert peak(1_000_000) < 1.5 * peak(200_000)


@pytest.mark.usefixtures("few_held")
def test_an_id_that_stands_twice_is_found_however_far_apart(tmp_path: Path) -> None:
    rows = [{"id": f"n{i}", "instruction": "Hi", "output_1": "x", "output_2": "y"} for i in range(2_000)]
    path = tmp_path / "pairs.jsonl"
    path.write_bytes(b"\n".join(orjson.dumps(row) for row in rows))
    assert check_pairs(path)[0] == 2_000
    path.write_bytes(b"\n".join(orjson.dumps(row) for row in [*rows, rows[3]]))
    with pytest.raises(PairError, match="id 'n3' is already at line 4"):
        check_pairs(path)


def test_nothing_is_written_while_memory_holds_it() -> None:
    spill = filled(some_rows(HELD - 1, 10))
    assert spill._file is None
    assert math.isclose(sum(spill.all()["value"]), sum(next(iter(spill.parts()))["value"]))
