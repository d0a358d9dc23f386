"""Writing into a folder of shards: each file has its name when it is whole."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import Any

import orjson

from evenhand.core.engine import Usage
from evenhand.core.errors import InputError
from evenhand.core.judge import Orders, Setup
from evenhand.io.files.arrow import pyarrow
from evenhand.store import JudgeRow
from evenhand.store.shards.place import Place
from evenhand.store.shards.schema import FORM, shard_schema, table_of

JUDGE = "judge.json"
PART, RUN = "part-", "run-"
FINGERPRINT, FORM_KEY = b"evenhand.fingerprint", b"evenhand.form"
# Rows that lie together: few enough that one pair is found without reading much, many enough to pack well.
ROW_GROUP = 4096


@dataclass(frozen=True, slots=True)
class RunNote:
    """When a run was, with which settings, at what cost; times are seconds since 1970."""

    settings: Mapping[str, Any]
    started: float
    ended: float | None  # None where it was killed
    pairs: int
    asked: int
    usage: Usage = field(default_factory=Usage)


def begin_shards(where: str | Path | Place, setup: Setup, *, orders: Orders = "both", seed: int = 0) -> Place:
    """Make the folder of a judge, or go on with it; InputError if it is another judge's.

    >>> import tempfile
    >>> from evenhand.engines.scripted import ScriptedEngine
    >>> from evenhand.core.protocol import Protocol
    >>> setup = Setup(ScriptedEngine(lambda prompt: "A"), Protocol.load("overall"))
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     begin_shards(folder, setup).names("judge")
    ['judge.json']
    """
    return begin_folder(where, judge_fields(setup, orders=orders, seed=seed))


def begin_folder(where: str | Path | Place, fields: Mapping[str, Any]) -> Place:
    """The same for a judge that is known by its facts alone."""
    place = Place.of(where)
    fields = {"form": FORM, **fields, "evenhand": version("evenhand"), "created": time.time()}
    if place.has(JUDGE):
        _check_same(place, orjson.loads(place.read(JUDGE)), fields)
        return place
    if place.names(PART, ".parquet"):
        raise InputError(
            f"{place.name} holds shards and no {JUDGE}",
            hint=f"bring {JUDGE} back, or write into another folder",
        )
    place.write(JUDGE, orjson.dumps(fields, option=orjson.OPT_INDENT_2))
    return place


def judge_fields(judge: Setup | JudgeRow, *, orders: Orders, seed: int) -> dict[str, Any]:
    """What judge.json says of the judge."""
    if isinstance(judge, Setup):
        model, identity, template = judge.engine.identity["model"], judge.engine.identity, judge.protocol
        protocol, text, dimensions = template.name, template.text, template.dimensions
    else:
        model, identity, protocol = judge.model, judge.identity, judge.protocol
        text, dimensions = judge.template, judge.dimensions
    return {
        "fingerprint": judge.fingerprint,
        "model": model,
        "identity": dict(identity),
        "protocol": protocol,
        "template": text,
        "dimensions": list(dimensions),
        "raw_markup": judge.raw_markup,
        "orders": orders,
        "seed": seed,
    }


def _check_same(place: Place, there: Mapping[str, Any], wanted: Mapping[str, Any]) -> None:
    """A folder holds one judge, judged one way: else what it holds could not be told apart."""
    for name, what in (("fingerprint", "another judge"), ("orders", "other orders"), ("seed", "another seed")):
        if name == "seed" and wanted["orders"] != "random":
            continue
        if there.get(name) != wanted[name]:
            raise InputError(
                f"{place.name} holds verdicts of {what}: {name} {there.get(name)}, not {wanted[name]}",
                hint="write into another folder; one folder holds the verdicts of one judge",
            )


def write_shard(where: str | Path | Place, name: str, rows: Any, *, fingerprint: str) -> str:
    """Write rows, or a table of them, as part-NAME.parquet; the file's name.

    The file is there when it is whole. A name that is there already is replaced: a task that is run again after
    its worker died writes the same file once more.

    >>> import tempfile
    >>> from evenhand.io.pairs import Pair
    >>> from evenhand.store.shards.schema import OrderRecord, ShardRow
    >>> from evenhand.core.verdict import Verdict
    >>> row = ShardRow(Pair("Hi", "x", "y"), {"forward": OrderRecord("k", {"overall": Verdict("overall", "A")})})
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     write_shard(folder, "0", [row], fingerprint="f")
    'part-0.parquet'
    """
    pyarrow()
    import pyarrow.parquet as parquet

    if not name or "/" in name or name.startswith("."):
        raise ValueError(f"{name!r} cannot name a shard")
    table = rows if hasattr(rows, "schema") else table_of(rows)
    schema = shard_schema().with_metadata({FINGERPRINT: fingerprint.encode(), FORM_KEY: FORM.encode()})
    file = f"{PART}{name}.parquet"
    with (
        Place.of(where).writing(file) as out,
        parquet.ParquetWriter(
            out, schema, compression="zstd", write_statistics=["name", "key", "judged"]
        ) as writer,
    ):
        writer.write_table(table.cast(schema), row_group_size=ROW_GROUP)
    return file


def note_run(where: str | Path | Place, note: RunNote) -> None:
    """Keep when a run was and what it took."""
    fields = asdict(note)
    Place.of(where).write(f"{RUN}{int(note.started * 1e6)}.json", orjson.dumps(fields))
