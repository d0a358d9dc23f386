"""evenhand demo: the sample that comes with the package, judged on this machine."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from evenhand.engines import catalog
from evenhand.io.pairs import sample_pairs
from evenhand.views import console
from evenhand.views.api import Judge
from evenhand.views.cli.app import DONE, WITH_FAILURES, app
from evenhand.views.cli.running import open_judge, run_with_progress, show_run

DEMO_DB = Path("evenhand-demo.db")
_SMALL = """
This is a small judge: it leans to whatever stands first (position bias), so its orders disagree, and it cannot tell
ties from other pairs. What is left after both orders are judged is the column "right side"; see docs/quality.md."""
_NEXT = """\
evenhand compare --instruction "Name a prime number." --a "7" --b "8"
evenhand judge PAIRS.jsonl        your own pairs, one a line
evenhand protocols show chained   what the judge was asked, word for word
evenhand models                   other judges
(a clone has its evenhand in .venv/bin)"""


@app.command()
def demo(
    db: Annotated[Path, typer.Option("--db", metavar="FILE", help="Where verdicts are kept.")] = DEMO_DB,
) -> None:
    """Judge the pairs that come with evenhand, and see how often the judge is right."""
    pairs = list(sample_pairs())
    console.out.print(
        f"[bold]evenhand demo[/]: {len(pairs)} pairs with known answers, judged on this machine by"
        f" {catalog.DEFAULT_MODEL} under the protocol [bold]chained[/], each in both orders.\n"
        "1 and 2 are the sides of a pair; ✓ and ✗ tell whether the known answer is the same.\n",
        soft_wrap=True,
    )
    with Judge(open_judge(catalog.DEFAULT_MODEL), "chained", db=db) as judge:
        found = run_with_progress(judge, pairs, len(pairs), lines=True)
    show_run(found)
    console.out.print(_SMALL, soft_wrap=True)
    console.out.print(console.panel(_NEXT, "what to try next"))
    raise typer.Exit(WITH_FAILURES if found.summary.invalid else DONE)
