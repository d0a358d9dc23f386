"""Bytes that were changed, files that break off: a sentence, an exit code, and never a traceback."""

from __future__ import annotations

import random
import sqlite3
import struct
from contextlib import closing
from pathlib import Path

import pytest

from command import evenhand_any
from evenhand.core.errors import StoreError
from evenhand.core.pair import Pair
from evenhand.engines.scripted import ScriptedEngine
from evenhand.store import Store
from evenhand.store.damage import damage_in
from evenhand.views.api import Judge
from evenhand.views.jury import Jury
from web_server import WebServer

COMMANDS = (
    "results", "results --by topic", "results --human", "rank", "card", "gate", "labels", "suggest", "judges",
    "report --out {}/r.html", "export verdicts --out {}/v.jsonl", "export judgments --out {}/j.jsonl", "reread",
)  # fmt: skip
PAGES = ("/", "/pairs", "/pairs?q=yes", "/pairs/all", "/pair/1", "/people", "/card", "/pair/3/text/output_1")
DAMAGES = 24


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """A real database of some pages, in one file."""
    db = tmp_path_factory.mktemp("whole") / "a.db"
    pairs = [
        Pair(
            f"Question {n}?",
            "yes " * n,
            "no " * (40 - n),
            str(n),
            "a",
            "b",
            {"overall": "1"},
            {"topic": str(n % 3)},
        )
        for n in range(40)
    ]
    for name in ("one", "two"):
        with Judge(
            ScriptedEngine(lambda _: {"A": 0.6, "B": 0.3, "tie": 0.1}, name=name), "overall", db=db
        ) as judge:
            list(judge.judge(pairs))
    with closing(sqlite3.connect(db)) as base:
        base.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        base.execute("PRAGMA journal_mode = DELETE")
    return db.read_bytes()


def damaged(whole: bytes, seed: int) -> bytes:
    """The file with some of its bytes changed, a stretch of it overwritten, or its end missing."""
    rng = random.Random(seed)
    data, kind = bytearray(whole), seed % 4
    if kind == 0:
        return bytes(data[: rng.randrange(100, len(data))])
    if kind == 1:
        start = rng.randrange(100, len(data) - 600)
        data[start : start + 512] = rng.randbytes(512)
        return bytes(data)
    for _ in range(1 if kind == 2 else 60):
        data[rng.randrange(100, len(data))] ^= 1 << rng.randrange(8)
    return bytes(data)


@pytest.mark.parametrize("seed", [*range(DAMAGES), 46])
def test_no_command_ends_in_a_traceback_on_a_damaged_file(whole: bytes, seed: int, tmp_path: Path) -> None:
    db = tmp_path / "a.db"
    for command in COMMANDS:
        db.write_bytes(damaged(whole, seed))
        for log in tmp_path.glob("a.db-*"):
            log.unlink()
        done = evenhand_any(*command.format(tmp_path).split(), "--db", db)
        assert "Traceback" not in done.stderr + done.stdout, (command, done.stderr)
        assert done.returncode in (0, 1, 2, 3, 4)
        assert done.stdout.strip() or done.stderr.strip()


NAN = "000000000000f87f"
# Of one outcome: said, p_1, p_2, p_tie, mass.
IMPOSSIBLE = struct.pack("<5d", 69, 5, -4, 0, 1).hex()
UNSAID = struct.pack("<5d", 1e18, 0.5, 0.5, 0, 1).hex()


def labelled(design: str, chance: str, created: str = "1") -> str:
    return (
        "INSERT INTO labels (pair, dimension, annotator, side, note, source, created, design, probability)"
        f" SELECT key, 'overall', 'ann', '1', '', '', {created}, '{design}', {chance} FROM pairs WHERE id < 20"
    )


def calibrated(model: str) -> str:
    return f"INSERT INTO calibrations SELECT id, 'overall', '{model}', 1 FROM judges"


# Whole pages, with something in them that evenhand does not write: the statement, and a command that comes upon it.
CHANGED = {
    "a word for a number": ("UPDATE pair_columns SET length_1 = 'long'", "report --out {}/r.html"),
    "no blob": ("UPDATE packed SET numbers = 'x'", "rank"),
    "a blob of another length": ("UPDATE packed SET numbers = x'00'", "card"),
    "a side that is none": ("UPDATE known SET side = 'neither'", "results --by topic"),
    "numbers without their reasons": (f"UPDATE packed SET numbers = x'{NAN * 5}'", "results --json"),
    "JSON of another kind": ("UPDATE judges SET identity = '0'", "export verdicts --out {}/v.jsonl"),
    "labels of another kind": ("UPDATE pairs SET labels = '[1]'", "export judgments --out {}/v.jsonl"),
    "a column that is gone": ("ALTER TABLE answers DROP COLUMN reused", "results --by topic"),
    "a table that is gone": ("DROP TABLE known", "results"),
    "a gate that cannot count": ("UPDATE pair_columns SET length_2 = 'long'", "gate"),
    "no time at all": ("UPDATE judges SET created = 9e999", "judges"),
    "probabilities that are none": (f"UPDATE packed SET numbers = x'{IMPOSSIBLE}'", "results"),
    "what was said in no code": (f"UPDATE packed SET numbers = x'{UNSAID}' WHERE pair = 3", "rank"),
    "a pair whose numbers are gone": ("DELETE FROM packed WHERE pair = 3", "results"),
    "a pair whose outcomes are gone": ("DELETE FROM outcomes WHERE pair = 3", "card"),
    "a verdict that is more than certain": (
        "UPDATE verdicts SET p_a = 5, p_b = -4",
        "export verdicts --out {}/v.jsonl",
    ),
    "an outcome that is more than certain": (
        "UPDATE outcomes SET p_1 = 5, p_2 = -4; UPDATE verdicts SET p_a = 5, p_b = -4",
        "export judgments --out {}/v.jsonl",
    ),
    "a pair without its columns": ("DELETE FROM pair_columns WHERE pair = 3", "results"),
    "two numbers for one": ("UPDATE pair_columns SET length_1 = '3,4' WHERE pair = 3", "results"),
    "a likelihood without end": (
        """UPDATE answers SET tokens = '[["A",[["A",1e999]]]]'""",
        "reread",
    ),
    "a design that is none": (labelled("chance", "NULL"), "results --human"),
    "a chance that is none": (labelled("random", "0.0"), "results --human"),
    "a label of the year 3170843": (
        labelled("random", "0.5", "1e14"),
        "labels export {}/v.jsonl",
    ),
    "a calibration that says nothing": (calibrated("{}"), "results --calibrated"),
    "a calibration without end": (
        calibrated('{"slope": 1e300, "tie": 1, "length": 1, "n": 9, "clusters": 9, "labels": []}'),
        "jury one,two",
    ),
    "a batch that counts in words": (
        "INSERT INTO batches (judge, service, token, requests, state, lessons, created)"
        " VALUES (1, 'openai', 't', 'many', 'open', '{}', 1)",
        "batches",
    ),
    "a batch of nobody": (
        "INSERT INTO batches (judge, service, token, requests, state, lessons, created)"
        " VALUES (1, 'openai', 't', 1, 'open', '{}', 1)",
        "batches cancel",
    ),
}


def changed(whole: bytes, db: Path, statement: str) -> Path:
    db.write_bytes(whole)
    with closing(sqlite3.connect(db, isolation_level=None)) as base:
        base.executescript(statement)
    return db


@pytest.mark.parametrize(("statement", "command"), CHANGED.values(), ids=CHANGED.keys())
def test_what_evenhand_does_not_write_is_no_traceback(
    whole: bytes, tmp_path: Path, statement: str, command: str
) -> None:
    db = changed(whole, tmp_path / "a.db", statement)
    done = evenhand_any(*command.format(tmp_path).split(), "--db", db)
    said = done.stderr + done.stdout
    assert "Traceback" not in said
    assert done.returncode == (4 if command == "gate" else 1)
    assert "is damaged" in said or "no such table" in said or "no service" in said


@pytest.mark.parametrize("statement", sorted({statement for statement, _ in list(CHANGED.values())[:-1]}))
def test_damage_is_found_wherever_it_is(whole: bytes, tmp_path: Path, statement: str) -> None:
    with closing(sqlite3.connect(changed(whole, tmp_path / "a.db", statement))) as base:
        assert damage_in(base)


@pytest.fixture(scope="module")
def pooled(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """A database with two judges and the jury of them."""
    db = tmp_path_factory.mktemp("pooled") / "a.db"
    engines = [ScriptedEngine(lambda _: {"A": 0.6, "B": 0.3, "tie": 0.1}, name=name) for name in ("one", "two")]
    with Jury(engines, "overall", db=db) as jury:
        list(jury.judge([Pair(f"Question {n}?", "yes", "no", str(n)) for n in range(6)]))
    with closing(sqlite3.connect(db)) as base:
        base.execute("PRAGMA journal_mode = DELETE")
        assert damage_in(base) == ""
    return db.read_bytes()


@pytest.mark.parametrize("command", ["reasons", "report --out {}/r.html", "export judgments --out {}/j.jsonl"])
def test_a_verdict_on_what_its_judge_was_not_asked_about_is_damage(
    pooled: bytes, tmp_path: Path, command: str
) -> None:
    db = changed(pooled, tmp_path / "a.db", "UPDATE verdicts SET dimension = 'overalm' WHERE conversation = 5")
    done = evenhand_any(*command.format(tmp_path).split(), "--db", db)
    assert done.returncode == 1
    assert "'overalm', which its judge was not asked about" in " ".join(done.stderr.split())


@pytest.mark.parametrize("word", ["[", "x", "-1", "{}", '{"spoke": [2], "of": 2}', '{"level": 1, "judge": "a"}'])
def test_a_jurys_word_that_cannot_be_read_is_damage(pooled: bytes, tmp_path: Path, word: str) -> None:
    of_jury = "SELECT d.conversation FROM queue d JOIN judges j ON j.id = d.judge WHERE j.model LIKE 'jury%'"
    statement = f"UPDATE answers SET text = '{word}' WHERE conversation IN ({of_jury})"
    db = changed(pooled, tmp_path / "a.db", statement)
    done = evenhand_any("results", "--judge", "jury of one, two", "--db", db)
    assert "does not say who decided it" in " ".join(done.stderr.split())
    with WebServer(db, log_level="error") as server:
        answers = [server.owner().get(path) for path in PAGES]
    assert all(answer.status in (200, 404) or "is damaged" in answer.text for answer in answers)


def test_a_page_says_that_its_database_is_damaged(
    whole: bytes, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    for place, (statement, _) in enumerate(CHANGED.values()):
        with WebServer(changed(whole, tmp_path / f"{place}.db", statement), log_level="error") as server:
            owner = server.owner()
            answers = [owner.get(path) for path in PAGES]
        assert all(answer.status in (200, 404, 500) for answer in answers)
        assert all(
            "is damaged" in answer.text or "no such" in answer.text for answer in answers if answer.status == 500
        )
    assert "Traceback" not in capfd.readouterr().err


def test_no_page_ends_in_a_traceback_on_a_damaged_file(
    whole: bytes, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """It is shown as far as it can be read, or said to be damaged in a page like any other."""
    statuses = set()
    for seed in range(200, 232, 4):  # whose end is missing, and others
        db = tmp_path / f"{seed}.db"
        db.write_bytes(damaged(whole, seed + seed // 4 % 4))
        try:
            with Store(db):
                pass
        except StoreError:  # refused before anything is served
            continue
        with WebServer(db, log_level="error") as server:
            owner = server.owner()
            answers = [owner.get(path) for path in PAGES]
        assert all(answer.status in (200, 404, 500) for answer in answers)
        assert all("<h1" in answer.text or answer.status == 200 for answer in answers)
        statuses |= {answer.status for answer in answers}
    assert 200 in statuses
    assert "Traceback" not in capfd.readouterr().err


def test_a_whole_file_has_no_damage_and_text_that_is_no_json_is_found(whole: bytes, tmp_path: Path) -> None:
    db = tmp_path / "a.db"
    db.write_bytes(whole)
    with closing(sqlite3.connect(db)) as base:
        assert damage_in(base) == ""
        base.execute("UPDATE pairs SET labels = '{' WHERE id = 7")
        base.commit()
        assert "labels of the table pairs" in damage_in(base)
        base.execute("UPDATE pairs SET labels = '{}', instruction = 'Other?' WHERE id = 7")
        assert "the texts of pair 7" in damage_in(base)
        base.rollback()
    done = evenhand_any("export", "judgments", "--db", db, "--out", tmp_path / "rows.jsonl")
    assert done.returncode == 1
    assert "is damaged" in done.stderr


def test_a_fault_of_the_program_is_not_called_damage(whole: bytes, tmp_path: Path) -> None:
    db = tmp_path / "a.db"
    db.write_bytes(whole)
    with pytest.raises(ZeroDivisionError), Store(db):
        1 / 0  # noqa: B018
