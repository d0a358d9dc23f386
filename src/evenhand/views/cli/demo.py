"""evenhand demo: the sample that comes with the package, judged on this machine."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from evenhand.core.errors import EvenhandError
from evenhand.core.pair import Pair
from evenhand.core.protocol import Protocol
from evenhand.core.verdict import headline
from evenhand.engines import catalog
from evenhand.io.pairs import sample_pairs
from evenhand.views import console
from evenhand.views.api import Judge, default_judge
from evenhand.views.cli.app import DONE, WITH_FAILURES, app
from evenhand.views.cli.option_groups import option
from evenhand.views.cli.running import open_judge, run_with_progress, show_run

DEMO_DB = Path("evenhand-demo.db")
DEMO_PAIRS = 14  # about a minute on two cores
NAIVE_PAIRS = 6  # asked once each in the naive way, so that the demo stays short
_SMALL = "A judge this small knows few facts: do not rely on its correctness. docs/quality.md says what it can do."
# What a script without a protocol would ask.
_NAIVE = """---
name: naive
---
<|im_start|>user
## Instruction:
{instruction}

## Response A:
{output_1}

## Response B:
{output_2}

Best on overall: A, B, or tie?<|im_end|>
<|im_start|>assistant
"""
_NEXT = """\
evenhand compare --instruction "Name a prime number." --a "7" --b "8"
evenhand a.jsonl b.jsonl          two files of outputs: which is better?
evenhand judge PAIRS.jsonl        your own pairs, one a line
evenhand serve --db {db}   look at every pair in the browser
evenhand models                   other judges
(a clone has its evenhand in .venv/bin)"""


@app.command()
def demo(
    db: Annotated[Path, option("--db FILE", "Where verdicts are kept.")] = DEMO_DB,
    count: Annotated[
        int, option("--pairs N", "How many pairs of the sample to judge; it has 28.", min=1)
    ] = DEMO_PAIRS,
) -> None:
    """Judge some of the pairs that come with evenhand, and see how often the judge is right."""
    pairs, spec = list(sample_pairs())[:count], default_judge()
    console.out.print(
        f"[bold]evenhand demo[/]: {len(pairs)} pairs with known answers, judged on this machine by [bold]{spec}[/],"
        f" a trained head on {catalog.DEFAULT_MODEL}.\n"
        "1 and 2 are the sides of a pair; ✓ and ✗ tell whether the verdict is the answer that is known.\n",
        markup=True,
    )
    with Judge(open_judge(spec), db=db) as judge:
        found = run_with_progress(judge, pairs, len(pairs), lines=True)
        some = list(judge.judge(pairs[:NAIVE_PAIRS]))  # kept: nothing is read again
    show_run(found)
    right = sum(judgment[headline([*judgment.outcomes])].side == _known(judgment.pair) for judgment in some)
    _show_naive(pairs[:NAIVE_PAIRS], right)
    console.out.print(_SMALL, markup=False)
    console.out.print(_report(db), markup=False)
    console.out.print(console.panel(_NEXT.format(db=db), "what to try next"))
    raise typer.Exit(WITH_FAILURES if found.summary.invalid else DONE)


def _known(pair: Pair) -> str | None:
    return pair.labels.get("overall")


def _show_naive(pairs: Sequence[Pair], right: int) -> None:
    """What the same model says where it is asked once for each pair, as many scripts do."""
    console.aside(f"asking {catalog.DEFAULT_MODEL} the naive way …")
    asked = Protocol.parse(_NAIVE, name="naive", file="naive")
    with Judge(open_judge(catalog.DEFAULT_MODEL), asked, orders="forward") as naive:
        sides = [judgment["overall"].side for judgment in naive.judge(pairs)]
    good = sum(side == _known(pair) for side, pair in zip(sides, pairs, strict=True))
    console.out.print(
        f"\nThe naive way, the same model asked once for each of the first {len(pairs)} pairs which is better:"
        f" right in {good} of {len(pairs)}, and it took the one that stood first in {sides.count('1')}."
        f" The trained head is right in {right} of these {len(pairs)}.",
        highlight=False,
    )


def _report(db: Path) -> str:
    """Write the report beside the database, and say where; or what it takes."""
    from evenhand.store import Store
    from evenhand.views.cli.report import write_report
    from evenhand.views.report import ReportOptions, compile_report

    target = db.with_suffix(".html")
    try:
        with Store(db, read_only=True) as store:
            rows = [row for row in store.judges() if row.pairs]
            write_report(compile_report(store, rows, ReportOptions(title="evenhand demo")), store, "html", target)
    except EvenhandError as fault:  # without the extra for pages there is no HTML
        return f"no report: {fault.message} ({fault.hint})"
    return f"the report, with every pair: {target.absolute()}"
