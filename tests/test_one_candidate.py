"""A database with the candidate on side 1 in some pairs, on side 2 in others: every view counts it as one side."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from command import evenhand
from evenhand import Judge, Pair, ScriptedEngine, Store
from evenhand.core.protocol import Prompt
from evenhand.results.run import judge_summary
from evenhand.views.report.contents import compile_report
from evenhand.views.web.overview import overview

ONE = [
    Pair(f"Q{n}?", f"good {n}", f"bad {n}", model_1="new", model_2="old", candidate="1", labels={"overall": "1"})
    for n in range(6)
]
TWO = [
    Pair(f"R{n}?", f"bad {n}", f"good {n}", model_1="old", model_2="new", candidate="2", labels={"overall": "2"})
    for n in range(4)
]


def say(prompt: Prompt) -> str:
    """The good one."""
    text = prompt.turns[-1].text
    return "A" if text.index("good") < text.index("bad") else "B"


@pytest.fixture(scope="module")
def db(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two judges that say the same: one on all pairs, one on those with the candidate on side 2."""
    file = tmp_path_factory.mktemp("roles") / "x.db"
    for name, pairs in (("all", [*ONE, *TWO]), ("few", TWO)):
        with Judge(ScriptedEngine(say, name=name), "overall", db=file) as judge:
            list(judge.judge(pairs))
    return file


def test_the_page_and_the_report_say_what_results_says(db: Path) -> None:
    with Store(db, read_only=True) as store:
        counted = {row.model: judge_summary(store, row).summary for row in store.judges()}
        shown = {item.judge.model: item for item in overview(store)}
        report = {judge.judge: judge for judge in compile_report(store, store.judges()).judges}
    assert (counted["all"].sides, counted["all"].dimensions["overall"].wins_1) == (("new", "old"), 10)
    for name, summary in counted.items():
        found = summary.dimensions["overall"]
        page = shown[name].summary
        assert (page.sides, page.dimensions["overall"].wins_1) == (summary.sides, found.wins_1)
        assert report[name].names == summary.sides
        assert report[name].dimensions["overall"].ci == found.ci
        assert report[name].answer.sentence == shown[name].answer.sentence
    assert (shown["all"].turned, shown["few"].turned) == (True, False)


def test_judges_that_say_the_same_do_not_differ_whichever_side_is_the_candidates(db: Path) -> None:
    for judge, other in (("all", "few"), ("few", "all")):
        done = evenhand("results", "--db", db, "--judge", judge, "--against", other, "--json")
        [found] = json.loads(done.stdout)["against"]
        assert (found["n"], found["difference"], found["expected"]["difference"]) == (4, 0.0, 0.0)
        assert found["win_rate_1"] == found["win_rate_1_other"] == (1.0 if judge == "all" else 0.0)


def test_what_people_would_say_is_of_the_same_side(db: Path) -> None:
    found = json.loads(evenhand("results", "--db", db, "--judge", "all", "--human", "--json").stdout)
    human = found["human"]["overall"]
    assert found["sides"] == {"1": "new", "2": "old"}
    assert (human["win_rate_1"], human["labels_alone"]["win_rate_1"], human["judge_alone"]["win_rate_1"]) == (
        1,
        1,
        1,
    )
