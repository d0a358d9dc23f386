"""A calibration fitted to what people said of a judge's pairs."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from evenhand.core.errors import InputError
from evenhand.core.stats.agreement import MISSING
from evenhand.core.stats.calibration import Calibration, TooFewLabels, fit
from evenhand.results.evidence import Evidence
from evenhand.results.label_use import LabelUse
from evenhand.store import JudgeRow


@dataclass(frozen=True, slots=True)
class FittedCalibration:
    """One calibration, with the judge and the dimension that it belongs to."""

    judge: JudgeRow
    dimension: str
    calibration: Calibration
    use: LabelUse

    def plain(self) -> dict[str, object]:
        """The calibration as JSON has it."""
        row = self.judge
        named = {"judge": row.model, "protocol": row.protocol, "fingerprint": row.fingerprint}
        return {**named, "dimension": self.dimension, **self.calibration.plain(), "label_use": self.use}


def fit_evidence(evidence: Evidence, *, seed: int = 0) -> Calibration:
    """The calibration of one judge on one dimension; InputError with the reason where labels are too few."""
    rows = np.flatnonzero((evidence.truth != MISSING) & (evidence.verdict != MISSING))
    e = evidence.take(rows)
    try:
        return fit(e.p, e.log_odds, e.log_length, e.truth, e.clusters, seed=seed, weights=e.weights)
    except TooFewLabels as fault:
        left_out = e.use.notes[:1] if e.use.left_out else ()
        raise InputError(
            ". ".join((f"{e.dimension} cannot be calibrated: {fault}", *left_out)),
            hint="evenhand labels import FILE brings labels; evenhand labels lists those that are there",
        ) from None
