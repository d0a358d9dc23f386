"""The candidate as one side throughout, however it stands in the pairs: what every rate of a side is counted on."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np

from evenhand.core.columns import Block, Ints


def in_roles(blocks: Iterable[Block], roles: Roles | None = None) -> Iterator[Block]:
    """Blocks with the candidate on the side on which it stands in the first pair that has roles."""
    roles = roles or Roles()
    return (part for block in blocks for part in roles.parts(block))


class Roles:
    """Turns pairs round, so that the candidate stands where it does in the first pair that has roles."""

    def __init__(self) -> None:
        self._side = ""
        self.turned = 0  # how many pairs were

    def parts(self, block: Block) -> Iterator[Block]:
        """The pairs of a block, those that stay as they are and those that are turned."""
        each = block.candidate.text()
        given = each[each != ""]
        self._side = self._side or (str(given[0]) if len(given) else "")
        turn = (each != "") & (each != self._side)
        if not turn.any():
            yield block
            return
        self.turned += int(turn.sum())
        yield block.take(np.flatnonzero(~turn))
        yield block.take(np.flatnonzero(turn)).turned()


def turned_pairs(blocks: Iterable[Block]) -> Ints:
    """The numbers of the pairs that are turned round."""
    found = [part.number for part in in_roles(blocks) if part.is_turned]
    return np.concatenate(found) if found else np.zeros(0, dtype=np.int64)
