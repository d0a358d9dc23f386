"""AlpacaEval's own files: annotations.json and leaderboard.csv.

There output_1 is the reference and output_2 the model; in evenhand the candidate is side 1. Sides are therefore
exchanged on the way: AlpacaEval's output_2 is evenhand's output_1.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from evenhand.core.judge import Judgment
from evenhand.core.verdict import Outcome
from evenhand.io.files import Row

_ABOUT = ("instruction", "output_1", "generator_1", "output_2", "generator_2", "dataset", "annotator")
ANNOTATIONS = {**dict.fromkeys(_ABOUT, "text"), "preference": "number"}
LEADERBOARD = {
    "model": "text",
    "win_rate": "number",
    "standard_error": "number",
    "n_wins": "integer",
    "n_wins_base": "integer",
    "n_draws": "integer",
    "n_total": "integer",
    "discrete_win_rate": "number",
    "mode": "text",
    "avg_length": "integer",
    "against": "text",
}
_HARD = {"1": 2.0, "2": 1.0, "tie": 1.5}


def annotation_rows(
    judgments: Iterable[Judgment], dimension: str, annotator: str, *, hard: bool = False
) -> Iterator[Row]:
    """A row for each pair; an invalid outcome has no preference."""
    for judgment in map(_model_first, judgments):
        pair = judgment.pair
        yield {
            "instruction": pair.instruction,
            "output_1": pair.output_2,
            "generator_1": pair.model_2,
            "output_2": pair.output_1,
            "generator_2": pair.model_1,
            "dataset": str(pair.metadata.get("dataset", "")),
            "annotator": annotator,
            "preference": preference(judgment[dimension], hard=hard),
        }


def preference(outcome: Outcome, *, hard: bool = False) -> float | None:
    """From 1, the reference is better, to 2, the model is; 1.5 is a tie.

    With probabilities it is 1 + p(model) + p(tie) / 2, the expected value of the hard one.
    """
    if outcome.side is None:
        return None
    if hard or outcome.p is None:
        return _HARD[outcome.side]
    return 1.0 + outcome.p["1"] + outcome.p["tie"] / 2


def _model_first(judgment: Judgment) -> Judgment:
    """A judgment with the model on trial as side 1: it is side 2 where pairs came from AlpacaEval's annotations."""
    return judgment.turned() if judgment.pair.candidate == "2" else judgment


@dataclass
class _Standing:
    """What one model comes to, in the room of a few numbers."""

    wins: int = 0
    losses: int = 0
    draws: int = 0
    mean: float = 0.0
    squares: float = 0.0  # the sum of squared distances from the mean
    outputs: int = 0  # also those without an annotation, as in AlpacaEval
    length: int = 0
    met: Counter[str] = field(default_factory=Counter)  # with how many annotations against whom

    @property
    def n(self) -> int:
        return self.wins + self.losses + self.draws

    def add(self, value: float) -> None:
        """Count one annotation as AlpacaEval does, by its preference; mean and variance by Welford (1962)."""
        self.wins, self.losses, self.draws = (
            self.wins + (value > 0.5),
            self.losses + (value < 0.5),
            self.draws + (value == 0.5),
        )
        gap = value - self.mean
        self.mean += gap / self.n
        self.squares += gap * (value - self.mean)

    def row(self, model: str) -> Row:
        error = math.sqrt(self.squares / (self.n - 1) / self.n) if self.n > 1 else None
        return {
            "model": model,
            "win_rate": 100 * self.mean,
            "standard_error": None if error is None else 100 * error,
            "n_wins": self.wins,
            "n_wins_base": self.losses,
            "n_draws": self.draws,
            "n_total": self.n,
            "discrete_win_rate": 100 * (self.wins + self.draws / 2) / self.n,
            "mode": "community",
            "avg_length": self.length // self.outputs,
            "against": "; ".join(f"{name} ({count})" for name, count in self.met.most_common()),
        }


def leaderboard_rows(judgments: Iterable[Judgment], dimension: str, *, hard: bool = False) -> list[Row]:
    """One row for each model, on whichever side it stood, and against whom it was compared; the best first.

    Rates against different others do not compare: where not all met the same ones, `evenhand rank` does that.
    """
    standings: dict[str, _Standing] = {}
    for judgment in map(_model_first, judgments):
        value, pair = preference(judgment[dimension], hard=hard), judgment.pair
        names = pair.model_1 or "1", pair.model_2 or "2"
        scores = (None, None) if value is None else (value - 1, 2 - value)
        for me, other, text, score in zip(names, names[::-1], (pair.output_1, pair.output_2), scores, strict=True):
            standing = standings.setdefault(me, _Standing())
            standing.outputs, standing.length = standing.outputs + 1, standing.length + len(text)
            if score is not None:
                standing.add(score)
                standing.met[other] += 1
    rows = [standing.row(model) for model, standing in standings.items() if standing.n]
    return sorted(rows, key=lambda row: -row["win_rate"])
