"""Heads by what they were trained on, each measured on all sets of pairs at once.

    python benchmarks/heads.py STATES DATA --made made.jsonl
    python benchmarks/heads.py STATES DATA --made made.jsonl --npz DATA/states-qwen2.5-coder-1.5b.npz
    python benchmarks/heads.py STATES DATA --made made.jsonl --report               every figure of CHOSEN, held out
    python benchmarks/heads.py STATES DATA --made made.jsonl --save head.json       fits CHOSEN, and writes its file
    python benchmarks/heads.py STATES DATA --npz FILE --save other.json --sets pandalm=1,adversarial=0.2
                                                          overall from other sets, to be attacked beside CHOSEN
    python benchmarks/heads.py STATES DATA --made made.jsonl --npz FILE --retest    pairs that two builds have read

STATES is the folder of benchmarks/states.py, DATA that of the labelled pairs. Pairs whose responses have no states
yet are left out, and every figure says how many pairs it is of. With --npz, which may be given several times,
responses without a state of ours take the one of another build of llama.cpp (cosine .9997 with ours): a file as
`evenhand vectors --export` writes it, or one with `layer22`, which is brought through the model's final norm.
With --retest the heads are fitted to the states of --npz alone, and each pair that STATES has too is judged
by the same head twice, with the states of either build.
A set that took part in training is cross-validated over whole instructions, the others are judged by a head fitted
to all of the training sets. LLMBar's natural pairs and Auto-J are never trained on.
"""

from __future__ import annotations

import argparse
import datetime
import json
import mmap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np

from evenhand.core.pair import Pair
from evenhand.core.stats.calibration import reliability
from evenhand.engines import cut, gguf
from evenhand.engines.catalog import locate
from evenhand.engines.heads.fitting import Array, Components, HeadFit, Labels, choose_penalty, fit, folds, tie_model
from evenhand.engines.heads.head import LENGTH, Head, HeldOutFigure, TrainedOn, Weights
from evenhand.engines.heads.learning import accuracy, davidson_rows
from evenhand.engines.heads.reading import StateReading
from evenhand.engines.heads.training import TrainingSource, TrainingTable
from evenhand.engines.heads.vectors import content_key
from evenhand.engines.llama import LlamaEngine
from evenhand.store.vectors import FileVectors
from states import reader_name

LICENCES = {"pandalm": "Apache-2.0", "adversarial": "MIT", "evalbias": "BSD-3-Clause", "made": "evenhand's own"}
SIDES = {"A": "1", "B": "2", "tie": "tie", "1": "1", "2": "2"}
SETS = ("pandalm", "adversarial", "natural", "autoj", "evalbias", "crowdrag", "made", "sample")


@dataclass(frozen=True)
class Mixture:
    """What a head is trained on, and how."""

    weights: Mapping[str, float]
    by_source: bool = False
    length: float | None = None  # at use; None: as fitted
    penalty: float | None = None  # None: chosen by cross-validation
    dimension: str = "overall"
    # Sets whose overall label stands in for one on the dimension: few pairs are labelled on a part of quality. They
    # give direction only; how strong a tie is comes from the other sets.
    borrowed: Mapping[str, float] = field(default_factory=dict)
    # Sets that say how sure a gap may make one, each pair alike: on pairs made by program a head is right more
    # often than on those of people, and would be too sure there.
    calibrated_on: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """Short enough for a row."""
        sets = "+".join(f"{name}*{weight:g}" if weight != 1 else name for name, weight in self.weights.items())
        taste = "as fitted" if self.length is None else f"{self.length:g}"
        return f"{sets}, length {taste}{' by set' if self.by_source else ''}"


def rows_of(file: Path) -> list[dict[str, object]]:
    """The objects of a file of lines."""
    return [json.loads(line) for line in file.read_text("utf-8").splitlines() if line.strip()]


def pair_of(row: Mapping[str, object]) -> Pair:
    """A labelled pair; a set that has one label has it on overall."""
    given = row.get("labels") or {"overall": row.get("label")}
    assert isinstance(given, dict)
    labels = {name: SIDES[label] for name, label in given.items() if label in SIDES}
    if isinstance(dims := row.get("dims"), dict) and (topical := dims.get("correctness_topical", {}).get("label")):
        labels["correctness"] = SIDES[topical]
    texts = [str(row[name]) for name in ("instruction", "output_1", "output_2")]
    return Pair(*texts, labels=labels, metadata={"subset": row.get("subset", "")})  # type: ignore[arg-type]


def load_sets(data: Path, sample: Path, made: Path | None) -> dict[str, list[Pair]]:
    """All pairs, by set."""
    llmbar = [pair_of(row) for row in rows_of(data / "llmbar.jsonl")]
    found = {
        "pandalm": [pair_of(row) for row in rows_of(data / "pandalm.jsonl")],
        "adversarial": [p for p in llmbar if p.metadata["subset"] != "Natural"],
        "natural": [p for p in llmbar if p.metadata["subset"] == "Natural"],
        "autoj": [pair_of(row) for row in rows_of(data / "autoj-dev.jsonl")],
        "evalbias": [pair_of(row) for row in rows_of(data / "evalbias.jsonl")],
        "crowdrag": [pair_of(row) for row in rows_of(data / "crowdrag25-dev.jsonl")],
        "sample": [pair_of(row) for row in rows_of(sample)],
        "made": [pair_of(row) for row in rows_of(made)] if made else [],
    }
    return {name: [p for p in pairs if p.labels] for name, pairs in found.items()}


def final_norm(path: Path) -> Array:
    """The weights of a model's last norm."""
    header = gguf.read_header(path)
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
        layout = cut._read(gguf.Cursor(data, path), f"{header.architecture}.block_count".encode(), 1)
        entry = next(tensor for tensor in layout.tensors if tensor.name == b"output_norm.weight")
        width = int.from_bytes(entry.shape[4:12], "little")
        return np.frombuffer(data, np.float32, width, layout.data + entry.offset).astype(float)


def of_other_builds(files: Sequence[Path], model: Path) -> dict[str, Array]:
    """States of other builds, by the first 20 digits of their keys."""
    found: dict[str, Array] = {}
    for file in files:
        stored = np.load(file)
        if "vector" in stored:
            ready = stored["vector"].astype(float)
        else:
            raw = stored["layer22"].astype(float)
            ready = raw / np.sqrt((raw**2).mean(axis=1, keepdims=True) + 1e-6) * final_norm(model)
        found |= {str(key)[:20]: row for key, row in zip(stored["key"], ready, strict=True)}
    return found


def keys_of(pairs: Sequence[Pair]) -> list[str]:
    """By what the states of their responses are found."""
    return list({content_key(p.instruction, text): None for p in pairs for text in (p.output_1, p.output_2)})


def load_states(
    pairs: Sequence[Pair], kept: FileVectors | None, files: Sequence[Path], model: Path
) -> tuple[TrainingTable, set[str]]:
    """The states that there are, and the keys of those that another build has read."""
    keys = keys_of(pairs)
    own = {key: vector.astype(float) for key, vector in kept.get(keys).items()} if kept else {}
    theirs = of_other_builds(files, model)
    other = {key: theirs[key[:20]] for key in keys if key not in own and key[:20] in theirs}
    found = {**own, **other}
    return TrainingTable(np.array(list(found.values())), {key: row for row, key in enumerate(found)}), set(other)


def known(pairs: Sequence[Pair], table: TrainingTable) -> list[Pair]:
    """The pairs whose two responses have states."""
    return [p for p in pairs if all(content_key(p.instruction, t) in table.rows for t in (p.output_1, p.output_2))]


class Bench:
    """All sets with their states, as components."""

    def __init__(
        self,
        sets: Mapping[str, list[Pair]],
        table: TrainingTable,
        components: int,
        borrowed: set[str] | None = None,
    ) -> None:
        self.borrowed = borrowed or set()
        self.sets = {name: known(pairs, table) for name, pairs in sets.items()}
        self.raw = table
        self.axes = Components.of(table.states, components)
        self.table = self.axes.project(table.states)

    def labels(
        self, weights: Mapping[str, float], dimension: str, borrowed: Mapping[str, float] | None = None
    ) -> Labels:
        """The labels of some sets; of borrowed ones, that on overall."""
        chosen = [TrainingSource(name, self.sets[name], LICENCES.get(name, ""), w) for name, w in weights.items()]
        for name, weight in (borrowed or {}).items():
            pairs = [replace(p, labels={dimension: p.labels["overall"]}) for p in self.sets[name]]
            chosen.append(TrainingSource(name, pairs, LICENCES.get(name, ""), weight))
        return self.raw.labels(chosen, dimension)

    def fitted(self, mixture: Mixture, labels: Labels) -> HeadFit:
        """A fit to labels, with the taste for length that the mixture asks for."""
        unit = self.axes.unit
        penalty = mixture.penalty or choose_penalty(
            self.table, labels, by_source=mixture.by_source, unit=unit, count=4
        )
        found = fit(self.table, labels, penalty, by_source=mixture.by_source, unit=unit)
        taste = found.features if mixture.length is None else np.array([mixture.length])
        return HeadFit(found.state, taste, penalty, found.beta)

    def gaps(self, mixture: Mixture, count: int = 10) -> tuple[dict[str, tuple[Array, Labels]], HeadFit]:
        """Held-out gaps of every set, and the fit to all of the training sets."""
        [out], whole = self.gaps_on([self.table], mixture, count)
        return out, whole

    def gaps_on(
        self, tables: Sequence[Array], mixture: Mixture, count: int = 10
    ) -> tuple[list[dict[str, tuple[Array, Labels]]], HeadFit]:
        """The same with the states of each table, which the heads were not fitted to."""
        training = self.labels(mixture.weights, mixture.dimension, mixture.borrowed)
        held = np.zeros((len(tables), len(training)))
        fold = folds(training.clusters, count)
        for k in range(count):
            found, rows = self.fitted(mixture, training.take(fold != k)), training.take(fold == k)
            held[:, fold == k] = [found.gaps(table, rows) for table in tables]
        whole = self.fitted(mixture, training)
        out: list[dict[str, tuple[Array, Labels]]] = [{} for _ in tables]
        for table, gaps, each in zip(tables, held, out, strict=True):
            for number, name in enumerate(mixture.weights):
                rows = training.source == number
                each[name] = gaps[rows], training.take(rows)
            for name in self.sets:
                if name not in each and len(labels := self.labels({name: 1.0}, mixture.dimension)):
                    each[name] = whole.gaps(table, labels), labels
        return out, whole


def share(gaps: Array, labels: Labels) -> str:
    """Right on decided pairs, and how many those are."""
    decided = labels.truth != 0.5
    if not decided.any():
        return "-"
    right = np.sign(gaps[decided]) == np.sign(labels.truth[decided] - 0.5)
    return f"{right.mean():.3f} ({decided.sum()})"


def ties_of(found: Mapping[str, tuple[Array, Labels]], mixture: Mixture) -> tuple[float, float]:
    """The slope and the strength of a tie on the training sets' held-out gaps."""
    sets = mixture.calibrated_on or tuple(mixture.weights)
    gaps = np.concatenate([found[each][0] for each in sets])
    truth = np.concatenate([found[each][1].truth for each in sets])
    return tie_model(gaps, truth)


def three_way(found: Mapping[str, tuple[Array, Labels]], mixture: Mixture, name: str) -> str:
    """Right on all pairs with the ties of the training sets, as those of the set would not be known."""
    slope, tie = ties_of(found, mixture)
    p = davidson_rows(found[name][0], slope, tie)
    truth = np.select([found[name][1].truth == 1, found[name][1].truth == 0], [0, 1], 2)
    return f"{(p.argmax(axis=1) == truth).mean():.3f}"


def longer(bench: Bench, dimension: str) -> dict[str, str]:
    """What taking the longer output has."""
    every = {name: bench.labels({name: 1.0}, dimension) for name in bench.sets}
    return {name: share(labels.features[:, 0], labels) for name, labels in every.items() if len(labels)}


def show(name: str, columns: Mapping[str, str]) -> None:
    """One row."""
    print(f"{name:<64}" + "".join(f"{columns.get(each, ''):>14}" for each in SETS), flush=True)


# What --save fits: chosen by the four columns together (docs/heads.md).
CHOSEN = {
    "overall": Mixture(
        {"pandalm": 1.0, "adversarial": 0.2, "made": 1.5},
        length=0.0,
        penalty=60.0,
        calibrated_on=("pandalm", "adversarial"),
    ),
    **{
        part: Mixture(
            {"made": 1.0},
            length=0.0,
            penalty=penalty,
            dimension=part,
            borrowed={"pandalm": people, "adversarial": people * bait},
        )
        for part, penalty, people, bait in (
            ("precision", 15.0, 0.05, 1.0),
            ("correctness", 300.0, 1.0, 0.1),
            ("format", 15.0, 0.05, 1.0),
        )
    },
}


def report(bench: Bench) -> None:
    """What the chosen mixtures come to on every set, with intervals, ties and calibration; then without LLMBar."""
    for dimension, mixture in CHOSEN.items():
        print(f"\n{dimension}: {mixture.name}, penalty {mixture.penalty}")
        found, _ = bench.gaps(mixture)
        slope, tie = ties_of(found, mixture)
        rulers = longer(bench, dimension)
        for name, (gaps, labels) in found.items():
            report_row(name, gaps, labels, davidson_rows(gaps, slope, tie), rulers.get(name, ""))
    print("\nevalbias, by subset; a subset is never trained on")
    found, _ = bench.gaps(CHOSEN["overall"])
    subsets = np.array([str(p.metadata["subset"]) for p in bench.sets["evalbias"] if "overall" in p.labels])
    for subset in dict.fromkeys(subsets.tolist()):
        gaps, labels = found["evalbias"]
        print(f"  {subset:<40}{share(gaps[subsets == subset], labels.take(subsets == subset))}")
    print("\nnot one LLMBar pair in training")
    for mixture in (
        Mixture({"made": 1.0}, length=0.0, penalty=30.0),
        Mixture({"pandalm": 1.0, "made": 1.5}, length=0.0, penalty=60.0),
    ):
        found, whole = bench.gaps(mixture)
        columns = {name: share(*each) for name, each in found.items()}
        print(f"  {mixture.name} (penalty {whole.penalty:g})", columns)


def report_row(name: str, gaps: Array, labels: Labels, p: Array, ruler: str) -> None:
    """One set: right side with its interval, the longer output, three-way, calibration error and that of chance."""
    right = accuracy(gaps, labels)
    truth = np.select([labels.truth == 1, labels.truth == 0], [0, 1], 2)
    curve = reliability(p, truth, labels.clusters)
    cells = [f"{x:.3f}" if x is not None else "-" for x in (right.value, right.low, right.high)]
    error = [f"{x:.3f}" if x is not None else "-" for x in (curve.ece, curve.ece_of_chance)]
    ways = (p.argmax(axis=1) == truth).mean()
    print(
        f"  {name:<12}{right.n:>5} decided of {len(labels):>5}  right {cells[0]} ({cells[1]} to {cells[2]})"
        f"  longer {ruler}  three-way {ways:.3f}  calibration error {error[0]} (chance {error[1]})"
    )


def retest(bench: Bench, own: Mapping[str, Array]) -> None:
    """The pairs that two builds have read, judged by the same held-out heads with the states of either."""
    mixture, again = CHOSEN["overall"], np.full_like(bench.table, np.nan)
    rows = {bench.raw.rows[key]: vector for key, vector in own.items() if key in bench.raw.rows}
    again[list(rows)] = bench.axes.project(np.array(list(rows.values())))
    (theirs, ours), _ = bench.gaps_on([bench.table, again], mixture)
    slope, tie = ties_of(theirs, mixture)
    for name, (gaps, labels) in ours.items():
        both = np.isfinite(gaps)
        if not both.any():
            continue
        some, before = labels.take(both), theirs[name][0][both]
        print(f"\n{name}: the same side on {(np.sign(before) == np.sign(gaps[both])).sum()} of {both.sum()} pairs")
        for build, each in (("another build", before), ("embedded", gaps[both])):
            report_row(build, each, some, davidson_rows(each, slope, tie), share(some.features[:, 0], some))


def mixtures_of(sets: str) -> Mapping[str, Mixture]:
    """What a head is to be fitted to: CHOSEN, or overall alone from other sets, with all else as in CHOSEN.

    >>> mixtures_of("pandalm=1,adversarial=0.2")["overall"].weights
    {'pandalm': 1.0, 'adversarial': 0.2}
    """
    if not sets:
        return CHOSEN
    named = (each.partition("=") for each in sets.split(","))
    weights = {name: float(weight or 1) for name, _, weight in named}
    return {"overall": replace(CHOSEN["overall"], weights=weights, calibrated_on=tuple(weights))}


def save(bench: Bench, engine: LlamaEngine, wanted: argparse.Namespace) -> None:
    """Fit the wanted mixtures and write them down as one head, with their held-out figures."""
    weights, figures, mixtures = {}, [], mixtures_of(wanted.sets)
    for dimension, mixture in mixtures.items():
        found, whole = bench.gaps(mixture)
        slope, tie = ties_of(found, mixture)
        taste = {LENGTH: float(whole.features[0])}
        state = bench.axes.unfold(whole.state)
        weights[dimension] = Weights(state, taste, slope, tie, wanted.components, whole.penalty)
        for name, (gaps, labels) in found.items():
            how = "whole instructions held out" if name in mixture.weights else "not trained on"
            right = accuracy(gaps, labels)
            if right.value is not None:
                ways = float(three_way(found, mixture, name))
                numbers = (round(x, 3) if x is not None else None for x in (right.low, right.high))
                figures.append(
                    HeldOutFigure(f"{name}, {how}", dimension, len(labels), round(right.value, 3), *numbers, ways)
                )
    trained = {name for mixture in mixtures.values() for name in (*mixture.weights, *mixture.borrowed)}
    sources = [TrainingSource(name, bench.sets[name], LICENCES[name]) for name in SETS if name in trained]
    lengths = [len(text) for s in sources if s.name != "made" for p in s.pairs for text in (p.output_1, p.output_2)]
    identity = engine.state_identity(wanted.blocks)
    head = Head(
        wanted.save.stem,
        identity["model"],
        identity["sha256"],
        wanted.blocks,
        weights,
        trained_on=tuple(_trained_on(source, bench.borrowed) for source in sources),
        held_out=tuple(figures),
        longest=int(np.quantile(lengths, 0.95)),
        date=datetime.date.today().isoformat(),
    )
    head.save(wanted.save)
    print(f"{wanted.save}: {wanted.save.stat().st_size:,} bytes, up to {head.longest} characters")
    for figure in figures:
        print(
            f"{figure.dimension:<12}{figure.name:<44}{figure.pairs:>5}  {figure.value:.3f}  {figure.three_way:.3f}"
        )


def _trained_on(source: TrainingSource, borrowed_keys: set[str]) -> TrainedOn:
    """What the file says of a set; borrowed states are named as such."""
    texts = ((p.instruction, text) for p in source.pairs for text in (p.output_1, p.output_2))
    borrowed = any(content_key(*each) in borrowed_keys for each in texts)
    found = source.trained_on
    return replace(found, name=f"{found.name} (states of another build of llama.cpp)") if borrowed else found


def options() -> argparse.Namespace:
    """What the command line asks for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_sources(parser)
    parser.add_argument("--dimension", default="overall")
    parser.add_argument("--report", action="store_true", help="all held-out figures of the chosen mixtures")
    parser.add_argument("--retest", action="store_true", help="the same pairs with the states of two builds")
    parser.add_argument("--save", type=Path, help="write a head of the chosen mixtures there")
    parser.add_argument("--sets", default="", help="with --save: overall from these sets alone, as NAME=WEIGHT,...")
    return parser.parse_args()


def add_sources(parser: argparse.ArgumentParser) -> None:
    """The options that say where pairs and states are, and of which model."""
    parser.add_argument("states", type=Path)
    parser.add_argument("data", type=Path)
    parser.add_argument("--made", type=Path)
    parser.add_argument("--npz", type=Path, action="append", default=[])
    parser.add_argument("--sample", type=Path, default=Path("src/evenhand/io/sample.jsonl"))
    parser.add_argument("--model", default="qwen2.5-coder-1.5b")
    parser.add_argument("--blocks", type=int, default=23)
    parser.add_argument("--components", type=int, default=256)


def open_bench(wanted: argparse.Namespace) -> tuple[Bench, LlamaEngine]:
    """The pairs and states that the command line names."""
    model = locate(wanted.model)
    engine = LlamaEngine(model)
    kept = FileVectors(wanted.states / "states.sqlite", reader_name(engine, wanted.blocks, StateReading()))
    sets = load_sets(wanted.data, wanted.sample, wanted.made)
    every = [pair for pairs in sets.values() for pair in pairs]
    table, borrowed = load_states(every, None if wanted.retest else kept, wanted.npz, model.path)
    print(f"{len(table.rows):,} responses with states, {len(borrowed):,} of them by another build")
    bench = Bench(sets, table, wanted.components, borrowed)
    if wanted.retest:
        retest(bench, {key: vector.astype(float) for key, vector in kept.get(keys_of(every)).items()})
    return bench, engine


def main() -> None:
    """The table."""
    wanted = options()
    bench, engine = open_bench(wanted)
    if wanted.retest:
        return
    if wanted.save:
        save(bench, engine, wanted)
        return
    if wanted.report:
        report(bench)
        return
    show("trained on, length at use", {name: name for name in SETS})
    show("longer output", longer(bench, wanted.dimension))
    if wanted.dimension != "overall":
        mixtures = [Mixture({"made": 1.0}, length=0.0, dimension=wanted.dimension)]
    else:
        mixtures = [
            Mixture({"pandalm": 1.0}),
            Mixture({"pandalm": 1.0}, length=0.0),
            Mixture({"pandalm": 1.0, "made": 1.0}, by_source=True, length=0.0),
            Mixture({"pandalm": 1.0, "made": 3.0}, by_source=True, length=0.0),
            Mixture({"made": 1.0}, length=0.0),
            Mixture({"pandalm": 1.0, "adversarial": 1.0}, length=0.0),
            Mixture({"pandalm": 1.0, "adversarial": 0.5}, length=0.0),
            Mixture({"pandalm": 1.0, "made": 2.0, "evalbias": 1.0}, length=0.0),
            *[CHOSEN["overall"], replace(CHOSEN["overall"], length=0.2), replace(CHOSEN["overall"], length=0.5)],
            *[
                Mixture({"pandalm": 1.0, "adversarial": 0.5, "made": 2.0}, by_source=True, length=taste)
                for taste in (0.0, 0.3, 0.6)
            ],
        ]
    for mixture in mixtures:
        found, whole = bench.gaps(mixture)
        show(f"{mixture.name} (penalty {whole.penalty:g})", {name: share(*each) for name, each in found.items()})
        if "autoj" in found:
            ways = {name: three_way(found, mixture, name) for name in found}
            show("    three-way", ways)


if __name__ == "__main__":
    main()
