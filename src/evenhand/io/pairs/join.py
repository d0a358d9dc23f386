"""Pairs out of two models' outputs, joined on the instruction.

Making a Joined reads and checks all of both files, so that nothing is judged by half; iterating over it gives the
pairs. The outputs wait in temporary files, and memory does not grow with their number.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal

from evenhand.core.errors import InputError, PairError
from evenhand.core.pair import Pair, digest, excerpt
from evenhand.io.pairs.outputs import Placed, read_outputs
from evenhand.io.pairs.questions import Questions
from evenhand.io.pairs.rows import named_fields
from evenhand.io.pairs.temporary_table import TemporaryTable, key_of

NAMED = 5  # how many of those that do not match are named


@dataclass(frozen=True, slots=True)
class Unmatched:
    """Instructions that a model has no output for, though another has: how many, and the first few."""

    model: str
    count: int
    first: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class JoinOptions:
    """How outputs are read: their questions, how far, the field on which they meet, and what of broken rows."""

    questions: str | Path | None = None
    turn: int = 1
    join_on: str = "instruction"
    skip_bad: bool = False
    columns: Mapping[str, str] = field(default_factory=dict)  # evenhand's names for the fields of a file


# One file given twice, or a step before this one that wrote the old outputs again.
_ALIKE = "candidate and baseline gave the same outputs, letter for letter"


class OutputFiles:
    """Files of outputs that are to meet: what was broken in them, and what is to be said of them."""

    def __init__(self, reading: JoinOptions | None) -> None:
        self.reading = reading = reading or JoinOptions()
        self.bad, self.notes = list[PairError](), Counter[str]()
        self._questions = Questions(reading.questions, reading.turn)

    def _outputs(self, path: str) -> Iterator[Placed]:
        """The outputs of a file, in which there must be some."""
        skip_bad, columns, empty = self.reading.skip_bad, self.reading.columns, True
        for placed in read_outputs(
            path, self._questions, skip_bad=skip_bad, skipped=self.bad, columns=columns, notes=self.notes
        ):
            empty = False
            yield placed
        if empty and not self.bad:
            raise PairError(path, None, "no outputs in this file", hint="expected instruction and output")


class Joined(OutputFiles):
    """Two models' outputs, joined on the instruction: the pairs, and what was left over on either side.

    >>> import tempfile, json
    >>> folder = tempfile.mkdtemp()
    >>> for name, said in (("new", "4"), ("old", "5")):
    ...     row = {"instruction": "2 + 2?", "output": said}
    ...     _ = Path(folder, f"{name}.json").write_text(json.dumps([row]))
    >>> [pair] = join_outputs(f"{folder}/new.json", f"{folder}/old.json")
    >>> pair.model_1, pair.output_1, pair.model_2, pair.candidate
    ('new', '4', 'old', '1')
    """

    def __init__(
        self,
        candidate: str | Path,
        baseline: str | Path,
        reading: JoinOptions | None = None,
        *,
        candidate_side: Literal["1", "2"] = "1",
    ) -> None:
        super().__init__(reading)
        self._side = candidate_side
        (self._new, new), (self._old, old) = (self._kept(source) for source in (candidate, baseline))
        self.candidate, self.baseline = _apart(new, old, candidate, baseline)
        self._count = sum(key in self._old for key in self._new)
        if self.reading.join_on != "instruction":
            self._refuse_other_instructions()
        if not self._count:
            raise InputError(
                f"no instruction of {split_name(candidate)[1]} is in {split_name(baseline)[1]}",
                hint="are these the same instructions, letter for letter? --join-on names another field",
            )
        if all(pair.output_1 == pair.output_2 for pair in self):  # as a rule the first already differs
            self.notes[_ALIKE] = self._count

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[Pair]:
        for key, new in self._new.items():
            old = self._old.find(key)
            if old is not None:
                sides = (self.candidate, new), (self.baseline, old)
                first, second = sides if self._side == "1" else sides[::-1]
                yield replace(pair_of(*first, *second), candidate=self._side)

    @property
    def unmatched(self) -> list[Unmatched]:
        """What stands in one file alone, by the model that has no output for it."""
        found = []
        for model, have, lack in ((self.candidate, self._old, self._new), (self.baseline, self._new, self._old)):
            count, first = 0, list[str]()
            for key in have:
                if key not in lack:
                    count += 1
                    if count <= NAMED:
                        first.append(named(have.get(key)))
            if count:
                found.append(Unmatched(model, count, tuple(first)))
        return found

    def close(self) -> None:
        """Remove the temporary files."""
        self._new.close()
        self._old.close()

    def _refuse_other_instructions(self) -> None:
        """Joined on another field, two rows may meet that answer different instructions."""
        for key, new in self._new.items():
            old = self._old.find(key)
            if old is not None and old.output.instruction != new.output.instruction:
                raise other_instruction(new, old, self.reading.join_on)

    def _kept(self, source: str | Path) -> tuple[TemporaryTable, str]:
        """The outputs of a file in a temporary table, and the name of their model."""
        (name, path), join_on = split_name(source), self.reading.join_on
        kept, models = TemporaryTable(), dict[str, None]()
        for placed in self._outputs(path):
            models[placed.output.model] = None
            earlier = kept.put(key_of(joined_on(placed, join_on)), placed)
            if earlier is not None:
                raise twice(placed, earlier, placed.output.model or name or stem(path), join_on)
        if len(models) > 1 and not name:
            raise InputError(
                f"{path} holds outputs of several models: {', '.join(models)}",
                hint="evenhand arena pairs many models; NAME=FILE takes them for one",
            )
        return kept, name or next(iter(models), "") or stem(path)


join_outputs = Joined


def pair_of(model_1: str, first: Placed, model_2: str, second: Placed) -> Pair:
    """Two outputs as a pair; what both rows say alike of the instruction is kept as metadata."""
    one, two = first.output, second.output
    base = one.id if one.id == two.id and one.id else f"pair-{digest(one.instruction)[:12]}"
    about = {name: value for name, value in one.about.items() if name in two.about and two.about[name] == value}
    # Two models may answer alike; the names keep such pairs of one instruction apart.
    return Pair(
        one.instruction, one.text, two.text, f"{base}/{model_1}/{model_2}", model_1, model_2, metadata=about
    )


def split_name(source: str | Path) -> tuple[str, str]:
    """NAME=FILE in its parts; a file that is called so is a file.

    >>> split_name("gpt=outs/a.json"), split_name("outs/a.json")
    (('gpt', 'outs/a.json'), ('', 'outs/a.json'))
    """
    text = str(source)
    name, equals, path = text.partition("=")
    if not equals or not name or "/" in name or _exists(text):
        return "", text
    return name, path


def _exists(path: str) -> bool:
    """Whether there is such a file; none is called by a text that is too long for a name.

    >>> _exists("x" * 1000)
    False
    """
    try:
        return Path(path).exists()
    except OSError:
        return False


def stem(path: str | Path) -> str:
    """A file's name without its folder and suffixes; '-' is stdin.

    >>> stem("outs/gpt-4.1.jsonl.gz"), stem("-")
    ('gpt-4.1', 'stdin')
    """
    name = "stdin" if str(path) == "-" else Path(path).name
    for suffix in (".gz", ".zst", ".jsonl", ".ndjson", ".json", ".csv", ".tsv", ".parquet", ".arrow", ".eval"):
        name = name.removesuffix(suffix)
    return name


def joined_on(placed: Placed, field: str) -> str:
    """What an output is joined on: its instruction, its id, or another field of its row."""
    output = placed.output
    value = {"instruction": output.instruction, "id": output.id}.get(field, output.about.get(field))
    if value in (None, ""):
        raise placed.error(f"no field '{field}' to join on", hint=_join_hint(placed))
    return str(value)


def _join_hint(placed: Placed) -> str:
    fields = {"instruction": 1, **({"id": 1} if placed.output.id else {}), **placed.output.about}
    return f"--join-on names a field that every row has; {named_fields(fields)}"


def twice(placed: Placed, earlier: Placed, model: str, field: str) -> PairError:
    """Two outputs of one model to one instruction."""
    there = "" if earlier.table == placed.table else f"{earlier.table.name}, "
    what = "this instruction" if field == "instruction" else f"{field} '{joined_on(placed, field)}'"
    return placed.error(
        f"{model} has an output for {what} already, at {there}{earlier.table.place(earlier.where)}:"
        f" {excerpt(placed.output.instruction)!r}",
        hint="keep one; name the files NAME=FILE if they are of two models; --join-on id keeps equal texts apart",
    )


def other_instruction(placed: Placed, other: Placed, field: str) -> PairError:
    """Two outputs that meet on a field and answer different instructions: they are no pair."""
    systems = placed.output.instruction.startswith("[System]") or other.output.instruction.startswith("[System]")
    return placed.error(
        f"its instruction is not the one under the same {field} at {other.table.name},"
        f" {other.table.place(other.where)}",
        hint="a system message is part of the instruction"
        if systems
        else "join on the instruction, or fix the files",
    )


def named(placed: Placed) -> str:
    """An instruction, short enough for a message, with its id where it has one."""
    output = placed.output
    return f"{output.id}: {excerpt(output.instruction)}" if output.id else excerpt(output.instruction)


def _apart(new: str, old: str, candidate: str | Path, baseline: str | Path) -> tuple[str, str]:
    """Names for the two sides; where the rows call both the same (two prompts, one model), the files' own."""
    if new != old:
        return new, old
    by_file = stem(split_name(candidate)[1]), stem(split_name(baseline)[1])
    if by_file[0] != by_file[1]:
        return by_file
    paths = split_name(candidate)[1], split_name(baseline)[1]
    return paths if paths[0] != paths[1] else (f"{new} (candidate)", f"{old} (baseline)")
