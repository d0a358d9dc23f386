"""Pairs out of many models' outputs.

    Arena([a, b, c])                       all against all
    Arena([a, b, c], baseline="b")         all against one
    Arena([a, b, c], size=200, seed=0)     so many of them, drawn at random, in which every model is reached

Making one reads and checks all of it, so that nothing is judged by half; iterating over it gives the pairs.
"""

from __future__ import annotations

import random
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from itertools import accumulate, combinations
from pathlib import Path

from evenhand.core.errors import InputError
from evenhand.core.pair import Pair
from evenhand.io.pairs.join import (
    NAMED,
    JoinOptions,
    OutputFiles,
    Unmatched,
    joined_on,
    named,
    other_instruction,
    pair_of,
    split_name,
    stem,
    twice,
)
from evenhand.io.pairs.outputs import Placed
from evenhand.io.pairs.temporary_table import TemporaryTable, key_of

Draw = tuple[int, int, int]  # an instruction and two models, by their numbers


class Arena(OutputFiles):
    """The outputs of several models, read and checked, and which of them meet.

    `sources` are files; NAME=FILE gives the outputs of a file a model's name of your own. Without one, the rows say
    it, and where they do not, the file's name does.
    """

    def __init__(
        self,
        sources: Sequence[str | Path],
        *,
        baseline: str | None = None,
        size: int | None = None,
        seed: int = 0,
        reading: JoinOptions | None = None,
    ) -> None:
        super().__init__(reading)
        self.seed = seed
        self._tables: dict[str, TemporaryTable] = {}
        self._keys: dict[bytes, str] = {}  # every instruction, in the order in which it was first met
        for source in sources:
            self._read(source)
        self.models = tuple(self._tables)
        if len(self.models) < 2:
            raise InputError(
                f"only outputs of {' and '.join(self.models) or 'no model'} were found",
                hint="two models are needed; NAME=FILE gives the outputs of a file a name of their own",
            )
        self.baseline = self._find(baseline) if baseline else None
        self._order = list(self._keys)
        self._meet()
        self._draws = None if size is None else self._drawn(size)

    # -- what there is -----------------------------------------------------------------------------

    def __len__(self) -> int:
        return self.possible if self._draws is None else len(self._draws)

    def __iter__(self) -> Iterator[Pair]:
        for instruction, one, two in self._every() if self._draws is None else self._draws:
            key = self._order[instruction]
            first, second = self._sides(key, self.models[one], self.models[two])
            yield pair_of(first, self._tables[first].get(key), second, self._tables[second].get(key))

    @property
    def possible(self) -> int:
        """How many pairs there are to draw from."""
        return self._sums[-1]

    @property
    def unmatched(self) -> list[Unmatched]:
        """For each model, the instructions that only others answered."""
        found = []
        for model, table in self._tables.items():
            missing = [key for key in self._order if key not in table]
            if missing:
                found.append(Unmatched(model, len(missing), tuple(self._keys[key] for key in missing[:NAMED])))
        return found

    def close(self) -> None:
        """Remove the temporary files."""
        for table in self._tables.values():
            table.close()

    # -- reading -----------------------------------------------------------------------------------

    def _read(self, source: str | Path) -> None:
        name, path = split_name(source)
        for placed in self._outputs(path):
            self._keep(name or placed.output.model or stem(path), placed)

    def _keep(self, model: str, placed: Placed) -> None:
        key = key_of(joined_on(placed, self.reading.join_on))
        earlier = self._tables.setdefault(model, TemporaryTable()).put(key, placed)
        if earlier is not None:
            raise twice(placed, earlier, model, self.reading.join_on)
        self._refuse_other_instruction(key, placed)
        self._keys.setdefault(key, named(placed))

    def _refuse_other_instruction(self, key: bytes, placed: Placed) -> None:
        """Joined on another field, two rows may meet that answer different instructions."""
        if self.reading.join_on == "instruction" or key not in self._keys:
            return
        other = next(table.get(key) for table in self._tables.values() if key in table)
        if other.output.instruction != placed.output.instruction:
            raise other_instruction(placed, other, self.reading.join_on)

    def _find(self, model: str) -> str:
        if model in self.models:
            return model
        by_file = stem(model)
        if by_file in self.models:
            return by_file
        raise InputError(f"no outputs of the baseline '{model}'", hint=f"the models are {', '.join(self.models)}")

    # -- who meets ---------------------------------------------------------------------------------

    def _meet(self) -> None:
        """Count the pairs of each instruction, so that any of them can be found by its number."""
        counts = [sum(1 for _ in self._meetings(number)) for number in range(len(self._order))]
        self._sums = list(accumulate(counts, initial=0))
        if not self.possible:
            raise InputError(
                f"no instruction has outputs of {'both' if len(self.models) == 2 else 'two'} models: "
                + ", ".join(f"{model} {len(table)}" for model, table in self._tables.items()),
                hint="are these the same instructions, letter for letter? --join-on names another field",
            )

    def _meetings(self, instruction: int) -> Iterator[tuple[int, int]]:
        key = self._order[instruction]
        there = [number for number, model in enumerate(self.models) if key in self._tables[model]]
        if self.baseline is None:
            yield from combinations(there, 2)
            return
        base = self.models.index(self.baseline)
        yield from ((number, base) for number in there if number != base and base in there)

    def _sides(self, key: bytes, one: str, two: str) -> tuple[str, str]:
        """Who is side 1. Neither the order of the files nor the models' names decide that.

        Otherwise side 2 would be the later checkpoint in every pair: to choose it always would look like judgment.
        And the same files in another order, or one more, would be other pairs, that count beside the first ones.
        """
        if self.baseline is not None:
            return one, two  # a candidate is side 1
        first, second = sorted((one, two))
        drawn = key_of("\0".join((key.hex(), first, second)))[0]
        return (first, second) if drawn % 2 else (second, first)

    def _every(self) -> Iterator[Draw]:
        for instruction in range(len(self._order)):
            for one, two in self._meetings(instruction):
                yield instruction, one, two

    def _number(self, number: int) -> Draw:
        """The pair of a number, counted over all instructions."""
        instruction = bisect_right(self._sums, number) - 1
        meetings = list(self._meetings(instruction))
        return (instruction, *meetings[number - self._sums[instruction]])

    def _drawn(self, size: int) -> list[Draw]:
        """So many pairs: first a random tree that reaches every model, then others, each as likely as another."""
        if size >= self.possible:
            return list(self._every())
        chance = random.Random(self.seed)
        tree = self._tree(chance)
        if len(tree) > size:
            raise InputError(
                f"{size:,} {'pair' if size == 1 else 'pairs'} cannot connect {len(self.models):,} models",
                hint=f"draw at least {len(tree)}",
            )
        chosen = set(tree)
        while len(chosen) < size:
            chosen.add(self._number(chance.randrange(self.possible)))
        return sorted(chosen)  # pairs of one instruction stay together

    def _tree(self, chance: random.Random) -> list[Draw]:
        """One pair for each edge of a random spanning tree (Kruskal, 1956, with edges in random order)."""
        edges: dict[tuple[int, int], Draw] = {}
        seen: dict[tuple[int, int], int] = {}
        for draw in self._every():  # one pair of each edge, each as likely as the others: reservoir sampling
            edge = draw[1:]
            seen[edge] = seen.get(edge, 0) + 1
            if chance.randrange(seen[edge]) == 0:
                edges[edge] = draw
        group = list(range(len(self.models)))
        tree = []
        for one, two in chance.sample(sorted(edges), len(edges)):
            if group[one] != group[two]:
                tree.append(edges[one, two])
                old, new = group[one], group[two]
                group = [new if each == old else each for each in group]
        if len(set(group)) > 1:
            raise InputError(
                f"the models cannot be connected: {self._islands(group)}", hint="they share no instruction"
            )
        return tree

    def _islands(self, group: Sequence[int]) -> str:
        parts = [[m for m, g in zip(self.models, group, strict=True) if g == each] for each in sorted(set(group))]
        return "; ".join(", ".join(part) for part in parts)
