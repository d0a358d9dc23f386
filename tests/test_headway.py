"""Runs that show life: progress by answer, time left after the first pair, minutes of a local model beforehand."""

from __future__ import annotations

import io
import json
import re
import time
from pathlib import Path

import pytest
from rich.console import Console

from command import evenhand
from evenhand.core.engine import Usage
from evenhand.core.pair import Pair
from evenhand.core.protocol import Prompt
from evenhand.engines.scripted import ScriptedEngine
from evenhand.running.runner import Totals
from evenhand.views import console, progress
from evenhand.views.api import Judge
from evenhand.views.cli.groups import JudgeSettings
from evenhand.views.cli.headway import Headway
from evenhand.views.cli.running import run_with_progress
from terminal import Screen

PAIRS = [Pair(f"Question {n}?", "yes", "no", id=f"p{n}") for n in range(6)]
FIELDS = ("instruction", "output_1", "output_2")
SLOW = 0.05


def slowly(prompt: Prompt) -> str:
    time.sleep(SLOW)
    return "A"


class Timed:
    """A clock that only answers take time of, and the script that gives them."""

    def __init__(self, loading: float = 0.0) -> None:
        self.now, self._loading = 0.0, loading

    def monotonic(self) -> float:
        return self.now

    def answer(self, prompt: Prompt) -> str:
        self.now += SLOW + self._loading
        self._loading = 0.0  # the first answer has waited for the model
        return "A"


def test_kept_pairs_do_not_make_the_judge_seem_fast() -> None:
    now, totals = [0.0], Totals()
    way = Headway(100, 2, totals, clock=lambda: now[0])
    for _ in range(90):  # kept, in no time
        now[0] += 0.1
        way.judged()
    assert way.seconds_left(90) is None
    now[0], totals.asked = now[0] + 10, 2
    way.judged()
    assert way.seconds_left(91) == pytest.approx(90)


def test_the_text_counts_in_thousands_and_knows_one_from_many() -> None:
    now, totals = [0.0], Totals(asked=1, usage=Usage(704151, 0, 3))
    way = Headway(10, 4, totals, clock=lambda: now[0])
    now[0] = 2.0
    assert way.text(0) == "1 answer, 704,151 tokens (352,076/s)"
    totals.asked = 8
    way.judged()
    assert way.text(2) == "8 answers, 704,151 tokens (352,076/s), about 8.0 s left"
    assert "left" not in way.text(10)


def test_a_log_hears_of_answers_before_the_first_pair_is_done(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(progress, "_QUIET_SECONDS", 0.1)
    with Judge(ScriptedEngine(slowly), "chained") as judge:  # eight answers for a pair
        run_with_progress(judge, PAIRS[:2], 2)
    lines = [line for line in capsys.readouterr().err.splitlines() if "answer" in line]
    assert lines[0].startswith("0/2 pairs, ")
    assert any("left" in line for line in lines if line.startswith("1/2 pairs"))


def test_a_terminal_shows_answers_tokens_and_time_left(monkeypatch: pytest.MonkeyPatch) -> None:
    screen = Console(file=io.StringIO(), force_terminal=True, width=140)
    monkeypatch.setattr(console, "err", screen)
    with Judge(ScriptedEngine(slowly), "chained") as judge:
        run_with_progress(judge, PAIRS[:3], 3)
    shown = screen.file.getvalue()  # type: ignore[attr-defined]
    assert "0/3 pairs" in shown
    assert "answers" in shown
    assert "tokens" in shown
    assert " left" in shown
    assert "3/3 pairs" in shown


def test_a_dry_run_of_a_local_model_tells_minutes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    rows = [{"instruction": p.instruction, "output_1": p.output_1, "output_2": p.output_2} for p in PAIRS]
    Path("pairs.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    timed = Timed()
    monkeypatch.setattr(JudgeSettings, "engine", lambda self: ScriptedEngine(timed.answer))
    monkeypatch.setattr("evenhand.views.cli.judging.time", timed)
    monkeypatch.setattr("evenhand.views.cli.judging.planned_engine", lambda spec: None)
    words = ["judge", "pairs.jsonl", "--judge", "some-local-model", "--protocol", "overall", "--dry-run"]
    done = evenhand(*words, "--json")
    fields = json.loads(done.stdout)
    assert fields["requests"] == 12
    assert fields["seconds"] == pytest.approx(12 * SLOW, rel=0.01)
    assert "on this machine" in evenhand(*words).stdout
    assert not Path("evenhand.db").exists()
    Path("few.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows[:2]))
    asked = timed.now
    assert "judging so few" in evenhand(words[0], "few.jsonl", *words[2:]).stdout
    assert timed.now == asked, "two pairs are not judged to find out how long two pairs take"
    hosted = json.loads(evenhand(*words[:2], "--judge", "http://127.0.0.1:9/v1#m", "--dry-run", "--json").stdout)
    assert hosted["seconds"] is None


def test_the_first_pair_which_waits_for_the_model_does_not_make_it_seem_slow(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    rows = [{**dict(zip(FIELDS, pair.texts, strict=True)), "label": "1"} for pair in PAIRS]
    Path("pairs.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    monkeypatch.setattr("evenhand.views.cli.judging.planned_engine", lambda spec: None)
    words = ["pairs.jsonl", "--judge", "some-local-model", "--protocol", "overall"]

    timed = Timed(loading=40.0)
    monkeypatch.setattr(JudgeSettings, "engine", lambda self: ScriptedEngine(timed.answer))
    monkeypatch.setattr("evenhand.views.cli.judging.time", timed)
    planned = json.loads(evenhand("judge", *words, "--dry-run", "--json").stdout)
    assert planned["seconds"] == pytest.approx(12 * SLOW, rel=0.01)

    attacked = Timed(loading=4000.0)
    monkeypatch.setattr("evenhand.views.cli.groups.open_judge", lambda *_: ScriptedEngine(attacked.answer))
    monkeypatch.setattr("evenhand.views.cli.attack.time", attacked)
    told = evenhand("attack", *words, "--family", "authority", "--db", "attack.db").stderr
    seconds = re.search(r"; about ([\d.]+) s on this machine", told)
    assert seconds, told
    assert float(seconds[1]) < 48 * SLOW * 2  # 24 pairs in both orders; longer texts count for more


def test_at_80_columns_progress_takes_two_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    drawn, now = io.StringIO(), [0.0]
    monkeypatch.setattr(console, "err", Console(file=drawn, force_terminal=True, width=80))
    way = Headway(1200, 8, Totals(asked=9600, usage=Usage(1_920_000, 0, 9600)), clock=lambda: now[0])
    now[0] = 100.0
    with progress.watching(1200) as watch:
        watch.follow(way)
        watch.moved(600, Usage(), 3)
    screen = Screen(80)
    screen.feed(drawn.getvalue().replace("\n", "\r\n"))
    first, second = screen.text.splitlines()
    assert first.split("━")[-1].split() == ["600/1,200", "pairs", "3", "invalid"]
    assert second.startswith("9,600 answers, 1,920,000 tokens (19,200/s), about")


def test_a_bar_that_ends_early_shows_the_pairs_that_were_done(monkeypatch: pytest.MonkeyPatch) -> None:
    screen = io.StringIO()
    monkeypatch.setattr(console, "err", Console(file=screen, force_terminal=True, width=80))
    with progress.watching(200) as watch:
        for pairs in range(1, 4):  # quicker than anybody reads
            watch.moved(pairs, Usage(), 0)
    assert re.findall(r"\d+/200 pairs", screen.getvalue())[-1] == "3/200 pairs"
