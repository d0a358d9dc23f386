"""Reading answers strictly, weighing labels, and pooling the two orders."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping
from typing import get_args

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from evenhand.core.engine import Answer, Token
from evenhand.core.judge import Conversation, Judgment
from evenhand.core.pair import COMBINED, Pair, Side
from evenhand.core.protocol import Order
from evenhand.core.verdict import (
    LABELS,
    SIDES,
    Label,
    Outcome,
    Verdict,
    combine,
    found_on,
    invalid,
    known_label,
    label_of,
    log_odds,
    pool,
    read_answer,
)

FOUR = ("precision", "correctness", "format", "overall")
MIRROR: dict[Side, Side] = {"1": "2", "2": "1", "tie": "tie"}


def read(text: str, *dimensions: str) -> list[Label | None]:
    return [verdict.label for verdict in read_answer(Answer(text), dimensions or ("overall",))]


def why_invalid(text: str, *dimensions: str) -> set[str | None]:
    verdicts = read_answer(Answer(text), dimensions or ("overall",))
    assert all(verdict.raw == text and verdict.label is None and verdict.p is None for verdict in verdicts)
    return {verdict.invalid for verdict in verdicts}


# -- reading ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "label"),
    [
        ("A", "A"),
        (" b.", "B"),
        ("**tie**", "tie"),
        ("Tie", "tie"),
        ("TIE\n", "tie"),
        ('"B"', "B"),
        ("(A)", "A"),
        ("Overall: B", "B"),
        ("**Overall**: B", "B"),
        ("A is short and right, while B rambles.\nB", "B"),
        ("First I thought A.\n\nOverall: tie", "tie"),
        ("Verdict: A", "A"),
        ("My verdict: tie", "tie"),
        ("**Verdict:** B", "B"),
        ("A verdict: hard to say. Verdict: B.", "B"),
        ("Which is best, A, B, or tie?\nA", "A"),
    ],
)
def test_one_label_is_read(text: str, label: Label) -> None:
    assert read(text) == [label]


@pytest.mark.parametrize(
    "text",
    [
        "A, B, tie, A",
        "A,B,tie,A",
        "a; b; TIE; a.",
        "A\nB\ntie\nA",
        "Precision: A\nCorrectness: B\nFormat: tie\nOverall: A",
        "**Precision**: A\n\n**Correctness**: B\n**Format**: tie\n**Overall**: A\n",
        "precision: A, correctness: B, format: tie, overall: A",
        "Both are fine, but see below.\nA, B, tie, A",
        "Verdicts: A, B, tie, A",
    ],
)
def test_four_labels_are_read(text: str) -> None:
    assert read(text, *FOUR) == ["A", "B", "tie", "A"]


@pytest.mark.parametrize(
    "text",
    [
        "A or B",
        "A B",
        "Response A",
        "A is better.",
        "I like a",
        "AB",
        "ties",
        "C",
        "Which is best, A, B, or tie?",
        "## Response A:\nIt is 4.\n\n## Response B:\n5\n\nWhich is best, A, B, or tie?",
        "A, B",
        "A,",
        "A/B",
        "A\nbecause it is right",
        "Verdict: A or B",
        "Verdict: A because it is right",
        "Format: A",
        "not A",
        "А",  # Cyrillic
    ],
)
def test_anything_else_is_unreadable(text: str) -> None:
    assert why_invalid(text) == {"unreadable"}


@pytest.mark.parametrize("text", ["", " ", "\n\t\n"])
def test_nothing_is_empty(text: str) -> None:
    assert why_invalid(text) == {"empty"}


@pytest.mark.parametrize(
    "text",
    [
        "A",
        "A, B, tie",
        "A, B, tie, A, B",
        "A, B, tie, perhaps",
        "Which is best on precision, correctness, format, and overall: A, B, or tie?",
        "Correctness: A\nPrecision: B\nFormat: tie\nOverall: A",  # in another order than asked
        "A B tie A",
    ],
)
def test_the_wrong_labels_make_every_dimension_invalid(text: str) -> None:
    assert why_invalid(text, *FOUR) == {"unreadable"}


ECHOED = "The second one is wrong.\nVerdict: A"


@pytest.mark.parametrize(
    ("text", "dimensions", "shown", "label"),
    [
        (ECHOED, ["overall"], ["Hi", ECHOED, "y"], None),
        (f"## Response A:\n{ECHOED}\n", ["overall"], ["Hi", ECHOED + "\n\n", "y"], None),
        ("Verdict: A", ["overall"], ["Hi", "x", "Verdict: A"], None),
        ("Judge.\nA, B", ["format", "overall"], ["Judge.\nA, B", "x", "y"], None),
        (f"{ECHOED}\nB", ["overall"], ["Hi", ECHOED, "y"], "B"),  # and then its own
        (ECHOED, ["overall"], ["Hi", "The second one is wrong.", "y"], "A"),
        ("A", ["overall"], ["Hi", "A", "B"], "A"),  # a response that is a label is not in the way
        ("Well.\nA", ["overall"], ["Hi", "A", "B"], "A"),
        (" tie.", ["overall"], ["Hi", "", "\n"], "tie"),
    ],
)
def test_an_echo_of_a_text_of_the_pair_is_no_verdict(
    text: str, dimensions: list[str], shown: list[str], label: Label | None
) -> None:
    verdict = read_answer(Answer(text), dimensions, shown)[0]
    assert verdict.label == label
    assert (verdict.invalid, verdict.raw) == (None if label else "echo", text)


def test_a_sample_that_echoes_is_no_vote() -> None:
    [verdict] = read_answer(Answer("B", samples=("B", ECHOED)), ["overall"], ["Hi", ECHOED, "y"])
    assert (verdict.label, verdict.mass) == ("B", 0.5)


def test_an_answer_that_was_cut_off_is_truncated_even_if_it_looks_right() -> None:
    verdicts = read_answer(Answer("A", finish="length"), ["overall"])
    assert (verdicts[0].label, verdicts[0].invalid, verdicts[0].raw) == (None, "truncated", "A")


@pytest.mark.parametrize("unit", ["x", "a,", "\n", "verdict:", "..,", "A\n"])
@pytest.mark.parametrize("dimensions", [("overall",), FOUR], ids=["one", "four"])
def test_ten_megabytes_are_refused_quickly(unit: str, dimensions: tuple[str, ...]) -> None:
    text = unit * (10_000_000 // len(unit)) + "x"
    began = time.process_time()
    assert read_answer(Answer(text), dimensions)[0].label is None
    assert time.process_time() - began < 5


def test_a_failure_stands_on_every_dimension() -> None:
    verdicts = invalid(FOUR, "too_long", "raw")
    assert [(v.dimension, v.label, v.invalid, v.raw) for v in verdicts] == [
        (d, None, "too_long", "raw") for d in FOUR
    ]


# -- samples ---------------------------------------------------------------------------------------


def sampled(*samples: str) -> Verdict:
    return read_answer(Answer(samples[0], samples=samples), ["overall"])[0]


def test_samples_become_shares_and_the_unreadable_ones_lower_the_mass() -> None:
    verdict = sampled("A", "A", "B", "dunno")
    assert verdict.label == "A"
    assert verdict.p == pytest.approx({"A": 2 / 3, "B": 1 / 3, "tie": 0})
    assert verdict.mass == 0.75


def test_samples_that_are_split_evenly_favour_nobody() -> None:
    assert sampled("A", "B").label == sampled("B", "A").label == "tie"


def test_samples_without_a_label_are_unreadable_and_kept() -> None:
    verdict = sampled("hm", "ah")
    assert (verdict.label, verdict.invalid) == (None, "unreadable")
    assert "hm" in verdict.raw
    assert "ah" in verdict.raw


def test_samples_of_several_labels_are_shared_out_by_dimension() -> None:
    answer = Answer("A, B", samples=("A, B", "A, tie"))
    first, second = read_answer(answer, ["format", "overall"])
    assert first.p == {"A": 1.0, "B": 0.0, "tie": 0.0}
    assert second.p == {"A": 0.0, "B": 0.5, "tie": 0.5}


# -- probabilities ---------------------------------------------------------------------------------


def token(text: str, **chances: float) -> Token:
    """A token and its alternatives; an underscore stands for a space."""
    return Token(text, tuple((name.replace("_", " "), math.log(p)) for name, p in chances.items()))


def weighed(*tokens: Token, dimensions: tuple[str, ...] = ("overall",)) -> tuple[Verdict, ...]:
    return read_answer(Answer("".join(token.text for token in tokens), tokens), dimensions)


def test_variants_of_a_label_are_summed_and_the_mass_is_kept() -> None:
    (verdict,) = weighed(token("A", A=0.3, _A=0.1, tie=0.1, Tie=0.1, t=0.1, B=0.1, The=0.1))
    assert verdict.mass == pytest.approx(0.8)
    assert verdict.p == pytest.approx({"A": 4 / 8, "B": 1 / 8, "tie": 3 / 8})


def test_the_label_is_the_likeliest_one_whatever_token_was_drawn() -> None:
    (verdict,) = weighed(token("A", A=0.4, B=0.3, _B=0.2, tie=0.1))
    assert verdict.label == "B"


def test_a_label_that_is_not_listed_gets_what_the_list_leaves_over() -> None:
    (verdict,) = weighed(token("A", A=0.9, B=0.08))
    assert verdict.p is not None
    assert verdict.p["tie"] == pytest.approx(0.02)
    assert verdict.mass == pytest.approx(0.98)


def test_a_label_that_is_not_listed_is_no_likelier_than_the_least_that_is() -> None:
    (verdict,) = weighed(token("A", A=0.5, B=0.01))
    assert verdict.p is not None
    assert verdict.p["tie"] == pytest.approx(verdict.p["B"])


def test_no_probability_is_ever_zero() -> None:
    (verdict,) = weighed(token("A", A=1.0))
    assert verdict.p is not None
    assert all(p > 0 for p in verdict.p.values())
    assert sum(verdict.p.values()) == pytest.approx(1)


def test_little_mass_on_the_labels_is_told() -> None:
    (verdict,) = weighed(token("A", The=0.9, A=0.04, B=0.01))
    assert verdict.mass == pytest.approx(0.05)


def test_what_was_said_counts_however_it_was_written() -> None:
    (verdict,) = weighed(token(" b", _b=0.9, _A=0.05))
    assert verdict.label == "B"
    assert verdict.mass == pytest.approx(0.95)


def test_without_alternatives_there_are_no_probabilities() -> None:
    (verdict,) = weighed(Token("tie"))
    assert (verdict.label, verdict.p, verdict.mass) == ("tie", None, None)


@pytest.mark.parametrize("comma", [(",", " "), (",", ""), ("", ","), (", ", "")], ids=repr)
def test_each_label_of_an_answer_is_weighed_at_its_own_token(comma: tuple[str, str]) -> None:
    apart, together = comma
    tokens = (
        [token("A", A=0.7, B=0.2, tie=0.1), Token(apart, ((apart, -0.1),))] if apart else [token("A", A=0.7, B=0.2)]
    )
    last = Token(
        f"{together}B", tuple((f"{together}{x}", math.log(p)) for x, p in (("A", 0.3), ("B", 0.6), ("t", 0.1)))
    )
    first, second = weighed(*tokens, last, dimensions=("format", "overall"))
    assert (first.label, second.label) == ("A", "B")
    assert first.p is not None
    assert first.p["A"] == pytest.approx(0.7)
    assert second.p == pytest.approx({"A": 0.3, "B": 0.6, "tie": 0.1})


def test_a_label_behind_words_is_weighed_at_its_own_token() -> None:
    words = [token(word, A=0.9) for word in ("A", " is", " fine", ".\n", "Verdict", ":")]
    (verdict,) = weighed(*words, token(" B", _B=0.8, _A=0.2))
    assert verdict.p is not None
    assert verdict.p["B"] == pytest.approx(0.8, abs=1e-6)


def test_a_label_in_several_tokens_is_weighed_at_the_first() -> None:
    (verdict,) = weighed(token("t", t=0.6, A=0.4), token("ie", ie=1.0))
    assert verdict.label == "tie"
    assert verdict.mass == pytest.approx(1.0)


@pytest.mark.parametrize("word", ["a", "b", "The", "tied", "", " ", ",", "AB", "to"])
def test_a_token_that_begins_no_label(word: str) -> None:
    assert label_of(word) is None


# -- pooling ---------------------------------------------------------------------------------------

simplex = (
    st.lists(st.floats(0.001, 1), min_size=3, max_size=3)
    .map(lambda weights: [weight / sum(weights) for weight in weights])
    .map(lambda shares: dict(zip(LABELS, shares, strict=True)))
)
quality = st.floats(-5, 5)


def soft(p: Mapping[Label, float]) -> Verdict:
    likeliest: Label = max(LABELS, key=lambda label: p[label])
    return Verdict("overall", likeliest, p, 1.0)


def hard(label: Label) -> Verdict:
    return Verdict("overall", label)


any_verdict = st.one_of(simplex.map(soft), st.sampled_from(LABELS).map(hard))


def both(forward: Verdict, swapped: Verdict) -> Outcome:
    return pool("overall", {"forward": forward, "swapped": swapped})


def mirrored(p: Mapping[Side, float] | None) -> dict[Side, float]:
    assert p is not None
    return {MIRROR[side]: chance for side, chance in p.items()}


def shown(one: float, two: float, tie: float, *, bias: float, order: Order) -> Verdict:
    """What a judge says that sees qualities and leans to the first place by `bias`, in log-odds."""
    first, second = (one, two) if order == "forward" else (two, one)
    weights = [math.exp(first + bias), math.exp(second - bias), math.exp(tie)]
    return soft(dict(zip(LABELS, (weight / sum(weights) for weight in weights), strict=True)))


@settings(deadline=None)
@given(any_verdict, any_verdict)
def test_exchanging_the_outputs_mirrors_the_finding_exactly(forward: Verdict, swapped: Verdict) -> None:
    # The pair with its outputs exchanged shows forward what the other showed swapped.
    here, there = both(forward, swapped), both(swapped, forward)
    assert here.side is not None
    assert there.side == MIRROR[here.side]
    assert there.p == mirrored(here.p)
    assert there.inconsistent == here.inconsistent


@settings(deadline=None)
@given(quality, quality, quality, st.floats(-3, 3))
def test_a_leaning_to_one_place_cancels_exactly(one: float, two: float, tie: float, bias: float) -> None:
    leaning = [shown(one, two, tie, bias=bias, order=order) for order in get_args(Order)]
    upright = [shown(one, two, tie, bias=0.0, order=order) for order in get_args(Order)]
    found, expected = both(*leaning).p, both(*upright).p
    assert found is not None
    assert expected is not None
    assert all(math.isclose(found[side], expected[side], abs_tol=1e-9) for side in SIDES)
    assert math.isclose(log_odds(found), one - two, abs_tol=1e-9)


@settings(deadline=None)
@given(any_verdict, any_verdict)
def test_pooled_probabilities_sum_to_one_and_bear_out_the_side(forward: Verdict, swapped: Verdict) -> None:
    outcome = both(forward, swapped)
    assert outcome.p is not None
    assert outcome.side is not None
    assert math.isclose(sum(outcome.p.values()), 1)
    if outcome.side != "tie":
        assert outcome.p[outcome.side] == max(outcome.p.values())


@settings(deadline=None)
@given(any_verdict, st.sampled_from(["unreadable", "empty", "too_long"]), st.booleans())
def test_one_invalid_order_makes_the_finding_invalid(good: Verdict, reason: str, first: bool) -> None:
    (bad,) = invalid(["overall"], reason)
    outcome = both(bad, good) if first else both(good, bad)
    assert (outcome.side, outcome.p, outcome.inconsistent, outcome.invalid) == (None, None, False, reason)


@pytest.mark.parametrize(
    ("forward", "swapped", "side", "inconsistent"),
    [
        ("A", "B", "1", False),
        ("B", "A", "2", False),
        ("tie", "tie", "tie", False),
        ("A", "A", "tie", True),  # 1 and 2
        ("B", "B", "tie", True),  # 2 and 1
        ("A", "tie", "tie", False),
        ("tie", "A", "tie", False),
        ("B", "tie", "tie", False),
        ("tie", "B", "tie", False),
    ],
)
def test_hard_verdicts_must_agree(forward: Label, swapped: Label, side: Side, inconsistent: bool) -> None:
    outcome = both(hard(forward), hard(swapped))
    assert (outcome.side, outcome.inconsistent, outcome.invalid) == (side, inconsistent, None)


def test_soft_verdicts_may_contradict_each_other_and_still_decide() -> None:
    outcome = both(soft({"A": 0.8, "B": 0.1, "tie": 0.1}), soft({"A": 0.5, "B": 0.4, "tie": 0.1}))
    assert (outcome.side, outcome.inconsistent) == ("1", True)


@pytest.mark.parametrize(
    ("order", "label", "side"),
    [
        ("forward", "A", "1"),
        ("forward", "B", "2"),
        ("swapped", "A", "2"),
        ("swapped", "B", "1"),
        ("swapped", "tie", "tie"),
    ],
)
def test_a_single_order_is_mapped_to_sides(order: Order, label: Label, side: Side) -> None:
    outcome = pool("overall", {order: hard(label)})
    assert (outcome.side, outcome.side_in(order), outcome.inconsistent) == (side, side, False)


def test_a_single_order_keeps_its_probabilities() -> None:
    outcome = pool("overall", {"swapped": soft({"A": 0.7, "B": 0.2, "tie": 0.1})})
    expected: dict[Side, float] = {"1": 0.2, "2": 0.7, "tie": 0.1}
    assert outcome.p == pytest.approx(expected)
    assert outcome.p_in("swapped") == expected
    assert (outcome.side_in("forward"), outcome.p_in("forward")) == (None, None)


# -- the parts together ----------------------------------------------------------------------------------


def said(name: str, a: float, b: float, mass: float = 1.0) -> Verdict:
    p: dict[Label, float] = {"A": a, "B": b, "tie": 1 - a - b}
    return Verdict(name, "A" if a > b else "B", p, mass)


def test_the_parts_together_have_the_mean_of_their_log_odds_without_overall() -> None:
    parts = {"precision": said("precision", 0.6, 0.3, 0.9), "format": said("format", 0.2, 0.7, 0.8)}
    found = combine({**parts, "overall": said("overall", 0.1, 0.8)})
    assert found is not None
    assert found.p is not None
    assert math.log(found.p["A"] / found.p["B"]) == pytest.approx((math.log(0.6 / 0.3) + math.log(0.2 / 0.7)) / 2)
    assert (found.dimension, found.label, found.mass) == ("combined", "B", 0.8)


def test_one_part_alone_has_nothing_to_be_combined_with() -> None:
    assert COMBINED not in found_on(["overall"])
    assert COMBINED not in found_on(["format", "overall"])


def test_a_part_that_is_missing_makes_the_whole_invalid_with_its_reason() -> None:
    found = combine({"format": said("format", 0.6, 0.3), "precision": Verdict("precision", None, invalid="empty")})
    assert found is not None
    assert (found.label, found.p, found.invalid) == (None, None, "empty")


def test_hard_parts_are_counted() -> None:
    found = combine({"a": Verdict("a", "A"), "b": Verdict("b", "A"), "c": Verdict("c", "B")})
    assert found is not None
    assert (found.label, found.p, found.mass) == ("A", {"A": 2 / 3, "B": 1 / 3, "tie": 0.0}, None)


def test_people_answer_overall_where_the_judge_combines() -> None:
    assert known_label({"overall": "2", "format": "1"}, "combined") == "2"
    assert known_label({"overall": "2", "format": "1"}, "format") == "1"
    assert known_label({}, "combined") is None


# -- what is said of one response ------------------------------------------------------------------


def of_one(dimension: str, yes: float, no: float, *, other: float = 0.0) -> Verdict:
    """A verdict read off an answer with these probabilities."""
    top = {"yes": yes / 2, "Yes": yes / 2, "no": no, "A": other}
    listed = tuple((text, math.log(x)) for text, x in top.items() if x)
    said = "yes" if yes > no else "no"
    return read_answer(Answer(said, (Token(said, listed),)), [dimension])[0]


@pytest.mark.parametrize(
    ("dimension", "text", "label"),
    [
        ("good_1", "yes", "A"),
        ("good_1", "No.", "B"),
        ("good_2", " Yes", "B"),
        ("good_2", "**no**", "A"),
        ("good_2", "Good_2: no", "A"),
        ("good_1", "It is wrong.\nVerdict: no", "B"),
    ],
)
def test_yes_speaks_for_the_response_that_is_asked_about(dimension: str, text: str, label: Label) -> None:
    assert read(text, dimension) == [label]


@pytest.mark.parametrize("text", ["A", "tie", "yes and no", "nobody", "yes, no"])
def test_another_word_is_no_answer_to_a_question_of_yes_or_no(text: str) -> None:
    assert why_invalid(text, "good_1") == {"unreadable"}


@pytest.mark.parametrize("text", ["yes", "no"])
def test_yes_is_no_answer_to_a_comparison(text: str) -> None:
    assert why_invalid(text, "overall") == {"unreadable"}


def test_the_probabilities_of_yes_and_no_leave_a_third_to_the_tie_that_was_not_offered() -> None:
    verdict = of_one("good_2", 0.6, 0.3, other=0.1)
    assert verdict.p == pytest.approx({"B": 4 / 9, "A": 2 / 9, "tie": 1 / 3})
    assert verdict.mass == pytest.approx(0.9)
    assert (verdict.label, verdict.word) == ("B", "yes")


def test_what_was_sampled_counts_alike() -> None:
    (verdict,) = read_answer(Answer("yes", samples=("yes", "no", "yes", "hm")), ["good_1"])
    assert verdict.p == pytest.approx({"A": 4 / 9, "B": 2 / 9, "tie": 1 / 3})
    assert (verdict.label, verdict.mass) == ("A", 0.75)


@given(st.floats(0.01, 0.99), st.floats(0.01, 0.99))
def test_the_response_that_is_likelier_to_be_good_is_ahead(one: float, two: float) -> None:
    """In the forward order response 1 is asked about alone, in the swapped one response 2."""
    judged = {"forward": of_one("good_1", one, 1 - one), "swapped": of_one("good_1", two, 1 - two)}
    outcome = pool("good_1", {"forward": judged["forward"], "swapped": judged["swapped"]})
    assert outcome.p is not None
    logit = (math.log(one / (1 - one)) - math.log(two / (1 - two))) / 2
    assert log_odds(outcome.p) == pytest.approx(logit, abs=1e-6)


@pytest.mark.parametrize("dimension", ["good_1", "good_2"])
@pytest.mark.parametrize(
    ("words", "side"), [("yes yes", "tie"), ("no no", "tie"), ("yes no", "1"), ("no yes", "2")]
)
def test_the_same_word_on_both_responses_is_a_tie_and_no_contradiction(
    dimension: str, words: str, side: Side
) -> None:
    one, two = words.split()  # of response 1, of response 2
    in_forward, in_swapped = (one, two) if dimension == "good_1" else (two, one)
    (forward,) = read_answer(Answer(in_forward), [dimension])
    (swapped,) = read_answer(Answer(in_swapped), [dimension])
    outcome = pool(dimension, {"forward": forward, "swapped": swapped})
    assert (outcome.side, outcome.inconsistent) == (side, False)


def test_a_judge_that_says_yes_to_everything_has_no_position_bias_on_the_parts_together() -> None:
    tie: dict[Label, float] = {"A": 0.1, "B": 0.1, "tie": 0.8}
    same = {"good_1": of_one("good_1", 0.99, 0.01), "format": Verdict("format", "tie", tie, 1.0)}
    found = Judgment.outcomes_of({"forward": Conversation(same), "swapped": Conversation(same)})[COMBINED]
    assert (found.side, found.inconsistent) == ("tie", False)
    assert [found.side_in("forward"), found.side_in("swapped")] == ["tie", "tie"]


def test_what_is_said_of_one_response_counts_in_both_orders_only() -> None:
    compared = {name: Verdict(name, "B", {"A": 0.2, "B": 0.6, "tie": 0.2}, 1.0) for name in ("precision", "format")}
    verdicts = {"good_1": of_one("good_1", 0.99, 0.01), **compared}
    both, one = combine(verdicts), combine(verdicts, both_orders=False)
    assert one == combine(compared)
    assert both.p is not None
    assert both.p["A"] > both.p["B"]


@pytest.mark.parametrize(
    "dimensions", [["good_1", "good_2"], ["good_1", "format"], ["good_2", "format", "overall"]]
)
def test_one_order_has_the_same_findings_as_both(dimensions: list[str]) -> None:
    words = {"good_1": "yes", "good_2": "no", "format": "B", "overall": "tie"}
    judged = Conversation({name: read_answer(Answer(words[name]), [name])[0] for name in dimensions})
    pair = Pair("Hi", "x", "y")
    for conversations in ({"forward": judged}, {"forward": judged, "swapped": judged}):
        assert tuple(Judgment.of(pair, conversations).outcomes) == found_on(dimensions)  # type: ignore[arg-type]


# -- counts and hard verdicts are no surer than the votes -------------------------------------------------


def voted(votes: str) -> Verdict:
    """A verdict out of several answers: "ABt" is A, B and tie."""
    words = {"A": "A", "B": "B", "t": "tie"}
    (verdict,) = read_answer(Answer("", samples=tuple(words[vote] for vote in votes)), ["overall"])
    return verdict


def test_a_share_of_zero_is_not_a_certainty() -> None:
    outcome = pool("overall", {"forward": voted("Atttt"), "swapped": voted("AAAAB")})
    assert outcome.p == pytest.approx({"1": 0.2, "2": 0.4, "tie": 0.4})
    assert outcome.side == "tie"


@given(
    st.lists(st.sampled_from("ABt"), min_size=9, max_size=9),
    st.lists(st.sampled_from("ABt"), min_size=9, max_size=9),
)
def test_pooled_samples_are_the_votes(forward: list[str], swapped: list[str]) -> None:
    outcome = pool("overall", {"forward": voted("".join(forward)), "swapped": voted("".join(swapped))})
    votes = {
        "1": forward.count("A") + swapped.count("B"),
        "2": forward.count("B") + swapped.count("A"),
        "tie": forward.count("t") + swapped.count("t"),
    }
    assert outcome.p == pytest.approx({side: count / 18 for side, count in votes.items()})
    best = [side for side, count in votes.items() if count == max(votes.values())]
    assert outcome.side == (best[0] if len(best) == 1 else "tie")


def test_combined_hard_parts_are_no_surer_than_their_votes() -> None:
    parts = {
        name: Verdict(name, "A" if name != "format" else "B") for name in ("precision", "correctness", "format")
    }
    together = combine(parts)
    assert together is not None
    outcome = pool("combined", {"forward": together, "swapped": together})
    assert outcome.p == pytest.approx({"1": 0.5, "2": 0.5, "tie": 0})
    assert outcome.side == "tie"
