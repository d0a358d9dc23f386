"""The groups of options that several commands take, and what each of them means to the program."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from evenhand.core.engine import Engine
from evenhand.core.errors import InputError
from evenhand.core.judge import Orders, Setup
from evenhand.core.protocol import Protocol
from evenhand.engines.endpoint import EndpointSettings
from evenhand.engines.llama import Hardware
from evenhand.engines.repeated import Repeated
from evenhand.io.pairs import JoinOptions
from evenhand.running.pace import Limits
from evenhand.running.prices import Price, find_price
from evenhand.views.api import Judge, default_judge
from evenhand.views.cli.inputs import (
    BaselineOption,
    CandidateOption,
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
from evenhand.views.cli.options import (
    DEFAULT_DB,
    BatchOption,
    ConcurrencyOption,
    ContextOption,
    DbOption,
    DetachOption,
    FenceOption,
    GpuOption,
    JsonOption,
    JudgeOption,
    MaxCostOption,
    MaxRequestsOption,
    OrdersOption,
    PricesOption,
    ProtocolOption,
    RawOption,
    RepeatOption,
    RequestsPerMinuteOption,
    SamplesOption,
    SetOption,
    ThreadsOption,
    TokensPerMinuteOption,
    fence_from,
    orders_from,
)
from evenhand.views.cli.running import endpoint_settings, load_protocol, open_judge


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
    candidate: CandidateOption = None
    baseline: BaselineOption = None

    def find(self, reading: JoinOptions, db: Path | None = None) -> Input:
        """The pairs, all of them read once and found good."""
        return find_input(self.pairs, self.candidate, self.baseline, reading, db)


@dataclass(frozen=True)
class JudgeOptions:
    """Who judges, and what it is asked."""

    spec: JudgeOption = ""
    protocol: ProtocolOption = None
    orders: OrdersOption = "both"


@dataclass(frozen=True)
class HardwareOptions:
    """Of a model that runs here."""

    context: ContextOption = None
    threads: ThreadsOption = None
    gpu_layers: GpuOption = None

    @property
    def hardware(self) -> Hardware:
        """The same for the engine."""
        return Hardware(self.context, self.threads, self.gpu_layers)


@dataclass(frozen=True)
class EngineOptions:
    """How the judge is asked, here or at an endpoint."""

    raw_markup: RawOption = False
    fence: FenceOption = None
    settings: SetOption = None
    samples: SamplesOption = 1
    repeat: RepeatOption = 1
    hardware: HardwareOptions = HardwareOptions()


@dataclass(frozen=True)
class LimitOptions:
    """What a run may use."""

    concurrency: ConcurrencyOption = None
    requests_per_minute: RequestsPerMinuteOption = None
    tokens_per_minute: TokensPerMinuteOption = None
    max_requests: MaxRequestsOption = None
    max_cost: MaxCostOption = None
    prices: PricesOption = None

    @property
    def limits(self) -> Limits:
        """The same for the run."""
        return Limits(
            *(self.concurrency, self.requests_per_minute, self.tokens_per_minute, self.max_requests, self.max_cost)
        )


@dataclass(frozen=True)
class BatchOptions:
    """Whether the judge is asked through its service's batches."""

    batch: BatchOption = False
    detach: DetachOption = False

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
        spec = judge.spec or default_judge(judge.protocol or engine.fence)
        return cls(
            spec,
            load_protocol(judge.protocol, spec, fence_from(engine.fence)),
            orders_from(judge.orders),
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
