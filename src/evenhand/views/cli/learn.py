"""evenhand learn, evenhand vectors: train a judge on labels, and see what states are kept for that."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated

from evenhand.core.engine import Engine, StateReader
from evenhand.core.errors import InputError, SpecError
from evenhand.core.stats.clustered import Estimate
from evenhand.engines import catalog
from evenhand.engines.heads import SHIPPED_HEAD
from evenhand.engines.heads.head import find_head
from evenhand.engines.heads.reading import ResponseReader, StateReading
from evenhand.engines.heads.training import (
    StackedVerdicts,
    Trained,
    TrainingSource,
    TrainingTable,
    check,
    head_accuracy,
    train,
)
from evenhand.engines.heads.vectors import MemoryVectors, Vectors
from evenhand.io.files.writing import check_folder
from evenhand.io.pairs import read_pairs
from evenhand.results.judges import one_judge
from evenhand.results.labelled_pairs import (
    LabelledPair,
    OtherJudge,
    has_learned,
    labelled_in_file,
    labelled_pairs,
    other_judges,
    stacked_verdicts,
    votes_on,
    without_known,
)
from evenhand.results.plain import plain, to_json
from evenhand.store import Store
from evenhand.store.vectors import FileVectors
from evenhand.views import console
from evenhand.views.cli.app import app
from evenhand.views.cli.groups import HardwareOptions
from evenhand.views.cli.inputs import ColumnsOption, columns_from
from evenhand.views.cli.opening import bring_up_to_date, open_store
from evenhand.views.cli.option_groups import argument, flat_options, option
from evenhand.views.cli.options import DbOption, JsonOption
from evenhand.views.cli.running import open_judge

_EVERY = 25  # responses between two lines of progress
Labelled = tuple[str, list[LabelledPair]]  # the name of a file or database, and its pairs


@dataclass(frozen=True)
class LabelSet:
    """What there is to learn from, and what others make of the same pairs."""

    sources: list[TrainingSource]
    votes: Mapping[str, Sequence[Sequence[int]]] = field(default_factory=dict)
    others: Mapping[str, list[OtherJudge]] = field(default_factory=dict)
    stacked: StackedVerdicts = field(default_factory=StackedVerdicts)


@app.command()
@flat_options
def learn(
    files: Annotated[list[Path] | None, argument("[PAIRS]...", "Files of pairs with labels.")] = None,
    db: Annotated[
        Path | None,
        option(
            "--db FILE",
            "Learn from the labels in this database, and compare with the judges there.",
            callback=bring_up_to_date,
        ),
    ] = None,
    out: Annotated[Path, option("--out -o FILE", "Where the head is written.")] = Path("head.json"),
    model: Annotated[
        str, option("--judge -j MODEL", "The model whose states the head reads.")
    ] = catalog.DEFAULT_MODEL,
    blocks: Annotated[
        int | None,
        option(
            "--blocks", "Read the state after N blocks. Default: as the head that ships does, or the last.", min=1
        ),
    ] = None,
    vectors: Annotated[
        Path | None, option("--vectors FILE", "Where states are kept. Default: the database, or beside the head.")
    ] = None,
    beside: Annotated[
        list[str] | None,
        option(
            "--with JUDGE",
            "Weigh the verdicts of this judge of the database, too: by protocol, model or model/protocol."
            " May be given more than once.",
        ),
    ] = None,
    columns: ColumnsOption = None,
    hardware: HardwareOptions = HardwareOptions(),  # noqa: B008  # it is frozen
    as_json: JsonOption = False,
) -> None:
    """Train a judge on labelled pairs: a head that reads each response once.

    Use it with --judge head:FILE. Every figure is of instructions that took no part in the training.
    """
    if not files and db is None:
        raise InputError("nothing to learn from", hint="name files of pairs with labels, or --db FILE")
    _check_out(out)
    labels = _labels(files or [], db, columns_from(columns), beside or [])
    check(labels.sources, labels.votes, labels.stacked)  # before a model is fetched and anything read
    engine = open_judge(model, hardware.hardware)
    trained = asyncio.run(_train(engine, model, labels, out, blocks or _blocks(engine), _Kept(db, vectors, out)))
    trained.head.save(out)
    if as_json:
        print(to_json(_fields(trained, out, labels)))
        return
    _show(trained, out, labels)


def _check_out(out: Path) -> None:
    """Refuse a name for the head that cannot be written, or means another, before anything is read."""
    if out.suffix != ".json":
        raise InputError(f"--out {out}", hint="let the name end in .json")
    check_folder(out)
    if out.stem == SHIPPED_HEAD:
        raise InputError(f"{SHIPPED_HEAD} is the name of the head that ships", hint="such as --out mine.json")


def _labels(
    files: Sequence[Path], db: Path | None, columns: Mapping[str, str] | None, beside: Sequence[str]
) -> LabelSet:
    if db is None:
        if beside:
            raise InputError("--with weighs judges of a database", hint="name it with --db FILE")
        groups = _in_files(files, columns, {})
        return LabelSet(_sources(groups), _votes(groups))
    with open_store(db, read_only=True) as store:
        known: dict[str, set[str]] = {}
        every = labelled_pairs(store)
        pairs = without_known(every, known)
        if not any(each.pair.labels for each in pairs):
            raise InputError(
                f"{db} holds no labels", hint="evenhand serve collects some, evenhand labels import reads them"
            )
        groups = [*_in_files(files, columns, known), (db.stem, pairs)]
        sources = _sources(groups)
        names = sorted({name for each in pairs for name in each.pair.labels})
        others = {name: other_judges(store, every, name) for name in names}
        return LabelSet(sources, _votes(groups), others, _stacked(store, sources, beside, db))


def _in_files(
    files: Sequence[Path], columns: Mapping[str, str] | None, known: dict[str, set[str]]
) -> list[Labelled]:
    """The labelled pairs of each file; what the database or a file before it has said already is left out."""
    groups = []
    for file in files:
        given, unreadable = labelled_in_file(read_pairs(file, columns=columns))
        pairs = without_known(given, known)
        groups.append((file.stem, pairs))
        if unreadable:
            console.note(f"{file}: {console.count(unreadable, 'pair')} with votes that cannot be read, left out")
        if repeated := len(given) - len(pairs):
            console.note(f"{file}: {console.count(repeated, 'pair')} left out, whose labels are counted already")
    return groups


def _sources(groups: Sequence[Labelled]) -> list[TrainingSource]:
    return [TrainingSource(name, [each.pair for each in pairs if each.pair.labels]) for name, pairs in groups]


def _votes(groups: Sequence[Labelled]) -> dict[str, list[list[int]]]:
    """What people said, by dimension: also of pairs on which they differ, and which so have no label."""
    every = [each for _, pairs in groups for each in pairs]
    return {name: votes_on(every, name) for name in dict.fromkeys(name for each in every for name in each.votes)}


def _stacked(store: Store, sources: Sequence[TrainingSource], beside: Sequence[str], db: Path) -> StackedVerdicts:
    every = store.judges()
    rows = {row.fingerprint: row for row in (one_judge(every, word, db) for word in beside)}
    for row in filter(has_learned, rows.values()):
        raise InputError(
            f"{row.model} may have learned from these very labels, so its weight would be too high",
            hint="weigh judges that were asked, or the head that ships",
        )
    return stacked_verdicts(store, list(rows.values()), [pair for source in sources for pair in source.pairs])


@dataclass(frozen=True)
class _Kept:
    """Where states are kept: a file that is named, the database, or a file beside the head."""

    db: Path | None
    file: Path | None
    out: Path

    def open(self, reader: str) -> tuple[Vectors, Callable[[], None]]:
        """The vectors of a reader, and what closes them."""
        if self.file is None and self.db is not None:
            store = Store(self.db)
            return store.vectors.of(reader), store.close
        kept = FileVectors(self.file or self.out.with_suffix(".vectors"), reader)
        return kept, kept.close


def _blocks(engine: Engine) -> int | None:
    """Where the head that ships reads this model, so that both share what was read; else the last block."""
    shipped = find_head(SHIPPED_HEAD)
    return shipped.blocks if engine.identity.get("sha256") == shipped.sha256 else None


_GIVES_STATES = "a model that runs here does, and llama-server and vLLM: docs/heads.md"


async def _train(
    engine: Engine, spec: str, labels: LabelSet, out: Path, blocks: int | None, where: _Kept
) -> Trained:
    if not isinstance(engine, StateReader):
        raise SpecError(f"{engine.identity['model']} gives no states, and a head needs them", hint=_GIVES_STATES)
    reader = ResponseReader(engine, MemoryVectors(), blocks=blocks, reading=StateReading())
    reader.vectors, close = where.open(reader.reader_name)
    try:
        pairs = [pair for source in labels.sources for pair in source.pairs]
        table = await TrainingTable.read(pairs, reader, _report)
    finally:
        close()
        await engine.close()
    table = replace(table, stacked=labels.stacked)
    opens = _opens(engine, spec)
    found = train(out.stem, engine, table, labels.sources, blocks=blocks, votes=labels.votes, spec=opens)
    return replace(found, shipped=_shipped(found, table, labels.sources))


def _opens(engine: Engine, spec: str) -> str:
    """What opens the model again, from any folder; nothing where its name does."""
    if spec == engine.identity["model"]:
        return ""
    return str(Path(spec).resolve()) if Path(spec).is_file() else spec


def _shipped(found: Trained, table: TrainingTable, sources: Sequence[TrainingSource]) -> Mapping[str, Estimate]:
    """What the head that ships makes of the same pairs, where it reads the same states."""
    shipped = find_head(SHIPPED_HEAD)
    if any(getattr(shipped, name) != getattr(found.head, name) for name in ("sha256", "blocks", "reading")):
        return {}
    figures = {name: head_accuracy(shipped, table, sources, name) for name in found.learned}
    return {name: figure for name, figure in figures.items() if figure is not None}


def _report(done: int, total: int) -> None:
    if done % _EVERY == 0 or done == total:
        console.aside(f"{done:,} of {total:,} responses read")


def _show(trained: Trained, out: Path, labels: LabelSet) -> None:
    def line(text: str) -> None:
        console.out.print(text, markup=False, highlight=False)

    for dimension in trained.learned:
        line(trained.sentence(dimension))
        if dimension in trained.alone:
            line(f"  {console.visible(trained.weighing(dimension))}")
        for other in labels.others.get(dimension, ()):
            line(f"  {console.visible(other.sentence(trained.learned[dimension].decided))}")
    for dimension, why in trained.refused.items():
        line(f"{dimension}: not learned, {why}")
    line(f"use it: evenhand judge PAIRS --judge head:{out}")


def _fields(trained: Trained, out: Path, labels: LabelSet) -> dict[str, object]:
    learned = {
        dimension: {
            "labels": found.labels,
            "decided": found.decided,
            "instructions": found.clusters,
            "held_out": found.held_out.accuracy,
            "three_way": found.held_out.three_way,
            "longer_output": trained.longer[dimension],
            "shipped_head": trained.shipped.get(dimension),
            "states_alone": trained.alone.get(dimension),
            "left_out": trained.left_out.get(dimension, 0),
            "weighs": trained.named_parts(dimension),
            "judges": [
                {
                    "judge": other.name,
                    "dimension": other.dimension,
                    "may_have_learned_from_these": other.learned,
                    **plain(other.accuracy),
                }
                for other in labels.others.get(dimension, ())
            ],
            "curve": found.curve,
            "penalty": found.weights.penalty,
        }
        for dimension, found in trained.learned.items()
    }
    return {"head": str(out), "model": trained.head.model, "learned": learned, "refused": dict(trained.refused)}


@app.command()
def vectors(
    db: DbOption = Path("evenhand.db"),
    export: Annotated[Path | None, option("--export FILE.npz", "Write them to a file for numpy.")] = None,
    drop: Annotated[bool, option("--drop", "Forget them and make the file smaller; verdicts stay.")] = False,
    as_json: JsonOption = False,
) -> None:
    """The states that trained heads have read, which a database keeps so that nothing is read twice."""
    with open_store(db, read_only=not drop) as store:
        found = store.vectors.counts()
        if export is not None:
            _export(store, export)
        if drop:
            store.vectors.drop()
            store.compact()
    if as_json:
        print(to_json({"db": str(db), "readers": found, "dropped": drop}))
        return
    count, size = sum(each.vectors for each in found), sum(each.bytes for each in found)
    tokens = sum(each.tokens for each in found)
    said = f"{console.count(count, 'vector')} in {db}: {size / 1e6:,.1f} MB, {tokens:,} tokens were read for them"
    console.out.print(said, markup=False)
    if export is not None:
        console.out.print(f"written to {export}", markup=False)
    if drop:
        console.out.print("dropped; the next run of a head reads what it needs again")


def _export(store: Store, path: Path) -> None:
    import numpy as np

    if path.suffix != ".npz":
        raise InputError(f"--export {path}", hint="let the name end in .npz")
    keys, readers, rows = [], [], []
    for count in store.vectors.counts():
        for key, vector in store.vectors.all(count.reader):
            keys.append(key)
            readers.append(count.reader)
            rows.append(vector)
    width = max((len(row) for row in rows), default=0)
    whole = np.zeros((len(rows), width), dtype=np.float16)
    for number, row in enumerate(rows):
        whole[number, : len(row)] = row
    np.savez_compressed(path, key=np.array(keys), reader=np.array(readers), vector=whole)
