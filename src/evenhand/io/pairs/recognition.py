"""The one door for rows of other tools: a row is recognised by its fields, and put into evenhand's own words.

    recognise(row)                the Format of a row, or None
    Recogniser(reading).rows(table)     every row of a file, recognised, in evenhand's words, with its place

A Format is a function in `formats.py` (pairs) or `output_formats.py` (one model's outputs). All that read files
come through here: judge, arena, labels import, generate, learn, look, Python and the workers of a cluster.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

from evenhand.core.errors import InputError, PairError
from evenhand.core.faults import RowFault, message_and_hint
from evenhand.io import files
from evenhand.io.files import Row, Table
from evenhand.io.pairs.questions import Questions
from evenhand.io.pairs.rows import named_fields

Kind = Literal["pairs", "outputs", "verdicts"]
# What --columns may give a name to.
TARGETS = (
    *("instruction", "output_1", "output_2", "output", "id", "model", "model_1", "model_2"),
    *("label", "annotator", "dimension", "input"),
    *("verdict", "forward", "swapped", "order", "p", "judge", "protocol"),
)
_KINDS: dict[Kind, str] = {
    "pairs": "give two such files with --candidate and --baseline, or many to evenhand arena",
    "outputs": "judge a file of pairs by its name alone",
    "verdicts": "--columns verdict=FIELD names the field that holds the verdicts",
}
_OTHER_KINDS: dict[Kind, str] = {
    "pairs": "one model's outputs, not pairs",
    "outputs": "a pair, not one model's output",
    "verdicts": "without the verdict of a judge",
}
_NEEDED: dict[Kind, tuple[str, ...]] = {
    "pairs": ("instruction", "output_1", "output_2"),
    "outputs": ("instruction", "output"),
    "verdicts": ("verdict",),
}
_EXPECTED: dict[Kind, str] = {
    "pairs": "expected rows with the fields instruction, output_1 and output_2",
    "outputs": "expected instruction and output, or choices, or messages",
    "verdicts": "expected verdict, or forward and swapped, or p, with id, texts or model_1 and model_2",
}


@dataclass
class Context:
    """What reading a row may need beside the row, and what it has to say about the file."""

    questions: Questions = field(default_factory=Questions)
    notes: Counter[str] = field(default_factory=Counter)  # what was left out or joined, and how often
    memory: dict[str, Any] = field(default_factory=dict)  # of one file
    settings: dict[str, str] = field(default_factory=dict)  # what the user said of the files
    suffix: str = ""  # of the file: .csv, .jsonl
    group: list[Row] = field(default_factory=list)  # rows that are read together, where a format has such

    def note(self, text: str) -> None:
        """Say something of the file once, however many rows it is true of."""
        self.notes[text] += 1


Reader = Callable[[Row, Context], "Row | list[Row] | None"]


@dataclass(frozen=True, slots=True)
class Format:
    """How the rows of one tool are told apart by their fields, and read.

    `fields` are those that a row must have, "a|b" is one of several; `unless` those that it must not have. `read`
    gives the row in evenhand's words, several rows, or None for a row that repeats an earlier one. Fields that are
    neither in `fields` nor in `uses` are left over, and kept as metadata.
    """

    name: str
    kind: Kind
    fields: tuple[str, ...]
    read: Reader
    uses: tuple[str, ...] = ()
    unless: tuple[str, ...] = ()
    test: Callable[[Row], bool] | None = None
    verbatim: bool = False  # its rows are in evenhand's words already
    together: str = ""  # rows that follow each other with the same value here are one
    _needs: frozenset[str] = field(default=frozenset(), init=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_needs", frozenset(name for name in self.fields if "|" not in name))

    def fits(self, row: Mapping[str, Any]) -> bool:
        """Whether a row is in this format."""
        if not self._needs <= row.keys():
            return False
        if len(self._needs) < len(self.fields) and self.missing(row):
            return False
        if self.unless and any(name in row for name in self.unless):
            return False
        return self.test is None or self.test(dict(row))

    def missing(self, row: Mapping[str, Any]) -> str:
        """The first field that a row lacks; empty if it has all."""
        for name in self.fields:
            if name not in row and not any(each in row for each in name.split("|")):
                return name.split("|")[0]
        return ""

    def left_over(self, row: Mapping[str, Any]) -> list[str]:
        """The fields of a row that this format makes nothing of."""
        used = {_present(name, row) for name in self.fields} | {*self.uses}
        return [name for name in row if name not in used]

    def rows(self, row: Row, context: Context) -> list[Row]:
        """A row in evenhand's words, with what is left over beside it."""
        if self.verbatim:
            return [row]
        try:
            found = self.read(row, context)
        except (TypeError, AttributeError, KeyError, IndexError, OverflowError) as fault:
            raise RowFault(
                f"this row is not as {self.name} has it: {fault}", hint="--columns says which fields are what"
            ) from None
        if found is None:
            return []
        rest = {name: row[name] for name in self.left_over(row)}
        return [{**rest, **each} for each in (found if isinstance(found, list) else [found])]


def reads(kind: Kind, name: str, fields: tuple[str, ...], **more: Any) -> Callable[[Reader], Format]:
    """Makes a reader of rows the format that it reads."""
    return lambda read: Format(name, kind, fields, read, **more)


class Recognised(NamedTuple):
    """A row in evenhand's words, and the format that it was recognised as."""

    format: Format
    row: Row  # in evenhand's words
    source: Row  # as it stands in the file

    @property
    def left_over(self) -> list[str]:
        """The fields that the format makes nothing of; they are kept as metadata."""
        return self.format.left_over(self.source)


def formats(kind: Kind | None = None) -> Sequence[Format]:
    """The formats that are known, the most telling first; those of a kind before the others."""
    from evenhand.io.pairs.formats import PAIR_FORMATS
    from evenhand.io.pairs.output_formats import OUTPUT_FORMATS

    if kind == "verdicts":
        return (*_verdict_formats(), *PAIR_FORMATS, *OUTPUT_FORMATS)
    return (*OUTPUT_FORMATS, *PAIR_FORMATS) if kind == "outputs" else (*PAIR_FORMATS, *OUTPUT_FORMATS)


def _verdict_formats() -> Sequence[Format]:
    """What judges of other tools write; none of it can be judged, so it is looked for only where it is wanted."""
    from evenhand.io.pairs.verdict_formats import VERDICT_FORMATS

    return VERDICT_FORMATS


def recognise(row: Mapping[str, Any], kind: Kind | None = None) -> Format | None:
    """The format of a row; formats of this kind are tried before the others.

    >>> recognise({"question": "2 + 2?", "response_A": "4", "response_B": "5", "label": "A>B"}).name
    'JudgeBench'
    >>> recognise({"colour": "red"}) is None
    True
    """
    return next((each for each in formats(kind) if each.fits(row)), None)


class Recogniser:
    """Rows of files, recognised; every row of a file must be in the format of its first."""

    def __init__(
        self, kind: Kind, columns: Mapping[str, str] | None = None, questions: Questions | None = None
    ) -> None:
        self.kind, self.columns = kind, check_columns(columns or {})
        self.context = Context(questions or Questions())
        self._last: Format | None = None  # of `read`: the next row is as a rule in the same format

    def rows(self, tables: Iterable[Table]) -> Iterator[tuple[Table, int, Recognised | PairError]]:
        """Every row with its place: in evenhand's words, or what is wrong with it."""
        for table in tables:
            self.context.memory.clear()
            self.context.suffix = table.kind
            for where, rows, found in self._groups(table):
                try:
                    if isinstance(found, ValueError):
                        raise found
                    self.context.group = rows
                    for each in found.rows(rows[0], self.context):
                        yield table, where, Recognised(found, each, rows[0])
                except (ValueError, InputError) as fault:
                    yield table, where, blame(table, where, fault)

    def _groups(self, table: Table) -> Iterator[tuple[int, list[Row], Format | ValueError]]:
        """Rows with their format, or with what is wrong; rows that belong together as one."""
        first: Format | None = None
        waiting: tuple[int, list[Row], Format] | None = None
        for where, row in files.read_rows(table):
            try:
                if isinstance(row, ValueError):
                    raise row
                mapped = rename_columns(row, self.columns) if self.columns else row
                first = self.check(mapped, first)
            except ValueError as fault:
                yield where, [], fault
                continue
            if not first.together:
                yield where, [mapped], first
            elif waiting is not None and waiting[1][0][first.together] == mapped[first.together]:
                waiting[1].append(mapped)
            else:
                if waiting is not None:
                    yield waiting
                waiting = where, [mapped], first
        if waiting is not None:
            yield waiting

    def check(self, row: Row, first: Format | None = None) -> Format:
        """The format of a row; RowFault where it is not of this kind, or not in the format of those before it."""
        if first is not None and first.fits(row):
            return first
        found = recognise(row, self.kind)
        if first is not None:
            raise _differs(first, found, row)
        if found is None:
            raise _unknown(row, self.kind)
        if found.kind != self.kind:
            what = _OTHER_KINDS[self.kind]
            raise RowFault(f"this is {what} (recognised as {found.name})", hint=_KINDS[self.kind])
        return found

    def read(self, row: Row) -> Row:
        """One row by itself, which must make one pair or one output."""
        mapped = rename_columns(row, self.columns) if self.columns else row
        self.context.group = [mapped]
        if self._last is None or not self._last.fits(mapped):
            self._last = self.check(mapped)
        found = self._last.rows(mapped, self.context)
        if len(found) != 1:
            raise RowFault("this row holds several pairs", hint="judge the file on one machine")
        return found[0]


def blame(table: Table, where: int, fault: ValueError | InputError) -> PairError:
    """A fault of a row, with its place."""
    message, hint = message_and_hint(fault)
    return table.error(where, message, hint=hint)


def _differs(first: Format, found: Format | None, row: Row) -> RowFault:
    """A row that is not in the format of those before it."""
    if found is not None:
        mine = next((name for name in reversed(found.fields) if name not in first.fields), found.fields[-1])
        theirs = next((name for name in reversed(first.fields) if name not in found.fields), first.fields[-1])
        return RowFault(
            f"this row has '{_present(mine, row)}', the rows before it have '{theirs.split('|')[0]}'",
            hint=f"{found.name} and {first.name} in one file: put rows of one format into one file",
        )
    missing = first.missing(row)
    if missing:
        return RowFault(f"no field '{missing}'", hint=f"the rows before it are {first.name}; {named_fields(row)}")
    return RowFault(f"this row is not {first.name}, as those before it are", hint=named_fields(row))


def _present(name: str, row: Mapping[str, Any]) -> str:
    return next((each for each in name.split("|") if each in row), name)


def _unknown(row: Row, kind: Kind) -> RowFault:
    """A row that is in no known format: what is missing, what is there, and the option that helps."""
    if "fingerprint" in row and "verdict" in row:
        return RowFault("these are verdicts without texts", hint="export them with --texts")
    if kind != "verdicts" and (found := next((each for each in _verdict_formats() if each.fits(row)), None)):
        return RowFault(
            f"these are verdicts of another judge (recognised as {found.name})",
            hint="evenhand import verdicts FILE",
        )
    needed = _NEEDED[kind]
    missing = [name for name in needed if name not in row]
    example = ",".join(f"{name}=FIELD" for name in missing)
    return RowFault(
        f"no field '{(missing or needed)[0]}'",
        hint=f"{_EXPECTED[kind]}; {named_fields(row)}; --columns {example} says which fields they are",
    )


# -- --columns ----------------------------------------------------------------------------------------------------


def parse_columns(text: str) -> dict[str, str]:
    """`--columns` as it is written on a command line.

    >>> parse_columns("instruction=prompt, output_1=chosen.text")
    {'instruction': 'prompt', 'output_1': 'chosen.text'}
    """
    found = {}
    for part in text.split(","):
        target, equals, source = (word.strip() for word in part.partition("="))
        if not equals or not target or not source:
            raise InputError(
                f"--columns holds {part.strip()!r}", hint="write instruction=prompt,output_1=chosen,..."
            )
        found[target] = source
    return dict(check_columns(found))


def check_columns(columns: Mapping[str, str]) -> Mapping[str, str]:
    """Refuse a name that means nothing here."""
    for target in columns:
        if target not in TARGETS:
            raise InputError(
                f"--columns: '{target}' is no field of evenhand", hint=f"known are {', '.join(TARGETS)}"
            )
    return columns


def rename_columns(row: Row, columns: Mapping[str, str]) -> Row:
    """A row with its fields under evenhand's names; what stood under such a name before takes the other's place.

    >>> rename_columns({"prompt": "Hi", "a": {"text": "x"}}, {"instruction": "prompt", "output_1": "a.text"})
    {'a': {'text': 'x'}, 'instruction': 'Hi', 'output_1': 'x'}
    """
    found = {name: row[name] for name in row if name not in columns.values()}
    for target, source in columns.items():
        value = _inner(row, source)
        if target in row and source in row and source != target and source not in columns:
            found[source] = row[target]
        found[target] = value
    return found


def _inner(row: Row, source: str) -> Any:
    """The value of a field, or of one inside another: answer.text, turns.0."""
    if source in row:
        return row[source]
    value: Any = row
    for part in source.split("."):
        if isinstance(value, Mapping) and part in value:
            value = value[part]
        elif isinstance(value, list) and part.isdigit() and int(part) < len(value):
            value = value[int(part)]
        else:
            raise RowFault(f"no field '{source}', which --columns names", hint=named_fields(row))
    return value
