"""Beside others: how many judgments a second, from the same server, on the same pairs, in one run.

    python benchmarks/beside_others.py [--pairs N] [--rounds N] [--venvs FOLDER]

A local nginx gives the same answer to every request, in a form that each of the three can read. The others are
installed from PyPI, at the versions named below, each in a virtual environment of its own: in a temporary folder,
or in the one that --venvs names, where they stay. They are used as they come, with their own prompts, and may ask
as many at once as evenhand does. What each writes down is part of its time; starting Python and importing is part
of nobody's. Needs nginx.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
import venv
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from endpoint_speed import CONNECTIONS, evenhand, fixed_server, write_pairs

# JudgeArena looks for two scores, evenhand for a label on the last line with the likeliest other labels, AlpacaEval
# for m and M among the likeliest tokens at the only place there is.
TEXT = "score_A: 8\nscore_B: 3\nA"
TOP = [TEXT, "B", "tie", "m", "M", *(f"word{number}" for number in range(15))]
PLACE = {
    "token": TEXT,
    "logprob": -0.2,
    "bytes": None,
    "top_logprobs": [
        {"token": token, "logprob": -0.2 - 2.0 * place, "bytes": None} for place, token in enumerate(TOP)
    ],
}
REPLY = {
    "id": "x",
    "object": "chat.completion",
    "created": 0,
    "model": "fixed",
    "choices": [
        {
            "index": 0,
            "finish_reason": "stop",
            "message": {"role": "assistant", "content": TEXT},
            "logprobs": {"content": [PLACE]},
        }
    ],
    "usage": {"prompt_tokens": 900, "completion_tokens": 12, "total_tokens": 912},
}

ALPACA_EVAL = """
import json, logging, sys, time
from alpaca_eval.annotators import PairwiseAnnotator
logging.disable(logging.INFO)
rows = [json.loads(line) for line in open(sys.argv[1])]
began, busy = time.perf_counter(), time.process_time()
annotator = PairwiseAnnotator(annotators_config="weighted_alpaca_eval_gpt4_turbo", caching_path="cache.json")
found = annotator.annotate_pairs(rows)
seconds, busy = time.perf_counter() - began, time.process_time() - busy
print(json.dumps([sum(1 < row["preference"] < 2 for row in found), seconds, busy]))
"""
JUDGE_ARENA = """
import json, os, sys, time
from contextlib import redirect_stdout
import pandas
from judgearena.evaluate import PairScore, annotate_battles
from langchain_openai import ChatOpenAI
rows = [json.loads(line) for line in open(sys.argv[1])]
texts = [[row[name] for row in rows] for name in ("instruction", "output_1", "output_2")]
began, busy = time.perf_counter(), time.process_time()
with redirect_stdout(sys.stderr):
    model = ChatOpenAI(model="fixed", base_url=os.environ["URL"], api_key="none", temperature=0)
    battles = annotate_battles(model, *texts, use_tqdm=True)
scores = [PairScore().parse_model_raw(battle.judge_completion) for battle in battles]
pandas.DataFrame(battles).to_csv("annotations.csv", index=False)
seconds, busy = time.perf_counter() - began, time.process_time() - busy
print(json.dumps([sum(score is not None for score in scores), seconds, busy]))
"""


@dataclass(frozen=True)
class Other:
    """Another judge: its package on PyPI, and the script that has it judge a file of pairs."""

    name: str
    package: str
    script: str
    python: tuple[int, int] = (3, 10)  # the oldest that it takes


OTHERS = (
    Other("AlpacaEval 0.6.6", "alpaca_eval==0.6.6", ALPACA_EVAL),
    Other("JudgeArena 0.1.0", "judgearena==0.1.0", JUDGE_ARENA, (3, 12)),
)


def pythons(oldest: tuple[int, int]) -> Iterator[str]:
    """This Python, or a newer one by its usual name."""
    if sys.version_info >= oldest:
        yield sys.executable
    for minor in range(oldest[1], 15):
        if found := shutil.which(f"python3.{minor}"):
            yield found


def install(other: Other, folder: Path) -> Path | str:
    """The Python of an environment that has it; or why there is none."""
    home = folder / other.package.partition("=")[0]
    python = home / "bin" / "python"
    if not python.exists():
        base = next(pythons(other.python), None)
        if base is None:
            return f"needs Python {other.python[0]}.{other.python[1]}"
        if base == sys.executable:
            venv.create(home, with_pip=True)
        else:
            subprocess.run([base, "-m", "venv", str(home)], check=True)
    done = subprocess.run(
        [python, "-m", "pip", "install", "-q", other.package], capture_output=True, text=True, check=False
    )
    faults = [line for line in done.stderr.splitlines() if line.startswith("ERROR")]
    return python if done.returncode == 0 else f"does not install: {(faults or ['pip failed'])[-1][:80]}"


@dataclass(frozen=True)
class Pass:
    """One pass over the pairs: what was judged, by the clock, and by the processor."""

    judged: int
    seconds: float
    busy: float

    @property
    def rate(self) -> float:
        """Judgments a second."""
        return self.judged / self.seconds

    @property
    def cost(self) -> float:
        """Milliseconds of processor time for a judgment, which other processes do not lengthen."""
        return 1000 * self.busy / self.judged


def run_other(other: Other, python: Path, url: str, pairs: Path) -> Pass:
    """Have it judge the pairs; every judgment has to come out readable."""
    with tempfile.TemporaryDirectory() as folder:
        clients = Path(folder) / "clients.yaml"
        clients.write_text(f'default:\n  - api_key: "none"\n    base_url: "{url}"\n')
        given = {"OPENAI_CLIENT_CONFIG_PATH": str(clients), "OPENAI_MAX_CONCURRENCY": str(CONNECTIONS), "URL": url}
        # Nothing is fetched while the clock runs, nor kept in the user's home.
        given |= {"HF_HUB_OFFLINE": "1", "HOME": folder}
        command = [python, "-c", other.script, pairs]
        done = subprocess.run(
            command, cwd=folder, env=os.environ | given, capture_output=True, text=True, check=False
        )
    if done.returncode:
        sys.exit(f"{other.name} failed:\n{done.stderr[-3000:]}")
    found = Pass(*json.loads(done.stdout.splitlines()[-1]))
    expected = sum(1 for _ in pairs.open())
    if found.judged != expected:
        sys.exit(f"{other.name} read {found.judged} judgments of {expected}")
    return found


def run_ours(url: str, pairs: Path, count: int) -> Pass:
    """Both orders of every pair: a verdict is one request, as a judgment of the others is."""
    busy = time.process_time()
    with tempfile.TemporaryDirectory() as folder:
        rate, asked = asyncio.run(evenhand(url, pairs, Path(folder) / "evenhand.db", count))
    if asked != 2 * count:
        sys.exit(f"evenhand asked {asked} times")
    return Pass(asked, asked / rate, time.process_time() - busy)


def compare(venvs: Path, count: int, rounds: int) -> None:
    ready = {other: install(other, venvs) for other in OTHERS}
    passes: dict[str, list[Pass]] = {"evenhand": []}
    with tempfile.TemporaryDirectory() as folder, fixed_server(REPLY) as url:
        pairs = Path(folder) / "pairs.jsonl"
        write_pairs(pairs, count)
        for _ in range(rounds):  # in turn, so that whatever else the machine does is shared
            passes["evenhand"].append(run_ours(url, pairs, count))
            for other, python in ready.items():
                if isinstance(python, Path):
                    passes.setdefault(other.name, []).append(run_other(other, python, url, pairs))
    show(passes)
    for other, why in ready.items():
        if isinstance(why, str):
            print(f"| {other.name} | {why} | | | | |")


def show(passes: dict[str, list[Pass]]) -> None:
    rate, cost = (median(getattr(one, name) for one in passes["evenhand"]) for name in ("rate", "cost"))
    print("| judge | judgments/s, each round | median | evenhand: x | processor time a judgment | evenhand: 1/x |")
    print("|---|---|--:|--:|--:|--:|")
    for name, each in passes.items():
        shown = ", ".join(f"{one.rate:,.0f}" for one in each)
        theirs, took = median(one.rate for one in each), median(one.cost for one in each)
        ratios = f"{rate / theirs:,.0f} | {took:,.2f} ms | {took / cost:,.0f}"
        print(f"| {name} | {shown} | {theirs:,.0f} | {ratios} |", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--pairs", type=int, default=2000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--venvs", type=Path, help="where the others are installed, and stay")
    args = parser.parse_args()
    if args.venvs:
        args.venvs.mkdir(parents=True, exist_ok=True)
        compare(args.venvs.absolute(), args.pairs, args.rounds)
        return
    with tempfile.TemporaryDirectory() as folder:
        compare(Path(folder), args.pairs, args.rounds)


if __name__ == "__main__":
    main()
