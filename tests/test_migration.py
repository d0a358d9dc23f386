"""Databases of older versions are brought up to date, also where that is killed midway.

Version 7 is the one before outcomes, version 15 the one before their numbers were packed.
"""

from __future__ import annotations

import json
import shutil
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest

from command import evenhand
from evenhand.store import Store
from evenhand.store import outcomes as outcomes_module
from evenhand.store.outcomes import OutcomeTable
from evenhand.views import progress

FIXTURES = Path(__file__).parent / "fixtures"
DERIVED = ("outcomes", "packed", "pair_columns", "known", "facets")


@pytest.fixture
def old(tmp_path: Path) -> Path:
    """A copy of a database that an older version wrote."""
    return Path(shutil.copy(FIXTURES / "version_7.db", tmp_path / "old.db"))


def content(path: Path) -> dict[str, list[tuple[object, ...]]]:
    with closing(sqlite3.connect(path)) as base:
        return {table: sorted(base.execute(f"SELECT * FROM {table}"), key=repr) for table in DERIVED}


def test_an_old_database_shows_what_it_showed_before(old: Path) -> None:
    given = json.loads((FIXTURES / "version_7.json").read_text())
    for judge in json.loads(evenhand("results", "--db", old, "--weigh", "pairs", "--json").stdout)["judges"]:
        before = given[f"{judge['judge']} under {judge['protocol']}"]
        for today, found in judge["dimensions"].items():
            name = "alone" if today == "good_1" else today
            if judge["judge"] == "five answers" or (judge["protocol"], name) == ("four", "combined"):
                continue  # shares of 0 are no longer taken for certain
            expected = before[name].pop("expected")
            if (judge["protocol"], name) == ("weighed", "combined"):
                del before[name]["position_bias"]  # questions about one response are no longer in it
            assert {key: found[key] for key in before[name]} == before[name], (judge["protocol"], name)
            assert found["expected"]["win_rate_1"] == expected


def test_the_outcomes_of_a_database_are_packed_and_stay_as_they_are(tmp_path: Path) -> None:
    path = Path(shutil.copy(FIXTURES / "version_15.db", tmp_path / "old.db"))
    with closing(sqlite3.connect(path)) as base:
        before = base.execute("SELECT * FROM outcomes ORDER BY judge, dimension, pair").fetchall()
    with Store(path, read_only=True) as store:
        found = {
            (judge.id, name, pair, p_1)
            for judge in store.judges()
            for block in store.blocks(judge)
            for name, outcomes in block.outcomes.items()
            for pair, p_1 in zip(
                block.number.tolist(), np.nan_to_num(outcomes.p[:, 0], nan=-1).tolist(), strict=True
            )
        }
    with closing(sqlite3.connect(path)) as base:
        assert base.execute("SELECT * FROM outcomes ORDER BY judge, dimension, pair").fetchall() == before
        kept = base.execute("SELECT judge, dimension, pair, ifnull(p_1, -1) FROM outcomes").fetchall()
    assert found == set(kept)


def test_outcomes_that_are_kept_are_packed_without_a_look_at_verdicts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole, rows = (Path(shutil.copy(FIXTURES / "version_15.db", tmp_path / name)) for name in ("a.db", "b.db"))
    made: list[object] = []
    refresh = OutcomeTable.refresh

    def noted(table: OutcomeTable, jobs: list[tuple[int, int]]) -> None:
        made.extend(jobs)
        refresh(table, jobs)

    monkeypatch.setattr(OutcomeTable, "refresh", noted)
    Store(rows).close()
    assert not made
    monkeypatch.setattr(OutcomeTable, "_pack", lambda *_: set())
    Store(whole).close()
    assert made
    assert content(rows) == content(whole)


@pytest.mark.parametrize(
    "lost",
    [
        "DELETE FROM outcomes WHERE pair = 3 AND dimension = (SELECT min(dimension) FROM outcomes WHERE pair = 3)",
        "DELETE FROM pair_columns WHERE pair = 3",
    ],
)
def test_a_pair_whose_outcomes_are_not_whole_is_made_anew(tmp_path: Path, lost: str) -> None:
    whole, old = (Path(shutil.copy(FIXTURES / "version_15.db", tmp_path / name)) for name in ("a.db", "b.db"))
    with closing(sqlite3.connect(old)) as base:
        assert base.execute(lost).rowcount
        base.commit()
    Store(whole).close()
    Store(old).close()
    assert content(old) == content(whole)


def test_samples_are_known_again_as_counts(old: Path) -> None:
    evenhand("results", "--db", old)
    with closing(sqlite3.connect(old)) as base:
        counted = base.execute(
            "SELECT j.model, sum(v.counted), count(*) FROM verdicts v JOIN conversations h ON h.id = v.conversation"
            " JOIN judges j ON j.id = h.judge GROUP BY j.model"
        ).fetchall()
    assert {model: bool(n) for model, n, _ in counted} == {"dice": False, "five answers": True, "forward": False}
    assert all(n in (0, of) for _, n, of in counted)


def test_what_an_older_version_kept_for_itself_is_gone(old: Path) -> None:
    Store(old).close()
    with closing(sqlite3.connect(old)) as base:
        names = {name for (name,) in base.execute("SELECT name FROM sqlite_master")}
    assert not names & {"findings", "briefs", "stale"}
    assert not [name for name in names if name.startswith("stale_")]


_KILLED = """
import os, sys
from evenhand.store import Store, outcomes
outcomes._AT_ONCE = 1
Store(sys.argv[1], on_progress=lambda done, total: os._exit(9) if done == int(sys.argv[2]) else None)
"""


@pytest.mark.parametrize(("version", "pairs"), [(7, 1), (7, 11), (15, 5)])
def test_a_kill_midway_costs_nothing(tmp_path: Path, version: int, pairs: int) -> None:
    old, whole = (
        Path(shutil.copy(FIXTURES / f"version_{version}.db", tmp_path / name)) for name in ("a.db", "b.db")
    )
    Store(whole).close()
    killed = subprocess.run([sys.executable, "-c", _KILLED, str(old), str(pairs)], timeout=60, check=False)
    assert killed.returncode == 9
    with closing(sqlite3.connect(old)) as base:
        (left,) = base.execute("SELECT count(*) FROM dirty").fetchone()
    assert 0 < left < 12
    Store(old, read_only=True).close()  # who only reads brings it up to date, too
    assert content(old) == content(whole)


def test_a_long_update_is_told_in_the_terminal(old: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(outcomes_module, "_AT_ONCE", 3)
    monkeypatch.setattr(progress, "_UPKEEP_SECONDS", 0.0)
    assert f"bringing {old} up to date: 12 of 12 pairs" in evenhand("results", "--db", old).stderr.replace("\n", "")
    assert "bringing" not in evenhand("results", "--db", old).stderr, "once is enough"


def test_progress_is_told(old: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(outcomes_module, "_AT_ONCE", 5)
    steps: list[tuple[int, int]] = []
    Store(old, on_progress=lambda done, total: steps.append((done, total))).close()
    assert steps == [(5, 12), (10, 12), (12, 12)]
