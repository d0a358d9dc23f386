"""Facts for the views: against naive counting, and the same from either side."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from evenhand.core.columns import Block
from evenhand.core.engine import Usage
from evenhand.core.judge import Conversation, Judgment
from evenhand.core.pair import Pair, Side
from evenhand.core.protocol import ORDERS, Order
from evenhand.core.stats.clusters import Weighting
from evenhand.core.stats.multiple import holm
from evenhand.core.stats.winrate import mean_rate
from evenhand.core.verdict import LABELS, SIDES, Label, Verdict, invalid
from evenhand.results.answer import answer_of
from evenhand.results.counting import DEFAULT, WEIGHTINGS, Counting
from evenhand.results.judgments import judged_pair
from evenhand.results.plain import plain
from evenhand.results.summary import Counter, summarise

OTHER_SIDE: dict[str, Side] = {"1": "2", "2": "1", "tie": "tie"}


@st.composite
def verdicts(draw: st.DrawFn) -> Verdict:
    """A hard one, one with probabilities, or an invalid one."""
    kind = draw(st.sampled_from(["hard", "soft", "soft", "invalid"]))
    if kind == "invalid":
        return invalid(["overall"], draw(st.sampled_from(["too_long", "unreadable"])))[0]
    if kind == "hard":
        return Verdict("overall", draw(st.sampled_from(LABELS)))
    weights = [draw(st.integers(1, 1000)) for _ in LABELS]
    p: dict[Label, float] = {label: w / sum(weights) for label, w in zip(LABELS, weights, strict=True)}
    mass = draw(st.floats(0.01, 1.0))
    likeliest: Label = max(LABELS, key=lambda label: p[label])
    return Verdict("overall", likeliest, p, mass)


@st.composite
def judgments(draw: st.DrawFn) -> Judgment:
    known: Side | None = draw(st.sampled_from((None, *SIDES)))
    labels: dict[str, Side] = {"overall": known} if known else {}
    pair = Pair(draw(st.sampled_from(["Hi", "Ho", "Hu"])), draw(st.sampled_from("xy")), "z", labels=labels)
    orders: tuple[Order, ...] = draw(st.sampled_from((ORDERS, ORDERS[:1], ORDERS[1:])))
    return Judgment.of(pair, {order: Conversation({"overall": draw(verdicts())}) for order in orders})


def count(found: list[Judgment], **wanted: Any) -> int:
    return sum(all(getattr(j["overall"], key) == value for key, value in wanted.items()) for j in found)


EVERY_PAIR = Counting("pairs", keep_repeats=True)


def summed(found: list[Judgment], counting: Counting = EVERY_PAIR) -> dict[str, Any]:
    counter = Counter(["overall"], counting)
    for judgment in found:
        counter.add(judgment)
    fields: dict[str, Any] = plain(counter.summary())["dimensions"]["overall"]
    return fields


@settings(deadline=None)  # the first example may load numpy
@given(st.lists(judgments(), max_size=20))
def test_counts_are_those_of_naive_counting(found: list[Judgment]) -> None:
    fields = summed(found)
    valid = [j for j in found if j["overall"].side is not None]
    assert fields["n"] == len(valid)
    assert fields["invalid"] == len(found) - len(valid) == sum(fields["invalid_reasons"].values())
    assert fields["wins_1"] == count(found, side="1")
    assert fields["wins_2"] == count(found, side="2")
    assert fields["ties"] == count(found, side="tie")
    assert fields["inconsistent"] == count(found, inconsistent=True)
    if valid:
        assert fields["win_rate_1"] == pytest.approx((fields["wins_1"] + fields["ties"] / 2) / len(valid))
        assert fields["ci"][0] <= fields["win_rate_1"] <= fields["ci"][1]
    else:
        assert fields["win_rate_1"] is fields["ci"] is None


@settings(deadline=None)  # the first example may load numpy
@given(st.lists(judgments(), max_size=20))
def test_label_mass_is_the_mean_over_the_valid_hearings(found: list[Judgment]) -> None:
    masses = [
        verdict.mass
        for j in found
        if j["overall"].side is not None
        for verdict in j["overall"].orders.values()
        if verdict.mass is not None
    ]
    expected = pytest.approx(sum(masses) / len(masses)) if masses else None
    assert summed(found)["label_mass"] == expected


@settings(deadline=None)  # the first example may load numpy
@given(st.lists(judgments(), max_size=20))
def test_position_bias_is_first_less_second_over_pairs_heard_twice(found: list[Judgment]) -> None:
    twice = [j["overall"].orders for j in found if j["overall"].side and len(j["overall"].orders) == 2]
    shown = [verdict.label for orders in twice for verdict in orders.values()]
    expected = pytest.approx((shown.count("A") - shown.count("B")) / len(shown)) if shown else None
    assert summed(found)["position_bias"] == expected


@settings(deadline=None)  # the first example may load numpy
@given(st.lists(judgments(), max_size=20))
def test_agreement_is_that_of_naive_counting(found: list[Judgment]) -> None:
    labelled = [j for j in found if j.pair.labels and j["overall"].side]
    fields = summed(found)
    if not labelled:
        assert "agreement" not in fields
        return
    same = [j["overall"].side == j.pair.labels["overall"] for j in labelled]
    assert fields["agreement"]["n"] == len(labelled)
    assert fields["agreement"]["three_way"] == pytest.approx(sum(same) / len(same))
    decided = [j for j in labelled if j.pair.labels["overall"] != "tie"]
    assert fields["agreement"]["decided_n"] == len(decided)
    if decided:
        assert fields["agreement"]["decided"] == pytest.approx(sum(map(credit, decided)) / len(decided))


def credit(judgment: Judgment) -> float:
    """1 for the right side, one half where both are as likely."""
    p, known = judgment["overall"].p, judgment.pair.labels["overall"]
    assert p is not None
    right, wrong = p[known], p[OTHER_SIDE[known]]
    return 0.5 if right == pytest.approx(wrong, rel=1e-9) else float(right > wrong)


def mirrored(judgment: Judgment) -> Judgment:
    """The same conversations of the pair with its sides exchanged: what was forward is swapped."""
    orders: Mapping[Order, Order] = {"forward": "swapped", "swapped": "forward"}
    labels = {name: OTHER_SIDE[label] for name, label in judgment.pair.labels.items()}
    pair = Pair(judgment.pair.instruction, judgment.pair.output_2, judgment.pair.output_1, labels=labels)
    conversations = {orders[o]: Conversation({"overall": v}) for o, v in judgment["overall"].orders.items()}
    return Judgment.of(pair, conversations)


@settings(deadline=None)  # the first example may load numpy
@given(st.lists(judgments(), max_size=20), st.sampled_from(WEIGHTINGS), st.booleans())
def test_exchanging_the_sides_mirrors_every_fact(
    found: list[Judgment], weighting: Weighting, keep_repeats: bool
) -> None:
    counting = Counting(weighting, keep_repeats=keep_repeats)
    fields, back = (summed(some, counting) for some in (found, [mirrored(j) for j in found]))
    assert (fields["wins_1"], fields["wins_2"]) == (back["wins_2"], back["wins_1"])
    for same in ("n", "ties", "inconsistent", "invalid"):
        assert fields[same] == back[same]
    for same in ("label_mass", "position_bias"):
        assert back[same] == (None if fields[same] is None else pytest.approx(fields[same]))
    for reading, mirror in ((fields, back), (fields["expected"], back["expected"])):
        if fields["n"]:
            assert mirror["win_rate_1"] == pytest.approx(1 - reading["win_rate_1"], abs=1e-9)
            assert mirror["ci"] == pytest.approx([1 - end for end in reversed(reading["ci"])], abs=1e-9)
    assert (fields["clusters"], fields["small"]) == (back["clusters"], back["small"])
    assert back["p"] == (None if fields["p"] is None else pytest.approx(fields["p"]))
    if fields["invalid_bounds"]:
        assert back["invalid_bounds"] == pytest.approx([1 - end for end in reversed(fields["invalid_bounds"])])
    assert back.get("agreement") == (pytest.approx(fields["agreement"]) if "agreement" in fields else None)


@given(st.lists(judgments(), max_size=20), st.sampled_from(WEIGHTINGS))
def test_both_readings_are_those_of_the_plain_functions(found: list[Judgment], weighting: Weighting) -> None:
    fields = summed(found, Counting(weighting, keep_repeats=True))
    valid = [j for j in found if j["overall"].side]
    instructions = [j.pair.instruction for j in valid]
    values = [{"1": 1.0, "tie": 0.5, "2": 0.0}[str(j["overall"].side)] for j in valid]
    hard = mean_rate(values, instructions, weighting=weighting)
    shares = [j["overall"].p for j in valid]
    lean = mean_rate([p["1"] + p["tie"] / 2 for p in shares if p], instructions, weighting=weighting)
    assert fields["weighting"] == weighting
    names: dict[str, Weighting] = {"by_pair": "pairs", "by_instruction": "instructions"}
    for name, other in names.items():
        assert fields[name]["win_rate_1"] == mean_rate(values, instructions, weighting=other).value
    if hard.low is not None and hard.high is not None and fields["p"] is not None:
        assert (fields["p"] < 0.05) == (not hard.low <= 0.5 <= hard.high)
    assert fields["win_rate_1"] == hard.value
    assert fields["ci"] == (None if hard.low is None else [hard.low, hard.high])
    assert fields["expected"]["win_rate_1"] == lean.value
    assert fields["clusters"] == len(set(instructions))


@given(st.lists(judgments(), max_size=20))
def test_invalid_findings_bound_the_rate(found: list[Judgment]) -> None:
    fields = summed(found)
    if not fields["invalid"]:
        assert fields["invalid_bounds"] is None
        return
    won = sum({"1": 1.0, "tie": 0.5}.get(str(j["overall"].side), 0.0) for j in found)
    lost_all, won_all = won / len(found), (won + fields["invalid"]) / len(found)
    assert fields["invalid_bounds"] == pytest.approx([lost_all, won_all])
    instructions = [j.pair.instruction for j in found]
    worths = [
        [{"1": 1.0, "tie": 0.5, "2": 0.0}.get(str(j["overall"].side), end) for j in found] for end in (0.0, 1.0)
    ]
    by_instruction = [mean_rate(each, instructions, weighting="instructions").value for each in worths]
    fields = summed(found, Counting("instructions", keep_repeats=True))
    assert fields["invalid_bounds"] == pytest.approx(by_instruction)


@given(st.lists(judgments(), max_size=12))
def test_a_twin_of_every_pair_changes_no_rate(found: list[Judgment]) -> None:
    once, twice = summed(found), summed([*found, *found])
    for name in ("win_rate_1", "ci", "expected", "clusters", "invalid_bounds"):
        assert twice[name] == once[name]


@given(st.lists(judgments(), max_size=12), st.randoms())
def test_exact_repeats_change_nothing_at_all(found: list[Judgment], rng: Any) -> None:
    more = [*found, *(rng.choice(found) for _ in range(5 if found else 0))]
    assert summed(more, DEFAULT) == summed(once_each(more), DEFAULT)
    assert summed(once_each(more), DEFAULT) == summed(once_each(more), Counting(keep_repeats=True))


def once_each(found: list[Judgment]) -> list[Judgment]:
    """Of judgments on the same texts, the first that is valid, or else the first."""
    kept: dict[str, Judgment] = {}
    for judgment in found:
        known = kept.setdefault(judgment.pair.key, judgment)
        if known["overall"].side is None and judgment["overall"].side is not None:
            kept[judgment.pair.key] = judgment
    return list(kept.values())


def won(instruction: str, output: str, *, wins: bool, models: tuple[str, str] = ("", "")) -> Judgment:
    label: Label = "A" if wins else "B"
    pair = Pair(instruction, output, "z", model_1=models[0], model_2=models[1])
    return Judgment.of(pair, {"forward": Conversation({"overall": Verdict("overall", label)})})


def test_repeats_are_counted_and_told() -> None:
    counter = Counter()
    for wins, output in ((True, "x"), (True, "x"), (True, "x"), (False, "y")):
        counter.add(won("Hi", output, wins=wins))
    summary = counter.summary()
    assert (summary.pairs, summary.repeats, summary.dimensions["overall"].n) == (2, 2, 2)
    assert "2 exact repeats left out" in next(summary.notes())


def test_the_same_texts_of_other_models_are_no_repeat() -> None:
    counter = Counter()
    for models in (("a", "b"), ("b", "a"), ("a", "c"), ("a", "b")):
        counter.add(won("Hi", "x", wins=True, models=models))
    assert counter.summary().repeats == 1


def test_a_turned_block_is_told_from_one_that_stood_so() -> None:
    """(x of a, z of b) is no repeat of (x of b, z of a), also where the second was turned."""
    stood, turn = (Block.of([won("Hi", "x", wins=True, models=models)]) for models in (("a", "b"), ("b", "a")))
    assert stood.identities[0] != turn.turned().identities[0] == turn.identities[0]
    assert summarise([stood, turn.turned()]).repeats == 0


def test_more_pairs_on_one_instruction_do_not_widen_the_interval() -> None:
    """67 single pairs have .37 to .62; 33 more pairs on one instruction must not make that .05 to .95."""
    singles = [won(f"Task {n}", "x", wins=n % 2 == 0) for n in range(67)]
    more = [won("Task 0", f"x{n}", wins=True) for n in range(33)]
    alone, together = (summed(some, DEFAULT) for some in (singles, [*singles, *more]))
    assert alone["ci"] == pytest.approx([0.37, 0.62], abs=0.02)
    assert together["ci"] == pytest.approx(alone["ci"], abs=0.02)
    low, high = together["by_pair"]["ci"]
    assert high - low > 0.8, "this is what the other weighting makes of it"


@pytest.mark.parametrize("pairs", [1, 2, 3, 5, 10, 19, 20, 40, 100])
def test_how_many_more_pairs_it_takes_does_not_fall_with_fewer_pairs(pairs: int) -> None:
    counter = Counter(["overall"], EVERY_PAIR)
    for number in range(pairs):
        counter.add(won(f"Task {number}", "x", wins=number % 2 == 0))
    more = answer_of(counter.summary()).more_pairs
    assert more is not None
    assert 380 <= more + pairs <= 430


def test_more_pairs_on_few_instructions_are_as_many_instructions() -> None:
    counter = Counter(["overall"], EVERY_PAIR)
    for number in range(20):
        counter.add(won(f"Task {number // 2}", f"x{number}", wins=number % 4 < 2))
    assert answer_of(counter.summary()).more_pairs == 750, "770 pairs on 385 instructions, less those at hand"


def test_the_other_weighting_is_told_where_it_differs() -> None:
    counter = Counter()
    for judgment in (won("Hi", "x", wins=True), won("Hi", "y", wins=True), won("Ho", "x", wins=False)):
        counter.add(judgment)
    [note] = counter.summary().notes()
    assert note.startswith("In the win rates each instruction weighs the same. Where each pair weighs the same:")
    assert "overall 66.7%" in note
    assert counter.summary().dimensions["overall"].win_rate_1 == 0.5


def test_p_values_of_dimensions_are_corrected_together() -> None:
    counter = Counter()
    for n in range(40):
        said = {"precision": Verdict("precision", "A" if n % 2 else "B"), "format": Verdict("format", "A")}
        said["overall"] = Verdict("overall", "A" if n < 29 else "B")
        counter.add(Judgment.of(Pair(f"Task {n}", "x", "y"), {"forward": Conversation(said)}))
    found = counter.summary()
    p = {name: each.p or 0.0 for name, each in found.dimensions.items()}
    fixed = {name: each.p_holm or 0.0 for name, each in found.dimensions.items()}
    assert p["format"] < p["overall"] < 0.05 < p["precision"] == 1
    assert list(fixed.values()) == pytest.approx(holm(list(p.values())).tolist())
    assert fixed["overall"] > p["overall"]
    [note] = found.notes()
    assert note.startswith("4 tests at once: corrected for their number (Holm), these stand out: format, overall")


def test_a_summary_keeps_up_with_what_is_added() -> None:
    counter = Counter(counting=EVERY_PAIR)
    for count in range(1, 4):
        counter.add(judged(forward="A"))
        assert (counter.pairs, counter.summary().dimensions["overall"].n) == (count, count)


def test_a_length_without_meaning_has_a_reason() -> None:
    length = summed([judged(forward="A", swapped="B")])["length_controlled"]
    assert (length["win_rate_1"], length["ci"], length["reason"]) == (None, None, "fewer than 40 instructions")


def judged(**labels: Label) -> Judgment:
    """A judgment by hard verdicts."""
    orders: dict[str, Order] = {"forward": "forward", "swapped": "swapped"}
    conversations = {orders[o]: Conversation({"overall": Verdict("overall", label)}) for o, label in labels.items()}
    return Judgment.of(Pair("Hi", "x", "y", model_1="m", model_2="n"), conversations)


def test_a_judge_that_always_says_a_has_a_lift_of_one_and_no_winner() -> None:
    fields = summed([judged(forward="A", swapped="A")] * 3)
    assert fields["position_bias"] == 1
    assert (fields["ties"], fields["inconsistent"]) == (3, 3)


def test_a_judge_that_follows_the_content_has_no_lift() -> None:
    fields = summed([judged(forward="A", swapped="B")] * 3)
    assert fields["position_bias"] == 0
    assert (fields["wins_1"], fields["inconsistent"]) == (3, 0)


def test_one_order_alone_tells_nothing_of_the_position() -> None:
    assert summed([judged(forward="A")])["position_bias"] is None


def test_sides_are_named_after_the_models_where_all_pairs_have_the_same_two() -> None:
    counter = Counter(["overall"])
    assert counter.summary().sides == ("1", "2")
    counter.add(judged(forward="A"))
    assert counter.summary().sides == ("m", "n")
    counter.add(Judgment.of(Pair("Hi", "x", "y"), {"forward": Conversation({"overall": Verdict("overall", "A")})}))
    assert counter.summary().sides == ("1", "2")


def test_a_label_on_a_dimension_that_was_not_asked_is_left_alone() -> None:
    counter = Counter()
    pair = Pair("Hi", "x", "y", labels={"overall": "1"})
    counter.add(Judgment.of(pair, {"forward": Conversation({"format": Verdict("format", "A")})}))
    assert counter.summary().dimensions["format"].agreement is None


def test_judgment_facts_speak_of_sides_whatever_the_order() -> None:
    forward = Verdict("overall", "A", {"A": 0.7, "B": 0.2, "tie": 0.1}, 0.9)
    swapped = Verdict("overall", "B", {"A": 0.1, "B": 0.6, "tie": 0.3}, 0.8)
    conversations: dict[Order, Conversation] = {
        "forward": Conversation({"overall": forward}, Usage(10, 5, 1), 1),
        "swapped": Conversation({"overall": swapped}, Usage(3, 12, 1), 1, frozenset({"a note"})),
    }
    fields = plain(judged_pair(Judgment.of(Pair("Hi", "x", "y", id="p1"), conversations)))
    assert fields["id"] == "p1"
    assert fields["notes"] == ["a note"]
    assert fields["tokens"] == {"computed": 13, "reused": 17, "generated": 2}
    overall = fields["dimensions"]["overall"]
    assert (overall["verdict"], overall["inconsistent"]) == ("1", False)
    assert sum(overall["p"].values()) == pytest.approx(1)
    orders = overall["orders"]
    assert orders["forward"] | {"raw": ""} == {
        "verdict": "1",
        "p": {"1": 0.7, "2": 0.2, "tie": 0.1},
        "mass": 0.9,
        "shown": "A",
        "invalid_reason": None,
        "raw": "",
    }
    assert (orders["swapped"]["verdict"], orders["swapped"]["shown"]) == ("1", "B")
    assert orders["swapped"]["p"] == {"1": 0.6, "2": 0.1, "tie": 0.3}


def test_judgment_facts_of_an_invalid_order() -> None:
    conversations: dict[Order, Conversation] = {
        "forward": Conversation({"overall": Verdict("overall", "A")}),
        "swapped": Conversation({"overall": invalid(["overall"], "unreadable", "Both!")[0]}),
    }
    overall = plain(judged_pair(Judgment.of(Pair("Hi", "x", "y"), conversations)))["dimensions"]["overall"]
    assert (overall["verdict"], overall["p"], overall["invalid_reason"]) == ("invalid", None, "unreadable")
    assert overall["orders"]["forward"]["verdict"] == "1"
    swapped = overall["orders"]["swapped"]
    assert (swapped["verdict"], swapped["p"], swapped["mass"], swapped["raw"]) == ("invalid", None, None, "Both!")
