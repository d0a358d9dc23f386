"""How often a judge agrees with people, for several protocols, on the same pairs.

    python benchmarks/quality.py --data FOLDER --db quality.db --half choose     # to choose a protocol by
    python benchmarks/quality.py --data FOLDER --db quality.db --half report     # to report it on
    python benchmarks/quality.py --data FOLDER --db quality.db --table           # print what is in the database

FOLDER holds pandalm.jsonl and llmbar.jsonl (fields: instruction, output_1, output_2, label, subset). The pairs
are a seeded sample of 150 from PandaLM and LLMBar's 100 natural ones, cut into two halves, so that what is
chosen on one half is reported on the other. Verdicts are kept: a run that is stopped goes on.
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
from evenhand.engines import open_engine
from evenhand.engines.catalog import DEFAULT_MODEL
from evenhand.judge import Setup
from evenhand.pairs import pair_from
from evenhand.protocol import ORDERS
from evenhand.runner import Run
from evenhand.verdict import log_odds

SEED = 0
PROTOCOLS = ("holistic", "overall", "chained")
SETS = ("llmbar", "pandalm")
HALVES = ("choose", "report")


def load(folder: Path) -> list[tuple[str, str, Pair]]:
    """Each pair with the set and the half that it belongs to; ties are left out, as nobody can be right on them."""

    def read(name: str) -> list[dict[str, object]]:
        return [json.loads(line) for line in (folder / f"{name}.jsonl").read_text("utf-8").splitlines()]

    panda = random.Random(SEED).sample(read("pandalm"), 150)
    natural = [row for row in read("llmbar") if row["subset"] == "Natural"]
    random.Random(SEED).shuffle(natural)
    rows = [("pandalm", HALVES[i >= 75], row) for i, row in enumerate(panda)]
    rows += [("llmbar", HALVES[i >= 50], row) for i, row in enumerate(natural)]
    random.Random(SEED + 1).shuffle(rows)  # so that a part of a run says something about both sets
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


def forward_hard(judgment: Judgment) -> float:
    return _hit(judgment, judgment["overall"].heard("forward"))


def both_hard(judgment: Judgment) -> float:
    """Orders that contradict each other, or both say tie, are worth one half; one tie leaves the other's say."""
    said = {judgment["overall"].heard("forward"), judgment["overall"].heard("swapped")} - {"tie"}
    return _hit(judgment, said.pop() if len(said) == 1 else None)


def pooled(judgment: Judgment) -> float:
    p = judgment["overall"].p
    odds = log_odds(p) if p else 0.0
    return _hit(judgment, "1" if odds > 0 else "2" if odds < 0 else None)


def longer(judgment: Judgment) -> float:
    one, two = len(judgment.pair.output_1), len(judgment.pair.output_2)
    return _hit(judgment, "1" if one > two else "2" if two > one else None)


def _hit(judgment: Judgment, side: str | None) -> float:
    return float(side == judgment.pair.labels["overall"]) if side in ("1", "2") else 0.5


READINGS: dict[str, Callable[[Judgment], float]] = {
    "forward, hard": forward_hard,
    "both orders, hard": both_hard,
    "both orders, pooled": pooled,
    "longer output wins": longer,
}


def table(pairs: list[tuple[str, str, Pair]], db: Path) -> str:
    """Accuracy on decided pairs, as Markdown."""
    place = {pair.id: (name, half) for name, half, pair in pairs}
    lines = [
        "| set | half | protocol | pairs | " + " | ".join(READINGS) + " |",
        "|---|---|---|--:|" + "--:|" * len(READINGS),
    ]
    with Store(db) as store:
        for row in store.judges():
            found = [j for j in store.judgments(row) if j.pair.id in place and "overall" in row.dimensions]
            for name in SETS:
                for half in (*HALVES, "both"):
                    these = [
                        j for j in found if place[j.pair.id] in [(name, h) for h in HALVES if half in (h, "both")]
                    ]
                    if these:
                        cells = [
                            f"{sum(map(read, these)) / len(these):.3f}".lstrip("0") for read in READINGS.values()
                        ]
                        lines.append(
                            f"| {name} | {half} | {row.protocol} {row.fingerprint[:6]} | {len(these)} | "
                            + " | ".join(cells)
                            + " |"
                        )
    return "\n".join(lines)


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
