"""The groups of options that several commands take, and what each of them means to the program."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any

from evenhand.core.engine import Engine
from evenhand.core.errors import InputError
from evenhand.core.judge import ORDER_CHOICES, Orders, Setup
from evenhand.core.jury import POOLS, PoolRule
from evenhand.core.protocol import Protocol
from evenhand.engines.endpoint import EndpointSettings
from evenhand.engines.llama import Hardware
from evenhand.engines.made import Member, made_protocol, shared_dimensions
from evenhand.engines.repeated import Repeated
from evenhand.io.pairs import JoinOptions
from evenhand.running.escalation import PEOPLE, check_target
from evenhand.running.pace import Limits
from evenhand.running.prices import Price, find_price
from evenhand.views.api import Judge, default_judge
from evenhand.views.cli.inputs import (
    BaselineOption,
    ColumnsOption,
    Input,
    JoinOnOption,
    PairsArgument,
    QuestionsOption,
    SkipBadOption,
    TurnOption,
    columns_from,
    find_input,
)
from evenhand.views.cli.option_groups import ADVANCED, INPUT, JUDGE, LIMITS, one_of, option
from evenhand.views.cli.options import (
    DEFAULT_DB,
    DbOption,
    FenceOption,
    JsonOption,
    SetOption,
    fence_from,
    weights_from,
)
from evenhand.views.cli.running import endpoint_settings, load_protocol, open_judge
from evenhand.views.jury import Escalation, Jury, ManyJudges, split_judges


@dataclass(frozen=True)
class ReadingOptions:
    """How files of outputs are read."""

    questions: QuestionsOption = None
    turn: TurnOption = 1
    join_on: JoinOnOption = "instruction"
    skip_bad: SkipBadOption = False
    columns: ColumnsOption = None

    @property
    def reading(self) -> JoinOptions:
        """The same for those who read."""
        return JoinOptions(self.questions, self.turn, self.join_on, self.skip_bad, columns_from(self.columns))


@dataclass(frozen=True)
class PairOptions:
    """What is judged: files of pairs, or the outputs of two models."""

    pairs: PairsArgument = None
    candidate: Annotated[
        str | None,
        option("--candidate [NAME=]OUTPUTS", "Outputs of the new model, instead of PAIRS. It is side 1.", INPUT),
    ] = None
    baseline: BaselineOption = None

    def find(self, reading: JoinOptions, db: Path | None = None) -> Input:
        """The pairs, all of them read once and found good."""
        return find_input(self.pairs, self.candidate, self.baseline, reading, db)


@dataclass(frozen=True)
class JuryOptions:
    """How several judges are pooled."""

    pool: Annotated[
        str,
        option(
            f"--pool {'|'.join(POOLS)}",
            "How several judges are pooled: the mean of their log-odds, calibrated where that is kept, or a vote.",
            JUDGE,
        ),
    ] = "mean"
    weights: Annotated[str, option("--weights NUMBERS", "The weight of each judge of a jury: 2,1,1.", JUDGE)] = ""
    quorum: Annotated[
        int,
        option(
            "--quorum",
            "How many judges of a jury must have a verdict on a pair. Default: all.",
            JUDGE,
            min=0,
            show_default=False,
        ),
    ] = 0

    def rule(self, jurors: int) -> PoolRule:
        """The rule that these options come to."""
        return PoolRule(jurors, one_of("--pool", self.pool, POOLS), weights_from(self.weights), self.quorum)


ALL_MUST_SPEAK = JuryOptions()


@dataclass(frozen=True)
class EscalateOptions:
    """Levels of judges, and what they promise."""

    escalate: Annotated[
        str,
        option(
            "--escalate SPECS",
            "Judges from the cheapest to the best with commas between, and people last if they are to decide the"
            " rest: small,large,people. Each decides what it may, by the labels of people that are there.",
            JUDGE,
        ),
    ] = ""
    agree: Annotated[
        float | None,
        option(
            "--agree",
            "With --escalate: on what share of the decided pairs people must agree, with 95% confidence: 0.85.",
            JUDGE,
        ),
    ] = None


NO_LEVELS = EscalateOptions()


@dataclass(frozen=True)
class JudgeOptions:
    """Who judges, and what it is asked."""

    spec: Annotated[
        str,
        option(
            "--judge -j SPEC",
            "A model of the catalog (see [bold]evenhand models[/]), a path to a GGUF file, "
            "hf:owner/repo/file.gguf, an endpoint such as openai:MODEL or vllm:MODEL, http://host/v1#MODEL, "
            "or head:FILE, which [bold]evenhand learn[/] writes. Several with commas between are a jury. "
            "Default: head:general, which comes trained; with --protocol, the model that is asked.",
            JUDGE,
        ),
    ] = ""
    protocol: Annotated[
        str | None,
        option(
            "--protocol -p NAME|FILE",
            "What the judge is asked: a built-in protocol or a template file. Default: weighed for a model that"
            " runs here, chained for one behind HTTP; a trained head is not asked.",
            JUDGE,
        ),
    ] = None
    orders: Annotated[
        str, option(f"--orders {'|'.join(ORDER_CHOICES)}", "In which orders each pair is judged.", JUDGE)
    ] = "both"
    jury: JuryOptions = ALL_MUST_SPEAK
    levels: EscalateOptions = NO_LEVELS


@dataclass(frozen=True)
class HardwareOptions:
    """Of a model that runs here."""

    context: Annotated[
        int | None, option("--context TOKENS", "The model's context. Default: up to 16384.", ADVANCED, min=256)
    ] = None
    threads: Annotated[
        int | None, option("--threads", "Threads of the embedded model. Default: all cores.", ADVANCED, min=1)
    ] = None
    gpu_layers: Annotated[
        int | None, option("--gpu-layers", "Layers on the GPU. Default: llama.cpp decides.", ADVANCED, min=0)
    ] = None

    @property
    def hardware(self) -> Hardware:
        """The same for the engine."""
        return Hardware(self.context, self.threads, self.gpu_layers)


@dataclass(frozen=True)
class EngineOptions:
    """How the judge is asked, here or at an endpoint."""

    raw_markup: Annotated[
        bool,
        option("--raw-markup", "Send the template's own markup instead of the model's chat template.", ADVANCED),
    ] = False
    fence: FenceOption = None
    settings: SetOption = None
    samples: Annotated[
        int, option("--samples", "Answers to sample where an endpoint gives no probabilities.", ADVANCED, min=1)
    ] = 1
    repeat: Annotated[
        int,
        option("--repeat", "2 asks everything a second time, to tell noise from position bias.", ADVANCED, min=1),
    ] = 1
    hardware: HardwareOptions = HardwareOptions()


@dataclass(frozen=True)
class LimitOptions:
    """What a run may use."""

    concurrency: Annotated[
        int | None, option("--concurrency", "Send at most N requests at once.", LIMITS, min=1)
    ] = None
    requests_per_minute: Annotated[
        float | None, option("--requests-per-minute", "Send at most this many.", LIMITS, min=0.01)
    ] = None
    tokens_per_minute: Annotated[
        float | None, option("--tokens-per-minute", "Use at most this many.", LIMITS, min=1)
    ] = None
    max_requests: Annotated[
        int | None, option("--max-requests", "Stop before more requests than this.", LIMITS, min=1)
    ] = None
    max_cost: Annotated[
        float | None,
        option("--max-cost", "Stop before it costs more than this, by the table of prices.", LIMITS, min=0),
    ] = None
    prices: Annotated[Path | None, option("--prices FILE", "Your own table of prices, as JSON.", LIMITS)] = None

    @property
    def limits(self) -> Limits:
        """The same for the run."""
        return Limits(
            *(self.concurrency, self.requests_per_minute, self.tokens_per_minute, self.max_requests, self.max_cost)
        )


@dataclass(frozen=True)
class BatchOptions:
    """Whether the judge is asked through its service's batches."""

    batch: Annotated[
        bool,
        option(
            "--batch",
            "Ask through the batches of OpenAI or Anthropic: half the price, within a day. The same command picks"
            " up what is under way.",
            JUDGE,
        ),
    ] = False
    detach: Annotated[
        bool, option("--detach", "With --batch: send, take in what has ended, and do not wait for the rest.", JUDGE)
    ] = False

    def check(self, limits: LimitOptions, *, until_decided: bool) -> None:
        """Refuse what has no meaning together."""
        if self.detach and not self.batch:
            raise InputError("--detach without --batch", hint="add --batch")
        paced = {
            "--until-decided": until_decided,
            "--concurrency": limits.concurrency,
            "--requests-per-minute": limits.requests_per_minute,
            "--tokens-per-minute": limits.tokens_per_minute,
        }
        for name, given in paced.items():
            if self.batch and given:
                raise InputError(
                    f"{name} has no meaning with --batch: everything is sent at once", hint="leave one of them out"
                )


@dataclass(frozen=True)
class OutputOptions:
    """Where verdicts go, and in which form they are printed."""

    db: DbOption = DEFAULT_DB
    as_json: JsonOption = False


@dataclass(frozen=True)
class JudgeSettings:
    """A judge as a command line asks for it: all is checked here that can be before a model is fetched."""

    spec: str
    protocol: Protocol
    orders: Orders
    hardware: Hardware
    endpoint: EndpointSettings
    limits: Limits
    price: Price | None
    seed: int
    raw_markup: bool
    repeat: int = 1

    @classmethod
    def of(
        cls, judge: JudgeOptions, engine: EngineOptions, limits: LimitOptions | None = None, seed: int = 0
    ) -> JudgeSettings:
        """The settings that these options come to."""
        limits = limits or LimitOptions()
        if judge.levels != NO_LEVELS:
            raise InputError(
                "this command takes one judge, and no --escalate",
                hint="evenhand judge --escalate keeps a judge in the database that other commands show",
            )
        named = split_judges(judge.spec or default_judge(judge.protocol or engine.fence))
        if len(named) > 1:
            raise InputError(
                f"{len(named)} judges, and this command takes one",
                hint="run it once for each; evenhand jury pools what a database holds of them",
            )
        [spec] = named
        return cls(
            spec,
            load_protocol(judge.protocol, spec, fence_from(engine.fence)),
            one_of("--orders", judge.orders, ORDER_CHOICES),
            engine.hardware.hardware,
            endpoint_settings(engine.settings, engine.samples, limits.concurrency),
            limits.limits,
            find_price(spec, limits.prices),
            seed,
            engine.raw_markup,
            engine.repeat,
        )

    def engine(self) -> Engine:
        """The judge's engine; a model that is not here is fetched."""
        engine = open_judge(self.spec, self.hardware, self.endpoint)
        return Repeated(engine, self.repeat) if self.repeat > 1 else engine

    def setup(self, engine: Engine) -> Setup:
        """The engine under its protocol."""
        return Setup(engine, self.protocol, self.raw_markup)

    def judge(self, db: Path | None) -> Judge:
        """The judge, with the database in which it keeps its verdicts."""
        return Judge(
            self.engine(),
            self.protocol,
            db=db,
            orders=self.orders,
            seed=self.seed,
            raw_markup=self.raw_markup,
            limits=self.limits,
            price=self.price,
        )


@dataclass(frozen=True)
class JurySettings:
    """Several judges as a command line asks for them, each with the settings that it would have by itself."""

    each: tuple[JudgeSettings, ...]
    rule: PoolRule

    @property
    def seed(self) -> int:
        """Decides random orders."""
        return self.each[0].seed

    @property
    def orders(self) -> Orders:
        """In which orders each juror judges."""
        return self.each[0].orders

    @cached_property
    def protocol(self) -> Protocol:
        """What the jury has outcomes on: the dimensions that all jurors have."""
        members = [Member(one.spec, one.protocol.name, "", tuple(one.protocol.dimensions)) for one in self.each]
        return made_protocol(members, shared_dimensions(members))

    def judge(self, db: Path | None) -> ManyJudges:
        """All of them as one, with the database in which it and its judges keep their verdicts."""
        with ExitStack() as opened:
            path = db
            if path is None:
                folder = tempfile.TemporaryDirectory(prefix="evenhand-", ignore_cleanup_errors=True)
                path = Path(opened.enter_context(folder)) / "jury.db"
            judges = [opened.enter_context(one.judge(path)) for one in self.each]
            first = self.each[0]
            shared = {"db": path, "orders": first.orders, "seed": first.seed, "limits": first.limits}
            return self._joined(judges, **shared, closing=opened.pop_all())

    def _joined(self, judges: Sequence[Judge], **shared: Any) -> ManyJudges:
        rule = self.rule
        return Jury(judges, pool=rule.pool, weights=rule.weights, quorum=rule.quorum, **shared)


@dataclass(frozen=True)
class EscalationSettings(JurySettings):
    """Levels of judges as a command line asks for them."""

    agree: float = 0.0
    people: bool = False
    on: str = ""

    def judge(self, db: Path | None) -> ManyJudges:
        """The levels, with the database in which they keep their verdicts."""
        if db is None:
            raise InputError("--escalate needs the labels of a database", hint="name it with --db")
        return super().judge(db)

    def _joined(self, judges: Sequence[Judge], **shared: Any) -> ManyJudges:
        return Escalation(judges, agree=self.agree, people=self.people, on=self.on, **shared)


AnySettings = JudgeSettings | JurySettings


def settings_of(
    judge: JudgeOptions, engine: EngineOptions, limits: LimitOptions | None = None, seed: int = 0, on: str = ""
) -> AnySettings:
    """The settings of one judge, of a jury where several are named, or of levels."""
    if judge.levels != NO_LEVELS:
        return _escalation(judge, engine, limits, seed, on)
    named = split_judges(judge.spec) if judge.spec else []
    if len(named) < 2:
        if judge.jury != ALL_MUST_SPEAK:
            raise InputError("--pool, --weights and --quorum are for several judges", hint="--judge a,b,c")
        return JudgeSettings.of(judge, engine, limits, seed)
    rule = judge.jury.rule(len(named))
    escaped = [name.replace(",", "\\,") for name in named]
    return JurySettings(
        tuple(JudgeSettings.of(replace(judge, spec=name), engine, limits, seed) for name in escaped), rule
    )


def _escalation(
    judge: JudgeOptions, engine: EngineOptions, limits: LimitOptions | None, seed: int, on: str
) -> EscalationSettings:
    levels = judge.levels
    if not levels.escalate:
        raise InputError("--agree without --escalate", hint="--escalate small,large,people --agree 0.85")
    if judge.spec or judge.jury != ALL_MUST_SPEAK:
        raise InputError("--judge and --escalate are two ways to say who judges", hint="give one of them")
    if levels.agree is None:
        raise InputError("--escalate without --agree", hint="how often people must agree, such as --agree 0.85")
    check_target(levels.agree)
    named = split_judges(levels.escalate)
    people = named[-1] == PEOPLE
    judges = named[:-1] if people else named
    if not judges or PEOPLE in judges:
        raise InputError(f"--escalate {levels.escalate}", hint="judges first, people last: small,large,people")
    asked = replace(judge, levels=NO_LEVELS)
    each = tuple(
        JudgeSettings.of(replace(asked, spec=name.replace(",", "\\,")), engine, limits, seed) for name in judges
    )
    rule = PoolRule(max(len(each), 2))  # nothing is pooled
    return EscalationSettings(each, rule, levels.agree, people, on)
