"""evenhand attack: how a judge stands against responses that try to win by other means."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Annotated

import typer

from evenhand.core.attacks import CONTROL, Attack, AttackCase, attack_all, is_attacked, losing_side
from evenhand.core.engine import NOTHING, Usage
from evenhand.core.errors import InputError
from evenhand.core.fence import FENCES
from evenhand.core.pair import Pair
from evenhand.core.protocol import fenced_name
from evenhand.core.votes import label_by_votes
from evenhand.engines.presets import find_address
from evenhand.io.attacks import built_in_attacks, choose_attacks, one_of_each_kind, read_attacks, unique
from evenhand.io.pairs import JoinOptions, sample_pairs
from evenhand.results.attack import AttackRun, AttackSummary, AttackTally, attacks_text
from evenhand.results.plain import to_json
from evenhand.results.stored_attacks import stored_attacks
from evenhand.results.wording import about
from evenhand.running.runner import Plan, plan
from evenhand.store import Store
from evenhand.views import console
from evenhand.views.api import Judge
from evenhand.views.charts import check_plot_path
from evenhand.views.cli.app import DONE, WITH_FAILURES, app
from evenhand.views.cli.attack_tables import draw_attacks, print_attacks, print_list
from evenhand.views.cli.deciding import dimension_from
from evenhand.views.cli.groups import (
    AnySettings,
    EngineOptions,
    EscalationSettings,
    JudgeOptions,
    JudgeSettings,
    LimitOptions,
    settings_of,
)
from evenhand.views.cli.inputs import ColumnsOption, PairsArgument, SkipBadOption, columns_from, find_input
from evenhand.views.cli.judging import show_nothing_kept, show_plan
from evenhand.views.cli.opening import bring_up_to_date
from evenhand.views.cli.option_groups import ADVANCED, INPUT, LIMITS, OUTPUT, flat_options, option
from evenhand.views.cli.options import DryRunOption, JsonOption, OnOption
from evenhand.views.cli.running import run_with_progress
from evenhand.views.jury import AnyJudge

# A database of its own: the sample's pairs should not be in the results of others.
ATTACK_DB = Path("evenhand-attack.db")
FEW_PAIRS = 12  # where nobody says how many
_WORTH_TIMING = 20  # pairs to ask about


@dataclass(frozen=True)
class AttackOptions:
    """Which attacks, on which pairs."""

    pairs: PairsArgument = None
    names: Annotated[
        list[str] | None,
        option(
            "--attack NAME|KIND", "Only this attack, or this kind of attack. May be given several times.", INPUT
        ),
    ] = None
    families: Annotated[
        list[str] | None,
        option("--family KIND", "Only attacks of this kind, all of them. May be given several times.", INPUT),
    ] = None
    every: Annotated[
        bool,
        option(
            "--all",
            "All attacks on all pairs, which are many. Default: one attack of each kind on 12 pairs.",
            LIMITS,
        ),
    ] = False
    limit: Annotated[
        int | None, option("--pairs --limit", "Attack only the first N pairs. Default: 12.", LIMITS, min=1)
    ] = None
    file: Annotated[Path | None, option("--attacks FILE", "More attacks, of your own, in a TOML file.", INPUT)] = (
        None
    )
    skip_bad: SkipBadOption = False
    columns: ColumnsOption = None

    def listed(self) -> tuple[Attack, ...]:
        """The attacks that are meant by name, or all there are."""
        own = read_attacks(self.file) if self.file else ()
        return choose_attacks(unique([*built_in_attacks(), *own]), self.names or [], self.families or [])

    def attacks(self, seed: int) -> tuple[Attack, ...]:
        """Those to run: where none is named, one of each kind, and all of your own."""
        listed = self.listed()
        if self.every or self.names or self.families:
            return listed
        own = {attack.name for attack in listed} - {attack.name for attack in built_in_attacks()}
        few = one_of_each_kind([attack for attack in listed if attack.name not in own], seed)
        return tuple(attack for attack in listed if attack in few or attack.name in own)

    @property
    def most_pairs(self) -> int | None:
        """How many pairs are attacked; None for all."""
        return self.limit if self.limit or self.every else FEW_PAIRS

    def read(self) -> list[Pair]:
        """The pairs of the files, or the sample, with what most people say of them as their labels."""
        if not self.pairs:
            return list(sample_pairs())
        reading = JoinOptions(skip_bad=self.skip_bad, columns=columns_from(self.columns))
        given = find_input(self.pairs, None, None, reading)
        given.print()
        found = [label_by_votes(pair) for pair in given.read()]
        if unreadable := sum(not readable for _, readable in found):
            console.note(f"{console.count(unreadable, 'pair')} with votes that cannot be read, left out")
        return [pair for pair, _ in found]


@dataclass(frozen=True)
class AttackOutput:
    """Where verdicts go, and what is shown of them."""

    db: Annotated[
        Path,
        option(
            "--db FILE",
            "Where verdicts are kept. In a database of yours, attacked pairs are in no other figure.",
            OUTPUT,
            callback=bring_up_to_date,
        ),
    ] = ATTACK_DB
    as_json: JsonOption = False
    plot: Annotated[Path | None, option("--plot FILE", "Draw the shifts into an SVG or PNG file.", OUTPUT)] = None


@app.command()
@flat_options
def attack(
    what: AttackOptions,
    judge: JudgeOptions,
    limits: LimitOptions,
    engine: EngineOptions,
    output: AttackOutput,
    on: OnOption = "",
    dry_run: DryRunOption = False,
    list_only: Annotated[bool, option("--list", "Show the attacks, and ask nothing.", OUTPUT)] = False,
    seed: Annotated[
        int,
        option(
            "--seed",
            "Decides which attack of a kind is taken, and which letters and places it changes.",
            ADVANCED,
        ),
    ] = 0,
) -> None:
    """Attack a judge: change the losing response of pairs with a clear winner, and see whether the verdict moves.

    Without PAIRS it takes the sample that comes with evenhand; pairs of your own need labels.
    """
    if list_only:
        print_list(what.listed(), output.as_json)
        return
    if output.plot:  # fail before a long run, not after it
        check_plot_path(output.plot)
    attacks = what.attacks(seed)
    settings = settings_of(judge, engine, limits, seed)
    if isinstance(settings, EscalationSettings):
        raise InputError("levels are not attacked as a whole", hint="attack each judge of them: --judge NAME")
    if settings.orders == "random":
        said = "a random order may show an attacked pair the other way round than its original"
        raise InputError(said, hint="--orders both, forward or swapped")
    tally = AttackTally(dimension_from(on, settings.protocol.dimensions), attacks)
    pairs = what.read()
    clear = [pair for pair in pairs if losing_side(pair) and not is_attacked(pair)]
    once = list({pair.key: pair for pair in reversed(clear)}.values())[::-1]
    if not once:
        raise InputError("no pair has a clear winner", hint="give pairs with labels: docs/labels.md")
    cases = list(attack_all(islice(once, what.most_pairs), attacks, seed))
    untried = _untried(what, cases, attacks, len(once))
    _announce(cases, attacks, untried)
    if dry_run:
        show_plan(settings, (case.pair for case in cases), output.db, output.as_json)
        return
    found = _run(settings, tally, cases, output.db)
    found = replace(found, left_out=len(pairs) - len(clear), repeats=len(clear) - len(once))
    _show(found, output, _beside(settings, found, cases, output.db), untried)
    bad = found.stopped or any(each.invalid for each in found.attacks)
    raise typer.Exit(WITH_FAILURES if bad else DONE)


def _announce(cases: Sequence[AttackCase], attacks: Sequence[Attack], untried: str) -> None:
    """How much there is to judge."""
    pairs = console.count(sum(case.attack is None for case in cases), "pair")
    tried = f"{pairs} with a clear winner, {attacks_text(attack.kind for attack in attacks)}"
    console.aside(f"{tried}: {console.count(len(cases), 'pair')} to judge{f' ({untried})' if untried else ''}")


def _untried(what: AttackOptions, cases: Sequence[AttackCase], attacks: Sequence[Attack], clear: int) -> str:
    """How much is tried of how much, where that is less and nobody has said so."""
    pairs, listed = sum(case.attack is None for case in cases), what.listed()
    if len(attacks) == len(listed) and (pairs == clear or what.limit is not None):
        return ""
    some, every = (sum(attack.kind != CONTROL for attack in those) for those in (attacks, listed))
    on = f"{pairs:,} of {console.count(clear, 'pair')}"
    return f"{some:,} of {console.count(every, 'attack')}, on {on}; --all takes all of them"


def _run(settings: AnySettings, tally: AttackTally, cases: list[AttackCase], db: Path) -> AttackRun:
    with settings.judge(db) as judge:
        probe = _estimate_all(settings, judge, [case.pair for case in cases])
        run = run_with_progress(judge, tally.watch(cases), len(cases), enough=tally)
        found = tally.summary(run, seed=settings.seed)
        tokens = found.tokens + probe.usage
        cost = judge.cost_of(tokens)
    asked, seconds = found.asked + probe.asked, found.seconds + probe.seconds
    found = replace(found, tokens=tokens, asked=asked, seconds=seconds, cost=cost)
    if isinstance(settings, JudgeSettings):
        return found
    # A jury pools what its judges were asked for, and does not know what that took.
    return replace(found, attacks=[replace(each, tokens=None) for each in found.attacks])


# -- what it will take --------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Probe:
    """What it took to find out how long a run takes; its verdicts are kept like any others."""

    usage: Usage = NOTHING
    asked: int = 0
    seconds: float = 0.0

    def __add__(self, other: _Probe) -> _Probe:
        return _Probe(self.usage + other.usage, self.asked + other.asked, self.seconds + other.seconds)


def _estimate_all(settings: AnySettings, judge: AnyJudge, pairs: Sequence[Pair]) -> _Probe:
    """Say what a run will take; of a jury, judge by judge."""
    if isinstance(settings, JudgeSettings):
        assert isinstance(judge, Judge)
        return _estimate(settings, judge, pairs)
    assert not isinstance(judge, Judge)
    probe = _Probe()
    for one, juror in zip(settings.each, judge.judges, strict=True):
        console.aside(f"{one.spec}:")
        probe += _estimate(one, juror, pairs)
    return probe


def _estimate(settings: JudgeSettings, judge: Judge, pairs: Sequence[Pair]) -> _Probe:
    """Say what a run will take before it begins; a model that runs here judges two pairs to find out."""
    planned = plan(judge.setup, pairs, judge.store, orders=settings.orders, seed=settings.seed)
    probe, seconds = _Probe(), None
    bounded = settings.limits.max_requests is not None or settings.limits.max_cost is not None
    if find_address(settings.spec) is None and planned.requests and len(pairs) > _WORTH_TIMING and not bounded:
        probe, seconds = _timed(settings, judge, pairs, planned)
    cost = settings.price.of(planned.usage) if settings.price else None
    if planned.requests:
        console.aside(_takes(settings, planned, seconds, cost))
    return probe


def _timed(
    settings: JudgeSettings, judge: Judge, pairs: Sequence[Pair], planned: Plan
) -> tuple[_Probe, float | None]:
    """Judge the first two pairs that are not kept, and see how long the second takes.

    The first also waits for the model, and for the text with which all prompts begin.
    """
    probe, seconds = _Probe(), None
    waiting = ((pair, _alone(settings, judge, pair)) for pair in pairs)
    for pair, alone in islice((found for found in waiting if found[1].requests), 2):
        began = time.monotonic()
        judged = judge.compare(pair)
        took = time.monotonic() - began
        probe += _Probe(judged.usage, judged.asked, took)
        seconds = took * planned.characters / max(alone.characters, 1)
    return probe, seconds


def _alone(settings: JudgeSettings, judge: Judge, pair: Pair) -> Plan:
    """What one pair takes."""
    return plan(judge.setup, [pair], judge.store, orders=settings.orders, seed=settings.seed)


def _takes(settings: JudgeSettings, planned: Plan, seconds: float | None, cost: float | None) -> str:
    kept = f", {console.count(planned.kept, 'answer')} kept already" if planned.kept else ""
    read = about(planned.usage.computed)
    parts = [f"{console.count(planned.requests, 'request')}, about {read:,} tokens to read{kept}"]
    if seconds is not None:
        parts.append(f"about {console.clock(seconds)} on this machine, by the first pairs")
    if cost is not None and settings.price:
        parts.append(f"about {cost:,.2f} {settings.price.currency}")
    return "; ".join(parts)


# -- what is shown ------------------------------------------------------------------------------------


def _beside(
    settings: AnySettings, found: AttackSummary, cases: Sequence[AttackCase], db: Path
) -> dict[str, AttackSummary]:
    """The same judge with other fences on the same pairs, as far as that is kept."""
    keys, names = {case.pair.key for case in cases}, _other_fences(settings, found.protocol)
    with Store(db, read_only=True) as store:
        same = [row for row in store.judges() if row.protocol in names and row.model == found.judge]
        rows = [row for row in same if row.fingerprint != found.fingerprint]
        others = {row.protocol: stored_attacks(store, row, found.dimension, keys) for row in rows}
    return {name: other for name, other in others.items() if other is not None}


def _other_fences(settings: AnySettings, protocol: str) -> list[str]:
    """What the protocol is called with other fences; no head has one."""
    one = settings if isinstance(settings, JudgeSettings) else settings.each[0]
    fence = one.protocol.fence
    return [fenced_name(protocol, fence, kind) for kind in FENCES if kind != fence]


def _show(found: AttackRun, output: AttackOutput, beside: dict[str, AttackSummary], untried: str) -> None:
    if output.plot:
        draw_attacks(found, output.plot)
    if output.as_json:
        print(to_json({"attack": found, "beside": beside, "db": str(output.db)}))
        return
    print_attacks(found, beside)
    for line in console.invalid_lines(found.invalid_reasons, "number here"):
        console.out.print(line)
    for example in console.example_lines(found.examples):
        console.out.print(example, markup=False, highlight=False)
    if untried:
        console.out.print(f"tried: {untried}")
    console.out.print(console.usage_line(found.tokens, found.seconds, found.asked), style="dim")
    if found.cost is not None:
        console.out.print(f"cost: {found.cost:.4f} at the table's prices", style="dim")
    if output.plot:
        console.out.print(f"wrote {output.plot}", markup=False)
    with Store(output.db, read_only=True) as store:
        kept = store.judge_book.find(found.fingerprint) is not None
    if kept:
        console.below(f"kept in {output.db}; pair by pair:", f"evenhand serve --db {output.db}")
    else:
        show_nothing_kept()
