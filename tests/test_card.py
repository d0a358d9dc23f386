"""The judge's card: from a database with labels to facts, tables and a verdict on the judge."""

from __future__ import annotations

import json
import random
import re
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest

from evenhand import Judge, Pair, Protocol, ScriptedEngine, Store
from evenhand.core.protocol import Prompt
from evenhand.core.stats.multiple import holm
from evenhand.results.card import Card, Contender, card_of, compare, drag_of
from evenhand.results.evidence import Evidence, gather
from evenhand.results.judges import choose_judges
from evenhand.results.people import People
from evenhand.results.plain import plain
from evenhand.results.run import judge_summary
from evenhand.store import HumanLabel
from test_cli import evenhand, fields_of

PAIRS = 120
Script = Callable[[Prompt], dict[str, float] | str]


def pairs_with_votes(count: int = PAIRS, *, people: int = 3, noise: float = 0.15, seed: int = 0) -> list[Pair]:
    """Pairs of a good and a bad response, either side, each labelled by people who err now and then."""
    rng = random.Random(seed)
    found = []
    for number in range(count):
        good_first = rng.random() < 0.5
        outputs = ["good " + "x" * rng.randrange(20), "bad " + "y" * rng.randrange(20)]
        one, two = outputs if good_first else outputs[::-1]
        right = "A" if good_first else "B"
        wrong = "B" if good_first else "A"
        votes = [wrong if rng.random() < noise else right for _ in range(people)]
        found.append(Pair(f"Task {number // 2}.", one, two, f"p{number}", metadata={"human": votes}))
    return found


def shown(prompt: Prompt) -> tuple[str, str]:
    """The two responses in the order in which the judge sees them, by their first word."""
    text = prompt.turns[-1].text if "good" in prompt.turns[-1].text else "".join(t.text for t in prompt.turns)
    return ("good", "bad") if text.rfind("good") < text.rfind("bad") else ("bad", "good")


def judge_that_knows(sure: float, lean: float = 0.0) -> Script:
    """A judge that is this sure of the good response, and leans to the first place in log-odds."""

    def script(prompt: Prompt) -> dict[str, float]:
        odds = np.log(sure / (1 - sure)) * (1 if shown(prompt)[0] == "good" else -1) + lean
        p = 0.95 / (1 + np.exp(-odds))
        return {"A": float(p), "B": float(0.95 - p), "tie": 0.05}

    return script


def judged(db: Path, script: Script, protocol: str = "overall", pairs: list[Pair] | None = None) -> None:
    with Judge(ScriptedEngine(script), protocol, db=db) as judge:
        list(judge.judge(pairs if pairs is not None else pairs_with_votes()))


def evidence(db: Path, protocol: str = "overall", dimension: str = "overall") -> Evidence:
    with Store(db) as store:
        row = next(row for row in store.judges() if row.protocol == protocol)
        return gather(store, row, People(store))[dimension]


def card(db: Path) -> Card:
    return card_of(evidence(db))


def test_the_card_shows_what_hearing_both_sides_buys(db: Path) -> None:
    """A judge that always says A, and whose probabilities still move with the content."""
    judged(db, judge_that_knows(0.6, lean=3.0))
    found = card(db)
    assert (found.pairs, found.labelled, found.decided, found.instructions) == (PAIRS, PAIRS, PAIRS, PAIRS // 2)
    assert found.biases.position_bias.value == 1.0
    assert found.biases.flips.value == 1.0
    hard, both, pooled = (found.readings[name].decided for name in ("forward_hard", "both_hard", "pooled"))
    assert hard.value == pytest.approx(0.5, abs=0.1)
    assert both.value == 0.5
    assert pooled.value is not None
    assert pooled.value > 0.85
    assert found.gain.low is not None
    assert found.gain.low > 0.2
    assert found.trust == "yes"
    assert "deserves trust" in found.verdict


def test_a_judge_that_cannot_tell_is_not_trusted(db: Path) -> None:
    judged(db, lambda prompt: {"A": 0.6, "B": 0.3, "tie": 0.1})
    found = card(db)
    assert found.readings["pooled"].decided.value == 0.5, "equal after pooling, so a tie, worth one half"
    assert found.readings["pooled"].three_way.value == 0.0
    assert found.trust == "unknown"
    assert "cannot be told from a coin" in found.verdict


def test_a_judge_that_is_wrong_is_not_trusted(db: Path) -> None:
    judged(db, judge_that_knows(0.2))
    assert card(db).trust == "no"
    assert "fewer than a coin" in card(db).verdict


def test_a_judge_that_only_counts_characters_is_not_trusted(db: Path) -> None:
    """People prefer the longer output here, so the judge looks good, and is no better than a ruler."""
    rng = random.Random(3)
    pairs = []
    for number in range(PAIRS):
        texts = ["x" * 40, "y" * 10]
        rng.shuffle(texts)
        votes = ["A" if len(texts[0]) > len(texts[1]) else "B"] * 2
        pairs.append(Pair(f"Task {number}.", texts[0], texts[1], f"p{number}", metadata={"human": votes}))

    def script(prompt: Prompt) -> dict[str, float]:
        text = prompt.turns[-1].text
        first = text.rfind("x" * 40) < text.rfind("y" * 10)
        return {"A": 0.8, "B": 0.1, "tie": 0.1} if first else {"A": 0.1, "B": 0.8, "tie": 0.1}

    judged(db, script, pairs=pairs)
    found = card(db)
    assert found.readings["pooled"].decided.value == 1.0
    assert found.longer.value == 1.0
    assert found.biases.length_bias.value == 0.0
    assert found.trust == "unknown"
    assert "longer output" in found.verdict


def test_a_judge_below_one_person_is_trusted_with_care(db: Path) -> None:

    def script(prompt: Prompt) -> dict[str, float]:
        wrong = re.search(r"Task \d*[37]\.", prompt.turns[-1].text)  # on every fifth instruction
        first = (shown(prompt)[0] == "good") == (wrong is None)
        return {"A": 0.7, "B": 0.2, "tie": 0.1} if first else {"A": 0.2, "B": 0.7, "tie": 0.1}

    judged(db, script, pairs=pairs_with_votes(300, noise=0.02))
    found = card(db)
    assert found.ceiling is not None
    assert found.ceiling.gap.high is not None
    assert found.ceiling.gap.high < 0
    assert found.trust == "limited"
    assert "not in place of people" in found.verdict


def test_few_labels_are_too_few_and_low_mass_is_no_judge(db: Path, tmp_path: Path) -> None:
    judged(db, judge_that_knows(0.9), pairs=pairs_with_votes(20))
    assert card(db).trust == "unknown"
    assert "Too few labels" in card(db).verdict
    with closing(sqlite3.connect(db)) as base, base:
        base.execute("UPDATE verdicts SET mass = 0.1")
        base.execute("INSERT INTO dirty SELECT id FROM pairs")  # what is made of them is made anew
    assert card(db).trust == "no"
    assert "Not a judge" in card(db).verdict


def test_invalid_verdicts_are_a_share_and_in_no_accuracy(db: Path) -> None:
    right = judge_that_knows(0.9)
    judged(db, lambda prompt: "I will not say." if "Task 1" in prompt.turns[-1].text else right(prompt))
    found = card(db)
    assert found.biases.invalid.value == pytest.approx(22 / 120)
    assert found.readings["pooled"].decided.n == 98
    assert "invalid" in found.verdict
    assert found.trust == "limited"


def test_pairs_without_a_majority_are_contested(db: Path) -> None:
    pairs = [*pairs_with_votes(40), Pair("Odd", "good", "bad", "odd", metadata={"human": ["A", "B"]})]
    judged(db, judge_that_knows(0.9), pairs=pairs)
    found = card(db)
    assert (found.pairs, found.labelled, found.contested) == (41, 40, 1)


def test_labels_that_were_imported_count_like_those_of_the_file(db: Path, tmp_path: Path) -> None:
    """The same votes, once in the pairs' file and once in the table, make the same card."""
    judged(db, judge_that_knows(0.7))
    other = tmp_path / "other.db"
    voted = pairs_with_votes()
    judged(other, judge_that_knows(0.7), pairs=[Pair(p.instruction, p.output_1, p.output_2, p.id) for p in voted])
    with Store(other) as store:
        store.labels.add(
            HumanLabel(pair.key, "overall", f"annotator {place}", "1" if vote == "A" else "2", design="imported")
            for pair in voted
            for place, vote in enumerate(pair.metadata["human"], 1)
        )
    assert plain(card(other)) == plain(card(db))


def test_hard_verdicts_without_probabilities_have_a_card(db: Path) -> None:
    judged(db, lambda prompt: "A" if shown(prompt)[0] == "good" else "B")
    found = card(db)
    assert found.biases.flips.value == 0.0
    assert found.biases.label_mass.value is None
    assert found.readings["pooled"].decided.value == found.readings["both_hard"].decided.value


def test_one_order_alone_has_a_card_without_flips(db: Path) -> None:
    with Judge(ScriptedEngine(judge_that_knows(0.8)), "overall", db=db, orders="forward") as judge:
        list(judge.judge(pairs_with_votes()))
    found = card(db)
    assert found.biases.flips.value is None
    assert found.biases.position_bias.n == 0
    assert found.readings["both_hard"].decided.value is None
    assert found.readings["pooled"].decided.value == found.readings["forward_hard"].decided.value


def test_the_facts_are_plain(db: Path) -> None:
    judged(db, judge_that_knows(0.8))
    fields = plain(card(db))
    assert json.loads(json.dumps(fields)) == json.loads(json.dumps(fields, sort_keys=True))
    assert {tuple(k["people"]) for k in fields["people"]["kappas"]} == {
        ("annotator 1", "annotator 2"),
        ("annotator 1", "annotator 3"),
        ("annotator 2", "annotator 3"),
    }


# -- several judges -------------------------------------------------------------------------------------------


def test_judges_are_compared_on_the_pairs_that_both_have_heard(db: Path) -> None:
    pairs = pairs_with_votes()
    judged(db, judge_that_knows(0.9), "overall", pairs[:100])
    judged(db, judge_that_knows(0.2), "holistic", pairs[20:])
    good, bad = (Contender(name, evidence(db, name)) for name in ("overall", "holistic"))
    found = compare([good, bad], "overall")
    assert (found.pairs, [row.judged for row in found.rows]) == (80, [100, 100])
    first, second = found.rows
    assert first.ahead is None
    assert second.ahead is not None
    assert first.decided.value is not None
    assert second.decided.value is not None
    assert second.ahead.value == pytest.approx(second.decided.value - first.decided.value)
    assert second.ahead.high is not None
    assert second.ahead.high < 0
    back = compare([bad, good], "overall").rows[1].ahead
    assert back is not None
    assert [back.value, back.low, back.high] == pytest.approx(
        [-(x or 0) for x in (second.ahead.value, second.ahead.high, second.ahead.low)]
    )


def test_a_judge_is_named_by_protocol_model_both_or_fingerprint(db: Path) -> None:
    judged(db, judge_that_knows(0.9), "overall", pairs_with_votes(2))
    judged(db, judge_that_knows(0.9), "chained", pairs_with_votes(2))
    with Store(db) as store:
        rows = store.judges()
    model = rows[0].model
    for spec, expected in (
        ("overall", [("overall", "")]),
        (f"{model}/chained", [("chained", "")]),
        (model, [("overall", ""), ("chained", "")]),
        (rows[1].fingerprint[:6], [("chained", "")]),
        ("chained:combined", [("chained", "combined")]),
        ("nobody", []),
        ("", []),
    ):
        assert [(row.protocol, dimension) for row, dimension in choose_judges(rows, spec)] == expected, spec


def test_drag_is_what_the_chain_does_to_the_same_question(db: Path) -> None:
    """Alone the judge is right; in the chain it is wrong from the first answer on."""
    judged(db, judge_that_knows(0.9), "overall")
    judged(db, judge_that_knows(0.1), "chained")
    chain, alone = (Contender(name, evidence(db, name)) for name in ("chained", "overall"))
    found = drag_of(chain, alone)
    assert found is not None
    assert (found.pairs, found.turned.value, found.followed.value) == (PAIRS, 1.0, 1.0)
    assert found.gain.value is not None
    assert found.gain.value < -0.5
    assert drag_of(chain, Contender("nobody", evidence(db, "overall").take([]))) is None


# -- the command line -------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def two_judges(tmp_path_factory: pytest.TempPathFactory) -> Path:
    db = tmp_path_factory.mktemp("card") / "two.db"
    judged(db, judge_that_knows(0.7, lean=1.0), "overall")
    judged(db, judge_that_knows(0.6, lean=1.0), "chained")
    return db


def test_the_command_prints_cards_and_drag(two_judges: Path) -> None:
    done = evenhand("card", "--db", two_judges, COLUMNS="100")
    for words in ("under overall", "under chained", "combined:", "right side", "position bias", "Drag", "trust"):
        assert words in done.stdout
    assert "precision:" not in done.stdout, "nobody has labelled precision"


def test_the_command_compares(two_judges: Path) -> None:
    done = evenhand("card", "overall", "chained", "--db", two_judges, COLUMNS="80")
    assert "the same 120 labelled pairs" in done.stdout
    assert "chained:combined" in done.stdout
    assert max(len(line) for line in done.stdout.splitlines()) <= 80
    [found] = fields_of(evenhand("card", "overall", "chained:combined", "--db", two_judges, "--json"))[
        "comparisons"
    ]
    assert [(row["name"], row["dimension"]) for row in found["rows"]] == [
        ("overall", "overall"),
        ("chained", "combined"),
    ]


def test_margin_and_target_are_the_users_and_are_shown(two_judges: Path) -> None:
    words = ("card", "overall", "--db", two_judges)
    shown = evenhand(*words).stdout
    assert "Trust is held against one person, less a margin of 10 points." in " ".join(shown.split())
    shown = evenhand(*words, "--target", "0.6", "--margin", "0.025").stdout
    assert "Trust is held against the target of 60%, less a margin of 2.5 points." in " ".join(shown.split())

    def trust_at(target: str) -> str:
        [judge] = fields_of(evenhand(*words, "--target", target, "--json"))["judges"]
        found = judge["dimensions"]["overall"]
        assert (found["target"], found["margin"]) == (float(target), 0.1)
        return str(found["trust"])

    assert (trust_at("0.6"), trust_at("1.0")) == ("yes", "limited")
    assert "--margin" in evenhand(*words, "--margin", "0.7", code=2).stderr


def test_several_judges_less_the_first_are_corrected_together(two_judges: Path) -> None:
    [found] = fields_of(evenhand("card", "overall", "chained", "--db", two_judges, "--json"))["comparisons"]
    first, *others = found["rows"]
    assert (first["ahead_p"], first["ahead_p_holm"]) == (None, None)
    p = [row["ahead_p"] for row in others]
    assert len(p) == 2
    assert [row["ahead_p_holm"] for row in others] == pytest.approx(holm(p).tolist())
    for row in others:
        low, high = row["ahead"]["low"], row["ahead"]["high"]
        assert (row["ahead_p"] < 0.05) == (not low <= 0 <= high)
    shown = evenhand("card", "overall", "chained", "--db", two_judges).stdout
    assert "2 tests at once" in shown


def test_databases_are_compared(two_judges: Path, db: Path) -> None:
    judged(db, judge_that_knows(0.95), "overall")
    [found] = fields_of(evenhand("card", two_judges, db, "--json"))["comparisons"]
    assert [row["name"] for row in found["rows"]] == [
        "two: overall",
        "two: chained",
        "two: chained",
        "evenhand: overall",
    ]


def test_the_same_database_gives_the_same_bytes(two_judges: Path) -> None:
    one, two = (evenhand("card", "--db", two_judges, "--json").stdout for _ in range(2))
    assert one == two


def test_without_labels_the_card_tells_biases_and_says_what_is_missing(db: Path) -> None:
    plain = [Pair(p.instruction, p.output_1, p.output_2, p.id) for p in pairs_with_votes(40)]
    judged(db, judge_that_knows(0.7, lean=3.0), pairs=plain)
    done = evenhand("card", "--db", db)
    assert done.stdout.count("No labels yet") == 1
    assert "evenhand serve to label here, evenhand labels import FILE to bring some" in " ".join(
        done.stdout.split()
    )
    assert "overall: 40 pairs, none with a label" in done.stdout
    assert "position bias" in done.stdout
    assert "right side" not in done.stdout


def test_a_plot_of_one_curve(two_judges: Path, tmp_path: Path) -> None:
    file = tmp_path / "curve.svg"
    done = evenhand("card", "overall", "--db", two_judges, "--plot", file)
    assert done.stdout.endswith(f"wrote {file}\n")
    assert file.read_text("utf-8").startswith("<svg")
    assert "one curve" in evenhand("card", "--db", two_judges, "--plot", file, code=2).stderr


def test_the_command_refuses_what_it_cannot_use(two_judges: Path, db: Path) -> None:
    assert "no database" in evenhand("card", "--db", db, code=2).stderr
    wrong = evenhand("card", "overall", "nobody", "--db", two_judges, code=2).stderr
    assert "no judge called nobody" in wrong
    assert "overall, chained" in wrong
    assert "no verdicts on taste" in evenhand("card", "--db", two_judges, "-d", "taste", code=2).stderr
    alone = evenhand("card", "overall", "chained:format", "--db", two_judges, code=2).stderr
    assert "no labelled pair in common" in alone


def test_untrusted_names_stay_text(db: Path) -> None:
    pair = Pair("Hi", "good", "bad", "p", metadata={"human": {"\x1b[31m[bold]": "A", "ben": "A"}})
    judged(db, judge_that_knows(0.9), pairs=[pair])
    assert "\x1b" not in evenhand("card", "--db", db).stdout


def test_the_protocols_of_the_tests_are_what_they_seem() -> None:
    assert len(Protocol.load("chained").questions) == 4
    assert Protocol.load("overall").dimensions == ("overall",)


def test_the_label_mass_is_that_of_results_where_one_order_is_invalid(db: Path) -> None:
    def script(prompt: Prompt) -> str | dict[str, float]:
        text = prompt.turns[-1].text
        if "half" not in text:
            return {"A": 0.9, "B": 0.1}
        return {"A": 0.3, "B": 0.1} if text.index("one") < text.index("two") else "no idea"

    pairs = [Pair(f"Q{n}", "one", "two") for n in range(3)] + [
        Pair(f"{n}", "one half", "two half") for n in range(3)
    ]
    with Judge(ScriptedEngine(script), "overall", db=db) as judge:
        list(judge.judge(pairs))
        row = judge.store.judges()[0]
        card = card_of(gather(judge.store, row, People(judge.store))["overall"])
        summary = judge_summary(judge.store, row).summary.dimensions["overall"]
    assert summary.invalid == 3
    assert card.biases.label_mass.value == summary.label_mass == 1.0
