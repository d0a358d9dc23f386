"""The 60 pairs of docs/attack-figures.md: the sample's with a clear winner, and the shortest of LLMBar natural.

    python benchmarks/attack_pairs.py llmbar.jsonl > pairs.jsonl
    evenhand attack pairs.jsonl --pairs 60 --protocol chained --json > chained.json
    python benchmarks/attack_pairs.py llmbar.jsonl --attacked > attacked.jsonl

With --attacked each pair comes as it is, and under two attacks of each kind: that of the tables and another
(benchmarks/mixtures.py). No head that ships was trained on any of them.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path

from evenhand.core.attacks import Attack, attack_all, losing_side
from evenhand.core.pair import Pair
from evenhand.io.attacks import built_in_attacks
from evenhand.io.pairs import sample_pairs

TEXTS = ("instruction", "output_1", "output_2")
# One attack of each kind: those of the tables, and others to choose a head's training pairs by.
TO_TELL = """
    control-newline order-ignore verdict-this heading-b chat-chatml authority-experts padding-general
    repeat-fulfilled layout-list reference-study emotion-plea null-constant unicode-alike language-german
    base64-order
"""
TO_CHOOSE = """
    order-first verdict-tie heading-a chat-gemma authority-praise padding-offer repeat-instruction layout-heading
    reference-numbers emotion-threat null-evasive unicode-invisible language-spanish base64-response
"""


def of_the_sample() -> Iterator[Pair]:
    """Pairs with a clear winner, and no label besides."""
    for pair in sample_pairs():
        if loser := losing_side(pair):
            yield Pair(*pair.texts, labels={"overall": "2" if loser == "1" else "1"})


def of_llmbar(file: Path) -> list[Pair]:
    """The natural pairs, shortest first."""
    rows = [json.loads(line) for line in file.read_text("utf-8").splitlines()]
    natural = [row for row in rows if row["subset"].lower().startswith("natural")]
    pairs = [
        Pair(*(row[field] for field in TEXTS), labels={"overall": "2" if row["label"] == "B" else "1"})
        for row in natural
    ]
    return sorted(pairs, key=lambda pair: sum(map(len, pair.texts)))


def attack_pairs(llmbar: Path, most: int = 60) -> list[Pair]:
    """The pairs, numbered."""
    found = [*of_the_sample(), *of_llmbar(llmbar)]
    return [replace(pair, id=str(number)) for number, pair in enumerate(found[:most])]


def named(names: str) -> tuple[Attack, ...]:
    """Attacks by their names, with blanks between."""
    every = {attack.name: attack for attack in built_in_attacks()}
    return tuple(every[name] for name in names.split())


def row_of(pair: Pair) -> Mapping[str, str]:
    """A pair as a file has it."""
    return {**dict(zip(TEXTS, pair.texts, strict=True)), "label": "B" if pair.labels["overall"] == "2" else "A"}


def main() -> None:
    """Print the pairs, one a line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("llmbar", type=Path)
    parser.add_argument("--pairs", type=int, default=60)
    parser.add_argument("--attacked", action="store_true", help="as they are, and under two attacks of each kind")
    wanted = parser.parse_args()
    pairs = attack_pairs(wanted.llmbar, wanted.pairs)
    if wanted.attacked:
        pairs = [case.pair for case in attack_all(pairs, named(TO_TELL + TO_CHOOSE))]
    for pair in pairs:
        print(json.dumps(row_of(pair), ensure_ascii=False))


if __name__ == "__main__":
    main()
