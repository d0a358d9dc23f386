"""A head: a direction in the states of one model, and what it takes to make verdicts of it.

A head scores a response by a weighted sum of its state, and a pair by the difference of the two scores. There is no
order in which a pair could be shown, and so no position bias. Standardisation and principal components, with which
a head is fitted, are linear: they are folded into one weight for each number of the state, and what does not depend
on the response falls out of the difference. The file is JSON of about 10 KB for each dimension.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from evenhand.core.errors import InputError, SpecError
from evenhand.engines.heads.reading import StateReading
from evenhand.io.files.reading import parse_slowly

Array = npt.NDArray[np.float64]
FORMAT = "evenhand head 2"
_OLDER = "evenhand head 1"  # counted the longest response in words
_CHARACTERS = 6  # of a word, with the space behind it
LENGTH = "length"  # the one feature beside the state that a pair brings itself
SHIPPED = Path(__file__).parent / "shipped"


@dataclass(frozen=True)
class TrainedOn:
    """One set of pairs that a head was fitted to."""

    name: str
    pairs: int
    licence: str = ""
    sha256: str = ""


@dataclass(frozen=True)
class HeldOutFigure:
    """One figure of a head on pairs that took no part in fitting it."""

    name: str  # of the pairs, and how they were held out
    dimension: str
    pairs: int
    value: float  # share of decided pairs on which it takes the side that people take
    low: float | None = None
    high: float | None = None
    three_way: float | None = None  # share of all pairs, ties as a third class


@dataclass(frozen=True)
class StackedJudge:
    """Another judge whose verdicts a head weighs beside the states."""

    fingerprint: str
    model: str
    protocol: str

    @property
    def name(self) -> str:
        """What to call it."""
        return f"{self.model} / {self.protocol}"

    def feature(self, dimension: str) -> str:
        """The name of the feature: this judge's log-odds on one of its dimensions.

        >>> StackedJudge("3f9c", "m", "chained").feature("combined")
        '3f9c:combined'
        """
        return f"{self.fingerprint}:{dimension}"


@dataclass(frozen=True, eq=False)
class Weights:
    """What one dimension needs: a weight for each number of the state, for each further feature, and two numbers.

    `slope` turns the difference of scores into log-odds, `tie` is how strong a tie is beside them: Davidson (1970),
    "On extending the Bradley-Terry model to accommodate ties in paired comparison experiments", JASA 65, 317-328.
    """

    state: Array
    features: Mapping[str, float] = field(default_factory=dict)
    slope: float = 1.0
    tie: float = 0.1
    components: int = 0
    penalty: float = 0.0

    def probabilities(self, first: Array, second: Array, features: Mapping[str, float] | None = None) -> Array:
        """Probabilities of side 1, side 2 and a tie.

        >>> Weights(np.array([1.0, 0.0]), tie=1.0).probabilities(np.zeros(2), np.zeros(2)).round(2).tolist()
        [0.33, 0.33, 0.33]
        """
        return davidson(self.gap(first, second, features), self.slope, self.tie)

    def gap(self, first: Array, second: Array, features: Mapping[str, float] | None = None) -> float:
        """How far the first response is ahead of the second."""
        given = features or {}
        missing = sorted(set(self.features) - set(given))
        if missing:
            raise SpecError(f"this head needs {', '.join(missing)} beside the states")
        state = float(self.state @ (np.asarray(first, float) - np.asarray(second, float)))
        return state + math.fsum(weight * given[name] for name, weight in self.features.items())


@dataclass(frozen=True, eq=False)
class Head:
    """A judge that was trained, as it stands in its file."""

    name: str
    model: str
    sha256: str  # of the model
    blocks: int | None
    weights: Mapping[str, Weights]
    reading: StateReading = field(default_factory=StateReading)
    trained_on: tuple[TrainedOn, ...] = ()
    held_out: tuple[HeldOutFigure, ...] = ()
    longest: int = 0  # characters of a response up to which it was measured; 0: not known
    date: str = ""
    judges: tuple[StackedJudge, ...] = ()  # whose log-odds are among the features
    spec: str = ""  # what opens the model, where its name alone does not: an address, a path

    @property
    def dimensions(self) -> tuple[str, ...]:
        """What it has learned to judge, in the order in which it answers: overall, which it has learned too, first.

        >>> Head("h", "m", "", None, dict.fromkeys(["format", "overall"], Weights(np.ones(1)))).dimensions
        ('overall', 'format')
        """
        return tuple(sorted(self.weights, key=lambda name: name != "overall"))

    @property
    def fingerprint(self) -> str:
        """The hash of all that decides its verdicts; its figures and its name are no part of it."""
        deciding = {key: value for key, value in self._fields().items() if key in _DECIDING}
        return hashlib.sha256(json.dumps(deciding, sort_keys=True).encode()).hexdigest()

    @property
    def opened_by(self) -> str:
        """What `open_engine` opens its model by."""
        return self.spec or self.model

    def asked_of(self, judge: StackedJudge) -> tuple[str, ...]:
        """The dimensions of another judge that it weighs."""
        names = {name for weights in self.weights.values() for name in weights.features}
        return tuple(sorted(n.rpartition(":")[2] for n in names if n.rpartition(":")[0] == judge.fingerprint))

    def with_length(self, weight: float) -> Head:
        """The same head with another taste for length, on every dimension that has one."""
        own = {
            name: replace(w, features={**w.features, LENGTH: weight}) if LENGTH in w.features else w
            for name, w in self.weights.items()
        }
        return replace(self, weights=own)

    def save(self, path: Path) -> None:
        """Write the file."""
        path.write_text(json.dumps(self._fields(), indent=1) + "\n", "utf-8")

    @classmethod
    def load(cls, path: Path) -> Head:
        """Read a file; one that is no head raises InputError."""
        try:
            data = parse_slowly(path.read_text("utf-8"))
        except OSError as error:
            raise InputError(f"{path} cannot be read: {error.strerror}", hint="check the path") from error
        except ValueError:
            raise InputError(f"{path} is not a head: it is not JSON") from None
        if not isinstance(data, dict) or data.get("format") not in (FORMAT, _OLDER):
            raise InputError(f"{path} is not a head that this version can read")
        try:
            return _head(data)
        except (KeyError, TypeError, ValueError, binascii.Error) as error:
            raise InputError(f"{path} is damaged: {error!r}") from None

    def _fields(self) -> dict[str, Any]:
        return {
            "format": FORMAT,
            "name": self.name,
            "model": self.model,
            "sha256": self.sha256,
            "blocks": self.blocks,
            "reading": asdict(self.reading),
            "weights": {name: _weights_fields(w) for name, w in self.weights.items()},
            "longest": self.longest,
            "trained_on": [asdict(each) for each in self.trained_on],
            "held_out": [asdict(each) for each in self.held_out],
            "date": self.date,
            "judges": [asdict(each) for each in self.judges],
            "judge": self.spec,
        }


_DECIDING = ("sha256", "blocks", "reading", "weights")


def find_head(spec: str) -> Head:
    """A head by its path, or one that ships with evenhand by its name."""
    path = Path(spec)
    shipped = {file.stem: file for file in sorted(SHIPPED.glob("*.json"))}
    if path.is_file():
        return Head.load(path)
    if spec in shipped:
        return Head.load(shipped[spec])
    hint = f"shipped: {', '.join(shipped)}; or give the path of a file" if shipped else "give the path of a file"
    raise SpecError(f"no head is called '{spec}'", hint=hint)


def davidson(gap: float, slope: float, tie: float) -> Array:
    """Probabilities of side 1, side 2 and a tie.

    >>> davidson(0.0, 1.0, 0.0).tolist()
    [0.5, 0.5, 0.0]
    """
    half = min(max(slope * gap / 2, -350.0), 350.0)
    parts = np.array([math.exp(half), math.exp(-half), tie])
    return np.asarray(parts / parts.sum())


def log_length_ratio(first: str, second: str) -> float:
    """The feature "length": the log-ratio of the numbers of words, each counted one too many.

    >>> log_length_ratio("a b c", "a"), log_length_ratio("", "")
    (0.6931471805599453, 0.0)
    """
    return math.log((len(first.split()) + 1) / (len(second.split()) + 1))


def _weights_fields(weights: Weights) -> dict[str, Any]:
    raw = np.asarray(weights.state, dtype="<f4").tobytes()
    numbers = {"slope": weights.slope, "tie": weights.tie, "penalty": weights.penalty}
    return {
        "state": base64.b64encode(raw).decode(),
        "features": dict(weights.features),
        "components": weights.components,
        **numbers,
    }


def _read_weights(data: Mapping[str, Any]) -> Weights:
    state = np.frombuffer(base64.b64decode(data["state"], validate=True), dtype="<f4").astype(float)
    numbers = [float(data[name]) for name in ("slope", "tie", "penalty")]
    if not len(state) or not np.isfinite(state).all() or not all(map(math.isfinite, numbers)):
        raise ValueError("weights that are not numbers")
    features = {str(name): float(x) for name, x in data["features"].items()}
    return Weights(state, features, numbers[0], numbers[1], int(data["components"]), numbers[2])


def _head(data: Mapping[str, Any]) -> Head:
    return Head(
        name=str(data["name"]),
        model=str(data["model"]),
        sha256=str(data["sha256"]),
        blocks=None if data["blocks"] is None else int(data["blocks"]),
        weights={str(name): _read_weights(each) for name, each in data["weights"].items()},
        reading=StateReading(**data["reading"]),
        trained_on=tuple(TrainedOn(**each) for each in data["trained_on"]),
        held_out=tuple(HeldOutFigure(**each) for each in data["held_out"]),
        longest=int(data["longest"]) * (_CHARACTERS if data["format"] == _OLDER else 1),
        date=str(data["date"]),
        judges=tuple(StackedJudge(**each) for each in data.get("judges", ())),
        spec=str(data.get("judge", "")),
    )


def check_width(head: Head, widths: Sequence[int]) -> None:
    """Refuse states that are not as wide as the head's weights."""
    wanted = {len(w.state) for w in head.weights.values()}
    if wanted != set(widths):
        raise SpecError(f"the head has {max(wanted)} weights and the model's states have {max(widths)} numbers")
