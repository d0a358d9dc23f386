"""A trained head behind every command: none of them knows anything special about it.

The states of its responses are in the database already, as after a run, so that no model is loaded.
"""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from aiohttp import web

from command import evenhand
from conftest import LoopThread
from evenhand.core.attacks import attack_all
from evenhand.core.judge import Setup
from evenhand.core.pair import Pair
from evenhand.engines import open_engine
from evenhand.engines.catalog import ModelFile
from evenhand.engines.heads.engine import HeadEngine
from evenhand.engines.heads.head import Head, Weights
from evenhand.engines.heads.reading import ResponseReader
from evenhand.engines.heads.vectors import MemoryVectors, content_key, to_vector
from evenhand.engines.llama import LlamaEngine
from evenhand.io.attacks import built_in_attacks, choose_attacks
from evenhand.running.pace import Limits
from evenhand.store import Store
from misbehaving_server import Body, Server, says
from test_scaleout import Stage
from web_server import WebServer

pytest_plugins = ["pytester"]
pytestmark = pytest.mark.engine
MODELS = ("weak", "fair", "strong")  # the state of a response is the place of its model


@pytest.fixture(scope="module")
def head(smollm: ModelFile, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("head") / "mine.json"
    weights = Weights(np.array([2.0, 0.0]), {"length": 0.0}, 1.0, 0.1)
    Head("mine", smollm.name, smollm.sha256, None, {"overall": weights}).save(path)
    return path


def pairs() -> list[Pair]:
    """Every two of the models, on ten instructions; people like the stronger one."""
    return [
        Pair(f"Task {n}", f"{one} {n}", f"{two} {n}", model_1=one, model_2=two, labels={"overall": "2"})
        for n in range(10)
        for one, two in (("weak", "fair"), ("fair", "strong"), ("weak", "strong"))
    ]


def vectors(model: ModelFile) -> tuple[str, dict[str, np.ndarray]]:
    """Where states of this model are kept, and those of all responses."""
    states = {
        content_key(p.instruction, text): to_vector([MODELS.index(text.split()[0]), 1])
        for p in pairs()
        for text in (p.output_1, p.output_2)
    }
    return ResponseReader(LlamaEngine(model), MemoryVectors()).reader_name, states


@pytest.fixture(scope="module")
def judged(head: Path, smollm: ModelFile, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A file of pairs, and a database in which the head has judged them."""
    folder = tmp_path_factory.mktemp("judged")
    db, file = folder / "e.db", folder / "pairs.jsonl"
    rows = [
        {
            **dict(zip(("instruction", "output_1", "output_2"), p.texts, strict=True)),
            "model_1": p.model_1,
            "model_2": p.model_2,
            "labels": dict(p.labels),
        }
        for p in pairs()
    ]
    file.write_text("".join(json.dumps(row) + "\n" for row in rows), "utf-8")
    reader, states = vectors(smollm)
    with Store(db) as store:
        store.vectors.of(reader).put(states)
    evenhand("judge", file, "--judge", f"head:{head}", "--db", db)
    return file, db


def test_card_rank_gate_and_the_page_take_it_like_any_judge(judged: tuple[Path, Path], head: Path) -> None:
    file, db = judged
    card = json.loads(evenhand("card", "--db", db, "--json").stdout)
    assert "head:mine" in json.dumps(card)
    ranked = evenhand("rank", "--db", db).stdout
    assert ranked.index("strong") < ranked.index("fair") < ranked.index("weak")
    gated = evenhand("gate", file, "--judge", f"head:{head}", "--db", db).stdout
    assert gated.startswith("PASS: ")
    with WebServer(db) as server:
        assert "head:mine" in server.owner().get("/").text
        assert "head:mine" in server.owner().get("/card").text


def test_it_is_attacked_like_any_judge(
    judged: tuple[Path, Path], head: Path, smollm: ModelFile, tmp_path: Path
) -> None:
    """What it reads in an attacked response decides; here one attack looks strong, and one does nothing."""
    file, db = judged[0], tmp_path / "attacked.db"
    reader, states = vectors(smollm)
    strong = to_vector([MODELS.index("strong"), 1])
    for case in attack_all(pairs(), choose_attacks(built_in_attacks(), ["verdict-a", "control-newline"])):
        if case.attack:
            key = content_key(case.pair.instruction, case.pair.output_1)
            before = states[content_key(case.pair.instruction, case.pair.output_1.split("\n")[0])]
            states[key] = strong if case.attack.name == "verdict-a" else before
    with Store(db) as store:
        store.vectors.of(reader).put(states)
    some = ("--judge", f"head:{head}", "--attack", "verdict-a", "--attack", "control-newline", "--all")
    found = json.loads(evenhand("attack", file, *some, "--db", db, "--json").stdout)["attack"]
    by_name = {each["attack"]: each for each in found["attacks"]}
    assert (found["judge"], found["pairs"], found["right"]["value"]) == ("head:mine", 30, 1.0)
    assert by_name["verdict-a"]["n"] == by_name["control-newline"]["n"] == 30
    # Beside a fair one it wins now, beside a strong one it is as good.
    assert by_name["verdict-a"]["turned"]["value"] == pytest.approx(1 / 3)
    assert (by_name["verdict-a"]["towards"], by_name["verdict-a"]["right_lost"]["value"]) == (10, 1.0)
    assert by_name["control-newline"]["shift"]["value"] == 0.0
    assert "verdict-a" in evenhand("card", "--db", db).stdout
    assert "takes no fence" in evenhand("attack", file, *some, "--fence", "word", "--db", db, code=2).stderr


def test_the_pytest_plugin_takes_it(judged: tuple[Path, Path], head: Path, pytester: pytest.Pytester) -> None:
    _, db = judged
    pytester.makepyfile("def test_one(better):\n    better('strong 1', than='weak 1', instruction='Task 1')\n")
    done = pytester.runpytest("--evenhand-judge", f"head:{head}", "--evenhand-db", str(db))
    done.assert_outcomes(passed=1)


async def prefers_strong(request: web.Request, body: Body) -> web.StreamResponse:
    text = body["messages"][-1]["content"]
    return await says("A" if text.index("strong") < text.index("weak") else "B")(request, body)


def test_the_pytest_plugin_takes_it_beside_another_judge(
    judged: tuple[Path, Path], head: Path, pytester: pytest.Pytester, loop: LoopThread
) -> None:
    _, db = judged
    pytester.makepyfile("def test_one(better):\n    better('weak 2', than='strong 2', instruction='Task 2')\n")
    server = loop.run(Server(prefers_strong).__aenter__())
    try:
        both = f"head:{head},{server.url}#m"
        done = pytester.runpytest("--evenhand-judge", both, "--evenhand-db", str(db))
    finally:
        loop.run(server.__aexit__())
    done.assert_outcomes(failed=1)
    done.stdout.fnmatch_lines(["*verdict: the old one is better*", "*judge: jury of head:mine, m under several*"])


def test_a_worker_of_a_cluster_takes_it(head: Path, smollm: ModelFile, tmp_path: Path) -> None:
    """Workers open the judge by its name; one that has read the responses before needs no model here."""
    engine = open_engine(f"head:{head}")
    assert isinstance(engine, HeadEngine)
    known = MemoryVectors()
    known.put(vectors(smollm)[1])
    engine.keep_states(lambda reader: known)
    stage = Stage(tmp_path / "out", engine, Limits(), engine.protocol)
    given = pairs()[:6]
    stage.judge(given)
    assert stage.setup.fingerprint == Setup(engine, engine.protocol).fingerprint
    rows = stage.rows()
    assert [rows[p.id].orders["forward"].verdicts["overall"].label for p in given] == ["B"] * 6
    assert [rows[p.id].orders["swapped"].verdicts["overall"].label for p in given] == ["A"] * 6
