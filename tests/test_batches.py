"""judge --batch against stand-ins for both services: their lifecycles, their faults, and what is paid."""

from __future__ import annotations

import asyncio
import json
import sqlite3
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

import batch_server
from batch_server import BABBLE, BROKEN, EXPIRED, FILTERED, MISSING, OK, Body, StandIn, key_of, label_of
from command import evenhand, evenhand_any
from conftest import LoopThread
from evenhand.core.errors import EngineError
from evenhand.engines.batches import client as client_module
from evenhand.engines.batches.client import BatchClient
from evenhand.running.batches import run as run_module
from evenhand.running.batches import sender as sender_module

PAIRS = 12
SERVICES = ("openai", "anthropic")
both = pytest.mark.parametrize("service", SERVICES)
Start = Callable[..., StandIn]


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """No waiting, and a key that the stand-ins do not ask for."""
    monkeypatch.setattr(run_module, "FIRST_POLL", 0.001)
    monkeypatch.setattr(run_module, "LONGEST_POLL", 0.01)
    for name, seconds in (("FIRST_DELAY", 0.001), ("LONGEST_DELAY", 0.01), ("GRACE_SECONDS", 0.05)):
        monkeypatch.setattr(sender_module, name, seconds)
    monkeypatch.setattr(sender_module, "LOOK_SECONDS", 0.01)
    for name in ("OPENAI_API_KEY", "ANTHROPIC_API_KEY"):
        monkeypatch.setenv(name, batch_server.KEY)


@pytest.fixture
def start(loop: LoopThread) -> Iterator[Start]:
    """Start a stand-in; all of them end with the test."""
    running: list[StandIn] = []

    def begin(**behaviour: Any) -> StandIn:
        running.append(loop.run(StandIn(**behaviour).__aenter__()))
        return running[-1]

    yield begin
    for server in running:
        loop.run(server.__aexit__())


@pytest.fixture
def pairs(tmp_path: Path) -> Path:
    return write_pairs(tmp_path / "pairs.jsonl", PAIRS)


def write_pairs(file: Path, number: int) -> Path:
    rows = ({"instruction": f"Question {n}", "output_1": f"x{n}", "output_2": f"y{n}"} for n in range(number))
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return file


def words(server: StandIn, service: str, pairs: Path, db: Path, *more: str, protocol: str = "overall") -> list[str]:
    judge = ["judge", str(pairs), "--judge", f"{service}@{server.url}#m", "--protocol", protocol]
    return [*judge, "--db", str(db), "--json", *more]


def batch(server: StandIn, service: str, pairs: Path, db: Path, *more: str, code: int = 0, **how: str) -> Any:
    done = evenhand(*words(server, service, pairs, db, "--batch", *more, **how), code=code)
    return json.loads(done.stdout)


def invalid(found: Any) -> int:
    return int(found["dimensions"]["overall"]["invalid"])


def rows(db: Path, query: str) -> list[tuple[Any, ...]]:
    with closing(sqlite3.connect(db)) as base:
        return base.execute(query).fetchall()


def check_whole(server: StandIn, db: Path, questions: int = 2 * PAIRS) -> None:
    """Every question was computed once, every verdict is there once and as it was given."""
    paid = server.computed + server.asked
    assert len(paid) == questions
    assert set(paid.values()) == {1}
    assert rows(db, "SELECT count(*) FROM answers") == [(questions,)]
    labels = dict(rows(db, "SELECT label, count(*) FROM verdicts GROUP BY label"))
    assert labels == Counter(map(label_of, paid))
    assert rows(db, "SELECT count(*) FROM failures") == [(0,)]
    assert rows(db, "SELECT count(*) FROM batch_items") == [(0,)]
    assert rows(db, "SELECT count(*) FROM claims") == [(0,)]
    assert rows(db, "SELECT count(*) FROM batches WHERE state IN ('planned', 'submitting', 'open')") == [(0,)]


# -- a run that goes well --------------------------------------------------------------------------------------


@both
def test_a_run_in_batches_is_a_run(start: Start, service: str, pairs: Path, db: Path) -> None:
    server = start()
    found = batch(server, service, pairs, db)
    assert (found["pairs"], found["asked"], found["stopped"]) == (PAIRS, 2 * PAIRS, "")
    assert [len(each.requests) for each in server.batches] == [2 * PAIRS - 1], "one was asked before, alone"
    check_whole(server, db)


@both
def test_who_judges_is_the_same_with_and_without(start: Start, service: str, pairs: Path, db: Path) -> None:
    server = start()
    first = json.loads(evenhand(*words(server, service, pairs, db, "--limit", "5")).stdout)
    second = batch(server, service, pairs, db)
    assert first["fingerprint"] == second["fingerprint"]
    assert (first["asked"], second["asked"]) == (10, 14)
    again = json.loads(evenhand(*words(server, service, pairs, db)).stdout)
    assert again["asked"] == 0
    assert again["dimensions"] == second["dimensions"]
    check_whole(server, db)


@both
def test_verdicts_are_those_of_an_ordinary_run(start: Start, service: str, pairs: Path, tmp_path: Path) -> None:
    server, one, two = start(), tmp_path / "one.db", tmp_path / "two.db"
    batch(server, service, pairs, one)
    evenhand(*words(server, service, pairs, two))
    query = 'SELECT p.instruction, q."order", v.label FROM verdicts v JOIN queue q USING (conversation)'
    query += " JOIN pairs p ON p.id = q.pair ORDER BY 1, 2"
    assert rows(one, query) == rows(two, query)


@both
def test_chained_questions_go_in_rounds(start: Start, service: str, pairs: Path, db: Path) -> None:
    server = start()
    found = batch(server, service, pairs, db, protocol="chained")
    assert found["asked"] == 8 * PAIRS
    check_whole(server, db, 8 * PAIRS)
    assert len(server.batches) >= 4
    earlier = [row for each in server.batches[-1:] for row in each.requests]
    body = earlier[0]["body"] if service == "openai" else earlier[0]["params"]
    assert body["messages"][-2]["role"] == "assistant", "the verdicts before it stand in the conversation"


@both
def test_large_runs_are_split(
    start: Start, service: str, pairs: Path, db: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from evenhand.engines.batches.anthropic import AnthropicBatches
    from evenhand.engines.batches.openai import OpenAIBatches

    for kind in (OpenAIBatches, AnthropicBatches):
        monkeypatch.setattr(kind, "most_requests", 7)
    server = start()
    batch(server, service, pairs, db)
    assert [len(each.requests) for each in server.batches] == [7, 7, 7, 2]
    check_whole(server, db)


def test_a_file_stays_within_the_size_that_is_taken(
    start: Start, pairs: Path, db: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from evenhand.engines.batches.openai import OpenAIBatches

    server = start()
    monkeypatch.setattr(OpenAIBatches, "most_bytes", 20_000)
    batch(server, "openai", pairs, db)
    sizes = [
        sum(len(json.dumps(row, separators=(",", ":"))) + 1 for row in each.requests) for each in server.batches
    ]
    assert len(sizes) > 1
    assert 10_000 < max(sizes) <= 20_000
    check_whole(server, db)


def test_a_finished_run_asks_nothing(start: Start, pairs: Path, db: Path) -> None:
    server = start()
    batch(server, "openai", pairs, db)
    assert batch(server, "openai", pairs, db)["asked"] == 0
    assert len(server.batches) == 1


def test_repeated_pairs_are_asked_once(start: Start, tmp_path: Path, db: Path) -> None:
    pairs = write_pairs(tmp_path / "pairs.jsonl", PAIRS)
    given = [json.loads(line) for line in pairs.read_text().splitlines()] * 2
    pairs.write_text("".join(json.dumps({**row, "id": str(n)}) + "\n" for n, row in enumerate(given)))
    server = start()
    assert batch(server, "openai", pairs, db)["asked"] == 2 * PAIRS
    check_whole(server, db)


def test_control_tokens_in_a_pair_are_noted(start: Start, tmp_path: Path, db: Path) -> None:
    pairs = tmp_path / "pairs.jsonl"
    rows_ = [{"instruction": f"Question {n}", "output_1": "<|im_end|>", "output_2": f"y{n}"} for n in range(3)]
    pairs.write_text("".join(json.dumps(row) + "\n" for row in rows_))
    batch(start(), "openai", pairs, db)
    assert rows(db, "SELECT DISTINCT notes FROM answers") == [('["control_tokens_broken"]',)]


# -- what comes back -------------------------------------------------------------------------------------------


@both
@pytest.mark.parametrize("fault", [BROKEN, EXPIRED, MISSING])
def test_what_failed_is_asked_again(start: Start, service: str, pairs: Path, db: Path, fault: str) -> None:
    def fate(body: Body, time: int) -> str:
        return fault if int(key_of(body), 16) % 4 == 0 and not time else OK

    server = start(fate=fate)
    found = batch(server, service, pairs, db)
    assert invalid(found) == 0
    assert len(server.batches) == 2
    check_whole(server, db)


@both
def test_what_fails_for_ever_is_a_failure_and_tried_again_by_the_next_run(
    start: Start, service: str, pairs: Path, db: Path
) -> None:
    def fate(body: Body, time: int) -> str:
        return BROKEN if int(key_of(body), 16) % 4 == 0 and time < 3 else OK

    server = start(fate=fate)
    found = batch(server, service, pairs, db, code=3)
    assert invalid(found) > 0
    assert len(server.batches) == 3, "three tries"
    assert rows(db, "SELECT DISTINCT reason, attempts FROM failures") == [("server_error", 3)]
    assert invalid(batch(server, service, pairs, db)) == 0
    check_whole(server, db)


@both
def test_a_withheld_answer_is_not_asked_for_again(start: Start, service: str, pairs: Path, db: Path) -> None:
    server = start(fate=lambda body, time: FILTERED if int(key_of(body), 16) % 4 == 0 else OK)
    assert invalid(batch(server, service, pairs, db, code=3)) > 0
    assert len(server.batches) == 1
    assert rows(db, "SELECT DISTINCT reason FROM failures") == [("content_filter",)]


@both
def test_an_unreadable_answer_is_an_invalid_row(start: Start, service: str, pairs: Path, db: Path) -> None:
    server = start(fate=lambda body, time: BABBLE if int(key_of(body), 16) % 4 == 0 else OK)
    assert invalid(batch(server, service, pairs, db, code=3)) > 0
    assert len(server.batches) == 1, "it was answered, and is not asked again"
    assert rows(db, "SELECT count(*) FROM answers") == [(2 * PAIRS,)]
    assert rows(db, "SELECT count(*) > 0 FROM verdicts WHERE invalid IS NOT NULL") == [(1,)]


def test_a_batch_that_expires_as_a_whole_is_sent_again(start: Start, pairs: Path, db: Path) -> None:
    server = start(fate=lambda body, time: OK if time else EXPIRED)
    server.steps["openai"] = ("validating", "in_progress", "expired")
    batch(server, "openai", pairs, db)
    check_whole(server, db)


@both
def test_lines_that_are_no_results_are_left_out(start: Start, service: str, pairs: Path, db: Path) -> None:
    server = start()
    server.junk = [
        *(b"", b"no JSON", b"[1, 2]", b'{"custom_id": 7}', b'{"custom_id": "x-1-0", "result": 3, "response": []}'),
        *(b'{"custom_id": "\xff"}', b"null", b'{"custom_id": "theirs-1-0", "result": {"type": "expired"}}'),
        *(b'{"custom_id": "TOKEN-%d-0"}' % n for n in (0, 2**63, 2**64, 10**200)),
        b'{"custom_id": "TOKEN-1-%d", "result": {"type": "expired"}}' % 10**30,
    ]
    batch(server, service, pairs, db)
    check_whole(server, db)


@both
def test_a_result_that_comes_twice_counts_once(start: Start, service: str, pairs: Path, db: Path) -> None:
    server = start()
    server.twice = True
    assert batch(server, service, pairs, db)["asked"] == 2 * PAIRS
    check_whole(server, db)


@both
def test_a_repetition_is_asked_anew(start: Start, service: str, pairs: Path, db: Path) -> None:
    server = start()
    batch(server, service, pairs, db)
    assert batch(server, service, pairs, db, "--repeat", "2")["asked"] == 2 * PAIRS
    assert rows(db, "SELECT count(*) FROM answers") == [(4 * PAIRS,)]


@both
def test_a_key_never_comes_out(start: Start, service: str, pairs: Path, db: Path) -> None:
    server = start(fate=lambda body, time: "leak")
    done = evenhand_any(*words(server, service, pairs, db, "--batch"))
    assert "sk-secret" not in done.stdout + done.stderr
    (detail,) = rows(db, "SELECT detail FROM failures LIMIT 1")[0]
    assert "with the key" in detail
    assert "sk-secret" not in detail


@both
def test_lost_polls_and_broken_downloads_are_repeated(start: Start, service: str, pairs: Path, db: Path) -> None:
    server = start()
    server.broken_polls, server.broken_downloads = 3, 2
    batch(server, service, pairs, db)
    check_whole(server, db)


@both
def test_a_parameter_that_is_refused_is_learnt_before_a_batch_is_sent(
    start: Start, service: str, pairs: Path, db: Path
) -> None:
    server = start(refuse=("temperature", "logprobs"))
    batch(server, service, pairs, db)
    check_whole(server, db)
    assert len(server.batches) == 1
    assert "temperature" in rows(db, "SELECT lessons FROM batches")[0][0]


@both
def test_a_service_that_refuses_every_question_is_sent_no_batch(
    start: Start, service: str, pairs: Path, db: Path
) -> None:
    server = start(refuse=("model",))
    done = evenhand_any(*words(server, service, pairs, db, "--batch"))
    assert done.returncode == 1
    assert not server.batches
    assert server.requests <= 6


@both
def test_a_parameter_that_is_refused_later_is_learnt_from_the_results(
    start: Start, service: str, pairs: Path, db: Path
) -> None:
    server = start()
    batch(server, service, pairs, db, "--limit", "3")
    server.refuse = ("temperature", "logprobs") if service == "openai" else ("temperature",)
    assert invalid(batch(server, service, pairs, db)) == 0
    check_whole(server, db)


# -- submitting ------------------------------------------------------------------------------------------------


@both
@pytest.mark.parametrize("how", ["429", "500", "500-taken", "cut", "cut-taken"])
def test_a_batch_is_paid_once_however_its_submission_ends(
    start: Start, service: str, pairs: Path, db: Path, how: str
) -> None:
    server = start(submissions=(how,))
    batch(server, service, pairs, db)
    assert len(server.batches) == 1
    check_whole(server, db)


@both
def test_a_service_that_loses_every_batch_ends_the_run(start: Start, service: str, pairs: Path, db: Path) -> None:
    server = start(submissions=("cut",) * 20)
    done = evenhand_any(*words(server, service, pairs, db, "--batch"))
    assert done.returncode == 1
    assert len(server.submissions) == 15, "five times"
    server.submissions = []
    batch(server, service, pairs, db)
    check_whole(server, db)


@pytest.mark.parametrize(("service", "oldest_first"), [("openai", False), ("openai", True), ("anthropic", False)])
def test_a_batch_is_found_again_among_others(
    start: Start, service: str, pairs: Path, db: Path, oldest_first: bool
) -> None:
    server = start()
    server.oldest_first = oldest_first
    for number in (3, 5, 2):  # of another program, with other names
        foreign = [_foreign(service, f"theirs-{number}-{n}") for n in range(number)]
        server.batches.append(batch_server.Batch(f"foreign_{number}", foreign, ["completed"]))
    server.submissions = ["cut-taken"]
    batch(server, service, pairs, db)
    check_ours(server, db)


def test_a_batch_of_somebody_else_with_as_many_requests_is_told_apart(
    start: Start, pairs: Path, db: Path, loop: LoopThread
) -> None:
    """Anthropic's list says how many requests a batch has, and not which: the results do."""
    server = start(submissions=("cut-taken",))
    take = server._take

    async def take_after_another(request: Any, service: str, requests: list[Body], *more: Any) -> Any:
        foreign = [_foreign(service, f"theirs-{n}") for n in range(len(requests))]
        server.batches.append(batch_server.Batch("foreign", foreign, ["in_progress", "ended"]))
        return await take(request, service, requests, *more)

    server._take = take_after_another  # type: ignore[method-assign, assignment]
    batch(server, "anthropic", pairs, db)
    check_ours(server, db)
    assert rows(db, "SELECT rejected, remote FROM batches") == [('["foreign"]', "batch_2")]


def _foreign(service: str, name: str) -> Body:
    body = {"messages": [{"role": "user", "content": name}]}
    return {"custom_id": name, "body" if service == "openai" else "params": body}


def check_ours(server: StandIn, db: Path) -> None:
    ours = [each for each in server.batches if not each.id.startswith("foreign")]
    assert len(ours) == 1
    for each in server.batches:
        if each not in ours:
            for request in each.requests:
                server.computed.pop(key_of(request.get("body") or request["params"]), None)
    check_whole(server, db)


def test_a_batch_too_large_for_the_account_is_sent_in_smaller_ones(start: Start, pairs: Path, db: Path) -> None:
    server = start(submissions=("refused-token_limit_exceeded",))
    batch(server, "openai", pairs, db)
    assert [len(each.requests) for each in server.batches] == [23, 11, 11, 1]
    check_whole(server, db)


def test_a_batch_that_is_refused_says_why(start: Start, pairs: Path, db: Path) -> None:
    server = start(submissions=("refused-invalid_model",))
    done = evenhand_any(*words(server, "openai", pairs, db, "--batch"))
    assert done.returncode == 1
    assert "openai refused a batch of 23 requests: invalid_model: this cannot be computed" in done.stderr
    assert rows(db, "SELECT state FROM batches") == [("failed",)]
    batch(server, "openai", pairs, db)
    check_whole(server, db)


# -- coming back -----------------------------------------------------------------------------------------------


@both
def test_detach_leaves_the_batch_and_the_same_command_picks_up(
    start: Start, service: str, pairs: Path, db: Path
) -> None:
    server = start()
    left = batch(server, service, pairs, db, "--detach")
    assert left["detached"]
    assert [(row["id"], row["requests"]) for row in left["batches"]] == [("batch_1", 2 * PAIRS - 1)]
    assert batch(server, service, pairs, db)["pairs"] == PAIRS
    assert len(server.batches) == 1
    check_whole(server, db)


def test_an_arena_is_judged_in_batches(start: Start, tmp_path: Path, db: Path) -> None:
    server = start()
    files: list[Path] = []
    for model in ("one", "two", "three"):
        lines = ({"instruction": f"Question {n}", "output": f"{model} {n}"} for n in range(4))
        files.append(tmp_path / f"{model}.jsonl")
        files[-1].write_text("".join(json.dumps(line) + "\n" for line in lines))
    judge = ("--judge", f"openai@{server.url}#m", "-p", "overall", "--batch")
    given: tuple[str | Path, ...] = ("arena", *files, *judge, "--db", db, "--json")
    assert json.loads(evenhand(*given, "--detach").stdout)["detached"]
    found = json.loads(evenhand(*given).stdout)
    assert (found["pairs"], found["asked"], len(found["ranking"]["models"])) == (12, 23, 3)  # one was asked before
    assert len(server.batches) == 1
    check_whole(server, db, 24)
    assert "no meaning with --batch" in evenhand(*given, "--concurrency", "2", code=2).stderr
    assert "one judge at a time" in evenhand(*given, "--judge", "a,b", code=2).stderr


def test_an_ordinary_run_does_not_ask_what_is_in_a_batch(start: Start, pairs: Path, db: Path) -> None:
    server = start()
    batch(server, "openai", pairs, db, "--detach")
    done = evenhand_any(*words(server, "openai", pairs, db))
    assert done.returncode == 2
    assert "some of these questions are in a batch that is under way" in done.stderr
    assert server.asked.total() == 1
    assert rows(db, "SELECT count(*) FROM claims") == [(0,)]
    batch(server, "openai", pairs, db)
    check_whole(server, db)


@both
def test_another_account_is_noticed_before_anything_is_paid_twice(
    start: Start, service: str, pairs: Path, db: Path
) -> None:
    server = start()
    batch(server, service, pairs, db, "--detach")
    mine, server.batches = server.batches, []
    done = evenhand_any(*words(server, service, pairs, db, "--batch"))
    assert done.returncode == 1
    assert f"{service} does not know the batch batch_1" in done.stderr
    assert not server.batches
    server.batches = mine
    batch(server, service, pairs, db)
    check_whole(server, db)


def test_a_wrong_key_is_known_before_a_batch_is_sent(start: Start, pairs: Path, db: Path) -> None:
    server = start()
    server.keys = {"another"}
    done = evenhand_any(*words(server, "anthropic", pairs, db, "--batch"))
    assert done.returncode == 1
    assert "does not accept the key" in done.stderr
    assert "sk-secret" not in done.stderr
    assert rows(db, "SELECT count(*) FROM judges") == [(0,)], "nothing of it stays"


@both
def test_a_cancelled_batch_stops_the_run_and_the_next_one_goes_on(
    start: Start, service: str, pairs: Path, db: Path
) -> None:
    server = start()
    batch(server, service, pairs, db, "--detach")
    evenhand("batches", "cancel", "--db", db)
    found = batch(server, service, pairs, db, code=3)
    assert "cancelled" in found["stopped"]
    assert invalid(found) > 0
    assert invalid(batch(server, service, pairs, db)) == 0
    check_whole(server, db)


@pytest.mark.parametrize(
    ("state", "said"), [("planned", "it was not sent"), ("submitting", "the service may have it")]
)
@pytest.mark.parametrize("named", [True, False])
def test_a_batch_that_is_not_at_the_service_yet_is_said_not_to_be_cancelled(
    start: Start, pairs: Path, db: Path, state: str, said: str, named: bool
) -> None:
    server = start()
    batch(server, "openai", pairs, db, "--detach")
    with closing(sqlite3.connect(db)) as connection, connection:
        connection.execute("UPDATE batches SET state = ?, remote = ''", (state,))
    [(token,)] = rows(db, "SELECT token FROM batches")
    done = evenhand("batches", "cancel", *([token] if named else []), "--db", db, code=3)
    assert f"not cancelled: {token}" in done.stdout
    assert said in " ".join(done.stdout.split())
    assert rows(db, "SELECT state FROM batches") == [(state,)]


def test_the_list_of_batches(start: Start, pairs: Path, db: Path) -> None:
    server = start()
    batch(server, "openai", pairs, db, "--limit", "3")
    batch(server, "openai", pairs, db, "--detach")
    listed = json.loads(evenhand("batches", "--db", db, "--json").stdout)["batches"]
    assert [(row["id"], row["state"], row["requests"], row["answered"]) for row in listed] == [
        ("batch_1", "ended", 5, 5),
        ("batch_2", "open", 18, 0),
    ]
    assert "batch_2" in evenhand("batches", "--db", db).stdout


def test_a_judge_with_a_batch_under_way_stays(start: Start, pairs: Path, db: Path) -> None:
    server = start()
    batch(server, "openai", pairs, db, "--detach")
    done = evenhand("judges", "remove", "m", "--yes", "--db", db, code=2)
    assert "a batch of this judge is under way" in done.stderr
    evenhand("batches", "forget", "--yes", "--db", db)
    evenhand("judges", "remove", "m", "--yes", "--db", db)
    assert rows(db, "SELECT (SELECT count(*) FROM batches) + (SELECT count(*) FROM batch_items)") == [(0,)]


def test_a_forgotten_batch_is_asked_again(start: Start, pairs: Path, db: Path) -> None:
    server = start()
    batch(server, "openai", pairs, db, "--detach")
    evenhand("batches", "forget", "batch_1", "--yes", "--db", db)
    assert "no batch is under way" in evenhand("batches", "forget", "--yes", "--db", db, code=2).stderr
    batch(server, "openai", pairs, db)
    assert len(server.batches) == 2


def test_batches_from_python(start: Start, pairs: Path, tmp_path: Path) -> None:
    from evenhand import Judge, Pair

    server = start()
    given = [Pair(f"Question {n}", f"x{n}", f"y{n}") for n in range(5)]
    with Judge(f"openai@{server.url}#m", protocol="overall") as judge:
        run = judge.judge_in_batches(given)
        assert len(list(run.judgments())) == 5
        assert run.totals.asked == 10


# -- money -----------------------------------------------------------------------------------------------------


@pytest.fixture
def prices(tmp_path: Path) -> Callable[[StandIn, str], Path]:
    def write(server: StandIn, service: str) -> Path:
        file = tmp_path / "prices.json"
        models = {f"{service}@{server.url}#m": {"input": 10.0, "output": 100.0}}
        file.write_text(json.dumps({"date": "2026-11-01", "currency": "EUR", "models": models}))
        return file

    return write


@both
def test_answers_cost_half(
    start: Start, service: str, pairs: Path, db: Path, prices: Callable[[StandIn, str], Path]
) -> None:
    server = start()
    found = batch(server, service, pairs, db, "--prices", str(prices(server, service)))
    one = (100 * 10.0 + 2 * 100.0) / 1e6
    assert found["cost"] == pytest.approx(one + (2 * PAIRS - 1) * one / 2)


def test_the_date_of_the_prices_stands_beside_the_cost(
    start: Start, pairs: Path, db: Path, prices: Callable[[StandIn, str], Path]
) -> None:
    server = start()
    given = words(server, "openai", pairs, db, "--batch", "--prices", str(prices(server, "openai")))
    shown = evenhand(*[word for word in given if word != "--json"])
    assert "cost: 0.0150 in batches, at 50% of the prices of 2026-11-01" in shown.stdout


def test_a_plan_costs_half(start: Start, pairs: Path, db: Path, prices: Callable[[StandIn, str], Path]) -> None:
    server = start()
    more = ["--prices", str(prices(server, "openai")), "--dry-run"]
    full = json.loads(evenhand(*words(server, "openai", pairs, db, *more)).stdout)
    half = batch(server, "openai", pairs, db, *more)
    assert half["cost"] == pytest.approx(full["cost"] / 2)
    shown = evenhand(*[word for word in words(server, "openai", pairs, db, "--batch", *more) if word != "--json"])
    assert "EUR in batches, at 50% of the prices of 2026-11-01" in shown.stdout


@both
def test_a_budget_of_requests_is_kept(start: Start, service: str, pairs: Path, db: Path) -> None:
    server = start()
    found = batch(server, service, pairs, db, "--max-requests", "10", code=3)
    assert (found["asked"], found["pairs"]) == (10, 5)
    assert found["stopped"] == "the budget of 10 requests is used up"
    batch(server, service, pairs, db)
    check_whole(server, db)


def test_a_budget_too_small_for_the_first_question_stops_the_run(
    start: Start, pairs: Path, db: Path, prices: Callable[[StandIn, str], Path]
) -> None:
    server = start()
    more = ["--prices", str(prices(server, "openai")), "--max-cost", "0.00001"]
    assert "is used up" in batch(server, "openai", pairs, db, *more, code=3)["stopped"]
    assert not server.asked


@pytest.mark.parametrize("how", ["cut", "refused-token_limit_exceeded"])
def test_what_never_was_computed_is_not_taken_from_the_budget(
    start: Start, pairs: Path, db: Path, how: str
) -> None:
    server = start(submissions=(how,))
    found = batch(server, "openai", pairs, db, "--max-requests", "10", code=3)
    assert (found["asked"], found["pairs"]) == (10, 5)


def test_a_budget_of_money_is_kept(
    start: Start,
    pairs: Path,
    db: Path,
    prices: Callable[[StandIn, str], Path],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    server = start()
    more = ["--prices", str(prices(server, "openai"))]
    one = batch(server, "openai", pairs, db, *more, "--dry-run")["cost"] / (2 * PAIRS)
    monkeypatch.setitem(batch_server.USAGE, "prompt_tokens", int(one * 2 * 1e5))  # about what is estimated
    found = batch(server, "openai", pairs, db, *more, "--max-cost", str(8 * one), code=3)
    assert 2 <= found["pairs"] < PAIRS
    assert 4 * one < found["cost"] <= 8 * one
    assert "is used up" in found["stopped"]


# -- what is refused -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("more", "said"),
    [
        (["--batch"], "head:general cannot be asked in batches"),
        (["--judge", "groq:m", "--batch"], "groq cannot be asked in batches"),
        (["--judge", "http://127.0.0.1:9/v1#m", "--batch"], "http://127.0.0.1:9/v1 cannot be asked in batches"),
        (["--judge", "openai:m", "--batch", "--samples", "3"], "batches do not support --samples"),
        (["--judge", "openai:m", "--batch", "--set", "mode=completions"], "batches are chats"),
        (["--judge", "openai:m", "--batch", "--until-decided"], "--until-decided has no meaning with --batch"),
        (["--judge", "openai:m", "--batch", "--concurrency", "3"], "--concurrency has no meaning with --batch"),
        (
            ["--judge", "anthropic:m", "--batch", "--set", "effort=low"],
            "effort cannot be set in Anthropic's batches",
        ),
        (["--judge", "openai:m", "--detach"], "--detach without --batch"),
    ],
)
def test_what_has_no_meaning_is_refused(pairs: Path, db: Path, more: list[str], said: str) -> None:
    done = evenhand("judge", pairs, "--db", db, *more, code=2)
    assert said in done.stderr.replace("\n", " ")
    assert not db.exists()


# -- files that never come, or never end ------------------------------------------------------------


def fetched(server: Callable[[asyncio.StreamWriter], Iterator[bytes]], file: Path) -> EngineError:
    """What is said of a file that a server sends so; it is given up within seconds."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await reader.readuntil(b"\r\n\r\n")
            for part in server(writer):
                writer.write(part)
                await writer.drain()
                await asyncio.sleep(0.001)
        except ConnectionError:
            pass
        finally:
            writer.close()

    async def fetch() -> EngineError:
        listening = await asyncio.start_server(serve, "127.0.0.1", 0)
        client = BatchClient(f"http://127.0.0.1:{listening.sockets[0].getsockname()[1]}", who="x", timeout=5)
        try:
            async with asyncio.timeout(30):
                with pytest.raises(EngineError) as raised:
                    await client.fetch("/results", file)
            return raised.value
        finally:
            listening.close()
            await client.close()

    return asyncio.run(fetch())


def test_results_that_are_announced_for_ever_are_given_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client_module, "_SILENCE_SECONDS", 0.5)

    def announce(writer: asyncio.StreamWriter) -> Iterator[bytes]:
        while not writer.is_closing():
            yield b"HTTP/1.1 100 Continue\r\n\r\n"

    assert fetched(announce, tmp_path / "0.jsonl").reason == "timeout"


def test_results_without_an_end_do_not_fill_the_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client_module, "_MOST_FILE", 2**21)

    def pour(writer: asyncio.StreamWriter) -> Iterator[bytes]:
        yield b"HTTP/1.1 200 OK\r\n\r\n"
        while not writer.is_closing():
            yield b"{}\n" * 2**16

    error = fetched(pour, tmp_path / "0.jsonl")
    assert (error.reason, error.message) == ("bad_response", "x sent a file larger than results can be")
    assert (tmp_path / "0.jsonl").stat().st_size <= 2**21


def test_what_a_service_calls_a_batch_steers_no_terminal(start: Start, pairs: Path, db: Path) -> None:
    batch(start(), "openai", pairs, db, "--detach")
    with closing(sqlite3.connect(db)) as base, base:
        base.execute("UPDATE batches SET remote = ?", ("b\x1b]0;t\x07",))
    asked = evenhand("batches", "forget", "--db", db, stdin="y\n")
    assert "\x1b" not in asked.stdout + asked.stderr
    assert "Forget b␛]0;t␇ with" in asked.stderr
