"""After an arena the ranking is the result, and it says what would separate models that cannot be told apart."""

from __future__ import annotations

import json
import math
import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from aiohttp import web
from scipy.stats import norm

from command import evenhand
from evenhand.core.columns import blocks_of
from evenhand.core.judge import Conversation, Judgment
from evenhand.core.pair import Pair
from evenhand.core.protocol import Prompt
from evenhand.core.stats.ranking import Contrast
from evenhand.core.verdict import Verdict
from evenhand.engines.scripted import ScriptedEngine
from evenhand.results.answer import ranking_answer
from evenhand.results.ranking import SCALES, RankingSummary, Scale, matches_of
from evenhand.results.separation import Separation, games_to_separate, judge_options, separation_of
from evenhand.results.wording import about
from evenhand.store import Store
from evenhand.views.api import Judge
from evenhand.views.cli.rank import separation_note
from misbehaving_server import Body, Server, says
from web_server import WebServer

Z, Z_POWER = norm.ppf(0.975), norm.ppf(0.8)


async def larger_number(request: web.Request, body: Body) -> web.StreamResponse:
    """Prefers the response with the larger level."""
    text = "\n".join(message["content"] for message in body["messages"])
    levels = [int(level) for level in re.findall(r"level(\d)", text)]
    return await says("tie" if levels[0] == levels[1] else "A" if levels[0] > levels[1] else "B")(request, body)


@pytest.fixture
def judge(loop: Any) -> Iterator[str]:
    server = Server(larger_number)
    loop.run(server.__aenter__())
    yield f"{server.url}#judge"
    loop.run(server.__aexit__())


@pytest.fixture
def outputs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Three models: two that are much alike, and one that is worse most of the time."""
    monkeypatch.chdir(tmp_path)
    for name, levels in (("ant", (5, 5, 3, 5)), ("bee", (4, 6, 4, 4)), ("cat", (1, 1, 7, 1))):
        rows = [{"instruction": f"Question {n}?", "output": f"level{levels[n % 4]}"} for n in range(12)]
        Path(f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return ["ant.jsonl", "bee.jsonl", "cat.jsonl"]


def test_the_ranking_is_the_result(outputs: list[str], judge: str) -> None:
    words = ["arena", *outputs, "--judge", judge, "--protocol", "overall"]
    done = evenhand(*words).stdout
    assert "games" in done
    assert done.index("ant") < done.index("cat")
    assert "evenhand rank --db evenhand.db" in done
    assert "wins 50" not in done  # the win rate of whatever stood on side 1 says nothing here
    fields = json.loads(evenhand(*words, "--json").stdout)
    assert fields["asked"] == 0
    assert [(model["model"], model["n"]) for model in fields["ranking"]["models"]][-1] == ("cat", 24)
    assert fields["ranking"]["n"] == 36


def test_where_all_is_tied_no_interval_is_called_wide(outputs: list[str], judge: str) -> None:
    words = ["--judge", judge, "--protocol", "overall"]
    assert "so the intervals are wide" in evenhand("arena", *outputs, *words, "--db", "some.db").stdout
    for file in map(Path, outputs):
        rows = [{"instruction": f"Question {n}?", "output": f"level5 {file.stem}"} for n in range(12)]
        file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    done = evenhand("arena", *outputs, *words, "--db", "tied.db").stdout
    assert "all 36 games are tied" in done
    assert "intervals are wide" not in done


def test_a_dry_run_asks_nobody_and_counts_what_is_drawn(outputs: list[str]) -> None:
    nobody = "http://127.0.0.1:9/v1#m"
    done = evenhand("arena", *outputs, "--size", "12", "--judge", nobody, "--dry-run", "--json")
    fields = json.loads(done.stdout)
    assert fields["pairs"] == 12
    assert fields["requests"] >= 24
    assert not Path("evenhand.db").exists()


def test_an_arena_keeps_its_budget(outputs: list[str], judge: str) -> None:
    Path("prices.json").write_text(
        json.dumps(
            {"currency": "EUR", "date": "2026-01-01", "per": 1, "models": {judge: {"input": 1, "output": 1}}}
        )
    )
    words = ["arena", *outputs, "--judge", judge, "--protocol", "overall", "--prices", "prices.json", "--json"]
    planned = json.loads(evenhand(*words, "--dry-run").stdout)
    assert planned["cost"] > 0
    fields = json.loads(evenhand(*words, "--max-cost", "5000", code=3).stdout)
    assert "cost" in fields["stopped"] or "budget" in fields["stopped"]
    assert 0 < fields["asked"] < 72
    limited = json.loads(evenhand(*words, "--max-requests", "5", code=3).stdout)
    assert limited["asked"] == 5


# -- what would separate them ------------------------------------------------------------------------


def test_two_models_take_what_a_textbook_says() -> None:
    """Without ties and with direct games alone, a total of ((z + z of the power) / d)² / (p (1 - p)) is wanted."""
    for d in (0.2, 0.5, 1.0):
        p, n = 1 / (1 + math.exp(-d)), 10
        error = 1 / math.sqrt(n * p * (1 - p))
        found = games_to_separate(Contrast("a", "b", d, d - Z * error, d + Z * error, 0.3, 0.3))
        assert found == math.ceil(((Z + Z_POWER) / d) ** 2 / (p * (1 - p)) - n)
        elo = 400 / math.log(10)
        scaled = Contrast("a", "b", d * elo, (d - Z * error) * elo, (d + Z * error) * elo, 0.3, 0.3)
        assert games_to_separate(scaled, unit=elo) == found


def test_so_many_games_find_the_difference_about_as_often_as_promised() -> None:
    """A simulation: the test of the log-odds at 5% over all games, of a difference that is really there."""
    draw, d, n = np.random.default_rng(3), 0.5, 40
    p = 1 / (1 + math.exp(-d))
    error = 1 / math.sqrt(n * p * (1 - p))
    more = games_to_separate(Contrast("a", "b", d, d - Z * error, d + Z * error, 0.3, 0.3))
    assert more is not None
    total = n + more
    wins = draw.binomial(total, p, size=20_000)
    share = np.clip(wins / total, 1e-9, 1 - 1e-9)
    found = np.abs(np.log(share / (1 - share))) * np.sqrt(total * share * (1 - share)) > Z
    assert found.mean() == pytest.approx(0.8, abs=0.03)


def test_a_difference_of_next_to_nothing_gets_no_number() -> None:
    assert games_to_separate(Contrast("a", "b", 0.0, -1.0, 1.0, 1.0, 1.0)) is None
    assert games_to_separate(Contrast("a", "b", 1e-4, -1.0, 1.0, 1.0, 1.0)) is None
    assert games_to_separate(Contrast("a", "b", None, None, None, 1.0, 1.0)) is None
    hardly = Separation("a", "b", None, known=True)
    assert "hardly" in separation_note(hardly, Path("e.db"), judge_options("gpt-4o", "overall"))
    unknown = separation_note(
        Separation("a", "b", None, known=False), Path("e.db"), judge_options("gpt-4o", "overall")
    )
    assert "hardly" not in unknown
    assert unknown.endswith("evenhand arena a=FILE b=FILE --judge JUDGE --protocol overall --db e.db")
    by_head = separation_note(
        Separation("a", "b", None, known=False), Path("e.db"), judge_options("head:general", "head")
    )
    assert by_head.endswith("evenhand arena a=FILE b=FILE --judge head:general --db e.db"), "it takes no protocol"


def test_a_judge_that_cannot_be_asked_is_not_to_be_asked_again() -> None:
    close = Separation("a", "b", 90, known=True)
    imported = separation_note(close, Path("e.db"), judge_options("gpt-4", "imported", "imported"))
    assert "evenhand arena" not in imported
    assert imported.endswith(
        "about 90 more games between them would do it, if they differ as it seems. This judge's"
        " verdicts were imported: import those on more instructions, too."
    )
    levels = separation_note(close, Path("e.db"), judge_options("escalation of a, b", "overall", "escalation"))
    assert "--size 90 --escalate JUDGES --agree SHARE --protocol overall --db e.db" in levels


def database(path: Path, better: int) -> Path:
    """30 games between ant and bee, of which ant wins so many."""

    def script(prompt: Prompt) -> str:
        text = "".join(turn.text for turn in prompt.turns)
        return "A" if text.rfind("GOOD") < text.rfind("POOR") else "B"

    pairs = [
        Pair(f"Question {n}?", *(("GOOD", "POOR") if n < better else ("POOR", "GOOD")), f"{n}", "ant", "the bee")
        for n in range(30)
    ]
    with Judge(ScriptedEngine(script), "overall", db=path) as judge:
        list(judge.judge(pairs))
    return path


def test_rank_names_the_command_that_would_separate_two_models(tmp_path: Path) -> None:
    close = database(tmp_path / "close.db", better=18)
    shown = evenhand("rank", "--db", close).stdout
    assert "ant and the bee cannot be told apart yet; about" in shown
    line = next(line for line in shown.splitlines() if line.startswith("  evenhand arena"))
    assert shlex.split(line)[:4] == ["evenhand", "arena", "ant=FILE", "the bee=FILE"]
    assert int(shlex.split(line)[5]) > 100
    assert shlex.split(line)[6:] == ["--judge", "JUDGE", "--protocol", "overall", "--db", str(close)]
    clear = evenhand("rank", "--db", database(tmp_path / "clear.db", better=28)).stdout
    assert "evenhand arena" not in clear


def test_the_first_neighbours_that_cannot_be_told_apart_are_named(tmp_path: Path) -> None:
    with Store(database(tmp_path / "close.db", better=18), read_only=True) as store:
        found = separation_of(matches_of(store.blocks(store.judges()[0]), "overall").ranking())
    assert found is not None
    assert (found.model_1, found.model_2) == ("ant", "the bee")
    assert found.games is not None
    assert found.games == about(found.games) > 100  # no more digits than are known


def won(games: list[tuple[str, str, str]], scale: Scale = "log-odds") -> RankingSummary:
    """The ranking by such games on twelve instructions each: two models, and "A", "B" or "tie"."""
    verdicts = [
        Judgment.of(
            Pair(f"Task {n}", f"{one} {n}", f"{two} {n}", model_1=one, model_2=two),
            {"forward": Conversation({"overall": Verdict("overall", label)})},  # type: ignore[arg-type]
        )
        for one, two, label in games
        for n in range(12)
    ]
    return matches_of(blocks_of(verdicts), "overall").ranking(scale=scale)


def test_models_of_which_one_always_won_are_not_called_close() -> None:
    """Their difference is a guess without an interval; that says nothing of how close they are."""
    ranking = won([("top", "mid", "A"), ("mid", "low", "A")])
    assert ranking.contrasts[0].p_holm > 0.05
    assert (ranking.contrasts[0].difference or 0) > 2
    found = separation_of(ranking)
    assert found == Separation("top", "mid", None, known=False)
    assert "more games between them may do it" in separation_note(
        found, Path("e.db"), judge_options("gpt-4o", "overall")
    )


# -- the answer of a ranking ---------------------------------------------------------------------------------------


def arena(path: Path, script: Any, models: str = "abc") -> Path:
    """Every model against every other on thirty questions; its level is its letter's place."""
    pairs = [
        Pair(
            f"Question {n}?",
            f"level{one}",
            f"level{two}",
            id=f"{n}{one}{two}",
            model_1=models[one],
            model_2=models[two],
        )
        for n in range(30)
        for one in range(len(models))
        for two in range(one)
    ]
    with Judge(ScriptedEngine(script), "overall", db=path) as judge:
        list(judge.judge(pairs))
    return path


def by_level(prompt: Prompt) -> str:
    one, two = re.findall(r"level(\d)", prompt.turns[-1].text)[-2:]
    return "A" if one > two else "B"


def test_the_best_model_is_named_first_everywhere(tmp_path: Path) -> None:
    db = arena(tmp_path / "arena.db", by_level)
    said = "c is the best of 3 models: it is ahead of every other, n = 90"
    shown = evenhand("rank", "--db", db).stdout
    assert shown.strip().splitlines()[0] == said
    assert json.loads(evenhand("rank", "--db", db, "--json").stdout)["answer"]["sentence"] == said
    for kind in ("html", "md"):
        evenhand("report", "--db", db, "--out", tmp_path / f"report.{kind}")
    page, summary = ((tmp_path / f"report.{kind}").read_text() for kind in ("html", "md"))
    assert page.index('id="models"') < page.index('id="rates"')
    assert page.count(said) == summary.count(said) == 1
    for shown in (page, summary):
        assert "sides are not always the same models" in shown
        assert "Models that share a letter cannot be told apart" in shown
    with WebServer(db) as server:
        overview = server.owner().get("/").text
    assert overview.index(said) < overview.index("The sides are not always the same models")
    assert "side 1" not in evenhand("results", "--db", db).stdout, "a side of an arena is no model"


def test_invalid_pairs_are_in_every_view_of_a_ranking(tmp_path: Path) -> None:
    db = arena(
        tmp_path / "arena.db", lambda prompt: "hm" if "Question 7?" in prompt.turns[-1].text else by_level(prompt)
    )
    assert "invalid: 3 pairs without a verdict" in evenhand("rank", "--db", db).stdout
    evenhand("report", "--db", db, "--out", tmp_path / "report.html")
    with WebServer(db) as server:
        overview = server.owner().get("/").text
    for page in ((tmp_path / "report.html").read_text(), overview):
        table = page[page.index('class="verdicts ranking"') :].split("</table>")[0]
        assert '<th scope="col" class="right">invalid</th>' in table
        assert table.count('<td class="right">2</td></tr>') == 3


def test_a_judge_that_takes_the_first_makes_no_ranking_to_trust(tmp_path: Path) -> None:
    db = arena(tmp_path / "arena.db", lambda prompt: "A")
    said = evenhand("rank", "--db", db).stdout.strip().splitlines()[0]
    assert said.startswith(
        "do not trust this: the judge chose whatever stood first in 100% of pairs;"
        " cannot tell which of 3 models is best: all 90 games are tied"
    )


def test_two_models_have_a_sentence_and_not_a_ranking(tmp_path: Path) -> None:
    db = arena(tmp_path / "two.db", by_level, models="ab")
    assert "b is better: it wins 100%" in evenhand("results", "--db", db).stdout


def test_two_models_that_change_sides_are_ranked(tmp_path: Path) -> None:
    """A win rate of side 1 would be nobody's."""
    pairs = [
        Pair(f"Question {n}?", f"level{n % 2}", f"level{1 - n % 2}", model_1="ab"[n % 2], model_2="ba"[n % 2])
        for n in range(30)
    ]
    db = tmp_path / "both.db"
    with Judge(ScriptedEngine(by_level), "overall", db=db) as judge:
        list(judge.judge(pairs))
    said = evenhand("results", "--db", db).stdout.strip().splitlines()
    assert said[0] == "the sides are not always the same models: evenhand rank shows the result"
    assert said[-1] == f"the ranking: evenhand rank --db {db}"
    best = "b is better than a, n = 30"
    assert evenhand("rank", "--db", db).stdout.strip().splitlines()[0] == best
    for kind in ("html", "md"):
        evenhand("report", "--db", db, "--out", tmp_path / f"report.{kind}")
        assert best in (tmp_path / f"report.{kind}").read_text()
    with WebServer(db) as server:
        assert best in server.owner().get("/").text


def test_nobody_leads_models_that_no_game_links_with_it() -> None:
    chain, tied = [("top", "mid", "A"), ("mid", "low", "A")], [("x", "y", "tie")]
    found = ranking_answer(won([*chain, *tied]))
    assert found.sentence == (
        "top leads, and cannot be told apart yet from mid; x and y cannot be ranked with them, n = 36"
    )
    even = [("a", "b", "A"), ("b", "a", "A")]  # the part with the most models is the one that is ranked
    found = ranking_answer(won([*even, *chain]))
    assert found.sentence == (
        "cannot tell yet whether a or b is better; top, mid and low cannot be ranked with them, n = 48"
    )
    found = ranking_answer(won([("top", "low", "A"), *tied]))
    assert (found.kind, found.sentence) == (
        "unclear",
        "top is better than low; x and y cannot be ranked with them, n = 24",
    )


def test_a_tied_model_does_not_lead_on_any_scale() -> None:
    games = [("top", "mid", "A"), ("mid", "low", "A"), ("x", "y", "tie")]
    said = {scale: ranking_answer(won(games, scale)).sentence for scale in SCALES}
    assert len(set(said.values())) == 1, said
