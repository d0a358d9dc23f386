"""evenhand jury: pool judges whose verdicts a database holds, without asking anybody."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from evenhand.core.errors import InputError
from evenhand.core.jury import PoolRule, log_length
from evenhand.engines.made import is_made
from evenhand.results.judges import one_judge
from evenhand.results.jury import JuryCounter, JuryResult
from evenhand.results.plain import to_json
from evenhand.results.run import judge_summary
from evenhand.running.jury import JuryMembers, JuryPool, member_of, scales_of
from evenhand.store import JudgeRow, Store
from evenhand.views.cli.app import DONE, WITH_FAILURES, app
from evenhand.views.cli.deciding import dimension_from
from evenhand.views.cli.groups import ALL_MUST_SPEAK, JuryOptions
from evenhand.views.cli.jury_tables import show_jury
from evenhand.views.cli.opening import open_store
from evenhand.views.cli.option_groups import argument, flat_options, option
from evenhand.views.cli.options import DEFAULT_DB, DbOption, JsonOption, OnOption
from evenhand.views.cli.running import show_run
from evenhand.views.jury import split_judges


@app.command("jury")
@flat_options
def pool_jury(
    judges: Annotated[
        str,
        argument(
            "JUDGES",
            "Judges of the database with commas between, by model, model/protocol or the beginning of a"
            " fingerprint. Default: all that were asked or imported.",
        ),
    ] = "",
    pooling: JuryOptions = ALL_MUST_SPEAK,
    on: OnOption = "",
    learned: Annotated[
        bool, option("--learned", "Learn the weights of the judges from people's labels.", "Judge")
    ] = False,
    as_said: Annotated[bool, option("--as-said", "Ignore the stored calibrations.", "Judge")] = False,
    name: Annotated[str, option("--name NAME", "What to call the jury.")] = "",
    db: DbOption = DEFAULT_DB,
    as_json: JsonOption = False,
) -> None:
    """Pool judges that a database holds into a jury, without asking anybody.

    The jury is kept as a judge of its own: results, rank, card, gate, report and serve show it like any other.
    """
    with open_store(db) as store:
        rows = choose(store.judges(), judges, db)
        members = JuryMembers(tuple(member_of(row) for row in rows))
        rule = pooling.rule(len(rows))
        if on:
            dimension_from(on, members.dimensions)
        rule = scaled(store, members, rule, on, learned=learned, calibrated=not as_said)
        found, jury = pooled(store, members, rule, name, on)
        summary = judge_summary(store, jury)
    if as_json:
        print(to_json({**summary.plain(), "jury": found, "db": str(db)}))
    else:
        show_run(summary)
        show_jury(found)
    raise typer.Exit(WITH_FAILURES if found.incomplete else DONE)


def choose(every: list[JudgeRow], text: str, db: Path) -> list[JudgeRow]:
    """The judges that are meant, each once."""
    asked = [row for row in every if not is_made(row.identity)]
    if not text:
        return _enough(asked, db)
    found: list[JudgeRow] = []
    for word in split_judges(text):
        named = one_judge(every, word, db)
        if named not in found:
            found.append(named)
    return _enough(found, db)


def _enough(rows: list[JudgeRow], db: Path) -> list[JudgeRow]:
    if len(rows) < 2:
        raise InputError(
            f"a jury takes two judges or more, and {len(rows)} {'is' if len(rows) == 1 else 'are'} meant here",
            hint=f"evenhand judges --db {db} lists those of the database",
        )
    return rows


def scaled(
    store: Store, members: JuryMembers, rule: PoolRule, on: str, *, learned: bool, calibrated: bool
) -> PoolRule:
    """The rule with what brings the jurors onto one scale: weights learned from labels, or calibrations."""
    if learned:
        if rule.pool != "mean" or rule.weights:
            raise InputError("--learned finds the weights of a mean", hint="leave --pool and --weights out")
        from evenhand.results.jury_weights import learned_scales

        return replace(
            rule, scales=learned_scales(store, [row for row in members.rows(store) if row], members.dimensions, on)
        )
    return replace(rule, scales=scales_of(store, members)) if calibrated and rule.pool == "mean" else rule


def pooled(store: Store, members: JuryMembers, rule: PoolRule, name: str, on: str) -> tuple[JuryResult, JudgeRow]:
    """Pool every pair that any of the jurors was given; what came of it, and the jury as the database knows it."""
    counter = JuryCounter(members.names, rule, members.dimensions, on)
    pool = JuryPool(
        store, members, rule, name, watch=lambda pair, outcomes, _: counter.add(pair, outcomes, log_length(pair))
    )
    rows = [row.id for row in members.rows(store) if row]
    pool.pool_all(pair for some in store.made.pairs(rows) for pair in some)
    jury = next(row for row in store.judges() if row.fingerprint == pool.setup.fingerprint)
    return counter.result(jury.model), jury
