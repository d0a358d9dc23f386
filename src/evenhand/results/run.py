"""The result of `judge` and of `results`: a judge's outcomes, counted, with its identity and its cost."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from evenhand.core.columns import Block
from evenhand.core.engine import Usage, measured_length
from evenhand.core.stats.alpaca import AlpacaLength
from evenhand.core.stats.calibration import Calibration
from evenhand.core.verdict import found_on
from evenhand.results.answer import answer_of
from evenhand.results.attack import AttackSummary
from evenhand.results.calibrated_outcomes import calibrated as calibrate
from evenhand.results.comparison import Comparison
from evenhand.results.counting import DEFAULT, Counting
from evenhand.results.decision import Decider, replay
from evenhand.results.groups import Group
from evenhand.results.human import HumanRate
from evenhand.results.judges import title_of
from evenhand.results.made import made_notes
from evenhand.results.noise import NoiseSummary, noise_of
from evenhand.results.roles import in_roles
from evenhand.results.stored_attacks import stored_attacks
from evenhand.results.summary import EarlyStop, Summary, summarise
from evenhand.store import JudgeRow, Records


@dataclass(frozen=True, slots=True)
class JudgeSummary:
    """One judge: who it is, its outcomes counted, and what they cost."""

    judge: str
    protocol: str
    fingerprint: str
    summary: Summary
    tokens: Usage
    seconds: float
    calibrated: tuple[str, ...] | None = None  # the dimensions that were, where that was asked for
    noise: Mapping[str, NoiseSummary] | None = None  # by dimension; None where the judge was asked once
    made: tuple[str, ...] = ()  # of a judge that is made of others: who spoke, or who decided
    attacks: AttackSummary | None = None  # where attacked pairs are kept
    examples: Mapping[str, str] = field(default_factory=dict)  # one answer or message for each reason of a gap
    name: str = ""  # among the judges of a database; else its model and protocol

    @property
    def title(self) -> str:
        """What to call it."""
        return self.name or f"{self.judge} under {self.protocol}"

    def plain(self) -> dict[str, object]:
        """The judge as JSON has it."""
        early = self.summary.stopped_early
        return {
            "judge": self.judge,
            "protocol": self.protocol,
            "fingerprint": self.fingerprint,
            **({} if self.calibrated is None else {"calibrated": self.calibrated}),
            "answer": answer_of(self.summary),
            **self.summary.plain(),
            "tokens": self.tokens,
            "seconds": round(self.seconds, 3),
            "noise": self.noise,
            **({} if early is None else {"stopped_early": early}),
            **({"made": self.made} if self.made else {}),
            **({} if self.attacks is None else {"attacks": self.attacks}),
        }


@dataclass(frozen=True, slots=True)
class RunSummary(JudgeSummary):
    """One run of a judge, with what it asked and why it stopped."""

    asked: int = 0
    cost: float | None = None
    stopped: str = ""
    prices: str = "at the table's prices"  # in words, for people

    def plain(self) -> dict[str, object]:
        """The run as JSON has it."""
        more = {"asked": self.asked, "cost": self.cost, "stopped": self.stopped}
        return {**JudgeSummary.plain(self), **more}


@dataclass(frozen=True, slots=True)
class Readings:
    """The same outcomes in groups, beside others, or beside what people said."""

    by: str = ""
    groups: Sequence[Group] = ()
    against: Sequence[Comparison] = ()
    between: Sequence[Comparison] = ()
    human: Mapping[str, HumanRate] | None = None
    alpaca: Mapping[str, AlpacaLength] | None = None

    def plain(self) -> dict[str, object]:
        """What there is of them as JSON has it."""
        found: dict[str, object] = {}
        if self.by:
            found["by"] = {"field": self.by, "groups": self.groups}
        if self.against:
            found["against"] = self.against
        if self.between:
            found["between"] = self.between
        if self.human is not None:
            found["human"] = self.human
        if self.alpaca is not None:
            found["alpaca_length_controlled"] = self.alpaca
        return found


def calibrations_of(store: Records, judge: JudgeRow) -> dict[str, Calibration]:
    """What brings each dimension of a judge into line with people, where that was fitted."""
    return {name: Calibration.of(fields) for name, fields in store.calibrations.of(judge.id).items()}


def blocks_of_judge(
    store: Records, judge: JudgeRow, *, calibrated: bool = False, metadata: bool = False, attacked: bool = False
) -> Iterator[Block]:
    """The outcomes of a judge, calibrated where that is asked for, with the candidate on one side throughout."""
    found = store.blocks(judge, metadata=metadata, attacked=attacked)
    return in_roles(calibrate(found, calibrations_of(store, judge)) if calibrated else found)


def judge_summary(
    store: Records, judge: JudgeRow, *, calibrated: bool = False, counting: Counting = DEFAULT
) -> JudgeSummary:
    """What is kept of one judge, counted."""

    def blocks() -> Iterator[Block]:
        return blocks_of_judge(store, judge, calibrated=calibrated)

    measured = measured_length(judge.identity)
    found = summarise(blocks(), found_on(judge.dimensions), counting, measured=measured)
    usage, seconds = store.usage(judge)
    names = tuple(sorted(store.calibrations.of(judge.id))) if calibrated else None
    return JudgeSummary(
        judge.model,
        judge.protocol,
        judge.fingerprint,
        with_the_rest(store, judge, found, blocks()),
        usage,
        seconds,
        names,
        noise_of(store, judge) or None,
        made_notes(store, judge),
        stored_attacks(store, judge),
        name=title_of(judge, store.judges(counted=False)),
    )


def with_the_rest(store: Records, judge: JudgeRow, found: Summary, blocks: Iterable[Block]) -> Summary:
    """A summary with the pairs that are in none of its numbers, and with how the run over its blocks ended."""
    return replace(
        found,
        unfinished=store.unfinished(judge),
        attacked=store.count_attacked(judge),
        stopped_early=early_stop(store, judge, blocks),
    )


def early_stop(store: Records, judge: JudgeRow, blocks: Iterable[Block]) -> EarlyStop | None:
    """What holds of these blocks after a run that stopped early; None where the last run did not."""
    runs = store.archive.runs(judge.id)
    settings = max(runs, key=lambda group: group.ended or 0.0).settings if runs else {}
    dimension = settings.get("until_decided", "")
    if settings.get("stopped") != "decided" or dimension not in found_on(judge.dimensions):
        return None
    decider = Decider(dimension)
    replay(blocks, decider, seed=int(settings.get("seed", 0)))
    return decider.early_stop
