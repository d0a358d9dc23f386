"""Heads that weigh other judges beside the states: learned from a database, and used with one."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import numpy as np
import pytest

from command import evenhand
from evenhand.core.errors import EngineError, SpecError
from evenhand.core.pair import Pair
from evenhand.core.protocol import Prompt
from evenhand.engines.catalog import ModelFile
from evenhand.engines.heads.engine import NOT_JUDGED, HeadEngine
from evenhand.engines.heads.fitting import Labels
from evenhand.engines.heads.head import Head, StackedJudge, Weights
from evenhand.engines.heads.learning import learn
from evenhand.engines.heads.reading import ResponseReader
from evenhand.engines.heads.training import TrainingSource, TrainingTable, train
from evenhand.engines.heads.vectors import MemoryVectors, content_key, to_vector
from evenhand.engines.llama import LlamaEngine
from evenhand.engines.scripted import ScriptedEngine
from evenhand.results.labelled_pairs import labelled_pairs, stacked_verdicts
from evenhand.store import Store
from evenhand.views.api import Judge


def shown(prompt: Prompt) -> list[str]:
    return [span.text for span in prompt.turns[-1].spans if not span.trusted]


def facts(text: str) -> float:
    return float(text.split()[1])


def style(prompt: Prompt) -> list[float]:
    """The states know how a response is written, and nothing of its facts."""
    return [float(shown(prompt)[-1].split()[0]), 1.0]


def by_facts(prompt: Prompt) -> dict[str, float]:
    """The asked judge knows the facts, and leans to what stands first."""
    *_, one, two = shown(prompt)
    a = 1 / (1 + np.exp(-(facts(one) - facts(two)) - 0.3))
    return {"A": a * 0.9, "B": (1 - a) * 0.9, "tie": 0.1}


def pairs(count: int, seed: int = 0) -> list[Pair]:
    """People look at both."""
    dice = np.random.default_rng(seed)
    found = []
    for n in range(count):
        numbers = dice.normal(size=(2, 2)).round(3) * 2
        one, two = (f"{style} {facts} word" for style, facts in numbers)
        gap = float((numbers[0] - numbers[1]).sum() + 0.3 * dice.logistic())
        found.append(Pair(f"Task {n // 2}", one, two, labels={"overall": "1" if gap > 0 else "2"}))
    return found


def asked(db: Path, given: list[Pair]) -> None:
    with Judge(ScriptedEngine(by_facts, name="asked"), protocol="overall", db=db) as judge:
        assert len(list(judge.judge(given))) == len(given)


def reader() -> ScriptedEngine:
    return ScriptedEngine(lambda prompt: "A", states=style, name="states")


def learned(db: Path, given: list[Pair]) -> tuple[Head, dict[str, float | None]]:
    """A head on the judge of a database, and what is said of it."""
    with Store(db) as store:
        labelled = [each.pair for each in labelled_pairs(store)]
        stacked = stacked_verdicts(store, store.judges(), labelled)
    texts = list(dict.fromkeys((p.instruction, text) for p in given for text in (p.output_1, p.output_2)))
    states = np.array([[float(text.split()[0]), 1.0] for _, text in texts])
    table = TrainingTable(states, {content_key(*text): n for n, text in enumerate(texts)}, stacked)
    found = train("stacked", reader(), table, [TrainingSource("db", labelled)])
    said = {
        "held out": found.learned["overall"].held_out.accuracy.value,
        "alone": found.alone["overall"].value,
        "left out": found.left_out["overall"],
        **found.named_parts("overall"),
    }
    return found.head, said


def test_what_states_do_not_know_is_taken_from_a_judge_that_was_asked(tmp_path: Path) -> None:
    db, given = tmp_path / "e.db", pairs(160)
    asked(db, given)
    head, said = learned(db, given)
    assert said["alone"] == pytest.approx(0.75, abs=0.08)
    assert (said["held out"] or 0) > 0.9
    assert said["left out"] == 0
    assert said["asked / overall, overall"] == pytest.approx(said["states"], rel=0.4)  # people weigh them the same
    head.save(tmp_path / "stacked.json")
    again = Head.load(tmp_path / "stacked.json")
    assert again.judges == head.judges == (StackedJudge(head.judges[0].fingerprint, "asked", "overall"),)
    assert again.fingerprint == head.fingerprint


def test_a_stacked_head_judges_what_the_other_has_judged_and_says_what_it_misses(tmp_path: Path) -> None:
    db, given, fresh = tmp_path / "e.db", pairs(160), pairs(30, seed=1)
    asked(db, given)
    head, _ = learned(db, given)
    asked(db, fresh[:20])
    with Judge(HeadEngine(head, reader()), db=db) as judge:
        first = {j.pair.key: j["overall"] for j in judge.judge(fresh)}
    there, missing = [first[p.key] for p in fresh[:20]], [first[p.key] for p in fresh[20:]]
    assert [each.invalid for each in missing] == [NOT_JUDGED] * 10
    right = [each.side == p.labels["overall"] for each, p in zip(there, fresh, strict=False)]
    assert sum(right) >= 17
    assert not any(each.inconsistent for each in there), "the other's lean to a place is pooled away"
    for each in there:
        assert each.p_in("forward") == pytest.approx(each.p_in("swapped"))
    asked(db, fresh[20:])
    with Judge(HeadEngine(head, reader()), db=db) as judge:  # the same run once more completes the table
        assert all(j["overall"].side for j in judge.judge(fresh))
    turned = [p.turned() for p in fresh]  # the other judged them the other way round
    with Judge(HeadEngine(head, reader()), db=db) as judge:
        for judgment in judge.judge(turned):
            before = first[judgment.pair.turned().key].p
            if before is not None:
                p = judgment["overall"].p or {}
                assert [p["1"], p["2"]] == pytest.approx([before["2"], before["1"]])


def test_a_verdict_that_the_other_does_not_have_is_no_zero(tmp_path: Path) -> None:
    db = tmp_path / "e.db"
    with Judge(ScriptedEngine(lambda prompt: "dunno", name="mute"), protocol="overall", db=db) as judge:
        judge.compare("Task", "1 1 word", "2 2 word")
        fingerprint = judge.setup.fingerprint
    weights = Weights(np.ones(2), {f"{fingerprint}:overall": 1.0})
    head = Head(
        "h", "states", "", None, {"overall": weights}, judges=(StackedJudge(fingerprint, "mute", "overall"),)
    )
    with Judge(HeadEngine(head, reader()), db=db) as judge:
        assert judge.compare("Task", "1 1 word", "2 2 word")["overall"].invalid == NOT_JUDGED
    bare = HeadEngine(head, reader())
    with pytest.raises(EngineError, match="no database"):
        asyncio.run(bare.answer(bare.protocol.prompt(Pair("a", "1 b", "2 c"), "forward")))
    with pytest.raises(SpecError, match="also needs"):
        HeadEngine(Head("h", "states", "", None, {"overall": weights}), reader())


def test_labels_without_a_verdict_of_the_other_are_left_out_and_counted(tmp_path: Path) -> None:
    db, given = tmp_path / "e.db", pairs(100)
    asked(db, given[:60])
    with Store(db) as store:
        store.add_pairs(given)
    assert learned(db, given)[1]["left out"] == 40


def test_features_of_any_size_are_weighed_alike() -> None:
    """Standardised: a judge that speaks in log-odds of hundreds has the same say as one of hundredths."""
    dice = np.random.default_rng(3)
    states, other = dice.normal(size=(400, 3)), dice.normal(size=200)
    gap = states[:200, 0] - states[200:, 0] + 2 * other + 0.3 * dice.logistic(size=200)
    found = []
    for size in (1e-3, 1.0, 1e3):
        features = np.column_stack([np.zeros(200), size * other])
        labels = Labels(
            np.arange(200), np.arange(200, 400), (gap > 0).astype(float), np.arange(200), features, ("length", "x")
        )
        found.append(learn(states, labels, with_curve=False))
    assert len({each.held_out.accuracy.value for each in found}) == 1
    assert found[0].parts["x"] == pytest.approx(found[2].parts["x"])


@pytest.mark.engine
def test_the_command_weighs_a_judge_of_the_database(smollm: ModelFile, tmp_path: Path) -> None:
    db, head, given, fresh = tmp_path / "e.db", tmp_path / "mine.json", pairs(24), pairs(2, seed=2)
    asked(db, given)
    known(db, smollm, [*given, *fresh])
    words = ("--out", head, "--judge", smollm.name)
    fields = json.loads(evenhand("learn", "--db", db, "--with", "overall", *words, "--json").stdout)
    found = fields["learned"]["overall"]
    assert found["weighs"].keys() == {"states", "length", "asked / overall, overall"}
    assert found["states_alone"]["n"] == found["held_out"]["n"] == 24
    judge = ("judge", "--judge", f"head:{head}", "--db", db, "--json")
    done = json.loads(evenhand(*judge, write(tmp_path, given)).stdout)
    assert done["dimensions"]["overall"]["n"] == 24
    done = json.loads(evenhand(*judge, write(tmp_path, fresh), code=3).stdout)
    assert NOT_JUDGED in json.dumps(done)
    text = evenhand("learn", "--db", db, "--with", "asked", *words).stdout
    assert "the states alone have" in text
    assert "asked / overall, overall: " in text
    assert "head:mine / head, overall: " in text
    assert "(it may have been trained on these labels)" in text
    refused = evenhand("learn", "--db", db, "--with", "head:mine", *words, code=2)
    assert "may have learned from these very labels" in refused.stderr.replace("\n", " ")
    refused = evenhand("learn", tmp_path / "24.jsonl", "--with", "overall", *words, code=2)
    assert "--with weighs judges of a database" in refused.stderr


def known(db: Path, model: ModelFile, given: list[Pair]) -> None:
    """States as if the model had read the responses: the command then loads no model."""
    reader = ResponseReader(LlamaEngine(model), MemoryVectors())
    texts = [(p.instruction, text) for p in given for text in (p.output_1, p.output_2)]
    with Store(db) as store:
        store.vectors.of(reader.reader_name).put(
            {content_key(*text): to_vector([float(text[1].split()[0]), 1.0, 0.0]) for text in texts}
        )


def write(folder: Path, given: list[Pair]) -> Path:
    rows = [
        {"instruction": p.instruction, "output_1": p.output_1, "output_2": p.output_2, "labels": dict(p.labels)}
        for p in given
    ]
    path = folder / f"{len(given)}.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), "utf-8")
    return path
