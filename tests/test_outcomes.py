"""The table of outcomes: made step by step or from nothing, it is the same, and says what the verdicts say."""

from __future__ import annotations

import json
import math
import random
import sqlite3
import struct
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from evenhand.core.columns import Block, Outcomes
from evenhand.core.engine import Answer, Token
from evenhand.core.errors import EngineError
from evenhand.core.judge import Setup
from evenhand.core.pair import Pair
from evenhand.core.protocol import Order, Prompt, Protocol
from evenhand.core.verdict import found_on, read_answer
from evenhand.engines.scripted import ScriptedEngine
from evenhand.store import HumanLabel, Store
from evenhand.views.api import Judge

ROWS = "SELECT judge, dimension, pair, said, p_1, p_2, p_tie, mass, reason, uncertainty, split FROM outcomes"
DERIVED = ("outcomes", "packed", "pair_columns", "known", "facets")


def content(path: Path) -> list[object]:
    """All that is derived from verdicts, pairs and labels."""
    with closing(sqlite3.connect(path)) as base:
        queries = (ROWS, *(f"SELECT * FROM {table}" for table in DERIVED[1:]))
        return [sorted(base.execute(query).fetchall(), key=repr) for query in queries]


def packed_rows(path: Path) -> list[tuple[object, ...]]:
    """The values in `packed` as rows of `outcomes`: judge, pair, dimension, and what is said of it."""
    with closing(sqlite3.connect(path)) as base:
        names = {
            judge: found_on(json.loads(text)) for judge, text in base.execute("SELECT id, dimensions FROM judges")
        }
        return [
            (judge, pair, name, *(None if math.isnan(number) else number for number in numbers))
            for judge, pair, packed in base.execute("SELECT * FROM packed")
            for name, numbers in zip(names[judge], struct.iter_unpack("<5d", packed), strict=True)
        ]


def rebuild(path: Path) -> None:
    """Throw away what is derived, and let the next opening make it anew."""
    with closing(sqlite3.connect(path)) as base:
        for table in DERIVED:
            base.execute(f"DELETE FROM {table}")
        base.execute("INSERT INTO dirty SELECT id FROM pairs")
        base.commit()
    Store(path).close()


def answer_with(words: list[str], rng: random.Random) -> Answer:
    word = rng.choice(words)
    tops = tuple((other, -rng.random() * 4) for other in ("A", "B", "tie", "yes", "no", word))
    return Answer(word, (Token(word, tops),))


@settings(max_examples=25, deadline=None)
@example(seed=918, protocol="chained")  # the last failure of the database goes with the first answer after it
@given(seed=st.integers(0, 10**6), protocol=st.sampled_from(["overall", "chained", "weighed", "four"]))
def test_step_by_step_and_from_nothing_are_the_same(
    seed: int, protocol: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Pairs that share texts, orders that come later, failures, unreadable answers, labels, in any order."""
    path, rng = tmp_path_factory.mktemp("outcomes") / "e.db", random.Random(seed)
    setups = [Setup(ScriptedEngine(lambda _: "A", name=name), Protocol.load(protocol)) for name in ("one", "two")]
    pairs = [
        Pair(
            f"Hi {n % 3}", "x", f"y{n % 2}", id=f"p{n}", labels={"overall": "1"} if n % 2 else {}, metadata={"n": n}
        )
        for n in range(5)
    ]
    with Store(path) as store:
        for _ in range(30):
            setup, pair = rng.choice(setups), rng.choice(pairs)
            judge, orders = store.judge(setup), rng.choice([["forward"], ["forward", "swapped"]])
            keys: dict[Order, str] = {order: setup.key(pair, order) for order in orders}  # type: ignore[misc, arg-type]
            (case,) = store.enter(judge, len(setup.protocol.questions), [(pair, keys)])
            for conversation in case.conversations.values():
                _go_on(store, setup, conversation, rng)
            store.release(case)
            if rng.random() < 0.2:
                side = rng.choice(["1", "2", "tie", None])
                store.labels.add([HumanLabel(pair.key, "overall", rng.choice("ab"), side)])  # type: ignore[arg-type]
    before = content(path)
    with closing(sqlite3.connect(path)) as base:
        kept = base.execute("SELECT judge, pair, dimension, said, p_1, p_2, p_tie, mass FROM outcomes").fetchall()
    assert sorted(packed_rows(path), key=repr) == sorted(kept, key=repr)
    rebuild(path)
    assert content(path) == before


def _go_on(store: Store, setup: Setup, conversation: int, rng: random.Random) -> None:
    """Ask a question or several, or fail."""
    for number in range(len(store.answers(conversation)), len(setup.protocol.questions)):
        if rng.random() < 0.3:
            return
        if rng.random() < 0.2:
            store.fail(conversation, number, EngineError("busy", reason="busy"))
            return
        dimensions = setup.protocol.questions[number].dimensions
        yes = dimensions[0] in ("good_1", "good_2")
        words = ["yes", "no"] if yes else [", ".join(["A"] * len(dimensions)), ", ".join(["B"] * len(dimensions))]
        read = read_answer(answer := answer_with([*words, "what?"], rng), dimensions)
        store.record(conversation, number, answer, read)
        if any(verdict.label is None for verdict in read):
            return


def judge_some(path: Path, say: Callable[[Prompt], str], protocol: str, n: int = 7) -> None:
    with Judge(ScriptedEngine(say), protocol, db=path) as judge:
        list(judge.judge(Pair(f"Hi {k % 3}", "x" * k, f"y{k}", id=f"p{k}") for k in range(n)))


@pytest.mark.parametrize("protocol", ["overall", "chained", "weighed", "four", "holistic"])
def test_a_block_is_what_the_judgments_say(protocol: str, tmp_path: Path) -> None:
    rng = random.Random(1)
    words = ["A", "B", "tie", "yes"]
    judge_some(tmp_path / "e.db", lambda prompt: ", ".join([rng.choice(words)] * prompt.verdicts), protocol)
    with Store(tmp_path / "e.db") as store:
        (row,) = store.judges()
        (block,) = store.blocks(row)
        direct = Block.of(list(store.judgments(row)))
    assert set(block.outcomes) == set(direct.outcomes)
    assert (block.cluster == direct.cluster).all()
    assert (block.length_1 == direct.length_1).all()
    for name, found in block.outcomes.items():
        other = direct.outcomes[name]
        for column in ("side", "forward", "swapped", "asked", "masses", "inconsistent"):
            assert (getattr(found, column) == getattr(other, column)).all(), (name, column)
        assert np.array_equal(found.p, other.p, equal_nan=True)
        assert reasons(found) == reasons(other)


def reasons(found: Outcomes) -> list[str | None]:
    return [found.reason.words[code] if code >= 0 else None for code in found.reason.codes]


def test_small_blocks_hold_every_pair_once(tmp_path: Path) -> None:
    judge_some(tmp_path / "e.db", lambda _: "A", "overall")
    with Store(tmp_path / "e.db") as store:
        numbers = [block.number.tolist() for block in store.outcomes.blocks(1, size=3)]
    assert numbers == [[1, 2, 3], [4, 5, 6], [7]]


def test_a_block_is_of_one_moment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A run that finds a verdict where there was none, between the numbers of a block and its words."""
    path = tmp_path / "e.db"
    judge_some(path, lambda prompt: "what?" if "Hi 2" in str(prompt.turns) else "A", "chained")
    with Store(path) as store, closing(sqlite3.connect(path)) as run:
        [row] = store.judges()
        read = store.outcomes._pair_columns

        def read_while_a_verdict_comes(*given: Any) -> Any:
            found = read(*given)
            run.execute("UPDATE outcomes SET said = 85, p_1 = 1, p_2 = 0, p_tie = 0, reason = NULL")
            run.commit()
            return found

        monkeypatch.setattr(store.outcomes, "_pair_columns", read_while_a_verdict_comes)
        [block] = store.blocks(row)
    words = {word for found in block.outcomes.values() for word in reasons(found)}
    assert words == {None, "unreadable", "not_asked"}
