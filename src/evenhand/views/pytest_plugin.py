"""evenhand in test suites: fixtures that judge, with verdicts that are kept, so that a second run asks nothing.

    def test_the_answer_is_better(better):
        better(answer("2 + 2?"), than="5", instruction="2 + 2?", on="correctness")

    def test_the_new_prompt_is_not_worse(gate):
        gate(candidate="new.jsonl", baseline="old.jsonl", margin=0.05)

docs/pytest.md has the rest. Heavy modules are imported when the first test asks for a judge, not when pytest
starts.
"""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import chain, islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from evenhand.core.engine import Engine
    from evenhand.core.judge import Judgment
    from evenhand.core.pair import Pair
    from evenhand.core.protocol import Protocol
    from evenhand.core.verdict import Outcome
    from evenhand.io.pairs import Unmatched
    from evenhand.results.decision import Decider
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
_WORST = 3  # cases that got worse in a message
_TOGETHER = 4  # pairs that several judges are asked about before the gate is looked at again


def pytest_addoption(parser: pytest.Parser) -> None:
    """Options and settings: --evenhand-judge or evenhand_judge, and so on."""
    group = parser.getgroup("evenhand", "judging responses")
    for name, given in _OPTIONS.items():
        group.addoption(f"--evenhand-{name}", default=None, help=given)
        parser.addini(f"evenhand_{name}", given, default="")


class CasesWarning(UserWarning):
    """Something is to be said of the cases of a gate, such as that some are left out."""


class Referee:
    """Judges for tests: one engine, one database, as many protocols as are asked for."""

    def __init__(
        self, judge: str | Engine | Sequence[str | Engine], protocol: str, db: Path, agree: float = 0.0
    ) -> None:
        self._named, self._protocol, self.db, self._agree = _named(judge), protocol, db, agree
        self._judges: list[Judge] = []
        self._judge: AnyJudge | None = None
        self._opened: tuple[str, ...] = ()  # under which protocols, and of levels on what
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
        from evenhand.results.losses import TrialLog
        from evenhand.results.summary import Counter
        from evenhand.views.console import one_line

        with _OwnLines():
            shuffled = Shuffle(_cases(pairs, candidate, baseline), seed=seed)
            (judge, dimension), what = self._with(on), Gate(margin)
            decider = Decider(dimension, level=level, enough=what.settled)
            counter, log = Counter(), TrialLog(dimension, _WORST)
            most = min(max_pairs or shuffled.pairs, shuffled.pairs)
            for judgment in self._until_settled(judge, decider, decider.watch(islice(shuffled, most))):
                counter.add(judgment)
                log.add(judgment)
        summary = counter.summary()
        self.judged += summary.pairs
        result = GateResult.of_run(what, decider, summary, pairs=shuffled.pairs, most=most, losses=log.losses)
        if result.outcome != "not_worse":
            details = [*(f"{name}: {text}" for name, text in result.details().items()), *result.loss_lines()]
            below = [f"  {one_line(line)}" for line in details]
            raise AssertionError("\n".join([one_line(result.sentence()), *below, self._kept()]))
        return result

    def _until_settled(self, judge: AnyJudge, decider: Decider, drawn: Iterator[Pair]) -> Iterator[Judgment]:
        """Judgments until they are enough: what is under way then is paid for, and comes out.

        A run of one judge ends soon after any pair. One of several judges asks them in turns, about many pairs at
        a time; so there are several runs of it, each over a few.
        """
        __tracebackhide__ = True
        from evenhand.views.jury import ManyJudges

        more = _TOGETHER - 1 if isinstance(judge, ManyJudges) else None
        while not decider.met and (first := next(drawn, None)) is not None:
            with judge.run(chain([first], islice(drawn, more)), line=decider) as judgments:
                for judgment in judgments:
                    if decider(judgment):
                        judgments.stop()
                    yield judgment
                self.asked += judgments.totals.asked

    def close(self) -> None:
        """Stop the engines and close the database."""
        for judge in {id(judge): judge for judge in (self._judge, *self._judges) if judge is not None}.values():
            judge.close()

    def _compare(
        self, new: str, old: str, instruction: str, on: str, wanted: tuple[str, ...], claim: str
    ) -> Outcome:
        __tracebackhide__ = True
        with _OwnLines():
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
        from evenhand.core.verdict import headline

        templates = self._protocols(on)
        dimension = on or headline(_dimensions(self._named, templates))
        opened = (*[template.fingerprint for template in templates], dimension if self._agree else "")
        if self._opened != opened:
            self._open(templates, dimension)
            self._opened = opened
        assert self._judge is not None
        return self._judge, dimension

    def _protocols(self, on: str) -> list[Protocol]:
        """What each judge is asked; a trained head has a protocol of its own and answers no other."""
        from evenhand.core.errors import InputError, SpecError
        from evenhand.core.verdict import found_on

        own = [_own_protocol(judge) for judge in self._named]
        if self._protocol and any(own):
            raise SpecError(
                "a trained head is not asked anything, so it takes no protocol", hint="leave evenhand_protocol out"
            )
        templates = [template or self._asked(on) for template in own]
        for template in templates:
            known = found_on(template.dimensions)
            if on and on not in known:
                raise InputError(f"{template.name} does not ask on '{on}'", hint=f"it asks on {', '.join(known)}")
        return templates

    def _asked(self, on: str) -> Protocol:
        """The protocol for a judge that has none of its own."""
        from evenhand.core.errors import InputError
        from evenhand.core.protocol import Protocol, built_in_names

        if not self._protocol and on and on not in built_in_names():
            raise InputError(f"no built-in protocol asks on '{on}'", hint="set evenhand_protocol to one that does")
        return Protocol.load(self._protocol or on or "overall")

    def _open(self, templates: Sequence[Protocol], dimension: str) -> None:
        """The judge, or a jury or levels of several, each under its protocol; a model is loaded once."""
        from evenhand.core.judge import Setup
        from evenhand.views.api import Judge
        from evenhand.views.jury import Escalation, Jury, ManyJudges

        if not self._judges:
            self.db.parent.mkdir(parents=True, exist_ok=True)
            each = zip(self._named, templates, strict=True)
            self._judges = [Judge(name, template, db=self.db) for name, template in each]
        for judge, template in zip(self._judges, templates, strict=True):  # the engine lives on its Judge's loop
            judge.setup = Setup(judge.setup.engine, template)
        if isinstance(self._judge, ManyJudges):
            self._judge.close()
        self._opened = ()
        if self._agree:
            agree = self._agree
            self._judge = levels = Escalation(self._judges, db=self.db, agree=agree, people=False, on=dimension)
            levels.prepare(())  # by the labels of the database; before that it has no name and no fingerprint
        else:
            self._judge = self._judges[0] if len(self._judges) == 1 else Jury(self._judges, db=self.db)

    def _texts(self, instruction: str, new: str, old: str) -> str:
        named = {"instruction": instruction, "new": new, "old": old}
        return "\n".join(f"  {name}: {_short(text)}" for name, text in named.items())

    def _kept(self) -> str:
        from evenhand.views.console import one_line, visible

        setup = self._judge.setup if self._judge else None
        who = f"{setup.engine.identity['model']} under {setup.protocol.name}" if setup else "nobody"
        return f"  judge: {one_line(who)}; verdicts are kept in {visible(str(self.db))}"


class _OwnLines:
    """Lets an error of ours end a test with its sentence and the test's own line, without lines of evenhand."""

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        __tracebackhide__ = True
        from evenhand.core.errors import EvenhandError

        if isinstance(error, EvenhandError):
            raise error.with_traceback(None) from None


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
    """What reads the cases, again and again; all of them are checked first, and what is to be said of them is."""
    from evenhand.core.errors import InputError
    from evenhand.io.pairs import check_pairs, join_outputs, read_pairs

    if candidate is not None and baseline is not None and pairs is None:
        joined = join_outputs(candidate, baseline, candidate_side="2")
        _warn(joined.notes, joined.unmatched)
        return lambda: joined
    if pairs is None or candidate is not None or baseline is not None:
        raise InputError("gate needs pairs, or a candidate and a baseline")
    if isinstance(pairs, str | Path):
        notes = Counter[str]()
        check_pairs(pairs, notes=notes)
        _warn(notes)
        return lambda: read_pairs(pairs)
    every = list(pairs)
    return lambda: every


def _warn(notes: Mapping[str, int], unmatched: Iterable[Unmatched] = ()) -> None:
    """Warn, at the line of the test, of what the command line would name on stderr."""
    from evenhand.results.wording import count, unmatched_text
    from evenhand.views.console import visible

    said = [f"{note} ({count(rows, 'row')})" for note, rows in notes.items()]
    for text in (*said, *map(unmatched_text, unmatched)):
        warnings.warn(visible(text), CasesWarning, stacklevel=4)


def _named(judge: str | Engine | Sequence[str | Engine]) -> list[str | Engine]:
    """The judges one by one; a text may name several."""
    from evenhand.core.engine import Engine
    from evenhand.views.jury import split_judges

    if isinstance(judge, str):
        return [*split_judges(judge)]
    return [judge] if isinstance(judge, Engine) else [*judge]


def _own_protocol(judge: str | Engine) -> Protocol | None:
    """The protocol of a judge that answers no other: a trained head, by its name or as an engine."""
    from evenhand.engines.heads import PREFIX, is_head
    from evenhand.engines.heads.engine import HeadEngine, head_protocol
    from evenhand.engines.heads.head import find_head

    if isinstance(judge, str):
        return head_protocol(find_head(judge.removeprefix(PREFIX))) if is_head(judge) else None
    return judge.protocol if isinstance(judge, HeadEngine) else None


def _dimensions(judges: Sequence[str | Engine], templates: Sequence[Protocol]) -> tuple[str, ...]:
    """What there are outcomes on: all that one judge is asked, of several what they have in common."""
    from evenhand.engines.made import Member, shared_dimensions

    names = [judge if isinstance(judge, str) else judge.identity["model"] for judge in judges]
    each = zip(names, templates, strict=True)
    members = [Member(name, template.name, "", tuple(template.dimensions)) for name, template in each]
    return shared_dimensions(members)


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
