"""The gate: is model 2 worse than model 1 by more than a margin, by the verdicts of a judge?

not_worse     model 2's win rate is at least 1/2 less the margin
worse         it is below that
fallen        it may be above that, but it has fallen since an earlier gate, by more than chance would explain
undecided     the verdicts that the budget allowed leave both possible
not_judged    there are no verdicts to speak of, or none to pass a model by: the judge failed, not the model
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

from evenhand.core.errors import InputError
from evenhand.core.stats.clusters import Weighting
from evenhand.core.steering import STEERING
from evenhand.results.answer import distrust
from evenhand.results.counting import repeats_text, weighs_text
from evenhand.results.decision import Decider, RunningRate
from evenhand.results.losses import NO_LOSSES, Losses, SinceLast
from evenhand.results.plain import plain
from evenhand.results.wording import anytime_text, count, example_text, listed, percent

if TYPE_CHECKING:
    from evenhand.results.summary import Summary

# An instruction is one observation of the confidence sequence; `results` and `rank` weigh alike by default.
WEIGHTING: Weighting = "instructions"
GateOutcome = Literal["not_worse", "worse", "fallen", "undecided", "not_judged"]
# After so many pairs without one valid verdict, the rest would fare no better.
HOPELESS = 20


@dataclass(frozen=True, slots=True)
class Gate:
    """What has to be shown: that side 2's win rate is not below one half by more than the margin.

    >>> Gate(margin=0.05).bar
    0.45
    """

    margin: float = 0.05

    def __post_init__(self) -> None:
        if not 0 <= self.margin < 0.5:
            raise InputError(
                f"--margin {self.margin:g}", hint="a share from 0 up to, not including, 0.5; 0.05 is 5 points"
            )

    @property
    def bar(self) -> float:
        """The lowest win rate of side 2 that passes."""
        return 0.5 - self.margin

    def outcome(self, standing: RunningRate) -> GateOutcome:
        """What the verdicts so far allow to say; an invalid one may have fallen either way.

        >>> from evenhand.core.stats.sequence import Bounds
        >>> Gate().outcome(RunningRate("overall", Bounds(0.3, 0.2, 0.54, 40), pairs=40, invalid=1))
        'not_worse'
        """
        where = standing.against(1 - self.bar)  # of side 1, whose rate is the rest
        if where is not None:
            return "not_worse" if where == "below" else "worse"
        return "not_judged" if standing.pairs and standing.invalid == standing.pairs else "undecided"

    def settled(self, standing: RunningRate) -> bool:
        """Whether going on is of no use: it is decided, or nothing comes out of this judge."""
        outcome = self.outcome(standing)
        return outcome in ("not_worse", "worse") or self.hopeless(standing)

    def hopeless(self, standing: RunningRate) -> bool:
        """Whether nothing comes out of this judge."""
        return standing.pairs >= HOPELESS and self.outcome(standing) == "not_judged"


@dataclass(frozen=True, slots=True)
class GateResult:
    """A gate that was gone through, with all that a log or a pull request should say."""

    gate: Gate
    standing: RunningRate
    sides: tuple[str, str]
    pairs: int  # that there were to judge
    judged: int
    why: str = ""  # the run ended before all pairs were judged, other than by the decision
    failure: str = ""  # what kept the judge from judging
    repeats: int = 0  # exact repeats of other pairs, which are in no number
    losses: Losses = NO_LOSSES  # pairs that got worse
    since: SinceLast | None = None  # against an earlier gate
    distrust: str = ""  # why the verdicts say little; no model passes by them
    reasons: Sequence[str] = ()  # why verdicts are invalid
    examples: Mapping[str, str] = field(default_factory=dict)  # one answer or message for each of these

    @classmethod
    def of_run(
        cls,
        gate: Gate,
        decider: Decider,
        summary: Summary,
        *,
        pairs: int,
        most: int,
        why: str = "",
        failure: str = "",
        losses: Losses = NO_LOSSES,
    ) -> GateResult:
        """What a run came to that was allowed `most` of these pairs; exact repeats are taken off them."""
        if not why and not failure and most < pairs and not decider.met:
            why = f"the budget of {count(most, 'pair')} is used up"
        counts = (pairs - summary.repeats, summary.pairs, why, failure, summary.repeats)
        found = summary.dimensions.get(decider.dimension)
        return cls(
            *(gate, decider.standing, summary.sides, *counts, losses),
            distrust=distrust(summary, decider.dimension),
            reasons=[*found.invalid_reasons] if found else (),
        )

    @property
    def outcome(self) -> GateOutcome:
        """What it came to.

        A judge that takes whatever stands first ties every pair, and would pass every model. Where it leaves a
        model undecided, more of its verdicts would not help.
        """
        found = self.gate.outcome(self.standing)
        if found == "undecided" and self.failure:
            return "not_judged"
        if self.since is not None and self.since.fell and found in ("not_worse", "undecided"):
            return "fallen"
        return "not_judged" if self._is_doubted else found

    @property
    def interval(self) -> tuple[float, float]:
        """Where side 2's win rate lies."""
        return 1 - self.standing.rate.high, 1 - self.standing.rate.low

    @property
    def value(self) -> float | None:
        """Side 2's win rate over the valid verdicts."""
        return None if self.standing.rate.value is None else 1 - self.standing.rate.value

    @property
    def saved(self) -> int:
        """Pairs that did not have to be judged."""
        return self.pairs - self.judged if self.outcome in ("not_worse", "worse") else 0

    @property
    def beyond(self) -> int:
        """Pairs that were judged and do not count: in the order of the draw they come after the last that does.

        They were under way when counting ended, or stood in the store.
        """
        return self.judged - self.standing.pairs

    @property
    def stopped(self) -> str:
        """Why not all pairs count, or none does, other than by a decision that stands."""
        if self.why:
            return self.why
        if self.standing.pairs and self.standing.invalid == self.standing.pairs:
            return self._without_verdict()
        if self._is_doubted and self._would_pass and self.standing.pairs < self.pairs:
            enough = count(self.standing.pairs, "pair")
            return f"{enough} would have been enough to pass {self.names[1]}, if the judge could be trusted"
        return ""

    def _without_verdict(self) -> str:
        """That there is no verdict, and why; one that was asked in one order only has no reason."""
        every = self.standing.pairs == self.pairs
        none = "no pair" if every else f"none of the first {count(self.standing.pairs, 'pair')}"
        why = f" ({listed(self.reasons)})" if self.reasons else " in both orders"
        said = f"; {example_text(next(iter(self.examples.values())))}" if self.examples else ""
        return f"{none} has a valid verdict{why}{said}"

    def plain(self) -> dict[str, object]:
        """The result as JSON has it."""
        rate = self.standing.rate
        implied = None if rate.least is None or rate.most is None else [1 - rate.most, 1 - rate.least]
        return {
            "decision": self.outcome,
            "dimension": self.standing.dimension,
            "sides": {"1": self.sides[0], "2": self.sides[1]},
            "margin": self.gate.margin,
            "bar": self.gate.bar,
            "win_rate_2": self.value,
            "interval": list(self.interval),
            "interval_level": rate.level,
            "interval_method": rate.method,
            "weighting": WEIGHTING,
            "invalid_bounds": implied,
            "pairs": self.pairs,
            "judged": self.judged,
            "repeats": self.repeats,
            "counted": self.standing.pairs,
            "instructions": self.standing.instructions,
            "invalid": self.standing.invalid,
            "beyond": self.beyond,
            "saved": self.saved,
            "stopped": self.stopped,
            "failure": self.failure,
            "distrust": self.distrust,
            "got_worse": self.losses.count,
            "worst": [plain(loss) for loss in self.losses.worst],
            "since_last": plain(self.since) if self.since else None,
        }

    @property
    def word(self) -> str:
        """The outcome in a word: PASS or FAIL, or why it is neither."""
        words = {
            "not_worse": "PASS",
            "worse": "FAIL",
            "fallen": "FAIL",
            "undecided": "UNDECIDED",
            "not_judged": "NOT JUDGED",
        }
        return words[self.outcome]

    def sentence(self) -> str:
        """The outcome in a sentence."""
        one, two = self.names
        earlier = self.since.earlier if self.since else ""
        points = f"{100 * self.gate.margin:g} points"
        fault = "this judge cannot be trusted" if self._is_doubted else "the judging failed"
        return {
            "not_worse": f"{two} is not worse than {one} by more than {points}",
            "worse": f"{two} is worse than {one} by more than {points}",
            "fallen": f"the win rate of {two} has fallen since {earlier}",
            "undecided": f"the verdicts do not yet show whether {two} is worse than {one} by more than {points}",
            "not_judged": f"{fault}, so it is not known whether {two} is worse than {one}",
        }[self.outcome]

    @property
    def _is_doubted(self) -> bool:
        """Whether nothing is known of the model because the judge cannot be trusted."""
        found = self.gate.outcome(self.standing)
        return bool(self.distrust) and (found == "not_worse" or (found == "undecided" and not self.failure))

    @property
    def _would_pass(self) -> bool:
        """Whether the verdicts are enough to pass the model, whatever they are worth."""
        return self.gate.outcome(self.standing) == "not_worse"

    @property
    def names(self) -> tuple[str, str]:
        """What to call the two models."""
        one, two = self.sides
        return ("model 1" if one == "1" else one), ("model 2" if two == "2" else two)

    def details(self) -> Mapping[str, str]:
        """What stands behind the outcome, in a few lines with names."""
        value = "unknown" if self.value is None else percent(self.value)
        ended = self.failure or self.stopped
        broken = self.outcome == "not_judged" and not self._is_doubted
        lines = {"do not trust this": self.distrust} if self.distrust else {}
        if broken and ended:  # the only thing to know
            lines["ended"] = ended
        lines |= {
            f"win rate of {self.names[1]} on {self.standing.dimension}": (
                f"{value}, {anytime_text(self.interval, self.standing.rate.level)}"
            ),
            "has to be at least": f"{100 * self.gate.bar:g}%",
            "pairs": f"{self.judged:,} of {self.pairs:,} judged; {self.standing.pairs:,} counted, on "
            f"{count(self.standing.instructions, 'instruction')}; in the win rate {weighs_text(WEIGHTING)}",
        }
        if self.repeats:
            lines["repeats"] = repeats_text(self.repeats)
        if self.since:
            lines[f"since {self.since.earlier}"] = self.since.sentence()
        if self.beyond:
            lines |= self._beyond_line()
        if self.saved:
            lines["saved"] = f"{count(self.saved, 'pair')} did not have to be judged"
        if self.standing.invalid:
            lines["invalid"] = f"{self.standing.invalid:,} of the pairs; the interval holds whichever way they fell"
        if ended:
            lines.setdefault("ended", ended)
        if self.outcome == "undecided":
            lines["to decide it"] = "more pairs, or a larger margin"
        elif self.outcome == "not_judged" and self._is_doubted:
            lines["to decide it"] = "another judge, or another protocol"
        return lines

    def _beyond_line(self) -> Mapping[str, str]:
        pairs = count(self.beyond, "pair")
        if self.outcome in ("not_worse", "worse"):
            return {"beyond the decision": f"{pairs}, which {'does' if self.beyond == 1 else 'do'} not count"}
        return {
            "not counted": f"{pairs}, which {'comes' if self.beyond == 1 else 'come'} later in the random order"
        }

    def losses_sentence(self) -> str:
        """How many pairs got worse."""
        return self.losses.sentence(self.names[0], self.judged)

    def loss_lines(self) -> Iterator[str]:
        """The pairs that got worse: how many they are, then the clearest of them, each on a line."""
        if self.losses.count:
            yield self.losses_sentence()
        for loss in self.losses.worst:
            yield " ".join(filter(None, ("-", loss.id, loss.sure and f"({loss.sure})", loss.short)))

    def markdown(self) -> str:
        """The result for a pull request; names from a file stay text."""
        rows = [f"| {_plain(name)} | {_plain(text)} |" for name, text in self.details().items()]
        head = [f"### {self.word}: {_plain(self.sentence())}", "", "| | |", "|---|---|", *rows, ""]
        return "\n".join([*head, *self._losses_table()])

    def _losses_table(self) -> list[str]:
        if not self.losses.worst:
            return []
        rows = [f"| {_plain(loss.id)} | {_plain(loss.sure)} | {_plain(loss.short)} |" for loss in self.losses.worst]
        title = f"**{_plain(self.losses_sentence())}**"
        return [title, "", "| pair | sure | instruction |", "|---|---|---|", *rows, ""]


def _plain(text: str) -> str:
    """Text that Markdown shows as it is, and in which GitHub finds nobody to call and nothing to link to.

    It looks for those in the finished page, where an entity is its character again: so something invisible follows.

    >>> _plain("a|b <b>*x*</b>"), _plain("@all, http://a.b")
    ('a&#124;b &#60;b&#62;&#42;x&#42;&#60;/b&#62;', '&#64;&#8203;all, http&#58;&#8203;//a.b')
    """
    shown = STEERING.sub("\ufffd", " ".join(text.split()))
    return re.sub(r"[|<>*_`\\[\]!&#~@$]|:(?=//)|(?i:(?<=www))\.", _entity, shown)


def _entity(sign: re.Match[str]) -> str:
    return f"&#{ord(sign[0])};" + ("&#8203;" if sign[0] in "@#:." else "")
