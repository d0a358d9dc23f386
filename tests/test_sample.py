"""The shipped sample: its shape, its balance, and every label that a program can check."""

from __future__ import annotations

import calendar
import json
import re
from collections import Counter
from collections.abc import Callable
from importlib.resources import files
from typing import Any

import pytest

Pair = dict[str, Any]
Score = Callable[[str], float]
Check = Callable[[Pair], str]

FIELDS = ["id", "instruction", "output_1", "output_2", "model_1", "model_2", "labels", "category", "why"]
DIMENSIONS = ["precision", "correctness", "format", "overall"]
LEAST = {"wrong fact": 5, "padded": 5, "broken format": 5, "true tie": 5, "dimensions disagree": 6}
DECIDING = {"wrong fact": "correctness", "padded": "precision", "broken format": "format"}
MIRROR = {"1": "2", "2": "1", "tie": "tie"}


def load() -> list[Pair]:
    text = (files("evenhand") / "io" / "sample.jsonl").read_text(encoding="utf-8")
    return [json.loads(line) for line in text.splitlines()]


PAIRS = load()
BY_ID = {str(pair["id"]): pair for pair in PAIRS}


# What a program can see in one output: each function gives a score, and the higher one wins.


def words(text: str) -> list[str]:
    return re.findall(r"[\w'’-]+", text)


def sentences(text: str) -> int:
    return len(re.findall(r"[.!?](?=\s|$)", text))


def syllables(line: str) -> int:
    """Count groups of vowels, less the silent e; good enough for the plain words of the sample."""
    found = 0
    for word in words(line.lower()):
        groups = len(re.findall(r"[aeiouy]+", word))
        silent = bool(re.search(r"[^aeiouyl]e$", word)) and groups > 1
        found += groups - silent
    return found


def within(limit: int) -> Score:
    return lambda text: len(words(text)) <= limit


def exactly(count: int) -> Score:
    return lambda text: sentences(text) == count


def matches(pattern: str) -> Score:
    return lambda text: re.fullmatch(pattern, text) is not None


def names(*wanted: str) -> Score:
    return lambda text: all(word in text.lower() for word in wanted)


def lacks(*foreign: str) -> Score:
    return lambda text: not any(word in text.lower() for word in foreign)


def near(truth: float) -> Score:
    """The last number of the text, the nearer to the truth the better."""
    return lambda text: -abs(float(re.findall(r"\d+(?:\.\d+)?", text)[-1]) - truth)


def gives(expected: object, **variables: object) -> Score:
    """Whether the text is a Python expression of the expected value."""

    def score(text: str) -> float:
        try:
            return bool(eval(text, dict(variables)) == expected)
        except AttributeError:
            return False

    return score


def syllable_lines(*counts: int) -> Score:
    return lambda text: [syllables(line) for line in text.splitlines()] == list(counts)


def json_keys(*keys: str) -> Score:
    def score(text: str) -> float:
        try:
            return list(json.loads(text)) == list(keys)
        except ValueError:
            return False

    return score


def primes_in(text: str) -> float:
    return len({int(number) for number in re.findall(r"\d+", text)} & {2, 3, 5, 7})


def says_leap(text: str) -> float:
    return text.startswith("Yes") == calendar.isleap(1900)


def no_wrong_month(text: str) -> float:
    """A text that claims nothing of months claims nothing wrong of them."""
    named = [month for month in range(1, 13) if calendar.month_name[month] in text]
    return all(calendar.monthrange(2023, month)[1] == 31 for month in named)


def prefer(score: Score) -> Check:
    def check(pair: Pair) -> str:
        first, second = score(pair["output_1"]), score(pair["output_2"])
        if first == second:
            return "tie"
        return "1" if first > second else "2"

    return check


BULLETS = r"- .+(?:\n- .+)+"
XS = [1, 2, 5]
LEAP_DAY = f"02-{calendar.monthrange(2024, 2)[1]}"

CHECKS: dict[tuple[str, str], Check] = {
    ("sample-leap-year", "correctness"): prefer(says_leap),
    ("sample-leap-year", "format"): prefer(exactly(1)),
    ("sample-citrus-lines", "precision"): prefer(within(3)),
    ("sample-citrus-lines", "correctness"): prefer(names("lemon", "orange", "lime")),
    ("sample-citrus-lines", "format"): prefer(matches(r"\w+\n\w+\n\w+")),
    ("sample-symbols-json", "correctness"): prefer(names("au", "ag")),
    ("sample-symbols-json", "format"): prefer(json_keys("gold", "silver")),
    ("sample-haiku-rain", "format"): prefer(syllable_lines(5, 7, 5)),
    ("sample-liquid-metal", "precision"): prefer(lacks("planet", "god")),
    ("sample-liquid-metal", "correctness"): prefer(names("mercury")),
    ("sample-liquid-metal", "format"): prefer(within(1)),
    ("sample-multiply", "correctness"): prefer(near(17 * 24)),
    ("sample-multiply", "format"): prefer(matches(r"[\d ×+=]+")),
    ("sample-hours-in-week", "precision"): prefer(lacks("octopus", "seine")),
    ("sample-hours-in-week", "correctness"): prefer(near(7 * 24)),
    ("sample-hours-in-week", "format"): prefer(exactly(1)),
    ("sample-toast-steps", "format"): prefer(matches(r"1\. .+\n2\. .+\n3\. .+")),
    ("sample-freezing-point", "correctness"): prefer(near(0)),
    ("sample-largest-ocean", "correctness"): prefer(names("pacific")),
    ("sample-largest-ocean", "format"): prefer(str.isupper),
    ("sample-capital-australia", "correctness"): prefer(names("is canberra")),
    ("sample-capital-australia", "format"): prefer(exactly(1)),
    ("sample-ice-floats", "correctness"): prefer(names("ice floats because it is less dense")),
    ("sample-ice-floats", "format"): prefer(within(15)),
    ("sample-leap-day-form", "format"): prefer(matches(re.escape(LEAP_DAY))),
    ("sample-seven-times-eight", "correctness"): prefer(near(7 * 8)),
    ("sample-seven-times-eight", "format"): prefer(matches(r"7 × 8 = \d+")),
    ("sample-first-primes", "correctness"): prefer(primes_in),
    ("sample-first-primes", "format"): prefer(matches(BULLETS)),
    ("sample-plant-gas", "correctness"): prefer(names("take in carbon dioxide", "give off oxygen")),
    ("sample-thermometer", "precision"): prefer(lacks("yeast")),
    ("sample-thermometer", "format"): prefer(exactly(2)),
    ("sample-seasons-capitals", "correctness"): prefer(names("spring", "summer", "autumn", "winter")),
    ("sample-seasons-capitals", "format"): prefer(matches(r"(?:[A-Z]+, ){3}[A-Z]+")),
    ("sample-good-morning", "format"): prefer(exactly(1)),
    ("sample-brew-tea", "correctness"): prefer(lacks("boils at 80 °c")),
    ("sample-brew-tea", "format"): prefer(exactly(1)),
    ("sample-reverse-string", "correctness"): prefer(gives("cba", s="abc")),
    ("sample-birthday-lines", "precision"): prefer(lacks("square")),
    ("sample-birthday-lines", "format"): prefer(matches(r".+\n.+")),
    ("sample-legs-table", "correctness"): prefer(names("spider", "8", "ant", "6", "bird", "2")),
    ("sample-legs-table", "format"): prefer(matches(r"(?:\|.+\|\n){4}\|.+\|")),
    ("sample-sleep-tips", "precision"): prefer(lacks("flour", "baking", "oven")),
    ("sample-sleep-tips", "format"): prefer(matches(BULLETS)),
    ("sample-hexagon", "precision"): prefer(lacks("everest")),
    ("sample-hexagon", "correctness"): prefer(names("hexagon has six sides")),
    ("sample-hexagon", "format"): prefer(exactly(2)),
    ("sample-sum-squares", "correctness"): prefer(gives(30, xs=XS)),
    ("sample-long-months", "correctness"): prefer(no_wrong_month),
    ("sample-long-months", "format"): prefer(matches(r"(?:\w+, ){6}\w+")),
}


def mirrored(pair: Pair) -> Pair:
    return {**pair, "output_1": pair["output_2"], "output_2": pair["output_1"]}


def label_counts(dimension: str) -> Counter[str]:
    return Counter(pair["labels"][dimension] for pair in PAIRS)


@pytest.mark.parametrize(("key", "dimension"), CHECKS)
def test_label_follows_from_the_outputs(key: str, dimension: str) -> None:
    check, pair = CHECKS[key, dimension], BY_ID[key]
    label = pair["labels"][dimension]
    assert check(pair) == label
    assert check(mirrored(pair)) == MIRROR[label]


@pytest.mark.parametrize(
    ("key", "score"),
    [
        ("sample-haiku-rain", syllable_lines(5, 7, 5)),
        ("sample-good-morning", exactly(1)),
        ("sample-thermometer", exactly(2)),
        ("sample-hexagon", exactly(2)),
        ("sample-brew-tea", exactly(1)),
        ("sample-leap-year", exactly(1)),
        ("sample-birthday-lines", matches(r".+\n.+")),
        ("sample-multiply", matches(r"[\d ×+=]+")),
        ("sample-sum-squares", gives(30, xs=XS)),
    ],
)
def test_a_tie_is_two_successes(key: str, score: Score) -> None:
    """These ties hold because both outputs comply, not because both fail."""
    assert [score(BY_ID[key]["output_1"]), score(BY_ID[key]["output_2"])] == [True, True]


def test_the_wrong_list_of_months_has_one_slip() -> None:
    named = BY_ID["sample-long-months"]["output_2"].split(", ")
    long = {calendar.month_name[m] for m in range(1, 13) if calendar.monthrange(2023, m)[1] == 31}
    assert len(set(named)) == len(long) == 7
    assert len(set(named) - long) == 1


def test_checks_cover_enough() -> None:
    assert len({key for key, _ in CHECKS}) >= 20
    decided = {key for key, dimension in CHECKS if BY_ID[key]["labels"][dimension] != "tie"}
    assert len(decided) >= 14


@pytest.mark.parametrize("pair", PAIRS, ids=list(BY_ID))
def test_fields(pair: Pair) -> None:
    assert list(pair) == FIELDS
    assert list(pair["labels"]) == DIMENSIONS
    assert set(pair["labels"].values()) <= set(MIRROR)
    assert (pair["model_1"], pair["model_2"]) == ("plain", "rival")
    assert re.fullmatch(r"sample(-[a-z]+)+", pair["id"])
    assert all(pair[field].strip() == pair[field] != "" for field in FIELDS if field != "labels")


@pytest.mark.parametrize("pair", PAIRS, ids=list(BY_ID))
def test_lengths(pair: Pair) -> None:
    assert len(pair["instruction"].split()) <= 25
    assert max(len(pair[side].split()) for side in ("output_1", "output_2")) <= 45
    assert pair["output_1"] != pair["output_2"]


@pytest.mark.parametrize("pair", PAIRS, ids=list(BY_ID))
def test_labels_agree_with_the_category(pair: Pair) -> None:
    labels, category = pair["labels"], pair["category"]
    if category == "true tie":
        assert set(labels.values()) == {"tie"}
    elif category == "dimensions disagree":
        assert {labels[dimension] for dimension in DIMENSIONS[:3]} >= {"1", "2"}
        assert labels["overall"] != "tie"
    else:
        assert labels[DECIDING[category]] == labels["overall"] != "tie"
        assert {labels[dimension] for dimension in DIMENSIONS} <= {"tie", labels["overall"]}


def test_counts() -> None:
    assert len(PAIRS) == len(BY_ID) >= 24
    counted = Counter(pair["category"] for pair in PAIRS)
    assert set(counted) == set(LEAST)
    assert all(counted[category] >= least for category, least in LEAST.items())


@pytest.mark.parametrize("dimension", DIMENSIONS)
def test_balance_of_labels(dimension: str) -> None:
    counted = label_counts(dimension)
    assert abs(counted["1"] - counted["2"]) <= 1
    assert counted["tie"] >= 5


def test_length_does_not_decide() -> None:
    """Neither the longer nor the shorter output wins much more than half of the decided pairs."""
    decided = [pair for pair in PAIRS if pair["labels"]["overall"] != "tie"]
    longer = prefer(len)
    share = sum(longer(pair) == pair["labels"]["overall"] for pair in decided) / len(decided)
    assert 0.4 <= share <= 0.55
