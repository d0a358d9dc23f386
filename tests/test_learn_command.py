"""evenhand learn, and a head that judges, with a real model."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest

from command import evenhand
from evenhand.core.pair import Pair
from evenhand.engines.catalog import ModelFile
from evenhand.engines.heads.head import Head
from evenhand.engines.heads.learning import CannotLearnError
from evenhand.engines.heads.training import TrainingSource, TrainingTable, check, train
from evenhand.engines.heads.vectors import content_key
from evenhand.engines.scripted import ScriptedEngine
from evenhand.store import Store

COLOURS = ("red", "blue", "green", "grey", "pink", "brown", "black", "white", "gold", "teal", "plum", "rust")


def labelled(count: int) -> list[dict[str, object]]:
    """Pairs in which a sentence beats noise."""
    rows: list[dict[str, object]] = []
    for n in range(count):
        good, bad = f"{COLOURS[n % 12]} is a colour.", f"zz {n} qq xx"
        sides = (good, bad) if n % 2 else (bad, good)
        label = {"overall": "1" if n % 2 else "2"}
        task = f"Name a colour, please ({n % 12})."
        rows.append({"instruction": task, "output_1": sides[0], "output_2": sides[1], "labels": label})
    return rows


def both_ways(rows: list[dict[str, object]]) -> list[dict[str, object]]:
    """Each pair once more with its sides changed over: twice the labels, and no new text for a model to read."""
    turned = []
    for row in rows:
        label = {"overall": "2" if row["labels"] == {"overall": "1"} else "1"}
        turned.append({**row, "output_1": row["output_2"], "output_2": row["output_1"], "labels": label})
    return rows + turned


def write(path: Path, rows: list[dict[str, object]]) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), "utf-8")
    return path


def vectors_of(db: Path) -> list[dict[str, int]]:
    return json.loads(evenhand("vectors", "--db", db, "--json").stdout)["readers"]  # type: ignore[no-any-return]


def hand_over(kept: Path, db: Path, count: int) -> None:
    """Put so many of the states that were read once into a database, as if they had cost no tokens."""
    with Store(db) as store, closing(sqlite3.connect(kept)) as file:
        for reader, key, blob in file.execute("SELECT reader, key, vector FROM vectors LIMIT ?", (count,)):
            store.vectors.of(reader).put({key: np.frombuffer(blob, "<f2")})


@pytest.mark.engine
def test_a_head_is_learned_and_judges(smollm: ModelFile, tmp_path: Path) -> None:
    rows = both_ways(labelled(10))
    pairs, head = write(tmp_path / "pairs.jsonl", rows), tmp_path / "mine.json"
    words = ("learn", pairs, "--out", head, "--judge", smollm.name, "--threads", "1", "--context", "512")
    fields = json.loads(evenhand(*words, "--json").stdout)
    assert fields["learned"]["overall"]["labels"] == 20
    assert fields["learned"]["overall"]["held_out"]["value"] > 0.9
    assert Head.load(head).trained_on[0].name == "pairs"
    given = evenhand(*words)  # the states are kept: nothing is read again
    assert "with your 20 labels" in given.stdout
    db = tmp_path / "h.db"
    hand_over(head.with_suffix(".vectors"), db, 17)
    asked = ("judge", pairs, "--judge", f"head:{head}", "--db", db, "--threads", "1", "--json")
    found = json.loads(evenhand(*asked).stdout)
    assert found["dimensions"]["overall"]["agreement"]["n"] == 20
    again = json.loads(evenhand("results", "--db", db, "--json").stdout)
    assert "head:mine" in json.dumps(again)
    [read] = vectors_of(db)
    assert read["vectors"] == 20
    assert 3 * 60 < read["tokens"] < 3 * 120, "the three that were missing are read, once each"
    learned = ("learn", "--db", db, "--out", tmp_path / "own.json", *words[4:])
    own = json.loads(evenhand(*learned, "--json").stdout)["learned"]["overall"]
    assert (own["labels"], own["judges"][0]["judge"], own["judges"][0]["n"]) == (20, "head:mine / head", 20)
    assert [each["vectors"] for each in vectors_of(db)] == [20], "what a judge has read is not read again"
    dropped = evenhand("vectors", "--db", db, "--export", tmp_path / "v.npz", "--drop")
    assert dropped.stdout.startswith("20 vectors in ")
    assert vectors_of(db) == []
    assert np.load(tmp_path / "v.npz")["vector"].shape == (20, 576)
    refused = evenhand("judge", pairs, "--judge", f"head:{head}", "--protocol", "four", "--db", db, code=2)
    assert "takes no protocol" in refused.stderr


def test_too_few_labels_are_refused_before_anything_is_read(tmp_path: Path) -> None:
    few = write(tmp_path / "few.jsonl", labelled(8))
    given = evenhand("learn", few, "--out", tmp_path / "h.json", "--judge", "no-such-model", code=2)
    assert "8 decided labels are too few" in given.stderr.replace("\n", " ")
    assert not (tmp_path / "h.json").exists()
    none = write(tmp_path / "none.jsonl", [{**row, "labels": {}} for row in labelled(8)])
    given = evenhand("learn", none, "--out", tmp_path / "h.json", "--judge", "no-such-model", code=2)
    assert "none of these pairs has a label" in given.stderr.replace("\n", " ")


def test_a_dimension_that_cannot_be_learned_does_not_keep_others_from_it() -> None:
    rows = [
        Pair(str(r["instruction"]), str(r["output_1"]), str(r["output_2"]), labels={**r["labels"], "format": "tie"})  # type: ignore[dict-item]
        for r in labelled(40)
    ]
    source = TrainingSource("mine", rows, "MIT")
    check([source])
    texts = dict.fromkeys((p.instruction, t) for p in rows for t in (p.output_1, p.output_2))
    states = np.random.default_rng(0).normal(size=(len(texts), 6))
    states[:, 0] += [5.0 if "colour." in text else -5.0 for _, text in texts]
    table = TrainingTable(states, {content_key(*text): n for n, text in enumerate(texts)})
    trained = train("mine", ScriptedEngine(lambda prompt: "A"), table, [source], length=0.0)
    assert trained.head.dimensions == ("overall",)
    assert "every label says tie" in trained.refused["format"]
    assert trained.head.weights["overall"].features == {"length": 0.0}
    assert trained.sentence("overall").startswith("overall: with your 40 labels 100% (")
    assert trained.head.held_out[0].value == 1.0
    with pytest.raises(CannotLearnError, match="format: every label says tie"):
        check([TrainingSource("mine", [Pair("a", "b", str(n), labels={"format": "tie"}) for n in range(40)])])
