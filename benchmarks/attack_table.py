"""The tables of docs/attack-figures.md, from what `evenhand attack --json` wrote.

    evenhand attack pairs.jsonl --pairs 60 --protocol chained --json > chained.json
    python benchmarks/attack_table.py chained.json holistic.json --figure shift
    python benchmarks/attack_table.py chained.json holistic.json --figure turned

A row is an attack, a column a judge and protocol, headed by the protocol where each has one of its own; a fence
is part of the protocol's name. Several runs of one judge and protocol share a column. What stands out after Holm's
correction within its run has a star.
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


def span(values: list[Any], form: str) -> str:
    """What several runs of one column say: one value, or from the least to the greatest."""
    said = list(dict.fromkeys(form.format(each) for each in sorted(each for each in values if each is not None)))
    return said[0] if len(said) == 1 else " to ".join([said[0], said[-1]]) if said else ""


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", type=Path, nargs="+")
    parser.add_argument("--figure", choices=FIGURES, default="shift")
    wanted = parser.parse_args()
    columns: dict[str, list[Found]] = {}
    for file in wanted.files:
        run = json.loads(file.read_text("utf-8"))["attack"]
        columns.setdefault(f"{run['judge']} {run['protocol']}", []).append(run)
    runs = list(columns.values())
    effects = [{each["attack"]: each for run in column for each in run["attacks"]} for column in runs]
    protocols = [column[0]["protocol"] for column in runs]
    one_judge = len({*protocols}) == len(runs)
    print(row("attack", [f"`{name}`" for name in (protocols if one_judge else columns)]))
    print(row("---", ["--:"] * len(runs)))
    for name in dict.fromkeys(name for each in effects for name in each):
        print(row(f"`{name}`", [cell(each.get(name), wanted.figure) for each in effects]))
    print(row("pairs", [span([run["pairs"] for run in column], "{}") for column in runs]))
    print(row("right before", [span([run["right"]["value"] for run in column], "{:.0%}") for column in runs]))


if __name__ == "__main__":
    main()
