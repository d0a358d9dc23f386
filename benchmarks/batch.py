"""judge --batch through a stand-in that fails now and then, SIGKILLed at random: what was paid, and what is kept.

    python benchmarks/batch.py [--pairs 10000] [--kills 10] [--share 0.01] [--trouble 0.1] [--service openai]

The stand-in (tests/batch_server.py) has a process of its own and counts every request that it computes. A batch has
at most `--most` requests (2,000), so that there are many submissions to kill. Waits are short.
Exit code 1 where a verdict is missing, or anything was paid twice.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections import Counter
from contextlib import closing
from pathlib import Path
from typing import Any
from urllib.request import urlopen

TESTS = Path(__file__).resolve().parents[1] / "tests"


def write_pairs(file: Path, number: int) -> None:
    rows = ({"instruction": f"Question {n}", "output_1": f"x{n}", "output_2": f"y{n}"} for n in range(number))
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))


def ask(url: str, path: str) -> Any:
    with urlopen(url.removesuffix("/v1") + path, timeout=60) as reply:
        return json.load(reply)


def kill_at_random(command: list[str], env: dict[str, str], url: str, rng: random.Random) -> bool:
    """Start the command and kill it after some more requests to the stand-in; whether it was still at work."""
    process = subprocess.Popen(command, env=env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    seen = ask(url, "/requests")
    wanted = seen + rng.randint(1, 10)
    while process.poll() is None and ask(url, "/requests") < wanted:
        time.sleep(0.02)
    time.sleep(rng.uniform(0, 0.5))
    alive = process.poll() is None
    process.kill()
    process.wait()
    return alive


def kept(db: Path) -> dict[str, int]:
    queries = {
        "answers": "SELECT count(*) FROM answers",
        "verdicts": "SELECT count(*) FROM verdicts WHERE label IS NOT NULL",
        "failures": "SELECT count(*) FROM failures",
        "questions left in a batch": "SELECT count(*) FROM batch_items",
        "batches known": "SELECT count(*) FROM batches WHERE remote != ''",
    }
    with closing(sqlite3.connect(db)) as base:
        return {name: base.execute(query).fetchone()[0] for name, query in queries.items()}


def run(given: argparse.Namespace, folder: Path, url: str) -> bool:
    pairs, db = folder / "pairs.jsonl", folder / "evenhand.db"
    write_pairs(pairs, given.pairs)
    env = {
        **os.environ,
        "OPENAI_API_KEY": "none",
        "ANTHROPIC_API_KEY": "none",
        "EVENHAND_BATCH_MOST": str(given.most),
    }
    judge = ["judge", str(pairs), "--judge", f"{given.service}@{url}#m", "--protocol", "overall", "--batch"]
    command = [sys.executable, str(TESTS / "batch_command.py"), "never", "0", *judge, "--db", str(db), "--json"]
    rng, began = random.Random(given.seed), time.monotonic()
    killed = 0
    while killed < given.kills:
        if not kill_at_random(command, env, url, rng):
            sys.exit(f"done after {killed} kills: give it more pairs")
        killed += 1
    done = subprocess.run(command, env=env, check=True, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    seconds = time.monotonic() - began
    return show(given, json.loads(done.stdout), ask(url, "/counts"), kept(db), seconds)


def show(
    given: argparse.Namespace, said: dict[str, Any], paid: dict[str, Any], found: dict[str, int], seconds: float
) -> bool:
    computed, asked = Counter(paid["computed"]), Counter(paid["asked"])
    twice = sum(number > 1 for number in computed.values()) + len(set(computed) & set(asked))
    questions = 2 * given.pairs
    about = f"{given.pairs:,} pairs, {given.share:.0%} failures, {given.kills} kills"
    about += f", {given.trouble:.0%} of the submissions go wrong"
    print(f"{given.service}: {about}, {seconds:.0f} s")
    print(f"  pairs judged at the end        {said['pairs']:,}")
    print(f"  questions                      {questions:,}")
    print(f"  computed in batches            {computed.total():,}, {twice:,} of them paid twice")
    print(f"  asked alone                    {asked.total():,} for {len(asked):,} questions")
    print(f"  batches at the service         {len(paid['batches']):,}")
    for name, number in found.items():
        print(f"  {name:<31}{number:,}")
    once = not twice and len(computed) + len(asked) == questions
    whole = found["answers"] == found["verdicts"] == questions and not found["failures"]
    return once and whole and found["batches known"] == len(paid["batches"])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pairs", type=int, default=10_000)
    parser.add_argument("--kills", type=int, default=10)
    parser.add_argument("--share", type=float, default=0.01)
    parser.add_argument("--trouble", type=float, default=0.1)
    parser.add_argument("--most", type=int, default=2_000)
    parser.add_argument("--service", choices=("openai", "anthropic"), default="openai")
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    server = [sys.executable, str(TESTS / "batch_server.py"), str(given.seed), str(given.share), str(given.trouble)]
    with tempfile.TemporaryDirectory() as folder:
        stand_in = subprocess.Popen(server, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        assert stand_in.stdout is not None
        try:
            good = run(given, Path(folder), stand_in.stdout.readline().strip())
        finally:
            stand_in.communicate()
    sys.exit(0 if good else 1)


if __name__ == "__main__":
    main()
