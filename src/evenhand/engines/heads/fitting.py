"""Fitting a head: components of the states, a logistic regression on differences, ties and calibration.

Pure numpy on arrays; nothing here knows of engines, files or the store. A pair's truth is 1 where side 1 is better,
0 where side 2 is, and 0.5 for a tie: under the Bradley-Terry likelihood half a win for each side.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

COMPONENTS = 128
# From nearly nothing to nearly free, in units of a component's mean variance; each fit starts from the last one.
PENALTIES = (1000.0, 300.0, 100.0, 30.0, 10.0, 1.0)
_STEPS = 50
_CLOSE = 1e-4  # twice what the likelihood may still gain, in nats
_FEATURE_PENALTY = 1.0  # on features of unit size: next to nothing beside a hundred labels
_HALF_A_TIE = 0.5  # as if so many more ties had been seen, so that none seen does not mean none possible


@dataclass(frozen=True)
class Components:
    """Standardised states in fewer numbers; they use no label."""

    mean: Array
    scale: Array
    axes: Array  # width x components
    unit: float  # the mean variance of a component

    @classmethod
    def of(cls, states: Array, most: int = COMPONENTS) -> Components:
        """The principal components of the states."""
        mean, scale = states.mean(axis=0), states.std(axis=0)
        scale = np.where(
            scale > 1e-9 * max(float(scale.max()), 1e-30), scale, np.inf
        )  # a number that never changes
        z = (states - mean) / scale
        wide = z.shape[1] > z.shape[0]
        values, vectors = np.linalg.eigh(z @ z.T if wide else z.T @ z)
        keep = [int(i) for i in np.argsort(values)[::-1][:most] if values[i] > 1e-9 * values[-1]]
        axes = z.T @ (vectors[:, keep] / np.sqrt(values[keep])) if wide else vectors[:, keep]
        return cls(mean, scale, axes, float(values[keep].mean() / len(states)) if keep else 1.0)

    def project(self, states: Array) -> Array:
        """States as components."""
        return np.asarray(((states - self.mean) / self.scale) @ self.axes)

    def unfold(self, weights: Array) -> Array:
        """Weights on components as weights on the state itself."""
        return np.asarray((self.axes @ weights) / self.scale)


@dataclass(frozen=True)
class Labels:
    """Labelled pairs of one dimension, as rows into a table of states.

    `features` are further columns that change sign when the sides are swapped, such as the log-ratio of lengths.
    `source` tells sets of pairs apart: each has a length term of its own while fitting, where that is asked for.
    """

    first: Ints
    second: Ints
    truth: Array
    clusters: Ints
    features: Array
    names: tuple[str, ...] = ()
    source: Ints = field(default_factory=lambda: np.zeros(0, dtype=np.int64))
    weight: Array = field(default_factory=lambda: np.zeros(0))

    def __post_init__(self) -> None:
        if not len(self.source):
            object.__setattr__(self, "source", np.zeros(len(self.truth), dtype=np.int64))
        if not len(self.weight):
            object.__setattr__(self, "weight", np.ones(len(self.truth)))

    def __len__(self) -> int:
        return len(self.truth)

    def take(self, rows: npt.NDArray[np.bool_] | Ints) -> Labels:
        """Some of the pairs."""
        return Labels(
            self.first[rows],
            self.second[rows],
            self.truth[rows],
            self.clusters[rows],
            self.features[rows],
            self.names,
            self.source[rows],
            self.weight[rows],
        )


@dataclass(frozen=True)
class HeadFit:
    """Weights on components and on features."""

    state: Array
    features: Array
    penalty: float
    beta: Array  # all that was fitted, as the next fit of the same kind may start from it

    def gaps(self, table: Array, labels: Labels) -> Array:
        """How far side 1 is ahead, for each pair."""
        return np.asarray(
            (table[labels.first] - table[labels.second]) @ self.state + labels.features @ self.features
        )


def fit(
    table: Array,
    labels: Labels,
    penalty: float,
    *,
    by_source: bool = False,
    unit: float = 1.0,
    start: HeadFit | None = None,
) -> HeadFit:
    """A logistic regression without intercept on differences: swapped sides give the opposite gap, always.

    `by_source` gives each source feature weights of its own; those of the fit are then their mean by pairs, and a
    caller who wants others says so. `unit` is the variance of a component, in which the penalty is counted.
    """
    x = table[labels.first] - table[labels.second]
    size = np.sqrt((labels.features**2).mean(axis=0)) if len(labels) else np.ones(labels.features.shape[1])
    size = np.where(size > 0, size, 1.0)
    extra = labels.features / size
    sources = np.unique(labels.source)
    if by_source and len(sources) > 1:
        extra = np.hstack([extra * (labels.source == s)[:, None] for s in sources])
    ridge = np.r_[np.full(x.shape[1], penalty * unit), np.full(extra.shape[1], _FEATURE_PENALTY)]
    beta = logistic(np.hstack([x, extra]), labels.truth, ridge, labels.weight, start.beta if start else None)
    own = beta[x.shape[1] :].reshape(-1, labels.features.shape[1]) if labels.features.shape[1] else np.zeros((1, 0))
    shares = np.array([labels.weight[labels.source == s].sum() for s in sources]) if len(own) > 1 else np.ones(1)
    return HeadFit(beta[: x.shape[1]], (shares @ own / shares.sum()) / size, penalty, beta)


def logistic(x: Array, truth: Array, ridge: Array, weight: Array, start: Array | None = None) -> Array:
    """Penalised maximum likelihood by Newton's method; the target may lie between 0 and 1."""
    beta = np.zeros(x.shape[1]) if start is None else start
    cost = _cost(x, truth, ridge, weight, beta)
    for _ in range(_STEPS):
        p = 0.5 * (1 + np.tanh(x @ beta / 2))
        slope = x.T @ (weight * (truth - p)) - ridge * beta
        curve = (x * (weight * p * (1 - p))[:, None]).T @ x
        curve[np.diag_indices_from(curve)] += ridge
        step = np.linalg.solve(curve, slope)
        size, new = 1.0, _cost(x, truth, ridge, weight, beta + step)
        while new > cost and size > 1e-4:  # far from the optimum a full step may overshoot
            size /= 2
            new = _cost(x, truth, ridge, weight, beta + size * step)
        beta, cost = beta + size * step, new
        if float(slope @ step) < _CLOSE:
            break
    return beta


def _cost(x: Array, truth: Array, ridge: Array, weight: Array, beta: Array) -> float:
    eta = x @ beta
    cost = np.logaddexp(0.0, eta) - truth * eta
    return float(weight @ cost + ridge @ beta**2 / 2)


def tie_model(gaps: Array, truth: Array, weight: Array | None = None) -> tuple[float, float]:
    """The slope and the strength of a tie, by maximum likelihood: Davidson (1970), JASA 65, 317-328.

    In these two numbers it is a concave problem: log-odds slope * gap / 2, its opposite, and the log of the tie's
    strength. Half a tie at gap 0 is added, and a weak pull of the slope towards 1.
    """
    g = np.r_[gaps, 0.0]
    w = np.r_[np.ones(len(gaps)) if weight is None else weight, _HALF_A_TIE]
    side = np.sign(np.r_[truth, 0.5] - 0.5)
    theta = np.array([1.0, np.log(0.2)])
    for _ in range(_STEPS):
        half = theta[0] * g / 2
        logits = np.column_stack([half, -half, np.full_like(g, theta[1])])
        p = np.exp(logits - logits.max(axis=1, keepdims=True))
        p /= p.sum(axis=1, keepdims=True)
        lean, tie = p[:, 0] - p[:, 1], p[:, 2]
        slope = np.array(
            [(w * (side - lean) * g / 2).sum() - 0.1 * (theta[0] - 1), (w * ((side == 0) - tie)).sum()]
        )
        a = (w * (p[:, 0] + p[:, 1] - lean**2) * g**2 / 4).sum() + 0.1
        b = (w * -lean * tie * g / 2).sum()
        c = (w * tie * (1 - tie)).sum() + 1e-9
        step = np.linalg.solve(np.array([[a, b], [b, c]]), slope)
        theta = theta + np.clip(step, -1.0, 1.0)
        if np.abs(step).max() < 1e-9:
            break
    return max(float(theta[0]), 0.0), float(np.exp(theta[1]))


def log_loss(gaps: Array, truth: Array, weight: Array | None = None) -> float:
    """The mean cost in nats of saying logistic(gap); a tie counts as half a win for each side."""
    cost = np.logaddexp(0.0, -gaps) * truth + np.logaddexp(0.0, gaps) * (1 - truth)
    return float(np.average(cost, weights=weight))


def folds(clusters: Ints, count: int, seed: int = 0) -> Ints:
    """A fold for each pair: whole clusters, of about as many pairs each.

    >>> len(set(folds(np.array([1, 1, 2, 2, 3]), 3)[[0, 1]]))
    1
    """
    names, where, sizes = np.unique(clusters, return_inverse=True, return_counts=True)
    order = np.random.default_rng(seed).permutation(len(names))
    order = order[np.argsort(-sizes[order], kind="stable")]
    held = np.zeros(count)
    fold = np.zeros(len(names), dtype=np.int64)
    for cluster in order:
        fold[cluster] = int(np.argmin(held))
        held[fold[cluster]] += sizes[cluster]
    return fold[where]


def choose_penalty(
    table: Array,
    labels: Labels,
    *,
    penalties: Sequence[float] = PENALTIES,
    count: int = 5,
    by_source: bool = False,
    unit: float = 1.0,
    seed: int = 0,
) -> float:
    """The penalty with the lowest held-out cost, over folds of whole clusters."""
    fold = folds(labels.clusters, min(count, len(np.unique(labels.clusters))), seed)
    costs = np.zeros(len(penalties))
    for k in np.unique(fold):
        train, test = labels.take(fold != k), labels.take(fold == k)
        found: HeadFit | None = None
        for number, penalty in enumerate(penalties):
            found = fit(table, train, penalty, by_source=by_source, unit=unit, start=found)
            costs[number] += log_loss(found.gaps(table, test), test.truth, test.weight) * test.weight.sum()
    return float(penalties[int(np.argmin(costs))])
