"""How much each judge of a jury should weigh, learned from what people said of the same pairs."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from evenhand.core.stats.calibration import fit_davidson, log_losses, probabilities, refuse_few
from evenhand.core.stats.clustered import Weights
from evenhand.core.stats.clusters import places


@dataclass(frozen=True, slots=True)
class LearnedWeights:
    """p(1) : p(2) : p(tie) = exp(s / 2) : exp(-s / 2) : exp(tie); s is the sum of log-odds times `slopes`."""

    slopes: tuple[float, ...]
    tie: float
    n: int
    clusters: int
    log_loss: float


def learn_weights(
    log_odds: ArrayLike, truth: ArrayLike, clusters: ArrayLike, *, weights: Weights = None
) -> LearnedWeights:
    """Fit the jurors' slopes to labels, none of them below 0; log-odds are a row a pair, a column a juror.

    The model is that of `calibration`, Davidson's (1970), with one slope for each juror: stacking by a logistic
    model, Wolpert (1992), "Stacked generalization", Neural Networks 5, 241-259. Slopes of at least 0, as Breiman
    (1996), "Stacked regressions", Machine Learning 24, 49-64, found to be needed where jurors are alike. The
    likelihood is concave: slopes that come out below 0 are set to 0, the most negative first, and the others fitted
    again. Raises TooFewLabels where a calibration would.

    >>> rng = np.random.default_rng(0)
    >>> good, noise = rng.normal(size=400), rng.normal(size=400)
    >>> truth = (rng.random(400) > 1 / (1 + np.exp(-2 * good))).astype(int)
    >>> found = learn_weights(np.column_stack([good, noise]), truth, range(400))
    >>> found.slopes[0] > 5 * found.slopes[1]
    True
    """
    table = np.asarray(log_odds, dtype=np.float64)
    true, groups = np.asarray(truth, dtype=np.int64), places(clusters)
    refuse_few(true, groups)
    weight = np.ones(len(true)) if weights is None else np.asarray(weights, dtype=np.float64)
    weight = weight / weight.mean()
    used = list(range(table.shape[1]))
    while True:
        fitted = fit_davidson(table[:, used], true, weight)
        if not used or fitted[:-1].min() >= 0:
            break
        used.pop(int(fitted[:-1].argmin()))
    slopes = np.zeros(table.shape[1])
    slopes[used] = fitted[:-1]
    p = probabilities(table, np.append(slopes, fitted[-1]))
    loss = float(np.average(log_losses(p, true), weights=weight))
    return LearnedWeights(tuple(map(float, slopes)), float(fitted[-1]), len(true), len(np.unique(groups)), loss)
