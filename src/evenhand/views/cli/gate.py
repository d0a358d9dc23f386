"""evenhand gate: for CI, is model 2 worse than model 1 by more than a margin?"""

from __future__ import annotations

import os
import sys
import traceback
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Annotated

import numpy as np
import typer
from rich.text import Text

from evenhand.core.columns import Block
from evenhand.core.errors import EvenhandError, InputError
from evenhand.core.judge import Judgment
from evenhand.core.shuffle import Shuffle
from evenhand.core.verdict import found_on
from evenhand.engines.imported import is_imported
from evenhand.engines.made import is_made
from evenhand.io.pairs import JoinOptions
from evenhand.results.decision import Decider, replay
from evenhand.results.gate import Gate, GateResult
from evenhand.results.judges import judges_named, judges_there
from evenhand.results.losses import Against, TrialLog, since_last, stored_losses
from evenhand.results.plain import plain, to_json
from evenhand.results.run import RunSummary
from evenhand.results.summary import Counter, side_names, summarise
from evenhand.results.wording import attacked_field
from evenhand.store import GateRecord, JudgeRow, Store
from evenhand.views import console
from evenhand.views.cli.app import app
from evenhand.views.cli.deciding import dimension_from
from evenhand.views.cli.gate_files import GateFileOptions
from evenhand.views.cli.groups import (
    ALL_MUST_SPEAK,
    NO_LEVELS,
    EngineOptions,
    EscalateOptions,
    JudgeOptions,
    JuryOptions,
    LimitOptions,
    OutputOptions,
    settings_of,
)
from evenhand.views.cli.inputs import BaselineOption, ColumnsOption, Input, JoinOnOption, columns_from, find_input
from evenhand.views.cli.judging import check_slots, prepare
from evenhand.views.cli.option_groups import ADVANCED, INPUT, JUDGE, LIMITS, argument, flat_options, one_of, option
from evenhand.views.cli.options import OnOption
from evenhand.views.cli.running import run_with_progress, stored_examples
from evenhand.views.jury import AnyJudge, Escalation, Jury

# The judge or the machine failed. Elsewhere that is 1, but here 1 is a model that is worse.
NOT_JUDGED = 4
_WHAT = "evenhand gate PAIRS, or evenhand gate --candidate NEW --baseline OLD"
_ONE_ORDER = (
    "imported verdicts: a pair that is known in one order counts too, so a leaning to the first place may decide"
)
CODES = {"not_worse": 0, "worse": 1, "fallen": 1, "undecided": 3, "not_judged": NOT_JUDGED}
COLOURS = {"not_worse": "green", "worse": "red", "fallen": "red", "undecided": "yellow", "not_judged": "red"}
AGAINST: tuple[Against, ...] = ("last", "passed")
RULE = "Rule"  # the panel of --help for when a model passes
Fields = dict[str, object]
Work = Callable[[], tuple[GateResult, Fields]]


@dataclass(frozen=True)
class TrialOptions:
    """Whose outputs are on trial against whose."""

    pairs: Annotated[
        list[str] | None,
        argument(
            "PAIRS",
            "Files of pairs, as for judge; output_2 is that of the model on trial. Without any, the verdicts "
            "that --db holds already are looked at.",
        ),
    ] = None
    candidate: Annotated[
        str | None, option("--candidate [NAME=]OUTPUTS", "Outputs of the model on trial, instead of PAIRS.", INPUT)
    ] = None
    baseline: BaselineOption = None
    join_on: JoinOnOption = "instruction"
    columns: ColumnsOption = None

    def __bool__(self) -> bool:
        return bool(self.pairs or self.candidate or self.baseline)

    def find(self) -> Input:
        """The pairs, all of them read once; where outputs are joined, those of the model on trial are output_2."""
        if not self.pairs and not (self.candidate and self.baseline):
            raise InputError("--candidate NEW --baseline OLD must be given together")
        reading = JoinOptions(join_on=self.join_on, columns=columns_from(self.columns))
        given = find_input(self.pairs, self.candidate, self.baseline, reading, candidate_side="2")
        given.print()
        return given


@dataclass(frozen=True)
class GateJudgeOptions:
    """Who judges, or whose verdicts are looked at."""

    spec: Annotated[
        str,
        option(
            "--judge -j SPEC",
            "As for judge, several with commas between too. Without PAIRS: the newest judge of the database.",
            JUDGE,
        ),
    ] = ""
    protocol: Annotated[
        str, option("--protocol -p NAME|FILE", "As for judge; with pairs, so is the default.", JUDGE)
    ] = ""
    jury: JuryOptions = ALL_MUST_SPEAK
    levels: EscalateOptions = NO_LEVELS

    @property
    def named(self) -> JudgeOptions:
        """As for `judge`, with its defaults."""
        return JudgeOptions(self.spec, self.protocol or None, jury=self.jury, levels=self.levels)


@dataclass(frozen=True)
class RuleOptions:
    """When a model passes."""

    on: OnOption = ""
    margin: Annotated[
        float, option("--margin", "How far below one half the win rate may be and still pass.", RULE)
    ] = 0.05
    level: Annotated[float, option("--level", "How sure to be: the level of the interval.", RULE)] = 0.95
    max_pairs: Annotated[int | None, option("--max-pairs", "Judge at most N pairs.", LIMITS, min=1)] = None
    seed: Annotated[int, option("--seed", "Decides which pairs come first.", ADVANCED)] = 0

    against: Annotated[
        str,
        option(
            f"--against {'|'.join(AGAINST)}",
            "Fail, too, if the win rate has fallen since the last gate with this option by the same judge in"
            " --db, or the last that passed. All pairs are judged, so that the two can be compared.",
            RULE,
        ),
    ] = ""

    def check(self) -> Gate:
        """The rule, if it makes sense."""
        if self.against:
            one_of("--against", self.against, AGAINST)
        if not 0 < self.level < 1:
            raise InputError(f"--level {self.level:g}", hint="a share between 0 and 1, such as 0.95")
        return Gate(self.margin)

    def decider(self, what: Gate, dimensions: Sequence[str]) -> Decider:
        """What counts verdicts until the rule is settled; a gate to compare with others judges all of its pairs."""
        enough = what.hopeless if self.against else what.settled
        return Decider(dimension_from(self.on, dimensions), level=self.level, enough=enough)


@app.command()
@flat_options
def gate(
    trial: TrialOptions,
    rule: RuleOptions,
    judge: GateJudgeOptions,
    limits: LimitOptions,
    output: OutputOptions,
    engine: EngineOptions,
    files: GateFileOptions,
) -> None:
    """Pass or fail a model for CI: exit 0 if model 2 is not worse than model 1 by more than a margin, 1 if it is.

    Exit 3: undecided within the budget. Exit 4: the judge or the machine failed, which says nothing of the model.
    Exit 2: wrong use. Each pair is judged in both orders; pairs are taken in random order until it is decided.
    """
    what = rule.check()
    files.check()
    if rule.against and not trial:
        raise InputError("--against without pairs to judge", hint="evenhand gate PAIRS --against last")

    def judge_them() -> tuple[GateResult, Fields]:
        settings = settings_of(judge.named, engine, limits, rule.seed, rule.on)
        decider = rule.decider(what, settings.protocol.dimensions)
        given = trial.find()
        check_slots(settings, given)
        shuffled = Shuffle(given.read, seed=rule.seed)
        with settings.judge(output.db) as opened:
            prepare(opened, given)
            most = min(given.count, rule.max_pairs or given.count)
            log = TrialLog(decider.dimension, files.worst)
            result, fields = go_through(what, decider, opened, shuffled, most, log)
            if not result.judged:  # no judgment says who was on trial
                result = replace(result, sides=side_names({(p.model_1, p.model_2) for p in given.read()}))
            return (compared(result, log, opened, rule) if rule.against else result), fields

    def look_up() -> tuple[GateResult, Fields]:
        if not output.db.is_file():
            raise InputError(f"no pairs, and no database at {output.db}", hint=_WHAT)
        with Store(output.db, read_only=True) as store:
            row = newest(store, judge.spec, judge.protocol, output.db)
            decider = rule.decider(what, row.dimensions)
            return count_stored(what, decider, store, row, rule, files.worst)

    def empty(failure: str) -> GateResult:
        return GateResult(
            what, Decider(rule.on or "overall", level=rule.level).standing, ("1", "2"), 0, 0, failure=failure
        )

    raise typer.Exit(report(judge_them if trial else look_up, empty, files, output))


def go_through(
    what: Gate, decider: Decider, judge: AnyJudge, shuffled: Shuffle, most: int, log: TrialLog
) -> tuple[GateResult, Fields]:
    """Judge until it is settled; what keeps the judge from judging ends up in the result."""
    counter, found, failure = Counter(found_on(judge.setup.protocol.dimensions)), None, ""

    def enough(judgment: Judgment) -> bool:
        log.add(judgment)
        return decider(judgment)

    try:
        drawn = decider.watch(islice(shuffled, most))
        found = run_with_progress(judge, drawn, most, enough=enough, line=decider, counter=counter)
    except InputError:
        raise
    except EvenhandError as error:
        failure = "" if decider.met else str(error)
    why = found.stopped if found else ""
    summary = found.summary if found else counter.summary()
    ended = {"why": why, "failure": failure}
    result = GateResult.of_run(what, decider, summary, pairs=shuffled.pairs, most=most, **ended, losses=log.losses)
    if found is not None:
        result = replace(
            result, examples={name: found.examples[name] for name in result.reasons if name in found.examples}
        )
    return result, _about(judge, found)


def compared(result: GateResult, log: TrialLog, judge: AnyJudge, rule: RuleOptions) -> GateResult:
    """The result beside that of an earlier gate, and kept for the next one."""
    number = judge.store.judge_book.find(judge.setup.fingerprint)
    if number is None or result.failure or not log.scores:
        return result
    against, gates = one_of("--against", rule.against, AGAINST), judge.store.gates
    before = gates.last(number, log.dimension, passed=against == "passed")
    if before is not None:
        since = since_last(log.scores, before.scores, before.candidate, against=against, level=rule.level)
        result = replace(result, since=since)
    passed = result.outcome == "not_worse"
    gates.keep(number, log.dimension, GateRecord(log.scores, result.names[1], passed))
    if before is None:
        console.aside(_nothing_before(against, passed))
    return result


def _nothing_before(against: Against, passed: bool) -> str:
    """That there is no gate to compare with, and whether the next one has this one."""
    if against == "passed" and not passed:
        return "no gate to compare with yet; this one has not passed"
    return f"no gate to compare with yet; the next --against {against} has this one"


def _about(judge: AnyJudge, found: RunSummary | None) -> Fields:
    """Who judged, and what that took."""
    own: Fields = {"judge": judge.setup.engine.identity["model"], "protocol": judge.setup.protocol.name}
    if isinstance(judge, Jury):
        own["jury"] = plain(judge.result())
    if isinstance(judge, Escalation) and found is not None and found.summary.pairs:
        own["escalation"] = plain(judge.result())
    if found is None:
        return own
    used = {"asked": found.asked, "tokens": found.tokens, "cost": found.cost, "seconds": round(found.seconds, 3)}
    return {**own, "fingerprint": found.fingerprint, **used}


def newest(store: Store, spec: str, protocol: str, db: Path) -> JudgeRow:
    """The judge that was added last, of those that are meant."""
    every = store.judges()
    rows = judges_named(every, spec, protocol)
    if not rows:
        raise InputError(f"{db} holds no verdicts of that kind", hint=judges_there(every) or "evenhand gate PAIRS")
    if len(rows) > 1:
        name = console.one_line(f"{rows[-1].model} under {rows[-1].protocol}")
        console.aside(f"counted: {name}, the newest of several judges; --judge names another")
    return rows[-1]


def count_stored(
    what: Gate, decider: Decider, store: Store, row: JudgeRow, rule: RuleOptions, worst: int
) -> tuple[GateResult, Fields]:
    """Count what a database holds, in random order, until it is settled."""
    candidate = candidate_of(store.matches(row), store.path)
    blocks = list(on_trial(store.blocks(row), candidate))
    attacked = store.count_attacked(row)
    console.print_attacked(attacked)
    imported = is_imported(row.identity)
    made = is_made(row.identity)  # of judges that may have been imported
    replay(blocks, decider, seed=rule.seed, most=rule.max_pairs, one_order=imported or made)
    if imported:
        console.err.print(_ONE_ORDER, style="yellow")
    summary = summarise(blocks, found_on(row.dimensions))
    losses = stored_losses(blocks, decider.dimension, worst, store.pages.pair)
    every = summary.pairs + summary.repeats
    most = every if rule.max_pairs is None or rule.max_pairs >= summary.pairs else rule.max_pairs
    result = GateResult.of_run(what, decider, summary, pairs=every, most=most, losses=losses)
    result = replace(result, examples=stored_examples(store, row.id, result.reasons))
    about = {"judge": row.model, "protocol": row.protocol, "fingerprint": row.fingerprint}
    return result, {**about, **({"imported": True} if imported else {}), **attacked_field(attacked)}


def candidate_of(matches: list[tuple[str, str, str]], path: str) -> str:
    """The model on trial, empty where no roles were given; what is not one model against another is refused."""
    models = sorted({name for one, two, _ in matches for name in (one, two)})
    if len(models) > 2:
        some = ", ".join(console.one_line(name) or "(no name)" for name in models[:6])
        some += ", …" if len(models) > 6 else ""
        raise InputError(
            f"{path} compares {len(models):,} models, and a gate takes two: {some}",
            hint="evenhand gate --candidate NEW --baseline OLD --db ANOTHER; evenhand rank ranks many models",
        )
    tried = {(one, two)[int(side) - 1] for one, two, side in matches if side}
    if len(tried) > 1 or (not tried and len({(one, two) for one, two, _ in matches}) > 1):
        raise InputError(
            f"in {path} the candidate is not the same model in all pairs",
            hint="evenhand gate --candidate NEW --baseline OLD --db ANOTHER",
        )
    return next(iter(tried), "")


def on_trial(blocks: Iterable[Block], candidate: str) -> Iterator[Block]:
    """Blocks with the candidate on side 2, as the gate counts; without roles, output_2 is on trial."""
    for block in blocks:
        role, model = (words.text() for words in (block.candidate, block.model_1))
        turn = (role == "1") | ((role == "") & (model == candidate) & bool(candidate))
        for rows, turned in ((np.flatnonzero(~turn), False), (np.flatnonzero(turn), True)):
            if len(rows):
                yield block.take(rows).turned() if turned else block.take(rows)


def report(work: Work, empty: Callable[[str], GateResult], files: GateFileOptions, output: OutputOptions) -> int:
    """Do the work and show what came of it; the exit code. Whatever breaks, it never reads as a worse model."""
    try:
        result, fields = work()
    except InputError:
        raise
    except EvenhandError as error:
        result, fields = empty(str(error)), Fields()
    except Exception as error:
        traceback.print_exc()
        result, fields = empty(f"{type(error).__name__}: {error}"), Fields()
    code = CODES[result.outcome]
    try:
        show(result, {**result.plain(), "exit_code": code, **fields}, output)
        files.write(result, to_stderr=output.as_json)
    except OSError as fault:
        if not isinstance(fault, BrokenPipeError):
            console.fail(
                f"{fault.filename or 'output'}: {fault.strerror}", f"the decision is unchanged: exit code {code}"
            )
        if not fault.filename:  # what is left in the buffer cannot be written; it would be tried again at the end
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return code


def show(result: GateResult, fields: Fields, output: OutputOptions) -> None:
    """The result for a log, or as JSON."""
    if output.as_json:
        print(to_json(fields))
    else:
        head = console.one_line(f"{result.word}: {result.sentence()}")
        console.out.print(Text(head, f"bold {COLOURS[result.outcome]}"))
        for name, text in result.details().items():
            console.out.print(Text(f"  {console.one_line(name)}: {console.one_line(text)}"))
        show_losses(result, output.db)
    sys.stdout.flush()


def show_losses(result: GateResult, db: Path) -> None:
    """The pairs that got worse, each on a line that begins with a dash: GitHub obeys lines that begin with ::."""
    losses = result.losses
    if not losses.count:
        return
    for line in result.loss_lines():
        console.out.print(Text(f"  {console.one_line(line)}"))
    if len(losses.worst) < losses.count:
        command = f"evenhand export judgments --db {db} --texts --out judgments.csv"
        console.out.print(f"  all pairs with their verdicts: {command}", markup=False)
