"""Calibration between store and statistics: fitted to labels, kept beside the judge, applied to findings."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from evenhand.errors import InputError
from evenhand.evidence import Evidence, Mend
from evenhand.judge import Judgment
from evenhand.pairs import Pair
from evenhand.stats.agreement import MISSING
from evenhand.stats.calibration import Calibration, TooFewLabels, fit
from evenhand.store import JudgeRow, Records
from evenhand.verdict import SIDES, Finding, log_odds

# A tie between two probabilities that differ by rounding alone.
_ALIKE = 1e-9


def fit_evidence(evidence: Evidence, *, seed: int = 0) -> Calibration:
    """The calibration of one judge on one dimension; InputError with the reason where labels are too few."""
    rows = np.flatnonzero((evidence.truth != MISSING) & (evidence.verdict != MISSING))
    e = evidence.take(rows)
    try:
        return fit(e.p, e.log_odds, e.log_length, e.truth, e.clusters, seed=seed)
    except TooFewLabels as fault:
        raise InputError(
            f"{e.dimension} cannot be calibrated: {fault}",
            hint="evenhand labels import FILE brings labels; evenhand labels lists those that are there",
        ) from None


def mend(calibration: Calibration, pair: Pair, finding: Finding) -> Finding:
    """A finding with calibrated probabilities, and the verdict that they make; an invalid one stays as it is.

    What each order said stays as it was: calibration speaks of the two together.

    >>> from evenhand.verdict import Verdict, pool
    >>> said = Verdict("overall", "A", {"A": 0.5, "B": 0.4, "tie": 0.1}, 1.0)
    >>> finding = pool("overall", {"forward": said})
    >>> steep = Calibration(slope=5.0, tie=-2.0, length=0.0, n=100, clusters=50)
    >>> {side: round(p, 2) for side, p in mend(steep, Pair("Hi", "x", "y"), finding).p.items()}
    {'1': 0.71, '2': 0.23, 'tie': 0.06}
    """
    if finding.p is None:
        return finding
    lengths = [np.log(max(len(text), 1)) for text in (pair.output_1, pair.output_2)]
    [row] = calibration.apply([log_odds(finding.p)], [lengths[0] - lengths[1]])
    p = {side: float(x) for side, x in zip(SIDES, row, strict=True)}
    best = [side for side in SIDES if p[side] >= max(p.values()) - _ALIKE]
    return replace(finding, p=p, side=best[0] if len(best) == 1 else "tie")


def menders(store: Records, judge: JudgeRow) -> dict[str, Mend]:
    """For each dimension of a judge that has been calibrated, what calibrates a finding."""
    return {name: _mender(Calibration.of(facts)) for name, facts in store.calibrations.of(judge.id).items()}


def _mender(calibration: Calibration) -> Mend:
    return lambda pair, finding: mend(calibration, pair, finding)


def calibrated_judgments(store: Records, judge: JudgeRow) -> Iterator[Judgment]:
    """Every pair that a judge has heard, with calibrated findings where it has been calibrated."""
    fixes = menders(store, judge)
    for judgment in store.judgments(judge):
        yield replace(judgment, findings=mend_all(judgment.findings, judgment.pair, fixes))


def mend_all(findings: Mapping[str, Finding], pair: Pair, fixes: Mapping[str, Mend]) -> dict[str, Finding]:
    """All findings of a pair, those calibrated that can be.

    >>> mend_all({}, Pair("Hi", "x", "y"), {})
    {}
    """
    return {name: fixes[name](pair, f) if name in fixes else f for name, f in findings.items()}


def calibration_facts(judge: JudgeRow, dimension: str, calibration: Calibration) -> dict[str, Any]:
    """One calibration as plain data, with the judge that it belongs to."""
    return {
        "judge": judge.model,
        "protocol": judge.protocol,
        "fingerprint": judge.fingerprint,
        "dimension": dimension,
        **calibration.facts(),
    }
