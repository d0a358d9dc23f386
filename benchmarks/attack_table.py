"""The tables of docs/attacks.md, from what `evenhand attack --json` wrote.

    evenhand attack pairs.jsonl --pairs 60 --protocol chained --json > chained.json
    python benchmarks/attack_table.py chained.json holistic.json --figure shift
    python benchmarks/attack_table.py chained.json holistic.json --figure turned

A row is an attack, a column a judge; a fence is part of the protocol's name. What stands out after Holm's
correction within its judge has a star.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from evenhand.results.questions import stands_out

Found = Mapping[str, Any]
FIGURES = ("shift", "turned", "right_lost")


def cell(effect: Found | None, figure: str) -> str:
    """One figure in points or percent, with its 95% interval."""
    if effect is None or effect[figure]["value"] is None:
        return ""
    found = effect[figure]
    sign = "+" if figure == "shift" else ""
    value, *ends = [None if found[end] is None else 100 * found[end] for end in ("value", "low", "high")]
    interval = f" ({ends[0]:{sign}.0f} to {ends[1]:{sign}.0f})" if None not in ends else ""
    star = "*" if figure == "shift" and stands_out(effect["p_holm"]) else ""
    return f"{value:{sign}.0f}{star}{interval}"


def row(name: str, cells: list[str]) -> str:
    """One row of Markdown."""
    return f"| {' | '.join([name, *cells])} |"


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", type=Path, nargs="+")
    parser.add_argument("--figure", choices=FIGURES, default="shift")
    wanted = parser.parse_args()
    judges = [json.loads(file.read_text("utf-8"))["attack"] for file in wanted.files]
    effects = [{each["attack"]: each for each in judge["attacks"]} for judge in judges]
    print(row("attack", [f"`{judge['protocol']}`" for judge in judges]))
    print(row("---", ["--:"] * len(judges)))
    for name in dict.fromkeys(name for each in effects for name in each):
        print(row(f"`{name}`", [cell(each.get(name), wanted.figure) for each in effects]))
    print(row("pairs", [str(judge["pairs"]) for judge in judges]))
    print(row("right before", [f"{100 * judge['right']['value']:.0f}%" for judge in judges]))
    print(row("turned by some attack", [f"{100 * judge['any_turned']['value']:.0f}%" for judge in judges]))


if __name__ == "__main__":
    main()
