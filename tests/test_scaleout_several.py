"""Several judges in folders of shards, one for each, pooled as in a database, to the last digit."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from evenhand import Escalation, Jury, Pair, ScriptedEngine, Store
from evenhand.core.errors import EngineError, InputError
from evenhand.core.jury import PoolRule
from evenhand.core.protocol import Prompt
from evenhand.results.escalation import escalation_result
from evenhand.results.made import made_notes
from evenhand.results.run import judge_summary
from evenhand.running.cluster.pooling import FOR_PEOPLE, decided_by, pool_folders
from evenhand.running.escalation import EscalationPool
from evenhand.running.jury import JuryMembers, JuryPool, member_of
from evenhand.store import JudgeRow
from evenhand.store.shards import Place, open_shards
from evenhand.store.shards.copying import copy_store
from evenhand.store.shards.members import MEMBERS, MemberFolder, refuse_asked, said_together

PAIRS = [
    Pair(f"Question {n}?", f"one {n}", f"two {n}", id=f"p{n}", labels={"overall": "1" if n % 3 else "2"})
    for n in range(60)
]


def engine(name: str, sharp: float, broken: Sequence[int] = ()) -> ScriptedEngine:
    """A judge that knows the label on most pairs, is as sharp as is said, and fails on some."""

    def answer(prompt: Prompt) -> dict[str, float] | str:
        text = "".join(span.text for turn in prompt.turns for span in turn.spans)
        n = int(re.findall(r"Question (\d+)\?", text)[-1])
        if n in broken:
            raise EngineError("no answer", reason="timeout")
        right = (n % 3 > 0) != (n % 7 == len(name) % 7)
        first = text.rindex(f"one {n}") < text.rindex(f"two {n}")
        if prompt.verdicts > 1:
            return ",".join(["A" if right == first else "B", "tie", "A", "B" if n % 2 else "A"])
        a = sharp - n / 1000 if right == first else 1 - sharp + n / 1000
        return {"A": a * 0.9, "B": (1 - a) * 0.9, "tie": 0.1}

    return ScriptedEngine(answer, name=name)


def folders(db: Path, out: Path, made: str) -> tuple[Place, list[MemberFolder], JudgeRow, JuryMembers]:
    """The judges of a database as folders, one for each, and the judge that the database has made of them."""
    folder = Place.of(out)
    with Store(db) as store:
        rows = store.judges()
        asked = [row for row in rows if not row.model.startswith(made)]
        places = [folder.below(f"{MEMBERS}/{row.model}") for row in asked]
        for row, place in zip(asked, places, strict=True):
            copy_store(store, row, place, rows=17)
        members = JuryMembers(tuple(map(member_of, asked)))
        return folder, [MemberFolder(place) for place in places], rows[-1], members


def outcomes(records: Any, row: JudgeRow) -> dict[str, Any]:
    return {found.pair.id: found.outcomes for found in records.judgments(row)}


@pytest.fixture
def empty() -> Iterator[Store]:
    with Store(":memory:") as store:
        yield store


@pytest.mark.parametrize(
    ("rule", "protocol"),
    [
        (PoolRule(3), "overall"),
        (PoolRule(3, "majority", (2.0, 1.0, 1.0)), "four"),
        (PoolRule(3, quorum=2), "overall"),
    ],
    ids=["mean", "vote", "quorum"],
)
def test_a_jury_of_folders_is_that_of_a_database(
    tmp_path: Path, empty: Store, rule: PoolRule, protocol: str
) -> None:
    db = tmp_path / "x.db"
    three = [engine("a", 0.6), engine("bb", 0.8, broken=range(5, 60, 11)), engine("ccc", 0.97)]
    how: dict[str, Any] = {"pool": rule.pool, "weights": rule.weights, "quorum": rule.quorum}
    with Jury(three, protocol, db=db, **how) as jury:
        list(jury.judge(PAIRS))
    folder, members, row, seats = folders(db, tmp_path / "out", "jury")
    pool = JuryPool(empty, seats, rule)
    assert pool.setup.fingerprint == row.fingerprint
    assert pool_folders(folder, pool, members, orders="both", seed=0) == 60
    with Store(db) as store, open_shards(folder) as shards:
        mine = shards.judges()[0]
        assert outcomes(shards, mine) == outcomes(store, row)
        assert judge_summary(shards, mine).summary == judge_summary(store, row).summary
        assert made_notes(shards, mine) == made_notes(store, row)
        assert [used.pairs for used in shards.members_used(mine)] == [60, 60, 60]


def test_pooling_again_replaces_what_was_made_and_a_judge_that_was_asked_is_left_alone(
    tmp_path: Path, empty: Store
) -> None:
    db = tmp_path / "x.db"
    with Jury([engine("a", 0.6), engine("bb", 0.9)], "overall", db=db) as jury:
        list(jury.judge(PAIRS))
    folder, members, _, seats = folders(db, tmp_path / "out", "jury")

    def pooled(rule: PoolRule) -> dict[str, Any]:
        pool_folders(folder, JuryPool(empty, seats, rule), members, orders="both", seed=0)
        with open_shards(folder) as shards:
            assert shards.rows == 60
            return outcomes(shards, shards.judges()[0])

    mean = pooled(PoolRule(2))
    assert pooled(PoolRule(2, "majority")) != mean
    assert pooled(PoolRule(2)) == mean

    class Killed(Exception):
        pass

    def kill(*_: object) -> None:
        raise Killed

    with pytest.raises(Killed):
        pool_folders(folder, JuryPool(empty, seats, PoolRule(2)), members, orders="both", seed=0, watch=kill)
    with open_shards(folder) as shards:
        assert outcomes(shards, shards.judges()[0]) == mean  # what was there stays until all of it is there anew
    with pytest.raises(InputError, match="verdicts of one judge"):
        refuse_asked(folder.below(f"{MEMBERS}/a"))


def test_pairs_that_a_judge_was_not_given_come_once_and_say_so(tmp_path: Path) -> None:
    db = tmp_path / "x.db"
    with Jury([engine("a", 0.6), engine("bb", 0.9)], "overall", db=db) as jury:
        list(jury.judges[0].judge(PAIRS[:40]))
        list(jury.judges[1].judge(PAIRS[20:]))
    _, members, _, _ = folders(db, tmp_path / "out", "jury")
    together = {
        pair.id: [said is not None for said in heard] for rows in said_together(members) for pair, heard in rows
    }
    expected = {f"p{n}": [n < 40, n >= 20] for n in range(60)}
    assert together == expected
    assert sum(len(rows) for rows in said_together([*members, MemberFolder(Place.of(tmp_path / "none"))])) == 60


def test_levels_of_folders_are_those_of_a_database(tmp_path: Path, empty: Store) -> None:
    db = tmp_path / "x.db"
    unlabelled = [
        Pair(pair.instruction, pair.output_1 + ".", pair.output_2, id=f"u{n}") for n, pair in enumerate(PAIRS)
    ]
    with Escalation([engine("a", 0.95), engine("bb", 0.9)], "overall", agree=0.55, db=db) as levels:
        plan = levels.prepare(PAIRS)
        list(levels.judge([*PAIRS, *unlabelled]))
        expected = levels.result()
    folder, members, row, seats = folders(db, tmp_path / "out", "escalation")
    pool = EscalationPool(empty, seats, plan.cascade, "overall")
    assert pool.setup.fingerprint == row.fingerprint
    pool_folders(folder, pool, members, orders="both", seed=0)
    with Store(db) as store, open_shards(folder) as shards:
        mine = shards.judges()[0]
        assert outcomes(shards, mine) == outcomes(store, row)
        found = escalation_result(shards, mine)
        assert [(level.name, level.asked, level.decided) for level in found.levels] == [
            (level.name, level.asked, level.decided) for level in expected.levels
        ]
        assert found.guarantee == expected.guarantee
        assert made_notes(shards, mine) == made_notes(store, row)
    decided = decided_by(members[0], 0, pool)
    assert len(decided) == found.levels[0].decided
    lines = (tmp_path / "out" / FOR_PEOPLE).read_text().splitlines() if found.waiting else []
    waiting = {name for name, said in outcomes(shards, mine).items() if said["overall"].invalid == "for_people"}
    assert {json.loads(line)["id"] for line in lines} == waiting
