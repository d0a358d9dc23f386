"""Random order without holding the file."""

from __future__ import annotations

import tracemalloc
from collections.abc import Iterator
from itertools import groupby, islice, pairwise

from hypothesis import given, settings
from hypothesis import strategies as st

from evenhand.core.pair import Pair
from evenhand.core.shuffle import Shuffle, place_of


def pairs_of(count: int, instructions: int) -> Iterator[Pair]:
    for i in range(count):
        yield Pair(f"Question {i % instructions}", f"{i}", "y", id=f"p{i}")


@settings(deadline=None)
@given(st.integers(0, 60), st.integers(1, 20), st.integers(0, 5), st.randoms())
def test_the_order_is_that_of_a_plain_sort_wherever_the_rows_stand(
    count: int, instructions: int, seed: int, dice: object
) -> None:
    rows = list(pairs_of(count, instructions))
    expected = sorted(rows, key=lambda pair: place_of(pair, seed))
    dice.shuffle(rows)  # type: ignore[attr-defined]
    shuffled = Shuffle(lambda: rows, seed=seed)
    assert list(shuffled) == expected
    assert (shuffled.pairs, shuffled.instructions) == (count, min(count, instructions))


def test_every_pair_comes_once_however_often_the_file_has_to_be_read() -> None:
    reads = 0

    def read() -> Iterator[Pair]:
        nonlocal reads
        reads += 1
        return pairs_of(4000, 4000)

    found = [pair.id for pair in Shuffle(read)]
    assert sorted(found) == sorted(pair.id for pair in pairs_of(4000, 4000))
    assert reads == 1 + 4  # the order, then 500, 1000, 2000 and the rest


def test_an_instruction_stays_together() -> None:
    clusters = [name for name, _ in groupby(pair.instruction for pair in Shuffle(lambda: pairs_of(3000, 700)))]
    assert len(clusters) == len(set(clusters)) == 700


def test_another_seed_is_another_order_and_new_rows_leave_the_old_ones_as_they_were() -> None:
    few, more = (lambda: pairs_of(300, 300)), (lambda: pairs_of(400, 400))
    first = [pair.id for pair in Shuffle(few, seed=1)]
    assert first != [pair.id for pair in Shuffle(few, seed=2)]
    known = set(first)
    assert [pair.id for pair in Shuffle(more, seed=1) if pair.id in known] == first


def test_the_order_is_random() -> None:
    """Of neighbours in the file, one comes before the other about as often as not."""
    place = {pair.id: number for number, pair in enumerate(Shuffle(lambda: pairs_of(2000, 2000)))}
    before = sum(place[a.id] < place[b.id] for a, b in pairwise(pairs_of(2000, 2000)))
    assert 900 < before < 1100


def test_memory_holds_the_order_and_a_few_pairs() -> None:
    def read() -> Iterator[Pair]:
        return (Pair(f"Question {i}" + "x" * 2000, "x", "y") for i in range(5_000))  # ten million letters

    Shuffle(list)  # numpy is loaded with the first, and is not what is measured
    tracemalloc.start()
    list(islice(Shuffle(read), 100))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 4e6
