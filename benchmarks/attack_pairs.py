"""The 60 pairs of docs/attacks.md: those of the sample with a clear winner, and the shortest of LLMBar natural.

    python benchmarks/attack_pairs.py llmbar.jsonl > pairs.jsonl
    evenhand attack pairs.jsonl --pairs 60 --protocol chained --json > chained.json

No head that ships was trained on any of them.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator, Mapping
from pathlib import Path

from evenhand.core.attacks import losing_side
from evenhand.io.pairs import sample_pairs

TEXTS = ("instruction", "output_1", "output_2")


def of_the_sample() -> Iterator[dict[str, str]]:
    """Pairs with their labels, as a file has them."""
    for pair in sample_pairs():
        if loser := losing_side(pair):
            yield {**dict(zip(TEXTS, pair.texts, strict=True)), "label": "B" if loser == "1" else "A"}


def of_llmbar(file: Path) -> list[dict[str, str]]:
    """The natural pairs, shortest first."""
    rows = [json.loads(line) for line in file.read_text("utf-8").splitlines()]
    natural = [row for row in rows if row["subset"].lower().startswith("natural")]
    return [{field: row[field] for field in (*TEXTS, "label")} for row in sorted(natural, key=_length)]


def _length(row: Mapping[str, str]) -> int:
    return sum(len(row[field]) for field in TEXTS)


def main() -> None:
    """Print the pairs, one a line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("llmbar", type=Path)
    parser.add_argument("--pairs", type=int, default=60)
    wanted = parser.parse_args()
    found = [*of_the_sample(), *of_llmbar(wanted.llmbar)]
    for row in found[: wanted.pairs]:
        print(json.dumps(row, ensure_ascii=False))


if __name__ == "__main__":
    main()
