"""What place and length do to a judge's verdicts: some bytes a pair, and no text."""

from __future__ import annotations

import hashlib
from array import array
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from evenhand.judge import Judgment
from evenhand.pairs import Pair
from evenhand.verdict import Finding

if TYPE_CHECKING:
    from evenhand.stats.clustered import Estimate
    from evenhand.stats.length import LengthControlled

_CODES = {None: -1, "1": 0, "2": 1, "tie": 2}  # those of stats.agreement
_VALUES = {"1": 1.0, "2": 0.0, "tie": 0.5}


@dataclass(frozen=True, slots=True)
class Effects:
    """One dimension: place, length, and the win rate that is left at equal length."""

    dimension: str
    position_lift: Estimate
    flips: Estimate
    longer: Estimate  # how often the longer output is chosen
    equal_length: LengthControlled

    def facts(self) -> dict[str, Any]:
        """The effects as plain data."""
        return asdict(self)


class Columns:
    """Numbers of one dimension, filled one finding at a time.

    >>> from evenhand.judge import Hearing
    >>> from evenhand.verdict import Verdict
    >>> columns = Columns("overall")
    >>> heard = {"forward": Hearing({"overall": Verdict("overall", "A")})}
    >>> columns.add(Judgment.of(Pair("Hi", "long", "x"), heard))
    >>> columns.effects().longer.value
    1.0
    """

    def __init__(self, dimension: str) -> None:
        self.dimension = dimension
        self._codes = array("b")  # forward, swapped, both together
        self._lengths = array("q")
        self._clusters = array("q")

    def add(self, judgment: Judgment) -> None:
        """Take one judgment."""
        finding = judgment.findings.get(self.dimension)
        if finding is not None:
            self._take(judgment.pair, finding)

    def _take(self, pair: Pair, finding: Finding) -> None:
        heard = (finding.heard("forward"), finding.heard("swapped"), finding.side)
        self._codes.extend([_CODES[side] for side in heard])
        self._lengths.extend([len(pair.output_1), len(pair.output_2)])
        name = hashlib.blake2b(pair.instruction.encode(), digest_size=8).digest()
        self._clusters.append(int.from_bytes(name, "big", signed=True))

    def effects(self) -> Effects:
        """What the findings come to."""
        import numpy as np

        from evenhand.stats import bias
        from evenhand.stats.length import length_controlled

        codes = np.frombuffer(self._codes, dtype=np.int8).reshape(-1, 3).astype(np.int64)
        lengths = np.frombuffer(self._lengths, dtype=np.int64).reshape(-1, 2)
        clusters = np.frombuffer(self._clusters, dtype=np.int64)
        forward, swapped, said = codes.T
        known = said >= 0
        values = np.array([_VALUES["1"], _VALUES["2"], _VALUES["tie"]])[said[known]]
        longer = bias.longer_side(lengths[:, 0], lengths[:, 1])
        return Effects(
            self.dimension,
            bias.position_lift(forward, swapped, clusters),
            bias.flip_rate(forward, swapped, clusters),
            bias.longer_rate(said, longer, clusters),
            length_controlled(values, (lengths[:, 0] - lengths[:, 1])[known], clusters[known]),
        )
