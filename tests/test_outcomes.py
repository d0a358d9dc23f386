"""The table of outcomes: made step by step or from nothing, it is the same, and says what the verdicts say."""

from __future__ import annotations

import random
import sqlite3
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
from evenhand.core.verdict import read_answer
from evenhand.engines.scripted import ScriptedEngine
from evenhand.store import HumanLabel, Store
from evenhand.views.api import Judge

ROWS = "SELECT judge, dimension, pair, said, p_1, p_2, p_tie, mass, reason, uncertainty, split FROM outcomes"
OTHERS = ("SELECT * FROM pair_columns", "SELECT * FROM known", "SELECT * FROM facets")


def content(path: Path) -> list[object]:
    """All that is derived from verdicts, pairs and labels."""
    with closing(sqlite3.connect(path)) as base:
        return [sorted(base.execute(query).fetchall(), key=repr) for query in (ROWS, *OTHERS)]


def rebuild(path: Path) -> None:
    """Throw away what is derived, and let the next opening make it anew."""
    with closing(sqlite3.connect(path)) as base:
        for table in ("outcomes", "pair_columns", "known", "facets"):
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
    """A run that finishes pairs while their columns are read: every dimension has the same pairs."""
    path, pairs = tmp_path / "e.db", [Pair(f"Task {i}", "x", "y", id=f"p{i}") for i in range(6)]
    engine = ScriptedEngine(lambda _: "A", name="one")
    with Judge(engine, "chained", db=path) as judge:
        list(judge.judge(pairs))
    with Store(path) as store, closing(sqlite3.connect(path)) as run:
        [row] = store.judges()
        run.execute("CREATE TABLE later AS SELECT * FROM outcomes WHERE pair = 2")
        run.execute("DELETE FROM outcomes WHERE pair = 2")
        run.commit()
        columns = "judge, dimension, pair, said, p_1, p_2, p_tie, mass, reason, uncertainty"
        read = store.outcomes._outcomes

        def read_while_a_pair_ends(*given: Any) -> Any:
            found = read(*given)
            run.execute(f"INSERT OR IGNORE INTO outcomes ({columns}) SELECT {columns} FROM later")
            run.commit()
            return found

        monkeypatch.setattr(store.outcomes, "_outcomes", read_while_a_pair_ends)
        [block] = store.blocks(row)
    assert {name: len(found) for name, found in block.outcomes.items()} == dict.fromkeys(block.outcomes, 5)
    assert len(block) == 5
