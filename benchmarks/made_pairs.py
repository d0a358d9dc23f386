"""Pairs made by program: a good answer, and the same answer with exactly one thing damaged.

    python benchmarks/made_pairs.py made.jsonl                                      from the seeds in this file
    python benchmarks/made_pairs.py made.jsonl --from pandalm.jsonl --most 60       and from outputs that people chose

Each pair says what was damaged (`damage`) and what follows for each dimension (`labels`): a dimension that the damage
leaves alone is a tie, and one for which that cannot be known is not named. Damage makes a response longer, shorter or
leaves its length, so that length is no clue. Seeds with a second good answer give pairs that are ties throughout.
"""

from __future__ import annotations

import argparse
import json
import random
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Seed:
    """A task with a good answer; `wrong` is the same answer with a false fact, `fancy` a longer and more fluent one.

    `broken` is the same content in a form that was not asked for; `other` is as good as `good`.
    """

    task: str
    good: str
    wrong: str = ""
    fancy: str = ""
    broken: str = ""
    other: str = ""
    bound: bool = False  # whether the task sets a form that any addition breaks


SEEDS = (
    Seed("What is the capital of Canada?", "The capital of Canada is Ottawa.", "The capital of Canada is Toronto.",
         "The capital of Canada is Toronto, a lively city on Lake Ontario with a famous tower.",
         other="Ottawa is the capital of Canada."),
    Seed("How many days are there in February in a leap year? Answer with a number only.", "29", "28",
         "In a leap year, February is given one more day, so that it has 30 days.", "Twenty-nine days", bound=True),
    Seed("Name three primary colours of paint, separated by commas.", "red, yellow, blue", "red, green, blue",
         broken="red\nyellow\nblue", other="blue, red, yellow", bound=True),
    Seed("Translate into French: Good morning, my friend.", "Bonjour, mon ami.", "Bonne nuit, mon ami.",
         other="Bonjour mon ami."),
    Seed("Who wrote the play Hamlet?", "William Shakespeare wrote Hamlet.", "Christopher Marlowe wrote Hamlet.",
         "Hamlet was written by Christopher Marlowe, the brilliant dramatist who shaped the English stage.",
         other="Hamlet was written by William Shakespeare."),
    Seed("List the four seasons as a numbered list.", "1. Spring\n2. Summer\n3. Autumn\n4. Winter",
         broken="Spring, summer, autumn and winter", bound=True),
    Seed("Convert 5 kilometres to metres.", "5 kilometres are 5,000 metres.", "5 kilometres are 500 metres.",
         "To convert kilometres to metres, multiply by one hundred: 5 kilometres are therefore exactly 500 metres.",
         other="5,000 metres"),
    Seed("Write the word 'hello' in capital letters.", "HELLO", broken="Hello", bound=True),
    Seed("Why is the sky blue? Explain in one sentence.",
         "Air scatters the short blue waves of sunlight more than the long red ones.",
         "Air scatters the long red waves of sunlight more than the short blue ones.",
         broken="Air scatters light. It scatters short blue waves most. Long red waves pass through. So we see blue.",
         bound=True),
    Seed('Give the name and age of Ann, who is 30, as a JSON object with the keys "name" and "age".',
         '{"name": "Ann", "age": 30}', '{"name": "Ann", "age": 13}', broken="name: Ann, age: 30", bound=True),
    Seed("What is 12 times 12?", "12 times 12 is 144.", "12 times 12 is 124.",
         "We multiply 12 by 10 to get 120, add 2 twice, and so arrive at the result: 12 times 12 is 124.",
         other="144"),
    Seed("Is a whale a fish? Give a reason.", "No. A whale is a mammal: it breathes air and feeds its young with milk.",
         "Yes. A whale is a fish: it lives in the sea and swims with fins.",
         other="No, because it breathes air and suckles its young, as mammals do."),
    Seed("Give two tips for sleeping better, as bullet points.",
         "- Go to bed at the same time every day.\n- Keep the bedroom dark and cool.",
         broken="Go to bed at the same time every day, and keep the bedroom dark and cool.",
         other="- Avoid coffee in the evening.\n- Put your phone away before bed.", bound=True),
    Seed("At what temperature does water boil at sea level, in degrees Celsius?", "Water boils at 100 °C at sea level.",
         "Water boils at 90 °C at sea level.",
         "At sea level, where the air presses with its full weight, water begins to boil at about 90 °C.",
         other="At 100 degrees Celsius."),
    Seed("Rewrite in the past tense: She walks to school.", "She walked to school.", "She will walk to school.",
         other="She walked to school"),
    Seed("Which gas do plants take in for photosynthesis?", "Plants take in carbon dioxide.", "Plants take in oxygen.",
         "During photosynthesis plants take in oxygen through small openings in their leaves, and sunlight does the rest.",
         other="Carbon dioxide."),
    Seed("Write an email subject line of at most five words for a meeting moved to Friday.",
         "Meeting moved to Friday", "Meeting moved to Thursday",
         broken="Please note that our regular weekly meeting has now been moved to Friday", bound=True),
    Seed("Classify the mood of this review as positive or negative: 'The food was cold and the waiter rude.'",
         "Negative", "Positive", "This review is positive, since the guest describes the food and the service in detail."),
    Seed("Who painted the Mona Lisa, and in which century?",
         "Leonardo da Vinci painted the Mona Lisa in the 16th century.",
         "Michelangelo painted the Mona Lisa in the 16th century.",
         "The Mona Lisa was painted by Michelangelo, the great master of the Renaissance, in the 15th century."),
    Seed("Give the steps to boil an egg, in order.",
         "1. Bring water to the boil.\n2. Put the egg in for eight minutes.\n3. Cool it in cold water.",
         "1. Bring water to the boil.\n2. Put the egg in for eight hours.\n3. Cool it in cold water.",
         broken="Cool it in cold water in the end. Before that boil it for eight minutes, after the water boils."),
    Seed("What does the Python expression len('tree') give?", "It gives 4.", "It gives 5.",
         "The function len counts the characters of a string, and including the quotation mark it gives 5.", other="4"),
    Seed("Sort these numbers from small to large: 9, 2, 14, 7.", "2, 7, 9, 14", "2, 9, 7, 14", other="2 7 9 14"),
    Seed("Summarise in one short sentence: Tom lost his keys, looked for them all day, and found them in his coat.",
         "Tom searched all day for his keys and found them in his coat.",
         "Tom searched all day for his keys and never found them.",
         broken="Tom lost his keys. He looked for them all day. Then he looked in his coat. They were there.", bound=True),
    Seed("In which year did the first people land on the Moon?", "They landed in 1969.", "They landed in 1959.",
         "After years of preparation and many test flights, the first people landed on the Moon in July 1959.",
         other="In 1969."),
    Seed("Answer yes or no: Is 17 a prime number?", "Yes", "No",
         "No, because 17 can be divided by several smaller numbers without a remainder.", bound=True),
    Seed("Suggest a name for a bakery.", "Golden Crust Bakery", other="The Morning Loaf"),
    Seed("Correct the grammar: He don't like apples.", "He doesn't like apples.", "He don't likes apples.",
         other="He does not like apples."),
    Seed("Name the largest ocean.", "The Pacific Ocean is the largest.", "The Atlantic Ocean is the largest.",
         "The largest ocean of all is the mighty Atlantic, which stretches from Europe to America.",
         other="The Pacific Ocean."),
)  # fmt: skip

_PADDING = (
    "What a great question! I am glad that you asked, and I will do my very best to help you. ",
    "Thank you for your message. As an assistant I am always happy to answer. Here is what I can say: ",
)
_CLOSING = (" I hope that this helps! Please let me know if there is anything else that I can do for you.",)
_DRIFT = (
    " By the way, honey never spoils, and the Great Wall of China is several thousand kilometres long.",
    " Speaking of which, many people enjoy gardening, because it is relaxing and good for the health.",
)
WORSE, TIE = "1", "tie"  # the undamaged response is output 1 until the sides are shuffled


@dataclass(frozen=True)
class Made:
    """A damaged response, and the verdict for each dimension where output 1 is the good one."""

    damage: str
    text: str
    labels: Mapping[str, str]


def verdicts(*, precision: str = TIE, correctness: str = TIE, form: str = TIE, overall: str = WORSE) -> dict[str, str]:
    """The labels of a pair; an empty one is left out."""
    every = {"precision": precision, "correctness": correctness, "format": form, "overall": overall}
    return {name: label for name, label in every.items() if label}


def from_seed(seed: Seed, dice: random.Random) -> Iterator[Made]:
    """All that can be done to a seed."""
    form = WORSE if seed.bound else TIE
    if seed.wrong:
        yield Made("wrong fact", seed.wrong, verdicts(correctness=WORSE))
    if seed.fancy:
        yield Made("wrong and fluent", seed.fancy, verdicts(correctness=WORSE, precision="", form=form if seed.bound else ""))
    if seed.broken:
        yield Made("broken form", seed.broken, verdicts(form=WORSE))
    if seed.other:
        yield Made("none", seed.other, verdicts(overall=TIE))
    padded = dice.choice(_PADDING) + seed.good
    drifted = seed.good + dice.choice(_DRIFT)
    chosen, name = dice.choice([(padded, "padding"), (drifted, "drift"), (repeated(seed.good), "repetition")])
    yield Made(name, chosen, verdicts(precision=WORSE, form=form))


def repeated(text: str) -> str:
    """The same thing said three times."""
    return f"{text} {text} To say it once more: {text}"


def numbers(text: str, dice: random.Random) -> str | None:
    """One number changed."""
    found = list(re.finditer(r"\d+", text))
    if not found:
        return None
    place = dice.choice(found)
    value = int(place[0])
    return text[: place.start()] + str(value + dice.choice([1, 2, 7, max(1, value // 2)])) + text[place.end() :]


def negated(text: str, dice: random.Random) -> str | None:
    """One statement turned into its opposite."""
    for verb in (" is ", " are ", " was ", " were ", " can ", " should ", " will "):
        if verb in text and f"{verb}not" not in text:
            return text.replace(verb, f"{verb}not ", 1)
    return None


def cut_short(text: str, dice: random.Random) -> str | None:
    """The end missing."""
    words = text.split(" ")
    return " ".join(words[: len(words) // 2]) if len(words) >= 8 else None


def without_part(text: str, dice: random.Random) -> str | None:
    """One sentence or line missing."""
    parts = re.split(r"(?<=[.!?])\s+|\n", text)
    if len(parts) < 3:
        return None
    del parts[dice.randrange(len(parts))]
    return ("\n" if "\n" in text else " ").join(parts)


def drifting(text: str, dice: random.Random) -> str | None:
    """A remark on something else at the end."""
    return text + dice.choice(_DRIFT)


def chatty(text: str, dice: random.Random) -> str | None:
    """Words that say nothing before and after."""
    return dice.choice(_PADDING) + text + dice.choice(_CLOSING)


def said_again(text: str, dice: random.Random) -> str | None:
    """Said twice."""
    return f"{text} {text}"


Damage = Callable[[str, random.Random], str | None]
DAMAGES: tuple[tuple[str, Damage, dict[str, str]], ...] = (
    ("number", numbers, verdicts(correctness=WORSE)),
    ("negation", negated, verdicts(correctness=WORSE)),
    ("cut short", cut_short, verdicts(precision=WORSE, correctness="", form="")),
    ("part missing", without_part, verdicts(precision=WORSE, correctness="", form="")),
    ("drift", drifting, verdicts(precision=WORSE, form="")),
    ("padding", chatty, verdicts(precision=WORSE, form="")),
    ("repetition", said_again, verdicts(precision=WORSE, form="")),
)


def chosen_outputs(file: Path, longest: int) -> list[tuple[str, str]]:
    """Outputs that all annotators preferred, one an instruction, short ones only."""
    found: dict[str, str] = {}
    for line in file.read_text("utf-8").splitlines():
        row = json.loads(line)
        if row["label"] in ("A", "B") and set(row["human"]) == {row["label"]}:
            text = row["output_1" if row["label"] == "A" else "output_2"]
            if len(row["instruction"]) + len(text) <= longest and len(text) >= 20:
                found.setdefault(row["instruction"], text)
    return list(found.items())


def pair(number: int, task: str, good: str, made: Made, dice: random.Random) -> dict[str, object]:
    """One line of the file; which side is the good one is drawn."""
    swap = dice.random() < 0.5
    sides = {"1": "2", "2": "1"} if swap else {}
    outputs = (made.text, good) if swap else (good, made.text)
    labels = {name: sides.get(label, label) for name, label in made.labels.items()}
    named = {"id": f"made-{number:04}", "instruction": task, "output_1": outputs[0], "output_2": outputs[1]}
    return {**named, "labels": labels, "damage": made.damage, "subset": made.damage, "source": "made"}


def main() -> None:
    """Write the pairs."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("target", type=Path)
    parser.add_argument("--from", dest="source", type=Path)
    parser.add_argument("--most", type=int, default=60)
    parser.add_argument("--longest", type=int, default=350)
    parser.add_argument("--seed", type=int, default=0)
    wanted = parser.parse_args()
    dice = random.Random(wanted.seed)
    rows = [(seed.task, seed.good, made) for seed in SEEDS for made in from_seed(seed, dice)]
    if wanted.source:
        good = chosen_outputs(wanted.source, wanted.longest)
        dice.shuffle(good)
        for number, (task, text) in enumerate(good[: wanted.most]):
            for step in range(len(DAMAGES)):  # the kinds take turns; one that cannot be done leaves its turn
                name, damage, labels = DAMAGES[(number + step) % len(DAMAGES)]
                damaged = damage(text, dice)
                if damaged and damaged != text:
                    rows.append((task, text, Made(name, damaged, labels)))
                    break
    lines = [json.dumps(pair(n, *row, dice), ensure_ascii=False) for n, row in enumerate(rows)]
    wanted.target.write_text("\n".join(lines) + "\n", "utf-8")
    print(f"{len(lines)} pairs")


if __name__ == "__main__":
    main()
