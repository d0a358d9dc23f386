"""Prompt tokens a second: evenhand's embedded engine beside llama.cpp's own prefill, in one run.

    python benchmarks/prompt_speed.py [--judge MODEL] [--pairs N]

Each pair of the sample is judged; then a bare loop over the same library computes, for every question, as many new
tokens behind as long a prefix as evenhand did for that ask, with nothing around it: no template, no
tokenising of texts, no grammar, no probabilities, no store, no HTTP. The two take turns, pair by pair, so that
the machine's moods fall on both. The ratio is what evenhand's own work leaves of llama.cpp's speed.
"""

from __future__ import annotations

import argparse
import random
import tempfile
import time
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any

from evenhand import Answer, Engine, Judge
from evenhand.core.protocol import Prompt
from evenhand.engines.catalog import DEFAULT_MODEL, locate
from evenhand.engines.llama import LlamaEngine
from evenhand.io.pairs import sample_pairs


class Counting(Engine):
    """Another engine, with a list of what each question took."""

    def __init__(self, inner: LlamaEngine) -> None:
        self.inner = inner
        self.questions: list[Answer] = []

    @property
    def identity(self) -> Any:
        """The inner engine's."""
        return self.inner.identity

    async def answer(self, prompt: Prompt) -> Answer:
        """Ask and count."""
        self.questions.append(await self.inner.answer(prompt))
        return self.questions[-1]

    async def close(self) -> None:
        """Close the inner engine."""
        await self.inner.close()


class Bare:
    """llama.cpp's server called in process, with token ids made up on the spot."""

    def __init__(self, engine: LlamaEngine) -> None:
        self.server = engine._load("bare")  # the very same settings
        self.prefix = [random.Random(0).randrange(1000, 30000) for _ in range(engine.context)]
        self.random = random.Random(1)

    def prefill(self, questions: list[Answer]) -> tuple[int, float]:
        """Compute as many tokens as these asks did; how many that was, and the seconds."""
        done, began = 0, time.perf_counter()
        for answer in questions:
            fresh = [self.random.randrange(1000, 30000) for _ in range(answer.usage.computed)]
            body = {"prompt": self.prefix[: answer.usage.reused] + fresh, "n_predict": 1, "cache_prompt": True}
            done += self.server.handle_completions(body)["timings"]["prompt_n"]
        return done, time.perf_counter() - began


def measure(model: str, protocol: str, count: int) -> Iterator[tuple[int, float, int, float]]:
    """For each pair: evenhand's tokens and seconds, the bare loop's tokens and seconds."""
    inner = LlamaEngine(locate(model))
    engine, bare = Counting(inner), Bare(inner)
    with tempfile.TemporaryDirectory() as folder, Judge(engine, protocol, db=Path(folder) / "bench.db") as judge:
        for number, pair in enumerate(islice(sample_pairs(), count + 1)):
            engine.questions = []
            began = time.perf_counter()
            judge.compare(pair)
            seconds = time.perf_counter() - began
            row = (sum(a.usage.computed for a in engine.questions), seconds, *bare.prefill(engine.questions))
            if number:  # the first one loads the model and computes the prefix
                yield row


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--judge", default=DEFAULT_MODEL)
    parser.add_argument("--pairs", type=int, default=8)
    args = parser.parse_args()
    print("| protocol | pairs | new tokens a pair | evenhand, tokens/s | bare llama.cpp, tokens/s | ratio |")
    print("|---|--:|--:|--:|--:|--:|")
    for protocol in ("overall", "chained", "weighed"):
        rows = list(measure(args.judge, protocol, args.pairs))
        ours, our_seconds, theirs, their_seconds = (sum(column) for column in zip(*rows, strict=True))
        mine, bare = ours / our_seconds, theirs / their_seconds
        print(
            f"| {protocol} | {len(rows)} | {ours / len(rows):.0f} | {mine:.1f} | {bare:.1f} | {mine / bare:.2f} |"
        )


if __name__ == "__main__":
    main()
