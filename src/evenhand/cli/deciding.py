"""What judge --until-decided and gate share: which dimension decides, and when a run may stop."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence

from evenhand.decision import Decider, Standing
from evenhand.errors import InputError
from evenhand.judge import Judgment
from evenhand.pairs import Pair

# A dimension that no protocol asks for and that findings may hold: all that it asks for, taken together.
COMBINED = "combined"


class Until:
    """Counts judgments and says when there are enough: `enough` looks at where they stand."""

    def __init__(self, decider: Decider, enough: Callable[[Standing], bool]) -> None:
        self.decider, self._enough = decider, enough

    def watch(self, pairs: Iterable[Pair]) -> Iterator[Pair]:
        """The pairs on their way to the judge."""
        return self.decider.watch(pairs)

    def __call__(self, judgment: Judgment) -> bool:
        if self.decider.dimension not in judgment.findings:
            raise InputError(f"no verdict on '{self.decider.dimension}' under this protocol")
        self.decider.add(judgment)
        return self.met

    @property
    def met(self) -> bool:
        """Whether there are enough."""
        return self._enough(self.decider.standing)


def dimension_from(word: str, dimensions: Sequence[str]) -> str:
    """The dimension that decides: the one that is named, else overall, else the only one."""
    if not word and (len(dimensions) == 1 or "overall" in dimensions):
        return dimensions[0] if len(dimensions) == 1 else "overall"
    known = [*dimensions, *([COMBINED] if len(dimensions) > 1 else [])]
    if word not in known:
        raise InputError(f"--on {word}" if word else "which dimension decides?", hint=f"--on {', '.join(known)}")
    return word
