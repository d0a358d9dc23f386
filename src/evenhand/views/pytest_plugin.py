"""evenhand in test suites: fixtures that judge, with verdicts that are kept, so that a second run asks nothing.

    def test_the_answer_is_better(better):
        better(answer("2 + 2?"), than="5", instruction="2 + 2?", on="correctness")

    def test_the_new_prompt_is_not_worse(gate):
        gate(candidate="new.jsonl", baseline="old.jsonl", margin=0.05)

docs/pytest.md tells the rest. What is heavy is imported when the first test asks, not when pytest starts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from evenhand.core.engine import Engine
    from evenhand.core.pair import Pair
    from evenhand.core.protocol import Protocol
    from evenhand.core.verdict import Outcome
    from evenhand.results.gate import GateResult
    from evenhand.views.api import Judge
    from evenhand.views.jury import AnyJudge

DEFAULT_DB = ".evenhand-pytest.db"
_OPTIONS = {
    "judge": "who judges, in the words of evenhand judge --judge; several with commas between are a jury",
    "agree": "makes the judges levels, each of which decides what it may: on what share people must agree, as for"
    " evenhand judge --agree; labels are those of the database",
    "protocol": "a protocol or template file for all tests; without one, each dimension has its own",
    "db": f"where verdicts are kept, from the root of the tests; {DEFAULT_DB} by default",
}
_SHOWN = 400  # characters of a text in a message
_TOGETHER = 4  # pairs that are judged before the gate is looked at again, at the least


def pytest_addoption(parser: pytest.Parser) -> None:
    """Options and settings: --evenhand-judge or evenhand_judge, and so on."""
    group = parser.getgroup("evenhand", "judging responses")
    for name, given in _OPTIONS.items():
        group.addoption(f"--evenhand-{name}", default=None, help=given)
        parser.addini(f"evenhand_{name}", given, default="")


class Referee:
    """Judges for tests: one engine, one database, as many protocols as are asked for."""

    def __init__(
        self, judge: str | Engine | Sequence[str | Engine], protocol: str, db: Path, agree: float = 0.0
    ) -> None:
        self._spec, self._protocol, self.db, self._agree = judge, protocol, db, agree
        self._judges: list[Judge] = []
        self._judge: AnyJudge | None = None
        self._template = ""
        self.asked = self.judged = 0

    def better(self, new: str, *, than: str, instruction: str, on: str = "") -> Outcome:
        """Fail unless the judge finds the new response better; a tie is not better."""
        __tracebackhide__ = True
        return self._compare(new, than, instruction, on, ("1",), "is better than")

    def not_worse(self, new: str, *, than: str, instruction: str, on: str = "") -> Outcome:
        """Fail if the judge finds the old response better; a tie will do."""
        __tracebackhide__ = True
        return self._compare(new, than, instruction, on, ("1", "tie"), "is not worse than")

    def gate(
        self,
        pairs: str | Path | Iterable[Pair] | None = None,
        *,
        candidate: str | Path | None = None,
        baseline: str | Path | None = None,
        on: str = "",
        margin: float = 0.05,
        level: float = 0.95,
        max_pairs: int | None = None,
        seed: int = 0,
    ) -> GateResult:
        """Fail unless it is shown, over many cases, that the new side is not worse by more than a margin.

        In a file of pairs the new side is output_2, as for `evenhand gate`. Without `on`, here and in the others,
        the parts combined decide, else overall, as everywhere.
        """
        __tracebackhide__ = True
        from evenhand.core.shuffle import Shuffle
        from evenhand.results.decision import Decider
        from evenhand.results.gate import Gate, GateResult
        from evenhand.results.summary import Counter

        shuffled = Shuffle(_cases(pairs, candidate, baseline), seed=seed)
        (judge, dimension), what = self._with(on), Gate(margin)
        decider = Decider(dimension, level=level, enough=what.settled)
        counter = Counter()
        most = min(max_pairs or shuffled.pairs, shuffled.pairs)
        drawn = decider.watch(islice(shuffled, most))
        together = max(_TOGETHER, judge.setup.engine.concurrency)
        # A few at a time, each few to their end: what one run asks is then what the next finds kept.
        while not decider.met and (few := list(islice(drawn, together))):
            with judge.run(few) as judgments:
                for judgment in judgments:
                    decider.add(judgment)
                    counter.add(judgment)
                self.asked += judgments.totals.asked
        summary = counter.summary()
        self.judged += summary.pairs
        result = GateResult(what, decider.standing, summary.sides, shuffled.pairs, summary.pairs)
        if result.outcome != "not_worse":
            details = [f"  {name}: {text}" for name, text in result.details().items()]
            raise AssertionError("\n".join([result.sentence(), *details, self._kept()]))
        return result

    def close(self) -> None:
        """Stop the engines and close the database."""
        for judge in {id(judge): judge for judge in (self._judge, *self._judges) if judge is not None}.values():
            judge.close()

    def _compare(
        self, new: str, old: str, instruction: str, on: str, wanted: tuple[str, ...], claim: str
    ) -> Outcome:
        __tracebackhide__ = True
        judge, dimension = self._with(on)
        judgment = judge.compare(instruction, new, old)
        self.asked, self.judged = self.asked + judgment.asked, self.judged + 1
        outcome = judgment[dimension]
        if outcome.side is None:
            pytest.fail(f"the judge gave no verdict: {outcome.invalid}\n{self._texts(instruction, new, old)}")
        if outcome.side not in wanted:
            head = f"the judge does not find that the new response {claim} the old one on {dimension}"
            raise AssertionError(
                f"{head}\n{self._texts(instruction, new, old)}\n{_verdict(outcome)}\n{self._kept()}"
            )
        return outcome

    def _with(self, on: str) -> tuple[AnyJudge, str]:
        """The judge under the protocol that asks on a dimension, and the dimension; without one, the headline."""
        from evenhand.core.errors import InputError
        from evenhand.core.protocol import Protocol, built_in_names
        from evenhand.core.verdict import found_on, headline

        name = self._protocol or on or "overall"
        if not self._protocol and name not in built_in_names():
            raise InputError(f"no built-in protocol asks on '{on}'", hint="set evenhand_protocol to one that does")
        template = _own_protocol(self._spec) or Protocol.load(name)
        dimension, known = on or headline(template.dimensions), found_on(template.dimensions)
        if dimension not in known:
            raise InputError(f"{name} does not ask on '{on}'", hint=f"it asks on {', '.join(known)}")
        if self._template != template.fingerprint:
            self._template = template.fingerprint
            self._open(template)
        assert self._judge is not None
        return self._judge, dimension

    def _open(self, template: Protocol) -> None:
        """The judge, or a jury where several are named, under a protocol; a model is loaded once."""
        from evenhand.core.engine import Engine
        from evenhand.core.judge import Setup
        from evenhand.views.api import Judge
        from evenhand.views.jury import Escalation, Jury, ManyJudges, split_judges

        if not self._judges:
            self.db.parent.mkdir(parents=True, exist_ok=True)
            spec = self._spec
            named = split_judges(spec) if isinstance(spec, str) else [spec] if isinstance(spec, Engine) else spec
            self._judges = [Judge(name, template, db=self.db) for name in named]
        for judge in self._judges:  # the engine lives on its Judge's loop
            judge.setup = Setup(judge.setup.engine, template)
        if isinstance(self._judge, ManyJudges):
            self._judge.close()
        if self._agree:
            self._judge = Escalation(self._judges, db=self.db, agree=self._agree, people=False)
        else:
            self._judge = self._judges[0] if len(self._judges) == 1 else Jury(self._judges, db=self.db)

    def _texts(self, instruction: str, new: str, old: str) -> str:
        named = {"instruction": instruction, "new": new, "old": old}
        return "\n".join(f"  {name}: {_short(text)}" for name, text in named.items())

    def _kept(self) -> str:
        setup = self._judge.setup if self._judge else None
        who = f"{setup.engine.identity['model']} under {setup.protocol.name}" if setup else "nobody"
        return f"  judge: {who}; verdicts are kept in {self.db}"


def _verdict(outcome: Outcome) -> str:
    said = {"1": "the new one is better", "2": "the old one is better", "tie": "a tie"}[str(outcome.side)]
    p = outcome.p
    shares = f" (new {p['1']:.0%}, old {p['2']:.0%}, tie {p['tie']:.0%})" if p else ""
    agree = "; the two orders contradict each other" if outcome.inconsistent else ""
    return f"  verdict: {said}{shares}{agree}"


def _short(text: str) -> str:
    return repr(text if len(text) <= _SHOWN else text[: _SHOWN - 1] + "…")


def _cases(
    pairs: str | Path | Iterable[Pair] | None, candidate: str | Path | None, baseline: str | Path | None
) -> Callable[[], Iterable[Pair]]:
    """What reads the cases, again and again; all of them are checked first."""
    from evenhand.core.errors import InputError
    from evenhand.io.pairs import check_pairs, join_outputs, read_pairs

    if candidate is not None and baseline is not None and pairs is None:
        joined = join_outputs(candidate, baseline, candidate_side="2")
        return lambda: joined
    if pairs is None or candidate is not None or baseline is not None:
        raise InputError("gate needs pairs, or a candidate and a baseline")
    if isinstance(pairs, str | Path):
        check_pairs(pairs)
        return lambda: read_pairs(pairs)
    every = list(pairs)
    return lambda: every


def _own_protocol(judge: object) -> Protocol | None:
    """The protocol of a judge that answers no other: a trained head, by its name or as an engine."""
    from evenhand.engines.heads import PREFIX, is_head

    if isinstance(judge, str) and is_head(judge):
        from evenhand.engines.heads.engine import head_protocol
        from evenhand.engines.heads.head import find_head

        return head_protocol(find_head(judge.removeprefix(PREFIX)))
    return getattr(judge, "protocol", None)


_REFEREE: pytest.StashKey[Referee] = pytest.StashKey()


@pytest.fixture(scope="session")
def evenhand_judge(pytestconfig: pytest.Config) -> Any:
    """Who judges: a name, an Engine, a list for a jury. Override it in conftest.py for an engine of your own."""
    from evenhand.views.api import default_judge

    return _setting(pytestconfig, "judge") or default_judge(_setting(pytestconfig, "protocol"))


@pytest.fixture(scope="session")
def referee(pytestconfig: pytest.Config, evenhand_judge: Any) -> Iterator[Referee]:
    """All of it: better, not_worse, gate."""
    db = pytestconfig.rootpath / (_setting(pytestconfig, "db") or DEFAULT_DB)
    agree = float(_setting(pytestconfig, "agree") or 0)
    found = pytestconfig.stash[_REFEREE] = Referee(evenhand_judge, _setting(pytestconfig, "protocol"), db, agree)
    yield found
    found.close()


@pytest.fixture
def better(referee: Referee) -> Callable[..., Outcome]:
    """better(new, than=old, instruction=..., on="") fails unless new is better."""
    return referee.better


@pytest.fixture
def not_worse(referee: Referee) -> Callable[..., Outcome]:
    """not_worse(new, than=old, instruction=..., on="") fails if old is better."""
    return referee.not_worse


@pytest.fixture
def gate(referee: Referee) -> Callable[..., GateResult]:
    """gate(pairs) or gate(candidate=..., baseline=...) fails unless the new side is shown not to be worse."""
    return referee.gate


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    """One line: how many pairs were judged, and how often that took a question."""
    from evenhand.results.wording import count

    referee = config.stash.get(_REFEREE, None)
    if referee is not None and referee.judged:
        judged, asked = count(referee.judged, "pair"), count(referee.asked, "question")
        terminalreporter.write_line(f"evenhand: {judged} judged, {asked} asked")


def _setting(config: pytest.Config, name: str) -> str:
    given = config.getoption(f"--evenhand-{name}")
    return str(given if given is not None else config.getini(f"evenhand_{name}"))
