"""A judge that never answered leaves nothing behind; others are listed, and removed with all that is their own."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from command import evenhand
from evenhand.core.engine import Answer
from evenhand.core.errors import EngineError
from evenhand.core.pair import Pair
from evenhand.core.protocol import Prompt
from evenhand.engines.scripted import ScriptedEngine
from evenhand.running.pace import Limits
from evenhand.store import Store
from evenhand.views.api import Judge

PAIRS = [Pair(f"Question {n}?", "yes", "no", id=str(n)) for n in range(3)]
TABLES = ("judges", "conversations", "queue", "answers", "verdicts", "failures", "runs", "outcomes", "claims")


def counts(db: Path, *tables: str) -> dict[str, int]:
    with closing(sqlite3.connect(db)) as base:
        return {table: base.execute(f"SELECT count(*) FROM {table}").fetchone()[0] for table in tables or TABLES}


def broken(*, fatal: bool) -> ScriptedEngine:
    def script(_: Prompt) -> Answer:
        raise EngineError("nobody is there", reason="refused", fatal=fatal)

    return ScriptedEngine(script, name="broken")


def judge_with(engine: ScriptedEngine, db: Path, pairs: list[Pair] = PAIRS) -> None:
    with Judge(engine, "overall", db=db, limits=Limits(retries=0)) as judge:
        list(judge.judge(pairs))


@pytest.mark.parametrize("fatal", [True, False])
def test_a_judge_that_never_answered_leaves_nothing(db: Path, fatal: bool) -> None:
    if fatal:
        with pytest.raises(EngineError, match="nobody is there"):
            judge_with(broken(fatal=True), db)
    else:
        judge_with(broken(fatal=False), db)
    assert set(counts(db, *TABLES, "pairs").values()) == {0}


@pytest.mark.parametrize("spec", ["http://127.0.0.1:9/v1#m", "openai:gpt-4o-mini"])
def test_neither_do_a_refused_connection_and_a_missing_key(
    db: Path, tmp_path: Path, spec: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    (tmp_path / "p.jsonl").write_text('{"instruction": "q", "output_1": "x", "output_2": "y"}\n')
    evenhand("judge", tmp_path / "p.jsonl", "--judge", spec, "--db", db, code=1)
    assert set(counts(db, *TABLES, "pairs", "finished").values()) == {0}
    assert "no judges here" in evenhand("judges", "--db", db).stdout


def test_what_others_have_done_stays(db: Path) -> None:
    judge_with(ScriptedEngine(lambda _: "A"), db)
    before = counts(db, *TABLES, "pairs")
    judge_with(broken(fatal=False), db, [*PAIRS, Pair("New?", "x", "y")])
    assert counts(db, *TABLES, "pairs") == before


def test_pairs_that_were_there_before_stay_without_a_judge(db: Path) -> None:
    with Store(db) as store:
        store.add_pairs(PAIRS[:2])
    judge_with(broken(fatal=False), db)
    assert counts(db, "pairs", "judges") == {"pairs": 2, "judges": 0}


def test_one_answer_is_enough_to_be_kept_with_the_failures(db: Path) -> None:
    def script(prompt: Prompt) -> str:
        if "Question 1" in prompt.turns[-1].text:
            raise EngineError("too busy", reason="busy")
        return "A"

    judge_with(ScriptedEngine(script, name="shaky"), db)
    [entry] = json.loads(evenhand("judges", "--db", db, "--json").stdout)["judges"]
    assert (entry["model"], entry["protocol"], entry["pairs"], entry["invalid"]) == ("shaky", "overall", 3, 1)
    assert entry["first"] <= entry["last"]


def test_a_protocols_name_steers_no_terminal(db: Path) -> None:
    judge_with(ScriptedEngine(lambda _: "A", name="one"), db)
    with Store(db) as store:
        store._db.execute("UPDATE judges SET protocol = ?", ("p\x1b[2J",))
    asked = evenhand("judges", "remove", "one", "--db", db, stdin="y\n")
    assert "\x1b" not in asked.stdout + asked.stderr
    assert "Remove one under p␛[2J" in asked.stderr


def test_a_judge_is_removed_everywhere_and_no_other_is_touched(db: Path) -> None:
    judge_with(ScriptedEngine(lambda _: "A", name="one"), db)
    alone = counts(db)
    judge_with(ScriptedEngine(lambda _: "B", name="two"), db)
    assert counts(db, "outcomes")["outcomes"] == 2 * len(PAIRS)
    refused = evenhand("judges", "remove", "two", "--db", db, code=1, stdin="n\n")
    assert "Remove two under overall, 3 pairs?" in refused.stderr
    assert counts(db, "judges")["judges"] == 2
    evenhand("judges", "remove", "two", "--db", db, "--yes")
    with Store(db) as store:
        assert [row.model for row in store.judges()] == ["one"]
    assert counts(db) == alone
    with closing(sqlite3.connect(db)) as base:
        assert base.execute("SELECT sum(split) FROM outcomes").fetchone() == (0,)
        assert base.execute("PRAGMA foreign_key_check").fetchall() == []


def test_a_name_that_is_none_or_several_is_explained(db: Path) -> None:
    for protocol in ("overall", "chained"):
        with Judge(ScriptedEngine(lambda _: "A", name="one"), protocol, db=db) as judge:
            list(judge.judge(PAIRS))
    assert "judges there: one" in evenhand("judges", "remove", "uno", "--db", db, "--yes", code=2).stderr
    several = evenhand("judges", "remove", "one", "--db", db, "--yes", code=2).stderr
    assert "2 judges are called 'one'" in several
    evenhand("judges", "remove", "one", "--protocol", "chained", "--db", db, "--yes")
    assert counts(db, "judges")["judges"] == 1
