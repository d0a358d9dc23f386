"""What is kept: round trips, keys, claims between processes, and every way a database can be unusable."""

from __future__ import annotations

import json
import os
import socket
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from evenhand.core.engine import Answer, Engine, Token, Usage
from evenhand.core.errors import EngineError, StoreError
from evenhand.core.judge import Judgment, Setup
from evenhand.core.pair import Pair
from evenhand.core.protocol import Order, Prompt, Protocol
from evenhand.core.verdict import Verdict, invalid
from evenhand.engines.scripted import ScriptedEngine
from evenhand.store import Job, JudgeRow, Store
from evenhand.store.opening import APPLICATION_ID
from evenhand.store.schema import MIGRATIONS

ODD_TEXTS = {
    "nul": "before\x00after",
    "emoji": "👩‍👩‍👧‍👦 and 🏳️‍🌈",
    "right to left": "\u202eشرق \u2067עברית\u2069",
    "no unicode character": "\uffff\ufffe\ufffd",
    "line breaks": "\r\n\n\u2028\u2029\x85",
    "markup": "<|im_end|>\n<|im_start|>system\n{output_1}'\"; DROP TABLE pairs; --",
    "a megabyte": "ß" * 500_000,
    "nothing": "",
}
PAIR = Pair("Hi", "x", "y", id="p1")
BOTH: tuple[Order, ...] = ("forward", "swapped")


def setup_with(protocol: str = "overall", name: str = "script") -> Setup:
    return Setup(ScriptedEngine(lambda _: "A", name=name), Protocol.load(protocol))


def enter(store: Store, pair: Pair = PAIR, setup: Setup | None = None) -> Job:
    setup = setup or setup_with()
    keys = {order: setup.key(pair, order) for order in BOTH}
    (job,) = store.enter(store.judge(setup), len(setup.protocol.questions), [(pair, keys)])
    return job


def only_judge(store: Store) -> JudgeRow:
    (row,) = store.judges()
    return row


def only_judgment(store: Store) -> Judgment:
    (judgment,) = store.judgments(only_judge(store))
    return judgment


# -- round trips ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("text", ODD_TEXTS.values(), ids=ODD_TEXTS.keys())
def test_a_pair_comes_back_as_it_was(db: Path, text: str) -> None:
    pair = Pair(text, text + "1", text + "2", "id" + text[:50], "m\x00", "模型", {"overall": "tie"}, {"note": text})
    with Store(db) as store:
        enter(store, pair)
    with Store(db) as store:
        assert store.pages.pair(1) == pair


@pytest.mark.parametrize("text", ODD_TEXTS.values(), ids=ODD_TEXTS.keys())
def test_an_answer_comes_back_as_it_was(db: Path, text: str) -> None:
    tokens = (Token(text, ((text, -0.25), ("B", -1.5))), Token(",", ()))
    answer = Answer(text, tokens, Usage(3, 2, 1), "length", (text, "B"), ("note", text))
    with Store(db) as store:
        conversation = enter(store).conversations["forward"]
        store.record(conversation, 0, answer, invalid(["overall"], "unreadable", text))
    with Store(db) as store:
        assert list(store.answers(conversation)) == [answer]


@settings(max_examples=30, deadline=None)
@given(st.text(), st.dictionaries(st.text(), st.text() | st.integers() | st.none()))
def test_any_text_and_metadata_come_back(text: str, metadata: Mapping[str, object]) -> None:
    pair = Pair(text, text, text, metadata=metadata)
    with Store(":memory:") as store:
        enter(store, pair)
        assert store.pages.pair(1) == pair


def test_verdicts_come_back_in_both_orders(db: Path) -> None:
    soft = Verdict("overall", "A", {"A": 0.75, "B": 0.125, "tie": 0.125}, 0.5)
    hard = Verdict("overall", "tie")
    with Store(db) as store:
        conversations = enter(store).conversations
        store.record(conversations["forward"], 0, Answer("A"), [soft])
        store.record(conversations["swapped"], 0, Answer("tie"), [hard])
    with Store(db) as store:
        assert only_judgment(store)["overall"].orders == {"forward": soft, "swapped": hard}


def test_an_invalid_verdict_comes_back_with_its_reason(db: Path) -> None:
    with Store(db) as store:
        for conversation in enter(store).conversations.values():
            store.record(conversation, 0, Answer("Both!"), invalid(["overall"], "unreadable"))
        outcome = only_judgment(store)["overall"]
    assert (outcome.side, outcome.invalid) == (None, "unreadable")


def test_a_failure_is_kept_with_its_detail_and_counts_attempts(db: Path) -> None:
    error = EngineError("it has 9000 tokens", reason="too_long")
    with Store(db) as store:
        conversation = enter(store).conversations["forward"]
        store.fail(conversation, 0, error)
        store.fail(conversation, 0, error)
        assert only_judgment(store)["overall"].invalid == "too_long"
    assert rows(db, "SELECT reason, detail, attempts FROM failures") == [("too_long", "it has 9000 tokens", 2)]


def test_an_answer_ends_a_failure(db: Path) -> None:
    with Store(db) as store:
        conversation = enter(store).conversations["forward"]
        store.fail(conversation, 0, EngineError("busy"))
        store.record(conversation, 0, Answer("A"), [Verdict("overall", "A")])
    assert rows(db, "SELECT * FROM failures") == []


def test_what_was_never_asked_has_no_outcome_and_is_counted(db: Path) -> None:
    with Store(db) as store:
        conversations = enter(store).conversations
        assert list(store.judgments(only_judge(store))) == []
        assert store.outcomes.unfinished(1) == 1
        store.record(conversations["forward"], 0, Answer("A"), [Verdict("overall", "A")])
        assert store.outcomes.unfinished(1) == 1, "half of a pair is not a pair"
        store.record(conversations["swapped"], 0, Answer("A"), [Verdict("overall", "A")])
        assert store.outcomes.unfinished(1) == 0


def test_the_same_answer_twice_is_kept_once(db: Path) -> None:
    """A worker that was taken for dead may still answer: the first answer stands."""
    with Store(db) as store:
        conversation = enter(store).conversations["forward"]
        store.record(conversation, 0, Answer("A"), [Verdict("overall", "A")])
        store.record(conversation, 0, Answer("B"), [Verdict("overall", "B")])
        assert [answer.text for answer in store.answers(conversation)] == ["A"]
    assert rows(db, "SELECT label FROM verdicts") == [("A",)]


def test_a_run_is_kept_with_what_it_used(db: Path) -> None:
    with Store(db) as store:
        run = store.begin_run(store.judge(setup_with()), {"orders": "both"})
        store.end_run(run, pairs=3, asked=6, usage=Usage(10, 20, 30))
    ((settings_, *used),) = rows(db, "SELECT settings, pairs, asked, computed, reused, generated FROM runs")
    assert json.loads(str(settings_)) == {"orders": "both"}
    assert used == [3, 6, 10, 20, 30]


def test_usage_is_summed_over_a_judges_answers(db: Path) -> None:
    with Store(db) as store:
        for conversation in enter(store).conversations.values():
            store.record(conversation, 0, Answer("A", (), Usage(5, 4, 1)), [Verdict("overall", "A")])
        other = enter(store, setup=setup_with(name="another")).conversations["forward"]
        store.record(other, 0, Answer("A", (), Usage(100, 0, 1)), [Verdict("overall", "A")])
        assert [store.usage(row)[0] for row in store.judges()] == [Usage(10, 8, 2), Usage(100, 0, 1)]


def test_a_killed_run_took_as_long_as_its_answers_came(db: Path) -> None:
    """Its tokens count, and so must its seconds: else a resumed run seems many times as fast as it was."""
    with Store(db) as store:
        first, second = enter(store).conversations.values()
        judge = store.judge(setup_with())
        killed, ended = store.begin_run(judge, {}), store.begin_run(judge, {})
        store.end_run(ended, pairs=1, asked=1, usage=Usage(5, 0, 1))
        silent = store.begin_run(judge, {})
        for conversation in (first, second):
            store.record(conversation, 0, Answer("A", (), Usage(5, 0, 1)), [Verdict("overall", "A")])
    with sqlite3.connect(db) as raw:
        raw.executemany(
            "UPDATE runs SET started = ?, ended = ? WHERE id = ?",
            [(100.0, None, killed), (500.0, 510.0, ended), (600.0, None, silent)],
        )
        raw.executemany("UPDATE answers SET created = ? WHERE conversation = ?", [(160.0, first), (505.0, second)])
    with Store(db) as store:
        assert store.usage(only_judge(store)) == (Usage(10, 0, 2), 60.0 + 10.0)
        runs = store.archive.runs(judge, together=False)
        assert [(run.started, run.asked, run.computed, run.generated) for run in runs] == [
            (100.0, 1, 5, 1),  # killed after one answer
            (500.0, 1, 5, 1),
            (600.0, 0, 0, 0),  # killed before the first
        ]
        [together] = store.archive.runs(judge)
        assert (together.runs, together.asked, together.computed, together.ended) == (3, 2, 10, 510.0)


def test_a_new_label_or_metadata_replaces_the_old(db: Path) -> None:
    with Store(db) as store:
        enter(store, Pair("Hi", "x", "y", id="p1", metadata={"topic": "old"}))
        enter(store, Pair("Hi", "x", "y", id="p1", labels={"overall": "2"}))
        pair = store.pages.pair(1)
    assert pair is not None
    assert (pair.labels, pair.metadata) == ({"overall": "2"}, {})


def rows(db: Path, query: str) -> list[tuple[object, ...]]:
    with closing(sqlite3.connect(db)) as base:
        return base.execute(query).fetchall()


# -- keys -------------------------------------------------------------------------------------------------


class Posing(Engine):
    """An engine that says it is another."""

    def __init__(self, **identity: str) -> None:
        self._identity = {"model": "m", "sha256": "1", "top_tokens": "60"} | identity

    @property
    def identity(self) -> Mapping[str, str]:
        return self._identity

    async def answer(self, prompt: Prompt) -> Answer:
        raise NotImplementedError


TEMPLATE = "<|im_start|>user\n{instruction} {output_1} {output_2}\nWhich is best, A, B, or tie?<|im_end|>"


def key(
    pair: Pair = PAIR,
    *,
    template: str = TEMPLATE,
    raw_markup: bool = False,
    order: Order = "forward",
    **engine: str,
) -> str:
    return Setup(Posing(**engine), Protocol.parse(template), raw_markup).key(pair, order)


@pytest.mark.parametrize(
    "other",
    [
        key(sha256="2"),
        key(model="n"),
        key(top_tokens="61"),
        key(temperature="0"),
        key(template=TEMPLATE.replace("best", "better")),
        key(template=TEMPLATE + "\n"),
        key(raw_markup=True),
        key(order="swapped"),
        key(Pair("Hi!", "x", "y")),
        key(Pair("Hi", "x ", "y")),
        key(Pair("Hi", "x", "y ")),
        key(Pair("Hix", "", "y")),
    ],
)
def test_a_key_changes_with_all_that_decides_a_verdict(other: str) -> None:
    assert key() != other


def test_a_key_changes_with_how_a_template_is_rendered(monkeypatch: pytest.MonkeyPatch) -> None:
    before = key()
    monkeypatch.setattr("evenhand.core.template._trim", lambda pieces: ("Now: ", *pieces))
    assert key() != before


def test_a_key_stays_with_what_does_not_decide_a_verdict() -> None:
    dressed = Pair("Hi", "x", "y", "another id", "gpt", "llama", {"overall": "1"}, {"topic": "talk"})
    assert key() == key(dressed)


def test_a_swapped_pair_shares_its_conversations(db: Path) -> None:
    with Store(db) as store:
        one = enter(store, Pair("Hi", "x", "y"))
        store.release(one)
        two = enter(store, Pair("Hi", "y", "x"))
    assert one.conversations["forward"] == two.conversations["swapped"]
    assert one.conversations["swapped"] == two.conversations["forward"]
    assert rows(db, "SELECT count(*) FROM conversations") == [(2,)]


def test_two_equal_responses_are_one_conversation(db: Path) -> None:
    with Store(db) as store:
        job = enter(store, Pair("Hi", "x", "x"))
    assert job.conversations["forward"] == job.conversations["swapped"]
    assert not job.held


# -- migrations -------------------------------------------------------------------------------------------


def test_a_fresh_file_is_brought_to_the_present_form(db: Path) -> None:
    with Store(db):
        pass
    assert rows(db, "PRAGMA user_version") == [(len(MIGRATIONS),)]
    assert rows(db, "PRAGMA journal_mode") == [("wal",)]
    assert rows(db, "PRAGMA integrity_check") == [("ok",)]


def test_a_file_of_a_newer_evenhand_is_refused_and_left_alone(db: Path) -> None:
    with closing(sqlite3.connect(db)) as base:
        base.execute(f"PRAGMA application_id = {APPLICATION_ID}")
        base.execute("PRAGMA user_version = 99")
    with pytest.raises(StoreError, match="newer evenhand") as caught:
        Store(db)
    assert "pip install" in caught.value.hint
    assert rows(db, "SELECT count(*) FROM sqlite_master") == [(0,)]


def test_a_migration_that_fails_leaves_nothing_behind(db: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("evenhand.store.schema.MIGRATIONS", (("CREATE TABLE one (x)", "CREATE NONSENSE"),))
    with pytest.raises(StoreError):
        Store(db)
    assert rows(db, "SELECT count(*) FROM sqlite_master") == [(0,)]
    assert rows(db, "PRAGMA user_version") == [(0,)]


OPEN_AT = """
import sys, time
from evenhand.store import Store
time.sleep(max(0, float(sys.argv[2]) - time.time()))
with Store(sys.argv[1]) as store:
    print(len(store.judges()))
"""


def test_processes_that_create_the_file_at_once_all_succeed(db: Path) -> None:
    start = time.time() + 3
    command = [sys.executable, "-c", OPEN_AT, str(db), str(start)]
    opened = [subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) for _ in range(4)]
    said = [process.communicate(timeout=60) for process in opened]
    assert said == [(b"0\n", b"")] * 4


# -- claims -----------------------------------------------------------------------------------------------


def give_to(db: Path, conversation: int, worker: str, claimed: float) -> None:
    with closing(sqlite3.connect(db, isolation_level=None)) as base:
        base.execute("INSERT OR REPLACE INTO claims VALUES (?, ?, ?)", (conversation, worker, claimed))


def worker_of(pid: int, host: str = "") -> str:
    return f"{host or socket.gethostname()} {pid} 1"


@contextmanager
def a_process() -> Iterator[int]:
    process = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    try:
        yield process.pid
    finally:
        process.communicate()


def dead_process() -> int:
    with a_process() as pid:
        return pid


@pytest.fixture
def entered(db: Path) -> Mapping[Order, int]:
    with Store(db) as store:
        return enter(store).conversations


def claims(db: Path) -> list[tuple[object, ...]]:
    return rows(db, "SELECT worker FROM claims")


def test_a_hearing_of_a_live_process_is_held(db: Path, entered: Mapping[Order, int]) -> None:
    with a_process() as pid, Store(db) as store:
        give_to(db, entered["forward"], worker_of(pid), time.time())
        assert enter(store).held


def test_a_hearing_of_a_dead_process_is_taken_over(db: Path, entered: Mapping[Order, int]) -> None:
    give_to(db, entered["forward"], worker_of(dead_process()), time.time())
    with Store(db) as store:
        assert not enter(store).held
        assert claims(db) == [(store.worker,)] * 2


def test_a_process_that_only_has_the_number_of_one_that_died_holds_nothing(
    db: Path, entered: Mapping[Order, int]
) -> None:
    """A container that is started again gives the same number to the same command."""
    with a_process() as pid, Store(db) as store:
        for number in (pid, os.getpid()):
            give_to(db, entered["forward"], f"{socket.gethostname()} {number} 1.5", time.time())
            job = enter(store)
            assert not job.held
            store.release(job)


def test_a_live_process_is_known_by_when_it_began(db: Path, entered: Mapping[Order, int]) -> None:
    with Store(db) as one, Store(db) as two:
        give_to(db, entered["forward"], one.worker, time.time())
        assert enter(two).held


def test_claims_are_renewed_while_a_process_is_at_work(db: Path) -> None:
    with Store(db) as store, Store(db) as other:
        job = enter(store)
        for conversation in job.conversations.values():
            give_to(db, conversation, store.worker, 5.0)
        store.renew()
        assert enter(other).held
        assert min(since for (since,) in rows(db, "SELECT claimed FROM claims")) > time.time() - 60  # type: ignore[type-var, operator]


def test_a_claim_of_another_machine_holds_until_it_is_old(db: Path, entered: Mapping[Order, int]) -> None:
    with Store(db) as store:
        give_to(db, entered["forward"], worker_of(1, "elsewhere"), time.time())
        assert enter(store).held
        give_to(db, entered["forward"], worker_of(1, "elsewhere"), time.time() - 7200)
        assert not enter(store).held


def test_no_order_is_claimed_while_another_process_has_one(db: Path, entered: Mapping[Order, int]) -> None:
    for order in BOTH:
        with a_process() as pid, Store(db) as store:
            holder = worker_of(pid)
            give_to(db, entered[order], holder, time.time())
            assert enter(store).held
            assert claims(db) == [(holder,)]
        with closing(sqlite3.connect(db, isolation_level=None)) as base:
            base.execute("DELETE FROM claims")


def test_a_hearing_is_not_entered_twice_in_one_process(db: Path) -> None:
    with Store(db) as store:
        first = enter(store)
        assert not first.held
        assert enter(store, Pair("Hi", "y", "x")).held
        store.release(first)
        assert not enter(store, Pair("Hi", "y", "x")).held


def test_two_stores_of_one_process_keep_out_of_each_others_way(db: Path) -> None:
    with Store(db) as one, Store(db) as two:
        job = enter(one)
        assert enter(two).held
        one.release(job)
        assert not enter(two).held


def test_a_complete_hearing_is_not_held(db: Path) -> None:
    with Store(db) as one, Store(db) as two:
        for conversation in enter(one).conversations.values():
            one.record(conversation, 0, Answer("A"), [Verdict("overall", "A")])
        assert not enter(two).held


def test_claims_are_durable_before_anyone_is_asked(db: Path) -> None:
    with Store(db) as store:
        enter(store)
        assert claims(db) == [(store.worker,)] * 2


def test_closing_lets_go_of_every_claim(db: Path) -> None:
    with Store(db) as store:
        enter(store)
    assert claims(db) == []


# -- what cannot be used ----------------------------------------------------------------------------------


def test_a_file_that_is_no_database_is_refused_and_left_alone(tmp_path: Path) -> None:
    file = tmp_path / "notes.txt"
    file.write_text("my notes\n" * 500)
    with pytest.raises(StoreError, match="not a database") as caught:
        Store(file)
    assert "--db" in caught.value.hint
    assert file.read_text() == "my notes\n" * 500


def test_a_damaged_file_is_named(db: Path) -> None:
    with Store(db) as store:
        for number in range(200):
            enter(store, Pair(f"Hi {number}", "x" * 200, "y"))
    data = bytearray(db.read_bytes())
    data[4096:-4096] = b"\xa5" * (len(data) - 8192)
    db.write_bytes(data)
    with pytest.raises(StoreError, match=r"evenhand\.db cannot be used.*malformed") as caught, Store(db) as store:
        enter(store)
    assert ".recover" in caught.value.hint


def test_damage_found_while_reading_is_named_too(db: Path) -> None:
    with Store(db) as store:
        for number in range(200):
            for conversation in enter(store, Pair(f"Hi {number}", "x" * 200, "y")).conversations.values():
                store.record(conversation, 0, Answer("A"), [Verdict("overall", "A")])
    with closing(sqlite3.connect(db)) as base:
        (page,) = base.execute("SELECT rootpage FROM sqlite_master WHERE name = 'pairs'").fetchone()
    data = bytearray(db.read_bytes())
    data[(page - 1) * 4096 : page * 4096] = b"\xa5" * 4096
    db.write_bytes(data)
    with Store(db) as store, pytest.raises(StoreError, match="malformed"):
        list(store.judgments(only_judge(store)))


def test_a_folder_that_does_not_exist(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="unable to open") as caught:
        Store(tmp_path / "nowhere" / "evenhand.db")
    assert "folder" in caught.value.hint


def test_a_folder_in_place_of_a_file(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="unable to open"):
        Store(tmp_path)


@contextmanager
def as_nobody() -> Iterator[None]:
    """Without the rights of root, whom no file mode stops."""
    if os.geteuid() != 0:
        yield
        return
    os.seteuid(65534)
    try:
        yield
    finally:
        os.seteuid(0)


@pytest.fixture
def open_folder() -> Iterator[Path]:
    """A folder that everybody may enter, unlike tmp_path."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        folder.chmod(0o755)
        yield folder
        folder.chmod(0o755)


def test_a_file_that_cannot_be_written(open_folder: Path) -> None:
    db = open_folder / "evenhand.db"
    with Store(db) as store:
        enter(store)
    db.chmod(0o444)
    open_folder.chmod(0o555)
    with as_nobody(), pytest.raises(StoreError, match="cannot be used") as caught, Store(db) as store:
        enter(store)
    assert "written to" in caught.value.hint


def test_a_folder_that_cannot_be_written(open_folder: Path) -> None:
    open_folder.chmod(0o555)
    with as_nobody(), pytest.raises(StoreError, match="unable to open") as caught:
        Store(open_folder / "evenhand.db")
    assert "may you write" in caught.value.hint


def fill(store: Store, answered: list[Pair]) -> None:
    """Enter and answer pairs until there is no room left."""
    store._db.execute("PRAGMA max_page_count = 100")
    for number in range(1000):
        pair = Pair(f"Hi {number}", "x" * 3000, "y")
        for conversation in enter(store, pair).conversations.values():
            store.record(conversation, 0, Answer("A" * 3000), [Verdict("overall", "A")])
        answered.append(pair)


@pytest.fixture
def answered(db: Path) -> list[Pair]:
    """What was answered until the disk was full."""
    pairs: list[Pair] = []
    with Store(db) as store, pytest.raises(StoreError, match="full") as caught:
        fill(store, pairs)
    assert "make room" in caught.value.hint
    return pairs


def test_a_full_disk_is_said_and_what_was_stored_stays(db: Path, answered: list[Pair]) -> None:
    with Store(db) as store:
        found = list(store.judgments(only_judge(store)))
        assert [j.pair for j in found if j["overall"].side] == answered
        assert len(answered) > 5
        assert not enter(store).held
    assert rows(db, "PRAGMA integrity_check") == [("ok",)]


@pytest.mark.usefixtures("answered")
def test_a_full_disk_leaves_no_answer_without_its_verdict(db: Path) -> None:
    alone = (
        "SELECT count(*) FROM answers a WHERE NOT EXISTS"
        " (SELECT 1 FROM verdicts v WHERE v.conversation = a.conversation)"
    )
    assert rows(db, alone) == [(0,)]


def test_a_step_that_fails_takes_back_only_itself(db: Path) -> None:
    with Store(db) as store:
        conversations = enter(store).conversations
        store.record(conversations["forward"], 0, Answer("A"), [Verdict("overall", "A")])
        with pytest.raises(StoreError):
            store.record(conversations["swapped"], 0, Answer("B"), [Verdict("overall", "B", mass=object())])  # type: ignore[arg-type]
    assert rows(db, "SELECT conversation, text FROM answers") == [(conversations["forward"], "A")]


def test_closing_twice_is_no_fault(db: Path) -> None:
    store = Store(db)
    store.close()
    store.close()


def test_a_pair_that_comes_again_without_labels_or_names_keeps_them() -> None:
    told = Pair("Q?", "a", "b", "p1", model_1="m", model_2="n", labels={"overall": "1"})
    with Store(":memory:") as store:
        for pair in (told, Pair("Q?", "a", "b", "p1", labels={"overall": "2"}), Pair("Q?", "a", "b", "p1")):
            store.add_pairs([pair])
        (kept,) = store.labels.pairs()

    assert (kept.model_1, kept.labels) == ("m", {"overall": "2"})
