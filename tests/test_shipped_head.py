"""The head that comes with evenhand, and what rests on its being the default judge."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from command import evenhand
from evenhand.core.engine import Engine, measured_length
from evenhand.core.judge import Conversation, Judgment
from evenhand.core.pair import DIMENSIONS, Pair
from evenhand.core.verdict import Verdict
from evenhand.engines.catalog import CATALOG, DEFAULT_MODEL
from evenhand.engines.heads import SHIPPED_HEAD
from evenhand.engines.heads.engine import HeadEngine
from evenhand.engines.heads.head import SHIPPED, Head, Weights, find_head
from evenhand.engines.scripted import ScriptedEngine
from evenhand.results.answer import answer_of
from evenhand.results.summary import Counter
from evenhand.views.api import Judge, default_judge
from evenhand.views.cli import demo
from evenhand.views.cli.app import app

FREE = {"Apache-2.0", "MIT", "BSD-3-Clause", "CC BY 4.0", "evenhand's own"}


def test_the_shipped_head_belongs_to_the_default_model_and_says_what_it_was_trained_on() -> None:
    head = find_head(SHIPPED_HEAD)
    assert (head.model, head.sha256) == (DEFAULT_MODEL, CATALOG[DEFAULT_MODEL].sha256)
    assert set(head.dimensions) == set(DIMENSIONS)
    assert {len(weights.state) for weights in head.weights.values()} == {1536}
    assert {source.licence for source in head.trained_on} <= FREE
    assert not [source.name for source in head.trained_on if "autoj" in source.name or "natural" in source.name]
    assert {"overall"} < {figure.dimension for figure in head.held_out}
    assert head.longest > 0
    assert (SHIPPED / f"{SHIPPED_HEAD}.json").stat().st_size < 60_000


def test_who_names_a_protocol_wants_the_model_to_be_asked() -> None:
    assert default_judge() == f"head:{SHIPPED_HEAD}"
    assert default_judge("chained") == DEFAULT_MODEL


def judged(length: int) -> Judgment:
    verdicts = {name: Verdict(name, "A") for name in ("overall", "format", "precision")}
    return Judgment.of(Pair(f"Task {length}", "x" * length, "y"), {"forward": Conversation(verdicts)})


def test_overall_that_comes_first_is_the_headline_and_nothing_is_combined() -> None:
    assert list(judged(1).outcomes) == ["overall", "format", "precision"]
    counter = Counter()
    counter.add(judged(1))
    assert answer_of(counter.summary()).dimension == "overall"


@pytest.mark.parametrize(("lengths", "warned"), [((10, 10, 90), False), ((10, 90, 90), True)])
def test_an_answer_on_responses_longer_than_measured_is_a_warning(lengths: tuple[int, ...], warned: bool) -> None:
    counter = Counter(measured=50)
    for number, length in enumerate(lengths):
        counter.add(judged(length + number))
    summary = counter.summary()
    assert summary.too_long == sum(length > 50 for length in lengths)
    assert ("longer than those this judge was measured on" in answer_of(summary).sentence) == warned
    assert any("longer than the 50 characters" in note for note in summary.notes())


def small_head(longest: int = 40) -> HeadEngine:
    weights = dict.fromkeys(DIMENSIONS, Weights(np.array([1.0, 0.0])))
    scripted = ScriptedEngine(lambda _: "A", states=lambda prompt: [len(prompt.turns[-1].text) % 7, 1.0])
    return HeadEngine(Head("small", "script", "", None, weights, longest=longest), scripted)


def test_the_measured_length_reaches_every_result(tmp_path: Path) -> None:
    engine = small_head()
    assert measured_length(engine.identity) == 40
    with Judge(engine, db=tmp_path / "h.db") as judge:
        list(judge.judge([Pair(f"Task {n}", "long " * 20, "short") for n in range(3)]))
    shown = evenhand("results", "--db", tmp_path / "h.db").stdout
    assert shown.strip().startswith("do not trust this: in 100% of pairs a response is longer"), shown


def test_the_demo_shows_each_pair_the_naive_way_and_the_report(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stand_in(spec: str) -> Engine:
        return small_head(2000) if spec.startswith("head:") else ScriptedEngine(lambda _: "A")

    monkeypatch.setattr(demo, "open_judge", stand_in)
    monkeypatch.chdir(tmp_path)
    shown = CliRunner().invoke(app, ["demo"], env={"COLUMNS": "80"})
    said = shown.output
    assert shown.exit_code == 0, said
    assert len(re.findall(r"^[✓✗] .*judge \S+ +known \S+$", said, re.MULTILINE)) == 14
    assert re.search(r"right in \d of 6, and it took the one that stood first in 6", said)
    assert (tmp_path / "evenhand-demo.html").is_file()
    assert "evenhand-demo.html" in said.replace("\n", "")
    assert "what to try next" in said
