"""From labelled pairs to a head: read the responses, fit each dimension, and say what came of it."""

from __future__ import annotations

import asyncio
import datetime
import hashlib
import itertools
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from evenhand.core.engine import StateReader
from evenhand.core.errors import InputError
from evenhand.core.pair import DIMENSIONS, Pair
from evenhand.core.stats.clustered import Estimate
from evenhand.engines.heads.fitting import Array, Labels
from evenhand.engines.heads.head import LENGTH, Head, HeldOutFigure, StackedJudge, TrainedOn, log_length_ratio
from evenhand.engines.heads.learning import CannotLearnError, Learned, accuracy, learn, refuse
from evenhand.engines.heads.reading import ResponseReader, StateReading
from evenhand.engines.heads.vectors import content_key

_TRUTH = {"1": 1.0, "2": 0.0, "tie": 0.5}
MORE = 200  # labels that the forecast is about


@dataclass(frozen=True)
class TrainingSource:
    """Labelled pairs of one kind: where they come from, and how much each label counts."""

    name: str
    pairs: Sequence[Pair]
    licence: str = ""
    weight: float = 1.0

    @property
    def trained_on(self) -> TrainedOn:
        """What the head's file says of it; the hash is of the pairs' texts, in any order."""
        keys = "".join(sorted(pair.key for pair in self.pairs))
        return TrainedOn(self.name, len(self.pairs), self.licence, hashlib.sha256(keys.encode()).hexdigest())


@dataclass(frozen=True)
class StackedVerdicts:
    """What other judges said of the pairs: log-odds, which a head learns to weigh beside the states."""

    judges: tuple[StackedJudge, ...] = ()
    features: Mapping[str, tuple[str, ...]] = field(default_factory=dict)  # their names, by dimension of the labels
    odds: Mapping[str, Mapping[str, float]] = field(default_factory=dict)  # by feature and by the pair's key

    def of(self, pair: Pair, dimension: str) -> list[float] | None:
        """The features of a pair; None where one of the judges has no verdict on it."""
        found = [self.odds[name].get(pair.key) for name in self.features.get(dimension, ())]
        known = [value for value in found if value is not None]
        return known if len(known) == len(found) else None


@dataclass(frozen=True)
class TrainingTable:
    """States of responses, a row each, found by content; and what other judges said, where a head weighs that."""

    states: Array
    rows: Mapping[str, int]
    stacked: StackedVerdicts = field(default_factory=StackedVerdicts)

    @classmethod
    async def read(
        cls, pairs: Sequence[Pair], reader: ResponseReader, on_read: Callable[[int, int], None] | None = None
    ) -> TrainingTable:
        """Read what is not known yet, as many at once as the reader takes."""
        texts = {content_key(p.instruction, t): (p.instruction, t) for p in pairs for t in (p.output_1, p.output_2)}
        vectors = reader.vectors.get(list(texts))
        new = [key for key in texts if key not in vectors]
        room, done = asyncio.Semaphore(getattr(reader.reader, "concurrency", 1)), itertools.count(1)

        async def read(key: str) -> None:
            async with room:
                vectors[key], _ = await reader.read(*texts[key])
            if on_read:
                on_read(next(done), len(new))

        try:
            async with asyncio.TaskGroup() as group:
                for key in new:
                    group.create_task(read(key))
        except BaseExceptionGroup as faults:
            raise faults.exceptions[0] from None
        rows = {key: row for row, key in enumerate(texts)}
        return cls(np.array([vectors[key] for key in texts], dtype=float), rows)

    def labels(self, sources: Sequence[TrainingSource], dimension: str) -> Labels:
        """The labels of a dimension; pairs of one instruction are one cluster, whatever their source.

        A pair on which a stacked judge has no verdict is left out: nothing could stand in its place.
        """
        labelled = [(n, s.weight, p) for n, s in enumerate(sources) for p in s.pairs if dimension in p.labels]
        others = [self.stacked.of(p, dimension) for _, _, p in labelled]
        found = [each for each, said in zip(labelled, others, strict=True) if said is not None]
        columns = [
            [log_length_ratio(p.output_1, p.output_2), *said]
            for (_, _, p), said in zip(labelled, others, strict=True)
            if said is not None
        ]
        features = (LENGTH, *self.stacked.features.get(dimension, ()))
        names = {p.instruction: number for number, p in enumerate(p for _, _, p in found)}
        return Labels(
            np.array([self.rows[content_key(p.instruction, p.output_1)] for _, _, p in found], dtype=np.int64),
            np.array([self.rows[content_key(p.instruction, p.output_2)] for _, _, p in found], dtype=np.int64),
            np.array([_TRUTH[p.labels[dimension]] for _, _, p in found], dtype=float),
            np.array([names[p.instruction] for _, _, p in found], dtype=np.int64),
            np.array(columns, dtype=float).reshape(-1, len(features)),
            features,
            np.array([n for n, _, _ in found], dtype=np.int64),
            np.array([weight for _, weight, _ in found], dtype=float),
        )


@dataclass(frozen=True)
class Trained:
    """A head, what is known of each dimension, and why others could not be learned."""

    head: Head
    learned: Mapping[str, Learned]
    longer: Mapping[str, Estimate]  # how good it is to take the longer response, on the same pairs
    refused: Mapping[str, str]
    shipped: Mapping[str, Estimate] = field(default_factory=dict)  # how good the head that ships is on them
    alone: Mapping[str, Estimate] = field(default_factory=dict)  # how good it is without the judges that it weighs
    left_out: Mapping[str, int] = field(default_factory=dict)  # labels on pairs that those have no verdict on

    def sentence(self, dimension: str) -> str:
        """What to expect, in one sentence."""
        found = self.learned[dimension]
        gain = found.gain(MORE)
        text = f"{dimension}: with your {found.labels:,} labels {estimate_text(found.held_out.accuracy)} held out"
        if dimension in self.shipped:
            text += f"; the head that ships has {estimate_text(self.shipped[dimension])}"
        text += f"; taking the longer response {estimate_text(self.longer[dimension])}"
        return text if gain is None else f"{text}; about {MORE} more labels would add {_points(gain)}"

    def named_parts(self, dimension: str) -> dict[str, float]:
        """How far each part moves the gap: the states, length, and each judge by its name."""
        names = {
            judge.feature(on): f"{judge.name}, {on}"
            for judge in self.head.judges
            for on in self.head.asked_of(judge)
        }
        return {names.get(name, name): spread for name, spread in self.learned[dimension].parts.items()}

    def weighing(self, dimension: str) -> str:
        """What it weighs, how heavy, and what it would be without the other judges."""
        parts = ", ".join(f"{name} {spread:.2f}" for name, spread in self.named_parts(dimension).items())
        text = f"the states alone have {estimate_text(self.alone[dimension])}; how far each part moves it: {parts}"
        missing = self.left_out.get(dimension, 0)
        return f"{text}; {missing:,} labels left out, where a judge has no verdict" if missing else text


def head_accuracy(
    head: Head, table: TrainingTable, sources: Sequence[TrainingSource], dimension: str
) -> Estimate | None:
    """How good a head that is there already is on labelled pairs; None where it has not learned the dimension."""
    if dimension not in head.weights:
        return None
    labels, weights = table.labels(sources, dimension), head.weights[dimension]
    state = (table.states[labels.first] - table.states[labels.second]) @ weights.state
    return accuracy(state + weights.features.get(LENGTH, 0.0) * labels.features[:, 0], labels)


def check(
    sources: Sequence[TrainingSource],
    votes: Mapping[str, Sequence[Sequence[int]]] | None = None,
    stacked: StackedVerdicts | None = None,
) -> None:
    """Refuse labels of which no dimension can be learned, before any response is read."""
    nowhere = TrainingTable(np.zeros((0, 0)), defaultdict(int), stacked or StackedVerdicts())
    reasons = {}
    dimensions = _dimensions(sources)
    for dimension in dimensions:
        try:
            refuse(nowhere.labels(sources, dimension), (votes or {}).get(dimension, ()))
        except CannotLearnError as error:
            reasons[dimension] = str(error)
    if not dimensions:
        raise InputError("none of these pairs has a label", hint='a label is written "labels": {"overall": "1"}')
    if len(reasons) == len(dimensions):
        raise CannotLearnError("; ".join(f"{dimension}: {why}" for dimension, why in reasons.items()))


def train(
    name: str,
    reader: StateReader,
    table: TrainingTable,
    sources: Sequence[TrainingSource],
    *,
    blocks: int | None = None,
    length: float | None = None,
    votes: Mapping[str, Sequence[Sequence[int]]] | None = None,
    spec: str = "",
) -> Trained:
    """Fit a head to all dimensions that have labels; CannotLearnError where none of them can be learned.

    `length` is the taste for length at use; None: what the labels show. `votes` are what each person said, by
    dimension: where people do not agree, nothing is learned. `spec` is what opens the model once more.
    """
    check(sources, votes, table.stacked)
    learned: dict[str, Learned] = {}
    longer: dict[str, Estimate] = {}
    alone: dict[str, Estimate] = {}
    left_out: dict[str, int] = {}
    refused: dict[str, str] = {}
    for dimension in _dimensions(sources):
        labels = table.labels(sources, dimension)
        try:
            learned[dimension] = learn(table.states, labels, votes=(votes or {}).get(dimension, ()))
        except CannotLearnError as error:
            refused[dimension] = str(error)
            continue
        longer[dimension] = accuracy(labels.features[:, 0], labels)
        if table.stacked.features.get(dimension):
            plain = replace(labels, features=labels.features[:, :1], names=(LENGTH,))
            alone[dimension] = learn(table.states, plain, with_curve=False).held_out.accuracy
            left_out[dimension] = sum(dimension in p.labels for s in sources for p in s.pairs) - len(labels)
    head = _head_of(name, reader.state_identity(blocks), blocks, learned, sources, table.stacked.judges, spec)
    found = Trained(head, learned, longer, refused, alone=alone, left_out=left_out)
    return found if length is None else replace(found, head=head.with_length(length))


def _head_of(
    name: str,
    identity: Mapping[str, str],
    blocks: int | None,
    learned: Mapping[str, Learned],
    sources: Sequence[TrainingSource],
    judges: tuple[StackedJudge, ...],
    spec: str,
) -> Head:
    """What was learned, as it goes into a file."""
    return Head(
        name,
        identity["model"],
        identity.get("sha256", ""),
        blocks,
        {dimension: found.weights for dimension, found in learned.items()},
        StateReading(),
        tuple(source.trained_on for source in sources),
        tuple(_figure(dimension, found) for dimension, found in learned.items()),
        _longest(sources),
        datetime.date.today().isoformat(),
        judges,
        spec,
    )


def _dimensions(sources: Sequence[TrainingSource]) -> list[str]:
    present = {dimension for source in sources for pair in source.pairs for dimension in pair.labels}
    return sorted(present, key=_rank)


def _rank(dimension: str) -> tuple[int, str]:
    return (DIMENSIONS.index(dimension) if dimension in DIMENSIONS else len(DIMENSIONS), dimension)


def _figure(dimension: str, found: Learned) -> HeldOutFigure:
    held = found.held_out
    value, share = held.accuracy.value, held.three_way.value
    return HeldOutFigure(
        "its own labels, whole instructions held out",
        dimension,
        found.labels,
        round(value, 4) if value is not None else 0.0,
        held.accuracy.low,
        held.accuracy.high,
        share,
    )


def _longest(sources: Sequence[TrainingSource]) -> int:
    """The length in characters of all but the longest twentieth of the responses, of which little is known."""
    lengths = [len(text) for source in sources for p in source.pairs for text in (p.output_1, p.output_2)]
    return int(np.quantile(lengths, 0.95)) if lengths else 0


def estimate_text(found: Estimate) -> str:
    """A share with its interval, for a sentence."""
    if found.value is None:
        return "cannot be told"
    if found.low is None or found.high is None:
        return f"{found.value:.0%}"
    return f"{found.value:.0%} ({found.low:.0%} to {found.high:.0%})"


def _points(gain: float) -> str:
    points = round(100 * gain)
    return "less than a point" if not points else f"{points} point{'s' * (points > 1)}"
