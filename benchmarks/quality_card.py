"""What `evenhand card` and `evenhand calibrate` say of the default judge, on three sets that people have labelled.

    python benchmarks/quality_card.py --data FOLDER --work cards           # judge what is not judged yet, and print
    python benchmarks/quality_card.py --data FOLDER --work cards --table   # print what has been judged

FOLDER holds pandalm.jsonl, llmbar.jsonl and crowdrag25-dev.jsonl. Of PandaLM 200 pairs are taken, ties too: the
seeded sample of quality.py and 50 more. Each set gets a pairs file and a database in the work folder; a run that is
stopped goes on. Every figure comes from the commands that a user would type, and they are printed.
"""

from __future__ import annotations

import argparse
import json
import math
import random
import re
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from evenhand.engines.catalog import DEFAULT_MODEL
from evenhand.views.api import default_protocol
from quality import SEED, read, split

SETS = {"pandalm": "PandaLM", "llmbar": "LLMBar natural", "crowdrag": "CrowdRAG dev"}
QUESTIONS = ("combined", "overall", "correctness")
Cards = dict[str, dict[str, dict[str, Any]]]  # by set and question
RENAME = ("--rename", "correctness_topical=correctness")  # what CrowdRAG's people were asked comes nearest to this


def write_pairs(data: Path, work: Path) -> None:
    sample, others = split(read(data, "pandalm"))
    crowd = read(data, "crowdrag25-dev")
    random.Random(SEED + 3).shuffle(crowd)  # so that a part of a run is a sample
    natural = [row for row in read(data, "llmbar") if row["subset"] == "Natural"]
    for name, rows in (("pandalm", sample + others[:50]), ("llmbar", natural), ("crowdrag", crowd)):
        text = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
        (work / f"{name}.jsonl").write_text(text, "utf-8")


def evenhand(work: Path, *words: str) -> str:
    """One command of evenhand in the work folder; what it prints, while progress goes to the screen."""
    print("evenhand", *words, file=sys.stderr)
    command = [sys.executable, "-m", "evenhand", *words]
    return subprocess.run(command, cwd=work, check=True, stdout=subprocess.PIPE, text=True).stdout


def cards(work: Path, protocol: str, name: str, *flags: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """Each question that people answered on this set, with its card."""
    answer = json.loads(evenhand(work, "card", protocol, "--db", f"{name}.db", *RENAME, *flags, "--json"))
    dimensions = answer["judges"][0]["dimensions"]
    yield from ((question, dimensions[question]) for question in QUESTIONS if question in dimensions)


def calibrations(work: Path, protocol: str, name: str) -> Iterator[tuple[str, dict[str, Any] | str]]:
    """Each question with what was fitted to people's answers, or why nothing was."""
    answer = json.loads(evenhand(work, "calibrate", protocol, "--db", f"{name}.db", *RENAME, "--json"))
    found: dict[str, Any] = {fitted["dimension"]: fitted for fitted in answer["calibrations"]}
    found |= {refused["dimension"]: refused["reason"] for refused in answer["refused"]}
    yield from ((question, found[question]) for question in QUESTIONS if question in found)


def share(value: float | None) -> str:
    return "" if value is None else re.sub(r"^(-?)0", r"\1", f"{value:.3f}")


def spread(estimate: dict[str, Any]) -> str:
    return f"{share(estimate['value'])} ({share(estimate['low'])} to {share(estimate['high'])})"


def card_table(plain: Cards) -> Iterator[str]:
    heads = ("set", "question", "decided pairs", "forward, hard", "both orders, hard", "both orders, pooled")
    yield "| " + " | ".join((*heads, "longer output", "one person", "judge, by the same", "kappa", "trust")) + " |"
    yield "|---|---|--:|--:|--:|--:|--:|--:|--:|--:|---|"
    for name, found in plain.items():
        title = SETS[name]
        for question, card in found.items():
            readings, ceiling = card["readings"], card["ceiling"] or {}
            cells = [
                title,
                question,
                str(card["decided"]),
                share(readings["forward_hard"]["decided"]["value"]),
                share(readings["both_hard"]["decided"]["value"]),
                spread(readings["pooled"]["decided"]),
                share(card["longer"]["value"]),
                *(share(ceiling[who]["value"]) if who in ceiling else "" for who in ("person", "judge")),
                share(readings["pooled"]["kappa"]["value"]),
                card["trust"],
            ]
            yield "| " + " | ".join(cells) + " |"


def calibration_table(work: Path, protocol: str, sets: Sequence[str]) -> Iterator[str]:
    heads = ("set", "question", "labels", "ties", "slope", "length", "log-loss", "held out", "by shares alone")
    yield "| " + " | ".join((*heads, "same verdict", "held out", "most frequent", "right side", "held out")) + " |"
    yield "|---|---|" + "--:|" * 12
    for name in sets:
        title = SETS[name]
        for question, fit in calibrations(work, protocol, name):
            if isinstance(fit, str):
                yield f"| {title} | {question} | refused: {fit} |" + " |" * 11
                continue
            before, after, labels = fit["before"], fit["after"], fit["labels"]
            cells = [
                title,
                question,
                str(fit["n"]),
                str(labels[2]),
                f"{fit['slope']:.1f}",
                f"{fit['length']:+.2f}" if fit["length"] else "",
                share(before["log_loss"]),
                share(after["log_loss"]),
                share(loss_of_shares(labels)),
                share(before["three_way"]),
                share(after["three_way"]),
                share(max(labels) / sum(labels)),
                share(before["decided"]),
                share(after["decided"]),
            ]
            yield "| " + " | ".join(cells) + " |"


def calibrated_table(plain: Cards, work: Path, protocol: str) -> Iterator[str]:
    """The card as it is, and with what was fitted to the same labels."""
    heads = ("right side", "same verdict", "kappa", "Brier, three-way", "calibration error")
    yield "| set | question | " + " | ".join(f"{head} | calibrated" for head in heads) + " | by chance |"
    yield "|---|---|" + "--:|" * (2 * len(heads) + 1)
    for name, found in plain.items():
        title, fitted = SETS[name], dict(cards(work, protocol, name, "--calibrated"))
        for question, card in found.items():
            pairs = zip(_meaning(card), _meaning(fitted[question]), strict=True)
            cells = [share(value) for pair in pairs for value in pair]
            chance = fitted[question]["meaning"]["reliability"]["ece_of_chance"]
            yield "| " + " | ".join([title, question, *cells, share(chance)]) + " |"


def _meaning(card: dict[str, Any]) -> list[float | None]:
    pooled, meaning = card["readings"]["pooled"], card["meaning"]
    figures = (pooled["decided"], pooled["three_way"], pooled["kappa"], meaning["brier"])
    return [*(figure["value"] for figure in figures), meaning["reliability"]["ece"]]


def loss_of_shares(labels: list[int]) -> float:
    """The log-loss of one who knows how many labels are ties, and nothing of a pair."""
    tie = labels[2] / sum(labels)
    return -sum(p * math.log(p / sides) for p, sides in ((tie, 1), (1 - tie, 2)) if p)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--data", type=Path, required=True, help="the folder with the three files")
    parser.add_argument("--work", type=Path, default=Path("cards"), help="where pairs and verdicts are kept")
    parser.add_argument("--judge", default=DEFAULT_MODEL)
    parser.add_argument("--protocol", default=default_protocol(DEFAULT_MODEL))
    parser.add_argument("--sets", nargs="+", choices=tuple(SETS), default=tuple(SETS))
    parser.add_argument("--table", action="store_true", help="only print what has been judged")
    args = parser.parse_args()
    args.work.mkdir(parents=True, exist_ok=True)
    if not args.table:
        write_pairs(args.data, args.work)
        for name in args.sets:
            judge = ("--judge", args.judge, "--protocol", args.protocol)
            evenhand(args.work, "judge", f"{name}.jsonl", "--db", f"{name}.db", *judge)
    plain = {name: dict(cards(args.work, args.protocol, name)) for name in args.sets}
    print(*card_table(plain), "", sep="\n")
    print(*calibration_table(args.work, args.protocol, args.sets), "", sep="\n")
    print(*calibrated_table(plain, args.work, args.protocol), sep="\n")


if __name__ == "__main__":
    main()
