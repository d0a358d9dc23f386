"""AlpacaEval's length control here, beside its published column.

    git clone https://github.com/tatsu-lab/alpaca_eval
    python benchmarks/alpaca_length.py alpaca_eval

Reads the verdicts of every model in the checkout. AlpacaEval's own difficulties are not in its repository, so they
are estimated here from the same models: what is left of the verdicts on an instruction beside each model's rate and
length.
"""

from __future__ import annotations

import argparse
import csv
import json
from pathlib import Path

import numpy as np
from scipy.special import expit

from evenhand.core.stats.alpaca import PUBLISHED, alpaca_length_controlled

JUDGE, BASELINE = "weighted_alpaca_eval_gpt4_turbo", "gpt4_1106_preview"
BOARD = f"src/alpaca_eval/leaderboards/data_AlpacaEval_2/{JUDGE}_leaderboard.csv"
Model = tuple[np.ndarray, np.ndarray, list[str]]  # values, differences in length, instructions


def read(file: Path) -> Model:
    """One model's verdicts: 1 to 2 in the file, of which 0 and 1.5 are ties."""
    rows = [row for row in json.loads(file.read_text()) if row["preference"] is not None]
    values = np.array([float(row["preference"]) or 1.5 for row in rows]) - 1
    longer = np.array([len(row["output_2"]) - len(row["output_1"]) for row in rows], dtype=float)
    return values, longer, [row["instruction"] for row in rows]


def difficulties(models: list[Model]) -> dict[str, float]:
    """A number for each instruction, by turns with each model's level and effect of length."""
    names = {name: place for place, name in enumerate(dict.fromkeys(x for *_, each in models for x in each))}
    found = np.zeros(len(names))
    for _ in range(6):
        left, weight = np.zeros(len(names)), np.zeros(len(names))
        for values, longer, instructions in models:
            place = np.array([names[x] for x in instructions])
            x = np.column_stack([np.ones(len(values)), np.tanh(longer / longer.std(ddof=1))])
            b = np.zeros(2)
            for _ in range(30):
                mean = expit(x @ b + found[place])
                curve = (x * (mean * (1 - mean))[:, None]).T @ x + 1e-3 * np.eye(2)
                b = b + np.linalg.solve(curve, x.T @ (values - mean) - 1e-3 * b)
            mean = expit(x @ b + found[place])
            left += np.bincount(place, values - mean, minlength=len(names))
            weight += np.bincount(place, mean * (1 - mean), minlength=len(names))
        found = found + (left - 0.3 * found) / (weight + 0.3)
    return dict(zip(names, (found - found.mean()).tolist(), strict=True))


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("checkout", type=Path)
    checkout = parser.parse_args().checkout
    board = {row[""]: row for row in csv.DictReader((checkout / BOARD).open())}
    files = {file.parents[1].name: file for file in sorted(checkout.glob(f"results/*/{JUDGE}/annotations.json"))}
    models = {name: read(file) for name, file in files.items() if name in board and name != BASELINE}
    hard = difficulties(list(models.values()))
    print("| difficulties | stand-in for the extra rows | models | mean difference | largest | correlation |")
    print("|---|---|--:|--:|--:|--:|")
    for given in (False, True):
        for prior in (None, PUBLISHED):
            ours, theirs = [], []
            for name, (values, longer, instructions) in models.items():
                difficulty = [hard[x] for x in instructions] if given else None
                found = alpaca_length_controlled(values, longer, difficulty=difficulty, prior=prior)
                if found.value is not None:
                    ours.append(100 * found.value)
                    theirs.append(float(board[name]["length_controlled_winrate"]))
            gap = np.abs(np.array(ours) - np.array(theirs))
            print(
                f"| {'estimated' if given else 'none'} | {'yes' if prior else 'no'} | {len(ours)} |"
                f" {gap.mean():.2f} | {gap.max():.2f} | {np.corrcoef(ours, theirs)[0, 1]:.4f} |"
            )


if __name__ == "__main__":
    main()
