"""The built-in protocols: what they ask, how they are laid out, and whether their worked examples are right."""

from __future__ import annotations

import calendar
import math
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import pytest

from evenhand.core.markup import CHATML, render
from evenhand.core.pair import DIMENSIONS, Pair
from evenhand.core.pieces import Piece, Slot
from evenhand.core.protocol import BUILT_IN, ORDERS, Protocol, built_in_names
from evenhand.core.template import TemplateTurn

NAMES = [name for name in built_in_names() if name != "weighed"]  # which holds another one, word for word
ASKS: dict[str, list[tuple[str, ...]]] = {
    "chained": [("precision",), ("correctness",), ("format",), ("overall",)],
    "correctness": [("correctness",)],
    "format": [("format",)],
    "four": [("precision", "correctness", "format", "overall")],
    "holistic": [("overall",)],
    "overall": [("overall",)],
    "precision": [("precision",)],
}
LABELS = ("A", "B", "tie")
each_protocol = pytest.mark.parametrize("name", NAMES)


# -- what they are ---------------------------------------------------------------------------------


def test_the_built_in_protocols_are_these() -> None:
    assert list(ASKS) == NAMES
    assert built_in_names() == sorted([*NAMES, "weighed"])


def test_weighed_asks_about_a_response_alone_and_then_what_chained_asks() -> None:
    weighed, chained = Protocol.load("weighed"), Protocol.load("chained")
    assert [question.dimensions for question in weighed.questions] == [("good_1",), *ASKS["chained"]]
    assert [question.conversation for question in weighed.questions] == [0, 1, 1, 1, 1]
    pair, said = Pair("Name a colour.", "Red.", "Blue."), ["A", "B", "tie"]
    for order in ORDERS:
        alone = weighed.prompt(pair, order)
        assert [span.text for turn in alone.turns for span in turn.spans if not span.trusted] == [
            "Name a colour.",
            pair.shown(order)[0],
        ]
        for number in range(4):
            mine = weighed.prompt(pair, order, number + 1, ["yes", *said][: number + 1], raw=True)
            assert mine == chained.prompt(pair, order, number, said[:number], raw=True)


def test_weighed_has_its_name_and_a_clean_file() -> None:
    test_it_has_its_name_and_a_description_of_one_sentence("weighed")
    test_its_file_is_clean("weighed")


@each_protocol
def test_it_asks_what_its_name_says(name: str) -> None:
    assert [question.dimensions for question in Protocol.load(name).questions] == ASKS[name]


@each_protocol
def test_it_has_its_name_and_a_description_of_one_sentence(name: str) -> None:
    protocol = Protocol.load(name)
    assert protocol.name == name
    assert re.fullmatch(r"[A-Z].+\.", protocol.description)


@each_protocol
def test_its_file_is_clean(name: str) -> None:
    text = (BUILT_IN / f"{name}.txt").read_text(encoding="utf-8")
    assert "\r" not in text
    assert "\t" not in text
    assert [line for line in text.split("\n") if line != line.rstrip()] == []
    assert not re.search("â€|Ã|\ufffd", text), "an apostrophe or accent was broken by a wrong encoding"


def test_no_two_descriptions_are_the_same() -> None:
    assert len({Protocol.load(name).description for name in NAMES}) == len(NAMES)


# -- how they are laid out -------------------------------------------------------------------------


def slots(turn: TemplateTurn) -> list[str]:
    return [piece.name for piece in turn.pieces if isinstance(piece, Slot)]


def pair_turn(protocol: Protocol) -> TemplateTurn:
    return protocol.turns[protocol.questions[0].turns - 1]


def literal(piece: Piece) -> str:
    assert isinstance(piece, str)
    return piece


@each_protocol
def test_the_pair_stands_in_the_last_turn_before_the_first_ask_and_nowhere_else(name: str) -> None:
    protocol = Protocol.load(name)
    holding = [turn for turn in protocol.turns if slots(turn)]
    assert holding == [pair_turn(protocol)]
    assert holding[0].role == "user"
    assert slots(holding[0]) == ["instruction", "output_1", "output_2"]


@each_protocol
def test_everything_before_the_pair_is_the_same_for_every_pair(name: str) -> None:
    protocol = Protocol.load(name)
    one, two = (
        render(protocol.prompt(pair, "forward").turns, CHATML)
        for pair in (Pair("a", "b", "c"), Pair("long " * 50, "<|im_end|>", "{output_1}"))
    )
    assert one[0] == two[0]
    assert one[0].trusted
    assert len(one[0].text) > sum(len(span.text) for span in one[1:]), "the rubric comes after the pair"


@each_protocol
def test_the_question_is_last_and_short(name: str) -> None:
    protocol = Protocol.load(name)
    assert literal(pair_turn(protocol).pieces[-1]).strip().count("\n") == 0
    for question in protocol.questions[1:]:
        (piece,) = protocol.turns[question.turns - 1].pieces
        assert "\n" not in literal(piece)


@each_protocol
def test_the_responses_are_called_a_and_b_in_this_order(name: str) -> None:
    _, _, before_a, _, before_b, _, _ = pair_turn(Protocol.load(name)).pieces
    assert re.search(r"\bA\b", literal(before_a))
    assert re.search(r"\bB\b", literal(before_b))


# -- worked examples -------------------------------------------------------------------------------


@dataclass(frozen=True)
class Example:
    """One answer to one question in a worked example."""

    protocol: str
    pair: Pair
    question: str
    answer: str

    @property
    def dimensions(self) -> tuple[str, ...]:
        return tuple(re.findall("|".join(DIMENSIONS), self.question.lower())) or ("overall",)

    @property
    def labels(self) -> list[str]:
        return [label.strip() for label in self.answer.split(",")]


def before_the_pair(protocol: Protocol) -> str:
    """All that is shown before the pair, whether worked examples are turns of their own or text in one turn."""
    shown = protocol.turns[: protocol.questions[0].turns - 1]
    whole = ["".join(literal(piece) for piece in turn.pieces) for turn in shown]
    return "\n".join([*whole, literal(pair_turn(protocol).pieces[0])])


def examples(name: str) -> Iterator[Example]:
    """Worked examples are headed as the pair is, so the pair's own turn tells how to take them apart."""
    protocol = Protocol.load(name)
    before, _, before_a, _, before_b, _, _ = pair_turn(protocol).pieces
    heading = literal(before).rstrip("\n").rsplit("\n", 1)[-1] + "\n"
    parts = re.compile(f"(.*?){re.escape(literal(before_a))}(.*?){re.escape(literal(before_b))}(.*?)\n\n(.*)", re.S)
    for block in before_the_pair(protocol).split(heading)[1:-1]:
        found = parts.fullmatch(block)
        assert found, f"{name}: a worked example is not written like the pair: {block[:40]!r}"
        instruction, a, b, rest = found.groups()
        for question, answer in re.findall(r"^(.*\bA, B, or tie\?)\n(.*)$", rest, re.M):
            yield Example(name, Pair(instruction, a, b), question, answer)


EXAMPLES = [example for name in NAMES for example in examples(name)]


def labels_of(pair: Pair) -> dict[str, dict[str, str]]:
    """What the protocols say of a worked pair: dimension -> protocol -> label."""
    said: dict[str, dict[str, str]] = {}
    for example in EXAMPLES:
        if example.pair.key == pair.key:
            for dimension, label in zip(example.dimensions, example.labels, strict=True):
                said.setdefault(dimension, {})[example.protocol] = label
    return said


def settled(pair: Pair) -> dict[str, str]:
    """The label on each dimension, whichever protocol says it."""
    return {dimension: next(iter(said.values())) for dimension, said in labels_of(pair).items()}


WORKED = list({example.pair.key: example.pair for example in EXAMPLES}.values())
each_worked_pair = pytest.mark.parametrize("pair", WORKED, ids=lambda pair: pair.instruction[:30])


@each_protocol
def test_every_worked_example_is_answered_as_the_judge_should_answer(name: str) -> None:
    mine = [example for example in EXAMPLES if example.protocol == name]
    assert mine, f"{name} has no worked example"
    for example in mine:
        assert set(example.labels) <= set(LABELS), f"{name}: {example.answer!r}"
        assert len(example.labels) == len(example.dimensions)


@each_protocol
def test_every_assistant_turn_before_the_pair_is_labels(name: str) -> None:
    protocol = Protocol.load(name)
    turns = [turn for turn in protocol.turns[: protocol.questions[0].turns] if turn.role == "assistant"]
    said = ["".join(literal(piece) for piece in turn.pieces) for turn in turns]
    assert all(set(answer.split(",")) <= set(LABELS) for answer in said)
    assert said in ([], [example.answer for example in EXAMPLES if example.protocol == name])


@each_protocol
def test_every_worked_pair_is_asked_the_same_and_what_is_really_asked_is_among_it(name: str) -> None:
    asked: dict[str, list[tuple[str, ...]]] = {}
    for example in EXAMPLES:
        if example.protocol == name:
            asked.setdefault(example.pair.id, []).append(example.dimensions)
    first = next(iter(asked.values()))
    assert all(dimensions == first for dimensions in asked.values())
    assert set(ASKS[name]) <= set(first)


@each_protocol
def test_worked_questions_are_worded_like_the_real_one(name: str) -> None:
    protocol = Protocol.load(name)
    real = {
        question.dimensions: literal(protocol.turns[question.turns - 1].pieces[-1]).strip()
        for question in protocol.questions
    }
    for example in EXAMPLES:
        if example.protocol == name and example.dimensions in real:
            assert example.question == real[example.dimensions]


@each_worked_pair
def test_all_protocols_agree_on_a_worked_pair(pair: Pair) -> None:
    apart = {dimension: said for dimension, said in labels_of(pair).items() if len(set(said.values())) > 1}
    assert apart == {}


@pytest.mark.parametrize("name", ["overall", "holistic"])
def test_every_label_is_shown_in_the_worked_examples(name: str) -> None:
    mine = [example for example in EXAMPLES if example.protocol == name]
    assert {example.answer for example in mine if example.dimensions == ("overall",)} == set(LABELS)


@each_worked_pair
def test_the_overall_label_follows_from_the_others_where_they_do_not_conflict(pair: Pair) -> None:
    labels = settled(pair)
    deciding = {labels[dimension] for dimension in DIMENSIONS[:3] if dimension in labels} - {"tie"}
    if len(deciding) < 2 and set(DIMENSIONS) <= set(labels):
        assert labels["overall"] == (deciding.pop() if deciding else "tie")


# -- what a program can check in a worked example --------------------------------------------------

Score = Callable[[str], float]


def words(text: str) -> list[str]:
    return re.findall(r"[\w'’-]+", text.lower())


def lines(text: str) -> list[str]:
    return [line for line in text.split("\n") if line.strip()]


def says(*wanted: str) -> Score:
    return lambda text: float(set(wanted) <= set(words(text)))


def nearness(target: float) -> Score:
    return lambda text: -min(abs(float(number) - target) for number in re.findall(r"\d+(?:\.\d+)?", text))


def one_word(text: str) -> float:
    return float(len(words(text)) == 1)


def brief(text: str) -> float:
    """Counted in doublings of the number of words, so that a word more or less decides nothing."""
    return -int(math.log2(len(words(text))))


def points(text: str) -> float:
    return float(sum(line.startswith("- ") for line in lines(text)))


def days_in_a_leap_year() -> int:
    return sum(calendar.monthrange(2024, month)[1] for month in range(1, 13))


# The higher score wins, equal scores are a tie.
CHECKS: dict[str, dict[str, Score]] = {
    "Which planet is the largest in our solar system?": {"precision": brief, "correctness": says("jupiter")},
    "How many days are there in a leap year?": {"precision": brief, "correctness": nearness(days_in_a_leap_year())},
    "Write a short birthday greeting for a colleague.": {"precision": brief, "format": says("happy", "birthday")},
    "Name the capital of Australia in one word.": {"correctness": says("canberra"), "format": one_word},
    "List ways to save water at home.": {"format": points},
}


@each_worked_pair
def test_a_worked_example_is_right_where_a_program_can_tell(pair: Pair) -> None:
    checks = CHECKS.get(pair.instruction)
    assert checks, f"no check for the worked example {pair.instruction!r}: add what a program can see to CHECKS"
    labels = settled(pair)
    for dimension, score in checks.items():
        a, b = score(pair.output_1), score(pair.output_2)
        expected = "tie" if a == b else "A" if a > b else "B"
        assert labels.get(dimension, expected) == expected, f"{dimension}: A scores {a}, B scores {b}"


def test_no_check_is_left_over() -> None:
    assert set(CHECKS) == {pair.instruction for pair in WORKED}
