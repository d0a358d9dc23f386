"""How often a judge agrees with people, for several protocols, on the same pairs.

    python benchmarks/quality.py --data FOLDER --db quality.db --half choose     # to choose a protocol by
    python benchmarks/quality.py --data FOLDER --db quality.db --half report     # to report it on
    python benchmarks/quality.py --data FOLDER --db quality.db --half fresh      # pairs that nothing was chosen by
    python benchmarks/quality.py --data FOLDER --db quality.db --table           # print what is in the database

FOLDER holds pandalm.jsonl and llmbar.jsonl (fields: instruction, output_1, output_2, label, subset). The pairs
are a seeded sample of 150 from PandaLM and LLMBar's 100 natural ones, cut into two halves, so that what is
chosen on one half is reported on the other; and 100 further pairs of PandaLM, fresh. Verdicts are kept: a run
that is stopped goes on. A protocol with several dimensions has two rows: its overall, and its parts combined.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import sys
import time
from collections.abc import Callable, Iterable
from itertools import product
from pathlib import Path

from evenhand import Judgment, Pair, Protocol, Store, Usage
from evenhand.core.judge import Setup
from evenhand.core.pair import COMBINED
from evenhand.core.protocol import ORDERS
from evenhand.core.verdict import log_odds
from evenhand.engines import open_engine
from evenhand.engines.catalog import DEFAULT_MODEL
from evenhand.io.pairs import pair_from
from evenhand.running.runner import Run

SEED = 0
PROTOCOLS = ("holistic", "overall", "chained", "weighed")
SETS = ("llmbar", "pandalm")
HALVES = ("choose", "report", "fresh")


Row = dict[str, object]


def read(folder: Path, name: str) -> list[Row]:
    return [json.loads(line) for line in (folder / f"{name}.jsonl").read_text("utf-8").splitlines()]


def split(panda: list[Row]) -> tuple[list[Row], list[Row]]:
    """A seeded sample of 150 pairs of PandaLM, and all others, shuffled."""
    sample = random.Random(SEED).sample(panda, 150)
    taken = {row["id"] for row in sample}
    others = [row for row in panda if row["id"] not in taken]
    random.Random(SEED + 2).shuffle(others)
    return sample, others


def load(folder: Path) -> list[tuple[str, str, Pair]]:
    """Each pair with the set and the half that it belongs to; ties are left out, as nobody can be right on them."""
    panda, others = split(read(folder, "pandalm"))
    natural = [row for row in read(folder, "llmbar") if row["subset"] == "Natural"]
    random.Random(SEED).shuffle(natural)
    rows = [("pandalm", HALVES[i >= 75], row) for i, row in enumerate(panda)]
    rows += [("llmbar", HALVES[i >= 50], row) for i, row in enumerate(natural)]
    random.Random(SEED + 1).shuffle(rows)  # so that a part of a run says something about both sets
    rows += [("pandalm", "fresh", row) for row in others[:100]]
    pairs = [(name, half, pair_from(row)) for name, half, row in rows]
    return [(name, half, pair) for name, half, pair in pairs if pair.labels.get("overall") in ("1", "2")]


async def run(pairs: list[Pair], protocols: Iterable[str], db: Path, model: str) -> None:
    """Judge each pair under all protocols, one order after the other.

    Protocols that share their prefix then share the pair too: it is computed once for all of them.
    """
    engine = open_engine(model)
    setups = [Setup(engine, Protocol.load(name)) for name in protocols]
    began, usage = time.monotonic(), Usage()
    with Store(db) as store:
        for number, pair in enumerate(pairs, 1):
            for order, setup in product(ORDERS, setups):
                async for judgment in Run(setup, [pair], store, orders=order):
                    usage += judgment.usage
            seconds = time.monotonic() - began
            print(f"\r{number}/{len(pairs)} pairs, {seconds:.0f} s ", end="", file=sys.stderr, flush=True)
    await engine.close()
    print(usage, file=sys.stderr)


def forward_hard(judgment: Judgment, dimension: str) -> float:
    return _hit(judgment, judgment[dimension].side_in("forward"))


def both_hard(judgment: Judgment, dimension: str) -> float:
    """Orders that contradict each other, or both say tie, are worth one half; one tie leaves the other's say."""
    said = {judgment[dimension].side_in("forward"), judgment[dimension].side_in("swapped")} - {"tie"}
    return _hit(judgment, said.pop() if len(said) == 1 else None)


def pooled(judgment: Judgment, dimension: str) -> float:
    p = judgment[dimension].p
    odds = log_odds(p) if p else 0.0
    return _hit(judgment, "1" if odds > 0 else "2" if odds < 0 else None)


def longer(judgment: Judgment, dimension: str) -> float:
    one, two = len(judgment.pair.output_1), len(judgment.pair.output_2)
    return _hit(judgment, "1" if one > two else "2" if two > one else None)


def _hit(judgment: Judgment, side: str | None) -> float:
    return float(side == judgment.pair.labels["overall"]) if side in ("1", "2") else 0.5


READINGS: dict[str, Callable[[Judgment, str], float]] = {
    "forward, hard": forward_hard,
    "both orders, hard": both_hard,
    "both orders, pooled": pooled,
    "longer output wins": longer,
}


def table(pairs: list[tuple[str, str, Pair]], db: Path) -> str:
    """Accuracy on decided pairs with a valid judgment, as Markdown."""
    lines = [
        "| set | part | protocol | pairs | " + " | ".join(READINGS) + " |",
        "|---|---|---|--:|" + "--:|" * len(READINGS),
    ]
    with Store(db) as store:
        judged = [(row, {j.pair.id: j for j in store.judgments(row)}) for row in store.judges()]
    parts = [(name, half) for name in (*SETS, "both sets") for half in (*HALVES, "all parts")]
    for name, half in parts:
        ids = [pair.id for n, h, pair in pairs if name in (n, "both sets") and half in (h, "all parts")]
        for row, judgments in judged:
            these = [judgments[i] for i in ids if i in judgments]
            for dimension in ("overall", COMBINED):
                valid = [j for j in these if dimension in j.outcomes and j[dimension].side is not None]
                if valid:
                    lines.append(_line(name, half, row.protocol, dimension, valid))
    return "\n".join(lines)


def _line(name: str, half: str, protocol: str, dimension: str, judgments: list[Judgment]) -> str:
    shares = [sum(read(j, dimension) for j in judgments) / len(judgments) for read in READINGS.values()]
    cells = " | ".join(f"{share:.3f}".lstrip("0") for share in shares)
    which = f"{protocol}, {dimension}" if dimension != protocol else protocol
    return f"| {name} | {half} | {which} | {len(judgments)} | {cells} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--data", type=Path, required=True, help="the folder with pandalm.jsonl and llmbar.jsonl")
    parser.add_argument("--db", type=Path, default=Path("quality.db"))
    parser.add_argument("--half", choices=(*HALVES, "both"), default="both")
    parser.add_argument("--protocols", nargs="*", default=PROTOCOLS, help="names or template files")
    parser.add_argument("--judge", default=DEFAULT_MODEL)
    parser.add_argument("--table", action="store_true", help="only print what is in the database")
    args = parser.parse_args()
    pairs = load(args.data)
    if not args.table:
        wanted = [pair for _, half, pair in pairs if args.half in (half, "both")]
        asyncio.run(run(wanted, args.protocols, args.db, args.judge))
    print(table(pairs, args.db))


if __name__ == "__main__":
    main()
